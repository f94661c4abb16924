/* low_bit.c: the operands of optimizers' steps whose states are codes, checked for all back ends.
 */
#include "kernels/call/low_bit.h"

ebb_low_bit ebb_low_bit_of(const ebb_call *c)
{
    ebb_low_bit l = {.n = ebb_elements(&c->in[2].type),
                     .block = ebb_attr_int(&c->attrs, "block", 256),
                     .bits = ebb_attr_int(&c->attrs, "bits", 8)};
    l.blocks = l.n / l.block + (l.n % l.block != 0);
    l.states = c->op == EBB_OP_ADAMW_LOW_BIT || c->op == EBB_OP_ADAMW_LOW_BIT_STOCHASTIC ? 2 : 1;
    l.stream = (uint32_t)ebb_attr_int(&c->attrs, "stream", 0);
    l.draws =
        c->op == EBB_OP_ADAMW_LOW_BIT_STOCHASTIC || c->op == EBB_OP_MOMENTUM_LOW_BIT_STOCHASTIC;
    return l;
}

static const char *unfit_layout(const ebb_call *c)
{
    int64_t bits = ebb_attr_int(&c->attrs, "bits", 8),
            block = ebb_attr_int(&c->attrs, "block", 256);
    if (bits != 4 && bits != 8)
        return "its codes have neither 4 nor 8 bits";
    if (block < 32 || block > EBB_LOW_BIT_BLOCK || block % 32 != 0)
        return "its block is no multiple of 32 up to 4096";
    return NULL;
}

static bool is_vector(const ebb_operand *o, uint8_t dtype, int64_t size)
{
    return o->type.dtype == dtype && o->type.rank == 1 && o->type.dims[0] == size;
}

const char *ebb_low_bit_unfit(const ebb_call *c)
{
    const char *why = unfit_layout(c);
    if (why != NULL)
        return why;
    if (c->input_count < 3)
        return "wrong number of operands";
    const ebb_low_bit l = ebb_low_bit_of(c);
    const uint32_t inputs = 4 + 3 * l.states + (l.draws ? 1 : 0);
    if (c->input_count != inputs || c->output_count != 1 + 2 * l.states)
        return "wrong number of operands";
    const ebb_type *w = &c->in[2].type;
    if (!ebb_dtype_is_float((ebb_dtype)w->dtype))
        return "the weight is no float";
    for (uint32_t i = 0; i < 2; i++)
        if (c->in[i].type.dtype == EBB_NONE || ebb_elements(&c->in[i].type) != 1)
            return "the rate or the step count is not a scalar";
    if (c->in[3].type.dtype != w->dtype || !ebb_type_same_shape(&c->in[3].type, w) ||
        c->out[0].type.dtype != w->dtype || !ebb_type_same_shape(&c->out[0].type, w))
        return "weight and gradient differ in type";
    const int64_t bytes = l.bits == 8 ? l.n : l.n / 2 + l.n % 2;
    for (uint32_t k = 0; k < l.states; k++)
        if (!is_vector(&c->in[4 + 2 * k], EBB_U8, bytes) ||
            !is_vector(&c->out[1 + 2 * k], EBB_U8, bytes) ||
            !is_vector(&c->in[5 + 2 * k], w->dtype, l.blocks) ||
            !is_vector(&c->out[2 + 2 * k], w->dtype, l.blocks) ||
            !is_vector(&c->in[4 + 2 * l.states + k], w->dtype, (int64_t)1 << l.bits))
            return "codes, scales or maps differ from what the weight asks for";
    if (l.draws && !is_vector(&c->in[inputs - 1], EBB_I64, 2))
        return "the key is not int64[2]";
    return NULL;
}
