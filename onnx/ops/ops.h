/* ops.h: prototypes of the functions that the rows of ops.def name, made from it. */
#pragma once

#include "onnx/graph/build.h"

/* Several rows share a function: repeated prototypes are harmless. */
#define EBB_OP(id, domain, name, since, operands, reads, slots, traits, alias, infer, grad, cost, \
               ...)                                                                               \
    ebb_status ebb_infer_##infer(ebb_infer *c);                                                   \
    void ebb_grad_##grad(ebb_build *b, ebb_grad *c);                                              \
    double ebb_cost_##cost(const ebb_infer *c);
#include "onnx/tables/ops.def"
#undef EBB_OP
