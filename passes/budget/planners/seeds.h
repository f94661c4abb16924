/* seeds.h: what other planners find, for `search` to begin from and to choose among.
 *
 * Each ask is a job (jobs.h), so that planners work beside the walk, which needs those of the level that it
 * has come to.
 */
#pragma once

#include "passes/budget/planners/jobs.h"
#include "passes/budget/planners/search.h"

/* Levels of the budget, hundredths of the peak that keeps all; others are asked at some of them. */
enum { EBB_LEVELS = 100, EBB_SEED_EVERY = 10 };

typedef struct ebb_ask {
    const ebb_planner *planner; /* NULL: several */
    uint32_t level;             /* whose budget it is for; EBB_LEVELS: for less than all have */
    ebb_remat_point *points; /* when its job is done: what fits the budgets that it was made for */
    size_t count, capacity;
} ebb_ask;

typedef struct ebb_seeds {
    const ebb_remat_problem *problem;
    uint64_t budgets[EBB_LEVELS], steps;
    ebb_ask *asks;  /* in the order of levels */
    uint32_t count; /* of those that a walk may begin from; one more is not: with it the frontier is
                        nowhere worse than those planners */
    ebb_jobs **jobs; /* in which ask k has number k */
} ebb_seeds;

/* Lists the asks. steps: as in ebb_planner, for the whole search. */
ebb_status ebb_seeds_list(ebb_seeds *seeds, const ebb_remat_problem *problem, uint64_t peak,
                          uint64_t steps, ebb_jobs **jobs, ebb_arena *arena);
/* Job `number` of them. */
ebb_status ebb_seeds_ask(ebb_seeds *seeds, uint32_t number, ebb_arena *arena);
