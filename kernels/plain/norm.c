/* norm.c: batch norm: by the batch's statistics, by the running ones, and backward: from its input,
 * from its output, or from the output of the activation behind it. norm.h tells of the backward's
 * two passes. */
#include "kernels/plain/norm.h"

#include <math.h>

#include "kernels/plain/plain.h"
#include "kernels/plain/vmath.h"

typedef struct batch { /* x: [n, c, s] */
    int64_t n, c, s;
    double epsilon, momentum;
    bool unbiased;
} batch;

static batch read_batch(const ebb_call *call, const ebb_type *x)
{
    batch b = {.n = x->dims[0], .c = x->rank > 1 ? x->dims[1] : 1, .s = 1};
    for (int d = 2; d < x->rank; d++)
        b.s *= x->dims[d];
    b.epsilon = ebb_attr_float(&call->attrs, "epsilon", 1e-5);
    b.momentum = ebb_attr_float(&call->attrs, "momentum", 0.9);
    b.unbiased =
        call->op == EBB_OP_BATCH_NORM_TRAINING && ebb_attr_int(&call->attrs, "unbiased", 1) != 0;
    return b;
}

#define LOOPS "kernels/plain/norm_loops.inc"
#include "kernels/plain/both_floats.inc"

static ebb_status run_forward(const ebb_call *c)
{
    batch b = read_batch(c, &c->in[0].type);
    bool single = c->in[0].type.dtype == EBB_F32;
    bool train =
        c->op == EBB_OP_BATCH_NORM_TRAINING || ebb_attr_int(&c->attrs, "training_mode", 0) != 0;
    if (train && single)
        train_f32(&b, c);
    else if (train)
        train_f64(&b, c);
    else if (single)
        infer_f32(&b, c);
    else
        infer_f64(&b, c);
    return NULL;
}

/* ---- backward ---- */

void ebb_norm_read_kept(const ebb_call *call, ebb_norm_kept *kept, double *slope, double *elu,
                        double *least)
{
    *slope = ebb_attr_float(&call->attrs, "slope", 1.0);
    *elu = ebb_attr_float(&call->attrs, "elu", 0.0);
    *least = ebb_attr_float(&call->attrs, "least", 0x1p-24);
    *kept = *elu > 0 ? EBB_NORM_ELU : *slope == 1.0 ? EBB_NORM_PLAIN : EBB_NORM_LEAKY;
}

ebb_norm_channels ebb_norm_channels_of(const ebb_call *call)
{
    batch b = read_batch(call, &call->in[1].type);
    ebb_norm_channels c = {.call = call, .n = b.n, .c = b.c, .s = b.s, .slope = 1};
    if (call->op == EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT)
        ebb_norm_read_kept(call, &c.kept, &c.slope, &c.elu, &c.least);
    return c;
}

static bool is_single(const ebb_norm_channels *b)
{
    return b->call->in[1].type.dtype == EBB_F32;
}

void ebb_norm_channel_sums(const ebb_norm_channels *b, const void *dy, const void *x,
                           int64_t images, double *sums)
{
    EBB_PARALLEL_FOR(images * b->c * b->s)
    for (int64_t k = 0; k < b->c; k++)
        if (is_single(b))
            channel_sums_f32(b, k, dy, x, images, sums + 2 * k);
        else
            channel_sums_f64(b, k, dy, x, images, sums + 2 * k);
}

void ebb_norm_channel_ends(const ebb_norm_channels *b, const double *sums, void *dscale,
                           void *dbias)
{
    for (int64_t k = 0; k < b->c; k++)
        if (is_single(b))
            channel_ends_f32(b, k, sums + 2 * k, dscale, dbias);
        else
            channel_ends_f64(b, k, sums + 2 * k, dscale, dbias);
}

void ebb_norm_channel_grads(const ebb_norm_channels *b, const double *sums, const void *dy,
                            const void *x, int64_t images, void *dx)
{
    EBB_PARALLEL_FOR(images * b->c * b->s)
    for (int64_t k = 0; k < b->c; k++)
        if (is_single(b))
            channel_grads_f32(b, k, sums + 2 * k, dy, x, images, dx);
        else
            channel_grads_f64(b, k, sums + 2 * k, dy, x, images, dx);
}

static ebb_status run_gradient(const ebb_call *c)
{
    ebb_norm_channels b = ebb_norm_channels_of(c);
    if (is_single(&b))
        gradient_f32(&b);
    else
        gradient_f64(&b);
    return NULL;
}

void ebb_plain_batch_norm_rows(const ebb_call *tile, const ebb_call *whole, void *dx)
{
    batch b = read_batch(tile, &tile->in[1].type);
    double count = (double)(whole->in[1].type.dims[0] * b.s);
    if (tile->in[1].type.dtype == EBB_F32)
        gradient_rows_f32(&b, tile, whole, count, dx);
    else
        gradient_rows_f64(&b, tile, whole, count, dx);
}

// clang-format off
const ebb_kernel ebb_plain_norm[] = {
    {"plain.batch_norm",          EBB_OP_BATCH_NORMALIZATION, ebb_plain_floats, NULL, NULL, run_forward,  NULL},
    {"plain.batch_norm_training", EBB_OP_BATCH_NORM_TRAINING, ebb_plain_floats, NULL, NULL, run_forward,  NULL},
    {"plain.batch_norm_grad",     EBB_OP_BATCH_NORM_GRAD,     ebb_plain_floats, NULL, NULL, run_gradient, NULL},
    {"plain.batch_norm_grad_from_output", EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, ebb_plain_floats, NULL, NULL, run_gradient, NULL},
};
// clang-format on
EBB_PLAIN_COUNT(norm)
