/* halves.h: float16 and bfloat16 as float32 and back, many at a time.
 *
 * Widening is exact; narrowing is to nearest, ties to even, and beyond the largest is infinity. The
 * bits are those of ebb_float_to_half() and ebb_float_to_bf16() (onnx/words/tensor.h), in loops
 * without branches, which become vector code.
 */
#pragma once

#include <string.h>

#include "onnx/words/tensor.h"

/* By threads. */
void ebb_widen(float *to, const void *from, ebb_dtype dtype, int64_t count);
void ebb_narrow(void *to, const float *from, ebb_dtype dtype, int64_t count);

/* By the thread that calls. */
void ebb_widen_here(float *to, const void *from, ebb_dtype dtype, int64_t count);
void ebb_narrow_here(void *to, const float *from, ebb_dtype dtype, int64_t count);

/* ---- one number, for loops that become vector code ---- */

static inline float ebb_bits_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t ebb_float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float ebb_wide_bf16(uint16_t bits)
{
    return ebb_bits_float((uint32_t)bits << 16);
}

static inline uint16_t ebb_round_bf16(float x)
{
    const uint32_t bits = ebb_float_bits(x);
    const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)(x != x ? bits >> 16 | 0x40u : rounded);
}

static inline float ebb_wide_half(uint16_t half)
{
    float f = ebb_bits_float((uint32_t)(half & 0x7FFFu) << 13);
    f *= 0x1p112f; // moves the exponent, and makes subnormals normal
    const uint32_t bits = ebb_float_bits(f) | (f >= 0x1p16f ? 0x7F800000u : 0);
    return ebb_bits_float(bits | (uint32_t)(half & 0x8000u) << 16);
}

/* Each case for all, and then a choice. */
static inline uint16_t ebb_round_half(float x)
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

/* ---- pieces of an operand, for loops over float32 that take 16 bits as well ----
 *
 *     const float *x = ebb_look_f32(data, dtype, at, n, buffer);      elements at .. at + n
 *     float *y = ebb_place_f32(data, dtype, at, buffer);              y[0 .. n] = ...
 *     ebb_put_f32(data, dtype, at, n, y);
 *
 * Of float32 it is the operand itself; 16 bits go through the buffer, of n elements. The same for
 * float64, which is always itself: for texts that are included for both types. */
static inline bool ebb_is_half(ebb_dtype dtype)
{
    return dtype == EBB_F16 || dtype == EBB_BF16;
}

static inline const float *ebb_look_f32(const void *data, ebb_dtype dtype, int64_t at, int64_t n,
                                        float *buffer)
{
    if (!ebb_is_half(dtype))
        return (const float *)data + at;
    ebb_widen_here(buffer, (const uint16_t *)data + at, dtype, n);
    return buffer;
}

static inline float *ebb_place_f32(void *data, ebb_dtype dtype, int64_t at, float *buffer)
{
    return ebb_is_half(dtype) ? buffer : (float *)data + at;
}

static inline void ebb_put_f32(void *data, ebb_dtype dtype, int64_t at, int64_t n,
                               const float *from)
{
    if (ebb_is_half(dtype))
        ebb_narrow_here((uint16_t *)data + at, from, dtype, n);
}

static inline const double *ebb_look_f64(const void *data, ebb_dtype dtype, int64_t at, int64_t n,
                                         double *buffer)
{
    (void)dtype;
    (void)n;
    (void)buffer;
    return (const double *)data + at;
}

static inline double *ebb_place_f64(void *data, ebb_dtype dtype, int64_t at, double *buffer)
{
    (void)dtype;
    (void)buffer;
    return (double *)data + at;
}

static inline void ebb_put_f64(void *data, ebb_dtype dtype, int64_t at, int64_t n,
                               const double *from)
{
    (void)data;
    (void)dtype;
    (void)at;
    (void)n;
    (void)from;
}
