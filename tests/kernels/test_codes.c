/* test_codes.c: Quantize and Dequantize: every byte against one element at a time, bias and
 * variance over thousands of draws, ranges, what is no number, rows alone, and wrong operands.
 */
#include "kernels/math/codes.h"
#include "kernels/math/philox.h"
#include "tests/kernels/codes_calls.h"
#include "tests/owned.h"

static uint32_t code_at(const testing *q, const tensor *k, int64_t row, int64_t i)
{
    const uint8_t *codes = q->out[0].data;
    return ebb_code_get(codes + row * ((k->inner * k->bits + 7) / 8), (unsigned)k->bits, i);
}

/* The sixteen bits of an element. */
static uint32_t half_of(const testing *q, const tensor *k, int64_t row, int64_t i)
{
    const int64_t *key = q->in[1].data;
    uint64_t at = (uint64_t)((row * groups_of(k) + i / k->group) * k->group + i % k->group);
    ebb_philox p = ebb_philox_block((uint64_t)key[0], (uint64_t)key[1], (uint32_t)stream, at / 8);
    return p.word[at % 8 / 2] >> (at % 2 * 16) & 65535u;
}

TEST(every_code_is_its_place_rounded_by_its_bits)
{
    for (size_t n = 0; n < TENSORS; n++) {
        const tensor *k = &tensors[n];
        TESTING(t);
        put_quantize(&t, k, EBB_F32);
        run_with(&t, "plain.quantize");
        const float *x = t.in[0].data;
        for (int64_t row = 0; row < k->rows; row++)
            for (int64_t i = 0; i < k->inner; i++) {
                float low = (float)range_at(&t, k, row, i, 0);
                float scale = 65536.0f / (float)range_at(&t, k, row, i, 1);
                float place = (x[row * k->inner + i] - low) * scale;
                uint32_t code = ((uint32_t)(place + 0.5f) + half_of(&t, k, row, i)) >> 16;
                if (code_at(&t, k, row, i) != code)
                    fail_msg("bits %d, row %lld, element %lld: code %u, expected %u", k->bits,
                             (long long)row, (long long)i, code_at(&t, k, row, i), code);
            }
        const uint8_t *codes = t.out[0].data;
        int64_t bytes = (k->inner * k->bits + 7) / 8, used = k->inner * k->bits % 8;
        for (int64_t row = 0; used != 0 && row < k->rows; row++)
            assert_int_equal(codes[(row + 1) * bytes - 1] >> used, 0);
    }
}

TEST(ranges_hold_every_element)
{
    static const double means[] = {0, 20, -1e6, 1e-20}, widths[] = {1, 1, 3, 1e-22};
    for (size_t n = 0; n < TENSORS; n++)
        for (int m = 0; m < 4; m++) {
            const tensor *k = &tensors[n];
            TESTING(t);
            put_quantize(&t, k, EBB_F64);
            double *x = t.in[0].data;
            for (size_t i = 0; i < count_of(&t.in[0]); i++)
                x[i] = means[m] + widths[m] * x[i];
            run_with(&t, "plain.quantize");
            for (int64_t row = 0; row < k->rows; row++)
                for (int64_t i = 0; i < k->inner; i++) {
                    double low = range_at(&t, k, row, i, 0), step = range_at(&t, k, row, i, 1);
                    double high = low + ((1 << k->bits) - 1) * step, v = x[row * k->inner + i];
                    if (!(low <= v && v <= high + 1e-15 * fabs(high)))
                        fail_msg("%g is outside of %g .. %g", v, low, high);
                }
        }
}

/* ---- over draws ---- */

enum { DRAWS = 2000 };

typedef struct kind {
    const char *name;
    double mean, width;
    bool positive; /* negative ones are 0, as after a ReLU */
} kind;

static const kind kinds[] = {
    {"centred", 0, 1, false},
    {"of large mean", 20, 1, false},
    {"of very large mean", -3000, 1, false},
    {"rectified", 0.2, 1, true},
    {"small", 1e-12, 1e-12, false},
};

static void fill(ebb_operand *x, testing *t, const kind *k)
{
    for (size_t i = 0; i < count_of(x); i++) { // about normal
        double sum = 0;
        for (int j = 0; j < 12; j++)
            sum += draw(t) / 2;
        double v = k->mean + k->width * sum;
        set_value(x, i, k->positive && v < 0 ? 0 : v);
    }
}

/* Means over draws are those of the elements, by the z of each and of their sum; no draw is further
 * off than a step, and the variance is at most D^2 / 4. */
