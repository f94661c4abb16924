/* piece.h: what the packers share: pieces to place, and how much work they may do. */
#pragma once

#include "onnx/words/arena.h"

typedef struct ebb_piece {
    uint32_t lower, upper;
    uint64_t size;  /* rounded up to the alignment */
    uint64_t bytes; /* as asked for: what the topmost piece needs */
    uint64_t at;    /* fixed: its offset */
    uint32_t index; /* into the caller's intervals */
    bool fixed;
} ebb_piece;

/* Work is counted in steps of about a nanosecond, so that the same input gives the same offsets
 * everywhere; only where the caller asked for it does the clock decide. */
typedef struct ebb_budget {
    uint64_t steps, most;
    int64_t deadline_ns; /* by ebb_now_ns; 0: none */
} ebb_budget;

uint64_t ebb_divisor(uint64_t a, uint64_t b); /* the greatest common one; of 0 and x: x */
bool ebb_budget_spent(const ebb_budget *budget);

/* A budget of `share` of what is left. Its steps go on from the parent's: copy them back. */
ebb_budget ebb_budget_part(const ebb_budget *budget, double share);
