/* whole.h: arithmetic of integers that C leaves open, the same text for all back ends. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/math/words.h"

/* Divisors are not zero: the caller has looked. The one quotient that does not fit wraps around. */
EBB_BOTH int64_t ebb_whole_quotient(int64_t a, int64_t b)
{
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

/* With the sign of the dividend, as C has it; or else with that of the divisor, as Python has it. */
EBB_BOTH int64_t ebb_whole_rest(int64_t a, int64_t b, bool as_c)
{
    int64_t r = b == -1 ? 0 : a % b;
    return !as_c && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

EBB_BOTH int64_t ebb_whole_power(int64_t base, int64_t exponent)
{
    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
    uint64_t result = 1, square = (uint64_t)base;
    for (; exponent > 0; exponent >>= 1, square *= square)
        if ((exponent & 1) != 0)
            result *= square;
    return (int64_t)result;
}

/* base^exponent, both whole, in *power; false: it does not fit, or they are not. */
EBB_BOTH bool ebb_whole_product(double base, double exponent, double *power)
{
    const uint64_t most = 0x7FFFFFFFFFFFFFFFULL;
    if (!(exponent >= 0 && exponent <= 64) || exponent != trunc(exponent) || !(fabs(base) < 9.2e18))
        return false;
    const uint64_t size = (uint64_t)fabs(base);
    uint64_t product = 1;
    for (int k = 0; k < (int)exponent; k++) {
        if (size != 0 && product > most / size)
            return false;
        product *= size;
    }
    *power = base < 0 && (int)exponent % 2 != 0 ? -(double)product : (double)product;
    return true;
}

/* To a float power: truncated, and held inside the type. A device's pow() is off by two units in
 * the last place, of which truncation would make a whole one: so products are products, and what
 * is that near to a whole number is it. */
EBB_BOTH int64_t ebb_whole_real_power(double base, double exponent)
{
    double v;
    if (!ebb_whole_product(base, exponent, &v)) {
        v = exponent == 0.5 ? sqrt(base) : pow(base, exponent);
        if (fabs(v - rint(v)) <= fabs(v) * 0x1p-50)
            v = rint(v);
    }
    v = trunc(v);
    return v != v ? 0 : v >= 9.2e18 ? INT64_MAX : v <= -9.2e18 ? INT64_MIN : (int64_t)v;
}
