/* iterated.h: vectors that spectral norm iterates under no_grad(), of which no file tells. */
#pragma once

#include "onnx/graph/graph.h"

/* In files that were exported in training mode; see iterated.c. Values of the graph stay what they are. */
ebb_status ebb_iterated_detach(ebb_graph *g);
