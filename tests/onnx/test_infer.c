/* test_infer.c: output types of moves, convolutions, pools and LSTM; shape arithmetic followed
 * through a graph; sizes that a user binds; and the value_info that the dynamo exporter wrote,
 * found again. */

#include <stdio.h>

#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

/* A graph's inside in ONNX text, and the types of some of its values as ebb_type_print writes them;
 * or, after a "!", a part of the error. */
typedef struct infer_case {
    const char *inputs, *initializers, *nodes, *expect;
    int opset; /* 0: 20 */
} infer_case;

// clang-format off
static const infer_case cases[] = {
    {"float[2,3,4] x", "int64[2] s = {-1, 4}", "y = Reshape(x, s)", "y float32[6,4]", 0},
    {"float[2,3,4] x", "int64[3] s = {0, -1, 2}", "y = Reshape(x, s)", "y float32[2,6,2]", 0},
    {"float[0,3] x", "int64[2] s = {3, 0}", "y = Reshape<allowzero = 1>(x, s)", "y float32[3,0]", 0},
    {"float[batch,64,7,7] x", "int64[2] s = {-1, 3136}", "y = Reshape(x, s)", "y float32[batch,3136]", 0},
    {"float[batch,12,64] x", "int64[3] s = {0, 0, -1}", "y = Reshape(x, s)", "y float32[batch,12,64]", 0},
    {"float[2,3] x", "int64[2] s = {4, 2}", "y = Reshape(x, s)", "!6 elements cannot take a shape of 8", 0},
    {"float[2,3] x", "int64[2] s = {-1, 4}", "y = Reshape(x, s)", "!do not divide", 0},
    {"float[2,3] x", "int64[2] s = {-1, -1}", "y = Reshape(x, s)", "!more than one -1", 0},
    {"float[2,3] x, int64[3] s", "", "y = Reshape(x, s)", "y float32[?,?,?]", 0},
    {"float[batch,3,4] x", "", "y = Flatten(x)", "y float32[batch,12]", 0},
    {"float[2,3,4] x", "", "y = Flatten<axis = -1>(x)", "y float32[6,4]", 0},
    {"float[1,3,1] x", "int64[1] a = {-1}", "y = Squeeze(x, a) z = Squeeze(x)", "y float32[1,3] z float32[3]", 0},
    {"float[1,3,1] x", "", "y = Squeeze<axes = [0]>(x)", "y float32[3,1]", 11},
    {"float[1,3,1] x", "int64[1] a = {1}", "y = Squeeze(x, a)", "!axis 1 has 3 elements", 0},
    {"float[batch,3] x", "int64[2] a = {0, -1}", "y = Unsqueeze(x, a)", "y float32[1,batch,3,1]", 0},
    {"float[3] x", "int64[2] a = {0, 0}", "y = Unsqueeze(x, a)", "!given twice", 0},
    {"float[batch,3,4] x", "", "y = Transpose(x) z = Transpose<perm = [1,0,2]>(x)", "y float32[4,3,batch] z float32[3,batch,4]", 0},
    {"float[2,3] x", "", "y = Transpose<perm = [0,0]>(x)", "!not a permutation", 0},
    {"float[batch,3] x, float[batch,4] z", "", "y = Concat<axis = 1>(x, z)", "y float32[batch,7]", 0},
    {"float[2,3] x, float[3,4] z", "", "y = Concat<axis = 1>(x, z)", "!elements along axis 0", 0},
    {"float[batch,7] x", "int64[2] s = {3, 4}", "y, z = Split<axis = 1>(x, s)", "y float32[batch,3] z float32[batch,4]", 0},
    {"float[7,2] x", "", "y, z = Split<num_outputs = 2>(x)", "y float32[4,2] z float32[3,2]", 0},
    {"float[6,2] x", "", "y, z = Split<split = [2,4]>(x)", "y float32[2,2] z float32[4,2]", 11},
    {"float[7] x", "int64[2] s = {3, 3}", "y, z = Split(x, s)", "!add up to 6", 0},
    {"float[10,8] x", "int64[1] a = {1}, int64[1] b = {-1}, int64[1] c = {0}, int64[1] d = {3}", "y = Slice(x, a, b, c, d)", "y float32[3,8]", 0},
    {"float[10] x", "int64[1] a = {-1}, int64[1] b = {-11}, int64[1] c = {0}, int64[1] d = {-4}", "y = Slice(x, a, b, c, d)", "y float32[3]", 0},
    {"float[batch,8] x", "int64[1] a = {0}, int64[1] b = {9223372036854775807}, int64[1] c = {0}", "y = Slice(x, a, b, c)", "y float32[batch,8]", 0},
    {"float[4,8] x, int64[1] a", "int64[1] c = {1}", "y = Slice(x, a, a, c)", "y float32[4,?]", 0},
    {"float[2,3] x", "int64[4] p = {1,0,-1,2}", "y = Pad(x, p)", "y float32[2,5]", 0},
    {"float[batch,3] x", "int64[2] p = {1,2}, float v = {0.5}, int64[1] a = {-1}", "y = Pad(x, p, v, a)", "y float32[batch,6]", 0},
    {"float[batch,1,3] x", "int64[3] s = {2,1,1}", "y = Expand(x, s)", "y float32[2,1,3]", 0},
    {"float[3,1] x", "int64[3] s = {2,1,5}", "y = Expand(x, s)", "y float32[2,3,5]", 0},
    {"float[3] x", "int64[1] s = {2}", "y = Expand(x, s)", "!cannot be expanded", 0},
    {"float[2,3] x", "int64[2] r = {1,4}", "y = Tile(x, r)", "y float32[2,12]", 0},
    {"float[10,8] x, int64[batch,5] i", "", "y = Gather(x, i) z = Gather<axis = 1>(x, i)", "y float32[batch,5,8] z float32[10,batch,5]", 0},
    {"float[4,5] x, int64[2,5] i", "", "y = GatherElements(x, i)", "y float32[2,5]", 0},
    {"float[4,5,6] x, int64[7,2] i", "", "y = GatherND(x, i)", "y float32[7,6]", 0},
    {"float[4,5,6] x, int64[4,1] i", "", "y = GatherND<batch_dims = 1>(x, i)", "y float32[4,6]", 0},
    {"float[4,5] x, int64[7,3] i", "", "y = GatherND(x, i)", "!do not fit rank 2", 0},
    {"float[4,5] x, int64 i", "", "y = GatherND<batch_dims = 1>(x, i)", "!indices are a scalar", 0},
    {"float[4,5] x, int64[2,5] i, float[2,5] u", "", "y = ScatterElements(x, i, u)", "y float32[4,5]", 0},
    {"float[batch,3,4] x", "", "y = Shape(x) z = Shape<start = -2, end = -1>(x)", "y int64[3] z int64[1]", 0},
    {"float[2,3] x", "", "y = Size(x)", "y int64[]", 0},
    {"float[1] x", "", "a = Constant<value_ints = [1,2]>() b = Constant<value_float = 2.0>() c = Constant<value = int64[1,2] {1,2}>()", "a int64[2] b float32[] c int64[1,2]", 0},
    {"float[1] x", "int64[2] s = {2,3}", "y = ConstantOfShape(s) z = ConstantOfShape<value = int64[1] {1}>(s)", "y float32[2,3] z int64[2,3]", 0},
    {"float[1] x", "int64 a = {2}, int64 b = {11}, int64 c = {3}", "y = Range(a, b, c)", "y int64[3]", 0},
    {"float[1] x", "float a = {0}, float b = {1}, float c = {0.25}", "y = Range(a, b, c)", "y float32[4]", 0},
    {"int64[2,3] i, float[2] v", "int64 d = {7}", "y = OneHot(i, d, v) z = OneHot<axis = 1>(i, d, v)", "y float32[2,3,7] z float32[2,7,3]", 0},
    {"float[2,3] x", "", "y = NonZero(x)", "y int64[2,?]", 0},
    {"float[2,9] x", "int64[1] k = {4}", "y, z = TopK(x, k)", "y float32[2,4] z int64[2,4]", 0},
    {"float[2,3] x", "int64[1] k = {4}", "y, z = TopK(x, k)", "!k is 4", 0},
    {"float[2,8,3,4] x", "", "y = DepthToSpace<blocksize = 2>(x) z = SpaceToDepth<blocksize = 2>(y)", "y float32[2,2,6,8] z float32[2,8,3,4]", 0},
    {"float[2,9] x", "int64 s = {3}, int64 k = {1}", "q = SplitToSequence<axis = 1>(x, s) y = SequenceAt(q, k)", "y float32[2,3]", 0},
    {"float[2,9] x", "int64[2] s = {4,5}, int64 k = {-1}", "q = SplitToSequence<axis = 1>(x, s) y = SequenceAt(q, k)", "y float32[2,5]", 0},

    {"float[batch,3,h,8] x", "float[4] s = {1, 1, 2, 0.5}", "y = Resize(x, , s)", "y float32[batch,3,?,4]", 0},
    {"float[2,3,4,8] x", "int64[4] s = {2, 3, 7, 9}", "y = Resize(x, , , s)", "y float32[2,3,7,9]", 0},
    {"float[2,3,4,8] x", "int64[2] s = {8, 8}", "y = Resize<axes = [2,3], keep_aspect_ratio_policy = \"not_larger\">(x, , , s)", "y float32[2,3,4,8]", 0},
    {"float[2,3,4,8] x", "int64[2] s = {8, 8}", "y = Resize<axes = [2,3], keep_aspect_ratio_policy = \"not_smaller\">(x, , , s)", "y float32[2,3,8,16]", 0},
    {"float[2,3,4,8] x, float[4] s", "", "y = Resize(x, , s)", "y float32[?,?,?,?]", 0},
    {"float[2,3,4] x", "float[2] s = {1, 2}", "y = Resize(x, , s)", "!2 scales are given for 3 axes", 0},
    {"float[2,3,4] x", "float[3] s = {1, 2, -1}", "y = Resize(x, , s)", "!scale 2 is -1", 0},
    {"float[batch,3,8,8] x, float[batch,h,5,2] g", "", "y = GridSample(x, g)", "y float32[batch,3,h,5]", 0},
    {"float[2,3,8,8] x, float[2,4,5,3] g", "", "y = GridSample(x, g)", "!a coordinate for each axis", 0},
    {"float[2,2,3] x", "int64[4] s = {2, 3, 5, 6}", "y = AffineGrid(x, s)", "y float32[2,5,6,2]", 0},
    {"float[2,3,8,8] x, float[rois,4] r, int64[rois] b", "", "y = RoiAlign<output_height = 5, output_width = 6>(x, r, b)", "y float32[rois,3,5,6]", 0},
    {"float[2,3,8,8] x, float[rois,5] r", "", "y = MaxRoiPool<pooled_shape = [5, 6]>(x, r)", "y float32[rois,3,5,6]", 0},
    {"float[2,3,8,8] x, float[rois,5] r", "", "y = MaxRoiPool<pooled_shape = [5, 0]>(x, r)", "!not a height and a width", 0},
    {"float[batch,i,4] x, float[batch,4,k] z", "", "y = Einsum<equation = \"bij,bjk->bik\">(x, z)", "y float32[batch,i,k]", 0},
    {"float[2,3,3] x", "", "y = Einsum<equation = \"...ii->...i\">(x) z = Einsum<equation = \"abb\">(x)", "y float32[2,3] z float32[2]", 0},
    {"float[2,3] x, float[4,5] z", "", "y = Einsum<equation = \"ij,jk->ik\">(x, z)", "!dims under one letter differ", 0},
    {"float[2,3] x", "", "y = Einsum<equation = \"ij->ik\">(x)", "!a letter that no input has", 0},
    {"float[batch,9] x, bool[3] c", "", "y = Compress<axis = 1>(x, c) z = Compress(x, c)", "y float32[batch,?] z float32[?]", 0},
    {"float[batch,9] x", "bool[3] c = {1, 0, 1}", "y = Compress<axis = 1>(x, c) z = Compress(x, c)", "y float32[batch,2] z float32[2]", 0},
    {"float[batch,9] x", "", "y, i, v, n = Unique<axis = 1>(x)", "y float32[batch,?] i int64[?] v int64[9] n int64[?]", 0},
    {"float[2,9,4] x, float[2,3,9] s", "", "y = NonMaxSuppression(x, s)", "y int64[?,3]", 0},
    {"float[batch,16,2] x", "", "y = DFT(x) z = DFT<onesided = 1>(x)", "y float32[batch,16,2] z float32[batch,9,2]", 0},
    {"float[batch,9,2] x", "", "y = DFT<onesided = 1, inverse = 1>(x)", "y float32[batch,16,1]", 0},
    {"float[batch,128,1] x", "int64 s = {8}, int64 f = {16}", "y = STFT(x, s, , f)", "y float32[batch,15,9,2]", 0},
    {"float[batch,128,1] x", "int64 s = {0}, int64 f = {16}", "y = STFT(x, s, , f)", "!the step is 0", 0},
    {"float[batch,4,4] x", "", "y = Det(x)", "y float32[batch]", 0},
    {"float[batch,4,5] x", "", "y = Det(x)", "!square", 0},
    {"float[batch,4,4] x", "", "y = com.microsoft.Inverse(x)", "y float32[batch,4,4]", 0},
    {"float[batch,4,5] x", "", "y = com.microsoft.Inverse(x)", "!square", 0},
    {"float[batch,8,seq,16] q, float[batch,2,keys,16] k, float[batch,2,keys,24] v", "", "y = Attention(q, k, v)", "y float32[batch,8,seq,24]", 24},
    {"float[2,5,64] q, float[2,7,32] k, float[2,7,32] v, float[2,2,3,16] pk, float[2,2,3,16] pv", "", "y, a, b, s = Attention<q_num_heads = 4, kv_num_heads = 2>(q, k, v, , pk, pv)", "y float32[2,5,64] a float32[2,2,10,16] b float32[2,2,10,16] s float32[2,4,5,10]", 24},
    {"float[2,5,64] q", "", "y = Attention<q_num_heads = 4>(q, q, q)", "!kv_num_heads does not divide it", 24},
    {"float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,6] d, float[2,3,5,1] m, float[2,3,5,6] y", "bool keep = {1}, float bias = {0}", "a, b, c = ai.ebb.AttentionGrad<k_perm = [0,1,3,2]>(d, q, k, v, keep, bias, m, m, y)", "a float32[2,3,5,4] b float32[2,3,7,4] c float32[2,3,7,6]", 0},
    {"float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,6] d, float[2,3,5,1] m, float[2,5,3,6] y", "bool keep = {1}, float bias = {0}", "a, b, c = ai.ebb.AttentionGrad<k_perm = [0,1,3,2], y_perm = [0,2,1,3]>(d, q, k, v, keep, bias, m, m, y)", "a float32[2,3,5,4] b float32[2,3,7,4] c float32[2,3,7,6]", 0},
    {"float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,6] d, float[2,3,5,1] m, float[2,5,3,6] y", "bool keep = {1}, float bias = {0}", "a, b, c = ai.ebb.AttentionGrad<k_perm = [0,1,3,2]>(d, q, k, v, keep, bias, m, m, y)", "!input 8, the result, has another shape", 0},
    {"float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,6] d, float[2,3,5,1] m, float[2,3,5,6] y", "bool keep = {1}, float bias = {0}", "a, b, c = ai.ebb.AttentionGrad<k_perm = [0,1,3,2], y_perm = [0,2,1,3]>(d, q, k, v, keep, bias, m, m, y)", "!input 8, the result, has another shape", 0},
    {"float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,6] d, float[2,3,5,1] m, float[3,5,6] y", "bool keep = {1}, float bias = {0}", "a, b, c = ai.ebb.AttentionGrad<k_perm = [0,1,3,2]>(d, q, k, v, keep, bias, m, m, y)", "!input 8, the result, has another shape", 0},
    {"float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,6] d, float[2,3,5,1] m, float16[2,3,5,6] y", "bool keep = {1}, float bias = {0}", "a, b, c = ai.ebb.AttentionGrad<k_perm = [0,1,3,2]>(d, q, k, v, keep, bias, m, m, y)", "!input 8 is float16, input 1 is float32", 0},
    {"float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,6] d, float[2,3,5,1] m, float[2,3,6,5] y", "bool keep = {1}, float bias = {0}", "a, b, c = ai.ebb.AttentionGrad<k_perm = [0,1,3,2], y_perm = [0,1,3,2]>(d, q, k, v, keep, bias, m, m, y)", "!y_perm is no order of the axes with the last one last", 0},
    {"float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,6] d, float[2,3,5,1] m, float[2,3,5,6] y", "bool keep = {1}, float bias = {0}", "a, b, c = ai.ebb.AttentionGrad<k_perm = [0,1,3,2], y_perm = [0,9223372036854775807,1,3]>(d, q, k, v, keep, bias, m, m, y)", "!y_perm is no order of the axes with the last one last", 0},
    {"float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,6] d, float[2,3,5,1] m, float[2,3,5,6] y", "bool keep = {1}, float bias = {0}", "a, b, c = ai.ebb.AttentionGrad<k_perm = [0,1,3,2], y_perm = [0,1]>(d, q, k, v, keep, bias, m, m, y)", "!y_perm has 2 entries", 0},
    {"float[3,4] q, float[5,4] k, float[5,2] v, float[3,2] d, float[3,1] m, float[2,3] y", "bool keep = {1}, float bias = {0}, int64[2] key = {1, 2}", "a, b, c = ai.ebb.AttentionDropoutGrad<k_perm = [1,0], y_perm = [1,0], ratio = 0.5>(d, q, k, v, keep, bias, m, m, key, y)", "!y_perm is no order of the axes with the last one last", 0},
    {"float[3,4] q, float[5,4] k, float[5,2] v, float[3,2] d, float[3,1] m, float[3,2] y", "bool keep = {1}, float bias = {0}, int64[3] key = {1, 2, 3}", "a, b, c = ai.ebb.AttentionDropoutGrad<k_perm = [1,0], ratio = 0.5>(d, q, k, v, keep, bias, m, m, key, y)", "!the key is not int64[2]", 0},
    {"float[batch,6,8] x", "float s = {0.5}, int8 z = {0}", "y = QuantizeLinear(x, s, z) w = DequantizeLinear(y, s, z)", "y int8[batch,6,8] w float32[batch,6,8]", 21},
    {"float[batch,6] x", "float[5] s = {1, 1, 1, 1, 1}", "y = QuantizeLinear(x, s)", "!axis 1 has 6 places, the scale has 5", 21},
    {"uint8[batch,6] x, int8[6,4] w", "", "y = MatMulInteger(x, w)", "y int32[batch,4]", 0},
    {"float[batch,3,5] x", "int64[2] s = {4, 8}", "y = CenterCropPad<axes = [1,2]>(x, s)", "y float32[batch,4,8]", 0},
    {"float[2,10,12] x", "int64[2] s = {4, 5}, int64[2] b = {1, 5}", "y = Col2Im(x, s, b)", "y float32[2,2,4,5]", 0},
    {"float[2,3,4] x, int64[2,3,4] i", "", "y = MaxUnpool<kernel_shape = [2], strides = [2]>(x, i)", "y float32[2,3,8]", 0},
    {"float[2,3,4] x, int64[2,3,4] i", "", "y = MaxUnpool<kernel_shape = [9223372036854775807]>(x, i)", "!out of range", 0},
    {"float[2,3] x", "", "y = BitCast<to = 6>(x)", "y int32[2,3]", 26},
    {"float[2,3] x", "", "y = BitCast<to = 7>(x)", "!differ in width", 26},

    {"float[batch,3,32,32] x", "float[8,3,3,3] w", "y = Conv<pads = [1,1,1,1], strides = [2,2]>(x, w)", "y float32[batch,8,16,16]", 0},
    {"float[2,4,9] x", "float[6,2,3] w", "y = Conv<group = 2, dilations = [2]>(x, w)", "y float32[2,6,5]", 0},
    {"float[2,3,7,8] x", "float[4,3,3,3] w", "y = Conv<auto_pad = \"SAME_UPPER\", strides = [2,2]>(x, w) z = Conv<auto_pad = \"VALID\">(x, w)", "y float32[2,4,4,4] z float32[2,4,5,6]", 0},
    {"float[2,4,9,9] x", "float[6,3,3,3] w", "y = Conv(x, w)", "!weight expects 3 input channels in 1 groups, the input has 4", 0},
    {"float[2,3,2,2] x", "float[6,3,3,3] w", "y = Conv(x, w)", "!the kernel is larger than the padded input", 0},
    {"float[2,3,9,9] x", "float[6,3,3,3] w", "y = Conv<strides = [0,1]>(x, w)", "!out of range", 0},
    {"float[2,6,5,5] x", "float[6,2,3,3] w", "y = ConvTranspose<group = 2, strides = [2,2], pads = [1,1,1,1], output_padding = [1,1]>(x, w)", "y float32[2,4,10,10]", 0},
    {"float[batch,32,30,3] x", "float[8,3,3,3] w, float[8] b", "y = ai.ebb.ConvNhwc<pads = [1,1,1,1], strides = [2,2]>(x, w, b)", "y float32[batch,16,15,8]", 0},
    {"float[2,9,9,4] x", "float[6,3,3,3] w", "y = ai.ebb.ConvNhwc(x, w)", "!weight expects 3 input channels in 1 groups, the input has 4", 0},
    {"float[2,4,9] x", "float[6,3,4] w", "y = ai.ebb.ConvNhwc(x, w)", "!input 0 has rank 3, and needs two spatial axes", 0},
    {"float[2,5,4,6] x", "float[6,3,3,2] w", "y = ai.ebb.ConvTransposeNhwc<group = 2, strides = [2,2], pads = [1,1,1,1], output_padding = [1,1]>(x, w)", "y float32[2,10,8,4]", 0},
    {"float[2,4,5,6] d, float[2,8,10,4] x", "", "w = ai.ebb.ConvWeightGradNhwc<kernel_shape = [3,2], group = 2>(d, x)", "w float32[6,3,2,2]", 0},
    {"float[2,6,5,5] x", "float[6,2,3,3] w", "y = ConvTranspose<strides = [2,2], output_shape = [10,11]>(x, w) z = ConvTranspose<strides = [2,2], auto_pad = \"SAME_LOWER\">(x, w)", "y float32[2,2,10,11] z float32[2,2,10,10]", 0},
    {"float[2,3,7,7] x", "", "y, i = MaxPool<kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]>(x)", "y float32[2,3,4,4] i int64[2,3,4,4]", 0},
    {"float[2,3,6,6] x", "", "y = MaxPool<kernel_shape = [3,3], strides = [2,2], ceil_mode = 1>(x) z = MaxPool<kernel_shape = [2,2], dilations = [2,2]>(x)", "y float32[2,3,3,3] z float32[2,3,4,4]", 0},
    {"float[1,1,3,3] x", "", "y = AveragePool<kernel_shape = [1,1], strides = [2,2], ceil_mode = 1, pads = [0,0,1,1]>(x)", "y float32[1,1,2,2]", 0},
    {"float[1,1,2,3] x", "", "y = AveragePool<kernel_shape = [9,9], strides = [9,9], ceil_mode = 1>(x)", "y float32[1,1,1,1]", 0},
    {"float[1,1,2,3] x", "", "y = AveragePool<kernel_shape = [9,9], strides = [2,2], ceil_mode = 1>(x)", "!the kernel is larger than the padded input", 0},
    {"float[batch,3,6,6] x", "", "y = GlobalAveragePool(x)", "y float32[batch,3,1,1]", 0},
    {"float[7,batch,4] x", "float[2,20,4] w, float[2,20,5] r", "y, h, c = LSTM<hidden_size = 5, direction = \"bidirectional\">(x, w, r)", "y float32[7,2,batch,5] h float32[2,batch,5] c float32[2,batch,5]", 0},
    {"float[3,7,4] x", "float[1,20,4] w, float[1,20,5] r", "y, h = LSTM<hidden_size = 5, layout = 1>(x, w, r)", "y float32[3,7,1,5] h float32[3,1,5]", 0},
    {"float[7,3,4] x", "float[1,20,6] w, float[1,20,5] r", "y = LSTM<hidden_size = 5>(x, w, r)", "!W expects 6 input features, X has 4", 0},

    {"float[2] x", "bool[2,3] m = {1, 0, 1, 0, 0, 1}", "y = NonZero(m)", "y int64[2,3]", 0},
    /* followed through shape arithmetic */
    {"float[batch,197,768] x", "int64 zero = {0}, int64[1] a = {0}, int64[2] tail = {12, 64}, int64[1] n = {197}",
     "s = Shape(x) b = Gather(s, zero) u = Unsqueeze(b, a) t = Concat<axis = 0>(u, n, tail) y = Reshape(x, t)", "y float32[batch,197,12,64]", 0},
    {"float[4,6] x", "int64[1] one = {1}, int64[1] zero = {0}, int64[1] six = {6}",
     "s = Shape(x) h = Slice(s, one, six, zero) n = Div(h, six) t = Concat<axis = 0>(n, six, h) y = Expand(x, t)", "!cannot be expanded", 0},
    {"float[batch,6] x", "int64 zero = {0}, int64 one = {1}, int64[1] a = {0}, int64[1] minus = {-1}",
     "s = Shape(x) b = Gather(s, zero) r = Range(zero, b, one) u = Unsqueeze(b, a) t = Concat<axis = 0>(u, minus) y = Reshape(x, t)", "r int64[batch] y float32[batch,6]", 0},
    {"float[batch,1,6] x", "int64[3] w = {-1, 4, -1}, int64[1] three = {3}, int64 m = {-1}",
     "o = ConstantOfShape<value = int64[1] {1}>(three) e = Equal(w, m) t = Where(e, o, w) y = Expand(x, t)", "y float32[batch,4,6]", 0},
};
// clang-format on
enum { CASES = sizeof cases / sizeof cases[0] };

