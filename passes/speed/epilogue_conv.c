/* epilogue_conv.c: a convolution with the sum and the ReLU behind it.
 *
 *   before   y = ai.ebb.ConvNhwc(x, w, b)     s = Add(y, a)       z = Relu(s)     m = PackSign(z)
 *   after    z, m = ai.ebb.ConvAddReluNhwc(x, w, b, a)
 *
 * Networks that were exported for inference have their batch norms folded into such convolutions.
 * The way back stays as it is: the filter's gradient and the bias's read ds = ReluGrad(dz, z) (or
 * MaskGrad(dz, m)) from memory, so it has to be made there, and nothing is gained by joining it
 * with one of its readers. m only where sign-mask made it before: who reads z anyway asks z.
 *
 * Declines where no library has one kernel for both (tests/cuda/library/test_cudnn_fusions.c): the sum and
 * the bits go with a convolution of 16 bits that has its channels last and one group; in float32
 * the ReLU goes with a bias. Bits that cannot come along stay a node of their own.
 */
#include "passes/speed/epilogue.h"

static bool is_conv(const ebb_graph *g, ebb_node n)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    return op == EBB_OP_CONV || op == EBB_OP_CONV_NHWC;
}

static ebb_dtype dtype_of(const ebb_graph *g, ebb_node conv)
{
    return (ebb_dtype)ebb_value_of(g, ebb_out(g, conv, 0))->type->dtype;
}

/* What cuDNN compiles for the purpose takes 16 bits, channels last, one group. */
static bool can_be_compiled(const ebb_graph *g, ebb_node conv)
{
    const ebb_dtype dtype = dtype_of(g, conv);
    const ebb_attrs attrs = ebb_node_attrs(g, conv);
    return ebb_node_of(g, conv)->op == EBB_OP_CONV_NHWC &&
           (dtype == EBB_F16 || dtype == EBB_BF16) && ebb_attr_int(&attrs, "group", 1) == 1;
}

/* Of an image's row each eight neighbouring channels are a byte. */
static bool has_bits(const ebb_graph *g, ebb_node conv)
{
    const ebb_type *y = ebb_value_of(g, ebb_out(g, conv, 0))->type;
    return can_be_compiled(g, conv) && y->rank == 4 && y->dims[3] > 0 && y->dims[3] % 8 == 0;
}

static const char *decline(const ebb_epilogue_state *s, const ebb_epilogue *t)
{
    const ebb_graph *g = s->e->g;
    const ebb_dtype dtype = dtype_of(g, t->maker);
    if (dtype != EBB_F32 && dtype != EBB_F16 && dtype != EBB_BF16)
        return "its convolution is not of 16 or 32 bits";
    if (can_be_compiled(g, t->maker))
        return NULL;
    if (t->added.i != 0)
        return "the sum before it goes with a convolution of 16 bits, channels last and one group "
               "only";
    return ebb_in(g, t->maker, 2).i != 0 ? NULL
                                         : "its convolution has no bias, and no library has one "
                                           "kernel for both then but in 16 bits, channels last";
}

static ebb_op joined_op(ebb_op conv, bool adds)
{
    if (conv == EBB_OP_CONV)
        return EBB_OP_CONV_RELU;
    return adds ? EBB_OP_CONV_ADD_RELU_NHWC : EBB_OP_CONV_RELU_NHWC;
}

static ebb_status join(const ebb_epilogue_state *s, const ebb_epilogue *t)
{
    ebb_graph *g = s->e->g;
    ebb_node packs[EBB_EPILOGUE_PACKS];
    ebb_value made[2] = {{0}}, in[4], z = ebb_out(g, t->relu, 0);
    const ebb_value y = ebb_out(g, t->maker, 0);
    const uint32_t pack_count = has_bits(g, t->maker) ? ebb_epilogue_packs(g, z, packs) : 0;
    const bool adds = t->added.i != 0;
    ebb_build b = ebb_edit_build(s->e, t->relu, EBB_PHASE_NONE);
    b.name = ebb_value_name(g, z);
    for (uint32_t i = 0; i < 3; i++)
        in[i] = ebb_in(g, t->maker, i);
    if (adds)
        in[3] = ebb_emit_reshape_like(&b, t->added, y);
    ebb_with_attrs_of(&b, t->maker);
    ebb_emit_node(&b, joined_op(ebb_node_of(g, t->maker)->op, adds), in,
                  adds ? 4 : 2 + (in[2].i != 0), made, pack_count > 0 ? 2 : 1, 3);
    const ebb_node joined = b.last;
    const ebb_value out = ebb_emit_reshape_like(&b, made[0], z);
    EBB_TRY(b.status);
    ebb_keep_name(g, joined, t->maker);
    return ebb_epilogue_joined(s->e, t, out, made[1], packs, pack_count);
}

const ebb_epilogue_kind ebb_epilogue_conv = {is_conv, decline, join};
