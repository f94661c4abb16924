/* test_few_bit.c: codes of 1 to 4 bits against their definition, and what is read from them. */
#include "tests/kernels/call.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

/* Bit b of code i is bit i * bits + b of the bytes, lowest first: of n codes in 8-packs that is the
 * sum of code_i << (bits i). */
static unsigned code_at(const uint8_t *bytes, int64_t i, int bits)
{
    unsigned code = 0;
    for (int b = 0; b < bits; b++) {
        int64_t at = i * bits + b;
        code |= (unsigned)(bytes[at / 8] >> (at % 8) & 1) << b;
    }
    return code;
}

static void encode(testing *t, ebb_dtype dtype, int bits, int64_t n)
{
    begin(t, EBB_OP_FEW_BIT);
    put_int(t, "bits", bits);
    put_in(t, dtype, 1, DIMS(n));
    ebb_operand *borders = put_in(t, dtype, 1, DIMS((1 << bits) - 1));
    for (int i = 0; i < (1 << bits) - 1; i++)
        set_value(borders, (size_t)i, (i + 1) * 2.0 / (1 << bits) - 1);
    put_out(t, EBB_U8, 1, DIMS((n + 7) / 8 * bits));
    if (n > 2)
        set_value(&t->in[0], 2, value_of(borders, 0)); // on a border: below it
    run_with(t, "plain.few_bit");
}

TEST(a_code_counts_the_borders_below)
{
    static const int64_t sizes[] = {1, 7, 8, 9, 512, 515, 20011};
    for (int bits = 1; bits <= 4; bits++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int twice = 0; twice < 2; twice++) {
                TESTING(t);
                int64_t n = sizes[s];
                encode(&t, twice != 0 ? EBB_F64 : EBB_F32, bits, n);
                const uint8_t *codes = t.out[0].data;
                for (int64_t i = 0; i < (n + 7) / 8 * 8; i++) {
                    unsigned expected = 0;
                    for (size_t b = 0; i < n && b + 1 < (size_t)1 << bits; b++)
                        expected += value_of(&t.in[0], (size_t)i) > value_of(&t.in[1], b);
                    assert_int_equal(code_at(codes, i, bits), expected); // 0 in the tail
                }
            }
}

TEST(three_bits_lie_as_they_are_published)
{
    TESTING(t);
    begin(&t, EBB_OP_FEW_BIT);
    put_int(&t, "bits", 3);
    ebb_operand *x = put_in(&t, EBB_F32, 1, DIMS(9)), *b = put_in(&t, EBB_F32, 1, DIMS(7));
    for (size_t i = 0; i < 9; i++)
        set_value(x, i, i == 8 ? 5 : (double)(i * 3 % 8)); // 0 3 6 1 4 7 2 5, then 5
    for (size_t i = 0; i < 7; i++)
        set_value(b, i, (double)i + 0.5);
    put_out(&t, EBB_U8, 1, DIMS(6));
    run_with(&t, "plain.few_bit");
    uint32_t all = 0 | 3 << 3 | 6 << 6 | 1 << 9 | 4 << 12 | 7 << 15 | 2 << 18 | 5u << 21;
    const uint8_t expected[] = {(uint8_t)all, (uint8_t)(all >> 8), (uint8_t)(all >> 16), 5, 0, 0};
    assert_memory_equal(t.out[0].data, expected, 6);
}

TEST(dy_is_multiplied_by_the_level)
{
    static const int64_t sizes[] = {1, 8, 13, 20011};
    for (int bits = 1; bits <= 4; bits++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int twice = 0; twice < 2; twice++) {
                TESTING(t);
                int64_t n = sizes[s];
                ebb_dtype dtype = twice != 0 ? EBB_F64 : EBB_F32;
                begin(&t, EBB_OP_FEW_BIT_GRAD);
                put_int(&t, "bits", bits);
                put_in(&t, dtype, 1, DIMS(n));
                put_in(&t, EBB_U8, 1, DIMS((n + 7) / 8 * bits));
                put_in(&t, dtype, 1, DIMS(1 << bits));
                put_out(&t, dtype, 1, DIMS(n));
                run_with(&t, "plain.few_bit_grad");
                for (int64_t i = 0; i < n; i++) {
                    double level = value_of(&t.in[2], code_at(t.in[1].data, i, bits));
                    double dy = value_of(&t.in[0], (size_t)i);
                    double dx = twice != 0 ? dy * level : (double)((float)dy * (float)level);
                    assert_true(value_of(&t.out[0], (size_t)i) == dx);
                }
            }
}

TEST(sizes_that_do_not_fit_are_declined)
{
    static const struct {
        int bits;
        int64_t codes, levels;
        const char *because;
    } bad[] = {{3, 6, 8, NULL},
               {3, 5, 8, "the codes have the wrong length"},
               {3, 6, 7, "there must be 2^bits levels"},
               {5, 10, 32, "bits is not 1, 2, 3 or 4"},
               {-1, 10, 32, "bits is not 1, 2, 3 or 4"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        TESTING(t);
        begin(&t, EBB_OP_FEW_BIT_GRAD);
        put_int(&t, "bits", bad[i].bits);
        put_in(&t, EBB_F32, 1, DIMS(11));
        put_in(&t, EBB_U8, 1, DIMS(bad[i].codes));
        put_in(&t, EBB_F32, 1, DIMS(bad[i].levels));
        put_out(&t, EBB_F32, 1, DIMS(11));
        const char *why = declined_by(&t, "plain.few_bit_grad");
        if (bad[i].because == NULL)
            assert_null(why);
        else
            assert_string_equal(why, bad[i].because);
    }
}