static ebb_status parse(ebb_model **model, const infer_case *t)
{
    return ebb_text_parse_model(
        model,
        formatted("<ir_version: 10, opset_import: [\"\" : %d]>\ng (%s) => () <%s> {\n%s\n}\n",
                  t->opset != 0 ? t->opset : 20, t->inputs, t->initializers, t->nodes));
}

static void types_come_out_as_written(void **state)
{
    const infer_case *t = *state;
    OWNED_MODEL *m = NULL;
    ebb_status status = parse(&m, t);
    if (status != NULL)
        fail_msg("%s: %s", t->nodes, ebb_status_text(status));
    status = ebb_infer_graph(m->graph);
    if (t->expect[0] == '!') {
        if (status == NULL || strstr(ebb_status_text(status), t->expect + 1) == NULL)
            fail_msg("%s: '%s' is expected, it says '%s'", t->nodes, t->expect,
                     status != NULL ? ebb_status_text(status) : "fine");
        assert_int_equal(ebb_status_code(status), EBB_REJECTED);
        return;
    }
    if (status != NULL)
        fail_msg("%s: %s", t->nodes, ebb_status_text(status));
    char name[64], type[128], found[256];
    int used = 0;
    for (const char *at = t->expect; sscanf(at, "%63s %127s%n", name, type, &used) == 2;
         at += used) {
        ebb_value v = ebb_value_find(m->graph, name);
        assert_true(v.i != 0);
        ebb_type_print(found, sizeof found, ebb_value_of(m->graph, v)->type, &m->names);
        if (strcmp(found, type) != 0)
            fail_msg("%s: %s is %s, expected %s", t->nodes, name, found, type);
    }
}

