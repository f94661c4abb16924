/* uniform: the input of every k-th stage kept, what lies between made again when the backward comes.
 *
 *   k = 3      forward    [a] b  c [d] e  f [g] h  i      [kept]
 *              backward   i h g | e f -> f e d | b c -> c b a     each group once more, but the last
 *
 * Frameworks count layers so and leave k to the user. Here every number of groups is tried on the
 * true problem (of many only some), and the cheapest that fits is taken. sqrt differs in what the
 * groups have in common: bytes, not stages.
 */
#include "passes/budget/planners/chain/chain.h"

enum { MOST_STAGES = 1 << 16, MOST_TRIES = 64 };

static ebb_status offer(ebb_remat_best *best, const ebb_chain *c, uint32_t k, ebb_arena *scratch)
{
    bool *enters = EBB_NEW(scratch, bool, (size_t)c->stages + 1);
    bool *kept = EBB_NEW(scratch, bool, (size_t)c->problem->value_count + 1);
    EBB_GOT(enters && kept);
    for (uint32_t s = 0; s < c->stages; s += k)
        enters[s] = true;
    EBB_TRY(ebb_chain_keep(c, enters, (c->stages - 1) / k * k, kept));
    ebb_remat_schedule schedule;
    EBB_TRY(ebb_remat_from_kept(&schedule, c->problem, kept, EBB_REMAT_HOLD, scratch));
    return ebb_remat_best_offer(best, &schedule, NULL);
}

static ebb_status try_groups(ebb_remat_best *best, const ebb_chain *c, uint32_t tries)
{
    for (uint32_t groups = 2, k = 0; groups <= c->stages && tries > 0; groups += 1 + groups / 12) {
        uint32_t length = (c->stages + groups - 1) / groups;
        if (length == k)
            continue;
        EBB_LOCAL_ARENA(scratch);
        k = length;
        EBB_TRY(offer(best, c, k, scratch));
        tries--;
    }
    return NULL;
}

static ebb_status offer_all(ebb_remat_best *best, uint64_t steps, ebb_arena *scratch)
{
    ebb_chain chain;
    EBB_TRY(ebb_chain_make(&chain, best->problem, MOST_STAGES, scratch));
    return try_groups(best, &chain, ebb_remat_tries(best->problem, steps, MOST_TRIES));
}

const ebb_planner ebb_planner_uniform = {
    .name = "uniform",
    .doc = "groups of k stages, for the best k; each is made again once",
    .paper = "PyTorch's checkpoint_sequential; Megatron-LM's recompute-method uniform",
    .offer = offer_all,
};
