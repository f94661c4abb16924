/* signal_grad: gradients of Fourier transforms. They are linear, and their gradients the transforms
 * the other way round, for real and imaginary parts as for any two numbers:
 *
 *   y = F x           dx = F* dy = n F^-1 dy
 *   y = F^-1 x        dx = F dy / n
 *
 * A real x gets the real part. Half a spectrum stands for the whole of which it is half.
 */
#include "onnx/ops/common.h"

/* A transform to n places along an axis; before opset 20 the axis is an attribute. */
static ebb_value transform(ebb_build *b, ebb_value x, int64_t n, int axis, bool inverse,
                           bool onesided)
{
    ebb_value length = ebb_const_scalar(b, EBB_I64, (double)n), place = EBB_NO_VALUE;
    if (inverse)
        ebb_with_int(b, "inverse", 1);
    if (onesided)
        ebb_with_int(b, "onesided", 1);
    if (ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) < 20)
        ebb_with_int(b, "axis", axis);
    else
        place = ebb_const_scalar(b, EBB_I64, axis);
    return ebb_emit(b, EBB_OP_DFT, x, length, place);
}

/* x cut, or filled up with zeros, to `size` elements of an axis. */
static ebb_value fitted(ebb_build *b, ebb_value x, int axis, int64_t size)
{
    if (b->status != NULL)
        return EBB_NO_VALUE;
    const ebb_type *type = ebb_build_type(b, x);
    int64_t have = type->dims[axis], pads[2 * EBB_MAX_RANK] = {0};
    if (have == size)
        return x;
    if (have > size)
        return ebb_emit_part(b, x, axis, 0, size);
    int rank = type->rank;
    pads[rank + axis] = size - have;
    return ebb_emit(b, EBB_OP_PAD, x, ebb_const_ints(b, pads, 2 * (uint32_t)rank));
}

/* 1 / n for what stands once in the whole spectrum, 2 / n for what stands twice, as [bins, 1 ...].
 */
static ebb_value weights(ebb_build *b, ebb_value like, int64_t n, int trailing)
{
    int64_t bins = n / 2 + 1, dims[EBB_MAX_RANK] = {bins};
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, like)->dtype;
    double *list = EBB_NEW(&b->g->model->arena, double, (size_t)bins);
    if (!ebb_build_got(b, list))
        return EBB_NO_VALUE;
    for (int64_t k = 0; k < bins; k++)
        list[k] = (k == 0 || 2 * k == n ? 1.0 : 2.0) / (double)n;
    for (int d = 0; d < trailing; d++)
        dims[1 + d] = 1;
    return ebb_const_floats(b, dtype, 1 + trailing, dims, list);
}

/* The axis and the length of a transform; false, with the error noted, where they are not known. */
static bool look(ebb_build *b, const ebb_grad *c, const ebb_type *x, int *axis, int64_t *n)
{
    bool old = ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) < 20;
    bool half = ebb_attr_int(&c->attrs, "onesided", 0) != 0;
    bool inverse = ebb_attr_int(&c->attrs, "inverse", 0) != 0;
    double where = old ? (double)ebb_attr_int(&c->attrs, "axis", 1) : -2.0, length = 0.0;
    if (!old && ebb_grad_has(c, 2) && !ebb_constant_scalar(b->g, c->x[2], &where)) {
        ebb_grad_fail(b, c, "its axis is not constant");
        return false;
    }
    *axis = (int)where < 0 ? (int)where + x->rank : (int)where;
    if (!ebb_grad_has(c, 1)) {
        *n = half && inverse ? 2 * (x->dims[*axis] - 1) : x->dims[*axis];
    } else if (ebb_constant_scalar(b->g, c->x[1], &length)) {
        *n = (int64_t)length;
    } else {
        ebb_grad_fail(b, c, "its length is not constant");
        return false;
    }
    return true;
}

