/* codes.c: a tensor as codes of 1, 2, 4 or 8 bits, rounded at random, and the tensor again.
 *
 * Each group of a row has a range {low, step} in bfloat16. low is rounded down and step up, and the
 * rounded ones encode, so that every element lies inside and the code of x, rounded up with the
 * chance that its place between two codes says, decodes to x on average:
 *
 *     place = (x - low) / step        in 65536ths, to the nearest
 *     code  = (place + h) / 65536     h: 16 random bits; rounded down
 *
 * The bias is that of rounding the place: at most 2^-17 of a step, and what float32 does to it.
 * Groups are jobs of their own: they begin and end with a byte, and draw from a counter.
 */
#include "kernels/philox.h"
#include "kernels/plain/plain.h"

#include <math.h>
#include <string.h>

enum { PIECE = 256, LANES = PIECE / 8, WHOLE = 65536 };

typedef struct source {
    uint64_t seed, step;
    uint32_t stream;
} source;

typedef struct view { /* how a tensor is cut */
    int64_t rows, inner, group, groups, row_bytes;
    unsigned bits;
} view;

typedef struct plane { /* of an image, with means of blocks */
    int64_t height, width, block, low_height, low_width, bytes, count;
    unsigned bits;
} plane;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sixteen bits for each of 8 * lanes elements, from block on: Philox, a round at a time for all. */
static void draw(uint16_t half[PIECE], const source *s, uint64_t block, uint32_t lanes)
{
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];
    uint32_t k0 = (uint32_t)s->seed, k1 = (uint32_t)(s->seed >> 32);
    for (uint32_t i = 0; i < lanes; i++) {
        uint64_t at = block + i;
        c0[i] = (uint32_t)at;
        c1[i] = (uint32_t)(at >> 32) ^ (uint32_t)(s->step >> 32);
        c2[i] = s->stream;
        c3[i] = (uint32_t)s->step;
    }
    for (int round = 0; round < 10; round++) {
        EBB_SIMD
        for (uint32_t i = 0; i < lanes; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
            c0[i] = n0;
            c2[i] = n2;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    EBB_SIMD
    for (uint32_t i = 0; i < lanes; i++) {
        half[8 * i] = (uint16_t)c0[i];
        half[8 * i + 1] = (uint16_t)(c0[i] >> 16);
        half[8 * i + 2] = (uint16_t)c1[i];
        half[8 * i + 3] = (uint16_t)(c1[i] >> 16);
        half[8 * i + 4] = (uint16_t)c2[i];
        half[8 * i + 5] = (uint16_t)(c2[i] >> 16);
        half[8 * i + 6] = (uint16_t)c3[i];
        half[8 * i + 7] = (uint16_t)(c3[i] >> 16);
    }
}

/* PIECE codes, a byte each, into PIECE * bits / 8 bytes, the lowest bits first. */
static void pack(uint8_t *to, const uint8_t code[PIECE], unsigned bits)
{
    if (bits == 8)
        memcpy(to, code, PIECE);
    else if (bits == 4) {
        EBB_SIMD
        for (int i = 0; i < PIECE / 2; i++)
            to[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    } else if (bits == 2) {
        EBB_SIMD
        for (int i = 0; i < PIECE / 4; i++)
            to[i] = (uint8_t)(code[4 * i] | code[4 * i + 1] << 2 | code[4 * i + 2] << 4 |
                              code[4 * i + 3] << 6);
    } else
        for (int i = 0; i < PIECE / 8; i++) {
            uint64_t eight;
            memcpy(&eight, code + 8 * i, sizeof eight);
            to[i] = (uint8_t)(eight * UINT64_C(0x0102040810204080) >> 56);
        }
}

static void unpack(uint8_t code[PIECE], const uint8_t *from, unsigned bits)
{
    if (bits == 8)
        memcpy(code, from, PIECE);
    else if (bits == 4) {
        EBB_SIMD
        for (int i = 0; i < PIECE / 2; i++) {
            code[2 * i] = from[i] & 15;
            code[2 * i + 1] = from[i] >> 4;
        }
    } else if (bits == 2) {
        EBB_SIMD
        for (int i = 0; i < PIECE / 4; i++) {
            code[4 * i] = from[i] & 3;
            code[4 * i + 1] = from[i] >> 2 & 3;
            code[4 * i + 2] = from[i] >> 4 & 3;
            code[4 * i + 3] = from[i] >> 6;
        }
    } else {
        EBB_SIMD
        for (int i = 0; i < PIECE; i++)
            code[i] = (uint8_t)(from[i / 8] >> (i % 8) & 1);
    }
}

static int64_t bytes_of(int64_t codes, unsigned bits)
{
    return (codes * (int64_t)bits + 7) / 8;
}

#define LOOPS "kernels/plain/codes_loops.inc"
#include "kernels/plain/both_floats.inc"

/* ---- calls ---- */

static int64_t product(const int64_t *dims, int64_t count)
{
    int64_t n = 1;
    for (int64_t d = 0; d < count; d++)
        n *= dims[d];
    return n;
}

static view cut(const ebb_call *c, int64_t rows, int64_t elements)
{
    view v = {.rows = rows, .inner = rows > 0 ? elements / rows : 0};
    v.bits = (unsigned)ebb_attr_int(&c->attrs, "bits", 8);
    v.group = ebb_attr_int(&c->attrs, "group", 256);
    v.groups = (v.inner + v.group - 1) / v.group;
    v.row_bytes = bytes_of(v.inner, v.bits);
    return v;
}

static view encoded(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t axis = ebb_attr_int(&c->attrs, "axis", 1);
    return cut(c, product(x->dims, axis), ebb_plain_elements(x));
}

static source source_of(const ebb_operand *o, const ebb_call *c)
{
    const int64_t *key = o->data;
    return (source){(uint64_t)key[0], (uint64_t)key[1],
                    (uint32_t)ebb_attr_int(&c->attrs, "stream", 0)};
}

/* (X, key) {bits, group, axis, stream} -> codes, range. */
static ebb_status run_quantize(const ebb_call *c)
{
    view v = encoded(c);
    source s = source_of(&c->in[1], c);
    if (c->in[0].type.dtype == EBB_F64)
        quantize_f64(c->out[0].data, c->out[1].data, c->in[0].data, &v, &s);
    else
        quantize_f32(c->out[0].data, c->out[1].data, c->in[0].data, &v, &s);
    return NULL;
}

/* (X, key, state) {bits, group, axis, decay, stream} -> codes, range, next. next may be state. */
static ebb_status run_running(const ebb_call *c)
{
    view v = encoded(c);
    source s = source_of(&c->in[1], c);
    int64_t classes = c->in[2].type.dims[0];
    float rate = 1.0f - (float)ebb_attr_float(&c->attrs, "decay", 0.9);
    if (v.rows == 0 || v.groups == 0)
        ebb_plain_memcpy(c->out[2].data, c->in[2].data, c->in[2].bytes);
    else if (c->in[0].type.dtype == EBB_F64)
        quantize_running_f64(c->out[0].data, c->out[1].data, c->out[2].data, c->in[2].data,
                             c->in[0].data, &v, classes, rate, &s);
    else
        quantize_running_f32(c->out[0].data, c->out[1].data, c->out[2].data, c->in[2].data,
                             c->in[0].data, &v, classes, rate, &s);
    return NULL;
}

/* (codes, range) {bits, group} -> Y, whose sizes are those of the operands: some rows will do. */
static ebb_status run_dequantize(const ebb_call *c)
{
    view v = cut(c, c->in[0].type.dims[0], ebb_plain_elements(&c->out[0].type));
    if (c->out[0].type.dtype == EBB_F64)
        dequantize_f64(c->out[0].data, c->in[0].data, c->in[1].data, &v);
    else
        dequantize_f32(c->out[0].data, c->in[0].data, c->in[1].data, &v);
    return NULL;
}

static const char *wrong_attributes(const ebb_call *c)
{
    int64_t bits = ebb_attr_int(&c->attrs, "bits", 8);
    int64_t group = ebb_attr_int(&c->attrs, "group", 256);
    if (bits != 1 && bits != 2 && bits != 4 && bits != 8)
        return "bits is not 1, 2, 4 or 8";
    return group < 1 || group > INT32_MAX || group * bits % 8 != 0
               ? "a group does not fill whole bytes"
               : NULL;
}

static const char *wrong_codes(const ebb_operand *codes, const ebb_operand *range, const view *v)
{
    const ebb_type *k = &codes->type, *r = &range->type;
    if (k->dtype != EBB_U8 || k->rank != 2 || k->dims[0] != v->rows || k->dims[1] != v->row_bytes)
        return "the codes are not rows of bytes of the tensor's size";
    if (r->dtype != EBB_BF16 || r->rank != 3 || r->dims[0] != v->rows || r->dims[1] != v->groups ||
        r->dims[2] != 2)
        return "the range is not a low and a step in bfloat16 for each group";
    return NULL;
}

static bool is_float(const ebb_operand *o)
{
    return o->type.dtype == EBB_F32 || o->type.dtype == EBB_F64;
}

static const char *declines_quantize(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why == NULL)
        why = wrong_attributes(c);
    if (why != NULL)
        return why;
    if (!is_float(&c->in[0]))
        return "computes in float32 and float64 only";
    if (!ebb_plain_has(c, 1) || c->in[1].type.dtype != EBB_I64 ||
        ebb_plain_elements(&c->in[1].type) != 2)
        return "the key is not int64[2]";
    if (!ebb_plain_wants(c, 0) || !ebb_plain_wants(c, 1))
        return "makes codes and range together";
    int64_t axis = ebb_attr_int(&c->attrs, "axis", 1);
    if (axis < 0 || axis > c->in[0].type.rank)
        return "axis is outside of the input's rank";
    view v = encoded(c);
    return wrong_codes(&c->out[0], &c->out[1], &v);
}

static const char *declines_dequantize(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why == NULL)
        why = wrong_attributes(c);
    if (why != NULL)
        return why;
    if (!is_float(&c->out[0]))
        return "computes in float32 and float64 only";
    if (!ebb_plain_has(c, 1) || c->in[0].type.rank != 2)
        return "codes and range are two operands";
    int64_t rows = c->in[0].type.dims[0], elements = ebb_plain_elements(&c->out[0].type);
    if (rows == 0 ? elements != 0 : elements % rows != 0)
        return "the output's elements are not as many in every row";
    view v = cut(c, rows, elements);
    return wrong_codes(&c->in[0], &c->in[1], &v);
}

