/* group: types of what the processes of a group ask each other (kernels/away/group.h). */
#include "onnx/graph/shape.h"
#include "onnx/ops/ops.h"

/* As many elements as each rank has of a tensor laid out flat; -1: not known. */
static ebb_status length_of(const ebb_infer *c, const ebb_type *whole, int64_t *length)
{
    int64_t n;
    const int64_t ranks = ebb_attr_int(&c->attrs, "ranks", 1);
    if (ranks < 1)
        return ebb_infer_error(c, "a group of %lld processes", (long long)ranks);
    *length = ebb_type_elements(whole, &n) ? n / ranks + (n % ranks != 0) : -1;
    return NULL;
}

/* (X) {ranks} -> one rank's part of X, flat. */
ebb_status ebb_infer_shard(ebb_infer *c)
{
    int64_t length;
    EBB_TRY(length_of(c, c->in[0], &length));
    c->out[0] = ebb_type_tensor((ebb_dtype)c->in[0]->dtype, 1, &length);
    return NULL;
}

static ebb_status put_together(ebb_infer *c, const ebb_type *whole)
{
    int64_t length, n;
    EBB_TRY(length_of(c, whole, &length));
    if (length >= 0 && ebb_type_elements(c->in[0], &n) && n != length)
        return ebb_infer_error(c, "a part has %lld elements, and %lld are expected", (long long)n,
                               (long long)length);
    c->out[0] = *whole;
    return NULL;
}

/* (S, X) {ranks} -> Y like X. */
ebb_status ebb_infer_all_gather(ebb_infer *c)
{
    return put_together(c, c->in[1]);
}

/* (S) {ranks, shape} -> X of that shape. */
ebb_status ebb_infer_unshard(ebb_infer *c)
{
    uint32_t rank;
    const int64_t *dims = ebb_attr_ints(&c->attrs, "shape", &rank);
    if (dims == NULL || rank > EBB_MAX_RANK)
        return ebb_infer_error(c, "it has no shape of at most %d axes", EBB_MAX_RANK);
    const ebb_type whole = ebb_type_tensor((ebb_dtype)c->in[0]->dtype, (int)rank, dims);
    for (uint32_t d = 0; d < rank; d++)
        if (dims[d] < 0)
            return ebb_infer_error(c, "axis %u of its shape has %lld elements", d,
                                   (long long)dims[d]);
    return put_together(c, &whole);
}
