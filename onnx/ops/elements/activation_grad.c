/* activation_grad: gradients of the activation functions.
 *
 * Those that ONNX Runtime has an operator for use it (com.microsoft, dY first); each of them reads
 * y where y tells all: then x may go, or y may be written over it.
 */
#include "onnx/ops/common.h"

/* y = max(x, 0).  dx = dy where y > 0, else 0. */
void ebb_grad_relu(ebb_build *b, ebb_grad *c)
{
    c->dx[0] = ebb_emit(b, EBB_OP_RELU_GRAD, c->dy[0], c->y[0]);
}

/* y = x where x > 0, else a x.  dx = dy or a dy; y has the sign of x unless a is negative. */
void ebb_grad_leaky_relu(ebb_build *b, ebb_grad *c)
{
    double alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.01f);
    ebb_with_float(b, "alpha", alpha);
    c->dx[0] = ebb_emit(b, EBB_OP_LEAKY_RELU_GRAD, c->dy[0], alpha >= 0.0 ? c->y[0] : c->x[0]);
}

/* y = x where x > 0, else a (e^x - 1).  dx = dy or dy (y + a). */
void ebb_grad_elu(ebb_build *b, ebb_grad *c)
{
    double alpha = ebb_attr_float(&c->attrs, "alpha", 1.0);
    ebb_value side = alpha >= 0.0 ? c->y[0] : c->x[0];
    ebb_value on = ebb_emit(b, EBB_OP_GREATER, side, ebb_const_like(b, side, 0.0));
    ebb_value low = ebb_emit(b, EBB_OP_MUL, c->dy[0], ebb_emit_shifted(b, c->y[0], alpha));
    c->dx[0] = ebb_emit(b, EBB_OP_WHERE, on, c->dy[0], low);
}

/* y = g x where x > 0, else g a (e^x - 1).  dx = g dy or dy (y + g a); y has the sign of x unless a
 * or g is negative. */
void ebb_grad_selu(ebb_build *b, ebb_grad *c)
{
    double alpha = ebb_attr_float(&c->attrs, "alpha", 1.67326319217681884765625);
    double gamma = ebb_attr_float(&c->attrs, "gamma", 1.05070102214813232421875);
    ebb_value side = alpha >= 0.0 && gamma > 0.0 ? c->y[0] : c->x[0];
    ebb_value on = ebb_emit(b, EBB_OP_GREATER, side, ebb_const_like(b, side, 0.0));
    ebb_value low = ebb_emit(b, EBB_OP_MUL, c->dy[0], ebb_emit_shifted(b, c->y[0], gamma * alpha));
    c->dx[0] = ebb_emit(b, EBB_OP_WHERE, on, ebb_emit_scaled(b, c->dy[0], gamma), low);
}

/* y = x where x > 0, else a (e^(x / a) - 1).  dx = dy or dy (y / a + 1). */
void ebb_grad_celu(ebb_build *b, ebb_grad *c)
{
    double alpha = ebb_attr_float(&c->attrs, "alpha", 1.0);
    ebb_value on = ebb_emit(b, EBB_OP_GREATER, c->y[0], ebb_const_like(b, c->y[0], 0.0));
    ebb_value slope = ebb_emit_shifted(b, ebb_emit_scaled(b, c->y[0], 1.0 / alpha), 1.0);
    ebb_value low = ebb_emit(b, EBB_OP_MUL, c->dy[0], slope);
    c->dx[0] = ebb_emit(b, EBB_OP_WHERE, on, c->dy[0], low);
}

/* y = x - b where x > l, x + b where x < -l, else 0.  dx = dy where |x| > l, else 0. */
void ebb_grad_shrink(ebb_build *b, ebb_grad *c)
{
    ebb_value limit = ebb_const_like(b, c->x[0], ebb_attr_float(&c->attrs, "lambd", 0.5));
    ebb_value on = ebb_emit(b, EBB_OP_GREATER, ebb_emit(b, EBB_OP_ABS, c->x[0]), limit);
    c->dx[0] = ebb_emit(b, EBB_OP_WHERE, on, c->dy[0], ebb_const_like(b, c->dy[0], 0.0));
}

