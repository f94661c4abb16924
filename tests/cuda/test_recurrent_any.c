/* test_recurrent_any.c: the CUDA kernels of RNN, GRU and any LSTM, and of their gradients, against
 * the plain ones: both directions and layouts, lengths, clip, every activation, operands absent. */
#include "tests/cuda/halves.h"
#include "tests/cuda/recurrent.h"
#include "tests/formatted.h"

static const shape shapes[] = {
    {"forward", 1, 1, 1, 1},        {"reverse", 4, 3, 2, 3}, {"bidirectional", 3, 2, 4, 5},
    {"bidirectional", 2, 5, 17, 9}, {"forward", 0, 2, 3, 2}, {"reverse", 3, 0, 2, 3},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static const char *const forwards[] = {"rnn", "gru", "lstm"};
static const char *const backwards[] = {"rnn_grad", "gru_grad", "ebb_lstm_grad"};

static void compare(testing *t, const char *name, const char *oracle)
{
    char kernel[32], plain[32];
    (void)snprintf(kernel, sizeof kernel, "cuda.%s", name);
    (void)snprintf(plain, sizeof plain, "plain.%s", oracle);
    agrees(t, kernel, plain);
}

static const char *forward_name(cell c)
{
    return c == LSTM ? "any_lstm" : forwards[c];
}

TEST(states_and_gradients_are_those_of_the_plain_kernel)
{
    static const unsigned says[] = {0,
                                    ALL,
                                    BIAS | STATES,
                                    LENGTHS | BIAS,
                                    ODD | BIAS,
                                    CLIP | ODD,
                                    BATCH_FIRST | PEEPHOLES | STATES};
    for (int i = 0; i < SHAPES; i++)
        for (cell c = RNN; c <= LSTM; c++)
            for (size_t k = 0; k < sizeof says / sizeof says[0]; k++) {
                TESTING(t);
                put_forward(&t, &shapes[i], c, EBB_F32, says[k]);
                compare(&t, forward_name(c), forwards[c]);
                end(&t);
                put_backward(&t, &shapes[i], c, EBB_F32, says[k]);
                compare(&t, backwards[c], backwards[c]);
            }
}

/* Three steps of 260 rows, three, and one; all at once where nothing need be copied. */
TEST(long_sequences_come_in_blocks_of_steps)
{
    static const shape many = {"bidirectional", 7, 260, 2, 3};
    static const unsigned says_of[] = {ALL, ALL & ~(unsigned)(BATCH_FIRST | LENGTHS | ODD)};
    for (int i = 0; i < 2; i++)
        for (cell c = RNN; c <= LSTM; c++) {
            const unsigned says = says_of[i];
            TESTING(t);
            put_forward(&t, &many, c, EBB_F64, says);
            compare(&t, forward_name(c), forwards[c]);
            end(&t);
            put_backward(&t, &many, c, EBB_F64, says);
            compare(&t, backwards[c], backwards[c]);
        }
}

static void each_activation(bool halves)
{
    static const char *const names[] = {
        "Relu", "Tanh",        "Sigmoid",         "Affine",   "LeakyRelu", "ScaledTanh",
        "Elu",  "HardSigmoid", "ThresholdedRelu", "Softsign", "Softplus"};
    const float numbers[] = {0.3F, 0.4F, 0.5F, 0.6F, 0.7F, 0.8F};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (cell c = RNN; c <= LSTM; c++)
            for (int way = 0; way < 4; way++) {
                const bool back = way % 2;
                const unsigned says = BIAS | STATES | PEEPHOLES | (way / 2 ? ODD : 0);
                const ebb_dtype dtype = halves ? EBB_F32 : EBB_F64;
                const char *list[3];
                TESTING(t);
                if (back)
                    put_backward(&t, &shapes[1], c, dtype, says);
                else
                    put_forward(&t, &shapes[1], c, dtype, says);
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
                const char *name = back ? backwards[c] : forward_name(c);
                if (halves)
                    compare_halves(&t, formatted("cuda.%s", name), 0, 0);
                else
                    compare(&t, name, back ? backwards[c] : forwards[c]);
            }
}

TEST(any_activation_is_known)
{
    each_activation(false);
}

/* Below -708 what its last digits are scaled by has no exponent of its own. */
TEST(what_is_too_small_for_a_power_has_no_slope)
{
    static const char *const elu[] = {"Elu", "Elu", "Elu"};
    for (cell c = RNN; c <= LSTM; c++) {
        TESTING(t);
        put_backward(&t, &shapes[1], c, EBB_F64, BIAS);
        ebb_attr *a = next_attr(&t, "activations", EBB_ATTR_STRINGS);
        a->strings = elu;
        a->count = (uint32_t)c + 1;
        for (size_t i = 0; i < 3; i++)
            set_value(&t.in[3], i, -730 - 400 * (double)i);
        compare(&t, backwards[c], backwards[c]);
    }
}

/* dX of two directions is added up in memory, and rounded twice. */
TEST(halves_are_float32_rounded)
{
    each_activation(true);
    for (int i = 0; i < SHAPES; i++)
        for (cell c = RNN; c <= LSTM; c++) {
            char kernel[32];
            TESTING(t);
            put_forward(&t, &shapes[i], c, EBB_F32, i % 2 ? ALL & ~(unsigned)LENGTHS : BIAS);
            (void)snprintf(kernel, sizeof kernel, "cuda.%s", forward_name(c));
            agrees_in_halves(&t, kernel);
            end(&t);
            put_backward(&t, &shapes[i], c, EBB_F32,
                         i % 2 ? LENGTHS | BIAS | STATES : ODD | PEEPHOLES);
            (void)snprintf(kernel, sizeof kernel, "cuda.%s", backwards[c]);
            if (directions(&shapes[i]) == 2)
                agrees_mixed(&t, kernel, 0);
            else
                agrees_in_halves(&t, kernel);
        }
}

TEST(outputs_need_not_be_wanted)
{
    for (cell c = RNN; c <= LSTM; c++)
        for (uint32_t o = 0; o < (c == LSTM ? 7u : 5u); o++) {
            TESTING(t);
            put_backward(&t, &shapes[2], c, EBB_F64, LENGTHS | BIAS | STATES);
            for (uint32_t other = 0; other < t.call.output_count; other++)
                if (other != o) {
                    unguard(t.out[other].data);
                    t.out[other] = (ebb_operand){.type = ebb_type_none()};
                }
            compare(&t, backwards[c], backwards[c]);
        }
}

const fixture around_all = {with_cuda, NULL};
