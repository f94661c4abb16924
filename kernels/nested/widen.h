/* widen.h: float16 and bfloat16 for kernels that compute in float32. */
#ifndef EBB_KERNELS_NESTED_WIDEN_H
#define EBB_KERNELS_NESTED_WIDEN_H

#include "kernels/plain/halves.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether an operand is float16 or bfloat16 and may be computed as float32. */
bool ebb_can_widen(const ebb_call *call);

/* Gives the call the kernel that widens its operands and runs, among the call's back ends, one that
 * takes them as float32. EBB_UNSUPPORTED, naming the node, where none takes them so either. */
ebb_status ebb_pick_widened(ebb_call *call);

#ifdef __cplusplus
}
#endif
#endif
