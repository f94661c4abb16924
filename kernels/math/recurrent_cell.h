/* recurrent_cell.h: what one element of a recurrent cell computes, the same text for all back ends:
 * what the operator is told, activations with their slopes, and an LSTM's step. In double, whatever
 * the elements are. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/math/words.h"

typedef enum ebb_cell { EBB_CELL_RNN, EBB_CELL_GRU, EBB_CELL_LSTM } ebb_cell;

typedef enum ebb_squash { /* the activations that the standard names, in the order of its list */
                          EBB_SQUASH_RELU,
                          EBB_SQUASH_TANH,
                          EBB_SQUASH_SIGMOID,
                          EBB_SQUASH_AFFINE,
                          EBB_SQUASH_LEAKY_RELU,
                          EBB_SQUASH_THRESHOLDED_RELU,
                          EBB_SQUASH_SCALED_TANH,
                          EBB_SQUASH_HARD_SIGMOID,
                          EBB_SQUASH_ELU,
                          EBB_SQUASH_SOFTSIGN,
                          EBB_SQUASH_SOFTPLUS,
                          EBB_SQUASHES,
} ebb_squash;

typedef struct ebb_activation {
    ebb_squash kind;
    double alpha, beta;
} ebb_activation;

/* Which input is what; -1: this operator has none such. */
typedef struct ebb_recurrent_slots {
    int8_t bias, lengths, h0, c0, peepholes;
    int8_t h_all, c_all, gates; /* of the forward, for the backward */
    int8_t dh_all, dh_last, dc_last;
} ebb_recurrent_slots;

typedef struct ebb_recurrent {
    ebb_cell cell;
    bool backward;                                           /* one of the gradients */
    bool kept;                                               /* which reads the forward's gates */
    int64_t times, batch, inputs, hidden, directions, gates; /* T B I H D G: 1, 3 or 4 */
    bool reverse;                                            /* the only direction is backwards */
    bool batch_first, input_forget, linear_before_reset;
    double clip; /* infinite: none */
    ebb_activation activations[2][3];
    ebb_recurrent_slots at;
} ebb_recurrent;

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
