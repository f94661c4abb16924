/* geometry.h: the geometry of convolution and pooling, read from attributes once for all back ends.
 *
 * One, two or three spatial axes are written as three: missing leading axes have size 1, kernel 1,
 * stride 1, no padding. That is the same computation, and the loops need no cases.
 */
#pragma once

#include "kernels/kernels.h"

EBB_C_BEGIN

enum { EBB_AXES = 3 };

typedef struct ebb_geometry {
    int spatial;                            /* spatial axes that the tensors really have: 1..3 */
    int64_t batch;                          /* N */
    int64_t groups;                         /* 1 for pooling */
    int64_t wide_channels, narrow_channels; /* channels of the wide and of the narrow tensor */
    /* The wide tensor is what windows slide over (Conv's X, ConvTranspose's Y); the narrow one has
     * an element per window (Conv's Y, ConvTranspose's X). */
    int64_t wide[EBB_AXES], narrow[EBB_AXES];
    int64_t kernel[EBB_AXES], stride[EBB_AXES], dilation[EBB_AXES];
    int64_t pad_begin[EBB_AXES], pad_end[EBB_AXES];
} ebb_geometry;

/* Reads strides, dilations, pads, auto_pad and group. weight: [.., .., k...] or NULL, where the
 * attribute kernel_shape gives the kernel. transposed: pads as ConvTranspose means them (the pads
 * of auto_pad and of output_shape follow from the sizes). Returns NULL, or why this is no window
 * that we can run: shapes that contradict each other are found here, so loops may trust the result.
 */
const char *ebb_geometry_read(ebb_geometry *window, const ebb_attrs *attrs, const ebb_type *wide,
                              const ebb_type *narrow, const ebb_type *weight, bool transposed);

/* A convolution with channels last, seen as its namesake: dims in the order N, C, spatial, and
 * layout EBB_LAYOUT_CHANNELS_LAST, of input, weight and output. The bytes are the same. */
typedef struct ebb_channels_view {
    ebb_call call; /* its operands are the view's: it is not to be moved */
    ebb_operand in[3], out[1];
} ebb_channels_view;

/* Conv of ConvNhwc, and so on; EBB_OP_UNKNOWN of any other. */
ebb_op ebb_channels_first_op(ebb_op op);
/* NULL, or why the call cannot be seen so. */
const char *ebb_channels_first_read(ebb_channels_view *view, const ebb_call *call);

/* The same for a whole call: Conv, ConvTranspose, ConvWeightGrad, channels first or last; and the
 * pools and their gradients (not the global ones). */
const char *ebb_conv_read(ebb_geometry *geometry, const ebb_call *call);
/* Of Conv, ConvTranspose or ConvWeightGrad: NULL, or why its bias, if it has one, does not fit. */
const char *ebb_conv_bias_misfit(const ebb_geometry *geometry, const ebb_call *call);
const char *ebb_pool_read(ebb_geometry *geometry, const ebb_call *call);

/* The same for ConvWeightGradPooled: wide is X, as the attribute input_shape has it, of which the
 * call has the averages over cells. side: elements of a cell along each axis, 1 for missing ones;
 * cells: how many there are. */
const char *ebb_pooled_read(ebb_geometry *geometry, int64_t side[EBB_AXES], int64_t cells[EBB_AXES],
                            const ebb_call *call);

/* Why the taps of MaxPoolPacked or MaxPoolPackedGrad are not what its windows need, or NULL. */
const char *ebb_taps_misfit(const ebb_geometry *geometry, const ebb_call *call);

/* Products over the three axes. */
int64_t ebb_geometry_volume(const int64_t size[EBB_AXES]);

/* Where window o starts in the wide tensor, negative in the padding. */
static inline void ebb_window_start(int64_t at[EBB_AXES], const ebb_geometry *w, int64_t o)
{
    for (int axis = EBB_AXES - 1; axis >= 0; axis--) {
        at[axis] = o % w->narrow[axis] * w->stride[axis] - w->pad_begin[axis];
        o /= w->narrow[axis];
    }
}

/* The offset within a channel of tap k of the window that starts at `at`; -1 in the padding. */
static inline int64_t ebb_place_of_tap(const ebb_geometry *w, const int64_t at[EBB_AXES], int64_t k)
{
    int64_t k2 = k % w->kernel[2], k1 = k / w->kernel[2] % w->kernel[1];
    int64_t i0 = at[0] + k / (w->kernel[2] * w->kernel[1]) * w->dilation[0];
    int64_t i1 = at[1] + k1 * w->dilation[1], i2 = at[2] + k2 * w->dilation[2];
    if (i0 < 0 || i0 >= w->wide[0] || i1 < 0 || i1 >= w->wide[1] || i2 < 0 || i2 >= w->wide[2])
        return -1;
    return (i0 * w->wide[1] + i1) * w->wide[2] + i2;
}

EBB_C_END
