/* matmul: MatMul, com.microsoft FusedMatMul (alpha and transposition inside) and Gemm. */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

static bool flag(const ebb_attrs *attrs, const char *name)
{
    return ebb_attr_int(attrs, name, 0) != 0;
}

/* ---- inference ---- */

/* transBatch: the first axis lies behind those of the batch, [M, batch..., K] for [batch..., M, K]. */
static ebb_type batched(const ebb_type *t, bool first_is_row)
{
    ebb_type out = *t;
    for (int d = 0; first_is_row && d + 2 < t->rank; d++)
        ebb_type_put_dim(&out, d, t, d + 1);
    if (first_is_row && t->rank > 2)
        ebb_type_put_dim(&out, t->rank - 2, t, 0);
    return out;
}

/* A transposes the last two axes of a matrix; a vector stays what it is. */
static ebb_type turned(const ebb_type *t, bool transposed)
{
    ebb_type out = *t;
    if (transposed && t->rank >= 2) {
        ebb_type_put_dim(&out, t->rank - 2, t, t->rank - 1);
        ebb_type_put_dim(&out, t->rank - 1, t, t->rank - 2);
    }
    return out;
}

/* [..., M, K] x [..., K, N] -> [..., M, N]; a vector stands for a row on the left and for a column
 * on the right, and its axis is missing in the result. */
ebb_status ebb_infer_matmul(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same_dtype(c, 0, 1));
    bool fused = c->op == EBB_OP_FUSED_MATMUL;
    c->out[0] = ebb_type_unranked((ebb_dtype)c->in[0]->dtype);
    if (c->in[0]->rank < 0 || c->in[1]->rank < 0)
        return NULL;
    if (c->in[0]->rank == 0 || c->in[1]->rank == 0)
        return ebb_infer_error(c, "input %d is a scalar", c->in[0]->rank == 0 ? 0 : 1);
    ebb_type left = batched(c->in[0], fused && flag(&c->attrs, "transBatchA"));
    ebb_type right = batched(c->in[1], fused && flag(&c->attrs, "transBatchB"));
    left = turned(&left, fused && flag(&c->attrs, "transA"));
    right = turned(&right, fused && flag(&c->attrs, "transB"));
    int64_t inner = left.dims[left.rank - 1];
    int64_t against = right.dims[right.rank == 1 ? 0 : right.rank - 2];
    if (inner >= 0 && against >= 0 && inner != against)
        return ebb_infer_error(c, "input 0 has %lld columns, input 1 has %lld rows",
                               (long long)inner, (long long)against);
    ebb_type batch = left, others = right;
    batch.rank = (int8_t)(left.rank > 2 ? left.rank - 2 : 0);
    others.rank = (int8_t)(right.rank > 2 ? right.rank - 2 : 0);
    EBB_TRY(ebb_infer_broadcast_with(c, &batch, &others, 1));
    if (left.rank > 1)
        ebb_type_put_dim(&batch, batch.rank++, &left, left.rank - 2);
    if (right.rank > 1)
        ebb_type_put_dim(&batch, batch.rank++, &right, right.rank - 1);
    batch.dtype = c->in[0]->dtype;
    c->out[0] = batch;
    return NULL;
}

/* alpha op(A) op(B) + beta C, matrices only; C broadcasts to [M, N]. */
ebb_status ebb_infer_gemm(ebb_infer *c)
{
    EBB_TRY(ebb_infer_same_dtype(c, 0, 1));
    EBB_TRY(ebb_infer_same_dtype(c, 0, 2));
    for (unsigned i = 0; i < 2; i++)
        if (c->in[i]->rank >= 0 && c->in[i]->rank != 2)
            return ebb_infer_error(c, "input %u has rank %d, not 2", i, (int)c->in[i]->rank);
    ebb_type out = ebb_type_ranked((ebb_dtype)c->in[0]->dtype, 2);
    ebb_type left = turned(c->in[0], flag(&c->attrs, "transA"));
    ebb_type right = turned(c->in[1], flag(&c->attrs, "transB"));
    if (left.rank == 2 && right.rank == 2 && left.dims[1] >= 0 && right.dims[0] >= 0 &&
        left.dims[1] != right.dims[0])
        return ebb_infer_error(c, "input 0 has %lld columns, input 1 has %lld rows",
                               (long long)left.dims[1], (long long)right.dims[0]);
    if (left.rank == 2)
        ebb_type_put_dim(&out, 0, &left, 0);
    if (right.rank == 2)
        ebb_type_put_dim(&out, 1, &right, 1);
    const ebb_type *bias = ebb_infer_type(c, 2);
    if (bias != NULL && bias->rank >= 0) {
        ebb_type together = out;
        EBB_TRY(ebb_infer_broadcast_with(c, &together, bias, 2));
        if (together.rank != 2 ||
            (out.dims[0] >= 0 && together.dims[0] >= 0 && together.dims[0] != out.dims[0]) ||
            (out.dims[1] >= 0 && together.dims[1] >= 0 && together.dims[1] != out.dims[1]))
            return ebb_infer_error(c, "input 2 does not broadcast to the product's shape");
    }
    c->out[0] = out;
    return NULL;
}

