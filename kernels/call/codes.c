/* codes.c: see codes.h. */
#include "kernels/call/codes.h"

static int64_t product(const int64_t *dims, int64_t count)
{
    int64_t n = 1;
    for (int64_t d = 0; d < count; d++)
        n *= dims[d];
    return n;
}

static int64_t bytes_of(int64_t codes, uint32_t bits)
{
    return (codes * (int64_t)bits + 7) / 8;
}

static bool is_key(const ebb_call *c, uint32_t i)
{
    return ebb_call_has(c, i) && c->in[i].type.dtype == EBB_I64 &&
           product(c->in[i].type.dims, c->in[i].type.rank) == 2;
}

static bool are_bits(int64_t bits)
{
    return bits == 1 || bits == 2 || bits == 4 || bits == 8;
}

/* ---- groups ---- */

static ebb_groups cut(const ebb_call *c, int64_t rows, int64_t inner)
{
    ebb_groups v = {.rows = rows, .inner = inner};
    v.bits = (uint32_t)ebb_attr_int(&c->attrs, "bits", 8);
    v.group = ebb_attr_int(&c->attrs, "group", 256);
    v.groups = (v.inner + v.group - 1) / v.group;
    v.row_bytes = bytes_of(v.inner, v.bits);
    return v;
}

ebb_groups ebb_quantize_groups(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t axis = ebb_attr_int(&c->attrs, "axis", 1);
    return cut(c, product(x->dims, axis), product(x->dims + axis, x->rank - axis));
}

ebb_groups ebb_dequantize_groups(const ebb_call *c)
{
    const ebb_type *y = &c->out[0].type;
    int64_t rows = c->in[0].type.dims[0];
    return cut(c, rows, rows > 0 ? product(y->dims, y->rank) / rows : 0);
}

static const char *wrong_attributes(const ebb_call *c)
{
    int64_t bits = ebb_attr_int(&c->attrs, "bits", 8);
    int64_t group = ebb_attr_int(&c->attrs, "group", 256);
    if (!are_bits(bits))
        return "bits is not 1, 2, 4 or 8";
    return group < 1 || group > INT32_MAX || group * bits % 8 != 0
               ? "a group does not fill whole bytes"
               : NULL;
}

static const char *wrong_codes(const ebb_operand *codes, const ebb_operand *range,
                               const ebb_groups *v)
{
    const ebb_type *k = &codes->type, *r = &range->type;
    if (k->dtype != EBB_U8 || k->rank != 2 || k->dims[0] != v->rows || k->dims[1] != v->row_bytes)
        return "the codes are not rows of bytes of the tensor's size";
    if (r->dtype != EBB_BF16 || r->rank != 3 || r->dims[0] != v->rows || r->dims[1] != v->groups ||
        r->dims[2] != 2)
        return "the range is not a low and a step in bfloat16 for each group";
    return NULL;
}

const char *ebb_quantize_misfit(const ebb_call *c)
{
    EBB_ASK(wrong_attributes(c));
    if (!ebb_call_has(c, 0) || !ebb_dtype_is_float((ebb_dtype)c->in[0].type.dtype))
        return "what it encodes is no float";
    if (!is_key(c, 1))
        return "the key is not int64[2]";
    if (!ebb_call_wants(c, 0) || !ebb_call_wants(c, 1))
        return "makes codes and range together";
    int64_t axis = ebb_attr_int(&c->attrs, "axis", 1);
    if (axis < 0 || axis > c->in[0].type.rank)
        return "axis is outside of the input's rank";
    ebb_groups v = ebb_quantize_groups(c);
    return wrong_codes(&c->out[0], &c->out[1], &v);
}

