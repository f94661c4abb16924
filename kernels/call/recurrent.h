/* recurrent.h: what an RNN, GRU or LSTM node says, read from a call and checked once for all back
 * ends: sizes, activations, where operands are and how they lie.
 *
 * What the operands mean is in kernels/plain/layers/recurrent.c.
 */
#ifndef EBB_KERNELS_CALL_RECURRENT_H
#define EBB_KERNELS_CALL_RECURRENT_H

#include "kernels/math/both.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* Of RNN, GRU, LSTM, LSTMTraining and their gradients. Returns NULL, or why this is none that we
 * can run: operands that contradict each other are found here, so loops may trust the result. */
const char *ebb_recurrent_read(ebb_recurrent *sizes, const ebb_call *call);

/* NULL where this is an LSTM without clip, peepholes and lengths, time first, with the usual
 * activations; else what is unusual. For kernels that compute nothing else. */
const char *ebb_recurrent_is_usual_lstm(const ebb_recurrent *sizes, const ebb_call *call);

/* Does that direction begin with the last step? */
EBB_BOTH bool ebb_recurrent_backwards(const ebb_recurrent *s, int64_t direction)
{
    return s->reverse || direction == 1;
}

/* Rows of H before that of Y at (t, d, b); of a state at (d, b). */
EBB_BOTH int64_t ebb_recurrent_y(const ebb_recurrent *s, int64_t t, int64_t d, int64_t b)
{
    return s->batch_first ? (b * s->times + t) * s->directions + d
                          : (t * s->directions + d) * s->batch + b;
}

EBB_BOTH int64_t ebb_recurrent_state(const ebb_recurrent *s, int64_t d, int64_t b)
{
    return s->batch_first ? b * s->directions + d : d * s->batch + b;
}

#ifdef __cplusplus
}
#endif
#endif
