/* test_conv_pool.c: the plain kernels of convolution, pooling and LSTM.
 *
 * Literals are onnxruntime's (1.x, CPU) for the same draws of call.h; the rest are identities that
 * hold whatever the implementation: the three convolutions are adjoint to each other, gradients are
 * the slopes of their forward.
 */
#include "tests/kernels/call.h"

/* onnxruntime computes in float32. */
static const double LITERAL = 2e-6;

// clang-format off
static const double lstm_y[] = {-0.0748906, -0.0661645, 0.1174236, -0.0653854, 0.2022925, 
-0.0929372, -0.1538288, -0.2999469, -0.0170137, -0.0885016, -0.0335221, -0.0837025, 0.0415708, 
0.130036, -0.0882628, -0.2777585, -0.0584217, -0.0936844, -0.0020291, -0.0865145, 0.1586312, 
0.0776956, 0.0634919, -0.2185106};
static const double lstm_yh[] = {-0.0584217, -0.0936844, -0.0020291, -0.0865145, 0.2022925, 
-0.0929372, -0.1538288, -0.2999469};
static const double lstm_yc[] = {-0.0944443, -0.2469539, -0.0031642, -0.3264055, 0.2988495, 
-0.1326909, -0.2223054, -0.4229846};
static const double rev_y[] = {-0.0003688, 0.0099102, -0.0249227, 0.0617755};
static const double rev_yh[] = {-0.0003688, 0.0099102};
static const double rev_yc[] = {-0.000766, 0.0212402};
static const double conv[] = {0.7049333, -0.142174, 0.9312788, 0.0281987, 0.4891022, -0.7254573, 
0.6435347, 0.6483465, -0.387737, 0.8183626, -0.4629664, -1.1073226, -0.0702391, -1.204144, 
-0.4390629, -0.3302906, -1.6752346, 0.5315157, -1.4275355, -0.0664626, -0.2207976, 1.3028064, 
-0.3694671, 0.7204669, 0.7983866, -1.3348908, 1.082718, -1.6114923, -1.2580602, -0.0950673, 
-1.0973692, 0.6001369, -0.7546384, -0.7081866, -0.3411245, -0.8138884, -0.239654, -2.2116814, 
-0.6471361, -0.136205};
static const double conv_same_upper[] = {-0.0696098, -0.6175939, 0.001229, 0.3508154, -0.2771538, 
-0.1062094, -0.0824911, -0.0333941, -0.1643221, 0.011662, 0.3588021, 0.0618813, -0.5497562, 
1.4475974, 0.947077, 1.1551397, 0.357062, -0.855308, -1.2250872, 1.6060772, 0.2000841, 0.9226575, 
0.2913932, -0.0614984};
static const double convt[] = {0.6985011, 0.4275991, 0.6003882, 0.4348239, 1.3834853, 0.6003882, 
0.5701039, 0.14388, 0.6003882, 0.7269874, 0.3999034, 0.6003882, 0.0140103, -0.0040253, 0.6003882, 
1.1716104, 1.2111949, 0.6003882, 0.612341, 1.0201614, 0.6003882, 0.3855288, 0.4582016, 0.6003882, 
0.6126927, 0.5372393, 0.6003882, 0.0751384, 0.0986706, 0.6003882, 0.9680911, 1.0669894, 
0.6003882, 0.6667082, 0.6560189, 0.6003882, 0.6003882, 0.6003882, 0.6003882, 0.6003882, 
0.6003882, 0.6003882, 0.6003882, 0.6003882, 0.6003882, -0.7836705, -0.7697549, -0.6326168, 
-0.3072821, -0.6966264, -0.6326168, -0.6590506, -0.2838442, -0.6326168, -0.4353617, -0.7544385, 
-0.6326168, -0.7674375, -0.4032602, -0.6326168, -0.5802943, -0.8830791, -0.6326168, -0.5878503, 
-0.9142824, -0.6326168, -0.3764192, -0.0193988, -0.6326168, -0.6575045, -0.6248842, -0.6326168, 
-0.7034652, -0.3859408, -0.6326168, -0.5350778, -0.7363747, -0.6326168, -0.6268783, -0.6683741, 
-0.6326168, -0.6326168, -0.6326168, -0.6326168, -0.6326168, -0.6326168, -0.6326168, -0.6326168, 
-0.6326168, -0.6326168};
static const double convt_shape[] = {-0.172789, -0.1655643, 0.7830972, -0.0302843, -0.4565082, 
-0.2004848, -0.5863779, -0.6044134, 0.5712222, 0.6108067, 0.4197732, -0.2148593, -0.1421866, 
0.0123045, -0.0631489, -0.5017176, 0.367703, 0.4666013, 0.06632, 0.0556307, -0.1371382, 
0.3253346, -0.0640096, -0.0264338, 0.3487725, -0.1218217, -0.1348207, 0.2293565, 0.0523224, 
-0.2504623, -0.2816657, 0.2561976, 0.6132179, -0.0248877, 0.0077325, 0.246676, 0.097539, 
-0.1037579, 0.0057385, -0.0357573};
static const double convt_same_upper[] = {-0.1114741, 0.1183896, 0.2067683, -0.5080072, 
0.0150557, 0.2831745, 0.0981129, -0.172789, -0.1655643, 0.7830972, -0.0302843, -0.4565082, 
0.1265992, -0.2004848, -0.5863779, -0.6044134, 0.5712222, 0.6108067, 0.0119529, 0.4197732, 
-0.2148593, -0.1421866, 0.0123045, -0.0631489, -0.0844376, 0.1214213, 0.3814562, -0.2550167, 
-0.2218147, 0.0145095, -0.1510538, -0.1371382, 0.3253346, -0.0640096, -0.0264338, 0.3487725, 
0.1972551, -0.1218217, -0.1348207, 0.2293565, 0.0523224, -0.2504623, 0.0447664, -0.2816657, 
0.2561976, 0.6132179, -0.0248877, 0.0077325};
static const double maxpool_0_y[] = {0.0010225, 0.2967187, 0.6794522, 0.4998436, 0.5673668, 
0.2452651, 0.7317641, 0.9592432, 0.9295132, -0.4335691, 0.6003882, 0.0944101};
static const double maxpool_0_i[] = {5, 2, 8, 15, 12, 18, 20, 21, 28, 30, 36, 33};
static const double maxpool_1_i[] = {1, 8, 13, 3, 10, 15, 20, 24, 33, 22, 27, 34};
static const double avg_0[] = {-0.0064684, -9.64e-05, 0.1082386, 0.1701427, 0.0477521, 
-0.1917808, 0.1744581, 0.0795421, -0.1741392, 0.611738, 0.2534507, 0.4307352, 0.1166412, 
-0.0846864, 0.0874526, 0.0484572, -0.3324718, -0.6769248};
static const double avg_1[] = {-0.0028749, -6.43e-05, 0.048106, 0.1134285, 0.0477521, -0.1278539, 
0.0581527, 0.0397711, -0.0580464, 0.2718836, 0.1689671, 0.1914379, 0.0777608, -0.0846864, 
0.0583017, 0.0161524, -0.1662359, -0.2256416};
// clang-format on

