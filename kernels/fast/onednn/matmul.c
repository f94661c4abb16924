/* matmul.c: MatMul, Gemm and FusedMatMul: one oneDNN primitive, with transposition as strides. Where a FusedMatMul meets rows
 * of zeros, another loop multiplies the others (rows.h).
 */
#include "kernels/fast/onednn/onednn.h"
#include "kernels/fast/product.h"
#include "kernels/fast/rows.h"

enum { ROWS = 8 }; /* or columns: fewer are not worth a piece */

enum { OPERANDS = 4 };

typedef struct operand {
    ebb_matrix *m; /* NULL: nothing is added */
    int arg;
    uint32_t index; /* of the call's in, or out */
    size_t piece;   /* bytes from one of the plan's pieces to the next */
} operand;

/* Pieces of the batch, or else of whichever has more of them: rows or columns of the result. */
static void cut(ebb_dnnl_plan *plan, const ebb_call *call, operand *all, int rank)
{
    const ebb_matrix *out = all[OPERANDS - 1].m;
    const int64_t in_batch = rank > 2 ? ebb_dnnl_pieces(call, out->dims[0], 1) : 1;
    const int64_t in_rows = ebb_dnnl_pieces(call, out->dims[rank - 2], ROWS);
    const int64_t in_columns = ebb_dnnl_pieces(call, out->dims[rank - 1], ROWS);
    const bool by_batch = in_batch > 1 && in_batch >= in_rows && in_batch >= in_columns;
    const int axis = by_batch ? 0 : in_rows >= in_columns ? rank - 2 : rank - 1;
    plan->pieces = by_batch ? in_batch : in_rows >= in_columns ? in_rows : in_columns;
    if (plan->pieces == 1)
        return;
    const int64_t count = out->dims[axis];
    for (operand *o = all; o < all + OPERANDS; o++) {
        const bool contracts = (o->arg == DNNL_ARG_SRC && axis == rank - 1) ||
                               (o->arg == DNNL_ARG_WEIGHTS && axis == rank - 2);
        if (o->m == NULL || contracts || o->m->dims[axis] != count)
            continue;
        o->m->dims[axis] /= plan->pieces;
        o->piece =
            (size_t)(o->m->dims[axis] * o->m->strides[axis]) * ebb_dtype_bits(o->m->dtype) / 8;
    }
}

static const char *make(ebb_dnnl_plan *plan, const ebb_call *call)
{
    ebb_product p;
    EBB_ASK(ebb_dnnl_plain_numbers(call));
    EBB_ASK(ebb_product_read(&p, call));
    // oneDNN adds the bias before it scales.
    if (p.biased && (p.alpha != 1.0f || p.beta != 1.0f))
        return "C with alpha or beta other than 1";
    operand all[OPERANDS] = {{&p.a, DNNL_ARG_SRC, 0, 0},
                             {&p.b, DNNL_ARG_WEIGHTS, 1, 0},
                             {p.biased ? &p.c : NULL, DNNL_ARG_BIAS, 2, 0},
                             {&p.out, DNNL_ARG_DST, 0, 0}};
    ebb_dnnl_layout layout[OPERANDS];
    cut(plan, call, all, p.rank);
    for (int i = 0; i < OPERANDS; i++)
        if (all[i].m != NULL)
            ebb_dnnl_strided(&layout[i], all[i].m->dtype, p.rank, all[i].m->dims,
                             all[i].m->strides);
    const char *why = ebb_dnnl_describe_product(
        plan, &layout[0], &layout[1], p.biased ? &layout[2] : NULL, &layout[3], p.alpha, false);
    for (int i = 0; i < OPERANDS && why == NULL; i++)
        if (all[i].m != NULL) {
            why = ebb_dnnl_add(plan, all[i].arg, i == OPERANDS - 1, all[i].index, &layout[i]);
            if (why == NULL)
                plan->port[plan->count - 1].piece = all[i].piece;
        }
    return why;
}

EBB_DNNL_PHASES(make)

static ebb_status workspace_of_rows(const ebb_call *call, size_t *bytes)
{
    size_t of_rows = 0;
    EBB_TRY(workspace(call, bytes));
    if (ebb_rows_may_be_zero(call))
        EBB_TRY(ebb_rows_workspace(call, &of_rows));
    *bytes = *bytes > of_rows ? *bytes : of_rows;
    return NULL;
}

static ebb_status run_rows(const ebb_call *call)
{
    if (!ebb_rows_may_be_zero(call) || !ebb_rows_have_zeros(call))
        return ebb_dnnl_run(call);
    ebb_rows_multiply(call);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_matmul[] = {
    {.name = "dnnl.matmul",       .op = EBB_OP_MATMUL,       .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
    {.name = "dnnl.gemm",         .op = EBB_OP_GEMM,         .fits = declines, .workspace = workspace, .prepare = prepare, .run = ebb_dnnl_run, .release = ebb_dnnl_release},
    {.name = "dnnl.fused_matmul", .op = EBB_OP_FUSED_MATMUL, .fits = declines, .workspace = workspace_of_rows, .prepare = prepare, .run = run_rows, .release = ebb_dnnl_release},
};
// clang-format on
EBB_DNNL_COUNT(matmul)
