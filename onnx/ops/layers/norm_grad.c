/* norm_grad: gradients of the normalizations. */
#include "onnx/ops/common.h"

/* ---- batch norm ---- */

/* All axes of x but 1. */
static uint32_t other_axes(const ebb_type *x, int64_t axes[EBB_MAX_RANK])
{
    uint32_t count = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != 1)
            axes[count++] = i;
    return count;
}

/* A vector [C] as [C, 1, ...], which broadcasts over [N, C, ...]. */
static ebb_value along_channels(ebb_build *b, ebb_value v, const ebb_type *x)
{
    int64_t dims[EBB_MAX_RANK];
    for (int i = 0; i < x->rank - 1; i++)
        dims[i] = i == 0 ? x->dims[1] : 1;
    return ebb_emit_reshape(b, v, dims, x->rank - 1);
}

/* 1 / sqrt(v + epsilon). */
static ebb_value inverse_root(ebb_build *b, ebb_value v, double epsilon)
{
    ebb_value root = ebb_emit(b, EBB_OP_SQRT, ebb_emit_shifted(b, v, epsilon));
    return ebb_emit(b, EBB_OP_RECIPROCAL, root);
}

/* y = (x - m) r s + t with the batch's own mean m and r = 1 / sqrt(variance + epsilon):
 * dt = sum dy, ds = sum dy (x - m) r, dx = s r (dy - (dt + (x - m) r ds) / n). */
static void trained(ebb_build *b, ebb_grad *c, ebb_value mean, ebb_value inv_std)
{
    ebb_value d[3];
    ebb_with_float(b, "epsilon", ebb_attr_float(&c->attrs, "epsilon", (double)1e-5f));
    ebb_emit_node(b, EBB_OP_BATCH_NORM_GRAD,
                  (const ebb_value[]){c->dy[0], c->x[0], c->x[1], mean, inv_std}, 5, d, 3, 7);
    for (uint32_t i = 0; i < 3; i++)
        c->dx[i] = d[i];
}

void ebb_grad_batch_norm_training(ebb_build *b, ebb_grad *c)
{
    ebb_value mean = ebb_grad_need_output(b, c, 3, "mean");
    ebb_value inv_std = ebb_grad_need_output(b, c, 4, "inv_std");
    trained(b, c, mean, inv_std);
}

/* z = max(y + a, 0): what is let through is the gradient of y and of a. */
void ebb_grad_batch_norm_relu(ebb_build *b, ebb_grad *c)
{
    ebb_value d[4] = {{0}};
    ebb_value mean = ebb_grad_need_output(b, c, 3, "mean");
    ebb_value inv_std = ebb_grad_need_output(b, c, 4, "inv_std");
    ebb_value bits = ebb_grad_need_output(b, c, 5, "bits");
    bool added = ebb_grad_wants(c, 5);
    ebb_emit_node(b, EBB_OP_BATCH_NORM_RELU_GRAD,
                  (const ebb_value[]){c->dy[0], c->x[0], c->x[1], mean, inv_std, bits}, 6, d,
                  added ? 4 : 3, 15);
    for (uint32_t i = 0; i < 3; i++)
        c->dx[i] = d[i];
    if (added)
        c->dx[5] = d[3];
}

static ebb_dtype dtype_of(ebb_build *b, ebb_value v)
{
    return (ebb_dtype)ebb_build_type(b, v)->dtype;
}

/* Inference: y = (x - m) r s + t with r = 1 / sqrt(v + epsilon).
 * dx = dy s r, ds = r sum dy (x - m), dt = sum dy; where m and v are computed, as in a weight that
 * an exporter standardises, dm = - s r sum dy, dv = - 1/2 s r^3 sum dy (x - m).
 * x, s and m may have a dtype each: sums are made in m's, as x has 16 bits where they differ. */