/* The same draws in float32 and float64; literals must come out of both. */
static const ebb_dtype floats[] = {EBB_F32, EBB_F64};

TEST(conv_strided_dilated_grouped_padded)
{
    for (int f = 0; f < 2; f++) {
        TESTING(t);
        begin(&t, EBB_OP_CONV);
        put_int(&t, "group", 2);
        put_ints(&t, "strides", 2, D(2, 1));
        put_ints(&t, "dilations", 2, D(2, 1));
        put_ints(&t, "pads", 4, D(1, 0, 0, 2));
        put_in(&t, floats[f], 4, D(1, 2, 4, 5));
        put_in(&t, floats[f], 4, D(4, 1, 2, 3));
        put_in(&t, floats[f], 1, D(4));
        put_out(&t, floats[f], 4, D(1, 4, 2, 5));
        run_with(&t, "plain.conv");
        check_close(&t.out[0], conv, LITERAL, "conv");
    }
}

TEST(conv_pads_by_auto_pad)
{
    TESTING(t);
    begin(&t, EBB_OP_CONV);
    put_int(&t, "group", 2);
    put_ints(&t, "strides", 2, D(2, 2));
    put_string(&t, "auto_pad", "SAME_UPPER");
    put_in(&t, EBB_F64, 4, D(1, 2, 4, 5));
    put_in(&t, EBB_F64, 4, D(4, 1, 2, 3));
    put_out(&t, EBB_F64, 4, D(1, 4, 2, 3));
    run_with(&t, "plain.conv");
    check_close(&t.out[0], conv_same_upper, LITERAL, "SAME_UPPER");
}

