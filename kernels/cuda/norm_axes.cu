/* norm_axes.cu: norms that have no scale and no bias: LpNormalization along an axis,
 * MeanVarianceNormalization over any axes, LRN over neighbouring channels.
 *
 *     measure     parts of the two sums of each output (lanes.h, axes.h)
 *     conclude    from them what is taken off and what is divided by
 *     apply       each thread to the elements that it measured
 */
#include "kernels/cuda/axes.h"
#include "kernels/cuda/lanes.h"
#include "kernels/call/misfit.h"
#include "kernels/math/power.h"

typedef struct axes_args {
    ebb_lanes lanes, rest;
    ebb_cuda_axes kept, along;
    const void *x;
    void *y;
    double *stats, *parts; /* [outputs, 2], [splits, outputs, 2] */
    int64_t order;         /* p of the norm; 0: mean and deviation */
} axes_args;

typedef struct lrn_args {
    const void *x;
    void *y;
    int64_t count, n, inner; /* n channels, `inner` elements apart */
    int64_t before, after;   /* channels on either side that count */
    double alpha, beta, bias;
} lrn_args;

#define KERNELS "kernels/cuda/norm_axes_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel measures[] = EBB_CUDA_FLOATS(measure);
static const ebb_gpu_kernel concludes[] = EBB_CUDA_FLOATS(conclude);
static const ebb_gpu_kernel applies[] = EBB_CUDA_FLOATS(apply);
static const ebb_gpu_kernel lrns[] = EBB_CUDA_FLOATS(lrn);

/* ---- LpNormalization, MeanVarianceNormalization ---- */

static ebb_status read_axes(axes_args *a, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t list[EBB_MAX_RANK] = {0, 2, 3};
    uint32_t count = 1;
    bool goes[EBB_MAX_RANK] = {false};
    memset(a, 0, sizeof *a);
    if (c->op == EBB_OP_LP_NORMALIZATION) {
        a->order = ebb_attr_int(&c->attrs, "p", 2);
        list[0] = ebb_attr_int(&c->attrs, "axis", -1);
    } else if (ebb_attr_find(&c->attrs, "axes") != NULL) {
        EBB_TRY(ebb_call_ints(c, "axes", UINT32_MAX, list, EBB_MAX_RANK, &count));
    } else {
        count = 3;
    }
    for (uint32_t i = 0; i < count; i++) {
        int axis = 0;
        EBB_TRY(ebb_call_axis(c, list[i], x->rank, &axis));
        goes[axis] = true;
    }
    const bool along = ebb_cuda_axes_split(x, goes, &a->kept, &a->along);
    const int64_t outputs = ebb_cuda_axes_size(&a->kept), n = ebb_cuda_axes_size(&a->along);
    a->lanes = ebb_lanes_of(outputs, n, !along);
    a->rest = ebb_lanes_rest(&a->lanes);
    return NULL;
}

static ebb_status axes_workspace(const ebb_call *c, size_t *bytes)
{
    axes_args a;
    EBB_TRY(read_axes(&a, c));
    return ebb_size_mul(bytes, (size_t)a.lanes.outputs, 2 * sizeof(double)) &&
                   ebb_size_mul(bytes, *bytes, (size_t)a.lanes.splits + 1)
               ? NULL
               : ebb_call_error(c, "it has too many lines");
}

/* (X) -> Y: x / norm, 0 where the norm is; or (x - mean) / (deviation + 1e-9). */
static ebb_status run_axes(const ebb_call *c)
{
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    axes_args a;
    EBB_TRY(read_axes(&a, c));
    if (a.lanes.outputs * a.lanes.n == 0)
        return NULL;
    a.x = c->in[0].data;
    a.y = c->out[0].data;
    a.stats = (double *)c->workspace;
    a.parts = a.stats + 2 * a.lanes.outputs;
    EBB_TRY(EBB_LAUNCH(c, measures[row], ebb_lanes_grid(&a.lanes), EBB_CUDA_BLOCK, EBB_LANES_SHARED,
                       a));
    EBB_TRY(EBB_LAUNCH(c, concludes[row], ebb_lanes_grid(&a.rest), EBB_CUDA_BLOCK, EBB_LANES_SHARED,
                       a));
    return EBB_LAUNCH(c, applies[row], ebb_lanes_grid(&a.lanes), EBB_CUDA_BLOCK, 0, a);
}

static const char *misfit_axes(const ebb_call *c)
{
    return c->op == EBB_OP_LP_NORMALIZATION && ebb_attr_int(&c->attrs, "p", 2) < 1
               ? "p is less than 1"
               : NULL;
}

/* ---- LRN ---- */

/* (X) {size, alpha, beta, bias} -> Y: x / (bias + alpha / size * squares of its neighbours)^beta */
static ebb_status run_lrn(const ebb_call *c)
{
    const ebb_span s = ebb_span_of(&c->in[0].type, 1);
    const int64_t size = ebb_attr_int(&c->attrs, "size", 1);
    lrn_args a;
    memset(&a, 0, sizeof a);
    a.x = c->in[0].data;
    a.y = c->out[0].data;
    a.count = s.outer * s.n * s.inner;
    a.n = s.n;
    a.inner = s.inner;
    a.before = (size - 1) / 2;
    a.after = size / 2;
    a.alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.0001f) / (double)size;
    a.beta = ebb_attr_float(&c->attrs, "beta", 0.75);
    a.bias = ebb_attr_float(&c->attrs, "bias", 1.0);
    return EBB_LAUNCH(c, lrns[ebb_cuda_float_row(c->in[0].type.dtype)], ebb_cuda_grid(a.count),
                      EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_norm_axes[] = {
    {.name = "cuda.lp_normalization", .op = EBB_OP_LP_NORMALIZATION,            .dtypes = ebb_cuda_floats, .fits = misfit_axes,    .workspace = axes_workspace, .run = run_axes},
    {.name = "cuda.mean_variance",    .op = EBB_OP_MEAN_VARIANCE_NORMALIZATION, .dtypes = ebb_cuda_floats, .fits = misfit_axes,    .workspace = axes_workspace, .run = run_axes},
    {.name = "cuda.lrn",              .op = EBB_OP_LRN,                         .dtypes = ebb_cuda_floats, .fits = ebb_lrn_misfit, .run = run_lrn},
};
// clang-format on
EBB_CUDA_COUNT(norm_axes)
