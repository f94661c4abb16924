/* weights.h: bytes into the initializers of a model. weights.c takes them from files and programs, draw.c
 * from the model's own initialization graph.
 */
#pragma once

#include "exec/run/program.h"

/* The initializer has a copy of these bytes from now on. What the file said of its form (data type,
 * external or not) stays, so that a save changes the numbers alone. */
ebb_status ebb_weights_give(ebb_graph *g, ebb_value v, const void *data, size_t bytes);

/* Whether an array is of this type, and the sentence where it is not. */
bool ebb_weights_fit(const ebb_type *type, const ebb_named *named);
ebb_status ebb_weights_differ(const char *name, const ebb_type *need, const ebb_named *given);

/* As ebb_program_store, but what need not be made for it is not copied: the target is good until the program's
 * next step. */
ebb_status ebb_program_lend(ebb_program *program, ebb_model *target);

/* An error where the model has no weight that one of the program's adapters could be added into. */
ebb_status ebb_weights_take(const ebb_program *program, const ebb_model *model);