static void check_draws(const tensor *k, const kind *what, ebb_dtype dtype)
{
    TESTING(q);
    testing d;
    size_t n = (size_t)(k->rows * k->inner);
    FREED double *sum = calloc(n, sizeof *sum), *squares = calloc(n, sizeof *squares);
    assert_non_null(sum);
    assert_non_null(squares);
    put_quantize(&q, k, dtype);
    fill(&q.in[0], &q, what);
    for (int i = 0; i < DRAWS; i++) {
        ((int64_t *)q.in[1].data)[1] = i;
        run_with(&q, "plain.quantize");
        put_dequantize(&d, &q, k, 0, k->rows);
        run_with(&d, "plain.dequantize");
        for (size_t e = 0; e < n; e++) {
            double error = value_of(&d.out[0], e) - value_of(&q.in[0], e);
            sum[e] += error;
            squares[e] += error * error;
        }
        end(&d);
    }
    double all = 0, all_variance = 0;
    for (size_t e = 0; e < n; e++) {
        int64_t row = (int64_t)e / k->inner, i = (int64_t)e % k->inner;
        double step = range_at(&q, k, row, i, 1), place;
        place = (value_of(&q.in[0], e) - range_at(&q, k, row, i, 0)) / step;
        double f = place - floor(place), variance = f * (1 - f) * step * step * DRAWS;
        double known =
            DRAWS * step * (ldexp(1, -17) + (dtype == EBB_F32 ? ldexp(1, k->bits - 23) : 0));
        all += sum[e];
        all_variance += variance;
        if (fabs(sum[e]) >
            5.5 * sqrt(variance) + known + 12 * step) // 12: so few draws are not normal
            fail_msg("%d bits, %s: element %zu is off by %g steps on average", k->bits, what->name,
                     e, sum[e] / step / DRAWS);
        if (squares[e] / DRAWS > step * step / 4 * (1 + 6 / sqrt(DRAWS)))
            fail_msg("%d bits, %s: variance %g steps^2", k->bits, what->name,
                     squares[e] / DRAWS / step / step);
    }
    if (fabs(all) > 4.5 * sqrt(all_variance))
        fail_msg("%d bits, %s: z = %g over all", k->bits, what->name, all / sqrt(all_variance));
}

TEST(rounding_is_unbiased_and_within_its_variance)
{
    static const int bits[] = {1, 2, 4, 8};
    for (size_t w = 0; w < sizeof kinds / sizeof *kinds; w++)
        for (int b = 0; b < 4; b++) {
            const tensor k = {2, 100, 64, bits[b]};
            check_draws(&k, &kinds[w], EBB_F64);
            if (w < 2)
                check_draws(&k, &kinds[w], EBB_F32);
        }
}

/* ---- single groups ---- */

static void decode_all(testing *d, const testing *q, const tensor *k)
{
    put_dequantize(d, q, k, 0, k->rows);
    run_with(d, "plain.dequantize");
}

TEST(equal_elements_come_back_exactly)
{
    static const float values[] = {0, 1, -1, 0.15625f, -1024, 3e38f, 1e-30f};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        const tensor k = {1, 20, 8, 2};
        const float bf16 = ebb_bf16_to_float(ebb_float_to_bf16(values[v]));
        TESTING(q);
        TESTING(d);
        put_quantize(&q, &k, EBB_F32);
        for (int i = 0; i < 20; i++)
            ((float *)q.in[0].data)[i] = bf16;
        run_with(&q, "plain.quantize");
        decode_all(&d, &q, &k);
        for (int64_t i = 0; i < 20; i++) {
            assert_true(range_at(&q, &k, 0, i, 1) == 0);
            assert_true(((const float *)d.out[0].data)[i] == bf16);
        }
    }
}

TEST(levels_that_are_numbers_of_the_range_come_back_exactly)
{
    const tensor k = {1, 16, 16, 2};
    TESTING(q);
    TESTING(d);
    put_quantize(&q, &k, EBB_F32);
    for (int i = 0; i < 16; i++)
        ((float *)q.in[0].data)[i] = -2.5f + 0.5f * (float)(i % 4);
    run_with(&q, "plain.quantize");
    decode_all(&d, &q, &k);
    assert_memory_equal(d.out[0].data, q.in[0].data, 64);
}

TEST(a_group_with_no_number_decodes_to_none)
{
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int b = 0; b < 3; b++)
        for (int bits = 1; bits <= 8; bits *= 2) {
            const tensor k = {2, 40, 16, bits};
            TESTING(q);
            TESTING(d);
            put_quantize(&q, &k, b % 2 == 0 ? EBB_F32 : EBB_F64);
            set_value(&q.in[0], 17, bad[b]); // row 0, group 1
            run_with(&q, "plain.quantize");
            decode_all(&d, &q, &k);
            for (size_t i = 0; i < 80; i++)
                assert_int_equal(!isfinite(value_of(&d.out[0], i)), i >= 16 && i < 32);
        }
}

