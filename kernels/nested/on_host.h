/* on_host.h: calls of a device that the host computes. */
#pragma once

#include "kernels/kernels.h"

/* Gives the call the kernel that brings its operands to the host, runs there what the back end
 * "cpu" has for it, and takes the outputs back. EBB_UNSUPPORTED where that has nothing either. */
ebb_status ebb_pick_on_host(ebb_call *call);

/* Whether that is the call's kernel. */
bool ebb_is_on_host(const ebb_kernel *kernel);
