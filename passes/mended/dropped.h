/* dropped.h: biases that an exporter left out because they were zero, put back. */
#ifndef EBB_PASSES_MENDED_DROPPED_H
#define EBB_PASSES_MENDED_DROPPED_H

#include "onnx/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Metadata of an initializer: it was not in the file. */
#define EBB_DROPPED "ebb.dropped"

/* In files of the dynamo exporter; see dropped.c. Values of the graph stay what they are. */
ebb_status ebb_dropped_restore(ebb_graph *g, ebb_arena *scratch);

#ifdef __cplusplus
}
#endif
#endif
