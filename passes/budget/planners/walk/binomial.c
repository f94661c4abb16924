/* binomial.c: revolve on a chain in memory: which states to keep is said by binomials.
 *
 * Paper: Griewank and Walther, "Algorithm 799: revolve", 2000. Counts: chain/revolve.h.
 */
#include "passes/budget/planners/chain/revolve.h"
#include "passes/budget/planners/walk/walk.h"

/* Steps first .. end-1; state `first` lies in level 0, slots with its own. */
typedef struct part {
    uint32_t first, end, slots;
    bool at_hand;
} part;

typedef struct parts {
    ebb_arena scratch;
    part *list;
    size_t count, capacity;
} parts;

/* The working state is `first`. */
static ebb_status open_part(ebb_walk *w, parts *p, uint32_t first, uint32_t end, uint32_t slots)
{
    if (end - first == 1)
        return ebb_walk_add(w, EBB_ACT_REVERSE, 0, first, 0);
    EBB_GOT(ebb_arena_grow(&p->scratch, &p->list, p->count, &p->capacity, sizeof *p->list));
    p->list[p->count++] = (part){first, end, slots, true};
    return ebb_walk_add(w, EBB_ACT_WRITE, 0, first, 0);
}

/* The innermost part one move further: its end is taken off as a part of its own, or it is done. */
static ebb_status go_back(ebb_walk *w, parts *p)
{
    part *in = &p->list[p->count - 1];
    uint32_t first = in->first, end = in->end;
    if (!in->at_hand)
        EBB_TRY(ebb_walk_add(w, EBB_ACT_READ, 0, first, 0));
    if (end - first == 1) {
        p->count--;
        EBB_TRY(ebb_walk_add(w, EBB_ACT_REVERSE, 0, first, 0));
        return ebb_walk_add(w, EBB_ACT_DROP, 0, first, 0);
    }
    in->end = first + (uint32_t)ebb_revolve_advance(end - first, in->slots);
    in->at_hand = false;
    EBB_TRY(ebb_walk_add(w, EBB_ACT_FORWARD, 0, first, in->end));
    return open_part(w, p, in->end, end, in->slots - 1);
}

ebb_status ebb_walk_binomial(ebb_walk *walk, uint32_t first, uint32_t end, uint32_t slots)
{
    parts p = {.count = 0};
    ebb_status status = open_part(walk, &p, first, end, slots);
    while (status == NULL && p.count > 0)
        status = go_back(walk, &p);
    ebb_arena_fini(&p.scratch);
    return status;
}

double ebb_walk_binomial_time(const ebb_course *course, uint32_t steps, uint32_t slots)
{
    return (double)ebb_revolve_forwards(steps, slots) * course->forward + steps * course->backward;
}

ebb_status ebb_walk_revolve(ebb_walk *walk, const ebb_course *course, double *cost)
{
    uint32_t slots = course->level[0].slots;
    *cost = ebb_walk_binomial_time(course, course->steps, slots);
    return ebb_walk_binomial(walk, 0, course->steps, slots);
}
