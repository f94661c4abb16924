/* join.c: chains that meet at a turn, in memory with few slots.
 *
 *   chain a   a0 . . a3 . . . out_a \
 *                                    turn
 *   chain b   b0 . . . b4 . out_b   /           stored at the turn: a0 a3 b0 b4 out_a out_b
 *
 * Each chain is run forward once, some of its states are stored on the way. Behind the turn, what
 * lies between a stored state and the end of what is left of its chain is a segment; segments are
 * reversed one by one, each by revolve with all the slots that are free then. A finished segment
 * frees the slot of its state, a finished chain that of its gradient, too. So the time of a segment
 * depends on how many stored states and how many chains are left, and on nothing else:
 *
 *   least(left, q)  steps left in each chain, q stored states: over chains and lengths n, the least
 *                   t(n, free + 1) + least(left without these n, q - 1),
 *                   free = slots - q - chains that are left
 *
 * Paper: Beaumont, Herrmann, Pallez, Shilova, "Optimal memory-aware backpropagation of deep join
 * networks", Phil. Trans. R. Soc. A 378, 2020.
 */
#include <math.h>

#include "passes/budget/planners/chain/revolve.h"
#include "passes/budget/planners/walk/walk.h"

static const double most_work = 4e9, most_entries = 1.6e7;

typedef struct join {
    const ebb_course *c;
    uint32_t slots, stored; /* at most so many stored states */
    uint32_t first[EBB_WALK_BRANCHES];
    size_t stride[EBB_WALK_BRANCHES], cells; /* of `left`, chain 0 innermost */
    double *least;                           /* by q, by left */
    double *revolve;                         /* by slots, by steps: t; row of `longest` + 1 */
    uint32_t longest;
} join;

static uint32_t left_of(const join *j, size_t cell, uint32_t b)
{
    return (uint32_t)(cell / j->stride[b] % (j->c->branch[b] + (size_t)1));
}

static uint32_t chains_left(const join *j, size_t cell)
{
    uint32_t count = 0;
    for (uint32_t b = 0; b < j->c->branch_count; b++)
        count += left_of(j, cell, b) > 0;
    return count;
}

typedef struct choice {
    double forwards;
    uint32_t branch, steps;
} choice;

static choice best_of(const join *j, size_t cell, uint32_t q)
{
    choice best = {.forwards = HUGE_VAL};
    uint32_t taken = q + chains_left(j, cell);
    if (taken > j->slots)
        return best;
    const double *times = &j->revolve[(j->slots - taken + 1) * ((size_t)j->longest + 1)];
    const double *rest = &j->least[(q - 1) * j->cells];
    for (uint32_t b = 0; b < j->c->branch_count; b++) {
        uint32_t left = left_of(j, cell, b);
        for (uint32_t n = 1; n <= left; n++) {
            double forwards = times[n] + rest[cell - n * j->stride[b]];
            if (forwards < best.forwards)
                best = (choice){forwards, b, n};
        }
    }
    return best;
}

static ebb_status fill(join *j, ebb_arena *scratch)
{
    size_t width = (size_t)j->longest + 1;
    j->least = EBB_NEW(scratch, double, (j->stored + (size_t)1) * j->cells);
    j->revolve = EBB_NEW(scratch, double, ((size_t)j->slots + 2) * width);
    EBB_GOT(j->least && j->revolve);
    for (uint32_t s = 1; s <= j->slots; s++)
        for (uint32_t n = 1; n <= j->longest; n++)
            j->revolve[s * width + n] = (double)ebb_revolve_forwards(n, s);
    for (size_t cell = 1; cell < j->cells; cell++)
        j->least[cell] = HUGE_VAL;
    for (uint32_t q = 1; q <= j->stored; q++) {
        j->least[q * j->cells] = HUGE_VAL; // no step is left for a stored state
        for (size_t cell = 1; cell < j->cells; cell++)
            j->least[q * j->cells + cell] = best_of(j, cell, q).forwards;
    }
    return NULL;
}

/* ---- the walk ---- */

typedef struct segment {
    uint32_t first, end, slots;
} segment;

