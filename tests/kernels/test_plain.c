/* test_plain.c: the plain kernels against literals from PyTorch 2.11 (float64) and loops written
 * out here; odd shapes, empty tensors, wrong indices, results over inputs, any number of threads.
 * Norms and losses: test_plain_norms.c; convolution, pooling and LSTM: test_conv_pool.c. The
 * standard's own cases: onnx/test_backend.c.
 */
#include "literals.h"

#include "kernels/math/philox.h"
#include "kernels/plain/vmath.h"

#define REAL_BITS 32
#include "kernels/math/words.h"
#define FUNCTION(name, parameters, ...) \
    EBB_BOTH REAL NAMED(name)           \
    parameters __VA_ARGS__
#include "kernels/math/pointwise.def"
#include "tests/owned.h"

/* ---- elementary functions ---- */

static double ulps(float got, double exact)
{
    float near = (float)exact;
    double gap = (double)(nextafterf(fabsf(near), INFINITY) - fabsf(near));
    return fabs((double)got - exact) / gap;
}

TEST(polynomials_keep_their_bounds)
{
    double worst_exp = 0, worst_tanh = 0, worst_erf = 0, worst_sigmoid = 0, worst_tail = 0;
    double worst_log = 0;
    for (int i = -200000; i <= 200000; i++) {
        float x = (float)i * 0.0005f;
        if (x > -87.0f && x < 88.0f)
            worst_exp = fmax(worst_exp, ulps(ebb_exp(x), exp((double)x)));
        worst_tanh = fmax(worst_tanh, ulps(ebb_tanh(x), tanh((double)x)));
        worst_erf = fmax(worst_erf, ulps(ebb_erf(x), erf((double)x)));
        if (x > 0.0f && x != 1.0f) {
            worst_log = fmax(worst_log, ulps(ebb_log(x), log((double)x)));
            worst_log = fmax(worst_log, ulps(ebb_log(x * 1e-6f), log((double)(x * 1e-6f))));
        }
        if (x > -80.0f)
            worst_sigmoid = fmax(worst_sigmoid, ulps(logistic_f32(x), 1 / (1 + exp(-(double)x))));
        if (x > -5.0f && x < 5.0f) {
            double exact = 0.5 * erfc((double)x * -0.70710678118654752);
            worst_tail = fmax(worst_tail, fabs((double)normal_cdf_f32(x) - exact) / exact);
        }
    }
    print_message("ulp: exp %.2f, tanh %.2f, erf %.2f, sigmoid %.2f; normal tail %.1e\n", worst_exp,
                  worst_tanh, worst_erf, worst_sigmoid, worst_tail);
    assert_true(worst_log < 1);
    assert_true(ebb_log(1.0f) == 0.0f);
    assert_true(worst_exp < 2 && worst_tanh < 2.5 && worst_erf < 2.5 && worst_sigmoid < 3);
    assert_true(worst_tail < 3e-6);
    assert_true(isinf(ebb_exp(INFINITY)) && ebb_exp(-INFINITY) == 0.0f && isnan(ebb_exp(NAN)));
    assert_true(isnan(ebb_tanh(NAN)) && isnan(ebb_erf(NAN)));
    assert_true(ebb_tanh(INFINITY) == 1.0f && ebb_erf(-INFINITY) == -1.0f);
}

static const double z[] = {-3, -1, -0.1, 0, 0.7, 2.5};

static void check_activation(ebb_op forward, const char *name, ebb_op backward,
                             const char *grad_name, const double *y, const double *dx)
{
    for (int single = 0; single < 2; single++) {
        TESTING(t);
        ebb_dtype dtype = single != 0 ? EBB_F32 : EBB_F64;
        begin(&t, forward);
        put_float(&t, "alpha", 1.0);
        ebb_operand *x = put_in(&t, dtype, 1, DIMS(6));
        for (size_t i = 0; i < 6; i++)
            set_value(x, i, z[i]);
        put_out(&t, dtype, 1, DIMS(6));
        run_with(&t, name);
        close_to(&t.out[0], y, name);
        end(&t);
        begin(&t, backward);
        put_float(&t, "alpha", 1.0);
        ebb_operand *dy = put_in(&t, dtype, 1, DIMS(6));
        x = put_in(&t, dtype, 1, DIMS(6));
        for (size_t i = 0; i < 6; i++) {
            set_value(dy, i, 1);
            set_value(x, i, z[i]);
        }
        put_out(&t, dtype, 1, DIMS(6));
        run_with(&t, grad_name);
        close_to(&t.out[0], dx, grad_name);
    }
}

