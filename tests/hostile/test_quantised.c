/* test_quantised.c: weights in few bits whose operands do not fit each other. Each is refused by a
 * sentence that names the node and the input or attribute; none is read beyond its end.
 */
#include <stdio.h>
#include <string.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"
#include "tests/status.h"

typedef struct broken {
    const char *given, *call, *sentence;
} broken;

#define NBITS(attributes, operands) "com.microsoft.MatMulNBits <" attributes "> (x, " operands ")"
#define FINE "K = 40, N = 3, bits = 4, block_size = 16"
#define BNB4(attributes) "com.microsoft.MatMulBnb4 <" attributes "> (x, c, s)"
#define TABLE(attributes, operands) \
    "com.microsoft.GatherBlockQuantized <" attributes "> (" operands ")"
#define DEQUANTIZE(attributes, operands) "DequantizeLinear <" attributes "> (" operands ")"
#define CODES "uint8[3,3,8] c = {" C72 "}"
#define C8 "1,2,3,4,5,6,7,8"
#define C72 C8 "," C8 "," C8 "," C8 "," C8 "," C8 "," C8 "," C8 "," C8
#define C64 C8 "," C8 "," C8 "," C8 "," C8 "," C8 "," C8 "," C8
#define C80 C72 "," C8
#define C160 C80 "," C80
#define S9 "float[3,3] s = {1,2,3,4,5,6,7,8,9}"

