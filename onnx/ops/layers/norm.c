/* norm: batch, layer and root-mean-square normalization, and their gradients' types. */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

/* ---- batch norm: [N, C, ...], one scale and shift a channel ---- */

static int64_t channels(const ebb_type *x)
{
    return x->rank < 0 ? -1 : x->rank == 1 ? 1 : x->dims[1];
}

/* scale, B, mean, var agree with X's channels. */
static ebb_status check_channels(const ebb_infer *c, uint32_t first, uint32_t last,
                                 const ebb_type *x)
{
    if (x->rank == 0)
        return ebb_infer_error(c, "its input is a scalar");
    for (uint32_t i = first; i <= last; i++) {
        const ebb_type *t = ebb_infer_type(c, i);
        if (t == NULL || t->rank < 0)
            continue;
        if (t->rank != 1)
            return ebb_infer_error(c, "input %u has rank %d, a vector is expected", (unsigned)i,
                                   (int)t->rank);
        if (channels(x) >= 0 && t->dims[0] >= 0 && t->dims[0] != channels(x))
            return ebb_infer_error(c, "the input has %lld channels, input %u has %lld elements",
                                   (long long)channels(x), (unsigned)i, (long long)t->dims[0]);
    }
    return NULL;
}

/* A vector of one element a channel. */
static ebb_type channel_vector(const ebb_infer *c, const ebb_type *x, uint32_t like)
{
    const ebb_type *t = ebb_infer_type(c, like);
    ebb_type out = ebb_type_ranked((ebb_dtype)(t != NULL ? t->dtype : x->dtype), 1);
    if (t != NULL && t->rank == 1 && t->dims[0] >= 0)
        ebb_type_set_dim(&out, 0, t->dims[0]);
    else if (x->rank >= 2)
        ebb_type_put_dim(&out, 0, x, 1);
    return out;
}

/* One output in inference; in training the running statistics (and before 14 the batch's too). */
ebb_status ebb_infer_batch_norm(ebb_infer *c)
{
    EBB_TRY(check_channels(c, 1, 4, c->in[0]));
    c->out[0] = *c->in[0];
    for (uint32_t k = 1; k < c->output_count && k < 5; k++)
        c->out[k] = channel_vector(c, c->in[0], k % 2 == 1 ? 3 : 4);
    return NULL;
}

/* (dY, X, scale, mean, inv_std) -> dX, dscale, dB. */
ebb_status ebb_infer_batch_norm_grad(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same_dims(c, 0, 1));
    EBB_TRY(check_channels(c, 2, 4, c->in[1]));
    c->out[0] = *c->in[1];
    for (uint32_t k = 1; k < c->output_count && k < 3; k++)
        c->out[k] = channel_vector(c, c->in[1], 2);
    return NULL;
}

/* (X, scale, B, mean, var, A?) -> Z, the four of batch norm, bits. */
ebb_status ebb_infer_batch_norm_relu(ebb_infer *c)
{
    EBB_TRY(ebb_infer_batch_norm(c));
    if (c->op == EBB_OP_BATCH_NORM_ADD_RELU)
        EBB_TRY(ebb_infer_same_dims(c, 0, 5));
    if (c->output_count > 5)
        c->out[5] = ebb_type_bits(c->in[0]);
    return NULL;
}

/* (dZ, X, scale, mean, inv_std, bits) -> dX, dscale, dB, dA. */
ebb_status ebb_infer_batch_norm_relu_grad(ebb_infer *c)
{
    EBB_TRY(ebb_infer_batch_norm_grad(c));
    const ebb_type *bits = c->in[5], asked = ebb_type_bits(c->in[1]);
    if (bits->rank >= 0 && (bits->rank != 1 || (bits->dims[0] >= 0 && asked.dims[0] >= 0 &&
                                                bits->dims[0] != asked.dims[0])))
        return ebb_infer_error(c, "its bits are not one for each element of the input");
    if (c->output_count > 3)
        c->out[3] = *c->in[0];
    return NULL;
}

