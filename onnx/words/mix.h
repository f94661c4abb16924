/* mix.h: numbers as if by chance, and hashes for tables in memory. */
#pragma once

#include <stdint.h>

#define EBB_GOLDEN UINT64_C(0x9E3779B97F4A7C15) /* 2^64 over the golden ratio */

/* The next number of a state: SplitMix64 (Steele, Lea, Flood 2014). What adapters start with is drawn by it. */
static inline uint64_t ebb_draw(uint64_t *state)
{
    uint64_t x = *state += EBB_GOLDEN;
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* A hash with one word more. */
static inline uint64_t ebb_hash_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * EBB_GOLDEN;
    return hash ^ hash >> 32;
}
