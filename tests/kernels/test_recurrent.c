/* test_recurrent.c: RNN, GRU, LSTM, its training form and their gradients by tiles against the plain kernels, which
 * sum in double and which test_bodies.c holds to their bodies: on sizes that are not round, in each direction, with
 * and without what may be left out, with any number of threads, and in bfloat16.
 */
#include "tests/cuda/recurrent.h"
#include "tests/owned.h"

static const double TOLERANCE = 2e-5;
static const double TOLERANCE_BF16 = 0x1p-6;

/* One of all; odd; more steps than are multiplied by X at once; more rows than a tile. */
static const shape shapes[] = {{"forward", 1, 1, 1, 1},         {"forward", 5, 3, 7, 33},
                               {"reverse", 9, 17, 40, 20},      {"reverse", 300, 2, 5, 9},
                               {"bidirectional", 301, 2, 5, 8}, {"forward", 7, 60, 33, 66},
                               {"bidirectional", 3, 1, 3, 8}};
enum { SHAPES = sizeof shapes / sizeof *shapes, OUTPUTS = 7 };

/* By as many threads as there are, the same bits. */
static void check_threads(testing *t, const char *tiles)
{
    void *first[OUTPUTS] = {NULL};
    for (int threads = 1; threads <= 5; threads += 4) {
        const ebb_threads_before before = ebb_threads_enter(threads);
        run_with(t, tiles);
        ebb_threads_leave(before);
        for (uint32_t o = 0; o < t->call.output_count; o++) {
            const ebb_operand *y = &t->out[o];
            if (y->data == NULL)
                continue;
            if (threads == 1) {
                first[o] = malloc(y->bytes);
                assert_non_null(first[o]);
                memcpy(first[o], y->data, y->bytes);
            }
            assert_memory_equal(first[o], y->data, y->bytes);
        }
    }
    for (int o = 0; o < OUTPUTS; o++)
        free(first[o]);
}

/* A call in any dtype: which cell, of what shape, and with what. */
typedef struct problem {
    const char *tiles, *plain;
    void (*put)(testing *t, const struct problem *p, ebb_dtype dtype);
    const shape *s;
    cell c;
    unsigned has, wants;
} problem;

/* The numbers of the call in 16 bits are those of the oracle's. */
static void check(const problem *p, ebb_dtype dtype)
{
    TESTING(t);
    TESTING(wide);
    p->put(&t, p, dtype);
    p->put(&wide, p, EBB_F32);
    for (uint32_t i = 0; i < t.call.input_count; i++)
        for (size_t k = 0; t.in[i].data != NULL && k < count_of(&t.in[i]); k++)
            set_value(&wide.in[i], k, value_of(&t.in[i], k));
    run_with(&wide, p->plain);
    check_threads(&t, p->tiles);
    for (uint32_t o = 0; o < t.call.output_count; o++) {
        if (t.out[o].data == NULL)
            continue;
        FREED double *expected = values_of(&wide.out[o]);
        check_close(&t.out[o], expected, dtype == EBB_F32 ? TOLERANCE : TOLERANCE_BF16, p->tiles);
    }
}

/* In bfloat16 where the processor multiplies its pairs, and the hidden size is one of them. */
static void check_dtypes(const problem *p)
{
    TESTING(t);
    check(p, EBB_F32);
    p->put(&t, p, EBB_BF16);
    const char *why = declined_by(&t, p->tiles);
    if (why == NULL) {
        assert_int_equal(p->s->H % 2, 0);
        check(p, EBB_BF16);
    } else if (p->s->H % 2 == 0) {
        assert_string_equal(why, "the processor does not multiply pairs of bfloat16");
    }
}

static void put_lstm(testing *t, const problem *p, ebb_dtype dtype)
{
    put_usual_forward(t, p->s, dtype, p->has, p->wants);
}

static void put_lstm_back(testing *t, const problem *p, ebb_dtype dtype)
{
    put_usual_backward(t, p->s, dtype, p->has, p->wants);
}

TEST(forward_with_what_may_be_left_out)
{
    for (size_t i = 0; i < SHAPES; i++)
        for (unsigned has = 0; has < 8; has += i % 2 == 0 ? 7 : 3) {
            problem p = {
                "tiles.lstm_training", "plain.lstm_training", put_lstm, &shapes[i], LSTM, has, 31};
            check_dtypes(&p);
            p.tiles = "tiles.lstm";
            p.plain = "plain.lstm";
            p.wants = i % 2 == 0 ? 7 : 1;
            check_dtypes(&p);
        }
}

TEST(backward_with_what_may_be_left_out)
{
    for (size_t i = 0; i < SHAPES; i++)
        for (unsigned has = 1; has < 32; has += 5) {
            const problem p = {
                "tiles.lstm_grad",          "plain.lstm_grad", put_lstm_back, &shapes[i], LSTM, has,
                has % 2 == 0 ? 63 : 8 + has};
            check_dtypes(&p);
        }
}

/* Of R: so that what 16 bits round in a step fades in later ones. */
static void shrink(ebb_operand *r)
{
    for (size_t i = 0; i < count_of(r); i++)
        set_value(r, i, value_of(r, i) / 4);
}

static void put_cell(testing *t, const problem *p, ebb_dtype dtype)
{
    put_forward(t, p->s, p->c, dtype, p->has);
    shrink(&t->in[2]);
}

static void put_cell_back(testing *t, const problem *p, ebb_dtype dtype)
{
    put_backward(t, p->s, p->c, dtype, p->has);
    shrink(&t->in[2]);
}

TEST(rnn_and_gru_both_ways)
{
    for (size_t i = 0; i < SHAPES; i++)
        for (unsigned has = 0; has < 4; has++) {
            const unsigned says = ODD | (has & 1 ? BIAS : 0) | (has & 2 ? STATES : 0);
            const shape *s = &shapes[i];
            check_dtypes(&(problem){"tiles.rnn", "plain.rnn", put_cell, s, RNN, says, 0});
            check_dtypes(&(problem){"tiles.gru", "plain.gru", put_cell, s, GRU, says, 0});
            check_dtypes(
                &(problem){"tiles.rnn_grad", "plain.rnn_grad", put_cell_back, s, RNN, says, 0});
            check_dtypes(
                &(problem){"tiles.gru_grad", "plain.gru_grad", put_cell_back, s, GRU, says, 0});
        }
}

TEST(what_is_not_usual_is_declined)
{
    TESTING(t);
    put_usual_forward(&t, &shapes[1], EBB_F32, 15, 7);
    assert_string_equal(declined_by(&t, "tiles.lstm"), "no peepholes");
    end(&t);
    put_forward(&t, &shapes[1], LSTM, EBB_F32, CLIP);
    assert_string_equal(declined_by(&t, "tiles.lstm"), "no clip");
    end(&t);
    put_forward(&t, &shapes[1], LSTM, EBB_F32, LENGTHS);
    assert_non_null(declined_by(&t, "tiles.lstm"));
    end(&t);
    put_forward(&t, &shapes[1], GRU, EBB_F32, 0);
    assert_string_equal(declined_by(&t, "tiles.gru"), "a GRU must have linear_before_reset");
    end(&t);
    put_forward(&t, &shapes[1], LSTM, EBB_F16, 0);
    assert_non_null(declined_by(&t, "tiles.lstm"));
}
