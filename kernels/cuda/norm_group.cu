/* norm_group.cu: group norm and instance norm, forward and backward: from the input, from the
 * output, or from the output of the activation behind it.
 *
 *     x  [N, G, D, S]   a run of S elements has one scale and bias, [G, D]
 *        |---------|    a group of D runs has one mean and inv_std, [N, G]
 *
 * Forward: parts of the sums of each group, its statistics, every run. Backward: parts of two sums
 * of each run; of each group, from its runs; of each scale, from its images; every run.
 */
#include "kernels/cuda/norm.h"

typedef struct group_args {
    ebb_lanes groups, groups_rest; /* [N G] sums of D S elements: forward */
    ebb_lanes runs, runs_rest;     /* [N G D] sums of S elements */
    ebb_lanes inner;               /* [N G] sums of D runs: backward */
    ebb_lanes images;              /* [G D] sums of N images */
    int64_t n, g, d, s;
    const void *x, *dy;
    void *out; /* y or dx */
    ebb_numbers scale, bias, mean, inv_std;
    ebb_numbers to[2]; /* mean and inv_std; dscale and dbias */
    double *parts;     /* [splits, groups or runs, 2] */
    double *sums;      /* [runs, 2]: the same where there is one split */
    double *both;      /* [groups, 2]: mean and inv_std; mean of g and of g xhat */
    double epsilon;
    ebb_kept kept;
} group_args;

/* How far v - centre is from the normalised value, in the run of scale k in group `row`. */
EBB_GPU_INLINE double hat_of(const group_args *a, int64_t row, int64_t k)
{
    if (a->kept.from_output)
        return ebb_undo(ebb_number(&a->scale, k), ebb_number(&a->bias, k), a->kept.least);
    return ebb_number(&a->inv_std, row);
}

#define KERNELS "kernels/cuda/norm_group_kernels.inc"
#include "kernels/cuda/all_floats.inc"

/* Parts of the sums of runs, added up. */
EBB_GLOBAL(add_runs, group_args)
{
    EBB_SHARED(double, shared);
    EBB_LANES_LOOP(round, &a.runs_rest)
    {
        ebb_lane p = ebb_lane_of(&a.runs_rest, round);
        double sum = 0, product = 0;
        for (int64_t i = p.first; i < p.end; i += p.step) {
            sum += a.parts[2 * (i * a.runs_rest.outputs + p.out)];
            product += a.parts[2 * (i * a.runs_rest.outputs + p.out) + 1];
        }
        ebb_lanes_sum(&a.runs_rest, shared, &sum, &product);
        if (p.leads) {
            a.sums[2 * p.out] = sum;
            a.sums[2 * p.out + 1] = product;
        }
    }
}

/* Of each group, the means of g = dy scale and of g xhat, from the sums of its runs. */
EBB_GLOBAL(finish_groups, group_args)
{
    EBB_SHARED(double, shared);
    EBB_LANES_LOOP(round, &a.inner)
    {
        ebb_lane p = ebb_lane_of(&a.inner, round);
        double even = 0, tilt = 0;
        for (int64_t i = p.first; i < p.end; i += p.step) {
            const int64_t k = p.out % a.g * a.d + i, run = p.out * a.d + i;
            const double scale = ebb_number(&a.scale, k);
            even += scale * a.sums[2 * run];
            tilt += scale * a.sums[2 * run + 1] * hat_of(&a, p.out, k);
        }
        ebb_lanes_sum(&a.inner, shared, &even, &tilt);
        if (p.leads) {
            a.both[2 * p.out] = even / (double)(a.d * a.s);
            a.both[2 * p.out + 1] = tilt / (double)(a.d * a.s);
        }
    }
}

/* dscale = sum of dy xhat and dbias = sum of dy over the images. */
EBB_GLOBAL(finish_scales, group_args)
{
    EBB_SHARED(double, shared);
    EBB_LANES_LOOP(round, &a.images)
    {
        ebb_lane p = ebb_lane_of(&a.images, round);
        double dbias = 0, dscale = 0;
        for (int64_t i = p.first; i < p.end; i += p.step) {
            const int64_t run = i * a.images.outputs + p.out;
            dbias += a.sums[2 * run];
            dscale += a.sums[2 * run + 1] * hat_of(&a, i * a.g + p.out / a.d, p.out);
        }
        ebb_lanes_sum(&a.images, shared, &dbias, &dscale);
        if (p.leads && a.to[0].data != NULL)
            ebb_number_put(&a.to[0], p.out, dscale);
        if (p.leads && a.to[1].data != NULL)
            ebb_number_put(&a.to[1], p.out, dbias);
    }
}

