/* activation: those fused with a bias, and dropout with it. */
#include "passes/flatten/dialect/dialect.h"

/* Gelu of x, by erf. */
static ebb_value gelu(ebb_build *b, ebb_value x)
{
    return ebb_emit(b, EBB_OP_MS_GELU, x);
}

/* BiasGelu(X, bias) -> gelu(X + bias) */
void ebb_dialect_bias_gelu(ebb_build *b, ebb_foreign *f)
{
    f->y[0] = gelu(b, ebb_emit_plus(b, f->x[0], f->x[1]));
}

/* FastGelu(X, bias?): with a bias it is two nodes. */
void ebb_dialect_fast_gelu(ebb_build *b, ebb_foreign *f)
{
    f->native = f->x[1].i == 0;
    if (!f->native)
        f->y[0] = ebb_emit(b, EBB_OP_MS_FAST_GELU, ebb_emit_plus(b, f->x[0], f->x[1]));
}

/* Erfc(X) -> 1 - erf(X): no operator of ONNX; tf2onnx leaves TensorFlow's as it is, in each exact gelu of Keras. */
void ebb_dialect_erfc(ebb_build *b, ebb_foreign *f)
{
    ebb_type t;
    if (ebb_foreign_ranked(b, f, 0, &t))
        f->y[0] = ebb_emit(b, EBB_OP_SUB, ebb_const_scalar(b, (ebb_dtype)t.dtype, 1),
                           ebb_emit(b, EBB_OP_ERF, f->x[0]));
}

/* BiasSplitGelu(X, bias) -> left gelu(right), the halves of X + bias along the last axis. */
void ebb_dialect_bias_split_gelu(ebb_build *b, ebb_foreign *f)
{
    ebb_type t;
    if (!ebb_foreign_ranked(b, f, 0, &t))
        return;
    int64_t size = t.rank > 0 ? t.dims[t.rank - 1] : -1;
    if (ebb_foreign_declines(f, size < 0 || size % 2 != 0,
                             "the size of its last axis is not known, or odd"))
        return;
    ebb_value sum = ebb_emit_plus(b, f->x[0], f->x[1]);
    ebb_value left = ebb_emit_between(b, sum, t.rank - 1, 0, size / 2);
    ebb_value right = ebb_emit_between(b, sum, t.rank - 1, size / 2, size);
    f->y[0] = ebb_emit(b, EBB_OP_MUL, left, gelu(b, right));
}

/* BiasAdd(X, bias, skip) -> X + bias + skip */
void ebb_dialect_bias_add(ebb_build *b, ebb_foreign *f)
{
    f->y[0] = ebb_emit_plus(b, ebb_emit_plus(b, f->x[0], f->x[1]), f->x[2]);
}

/* BiasSoftmax(data, bias) {axis}: softmax over all axes from `axis` on, as before opset 13. */
void ebb_dialect_bias_softmax(ebb_build *b, ebb_foreign *f)
{
    ebb_type t;
    int64_t axis = ebb_attr_int(&f->attrs, "axis", 1);
    if (!ebb_foreign_ranked(b, f, 0, &t))
        return;
    axis += axis < 0 ? t.rank : 0;
    ebb_value sum = ebb_emit_plus(b, f->x[0], f->x[1]), x = sum;
    if (ebb_foreign_declines(f, axis < 0 || axis >= t.rank, "its axis is out of range"))
        return;
    if (axis != t.rank - 1) {
        ebb_with_int(b, "axis", axis);
        x = ebb_emit(b, EBB_OP_FLATTEN, x);
    }
    ebb_with_int(b, "axis", -1);
    f->y[0] = ebb_emit(b, EBB_OP_SOFTMAX, x);
    if (axis != t.rank - 1)
        f->y[0] = ebb_emit(b, EBB_OP_RESHAPE, f->y[0], ebb_emit(b, EBB_OP_SHAPE, sum));
}

/* BiasGeluGrad_dX and BiasFastGeluGrad_dX (dY, X, B) -> dX */
void ebb_dialect_bias_gelu_grad(ebb_build *b, ebb_foreign *f)
{
    const ebb_node_info *info = ebb_node_of(b->g, f->node);
    bool fast = strstr(ebb_text(b->g, info->op_name), "Fast") != NULL;
    ebb_value x = ebb_emit_plus(b, f->x[1], f->x[2]);
    f->y[0] = ebb_emit(b, fast ? EBB_OP_FAST_GELU_GRAD : EBB_OP_GELU_GRAD, f->x[0], x);
}

/* ---- dropout ---- */

/* A mask in bits becomes one of bools; that holds where only its own operators read it. */
static bool mask_stays_inside(const ebb_graph *g, ebb_node n)
{
    ebb_value mask = ebb_out(g, n, 1);
    if (mask.i == 0 || strncmp(ebb_text(g, ebb_node_of(g, n)->op_name), "Bitmask", 7) != 0)
        return true;
    const ebb_value_info *info = ebb_value_of(g, mask);
    if (ebb_value_is_held(g, mask))
        return false;
    for (size_t i = 0; i < info->use_count; i++) {
        const ebb_node_info *user = ebb_node_of(g, info->uses[i].node);
        if (strcmp(ebb_text(g, user->op_name), "BitmaskDropoutGrad") != 0 ||
            info->uses[i].slot != 1)
            return false;
    }
    return true;
}

static void drop(ebb_build *b, ebb_foreign *f, ebb_value x, ebb_value ratio, ebb_value training)
{
    ebb_value y[2] = {0};
    if (ebb_foreign_declines(f, !mask_stays_inside(b->g, f->node),
                             "its bits are read by more than its gradient"))
        return;
    ebb_with_foreign(b, f, "seed");
    ebb_emit_node(b, EBB_OP_DROPOUT, (ebb_value[]){x, ratio, training}, 3, y, f->wants[1] ? 2 : 1,
                  UINT32_MAX);
    f->y[0] = y[0];
    f->y[1] = y[1];
}

/* BitmaskDropout(X, ratio?, training_mode?) -> Y, mask? */
void ebb_dialect_bitmask_dropout(ebb_build *b, ebb_foreign *f)
{
    drop(b, f, f->x[0], f->x[1], f->x[2]);
}

/* BiasDropout and BitmaskBiasDropout (X, bias, residual?, ratio?, training_mode?) -> Y, mask? */
void ebb_dialect_bias_dropout(ebb_build *b, ebb_foreign *f)
{
    drop(b, f, ebb_emit_plus(b, f->x[0], f->x[1]), f->x[3], f->x[4]);
    if (f->declines == NULL)
        f->y[0] = ebb_emit_plus(b, f->y[0], f->x[2]);
}

/* BitmaskDropoutGrad(dY, mask, ratio?, training_mode?) -> dX, after its forward has bools. */
void ebb_dialect_bitmask_dropout_grad(ebb_build *b, ebb_foreign *f)
{
    ebb_type mask;
    if (!ebb_foreign_ranked(b, f, 1, &mask) ||
        ebb_foreign_declines(f, mask.dtype != EBB_BOOL,
                             "the dropout that made its bits is not in the graph"))
        return;
    f->y[0] = ebb_emit_list(b, EBB_OP_DROPOUT_GRAD, f->x, 4);
}