TEST(gelu_in_its_three_forms_agrees_with_pytorch)
{
    check_activation(EBB_OP_MS_GELU, "plain.gelu", EBB_OP_GELU_GRAD, "plain.gelu_grad",
                     LIST(-0.00404969409, -0.158655254, -0.0460172163, 0, 0.530625443, 2.48447584),
                     LIST(-0.0119456472, -0.0833154706, 0.420476908, 0.5, 0.976614101, 1.03761109));
    check_activation(EBB_OP_MS_FAST_GELU, "plain.fast_gelu", EBB_OP_FAST_GELU_GRAD,
                     "plain.fast_gelu_grad",
                     LIST(-0.00363739208, -0.158808009, -0.046017249, 0, 0.530570135, 2.48491573),
                     LIST(-0.0115841666, -0.0829640838, 0.420478211, 0.5, 0.976357219, 1.03795158));
    check_activation(EBB_OP_MS_QUICK_GELU, "plain.quick_gelu", EBB_OP_QUICK_GELU_GRAD,
                     "plain.quick_gelu_grad",
                     LIST(-0.14227762, -0.268941421, -0.0475020813, 0, 0.467731441, 2.31035455),
                     LIST(-0.088104106, 0.0723294881, 0.450083209, 0.5, 0.823386783, 1.09940111));
}

TEST(mish_agrees_with_pytorch)
{
    check_activation(EBB_OP_MISH, "plain.mish", EBB_OP_MISH_GRAD, "plain.mish_grad",
                     LIST(-0.145647461, -0.303401461, -0.0567885752, 0, 0.561148378, 2.4713923),
                     LIST(-0.0933931145, 0.0592167559, 0.535702818, 0.6, 0.968794868, 1.04112953));
}

/* ---- broadcasting and integers ---- */

TEST(shapes_broadcast_up_to_twelve_dims)
{
    TESTING(t);
    begin(&t, EBB_OP_SUB);
    const ebb_operand *a = put_in(&t, EBB_F32, 4, DIMS(2, 1, 5, 3));
    const ebb_operand *b = put_in(&t, EBB_F32, 3, DIMS(4, 1, 3));
    put_out(&t, EBB_F32, 4, DIMS(2, 4, 5, 3));
    run_with(&t, "plain.sub");
    for (size_t i = 0; i < 120; i++) {
        size_t l = i % 3, k = i / 3 % 5, j = i / 15 % 4, n = i / 60;
        float expected =
            ((const float *)a->data)[n * 15 + k * 3 + l] - ((const float *)b->data)[j * 3 + l];
        assert_true(((const float *)t.out[0].data)[i] == expected);
    }
    end(&t);
    begin(&t, EBB_OP_ADD);
    a = put_in(&t, EBB_F64, 12, DIMS(1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2));
    b = put_in(&t, EBB_F64, 12, DIMS(2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1));
    put_out(&t, EBB_F64, 12, DIMS(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2));
    run_with(&t, "plain.add");
    for (size_t i = 0; i < 4096; i++) {
        size_t ia = 0, ib = 0;
        for (size_t d = 0; d < 12; d += 2) { // bit 11 - d of i is the index on dim d
            ib = ib * 2 + (i >> (11 - d) & 1);
            ia = ia * 2 + (i >> (10 - d) & 1);
        }
        assert_true(value_of(&t.out[0], i) == value_of(a, ia) + value_of(b, ib));
    }
}

