/* search: local search over the true peak, level by level.
 *
 * A state is a set of executions (slots.h). Four moves:
 *
 *   evict    at the fullest slot, take a value that waits there and make it again where it is read
 *            next, with all that this needs and is not there; the best ratio of time to bytes over
 *            the budget goes first
 *   drop     take an execution away: readers use the copy before it, which lives longer
 *   ruin     drop a few executions at random, and evict anew until the budget holds
 *   seed     start from another planner's schedule where that is cheaper
 *
 * The budget is lowered a hundredth at a time, each level starting from the one above; at the end
 * the levels are walked upwards, since a schedule for less is one for more that may have slack.
 *
 * Random numbers come from a fixed seed and work is counted, so the result is the same everywhere.
 */
#include "passes/planners/search.h"

#include <math.h>
#include <stdlib.h>

#include "passes/planners/slots.h"

/* Work units of slots.h in a microsecond, measured. */
static const uint64_t units_per_step = 40;

enum { SHORTLIST = 24, TRIED = 6, TABU = 64, ROOTS = 8, SEED_EVERY = 5, LEVELS = 100 };

typedef struct candidate {
    uint32_t op, from, slot; /* make op's copy, unread since slot `from`, again in `slot` */
    double cost, benefit;    /* its own time; bytes over the budget, summed over slots */
    double score;            /* time per such byte, with all that must run with it */
} candidate;

typedef struct repeat {
    uint32_t op, slot;
    double cost_ns;
} repeat;

typedef struct searcher {
    const ebb_remat_problem *whole; /* as it was given */
    ebb_remat_problem permuted;     /* the same, numbered in the order of first executions */
    const ebb_remat_problem *p;     /* &permuted */
    uint32_t *original;             /* its operators in the numbers of `whole` */
    uint32_t *place;                /* and back */
    ebb_arena *arena;
    ebb_arena state; /* the slots' */
    ebb_slots s;
    int64_t budget;
    int64_t *peaks;       /* by slot */
    double *over;         /* prefix sums of bytes over the budget */
    uint32_t *over_count; /* prefix counts of slots over the budget */
    uint32_t *mark, stamp;
    uint32_t *closure, closure_count;
    ebb_slots_change tabu[TABU]; /* executions not to be added again in this repair */
    uint32_t tabu_count;
    repeat *repeats; /* those that are there, listed anew when asked */
    size_t repeat_count, repeat_capacity;
    uint64_t random;
} searcher;

