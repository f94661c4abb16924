/* gone.h: what went with its node because it did nothing, or next to nothing. */
#pragma once

#include "onnx/graph/graph.h"

/* In files of the dynamo exporter; see gone.c. Notes them at the graph as EBB_GONE (parameters/trainable.h). */
ebb_status ebb_gone_mark(ebb_graph *g, ebb_arena *scratch);

/* Roots, logarithms and quotients of a sum that the exporter dropped: the first, and a sentence in arena memory;
 * NULL: none. */
ebb_status ebb_gone_sums(char **text, ebb_node *first, const ebb_graph *g, ebb_arena *arena);