TEST(empty_tensors_and_scalars_are_tensors)
{
    TESTING(t);
    begin(&t, EBB_OP_MUL);
    put_in(&t, EBB_F32, 2, DIMS(0, 3));
    put_in(&t, EBB_F32, 0, NULL);
    put_out(&t, EBB_F32, 2, DIMS(0, 3));
    run_with(&t, "plain.mul");
    end(&t);
    begin(&t, EBB_OP_NEG);
    put_values(&t, 0, NULL, LIST(2.5));
    put_out(&t, EBB_F64, 0, NULL);
    run_with(&t, "plain.neg");
    assert_true(value_of(&t.out[0], 0) == -2.5);
    end(&t);
    begin(&t, EBB_OP_REDUCE_SUM);
    put_in(&t, EBB_F32, 2, DIMS(3, 0));
    put_ints(&t, "axes", 1, DIMS(1));
    put_out(&t, EBB_F32, 2, DIMS(3, 1));
    run_with(&t, "plain.reduce_sum");
    close_to(&t.out[0], LIST(0, 0, 0), "sum of nothing");
    end(&t);
    begin(&t, EBB_OP_REDUCE_MAX);
    put_in(&t, EBB_F32, 2, DIMS(2, 0));
    put_ints(&t, "axes", 1, DIMS(1));
    put_out(&t, EBB_F32, 2, DIMS(2, 1));
    run_with(&t, "plain.reduce_max");
    assert_true(value_of(&t.out[0], 1) == -INFINITY);
    end(&t);
    begin(&t, EBB_OP_REDUCE_MEAN);
    put_in(&t, EBB_I64, 2, DIMS(2, 0));
    put_ints(&t, "axes", 1, DIMS(1));
    put_out(&t, EBB_I64, 2, DIMS(2, 1));
    run_with(&t, "plain.reduce_mean");
    check_close(&t.out[0], LIST(0, 0), 0, "integer mean of nothing");
    end(&t);
    begin(&t, EBB_OP_SOFTMAX);
    put_in(&t, EBB_F32, 2, DIMS(0, 4));
    put_out(&t, EBB_F32, 2, DIMS(0, 4));
    run_with(&t, "plain.softmax");
}

TEST(integer_division_is_defined_everywhere)
{
    const int32_t a[] = {INT32_MIN, 7, -7, 7}, b[] = {-1, 2, 2, -2};
    TESTING(t);
    begin(&t, EBB_OP_DIV);
    put_data(&t, EBB_I32, 1, DIMS(4), a);
    ebb_operand *divisor = put_data(&t, EBB_I32, 1, DIMS(4), b);
    put_out(&t, EBB_I32, 1, DIMS(4));
    run_with(&t, "plain.div");
    check_close(&t.out[0], LIST(INT32_MIN, 3, -3, -3), 0, "quotients are truncated");
    t.call.op = EBB_OP_MOD;
    run_with(&t, "plain.mod");
    check_close(&t.out[0], LIST(0, 1, 1, -1), 0, "rests have the divisor's sign");
    ((int32_t *)divisor->data)[2] = 0;
    t.call.op = EBB_OP_DIV;
    assert_non_null(strstr(refusal_of(&t, "plain.div"), "zero"));
}

TEST(casts_saturate_and_nan_becomes_zero)
{
    const float x[] = {1e10f, -1e10f, NAN, -3.7f, 255.9f, INFINITY};
    TESTING(t);
    begin(&t, EBB_OP_CAST);
    put_data(&t, EBB_F32, 1, DIMS(6), x);
    put_out(&t, EBB_I32, 1, DIMS(6));
    run_with(&t, "plain.cast");
    check_close(&t.out[0], LIST(INT32_MAX, INT32_MIN, 0, -3, 255, INT32_MAX), 0, "to int32");
    end(&t);
    begin(&t, EBB_OP_CAST);
    put_data(&t, EBB_F32, 1, DIMS(6), x);
    put_out(&t, EBB_F16, 1, DIMS(6));
    run_with(&t, "plain.cast");
    const uint16_t *half = t.out[0].data;
    assert_int_equal(half[0], 0x7C00);
    assert_int_equal(half[1], 0xFC00);
    assert_true((half[2] & 0x7FFF) > 0x7C00);
    assert_int_equal(half[3], ebb_float_to_half(-3.7f));
}

