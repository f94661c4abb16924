/* scatter.h: what calls of ScatterElements, ScatterND, GatherGrad and GatherElementsGrad say, read
 * and checked once for all back ends. */
#pragma once

#include "kernels/operand.h"

EBB_C_BEGIN

/* How an update meets what is there: attribute reduction; the gradients add. */
typedef enum ebb_combine {
    EBB_COMBINE_SET,
    EBB_COMBINE_ADD,
    EBB_COMBINE_MUL,
    EBB_COMBINE_MAX,
    EBB_COMBINE_MIN,
    EBB_COMBINE_UNKNOWN
} ebb_combine;

ebb_combine ebb_combine_of(const ebb_call *c);

/* NULL, or why none of these takes the call. combines: the back end can do so for these dtypes. */
const char *ebb_scatter_elements_misfit(const ebb_call *c, bool combines); /* and the gradient */
const char *ebb_scatter_nd_misfit(const ebb_call *c, bool combines);
const char *ebb_gather_grad_misfit(const ebb_call *c, bool combines);

EBB_C_END
