/* low_bit.c: optimizers' steps whose states are codes: decode, update, encode, block by block.
 *
 *   state of element i of block k = map[code i] * scale[k],  scale[k] = the largest magnitude there
 *
 * A block is decoded into two buffers on the stack, and its codes are written over the old ones: no
 * state is ever whole. A map is a non-decreasing table of 2^bits numbers, its code the place in it.
 * Encoding asks how many boundaries lie below x: the first guess is looked up by the top bits of x
 * (sign, exponent, 7 bits of fraction), and as many comparisons follow as boundaries share such a
 * bucket, so any table is served. Boundaries lie in the middle between levels, or, where it is
 * drawn up or down, at the levels themselves.
 */
#include "kernels/philox.h"
#include "kernels/plain/plain.h"

#include <math.h>
#include <string.h>

enum {
    MOST = 256,       /* codes */
    MOST_BLOCK = 4096 /* elements; buffers of so many are on the stack */
};

/* Buckets: magnitudes from 2^-31 to 2, 128 to a power of two, negative ones after the others. */
enum {
    SHIFT = 23 - 7,
    LOWEST = (127 - 31) << 7,
    HALF = 32 << 7,
    BUCKETS = 2 * HALF,
};

typedef struct layout {
    int64_t n, block, blocks;
    int64_t bits;
    uint64_t seed, step;
    uint32_t stream;
    bool draws;
} layout;

typedef struct adamw {
    double keep; /* 1 - lr * weight_decay */
    double alpha, beta, epsilon;
    double step;  /* lr / (1 - alpha^t) */
    double scale; /* 1 / sqrt(1 - beta^t) */
} adamw;

typedef struct momentum {
    double rate, alpha, beta, decay;
} momentum;

static inline int32_t bucket_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t top = (int32_t)((bits & 0x7FFFFFFFu) >> SHIFT) - LOWEST;
    top = top < 0 ? 0 : top;
    top = top > HALF - 1 ? HALF - 1 : top;
    return top + (int32_t)(bits >> 31) * HALF;
}

/* The smallest or largest magnitude of a bucket. */
static inline float edge_of(int32_t bucket, bool outer)
{
    uint32_t bits = (uint32_t)(bucket + LOWEST + (outer ? 1 : 0)) << SHIFT;
    float x;
    if (bucket == 0 && !outer)
        return 0;
    bits -= outer ? 1 : 0;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Codes of a block into its bytes. */
static void put_codes(uint8_t *codes, const int32_t *code, int64_t n, int64_t bits)
{
    if (bits == 8) {
        EBB_SIMD
        for (int64_t i = 0; i < n; i++)
            codes[i] = (uint8_t)code[i];
        return;
    }
    for (int64_t i = 0; i + 1 < n; i += 2)
        codes[i / 2] = (uint8_t)(code[i] | code[i + 1] << 4);
    if (n % 2 != 0)
        codes[n / 2] = (uint8_t)code[n - 1];
}

#define LOOPS "kernels/plain/low_bit_loops.inc"
#include "kernels/plain/both_floats.inc"

/* ---- calls ---- */

static const char *unfit_layout(const ebb_call *c)
{
    int64_t bits = ebb_attr_int(&c->attrs, "bits", 8),
            block = ebb_attr_int(&c->attrs, "block", 256);
    if (bits != 4 && bits != 8)
        return "its codes have neither 4 nor 8 bits";
    if (block < 32 || block > MOST_BLOCK || block % 32 != 0)
        return "its block is no multiple of 32 up to 4096";
    return NULL;
}

static bool is_vector(const ebb_operand *o, uint8_t dtype, int64_t size)
{
    return o->type.dtype == dtype && o->type.rank == 1 && o->type.dims[0] == size;
}

/* states: pairs of codes and scales from input 4 on and from output 1 on; then as many maps; then
 * the key, where one is needed. */
static const char *declines(const ebb_call *c, uint32_t states, bool draws)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL || (why = unfit_layout(c)) != NULL)
        return why;
    const uint32_t inputs = 4 + 3 * states + (draws ? 1 : 0);
    if (c->input_count != inputs || c->output_count != 1 + 2 * states)
        return "wrong number of operands";
    const ebb_type *w = &c->in[2].type;
    if (w->dtype != EBB_F32 && w->dtype != EBB_F64)
        return "computes in float32 and float64 only";
    for (uint32_t i = 0; i < 2; i++)
        if (ebb_plain_elements(&c->in[i].type) != 1)
            return "the rate or the step count is not a scalar";
    if (c->in[3].type.dtype != w->dtype || !ebb_type_same_shape(&c->in[3].type, w) ||
        c->out[0].type.dtype != w->dtype || !ebb_type_same_shape(&c->out[0].type, w))
        return "weight and gradient differ in type";
    int64_t n = ebb_plain_elements(w), bits = ebb_attr_int(&c->attrs, "bits", 8);
    int64_t block = ebb_attr_int(&c->attrs, "block", 256), blocks = n / block + (n % block != 0);
    int64_t bytes = bits == 8 ? n : n / 2 + n % 2;
    for (uint32_t k = 0; k < states; k++)
        if (!is_vector(&c->in[4 + 2 * k], EBB_U8, bytes) ||
            !is_vector(&c->out[1 + 2 * k], EBB_U8, bytes) ||
            !is_vector(&c->in[5 + 2 * k], w->dtype, blocks) ||
            !is_vector(&c->out[2 + 2 * k], w->dtype, blocks) ||
            !is_vector(&c->in[4 + 2 * states + k], w->dtype, (int64_t)1 << bits))
            return "codes, scales or maps differ from what the weight asks for";
    if (draws && !is_vector(&c->in[inputs - 1], EBB_I64, 2))
        return "the key is not int64[2]";
    return NULL;
}

