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
#include "kernels/call/codes.h"
#include "kernels/math/philox.h"
#include "kernels/plain/optim.h"
#include "kernels/plain/plain.h"

#include <math.h>
#include <string.h>

enum {
    MOST = EBB_LOW_BIT_CODES,
    MOST_BLOCK = EBB_LOW_BIT_BLOCK /* buffers of so many are on the stack */
};

/* Buckets: magnitudes from 2^-31 to 2, 128 to a power of two, negative ones after the others. */
enum {
    SHIFT = 23 - 7,
    LOWEST = (127 - 31) << 7,
    HALF = 32 << 7,
    BUCKETS = 2 * HALF,
};

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

#define FORMULA static inline
#define LOOPS "kernels/plain/codes/low_bit_loops.inc"
#include "kernels/plain/both_floats.inc"

/* ---- calls ---- */

static const char *misfit(const ebb_call *c)
{
    EBB_ASK(ebb_low_bit_misfit(c));
    const uint8_t dtype = c->in[2].type.dtype;
    return dtype == EBB_F32 || dtype == EBB_F64 ? NULL : "computes in float32 and float64 only";
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    *bytes = c->in[2].type.dtype == EBB_F64 ? 2 * sizeof(map_f64) : 2 * sizeof(map_f32);
    return NULL;
}

/* Maps that are constants are made ready once. */
static ebb_status prepare(ebb_call *c)
{
    const ebb_low_bit l = ebb_low_bit_of(c);
    const ebb_operand *map = &c->in[4 + 2 * l.states];
    size_t bytes = 0;
    for (uint32_t k = 0; k < l.states; k++)
        if (map[k].constant == NULL || map[k].constant->data == NULL)
            return NULL;
    EBB_TRY(workspace(c, &bytes));
    c->state = ebb_alloc(bytes);
    EBB_GOT(c->state);
    for (uint32_t k = 0; k < l.states; k++) {
        if (map[k].type.dtype == EBB_F64)
            make_map_f64((map_f64 *)c->state + k, map[k].constant->data, l.bits, l.draws);
        else
            make_map_f32((map_f32 *)c->state + k, map[k].constant->data, l.bits, l.draws);
    }
    return NULL;
}

static void release(ebb_call *c)
{
    ebb_free(c->state);
}

/* (lr, T, W, G, M, M_scale, V, V_scale, M_map, V_map, key?) -> W', M', M_scale', V', V_scale'. */
static ebb_status run_adamw(const ebb_call *c)
{
    const ebb_adamw a = ebb_adamw_read(c);
    const ebb_low_bit l = ebb_low_bit_of(c);
    EBB_BY_FLOAT(c->in[2], adamw, c, &l, &a);
    return NULL;
}

/* (R, T, W, G, V, V_scale, V_map, key?) -> W', V', V_scale'. */
static ebb_status run_momentum(const ebb_call *c)
{
    const ebb_momentum m = ebb_momentum_read(c);
    const ebb_low_bit l = ebb_low_bit_of(c);
    EBB_BY_FLOAT(c->in[2], momentum, c, &l, &m);
    return NULL;
}

// clang-format off
#define KERNEL(text, id, family) {.name = "plain." text, .op = EBB_OP_##id, .dtypes = ebb_call_any, .fits = misfit, .workspace = workspace, .prepare = prepare, .run = run_##family, .release = release}
const ebb_kernel ebb_plain_low_bit[] = {
    KERNEL("adamw_low_bit", ADAMW_LOW_BIT, adamw),
    KERNEL("adamw_low_bit_stochastic", ADAMW_LOW_BIT_STOCHASTIC, adamw),
    KERNEL("momentum_low_bit", MOMENTUM_LOW_BIT, momentum),
    KERNEL("momentum_low_bit_stochastic", MOMENTUM_LOW_BIT_STOCHASTIC, momentum),
};
// clang-format on
EBB_PLAIN_COUNT(low_bit)
