/* revolve.h: the exact numbers of binomial checkpointing, and its forms for several memories.
 *
 * l steps that take the same, s slots for states of which the first holds the initial one. To go
 * back over a step, the state before it must be there; a forward from the nearest state makes it.
 *
 * Papers: Griewank and Walther, Algorithm 799, 2000; Herrmann and Pallez, "H-Revolve", 2020.
 */
#ifndef EBB_PASSES_BUDGET_PLANNERS_CHAIN_REVOLVE_H
#define EBB_PASSES_BUDGET_PLANNERS_CHAIN_REVOLVE_H

#include "onnx/words/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C(s + r, s): the longest chain that can be gone back over with s slots where no step is run
 * forward more than r times. 0 where an argument is negative; at most UINT64_MAX. */
uint64_t ebb_revolve_beta(int64_t s, int64_t r);

/* The least number of forward steps for l steps with s slots, not counting the forward inside each
 * combined forward and backward step: t(l, s). l and s at least 1. */
uint64_t ebb_revolve_forwards(uint64_t l, uint64_t s);

/* How far to run from a stored state to the next one that is stored: `steps` (at least 2) remain,
 * `slots` (at least 1) with that of the state itself. By always going so far, the number of
 * forward steps is t(steps, slots). */
uint64_t ebb_revolve_advance(uint64_t steps, uint64_t slots);

/* One memory of several, fastest first: how many states it takes, and what they cost to move. */
typedef struct ebb_revolve_level {
    uint32_t slots;
    double write, read;
} ebb_revolve_level;

/* The least time to go back over `steps` steps and the last one: a forward takes `forward`, a
 * combined step `backward`. One level is the classical case: with forward 1 and backward 0 it is
 * t(steps + 1, slots). O(levels * steps^2 * slots). The first level has at least one slot. */
ebb_status ebb_revolve_cost(double *cost, uint32_t steps, const ebb_revolve_level *levels,
                            uint32_t level_count, double forward, double backward);

#ifdef __cplusplus
}
#endif
#endif
