/* contest.c: bytes saved for time added. */
#include "passes/budget/contest.h"

#include "exec/weigh/estimate.h"

ebb_status ebb_contest_init(ebb_contest *c, const ebb_graph *g, const ebb_pass *const *entrants,
                            size_t count, ebb_arena *arena)
{
    *c = (ebb_contest){.entrants = entrants, .count = count, .keep = arena};
    c->copy_ns = ebb_copy_ns(g);
    c->value_count = g->value_count;
    c->claims = EBB_NEW(arena, ebb_claim, c->value_count + 1);
    c->lost_to = (const char **)ebb_arena_zeroed(arena, count + 1, sizeof *c->lost_to);
    return c->claims != NULL && c->lost_to != NULL ? NULL : ebb_error_memory();
}

/* Bytes for nanoseconds. What costs less than a hundredth of a copy of the bytes is as good as
 * free: among such offers the larger saving counts. */
static double worth_of(const ebb_contest *c, const ebb_offer *offer)
{
    double saved = (double)offer->saved_bytes;
    double free_ns = saved * c->copy_ns / 100;
    if (offer->added_ns > free_ns)
        return saved / offer->added_ns;
    return saved / (free_ns > 0 ? free_ns : 1) * (1 + saved * 1e-15);
}

const char *ebb_contest_hear(void *contest, const ebb_pass *pass, ebb_node site,
                             const ebb_offer *offer)
{
    ebb_contest *c = contest;
    (void)pass;
    (void)site;
    double worth = worth_of(c, offer);
    if (offer->value.i != 0 && offer->value.i < c->value_count && offer->saved_bytes > 0) {
        ebb_claim *best = &c->claims[offer->value.i];
        if (best->entrant == 0 || worth > best->worth)
            *best = (ebb_claim){worth, c->now + 1};
    }
    return "heard";
}

const char *ebb_contest_judge(void *contest, const ebb_pass *pass, ebb_node site,
                              const ebb_offer *offer)
{
    ebb_contest *c = contest;
    (void)pass;
    (void)site;
    size_t best = offer->value.i < c->value_count ? c->claims[offer->value.i].entrant : 0;
    if (best == 0 || best - 1 <= c->now) // nobody else, or one who has had the chance
        return NULL;
    c->refused++;
    if (c->lost_to[best - 1] == NULL)
        c->lost_to[best - 1] = ebb_arena_printf(c->keep, "%s saves more of its tensor for the time",
                                                c->entrants[best - 1]->name);
    return c->lost_to[best - 1] != NULL ? c->lost_to[best - 1]
                                        : "another pass saves more of its tensor for the time";
}
