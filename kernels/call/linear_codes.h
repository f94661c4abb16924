/* linear_codes.h: the operands of ONNX's quantisation with a scale, read from a call and checked
 * once for all back ends.
 *
 *     QuantizeLinear     (x, scale, zero?) -> codes
 *     DequantizeLinear   (codes, scale, zero?) -> x
 *     MatMulInteger      (a, b, a_zero?, b_zero?) -> int32;     ConvInteger the same
 *     QLinearMatMul      (a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero) -> codes;
 *                        QLinearConv the same, and a bias
 *     MatMulCodes, ExpertsMatMulCodes, MatMulDequantized     A and a matrix in few bits, which is decoded element by element
 *     GatherBlockQuantized                                   rows of a table in few bits
 *     ExpertsMatMul      (a [R, K], w [E, N, K], of [R]) -> y: row r by matrix of[r]
 *     ExpertsMatMulGrad  (a [R, K], dy [R, N], of [R]) -> dw [E, N, K]
 *
 * What codes mean is in kernels/plain/codes/linear_codes.c.
 */
#pragma once

#include "kernels/call/geometry.h"
#include "kernels/kernels.h"
#include "onnx/words/frozen.h"

EBB_C_BEGIN

/* Which scale an element has. */
typedef enum ebb_scale_kind {
    EBB_SCALE_ONE,    /* one for all */
    EBB_SCALE_AXIS,   /* one for each place of the axis */
    EBB_SCALE_BLOCKS, /* one for each `block` places, everywhere else */
} ebb_scale_kind;

typedef struct ebb_scales {
    int64_t n, inner; /* of x, along the axis */
    int64_t places;   /* of the scale along the axis */
    int64_t block;    /* elements of x that share one */
    ebb_scale_kind kind;
} ebb_scales;

/* Of QuantizeLinear and DequantizeLinear. Returns NULL, or why scale and zero point do not fit the
 * input. Operands are row-major and static already, here and below. */
const char *ebb_scales_read(ebb_scales *scales, const ebb_call *call);

/* Which input of a product is what; -1: it has none. */
typedef struct ebb_coded_product {
    int a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, bias;
} ebb_coded_product;

ebb_coded_product ebb_coded_product_of(const ebb_call *call);

/* NULL, or why these are no operands of a MatMulInteger or QLinearMatMul, of a ConvInteger or
 * QLinearConv. The dtypes of scales are not looked at. */
const char *ebb_coded_matmul_misfit(const ebb_call *call);
const char *ebb_coded_conv_read(ebb_geometry *window, const ebb_call *call);

/* ---- a matrix in few bits (onnx/words/frozen.h), with its bytes ---- */

/* Of a MatMulCodes, ExpertsMatMulCodes or MatMulDequantized: NULL, or why shapes and attributes do not fit. Dtypes of A
 * and of the result are the back end's to check. */
const char *ebb_frozen_misfit(const ebb_call *c);

/* Of a call that fits: its description; and in a run, where the host reads what it holds. */
void ebb_frozen_of(ebb_frozen *f, const ebb_call *c);
void ebb_frozen_open(ebb_frozen_matrix *m, const ebb_call *c);

/* The expert of each row of A; NULL: there is one matrix for all. */
const int64_t *ebb_frozen_experts(const ebb_call *c);

/* Of a GatherBlockQuantized: NULL, or why shapes, attributes and dtypes do not fit. */
const char *ebb_frozen_table_of(ebb_frozen_table *t, const ebb_call *c);
/* Of DynamicQuantizeLinear: NULL, or why not. */
const char *ebb_dynamic_quantize_dtypes(const ebb_call *c);

/* ---- a matrix for each expert, in few bits or not ---- */

typedef struct ebb_experts {
    int64_t rows, n, k, experts;
    bool turned; /* a w^T, else a w */
    const int64_t *of;
} ebb_experts;

/* Of an ExpertsMatMul or ExpertsMatMulGrad: NULL, or why shapes do not fit. */
const char *ebb_experts_read(ebb_experts *e, const ebb_call *c);

/* In a run: each row's expert is one of so many. */
ebb_status ebb_experts_check(const ebb_call *c, const int64_t *of, int64_t rows, int64_t experts);

/* The first row behind `row` that is another expert's. */
static inline int64_t ebb_experts_next(const int64_t *of, int64_t rows, int64_t row)
{
    const int64_t expert = of[row];
    while (row < rows && of[row] == expert)
        row++;
    return row;
}

EBB_C_END
