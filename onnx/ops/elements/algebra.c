/* algebra: Einsum, determinants, counts of n-grams: their types. */
#include "onnx/words/einsum.h"
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

/* (A, B, ...) {equation}. */
ebb_status ebb_infer_einsum(ebb_infer *c)
{
    EBB_TRY(ebb_infer_need(c, c->input_count > 0 ? c->input_count : 1));
    ebb_einsum e;
    c->out[0] = ebb_type_unranked((ebb_dtype)c->in[0]->dtype);
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->in[i]->rank < 0)
            return NULL;
    const char *wrong =
        ebb_einsum_read(&e, ebb_attr_string(&c->attrs, "equation", ""), c->input_count, c->in);
    if (wrong != NULL)
        return ebb_infer_error(c, "%s", wrong);
    ebb_type out = ebb_type_ranked((ebb_dtype)c->in[0]->dtype, e.out_rank);
    for (int d = 0; d < e.out_rank; d++)
        ebb_type_set_dim(&out, d, e.size[d]);
    for (uint32_t i = 0; i < c->input_count; i++) // an unknown dim keeps its name
        for (int d = 0; d < c->in[i]->rank; d++)
            if (e.label[i][d] < e.out_rank && e.size[e.label[i][d]] < 0)
                ebb_type_put_dim(&out, e.label[i][d], c->in[i], d);
    c->out[0] = out;
    return NULL;
}

/* A multiplication for every combination of labels and every input. */
double ebb_cost_einsum(const ebb_infer *c)
{
    ebb_einsum e;
    double count = 2;
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->in[i] == NULL || c->in[i]->rank < 0)
            return 0;
    if (ebb_einsum_read(&e, ebb_attr_string(&c->attrs, "equation", ""), c->input_count, c->in) !=
        NULL)
        return 0;
    for (int l = 0; l < e.labels; l++)
        count *= e.size[l] > 0 ? (double)e.size[l] : 0;
    return count;
}

/* Elimination: for each element of a matrix about as many operations as it has rows. */
double ebb_cost_det(const ebb_infer *c)
{
    const ebb_type *x = ebb_infer_type(c, c->op == EBB_OP_DET_GRAD ? 1 : 0);
    return x != NULL && x->rank >= 2 ? ebb_type_count(x) * (double)x->dims[x->rank - 1] : 0;
}

/* (X [..., n, n]) -> X^-1. */
ebb_status ebb_infer_inverse(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    c->out[0] = *x;
    if (x->rank < 0)
        return NULL;
    int64_t rows = x->rank >= 2 ? x->dims[x->rank - 2] : -1;
    if (x->rank < 2 || (rows >= 0 && x->dims[x->rank - 1] >= 0 && x->dims[x->rank - 1] != rows))
        return ebb_infer_error(c, "the input is not of square matrices");
    return NULL;
}

/* (X [..., n, n]) -> [...]. */
ebb_status ebb_infer_det(ebb_infer *c)
{
    EBB_TRY(ebb_infer_inverse(c));
    if (c->in[0]->rank >= 0)
        c->out[0].rank = (int8_t)(c->in[0]->rank - 2);
    return NULL;
}

/* (dY [...], X [..., n, n]) -> dX. */
ebb_status ebb_infer_det_grad(ebb_infer *c)
{
    const ebb_type *dy = c->in[0], *x = c->in[1];
    c->out[0] = *x;
    if (x->rank < 0 || dy->rank < 0)
        return NULL;
    if (x->rank != dy->rank + 2)
        return ebb_infer_error(c, "there is not one number for each matrix");
    return NULL;
}

/* (X [C] or [N, C]) -> float32, an entry for each n-gram of the pool. */
ebb_status ebb_infer_tf_idf(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    uint32_t count;
    const int64_t *index = ebb_attr_ints(&c->attrs, "ngram_indexes", &count);
    int64_t most = -1;
    for (uint32_t i = 0; i < count; i++) {
        if (index[i] < 0 || index[i] >= INT32_MAX)
            return ebb_infer_error(c, "ngram_indexes has %lld", (long long)index[i]);
        most = index[i] > most ? index[i] : most;
    }
    c->out[0] = ebb_type_unranked(EBB_F32);
    if (x->rank < 0)
        return NULL;
    if (x->rank != 1 && x->rank != 2)
        return ebb_infer_error(c, "the input has rank %d, not 1 or 2", (int)x->rank);
    c->out[0] = ebb_type_ranked(EBB_F32, x->rank);
    if (x->rank == 2)
        ebb_type_put_dim(&c->out[0], 0, x, 0);
    ebb_type_set_dim(&c->out[0], x->rank - 1, most + 1);
    return NULL;
}
