/* roi.c: RoiAlign, of averages and of maxima, and its gradients; what they mean is in
 * kernels/math/roi.inc; MaxRoiPool and its gradient.
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
    (void)ebb_roi_read(&a, c); // ebb_roi_misfit() has seen it
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

/* ---- MaxRoiPool(X, rois) -> Y, MaxRoiPoolGrad(dY, X, rois) -> dX ---- */

/* A region [image, left, top, right, bottom] is rounded to whole elements and divided into bins, which
 * overlap by the elements that lie in both. */
typedef struct pooled {
    const ebb_operand *x, *rois;
    int64_t channels, height, width, regions, rows, columns; // rows, columns: of Y
    double scale;
} pooled;

static const char *read_pooled(pooled *p, const ebb_call *c)
{
    const bool back = c->op == EBB_OP_MAX_ROI_POOL_GRAD;
    *p = (pooled){.x = &c->in[back], .rois = &c->in[back + 1]};
    p->scale = ebb_attr_float(&c->attrs, "spatial_scale", 1.0);
    const ebb_type *x = &p->x->type, *r = &p->rois->type,
                   *y = back ? &c->in[0].type : &c->out[0].type;
    if (back && !ebb_type_same_shape(x, &c->out[0].type))
        return "input and gradient differ in shape";
    if (x->rank != 4 || y->rank != 4 || r->rank != 2 || r->dims[1] != 5 ||
        r->dims[0] != y->dims[0] || x->dims[1] != y->dims[1] || y->dims[2] < 1 || y->dims[3] < 1 ||
        !ebb_dtype_is_float((ebb_dtype)x->dtype) || !ebb_dtype_is_float((ebb_dtype)r->dtype))
        return "image and regions do not fit each other";
    p->channels = x->dims[1];
    p->height = x->dims[2];
    p->width = x->dims[3];
    p->regions = y->dims[0];
    p->rows = y->dims[2];
    p->columns = y->dims[3];
    return NULL;
}

static const char *pooled_misfit(const ebb_call *c)
{
    pooled p;
    return read_pooled(&p, c);
}

/* A place, in the numbers of the regions: as Caffe, PyTorch and ONNX Runtime have it, so that a bin ends
 * where theirs does when its bound falls on an element. */
static double place_in(const pooled *p, double place)
{
    return p->rois->type.dtype == EBB_F64 ? place : (double)(float)place;
}

/* The elements [*from, *to) of 0..size that bin i of `bins` has along an axis; lo: where the region's
 * number for its first element is, two before that for its last one. */
static void bin_along(const pooled *p, int64_t *from, int64_t *to, int64_t region, int lo,
                      int64_t bins, int64_t i, int64_t size)
{
    const double first = round(place_in(p, ebb_plain_real(p->rois, region * 5 + lo) * p->scale));
    const double last = round(place_in(p, ebb_plain_real(p->rois, region * 5 + lo + 2) * p->scale));
    const double each = place_in(p, fmax(last - first + 1, 1) / (double)bins);
    const double begin = floor(place_in(p, (double)i * each)) + first;
    const double end = ceil(place_in(p, (double)(i + 1) * each)) + first;
    *from = (int64_t)fmin(fmax(begin, 0), (double)size); // fmax makes 0 of NaN
    *to = (int64_t)fmin(fmax(end, 0), (double)size);
}

/* The largest element of a bin, the first of equals: where it is in its plane, or -1. *most: 0 for an
 * empty bin. */
static int64_t largest_of(const pooled *p, double *most, int64_t region, int64_t bin, int64_t plane)
{
    int64_t top, bottom, left, right, at = -1;
    bin_along(p, &top, &bottom, region, 2, p->rows, bin / p->columns, p->height);
    bin_along(p, &left, &right, region, 1, p->columns, bin % p->columns, p->width);
    *most = top < bottom && left < right ? -INFINITY : 0;
    for (int64_t i = top; i < bottom; i++)
        for (int64_t j = left; j < right; j++) {
            const double x = ebb_plain_real(p->x, plane + i * p->width + j);
            if (!(x > *most))
                continue;
            *most = x;
            at = i * p->width + j;
        }
    return at;
}

static ebb_status run_max_roi_pool(const ebb_call *c)
{
    pooled p;
    (void)read_pooled(&p, c); // pooled_misfit() has seen it
    const bool back = c->op == EBB_OP_MAX_ROI_POOL_GRAD;
    const int64_t area = p.rows * p.columns, image = p.height * p.width;
    if (back)
        memset(c->out[0].data, 0, c->out[0].bytes);
    for (int64_t i = 0; i < p.regions; i++) {
        const double n = trunc(ebb_plain_real(p.rois, i * 5));
        if (!(n >= 0 && n < (double)p.x->type.dims[0]))
            return ebb_call_error(c, "image %g of region %lld is outside 0..%lld", n, (long long)i,
                                  (long long)p.x->type.dims[0] - 1);
        EBB_PARALLEL_FOR(p.channels * (area + image))
        for (int64_t k = 0; k < p.channels; k++)
            for (int64_t bin = 0; bin < area; bin++) {
                const int64_t plane = ((int64_t)n * p.channels + k) * image;
                const int64_t y = (i * p.channels + k) * area + bin;
                double most;
                const int64_t at = largest_of(&p, &most, i, bin, plane);
                if (!back)
                    ebb_plain_put(&c->out[0], y, most);
                else if (at >= 0)
                    add(&c->out[0], plane + at, ebb_plain_real(&c->in[0], y));
            }
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_roi[] = {
    {.name = "plain.roi_align",          .op = EBB_OP_ROI_ALIGN,          .dtypes = ebb_call_any, .fits = ebb_roi_misfit, .run = run_roi_align},
    {.name = "plain.roi_align_grad",     .op = EBB_OP_ROI_ALIGN_GRAD,     .dtypes = ebb_call_any, .fits = ebb_roi_misfit, .run = run_gradient},
    {.name = "plain.roi_align_max_grad", .op = EBB_OP_ROI_ALIGN_MAX_GRAD, .dtypes = ebb_call_any, .fits = ebb_roi_misfit, .run = run_gradient},
    {.name = "plain.max_roi_pool",       .op = EBB_OP_MAX_ROI_POOL,       .dtypes = ebb_call_any, .fits = pooled_misfit, .run = run_max_roi_pool},
    {.name = "plain.max_roi_pool_grad",  .op = EBB_OP_MAX_ROI_POOL_GRAD,  .dtypes = ebb_call_any, .fits = pooled_misfit, .run = run_max_roi_pool},
};
// clang-format on
EBB_PLAIN_COUNT(roi)
