/* training: what ONNX Runtime's training graphs are made of, where ebb has another operator for it.
 */
#include "passes/flatten/dialect/dialect.h"

#include <stdio.h>

#include "passes/common.h"

static const char *name_of(const ebb_build *b, const ebb_foreign *f)
{
    return ebb_text(b->g, ebb_node_of(b->g, f->node)->op_name);
}

/* ---- gradients that the forward's own rule gives ---- */

/* ConvGrad and ConvTransposeGrad (dY, X, W) {the forward's attributes} -> dX?, dW?, dB? */
void ebb_dialect_conv_grad(ebb_build *b, ebb_foreign *f)
{
    ebb_type x, w;
    bool transposed = strcmp(name_of(b, f), "ConvTransposeGrad") == 0;
    if (!ebb_foreign_ranked(b, f, 1, &x) || !ebb_foreign_ranked(b, f, 2, &w))
        return;
    bool known = ebb_type_is_static(&w) && x.rank > 2;
    for (int i = 0; known && i < x.rank; i++)
        known = x.dims[i] >= 0 || (i < 2 && !transposed);
    if (ebb_foreign_declines(f, !known, "the shape of its input is not known"))
        return;
    const ebb_value in[3] = {f->x[1], f->x[2], EBB_NO_VALUE};
    ebb_foreign_grad(b, f, transposed ? EBB_OP_CONV_TRANSPOSE : EBB_OP_CONV, f->node, in, 3,
                     EBB_NO_VALUE, f->x[0]);
}

/* MaxPoolGrad(dY, places): of a forward that stands in the same graph. AveragePoolGrad(dY): its
 * shape is what the file says of its output. */
void ebb_dialect_pool_grad(ebb_build *b, ebb_foreign *f)
{
    const ebb_graph *g = b->g;
    if (strcmp(name_of(b, f), "MaxPoolGrad") == 0) {
        ebb_node forward = ebb_value_of(g, f->x[1])->producer;
        if (ebb_foreign_declines(f, ebb_producer_op(g, f->x[1]) != EBB_OP_MAX_POOL,
                                 "the MaxPool that made its places is not in the graph"))
            return;
        const ebb_value in[1] = {ebb_in(g, forward, 0)};
        ebb_foreign_grad(b, f, EBB_OP_MAX_POOL, forward, in, 1, EBB_NO_VALUE, f->x[0]);
        return;
    }
    ebb_type x = *ebb_value_of(g, ebb_out(g, f->node, 0))->type;
    if (ebb_foreign_declines(f, x.rank < 0 || !ebb_type_is_static(&x),
                             "the shape of its output is not known"))
        return;
    ebb_with_attrs_of(b, f->node);
    ebb_with_ints(b, "input_shape", x.dims, (uint32_t)x.rank);
    f->y[0] = ebb_emit(b, EBB_OP_AVERAGE_POOL_GRAD, f->x[0]);
}

/* DivGrad(dY, A, B) -> dA?, dB? */
void ebb_dialect_div_grad(ebb_build *b, ebb_foreign *f)
{
    ebb_type a, d;
    if (!ebb_foreign_ranked(b, f, 1, &a) || !ebb_foreign_ranked(b, f, 2, &d) ||
        ebb_foreign_declines(f, !ebb_type_is_static(&a) || !ebb_type_is_static(&d),
                             "the shape of its input is not known"))
        return;
    ebb_value y = ebb_emit(b, EBB_OP_DIV, f->x[1], f->x[2]);
    ebb_foreign_grad(b, f, EBB_OP_DIV, f->node, f->x + 1, 2, y, f->x[0]);
}

/* SoftmaxGrad and LogSoftmaxGrad (dY, Y) {axis}: over all axes from `axis` on, as before opset 13.
 */
