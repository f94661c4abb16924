/* recurrent.h: what an RNN, GRU or LSTM node says, read from a call and checked once for all back
 * ends: sizes, activations, where operands are and how they lie.
 *
 * What the operands mean is in kernels/plain/layers/recurrent.c.
 */
#pragma once

#include "kernels/kernels.h"
#include "kernels/math/recurrent_cell.h"

EBB_C_BEGIN

/* Of RNN, GRU, LSTM, LSTMTraining and their gradients. Returns NULL, or why this is none that we
 * can run: operands that contradict each other are found here, so loops may trust the result. */
const char *ebb_recurrent_read(ebb_recurrent *sizes, const ebb_call *call);

/* NULL where this is without clip, input_forget and lengths, time first, with the usual activations; else
 * what is unusual. For kernels that compute nothing else. */
const char *ebb_usual_cell_misfit(const ebb_recurrent *sizes, const ebb_call *call);
/* And it is an LSTM. */
const char *ebb_usual_lstm_misfit(const ebb_recurrent *sizes, const ebb_call *call);

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

EBB_C_END
