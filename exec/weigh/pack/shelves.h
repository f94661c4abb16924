/* shelves.h: placed pieces by offset, in shelves of a few hundred, so that a new one moves few others. */
#pragma once

#include "exec/weigh/pack/piece.h"

typedef struct ebb_shelf ebb_shelf;

typedef struct ebb_shelves {
    ebb_shelf **list; /* in use: the first `count`, by offset */
    uint32_t count, most;
} ebb_shelves;

/* For so many pieces; false: no memory. To be cleared, or copied to, first. */
bool ebb_shelves_make(ebb_shelves *s, uint32_t pieces, ebb_arena *arena);
void ebb_shelves_clear(ebb_shelves *s);
void ebb_shelves_copy(ebb_shelves *to, const ebb_shelves *from); /* to: for as many pieces */

/* The lowest offset where z meets nobody in time; best_fit: of the gap that it fills best. steps: grows
 * by what the walk took. */
uint64_t ebb_shelves_find(const ebb_shelves *s, const ebb_piece *z, bool best_fit, uint64_t *steps);
/* Behind those that lie at or below the offset. */
void ebb_shelves_put(ebb_shelves *s, const ebb_piece *z, uint64_t offset);
