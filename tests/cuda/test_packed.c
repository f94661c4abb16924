/* test_packed.c: masks of one bit an element: the bits of plain, and halves as float32 has them. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"

static const int64_t lengths[] = {0, 1, 7, 8, 9, 64, 1000, 600001};
enum { LENGTHS = 8 };

TEST(signs_are_packed_as_in_plain)
{
    for (int i = 0; i < LENGTHS; i++)
        for (int wide = 0; wide < 2; wide++)
            for (int bounds = 0; bounds < 3; bounds++) {
                int64_t n = lengths[i], bytes = (n + 7) / 8;
                TESTING(t);
                begin(&t, EBB_OP_PACK_SIGN);
                ebb_operand *x = put_in(&t, wide ? EBB_F64 : EBB_F32, 1, &n);
                for (size_t k = 0; k + 5 < (size_t)n; k += 97) {
                    static const double odd[] = {0.0, -0.0, NAN, INFINITY, -INFINITY};
                    for (size_t o = 0; o < 5; o++)
                        set_value(x, k + o, odd[o]);
                }
                if (bounds > 0)
                    put_float(&t, "low", bounds == 1 ? -0.25 : -(double)INFINITY);
                if (bounds > 0)
                    put_float(&t, "high", 0.5);
                put_out(&t, EBB_U8, 1, &bytes);
                same_bits(&t, "cuda.pack_sign", "plain.pack_sign");
            }
}

TEST(masks_meet_gradients_as_in_plain)
{
    for (int i = 0; i < LENGTHS; i++)
        for (int wide = 0; wide < 2; wide++)
            for (int leaky = 0; leaky < 2; leaky++) {
                int64_t n = lengths[i], bytes = (n + 7) / 8;
                TESTING(t);
                begin(&t, EBB_OP_MASK_GRAD);
                put_float(&t, "scale", 1.1);
                if (leaky)
                    put_float(&t, "alpha", 0.3);
                ebb_operand *x = put_in(&t, wide ? EBB_F64 : EBB_F32, 1, &n);
                if (n > 8)
                    set_value(x, 3, NAN); /* what is masked is 0 all the same */
                put_raw(&t, EBB_U8, 1, &bytes);
                put_out(&t, wide ? EBB_F64 : EBB_F32, 1, &n);
                same_bits_but(&t, "cuda.mask_grad", "plain.mask_grad", true);
            }
}

/* By eights and their rests, or one by one where they lie at odd places. */
TEST(halves_are_masked_as_float32_is)
{
    const bool are_skewed = getenv("EBB_TEST_SKEW") != NULL;
    for (int64_t n = 1; n < 200; n += 11)
        for (int back = 0; back < 2; back++) {
            const int64_t bytes = (n + 7) / 8;
            TESTING(t);
            if (n % 2 == 0)
                (void)setenv("EBB_TEST_SKEW", "1", 1);
            begin(&t, back ? EBB_OP_MASK_GRAD : EBB_OP_PACK_SIGN);
            put_in(&t, EBB_F32, 1, &n);
            if (back) {
                put_float(&t, "alpha", 0.75);
                put_raw(&t, EBB_U8, 1, &bytes);
            }
            put_out(&t, back ? EBB_F32 : EBB_U8, 1, back ? &n : &bytes);
            agrees_in_halves(&t, back ? "cuda.mask_grad" : "cuda.pack_sign");
            if (!are_skewed)
                (void)unsetenv("EBB_TEST_SKEW");
        }
}

/* By eights, or one by one where they lie at odd places. */
TEST(flags_are_packed_and_unpacked)
{
    const bool are_skewed = getenv("EBB_TEST_SKEW") != NULL;
    for (int i = 0; i < LENGTHS; i++)
        for (int odd = 0; odd < 2; odd++) {
            int64_t n = lengths[i], bytes = (n + 7) / 8;
            TESTING(t);
            TESTING(back);
            if (odd)
                (void)setenv("EBB_TEST_SKEW", "1", 1);
            begin(&t, EBB_OP_PACK_BITS);
            ebb_operand *flags = put_raw(&t, EBB_BOOL, 1, &n);
            for (int64_t k = 0; k < n; k += 3)
                ((uint8_t *)flags->data)[k] = 0;
            put_out(&t, EBB_U8, 1, &bytes);
            begin(&back, EBB_OP_UNPACK_BITS);
            put_raw(&back, EBB_U8, 1, &bytes);
            put_out(&back, EBB_BOOL, 1, &n);
            if (!are_skewed)
                (void)unsetenv("EBB_TEST_SKEW");
            same_bits(&t, "cuda.pack_bits", "plain.pack_bits");
            same_bits(&back, "cuda.unpack_bits", "plain.unpack_bits");
        }
}

const fixture around_all = {with_cuda, NULL};
