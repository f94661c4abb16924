/* kept.c: executes the list, makes again what is gone when it is read, and compares candidates. */
#include "passes/budget/planners/kept.h"

#include <math.h>
#include <stdlib.h>

enum {
    MOST_REPEATS = 16, /* times the list, when copies are released */
    BELOW = 8,         /* settings below the largest that fits */
};

typedef struct player {
    const ebb_remat_problem *p;
    ebb_arena *arena; /* of the schedule */
    bool *kept;
    bool *there;       /* value -> a copy is in memory */
    uint32_t *forward; /* value -> its last reader of the forward; its maker where there is none */
    uint32_t *asked;   /* operator -> for whom it was last gathered + 1 */
    uint32_t *stack, *missing;
    uint32_t missing_count;
    uint32_t *ops;
    size_t count, capacity;
} player;

static bool of_forward(const ebb_remat_problem *p, uint32_t v)
{
    return p->values[v].op != EBB_REMAT_NONE && !p->ops[p->values[v].op].backward;
}

static void keep_outputs(player *y, uint32_t u)
{
    for (uint32_t k = 0; k < y->p->ops[u].out_count; k++)
        y->kept[y->p->ops[u].out[k]] = true;
}

/* Backwards, the latest position at which an operator would be made again is known before its
 * inputs' makers are asked for theirs. Where that is after what it must precede, it is kept. */
static void keep_what_cannot_be_repeated(player *y, uint32_t *latest)
{
    const ebb_remat_problem *p = y->p;
    for (uint32_t u = p->op_count; u-- > 0;) {
        const ebb_remat_op *op = &p->ops[u];
        latest[u] = 0;
        for (uint32_t k = 0; k < op->out_count && !op->backward; k++) {
            const ebb_remat_value *value = &p->values[op->out[k]];
            for (uint32_t i = 0; i < value->reader_count && !y->kept[op->out[k]]; i++) {
                uint32_t r = value->readers[i];
                uint32_t at = p->ops[r].backward ? r : latest[r];
                latest[u] = at > latest[u] ? at : latest[u];
            }
        }
        if (!op->backward && !op->once && (op->before == EBB_REMAT_NONE || op->before >= latest[u]))
            continue;
        keep_outputs(y, u);
        latest[u] = 0;
    }
}

static ebb_status prepare(player *y, const bool *kept, ebb_arena *scratch)
{
    const ebb_remat_problem *p = y->p;
    y->kept = EBB_NEW(scratch, bool, (size_t)p->value_count + 1);
    y->there = EBB_NEW(scratch, bool, (size_t)p->value_count + 1);
    y->forward = EBB_NEW(scratch, uint32_t, (size_t)p->value_count + 1);
    y->asked = EBB_NEW(scratch, uint32_t, (size_t)p->op_count + 1);
    y->stack = EBB_NEW(scratch, uint32_t, (size_t)p->op_count + 1);
    y->missing = EBB_NEW(scratch, uint32_t, (size_t)p->op_count + 1);
    uint32_t *latest = EBB_NEW(scratch, uint32_t, (size_t)p->op_count + 1);
    EBB_GOT(y->kept && y->there && y->forward && y->asked && y->stack && y->missing && latest);
    for (uint32_t v = 0; v < p->value_count; v++) {
        const ebb_remat_value *value = &p->values[v];
        y->kept[v] = kept[v] || value->stays || !of_forward(p, v);
        y->there[v] = value->op == EBB_REMAT_NONE;
        y->forward[v] = value->op;
        for (uint32_t i = 0; i < value->reader_count; i++)
            if (!p->ops[value->readers[i]].backward)
                y->forward[v] = value->readers[i];
    }
    keep_what_cannot_be_repeated(y, latest);
    return NULL;
}