/* The activation whose output is kept tells its input. */
static ebb_status check_traceable(const ebb_infer *c)
{
    double slope = ebb_attr_float(&c->attrs, "slope", 1.0);
    double elu = ebb_attr_float(&c->attrs, "elu", 0.0);
    if (!(slope > 0))
        return ebb_infer_error(c, "its slope is %g, which no output can be traced back through",
                               slope);
    if (!(elu >= 0))
        return ebb_infer_error(c, "its elu is %g, which no output can be traced back through", elu);
    return NULL;
}

/* (dZ, Z, scale, B, inv_std) -> dX, dscale, dB. */
ebb_status ebb_infer_batch_norm_grad_from_output(ebb_infer *c)
{
    EBB_TRY(check_traceable(c));
    return ebb_infer_batch_norm_grad(c);
}

/* ---- group norm: [N, C, ...], the channels in groups of neighbours, one mean an image and group
 */

/* One element a channel for scale and bias. */
ebb_status ebb_infer_instance_norm(ebb_infer *c)
{
    EBB_TRY(check_channels(c, 1, 2, c->in[0]));
    c->out[0] = *c->in[0];
    return NULL;
}

/* Scale and bias have one element a channel or, in the standard operator before 21 always, one a
 * group. Ours takes either. */
static ebb_status check_groups(const ebb_infer *c, const ebb_type *x, int64_t groups)
{
    bool standard = c->op == EBB_OP_GROUP_NORMALIZATION;
    bool by_group = standard && c->version < 21, by_channel = standard && !by_group;
    int64_t all = channels(x);
    if (x->rank == 0 || x->rank == 1)
        return ebb_infer_error(c, "its input has rank %d, at least 2 is expected", (int)x->rank);
    if (groups <= 0)
        return ebb_infer_error(c, "num_groups is %lld, at least 1 is expected", (long long)groups);
    if (all >= 0 && all % groups != 0)
        return ebb_infer_error(c, "%lld channels cannot be parted into %lld groups", (long long)all,
                               (long long)groups);
    for (uint32_t i = 1; i <= 2; i++) {
        const ebb_type *t = ebb_infer_type(c, i);
        if (t == NULL || t->rank < 0)
            continue;
        if (t->rank != 1)
            return ebb_infer_error(c, "input %u has rank %d, a vector is expected", (unsigned)i,
                                   (int)t->rank);
        int64_t size = t->dims[0];
        bool fits = (!by_channel && size == groups) || (!by_group && size == all) ||
                    (!by_group && all < 0) || size < 0;
        if (!fits)
            return ebb_infer_error(c,
                                   "%lld channels in %lld groups do not go with input %u of "
                                   "%lld elements",
                                   (long long)all, (long long)groups, (unsigned)i, (long long)size);
    }
    return ebb_infer_same_dims(c, 1, 2);
}

/* Y; ours also mean? and inv_std?, [N, groups]. */
ebb_status ebb_infer_group_norm(ebb_infer *c)
{
    int64_t groups = ebb_attr_int(&c->attrs, "num_groups", 0);
    const ebb_type *x = c->in[0];
    EBB_TRY(check_groups(c, x, groups));
    c->out[0] = *x;
    for (uint32_t k = 1; k < c->output_count && k < 3; k++) {
        c->out[k] = ebb_type_ranked((ebb_dtype)x->dtype, 2);
        if (x->rank > 0)
            ebb_type_put_dim(&c->out[k], 0, x, 0);
        ebb_type_set_dim(&c->out[k], 1, groups);
    }
    return NULL;
}

/* (dY, X, scale, mean, inv_std) or (dZ, Z, scale, B, inv_std) -> dX, dscale, dB. The groups are
 * those of inv_std, [N, groups]. */
