/* test_recurrent_any.c: the CUDA kernels of RNN, GRU and any LSTM, and of their gradients, against
 * the plain ones: both directions and layouts, lengths, clip, every activation, operands absent. */
#include "tests/cuda/recurrent.h"

static const shape shapes[] = {
    {"forward", 1, 1, 1, 1},        {"reverse", 4, 3, 2, 3}, {"bidirectional", 3, 2, 4, 5},
    {"bidirectional", 2, 5, 17, 9}, {"forward", 0, 2, 3, 2}, {"reverse", 3, 0, 2, 3},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef enum cell { RNN, GRU, LSTM } cell;

static const char *const forwards[] = {"rnn", "gru", "lstm"};
static const char *const backwards[] = {"rnn_grad", "gru_grad", "ebb_lstm_grad"};
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

static void put_state(testing *t, const shape *s, ebb_dtype dtype, unsigned says, bool there,
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

static void put_all_states(testing *t, const shape *s, ebb_dtype dtype, unsigned says, bool out)
{
    const int64_t n = directions(s);
    int64_t dims[4] = {s->T, n, s->B, s->H}, first[4] = {s->B, s->T, n, s->H};
    if (out)
        put_out(t, dtype, 4, says & BATCH_FIRST ? first : dims);
    else
        put_in(t, dtype, 4, says & BATCH_FIRST ? first : dims);
}

static void put_attributes(testing *t, const shape *s, cell c, unsigned says)
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
static void put_operands(testing *t, const shape *s, cell c, ebb_dtype dtype, unsigned says)
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

static void put_forward(testing *t, const shape *s, cell c, ebb_dtype dtype, unsigned says)
{
    begin(t, forward_ops[c]);
    t->call.node = s->direction;
    put_attributes(t, s, c, says);
    put_operands(t, s, c, dtype, says);
    put_all_states(t, s, dtype, says, true);
    for (int o = 0; o < (c == LSTM ? 2 : 1); o++)
        put_state(t, s, dtype, says, true, true);
}

static void put_backward(testing *t, const shape *s, cell c, ebb_dtype dtype, unsigned says)
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

static void compare(testing *t, const char *name, const char *oracle, double tolerance)
{
    char kernel[32], plain[32];
    (void)snprintf(kernel, sizeof kernel, "cuda.%s", name);
    (void)snprintf(plain, sizeof plain, "plain.%s", oracle);
    agrees(t, kernel, plain, tolerance);
}

static const char *forward_name(cell c)
{
    return c == LSTM ? "any_lstm" : forwards[c];
}

static void states_and_gradients_are_those_of_the_plain_kernel(void **state)
{
    (void)state;
    static const unsigned says[] = {0,
                                    ALL,
                                    BIAS | STATES,
                                    LENGTHS | BIAS,
                                    ODD | BIAS,
                                    CLIP | ODD,
                                    BATCH_FIRST | PEEPHOLES | STATES};
    for (int i = 0; i < SHAPES; i++)
        for (cell c = RNN; c <= LSTM; c++)
            for (size_t k = 0; k < sizeof says / sizeof says[0]; k++)
                for (int wide = 0; wide < 2; wide++) {
                    const ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
                    testing t;
                    put_forward(&t, &shapes[i], c, dtype, says[k]);
                    compare(&t, forward_name(c), forwards[c], wide ? 1e-14 : 3e-6);
                    end(&t);
                    put_backward(&t, &shapes[i], c, dtype, says[k]);
                    compare(&t, backwards[c], backwards[c], wide ? 1e-13 : 1e-5);
                    end(&t);
                }
}

static void any_activation_is_known(void **state)
{
    (void)state;
    static const char *const names[] = {
        "Relu", "Tanh",        "Sigmoid",         "Affine",   "LeakyRelu", "ScaledTanh",
        "Elu",  "HardSigmoid", "ThresholdedRelu", "Softsign", "Softplus"};
    const float numbers[] = {0.3F, 0.4F, 0.5F, 0.6F, 0.7F, 0.8F};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (cell c = RNN; c <= LSTM; c++)
            for (int back = 0; back < 2; back++) {
                const char *list[3];
                testing t;
                if (back)
                    put_backward(&t, &shapes[1], c, EBB_F64, BIAS | STATES | PEEPHOLES);
                else
                    put_forward(&t, &shapes[1], c, EBB_F64, BIAS | STATES | PEEPHOLES);
                for (size_t f = 0; f < 3; f++)
                    list[f] = names[(i + 2 * f) % (sizeof names / sizeof names[0])];
                ebb_attr *a = next_attr(&t, "activations", EBB_ATTR_STRINGS);
                a->strings = list;
                a->count = (uint32_t)c + 1;
                for (int beta = 0; beta < 2; beta++) {
                    a = next_attr(&t, beta ? "activation_beta" : "activation_alpha",
                                  EBB_ATTR_FLOATS);
                    a->floats = numbers + beta;
                    a->count = 4;
                }
                compare(&t, back ? backwards[c] : forward_name(c),
                        back ? backwards[c] : forwards[c], 1e-12);
                end(&t);
            }
}

/* dX of two directions is added up in memory, and rounded twice. */
static void halves_are_float32_rounded(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (cell c = RNN; c <= LSTM; c++) {
            char kernel[32];
            testing t;
            put_forward(&t, &shapes[i], c, EBB_F32, ALL & ~(unsigned)LENGTHS);
            (void)snprintf(kernel, sizeof kernel, "cuda.%s", forward_name(c));
            agrees_in_halves(&t, kernel, 0);
            end(&t);
            put_backward(&t, &shapes[i], c, EBB_F32, LENGTHS | BIAS | STATES);
            (void)snprintf(kernel, sizeof kernel, "cuda.%s", backwards[c]);
            agrees_in_halves(&t, kernel, directions(&shapes[i]) == 2 ? 1.0 / 128 : 0);
            end(&t);
        }
}

static void outputs_need_not_be_wanted(void **state)
{
    (void)state;
    for (cell c = RNN; c <= LSTM; c++)
        for (uint32_t o = 0; o < (c == LSTM ? 7u : 5u); o++) {
            testing t;
            put_backward(&t, &shapes[2], c, EBB_F64, LENGTHS | BIAS | STATES);
            for (uint32_t other = 0; other < t.call.output_count; other++)
                if (other != o) {
                    unguard(t.out[other].data);
                    t.out[other] = (ebb_operand){.type = ebb_type_none()};
                }
            compare(&t, backwards[c], backwards[c], 1e-13);
            end(&t);
        }
}

int main(void)
{
    with_cuda();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_and_gradients_are_those_of_the_plain_kernel),
        cmocka_unit_test(any_activation_is_known),
        cmocka_unit_test(halves_are_float32_rounded),
        cmocka_unit_test(outputs_need_not_be_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
