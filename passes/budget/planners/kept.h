/* kept.h: from a choice of kept values to a schedule, and the best of several schedules.
 *
 * What planners share that only choose which forward values stay: the choice is turned into
 * executions here, repeats as late as possible, and candidates are compared by the referee.
 */
#pragma once

#include "passes/budget/planners/planner.h"

/* How long a copy that was made again lives. */
typedef enum ebb_remat_hold {
    EBB_REMAT_HOLD,      /* until its last reader: each segment is made again once */
    EBB_REMAT_HOLD_READ, /* so what the operator reads; what only led there, until the operator */
    EBB_REMAT_RELEASE,   /* until the operator for which it was made: least memory, most work */
} ebb_remat_hold;

/* All operators in list order. A value of the forward that is not kept is gone after its last
 * reader of the forward; just before an operator of the backward that reads it, it is made again,
 * with what that needs, in list order.
 *
 *   list     x=F(i) y=G(x) z=H(y)  dz=H'(y)        dy=G'(x)       kept: z
 *   result   F G H                 F G H'(y)       G'(x)          hold
 *   result   F G H                 F G H'(y)       F G'(x)        release
 *
 * kept: by value, value_count long. Kept whatever it says: inputs, values of the backward, values
 * that stay, values of operators that must not be repeated, or not so late. When sixteen times the
 * list has been executed everything is held, so that the work stays linear. */
ebb_status ebb_remat_from_kept(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                               const bool *kept, ebb_remat_hold hold, ebb_arena *arena);

/* The same executions with each repeat moved to just before the first reader of what it makes. */
ebb_status ebb_remat_late(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                          const ebb_remat_schedule *from, ebb_arena *arena);

/* Without what nobody reads, and with repeats late unless the peak is lower so; and its weight. */
ebb_status ebb_remat_settle(ebb_remat_schedule *schedule, ebb_remat_weight *weight,
                            const ebb_remat_problem *problem, const ebb_remat_schedule *from,
                            ebb_arena *arena);

/* refill.c: what a schedule that fits leaves of the budget is used to keep values after all, those
 * first that cost most for their bytes to make again. Of many operators, as long as another round that saves as much as
 * the last would make it the cheapest. weight: of the schedule; both are renewed. */
ebb_status ebb_remat_refill(ebb_remat_schedule *schedule, ebb_remat_weight *weight,
                            const ebb_remat_problem *problem, uint64_t budget, double cheapest_ns,
                            ebb_arena *arena);

/* ---- the best of one method's ---- */

/* The best so far of a published method's schedules, as it makes them: no repeat is put later, and
 * nothing refilled. weight.peak_bytes is UINT64_MAX, or what must be beaten, before the first. */
typedef struct ebb_remat_record {
    const ebb_remat_problem *problem;
    uint64_t budget;
    ebb_arena *arena;
    uint32_t *ops;
    size_t count, capacity;
    ebb_remat_weight weight;
} ebb_remat_record;

/* What fits before what does not, then the lower of those that do not, then the cheaper. */
bool ebb_remat_beats(const ebb_remat_weight *w, const ebb_remat_weight *other, uint64_t budget);
/* Prunes and weighs a schedule, and keeps it if it is better than what there is. */
ebb_status ebb_remat_record_offer(ebb_remat_record *record, const ebb_remat_schedule *raw,
                                  ebb_remat_weight *weight);

/* ---- the best of several ---- */

/* Fits first; among those that fit the cheapest, among those that do not the lowest. */
struct ebb_remat_best {
    const ebb_remat_problem *problem;
    uint64_t budget;
    ebb_arena *arena; /* of the schedule */
    ebb_remat_schedule schedule;
    ebb_remat_weight weight;
    bool fits;
};

/* Weighs a candidate, as it is and with its repeats late; fills what it leaves of the budget; and
 * takes it if it is better. weight: NULL, or what the candidate weighed before it was refilled. */
ebb_status ebb_remat_best_offer(ebb_remat_best *best, const ebb_remat_schedule *candidate,
                                ebb_remat_weight *weight);

/* Offers what the planner of this name makes of the same problem and budget. */
ebb_status ebb_remat_best_ask(ebb_remat_best *best, const char *planner, uint64_t steps);

/* A method with one dial: a larger setting is cheaper and needs more bytes, nearly always. Makes a
 * schedule in scratch; count 0 where the setting gives none. */
typedef ebb_status (*ebb_remat_dial)(void *self, uint64_t setting, ebb_remat_schedule *schedule,
                                     ebb_arena *scratch);

/* Offers schedules from settings low .. high, at most `tries` of them: bisects for the largest that
 * fits; where the lowest does not fit, looks above it too. */
ebb_status ebb_remat_best_turn(ebb_remat_best *best, uint64_t low, uint64_t high, uint32_t tries,
                               ebb_remat_dial dial, void *self);

/* Calls `cut` for ever fewer stages, half as many each time, from `most` to `least`: it offers schedules of
 * that many. scratch: of one call. */
typedef ebb_status (*ebb_remat_cut)(void *self, ebb_remat_best *best, uint32_t most,
                                    ebb_arena *scratch);
ebb_status ebb_remat_best_halve(ebb_remat_best *best, uint32_t most, uint32_t least,
                                ebb_remat_cut cut, void *self);

/* How many schedules may be tried: `steps` microseconds of work, at most `most`, at least 4. */
uint32_t ebb_remat_tries(const ebb_remat_problem *problem, uint64_t steps, uint32_t most);