/* The segments of state `cell` with q stored states, in the order in which they are reversed. */
static void trace(const join *j, size_t cell, uint32_t q, segment *list)
{
    for (uint32_t i = 0; q > 0; i++, q--) {
        choice best = best_of(j, cell, q);
        uint32_t end = j->first[best.branch] + left_of(j, cell, best.branch);
        uint32_t free = j->slots - q - chains_left(j, cell);
        list[i] = (segment){end - best.steps, end, free + 1};
        cell -= best.steps * j->stride[best.branch];
    }
}

/* To the output of a chain; the segments' first states are stored on the way. */
static ebb_status go(const join *j, ebb_walk *w, uint32_t b, const segment *list, uint32_t count)
{
    uint32_t at = j->first[b], output = at + j->c->branch[b];
    EBB_TRY(ebb_walk_add(w, EBB_ACT_READ, 0, at, 0));
    for (uint32_t i = count; i-- > 0;) {
        if (list[i].first <= at || list[i].first >= output)
            continue;
        EBB_TRY(ebb_walk_add(w, EBB_ACT_FORWARD, 0, at, list[i].first));
        EBB_TRY(ebb_walk_add(w, EBB_ACT_WRITE, 0, list[i].first, 0));
        at = list[i].first;
    }
    EBB_TRY(ebb_walk_add(w, EBB_ACT_FORWARD, 0, at, output));
    return ebb_walk_add(w, EBB_ACT_WRITE, 0, output, 0);
}

static ebb_status walk_join(const join *j, ebb_walk *w, uint32_t stored, ebb_arena *scratch)
{
    segment *list = EBB_NEW(scratch, segment, (size_t)stored + 1);
    EBB_GOT(list);
    trace(j, j->cells - 1, stored, list);
    for (uint32_t b = 0; b < j->c->branch_count; b++)
        EBB_TRY(go(j, w, b, list, stored));
    EBB_TRY(ebb_walk_add(w, EBB_ACT_TURN, 0, 0, 0));
    for (uint32_t i = 0; i < stored; i++) {
        EBB_TRY(ebb_walk_add(w, EBB_ACT_READ, 0, list[i].first, 0));
        EBB_TRY(ebb_walk_add(w, EBB_ACT_DROP, 0, list[i].first, 0));
        EBB_TRY(ebb_walk_binomial(w, list[i].first, list[i].end, list[i].slots));
    }
    return NULL;
}

static ebb_status measure(join *j, uint32_t *steps)
{
    const ebb_course *c = j->c;
    double work = 1;
    j->cells = 1;
    *steps = 0;
    for (uint32_t b = 0; b < c->branch_count; b++) {
        work *= c->branch[b] + 1.0;
        j->longest = c->branch[b] > j->longest ? c->branch[b] : j->longest;
        j->stride[b] = j->cells;
        j->cells = work <= most_entries ? j->cells * (c->branch[b] + (size_t)1) : 0;
        j->first[b] = *steps + b;
        *steps += c->branch[b];
    }
    uint32_t least = 2 * c->branch_count, most = *steps + c->branch_count;
    if (c->branch_count == 0 || c->level[0].slots < least)
        return ebb_error(EBB_NO_PLAN, "%u chains that meet need at least %u slots",
                         (unsigned)c->branch_count, (unsigned)least);
    j->slots = c->level[0].slots < most ? c->level[0].slots : most; // more would lie empty
    j->stored = j->slots - c->branch_count;
    work *= j->stored + 1.0;
    if (work > most_entries || work * *steps > most_work)
        return ebb_error(EBB_UNSUPPORTED,
                         "chains of %u steps in all, with %u slots, are too long "
                         "for the exact plan of chains that meet",
                         (unsigned)*steps, (unsigned)j->slots);
    return NULL;
}

ebb_status ebb_walk_join(ebb_walk *walk, const ebb_course *course, double *cost)
{
    EBB_LOCAL_ARENA(scratch);
    join j = {.c = course};
    uint32_t steps, stored = 0;
    double forwards = HUGE_VAL;
    EBB_TRY(measure(&j, &steps));
    EBB_TRY(fill(&j, scratch));
    for (uint32_t q = course->branch_count; q <= j.stored; q++) {
        double these = j.least[(q + (size_t)1) * j.cells - 1];
        stored = these < forwards ? q : stored;
        forwards = these < forwards ? these : forwards;
    }
    *cost = (steps + forwards) * course->forward + steps * course->backward;
    return walk_join(&j, walk, stored, scratch);
}
