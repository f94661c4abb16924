/* causal, gradient: of a convolution of each channel with what came before.
 *
 *     past | x        xs, k - 1 elements longer than x
 *      [ w ]          z = w . window + bias, at each place where the window ends in x
 *     y = z  or  silu(z);  the last k - 1 elements of xs are the next past
 */
#include "onnx/ops/common.h"

/* xs: past, or zeros, before x. */
static ebb_value with_past(ebb_build *b, const ebb_grad *c, int64_t kept)
{
    if (kept == 0)
        return c->x[0];
    if (ebb_grad_has(c, 3)) {
        ebb_with_int(b, "axis", 2);
        return ebb_emit(b, EBB_OP_CONCAT, c->x[3], c->x[0]);
    }
    const int64_t pads[6] = {0, 0, kept, 0, 0, 0};
    return ebb_emit(b, EBB_OP_PAD, c->x[0], ebb_const_ints(b, pads, 6));
}

/* dz of y = z sigmoid(z):  dy s (1 + z (1 - s)),  z computed again. */
static ebb_value through_silu(ebb_build *b, const ebb_grad *c, ebb_value xs, int64_t channels)
{
    ebb_value in[3] = {xs, c->x[1], c->input_count > 2 ? c->x[2] : EBB_NO_VALUE};
    ebb_with_int(b, "group", channels);
    ebb_value z = ebb_emit_list(b, EBB_OP_CONV, in, 3), one = ebb_const_like(b, c->dy[0], 1.0);
    ebb_value s = ebb_emit(b, EBB_OP_SIGMOID, z);
    ebb_value rest = ebb_emit(b, EBB_OP_SUB, one, s);
    ebb_value bent = ebb_emit_shifted(b, ebb_emit(b, EBB_OP_MUL, z, rest), 1.0);
    return ebb_emit(b, EBB_OP_MUL, c->dy[0], ebb_emit(b, EBB_OP_MUL, s, bent));
}

/* dxs: from y, and from the next past. */
static ebb_value of_all(ebb_build *b, const ebb_grad *c, ebb_value dz, const ebb_type *x,
                        int64_t kept)
{
    ebb_value from_y = EBB_NO_VALUE, from_state = EBB_NO_VALUE;
    if (dz.i != 0) {
        ebb_with_int(b, "group", x->dims[1]);
        from_y = ebb_emit(b, EBB_OP_CONV_TRANSPOSE, dz, c->x[1]);
    }
    if (c->output_count > 1 && c->dy[1].i != 0 && kept > 0) {
        const int64_t pads[6] = {0, 0, x->dims[2], 0, 0, 0};
        from_state = ebb_emit(b, EBB_OP_PAD, c->dy[1], ebb_const_ints(b, pads, 6));
    }
    if (from_y.i != 0 && from_state.i != 0)
        return ebb_emit(b, EBB_OP_ADD, from_y, from_state);
    return from_y.i != 0 ? from_y : from_state;
}

/* y, next = CausalConvWithState(x, w, bias?, past?).  Needs x, past and w; silu: z is computed
 * again. */
void ebb_grad_causal_conv(ebb_build *b, ebb_grad *c)
{
    ebb_type x, w;
    if (!ebb_grad_shape(b, c, c->x[0], &x) || !ebb_grad_shape(b, c, c->x[1], &w))
        return;
    const int64_t kept = w.dims[2] - 1, axes[2] = {0, 2};
    bool plain = strcmp(ebb_attr_string(&c->attrs, "activation", "none"), "none") == 0;
    bool by_weight = ebb_grad_wants(c, 1) && c->dy[0].i != 0;
    ebb_value dz = c->dy[0], xs = EBB_NO_VALUE;
    if (dz.i != 0 && (!plain || by_weight))
        xs = with_past(b, c, kept);
    if (dz.i != 0 && !plain)
        dz = through_silu(b, c, xs, x.dims[1]);
    if (by_weight) {
        ebb_with_int(b, "group", x.dims[1]);
        ebb_with_ints(b, "kernel_shape", &w.dims[2], 1);
        c->dx[1] = ebb_emit(b, EBB_OP_CONV_WEIGHT_GRAD, dz, xs);
    }
    if (ebb_grad_wants(c, 2) && dz.i != 0)
        c->dx[2] = ebb_emit_reshape_like(
            b, ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, dz, axes, 2, false), c->x[2]);
    if (!ebb_grad_wants(c, 0) && !ebb_grad_wants(c, 3))
        return;
    ebb_value all = of_all(b, c, dz, &x, kept);
    if (ebb_grad_wants(c, 0) && all.i != 0)
        c->dx[0] = kept == 0 ? all : ebb_emit_part(b, all, 2, kept, x.dims[2]);
    if (ebb_grad_wants(c, 3) && all.i != 0 && kept > 0)
        c->dx[3] = ebb_emit_part(b, all, 2, 0, kept);
}
