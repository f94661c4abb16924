/* test_cast.c: every pair of types, bit for bit. */
#include "tests/cuda/bits.h"
#include "tests/cuda/numbers.h"

static const ebb_dtype dtypes[] = {
    EBB_F32,    EBB_F64,      EBB_F16,        EBB_BF16,   EBB_I8,        EBB_I16,
    EBB_I32,    EBB_I64,      EBB_U8,         EBB_U16,    EBB_U32,       EBB_U64,
    EBB_BOOL,   EBB_I4,       EBB_U4,         EBB_I2,     EBB_U2,        EBB_F4E2M1,
    EBB_F8E8M0, EBB_F8E4M3FN, EBB_F8E4M3FNUZ, EBB_F8E5M2, EBB_F8E5M2FNUZ};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* Numbers at which rounding or range decides: those at the end lie between two of float8, float16 and
 * float32, of which one is even, and just beyond. */
// clang-format off
static const double decisive[] = {
    0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.0, 127.5, 128.0,
    -129.0, 255.9, 256.0, 32767.5, 32768.0, 65504.0, 65519.9, 65520.0, 65536.0,
    0x1p31, -0x1p31, 0x1p32, 0x1p63, -0x1p63, 0x1p64, 1e30, -1e30, 0x1p-14,
    0x1.8p-25, 0x1p-25, 0x1p-26, 0x1.01p0, 0x1.03p0, 1e300, -1e300, INFINITY, -INFINITY,
    0x1.FFp15, 0x1.FFFFp15, 0x1.ffffp0, 0x1p-149, 0x1.1p0, 0x1.3p0, 0x1.2p0, 0x1.6p0, 0x1.002p0,
    0x1.006p0, 0x1.8p-24, 0x1.000001p0, 0x1.000003p0, 0x1.0020000000001p0, 0x1.0060000000001p0, 0x1.0100000000001p0};
// clang-format on
enum { DECISIVE = sizeof decisive / sizeof decisive[0] };

/* Decisive ones, from the first on, beside random ones. */
static void fill(testing *t, ebb_operand *o, size_t first)
{
    if (!is_real(o)) {
        put_bits(t, o);
        if (o->type.dtype == EBB_BOOL)
            for (size_t i = 0; i < o->bytes; i++)
                ((uint8_t *)o->data)[i] &= 1;
        return;
    }
    for (size_t i = 0; i < count_of(o); i++) {
        bool edge = i % 3 == 0;
        double v =
            edge ? decisive[(first + i / 3) % DECISIVE] : ldexp(draw(t), (int)(draw(t) * 40));
        put_real(o, i, i % 31 == 30 ? (double)NAN : v);
    }
}

static void check_cast(ebb_dtype from, ebb_dtype to, int64_t n, size_t first, bool like)
{
    TESTING(t);
    begin(&t, like ? EBB_OP_CAST_LIKE : EBB_OP_CAST);
    ebb_operand *x = &t.in[t.call.input_count++];
    make_operand(x, from, 1, &n);
    fill(&t, x, first);
    if (like)
        put_numbers(&t, to, 0, NULL, 0, 1);
    put_out(&t, to, 1, &n);
    same_bits_but(&t, like ? "cuda.cast_like" : "cuda.cast",
                  like ? "plain.cast_like" : "plain.cast", true);
}

TEST(every_pair_of_types_is_cast_as_the_plain_kernel_casts)
{
    static const int64_t sizes[] = {0, 1, 1031};
    for (size_t from = 0; from < DTYPES; from++)
        for (size_t to = 0; to < DTYPES; to++)
            for (int k = 0; k < 6; k++)
                check_cast(dtypes[from], dtypes[to], sizes[k / 2], 0, k % 2 != 0);
}

/* Fewer than eight, which go one by one: three decisive ones in each. */
TEST(what_fills_no_eight_is_cast_as_the_plain_kernel_casts)
{
    for (size_t from = 0; from < DTYPES; from++)
        for (size_t to = 0; to < DTYPES; to++)
            for (size_t first = 0; first < (ebb_dtype_is_float(dtypes[from]) ? DECISIVE : 1);
                 first += 3)
                check_cast(dtypes[from], dtypes[to], 7, first, false);
}

TEST(what_begins_at_any_element_is_cast_one_by_one)
{
    static const ebb_dtype few[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16};
    const bool is_skewed = getenv("EBB_TEST_SKEW") != NULL;
    (void)setenv("EBB_TEST_SKEW", "1", 0);
    for (int k = 0; k < 16; k++)
        check_cast(few[k / 4], few[k % 4], 1031, 0, false);
    if (!is_skewed)
        (void)unsetenv("EBB_TEST_SKEW");
}

