/* fingerprint.h: whether a graph is as it was. */
#pragma once

#include "onnx/graph/graph.h"

/* A number of all that inference and the ruler read, bodies included, but for marks of shared memory and
 * of streaming: nodes in their order, values, inputs, outputs, initializers and bindings. What lists of
 * attributes, types and tensors hold never changes: they are told by their addresses. So it is for
 * comparing a model with itself, while it lives. */
uint64_t ebb_fingerprint(const ebb_graph *g);
