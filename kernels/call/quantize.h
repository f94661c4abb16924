/* quantize.h: how Quantize and SplitFrequency cut a tensor, and which operands fit: read from a
 * call and checked once for all back ends.
 *
 *     Quantize         X [rows, inner], each row in groups of `group` elements, the last shorter
 *                      codes [rows, row_bytes], range [rows, groups, {low, step}]
 *     SplitFrequency   X [N, C, height, width]: `count` = N * C planes
 *                      low [N, C, low_height, low_width], codes [N, C, bytes], range [N, C, 2]
 *
 * What codes mean is in kernels/plain/codes/codes.c.
 */
#ifndef EBB_KERNELS_CALL_QUANTIZE_H
#define EBB_KERNELS_CALL_QUANTIZE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

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
const char *ebb_quantize_unfit(const ebb_call *call);
const char *ebb_quantize_running_unfit(const ebb_call *call);
const char *ebb_dequantize_unfit(const ebb_call *call);
const char *ebb_split_unfit(const ebb_call *call);
const char *ebb_split_decode_unfit(const ebb_call *call);

#ifdef __cplusplus
}
#endif
#endif
