/* norm.cu: batch norm: by the batch's statistics, by the running ones, and backward: from its
 * input, from its output, or from the output of the activation behind it.
 *
 *     sums of each channel (lanes.h) -> one thread a channel finishes them -> every element
 *
 * x is [N, C, S]. Where S is 1 (images with channels last) neighbouring threads have neighbouring
 * channels, else neighbouring elements of one.
 */
#include "kernels/cuda/norm.h"

typedef struct channel_args {
    ebb_lanes lanes; /* outputs: the channels; elements: [N, S] */
    ebb_lanes rest;  /* of the parts */
    ebb_pieces pieces;
    const void *x, *dy;
    void *out; /* y or dx */
    ebb_numbers scale;
    ebb_numbers centre; /* mean of the batch; bias where the output is kept */
    ebb_numbers spread; /* inv_std; in inference the variance */
    ebb_numbers bias, old_mean, old_var;
    ebb_numbers to[4];    /* running mean and var, saved mean and inv_std; dscale, dbias */
    ebb_numbers known[2]; /* dscale and dbias, where they are known already */
    double *parts, *sums; /* [splits, C, 2] and [C, 2] */
    double epsilon, momentum, correct, count;
    ebb_kept kept;
} channel_args;

/* Where channel k begins. */
#define CHANNEL(a, k) ((a).pieces.s * (k))

/* sums of channel k become its running and saved statistics, and mean and inv_std in `sums`. */
EBB_GPU_INLINE void finish_channel(const channel_args *a, int64_t k, double shift, double sum,
                                   double square)
{
    double offset = a->count > 0 ? sum / a->count : 0, mean = shift + offset;
    double var = a->count > 0 ? square / a->count - offset * offset : 0, m = a->momentum;
    var = var > 0 ? var : 0;
    double inv_std = 1.0 / sqrt(var + a->epsilon);
    if (a->to[0].data != NULL)
        ebb_number_put(&a->to[0], k, ebb_number(&a->old_mean, k) * m + mean * (1 - m));
    if (a->to[1].data != NULL)
        ebb_number_put(&a->to[1], k, ebb_number(&a->old_var, k) * m + var * a->correct * (1 - m));
    if (a->to[2].data != NULL)
        ebb_number_put(&a->to[2], k, mean);
    if (a->to[3].data != NULL)
        ebb_number_put(&a->to[3], k, inv_std);
    a->sums[2 * k] = mean;
    a->sums[2 * k + 1] = inv_std;
}

#define KERNELS "kernels/cuda/norm_kernels.inc"
#include "kernels/cuda/all_floats.inc"

/* The parts of two sums a channel, added up. */
EBB_GLOBAL(finish_gradient, channel_args)
{
    EBB_SHARED(double, shared);
    EBB_LANES_LOOP(round, &a.rest)
    {
        ebb_lane p = ebb_lane_of(&a.rest, round);
        double sum = 0, product = 0;
        for (int64_t i = p.first; i < p.end; i += p.step) {
            sum += a.parts[2 * (i * a.rest.outputs + p.out)];
            product += a.parts[2 * (i * a.rest.outputs + p.out) + 1];
        }
        ebb_lanes_sum(&a.rest, shared, &sum, &product);
        if (!p.leads)
            continue;
        double hat = ebb_number(&a.spread, p.out);
        if (a.kept.from_output)
            hat = ebb_undo(ebb_number(&a.scale, p.out), ebb_number(&a.centre, p.out), a.kept.least);
        a.sums[2 * p.out] = product * hat;
        a.sums[2 * p.out + 1] = sum;
        if (a.to[0].data != NULL)
            ebb_number_put(&a.to[0], p.out, product * hat);
        if (a.to[1].data != NULL)
            ebb_number_put(&a.to[1], p.out, sum);
    }
}

static const ebb_gpu_kernel moments[] = EBB_CUDA_FLOATS(moments);
static const ebb_gpu_kernel finishes[] = EBB_CUDA_FLOATS(finish_moments);
static const ebb_gpu_kernel normalise[] = EBB_CUDA_FLOATS(normalise);
static const ebb_gpu_kernel infers[] = EBB_CUDA_FLOATS(infer);
static const ebb_gpu_kernel gradient_sums[] = EBB_CUDA_FLOATS(gradient_sums);
static const ebb_gpu_kernel gradients[] = EBB_CUDA_FLOATS(gradients);

