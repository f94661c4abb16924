/* lstm.h: the sizes of an LSTM, read from a call and checked once for all back ends.
 *
 * What the operands mean is in kernels/plain/recurrent.c.
 */
#ifndef EBB_KERNELS_LSTM_H
#define EBB_KERNELS_LSTM_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_lstm {
    int64_t times, batch, inputs, hidden, directions; /* T B I H D */
    bool reverse;                                     /* the only direction is backwards */
} ebb_lstm;

/* Of LSTM, LSTMTraining and LSTMGrad. Returns NULL, or why this is none that we can run: operands
 * that contradict each other are found here, so loops may trust the result. */
const char *ebb_lstm_read(ebb_lstm *sizes, const ebb_call *call);

/* Does that direction begin with the last step? */
bool ebb_lstm_backwards(const ebb_lstm *sizes, int64_t direction);

#ifdef __cplusplus
}
#endif
#endif
