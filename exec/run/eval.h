/* eval.h: one node on constant inputs. What `fold` computes with; always the plain kernels. */
#pragma once

#include "onnx/graph/graph.h"

/* Output tensors in arena memory. Inputs must be constants (ebb_value_constant). Refuses
 * (EBB_RUNTIME) results above limit_bytes and operators that draw; EBB_REJECTED: what takes too long
 * or leaves too much (exec/weigh/allowance.h). */
ebb_status ebb_eval_node(const ebb_graph *g, ebb_node n, ebb_tensor *out, uint32_t out_count,
                         size_t limit_bytes, ebb_arena *arena);
