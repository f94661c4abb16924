/* pack.h: intervals in, offsets out; pure arithmetic.
 *
 * Offline dynamic storage allocation: place each interval so that no two alive together overlap,
 * with the highest end as low as can be, or below a capacity. Four means, each when the ones before
 * it left something to gain: several first-fit orders, local search on the best, exact search where
 * the instance is small, bisection over capacities with it.
 *
 *   lifetimes        positions ->          packed        offset ^   +-- c --+
 *     a |=======|                                               |   |  +-- b --+
 *     b       |=======|                                         | +-- a --+
 *     c   |=======|                                             +----------------> position
 */
#pragma once

#include "onnx/words/arena.h"

typedef struct ebb_interval {
    uint32_t lower, upper; /* alive at positions lower .. upper - 1 */
    uint64_t size;
    uint64_t offset; /* out; in where it is fixed */
} ebb_interval;

typedef struct ebb_packing {
    uint64_t height;      /* the arena's bytes */
    uint64_t lower_bound; /* most bytes alive at one position: no packing can be lower */
    uint64_t least;     /* no packing is lower than this: the bound, or more where search said so */
    const char *method; /* the order or search that won */
    bool proven;        /* height equals least */
    bool fits;          /* within the capacity; without one always */
} ebb_packing;

typedef struct ebb_pack_options {
    uint64_t alignment;  /* of offsets; 0: 1 */
    uint64_t capacity;   /* stop as soon as it is met; 0: as low as can be */
    const bool *fixed;   /* by interval: its offset is given and stays; NULL: none */
    const size_t *lines; /* by interval: its line in a file, for errors; NULL: its index is said */
    int64_t time_ns;     /* search so long by the clock; 0: by counted steps, so that the same
                            input gives the same offsets everywhere, in a fraction of a second */
} ebb_pack_options;

/* Fills offsets, multiples of the alignment; those of empty intervals are 0. EBB_REJECTED for a
 * reversed interval, an overflow, a fixed offset that is not aligned, two fixed ones that overlap.
 * A capacity that is not met is no error: fits is then false, and the best that was found is
 * filled in; it is proven that nothing fits where least > capacity. options: NULL for all zero. */
ebb_status ebb_pack(ebb_packing *packing, ebb_interval *intervals, size_t count,
                    const ebb_pack_options *options, ebb_arena *scratch);
