/* roi.cu: RoiAlign and its gradients; what regions are is in kernels/math/roi.inc.
 *
 *     regions    a thread each, into the workspace; those that are nowhere are told as faults
 *     forward    a thread an element
 *     backward   gathered: an element of dX asks, region by region in their order, the bins that
 *                may reach it, and takes their shares for some channels at once:
 *
 *                bins whose samples lie within 1 of y:   first row .. last row; so for x
 *
 * Of a maximum each bin first writes down which element it was and how much of it.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.h"
#include "kernels/call/move/sampling.h"

enum { CHANNELS = 8 }; // that a thread takes

typedef struct roi_args {
    ebb_roi a;
    void *out;
    const void *x, *dy, *rois, *images;
    uint8_t images_dtype;
    ebb_region *regions;
    int64_t *places; /* of maxima: [regions, channels, rows, columns]; -1: none */
    double *shares;  /* and how much of dY goes there */
    ebb_cuda_step *step;
    uint32_t position;
} roi_args;

typedef struct roi_span {
    int64_t first, last; /* of bins: none where first is greater */
} roi_span;

/* The bins along one axis that may have a sample within 1 of element i. A bin that is no wider than
 * nothing may be anywhere. */
EBB_GPU_INLINE roi_span roi_reach(double start, double bin, int64_t bins, int64_t i)
{
    roi_span s = {0, bins - 1};
    if (!(bin > 1e-9))
        return s;
    const double low = ((double)i - 1 - start) / bin - 1, high = ((double)i + 1 - start) / bin + 1;
    if (low > 0)
        s.first = low < (double)bins ? (int64_t)low : bins;
    if (high < (double)(bins - 1))
        s.last = high < 0 ? -1 : (int64_t)high;
    return s;
}

/* How much of element i the samples of a bin along one axis have, together. */
EBB_GPU_INLINE double roi_along(double start, double bin, int64_t samples, int64_t which,
                                int64_t size, int64_t i)
{
    double sum = 0;
    for (int64_t k = 0; k < samples; k++) {
        double at = start + ((double)which + ((double)k + 0.5) / (double)samples) * bin;
        if (!(at >= -1 && at <= (double)size))
            continue;
        at = fmin(fmax(at, 0.0), (double)(size - 1));
        const int64_t low = (int64_t)at, high = low + 1 < size ? low + 1 : low;
        const double over = at - (double)low;
        sum += (low == i ? 1 - over : 0) + (high == i ? over : 0);
    }
    return sum;
}

#define KERNELS "kernels/cuda/roi_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel finds[4] = EBB_CUDA_FLOATS(roi_regions);
static const ebb_gpu_kernel aligns[4] = EBB_CUDA_FLOATS(roi_align);
static const ebb_gpu_kernel maxima[4] = EBB_CUDA_FLOATS(roi_maxima);
static const ebb_gpu_kernel gathers[4] = EBB_CUDA_FLOATS(roi_gather);

static int64_t bins_of(const ebb_roi *a)
{
    return a->regions * a->channels * a->rows * a->columns;
}

/* | regions | places and shares of maxima, backward | */
static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_roi a;
    size_t maxima_bytes = 0;
    (void)ebb_roi_read(&a, c); // ebb_roi_misfit() has seen it
    bool fits = ebb_size_mul(bytes, (size_t)a.regions, sizeof(ebb_region));
    if (c->op == EBB_OP_ROI_ALIGN_MAX_GRAD)
        fits = fits && ebb_size_mul(&maxima_bytes, (size_t)bins_of(&a), 16);
    return fits && ebb_size_add(bytes, *bytes, maxima_bytes)
               ? NULL
               : ebb_call_error(c, "its regions pass what memory can be");
}

static ebb_status run(const ebb_call *c)
{
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    roi_args a;
    memset(&a, 0, sizeof a);
    (void)ebb_roi_read(&a.a, c);
    a.out = c->out[0].data;
    a.x = c->in[c->op == EBB_OP_ROI_ALIGN_MAX_GRAD ? 1 : 0].data;
    a.dy = c->in[0].data;
    a.rois = c->in[a.a.rois].data;
    a.images = c->in[a.a.images].data;
    a.images_dtype = c->in[a.a.images].type.dtype;
    a.regions = (ebb_region *)c->workspace;
    a.places = (int64_t *)(void *)(a.regions + a.a.regions);
    a.shares = (double *)(void *)(a.places + bins_of(&a.a));
    a.step = ebb_cuda_queue_of(c)->step;
    a.position = c->position;
    EBB_TRY(EBB_LAUNCH(c, finds[row], ebb_cuda_grid(a.a.regions), EBB_CUDA_BLOCK, 0, a));
    if (c->op == EBB_OP_ROI_ALIGN)
        return EBB_LAUNCH(c, aligns[row], ebb_cuda_grid(bins_of(&a.a)), EBB_CUDA_BLOCK, 0, a);
    if (c->op == EBB_OP_ROI_ALIGN_MAX_GRAD)
        EBB_TRY(EBB_LAUNCH(c, maxima[row], ebb_cuda_grid(bins_of(&a.a)), EBB_CUDA_BLOCK, 0, a));
    const int64_t lots = (a.a.channels + CHANNELS - 1) / CHANNELS;
    return EBB_LAUNCH(c, gathers[row], ebb_cuda_grid(a.a.batch * lots * a.a.height * a.a.width),
                      EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_roi[] = {
    {.name = "cuda.roi_align",          .op = EBB_OP_ROI_ALIGN,          .dtypes = ebb_cuda_floats, .fits = ebb_roi_misfit, .workspace = workspace, .run = run},
    {.name = "cuda.roi_align_grad",     .op = EBB_OP_ROI_ALIGN_GRAD,     .dtypes = ebb_cuda_floats, .fits = ebb_roi_misfit, .workspace = workspace, .run = run},
    {.name = "cuda.roi_align_max_grad", .op = EBB_OP_ROI_ALIGN_MAX_GRAD, .dtypes = ebb_cuda_floats, .fits = ebb_roi_misfit, .workspace = workspace, .run = run},
};
// clang-format on
EBB_CUDA_COUNT(roi)
