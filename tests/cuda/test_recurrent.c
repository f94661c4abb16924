/* test_recurrent.c: the CUDA kernels of LSTM against the plain ones: both directions, every operand
 * there and absent, sizes beyond a tile, no steps, no batch. */
#include "tests/cuda/halves.h"
#include "tests/cuda/recurrent.h"

static const shape shapes[] = {
    {"forward", 1, 1, 1, 1},        {"forward", 3, 2, 5, 7},   {"reverse", 4, 3, 2, 3},
    {"bidirectional", 3, 2, 4, 5},  {"forward", 2, 33, 3, 11}, {"bidirectional", 2, 5, 37, 41},
    {"bidirectional", 5, 1, 40, 2}, {"forward", 0, 2, 3, 2},   {"reverse", 3, 0, 2, 3},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

TEST(states_are_those_of_the_plain_kernel)
{
    for (int i = 0; i < SHAPES; i++) {
        TESTING(t);
        put_usual_forward(&t, &shapes[i], EBB_F32, 15, 7);
        agrees(&t, "cuda.lstm", "plain.lstm");
        end(&t);
        put_usual_forward(&t, &shapes[i], EBB_F32, 7, 31);
        agrees(&t, "cuda.lstm_training", "plain.lstm_training");
    }
}

TEST(gradients_are_those_of_the_plain_kernel)
{
    for (int i = 0; i < SHAPES; i++) {
        TESTING(t);
        put_usual_backward(&t, &shapes[i], EBB_F32, 31, 63);
        agrees(&t, "cuda.lstm_grad", "plain.lstm_grad");
    }
}

/* Three steps of 260 rows, three, and one. */
TEST(long_sequences_come_in_blocks_of_steps)
{
    static const shape many = {"bidirectional", 7, 260, 2, 3};
    TESTING(t);
    put_usual_forward(&t, &many, EBB_F64, 15, 7);
    agrees(&t, "cuda.lstm", "plain.lstm");
    end(&t);
    put_usual_backward(&t, &many, EBB_F64, 31, 63);
    agrees(&t, "cuda.lstm_grad", "plain.lstm_grad");
}

TEST(operands_may_be_absent)
{
    for (unsigned has = 0; has < 16; has++) {
        TESTING(t);
        put_usual_forward(&t, &shapes[3], EBB_F32, has, 1u << has % 3);
        agrees(&t, "cuda.lstm", "plain.lstm");
        agrees_in_halves(&t, "cuda.lstm");
    }
    for (unsigned has = 0; has < 32; has++) {
        TESTING(t);
        put_usual_backward(&t, &shapes[3], EBB_F64, has, has == 31 ? 0 : 1u << has % 6);
        agrees(&t, "cuda.lstm_grad", "plain.lstm_grad");
    }
}

/* States and gates are float32 inside, so that one rounding is all that differs; dX of two
 * directions is added up in memory, and rounded twice. */
TEST(halves_are_float32_rounded)
{
    for (int i = 0; i < SHAPES; i++) {
        TESTING(t);
        put_usual_forward(&t, &shapes[i], EBB_F32, 15, 31);
        agrees_in_halves(&t, "cuda.lstm_training");
        end(&t);
        put_usual_forward(&t, &shapes[i], EBB_F32, (unsigned)i * 5 % 15, 31); // some are absent
        agrees_in_halves(&t, "cuda.lstm_training");
        end(&t);
        put_usual_backward(&t, &shapes[i], EBB_F32, (unsigned)i * 11 % 31, 62);
        agrees_in_halves(&t, "cuda.lstm_grad");
        end(&t);
        put_usual_backward(&t, &shapes[i], EBB_F32, 31, 62);
        agrees_in_halves(&t, "cuda.lstm_grad");
        end(&t);
        put_usual_backward(&t, &shapes[i], EBB_F32, 31, 1);
        if (directions(&shapes[i]) == 2)
            agrees_mixed(&t, "cuda.lstm_grad", 0);
        else
            agrees_in_halves(&t, "cuda.lstm_grad");
    }
}

TEST(what_is_no_usual_lstm_is_declined)
{
    TESTING(t);
    put_usual_forward(&t, &shapes[1], EBB_F32, 0, 7);
    assert_null(declined_by(&t, "cuda.lstm"));
    put_float(&t, "clip", 1);
    assert_string_equal(declined_by(&t, "cuda.lstm"), "no clip");
    t.call.attrs.count--;
    put_int(&t, "input_forget", 1);
    assert_string_equal(declined_by(&t, "cuda.lstm"), "no input_forget");
    t.call.attrs.count--;
    t.out[1].type.dims[1]++;
    assert_string_equal(declined_by(&t, "cuda.lstm"), declined_by(&t, "plain.lstm"));
}

const fixture around_all = {with_cuda, NULL};
