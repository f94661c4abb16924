/* packed: bits in place of floats and bools. PackSign and PackBits keep one bit an element;
 * MaskGrad and UnpackBits read them. FewBit keeps one to four, FewBitGrad reads them. */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

/* (Y or B) -> uint8[ceil(n / 8)]. */
ebb_status ebb_infer_pack_bits(ebb_infer *c)
{
    c->out[0] = ebb_type_bits(c->in[0]);
    return NULL;
}

/* (X, borders) {bits} -> uint8[ceil(n / 8) * bits]. */
ebb_status ebb_infer_few_bit(ebb_infer *c)
{
    int64_t elements, bits = ebb_attr_int(&c->attrs, "bits", 1);
    if (bits < 1 || bits > 4)
        return ebb_infer_error(c, "bits is not 1, 2, 3 or 4");
    EBB_TRY(ebb_infer_vector(c, 1, (INT64_C(1) << bits) - 1, "borders"));
    c->out[0] = ebb_type_ranked(EBB_U8, 1);
    if (ebb_type_elements(c->in[0], &elements))
        ebb_type_set_dim(&c->out[0], 0, (elements / 8 + (elements % 8 != 0)) * bits);
    return NULL;
}

/* (bits) {shape} -> bool of that shape. */
ebb_status ebb_infer_unpack_bits(ebb_infer *c)
{
    uint32_t rank;
    int64_t elements;
    const int64_t *dims = ebb_attr_ints(&c->attrs, "shape", &rank);
    if (ebb_attr_find(&c->attrs, "shape") == NULL || rank > EBB_MAX_RANK)
        return ebb_infer_error(c, "shape is missing, or has a rank above %d", EBB_MAX_RANK);
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] < 0)
            return ebb_infer_error(c, "shape has a negative dim");
    c->out[0] = ebb_type_tensor(EBB_BOOL, (int)rank, dims);
    if (!ebb_type_elements(&c->out[0], &elements))
        return ebb_infer_error(c, "shape has too many elements");
    return NULL;
}
