/* norm: normalizations that were fused with what surrounds them, and those of training graphs. */
#include "passes/flatten/dialect/dialect.h"

/* ---- the norms themselves ---- */

/* The default of operators that skip and embed is another. */
static double epsilon_of(const ebb_build *b, const ebb_foreign *f)
{
    const char *name = ebb_text(b->g, ebb_node_of(b->g, f->node)->op_name);
    bool small = strncmp(name, "Skip", 4) == 0 || strstr(name, "Embed") != NULL;
    small = small && strcmp(name, "SkipGroupNorm") != 0;
    return ebb_attr_float(&f->attrs, "epsilon", small ? (double)1e-12f : (double)1e-5f);
}

static uint32_t axes_from(int64_t axis, int rank, int64_t axes[EBB_MAX_RANK])
{
    uint32_t count = 0;
    for (int64_t i = axis < 0 ? axis + rank : axis; i >= 0 && i < rank; i++)
        axes[count++] = i;
    return count;
}

/* ai.onnx has LayerNormalization from opset 17 on; before, its steps. */
static void layer_norm_in_steps(ebb_build *b, ebb_foreign *f, ebb_value x, int64_t axis,
                                ebb_value y[3])
{
    int64_t axes[EBB_MAX_RANK];
    uint32_t count = axes_from(axis, ebb_build_type(b, x)->rank, axes);
    y[1] = ebb_emit_reduce(b, EBB_OP_REDUCE_MEAN, x, axes, count, true);
    ebb_value off = ebb_emit(b, EBB_OP_SUB, x, y[1]);
    ebb_value square = ebb_emit(b, EBB_OP_MUL, off, off);
    ebb_value variance = ebb_emit_reduce(b, EBB_OP_REDUCE_MEAN, square, axes, count, true);
    ebb_value more =
        ebb_emit(b, EBB_OP_ADD, variance, ebb_const_like(b, variance, epsilon_of(b, f)));
    ebb_value deviation = ebb_emit(b, EBB_OP_SQRT, more);
    y[2] = ebb_emit(b, EBB_OP_RECIPROCAL, deviation);
    y[0] = ebb_emit(b, EBB_OP_DIV, off, deviation);
}

/* y[0] = LayerNorm(x) with scale and bias (or none), and where wanted y[1] its mean and y[2] one by
 * its deviation, over the axes from `axis` on. */
static void emit_layer_norm(ebb_build *b, ebb_foreign *f, ebb_value x, ebb_value scale,
                            ebb_value bias, const bool wants[3], ebb_value y[3])
{
    int64_t axis = ebb_attr_int(&f->attrs, "axis", -1);
    if (b->status != NULL)
        return;
    if (ebb_model_opset(b->g->model, "") < 17) {
        layer_norm_in_steps(b, f, x, axis, y);
        y[0] = ebb_emit_plus(b, ebb_emit(b, EBB_OP_MUL, y[0], scale), bias);
        return;
    }
    ebb_with_int(b, "axis", axis);
    ebb_with_float(b, "epsilon", epsilon_of(b, f));
    ebb_emit_node(b, EBB_OP_LAYER_NORMALIZATION, (ebb_value[]){x, scale, bias}, 3, y,
                  wants[2]   ? 3
                  : wants[1] ? 2
                             : 1,
                  UINT32_MAX);
}

/* The same for RMSNorm: y[0], and y[1] one by the root mean square. */
static void emit_rms_norm(ebb_build *b, ebb_foreign *f, ebb_value x, ebb_value scale,
                          const bool wants[2], ebb_value y[2])
{
    ebb_with_int(b, "axis", ebb_attr_int(&f->attrs, "axis", -1));
    ebb_with_float(b, "epsilon", epsilon_of(b, f));
    ebb_emit_node(b, EBB_OP_RMS_NORM, (ebb_value[]){x, scale}, 2, y, wants[1] ? 2 : 1, UINT32_MAX);
}

/* LayerNormalization(X, scale, B?) -> Y, mean?, inv_std?, as ONNX Runtime had it before ONNX. */
void ebb_dialect_layer_normalization(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    if (ebb_foreign_ranked(b, f, 0, &x))
        emit_layer_norm(b, f, f->x[0], f->x[1], f->x[2], f->wants, f->y);
}

