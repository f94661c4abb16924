/* exact: the cheapest of all schedules, for small problems: any order, any number of repeats.
 *
 * What a schedule has reached is told by which values are there. So the states are sets of values,
 * the moves are "run an operator whose inputs are there" and "let a value go", and the cheapest way
 * to a state that holds all that stays is found by A*:
 *
 *     paid so far  +  cost of every operator without which what stays cannot be made from this set
 *
 * The second term never exceeds what is left to pay and never falls by more than a move costs, so
 * the first goal reached is the optimum. Running an operator within that term changes the sum by
 * nothing: the search moves on at once until bytes run out, and branches only where something must
 * go. If all states are seen and no goal is, nothing fits.
 */

#include "passes/budget/planners/search.h"

enum { MOST_VALUES = 64, LOWERED = 64 /* times at most */, NO_OP = UINT32_MAX };

typedef struct state {
    uint64_t there; /* values, by bit */
    double paid, left;
    uint32_t from, op; /* the state before, and what ran; NO_OP: a value went */
    bool done;
} state;

/* In the heap a state stands by what it cost when it was put there: reached for less, it is put
 * there again, and the older entry is passed over. */
typedef struct entry {
    double sum, left;
    uint32_t at;
} entry;

typedef struct solver {
    const ebb_remat_problem *p;
    uint64_t budget, stays;
    uint64_t *in, *out; /* by operator */
    double most;        /* states dearer than this are not looked at */
    state *states;
    uint32_t count, capacity;
    uint64_t work, steps; /* done, and what may be done, by all searches together */
    uint32_t *table;      /* state + 1 by hash; 0: empty */
    uint32_t table_mask;
    entry *heap;
    uint32_t heap_count;
    size_t heap_capacity;
    ebb_arena *arena;
} solver;

/* ---- what is left to pay ---- */

static double left_to_pay(const solver *s, uint64_t there, uint64_t *needed_ops_in)
{
    uint64_t needed = s->stays & ~there, inputs = 0;
    double cost = 0;
    for (uint32_t u = s->p->op_count; u-- > 0;) {
        if ((s->out[u] & needed) == 0)
            continue;
        cost += s->p->ops[u].cost_ns;
        needed |= s->in[u] & ~there;
        inputs |= s->out[u];
    }
    *needed_ops_in = needed | inputs;
    return cost;
}

static uint64_t bytes_of(const solver *s, uint64_t set)
{
    uint64_t bytes = s->p->base_bytes;
    for (; set != 0; set &= set - 1)
        bytes += s->p->values[__builtin_ctzll(set)].bytes;
    return bytes;
}

/* ---- the open states: a heap by sum, then by what is left ---- */

static bool before(entry x, entry y)
{
    if (x.sum != y.sum)
        return x.sum < y.sum;
    return x.left != y.left ? x.left < y.left : x.at < y.at;
}

