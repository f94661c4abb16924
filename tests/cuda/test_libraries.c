/* test_libraries.c: cuDNN's and cuBLASLt's results on a GPU beside the plain kernels':
 * convolutions, batch norm, pools, products, attention. On a GPU alone; each kernel runs twice, and
 * must give the same bits.
 *
 * float32 is summed in float32 there and in other orders, by kernels that others wrote: some ten
 * roundings of the largest term. Attention is in bfloat16, whose probabilities are rounded too.
 */
#include "tests/cuda/halves.h"

#if !defined(EBB_TEST_ON_DEVICE)

int main(void)
{
    printf("SKIP: the libraries' kernels run on a GPU alone: gpu.libraries\n");
    return 77;
}

#else

/* Is the library there that has this kernel? Else it is said, and the test is of nothing. */
static bool is_missing(const char *kernel)
{
    for (const ebb_family *f = more_backend->families; f->kernels != NULL; f++)
        for (size_t k = 0; k < *f->count; k++)
            if (strcmp(f->kernels[k].name, kernel) == 0)
                return false;
    print_message("SKIPPED: this build has no %s\n", kernel);
    return true;
}

static void compare(testing *t, const char *kernel, const char *oracle)
{
    const char *why = declined_by(t, kernel);
    if (why != NULL)
        print_message("SKIPPED: %s declines: %s\n", kernel, why);
    else
        agrees(t, kernel, oracle);
    end(t);
}

TEST(convolutions)
{
    testing t;
    if (is_missing("cuda.cudnn_conv_nhwc"))
        return;
    begin(&t, EBB_OP_CONV_NHWC);
    put_ints(&t, "pads", 4, D(1, 1, 1, 1));
    put_in(&t, EBB_F32, 4, D(2, 12, 10, 16));
    put_in(&t, EBB_F32, 4, D(24, 3, 3, 16));
    put_in(&t, EBB_F32, 1, D(24));
    put_out(&t, EBB_F32, 4, D(2, 12, 10, 24));
    compare(&t, "cuda.cudnn_conv_nhwc", "plain.conv_nhwc");
    begin(&t, EBB_OP_CONV_TRANSPOSE_NHWC);
    put_ints(&t, "pads", 4, D(1, 1, 1, 1));
    put_in(&t, EBB_F32, 4, D(2, 12, 10, 24));
    put_in(&t, EBB_F32, 4, D(24, 3, 3, 16));
    put_out(&t, EBB_F32, 4, D(2, 12, 10, 16));
    compare(&t, "cuda.cudnn_conv_transpose_nhwc", "plain.conv_transpose_nhwc");
    begin(&t, EBB_OP_CONV_WEIGHT_GRAD_NHWC);
    put_ints(&t, "pads", 4, D(1, 1, 1, 1));
    put_in(&t, EBB_F32, 4, D(2, 12, 10, 24));
    put_in(&t, EBB_F32, 4, D(2, 12, 10, 16));
    put_out(&t, EBB_F32, 4, D(24, 3, 3, 16));
    compare(&t, "cuda.cudnn_conv_weight_grad_nhwc", "plain.conv_weight_grad_nhwc");
}

TEST(batch_norms)
{
    testing t;
    if (is_missing("cuda.cudnn_batch_norm_training"))
        return;
    for (int unbiased = 0; unbiased < 2; unbiased++) {
        begin(&t, EBB_OP_BATCH_NORM_TRAINING);
        put_float(&t, "momentum", 0.75);
        put_int(&t, "unbiased", unbiased);
        put_in(&t, EBB_F32, 2, D(480, 24));
        for (int k = 0; k < 4; k++)
            put_in(&t, EBB_F32, 1, D(24));
        put_out(&t, EBB_F32, 2, D(480, 24));
        for (int k = 0; k < 4; k++)
            put_out(&t, EBB_F32, 1, D(24));
        compare(&t, "cuda.cudnn_batch_norm_training", "plain.batch_norm_training");
    }
    for (uint32_t over = 0; over < 2; over++) { // where it lies over dY, it is made beside
        begin(&t, EBB_OP_BATCH_NORM_GRAD);
        put_in(&t, EBB_F32, 2, D(480, 24));
        put_in(&t, EBB_F32, 2, D(480, 24));
        for (int k = 0; k < 3; k++)
            put_in(&t, EBB_F32, 1, D(24));
        put_out(&t, EBB_F32, 2, D(480, 24))->over = over;
        put_out(&t, EBB_F32, 1, D(24));
        put_out(&t, EBB_F32, 1, D(24));
        compare(&t, "cuda.cudnn_batch_norm_grad", "plain.batch_norm_grad");
    }
}

