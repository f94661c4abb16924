/* keep.h: a loop that is not unrolled, as the executor and the gradient want it: a Scan in one form.
 *
 *   before   y, all = Loop (100000, true, h0) <body = b (i, go, h) => (go, h2, out)>
 *   after    y, all = Scan (h0, iterations) <body = b (h, i) => (h2, out)>
 *
 * A body in that form has no weights of its own (they are initializers of the outermost graph, which it reads
 * by name, as all others are), computes nothing that is the same in each step, makes each output by a node and
 * no value twice, and all its sizes are known. Bodies within it are those of loops in that form.
 */
#pragma once

#include "passes/flatten/control.h"

/* Whether the node is a loop of a known number of steps, more than become copies. */
bool ebb_keep_wants(const ebb_unroll *u, ebb_node n);
/* Brings it into that form. *why: NULL, or what stands in the way; *changed: something was to be done. */
ebb_status ebb_keep_node(ebb_unroll *u, ebb_node n, const char **why, bool *changed);
