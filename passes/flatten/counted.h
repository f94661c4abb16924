/* counted.h: what the body of a kept loop takes by the number of its step is walked through.
 *
 *   before   y = Scan (h0, 0 1 2 ...) <body = b (h, i) => (h2) { ... Gather (x, i) ... }>      x from outside
 *   after    y = Scan (h0, 0 1 2 ..., x) <body = b (h, i, s) => (h2) { ... s ... }>
 *
 * So a step reads its slice where it is, and the slice's gradient is a slice: as a sum over the steps, it would be of
 * the whole of x in each of them. Places may go up or down by any number, beside each other or with others between;
 * Slice (x, i, i + 1) is one of them, and of up to EBB_COUNTED_PARTS the parts are put together in the body.
 */
#pragma once

#include "passes/flatten/control.h"

enum { EBB_COUNTED_PARTS = 8 };

ebb_status ebb_counted_walk(ebb_unroll *u, ebb_edit *inner, ebb_node scan);
