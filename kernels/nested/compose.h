/* compose.h: operators that mean several others, one behind or beside the other. */
#pragma once

#include "kernels/kernels.h"

extern const ebb_kernel ebb_kernel_compose;

/* Whether the operator means others. */
bool ebb_is_composed(ebb_op op);

/* Gives the call the kernel that runs, for each part, what the call's back ends have for it.
 * EBB_UNSUPPORTED, naming the node, where a part has none. */
ebb_status ebb_pick_composed(ebb_call *call);
