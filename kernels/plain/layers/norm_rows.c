/* norm_rows.c: LayerNormalization and RMS norm, forward and backward: from the input or from the
 * output. */
#include <math.h>

#include "kernels/plain/halves.h"
#include "kernels/plain/layers/norm.h"
#include "kernels/plain/plain.h"
#include "kernels/call/misfit.h"

enum { BLOCKS = 16 }; // of rows in backward: fixed, so that sums do not depend on the threads

typedef struct rows { /* x: [m, n] */
    int64_t m, n;
    int64_t
        period; /* elements of the scale, which may be broadcast over the leading ones of n axes */
    double epsilon;
    bool centred;     /* LayerNorm; RMSNorm takes no mean away */
    bool from_output; /* backward */
} rows;

static void put_statistic(const ebb_call *c, uint32_t slot, int64_t i, double value)
{
    if (!ebb_call_wants(c, slot))
        return;
    if (c->out[slot].type.dtype == EBB_F64)
        ((double *)c->out[slot].data)[i] = value;
    else
        ((float *)c->out[slot].data)[i] = (float)value;
}

static double get_statistic(const ebb_call *c, uint32_t slot, int64_t i)
{
    if (c->in[slot].type.dtype == EBB_F64)
        return ((const double *)c->in[slot].data)[i];
    return (double)((const float *)c->in[slot].data)[i];
}

#define LOOPS "kernels/plain/layers/norm_rows_loops.inc"
#include "kernels/plain/both_floats.inc"

static ebb_status read_rows(rows *r, const ebb_call *c, const ebb_type *x, const ebb_type *scale)
{
    int axis = 0;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", -1), x->rank, &axis));
    *r = (rows){.m = 1, .n = 1};
    for (int d = 0; d < x->rank; d++)
        *(d < axis ? &r->m : &r->n) *= x->dims[d];
    r->epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-5f);
    r->period = ebb_elements(scale);
    r->from_output =
        c->op == EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT || c->op == EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT;
    r->centred = c->op == EBB_OP_LAYER_NORMALIZATION || c->op == EBB_OP_LAYER_NORM_GRAD ||
                 c->op == EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT;
    return NULL;
}

static ebb_status run_forward(const ebb_call *c)
{
    rows r;
    EBB_TRY(read_rows(&r, c, &c->in[0].type, &c->in[1].type));
    if (r.m * r.n == 0)
        return NULL;
    EBB_BY_FLOAT(c->in[0], forward, &r, c);
    return NULL;
}

static bool is_narrow(const ebb_call *c)
{
    bool narrow = false;
    for (uint32_t i = 0; i < c->input_count; i++)
        narrow = narrow || ebb_is_narrow(&c->in[i].type);
    for (uint32_t o = 0; o < c->output_count; o++)
        narrow = narrow || ebb_is_narrow(&c->out[o].type);
    return narrow;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    rows r;
    EBB_TRY(read_rows(&r, c, &c->in[1].type, &c->in[2].type));
    // beside the sums: 1 / scale and bias, and what 16 bits go through
    const size_t floats = is_narrow(c) ? 3 + 2 * BLOCKS : 0;
    const size_t row = (size_t)(BLOCKS + r.from_output) * 2 * sizeof(double);
    if (!ebb_size_mul(bytes, (size_t)r.n, row + floats * sizeof(float)))
        return ebb_call_error(c, "the rows are too long");
    return NULL;
}

static ebb_status run_backward(const ebb_call *c)
{
    rows r;
    EBB_TRY(read_rows(&r, c, &c->in[1].type, &c->in[2].type));
    EBB_BY_FLOAT(c->in[1], backward, &r, c);
    return NULL;
}

/* One dtype for x, scale and bias; statistics may be float32 beside float64. */
static const char *forward_declines(const ebb_call *c)
{
    uint8_t t = c->in[0].type.dtype;
    rows r;
    if (t != EBB_F32 && t != EBB_F64)
        return "the dtype is not float32 or float64";
    if (c->in[1].type.dtype != t || (ebb_call_has(c, 2) && c->in[2].type.dtype != t))
        return "scale or bias has another dtype than the input";
    for (uint32_t k = 1; k < c->output_count; k++)
        if (ebb_call_wants(c, k) && c->out[k].type.dtype != EBB_F32 &&
            c->out[k].type.dtype != EBB_F64)
            return "statistics are not float32 or float64";
    if (read_rows(&r, c, &c->in[0].type, &c->in[1].type) != NULL ||
        !ebb_scale_covers(&c->in[0].type, &c->in[1].type, r.n, r.period))
        return "the scale does not cover the normalised axes";
    if (ebb_call_has(c, 2) && ebb_elements(&c->in[2].type) != r.period)
        return "bias and scale differ in shape";
    return ebb_call_any(c);
}

/* All in float64, or each in float32 or 16 bits; statistics never in 16. */
static const char *backward_dtypes(const ebb_call *c, const rows *r)
{
    const bool wide = c->in[1].type.dtype == EBB_F64;
    const uint32_t statistics = r->from_output && r->centred ? 4 : 3;
    for (uint32_t i = 0; i < c->input_count; i++) {
        const ebb_dtype t = (ebb_dtype)c->in[i].type.dtype;
        if (t == EBB_NONE)
            continue;
        if (!ebb_dtype_is_float(t) || (i >= statistics && ebb_is_half(t)))
            return "statistics are not float32 or float64";
        if (i < statistics && (t == EBB_F64) != wide)
            return "dY, scale or bias has another dtype than the input";
    }
    for (uint32_t o = 0; o < c->output_count; o++)
        if (ebb_call_wants(c, o) && (c->out[o].type.dtype == EBB_F64) != wide)
            return "an output has another dtype than the input";
    return NULL;
}

static const char *backward_declines(const ebb_call *c)
{
    rows r;
    if (!ebb_dtype_is_float((ebb_dtype)c->in[1].type.dtype))
        return "the dtype is not a float";
    if (read_rows(&r, c, &c->in[1].type, &c->in[2].type) != NULL ||
        !ebb_scale_covers(&c->in[1].type, &c->in[2].type, r.n, r.period))
        return "the scale does not cover the normalised axes";
    EBB_ASK(backward_dtypes(c, &r));
    if (r.from_output && r.centred && ebb_elements(&c->in[3].type) != r.period)
        return "bias and scale differ in shape";
    return ebb_call_any(c);
}

// clang-format off
const ebb_kernel ebb_plain_norm_rows[] = {
    {.name = "plain.layer_normalization",         .op = EBB_OP_LAYER_NORMALIZATION,         .fits = forward_declines, .run = run_forward},
    {.name = "plain.layer_norm_grad",             .op = EBB_OP_LAYER_NORM_GRAD,             .fits = backward_declines, .workspace = workspace, .run = run_backward},
    {.name = "plain.rms_normalization",           .op = EBB_OP_RMS_NORMALIZATION,           .fits = forward_declines, .run = run_forward},
    {.name = "plain.rms_norm",                    .op = EBB_OP_RMS_NORM,                    .fits = forward_declines, .run = run_forward},
    {.name = "plain.rms_norm_grad",               .op = EBB_OP_RMS_NORM_GRAD,               .fits = backward_declines, .workspace = workspace, .run = run_backward},
    {.name = "plain.layer_norm_grad_from_output", .op = EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT, .fits = backward_declines, .workspace = workspace, .run = run_backward},
    {.name = "plain.rms_norm_grad_from_output",   .op = EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT,   .fits = backward_declines, .workspace = workspace, .run = run_backward},
};
// clang-format on
EBB_PLAIN_COUNT(norm_rows)
