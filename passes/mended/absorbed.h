/* absorbed.h: nodes that an exporter made one because their operands were equal, apart again. */
#pragma once

#include "onnx/graph/graph.h"

/* In files of the dynamo exporter; see absorbed.c. What is made is marked EBB_MERGED_WITH. */
ebb_status ebb_absorbed_part(ebb_graph *g, ebb_arena *scratch);
