/* eval.h: one node on constant inputs. What `fold` computes with; always the plain kernels. */
#pragma once

#include "onnx/graph/graph.h"

/* Output tensors in arena memory. Inputs must be constants (ebb_value_constant). EBB_RUNTIME: a result
 * is larger than limit_bytes, or the operator draws random numbers. EBB_REJECTED: it would take too
 * much work or memory for a file of this size (exec/weigh/allowance.h). */
ebb_status ebb_eval_node(const ebb_graph *g, ebb_node n, ebb_tensor *out, uint32_t out_count,
                         size_t limit_bytes, ebb_arena *arena);
