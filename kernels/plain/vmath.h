/* vmath.h: exp, tanh, erf and kin for float, without branches or tables, so that loops over them
 * become vector code.
 *
 * Polynomials are minimax fits (weighted least squares, iterated) made for these files. The errors
 * below were measured against double over all floats of the range in steps of 7 bits:
 *   ebb_exp   1.2 ulp      ebb_tanh  1.7 ulp
 *   ebb_erf   1.5 ulp      ebb_erfc  relative 2e-6 in the far tail, 4e-7 below 2
 *   ebb_log   0.9 ulp, of normal x > 0 alone
 * NaN gives NaN, infinities their limits. test_plain.c holds them to these bounds.
 */
#pragma once

#include "kernels/plain/halves.h"

#include <math.h>
#include <stdint.h>

#define EBB_VECTOR(name) ebb_##name /* what V(name) is of float32: see kernels/math/words.h */

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define EBB_FMA(a, b, c) fmaf((a), (b), (c))
#else
#define EBB_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* e^x = 2^n e^r, |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low
 * bits; 2^n goes on in two factors, so that results may be subnormal and overflow is infinity. */
static inline float ebb_exp(float x)
{
    const float magic = 12582912.0f;
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float t = EBB_FMA(x, 1.44269504f, magic), n = t - magic;
    float r = EBB_FMA(n, -0.693145752f, x);
    r = EBB_FMA(n, -1.42860677e-6f, r);
    float q = 1.381461322e-3f;
    q = EBB_FMA(q, r, 8.368710074e-3f);
    q = EBB_FMA(q, r, 4.166838738e-2f);
    q = EBB_FMA(q, r, 1.666652069e-1f);
    q = EBB_FMA(q, r, 4.999999345e-1f);
    float p = EBB_FMA(q, r * r, r) + 1.0f;
    uint32_t whole =
        ebb_float_bits(t) - 0x4B400000u + 512u; /* n + 512, so that halving is a shift */
    uint32_t half = whole >> 1, rest = whole - half;
    float a = ebb_bits_float((half - 256u + 127u) << 23),
          b = ebb_bits_float((rest - 256u + 127u) << 23);
    return p * a * b;
}

/* ln x = n ln 2 + 2 artanh s, s = (m - 1) / (m + 1), x = 2^n m with m about 1. x: normal, above 0.
 */
static inline float ebb_log(float x)
{
    uint32_t bits = ebb_float_bits(x) - 0x3F3504F3u; /* of sqrt 1/2 */
    float n = (float)((int32_t)bits >> 23);
    float m = ebb_bits_float((bits & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
    float s = m / (m + 2.0f), z = s * s;
    float q = 0.24f;
    q = EBB_FMA(q, z, 2.85714286e-1f);
    q = EBB_FMA(q, z, 4.0e-1f);
    q = EBB_FMA(q, z, 6.66666667e-1f);
    float half = 0.5f * m * m; /* ln(1 + m) = m - (half - s (half + z q)) */
    float rest = half - s * (half + z * q);
    return EBB_FMA(n, 0.693145752f, m - (rest - n * 1.42860677e-6f));
}

static inline float ebb_tanh(float x)
{
    float t = fabsf(x), s = x * x;
    float q = 2.142959896e-3f;
    q = EBB_FMA(q, s, -8.177396232e-3f);
    q = EBB_FMA(q, s, 2.170070247e-2f);
    q = EBB_FMA(q, s, -5.394676294e-2f);
    q = EBB_FMA(q, s, 1.333320601e-1f);
    q = EBB_FMA(q, s, -3.333333080e-1f);
    float near = EBB_FMA(q * s, t, t);
    float far = 1.0f - 2.0f / (ebb_exp(2.0f * t) + 1.0f);
    float y = t < 0.625f ? near : far;
    return copysignf(y, x);
}

/* erf for |x| < 1. */
static inline float ebb_erf_near(float x)
{
    float s = x * x;
    float q = 7.85390106e-5f;
    q = EBB_FMA(q, s, -8.01020698e-4f);
    q = EBB_FMA(q, s, 5.18832942e-3f);
    q = EBB_FMA(q, s, -2.68538130e-2f);
    q = EBB_FMA(q, s, 1.12835852e-1f);
    q = EBB_FMA(q, s, -3.76126258e-1f);
    q = EBB_FMA(q, s, 1.28379170e-1f);
    return EBB_FMA(q, x, x);
}

/* erfc for t >= 1: log erfc(t) + t^2 is nearly straight, a polynomial about 3 up to 5. */
static inline float ebb_erfc_far(float t)
{
    float u = (t < 5.0f ? t : 5.0f) - 3.0f;
    float q = 1.124733256e-6f;
    q = EBB_FMA(q, u, -8.235596945e-6f);
    q = EBB_FMA(q, u, 4.296901820e-5f);
    q = EBB_FMA(q, u, -2.424859674e-4f);
    q = EBB_FMA(q, u, 1.353411262e-3f);
    q = EBB_FMA(q, u, -7.415340713e-3f);
    q = EBB_FMA(q, u, 4.260574555e-2f);
    q = EBB_FMA(q, u, -3.037526820e-1f);
    q = EBB_FMA(q, u, -1.720363039f);
    return ebb_exp(EBB_FMA(-t, t, q));
}

static inline float ebb_erf(float x)
{
    float t = fabsf(x);
    float near = ebb_erf_near(t), far = 1.0f - ebb_erfc_far(t);
    return copysignf(t < 1.0f ? near : far, x);
}

static inline float ebb_erfc(float x)
{
    float t = fabsf(x);
    float near = 1.0f - ebb_erf_near(t), far = ebb_erfc_far(t);
    float y = t < 1.0f ? near : far;
    return x < 0.0f ? 2.0f - y : y;
}
