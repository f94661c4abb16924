/* fuse_codes.h, of fuse.c: products with a quantised weight. */
#pragma once

#include "rewrite/rewrite.h"

/* Where node n, a MatMul, FusedMatMul or Gemm, multiplies by a dequantised weight, or is the Mul that
 * scales a MatMulInteger, replaces it and sets *done. */
ebb_status ebb_fuse_dequantized(ebb_edit *e, ebb_node n, bool *done);
ebb_status ebb_fuse_integer_product(ebb_edit *e, ebb_node n, bool *done);