/* A maximum is exact. */
TEST(pools)
{
    static const struct {
        ebb_op op;
        const char *kernel, *oracle;
    } all[] = {
        {EBB_OP_MAX_POOL, "cuda.cudnn_max_pool", "plain.max_pool"},
        {EBB_OP_AVERAGE_POOL, "cuda.cudnn_average_pool", "plain.average_pool"},
        {EBB_OP_AVERAGE_POOL_GRAD, "cuda.cudnn_average_pool_grad", "plain.average_pool_grad"},
    };
    for (int k = 0; k < 3; k++)
        for (int pads = 0; pads < 2; pads++) {
            const bool back = all[k].op == EBB_OP_AVERAGE_POOL_GRAD;
            const int64_t *wide = D(2, 1, 12, 8, 16), *narrow = D(2, 1, 6, 4, 16);
            testing t;
            if (is_missing(all[k].kernel))
                return;
            begin(&t, all[k].op);
            put_ints(&t, "kernel_shape", 3, D(3, 3, 1));
            put_ints(&t, "strides", 3, D(2, 2, 1));
            put_ints(&t, "pads", 6, D(1, 1, 0, 1, 1, 0));
            put_int(&t, "count_include_pad", pads);
            ebb_operand *x = put_in(&t, EBB_F32, 5, back ? narrow : wide);
            if (all[k].op == EBB_OP_MAX_POOL)
                set_value(x, 200, (double)NAN); // which is above all
            put_out(&t, EBB_F32, 5, back ? wide : narrow);
            compare(&t, all[k].kernel, all[k].oracle);
        }
}

TEST(products)
{
    testing t;
    if (is_missing("cuda.lt_gemm"))
        return;
    for (int turns = 0; turns < 4; turns++) {
        begin(&t, EBB_OP_GEMM);
        put_int(&t, "transA", turns & 1);
        put_int(&t, "transB", turns >> 1);
        put_in(&t, EBB_F32, 2, turns & 1 ? D(72, 40) : D(40, 72));
        put_in(&t, EBB_F32, 2, turns >> 1 ? D(56, 72) : D(72, 56));
        put_in(&t, EBB_F32, 1, D(56));
        put_out(&t, EBB_F32, 2, D(40, 56));
        compare(&t, "cuda.lt_gemm", "plain.gemm");
    }
    begin(&t, EBB_OP_MATMUL);
    put_in(&t, EBB_F64, 3, D(5, 24, 72));
    put_in(&t, EBB_F64, 3, D(5, 72, 16));
    put_out(&t, EBB_F64, 3, D(5, 24, 16));
    compare(&t, "cuda.lt_matmul", "plain.matmul");
}

/* In bfloat16 beside float32; a padded sequence whose last one is all padding, with its guard. */
TEST(attention)
{
    if (is_missing("cuda.cudnn_attention"))
        return;
    const bound stated = bound_of("cuda.cudnn_attention");
    for (int turned = 0; turned < 2; turned++) {
        TESTING(t);
        testing half;
        begin(&t, EBB_OP_EBB_ATTENTION);
        put_ints(&t, "k_perm", 4, turned ? D(0, 1, 2, 3) : D(0, 1, 3, 2));
        put_float(&t, "scale", 0.25);
        put_int(&t, "guard", 1);
        put_in(&t, EBB_F32, 4, D(2, 3, 48, 16));
        put_in(&t, EBB_F32, 4, turned ? D(2, 3, 16, 72) : D(2, 3, 72, 16));
        put_in(&t, EBB_F32, 4, D(2, 3, 72, 16));
        make_operand(&t.in[3], EBB_BOOL, 4, D(2, 1, 1, 72));
        t.call.input_count++;
        for (int j = 0; j < 144; j++)
            ((uint8_t *)t.in[3].data)[j] = j < 60;
        set_value(put_in(&t, EBB_F32, 0, NULL), 0, 0);
        put_out(&t, EBB_F32, 4, D(2, 3, 48, 16));
        put_out(&t, EBB_F32, 4, D(2, 3, 48, 1));
        put_out(&t, EBB_F32, 4, D(2, 3, 48, 1));
        half = t;
        half.call.in = half.in;
        half.call.out = half.out;
        half.call.attrs.list = half.attr;
        for (int i = 0; i < 5; i++) {
            if (i == 3)
                continue;
            make_operand(&half.in[i], EBB_BF16, t.in[i].type.rank, t.in[i].type.dims);
            for (size_t e = 0; e < count_of(&t.in[i]); e++) {
                uint16_t *bits = (uint16_t *)half.in[i].data + e;
                *bits = half_of(EBB_BF16, ((float *)t.in[i].data)[e]);
                ((float *)t.in[i].data)[e] = (float)of_half(EBB_BF16, *bits);
            }
        }
        make_operand(&half.out[0], EBB_BF16, 4, t.out[0].type.dims);
        for (int o = 1; o < 3; o++)
            make_operand(&half.out[o], EBB_F32, 4, t.out[o].type.dims);
        run_with(&t, "plain.attention");
        run_with(&half, "cuda.cudnn_attention");
        same_halves(&half.out[0], &t.out[0], stated.half, stated.kernel);
        for (int o = 1; o < 3; o++)
            for (size_t i = 0; i < count_of(&t.out[o]); i++) {
                const double a = value_of(&half.out[o], i), b = value_of(&t.out[o], i);
                assert_true(a == b || (isnan(a) && isnan(b)) ||
                            fabs(a - b) < stated.f32 * (1 + fabs(b)));
            }
        for (int i = 0; i < 5; i++)
            if (i != 3)
                unguard(half.in[i].data);
        for (int o = 0; o < 3; o++)
            unguard(half.out[o].data);
    }
}

const fixture around_all = {with_cuda, NULL};

#endif