static void frozen(ebb_build *b, ebb_grad *c, ebb_value r, const int64_t *axes, uint32_t count)
{
    if (b->status != NULL)
        return;
    const ebb_dtype in = dtype_of(b, c->x[0]), own = dtype_of(b, c->x[1]), full = dtype_of(b, r);
    const ebb_type type = *ebb_build_type(b, c->x[0]);
    const ebb_value scale = ebb_emit_cast(b, c->x[1], full);
    ebb_value moment = EBB_NO_VALUE, sum = EBB_NO_VALUE;
    if (ebb_grad_wants(c, 0)) {
        ebb_value slope = ebb_emit_cast(b, ebb_emit(b, EBB_OP_MUL, scale, r), in);
        c->dx[0] = ebb_emit(b, EBB_OP_MUL, c->dy[0], along_channels(b, slope, &type));
    }
    bool others = false;
    for (uint32_t i = 1; i < 5; i++)
        others |= ebb_grad_wants(c, i);
    const ebb_value dy = others ? ebb_emit_cast(b, c->dy[0], full) : EBB_NO_VALUE;
    if (ebb_grad_wants(c, 1) || ebb_grad_wants(c, 4)) {
        ebb_value off = ebb_emit(b, EBB_OP_SUB, ebb_emit_cast(b, c->x[0], full),
                                 along_channels(b, c->x[3], &type));
        ebb_value product = ebb_emit(b, EBB_OP_MUL, dy, off);
        moment = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, product, axes, count, false);
        moment = ebb_emit(b, EBB_OP_MUL, moment, r);
    }
    if (ebb_grad_wants(c, 1))
        c->dx[1] = ebb_emit_cast(b, moment, own);
    if (ebb_grad_wants(c, 4)) {
        ebb_value square = ebb_emit(b, EBB_OP_MUL, ebb_emit(b, EBB_OP_MUL, r, r), scale);
        ebb_value half = ebb_emit(b, EBB_OP_MUL, square, ebb_const_like(b, r, -0.5));
        c->dx[4] = ebb_emit(b, EBB_OP_MUL, moment, half);
    }
    if (ebb_grad_wants(c, 2) || ebb_grad_wants(c, 3))
        sum = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, dy, axes, count, false);
    if (ebb_grad_wants(c, 2))
        c->dx[2] = ebb_emit_cast(b, sum, own);
    if (ebb_grad_wants(c, 3)) {
        ebb_value slope = ebb_emit(b, EBB_OP_MUL, scale, r);
        c->dx[3] = ebb_emit(b, EBB_OP_MUL, ebb_emit(b, EBB_OP_NEG, sum), slope);
    }
}

/* In training mode the standard operator keeps no batch statistics, so they are computed again. */
void ebb_grad_batch_norm(ebb_build *b, ebb_grad *c)
{
    ebb_value x = c->x[0];
    double epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-5f);
    ebb_type type = *ebb_build_type(b, x);
    int64_t axes[EBB_MAX_RANK];
    if (!ebb_type_is_static(&type) || type.rank < 2) {
        ebb_grad_fail(b, c, "the shape of its input is not known");
        return;
    }
    uint32_t count = other_axes(&type, axes);
    if (ebb_attr_int(&c->attrs, "training_mode", 0) != 0 || c->output_count > 3) {
        ebb_value mean = ebb_emit_reduce(b, EBB_OP_REDUCE_MEAN, x, axes, count, false);
        ebb_value off = ebb_emit(b, EBB_OP_SUB, x, along_channels(b, mean, &type));
        ebb_value square = ebb_emit(b, EBB_OP_MUL, off, off);
        ebb_value var = ebb_emit_reduce(b, EBB_OP_REDUCE_MEAN, square, axes, count, false);
        trained(b, c, mean, inverse_root(b, var, epsilon));
        return;
    }
    frozen(b, c, inverse_root(b, c->x[4], epsilon), axes, count);
}

/* ---- group by group ---- */

/* Makes of a standard operator ours, which keeps its statistics; `stash_type` says of which dtype
 * they would be inside. */
static void keep_statistics(ebb_build *b, ebb_node n, ebb_op ours)
{
    if (b->status != NULL)
        return;
    const ebb_op_row *row = ebb_op_row_of(ours);
    ebb_build_fail(b, ebb_model_import(b->g->model, row->domain, row->since));
    if (b->status == NULL)
        ebb_build_fail(b, ebb_node_set_op(b->g, n, ours));
    ebb_build_fail(b, ebb_node_drop_attr(b->g, n, "stash_type"));
}

/* y = n s + t, n = (x - m) r for each image and group: with g = dy s,
 * dx = r (g - mean g - n mean(g n)), ds = sum of dy n over images and the places that share s,
 * dt = sum of dy. Instance norm is that of groups of one channel. */
void ebb_grad_group_norm(ebb_build *b, ebb_grad *c)
{
    ebb_op op = ebb_node_of(b->g, c->node)->op;
    ebb_value x = c->x[0], scale = c->x[1], d[3];
    if ((c->output_count > 1 && c->dy[1].i != 0) || (c->output_count > 2 && c->dy[2].i != 0)) {
        ebb_grad_fail(b, c, "its mean or deviation is used as a value");
        return;
    }
    const ebb_type *type = ebb_build_type(b, x);
    if (type->rank < 2 || type->dims[1] < 0) {
        ebb_grad_fail(b, c, "the number of channels of its input is not known");
        return;
    }
    if (op == EBB_OP_INSTANCE_NORMALIZATION)
        ebb_build_fail(b, ebb_node_set_int(b->g, c->node, "num_groups", type->dims[1]));
    if (op != EBB_OP_GROUP_NORM)
        keep_statistics(b, c->node, EBB_OP_GROUP_NORM);
    ebb_value mean = ebb_grad_need_output(b, c, 1, "mean");
    ebb_value inv_std = ebb_grad_need_output(b, c, 2, "inv_std");
    ebb_emit_node(b, EBB_OP_GROUP_NORM_GRAD, (const ebb_value[]){c->dy[0], x, scale, mean, inv_std},
                  5, d, 3, 7);
    for (uint32_t i = 0; i < 3; i++)
        c->dx[i] = d[i];
}