static const char *declines_adamw(const ebb_call *c)
{
    return declines(c, 2, c->op == EBB_OP_ADAMW_LOW_BIT_STOCHASTIC);
}

static const char *declines_momentum(const ebb_call *c)
{
    return declines(c, 1, c->op == EBB_OP_MOMENTUM_LOW_BIT_STOCHASTIC);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    *bytes = c->in[2].type.dtype == EBB_F64 ? 2 * sizeof(map_f64) : 2 * sizeof(map_f32);
    return NULL;
}

/* Maps that are constants are made ready once. */
static ebb_status prepare(ebb_call *c)
{
    const bool moments = c->op == EBB_OP_ADAMW_LOW_BIT || c->op == EBB_OP_ADAMW_LOW_BIT_STOCHASTIC;
    const uint32_t states = moments ? 2 : 1;
    const bool draws = c->input_count > 4 + 3 * states;
    const ebb_operand *map = &c->in[4 + 2 * states];
    const int64_t bits = ebb_attr_int(&c->attrs, "bits", 8);
    size_t bytes = 0;
    for (uint32_t k = 0; k < states; k++)
        if (map[k].constant == NULL || map[k].constant->data == NULL)
            return NULL;
    EBB_TRY(workspace(c, &bytes));
    c->state = ebb_alloc(bytes);
    if (c->state == NULL)
        return ebb_error_memory();
    for (uint32_t k = 0; k < states; k++) {
        if (map[k].type.dtype == EBB_F64)
            make_map_f64((map_f64 *)c->state + k, map[k].constant->data, bits, draws);
        else
            make_map_f32((map_f32 *)c->state + k, map[k].constant->data, bits, draws);
    }
    return NULL;
}

static void release(ebb_call *c)
{
    ebb_free(c->state);
}

static layout layout_of(const ebb_call *c, bool draws)
{
    layout l = {.n = ebb_plain_elements(&c->in[2].type),
                .block = ebb_attr_int(&c->attrs, "block", 256),
                .bits = ebb_attr_int(&c->attrs, "bits", 8),
                .draws = draws};
    l.blocks = l.n / l.block + (l.n % l.block != 0);
    if (draws) {
        const int64_t *key = c->in[c->input_count - 1].data;
        l.seed = (uint64_t)key[0];
        l.step = (uint64_t)key[1];
        l.stream = (uint32_t)ebb_attr_int(&c->attrs, "stream", 0);
    }
    return l;
}

/* (lr, T, W, G, M, M_scale, V, V_scale, M_map, V_map, key?) -> W', M', M_scale', V', V_scale'. */
static ebb_status run_adamw(const ebb_call *c)
{
    double rate = ebb_plain_scalar(&c->in[0]), t = ebb_plain_scalar(&c->in[1]) + 1.0;
    adamw a = {.alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.9f),
               .beta = ebb_attr_float(&c->attrs, "beta", (double)0.999f),
               .epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-8f)};
    a.keep = 1.0 - rate * ebb_attr_float(&c->attrs, "weight_decay", (double)0.01f);
    a.step = rate / (1.0 - pow(a.alpha, t));
    a.scale = 1.0 / sqrt(1.0 - pow(a.beta, t));
    const layout l = layout_of(c, c->op == EBB_OP_ADAMW_LOW_BIT_STOCHASTIC);
    if (c->in[2].type.dtype == EBB_F64)
        adamw_f64(c, &l, &a);
    else
        adamw_f32(c, &l, &a);
    return NULL;
}

/* (R, T, W, G, V, V_scale, V_map, key?) -> W', V', V_scale'. */
static ebb_status run_momentum(const ebb_call *c)
{
    momentum m = {.rate = ebb_plain_scalar(&c->in[0]),
                  .alpha = ebb_attr_float(&c->attrs, "alpha", 0.0),
                  .decay = ebb_attr_float(&c->attrs, "norm_coefficient", 0.0)};
    m.beta = ebb_plain_scalar(&c->in[1]) > 0.0 ? ebb_attr_float(&c->attrs, "beta", 1.0) : 1.0;
    const layout l = layout_of(c, c->op == EBB_OP_MOMENTUM_LOW_BIT_STOCHASTIC);
    if (c->in[2].type.dtype == EBB_F64)
        momentum_f64(c, &l, &m);
    else
        momentum_f32(c, &l, &m);
    return NULL;
}

#define KERNEL(text, id, family)                                                             \
    {                                                                                        \
        .name = "plain." text, .op = EBB_OP_##id, .declines = declines_##family,             \
        .workspace = workspace, .prepare = prepare, .release = release, .run = run_##family, \
    }

const ebb_kernel ebb_plain_low_bit[] = {
    KERNEL("adamw_low_bit", ADAMW_LOW_BIT, adamw),
    KERNEL("adamw_low_bit_stochastic", ADAMW_LOW_BIT_STOCHASTIC, adamw),
    KERNEL("momentum_low_bit", MOMENTUM_LOW_BIT, momentum),
    KERNEL("momentum_low_bit_stochastic", MOMENTUM_LOW_BIT_STOCHASTIC, momentum),
};
EBB_PLAIN_COUNT(low_bit)