/* y = x where x > a, else 0.  dx = dy where x > a, which is y > a unless a is negative. */
void ebb_grad_thresholded_relu(ebb_build *b, ebb_grad *c)
{
    double alpha = ebb_attr_float(&c->attrs, "alpha", 1.0);
    ebb_value side = alpha >= 0.0 ? c->y[0] : c->x[0];
    c->dx[0] = ebb_emit(b, EBB_OP_CLIP_GRAD, c->dy[0], side, ebb_const_like(b, side, alpha));
}

/* y = 1 / (1 + e^-x).  dx = dy y (1 - y). */
void ebb_grad_sigmoid(ebb_build *b, ebb_grad *c)
{
    c->dx[0] = ebb_emit(b, EBB_OP_SIGMOID_GRAD, c->dy[0], c->y[0]);
}

/* y = tanh x.  dx = dy (1 - y^2). */
void ebb_grad_tanh(ebb_build *b, ebb_grad *c)
{
    c->dx[0] = ebb_emit(b, EBB_OP_TANH_GRAD, c->dy[0], c->y[0]);
}

/* y = min(max(a x + b, 0), 1).  dx = a dy where 0 < y < 1, else 0. */
void ebb_grad_hard_sigmoid(ebb_build *b, ebb_grad *c)
{
    double alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.2f);
    ebb_value inside = ebb_emit(b, EBB_OP_CLIP_GRAD, c->dy[0], c->y[0],
                                ebb_const_like(b, c->y[0], 0.0), ebb_const_like(b, c->y[0], 1.0));
    c->dx[0] = ebb_emit_scaled(b, inside, alpha);
}

/* y = x h, h = min(max(x / 6 + 1 / 2, 0), 1).  dx = dy (h + x h'), h' = 1 / 6 where -3 < x < 3. */
void ebb_grad_hard_swish(ebb_build *b, ebb_grad *c)
{
    ebb_value x = c->x[0];
    ebb_value third = ebb_emit_scaled(b, x, 1.0 / 6.0);
    ebb_value h = ebb_emit(b, EBB_OP_CLIP, ebb_emit_shifted(b, third, 0.5),
                           ebb_const_like(b, x, 0.0), ebb_const_like(b, x, 1.0));
    ebb_value slope = ebb_emit(b, EBB_OP_CLIP_GRAD, third, x, ebb_const_like(b, x, -3.0),
                               ebb_const_like(b, x, 3.0));
    c->dx[0] = ebb_emit(b, EBB_OP_MUL, c->dy[0], ebb_emit(b, EBB_OP_ADD, h, slope));
}

/* y = ln(1 + e^x).  dx = dy sigmoid x.  (1 - e^-y is the same of y, but loses digits for small y.)
 */
void ebb_grad_softplus(ebb_build *b, ebb_grad *c)
{
    c->dx[0] = ebb_emit(b, EBB_OP_MUL, c->dy[0], ebb_emit(b, EBB_OP_SIGMOID, c->x[0]));
}

/* y = x / (1 + |x|).  dx = dy / (1 + |x|)^2. */
void ebb_grad_softsign(ebb_build *b, ebb_grad *c)
{
    ebb_value wide = ebb_emit_shifted(b, ebb_emit(b, EBB_OP_ABS, c->x[0]), 1.0);
    c->dx[0] = ebb_emit(b, EBB_OP_DIV, c->dy[0], ebb_emit(b, EBB_OP_MUL, wide, wide));
}

/* y = x Phi(x), by erf or by tanh.  Needs x: y takes each value below 0 twice. */
void ebb_grad_gelu(ebb_build *b, ebb_grad *c)
{
    ebb_op op = ebb_node_of(b->g, c->node)->op;
    bool fast = op == EBB_OP_MS_FAST_GELU ||
                strcmp(ebb_attr_string(&c->attrs, "approximate", "none"), "tanh") == 0;
    ebb_value x = c->x[0];
    bool biased = op == EBB_OP_MS_FAST_GELU && ebb_grad_has(c, 1);
    if (biased) // FastGelu(x, bias) is that of the sum
        x = ebb_emit(b, EBB_OP_ADD, x, c->x[1]);
    ebb_value dx = ebb_emit(b, fast ? EBB_OP_FAST_GELU_GRAD : EBB_OP_GELU_GRAD, c->dy[0], x);
    c->dx[0] = dx;
    if (biased && ebb_grad_wants(c, 1))
        ebb_grad_give(b, c, 1, dx);
}

