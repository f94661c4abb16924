/* axes.h: the axes of a tensor in two lots, each walked on its own: those that are kept and those
 * that are added up over.
 *
 *     [N, C, H, W], over N H W       kept   C           output c begins at kept(c)
 *                                    gone   H W | N     its element i lies gone(i) behind
 *
 * Axes that are neighbours and fare alike are one axis.
 */
#pragma once

#include "kernels/cuda/cuda.h"

typedef struct ebb_cuda_axes { /* merged, innermost first */
    int32_t rank;
    uint32_t narrow; /* indices fit in 32 bits: divisions are cheap */
    int64_t dims[EBB_MAX_RANK], stride[EBB_MAX_RANK];
} ebb_cuda_axes;

EBB_GPU_INLINE int64_t ebb_cuda_place_of(const ebb_cuda_axes *a, int64_t i)
{
    int64_t at = 0;
    if (a->rank <= 1)
        return i * a->stride[0];
    if (a->narrow) {
        uint32_t rest = (uint32_t)i;
        for (int d = 0; d < a->rank; d++) {
            const uint32_t next = rest / (uint32_t)a->dims[d];
            at += (int64_t)(rest - next * (uint32_t)a->dims[d]) * a->stride[d];
            rest = next;
        }
        return at;
    }
    for (int d = 0; d < a->rank; d++) {
        const int64_t next = i / a->dims[d];
        at += (i - next * a->dims[d]) * a->stride[d];
        i = next;
    }
    return at;
}

static inline void ebb_cuda_axes_push(ebb_cuda_axes *a, int64_t n, int64_t stride)
{
    if (n == 1)
        return;
    if (a->rank > 0 && stride == a->stride[a->rank - 1] * a->dims[a->rank - 1]) {
        a->dims[a->rank - 1] *= n;
        return;
    }
    a->dims[a->rank] = n;
    a->stride[a->rank++] = stride;
}

static inline int64_t ebb_cuda_axes_size(ebb_cuda_axes *a)
{
    int64_t n = 1;
    for (int d = 0; d < a->rank; d++)
        n *= a->dims[d];
    a->narrow = n <= 0x7FFFFFFF ? 1u : 0u;
    return n;
}

/* Whether the innermost axis (of more than one element) is among those that go. */
static inline bool ebb_cuda_axes_split(const ebb_type *x, const bool *goes, ebb_cuda_axes *kept,
                                       ebb_cuda_axes *gone)
{
    bool along = true, first = true;
    int64_t stride = 1;
    memset(kept, 0, sizeof *kept);
    memset(gone, 0, sizeof *gone);
    for (int d = x->rank - 1; d >= 0; d--) {
        ebb_cuda_axes_push(goes[d] ? gone : kept, x->dims[d], stride);
        if (x->dims[d] != 1 && first) {
            along = goes[d];
            first = false;
        }
        stride *= x->dims[d];
    }
    return along;
}
