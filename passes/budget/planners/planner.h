/* planner.h: recomputation in numbers: a problem, a schedule, a planner, and one referee.
 *
 * A problem is a step graph without names: operators in list order, values with bytes, and who
 * reads what. A schedule is a list of operators to execute, repeats included; each read takes the
 * latest copy. A planner makes a schedule of a problem under a budget. The referee weighs any
 * schedule.
 *
 *   problem.c    graph -> problem: views are seen through, operators get cost and workspace
 *   weigh.c      the referee: legality, peak, cost
 *   apply.c      schedule -> graph: copies of nodes, in schedule order, reads redirected
 *   NAME.c       one planner each; the roll is planners.def
 *
 *   problem     0: x -> a     1: a -> b     2: b -> c     3: c,b -> d     4: d,a -> e
 *   schedule    0 1 2 3 0 4       a is dropped after 1 and made again for 4: copy a' lives at 4..5
 *
 * Planners know numbers alone: no graph, no budget text, no reports. What a planner returns is
 * always weighed; it may return a schedule above the budget where it finds no better one.
 */
#pragma once

#include "onnx/words/arena.h"

#define EBB_REMAT_NONE UINT32_MAX

enum { EBB_REMAT_MANY = 2500 }; /* operators: of more, what hardly ever helps is left out */

typedef struct ebb_remat_value {
    uint64_t bytes;
    uint32_t op; /* who makes it; EBB_REMAT_NONE: an input, there from the start */
    bool stays;  /* a graph output or what replaces a state: its last copy lives to the end */
    const uint32_t *readers; /* operators that read it, ascending, each once */
    uint32_t reader_count;
} ebb_remat_value;

typedef struct ebb_remat_over { /* `out` may be written over `in` where this is in's last read */
    uint32_t out, in;           /* values of equal bytes */
} ebb_remat_over;

typedef struct ebb_remat_op {
    const uint32_t *in, *out; /* values, each once; what is alive throughout is not listed */
    uint32_t in_count, out_count;
    const ebb_remat_over *over; /* in order of preference */
    uint32_t over_count;
    uint64_t workspace; /* bytes while it runs */
    double cost_ns;
    bool once;     /* must not be repeated: it draws without a key, updates a state ... */
    bool backward; /* of the backward or the update */
    /* It must not be executed after this operator's first execution, which overwrites a state that
     * it reads. EBB_REMAT_NONE: no such operator. */
    uint32_t before;
    /* For those who change the order of first executions: all such operators (`before` is the one
     * that list order runs first). */
    const uint32_t *befores;
    uint32_t before_count;
} ebb_remat_op;

/* Operators are numbered in list order, which is an order that runs: inputs come first. */
typedef struct ebb_remat_problem {
    const ebb_remat_op *ops;
    uint32_t op_count;
    const ebb_remat_value *values;
    uint32_t value_count;
    uint64_t base_bytes; /* alive throughout: parameters, states, constants; counted in all peaks */
    double move_ns;      /* of a byte to the slower place, or back */
    bool moves;          /* there are Stores or Fetches: when they run is planned already */
    int threads;         /* that may plan; 0: the caller's alone. No plan depends on them */
} ebb_remat_problem;

typedef struct ebb_remat_schedule {
    const uint32_t *ops; /* operators in the order of execution, and moves among them */
    size_t count;
} ebb_remat_schedule;

/* Moves of a value to a slower place and back (onnx/graph/place.h). What is stored is written once
 * and may be fetched several times; what comes back is the latest copy from then on. */
typedef enum ebb_remat_move_kind {
    EBB_REMAT_STORE, /* starts to write the latest copy */
    EBB_REMAT_AWAY,  /* waits for that: until here the copy is there */
    EBB_REMAT_FETCH, /* starts to read: from here on a copy takes memory */
    EBB_REMAT_BACK,  /* waits for that */
} ebb_remat_move_kind;

/* A schedule names a move by a number behind those of the operators. */
static inline uint32_t ebb_remat_move(const ebb_remat_problem *problem, ebb_remat_move_kind kind,
                                      uint32_t value)
{
    return problem->op_count + 4 * value + (uint32_t)kind;
}

static inline bool ebb_remat_is_move(const ebb_remat_problem *problem, uint32_t op)
{
    return op >= problem->op_count;
}