static uint64_t draw(searcher *f) /* splitmix64 */
{
    uint64_t x = f->random += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static uint32_t draw_below(searcher *f, size_t n)
{
    return (uint32_t)(draw(f) % n);
}

/* ---- how far over the budget ---- */

static double refresh(searcher *f)
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
static double relief(const searcher *f, uint64_t bytes, uint32_t first, uint32_t last)
{
    if (first > last)
        return 0;
    double all = (double)bytes * (f->over_count[last + 1] - f->over_count[first]);
    double there = f->over[last + 1] - f->over[first];
    return all < there ? all : there;
}

/* ---- what making a value again needs ---- */

/* What is added over the budget, summed over slots, if so many bytes live through them. */
static double burden(searcher *f, uint64_t bytes, uint32_t first, uint32_t last)
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
 * better ratio. Returns time by byte; INFINITY where nothing is gained. */
static double close_over(searcher *f, uint32_t op, uint32_t slot, double benefit, double cost)
{
    const ebb_remat_problem *p = f->p;
    f->stamp++;
    f->closure_count = 0;
    f->closure[f->closure_count++] = op;
    f->mark[op] = f->stamp;
    for (uint32_t i = 0; i < f->closure_count; i++) {
        const ebb_remat_op *o = &p->ops[f->closure[i]];
        f->s.work += 1 + o->in_count;
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

static void add_closure(searcher *f, uint32_t slot)
{
    qsort(f->closure, f->closure_count, sizeof *f->closure, by_number);
    for (uint32_t i = 0; i < f->closure_count; i++) {
        uint32_t op = f->closure[i];
        if (f->s.runs[op].slot[ebb_slots_run_at(&f->s, op, slot)] != slot)
            ebb_slots_add(&f->s, op, slot);
    }
}

/* ---- evict ---- */

static bool is_tabu(const searcher *f, uint32_t op, uint32_t slot)
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
static bool waits(searcher *f, uint32_t u, uint32_t slot, candidate *c)
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

static uint32_t find_candidates(searcher *f, uint32_t slot, double noise, candidate *list)
{
    uint32_t count = 0;
    candidate c;
    for (uint32_t u = 0; u < slot; u++) {
        if (f->p->ops[u].once || !waits(f, u, slot, &c) || is_tabu(f, u, c.slot))
            continue;
        if (noise > 0)
            c.score *= 1 + noise * (double)(draw(f) >> 40) / (double)(1 << 24);
        shortlist(list, &count, c);
    }
    return count;
}

static void drop_if_unread(searcher *f, uint32_t op, uint32_t slot)
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

static bool take(searcher *f, const candidate *c)
{
    if (close_over(f, c->op, c->slot, c->benefit, c->cost) == (double)INFINITY)
        return false;
    add_closure(f, c->slot);
    drop_if_unread(f, c->op, c->slot - 1);
    return true;
}

/* ---- uproot: where the repeats of a slot themselves are too much ---- */

/* Drops the repeat of op in this slot, and what was repeated for it alone. */
static void uproot_one(searcher *f, uint32_t op, uint32_t slot)
{
    ebb_slots_drop(&f->s, op, slot);
    for (uint32_t i = f->s.lists[slot].count; i-- > 0;)
        if (i < f->s.lists[slot].count && f->s.lists[slot].op[i] != slot)
            drop_if_unread(f, f->s.lists[slot].op[i], slot);
}

/* Which repeat in the slot is best left to live on from before? UINT32_MAX: there is none. */
static uint32_t find_root(searcher *f, uint32_t slot, double *over)
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

static void forbid(searcher *f, uint32_t op, uint32_t slot)
{
    if (f->tabu_count < TABU)
        f->tabu[f->tabu_count++] = (ebb_slots_change){op, slot, true};
}

/* The best of the short list by what it costs with all that it needs, best first. */
static uint32_t price_candidates(searcher *f, candidate *list, uint32_t count)
{
    double bound = INFINITY;
    uint32_t priced = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].score > bound && i > 2) // what follows costs more even before it is priced
            break;
        candidate c = list[i];
        c.score = close_over(f, c.op, c.slot, c.benefit, c.cost);
        bound = c.score < bound ? c.score : bound;
        uint32_t at = priced++;
        for (; at > 0 && list[at - 1].score > c.score; at--)
            list[at] = list[at - 1];
        list[at] = c;
    }
    return priced;
}

/* Evicts at the fullest slot, or uproots there. *over: before and after. False: nothing helps. */
static bool step(searcher *f, double noise, double *over, uint32_t *uphill)
{
    candidate list[SHORTLIST], best = {0};
    uint32_t slot = ebb_slots_peak_slot(&f->s);
    uint32_t count = price_candidates(f, list, find_candidates(f, slot, noise, list));
    double best_over = INFINITY, root_over;
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
static bool repair(searcher *f, double noise, double cost_limit, uint64_t work, uint32_t uphill)
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

static bool list_repeats(searcher *f)
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
            f->repeats[f->repeat_count++] = (repeat){op, t, f->p->ops[op].cost_ns};
        }
    return true;
}

static bool is_there(const searcher *f, repeat c)
{
    uint32_t run = ebb_slots_run_at(&f->s, c.op, c.slot);
    return run > 0 && f->s.runs[c.op].slot[run] == c.slot;
}

