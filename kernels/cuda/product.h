/* product.h: matrix products on the device, for MatMul, Gemm and whatever has a product inside.
 *
 *     y[i, j] = alpha sum over k of a[i, k] b[k, j]  +  beta c[i, j]
 *
 * Transposition and broadcast are strides. A product of few tiles and a long k is cut along k, so
 * that there is work for the whole device; the parts are added in their order, always the same:
 *
 *           k                 workspace              y
 *     +--+--+--+--+     part 0 + part 1 + ...  ->  +---+
 *     |  |  |  |  |                                +---+
 *     +--+--+--+--+
 */
#pragma once

#include "kernels/cuda/fuse/group.h"

EBB_C_BEGIN

typedef struct ebb_cuda_product {
    void *y; /* [batches, m, n], dense but for y_row */
    const void *a, *b, *c;
    int64_t m, n, k, batches;
    int64_t a_row, a_column, b_row, b_column, c_row, c_column; /* strides in elements; c: or 0 */
    int64_t y_row;              /* n, or more where there is but one batch */
    int64_t a_matrix, b_matrix; /* elements of one of them */
    double alpha, beta;
    bool has_c;           /* though c is not known yet */
    uint32_t align;       /* every operand begins at a multiple of so many bytes, at most 256 */
    bool wide_y, wide_c;  /* of the registers' dtype: float32 beside 16 bits */
    ebb_cuda_walk walk;   /* from a batch number to the number of a matrix of a (0) and b (1) */
    int64_t splits, each; /* parts that k is cut into, and how long one is */
    void *parts;          /* [splits, batches, m, n] in the registers' dtype, where splits > 1 */
} ebb_cuda_product;

/* Why a call is no MatMul, FusedMatMul or Gemm that can be read, nor an Einsum that is one product
 * of its operands as they lie; or NULL. */
const char *ebb_cuda_product_misfit(const ebb_call *c);
/* Sizes, strides and factors of one of them, and how it is split. No pointers. A batch that only a
 * has is folded into m. */
void ebb_cuda_product_read(ebb_cuda_product *p, const ebb_call *c);
/* The two for an Einsum: NULL, and p is read, or why not. */
const char *ebb_cuda_product_of_einsum(ebb_cuda_product *p, const ebb_call *c);
/* One product of dense matrices, the strides of a, b and c to be set by the caller, who then
 * splits. */
void ebb_cuda_product_plain(ebb_cuda_product *p, int64_t m, int64_t n, int64_t k);
void ebb_cuda_product_split(ebb_cuda_product *p);
/* Bytes of p->parts; 0 where it is not split. */
size_t ebb_cuda_product_bytes(const ebb_cuda_product *p, uint8_t dtype);
/* All operands are of the dtype, but for a wide y or c. y may be c, else none is
 * another. */
ebb_status ebb_cuda_product_run(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype);
/* Of its parts, where another kernel has made them: tiles of 64 x 64, one a block, `jobs` in all; from
 * one part to the next `each` of k. */
int64_t ebb_cuda_product_jobs(const ebb_cuda_product *p);
ebb_status ebb_cuda_product_sum(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype);
/* y[i, j] = c[i, j]: where a library adds a product to what is there. */
ebb_status ebb_cuda_product_fill(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype);

/* ---- by a library ---- */

/* Products by a library, for whatever has one inside. */
typedef struct ebb_cuda_products {
    /* NULL: its form is one that the library can be told. */
    const char *(*declines)(const ebb_cuda_product *p, uint8_t dtype);
    /* Of p->parts; enough for a product of our own as well. */
    size_t (*bytes)(const ebb_cuda_product *p, uint8_t dtype);
    /* In prepare(): an algorithm, which the queue keeps. *chosen NULL: there is none, the product
     * is our own. */
    ebb_status (*choose)(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                         const void **chosen);
    ebb_status (*run)(const ebb_call *c, const ebb_cuda_product *p, uint8_t dtype,
                      const void *chosen);
} ebb_cuda_products;

/* NULL where the build has no library, as the host's. */
extern const ebb_cuda_products *ebb_cuda_products_by;

/* The largest power of two, at most 256, of which n is a multiple. */
static inline uint32_t ebb_cuda_align_of(uint64_t n)
{
    uint32_t align = 256;
    while (n % align != 0)
        align /= 2;
    return align;
}

EBB_C_END