/* ---- row by row ---- */

/* Scale over all normalized axes: the gradient operators take it so. `axis` is made not negative.
 */
static ebb_value full_scale(ebb_build *b, ebb_grad *c, int64_t *axis)
{
    if (b->status != NULL)
        return EBB_NO_VALUE;
    ebb_type x = *ebb_build_type(b, c->x[0]);
    if (!ebb_type_is_static(&x)) {
        ebb_grad_fail(b, c, "the shape of its input is not known");
        return EBB_NO_VALUE;
    }
    *axis = ebb_attr_int(&c->attrs, "axis", -1);
    if (*axis < 0)
        *axis += x.rank;
    ebb_type full = ebb_type_tensor((ebb_dtype)x.dtype, x.rank - (int)*axis, x.dims + *axis);
    const ebb_type *scale = ebb_build_type(b, c->x[1]);
    if (scale->rank > full.rank) {
        ebb_grad_fail(b, c, "its scale has more axes than are normalized");
        return EBB_NO_VALUE;
    }
    if (ebb_type_same_shape(scale, &full))
        return c->x[1];
    return ebb_emit(b, EBB_OP_EXPAND, c->x[1], ebb_const_ints(b, full.dims, (uint32_t)full.rank));
}

/* What flows through the row's mean m and r = 1 / deviation, where those are values themselves:
 * dm / n and - dr r^3 (x - m) / n. */
static ebb_value through_statistics(ebb_build *b, ebb_grad *c, int64_t axis, ebb_value r)
{
    ebb_value sum = EBB_NO_VALUE, dm = ebb_grad_of(c, 1), dr = ebb_grad_of(c, 2);
    if (b->status != NULL || (dm.i == 0 && dr.i == 0))
        return sum;
    ebb_type x = *ebb_build_type(b, c->x[0]);
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, r)->dtype;
    double n = 1;
    for (int i = (int)axis; i < x.rank; i++)
        n *= (double)x.dims[i];
    if (dm.i != 0)
        sum = ebb_emit_scaled(b, dm, 1 / n);
    if (dr.i != 0) {
        ebb_value wide = ebb_emit_cast(b, c->x[0], dtype);
        ebb_value off = ebb_emit(b, EBB_OP_SUB, wide, ebb_grad_need_output(b, c, 1, "mean"));
        ebb_value cube = ebb_emit(b, EBB_OP_MUL, ebb_emit(b, EBB_OP_MUL, r, r), r);
        ebb_value slope = ebb_emit_scaled(b, ebb_emit(b, EBB_OP_MUL, dr, cube), -1 / n);
        ebb_value along = ebb_emit(b, EBB_OP_MUL, slope, off);
        sum = sum.i == 0 ? along : ebb_emit(b, EBB_OP_ADD, along, sum);
    }
    return ebb_emit_expand_like(b, ebb_emit_cast(b, sum, (ebb_dtype)x.dtype), c->x[0]);
}

/* y = n s + t, n = (x - m) r over each row: with g = dy s,
 * dx = r (g - mean g - n mean(g n)), ds = sum over rows of dy n, dt = sum over rows of dy. */
void ebb_grad_layer_norm(ebb_build *b, ebb_grad *c)
{
    int64_t axis = 0;
    ebb_value scale = full_scale(b, c, &axis);
    ebb_value mean = ebb_grad_need_output(b, c, 1, "mean");
    ebb_value inv_std = ebb_grad_need_output(b, c, 2, "inv_std");
    c->dx[0] = through_statistics(b, c, axis, inv_std);
    if (c->dy[0].i == 0 || b->status != NULL)
        return;
    ebb_value d[3];
    ebb_with_int(b, "axis", axis);
    ebb_emit_node(b, EBB_OP_LAYER_NORM_GRAD,
                  (const ebb_value[]){c->dy[0], c->x[0], scale, mean, inv_std}, 5, d, 3, 7);
    c->dx[0] = c->dx[0].i == 0 ? d[0] : ebb_emit(b, EBB_OP_ADD, d[0], c->dx[0]);
    for (uint32_t i = 1; i < 3; i++)
        if (ebb_grad_wants(c, i))
            ebb_grad_give(b, c, i, d[i]);
}

/* y = n s, n = x r, r = 1 / sqrt(mean x^2 + epsilon) over each row: with g = dy s,
 * dx = r (g - n mean(g n)), ds = sum over rows of dy n. */
