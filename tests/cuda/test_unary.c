/* test_unary.c: the CUDA kernels of one input and the gradients of activations. */
#include "tests/cuda/numbers.h"

typedef struct operator_ {
    ebb_op op;
    const char *name;
    const char *attributes; /* letters, as put_letter has them */
    double low, high;
    bool flag;
} operator_;

static const operator_ unary[] = {
    {EBB_OP_NEG, "neg", "", -9, 9, false},
    {EBB_OP_ABS, "abs", "", -9, 9, false},
    {EBB_OP_SIGN, "sign", "", -9, 9, false},
    {EBB_OP_RELU, "relu", "", -9, 9, false},
    {EBB_OP_EXP, "exp", "", -100, 100, false},
    {EBB_OP_LOG, "log", "", 0, 9, false},
    {EBB_OP_SQRT, "sqrt", "", 0, 9, false},
    {EBB_OP_RECIPROCAL, "reciprocal", "", -9, 9, false},
    {EBB_OP_ERF, "erf", "", -4, 4, false},
    {EBB_OP_SIN, "sin", "", -9, 9, false},
    {EBB_OP_COS, "cos", "", -9, 9, false},
    {EBB_OP_TAN, "tan", "", -9, 9, false},
    {EBB_OP_ATAN, "atan", "", -9, 9, false},
    {EBB_OP_ASIN, "asin", "", -1, 1, false},
    {EBB_OP_ACOS, "acos", "", -1, 1, false},
    {EBB_OP_SINH, "sinh", "", -9, 9, false},
    {EBB_OP_COSH, "cosh", "", -9, 9, false},
    {EBB_OP_ASINH, "asinh", "", -9, 9, false},
    {EBB_OP_ACOSH, "acosh", "", 1, 9, false},
    {EBB_OP_ATANH, "atanh", "", -1, 1, false},
    {EBB_OP_SELU, "selu", "", -9, 9, false},
    {EBB_OP_SELU, "selu", "ag", -9, 9, false},
    {EBB_OP_CELU, "celu", "", -9, 9, false},
    {EBB_OP_CELU, "celu", "a", -9, 9, false},
    {EBB_OP_SHRINK, "shrink", "", -1, 1, false},
    {EBB_OP_SHRINK, "shrink", "ls", -1, 1, false},
    {EBB_OP_SWISH, "swish", "", -9, 9, false},
    {EBB_OP_SWISH, "swish", "a", -9, 9, false},
    {EBB_OP_FLOOR, "floor", "", -9, 9, false},
    {EBB_OP_CEIL, "ceil", "", -9, 9, false},
    {EBB_OP_ROUND, "round", "", -9, 9, false},
    {EBB_OP_LEAKY_RELU, "leaky_relu", "", -9, 9, false},
    {EBB_OP_LEAKY_RELU, "leaky_relu", "a", -9, 9, false},
    {EBB_OP_THRESHOLDED_RELU, "thresholded_relu", "a", -1, 1, false},
    {EBB_OP_ELU, "elu", "a", -9, 9, false},
    {EBB_OP_SIGMOID, "sigmoid", "", -20, 20, false},
    {EBB_OP_TANH, "tanh", "", -5, 5, false},
    {EBB_OP_HARD_SIGMOID, "hard_sigmoid", "", -9, 9, false},
    {EBB_OP_HARD_SIGMOID, "hard_sigmoid", "ab", -9, 9, false},
    {EBB_OP_HARD_SWISH, "hard_swish", "", -9, 9, false},
    {EBB_OP_SOFTPLUS, "softplus", "", -20, 20, false},
    {EBB_OP_SOFTSIGN, "softsign", "", -9, 9, false},
    {EBB_OP_GELU, "gelu", "", -5, 5, false},
    {EBB_OP_GELU, "gelu", "t", -5, 5, false},
    {EBB_OP_MISH, "mish", "", -9, 30, false},
    {EBB_OP_MS_GELU, "gelu", "", -5, 5, false},
    {EBB_OP_MS_FAST_GELU, "fast_gelu", "", -5, 5, false},
    {EBB_OP_MS_QUICK_GELU, "quick_gelu", "a", -9, 9, false},
    {EBB_OP_IS_NAN, "is_nan", "", -9, 9, true},
    {EBB_OP_IS_INF, "is_inf", "", -9, 9, true},
    {EBB_OP_IS_INF, "is_inf", "p", -9, 9, true},
};

