/* pointwise: operators whose element i needs element i of the (broadcast) inputs alone: their
 * types. Gradients: pointwise_grad.c, activation_grad.c. */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

/* out[0] = the dtype given, the shape of all inputs broadcast together. */
static ebb_status broadcast_all(ebb_infer *c, ebb_dtype dtype)
{
    ebb_type out = ebb_type_tensor(EBB_NONE, 0, NULL);
    for (uint32_t i = 0; i < c->input_count; i++) {
        if (c->in[i] == NULL)
            return ebb_infer_error(c, "input %u is required and absent", (unsigned)i);
        const ebb_type *t = ebb_infer_type(c, i);
        ebb_type unknown = ebb_type_unranked(EBB_NONE);
        EBB_TRY(ebb_infer_broadcast_with(c, &out, t != NULL ? t : &unknown, i));
    }
    out.dtype = (uint8_t)dtype;
    c->out[0] = out;
    return NULL;
}

/* Element by element over broadcast inputs of one dtype. */
ebb_status ebb_infer_broadcast(ebb_infer *c)
{
    if (c->version < 7 && ebb_attr_int(&c->attrs, "broadcast", 0) != 0 &&
        ebb_attr_find(&c->attrs, "axis") != NULL)
        return ebb_error(EBB_UNSUPPORTED,
                         "%s: opset %lld broadcasts along the attribute axis; convert the model to "
                         "opset 7 or newer",
                         c->node, (long long)c->version);
    if (c->op != EBB_OP_POW) // the exponent may be of another dtype
        for (uint32_t i = 1; i < c->input_count; i++)
            EBB_TRY(ebb_infer_same_dtype(c, 0, i));
    return broadcast_all(c, (ebb_dtype)c->in[0]->dtype);
}

/* The same with a boolean result. */
ebb_status ebb_infer_compare(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same_dtype(c, 0, 1));
    return broadcast_all(c, EBB_BOOL);
}

/* out[0] has the type of in[0]. */
ebb_status ebb_infer_same(ebb_infer *c)
{
    c->out[0] = *c->in[0];
    return NULL;
}

/* (X, min, max): each bound is one number for all, as the standard has it. */
ebb_status ebb_infer_clip(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same(c));
    for (uint32_t i = 1; i < 3; i++) {
        const ebb_type *bound = ebb_infer_type(c, i);
        int64_t count;
        if (bound != NULL && bound->rank > 0 && ebb_type_elements(bound, &count) && count != 1)
            return ebb_infer_error(
                c,
                "%s is no scalar: Max and Min take bounds of several numbers, as "
                "torch.maximum and torch.minimum are exported",
                i == 1 ? "min" : "max");
    }
    return NULL;
}

/* (dY, X) -> dX: both of one type (a mask may be boolean), and dX of dY's. */
ebb_status ebb_infer_same_pair(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same_dims(c, 0, 1));
    if (c->in[1]->dtype != EBB_BOOL)
        EBB_TRY(ebb_infer_same_dtype(c, 0, 1));
    c->out[0] = *c->in[0];
    return NULL;
}

/* Along an axis that is one of X's; a scalar has none to name. */
ebb_status ebb_infer_same_axis(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same(c));
    const ebb_type *x = ebb_infer_type(c, 0);
    int axis;
    if (x == NULL || x->rank < 1)
        return NULL;
    return ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", -1), x->rank, &axis);
}

ebb_status ebb_infer_same_bool(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same(c));
    c->out[0].kind = EBB_KIND_TENSOR;
    c->out[0].dtype = EBB_BOOL;
    return NULL;
}

/* (condition, a, b): the condition is boolean and broadcasts too. */
ebb_status ebb_infer_where(ebb_infer *c)
{
    const ebb_type *condition = ebb_infer_type(c, 0);
    if (condition != NULL && condition->dtype != EBB_BOOL && condition->dtype != EBB_NONE)
        return ebb_infer_error(c, "the condition is %s, not bool",
                               ebb_dtype_name((ebb_dtype)condition->dtype));
    EBB_TRY(ebb_infer_same_dtype(c, 1, 2));
    ebb_dtype dtype = (ebb_dtype)c->in[1]->dtype;
    return broadcast_all(c, dtype != EBB_NONE ? dtype : (ebb_dtype)c->in[2]->dtype);
}

ebb_status ebb_infer_cast(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same(c));
    int64_t to = ebb_attr_int(&c->attrs, "to", EBB_NONE);
    if (to <= EBB_NONE || to >= EBB_DTYPE_COUNT)
        return ebb_infer_error(c, "attribute 'to' is %lld, which is no dtype", (long long)to);
    c->out[0].kind = EBB_KIND_TENSOR;
    c->out[0].dtype = (uint8_t)to;
    return NULL;
}

/* The same bits as another dtype of the same width. */
ebb_status ebb_infer_bit_cast(ebb_infer *c)
{
    EBB_TRY(ebb_infer_cast(c));
    ebb_dtype from = (ebb_dtype)c->in[0]->dtype, to = (ebb_dtype)c->out[0].dtype;
    if (from != EBB_NONE && ebb_dtype_bits(from) != ebb_dtype_bits(to))
        return ebb_infer_error(c, "%s and %s differ in width", ebb_dtype_name(from),
                               ebb_dtype_name(to));
    return NULL;
}

ebb_status ebb_infer_cast_like(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same(c));
    c->out[0].dtype = c->in[1]->dtype;
    return NULL;
}
