/* shape.c: types by parts, and what inference asks of a node's operands: shape.h. */
#include "onnx/graph/shape.h"

ebb_type ebb_type_unranked(ebb_dtype dtype)
{
    ebb_type type = ebb_type_none();
    type.kind = EBB_KIND_TENSOR;
    type.dtype = (uint8_t)dtype;
    type.rank = -1;
    return type;
}

ebb_type ebb_type_ranked(ebb_dtype dtype, int rank)
{
    ebb_type type = ebb_type_unranked(dtype);
    type.rank = (int8_t)rank;
    for (int i = 0; i < EBB_MAX_RANK; i++) {
        type.dims[i] = -1;
        type.symbols[i] = (ebb_str){0};
    }
    return type;
}

void ebb_type_put_dim(ebb_type *type, int at, const ebb_type *from, int which)
{
    type->dims[at] = from->dims[which];
    type->symbols[at] = from->dims[which] < 0 ? from->symbols[which] : (ebb_str){0};
}

void ebb_type_set_dim(ebb_type *type, int at, int64_t size)
{
    type->dims[at] = size;
    type->symbols[at] = (ebb_str){0};
}

ebb_type ebb_type_bits(const ebb_type *x)
{
    ebb_type bits = ebb_type_ranked(EBB_U8, 1);
    int64_t elements;
    if (ebb_type_elements(x, &elements))
        ebb_type_set_dim(&bits, 0, elements / 8 + (elements % 8 != 0));
    return bits;
}

ebb_status ebb_infer_need(const ebb_infer *c, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (i >= c->input_count || c->in[i] == NULL)
            return ebb_infer_error(c, "input %u is required and absent", (unsigned)i);
    return NULL;
}

ebb_status ebb_infer_axis(const ebb_infer *c, int64_t axis, int rank, int *out)
{
    if (axis < -rank || axis >= rank)
        return ebb_infer_error(c, "axis %lld lies outside of rank %d", (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return NULL;
}

bool ebb_infer_constant_ints(const ebb_infer *c, uint32_t input, const int64_t **list,
                             int64_t *count)
{
    if (input >= c->input_count || c->constant[input] == NULL || c->constant[input]->data == NULL)
        return false;
    const ebb_tensor *t = c->constant[input];
    int64_t n;
    if (!ebb_type_elements(&t->type, &n) || n > 65536 ||
        (!ebb_dtype_is_integer((ebb_dtype)t->type.dtype) && t->type.dtype != EBB_BOOL))
        return false;
    int64_t *copy = EBB_NEW(c->scratch, int64_t, (size_t)n + 1);
    if (copy == NULL)
        return false;
    for (int64_t i = 0; i < n; i++)
        copy[i] = ebb_tensor_int(t, i);
    *list = copy;
    *count = n;
    return true;
}

ebb_status ebb_infer_shape_input(const ebb_infer *c, uint32_t input, ebb_dtype dtype)
{
    const int64_t *dims;
    int64_t rank;
    if (!ebb_infer_constant_ints(c, input, &dims, &rank)) {
        c->out[0] = ebb_type_unranked(dtype);
        const ebb_type *shape = c->in[input];
        if (shape->rank == 1 && shape->dims[0] >= 0 && shape->dims[0] <= EBB_MAX_RANK)
            c->out[0] = ebb_type_ranked(dtype, (int)shape->dims[0]);
        return NULL;
    }
    if (rank > EBB_MAX_RANK)
        return ebb_infer_error(c, "rank %lld is above the limit of %d", (long long)rank,
                               EBB_MAX_RANK);
    for (int64_t i = 0; i < rank; i++)
        if (dims[i] < 0)
            return ebb_infer_error(c, "dim %lld of the shape is %lld", (long long)i,
                                   (long long)dims[i]);
    c->out[0] = ebb_type_tensor(dtype, (int)rank, dims);
    return NULL;
}