/* What lies beside the middle of two neighbours in fewer bits, and would be the middle after a first
 * rounding to float32, or to float64. */
TEST(casts_round_once)
{
    const int64_t whole[] = {(INT64_C(257) << 30) + 1,
                             -(INT64_C(257) << 30) - 1,
                             (INT64_C(257) << 30),
                             (INT64_C(257) << 50) + 1,
                             2049,
                             INT64_MIN};
    const double real[] = {1 + 0x1p-8 + 0x1p-40, -1 - 0x1p-8 - 0x1p-40, 1 + 0x1p-8,
                           1 + 0x1p-8 - 0x1p-40, 0x1p-133 + 0x1p-160,   0x1.FEFFFFFFFp127};
    const uint16_t of_whole[] = {0x5281, 0xD281, 0x5280, 0x5C81, 0x4500, 0xDF00};
    const uint16_t of_real[] = {0x3F81, 0xBF81, 0x3F80, 0x3F80, 0x0001, 0x7F7F};
    TESTING(t);
    begin(&t, EBB_OP_CAST);
    put_data(&t, EBB_I64, 1, DIMS(6), whole);
    put_out(&t, EBB_BF16, 1, DIMS(6));
    run_with(&t, "plain.cast");
    assert_memory_equal(t.out[0].data, of_whole, sizeof of_whole);
    end(&t);
    begin(&t, EBB_OP_CAST);
    put_data(&t, EBB_F64, 1, DIMS(6), real);
    put_out(&t, EBB_BF16, 1, DIMS(6));
    run_with(&t, "plain.cast");
    assert_memory_equal(t.out[0].data, of_real, sizeof of_real);
    end(&t);
    const double halves[] = {1 + 0x1p-11 + 0x1p-40, 0x1p-25 + 0x1p-60, 65519.9999999999};
    const uint16_t of_halves[] = {0x3C01, 0x0001, 0x7BFF};
    begin(&t, EBB_OP_CAST);
    put_data(&t, EBB_F64, 1, DIMS(3), halves);
    put_out(&t, EBB_F16, 1, DIMS(3));
    run_with(&t, "plain.cast");
    assert_memory_equal(t.out[0].data, of_halves, sizeof of_halves);
    end(&t);
    const int64_t power[] = {(INT64_C(1) << 60) + 1}; // more than a power of two: the next one
    begin(&t, EBB_OP_CAST);
    put_data(&t, EBB_I64, 1, DIMS(1), power);
    put_out(&t, EBB_F8E8M0, 1, DIMS(1));
    run_with(&t, "plain.cast");
    assert_int_equal(((const uint8_t *)t.out[0].data)[0], 61 + 127);
}

/* Neighbours that are one number as doubles. */
TEST(the_place_of_the_largest_int64_is_exact)
{
    const int64_t x[] = {(INT64_C(1) << 53) + 1, (INT64_C(1) << 53), INT64_MAX - 1, INT64_MAX,
                         INT64_MIN + 1,          INT64_MIN};
    const int64_t most[] = {0, 1, 0}, least[] = {1, 0, 1}; // in each pair
    for (int smallest = 0; smallest < 2; smallest++)
        for (int last = 0; last < 2; last++) {
            TESTING(t);
            begin(&t, smallest ? EBB_OP_ARG_MIN : EBB_OP_ARG_MAX);
            put_int(&t, "axis", 1);
            put_int(&t, "select_last_index", last);
            put_data(&t, EBB_I64, 2, DIMS(3, 2), x);
            put_out(&t, EBB_I64, 2, DIMS(3, 1));
            run_with(&t, smallest ? "plain.arg_min" : "plain.arg_max");
            assert_memory_equal(t.out[0].data, smallest ? least : most, sizeof most);
        }
}

/* ---- moves and indices ---- */