static inline ebb_remat_move_kind ebb_remat_moves_how(const ebb_remat_problem *problem,
                                                      uint32_t move)
{
    return (ebb_remat_move_kind)((move - problem->op_count) % 4);
}

static inline uint32_t ebb_remat_moves_what(const ebb_remat_problem *problem, uint32_t move)
{
    return (move - problem->op_count) / 4;
}

/* Planners that change the schedules of others leave those with moves as they are. */
bool ebb_remat_has_moves(const ebb_remat_problem *problem, const ebb_remat_schedule *schedule);

/* ---- weigh.c: the referee ---- */

typedef struct ebb_remat_weight {
    uint64_t peak_bytes;
    size_t peak_at; /* index into the schedule */
    double cost_ns;
    size_t repeats;       /* executions beyond each operator's first */
    uint64_t moved_bytes; /* to the slower place, and back */
} ebb_remat_weight;

/* Memory is that of exec/weigh/memory.h: a copy lives from its execution to the last read before the next
 * execution of its operator; what nobody reads lives during its own; where `over` allows and the
 * input dies, one block serves both. live: NULL, or bytes at each execution, schedule->count long.
 * EBB_VERIFY where the schedule reads what is not there yet, repeats what must not be, or lacks a
 * value that stays: a planner's mistake. */
ebb_status ebb_remat_weigh(ebb_remat_weight *weight, uint64_t *live,
                           const ebb_remat_problem *problem, const ebb_remat_schedule *schedule,
                           ebb_arena *scratch);

/* Every operator once, in list order. */
ebb_status ebb_remat_keep_all(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                              ebb_arena *arena);

/* No schedule that executes every operator can need less: the operator with the most operands, and
 * all that stays together. */
uint64_t ebb_remat_floor(const ebb_remat_problem *problem);

/* A schedule without the executions whose copies nobody reads (repeated until none is left). */
ebb_status ebb_remat_prune(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                           const ebb_remat_schedule *from, ebb_arena *arena);

/* ---- order.c: no operator is repeated, but each may run elsewhere ---- */

/* Every operator once, in an order with as low a peak as can be found, never above that of list
 * order; among equal peaks, one with fewer bytes alive in sum over the positions. An order with a
 * lower peak, put in as a list order, gets no lower. List order where there are moves. steps: as in a
 * planner. */
ebb_status ebb_remat_order(ebb_remat_schedule *order, const ebb_remat_problem *problem,
                           uint64_t steps, ebb_arena *arena);

/* permute.c: the same problem with its operators numbered in another order that runs. A schedule of
 * it names order->ops[i] by i. */
ebb_status ebb_remat_permute(ebb_remat_problem *permuted, const ebb_remat_problem *problem,
                             const ebb_remat_schedule *order, ebb_arena *arena);

/* relist.c: the same executions, repeats included, in an order with a lower peak; the schedule
 * itself where none is found. */
ebb_status ebb_remat_relist(ebb_remat_schedule *better, const ebb_remat_problem *problem,
                            const ebb_remat_schedule *schedule, uint64_t steps, ebb_arena *arena);

/* ---- the roll: planners.def ---- */

typedef struct ebb_remat_best ebb_remat_best; /* kept.h */

typedef struct ebb_planner {
    const char *name;  /* "chain-dp" */
    const char *doc;   /* one line */
    const char *paper; /* the published method, or NULL */
    /* A schedule that fits, as cheap as the method makes it; else the lowest that it finds.
     * steps: a bound on the work, in units of about a microsecond; never a clock, so that the same
     * problem gives the same schedule everywhere. */
    ebb_status (*plan)(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                       uint64_t budget, uint64_t steps, ebb_arena *arena);
    /* Or, in its place: offers schedules one by one (kept.h), where the whole list does not fit. */
    ebb_status (*offer)(ebb_remat_best *best, uint64_t steps, ebb_arena *scratch);
    /* Fast enough on problems of so many operators that `search` starts from what it finds, at many
     * budgets; 0: never. */
    uint32_t seeds;
    uint32_t points; /* so many, that what it finds is among what `search` and `fit` choose from */
} ebb_planner;

const ebb_planner *const *ebb_planners(size_t *count);
const ebb_planner *ebb_planner_find(const char *name); /* NULL: none */
ebb_status ebb_planner_plan(const ebb_planner *planner, ebb_remat_schedule *schedule,
                            const ebb_remat_problem *problem, uint64_t budget, uint64_t steps,
                            ebb_arena *arena);
