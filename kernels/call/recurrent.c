/* recurrent.c: which RNNs, GRUs and LSTMs we can run: attributes and shapes, checked once for all
 * back ends. */
#include "kernels/call/recurrent.h"

#include <math.h>
#include <strings.h>

/* ---- which operator ---- */

static const ebb_recurrent_slots forward_slots = {
    .bias = 3,
    .lengths = 4,
    .h0 = 5,
    .c0 = -1,
    .peepholes = -1,
    .h_all = -1,
    .c_all = -1,
    .gates = -1,
    .dh_all = -1,
    .dh_last = -1,
    .dc_last = -1,
};

static bool read_operator(ebb_recurrent *s, ebb_op op)
{
    s->at = forward_slots;
    switch (op) {
    case EBB_OP_RNN:
    case EBB_OP_RNN_GRAD:
        s->cell = EBB_CELL_RNN;
        s->gates = 1;
        break;
    case EBB_OP_GRU:
    case EBB_OP_GRU_GRAD:
        s->cell = EBB_CELL_GRU;
        s->gates = 3;
        break;
    case EBB_OP_LSTM:
    case EBB_OP_LSTM_TRAINING:
    case EBB_OP_LSTM_GRAD:
    case EBB_OP_EBB_LSTM_GRAD:
        s->cell = EBB_CELL_LSTM;
        s->gates = 4;
        s->at.c0 = 6;
        s->at.peepholes = 7;
        break;
    default:
        return false;
    }
    s->kept = op == EBB_OP_LSTM_GRAD;
    s->backward =
        s->kept || op == EBB_OP_RNN_GRAD || op == EBB_OP_GRU_GRAD || op == EBB_OP_EBB_LSTM_GRAD;
    if (s->kept) { // com.microsoft's order: no bias, no peepholes
        s->at = (ebb_recurrent_slots){-1, 3, 4, 5, -1, 6, 7, 8, 9, 10, 11};
    } else if (s->backward) {
        bool lstm = s->cell == EBB_CELL_LSTM;
        s->at.h_all = lstm ? 8 : 6;
        s->at.dh_all = (int8_t)(s->at.h_all + 1);
        s->at.dh_last = (int8_t)(s->at.h_all + 2);
        s->at.dc_last = lstm ? (int8_t)(s->at.h_all + 3) : -1;
    }
    return true;
}

/* ---- attributes ---- */

static const struct squash {
    const char *name;
    bool has_alpha, has_beta;
    double alpha, beta; /* where the node does not say; NAN: the standard does not either */
} squashes[EBB_SQUASHES] = {
    [EBB_SQUASH_RELU] = {"Relu", false, false, 0, 0},
    [EBB_SQUASH_TANH] = {"Tanh", false, false, 0, 0},
    [EBB_SQUASH_SIGMOID] = {"Sigmoid", false, false, 0, 0},
    [EBB_SQUASH_AFFINE] = {"Affine", true, true, NAN, NAN},
    [EBB_SQUASH_LEAKY_RELU] = {"LeakyRelu", true, false, 0.01F, 0},
    [EBB_SQUASH_THRESHOLDED_RELU] = {"ThresholdedRelu", true, false, 1, 0},
    [EBB_SQUASH_SCALED_TANH] = {"ScaledTanh", true, true, NAN, NAN},
    [EBB_SQUASH_HARD_SIGMOID] = {"HardSigmoid", true, true, 0.2F, 0.5},
    [EBB_SQUASH_ELU] = {"Elu", true, false, 1, 0},
    [EBB_SQUASH_SOFTSIGN] = {"Softsign", false, false, 0, 0},
    [EBB_SQUASH_SOFTPLUS] = {"Softplus", false, false, 0, 0},
};

static bool name_squash(ebb_activation *a, const char *name)
{
    for (int k = 0; k < EBB_SQUASHES; k++)
        if (strcasecmp(name, squashes[k].name) == 0) { // as ONNX Runtime reads them
            *a = (ebb_activation){(ebb_squash)k, squashes[k].alpha, squashes[k].beta};
            return true;
        }
    return false;
}

/* How many functions one direction has: f; f, g; f, g, h. */
static int functions(ebb_cell cell)
{
    return (int)cell + 1;
}

static ebb_squash usual_squash(ebb_cell cell, int k)
{
    return k == 0 && cell != EBB_CELL_RNN ? EBB_SQUASH_SIGMOID : EBB_SQUASH_TANH;
}

/* The names, direction by direction; alpha and beta are handed out to those that have one, in that
 * order. */
