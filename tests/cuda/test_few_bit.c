/* test_few_bit.c: derivatives in a few levels, and from an activation's output and a bit. */
#include "tests/cuda/numbers.h"

static const int64_t sizes[] = {0, 1, 8, 10, 11, 2053, ALL_PAIRS};
enum { SIZES = sizeof sizes / sizeof sizes[0] };
static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16};

TEST(codes_are_those_of_the_plain_kernel)
{
    for (int bits = 1; bits <= 4; bits++)
        for (size_t s = 0; s < SIZES; s++)
            for (size_t d = 0; d < 4; d++) {
                TESTING(t);
                begin(&t, EBB_OP_FEW_BIT);
                put_int(&t, "bits", bits);
                put_numbers(&t, dtypes[d], 1, &sizes[s], -3, 3);
                ebb_operand *b = put_numbers(&t, dtypes[d], 1, (int64_t[]){(1 << bits) - 1}, -3, 3);
                for (size_t i = 0; i < count_of(b); i++)
                    put_real(b, i, 6.0 * (double)(i + 1) / (double)(count_of(b) + 1) - 3.0);
                put_out(&t, EBB_U8, 1, (int64_t[]){(sizes[s] + 7) / 8 * bits});
                if (is_narrow(&t.in[0]))
                    same_as_float32(&t, "cuda.few_bit");
                else
                    same_as(&t, "cuda.few_bit", "plain.few_bit");
            }
}

TEST(levels_are_multiplied_with_as_by_the_plain_kernel)
{
    for (int bits = 1; bits <= 4; bits++)
        for (size_t s = 0; s < SIZES; s++)
            for (size_t d = 0; d < 4; d++) {
                TESTING(t);
                begin(&t, EBB_OP_FEW_BIT_GRAD);
                put_int(&t, "bits", bits);
                put_numbers(&t, dtypes[d], 1, &sizes[s], -3, 3);
                put_bits(&t,
                         put_numbers(&t, EBB_U8, 1, (int64_t[]){(sizes[s] + 7) / 8 * bits}, 0, 1));
                put_numbers(&t, dtypes[d], 1, (int64_t[]){1 << bits}, -3, 3);
                put_out(&t, dtypes[d], 1, &sizes[s]);
                if (is_narrow(&t.in[0]))
                    same_as_float32(&t, "cuda.few_bit_grad");
                else
                    same_as(&t, "cuda.few_bit_grad", "plain.few_bit_grad");
            }
}

TEST(wrong_sizes_are_declined)
{
    TESTING(t);
    begin(&t, EBB_OP_FEW_BIT_GRAD);
    put_int(&t, "bits", 3);
    put_numbers(&t, EBB_F32, 1, (int64_t[]){11}, -3, 3);
    put_numbers(&t, EBB_U8, 1, (int64_t[]){5}, 0, 1);
    put_numbers(&t, EBB_F32, 1, (int64_t[]){8}, -3, 3);
    put_out(&t, EBB_F32, 1, (int64_t[]){11});
    assert_string_equal(declined_by(&t, "cuda.few_bit_grad"), "the codes have the wrong length");
    t.in[2].type.dims[0] = 7;
    assert_string_equal(declined_by(&t, "cuda.few_bit_grad"), "there must be 2^bits levels");
}

/* (dY, Y, bits); y down to below the minimum, and NaN; ALL_PAIRS of them are those of edges.h. */
static void put_output(testing *t, ebb_op op, ebb_dtype dtype, int64_t n)
{
    begin(t, op);
    if (op == EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT)
        put_float(t, "alpha", 1.0);
    if (n == ALL_PAIRS)
        put_edges(t, dtype, n, 1);
    else
        put_numbers(t, dtype, 1, &n, -1, 1);
    ebb_operand *y =
        n == ALL_PAIRS ? put_edges(t, dtype, n, EDGES) : put_numbers(t, dtype, 1, &n, -0.32, 5);
    put_bits(t, put_numbers(t, EBB_U8, 1, (int64_t[]){(n + 7) / 8}, 0, 1));
    put_out(t, dtype, 1, &n);
    for (int64_t i = 0; i < n && n != ALL_PAIRS; i++)
        if (i % 3 == 0)
            put_real(y, (size_t)i, (draw(t) - 1) * 0.17);
}

static const struct {
    ebb_op op;
    const char *cuda, *plain;
} inverses[] = {
    {EBB_OP_GELU_GRAD_FROM_OUTPUT, "cuda.gelu_grad_from_output", "plain.gelu_grad_from_output"},
    {EBB_OP_FAST_GELU_GRAD_FROM_OUTPUT, "cuda.fast_gelu_grad_from_output",
     "plain.fast_gelu_grad_from_output"},
    {EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT, "cuda.quick_gelu_grad_from_output",
     "plain.quick_gelu_grad_from_output"},
    {EBB_OP_MISH_GRAD_FROM_OUTPUT, "cuda.mish_grad_from_output", "plain.mish_grad_from_output"},
};

TEST(gradients_from_the_output_are_near_the_plain_ones)
{
    for (size_t k = 0; k < 4; k++)
        for (size_t s = 0; s < SIZES; s++)
            for (size_t d = 0; d < 4; d++) {
                TESTING(t);
                put_output(&t, inverses[k].op, dtypes[d], sizes[s]);
                if (is_narrow(&t.in[0]))
                    same_as_float32(&t, inverses[k].cuda);
                else
                    same_as(&t, inverses[k].cuda, inverses[k].plain);
            }
}

TEST(bits_of_the_wrong_length_are_declined)
{
    TESTING(t);
    put_output(&t, EBB_OP_GELU_GRAD_FROM_OUTPUT, EBB_F32, 17);
    assert_null(declined_by(&t, "cuda.gelu_grad_from_output"));
    t.in[2].type.dims[0] = 2;
    assert_string_equal(declined_by(&t, "cuda.gelu_grad_from_output"),
                        "the bits have the wrong length");
}

const fixture around_all = {with_cuda, NULL};
