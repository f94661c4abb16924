/* gone.h: parameters that went with their node because they did nothing yet. */
#pragma once

#include "onnx/graph/graph.h"

/* In files of the dynamo exporter; see gone.c. Notes them at the graph as EBB_GONE (parameters/trainable.h). */
ebb_status ebb_gone_mark(ebb_graph *g, ebb_arena *scratch);
