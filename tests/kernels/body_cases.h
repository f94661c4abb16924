/* body_cases.h: calls of the operators that have a function body, in ONNX text, and how one is run. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/weigh/call.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/test.h"

typedef struct body_case {
    ebb_op op;
    double tolerance;   /* of 1 + the largest magnitude; 0: bit for bit */
    const char *inputs; /* drawn from [-1, 1) where no value is given; "pos..." from [0.5, 1.5) */
    const char *constants;
    const char *call;
} body_case;

#define NEAR 2e-6
#define KEY "int64[2] key = {81985529216486895, 7}"
#define KEY_OF_PART "int64[4] key = {81985529216486895, 7, 2, 3}"
#define OPEN "bool keep = {1}, float bias = {0}"
#define POOL "kernel_shape = [3, 3], strides = [2, 2]"

/* Maps of states in codes, which do not decrease: 256 levels from -0.128 to 0.127 and from 0.001 to
 * 0.256, and 16 of each kind. Ten numbers up and down: */
#define UP(p) p "0," p "1," p "2," p "3," p "4," p "5," p "6," p "7," p "8," p "9,"
#define DOWN(p) p "9," p "8," p "7," p "6," p "5," p "4," p "3," p "2," p "1," p "0,"
#define UP_12(p) \
    UP(p "0")    \
    UP(p "1") UP(p "2") UP(p "3") UP(p "4") UP(p "5") UP(p "6") UP(p "7") UP(p "8") UP(p "9")
#define SIGNED_256(type)                                                                           \
    type "[256] mm = {-0.128,-0.127,-0.126,-0.125,-0.124,-0.123,-0.122,-0.121,-0.120," DOWN(       \
        "-0.11") DOWN("-0.10") DOWN("-0.09") DOWN("-0.08") DOWN("-0.07") DOWN("-0.06")             \
        DOWN("-0.05") DOWN("-0.04") DOWN("-0.03") DOWN("-0.02")                                    \
            DOWN("-0.01") "-0.009,-0.008,-0.007,-0.006,-0.005,-0.004,-0.003,-0.002,-0.001," UP_12( \
                "0.0") UP("0.10") UP("0.11") "0.120,0.121,0.122,0.123,0.124,0.125,0.126,0.127}"
#define POSITIVE_256(type)                                                                      \
    type "[256] vm = {0.001,0.002,0.003,0.004,0.005,0.006,0.007,0.008,0.009," UP("0.01")        \
        UP("0.02") UP("0.03") UP("0.04") UP("0.05") UP("0.06") UP("0.07") UP("0.08") UP("0.09") \
            UP_12("0.1") UP("0.20") UP("0.21") UP("0.22") UP("0.23")                            \
                UP("0.24") "0.250,0.251,0.252,0.253,0.254,0.255,1}"
#define SIGNED_16 \
    "float[16] mm = {-1,-1,-0.7,-0.4,-0.3,-0.1,-0.05,-0.01,0,0.01,0.05,0.1,0.3,0.4,0.7,1}"
#define POSITIVE_16 \
    "float[16] vm = {0.004,0.015,0.035,0.06,0.1,0.14,0.2,0.25,0.3,0.4,0.5,0.55,0.65,0.75,0.85,1}"
#define BYTES_20 "{0,255,16,240,15,8,136,119,200,1,2,77,88,99,254,127,128,129,64,3}"
#define BYTES_40                                                                              \
    "{0,255,16,240,15,8,136,119,200,1,2,77,88,99,254,127,128,129,64,3,0,0,7,9,11,13,130,131," \
    "33,44,55,66,250,251,252,253,254,255,100,101}"

