/* loss.c: softmax and log-softmax along one axis, forward and backward. */
#include "kernels/plain/plain.h"

#include <math.h>

#include "kernels/plain/vmath.h"

#define REAL float
#define NAMED(x) x##_f32
#define EXP ebb_exp
#include "kernels/plain/loss_loops.h"
#undef REAL
#undef NAMED
#undef EXP
#define REAL double
#define NAMED(x) x##_f64
#define EXP exp
#include "kernels/plain/loss_loops.h"
#undef REAL
#undef NAMED
#undef EXP

static ebb_status span_of(const ebb_call *c, ebb_span *s)
{
    int axis = 0;
    const ebb_type *x = &c->in[0].type;
    EBB_TRY(ebb_plain_axis(c, ebb_attr_int(&c->attrs, "axis", -1), x->rank, &axis));
    *s = ebb_plain_span(x, axis);
    return NULL;
}

static ebb_status run_forward(const ebb_call *c)
{
    ebb_span s;
    EBB_TRY(span_of(c, &s));
    if (s.n == 0)
        return NULL;
    bool logarithm = c->op == EBB_OP_LOG_SOFTMAX;
    if (c->in[0].type.dtype == EBB_F32)
        forward_f32(&s, logarithm, c->out[0].data, c->in[0].data);
    else
        forward_f64(&s, logarithm, c->out[0].data, c->in[0].data);
    return NULL;
}

static ebb_status run_backward(const ebb_call *c)
{
    ebb_span s;
    EBB_TRY(span_of(c, &s));
    bool logarithm = c->op == EBB_OP_LOG_SOFTMAX_GRAD;
    if (c->in[0].type.dtype == EBB_F32)
        backward_f32(&s, logarithm, c->out[0].data, c->in[0].data, c->in[1].data);
    else
        backward_f64(&s, logarithm, c->out[0].data, c->in[0].data, c->in[1].data);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_loss[] = {
    {"plain.softmax",          EBB_OP_SOFTMAX,          ebb_plain_floats, NULL, NULL, run_forward,  NULL},
    {"plain.log_softmax",      EBB_OP_LOG_SOFTMAX,      ebb_plain_floats, NULL, NULL, run_forward,  NULL},
    {"plain.softmax_grad",     EBB_OP_SOFTMAX_GRAD,     ebb_plain_floats, NULL, NULL, run_backward, NULL},
    {"plain.log_softmax_grad", EBB_OP_LOG_SOFTMAX_GRAD, ebb_plain_floats, NULL, NULL, run_backward, NULL},
};
// clang-format on
EBB_PLAIN_COUNT(loss)
