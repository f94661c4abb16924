/* moves.h: changes to a set of executions that bring it within a budget, or make it cheaper.
 *
 *   evict    at the fullest slot, take a value that waits there and make it again where it is read
 *            next, with all that this needs and is not there; the best ratio of time to bytes over
 *            the budget goes first
 *   uproot   where the repeats of the fullest slot themselves are too much, leave one of them to
 *            live on from before, and drop what was repeated for it alone
 *   drop     take an execution away: readers use the copy before it, which lives longer
 *   ruin     drop a few executions at random, and evict anew until the budget holds
 *
 * Random numbers come from a fixed seed and work is counted (in the units of slots.h): the same
 * state gives the same moves everywhere.
 */
#pragma once

#include "passes/budget/planners/slots.h"

enum { EBB_MOVES_TABU = 64 };

/* Units of slots.h in a microsecond, measured. */
static const uint64_t ebb_moves_units = 40;

typedef struct ebb_moves_repeat {
    uint32_t op, slot;
    double cost_ns;
} ebb_moves_repeat;

typedef struct ebb_moves {
    const ebb_remat_problem *p;
    ebb_arena *arena;
    ebb_slots s; /* the state */
    int64_t budget;
    int64_t *peaks;       /* by slot */
    double *over;         /* prefix sums of bytes over the budget */
    uint32_t *over_count; /* prefix counts of slots over the budget */
    uint32_t *mark, stamp;
    uint32_t *closure, closure_count;
    ebb_slots_change tabu[EBB_MOVES_TABU]; /* executions not to be added again in this repair */
    uint32_t tabu_count;
    ebb_moves_repeat *repeats; /* those that are there, listed anew when asked */
    size_t repeat_count, repeat_capacity;
    uint64_t random;
} ebb_moves;

/* Room for problems of this many operators; the state is the caller's to make. */
ebb_status ebb_moves_make(ebb_moves *f, uint32_t op_count, ebb_arena *arena);

/* Evicts and uproots until the budget holds; false: it was not reached within the work, the cost or
 * so many steps uphill. noise: 0, or how much the order of choice is shaken. */
bool ebb_moves_repair(ebb_moves *f, double noise, double cost_limit, uint64_t work,
                      uint32_t uphill);
/* Drops what the budget has room for, dearest first, until nothing more goes or the work is used
 * up. */
void ebb_moves_polish(ebb_moves *f, uint64_t work);
/* Ruins and repairs until the work is used up; keeps what is not dearer. */
void ebb_moves_improve(ebb_moves *f, uint64_t work);
