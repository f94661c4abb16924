/* call.h: a node as a kernel sees it. Shared by plan.c and eval.c. */
#pragma once

#include "kernels/kernels.h"
#include "onnx/graph/graph.h"

/* Operands, attributes, label and stream of node n, in arena memory; no data pointers, no kernel.
 * EBB_REJECTED where an operand's size is unknown. */
ebb_status ebb_call_make(ebb_call *call, ebb_arena *arena, const ebb_graph *g, ebb_node n,
                         uint64_t seed);

/* The stream of random numbers that belongs to a name; longer by text: that of the longer name. */
#define EBB_STREAM_OF_NO_NAME UINT64_C(0xCBF29CE484222325)
uint64_t ebb_stream_longer(uint64_t stream, const char *text);

/* Bytes that kernels only read, behind the pointer type of an operand. */
static inline void *ebb_read_only(const void *data)
{
    return (void *)(uintptr_t)data;
}