TEST(transposes_of_every_order_move_each_element)
{
    const int64_t dims[4] = {3, 5, 17, 6};
    for (int code = 0; code < 256; code++) {
        int64_t perm[4] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
        if ((1 << perm[0] | 1 << perm[1] | 1 << perm[2] | 1 << perm[3]) != 15)
            continue; // not a permutation
        TESTING(t);
        begin(&t, EBB_OP_TRANSPOSE);
        put_ints(&t, "perm", 4, perm);
        put_in(&t, EBB_F32, 4, dims);
        put_out(&t, EBB_F32, 4, DIMS(dims[perm[0]], dims[perm[1]], dims[perm[2]], dims[perm[3]]));
        run_with(&t, "plain.transpose");
        int64_t stride[4], at[4];
        ebb_strides(stride, 4, dims);
        for (size_t i = 0; i < 3 * 5 * 17 * 6; i++) {
            int64_t rest = (int64_t)i, from = 0;
            for (int d = 3; d >= 0; d--) {
                at[d] = rest % dims[perm[d]];
                rest /= dims[perm[d]];
                from += at[d] * stride[perm[d]];
            }
            assert_true(value_of(&t.out[0], i) == value_of(&t.in[0], (size_t)from));
        }
    }
}

TEST(an_index_outside_the_table_is_named)
{
    const int64_t index[] = {0, -4, 4};
    TESTING(t);
    begin(&t, EBB_OP_GATHER);
    put_in(&t, EBB_F32, 2, DIMS(4, 2));
    put_data(&t, EBB_I64, 1, DIMS(3), index);
    put_out(&t, EBB_F32, 2, DIMS(3, 2));
    const char *text = refusal_of(&t, "plain.gather");
    assert_non_null(strstr(text, "the test's node"));
    assert_non_null(strstr(text, "4"));
}

TEST(the_gradient_of_a_gather_adds_what_meets)
{
    const int64_t shape[] = {20, 3}, index[] = {4, -1, 4, 4, 0};
    TESTING(t);
    begin(&t, EBB_OP_GATHER_GRAD);
    put_data(&t, EBB_I64, 1, DIMS(2), shape);
    put_data(&t, EBB_I64, 1, DIMS(5), index);
    const ebb_operand *dy = put_in(&t, EBB_F64, 2, DIMS(5, 3));
    put_out(&t, EBB_F64, 2, DIMS(20, 3));
    run_with(&t, "plain.gather_grad");
    double expected[60] = {0};
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 3; j++)
            expected[(size_t)(index[i] < 0 ? index[i] + 20 : index[i]) * 3 + j] +=
                value_of(dy, i * 3 + j);
    check_close(&t.out[0], expected, 1e-15, "dx");
}

/* ---- optimizers ---- */

/* PyTorch with the rates rounded to float32, as an attribute holds them. */
TEST(three_steps_of_adamw_agree_with_pytorch)
{
    TESTING(t);
    begin(&t, EBB_OP_ADAMW);
    put_values(&t, 0, NULL, LIST(0.1));
    int64_t steps = 0;
    put_data(&t, EBB_I64, 0, NULL, &steps);
    put_values(&t, 1, DIMS(3), LIST(1, -2, 0.5));
    put_values(&t, 1, DIMS(3), LIST(0, 0, 0));
    put_values(&t, 1, DIMS(3), LIST(0, 0, 0));
    put_values(&t, 1, DIMS(3), LIST(0, 0, 0));
    for (int o = 0; o < 3; o++)
        put_out(&t, EBB_F64, 1, DIMS(3));
    for (int step = 0; step < 3; step++) {
        *(int64_t *)t.in[1].data = step;
        for (size_t i = 0; i < 3; i++)
            set_value(&t.in[3], i, LIST(0.5, -0.25, 1)[i] * (step + 1));
        run_with(&t, "plain.adamw");
        memcpy(t.in[2].data, t.out[0].data, t.out[0].bytes);
        memcpy(t.in[4].data, t.out[1].data, t.out[1].bytes);
        memcpy(t.in[5].data, t.out[2].data, t.out[2].bytes);
    }
    close_to(&t.out[0], LIST(0.7049810946, -1.701984098, 0.206479593), "w");
    close_to(&t.out[1], LIST(0.2805000623, -0.1402500312, 0.5610001247), "m");
    close_to(&t.out[2], LIST(0.003498455228, 0.0008746138069, 0.01399382091), "v");
}

