/* small.c: numbers of 8, 4 and 2 bits.
 *
 * A small float is sign, exponent, mantissa like its bigger kin; the formats differ in how many
 * bits each part has, where the exponents begin, and which codes are no numbers:
 *
 *     float8e4m3fn    S EEEE MMM    NaN is S 1111 111, no infinity
 *     float8e5m2      S EEEEE MM    as IEEE: infinities, NaNs
 *     ...fnuz         the code of -0 is the one NaN; no infinity, no -0
 *     float4e2m1      S EE M        numbers alone
 *     float8e8m0      EEEEEEEE      powers of two, 2^-127 to 2^127; 255 is NaN
 */
#include "onnx/words/tensor.h"

#include <math.h>

typedef struct format {
    int mantissa; /* bits */
    int least;    /* exponent of the smallest normal number */
    double largest;
    unsigned sign;      /* the sign's bit */
    unsigned nan, over; /* codes of NaN, and of what is too large, for positive numbers */
    bool unsigned_zero; /* and `nan` has no sign of its own */
} format;

static const format formats[EBB_DTYPE_COUNT] = {
    [EBB_F8E4M3FN] = {3, -6, 448.0, 0x80, 0x7F, 0x7F, false},
    [EBB_F8E4M3FNUZ] = {3, -7, 240.0, 0x80, 0x80, 0x80, true},
    [EBB_F8E5M2] = {2, -14, 57344.0, 0x80, 0x7E, 0x7C, false},
    [EBB_F8E5M2FNUZ] = {2, -15, 57344.0, 0x80, 0x80, 0x80, true},
    [EBB_F4E2M1] = {1, 0, 6.0, 0x8, 0x8, 0x7, false},
};

static double power_to_double(unsigned bits)
{
    return bits == 0xFF ? (double)NAN : ldexp(1.0, (int)bits - 127);
}

static unsigned power_of_double(double value, bool saturate, ebb_rounding rounding)
{
    int exponent;
    if (!isfinite(value))
        return 0xFF;
    if (value == 0.0)
        return 0;
    double part = frexp(fabs(value), &exponent) * 2.0; // 1 <= part < 2
    bool up = rounding == EBB_ROUND_UP ? part > 1.0 : rounding == EBB_ROUND_NEAREST && part >= 1.5;
    int code = exponent - 1 + 127 + (up ? 1 : 0);
    int most = saturate ? 0xFE : 0xFF;
    return (unsigned)(code < 0 ? 0 : code > most ? most : code);
}

double ebb_small_to_double(ebb_dtype dtype, unsigned bits)
{
    if (dtype == EBB_F8E8M0)
        return power_to_double(bits);
    const format *f = &formats[dtype];
    unsigned rest = bits & (f->sign - 1), part = rest & ((1u << f->mantissa) - 1);
    int exponent = (int)(rest >> f->mantissa);
    if (f->unsigned_zero && bits == f->nan)
        return (double)NAN;
    if (dtype == EBB_F8E4M3FN && rest == f->nan)
        return (double)NAN;
    double sign = (bits & f->sign) != 0 ? -1.0 : 1.0;
    if (dtype == EBB_F8E5M2 && rest >= f->over)
        return rest == f->over ? sign * (double)INFINITY : (double)NAN;
    if (exponent == 0)
        return sign * ldexp((double)part, f->least - f->mantissa);
    return sign *
           ldexp((double)(part + (1u << f->mantissa)), exponent - 1 + f->least - f->mantissa);
}

unsigned ebb_small_of_double(ebb_dtype dtype, double value, bool saturate, ebb_rounding rounding)
{
    if (dtype == EBB_F8E8M0)
        return power_of_double(value, saturate, rounding);
    const format *f = &formats[dtype];
    if (value != value)
        return f->nan;
    int exponent = f->least;
    unsigned sign = signbit(value) != 0 ? f->sign : 0;
    double size = fabs(value);
    if (isfinite(size) && size >= ldexp(1.0, f->least)) {
        (void)frexp(size, &exponent);
        exponent--;
    }
    /* In units of the last place; at the next power of two the code is the next one anyway. */
    double steps = isfinite(size) ? nearbyint(ldexp(size, f->mantissa - exponent)) : size;
    if (ldexp(steps, exponent - f->mantissa) > f->largest) {
        if (!saturate && dtype != EBB_F4E2M1)
            return f->unsigned_zero ? f->nan : sign | f->over;
        return sign | ebb_small_of_double(dtype, f->largest, true, rounding);
    }
    unsigned code = (unsigned)steps;
    code += (unsigned)(exponent - f->least) << f->mantissa;
    return code == 0 && f->unsigned_zero ? 0 : sign | code;
}

unsigned ebb_bits_get(const void *data, int64_t i, unsigned bits)
{
    const unsigned char *bytes = data;
    int64_t each = 8 / (int64_t)bits;
    return (unsigned)bytes[i / each] >> (i % each * (int64_t)bits) & ((1u << bits) - 1);
}

void ebb_bits_put(void *data, int64_t i, unsigned bits, unsigned value)
{
    unsigned char *bytes = data;
    int64_t each = 8 / (int64_t)bits;
    unsigned shift = (unsigned)(i % each) * bits, mask = ((1u << bits) - 1) << shift;
    unsigned char *at = &bytes[i / each];
    *at = (unsigned char)((*at & ~mask) | ((value << shift) & mask));
}

int64_t ebb_bits_signed(unsigned value, unsigned bits)
{
    unsigned top = 1u << (bits - 1);
    return (int64_t)(value ^ top) - (int64_t)top;
}