/* ---- sizes that the user gives ---- */

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]>\n"

static const ebb_type *type_of(const ebb_model *m, const char *name)
{
    return ebb_value_of(m->graph, ebb_value_find(m->graph, name))->type;
}

/* The dims of a target are those of what the model gives: no --dim sets what values decide. */
TEST(a_size_that_hangs_on_values_is_its_nodes_and_no_inputs)
{
    const struct {
        const char *text, *said;
    } models[] = {
        {"g (bool[5] m, int64[1,k] target) => (int64[1,k] y) { y = NonZero(m) }", "NonZero 'y'"},
        {"g (bool[n] m, int64[1,k] target) => (int64[1,k] y) { y = NonZero(m) }", "--dim n=SIZE"},
        {"g (float[n] x) => (float[n] y) <int64 one = {1}, int64 zero = {0}> "
         "{ s = Shape(x) l = Squeeze(s) r = Range(zero, l, one) f = Cast<to = 1>(r) "
         "  y = Add(x, f) }",
         "--dim n=SIZE"},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char text[512];
        (void)snprintf(text, sizeof text, HEAD "%s", models[i].text);
        OWNED_MODEL *m = model_of(text);
        ebb_status status = ebb_require_static(m->graph);
        assert_non_null(status);
        if (strstr(ebb_status_text(status), models[i].said) == NULL)
            fail_msg("case %zu: %s", i, ebb_status_text(status));
        assert_int_equal(strstr(ebb_status_text(status), "--dim k") != NULL, 0);
    }
}

