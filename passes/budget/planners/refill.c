/* refill.c: what a schedule leaves of the budget is used to keep values after all.
 *
 *   before   F G H  H'  F G'  F'         the peak is below the budget
 *   after    F G H  H'    G'  F'         the first F lives on instead of being made again
 *
 * Of the repeats, those that cost most for their bytes first: one is left out if the last copy
 * before it can live on to where it was, within the budget at each position between. What that
 * copy's own making needed is then often not needed either: repeats that nobody reads are pruned
 * and it begins again.
 */
#include "passes/budget/planners/heights.h"
#include "passes/budget/planners/kept.h"

#include <math.h>
#include <stdlib.h>

enum { ROUNDS = 6 };

typedef struct repeat {
    double worth;
    uint32_t at;
} repeat;

typedef struct refill {
    const ebb_remat_problem *p;
    const ebb_remat_schedule *s;
    int64_t budget;
    ebb_heights live;
    uint32_t *copy;     /* execution -> its first copy */
    uint32_t *last;     /* copy -> the execution that reads it last; its own where none does */
    uint32_t *previous; /* execution -> the one of the same operator before it; NONE: the first */
    uint32_t *next;
    bool *left_out;
    repeat *repeats;
    uint32_t repeat_count;
} refill;

/* ---- one repeat ---- */

/* From where on the copy must live longer if the repeat at `at` is left out: behind its last read,
 * or at it, where its block might have been taken over by what is made there. */
static uint32_t lives_from(const refill *r, uint32_t at, uint32_t k)
{
    uint32_t before = r->previous[at], read = r->last[r->copy[before] + k];
    const ebb_remat_op *reader = &r->p->ops[r->s->ops[read]];
    uint32_t v = r->p->ops[r->s->ops[at]].out[k];
    for (uint32_t i = 0; i < reader->over_count; i++)
        if (reader->over[i].in == v)
            return read;
    return read + 1;
}

static bool matters(const refill *r, uint32_t at,
                    uint32_t k) /* somebody reads that copy, or it stays */
{
    uint32_t v = r->p->ops[r->s->ops[at]].out[k];
    return r->p->values[v].stays || r->last[r->copy[at] + k] != at;
}

/* The outputs before `count` of the repeat at `at` live on there, or back: no longer. False, and nothing is
 * changed, where that does not fit. */
static bool extend(refill *r, uint32_t at, uint32_t count, bool back)
{
    const ebb_remat_op *op = &r->p->ops[r->s->ops[at]];
    for (uint32_t k = 0; k < count; k++) {
        const int64_t bytes = (int64_t)r->p->values[op->out[k]].bytes;
        const uint32_t from = lives_from(r, at, k);
        if (!matters(r, at, k) || from >= at)
            continue;
        if (!back && ebb_heights_most(&r->live, from, at - 1) > r->budget - bytes) {
            (void)extend(r, at, k, true);
            return false;
        }
        ebb_heights_add(&r->live, from, at - 1, back ? -bytes : bytes);
    }
    return true;
}

static bool leave_out(refill *r, uint32_t at)
{
    const ebb_remat_op *op = &r->p->ops[r->s->ops[at]];
    uint32_t before = r->previous[at], after = r->next[at];
    if (!extend(r, at, op->out_count, false))
        return false;
    for (uint32_t k = 0; k < op->out_count; k++)
        if (matters(r, at, k))
            r->last[r->copy[before] + k] = r->last[r->copy[at] + k];
    r->left_out[at] = true;
    r->next[before] = after;
    if (after != EBB_REMAT_NONE)
        r->previous[after] = before;
    return true;
}

/* ---- a round ---- */

