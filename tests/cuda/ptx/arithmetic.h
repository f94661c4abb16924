/* arithmetic.h: what the rows of ops.def need beyond C's operators. For value.c alone.
 *
 * Approximations: a device's result is known only within a bound. Here it is as far from the exact
 * value as the bound allows, up or down by a hash of the argument and the seed, so that nothing
 * can lean on luck. Bounds: PTX ISA 9.0, 9.7.3 "Floating Point Instructions": of ex2 2 units in the
 * last place, of rcp 1 unit, of div 2, of rsqrt 2^-22.9 relative; of rcp and rsqrt in double none is
 * stated.
 */
#pragma once

#include "tests/cuda/ptx/ptx.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

/* ---- integers ---- */

static inline uint32_t carried(warp *w, int lane, uint64_t sum)
{
    w->carry[lane] = (uint32_t)(sum >> 32) & 1;
    return (uint32_t)sum;
}

static inline int64_t negated(int64_t a)
{
    return (int64_t)(0 - (uint64_t)a);
}

static inline int32_t dot_bytes(uint32_t a, uint32_t b, int32_t c)
{
    for (int k = 0; k < 32; k += 8)
        c += (int8_t)(a >> k) * (int8_t)(b >> k);
    return c;
}

/* Byte k of the result is byte (c >> 4k & 7) of b:a, or eight times its sign. */
static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t c)
{
    const uint64_t all = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int k = 0; k < 4; k++) {
        const uint32_t pick = c >> (4 * k) & 15;
        uint32_t byte = (uint32_t)(all >> (8 * (pick & 7))) & 255;
        if (pick & 8)
            byte = byte & 128 ? 255 : 0;
        r |= byte << (8 * k);
    }
    return r;
}

/* The low `count` bits of a lie in b from bit `from`. */
static inline uint64_t inserted(uint64_t a, uint64_t b, uint32_t from, uint32_t count,
                                uint32_t bits)
{
    from &= 255;
    count &= 255;
    if (from >= bits || count == 0)
        return b;
    const uint64_t mask = (count >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << count) - 1) << from;
    return (b & ~mask) | (a << from & mask);
}

/* ---- floats ---- */

static inline float one_nan(float v)
{
    const union {
        uint32_t bits;
        float f;
    } nan = {0x7FFFFFFF};
    return v == v ? v : nan.f;
}

static inline float of_f16(uint16_t a)
{
    const int exponent = a >> 10 & 31, fraction = a & 1023;
    const float v = exponent == 31  ? (fraction != 0 ? one_nan(NAN) : INFINITY)
                    : exponent == 0 ? ldexpf((float)fraction, -24)
                                    : ldexpf((float)(fraction + 1024), exponent - 25);
    return v != v ? v : a & 0x8000 ? -v : v;
}

/* float16 or bfloat16: its fraction has so many bits, its exponent begins at -bias. The leading bit
 * is the exponent's last, and what is rounded up to carries into it. */
static inline uint16_t bits_of_16(float v, int fraction, int bias)
{
    const uint32_t infinite = (uint32_t)(2 * bias + 1) << fraction;
    const int exponent = v == 0 || ilogbf(v) < 1 - bias ? 1 - bias : ilogbf(v);
    if (v != v)
        return 0x7FFF;
    uint32_t bits = infinite;
    if (exponent <= bias)
        bits = ((uint32_t)(exponent + bias - 1) << fraction) +
               (uint32_t)rint(ldexp(fabs((double)v), fraction - exponent));
    return (uint16_t)((signbit(v) ? 0x8000u : 0) | (bits < infinite ? bits : infinite));
}

static inline float flushed(float v)
{
    return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v;
}

static __attribute__((noinline)) float fused_by(int way, float x, float y, float z)
{
    volatile float a = x, b = y, c = z, r;
    (void)fesetround(way);
    r = __builtin_fmaf(a, b, c);
    (void)fesetround(FE_TONEAREST);
    return r;
}

static inline double most(double a, double b)
{
    if (a != a || b != b)
        return a != a ? (b != b ? (double)one_nan((float)NAN) : b) : a;
    return a > b || (a == b && !signbit(a)) ? a : b;
}

static inline double clamped(double v, double low, double high, double of_nan)
{
    return v != v ? of_nan : v < low ? low : v > high ? high : v;
}

static inline int64_t clamped_s64(double v)
{
    return v != v ? INT64_MIN : v < -0x1p63 ? INT64_MIN : v >= 0x1p63 ? INT64_MAX : (int64_t)v;
}

static inline uint64_t clamped_u64(double v)
{
    return v != v ? (uint64_t)1 << 63 : v <= 0 ? 0 : v >= 0x1p64 ? UINT64_MAX : (uint64_t)v;
}

/* ---- approximations ---- */

/* -1 .. 1, of the argument and the seed; most of all the two ends. */
static inline double error_of(double a)
{
    uint64_t h;
    memcpy(&h, &a, sizeof h);
    h = (h ^ ptx_seed) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    h ^= h >> 32;
    return h & 3 ? (h & 4 ? 1.0 : -1.0) : (double)(int64_t)h * 0x1p-63;
}

/* v, off by at most so many units in the last place. */
static inline float about_units(double v, int units, double key)
{
    if (!isfinite(v) || v == 0)
        return one_nan((float)v);
    const int exponent = ilogb(v) > -126 ? ilogb(v) : -126;
    return (float)(v + ldexp(units - 0.5, exponent - 23) * error_of(key));
}

/* Of whole numbers it is exact: libdevice's double tanh() is wrong by 1e-8 where it is not. */
static inline float about_ex2(float a)
{
    return a == rintf(a) ? one_nan((float)exp2((double)a))
                         : about_units(exp2((double)a), 2, (double)a);
}

/* Off by at most 2^-22.9 of it, and no further once it is rounded to float. */
static inline float about_rsqrt(float a)
{
    const double v = a == 0 ? copysign(INFINITY, (double)a) : 1 / sqrt((double)a);
    if (!isfinite(v) || v == 0)
        return one_nan((float)v);
    return (float)(v + v * error_of((double)a) * (0x1p-22 / 1.866 - 0x1p-24));
}

/* Of a divisor above 2^126 zero is also right. */
static inline float about_quotient(float a, float b, int units)
{
    const double v = (double)a / (double)b;
    return about_units(v, units, v);
}

/* The upper half of the bits, of which the last is off. */
static inline double upper_half(double v)
{
    uint64_t bits;
    if (!isfinite(v) || v == 0)
        return v;
    v *= 1 + error_of(v) * 0x1p-20;
    memcpy(&bits, &v, sizeof bits);
    bits &= ~(uint64_t)0xFFFFFFFF;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline double flushed_f64(double v)
{
    return fabs(v) < 0x1p-1022 ? copysign(0, v) : v;
}

static inline double gross(double one, double a)
{
    return flushed_f64(upper_half(one / flushed_f64(a)));
}

static inline double gross_rsqrt(double a)
{
    a = flushed_f64(a);
    return upper_half(a == 0 ? copysign(INFINITY, a) : 1 / sqrt(a));
}
