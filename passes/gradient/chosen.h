/* chosen.h: which weights pass gradient trains, and what is said of those that it does not. */
#pragma once

#include "passes/gradient/reverse.h"
#include "passes/parameters/trainable.h"

typedef struct ebb_chosen {
    ebb_weight *list; /* by value id */
    ebb_trainable_source source;
    size_t value_count; /* when it was made: what came later is no weight */
    const char *train, *freeze;
} ebb_chosen;

ebb_status ebb_chosen_open(ebb_chosen *chosen, ebb_edit *e);

/* Fills r->trains by the options and, where they say nothing, by what is surely a weight. */
ebb_status ebb_chosen_take(const ebb_chosen *chosen, ebb_reverse *r, size_t *count);

/* How many of those that r->trains has lost their names. */
size_t ebb_chosen_lost(const ebb_chosen *chosen, const ebb_reverse *r);

/* With r->counts: says how much is trained and what not, and refuses to train less than half of what
 * looks like a weight, or less than all where the file lost some for good, unless somebody asked for it. */
ebb_status ebb_chosen_tell(const ebb_chosen *chosen, const ebb_reverse *r);
