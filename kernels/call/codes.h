/* codes.h: how Quantize and SplitFrequency cut a tensor, how an optimizer cuts its states, and which
 * operands fit: read from a call and checked once for all back ends.
 *
 *     Quantize         X [rows, inner], each row in groups of `group` elements, the last shorter
 *                      codes [rows, row_bytes], range [rows, groups, {low, step}]
 *     SplitFrequency   X [N, C, height, width]: `count` = N * C planes
 *                      low [N, C, low_height, low_width], codes [N, C, bytes], range [N, C, 2]
 *
 * What codes mean is in kernels/plain/codes/codes.c.
 */
#pragma once

#include "kernels/kernels.h"

EBB_C_BEGIN

typedef struct ebb_groups {
    int64_t rows, inner, group, groups, row_bytes;
    uint32_t bits; /* of a code: 1, 2, 4 or 8 */
} ebb_groups;

typedef struct ebb_planes {
    int64_t height, width, block, low_height, low_width, bytes, count;
    uint32_t bits;
} ebb_planes;

/* Of Quantize and QuantizeRunning, and of Dequantize, whose sizes are those of the operands: some
 * rows of a tensor will do. */
ebb_groups ebb_quantize_groups(const ebb_call *call);
ebb_groups ebb_dequantize_groups(const ebb_call *call);
/* x: the type of the images. */
ebb_planes ebb_split_planes(const ebb_call *call, const ebb_type *x);

/* NULL, or why these are no operands of the operator, whose tensor may be of any float dtype:
 * shapes and attributes that contradict each other are found here, so loops may trust the sizes.
 * Operands are row-major and static already. */
const char *ebb_quantize_misfit(const ebb_call *call);
const char *ebb_quantize_running_misfit(const ebb_call *call);
const char *ebb_dequantize_misfit(const ebb_call *call);
const char *ebb_split_frequency_misfit(const ebb_call *call);
const char *ebb_split_frequency_decode_misfit(const ebb_call *call);

/* ---- optimizers' steps whose states are codes; what these mean: kernels/plain/codes/low_bit.c ----
 *
 *     AdamWLowBit     (lr, T, W, G, M, M_scale, V, V_scale, M_map, V_map, key?)
 *                     -> W', M', M_scale', V', V_scale'
 *     MomentumLowBit  (R, T, W, G, V, V_scale, V_map, key?) -> W', V', V_scale'
 */

enum {
    EBB_LOW_BIT_CODES = 256, /* at most, of a map */
    EBB_LOW_BIT_BLOCK = 4096 /* elements of a scale, at most; a multiple of 32 */
};

typedef struct ebb_low_bit {
    int64_t n, block, blocks; /* elements, elements of a scale, scales */
    int64_t bits;             /* 4 or 8 */
    uint32_t states;          /* 2: M and V; 1: V */
    uint32_t stream;
    bool draws; /* rounds at random, by the key, which is the last input */
} ebb_low_bit;

ebb_low_bit ebb_low_bit_of(const ebb_call *call);

/* NULL, or why these are no operands of the operator, whose weight may be of any float dtype: the
 * same as those of gradient, scales and maps. Operands are row-major and static already. */
const char *ebb_low_bit_misfit(const ebb_call *call);

EBB_C_END
