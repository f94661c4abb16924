/* recurrent.c: RNN, GRU and LSTM, and their gradients.
 *
 *   X: [T, B, I]   W: [D, GH, I]   R: [D, GH, H]   B: [D, 2GH]   P: [D, 3H]   h0, c0: [D, B, H]
 *   Y: [T, D, B, H]   Y_h, Y_c: [D, B, H]          (layout = 1: batch first in X, Y and states)
 *
 *   RNN   h <- f(x W' + h R' + b)
 *   GRU   z, r = f(x W' + h R' + b)        gates in the order z r n
 *         n = g(x W' + (r h) R' + b)       linear_before_reset: g(x W' + bw + r (h R' + br))
 *         h <- (1 - z) n + z h
 *   LSTM  i, f = f(x W' + h R' + b + p c)  gates in the order i o f n, peepholes i o f
 *         n = g(x W' + h R' + b)           input_forget: f = 1 - i
 *         c <- f c + i n
 *         o = f(x W' + h R' + b + p c)     h <- o h(c)
 *
 * Clip bounds what the activations of gates are given. A step beyond its sequence's length leaves
 * the state as it is and writes zeros, whichever way the direction runs: backwards begins at the
 * last step that is there. The last state of a sequence of no steps is zero. Where the standard
 * leaves it open (clip and h(c), no steps), this is what ONNX Runtime does.
 *
 * The gradients (ai.ebb.RnnGrad, GruGrad, LstmGrad) read nothing of the forward but Y: with the
 * states known, what all gates were is one product over all steps, so it is computed again and
 * nothing but Y is kept.
 *
 *   {Rnn,Gru}Grad(X, W, R, B?, lengths?, h0?, Y, dY?, dY_h?)                 -> dX dW dR dB dh0
 *   LstmGrad(X, W, R, B?, lengths?, h0?, c0?, P?, Y, dY?, dY_h?, dY_c?)      -> ... dc0 dP
 *
 * com.microsoft LSTMTraining gives as fourth and fifth output all c [T, D, B, H] and all gates
 * after their activations [T, D, B, 4H], for LSTMGrad, which takes no peepholes, as onnxruntime's
 * does not.
 */
#include "kernels/plain/plain.h"
#include "kernels/call/recurrent.h"

enum { COLUMNS = 64 }; /* sums held at once; 512 bytes of stack */

static const void *operand_data(const ebb_call *call, int i)
{
    return i >= 0 && ebb_call_has(call, (uint32_t)i) ? call->in[i].data : NULL;
}

static void *output_data(const ebb_call *call, uint32_t o)
{
    return ebb_call_wants(call, o) ? call->out[o].data : NULL;
}

/* One direction of one call. */
typedef struct job {
    const ebb_call *call;
    ebb_recurrent s;
    int64_t d;
    int64_t width; /* of a row of gates: those of the cell; GRU: [z r n s], see *_sums */
} job;

static int64_t length_of(const job *j, int64_t b)
{
    int at = j->s.at.lengths;
    return at >= 0 && ebb_call_has(j->call, (uint32_t)at) ? ebb_plain_int(&j->call->in[at], b)
                                                          : j->s.times;
}

/* Whether a state can arrive at the end: not behind a sequence that is said to have no steps. */
static bool has_end(const job *j, int64_t b)
{
    return operand_data(j->call, j->s.at.lengths) == NULL || length_of(j, b) > 0;
}

/* Its step-th step, and the step before that one. */
static int64_t time_of(const job *j, int64_t step)
{
    return ebb_recurrent_backwards(&j->s, j->d) ? j->s.times - 1 - step : step;
}

static int64_t time_before(const job *j, int64_t t)
{
    return ebb_recurrent_backwards(&j->s, j->d) ? t + 1 : t - 1;
}

#define LOOPS "kernels/plain/layers/recurrent_loops.inc"
#include "kernels/plain/both_floats.inc"
#define LOOPS "kernels/plain/layers/recurrent_grad_loops.inc"
#include "kernels/plain/both_floats.inc"

/* ---- calls ---- */

static const char *misfit(const ebb_call *call)
{
    ebb_recurrent s;
    return ebb_recurrent_read(&s, call);
}

static job job_of(const ebb_call *call, const ebb_recurrent *s)
{
    return (job){call, *s, 0, (s->cell == EBB_CELL_RNN ? 1 : 4) * s->hidden};
}

/* In states [B, H]: forward h, c, and the gates of one step. Backward dh, dc and the gates of all
 * steps; c of all steps where they were not kept. */
static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    ebb_recurrent s;
    EBB_MUST_FIT(call, ebb_recurrent_read(&s, call));
    size_t state, steps = s.backward ? (size_t)s.times : 1, each = s.cell == EBB_CELL_RNN ? 1 : 4;
    if (s.backward && !s.kept && s.cell == EBB_CELL_LSTM)
        each++;
    if (!ebb_size_mul(&state, (size_t)s.batch, (size_t)s.hidden) ||
        !ebb_size_mul(&state, state, ebb_element_bytes(&call->in[0].type)) ||
        !ebb_size_mul(&steps, steps, each) || !ebb_size_mul(bytes, state, steps + 2))
        return ebb_call_error(call, "the scratch memory is too large to address");
    return NULL;
}

static ebb_status check_lengths(const job *j)
{
    for (int64_t b = 0; b < j->s.batch; b++)
        if (length_of(j, b) < 0 || length_of(j, b) > j->s.times)
            return ebb_call_error(j->call, "sequence_lens[%lld] is %lld, there are %lld steps",
                                  (long long)b, (long long)length_of(j, b), (long long)j->s.times);
    return NULL;
}

static ebb_status run(const ebb_call *call)
{
    ebb_recurrent s;
    EBB_MUST_FIT(call, ebb_recurrent_read(&s, call));
    job j = job_of(call, &s);
    EBB_TRY(check_lengths(&j));
    for (; j.d < s.directions; j.d++)
        if (s.backward)
            EBB_BY_FLOAT(call->in[0], grad_direction, &j);
        else
            EBB_BY_FLOAT(call->in[0], direction, &j);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_recurrent[] = {
    {.name = "plain.rnn",           .op = EBB_OP_RNN,           .dtypes = ebb_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "plain.gru",           .op = EBB_OP_GRU,           .dtypes = ebb_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "plain.lstm",          .op = EBB_OP_LSTM,          .dtypes = ebb_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "plain.lstm_training", .op = EBB_OP_LSTM_TRAINING, .dtypes = ebb_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "plain.rnn_grad",      .op = EBB_OP_RNN_GRAD,      .dtypes = ebb_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "plain.gru_grad",      .op = EBB_OP_GRU_GRAD,      .dtypes = ebb_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "plain.lstm_grad",     .op = EBB_OP_LSTM_GRAD,     .dtypes = ebb_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
    {.name = "plain.ebb_lstm_grad", .op = EBB_OP_EBB_LSTM_GRAD, .dtypes = ebb_plain_floats, .fits = misfit, .workspace = workspace, .run = run},
};
// clang-format on
EBB_PLAIN_COUNT(recurrent)
