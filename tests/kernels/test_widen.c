/* test_widen.c: operators on float16 and bfloat16 against the same operators on float32.
 *
 * Inputs are numbers that 16 bits hold. The expected output is that of float32, rounded here by
 * arithmetic on its value, not on its bits. Equal to the bit: what an operator means in 16 bits is
 * one rounding of what it means in 32.
 */
#include "call.h"

#include "kernels/nested/widen.h"
#include "tests/status.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

/* ---- rounding, by value ---- */

typedef struct format {
    ebb_dtype dtype;
    int digits, least; /* of the mantissa with its leading one; exponent of the least subnormal */
    double largest;
} format;

static const format formats[] = {{EBB_F16, 11, -24, 65504.0}, {EBB_BF16, 8, -133, 0x1.FEp127}};

static double round_to(double x, const format *f)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    (void)frexp(x, &exponent);
    int quantum = exponent - f->digits > f->least ? exponent - f->digits : f->least;
    double y = ldexp(nearbyint(ldexp(x, -quantum)), quantum);
    return fabs(y) > f->largest ? copysign(INFINITY, y) : y;
}

/* The number that 16 bits stand for. */
static double number_of(uint16_t bits, const format *f)
{
    int mantissa_bits = f->digits - 1, exponent_bits = 15 - mantissa_bits;
    int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    double mantissa = bits & ((1 << mantissa_bits) - 1);
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return mantissa > 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, f->least);
    return sign * ldexp(mantissa + (1 << mantissa_bits), f->least + exponent - 1);
}