static int by_worth(const void *a, const void *b)
{
    const repeat *x = a, *y = b;
    if (x->worth < y->worth || x->worth > y->worth)
        return x->worth > y->worth ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static ebb_status allocate(refill *r, ebb_arena *scratch)
{
    size_t copies = 0, count = r->s->count + 1;
    for (size_t i = 0; i < r->s->count; i++)
        copies += r->p->ops[r->s->ops[i]].out_count;
    r->copy = EBB_NEW(scratch, uint32_t, count);
    r->last = EBB_NEW(scratch, uint32_t, copies + 1);
    r->previous = EBB_NEW(scratch, uint32_t, count);
    r->next = EBB_NEW(scratch, uint32_t, count);
    r->left_out = EBB_NEW(scratch, bool, count);
    r->repeats = EBB_NEW(scratch, repeat, count);
    EBB_GOT(r->copy && r->last && r->previous && r->next && r->left_out && r->repeats);
    return NULL;
}

static ebb_status find_repeats(refill *r, ebb_arena *scratch)
{
    const ebb_remat_problem *p = r->p;
    uint32_t *latest = EBB_NEW(scratch, uint32_t, (size_t)p->value_count + 1); /* copy + 1 */
    uint32_t *done = EBB_NEW(scratch, uint32_t, (size_t)p->op_count + 1);      /* execution + 1 */
    EBB_GOT(latest && done);
    uint32_t copies = 0;
    for (uint32_t i = 0; i < r->s->count; i++) {
        uint32_t u = r->s->ops[i];
        const ebb_remat_op *op = &p->ops[u];
        for (uint32_t k = 0; k < op->in_count; k++)
            if (latest[op->in[k]] > 0)
                r->last[latest[op->in[k]] - 1] = i;
        r->copy[i] = copies;
        double bytes = 1;
        for (uint32_t k = 0; k < op->out_count; k++) {
            r->last[copies] = i;
            latest[op->out[k]] = ++copies;
            bytes += (double)p->values[op->out[k]].bytes;
        }
        r->next[i] = EBB_REMAT_NONE;
        r->previous[i] = done[u] - 1; // NONE where it has not run
        if (done[u] > 0) {
            r->next[done[u] - 1] = i;
            r->repeats[r->repeat_count++] = (repeat){op->cost_ns / bytes, i};
        }
        done[u] = i + 1;
    }
    qsort(r->repeats, r->repeat_count, sizeof *r->repeats, by_worth);
    return NULL;
}

static ebb_status one_round(ebb_remat_schedule *out, const ebb_remat_problem *p,
                            const ebb_remat_schedule *from, uint64_t budget, ebb_arena *scratch)
{
    refill r = {.p = p, .s = from, .budget = budget < INT64_MAX ? (int64_t)budget : INT64_MAX};
    ebb_remat_weight weight;
    uint64_t *live = EBB_NEW(scratch, uint64_t, from->count + 1);
    uint32_t *ops = EBB_NEW(scratch, uint32_t, from->count + 1);
    EBB_GOT(live && ops);
    EBB_TRY(ebb_remat_weigh(&weight, live, p, from, scratch));
    EBB_TRY(allocate(&r, scratch));
    EBB_TRY(ebb_heights_make(&r.live, live, (uint32_t)from->count, scratch));
    EBB_TRY(find_repeats(&r, scratch));
    for (uint32_t i = 0; i < r.repeat_count; i++)
        (void)leave_out(&r, r.repeats[i].at);
    size_t count = 0;
    for (size_t i = 0; i < from->count; i++)
        if (!r.left_out[i])
            ops[count++] = from->ops[i];
    ebb_remat_schedule fewer = {ops, count};
    *out = fewer;
    return NULL;
}

ebb_status ebb_remat_refill(ebb_remat_schedule *schedule, ebb_remat_weight *weight,
                            const ebb_remat_problem *problem, uint64_t budget, double cheapest_ns,
                            ebb_arena *arena)
{
    double saved = INFINITY; // by the round before
    for (uint32_t i = 0; i < ROUNDS && weight->repeats > 0; i++) {
        ebb_remat_schedule fewer;
        ebb_remat_weight w;
        size_t count = schedule->count;
        if (problem->op_count > EBB_REMAT_MANY && weight->cost_ns - saved >= cheapest_ns)
            break;
        EBB_TRY(one_round(&fewer, problem, schedule, budget, arena));
        if (fewer.count == count)
            break;
        EBB_TRY(ebb_remat_settle(&fewer, &w, problem, &fewer, arena));
        if (w.peak_bytes > budget)
            break;
        saved = weight->cost_ns - w.cost_ns;
        *schedule = fewer;
        *weight = w;
    }
    return NULL;
}