/* y = x sigmoid(a x); a = 1 is SiLU.  dx = dy (s + a x s (1 - s)). */
void ebb_grad_quick_gelu(ebb_build *b, ebb_grad *c)
{
    ebb_with_float(b, "alpha", ebb_attr_float(&c->attrs, "alpha", (double)1.702f));
    c->dx[0] = ebb_emit(b, EBB_OP_QUICK_GELU_GRAD, c->dy[0], c->x[0]);
}

/* y = x sigmoid(a x), as QuickGelu under another name and with another a. */
void ebb_grad_swish(ebb_build *b, ebb_grad *c)
{
    ebb_with_float(b, "alpha", ebb_attr_float(&c->attrs, "alpha", 1.0));
    c->dx[0] = ebb_emit(b, EBB_OP_QUICK_GELU_GRAD, c->dy[0], c->x[0]);
}

/* y = x tanh(ln(1 + e^x)).  Needs x: y takes each value below 0 twice. */
void ebb_grad_mish(ebb_build *b, ebb_grad *c)
{
    c->dx[0] = ebb_emit(b, EBB_OP_MISH_GRAD, c->dy[0], c->x[0]);
}

/* The gradient of the bound i of Clip: that of every element of y which is the bound. */
static void grad_bound(ebb_build *b, ebb_grad *c, uint32_t i, ebb_value high)
{
    if (!ebb_grad_wants(c, i))
        return;
    ebb_value zero = ebb_const_like(b, c->dy[0], 0.0);
    ebb_value at = ebb_emit(b, EBB_OP_EQUAL, c->y[0], c->x[i]);
    ebb_value dy = ebb_emit(b, EBB_OP_WHERE, at, c->dy[0], zero);
    if (i == 1 && high.i != 0) // where both are met, y is the high one
        dy = ebb_emit(b, EBB_OP_WHERE, ebb_emit(b, EBB_OP_EQUAL, c->y[0], high), zero, dy);
    ebb_grad_give(b, c, i, dy);
}

/* Of codes, whose gradient is that of a number (straight-through): one that is a bound lies inside. */
static ebb_value grad_clipped_codes(ebb_build *b, ebb_grad *c, const ebb_value bound[2])
{
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, c->dy[0])->dtype;
    ebb_value around[2] = {EBB_NO_VALUE, EBB_NO_VALUE};
    for (int i = 0; i < 2; i++)
        if (bound[i].i != 0)
            around[i] =
                ebb_emit(b, i == 0 ? EBB_OP_SUB : EBB_OP_ADD, ebb_emit_cast(b, bound[i], dtype),
                         ebb_const_scalar(b, dtype, 0.5));
    return ebb_emit(b, EBB_OP_CLIP_GRAD, c->dy[0], ebb_emit_cast(b, c->x[0], dtype), around[0],
                    around[1]);
}

/* y = min(max(x, low), high).  dx = dy where low < y < high, else 0; dlow, dhigh: the sums of the dy
 * where y is the one or the other, which counts where a bound is computed. */
void ebb_grad_clip(ebb_build *b, ebb_grad *c)
{
    ebb_value bound[2] = {EBB_NO_VALUE, EBB_NO_VALUE};
    static const char *const name[2] = {"min", "max"};
    for (uint32_t i = 0; i < 2; i++) {
        if (i + 1 < c->input_count)
            bound[i] = c->x[i + 1];
        const ebb_attr *attr = ebb_attr_find(&c->attrs, name[i]); // opset 6
        if (bound[i].i == 0 && attr != NULL)
            bound[i] = ebb_const_like(b, c->x[0], attr->f);
    }
    if (ebb_grad_wants(c, 0)) {
        bool open = bound[0].i == 0 && bound[1].i == 0;
        bool codes = !ebb_dtype_is_float((ebb_dtype)ebb_build_type(b, c->x[0])->dtype);
        c->dx[0] = open    ? c->dy[0]
                   : codes ? grad_clipped_codes(b, c, bound)
                           : ebb_emit(b, EBB_OP_CLIP_GRAD, c->dy[0], c->y[0], bound[0], bound[1]);
    }
    for (uint32_t i = 1; i < c->input_count; i++)
        grad_bound(b, c, i, bound[1]);
}