/* What forward and backward have in common, x being input `at`. */
static channel_args args_of(const ebb_call *c, uint32_t at)
{
    channel_args a;
    memset(&a, 0, sizeof a);
    const ebb_type *x = &c->in[at].type;
    int64_t channels = x->rank > 1 ? x->dims[1] : 1, s = 1;
    for (int d = 2; d < x->rank; d++)
        s *= x->dims[d];
    a.lanes = ebb_lanes_of(channels, x->dims[0] * s, s == 1);
    a.rest = ebb_lanes_rest(&a.lanes);
    a.pieces = ebb_pieces_of(s, channels * s, a.lanes.n);
    a.count = (double)a.lanes.n;
    a.x = c->in[at].data;
    a.out = ebb_call_wants(c, 0) ? c->out[0].data : NULL;
    a.parts = (double *)c->workspace;
    a.sums = a.parts != NULL ? a.parts + 2 * a.lanes.splits * channels : NULL;
    a.epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-5f);
    a.momentum = ebb_attr_float(&c->attrs, "momentum", 0.9);
    return a;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    bool backward = c->op == EBB_OP_BATCH_NORM_GRAD || c->op == EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT;
    *bytes = 0;
    if (!backward && !ebb_cuda_batch_norm_trains(c))
        return NULL;
    channel_args a = args_of(c, backward ? 1 : 0);
    size_t sums = 0;
    if (!ebb_size_mul(&sums, (size_t)a.lanes.outputs, 2 * sizeof(double)) ||
        !ebb_size_mul(bytes, sums, (size_t)a.lanes.splits + 1))
        return ebb_call_error(c, "it has too many channels");
    return NULL;
}

/* What the running variance is of: ONNX divides by n, PyTorch by n - 1. */
static double correct_of(const ebb_call *c, double count)
{
    bool unbiased =
        c->op != EBB_OP_BATCH_NORMALIZATION && ebb_attr_int(&c->attrs, "unbiased", 1) != 0;
    return unbiased && count > 1 ? count / (count - 1) : 1;
}

/* (X, scale, B, mean, var) -> Y, running_mean?, running_var?, saved_mean?, saved_inv_std? */
static ebb_status run_forward(const ebb_call *c)
{
    channel_args a = args_of(c, 0);
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    const ebb_gpu_grid grid = ebb_lanes_grid(&a.lanes);
    a.scale = ebb_numbers_in(c, 1);
    a.bias = ebb_numbers_in(c, 2);
    if (!ebb_cuda_batch_norm_trains(c)) {
        a.centre = ebb_numbers_in(c, 3);
        a.spread = ebb_numbers_in(c, 4);
        return EBB_LAUNCH(c, infers[row], grid, EBB_CUDA_BLOCK, 0, a);
    }
    a.correct = correct_of(c, a.count);
    a.old_mean = ebb_numbers_in(c, 3);
    a.old_var = ebb_numbers_in(c, 4);
    for (uint32_t k = 0; k < 4; k++)
        a.to[k] = ebb_numbers_out(c, 1 + k);
    EBB_TRY(EBB_LAUNCH(c, moments[row], grid, EBB_CUDA_BLOCK, EBB_LANES_SHARED, a));
    EBB_TRY(
        EBB_LAUNCH(c, finishes[row], ebb_lanes_grid(&a.rest), EBB_CUDA_BLOCK, EBB_LANES_SHARED, a));
    return a.out != NULL ? EBB_LAUNCH(c, normalise[row], grid, EBB_CUDA_BLOCK, 0, a) : NULL;
}

/* ---- after a library ---- */

typedef struct finish_args {
    const float *mean, *inv_std;
    ebb_numbers old_mean, old_var;
    ebb_numbers to[4]; /* running mean and var, saved mean and inv_std */
    int64_t channels;
    double epsilon, momentum, correct;
} finish_args;

/* The variance from the deviation: inv_std has some 2^-23 of relative error, so variance + epsilon
 * has twice that, which is what normalising by it will see; where the variance is far below epsilon
 * its own digits are gone, and it is 0 at least. */
EBB_GLOBAL(finish_statistics, finish_args)
{
    EBB_GRID_LOOP(k, a.channels)
    {
        double mean = (double)a.mean[k], inv_std = (double)a.inv_std[k], m = a.momentum;
        double var = 1.0 / (inv_std * inv_std) - a.epsilon;
        var = var < 0 ? 0 : var; // NaN stays
        if (a.to[0].data != NULL)
            ebb_number_put(&a.to[0], k, ebb_number(&a.old_mean, k) * m + mean * (1 - m));
        if (a.to[1].data != NULL)
            ebb_number_put(&a.to[1], k, ebb_number(&a.old_var, k) * m + var * a.correct * (1 - m));
        if (a.to[2].data != NULL)
            ebb_number_put(&a.to[2], k, mean);
        if (a.to[3].data != NULL)
            ebb_number_put(&a.to[3], k, inv_std);
    }
}

