/* low_bit.h: the sizes of an optimizer's step whose states are codes, read from a call and checked
 * once for all back ends.
 *
 *     AdamWLowBit     (lr, T, W, G, M, M_scale, V, V_scale, M_map, V_map, key?)
 *                     -> W', M', M_scale', V', V_scale'
 *     MomentumLowBit  (R, T, W, G, V, V_scale, V_map, key?) -> W', V', V_scale'
 *
 * What codes mean is in kernels/plain/codes/low_bit.c.
 */
#ifndef EBB_KERNELS_CALL_LOW_BIT_H
#define EBB_KERNELS_CALL_LOW_BIT_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

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
const char *ebb_low_bit_unfit(const ebb_call *call);

#ifdef __cplusplus
}
#endif
#endif
