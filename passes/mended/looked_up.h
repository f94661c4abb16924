/* looked_up.h: tables that constant folding looked up in, taken back to what they were. */
#pragma once

#include "onnx/graph/graph.h"

/* Metadata of an initializer: the file held what was looked up in it. */
#define EBB_LOOKED_UP "ebb.looked_up"

/* In files from PyTorch; see looked_up.c. Values of the graph stay what they are. */
ebb_status ebb_looked_up_restore(ebb_graph *g);
