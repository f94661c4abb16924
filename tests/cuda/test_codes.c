/* test_codes.c: Quantize, SplitFrequency and their inverses on the device: the bits of plain, of
 * every dtype, long groups and short, what is no number, and recorded steps with other keys.
 */
#include "tests/cuda/bits.h"

#include "kernels/nested/widen.h"
#include "tests/kernels/codes_calls.h"
#include "tests/owned.h"

static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16};

static const tensor more_tensors[] = {
    {2, 5000, 5000, 4}, {1, 40000, 8192, 2}, {3, 4097, 4096, 8},   {2, 9001, 4104, 1},
    {4, 9, 1, 8},       {5, 7, 2, 4},        {0, 12, 8, 8},        {3, 0, 8, 8},
    {6, 64, 64, 8},     {3, 96, 24, 4},      {1, 20000, 65536, 2},
};
enum { MORE = sizeof more_tensors / sizeof *more_tensors };

static const tensor *tensor_at(size_t i)
{
    return i < TENSORS ? &tensors[i] : &more_tensors[i - TENSORS];
}

static bool is_half(ebb_dtype dtype)
{
    return dtype == EBB_F16 || dtype == EBB_BF16;
}

/* dtype, or the one in which plain computes it. */
static ebb_dtype plain_dtype(ebb_dtype dtype)
{
    return is_half(dtype) ? EBB_F32 : dtype;
}

/* Of float32, rounded to the half, which is returned; the float32 numbers become those. */
static ebb_operand halve(ebb_operand *wide, ebb_dtype half)
{
    ebb_operand h = *wide;
    make_operand(&h, half, wide->type.rank, wide->type.dims);
    ebb_narrow(h.data, wide->data, half, (int64_t)count_of(wide));
    ebb_widen(wide->data, h.data, half, (int64_t)count_of(wide));
    return h;
}

/* The encoder on input 0 in `dtype` gives the bits of plain. Both orders of threads. */
static void same_encoding(testing *t, const char *kernel, const char *oracle, ebb_dtype dtype)
{
    if (!is_half(dtype)) {
        same_bits(t, kernel, oracle);
        return;
    }
    ebb_operand half = halve(&t->in[0], dtype), wide = t->in[0];
    void *expected[8] = {NULL};
    run_with(t, oracle);
    for (uint32_t o = 0; o < t->call.output_count; o++) {
        expected[o] = malloc(t->out[o].bytes + 1);
        assert_non_null(expected[o]);
        memcpy(expected[o], t->out[o].data, t->out[o].bytes);
    }
    t->in[0] = half;
    same_bits(t, kernel, kernel);
    for (uint32_t o = 0; o < t->call.output_count; o++) {
        assert_memory_equal(t->out[o].data, expected[o], t->out[o].bytes);
        free(expected[o]);
    }
    unguard(half.data);
    t->in[0] = wide;
}

/* The decoder to `dtype` gives the bits of plain, which are rounded once for a half. */
static void same_decoding(testing *t, const char *kernel, const char *oracle, ebb_dtype dtype)
{
    if (!is_half(dtype)) {
        same_bits(t, kernel, oracle);
        return;
    }
    ebb_operand half, wide = t->out[0];
    make_operand(&half, dtype, wide.type.rank, wide.type.dims);
    run_with(t, oracle);
    uint16_t *expected = malloc(half.bytes + 1);
    assert_non_null(expected);
    ebb_narrow(expected, wide.data, dtype, (int64_t)count_of(&wide));
    t->out[0] = half;
    same_bits(t, kernel, kernel);
    assert_memory_equal(half.data, expected, half.bytes);
    free(expected);
    unguard(half.data);
    t->out[0] = wide;
}

TEST(codes_and_ranges_are_those_of_plain)
{
    for (size_t n = 0; n < (size_t)TENSORS + MORE; n++)
        for (int d = 0; d < 4; d++) {
            TESTING(t);
            testing back;
            const tensor *k = tensor_at(n);
            put_quantize(&t, k, plain_dtype(dtypes[d]));
            ((int64_t *)t.in[1].data)[1] = (int64_t)n << 33;
            same_encoding(&t, "cuda.quantize", "plain.quantize", dtypes[d]);
            if (k->rows > 0) {
                put_dequantize(&back, &t, k, k->rows / 3, k->rows);
                same_decoding(&back, "cuda.dequantize", "plain.dequantize", dtypes[d]);
                end(&back);
            }
        }
}

/* What memory holds at odd places: lots are then read one by one. */
TEST(codes_do_not_depend_on_where_operands_lie)
{
    for (int bits = 1; bits <= 8; bits *= 2) {
        const tensor k = {3, 512, 64, bits};
        TESTING(t);
        put_quantize(&t, &k, EBB_F32);
        same_bits(&t, "cuda.quantize", "plain.quantize");
        uint8_t *codes = t.out[0].data, *copy = malloc(t.out[0].bytes);
        float *x = t.in[0].data, *moved = guarded_at(t.in[0].bytes, 2 * sizeof *moved);
        assert_non_null(copy);
        memcpy(copy, codes, t.out[0].bytes);
        memcpy(moved, x, t.in[0].bytes);
        t.in[0].data = moved;
        check_run(kernel_named("cuda.quantize")->run(&t.call), "cuda.quantize");
        assert_memory_equal(codes, copy, t.out[0].bytes);
        t.in[0].data = x;
        unguard(moved);
        free(copy);
    }
}