static const char *read_activations(ebb_recurrent *s, const ebb_attrs *attrs)
{
    const ebb_attr *names = ebb_attr_find(attrs, "activations");
    const ebb_attr *alpha = ebb_attr_find(attrs, "activation_alpha");
    const ebb_attr *beta = ebb_attr_find(attrs, "activation_beta");
    uint32_t each = (uint32_t)functions(s->cell), alphas = 0, betas = 0;
    if (names != NULL && names->count == 0)
        names = NULL;
    if (names != NULL && (names->type != EBB_ATTR_STRINGS || s->directions > 2 ||
                          names->count != each * (uint32_t)s->directions))
        return "activations must name as many functions as the directions have";
    for (uint32_t d = 0; d < 2; d++)
        for (uint32_t k = 0; k < each; k++) {
            ebb_activation *a = &s->activations[d][k];
            uint32_t i = d * each + k;
            const char *name = squashes[usual_squash(s->cell, (int)k)].name;
            if (names != NULL && i < names->count)
                name = names->strings[i];
            if (!name_squash(a, name))
                return "an activation is none that the standard names";
            if (squashes[a->kind].has_alpha && alpha != NULL && alpha->type == EBB_ATTR_FLOATS &&
                alphas < alpha->count)
                a->alpha = (double)alpha->floats[alphas++];
            if (squashes[a->kind].has_beta && beta != NULL && beta->type == EBB_ATTR_FLOATS &&
                betas < beta->count)
                a->beta = (double)beta->floats[betas++];
            if (isnan(a->alpha) || isnan(a->beta))
                return "Affine and ScaledTanh need activation_alpha and activation_beta";
        }
    return NULL;
}

static const char *read_attributes(ebb_recurrent *s, const ebb_attrs *attrs)
{
    const char *direction = ebb_attr_string(attrs, "direction", "forward");
    bool both = strcmp(direction, "bidirectional") == 0;
    s->reverse = strcmp(direction, "reverse") == 0;
    s->batch_first = ebb_attr_int(attrs, "layout", 0) != 0;
    s->input_forget = ebb_attr_int(attrs, "input_forget", 0) != 0;
    s->linear_before_reset = ebb_attr_int(attrs, "linear_before_reset", 0) != 0;
    s->clip = ebb_attr_float(attrs, "clip", INFINITY);
    if (!both && !s->reverse && strcmp(direction, "forward") != 0)
        return "direction is none of forward, reverse and bidirectional";
    if (s->directions != (both ? 2 : 1))
        return "direction and the weights disagree";
    if (!(s->clip >= 0)) // NaN too
        return "clip must not be negative";
    return read_activations(s, attrs);
}

/* ---- shapes ---- */

static bool has_shape(const ebb_type *type, int rank, const int64_t *dims)
{
    if (type->rank != rank)
        return false;
    for (int i = 0; i < rank; i++)
        if (type->dims[i] != dims[i])
            return false;
    return true;
}

/* An operand that is there has the shape; one that is not passes. */
#define FITS(list, count, i, ...)                                                                \
    ((i) < 0 || (uint32_t)(i) >= (count) || (list)[i].type.dtype == EBB_NONE ||                  \
     has_shape(&(list)[i].type, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
               (const int64_t[]){__VA_ARGS__}))

static bool is_state(const ebb_recurrent *s, const ebb_operand *list, uint32_t count, int i)
{
    return s->batch_first ? FITS(list, count, i, s->batch, s->directions, s->hidden)
                          : FITS(list, count, i, s->directions, s->batch, s->hidden);
}

/* One row of `width` for each step, direction and sequence. */
static bool is_all(const ebb_recurrent *s, const ebb_operand *list, uint32_t count, int i,
                   int64_t width)
{
    return s->batch_first ? FITS(list, count, i, s->batch, s->times, s->directions, width)
                          : FITS(list, count, i, s->times, s->directions, s->batch, width);
}

