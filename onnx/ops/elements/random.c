/* random: dropout, and the operators that draw.
 *
 * ONNX's Dropout draws from a state of the runtime, so its mask must be kept. ai.ebb.Dropout draws
 * from a key in the graph: the same key gives the same mask again.
 */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

/* ---- inference ---- */

/* Y like X, and a mask of bool. */
static void with_mask(ebb_infer *c)
{
    c->out[0] = *c->in[0];
    if (c->output_count > 1) {
        c->out[1] = *c->in[0];
        c->out[1].kind = EBB_KIND_TENSOR;
        c->out[1].dtype = EBB_BOOL;
    }
}

/* (X, ratio?, training_mode?) -> Y, mask?. */
ebb_status ebb_infer_dropout(ebb_infer *c)
{
    for (uint32_t i = 1; i < 3; i++) {
        const ebb_type *t = ebb_infer_type(c, i);
        if (t != NULL && t->rank > 1)
            return ebb_infer_error(c, "input %u has rank %d, a scalar is expected", (unsigned)i,
                                   (int)t->rank);
    }
    with_mask(c);
    return NULL;
}

/* (X, key int64[2 or 4]) {ratio, stream, run} -> Y, mask?; DropoutPacked's mask is uint8[ceil(n / 8)]. */
ebb_status ebb_infer_ebb_dropout(ebb_infer *c)
{
    EBB_TRY(ebb_infer_vector(c, 1, -1, ""));
    const ebb_type *key = ebb_infer_type(c, 1);
    if (key != NULL &&
        ((key->dtype != EBB_NONE && key->dtype != EBB_I64) ||
         (key->rank == 1 && key->dims[0] >= 0 && key->dims[0] != 2 && key->dims[0] != 4)))
        return ebb_infer_error(c, "the key is not int64[2] or int64[4]");
    if (ebb_attr_int(&c->attrs, "run", 0) < 0)
        return ebb_infer_error(c, "run is below 0");
    double ratio = ebb_attr_float(&c->attrs, "ratio", -1.0);
    if (!(ratio >= 0.0 && ratio < 1.0))
        return ebb_infer_error(c, "ratio is missing or outside of [0, 1)");
    with_mask(c);
    int64_t elements;
    if (c->op == EBB_OP_EBB_DROPOUT_PACKED && c->output_count > 1) {
        c->out[1] = ebb_type_ranked(EBB_U8, 1);
        if (ebb_type_elements(c->in[0], &elements))
            ebb_type_set_dim(&c->out[1], 0, elements / 8 + (elements % 8 != 0));
    }
    return NULL;
}

static ebb_status drawn_dtype(const ebb_infer *c, int64_t otherwise, ebb_dtype *dtype)
{
    int64_t to = ebb_attr_int(&c->attrs, "dtype", otherwise);
    if (to < EBB_NONE || to >= EBB_DTYPE_COUNT ||
        (to != EBB_NONE && !ebb_dtype_is_float((ebb_dtype)to)))
        return ebb_infer_error(c, "dtype %lld is no float type", (long long)to);
    *dtype = (ebb_dtype)to;
    return NULL;
}

/* {dtype, shape} -> Y. */
ebb_status ebb_infer_random(ebb_infer *c)
{
    ebb_dtype dtype;
    uint32_t rank;
    const int64_t *dims = ebb_attr_ints(&c->attrs, "shape", &rank);
    if (dims == NULL && ebb_attr_find(&c->attrs, "shape") == NULL)
        return ebb_infer_error(c, "attribute 'shape' is missing");
    if (rank > EBB_MAX_RANK)
        return ebb_infer_error(c, "rank %u is above the limit of %d", (unsigned)rank, EBB_MAX_RANK);
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] < 0)
            return ebb_infer_error(c, "dim %u of the shape is %lld", (unsigned)i,
                                   (long long)dims[i]);
    EBB_TRY(drawn_dtype(c, EBB_F32, &dtype));
    c->out[0] = ebb_type_tensor(dtype, (int)rank, dims);
    return NULL;
}

/* (X) {dtype?} -> Y of X's shape. */
ebb_status ebb_infer_random_like(ebb_infer *c)
{
    ebb_dtype dtype;
    EBB_TRY(drawn_dtype(c, c->in[0]->dtype, &dtype));
    c->out[0] = *c->in[0];
    c->out[0].kind = EBB_KIND_TENSOR;
    c->out[0].dtype = (uint8_t)dtype;
    return NULL;
}

/* ---- gradients ---- */

/* y = x / (1 - ratio) where kept, else 0.  dx = dy / (1 - ratio) where kept, else 0.
 * Without a training flag, or with a false one, y = x. */
void ebb_grad_dropout(ebb_build *b, ebb_grad *c)
{
    ebb_value ratio = c->input_count > 1 ? c->x[1] : EBB_NO_VALUE;
    ebb_value training = c->input_count > 2 ? c->x[2] : EBB_NO_VALUE;
    double on = 1.0;
    if (training.i == 0 || (ebb_constant_scalar(b->g, training, &on) && on == 0.0)) {
        c->dx[0] = c->dy[0];
        return;
    }
    ebb_value mask = ebb_grad_need_output(b, c, 1, "mask");
    if (ratio.i == 0)
        ratio = ebb_const_scalar(b, EBB_F32, 0.5);
    c->dx[0] = ebb_emit(b, EBB_OP_DROPOUT_GRAD, c->dy[0], mask, ratio, training);
}

/* The same with the ratio as an attribute. */
void ebb_grad_ebb_dropout(ebb_build *b, ebb_grad *c)
{
    ebb_value mask = ebb_grad_need_output(b, c, 1, "mask");
    ebb_value ratio = ebb_const_scalar(b, EBB_F32, ebb_attr_float(&c->attrs, "ratio", 0.0));
    ebb_value on = ebb_const_scalar(b, EBB_BOOL, 1.0);
    c->dx[0] = ebb_emit(b, EBB_OP_DROPOUT_GRAD, c->dy[0], mask, ratio, on);
}
