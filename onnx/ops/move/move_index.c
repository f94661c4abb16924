/* move, second half: operators led by an index tensor, and those that make tensors from shapes.
 * Types only; gradients are in move_grad.c.
 */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

#include <math.h>

ebb_status ebb_infer_gather(ebb_infer *c)
{
    const ebb_type *x = c->in[0], *index = c->in[1];
    c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
    if (x->rank < 0 || index->rank < 0)
        return NULL;
    int axis;
    EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->rank, &axis));
    int rank = x->rank - 1 + index->rank, at = 0;
    if (rank > EBB_MAX_RANK)
        return ebb_infer_error(c, "rank %d is above the limit of %d", rank, EBB_MAX_RANK);
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, rank);
    for (int i = 0; i < axis; i++)
        ebb_type_put_dim(&out, at++, x, i);
    for (int i = 0; i < index->rank; i++)
        ebb_type_put_dim(&out, at++, index, i);
    for (int i = axis + 1; i < x->rank; i++)
        ebb_type_put_dim(&out, at++, x, i);
    c->out[0] = out;
    return NULL;
}

/* com.microsoft GatherGrad(shape, indices, dY) and GatherElementsGrad(dY, shape, indices). */
ebb_status ebb_infer_gather_grad(ebb_infer *c)
{
    uint32_t shape = c->op == EBB_OP_GATHER_GRAD ? 0 : 1, dy = c->op == EBB_OP_GATHER_GRAD ? 2 : 0;
    return ebb_infer_shape_input(c, shape, (ebb_dtype)c->in[dy]->dtype);
}

/* com.microsoft SliceGrad(dY, shape, starts, ends, axes?, steps?). */
ebb_status ebb_infer_slice_grad(ebb_infer *c)
{
    return ebb_infer_shape_input(c, 1, (ebb_dtype)c->in[0]->dtype);
}

ebb_status ebb_infer_gather_elements(ebb_infer *c)
{
    if (c->in[0]->rank >= 0 && c->in[1]->rank >= 0 && c->in[0]->rank != c->in[1]->rank)
        return ebb_infer_error(c, "the data has rank %d and the indices have %d",
                               (int)c->in[0]->rank, (int)c->in[1]->rank);
    c->out[0] = *c->in[1];
    c->out[0].dtype = c->in[0]->dtype;
    return NULL;
}

ebb_status ebb_infer_gather_nd(ebb_infer *c)
{
    const ebb_type *x = c->in[0], *index = c->in[1];
    c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
    if (index->rank == 0)
        return ebb_infer_error(c, "indices are a scalar");
    if (x->rank < 0 || index->rank < 0 || index->dims[index->rank - 1] < 0)
        return NULL;
    int64_t batch = ebb_attr_int(&c->attrs, "batch_dims", 0), k = index->dims[index->rank - 1];
    if (batch < 0 || batch >= index->rank || k < 1 || k > x->rank - batch)
        return ebb_infer_error(
            c, "indices of %lld coordinates do not fit rank %d after %lld batch dims", (long long)k,
            (int)x->rank, (long long)batch);
    int first = (int)(batch + k), rank = index->rank - 1 + x->rank - first, at = 0;
    if (rank > EBB_MAX_RANK)
        return ebb_infer_error(c, "rank %d is above the limit of %d", rank, EBB_MAX_RANK);
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, rank);
    for (int i = 0; i < index->rank - 1; i++)
        ebb_type_put_dim(&out, at++, index, i);
    for (int i = first; i < x->rank; i++)
        ebb_type_put_dim(&out, at++, x, i);
    c->out[0] = out;
    return NULL;
}

/* ---- tensors made from shapes ---- */

ebb_status ebb_infer_shape(ebb_infer *c)
{
    int64_t rank = c->in[0]->rank, count = -1;
    if (rank >= 0) {
        int64_t start = ebb_attr_int(&c->attrs, "start", 0);
        int64_t end = ebb_attr_int(&c->attrs, "end", rank);
        start = start < 0 ? start + rank : start;
        end = end < 0 ? end + rank : end;
        start = start < 0 ? 0 : start > rank ? rank : start;
        end = end < 0 ? 0 : end > rank ? rank : end;
        count = end > start ? end - start : 0;
    }
    c->out[0] = ebb_type_tensor(EBB_I64, 1, &count);
    return NULL;
}

