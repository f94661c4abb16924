/* sampled.h: images read between their elements, as nodes: what the gradients of GridSample and
 * DeformConv share. In sampled.c.
 *
 *     value[n, c, q] = sum over taps t of w[n, t, q] x[n, c, at[n, t, q]]
 *
 * A place q has one coordinate an axis, in elements from 0; its taps are the product of the axes'
 * neighbours: 1 (nearest), 2 (linear) or 4 (cubic) an axis.
 */
#pragma once

#include "onnx/graph/build.h"

typedef struct ebb_sampling {
    enum { EBB_SAMPLE_NEAREST, EBB_SAMPLE_LINEAR, EBB_SAMPLE_CUBIC } mode;
    enum { EBB_SAMPLE_ZEROS, EBB_SAMPLE_BORDER, EBB_SAMPLE_REFLECTION } padding;
    bool align; /* reflect about the middles of the edge elements, not about their ends */
    int rank;   /* axes of space */
    int64_t size[EBB_MAX_RANK];
} ebb_sampling;

typedef struct ebb_sampled {
    bool wants_value, wants_dx, wants_places; /* given */
    ebb_value value;                          /* [N, C, Q] */
    ebb_value dx;                             /* [N, C, S] */
    ebb_value dplace[EBB_MAX_RANK];           /* [N, Q], one an axis */
} ebb_sampled;

/* x: [N, C, S], S the product of the sizes, not 0; places: one [N, Q] of float32 or float64 an
 * axis; dy: [N, C, Q], the gradient of the value. With REFLECTION and BORDER places must lie within
 * an element of the image (ebb_emit_folded). NaN samples some element, and gives NaN. */
void ebb_emit_sampled(ebb_build *b, const ebb_sampling *s, ebb_value x, const ebb_value *places,
                      ebb_value dy, ebb_sampled *out);

/* Coordinates along axis d brought into the image, as padding says, and the derivative of that (no
 * value: 1). */
ebb_value ebb_emit_folded(ebb_build *b, const ebb_sampling *s, int d, ebb_value at,
                          ebb_value *slope);