static const char *declines_running(const ebb_call *c)
{
    const char *why = declines_quantize(c);
    if (why != NULL)
        return why;
    view v = encoded(c);
    const ebb_type *state = &c->in[2].type;
    double decay = ebb_attr_float(&c->attrs, "decay", 0.9);
    if (!ebb_plain_has(c, 2) || state->dtype != EBB_F32 || state->rank != 2 ||
        state->dims[1] != 2 || !ebb_plain_wants(c, 2) || c->out[2].type.dtype != EBB_F32 ||
        !ebb_type_same_shape(state, &c->out[2].type))
        return "the state is no low and width in float32 for each class";
    if (v.inner % v.group != 0 || state->dims[0] < 1 || v.groups % state->dims[0] != 0)
        return "classes do not divide groups, or groups a row";
    return decay >= 0 && decay < 1 ? NULL : "decay is outside of [0, 1)";
}

/* ---- split-frequency ---- */

static plane plane_of(const ebb_call *c, const ebb_type *x)
{
    plane p = {.height = x->dims[2], .width = x->dims[3], .count = x->dims[0] * x->dims[1]};
    p.block = ebb_attr_int(&c->attrs, "block", 8);
    p.bits = (unsigned)ebb_attr_int(&c->attrs, "bits", 8);
    p.low_height = (p.height + p.block - 1) / p.block;
    p.low_width = (p.width + p.block - 1) / p.block;
    p.bytes = bytes_of(p.height * p.width, p.bits);
    return p;
}

