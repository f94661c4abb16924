/* small.h: elements of 8, 4 and 2 bits as kernels see them: the numbers of onnx/words/small.c.
 *
 * Any element as a double: ebb_load_number. Floats of 8 and 4 bits are made by ebb_small_of.
 */
#pragma once

#include "kernels/cuda/elements.h"

typedef struct ebb_small_format {
    int32_t mantissa; /* bits */
    int32_t least;    /* exponent of the smallest normal number */
    double largest;
    uint32_t sign;           /* the sign's bit */
    uint32_t top, nan, over; /* codes of the largest, of NaN, of what is too large; positive ones */
    bool unsigned_zero;      /* and `nan` has no sign of its own */
} ebb_small_format;

EBB_GPU_INLINE ebb_small_format ebb_small_format_of(uint8_t dtype)
{
    const ebb_small_format e4m3fn = {3, -6, 448.0, 0x80, 0x7E, 0x7F, 0x7F, false};
    const ebb_small_format e4m3fnuz = {3, -7, 240.0, 0x80, 0x7F, 0x80, 0x80, true};
    const ebb_small_format e5m2 = {2, -14, 57344.0, 0x80, 0x7B, 0x7E, 0x7C, false};
    const ebb_small_format e5m2fnuz = {2, -15, 57344.0, 0x80, 0x7F, 0x80, 0x80, true};
    const ebb_small_format e2m1 = {1, 0, 6.0, 0x8, 0x7, 0x8, 0x7, false};
    return dtype == EBB_F8E4M3FN     ? e4m3fn
           : dtype == EBB_F8E4M3FNUZ ? e4m3fnuz
           : dtype == EBB_F8E5M2     ? e5m2
           : dtype == EBB_F8E5M2FNUZ ? e5m2fnuz
                                     : e2m1;
}

EBB_GPU_INLINE double ebb_of_small(uint8_t dtype, uint32_t bits)
{
    if (dtype == EBB_F8E8M0)
        return bits == 0xFF ? (double)NAN : ldexp(1.0, (int)bits - 127);
    const ebb_small_format f = ebb_small_format_of(dtype);
    const uint32_t rest = bits & (f.sign - 1), part = rest & ((1u << f.mantissa) - 1);
    const int exponent = (int)(rest >> f.mantissa);
    const double sign = (bits & f.sign) != 0 ? -1.0 : 1.0;
    if (f.unsigned_zero ? bits == f.nan : dtype == EBB_F8E4M3FN && rest == f.nan)
        return (double)NAN;
    if (dtype == EBB_F8E5M2 && rest >= f.over)
        return rest == f.over ? sign * (double)INFINITY : (double)NAN;
    if (exponent == 0)
        return sign * ldexp((double)part, f.least - f.mantissa);
    return sign * ldexp((double)(part + (1u << f.mantissa)), exponent - 1 + f.least - f.mantissa);
}

/* float8e8m0: powers of two, of which the rounding chooses one; see ebb_rounding. */
EBB_GPU_INLINE uint32_t ebb_power_of(double value, bool saturate, ebb_rounding rounding)
{
    int exponent;
    if (value != value || fabs(value) == (double)INFINITY)
        return 0xFF;
    if (value == 0.0)
        return 0;
    const double part = frexp(fabs(value), &exponent) * 2.0; // 1 <= part < 2
    const bool up =
        rounding == EBB_ROUND_UP ? part > 1.0 : rounding == EBB_ROUND_NEAREST && part >= 1.5;
    const int code = exponent - 1 + 127 + (up ? 1 : 0), most = saturate ? 0xFE : 0xFF;
    return (uint32_t)(code < 0 ? 0 : code > most ? most : code);
}

/* To nearest, ties to even; float8e8m0 as the rounding says. */
EBB_GPU_INLINE uint32_t ebb_small_of(uint8_t dtype, double value, bool saturate,
                                     ebb_rounding rounding)
{
    if (dtype == EBB_F8E8M0)
        return ebb_power_of(value, saturate, rounding);
    const ebb_small_format f = ebb_small_format_of(dtype);
    const uint32_t sign = signbit(value) ? f.sign : 0;
    const double size = fabs(value);
    int exponent = f.least;
    if (value != value)
        return f.nan;
    if (size < (double)INFINITY && size >= ldexp(1.0, f.least)) {
        (void)frexp(size, &exponent);
        exponent--;
    }
    /* In units of the last place; at the next power of two the code is the next one anyway. */
    const double steps =
        size < (double)INFINITY ? nearbyint(ldexp(size, f.mantissa - exponent)) : size;
    if (ldexp(steps, exponent - f.mantissa) > f.largest) {
        if (saturate || dtype == EBB_F4E2M1)
            return sign | f.top;
        return f.unsigned_zero ? f.nan : sign | f.over;
    }
    const uint32_t code = (uint32_t)steps + ((uint32_t)(exponent - f.least) << f.mantissa);
    return code == 0 && f.unsigned_zero ? 0 : sign | code;
}

/* Element i of `bits` bits, 2 or 4 or 8. */
EBB_GPU_INLINE uint32_t ebb_bits_at(const void *p, int64_t i, uint32_t bits)
{
    const int64_t each = 8 / (int64_t)bits;
    const uint32_t byte = ((const uint8_t *)p)[i / each], mask = (1u << bits) - 1u;
    return byte >> (uint32_t)(i % each) * bits & mask;
}

/* Element i of any integer dtype, or bool. */
EBB_GPU_INLINE int64_t ebb_load_integer(const void *p, int64_t i, uint8_t dtype)
{
    switch (dtype) {
    case EBB_U4:
        return (int64_t)ebb_bits_at(p, i, 4);
    case EBB_I4:
        return (int64_t)(ebb_bits_at(p, i, 4) ^ 8u) - 8;
    case EBB_U2:
        return (int64_t)ebb_bits_at(p, i, 2);
    case EBB_I2:
        return (int64_t)(ebb_bits_at(p, i, 2) ^ 2u) - 2;
    default:
        return ebb_load_whole(p, i, dtype);
    }
}

/* Element i of any dtype. */
EBB_GPU_INLINE double ebb_load_number(const void *p, int64_t i, uint8_t dtype)
{
    switch (dtype) {
    case EBB_F32:
    case EBB_F64:
    case EBB_F16:
    case EBB_BF16:
        return ebb_load_real(p, i, dtype);
    case EBB_F4E2M1:
        return ebb_of_small(dtype, ebb_bits_at(p, i, 4));
    case EBB_F8E4M3FN:
    case EBB_F8E4M3FNUZ:
    case EBB_F8E5M2:
    case EBB_F8E5M2FNUZ:
    case EBB_F8E8M0:
        return ebb_of_small(dtype, ((const uint8_t *)p)[i]);
    case EBB_U64:
        return (double)(uint64_t)ebb_load_whole(p, i, dtype);
    default:
        return (double)ebb_load_integer(p, i, dtype);
    }
}