/* 2 K operations for an element of the product. */
static double product_cost(const ebb_infer *c, bool transposed)
{
    const ebb_type *left = ebb_infer_type(c, 0);
    if (left == NULL || left->rank < 1)
        return 0.0;
    bool turn = transposed && left->rank >= 2;
    int64_t inner = left->dims[left->rank - (turn ? 2 : 1)];
    return inner < 0 ? 0.0 : 2.0 * (double)inner * ebb_type_count(&c->out[0]);
}

double ebb_cost_matmul(const ebb_infer *c)
{
    return product_cost(c, c->op == EBB_OP_FUSED_MATMUL && flag(&c->attrs, "transA"));
}

double ebb_cost_gemm(const ebb_infer *c)
{
    double sum = ebb_infer_type(c, 2) != NULL ? ebb_type_count(&c->out[0]) : 0.0;
    return product_cost(c, flag(&c->attrs, "transA")) + sum;
}

/* ---- gradients ---- */

/* alpha op(a) op(b) by the plainest operator that can. */
static ebb_value product(ebb_build *b, ebb_value left, bool turn_left, ebb_value right,
                         bool turn_right, double alpha)
{
    if (b->status != NULL)
        return EBB_NO_VALUE;
    bool matrices = ebb_build_type(b, left)->rank == 2 && ebb_build_type(b, right)->rank == 2;
    if (!matrices && !turn_left && !turn_right && alpha == 1.0)
        return ebb_emit(b, EBB_OP_MATMUL, left, right);
    if (turn_left)
        ebb_with_int(b, "transA", 1);
    if (turn_right)
        ebb_with_int(b, "transB", 1);
    if (alpha != 1.0)
        ebb_with_float(b, "alpha", alpha);
    return ebb_emit(b, matrices ? EBB_OP_GEMM : EBB_OP_FUSED_MATMUL, left, right);
}

/* For y = alpha op(A) op(B), where op transposes or not:
 *   dop(A) = alpha dy op(B)^T, so dA = alpha dy op(B)^T, or alpha op(B) dy^T where A is transposed;
 *   dop(B) = alpha op(A)^T dy, so dB = alpha op(A)^T dy, or alpha dy^T op(A) where B is transposed.
 */
static ebb_value left_gradient(ebb_build *b, ebb_value dy, ebb_value right, bool turn_left,
                               bool turn_right, double alpha)
{
    return turn_left ? product(b, right, turn_right, dy, true, alpha)
                     : product(b, dy, false, right, !turn_right, alpha);
}

static ebb_value right_gradient(ebb_build *b, ebb_value dy, ebb_value left, bool turn_left,
                                bool turn_right, double alpha)
{
    return turn_right ? product(b, dy, true, left, turn_left, alpha)
                      : product(b, left, !turn_left, dy, false, alpha);
}

/* [..., n] as [rows, n]. */
static ebb_value flat(ebb_build *b, ebb_value x)
{
    if (b->status != NULL)
        return EBB_NO_VALUE;
    const ebb_type *t = ebb_build_type(b, x);
    int64_t dims[2] = {1, t->dims[t->rank - 1]};
    for (int i = 0; i < t->rank - 1; i++)
        dims[0] *= t->dims[i];
    return ebb_emit_reshape(b, x, dims, 2);
}

