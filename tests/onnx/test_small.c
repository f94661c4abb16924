/* test_small.c: floats of 8 and 4 bits against a search among all their codes, and elements that
 * share bytes against arithmetic on whole numbers. */

#include <math.h>

#include "onnx/words/tensor.h"
#include "tests/test.h"

/* What the standard says of a format: how many codes, and some of their numbers. */
static const struct format {
    ebb_dtype dtype;
    unsigned codes, one; /* the code of 1 */
    double largest, smallest;
} formats[] = {
    {EBB_F8E4M3FN, 256, 0x38, 448, 0x1p-9},  {EBB_F8E4M3FNUZ, 256, 0x40, 240, 0x1p-10},
    {EBB_F8E5M2, 256, 0x3C, 57344, 0x1p-16}, {EBB_F8E5M2FNUZ, 256, 0x40, 57344, 0x1p-17},
    {EBB_F4E2M1, 16, 0x2, 6, 0.5},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

TEST(each_code_is_its_number_and_back)
{
    for (size_t f = 0; f < FORMATS; f++) {
        double largest = 0, smallest = INFINITY;
        assert_true(ebb_small_to_double(formats[f].dtype, formats[f].one) == 1.0);
        for (unsigned code = 0; code < formats[f].codes; code++) {
            double x = ebb_small_to_double(formats[f].dtype, code);
            if (isnan(x))
                continue;
            assert_int_equal(ebb_small_of_double(formats[f].dtype, x, false, EBB_ROUND_UP), code);
            if (isfinite(x) && fabs(x) > largest)
                largest = fabs(x);
            if (x != 0 && fabs(x) < smallest)
                smallest = fabs(x);
        }
        assert_true(largest == formats[f].largest);
        assert_true(smallest == formats[f].smallest);
    }
}

/* No code is nearer than the one taken, and of two that are as near it is the even one. */
static void is_nearest(const struct format *f, double x)
{
    unsigned taken = ebb_small_of_double(f->dtype, x, true, EBB_ROUND_UP);
    double y = ebb_small_to_double(f->dtype, taken), off = fabs(x - y);
    for (unsigned code = 0; code < f->codes; code++) {
        double z = ebb_small_to_double(f->dtype, code);
        if (!isfinite(z) || z == y)
            continue;
        if (fabs(x - z) < off || (fabs(x - z) == off && taken % 2 == 1))
            fail_msg("%s: %.17g became %.17g, but %.17g is there", ebb_dtype_name(f->dtype), x, y,
                     z);
    }
}

TEST(numbers_become_the_nearest_code)
{
    uint64_t random = 12345;
    for (size_t f = 0; f < FORMATS; f++) {
        for (unsigned code = 0; code < formats[f].codes;
             code++) { // halfway to the next, and beside
            double x = ebb_small_to_double(formats[f].dtype, code);
            double next = code + 1 < formats[f].codes
                              ? ebb_small_to_double(formats[f].dtype, code + 1)
                              : (double)NAN;
            if (!isfinite(x) || !isfinite(next) || x * next < 0)
                continue;
            double middle = (x + next) / 2;
            is_nearest(&formats[f], middle);
            is_nearest(&formats[f], nextafter(middle, (double)INFINITY));
            is_nearest(&formats[f], nextafter(middle, -(double)INFINITY));
        }
        for (int i = 0; i < 2000; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            double part = (double)(int64_t)(random >> 11) * 0x1p-53 - 0.5;
            is_nearest(&formats[f], ldexp(part, (int)(random % 40) - 22));
        }
    }
}

TEST(what_is_too_large_saturates_or_not)
{
    for (size_t f = 0; f < FORMATS; f++) {
        ebb_dtype d = formats[f].dtype;
        for (int sign = -1; sign <= 1; sign += 2) {
            double top = sign * formats[f].largest, inf = sign * (double)INFINITY;
            assert_true(ebb_small_to_double(
                            d, ebb_small_of_double(d, sign * 1e9, true, EBB_ROUND_UP)) == top);
            assert_true(ebb_small_to_double(d, ebb_small_of_double(d, inf, true, EBB_ROUND_UP)) ==
                        top);
            double over = ebb_small_to_double(d, ebb_small_of_double(d, inf, false, EBB_ROUND_UP));
            if (d == EBB_F8E5M2)
                assert_true(over == inf);
            else if (d == EBB_F4E2M1)
                assert_true(over == top);
            else
                assert_true(isnan(over));
        }
        double nan =
            ebb_small_to_double(d, ebb_small_of_double(d, (double)NAN, true, EBB_ROUND_UP));
        assert_true(d == EBB_F4E2M1 ? nan == 0 : isnan(nan));
    }
}

TEST(powers_of_two_round_as_asked)
{
    static const struct {
        double x;
        double up, down, nearest;
    } cases[] = {{1, 1, 1, 1},
                 {1.25, 2, 1, 1},
                 {1.5, 2, 1, 2},
                 {-3, 4, 2, 4},
                 {0x1.8p-3, 0.25, 0.125, 0.25},
                 {0x1p127, 0x1p127, 0x1p127, 0x1p127},
                 {0x1.8p127, 0x1p127, 0x1p127, 0x1p127}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double want[3] = {cases[i].up, cases[i].down, cases[i].nearest};
        for (int r = 0; r < 3; r++) {
            unsigned code = ebb_small_of_double(EBB_F8E8M0, cases[i].x, true, (ebb_rounding)r);
            assert_true(ebb_small_to_double(EBB_F8E8M0, code) == want[r]);
        }
    }
    assert_true(isnan(ebb_small_to_double(EBB_F8E8M0, 0xFF)));
    assert_int_equal(ebb_small_of_double(EBB_F8E8M0, (double)NAN, true, EBB_ROUND_UP), 0xFF);
}

TEST(elements_that_share_a_byte_keep_apart)
{
    for (unsigned bits = 2; bits <= 8; bits *= 2) {
        enum { COUNT = 13 };
        unsigned char data[COUNT];
        unsigned want[COUNT];
        memset(data, 0xA5, sizeof data);
        for (int64_t i = 0; i < COUNT; i++) {
            want[i] = (unsigned)(i * 37 + 11) & ((1u << bits) - 1);
            ebb_bits_put(data, i, bits, want[i]);
        }
        for (int64_t i = 0; i < COUNT; i++)
            assert_int_equal(ebb_bits_get(data, i, bits), want[i]);
        /* The first element is the lowest bits of the first byte. */
        assert_int_equal(data[0] & ((1u << bits) - 1), want[0]);
        for (unsigned v = 0; v < 1u << bits; v++) {
            int64_t top = INT64_C(1) << (bits - 1), x = ebb_bits_signed(v, bits);
            assert_true(x >= -top && x < top && ((uint64_t)x & ((1u << bits) - 1)) == v);
        }
    }
}
