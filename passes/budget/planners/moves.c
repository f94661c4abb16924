/* moves.c: evict, uproot, drop, ruin; and repairs made of them. */
#include "passes/budget/planners/moves.h"

#include <math.h>
#include <stdlib.h>

#include "onnx/words/mix.h"

enum { SHORTLIST = 32, TRIED = 6, ROOTS = 8, LONG = 5000, DEARER = 4 };

typedef struct candidate {
    uint32_t op, from, slot; /* make op's copy, unread since slot `from`, again in `slot` */
    double cost, benefit;    /* its own time; bytes over the budget, summed over slots */
    double score;            /* time per such byte, with all that must run with it */
} candidate;

static uint32_t draw_below(ebb_moves *f, size_t n)
{
    return (uint32_t)(ebb_draw(&f->random) % n);
}

/* ---- how far over the budget ---- */

static double refresh(ebb_moves *f)
{
    ebb_slots_profile(&f->s, f->peaks);
    f->s.work += f->s.slot_count / 8 + 1;
    for (uint32_t t = 0; t < f->s.slot_count; t++) {
        int64_t over = f->peaks[t] - f->budget;
        f->over[t + 1] = f->over[t] + (over > 0 ? (double)over : 0);
        f->over_count[t + 1] = f->over_count[t] + (over > 0);
    }
    return f->over[f->s.slot_count];
}

/* Of `bytes` taken out of slots first .. last, those that were over the budget. */
static double relief(const ebb_moves *f, uint64_t bytes, uint32_t first, uint32_t last)
{
    if (first > last)
        return 0;
    double all = (double)bytes * (f->over_count[last + 1] - f->over_count[first]);
    double there = f->over[last + 1] - f->over[first];
    return all < there ? all : there;
}

/* ---- what making a value again needs ---- */

/* What is added over the budget, summed over slots, if so many bytes live through them. */
static double burden(ebb_moves *f, uint64_t bytes, uint32_t first, uint32_t last)
{
    int64_t most = ebb_slots_most(&f->s, first, last) + (int64_t)bytes - f->budget;
    f->s.work += 2;
    if (most <= 0)
        return 0;
    double more = (double)bytes * (f->over_count[last + 1] - f->over_count[first]);
    return more > (double)most ? more : (double)most;
}

/* Fills closure[]: op and what must run with it in this slot. An input that is gone by then either
 * lives on, which takes from the benefit, or is made again, which takes time: whichever leaves the
 * better ratio. Returns time by byte; INFINITY where nothing is gained, or, since time only grows
 * and the benefit only shrinks, as soon as the ratio is above the limit. */
