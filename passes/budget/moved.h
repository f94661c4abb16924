/* moved.h: tensors moved to other places, in steps: for who looks at many plans of one step. */
#pragma once

#include "passes/budget/planners/away.h"
#include "passes/budget/states.h"
#include "passes/budget/trial.h"
#include "passes/common.h"

typedef struct ebb_moved_places { /* the nearest first */
    size_t count;
    ebb_place place[EBB_AWAY_PLACES];
    uint64_t room[EBB_AWAY_PLACES];
} ebb_moved_places;

typedef struct ebb_moved {
    ebb_edit *e;
    ebb_graph *g;
    const ebb_moved_places *places;
    ebb_saves saves;
    const ebb_away_states *states; /* whose moves are placed with the others; NULL: none */
    ebb_node *node;                /* by position */
    ebb_node *before; /* the same, but for moves of states, which may go: what is behind them */
    double *starts;
    uint32_t *at; /* by node id: position */
    ebb_memory memory;
    uint32_t align; /* of a tensor in the arena */
    ebb_away_problem problem;
    double
        states_ns; /* what the moves of states take while each is over at once: the estimate has it */
    ebb_away_rule
        once; /* as the problem's rule, each tensor away once; site NULL: none is away oftener */
} ebb_moved;

/* A plan: how it is looked for, and what is said of it in numbers. */
typedef struct ebb_moved_plan {
    uint64_t aim; /* bytes alive at most */
    bool all;     /* as ebb_away_find */
    bool once;    /* each tensor is away once */
    bool tight;   /* no move has time beside the step: that packs lowest */
    uint64_t peak_bytes, away_bytes[EBB_AWAY_PLACES];
    double added_ns;
} ebb_moved_plan;

/* What may go of the graph of e, whose marks are off; `places`, in whose last the states lie, and they outlive it. */
ebb_status ebb_moved_begin(ebb_moved *o, ebb_edit *e, const ebb_moved_places *places,
                           uint64_t least, const char *names, const ebb_estimate *estimate,
                           const ebb_away_states *states);
/* By the plan's aim; what is found is the plan of o from then on. */
ebb_status ebb_moved_look(const ebb_moved *o, ebb_moved_plan *plan);
/* What the plan of o takes, packed; what is below `enough` may be said to be that. */
ebb_status ebb_moved_pack(const ebb_moved *o, uint64_t enough, uint64_t *height);
/* What the step is with it, on a copy; packed as the executor packs it. */
ebb_status ebb_moved_try(const ebb_moved *o, const char *backend, uint64_t *bytes, double *ns);
ebb_status ebb_moved_apply(ebb_moved *o);
/* "12 tensors, 8192 bytes a step, wait on the disk"; NULL: no memory. */
const char *ebb_moved_text(const ebb_moved *o);
