/* window.h: windows over images as kernels see them: geometry.h in 32-bit numbers.
 *
 * Within one channel of one image every place is below 2^31, which the launchers prove; images and
 * channels are counted in 64 bits. Three axes always: missing leading ones have size 1.
 */
#pragma once

#include "kernels/cuda/gpu.h"
#include "kernels/call/geometry.h"

typedef struct ebb_cuda_window {
    int32_t wide[EBB_AXES], narrow[EBB_AXES], kernel[EBB_AXES];
    int32_t stride[EBB_AXES], dilation[EBB_AXES], before[EBB_AXES], after[EBB_AXES];
    int32_t wide_volume, narrow_volume, taps;
} ebb_cuda_window;

/* Fills *w, or says why its numbers do not fit. */
static inline const char *ebb_cuda_window_make(ebb_cuda_window *w, const ebb_geometry *g)
{
    const int64_t limit = INT64_C(1) << 30;
    int64_t volumes[3] = {1, 1, 1};
    memset(w, 0, sizeof *w);
    for (int axis = 0; axis < EBB_AXES; axis++) {
        const int64_t size[3] = {g->wide[axis], g->narrow[axis], g->kernel[axis]};
        int64_t last = (g->narrow[axis] > 0 ? g->narrow[axis] - 1 : 0) * g->stride[axis];
        int64_t reach = (g->kernel[axis] - 1) * g->dilation[axis];
        if (last > limit || reach > limit || size[0] > limit)
            return "a window reaches beyond 2^30 elements";
        for (int i = 0; i < 3; i++) {
            if (size[i] > 0 && volumes[i] > limit / size[i])
                return "a channel of an image, or a window, has more than 2^30 elements";
            volumes[i] *= size[i];
        }
        w->wide[axis] = (int32_t)size[0];
        w->narrow[axis] = (int32_t)size[1];
        w->kernel[axis] = (int32_t)size[2];
        w->stride[axis] = (int32_t)g->stride[axis];
        w->dilation[axis] = (int32_t)g->dilation[axis];
        w->before[axis] = (int32_t)g->pad_begin[axis];
        w->after[axis] = (int32_t)g->pad_end[axis];
    }
    w->wide_volume = (int32_t)volumes[0];
    w->narrow_volume = (int32_t)volumes[1];
    w->taps = (int32_t)volumes[2];
    return NULL;
}

/* Three coordinates of place i, the last axis fastest. */
EBB_GPU_INLINE void ebb_cuda_axes_of(int32_t at[EBB_AXES], const int32_t size[EBB_AXES], int32_t i)
{
    uint32_t rest = (uint32_t)i, last = (uint32_t)size[2], middle = (uint32_t)size[1];
    uint32_t row = rest / last;
    at[2] = (int32_t)(rest - row * last);
    at[0] = (int32_t)(row / middle);
    at[1] = (int32_t)(row - (uint32_t)at[0] * middle);
}