static double close_over(ebb_moves *f, uint32_t op, uint32_t slot, double benefit, double cost,
                         double limit)
{
    const ebb_remat_problem *p = f->p;
    f->stamp++;
    f->closure_count = 0;
    f->closure[f->closure_count++] = op;
    f->mark[op] = f->stamp;
    for (uint32_t i = 0; i < f->closure_count; i++) {
        const ebb_remat_op *o = &p->ops[f->closure[i]];
        f->s.work += 1 + o->in_count;
        if (cost > limit * benefit)
            return (double)INFINITY;
        for (uint32_t k = 0; k < o->in_count; k++) {
            uint32_t v = o->in[k], maker = p->values[v].op;
            uint32_t death = ebb_slots_death(&f->s, v, slot);
            if (death >= slot || (maker != EBB_REMAT_NONE && f->mark[maker] == f->stamp))
                continue;
            double more = burden(f, p->values[v].bytes, death + 1, slot);
            if (more <= 0)
                continue;
            bool may = maker != EBB_REMAT_NONE && ebb_slots_may(&f->s, maker, slot);
            double price = may ? p->ops[maker].cost_ns : INFINITY;
            if (more < benefit && (!may || cost * benefit <= (cost + price) * (benefit - more))) {
                benefit -= more;
                continue;
            }
            if (!may)
                return (double)INFINITY;
            cost += price;
            f->mark[maker] = f->stamp;
            f->closure[f->closure_count++] = maker;
        }
    }
    return cost / benefit;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void add_closure(ebb_moves *f, uint32_t slot)
{
    qsort(f->closure, f->closure_count, sizeof *f->closure, by_number);
    ebb_slots_hold(&f->s);
    for (uint32_t i = 0; i < f->closure_count; i++) {
        uint32_t op = f->closure[i];
        if (f->s.runs[op].slot[ebb_slots_run_at(&f->s, op, slot)] != slot)
            ebb_slots_add(&f->s, op, slot);
    }
    ebb_slots_settle(&f->s);
}

/* ---- evict ---- */

static bool is_tabu(const ebb_moves *f, uint32_t op, uint32_t slot)
{
    for (uint32_t i = 0; i < f->tabu_count; i++)
        if (f->tabu[i].op == op && f->tabu[i].slot == slot)
            return true;
    return false;
}

static void shortlist(candidate *list, uint32_t *count, candidate c)
{
    uint32_t at = *count;
    if (at == SHORTLIST && list[at - 1].score <= c.score)
        return;
    if (at < SHORTLIST)
        (*count)++;
    else
        at--;
    for (; at > 0 && list[at - 1].score > c.score; at--)
        list[at] = list[at - 1];
    list[at] = c;
}

/* Makes a candidate of what this operator made last, if that waits in the slot for a later read. */
static bool waits(ebb_moves *f, uint32_t u, uint32_t slot, candidate *c)
{
    const ebb_remat_op *o = &f->p->ops[u];
    uint32_t run = f->s.runs[u].count == 1 ? 0 : ebb_slots_run_at(&f->s, u, slot);
    uint64_t bytes = 0;
    f->s.work += 1;
    *c = (candidate){.op = u, .slot = UINT32_MAX};
    for (uint32_t k = 0; k < o->out_count; k++) {
        uint32_t v = o->out[k];
        if (f->s.runs[u].death[(size_t)run * o->out_count + k] <= slot)
            continue;
        uint32_t next = ebb_slots_next_read(&f->s, v, run, slot);
        uint32_t last = ebb_slots_last_read(&f->s, v, run, slot + 1);
        bytes += f->p->values[v].bytes;
        c->slot = next < c->slot ? next : c->slot;
        c->from = last > c->from ? last : c->from;
    }
    if (bytes == 0 || c->slot == UINT32_MAX || !ebb_slots_may(&f->s, u, c->slot))
        return false;
    c->benefit = relief(f, bytes, c->from < slot ? c->from + 1 : slot, c->slot - 1);
    bool moves = run > 0 && c->from == f->s.runs[u].slot[run] && c->from < slot;
    c->cost = moves ? 0 : o->cost_ns; // a repeat that nobody has read yet is only put off
    c->score = c->cost / c->benefit;
    return c->benefit > 0;
}

static uint32_t find_candidates(ebb_moves *f, uint32_t slot, double noise, candidate *list)
{
    uint32_t count = 0;
    candidate c;
    for (uint32_t u = 0; u < slot; u++) {
        if (f->p->ops[u].once || !waits(f, u, slot, &c) || is_tabu(f, u, c.slot))
            continue;
        if (noise > 0)
            c.score *= 1 + noise * (double)(ebb_draw(&f->random) >> 40) / (double)(1 << 24);
        shortlist(list, &count, c);
    }
    return count;
}

static void drop_if_unread(ebb_moves *f, uint32_t op, uint32_t slot)
{
    const ebb_remat_op *o = &f->p->ops[op];
    uint32_t run = ebb_slots_run_at(&f->s, op, slot);
    if (run == 0)
        return;
    for (uint32_t k = 0; k < o->out_count; k++)
        if (ebb_slots_next_read(&f->s, o->out[k], run, f->s.runs[op].slot[run] - 1) != UINT32_MAX)
            return;
    ebb_slots_drop(&f->s, op, f->s.runs[op].slot[run]);
}

static bool take(ebb_moves *f, const candidate *c)
{
    if (close_over(f, c->op, c->slot, c->benefit, c->cost, INFINITY) == (double)INFINITY)
        return false;
    add_closure(f, c->slot);
    drop_if_unread(f, c->op, c->slot - 1);
    return true;
}

/* ---- uproot: where the repeats of a slot themselves are too much ---- */

/* Drops the repeat of op in this slot, and what was repeated for it alone. */
static void uproot_one(ebb_moves *f, uint32_t op, uint32_t slot)
{
    ebb_slots_hold(&f->s);
    ebb_slots_drop(&f->s, op, slot);
    for (uint32_t i = f->s.lists[slot].count; i-- > 0;)
        if (i < f->s.lists[slot].count && f->s.lists[slot].op[i] != slot)
            drop_if_unread(f, f->s.lists[slot].op[i], slot);
    ebb_slots_settle(&f->s);
}

/* Which repeat in the slot is best left to live on from before? UINT32_MAX: there is none. */
static uint32_t find_root(ebb_moves *f, uint32_t slot, double *over)
{
    uint32_t count = f->s.lists[slot].count, best = UINT32_MAX;
    uint32_t stride = count / ROOTS + 1;
    *over = INFINITY;
    for (uint32_t i = draw_below(f, stride); i < count; i += stride) {
        uint32_t op = f->s.lists[slot].op[i];
        if (op == slot)
            continue;
        size_t log = f->s.log_count;
        uproot_one(f, op, slot);
        double now = refresh(f);
        ebb_slots_undo(&f->s, log);
        if (now < *over && !is_tabu(f, op, slot)) {
            *over = now;
            best = op;
        }
    }
    (void)refresh(f);
    return best;
}

/* ---- one step towards the budget ---- */

static void forbid(ebb_moves *f, uint32_t op, uint32_t slot)
{
    if (f->tabu_count < EBB_MOVES_TABU)
        f->tabu[f->tabu_count++] = (ebb_slots_change){op, slot, true};
}

/* The best of the short list by what it costs with all that it needs, best first. What nobody would
 * try is left at infinity. */
static uint32_t price_candidates(ebb_moves *f, candidate *list, uint32_t count)
{
    double bound = INFINITY;
    uint32_t priced = 0;
    bool many = f->p->op_count > LONG;
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].score > bound && i > 2 && !many) // the rest costs more unpriced
            break;
        candidate c = list[i];
        double limit = priced < TRIED ? (double)INFINITY : list[TRIED - 1].score;
        limit = many && limit < DEARER * bound ? DEARER * bound : limit;
        c.score = close_over(f, c.op, c.slot, c.benefit, c.cost, limit);
        bound = c.score < bound ? c.score : bound;
        uint32_t at = priced++;
        for (; at > 0 && list[at - 1].score > c.score; at--)
            list[at] = list[at - 1];
        list[at] = c;
    }
    return priced;
}