static void put_transposed(testing *t, const int64_t *strides)
{
    begin(t, EBB_OP_CONV_TRANSPOSE);
    put_ints(t, "strides", 2, strides);
    put_in(t, EBB_F64, 4, D(1, 2, 2, 3));
    put_in(t, EBB_F64, 4, D(2, 2, 3, 2));
}

TEST(conv_transpose_pads_in_three_ways)
{
    TESTING(t);
    put_transposed(&t, D(2, 3));
    put_ints(&t, "pads", 4, D(1, 0, 0, 1));
    put_ints(&t, "output_padding", 2, D(1, 2));
    put_in(&t, EBB_F64, 1, D(2));
    put_out(&t, EBB_F64, 4, D(1, 2, 5, 9));
    run_with(&t, "plain.conv_transpose");
    check_close(&t.out[0], convt, LITERAL, "pads and output_padding");
    end(&t);
    put_transposed(&t, D(2, 2));
    put_ints(&t, "output_shape", 2, D(4, 5));
    put_out(&t, EBB_F64, 4, D(1, 2, 4, 5));
    run_with(&t, "plain.conv_transpose");
    check_close(&t.out[0], convt_shape, LITERAL, "output_shape");
    end(&t);
    put_transposed(&t, D(2, 2));
    put_string(&t, "auto_pad", "SAME_UPPER");
    put_out(&t, EBB_F64, 4, D(1, 2, 4, 6));
    run_with(&t, "plain.conv_transpose");
    check_close(&t.out[0], convt_same_upper, LITERAL, "SAME_UPPER");
}

static double product_of(const ebb_operand *a, const ebb_operand *b)
{
    double sum = 0;
    for (size_t i = 0; i < count_of(a); i++)
        sum += value_of(a, i) * value_of(b, i);
    return sum;
}

static void swap_data(ebb_operand *a, ebb_operand *b)
{
    ebb_operand keep = *a;
    *a = *b;
    *b = keep;
}

/* <Conv(x, w), dy> = <x, ConvTranspose(dy, w)> = <w, ConvWeightGrad(dy, x)>, in one to three axes.
 */
