/* rows.h: a product of float32 with a matrix that is not trained, rows of zeros of which cost nothing (frozen.c): those
 * without a label in the last layer, and what fills up in the backward of all. Asked for in the midst of a run, where
 * there are such rows.
 */
#pragma once

#include "kernels/kernels.h"

/* A FusedMatMul whose left operand lies as it is, by one matrix that is known before the run. */
bool ebb_rows_may_be_zero(const ebb_call *c);
ebb_status ebb_rows_workspace(const ebb_call *c, size_t *bytes);

bool ebb_rows_have_zeros(const ebb_call *c);
void ebb_rows_multiply(const ebb_call *c);
