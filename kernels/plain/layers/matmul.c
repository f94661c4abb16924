/* matmul.c: MatMul, FusedMatMul and Gemm, with sums in double: what fast products are tested
 * against. */
#include "kernels/plain/plain.h"

typedef struct product { /* [m, k] x [k, n] */
    int64_t m, n, k, a_row, a_column, b_row, b_column;
    double alpha;
} product;

#define LOOPS "kernels/plain/layers/matmul_loops.inc"
#include "kernels/plain/both_floats.inc"

/* The matrices are the last two axes; a vector is a row on the left and a column on the right. */
static product read_product(const ebb_call *call)
{
    const ebb_type *a = &call->in[0].type, *b = &call->in[1].type;
    const bool gemm = call->op == EBB_OP_GEMM;
    bool turn_a = ebb_attr_int(&call->attrs, "transA", 0) != 0 && a->rank > 1;
    bool turn_b = ebb_attr_int(&call->attrs, "transB", 0) != 0 && b->rank > 1;
    int64_t a_rows = a->rank > 1 ? a->dims[a->rank - 2] : 1, a_columns = a->dims[a->rank - 1];
    int64_t b_rows = b->rank > 1 ? b->dims[b->rank - 2] : b->dims[0];
    int64_t b_columns = b->rank > 1 ? b->dims[b->rank - 1] : 1;
    product p = {.m = turn_a ? a_columns : a_rows,
                 .k = turn_a ? a_rows : a_columns,
                 .n = turn_b ? b_rows : b_columns,
                 .a_row = turn_a ? 1 : a_columns,
                 .a_column = turn_a ? a_columns : 1,
                 .b_row = turn_b ? 1 : b_columns,
                 .b_column = turn_b ? b_columns : 1,
                 .alpha = 1};
    if (gemm || call->op == EBB_OP_FUSED_MATMUL)
        p.alpha = ebb_attr_float(&call->attrs, "alpha", 1.0);
    return p;
}

static const char *declines_fused(const ebb_call *call)
{
    if (ebb_attr_int(&call->attrs, "transBatchA", 0) != 0 ||
        ebb_attr_int(&call->attrs, "transBatchB", 0) != 0)
        return "pass inline makes transposes of transBatchA and transBatchB";
    return ebb_plain_floats(call);
}

static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    product p = read_product(call);
    if (!ebb_size_mul(bytes, (size_t)p.n, sizeof(double)))
        return ebb_call_error(call, "the product is too wide");
    return NULL;
}

/* The matrix of operand t that belongs to batch number `batch` of the output. */
static int64_t matrix_of(const ebb_type *t, const ebb_type *y, int y_axes, int64_t batch)
{
    int64_t at = 0, stride = 1;
    for (int d = y_axes - 1, k = t->rank - 3; d >= 0; d--, k--) {
        int64_t i = batch % y->dims[d];
        batch /= y->dims[d];
        if (k < 0)
            continue;
        at += t->dims[k] == 1 ? 0 : i * stride;
        stride *= t->dims[k];
    }
    return at;
}

static ebb_status run_matmul(const ebb_call *call)
{
    const ebb_type *a = &call->in[0].type, *b = &call->in[1].type, *y = &call->out[0].type;
    product p = read_product(call);
    int axes = y->rank - (a->rank > 1) - (b->rank > 1);
    int64_t batches = 1;
    for (int d = 0; d < axes; d++)
        batches *= y->dims[d];
    for (int64_t i = 0; i < batches; i++) {
        int64_t at_a = matrix_of(a, y, axes, i) * p.m * p.k;
        int64_t at_b = matrix_of(b, y, axes, i) * p.k * p.n, at_y = i * p.m * p.n;
        if (a->dtype == EBB_F32)
            product_f32(&p, (float *)call->out[0].data + at_y,
                        (const float *)call->in[0].data + at_a,
                        (const float *)call->in[1].data + at_b, call->workspace);
        else
            product_f64(&p, (double *)call->out[0].data + at_y,
                        (const double *)call->in[0].data + at_a,
                        (const double *)call->in[1].data + at_b, call->workspace);
    }
    return NULL;
}

static ebb_status run_gemm(const ebb_call *call)
{
    product p = read_product(call);
    EBB_BY_FLOAT(call->in[0], product, &p, call->out[0].data, call->in[0].data, call->in[1].data,
                 call->workspace);
    if (!ebb_call_has(call, 2))
        return NULL;
    const ebb_type *t = &call->in[2].type;
    int64_t columns = t->rank > 0 ? t->dims[t->rank - 1] : 1;
    int64_t row = t->rank > 1 && t->dims[0] != 1 ? columns : 0, column = columns != 1 ? 1 : 0;
    double beta = ebb_attr_float(&call->attrs, "beta", 1.0);
    EBB_BY_FLOAT(call->in[0], add_bias, &p, call->out[0].data, call->in[2].data, row, column, beta);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_matmul[] = {
    {.name = "plain.matmul",       .op = EBB_OP_MATMUL,       .dtypes = ebb_plain_floats, .workspace = workspace, .run = run_matmul},
    {.name = "plain.fused_matmul", .op = EBB_OP_FUSED_MATMUL, .fits = declines_fused, .workspace = workspace, .run = run_matmul},
    {.name = "plain.gemm",         .op = EBB_OP_GEMM,         .dtypes = ebb_plain_floats, .workspace = workspace, .run = run_gemm},
};
// clang-format on
EBB_PLAIN_COUNT(matmul)
