/* power, gradients: of the pools that take a p-norm, and of normalisation over channels that are
 * neighbours. Types are those of pools and of norm.c.
 */
#include "onnx/ops/common.h"
#include "onnx/ops/window.h"

/* y = (sum |x|^p)^(1/p):  dy/dx = sign(x) |x|^(p - 1) / y^(p - 1). The first factor is the
 * caller's, for each x; the second is this: dy / y^(p - 1). Where y is 0 all its x are, and the
 * first factor makes 0 of whatever stands here, so y is taken to be 1 there. */
static ebb_value by_output(ebb_build *b, const ebb_grad *c, int64_t p)
{
    if (p == 1 || b->status != NULL)
        return c->dy[0];
    ebb_value zero = ebb_const_like(b, c->y[0], 0.0), one = ebb_const_like(b, c->y[0], 1.0);
    ebb_value on = ebb_emit(b, EBB_OP_GREATER, c->y[0], zero);
    ebb_value safe = ebb_emit(b, EBB_OP_WHERE, on, c->y[0], one);
    if (p > 2)
        safe = ebb_emit(b, EBB_OP_POW, safe, ebb_const_like(b, safe, (double)(p - 1)));
    return ebb_emit(b, EBB_OP_DIV, c->dy[0], safe);
}

/* sign(x) |x|^(p - 1) */
static ebb_value by_input(ebb_build *b, ebb_value x, int64_t p)
{
    if (p == 1)
        return ebb_emit(b, EBB_OP_SIGN, x);
    if (p == 2)
        return x;
    ebb_value size = ebb_emit(b, EBB_OP_ABS, x);
    if (p > 3)
        size = ebb_emit(b, EBB_OP_POW, size, ebb_const_like(b, x, (double)(p - 2)));
    return ebb_emit(b, EBB_OP_MUL, x, size);
}

static bool order_of(ebb_build *b, const ebb_grad *c, int64_t *p)
{
    *p = ebb_attr_int(&c->attrs, "p", 2);
    if (*p >= 1 && b->status == NULL)
        return true;
    ebb_grad_fail(b, c, "p is less than 1");
    return false;
}

/* y = GlobalLpPool(x).  Needs x and y. */
void ebb_grad_global_lp_pool(ebb_build *b, ebb_grad *c)
{
    int64_t p;
    if (order_of(b, c, &p))
        c->dx[0] = ebb_emit(b, EBB_OP_MUL, by_input(b, c->x[0], p), by_output(b, c, p));
}

/* Each element of t, which has one for each window, added to all elements of its window: a
 * transposed convolution with ones, channels apart. */
static ebb_value spread(ebb_build *b, ebb_value t, const ebb_window *w, const ebb_type *x,
                        const ebb_type *y)
{
    int64_t dims[EBB_MAX_RANK] = {x->dims[0] * x->dims[1], 1}, ones[EBB_MAX_RANK] = {1, 1};
    int64_t pads[2 * EBB_MAX_RANK], more[EBB_MAX_RANK];
    for (int d = 0; d < w->rank; d++) {
        int64_t reach =
            (y->dims[d + 2] - 1) * w->stride[d] + (w->kernel[d] - 1) * w->dilation[d] + 1;
        int64_t after =
            reach - w->begin[d] - x->dims[d + 2]; // beyond x's end; below 0: short of it
        dims[d + 2] = y->dims[d + 2];
        ones[d + 2] = w->kernel[d];
        pads[d] = w->begin[d];
        pads[w->rank + d] = after > 0 ? after : 0;
        more[d] = after < 0 ? -after : 0;
    }
    ebb_value kernel = ebb_emit(b, EBB_OP_EXPAND, ebb_const_like(b, t, 1.0),
                                ebb_const_ints(b, ones, (uint32_t)w->rank + 2));
    ebb_value flat = ebb_emit_reshape(b, t, dims, w->rank + 2);
    ebb_with_ints(b, "dilations", w->dilation, (uint32_t)w->rank);
    ebb_with_ints(b, "kernel_shape", w->kernel, (uint32_t)w->rank);
    ebb_with_ints(b, "output_padding", more, (uint32_t)w->rank);
    ebb_with_ints(b, "pads", pads, 2 * (uint32_t)w->rank);
    ebb_with_ints(b, "strides", w->stride, (uint32_t)w->rank);
    return ebb_emit(b, EBB_OP_CONV_TRANSPOSE, flat, kernel);
}

