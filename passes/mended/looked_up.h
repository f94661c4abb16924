/* looked_up.h: tables that constant folding looked up in, taken back to what they were. */
#ifndef EBB_PASSES_MENDED_LOOKED_UP_H
#define EBB_PASSES_MENDED_LOOKED_UP_H

#include "onnx/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Metadata of an initializer: the file held what was looked up in it. */
#define EBB_LOOKED_UP "ebb.looked_up"

/* In files from PyTorch; see looked_up.c. Values of the graph stay what they are. */
ebb_status ebb_looked_up_restore(ebb_graph *g);

#ifdef __cplusplus
}
#endif
#endif