/* In long lists all of the short list at once: looking at every slot after each would take most of
 * the time. What is too much is dropped again when the level is polished. */
static bool take_all(ebb_moves *f, const candidate *list, uint32_t count, double *over)
{
    size_t log = f->s.log_count;
    for (uint32_t i = 0; i < count; i++) { // but not what has become dearer by those before it
        const candidate *c = &list[i];
        if (c->score <= DEARER * list[0].score &&
            close_over(f, c->op, c->slot, c->benefit, c->cost, INFINITY) <= 1.1 * c->score)
            (void)take(f, c);
    }
    double now = refresh(f);
    if (now < *over * (1 - 1e-12) - 0.5) {
        *over = now;
        return true;
    }
    ebb_slots_undo(&f->s, log);
    (void)refresh(f);
    return false;
}

/* Evicts at the fullest slot, or uproots there. *over: before and after. False: nothing helps. */
static bool step(ebb_moves *f, double noise, double *over, uint32_t *uphill)
{
    candidate list[SHORTLIST], best = {0};
    uint32_t slot = ebb_slots_peak_slot(&f->s);
    uint32_t count = price_candidates(f, list, find_candidates(f, slot, noise, list));
    double best_over = INFINITY, root_over;
    if (f->p->op_count > LONG && count > 1 && take_all(f, list, count, over))
        return true;
    for (uint32_t i = 0; i < count && i < TRIED; i++) {
        size_t log = f->s.log_count;
        if (!take(f, &list[i]))
            continue;
        double now = refresh(f);
        if (now < *over * (1 - 1e-12) - 0.5) {
            *over = now;
            return true;
        }
        ebb_slots_undo(&f->s, log);
        (void)refresh(f);
        if (now < best_over) {
            best_over = now;
            best = list[i];
        }
    }
    uint32_t root = find_root(f, slot, &root_over);
    bool down = root_over < *over * (1 - 1e-12) - 0.5;
    if (!down && (*uphill == 0 || (root_over > 3 * *over && best_over > 3 * *over)))
        return false;
    *uphill -= !down;
    if (root_over <= best_over) { // forbidding the way back
        uproot_one(f, root, slot);
        forbid(f, root, slot);
    } else {
        (void)take(f, &best);
        forbid(f, best.op, best.slot);
    }
    *over = refresh(f);
    return true;
}

/* Evicts until the budget holds. */
bool ebb_moves_repair(ebb_moves *f, double noise, double cost_limit, uint64_t work, uint32_t uphill)
{
    double over = refresh(f);
    uint64_t until = f->s.work + work;
    while (over > 0 && !f->s.failed) {
        if (f->s.cost_ns > cost_limit || f->s.work > until || !step(f, noise, &over, &uphill))
            return false;
    }
    return !f->s.failed;
}

/* ---- drop ---- */

static bool list_repeats(ebb_moves *f)
{
    f->repeat_count = 0;
    for (uint32_t t = 0; t < f->s.slot_count; t++)
        for (uint32_t i = 0; i < f->s.lists[t].count; i++) {
            uint32_t op = f->s.lists[t].op[i];
            if (op == t)
                continue;
            if (!ebb_arena_grow(f->arena, &f->repeats, f->repeat_count, &f->repeat_capacity,
                                sizeof *f->repeats))
                return false;
            f->repeats[f->repeat_count++] = (ebb_moves_repeat){op, t, f->p->ops[op].cost_ns};
        }
    return true;
}

static bool is_there(const ebb_moves *f, ebb_moves_repeat c)
{
    uint32_t run = ebb_slots_run_at(&f->s, c.op, c.slot);
    return run > 0 && f->s.runs[c.op].slot[run] == c.slot;
}

