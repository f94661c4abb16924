/* loss.c: Softmax and LogSoftmax along any axis, and their gradients from the output.
 *
 * A job is a dense row, or up to 64 neighbouring lines where the axis is not the last one.
 */
#include "kernels/call/misfit.h"
#include "kernels/plain/plain.h"
#include "kernels/plain/vmath.h"

#include <math.h>

#define LOOPS "kernels/plain/scores/loss_loops.inc"
#include "kernels/plain/both_floats.inc"

static ebb_status span_of(const ebb_call *c, ebb_span *s)
{
    const ebb_type *t = &c->in[0].type;
    int axis = 0;
    bool flat = c->op == EBB_OP_SOFTMAX_FLAT || c->op == EBB_OP_LOG_SOFTMAX_FLAT;
    *s = (ebb_span){1, 1, 1};
    if (t->rank == 0)
        return NULL;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", flat ? 1 : -1), t->rank, &axis));
    *s = ebb_span_of(t, axis);
    if (flat) // all axes from there on are one
        *s = (ebb_span){s->outer, s->n * s->inner, 1};
    return NULL;
}

/* (X) {axis = -1; before opset 13: 1} -> Y. Y may be X. */
static ebb_status run_softmax(const ebb_call *c)
{
    ebb_span s;
    EBB_TRY(span_of(c, &s));
    const void *x = c->in[0].data;
    void *y = c->out[0].data;
    if (ebb_elements(&c->in[0].type) == 0)
        return NULL;
    if (c->op == EBB_OP_SOFTMAX || c->op == EBB_OP_SOFTMAX_FLAT)
        EBB_BY_FLOAT(c->in[0], softmax, y, x, s);
    else
        EBB_BY_FLOAT(c->in[0], log_softmax, y, x, s);
    return NULL;
}

/* (dY, Y) {axis = -1} -> dX. dX may be dY or Y. */
static ebb_status run_softmax_grad(const ebb_call *c)
{
    ebb_span s;
    EBB_TRY(span_of(c, &s));
    const void *dy = c->in[0].data, *y = c->in[1].data;
    bool logarithm = c->op == EBB_OP_LOG_SOFTMAX_GRAD;
    if (ebb_elements(&c->in[0].type) == 0)
        return NULL;
    EBB_BY_FLOAT(c->in[0], softmax_grad, c->out[0].data, dy, y, s, logarithm);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_loss[] = {
    {.name = "plain.softmax",          .op = EBB_OP_SOFTMAX,          .dtypes = ebb_plain_floats, .fits = ebb_loss_misfit, .run = run_softmax},
    {.name = "plain.log_softmax",      .op = EBB_OP_LOG_SOFTMAX,      .dtypes = ebb_plain_floats, .fits = ebb_loss_misfit, .run = run_softmax},
    {.name = "plain.softmax_flat",     .op = EBB_OP_SOFTMAX_FLAT,     .dtypes = ebb_plain_floats, .fits = ebb_loss_misfit, .run = run_softmax},
    {.name = "plain.log_softmax_flat", .op = EBB_OP_LOG_SOFTMAX_FLAT, .dtypes = ebb_plain_floats, .fits = ebb_loss_misfit, .run = run_softmax},
    {.name = "plain.softmax_grad",     .op = EBB_OP_SOFTMAX_GRAD,     .dtypes = ebb_plain_floats, .fits = ebb_loss_misfit, .run = run_softmax_grad},
    {.name = "plain.log_softmax_grad", .op = EBB_OP_LOG_SOFTMAX_GRAD, .dtypes = ebb_plain_floats, .fits = ebb_loss_misfit, .run = run_softmax_grad},
};
// clang-format on
EBB_PLAIN_COUNT(loss)