void ebb_dialect_softmax_grad(ebb_build *b, ebb_foreign *f)
{
    bool logarithm = strcmp(name_of(b, f), "LogSoftmaxGrad") == 0;
    ebb_value flat[2];
    for (int i = 0; i < 2; i++) {
        ebb_with_int(b, "axis", ebb_attr_int(&f->attrs, "axis", 1));
        flat[i] = ebb_emit(b, EBB_OP_FLATTEN, f->x[i]);
    }
    ebb_with_int(b, "axis", -1);
    ebb_value dx =
        ebb_emit(b, logarithm ? EBB_OP_LOG_SOFTMAX_GRAD : EBB_OP_SOFTMAX_GRAD, flat[0], flat[1]);
    f->y[0] = ebb_emit(b, EBB_OP_RESHAPE, dx, ebb_emit(b, EBB_OP_SHAPE, f->x[1]));
}

/* GatherNDGrad(shape, indices, dY) {batch_dims} -> dX */
void ebb_dialect_gather_nd_grad(ebb_build *b, ebb_foreign *f)
{
    ebb_type dy;
    if (!ebb_foreign_ranked(b, f, 2, &dy))
        return;
    if (ebb_attr_int(&f->attrs, "batch_dims", 0) != 0 || ebb_model_opset(b->g->model, "") < 16) {
        f->declines = "it has batch dims, or ai.onnx is older than opset 16";
        return;
    }
    ebb_value zeros =
        ebb_emit_cast(b, ebb_emit(b, EBB_OP_CONSTANT_OF_SHAPE, f->x[0]), (ebb_dtype)dy.dtype);
    ebb_with_string(b, "reduction", "add");
    f->y[0] = ebb_emit(b, EBB_OP_SCATTER_ND, zeros, f->x[1], f->x[2]);
}

void ebb_dialect_gather_nd(ebb_build *b, ebb_foreign *f)
{
    ebb_with_foreign(b, f, "batch_dims");
    f->y[0] = ebb_emit(b, EBB_OP_GATHER_ND, f->x[0], f->x[1]);
}

void ebb_dialect_shrunken_gather(ebb_build *b, ebb_foreign *f)
{
    ebb_with_foreign(b, f, "axis");
    f->y[0] = ebb_emit(b, EBB_OP_GATHER, f->x[0], f->x[1]);
}

/* FakeQuantGrad(dY, mask) -> dX */
void ebb_dialect_fake_quant_grad(ebb_build *b, ebb_foreign *f)
{
    f->y[0] = ebb_emit(b, EBB_OP_WHERE, f->x[1], f->x[0], ebb_const_like(b, f->x[0], 0));
}

/* ---- losses ---- */

/* The attribute `ignore_index` of the next node from an input. */
static bool with_ignored(ebb_build *b, ebb_foreign *f, uint32_t input)
{
    double x;
    if (input >= f->input_count || f->x[input].i == 0)
        return true;
    if (!ebb_foreign_scalar(b, f, input, 0, &x))
        return false;
    ebb_with_int(b, "ignore_index", (int64_t)x);
    return true;
}

/* SoftmaxCrossEntropyLossInternal(scores, labels, weights?, ignore_index?) -> loss, log_prob, and
 * NegativeLogLikelihoodLossInternal likewise: ONNX's, whose ignore_index is an input. */
void ebb_dialect_loss_internal(ebb_build *b, ebb_foreign *f)
{
    ebb_value y[2] = {0};
    bool softmax = name_of(b, f)[0] == 'S';
    int64_t dtype = ebb_attr_int(&f->attrs, "output_type", 0);
    ebb_with_foreign(b, f, "reduction");
    if (!with_ignored(b, f, 3))
        return;
    ebb_emit_node(b,
                  softmax ? EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS : EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS,
                  f->x, 3, y, softmax ? 2 : 1, softmax && f->wants[1] ? 3 : 1);
    f->y[0] = dtype != 0 ? ebb_emit_cast(b, y[0], (ebb_dtype)dtype) : y[0];
    f->y[1] = y[1];
}

/* SoftmaxCrossEntropyLossInternalGrad(dY, log_prob, labels, weights?, ignore_index?, more?) -> dX +
 * more */