/* Rows that are looked up are scaled once each: torch.export writes the Unique of them. */
TEST(a_size_of_an_embeddings_max_norm_says_so)
{
    OWNED_MODEL *m = parsed(HEAD "g (int64[5] i) => (int64[k] y) { y = Unique(i) }");
    ebb_graph *g = m->graph;
    assert_null(ebb_infer_graph(g));
    assert_null(ebb_props_set(g, &ebb_node_of(g, ebb_first(g))->props, "pkg.torch.onnx.fx_node",
                              "%e : call_function[target=torch.ops.aten.embedding_renorm.default]"
                              "(args = (%detach, %i, 1.0, 2.0), kwargs = {})"));
    refused(ebb_refuse_sizes_of_values(g), EBB_UNSUPPORTED, "module.max_norm = None");
}

TEST(a_bound_dim_reaches_all_inputs_and_outputs)
{
    size_t bound = 0;
    OWNED_MODEL *m = parsed(
        HEAD "g (float[batch,3] x, float[batch,3] z) => (float[batch,3] y) { y = Add(x, z) }");
    ebb_status status = ebb_require_static(m->graph);
    assert_non_null(status);
    assert_non_null(strstr(ebb_status_text(status), "--dim batch=SIZE"));
    assert_null(ebb_bind_dim(m->graph, "batch", 8, &bound));
    assert_int_equal(bound, 2);
    assert_null(ebb_infer_graph(m->graph));
    assert_null(ebb_require_static(m->graph));
    assert_int_equal(type_of(m, "y")->dims[0], 8);
    assert_null(ebb_bind_dim(m->graph, "no_such_dim", 8, &bound));
    assert_int_equal(bound, 0);
    assert_int_equal(ebb_status_code(ebb_bind_dim(m->graph, "batch", -1, &bound)), EBB_USAGE);
}

