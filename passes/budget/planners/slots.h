/* slots.h: a schedule that can be changed and weighed in small steps.
 *
 * The operators' first executions stand in list order, one slot each; a repeat runs in some later
 * slot, before that slot's own operator. So a schedule is, for each operator, the set of slots in
 * which it runs; any such sets are legal, since operators within a slot run in list order and
 * inputs live as long as somebody reads them.
 *
 *     slot        0    1    2    3      4
 *     executes    0    1    2    3    0 4          operator 0 runs in slots {0, 4}
 *
 * Live bytes are kept by slot (heights.h): a copy that lives from slot s to slot d counts in
 * s+1 .. d, and what happens inside a slot is walked through when the slot changes. Adding or
 * taking away one execution costs O(operands x log slots). Slot number op_count is the end of the
 * step: what stays is read there.
 */
#pragma once

#include "passes/budget/planners/heights.h"
#include "passes/budget/planners/planner.h"

typedef struct ebb_slots_runs { /* where one operator runs, ascending; the first is its own slot */
    uint32_t *slot;
    uint32_t *death; /* [run][output]: the slot of the copy's last read */
    uint32_t count, capacity;
} ebb_slots_runs;

typedef struct ebb_slots_list { /* what runs in one slot, in list order */
    uint32_t *op;
    uint32_t count, capacity;
} ebb_slots_list;

typedef struct ebb_slots_change { /* for undoing */
    uint32_t op, slot;
    bool added;
} ebb_slots_change;

typedef struct ebb_slots {
    const ebb_remat_problem *p;
    ebb_arena *arena;
    uint32_t slot_count; /* op_count + 1 */
    ebb_slots_runs *runs;
    ebb_slots_list *lists;
    uint32_t *input_death; /* by value, for inputs of the problem */
    int64_t *inside;       /* by slot: most bytes above those alive at its start */
    ebb_heights live;      /* by slot */
    double cost_ns;
    size_t repeats;
    uint32_t *dirty; /* slots whose inside is to be walked through again */
    uint32_t dirty_count;
    bool *is_dirty;
    uint32_t *read_last, *read_stamp, stamp; /* by value: in the walk, the last that reads it */
    ebb_slots_change *log;
    size_t log_count, log_capacity;
    uint64_t work; /* counts what was done, in tenths of a microsecond or so */
    bool held;     /* see ebb_slots_hold */
    bool failed;   /* out of memory: results mean nothing */
} ebb_slots;

/* Keeps everything. Arena memory. */
ebb_status ebb_slots_make(ebb_slots *s, const ebb_remat_problem *problem, ebb_arena *arena);

/* Runs op in this slot, too; it must not do so yet. / No longer; not its own slot. */
void ebb_slots_add(ebb_slots *s, uint32_t op, uint32_t slot);
void ebb_slots_drop(ebb_slots *s, uint32_t op, uint32_t slot);
/* Between these two, slots are not walked through: for several changes at a time. Bytes may be
 * asked for only after ebb_slots_settle. Pairs do not nest. */
void ebb_slots_hold(ebb_slots *s);
void ebb_slots_settle(ebb_slots *s);
/* Back to what it was when the log had this length. */
void ebb_slots_undo(ebb_slots *s, size_t log_count);

/* Whether the peak would be above the budget without op's repeat in this slot, for certain: what it made lives on from
 * before it, where there is no room. */
bool ebb_slots_misses(const ebb_slots *s, uint32_t op, uint32_t slot, int64_t budget);

/* May op run in this slot, by `once` and `before`? */
bool ebb_slots_may(const ebb_slots *s, uint32_t op, uint32_t slot);
/* The run of op whose copies are there in this slot (the latest not after it). */
uint32_t ebb_slots_run_at(const ebb_slots *s, uint32_t op, uint32_t slot);
/* The first slot after `after` in which something reads this run's copy of v; UINT32_MAX: none. */
uint32_t ebb_slots_next_read(const ebb_slots *s, uint32_t v, uint32_t run, uint32_t after);
/* The last slot before `before` in which something reads this run's copy of v; its own if none. */
uint32_t ebb_slots_last_read(const ebb_slots *s, uint32_t v, uint32_t run, uint32_t before);
/* The slot of the last read of v's copy that is there in this slot. */
uint32_t ebb_slots_death(const ebb_slots *s, uint32_t v, uint32_t slot);

int64_t ebb_slots_peak(const ebb_slots *s); /* with base_bytes */
uint32_t ebb_slots_peak_slot(const ebb_slots *s);
int64_t ebb_slots_most(const ebb_slots *s, uint32_t first, uint32_t last); /* over these slots */
/* Bytes at the fullest moment of each slot, into peaks[slot_count]. */
void ebb_slots_profile(const ebb_slots *s, int64_t *peaks);

/* Repeats that nobody reads any more are taken away. Returns how many. */
size_t ebb_slots_prune(ebb_slots *s);

ebb_status ebb_slots_schedule(const ebb_slots *s, ebb_remat_schedule *schedule, ebb_arena *arena);
/* Takes over the repeats of a schedule (what repeats twice within a slot does so once). The order
 * of first executions must be list order; false where it is not. */
bool ebb_slots_load(ebb_slots *s, const ebb_remat_schedule *schedule);
