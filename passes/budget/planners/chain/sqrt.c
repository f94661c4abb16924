/* sqrt: segments of equal weight, their ends kept, the inside made again when the backward comes.
 *
 *   forward    a  b [c] d  e [f] g  h  i      [kept]
 *   backward   i h g | d e -> e d | a b -> b a         each segment once more, but for the last
 *
 * With sqrt(n) segments of sqrt(n) stages the memory is of order sqrt(n), for less than one more
 * forward. Here segments weigh the same by what their stages would save, several numbers of them
 * are tried on the true problem, and the cheapest that fits is taken.
 *
 * Paper: Chen et al., 2016.
 */
#include "passes/budget/planners/chain/chain.h"

enum { MOST_STAGES = 1 << 16, MOST_TRIES = 64 };

static ebb_status offer(ebb_remat_best *best, const ebb_chain *c, uint32_t segments,
                        ebb_remat_hold hold, ebb_arena *scratch)
{
    bool *enters = EBB_NEW(scratch, bool, (size_t)c->stages + 1);
    bool *kept = EBB_NEW(scratch, bool, (size_t)c->problem->value_count + 1);
    EBB_GOT(enters && kept);
    double total = 0, sum = 0;
    for (uint32_t s = 0; s < c->stages; s++)
        total += (double)c->saved[s];
    uint32_t last = 0, made = 1;
    for (uint32_t s = 1; s < c->stages; s++) {
        sum += (double)c->saved[s - 1];
        if (sum * segments < total * made)
            continue;
        while (sum * segments >= total * made && made < segments)
            made++;
        enters[s] = true;
        last = s;
        if (sum * segments >= total * made)
            break;
    }
    EBB_TRY(ebb_chain_keep(c, enters, last, kept));
    ebb_remat_schedule schedule;
    EBB_TRY(ebb_remat_from_kept(&schedule, c->problem, kept, hold, scratch));
    return ebb_remat_best_offer(best, &schedule, NULL);
}

static ebb_status try_hold(ebb_remat_best *best, const ebb_chain *c, uint32_t tries,
                           ebb_remat_hold hold)
{
    double factor = 1;
    uint32_t segments = 1;
    while (segments < c->stages && tries-- > 0) {
        EBB_LOCAL_ARENA(scratch);
        segments = segments + 1 > (uint32_t)factor ? segments + 1 : (uint32_t)factor;
        factor = segments * 1.08;
        segments = segments < c->stages ? segments : c->stages;
        EBB_TRY(offer(best, c, segments, hold, scratch));
    }
    return NULL;
}

static ebb_status offer_all(ebb_remat_best *best, uint64_t steps, ebb_arena *scratch)
{
    ebb_chain chain;
    uint32_t tries = ebb_remat_tries(best->problem, steps, MOST_TRIES);
    EBB_TRY(ebb_chain_make(&chain, best->problem, MOST_STAGES, scratch));
    EBB_TRY(try_hold(best, &chain, tries, EBB_REMAT_HOLD));
    return best->fits ? NULL : try_hold(best, &chain, tries / 2, EBB_REMAT_HOLD_READ);
}

const ebb_planner ebb_planner_sqrt = {
    .name = "sqrt",
    .doc = "segments of equal bytes, as many as needed; each is made again once",
    .paper = "Chen, Xu, Zhang, Guestrin, \"Training deep nets with sublinear memory cost\", 2016",
    .offer = offer_all,
};