// clang-format off
static const broken misfits[] = {
    {CODES ", " S9, NBITS("K = 40, N = 3, bits = 3, block_size = 16", "c, s"), "bits is none"},
    {CODES ", " S9, NBITS("K = 40, N = 3, bits = 4, block_size = 0", "c, s"), "block_size is no power of 2"},
    {CODES ", " S9, NBITS("K = 40, N = 3, bits = 4, block_size = 24", "c, s"), "block_size is no power of 2"},
    {CODES ", " S9, NBITS("K = 40, N = 3, bits = 4", "c, s"), "block_size is no power of 2"},
    {CODES ", " S9, NBITS("K = 40, N = 0, bits = 4, block_size = 16", "c, s"), "N and K"},
    {CODES ", " S9, NBITS("N = 3, bits = 4, block_size = 16", "c, s"), "N and K"},
    {CODES ", " S9, NBITS("K = -40, N = 3, bits = 4, block_size = 16", "c, s"), "N and K"},
    {CODES ", " S9, NBITS("K = 9223372036854775807, N = 9223372036854775807, bits = 4, block_size = 16", "c, s"), "N and K"},
    {CODES ", " S9, NBITS("K = 2147483647, N = 2147483647, bits = 8, block_size = 16", "c, s"), "input 1"},
    {CODES ", " S9, NBITS("K = 40, N = 4, bits = 4, block_size = 16", "c, s"), "input 1"},
    {CODES ", " S9, NBITS("K = 40, N = 3, bits = 8, block_size = 16", "c, s"), "input 1"},
    {CODES ", " S9, NBITS("K = 40, N = 3, bits = 4, block_size = 4611686018427387904", "c, s"), "block_size"},
    {"int8[3,3,8] c = {" C72 "}, " S9, NBITS(FINE, "c, s"), "input 1, the codes, is not uint8"},
    {CODES ", float[3,2] s = {1,2,3,4,5,6}", NBITS(FINE, "c, s"), "input 2 has not one scale"},
    {CODES ", int32[3,3] s = {1,2,3,4,5,6,7,8,9}", NBITS(FINE, "c, s"), "input 2, the scales, holds no floats"},
    {CODES ", " S9 ", uint8[3,1] z = {1,2,3}", NBITS(FINE, "c, s, z"), "input 3"},
    {CODES ", " S9 ", uint8[7] z = {1,2,3,4,5,6,7}", NBITS(FINE, "c, s, z"), "input 3"},
    {CODES ", " S9 ", float[3,2] z = {1,2,3,4,5,6}", NBITS(FINE, "c, s, z"), "input 3"},
    {CODES ", " S9 ", int64[3,3] z = {1,2,3,4,5,6,7,8,9}", NBITS(FINE, "c, s, z"), "input 3"},
    {CODES ", " S9 ", uint8[3,2] z = {1,2,3,4,5,6}, int32[40] o = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,2,2,2,2,2,2,2,2}", NBITS(FINE, "c, s, z, o"), "input 4 (g_idx)"},
    {CODES ", " S9 ", uint8[3,2] z = {1,2,3,4,5,6}, int32[2] o = {0,7}", NBITS(FINE, "c, s, z, o"), "input 4 (g_idx)"},
    {CODES ", " S9, NBITS(FINE ", weight_prepacked = 1", "c, s"), "input 1 is packed"},
    {CODES, NBITS(FINE, "c"), "inputs 0, 1 and 2 is missing"},
    {"uint8[3,2,16] c = {" C72 "," C8 "," C8 "," C8 "}, float[3,2] s = {1,2,3,4,5,6}", NBITS("K = 41, N = 3, bits = 4, block_size = 32", "c, s"), "input 0"},
    {"uint8[59] c = {" C8 "," C8 "," C8 "," C8 "," C8 "," C8 "," C8 ",1,2,3}, float[8] s = {" C8 "}", BNB4("K = 40, N = 3, block_size = 16, quant_type = 1"), "input 1"},
    {"uint8[60] c = {" C8 "," C8 "," C8 "," C8 "," C8 "," C8 "," C8 ",1,2,3,4}, float[7] s = {1,2,3,4,5,6,7}", BNB4("K = 40, N = 3, block_size = 16, quant_type = 1"), "input 2"},
    {"uint8[60] c = {" C8 "," C8 "," C8 "," C8 "," C8 "," C8 "," C8 ",1,2,3,4}, float[8] s = {" C8 "}", BNB4("K = 40, N = 3, block_size = 16, quant_type = 7"), "quant_type"},
    {"uint8[60] c = {" C8 "," C8 "," C8 "," C8 "," C8 "," C8 "," C8 ",1,2,3,4}, float[8] s = {" C8 "}", BNB4("K = 40, N = 3, quant_type = 0"), "block_size"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, int64[2] i = {0,1}, float[3,2] s = {1,2,3,4,5,6}", TABLE("bits = 4, block_size = 16", "c, i, s"), "input 2 has not one scale"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, int64[2] i = {0,1}, float[3,1] s = {1,2,3}", TABLE("bits = 5, block_size = 16", "c, i, s"), "bits is none"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, int64[2] i = {0,1}, float[3,1] s = {1,2,3}", TABLE("bits = 4, block_size = 0", "c, i, s"), "block_size"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, int64[2] i = {0,1}, float[3,1] s = {1,2,3}", TABLE("bits = 4, block_size = 16, quantize_axis = 2", "c, i, s"), "quantize_axis"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, int64[2] i = {0,1}, float[3,1] s = {1,2,3}", TABLE("bits = 4, block_size = 16, gather_axis = 1", "c, i, s"), "gather_axis"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, float[2] i = {0,1}, float[3,1] s = {1,2,3}", TABLE("bits = 4, block_size = 16", "c, i, s"), "input 1, the indices"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, int64[2] i = {0,1}, float[3,1] s = {1,2,3}, uint8[3,2] z = {1,2,3,4,5,6}", TABLE("bits = 4, block_size = 16", "c, i, s, z"), "input 3"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, float[3,2] s = {1,2,3,4,5,6}", DEQUANTIZE("axis = 1, block_size = 3", "c, s"), "the blocks do not cover the axis"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, float[2,3] s = {1,2,3,4,5,6}", DEQUANTIZE("axis = 1, block_size = 4", "c, s"), "scale"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, float[3,2] s = {1,2,3,4,5,6}", DEQUANTIZE("axis = 2, block_size = 4", "c, s"), "axis"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, float[3,2] s = {1,2,3,4,5,6}", DEQUANTIZE("axis = 1, block_size = -4", "c, s"), "block_size"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, float[3,2] s = {1,2,3,4,5,6}, int8[3,2] z = {1,2,3,4,5,6}", DEQUANTIZE("axis = 1, block_size = 4", "c, s, z"), "input 2 is int8"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, float[3,2] s = {1,2,3,4,5,6}, uint8[3,1] z = {1,2,3}", DEQUANTIZE("axis = 1, block_size = 4", "c, s, z"), "zero point"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, int32[3,2] s = {1,2,3,4,5,6}", DEQUANTIZE("axis = 1, block_size = 4", "c, s"), "scale"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, float[4] s = {1,2,3,4}", DEQUANTIZE("axis = 0", "c, s"), "scale"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, uint8[3,4] d = {1,2,3,4,1,2,3,4,1,2,3,4}", "MatMulInteger (c, d)", "input"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, float[8,4] d = {" C8 "," C8 "," C8 "," C8 "}", "MatMulInteger (c, d)", "uint8 and int8 only"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, uint8[8,2] d = {" C8 "," C8 "}, uint8 z = {1}, uint8[3] v = {1,2,3}", "MatMulInteger (c, d, z, v)", "zero point"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, uint8[8,2] d = {" C8 "," C8 "}, int8 z = {1}", "MatMulInteger (c, d, z)", "input 2 is int8"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.MoE <k = 3> (x, r, w, \"\", v)", "k, the experts of a token"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.MoE <k = 0> (x, r, w, \"\", v)", "k, the experts of a token"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[3,2] r = {1,2,3,4,5,6}", "com.microsoft.MoE <k = 1> (x, r, w, \"\", v)", "not one row of scores"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[4] r = {1,2,3,4}", "com.microsoft.MoE <k = 1> (x, r, w, \"\", v)", "is no matrix"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[2,3] r = {1,2,3,4,5,6}", "com.microsoft.MoE <k = 1> (x, r, w, \"\", v)", "not [experts, rows, columns]"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.MoE <k = 1> (x, r, w, \"\", w)", "last dim of input 0"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.MoE <k = 1> (x, r, v, \"\", v)", "last dim of input 0"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.MoE <k = 1> (x, r, w)", "missing"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.MoE <k = 1, activation_type = \"tanh\"> (x, r, w, \"\", v)", "activation_type is none of"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.MoE <k = 1, activation_type = \"swiglu\"> (x, r, w, \"\", v)", "neither swiglu_fusion"},
    {"float[2,3,40] w = {" C160 "," C64 "," C8 "," C8 "}, float[2,40,2] v = {" C160 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.MoE <k = 1, activation_type = \"swiglu\", swiglu_fusion = 1> (x, r, w, \"\", v)", "an odd number of rows"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.MoE <k = 1, use_sparse_mixer = 1> (x, r, w, \"\", v)", "use_sparse_mixer"},
    {"float[2,2,40] w = {" C160 "}, float[2,40,2] v = {" C160 "}, float[2,2] r = {1,2,3,4}, float[3,2] b = {1,2,3,4,5,6}", "com.microsoft.MoE <k = 1> (x, r, w, b, v)", "a bias is not"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 4, block_size = 16> (x, r, c, \"\", \"\", d, t)", "have no scales"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 4, block_size = 16> (x, r, c, t, \"\", d, t)", "input 2 has not one scale"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 4, block_size = 16> (x, r, d, s, \"\", d, t)", "input 1"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 8, block_size = 16> (x, r, c, s, \"\", d, t)", "input 1"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 3, block_size = 16> (x, r, c, s, \"\", d, t)", "expert_weight_bits"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 4, block_size = 24> (x, r, c, s, \"\", d, t)", "block_size is no power"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 4, block_size = -16> (x, r, c, s, \"\", d, t)", "block_size is no power"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 4, block_size = 16, quant_type = \"fp4\"> (x, r, c, s, \"\", d, t)", "quant_type"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 4, block_size = 16, weights_prepacked = 1> (x, r, c, s, \"\", d, t)", "packed for one kind"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, uint8[3] z = {1,2,3}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 4, block_size = 16> (x, r, c, s, \"\", d, t, \"\", \"\", \"\", \"\", z)", "input 3"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[2,2] u = {1,2,3,4}, uint8[3] z = {1,2,3}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 4> (x, r, c, u, \"\", d, t, \"\", \"\", \"\", \"\", z)", "zero points of whole rows"},
    {"uint8[2,2,20] c = {" C80 "}, float[2,2,3] s = {1,2,3,4,5,6,7,8,9,10,11,12}, uint8[2,40,1] d = {" C80 "}, float[2,40,1] t = {" C80 "}, float[1,2] m = {1,2}, float[2,2] r = {1,2,3,4}", "com.microsoft.QMoE <expert_weight_bits = 4, block_size = 16> (x, r, c, s, \"\", d, t, \"\", \"\", \"\", \"\", \"\", \"\", \"\", m)", "GatherElements"},
    {CODES ", " S9, "com.microsoft.MatMulFpQ4 (x, c, s)", "MatMulNBits instead"},
    {CODES ", " S9 ", float[4] b = {1,2,3,4}", NBITS(FINE, "c, s, \"\", \"\", b"), "4"},
    {"float[3,8] c = {" C8 "," C8 "," C8 "}, int64[2] i = {0,1}, float[3,1] s = {1,2,3}", TABLE("bits = 4, block_size = 16", "c, i, s"), "input 0, the table"},
};

static const broken misfits_in_the_run[] = {
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, int64[2] i = {0,3}, float[3,1] s = {1,2,3}", TABLE("bits = 4, block_size = 16", "c, i, s"), "index 3 is outside of the 3 rows"},
    {"uint8[3,8] c = {" C8 "," C8 "," C8 "}, int32[1] i = {-4}, float[3,1] s = {1,2,3}", TABLE("bits = 4, block_size = 16", "c, i, s"), "index -4 is outside of the 3 rows"},
};
// clang-format on

static ebb_model *parsed(const broken *b)
{
    static char text[16384];
    ebb_model *m = NULL;
    (void)snprintf(text, sizeof text,
                   "<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]>\n"
                   "g (float[2,40] x) => (y) < %s > { [\"layer7\"] y = %s }",
                   b->given, b->call);
    good_for(ebb_text_parse_model(&m, text), text);
    return m;
}

/* The first status of what is done with the model. */
static ebb_status used(ebb_model *m)
{
    static float x[80];
    const int64_t dims[2] = {2, 40};
    const ebb_named given = {"x", 1, 2, dims, x};
    OWNED_PROGRAM *p = NULL;
    ebb_status status = ebb_infer_graph(m->graph);
    if (status == NULL)
        status = ebb_rewrite(m, "inline,fold,fuse", NULL, NULL);
    if (status == NULL)
        status = ebb_program_compile(&p, m, NULL);
    if (status == NULL)
        status = ebb_program_step(p, &(ebb_batch){&given, 1});
    return status;
}

static void has_a_sentence(const broken *b)
{
    OWNED_MODEL *m = parsed(b);
    ebb_status status = used(m);
    if (status == NULL)
        fail_msg("%s < %s >: it was taken", b->call, b->given);
    const char *said = ebb_status_text(status);
    if (strstr(said, b->sentence) == NULL || strstr(said, "'layer7") == NULL)
        fail_msg("%s < %s >: said was\n%s", b->call, b->given, said);
}

TEST(what_does_not_fit_has_a_sentence)
{
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++)
        has_a_sentence(&misfits[i]);
}

TEST(an_index_outside_has_one_in_the_run)
{
    for (size_t i = 0; i < sizeof misfits_in_the_run / sizeof *misfits_in_the_run; i++)
        has_a_sentence(&misfits_in_the_run[i]);
}