/* Ranges that are no numbers have other bits on other machines. */
static void same_or_no_numbers(const uint16_t *a, const uint16_t *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isnan(ebb_bf16_to_float(a[i])) || !isnan(ebb_bf16_to_float(b[i])))
            assert_int_equal(a[i], b[i]);
}

TEST(a_group_with_no_number_has_no_range)
{
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int b = 0; b < 3; b++)
        for (int64_t group = 16; group <= 8192; group *= 512) { // by one launch, by three
            const tensor k = {2, 2 * group + 8, group, 4};
            TESTING(t);
            uint16_t range[12];
            put_quantize(&t, &k, EBB_F32);
            set_value(&t.in[0], (size_t)(2 * group + 9), bad[b]); // row 1, group 0
            run_with(&t, "plain.quantize");
            memcpy(range, t.out[1].data, sizeof range);
            FREED uint8_t *codes = malloc(t.out[0].bytes);
            assert_non_null(codes);
            memcpy(codes, t.out[0].data, t.out[0].bytes);
            run_with(&t, "cuda.quantize");
            assert_memory_equal(codes, t.out[0].data, t.out[0].bytes);
            same_or_no_numbers(t.out[1].data, range, 12);
            for (int64_t g = 0; g < 6; g++)
                assert_int_equal(isnan(range_at(&t, &k, g / 3, g % 3 * group, 1)) != 0, g == 3);
        }
}

TEST(zeros_of_either_sign_have_the_range_of_plain)
{
    for (int d = 0; d < 2; d++)
        for (int64_t group = 16; group <= 8192; group *= 512) {
            const tensor k = {1, 3 * group, group, 2};
            TESTING(t);
            put_quantize(&t, &k, dtypes[d]);
            for (size_t i = 0; i < count_of(&t.in[0]); i++)
                set_value(&t.in[0], i, i % 3 == 0 ? -0.0 : i % 5 == 0 ? 0.0 : -0.0);
            same_bits(&t, "cuda.quantize", "plain.quantize");
        }
}

/* ---- running ranges ---- */

static void put_classes(testing *t, const tensor *k, int64_t classes, bool seen, ebb_dtype dtype)
{
    put_quantize(t, k, dtype);
    t->call.op = EBB_OP_QUANTIZE_RUNNING;
    ebb_operand *state = put_in(t, EBB_F32, 2, (int64_t[]){classes, 2});
    for (int64_t i = 0; i < classes; i++) {
        ((float *)state->data)[2 * i] = 0.25f * (float)(i % 3) - 0.75f;
        ((float *)state->data)[2 * i + 1] = seen || i % 2 == 0 ? 0.5f : -1.0f;
    }
    put_out(t, EBB_F32, 2, (int64_t[]){classes, 2});
}

TEST(running_ranges_are_those_of_plain)
{
    static const struct {
        tensor k;
        int64_t classes;
    } cases[] = {
        {{3, 64, 16, 8}, 2},    {{5, 4096, 64, 4}, 64}, {{2, 9000, 4500, 2}, 1},
        {{7, 24, 8, 1}, 3},     {{0, 64, 16, 8}, 2},    {{3, 0, 16, 8}, 2},
        {{3, 7, 7, 8}, 1},      {{40, 32, 2, 4}, 16},   {{2, 16384, 8192, 8}, 2},
        {{3, 8192, 8, 2}, 512},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int d = 0; d < 4; d++)
            for (int seen = 0; seen < 2; seen++) {
                TESTING(t);
                put_classes(&t, &cases[n].k, cases[n].classes, seen, plain_dtype(dtypes[d]));
                if (count_of(&t.in[0]) > 0)
                    set_value(&t.in[0], 0, -0.0);
                same_encoding(&t, "cuda.quantize_running", "plain.quantize_running", dtypes[d]);
            }
}

TEST(the_next_range_may_lie_over_the_last)
{
    const tensor k = {3, 64, 16, 8};
    TESTING(t);
    float expected[4];
    put_classes(&t, &k, 2, true, EBB_F32);
    run_with(&t, "plain.quantize_running");
    memcpy(expected, t.out[2].data, sizeof expected);
    void *own = t.out[2].data;
    run_with(&t, "cuda.quantize_running"); // for its queue
    t.out[2].data = t.in[2].data;
    t.call.workspace = guarded(t.call.workspace_bytes);
    check_run(kernel_named("cuda.quantize_running")->run(&t.call), "cuda.quantize_running");
    assert_memory_equal(t.in[2].data, expected, sizeof expected);
    unguard(t.call.workspace);
    t.out[2].data = own;
}