void ebb_dialect_loss_internal_grad(ebb_build *b, ebb_foreign *f)
{
    ebb_type log_prob;
    if (!ebb_foreign_ranked(b, f, 1, &log_prob))
        return;
    ebb_value dy = ebb_emit_cast(b, f->x[0], (ebb_dtype)log_prob.dtype);
    ebb_with_foreign(b, f, "reduction");
    if (!with_ignored(b, f, 4))
        return;
    ebb_value dx =
        ebb_emit(b, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, dy, f->x[1], f->x[2], f->x[3]);
    f->y[0] = ebb_emit_plus(b, dx, f->x[5]);
}

/* ---- arithmetic ---- */

/* Scale(X, scale) {scale_down} -> X scale, or X / scale */
void ebb_dialect_scale(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    if (!ebb_foreign_ranked(b, f, 0, &x))
        return;
    bool down = ebb_attr_int(&f->attrs, "scale_down", 0) != 0;
    ebb_value scale = ebb_emit_cast(b, f->x[1], (ebb_dtype)x.dtype);
    f->y[0] = ebb_emit(b, down ? EBB_OP_DIV : EBB_OP_MUL, f->x[0], scale);
}

static ebb_value times(ebb_build *b, const ebb_foreign *f, ebb_value x, unsigned k)
{
    char name[16];
    (void)snprintf(name, sizeof name, "scale_%u", k);
    return ebb_emit(b, EBB_OP_MUL, x, ebb_const_like(b, x, ebb_attr_float(&f->attrs, name, 1)));
}

/* ScaledSum(x0, x1, x2?) {scale_0 ..} -> x0 scale_0 + x1 scale_1 + ... */
void ebb_dialect_scaled_sum(ebb_build *b, ebb_foreign *f)
{
    for (unsigned k = 0; k < 3; k++)
        if (f->x[k].i != 0)
            f->y[0] = ebb_emit_plus(b, times(b, f, f->x[k], k), f->y[0]);
}

/* BatchScale(x) {scale_0 ..} -> x scale_0, x scale_1, ... */
void ebb_dialect_batch_scale(ebb_build *b, ebb_foreign *f)
{
    for (unsigned k = 0; k < f->output_count; k++)
        if (f->wants[k])
            f->y[k] = times(b, f, f->x[0], k);
}

/* ReduceAllL2(X ...) -> the root of the sum of all squares */
void ebb_dialect_reduce_all_l2(ebb_build *b, ebb_foreign *f)
{
    ebb_value sum = EBB_NO_VALUE;
    for (uint32_t i = 0; i < f->input_count; i++) {
        ebb_with_int(b, "keepdims", 0);
        sum = ebb_emit_plus(b, ebb_emit(b, EBB_OP_REDUCE_SUM_SQUARE, f->x[i]), sum);
    }
    f->y[0] = ebb_emit(b, EBB_OP_SQRT, sum);
}

/* ---- shapes ---- */

/* ConcatTraining(X ...) {axis} -> Y, size of each along the axis */
void ebb_dialect_concat_training(ebb_build *b, ebb_foreign *f)
{
    int64_t sizes[EBB_DIALECT_INPUTS], axis = ebb_attr_int(&f->attrs, "axis", 0);
    for (uint32_t i = 0; f->wants[1] && i < f->input_count; i++) {
        ebb_type t;
        if (!ebb_foreign_ranked(b, f, i, &t))
            return;
        int64_t at = axis < 0 ? axis + t.rank : axis;
        sizes[i] = at >= 0 && at < t.rank ? t.dims[at] : -1;
        if (ebb_foreign_declines(f, sizes[i] < 0, "the shape of its input is not known"))
            return;
    }
    ebb_with_int(b, "axis", axis);
    f->y[0] = ebb_emit_list(b, EBB_OP_CONCAT, f->x, f->input_count);
    if (f->wants[1])
        f->y[1] = ebb_const_ints(b, sizes, f->input_count);
}

/* SplitTraining(X, sizes) {axis} -> parts */
void ebb_dialect_split_training(ebb_build *b, ebb_foreign *f)
{
    ebb_with_foreign(b, f, "axis");
    ebb_emit_node(b, EBB_OP_SPLIT, f->x, 2, f->y, f->output_count, UINT32_MAX);
}

