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
#include "kernels/math/philox.h"
#include "kernels/plain/plain.h"
#include "kernels/call/codes.h"

#include <math.h>
#include <string.h>

enum { PIECE = 256, LANES = PIECE / 8, WHOLE = 65536 };

typedef struct source {
    uint64_t seed, step;
    uint32_t stream;
} source;

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

#define FORMULA static inline
#define TO_BF16(x) ebb_float_to_bf16(x)
#define OF_BF16(bits) ebb_bf16_to_float(bits)
#define LOOPS "kernels/plain/codes/codes_loops.inc"
#include "kernels/plain/both_floats.inc"

/* ---- calls ---- */

static source source_of(const ebb_operand *o, const ebb_call *c)
{
    const int64_t *key = o->data;
    return (source){(uint64_t)key[0], (uint64_t)key[1],
                    (uint32_t)ebb_attr_int(&c->attrs, "stream", 0)};
}

static const char *misfit(const ebb_call *c, const ebb_operand *x,
                          const char *(*codes)(const ebb_call *))
{
    EBB_ASK(codes(c));
    return x->type.dtype == EBB_F32 || x->type.dtype == EBB_F64
               ? NULL
               : "computes in float32 and float64 only";
}

/* (X, key) {bits, group, axis, stream} -> codes, range. */
static ebb_status run_quantize(const ebb_call *c)
{
    ebb_groups v = ebb_quantize_groups(c);
    source s = source_of(&c->in[1], c);
    EBB_BY_FLOAT(c->in[0], quantize, c->out[0].data, c->out[1].data, c->in[0].data, &v, &s);
    return NULL;
}

/* (X, key, state) {bits, group, axis, decay, stream} -> codes, range, next. next may be state. */
static ebb_status run_running(const ebb_call *c)
{
    ebb_groups v = ebb_quantize_groups(c);
    source s = source_of(&c->in[1], c);
    int64_t classes = c->in[2].type.dims[0];
    float rate = 1.0f - (float)ebb_attr_float(&c->attrs, "decay", 0.9);
    if (v.rows == 0 || v.groups == 0)
        ebb_plain_memcpy(c->out[2].data, c->in[2].data, c->in[2].bytes);
    else
        EBB_BY_FLOAT(c->in[0], quantize_running, c->out[0].data, c->out[1].data, c->out[2].data,
                     c->in[2].data, c->in[0].data, &v, classes, rate, &s);
    return NULL;
}

/* (codes, range) {bits, group} -> Y, whose sizes are those of the operands: some rows will do. */
static ebb_status run_dequantize(const ebb_call *c)
{
    ebb_groups v = ebb_dequantize_groups(c);
    EBB_BY_FLOAT(c->out[0], dequantize, c->out[0].data, c->in[0].data, c->in[1].data, &v);
    return NULL;
}

static const char *misfit_quantize(const ebb_call *c)
{
    return misfit(c, &c->in[0], ebb_quantize_misfit);
}

static const char *misfit_dequantize(const ebb_call *c)
{
    return misfit(c, &c->out[0], ebb_dequantize_misfit);
}

static const char *misfit_running(const ebb_call *c)
{
    return misfit(c, &c->in[0], ebb_quantize_running_misfit);
}

/* ---- split-frequency ---- */

/* (X, key) {block, bits, stream} -> low, codes, range. */
static ebb_status run_split(const ebb_call *c)
{
    ebb_planes p = ebb_split_planes(c, &c->in[0].type);
    source s = source_of(&c->in[1], c);
    if (p.count * p.height * p.width == 0)
        return NULL;
    EBB_BY_FLOAT(c->in[0], split_frequency, c->out[0].data, c->out[1].data, c->out[2].data,
                 c->in[0].data, &p, &s);
    return NULL;
}

/* (low, codes, range) {block, bits} -> Y. */
static ebb_status run_split_decode(const ebb_call *c)
{
    ebb_planes p = ebb_split_planes(c, &c->out[0].type);
    if (p.count * p.height * p.width == 0)
        return NULL;
    EBB_BY_FLOAT(c->out[0], split_decode, c->out[0].data, c->in[0].data, c->in[1].data,
                 c->in[2].data, &p);
    return NULL;
}

static const char *misfit_split(const ebb_call *c)
{
    return misfit(c, &c->in[0], ebb_split_frequency_misfit);
}

static const char *misfit_split_decode(const ebb_call *c)
{
    return misfit(c, &c->out[0], ebb_split_frequency_decode_misfit);
}

// clang-format off
const ebb_kernel ebb_plain_codes[] = {
    {.name = "plain.quantize",               .op = EBB_OP_QUANTIZE,               .dtypes = ebb_call_any, .fits = misfit_quantize, .run = run_quantize},
    {.name = "plain.quantize_running",       .op = EBB_OP_QUANTIZE_RUNNING,       .dtypes = ebb_call_any, .fits = misfit_running, .run = run_running},
    {.name = "plain.split_frequency",        .op = EBB_OP_SPLIT_FREQUENCY,        .dtypes = ebb_call_any, .fits = misfit_split, .run = run_split},
    {.name = "plain.split_frequency_decode", .op = EBB_OP_SPLIT_FREQUENCY_DECODE, .dtypes = ebb_call_any, .fits = misfit_split_decode, .run = run_split_decode},
    {.name = "plain.dequantize",             .op = EBB_OP_DEQUANTIZE,             .dtypes = ebb_call_any, .fits = misfit_dequantize, .run = run_dequantize},
};
// clang-format on
EBB_PLAIN_COUNT(codes)
