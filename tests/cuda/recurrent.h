/* recurrent.h: calls of recurrent layers, for tests of their kernels. */
#pragma once

#include "tests/kernels/call.h"

typedef struct shape {
    const char *direction;
    int64_t T, B, I, H;
} shape; /* steps, batch, inputs, hidden */

static inline int64_t directions(const shape *s)
{
    return strcmp(s->direction, "bidirectional") == 0 ? 2 : 1;
}

/* ---- the usual LSTM ---- */

static inline void maybe_out(testing *t, bool there, ebb_dtype dtype, int rank, const int64_t *dims)
{
    if (there)
        put_out(t, dtype, rank, dims);
    else
        t->out[t->call.output_count++].type = ebb_type_none();
}

/* With X, W and R. */
static inline void begin_usual(testing *t, const shape *s, ebb_dtype dtype, ebb_op op)
{
    const int64_t n = directions(s);
    begin(t, op);
    t->call.node = s->direction;
    put_int(t, "hidden_size", s->H);
    put_string(t, "direction", s->direction);
    put_in(t, dtype, 3, D(s->T, s->B, s->I));
    put_in(t, dtype, 3, D(n, 4 * s->H, s->I));
    put_in(t, dtype, 3, D(n, 4 * s->H, s->H));
}

/* has: bit 0 bias, 1 h0, 2 c0, 3 peepholes; wants: bit o is output o. */
static inline void put_usual_forward(testing *t, const shape *s, ebb_dtype dtype, unsigned has,
                                     unsigned wants)
{
    const int64_t n = directions(s), T = s->T, B = s->B, H = s->H;
    begin_usual(t, s, dtype, wants & 24 ? EBB_OP_LSTM_TRAINING : EBB_OP_LSTM);
    maybe_in(t, has & 1, dtype, 2, D(n, 8 * H));
    put_absent(t);
    maybe_in(t, has & 2, dtype, 3, D(n, B, H));
    maybe_in(t, has & 4, dtype, 3, D(n, B, H));
    maybe_in(t, has & 8, dtype, 2, D(n, 3 * H));
    maybe_out(t, wants & 1, dtype, 4, D(T, n, B, H));
    maybe_out(t, wants & 2, dtype, 3, D(n, B, H));
    maybe_out(t, wants & 4, dtype, 3, D(n, B, H));
    maybe_out(t, wants & 8, dtype, 4, D(T, n, B, H));
    maybe_out(t, wants & 16, dtype, 4, D(T, n, B, 4 * H));
}

/* has: bits 0 h0, 1 c0, 2 dH of all steps, 3 of the last, 4 dC of the last. The kept gates are
 * brought into (0, 1), where they would be. */
static inline void put_usual_backward(testing *t, const shape *s, ebb_dtype dtype, unsigned has,
                                      unsigned wants)
{
    const int64_t n = directions(s), T = s->T, B = s->B, I = s->I, H = s->H;
    begin_usual(t, s, dtype, EBB_OP_LSTM_GRAD);
    put_absent(t);
    maybe_in(t, has & 1, dtype, 3, D(n, B, H));
    maybe_in(t, has & 2, dtype, 3, D(n, B, H));
    put_in(t, dtype, 4, D(T, n, B, H));
    put_in(t, dtype, 4, D(T, n, B, H));
    ebb_operand *gates = put_in(t, dtype, 4, D(T, n, B, 4 * H));
    for (size_t i = 0; i < count_of(gates); i++)
        set_value(gates, i, 0.5 + 0.4 * value_of(gates, i));
    maybe_in(t, has & 4, dtype, 4, D(T, n, B, H));
    maybe_in(t, has & 8, dtype, 3, D(n, B, H));
    maybe_in(t, has & 16, dtype, 3, D(n, B, H));
    maybe_out(t, wants & 1, dtype, 3, D(T, B, I));
    maybe_out(t, wants & 2, dtype, 3, D(n, 4 * H, I));
    maybe_out(t, wants & 4, dtype, 3, D(n, 4 * H, H));
    maybe_out(t, wants & 8, dtype, 2, D(n, 8 * H));
    maybe_out(t, wants & 16, dtype, 3, D(n, B, H));
    maybe_out(t, wants & 32, dtype, 3, D(n, B, H));
}

/* ---- any cell ---- */

typedef enum cell { RNN, GRU, LSTM } cell;

static const ebb_op forward_ops[] = {EBB_OP_RNN, EBB_OP_GRU, EBB_OP_LSTM};
static const ebb_op backward_ops[] = {EBB_OP_RNN_GRAD, EBB_OP_GRU_GRAD, EBB_OP_EBB_LSTM_GRAD};

