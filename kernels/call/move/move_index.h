/* move_index.h: operators that take elements by indices: what their calls say, for all back ends. */
#pragma once

#include "kernels/operand.h"

EBB_C_BEGIN

const char *ebb_gather_misfit(const ebb_call *c);
const char *ebb_gather_elements_misfit(const ebb_call *c);
const char *ebb_gather_nd_misfit(const ebb_call *c);
const char *ebb_one_hot_misfit(const ebb_call *c);
const char *ebb_non_zero_misfit(const ebb_call *c);
const char *ebb_tensor_scatter_misfit(const ebb_call *c);

EBB_C_END
