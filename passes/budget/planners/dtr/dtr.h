/* dtr.h: one walk through a step within a budget, evicting and making again: dtr_walk.c.
 * dtr_price.c says what goes. What the walk is for, and the method, are in dtr.c.
 */
#pragma once

#include "passes/budget/planners/planner.h"

typedef enum ebb_dtr_time { EBB_DTR_SINCE_LAST_USE, EBB_DTR_UNTIL_NEXT_USE } ebb_dtr_time;

typedef enum ebb_dtr_around {
    EBB_DTR_COMPONENTS, /* union-find over what is evicted: the cost of each component next to v */
    EBB_DTR_EXACTLY,    /* evicted ancestors and needed descendants, walked */
    EBB_DTR_ANCESTORS,  /* what making v again would make with it */
    EBB_DTR_ITSELF
} ebb_dtr_around;

typedef struct ebb_dtr_variant {
    ebb_dtr_time time;
    ebb_dtr_around around;
} ebb_dtr_variant;

enum {
    EBB_DTR_NEAR = 64,        /* values around a value that are looked at */
    EBB_DTR_EVALUATIONS = 20, /* of the price, in a microsecond */
};

typedef struct ebb_dtr_frame { /* an operator that waits for its inputs */
    uint32_t op;
    uint32_t next_input;
    size_t held; /* its inputs' flags: held[held + k] */
} ebb_dtr_frame;

typedef struct ebb_dtr_walk { /* one walk's state; arrays by value or by operator */
    const ebb_remat_problem *p;
    ebb_dtr_variant how;
    uint64_t budget, live;
    double now;     /* ns of what was executed so far */
    double *starts; /* operator -> ns before it in list order */
    uint32_t at;    /* list position */
    bool failed;    /* no room, too long, or something needed is lost: the last is a mistake */

    bool *resident, *lost;  /* lost: absent, and cannot be made again */
    bool *fresh;            /* the copy was last used by the list, not in making something again */
    bool *kept;             /* pinned while what it is made from is overwritten */
    uint32_t *pins, *next;  /* next: index of the next reader in list order */
    double *used;           /* when it was last used */
    uint32_t *pool, *place; /* resident values, and where each stands; UINT32_MAX: not there */
    uint32_t pool_count;
    bool *done;
    uint32_t *expiring, *expiring_base; /* operator -> those that it makes unrepeatable */

    uint32_t *set_of, *parent; /* operator -> its node in the union-find + 1; 0: not evicted */
    double *set_cost;
    uint32_t set_count;

    size_t *interval_base; /* value -> its first interval between reads */
    bool *doomed;          /* by interval: evicted in the last round */
    bool *evicted;         /* the same, of this round */

    uint32_t *shortlist;
    double *shortlist_h;
    uint32_t shortlist_count, shortlist_left;

    ebb_dtr_frame *frames;
    size_t frame_count;
    bool *held;
    size_t held_count;
    uint32_t *need; /* by value: absent and needed values made from it, directly */
    bool *counted;  /* absent and needed, and so said in need[] of its operator's inputs */
    uint32_t *mark, stamp, *queue; /* breadth-first walks over values */

    uint32_t *ops; /* the schedule */
    size_t count, limit;
    uint64_t evaluations, allowed;
} ebb_dtr_walk;

/* ---- dtr_price.c ---- */

/* When the list reads v next: a position; op_count for what stays; UINT32_MAX: never. */
uint32_t ebb_dtr_next_use(const ebb_dtr_walk *w, uint32_t v);

/* Whether v, were it absent, could be made again. */
bool ebb_dtr_can_be_made(const ebb_dtr_walk *w, uint32_t v);

/* Of an absent value it is said that it is needed if the list reads it again, or something absent
 * and needed is made from it. need[] of a value, resident or not, counts the latter. */
bool ebb_dtr_is_needed(const ebb_dtr_walk *w, uint32_t absent);
/* v came to be absent and needed, or no longer is: so do what it is made from, if absent. */
void ebb_dtr_count_need(ebb_dtr_walk *w, uint32_t v, bool needed);
/* Whether something resident, and read again, is made from v through absent values. Where v cannot
 * be made again, that could then not be evicted. */
bool ebb_dtr_supports(ebb_dtr_walk *w, uint32_t v);

/* Components of evicted operators. An output of u went; u was executed; v is joined with its
 * evicted neighbours. */
void ebb_dtr_goes_absent(ebb_dtr_walk *w, uint32_t u);
void ebb_dtr_comes_back(ebb_dtr_walk *w, uint32_t u);
void ebb_dtr_join_absent(ebb_dtr_walk *w, uint32_t v);

/* h: the price of evicting v. INFINITY: it must stay. */
double ebb_dtr_price(ebb_dtr_walk *w, uint32_t v);

/* ---- dtr_walk.c ---- */

/* Memory for walks of this problem, all of it the arena's. */
ebb_status ebb_dtr_walk_new(ebb_dtr_walk **walk, const ebb_remat_problem *problem,
                            ebb_arena *arena);

/* No value is known to be evicted unread; what this walk evicts, the next drops at its last read.
 */
void ebb_dtr_forget(ebb_dtr_walk *walk);

/* *schedule: until the next walk. False where there was no room for an operator with all else
 * evicted, or it took more than `allowed` microseconds' work, or repeats beyond reason. *work: what
 * it took. */
bool ebb_dtr_walk_run(ebb_dtr_walk *walk, ebb_remat_schedule *schedule, ebb_dtr_variant variant,
                      uint64_t budget, uint64_t allowed, uint64_t *work);
