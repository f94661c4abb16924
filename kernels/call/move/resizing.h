/* resizing.h: what a call of Resize or Upsample says, for all back ends; what it means is in
 * onnx/words/resize.h. */
#pragma once

#include "kernels/kernels.h"
#include "onnx/words/resize.h"

EBB_C_BEGIN

/* Entry i of an operand that a back end can read now. */
typedef double (*ebb_resizing_number)(const ebb_operand *operand, int64_t i);

/* NULL where shapes, scales and sizes fit each other, else why not. */
const char *ebb_resizing_misfit(const ebb_call *call);

typedef struct ebb_resizing_inputs { /* which inputs say how to scale; -1: there is none */
    int scales, sizes, roi;
} ebb_resizing_inputs;

/* Of a call that fits: those that count. */
ebb_resizing_inputs ebb_resizing_inputs_of(const ebb_call *call);

/* What attributes and shapes say, of a call that fits. */
void ebb_resizing_read(ebb_resize *r, const ebb_call *call);

/* Why its roi is not one, or NULL. */
const char *ebb_resizing_roi_misfit(const ebb_resize *r, const ebb_call *call);

/* And what scales, sizes and roi say. */
ebb_status ebb_resizing_scale(ebb_resize *r, const ebb_call *call, ebb_resizing_number number);

EBB_C_END
