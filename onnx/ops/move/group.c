/* group: types of what the processes of a group ask each other (kernels/group.h). */
#include "onnx/graph/shape.h"
#include "onnx/ops/ops.h"

ebb_status ebb_infer_rank(ebb_infer *c)
{
    c->out[0] = ebb_type_tensor(EBB_I64, 0, NULL);
    return NULL;
}

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
    EBB_TRY(ebb_infer_need(c, 1));
    EBB_TRY(length_of(c, c->in[0], &length));
    c->out[0] = ebb_type_tensor((ebb_dtype)c->in[0]->dtype, 1, &length);
    return NULL;
}

/* (S, X) {ranks} -> Y like X. */
ebb_status ebb_infer_all_gather(ebb_infer *c)
{
    int64_t length, n;
    EBB_TRY(ebb_infer_need(c, 2));
    EBB_TRY(length_of(c, c->in[1], &length));
    if (length >= 0 && ebb_type_elements(c->in[0], &n) && n != length)
        return ebb_infer_error(c, "a part has %lld elements, and %lld are expected", (long long)n,
                               (long long)length);
    c->out[0] = *c->in[1];
    return NULL;
}
