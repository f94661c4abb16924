/* few_bit.c: a derivative in a few levels: FewBit notes which, FewBitGrad multiplies with it.
 *
 * Eight codes in a row make `bits` bytes, the number sum of code_i << (bits i) with its lowest byte
 * first: 3 bits an element are 3 bits, not 4.
 */
#include "kernels/call/misfit.h"
#include "kernels/plain/plain.h"

#include <string.h>

enum { BLOCK = 512, MOST_LEVELS = 1 << EBB_FEW_BIT_MOST };

static void put_eight(uint8_t *to, const uint8_t *code, int bits)
{
    uint32_t all = 0;
    for (int j = 0; j < 8; j++)
        all |= (uint32_t)code[j] << (bits * j);
    for (int k = 0; k < bits; k++)
        to[k] = (uint8_t)(all >> (8 * k));
}

static uint32_t get_eight(const uint8_t *from, int bits)
{
    uint32_t all = 0;
    for (int k = 0; k < bits; k++)
        all |= (uint32_t)from[k] << (8 * k);
    return all;
}

/* dx may be dy. */
#define DEFINE(T, F)                                                                             \
    static void encode_##F(uint8_t *codes, const T *x, const T *borders, int bits, int64_t n)    \
    {                                                                                            \
        EBB_PARALLEL_FOR(n)                                                                      \
        for (int64_t first = 0; first < n; first += BLOCK) {                                     \
            uint8_t code[BLOCK] = {0};                                                           \
            int64_t count = ebb_least(n - first, BLOCK);                                         \
            const T *from = x + first;                                                           \
            for (int b = 0; b < (1 << bits) - 1; b++) {                                          \
                const T border = borders[b];                                                     \
                EBB_SIMD                                                                         \
                for (int64_t i = 0; i < count; i++)                                              \
                    code[i] = (uint8_t)(code[i] + (from[i] > border));                           \
            }                                                                                    \
            for (int64_t i = 0; i < count; i += 8)                                               \
                put_eight(codes + (first + i) / 8 * bits, code + i, bits);                       \
        }                                                                                        \
    }                                                                                            \
                                                                                                 \
    static void multiply_##F(T *dx, const T *dy, const uint8_t *codes, const T *given, int bits, \
                             int64_t n)                                                          \
    {                                                                                            \
        T levels[MOST_LEVELS] = {0};                                                             \
        memcpy(levels, given, sizeof(T) << bits);                                                \
        const uint32_t mask = (1u << bits) - 1;                                                  \
        EBB_PARALLEL_FOR(n)                                                                      \
        for (int64_t b = 0; b < n / 8; b++) {                                                    \
            const uint32_t all = get_eight(codes + b * bits, bits);                              \
            EBB_SIMD                                                                             \
            for (uint32_t j = 0; j < 8; j++)                                                     \
                dx[b * 8 + j] = dy[b * 8 + j] * levels[all >> ((uint32_t)bits * j) & mask];      \
        }                                                                                        \
        if (n % 8 == 0)                                                                          \
            return;                                                                              \
        const uint32_t all = get_eight(codes + n / 8 * bits, bits);                              \
        for (int64_t i = n / 8 * 8; i < n; i++)                                                  \
            dx[i] = dy[i] * levels[all >> ((uint32_t)bits * (uint32_t)(i % 8)) & mask];          \
    }

DEFINE(float, f32)
DEFINE(double, f64)

/* (X, borders) {bits} -> codes: uint8[ceil(n / 8) * bits] */
static ebb_status run_encode(const ebb_call *c)
{
    int bits = (int)ebb_attr_int(&c->attrs, "bits", 1);
    int64_t n = ebb_elements(&c->in[0].type);
    EBB_BY_FLOAT(c->in[0], encode, c->out[0].data, c->in[0].data, c->in[1].data, bits, n);
    return NULL;
}

/* (dY, codes, levels) {bits} -> dX */
static ebb_status run_grad(const ebb_call *c)
{
    int bits = (int)ebb_attr_int(&c->attrs, "bits", 1);
    int64_t n = ebb_elements(&c->in[0].type);
    EBB_BY_FLOAT(c->in[0], multiply, c->out[0].data, c->in[0].data, c->in[1].data, c->in[2].data,
                 bits, n);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_few_bit[] = {
    {.name = "plain.few_bit",      .op = EBB_OP_FEW_BIT,      .dtypes = ebb_plain_floats, .fits = ebb_few_bit_misfit, .run = run_encode},
    {.name = "plain.few_bit_grad", .op = EBB_OP_FEW_BIT_GRAD, .dtypes = ebb_plain_floats, .fits = ebb_few_bit_misfit, .run = run_grad},
};
// clang-format on
EBB_PLAIN_COUNT(few_bit)
