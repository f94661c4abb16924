/* roi.c: RoiAlign, of averages and of maxima, and its gradients.
 *
 * A region becomes bins, a bin rows x columns of samples, a sample four elements and their weights:
 *
 *     region   . | .     bin   s s     sample   e   e
 *              --+--           s s               s
 *              . | .                            e   e
 *
 * An average is over the samples. A maximum is of the elements times their weights, one by one, as
 * ONNX has it. The gradients go the same way, region by region in their order, so that sums are the
 * same in every run; threads share the channels.
 */
#include "kernels/plain/number.h"

#include <math.h>

typedef struct align { /* what all regions share */
    const ebb_operand *rois, *images;
    const ebb_type *x, *y;
    double scale;
    bool half, largest;
    int64_t ratio;
} align;

typedef struct region {
    double top, left, bin_height, bin_width;
    int64_t rows, columns; /* samples of a bin */
    int64_t image;
} region;

typedef struct sample { /* four neighbours, top left first; none outside of the image */
    int64_t at[4];
    double weight[4];
} sample;

static sample neighbours(double y, double x, int64_t height, int64_t width)
{
    if (!(y >= -1 && y <= (double)height && x >= -1 && x <= (double)width))
        return (sample){.at = {0}};
    y = fmin(fmax(y, 0), (double)(height - 1));
    x = fmin(fmax(x, 0), (double)(width - 1));
    int64_t top = (int64_t)y, left = (int64_t)x;
    int64_t bottom = top + 1 < height ? top + 1 : top, right = left + 1 < width ? left + 1 : left;
    double down = y - (double)top, over = x - (double)left;
    return (sample){
        .at = {top * width + left, top * width + right, bottom * width + left,
               bottom * width + right},
        .weight = {(1 - down) * (1 - over), (1 - down) * over, down * (1 - over), down * over}};
}

static ebb_status read_region(region *r, const ebb_call *c, const align *a, int64_t i)
{
    double p[4], limit = 1e6;
    for (int k = 0; k < 4; k++)
        p[k] = ebb_plain_real(a->rois, i * 4 + k) * a->scale - (a->half ? 0.5 : 0);
    double width = p[2] - p[0], height = p[3] - p[1];
    if (!a->half) {
        width = fmax(width, 1);
        height = fmax(height, 1);
    }
    r->left = p[0];
    r->top = p[1];
    r->bin_height = height / (double)a->y->dims[2];
    r->bin_width = width / (double)a->y->dims[3];
    r->rows = r->columns = a->ratio;
    if (!(fabs(r->bin_height) < limit && fabs(r->bin_width) < limit) || r->rows > (int64_t)limit)
        return ebb_call_error(c, "region %lld is too large", (long long)i);
    if (r->rows <= 0) {
        r->rows = (int64_t)ceil(fmax(r->bin_height, 0));
        r->columns = (int64_t)ceil(fmax(r->bin_width, 0));
    }
    r->image = ebb_plain_whole(a->images, i);
    if (r->image < 0 || r->image >= a->x->dims[0])
        return ebb_call_error(c, "image %lld is outside 0..%lld", (long long)r->image,
                              (long long)a->x->dims[0] - 1);
    return NULL;
}

/* Sample k of the bin at this place of the output. */
static sample sample_of(const align *a, const region *r, int64_t place, int64_t k)
{
    double row = (double)(place / a->y->dims[3]), column = (double)(place % a->y->dims[3]);
    double down = ((double)(k / r->columns) + 0.5) / (double)r->rows;
    double over = ((double)(k % r->columns) + 0.5) / (double)r->columns;
    return neighbours(r->top + (row + down) * r->bin_height,
                      r->left + (column + over) * r->bin_width, a->x->dims[2], a->x->dims[3]);
}

/* The largest element times weight of a bin, and where it is. False for a bin without samples. */
static bool largest(const align *a, const region *r, const ebb_operand *x, int64_t plane,
                    int64_t place, double *most, int64_t *at, double *weight)
{
    int64_t count = r->rows * r->columns;
    for (int64_t k = 0; k < count; k++) {
        sample s = sample_of(a, r, place, k);
        for (int q = 0; q < 4; q++) {
            double v = s.weight[q] != 0 ? s.weight[q] * ebb_plain_real(x, plane + s.at[q]) : 0;
            if ((k > 0 || q > 0) && !(v > *most))
                continue;
            *most = v;
            *at = s.at[q];
            *weight = s.weight[q];
        }
    }
    return count > 0;
}

static double bin(const align *a, const region *r, const ebb_operand *x, int64_t plane,
                  int64_t place)
{
    int64_t count = r->rows * r->columns, at;
    double sum = 0, weight;
    if (a->largest)
        return largest(a, r, x, plane, place, &sum, &at, &weight) ? sum : 0;
    for (int64_t k = 0; k < count; k++) {
        sample s = sample_of(a, r, place, k);
        for (int q = 0; q < 4; q++)
            sum += s.weight[q] != 0 ? s.weight[q] * ebb_plain_real(x, plane + s.at[q]) : 0;
    }
    return count == 0 ? 0 : sum / (double)count;
}

static int64_t area_of(const ebb_type *t)
{
    return t->dims[2] * t->dims[3];
}

/* ---- forward ---- */

