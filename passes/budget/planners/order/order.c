/* order.c: the list order that needs the least memory, as far as it can be found.
 *
 *   before   a b | big(a) | c(b) d(c) | e(big)      big waits while c and d run
 *   after    a b c(b) d(c) big(a) e(big)
 *
 * Ordering for the least peak is NP-hard, so this is a search, begun at list order and at two made
 * from nothing. All of it attacks the present peak: the operator there gets the state before it
 * that has the least alive, which is a minimum cut (order_cut.c); the stretch around it is ordered
 * by dynamic programming (order_window.c); all operators sink towards who reads them, or rise
 * towards what they free, where that leaves less alive. A cut that only moves the peak elsewhere is
 * followed for a few steps. Where the operator at the peak already runs in its least state, no
 * order is better, and the search is over. At the end the same windows slide over the whole order
 * for less area below the peak.
 *
 * An order that comes out is put in again until it does not get lower, so that a second call has
 * nothing to find. Up to 64 operators the windows see it all, and find the optimum where it is
 * within the steps.
 *
 * Exact: nothing but positions changes.
 *
 * Papers: Ahn et al., MLSys 2020 (the dynamic programme); Liu, "An application of generalized tree
 * pebbling to sparse matrix factorization", 1987 (states of least memory bound the orders).
 */
#include <string.h>

#include "passes/budget/planners/order/order.h"

enum {
    TOUCHES = 256, /* things touched in a step of about a microsecond */
    CHAIN = 10,    /* steps for which a worse order is followed */
    ROUNDS = 12,   /* how often a result is put in again */
    FAR = UINT32_MAX,
};

typedef struct search {
    ebb_order o;
    uint32_t *seq; /* the order that is worked on */
    ebb_order_weight w;
    uint32_t *next, *trial, *spare;
    bool *small, *large;
    bool proven; /* no order has a lower peak */
} search;

static void copy(const search *s, uint32_t *to, const uint32_t *from)
{
    memcpy(to, from, s->o.n * sizeof *to);
}

/* Takes `next` where it is better. */
static bool take(search *s, uint32_t *next)
{
    ebb_order_weight w = ebb_order_weigh(&s->o, next);
    if (!ebb_order_better(&w, &s->w))
        return false;
    copy(s, s->seq, next);
    s->w = w;
    return true;
}

/* ---- the state at the peak ---- */

/* into: what is before seq[at] by the cut, seq[at], the rest. */
static void split(search *s, const uint32_t *seq, uint32_t at, const bool *before, uint32_t *into)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->o.n; i++)
        if (before[seq[i]])
            into[count++] = seq[i];
    into[count++] = seq[at];
    for (uint32_t i = 0; i < s->o.n; i++)
        if (!before[seq[i]] && i != at)
            into[count++] = seq[i];
    s->o.work += s->o.n;
}

/* into: seq with the operator at the peak in its least state, the better of two ways. Needs seq to
 * be the order weighed last, with weight w. */
static ebb_status cut(search *s, const uint32_t *seq, const ebb_order_weight *w, uint32_t reach,
                      uint32_t *into, ebb_order_weight *weight, bool *found)
{
    EBB_TRY(ebb_order_cut(&s->o, seq, w->at, reach, s->small, s->large, found));
    if (!*found) // the peak before the first operator runs is that of the inputs
        return NULL;
    uint32_t u = seq[w->at];
    split(s, seq, w->at, s->small, into);
    *weight = ebb_order_weigh(&s->o, into);
    uint64_t least = s->o.live[s->o.position[u]];
    split(s, seq, w->at, s->large, s->spare);
    ebb_order_weight other = ebb_order_weigh(&s->o, s->spare);
    if (s->o.live[s->o.position[u]] < least)
        least = s->o.live[s->o.position[u]];
    if (ebb_order_better(&other, weight)) {
        copy(s, into, s->spare);
        *weight = other;
    }
    if (reach == FAR && s->o.p->ops[u].over_count == 0 && least >= s->w.peak)
        s->proven = true;
    return NULL;
}

