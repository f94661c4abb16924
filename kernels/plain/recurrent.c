/* recurrent.c: LSTM, LSTMTraining (which also gives what the backward needs) and LSTMGrad.
 *
 *   X: [T, B, I]   W: [D, 4H, I]   R: [D, 4H, H]   B: [D, 8H]   P: [D, 3H]   gates in the order i o
 * f c i, f = sigmoid(x W' + h R' + b + p * c)   c~ = tanh(x W' + h R' + b)   c <- f c + i c~ o =
 * sigmoid(x W' + h R' + b + p * c)      h <- o tanh(c)
 *
 * LSTMTraining's fourth and fifth outputs are all c [T, D, B, H] and all gates after their
 * activations [T, D, B, 4H]. LSTMGrad takes no peepholes, as onnxruntime's does not.
 */
#include "kernels/plain/plain.h"

#include <math.h>

enum { COLUMNS = 64 }; /* sums held at once; 512 bytes of stack */

typedef struct lstm {
    int64_t times, batch, inputs, hidden, directions;
    bool reverse; /* the only direction is backwards */
} lstm;

static bool backwards(const lstm *s, int64_t direction)
{
    return s->reverse || direction == 1;
}

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

static bool has_shape(const ebb_type *type, int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t dims[] = {a, b, c, d};
    if (type->rank != rank)
        return false;
    for (int i = 0; i < rank; i++)
        if (type->dims[i] != dims[i])
            return false;
    return true;
}

static void read_sizes(lstm *s, const ebb_call *call)
{
    const ebb_type *x = &call->in[0].type, *r = &call->in[2].type;
    *s = (lstm){.times = x->dims[0], .batch = x->dims[1], .inputs = x->dims[2]};
    s->directions = r->dims[0];
    s->hidden = r->dims[2];
    s->reverse = strcmp(ebb_attr_string(&call->attrs, "direction", "forward"), "reverse") == 0;
}

/* An operand that is there has the shape; one that is not passes. */
static bool fits(const ebb_operand *list, uint32_t count, uint32_t i, int rank, int64_t a,
                 int64_t b, int64_t c, int64_t d)
{
    return i >= count || list[i].type.dtype == EBB_NONE ||
           has_shape(&list[i].type, rank, a, b, c, d);
}

static const char *declines_attributes(const ebb_call *call, int64_t directions)
{
    const char *direction = ebb_attr_string(&call->attrs, "direction", "forward");
    const ebb_attr *list = ebb_attr_find(&call->attrs, "activations");
    static const char *const usual[] = {"Sigmoid", "Tanh", "Tanh"};
    for (uint32_t i = 0; list != NULL && i < list->count; i++)
        if (list->type != EBB_ATTR_STRINGS || strcmp(list->strings[i], usual[i % 3]) != 0)
            return "only the activations Sigmoid, Tanh, Tanh";
    if (ebb_attr_find(&call->attrs, "clip") != NULL)
        return "no clip";
    if (ebb_attr_int(&call->attrs, "input_forget", 0) != 0)
        return "no input_forget";
    if (ebb_attr_int(&call->attrs, "layout", 0) != 0)
        return "only layout 0 (time first)";
    if (directions != (strcmp(direction, "bidirectional") == 0 ? 2 : 1))
        return "direction and the weights disagree";
    return NULL;
}

/* Sequences shorter than T would need masks; only those that say "all of it" are taken. */
static const char *declines_lengths(const ebb_call *call, uint32_t i, const lstm *s)
{
    if (!ebb_plain_has(call, i))
        return NULL;
    const ebb_tensor *lengths = call->in[i].constant;
    if (lengths == NULL || lengths->data == NULL || lengths->type.rank != 1)
        return "sequence_lens is not a constant";
    for (int64_t b = 0; b < lengths->type.dims[0]; b++)
        if (ebb_tensor_int(lengths, b) != s->times)
            return "sequence_lens has sequences of different length";
    return NULL;
}