static ebb_status execute(player *y, uint32_t u)
{
    EBB_GOT(ebb_arena_grow(y->arena, &y->ops, y->count, &y->capacity, sizeof *y->ops));
    y->ops[y->count++] = u;
    for (uint32_t k = 0; k < y->p->ops[u].out_count; k++)
        y->there[y->p->ops[u].out[k]] = true;
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The operators to execute again so that all inputs of u are there, in list order. */
static void gather(player *y, uint32_t u)
{
    uint32_t depth = 0;
    y->missing_count = 0;
    y->stack[depth++] = u;
    while (depth > 0) {
        const ebb_remat_op *op = &y->p->ops[y->stack[--depth]];
        for (uint32_t k = 0; k < op->in_count; k++) {
            uint32_t maker = y->p->values[op->in[k]].op;
            if (y->there[op->in[k]] || y->asked[maker] == u + 1)
                continue;
            y->asked[maker] = u + 1;
            y->missing[y->missing_count++] = maker;
            y->stack[depth++] = maker;
        }
    }
    qsort(y->missing, y->missing_count, sizeof *y->missing, ascending);
}

/* What the repeats made is gone again, but for what was there before: that was replaced. */
static void release(player *y, uint32_t u, ebb_remat_hold hold, const bool *before)
{
    size_t at = 0;
    for (uint32_t i = 0; i < y->missing_count; i++) {
        const ebb_remat_op *op = &y->p->ops[y->missing[i]];
        for (uint32_t k = 0; k < op->out_count; k++)
            y->there[op->out[k]] = before[at++];
    }
    for (uint32_t k = 0; k < y->p->ops[u].in_count && hold == EBB_REMAT_HOLD_READ; k++)
        y->there[y->p->ops[u].in[k]] = true;
}

static ebb_status make_again(player *y, uint32_t u, bool **before, size_t *room)
{
    size_t outputs = 0, at = 0;
    for (uint32_t i = 0; i < y->missing_count; i++)
        outputs += y->p->ops[y->missing[i]].out_count;
    if (*before != NULL && *room < outputs) {
        ebb_free(*before);
        *room = 2 * outputs;
        *before = ebb_alloc(*room);
        EBB_GOT(*before);
    }
    for (uint32_t i = 0; i < y->missing_count; i++) {
        const ebb_remat_op *op = &y->p->ops[y->missing[i]];
        for (uint32_t k = 0; k < op->out_count && *before != NULL; k++)
            (*before)[at++] = y->there[op->out[k]];
    }
    for (uint32_t i = 0; i < y->missing_count; i++)
        EBB_TRY(execute(y, y->missing[i]));
    return execute(y, u);
}

static ebb_status play(player *y, ebb_remat_hold hold, bool **before, size_t *room)
{
    const ebb_remat_problem *p = y->p;
    size_t most = (size_t)p->op_count * MOST_REPEATS;
    for (uint32_t u = 0; u < p->op_count; u++) {
        const ebb_remat_op *op = &p->ops[u];
        gather(y, u);
        if (*before != NULL && y->count > most) {
            ebb_free(*before);
            *before = NULL;
        }
        EBB_TRY(make_again(y, u, before, room));
        if (*before != NULL)
            release(y, u, hold, *before);
        if (op->backward)
            continue;
        for (uint32_t k = 0; k < op->in_count; k++)
            if (y->forward[op->in[k]] == u && !y->kept[op->in[k]])
                y->there[op->in[k]] = false;
        for (uint32_t k = 0; k < op->out_count; k++)
            if (y->forward[op->out[k]] == u && !y->kept[op->out[k]])
                y->there[op->out[k]] = false;
    }
    return NULL;
}

ebb_status ebb_remat_from_kept(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                               const bool *kept, ebb_remat_hold hold, ebb_arena *arena)
{
    EBB_LOCAL_ARENA(scratch);
    player y = {.p = problem, .arena = arena};
    size_t room = 64;
    bool *before = hold != EBB_REMAT_HOLD ? ebb_alloc(room) : NULL;
    ebb_status status = hold != EBB_REMAT_HOLD && before == NULL ? ebb_error_memory() : NULL;
    if (status == NULL)
        status = prepare(&y, kept, scratch);
    if (status == NULL)
        status = play(&y, hold, &before, &room);
    ebb_free(before);
    *schedule = (ebb_remat_schedule){y.ops, y.count};
    return status;
}

/* ---- late ---- */

/* Sorts by key, ties by the old order: a repeat has the key of its first reader and was before it.
 */
static ebb_status sort_by_key(uint32_t *out, const ebb_remat_schedule *from, const uint32_t *key,
                              ebb_arena *scratch)
{
    uint32_t *begin = EBB_NEW(scratch, uint32_t, from->count + 2);
    EBB_GOT(begin);
    for (size_t i = 0; i < from->count; i++)
        begin[key[i] + 1]++;
    for (size_t i = 0; i < from->count; i++)
        begin[i + 1] += begin[i];
    for (size_t i = 0; i < from->count; i++)
        out[begin[key[i]]++] = from->ops[i];
    return NULL;
}

/* Backwards: a repeat goes where the first reader of its copies went. Never past what it must
 * precede: an operator that has such a limit stays where it is. */
static ebb_status late(uint32_t *out, const ebb_remat_problem *p, const ebb_remat_schedule *from,
                       ebb_arena *scratch)
{
    uint32_t *key = EBB_NEW(scratch, uint32_t, from->count + 1);
    uint32_t *reader = EBB_NEW(scratch, uint32_t, (size_t)p->value_count + 1);
    bool *done = EBB_NEW(scratch, bool, (size_t)p->op_count + 1);
    bool *repeat = EBB_NEW(scratch, bool, from->count + 1);
    EBB_GOT(key && reader && done && repeat);
    for (size_t i = 0; i < from->count; i++) {
        repeat[i] = done[from->ops[i]];
        done[from->ops[i]] = true;
    }
    memset(reader, 0xff, (size_t)p->value_count * sizeof *reader);
    for (uint32_t i = (uint32_t)from->count; i-- > 0;) {
        const ebb_remat_op *op = &p->ops[from->ops[i]];
        uint32_t first = UINT32_MAX;
        for (uint32_t k = 0; k < op->out_count; k++) {
            uint32_t at = reader[op->out[k]];
            first = at < first ? at : first;
            reader[op->out[k]] = UINT32_MAX;
        }
        bool moves = repeat[i] && op->before == EBB_REMAT_NONE && first != UINT32_MAX;
        key[i] = moves ? first : i;
        for (uint32_t k = 0; k < op->in_count; k++)
            reader[op->in[k]] = key[i] < reader[op->in[k]] ? key[i] : reader[op->in[k]];
    }
    return sort_by_key(out, from, key, scratch);
}

ebb_status ebb_remat_late(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                          const ebb_remat_schedule *from, ebb_arena *arena)
{
    if (from->count >= UINT32_MAX)
        return ebb_error(EBB_REJECTED, "a schedule of %zu executions is too long", from->count);
    uint32_t *ops = EBB_NEW(arena, uint32_t, from->count + 1);
    EBB_GOT(ops);
    EBB_LOCAL_ARENA(scratch);
    *schedule = (ebb_remat_schedule){ops, from->count};
    return late(ops, problem, from, scratch);
}

ebb_status ebb_remat_settle(ebb_remat_schedule *schedule, ebb_remat_weight *weight,
                            const ebb_remat_problem *problem, const ebb_remat_schedule *from,
                            ebb_arena *arena)
{
    ebb_remat_schedule moved;
    ebb_remat_weight w;
    EBB_TRY(ebb_remat_prune(schedule, problem, from, arena));
    EBB_TRY(ebb_remat_weigh(weight, NULL, problem, schedule, arena));
    if (ebb_remat_has_moves(problem, schedule))
        return NULL;
    EBB_TRY(ebb_remat_late(&moved, problem, schedule, arena));
    if (memcmp(moved.ops, schedule->ops, moved.count * sizeof *moved.ops) == 0)
        return NULL;
    EBB_TRY(ebb_remat_prune(&moved, problem, &moved, arena));
    EBB_TRY(ebb_remat_weigh(&w, NULL, problem, &moved, arena));
    if (w.peak_bytes <= weight->peak_bytes) {
        *schedule = moved;
        *weight = w;
    }
    return NULL;
}

/* ---- the best of several ---- */

static bool better(const ebb_remat_best *best, const ebb_remat_weight *w)
{
    bool fits = w->peak_bytes <= best->budget;
    if (fits != best->fits)
        return fits;
    bool cheaper = w->cost_ns < best->weight.cost_ns,
         lower = w->peak_bytes < best->weight.peak_bytes;
    bool as_cheap = w->cost_ns <= best->weight.cost_ns,
         as_low = w->peak_bytes <= best->weight.peak_bytes;
    return fits ? cheaper || (as_cheap && lower) : lower || (as_low && cheaper);
}

static ebb_status take(ebb_remat_best *best, const ebb_remat_schedule *s, const ebb_remat_weight *w)
{
    uint32_t *ops = EBB_NEW(best->arena, uint32_t, s->count + 1);
    EBB_GOT(ops);
    memcpy(ops, s->ops, s->count * sizeof *ops);
    best->schedule = (ebb_remat_schedule){ops, s->count};
    best->weight = *w;
    best->fits = w->peak_bytes <= best->budget;
    return NULL;
}

static ebb_status offer(ebb_remat_best *best, const ebb_remat_schedule *candidate,
                        ebb_remat_weight *weight, ebb_arena *scratch)
{
    ebb_remat_schedule settled;
    EBB_TRY(ebb_remat_settle(&settled, weight, best->problem, candidate, scratch));
    ebb_remat_weight filled = *weight;
    if (weight->peak_bytes <= best->budget && !ebb_remat_has_moves(best->problem, &settled))
        EBB_TRY(ebb_remat_refill(&settled, &filled, best->problem, best->budget,
                                 best->fits ? best->weight.cost_ns : INFINITY, scratch));
    return better(best, &filled) ? take(best, &settled, &filled) : NULL;
}

ebb_status ebb_remat_best_offer(ebb_remat_best *best, const ebb_remat_schedule *candidate,
                                ebb_remat_weight *weight)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_remat_weight w;
    EBB_TRY(offer(best, candidate, &w, scratch));
    if (weight != NULL)
        *weight = w;
    return NULL;
}