static const char *check_inputs(const ebb_recurrent *s, const ebb_call *call)
{
    const ebb_operand *in = call->in;
    const ebb_recurrent_slots *at = &s->at;
    uint32_t n = call->input_count;
    const int64_t D = s->directions, H = s->hidden, GH = s->gates * H;
    if (!FITS(in, n, 1, D, GH, s->inputs) || !FITS(in, n, 2, D, GH, H))
        return "the shapes of X, W and R disagree";
    if (!FITS(in, n, at->bias, D, 2 * GH) || !FITS(in, n, at->peepholes, D, 3 * H) ||
        !FITS(in, n, at->lengths, s->batch) || !is_state(s, in, n, at->h0) ||
        !is_state(s, in, n, at->c0))
        return "the shapes of bias, sequence_lens or initial states disagree with those of X and R";
    if (ebb_call_has(call, at->lengths) && in[at->lengths].type.dtype != EBB_I32 &&
        in[at->lengths].type.dtype != EBB_I64)
        return "sequence_lens is not int32";
    if (!is_all(s, in, n, at->h_all, H) || !is_all(s, in, n, at->c_all, H) ||
        !is_all(s, in, n, at->gates, GH) || !is_all(s, in, n, at->dh_all, H) ||
        !is_state(s, in, n, at->dh_last) || !is_state(s, in, n, at->dc_last))
        return "the shapes of states or gradients disagree with those of X and R";
    return NULL;
}

static const char *check_outputs(const ebb_recurrent *s, const ebb_call *call)
{
    const ebb_operand *out = call->out;
    uint32_t n = call->output_count;
    const int64_t D = s->directions, H = s->hidden, GH = s->gates * H, I = s->inputs;
    bool fits = false;
    if (!s->backward)
        fits = is_all(s, out, n, 0, H) && is_state(s, out, n, 1) && is_state(s, out, n, 2) &&
               is_all(s, out, n, 3, H) && is_all(s, out, n, 4, GH);
    else
        fits = (n == 0 || out[0].type.dtype == EBB_NONE ||
                has_shape(&out[0].type, 3, call->in[0].type.dims)) &&
               FITS(out, n, 1, D, GH, I) && FITS(out, n, 2, D, GH, H) &&
               FITS(out, n, 3, D, 2 * GH) && is_state(s, out, n, 4) && is_state(s, out, n, 5) &&
               FITS(out, n, 6, D, 3 * H);
    return fits ? NULL : "the shapes of the outputs disagree with those of X and R";
}

const char *ebb_usual_lstm_misfit(const ebb_recurrent *s, const ebb_call *call)
{
    return s->cell == EBB_CELL_LSTM ? ebb_usual_cell_misfit(s, call) : "only LSTM";
}

const char *ebb_usual_cell_misfit(const ebb_recurrent *s, const ebb_call *call)
{
    for (int d = 0; d < (int)s->directions; d++)
        for (int k = 0; k < functions(s->cell); k++)
            if (s->activations[d][k].kind != usual_squash(s->cell, k))
                return "only the activations that a cell has where the node names none";
    if (isfinite(s->clip))
        return "no clip";
    if (s->input_forget)
        return "no input_forget";
    if (s->batch_first)
        return "only layout 0 (time first)";
    if (!ebb_call_has(call, s->at.lengths))
        return NULL;
    const ebb_tensor *lengths = call->in[s->at.lengths].constant;
    if (lengths == NULL || lengths->data == NULL)
        return "sequence_lens is not a constant";
    for (int64_t b = 0; b < s->batch; b++)
        if (ebb_tensor_int(lengths, b) != s->times)
            return "sequence_lens has sequences of different length";
    return NULL;
}

const char *ebb_recurrent_read(ebb_recurrent *s, const ebb_call *call)
{
    *s = (ebb_recurrent){.clip = INFINITY};
    if (!read_operator(s, call->op))
        return "no recurrent operator";
    if (!ebb_call_has(call, 1) || !ebb_call_has(call, 2) || call->in[0].type.rank != 3 ||
        call->in[1].type.rank != 3 || call->in[2].type.rank != 3)
        return "X, W and R must have three dims";
    const int64_t *x = call->in[0].type.dims, *r = call->in[2].type.dims;
    s->directions = r[0];
    s->hidden = r[2];
    if (s->hidden > INT32_MAX)
        return "hidden_size does not fit 32 bits";
    const char *why = read_attributes(s, &call->attrs);
    s->times = x[s->batch_first ? 1 : 0];
    s->batch = x[s->batch_first ? 0 : 1];
    s->inputs = x[2];
    if (why == NULL)
        why = check_inputs(s, call);
    if (why == NULL)
        why = check_outputs(s, call);
    if (why != NULL || !s->backward)
        return why;
    if (!ebb_call_has(call, s->at.h_all))
        return "needs all h of the forward";
    if (!s->kept)
        return NULL;
    if (ebb_call_wants(call, 6))
        return "no gradient of peepholes";
    if (!ebb_call_has(call, s->at.c_all) || !ebb_call_has(call, s->at.gates))
        return "needs all h, all c and the gates of LSTMTraining";
    return ebb_usual_lstm_misfit(s, call);
}