static const operator_ gradients[] = {
    {EBB_OP_RELU_GRAD, "relu_grad", "", -3, 3, false},
    {EBB_OP_LEAKY_RELU_GRAD, "leaky_relu_grad", "a", -3, 3, false},
    {EBB_OP_SIGMOID_GRAD, "sigmoid_grad", "", 0, 1, false},
    {EBB_OP_TANH_GRAD, "tanh_grad", "", -1, 1, false},
    {EBB_OP_GELU_GRAD, "gelu_grad", "", -5, 5, false},
    {EBB_OP_FAST_GELU_GRAD, "fast_gelu_grad", "", -5, 5, false},
    {EBB_OP_QUICK_GELU_GRAD, "quick_gelu_grad", "a", -5, 5, false},
    {EBB_OP_MISH_GRAD, "mish_grad", "", -9, 30, false},
    {EBB_OP_CLIP_GRAD, "clip_grad", "", -3, 3, false},
};

static const int64_t sizes[] = {0, 1, 5, 1031};

static void put_letter(testing *t, char letter)
{
    switch (letter) {
    case 't':
        put_string(t, "approximate", "tanh");
        break;
    case 'p':
        put_int(t, "detect_negative", 0);
        break;
    case 'a':
        put_float(t, "alpha", 0.625);
        break;
    case 'b':
        put_float(t, "beta", 0.375);
        break;
    case 'g':
        put_float(t, "gamma", 1.25);
        break;
    case 'l':
        put_float(t, "lambd", 0.25);
        break;
    default:
        put_float(t, "bias", 0.125);
        break;
    }
}

static void make(testing *t, const operator_ *op, ebb_dtype dtype, int64_t n, bool gradient)
{
    begin(t, op->op);
    if (gradient) {
        ebb_operand *dy = put_numbers(t, dtype, 1, &n, -1, 1);
        /* Bounds near 0 are of a dy of 1 at most. */
        for (size_t i = 0; !is_narrow(dy) && i < count_of(dy); i++)
            if (isfinite(value_of(dy, i)) && fabs(value_of(dy, i)) > 1)
                set_value(dy, i, copysign(1, value_of(dy, i)));
    }
    put_numbers(t, dtype, 1, &n, op->low, op->high);
    put_out(t, op->flag ? EBB_BOOL : dtype, 1, &n);
    for (const char *a = op->attributes; *a != 0; a++)
        put_letter(t, *a);
}

static void each(const operator_ *list, size_t count, ebb_dtype dtype, bool gradient)
{
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            char name[2][40];
            TESTING(t);
            (void)snprintf(name[0], sizeof name[0], "cuda.%s", list[k].name);
            (void)snprintf(name[1], sizeof name[1], "plain.%s", list[k].name);
            make(&t, &list[k], dtype, sizes[i], gradient);
            if (is_narrow(&t.in[0]))
                same_as_float32(&t, name[0]);
            else
                same_as(&t, name[0], name[1]);
        }
}

#define EACH(list, dtype, gradient) each(list, sizeof list / sizeof list[0], dtype, gradient)

TEST(functions_are_near_the_plain_ones)
{
    EACH(unary, EBB_F32, false);
    EACH(unary, EBB_F64, false);
}

TEST(functions_of_16_bits_are_those_of_32_rounded)
{
    EACH(unary, EBB_F16, false);
    EACH(unary, EBB_BF16, false);
}

TEST(gradients_are_near_the_plain_ones)
{
    EACH(gradients, EBB_F32, true);
    EACH(gradients, EBB_F64, true);
}

TEST(gradients_of_16_bits_are_those_of_32_rounded)
{
    EACH(gradients, EBB_F16, true);
    EACH(gradients, EBB_BF16, true);
}

static const ebb_dtype wholes[] = {EBB_I8, EBB_I16, EBB_I32, EBB_I64,
                                   EBB_U8, EBB_U16, EBB_U32, EBB_U64};

TEST(integers_are_those_of_the_plain_kernels)
{
    static const operator_ list[] = {
        {EBB_OP_NEG, "neg", "", 0, 0, false},
        {EBB_OP_ABS, "abs", "", 0, 0, false},
        {EBB_OP_SIGN, "sign", "", 0, 0, false},
        {EBB_OP_RELU, "relu", "", 0, 0, false},
        {EBB_OP_BITWISE_NOT, "bit_not", "", 0, 0, false},
        {EBB_OP_CLIP, "clip", "", 0, 0, false},
    };
    for (size_t d = 0; d < sizeof wholes / sizeof wholes[0]; d++)
        for (size_t k = 0; k < sizeof list / sizeof list[0]; k++) {
            char name[2][40];
            TESTING(t);
            (void)snprintf(name[0], sizeof name[0], "cuda.%s", list[k].name);
            (void)snprintf(name[1], sizeof name[1], "plain.%s", list[k].name);
            make(&t, &list[k], wholes[d], 333, false);
            put_bits(&t, &t.in[0]);
            same_as(&t, name[0], name[1]);
        }
}

