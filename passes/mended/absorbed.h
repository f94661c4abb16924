/* absorbed.h: nodes that an exporter made one because their operands were equal, apart again. */
#ifndef EBB_PASSES_MENDED_ABSORBED_H
#define EBB_PASSES_MENDED_ABSORBED_H

#include "onnx/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In files of the dynamo exporter; see absorbed.c. What is made is marked EBB_MERGED_WITH. */
ebb_status ebb_absorbed_part(ebb_graph *g, ebb_arena *scratch);

#ifdef __cplusplus
}
#endif
#endif