/* y = x where x > 0, else a x.  dx = dy or a dy; da = x dy where x <= 0. */
void ebb_grad_prelu(ebb_build *b, ebb_grad *c)
{
    ebb_value x = c->x[0], slope = c->x[1], dy = c->dy[0], zero = ebb_const_like(b, x, 0.0);
    ebb_value on = ebb_emit(b, EBB_OP_GREATER, x, zero);
    if (ebb_grad_wants(c, 0))
        c->dx[0] = ebb_emit(b, EBB_OP_WHERE, on, dy, ebb_emit(b, EBB_OP_MUL, dy, slope));
    if (ebb_grad_wants(c, 1))
        ebb_grad_give(b, c, 1, ebb_emit(b, EBB_OP_WHERE, on, zero, ebb_emit(b, EBB_OP_MUL, dy, x)));
}

/* ---- second order: the gradient of a gradient, which Gradient of a Gradient needs ---- */

/* z = d where y > 0, else 0.  dd = dz where y > 0; a step has no slope. */
void ebb_grad_relu_grad(ebb_build *b, ebb_grad *c)
{
    c->dx[0] = ebb_emit(b, EBB_OP_RELU_GRAD, c->dy[0], c->x[1]);
}

/* z = d where y > 0, else a d. */
void ebb_grad_leaky_relu_grad(ebb_build *b, ebb_grad *c)
{
    ebb_with_float(b, "alpha", ebb_attr_float(&c->attrs, "alpha", (double)0.01f));
    c->dx[0] = ebb_emit(b, EBB_OP_LEAKY_RELU_GRAD, c->dy[0], c->x[1]);
}

/* z = d f(y).  dd = dz f(y), by the same operator; dy = dz d f'(y) with f'(y) = slope y + offset.
 */
static void of_output(ebb_build *b, ebb_grad *c, ebb_op op, double slope, double offset)
{
    if (ebb_grad_wants(c, 0))
        c->dx[0] = ebb_emit(b, op, c->dy[0], c->x[1]);
    if (!ebb_grad_wants(c, 1))
        return;
    ebb_value steep = ebb_emit_scaled(b, c->x[1], slope);
    if (offset != 0.0)
        steep = ebb_emit_shifted(b, steep, offset);
    c->dx[1] = ebb_emit(b, EBB_OP_MUL, ebb_emit(b, EBB_OP_MUL, c->dy[0], c->x[0]), steep);
}

/* f = y (1 - y). */
void ebb_grad_sigmoid_grad(ebb_build *b, ebb_grad *c)
{
    of_output(b, c, EBB_OP_SIGMOID_GRAD, -2.0, 1.0);
}

/* f = 1 - y^2. */
void ebb_grad_tanh_grad(ebb_build *b, ebb_grad *c)
{
    of_output(b, c, EBB_OP_TANH_GRAD, -2.0, 0.0);
}

/* z = y (d - sum d y) along an axis.  dd is the same of dz; dy = dz (d - sum d y) - d sum dz y. */
void ebb_grad_softmax_grad(ebb_build *b, ebb_grad *c)
{
    int64_t axis = ebb_attr_int(&c->attrs, "axis", -1);
    if (ebb_grad_wants(c, 0)) {
        ebb_with_int(b, "axis", axis);
        c->dx[0] = ebb_emit(b, EBB_OP_SOFTMAX_GRAD, c->dy[0], c->x[1]);
    }
    if (!ebb_grad_wants(c, 1))
        return;
    ebb_value dy = ebb_emit(b, EBB_OP_MUL, c->x[0], c->x[1]);
    ebb_value zy = ebb_emit(b, EBB_OP_MUL, c->dy[0], c->x[1]);
    dy = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, dy, &axis, 1, true);
    zy = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, zy, &axis, 1, true);
    ebb_value rest = ebb_emit(b, EBB_OP_SUB, c->x[0], dy);
    c->dx[1] = ebb_emit(b, EBB_OP_SUB, ebb_emit(b, EBB_OP_MUL, c->dy[0], rest),
                        ebb_emit(b, EBB_OP_MUL, c->x[0], zy));
}
