/* recurrent.c: LSTM, LSTMTraining (which also gives what the backward needs) and LSTMGrad.
 *
 *   X: [T, B, I]   W: [D, 4H, I]   R: [D, 4H, H]   B: [D, 8H]   P: [D, 3H]   gates in the order i o
 * f c i, f = sigmoid(x W' + h R' + b + p * c)   c~ = tanh(x W' + h R' + b)   c <- f c + i c~ o =
 * sigmoid(x W' + h R' + b + p * c)      h <- o tanh(c)
 *
 * LSTMTraining's fourth and fifth outputs are all c [T, D, B, H] and all gates after their
 * activations [T, D, B, 4H]. LSTMGrad takes no peepholes, as onnxruntime's does not.
 */
#include "kernels/lstm.h"
#include "kernels/plain/plain.h"

#include <math.h>

enum { COLUMNS = 64 }; /* sums held at once; 512 bytes of stack */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static const void *operand_data(const ebb_call *call, uint32_t i)
{
    return ebb_plain_has(call, i) ? call->in[i].data : NULL;
}

static void *output_data(const ebb_call *call, uint32_t o)
{
    return ebb_plain_wants(call, o) ? call->out[o].data : NULL;
}

#define LOOPS "kernels/plain/recurrent_loops.inc"
#include "kernels/plain/both_floats.inc"

static const char *declines(const ebb_call *call)
{
    ebb_lstm s;
    const char *why = ebb_plain_floats(call);
    return why != NULL ? why : ebb_lstm_read(&s, call);
}

/* Two states, and the gates of one step (forward) or of all steps (backward). */
static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    ebb_lstm s;
    const char *why = ebb_lstm_read(&s, call);
    if (why != NULL)
        return ebb_call_error(call, "%s", why);
    size_t state, steps = call->op == EBB_OP_LSTM_GRAD ? (size_t)s.times : 1;
    if (!ebb_size_mul(&state, (size_t)s.batch, (size_t)s.hidden) ||
        !ebb_size_mul(&state, state, ebb_plain_size(&call->in[0].type)) ||
        !ebb_size_mul(bytes, state, 4 * steps + 2))
        return ebb_call_error(call, "the scratch memory is too large to address");
    return NULL;
}

static ebb_status run(const ebb_call *call)
{
    ebb_lstm s;
    const char *why = ebb_lstm_read(&s, call);
    if (why != NULL)
        return ebb_call_error(call, "%s", why);
    bool backward = call->op == EBB_OP_LSTM_GRAD;
    int64_t state = s.batch * s.hidden;
    for (int64_t d = 0; d < s.directions; d++) {
        if (call->in[0].type.dtype == EBB_F64) {
            double *h = call->workspace, *c = h + state, *gates = c + state;
            backward ? lstm_grad_direction_f64(call, &s, d, gates, h, c)
                     : lstm_direction_f64(call, &s, d, gates, h, c);
        } else {
            float *h = call->workspace, *c = h + state, *gates = c + state;
            backward ? lstm_grad_direction_f32(call, &s, d, gates, h, c)
                     : lstm_direction_f32(call, &s, d, gates, h, c);
        }
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_recurrent[] = {
    {.name = "plain.lstm",          .op = EBB_OP_LSTM,          .declines = declines, .workspace = workspace, .run = run},
    {.name = "plain.lstm_training", .op = EBB_OP_LSTM_TRAINING, .declines = declines, .workspace = workspace, .run = run},
    {.name = "plain.lstm_grad",     .op = EBB_OP_LSTM_GRAD,     .declines = declines, .workspace = workspace, .run = run},
};
// clang-format on
EBB_PLAIN_COUNT(recurrent)
