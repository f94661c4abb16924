/* test_pool.c: the CUDA kernels of pooling against the plain ones. Values, indices, codes and
 * gradients have the same bits, NaN and ties included; averages differ by the order of sums.
 */
#include "tests/cuda/halves.h"
#include "tests/kernels/pool_windows.h"

/* Both orders of threads, and the oracle: the same bytes. */
static void exact(testing *t, const char *kernel, const char *oracle)
{
    unsigned char *expected[8] = {NULL};
    run_with(t, oracle);
    for (uint32_t o = 0; o < t->call.output_count; o++) {
        expected[o] = malloc(t->out[o].bytes + 1);
        assert_non_null(expected[o]);
        memcpy(expected[o], t->out[o].data, t->out[o].bytes);
    }
    for (int reverse = 0; reverse < 2; reverse++) {
        (void)setenv("EBB_CUDA_ORDER", reverse ? "reverse" : "forward", 1);
        run_with(t, kernel);
        for (uint32_t o = 0; o < t->call.output_count; o++)
            if (memcmp(t->out[o].data, expected[o], t->out[o].bytes) != 0)
                fail_msg("%s: %s: output %u has other bits", t->call.node, kernel, o);
    }
    (void)unsetenv("EBB_CUDA_ORDER");
    for (uint32_t o = 0; o < t->call.output_count; o++)
        free(expected[o]);
}

static const ebb_dtype floats[] = {EBB_F32, EBB_F64};

TEST(maxima_and_indices_have_the_same_bits)
{
    for (size_t i = 0; i < POOL_WINDOWS; i++)
        for (int f = 0; f < 2; f++)
            for (int columns = 0; columns < 2; columns++) {
                TESTING(t);
                int64_t x[5], y[5];
                begin(&t, EBB_OP_MAX_POOL);
                put_window(&t, &pool_windows[i], x, y);
                put_int(&t, "storage_order", columns);
                const int rank = 2 + pool_windows[i].spatial;
                make_difficult(&t, put_in(&t, floats[f], rank, x));
                put_out(&t, floats[f], rank, y);
                exact(&t, "cuda.max_pool", "plain.max_pool");
                put_out(&t, EBB_I64, rank, y);
                exact(&t, "cuda.max_pool", "plain.max_pool");
            }
}

TEST(maxima_of_8_bits_have_the_same_bits)
{
    static const ebb_dtype dtypes[] = {EBB_I8, EBB_U8};
    for (size_t i = 0; i < POOL_WINDOWS; i++)
        for (int d = 0; d < 2; d++) {
            TESTING(t);
            int64_t x[5], y[5];
            begin(&t, EBB_OP_MAX_POOL);
            put_window(&t, &pool_windows[i], x, y);
            const int rank = 2 + pool_windows[i].spatial;
            ebb_operand *o = &t.in[t.call.input_count++];
            make_operand(o, dtypes[d], rank, x);
            for (size_t k = 0; k < o->bytes; k++)
                ((uint8_t *)o->data)[k] = (uint8_t)(int)((draw(&t) + 1) * 128);
            put_out(&t, dtypes[d], rank, y);
            exact(&t, "cuda.max_pool", "plain.max_pool_integers");
            put_out(&t, EBB_I64, rank, y);
            exact(&t, "cuda.max_pool", "plain.max_pool_integers");
        }
}

TEST(taps_and_their_gradients_have_the_same_bits)
{
    for (size_t i = 0; i < POOL_WINDOWS; i++)
        for (int f = 0; f < 2; f++) {
            TESTING(t);
            int64_t x[5], y[5];
            begin(&t, EBB_OP_MAX_POOL_PACKED);
            put_window(&t, &pool_windows[i], x, y);
            const int rank = 2 + pool_windows[i].spatial;
            make_difficult(&t, put_in(&t, floats[f], rank, x));
            int64_t codes = (int64_t)count_of(put_out(&t, floats[f], rank, y));
            codes = (codes * pool_windows[i].bits + 7) / 8;
            put_out(&t, EBB_U8, 1, &codes);
            exact(&t, "cuda.max_pool_packed", "plain.max_pool_packed");
            if (f == 0)
                agrees_in_halves(&t, "cuda.max_pool_packed");

            ebb_operand taps = t.out[1], kept = t.in[0];
            unguard(t.out[0].data);
            t.call.input_count = t.call.output_count = 0;
            put_in(&t, floats[f], rank, y);
            put_out(&t, floats[f], rank, x);
            t.in[1] = kept;
            t.call.input_count = 2;
            t.call.op = EBB_OP_MAX_POOL_GRAD;
            exact(&t, "cuda.max_pool_grad", "plain.max_pool_grad");
            t.in[1] = taps;
            t.call.op = EBB_OP_MAX_POOL_PACKED_GRAD;
            exact(&t, "cuda.max_pool_packed_grad", "plain.max_pool_packed_grad");
            if (f == 0)
                agrees_in_halves(&t, "cuda.max_pool_packed_grad");
            for (size_t e = 0; e < count_of(&t.in[0]); e++) // that left infinities
                set_value(&t.in[0], e, draw(&t));
            memset(taps.data, 0xff, taps.bytes); // codes that no window has
            exact(&t, "cuda.max_pool_packed_grad", "plain.max_pool_packed_grad");
            unguard(kept.data);
        }
}

