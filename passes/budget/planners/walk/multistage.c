/* multistage.c: transfers beside the steps, so that the chain may be as long as the disk is large.
 *
 * multistage   As many states as can be written without delaying a step: one in every interval of
 *              ceil(transfer / forward) steps. Back, an interval is reversed in memory by revolve
 *              while the state before it is being read. Time per step does not depend on the
 *              length of the chain. Memory: the slots and a state in transfer.
 *
 *   write x0 | forward .. | write xI | forward .. | ... revolve the last | read | revolve | ...
 *
 * double-checkpoint   The same on the outside. An interval is swept once, keeping every sqrt-th
 *              state in memory; then, from the last of these on, its steps are run and all that
 *              their backward reads is kept. So each step is run forward at most twice more, by
 *              2 sqrt(interval) slots, of which the half hold what the backward reads.
 *
 * Papers: Kukreja, Hueckelheim, Gorman, "Backpropagation for long sequences: beyond memory
 * constraints with constant overheads", arXiv 1806.01117; Bencheikh, Finkbeiner, Neftci, "Optimal
 * gradient checkpointing for sparse and recurrent architectures using off-chip memory", arXiv
 * 2412.11810.
 */
#include <math.h>

#include "passes/budget/planners/walk/walk.h"

/* So many steps as a transfer takes: 1 .. steps. */
static uint32_t interval_of(const ebb_course *c)
{
    const ebb_walk_level *level = &c->level[1];
    double transfer = level->write > level->read ? level->write : level->read;
    double steps = ceil(transfer / c->forward);
    return steps < c->steps ? (steps > 1 ? (uint32_t)steps : 1) : c->steps;
}

typedef struct stages {
    const ebb_course *c;
    uint32_t count, interval; /* all have that length but the last, which has the rest */
    ebb_status (*reverse)(const ebb_course *c, ebb_walk *w, uint32_t first, uint32_t end);
} stages;

static uint32_t end_of(const stages *s, uint32_t i)
{
    return i + 1 < s->count ? (i + 1) * s->interval : s->c->steps;
}

static ebb_status go(const stages *s, ebb_walk *w)
{
    uint32_t last = s->count - 1, at = last * s->interval;
    for (uint32_t i = 0; i < last; i++) {
        EBB_TRY(ebb_walk_add(w, EBB_ACT_START_WRITE, 1, i * s->interval, 0));
        EBB_TRY(ebb_walk_add(w, EBB_ACT_FORWARD, 0, i * s->interval, (i + 1) * s->interval));
        EBB_TRY(ebb_walk_add(w, EBB_ACT_WAIT, 1, i * s->interval, 0));
    }
    for (uint32_t i = s->count; i-- > 0; at -= s->interval) {
        if (i < last) {
            EBB_TRY(ebb_walk_add(w, EBB_ACT_WAIT, 1, at, 0));
            EBB_TRY(ebb_walk_add(w, EBB_ACT_DROP, 1, at, 0));
        }
        if (i > 0)
            EBB_TRY(ebb_walk_add(w, EBB_ACT_START_READ, 1, at - s->interval, 0));
        EBB_TRY(s->reverse(s->c, w, at, end_of(s, i)));
    }
    return NULL;
}

static ebb_status check(const ebb_course *c, const char *name)
{
    if (c->level_count < 2 || c->buffers < 1)
        return ebb_error(EBB_USAGE, "%s wants a second level and a buffer for transfers", name);
    return NULL;
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

/* ---- multistage ---- */

static ebb_status by_revolve(const ebb_course *c, ebb_walk *w, uint32_t first, uint32_t end)
{
    return ebb_walk_binomial(w, first, end, c->level[0].slots);
}

ebb_status ebb_walk_multistage(ebb_walk *walk, const ebb_course *course, double *cost)
{
    EBB_TRY(check(course, "multistage"));
    const ebb_walk_level *slow = &course->level[1];
    stages s = {.c = course, .interval = interval_of(course), .reverse = by_revolve};
    s.count = course->steps / s.interval; // the rest goes with the last, which then hides a read
    uint32_t before = (s.count - 1) * s.interval, slots = course->level[0].slots;
    double last = ebb_walk_binomial_time(course, course->steps - before, slots);
    *cost = (s.count - 1) * longer(s.interval * course->forward, slow->write);
    if (s.count > 1) {
        double one = ebb_walk_binomial_time(course, s.interval, slots);
        *cost += longer(last, slow->read) + (s.count - 2) * longer(one, slow->read) + one;
    } else {
        *cost += last;
    }
    return go(&s, walk);
}

/* ---- double-checkpoint ---- */

static uint32_t root_of(uint32_t n) /* the least r with r * r >= n */
{
    uint32_t r = (uint32_t)sqrt((double)n);
    while ((uint64_t)r * r < n)
        r++;
    return r;
}

static ebb_status by_saving(const ebb_course *c, ebb_walk *w, uint32_t first, uint32_t end)
{
    uint32_t run = root_of(end - first), at = first;
    (void)c;
    for (; end - at > run; at += run) {
        EBB_TRY(ebb_walk_add(w, EBB_ACT_WRITE, 0, at, 0));
        EBB_TRY(ebb_walk_add(w, EBB_ACT_FORWARD, 0, at, at + run));
    }
    for (;; end = at, at -= run) {
        for (uint32_t i = at; i < end; i++)
            EBB_TRY(ebb_walk_add(w, EBB_ACT_SAVE, 0, i, 0));
        for (uint32_t i = end; i-- > at;)
            EBB_TRY(ebb_walk_add(w, EBB_ACT_BACK, 0, i, 0));
        if (at == first)
            return NULL;
        EBB_TRY(ebb_walk_add(w, EBB_ACT_READ, 0, at - run, 0));
        EBB_TRY(ebb_walk_add(w, EBB_ACT_DROP, 0, at - run, 0));
    }
}

/* Forwards of a sweep over n steps. */
static uint32_t swept(uint32_t n)
{
    uint32_t run = root_of(n);
    return (n - 1) / run * run;
}

/* The time of n steps from a state at hand. */
static double saving_time(const ebb_course *c, uint32_t n)
{
    return swept(n) * c->forward + n * c->backward;
}

ebb_status ebb_walk_double_checkpoint(ebb_walk *walk, const ebb_course *course, double *cost)
{
    EBB_TRY(check(course, "double-checkpoint"));
    const ebb_walk_level *slow = &course->level[1];
    stages s = {.c = course, .interval = interval_of(course), .reverse = by_saving};
    uint64_t half = course->level[0].slots / 2; // what fits; a shorter interval may stall
    if (half * half < s.interval)
        s.interval = half > 0 ? (uint32_t)(half * half) : 1;
    s.count = (course->steps - 1) / s.interval + 1;
    double last = saving_time(course, course->steps - (s.count - 1) * s.interval);
    *cost = (s.count - 1) * longer(s.interval * course->forward, slow->write);
    if (s.count > 1) {
        double one = saving_time(course, s.interval);
        *cost += longer(last, slow->read) + (s.count - 2) * longer(one, slow->read) + one;
    } else {
        *cost += last;
    }
    return go(&s, walk);
}
