/* recurrent_cell.h: what one element of a recurrent cell computes, the same text for all back ends:
 * activations with their slopes, and an LSTM's step. In double, whatever the elements are. */
#ifndef EBB_KERNELS_MATH_RECURRENT_CELL_H
#define EBB_KERNELS_MATH_RECURRENT_CELL_H

#include <math.h>

#include "kernels/call/recurrent.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_slope { /* f(x) and f'(x) */
    double y, d;
} ebb_slope;

EBB_BOTH ebb_slope ebb_slope_of(double y, double d)
{
    ebb_slope s = {y, d};
    return s;
}

EBB_BOTH ebb_slope ebb_slope_sigmoid(double x)
{
    double y = 1.0 / (1.0 + exp(-x));
    return ebb_slope_of(y, y * (1.0 - y));
}

EBB_BOTH ebb_slope ebb_squashed(const ebb_activation *f, double x)
{
    double a = f->alpha, b = f->beta, y;
    switch (f->kind) {
    case EBB_SQUASH_RELU:
        return x > 0 ? ebb_slope_of(x, 1) : ebb_slope_of(0, 0);
    case EBB_SQUASH_SIGMOID:
        return ebb_slope_sigmoid(x);
    case EBB_SQUASH_AFFINE:
        return ebb_slope_of(a * x + b, a);
    case EBB_SQUASH_LEAKY_RELU:
        return x >= 0 ? ebb_slope_of(x, 1) : ebb_slope_of(a * x, a);
    case EBB_SQUASH_THRESHOLDED_RELU:
        return x > a ? ebb_slope_of(x, 1) : ebb_slope_of(0, 0);
    case EBB_SQUASH_SCALED_TANH:
        y = tanh(b * x);
        return ebb_slope_of(a * y, a * b * (1.0 - y * y));
    case EBB_SQUASH_HARD_SIGMOID:
        y = a * x + b;
        return y <= 0 ? ebb_slope_of(0, 0) : y >= 1 ? ebb_slope_of(1, 0) : ebb_slope_of(y, a);
    case EBB_SQUASH_ELU:
        return x >= 0 ? ebb_slope_of(x, 1) : ebb_slope_of(a * expm1(x), a * exp(x));
    case EBB_SQUASH_SOFTSIGN:
        y = 1.0 / (1.0 + fabs(x));
        return ebb_slope_of(x * y, y * y);
    case EBB_SQUASH_SOFTPLUS:
        return ebb_slope_of(fmax(x, 0.0) + log1p(exp(-fabs(x))), ebb_slope_sigmoid(x).y);
    case EBB_SQUASH_TANH:
    case EBB_SQUASHES:
        break;
    }
    y = tanh(x);
    return ebb_slope_of(y, 1.0 - y * y);
}

/* Function k of the cell in direction d, of a sum within the clip. */
EBB_BOTH ebb_slope ebb_activated(const ebb_recurrent *s, int64_t d, int k, double x)
{
    ebb_slope f = ebb_squashed(&s->activations[d][k], fmin(fmax(x, -s->clip), s->clip));
    if (fabs(x) > s->clip)
        f.d = 0;
    return x != x ? ebb_slope_of(x, x) : f; // fmax and fmin lose it
}

/* The same for a gate: where the forward's were kept, x is what came out. */
EBB_BOTH ebb_slope ebb_gate(const ebb_recurrent *s, int64_t d, int k, double x)
{
    if (!s->kept)
        return ebb_activated(s, d, k, x);
    return ebb_slope_of(x, k == 0 ? x * (1.0 - x) : 1.0 - x * x);
}

typedef struct ebb_lstm_step {
    ebb_slope in, out, forget, fresh, squashed;
    double now;
} ebb_lstm_step;

/* One element of an LSTM: gates in the order i o f n; c before, and c behind where it is known. */
EBB_BOTH ebb_lstm_step ebb_lstm_element(const ebb_recurrent *s, int64_t d, const double g[4],
                                        double old, const double *now, const double peep[3])
{
    ebb_lstm_step e;
    e.in = ebb_gate(s, d, 0, g[0] + peep[0] * old);
    e.forget = ebb_gate(s, d, 0, g[2] + peep[2] * old);
    if (s->input_forget)
        e.forget = ebb_slope_of(1.0 - e.in.y, 0);
    e.fresh = ebb_gate(s, d, 1, g[3]);
    e.now = now != NULL ? *now : e.forget.y * old + e.in.y * e.fresh.y;
    e.out = ebb_gate(s, d, 0, g[1] + peep[1] * e.now);
    e.squashed = ebb_squashed(&s->activations[d][2], e.now);
    return e;
}

/* Its gradients before the activations, in the order of gates, from what arrives at h and c; *gc
 * becomes what arrives at c before the step. */
EBB_BOTH void ebb_lstm_element_back(double da[4], const ebb_recurrent *s, const ebb_lstm_step *e,
                                    double gh, double *gc, double old, const double peep[3])
{
    double out = gh * e->squashed.y * e->out.d;
    double c = *gc + gh * e->out.y * e->squashed.d + out * peep[1];
    da[0] = c * (s->input_forget ? e->fresh.y - old : e->fresh.y) * e->in.d;
    da[1] = out;
    da[2] = c * old * e->forget.d;
    da[3] = c * e->in.y * e->fresh.d;
    *gc = c * e->forget.y + da[0] * peep[0] + da[2] * peep[2];
}

#ifdef __cplusplus
}
#endif
#endif