TEST(all_numbers_of_16_bits_are_widened_and_come_back)
{
    static uint16_t all[65536], back[65536];
    static float wide[65536];
    for (size_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (size_t k = 0; k < 2; k++) {
        ebb_widen(wide, all, formats[k].dtype, 65536);
        ebb_narrow(back, wide, formats[k].dtype, 65536);
        for (size_t i = 0; i < 65536; i++) {
            double expected = number_of(all[i], &formats[k]);
            if (isnan(expected) ? !isnan(wide[i]) : (double)wide[i] != expected)
                fail_msg("0x%04zx is widened to %g, not %g", i, (double)wide[i], expected);
            if (isnan(expected) ? !isnan(number_of(back[i], &formats[k])) : back[i] != all[i])
                fail_msg("0x%04zx comes back as 0x%04x", i, back[i]);
        }
    }
}

TEST(numbers_between_go_to_the_nearest_and_ties_to_even)
{
    testing t;
    begin(&t, EBB_OP_ADD);
    for (size_t k = 0; k < 2; k++)
        for (int i = 0; i < 200000; i++) {
            float x = ldexpf((float)draw(&t), i % 60 - 40);
            if (i % 3 == 0) // a tie
                x = (float)(round_to(x, &formats[k]) * (1 + ldexp(1, -formats[k].digits)));
            uint16_t bits;
            ebb_narrow(&bits, &x, formats[k].dtype, 1);
            double got = number_of(bits, &formats[k]), expected = round_to(x, &formats[k]);
            if (got != expected)
                fail_msg("%.9g became %.9g, not %.9g", (double)x, got, expected);
        }
}

/* ---- operators ---- */

/* An operand: its kind and its dims. n: 16 bits; f: float32; i, k: int64 below 5, or a key; b:
 * bytes; r: bfloat16 always; o: bool; m: 16 bits and positive. */
typedef struct shape {
    char kind;       /* 0: after the last; '-': absent */
    int64_t dims[5]; /* as many as are not 0; -1: a dim of no elements */
} shape;

typedef struct sample {
    const char *what;
    ebb_op op;
    shape in[9], out[4];
    const char *ints; /* "name=1 name=2,3": attributes; those of a single number are scalars */
    const char *floats;
} sample;

#define CONV "kernel_shape=3,3 pads=1,1,1,1 strides=1,1 dilations=1,1"
#define POOL "kernel_shape=2,2 strides=2,2 pads=0,0,0,0 dilations=1,1"

#define OVERLAP "kernel_shape=3,3 strides=2,2 pads=1,1,1,1 dilations=1,1"
/* As pass layout has it. */
#define LAST "kernel_shape=3,3,1 strides=2,2,1 pads=1,1,0,1,1,0 dilations=1,1,1"

// clang-format off
static const sample samples[] = {
    {"a sum", EBB_OP_ADD, {{'n', {3, 7}}, {'n', {3, 7}}}, {{'n', {3, 7}}}, NULL, NULL},
    {"a sum of many elements, piece by piece", EBB_OP_ADD,
        {{'n', {3, 50001}}, {'n', {3, 50001}}}, {{'n', {3, 50001}}}, NULL, NULL},
    {"a product with a row, piece by piece", EBB_OP_MUL,
        {{'n', {301, 517}}, {'n', {517}}}, {{'n', {301, 517}}}, NULL, NULL},
    {"a product with a column", EBB_OP_MUL,
        {{'n', {301, 517}}, {'n', {301, 1}}}, {{'n', {301, 517}}}, NULL, NULL},
    {"a product with a single number", EBB_OP_MUL,
        {{'n', {131, 517}}, {'n', {1}}}, {{'n', {131, 517}}}, NULL, NULL},
    {"a broadcast of both sides", EBB_OP_SUB, {{'n', {5, 1, 3}}, {'n', {7, 1}}}, {{'n', {5, 7, 3}}}, NULL, NULL},
    {"numbers with a scalar's shape", EBB_OP_DIV, {{'n', {1}}, {'m', {1}}}, {{'n', {1}}}, NULL, NULL},
    {"a comparison", EBB_OP_GREATER, {{'n', {300, 500}}, {'n', {300, 500}}}, {{'o', {300, 500}}}, NULL, NULL},
    {"a choice", EBB_OP_WHERE, {{'o', {200, 500}}, {'n', {200, 500}}, {'n', {1}}}, {{'n', {200, 500}}}, NULL, NULL},
    {"an activation", EBB_OP_GELU, {{'n', {3, 50001}}}, {{'n', {3, 50001}}}, NULL, NULL},
    {"a logistic function", EBB_OP_SIGMOID, {{'n', {13, 11}}}, {{'n', {13, 11}}}, NULL, NULL},
    {"a clip by numbers", EBB_OP_CLIP, {{'n', {70, 1001}}, {'-', {0}}, {'m', {1}}}, {{'n', {70, 1001}}}, NULL, NULL},
    {"slopes", EBB_OP_PRELU, {{'n', {5, 4, 3}}, {'n', {4, 1}}}, {{'n', {5, 4, 3}}}, NULL, NULL},
    {"an activation's backward", EBB_OP_GELU_GRAD, {{'n', {300, 501}}, {'n', {300, 501}}}, {{'n', {300, 501}}}, NULL, NULL},
    {"a sum over an axis", EBB_OP_REDUCE_SUM, {{'n', {5, 301}}, {'i', {1}}}, {{'n', {301}}}, "keepdims=0", NULL},
    {"a mean of all", EBB_OP_REDUCE_MEAN, {{'n', {5, 301}}}, {{'n', {1, 1}}}, "keepdims=1", NULL},
    {"a place of the largest", EBB_OP_ARG_MAX, {{'n', {5, 301}}}, {{'i', {5, 1}}}, "axis=1 keepdims=1", NULL},
    {"a matrix product", EBB_OP_MATMUL, {{'n', {3, 7, 65}}, {'n', {65, 5}}}, {{'n', {3, 7, 5}}}, NULL, NULL},
    {"a matrix product into float32", EBB_OP_MATMUL, {{'n', {7, 65}}, {'n', {65, 5}}}, {{'f', {7, 5}}}, NULL, NULL},
    {"a weight's gradient", EBB_OP_FUSED_MATMUL, {{'n', {65, 7}}, {'n', {65, 5}}}, {{'n', {7, 5}}}, "transA=1", NULL},
    {"a linear layer", EBB_OP_GEMM, {{'n', {3, 65}}, {'n', {5, 65}}, {'n', {5}}}, {{'n', {3, 5}}}, "transB=1", NULL},
    {"a convolution", EBB_OP_CONV, {{'n', {2, 3, 7, 5}}, {'n', {4, 3, 3, 3}}, {'n', {4}}}, {{'n', {2, 4, 7, 5}}}, CONV " group=1", NULL},
    {"a convolution's backward", EBB_OP_CONV_TRANSPOSE, {{'n', {2, 4, 7, 5}}, {'n', {4, 3, 3, 3}}}, {{'n', {2, 3, 7, 5}}}, CONV " group=1", NULL},
    {"a convolution's weight gradient", EBB_OP_CONV_WEIGHT_GRAD, {{'n', {2, 4, 7, 5}}, {'n', {2, 3, 7, 5}}}, {{'n', {4, 3, 3, 3}}}, CONV " group=1", NULL},
    {"a max pool", EBB_OP_MAX_POOL, {{'n', {2, 3, 8, 6}}}, {{'n', {2, 3, 4, 3}}}, POOL, NULL},
    {"a max pool's backward", EBB_OP_MAX_POOL_GRAD, {{'n', {2, 3, 4, 3}}, {'n', {2, 3, 8, 6}}}, {{'n', {2, 3, 8, 6}}}, POOL, NULL},
    {"an average pool", EBB_OP_AVERAGE_POOL, {{'n', {2, 3, 8, 6}}}, {{'n', {2, 3, 4, 3}}}, POOL, NULL},
    {"a mean over space", EBB_OP_GLOBAL_AVERAGE_POOL, {{'n', {2, 3, 8, 6}}}, {{'n', {2, 3, 1, 1}}}, NULL, NULL},
    {"batch norm with float32 beside it", EBB_OP_BATCH_NORM_TRAINING,
        {{'n', {5, 3, 7}}, {'f', {3}}, {'f', {3}}, {'f', {3}}, {'f', {3}}}, {{'n', {5, 3, 7}}, {'f', {3}}, {'f', {3}}}, NULL, "epsilon=0.00001 momentum=0.9"},
    {"batch norm's backward", EBB_OP_BATCH_NORM_GRAD,
        {{'n', {5, 3, 7}}, {'n', {5, 3, 7}}, {'f', {3}}, {'f', {3}}, {'f', {3}}}, {{'n', {5, 3, 7}}, {'f', {3}}, {'f', {3}}}, NULL, NULL},
    {"layer norm with float32 statistics", EBB_OP_LAYER_NORMALIZATION,
        {{'n', {5, 65}}, {'n', {65}}, {'n', {65}}}, {{'n', {5, 65}}, {'f', {5, 1}}, {'f', {5, 1}}}, "axis=-1", "epsilon=0.00001"},
    {"layer norm's backward", EBB_OP_LAYER_NORM_GRAD,
        {{'n', {5, 65}}, {'n', {5, 65}}, {'n', {65}}, {'f', {5, 1}}, {'f', {5, 1}}}, {{'n', {5, 65}}, {'n', {65}}, {'n', {65}}}, "axis=-1", NULL},
    {"RMS norm", EBB_OP_RMS_NORM, {{'n', {5, 65}}, {'f', {65}}}, {{'n', {5, 65}}, {'f', {5, 1}}}, "axis=-1", "epsilon=0.00001"},
    {"group norm", EBB_OP_GROUP_NORM, {{'n', {5, 6, 7}}, {'n', {6}}, {'n', {6}}}, {{'n', {5, 6, 7}}, {'f', {5, 3}}, {'f', {5, 3}}}, "num_groups=3", "epsilon=0.00001"},
    {"softmax", EBB_OP_SOFTMAX, {{'n', {5, 7, 65}}}, {{'n', {5, 7, 65}}}, "axis=-1", NULL},
    {"softmax of many rows", EBB_OP_SOFTMAX, {{'n', {2, 3, 50, 301}}}, {{'n', {2, 3, 50, 301}}}, "axis=-1", NULL},
    {"softmax along an axis in the midst", EBB_OP_SOFTMAX, {{'n', {31, 7, 900}}}, {{'n', {31, 7, 900}}}, "axis=1", NULL},
    {"softmax along the first axis", EBB_OP_SOFTMAX, {{'n', {31, 7, 900}}}, {{'n', {31, 7, 900}}}, "axis=0", NULL},
    {"log-softmax of one row", EBB_OP_LOG_SOFTMAX, {{'n', {1, 1, 20001}}}, {{'n', {1, 1, 20001}}}, "axis=-1", NULL},
    {"softmax's backward of many rows", EBB_OP_SOFTMAX_GRAD, {{'n', {3, 70, 129}}, {'n', {3, 70, 129}}}, {{'n', {3, 70, 129}}}, "axis=2", NULL},
    {"layer norm of many rows", EBB_OP_LAYER_NORMALIZATION,
        {{'n', {2, 70, 3, 65}}, {'n', {3, 65}}, {'n', {3, 65}}}, {{'n', {2, 70, 3, 65}}, {'f', {2, 70, 1, 1}}, {'f', {2, 70, 1, 1}}}, "axis=-2", "epsilon=0.00001"},
    {"RMS norm of many rows", EBB_OP_RMS_NORM, {{'n', {350, 65}}, {'f', {65}}}, {{'n', {350, 65}}, {'f', {350, 1}}}, "axis=-1", "epsilon=0.00001"},
    {"a sum with one row, batch 1", EBB_OP_ADD, {{'n', {1, 130, 300}}, {'n', {300}}}, {{'n', {1, 130, 300}}}, NULL, NULL},
    {"a sum that is repeated over an inner axis", EBB_OP_ADD,
        {{'n', {3, 5, 70, 64}}, {'n', {3, 1, 1, 64}}}, {{'n', {3, 5, 70, 64}}}, NULL, NULL},
    {"a difference, both repeated", EBB_OP_SUB,
        {{'n', {5, 1, 301}}, {'n', {3, 1, 70, 1}}}, {{'n', {3, 5, 70, 301}}}, NULL, NULL},
    {"a choice by a mask of the rows", EBB_OP_WHERE,
        {{'o', {2, 1, 70, 64}}, {'n', {2, 5, 70, 64}}, {'n', {1}}}, {{'n', {2, 5, 70, 64}}}, NULL, NULL},
    {"a product along a long axis", EBB_OP_MUL, {{'n', {2, 9001}}, {'f', {9001}}}, {{'n', {2, 9001}}}, NULL, NULL},
    {"softmax's backward", EBB_OP_SOFTMAX_GRAD, {{'n', {5, 65}}, {'n', {5, 65}}}, {{'n', {5, 65}}}, "axis=-1", NULL},
    {"cross entropy", EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, {{'n', {7, 5}}, {'i', {7}}}, {{'n', {1}}, {'n', {7, 5}}}, NULL, NULL},
    {"a turned matrix", EBB_OP_TRANSPOSE, {{'n', {5, 65}}}, {{'n', {65, 5}}}, "perm=1,0", NULL},
    {"chosen rows", EBB_OP_GATHER, {{'n', {5, 65}}, {'i', {3}}}, {{'n', {3, 65}}}, "axis=0", NULL},
    {"an LSTM", EBB_OP_LSTM, {{'n', {4, 3, 5}}, {'n', {1, 8, 5}}, {'n', {1, 8, 2}}, {'n', {1, 16}}}, {{'n', {4, 1, 3, 2}}, {'n', {1, 3, 2}}, {'n', {1, 3, 2}}}, "hidden_size=2", NULL},
    {"a GRU", EBB_OP_GRU, {{'n', {4, 3, 5}}, {'n', {1, 6, 5}}, {'n', {1, 6, 2}}, {'n', {1, 12}}}, {{'n', {4, 1, 3, 2}}, {'n', {1, 3, 2}}}, "hidden_size=2 linear_before_reset=1", NULL},
    {"an RNN", EBB_OP_RNN, {{'n', {4, 3, 5}}, {'n', {1, 2, 5}}, {'n', {1, 2, 2}}, {'n', {1, 4}}}, {{'n', {4, 1, 3, 2}}, {'n', {1, 3, 2}}}, "hidden_size=2", NULL},
    {"a dropout", EBB_OP_EBB_DROPOUT, {{'n', {300, 501}}, {'k', {2}}}, {{'n', {300, 501}}}, "stream=7", "ratio=0.3"},
    {"a dropout's backward from the key", EBB_OP_EBB_DROPOUT_SEED_GRAD, {{'n', {300, 501}}, {'k', {2}}}, {{'n', {300, 501}}}, "stream=7", "ratio=0.3"},
    {"a max pool of many images", EBB_OP_MAX_POOL, {{'n', {5, 7, 40, 30}}}, {{'n', {5, 7, 20, 15}}}, POOL, NULL},
    {"a max pool's indices", EBB_OP_MAX_POOL, {{'n', {5, 7, 40, 30}}}, {{'n', {5, 7, 20, 15}}, {'i', {5, 7, 20, 15}}}, POOL, NULL},
    {"a max pool's backward of many images", EBB_OP_MAX_POOL_GRAD, {{'n', {5, 7, 20, 15}}, {'n', {5, 7, 40, 30}}}, {{'n', {5, 7, 40, 30}}}, POOL, NULL},
    {"a max pool of windows that overlap", EBB_OP_MAX_POOL, {{'n', {5, 7, 19, 33}}}, {{'n', {5, 7, 10, 17}}}, OVERLAP, NULL},
    {"its backward", EBB_OP_MAX_POOL_GRAD, {{'n', {5, 7, 10, 17}}, {'n', {5, 7, 19, 33}}}, {{'n', {5, 7, 19, 33}}}, OVERLAP, NULL},
    {"a max pool, channels innermost", EBB_OP_MAX_POOL, {{'n', {3, 1, 19, 17, 37}}}, {{'n', {3, 1, 10, 9, 37}}}, LAST, NULL},
    {"its backward, channels innermost", EBB_OP_MAX_POOL_GRAD, {{'n', {3, 1, 10, 9, 37}}, {'n', {3, 1, 19, 17, 37}}}, {{'n', {3, 1, 19, 17, 37}}}, LAST, NULL},
    {"an average pool's backward of many images", EBB_OP_AVERAGE_POOL_GRAD, {{'n', {5, 7, 20, 15}}}, {{'n', {5, 7, 40, 30}}}, POOL, NULL},
    {"a sum over inner axes", EBB_OP_REDUCE_SUM, {{'n', {70, 3, 101}}, {'i', {1}}}, {{'n', {3, 101}}}, "keepdims=0", NULL},
    {"a largest along rows", EBB_OP_REDUCE_MAX, {{'n', {37, 1001}}}, {{'n', {1, 1}}}, "keepdims=1", NULL},
    {"a length of all", EBB_OP_REDUCE_L2, {{'n', {37, 101}}}, {{'n', {1, 1}}}, "keepdims=1", NULL},
    {"batch norm of many images", EBB_OP_BATCH_NORM_TRAINING,
        {{'n', {5, 37, 30, 7}}, {'f', {37}}, {'f', {37}}, {'f', {37}}, {'f', {37}}}, {{'n', {5, 37, 30, 7}}, {'f', {37}}, {'f', {37}}, {'f', {37}}}, NULL, "epsilon=0.00001 momentum=0.9"},
    {"batch norm, channels innermost", EBB_OP_BATCH_NORM_TRAINING,
        {{'n', {902, 57}}, {'f', {57}}, {'f', {57}}, {'f', {57}}, {'f', {57}}}, {{'n', {902, 57}}, {'f', {57}}, {'f', {57}}}, NULL, "epsilon=0.00001 momentum=0.9"},
    {"batch norm by running statistics", EBB_OP_BATCH_NORMALIZATION,
        {{'n', {5, 37, 210}}, {'f', {37}}, {'f', {37}}, {'f', {37}}, {'f', {37}}}, {{'n', {5, 37, 210}}}, NULL, "epsilon=0.00001 momentum=0.9"},
    {"batch norm with 16 bits beside it", EBB_OP_BATCH_NORMALIZATION,
        {{'n', {5, 3, 7}}, {'n', {3}}, {'n', {3}}, {'m', {3}}, {'m', {3}}}, {{'n', {5, 3, 7}}}, NULL, "epsilon=0.00001 momentum=0.9"},
    {"batch norm's backward of many images", EBB_OP_BATCH_NORM_GRAD,
        {{'n', {5, 37, 210}}, {'n', {5, 37, 210}}, {'f', {37}}, {'f', {37}}, {'f', {37}}}, {{'n', {5, 37, 210}}, {'f', {37}}, {'f', {37}}}, NULL, NULL},
    {"batch norm's backward, channels innermost", EBB_OP_BATCH_NORM_GRAD,
        {{'n', {902, 57}}, {'n', {902, 57}}, {'f', {57}}, {'f', {57}}, {'f', {57}}}, {{'n', {902, 57}}, {'f', {57}}, {'f', {57}}}, NULL, NULL},
    {"batch norm's backward from the output", EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT,
        {{'n', {5, 37, 210}}, {'n', {5, 37, 210}}, {'f', {37}}, {'f', {37}}, {'f', {37}}}, {{'n', {5, 37, 210}}, {'f', {37}}, {'f', {37}}}, NULL, "slope=0.01"},
    {"layer norm's backward of many rows", EBB_OP_LAYER_NORM_GRAD,
        {{'n', {2, 70, 3, 65}}, {'n', {2, 70, 3, 65}}, {'n', {65}}, {'f', {2, 70, 1, 1}}, {'f', {2, 70, 1, 1}}}, {{'n', {2, 70, 3, 65}}, {'n', {65}}, {'n', {65}}}, "axis=-2", NULL},
    {"layer norm's backward with a float32 scale", EBB_OP_LAYER_NORM_GRAD,
        {{'n', {170, 165}}, {'n', {170, 165}}, {'f', {165}}, {'f', {170, 1}}, {'f', {170, 1}}}, {{'n', {170, 165}}, {'f', {165}}, {'f', {165}}}, "axis=-1", NULL},
    {"layer norm's backward from the output", EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT,
        {{'n', {170, 165}}, {'n', {170, 165}}, {'m', {165}}, {'n', {165}}, {'f', {170, 1}}}, {{'n', {170, 165}}, {'n', {165}}, {'n', {165}}}, "axis=-1", NULL},
    {"RMS norm's backward", EBB_OP_RMS_NORM_GRAD,
        {{'n', {170, 165}}, {'n', {170, 165}}, {'n', {165}}, {'f', {170, 1}}}, {{'n', {170, 165}}, {'n', {165}}}, "axis=-1", NULL},
    {"RMS norm's backward from the output", EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT,
        {{'n', {170, 165}}, {'n', {170, 165}}, {'m', {165}}, {'f', {170, 1}}}, {{'n', {170, 165}}, {'n', {165}}}, "axis=-1", NULL},
    {"a dropout with a mask", EBB_OP_EBB_DROPOUT, {{'n', {300, 501}}, {'k', {2}}}, {{'n', {300, 501}}, {'o', {300, 501}}}, "stream=7", "ratio=0.3"},
    {"a dropout's backward from the mask", EBB_OP_DROPOUT_GRAD, {{'n', {300, 501}}, {'o', {300, 501}}}, {{'n', {300, 501}}}, NULL, NULL},
    {"attention", EBB_OP_EBB_ATTENTION, {{'n', {2, 3, 7, 5}}, {'n', {2, 3, 9, 5}}, {'n', {2, 3, 9, 5}}, {'o', {7, 9}}, {'n', {7, 9}}}, {{'n', {2, 3, 7, 5}}, {'f', {2, 3, 7, 1}}, {'f', {2, 3, 7, 1}}}, "k_perm=0,1,3,2", "scale=0.4"},
    {"a step of SGD with a gradient of 16 bits", EBB_OP_SGD, {{'f', {1}}, {'f', {5, 7}}, {'n', {5, 7}}}, {{'f', {5, 7}}}, NULL, "weight_decay=0.1"},
    {"signs", EBB_OP_PACK_SIGN, {{'n', {5, 7}}}, {{'b', {5}}}, NULL, NULL},
    {"signs applied", EBB_OP_MASK_GRAD, {{'n', {5, 7}}, {'b', {5}}}, {{'n', {5, 7}}}, NULL, NULL},
    {"signs of many", EBB_OP_PACK_SIGN, {{'n', {3, 1001}}}, {{'b', {376}}}, NULL, "low=0.25 high=2"},
    {"signs of many applied", EBB_OP_MASK_GRAD, {{'n', {3, 1001}}, {'b', {376}}}, {{'n', {3, 1001}}}, NULL, "scale=1.11 alpha=0.1"},
    {"codes", EBB_OP_QUANTIZE, {{'n', {6, 32}}, {'k', {2}}}, {{'b', {6, 16}}, {'r', {6, 1, 2}}}, "bits=4 group=32 stream=3", NULL},
    {"what codes stand for", EBB_OP_DEQUANTIZE, {{'b', {6, 16}}, {'r', {6, 1, 2}}}, {{'n', {6, 32}}}, "bits=4 group=32 shape=6,32", NULL},
};
// clang-format on

enum { SAMPLES = sizeof samples / sizeof samples[0] };

static void put_attributes(testing *t, const char *text, bool real)
{
    static char names[64][24]; // of all attributes of one sample
    static size_t used;
    for (const char *at = text; at != NULL && *at != '\0';) {
        char *name = names[used++ % 64];
        int64_t list[8];
        uint32_t count = 0;
        size_t length = strcspn(at, "=");
        assert_true(length < 24);
        memcpy(name, at, length);
        name[length] = '\0';
        char *end;
        at += length + 1;
        if (real) {
            put_float(t, name, strtod(at, &end));
        } else {
            for (end = NULL; end == NULL || *end == ','; at = *end == ',' ? end + 1 : end)
                list[count++] = strtoll(at, &end, 10);
            if (count > 1 || strcmp(name, "perm") == 0)
                put_ints(t, name, count, list);
            else
                put_int(t, name, list[0]);
        }
        at = *end == ' ' ? end + 1 : end;
    }
}

static ebb_dtype dtype_of(char kind, ebb_dtype narrow)
{
    return kind == 'n' || kind == 'm'   ? narrow
           : kind == 'f'                ? EBB_F32
           : kind == 'r'                ? EBB_BF16
           : kind == 'b'                ? EBB_U8
           : kind == 'o'                ? EBB_BOOL
           : kind == 'i' || kind == 'k' ? EBB_I64
                                        : EBB_NONE;
}

static void fill(testing *t, ebb_operand *o, char kind, const format *f)
{
    for (size_t i = 0; i < count_of(o); i++) {
        double x = draw(t);
        if (kind == 'b')
            ((uint8_t *)o->data)[i] = (uint8_t)(127 * x + 128);
        else if (kind == 'o')
            ((uint8_t *)o->data)[i] = x > 0;
        else if (kind == 'i')
            ((int64_t *)o->data)[i] = o->type.dims[0] == 1 ? 0 : (int64_t)(fabs(x) * 5);
        else if (kind == 'k')
            ((int64_t *)o->data)[i] = (int64_t)(fabs(x) * 1000);
        else if (kind == 'f')
            ((float *)o->data)[i] = (float)(fabs(x) + 0.125);
        else {
            x = round_to(kind == 'm' ? fabs(x) + 0.5 : 3 * x, f);
            if (o->type.dtype == EBB_F32)
                ((float *)o->data)[i] = (float)x;
            else if (o->type.dtype == EBB_F16)
                ((uint16_t *)o->data)[i] = ebb_float_to_half((float)x);
            else
                ((uint16_t *)o->data)[i] = ebb_float_to_bf16((float)x);
        }
    }
}

static int rank_of(const shape *s)
{
    int rank = 0;
    while (rank < 5 && s->dims[rank] != 0)
        rank++;
    return rank;
}

static ebb_operand *put(ebb_operand *o, const shape *s, ebb_dtype narrow)
{
    int64_t dims[5];
    for (int d = 0; d < 5; d++)
        dims[d] = s->dims[d] < 0 ? 0 : s->dims[d];
    make_operand(o, dtype_of(s->kind, narrow), rank_of(s), dims);
    return o;
}

static void make(testing *t, const sample *s, const format *f, ebb_dtype narrow)
{
    begin(t, s->op);
    t->call.version = s->op == EBB_OP_CLIP || s->op == EBB_OP_REDUCE_SUM ? 18 : 22;
    put_attributes(t, s->ints, false);
    put_attributes(t, s->floats, true);
    for (int i = 0; i < 9 && s->in[i].kind != 0; i++) {
        if (s->in[i].kind == '-') {
            put_absent(t);
            continue;
        }
        fill(t, put(&t->in[t->call.input_count++], &s->in[i], narrow), s->in[i].kind, f);
    }
    for (int i = 0; i < 4 && s->out[i].kind != 0; i++)
        put(&t->out[t->call.output_count++], &s->out[i], narrow);
}

static void pick(testing *t, const char *backend, const char *what)
{
    const ebb_backend *const *backends;
    check_status(ebb_backends(backend, &backends), what);
    check_status(ebb_pick(&t->call, backends), what);
}

static void compute(testing *t, const char *backend, const char *what)
{
    pick(t, backend, what);
    compute_picked(t, what);
}

static bool rounds_within(ebb_op op)
{
    return op == EBB_OP_EBB_ATTENTION || op == EBB_OP_LSTM || op == EBB_OP_GRU || op == EBB_OP_RNN;
}

static void compare(const sample *s, const format *f, const char *backend)
{
    TESTING(wide);
    TESTING(narrow);
    make(&wide, s, f, EBB_F32);
    make(&narrow, s, f, f->dtype);
    compute(&wide, backend, s->what);
    compute(&narrow, backend, s->what);
    for (uint32_t k = 0; k < wide.call.output_count; k++) {
        const ebb_operand *a = &wide.out[k], *b = &narrow.out[k];
        // in another order of the sum where oneDNN or tiles multiply 16 bits
        const bool summed = (strncmp(narrow.call.kernel->name, "dnnl.", 5) == 0 &&
                             s->op != EBB_OP_EBB_ATTENTION) || // which reads 16 bits as float32
                            strncmp(narrow.call.kernel->name, "tiles.", 6) == 0;
        // but may round P for its product with V, or h for that with R: test_attention.c and
        // test_recurrent.c know more
        const bool rounds = rounds_within(s->op) && f->dtype == EBB_BF16;
        if (a->type.dtype == b->type.dtype && (summed || rounds)) {
            double *expected = values_of(a);
            check_close(b, expected, 1e-5, s->what);
            free(expected);
            continue;
        }
        if (a->type.dtype == b->type.dtype) {
            if (memcmp(a->data, b->data, a->bytes) != 0)
                fail_msg("%s (%s): output %u is not that of float32", s->what, backend,
                         (unsigned)k);
            continue;
        }
        for (size_t i = 0; i < count_of(a); i++) {
            double expected = round_to((double)((const float *)a->data)[i], f);
            double got = number_of(((const uint16_t *)b->data)[i], f);
            if (rounds && fabs(got - expected) <= 0x1p-7 * (1 + fabs(expected)))
                continue;
            if (summed && fabs(got - expected) <= 0x1p-7 * fabs(expected) + 1e-5)
                continue;
            if (got != expected && !(isnan(got) && isnan(expected)))
                fail_msg("%s (%s, %s): output %u[%zu] is %.9g, expected %.9g", s->what, backend,
                         ebb_dtype_name(f->dtype), (unsigned)k, i, got, expected);
        }
    }
}

TEST(operators_in_16_bits_are_those_of_float32_rounded)
{
    for (size_t i = 0; i < SAMPLES; i++)
        for (size_t k = 0; k < 2; k++) {
            compare(&samples[i], &formats[k], "plain");
            compare(&samples[i], &formats[k], "cpu");
        }
}

/* ---- every kernel ---- */

/* Those of the faster back end that multiply float32 alone. A kernel that stands neither here nor in a
 * comparison has none. */
static const char *const of_float32_alone[] = {
    "rows.average_pool", "rows.average_pool_grad", "rows.conv", "rows.conv_transpose",
    "rows.conv_weight_grad", "dnnl.max_pool", "tiles.conv", "tiles.conv_transpose",
    "tiles.conv_weight_grad",
    // rows of a table of formulas that have none of one float
    "halves.pow", "halves.where", "halves.and", "halves.or", "halves.xor", "halves.bit_and",
    "halves.bit_or", "halves.bit_xor", "halves.bit_shift", "halves.not", "halves.bit_not"};

static bool is_of_float32_alone(const char *name)
{
    for (size_t i = 0; i < sizeof of_float32_alone / sizeof of_float32_alone[0]; i++)
        if (strcmp(of_float32_alone[i], name) == 0)
            return true;
    return false;
}

/* A sum in another order, and where `rounds` a rounding within, beside one rounding at the end. */
static void check_near(const ebb_operand *got, const ebb_operand *wide, const format *f,
                       bool rounds, const char *kernel, const char *what)
{
    for (size_t i = 0; i < count_of(wide); i++) {
        const bool bytes = got->type.dtype == EBB_BOOL || got->type.dtype == EBB_U8;
        const double expected = bytes ? ((const uint8_t *)wide->data)[i] : value_of(wide, i);
        const double x = bytes ? ((const uint8_t *)got->data)[i] : value_of(got, i);
        const double rounded = round_to(expected, f);
        if (isnan(rounded) ? isnan(x) : x == rounded)
            continue;
        if (bytes || !(fabs(x - expected) <= ldexp(rounds + fabs(expected), 1 - f->digits) + 1e-5))
            fail_msg("%s, %s (%s): element %zu is %.9g, plain gives %.9g", kernel, what,
                     ebb_dtype_name(f->dtype), i, x, expected);
    }
}

/* By this kernel in 16 bits and by plain in float32. False: it declines. */
static bool is_compared(const ebb_kernel *kernel, const sample *s, const format *f)
{
    const ebb_backend *const *cpu;
    TESTING(narrow);
    testing wide;
    check_status(ebb_backends("cpu", &cpu), "cpu");
    make(&narrow, s, f, f->dtype);
    narrow.call.backends = cpu;
    narrow.call.kernel = kernel;
    const bool takes = ebb_kernel_declines(kernel, &narrow.call) == NULL;
    if (takes) {
        make(&wide, s, f, EBB_F32);
        compute(&wide, "plain", s->what);
        compute_picked(&narrow, kernel->name);
        for (uint32_t k = 0; k < wide.call.output_count; k++)
            check_near(&narrow.out[k], &wide.out[k], f, rounds_within(s->op), kernel->name,
                       s->what);
        end(&wide);
    }
    return takes;
}

static bool is_compared_in_any(const ebb_kernel *kernel, const sample *s)
{
    bool compared = false;
    for (size_t w = 0; w < sizeof formats / sizeof formats[0]; w++)
        compared |= is_compared(kernel, s, &formats[w]);
    return compared;
}

/* An operator that works element by element needs no sample written for it. */
static bool is_compared_by_elements(const ebb_kernel *kernel)
{
    static const char results[] = {'n', 'o'};
    const uint32_t count = ebb_op_arity(kernel->op).required;
    bool compared = false;
    for (size_t r = 0; ebb_op_has(kernel->op, EBB_POINTWISE) && r < sizeof results; r++) {
        sample s = {.what = ebb_op_row_of(kernel->op)->name, .op = kernel->op};
        for (uint32_t i = 0; i < count || i == 0; i++)
            s.in[i] = (shape){'n', {3, 5, 37}};
        s.out[0] = (shape){results[r], {3, 5, 37}};
        s.ints = kernel->op == EBB_OP_MOD ? "fmod=1" : NULL;
        compared |= is_compared_in_any(kernel, &s);
    }
    return compared;
}

static void check_kernel(const ebb_kernel *kernel, bool multiplies)
{
    bool compared = is_compared_by_elements(kernel);
    for (size_t i = 0; i < SAMPLES; i++)
        if (samples[i].op == kernel->op)
            compared |= is_compared_in_any(kernel, &samples[i]);
    if (compared && is_of_float32_alone(kernel->name))
        fail_msg("%s takes 16 bits, and stands among those that do not", kernel->name);
    // test_bodies_half.c has the others
    const bool here = ebb_op_body(kernel->op) == NULL || ebb_op_has(kernel->op, EBB_POINTWISE);
    if (here && !compared && !is_of_float32_alone(kernel->name) && multiplies)
        fail_msg("%s: no sample in 16 bits that it takes", kernel->name);
}

/* Where the processor has the instructions, each is asked for; elsewhere what there is. */
TEST(each_faster_kernel_agrees_with_plain)
{
    TESTING(t);
    make(&t,
         &(sample){"a product",
                   EBB_OP_MATMUL,
                   {{'n', {3, 5}}, {'n', {5, 4}}},
                   {{'n', {3, 4}}},
                   NULL,
                   NULL},
         &formats[1], EBB_BF16);
    pick(&t, "cpu", "a product");
    const bool multiplies = strncmp(t.call.kernel->name, "dnnl.", 5) == 0;
    const ebb_family *f = t.call.backends[0]->families;
    for (; f->kernels != NULL; f++)
        for (size_t k = 0; k < *f->count; k++)
            check_kernel(&f->kernels[k], multiplies);
}

/* ---- shapes that nobody thought of ---- */

static int64_t one_of(testing *t, int64_t count)
{
    return (int64_t)((draw(t) + 1) / 2 * (double)count) % count;
}

/* Up to five axes, of few or many elements, at times of none. */
static void draw_shape(testing *t, shape *s)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 17, 70, 300, 5000};
    const int64_t rank = one_of(t, 6);
    int64_t count = 1;
    *s = (shape){.kind = 'n'};
    for (int64_t d = 0; d < rank; d++) {
        const int64_t size = sizes[one_of(t, 8)];
        s->dims[d] = one_of(t, 60) == 0 ? -1 : count * size <= 40000 ? size : 2;
        count *= s->dims[d];
    }
}

