/* integers: layers that compute with codes, as ONNX Runtime's quantisers and optimisers write them.
 *
 *   y = QLinearAdd(a, its scale, its zero, b, its scale, its zero, y's scale, y's zero)
 *   ──> y = QuantizeLinear (Add (DequantizeLinear (a ...), DequantizeLinear (b ...)), y's scale, y's zero)
 *
 *   y = DynamicQuantizeMatMul(A, B, scale, zero?, bias?)
 *   ──> q, s, z = DynamicQuantizeLinear (A),  a = DequantizeLinear (q, s, z)
 *       y = MatMul (a, DequantizeLinear (B, scale, zero)) + bias
 *
 * What they round is rounded; their sums of integers become sums of floats, which have gradients, and adapters
 * beside them.
 */
#include "passes/flatten/dialect/dialect.h"

static ebb_op same_op(const ebb_build *b, const ebb_foreign *f, size_t prefix)
{
    return ebb_op_find("", ebb_text(b->g, ebb_node_of(b->g, f->node)->op_name) + prefix,
                       ebb_model_opset(b->g->model, ""));
}

/* What codes stand for; several scales lie along an axis. */
static ebb_value decoded_by(ebb_build *b, ebb_value codes, ebb_value scale, ebb_value zero,
                            int64_t axis)
{
    ebb_with_int(b, "axis", axis);
    return ebb_emit(b, EBB_OP_DEQUANTIZE_LINEAR, codes, scale, zero);
}

/* Inputs i, i + 1 and i + 2. */
static ebb_value decoded(ebb_build *b, const ebb_foreign *f, uint32_t i, int64_t axis)
{
    return decoded_by(b, f->x[i], f->x[i + 1], f->x[i + 2], axis);
}

/* A bias in int32, whose scale is that of the product of inputs 0 and 3. */
static ebb_value bias(ebb_build *b, const ebb_foreign *f, ebb_value codes)
{
    if (codes.i == 0 || b->status != NULL)
        return EBB_NO_VALUE;
    ebb_value scale = ebb_emit(b, EBB_OP_MUL, f->x[1], f->x[4]);
    ebb_value y = ebb_emit_cast(b, codes, (ebb_dtype)ebb_build_type(b, scale)->dtype);
    return ebb_emit(b, EBB_OP_MUL, y, scale);
}

/* com.microsoft has them for codes that ai.onnx took later. */
void ebb_dialect_linear_codes(ebb_build *b, ebb_foreign *f)
{
    ebb_with_foreign(b, f, "axis");
    f->y[0] = ebb_emit_list(b, same_op(b, f, 0), f->x, 3);
}

/* (a, scale, zero?, ... , scale, zero? of y). Concat has y's first; Where's condition is no code. */
void ebb_dialect_qlinear(ebb_build *b, ebb_foreign *f)
{
    const ebb_op op = same_op(b, f, sizeof "QLinear" - 1);
    const uint32_t plain = op == EBB_OP_WHERE, ahead = op == EBB_OP_CONCAT ? 2 : plain,
                   parts = (f->input_count - ahead) / 3 - (op == EBB_OP_CONV && f->input_count > 8),
                   y = op == EBB_OP_CONCAT ? 0 : plain + 3 * parts;
    ebb_value in[EBB_DIALECT_INPUTS] = {f->x[0]};
    if (ebb_attr_int(&f->attrs, "channels_last", 0) != 0 ||
        ebb_attr_int(&f->attrs, "opset", 13) < 13 || f->input_count < 4 ||
        y > EBB_DIALECT_INPUTS - 2) {
        f->declines = "its channels are last, it is older than opset 13, or has not its inputs";
        return;
    }
    for (uint32_t i = 0; i < parts; i++)
        in[plain + i] = decoded(b, f, ahead + 3 * i, op == EBB_OP_CONV && i == 1 ? 0 : -1);
    if (op == EBB_OP_CONV)
        in[2] = bias(b, f, f->x[8]);
    ebb_with_foreign(b, f, "axis", "alpha", "kernel_shape", "strides", "pads", "auto_pad",
                     "dilations", "ceil_mode", "count_include_pad", "group");
    f->y[0] = ebb_emit_list(b, op, in, plain + parts + (op == EBB_OP_CONV));
    ebb_foreign_name(b, f);
    f->y[0] = ebb_emit(b, EBB_OP_QUANTIZE_LINEAR, f->y[0], f->x[y], f->x[y + 1]);
}