TEST(the_three_convolutions_are_adjoint)
{
    static const struct {
        int axes;
        int64_t x[5], w[5], y[5], strides[3], dilations[3], pads[6], extra[3], groups;
    } cases[] = {
        {1, {2, 4, 11}, {6, 2, 3}, {2, 6, 5}, {2}, {1}, {1, 0}, {1}, 2},
        {2, {2, 3, 9, 8}, {5, 3, 3, 2}, {2, 5, 4, 5}, {2, 2}, {2, 1}, {1, 1, 1, 2}, {0, 1}, 1},
        {2, {1, 4, 6, 7}, {4, 1, 3, 3}, {1, 4, 6, 7}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {0, 0}, 4},
        {3,
         {2, 2, 4, 5, 6},
         {3, 2, 2, 3, 3},
         {2, 3, 3, 2, 6},
         {1, 2, 1},
         {1, 1, 1},
         {0, 0, 1, 0, 0, 1},
         {0, 0, 0},
         1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        TESTING(t);
        int rank = cases[i].axes + 2;
        uint32_t axes = (uint32_t)cases[i].axes;
        begin(&t, EBB_OP_CONV);
        put_ints(&t, "strides", axes, cases[i].strides);
        put_ints(&t, "dilations", axes, cases[i].dilations);
        put_ints(&t, "pads", 2 * axes, cases[i].pads);
        put_ints(&t, "output_padding", axes, cases[i].extra);
        put_int(&t, "group", cases[i].groups);
        put_in(&t, EBB_F64, rank, cases[i].x);
        put_in(&t, EBB_F64, rank, cases[i].w);
        ebb_operand dy = *put_in(&t, EBB_F64, rank, cases[i].y);
        t.call.input_count = 2;
        t.in[2].data = NULL;
        put_out(&t, EBB_F64, rank, cases[i].y);
        run_with(&t, "plain.conv");
        double expected = product_of(&t.out[0], &dy);

        unguard(t.out[0].data);
        make_operand(&t.out[0], EBB_F64, rank, cases[i].x);
        swap_data(&t.in[0], &dy); // (dy, w) -> dx; dy now holds x
        t.call.op = EBB_OP_CONV_TRANSPOSE;
        run_with(&t, "plain.conv_transpose");
        assert_true(fabs(product_of(&t.out[0], &dy) - expected) < 1e-9);

        unguard(t.out[0].data);
        make_operand(&t.out[0], EBB_F64, rank, cases[i].w);
        swap_data(&t.in[1], &dy); // (dy, x) -> dw; dy now holds w
        t.call.op = EBB_OP_CONV_WEIGHT_GRAD;
        run_with(&t, "plain.conv_weight_grad");
        assert_true(fabs(product_of(&t.out[0], &dy) - expected) < 1e-9);
        unguard(dy.data);
    }
}

TEST(shapes_that_contradict_each_other_are_declined)
{
    TESTING(t);
    begin(&t, EBB_OP_CONV);
    put_in(&t, EBB_F64, 4, D(1, 3, 4, 4));
    put_in(&t, EBB_F64, 4, D(2, 2, 1, 1));
    put_out(&t, EBB_F64, 4, D(1, 2, 4, 4));
    assert_non_null(declined_by(&t, "plain.conv")); // 3 channels, weight for 2
    t.in[1].type.dims[1] = 3;
    assert_null(declined_by(&t, "plain.conv"));
    put_ints(&t, "strides", 1, D(1));
    assert_non_null(declined_by(&t, "plain.conv")); // one stride for two axes
    t.call.attrs.count = 0;
    put_ints(&t, "pads", 4, D(-1, 0, 0, 0));
    assert_non_null(declined_by(&t, "plain.conv"));
}

/* ---- pools ---- */

/* 2^22 * 2^21 * 2^21 taps are 2^64. */
TEST(windows_with_too_many_taps_are_declined)
{
    static const struct {
        ebb_op op;
        const char *name;
    } pools[] = {{EBB_OP_MAX_POOL, "plain.max_pool"},
                 {EBB_OP_MAX_POOL, "dnnl.max_pool"},
                 {EBB_OP_AVERAGE_POOL, "plain.average_pool"},
                 {EBB_OP_LP_POOL, "plain.lp_pool"}};
    for (size_t i = 0; i < sizeof pools / sizeof pools[0]; i++) {
        TESTING(t);
        begin(&t, pools[i].op);
        put_ints(&t, "kernel_shape", 3, D(1 << 22, 1 << 21, 1 << 21));
        put_ints(&t, "pads", 6, D(1 << 21, 1 << 20, 1 << 20, 1 << 21, 1 << 20, 1 << 20));
        put_in(&t, EBB_F32, 5, D(1, 1, 4, 4, 4));
        put_out(&t, EBB_F32, 5, D(1, 1, 5, 5, 5));
        const char *why = declined_by(&t, pools[i].name);
        if (why == NULL || strstr(why, "can be counted") == NULL)
            fail_msg("%s says: %s", pools[i].name, why == NULL ? "nothing" : why);
    }
}

/* Many channels are no many taps: a pool reads one channel a window. */
TEST(pools_of_many_channels_are_taken)
{
    TESTING(t);
    begin(&t, EBB_OP_MAX_POOL);
    put_ints(&t, "kernel_shape", 1, D(1 << 20));
    put_in(&t, EBB_F32, 3, D(1, 1, 1));
    put_out(&t, EBB_F32, 3, D(1, 1, 1));
    t.in[0].type = ebb_type_tensor(EBB_F32, 3, D(1, 1 << 16, 1 << 20));
    t.out[0].type = ebb_type_tensor(EBB_F32, 3, D(1, 1 << 16, 1));
    const char *why = declined_by(&t, "plain.max_pool");
    if (why != NULL && strstr(why, "can be counted") != NULL)
        fail_msg("plain.max_pool says: %s", why);
    t.in[0].type = t.out[0].type = ebb_type_tensor(EBB_F32, 3, D(1, 1, 1));
}

TEST(max_pool_gives_values_and_indices)
{
    for (int f = 0; f < 2; f++)
        for (int order = 0; order < 2; order++) {
            TESTING(t);
            begin(&t, EBB_OP_MAX_POOL);
            put_ints(&t, "kernel_shape", 2, D(2, 2));
            put_ints(&t, "strides", 2, D(2, 2));
            put_ints(&t, "pads", 4, D(0, 1, 0, 0));
            put_int(&t, "ceil_mode", 1);
            put_int(&t, "storage_order", order);
            put_in(&t, floats[f], 4, D(1, 2, 4, 5));
            put_out(&t, floats[f], 4, D(1, 2, 2, 3));
            put_out(&t, EBB_I64, 4, D(1, 2, 2, 3));
            run_with(&t, "plain.max_pool");
            check_close(&t.out[0], maxpool_0_y, LITERAL, "values");
            check_close(&t.out[1], order ? maxpool_1_i : maxpool_0_i, 0, "indices");
        }
}

/* As EfficientNet of transformers pools whatever is left of the image. */
TEST(average_pool_of_a_window_that_holds_all_is_the_mean)
{
    for (int padded = 0; padded < 2; padded++) {
        TESTING(t);
        begin(&t, EBB_OP_AVERAGE_POOL);
        put_ints(&t, "kernel_shape", 2, D(9, 9));
        put_ints(&t, "strides", 2, D(9, 9));
        put_int(&t, "ceil_mode", 1);
        put_int(&t, "count_include_pad", padded);
        put_in(&t, EBB_F32, 4, D(1, 1, 4, 5));
        put_out(&t, EBB_F32, 4, D(1, 1, 1, 1));
        run_with(&t, "plain.average_pool");
        double sum = 0;
        for (int i = 0; i < 20; i++)
            sum += value_of(&t.in[0], (size_t)i);
        check_close(&t.out[0], (double[]){sum / 20}, LITERAL, "mean");
    }
}

TEST(average_pool_divides_by_the_taps_that_count)
{
    for (int f = 0; f < 2; f++)
        for (int padded = 0; padded < 2; padded++) {
            TESTING(t);
            begin(&t, EBB_OP_AVERAGE_POOL);
            put_ints(&t, "kernel_shape", 2, D(3, 3));
            put_ints(&t, "strides", 2, D(2, 2));
            put_ints(&t, "pads", 4, D(1, 1, 1, 1));
            put_int(&t, "ceil_mode", 1);
            put_int(&t, "count_include_pad", padded);
            put_in(&t, floats[f], 4, D(1, 2, 4, 5));
            put_out(&t, floats[f], 4, D(1, 2, 3, 3));
            run_with(&t, "plain.average_pool");
            check_close(&t.out[0], padded ? avg_1 : avg_0, LITERAL, "averages");
        }
}

/* Each dy goes to the place that the forward's Indices name. */
TEST(max_pool_grad_goes_to_the_maxima)
{
    TESTING(t);
    begin(&t, EBB_OP_MAX_POOL);
    put_ints(&t, "kernel_shape", 2, D(3, 2));
    put_ints(&t, "strides", 2, D(1, 2));
    put_ints(&t, "pads", 4, D(1, 0, 1, 1));
    ebb_operand *x = put_in(&t, EBB_F64, 4, D(2, 3, 5, 6));
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i, floor(3 * value_of(x, i))); // many ties
    ebb_operand dy = *put_in(&t, EBB_F64, 4, D(2, 3, 5, 3));
    t.call.input_count = 1;
    put_out(&t, EBB_F64, 4, D(2, 3, 5, 3));
    put_out(&t, EBB_I64, 4, D(2, 3, 5, 3));
    run_with(&t, "plain.max_pool");
    double expected[2 * 3 * 5 * 6] = {0};
    for (size_t i = 0; i < count_of(&dy); i++)
        expected[(size_t)value_of(&t.out[1], i)] += value_of(&dy, i);
    unguard(t.out[0].data);
    unguard(t.out[1].data);
    t.call.output_count = 0;
    t.in[1] = t.in[0];
    t.in[0] = dy;
    t.call.input_count = 2;
    t.call.op = EBB_OP_MAX_POOL_GRAD;
    put_out(&t, EBB_F64, 4, D(2, 3, 5, 6));
    run_with(&t, "plain.max_pool_grad");
    check_close(&t.out[0], expected, 1e-12, "dX");
}

