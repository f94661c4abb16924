/* norm.h: what the families of norms share: which dtypes go together, what is kept for backward. */
#pragma once

#include "kernels/cuda/lanes.h"

enum {
    EBB_KEPT_PLAIN, /* the value itself: the norm's input or output */
    EBB_KEPT_LEAKY, /* z = v or slope v: dv = dz or slope dz */
    EBB_KEPT_ELU    /* z = v or a (e^v - 1): dv = dz or dz (z + a) */
};

typedef struct ebb_kept {
    double slope, elu;
    double least; /* |scale| / |bias| that a normalised value can be traced back through */
    uint32_t kind;
    uint32_t from_output; /* 0: from the input, by its mean */
} ebb_kept;

static inline ebb_kept ebb_kept_of(const ebb_call *c, bool from_output)
{
    ebb_kept k = {1, 0, 0, EBB_KEPT_PLAIN, from_output ? 1u : 0u};
    if (!from_output)
        return k;
    k.slope = ebb_attr_float(&c->attrs, "slope", 1.0);
    k.elu = ebb_attr_float(&c->attrs, "elu", 0.0);
    k.least = ebb_attr_float(&c->attrs, "least", 5.9604644775390625e-8); // 2^-24
    k.kind = k.elu > 0 ? EBB_KEPT_ELU : k.slope == 1.0 ? EBB_KEPT_PLAIN : EBB_KEPT_LEAKY;
    return k;
}

/* 1 / scale, for tracing an output back: the scale away from zero, its sign kept. Below least
 * |bias| rounding has left nothing of the normalised value in the output. */
EBB_GPU_INLINE double ebb_undo(double scale, double bias, double least)
{
    double size = fabs(scale), floor = fabs(bias) * least;
    floor = floor > (double)1e-30f ? floor : (double)1e-30f;
    size = size > floor ? size : floor;
    return scale < 0 ? -1.0 / size : 1.0 / size;
}

/* Images share a dtype of floats (inputs first .. last, output 0); the other operands are floats of
 * any dtype. */
static inline const char *ebb_cuda_norm_dtypes(const ebb_call *c, uint32_t first, uint32_t last)
{
    EBB_ASK(ebb_call_any(c));
    for (uint32_t i = 0; i < c->input_count; i++)
        if (ebb_call_has(c, i) && !ebb_dtype_is_float((ebb_dtype)c->in[i].type.dtype))
            return "computes in float16, bfloat16, float32 and float64 only";
    for (uint32_t i = first; i <= last; i++)
        if (!ebb_call_has(c, i) || c->in[i].type.dtype != c->in[last].type.dtype)
            return "dY and the input differ in dtype";
    if (ebb_call_wants(c, 0) && c->out[0].type.dtype != c->in[last].type.dtype)
        return "the output differs in dtype from the input";
    for (uint32_t o = 1; o < c->output_count; o++)
        if (ebb_call_wants(c, o) && !ebb_dtype_is_float((ebb_dtype)c->out[o].type.dtype))
            return "computes in float16, bfloat16, float32 and float64 only";
    return NULL;
}

static inline const char *ebb_cuda_norm_dtypes_forward(const ebb_call *c)
{
    return ebb_cuda_norm_dtypes(c, 0, 0);
}

static inline const char *ebb_cuda_norm_dtypes_backward(const ebb_call *c)
{
    return ebb_cuda_norm_dtypes(c, 0, 1);
}

/* A batch norm by the statistics of its batch, not by running ones. */
static inline bool ebb_cuda_batch_norm_trains(const ebb_call *c)
{
    return c->op != EBB_OP_BATCH_NORMALIZATION || ebb_attr_int(&c->attrs, "training_mode", 0) != 0;
}

/* ebb_tile_parts of the back end. */
EBB_C_BEGIN
ebb_status ebb_cuda_add_tile(const ebb_call *call, ebb_dtype dtype, int64_t n, void *to,
                             const void *from);
ebb_status ebb_cuda_batch_norm_rows(const ebb_call *tile, const ebb_call *whole, void *dx);

/* Where a library has normalised in training: the running and the saved statistics that the call
 * wants, of the batch's mean and 1 / sqrt(variance + epsilon), float32 a channel. */
ebb_status ebb_cuda_batch_norm_finish(const ebb_call *c, const float *mean, const float *inv_std);
EBB_C_END
