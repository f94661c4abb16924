/* unfolded.h: parameters that constant folding repeated, taken back to what they were. */
#ifndef EBB_PASSES_PRIMAL_UNFOLDED_H
#define EBB_PASSES_PRIMAL_UNFOLDED_H

#include "onnx/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Metadata of an initializer: it stood in the file several times over. */
#define EBB_REPEATED "ebb.repeated"

/* In files from PyTorch; see unfolded.c. Values of the graph stay what they are. */
ebb_status ebb_repeated_shrink(ebb_graph *g);

#ifdef __cplusplus
}
#endif
#endif
