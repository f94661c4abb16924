/* control: operators with bodies. */
#include "onnx/ops/ops.h"

/* What the file says of the outputs stands: pass unroll puts the bodies' nodes in their place, fold
 * the tensors of a sequence, and those have rules. */
ebb_status ebb_infer_control(ebb_infer *c)
{
    (void)c;
    return NULL;
}

/* A gradient is as what it is taken by: input k. */
ebb_status ebb_infer_gradient(ebb_infer *c)
{
    for (uint32_t k = 0; k < c->output_count && k < c->input_count; k++)
        if (c->in[k] != NULL)
            c->out[k] = *c->in[k];
    return NULL;
}