/* y = alpha op(A) op(B).  A vector is made the row or column that it stands for; what a batch axis
 * was broadcast along is summed. A weight that all batches share gets its gradient from one product
 * over all rows instead, which never holds a gradient for each batch. */
void ebb_grad_matmul(ebb_build *b, ebb_grad *c)
{
    bool fused = ebb_node_of(b->g, c->node)->op == EBB_OP_FUSED_MATMUL;
    bool turn_left = fused && flag(&c->attrs, "transA");
    bool turn_right = fused && flag(&c->attrs, "transB");
    double alpha = fused ? ebb_attr_float(&c->attrs, "alpha", 1.0) : 1.0;
    if (fused && (flag(&c->attrs, "transBatchA") || flag(&c->attrs, "transBatchB"))) {
        ebb_grad_fail(b, c, "pass inline makes transposes of transBatchA and transBatchB first");
        return;
    }
    ebb_value left = c->x[0], right = c->x[1], dy = c->dy[0];
    ebb_type lt = *ebb_build_type(b, left), rt = *ebb_build_type(b, right);
    ebb_type yt = *ebb_build_type(b, c->y[0]);
    if (!ebb_type_is_static(&lt) || !ebb_type_is_static(&rt) || !ebb_type_is_static(&yt)) {
        ebb_grad_fail(b, c, "the shapes of its operands are not known");
        return;
    }
    if (lt.rank == 1 || rt.rank == 1) {
        ebb_type gt = yt;
        gt.rank = 0;
        int batch = yt.rank - (lt.rank > 1) - (rt.rank > 1);
        for (int i = 0; i < batch; i++)
            gt.dims[gt.rank++] = yt.dims[i];
        gt.dims[gt.rank++] = lt.rank > 1 ? yt.dims[batch] : 1;
        gt.dims[gt.rank++] = rt.rank > 1 ? yt.dims[yt.rank - 1] : 1;
        dy = ebb_emit_reshape(b, dy, gt.dims, gt.rank);
        if (lt.rank == 1) {
            left = ebb_emit_reshape(b, left, (const int64_t[2]){1, lt.dims[0]}, 2);
            turn_left = false;
        }
        if (rt.rank == 1) {
            right = ebb_emit_reshape(b, right, (const int64_t[2]){rt.dims[0], 1}, 2);
            turn_right = false;
        }
    }
    if (ebb_grad_wants(c, 0)) {
        ebb_value da = left_gradient(b, dy, right, turn_left, turn_right, alpha);
        da = ebb_emit_unbroadcast(b, da, left);
        c->dx[0] = ebb_emit_reshape(b, da, lt.dims, lt.rank);
    }
    if (ebb_grad_wants(c, 1)) {
        ebb_value db;
        if (lt.rank > 2 && rt.rank <= 2 && !turn_left) {
            ebb_value rows = flat(b, left);
            db = right_gradient(b, flat(b, dy), rows, false, turn_right, alpha);
        } else {
            db = right_gradient(b, dy, left, turn_left, turn_right, alpha);
        }
        db = ebb_emit_unbroadcast(b, db, right);
        c->dx[1] = ebb_emit_reshape(b, db, rt.dims, rt.rank);
    }
}

/* y = alpha op(A) op(B) + beta C.  A and B as above; dC = beta dy. */
void ebb_grad_gemm(ebb_build *b, ebb_grad *c)
{
    bool turn_left = flag(&c->attrs, "transA"), turn_right = flag(&c->attrs, "transB");
    double alpha = ebb_attr_float(&c->attrs, "alpha", 1.0);
    double beta = ebb_attr_float(&c->attrs, "beta", 1.0);
    if (ebb_grad_wants(c, 0))
        c->dx[0] = left_gradient(b, c->dy[0], c->x[1], turn_left, turn_right, alpha);
    if (ebb_grad_wants(c, 1))
        c->dx[1] = right_gradient(b, c->dy[0], c->x[0], turn_left, turn_right, alpha);
    if (ebb_grad_wants(c, 2)) // scaled after the sum: it is smaller there
        c->dx[2] = ebb_emit_scaled(b, ebb_emit_unbroadcast(b, c->dy[0], c->x[2]), beta);
}