// clang-format off
static const body_case cases[] = {
    {EBB_OP_CLIP_GRAD, 0, "float[3,7] d, float[3,7] x", "float low = {-0.5}, float high = {0.25}", "y = ai.ebb.ClipGrad (d, x, low, high)"},
    {EBB_OP_CLIP_GRAD, 0, "float[3,7] d, float[3,7] x", "float low = {-0.5}", "y = ai.ebb.ClipGrad (d, x, low)"},
    {EBB_OP_CLIP_GRAD, 0, "float[3,7] d, float[3,7] x", "float high = {0.25}", "y = ai.ebb.ClipGrad (d, x, \"\", high)"},
    {EBB_OP_CLIP_GRAD, 0, "float[5] d", "float[5] x = {inf, -inf, 0, 1, nan}, float low = {0.5}", "y = ai.ebb.ClipGrad (d, x, low)"},
    {EBB_OP_CLIP_GRAD, 0, "float[5] d", "float[5] x = {inf, -inf, 0, 1, nan}, float high = {0.5}", "y = ai.ebb.ClipGrad (d, x, \"\", high)"},
    {EBB_OP_CLIP_GRAD, 0, "double[5] d, double[5] x", "double low = {0}", "y = ai.ebb.ClipGrad (d, x, low)"},

    {EBB_OP_CONV_WEIGHT_GRAD, NEAR, "float[2,4,6,5] d, float[2,3,6,5] x", "", "w = ai.ebb.ConvWeightGrad <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (d, x)"},
    {EBB_OP_CONV_WEIGHT_GRAD, NEAR, "float[2,4,3,3] d, float[2,4,8,7] x", "", "w = ai.ebb.ConvWeightGrad <kernel_shape = [3, 2], strides = [2, 2], group = 2> (d, x)"},
    {EBB_OP_CONV_WEIGHT_GRAD, NEAR, "float[2,4,4,4] d, float[2,4,8,8] x", "", "w = ai.ebb.ConvWeightGrad <kernel_shape = [3, 3], dilations = [2, 2], group = 4> (d, x)"},
    {EBB_OP_CONV_WEIGHT_GRAD, NEAR, "float[3,2,4] d, float[3,5,9] x", "", "w = ai.ebb.ConvWeightGrad <kernel_shape = [3], strides = [2]> (d, x)"},

    {EBB_OP_MATMUL_CODES, NEAR, "float[2,40] A", "uint8[3,3,8] c = {68,32,130,60,253,230,241,194,107,48,249,14,199,221,1,228,136,117,52,162,15,11,13,4,195,110,216,14,113,224,253,119,176,118,112,235,148,11,213,51,95,151,61,170,216,97,155,145,255,201,17,245,124,206,212,88,187,191,44,224,55,83,201,189,250,15,240,22,157,201,87,86}, float[3,3] s = {0.274,0.269,-0.266,-0.249,0.201,0.142,0.102,-0.115,0.064}, uint8[3,2] z = {121,66,189,242,33,6}, float[16] l = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}", "y = ai.ebb.MatMulCodes <K = 40, N = 3, bits = 4, block_size = 16> (A, c, s, z, l)"},
    {EBB_OP_MATMUL_CODES, NEAR, "float[2,5,3] A", "uint8[3,3,8] c = {68,32,130,60,253,230,241,194,107,48,249,14,199,221,1,228,136,117,52,162,15,11,13,4,195,110,216,14,113,224,253,119,176,118,112,235,148,11,213,51,95,151,61,170,216,97,155,145,255,201,17,245,124,206,212,88,187,191,44,224,55,83,201,189,250,15,240,22,157,201,87,86}, float[9] s = {0.274,0.269,-0.266,-0.249,0.201,0.142,0.102,-0.115,0.064}, uint8[3,2] z = {121,66,189,242,33,6}, float[16] l = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}", "y = ai.ebb.MatMulCodes <K = 40, N = 3, bits = 4, block_size = 16, transB = 0> (A, c, s, z, l)"},
    {EBB_OP_MATMUL_CODES, NEAR, "float[20] A", "uint8[3,2,8] c = {120,155,52,202,245,79,46,34,10,205,148,30,113,184,141,88,54,134,109,13,133,139,99,84,158,148,190,44,172,198,127,91,126,242,143,45,153,3,149,159,99,211,216,147,220,231,82,119}, float[3,2] s = {0.074,0.145,0.177,0.265,0.144,0.253}, uint8[1,1] z = {136}, float[16] l = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}", "y = ai.ebb.MatMulCodes <K = 20, N = 3, bits = 4, block_size = 16> (A, c, s, z, l)"},
    {EBB_OP_MATMUL_CODES, NEAR, "float[2,36] A", "uint8[2,3,4] c = {41,248,133,18,0,74,240,191,163,11,139,250,101,211,48,98,135,45,217,171,47,185,209,128}, float[2,3] s = {-0.106,-0.209,0.091,-0.257,0.022,-0.081}, uint8[2,1] z = {116,189}, float[4] l = {0,1,2,3}", "y = ai.ebb.MatMulCodes <K = 36, N = 2, bits = 2, block_size = 16> (A, c, s, z, l)"},
    {EBB_OP_MATMUL_CODES, 1e-12, "double[2,2] A", "uint8[2,3,4] c = {41,248,133,18,0,74,240,191,163,11,139,250,101,211,48,98,135,45,217,171,47,185,209,128}, double[2,3] s = {-0.106,-0.209,0.091,-0.257,0.022,-0.081}, double[2,3] z = {1.25,0.5,2,1,3.5,-1}, double[4] l = {0,1,2,3}", "y = ai.ebb.MatMulCodes <K = 36, N = 2, bits = 2, block_size = 16, packed_zeros = 0, transB = 0> (A, c, s, z, l)"},
    {EBB_OP_MATMUL_CODES, NEAR, "float[3,24] A", "uint8[36] c = {237,191,136,70,95,3,173,237,41,171,20,194,86,231,216,80,86,121,26,56,67,32,196,52,149,104,114,215,44,136,107,203,143,174,22,102}, float[5] s = {0.043,-0.043,0.047,-0.176,0.188}, uint8[1,1] z = {0}, float[16] l = {-1,-0.6962,-0.5251,-0.3949,-0.2844,-0.1848,-0.0911,0,0.0796,0.1609,0.2461,0.3379,0.4407,0.5626,0.7230,1}", "y = ai.ebb.MatMulCodes <K = 24, N = 3, bits = 4, block_size = 16, flat = 1, high_first = 1> (A, c, s, z, l)"},
    {EBB_OP_MATMUL_CODES, NEAR, "float[3,3] A", "uint8[36] c = {237,191,136,70,95,3,173,237,41,171,20,194,86,231,216,80,86,121,26,56,67,32,196,52,149,104,114,215,44,136,107,203,143,174,22,102}, float[5] s = {0.043,-0.043,0.047,-0.176,0.188}, uint8[1,1] z = {0}, float[16] l = {-1,-0.6962,-0.5251,-0.3949,-0.2844,-0.1848,-0.0911,0,0.0796,0.1609,0.2461,0.3379,0.4407,0.5626,0.7230,1}", "y = ai.ebb.MatMulCodes <K = 24, N = 3, bits = 4, block_size = 16, flat = 1, high_first = 1, transB = 0> (A, c, s, z, l)"},
    {EBB_OP_EXPERTS_MATMUL_CODES, NEAR, "float[5,20] A", "uint8[2,3,10] c = {120,155,52,202,245,79,46,34,10,205,148,30,113,184,141,88,54,134,109,13,133,139,99,84,158,148,190,44,172,198,127,91,126,242,143,45,153,3,149,159,99,211,216,147,220,231,82,119,156,132,22,41,23,236,143,241,175,74,100,34}, float[2,3,2] s = {-0.052,-0.178,0.080,-0.134,-0.087,0.148,-0.108,0.035,0.243,-0.239,-0.263,-0.163}, uint8[6,1] z = {121,62,169,90,148,235}, float[16] l = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}, int64[5] of = {1,0,0,1,1}", "y = ai.ebb.ExpertsMatMulCodes <K = 20, N = 3, experts = 2, bits = 4, block_size = 16> (A, c, s, z, l, of)"},
    {EBB_OP_EXPERTS_MATMUL_CODES, NEAR, "float[4,2] A", "uint8[3,2,8] c = {13,21,182,42,146,167,9,165,147,164,78,210,39,150,98,227,149,69,128,195,81,169,4,186,22,232,86,186,185,148,49,224,106,217,106,58,30,31,28,86,76,20,251,127,164,18,62,149}, float[3,2,1] s = {0.164,-0.054,0.293,-0.013,-0.155,-0.054}, uint8[1,1] z = {136}, float[16] l = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}, int64[4] of = {2,0,2,2}", "y = ai.ebb.ExpertsMatMulCodes <K = 16, N = 2, experts = 3, bits = 4, block_size = 16, transB = 0> (A, c, s, z, l, of)"},
    {EBB_OP_EXPERTS_MATMUL_CODES, 1e-12, "double[3,16] A", "uint8[2,2,16] c = {18,112,215,227,127,219,110,255,96,16,18,130,129,124,106,118,213,133,72,166,26,161,59,206,20,253,198,47,220,107,84,172,151,241,161,215,110,137,173,200,254,38,143,97,22,202,65,137,30,85,237,241,206,199,111,1,108,80,6,131,59,202,195,113}, double[4] s = {0.030,0.227,-0.179,0.103}, double[4,1] z = {-0.102,0.235,0.164,-0.017}, double[256] l = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70,71,72,73,74,75,76,77,78,79,80,81,82,83,84,85,86,87,88,89,90,91,92,93,94,95,96,97,98,99,100,101,102,103,104,105,106,107,108,109,110,111,112,113,114,115,116,117,118,119,120,121,122,123,124,125,126,127,128,129,130,131,132,133,134,135,136,137,138,139,140,141,142,143,144,145,146,147,148,149,150,151,152,153,154,155,156,157,158,159,160,161,162,163,164,165,166,167,168,169,170,171,172,173,174,175,176,177,178,179,180,181,182,183,184,185,186,187,188,189,190,191,192,193,194,195,196,197,198,199,200,201,202,203,204,205,206,207,208,209,210,211,212,213,214,215,216,217,218,219,220,221,222,223,224,225,226,227,228,229,230,231,232,233,234,235,236,237,238,239,240,241,242,243,244,245,246,247,248,249,250,251,252,253,254,255}, int64[3] of = {0,1,1}", "y = ai.ebb.ExpertsMatMulCodes <K = 16, N = 2, experts = 2, bits = 8, block_size = 16, packed_zeros = 0> (A, c, s, z, l, of)"},
    {EBB_OP_EXPERTS_MATMUL, NEAR, "float[5,4] A, float[3,2,4] W", "int64[5] of = {2,2,0,2,0}", "y = ai.ebb.ExpertsMatMul (A, W, of)"},
    {EBB_OP_EXPERTS_MATMUL, 1e-12, "double[3,2] A, double[2,2,5] W", "int64[3] of = {0,1,1}", "y = ai.ebb.ExpertsMatMul <transB = 0> (A, W, of)"},
    {EBB_OP_EXPERTS_MATMUL_GRAD, NEAR, "float[5,4] A, float[5,3] d", "int64[5] of = {2,2,0,2,0}", "y = ai.ebb.ExpertsMatMulGrad <experts = 4> (A, d, of)"},
    {EBB_OP_EXPERTS_MATMUL_GRAD, 1e-12, "double[3,4] A, double[3,2] d", "int64[3] of = {1,0,1}", "y = ai.ebb.ExpertsMatMulGrad <experts = 2> (A, d, of)"},
    {EBB_OP_MATMUL_DEQUANTIZED, NEAR, "float[2,3,5] A", "int8[5,4] c = {103,110,103,-31,-34,115,-33,-80,100,27,-56,-82,-107,74,103,-48,-121,-96,-98,-110}, float s = {0.05}", "y = ai.ebb.MatMulDequantized <axis = 1> (A, c, s)"},
    {EBB_OP_MATMUL_DEQUANTIZED, NEAR, "float[2,4] A", "int8[5,4] c = {103,110,103,-31,-34,115,-33,-80,100,27,-56,-82,-107,74,103,-48,-121,-96,-98,-110}, float[4] s = {-0.015,0.094,0.1,-0.214}, int8[4] z = {1,-2,3,0}", "y = ai.ebb.MatMulDequantized <axis = -1, transB = 1> (A, c, s, z)"},
    {EBB_OP_MATMUL_DEQUANTIZED, NEAR, "float[7,5] A", "uint8[5,4] c = {132,148,95,118,75,115,95,66,36,109,150,15,220,64,7,141,75,43,134,230}, float[5] s = {-0.015,0.094,0.1,-0.214,-0.293}, uint8[5] z = {1,128,255,0,7}", "y = ai.ebb.MatMulDequantized <axis = 0> (A, c, s, z)"},
    {EBB_OP_MATMUL_DEQUANTIZED, NEAR, "float[2,36] A", "int4[36,3] c = {0,3,-8,6,-1,-7,-3,-5,3,7,-1,4,-5,-1,-8,-2,5,0,-3,4,-3,-6,-4,6,-4,-4,-8,-8,-2,-2,-3,-3,1,2,-2,-2,-3,-2,4,1,-8,3,5,-3,-4,0,-6,2,1,-8,2,-6,1,3,1,7,2,-3,7,7,-3,-7,0,-8,3,4,-8,5,3,4,-8,6,-7,-3,-2,-5,-1,6,3,3,0,6,-5,3,1,-7,5,-6,-2,2,3,-4,2,0,-6,1,2,1,-3,-6,-4,1,7,-3,-7,-6,4,-7}, float[3,3] s = {-0.236,0.122,0.091,0.264,-0.137,-0.147,0.14,0.095,-0.118}", "y = ai.ebb.MatMulDequantized <axis = 0, block_size = 16> (A, c, s)"},
    {EBB_OP_MATMUL_DEQUANTIZED, NEAR, "float[2,3] A", "uint4[3,36] c = {7,11,8,14,13,4,1,1,15,10,6,4,4,13,3,5,13,11,4,1,13,9,4,14,5,14,15,10,15,8,9,15,12,4,3,12,5,15,10,5,2,15,8,11,2,11,1,9,11,8,15,8,9,10,5,0,15,8,10,8,14,9,11,11,8,11,13,11,5,14,11,10,4,5,6,11,15,9,2,13,5,13,9,8,0,6,5,14,5,7,5,1,15,7,5,1,4,3,10,5,15,6,1,13,14,11,12,2}, float[3,3] s = {-0.236,0.122,0.091,0.264,-0.137,-0.147,0.14,0.095,-0.118}, uint4[3,3] z = {1,2,3,4,5,6,7,8,9}", "y = ai.ebb.MatMulDequantized <axis = -1, block_size = 16, transB = 0> (A, c, s, z)"},

    {EBB_OP_CONV_NHWC, NEAR, "float[2,6,5,3] x, float[4,3,3,3] w, float[4] b", "", "y = ai.ebb.ConvNhwc <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [1, 1], dilations = [1, 1]> (x, w, b)"},
    {EBB_OP_CONV_NHWC, NEAR, "float[2,8,7,4] x, float[6,3,2,2] w", "", "y = ai.ebb.ConvNhwc <kernel_shape = [3, 2], pads = [0, 1, 2, 0], strides = [2, 1], dilations = [1, 2], group = 2> (x, w)"},
    {EBB_OP_CONV_NHWC, 1e-12, "double[2,8,8,4] x, double[4,3,3,1] w", "", "y = ai.ebb.ConvNhwc <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2], dilations = [1, 1], group = 4> (x, w)"},
    {EBB_OP_CONV_RELU, NEAR, "float[2,3,6,5] x, float[4,3,3,3] w, float[4] b", "", "z, bits = ai.ebb.ConvRelu <kernel_shape = [3, 3], auto_pad = \"SAME_UPPER\", strides = [2, 1]> (x, w, b)"},
    {EBB_OP_CONV_RELU, 1e-12, "double[2,4,9] x, double[6,2,3] w", "", "z, bits = ai.ebb.ConvRelu <kernel_shape = [3], pads = [1, 1], strides = [1], dilations = [1], group = 2> (x, w)"},
    {EBB_OP_CONV_RELU_NHWC, NEAR, "float[2,6,5,3] x, float[4,3,3,3] w, float[4] b", "", "z, bits = ai.ebb.ConvReluNhwc <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [1, 1], dilations = [1, 1]> (x, w, b)"},
    {EBB_OP_CONV_ADD_RELU_NHWC, NEAR, "float[1,3,3,4] x, float[5,1,1,4] w, float[5] b, float[1,3,3,5] a", "", "z, bits = ai.ebb.ConvAddReluNhwc <kernel_shape = [1, 1], pads = [0, 0, 0, 0], strides = [1, 1], dilations = [1, 1]> (x, w, b, a)"},
    {EBB_OP_CONV_ADD_RELU_NHWC, NEAR, "float[2,8,7,4] x, float[6,3,2,2] w, float[2,3,6,6] a", "", "z = ai.ebb.ConvAddReluNhwc <kernel_shape = [3, 2], pads = [0, 0, 0, 0], strides = [2, 1], dilations = [1, 1], group = 2> (x, w, , a)"},
    {EBB_OP_CONV_TRANSPOSE_NHWC, NEAR, "float[2,3,3,4] x, float[4,3,3,5] w, float[5] b", "", "y = ai.ebb.ConvTransposeNhwc <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2], dilations = [1, 1], output_padding = [1, 0]> (x, w, b)"},
    {EBB_OP_CONV_TRANSPOSE_NHWC, 1e-12, "double[2,4,3,6] x, double[6,2,3,2] w", "", "y = ai.ebb.ConvTransposeNhwc <kernel_shape = [2, 3], pads = [0, 0, 0, 0], strides = [1, 2], dilations = [2, 1], output_padding = [0, 0], group = 2> (x, w)"},
    {EBB_OP_CONV_TRANSPOSE_NHWC, NEAR, "float[2,3,3,4] x, float[4,3,3,5] w", "", "y = ai.ebb.ConvTransposeNhwc <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2], dilations = [1, 1], output_padding = [1, 0]> (x, w)"},
    {EBB_OP_CONV_WEIGHT_GRAD_NHWC, NEAR, "float[2,6,5,4] d, float[2,6,5,3] x", "", "w = ai.ebb.ConvWeightGradNhwc <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [1, 1], dilations = [1, 1]> (d, x)"},
    {EBB_OP_CONV_WEIGHT_GRAD_NHWC, 1e-12, "double[2,3,3,4] d, double[2,8,7,4] x", "", "w = ai.ebb.ConvWeightGradNhwc <kernel_shape = [3, 2], pads = [0, 0, 0, 0], strides = [2, 2], dilations = [1, 1], group = 2> (d, x)"},
    {EBB_OP_CONV_WEIGHT_GRAD_NHWC, NEAR, "float[2,6,5,9] d, float[2,6,5,37] x", "", "w = ai.ebb.ConvWeightGradNhwc <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [1, 1], dilations = [1, 1]> (d, x)"},

    {EBB_OP_CONV_WEIGHT_GRAD_POOLED, NEAR, "float[2,4,6,5] d, float[2,3,3,3] m", "", "w = ai.ebb.ConvWeightGradPooled <kernel_shape = [3, 3], pads = [1, 1, 1, 1], p = 2, input_shape = [2, 3, 6, 5]> (d, m)"},
    {EBB_OP_CONV_WEIGHT_GRAD_POOLED, NEAR, "float[2,4,3,3] d, float[2,4,2,2] m", "", "w = ai.ebb.ConvWeightGradPooled <kernel_shape = [3, 2], strides = [2, 2], group = 2, p = 4, input_shape = [2, 4, 8, 7]> (d, m)"},
    {EBB_OP_CONV_WEIGHT_GRAD_POOLED, 1e-12, "double[2,4,4,4] d, double[2,4,4,4] m", "", "w = ai.ebb.ConvWeightGradPooled <kernel_shape = [3, 3], dilations = [2, 2], group = 4, p = 2, input_shape = [2, 4, 8, 8]> (d, m)"},
    {EBB_OP_CONV_WEIGHT_GRAD_POOLED, NEAR, "float[3,2,4] d, float[3,5,5] m", "", "w = ai.ebb.ConvWeightGradPooled <kernel_shape = [3], strides = [2], p = 2, input_shape = [3, 5, 9]> (d, m)"},
    {EBB_OP_CONV_WEIGHT_GRAD_POOLED, NEAR, "float[1,2,3,4,5] d, float[1,3,1,2,2] m", "", "w = ai.ebb.ConvWeightGradPooled <kernel_shape = [2, 2, 2], p = 4, input_shape = [1, 3, 4, 5, 6]> (d, m)"},

    {EBB_OP_MAX_POOL_GRAD, NEAR, "float[2,3,3,3] d, float[2,3,7,7] x", "", "y = ai.ebb.MaxPoolGrad <" POOL "> (d, x)"},
    {EBB_OP_MAX_POOL_GRAD, NEAR, "float[2,3,4,4] d, float[2,3,7,7] x", "", "y = ai.ebb.MaxPoolGrad <" POOL ", pads = [1, 1, 1, 1]> (d, x)"},
    {EBB_OP_MAX_POOL_GRAD, NEAR, "float[2,2,4,3] d, float[2,2,8,6] x", "", "y = ai.ebb.MaxPoolGrad <kernel_shape = [2, 2], strides = [2, 2]> (d, x)"},
    {EBB_OP_MAX_POOL_GRAD, NEAR, "float[1,1,3] d", "float[1,1,5] x = {1, 1, 1, 2, 2}", "y = ai.ebb.MaxPoolGrad <kernel_shape = [3]> (d, x)"},

    {EBB_OP_MAX_POOL_PACKED, 0, "float[2,3,7,7] x", "", "y, t = ai.ebb.MaxPoolPacked <kernel_shape = [3, 3], strides = [2, 2], dilations = [1, 1], pads = [1, 1, 1, 1], bits = 4> (x)"},
    {EBB_OP_MAX_POOL_PACKED, 0, "float[2,3,6,8] x", "", "y, t = ai.ebb.MaxPoolPacked <kernel_shape = [2, 2], strides = [2, 2], dilations = [1, 1], pads = [0, 0, 0, 0], bits = 2> (x)"},
    {EBB_OP_MAX_POOL_PACKED, 0, "double[2,5,8,7] x", "", "y, t = ai.ebb.MaxPoolPacked <kernel_shape = [3, 2], strides = [2, 3], dilations = [2, 1], pads = [1, 0, 2, 1], ceil_mode = 1, bits = 8> (x)"},
    {EBB_OP_MAX_POOL_PACKED, 0, "float[3,3,9] x", "", "y, t = ai.ebb.MaxPoolPacked <kernel_shape = [2], strides = [2], dilations = [1], pads = [0, 0], bits = 1> (x)"},
    {EBB_OP_MAX_POOL_PACKED, 0, "float[2,3,4,5,6] x", "", "y, t = ai.ebb.MaxPoolPacked <kernel_shape = [2, 3, 3], strides = [1, 2, 2], dilations = [1, 1, 1], pads = [0, 1, 1, 1, 0, 1], bits = 8> (x)"},
    {EBB_OP_MAX_POOL_PACKED, 0, "float[1,3,18,19] x", "", "y, t = ai.ebb.MaxPoolPacked <kernel_shape = [17, 16], strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], bits = 16> (x)"},
    {EBB_OP_MAX_POOL_PACKED, 0, "", "float[1,2,5] x = {1, 1, 1, 2, 2, -1, -1, -3, -2, -2}", "y, t = ai.ebb.MaxPoolPacked <kernel_shape = [3], strides = [1], dilations = [1], pads = [1, 1], bits = 2> (x)"},
    {EBB_OP_MAX_POOL_PACKED_GRAD, NEAR, "float[1,3,4,4] d", "uint8[24] t = {0, 17, 34, 51, 68, 85, 102, 119, 136, 1, 35, 69, 103, 129, 24, 66, 84, 118, 130, 7, 49, 53, 71, 8}", "x = ai.ebb.MaxPoolPackedGrad <kernel_shape = [3, 3], strides = [2, 2], dilations = [1, 1], pads = [1, 1, 1, 1], bits = 4, input_shape = [1, 3, 7, 7]> (d, t)"},
    {EBB_OP_MAX_POOL_PACKED_GRAD, NEAR, "double[1,3,3,4] d", "uint8[9] t = {228, 27, 177, 78, 0, 255, 85, 170, 99}", "x = ai.ebb.MaxPoolPackedGrad <kernel_shape = [2, 2], strides = [2, 1], dilations = [1, 2], pads = [0, 0, 0, 0], bits = 2, input_shape = [1, 3, 6, 6]> (d, t)"},
    {EBB_OP_MAX_POOL_PACKED_GRAD, NEAR, "float[3,3,4] d", "uint8[5] t = {165, 60, 9, 255, 3}", "x = ai.ebb.MaxPoolPackedGrad <kernel_shape = [2], strides = [2], dilations = [1], pads = [0, 0], bits = 1, input_shape = [3, 3, 9]> (d, t)"},
    {EBB_OP_MAX_POOL_PACKED_GRAD, NEAR, "float[1,1,2,2,2] d", "uint8[8] t = {0, 3, 5, 7, 1, 2, 4, 200}", "x = ai.ebb.MaxPoolPackedGrad <kernel_shape = [2, 2, 2], strides = [1, 2, 2], dilations = [1, 1, 1], pads = [0, 0, 0, 0, 0, 0], bits = 8, input_shape = [1, 1, 3, 4, 4]> (d, t)"},
    {EBB_OP_MAX_POOL_PACKED_GRAD, NEAR, "float[1,1,3] d", "uint8[6] t = {0, 0, 1, 1, 44, 1}", "x = ai.ebb.MaxPoolPackedGrad <kernel_shape = [300], strides = [1], dilations = [1], pads = [0, 0], bits = 16, input_shape = [1, 1, 302]> (d, t)"},

    {EBB_OP_ROI_ALIGN_GRAD, NEAR, "float[4,3,3,2] d", "float[4,4] r = {0.5,1,4,5.5,1,0,7,3,-3,-2,2.5,9,3,3,2,2.5}, int64[4] i = {1,0,1,1}", "x = ai.ebb.RoiAlignGrad <input_shape = [2, 3, 6, 7]> (d, r, i)"},
    {EBB_OP_ROI_ALIGN_MAX_GRAD, NEAR, "float[4,3,2,3] d, float[2,3,6,5] x", "float[4,4] r = {0.5,1,4,5.5,1,0,7,3,-3,-2,2.5,9,3,3,2,2.5}, int64[4] i = {1,0,1,1}", "y = ai.ebb.RoiAlignMaxGrad (d, x, r, i)"},
    {EBB_OP_ROI_ALIGN_GRAD, NEAR, "float[4,3,3,2] d", "float[4,4] r = {0.5,1,4,5.5,1,0,7,3,-3,-2,2.5,9,3,3,2,2.5}, int64[4] i = {1,0,1,1}", "x = ai.ebb.RoiAlignGrad <sampling_ratio = 2, input_shape = [2, 3, 6, 7]> (d, r, i)"},
    {EBB_OP_ROI_ALIGN_MAX_GRAD, NEAR, "float[4,3,2,3] d, float[2,3,6,5] x", "float[4,4] r = {0.5,1,4,5.5,1,0,7,3,-3,-2,2.5,9,3,3,2,2.5}, int64[4] i = {1,0,1,1}", "y = ai.ebb.RoiAlignMaxGrad <sampling_ratio = 2> (d, x, r, i)"},
    {EBB_OP_ROI_ALIGN_GRAD, NEAR, "float[4,3,3,2] d", "float[4,4] r = {0.5,1,4,5.5,1,0,7,3,-3,-2,2.5,9,3,3,2,2.5}, int64[4] i = {1,0,1,1}", "x = ai.ebb.RoiAlignGrad <half = 0, spatial_scale = 0.75, input_shape = [2, 3, 6, 7]> (d, r, i)"},
    {EBB_OP_ROI_ALIGN_MAX_GRAD, NEAR, "float[4,3,2,3] d, float[2,3,6,5] x", "float[4,4] r = {0.5,1,4,5.5,1,0,7,3,-3,-2,2.5,9,3,3,2,2.5}, int64[4] i = {1,0,1,1}", "y = ai.ebb.RoiAlignMaxGrad <half = 0, spatial_scale = 0.75> (d, x, r, i)"},
    {EBB_OP_ROI_ALIGN_GRAD, NEAR, "float[4,3,3,2] d", "float[4,4] r = {0.5,1,4,5.5,1,0,7,3,-3,-2,2.5,9,3,3,2,2.5}, int64[4] i = {1,0,1,1}", "x = ai.ebb.RoiAlignGrad <sampling_ratio = 3, half = 0, spatial_scale = 1.5, input_shape = [2, 3, 6, 7]> (d, r, i)"},
    {EBB_OP_ROI_ALIGN_MAX_GRAD, NEAR, "float[4,3,2,3] d, float[2,3,6,5] x", "float[4,4] r = {0.5,1,4,5.5,1,0,7,3,-3,-2,2.5,9,3,3,2,2.5}, int64[4] i = {1,0,1,1}", "y = ai.ebb.RoiAlignMaxGrad <sampling_ratio = 3, half = 0, spatial_scale = 1.5> (d, x, r, i)"},
    {EBB_OP_MAX_ROI_POOL_GRAD, NEAR, "float[5,3,3,2] d, float[2,3,6,7] x", "float[5,5] r = {0,0.5,1,4,5.5,1,1,0,7,3,1,-3,-2,2.5,9,0,3,3,2,2.5,0,-9,-9,-5,-4}", "y = ai.ebb.MaxRoiPoolGrad (d, x, r)"},
    {EBB_OP_MAX_ROI_POOL_GRAD, 1e-12, "double[5,2,2,5] d, double[2,2,9,4] x", "double[5,5] r = {0,0.5,1,4,5.5,1,1,0,7,3,1,-3,-2,2.5,9,0,3,3,2,2.5,0,-9,-9,-5,-4}", "y = ai.ebb.MaxRoiPoolGrad <spatial_scale = 1.5> (d, x, r)"},
    {EBB_OP_MAX_ROI_POOL_GRAD, NEAR, "float[1,1,2,2] d", "float[1,1,3,3] x = {1,1,0,1,1,2,0,2,2}, float[1,5] r = {0,0,0,2,2}", "y = ai.ebb.MaxRoiPoolGrad (d, x, r)"},
    {EBB_OP_AVERAGE_POOL_GRAD, NEAR, "float[2,3,3,3] d", "", "y = ai.ebb.AveragePoolGrad <" POOL ", input_shape = [2, 3, 7, 7]> (d)"},
    {EBB_OP_AVERAGE_POOL_GRAD, NEAR, "float[2,3,4,4] d", "", "y = ai.ebb.AveragePoolGrad <" POOL ", pads = [1, 1, 1, 1], input_shape = [2, 3, 7, 7]> (d)"},
    {EBB_OP_AVERAGE_POOL_GRAD, NEAR, "float[2,3,4,4] d", "", "y = ai.ebb.AveragePoolGrad <" POOL ", pads = [1, 1, 1, 1], count_include_pad = 1, input_shape = [2, 3, 7, 7]> (d)"},

    {EBB_OP_BATCH_NORM_TRAINING, NEAR, "float[4,3,5,2] x, float[3] s, float[3] b, float[3] m, float[3] pos", "", "y, rm, rv, sm, si = ai.ebb.BatchNormTraining <momentum = 0.75> (x, s, b, m, pos)"},
    {EBB_OP_BATCH_NORM_TRAINING, NEAR, "float[6,3] x, float[3] s, float[3] b, float[3] m, float[3] pos", "", "y, rm, rv, sm, si = ai.ebb.BatchNormTraining <epsilon = 0.01, unbiased = 0> (x, s, b, m, pos)"},
    {EBB_OP_BATCH_NORM_RELU, NEAR, "float[4,3,5,2] x, float[3] s, float[3] b, float[3] m, float[3] pos", "", "z, rm, rv, sm, si, bits = ai.ebb.BatchNormRelu <momentum = 0.75> (x, s, b, m, pos)"},
    {EBB_OP_BATCH_NORM_RELU, NEAR, "float[6,8] x, float[8] s, float[8] b, float[8] m, float[8] pos", "", "z, rm, rv, sm, si = ai.ebb.BatchNormRelu <epsilon = 0.01, unbiased = 0> (x, s, b, m, pos)"},
    {EBB_OP_BATCH_NORM_ADD_RELU, NEAR, "float[6,8] x, float[8] s, float[8] b, float[8] m, float[8] pos, float[6,8] a", "", "z, rm, rv, sm, si, bits = ai.ebb.BatchNormAddRelu (x, s, b, m, pos, a)"},
    {EBB_OP_BATCH_NORM_ADD_RELU, NEAR, "float[2,3,5] x, float[3] s, float[3] b, float[3] m, float[3] pos, float[2,3,5] a", "", "z, rm, rv, sm, si = ai.ebb.BatchNormAddRelu (x, s, b, m, pos, a)"},
    {EBB_OP_BATCH_NORM_RELU_GRAD, NEAR, "float[6,8] d, float[6,8] x, float[8] s, float[8] m, float[8] pos", "uint8[6] bits = {0,255,90,165,1,128}", "dx, ds, db, da = ai.ebb.BatchNormReluGrad (d, x, s, m, pos, bits)"},
    {EBB_OP_BATCH_NORM_RELU_GRAD, NEAR, "float[1,3,5] d, float[1,3,5] x, float[3] s, float[3] m, float[3] pos", "uint8[2] bits = {90,37}", "dx, ds, db = ai.ebb.BatchNormReluGrad (d, x, s, m, pos, bits)"},
    {EBB_OP_BATCH_NORM_RELU_GRAD, NEAR, "float[1,3,5] d, float[1,3,5] x, float[3] s, float[3] m, float[3] pos", "uint8[2] bits = {90,37}", "dx, ds = ai.ebb.BatchNormReluGrad (d, x, s, m, pos, bits)"},
    {EBB_OP_BATCH_NORM_GRAD, NEAR, "float[4,3,5,2] d, float[4,3,5,2] x, float[3] s, float[3] m, float[3] pos", "", "dx, ds, db = com.microsoft.BatchNormalizationGrad <epsilon = 0.00001> (d, x, s, m, pos)"},
    {EBB_OP_BATCH_NORM_GRAD, NEAR, "float[6,3] d, float[6,3] x, float[3] s, float[3] m, float[3] pos", "", "dx, ds, db = com.microsoft.BatchNormalizationGrad <epsilon = 0.00001> (d, x, s, m, pos)"},

    {EBB_OP_LAYER_NORM_GRAD, NEAR, "float[2,4,8] d, float[2,4,8] x, float[8] s, float[2,4,1] m, float[2,4,1] pos", "", "dx, ds, db = com.microsoft.LayerNormalizationGrad (d, x, s, m, pos)"},
    {EBB_OP_LAYER_NORM_GRAD, NEAR, "float[2,4,8] d, float[2,4,8] x, float[4,8] s, float[2,1,1] m, float[2,1,1] pos", "", "dx, ds, db = com.microsoft.LayerNormalizationGrad <axis = 1> (d, x, s, m, pos)"},
    {EBB_OP_LAYER_NORM_GRAD, NEAR, "float[3,8] d, float[3,8] x, float[3,8] s, float[1,1] m, float[1,1] pos", "", "dx, ds, db = com.microsoft.LayerNormalizationGrad <axis = 0> (d, x, s, m, pos)"},
    {EBB_OP_RMS_NORM, NEAR, "float[2,4,8] x, float[8] s", "", "y, r = ai.ebb.RmsNorm (x, s)"},
    {EBB_OP_RMS_NORM, NEAR, "float[2,4,8] x, float[4,8] s", "", "y, r = ai.ebb.RmsNorm <axis = 1, epsilon = 0.01> (x, s)"},
    {EBB_OP_RMS_NORM_GRAD, NEAR, "float[2,4,8] d, float[2,4,8] x, float[8] s, float[2,4,1] pos", "", "dx, ds = ai.ebb.RmsNormGrad (d, x, s, pos)"},
    {EBB_OP_RMS_NORM_GRAD, NEAR, "float[2,4,8] d, float[2,4,8] x, float[4,8] s, float[2,1,1] pos", "", "dx, ds = ai.ebb.RmsNormGrad <axis = 1> (d, x, s, pos)"},

    {EBB_OP_GROUP_NORM, NEAR, "float[3,6,5,2] x, float[6] s, float[6] b", "", "y, m, r = ai.ebb.GroupNorm <num_groups = 3> (x, s, b)"},
    {EBB_OP_GROUP_NORM, NEAR, "float[3,6,5] x, float[2] s, float[2] b", "", "y, m, r = ai.ebb.GroupNorm <num_groups = 2, epsilon = 0.01> (x, s, b)"},
    {EBB_OP_GROUP_NORM, 1e-12, "double[2,4,9] x, double[4] s, double[4] b", "", "y, m, r = ai.ebb.GroupNorm <num_groups = 4> (x, s, b)"},
    {EBB_OP_GROUP_NORM_GRAD, NEAR, "float[3,6,5,2] d, float[3,6,5,2] x, float[6] s, float[3,3] m, float[3,3] pos", "", "dx, ds, db = ai.ebb.GroupNormGrad (d, x, s, m, pos)"},
    {EBB_OP_GROUP_NORM_GRAD, NEAR, "float[3,6,5] d, float[3,6,5] x, float[2] s, float[3,2] m, float[3,2] pos", "", "dx, ds, db = ai.ebb.GroupNormGrad (d, x, s, m, pos)"},
    {EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT, NEAR, "float[3,6,5,2] d, float[3,6,5,2] z, float[6] b, float[3,3] pos", "float[6] s = {1, -2, 0.5, -0.5, 3, -1}", "dx, ds, db = ai.ebb.GroupNormGradFromOutput (d, z, s, b, pos)"},
    {EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT, NEAR, "float[3,6,5] d, float[3,6,5] z, float[2] b, float[3,2] pos", "float[2] s = {1, -2}", "dx, ds, db = ai.ebb.GroupNormGradFromOutput <slope = 0.2> (d, z, s, b, pos)"},
    {EBB_OP_GROUP_NORM_GRAD_FROM_OUTPUT, NEAR, "float[3,6,5] d, float[3,6,5] z, float[6] b, float[3,6] pos", "float[6] s = {1, -2, 0.5, -0.5, 3, -1}", "dx, ds, db = ai.ebb.GroupNormGradFromOutput <elu = 1.5> (d, z, s, b, pos)"},
    {EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, NEAR, "float[4,3,5,2] d, float[4,3,5,2] z, float[3] b, float[3] pos", "float[3] s = {1, -2, 0.5}", "dx, ds, db = ai.ebb.BatchNormGradFromOutput (d, z, s, b, pos)"},
    {EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, NEAR, "float[6,3] d, float[6,3] z, float[3] b, float[3] pos", "float[3] s = {1, -2, 0.5}", "dx, ds, db = ai.ebb.BatchNormGradFromOutput <slope = 0.1> (d, z, s, b, pos)"},
    {EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, NEAR, "float[4,3,5,2] d, float[4,3,5,2] z, float[3] b, float[3] pos", "float[3] s = {1, -2, 0.5}", "dx, ds, db = ai.ebb.BatchNormGradFromOutput <elu = 2.0> (d, z, s, b, pos)"},
    {EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, NEAR, "float[2,4] d, float[4] pos", "float[4] s = {0, -0.0, 1e-9, -1e-35}, float[4] b = {0, 0, 1, 0}, float[2,4] z = {0, 0, 1, 0, 0, 0, 0.99999994, 0}", "dx, ds, db = ai.ebb.BatchNormGradFromOutput (d, z, s, b, pos)"},
    {EBB_OP_BATCH_NORM_GRAD_FROM_OUTPUT, 1e-12, "double[5,3,4] d, double[5,3,4] z, double[3] b, double[3] pos", "double[3] s = {1, -2, 0.5}", "dx, ds, db = ai.ebb.BatchNormGradFromOutput <elu = 2.0> (d, z, s, b, pos)"},
    {EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT, NEAR, "float[2,4,8] d, float[2,4,8] y, float[8] b, float[2,4,1] pos", "float[8] s = {1, -2, 0.5, -0.5, 3, -1, 2, 1}", "dx, ds, db = ai.ebb.LayerNormGradFromOutput (d, y, s, b, pos)"},
    {EBB_OP_LAYER_NORM_GRAD_FROM_OUTPUT, NEAR, "float[2,4,3] d, float[2,4,3] y, float[4,3] b, float[2,1,1] pos", "float[4,3] s = {1, -2, 0.5, -0.5, 3, -1, 2, 1, 1, 1, 1, -1}", "dx, ds, db = ai.ebb.LayerNormGradFromOutput <axis = 1> (d, y, s, b, pos)"},
    {EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT, NEAR, "float[2,4,8] d, float[2,4,8] y, float[2,4,1] pos", "float[8] s = {1, -2, 0.5, -0.5, 3, -1, 2, 1}", "dx, ds = ai.ebb.RmsNormGradFromOutput (d, y, s, pos)"},
    {EBB_OP_RMS_NORM_GRAD_FROM_OUTPUT, NEAR, "float[2,4,3] d, float[2,4,3] y, float[2,1,1] pos", "float[4,3] s = {1, -2, 0.5, -0.5, 3, -1, 2, 1, 1, 1, 1, -1}", "dx, ds = ai.ebb.RmsNormGradFromOutput <axis = 1> (d, y, s, pos)"},

    {EBB_OP_EBB_DROPOUT, 0, "float[3,11] x", KEY, "y, m = ai.ebb.Dropout <ratio = 0.3, stream = 5> (x, key)"},
    {EBB_OP_EBB_DROPOUT, 0, "float[64,3] x", "int64[2] key = {-3, 4294967299}", "y, m = ai.ebb.Dropout <ratio = 0.5, stream = -1> (x, key)"},
    {EBB_OP_EBB_DROPOUT, 0, "double[9] x", KEY, "y, m = ai.ebb.Dropout <ratio = 0.1, stream = 4294967301> (x, key)"},
    {EBB_OP_EBB_DROPOUT, 0, "float[2] x", KEY, "y, m = ai.ebb.Dropout <ratio = 0.0, stream = 1> (x, key)"},
    {EBB_OP_EBB_DROPOUT, 0, "float[3,11] x", KEY_OF_PART, "y, m = ai.ebb.Dropout <ratio = 0.3, stream = 5> (x, key)"},
    {EBB_OP_EBB_DROPOUT, 0, "float[6,5] x", KEY_OF_PART, "y, m = ai.ebb.Dropout <ratio = 0.3, stream = 5, run = 5> (x, key)"},
    {EBB_OP_EBB_DROPOUT_PACKED, 0, "float[6,50] x", KEY_OF_PART, "y, b = ai.ebb.DropoutPacked <ratio = 0.3, stream = 5, run = 150> (x, key)"},
    {EBB_OP_EBB_DROPOUT_SEED_GRAD, 0, "float[130] d", KEY_OF_PART, "y = ai.ebb.DropoutSeedGrad <ratio = 0.5, stream = 0, run = 2> (d, key)"},
    {EBB_OP_EBB_DROPOUT_PACKED, 0, "float[3,11] x", KEY, "y, b = ai.ebb.DropoutPacked <ratio = 0.3, stream = 5> (x, key)"},
    {EBB_OP_EBB_DROPOUT_PACKED, 0, "double[64,17] x", KEY, "y, b = ai.ebb.DropoutPacked <ratio = 0.5, stream = -1> (x, key)"},
    {EBB_OP_EBB_DROPOUT_SEED_GRAD, 0, "float[3,11] d", KEY, "y = ai.ebb.DropoutSeedGrad <ratio = 0.3, stream = 5> (d, key)"},
    {EBB_OP_EBB_DROPOUT_SEED_GRAD, 0, "float[130] d", KEY, "y = ai.ebb.DropoutSeedGrad <ratio = 0.9, stream = 0> (d, key)"},
    {EBB_OP_DROPOUT_GRAD, 0, "float[4] d", "bool[4] m = {1, 0, 0, 1}, float r = {0.3}, bool t = {1}", "y = com.microsoft.DropoutGrad (d, m, r, t)"},
    {EBB_OP_DROPOUT_GRAD, 0, "float[4] d", "bool[4] m = {1, 0, 0, 1}, float r = {0.3}, bool t = {0}", "y = com.microsoft.DropoutGrad (d, m, r, t)"},

    {EBB_OP_SAMPLE_ROWS, 0, "float[9,4] h, float[9] pos", KEY, "r, w = ai.ebb.SampleRows <k = 4, stream = 5> (h, pos, key)"},
    {EBB_OP_SAMPLE_ROWS, 0, "float[3,1] h", "float[3] n = {0, 0, 0}, " KEY, "r, w = ai.ebb.SampleRows <k = 3, stream = 5> (h, n, key)"},
    {EBB_OP_SAMPLE_ROWS, 0, "", "float[5,1] h = {0, 9, 0, 4, 0}, float[5] n = {1, 1, 0, 1, 7}, " KEY, "r, w = ai.ebb.SampleRows <k = 4, stream = 5> (h, n, key)"},
    {EBB_OP_SAMPLE_ROWS, 0, "", "float[3,1] h = {0, 0, 0}, float[3] n = {1, 1, 0}, " KEY, "r, w = ai.ebb.SampleRows <k = 2, stream = 5> (h, n, key)"},
    {EBB_OP_SAMPLE_ROWS, 1e-14, "double[40,3] h, double[40] pos", KEY, "r, w = ai.ebb.SampleRows <k = 13, stream = -5> (h, pos, key)"},
    {EBB_OP_RANDOM_SKETCH, NEAR, "float[70,5] x", KEY, "y = ai.ebb.RandomSketch <rows = 7, stream = 5> (x, key)"},
    {EBB_OP_RANDOM_SKETCH, 1e-14, "double[31,3] x", KEY, "y = ai.ebb.RandomSketch <rows = 1, stream = 9> (x, key)"},

    {EBB_OP_PACK_SIGN, 0, "float[3,7] x", "", "b = ai.ebb.PackSign (x)"},
    {EBB_OP_PACK_SIGN, 0, "float[2,8] x", "", "b = ai.ebb.PackSign <low = -0.25, high = 0.5> (x)"},
    {EBB_OP_PACK_SIGN, 0, "float[1] x", "", "b = ai.ebb.PackSign (x)"},
    {EBB_OP_PACK_SIGN, 0, "", "float[5] x = {inf, -inf, 0, 1, nan}", "b = ai.ebb.PackSign (x)"},
    {EBB_OP_PACK_SIGN, 0, "", "float[5] x = {inf, -inf, 0, 1, nan}", "b = ai.ebb.PackSign <low = -inf, high = 0.5> (x)"},
    {EBB_OP_PACK_BITS, 0, "", "bool[11] x = {1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1}", "b = ai.ebb.PackBits (x)"},
    {EBB_OP_PACK_BITS, 0, "", "bool[2,4] x = {1, 0, 0, 1, 1, 1, 0, 1}", "b = ai.ebb.PackBits (x)"},
    {EBB_OP_STORE, 0, "", "float[3] x = {1, 2, 3}", "s = ai.ebb.Store <place = \"disk\"> (x)"},
    {EBB_OP_FETCH, 0, "", "int64[3] x = {1, 2, 3}", "f = ai.ebb.Fetch (x)"},
    {EBB_OP_WAIT, 0, "", "uint8[3] x = {1, 2, 3}, uint8[3] y = {4, 5, 6}", "d = ai.ebb.Wait (x, y)"},
    {EBB_OP_ALL_REDUCE, 0, "", "float[3] x = {1, 2, 3}", "y = ai.ebb.AllReduce <ranks = 1> (x)"},
    {EBB_OP_REDUCE_SCATTER, 0, "", "float[3,2] x = {1, 2, 3, 4, 5, 6}", "s = ai.ebb.ReduceScatter <ranks = 1> (x)"},
    {EBB_OP_START_ALL_REDUCE, 0, "", "float[3] x = {1, 2, 3}", "y = ai.ebb.StartAllReduce <ranks = 1> (x)"},
    {EBB_OP_START_REDUCE_SCATTER, 0, "", "float[3,2] x = {1, 2, 3, 4, 5, 6}", "s = ai.ebb.StartReduceScatter <ranks = 1> (x)"},
    {EBB_OP_SHARD, 0, "", "bool[3] x = {1, 0, 1}", "s = ai.ebb.Shard <ranks = 1> (x)"},
    {EBB_OP_ALL_GATHER, 0, "", "double[6] s = {1, 2, 3, 4, 5, 6}, double[3,2] x = {7, 8, 9, 7, 8, 9}", "y = ai.ebb.AllGather <ranks = 1> (s, x)"},
    {EBB_OP_UNSHARD, 0, "", "bool[6] s = {1, 0, 1, 1, 0, 0}", "y = ai.ebb.Unshard <ranks = 1, shape = [3, 2]> (s)"},
    {EBB_OP_START_UNSHARD, 0, "", "double[2] s = {1, 2}", "y = ai.ebb.StartUnshard <ranks = 1, shape = [1, 2]> (s)"},
    {EBB_OP_RANK, 0, "", "", "r = ai.ebb.Rank <ranks = 1> ()"},
    {EBB_OP_UNPACK_BITS, 0, "", "uint8[2] x = {165, 7}", "b = ai.ebb.UnpackBits <shape = [11]> (x)"},
    {EBB_OP_UNPACK_BITS, 0, "", "uint8[2] x = {165, 44}", "b = ai.ebb.UnpackBits <shape = [2, 1, 8]> (x)"},
    {EBB_OP_MASK_GRAD, 0, "", "float[4] d = {inf, nan, -inf, -1}, uint8[1] b = {1}", "y = ai.ebb.MaskGrad (d, b)"},
    {EBB_OP_MASK_GRAD, 0, "", "float[4] d = {inf, nan, -inf, -1}, uint8[1] b = {6}", "y = ai.ebb.MaskGrad <scale = 0.0, alpha = 1.0> (d, b)"},
    {EBB_OP_MASK_GRAD, 0, "float[11] d", "uint8[2] b = {255, 18}", "y = ai.ebb.MaskGrad <scale = 1.25> (d, b)"},
    {EBB_OP_MASK_GRAD, 0, "double[11] d", "uint8[2] b = {255, 18}", "y = ai.ebb.MaskGrad <scale = 1.1, alpha = -0.3> (d, b)"},
    {EBB_OP_MASK_GRAD, 0, "float[3,7] d", "uint8[3] b = {165, 60, 9}", "y = ai.ebb.MaskGrad (d, b)"},
    {EBB_OP_MASK_GRAD, 0, "float[16] d", "uint8[2] b = {255, 18}", "y = ai.ebb.MaskGrad <alpha = 0.125> (d, b)"},

    {EBB_OP_FEW_BIT, 0, "float[3,7] x", "float[7] b = {-0.8, -0.5, -0.2, 0, 0.2, 0.5, 0.8}", "c = ai.ebb.FewBit <bits = 3> (x, b)"},
    {EBB_OP_FEW_BIT, 0, "float[64] x", "float[1] b = {0.1}", "c = ai.ebb.FewBit (x, b)"},
    {EBB_OP_FEW_BIT, 0, "double[2,3,2] x", "double[3] b = {-0.5, 0, 0.5}", "c = ai.ebb.FewBit <bits = 2> (x, b)"},
    {EBB_OP_FEW_BIT, 0, "double[601] x", "double[15] b = {-0.8, -0.7, -0.6, -0.5, -0.4, -0.3, -0.2, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}", "c = ai.ebb.FewBit <bits = 4> (x, b)"},
    {EBB_OP_FEW_BIT, 0, "", "float[7] x = {inf, -inf, 0, 0.5, -0.5, 0.50001, nan}, float[3] b = {-0.5, 0, 0.5}", "c = ai.ebb.FewBit <bits = 2> (x, b)"},
    {EBB_OP_FEW_BIT_GRAD, 0, "float[3,3] d", "uint8[6] c = {1, 35, 69, 103, 129, 24}, float[8] l = {0, -0.1, 0.1, 0.4, 0.6, 0.9, 1.1, 1}", "x = ai.ebb.FewBitGrad <bits = 3> (d, c, l)"},
    {EBB_OP_FEW_BIT_GRAD, 0, "float[11] d", "uint8[2] c = {165, 3}, float[2] l = {0, 1}", "x = ai.ebb.FewBitGrad (d, c, l)"},
    {EBB_OP_FEW_BIT_GRAD, 0, "double[2,8] d", "uint8[4] c = {228, 27, 177, 78}, double[4] l = {0, 0.25, 0.75, 1}", "x = ai.ebb.FewBitGrad <bits = 2> (d, c, l)"},
    {EBB_OP_FEW_BIT_GRAD, 0, "double[5] d", "uint8[4] c = {228, 27, 177, 255}, double[16] l = {0, 0.25, 0.75, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}", "x = ai.ebb.FewBitGrad <bits = 4> (d, c, l)"},

    {EBB_OP_SGD, NEAR, "float lr, float[3,5] w, float[3,5] g", "", "n = ai.ebb.Sgd <weight_decay = 0.1> (lr, w, g)"},
    {EBB_OP_SGD, NEAR, "float lr, float[7] w, float[7] g", "", "n = ai.ebb.Sgd (lr, w, g)"},
    {EBB_OP_MOMENTUM, NEAR, "float lr, float[3,5] w, float[3,5] g, float[3,5] v", "int64 t = {0}", "n, vn = ai.onnx.preview.training.Momentum <alpha = 0.9, beta = 0.5, norm_coefficient = 0.1, mode = \"standard\"> (lr, t, w, g, v)"},
    {EBB_OP_MOMENTUM, NEAR, "float lr, float[5] w, float[5] g, float[5] v", "int64 t = {3}", "n, vn = ai.onnx.preview.training.Momentum <alpha = 0.9, beta = 0.5, norm_coefficient = 0.0, mode = \"standard\"> (lr, t, w, g, v)"},
    {EBB_OP_ADAMW, NEAR, "float lr, float[3,5] w, float[3,5] g, float[3,5] m, float[3,5] pos", "int64 t = {0}", "n, mn, vn = ai.ebb.AdamW (lr, t, w, g, m, pos)"},
    {EBB_OP_ADAMW, NEAR, "float lr, float[9] w, float[9] g, float[9] m, float[9] pos", "int64 t = {41}", "n, mn, vn = ai.ebb.AdamW <alpha = 0.8, beta = 0.99, epsilon = 0.001, weight_decay = 0.2> (lr, t, w, g, m, pos)"},

    {EBB_OP_ADAMW_LOW_BIT, 0, "float lr, float[5,8] w, float[5,8] g, float[2] pos", "int64 t = {0}, uint8[40] m = " BYTES_40 ", float[2] ms = {0.5, 0}, uint8[40] v = " BYTES_40 ", " SIGNED_256("float") ", " POSITIVE_256("float"), "n, mn, msn, vn, vsn = ai.ebb.AdamWLowBit <bits = 8, block = 32> (lr, t, w, g, m, ms, v, pos, mm, vm)"},
    {EBB_OP_ADAMW_LOW_BIT, 0, "float lr, float[39] w, float[39] g, float[2] pos", "int64 t = {41}, uint8[20] m = " BYTES_20 ", float[2] ms = {0.5, 2}, uint8[20] v = " BYTES_20 ", " SIGNED_16 ", " POSITIVE_16, "n, mn, msn, vn, vsn = ai.ebb.AdamWLowBit <alpha = 0.8, beta = 0.99, epsilon = 0.001, weight_decay = 0.2, bits = 4, block = 32> (lr, t, w, g, m, ms, v, pos, mm, vm)"},
    {EBB_OP_ADAMW_LOW_BIT, 0, "double lr, double[40] w, double[40] g, double[2] pos", "int64 t = {3}, uint8[40] m = " BYTES_40 ", double[2] ms = {0.5, 2}, uint8[40] v = " BYTES_40 ", " SIGNED_256("double") ", " POSITIVE_256("double"), "n, mn, msn, vn, vsn = ai.ebb.AdamWLowBit <bits = 8, block = 32> (lr, t, w, g, m, ms, v, pos, mm, vm)"},
    {EBB_OP_ADAMW_LOW_BIT, 0, "float lr", "int64 t = {0}, float[3] w = {1, 2, 3}, float[3] g = {0, 0, 0}, uint8[2] m = {0, 255}, float[1] ms = {0}, uint8[2] v = {9, 9}, float[1] vs = {0}, " SIGNED_16 ", " POSITIVE_16, "n, mn, msn, vn, vsn = ai.ebb.AdamWLowBit <bits = 4, block = 64> (lr, t, w, g, m, ms, v, vs, mm, vm)"},
    {EBB_OP_ADAMW_LOW_BIT_STOCHASTIC, 0, "float lr, float[5,8] w, float[5,8] g, float[2] pos", KEY ", int64 t = {0}, uint8[40] m = " BYTES_40 ", float[2] ms = {0.5, 0}, uint8[40] v = " BYTES_40 ", " SIGNED_256("float") ", " POSITIVE_256("float"), "n, mn, msn, vn, vsn = ai.ebb.AdamWLowBitStochastic <bits = 8, block = 32, stream = 5> (lr, t, w, g, m, ms, v, pos, mm, vm, key)"},
    {EBB_OP_ADAMW_LOW_BIT_STOCHASTIC, 0, "float lr, float[39] w, float[39] g, float[2] pos", KEY ", int64 t = {41}, uint8[20] m = " BYTES_20 ", float[2] ms = {0.5, 2}, uint8[20] v = " BYTES_20 ", " SIGNED_16 ", " POSITIVE_16, "n, mn, msn, vn, vsn = ai.ebb.AdamWLowBitStochastic <alpha = 0.8, beta = 0.99, epsilon = 0.001, weight_decay = 0.2, bits = 4, block = 32, stream = -1> (lr, t, w, g, m, ms, v, pos, mm, vm, key)"},
    {EBB_OP_ADAMW_LOW_BIT_STOCHASTIC, 0, "double lr, double[40] w, double[40] g, double[2] pos", KEY ", int64 t = {3}, uint8[40] m = " BYTES_40 ", double[2] ms = {0.5, 2}, uint8[40] v = " BYTES_40 ", " SIGNED_256("double") ", " POSITIVE_256("double"), "n, mn, msn, vn, vsn = ai.ebb.AdamWLowBitStochastic <bits = 8, block = 32> (lr, t, w, g, m, ms, v, pos, mm, vm, key)"},
    {EBB_OP_MOMENTUM_LOW_BIT, 0, "float lr, float[5,8] w, float[5,8] g", "int64 t = {0}, uint8[40] v = " BYTES_40 ", float[2] vs = {0.5, 2}, " SIGNED_256("float"), "n, vn, vsn = ai.ebb.MomentumLowBit <alpha = 0.9, beta = 0.5, norm_coefficient = 0.1, bits = 8, block = 32> (lr, t, w, g, v, vs, mm)"},
    {EBB_OP_MOMENTUM_LOW_BIT, 0, "float lr, float[39] w, float[39] g", "int64 t = {2}, uint8[20] v = " BYTES_20 ", float[1] vs = {0.5}, " SIGNED_16, "n, vn, vsn = ai.ebb.MomentumLowBit <alpha = 0.9, beta = 0.5, bits = 4, block = 64> (lr, t, w, g, v, vs, mm)"},
    {EBB_OP_MOMENTUM_LOW_BIT_STOCHASTIC, 0, "float lr, float[39] w, float[39] g", KEY ", int64 t = {2}, uint8[20] v = " BYTES_20 ", float[1] vs = {0.5}, " SIGNED_16, "n, vn, vsn = ai.ebb.MomentumLowBitStochastic <alpha = 0.9, beta = 0.5, norm_coefficient = 0.1, bits = 4, block = 64, stream = 3> (lr, t, w, g, v, vs, mm, key)"},

    {EBB_OP_RELU_GRAD, 0, "float[3,7] d, float[3,7] x", "", "y = com.microsoft.ReluGrad (d, x)"},
    {EBB_OP_LEAKY_RELU_GRAD, 0, "float[3,7] d, float[3,7] x", "", "y = com.microsoft.LeakyReluGrad <alpha = 0.2> (d, x)"},
    {EBB_OP_LEAKY_RELU_GRAD, 0, "double[3,7] d, double[3,7] x", "", "y = com.microsoft.LeakyReluGrad <alpha = 0.25> (d, x)"},
    {EBB_OP_SIGMOID_GRAD, NEAR, "float[3,7] d, float[3,7] x", "", "y = com.microsoft.SigmoidGrad (d, x)"},
    {EBB_OP_TANH_GRAD, NEAR, "float[3,7] d, float[3,7] x", "", "y = com.microsoft.TanhGrad (d, x)"},
    {EBB_OP_MS_GELU, NEAR, "float[3,7] x", "", "y = com.microsoft.Gelu (x)"},
    {EBB_OP_MS_GELU, 1e-12, "double[3,7] x", "", "y = com.microsoft.Gelu (x)"},
    {EBB_OP_MS_FAST_GELU, NEAR, "float[3,7] x", "", "y = com.microsoft.FastGelu (x)"},
    {EBB_OP_MS_FAST_GELU, 1e-12, "double[3,7] x", "", "y = com.microsoft.FastGelu (x)"},
    {EBB_OP_MS_QUICK_GELU, NEAR, "float[3,7] x", "", "y = com.microsoft.QuickGelu (x)"},
    {EBB_OP_MS_QUICK_GELU, NEAR, "float[3,7] x", "", "y = com.microsoft.QuickGelu <alpha = 1.0> (x)"},
    {EBB_OP_FUSED_MATMUL, NEAR, "float[3,7] a, float[7,2] b", "", "y = com.microsoft.FusedMatMul <alpha = 0.5> (a, b)"},
    {EBB_OP_FUSED_MATMUL, NEAR, "float[2,4,3] a, float[2,5,4] b", "", "y = com.microsoft.FusedMatMul <transA = 1, transB = 1> (a, b)"},
    {EBB_OP_FUSED_MATMUL, NEAR, "float[2,3,3,4] a, float[1,3,5,4] b", "", "y = com.microsoft.FusedMatMul <alpha = -2.0, transB = 1> (a, b)"},
    {EBB_OP_FUSED_MATMUL, 1e-12, "double[4,1] a, double[3,4,2] b", "", "y = com.microsoft.FusedMatMul <transA = 1> (a, b)"},
    {EBB_OP_GELU_GRAD, NEAR, "float[3,7] d, float[3,7] x", "", "y = com.microsoft.GeluGrad (d, x)"},
    {EBB_OP_GELU_GRAD, 1e-12, "double[3,7] d, double[3,7] x", "", "y = com.microsoft.GeluGrad (d, x)"},
    {EBB_OP_FAST_GELU_GRAD, NEAR, "float[3,7] d, float[3,7] x", "", "y = com.microsoft.FastGeluGrad (d, x)"},
    {EBB_OP_FAST_GELU_GRAD, 1e-12, "double[3,7] d, double[3,7] x", "", "y = com.microsoft.FastGeluGrad (d, x)"},
    {EBB_OP_QUICK_GELU_GRAD, NEAR, "float[3,7] d, float[3,7] x", "", "y = com.microsoft.QuickGeluGrad (d, x)"},
    {EBB_OP_QUICK_GELU_GRAD, NEAR, "float[3,7] d, float[3,7] x", "", "y = com.microsoft.QuickGeluGrad <alpha = 1.0> (d, x)"},

    {EBB_OP_MISH_GRAD, NEAR, "float[3,7] d, float[3,7] x", "", "y = ai.ebb.MishGrad (d, x)"},
    {EBB_OP_MISH_GRAD, NEAR, "float[10] d", "float[10] x = {-90, -20, -6, -3, 0, 3, 19.5, 20, 60, 300}", "y = ai.ebb.MishGrad (d, x)"},
    {EBB_OP_MISH_GRAD, 1e-12, "double[10] d", "double[10] x = {-700, -20, -6, -3, 0, 3, 19.5, 20, 60, 900}", "y = ai.ebb.MishGrad (d, x)"},
    {EBB_OP_GELU_GRAD_FROM_OUTPUT, NEAR, "float[21] d", "float[21] y = {-0.1699712, -0.17, -0.169, -0.16, -0.12, -0.08, -0.04, -0.01, -0.001, -1e-7, 0, -0.17, -0.16, -0.1, 0, 0.3, 0.9, 1.99, 2.5, 5, 40}, uint8[3] b = {0, 248, 31}", "x = ai.ebb.GeluGradFromOutput (d, y, b)"},
    {EBB_OP_GELU_GRAD_FROM_OUTPUT, 1e-12, "double[21] d", "double[21] y = {-0.1699712, -0.17, -0.169, -0.16, -0.12, -0.08, -0.04, -0.01, -0.001, -1e-7, 0, -0.17, -0.16, -0.1, 0, 0.3, 0.9, 1.99, 2.5, 5, 40}, uint8[3] b = {0, 248, 31}", "x = ai.ebb.GeluGradFromOutput (d, y, b)"},
    {EBB_OP_GELU_GRAD_FROM_OUTPUT, NEAR, "float[2,3,5] d, float[2,3,5] y", "uint8[4] b = {165, 60, 9, 63}", "x = ai.ebb.GeluGradFromOutput (d, y, b)"},
    {EBB_OP_FAST_GELU_GRAD_FROM_OUTPUT, NEAR, "float[21] d", "float[21] y = {-0.1699712, -0.17, -0.169, -0.16, -0.12, -0.08, -0.04, -0.01, -0.001, -1e-7, 0, -0.17, -0.16, -0.1, 0, 0.3, 0.9, 1.99, 2.5, 5, 40}, uint8[3] b = {0, 248, 31}", "x = ai.ebb.FastGeluGradFromOutput (d, y, b)"},
    {EBB_OP_FAST_GELU_GRAD_FROM_OUTPUT, 1e-12, "double[21] d", "double[21] y = {-0.1699712, -0.17, -0.169, -0.16, -0.12, -0.08, -0.04, -0.01, -0.001, -1e-7, 0, -0.17, -0.16, -0.1, 0, 0.3, 0.9, 1.99, 2.5, 5, 40}, uint8[3] b = {0, 248, 31}", "x = ai.ebb.FastGeluGradFromOutput (d, y, b)"},
    {EBB_OP_FAST_GELU_GRAD_FROM_OUTPUT, NEAR, "float[2,3,5] d, float[2,3,5] y", "uint8[4] b = {165, 60, 9, 63}", "x = ai.ebb.FastGeluGradFromOutput (d, y, b)"},
    {EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT, NEAR, "float[21] d", "float[21] y = {-0.1699712, -0.17, -0.169, -0.16, -0.12, -0.08, -0.04, -0.01, -0.001, -1e-7, 0, -0.17, -0.16, -0.1, 0, 0.3, 0.9, 1.99, 2.5, 5, 40}, uint8[3] b = {0, 248, 31}", "x = ai.ebb.QuickGeluGradFromOutput (d, y, b)"},
    {EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT, 1e-12, "double[21] d", "double[21] y = {-0.1699712, -0.17, -0.169, -0.16, -0.12, -0.08, -0.04, -0.01, -0.001, -1e-7, 0, -0.17, -0.16, -0.1, 0, 0.3, 0.9, 1.99, 2.5, 5, 40}, uint8[3] b = {0, 248, 31}", "x = ai.ebb.QuickGeluGradFromOutput (d, y, b)"},
    {EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT, NEAR, "float[2,3,5] d, float[2,3,5] y", "uint8[4] b = {165, 60, 9, 63}", "x = ai.ebb.QuickGeluGradFromOutput (d, y, b)"},
    {EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT, NEAR, "float[21] d", "float[21] y = {-0.3088434, -0.3, -0.169, -0.16, -0.12, -0.08, -0.04, -0.01, -0.001, -1e-7, 0, -0.2784, -0.26, -0.1, 0, 0.3, 0.9, 1.99, 2.5, 5, 40}, uint8[3] b = {0, 248, 31}", "x = ai.ebb.QuickGeluGradFromOutput <alpha = 1.0> (d, y, b)"},
    {EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT, 1e-12, "double[21] d", "double[21] y = {-0.3088434, -0.3, -0.169, -0.16, -0.12, -0.08, -0.04, -0.01, -0.001, -1e-7, 0, -0.2784, -0.26, -0.1, 0, 0.3, 0.9, 1.99, 2.5, 5, 40}, uint8[3] b = {0, 248, 31}", "x = ai.ebb.QuickGeluGradFromOutput <alpha = 1.0> (d, y, b)"},
    {EBB_OP_QUICK_GELU_GRAD_FROM_OUTPUT, NEAR, "float[2,3,5] d, float[2,3,5] y", "uint8[4] b = {165, 60, 9, 63}", "x = ai.ebb.QuickGeluGradFromOutput <alpha = 1.0> (d, y, b)"},
    {EBB_OP_MISH_GRAD_FROM_OUTPUT, NEAR, "float[21] d", "float[21] y = {-0.3088434, -0.3, -0.169, -0.16, -0.12, -0.08, -0.04, -0.01, -0.001, -1e-7, 0, -0.2784, -0.26, -0.1, 0, 0.3, 0.9, 1.99, 2.5, 5, 40}, uint8[3] b = {0, 248, 31}", "x = ai.ebb.MishGradFromOutput (d, y, b)"},
    {EBB_OP_MISH_GRAD_FROM_OUTPUT, 1e-12, "double[21] d", "double[21] y = {-0.3088434, -0.3, -0.169, -0.16, -0.12, -0.08, -0.04, -0.01, -0.001, -1e-7, 0, -0.2784, -0.26, -0.1, 0, 0.3, 0.9, 1.99, 2.5, 5, 40}, uint8[3] b = {0, 248, 31}", "x = ai.ebb.MishGradFromOutput (d, y, b)"},
    {EBB_OP_MISH_GRAD_FROM_OUTPUT, NEAR, "float[2,3,5] d, float[2,3,5] y", "uint8[4] b = {165, 60, 9, 63}", "x = ai.ebb.MishGradFromOutput (d, y, b)"},

    {EBB_OP_SOFTMAX_GRAD, NEAR, "float[3,7] d, float[3,7] y", "", "x = com.microsoft.SoftmaxGrad_13 (d, y)"},
    {EBB_OP_SOFTMAX_GRAD, NEAR, "float[3,7,2] d, float[3,7,2] y", "", "x = com.microsoft.SoftmaxGrad_13 <axis = 1> (d, y)"},
    {EBB_OP_LOG_SOFTMAX_GRAD, NEAR, "float[3,7] d, float[3,7] y", "", "x = com.microsoft.LogSoftmaxGrad_13 (d, y)"},
    {EBB_OP_LOG_SOFTMAX_GRAD, NEAR, "float[3,7,2] d, float[3,7,2] y", "", "x = com.microsoft.LogSoftmaxGrad_13 <axis = 0> (d, y)"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, NEAR, "float d, float[4,3] p", "int64[4] t = {2, 0, 1, 1}", "x = com.microsoft.SoftmaxCrossEntropyLossGrad (d, p, t)"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, NEAR, "float d, float[4,3] p", "int64[4] t = {2, -100, 1, 1}", "x = com.microsoft.SoftmaxCrossEntropyLossGrad <ignore_index = -100> (d, p, t)"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, NEAR, "float d, float[4,3] p", "int64[4] t = {-1, -1, -1, -1}", "x = com.microsoft.SoftmaxCrossEntropyLossGrad <ignore_index = -1> (d, p, t)"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, NEAR, "float d, float[4,3] p, float[3] pos", "int64[4] t = {2, 0, 1, 1}", "x = com.microsoft.SoftmaxCrossEntropyLossGrad <ignore_index = 0> (d, p, t, pos)"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, NEAR, "float d, float[4,3] p", "int64[4] t = {2, 0, 1, 1}", "x = com.microsoft.SoftmaxCrossEntropyLossGrad <reduction = \"sum\", ignore_index = 1> (d, p, t)"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, NEAR, "float[4] d, float[4,3] p, float[3] pos", "int64[4] t = {2, 0, 1, 1}", "x = com.microsoft.SoftmaxCrossEntropyLossGrad <reduction = \"none\", ignore_index = 1> (d, p, t, pos)"},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD, NEAR, "float d, float[2,3,2] p, float[3] pos", "int32[2,2] t = {2, 0, 1, 1}", "x = com.microsoft.SoftmaxCrossEntropyLossGrad <reduction = \"mean\"> (d, p, t, pos)"},

    {EBB_OP_SCORES_CROSS_ENTROPY, NEAR, "float d, float[4,3] x", "int64[4] t = {2, -100, 1, 1}", "l, x1 = ai.ebb.ScoresCrossEntropy <ignore_index = -100> (d, x, t)"},
    {EBB_OP_SCORES_CROSS_ENTROPY, 0.004, "float d, bfloat16[4,3] x, float[3] pos", "int64[4] t = {2, 0, 1, 1}", "l, x1 = ai.ebb.ScoresCrossEntropy <reduction = \"sum\"> (d, x, t, pos)"},
    {EBB_OP_SCORES_CROSS_ENTROPY, 0.001, "float[2,2] d, float16[2,3,2] x, float[3] pos", "int32[2,2] t = {2, 0, 1, 1}", "l, x1 = ai.ebb.ScoresCrossEntropy <reduction = \"none\", ignore_index = 0> (d, x, t, pos)"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, NEAR, "float[4,5] x, float[5,3] w", "int64[4] t = {2, 0, 1, 1}", "l, dx, dw, db = ai.ebb.LinearCrossEntropy (x, w, \"\", t)"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, 0.008, "bfloat16[4,5] x, bfloat16[5,3] w, float[3] b", "int64[4] t = {2, 0, 1, 1}", "l, dx, dw, db = ai.ebb.LinearCrossEntropy <rows = 3> (x, w, b, t)"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, NEAR, "float[2,3,5] x, float[7,5] w, float[7] b", "int64[2,3] t = {2, -100, 6, 1, 0, -100}", "l, dx, dw, db = ai.ebb.LinearCrossEntropy <transB = 1, rows = 4, ignore_index = -100> (x, w, b, t)"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, NEAR, "float[2,3,5] x, float[5,7] w, float[7] b", "int64[2,3] t = {2, 3, 6, 1, 0, 3}", "l, dx, dw, db = ai.ebb.LinearCrossEntropy <rows = 1, alpha = 0.5, reduction = \"sum\", ignore_index = 3> (x, w, b, t)"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, NEAR, "float[6,5] x, float[5,7] w, float[7] b, float[7] pos", "int32[6] t = {2, 3, 6, 1, 0, 3}", "l, dx, dw, db = ai.ebb.LinearCrossEntropy <rows = 4, alpha = -1.5, ignore_index = 3> (x, w, b, t, pos)"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, NEAR, "float[6,5] x, float[7,5] w, float[7] pos", "int64[6] t = {2, 3, 6, 1, 0, 3}", "l, dx, dw, db = ai.ebb.LinearCrossEntropy <rows = 2, transB = 1, reduction = \"sum\"> (x, w, \"\", t, pos)"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, 1e-12, "double[6,5] x, double[7,5] w, double[7] b, double[7] pos", "int64[6] t = {2, 3, 6, 1, 0, 3}", "l, dx, dw, db = ai.ebb.LinearCrossEntropy <to = 11, rows = 2, transB = 1, alpha = 0.25> (x, w, b, t, pos)"},
    {EBB_OP_LINEAR_CROSS_ENTROPY, NEAR, "float[40,80] x, float[80,600] w, float[600] b", "int64[40] t = {2, 3, 6, 1, 0, 3, 599, 3, 3, 7, 2, 3, 6, 1, 0, 3, 599, 3, 3, 7, 2, 3, 6, 1, 0, 3, 599, 3, 3, 7, 2, 3, 6, 1, 0, 3, 599, 3, 3, 7}", "l, dx, dw, db = ai.ebb.LinearCrossEntropy <rows = 16> (x, w, b, t)"},

    {EBB_OP_LSTM_TRAINING, NEAR, "float[5,2,3] x, float[1,16,3] w, float[1,16,4] r, float[1,32] b, float[1,2,4] h, float[1,2,4] c", "", "ha, he, ce, ca, gs = com.microsoft.LSTMTraining <hidden_size = 4> (x, w, r, b, \"\", h, c)"},
    {EBB_OP_LSTM_TRAINING, NEAR, "float[5,2,3] x, float[1,16,3] w, float[1,16,4] r", "", "ha, he, ce, ca, gs = com.microsoft.LSTMTraining <hidden_size = 4, direction = \"reverse\"> (x, w, r)"},
    {EBB_OP_LSTM_TRAINING, NEAR, "float[5,2,3] x, float[2,16,3] w, float[2,16,4] r, float[2,32] b", "", "ha, he, ce, ca, gs = com.microsoft.LSTMTraining <hidden_size = 4, direction = \"bidirectional\"> (x, w, r, b)"},
    {EBB_OP_DET_GRAD, NEAR, "float[2,3] d, float[2,3,4,4] x", "", "y = ai.ebb.DetGrad (d, x)"},
    {EBB_OP_DET_GRAD, NEAR, "double[3] d, double[3,1,1] x", "", "y = ai.ebb.DetGrad (d, x)"},
    {EBB_OP_DET_GRAD, NEAR, "float d", "float[3,3] x = {1, 2, 3, 2, 4, 6, 0, 1, 1}", "y = ai.ebb.DetGrad (d, x)"},
    {EBB_OP_INVERSE, NEAR, "double[2,3,4,4] x", "", "y = com.microsoft.Inverse (x)"},
    {EBB_OP_INVERSE, NEAR, "float16[1,1] x", "", "y = com.microsoft.Inverse (x)"},
    {EBB_OP_INVERSE, NEAR, "", "float[3,3] x = {0, 1, 3, 2, 4, 6, 0, 1, 1}", "y = com.microsoft.Inverse (x)"},
    {EBB_OP_LINEAR_ATTENTION_GRAD, NEAR, "float[2,5,12] dy, float[2,2,4,3] ds, float[2,5,16] q, float[2,5,8] k, float[2,5,6] v, float[2,2,4,3] s, float[2,5,8] g, float[2,5,2] b", "", "dq, dk, dv, ds0, dg, db = ai.ebb.LinearAttentionGrad <q_num_heads = 4, kv_num_heads = 2, delta = 1> (dy, ds, q, k, v, s, g, b)"},
    {EBB_OP_LINEAR_ATTENTION_GRAD, NEAR, "double[1,3,3] dy, double[1,1,4,3] ds, double[1,3,4] q, double[1,3,4] k, double[1,3,3] v, double[1,1,4,3] s, double[1,3,4] g, double[1,3,1] b", "", "dq, dk, dv, ds0, dg, db = ai.ebb.LinearAttentionGrad <q_num_heads = 1, kv_num_heads = 1> (dy, ds, q, k, v, s, g, b)"},
    {EBB_OP_LSTM_GRAD, NEAR, "float[5,2,3] x, float[1,16,3] w, float[1,16,4] r, float[1,2,4] h, float[1,2,4] c, float[5,1,2,4] ha, float[5,1,2,4] ca, float[5,1,2,16] gs, float[5,1,2,4] da, float[1,2,4] dh, float[1,2,4] dc", "", "dx, dw, dr, db, dh0, dc0 = com.microsoft.LSTMGrad <hidden_size = 4> (x, w, r, \"\", h, c, ha, ca, gs, da, dh, dc)"},
    {EBB_OP_LSTM_GRAD, NEAR, "float[5,2,3] x, float[1,16,3] w, float[1,16,4] r, float[5,1,2,4] ha, float[5,1,2,4] ca, float[5,1,2,16] gs, float[1,2,4] dh", "", "dx, dw, dr, db, dh0, dc0 = com.microsoft.LSTMGrad <hidden_size = 4, direction = \"reverse\"> (x, w, r, \"\", \"\", \"\", ha, ca, gs, \"\", dh)"},
    {EBB_OP_LSTM_GRAD, NEAR, "float[5,2,3] x, float[2,16,3] w, float[2,16,4] r, float[2,2,4] h, float[2,2,4] c, float[5,2,2,4] ha, float[5,2,2,4] ca, float[5,2,2,16] gs, float[5,2,2,4] da", "", "dx, dw, dr, db = com.microsoft.LSTMGrad <hidden_size = 4, direction = \"bidirectional\"> (x, w, r, \"\", h, c, ha, ca, gs, da)"},

    {EBB_OP_RNN_GRAD, NEAR, "float[5,2,3] x, float[1,4,3] w, float[1,4,4] r, float[1,8] b, float[1,2,4] h, float[5,1,2,4] y, float[5,1,2,4] dy, float[1,2,4] dh", "", "dx, dw, dr, db, dh0 = ai.ebb.RnnGrad <hidden_size = 4> (x, w, r, b, \"\", h, y, dy, dh)"},
    {EBB_OP_RNN_GRAD, NEAR, "float[5,2,3] x, float[1,4,3] w, float[1,4,4] r, float[5,1,2,4] y, float[1,2,4] dh", "", "dx, dw, dr, db, dh0 = ai.ebb.RnnGrad <hidden_size = 4, direction = \"reverse\"> (x, w, r, \"\", \"\", \"\", y, \"\", dh)"},
    {EBB_OP_RNN_GRAD, NEAR, "float[5,2,3] x, float[2,4,3] w, float[2,4,4] r, float[2,8] b, float[2,2,4] h, float[5,2,2,4] y, float[5,2,2,4] dy, float[2,2,4] dh", "int32[2] n = {5, 2}", "dx, dw, dr, db, dh0 = ai.ebb.RnnGrad <hidden_size = 4, direction = \"bidirectional\", clip = 0.5> (x, w, r, b, n, h, y, dy, dh)"},
    {EBB_OP_RNN_GRAD, NEAR, "float[5,2,3] x, float[2,4,3] w, float[2,4,4] r, float[5,2,2,4] y, float[2,2,4] dh", "int32[2] n = {0, 3}", "dx, dw, dr, db, dh0 = ai.ebb.RnnGrad <hidden_size = 4, direction = \"bidirectional\"> (x, w, r, \"\", n, \"\", y, \"\", dh)"},
    {EBB_OP_RNN_GRAD, NEAR, "float[5,2,3] x, float[2,4,3] w, float[2,4,4] r, float[5,2,2,4] y, float[5,2,2,4] dy", "", "dx, dw, dr, db, dh0 = ai.ebb.RnnGrad <hidden_size = 4, direction = \"bidirectional\", activations = [\"Relu\", \"Tanh\"]> (x, w, r, \"\", \"\", \"\", y, dy)"},
    {EBB_OP_GRU_GRAD, NEAR, "float[5,2,3] x, float[1,12,3] w, float[1,12,4] r, float[1,24] b, float[1,2,4] h, float[5,1,2,4] y, float[5,1,2,4] dy, float[1,2,4] dh", "", "dx, dw, dr, db, dh0 = ai.ebb.GruGrad <hidden_size = 4> (x, w, r, b, \"\", h, y, dy, dh)"},
    {EBB_OP_GRU_GRAD, NEAR, "float[5,2,3] x, float[1,12,3] w, float[1,12,4] r, float[5,1,2,4] y, float[1,2,4] dh", "", "dx, dw, dr, db, dh0 = ai.ebb.GruGrad <hidden_size = 4, direction = \"reverse\"> (x, w, r, \"\", \"\", \"\", y, \"\", dh)"},
    {EBB_OP_GRU_GRAD, NEAR, "float[5,2,3] x, float[2,12,3] w, float[2,12,4] r, float[2,24] b, float[2,2,4] h, float[5,2,2,4] y, float[5,2,2,4] dy, float[2,2,4] dh", "int32[2] n = {5, 2}", "dx, dw, dr, db, dh0 = ai.ebb.GruGrad <hidden_size = 4, direction = \"bidirectional\", clip = 0.5> (x, w, r, b, n, h, y, dy, dh)"},
    {EBB_OP_GRU_GRAD, NEAR, "float[5,2,3] x, float[2,12,3] w, float[2,12,4] r, float[5,2,2,4] y, float[2,2,4] dh", "int32[2] n = {0, 3}", "dx, dw, dr, db, dh0 = ai.ebb.GruGrad <hidden_size = 4, direction = \"bidirectional\"> (x, w, r, \"\", n, \"\", y, \"\", dh)"},
    {EBB_OP_GRU_GRAD, NEAR, "float[5,2,3] x, float[1,12,3] w, float[1,12,4] r, float[1,24] b, float[1,2,4] h, float[5,1,2,4] y, float[5,1,2,4] dy, float[1,2,4] dh", "", "dx, dw, dr, db, dh0 = ai.ebb.GruGrad <hidden_size = 4, linear_before_reset = 1> (x, w, r, b, \"\", h, y, dy, dh)"},
    {EBB_OP_GRU_GRAD, NEAR, "float[5,2,3] x, float[1,12,3] w, float[1,12,4] r, float[5,1,2,4] y, float[1,2,4] dh", "", "dx, dw, dr, db, dh0 = ai.ebb.GruGrad <hidden_size = 4, direction = \"reverse\", linear_before_reset = 1> (x, w, r, \"\", \"\", \"\", y, \"\", dh)"},
    {EBB_OP_GRU_GRAD, NEAR, "float[5,2,3] x, float[2,12,3] w, float[2,12,4] r, float[2,24] b, float[2,2,4] h, float[5,2,2,4] y, float[5,2,2,4] dy, float[2,2,4] dh", "int32[2] n = {5, 2}", "dx, dw, dr, db, dh0 = ai.ebb.GruGrad <hidden_size = 4, direction = \"bidirectional\", linear_before_reset = 1, clip = 0.5> (x, w, r, b, n, h, y, dy, dh)"},
    {EBB_OP_GRU_GRAD, NEAR, "float[5,2,3] x, float[2,12,3] w, float[2,12,4] r, float[5,2,2,4] y, float[2,2,4] dh", "int32[2] n = {0, 3}", "dx, dw, dr, db, dh0 = ai.ebb.GruGrad <hidden_size = 4, direction = \"bidirectional\", linear_before_reset = 1> (x, w, r, \"\", n, \"\", y, \"\", dh)"},
    {EBB_OP_EBB_LSTM_GRAD, NEAR, "float[5,2,3] x, float[1,16,3] w, float[1,16,4] r, float[1,32] b, float[1,2,4] h, float[1,2,4] c, float[1,12] p, float[5,1,2,4] y, float[5,1,2,4] dy, float[1,2,4] dh, float[1,2,4] dc", "", "dx, dw, dr, db, dh0, dc0, dp = ai.ebb.LstmGrad <hidden_size = 4> (x, w, r, b, \"\", h, c, p, y, dy, dh, dc)"},
    {EBB_OP_EBB_LSTM_GRAD, NEAR, "float[5,2,3] x, float[1,16,3] w, float[1,16,4] r, float[1,12] p, float[5,1,2,4] y, float[1,2,4] dc", "", "dx, dw, dr, db, dh0, dc0, dp = ai.ebb.LstmGrad <hidden_size = 4, direction = \"reverse\", input_forget = 1> (x, w, r, \"\", \"\", \"\", \"\", p, y, \"\", \"\", dc)"},
    {EBB_OP_EBB_LSTM_GRAD, NEAR, "float[5,2,3] x, float[2,16,3] w, float[2,16,4] r, float[2,32] b, float[2,2,4] h, float[2,2,4] c, float[2,12] p, float[5,2,2,4] y, float[5,2,2,4] dy, float[2,2,4] dh, float[2,2,4] dc", "int32[2] n = {5, 2}", "dx, dw, dr, db, dh0, dc0, dp = ai.ebb.LstmGrad <hidden_size = 4, direction = \"bidirectional\", clip = 0.5> (x, w, r, b, n, h, c, p, y, dy, dh, dc)"},
    {EBB_OP_EBB_LSTM_GRAD, NEAR, "float[5,2,3] x, float[2,16,3] w, float[2,16,4] r, float[5,2,2,4] y, float[2,2,4] dh, float[2,2,4] dc", "int32[2] n = {0, 3}", "dx, dw, dr, db, dh0, dc0 = ai.ebb.LstmGrad <hidden_size = 4, direction = \"bidirectional\", input_forget = 1> (x, w, r, \"\", n, \"\", \"\", \"\", y, \"\", dh, dc)"},

    {EBB_OP_SLICE_GRAD, 0, "float[2,3] d", "int64[2] shape = {5, 6}, int64[2] s = {1, 0}, int64[2] e = {5, 6}, int64[2] a = {0, 1}, int64[2] k = {2, 2}", "x = com.microsoft.SliceGrad (d, shape, s, e, a, k)"},
    {EBB_OP_SLICE_GRAD, 0, "float[2,3] d", "int64[2] shape = {5, 6}, int64[2] s = {1, 3}, int64[2] e = {3, 6}", "x = com.microsoft.SliceGrad (d, shape, s, e)"},
    {EBB_OP_SLICE_GRAD, 0, "float[5,3] d", "int64[2] shape = {5, 6}, int64[1] s = {-1}, int64[1] e = {-7}, int64[1] a = {-1}, int64[1] k = {-2}", "x = com.microsoft.SliceGrad (d, shape, s, e, a, k)"},
    {EBB_OP_GATHER_GRAD, NEAR, "float[2,3,4] d", "int64[2] shape = {5, 4}, int64[2,3] i = {0, 3, 3, -1, 0, 3}", "x = com.microsoft.GatherGrad (shape, i, d)"},
    {EBB_OP_GATHER_GRAD, NEAR, "float[4,3] d", "int64[2] shape = {4, 5}, int64[3] i = {2, 2, 0}", "x = com.microsoft.GatherGrad <axis = 1> (shape, i, d)"},
    {EBB_OP_GATHER_GRAD, NEAR, "float[4] d", "int64[2] shape = {5, 4}, int64 i = {3}", "x = com.microsoft.GatherGrad (shape, i, d)"},
    {EBB_OP_GATHER_ELEMENTS_GRAD, NEAR, "float[2,3] d", "int64[2] shape = {4, 3}, int64[2,3] i = {0, 3, 1, 0, 2, -1}", "x = com.microsoft.GatherElementsGrad (d, shape, i)"},
    {EBB_OP_GATHER_ELEMENTS_GRAD, NEAR, "float[2,3] d", "int64[2] shape = {2, 5}, int64[2,3] i = {0, 4, 4, 1, 1, 1}", "x = com.microsoft.GatherElementsGrad <axis = -1> (d, shape, i)"},

    {EBB_OP_EBB_ATTENTION, NEAR, "float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v", OPEN, "y, m, s = ai.ebb.Attention <k_perm = [0, 1, 3, 2], scale = 0.5> (q, k, v, keep, bias)"},
    {EBB_OP_EBB_ATTENTION, NEAR, "float[2,5,4] q, float[2,4,5] k, float[2,5,3] v", OPEN, "y, m, s = ai.ebb.Attention <k_perm = [0, 1, 2], causal = 1> (q, k, v, keep, bias)"},
    {EBB_OP_EBB_ATTENTION, NEAR, "float[3,4] q, float[5,4] k, float[5,2] v, float[3,5] bias", "bool[5] keep = {1, 0, 1, 1, 0}", "y, m, s = ai.ebb.Attention <k_perm = [1, 0], fill = -1.5> (q, k, v, keep, bias)"},
    {EBB_OP_EBB_ATTENTION, NEAR, "float[2,2,3,4] q, float[2,2,4,2] k, float[2,2,2,3] v, float[2,1,3,1] bias", "bool[2,1,3,2] keep = {1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 0, 0}", "y, m, s = ai.ebb.Attention <k_perm = [0, 1, 2, 3], fill = -3.4028234663852886e38> (q, k, v, keep, bias)"},
    {EBB_OP_EBB_ATTENTION, NEAR, "float[2,2,3,4] q, float[2,2,4,2] k, float[2,2,2,3] v", "float bias = {0}, bool[2,1,3,2] keep = {1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 0, 0}", "y, m, s = ai.ebb.Attention <k_perm = [0, 1, 2, 3], guard = 1> (q, k, v, keep, bias)"},
    {EBB_OP_EBB_ATTENTION, NEAR, "float[2,3,4] q, float[2,4,3] k, float[2,3,3] v, float[3,3] bias", "bool[2,1,3] keep = {1, 0, 1, 0, 1, 1}", "y, m, s = ai.ebb.Attention <k_perm = [0, 1, 2], causal = 1, replace = 1, fill = -0.5> (q, k, v, keep, bias)"},
    {EBB_OP_EBB_ATTENTION, 1e-12, "double[2,4,3] q, double[2,5,3] k, double[2,5,3] v", "double bias = {0.25}, bool[4,1] keep = {1, 0, 1, 1}", "y, m, s = ai.ebb.Attention <k_perm = [0, 2, 1], fill = -2.0> (q, k, v, keep, bias)"},
    {EBB_OP_EBB_ATTENTION, 0.002, "float16[2,3,5,4] q, float16[2,3,7,4] k, float16[2,3,7,6] v", "float16 bias = {0.25}, bool[7] keep = {1, 0, 1, 1, 0, 1, 1}", "y, m, s = ai.ebb.Attention <k_perm = [0, 1, 3, 2], scale = 0.5> (q, k, v, keep, bias)"},
    {EBB_OP_EBB_ATTENTION_DROPOUT, 0.016, "bfloat16[3,4] q, bfloat16[4,3] k, bfloat16[3,2] v", "bfloat16 bias = {0.25}, bool keep = {1}, " KEY, "y, m, s = ai.ebb.AttentionDropout <k_perm = [0, 1], causal = 1, ratio = 0.3> (q, k, v, keep, bias, key)"},
    {EBB_OP_EBB_ATTENTION_GRAD, 0.004, "float16[2,3,5,6] d, float16[2,3,5,4] q, float16[2,3,7,4] k, float16[2,3,7,6] v, float[2,3,5,1] m, float[2,3,5,1] pos", "float16 bias = {0.25}, bool keep = {1}", "dq, dk, dv = ai.ebb.AttentionGrad <k_perm = [0, 1, 3, 2], scale = 0.5> (d, q, k, v, keep, bias, m, pos)"},
    {EBB_OP_EBB_ATTENTION_DROPOUT, NEAR, "float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v", OPEN ", " KEY, "y, m, s = ai.ebb.AttentionDropout <k_perm = [0, 1, 3, 2], scale = 0.5, ratio = 0.3, stream = 5> (q, k, v, keep, bias, key)"},
    {EBB_OP_EBB_ATTENTION_DROPOUT, NEAR, "float[1,3,4] q, float[1,4,300] k, float[1,300,2] v", OPEN ", " KEY, "y, m, s = ai.ebb.AttentionDropout <k_perm = [0, 1, 2], causal = 1, ratio = 0.1, stream = -1> (q, k, v, keep, bias, key)"},
    {EBB_OP_EBB_ATTENTION_DROPOUT, NEAR, "float[3,4] q, float[4,3] k, float[3,2] v", OPEN ", " KEY, "y, m, s = ai.ebb.AttentionDropout <k_perm = [0, 1], ratio = 0.0> (q, k, v, keep, bias, key)"},
    {EBB_OP_EBB_ATTENTION_DROPOUT, NEAR, "float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v", OPEN ", " KEY_OF_PART, "y, m, s = ai.ebb.AttentionDropout <k_perm = [0, 1, 3, 2], scale = 0.5, ratio = 0.3, stream = 5> (q, k, v, keep, bias, key)"},
    {EBB_OP_EBB_ATTENTION_DROPOUT_GRAD, NEAR, "float[2,3,5,6] d, float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,1] m, float[2,3,5,1] pos", OPEN ", " KEY_OF_PART, "dq, dk, dv = ai.ebb.AttentionDropoutGrad <k_perm = [0, 1, 3, 2], scale = 0.5, ratio = 0.3, stream = 5, run = 105> (d, q, k, v, keep, bias, m, pos, key)"},
    {EBB_OP_EBB_ATTENTION_GRAD, NEAR, "float[2,3,5,6] d, float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,1] m, float[2,3,5,1] pos", OPEN, "dq, dk, dv = ai.ebb.AttentionGrad <k_perm = [0, 1, 3, 2], scale = 0.5> (d, q, k, v, keep, bias, m, pos)"},
    {EBB_OP_EBB_ATTENTION_GRAD, NEAR, "float[2,3,5,6] d, float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,1] m, float[2,3,5,1] pos, float[2,5,3,6] y", OPEN, "dq, dk, dv = ai.ebb.AttentionGrad <k_perm = [0, 1, 3, 2], y_perm = [0, 2, 1, 3], scale = 0.5> (d, q, k, v, keep, bias, m, pos, y)"},
    {EBB_OP_EBB_ATTENTION_GRAD, NEAR, "float[2,3,2] d, float[2,3,4] q, float[2,4,3] k, float[2,3,2] v, float[2,3,1] m, float[2,3,1] pos, float[3,3] bias", "bool[2,1,3] keep = {1, 0, 1, 0, 1, 1}", "dq, dk, dv = ai.ebb.AttentionGrad <k_perm = [0, 1, 2], causal = 1, replace = 1, fill = -0.5> (d, q, k, v, keep, bias, m, pos)"},
    {EBB_OP_EBB_ATTENTION_GRAD, NEAR, "float[3,2] d, float[3,4] q, float[4,3] k, float[3,2] v", "float bias = {0}, bool[3,3] keep = {1, 0, 1, 0, 0, 0, 1, 1, 0}, float[3,1] m = {0.25, -inf, 0.5}, float[3,1] s = {2, nan, 1}", "dq, dk, dv = ai.ebb.AttentionGrad <k_perm = [0, 1], causal = 1, guard = 1> (d, q, k, v, keep, bias, m, s)"},
    {EBB_OP_EBB_ATTENTION_GRAD, 1e-12, "double[2,4,3] d, double[2,4,3] q, double[2,5,3] k, double[2,5,3] v, double[2,4,1] m, double[2,4,1] pos", "double bias = {0.25}, bool[4,1] keep = {1, 0, 1, 1}", "dq, dk, dv = ai.ebb.AttentionGrad <k_perm = [0, 2, 1], fill = -2.0> (d, q, k, v, keep, bias, m, pos)"},
    {EBB_OP_EBB_ATTENTION_DROPOUT_GRAD, NEAR, "float[2,3,5,6] d, float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,1] m, float[2,3,5,1] pos", OPEN ", " KEY, "dq, dk, dv = ai.ebb.AttentionDropoutGrad <k_perm = [0, 1, 3, 2], scale = 0.5, ratio = 0.3, stream = 5> (d, q, k, v, keep, bias, m, pos, key)"},
    {EBB_OP_EBB_ATTENTION_DROPOUT_GRAD, 0.016, "bfloat16[2,3,5,6] d, bfloat16[2,3,5,4] q, bfloat16[2,3,7,4] k, bfloat16[2,3,7,6] v, float[2,3,5,1] m, float[2,3,5,1] pos", "bool keep = {1}, bfloat16 bias = {0}, " KEY, "dq, dk, dv = ai.ebb.AttentionDropoutGrad <k_perm = [0, 1, 3, 2], scale = 0.5, ratio = 0.3, stream = 5> (d, q, k, v, keep, bias, m, pos, key)"},
    {EBB_OP_EBB_ATTENTION_DROPOUT_GRAD, NEAR, "float[1,3,2] d, float[1,3,4] q, float[1,4,300] k, float[1,300,2] v, float[1,3,1] m, float[1,3,1] pos", OPEN ", " KEY, "dq, dk, dv = ai.ebb.AttentionDropoutGrad <k_perm = [0, 1, 2], causal = 1, ratio = 0.5, stream = 9> (d, q, k, v, keep, bias, m, pos, key)"},
    {EBB_OP_QUANTIZE, 0, "float[3,5,29] x", KEY, "codes, range = ai.ebb.Quantize <bits = 1, group = 64, stream = 7> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "float[3,5,29] x", KEY, "codes, range = ai.ebb.Quantize <bits = 2, group = 64, stream = 7> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "float[3,5,29] x", KEY, "codes, range = ai.ebb.Quantize <bits = 4, group = 64, stream = 7> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "float[3,5,29] x", KEY, "codes, range = ai.ebb.Quantize <bits = 8, group = 64, stream = 7> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "float[3,7] x", KEY, "codes, range = ai.ebb.Quantize <bits = 2> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "float[2,300] x", KEY, "codes, range = ai.ebb.Quantize <bits = 8, stream = 2147483647> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "double[2,300] x", KEY, "codes, range = ai.ebb.Quantize <bits = 4, group = 8> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "float[70] x", KEY, "codes, range = ai.ebb.Quantize <bits = 1, group = 8, axis = 0> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "float[1,3,41] x", KEY, "codes, range = ai.ebb.Quantize <bits = 2, group = 16, axis = 2> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "float[5] x", KEY, "codes, range = ai.ebb.Quantize <bits = 4> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "float x", KEY, "codes, range = ai.ebb.Quantize <bits = 4, axis = 0> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "", "float[2,16] x = {0,0,0,0,0,0,0,0, 3,3,3,3,3,3,3,3, 0.3,0.3,0.3,0.3,0.3,0.3,0.3,0.3, -0.3,-0.3,-0.3,-0.3,-0.3,-0.3,-0.3,-0.3}, " KEY, "codes, range = ai.ebb.Quantize <bits = 2, group = 8> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "", "float[2,16] x = {nan,0,0,1,0,0,0,0, 3,inf,3,3,3,3,3,3, 0.3,1e38,0.3,0.3,0.3,-1e38,0.3,0.3, -0.3,-inf,-0.3,-0.3,-0.3,1000000,-0.3,-0.3}, " KEY, "codes, range = ai.ebb.Quantize <bits = 8, group = 8> (x, key)"},
    {EBB_OP_QUANTIZE, 0, "", "float[1,16] x = {1000.1,1000.2,1000.3,1000.4,1001,1002,1003,999, 3.39e38,-3.39e38,3,3,3,3,3,3}, " KEY, "codes, range = ai.ebb.Quantize <bits = 4, group = 8> (x, key)"},
    {EBB_OP_QUANTIZE_RUNNING, 0, "float[3,4,24] x", KEY ", float[4,2] state = {0, -1, -0.25, 1, -2, 4, 0.5, 0}", "codes, range, next = ai.ebb.QuantizeRunning <group = 24, stream = 3> (x, key, state)"},
    {EBB_OP_QUANTIZE_RUNNING, 0, "double[2,3,14] x", KEY ", float[2,2] state = {0, -1, -0.25, 1}", "codes, range, next = ai.ebb.QuantizeRunning <group = 7, decay = 0.5> (x, key, state)"},
    {EBB_OP_QUANTIZE_RUNNING, 0, "float[2,40] x", KEY ", float[1,2] state = {-0.5, 0.75}", "codes, range, next = ai.ebb.QuantizeRunning <group = 20, bits = 2> (x, key, state)"},
    {EBB_OP_QUANTIZE_RUNNING, 0, "", "float[1,16] x = {1,2,nan,4,5,6,7,8,9,10,11,12,13,14,15,inf}, " KEY ", float[2,2] state = {0, -1, 10, 4}", "codes, range, next = ai.ebb.QuantizeRunning <group = 8> (x, key, state)"},
    {EBB_OP_SPLIT_FREQUENCY, 0, "float[2,3,11,13] x", KEY, "low, codes, range = ai.ebb.SplitFrequency <bits = 2, block = 4, stream = 9> (x, key)"},
    {EBB_OP_SPLIT_FREQUENCY, 0, "float[1,2,16,32] x", KEY, "low, codes, range = ai.ebb.SplitFrequency <bits = 4> (x, key)"},
    {EBB_OP_SPLIT_FREQUENCY, 0, "double[2,2,7,7] x", KEY, "low, codes, range = ai.ebb.SplitFrequency <bits = 1> (x, key)"},
    {EBB_OP_SPLIT_FREQUENCY, 0, "", "float[1,2,2,2] x = {1,2,3,4,5,nan,7,8}, " KEY, "low, codes, range = ai.ebb.SplitFrequency <bits = 8, block = 1> (x, key)"},
    {EBB_OP_SPLIT_FREQUENCY_DECODE, 0, "", "bfloat16[1,2,2,2] low = {1.0, -1.5, 0.25, 3.0, 5.0, 6.0, 7.0, 8.0}, uint8[1,2,3] codes = {27,228,3,99,5,2}, bfloat16[1,2,2] range = {-1.0, 0.5, -2.0, 0.25}", "y = ai.ebb.SplitFrequencyDecode <bits = 2, block = 2, shape = [1,2,4,3]> (low, codes, range)"},
    {EBB_OP_SPLIT_FREQUENCY_DECODE, 0, "", "bfloat16[1,2,1,1] low = {1.0, -1.5}, uint8[1,2,2] codes = {27,228,3,99}, bfloat16[1,2,2] range = {-1.0, 0.5, -2.0, 0.25}", "y = ai.ebb.SplitFrequencyDecode <bits = 4, shape = [1,2,2,2], to = 11> (low, codes, range)"},
    {EBB_OP_DEQUANTIZE, 0, "", "uint8[2,3] codes = {0,255,7,1,2,3}, bfloat16[2,1,2] range = {-1.5, 0.25, 100.0, 0.0}", "y = ai.ebb.Dequantize <bits = 8, shape = [2,3], to = 1> (codes, range)"},
    {EBB_OP_DEQUANTIZE, 0, "", "uint8[2,5] codes = {16,255,7,1,2,3,77,99,200,13}, bfloat16[2,2,2] range = {-1.5, 0.25, 100.0, 0.0, 1.0, 2.0, 3.0, 0.125}", "y = ai.ebb.Dequantize <bits = 4, shape = [2,3,3], to = 1, group = 8> (codes, range)"},
    {EBB_OP_DEQUANTIZE, 0, "", "uint8[2,5] codes = {16,255,7,1,2,3,77,99,200,13}, bfloat16[2,3,2] range = {-1.5, 0.25, 100.0, 0.0, 1.0, 2.0, 3.0, 0.125, 5.0, 6.0, 7.0, 8.0}", "y = ai.ebb.Dequantize <bits = 2, shape = [6,6], to = 11, group = 8> (codes, range)"},
    {EBB_OP_DEQUANTIZE, 0, "", "uint8[1,2] codes = {165,3}, bfloat16[1,2,2] range = {-1.5, 0.25, 9e9, 0.0}", "y = ai.ebb.Dequantize <bits = 1, shape = [2,5], to = 1, group = 8> (codes, range)"},
};
// clang-format on

