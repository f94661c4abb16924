/* walk_simulate.h: the referee of walks: legality, counts, time. It knows nothing of how they are
 * made. */
#ifndef EBB_TESTS_WALK_SIMULATE_H
#define EBB_TESTS_WALK_SIMULATE_H

#include "passes/budget/planners/walk/walk.h"

typedef struct walk_count {
    uint64_t forwards; /* steps run forward, those inside a reversed step aside */
    uint64_t writes[EBB_WALK_LEVELS], reads[EBB_WALK_LEVELS];
    uint32_t most[EBB_WALK_LEVELS]; /* slots taken at a time */
    uint32_t buffers;               /* transfers under way at a time */
    double time;
    double stalls; /* part of it: waiting for transfers that were started and not over */
} walk_count;

enum { NOWHERE = UINT32_MAX };

typedef struct walk_transfer {
    uint32_t at, level;
    bool read;
    double over; /* when */
} walk_transfer;

typedef struct referee {
    const ebb_course *c;
    walk_count *count;
    bool *there[EBB_WALK_LEVELS]; /* by state */
    bool *saved;                  /* by step */
    uint32_t taken[EBB_WALK_LEVELS];
    walk_transfer *started;
    uint32_t started_count;
    double line[2][EBB_WALK_LEVELS]; /* writes, reads: when the last one is over */
    uint32_t working;                /* the state at hand, or NOWHERE */
    uint32_t left;                   /* steps not yet reversed */
} referee;

static ebb_status illegal(size_t act, const ebb_act *a, const char *why)
{
    return ebb_error(EBB_VERIFY, "act %zu of the walk, at state %u and level %u: %s", act,
                     (unsigned)a->at, (unsigned)a->level, why);
}

static walk_transfer *find(referee *r, const ebb_act *a)
{
    for (uint32_t i = 0; i < r->started_count; i++)
        if (r->started[i].at == a->at && r->started[i].level == a->level)
            return &r->started[i];
    return NULL;
}

/* A slot of the level is taken for state or saved step `at`. */
static const char *take(referee *r, bool *there, uint32_t level, uint32_t at)
{
    if (there[at])
        return "it is there already";
    if (r->taken[level] >= r->c->level[level].slots)
        return "all slots are taken";
    there[at] = true;
    r->taken[level]++;
    if (r->taken[level] > r->count->most[level])
        r->count->most[level] = r->taken[level];
    return NULL;
}

static const char *start(referee *r, const ebb_act *a, bool read)
{
    const ebb_walk_level *level = &r->c->level[a->level];
    double *line = &r->line[read][a->level], *now = &r->count->time;
    if (r->started_count >= r->c->buffers)
        return "all buffers are taken";
    *line = (*line > *now ? *line : *now) + (read ? level->read : level->write);
    r->started[r->started_count++] = (walk_transfer){a->at, a->level, read, *line};
    if (r->started_count > r->count->buffers)
        r->count->buffers = r->started_count;
    return NULL;
}

static const char *wait(referee *r, const ebb_act *a)
{
    walk_transfer *t = find(r, a);
    if (t == NULL)
        return "nothing was started that could be waited for";
    if (t->over > r->count->time) {
        r->count->stalls += t->over - r->count->time;
        r->count->time = t->over;
    }
    if (t->read)
        r->working = a->at;
    *t = r->started[--r->started_count];
    return NULL;
}

static const char *move(referee *r, const ebb_act *a)
{
    const ebb_walk_level *level = &r->c->level[a->level];
    bool *there = r->there[a->level], write = a->kind == EBB_ACT_WRITE;
    if (write || a->kind == EBB_ACT_START_WRITE) {
        const char *why =
            r->working != a->at ? "it is not at hand" : take(r, there, a->level, a->at);
        if (why != NULL)
            return why;
        r->count->writes[a->level]++;
        r->count->time += write ? level->write : 0;
        return write ? NULL : start(r, a, false);
    }
    if (!there[a->at])
        return "it is not there";
    if (find(r, a) != NULL)
        return "it is on its way";
    if (a->kind == EBB_ACT_DROP) {
        there[a->at] = false;
        r->taken[a->level]--;
        return NULL;
    }
    r->count->reads[a->level]++;
    if (a->kind == EBB_ACT_START_READ)
        return start(r, a, true);
    r->count->time += level->read;
    r->working = a->at;
    return NULL;
}

static const char *run(referee *r, const ebb_act *a)
{
    const ebb_course *c = r->c;
    if (a->kind != EBB_ACT_BACK && r->working != a->at)
        return "it is not at hand";
    if (a->kind == EBB_ACT_FORWARD || a->kind == EBB_ACT_SAVE) {
        uint32_t to = a->kind == EBB_ACT_SAVE ? a->at + 1 : a->to;
        if (to <= a->at || to > r->left)
            return "no step to run forward";
        r->working = to;
        r->count->forwards += to - a->at;
        r->count->time += (to - a->at) * c->forward;
        return a->kind == EBB_ACT_SAVE ? take(r, r->saved, 0, a->at) : NULL;
    }
    if (a->at + 1 != r->left)
        return "it is not the last step that is left";
    r->left--;
    r->working = NOWHERE;
    if (a->kind == EBB_ACT_REVERSE) {
        r->count->time += c->backward;
        return NULL;
    }
    if (!r->saved[a->at])
        return "it was not saved";
    r->saved[a->at] = false;
    r->taken[0]--;
    r->count->time += c->backward - c->forward;
    return NULL;
}

static const char *act(referee *r, const ebb_act *a)
{
    if (a->at >= r->c->steps || a->level >= r->c->level_count)
        return "there is no such state or level";
    switch ((ebb_act_kind)a->kind) {
    case EBB_ACT_FORWARD:
    case EBB_ACT_SAVE:
    case EBB_ACT_REVERSE:
    case EBB_ACT_BACK:
        return run(r, a);
    case EBB_ACT_WAIT:
        return wait(r, a);
    default:
        return move(r, a);
    }
}

static ebb_status simulate(referee *r, const ebb_walk *walk, ebb_arena *scratch)
{
    const ebb_course *c = r->c;
    r->saved = EBB_NEW(scratch, bool, (size_t)c->steps + 1);
    r->started = EBB_NEW(scratch, walk_transfer, (size_t)c->buffers + 1);
    if (r->saved == NULL || r->started == NULL)
        return ebb_error_memory();
    for (uint32_t k = 0; k < c->level_count; k++) {
        r->there[k] = EBB_NEW(scratch, bool, (size_t)c->steps + 1);
        if (r->there[k] == NULL)
            return ebb_error_memory();
    }
    r->left = c->steps;
    for (size_t i = 0; i < walk->count; i++) {
        const char *why = act(r, &walk->acts[i]);
        if (why != NULL)
            return illegal(i, &walk->acts[i], why);
    }
    if (r->left > 0)
        return ebb_error(EBB_VERIFY, "the walk leaves %u steps", (unsigned)r->left);
    return NULL;
}

/* EBB_VERIFY where the walk is not legal: a planner's mistake. A started transfer runs beside the
 * steps; each level has one line for writes and one for reads, which take them in order. */
static inline ebb_status walk_simulate(walk_count *count, const ebb_course *course,
                                       const ebb_walk *walk)
{
    ebb_arena scratch = {0};
    *count = (walk_count){0};
    referee r = {.c = course, .count = count};
    ebb_status status = simulate(&r, walk, &scratch);
    ebb_arena_fini(&scratch);
    return status;
}

#endif