TEST(average_pool_grad_is_the_adjoint)
{
    for (int padded = 0; padded < 2; padded++) {
        TESTING(t);
        begin(&t, EBB_OP_AVERAGE_POOL);
        put_ints(&t, "kernel_shape", 2, D(3, 3));
        put_ints(&t, "strides", 2, D(2, 1));
        put_ints(&t, "pads", 4, D(1, 1, 1, 0));
        put_int(&t, "count_include_pad", padded);
        put_int(&t, "ceil_mode", 1);
        put_in(&t, EBB_F64, 4, D(2, 2, 6, 5));
        ebb_operand dy = *put_in(&t, EBB_F64, 4, D(2, 2, 4, 4));
        t.call.input_count = 1;
        put_out(&t, EBB_F64, 4, D(2, 2, 4, 4));
        run_with(&t, "plain.average_pool");
        double expected = product_of(&t.out[0], &dy);
        unguard(t.out[0].data);
        make_operand(&t.out[0], EBB_F64, 4, D(2, 2, 6, 5));
        swap_data(&t.in[0], &dy);
        t.call.op = EBB_OP_AVERAGE_POOL_GRAD;
        run_with(&t, "plain.average_pool_grad");
        assert_true(fabs(product_of(&t.out[0], &dy) - expected) < 1e-12);
        unguard(dy.data);
    }
}

