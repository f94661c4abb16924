/* space.h: which offsets are taken at which positions, for many pieces.
 *
 * The lowest free place is found without a walk over the pieces: a tree over the positions, each
 * node of which keeps the offsets that are taken in its range, as few long stretches as they make.
 */
#pragma once

#include "exec/weigh/pack/piece.h"
#include "onnx/words/arena.h"

typedef struct ebb_space ebb_space;

/* Empty, for these pieces. NULL: out of memory. */
ebb_space *ebb_space_new(const ebb_piece *pieces, uint32_t count, ebb_arena *scratch);

/* The lowest offset at which z, one of the pieces, lies free. */
uint64_t ebb_space_first(ebb_space *space, const ebb_piece *z);

/* z lies there from now on. False: out of memory. */
bool ebb_space_take(ebb_space *space, const ebb_piece *z, uint64_t offset);
