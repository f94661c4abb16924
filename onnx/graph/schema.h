/* schema.h: what a node of a known operator may look like: how many operands, which of them have
 * one dtype, which kind each attribute has, what its bodies take and make. Rules of inference, gradient and kernels then need not
 * ask whether a required operand is there, nor whether a floating point one comes with integers.
 */
#pragma once

#include "onnx/graph/graph.h"

/* The attributes that known operators have, by index; NULL beyond the last. *type: its kind. A name
 * of two kinds comes twice. */
const char *ebb_attr_known(size_t index, ebb_attr_type *type);

/* EBB_REJECTED, naming the node, where it has too few or too many operands or an attribute of
 * another kind, operands of two dtypes that should be one, or a body that takes or makes other than
 * the node gives and hands on. Unknown operators and unknown attributes pass. */
ebb_status ebb_schema_check(const ebb_graph *g, ebb_node n);