ebb_status ebb_infer_size(ebb_infer *c)
{
    c->out[0] = ebb_type_tensor(EBB_I64, 0, NULL);
    return NULL;
}

static bool constant_type(const ebb_attr *a, ebb_type *out)
{
    int64_t count = (int64_t)a->count;
    if (strcmp(a->name, "value") == 0 && a->tensor != NULL)
        *out = a->tensor->type;
    else if (strcmp(a->name, "value_int") == 0)
        *out = ebb_type_tensor(EBB_I64, 0, NULL);
    else if (strcmp(a->name, "value_ints") == 0)
        *out = ebb_type_tensor(EBB_I64, 1, &count);
    else if (strcmp(a->name, "value_float") == 0)
        *out = ebb_type_tensor(EBB_F32, 0, NULL);
    else if (strcmp(a->name, "value_floats") == 0)
        *out = ebb_type_tensor(EBB_F32, 1, &count);
    else if (strcmp(a->name, "value_string") == 0)
        *out = ebb_type_tensor(EBB_STRING, 0, NULL);
    else if (strcmp(a->name, "value_strings") == 0)
        *out = ebb_type_tensor(EBB_STRING, 1, &count);
    else
        return false;
    return true;
}

ebb_status ebb_infer_constant(ebb_infer *c)
{
    for (uint32_t i = 0; i < c->attrs.count; i++)
        if (constant_type(&c->attrs.list[i], &c->out[0]))
            return NULL;
    if (ebb_attr_find(&c->attrs, "sparse_value") != NULL)
        return NULL; // what the file says
    return ebb_infer_error(c, "it has no value");
}

ebb_status ebb_infer_constant_of_shape(ebb_infer *c)
{
    const ebb_attr *value = ebb_attr_find(&c->attrs, "value");
    bool given = value != NULL && value->tensor != NULL;
    return ebb_infer_shape_input(c, 0, given ? (ebb_dtype)value->tensor->type.dtype : EBB_F32);
}

ebb_status ebb_infer_range(ebb_infer *c)
{
    int64_t count = -1;
    const ebb_tensor *at[3];
    bool known = true;
    for (uint32_t i = 0; i < 3; i++) {
        int64_t n;
        at[i] = c->constant[i];
        known = known && at[i] != NULL && at[i]->data != NULL &&
                ebb_type_elements(&at[i]->type, &n) && n == 1;
    }
    if (known && ebb_dtype_is_integer((ebb_dtype)c->in[0]->dtype)) {
        int64_t start = ebb_tensor_int(at[0], 0), limit = ebb_tensor_int(at[1], 0);
        int64_t delta = ebb_tensor_int(at[2], 0), span;
        if (delta == 0 || delta == INT64_MIN)
            return ebb_infer_error(c, "the step is %lld", (long long)delta);
        bool sound = delta > 0 ? !__builtin_sub_overflow(limit, start, &span)
                               : !__builtin_sub_overflow(start, limit, &span);
        if (!sound)
            return ebb_infer_error(c, "the range is too large");
        int64_t step = delta > 0 ? delta : -delta;
        count = span > 0 ? (span - 1) / step + 1 : 0;
    } else if (known && ebb_dtype_is_float((ebb_dtype)c->in[0]->dtype)) {
        double n = ceil((ebb_tensor_double(at[1], 0) - ebb_tensor_double(at[0], 0)) /
                        ebb_tensor_double(at[2], 0));
        if (!(n < 9e15))
            return ebb_infer_error(c, "the range is too large");
        count = n > 0 ? (int64_t)n : 0;
    }
    c->out[0] = ebb_type_tensor((ebb_dtype)c->in[0]->dtype, 1, &count);
    return NULL;
}

