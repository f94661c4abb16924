/* product.c: see product.h. */
#include "kernels/fast/product.h"

static void swap(int64_t *a, int64_t *b)
{
    int64_t keep = *a;
    *a = *b;
    *b = keep;
}

/* type seen with `rank` dims, missing ones 1. A vector is a row (left) or a column. */
static void view(ebb_matrix *m, const ebb_type *type, int rank, bool transposed, bool left)
{
    m->dtype = (ebb_dtype)type->dtype;
    bool vector = type->rank == 1;
    int own = vector ? 2 : type->rank;
    for (int i = 0; i < rank - own; i++)
        m->dims[i] = 1;
    for (int i = 0; i < type->rank; i++)
        m->dims[rank - own + i] = type->dims[i];
    if (vector) {
        m->dims[rank - 2] = left ? 1 : type->dims[0];
        m->dims[rank - 1] = left ? type->dims[0] : 1;
    }
    ebb_strides(m->strides, rank, m->dims);
    if (transposed && !vector) {
        swap(&m->dims[rank - 1], &m->dims[rank - 2]);
        swap(&m->strides[rank - 1], &m->strides[rank - 2]);
    }
}

/* [b..., M, K] x [1..., K, N]: one product of b*M rows, where A's rows follow each other and can be
 * counted in 32 bits. No dim is 0 here. */
static int fold_batch(ebb_matrix *a, ebb_matrix *b, ebb_matrix *out, int rank, bool transposed)
{
    int64_t rows = a->dims[rank - 2];
    if (rank == 2 || transposed)
        return rank;
    for (int i = 0; i < rank - 2; i++) {
        if (b->dims[i] != 1 || a->dims[i] != out->dims[i] || rows > INT32_MAX / a->dims[i])
            return rank;
        rows *= a->dims[i];
    }
    a->dims[0] = out->dims[0] = rows;
    a->dims[1] = a->dims[rank - 1];
    b->dims[0] = b->dims[rank - 2];
    b->dims[1] = b->dims[rank - 1];
    out->dims[1] = out->dims[rank - 1];
    a->strides[0] = a->dims[1];
    out->strides[0] = out->dims[1];
    b->strides[0] = b->strides[rank - 2];
    b->strides[1] = b->strides[rank - 1];
    a->strides[1] = out->strides[1] = 1;
    return 2;
}

/* Neighbouring batch dims that both inputs have, or that one lacks altogether, are one. */
static int merge_batch(ebb_matrix *a, ebb_matrix *b, ebb_matrix *out, int rank)
{
    ebb_matrix *all[] = {a, b, out};
    int kept = 0;
    for (int i = 0; i < rank; i++) {
        bool merges = kept > 0 && i < rank - 2;
        for (int m = 0; merges && m < 2; m++) {
            bool had = all[m]->dims[kept - 1] == out->dims[kept - 1];
            merges = had == (all[m]->dims[i] == out->dims[i]) || out->dims[i] == 1 ||
                     out->dims[kept - 1] == 1;
            merges = merges && all[m]->dims[i] <= INT32_MAX / all[m]->dims[kept - 1];
        }
        for (int m = 0; m < 3; m++) {
            if (merges) {
                all[m]->dims[kept - 1] *= all[m]->dims[i];
            } else {
                all[m]->dims[kept] = all[m]->dims[i];
                all[m]->strides[kept] = all[m]->strides[i];
                continue;
            }
            all[m]->strides[kept - 1] = all[m]->strides[i];
        }
        kept += merges ? 0 : 1;
    }
    return kept;
}

static const char *shapes_agree(const ebb_product *p)
{
    const ebb_matrix *a = &p->a, *b = &p->b, *out = &p->out;
    const int rank = p->rank;
    if (a->dims[rank - 1] != b->dims[rank - 2] || a->dims[rank - 2] != out->dims[rank - 2] ||
        b->dims[rank - 1] != out->dims[rank - 1])
        return "the shapes disagree";
    for (int i = 0; i < rank - 2; i++)
        if ((a->dims[i] != 1 && a->dims[i] != out->dims[i]) ||
            (b->dims[i] != 1 && b->dims[i] != out->dims[i]) ||
            (a->dims[i] == 1 && b->dims[i] == 1 && out->dims[i] != 1))
            return "the batch shapes disagree";
    return NULL;
}

