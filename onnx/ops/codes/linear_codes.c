/* linear: integers and small floats with a scale, as ONNX quantises, and products of them.
 *
 *   QuantizeLinear(x, scale, zero?) {axis, block_size, output_dtype} -> codes of x's shape
 *   DequantizeLinear(codes, scale, zero?) {axis, block_size, output_dtype} -> x
 *
 * The scale is one number, one for each place of the axis, or one for each block along the axis.
 */
#include "onnx/ops/ops.h"
#include "onnx/graph/shape.h"

static ebb_dtype asked_dtype(const ebb_infer *c)
{
    int64_t asked = ebb_attr_int(&c->attrs, "output_dtype", EBB_NONE);
    return asked > EBB_NONE && asked < EBB_DTYPE_COUNT ? (ebb_dtype)asked : EBB_NONE;
}

static const ebb_type *given(const ebb_infer *c, uint32_t i)
{
    return i < c->input_count ? c->in[i] : NULL;
}

/* The scale fits x, as far as both are known. */
static ebb_status check_scale(const ebb_infer *c)
{
    const ebb_type *x = c->in[0], *scale = c->in[1];
    const ebb_dtype dtype = (ebb_dtype)scale->dtype;
    int64_t count;
    if (ebb_attr_int(&c->attrs, "block_size", 0) < 0)
        return ebb_infer_error(c, "block_size is below 0");
    if (c->op == EBB_OP_DEQUANTIZE_LINEAR && dtype != EBB_NONE && !ebb_dtype_is_float(dtype) &&
        !ebb_dtype_is_small_float(dtype))
        return ebb_infer_error(c, "the scale holds no floats");
    if (x->rank < 0 || scale->rank < 0 || (ebb_type_elements(scale, &count) && count == 1))
        return NULL;
    int axis;
    EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", 1), x->rank, &axis));
    if (scale->rank != 1 && scale->rank != x->rank)
        return ebb_infer_error(c, "the scale has rank %d, the input has %d", (int)scale->rank,
                               (int)x->rank);
    bool one_axis = scale->rank == 1 && ebb_attr_int(&c->attrs, "block_size", 0) == 0;
    if (one_axis && scale->dims[0] >= 0 && x->dims[axis] >= 0 && scale->dims[0] != x->dims[axis])
        return ebb_infer_error(c, "axis %d has %lld places, the scale has %lld", axis,
                               (long long)x->dims[axis], (long long)scale->dims[0]);
    return NULL;
}

ebb_status ebb_infer_quantize_linear(ebb_infer *c)
{
    EBB_TRY(check_scale(c));
    const ebb_type *zero = given(c, 2);
    ebb_dtype asked = asked_dtype(c);
    c->out[0] = *c->in[0];
    c->out[0].dtype = (uint8_t)(asked != EBB_NONE ? asked : zero != NULL ? zero->dtype : EBB_U8);
    if (zero != NULL && zero->dtype != EBB_NONE && zero->dtype != c->out[0].dtype)
        return ebb_infer_error(c, "output_dtype and the dtype of the zero point differ");
    return NULL;
}

ebb_status ebb_infer_dequantize_linear(ebb_infer *c)
{
    EBB_TRY(check_scale(c));
    ebb_dtype asked = asked_dtype(c);
    c->out[0] = *c->in[0];
    c->out[0].dtype = (uint8_t)(asked != EBB_NONE ? asked : c->in[1]->dtype);
    return NULL;
}

/* (x) -> uint8 codes, scale, zero point. */
ebb_status ebb_infer_dynamic_quantize_linear(ebb_infer *c)
{
    c->out[0] = *c->in[0];
    c->out[0].dtype = EBB_U8;
    if (c->output_count > 1)
        c->out[1] = ebb_type_tensor((ebb_dtype)c->in[0]->dtype, 0, NULL);
    if (c->output_count > 2)
        c->out[2] = ebb_type_tensor(EBB_U8, 0, NULL);
    return NULL;
}

/* Shapes as the rule has them for inputs `left` and `right`, both taken to be of one dtype. */
static ebb_status as_pair(ebb_infer *c, ebb_infer_fn rule, uint32_t left, uint32_t right,
                          ebb_dtype dtype)
{
    ebb_type second = *c->in[right];
    second.dtype = c->in[left]->dtype;
    const ebb_type *in[2] = {c->in[left], &second};
    const ebb_tensor *constant[2] = {NULL, NULL};
    ebb_infer pair = *c;
    pair.in = in;
    pair.constant = constant;
    pair.input_count = 2;
    EBB_TRY(rule(&pair));
    c->out[0].dtype = (uint8_t)dtype;
    return NULL;
}

/* (A, B, zero of A?, zero of B?) -> int32. */
ebb_status ebb_infer_matmul_integer(ebb_infer *c)
{
    return as_pair(c, ebb_infer_matmul, 0, 1, EBB_I32);
}

ebb_status ebb_infer_conv_integer(ebb_infer *c)
{
    return as_pair(c, ebb_infer_conv, 0, 1, EBB_I32);
}

/* (a, its scale, its zero, b, its scale, its zero, y's scale, y's zero). */
ebb_status ebb_infer_qlinear_matmul(ebb_infer *c)
{
    return as_pair(c, ebb_infer_matmul, 0, 3, (ebb_dtype)c->in[7]->dtype);
}

ebb_status ebb_infer_qlinear_conv(ebb_infer *c)
{
    return as_pair(c, ebb_infer_conv, 0, 3, (ebb_dtype)c->in[7]->dtype);
}