/* (X, key) {block, bits, stream} -> low, codes, range. */
static ebb_status run_split(const ebb_call *c)
{
    plane p = plane_of(c, &c->in[0].type);
    source s = source_of(&c->in[1], c);
    if (p.count * p.height * p.width == 0)
        return NULL;
    if (c->in[0].type.dtype == EBB_F64)
        split_frequency_f64(c->out[0].data, c->out[1].data, c->out[2].data, c->in[0].data, &p, &s);
    else
        split_frequency_f32(c->out[0].data, c->out[1].data, c->out[2].data, c->in[0].data, &p, &s);
    return NULL;
}

/* (low, codes, range) {block, bits} -> Y. */
static ebb_status run_split_decode(const ebb_call *c)
{
    plane p = plane_of(c, &c->out[0].type);
    if (p.count * p.height * p.width == 0)
        return NULL;
    if (c->out[0].type.dtype == EBB_F64)
        split_decode_f64(c->out[0].data, c->in[0].data, c->in[1].data, c->in[2].data, &p);
    else
        split_decode_f32(c->out[0].data, c->in[0].data, c->in[1].data, c->in[2].data, &p);
    return NULL;
}

static const char *wrong_planes(const ebb_call *c, const ebb_operand *x, const ebb_operand *coded)
{
    int64_t bits = ebb_attr_int(&c->attrs, "bits", 8), block = ebb_attr_int(&c->attrs, "block", 8);
    if (bits != 1 && bits != 2 && bits != 4 && bits != 8)
        return "bits is not 1, 2, 4 or 8";
    if (block < 1 || block > 1024)
        return "block is not 1 to 1024";
    if (!is_float(x) || x->type.rank != 4)
        return "computes on images in float32 and float64 only";
    plane p = plane_of(c, &x->type);
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

static const char *declines_split(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    if (!ebb_plain_has(c, 1) || c->in[1].type.dtype != EBB_I64 ||
        ebb_plain_elements(&c->in[1].type) != 2)
        return "the key is not int64[2]";
    if (c->output_count < 3)
        return "makes means, codes and range together";
    return wrong_planes(c, &c->in[0], c->out);
}

static const char *declines_split_decode(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    return c->input_count < 3 ? "means, codes and range are three operands"
                              : wrong_planes(c, &c->out[0], c->in);
}

// clang-format off
const ebb_kernel ebb_plain_codes[] = {
    {.name = "plain.quantize",   .op = EBB_OP_QUANTIZE,   .declines = declines_quantize,   .run = run_quantize},
    {.name = "plain.quantize_running", .op = EBB_OP_QUANTIZE_RUNNING, .declines = declines_running, .run = run_running},
    {.name = "plain.split_frequency", .op = EBB_OP_SPLIT_FREQUENCY, .declines = declines_split, .run = run_split},
    {.name = "plain.split_frequency_decode", .op = EBB_OP_SPLIT_FREQUENCY_DECODE, .declines = declines_split_decode, .run = run_split_decode},
    {.name = "plain.dequantize", .op = EBB_OP_DEQUANTIZE, .declines = declines_dequantize, .run = run_dequantize},
};
// clang-format on
EBB_PLAIN_COUNT(codes)
