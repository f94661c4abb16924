/* beside.h: Store and Fetch of a device that is not the host: its own copies beside its work. */
#pragma once

#include "kernels/kernels.h"

/* Gives the call its kernel. EBB_UNSUPPORTED where the device has no ways to the host's memory. */
ebb_status ebb_pick_beside(ebb_call *call);
