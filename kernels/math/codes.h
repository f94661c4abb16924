/* codes.h: small numbers in an array of bits: code i takes `bits` bits from bit i * bits on, the
 * least significant first. `bits` is 1, 2, 4, 8 or 16, so that no code crosses a byte but the last.
 *
 * Codes that share a byte must be written by one thread, in ascending order. Eight codes fill whole
 * bytes whatever `bits` is.
 */
#pragma once

#include <stdint.h>

#include "kernels/math/words.h"

enum { EBB_CODES_WHOLE = 8 }; /* a multiple of so many codes ends with a byte */

/* The first code of a byte clears the rest of it. */
EBB_BOTH void ebb_code_put(uint8_t *codes, unsigned bits, int64_t i, uint32_t code)
{
    if (bits >= 8) {
        int64_t at = i * (int64_t)(bits / 8);
        codes[at] = (uint8_t)code;
        if (bits == 16)
            codes[at + 1] = (uint8_t)(code >> 8);
        return;
    }
    int64_t first = i * (int64_t)bits, at = first / 8;
    unsigned shift = (unsigned)(first % 8);
    codes[at] = (uint8_t)((shift == 0 ? 0u : codes[at]) | code << shift);
}

EBB_BOTH uint32_t ebb_code_get(const uint8_t *codes, unsigned bits, int64_t i)
{
    if (bits == 16)
        return codes[2 * i] | (uint32_t)codes[2 * i + 1] << 8;
    int64_t first = i * (int64_t)bits;
    return (uint32_t)codes[first / 8] >> (first % 8) & ((1u << bits) - 1u);
}