TEST(three_steps_of_momentum_agree_with_pytorch)
{
    TESTING(t);
    begin(&t, EBB_OP_MOMENTUM);
    put_float(&t, "alpha", 0.9);
    put_float(&t, "beta", 1);
    put_float(&t, "norm_coefficient", 0.01);
    put_string(&t, "mode", "standard");
    put_values(&t, 0, NULL, LIST(0.1));
    int64_t steps = 0;
    put_data(&t, EBB_I64, 0, NULL, &steps);
    put_values(&t, 1, DIMS(3), LIST(1, -2, 0.5));
    put_values(&t, 1, DIMS(3), LIST(0, 0, 0));
    put_values(&t, 1, DIMS(3), LIST(0, 0, 0));
    put_out(&t, EBB_F64, 1, DIMS(3));
    put_out(&t, EBB_F64, 1, DIMS(3));
    for (int step = 0; step < 3; step++) {
        *(int64_t *)t.in[1].data = step;
        for (size_t i = 0; i < 3; i++)
            set_value(&t.in[3], i, LIST(0.5, -0.25, 1)[i] * (step + 1));
        run_with(&t, "plain.momentum");
        memcpy(t.in[2].data, t.out[0].data, t.out[0].bytes);
        memcpy(t.in[4].data, t.out[1].data, t.out[1].bytes);
    }
    close_to(&t.out[0], LIST(0.519184749, -1.75118457, -0.453222701), "w");
    close_to(&t.out[1], LIST(2.82966251, -1.45542427, 5.61873201), "v");
}

/* ---- draws and masks ---- */

TEST(dropout_draws_the_same_mask_in_the_backward)
{
    const int64_t key[] = {42, 7}, n = 4099;
    TESTING(t);
    TESTING(back);
    begin(&t, EBB_OP_EBB_DROPOUT);
    put_float(&t, "ratio", 0.25);
    put_int(&t, "stream", 3);
    ebb_operand *x = put_in(&t, EBB_F32, 1, &n);
    put_data(&t, EBB_I64, 1, DIMS(2), key);
    put_out(&t, EBB_F32, 1, &n);
    begin(&back, EBB_OP_EBB_DROPOUT_SEED_GRAD);
    put_float(&back, "ratio", 0.25);
    put_int(&back, "stream", 3);
    ebb_operand *dy = put_in(&back, EBB_F32, 1, &n);
    put_data(&back, EBB_I64, 1, DIMS(2), key);
    put_out(&back, EBB_F32, 1, &n);
    for (size_t i = 0; i < (size_t)n; i++) {
        set_value(x, i, 1);
        set_value(dy, i, 1);
    }
    run_with(&t, "plain.keyed_dropout");
    run_with(&back, "plain.dropout_seed_grad");
    assert_memory_equal(t.out[0].data, back.out[0].data, t.out[0].bytes);
    int kept = 0;
    for (size_t i = 0; i < (size_t)n; i++) {
        uint32_t word = ebb_philox_block(42, 7, 3, i / 4).word[i % 4];
        bool keep = word >= ebb_dropout_threshold(0.25);
        assert_true(value_of(&t.out[0], i) == (keep ? (double)(float)(1 / 0.75) : 0.0));
        kept += keep;
    }
    assert_true(kept > 2900 && kept < 3250);
}