TEST(a_dim_that_is_a_sum_is_known_when_its_parts_are)
{
    size_t bound = 0;
    OWNED_MODEL *m =
        parsed(HEAD "g (float[\"past + S\",\"S + past + 1\"] x, float[\"past + S2\"] z) "
                    "=> (float[A,B] y) { y = Neg(x) w = Neg(z) }");
    assert_null(ebb_bind_dim(m->graph, "S", 5, &bound));
    assert_int_equal(bound, 1);
    assert_string_equal(ebb_text(m->graph, type_of(m, "x")->symbols[0]), "past + 5");
    assert_string_equal(ebb_text(m->graph, type_of(m, "x")->symbols[1]), "past + 6");
    assert_null(ebb_bind_dim(m->graph, "past", 0, &bound));
    assert_int_equal(type_of(m, "x")->dims[0], 5);
    assert_int_equal(type_of(m, "x")->dims[1], 6);
    assert_string_equal(ebb_text(m->graph, type_of(m, "z")->symbols[0]), "S2");
}

TEST(a_shape_replaces_what_the_exporter_fixed)
{
    OWNED_MODEL *m = parsed(HEAD "g (float[1,3] x) => (float[1,3] y) { h = Relu(x) y = Neg(h) }");
    const int64_t dims[2] = {8, 3};
    assert_null(ebb_infer_graph(m->graph));
    assert_null(ebb_bind_shape(m->graph, "x", dims, 2));
    assert_null(ebb_infer_graph(m->graph));
    assert_int_equal(type_of(m, "h")->dims[0], 8);
    assert_int_equal(type_of(m, "y")->dims[0], 8);
    assert_int_equal(ebb_status_code(ebb_bind_shape(m->graph, "x", dims, 1)), EBB_USAGE);
    assert_int_equal(ebb_status_code(ebb_bind_shape(m->graph, "h", dims, 2)), EBB_USAGE);
}

