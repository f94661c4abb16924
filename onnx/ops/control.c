/* control: operators with bodies. */
#include "onnx/ops/ops.h"

/* What the file says of the outputs stands: pass unroll puts the bodies' nodes in their place, and
 * those have rules. */
ebb_status ebb_infer_control(ebb_infer *c)
{
    (void)c;
    return NULL;
}
