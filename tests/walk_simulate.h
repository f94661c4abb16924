/* walk_simulate.h: the referee of walks: legality, counts, time. It knows nothing of how they are made. */
#pragma once

#include "passes/budget/planners/walk/walk.h"

enum { NOWHERE = UINT32_MAX };

typedef struct walk_count {
    uint64_t forwards; /* steps run forward, those inside a reversed step aside */
    uint64_t writes[EBB_WALK_LEVELS], reads[EBB_WALK_LEVELS];
    uint32_t most[EBB_WALK_LEVELS]; /* slots taken at a time */
    uint32_t buffers;               /* transfers under way at a time */
    double time;
    double stalls; /* part of it: waiting for transfers that were started and not over */
} walk_count;

typedef struct under_way {
    uint32_t at, level;
    bool read;
    double over; /* when */
} under_way;

typedef struct referee {
    const ebb_course *c;
    walk_count *count;
    bool *there[EBB_WALK_LEVELS]; /* by state */
    bool *saved;                  /* by step */
    uint32_t taken[EBB_WALK_LEVELS];
    under_way *started;
    uint32_t started_count;
    double line[2][EBB_WALK_LEVELS];       /* writes, reads: when the last one is over */
    uint32_t working;                      /* the state at hand, or NOWHERE */
    bool turned;                           /* or there is no turn */
    uint32_t first[EBB_WALK_BRANCHES + 1]; /* by chain: the number of its first state */
    uint32_t left[EBB_WALK_BRANCHES];      /* by chain: steps not yet reversed */
} referee;

static ebb_status illegal(size_t act, const ebb_act *a, const char *why)
{
    return ebb_error(EBB_VERIFY, "act %zu of the walk, at state %u and level %u: %s", act,
                     (unsigned)a->at, (unsigned)a->level, why);
}

static under_way *find(referee *r, const ebb_act *a)
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
    r->started[r->started_count++] = (under_way){a->at, a->level, read, *line};
    if (r->started_count > r->count->buffers)
        r->count->buffers = r->started_count;
    return NULL;
}

static const char *wait(referee *r, const ebb_act *a)
{
    under_way *t = find(r, a);
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

static uint32_t chain_of(const referee *r, uint32_t at)
{
    uint32_t b = 0;
    while (b + 1 < r->c->branch_count && at >= r->first[b + 1])
        b++;
    return b;
}

/* All outputs lie in memory. */
static const char *turn(referee *r)
{
    if (r->turned)
        return "there is no turn left";
    for (uint32_t b = 0; b < r->c->branch_count; b++)
        if (!r->there[0][r->first[b] + r->left[b]])
            return "an output is not there";
    r->turned = true;
    r->working = NOWHERE;
    return NULL;
}

static const char *run(referee *r, const ebb_act *a)
{
    const ebb_course *c = r->c;
    uint32_t b = chain_of(r, a->at), output = r->first[b + 1] - 1;
    if (a->kind != EBB_ACT_BACK && r->working != a->at)
        return "it is not at hand";
    if (a->kind == EBB_ACT_FORWARD || a->kind == EBB_ACT_SAVE) {
        uint32_t to = a->kind == EBB_ACT_SAVE ? a->at + 1 : a->to;
        if (to <= a->at || to > r->first[b] + r->left[b])
            return "no step to run forward";
        r->working = to;
        r->count->forwards += to - a->at;
        r->count->time += (to - a->at) * c->forward;
        return a->kind == EBB_ACT_SAVE ? take(r, r->saved, 0, a->at) : NULL;
    }
    if (a->at + 1 != r->first[b] + r->left[b])
        return "it is not the last step that is left";
    if (!r->turned || (c->branch_count > 0 && !r->there[0][output]))
        return "its gradient is not there";
    if (--r->left[b] == 0 && c->branch_count > 0) {
        r->there[0][output] = false;
        r->taken[0]--;
    }
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
    case EBB_ACT_TURN:
        return turn(r);
    default:
        return move(r, a);
    }
}

static const char *begin(referee *r)
{
    const ebb_course *c = r->c;
    r->turned = c->branch_count == 0;
    r->left[0] = r->first[1] = c->steps;
    for (uint32_t b = 0; b < c->branch_count; b++) {
        const char *why = take(r, r->there[0], 0, r->first[b]);
        if (why != NULL)
            return why;
        r->left[b] = c->branch[b];
        r->first[b + 1] = r->first[b] + c->branch[b] + 1;
        r->working = NOWHERE;
    }
    return NULL;
}

/* EBB_VERIFY where the walk is not legal: a planner's mistake. A started transfer runs beside the
 * steps; each level has one line for writes and one for reads, which take them in order. */
static ebb_status simulated(walk_count *count, const ebb_course *course, const ebb_walk *walk)
{
    EBB_LOCAL_ARENA(scratch);
    *count = (walk_count){0};
    referee r = {.c = course, .count = count};
    r.saved = EBB_NEW(scratch, bool, (size_t)course->steps + 1);
    r.started = EBB_NEW(scratch, under_way, (size_t)course->buffers + 1);
    EBB_GOT(r.saved && r.started);
    for (uint32_t k = 0; k < course->level_count; k++) {
        r.there[k] = EBB_NEW(scratch, bool, (size_t)course->steps + 1);
        EBB_GOT(r.there[k]);
    }
    const char *wrong = begin(&r);
    if (wrong != NULL)
        return ebb_error(EBB_VERIFY, "the first states of the chains: %s", wrong);
    for (size_t i = 0; i < walk->count; i++) {
        const char *why = act(&r, &walk->acts[i]);
        if (why != NULL)
            return illegal(i, &walk->acts[i], why);
    }
    for (uint32_t b = 0; b == 0 || b < course->branch_count; b++)
        if (r.left[b] > 0)
            return ebb_error(EBB_VERIFY, "the walk leaves %u steps", (unsigned)r.left[b]);
    return NULL;
}
