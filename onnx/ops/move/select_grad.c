/* select_grad: gradients of what places elements by conditions, lengths and write positions.
 *
 * Positions may come out of the run; shapes may not. All are written with operators that the rows'
 * own opsets have.
 */
#include "onnx/ops/common.h"

/* y = the rows of x that are chosen. The row of y that row i went to is how many were chosen before
 * it: dx_i = dy there where it was chosen, else 0. */
void ebb_grad_compress(ebb_build *b, ebb_grad *c)
{
    ebb_type x, chosen;
    if (!ebb_grad_shape(b, c, c->x[0], &x) || !ebb_grad_shape(b, c, c->x[1], &chosen))
        return;
    bool flat = ebb_attr_find(&c->attrs, "axis") == NULL;
    int rank = flat ? 1 : x.rank, axis = flat ? 0 : ebb_grad_axis(c, 0, x.rank);
    int64_t n = chosen.rank == 1 ? chosen.dims[0] : -1, rows = 1;
    for (int d = 0; d < x.rank; d++)
        rows *= flat || d == axis ? x.dims[d] : 1;
    const ebb_type *y = ebb_build_type(b, c->y[0]);
    if (n < 0 || n > rows || !ebb_type_is_static(y)) {
        ebb_grad_fail(b, c, "how many are chosen is not known");
        return;
    }
    if (y->dims[axis] == 0) {
        c->dx[0] = ebb_emit_zeros_like(b, c->x[0]);
        return;
    }
    ebb_value count = ebb_emit_cast(b, c->x[1], EBB_I64), one = ebb_const_like(b, count, 1.0);
    ebb_value upto = ebb_emit(b, EBB_OP_CUM_SUM, count, ebb_const_scalar(b, EBB_I64, 0.0));
    ebb_value at = ebb_emit(b, EBB_OP_MUL, ebb_emit(b, EBB_OP_SUB, upto, one), count);
    ebb_with_int(b, "axis", axis);
    ebb_value dx = ebb_emit(b, EBB_OP_GATHER, c->dy[0], at);
    int64_t dims[EBB_MAX_RANK], pads[2 * EBB_MAX_RANK] = {0};
    for (int d = 0; d < rank; d++)
        dims[d] = d == axis ? n : 1;
    ebb_value on = ebb_emit_reshape(b, c->x[1], dims, rank);
    dx = ebb_emit(b, EBB_OP_WHERE, on, dx, ebb_const_like(b, dx, 0.0));
    pads[rank + axis] = rows - n;
    if (n < rows)
        dx = ebb_emit(b, EBB_OP_PAD, dx, ebb_const_ints(b, pads, 2 * (uint32_t)rank));
    c->dx[0] = ebb_emit_reshape(b, dx, x.dims, x.rank);
}

/* What is reversed twice is as it was. */
void ebb_grad_reverse_sequence(ebb_build *b, ebb_grad *c)
{
    ebb_with_attrs_of(b, c->node);
    c->dx[0] = ebb_emit(b, EBB_OP_REVERSE_SEQUENCE, c->dy[0], c->x[1]);
}

/* y = x with u written to places along an axis. What was overwritten gets nothing; u gets dy from
 * where it went: row first + i, with circular around the end. */
void ebb_grad_tensor_scatter(ebb_build *b, ebb_grad *c)
{
    ebb_type x, u;
    if (!ebb_grad_shape(b, c, c->x[0], &x) || !ebb_grad_shape(b, c, c->x[1], &u))
        return;
    int axis = ebb_grad_axis(c, -2, x.rank);
    if (u.rank != x.rank || axis < 0 || axis >= x.rank) {
        ebb_grad_fail(b, c, "its inputs do not fit each other");
        return;
    }
    ebb_value first = c->input_count > 2 ? c->x[2] : EBB_NO_VALUE;
    if (ebb_grad_wants(c, 0)) {
        ebb_value zeros = ebb_emit_zeros_like(b, c->x[1]);
        ebb_with_attrs_of(b, c->node);
        c->dx[0] = ebb_emit(b, EBB_OP_TENSOR_SCATTER, c->dy[0], zeros, first);
    }
    if (!ebb_grad_wants(c, 1))
        return;
    ebb_value at = ebb_emit_counted(b, u.dims[axis], 1, axis, u.rank);
    if (first.i != 0) {
        int64_t dims[EBB_MAX_RANK];
        for (int d = 0; d < u.rank; d++)
            dims[d] = d == 0 ? u.dims[0] : 1;
        at = ebb_emit(b, EBB_OP_ADD, at, ebb_emit_reshape(b, first, dims, u.rank));
    }
    ebb_value size = ebb_const_scalar(b, EBB_I64, (double)x.dims[axis]);
    if (strcmp(ebb_attr_string(&c->attrs, "mode", "linear"), "circular") == 0)
        at = ebb_emit(b, EBB_OP_MOD, at, size);
    at = ebb_emit_expand_like(b, at, c->x[1]);
    ebb_with_int(b, "axis", axis);
    c->dx[1] = ebb_emit(b, EBB_OP_GATHER_ELEMENTS, c->dy[0], at);
}

/* ScatterElements before opset 11, which has no GatherElements either: u's gradient is gathered
 * from dy as one row, by places that the axis counts and constants of the other axes. */
void ebb_grad_scatter(ebb_build *b, ebb_grad *c)
{
    ebb_type x, u;
    if (!ebb_grad_shape(b, c, c->x[0], &x) || !ebb_grad_shape(b, c, c->x[1], &u))
        return;
    int axis = ebb_grad_axis(c, 0, x.rank);
    if (u.rank != x.rank || axis < 0 || axis >= x.rank) {
        ebb_grad_fail(b, c, "its inputs do not fit each other");
        return;
    }
    if (ebb_grad_wants(c, 0)) {
        ebb_value zeros = ebb_emit_zeros_like(b, c->x[2]);
        ebb_with_attrs_of(b, c->node);
        c->dx[0] = ebb_emit(b, EBB_OP_SCATTER, c->dy[0], c->x[1], zeros);
    }
    if (!ebb_grad_wants(c, 2))
        return;
    ebb_value at = ebb_emit_cast(b, c->x[1], EBB_I64);
    int64_t stride = 1;
    for (int d = axis + 1; d < x.rank; d++)
        stride *= x.dims[d];
    at = ebb_emit(b, EBB_OP_MUL, at, ebb_const_scalar(b, EBB_I64, (double)stride));
    stride = 1;
    for (int d = x.rank - 1; d >= 0; d--) {
        if (d != axis)
            at = ebb_emit(b, EBB_OP_ADD, at, ebb_emit_counted(b, u.dims[d], stride, d, u.rank));
        stride *= x.dims[d];
    }
    ebb_value row = ebb_emit_reshape(b, c->dy[0], (const int64_t[1]){stride}, 1);
    c->dx[2] = ebb_emit(b, EBB_OP_GATHER, row, at);
}
