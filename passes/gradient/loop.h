/* loop.h: the gradient of a loop is a loop. */
#pragma once

#include "passes/gradient/reverse.h"

/* Gradients of what a node's body reads by name. */
typedef struct ebb_captured_grad {
    ebb_value x;  /* of the graph around */
    ebb_value dx; /* its sum so far, which the steps add to; none: nothing has arrived */
} ebb_captured_grad;

/* Emits the gradient of Scan n, when dy[] has those of its outputs: dx[] of its inputs, and captured[0 ..
 * count) of what its body reads by name, which the caller has filled. The forward gets more
 * outputs: what the backward reads of each step. EBB_UNSUPPORTED names what has no gradient. */
ebb_status ebb_loop_grad(ebb_reverse *r, ebb_node n, const ebb_value *dy, const bool *wants,
                         ebb_value *dx, ebb_captured_grad *captured, size_t count);