TEST(global_pools_take_all_of_a_channel)
{
    TESTING(t);
    begin(&t, EBB_OP_GLOBAL_AVERAGE_POOL);
    put_values(&t, 3, D(1, 2, 3), (const double[]){1, 2, 6, -1, -7, -4});
    put_out(&t, EBB_F64, 3, D(1, 2, 1));
    run_with(&t, "plain.global_average_pool");
    check_close(&t.out[0], (const double[]){3, -4}, 1e-15, "average");
    t.call.op = EBB_OP_GLOBAL_MAX_POOL;
    run_with(&t, "plain.global_max_pool");
    check_close(&t.out[0], (const double[]){6, -1}, 0, "maximum");
}

/* ---- LSTM ---- */

TEST(lstm_of_both_directions_with_everything)
{
    for (int f = 0; f < 2; f++) {
        ebb_dtype dtype = floats[f];
        TESTING(t);
        begin(&t, EBB_OP_LSTM);
        put_int(&t, "hidden_size", 2);
        put_string(&t, "direction", "bidirectional");
        put_in(&t, dtype, 3, D(3, 2, 2));
        put_in(&t, dtype, 3, D(2, 8, 2));
        put_in(&t, dtype, 3, D(2, 8, 2));
        put_in(&t, dtype, 2, D(2, 16));
        put_absent(&t);
        put_in(&t, dtype, 3, D(2, 2, 2));
        put_in(&t, dtype, 3, D(2, 2, 2));
        put_in(&t, dtype, 2, D(2, 6));
        put_out(&t, dtype, 4, D(3, 2, 2, 2));
        put_out(&t, dtype, 3, D(2, 2, 2));
        put_out(&t, dtype, 3, D(2, 2, 2));
        run_with(&t, "plain.lstm");
        check_close(&t.out[0], lstm_y, LITERAL, "Y");
        check_close(&t.out[1], lstm_yh, LITERAL, "Y_h");
        check_close(&t.out[2], lstm_yc, LITERAL, "Y_c");
    }
}

