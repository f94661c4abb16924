/* quantised: products with weights in few bits, as onnxruntime's quantisers write them.
 *
 *   MatMulNBits(A, B, scales, zero_points?, g_idx?, bias?)  ──>  MatMulCodes(A, B, scales, zeros, levels)
 *   MatMulBnb4(A, B, absmax)                                ──>  the same, with the table of NF4 or FP4
 *
 * The codes stay where they are: nothing of the weight is copied or changed. What is wrong with the
 * operands is said by the inference of MatMulCodes. accuracy_level asks for less than float32 and is
 * not followed.
 */
#include "passes/flatten/dialect/dialect.h"

#include "passes/common.h"

/* ---- MatMulNBits ---- */

/* Blocks are in the order of columns, as they are without g_idx. */
static bool follows_columns(const ebb_build *b, ebb_value g_idx, int64_t block)
{
    const ebb_tensor *t = ebb_value_constant(b->g, g_idx);
    int64_t count;
    if (t == NULL || t->data == NULL || t->type.dtype != EBB_I32 || block < 1 ||
        !ebb_type_elements(&t->type, &count))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (ebb_tensor_int(t, i) != i / block)
            return false;
    return true;
}

/* Zero points of a list, as older quantisers have them, in rows. */
static ebb_value zeros_in_rows(ebb_build *b, ebb_value zeros, int64_t rows)
{
    const ebb_type *type = ebb_build_type(b, zeros);
    int64_t count;
    if (type->rank != 1 || rows < 1 || !ebb_type_elements(type, &count) || count % rows != 0)
        return zeros;
    return ebb_emit_reshape(b, zeros, (const int64_t[]){rows, count / rows}, 2);
}

void ebb_dialect_matmul_nbits(ebb_build *b, ebb_foreign *f)
{
    enum { A, B, SCALES, ZEROS, G_IDX, BIAS };
    const int64_t bits = ebb_attr_int(&f->attrs, "bits", 4), rows = ebb_attr_int(&f->attrs, "N", 0),
                  block = ebb_attr_int(&f->attrs, "block_size", 0);
    if (f->x[A].i == 0 || f->x[B].i == 0 || f->x[SCALES].i == 0)
        ebb_foreign_refuse(b, f, EBB_REJECTED, "one of inputs 0, 1 and 2 is missing");
    else if (bits != 2 && bits != 4 && bits != 8)
        ebb_foreign_refuse(b, f, EBB_REJECTED, "bits is none of 2, 4 and 8");
    else if (block < 16 || (block & (block - 1)) != 0)
        ebb_foreign_refuse(b, f, EBB_REJECTED, "block_size is no power of 2 from 16 on");
    else if (ebb_attr_int(&f->attrs, "weight_prepacked", 0) != 0)
        ebb_foreign_refuse(
            b, f, EBB_UNSUPPORTED,
            "input 1 is packed for one kind of device (weight_prepacked): export it without");
    else if (f->x[G_IDX].i != 0 && !follows_columns(b, f->x[G_IDX], block))
        ebb_foreign_refuse(
            b, f, EBB_UNSUPPORTED,
            "input 4 (g_idx) has blocks in another order than columns, which is not read: "
            "quantise without act-order");
    if (b->status != NULL)
        return;
    ebb_value zeros = f->x[ZEROS];
    const bool real = zeros.i != 0 && ebb_build_type(b, zeros)->dtype != EBB_U8;
    zeros = zeros.i != 0 ? zeros_in_rows(b, zeros, rows) : ebb_emit_middle(b, bits);
    ebb_value table = ebb_emit_levels(b, f->x[SCALES], bits, NULL);
    ebb_with_foreign(b, f, "K", "N");
    ebb_with_int(b, "bits", bits);
    ebb_with_foreign(b, f, "block_size");
    if (real)
        ebb_with_int(b, "packed_zeros", 0);
    ebb_value y = ebb_emit(b, EBB_OP_MATMUL_CODES, f->x[A], f->x[B], f->x[SCALES], zeros, table);
    ebb_foreign_name(b, f);
    f->y[0] = ebb_emit_plus(b, y, f->x[BIAS]);
}

/* ---- MatMulBnb4 ---- */

/* By Dettmers et al., "QLoRA", 2023, and of a float with two bits of exponent and one of mantissa. */
static const double nf4[16] = {-1.0,         -0.696192801, -0.525073051,  -0.394917488,
                               -0.284441382, -0.18477343,  -0.0910500363, 0.0,
                               0.0795802996, 0.160930201,  0.246112302,   0.337915242,
                               0.440709829,  0.562617004,  0.722956836,   1.0};
static const double fp4[16] = {
    0.0,  0.00520833349,  0.666666687,  1.0,  0.333333343,  0.5,  0.166666672,  0.25,
    -0.0, -0.00520833349, -0.666666687, -1.0, -0.333333343, -0.5, -0.166666672, -0.25};

void ebb_dialect_matmul_bnb4(ebb_build *b, ebb_foreign *f)
{
    const int64_t kind = ebb_attr_int(&f->attrs, "quant_type", -1);
    if (f->x[0].i == 0 || f->x[1].i == 0 || f->x[2].i == 0)
        ebb_foreign_refuse(b, f, EBB_REJECTED, "one of inputs 0, 1 and 2 is missing");
    else if (kind != 0 && kind != 1)
        ebb_foreign_refuse(b, f, EBB_REJECTED, "quant_type is neither 0 (FP4) nor 1 (NF4)");
    if (b->status != NULL)
        return;
    ebb_value table = ebb_emit_levels(b, f->x[2], 4, kind == 1 ? nf4 : fp4);
    ebb_value zeros = ebb_emit_code(b, 0);
    ebb_with_foreign(b, f, "K", "N");
    ebb_with_int(b, "bits", 4);
    ebb_with_foreign(b, f, "block_size");
    ebb_with_int(b, "flat", 1);
    ebb_with_int(b, "high_first", 1);
    ebb_with_foreign(b, f, "transB");
    f->y[0] = ebb_emit(b, EBB_OP_MATMUL_CODES, f->x[0], f->x[1], f->x[2], zeros, table);
    ebb_foreign_name(b, f);
}

/* ---- what is not computed ---- */

void ebb_dialect_matmul_fpq4(ebb_build *b, ebb_foreign *f)
{
    ebb_foreign_refuse(
        b, f, EBB_UNSUPPORTED,
        "input 1 is packed for one kind of processor: quantise the model to MatMulNBits instead");
}