/* An operand that is repeated over the result: along some axes, and over those that it has not. */
static shape draw_repeated(testing *t, const shape *result)
{
    shape s = {.kind = 'n'};
    const int rank = rank_of(result);
    const int64_t left = one_of(t, rank + 1);
    for (int64_t d = left; d < rank; d++)
        s.dims[d - left] = one_of(t, 3) == 0 ? 1 : result->dims[d];
    return s;
}

static void draw_sample(testing *t, sample *s)
{
    static const struct {
        ebb_op op;
        int repeated, full; /* inputs of each kind, in this order */
    } kinds[] = {{EBB_OP_SUB, 1, 1},    {EBB_OP_WHERE, 2, 1}, {EBB_OP_SUM, 2, 1},
                 {EBB_OP_PRELU, 0, 1},  {EBB_OP_RELU, 0, 1},  {EBB_OP_GELU_GRAD, 0, 2},
                 {EBB_OP_SOFTMAX, 0, 1}};
    const int64_t k = one_of(t, sizeof kinds / sizeof kinds[0]);
    int n = 0;
    *s = (sample){.what = ebb_op_row_of(kinds[k].op)->name, .op = kinds[k].op};
    draw_shape(t, &s->out[0]);
    if (s->op == EBB_OP_SOFTMAX && rank_of(&s->out[0]) == 0)
        s->op = EBB_OP_RELU;
    for (int i = 0; i < kinds[k].repeated; i++)
        s->in[n++] = draw_repeated(t, &s->out[0]);
    for (int i = 0; i < kinds[k].full; i++)
        s->in[n++] = s->out[0];
    if (s->op == EBB_OP_WHERE)
        s->in[0].kind = 'o';
    if (s->op == EBB_OP_PRELU) // slopes are repeated over x alone
        s->in[n] = draw_repeated(t, &s->out[0]);
    if (s->op == EBB_OP_SOFTMAX && one_of(t, 2) == 0)
        s->ints = "axis=0";
}