TEST(lstm_backwards_without_options)
{
    TESTING(t);
    begin(&t, EBB_OP_LSTM);
    put_int(&t, "hidden_size", 2);
    put_string(&t, "direction", "reverse");
    put_in(&t, EBB_F64, 3, D(2, 1, 2));
    put_in(&t, EBB_F64, 3, D(1, 8, 2));
    put_in(&t, EBB_F64, 3, D(1, 8, 2));
    put_out(&t, EBB_F64, 4, D(2, 1, 1, 2));
    put_out(&t, EBB_F64, 3, D(1, 1, 2));
    put_out(&t, EBB_F64, 3, D(1, 1, 2));
    run_with(&t, "plain.lstm");
    check_close(&t.out[0], rev_y, LITERAL, "Y");
    check_close(&t.out[1], rev_yh, LITERAL, "Y_h");
    check_close(&t.out[2], rev_yc, LITERAL, "Y_c");
    put_int(&t, "layout", 1);
    assert_non_null(declined_by(&t, "plain.lstm"));
}

enum { T = 4, B = 3, I = 5, H = 3 };

/* Loss = <all h, a> + <last h, b> + <last c, d> with fixed random a, b, d. */
static double lstm_loss(testing *t, const ebb_operand *weights)
{
    run_with(t, "plain.lstm_training");
    double loss = 0;
    for (int o = 0; o < 3; o++)
        loss += product_of(&t->out[o], &weights[o]);
    return loss;
}

