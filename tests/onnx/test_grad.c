/* test_grad.c: every gradient rule against central differences, in float64, by the plain kernels.
 *
 * A case is one node. Its outputs are weighed with random numbers and added up: L = sum w y. The
 * rule gets dy = w and gives dx; for each input a random direction v is drawn and dx . v compared
 * with (L(x + h v) - L(x - h v)) / 2h. A row of the operator table that has a rule and no case here
 * fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "exec/call.h"
#include "onnx/infer.h"
#include "onnx/ops/ops.h"

/* Inputs, one word each:
 *   d[2,3]  differentiable, magnitude 0.2 to 1.2      c[2,3]  the same, a constant
 *   p[2,3]  differentiable, 0.3 to 1.5                q[2,3]  the same, a constant
 *   n5[2]   int64 below 5    b[2]  bool    i{1,2}  int64 list    i[2,1]{0,1}  with a shape
 *   j(3)    int64 scalar     s(0.5)  float64 scalar    f(0.5)  float32 scalar    t(1)  bool scalar
 *   -       absent
 * Outputs, one letter each: 1 weighed, w there but not weighed, 0 absent. */
typedef struct grad_case {
    ebb_op op;
    const char *inputs, *attrs, *outputs;
    int opset; /* 0: 20 */
} grad_case;