bool ebb_remat_beats(const ebb_remat_weight *w, const ebb_remat_weight *other, uint64_t budget)
{
    const bool fits = w->peak_bytes <= budget, fitted = other->peak_bytes <= budget;
    if (fits != fitted)
        return fits;
    if (!fits && w->peak_bytes != other->peak_bytes)
        return w->peak_bytes < other->peak_bytes;
    return w->cost_ns < other->cost_ns;
}

ebb_status ebb_remat_record_offer(ebb_remat_record *r, const ebb_remat_schedule *raw,
                                  ebb_remat_weight *weight)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_remat_schedule pruned = {0};
    EBB_TRY(ebb_remat_prune(&pruned, r->problem, raw, scratch));
    EBB_TRY(ebb_remat_weigh(weight, NULL, r->problem, &pruned, scratch));
    if (!ebb_remat_beats(weight, &r->weight, r->budget))
        return NULL;
    EBB_GOT(ebb_arena_grow(r->arena, &r->ops, pruned.count, &r->capacity, sizeof *r->ops));
    memcpy(r->ops, pruned.ops, pruned.count * sizeof *r->ops);
    r->count = pruned.count;
    r->weight = *weight;
    return NULL;
}

ebb_status ebb_planner_plan(const ebb_planner *planner, ebb_remat_schedule *schedule,
                            const ebb_remat_problem *problem, uint64_t budget, uint64_t steps,
                            ebb_arena *arena)
{
    if (planner->plan != NULL)
        return planner->plan(schedule, problem, budget, steps, arena);
    ebb_remat_best best = {.problem = problem, .budget = budget, .arena = arena};
    EBB_LOCAL_ARENA(scratch);
    ebb_remat_schedule all;
    ebb_remat_weight w;
    EBB_TRY(ebb_remat_keep_all(&all, problem, scratch));
    EBB_TRY(ebb_remat_weigh(&w, NULL, problem, &all, scratch));
    EBB_TRY(take(&best, &all, &w));
    if (!best.fits)
        EBB_TRY(planner->offer(&best, steps, scratch));
    *schedule = best.schedule;
    return NULL;
}