static const ebb_gpu_kernel moments[] = EBB_CUDA_FLOATS(moments);
static const ebb_gpu_kernel finishes[] = EBB_CUDA_FLOATS(finish_moments);
static const ebb_gpu_kernel normalise[] = EBB_CUDA_FLOATS(normalise);
static const ebb_gpu_kernel run_sums[] = EBB_CUDA_FLOATS(run_sums);
static const ebb_gpu_kernel gradients[] = EBB_CUDA_FLOATS(gradients);

/* ---- sizes ---- */

/* Of a call whose image is x; false where they do not fit together. */
static bool read_groups(group_args *a, const ebb_type *x, int64_t count, const ebb_type *scale)
{
    int64_t scales = ebb_elements(scale);
    memset(a, 0, sizeof *a);
    if (x->rank < 2 || count <= 0 || x->dims[1] % count != 0 ||
        (scales != count && scales != x->dims[1]))
        return false;
    a->n = x->dims[0];
    a->g = count;
    a->d = scales / count;
    a->s = a->n * scales > 0 ? ebb_elements(x) / (a->n * scales) : 0;
    a->groups = ebb_lanes_of(a->n * a->g, a->d * a->s, false);
    a->groups_rest = ebb_lanes_rest(&a->groups);
    a->runs = ebb_lanes_of(a->n * a->g * a->d, a->s, false);
    a->runs_rest = ebb_lanes_rest(&a->runs);
    a->inner = ebb_lanes_whole(a->n * a->g, a->d, false);
    a->images = ebb_lanes_whole(a->g * a->d, a->n, true);
    return true;
}

static bool read_forward(group_args *a, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t count = ebb_attr_int(&c->attrs, "num_groups", 0);
    if (c->op == EBB_OP_INSTANCE_NORMALIZATION)
        count = x->rank > 1 ? x->dims[1] : 0;
    return read_groups(a, x, count, &c->in[1].type);
}

static bool read_backward(group_args *a, const ebb_call *c)
{
    const ebb_type *x = &c->in[1].type, *inv_std = &c->in[4].type;
    return inv_std->rank == 2 && x->rank >= 2 && inv_std->dims[0] == x->dims[0] &&
           read_groups(a, x, inv_std->dims[1], &c->in[2].type);
}

static const char *forward_misfit(const ebb_call *c)
{
    group_args a;
    return read_forward(&a, c) ? NULL : "its channels, groups and scales do not fit together";
}

static const char *backward_misfit(const ebb_call *c)
{
    group_args a;
    return read_backward(&a, c) ? NULL : "its channels, groups and scales do not fit together";
}

/* Parts, then sums, then both, as the args name them. */
static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    group_args a;
    const bool backward =
        c->op == EBB_OP_GROUP_NORM_GRAD || c->op == EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT;
    *bytes = 0;
    if (backward ? !read_backward(&a, c) : !read_forward(&a, c))
        return NULL;
    const ebb_lanes *l = backward ? &a.runs : &a.groups;
    size_t each = 0, rows = 0;
    bool fits = ebb_size_mul(&each, (size_t)l->outputs, 2 * sizeof(double)) &&
                ebb_size_mul(bytes, each, (size_t)l->splits + (backward && l->splits > 1)) &&
                ebb_size_mul(&rows, (size_t)a.groups.outputs, 2 * sizeof(double)) &&
                ebb_size_add(bytes, *bytes, rows);
    return fits ? NULL : ebb_call_error(c, "it has too many groups");
}

static void place_sums(group_args *a, const ebb_call *c, const ebb_lanes *l)
{
    a->parts = (double *)c->workspace;
    double *behind = a->parts + 2 * l->splits * l->outputs;
    a->sums = a->parts;
    a->both = behind;
    if (l == &a->runs && l->splits > 1) {
        a->sums = behind;
        a->both = behind + 2 * l->outputs;
    }
}

/* ---- runs ---- */

