/* round_once.h: numbers on their way to fewer digits than a float32 has.
 *
 * A double that becomes a float32 and then a bfloat16 is rounded twice, and the second rounding may
 * take for a tie what was none. Here the first step rounds to odd: what is not exact takes the
 * neighbour whose last bit is 1. That bit says "and something more" to the second rounding, which is
 * then right for every format that is at least two digits shorter.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/math/words.h"

/* The float32 of x by rounding to odd. Infinities, and what is beyond float32, are infinite. */
EBB_BOTH float ebb_odd_float(double x)
{
    float near = (float)x;
    double back = (double)near, most = 3.4028234663852886e38;
    uint32_t bits;
    if (back == x || x != x || back > most || back < -most)
        return near;
    memcpy(&bits, &near, sizeof bits);
    if ((bits & 1u) == 0) { // the odd neighbour is on the side of x
        bool is_less = back < 0 || x < 0 ? back < x : back > x; // in size
        bits = is_less ? bits - 1 : bits + 1;
    }
    memcpy(&near, &bits, sizeof near);
    return near;
}

/* The double of an integer by rounding to odd; is_unsigned: x has the bits of a uint64. */
EBB_BOTH double ebb_odd_double(int64_t x, bool is_unsigned)
{
    bool is_negative = !is_unsigned && x < 0;
    uint64_t size = is_negative ? 0 - (uint64_t)x : (uint64_t)x;
    double exact;
    if (size >> 53 != 0)
        exact = (double)(size >> 11 | ((size & 0x7FFu) != 0 ? 1u : 0u)) * 2048.0;
    else
        exact = (double)size;
    return is_negative ? -exact : exact;
}