/* Follows cuts from the present order, also where the peak only moves. */
static ebb_status follow_cuts(search *s, uint32_t reach, bool *better)
{
    copy(s, s->trial, s->seq);
    ebb_order_weight w = ebb_order_weigh(&s->o, s->trial);
    *better = false;
    for (int i = 0; i < CHAIN && !*better && !s->proven && !ebb_order_spent(&s->o); i++) {
        bool found = false, changed = false;
        ebb_order_weight next;
        EBB_TRY(cut(s, s->trial, &w, reach, s->next, &next, &found));
        if (!found || memcmp(s->trial, s->next, s->o.n * sizeof *s->next) == 0)
            return NULL;
        copy(s, s->trial, s->next);
        w = ebb_order_weigh(&s->o, s->trial);
        if (!ebb_order_better(&w, &s->w) && s->o.n > 1) { // help where the peak has gone to
            uint32_t count = s->o.n < 24 ? s->o.n : 24;
            uint32_t from = w.at > count / 2 ? w.at - count / 2 : 0;
            from = from + count > s->o.n ? s->o.n - count : from;
            EBB_TRY(
                ebb_order_window(&s->o, s->trial, from, count, s->w.peak - 1, 32, &changed, NULL));
            w = ebb_order_weigh(&s->o, s->trial);
        }
        if (ebb_order_better(&w, &s->w)) {
            copy(s, s->seq, s->trial);
            s->w = w;
            *better = true;
        }
    }
    return NULL;
}

/* ---- the stretch around the peak ---- */

static ebb_status window(search *s, uint32_t count, uint32_t width, bool *better)
{
    static const uint32_t before[] = {2, 4, 1}; /* quarters of the stretch before the peak */
    *better = false;
    count = count < s->o.n ? count : s->o.n;
    for (size_t k = 0; k < sizeof before / sizeof *before && !*better; k++) {
        uint32_t behind = count / 4 * before[k];
        uint32_t from = s->w.at > behind ? s->w.at - behind : 0;
        from = from + count > s->o.n ? s->o.n - count : from;
        bool changed;
        (void)ebb_order_weigh(&s->o, s->seq);
        copy(s, s->next, s->seq);
        EBB_TRY(ebb_order_window(&s->o, s->next, from, count, 0, width, &changed, NULL));
        *better = changed && take(s, s->next);
    }
    return NULL;
}

static bool sweep(search *s)
{
    (void)ebb_order_weigh(&s->o, s->seq);
    ebb_order_sink(&s->o, s->seq, s->next);
    if (take(s, s->next))
        return true;
    (void)ebb_order_weigh(&s->o, s->seq);
    ebb_order_rise(&s->o, s->seq, s->next);
    return take(s, s->next);
}

/* ---- the search ---- */

static ebb_status descend(search *s)
{
    bool better = true;
    while (better && !s->proven && !ebb_order_spent(&s->o)) {
        better = sweep(s);
        if (!better)
            EBB_TRY(window(s, 12, 64, &better));
        if (!better)
            EBB_TRY(follow_cuts(s, FAR, &better));
        if (!better && s->o.n > 400)
            EBB_TRY(follow_cuts(s, 200, &better));
        if (!better && !s->proven)
            EBB_TRY(window(s, EBB_ORDER_WINDOW, 128, &better));
    }
    return NULL;
}

/* Less area, at the same peak or below. */
static ebb_status polish(search *s)
{
    enum { COUNT = 16, STRIDE = 8, WIDTH = 16 };
    uint64_t start = s->o.work;
    while (sweep(s) && !ebb_order_spent(&s->o) && s->o.work - start < s->o.limit / 4)
        ;
    if (s->o.n < COUNT)
        return NULL;
    (void)ebb_order_weigh(&s->o, s->seq);
    copy(s, s->next, s->seq);
    for (uint32_t from = 0; from + COUNT <= s->o.n && !ebb_order_spent(&s->o); from += STRIDE) {
        bool changed;
        EBB_TRY(ebb_order_window(&s->o, s->next, from, COUNT, s->w.peak, WIDTH, &changed, NULL));
    }
    (void)take(s, s->next);
    return NULL;
}