/* QGemm(A, scale, zero, B, scale, zero, C?, y's scale?, y's zero?): y is a float without. */
void ebb_dialect_qgemm(ebb_build *b, ebb_foreign *f)
{
    const bool turned = ebb_attr_int(&f->attrs, "transB", 0) != 0;
    ebb_value in[3] = {decoded(b, f, 0, -1), decoded(b, f, 3, !turned), bias(b, f, f->x[6])};
    ebb_with_foreign(b, f, "transA", "transB", "alpha");
    ebb_with_float(b, "beta", ebb_attr_float(&f->attrs, "alpha", 1)); // it is part of C's scale
    f->y[0] = ebb_emit_list(b, EBB_OP_GEMM, in, 3);
    ebb_foreign_name(b, f);
    if (f->x[7].i != 0)
        f->y[0] = ebb_emit(b, EBB_OP_QUANTIZE_LINEAR, f->y[0], f->x[7], f->x[8]);
}

static void product(ebb_build *b, ebb_foreign *f, ebb_value a, uint32_t scale, uint32_t zero,
                    uint32_t more)
{
    ebb_value w = decoded_by(b, f->x[1], f->x[scale], f->x[zero], 1);
    f->y[0] = ebb_emit(b, EBB_OP_MATMUL, a, w);
    ebb_foreign_name(b, f);
    f->y[0] = ebb_emit_plus(b, f->y[0], f->x[more]);
}

void ebb_dialect_dynamic_quantize_matmul(ebb_build *b, ebb_foreign *f)
{
    ebb_value q[3];
    ebb_emit_node(b, EBB_OP_DYNAMIC_QUANTIZE_LINEAR, f->x, 1, q, 3, 7);
    product(b, f, ebb_emit_list(b, EBB_OP_DEQUANTIZE_LINEAR, q, 3), 2, 3, 4);
}

/* (A, B, A's scale, B's scale, A's zero?, B's zero?, bias?) */
void ebb_dialect_matmul_integer_to_float(ebb_build *b, ebb_foreign *f)
{
    product(b, f, decoded_by(b, f->x[0], f->x[2], f->x[4], -1), 3, 5, 6);
}

/* Codes [directions, from, gates] as a weight [directions, gates, from], by a scale for each direction, or gate. */
static ebb_value gates(ebb_build *b, const ebb_foreign *f, uint32_t codes, uint32_t scale)
{
    static const int64_t perm[3] = {0, 2, 1};
    const ebb_type *type = ebb_build_type(b, f->x[scale]);
    const int64_t dims[3] = {type->rank > 0 ? type->dims[0] : 1, 1,
                             type->rank > 1 ? type->dims[1] : 1};
    const ebb_dtype dtype = (ebb_dtype)type->dtype;
    ebb_value zero = ebb_emit_reshape(b, ebb_emit_cast(b, f->x[scale + 1], dtype), dims, 3);
    ebb_value w = ebb_emit(b, EBB_OP_SUB, ebb_emit_cast(b, f->x[codes], dtype), zero);
    w = ebb_emit(b, EBB_OP_MUL, w, ebb_emit_reshape(b, f->x[scale], dims, 3));
    return ebb_emit_transpose(b, w, perm, 3);
}

/* (X, W, R, B?, lengths?, H0?, C0?, P?, W's scale and zero, R's): what it reads is not rounded here. */
void ebb_dialect_dynamic_quantize_lstm(ebb_build *b, ebb_foreign *f)
{
    if (!ebb_foreign_ranked(b, f, 8, &(ebb_type){0}) ||
        !ebb_foreign_ranked(b, f, 10, &(ebb_type){0}))
        return;
    f->x[1] = gates(b, f, 1, 8);
    f->x[2] = gates(b, f, 2, 10);
    ebb_with_attrs_of(b, f->node);
    ebb_emit_node(b, EBB_OP_LSTM, f->x, 8, f->y, f->output_count, ebb_foreign_wanted(f));
}

/* (input, weight, bias, input's scale, weight's scale, mask?, input's zero?, weight's zero?, past?) */
void ebb_dialect_qattention(ebb_build *b, ebb_foreign *f)
{
    f->x[0] = decoded_by(b, f->x[0], f->x[3], f->x[6], -1);
    f->x[1] = decoded_by(b, f->x[1], f->x[4], f->x[7], 1);
    f->x[3] = f->x[5];
    f->x[4] = f->x[8];
    memset(f->x + 5, 0, 4 * sizeof f->x[0]);
    f->input_count = 5;
    ebb_dialect_attention(b, f);
}

/* (ids, segments?, three tables, gamma, beta, mask?, five scales, five zeros) */
void ebb_dialect_qembed_layer_normalization(ebb_build *b, ebb_foreign *f)
{
    for (uint32_t i = 2; i < 7; i++)
        if (f->x[i].i != 0)
            f->x[i] = decoded_by(b, f->x[i], f->x[i + 6], f->x[i + 11], -1);
    memset(f->x + 8, 0, 10 * sizeof f->x[0]);
    f->input_count = 8;
    ebb_dialect_embed_layer_normalization(b, f);
}
