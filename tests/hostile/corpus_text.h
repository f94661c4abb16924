/* corpus_text.h: the files of the corpus whose operators are wrong, and checkpoints and arrays.
 * Part of corpus.h.
 */

// clang-format off
#define REFUSED(kind, file, sentence, ...) {kind, file ".onnx", "check %", EBB_REJECTED, sentence, __VA_ARGS__}
#define PLANNED(kind, file, exit, sentence, ...) {kind, file ".onnx", "plan %", exit, sentence, __VA_ARGS__}
#define RUN(kind, file, exit, sentence, ...) {kind, file ".onnx", "run % --data x.safetensors", exit, sentence, __VA_ARGS__}
#define GRADED(kind, file, exit, sentence, ...) {kind, file ".onnx", "grad % --loss name=loss -o step.onnx", exit, sentence, __VA_ARGS__}
#define TRAINED(kind, file, exit, sentence, ...) {kind, file ".onnx", "train % --data rows.safetensors --batch 4 --loss cross-entropy", exit, sentence, __VA_ARGS__}

static const hostile_file corpus_text[] = {
    /* shapes */
    {"shape", "reshape_scalar.onnx", "check %", EBB_OK, "every operator has a kernel", MODEL("float[4] x", "float[4] y", "int64 s = {4}, float[4] w = {1,2,3,4}", "a = Reshape(x, s) y = Mul(a, w)")},
    PLANNED("shape", "expand_rank_huge", EBB_REJECTED, "Expand 'y'", MODEL("float[4] x, int64[1000000000] s", "float[] y", "", "y = Expand(x, s)")),
    PLANNED("shape", "constant_of_shape_rank_huge", EBB_REJECTED, "ConstantOfShape 'y'", MODEL("int64[1000000000] s", "float[] y", "", "y = ConstantOfShape(s)")),
    REFUSED("shape", "unsqueeze_rank_13", "Unsqueeze 'y': rank 13 is above the limit of 12", MODEL("float[1,1,1,1,1,1,1,1,1,1,1,1] x", "float[] y", "int64[1] a = {0}", "y = Unsqueeze(x, a)")),
    {"shape", "output_rank_lies.onnx", "check %", EBB_OK, "every operator has a kernel", MODEL("float[4] x", "float[4,1,1] y", "float[4] w = {1,2,3,4}", "a = Mul(x, w) y = Relu(a)")},
    REFUSED("shape", "output_dtype_lies", "output 'y' is declared int64, but it is float32", MODEL("float[4] x", "int64[4] y", "", "y = Relu(x)")),
    REFUSED("shape", "broadcast_wrong", "cannot be broadcast together", MODEL("float[4] x, float[3] z", "float[4] y", "", "y = Add(x, z)")),
    REFUSED("shape", "transpose_repeats", "Transpose 'y': perm is not a permutation of 0..1", MODEL("float[2,3] x", "float[] y", "", "y = Transpose <perm = [0, 0]> (x)")),
    REFUSED("shape", "transpose_outside", "Transpose 'y': perm is not a permutation of 0..1", MODEL("float[2,3] x", "float[] y", "", "y = Transpose <perm = [0, 9223372036854775807]> (x)")),
    {"shape", "transpose_of_a_weight_outside.onnx", "check %", EBB_REJECTED, "Transpose 'y': perm is not a permutation of 0..1", MODEL("", "float[3,2] y", "float[2,3] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}", "y = Transpose <perm = [0, 9007199254740992]> (w)")},
    REFUSED("shape", "einsum_nonsense", "Einsum 'y': a term of the equation does not have its input's rank", MODEL("float[2,3] x", "float[] y", "", "y = Einsum <equation = \"ijk->zz\"> (x)")),
    REFUSED("shape", "matmul_wrong", "MatMul 'y': input 0 has 3 columns, input 1 has 4 rows", MODEL("float[2,3] x, float[4,5] z", "float[] y", "", "y = MatMul(x, z)")),

    /* sizes */
    REFUSED("size", "tile_overflow", "Tile 'y': repeat 0 is too large", MODEL("float[4611686018427387904] x", "float[] y", "int64[1] r = {4}", "y = Tile(x, r)")),
    REFUSED("size", "concat_overflow", "Concat 'y': the sum along axis 0 is too large", MODEL("float[9223372036854775807] x", "float[] y", "", "y = Concat <axis = 0> (x, x)")),
    REFUSED("size", "pad_overflow", "Pad 'y': pads along axis 0 are too large", MODEL("float[4] x", "float[] y", "int64[2] p = {9223372036854775807, 1}", "y = Pad(x, p)")),
    REFUSED("size", "pad_negative", "Pad 'y': pads along axis 0 leave -1 elements", MODEL("float[4] x", "float[] y", "int64[2] p = {-5, 0}", "y = Pad(x, p)")),
    PLANNED("size", "range_huge", EBB_REJECTED, "'y'", MODEL("", "int64[] y", "int64 a = {0}, int64 b = {9223372036854775807}, int64 c = {1}", "y = Range(a, b, c)")),
    REFUSED("size", "range_by_nothing", "Range 'y': the step is 0", MODEL("", "int64[] y", "int64 a = {0}, int64 b = {5}, int64 c = {0}", "y = Range(a, b, c)")),
    REFUSED("size", "reshape_negative", "Reshape 'y': dim 0 of the shape is -4", MODEL("float[4] x", "float[] y", "int64[1] s = {-4}", "y = Reshape(x, s)")),
    REFUSED("size", "reshape_two_unknown", "Reshape 'y': the shape has more than one -1", MODEL("float[4] x", "float[] y", "int64[2] s = {-1, -1}", "y = Reshape(x, s)")),
    REFUSED("size", "reshape_other_count", "Reshape 'y': 4 elements cannot take a shape of 5", MODEL("float[4] x", "float[] y", "int64[1] s = {5}", "y = Reshape(x, s)")),
    REFUSED("size", "conv_transpose_overflow", "ConvTranspose 'y': the output is too large", MODEL("float[1,1,1099511627776] x", "float[] y", "float[1,1,1] w = {1.0}", "y = ConvTranspose <strides = [1099511627776]> (x, w)")),
    PLANNED("size", "matmul_product_huge", EBB_REJECTED, "'y'", MODEL("float[4294967296,1] x, float[1,4294967296] z", "float[4294967296,4294967296] y", "", "y = MatMul(x, z)")),
    RUN("size", "matmul_inner_huge", EBB_REJECTED, "ConstantOfShape 'a': takes 4.4e+12 bytes of memory", MODEL("float[4] x", "float[] y", "int64[2] s = {1, 1099511627776}, int64[2] t = {1099511627776, 1}", "a = ConstantOfShape(s) b = ConstantOfShape(t) m = MatMul(a, b) y = Add(m, x)")),
    PLANNED("size", "sum_of_sizes_huge", EBB_REJECTED, "'x' has the type float32[2305843009213693951], whose size is not known", MODEL("float[2305843009213693951] x", "float[2305843009213693951] y", "", "a = Relu(x) b = Neg(x) c = Exp(x) d = Add(a, b) y = Add(c, d)")),
    RUN("size", "pool_window_huge", EBB_UNSUPPORTED, "its windows have more elements than can be counted", MODEL("float[4] x", "float[] y", "int64[5] s = {1, 1, 1, 2, 2}", "a = Reshape(x, s) y = MaxPool <kernel_shape = [4194304, 2097152, 2097152], pads = [2097152, 1048576, 1048576, 2097152, 1048576, 1048576]> (a)")),
    RUN("size", "lp_pool_window_huge", EBB_UNSUPPORTED, "its windows have more elements than can be counted", MODEL("float[4] x", "float[] y", "int64[5] s = {1, 1, 1, 2, 2}", "a = Reshape(x, s) y = LpPool <kernel_shape = [4194304, 2097152, 2097152], pads = [2097152, 1048576, 1048576, 2097152, 1048576, 1048576]> (a)")),
    GRADED("size", "grad_matmul_huge", EBB_REJECTED, "the shape of 'y' is too large", MODEL("float[4611686018427387904,2,1] x", "float[] loss", "float[1,2] w = {1.0, 2.0}", "y = MatMul(x, w) loss = ReduceMean <keepdims = 0> (y)")),
    PLANNED("size", "conv_past_32_bits", EBB_OK, "peak", MODEL("float[2,16,2147483647,8] x, float[32,16,3,3] w", "float[] y", "", "y = Conv <pads = [1, 1, 1, 1]> (x, w)")),
    {"size", "terabytes_trusted.onnx", "run % --trust --data x.safetensors", EBB_RUNTIME, "a step needs 4.00 TiB, which cannot be allocated", MODEL("float[4] x", "float[] y", "int64[2] s = {1048576, 1048576}", "a = ConstantOfShape(s) m = ReduceSum <keepdims = 0> (a) y = Add(m, x)")},
    RUN("size", "terabytes", EBB_REJECTED, "ConstantOfShape 'a': takes 4.4e+12 bytes of memory", MODEL("float[4] x", "float[] y", "int64[2] s = {1048576, 1048576}", "a = ConstantOfShape(s) m = ReduceSum <keepdims = 0> (a) y = Add(m, x)")),

    /* work out of proportion to the file */
    PLANNED("work", "einsum_of_vectors", EBB_REJECTED, "Einsum 'y': takes 8.8e+12 operations, and the", MODEL("float[64] x", "float[] y", "", "y = Einsum <equation = \"a,b,c,d,e,f,g->\"> (x, x, x, x, x, x, x)")),
    PLANNED("work", "dft_long", EBB_REJECTED, "DFT 'y': takes 2.25e+15 operations, and the", MODEL("float[1,4,1] x", "float[] y", "int64 n = {16777216}, int64 a = {1}", "y = DFT(x, n, a)")),
    PLANNED("work", "stft_of_every_place", EBB_REJECTED, "STFT 'y': takes 1.41e+14 operations, and the", MODEL("float[1,65536,1] x", "float[] y", "int64 s = {1}, int64 n = {32768}", "y = STFT(x, s, , n)")),
    PLANNED("work", "roi_align_samples", EBB_REJECTED, "RoiAlign 'y': takes 4e+12 operations, and the", MODEL("float[1,1,2,2] x, float[1,4] r", "float[] y", "int64[1] b = {0}", "y = RoiAlign <output_height = 1000, output_width = 1000, sampling_ratio = 1000> (x, r, b)")),
    PLANNED("work", "det_of_one_large", EBB_REJECTED, "Det 'y': takes 1.1e+12 operations, and the", MODEL("float[1] x", "float[] y", "int64[2] s = {10321, 10321}", "a = Expand(x, s) y = Det(a)")),
    PLANNED("work", "window_long", EBB_REJECTED, "HannWindow 'y': takes 3.44e+10 bytes of memory, and the", MODEL("", "float[] y", "int64 n = {8589934592}", "y = HannWindow(n)")),
    PLANNED("work", "constant_of_shape_large", EBB_REJECTED, "ConstantOfShape 'y': takes 6.87e+10 bytes of memory, and the", MODEL("", "float[] y", "int64[2] s = {131072, 131072}", "y = ConstantOfShape(s)")),
    PLANNED("work", "expand_large", EBB_REJECTED, "Expand 'y': takes 6.87e+10 bytes of memory, and the", MODEL("float[1] x", "float[] y", "int64[2] s = {131072, 131072}", "y = Expand(x, s)")),
    PLANNED("work", "tile_large", EBB_REJECTED, "Tile 'y': takes 6.87e+10 bytes of memory, and the", MODEL("float[1,1] x", "float[] y", "int64[2] s = {131072, 131072}", "y = Tile(x, s)")),
    PLANNED("work", "range_large", EBB_REJECTED, "Range 'y': takes 6.87e+10 bytes of memory, and the", MODEL("", "float[] y", "float a = {0.0}, float b = {17179869184.0}, float c = {1.0}", "y = Range(a, b, c)")),
    PLANNED("work", "one_hot_large", EBB_REJECTED, "OneHot 'y': takes 6.87e+10 bytes of memory, and the", MODEL("int64[4] x", "float[] y", "int64 d = {4294967296}, float[2] v = {0.0, 1.0}", "y = OneHot(x, d, v)")),
    PLANNED("work", "eye_large", EBB_REJECTED, "EyeLike 'y': takes 8.59e+10 bytes of memory, and the", MODEL("", "float[] y", "int64[2] s = {131072, 131072}", "a = ConstantOfShape <value = int8[1] {0}> (s) y = EyeLike <dtype = 1> (a)")),
    PLANNED("work", "random_large", EBB_REJECTED, "RandomUniform 'y': takes 6.87e+10 bytes of memory, and the", MODEL("", "float[] y", "", "y = RandomUniform <shape = [131072, 131072]> ()")),
    PLANNED("work", "resize_large", EBB_REJECTED, "Resize 'y': takes 4e+10 bytes of memory, and the", MODEL("float[1,1,1,1] x", "float[] y", "float[4] s = {1.0, 1.0, 100000.0, 100000.0}", "y = Resize(x, , s)")),
    {"work", "many_large_constants.onnx", "check %", EBB_OK, "every operator has a kernel", MODEL("float[4] x", "int64[] y, float[4] z", "int64[1] s = {8388608}, float[4] w = {1,2,3,4}", "z = Mul(x, w) a = ConstantOfShape <value = int64[1] {1}> (s) b = Add(a, a) c = Add(b, b) d = Add(c, c) e = Add(d, d) f = Add(e, e) g = Add(f, f) h = Add(g, g) i = Add(h, h) j = Add(i, i) k = Add(j, j) y = Add(k, k)")},
    {"work", "trusted.onnx", "plan % --trust", EBB_OK, "peak   64.00 GiB", MODEL("", "float[] y", "int64[2] s = {131072, 131072}", "y = ConstantOfShape(s)")},

    /* attributes and divisions by zero */
    REFUSED("attribute", "conv_group_0", "Conv 'y': group is 0", MODEL("float[1,2,4,4] x, float[2,2,3,3] w", "float[] y", "", "y = Conv <group = 0> (x, w)")),
    REFUSED("attribute", "conv_group_negative", "Conv 'y': group is -1", MODEL("float[1,2,4,4] x, float[2,2,3,3] w", "float[] y", "", "y = Conv <group = -1> (x, w)")),
    REFUSED("attribute", "conv_stride_0", "Conv 'y': kernel_shape, strides, dilations or output_padding is out of range", MODEL("float[1,2,4,4] x, float[2,2,3,3] w", "float[] y", "", "y = Conv <strides = [0, 1]> (x, w)")),
    REFUSED("attribute", "conv_dilation_overflow", "Conv 'y': kernel_shape, strides, dilations or output_padding is out of range", MODEL("float[1,2,4,4] x, float[2,2,3,3] w", "float[] y", "", "y = Conv <dilations = [9223372036854775807, 1]> (x, w)")),
    REFUSED("attribute", "conv_pads_negative", "Conv 'y': the kernel is larger than the padded input", MODEL("float[1,2,4,4] x, float[2,2,3,3] w", "float[] y", "", "y = Conv <pads = [-9, -9, -9, -9]> (x, w)")),
    REFUSED("attribute", "conv_bias_wrong", "Conv 'y': the bias has 1 elements, the output 2 channels", MODEL("float[1,2,4,4] x, float[2,2,3,3] w, float[1] b", "float[] y", "", "y = Conv(x, w, b)")),
    REFUSED("attribute", "pool_kernel_0", "MaxPool 'y': kernel_shape is out of range", MODEL("float[1,2,4,4] x", "float[] y", "", "y = MaxPool <kernel_shape = [0, 0]> (x)")),
    REFUSED("attribute", "pool_kernel_short", "AveragePool 'y': kernel_shape does not have one entry for each spatial axis", MODEL("float[1,2,4,4] x", "float[] y", "", "y = AveragePool <kernel_shape = [2]> (x)")),
    REFUSED("attribute", "axis_outside", "Softmax 'y': axis 2 lies outside of rank 2", MODEL("float[2,3] x", "float[] y", "", "y = Softmax <axis = 2> (x)")),
    REFUSED("attribute", "axis_least", "LayerNormalization 'y': axis -9223372036854775808 lies outside of rank 2", MODEL("float[2,3] x, float[3] s", "float[] y", "", "y = LayerNormalization <axis = -9223372036854775808> (x, s)")),
    REFUSED("attribute", "axis_is_text", "Softmax 'y': attribute 'axis' is a string, and must be an integer", MODEL("float[2,3] x", "float[] y", "", "y = Softmax <axis = \"1\"> (x)")),
    REFUSED("attribute", "block_size_0", "DepthToSpace 'y': blocksize is 0", MODEL("float[1,4,2,2] x", "float[] y", "", "y = DepthToSpace <blocksize = 0> (x)")),
    REFUSED("attribute", "block_size_overflow", "SpaceToDepth 'y': blocksize is 4294967296", MODEL("float[1,4,2,2] x", "float[] y", "", "y = SpaceToDepth <blocksize = 4294967296> (x)")),
    REFUSED("attribute", "groups_0", "GroupNormalization 'y': num_groups is 0", MODEL("float[1,4,2] x, float[4] s, float[4] b", "float[] y", "", "y = GroupNormalization <num_groups = 0> (x, s, b)")),
    REFUSED("attribute", "split_into_0", "Split 'a': num_outputs is 0", MODEL("float[4] x", "float[] a", "", "a = Split <num_outputs = 0> (x)")),
    REFUSED("attribute", "top_k_too_many", "TopK 'v': k is 9, axis 0 has 4 elements", MODEL("float[4] x", "float[] v, int64[] i", "int64[1] k = {9}", "v, i = TopK(x, k)")),
    REFUSED("attribute", "cast_to_nothing", "Cast 'y': attribute 'to' is 99", MODEL("float[4] x", "float[] y", "", "y = Cast <to = 99> (x)")),
    REFUSED("attribute", "too_few_inputs", "Add 'y': input 1 is required and absent", MODEL("float[4] x", "float[] y", "", "y = Add(x)")),
    REFUSED("attribute", "too_many_inputs", "Relu 'y': has 3 inputs; Relu takes at most 1", MODEL("float[4] x", "float[] y", "", "y = Relu(x, x, x)")),
    REFUSED("attribute", "too_many_outputs", "Relu 'y': has 2 outputs; Relu makes at most 1", MODEL("float[4] x", "float[] y, float[] z", "", "y, z = Relu(x)")),
    RUN("attribute", "integer_division_by_zero", EBB_RUNTIME, "Div 'y': integer division by zero", MODEL("float[4] x", "int64[4] y", "int64[4] z = {1, 0, 1, 1}", "i = Cast <to = 7> (x) y = Div(i, z)")),
    RUN("attribute", "integer_remainder_by_zero", EBB_RUNTIME, "Mod 'y': integer division by zero", MODEL("float[4] x", "int64[4] y", "int64[4] z = {1, 0, 1, 1}", "i = Cast <to = 7> (x) y = Mod(i, z)")),

    RUN("shape", "nothing_in_huge_dims", EBB_REJECTED, "size is not known", MODEL("float[4] x", "float[] y", "int64[3] s = {0, 9223372036854775807, 4}", "z = ConstantOfShape(s) y = Concat <axis = 0> (z, z)")),

    REFUSED("size", "exabytes_to_reduce", "Concat 'y': the sum along axis 0 is too large", MODEL("float[6917529027641081855] x", "float[] y", "", "y = Concat <axis = 0> (x, x)")),

    /* operands of two dtypes where the specification wants one */
    REFUSED("dtype", "slope_in_bytes", "PRelu 'y': input 0 is float32, input 1 is uint8; they must agree", MODEL("float[4] x", "float[4] y", "uint8[1] s = {1}", "y = PRelu(x, s)")),
    REFUSED("dtype", "bound_in_integers", "Clip 'y': input 0 is float32, input 1 is int64; they must agree", MODEL("float[4] x", "float[4] y", "int64 l = {0}", "y = Clip(x, l)")),
    REFUSED("dtype", "weight_in_integers", "Conv 'y': input 0 is float32, input 1 is int8; they must agree", MODEL("float[1,1,4,4] x", "float[] y", "int8[1,1,1,1] w = {1}", "y = Conv(x, w)")),
    REFUSED("dtype", "state_in_booleans", "LSTM 'y': input 0 is float32, input 5 is bool; they must agree", MODEL("float[1,1,1] x", "float[] y", "float[1,4,1] w = {1.0, 1.0, 1.0, 1.0}, float[1,4,1] r = {1.0, 1.0, 1.0, 1.0}, bool[1,1,1] h = {1}", "y = LSTM <hidden_size = 1> (x, w, r, \"\", \"\", h)")),

    RUN("operand", "codes_that_nobody_reads", EBB_OK, "s ", MODEL("float[4] x", "float s", "", "\"\", s = DynamicQuantizeLinear(x)")),

    RUN("operand", "norm_that_nobody_reads", EBB_OK, "m ", MODEL("float[4] x", "float[1] m", "float[4] s = {1.0, 1.0, 1.0, 1.0}", "\"\", m = LayerNormalization(x, s)")),
    RUN("operand", "pool_that_nobody_reads", EBB_UNSUPPORTED, "its output 0 has no name", MODEL("float[4] x", "int64[1,1,2] i", "int64[3] s = {1, 1, 4}", "t = Reshape(x, s) \"\", i = MaxPool <kernel_shape = [2], strides = [2]> (t)")),
    RUN("operand", "softmax_that_nobody_reads", EBB_REJECTED, "its output has no name", MODEL("float[4] x", "float[4] y", "", "\"\" = Softmax(x) y = Relu(x)")),

    /* indices that come with the data */
    RUN("index", "gather_outside", EBB_RUNTIME, "Gather 'y': index 2000 at position 0 is outside -3..2", MODEL("float[4] x", "float[4] y", "float[3] w = {1.0, 2.0, 3.0}, float s = {1000.0}", "b = Mul(x, s) c = Add(b, s) i = Cast <to = 7> (c) y = Gather(w, i)")),
    RUN("index", "gather_negative", EBB_RUNTIME, "Gather 'y': index -2000 at position 0 is outside -3..2", MODEL("float[4] x", "float[4] y", "float[3] w = {1.0, 2.0, 3.0}, float s = {-1000.0}", "b = Mul(x, s) c = Add(b, s) i = Cast <to = 7> (c) y = Gather(w, i)")),
    RUN("index", "gather_elements_outside", EBB_RUNTIME, "GatherElements 'y': index 1001 at position 0 is outside -3..2", MODEL("float[4] x", "float[4] y", "float[3] w = {1.0, 2.0, 3.0}, float s = {1000.0}", "c = Add(x, s) i = Cast <to = 7> (c) y = GatherElements(w, i)")),
    RUN("index", "gather_nd_outside", EBB_RUNTIME, "GatherND 'y': coordinate 0 of index 0 is 1001, outside of an axis of length 3", MODEL("float[4] x", "float[] y", "float[3] w = {1.0, 2.0, 3.0}, float s = {1000.0}, int64[2] t = {4, 1}", "c = Add(x, s) i = Cast <to = 7> (c) j = Reshape(i, t) y = GatherND(w, j)")),
    RUN("index", "scatter_outside", EBB_RUNTIME, "ScatterElements 'y': index 1001 at position 0 is outside -3..2", MODEL("float[4] x", "float[3] y", "float[3] w = {1.0, 2.0, 3.0}, float s = {1000.0}", "c = Add(x, s) i = Cast <to = 7> (c) y = ScatterElements(w, i, x)")),
    RUN("index", "scatter_nd_outside", EBB_RUNTIME, "ScatterND 'y': coordinate 0 of index 0 is 1001, outside of an axis of length 3", MODEL("float[4] x", "float[3] y", "float[3] w = {1.0, 2.0, 3.0}, float s = {1000.0}, int64[2] t = {4, 1}", "c = Add(x, s) i = Cast <to = 7> (c) j = Reshape(i, t) y = ScatterND(w, j, x)")),
    REFUSED("index", "top_k_negative", "TopK 'v': k is -4", MODEL("float[4] x", "float[] v, int64[] i", "int64 t = {-1}, int64[1] e = {0}", "a = Shape(x) k = Mul(a, t) v, i = TopK(x, k)")),
    TRAINED("index", "label_outside", EBB_RUNTIME, "row 2 of 'target' in rows.safetensors: label 7 is outside 0..1", MODEL("float[4,3] rows", "float[4,2] y", "float[3,2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}", "y = MatMul(rows, w)")),
    TRAINED("index", "embedding_outside", EBB_RUNTIME, "row 2 of 'tokens' in rows.safetensors: index 1000000 is outside -3..2", MODEL("int64[4] tokens", "float[4,2] y", "float[3,2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}", "y = Gather(w, tokens)")),

    /* bodies */
    RUN("nesting", "loop_without_end", EBB_UNSUPPORTED, "Loop (1): Loop 'y'", MODEL("float[4] x", "float[4] y", "int64 n = {9223372036854775807}, bool t = {1}", "y = Loop <body = b (int64 i, bool c, float[4] a) => (bool d, float[4] e) { d = Identity(c) e = Relu(a) }> (n, t, x)")),
    RUN("nesting", "body_without_outputs", EBB_REJECTED, "If 'y': its then_branch makes 0 outputs, and must make 1", MODEL("float[4] x", "float[4] y", "bool t = {1}", "y = If <then_branch = a () => () { z = Relu(x) }, else_branch = b () => (float[4] z) { z = Neg(x) }> (t)")),
    REFUSED("nesting", "branch_with_inputs", "If 'y': its then_branch takes 1 inputs, and is given 0", MODEL("float[4] x", "float[4] y", "bool t = {1}", "y = If <then_branch = a (float[4] u) => (float[4] z) { z = Relu(u) }, else_branch = b () => (float[4] z) { z = Neg(x) }> (t)")),
    REFUSED("nesting", "branch_in_a_branch_with_inputs", "If 'z': its else_branch takes 1 inputs, and is given 0", MODEL("float[4] x", "float[4] y", "bool t = {1}", "y = If <then_branch = a () => (float[4] z) { z = If <then_branch = c () => (float[4] v) { v = Abs(x) }, else_branch = d (float[4] u) => (float[4] v) { v = Relu(u) }> (t) }, else_branch = b () => (float[4] z) { z = Neg(x) }> (t)")),
    REFUSED("nesting", "branch_missing", "If 'y': it has no else_branch", MODEL("float[4] x", "float[4] y", "bool t = {1}", "y = If <then_branch = a () => (float[4] z) { z = Relu(x) }> (t)")),
    REFUSED("nesting", "loop_body_missing", "Loop 'y': it has no body", MODEL("float[4] x", "float[4] y", "int64 n = {3}", "y = Loop(n, , x)")),
    REFUSED("nesting", "loop_body_of_one_input", "Loop 'y': its body takes 1 inputs, and is given 3", MODEL("float[4] x", "float[4] y", "int64 n = {3}", "y = Loop <body = b (int64 i) => (bool d, float[4] e) { d = Identity(i) e = Relu(x) }> (n, , x)")),
    REFUSED("nesting", "loop_body_asks_for_more", "Loop 'y': its body takes 4 inputs, and is given 3", MODEL("float[4] x", "float[4] y", "int64 n = {3}", "y = Loop <body = b (int64 i, bool c, float[4] a, float[4] f) => (bool d, float[4] e) { d = Identity(c) e = Add(a, f) }> (n, , x)")),
    REFUSED("nesting", "loop_body_makes_too_little", "Loop 'y': its body makes 1 outputs, and must make 2", MODEL("float[4] x", "float[4] y", "int64 n = {3}", "y = Loop <body = b (int64 i, bool c, float[4] a) => (bool d) { d = Identity(c) }> (n, , x)")),
    REFUSED("nesting", "loop_carries_nothing", "Loop 'y': input 2 is missing", MODEL("float[4] x", "float[4] y, float[4] z", "int64 n = {3}", "y, z = Loop <body = b (int64 i, bool c, float[4] a, float[4] f) => (bool d, float[4] e, float[4] h) { d = Identity(c) e = Relu(f) h = Neg(f) }> (n, , , x)")),
    REFUSED("nesting", "scan_walks_through_nothing", "Scan 'y': num_scan_inputs is 2, and it has 1 inputs", MODEL("float[4] x", "float[4] y", "", "y = Scan <num_scan_inputs = 2, body = b (float a, float c) => (float d) { d = Add(a, c) }> (x)")),
    REFUSED("nesting", "scan_body_asks_for_more", "Scan 'y': its body takes 2 inputs, and is given 1", MODEL("float[4] x", "float[4] y", "", "y = Scan <num_scan_inputs = 1, body = b (float a, float c) => (float d) { d = Add(a, c) }> (x)")),
    RUN("plug-in", "unknown_operator", EBB_UNSUPPORTED, "Evil (1): Evil 'y': not in the operator table", MODEL("float[4] x", "float[4] y", "", "y = com.microsoft.Evil <library = \"/tmp/evil.so\"> (x)")),

    /* files that are no model */
    {"file", "no_such_file.onnx", "check %", EBB_IO, "no_such_file.onnx", .text = NULL},
    {"file", "folder", "check %", EBB_IO, "folder/training_model.onnx: opening: No such file", .text = NULL},
    {"file", "pipe", "check %", EBB_IO, "pipe: not a regular file", .text = NULL},
    {"file", "loop", "check %", EBB_IO, "loop: following the link", .text = NULL},
    {"file", "/dev/zero", "check %", EBB_IO, "/dev/zero: not a regular file", .text = NULL},

    /* arrays and checkpoints; ok.onnx is a sound model that lies beside */
#define READ(file, sentence, ...) {"array", file, "run ok.onnx --data %", EBB_REJECTED, sentence, __VA_ARGS__}
#define RESUMED(file, sentence, ...) {"checkpoint", file ".safetensors", "train ok.onnx --data ok.safetensors --batch 4 --loss mse --optimizer sgd:lr=0 --resume %", EBB_REJECTED, sentence, __VA_ARGS__}
    READ("empty.safetensors", "too few", .data = (const uint8_t[]){0}, .count = 0),
    READ("header_huge.safetensors", "the header claims 9223372036854775807 bytes", BYTES(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, '{', '}')),
    READ("header_cut.safetensors", "the header claims 3 bytes", BYTES(3, 0, 0, 0, 0, 0, 0, 0, '{', '}')),
    READ("not_json.safetensors", "the header is not JSON", .json = "{x"),
    READ("json_list.safetensors", "the header is no JSON object", .json = "[]"),
    READ("json_deep.safetensors", "the header is not JSON", .json = "{\"a\":" "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["),
    READ("name_twice.safetensors", "the header is not JSON", .json = "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}"),
    READ("shape_larger_than_bytes.safetensors", "array 'x' of type float32[1000000] does not fit its 4 bytes", .json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1000000],\"data_offsets\":[0,4]}}", .count = 4),
    READ("past_the_end.safetensors", "tensor 'x' lies at 0 to 4000", .json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1000],\"data_offsets\":[0,4000]}}", .count = 4),
    READ("end_before_begin.safetensors", "tensor 'x' lies at 8 to 4", .json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}", .count = 8),
    READ("negative_dim.safetensors", "tensor 'x' has a negative or odd dim", .json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", .count = 4),
    READ("product_overflow.safetensors", "array 'x' of type float32[4294967296,4294967296] does not fit its 4 bytes", .json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", .count = 4),
    READ("rank_13.safetensors", "tensor 'x' has rank 13", .json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", .count = 4),
    READ("dtype_unknown.safetensors", "tensor 'x' has the unknown dtype 'P64'", .json = "{\"x\":{\"dtype\":\"P64\",\"shape\":[1],\"data_offsets\":[0,8]}}", .count = 8),
    READ("overlap.safetensors", "overlap", .json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", .count = 12),
    READ("gap.safetensors", "belong to no tensor", .json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", .count = 12),
    READ("tail.safetensors", "belong to no tensor", .json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", .count = 64),
    READ("pickle.npy", "array 'pickle' has the data type '|O', which is not supported", BYTES(0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 58, 0, '{', '\'', 'd', 'e', 's', 'c', 'r', '\'', ':', ' ', '\'', '|', 'O', '\'', ',', ' ', '\'', 'f', 'o', 'r', 't', 'r', 'a', 'n', '_', 'o', 'r', 'd', 'e', 'r', '\'', ':', ' ', 'F', 'a', 'l', 's', 'e', ',', '\'', 's', 'h', 'a', 'p', 'e', '\'', ':', '(', '1', ',', ')', ',', '}', ' ', ' ', ' ', ' ', '\n')),
    READ("header_past_end.npy", "the header of 4294967295 bytes (version 2) does not fit into 13", BYTES(0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0xff, 0xff, 0xff, 0xff, '{')),
    READ("no_archive.npz", "not a readable .npz", BYTES('P', 'K', 5, 6, 0, 0)),
    RESUMED("other_program", "the checkpoint is not of this program", .json = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", .count = 4),
    RESUMED("weight_of_other_shape", "'w' is float32[2] in the file, float32[3,2] in the program", .json = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", .count = 8),
    RESUMED("negative_steps", "it does not say how many steps were done", .json = "{\"__metadata__\":{\"format\":\"ebb.checkpoint/1\",\"steps\":\"1\",\"extra\":\"{\\\"batch\\\":4,\\\"rows\\\":4,\\\"seed\\\":0,\\\"shuffle\\\":true,\\\"steps\\\":-7}\"},\"w\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},\"ebb.lr\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]}}", .count = 28),
    RESUMED("steps_are_text", "it does not say how many steps were done", .json = "{\"__metadata__\":{\"format\":\"ebb.checkpoint/1\",\"steps\":\"1\",\"extra\":\"{\\\"batch\\\":4,\\\"rows\\\":4,\\\"seed\\\":0,\\\"shuffle\\\":true,\\\"steps\\\":\\\"x\\\"}\"},\"w\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},\"ebb.lr\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]}}", .count = 28),
    RESUMED("no_seed", "with 'seed' missing", .json = "{\"__metadata__\":{\"format\":\"ebb.checkpoint/1\",\"steps\":\"1\",\"extra\":\"{\\\"batch\\\":4,\\\"rows\\\":4,\\\"shuffle\\\":true,\\\"steps\\\":1}\"},\"w\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},\"ebb.lr\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]}}", .count = 28),
    RESUMED("odd_key", "with 'sead' missing, of another type or unknown", .json = "{\"__metadata__\":{\"format\":\"ebb.checkpoint/1\",\"steps\":\"1\",\"extra\":\"{\\\"batch\\\":4,\\\"rows\\\":4,\\\"seed\\\":0,\\\"sead\\\":0,\\\"shuffle\\\":true,\\\"steps\\\":1}\"},\"w\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},\"ebb.lr\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]}}", .count = 28),
    RESUMED("other_format", "the file is no checkpoint of format ebb.checkpoint/1", .json = "{\"__metadata__\":{\"format\":\"ebb.checkpoint/9\",\"steps\":\"1\",\"extra\":\"{\\\"batch\\\":4,\\\"rows\\\":4,\\\"seed\\\":0,\\\"shuffle\\\":true,\\\"steps\\\":1}\"},\"w\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},\"ebb.lr\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]}}", .count = 28),
};
// clang-format on