ebb_status ebb_infer_group_norm_grad(ebb_infer *c)
{
    bool from_output = c->op == EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT;
    EBB_TRY(ebb_infer_same_dims(c, 0, 1));
    EBB_TRY(ebb_infer_same_dims(c, from_output ? 2 : 4, 3));
    const ebb_type *x = c->in[1], *scale = c->in[2], *inv_std = c->in[4];
    if (x->rank == 0 || x->rank == 1 || (scale->rank >= 0 && scale->rank != 1) ||
        (inv_std->rank >= 0 && inv_std->rank != 2))
        return ebb_infer_error(c,
                               "the ranks of input, scale and deviation are %d, %d and %d; at "
                               "least 2, 1 and 2 are expected",
                               (int)x->rank, (int)scale->rank, (int)inv_std->rank);
    if (ebb_type_is_static(x) && ebb_type_is_static(scale) && ebb_type_is_static(inv_std)) {
        int64_t all = x->dims[1], size = scale->dims[0], groups = inv_std->dims[1];
        if (inv_std->dims[0] != x->dims[0] || groups <= 0 || all % groups != 0 ||
            (size != all && size != groups))
            return ebb_infer_error(c,
                                   "%lld images of %lld channels do not go with %lld scales and "
                                   "deviations for %lld images of %lld groups",
                                   (long long)x->dims[0], (long long)all, (long long)size,
                                   (long long)inv_std->dims[0], (long long)groups);
    }
    if (from_output)
        EBB_TRY(check_traceable(c));
    c->out[0] = *x;
    for (uint32_t k = 1; k < c->output_count && k < 3; k++)
        c->out[k] = *scale;
    return NULL;
}

/* ---- layer norm and RMS norm: over the axes from `axis` on ---- */

/* X's type with 1 on the normalized axes: one mean a row. */
static ebb_status row_type(const ebb_infer *c, const ebb_type *x, ebb_type *out)
{
    ebb_dtype dtype = (ebb_dtype)ebb_attr_int(&c->attrs, "stash_type", EBB_F32);
    if (c->op == EBB_OP_RMS_NORM)
        dtype = (ebb_dtype)x->dtype;
    else if (!ebb_dtype_is_float(dtype))
        return ebb_infer_error(c, "stash_type %d is no float", (int)dtype);
    *out = *x;
    out->dtype = (uint8_t)dtype;
    if (x->rank < 0)
        return NULL;
    int axis;
    EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", -1), x->rank, &axis));
    for (int i = axis; i < x->rank; i++)
        ebb_type_set_dim(out, i, 1);
    return NULL;
}

/* The axis is one of X's; scale and bias (where given) broadcast to X without widening it. */
static ebb_status check_rows(const ebb_infer *c, const ebb_type *x, uint32_t first, uint32_t last)
{
    int axis;
    if (x->rank >= 0)
        EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", -1), x->rank, &axis));
    for (uint32_t i = first; i <= last; i++) {
        const ebb_type *t = ebb_infer_type(c, i);
        if (t == NULL || t->rank < 0 || x->rank < 0)
            continue;
        for (int k = 0; k < t->rank; k++) {
            int at = x->rank - t->rank + k;
            bool fits = at >= 0 ? t->dims[k] == 1 || t->dims[k] < 0 || x->dims[at] < 0 ||
                                      t->dims[k] == x->dims[at]
                                : t->dims[k] == 1;
            if (!fits) {
                char left[160], right[160];
                return ebb_infer_error(c, "input %u is %s and does not broadcast to the input, %s",
                                       (unsigned)i, ebb_type_print(left, sizeof left, t, NULL),
                                       ebb_type_print(right, sizeof right, x, NULL));
            }
        }
    }
    return NULL;
}

/* Y, mean?, inv_std?. */
ebb_status ebb_infer_layer_norm(ebb_infer *c)
{
    EBB_TRY(check_rows(c, c->in[0], 1, 2));
    c->out[0] = *c->in[0];
    for (uint32_t k = 1; k < c->output_count && k < 3; k++)
        EBB_TRY(row_type(c, c->in[0], &c->out[k]));
    return NULL;
}

/* Y, and RmsNorm's inv_std?. */
ebb_status ebb_infer_rms_norm(ebb_infer *c)
{
    EBB_TRY(check_rows(c, c->in[0], 1, 1));
    c->out[0] = *c->in[0];
    if (c->output_count > 1)
        EBB_TRY(row_type(c, c->in[0], &c->out[1]));
    return NULL;
}

/* (dY, X, scale, ...) -> dX, dscale, dB. */
ebb_status ebb_infer_norm_rows_grad(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same_dims(c, 0, 1));
    c->out[0] = *c->in[1];
    for (uint32_t k = 1; k < c->output_count && k < 3; k++)
        c->out[k] = *c->in[2];
    return NULL;
}

/* Mean, variance, division, scale and shift: about eight operations for an element. */
double ebb_cost_norm(const ebb_infer *c)
{
    return 8.0 * ebb_type_count(ebb_infer_type(c, 0));
}
