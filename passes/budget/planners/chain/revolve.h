/* revolve.h: the exact numbers of binomial checkpointing.
 *
 * l steps that take the same, s slots for states of which the first holds the initial one. To go
 * back over a step, the state before it must be there; a forward from the nearest state makes it.
 *
 * Paper: Griewank and Walther, Algorithm 799, 2000. Several memories: walk/walk.h.
 */
#pragma once

#include "onnx/words/arena.h"

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
