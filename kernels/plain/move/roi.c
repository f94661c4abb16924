/* roi.c: RoiAlign, of averages and of maxima, and its gradients; what they mean is in
 * kernels/math/roi.inc.
 *
 * The gradients go region by region in their order, so that sums are the same in every run; threads
 * share the channels.
 */
#include "kernels/plain/number.h"
#include "kernels/call/move/sampling.h"

#include <math.h>

#define OPERAND const ebb_operand *
#define NUMBER(x, i) ebb_plain_real(x, i)
#define SUM double
#define NAMED(x) x
#define FORMULA static
#include "kernels/math/roi.inc"

static ebb_status read_region(ebb_region *r, const ebb_call *c, const ebb_roi *a, int64_t i)
{
    if (!region_of(r, a, &c->in[a->rois], i))
        return ebb_call_error(c, "region %lld is too large", (long long)i);
    r->image = ebb_plain_whole(&c->in[a->images], i);
    if (r->image < 0 || r->image >= a->batch)
        return ebb_call_error(c, "image %lld is outside 0..%lld", (long long)r->image,
                              (long long)a->batch - 1);
    return NULL;
}

static ebb_status run_roi_align(const ebb_call *c)
{
    ebb_roi a;
    (void)ebb_roi_read(&a, c); // misfit() has seen it
    int64_t area = a.rows * a.columns, image = a.height * a.width;
    for (int64_t i = 0; i < a.regions; i++) {
        ebb_region r;
        EBB_TRY(read_region(&r, c, &a, i));
        EBB_PARALLEL_FOR(a.channels * area * r.rows * r.columns)
        for (int64_t k = 0; k < a.channels * area; k++)
            ebb_plain_put(
                &c->out[0], i * a.channels * area + k,
                bin(&a, &r, &c->in[0], (r.image * a.channels + k / area) * image, k % area));
    }
    return NULL;
}

static void add(const ebb_operand *o, int64_t at, double x)
{
    ebb_plain_put(o, at, ebb_plain_real(o, at) + x);
}

/* What one bin gives to a plane of dX. */
static void spread(const ebb_roi *a, const ebb_region *r, const ebb_call *c, int64_t plane,
                   int64_t place, double dy)
{
    int64_t count = r->rows * r->columns, at = 0;
    double most = 0, weight = 0;
    if (a->largest) {
        if (largest(a, r, &c->in[1], plane, place, &most, &at, &weight) && weight != 0)
            add(&c->out[0], plane + at, weight * dy);
        return;
    }
    for (int64_t k = 0; k < count; k++) {
        ebb_roi_sample s = sample_of(a, r, place, k);
        for (int q = 0; q < 4; q++)
            if (s.weight[q] != 0)
                add(&c->out[0], plane + s.at[q], s.weight[q] / (double)count * dy);
    }
}

static ebb_status run_gradient(const ebb_call *c)
{
    ebb_roi a;
    (void)ebb_roi_read(&a, c);
    int64_t area = a.rows * a.columns;
    memset(c->out[0].data, 0, c->out[0].bytes);
    for (int64_t i = 0; i < a.regions; i++) {
        ebb_region r;
        EBB_TRY(read_region(&r, c, &a, i));
        EBB_PARALLEL_FOR(a.channels * area * r.rows * r.columns)
        for (int64_t k = 0; k < a.channels; k++)
            for (int64_t place = 0; place < area; place++)
                spread(&a, &r, c, (r.image * a.channels + k) * a.height * a.width, place,
                       ebb_plain_real(&c->in[0], (i * a.channels + k) * area + place));
    }
    return NULL;
}

static const char *misfit(const ebb_call *c)
{
    ebb_roi a;
    return ebb_roi_read(&a, c);
}

// clang-format off
const ebb_kernel ebb_plain_roi[] = {
    {.name = "plain.roi_align",          .op = EBB_OP_ROI_ALIGN,          .dtypes = ebb_call_any, .fits = misfit, .run = run_roi_align},
    {.name = "plain.roi_align_grad",     .op = EBB_OP_ROI_ALIGN_GRAD,     .dtypes = ebb_call_any, .fits = misfit, .run = run_gradient},
    {.name = "plain.roi_align_max_grad", .op = EBB_OP_ROI_ALIGN_MAX_GRAD, .dtypes = ebb_call_any, .fits = misfit, .run = run_gradient},
};
// clang-format on
EBB_PLAIN_COUNT(roi)