TEST(an_output_has_the_rank_of_its_node_and_no_other_dtype)
{
    ebb_model *m = model_of(HEAD "g (float[2,3] x) => (float[6] y) { y = Relu(x) }");
    assert_int_equal(type_of(m, "y")->rank, 2);
    ebb_model_free(m);
    m = parsed(HEAD "g (float[2,3] x) => (int64[2,3] y) { y = Relu(x) }");
    assert_int_equal(ebb_status_code(ebb_infer_graph(m->graph)), EBB_REJECTED);
    ebb_model_free(m);
}

TEST(operations_are_counted)
{
    OWNED_MODEL *m = model_of(HEAD "g (float[2,4,9,9] x) => (float[2,6,7,7] y) <float[6,2,3,3] w> "
                                   "{ y = Conv<group = 2>(x, w) }");
    double flops = ebb_node_flops(m->graph, ebb_first(m->graph));
    assert_true(flops == 2.0 * (2 * 6 * 7 * 7) * (2 * 3 * 3));
}

TEST(running_out_of_memory_is_said)
{
    const infer_case *t = &cases[CASES - 4];
    OWNED_MODEL *m = NULL;
    assert_null(parse(&m, t));
    for (long n = 1; n < 100; n++) {
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_infer_graph(m->graph);
        ebb_alloc_fail_after(0);
        if (status == NULL)
            break;
        assert_int_equal(ebb_status_code(status), ebb_status_code(ebb_error_memory()));
    }
}

