/* merged_names.h: parameters of which the TorchScript exporter left no more than a name. */
#pragma once

#include "onnx/graph/graph.h"

/* Gives them initializers of their own, marked EBB_MERGED_WITH; see merged_names.c. */
ebb_status ebb_merged_names_part(ebb_graph *g);
