/* packed.c: PackSign and PackBits, one bit an element; MaskGrad and UnpackBits, which read the
 * bits.
 *
 * Bit i % 8 of byte i / 8 belongs to element i, the least significant bit first.
 */
#include "kernels/call/misfit.h"
#include "kernels/plain/halves.h"
#include "kernels/plain/plain.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1024 }; /* elements a job: flags in bytes first, so that comparing is vector code */

/* Eight bytes of 0 or 1 into one: the product brings byte i to bit 56 + i. */
static uint8_t pack_eight(const uint8_t *flag)
{
    uint64_t eight;
    memcpy(&eight, flag, sizeof eight);
    return (uint8_t)((eight * UINT64_C(0x0102040810204080)) >> 56);
}

/* An infinite bound is none: the infinity itself is then inside. */
#define DEFINE_PACKED(T)                                                                   \
    static void pack_##T(uint8_t *bits, const T *y, int64_t n, T low, T high)              \
    {                                                                                      \
        const uint8_t top = isinf(high) && high > 0, bottom = isinf(low) && low < 0;       \
        EBB_PARALLEL_FOR(n)                                                                \
        for (int64_t first = 0; first < n; first += BLOCK) {                               \
            uint8_t flag[BLOCK];                                                           \
            int64_t count = ebb_least(n - first, BLOCK);                                   \
            const T *x = y + first;                                                        \
            EBB_SIMD                                                                       \
            for (int64_t i = 0; i < count; i++)                                            \
                flag[i] = (uint8_t)(((x[i] > low) | bottom) & ((x[i] < high) | top));      \
            for (int64_t i = count; i % 8 != 0; i++)                                       \
                flag[i] = 0;                                                               \
            for (int64_t i = 0; i < count; i += 8)                                         \
                bits[(first + i) / 8] = pack_eight(flag + i);                              \
        }                                                                                  \
    }                                                                                      \
                                                                                           \
    static void mask_grad_##T(T *dx, const T *dy, const uint8_t *bits, int64_t n, T scale, \
                              T alpha)                                                     \
    {                                                                                      \
        int64_t whole = n / 8;                                                             \
        EBB_PARALLEL_FOR(n)                                                                \
        for (int64_t b = 0; b < whole; b++) {                                              \
            uint32_t m = bits[b];                                                          \
            EBB_SIMD                                                                       \
            for (uint32_t j = 0; j < 8; j++) {                                             \
                T g = dy[b * 8 + j];                                                       \
                T factor = (m >> j & 1u) != 0 ? scale : alpha;                             \
                dx[b * 8 + j] = factor == 0 ? 0 : factor * g;                              \
            }                                                                              \
        }                                                                                  \
        for (int64_t i = whole * 8; i < n; i++) {                                          \
            T factor = (bits[whole] >> (i % 8) & 1) != 0 ? scale : alpha;                  \
            dx[i] = factor == 0 ? 0 : factor * dy[i];                                      \
        }                                                                                  \
    }

DEFINE_PACKED(float)
DEFINE_PACKED(double)

/* ---- 16 bits: in float32, block by block, rounded once ---- */

static void pack_half(uint8_t *bits, const uint16_t *y, ebb_dtype dtype, int64_t n, float low,
                      float high)
{
    EBB_PARALLEL_FOR(n)
    for (int64_t i = 0; i < n; i += BLOCK) {
        float line[BLOCK];
        const int64_t count = ebb_least(n - i, BLOCK);
        ebb_widen_here(line, y + i, dtype, count);
        pack_float(bits + i / 8, line, count, low, high);
    }
}

static void mask_grad_half(uint16_t *dx, const uint16_t *dy, ebb_dtype dtype, const uint8_t *bits,
                           int64_t n, float scale, float alpha)
{
    EBB_PARALLEL_FOR(n)
    for (int64_t i = 0; i < n; i += BLOCK) {
        float line[BLOCK];
        const int64_t count = ebb_least(n - i, BLOCK);
        ebb_widen_here(line, dy + i, dtype, count);
        mask_grad_float(line, line, bits + i / 8, count, scale, alpha);
        ebb_narrow_here(dx + i, line, dtype, count);
    }
}

