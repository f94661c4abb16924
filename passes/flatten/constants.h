/* constants.h: nodes that compute from constants alone. */
#pragma once

#include "onnx/graph/facts.h"
#include "rewrite/rewrite.h"

/* The value's bytes where they may be computed with: never those of a weight. Else NULL. */
const ebb_tensor *ebb_constant_foldable(const ebb_graph *g, ebb_value v);

/* What leaves the graph is made by a node: it has a name of its own and memory of its own. */
bool ebb_constant_leaves(const ebb_graph *g, ebb_value v);

/* Where the node computes from constants or known facts alone, its outputs become initializers and
 * it goes: *done. */
ebb_status ebb_constant_fold(ebb_edit *e, ebb_node n, ebb_facts *facts, bool *done);

/* Some exporters write every weight as a Constant node. Where no initializer is a weight, but such
 * nodes lie where operators take weights, those become weights, and others that have a name. */
ebb_status ebb_constant_take_weights(ebb_edit *e);
