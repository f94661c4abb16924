/* test_pool_packed.c: MaxPoolPacked and its gradient against MaxPool and MaxPoolGrad of the same
 * back end, bit for bit: over ties, infinities and NaN, overlap, gaps, padding, dilation and ceil
 * mode.
 */
#include "tests/kernels/pool_windows.h"

static void *bytes_of(const ebb_operand *o)
{
    void *copy = malloc(o->bytes + 1);
    assert_non_null(copy);
    memcpy(copy, o->data, o->bytes);
    return copy;
}

static void same_bits(const ebb_operand *o, void *expected, const char *what, const char *kernel)
{
    if (memcmp(o->data, expected, o->bytes) != 0)
        fail_msg("%s: %s has other bits", what, kernel);
    free(expected);
}

typedef struct names {
    const char *pool, *grad, *packed, *packed_grad;
} names;

static void compare(const window *w, ebb_dtype dtype, const names *k)
{
    TESTING(t);
    int64_t x[5], y[5];
    begin(&t, EBB_OP_MAX_POOL);
    put_window(&t, w, x, y);
    ebb_operand *input = put_in(&t, dtype, 2 + w->spatial, x);
    make_difficult(&t, input);
    ebb_operand dy = *put_in(&t, dtype, 2 + w->spatial, y);
    t.call.input_count = 1;
    int64_t codes = ((int64_t)count_of(put_out(&t, dtype, 2 + w->spatial, y)) * w->bits + 7) / 8;
    run_with(&t, k->pool);
    void *expected = bytes_of(&t.out[0]);
    t.call.op = EBB_OP_MAX_POOL_PACKED;
    put_out(&t, EBB_U8, 1, &codes);
    run_with(&t, k->packed);
    same_bits(&t.out[0], expected, w->what, k->packed);
    ebb_operand taps = t.out[1];

    /* dX of both gradients, into output 0 */
    unguard(t.out[0].data);
    t.call.output_count = 0;
    t.in[1] = t.in[0];
    t.in[0] = dy;
    t.call.input_count = 2;
    put_out(&t, dtype, 2 + w->spatial, x);
    t.call.op = EBB_OP_MAX_POOL_GRAD;
    run_with(&t, k->grad);
    expected = bytes_of(&t.out[0]);
    ebb_operand kept = t.in[1];
    t.in[1] = taps;
    t.call.op = EBB_OP_MAX_POOL_PACKED_GRAD;
    run_with(&t, k->packed_grad);
    same_bits(&t.out[0], expected, w->what, k->packed_grad);
    unguard(kept.data);
}

static const names plain = {"plain.max_pool", "plain.max_pool_grad", "plain.max_pool_packed",
                            "plain.max_pool_packed_grad"};
static const names rows = {"rows.max_pool", "rows.max_pool_grad", "rows.max_pool_packed",
                           "rows.max_pool_packed_grad"};

TEST(taps_lead_to_where_the_maximum_was)
{
    for (int threads = 1; threads <= 3; threads += 2)
        for (size_t i = 0; i < POOL_WINDOWS; i++) {
            (void)ebb_threads_enter(threads);
            compare(&pool_windows[i], EBB_F32, &plain);
            compare(&pool_windows[i], EBB_F64, &plain);
            if (pool_windows[i].bits < 16) // else more taps than those kernels take
                compare(&pool_windows[i], EBB_F32, &rows);
        }
    (void)ebb_threads_enter(0);
}

TEST(codes_that_no_window_has_touch_nothing_else)
{
    static const char *const kernels[] = {"plain.max_pool_packed_grad",
                                          "rows.max_pool_packed_grad"};
    for (size_t i = 0; i < POOL_WINDOWS; i++)
        for (int k = 0; k < (pool_windows[i].bits < 16 ? 2 : 1); k++) {
            TESTING(t);
            int64_t x[5], y[5];
            begin(&t, EBB_OP_MAX_POOL_PACKED_GRAD);
            put_window(&t, &pool_windows[i], x, y);
            ebb_operand *dy = put_in(&t, EBB_F32, 2 + pool_windows[i].spatial, y);
            int64_t codes = ((int64_t)count_of(dy) * pool_windows[i].bits + 7) / 8;
            memset(put_in(&t, EBB_U8, 1, &codes)->data, 0xff, (size_t)codes);
            put_out(&t, EBB_F32, 2 + pool_windows[i].spatial, x);
            run_with(&t, kernels[k]); // guards stand around dX
        }
}

TEST(windows_that_do_not_match_are_declined)
{
    static const struct {
        int64_t bits, bytes;
        const char *why;
    } cases[] = {{2, 60, NULL},
                 {1, 30, "the window has more taps than a code can name"},
                 {3, 90, "bits is not 1, 2, 4, 8 or 16"},
                 {4, 60, "the taps are not a code for each window"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int k = 0; k < 2; k++) {
            TESTING(t);
            begin(&t, EBB_OP_MAX_POOL_PACKED_GRAD);
            put_ints(&t, "kernel_shape", 2, (const int64_t[]){2, 2});
            put_ints(&t, "strides", 2, (const int64_t[]){2, 2});
            put_int(&t, "bits", cases[i].bits);
            put_in(&t, EBB_F32, 4, (const int64_t[]){4, 5, 4, 3});
            put_in(&t, EBB_U8, 1, &cases[i].bytes);
            put_out(&t, EBB_F32, 4, (const int64_t[]){4, 5, 8, 6});
            const char *why = declined_by(&t, k == 0 ? plain.packed_grad : rows.packed_grad);
            assert_true((why == NULL) == (cases[i].why == NULL));
            if (why != NULL)
                assert_string_equal(why, cases[i].why);
        }
}
