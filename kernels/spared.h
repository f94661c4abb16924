/* spared.h: operations that a kernel did not make, because what they read are rows of zeros, or rows whose label is
 * ignored. How many these are is in the data, so no plan knows it; a profile takes them off (exec/run/profile.c).
 */
#pragma once

#include "onnx/words/status.h"

EBB_C_BEGIN

/* Adds to what the thread that runs the call has spared. */
void ebb_spare(double operations);
/* How much that is since it was asked for last. */
double ebb_spared(void);

EBB_C_END