static const char *label; // of the present case, for messages

static inline void ok(ebb_status status, const char *what)
{
    if (status != NULL)
        fail_msg("%s: %s: %s", label, what, ebb_status_text(status));
}

/* ---- one node ---- */

static inline void give(ebb_graph *g, ebb_value v, const ebb_tensor *t)
{
    ebb_value_info *info = ebb_value_of(g, v);
    ebb_tensor *copy = ebb_arena_zeroed(&g->model->arena, 1, sizeof *copy);
    assert_non_null(copy);
    *copy = *t;
    info->tensor = copy;
    info->flags = EBB_IS_INITIALIZER;
    assert_null(ebb_value_set_type(g, v, &t->type));
}

/* The call of a node whose types are known, with the values of its inputs. */
static inline void make_call(ebb_call *call, ebb_graph *g, ebb_node n)
{
    ebb_arena *arena = &g->model->arena;
    ok(ebb_call_make(call, arena, g, n, 0), "call");
    for (uint32_t i = 0; i < call->input_count; i++) {
        const ebb_tensor *t = ebb_value_constant(g, ebb_in(g, n, i));
        call->in[i].constant = t;
        if (t == NULL)
            continue;
        call->in[i].data = ebb_arena_zeroed(arena, t->bytes + 1, 1); // aligned, as kernels want it
        assert_non_null(call->in[i].data);
        memcpy(call->in[i].data, t->data, t->bytes);
    }
}