static bool try_drop(ebb_moves *f, ebb_moves_repeat c)
{
    size_t log = f->s.log_count;
    if (!is_there(f, c))
        return false;
    if (f->p->op_count > EBB_REMAT_MANY && ebb_slots_misses(&f->s, c.op, c.slot, f->budget)) {
        f->s.work += 4 + f->p->ops[c.op].in_count;
        return false;
    }
    ebb_slots_drop(&f->s, c.op, c.slot);
    if (ebb_slots_peak(&f->s) <= f->budget)
        return true;
    ebb_slots_undo(&f->s, log);
    return false;
}

static int dearest_first(const void *a, const void *b)
{
    const ebb_moves_repeat *x = a, *y = b;
    if (x->cost_ns != y->cost_ns)
        return x->cost_ns > y->cost_ns ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot > y->slot ? 1 : -1;
    return (x->op > y->op) - (x->op < y->op);
}

/* Takes away what the budget has room for, dearest first, until nothing more goes. */
void ebb_moves_polish(ebb_moves *f, uint64_t work)
{
    uint64_t until = f->s.work + work;
    for (int round = 0; round < 4; round++) {
        (void)ebb_slots_prune(&f->s);
        size_t gone = 0;
        if (!list_repeats(f))
            return;
        if (f->repeat_count > 0)
            qsort(f->repeats, f->repeat_count, sizeof *f->repeats, dearest_first);
        for (size_t i = 0; i < f->repeat_count && f->s.work < until; i++)
            gone += try_drop(f, f->repeats[i]);
        if (gone == 0 || f->s.work >= until)
            return;
    }
}

/* ---- ruin ---- */

/* Drops one execution and a few of its neighbours in slot or operator; they may not simply return.
 */
static void ruin(ebb_moves *f)
{
    ebb_moves_repeat c = f->repeats[draw_below(f, f->repeat_count)];
    uint32_t wanted = 1 + draw_below(f, 4), dropped = 0;
    uint32_t near = draw_below(f, 3); // same slot, same operator, or around both
    for (size_t i = 0; i < f->repeat_count && dropped < wanted; i++) {
        ebb_moves_repeat r = f->repeats[(i + c.op) % f->repeat_count];
        bool close = near == 0 ? r.slot == c.slot
                     : near == 1
                         ? r.op == c.op
                         : abs((int)r.slot - (int)c.slot) < 8 && abs((int)r.op - (int)c.op) < 8;
        if (i == 0)
            r = c;
        else if (!close)
            continue;
        if (!is_there(f, r))
            continue;
        ebb_slots_drop(&f->s, r.op, r.slot);
        if (draw_below(f, 4) != 0)
            forbid(f, r.op, r.slot);
        dropped++;
    }
}

/* Ruins and repairs until the work is used up; keeps what is not dearer. */
void ebb_moves_improve(ebb_moves *f, uint64_t work)
{
    uint64_t until = f->s.work + work;
    if (!list_repeats(f))
        return;
    while (f->s.work < until && f->repeat_count > 0 && !f->s.failed) {
        double cost = f->s.cost_ns;
        size_t log = f->s.log_count;
        f->tabu_count = 0;
        ruin(f);
        bool fits = ebb_moves_repair(f, 0.5, cost * 1.02, work / 20 + 1000, 2);
        f->tabu_count = 0;
        if (fits) {
            (void)ebb_slots_prune(&f->s);
            for (int i = 0; i < 12; i++)
                (void)try_drop(f, f->repeats[draw_below(f, f->repeat_count)]);
            for (size_t i = f->s.log_count; i-- > log;) { // what was put in may not be needed
                ebb_slots_change c = f->s.log[i];
                if (c.added)
                    (void)try_drop(f, (ebb_moves_repeat){c.op, c.slot, 0});
            }
        }
        if (!fits || f->s.cost_ns > cost * (1 + 1e-12)) {
            ebb_slots_undo(&f->s, log);
            continue;
        }
        f->s.log_count = 0;
        if (!list_repeats(f))
            return;
    }
    (void)ebb_slots_prune(&f->s);
}

ebb_status ebb_moves_make(ebb_moves *f, uint32_t op_count, ebb_arena *arena)
{
    size_t slots = (size_t)op_count + 1;
    *f = (ebb_moves){.arena = arena, .random = 1};
    f->peaks = EBB_NEW(arena, int64_t, slots);
    f->over = EBB_NEW(arena, double, slots + 1);
    f->over_count = EBB_NEW(arena, uint32_t, slots + 1);
    f->mark = EBB_NEW(arena, uint32_t, slots);
    f->closure = EBB_NEW(arena, uint32_t, slots);
    EBB_GOT(f->peaks && f->over && f->over_count && f->mark && f->closure);
    return NULL;
}
