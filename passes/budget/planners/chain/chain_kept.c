/* chain-dp, chain-linear: the subset of a chain's outputs whose keeping gives the least peak.
 *
 *   forward    a [b] c  d [e] f | g  h  i       [kept]   | from here on all is kept
 *   backward   i h g | f -> f | c d -> d c | a -> a
 *
 * Both find the least peak exactly on the chain (links.h) and differ in what they count while a
 * segment is made again: chain-dp all kept outputs, chain-linear those still to be used. Where the
 * budget allows more than the least peak, the last stages keep everything, as many as fit: what
 * they hold is gone when the first segment is made again.
 *
 * The chain says only nearly what the problem needs, so the bound given to it is a dial, turned
 * until the true peak fits.
 *
 * Paper: Hong, Tsai, Wang, Liu, Wu, arXiv 2502.12499.
 */
#include "passes/budget/planners/chain/chain.h"
#include "passes/budget/planners/chain/links.h"

enum { DP_STAGES = 384, LINEAR_STAGES = 1 << 16, MOST_TRIES = 24 };

typedef struct kept_planner {
    ebb_chain chain;
    ebb_links links;
    uint64_t *rest;         /* by stage: highest in the backward of this and later ones, all kept */
    uint64_t *need, *bound; /* chain-dp: by the stage from which all is kept */
    ebb_remat_hold hold;
} kept_planner;

static ebb_status link_up(kept_planner *k, ebb_arena *scratch)
{
    const ebb_chain *c = &k->chain;
    uint32_t stages = c->stages;
    uint64_t *inner = EBB_NEW(scratch, uint64_t, (size_t)stages + 1);
    uint64_t *work = EBB_NEW(scratch, uint64_t, (size_t)stages + 1);
    k->rest = EBB_NEW(scratch, uint64_t, (size_t)stages + 1);
    EBB_GOT(inner && work && k->rest);
    for (uint32_t s = stages; s-- > 0;) {
        uint64_t made = c->saved[s], run = c->fill[s] + c->grad[s];
        uint64_t most = c->back[s] > run ? c->back[s] : run;
        inner[s + 1] = made;
        work[s + 1] = most > made ? most - made : 0;
        k->rest[s] = made + (work[s + 1] > k->rest[s + 1] ? work[s + 1] : k->rest[s + 1]);
    }
    return ebb_links_make(&k->links, stages - 1, c->in, inner, work, scratch);
}

static ebb_status schedule_from(const kept_planner *k, uint32_t from, ebb_remat_schedule *schedule,
                                ebb_arena *scratch)
{
    const ebb_remat_problem *p = k->chain.problem;
    bool *enters = EBB_NEW(scratch, bool, (size_t)k->chain.stages + 1);
    bool *kept = EBB_NEW(scratch, bool, (size_t)p->value_count + 1);
    EBB_GOT(enters && kept);
    ebb_links_trace(&k->links, from, enters);
    enters[from] = true;
    EBB_TRY(ebb_chain_keep(&k->chain, enters, from, kept));
    return ebb_remat_from_kept(schedule, p, kept, k->hold, scratch);
}

/* The last stage is always kept: its backward comes at once. */
static ebb_status by_need(void *self, uint64_t bound, ebb_remat_schedule *schedule,
                          ebb_arena *scratch)
{
    kept_planner *k = self;
    uint32_t from = 0;
    while (from < k->chain.stages && k->need[from] > bound)
        from++;
    if (from == k->chain.stages)
        return NULL;
    ebb_links_resident(&k->links, k->bound[from]);
    return schedule_from(k, from, schedule, scratch);
}

static ebb_status by_running(void *self, uint64_t bound, ebb_remat_schedule *schedule,
                             ebb_arena *scratch)
{
    kept_planner *k = self;
    uint32_t from = 0;
    ebb_links_running(&k->links, bound);
    while (from < k->chain.stages &&
           (k->links.cost[from] > bound || k->rest[from] > bound - k->links.cost[from]))
        from++;
    return from < k->chain.stages ? schedule_from(k, from, schedule, scratch) : NULL;
}

static uint64_t least_need(const kept_planner *k)
{
    uint64_t least = EBB_LINKS_NEVER;
    for (uint32_t s = 0; s < k->chain.stages; s++)
        least = k->need[s] < least ? k->need[s] : least;
    return least;
}

/* The least bound at which a stage can be found from which all is kept. */
static uint64_t least_running(kept_planner *k)
{
    uint64_t low = 0, high = k->rest[0];
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        bool found = false;
        ebb_links_running(&k->links, middle);
        for (uint32_t s = 0; s < k->chain.stages && !found; s++)
            found = k->links.cost[s] <= middle && k->rest[s] <= middle - k->links.cost[s];
        low = found ? low : middle + 1;
        high = found ? middle : high;
    }
    return low;
}

static ebb_status choose(ebb_remat_best *best, bool dp, uint64_t steps, ebb_arena *scratch)
{
    const ebb_remat_problem *p = best->problem;
    kept_planner k = {.hold = EBB_REMAT_HOLD};
    uint32_t tries = ebb_remat_tries(p, steps, MOST_TRIES);
    EBB_TRY(ebb_chain_make(&k.chain, p, dp ? DP_STAGES : LINEAR_STAGES, scratch));
    if (k.chain.stages < 2)
        return NULL;
    EBB_TRY(link_up(&k, scratch));
    if (dp) {
        k.need = EBB_NEW(scratch, uint64_t, (size_t)k.chain.stages + 1);
        k.bound = EBB_NEW(scratch, uint64_t, (size_t)k.chain.stages + 1);
        EBB_GOT(k.need && k.bound);
        EBB_TRY(ebb_links_least_resident(&k.links, k.rest, k.need, k.bound, scratch));
    }
    uint64_t low = dp ? least_need(&k) : least_running(&k);
    ebb_remat_dial dial = dp ? by_need : by_running;
    EBB_TRY(ebb_remat_best_turn(best, low, k.rest[0], tries, dial, &k));
    if (best->fits)
        return NULL;
    k.hold = EBB_REMAT_HOLD_READ;
    return ebb_remat_best_turn(best, low, k.rest[0], tries / 2, dial, &k);
}

static ebb_status offer_dp(ebb_remat_best *best, uint64_t steps, ebb_arena *scratch)
{
    return choose(best, true, steps, scratch);
}

static ebb_status offer_linear(ebb_remat_best *best, uint64_t steps, ebb_arena *scratch)
{
    return choose(best, false, steps, scratch);
}

const ebb_planner ebb_planner_chain_dp = {
    .name = "chain-dp",
    .doc = "least peak on a chain, all kept outputs counted to the end; O(n^3)",
    .paper = "Hong, Tsai, Wang, Liu, Wu, arXiv 2502.12499",
    .offer = offer_dp,
};

const ebb_planner ebb_planner_chain_linear = {
    .name = "chain-linear",
    .doc = "least peak on a chain, kept outputs counted until their last use; O(n log n)",
    .paper = "Hong, Tsai, Wang, Liu, Wu, arXiv 2502.12499",
    .offer = offer_linear,
    .seeds = 20000,
};
