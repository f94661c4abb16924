/* norm_rows.cu: LayerNormalization and RMS norm, forward and backward: from the input or from the
 * output.
 *
 *     forward    a warp, or a block, for each row of [m, n]
 *     backward   block b has rows b, b + B, ...: dx of each, and in shared memory its part of
 *                dscale and dbias; thread t always adds to columns t, t + T, ..., so no two meet.
 *                A second launch adds up the parts.
 *
 * Rows too long for that have dscale and dbias by a launch of their own (lanes.h, across).
 */
#include "kernels/cuda/norm.h"
#include "kernels/call/misfit.h"

enum { FUSED = 4096, PARTS = 256 }; // columns at most; blocks of the fused backward

typedef struct rows_args {
    ebb_lanes columns, rest; /* [n] sums of m rows; [period] sums of their parts */
    int64_t m, n;
    int64_t period; /* elements of the scale, repeated over a row */
    int64_t parts_count;
    const void *x, *dy;
    void *out;
    ebb_numbers scale, bias, mean, inv_std;
    ebb_numbers to[2]; /* mean and inv_std; dscale and dbias */
    double *parts;     /* [parts_count, n, 2] */
    void *undo;        /* 1 / scale, [period]; NULL from the input */
    double epsilon, least;
    uint32_t lanes; /* of a row */
    uint32_t centred;
    uint32_t scale_alike, bias_alike; /* of the dtype of x */
} rows_args;

#define KERNELS "kernels/cuda/norm_rows_kernels.inc"
#include "kernels/cuda/all_floats.inc"

/* dscale and dbias from their parts: [parts_count, repeats, period, 2]. */
EBB_GLOBAL(finish_scales, rows_args)
{
    EBB_SHARED(double, shared);
    EBB_LANES_LOOP(round, &a.rest)
    {
        ebb_lane p = ebb_lane_of(&a.rest, round);
        double dscale = 0, dbias = 0;
        for (int64_t i = p.first; i < p.end; i += p.step) {
            dscale += a.parts[2 * (i * a.period + p.out)];
            dbias += a.parts[2 * (i * a.period + p.out) + 1];
        }
        ebb_lanes_sum(&a.rest, shared, &dscale, &dbias);
        if (p.leads && a.to[0].data != NULL)
            ebb_number_put(&a.to[0], p.out, dscale);
        if (p.leads && a.to[1].data != NULL)
            ebb_number_put(&a.to[1], p.out, dbias);
    }
}

static const ebb_gpu_kernel forwards[] = EBB_CUDA_FLOATS(forward);
static const ebb_gpu_kernel undoes[] = EBB_CUDA_FLOATS(undo_scales);
static const ebb_gpu_kernel fused[] = EBB_CUDA_FLOATS(backward_fused);
static const ebb_gpu_kernel backwards[] = EBB_CUDA_FLOATS(backward_rows);
static const ebb_gpu_kernel columns[] = EBB_CUDA_FLOATS(backward_columns);

/* ---- sizes ---- */

static bool is_from_output(const ebb_call *c)
{
    return c->op == EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT || c->op == EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT;
}

static ebb_status read_rows(rows_args *a, const ebb_call *c, const ebb_type *x,
                            const ebb_type *scale)
{
    int axis = 0;
    memset(a, 0, sizeof *a);
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", -1), x->rank, &axis));
    a->m = a->n = 1;
    for (int d = 0; d < x->rank; d++)
        *(d < axis ? &a->m : &a->n) *= x->dims[d];
    a->period = ebb_elements(scale);
    a->epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-5f);
    a->least = ebb_attr_float(&c->attrs, "least", 5.9604644775390625e-8); // 2^-24
    a->centred = c->op == EBB_OP_LAYER_NORMALIZATION || c->op == EBB_OP_LAYER_NORM_GRAD ||
                 c->op == EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT;
    a->lanes = ebb_team_lanes(a->n);
    return NULL;
}

/* How the backward goes about dscale and dbias. */
static void plan_columns(rows_args *a)
{
    a->columns = ebb_lanes_of(a->n, a->m, true);
    a->parts_count = a->columns.splits;
    if (a->n <= FUSED)
        a->parts_count = a->m < 4 * (int64_t)PARTS ? (a->m + 3) / 4 : (int64_t)PARTS;
    const int64_t repeats = a->period > 0 ? a->n / a->period : 0;
    a->rest = ebb_lanes_whole(a->period, a->parts_count * repeats, true);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    rows_args a;
    size_t undo = 0;
    EBB_TRY(read_rows(&a, c, &c->in[1].type, &c->in[2].type));
    plan_columns(&a);
    bool fits = ebb_size_mul(bytes, (size_t)a.n, 2 * sizeof(double)) &&
                ebb_size_mul(bytes, *bytes, (size_t)a.parts_count) &&
                ebb_size_mul(&undo, (size_t)a.period, is_from_output(c) ? sizeof(double) : 0) &&
                ebb_size_add(bytes, *bytes, undo);
    return fits ? NULL : ebb_call_error(c, "the rows are too long");
}

static const char *misfit(const ebb_call *c, uint32_t x, uint32_t bias)
{
    rows_args a;
    if (read_rows(&a, c, &c->in[x].type, &c->in[x + 1].type) != NULL ||
        !ebb_scale_covers(&c->in[x].type, &c->in[x + 1].type, a.n, a.period))
        return "the scale does not cover the normalised axes";
    if (ebb_call_has(c, bias) && ebb_elements(&c->in[bias].type) != a.period)
        return "bias and scale differ in shape";
    return NULL;
}

static const char *forward_misfit(const ebb_call *c)
{
    return misfit(c, 0, 2);
}

static const char *backward_misfit(const ebb_call *c)
{
    return misfit(c, 1, c->op == EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT ? 3 : 99);
}

