/* search.h: the frontier of a problem: what each budget costs. */
#pragma once

#include "passes/budget/planners/planner.h"

typedef struct ebb_remat_point {
    uint64_t peak_bytes;
    double cost_ns;
    ebb_remat_schedule schedule;
} ebb_remat_point;

typedef struct ebb_remat_frontier {
    const ebb_remat_point
        *points; /* dearer and dearer, lower and lower; the first keeps everything */
    size_t count;
} ebb_remat_frontier;

/* Points at one level a hundredth of the keep-all peak, down to the lowest that is found. What is
 * found for one level does not depend on the budget that is wanted, so a choice among the points is
 * monotone. steps: as in ebb_planner; the same problem and steps give the same points. */
ebb_status ebb_remat_frontier_find(ebb_remat_frontier *frontier, const ebb_remat_problem *problem,
                                   uint64_t steps, ebb_arena *arena);

/* exact.c: the cheapest schedule of all within the budget, and of those the lowest. *proven is
 * false where the problem is too large to tell, or the search outgrows `steps` states;
 * schedule->ops is NULL where there is none, or none was found. */
ebb_status ebb_remat_exact(ebb_remat_schedule *schedule, bool *proven,
                           const ebb_remat_problem *problem, uint64_t budget, uint64_t steps,
                           ebb_arena *arena);
/* The same for all budgets: each point is the cheapest of all schedules below the point before it.
 * *proven: no schedule is below the last. Without points where the problem is too large; what
 * `steps` leave no time for is missing at the low end. */
ebb_status ebb_remat_exact_frontier(ebb_remat_frontier *frontier, bool *proven,
                                    const ebb_remat_problem *problem, uint64_t steps,
                                    ebb_arena *arena);