ebb_status ebb_infer_one_hot(ebb_infer *c)
{
    const ebb_type *index = c->in[0];
    ebb_dtype dtype = (ebb_dtype)c->in[2]->dtype;
    c->out[0] = ebb_type_unranked(dtype);
    if (index->rank < 0)
        return NULL;
    int axis;
    if (index->rank + 1 > EBB_MAX_RANK)
        return ebb_infer_error(c, "rank is above the limit of %d", EBB_MAX_RANK);
    EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", -1), index->rank + 1, &axis));
    ebb_type out = ebb_type_ranked(dtype, index->rank + 1);
    int64_t n;
    for (int i = 0, from = 0; i < out.rank; i++)
        if (i != axis)
            ebb_type_put_dim(&out, i, index, from++);
    const ebb_tensor *depth = c->constant[1];
    if (depth != NULL && depth->data != NULL && ebb_type_elements(&depth->type, &n) && n == 1) {
        double size = ebb_dtype_is_float((ebb_dtype)depth->type.dtype)
                          ? ebb_tensor_double(depth, 0)
                          : (double)ebb_tensor_int(depth, 0);
        if (!(size >= 0 && size < 9e15))
            return ebb_infer_error(c, "the depth is %g", size);
        ebb_type_set_dim(&out, axis, (int64_t)size);
    }
    c->out[0] = out;
    return NULL;
}

ebb_status ebb_infer_non_zero(ebb_infer *c)
{
    int64_t dims[2] = {c->in[0]->rank >= 0 ? c->in[0]->rank : -1, -1};
    const int64_t *list;
    int64_t count;
    if (ebb_infer_constant_ints(c, 0, &list, &count)) {
        dims[1] = 0;
        for (int64_t i = 0; i < count; i++)
            dims[1] += list[i] != 0;
    }
    c->out[0] = ebb_type_tensor(EBB_I64, 2, dims);
    return NULL;
}

ebb_status ebb_infer_top_k(ebb_infer *c)
{
    ebb_type out = *c->in[0];
    if (out.rank >= 0) {
        int axis;
        const int64_t *k;
        int64_t count;
        EBB_TRY(ebb_infer_axis(c, ebb_attr_int(&c->attrs, "axis", -1), out.rank, &axis));
        int64_t whole = out.dims[axis];
        ebb_type_set_dim(&out, axis, -1);
        if (ebb_infer_constant_ints(c, 1, &k, &count) && count == 1) {
            if (k[0] < 0 || (whole >= 0 && k[0] > whole))
                return ebb_infer_error(c, "k is %lld, axis %d has %lld elements", (long long)k[0],
                                       axis, (long long)whole);
            ebb_type_set_dim(&out, axis, k[0]);
        }
    }
    c->out[0] = out;
    if (c->output_count > 1) {
        c->out[1] = out;
        c->out[1].dtype = EBB_I64;
    }
    return NULL;
}

/* ---- Scatter ---- */

/* (data, indices, updates): an update for each index. */
ebb_status ebb_infer_scatter(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same_dims(c, 1, 2));
    c->out[0] = *c->in[0];
    return NULL;
}

/* (data, indices [i..., k], updates [i..., rest of data behind k axes]) */
ebb_status ebb_infer_scatter_nd(ebb_infer *c)
{
    const ebb_type *data = ebb_infer_type(c, 0), *index = ebb_infer_type(c, 1);
    const ebb_type *update = ebb_infer_type(c, 2);
    c->out[0] = *c->in[0];
    if (data == NULL || index == NULL || update == NULL || data->rank < 0 || index->rank < 0 ||
        update->rank < 0)
        return NULL;
    if (index->rank == 0)
        return ebb_infer_error(c, "indices are a scalar");
    int lists = index->rank - 1;
    int64_t depth = index->dims[lists];
    if (depth < 0)
        return NULL;
    if (depth > data->rank)
        return ebb_infer_error(c, "indices have %lld coordinates, the data has rank %d",
                               (long long)depth, (int)data->rank);
    bool fits = update->rank == lists + data->rank - (int)depth;
    for (int i = 0; fits && i < update->rank; i++) {
        int64_t wanted = i < lists ? index->dims[i] : data->dims[i - lists + (int)depth];
        fits = wanted < 0 || update->dims[i] < 0 || wanted == update->dims[i];
    }
    return fits ? NULL : ebb_infer_error(c, "updates do not fit the data and the indices");
}
