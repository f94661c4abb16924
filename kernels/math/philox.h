/* philox.h: counter-based random numbers, the same text for C and CUDA.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC'11).
 * Counter = (element / 4, stream, step), key = seed: 128 bits in, four 32-bit words out; element i
 * takes word i % 4. The same bits on every device, in forward and in recompute.
 */
#pragma once

#include <stdint.h>

#include "kernels/math/words.h"

typedef struct ebb_philox {
    uint32_t word[4];
} ebb_philox;

EBB_BOTH ebb_philox ebb_philox_block(uint64_t seed, uint64_t step, uint32_t stream, uint64_t block)
{
    /* 38 bits of block are enough for 2^40 elements; its upper part shares a word with the step. */
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32) ^ (uint32_t)(step >> 32);
    uint32_t c2 = stream, c3 = (uint32_t)step;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    ebb_philox out = {{c0, c1, c2, c3}};
    return out;
}

/* Dropout keeps an element when its word is at or above ratio * 2^32, rounded down. */
EBB_BOTH uint32_t ebb_dropout_threshold(double ratio)
{
    double t = ratio * 4294967296.0;
    return t >= 4294967295.0 ? 0xFFFFFFFFu : t <= 0.0 ? 0u : (uint32_t)t;
}

/* Where element i of a part lies in the whole (kernels/draws.h); run 0: it is the whole. A key may be
 * anything, so products wrap around. */
EBB_BOTH uint64_t ebb_philox_place(int64_t i, int64_t part, int64_t parts, int64_t run)
{
    if (run == 0)
        return (uint64_t)i;
    return ((uint64_t)(i / run) * (uint64_t)parts + (uint64_t)part) * (uint64_t)run +
           (uint64_t)(i % run);
}

/* [0, 1) with 24 bits. */
EBB_BOTH float ebb_philox_uniform(uint32_t word)
{
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}