/* y = LpPool(x).  Needs x and y. */
void ebb_grad_lp_pool(ebb_build *b, ebb_grad *c)
{
    ebb_type x, y;
    ebb_window w;
    int64_t p;
    if (!order_of(b, c, &p) || !ebb_grad_shape(b, c, c->x[0], &x) ||
        !ebb_grad_shape(b, c, c->y[0], &y))
        return;
    const char *wrong = ebb_window_resolve(&w, &c->attrs, x.rank - 2, x.dims + 2, NULL,
                                           ebb_attr_int(&c->attrs, "ceil_mode", 0) != 0);
    if (wrong != NULL) {
        ebb_grad_fail(b, c, wrong);
        return;
    }
    ebb_value sums = spread(b, by_output(b, c, p), &w, &x, &y);
    sums = ebb_emit_reshape_like(b, sums, c->x[0]);
    c->dx[0] = ebb_emit(b, EBB_OP_MUL, by_input(b, c->x[0], p), sums);
}

/* ---- LRN ---- */

/* Means over windows of `size` channels, which begin `before` ahead: zeros count. t: [N, 1, C, S].
 */
static ebb_value channel_means(ebb_build *b, ebb_value t, int64_t size, int64_t before)
{
    const int64_t kernel[2] = {size, 1}, pads[4] = {before, 0, size - 1 - before, 0};
    if (size == 1)
        return t;
    ebb_with_int(b, "count_include_pad", 1);
    ebb_with_ints(b, "kernel_shape", kernel, 2);
    ebb_with_ints(b, "pads", pads, 4);
    return ebb_emit(b, EBB_OP_AVERAGE_POOL, t);
}

/* A window of channels for each element. */
double ebb_cost_lrn(const ebb_infer *c)
{
    const ebb_type *x = ebb_infer_type(c, 0);
    double size = (double)ebb_attr_int(&c->attrs, "size", 1);
    if (x == NULL || x->rank < 2)
        return 0;
    if (x->dims[1] >= 0 && size > (double)x->dims[1])
        size = (double)x->dims[1];
    return 2 * ebb_type_count(x) * (size > 1 ? size : 1);
}

/* y = x s^-beta,  s = bias + alpha mean(x^2) over the window of each channel, zeros counted.
 * dx = dy s^-beta - 2 alpha beta x mean'(dy x s^(-beta - 1)),  mean' over the windows turned round.
 * Needs x. */
void ebb_grad_lrn(ebb_build *b, ebb_grad *c)
{
    ebb_type x;
    int64_t size = ebb_attr_int(&c->attrs, "size", 1);
    double alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.0001f);
    double beta = ebb_attr_float(&c->attrs, "beta", 0.75);
    if (!ebb_grad_shape(b, c, c->x[0], &x))
        return;
    if (x.rank < 2 || size < 1 || size > INT32_MAX) {
        ebb_grad_fail(b, c, "size or rank is out of range");
        return;
    }
    int64_t dims[4] = {x.dims[0], 1, x.dims[1], 1};
    for (int d = 2; d < x.rank; d++)
        dims[3] *= x.dims[d];
    ebb_value in = ebb_emit_reshape(b, c->x[0], dims, 4),
              dy = ebb_emit_reshape(b, c->dy[0], dims, 4);
    ebb_value mean = channel_means(b, ebb_emit(b, EBB_OP_MUL, in, in), size, (size - 1) / 2);
    ebb_value s = ebb_emit_shifted(b, ebb_emit_scaled(b, mean, alpha),
                                   ebb_attr_float(&c->attrs, "bias", 1.0));
    ebb_value scale = ebb_emit(b, EBB_OP_POW, s, ebb_const_like(b, s, -beta));
    ebb_value straight = ebb_emit(b, EBB_OP_MUL, dy, scale);
    ebb_value through = ebb_emit(b, EBB_OP_DIV, ebb_emit(b, EBB_OP_MUL, straight, in), s);
    ebb_value back = channel_means(b, through, size, size / 2);
    ebb_value less = ebb_emit(b, EBB_OP_MUL, in, ebb_emit_scaled(b, back, 2.0 * alpha * beta));
    c->dx[0] = ebb_emit_reshape_like(b, ebb_emit(b, EBB_OP_SUB, straight, less), c->x[0]);
}
