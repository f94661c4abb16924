/* split.h: float32 products as products of bfloat16. */
#pragma once

#include "kernels/kernels.h"

/* Before the other back ends in a list: takes their MatMul, Gemm and FusedMatMul of float32, and
 * picks among them for the product of 16 bits. */
extern const ebb_backend ebb_backend_bf16x3;
