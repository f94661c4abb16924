/* widen.h: float16 and bfloat16 for kernels that compute in float32. */
#ifndef EBB_KERNELS_NESTED_WIDEN_H
#define EBB_KERNELS_NESTED_WIDEN_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether an operand is float16 or bfloat16 and may be computed as float32. */
bool ebb_can_widen(const ebb_call *call);

/* Gives the call the kernel that widens its operands and runs, among the call's back ends, one that
 * takes them as float32. EBB_UNSUPPORTED, naming the node, where none takes them so either. */
ebb_status ebb_pick_widened(ebb_call *call);

/* count elements; exact. And back: to nearest, ties to even; beyond the largest is infinity. */
void ebb_widen(float *to, const void *from, ebb_dtype dtype, int64_t count);
void ebb_narrow(void *to, const float *from, ebb_dtype dtype, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