/* ---- runs ---- */

/* (X, scale, bias?) -> Y, mean?, inv_std?; RMS norm has no mean. */
static ebb_status run_forward(const ebb_call *c)
{
    rows_args a;
    EBB_TRY(read_rows(&a, c, &c->in[0].type, &c->in[1].type));
    if (a.m * a.n == 0)
        return NULL;
    a.x = c->in[0].data;
    a.out = c->out[0].data;
    a.scale = ebb_numbers_in(c, 1);
    a.bias = ebb_numbers_in(c, 2);
    a.scale_alike = a.scale.dtype == c->in[0].type.dtype;
    a.bias_alike = a.bias.dtype == c->in[0].type.dtype;
    if (a.centred)
        a.to[0] = ebb_numbers_out(c, 1);
    a.to[1] = ebb_numbers_out(c, a.centred ? 2 : 1);
    return EBB_LAUNCH(c, forwards[ebb_cuda_float_row(c->in[0].type.dtype)],
                      ebb_team_grid(a.m, a.lanes), ebb_team_threads(a.lanes), EBB_TEAM_SHARED, a);
}

static ebb_status launch_fused(const ebb_call *c, const rows_args *args, int row)
{
    rows_args a = *args;
    const uint32_t threads = a.n <= 256 ? 64 : a.n <= 1024 ? 256 : EBB_TEAM_THREADS;
    const uint32_t shared = EBB_TEAM_SHARED + (uint32_t)a.n * 2 * (uint32_t)sizeof(double);
    a.lanes = threads;
    return EBB_LAUNCH(c, fused[row], ebb_cuda_blocks(a.parts_count), threads, shared, a);
}

/* (dY, X, scale, mean?, inv_std) -> dX, dscale, dbias; or (dY, Y, scale, bias?, inv_std). */
static ebb_status run_backward(const ebb_call *c)
{
    rows_args a;
    EBB_TRY(read_rows(&a, c, &c->in[1].type, &c->in[2].type));
    plan_columns(&a);
    const int row = ebb_cuda_float_row(c->in[1].type.dtype);
    a.dy = c->in[0].data;
    a.x = c->in[1].data;
    a.out = ebb_call_wants(c, 0) ? c->out[0].data : NULL;
    a.scale = ebb_numbers_in(c, 2);
    a.scale_alike = a.scale.dtype == c->in[1].type.dtype;
    if (a.centred)
        *(is_from_output(c) ? &a.bias : &a.mean) = ebb_numbers_in(c, 3);
    a.bias_alike = a.bias.dtype == c->in[1].type.dtype;
    a.inv_std = ebb_numbers_in(c, a.centred ? 4 : 3);
    a.to[0] = ebb_numbers_out(c, 1);
    a.to[1] = ebb_numbers_out(c, 2);
    a.parts = (double *)c->workspace;
    const bool sums = a.to[0].data != NULL || a.to[1].data != NULL;
    if (is_from_output(c)) {
        a.undo = a.parts + 2 * a.parts_count * a.n;
        EBB_TRY(EBB_LAUNCH(c, undoes[row], ebb_cuda_grid(a.period), EBB_CUDA_BLOCK, 0, a));
    }
    if (sums && a.n <= FUSED) {
        EBB_TRY(launch_fused(c, &a, row));
    } else {
        if (sums) // before dx, which may be dy or x
            EBB_TRY(EBB_LAUNCH(c, columns[row], ebb_lanes_grid(&a.columns), EBB_CUDA_BLOCK,
                               EBB_LANES_SHARED, a));
        if (a.out != NULL)
            EBB_TRY(EBB_LAUNCH(c, backwards[row], ebb_team_grid(a.m, a.lanes),
                               ebb_team_threads(a.lanes), EBB_TEAM_SHARED, a));
    }
    if (!sums)
        return NULL;
    return EBB_LAUNCH(c, finish_scales, ebb_lanes_grid(&a.rest), EBB_CUDA_BLOCK, EBB_LANES_SHARED,
                      a);
}

// clang-format off
const ebb_kernel ebb_cuda_norm_rows[] = {
    {.name = "cuda.layer_normalization",         .op = EBB_OP_LAYER_NORMALIZATION,         .dtypes = ebb_cuda_norm_dtypes_forward, .fits = forward_misfit, .run = run_forward},
    {.name = "cuda.layer_norm_grad",             .op = EBB_OP_LAYER_NORM_GRAD,             .dtypes = ebb_cuda_norm_dtypes_backward, .fits = backward_misfit, .workspace = workspace, .run = run_backward},
    {.name = "cuda.rms_normalization",           .op = EBB_OP_RMS_NORMALIZATION,           .dtypes = ebb_cuda_norm_dtypes_forward, .fits = forward_misfit, .run = run_forward},
    {.name = "cuda.rms_norm",                    .op = EBB_OP_RMS_NORM,                    .dtypes = ebb_cuda_norm_dtypes_forward, .fits = forward_misfit, .run = run_forward},
    {.name = "cuda.rms_norm_grad",               .op = EBB_OP_RMS_NORM_GRAD,               .dtypes = ebb_cuda_norm_dtypes_backward, .fits = backward_misfit, .workspace = workspace, .run = run_backward},
    {.name = "cuda.layer_norm_grad_from_output", .op = EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT, .dtypes = ebb_cuda_norm_dtypes_backward, .fits = backward_misfit, .workspace = workspace, .run = run_backward},
    {.name = "cuda.rms_norm_grad_from_output",   .op = EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT,   .dtypes = ebb_cuda_norm_dtypes_backward, .fits = backward_misfit, .workspace = workspace, .run = run_backward},
};
// clang-format on
EBB_CUDA_COUNT(norm_rows)