static const char *read_matmul(ebb_product *p, const ebb_call *call)
{
    const ebb_type *first = &call->in[0].type, *second = &call->in[1].type;
    const bool fused = call->op == EBB_OP_FUSED_MATMUL;
    const bool left = fused && ebb_attr_int(&call->attrs, "transA", 0) != 0;
    const bool right = fused && ebb_attr_int(&call->attrs, "transB", 0) != 0;
    ebb_matrix *a = &p->a, *b = &p->b, *out = &p->out;
    if (fused && (ebb_attr_int(&call->attrs, "transBatchA", 0) != 0 ||
                  ebb_attr_int(&call->attrs, "transBatchB", 0) != 0))
        return "no transposed batches";
    if (first->rank < 1 || second->rank < 1)
        return "a scalar";
    p->rank = first->rank > second->rank ? first->rank : second->rank;
    const int rank = p->rank = p->rank < 2 ? 2 : p->rank;
    view(a, first, rank, left, true);
    view(b, second, rank, right, false);
    out->dtype = (ebb_dtype)call->out[0].type.dtype;
    for (int i = 0; i < rank - 2; i++)
        out->dims[i] = a->dims[i] == 1 ? b->dims[i] : a->dims[i];
    out->dims[rank - 2] = a->dims[rank - 2];
    out->dims[rank - 1] = b->dims[rank - 1];
    ebb_strides(out->strides, rank, out->dims);
    EBB_ASK(shapes_agree(p));
    int64_t expected = 1, given = 0;
    for (int i = 0; i < rank; i++)
        expected *= out->dims[i];
    if (!ebb_type_elements(&call->out[0].type, &given) || given != expected)
        return "the output has another shape";
    p->rank = fold_batch(a, b, out, rank, left && first->rank > 1);
    if (p->rank > 2)
        p->rank = merge_batch(a, b, out, p->rank);
    p->alpha = fused ? (float)ebb_attr_float(&call->attrs, "alpha", 1.0) : 1.0f;
    return NULL;
}

static const char *read_gemm(ebb_product *p, const ebb_call *call)
{
    if (call->in[0].type.rank != 2 || call->in[1].type.rank != 2 || call->out[0].type.rank != 2)
        return "operands that are no matrices";
    p->rank = 2;
    p->alpha = (float)ebb_attr_float(&call->attrs, "alpha", 1.0);
    p->beta = (float)ebb_attr_float(&call->attrs, "beta", 1.0);
    p->biased = ebb_call_has(call, 2) && p->beta != 0.0f;
    view(&p->a, &call->in[0].type, 2, ebb_attr_int(&call->attrs, "transA", 0) != 0, true);
    view(&p->b, &call->in[1].type, 2, ebb_attr_int(&call->attrs, "transB", 0) != 0, false);
    view(&p->out, &call->out[0].type, 2, false, true);
    const char *why = shapes_agree(p);
    if (why != NULL || !p->biased)
        return why;
    const ebb_type *type = &call->in[2].type;
    if (type->rank > 2)
        return "C is no matrix";
    for (int i = 0; i < 2; i++) {
        const int from = i - (2 - type->rank);
        p->c.dims[i] = from < 0 ? 1 : type->dims[from];
        if (p->c.dims[i] != 1 && p->c.dims[i] != p->out.dims[i])
            return "the shape of C disagrees";
    }
    p->c.dtype = (ebb_dtype)type->dtype;
    ebb_strides(p->c.strides, 2, p->c.dims);
    return NULL;
}

const char *ebb_product_read(ebb_product *p, const ebb_call *call)
{
    *p = (ebb_product){0};
    return call->op == EBB_OP_GEMM ? read_gemm(p, call) : read_matmul(p, call);
}