TEST(what_is_no_number_does_not_reach_the_running_range)
{
    const tensor k = {3, 64, 16, 8};
    TESTING(t);
    uint16_t range[24];
    uint8_t codes[192];
    put_classes(&t, &k, 2, false, EBB_F32);
    ((float *)t.in[0].data)[5] = (float)NAN;       // class 0
    ((float *)t.in[0].data)[20] = (float)INFINITY; // class 1, of which nothing has been seen
    run_with(&t, "plain.quantize_running");
    memcpy(range, t.out[1].data, sizeof range);
    memcpy(codes, t.out[0].data, sizeof codes);
    run_with(&t, "cuda.quantize_running");
    assert_memory_equal(t.out[2].data, t.in[2].data, t.in[2].bytes);
    assert_memory_equal(t.out[0].data, codes, sizeof codes);
    same_or_no_numbers(t.out[1].data, range, 24);
}

/* ---- split-frequency ---- */

TEST(split_images_are_those_of_plain)
{
    static const struct {
        int64_t dims[4], block;
    } cases[] = {
        {{2, 3, 16, 24}, 8}, {{1, 2, 11, 13}, 8},     {{3, 1, 7, 7}, 8},
        {{1, 1, 1, 1}, 8},   {{0, 3, 8, 8}, 8},       {{2, 2, 0, 8}, 8},
        {{1, 2, 70, 67}, 5}, {{2, 1, 33, 100}, 1024}, {{1, 3, 9, 10}, 1},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int64_t bits = 1; bits <= 8; bits *= 2)
            for (int d = 0; d < 4; d++) {
                TESTING(t);
                TESTING(back);
                put_split(&t, cases[n].dims, cases[n].block, bits);
                if (dtypes[d] == EBB_F64) {
                    unguard(t.in[0].data);
                    make_operand(&t.in[0], EBB_F64, 4, cases[n].dims);
                    for (size_t i = 0; i < count_of(&t.in[0]); i++)
                        set_value(&t.in[0], i, draw(&t));
                }
                if (n == 1 && d < 2) // too small for a step: all above the least have the last code
                    for (size_t i = 0; i < count_of(&t.in[0]); i++)
                        set_value(&t.in[0], i, value_of(&t.in[0], i) * (d ? 0x1p-500 : 0x1p-147));
                same_encoding(&t, "cuda.split_frequency", "plain.split_frequency", dtypes[d]);
                put_split_decode(&back, &t, cases[n].dims);
                if (dtypes[d] == EBB_F64) {
                    unguard(back.out[0].data);
                    make_operand(&back.out[0], EBB_F64, 4, cases[n].dims);
                }
                same_decoding(&back, "cuda.split_frequency_decode", "plain.split_frequency_decode",
                              dtypes[d]);
            }
}

/* ---- what is declined, what is recorded ---- */

TEST(operands_that_do_not_fit_are_declined)
{
    const tensor k = {3, 20, 8, 2};
    for (int wrong = 0; wrong < 5; wrong++) {
        TESTING(q);
        put_quantize(&q, &k, EBB_F32);
        assert_null(declined_by(&q, "cuda.quantize"));
        if (wrong == 0)
            q.out[0].type.dims[1]--;
        else if (wrong == 1)
            q.out[1].type.dtype = EBB_F16;
        else if (wrong == 2)
            q.attr[0].i = 3;
        else if (wrong == 3)
            q.in[1].type.dims[0] = 1;
        else
            q.in[0].type.dtype = EBB_I32;
        assert_non_null(declined_by(&q, "cuda.quantize"));
    }
}

/* A step that is recorded is replayed with its arguments: the key must not be among them. */
TEST(a_replayed_step_draws_by_the_key_of_its_day)
{
    const ebb_device *d = ebb_backend_cuda.device;
    for (int64_t group = 64; group <= 8192; group *= 128) {
        const tensor k = {2, 8192, group, 2};
        TESTING(t);
        ebb_fault fault;
        bool replays = false;
        void *queue;
        put_quantize(&t, &k, EBB_F32);
        run_with(&t, "plain.quantize");
        check_status(d->open(&queue), "opening");
        t.call.queue = queue;
        t.call.workspace = guarded(1 << 20);
        for (uint64_t step = 0; step < 4; step++) {
            TESTING(other);
            put_quantize(&other, &k, EBB_F32);
            ((int64_t *)other.in[1].data)[1] = ((int64_t *)t.in[1].data)[1] = (int64_t)step;
            run_with(&other, "plain.quantize");
            check_status(d->begin(queue, step, &replays), "beginning");
            assert_int_equal(replays, step >= 2);
            if (!replays)
                check_status(kernel_named("cuda.quantize")->run(&t.call), "cuda.quantize");
            check_status(d->end(queue, &fault), "ending");
            assert_memory_equal(t.out[0].data, other.out[0].data, t.out[0].bytes);
        }
        d->close(queue);
        unguard(t.call.workspace);
    }
}

const fixture around_all = {with_cuda, NULL};
