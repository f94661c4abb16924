/* frozen: products with a matrix that is kept in few bits (onnx/words/frozen.h), and rows of a table
 * that is.
 *
 *   MatMulCodes(A, codes, scales, zeros, levels) -> A X^T or A X
 *   ExpertsMatMulCodes(A, codes, ..., of)        -> the same, each row of A by the matrix of its expert
 *   MatMulDequantized(A, x, scale, zero?)        -> the same
 *
 * The gradient of A X^T is dY X: the same operator with transB turned round. Nothing is kept for it.
 */
#include "onnx/words/frozen.h"
#include "onnx/graph/shape.h"
#include "onnx/ops/common.h"

static ebb_status infer(ebb_infer *c, bool bytes)
{
    ebb_frozen f;
    const char *why = ebb_frozen_read(&f, bytes, &c->attrs, c->in, c->input_count);
    if (why != NULL)
        return ebb_infer_error(c, "%s", why);
    c->out[0] = *c->in[0];
    if (c->in[0]->rank > 0)
        ebb_type_set_dim(&c->out[0], c->in[0]->rank - 1, ebb_frozen_columns(&f));
    return NULL;
}

ebb_status ebb_infer_matmul_codes(ebb_infer *c)
{
    return infer(c, true);
}

ebb_status ebb_infer_experts_matmul_codes(ebb_infer *c)
{
    EBB_TRY(ebb_infer_experts(c, EBB_FROZEN_OF));
    return infer(c, true);
}

ebb_status ebb_infer_matmul_dequantized(ebb_infer *c)
{
    return infer(c, false);
}

/* As the product of floats. */
double ebb_cost_matmul_frozen(const ebb_infer *c)
{
    const ebb_type *a = ebb_infer_type(c, 0);
    int64_t inner = a != NULL && a->rank > 0 ? a->dims[a->rank - 1] : -1;
    return inner < 0 ? 0.0 : 2.0 * (double)inner * ebb_type_count(&c->out[0]);
}

void ebb_grad_matmul_frozen(ebb_build *b, ebb_grad *c)
{
    const ebb_op op = ebb_node_of(b->g, c->node)->op;
    const bool turned = ebb_attr_int(&c->attrs, "transB", op != EBB_OP_MATMUL_DEQUANTIZED) != 0;
    for (uint32_t i = 1; i < c->input_count; i++)
        if (ebb_grad_wants(c, i)) {
            ebb_grad_fail(b, c,
                          "its weight is kept in few bits: scales and zero points of it are "
                          "not trained");
            return;
        }
    if (!ebb_grad_wants(c, 0))
        return;
    enum { INPUTS = EBB_FROZEN_OF + 1 };
    ebb_value in[INPUTS] = {c->dy[0]};
    for (uint32_t i = 1; i < c->input_count && i < INPUTS; i++)
        in[i] = c->x[i];
    ebb_with_attrs_of(b, c->node);
    ebb_with_int(b, "transB", !turned);
    c->dx[0] = ebb_emit_list(b, op, in, c->input_count < INPUTS ? c->input_count : INPUTS);
}

/* (data, indices, scales, zeros?) -> the rows, decoded, in the dtype of the scales. */
ebb_status ebb_infer_gather_block_quantized(ebb_infer *c)
{
    ebb_frozen_table t;
    const char *why = ebb_frozen_table_read(&t, &c->attrs, c->in, c->input_count);
    if (why != NULL)
        return ebb_infer_error(c, "%s", why);
    const ebb_type *index = c->in[1];
    c->out[0] = ebb_type_unranked((ebb_dtype)c->in[2]->dtype);
    if (c->in[0]->rank < 0 || c->in[2]->rank < 0 || index->rank < 0)
        return NULL;
    const int rank = t.whole.rank - 1 + index->rank;
    if (rank > EBB_MAX_RANK)
        return ebb_infer_error(c, "rank %d is above the limit of %d", rank, EBB_MAX_RANK);
    ebb_type out = ebb_type_ranked((ebb_dtype)c->in[2]->dtype, rank);
    int at = 0;
    for (int i = 0; i < t.gather; i++)
        ebb_type_put_dim(&out, at++, &t.whole, i);
    for (int i = 0; i < index->rank; i++)
        ebb_type_put_dim(&out, at++, index, i);
    for (int i = t.gather + 1; i < t.whole.rank; i++)
        ebb_type_put_dim(&out, at++, &t.whole, i);
    c->out[0] = out;
    return NULL;
}

void ebb_grad_gather_frozen(ebb_build *b, ebb_grad *c)
{
    for (uint32_t i = 0; i < c->input_count; i++)
        if (i != 1 && ebb_grad_wants(c, i))
            ebb_grad_fail(b, c,
                          "its table is kept in few bits: scales and zero points of it are not "
                          "trained");
}
