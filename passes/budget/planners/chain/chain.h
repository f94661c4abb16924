/* chain.h: a step problem as a chain of stages.
 *
 * The forward is cut where little crosses: at articulation points of the graph where there are any.
 * Planners for chains speak of stages 0 .. n-1; the last is the one in which the backward turns.
 *
 *   forward     | F F F | F F | F F F F |        cut:  positions in forward[]
 *   crossing    0       x1    x2        0        in[i] bytes enter stage i
 *   backward    | B B B B B B | B B | B B B |    turn: stage 2 first, then 1, then 0
 *
 * Bytes are measured by the referee's rules on the real operators: in place where an input dies,
 * workspace, several outputs. What the chain cannot say (values that skip stages, gradients that
 * wait for the update) is approximated, so plans are always weighed on the true problem.
 */
#pragma once

#include "passes/budget/planners/kept.h"

typedef struct ebb_chain {
    const ebb_remat_problem *problem;
    uint32_t stages;         /* 0: there is no forward to cut */
    const uint32_t *forward; /* operators that run before the turn, in list order */
    uint32_t forward_count;
    const uint32_t *cut;      /* stages + 1: stage i is forward[cut[i] .. cut[i+1]) */
    const uint32_t *backward; /* all other operators, in list order */
    uint32_t backward_count;
    const uint32_t *turn; /* stages + 1: stage i's part is backward[turn[i+1] .. turn[i]) */

    const uint32_t *stage_of; /* by value: the stage that makes it; NONE: an input, the backward */
    const uint32_t *reach;    /* by value: position in forward[] of its last reader there */
    const bool *read_back;    /* by value: the backward reads it */
    const bool *always;       /* by value: kept in any plan; counted in no figure below but base */

    uint64_t base;         /* what is there throughout: parameters, inputs, always */
    const uint64_t *in;    /* stages + 1: bytes that enter stage i; 0 for the first and the end */
    const uint64_t *saved; /* made in stage i and kept where nothing is made again */
    const uint64_t *drop; /* highest while stage i runs and keeps only what leaves it; without in */
    const uint64_t *fill; /* highest while it runs and keeps all that the backward reads */
    const uint64_t *back; /* highest in its backward: what it saved, gradients, workspace */
    const uint64_t *grad; /* stages + 1: gradients that wait when the backward of stage i begins */
    const double *ns;     /* its forward, without what may not be repeated */
    const uint64_t *redo; /* highest while just that runs again which its own backward needs */
    const double *redo_ns; /* and the time of it; for the last stage, which is first run, all */
} ebb_chain;

/* At most `most` stages (at least 1), neighbours merged where least crosses between the merged. */
ebb_status ebb_chain_make(ebb_chain *chain, const ebb_remat_problem *problem, uint32_t most,
                          ebb_arena *arena);

/* Fills kept, by value: what crosses into a stage i with enters[i], all that is made in stage
 * `from` or later, and what every plan keeps. enters: by stage; the first counts for nothing. */
ebb_status ebb_chain_keep(const ebb_chain *chain, const bool *enters, uint32_t from, bool *kept);

/* ---- schedules from stages ---- */

/* A list of executions that grows by stages. What may not be repeated is left out of repeats: its
 * value stays. Any order of stages runs in which each is preceded once by all before it. */
typedef struct ebb_tape {
    const ebb_chain *chain;
    ebb_arena *arena;
    bool *done; /* by operator */
    uint32_t *ops;
    size_t count, capacity;
    size_t most; /* longer than this is not worth weighing: `full` is set, nothing more is added */
    bool full;
} ebb_tape;

ebb_status ebb_tape_start(ebb_tape *tape, const ebb_chain *chain, size_t most, ebb_arena *arena);
ebb_status ebb_tape_forward(ebb_tape *tape, uint32_t stage);
ebb_status ebb_tape_backward(ebb_tape *tape, uint32_t stage);
ebb_status ebb_tape_again(ebb_tape *tape, uint32_t op); /* one operator, where it may */
ebb_status ebb_tape_move(ebb_tape *tape, ebb_remat_move_kind kind, uint32_t value);

/* Most bytes beside `base` where every stage keeps all that its backward reads; at least 1. */
uint64_t ebb_chain_all_kept(const ebb_chain *c);
