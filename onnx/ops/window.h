/* window.h: the sliding window of convolutions and pools, with auto_pad resolved. */
#pragma once

#include "onnx/tables/op.h"

/* Of one axis; keeps arithmetic with sizes, strides and pads from overflowing. */
#define EBB_WINDOW_LIMIT (INT64_C(1) << 40)

typedef struct ebb_window {
    int rank; /* spatial axes */
    int64_t kernel[EBB_MAX_RANK], stride[EBB_MAX_RANK], dilation[EBB_MAX_RANK];
    int64_t begin[EBB_MAX_RANK], end[EBB_MAX_RANK]; /* pads; known where `known` */
    int64_t output_padding[EBB_MAX_RANK];           /* transposed convolutions */
    int64_t out[EBB_MAX_RANK];                      /* output size; -1: unknown */
} ebb_window;

/* The window of a node whose input has these spatial dims (-1: unknown). kernel: from the weight,
 * or NULL: the attribute kernel_shape alone. Pads that depend on an unknown dim are 0. A sentence
 * where the attributes contradict each other, else NULL. */
const char *ebb_window_resolve(ebb_window *w, const ebb_attrs *attrs, int rank, const int64_t *dims,
                               const int64_t *kernel, bool ceil_mode);

/* The same for ConvTranspose, where auto_pad and output_shape decide the pads. */
const char *ebb_window_resolve_transposed(ebb_window *w, const ebb_attrs *attrs, int rank,
                                          const int64_t *dims, const int64_t *kernel);
