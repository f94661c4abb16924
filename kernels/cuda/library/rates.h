/* rates.h: what GPUs do at best, as their vendor says, by name. For the roofline of exec/weigh/estimate.h.
 */
#pragma once

#include "kernels/device.h"

#include <stdbool.h>

EBB_C_BEGIN

/* name: a described device's ("h100"), or what a driver calls its own ("NVIDIA H100 80GB HBM3").
 * tf32: whether products of float32 may be TF32. Never NULL: those of an A100 where the name is
 * not known. Static. */
const ebb_rates *ebb_cuda_rates(const char *name, bool tf32);

EBB_C_END