/* (X, length?, axis?) {inverse, onesided}. */
void ebb_grad_dft(ebb_build *b, ebb_grad *c)
{
    ebb_type x;
    int axis = 0;
    int64_t n = 0;
    if (!ebb_grad_shape(b, c, c->x[0], &x) || !look(b, c, &x, &axis, &n))
        return;
    bool half = ebb_attr_int(&c->attrs, "onesided", 0) != 0;
    bool inverse = ebb_attr_int(&c->attrs, "inverse", 0) != 0;
    ebb_value dx = transform(b, c->dy[0], n, axis, !inverse, half && inverse);
    if (!inverse)
        dx = ebb_emit_scaled(b, dx, (double)n);
    else if (half)
        dx = ebb_emit(b, EBB_OP_MUL, dx, weights(b, dx, n, x.rank - 1 - axis));
    else
        dx = ebb_emit_scaled(b, dx, 1.0 / (double)n);
    dx = fitted(b, dx, axis, x.dims[axis]);
    c->dx[0] = fitted(b, dx, x.rank - 1, x.dims[x.rank - 1]);
}

/* Places f step + j of the signal, [frames, n]. */
static ebb_value places(ebb_build *b, int64_t frames, int64_t n, int64_t step)
{
    const int64_t dims[2] = {frames, n};
    ebb_type type = ebb_type_tensor(EBB_I64, 2, dims);
    size_t bytes;
    int64_t *list = ebb_type_bytes(&type, &bytes)
                        ? EBB_NEW(&b->g->model->arena, int64_t, bytes / sizeof *list + 1)
                        : NULL;
    if (!ebb_build_got(b, list))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < frames * n; i++)
        list[i] = i / n * step + i % n;
    return ebb_const_tensor(b, &type, list);
}

/* (signal [batch, length, parts] or [batch, length], step, window?, frame length?) -> [batch, frames, bins, 2]:
 * y = F (w s), s the frames of the signal. ds = w g and dw = sum g s, with g = F* dy; what frames
 * share is added up. */
void ebb_grad_stft(ebb_build *b, ebb_grad *c)
{
    ebb_type x;
    double step = 0.0, length;
    if (!ebb_grad_shape(b, c, c->x[0], &x))
        return;
    const ebb_type *y = ebb_build_type(b, c->y[0]);
    const ebb_type *w = ebb_grad_has(c, 2) ? ebb_build_type(b, c->x[2]) : NULL;
    int64_t n = w != NULL ? w->dims[0] : x.dims[1], frames = y->dims[1];
    if (ebb_grad_has(c, 3) && ebb_constant_scalar(b->g, c->x[3], &length))
        n = (int64_t)length;
    else if (ebb_grad_has(c, 3))
        n = -1;
    if (n < 1 || !ebb_type_is_static(y) || !ebb_constant_scalar(b->g, c->x[1], &step)) {
        ebb_grad_fail(b, c, "its step or its frames' length is not constant");
        return;
    }
    if (w != NULL && (w->rank != 1 || w->dims[0] != n)) {
        ebb_grad_fail(b, c, "its window is not as long as its frames");
        return;
    }
    ebb_value at = places(b, frames, n, (int64_t)step);
    ebb_value g = ebb_emit_scaled(b, transform(b, c->dy[0], n, 2, true, false), (double)n);
    g = fitted(b, g, 3, x.rank == 2 ? 1 : x.dims[2]);
    if (x.rank == 2)
        g = ebb_emit_reshape(b, g, (const int64_t[3]){y->dims[0], frames, n}, 3);
    if (w != NULL && ebb_grad_wants(c, 2)) {
        ebb_with_int(b, "axis", 1);
        ebb_value s = ebb_emit(b, EBB_OP_GATHER, c->x[0], at);
        const int64_t others[3] = {0, 1, 3};
        s = ebb_emit(b, EBB_OP_MUL, s, g);
        c->dx[2] = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, s, others, (uint32_t)x.rank, false);
    }
    if (!ebb_grad_wants(c, 0))
        return;
    if (w != NULL)
        g = ebb_emit(b, EBB_OP_MUL, g,
                     ebb_emit_reshape(b, c->x[2], (const int64_t[2]){n, 1}, x.rank - 1));
    ebb_value shape = ebb_const_shape(b, c->x[0]);
    ebb_with_int(b, "axis", 1);
    c->dx[0] = ebb_emit(b, EBB_OP_GATHER_GRAD, shape, at, g);
}
