/* lstm.c: which LSTMs we can run: attributes and shapes, checked once for all back ends. */
#include "kernels/lstm.h"

bool ebb_lstm_backwards(const ebb_lstm *s, int64_t direction)
{
    return s->reverse || direction == 1;
}

static bool has(const ebb_call *c, uint32_t i)
{
    return i < c->input_count && c->in[i].type.dtype != EBB_NONE;
}

static bool wants(const ebb_call *c, uint32_t o)
{
    return o < c->output_count && c->out[o].type.dtype != EBB_NONE;
}

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

static void read_sizes(ebb_lstm *s, const ebb_call *call)
{
    const ebb_type *x = &call->in[0].type, *r = &call->in[2].type;
    *s = (ebb_lstm){.times = x->dims[0], .batch = x->dims[1], .inputs = x->dims[2]};
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
static const char *declines_lengths(const ebb_call *call, uint32_t i, const ebb_lstm *s)
{
    if (!has(call, i))
        return NULL;
    const ebb_tensor *lengths = call->in[i].constant;
    if (lengths == NULL || lengths->data == NULL || lengths->type.rank != 1)
        return "sequence_lens is not a constant";
    for (int64_t b = 0; b < lengths->type.dims[0]; b++)
        if (ebb_tensor_int(lengths, b) != s->times)
            return "sequence_lens has sequences of different length";
    return NULL;
}

const char *ebb_lstm_read(ebb_lstm *s, const ebb_call *call)
{
    if (!has(call, 1) || !has(call, 2) || call->in[0].type.rank != 3 ||
        call->in[1].type.rank != 3 || call->in[2].type.rank != 3)
        return "X, W and R must have three dims";
    read_sizes(s, call);
    bool backward = call->op == EBB_OP_LSTM_GRAD;
    const char *why = declines_attributes(call, s->directions);
    if (why == NULL)
        why = declines_lengths(call, backward ? 3 : 4, s);
    if (why != NULL)
        return why;
    const int64_t T = s->times, B = s->batch, I = s->inputs, H = s->hidden, D = s->directions;
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
    if (wants(call, 6))
        return "no gradient of peepholes";
    if (!has(call, 6) || !has(call, 7) || !has(call, 8))
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
