/* change.h: what the files that change a graph ask of each other: graph.c (nodes and values), names.c,
 * attributes.c, interface.c. Others call graph.h. */
#pragma once

#include "onnx/graph/graph.h"

/* ---- names.c ---- */

bool ebb_name_make_room(ebb_graph *g); /* for one more; false: no memory */
/* Nothing else has the name, and there is room. */
void ebb_name_take(ebb_graph *g, ebb_value v, ebb_str name);
void ebb_name_free(ebb_graph *g, ebb_value v); /* another value may have v's name */

/* ---- interface.c ---- */

/* Outputs, bindings and the loss have `with` where they had `old`. */
void ebb_interface_replace(ebb_graph *g, ebb_value old, ebb_value with);
/* Initializers that were made here and that nobody reads are gone. */
void ebb_interface_sweep(ebb_graph *g);