TEST(rows_decode_alone)
{
    for (size_t n = 0; n < TENSORS; n++) {
        const tensor *k = &tensors[n];
        TESTING(q);
        TESTING(all);
        TESTING(some);
        put_quantize(&q, k, EBB_F32);
        run_with(&q, "plain.quantize");
        decode_all(&all, &q, k);
        int64_t from = k->rows / 3, to = k->rows - k->rows / 4;
        put_dequantize(&some, &q, k, from, to);
        run_with(&some, "plain.dequantize");
        assert_memory_equal(some.out[0].data, (const float *)all.out[0].data + from * k->inner,
                            some.out[0].bytes);
    }
}

TEST(a_tensor_of_no_rows_or_empty_rows_has_no_codes)
{
    static const tensor empty[] = {{0, 20, 8, 2}, {3, 0, 8, 2}};
    for (int i = 0; i < 2; i++) {
        TESTING(q);
        TESTING(d);
        put_quantize(&q, &empty[i], EBB_F32);
        run_with(&q, "plain.quantize");
        begin(&d, EBB_OP_DEQUANTIZE);
        put_int(&d, "bits", 2);
        put_int(&d, "group", 8);
        put_in(&d, EBB_U8, 2, q.out[0].type.dims);
        put_in(&d, EBB_BF16, 3, q.out[1].type.dims);
        put_out(&d, EBB_F32, 2, (int64_t[]){empty[i].rows, empty[i].inner});
        run_with(&d, "plain.dequantize");
    }
}

TEST(operands_of_wrong_sizes_are_declined)
{
    const tensor k = {3, 20, 8, 2};
    for (int wrong = 0; wrong < 7; wrong++) {
        TESTING(q);
        TESTING(d);
        put_quantize(&q, &k, EBB_F32);
        run_with(&q, "plain.quantize");
        decode_all(&d, &q, &k);
        switch (wrong) {
        case 0:
            q.out[0].type.dims[1]--;
            d.in[0].type.dims[1]--;
            break;
        case 1:
            q.out[1].type.dims[1]--;
            d.in[1].type.dims[1]--;
            break;
        case 2:
            q.out[1].type.dtype = EBB_F16;
            d.in[1].type.dtype = EBB_F16;
            break;
        case 3:
            q.attr[0].i = d.attr[0].i = 3;
            break;
        case 4:
            q.attr[1].i = d.attr[1].i = 0;
            break;
        case 5:
            q.in[0].type.dims[1]++;
            d.out[0].type.dims[1]++;
            d.out[0].type.dims[0]--;
            break;
        default:
            q.in[1].type.dims[0] = 1;
            d.in[0].type.dims[0] = 0;
        }
        assert_non_null(declined_by(&q, "plain.quantize"));
        assert_non_null(declined_by(&d, "plain.dequantize"));
    }
}

/* ---- running ranges ---- */

TEST(the_first_range_is_that_of_the_step_and_later_ones_move_a_tenth)
{
    const tensor k = {3, 64, 16, 8};
    const float before[4] = {0, -1, 10, 4};
    TESTING(t);
    put_running(&t, &k, before);
    float low[2] = {9, 9}, high[2] = {-9, -9};
    for (int i = 0; i < 3 * 64; i++) {
        float v = ((const float *)t.in[0].data)[i];
        int c = i / 16 % 2;
        low[c] = fminf(low[c], v);
        high[c] = fmaxf(high[c], v);
    }
    run_with(&t, "plain.quantize_running");
    const float *next = t.out[2].data;
    assert_true(next[0] == low[0]);
    assert_true(next[1] == high[0] - low[0]);
    assert_true(fabsf(next[2] - (0.9f * 10 + 0.1f * low[1])) < 1e-5f);
    assert_true(fabsf(next[3] - (0.9f * 4 + 0.1f * (high[1] - low[1]))) < 1e-5f);
}

/* Where Mesa's own kernel wraps around, to the other end of the range. */
TEST(what_lies_outside_a_running_range_takes_the_nearest_end)
{
    const tensor k = {3, 64, 16, 8};
    const float before[4] = {-0.25, 0.5, -0.125, 0.25};
    for (int over = 0; over < 2; over++) { // next may be written over the state
        TESTING(t);
        TESTING(d);
        put_running(&t, &k, before);
        void *own = t.out[2].data;
        if (over == 1)
            t.out[2].data = t.in[2].data;
        const ebb_kernel *kernel = kernel_named("plain.quantize_running");
        assert_null(kernel->run(&t.call));
        put_dequantize(&d, &t, &k, 0, k.rows);
        run_with(&d, "plain.dequantize");
        int outside = 0;
        for (int64_t i = 0; i < 3 * 64; i++) {
            double low = range_at(&t, &k, i / 64, i % 64, 0);
            double step = range_at(&t, &k, i / 64, i % 64, 1), high = low + 255 * step;
            double x = value_of(&t.in[0], (size_t)i), y = value_of(&d.out[0], (size_t)i);
            double nearest = fmin(fmax(x, low), high);
            outside += nearest != x;
            assert_true(fabs(y - nearest) <= step * 1.0001);
        }
        assert_true(outside > 50);
        t.out[2].data = own;
    }
}