/* All phases by the call's kernel. */
static inline void run_call(ebb_call *call, ebb_arena *arena)
{
    if (call->kernel->workspace != NULL)
        ok(call->kernel->workspace(call, &call->workspace_bytes), "workspace");
    call->workspace = ebb_arena_zeroed(arena, call->workspace_bytes + 64, 1);
    for (uint32_t o = 0; o < call->output_count; o++)
        if (call->out[o].type.dtype != EBB_NONE)
            call->out[o].data = ebb_arena_zeroed(arena, call->out[o].bytes + 1, 1);
    if (call->kernel->prepare != NULL)
        ok(call->kernel->prepare(call), "prepare");
    ok(call->kernel->run(call), "run");
    if (call->kernel->release != NULL && call->state != NULL)
        call->kernel->release(call);
}

/* Its outputs become constants, which is what the next node's shapes may depend on. */
static inline void compute(ebb_graph *g, ebb_node n)
{
    const ebb_backend *const *plain;
    ebb_call call;
    ok(ebb_backends("plain", &plain), "plain");
    ok(ebb_infer_node(g, n), "types");
    make_call(&call, g, n);
    ok(ebb_pick(&call, plain), "kernel");
    run_call(&call, &g->model->arena);
    for (uint32_t o = 0; o < call.output_count; o++)
        if (call.out[o].type.dtype != EBB_NONE)
            give(g, ebb_out(g, n, o),
                 &(ebb_tensor){.type = call.out[o].type,
                               .data = call.out[o].data,
                               .bytes = call.out[o].bytes});
}

