/* dropped.h: biases that an exporter left out because they were zero, put back. */
#pragma once

#include "onnx/graph/graph.h"

/* Metadata of an initializer: it was not in the file. */
#define EBB_DROPPED "ebb.dropped"

/* In files of the dynamo exporter; see dropped.c. Values of the graph stay what they are. */
ebb_status ebb_dropped_restore(ebb_graph *g, ebb_arena *scratch);
