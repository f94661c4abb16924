/* move_shape.h: operators that show the same bytes in another shape, or are made from shapes and attributes: what their
 * calls say, for all back ends. */
#pragma once

#include "kernels/operand.h"

EBB_C_BEGIN

const char *ebb_view_misfit(const ebb_call *c);   /* Identity, Reshape, ...; row-major or not */
const char *ebb_shape_misfit(const ebb_call *c);  /* Shape, Size */
const int64_t *ebb_shape_dims(const ebb_call *c); /* of Shape: the first one asked for */
const char *ebb_trilu_misfit(const ebb_call *c);
const char *ebb_range_misfit(const ebb_call *c); /* but for the dtype */

/* The bytes of a Constant node's value; NULL where it is of a kind that has none. *number keeps
 * them for a single float. */
const void *ebb_constant_bytes(const ebb_call *c, float *number, size_t *bytes);
const char *ebb_constant_misfit(const ebb_call *c);
/* The element of which ConstantOfShape is full. */
const void *ebb_constant_of_shape_value(const ebb_call *c);
const char *ebb_constant_of_shape_misfit(const ebb_call *c);

EBB_C_END