/* SimplifiedLayerNormalization(X, scale) -> Y, inv_std? */
void ebb_dialect_simplified_layer_normalization(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    if (ebb_foreign_ranked(b, f, 0, &x))
        emit_rms_norm(b, f, f->x[0], f->x[1], f->wants, f->y);
}

/* ---- of sums ---- */

/* SkipLayerNormalization(input, skip, gamma, beta?, bias?) -> Y, mean?, inv_std?, sum? */
void ebb_dialect_skip_layer_normalization(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    if (!ebb_foreign_ranked(b, f, 0, &x))
        return;
    ebb_value sum = ebb_emit(b, EBB_OP_ADD, ebb_emit_plus(b, f->x[0], f->x[4]), f->x[1]);
    emit_layer_norm(b, f, sum, f->x[2], f->x[3], f->wants, f->y);
    f->y[3] = sum;
}

/* SkipSimplifiedLayerNormalization(input, skip, gamma, bias?) -> Y, mean?, inv_std?, sum? */
void ebb_dialect_skip_simplified_layer_normalization(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    ebb_value y[2] = {0};
    if (!ebb_foreign_ranked(b, f, 0, &x) ||
        ebb_foreign_declines(f, f->wants[1], "its mean is read, and a root mean square has none"))
        return;
    ebb_value sum = ebb_emit(b, EBB_OP_ADD, ebb_emit_plus(b, f->x[0], f->x[3]), f->x[1]);
    emit_rms_norm(b, f, sum, f->x[2], (const bool[2]){true, f->wants[2]}, y);
    f->y[0] = y[0];
    f->y[2] = y[1];
    f->y[3] = sum;
}

/* How many ones the mask has in each row, int32[batch]; zeros without one. */
static ebb_value lengths(ebb_build *b, ebb_value ids, ebb_value mask)
{
    int64_t one = 1;
    if (mask.i == 0) {
        ebb_value x = ebb_emit_cast(b, ids, EBB_I32);
        mask = ebb_emit(b, EBB_OP_SUB, x, x);
    }
    ebb_with_int(b, "keepdims", 0);
    return ebb_emit(b, EBB_OP_REDUCE_SUM, ebb_emit_cast(b, mask, EBB_I32),
                    ebb_const_ints(b, &one, 1));
}

/* EmbedLayerNormalization(ids, segments?, words, positions, segment table?, gamma, beta, mask?,
 * position ids?) -> Y, lengths, sum? */
void ebb_dialect_embed_layer_normalization(ebb_build *b, ebb_foreign *f)
{
    ebb_type ids;
    const bool wants[3] = {true, false, false};
    ebb_value y[3] = {0}, at = f->x[8];
    if (!ebb_foreign_ranked(b, f, 0, &ids) ||
        ebb_foreign_declines(
            f, at.i == 0 && (ids.rank != 2 || ids.dims[1] < 0 || ids.dims[1] > EBB_DIALECT_COUNTED),
            "the length of its sequences is not known"))
        return;
    if (at.i == 0)
        at = ebb_emit_counting(b, f, ids.dims[1]);
    ebb_value words = ebb_emit(b, EBB_OP_GATHER, f->x[2], f->x[0]);
    ebb_value sum = ebb_emit(b, EBB_OP_ADD, words, ebb_emit(b, EBB_OP_GATHER, f->x[3], at));
    if (f->x[1].i != 0 && f->x[4].i != 0)
        sum = ebb_emit(b, EBB_OP_ADD, sum, ebb_emit(b, EBB_OP_GATHER, f->x[4], f->x[1]));
    emit_layer_norm(b, f, sum, f->x[5], f->x[6], wants, y);
    f->y[0] = y[0];
    if (f->wants[1])
        f->y[1] = lengths(b, f->x[0], f->x[7]);
    f->y[2] = sum;
}

/* ---- groups, channels last ---- */

static ebb_value turned(ebb_build *b, ebb_value x, bool last)
{
    static const int64_t to_first[4] = {0, 3, 1, 2}, to_last[4] = {0, 2, 3, 1};
    return ebb_emit_transpose(b, x, last ? to_last : to_first, 4);
}

