/* norm.c: batch norm: by the batch's statistics, by the running ones, and backward. */
#include "kernels/plain/plain.h"

#include <math.h>

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

static ebb_status run_gradient(const ebb_call *c)
{
    batch b = read_batch(c, &c->in[1].type);
    if (c->in[1].type.dtype == EBB_F32)
        gradient_f32(&b, c);
    else
        gradient_f64(&b, c);
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
};
// clang-format on
EBB_PLAIN_COUNT(norm)