TEST(floats_of_8_and_4_bits_round_as_they_are_told)
{
    static const char *const modes[] = {"up", "down", "nearest"};
    static const ebb_dtype small[] = {EBB_F4E2M1,     EBB_F8E8M0, EBB_F8E4M3FN,
                                      EBB_F8E4M3FNUZ, EBB_F8E5M2, EBB_F8E5M2FNUZ};
    for (int m = 0; m < 6; m++)
        for (size_t k = 0; k < sizeof small / sizeof small[0]; k++) {
            TESTING(t);
            begin(&t, EBB_OP_CAST);
            put_string(&t, "round_mode", modes[m % 3]);
            put_int(&t, "saturate", m / 3);
            ebb_operand *x = &t.in[t.call.input_count++];
            make_operand(x, EBB_F64, 1, (int64_t[]){1031});
            fill(&t, x, 0);
            put_out(&t, small[k], 1, (int64_t[]){1031});
            same_bits(&t, "cuda.cast", "plain.cast");
        }
}

/* Beside the middle of two numbers of 16 bits, by less than float32 or float64 tells. */
TEST(near_the_middle_casts_are_those_of_the_plain_kernel)
{
    enum { STEPS = 64, EACH = 5, COUNT = 2 * STEPS * EACH };
    static const ebb_dtype to[] = {EBB_BF16, EBB_F16, EBB_F8E8M0, EBB_F8E5M2, EBB_F32};
    static const ebb_dtype from[] = {EBB_I64, EBB_U64, EBB_F64};
    for (size_t f = 0; f < 3; f++)
        for (size_t k = 0; k < 5; k++) {
            TESTING(t);
            begin(&t, EBB_OP_CAST);
            ebb_operand *x = &t.in[t.call.input_count++];
            make_operand(x, from[f], 1, (int64_t[]){COUNT});
            for (int i = 0; i < COUNT; i++) {
                const int step = i / EACH % STEPS, shift = i / EACH / STEPS == 0 ? 4 : 53;
                const int64_t whole = ((INT64_C(257) + 2 * step) << shift) + i % EACH - 2;
                if (from[f] == EBB_F64)
                    ((double *)x->data)[i] = ldexp((double)whole, -30);
                else
                    ((int64_t *)x->data)[i] = whole;
            }
            put_out(&t, to[k], 1, (int64_t[]){COUNT});
            same_bits(&t, "cuda.cast", "plain.cast");
        }
}

/* A known answer: 257 * 2^30 + 1 is above the middle of two bfloat16. */
TEST(integers_round_once_to_bfloat16)
{
    TESTING(t);
    begin(&t, EBB_OP_CAST);
    ebb_operand *x = &t.in[t.call.input_count++];
    make_operand(x, EBB_I64, 1, (int64_t[]){1});
    ((int64_t *)x->data)[0] = (INT64_C(257) << 30) + 1;
    put_out(&t, EBB_BF16, 1, (int64_t[]){1});
    run_with(&t, "cuda.cast");
    assert_int_equal(((const uint16_t *)t.out[0].data)[0], 0x5281);
}

/* The numbers of 16 bits are few enough to try all of them. */
TEST(all_numbers_of_16_bits_are_cast)
{
    static const ebb_dtype narrow[] = {EBB_F16, EBB_BF16}, others[] = {EBB_F32, EBB_F64, EBB_I32};
    for (size_t from = 0; from < 2; from++)
        for (size_t to = 0; to < 4; to++) {
            ebb_dtype out = to < 3 ? others[to] : narrow[1 - from];
            TESTING(t);
            begin(&t, EBB_OP_CAST);
            ebb_operand *x = &t.in[t.call.input_count++];
            make_operand(x, narrow[from], 1, (int64_t[]){65536});
            for (uint32_t i = 0; i < 65536; i++)
                ((uint16_t *)x->data)[i] = (uint16_t)i;
            put_out(&t, out, 1, (int64_t[]){65536});
            same_as(&t, "cuda.cast", "plain.cast");
        }
}

TEST(operands_that_begin_anywhere_are_cast)
{
    TESTING(t);
    begin(&t, EBB_OP_CAST);
    put_numbers(&t, EBB_F32, 1, (int64_t[]){78}, -9, 9);
    put_out(&t, EBB_BF16, 1, (int64_t[]){77});
    float *whole = t.in[0].data;
    t.in[0].type.dims[0] = 77;
    t.in[0].data = whole + 1;
    t.call.queue = more_queue;
    check_run(kernel_named("cuda.cast")->run(&t.call), "cuda.cast");
    unsigned char *got = bytes_of(&t.out[0]);
    check_status(kernel_named("plain.cast")->run(&t.call), "plain.cast");
    const unsigned char *expected = t.out[0].data;
    for (size_t i = 0; i < t.out[0].bytes; i++)
        if (got[i] != expected[i] && !both_nan(&t.out[0], i, expected, got))
            fail_msg("byte %zu is %02x, expected %02x", i, got[i], expected[i]);
    free(got);
    t.in[0].data = whole;
}

const fixture around_all = {with_cuda, NULL};
