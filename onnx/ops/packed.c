/* packed: bits in place of floats. PackSign keeps one bit an element; MaskGrad reads them. */
#include "onnx/ops/common.h"
#include "onnx/ops/ops.h"
#include "onnx/ops/shape.h"

/* (Y) -> uint8[ceil(n / 8)]. */
ebb_status ebb_infer_pack_sign(ebb_infer *c)
{
    int64_t elements;
    EBB_TRY(ebb_infer_need(c, 1));
    c->out[0] = ebb_type_ranked(EBB_U8, 1);
    if (ebb_type_elements(c->in[0], &elements))
        ebb_type_set_dim(&c->out[0], 0, elements / 8 + (elements % 8 != 0));
    return NULL;
}