/* (X, scale, bias) -> Y, mean?, inv_std? */
static ebb_status run_forward(const ebb_call *c)
{
    group_args a;
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    if (!read_forward(&a, c) || a.n * a.g * a.d * a.s == 0)
        return NULL;
    place_sums(&a, c, &a.groups);
    a.x = c->in[0].data;
    a.out = ebb_call_wants(c, 0) ? c->out[0].data : NULL;
    a.scale = ebb_numbers_in(c, 1);
    a.bias = ebb_numbers_in(c, 2);
    a.to[0] = ebb_numbers_out(c, 1);
    a.to[1] = ebb_numbers_out(c, 2);
    a.epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-5f);
    EBB_TRY(EBB_LAUNCH(c, moments[row], ebb_lanes_grid(&a.groups), EBB_CUDA_BLOCK, EBB_LANES_SHARED,
                       a));
    EBB_TRY(EBB_LAUNCH(c, finishes[row], ebb_lanes_grid(&a.groups_rest), EBB_CUDA_BLOCK,
                       EBB_LANES_SHARED, a));
    if (a.out == NULL)
        return NULL;
    return EBB_LAUNCH(c, normalise[row], ebb_lanes_grid(&a.runs), EBB_CUDA_BLOCK, 0, a);
}

/* (dY, X, scale, mean, inv_std) -> dX, dscale, dbias; or (dZ, Z, scale, bias, inv_std). */
static ebb_status run_backward(const ebb_call *c)
{
    group_args a;
    const int row = ebb_cuda_float_row(c->in[1].type.dtype);
    if (!read_backward(&a, c))
        return NULL;
    place_sums(&a, c, &a.runs);
    a.dy = c->in[0].data;
    a.x = c->in[1].data;
    a.out = ebb_call_wants(c, 0) ? c->out[0].data : NULL;
    a.kept = ebb_kept_of(c, c->op == EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT);
    a.scale = ebb_numbers_in(c, 2);
    *(a.kept.from_output ? &a.bias : &a.mean) = ebb_numbers_in(c, 3);
    a.inv_std = ebb_numbers_in(c, 4);
    a.to[0] = ebb_numbers_out(c, 1);
    a.to[1] = ebb_numbers_out(c, 2);
    EBB_TRY(
        EBB_LAUNCH(c, run_sums[row], ebb_lanes_grid(&a.runs), EBB_CUDA_BLOCK, EBB_LANES_SHARED, a));
    if (a.runs.splits > 1)
        EBB_TRY(EBB_LAUNCH(c, add_runs, ebb_lanes_grid(&a.runs_rest), EBB_CUDA_BLOCK,
                           EBB_LANES_SHARED, a));
    if (a.to[0].data != NULL || a.to[1].data != NULL)
        EBB_TRY(EBB_LAUNCH(c, finish_scales, ebb_lanes_grid(&a.images), EBB_CUDA_BLOCK,
                           EBB_LANES_SHARED, a));
    if (a.out == NULL)
        return NULL;
    EBB_TRY(EBB_LAUNCH(c, finish_groups, ebb_lanes_grid(&a.inner), EBB_CUDA_BLOCK, EBB_LANES_SHARED,
                       a));
    return EBB_LAUNCH(c, gradients[row], ebb_lanes_grid(&a.runs), EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_norm_group[] = {
    {.name = "cuda.instance_normalization",      .op = EBB_OP_INSTANCE_NORMALIZATION,      .dtypes = ebb_cuda_norm_dtypes_forward, .fits = forward_misfit, .workspace = workspace, .run = run_forward},
    {.name = "cuda.group_normalization",         .op = EBB_OP_GROUP_NORMALIZATION,         .dtypes = ebb_cuda_norm_dtypes_forward, .fits = forward_misfit, .workspace = workspace, .run = run_forward},
    {.name = "cuda.group_norm",                  .op = EBB_OP_GROUP_NORM,                  .dtypes = ebb_cuda_norm_dtypes_forward, .fits = forward_misfit, .workspace = workspace, .run = run_forward},
    {.name = "cuda.group_norm_grad",             .op = EBB_OP_GROUP_NORM_GRAD,             .dtypes = ebb_cuda_norm_dtypes_backward, .fits = backward_misfit, .workspace = workspace, .run = run_backward},
    {.name = "cuda.group_norm_grad_from_output", .op = EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT, .dtypes = ebb_cuda_norm_dtypes_backward, .fits = backward_misfit, .workspace = workspace, .run = run_backward},
};
// clang-format on
EBB_CUDA_COUNT(norm_group)