/* ---- what an exporter wrote ---- */

static void forget(ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
        for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++) {
            ebb_value v = ebb_out(g, n, k);
            if (v.i != 0)
                ebb_value_of(g, v)->type = &ebb_type_unknown;
        }
}

static size_t compare(const ebb_graph *told, const ebb_graph *found, size_t *open)
{
    size_t wrong = 0;
    EBB_EACH_VALUE(told, v) {
        const ebb_type *a = ebb_value_of(told, v)->type;
        if (ebb_value_of(told, v)->producer.i == 0)
            continue;
        ebb_value same = ebb_value_find(found, ebb_value_name(told, v));
        const ebb_type *b = ebb_value_of(found, same)->type;
        *open += b->kind == EBB_KIND_TENSOR && !ebb_type_is_static(b);
        *open += b->kind == EBB_KIND_UNKNOWN;
        if (a->kind != EBB_KIND_TENSOR || !ebb_type_is_static(a))
            continue;
        if (a->dtype == b->dtype && ebb_type_same_shape(a, b))
            continue;
        char x[128], y[128];
        print_message("  %s: %s in the file, %s found\n", ebb_value_name(told, v),
                      ebb_type_print(x, sizeof x, a, NULL), ebb_type_print(y, sizeof y, b, NULL));
        wrong++;
    }
    return wrong;
}

