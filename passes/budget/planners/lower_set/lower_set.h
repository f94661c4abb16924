/* lower_set.h: a family of lower sets of a step's forward, and schedules from what is kept:
 * lower_family.c, lower_build.c. The method is in lower_set.c.
 */
#pragma once

#include "passes/budget/planners/planner.h"

/* LOW: values and gradients of the block go as its backward comes by. HIGH: all of them are there
 * at once, which stands for what making the block again needs for a while. */
enum { EBB_LOWER_LOW, EBB_LOWER_HIGH };

typedef struct ebb_lower_step { /* from a set to a larger one */
    double kept;                /* bytes of the block that operators outside the larger set read */
    double cost;    /* ns to make again what the block's backward reads and is not kept */
    double peak[2]; /* bytes that the block's backward needs, by two estimates */
    bool legal;     /* one holds the other */
} ebb_lower_step;

typedef struct ebb_lower_sets {
    const ebb_remat_problem *problem;
    uint32_t forward; /* operators of the forward: the list's first */
    uint32_t count;   /* [0] is empty, the last holds the forward */
    uint64_t work;    /* microseconds, as steps are counted */
    size_t words;
    const uint64_t *members;     /* set -> words of bits, by operator */
    const ebb_lower_step *steps; /* to * (to - 1) / 2 + from */
    double least, most;          /* peaks by estimate: no chain is below; one block has the most */
} ebb_lower_sets;

/* All memory is the arena's. count < 2: there is no forward to cut. */
ebb_status ebb_lower_sets_make(ebb_lower_sets **sets, const ebb_remat_problem *problem,
                               ebb_arena *arena);

/* The block of `to` without `from`: block[operator] = to, and kept[value] for what crosses out of
 * it; all of it where it is the last. */
void ebb_lower_mark_block(const ebb_lower_sets *sets, uint32_t from, uint32_t to, bool *kept,
                          uint32_t *block);

/* ---- lower_build.c ---- */

typedef struct ebb_lower_builder ebb_lower_builder;

ebb_status ebb_lower_builder_new(ebb_lower_builder **builder, const ebb_remat_problem *problem,
                                 uint32_t forward, ebb_arena *arena);

/* The list, with what is not kept made again for the backward at its first read: late: that value
 * and what it lacks; else all that the backward wants of its block. Good until the next call. */
void ebb_lower_build(ebb_lower_builder *builder, ebb_remat_schedule *schedule, const bool *kept,
                     const uint32_t *block, bool late);