TEST(what_is_no_number_does_not_reach_the_running_range)
{
    const tensor k = {3, 64, 16, 8};
    const float before[4] = {-1, 2, 0, -1};
    TESTING(t);
    TESTING(d);
    put_running(&t, &k, before);
    ((float *)t.in[0].data)[5] = (float)NAN;       // class 0
    ((float *)t.in[0].data)[20] = (float)INFINITY; // class 1, of which nothing has been seen
    run_with(&t, "plain.quantize_running");
    assert_memory_equal(t.out[2].data, before, sizeof before);
    put_dequantize(&d, &t, &k, 0, k.rows);
    run_with(&d, "plain.dequantize");
    for (size_t i = 0; i < 3 * 64; i++)
        assert_int_equal(isnan(value_of(&d.out[0], i)) != 0, i / 16 % 2 == 1);
}

/* ---- split-frequency ---- */

TEST(split_images_come_back_without_bias)
{
    static const int64_t shapes[][4] = {{2, 3, 16, 24}, {1, 2, 11, 13}, {3, 1, 7, 7}};
    for (int shape = 0; shape < 3; shape++)
        for (int64_t bits = 1; bits <= 8; bits *= 2) {
            const int64_t *dims = shapes[shape], plane = dims[2] * dims[3];
            TESTING(t);
            testing d;
            put_split(&t, dims, 8, bits);
            size_t n = count_of(&t.in[0]);
            double *sum = calloc(n, sizeof *sum), all = 0, bound = 0;
            assert_non_null(sum);
            enum { TIMES = 1000 };
            for (int i = 0; i < TIMES; i++) {
                ((int64_t *)t.in[1].data)[1] = i;
                run_with(&t, "plain.split_frequency");
                put_split_decode(&d, &t, dims);
                run_with(&d, "plain.split_frequency_decode");
                for (size_t e = 0; e < n; e++) {
                    const uint16_t *range = t.out[2].data;
                    double step = (double)ebb_bf16_to_float(range[2 * ((int64_t)e / plane) + 1]);
                    double error = value_of(&d.out[0], e) - value_of(&t.in[0], e);
                    if (fabs(error) > step * (1 + 1e-4))
                        fail_msg("an element is off by %g steps", error / step);
                    sum[e] += error / step;
                }
                end(&d);
            }
            for (size_t e = 0; e < n; e++) {
                all += sum[e];
                bound += 0.25 * TIMES;
                assert_true(fabs(sum[e]) <= 5.5 * sqrt(0.25 * TIMES));
            }
            assert_true(fabs(all) <= 4.5 * sqrt(bound));
            free(sum);
        }
}

/* What the means are for. */
TEST(smooth_images_lose_less_than_by_codes_alone)
{
    const int64_t dims[4] = {2, 3, 32, 32};
    const tensor k = {2, 3 * 32 * 32, 1024, 2};
    TESTING(t);
    TESTING(d);
    TESTING(q);
    TESTING(c);
    double split_error = 0, code_error = 0;
    put_split(&t, dims, 8, 2);
    put_quantize(&q, &k, EBB_F32);
    for (size_t i = 0; i < count_of(&t.in[0]); i++) {
        double x = (double)(i % 32) / 32, y = (double)(i / 32 % 32) / 32;
        set_value(&t.in[0], i, 5 * sin(4 * x) + 3 * y * y + 0.1 * draw(&t));
        set_value(&q.in[0], i, value_of(&t.in[0], i));
    }
    run_with(&t, "plain.split_frequency");
    put_split_decode(&d, &t, dims);
    run_with(&d, "plain.split_frequency_decode");
    run_with(&q, "plain.quantize");
    decode_all(&c, &q, &k);
    for (size_t i = 0; i < count_of(&t.in[0]); i++) {
        split_error += pow(value_of(&d.out[0], i) - value_of(&t.in[0], i), 2);
        code_error += pow(value_of(&c.out[0], i) - value_of(&t.in[0], i), 2);
    }
    assert_true(split_error < code_error / 4);
}