ebb_status ebb_remat_best_ask(ebb_remat_best *best, const char *planner, uint64_t steps)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_remat_schedule schedule;
    EBB_TRY(ebb_planner_plan(ebb_planner_find(planner), &schedule, best->problem, best->budget,
                             steps, scratch));
    return ebb_remat_best_offer(best, &schedule, NULL);
}

/* ---- a dial ---- */

static ebb_status offer_setting(ebb_remat_best *best, uint64_t setting, ebb_remat_dial dial,
                                void *self, bool *fits)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_remat_schedule schedule = {0};
    ebb_remat_weight weight = {.peak_bytes = UINT64_MAX};
    ebb_status status = dial(self, setting, &schedule, scratch);
    if (status == NULL && schedule.count > 0)
        status = ebb_remat_best_offer(best, &schedule, &weight);
    *fits = weight.peak_bytes <= best->budget;
    return status;
}

ebb_status ebb_remat_best_turn(ebb_remat_best *best, uint64_t low, uint64_t high, uint32_t tries,
                               ebb_remat_dial dial, void *self)
{
    bool fits;
    uint32_t above = tries / 2;
    uint64_t lowest = low;
    EBB_TRY(offer_setting(best, low, dial, self, &fits));
    for (uint32_t i = 1; !fits && i <= above && low < high; i++) { // dense near the lowest
        double part = (double)i / above;
        low = lowest + (uint64_t)((double)(high - lowest) * part * part);
        EBB_TRY(offer_setting(best, low, dial, self, &fits));
    }
    if (!fits)
        return NULL;
    EBB_TRY(offer_setting(best, high, dial, self, &fits));
    while (!fits && tries-- > 0 && high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        bool here;
        EBB_TRY(offer_setting(best, middle, dial, self, &here));
        low = here ? middle : low;
        high = here ? high : middle;
    }
    const uint64_t apart = low - lowest;
    for (uint64_t i = 1, last = 0; i <= BELOW; i++) { // refilled, a lower one may end cheaper
        const uint64_t above_lowest = apart * i / (BELOW + 1);
        if (above_lowest > last) // the same setting again has nothing to offer
            EBB_TRY(offer_setting(best, lowest + above_lowest, dial, self, &fits));
        last = above_lowest;
    }
    return NULL;
}

ebb_status ebb_remat_best_halve(ebb_remat_best *best, uint32_t most, uint32_t least,
                                ebb_remat_cut cut, void *self)
{
    for (; most >= least; most /= 2) {
        EBB_LOCAL_ARENA(scratch);
        EBB_TRY(cut(self, best, most, scratch));
    }
    return NULL;
}

uint32_t ebb_remat_tries(const ebb_remat_problem *problem, uint64_t steps, uint32_t most)
{
    uint64_t tries = steps / (4 * (uint64_t)problem->op_count + 1);
    return tries < 4 ? 4 : tries > most ? most : (uint32_t)tries;
}
