/* resize.h: what Resize and Upsample mean: which elements of the input each place of the output
 * takes, and how much of each.
 *
 *     out     .   .   .   .   .          place o
 *     in    .     .     .     .          neighbours begin, begin + 1, ..., and a weight of each
 *
 * Interpolation is a product over the axes, so there is one such table for each axis. The kernel
 * sums by them, and the gradient rule turns them round.
 */
#ifndef EBB_ONNX_RESIZE_H
#define EBB_ONNX_RESIZE_H

#include "onnx/attr.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EBB_RESIZE_OUTSIDE = -1, /* the place gets the extrapolation value */
    EBB_RESIZE_WRONG = -2,   /* scale and sizes do not fit each other */
};

typedef struct ebb_resize_axis {
    int64_t in, out;
    double scale, from, to; /* roi */
    int64_t taps;           /* no place has more neighbours */
} ebb_resize_axis;

typedef struct ebb_resize {
    enum { EBB_RESIZE_NEAREST, EBB_RESIZE_LINEAR, EBB_RESIZE_CUBIC } mode;
    const char *transform, *nearest;
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

/* How many scales or sizes there must be. */
int64_t ebb_resize_entries(const ebb_attrs *attrs, int rank);

/* What attributes and static shapes say. old: Upsample, and Resize of opset 10. */
void ebb_resize_read(ebb_resize *r, const ebb_attrs *attrs, bool old, const ebb_type *x,
                     const ebb_type *y);

/* What values say. A sentence where they cannot be, else NULL. */
const char *ebb_resize_scale(ebb_resize *r, const ebb_attrs *attrs,
                             const ebb_resize_values *values);

/* Place o of axis d: how many neighbours there are, their weights, and which is the first. Those
 * before the first or after the last element are the edge's (ebb_resize_at). Or one of the above.
 */
int64_t ebb_resize_place(const ebb_resize *r, int d, int64_t o, int64_t *begin, double *weight);

static inline int64_t ebb_resize_at(const ebb_resize_axis *l, int64_t i)
{
    return i < 0 ? 0 : i >= l->in ? l->in - 1 : i;
}

#ifdef __cplusplus
}
#endif
#endif