static const char *declines(const ebb_call *call)
{
    const char *why = ebb_plain_floats(call);
    if (why != NULL)
        return why;
    if (!ebb_plain_has(call, 1) || !ebb_plain_has(call, 2) || call->in[0].type.rank != 3 ||
        call->in[1].type.rank != 3 || call->in[2].type.rank != 3)
        return "X, W and R must have three dims";
    lstm s;
    read_sizes(&s, call);
    bool backward = call->op == EBB_OP_LSTM_GRAD;
    why = declines_attributes(call, s.directions);
    if (why == NULL)
        why = declines_lengths(call, backward ? 3 : 4, &s);
    if (why != NULL)
        return why;
    const int64_t T = s.times, B = s.batch, I = s.inputs, H = s.hidden, D = s.directions;
    const ebb_operand *in = call->in, *out = call->out;
    uint32_t ins = call->input_count, outs = call->output_count;
    if (!has_shape(&in[1].type, 3, D, 4 * H, I, 0) || !has_shape(&in[2].type, 3, D, 4 * H, H, 0))
        return "the shapes of X, W and R disagree";
    if (!backward)
        return fits(in, ins, 3, 2, D, 8 * H, 0, 0) && fits(in, ins, 5, 3, D, B, H, 0) &&
                       fits(in, ins, 6, 3, D, B, H, 0) && fits(in, ins, 7, 2, D, 3 * H, 0, 0) &&
                       fits(out, outs, 0, 4, T, D, B, H) && fits(out, outs, 1, 3, D, B, H, 0) &&
                       fits(out, outs, 2, 3, D, B, H, 0) && fits(out, outs, 3, 4, T, D, B, H) &&
                       fits(out, outs, 4, 4, T, D, B, 4 * H)
                   ? NULL
                   : "the shapes of bias, states or outputs disagree with those of X and R";
    if (ebb_plain_wants(call, 6))
        return "no gradient of peepholes";
    if (!ebb_plain_has(call, 6) || !ebb_plain_has(call, 7) || !ebb_plain_has(call, 8))
        return "needs all h, all c and the gates of LSTMTraining";
    return fits(in, ins, 4, 3, D, B, H, 0) && fits(in, ins, 5, 3, D, B, H, 0) &&
                   fits(in, ins, 6, 4, T, D, B, H) && fits(in, ins, 7, 4, T, D, B, H) &&
                   fits(in, ins, 8, 4, T, D, B, 4 * H) && fits(in, ins, 9, 4, T, D, B, H) &&
                   fits(in, ins, 10, 3, D, B, H, 0) && fits(in, ins, 11, 3, D, B, H, 0) &&
                   fits(out, outs, 0, 3, T, B, I, 0) && fits(out, outs, 1, 3, D, 4 * H, I, 0) &&
                   fits(out, outs, 2, 3, D, 4 * H, H, 0) && fits(out, outs, 3, 2, D, 8 * H, 0, 0) &&
                   fits(out, outs, 4, 3, D, B, H, 0) && fits(out, outs, 5, 3, D, B, H, 0)
               ? NULL
               : "the shapes of states or gradients disagree with those of X and R";
}

/* Two states, and the gates of one step (forward) or of all steps (backward). */
static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    lstm s;
    read_sizes(&s, call);
    size_t state, steps = call->op == EBB_OP_LSTM_GRAD ? (size_t)s.times : 1;
    if (!ebb_size_mul(&state, (size_t)s.batch, (size_t)s.hidden) ||
        !ebb_size_mul(&state, state, ebb_plain_size(&call->in[0].type)) ||
        !ebb_size_mul(bytes, state, 4 * steps + 2))
        return ebb_call_error(call, "the scratch memory is too large to address");
    return NULL;
}

static ebb_status run(const ebb_call *call)
{
    lstm s;
    read_sizes(&s, call);
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
