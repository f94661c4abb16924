/* convolution: layers that mix a token with a few before it, as hybrid decoders have them beside attention.
 *
 *   y, present = CausalConvWithState(x, W, b?, past?)
 *   ──> y = Conv <pads: K - 1 before> (x, W, b)      no past: zeros stand before the first token
 *       y = Conv (Concat (past, x), W, b)            else, and present is the end of the same
 *
 * Each channel has a kernel of its own.
 */
#include "passes/flatten/dialect/dialect.h"

static bool is_activated(const ebb_foreign *f)
{
    return strcmp(ebb_attr_string(&f->attrs, "activation", "none"), "none") != 0;
}

static const char *misfit(const ebb_build *b, const ebb_foreign *f, int64_t before)
{
    const char *activation = ebb_attr_string(&f->attrs, "activation", "none");
    const ebb_type *past = f->x[3].i != 0 ? ebb_build_type(b, f->x[3]) : NULL;
    if (is_activated(f) && strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        return "its activation is none that is known here";
    if (past != NULL && (past->rank != 3 || past->dims[2] != before))
        return "its past is not as long as its kernel reaches back, or that is not known";
    return NULL;
}

/* x [B, C, L] behind its past, or behind `before` zeros. */
static ebb_value behind(ebb_build *b, ebb_value past, ebb_value x, int64_t before)
{
    const int64_t pads[6] = {0, 0, before, 0, 0, 0};
    if (past.i == 0)
        return ebb_emit(b, EBB_OP_PAD, x, ebb_const_ints(b, pads, 6));
    return ebb_emit_joined(b, past, x, 2);
}

/* CausalConvWithState(x [B, C, L], W [C, 1, K], bias?, past? [B, C, K - 1]) -> y, present */
void ebb_dialect_causal_conv_with_state(ebb_build *b, ebb_foreign *f)
{
    ebb_type x, w;
    int64_t dilation = ebb_attr_int(&f->attrs, "dilation", 1), before;
    if (!ebb_foreign_ranked(b, f, 0, &x) || !ebb_foreign_ranked(b, f, 1, &w))
        return;
    if (x.rank != 3 || w.rank != 3 || x.dims[2] < 0 || w.dims[0] < 1 || w.dims[2] < 1 ||
        dilation < 1 || __builtin_mul_overflow(w.dims[2] - 1, dilation, &before) ||
        before > INT64_MAX - x.dims[2] || ebb_attr_int(&f->attrs, "ndim", 1) != 1 ||
        ebb_attr_int(&f->attrs, "channels_last", 0) != 0 ||
        ebb_attr_int(&f->attrs, "state_window", 0) != 0) {
        f->declines = "it is of a form that is not known here, or its shapes are not";
        return;
    }
    if ((f->declines = misfit(b, f, before)) != NULL)
        return;
    const ebb_value past = f->x[3];
    ebb_value all = past.i != 0 || f->wants[1] ? behind(b, past, f->x[0], before) : EBB_NO_VALUE;
    const int64_t pads[2] = {past.i != 0 ? 0 : before, 0};
    ebb_with_int(b, "group", w.dims[0]);
    ebb_with_ints(b, "dilations", &dilation, 1);
    ebb_with_ints(b, "pads", pads, 2);
    ebb_value y = ebb_emit(b, EBB_OP_CONV, past.i != 0 ? all : f->x[0], f->x[1], f->x[2]);
    f->y[0] = is_activated(f) ? ebb_emit(b, EBB_OP_MUL, y, ebb_emit(b, EBB_OP_SIGMOID, y)) : y;
    if (f->wants[1])
        f->y[1] = ebb_emit_between(b, all, 2, x.dims[2], x.dims[2] + before);
}
