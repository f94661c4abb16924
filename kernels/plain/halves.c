/* halves.c: see halves.h. */
#include "kernels/plain/halves.h"

#include "kernels/parallel.h"

/* Each case for all, and then a choice. */
static uint16_t float_to_half(float x)
{
    const uint32_t bits = ebb_float_bits(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7FFFFFFFu;
    const uint32_t odd = rest >> 13 & 1u;
    const uint32_t normal = (rest - 0x38000000u + 0xFFFu + odd) >> 13;
    const uint32_t subnormal = ebb_float_bits(ebb_bits_float(rest) + 0.5f) - ebb_float_bits(0.5f);
    uint32_t half = rest < 0x38800000u ? subnormal : normal;
    half = rest >= 0x477FF000u ? 0x7C00u : half; // rounds to 65536 or more
    half = rest > 0x7F800000u ? 0x7E00u : half;
    return (uint16_t)(sign | half);
}

void ebb_widen_here(float *to, const void *from, ebb_dtype dtype, int64_t count)
{
    const uint16_t *x = from;
    if (dtype == EBB_BF16) {
        EBB_SIMD
        for (int64_t i = 0; i < count; i++)
            to[i] = ebb_wide_bf16(x[i]);
    } else {
        EBB_SIMD
        for (int64_t i = 0; i < count; i++)
            to[i] = ebb_wide_half(x[i]);
    }
}

void ebb_narrow_here(void *to, const float *from, ebb_dtype dtype, int64_t count)
{
    uint16_t *y = to;
    if (dtype == EBB_BF16) {
        EBB_SIMD
        for (int64_t i = 0; i < count; i++)
            y[i] = ebb_round_bf16(from[i]);
    } else {
        EBB_SIMD
        for (int64_t i = 0; i < count; i++)
            y[i] = float_to_half(from[i]);
    }
}

enum { PIECE = 1 << 12 };

void ebb_widen(float *to, const void *from, ebb_dtype dtype, int64_t count)
{
    EBB_PARALLEL_FOR(count)
    for (int64_t i = 0; i < count; i += PIECE)
        ebb_widen_here(to + i, (const uint16_t *)from + i, dtype,
                       count - i < PIECE ? count - i : PIECE);
}

void ebb_narrow(void *to, const float *from, ebb_dtype dtype, int64_t count)
{
    EBB_PARALLEL_FOR(count)
    for (int64_t i = 0; i < count; i += PIECE)
        ebb_narrow_here((uint16_t *)to + i, from + i, dtype, count - i < PIECE ? count - i : PIECE);
}