static const char *floats_or_halves(const ebb_call *c)
{
    if (c->input_count == 0 || !ebb_is_half((ebb_dtype)c->in[0].type.dtype))
        return ebb_plain_floats(c);
    EBB_ASK(ebb_call_any(c));
    return ebb_call_one_float(c, c->in[0].type.dtype);
}

/* ---- calls ---- */

/* (Y) {low = 0, high = +inf} -> uint8[ceil(n / 8)]. */
static ebb_status run_pack_sign(const ebb_call *c)
{
    double low = ebb_attr_float(&c->attrs, "low", 0.0);
    double high = ebb_attr_float(&c->attrs, "high", (double)INFINITY);
    const ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    int64_t n = ebb_elements(&c->in[0].type);
    if (dtype == EBB_F64)
        pack_double(c->out[0].data, c->in[0].data, n, low, high);
    else if (ebb_is_half(dtype))
        pack_half(c->out[0].data, c->in[0].data, dtype, n, (float)low, (float)high);
    else
        pack_float(c->out[0].data, c->in[0].data, n, (float)low, (float)high);
    return NULL;
}

/* (dY, mask) {scale = 1, alpha = 0} -> dX: scale * dY where the bit is set, else alpha * dY. dX may
 * be dY. */
static ebb_status run_mask_grad(const ebb_call *c)
{
    double scale = ebb_attr_float(&c->attrs, "scale", 1.0);
    double alpha = ebb_attr_float(&c->attrs, "alpha", 0.0);
    const ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    int64_t n = ebb_elements(&c->in[0].type);
    if (dtype == EBB_F64)
        mask_grad_double(c->out[0].data, c->in[0].data, c->in[1].data, n, scale, alpha);
    else if (ebb_is_half(dtype))
        mask_grad_half(c->out[0].data, c->in[0].data, dtype, c->in[1].data, n, (float)scale,
                       (float)alpha);
    else
        mask_grad_float(c->out[0].data, c->in[0].data, c->in[1].data, n, (float)scale,
                        (float)alpha);
    return NULL;
}

/* (B) -> uint8[ceil(n / 8)]. */
static ebb_status run_pack_bits(const ebb_call *c)
{
    int64_t n = ebb_elements(&c->in[0].type);
    const uint8_t *flags = c->in[0].data;
    uint8_t *bits = c->out[0].data;
    EBB_PARALLEL_FOR(n)
    for (int64_t b = 0; b < n / 8; b++) {
        uint8_t flag[8];
        for (int j = 0; j < 8; j++)
            flag[j] = flags[b * 8 + j] != 0;
        bits[b] = pack_eight(flag);
    }
    uint8_t rest[8] = {0};
    for (int64_t i = n / 8 * 8; i < n; i++)
        rest[i % 8] = flags[i] != 0;
    if (n % 8 != 0)
        bits[n / 8] = pack_eight(rest);
    return NULL;
}

/* (bits) {shape} -> B. */
static ebb_status run_unpack_bits(const ebb_call *c)
{
    int64_t n = ebb_elements(&c->out[0].type);
    const uint8_t *bits = c->in[0].data;
    uint8_t *flags = c->out[0].data;
    EBB_PARALLEL_FOR(n)
    for (int64_t b = 0; b < n / 8; b++)
        for (uint32_t j = 0; j < 8; j++)
            flags[b * 8 + j] = (uint8_t)(bits[b] >> j & 1u);
    for (int64_t i = n / 8 * 8; i < n; i++)
        flags[i] = (uint8_t)(bits[n / 8] >> (i % 8) & 1);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_packed[] = {
    {.name = "plain.pack_sign",   .op = EBB_OP_PACK_SIGN,   .dtypes = floats_or_halves, .fits = ebb_pack_sign_misfit, .run = run_pack_sign},
    {.name = "plain.mask_grad",   .op = EBB_OP_MASK_GRAD,   .dtypes = floats_or_halves, .fits = ebb_pack_sign_misfit, .run = run_mask_grad},
    {.name = "plain.pack_bits",   .op = EBB_OP_PACK_BITS,   .dtypes = ebb_call_any,     .fits = ebb_pack_bits_misfit, .run = run_pack_bits},
    {.name = "plain.unpack_bits", .op = EBB_OP_UNPACK_BITS, .dtypes = ebb_call_any,     .fits = ebb_pack_bits_misfit, .run = run_unpack_bits},
};
// clang-format on
EBB_PLAIN_COUNT(packed)