static bool push(solver *s, uint32_t at)
{
    const state *reached = &s->states[at];
    entry new = {reached->paid + reached->left, reached->left, at};
    if (!ebb_arena_grow(s->arena, &s->heap, s->heap_count, &s->heap_capacity, sizeof *s->heap))
        return false;
    uint32_t i = s->heap_count++;
    for (; i > 0 && before(new, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = new;
    return true;
}

static uint32_t pop(solver *s)
{
    uint32_t top = s->heap[0].at, i = 0;
    entry last = s->heap[--s->heap_count];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= s->heap_count)
            break;
        if (child + 1 < s->heap_count && before(s->heap[child + 1], s->heap[child]))
            child++;
        if (!before(s->heap[child], last))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* ---- the states seen ---- */

static uint32_t *place_of(const solver *s, uint64_t there)
{
    uint64_t hash = there * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t i = (uint32_t)(hash >> 32) & s->table_mask;; i = (i + 1) & s->table_mask)
        if (s->table[i] == 0 || s->states[s->table[i] - 1].there == there)
            return &s->table[i];
}

/* A state reached at this price; false: no room is left. */
static bool reach(solver *s, uint64_t there, double paid, uint32_t from, uint32_t op)
{
    uint32_t *place = place_of(s, there), at;
    if (*place != 0) {
        at = *place - 1;
        if (s->states[at].paid <= paid)
            return true;
        s->states[at].paid = paid;
        s->states[at].from = from;
        s->states[at].op = op;
        s->states[at].done = false;
        return push(s, at);
    }
    if (s->count == s->capacity || s->work >= s->steps)
        return false;
    uint64_t unread;
    double left = left_to_pay(s, there, &unread);
    if (paid + left > s->most)
        return true;
    at = s->count++;
    s->work++;
    s->states[at] = (state){there, paid, left, from, op, false};
    *place = at + 1;
    return push(s, at);
}

static bool expand(solver *s, uint32_t at)
{
    uint64_t there = s->states[at].there, needed;
    double paid = s->states[at].paid;
    (void)left_to_pay(s, there, &needed);
    bool tight = false; /* something that could run does not fit */
    for (uint32_t u = 0; u < s->p->op_count; u++) {
        if ((s->out[u] & needed & ~there) == 0 || (s->in[u] & ~there) != 0)
            continue;
        if (bytes_of(s, there | s->out[u]) + s->p->ops[u].workspace > s->budget) {
            tight = true;
            continue;
        }
        if (!reach(s, there | s->out[u], paid + s->p->ops[u].cost_ns, at, u))
            return false;
    }
    for (uint64_t set = tight ? there : 0; set != 0; set &= set - 1)
        if (!reach(s, there & ~(set & -set), paid, at, NO_OP))
            return false;
    return true;
}

/* *goal: the state found; NO_OP: none. False: room or work ran out before it was known. */
static bool solve(solver *s, uint32_t *goal)
{
    s->count = s->heap_count = 0;
    s->work += s->table_mask / 1024; // clearing the table is work too
    memset(s->table, 0, ((size_t)s->table_mask + 1) * sizeof *s->table);
    *goal = NO_OP;
    if (!reach(s, 0, 0, NO_OP, NO_OP))
        return false;
    while (s->heap_count > 0) {
        uint32_t at = pop(s);
        if (s->states[at].done)
            continue;
        s->states[at].done = true;
        if ((s->stays & ~s->states[at].there) == 0) {
            *goal = at;
            return true;
        }
        if (!expand(s, at))
            return false;
    }
    return true;
}

static ebb_status write_down(const solver *s, uint32_t goal, ebb_remat_schedule *schedule)
{
    size_t count = 0;
    for (uint32_t at = goal; at != NO_OP; at = s->states[at].from)
        count += s->states[at].op != NO_OP;
    uint32_t *ops = EBB_NEW(s->arena, uint32_t, count + 1);
    EBB_GOT(ops);
    *schedule = (ebb_remat_schedule){ops, count};
    for (uint32_t at = goal; at != NO_OP; at = s->states[at].from)
        if (s->states[at].op != NO_OP)
            ops[--count] = s->states[at].op;
    return NULL;
}

static bool is_small(const ebb_remat_problem *p)
{
    if (p->value_count > MOST_VALUES || p->op_count > MOST_VALUES)
        return false;
    for (uint32_t v = 0; v < p->value_count; v++)
        if (p->values[v].op == EBB_REMAT_NONE)
            return false;
    for (uint32_t u = 0; u < p->op_count; u++)
        if (p->ops[u].once || p->ops[u].over_count > 0 || p->ops[u].before != EBB_REMAT_NONE)
            return false;
    return true;
}

static ebb_status make_solver(solver *s, const ebb_remat_problem *p, uint64_t steps,
                              ebb_arena *arena)
{
    *s = (solver){.p = p, .arena = arena, .steps = UINT64_MAX};
    uint64_t room = steps < 3000000 ? steps : 3000000;
    if (p->value_count < 20 && room > UINT64_C(1) << p->value_count) /* no more sets than that */
        room = UINT64_C(1) << p->value_count;
    s->capacity = (uint32_t)room + 1;
    for (s->table_mask = 1; s->table_mask < 2 * s->capacity; s->table_mask *= 2)
        ;
    s->states = EBB_NEW(arena, state, s->capacity);
    s->table = EBB_NEW(arena, uint32_t, s->table_mask);
    s->in = EBB_NEW(arena, uint64_t, (size_t)p->op_count + 1);
    s->out = EBB_NEW(arena, uint64_t, (size_t)p->op_count + 1);
    EBB_GOT(s->states && s->table && s->in && s->out);
    s->table_mask--;
    for (uint32_t u = 0; u < p->op_count; u++) {
        for (uint32_t k = 0; k < p->ops[u].in_count; k++)
            s->in[u] |= UINT64_C(1) << p->ops[u].in[k];
        for (uint32_t k = 0; k < p->ops[u].out_count; k++)
            s->out[u] |= UINT64_C(1) << p->ops[u].out[k];
    }
    for (uint32_t v = 0; v < p->value_count; v++)
        if (p->values[v].stays)
            s->stays |= UINT64_C(1) << v;
    return NULL;
}

/* The cheapest within the budget, and of equally cheap ones the lowest, so that a smaller budget
 * never means a higher peak. */
static ebb_status find_best(solver *s, uint64_t budget, ebb_remat_point *best, bool *proven)
{
    uint32_t goal;
    ebb_remat_weight weight;
    *best = (ebb_remat_point){.peak_bytes = budget};
    s->budget = budget;
    s->most = 1e300;
    *proven = solve(s, &goal);
    for (int i = 0; goal != NO_OP; i++) {
        EBB_TRY(write_down(s, goal, &best->schedule));
        EBB_TRY(ebb_remat_weigh(&weight, NULL, s->p, &best->schedule, s->arena));
        best->peak_bytes = weight.peak_bytes;
        best->cost_ns = weight.cost_ns;
        if (i == LOWERED || weight.peak_bytes == 0)
            break;
        s->most = s->states[goal].paid * (1 + 1e-12);
        s->budget = weight.peak_bytes - 1;
        (void)solve(s, &goal);
    }
    return NULL;
}

ebb_status ebb_remat_exact(ebb_remat_schedule *schedule, bool *proven,
                           const ebb_remat_problem *problem, uint64_t budget, uint64_t steps,
                           ebb_arena *arena)
{
    solver s;
    ebb_remat_point best = {0};
    *schedule = best.schedule;
    *proven = false;
    if (!is_small(problem))
        return NULL;
    EBB_TRY(make_solver(&s, problem, steps, arena));
    EBB_TRY(find_best(&s, budget, &best, proven));
    *schedule = best.schedule;
    return NULL;
}

ebb_status ebb_remat_exact_frontier(ebb_remat_frontier *frontier, bool *proven,
                                    const ebb_remat_problem *problem, uint64_t steps,
                                    ebb_arena *arena)
{
    solver s;
    ebb_remat_point *points = NULL, best = {.peak_bytes = UINT64_MAX};
    size_t count = 0, capacity = 0;
    *frontier = (ebb_remat_frontier){NULL, 0};
    *proven = false;
    if (!is_small(problem))
        return NULL;
    EBB_TRY(make_solver(&s, problem, steps, arena));
    s.steps = steps;
    while (best.peak_bytes > 0) {
        EBB_TRY(find_best(&s, best.peak_bytes - 1, &best, proven));
        if (best.schedule.ops == NULL)
            break;
        EBB_GOT(ebb_arena_grow(arena, &points, count, &capacity, sizeof *points));
        points[count++] = best;
    }
    *frontier = (ebb_remat_frontier){points, count};
    return NULL;
}