TEST(not_is_that_of_the_plain_kernel)
{
    TESTING(t);
    begin(&t, EBB_OP_NOT);
    put_numbers(&t, EBB_BOOL, 1, (int64_t[]){333}, 0, 0);
    put_out(&t, EBB_BOOL, 1, (int64_t[]){333});
    same_as(&t, "cuda.not", "plain.not");
}

TEST(clip_has_its_bounds_from_inputs_or_attributes)
{
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16, EBB_I8,  EBB_I16,
                                       EBB_I32, EBB_I64, EBB_U8,  EBB_U16,  EBB_U32, EBB_U64};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (int kind = 0; kind < 5; kind++) { // none; low; high; both; both as attributes
            TESTING(t);
            bool real = d < 4;
            if (kind == 4 && !real)
                continue;
            begin(&t, EBB_OP_CLIP);
            put_numbers(&t, dtypes[d], 1, (int64_t[]){1031}, 0, 9);
            for (int k = 0; k < 2; k++)
                if (kind == 4)
                    put_float(&t, k == 0 ? "min" : "max", k == 0 ? 2 : 6);
                else if ((kind >> k & 1) == 0)
                    put_absent(&t);
                else {
                    ebb_operand *o = put_numbers(&t, dtypes[d], 0, NULL, k ? 6 : 2, k ? 6 : 2);
                    if (real)
                        put_real(o, 0, k ? 6 : 2);
                }
            put_out(&t, dtypes[d], 1, (int64_t[]){1031});
            if (is_narrow(&t.in[0]))
                same_as_float32(&t, "cuda.clip");
            else
                same_as(&t, "cuda.clip", "plain.clip");
        }
}

TEST(gradients_of_clip_have_its_bounds)
{
    for (int kind = 0; kind < 4; kind++)
        for (int wide = 0; wide < 2; wide++) {
            ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
            TESTING(t);
            begin(&t, EBB_OP_CLIP_GRAD);
            put_numbers(&t, dtype, 1, (int64_t[]){1031}, -3, 3);
            put_numbers(&t, dtype, 1, (int64_t[]){1031}, -3, 3);
            for (int k = 0; k < 2; k++)
                if ((kind >> k & 1) == 0)
                    put_absent(&t);
                else
                    put_real(put_numbers(&t, dtype, 0, NULL, 0, 0), 0, k ? 1 : -1);
            put_out(&t, dtype, 1, (int64_t[]){1031});
            same_as(&t, "cuda.clip_grad", "plain.clip_grad");
        }
}

TEST(slopes_are_broadcast)
{
    static const ebb_dtype dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16, EBB_I32, EBB_U8};
    static const int64_t dims[] = {2, 3, 4, 8}, slope[] = {3, 1, 1};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (int scalar = 0; scalar < 2; scalar++) {
            TESTING(t);
            begin(&t, EBB_OP_PRELU);
            put_numbers(&t, dtypes[d], 4, dims, -3, 3);
            put_numbers(&t, dtypes[d], scalar ? 0 : 3, slope, -3, 3);
            put_out(&t, dtypes[d], 4, dims);
            if (is_narrow(&t.in[0]))
                same_as_float32(&t, "cuda.prelu");
            else
                same_as(&t, "cuda.prelu", "plain.prelu");
        }
}

/* Results may lie over an input, as the plan does where it can. */
TEST(results_may_lie_over_an_input)
{
    for (int over = 0; over < 2; over++) {
        TESTING(t);
        make(&t, &gradients[4], EBB_F32, 1031, true);
        run_with(&t, "cuda.gelu_grad");
        const ebb_kernel *k = kernel_named("cuda.gelu_grad");
        void *own = t.out[0].data;
        t.out[0].data = t.in[over].data;
        check_run(k->run(&t.call), "cuda.gelu_grad");
        assert_memory_equal(own, t.out[0].data, t.out[0].bytes);
        t.out[0].data = own;
    }
}

const fixture around_all = {with_cuda, NULL};