// clang-format off
static const grad_case cases[] = {
    {EBB_OP_ADD, "d[2,3] d[2,3]", "", "1", 0},
    {EBB_OP_ADD, "d[2,3] d[3]", "", "1", 0},
    {EBB_OP_ADD, "d[2,1,3] d[4,1]", "", "1", 0},
    {EBB_OP_ADD, "d[] d[2,3]", "", "1", 0},
    {EBB_OP_MUL, "d[2,3] d[1,3]", "", "1", 0},
    {EBB_OP_MUL, "d[3] d[2,1]", "", "1", 0},
    {EBB_OP_MUL, "c[2,3] d[3]", "", "1", 0},
    {EBB_OP_SUB, "d[2,3] d[3]", "", "1", 0},
    {EBB_OP_SUB, "d[1] d[2,3]", "", "1", 0},
    {EBB_OP_DIV, "d[2,3] d[3]", "", "1", 0},
    {EBB_OP_DIV, "d[3] p[2,1]", "", "1", 0},
    {EBB_OP_DIV, "c[2,3] p[2,3]", "", "1", 0},
    {EBB_OP_POW, "d[2,3] s(2)", "", "1", 0},
    {EBB_OP_POW, "d[2,3] s(3)", "", "1", 0},
    {EBB_OP_POW, "d[2,3] j(3)", "", "1", 0},
    {EBB_OP_POW, "d[2,3] s(1)", "", "1", 0},
    {EBB_OP_POW, "p[2,3] s(0.5)", "", "1", 0},
    {EBB_OP_POW, "p[2,3] s(-1.5)", "", "1", 0},
    {EBB_OP_POW, "p[2,3] d[3]", "", "1", 0},
    {EBB_OP_POW, "p[3] d[2,1]", "", "1", 0},
    {EBB_OP_POW, "d[2,3] i{2,0,1}", "", "1", 0},
    {EBB_OP_MAX, "d[2,3] d[3]", "", "1", 0},
    {EBB_OP_MAX, "d[2,3] d[3] d[2,1]", "", "1", 0},
    {EBB_OP_MAX, "d[4]", "", "1", 0},
    {EBB_OP_MIN, "d[2,3] d[2,3]", "", "1", 0},
    {EBB_OP_MIN, "d[1,3] d[2,1] c[]", "", "1", 0},
    {EBB_OP_SUM, "d[2,3] d[3] d[1,1]", "", "1", 0},
    {EBB_OP_SUM, "d[2,3]", "", "1", 0},
    {EBB_OP_MEAN, "d[2,3] d[3] d[2,1]", "", "1", 0},
    {EBB_OP_NEG, "d[2,3]", "", "1", 0},
    {EBB_OP_ABS, "d[2,3]", "", "1", 0},
    {EBB_OP_EXP, "d[2,3]", "", "1", 0},
    {EBB_OP_LOG, "p[2,3]", "", "1", 0},
    {EBB_OP_SQRT, "p[2,3]", "", "1", 0},
    {EBB_OP_RECIPROCAL, "d[2,3]", "", "1", 0},
    {EBB_OP_ERF, "d[2,3]", "", "1", 0},
    {EBB_OP_SIN, "d[2,3]", "", "1", 0},
    {EBB_OP_COS, "d[2,3]", "", "1", 0},
    {EBB_OP_TAN, "d[2,3]", "", "1", 0},
    {EBB_OP_ATAN, "d[2,3]", "", "1", 0},
    {EBB_OP_RELU, "d[3,4]", "", "1", 0},
    {EBB_OP_LEAKY_RELU, "d[3,4]", "", "1", 0},
    {EBB_OP_LEAKY_RELU, "d[3,4]", "alpha=0.25", "1", 0},
    {EBB_OP_LEAKY_RELU, "d[3,4]", "alpha=-0.25", "1", 0},
    {EBB_OP_THRESHOLDED_RELU, "d[3,4]", "", "1", 0},
    {EBB_OP_THRESHOLDED_RELU, "d[3,4]", "alpha=0.25", "1", 0},
    {EBB_OP_THRESHOLDED_RELU, "d[3,4]", "alpha=-0.25", "1", 0},
    {EBB_OP_ELU, "d[3,4]", "", "1", 0},
    {EBB_OP_ELU, "d[3,4]", "alpha=0.5", "1", 0},
    {EBB_OP_ELU, "d[3,4]", "alpha=-0.5", "1", 0},
    {EBB_OP_SIGMOID, "d[3,4]", "", "1", 0},
    {EBB_OP_TANH, "d[3,4]", "", "1", 0},
    {EBB_OP_HARD_SIGMOID, "d[3,4]", "", "1", 0},
    {EBB_OP_HARD_SIGMOID, "d[3,4]", "alpha=0.75 beta=0.25", "1", 0},
    {EBB_OP_HARD_SWISH, "d[3,4]", "", "1", 0},
    {EBB_OP_SOFTPLUS, "d[3,4]", "", "1", 0},
    {EBB_OP_SOFTSIGN, "d[3,4]", "", "1", 0},
    {EBB_OP_GELU, "d[3,4]", "", "1", 0},
    {EBB_OP_GELU, "d[3,4]", "approximate=tanh", "1", 0},
    {EBB_OP_MISH, "d[3,4]", "", "1", 0},
    {EBB_OP_CLIP, "d[3,4] s(-0.5) s(0.75)", "", "1", 0},
    {EBB_OP_CLIP, "d[3,4] - s(0.5)", "", "1", 0},
    {EBB_OP_CLIP, "d[3,4] s(0)", "", "1", 0},
    {EBB_OP_CLIP, "d[3,4]", "", "1", 0},
    {EBB_OP_CLIP, "d[3,4]", "min=-0.5 max=0.5", "1", 10},
    {EBB_OP_PRELU, "d[2,3,4] d[3,1]", "", "1", 0},
    {EBB_OP_PRELU, "d[2,3] d[1]", "", "1", 0},
    {EBB_OP_WHERE, "b[2,3] d[2,3] d[3]", "", "1", 0},
    {EBB_OP_WHERE, "b[2,1] d[] d[1,3]", "", "1", 0},
    {EBB_OP_CAST, "d[2,3]", "to=11", "1", 0},
    {EBB_OP_CAST_LIKE, "d[2,3] c[1]", "", "1", 0},
    {EBB_OP_MS_GELU, "d[3,4]", "", "1", 0},
    {EBB_OP_MS_FAST_GELU, "d[3,4]", "", "1", 0},
    {EBB_OP_MS_QUICK_GELU, "d[3,4]", "alpha=1.0", "1", 0},
    {EBB_OP_MS_QUICK_GELU, "d[3,4]", "", "1", 0},

    {EBB_OP_RELU_GRAD, "d[2,3] c[2,3]", "", "1", 0},
    {EBB_OP_LEAKY_RELU_GRAD, "d[2,3] c[2,3]", "alpha=0.25", "1", 0},
    {EBB_OP_SIGMOID_GRAD, "d[2,3] d[2,3]", "", "1", 0},
    {EBB_OP_TANH_GRAD, "d[2,3] d[2,3]", "", "1", 0},
    {EBB_OP_SOFTMAX_GRAD, "d[2,3,4] d[2,3,4]", "axis=1", "1", 0},
    {EBB_OP_SOFTMAX_GRAD, "d[2,3] d[2,3]", "", "1", 0},

    {EBB_OP_REDUCE_SUM, "d[2,3,4] i{1}", "keepdims=0", "1", 0},
    {EBB_OP_REDUCE_SUM, "d[2,3,4] i{-1,0}", "", "1", 0},
    {EBB_OP_REDUCE_SUM, "d[2,3]", "keepdims=0", "1", 0},
    {EBB_OP_REDUCE_SUM, "d[2,3]", "noop_with_empty_axes=1", "1", 0},
    {EBB_OP_REDUCE_MEAN, "d[2,3,4] i{-1}", "", "1", 0},
    {EBB_OP_REDUCE_MEAN, "d[2,3,4]", "axes=[0,2] keepdims=0", "1", 17},
    {EBB_OP_REDUCE_MEAN, "d[2,3]", "", "1", 0},
    {EBB_OP_REDUCE_MAX, "d[2,3,4] i{1}", "keepdims=0", "1", 0},
    {EBB_OP_REDUCE_MAX, "d[2,3,4]", "axes=[-1]", "1", 17},
    {EBB_OP_REDUCE_MIN, "d[2,3,4] i{0,2}", "", "1", 0},
    {EBB_OP_REDUCE_PROD, "d[2,3,4] i{1}", "keepdims=0", "1", 0},
    {EBB_OP_REDUCE_PROD, "d[2,3]", "", "1", 0},
    {EBB_OP_REDUCE_PROD, "d[2,3,2]", "axes=[0,-1] keepdims=0", "1", 17},
    {EBB_OP_REDUCE_L2, "d[2,3,4] i{1}", "keepdims=0", "1", 0},
    {EBB_OP_REDUCE_SUM_SQUARE, "d[2,3,4] i{1}", "", "1", 0},
    {EBB_OP_REDUCE_LOG_SUM_EXP, "d[2,3,4] i{-1}", "keepdims=0", "1", 0},
    {EBB_OP_CUM_SUM, "d[2,4] j(1)", "", "1", 0},
    {EBB_OP_CUM_SUM, "d[3,2] j(0)", "exclusive=1", "1", 0},
    {EBB_OP_CUM_SUM, "d[2,4] j(-1)", "exclusive=1 reverse=1", "1", 0},

    {EBB_OP_MATMUL, "d[2,3] d[3,4]", "", "1", 0},
    {EBB_OP_MATMUL, "d[5,2,3] d[3,4]", "", "1", 0},
    {EBB_OP_MATMUL, "d[2,3] d[5,3,4]", "", "1", 0},
    {EBB_OP_MATMUL, "d[2,1,2,3] d[5,3,4]", "", "1", 0},
    {EBB_OP_MATMUL, "d[5,2,3] d[5,3,4]", "", "1", 0},
    {EBB_OP_MATMUL, "d[3] d[3,4]", "", "1", 0},
    {EBB_OP_MATMUL, "d[2,3] d[3]", "", "1", 0},
    {EBB_OP_MATMUL, "d[3] d[3]", "", "1", 0},
    {EBB_OP_MATMUL, "d[5,2,3] d[3]", "", "1", 0},
    {EBB_OP_MATMUL, "d[3] d[5,3,4]", "", "1", 0},
    {EBB_OP_FUSED_MATMUL, "d[2,3] d[4,3]", "transB=1", "1", 0},
    {EBB_OP_FUSED_MATMUL, "d[3,2] d[3,4]", "transA=1 alpha=0.5", "1", 0},
    {EBB_OP_FUSED_MATMUL, "d[3,2] d[4,3]", "transA=1 transB=1", "1", 0},
    {EBB_OP_FUSED_MATMUL, "d[5,2,3] d[4,3]", "transB=1 alpha=2.0", "1", 0},
    {EBB_OP_FUSED_MATMUL, "d[5,3,2] d[3,4]", "transA=1", "1", 0},
    {EBB_OP_FUSED_MATMUL, "d[5,3,2] d[2,5,4,3]", "transA=1 transB=1 alpha=0.5", "1", 0},
    {EBB_OP_FUSED_MATMUL, "d[2,5,2,3] d[2,1,3,4]", "alpha=0.25", "1", 0},
    {EBB_OP_FUSED_MATMUL, "d[3,2] d[5,3,4]", "transA=1", "1", 0},
    {EBB_OP_GEMM, "d[2,3] d[3,4] d[4]", "", "1", 0},
    {EBB_OP_GEMM, "d[2,3] d[4,3] d[2,1]", "transB=1 alpha=0.5 beta=2.0", "1", 0},
    {EBB_OP_GEMM, "d[3,2] d[3,4] d[]", "transA=1", "1", 0},
    {EBB_OP_GEMM, "d[3,2] d[4,3]", "transA=1 transB=1 alpha=2.0", "1", 0},
    {EBB_OP_GEMM, "d[2,3] d[3,4] d[2,4]", "beta=0.5", "1", 0},

    {EBB_OP_CONV, "d[2,3,5,6] d[4,3,3,3] d[4]", "pads=[1,1,1,1]", "1", 0},
    {EBB_OP_CONV, "d[2,4,6,5] d[6,2,3,2]", "group=2 strides=[2,1] pads=[1,0,0,1]", "1", 0},
    {EBB_OP_CONV, "d[1,3,7,7] d[3,1,3,3]", "group=3 dilations=[2,2] strides=[2,2] pads=[2,2,2,2]", "1", 0},
    {EBB_OP_CONV, "d[2,2,8] d[3,2,3] d[3]", "strides=[3] auto_pad=SAME_UPPER", "1", 0},
    {EBB_OP_CONV_NHWC, "d[2,5,6,3] d[4,3,3,3] d[4]", "pads=[1,1,1,1]", "1", 0},
    {EBB_OP_CONV_NHWC, "d[2,6,5,4] d[6,3,2,2]", "group=2 strides=[2,1] pads=[1,0,0,1]", "1", 0},
    {EBB_OP_CONV_TRANSPOSE_NHWC, "d[2,4,4,3] d[3,3,3,2] d[2]", "", "1", 0},
    {EBB_OP_CONV_TRANSPOSE_NHWC, "d[1,3,3,4] d[4,3,3,3]", "group=2 strides=[2,2] pads=[1,1,1,1] output_padding=[3,2]", "1", 0},
    {EBB_OP_CONV_TRANSPOSE, "d[2,3,4,4] d[3,2,3,3] d[2]", "", "1", 0},
    {EBB_OP_CONV_TRANSPOSE, "d[1,4,3,3] d[4,3,3,3]", "group=2 strides=[2,2] pads=[1,1,1,1] output_padding=[3,2]", "1", 0},
    {EBB_OP_CONV_TRANSPOSE, "d[1,4,3,3] d[4,3,3,3]", "group=2 strides=[2,2] pads=[1,1,1,1] output_padding=[1,1]", "1", 0},
    {EBB_OP_MAX_POOL, "d[2,3,6,6]", "kernel_shape=[2,2] strides=[2,2]", "1", 0},
    {EBB_OP_MAX_POOL, "d[1,2,7,7]", "kernel_shape=[3,3] strides=[2,2] pads=[1,1,1,1]", "1", 0},
    {EBB_OP_AVERAGE_POOL, "d[2,3,6,6]", "kernel_shape=[2,2] strides=[2,2]", "1", 0},
    {EBB_OP_AVERAGE_POOL, "d[1,2,7,7]", "kernel_shape=[3,3] strides=[2,2] pads=[1,1,1,1]", "1", 0},
    {EBB_OP_AVERAGE_POOL, "d[1,2,7,7]", "kernel_shape=[3,3] strides=[2,2] pads=[1,1,1,1] count_include_pad=1", "1", 0},
    {EBB_OP_GLOBAL_AVERAGE_POOL, "d[2,3,4,5]", "", "1", 0},
    {EBB_OP_GLOBAL_MAX_POOL, "d[2,3,4,5]", "", "1", 0},

    {EBB_OP_BATCH_NORMALIZATION, "d[4,3,2,2] d[3] d[3] c[3] q[3]", "", "1", 0},
    {EBB_OP_BATCH_NORMALIZATION, "d[4,3] d[3] d[3] c[3] q[3]", "epsilon=0.125", "1", 0},
    {EBB_OP_BATCH_NORMALIZATION, "d[4,3,2,2] d[3] d[3] c[3] q[3]", "training_mode=1", "1ww", 0},
    {EBB_OP_BATCH_NORMALIZATION, "d[4,3,2,2] d[3] d[3] c[3] q[3]", "training_mode=1", "1ww", 15},
    {EBB_OP_BATCH_NORM_TRAINING, "d[4,3,2,2] d[3] d[3] c[3] q[3]", "", "1ww", 0},
    {EBB_OP_BATCH_NORM_TRAINING, "d[6,3] d[3] d[3] c[3] q[3]", "epsilon=0.01 unbiased=0", "1ww", 0},
    {EBB_OP_LAYER_NORMALIZATION, "d[2,3,4] d[4] d[4]", "stash_type=11", "1", 0},
    {EBB_OP_LAYER_NORMALIZATION, "d[2,3,4] d[4]", "stash_type=11 epsilon=0.01", "1", 0},
    {EBB_OP_LAYER_NORMALIZATION, "d[2,3,4] d[3,4] d[3,4]", "stash_type=11 axis=1", "1", 0},
    {EBB_OP_LAYER_NORMALIZATION, "d[2,3,4] d[4] d[4]", "stash_type=11 axis=-2", "1", 0},
    {EBB_OP_INSTANCE_NORMALIZATION, "d[2,3,4] d[3] d[3]", "", "1", 0},
    {EBB_OP_INSTANCE_NORMALIZATION, "d[2,3,2,3] d[3] d[3]", "epsilon=0.125", "1", 0},
    {EBB_OP_GROUP_NORMALIZATION, "d[2,6,5] d[3] d[3]", "num_groups=3", "1", 18},
    {EBB_OP_GROUP_NORMALIZATION, "d[2,6,2,2] d[6] d[6]", "num_groups=3 stash_type=1", "1", 21},
    {EBB_OP_GROUP_NORM, "d[2,6,2,2] d[6] d[6]", "num_groups=2 epsilon=0.01", "1ww", 0},
    {EBB_OP_GROUP_NORM, "d[2,6,3] d[2] d[2]", "num_groups=2", "1", 0},
    {EBB_OP_RMS_NORMALIZATION, "d[2,3,4] d[4]", "stash_type=11", "1", 23},
    {EBB_OP_RMS_NORMALIZATION, "d[2,3,4] d[4]", "stash_type=11 axis=1", "1", 23},
    {EBB_OP_RMS_NORM, "d[2,3,4] d[4]", "", "1", 0},
    {EBB_OP_RMS_NORM, "d[2,3,4] d[3,4]", "axis=1 epsilon=0.01", "1", 0},

    {EBB_OP_SOFTMAX, "d[2,3,4]", "", "1", 0},
    {EBB_OP_SOFTMAX, "d[2,3,4]", "axis=1", "1", 0},
    {EBB_OP_LOG_SOFTMAX, "d[2,3,4]", "", "1", 0},
    {EBB_OP_LOG_SOFTMAX, "d[2,3,4]", "axis=0", "1", 0},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "d[4,5] n5[4]", "", "1", 0},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "d[4,5] n5[4]", "", "11", 0},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "d[2,5,3] n5[2,3] q[5]", "ignore_index=2", "1", 0},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "d[4,5] n5[4] q[5]", "reduction=sum", "1", 0},
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, "d[2,5,3] i[2,3]{0,-100,3,4,1,-100}", "reduction=none ignore_index=-100", "1", 0},
    {EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS, "d[4,5] n5[4]", "", "1", 0},
    {EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS, "d[2,5,3] i[2,3]{0,-100,3,4,1,-100} q[5]", "ignore_index=-100", "1", 0},
    {EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS, "d[4,5] n5[4] q[5]", "reduction=sum", "1", 0},
    {EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS, "d[2,5,3] n5[2,3]", "reduction=none", "1", 0},

    {EBB_OP_IDENTITY, "d[2,3]", "", "1", 0},
    {EBB_OP_RESHAPE, "d[2,3,4] i{4,-1}", "", "1", 0},
    {EBB_OP_RESHAPE, "d[2,3,4] i{0,-1}", "", "1", 0},
    {EBB_OP_FLATTEN, "d[2,3,4]", "axis=2", "1", 0},
    {EBB_OP_SQUEEZE, "d[2,1,3,1] i{1}", "", "1", 0},
    {EBB_OP_SQUEEZE, "d[2,1,3,1]", "", "1", 0},
    {EBB_OP_UNSQUEEZE, "d[2,3] i{0,-1}", "", "1", 0},
    {EBB_OP_TRANSPOSE, "d[2,3,4]", "perm=[2,0,1]", "1", 0},
    {EBB_OP_TRANSPOSE, "d[2,3,4]", "", "1", 0},
    {EBB_OP_CONCAT, "d[2,3] d[2,1] d[2,2]", "axis=1", "1", 0},
    {EBB_OP_CONCAT, "d[2,3] c[1,3] d[2,3]", "axis=-2", "1", 0},
    {EBB_OP_SPLIT, "d[5,3] i{2,3}", "", "11", 0},
    {EBB_OP_SPLIT, "d[2,6]", "axis=1 num_outputs=3", "1w1", 0},
    {EBB_OP_SPLIT, "d[2,6]", "axis=-1", "11", 13},
    {EBB_OP_SLICE, "d[4,5] i{1} i{4} i{1}", "", "1", 0},
    {EBB_OP_SLICE, "d[4,5] i{3,0} i{0,5} i{0,1} i{-1,2}", "", "1", 0},
    {EBB_OP_SLICE, "d[4,5] i{1,-3} i{9,9}", "", "1", 0},
    {EBB_OP_PAD, "d[2,3] i{1,0,0,2}", "", "1", 0},
    {EBB_OP_PAD, "d[4,3] i{-1,1,0,2}", "", "1", 0},
    {EBB_OP_EXPAND, "d[3,1] i{2,1,4}", "", "1", 0},
    {EBB_OP_TILE, "d[2,3] i{3,2}", "", "1", 0},
    {EBB_OP_GATHER, "d[5,3] i[2,2]{4,0,4,-1}", "", "1", 0},
    {EBB_OP_GATHER, "d[2,5] j(3)", "axis=1", "1", 0},
    {EBB_OP_GATHER_ELEMENTS, "d[3,4] n4[3,2]", "axis=1", "1", 0},
    {EBB_OP_GATHER_ND, "d[3,4] i[3,2]{0,1,2,3,0,1}", "", "1", 0},
    {EBB_OP_GATHER_ND, "d[3,4] i[2,1]{2,2}", "", "1", 0},
    {EBB_OP_SCATTER_ELEMENTS, "d[3,4] i[1,4]{2,0,1,2} d[1,4]", "", "1", 0},
    {EBB_OP_SCATTER_ELEMENTS, "d[3,4] i[3,2]{1,1,0,2,3,3} d[3,2]", "axis=1 reduction=add", "1", 0},
    {EBB_OP_SCATTER_ELEMENTS, "d[3,4] i[3,2]{1,1,0,2,3,3} d[3,2]", "axis=1 reduction=mul", "1", 0},
    {EBB_OP_SCATTER_ELEMENTS, "d[3,4] i[3,2]{1,1,0,2,3,3} d[3,2]", "axis=1 reduction=max", "1", 0},
    {EBB_OP_SCATTER_ELEMENTS, "d[4,2] i[2,2]{3,0,3,1} d[2,2]", "reduction=min", "1", 0},
    {EBB_OP_SCATTER_ND, "d[4,3] i[3,1]{3,0,3} d[3,3]", "reduction=mul", "1", 0},
    {EBB_OP_SCATTER_ND, "d[4,3] i[3,1]{3,0,3} d[3,3]", "reduction=max", "1", 0},
    {EBB_OP_SCATTER_ND, "d[4,3] i[3,1]{3,0,3} d[3,3]", "reduction=min", "1", 0},
    {EBB_OP_SCATTER_ND, "d[4,3] i[2,1]{3,0} d[2,3]", "", "1", 0},
    {EBB_OP_SCATTER_ND, "d[4,3] i[3,1]{3,0,3} d[3,3]", "reduction=add", "1", 0},
    {EBB_OP_TRILU, "d[3,4]", "", "1", 0},
    {EBB_OP_TRILU, "d[2,3,3] j(-1)", "upper=0", "1", 0},
    {EBB_OP_TOP_K, "d[3,5] i{2}", "", "1w", 0},
    {EBB_OP_TOP_K, "d[5,2] i{3}", "axis=0 largest=0", "10", 0},
    {EBB_OP_DEPTH_TO_SPACE, "d[2,8,2,3]", "blocksize=2", "1", 0},
    {EBB_OP_DEPTH_TO_SPACE, "d[2,8,2,3]", "blocksize=2 mode=CRD", "1", 0},
    {EBB_OP_SPACE_TO_DEPTH, "d[2,3,4,2]", "blocksize=2", "1", 0},

    {EBB_OP_LSTM, "d[3,2,4] d[1,20,4] d[1,20,5] d[1,40] - d[1,2,5] d[1,2,5]", "hidden_size=5", "111", 0},
    {EBB_OP_LSTM, "d[3,2,4] d[2,20,4] d[2,20,5]", "hidden_size=5 direction=bidirectional", "1", 0},
    {EBB_OP_LSTM, "d[3,2,4] d[1,20,4] d[1,20,5] d[1,40]", "hidden_size=5", "011", 0},
    {EBB_OP_LSTM_TRAINING, "d[3,2,4] d[1,20,4] d[1,20,5] d[1,40]", "hidden_size=5", "1w1", 0},

    {EBB_OP_DROPOUT, "d[4,8] f(0.25) t(1)", "", "1", 0},
    {EBB_OP_DROPOUT, "d[4,8] - t(1)", "", "1", 0},
    {EBB_OP_DROPOUT, "d[4,8] f(0.25) t(0)", "", "1", 0},
    {EBB_OP_DROPOUT, "d[4,8] f(0.25)", "", "1w", 0},
    {EBB_OP_EBB_DROPOUT, "d[4,8] i{7,3}", "ratio=0.3 stream=5", "1", 0},

    {EBB_OP_EBB_ATTENTION, "d[2,2,3,4] d[2,2,5,4] d[2,2,5,3] t(1) s(0)", "k_perm=[0,1,3,2] scale=0.5", "1", 0},
    {EBB_OP_EBB_ATTENTION, "d[2,4,3] d[2,3,4] d[2,4,2] t(1) s(0)", "k_perm=[0,1,2] causal=1", "1", 0},
    {EBB_OP_EBB_ATTENTION, "d[2,4,3] d[2,3,5] d[2,5,2] b[4,5] c[2,4,5]", "k_perm=[0,1,2] fill=-0.75", "1", 0},
    {EBB_OP_EBB_ATTENTION, "d[2,4,3] d[2,3,4] d[2,4,2] b[2,1,4] c[4,1]", "k_perm=[0,1,2] causal=1 replace=1 fill=-0.75", "1", 0},
    {EBB_OP_EBB_ATTENTION, "d[3,2] d[4,2] d[4,2] t(0) s(0)", "k_perm=[1,0] guard=1", "1", 0},
    {EBB_OP_EBB_ATTENTION, "c[3,2] d[4,2] c[4,2] t(1) s(0)", "k_perm=[1,0]", "1", 0},
    {EBB_OP_EBB_ATTENTION_DROPOUT, "d[2,2,3,4] d[2,2,5,4] d[2,2,5,3] t(1) s(0) i{7,3}", "k_perm=[0,1,3,2] ratio=0.3 stream=5", "1", 0},
    {EBB_OP_EBB_ATTENTION_DROPOUT, "d[2,3,4] d[2,4,3] d[2,3,3] b[3] s(0) i{7,3}", "k_perm=[0,1,2] causal=1 fill=-9.0 ratio=0.5", "1", 0},
};
// clang-format on
enum { DRAWS = 20, CASES = sizeof cases / sizeof cases[0], INPUTS = 8, OUTPUTS = 8, TEXT = 256 };

