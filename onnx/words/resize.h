/* resize.h: what Resize and Upsample mean: which elements of the input each place of the output
 * takes, and how much of each.
 *
 *     out     .   .   .   .   .          place o
 *     in    .     .     .     .          neighbours begin, begin + 1, ..., and a weight of each
 *
 * Interpolation is a product over the axes, so there is one such table for each axis. The kernel
 * sums by them, and the gradient rule turns them round.
 */
#pragma once

#include <math.h>

#include "onnx/words/attr.h"

/* How a function begins that kernels of a device call too. */
#if defined(__CUDACC__)
#define EBB_RESIZE static __host__ __device__ inline
#else
#define EBB_RESIZE static inline
#endif

EBB_C_BEGIN

enum {
    EBB_RESIZE_OUTSIDE = -1, /* the place gets the extrapolation value */
    EBB_RESIZE_WRONG = -2,   /* scale and sizes do not fit each other */
};

typedef struct ebb_resize_axis {
    int64_t in, out;
    double scale, from, to; /* roi */
    int64_t taps;           /* no place has more neighbours */
} ebb_resize_axis;

typedef enum ebb_resize_mode {
    EBB_RESIZE_NEAREST,
    EBB_RESIZE_LINEAR,
    EBB_RESIZE_CUBIC,
} ebb_resize_mode;

typedef enum ebb_resize_transform { /* coordinate_transformation_mode */
                                    EBB_RESIZE_HALF_PIXEL,
                                    EBB_RESIZE_ALIGN_CORNERS,
                                    EBB_RESIZE_ASYMMETRIC,
                                    EBB_RESIZE_CROP,
                                    EBB_RESIZE_PYTORCH,
                                    EBB_RESIZE_SYMMETRIC,
} ebb_resize_transform;

typedef enum ebb_resize_rounding { /* nearest_mode */
                                   EBB_RESIZE_FLOOR,
                                   EBB_RESIZE_CEIL,
                                   EBB_RESIZE_PREFER_FLOOR,
                                   EBB_RESIZE_PREFER_CEIL,
} ebb_resize_rounding;

typedef struct ebb_resize {
    ebb_resize_mode mode;
    ebb_resize_transform transform;
    ebb_resize_rounding nearest;
    bool antialias, exclude_outside;
    double a, extrapolation;
    int rank;
    ebb_resize_axis axis[EBB_MAX_RANK];
} ebb_resize;

/* The values of inputs or attributes, in the order of the attribute axes (none: all axes); NULL
 * where not given. Sizes go before scales. */
typedef struct ebb_resize_values {
    const double *scales, *sizes, *roi;
    int64_t roi_count;
} ebb_resize_values;

typedef enum ebb_resize_policy { /* keep_aspect_ratio_policy, of sizes */
                                 EBB_RESIZE_STRETCH,
                                 EBB_RESIZE_NOT_LARGER,
                                 EBB_RESIZE_NOT_SMALLER,
} ebb_resize_policy;

/* Which entry of the values is of which axis. */
typedef struct ebb_resize_order {
    ebb_resize_policy policy;
    int64_t entries;
    int8_t entry[EBB_MAX_RANK]; /* -1: the axis stays as it is */
} ebb_resize_order;

/* How many scales or sizes there must be. */
int64_t ebb_resize_entries(const ebb_attrs *attrs, int rank);

/* What attributes and static shapes say. old: Upsample, and Resize of opset 10. */
void ebb_resize_read(ebb_resize *r, const ebb_attrs *attrs, bool old, const ebb_type *x,
                     const ebb_type *y);

ebb_resize_order ebb_resize_order_of(const ebb_attrs *attrs, int rank);

/* What values say. A sentence where they cannot be, else NULL. */
const char *ebb_resize_scale(ebb_resize *r, const ebb_attrs *attrs,
                             const ebb_resize_values *values);

EBB_RESIZE int64_t ebb_resize_at(const ebb_resize_axis *l, int64_t i)
{
    return i < 0 ? 0 : i >= l->in ? l->in - 1 : i;
}

/* What values say, of a roi with two numbers for each entry or without; false where a scale is not
 * above 0. */
EBB_RESIZE bool ebb_resize_apply(ebb_resize *r, const ebb_resize_order *order,
                                 const ebb_resize_values *values)
{
    const bool sizes = values->sizes != NULL, least = order->policy == EBB_RESIZE_NOT_LARGER;
    const bool crops = r->transform == EBB_RESIZE_CROP && values->roi != NULL;
    double common = least ? (double)INFINITY : 0;
    bool good = true;
    for (int d = 0; d < r->rank; d++) {
        ebb_resize_axis *l = &r->axis[d];
        const int entry = order->entry[d];
        if (entry < 0)
            continue;
        l->scale = sizes ? values->sizes[entry] / (double)l->in : values->scales[entry];
        common = least ? fmin(common, l->scale) : fmax(common, l->scale);
        l->from = crops ? values->roi[entry] : 0;
        l->to = crops ? values->roi[order->entries + entry] : 1;
    }
    for (int d = 0; d < r->rank; d++) {
        if (sizes && order->policy != EBB_RESIZE_STRETCH && order->entry[d] >= 0)
            r->axis[d].scale = common;
        good = good && r->axis[d].scale > 0;
    }
    return good;
}

