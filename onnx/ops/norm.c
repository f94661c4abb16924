/* norm: batch, layer and root-mean-square normalization, and their gradients' types. */
#include "onnx/ops/common.h"
#include "onnx/ops/ops.h"
#include "onnx/ops/shape.h"

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
    EBB_TRY(ebb_infer_need(c, 5));
    EBB_TRY(check_channels(c, 1, 4, c->in[0]));
    c->out[0] = *c->in[0];
    for (uint32_t k = 1; k < c->output_count && k < 5; k++)
        c->out[k] = channel_vector(c, c->in[0], k % 2 == 1 ? 3 : 4);
    return NULL;
}

/* Y, running_mean, running_var, saved_mean, saved_inv_std. */
ebb_status ebb_infer_batch_norm_training(ebb_infer *c)
{
    return ebb_infer_batch_norm(c);
}

/* (dY, X, scale, mean, inv_std) -> dX, dscale, dB. */
ebb_status ebb_infer_batch_norm_grad(ebb_infer *c)
{
    EBB_TRY(ebb_infer_need(c, 5));
    EBB_TRY(ebb_infer_same_dims(c, 0, 1));
    EBB_TRY(check_channels(c, 2, 4, c->in[1]));
    c->out[0] = *c->in[1];
    for (uint32_t k = 1; k < c->output_count && k < 3; k++)
        c->out[k] = channel_vector(c, c->in[1], 2);
    return NULL;
}

/* ---- layer norm and RMS norm: over the axes from `axis` on ---- */

/* X's type with 1 on the normalized axes: one mean a row. */
static ebb_status row_type(const ebb_infer *c, const ebb_type *x, ebb_type *out)
{
    ebb_dtype dtype = (ebb_dtype)ebb_attr_int(&c->attrs, "stash_type", EBB_F32);
    if (c->op == EBB_OP_RMS_NORM)
        dtype = (ebb_dtype)x->dtype;
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

/* Scale and bias (where given) broadcast to X without widening it. */
static ebb_status check_rows(const ebb_infer *c, const ebb_type *x, uint32_t first, uint32_t last)
{
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
    EBB_TRY(ebb_infer_need(c, 2));
    EBB_TRY(check_rows(c, c->in[0], 1, 2));
    c->out[0] = *c->in[0];
    for (uint32_t k = 1; k < c->output_count && k < 3; k++)
        EBB_TRY(row_type(c, c->in[0], &c->out[k]));
    return NULL;
}

/* Y, and RmsNorm's inv_std?. */
ebb_status ebb_infer_rms_norm(ebb_infer *c)
{
    EBB_TRY(ebb_infer_need(c, 2));
    EBB_TRY(check_rows(c, c->in[0], 1, 1));
    c->out[0] = *c->in[0];
    if (c->output_count > 1)
        EBB_TRY(row_type(c, c->in[0], &c->out[1]));
    return NULL;
}

/* (dY, X, scale, ...) -> dX, dscale, dB. */
static ebb_status norm_grad(ebb_infer *c, uint32_t inputs)
{
    EBB_TRY(ebb_infer_need(c, inputs));
    EBB_TRY(ebb_infer_same_dims(c, 0, 1));
    c->out[0] = *c->in[1];
    for (uint32_t k = 1; k < c->output_count && k < 3; k++)
        c->out[k] = *c->in[2];
    return NULL;
}

ebb_status ebb_infer_layer_norm_grad(ebb_infer *c)
{
    return norm_grad(c, 5);
}

ebb_status ebb_infer_rms_norm_grad(ebb_infer *c)
{
    return norm_grad(c, 4);
}

/* Mean, variance, division, scale and shift: about eight operations for an element. */
double ebb_cost_norm(const ebb_infer *c)
{
    return 8.0 * ebb_type_count(ebb_infer_type(c, 0));
}