/* ---- draws ---- */

static uint64_t state_of_draws;

static double draw(void) /* [0, 1): splitmix64 */
{
    uint64_t z = state_of_draws += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static double draw_signed(void)
{
    double magnitude = 0.2 + draw();
    return draw() < 0.5 ? -magnitude : magnitude;
}

/* ---- a case as a graph ---- */

typedef struct bench {
    const grad_case *what;
    ebb_model *model;
    ebb_graph *g;
    ebb_build b;
    ebb_node node;
    uint32_t in_count, out_count;
    ebb_value x[INPUTS], y[OUTPUTS], dy[OUTPUTS], dx[INPUTS];
    bool varies[INPUTS];
    ebb_arena arena;
} bench;

static void describe(const grad_case *c)
{
    print_error("  %s(%s) {%s}\n", ebb_op_row_of(c->op)->name, c->inputs, c->attrs);
}

#define CHECK(status, c)                                  \
    do {                                                  \
        ebb_status check_ = (status);                     \
        if (check_ != NULL) {                             \
            print_error("%s\n", ebb_status_text(check_)); \
            describe(c);                                  \
            return false;                                 \
        }                                                 \
    } while (0)

static int read_dims(const char **at, char close, int64_t *dims)
{
    int count = 0;
    char *end;
    for ((*at)++; **at != close; *at = end) {
        if (**at == ',')
            (*at)++;
        dims[count++] = strtoll(*at, &end, 10);
    }
    (*at)++;
    return count;
}

/* One word of the inputs as an initializer. */
static ebb_status add_input(bench *t, const char *word, ebb_value *v, bool *varies)
{
    static const char kinds[] = "dcpqnbijsft";
    int64_t dims[32], list[64], below = 0, n = 1;
    int rank = 0, given = 0;
    char kind = word[0];
    double scalar = 0.0;
    *v = EBB_NO_VALUE;
    *varies = kind == 'd' || kind == 'p';
    if (kind == '-')
        return NULL;
    assert_non_null(strchr(kinds, kind));
    word++;
    if (isdigit((unsigned char)*word))
        below = strtoll(word, (char **)(uintptr_t)&word, 10);
    if (*word == '[')
        rank = read_dims(&word, ']', dims);
    if (*word == '{') {
        given = read_dims(&word, '}', list);
        if (rank == 0)
            dims[rank++] = given;
    }
    if (*word == '(')
        scalar = strtod(word + 1, NULL);
    ebb_dtype dtype = strchr("nij", kind) != NULL  ? EBB_I64
                      : strchr("bt", kind) != NULL ? EBB_BOOL
                      : kind == 'f'                ? EBB_F32
                                                   : EBB_F64;
    ebb_type type = ebb_type_tensor(dtype, rank, dims);
    double doubles[1024];
    float single = (float)scalar;
    int64_t longs[1024];
    uint8_t bools[1024];
    const void *data = doubles;
    assert_true(ebb_type_elements(&type, &n) && n <= 1024);
    for (int64_t i = 0; i < n; i++) {
        doubles[i] = kind == 's' ? scalar : strchr("dc", kind) ? draw_signed() : 0.3 + 1.2 * draw();
        longs[i] = given > 0     ? list[i]
                   : kind == 'j' ? (int64_t)scalar
                                 : (int64_t)(draw() * (double)below);
        bools[i] = kind == 't' ? scalar != 0.0 : draw() < 0.5;
    }
    if (dtype == EBB_I64)
        data = longs;
    else if (dtype == EBB_BOOL)
        data = bools;
    else if (dtype == EBB_F32)
        data = &single;
    return ebb_graph_add_initializer(t->g, v, "x", &type, data,
                                     *varies ? EBB_ROLE_PARAMETER : EBB_ROLE_CONSTANT);
}

static void add_attr(bench *t, char *word)
{
    char *value = strchr(word, '=');
    *value++ = '\0';
    if (*value == '[') {
        int64_t list[32];
        const char *at = value;
        int count = read_dims(&at, ']', list);
        ebb_with_ints(&t->b, word, list, (uint32_t)count);
    } else if (isalpha((unsigned char)*value)) {
        ebb_with_string(&t->b, word, value);
    } else if (strchr(value, '.') != NULL) {
        ebb_with_float(&t->b, word, strtod(value, NULL));
    } else {
        ebb_with_int(&t->b, word, strtoll(value, NULL, 10));
    }
}

static bool set_up(bench *t)
{
    const grad_case *c = t->what;
    char text[TEXT], *save = NULL;
    uint32_t wanted = 0;
    CHECK(ebb_model_new(&t->model, c->opset != 0 ? c->opset : 20), c);
    t->g = t->model->graph;
    t->b = ebb_build_at(t->g, EBB_NO_NODE, EBB_FORWARD, NULL);
    t->b.name = "case";
    (void)snprintf(text, sizeof text, "%s", c->inputs);
    for (char *w = strtok_r(text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        CHECK(add_input(t, w, &t->x[t->in_count], &t->varies[t->in_count]), c);
        t->in_count++;
    }
    (void)snprintf(text, sizeof text, "%s", c->attrs);
    for (char *w = strtok_r(text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
        add_attr(t, w);
    t->out_count = (uint32_t)strlen(c->outputs);
    for (uint32_t k = 0; k < t->out_count; k++)
        if (c->outputs[k] != '0')
            wanted |= UINT32_C(1) << k;
    ebb_emit_node(&t->b, c->op, t->x, t->in_count, t->y, t->out_count, wanted);
    CHECK(t->b.status, c);
    t->node = t->b.last;
    for (uint32_t k = 0; k < t->out_count; k++) {
        if (c->outputs[k] != '1')
            continue;
        ebb_type type = ebb_value_of(t->g, t->y[k])->type;
        int64_t n;
        double w[1024];
        if (!ebb_type_elements(&type, &n) || n > 1024 || type.dtype != EBB_F64) {
            print_error("output %u has no usable type\n", k);
            describe(c);
            return false;
        }
        for (int64_t i = 0; i < n; i++)
            w[i] = draw_signed();
        CHECK(ebb_graph_add_initializer(t->g, &t->dy[k], "dy", &type, w, EBB_ROLE_PARAMETER), c);
    }
    return true;
}

static bool differentiate(bench *t)
{
    ebb_node_info *info = ebb_node_of(t->g, t->node);
    ebb_grad rule = {.node = t->node,
                     .input_count = info->in_count,
                     .output_count = t->out_count,
                     .x = t->x,
                     .y = t->y,
                     .dy = t->dy,
                     .wants = t->varies,
                     .dx = t->dx,
                     .attrs = ebb_node_attrs(t->g, t->node)};
    t->b.phase = EBB_BACKWARD;
    t->b.name = "case_Grad";
    ebb_op_row_of(t->what->op)->grad(&t->b, &rule);
    CHECK(t->b.status, t->what);
    assert_int_equal(t->b.pending_count, 0);
    for (uint32_t i = 0; i < t->in_count; i++) {
        if (!t->varies[i] || t->dx[i].i == 0)
            continue;
        const ebb_type *x = &ebb_value_of(t->g, t->x[i])->type;
        const ebb_type *dx = &ebb_value_of(t->g, t->dx[i])->type;
        if (!ebb_type_same_shape(x, dx) || x->dtype != dx->dtype) {
            char a[128], b[128];
            print_error("input %u is %s, its gradient %s\n", i,
                        ebb_type_print(a, sizeof a, x, NULL),
                        ebb_type_print(b, sizeof b, dx, NULL));
            describe(t->what);
            return false;
        }
    }
    return true;
}

/* ---- evaluation: by the plain kernels, values kept as the value's tensor ---- */

static ebb_status run_node(bench *t, ebb_node n)
{
    static const ebb_backend *const plain[] = {&ebb_backend_plain, NULL};
    ebb_call call;
    ebb_arena *arena = &t->arena;
    EBB_TRY(ebb_call_make(&call, arena, t->g, n, 11));
    for (uint32_t i = 0; i < call.input_count; i++) {
        ebb_value v = ebb_in(t->g, n, i);
        if (v.i == 0)
            continue;
        const ebb_tensor *tensor = ebb_value_of(t->g, v)->tensor;
        assert_non_null(tensor);
        assert_int_equal(tensor->bytes, call.in[i].bytes);
        call.in[i].data = ebb_read_only(tensor->data);
    }
    EBB_TRY(ebb_pick(&call, plain));
    if (call.kernel->workspace != NULL)
        EBB_TRY(call.kernel->workspace(&call, &call.workspace_bytes));
    call.workspace = ebb_arena_alloc(arena, call.workspace_bytes + 64);
    call.workspace = (void *)(((uintptr_t)call.workspace + 63) & ~(uintptr_t)63);
    for (uint32_t i = 0; i < call.output_count; i++) {
        ebb_value v = ebb_out(t->g, n, i);
        if (v.i == 0)
            continue;
        call.out[i].data = ebb_arena_zeroed(arena, call.out[i].bytes + 1, 1);
        ebb_tensor *tensor = EBB_NEW(arena, ebb_tensor, 1);
        *tensor = (ebb_tensor){
            .type = call.out[i].type, .data = call.out[i].data, .bytes = call.out[i].bytes};
        ebb_value_of(t->g, v)->tensor = tensor;
    }
    if (call.kernel->prepare != NULL)
        EBB_TRY(call.kernel->prepare(&call));
    ebb_status status = call.kernel->run(&call);
    if (call.kernel->release != NULL)
        call.kernel->release(&call);
    return status;
}

static double weighed(const bench *t)
{
    double sum = 0.0;
    for (uint32_t k = 0; k < t->out_count; k++) {
        if (t->dy[k].i == 0)
            continue;
        const ebb_tensor *w = ebb_value_of(t->g, t->dy[k])->tensor;
        const ebb_tensor *y = ebb_value_of(t->g, t->y[k])->tensor;
        int64_t n = 0;
        assert_true(ebb_type_elements(&w->type, &n));
        for (int64_t i = 0; i < n; i++)
            sum += ebb_tensor_double(w, i) * ebb_tensor_double(y, i);
    }
    return sum;
}

/* L where input `which` stands `step` along v. */
static ebb_status loss_at(bench *t, uint32_t which, const double *v, double step, double *loss)
{
    ebb_value_info *info = ebb_value_of(t->g, t->x[which]);
    ebb_tensor *here = info->tensor, moved = *here;
    int64_t n = (int64_t)(here->bytes / sizeof(double));
    double *data = ebb_arena_alloc(&t->arena, here->bytes + 1);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++)
        data[i] = ebb_tensor_double(here, i) + step * v[i];
    moved.data = data;
    info->tensor = &moved;
    ebb_status status = run_node(t, t->node);
    ebb_value_of(t->g, t->x[which])->tensor = here;
    *loss = weighed(t);
    return status;
}

static bool compare(bench *t, uint32_t which)
{
    const double h = 1e-5;
    double v[1024], along = 0.0, size = 0.0, above, below;
    const ebb_tensor *dx = t->dx[which].i != 0 ? ebb_value_of(t->g, t->dx[which])->tensor : NULL;
    int64_t n = 0;
    assert_true(ebb_type_elements(&ebb_value_of(t->g, t->x[which])->type, &n));
    for (int64_t i = 0; i < n; i++) {
        v[i] = draw_signed();
        double part = dx != NULL ? ebb_tensor_double(dx, i) * v[i] : 0.0;
        along += part;
        size += fabs(part);
    }
    CHECK(loss_at(t, which, v, h, &above), t->what);
    CHECK(loss_at(t, which, v, -h, &below), t->what);
    double slope = (above - below) / (2.0 * h);
    if (fabs(slope - along) <= 1e-6 * (1.0 + size))
        return true;
    print_error("input %u: the rule gives %.9g, the difference %.9g\n", which, along, slope);
    describe(t->what);
    return false;
}

static bool passes(const grad_case *c, uint64_t seed)
{
    bench t = {.what = c};
    state_of_draws = seed;
    bool good = set_up(&t) && differentiate(&t);
    if (good)
        EBB_EACH_NODE(t.g, n)
        {
            ebb_status status = run_node(&t, n);
            if (status != NULL && good) {
                print_error("%s\n", ebb_status_text(status));
                describe(c);
                good = false;
            }
            if (!good)
                break;
        }
    for (uint32_t i = 0; good && i < t.in_count; i++)
        if (t.varies[i])
            good = compare(&t, i);
    ebb_model_free(t.model);
    ebb_arena_fini(&t.arena);
    return good;
}

/* ---- tests ---- */

static void every_rule_agrees_with_the_difference_quotient(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t k = 0; k < CASES; k++)
        for (uint64_t seed = 1; seed <= DRAWS; seed++)
            if (!passes(&cases[k], seed * 1000 + k)) {
                bad++;
                break;
            }
    if (bad > 0)
        fail_msg("%d of %d cases", bad, CASES);
}

static void every_row_with_a_rule_has_a_case(void **state)
{
    (void)state;
    int bad = 0;
    for (int op = 1; op < EBB_OP_COUNT; op++) {
        bool found = !ebb_op_has_grad((ebb_op)op) || ebb_op_stops_grad((ebb_op)op);
        for (size_t k = 0; !found && k < CASES; k++)
            found = cases[k].op == (ebb_op)op;
        if (!found) {
            print_error("%s has a gradient rule and no case here\n", ebb_op_row_of((ebb_op)op)->id);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

/* dx of one input for values and dy = 1. */
static void gradient_of(ebb_op op, uint32_t count, const double (*x)[4], double (*dx)[4])
{
    static const grad_case blank = {EBB_OP_UNKNOWN, "", "", "1", 0};
    const int64_t dims[1] = {4};
    const double ones[4] = {1.0, 1.0, 1.0, 1.0};
    ebb_type type = ebb_type_tensor(EBB_F64, 1, dims);
    bench t = {.what = &blank, .in_count = count, .out_count = 1};
    assert_null(ebb_model_new(&t.model, 20));
    t.g = t.model->graph;
    t.b = ebb_build_at(t.g, EBB_NO_NODE, EBB_FORWARD, NULL);
    for (uint32_t i = 0; i < count; i++) {
        t.varies[i] = true;
        assert_null(ebb_graph_add_initializer(t.g, &t.x[i], "x", &type, x[i], EBB_ROLE_PARAMETER));
    }
    ebb_emit_node(&t.b, op, t.x, count, t.y, 1, 1);
    assert_null(t.b.status);
    t.node = t.b.last;
    ebb_type y = ebb_value_of(t.g, t.y[0])->type;
    assert_null(ebb_graph_add_initializer(t.g, &t.dy[0], "dy", &y, ones, EBB_ROLE_PARAMETER));
    grad_case what = blank;
    what.op = op;
    t.what = &what;
    assert_true(differentiate(&t));
    EBB_EACH_NODE(t.g, n) assert_null(run_node(&t, n));
    for (uint32_t i = 0; i < count; i++)
        for (int64_t k = 0; k < 4; k++)
            dx[i][k] = ebb_tensor_double(ebb_value_of(t.g, t.dx[i])->tensor, k);
    ebb_model_free(t.model);
    ebb_arena_fini(&t.arena);
}

static void equals_share_the_gradient_of_a_maximum(void **state)
{
    (void)state;
    const double pair[2][4] = {{1.0, 2.0, 3.0, 0.0}, {1.0, 1.0, 4.0, 0.0}};
    double d[2][4];
    const double first[4] = {0.5, 1.0, 0.0, 0.5}, second[4] = {0.5, 0.0, 1.0, 0.5};
    gradient_of(EBB_OP_MAX, 2, pair, d);
    assert_memory_equal(d[0], first, sizeof first);
    assert_memory_equal(d[1], second, sizeof second);
    const double row[1][4] = {{2.0, 1.0, 2.0, -1.0}};
    const double share[4] = {0.5, 0.0, 0.5, 0.0};
    gradient_of(EBB_OP_REDUCE_MAX, 1, row, d);
    assert_memory_equal(d[0], share, sizeof share);
}

static void relu_passes_nothing_at_zero(void **state)
{
    (void)state;
    const double x[1][4] = {{0.0, -0.0, 1.0, -1.0}}, want[4] = {0.0, 0.0, 1.0, 0.0};
    double d[1][4];
    gradient_of(EBB_OP_RELU, 1, x, d);
    for (int i = 0; i < 4; i++)
        assert_true(d[0][i] == want[i]);
}

static void the_norm_of_nothing_has_gradient_zero(void **state)
{
    (void)state;
    const double x[1][4] = {{0.0, 0.0, 0.0, 0.0}};
    double d[1][4];
    gradient_of(EBB_OP_REDUCE_L2, 1, x, d);
    for (int i = 0; i < 4; i++)
        assert_true(d[0][i] == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_agrees_with_the_difference_quotient),
        cmocka_unit_test(every_row_with_a_rule_has_a_case),
        cmocka_unit_test(equals_share_the_gradient_of_a_maximum),
        cmocka_unit_test(relu_passes_nothing_at_zero),
        cmocka_unit_test(the_norm_of_nothing_has_gradient_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
