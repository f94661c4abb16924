/* matmul.c: MatMul, Gemm and FusedMatMul: one oneDNN primitive, with transposition as strides.
 *
 *   out[..., M, N] = alpha * sum over k of A[..., M, k] * B[..., k, N] (+ C)
 *
 * A batch that only A has is folded into M (a linear layer over [batch, tokens, features]). Batches
 * of single rows gain by it (64 of them: 2.5 times); with 4 rows or more each it makes no
 * difference.
 */
#include "kernels/fast/onednn.h"

typedef struct matrix { /* the last two dims of an operand and its batch dims, aligned right */
    ebb_dtype dtype;
    int64_t dims[EBB_MAX_RANK], strides[EBB_MAX_RANK];
    size_t piece; /* bytes from one of the plan's pieces to the next */
} matrix;

static void swap(int64_t *a, int64_t *b)
{
    int64_t keep = *a;
    *a = *b;
    *b = keep;
}

/* type seen with `rank` dims, missing ones 1. A vector is a row (left) or a column. */
static void view(matrix *m, const ebb_type *type, int rank, bool transposed, bool left)
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
static int fold_batch(matrix *a, matrix *b, matrix *out, int rank, bool transposed)
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
static int merge_batch(matrix *a, matrix *b, matrix *out, int rank)
{
    matrix *all[] = {a, b, out};
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

enum { ROWS = 8 }; /* or columns: fewer are not worth a piece */

/* Pieces of the batch, or else of whichever has more of them: rows or columns of the result. c: what
 * is added, or NULL. */
static void cut(ebb_dnnl_plan *plan, const ebb_call *call, matrix *a, matrix *b, matrix *out,
                matrix *c, int rank)
{
    const int64_t in_batch = rank > 2 ? ebb_dnnl_pieces(call, out->dims[0], 1) : 1;
    const int64_t in_rows = ebb_dnnl_pieces(call, out->dims[rank - 2], ROWS);
    const int64_t in_columns = ebb_dnnl_pieces(call, out->dims[rank - 1], ROWS);
    const bool by_batch = in_batch > 1 && in_batch >= in_rows && in_batch >= in_columns;
    const int axis = by_batch ? 0 : in_rows >= in_columns ? rank - 2 : rank - 1;
    matrix *all[] = {a, b, c, out};
    plan->pieces = by_batch ? in_batch : in_rows >= in_columns ? in_rows : in_columns;
    if (plan->pieces == 1)
        return;
    const int64_t count = out->dims[axis];
    for (int m = 0; m < 4; m++) {
        const bool contracts = (m == 0 && axis == rank - 1) || (m == 1 && axis == rank - 2);
        if (all[m] == NULL || contracts || all[m]->dims[axis] != count)
            continue;
        all[m]->dims[axis] /= plan->pieces;
        all[m]->piece = (size_t)(all[m]->dims[axis] * all[m]->strides[axis]) *
                        ebb_dtype_bits(all[m]->dtype) / 8;
    }
}

static const char *describe(ebb_dnnl_plan *plan, const ebb_call *call, matrix *a, matrix *b,
                            matrix *out, matrix *c, int rank, float alpha)
{
    ebb_dnnl_layout source, weights, result, added, *bias = c != NULL ? &added : NULL;
    a->piece = b->piece = out->piece = 0;
    cut(plan, call, a, b, out, c, rank);
    if (c != NULL)
        ebb_dnnl_strided(&added, c->dtype, rank, c->dims, c->strides);
    ebb_dnnl_strided(&source, a->dtype, rank, a->dims, a->strides);
    ebb_dnnl_strided(&weights, b->dtype, rank, b->dims, b->strides);
    ebb_dnnl_strided(&result, out->dtype, rank, out->dims, out->strides);
    const char *why =
        ebb_dnnl_describe_product(plan, &source, &weights, bias, &result, alpha, false);
    if (why == NULL)
        why = ebb_dnnl_add(plan, DNNL_ARG_SRC, false, 0, &source);
    if (why == NULL)
        why = ebb_dnnl_add(plan, DNNL_ARG_WEIGHTS, false, 1, &weights);
    if (why == NULL && bias != NULL)
        why = ebb_dnnl_add(plan, DNNL_ARG_BIAS, false, 2, bias);
    if (why == NULL)
        why = ebb_dnnl_add(plan, DNNL_ARG_DST, true, 0, &result);
    if (why != NULL)
        return why;
    plan->port[0].piece = a->piece;
    plan->port[1].piece = b->piece;
    if (c != NULL)
        plan->port[2].piece = c->piece;
    plan->port[plan->count - 1].piece = out->piece;
    return NULL;
}

static const char *shapes_agree(const matrix *a, const matrix *b, const matrix *out, int rank)
{
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

static const char *make_matmul(ebb_dnnl_plan *plan, const ebb_call *call)
{
    const char *why = ebb_dnnl_plain_numbers(call);
    if (why != NULL)
        return why;
    const ebb_type *first = &call->in[0].type, *second = &call->in[1].type;
    const ebb_type *result = &call->out[0].type;
    bool fused = call->op == EBB_OP_FUSED_MATMUL;
    bool left = fused && ebb_attr_int(&call->attrs, "transA", 0) != 0;
    bool right = fused && ebb_attr_int(&call->attrs, "transB", 0) != 0;
    if (fused && (ebb_attr_int(&call->attrs, "transBatchA", 0) != 0 ||
                  ebb_attr_int(&call->attrs, "transBatchB", 0) != 0))
        return "no transposed batches";
    if (first->rank < 1 || second->rank < 1)
        return "a scalar";
    int rank = first->rank > second->rank ? first->rank : second->rank;
    rank = rank < 2 ? 2 : rank;
    matrix a, b, out;
    view(&a, first, rank, left, true);
    view(&b, second, rank, right, false);
    out.dtype = (ebb_dtype)result->dtype;
    for (int i = 0; i < rank - 2; i++)
        out.dims[i] = a.dims[i] == 1 ? b.dims[i] : a.dims[i];
    out.dims[rank - 2] = a.dims[rank - 2];
    out.dims[rank - 1] = b.dims[rank - 1];
    ebb_strides(out.strides, rank, out.dims);
    why = shapes_agree(&a, &b, &out, rank);
    int64_t expected = 1, given = 0;
    for (int i = 0; i < rank; i++)
        expected *= out.dims[i];
    if (why == NULL && (!ebb_type_elements(result, &given) || given != expected))
        why = "the output has another shape";
    if (why != NULL)
        return why;
    rank = fold_batch(&a, &b, &out, rank, left && first->rank > 1);
    if (rank > 2)
        rank = merge_batch(&a, &b, &out, rank);
    return describe(plan, call, &a, &b, &out, NULL, rank,
                    fused ? (float)ebb_attr_float(&call->attrs, "alpha", 1.0) : 1.0f);
}

static const char *make_gemm(ebb_dnnl_plan *plan, const ebb_call *call)
{
    const char *why = ebb_dnnl_plain_numbers(call);
    if (why != NULL)
        return why;
    float alpha = (float)ebb_attr_float(&call->attrs, "alpha", 1.0);
    float beta = (float)ebb_attr_float(&call->attrs, "beta", 1.0);
    bool biased = ebb_dnnl_has(call, 2) && beta != 0.0f;
    // oneDNN adds the bias before it scales.
    if (biased && (alpha != 1.0f || beta != 1.0f))
        return "C with alpha or beta other than 1";
    if (call->in[0].type.rank != 2 || call->in[1].type.rank != 2 || call->out[0].type.rank != 2)
        return "operands that are no matrices";
    matrix a, b, out, c;
    view(&a, &call->in[0].type, 2, ebb_attr_int(&call->attrs, "transA", 0) != 0, true);
    view(&b, &call->in[1].type, 2, ebb_attr_int(&call->attrs, "transB", 0) != 0, false);
    view(&out, &call->out[0].type, 2, false, true);
    why = shapes_agree(&a, &b, &out, 2);
    if (why != NULL)
        return why;
    if (!biased)
        return describe(plan, call, &a, &b, &out, NULL, 2, alpha);
    const ebb_type *type = &call->in[2].type;
    if (type->rank > 2)
        return "C is no matrix";
    for (int i = 0; i < 2; i++) {
        int from = i - (2 - type->rank);
        c.dims[i] = from < 0 ? 1 : type->dims[from];
        if (c.dims[i] != 1 && c.dims[i] != out.dims[i])
            return "the shape of C disagrees";
    }
    c.piece = 0;
    c.dtype = (ebb_dtype)type->dtype;
    ebb_strides(c.strides, 2, c.dims);
    return describe(plan, call, &a, &b, &out, &c, 2, 1.0f);
}

static const char *make(ebb_dnnl_plan *plan, const ebb_call *call)
{
    return call->op == EBB_OP_GEMM ? make_gemm(plan, call) : make_matmul(plan, call);
}

EBB_DNNL_PHASES(make)

// clang-format off
const ebb_kernel ebb_dnnl_matmul[] = {
    {.name = "dnnl.matmul",       .op = EBB_OP_MATMUL,       .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
    {.name = "dnnl.gemm",         .op = EBB_OP_GEMM,         .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
    {.name = "dnnl.fused_matmul", .op = EBB_OP_FUSED_MATMUL, .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
};
// clang-format on
EBB_DNNL_COUNT(matmul)