/* ---- a case ---- */

static inline void draw_inputs(ebb_graph *g)
{
    uint64_t state = 1;
    for (size_t i = 0; i < g->input_count; i++) {
        ebb_value_info *info = ebb_value_of(g, g->inputs[i]);
        size_t bytes;
        int64_t count;
        assert_true(ebb_type_bytes(info->type, &bytes));
        assert_true(ebb_type_elements(info->type, &count));
        void *data = ebb_arena_zeroed(&g->model->arena, bytes + 1, 1);
        bool positive = strncmp(ebb_value_name(g, g->inputs[i]), "pos", 3) == 0;
        for (int64_t e = 0; e < count; e++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            double x = (double)(state >> 40) / 8388608.0 - 1.0;
            x = positive ? 1.0 + x / 2 : x;
            if (info->type->dtype == EBB_F64)
                ((double *)data)[e] = x;
            else if (info->type->dtype == EBB_F16)
                ((uint16_t *)data)[e] = ebb_float_to_half((float)x);
            else if (info->type->dtype == EBB_BF16)
                ((uint16_t *)data)[e] = ebb_float_to_bf16((float)x);
            else
                ((float *)data)[e] = (float)x;
        }
        give(g, g->inputs[i], &(ebb_tensor){.type = *info->type, .data = data, .bytes = bytes});
    }
}

