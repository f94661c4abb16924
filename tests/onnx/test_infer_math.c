/* test_infer_math.c: output types of arithmetic, reductions, products, norms, losses, optimizers;
 * and what is said about wrong ones.
 *
 * A row is written as a signature: input types, attributes, then the outputs' types as
 * ebb_type_print writes them, or, after a "!", a part of the error. */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "onnx/ops/ops.h"
#include "tests/owned.h"
#include "tests/test.h"

/* Inputs, space-separated: DTYPE[dims], "?" an unknown dim; DTYPE alone: unknown rank; "-" absent;
 * int64{1,2}: a constant. */
typedef struct infer_case {
    ebb_op op;
    const char *inputs, *attrs, *expect;
} infer_case;

// clang-format off
static const infer_case cases[] = {
    {EBB_OP_ADD, "float32[2,3] float32[3]", "", "float32[2,3]"},
    {EBB_OP_ADD, "float32[2,1,3] float32[4,1]", "", "float32[2,4,3]"},
    {EBB_OP_ADD, "float32[?,3] float32[3]", "", "float32[?,3]"},
    {EBB_OP_ADD, "float32[?,3] float32[5,1]", "", "float32[5,3]"},
    {EBB_OP_ADD, "float32[?,3] float32[?,3]", "", "float32[?,3]"},
    {EBB_OP_ADD, "float32[?] float32[1]", "", "float32[?]"},
    {EBB_OP_ADD, "float32 float32[3]", "", "float32"},
    {EBB_OP_ADD, "float32[] float32[]", "", "float32[]"},
    {EBB_OP_ADD, "float32[0,3] float32[1,3]", "", "float32[0,3]"},
    {EBB_OP_ADD, "float32[2,3] float32[4]", "", "!input 1 is float32[4] and cannot be broadcast together with [2,3] (4 against 3)"},
    {EBB_OP_ADD, "float32[2] int64[2]", "", "!input 0 is float32, input 1 is int64"},
    {EBB_OP_ADD, "float32[2] -", "", "!input 1 is required and absent"},
    {EBB_OP_POW, "float32[2] int64[]", "", "float32[2]"},
    {EBB_OP_MAX, "float32[2] float32[3,1] float32[]", "", "float32[3,2]"},
    {EBB_OP_GREATER, "float32[2] float32[3,1]", "", "bool[3,2]"},
    {EBB_OP_IS_NAN, "float32[2,?]", "", "bool[2,?]"},
    {EBB_OP_WHERE, "bool[2,1] float32[] float32[3]", "", "float32[2,3]"},
    {EBB_OP_WHERE, "float32[2] float32[] float32[3]", "", "!the condition is float32, not bool"},
    {EBB_OP_CAST, "float32[2,?]", "to=7", "int64[2,?]"},
    {EBB_OP_CAST, "float32[2]", "", "!attribute 'to' is 0"},
    {EBB_OP_CAST_LIKE, "float32[2] float64[5]", "", "float64[2]"},

    {EBB_OP_REDUCE_SUM, "float32[2,3,4] int64{1}", "", "float32[2,1,4]"},
    {EBB_OP_REDUCE_SUM, "float32[2,3,4] int64{-1,0}", "keepdims=0", "float32[3]"},
    {EBB_OP_REDUCE_SUM, "float32[2,3,4]", "keepdims=0", "float32[]"},
    {EBB_OP_REDUCE_SUM, "float32[2,?]", "noop_with_empty_axes=1", "float32[2,?]"},
    {EBB_OP_REDUCE_SUM, "float32[2,3,4] int64[1]", "keepdims=0", "float32[?,?]"},
    {EBB_OP_REDUCE_SUM, "float32[2,3,4] int64[2]", "", "float32[?,?,?]"},
    {EBB_OP_REDUCE_MEAN, "float32[2,3,4]", "axes=[1,2]", "float32[2,1,1]"},
    {EBB_OP_REDUCE_MEAN, "float32[2,3]", "axes=[2]", "!axis 2 lies outside of rank 2"},
    {EBB_OP_REDUCE_MEAN, "float32[2,3]", "axes=[1,-1]", "!axis 1 is named twice"},
    {EBB_OP_ARG_MAX, "float32[2,3]", "axis=1 keepdims=0", "int64[2]"},

    {EBB_OP_MATMUL, "float32[2,3] float32[3,4]", "", "float32[2,4]"},
    {EBB_OP_MATMUL, "float32[3] float32[3,4]", "", "float32[4]"},
    {EBB_OP_MATMUL, "float32[5,2,3] float32[3]", "", "float32[5,2]"},
    {EBB_OP_MATMUL, "float32[3] float32[3]", "", "float32[]"},
    {EBB_OP_MATMUL, "float32[?,1,2,3] float32[5,3,4]", "", "float32[?,5,2,4]"},
    {EBB_OP_MATMUL, "float32[2,3] float32[4,3]", "", "!input 0 has 3 columns, input 1 has 4 rows"},
    {EBB_OP_FUSED_MATMUL, "float32[5,3,2] float32[4,3]", "transA=1 transB=1", "float32[5,2,4]"},
    {EBB_OP_GEMM, "float32[3,2] float32[4,3] float32[4]", "transA=1 transB=1", "float32[2,4]"},
    {EBB_OP_GEMM, "float32[?,3] float32[3,4]", "", "float32[?,4]"},
    {EBB_OP_GEMM, "float32[2,3] float32[3,4] float32[3]", "", "!input 2 is float32[3] and cannot be broadcast"},
    {EBB_OP_GEMM, "float32[1,3] float32[3,4] float32[2,4]", "", "!input 2 does not broadcast to the product's shape"},
    {EBB_OP_GEMM, "float32[1,2,3] float32[3,4]", "", "!input 0 has rank 3, not 2"},

    {EBB_OP_CONV_RELU, "float32[?,3,9,8] float32[5,3,3,3] float32[5]", "strides=[2,1]", "float32[?,5,4,6] uint8[?]"},
    {EBB_OP_CONV_RELU, "float32[2,3,9,8] float32[5,3,3,3] float32[4]", "", "!the bias has 4 elements, the output 5 channels"},
    {EBB_OP_CONV_RELU_NHWC, "float16[1,3,3,4] float16[6,3,3,2]", "group=2", "float16[1,1,1,6] uint8[1]"},
    {EBB_OP_CONV_ADD_RELU_NHWC, "bfloat16[2,4,4,8] bfloat16[8,1,1,8] - bfloat16[2,4,4,8]", "", "bfloat16[2,4,4,8] uint8[32]"},
    {EBB_OP_CONV_ADD_RELU_NHWC, "float32[2,4,4,8] float32[8,1,1,8] float32[8] float32[2,4,1,8]", "", "!dim 2 of what is added is 1, and 4 of the convolution"},
    {EBB_OP_CONV_ADD_RELU_NHWC, "float32[2,4,4,8] float32[8,1,1,8] float32[8] float32[8]", "", "!what is added has rank 1, and the convolution 4"},
    {EBB_OP_CONV_ADD_RELU_NHWC, "float32[2,4,4,8] float32[8,1,1,8] float32[8]", "", "!input 3, what is added, is missing"},
    {EBB_OP_BATCH_NORMALIZATION, "float32[?,3,8,8] float32[3] float32[3] float32[3] float32[3]", "training_mode=1", "float32[?,3,8,8] float32[3] float32[3]"},
    {EBB_OP_BATCH_NORMALIZATION, "float32[2,3,8] float32[3] float32[4] float32[3] float32[3]", "", "!the input has 3 channels, input 2 has 4 elements"},
    {EBB_OP_BATCH_NORM_TRAINING, "float32[2,3] float32[3] float32[3] float32[3] float32[3]", "", "float32[2,3] float32[3] float32[3] float32[3] float32[3]"},
    {EBB_OP_BATCH_NORM_GRAD, "float32[2,3] float32[2,3] float32[3] float32[3] float32[3]", "", "float32[2,3] float32[3] float32[3]"},
    {EBB_OP_BATCH_NORM_RELU, "float16[5,3] float32[3] float32[3] float32[3] float32[3]", "", "float16[5,3] float32[3] float32[3] float32[3] float32[3] uint8[2]"},
    {EBB_OP_BATCH_NORM_ADD_RELU, "float32[?,8] float32[8] float32[8] float32[8] float32[8] float32[?,8]", "", "float32[?,8] float32[8] float32[8] float32[8] float32[8] uint8[?]"},
    {EBB_OP_BATCH_NORM_ADD_RELU, "float32[2,8] float32[8] float32[8] float32[8] float32[8] float32[2,1]", "", "!input 0 is float32[2,8], input 5 is float32[2,1]; their shapes must agree"},
    {EBB_OP_BATCH_NORM_RELU_GRAD, "float32[2,8] float32[2,8] float32[8] float32[8] float32[8] uint8[2]", "", "float32[2,8] float32[8] float32[8] float32[2,8]"},
    {EBB_OP_BATCH_NORM_RELU_GRAD, "float32[2,8] float32[2,8] float32[8] float32[8] float32[8] uint8[3]", "", "!its bits are not one for each element of the input"},
    {EBB_OP_LAYER_NORMALIZATION, "float16[2,?,4] float16[4]", "", "float16[2,?,4] float32[2,?,1] float32[2,?,1]"},
    {EBB_OP_LAYER_NORMALIZATION, "float32[2,3,4] float32[3,4]", "axis=1", "float32[2,3,4] float32[2,1,1] float32[2,1,1]"},
    {EBB_OP_LAYER_NORMALIZATION, "float32[2,3,4] float32[5]", "", "!input 1 is float32[5] and does not broadcast to the input, float32[2,3,4]"},
    {EBB_OP_RMS_NORM, "float32[2,3,4] float32[4]", "", "float32[2,3,4] float32[2,3,1]"},
    {EBB_OP_RMS_NORM_GRAD, "float32[2,4] float32[2,4] float32[4] float32[2,1]", "", "float32[2,4] float32[4]"},
    {EBB_OP_INSTANCE_NORMALIZATION, "float32[2,3,8] float32[3] float32[3]", "", "float32[2,3,8]"},
    {EBB_OP_INSTANCE_NORMALIZATION, "float32[2,3,8] float32[3] float32[2]", "", "!the input has 3 channels, input 2 has 2 elements"},
    {EBB_OP_GROUP_NORM, "float32[?,6,8] float32[6] float32[6]", "num_groups=3", "float32[?,6,8] float32[?,3] float32[?,3]"},
    {EBB_OP_GROUP_NORM, "float32[2,6,8] float32[3] float32[3]", "num_groups=3", "float32[2,6,8] float32[2,3] float32[2,3]"},
    {EBB_OP_GROUP_NORM, "float32[2,6,8] float32[2] float32[2]", "num_groups=3", "!6 channels in 3 groups do not go with input 1 of 2 elements"},
    {EBB_OP_GROUP_NORM, "float32[2,6,8] float32[6] float32[6]", "num_groups=4", "!6 channels cannot be parted into 4 groups"},
    {EBB_OP_GROUP_NORM, "float32[2,6,8] float32[6] float32[6]", "", "!num_groups is 0, at least 1 is expected"},
    {EBB_OP_GROUP_NORM_GRAD, "float32[2,6,4] float32[2,6,4] float32[3] float32[2,3] float32[2,3]", "", "float32[2,6,4] float32[3] float32[3]"},
    {EBB_OP_GROUP_NORM_GRAD, "float32[2,6,4] float32[2,6,4] float32[6] float32[2,4] float32[2,4]", "", "!2 images of 6 channels do not go with 6 scales and deviations for 2 images of 4 groups"},
    {EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT, "float32[2,6,4] float32[2,6,4] float32[6] float32[6] float32[2,3]", "slope=0.5", "float32[2,6,4] float32[6] float32[6]"},
    {EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT, "float32[2,6,4] float32[2,6,4] float32[6] float32[6] float32[2,3]", "slope=0.0", "!its slope is 0, which no output can be traced back through"},
    {EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, "float32[2,3] float32[2,3] float32[3] float32[3] float32[3]", "elu=1.0", "float32[2,3] float32[3] float32[3]"},
    {EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, "float32[2,3] float32[2,3] float32[3] float32[3] float32[3]", "slope=-1.0", "!its slope is -1, which no output can be traced back through"},
    {EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT, "float32[2,3,4] float32[2,3,4] float32[4] float32[4] float32[2,3,1]", "", "float32[2,3,4] float32[4] float32[4]"},
    {EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT, "float32[2,4] float32[2,4] float32[4] float32[2,1]", "", "float32[2,4] float32[4]"},

    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "float32[?,10] int64[?]", "", "float32[] float32[?,10]"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "float32[2,10,5] int64[2,5]", "reduction=none", "float32[2,5] float32[2,10,5]"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "float32[2,10] int64[2,10]", "", "!scores have rank 2, so labels need rank 1 and have 2"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "float32[2,10] int64[3]", "", "!dim 0 of the labels is 3, that of the scores 2"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "float32[2,10] float32[2]", "", "!labels are float32"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "float32[2,10] int64[2] float32[9]", "", "!one for each of the 10 classes"},
    {EBB_OP_SCORES_CROSS_ENTROPY, "float32[] bfloat16[?,10] int64[?]", "", "float32[] bfloat16[?,10]"},
    {EBB_OP_SCORES_CROSS_ENTROPY, "float32[2,5] float16[2,10,5] int64[2,5] float32[10]", "reduction=none", "float32[2,5] float16[2,10,5]"},
    {EBB_OP_SCORES_CROSS_ENTROPY, "float32[] bfloat16[2,10] int64[3]", "", "!dim 0 of the labels is 3, that of the scores 2"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, "float32[2,5,8] float32[8,10] - int64[2,5]", "", "float32[] float32[2,5,8] float32[8,10] float32[10]"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, "float32[?,8] float32[10,8] float32[10] int32[?] float32[10]", "transB=1", "float32[] float32[?,8] float32[10,8] float32[10]"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, "float32[4,8] float32[10,8] - int64[4]", "", "!input 0 has 8 columns, input 1 has 10 rows"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, "float32[4,8] float32[8,10] - int64[5]", "", "!there are 5 labels for 4 rows"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, "float32[4,8] float32[8,10] float32[8] int64[4]", "", "!input 0 has 10 classes, input 2 has 8 elements"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, "float32[4,8] float32[8,10]", "", "!it has no target"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, "float32[4,8] float32[8,10] - int64[4]", "reduction=none", "!reduction 'none'"},
    {EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS, "float32[2,10] int64[2]", "reduction=max", "!reduction 'max' is not none, mean or sum"},

    {EBB_OP_DROPOUT, "float32[2,?] float32[] bool[]", "", "float32[2,?] bool[2,?]"},
    {EBB_OP_EBB_DROPOUT, "float32[2] int64[2]", "ratio=0.5", "float32[2] bool[2]"},
    {EBB_OP_EBB_DROPOUT, "float32[2] int64[3]", "ratio=0.5", "!the key is not int64[2]"},
    {EBB_OP_EBB_DROPOUT, "float32[2] int64[2]", "ratio=1.0", "!ratio is missing or outside of [0, 1)"},
    {EBB_OP_CLIP, "float32[2,3] float32[] float32[1]", "", "float32[2,3]"},
    {EBB_OP_CLIP, "float32[2,3] - float32[1,3]", "", "!max is no scalar: Max and Min take bounds of several numbers"},
    {EBB_OP_RANDOM_NORMAL, "", "shape=[2,3]", "float32[2,3]"},
    {EBB_OP_RANDOM_NORMAL, "", "", "!attribute 'shape' is missing"},
    {EBB_OP_RANDOM_UNIFORM_LIKE, "float64[2,?]", "dtype=1", "float32[2,?]"},
    {EBB_OP_SGD, "float32[] float32[2,3] float32[2,3]", "", "float32[2,3]"},
    {EBB_OP_SGD, "float32[] float32[2,3] float32[3,2]", "", "!input 1 is float32[2,3], input 2 is float32[3,2]"},
    {EBB_OP_MOMENTUM, "float32[] int64[] float32[2] float32[2] float32[2]", "", "float32[2] float32[2]"},
    {EBB_OP_MOMENTUM, "float32[] int64[] float32[2] float32[2]", "", "!4 inputs are not R, T and groups"},
    {EBB_OP_ADAMW, "float32[] int64[] float32[2] float32[2] float32[2] float32[2]", "", "float32[2] float32[2] float32[2]"},
    {EBB_OP_ADAMW, "float32[4] int64[] float32[2] float32[2] float32[2] float32[2]", "", "!the learning rate is not a scalar"},
    {EBB_OP_MOMENTUM_LOW_BIT, "float32[] int64[] float32[3,11] float32[3,11] uint8[17] float32[2] float32[16]", "bits=4 block=32", "float32[3,11] uint8[17] float32[2]"},
    {EBB_OP_MOMENTUM_LOW_BIT, "float32[] int64[] float32[3,11] float32[3,11] uint8[16] float32[2] float32[16]", "bits=4 block=32", "!input 4, the codes, has 16 elements; 17 are expected"},
    {EBB_OP_MOMENTUM_LOW_BIT, "float32[] int64[] float32[3,11] float32[3,11] uint8[33] float32[2] float32[16]", "bits=8 block=32", "!input 6, the map, has 16 elements; 256 are expected"},
    {EBB_OP_MOMENTUM_LOW_BIT, "float32[] int64[] float32[3,11] float32[3,11] uint8[33] float32[2] float32[256]", "bits=3 block=32", "!bits is 3; 4 or 8 is expected"},
    {EBB_OP_MOMENTUM_LOW_BIT, "float32[] int64[] float32[3,11] float32[3,11] uint8[33] float32[2] float32[256]", "bits=8 block=8192", "!block is 8192; a multiple of 32 up to 4096 is expected"},
    {EBB_OP_MOMENTUM_LOW_BIT_STOCHASTIC, "float32[] int64[] float32[33] float32[33] uint8[33] float32[2] float32[256] int64[3]", "bits=8 block=32", "!input 7, the key, has 3 elements; 2 are expected"},
    {EBB_OP_ADAMW_LOW_BIT, "float64[] int64[] float64[?] float64[?] uint8[?] float64[?] uint8[?] float64[?] float64[256] float64[256]", "bits=8 block=256", "float64[?] uint8[?] float64[?] uint8[?] float64[?]"},
    {EBB_OP_ADAMW_LOW_BIT, "float32[] int64[] float32[9] float32[9] float32[9] float32[1] uint8[9] float32[1] float32[256] float32[256]", "bits=8 block=256", "!input 4 are no codes of uint8"},
    {EBB_OP_PACK_SIGN, "float32[3,3]", "", "uint8[2]"},
    {EBB_OP_PACK_SIGN, "float32[?,3]", "", "uint8[?]"},
    {EBB_OP_PACK_BITS, "bool[3,3]", "", "uint8[2]"},
    {EBB_OP_UNPACK_BITS, "uint8[2]", "shape=[3,3]", "bool[3,3]"},
    {EBB_OP_UNPACK_BITS, "uint8[2]", "", "!shape is missing"},
    {EBB_OP_UNPACK_BITS, "uint8[2]", "shape=[3,-3]", "!shape has a negative dim"},
    {EBB_OP_MASK_GRAD, "float32[3,3] uint8[2]", "", "float32[3,3]"},
    {EBB_OP_EBB_DROPOUT_PACKED, "float32[3,3] int64[2]", "ratio=0.5", "float32[3,3] uint8[2]"},
    {EBB_OP_EBB_DROPOUT_PACKED, "float32[?] int64[2]", "ratio=0.5", "float32[?] uint8[?]"},
    {EBB_OP_QUANTIZE, "float32[2,3,7] int64[2]", "bits=2 group=8", "uint8[2,6] bfloat16[2,3,2]"},
    {EBB_OP_QUANTIZE, "float64[1,3,7] int64[2]", "axis=2", "uint8[3,7] bfloat16[3,1,2]"},
    {EBB_OP_QUANTIZE, "float32[?,3,7] int64[2]", "bits=4", "uint8[?,11] bfloat16[?,1,2]"},
    {EBB_OP_QUANTIZE, "float32[2,?] int64[2]", "bits=4", "uint8[2,?] bfloat16[2,?,2]"},
    {EBB_OP_QUANTIZE, "float32[2,3,7] int64[2]", "bits=3", "!bits is 3; 1, 2, 4 or 8 is expected"},
    {EBB_OP_QUANTIZE, "float32[2,3,7] int64[2]", "bits=2 group=13", "!group is 13; of 2 bits each, it does not fill whole bytes"},
    {EBB_OP_QUANTIZE, "float32[2,3,7] int64[2]", "group=0", "!group is 0"},
    {EBB_OP_QUANTIZE, "float32[2,3,7] int64[2]", "axis=4", "!axis 4 is outside 0..3"},
    {EBB_OP_QUANTIZE, "float32[2,3,7] int64[3]", "", "!the key is not int64[2]"},
    {EBB_OP_QUANTIZE_RUNNING, "float32[2,3,8] int64[2] float32[3,2]", "group=8", "uint8[2,24] bfloat16[2,3,2] float32[3,2]"},
    {EBB_OP_QUANTIZE_RUNNING, "float32[?,3,8] int64[2] float32[1,2]", "group=12", "uint8[?,24] bfloat16[?,2,2] float32[1,2]"},
    {EBB_OP_QUANTIZE_RUNNING, "float32[2,3,8] int64[2] float32[2,2]", "group=8", "!2 classes do not divide the groups of a row"},
    {EBB_OP_QUANTIZE_RUNNING, "float32[2,3,8] int64[2] float32[1,2]", "group=16", "!groups of 16 do not divide a row of 24"},
    {EBB_OP_QUANTIZE_RUNNING, "float32[2,3,8] int64[2] float32[1,3]", "group=8", "!the state is no low and width for each class"},
    {EBB_OP_QUANTIZE_RUNNING, "float32[2,3,8] int64[2] float32[1,2]", "group=8 decay=1.0", "!decay is 1, outside of [0, 1)"},
    {EBB_OP_SPLIT_FREQUENCY, "float32[2,3,9,8] int64[2]", "bits=2", "bfloat16[2,3,2,1] uint8[2,3,18] bfloat16[2,3,2]"},
    {EBB_OP_SPLIT_FREQUENCY, "float32[?,3,9,7] int64[2]", "bits=1 block=4", "bfloat16[?,3,3,2] uint8[?,3,8] bfloat16[?,3,2]"},
    {EBB_OP_SPLIT_FREQUENCY, "float32[2,3,9] int64[2]", "bits=2", "!input 0 has rank 3, not 4"},
    {EBB_OP_SPLIT_FREQUENCY, "float32[2,3,9,8] int64[2]", "block=0", "!block is 0; 1 to 1024 is expected"},
    {EBB_OP_SPLIT_FREQUENCY_DECODE, "bfloat16[2,3,2,1] uint8[2,3,18] bfloat16[2,3,2]", "bits=2 shape=[2,3,9,8]", "float32[2,3,9,8]"},
    {EBB_OP_SPLIT_FREQUENCY_DECODE, "bfloat16[2,3,2,1] uint8[2,3,18] bfloat16[2,3,2]", "bits=2 shape=[2,3,9,9]", "!input 0 is not of the size that shape asks for"},
    {EBB_OP_SPLIT_FREQUENCY_DECODE, "bfloat16[2,3,2,1] uint8[2,3,18] bfloat16[2,3,2]", "bits=2 shape=[6,9,8]", "!shape has rank 3, not 4"},
    {EBB_OP_DEQUANTIZE, "uint8[2,6] bfloat16[2,3,2]", "bits=2 group=8 shape=[6,7]", "float32[6,7]"},
    {EBB_OP_DEQUANTIZE, "uint8[2,6] bfloat16[2,3,2]", "bits=2 group=8 shape=[6,7] to=11", "float64[6,7]"},
    {EBB_OP_DEQUANTIZE, "uint8[2,6] bfloat16[2,3,2]", "bits=2 group=8 shape=[6,8]", "float32[6,8]"},
    {EBB_OP_DEQUANTIZE, "uint8[2,6] bfloat16[2,3,2]", "bits=2 group=8 shape=[6,9]", "!codes and range do not hold the 54 elements of shape"},
    {EBB_OP_DEQUANTIZE, "uint8[2,6] bfloat16[3,3,2]", "bits=2 group=8 shape=[6,7]", "!codes have 2 rows, and the range is no low and step for each"},
    {EBB_OP_DEQUANTIZE, "uint8[2,6] float32[2,3,2]", "bits=2 group=8 shape=[6,7]", "!input 1 is float32, not bfloat16"},
    {EBB_OP_DEQUANTIZE, "uint8[12] bfloat16[2,3,2]", "bits=2 group=8 shape=[6,7]", "!input 0 has rank 1, not 2"},
    {EBB_OP_DEQUANTIZE, "uint8[2,6] bfloat16[2,3,2]", "bits=2 group=8 shape=[6,7] to=6", "!to is 6, no float type"},
    {EBB_OP_DEQUANTIZE, "uint8[2,6] bfloat16[2,3,2]", "bits=2 group=8", "!shape is missing"},
    {EBB_OP_DEQUANTIZE, "uint8[0,6] bfloat16[0,3,2]", "bits=2 group=8 shape=[6,7]", "!codes and range do not hold"},
    {EBB_OP_MAX_POOL_PACKED, "float32[1,3,6,6]", "kernel_shape=[2,2] strides=[2,2] dilations=[1,1] pads=[0,0,0,0] bits=2", "float32[1,3,3,3] uint8[7]"},
    {EBB_OP_MAX_POOL_PACKED, "float32[?,3,6,6]", "kernel_shape=[2,2] strides=[2,2] dilations=[1,1] pads=[0,0,0,0] bits=2", "float32[?,3,3,3] uint8[?]"},
    {EBB_OP_MAX_POOL_PACKED, "float32[1,3,6,6]", "kernel_shape=[2,2] strides=[2,2] dilations=[1,1] pads=[0,0,0,0] bits=3", "!bits is 3; 1, 2, 4, 8 or 16 is expected"},
    {EBB_OP_MAX_POOL_PACKED, "float32[1,3,6,6]", "kernel_shape=[2,2] strides=[2,2] pads=[0,0,0,0] bits=2", "!dilations is missing"},
    {EBB_OP_MAX_POOL_PACKED_GRAD, "float32[1,3,3,3] uint8[7]", "input_shape=[1,3,6,6]", "float32[1,3,6,6]"},
    {EBB_OP_MAX_POOL_PACKED_GRAD, "float32[1,3,3,3] uint8[7]", "", "!input_shape is missing"},
    {EBB_OP_THRESHOLDED_RELU, "float32[2,?]", "alpha=0.5", "float32[2,?]"},
};
// clang-format on
enum { CASES = sizeof cases / sizeof cases[0], INPUTS = 10, ATTRS = 5 };

