/* halves.c: see halves.h. */
#include "kernels/plain/halves.h"

#include "kernels/parallel.h"

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
            y[i] = ebb_round_half(from[i]);
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