static bool try_drop(searcher *f, repeat c)
{
    size_t log = f->s.log_count;
    if (!is_there(f, c))
        return false;
    ebb_slots_drop(&f->s, c.op, c.slot);
    if (ebb_slots_peak(&f->s) <= f->budget)
        return true;
    ebb_slots_undo(&f->s, log);
    return false;
}

static int dearest_first(const void *a, const void *b)
{
    const repeat *x = a, *y = b;
    if (x->cost_ns != y->cost_ns)
        return x->cost_ns > y->cost_ns ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot > y->slot ? 1 : -1;
    return (x->op > y->op) - (x->op < y->op);
}

/* Takes away what the budget has room for, dearest first, until nothing more goes. */
static void polish(searcher *f)
{
    for (int round = 0; round < 4; round++) {
        (void)ebb_slots_prune(&f->s);
        size_t gone = 0;
        if (!list_repeats(f))
            return;
        qsort(f->repeats, f->repeat_count, sizeof *f->repeats, dearest_first);
        for (size_t i = 0; i < f->repeat_count; i++)
            gone += try_drop(f, f->repeats[i]);
        if (gone == 0)
            return;
    }
}

/* ---- ruin ---- */

/* Drops one execution and a few of its neighbours in slot or operator; they may not simply return.
 */
