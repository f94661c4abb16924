/* chain_measure.h: the bytes and the cost of a chain's stages; for chain.c alone. */
#pragma once

#include "passes/budget/planners/chain/chain.h"

/* Fills turn, base, in, saved, drop, fill, back, grad and ns of a chain that is cut.
 * crossing: by position in forward[], bytes that cross before it. */
ebb_status ebb_chain_measure(ebb_chain *chain, const uint64_t *crossing, ebb_arena *arena,
                             ebb_arena *scratch);
