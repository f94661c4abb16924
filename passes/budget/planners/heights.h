/* heights.h: bytes by position: added to a range, and asked for the highest of a range, each in the logarithm of the
 * positions. */
#pragma once

#include "onnx/words/arena.h"

typedef struct ebb_heights {
    int64_t *most;   /* a tree: of a node's range, with what was added to it as a whole */
    int64_t *more;   /* added to the whole range */
    uint32_t leaves; /* a power of two */
} ebb_heights;

/* `heights`: of `count` positions, or NULL: zero. */
ebb_status ebb_heights_make(ebb_heights *h, const uint64_t *heights, uint32_t count,
                            ebb_arena *arena);
void ebb_heights_add(ebb_heights *h, uint32_t first, uint32_t last, int64_t bytes);
int64_t ebb_heights_most(const ebb_heights *h, uint32_t first, uint32_t last);
uint32_t ebb_heights_highest(const ebb_heights *h); /* its position */
/* All of them, and `base` on each. */
void ebb_heights_read(const ebb_heights *h, int64_t *out, uint32_t count, int64_t base);
