/* move_index.c: see move_index.h. */
#include "kernels/call/move/move_index.h"

#include "kernels/call/move/move.h"

const char *ebb_gather_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    if (!ebb_indices_are(&c->in[1]))
        return "indices are neither int32 nor int64";
    return ebb_same_dtype_misfit(c);
}

const char *ebb_gather_elements_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_gather_misfit(c));
    const ebb_type *data = &c->in[0].type, *index = &c->in[1].type;
    if (data->rank == 0 || index->rank != data->rank ||
        !ebb_type_same_shape(index, &c->out[0].type))
        return "indices do not fit the data";
    const int64_t axis = ebb_axis_of(c, "axis", 0, data->rank);
    for (int d = 0; d < data->rank; d++)
        if (d != axis && index->dims[d] > data->dims[d])
            return "indices do not fit the data";
    return NULL;
}

const char *ebb_gather_nd_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_gather_misfit(c));
    const ebb_type *data = &c->in[0].type, *t = &c->in[1].type;
    int64_t shared = ebb_attr_int(&c->attrs, "batch_dims", 0);
    if (t->rank < 1 || shared < 0 || shared >= t->rank || shared > data->rank ||
        t->dims[t->rank - 1] > data->rank - shared)
        return "indices do not fit the data";
    for (int d = 0; d < shared; d++)
        if (t->dims[d] != data->dims[d])
            return "indices do not fit the data";
    return NULL;
}

const char *ebb_one_hot_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    if (ebb_elements(&c->in[2].type) != 2 || c->in[2].type.dtype != c->out[0].type.dtype)
        return "values are not two of the output's dtype";
    if (c->out[0].type.rank != c->in[0].type.rank + 1)
        return "the output does not fit the indices";
    if (!ebb_dtype_is_integer((ebb_dtype)c->in[0].type.dtype) &&
        !ebb_dtype_is_float((ebb_dtype)c->in[0].type.dtype))
        return "indices are not numbers";
    return NULL;
}

const char *ebb_non_zero_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    if (c->out[0].type.dtype != EBB_I64 || c->out[0].type.rank != 2 ||
        c->out[0].type.dims[0] != c->in[0].type.rank)
        return "the output is not int64[rank, count]";
    return NULL;
}

const char *ebb_tensor_scatter_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    const ebb_type *x = &c->in[0].type, *u = &c->in[1].type;
    const int64_t axis = ebb_axis_of(c, "axis", -2, x->rank);
    if (axis < 1 || axis >= x->rank || u->rank != x->rank || u->dtype != x->dtype)
        return "cache, update and axis do not fit each other";
    for (int d = 0; d < x->rank; d++)
        if (d == axis ? u->dims[d] > x->dims[d] : u->dims[d] != x->dims[d])
            return "the update does not fit the cache";
    if (ebb_call_has(c, 2) &&
        (c->in[2].type.dtype != EBB_I64 || ebb_elements(&c->in[2].type) != x->dims[0]))
        return "there is not one write index for each of the batch";
    return NULL;
}