static int read_list(const char *at, char close, int64_t *list)
{
    int count = 0;
    for (at++; *at != close;) {
        char *end = NULL;
        list[count] = *at == '?' ? -1 : strtoll(at, &end, 10);
        at = *at == '?' ? at + 1 : end;
        count++;
        if (*at == ',')
            at++;
    }
    return count;
}

/* False: absent. */
static bool read_input(char *word, ebb_type *type, ebb_tensor *value, int64_t *list)
{
    if (strcmp(word, "-") == 0)
        return false;
    char *shape = strpbrk(word, "[{");
    int64_t dims[EBB_MAX_RANK];
    char open = shape != NULL ? *shape : '\0';
    if (shape != NULL)
        *shape = '\0';
    ebb_dtype dtype = ebb_dtype_of_name(word);
    assert_int_not_equal(dtype, EBB_NONE);
    *value = (ebb_tensor){0};
    *type = ebb_type_none();
    type->kind = EBB_KIND_TENSOR;
    type->dtype = (uint8_t)dtype;
    type->rank = -1;
    if (open == '[') {
        int rank = read_list(shape, ']', dims);
        *type = ebb_type_tensor(dtype, rank, dims);
    } else if (open == '{') {
        const int64_t count = read_list(shape, '}', list);
        *type = ebb_type_tensor(dtype, 1, &count);
        *value = (ebb_tensor){.type = *type, .data = list, .bytes = (size_t)count * 8};
    }
    return true;
}

