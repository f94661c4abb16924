/* zeros.h: biases that an exporter made of zeros, dropped. */
#pragma once

#include "onnx/graph/graph.h"

/* Before types are inferred; see zeros.c. Values of the graph stay what they are. */
ebb_status ebb_zeros_drop(ebb_graph *g);
