/* product.h: what calls of MatMul, Gemm and FusedMatMul say, read once for oneDNN and for our own tiles.
 *
 *   out[..., M, N] = alpha * sum over k of A[..., M, k] * B[..., k, N] (+ beta * C)
 *
 * A batch that only A has is folded into M (a linear layer over [batch, tokens, features]). Batches
 * of single rows gain by it (64 of them: 2.5 times); with 4 rows or more each it makes no
 * difference.
 */
#pragma once

#include "kernels/kernels.h"

/* An operand: batch dims, then rows and columns, missing ones 1; transposition is in the strides. */
typedef struct ebb_matrix {
    ebb_dtype dtype;
    int64_t dims[EBB_MAX_RANK], strides[EBB_MAX_RANK]; /* in elements */
} ebb_matrix;

typedef struct ebb_product {
    ebb_matrix a, b, c, out;
    int rank;    /* of all but c, which is a matrix; at least 2 */
    bool biased; /* there is a c, of beta other than 0 */
    float alpha, beta;
} ebb_product;

/* Why the call has no such product, or NULL. Every operand is row-major, static and not empty. */
const char *ebb_product_read(ebb_product *p, const ebb_call *call);

/* ---- product_tiles.c: any product of float32 and 16 bits, with strides of the caller's ---- */

/* Of the workspace; false: it cannot be counted. */
bool ebb_product_tiles_bytes(const ebb_product *p, size_t *bytes);
/* c may be NULL, or y. */
void ebb_product_tiles_run(const ebb_product *p, const void *a, const void *b, const void *c,
                           void *y, void *workspace);