static void read_attr(char *word, ebb_attr *attr, int64_t *list)
{
    char *value = strchr(word, '=');
    *value++ = '\0';
    *attr = (ebb_attr){.name = word};
    if (*value == '[') {
        attr->type = EBB_ATTR_INTS;
        attr->count = (uint32_t)read_list(value, ']', list);
        attr->ints = list;
    } else if (isalpha((unsigned char)*value)) {
        attr->type = EBB_ATTR_STRING;
        attr->s = value;
        attr->s_bytes = strlen(value);
    } else if (strchr(value, '.') != NULL) {
        attr->type = EBB_ATTR_FLOAT;
        attr->f = strtod(value, NULL);
    } else {
        attr->type = EBB_ATTR_INT;
        attr->i = strtoll(value, NULL, 10);
    }
}

static uint32_t words_of(const char *text)
{
    uint32_t count = *text != '\0';
    for (; *text != '\0'; text++)
        count += *text == ' ';
    return count;
}

/* What came out, in the notation of `expect`. */
static ebb_status infer(const infer_case *c, char *text, size_t size)
{
    char inputs[256], attrs[128], *save = NULL;
    ebb_type types[INPUTS], out[INPUTS];
    ebb_tensor values[INPUTS];
    const ebb_type *in[INPUTS] = {NULL};
    const ebb_tensor *constant[INPUTS] = {NULL};
    int64_t lists[INPUTS][16], attr_lists[ATTRS][16];
    ebb_attr list[ATTRS];
    OWNED_ARENA scratch = {0};
    ebb_infer call = {.op = c->op,
                      .version = 20,
                      .node = "Node 'n'",
                      .in = in,
                      .constant = constant,
                      .out = out,
                      .scratch = &scratch};
    (void)snprintf(inputs, sizeof inputs, "%s", c->inputs);
    (void)snprintf(attrs, sizeof attrs, "%s", c->attrs);
    for (char *w = strtok_r(inputs, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        uint32_t i = call.input_count++;
        if (read_input(w, &types[i], &values[i], lists[i]))
            in[i] = &types[i];
        constant[i] = in[i] != NULL && values[i].data != NULL ? &values[i] : NULL;
    }
    for (char *w = strtok_r(attrs, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        read_attr(w, &list[call.attrs.count], attr_lists[call.attrs.count]);
        call.attrs.count++;
    }
    call.attrs.list = list;
    call.output_count = c->expect[0] == '!' ? 1 : words_of(c->expect);
    for (uint32_t k = 0; k < call.output_count; k++) {
        out[k] = ebb_type_none();
        call.out_wanted[k] = true;
    }
    ebb_status status = ebb_op_row_of(c->op)->infer(&call);
    size_t at = 0;
    for (uint32_t k = 0; status == NULL && k < call.output_count; k++) {
        char one[128];
        at += (size_t)snprintf(text + at, size - at, "%s%s", k > 0 ? " " : "",
                               ebb_type_print(one, sizeof one, &out[k], NULL));
    }
    return status;
}

TEST(types_come_out_as_the_operators_say)
{
    int bad = 0;
    for (size_t k = 0; k < CASES; k++) {
        const infer_case *c = &cases[k];
        char text[512] = "";
        ebb_status status = infer(c, text, sizeof text);
        const char *said = status != NULL ? ebb_status_text(status) : text;
        bool good = c->expect[0] == '!' ? status != NULL && strstr(said, c->expect + 1) != NULL &&
                                              strstr(said, "Node 'n'") != NULL
                                        : status == NULL && strcmp(text, c->expect) == 0;
        if (!good) {
            print_error("%s(%s) {%s}: %s, not %s\n", ebb_op_row_of(c->op)->name, c->inputs,
                        c->attrs, said, c->expect);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}