ebb_status ebb_cuda_batch_norm_finish(const ebb_call *c, const float *mean, const float *inv_std)
{
    const channel_args of = args_of(c, 0);
    finish_args a;
    memset(&a, 0, sizeof a);
    a.mean = mean;
    a.inv_std = inv_std;
    a.old_mean = ebb_numbers_in(c, 3);
    a.old_var = ebb_numbers_in(c, 4);
    bool wanted = false;
    for (uint32_t k = 0; k < 4; k++) {
        a.to[k] = ebb_numbers_out(c, 1 + k);
        wanted = wanted || a.to[k].data != NULL;
    }
    a.channels = of.lanes.outputs;
    a.epsilon = (double)(float)of.epsilon; // as the library was told it
    a.momentum = of.momentum;
    a.correct = correct_of(c, of.count);
    return wanted
               ? EBB_LAUNCH(c, finish_statistics, ebb_cuda_grid(a.channels), EBB_CUDA_BLOCK, 0, a)
               : NULL;
}

static channel_args gradient_args(const ebb_call *c)
{
    channel_args a = args_of(c, 1);
    a.dy = c->in[0].data;
    a.scale = ebb_numbers_in(c, 2);
    a.centre = ebb_numbers_in(c, 3);
    a.spread = ebb_numbers_in(c, 4);
    a.kept = ebb_kept_of(c, c->op == EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT);
    return a;
}

/* (dY, X, scale, mean, inv_std) -> dX, dscale, dB; or (dZ, Z, scale, B, inv_std). */
static ebb_status run_gradient(const ebb_call *c)
{
    channel_args a = gradient_args(c);
    const int row = ebb_cuda_float_row(c->in[1].type.dtype);
    const ebb_gpu_grid grid = ebb_lanes_grid(&a.lanes);
    a.to[0] = ebb_numbers_out(c, 1);
    a.to[1] = ebb_numbers_out(c, 2);
    EBB_TRY(EBB_LAUNCH(c, gradient_sums[row], grid, EBB_CUDA_BLOCK, EBB_LANES_SHARED, a));
    EBB_TRY(EBB_LAUNCH(c, finish_gradient, ebb_lanes_grid(&a.rest), EBB_CUDA_BLOCK,
                       EBB_LANES_SHARED, a));
    return a.out != NULL ? EBB_LAUNCH(c, gradients[row], grid, EBB_CUDA_BLOCK, 0, a) : NULL;
}

/* The second pass alone, over the images of a tile. */
ebb_status ebb_cuda_batch_norm_rows(const ebb_call *tile, const ebb_call *whole, void *dx)
{
    channel_args a = gradient_args(tile);
    const int64_t images = tile->in[1].type.dims[0];
    a.known[0] = ebb_numbers_out(whole, 1);
    a.known[1] = ebb_numbers_out(whole, 2);
    if (images > 0)
        a.count *= (double)whole->in[1].type.dims[0] / (double)images;
    a.out = dx;
    return EBB_LAUNCH(tile, gradients[ebb_cuda_float_row(tile->in[1].type.dtype)],
                      ebb_lanes_grid(&a.lanes), EBB_CUDA_BLOCK, 0, a);
}

/* ---- for operands read in tiles (kernels/nested/stream.c) ---- */

typedef struct tile_args {
    void *to;
    const void *from;
    int64_t n;
    uint32_t wide;
} tile_args;

EBB_GLOBAL(add_tile, tile_args)
{
    EBB_GRID_LOOP(i, a.n)
    {
        if (a.wide)
            ((double *)a.to)[i] += ((const double *)a.from)[i];
        else
            ((float *)a.to)[i] += ((const float *)a.from)[i];
    }
}

ebb_status ebb_cuda_add_tile(const ebb_call *call, ebb_dtype dtype, int64_t n, void *to,
                             const void *from)
{
    tile_args a = {to, from, n, dtype == EBB_F64 ? 1u : 0u};
    return EBB_LAUNCH(call, add_tile, ebb_cuda_grid(n), EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_norm[] = {
    {.name = "cuda.batch_norm",                  .op = EBB_OP_BATCH_NORMALIZATION,         .dtypes = ebb_cuda_norm_dtypes_forward, .workspace = workspace, .run = run_forward},
    {.name = "cuda.batch_norm_training",         .op = EBB_OP_BATCH_NORM_TRAINING,         .dtypes = ebb_cuda_norm_dtypes_forward, .workspace = workspace, .run = run_forward},
    {.name = "cuda.batch_norm_grad",             .op = EBB_OP_BATCH_NORM_GRAD,             .dtypes = ebb_cuda_norm_dtypes_backward, .workspace = workspace, .run = run_gradient},
    {.name = "cuda.batch_norm_grad_from_output", .op = EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, .dtypes = ebb_cuda_norm_dtypes_backward, .workspace = workspace, .run = run_gradient},
};
// clang-format on
EBB_CUDA_COUNT(norm)