/* [C], [N, C] or [N, 1, 1, C] of SkipGroupNorm's skip and bias as they broadcast over [N, H, W, C].
 */
static ebb_value along_last(ebb_build *b, ebb_value v)
{
    static const int64_t spread[4] = {0, 1, 1, -1};
    return b->status == NULL && ebb_build_type(b, v)->rank == 2 ? ebb_emit_shaped(b, v, spread, 4)
                                                                : v;
}

/* GroupNorm(X, gamma, beta) -> Y; SkipGroupNorm(X, gamma, beta, skip, bias?) -> Y, sum. */
void ebb_dialect_group_norm(ebb_build *b, ebb_foreign *f)
{
    ebb_type t;
    ebb_value x = f->x[0], y[3];
    bool last = ebb_attr_int(&f->attrs, "channels_last", 1) != 0;
    if (!ebb_foreign_ranked(b, f, 0, &t) ||
        ebb_foreign_declines(f, t.rank != 4 || (!last && f->x[3].i != 0),
                             "its input is no image, or has channels first and a skip"))
        return;
    if (f->x[3].i != 0)
        x = ebb_emit(b, EBB_OP_ADD, x, along_last(b, f->x[3]));
    if (f->x[4].i != 0)
        x = ebb_emit(b, EBB_OP_ADD, x, f->x[4]);
    f->y[1] = x;
    ebb_value first = last ? turned(b, x, false) : x;
    if (b->status != NULL)
        return;
    ebb_dtype dtype = (ebb_dtype)t.dtype;
    ebb_with_int(b, "num_groups", ebb_attr_int(&f->attrs, "groups", 1));
    ebb_with_float(b, "epsilon", epsilon_of(b, f));
    ebb_emit_node(
        b, EBB_OP_GROUP_NORM,
        (ebb_value[]){first, ebb_emit_cast(b, f->x[1], dtype), ebb_emit_cast(b, f->x[2], dtype)}, 3,
        y, 3, 1);
    if (ebb_attr_int(&f->attrs, "activation", 0) == 1)
        y[0] = ebb_emit(b, EBB_OP_MUL, y[0], ebb_emit(b, EBB_OP_SIGMOID, y[0]));
    f->y[0] = last ? turned(b, y[0], true) : y[0];
}

/* ---- of training graphs ---- */

/* BatchNormInternal(X, scale, B, mean, var) -> Y, mean', var', batch's mean, batch's 1 / deviation.
 */
void ebb_dialect_batch_norm_internal(ebb_build *b, ebb_foreign *f)
{
    if (ebb_foreign_declines(f, ebb_attr_int(&f->attrs, "training_mode", 1) == 0,
                             "it is not in training mode"))
        return;
    ebb_with_float(b, "epsilon", epsilon_of(b, f));
    ebb_with_float(b, "momentum", ebb_attr_float(&f->attrs, "momentum", (double)0.9f));
    ebb_with_int(b, "unbiased", 0); // as ONNX has it
    ebb_emit_node(b, EBB_OP_BATCH_NORM_TRAINING, f->x, 5, f->y, 5, 7 | ebb_foreign_wanted(f));
}

/* SimplifiedLayerNormalizationGrad(dY, X, scale, inv_std) -> dX, dscale */
void ebb_dialect_simplified_layer_normalization_grad(ebb_build *b, ebb_foreign *f)
{
    ebb_with_int(b, "axis", ebb_attr_int(&f->attrs, "axis", -1));
    ebb_emit_node(b, EBB_OP_RMS_NORM_GRAD, f->x, 4, f->y, 2, 3);
}

/* InvertibleLayerNormalizationGrad(dY, Y, scale, bias, inv_std) -> dX, dscale, dB */
void ebb_dialect_invertible_layer_normalization_grad(ebb_build *b, ebb_foreign *f)
{
    ebb_with_int(b, "axis", ebb_attr_int(&f->attrs, "axis", -1));
    ebb_emit_node(b, EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT, f->x, 5, f->y, 3, 7);
}