const char *ebb_quantize_running_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_quantize_misfit(c));
    if (!ebb_call_has(c, 2) || !ebb_call_wants(c, 2))
        return "has no state of running ranges";
    ebb_groups v = ebb_quantize_groups(c);
    const ebb_type *state = &c->in[2].type;
    double decay = ebb_attr_float(&c->attrs, "decay", 0.9);
    if (state->dtype != EBB_F32 || state->rank != 2 || state->dims[1] != 2 ||
        c->out[2].type.dtype != EBB_F32 || !ebb_type_same_shape(state, &c->out[2].type))
        return "the state is no low and width in float32 for each class";
    if (v.inner % v.group != 0 || state->dims[0] < 1 || v.groups % state->dims[0] != 0)
        return "classes do not divide groups, or groups a row";
    return decay >= 0 && decay < 1 ? NULL : "decay is outside of [0, 1)";
}

const char *ebb_dequantize_misfit(const ebb_call *c)
{
    EBB_ASK(wrong_attributes(c));
    if (!ebb_call_wants(c, 0) || !ebb_dtype_is_float((ebb_dtype)c->out[0].type.dtype))
        return "what it decodes to is no float";
    if (!ebb_call_has(c, 1) || c->in[0].type.rank != 2)
        return "codes and range are two operands";
    const ebb_type *y = &c->out[0].type;
    int64_t rows = c->in[0].type.dims[0], elements = product(y->dims, y->rank);
    if (rows == 0 ? elements != 0 : elements % rows != 0)
        return "the output's elements are not as many in every row";
    ebb_groups v = ebb_dequantize_groups(c);
    return rows == 0 ? NULL
                     : wrong_codes(&c->in[0], &c->in[1], &v); // of no rows any length will do
}

/* ---- planes ---- */

ebb_planes ebb_split_planes(const ebb_call *c, const ebb_type *x)
{
    ebb_planes p = {.height = x->dims[2], .width = x->dims[3], .count = x->dims[0] * x->dims[1]};
    p.block = ebb_attr_int(&c->attrs, "block", 8);
    p.bits = (uint32_t)ebb_attr_int(&c->attrs, "bits", 8);
    p.low_height = (p.height + p.block - 1) / p.block;
    p.low_width = (p.width + p.block - 1) / p.block;
    p.bytes = bytes_of(p.height * p.width, p.bits);
    return p;
}

static const char *wrong_planes(const ebb_call *c, const ebb_operand *x, const ebb_operand *coded)
{
    int64_t bits = ebb_attr_int(&c->attrs, "bits", 8), block = ebb_attr_int(&c->attrs, "block", 8);
    if (!are_bits(bits))
        return "bits is not 1, 2, 4 or 8";
    if (block < 1 || block > 1024)
        return "block is not 1 to 1024";
    if (!ebb_dtype_is_float((ebb_dtype)x->type.dtype) || x->type.rank != 4)
        return "works on images of floats only";
    ebb_planes p = ebb_split_planes(c, &x->type);
    const int64_t n = x->type.dims[0], k = x->type.dims[1];
    const int64_t dims[3][4] = {{n, k, p.low_height, p.low_width}, {n, k, p.bytes}, {n, k, 2}};
    static const ebb_dtype dtypes[3] = {EBB_BF16, EBB_U8, EBB_BF16};
    for (int i = 0; i < 3; i++) {
        ebb_type wanted = ebb_type_tensor(dtypes[i], i == 0 ? 4 : 3, dims[i]);
        if (coded[i].type.dtype != dtypes[i] || !ebb_type_same_shape(&coded[i].type, &wanted))
            return "means, codes or range are not of the image's size";
    }
    return NULL;
}

const char *ebb_split_frequency_misfit(const ebb_call *c)
{
    if (!ebb_call_has(c, 0) || !is_key(c, 1))
        return "the key is not int64[2]";
    if (c->output_count < 3)
        return "makes means, codes and range together";
    return wrong_planes(c, &c->in[0], c->out);
}

const char *ebb_split_frequency_decode_misfit(const ebb_call *c)
{
    return c->input_count < 3 || !ebb_call_wants(c, 0) ? "means, codes and range are three operands"
                                                       : wrong_planes(c, &c->out[0], c->in);
}

/* ---- optimizers whose states are codes ---- */

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

const char *ebb_low_bit_misfit(const ebb_call *c)
{
    EBB_ASK(unfit_layout(c));
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
