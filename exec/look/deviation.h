/* deviation.h: how far the numbers of two programs of one step are apart, as JSON. */
#pragma once

#include "exec/json.h"
#include "exec/run/program.h"

/* What the states of a program held before its step: a copy in arena memory. */
typedef struct ebb_kept_states {
    const void **bytes; /* by value id of the program's graph; NULL: no state of floats */
} ebb_kept_states;

ebb_status ebb_keep_states(ebb_kept_states *kept, ebb_program *program, ebb_arena *arena);

/* After one step of each from the same states (`kept`, of `before`) on the same batch: sets
 * `values`, `cosine`, `max_abs_error`, `max_rel_error`, `bit_equal` and, where parameters are
 * trained, `gradients`. */
ebb_status ebb_deviation_json(json_t *root, ebb_program *before, ebb_program *after,
                              const ebb_kept_states *kept, ebb_arena *scratch);
