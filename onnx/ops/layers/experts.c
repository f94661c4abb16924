/* experts: products whose rows go to one of several matrices each.
 *
 *   ExpertsMatMul(A [R, K], W [E, N, K], of [R]) {transB}   -> Y[r] = A[r] W[of r]^T, or A[r] W[of r]
 *   ExpertsMatMulGrad(A [R, K], dY [R, N], of) {experts}    -> dW[e] = the sum of dY[r]^T A[r], of r = e
 *   ExpertsMatMulCodes                                      ops/codes/frozen.c
 *
 * Rows may be in any order; kernels are quick where those of an expert are neighbours.
 */
#include "onnx/graph/shape.h"
#include "onnx/ops/common.h"

ebb_status ebb_infer_experts(const ebb_infer *c, uint32_t of)
{
    const ebb_type *a = c->in[0], *index = c->in[of];
    if (index->dtype != EBB_NONE && index->dtype != EBB_I64)
        return ebb_infer_error(c, "input %u, the expert of each row, is not int64", of);
    if ((a->rank >= 0 && a->rank != 2) || (index->rank >= 0 && index->rank != 1))
        return ebb_infer_error(c, "input 0 is no matrix, or input %u no list", of);
    if (a->rank == 2 && index->rank == 1 && a->dims[0] >= 0 && index->dims[0] >= 0 &&
        a->dims[0] != index->dims[0])
        return ebb_infer_error(c, "input %u has not one expert for each row of input 0", of);
    return NULL;
}

ebb_status ebb_infer_experts_matmul(ebb_infer *c)
{
    EBB_TRY(ebb_infer_experts(c, 2));
    const ebb_type *w = c->in[1];
    const int inner = ebb_attr_int(&c->attrs, "transB", 1) != 0 ? 2 : 1;
    c->out[0] = *c->in[0];
    if (w->rank >= 0 && w->rank != 3)
        return ebb_infer_error(c, "input 1, the weights, is not [experts, rows, columns]");
    if (c->in[0]->rank != 2)
        return NULL;
    if (w->rank == 3 && w->dims[inner] >= 0 && c->in[0]->dims[1] >= 0 &&
        w->dims[inner] != c->in[0]->dims[1])
        return ebb_infer_error(c, "the last dim of input 0 is not the side of the weights that it "
                                  "is multiplied with");
    ebb_type_set_dim(&c->out[0], 1, w->rank == 3 ? w->dims[3 - inner] : -1);
    return NULL;
}

ebb_status ebb_infer_experts_matmul_grad(ebb_infer *c)
{
    EBB_TRY(ebb_infer_experts(c, 2));
    const ebb_type *a = c->in[0], *dy = c->in[1];
    const int64_t experts = ebb_attr_int(&c->attrs, "experts", 0);
    if (experts < 1)
        return ebb_infer_error(c, "experts is not a number from 1 on");
    if (dy->rank >= 0 && dy->rank != 2)
        return ebb_infer_error(c, "input 1, the gradient, is no matrix");
    if (a->rank == 2 && dy->rank == 2 && a->dims[0] >= 0 && dy->dims[0] >= 0 &&
        a->dims[0] != dy->dims[0])
        return ebb_infer_error(c, "inputs 0 and 1 differ in rows");
    c->out[0] = ebb_type_ranked((ebb_dtype)a->dtype, 3);
    ebb_type_set_dim(&c->out[0], 0, experts);
    ebb_type_set_dim(&c->out[0], 1, dy->rank == 2 ? dy->dims[1] : -1);
    ebb_type_set_dim(&c->out[0], 2, a->rank == 2 ? a->dims[1] : -1);
    return NULL;
}

double ebb_cost_experts_grad(const ebb_infer *c)
{
    const ebb_type *a = ebb_infer_type(c, 0), *dy = ebb_infer_type(c, 1);
    if (a == NULL || dy == NULL || dy->rank != 2 || dy->dims[1] < 0)
        return 0.0;
    return 2.0 * (double)dy->dims[1] * ebb_type_count(a);
}

void ebb_grad_experts_matmul(ebb_build *b, ebb_grad *c)
{
    const bool turned = ebb_attr_int(&c->attrs, "transB", 1) != 0;
    if (ebb_grad_wants(c, 0)) {
        ebb_with_int(b, "transB", !turned);
        c->dx[0] = ebb_emit(b, EBB_OP_EXPERTS_MATMUL, c->dy[0], c->x[1], c->x[2]);
    }
    if (ebb_grad_wants(c, 1) && b->status == NULL) {
        ebb_with_int(b, "experts", ebb_build_type(b, c->x[1])->dims[0]);
        c->dx[1] = ebb_emit(b, EBB_OP_EXPERTS_MATMUL_GRAD, turned ? c->x[0] : c->dy[0],
                            turned ? c->dy[0] : c->x[0], c->x[2]);
    }
}
