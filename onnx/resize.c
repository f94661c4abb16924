/* resize.c: see resize.h. */
#include "onnx/resize.h"

#include <math.h>

int64_t ebb_resize_entries(const ebb_attrs *attrs, int rank)
{
    uint32_t count;
    return ebb_attr_ints(attrs, "axes", &count) != NULL ? (int64_t)count : rank;
}

/* Room for the taps of an axis: the scale is not below out / (in + 1), rounding included. */
static int64_t room_of(const ebb_resize *r, const ebb_resize_axis *l)
{
    int64_t reach = r->mode == EBB_RESIZE_CUBIC ? 2 : 1;
    if (!r->antialias || l->out >= l->in || l->out == 0)
        return 2 * reach;
    return 2 * (reach * (l->in + 1) / l->out + 2) + 2;
}

void ebb_resize_read(ebb_resize *r, const ebb_attrs *attrs, bool old, const ebb_type *x,
                     const ebb_type *y)
{
    const char *mode = ebb_attr_string(attrs, "mode", "nearest");
    *r = (ebb_resize){.rank = x->rank};
    r->mode = strcmp(mode, "cubic") == 0       ? EBB_RESIZE_CUBIC
              : strstr(mode, "linear") != NULL ? EBB_RESIZE_LINEAR
                                               : EBB_RESIZE_NEAREST;
    r->transform =
        ebb_attr_string(attrs, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
    r->nearest = ebb_attr_string(attrs, "nearest_mode", old ? "floor" : "round_prefer_floor");
    r->antialias = r->mode != EBB_RESIZE_NEAREST && ebb_attr_int(attrs, "antialias", 0) != 0;
    r->exclude_outside = ebb_attr_int(attrs, "exclude_outside", 0) != 0;
    r->a = ebb_attr_float(attrs, "cubic_coeff_a", -0.75);
    r->extrapolation = ebb_attr_float(attrs, "extrapolation_value", 0.0);
    for (int d = 0; d < r->rank; d++) {
        ebb_resize_axis *l = &r->axis[d];
        *l = (ebb_resize_axis){.in = x->dims[d], .out = y->dims[d], .scale = 1, .to = 1};
        l->taps = room_of(r, l);
    }
}

static bool resizes(const ebb_resize *r, const ebb_attrs *attrs, int axis, int *entry)
{
    uint32_t count;
    const int64_t *axes = ebb_attr_ints(attrs, "axes", &count);
    *entry = axis;
    if (axes == NULL)
        return true;
    for (uint32_t i = 0; i < count; i++)
        if (axes[i] == axis || axes[i] + r->rank == axis) {
            *entry = (int)i;
            return true;
        }
    return false;
}

const char *ebb_resize_scale(ebb_resize *r, const ebb_attrs *attrs, const ebb_resize_values *values)
{
    const char *policy = ebb_attr_string(attrs, "keep_aspect_ratio_policy", "stretch");
    bool sizes = values->sizes != NULL, least = strcmp(policy, "not_larger") == 0;
    bool crops = strcmp(r->transform, "tf_crop_and_resize") == 0 && values->roi != NULL;
    int64_t half = ebb_resize_entries(attrs, r->rank);
    double common = least ? INFINITY : 0;
    if (crops && values->roi_count != 2 * half)
        return "roi has not two numbers for each axis";
    for (int d = 0, entry; d < r->rank; d++) {
        ebb_resize_axis *l = &r->axis[d];
        if (!resizes(r, attrs, d, &entry))
            continue;
        l->scale = sizes ? values->sizes[entry] / (double)l->in : values->scales[entry];
        common = least ? fmin(common, l->scale) : fmax(common, l->scale);
        l->from = crops ? values->roi[entry] : 0;
        l->to = crops ? values->roi[half + entry] : 1;
    }
    for (int d = 0, entry; d < r->rank; d++) {
        if (sizes && strcmp(policy, "stretch") != 0 && resizes(r, attrs, d, &entry))
            r->axis[d].scale = common;
        if (!(r->axis[d].scale > 0))
            return "a scale is not above 0";
    }
    return NULL;
}

/* Where place o of the output lies in the input. */
static double origin(const ebb_resize *r, const ebb_resize_axis *l, int64_t o)
{
    double in = (double)l->in, whole = l->scale * in, x = (double)o;
    if (strcmp(r->transform, "align_corners") == 0)
        return whole == 1 ? 0 : x * (in - 1) / (whole - 1);
    if (strcmp(r->transform, "asymmetric") == 0)
        return x / l->scale;
    if (strcmp(r->transform, "tf_crop_and_resize") == 0) {
        double span = (l->to - l->from) * (in - 1);
        return l->from * (in - 1) + (whole == 1 ? span / 2 : x * span / (whole - 1));
    }
    if (strcmp(r->transform, "pytorch_half_pixel") == 0 && whole == 1)
        return -0.5;
    double plain = (x + 0.5) / l->scale - 0.5;
    if (strcmp(r->transform, "half_pixel_symmetric") == 0)
        return in / 2 * (1 - (double)l->out / whole) + plain;
    return plain;
}

/* Keys' cubic: of a distance. */
static double cubic(double a, double x)
{
    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double weight_of(const ebb_resize *r, double distance)
{
    double x = fabs(distance);
    return r->mode == EBB_RESIZE_CUBIC ? cubic(r->a, x) : x < 1 ? 1 - x : 0;
}

static int64_t nearest(const ebb_resize *r, int64_t left, double right)
{
    bool up = right == 1 || strcmp(r->nearest, "ceil") == 0;
    if (strcmp(r->nearest, "round_prefer_floor") == 0)
        up = right > 0.5;
    else if (strcmp(r->nearest, "round_prefer_ceil") == 0)
        up = right >= 0.5;
    return left + (up ? 1 : 0);
}

/* An origin between left and left + 1 is `right` beyond left, 0 < right <= 1; on an element it is
 * that of the left one's neighbour. */
int64_t ebb_resize_place(const ebb_resize *r, int d, int64_t o, int64_t *begin, double *weight)
{
    const ebb_resize_axis *l = &r->axis[d];
    double x, total = 0;
    *begin = o;
    weight[0] = 1;
    if (fabs(l->scale - 1) <= 1e-9 && l->in == l->out && l->from == 0 && l->to == 1)
        return 1;
    x = origin(r, l, o);
    *begin = 0;
    if (strcmp(r->transform, "tf_crop_and_resize") == 0 && (x < 0 || x > (double)(l->in - 1)))
        return EBB_RESIZE_OUTSIDE;
    if (!(fabs(x) < 1e15))
        return EBB_RESIZE_WRONG;
    int64_t left = (int64_t)ceil(x) - 1, first, count;
    double right = x - (double)left, stretch = r->antialias ? fmin(l->scale, 1) : 1;
    if (r->mode == EBB_RESIZE_NEAREST) {
        *begin = nearest(r, left, right);
        return 1;
    }
    first = (int64_t)floor(-(r->mode == EBB_RESIZE_CUBIC ? 2 : 1) / stretch) + 1;
    count = 2 - 2 * first;
    *begin = left + first;
    if (count > l->taps)
        return EBB_RESIZE_WRONG;
    for (int64_t k = 0; k < count; k++) {
        int64_t at = *begin + k;
        bool outside = r->exclude_outside && (at < 0 || at >= l->in);
        weight[k] = outside ? 0 : weight_of(r, ((double)(first + k) - right) * stretch);
        total += weight[k];
    }
    bool normal = r->antialias || r->exclude_outside;
    for (int64_t k = 0; normal && total != 0 && k < count; k++)
        weight[k] /= total;
    return count;
}
