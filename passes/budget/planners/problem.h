/* problem.h: between a graph and its numbers. */
#pragma once

#include "exec/weigh/estimate.h"
#include "passes/budget/planners/planner.h"
#include "rewrite/rewrite.h"

enum { EBB_REMAT_DEEP = 64 }; /* views of views at most */

/* A problem, and what its numbers stand for. Views are seen through: a value stands for a block of
 * bytes and all views of it, and views are no operators. What reads a view reads also the sizes
 * that the view is made by, where the step computes them.
 *
 * A graph that ebb can run is weighed as its arena is: sizes rounded up, in place where the alias
 * pass would, inputs until their last read. One with operators that have no kernel has no arena:
 * its bytes are taken as they are, nothing is shared, and inputs are there throughout. */
typedef struct ebb_remat_source {
    ebb_remat_problem problem;
    ebb_node *node;     /* operator -> node */
    ebb_value *value;   /* value -> the graph's value that owns the bytes */
    ebb_value *root;    /* graph value id -> the value whose bytes it shows */
    uint32_t *number;   /* graph value id of a root -> value + 1; 0: counted in base_bytes */
    size_t value_count; /* graph values when this was made */
    /* What the numbers count and the arena may do without: statistics written over their old ones,
     * codes that are decoded as they are read. So no arena is smaller than a schedule's peak less
     * this. */
    uint64_t spare_bytes;
    bool has_arena;
} ebb_remat_source;

/* EBB_REJECTED naming the value whose size is not known. All memory is the arena's. */
ebb_status ebb_remat_source_make(ebb_remat_source *source, ebb_arena *arena, const ebb_graph *g,
                                 const ebb_estimate *estimate);

/* apply.c: puts the graph's nodes into the schedule's order, with copies for repeats. A copy bears
 * "ebb.copied_from", the name of what it repeats, and is of the backward where that has begun.
 * *copies: how many were made. */
ebb_status ebb_remat_apply(ebb_edit *e, const ebb_remat_source *source,
                           const ebb_remat_schedule *schedule, size_t *copies);