void ebb_grad_rms_norm(ebb_build *b, ebb_grad *c)
{
    int64_t axis = 0;
    ebb_value scale = full_scale(b, c, &axis), d[2];
    if (b->status != NULL)
        return;
    if (ebb_node_of(b->g, c->node)->op != EBB_OP_RMS_NORM)
        keep_statistics(b, c->node, EBB_OP_RMS_NORM);
    ebb_value r = ebb_grad_need_output(b, c, 1, "inv_std");
    ebb_with_int(b, "axis", axis);
    ebb_emit_node(b, EBB_OP_RMS_NORM_GRAD, (const ebb_value[]){c->dy[0], c->x[0], scale, r}, 4, d,
                  2, 3);
    c->dx[0] = d[0];
    if (ebb_grad_wants(c, 1))
        ebb_grad_give(b, c, 1, d[1]);
}

/* ---- norms of lines, moments ---- */

/* y = x / n along an axis, n = sum |x| or sqrt(sum x^2); 0 where n = 0.
 * dx = (dy - s sum(dy y)) / n, s = sign x or y; 0 where n = 0. */
void ebb_grad_lp_normalization(ebb_build *b, ebb_grad *c)
{
    int64_t p = ebb_attr_int(&c->attrs, "p", 2), axis = ebb_attr_int(&c->attrs, "axis", -1);
    int rank = ebb_build_type(b, c->x[0])->rank;
    if ((p != 1 && p != 2) || rank < 0) {
        ebb_grad_fail(b, c, rank < 0 ? "the rank of its input is not known" : "p is not 1 or 2");
        return;
    }
    axis = axis < 0 ? axis + rank : axis;
    ebb_op norm = p == 1 ? EBB_OP_REDUCE_L1 : EBB_OP_REDUCE_L2;
    ebb_value n = ebb_emit_reduce(b, norm, c->x[0], &axis, 1, true);
    ebb_value along = ebb_emit(b, EBB_OP_MUL, c->dy[0], c->y[0]);
    along = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, along, &axis, 1, true);
    ebb_value side = p == 1 ? ebb_emit(b, EBB_OP_SIGN, c->x[0]) : c->y[0];
    ebb_value rest = ebb_emit(b, EBB_OP_SUB, c->dy[0], ebb_emit(b, EBB_OP_MUL, side, along));
    ebb_value zero = ebb_const_like(b, n, 0.0), empty = ebb_emit(b, EBB_OP_EQUAL, n, zero);
    c->dx[0] = ebb_emit(b, EBB_OP_WHERE, empty, zero, ebb_emit(b, EBB_OP_DIV, rest, n));
}

/* y = (x - m) / (s + e), m and s the mean and the deviation over the axes, e = 1e-9.
 * dx = (dy - mean dy) / (s + e) - y mean(dy y) / s, the latter 0 where s = 0. */
void ebb_grad_mean_variance_normalization(ebb_build *b, ebb_grad *c)
{
    static const int64_t usual[3] = {0, 2, 3};
    uint32_t count = 0;
    const int64_t *axes = ebb_attr_ints(&c->attrs, "axes", &count);
    if (axes == NULL) {
        axes = usual;
        count = 3;
    }
    ebb_value mean = ebb_emit_reduce(b, EBB_OP_REDUCE_MEAN, c->x[0], axes, count, true);
    ebb_value off = ebb_emit(b, EBB_OP_SUB, c->x[0], mean);
    ebb_value squares = ebb_emit(b, EBB_OP_MUL, off, off);
    ebb_value variance = ebb_emit_reduce(b, EBB_OP_REDUCE_MEAN, squares, axes, count, true);
    ebb_value s = ebb_emit(b, EBB_OP_SQRT, variance), zero = ebb_const_like(b, s, 0.0);
    ebb_value along = ebb_emit(b, EBB_OP_MUL, c->dy[0], c->y[0]);
    along = ebb_emit_reduce(b, EBB_OP_REDUCE_MEAN, along, axes, count, true);
    along = ebb_emit(b, EBB_OP_WHERE, ebb_emit(b, EBB_OP_EQUAL, s, zero), zero,
                     ebb_emit(b, EBB_OP_DIV, along, s));
    ebb_value level = ebb_emit_reduce(b, EBB_OP_REDUCE_MEAN, c->dy[0], axes, count, true);
    ebb_value flat = ebb_emit(b, EBB_OP_SUB, c->dy[0], level);
    flat = ebb_emit(b, EBB_OP_DIV, flat, ebb_emit_shifted(b, s, 1e-9));
    c->dx[0] = ebb_emit(b, EBB_OP_SUB, flat, ebb_emit(b, EBB_OP_MUL, c->y[0], along));
}