/* Near the end of the range a float has larger steps than the numbers that are drawn. */
TEST(uniform_draws_never_reach_their_end)
{
    enum { COUNT = 1 << 18 };
    static const struct {
        ebb_dtype dtype;
        double low, high, most; // most: the largest of the dtype below high
    } draws[] = {{EBB_F32, 1024, 1025, 0x1.003FFEp10}, {EBB_F32, -1025, -1024, -0x1.000002p10},
                 {EBB_F16, 0, 1, 1 - 0x1p-11},         {EBB_BF16, 1, 3, 3 - 0x1p-6},
                 {EBB_BF16, -1, 0, -0x1p-133},         {EBB_F16, -2, 65520, 65504}};
    for (size_t k = 0; k < sizeof draws / sizeof draws[0]; k++) {
        TESTING(t);
        double most = -INFINITY;
        begin(&t, EBB_OP_RANDOM_UNIFORM);
        put_float(&t, "low", draws[k].low);
        put_float(&t, "high", draws[k].high);
        put_int(&t, "seed", 5);
        put_out(&t, draws[k].dtype, 1, (const int64_t[]){COUNT});
        run_with(&t, "plain.random_uniform");
        const uint16_t *narrow = t.out[0].data;
        for (int i = 0; i < COUNT; i++) {
            double x = draws[k].dtype == EBB_F32   ? (double)((const float *)t.out[0].data)[i]
                       : draws[k].dtype == EBB_F16 ? (double)ebb_half_to_float(narrow[i])
                                                   : (double)ebb_bf16_to_float(narrow[i]);
            most = fmax(most, x);
            assert_true(x >= draws[k].low);
        }
        if (most > draws[k].most)
            fail_msg("draws of %s from [%g, %g) reach %.10g", ebb_dtype_name(draws[k].dtype),
                     draws[k].low, draws[k].high, most);
    }
}

TEST(a_bit_an_element_is_enough_for_relu)
{
    const double y[] = {1, 0, -2, 3, INFINITY, 0, 0.5, 0, 0, 4, 1e-30};
    const uint8_t expected[] = {0x59, 0x06};
    TESTING(t);
    begin(&t, EBB_OP_PACK_SIGN);
    put_values(&t, 1, DIMS(11), y);
    put_out(&t, EBB_U8, 1, DIMS(2));
    run_with(&t, "plain.pack_sign");
    assert_memory_equal(t.out[0].data, expected, 2);
    end(&t);
    begin(&t, EBB_OP_MASK_GRAD);
    put_float(&t, "alpha", 0.5);
    const ebb_operand *dy = put_in(&t, EBB_F64, 1, DIMS(11));
    put_data(&t, EBB_U8, 1, DIMS(2), expected);
    put_out(&t, EBB_F64, 1, DIMS(11));
    run_with(&t, "plain.mask_grad");
    for (size_t i = 0; i < 11; i++)
        assert_true(value_of(&t.out[0], i) == value_of(dy, i) * (y[i] > 0 ? 1 : 0.5));
}

/* ---- threads and accuracy ---- */

/* The bytes of output 0 with one thread and with three. */
static void same_for_any_threads(testing *t, const char *name)
{
    (void)ebb_threads_enter(1);
    run_with(t, name);
    FREED void *one = malloc(t->out[0].bytes);
    assert_non_null(one);
    memcpy(one, t->out[0].data, t->out[0].bytes);
    (void)ebb_threads_enter(3);
    run_with(t, name);
    (void)ebb_threads_enter(0);
    if (memcmp(one, t->out[0].data, t->out[0].bytes) != 0)
        fail_msg("%s depends on the number of threads", name);
}

