/* chain_measure.h: the bytes and the cost of a chain's stages; for chain.c alone. */
#ifndef EBB_PASSES_BUDGET_PLANNERS_CHAIN_CHAIN_MEASURE_H
#define EBB_PASSES_BUDGET_PLANNERS_CHAIN_CHAIN_MEASURE_H

#include "passes/budget/planners/chain/chain.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills turn, base, in, saved, drop, fill, back, grad and ns of a chain that is cut.
 * crossing: by position in forward[], bytes that cross before it. */
ebb_status ebb_chain_measure(ebb_chain *chain, const uint64_t *crossing, ebb_arena *arena,
                             ebb_arena *scratch);

#ifdef __cplusplus
}
#endif
#endif