/* What a node says: bits. */
enum {
    BATCH_FIRST = 1,
    LENGTHS = 2,
    CLIP = 4,
    ODD = 8, /* linear_before_reset, input_forget */
    BIAS = 16,
    STATES = 32,
    PEEPHOLES = 64,
    ALL = 127,
};

static inline void put_state(testing *t, const shape *s, ebb_dtype dtype, unsigned says, bool there,
                             bool out)
{
    const int64_t n = directions(s);
    const int64_t *dims = says & BATCH_FIRST ? D(s->B, n, s->H) : D(n, s->B, s->H);
    int64_t keep[3] = {dims[0], dims[1], dims[2]};
    if (out)
        put_out(t, dtype, 3, keep);
    else
        maybe_in(t, there, dtype, 3, keep);
}

static inline void put_all_states(testing *t, const shape *s, ebb_dtype dtype, unsigned says,
                                  bool out)
{
    const int64_t n = directions(s);
    int64_t dims[4] = {s->T, n, s->B, s->H}, first[4] = {s->B, s->T, n, s->H};
    if (out)
        put_out(t, dtype, 4, says & BATCH_FIRST ? first : dims);
    else
        put_in(t, dtype, 4, says & BATCH_FIRST ? first : dims);
}

static inline void put_attributes(testing *t, const shape *s, cell c, unsigned says)
{
    put_int(t, "hidden_size", s->H);
    put_string(t, "direction", s->direction);
    put_int(t, "layout", says & BATCH_FIRST ? 1 : 0);
    if (says & CLIP)
        put_float(t, "clip", 0.4);
    if (c == GRU)
        put_int(t, "linear_before_reset", says & ODD ? 1 : 0);
    if (c == LSTM)
        put_int(t, "input_forget", says & ODD ? 1 : 0);
}

/* X, W, R, B?, lengths?, h0?, c0?, P? */
static inline void put_operands(testing *t, const shape *s, cell c, ebb_dtype dtype, unsigned says)
{
    static const int64_t gates[] = {1, 3, 4};
    const int64_t n = directions(s), G = gates[c] * s->H;
    int64_t x[3] = {s->T, s->B, s->I}, first[3] = {s->B, s->T, s->I};
    put_in(t, dtype, 3, says & BATCH_FIRST ? first : x);
    put_in(t, dtype, 3, D(n, G, s->I));
    put_in(t, dtype, 3, D(n, G, s->H));
    maybe_in(t, says & BIAS, dtype, 2, D(n, 2 * G));
    if (says & LENGTHS) {
        ebb_operand *lengths = put_in(t, EBB_I64, 1, D(s->B));
        for (size_t b = 0; b < count_of(lengths); b++)
            set_value(lengths, b, (double)((int64_t)(b * 2 + 1) % (s->T + 1)));
    } else
        put_absent(t);
    put_state(t, s, dtype, says, says & STATES, false);
    if (c != LSTM)
        return;
    put_state(t, s, dtype, says, says & STATES, false);
    maybe_in(t, says & PEEPHOLES, dtype, 2, D(n, 3 * s->H));
}

static inline void put_forward(testing *t, const shape *s, cell c, ebb_dtype dtype, unsigned says)
{
    begin(t, forward_ops[c]);
    t->call.node = s->direction;
    put_attributes(t, s, c, says);
    put_operands(t, s, c, dtype, says);
    put_all_states(t, s, dtype, says, true);
    for (int o = 0; o < (c == LSTM ? 2 : 1); o++)
        put_state(t, s, dtype, says, true, true);
}

static inline void put_backward(testing *t, const shape *s, cell c, ebb_dtype dtype, unsigned says)
{
    begin(t, backward_ops[c]);
    t->call.node = s->direction;
    put_attributes(t, s, c, says);
    put_operands(t, s, c, dtype, says);
    put_all_states(t, s, dtype, says, false); // Y, dY, and what arrives at the last
    put_all_states(t, s, dtype, says, false);
    for (int i = 0; i < (c == LSTM ? 2 : 1); i++)
        put_state(t, s, dtype, says, true, false);
    for (uint32_t o = 0; o < 3; o++)
        put_out(t, dtype, 3, t->in[o].type.dims);
    const int64_t n = directions(s), G = t->in[1].type.dims[1];
    put_out(t, dtype, 2, D(n, 2 * G));
    put_state(t, s, dtype, says, true, true);
    if (c != LSTM)
        return;
    put_state(t, s, dtype, says, true, true);
    put_out(t, dtype, 2, D(n, 3 * s->H));
}