static inline void compare(const ebb_tensor *kernel, const ebb_tensor *body, double tolerance,
                           uint32_t o)
{
    int64_t count;
    assert_non_null(body);
    assert_int_equal(kernel->type.dtype, body->type.dtype);
    if (!ebb_type_same_shape(&kernel->type, &body->type))
        fail_msg("%s: output %u has another shape", label, o);
    assert_true(ebb_type_elements(&kernel->type, &count));
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(ebb_tensor_double(kernel, i)))
            largest = fmax(largest, fabs(ebb_tensor_double(kernel, i)));
    for (int64_t i = 0; i < count; i++) {
        double a = ebb_tensor_double(kernel, i), b = ebb_tensor_double(body, i);
        if (a == b || (isnan(a) && isnan(b))) // infinities have no difference
            continue;
        if (!(fabs(a - b) <= tolerance * (1 + largest)))
            fail_msg("%s: element %lld of output %u is %.9g, expected %.9g", label, (long long)i, o,
                     a, b);
    }
}

/* The graph of a case, with its inputs drawn: one node. */
static inline ebb_model *open_case(const body_case *c, const char *inputs, int64_t opset)
{
    static char place[512];
    char text[8192], outputs[64];
    ebb_model *model;
    (void)snprintf(place, sizeof place, "opset %lld, %s", (long long)opset, c->call);
    label = place;
    (void)snprintf(outputs, sizeof outputs, "%.*s", (int)(strchr(c->call, '=') - c->call - 1),
                   c->call);
    (void)snprintf(text, sizeof text,
                   "<ir_version: 8, opset_import: [\"\" : %lld, \"ai.ebb\" : 1, "
                   "\"com.microsoft\" : 1, \"ai.onnx.preview.training\" : 1]>\n"
                   "g (%s) => (%s) <%s> { %s }",
                   (long long)opset, inputs, outputs, c->constants, c->call);
    ok(ebb_text_parse_model(&model, text), text);
    draw_inputs(model->graph);
    return model;
}