/* ReduceSumTraining(X, axes) {keepdims, noop_with_empty_axes} */
void ebb_dialect_reduce_sum_training(ebb_build *b, ebb_foreign *f)
{
    ebb_with_attrs_of(b, f->node);
    f->y[0] = ebb_emit(b, EBB_OP_REDUCE_SUM, f->x[0], f->x[1]);
}

/* A shape that is constant, or asked of a tensor of static shape. */
static bool shape_of(const ebb_build *b, ebb_foreign *f, uint32_t input, ebb_type *shape)
{
    const ebb_graph *g = b->g;
    const int64_t *list;
    uint32_t count;
    if (ebb_ints_of(g, f->x[input], f->scratch, &list, &count) && count <= EBB_MAX_RANK) {
        *shape = ebb_type_tensor(EBB_F32, (int)count, list);
        return true;
    }
    if (ebb_producer_op(g, f->x[input]) != EBB_OP_SHAPE)
        return false;
    *shape = *ebb_value_of(g, ebb_in(g, ebb_value_of(g, f->x[input])->producer, 0))->type;
    return shape->rank >= 0 && ebb_type_is_static(shape);
}

/* BroadcastGradientArgs(shape of A, shape of B) -> axes along which A was broadcast, and B. */
void ebb_dialect_broadcast_gradient_args(ebb_build *b, ebb_foreign *f)
{
    ebb_type shape[2];
    if (ebb_foreign_declines(f, !shape_of(b, f, 0, &shape[0]) || !shape_of(b, f, 1, &shape[1]),
                             "the shapes that it compares are not known"))
        return;
    int rank = shape[0].rank > shape[1].rank ? shape[0].rank : shape[1].rank;
    for (int k = 0; k < 2; k++) {
        int64_t axes[EBB_MAX_RANK];
        uint32_t count = 0;
        for (int i = 0; i < rank; i++) {
            int own = i - (rank - shape[k].rank), other = i - (rank - shape[1 - k].rank);
            int64_t mine = own < 0 ? 1 : shape[k].dims[own];
            int64_t theirs = other < 0 ? 1 : shape[1 - k].dims[other];
            if (own < 0 || (mine == 1 && theirs != 1))
                axes[count++] = i;
        }
        if (f->wants[k])
            f->y[k] = ebb_const_ints(b, axes, count);
    }
}

/* ---- accumulation ---- */

/* InPlaceAccumulator(old, value, update_signal?) -> new: old + value where the signal says so. */
void ebb_dialect_accumulator(ebb_build *b, ebb_foreign *f)
{
    ebb_value sum = ebb_emit(b, EBB_OP_ADD, f->x[0], f->x[1]);
    f->y[0] = f->x[2].i == 0 ? sum : ebb_emit(b, EBB_OP_WHERE, f->x[2], sum, f->x[0]);
}

/* InPlaceAccumulatorV2(buffer, value, overwrite?) -> done, value where it says so, else buffer + value. */
void ebb_dialect_accumulator_v2(ebb_build *b, ebb_foreign *f)
{
    const ebb_type flag = ebb_type_tensor(EBB_BOOL, 1, (const int64_t[]){1});
    if (f->wants[0])
        f->y[0] = ebb_const_tensor(b, &flag, &(bool){true});
    if (!f->wants[1])
        return;
    f->y[1] = ebb_emit(b, EBB_OP_ADD, f->x[0], f->x[1]);
    if (f->x[2].i != 0)
        f->y[1] = ebb_emit(b, EBB_OP_WHERE, f->x[2], f->x[1], f->y[1]);
}

/* ZeroGradient(old, reset_signal) -> zeros like it */
void ebb_dialect_zero_gradient(ebb_build *b, ebb_foreign *f)
{
    ebb_type t;
    if (!ebb_foreign_ranked(b, f, 0, &t) ||
        ebb_foreign_declines(f, !ebb_type_is_static(&t), "the shape of its input is not known"))
        return;
    f->y[0] = ebb_emit_zeros_like(b, f->x[0]);
}