/* The axis stays as it is. */
EBB_RESIZE bool ebb_resize_stays(const ebb_resize_axis *l)
{
    return fabs(l->scale - 1) <= 1e-9 && l->in == l->out && l->from == 0 && l->to == 1;
}

/* ---- places ---- */

/* Where place o of the output lies in the input. */
EBB_RESIZE double ebb_resize_origin(const ebb_resize *r, const ebb_resize_axis *l, int64_t o)
{
    double in = (double)l->in, whole = l->scale * in, x = (double)o;
    if (r->transform == EBB_RESIZE_ALIGN_CORNERS)
        return whole == 1 ? 0 : x * (in - 1) / (whole - 1);
    if (r->transform == EBB_RESIZE_ASYMMETRIC)
        return x / l->scale;
    if (r->transform == EBB_RESIZE_CROP) {
        double span = (l->to - l->from) * (in - 1);
        return l->from * (in - 1) + (whole == 1 ? span / 2 : x * span / (whole - 1));
    }
    if (r->transform == EBB_RESIZE_PYTORCH && whole == 1)
        return -0.5;
    double plain = (x + 0.5) / l->scale - 0.5;
    if (r->transform == EBB_RESIZE_SYMMETRIC)
        return in / 2 * (1 - (double)l->out / whole) + plain;
    return plain;
}

/* Keys' cubic: of a distance. */
EBB_RESIZE double ebb_resize_cubic(double a, double x)
{
    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

EBB_RESIZE double ebb_resize_weight(const ebb_resize *r, double distance)
{
    double x = fabs(distance);
    return r->mode == EBB_RESIZE_CUBIC ? ebb_resize_cubic(r->a, x) : x < 1 ? 1 - x : 0;
}

EBB_RESIZE int64_t ebb_resize_nearest(const ebb_resize *r, int64_t left, double right)
{
    bool up = right == 1 || r->nearest == EBB_RESIZE_CEIL;
    if (r->nearest == EBB_RESIZE_PREFER_FLOOR)
        up = right > 0.5;
    else if (r->nearest == EBB_RESIZE_PREFER_CEIL)
        up = right >= 0.5;
    return left + (up ? 1 : 0);
}

/* The first of the neighbours, counted from the one left of the origin; their number is 2 - 2 *
 * that. Of an axis that interpolates. */
EBB_RESIZE int64_t ebb_resize_first(const ebb_resize *r, const ebb_resize_axis *l)
{
    double stretch = r->antialias ? fmin(l->scale, 1.0) : 1;
    return (int64_t)floor(-(r->mode == EBB_RESIZE_CUBIC ? 2 : 1) / stretch) + 1;
}

/* Whether no place of an axis is EBB_RESIZE_WRONG: for those who cannot say so place by place.
 * Origins lie along a line, so its ends are the furthest; how many neighbours there are is the same
 * everywhere. */
EBB_RESIZE bool ebb_resize_fits(const ebb_resize *r, int d)
{
    const ebb_resize_axis *l = &r->axis[d];
    if (ebb_resize_stays(l) || l->out == 0)
        return true;
    for (int end = 0; end < 2; end++) {
        double x = ebb_resize_origin(r, l, end == 0 ? 0 : l->out - 1);
        bool outside = r->transform == EBB_RESIZE_CROP && (x < 0 || x > (double)(l->in - 1));
        if (!outside && !(fabs(x) < 1e15))
            return false;
    }
    return r->mode == EBB_RESIZE_NEAREST || 2 - 2 * ebb_resize_first(r, l) <= l->taps;
}

/* Place o of axis d: how many neighbours there are, their weights, and which is the first. Those
 * before the first or after the last element are the edge's (ebb_resize_at). Or one of the above.
 *
 * An origin between left and left + 1 is `right` beyond left, 0 < right <= 1; on an element it is
 * that of the left one's neighbour. */
EBB_RESIZE int64_t ebb_resize_place(const ebb_resize *r, int d, int64_t o, int64_t *begin,
                                    double *weight)
{
    const ebb_resize_axis *l = &r->axis[d];
    double x, total = 0;
    *begin = o;
    weight[0] = 1;
    if (ebb_resize_stays(l))
        return 1;
    x = ebb_resize_origin(r, l, o);
    *begin = 0;
    if (r->transform == EBB_RESIZE_CROP && (x < 0 || x > (double)(l->in - 1)))
        return EBB_RESIZE_OUTSIDE;
    if (!(fabs(x) < 1e15))
        return EBB_RESIZE_WRONG;
    int64_t left = (int64_t)ceil(x) - 1, first = ebb_resize_first(r, l), count = 2 - 2 * first;
    double right = x - (double)left, stretch = r->antialias ? fmin(l->scale, 1.0) : 1;
    if (r->mode == EBB_RESIZE_NEAREST) {
        *begin = ebb_resize_nearest(r, left, right);
        return 1;
    }
    *begin = left + first;
    if (count > l->taps)
        return EBB_RESIZE_WRONG;
    for (int64_t k = 0; k < count; k++) {
        int64_t at = *begin + k;
        bool outside = r->exclude_outside && (at < 0 || at >= l->in);
        weight[k] = outside ? 0 : ebb_resize_weight(r, ((double)(first + k) - right) * stretch);
        total += weight[k];
    }
    bool normal = r->antialias || r->exclude_outside;
    for (int64_t k = 0; normal && total != 0 && k < count; k++)
        weight[k] /= total;
    return count;
}

EBB_C_END