TEST(operands_of_any_rank_and_size_are_cut_as_they_are)
{
    testing t;
    begin(&t, EBB_OP_ADD);
    for (int i = 0; i < 400; i++) {
        sample s;
        draw_sample(&t, &s);
        compare(&s, &formats[i % 2], i % 3 == 0 ? "plain" : "cpu");
    }
}

TEST(a_sum_piece_by_piece_takes_little_workspace)
{
    const int64_t dims[] = {1000, 1000};
    TESTING(t);
    size_t bytes = 0;
    begin(&t, EBB_OP_ADD);
    put_out(&t, EBB_BF16, 2, dims);
    for (int i = 0; i < 2; i++) {
        ebb_operand *o = &t.in[t.call.input_count++];
        make_operand(o, EBB_BF16, 2, dims);
    }
    pick(&t, "plain", "Add");
    check_status(t.call.kernel->workspace(&t.call, &bytes), "Add");
    assert_true(bytes > 0 && bytes <= 1000 * 1000);
}

/* A file may say so; it has no place in any piece. */
TEST(a_bound_of_no_elements_is_refused)
{
    const ebb_backend *const *backends;
    TESTING(t);
    begin(&t, EBB_OP_CLIP);
    t.call.version = 13;
    make_operand(&t.in[t.call.input_count++], EBB_BF16, 2, DIMS(8, 16));
    make_operand(&t.in[t.call.input_count++], EBB_BF16, 1, DIMS(0));
    put_out(&t, EBB_BF16, 2, DIMS(8, 16));
    check_status(ebb_backends("cpu", &backends), "cpu");
    ebb_status status = ebb_pick(&t.call, backends);
    if (status == NULL) {
        assert_null(t.call.kernel->workspace);
        status = t.call.kernel->run(&t.call);
    }
    assert_non_null(status);
}

TEST(what_no_kernel_takes_in_float32_is_refused_by_name)
{
    TESTING(t);
    begin(&t, EBB_OP_ADD);
    ebb_operand *a = &t.in[t.call.input_count++], *b = &t.in[t.call.input_count++];
    make_operand(a, EBB_BF16, 1, DIMS(3));
    make_operand(b, EBB_F64, 1, DIMS(3));
    put_out(&t, EBB_BF16, 1, DIMS(3));
    const ebb_backend *const *backends;
    check_status(ebb_backends("cpu", &backends), "cpu");
    refused(ebb_pick(&t.call, backends), EBB_UNSUPPORTED, "the test's node");
}
