/* widen.h: float16 and bfloat16 for kernels that compute in float32. */
#pragma once

#include "kernels/plain/halves.h"
#include "kernels/kernels.h"

/* Whether an operand is float16 or bfloat16 and may be computed as float32. */
bool ebb_can_widen(const ebb_call *call);

/* Gives the call the kernel that widens its operands and runs, among the call's back ends, one that
 * takes them as float32. EBB_UNSUPPORTED, naming the node, where none takes them so either. */
ebb_status ebb_pick_widened(ebb_call *call);