static ebb_status run_roi_align(const ebb_call *c)
{
    const char *mode = ebb_attr_string(&c->attrs, "coordinate_transformation_mode",
                                       c->version < 16 ? "output_half_pixel" : "half_pixel");
    const align a = {
        .rois = &c->in[1],
        .images = &c->in[2],
        .x = &c->in[0].type,
        .y = &c->out[0].type,
        .scale = ebb_attr_float(&c->attrs, "spatial_scale", 1.0),
        .half = strcmp(mode, "half_pixel") == 0,
        .largest = strcmp(ebb_attr_string(&c->attrs, "mode", "avg"), "max") == 0,
        .ratio = ebb_attr_int(&c->attrs, "sampling_ratio", 0),
    };
    int64_t area = area_of(a.y), channels = a.x->dims[1];
    for (int64_t i = 0; i < a.y->dims[0]; i++) {
        region r;
        EBB_TRY(read_region(&r, c, &a, i));
        EBB_PARALLEL_FOR(channels * area * r.rows * r.columns)
        for (int64_t k = 0; k < channels * area; k++)
            ebb_plain_put(
                &c->out[0], i * channels * area + k,
                bin(&a, &r, &c->in[0], (r.image * channels + k / area) * area_of(a.x), k % area));
    }
    return NULL;
}

static const char *misfit(const ebb_call *c, const ebb_type *x, const ebb_type *y, uint32_t rois)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    const ebb_type *r = &c->in[rois].type, *images = &c->in[rois + 1].type;
    bool fits = x->rank == 4 && y->rank == 4 && r->rank == 2 && r->dims[1] == 4 && x->dims[2] > 0 &&
                x->dims[3] > 0 && y->dims[2] > 0 && y->dims[3] > 0 && y->dims[1] == x->dims[1] &&
                y->dims[0] == r->dims[0] && ebb_plain_elements(images) == r->dims[0] &&
                ebb_dtype_is_integer((ebb_dtype)images->dtype) &&
                ebb_dtype_is_float((ebb_dtype)x->dtype) && ebb_dtype_is_float((ebb_dtype)r->dtype);
    return fits ? NULL : "image, regions and their images do not fit each other";
}

static const char *declines_roi_align(const ebb_call *c)
{
    return misfit(c, &c->in[0].type, &c->out[0].type, 1);
}

/* ---- RoiAlignGrad(dY, rois, images), RoiAlignMaxGrad(dY, X, rois, images) ---- */

static align of_gradient(const ebb_call *c)
{
    bool most = c->op == EBB_OP_ROI_ALIGN_MAX_GRAD;
    return (align){
        .rois = &c->in[most ? 2 : 1],
        .images = &c->in[most ? 3 : 2],
        .x = &c->out[0].type,
        .y = &c->in[0].type,
        .scale = ebb_attr_float(&c->attrs, "spatial_scale", 1.0),
        .half = ebb_attr_int(&c->attrs, "half", 1) != 0,
        .largest = most,
        .ratio = ebb_attr_int(&c->attrs, "sampling_ratio", 0),
    };
}

static void add(const ebb_operand *o, int64_t at, double x)
{
    ebb_plain_put(o, at, ebb_plain_real(o, at) + x);
}

/* What one bin gives to a plane of dX. */
static void spread(const align *a, const region *r, const ebb_call *c, int64_t plane, int64_t place,
                   double dy)
{
    int64_t count = r->rows * r->columns, at = 0;
    double most = 0, weight = 0;
    if (a->largest) {
        if (largest(a, r, &c->in[1], plane, place, &most, &at, &weight) && weight != 0)
            add(&c->out[0], plane + at, weight * dy);
        return;
    }
    for (int64_t k = 0; k < count; k++) {
        sample s = sample_of(a, r, place, k);
        for (int q = 0; q < 4; q++)
            if (s.weight[q] != 0)
                add(&c->out[0], plane + s.at[q], s.weight[q] / (double)count * dy);
    }
}

static ebb_status run_gradient(const ebb_call *c)
{
    const align a = of_gradient(c);
    int64_t area = area_of(a.y), channels = a.x->dims[1];
    memset(c->out[0].data, 0, c->out[0].bytes);
    for (int64_t i = 0; i < a.y->dims[0]; i++) {
        region r;
        EBB_TRY(read_region(&r, c, &a, i));
        EBB_PARALLEL_FOR(channels * area * r.rows * r.columns)
        for (int64_t k = 0; k < channels; k++)
            for (int64_t place = 0; place < area; place++)
                spread(&a, &r, c, (r.image * channels + k) * area_of(a.x), place,
                       ebb_plain_real(&c->in[0], (i * channels + k) * area + place));
    }
    return NULL;
}

static const char *declines_gradient(const ebb_call *c)
{
    bool most = c->op == EBB_OP_ROI_ALIGN_MAX_GRAD;
    const char *why = misfit(c, &c->out[0].type, &c->in[0].type, most ? 2 : 1);
    if (why == NULL && most && !ebb_type_same_shape(&c->in[1].type, &c->out[0].type))
        return "input and gradient differ in shape";
    return why;
}

// clang-format off
const ebb_kernel ebb_plain_roi[] = {
    {.name = "plain.roi_align",          .op = EBB_OP_ROI_ALIGN,          .declines = declines_roi_align, .run = run_roi_align},
    {.name = "plain.roi_align_grad",     .op = EBB_OP_ROI_ALIGN_GRAD,     .declines = declines_gradient,  .run = run_gradient},
    {.name = "plain.roi_align_max_grad", .op = EBB_OP_ROI_ALIGN_MAX_GRAD, .declines = declines_gradient,  .run = run_gradient},
};
// clang-format on
EBB_PLAIN_COUNT(roi)