TEST(averages_and_their_gradients)
{
    for (size_t i = 0; i < POOL_WINDOWS; i++)
        for (int f = 0; f < 2; f++)
            for (int padded = 0; padded < 2; padded++) {
                TESTING(t);
                int64_t x[5], y[5];
                begin(&t, EBB_OP_AVERAGE_POOL);
                put_window(&t, &pool_windows[i], x, y);
                put_int(&t, "count_include_pad", padded);
                const int rank = 2 + pool_windows[i].spatial;
                put_in(&t, floats[f], rank, x);
                put_out(&t, floats[f], rank, y);
                agrees(&t, "cuda.average_pool", "plain.average_pool");
                end(&t);
                begin(&t, EBB_OP_AVERAGE_POOL_GRAD);
                put_window(&t, &pool_windows[i], x, y);
                put_int(&t, "count_include_pad", padded);
                put_in(&t, floats[f], rank, y);
                put_out(&t, floats[f], rank, x);
                exact(&t, "cuda.average_pool_grad", "plain.average_pool_grad");
            }
}

TEST(norms_of_windows_are_as_plain)
{
    for (size_t i = 0; i < POOL_WINDOWS; i++)
        for (int f = 0; f < 2; f++)
            for (int p = 1; p < 4; p++) {
                TESTING(t);
                int64_t x[5], y[5];
                begin(&t, EBB_OP_LP_POOL);
                put_window(&t, &pool_windows[i], x, y);
                put_int(&t, "p", p);
                const int rank = 2 + pool_windows[i].spatial;
                put_in(&t, floats[f], rank, x);
                put_out(&t, floats[f], rank, y);
                agrees(&t, "cuda.lp_pool", "plain.lp_pool");
            }
}

/* Channels shorter and longer than a warp, more of them than a block has warps, and none. */
TEST(global_pools_take_all_of_a_channel)
{
    static const int64_t shapes[][4] = {{2, 3, 7, 7},  {1, 1, 1, 1},   {3, 11, 5, 13},
                                        {1, 2, 40, 9}, {70, 67, 1, 2}, {0, 3, 4, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int f = 0; f < 2; f++) {
            const int64_t y[4] = {shapes[i][0], shapes[i][1], 1, 1};
            TESTING(t);
            begin(&t, EBB_OP_GLOBAL_AVERAGE_POOL);
            put_in(&t, floats[f], 4, shapes[i]);
            put_out(&t, floats[f], 4, y);
            agrees(&t, "cuda.global_average_pool", "plain.global_average_pool");
            t.call.op = EBB_OP_GLOBAL_MAX_POOL;
            exact(&t, "cuda.global_max_pool", "plain.global_max_pool");
            if (f == 0)
                agrees_in_halves(&t, "cuda.global_max_pool");
            if (count_of(&t.in[0]) > 5) {
                set_value(&t.in[0], 5, (double)NAN);
                exact(&t, "cuda.global_max_pool", "plain.global_max_pool");
            }
        }
}

TEST(halves_are_float32_rounded_once)
{
    static const ebb_op ops[] = {EBB_OP_MAX_POOL, EBB_OP_AVERAGE_POOL, EBB_OP_AVERAGE_POOL_GRAD,
                                 EBB_OP_MAX_POOL_GRAD, EBB_OP_LP_POOL};
    static const char *const kernels[] = {"cuda.max_pool", "cuda.average_pool",
                                          "cuda.average_pool_grad", "cuda.max_pool_grad",
                                          "cuda.lp_pool"};
    for (size_t i = 0; i < POOL_WINDOWS; i++)
        for (int k = 0; k < 5; k++) {
            const bool forward = k != 2 && k != 3;
            TESTING(t);
            int64_t x[5], y[5];
            begin(&t, ops[k]);
            put_window(&t, &pool_windows[i], x, y);
            const int rank = 2 + pool_windows[i].spatial;
            put_in(&t, EBB_F32, rank, forward ? x : y);
            if (k == 3)
                put_in(&t, EBB_F32, rank, x);
            put_out(&t, EBB_F32, rank, forward ? y : x);
            if (k == 0)
                put_out(&t, EBB_I64, rank, y);
            agrees_in_halves(&t, kernels[k]);
        }
}

TEST(windows_that_do_not_match_are_declined)
{
    TESTING(t);
    int64_t x[5], y[5];
    begin(&t, EBB_OP_MAX_POOL);
    put_window(&t, &pool_windows[0], x, y);
    put_in(&t, EBB_F32, 4, x);
    put_out(&t, EBB_F32, 4, y);
    assert_null(declined_by(&t, "cuda.max_pool"));
    put_out(&t, EBB_I32, 4, y);
    assert_non_null(declined_by(&t, "cuda.max_pool"));
    t.out[1].type.dtype = EBB_I64;
    assert_null(declined_by(&t, "cuda.max_pool"));
    t.out[0].type.dims[1]++; // other channels
    assert_non_null(declined_by(&t, "cuda.max_pool"));
}

const fixture around_all = {with_cuda, NULL};