/* The optimum, where the whole is a window and not too wide. */
static ebb_status solve(search *s, bool *solved)
{
    *solved = false;
    if (s->o.n > EBB_ORDER_WINDOW || s->o.n == 0)
        return NULL;
    bool changed;
    (void)ebb_order_weigh(&s->o, s->seq);
    copy(s, s->next, s->seq);
    EBB_TRY(ebb_order_window(&s->o, s->next, 0, s->o.n, 0, s->o.n <= 16 ? 1024 : 4096, &changed,
                             solved));
    if (changed)
        (void)take(s, s->next);
    return NULL;
}

/* From s->seq to something at least as good. */
static ebb_status improve(search *s, uint64_t steps, uint32_t *given, uint32_t *found)
{
    uint64_t whole = steps < UINT64_MAX / (2 * TOUCHES) ? steps * TOUCHES : UINT64_MAX / 2;
    bool solved;
    s->o.work = 0;
    s->o.limit = whole / 2;
    s->proven = false;
    s->w = ebb_order_weigh(&s->o, s->seq);
    EBB_TRY(solve(s, &solved));
    if (solved)
        return NULL;
    copy(s, given, s->seq);
    EBB_TRY(descend(s));
    for (int forwards = 0; forwards < 2 && !s->proven; forwards++) {
        ebb_order_weight w = s->w;
        copy(s, found, s->seq);
        s->o.limit = whole / 2 + whole / 8 * (1 + (uint64_t)forwards);
        (void)ebb_order_weigh(&s->o, given);
        EBB_TRY(ebb_order_greedy(&s->o, forwards != 0, s->seq));
        s->w = ebb_order_weigh(&s->o, s->seq);
        if (s->w.peak < w.peak + w.peak / 2)
            EBB_TRY(descend(s));
        if (ebb_order_better(&w, &s->w)) {
            copy(s, s->seq, found);
            s->w = w;
        }
    }
    s->o.limit = whole;
    return polish(s);
}

/* Puts the result in again until it gets no lower. best: an order from which none was found; where
 * not even the order given got lower, one with less area. */
static ebb_status settle(search *s, uint64_t steps, uint32_t *best, ebb_arena *scratch)
{
    uint32_t *given = EBB_NEW(scratch, uint32_t, (size_t)s->o.n + 1);
    uint32_t *found = EBB_NEW(scratch, uint32_t, (size_t)s->o.n + 1);
    EBB_GOT(given && found);
    ebb_order_weight w = ebb_order_weigh(&s->o, best);
    copy(s, s->seq, best);
    for (int round = 0; round < ROUNDS; round++) {
        EBB_TRY(improve(s, steps / 4 + 1, given, found));
        bool lower = s->w.peak < w.peak;
        if (lower || (round == 0 && ebb_order_better(&s->w, &w)))
            copy(s, best, s->seq);
        if (!lower)
            break;
        w = s->w;
    }
    return NULL;
}

ebb_status ebb_remat_order(ebb_remat_schedule *order, const ebb_remat_problem *problem,
                           uint64_t steps, ebb_arena *arena)
{
    EBB_LOCAL_ARENA(scratch);
    if (problem->moves)
        return ebb_remat_keep_all(order, problem, arena);
    search s = {0};
    size_t n = (size_t)problem->op_count + 1;
    uint32_t *best = EBB_NEW(arena, uint32_t, n);
    EBB_TRY(ebb_order_init(&s.o, problem, scratch));
    s.seq = EBB_NEW(scratch, uint32_t, n);
    s.next = EBB_NEW(scratch, uint32_t, n);
    s.trial = EBB_NEW(scratch, uint32_t, n);
    s.spare = EBB_NEW(scratch, uint32_t, n);
    s.small = EBB_NEW(scratch, bool, n);
    s.large = EBB_NEW(scratch, bool, n);
    EBB_GOT(best && s.seq && s.next && s.trial && s.spare && s.small && s.large);
    for (uint32_t i = 0; i < problem->op_count; i++)
        best[i] = i;
    if (problem->op_count > 1)
        EBB_TRY(settle(&s, steps, best, scratch));
    *order = (ebb_remat_schedule){best, problem->op_count};
    return NULL;
}