/* Every gradient of LSTMGrad against a central difference of the loss. */
TEST(lstm_grad_is_the_slope)
{
    static const char *const directions[] = {"forward", "reverse", "bidirectional"};
    for (int mode = 0; mode < 3; mode++) {
        int64_t n = mode == 2 ? 2 : 1;
        TESTING(t);
        TESTING(g);
        begin(&t, EBB_OP_LSTM_TRAINING);
        put_int(&t, "hidden_size", H);
        put_string(&t, "direction", directions[mode]);
        put_in(&t, EBB_F64, 3, D(T, B, I));
        put_in(&t, EBB_F64, 3, D(n, 4 * H, I));
        put_in(&t, EBB_F64, 3, D(n, 4 * H, H));
        put_in(&t, EBB_F64, 2, D(n, 8 * H));
        put_absent(&t);
        put_in(&t, EBB_F64, 3, D(n, B, H));
        put_in(&t, EBB_F64, 3, D(n, B, H));
        put_out(&t, EBB_F64, 4, D(T, n, B, H));
        put_out(&t, EBB_F64, 3, D(n, B, H));
        put_out(&t, EBB_F64, 3, D(n, B, H));
        put_out(&t, EBB_F64, 4, D(T, n, B, H));
        put_out(&t, EBB_F64, 4, D(T, n, B, 4 * H));

        begin(&g, EBB_OP_LSTM_GRAD);
        g.draws = 99;
        put_int(&g, "hidden_size", H);
        put_string(&g, "direction", directions[mode]);
        put_in(&g, EBB_F64, 4, D(T, n, B, H));
        put_in(&g, EBB_F64, 3, D(n, B, H));
        put_in(&g, EBB_F64, 3, D(n, B, H));
        ebb_operand weights[3];
        memcpy(weights, g.in, sizeof weights);
        lstm_loss(&t, weights);
        // X W R SL H0 C0 HAll CAll iofc dHAll dHFinal dCFinal, most of them the forward's own
        static const int from[] = {0, 1, 2, 4, 5, 6};
        g.call.input_count = 12;
        for (int i = 0; i < 6; i++)
            g.in[i] = t.in[from[i]];
        g.in[6] = t.out[0];
        g.in[7] = t.out[3];
        g.in[8] = t.out[4];
        memcpy(g.in + 9, weights, sizeof weights);
        static const int input_of[] = {0, 1, 2, 3, 5, 6};
        for (int o = 0; o < 6; o++) {
            const ebb_type *type = &t.in[input_of[o]].type;
            put_out(&g, EBB_F64, type->rank, type->dims);
        }
        run_with(&g, "plain.lstm_grad");
        for (int o = 0; o < 6; o++) {
            ebb_operand *x = &t.in[input_of[o]];
            for (size_t i = 0; i < count_of(x); i++) {
                const double step = 1e-5;
                double at = value_of(x, i);
                set_value(x, i, at + step);
                double more = lstm_loss(&t, weights);
                set_value(x, i, at - step);
                double less = lstm_loss(&t, weights);
                set_value(x, i, at);
                double slope = (more - less) / (2 * step), got = value_of(&g.out[o], i);
                if (!(fabs(got - slope) < 1e-8))
                    fail_msg("%s: gradient %d, element %zu is %.10g, the slope is %.10g",
                             directions[mode], o, i, got, slope);
            }
        }
        for (int i = 0; i < 3; i++)
            unguard(weights[i].data);
        g.call.input_count = 0;
    }
}

/* The optional outputs and gradients may each be absent. */
TEST(lstm_grad_of_the_last_state_only)
{
    TESTING(t);
    testing g;
    begin(&t, EBB_OP_LSTM_TRAINING);
    put_in(&t, EBB_F32, 3, D(T, B, I));
    put_in(&t, EBB_F32, 3, D(1, 4 * H, I));
    put_in(&t, EBB_F32, 3, D(1, 4 * H, H));
    put_out(&t, EBB_F32, 4, D(T, 1, B, H));
    t.out[t.call.output_count++].type = ebb_type_none();
    t.out[t.call.output_count++].type = ebb_type_none();
    put_out(&t, EBB_F32, 4, D(T, 1, B, H));
    put_out(&t, EBB_F32, 4, D(T, 1, B, 4 * H));
    run_with(&t, "plain.lstm_training");
    double *results[2] = {NULL, NULL};
    for (int way = 0; way < 2; way++) {
        begin(&g, EBB_OP_LSTM_GRAD);
        for (int i = 0; i < 3; i++)
            g.in[i] = t.in[i];
        g.in[6] = t.out[0];
        g.in[7] = t.out[3];
        g.in[8] = t.out[4];
        // once as the gradient of the last state, once as that of the last row of all states
        make_operand(&g.in[way ? 9 : 10], EBB_F32, way ? 4 : 3, way ? D(T, 1, B, H) : D(1, B, H));
        ebb_operand *dy = &g.in[way ? 9 : 10];
        for (size_t i = 0; i < count_of(dy); i++)
            set_value(dy, i, !way || i >= (T - 1) * B * H ? (double)(i % (B * H)) - 4 : 0);
        g.call.input_count = 12;
        g.call.output_count = 1;
        put_out(&g, EBB_F32, 3, D(1, 4 * H, I));
        run_with(&g, "plain.lstm_grad");
        results[way] = values_of(&g.out[1]);
        if (way == 1)
            check_close(&g.out[1], results[0], 1e-6, "dW");
        unguard(dy->data);
        g.call.input_count = 0;
        end(&g);
    }
    free(results[0]);
    free(results[1]);
}