TEST(the_exporters_types_are_found_again)
{
    static const char *const names[] = {
        "bert_tiny",    "cnn_digits",     "gelu_block_dropout", "gpt2_tiny", "lstm_char",
        "mlp_digits",   "mobilenet_tiny", "resnet20_cifar",     "bert_base", "gpt2",
        "mobilenet_v2", "resnet50",       "vgg16_bn",           "vit_b16"};
    static const char *const files[] = {"dynamo.onnx", "ts.onnx"};
    size_t wrong = 0, read = 0;
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        char path[1024];
        OWNED_MODEL *told = NULL, *found = NULL;
        size_t bound, open = 0;
        (void)snprintf(path, sizeof path, "%s/../shared/models/%s/%s", EBB_SOURCE_DIR, names[i / 2],
                       files[i % 2]);
        ebb_status status = ebb_model_read(&told, path);
        if (status != NULL && ebb_status_code(status) == EBB_IO)
            continue;
        if (status == NULL)
            status = ebb_model_read(&found, path);
        if (status != NULL)
            fail_msg("%s: %s", path, ebb_status_text(status));
        read++;
        assert_null(ebb_bind_dim(told->graph, "batch", 3, &bound));
        assert_null(ebb_bind_dim(found->graph, "batch", 3, &bound));
        forget(found->graph);
        status = ebb_infer_graph(found->graph);
        if (status != NULL)
            fail_msg("%s: %s", path, ebb_status_text(status));
        wrong += compare(told->graph, found->graph, &open);
        if (open > 0)
            fail_msg("%s: %zu values stay open", path, open);
        assert_null(ebb_verify(found->graph));
    }
    if (read == 0) {
        print_message("SKIP: no models beside the repository\n");
        skip();
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    for (size_t i = 0; i < CASES; i++)
        list_test(cases[i].nodes, types_come_out_as_written, &cases[i]);
    return run_listed();
}
