/* revolve: binomial checkpointing: few states are stored, at the places that binomials say.
 *
 *   slots 3    | 1 2 3 4 5 [ 6 7 8 [ 9 10        store the states before 1, 6 and 9
 *              10' : run 9, go back over 10; back over 9; from 6 run 7, 8' 7' 6'; from 1 ...
 *
 * Exact for chains of equal steps; here steps are the stages of the forward, each made again with
 * all that its backward reads just before it. How many slots, and how many stages the forward is
 * cut into, are tried on the true problem; the cheapest that fits is taken. Each stage but the
 * last runs at least twice, which is the method's price where memory is not so scarce.
 *
 * Paper: Griewank and Walther, "Algorithm 799: revolve", 2000.
 */
#include "passes/budget/planners/chain/revolve.h"

#include "passes/budget/planners/chain/chain.h"

enum { MOST_STAGES = 1024, LEAST_STAGES = 4, MOST_TRIES = 80, LONGEST = 40 };

/* Stages first .. end-1, whose input is stored; slots with its own. Depth: at most the slots. */
static ebb_status go_back(ebb_tape *tape, uint32_t first, uint32_t end, uint64_t slots)
{
    while (end - first > 1 && !tape->full) {
        uint32_t at = first + (uint32_t)ebb_revolve_advance(end - first, slots);
        for (uint32_t s = first; s < at; s++)
            EBB_TRY(ebb_tape_forward(tape, s));
        if (slots > 1) {
            EBB_TRY(go_back(tape, at, end, slots - 1));
        } else {
            EBB_TRY(ebb_tape_forward(tape, at));
            EBB_TRY(ebb_tape_backward(tape, at));
        }
        end = at;
    }
    EBB_TRY(ebb_tape_forward(tape, first));
    return ebb_tape_backward(tape, first);
}

static ebb_status by_slots(void *self, uint64_t slots, ebb_remat_schedule *schedule,
                           ebb_arena *scratch)
{
    const ebb_chain *c = self;
    ebb_tape tape;
    EBB_TRY(ebb_tape_start(&tape, c, (size_t)c->problem->op_count * LONGEST, scratch));
    EBB_TRY(go_back(&tape, 0, c->stages, slots));
    *schedule = (ebb_remat_schedule){tape.ops, tape.full ? 0 : tape.count};
    return NULL;
}

typedef struct tried {
    uint32_t tries, stages; /* of the last chain */
} tried;

static ebb_status try_stages(void *self, ebb_remat_best *best, uint32_t most, ebb_arena *scratch)
{
    tried *t = self;
    ebb_chain chain;
    EBB_TRY(ebb_chain_make(&chain, best->problem, most, scratch));
    const bool fewer = chain.stages < t->stages;
    t->stages = fewer ? chain.stages : t->stages;
    return fewer && chain.stages > 1
               ? ebb_remat_best_turn(best, 1, chain.stages, t->tries, by_slots, &chain)
               : NULL;
}

static ebb_status offer_all(ebb_remat_best *best, uint64_t steps, ebb_arena *scratch)
{
    (void)scratch;
    const uint32_t tries = ebb_remat_tries(best->problem, steps / 2, MOST_TRIES) / 8;
    tried t = {tries < 4 ? 4 : tries, UINT32_MAX};
    return ebb_remat_best_halve(best, MOST_STAGES, LEAST_STAGES, try_stages, &t);
}

const ebb_planner ebb_planner_revolve = {
    .name = "revolve",
    .doc = "binomial checkpointing: stages stored at the places that binomials say",
    .paper = "Griewank and Walther, \"Algorithm 799: revolve\", 2000",
    .offer = offer_all,
};