TEST(results_do_not_depend_on_the_number_of_threads)
{
    TESTING(t);
    begin(&t, EBB_OP_REDUCE_SUM);
    put_ints(&t, "axes", 3, DIMS(0, 2, 3));
    const ebb_operand *x = put_in(&t, EBB_F32, 4, DIMS(8, 5, 40, 41));
    put_out(&t, EBB_F32, 4, DIMS(1, 5, 1, 1));
    same_for_any_threads(&t, "plain.reduce_sum");
    double expected[5] = {0};
    for (size_t i = 0; i < count_of(x); i++)
        expected[i / 1640 % 5] += value_of(x, i);
    check_close(&t.out[0], expected, 2e-7, "sums over all axes but 1");
    end(&t);
    begin(&t, EBB_OP_REDUCE_SUM);
    put_in(&t, EBB_F32, 1, DIMS(1000003));
    put_out(&t, EBB_F32, 1, DIMS(1));
    same_for_any_threads(&t, "plain.reduce_sum");
    end(&t);
    begin(&t, EBB_OP_RANDOM_NORMAL);
    put_float(&t, "seed", 5);
    put_out(&t, EBB_F32, 1, DIMS(50001));
    same_for_any_threads(&t, "plain.random_normal");
    double mean = 0, square = 0;
    for (size_t i = 0; i < 50001; i++) {
        mean += value_of(&t.out[0], i) / 50001;
        square += value_of(&t.out[0], i) * value_of(&t.out[0], i) / 50001;
    }
    assert_true(fabs(mean) < 0.02 && fabs(square - 1) < 0.03);
    end(&t);
    begin(&t, EBB_OP_LAYER_NORM_GRAD);
    put_in(&t, EBB_F32, 2, DIMS(300, 130));
    put_in(&t, EBB_F32, 2, DIMS(300, 130));
    put_in(&t, EBB_F32, 1, DIMS(130));
    put_in(&t, EBB_F32, 2, DIMS(300, 1));
    put_in(&t, EBB_F32, 2, DIMS(300, 1));
    put_out(&t, EBB_F32, 2, DIMS(300, 130));
    put_out(&t, EBB_F32, 1, DIMS(130));
    put_out(&t, EBB_F32, 1, DIMS(130));
    same_for_any_threads(&t, "plain.layer_norm_grad");
}

/* The statistics of rows far from zero: where float32 sums would lose everything. */
TEST(layer_norm_in_float32_is_near_float64)
{
    TESTING(t);
    begin(&t, EBB_OP_LAYER_NORMALIZATION);
    ebb_operand *x = put_in(&t, EBB_F32, 2, DIMS(3, 1000));
    ebb_operand *scale = put_in(&t, EBB_F32, 1, DIMS(1000));
    for (size_t i = 0; i < 3000; i++)
        set_value(x, i, 100 + value_of(x, i));
    for (size_t i = 0; i < 1000; i++)
        set_value(scale, i, 1);
    put_out(&t, EBB_F32, 2, DIMS(3, 1000));
    run_with(&t, "plain.layer_normalization");
    double expected[3000];
    for (size_t r = 0; r < 3; r++) {
        double mean = 0, var = 0;
        for (size_t i = 0; i < 1000; i++)
            mean += value_of(x, r * 1000 + i) / 1000;
        for (size_t i = 0; i < 1000; i++)
            var += pow(value_of(x, r * 1000 + i) - mean, 2) / 1000;
        for (size_t i = 0; i < 1000; i++)
            expected[r * 1000 + i] = (value_of(x, r * 1000 + i) - mean) / sqrt(var + 1e-5);
    }
    check_close(&t.out[0], expected, 5e-6, "y");
}

TEST(matmul_broadcasts_and_transposes)
{
    TESTING(t);
    begin(&t, EBB_OP_FUSED_MATMUL);
    put_int(&t, "transA", 1);
    put_float(&t, "alpha", 0.5);
    const ebb_operand *a = put_in(&t, EBB_F64, 4, DIMS(2, 1, 7, 3));
    const ebb_operand *b = put_in(&t, EBB_F64, 3, DIMS(4, 7, 5));
    put_out(&t, EBB_F64, 4, DIMS(2, 4, 3, 5));
    run_with(&t, "plain.fused_matmul");
    double expected[120];
    for (size_t i = 0; i < 120; i++) {
        size_t column = i % 5, row = i / 5 % 3, m = i / 15 % 4, n = i / 60;
        expected[i] = 0;
        for (size_t k = 0; k < 7; k++)
            expected[i] +=
                0.5 * value_of(a, n * 21 + k * 3 + row) * value_of(b, m * 35 + k * 5 + column);
    }
    check_close(&t.out[0], expected, 1e-14, "y");
}
