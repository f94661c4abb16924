/* test_lstm.c: LSTM, its training form and its gradient by tiles against the plain kernels, which sum in
 * double and which test_bodies.c holds to their bodies: on sizes that are not round, in each direction,
 * with and without what may be left out, and with any number of threads.
 */
#include "tests/cuda/recurrent.h"

static const double TOLERANCE = 2e-5;

/* One of all; odd; more steps than are multiplied by X at once; more rows than a tile. */
static const shape shapes[] = {{"forward", 1, 1, 1, 1},         {"forward", 5, 3, 7, 33},
                               {"reverse", 9, 17, 40, 20},      {"reverse", 300, 2, 5, 9},
                               {"bidirectional", 301, 2, 5, 9}, {"forward", 7, 60, 33, 65},
                               {"bidirectional", 3, 1, 3, 8}};
enum { SHAPES = sizeof shapes / sizeof *shapes, OUTPUTS = 6 };

/* By as many threads as there are, the same bits. */
static void check_tiles(testing *t, const char *tiles, const char *plain)
{
    void *first[OUTPUTS] = {NULL};
    for (int threads = 1; threads <= 5; threads += 2) {
        const ebb_threads_before before = ebb_threads_enter(threads);
        check_agree(t, tiles, plain, TOLERANCE);
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

static void forward_with_what_may_be_left_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++)
        for (unsigned has = 0; has < 8; has += i % 2 == 0 ? 7 : 3) {
            testing t;
            put_usual_forward(&t, &shapes[i], EBB_F32, has, 31);
            check_tiles(&t, "tiles.lstm_training", "plain.lstm_training");
            end(&t);
            put_usual_forward(&t, &shapes[i], EBB_F32, has, i % 2 == 0 ? 7 : 1);
            check_tiles(&t, "tiles.lstm", "plain.lstm");
            end(&t);
        }
}

static void backward_with_what_may_be_left_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++)
        for (unsigned has = 1; has < 32; has += 5) {
            testing t;
            put_usual_backward(&t, &shapes[i], EBB_F32, has, has % 2 == 0 ? 63 : 8 + has);
            check_tiles(&t, "tiles.lstm_grad", "plain.lstm_grad");
            end(&t);
        }
}

static void what_is_not_usual_is_declined(void **state)
{
    (void)state;
    testing t;
    put_usual_forward(&t, &shapes[1], EBB_F32, 15, 7);
    assert_string_equal(declined_by(&t, "tiles.lstm"), "no peepholes");
    end(&t);
    put_forward(&t, &shapes[1], LSTM, EBB_F32, CLIP);
    assert_string_equal(declined_by(&t, "tiles.lstm"), "no clip");
    end(&t);
    put_forward(&t, &shapes[1], LSTM, EBB_F32, LENGTHS);
    assert_non_null(declined_by(&t, "tiles.lstm"));
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_with_what_may_be_left_out),
        cmocka_unit_test(backward_with_what_may_be_left_out),
        cmocka_unit_test(what_is_not_usual_is_declined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