static void ruin(searcher *f)
{
    repeat c = f->repeats[draw_below(f, f->repeat_count)];
    uint32_t wanted = 1 + draw_below(f, 4), dropped = 0;
    uint32_t near = draw_below(f, 3); // same slot, same operator, or around both
    for (size_t i = 0; i < f->repeat_count && dropped < wanted; i++) {
        repeat r = f->repeats[(i + c.op) % f->repeat_count];
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
static void improve(searcher *f, uint64_t work)
{
    uint64_t until = f->s.work + work;
    if (!list_repeats(f))
        return;
    while (f->s.work < until && f->repeat_count > 0 && !f->s.failed) {
        double cost = f->s.cost_ns;
        size_t log = f->s.log_count;
        f->tabu_count = 0;
        ruin(f);
        bool fits = repair(f, 0.5, cost * 1.02, work / 20 + 1000, 2);
        f->tabu_count = 0;
        if (fits) {
            (void)ebb_slots_prune(&f->s);
            for (int i = 0; i < 12; i++)
                (void)try_drop(f, f->repeats[draw_below(f, f->repeat_count)]);
            for (size_t i = f->s.log_count; i-- > log;) { // what was put in may not be needed
                ebb_slots_change c = f->s.log[i];
                if (c.added)
                    (void)try_drop(f, (repeat){c.op, c.slot, 0});
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

/* ---- levels ---- */

typedef struct level {
    int64_t budget;
    ebb_remat_point point; /* schedule.ops NULL: none found */
} level;

static ebb_status start(searcher *f)
{
    uint64_t work = f->s.work;
    ebb_arena_fini(&f->state);
    EBB_TRY(ebb_slots_make(&f->s, f->p, &f->state));
    f->s.work += work;
    return NULL;
}

/* First executions stand in this order from now on; keeps everything. */
static ebb_status set_order(searcher *f, const uint32_t *order)
{
    ebb_remat_schedule as_list = {order, f->whole->op_count};
    for (uint32_t i = 0; i < f->whole->op_count; i++) {
        f->original[i] = order[i];
        f->place[order[i]] = i;
    }
    EBB_TRY(ebb_remat_permute(&f->permuted, f->whole, &as_list, f->arena));
    return start(f);
}

static ebb_status make_searcher(searcher *f, const ebb_remat_problem *whole,
                                const ebb_remat_schedule *order, ebb_arena *arena)
{
    *f = (searcher){.whole = whole, .arena = arena, .random = 1};
    f->p = &f->permuted;
    size_t slots = (size_t)whole->op_count + 1;
    f->peaks = EBB_NEW(arena, int64_t, slots);
    f->over = EBB_NEW(arena, double, slots + 1);
    f->over_count = EBB_NEW(arena, uint32_t, slots + 1);
    f->mark = EBB_NEW(arena, uint32_t, slots);
    f->closure = EBB_NEW(arena, uint32_t, slots);
    f->original = EBB_NEW(arena, uint32_t, slots);
    f->place = EBB_NEW(arena, uint32_t, slots);
    if (f->peaks == NULL || f->over == NULL || f->over_count == NULL || f->mark == NULL ||
        f->closure == NULL || f->original == NULL || f->place == NULL)
        return ebb_error_memory();
    return set_order(f, order->ops);
}

/* The state as a schedule of the whole problem. */
static ebb_status write_down(searcher *f, ebb_remat_schedule *schedule)
{
    EBB_TRY(ebb_slots_schedule(&f->s, schedule, f->arena));
    uint32_t *ops = EBB_NEW(f->arena, uint32_t, schedule->count + 1);
    if (ops == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < schedule->count; i++)
        ops[i] = f->original[schedule->ops[i]];
    schedule->ops = ops;
    return NULL;
}

/* The state becomes this schedule of the whole problem, in its order of first executions. */
static ebb_status load(searcher *f, const ebb_remat_schedule *schedule)
{
    uint32_t *order = EBB_NEW(f->arena, uint32_t, (size_t)f->whole->op_count + 1);
    bool *seen = EBB_NEW(f->arena, bool, (size_t)f->whole->op_count + 1);
    uint32_t *ops = EBB_NEW(f->arena, uint32_t, schedule->count + 1);
    uint32_t count = 0;
    if (order == NULL || seen == NULL || ops == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < schedule->count; i++) {
        uint32_t u = schedule->ops[i];
        if (!seen[u])
            order[count++] = u;
        seen[u] = true;
    }
    if (count < f->whole->op_count) // it does without some operators; here they stay
        return start(f);
    bool same = memcmp(order, f->original, count * sizeof *order) == 0;
    EBB_TRY(same ? start(f) : set_order(f, order));
    for (size_t i = 0; i < schedule->count; i++)
        ops[i] = f->place[schedule->ops[i]];
    (void)ebb_slots_load(&f->s, &(ebb_remat_schedule){ops, schedule->count});
    f->s.log_count = 0;
    return f->s.failed ? ebb_error_memory() : NULL;
}

/* Writes the state down as the level's point, if it fits and is cheaper than what is there. */
static ebb_status keep_point(searcher *f, level *l)
{
    int64_t peak = ebb_slots_peak(&f->s);
    if (f->s.failed)
        return ebb_error_memory();
    if (peak > l->budget || (l->point.schedule.ops != NULL && l->point.cost_ns <= f->s.cost_ns))
        return NULL;
    l->point.peak_bytes = (uint64_t)peak;
    l->point.cost_ns = f->s.cost_ns;
    return write_down(f, &l->point.schedule);
}

/* ---- seeds: what other planners find ---- */

/* Takes up a planner's schedule, if it fits, or can be made to, and is cheaper than `best`. */
static ebb_status try_seed(searcher *f, const ebb_planner *planner, uint64_t steps, double *best,
                           ebb_remat_schedule *kept)
{
    ebb_arena scratch = {0};
    ebb_remat_schedule schedule;
    ebb_remat_weight weight;
    ebb_status status = planner->plan(&schedule, f->whole, (uint64_t)f->budget, steps, &scratch);
    if (status == NULL)
        status = ebb_remat_weigh(&weight, NULL, f->whole, &schedule, &scratch);
    if (status == NULL && weight.peak_bytes <= (uint64_t)f->budget &&
        weight.cost_ns < *best * 1.15) {
        status = load(f, &schedule);
        bool fits = status == NULL && repair(f, 0, *best * 1.15, 200000, 8);
        if (fits)
            polish(f);
        if (fits && f->s.cost_ns < *best) {
            *best = f->s.cost_ns;
            status = write_down(f, kept);
        }
    }
    ebb_arena_fini(&scratch);
    return status;
}

/* The state becomes the cheapest of what it is (if it fits) and the seeds. False: nothing fits. */
static ebb_status try_seeds(searcher *f, bool fits, uint64_t steps, bool *fitted)
{
    ebb_remat_schedule kept = {NULL, 0};
    double best = fits ? f->s.cost_ns : INFINITY;
    size_t count;
    const ebb_planner *const *roll = ebb_planners(&count);
    *fitted = fits;
    EBB_TRY(write_down(f, &kept));
    for (size_t i = 0; i < count; i++)
        if (roll[i]->seeds)
            EBB_TRY(try_seed(f, roll[i], steps, &best, &kept));
    *fitted = best < (double)INFINITY;
    return load(f, &kept);
}

/* ---- down, and up again ---- */

static bool reach_level(searcher *f, uint64_t share)
{
    bool fits = false;
    f->s.log_count = 0;
    for (int attempt = 0; attempt < 3 && !fits; attempt++) {
        f->tabu_count = 0;
        fits = repair(f, attempt * 0.7, INFINITY, 8 * share + 100000, 24);
        if (!fits)
            ebb_slots_undo(&f->s, 0);
    }
    f->tabu_count = 0;
    f->s.log_count = 0;
    if (fits)
        polish(f);
    return fits;
}

/* Puts the executions into an order of less memory, where there is one. */
static ebb_status relist(searcher *f, uint64_t steps)
{
    ebb_arena scratch = {0};
    ebb_remat_schedule now, better;
    ebb_status status = write_down(f, &now);
    if (status == NULL)
        status = ebb_remat_relist(&better, f->whole, &now, steps, &scratch);
    if (status == NULL && better.ops != now.ops) {
        int64_t peak = ebb_slots_peak(&f->s);
        status = load(f, &better);
        if (status == NULL && ebb_slots_peak(&f->s) >= peak)
            status = load(f, &now);
    }
    ebb_arena_fini(&scratch);
    return status;
}

static ebb_status go_down(searcher *f, level *levels, uint32_t count, uint64_t work,
                          uint32_t *reached)
{
    uint64_t share = work / count;
    *reached = 0;
    for (uint32_t k = 0; k < count; k++) {
        f->budget = levels[k].budget;
        bool fits = reach_level(f, share);
        if (!fits) {
            EBB_TRY(relist(f, work / units_per_step / 50));
            fits = reach_level(f, share);
        }
        if (!fits || k % SEED_EVERY == 0)
            EBB_TRY(try_seeds(f, fits, share / units_per_step, &fits));
        if (!fits)
            break;
        improve(f, share);
        polish(f);
        f->s.log_count = 0;
        EBB_TRY(keep_point(f, &levels[k]));
        *reached = k;
    }
    return NULL;
}

static ebb_status go_up(searcher *f, level *levels, uint32_t from, uint64_t steps)
{
    uint64_t share = steps / (from + 1);
    EBB_TRY(load(f, &levels[from].point.schedule));
    for (uint32_t k = from; k-- > 1;) {
        f->budget = levels[k].budget;
        polish(f);
        if (f->s.cost_ns > levels[k].point.cost_ns)
            EBB_TRY(load(f, &levels[k].point.schedule));
        improve(f, share);
        f->s.log_count = 0;
        EBB_TRY(keep_point(f, &levels[k]));
    }
    return NULL;
}

static int lowest_first(const void *a, const void *b)
{
    const ebb_remat_point *x = a, *y = b;
    if (x->peak_bytes != y->peak_bytes)
        return x->peak_bytes < y->peak_bytes ? -1 : 1;
    return (x->cost_ns > y->cost_ns) - (x->cost_ns < y->cost_ns);
}

/* Only points that are cheaper than all lower ones are worth having; the highest comes first. */
static ebb_status collect(ebb_remat_frontier *frontier, const level *levels, uint32_t count,
                          ebb_arena *arena)
{
    ebb_remat_point *points = EBB_NEW(arena, ebb_remat_point, (size_t)count + 1);
    size_t found = 0, kept = 0;
    if (points == NULL)
        return ebb_error_memory();
    for (uint32_t k = 0; k < count; k++)
        if (levels[k].point.schedule.ops != NULL)
            points[found++] = levels[k].point;
    qsort(points, found, sizeof *points, lowest_first);
    for (size_t i = 0; i < found; i++)
        if (kept == 0 || points[i].cost_ns < points[kept - 1].cost_ns)
            points[kept++] = points[i];
    for (size_t i = 0; i < kept / 2; i++) {
        ebb_remat_point swap = points[i];
        points[i] = points[kept - 1 - i];
        points[kept - 1 - i] = swap;
    }
    *frontier = (ebb_remat_frontier){points, kept};
    return NULL;
}

/* Points of one order of the operators, at `levels` of its own. */
static ebb_status find_levels(level *levels, int64_t peak, const ebb_remat_problem *problem,
                              const ebb_remat_schedule *order, uint64_t work, ebb_arena *arena)
{
    searcher f;
    uint32_t reached;
    for (int k = 0; k < LEVELS; k++)
        levels[k] = (level){.budget = peak - peak / LEVELS * k - peak % LEVELS * k / LEVELS};
    ebb_status status = make_searcher(&f, problem, order, arena);
    if (status == NULL)
        status = go_down(&f, levels, LEVELS, work / 2, &reached);
    if (status == NULL && levels[0].point.schedule.ops != NULL)
        status = go_up(&f, levels, reached, work / 2);
    ebb_arena_fini(&f.state);
    return status;
}

ebb_status ebb_remat_frontier_find(ebb_remat_frontier *frontier, const ebb_remat_problem *problem,
                                   uint64_t steps, ebb_arena *arena)
{
    level *levels = EBB_NEW(arena, level, 2 * LEVELS);
    ebb_remat_schedule as_listed, order;
    ebb_remat_weight weight, ordered;
    *frontier = (ebb_remat_frontier){NULL, 0};
    if (levels == NULL)
        return ebb_error_memory();
    EBB_TRY(ebb_remat_keep_all(&as_listed, problem, arena));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, problem, &as_listed, arena));
    EBB_TRY(ebb_remat_order(&order, problem, steps / 4, arena));
    EBB_TRY(ebb_remat_weigh(&ordered, NULL, problem, &order, arena));
    int64_t peak = (int64_t)weight.peak_bytes;
    bool same = memcmp(order.ops, as_listed.ops, order.count * sizeof *order.ops) == 0;
    uint64_t work = (same ? steps : steps / 2) * units_per_step;
    EBB_TRY(find_levels(levels, peak, problem, &as_listed, work, arena));
    if (!same)
        EBB_TRY(find_levels(levels + LEVELS, peak, problem, &order, work, arena));
    return collect(frontier, levels, 2 * LEVELS, arena);
}

/* ---- the planner ---- */

static ebb_status plan(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                       uint64_t budget, uint64_t steps, ebb_arena *arena)
{
    ebb_remat_frontier frontier;
    bool proven;
    EBB_TRY(ebb_remat_exact(schedule, &proven, problem, budget, steps, arena));
    if (schedule->ops != NULL)
        return NULL;
    EBB_TRY(ebb_remat_frontier_find(&frontier, problem, steps, arena));
    if (frontier.count == 0)
        return ebb_remat_keep_all(schedule, problem, arena);
    const ebb_remat_point *best = &frontier.points[frontier.count - 1];
    for (size_t i = frontier.count; i-- > 0;)
        if (frontier.points[i].peak_bytes <= budget)
            best = &frontier.points[i];
    return ebb_remat_prune(schedule, problem, &best->schedule, arena);
}

const ebb_planner ebb_planner_search = {
    .name = "search",
    .doc = "local search over the true peak: several copies of a value, made as late as possible",
    .plan = plan,
};
