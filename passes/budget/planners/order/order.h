/* order.h: what the parts of the search for an order share. Read order.c first.
 *
 *   order.c          the search
 *   order_greedy.c   orders made from nothing, to begin with
 *   order_weigh.c    one order weighed, by the rules of weigh.c; moves of many operators at once
 *   order_cut.c      the best state in which one operator can run: a minimum cut
 *   order_window.c   the best order of a short stretch: dynamic programming over sets
 *
 * An order is an array of all operators, each once. The state at position i is what is alive
 * between the operators i-1 and i; while an operator runs, its outputs and workspace come on top.
 */
#pragma once

#include "passes/budget/planners/planner.h"

enum { EBB_ORDER_WINDOW = 64 }; /* the longest stretch: its sets are bits of a word */

typedef struct ebb_order_weight {
    uint64_t peak;
    uint32_t at;    /* the first position with the peak */
    uint32_t times; /* how many positions have it */
    double area;    /* bytes alive, summed over the operators that make any: so an update, which
                     * makes none, does not count as worse for running while much is alive */
} ebb_order_weight;

typedef struct ebb_order_flow ebb_order_flow; /* order_cut.c */

typedef struct ebb_order {
    const ebb_remat_problem *p;
    uint32_t n; /* operators */
    /* Who must run before and after operator u: pred[pred_from[u]] ... pred[pred_from[u + 1] - 1].
     */
    uint32_t *pred_from, *pred, *succ_from, *succ;
    uint64_t *made; /* by operator: bytes of its outputs */
    /* Of the order weighed last. */
    uint32_t *position; /* by operator */
    uint32_t *last;     /* by value: position of its last read; UINT32_MAX: to the end */
    uint64_t *state;    /* by position, n + 1 of them */
    uint64_t *live;     /* by position: bytes while the operator there runs */
    uint64_t *dying;
    /* Scratch. */
    uint32_t *anchor, *bucket; /* n + 1 */
    uint32_t *local;           /* by value */
    ebb_order_flow *flow;
    uint64_t work, limit; /* things touched, and how many may be */
    ebb_arena *arena;
} ebb_order;

static inline bool ebb_order_spent(const ebb_order *o)
{
    return o->work >= o->limit;
}

/* ---- order_weigh.c ---- */

ebb_status ebb_order_init(ebb_order *o, const ebb_remat_problem *problem, ebb_arena *arena);
ebb_order_weight ebb_order_weigh(ebb_order *o, const uint32_t *seq);
bool ebb_order_better(const ebb_order_weight *a, const ebb_order_weight *b);

/* into: seq with each operator that makes more than it frees moved down to its first reader. Needs
 * seq to be the order weighed last. */
void ebb_order_sink(ebb_order *o, const uint32_t *seq, uint32_t *into);
/* into: seq with each operator that frees more than it makes moved up to its last operand. */
void ebb_order_rise(ebb_order *o, const uint32_t *seq, uint32_t *into);

/* ---- order_greedy.c ---- */

/* An order made from nothing; position[] breaks ties. */
ebb_status ebb_order_greedy(ebb_order *o, bool forwards, uint32_t *into);

/* ---- order_cut.c ---- */

/* Of all sets of operators that may run before seq[at] does, those with the least alive: `small`
 * the smallest such set, `large` the largest, by operator. Operators further than `reach` positions
 * away stay on their side. found: false where there is no choice, or where it would be too much
 * work. Needs seq to be the order weighed last. */
ebb_status ebb_order_cut(ebb_order *o, const uint32_t *seq, uint32_t at, uint32_t reach,
                         bool *small, bool *large, bool *found);

/* ---- order_window.c ---- */

/* Puts the operators seq[from] ... seq[from + count - 1] into the best order: lowest peak, where
 * all peaks up to `floor` count as equal; then least area. Looks at no more than `width` sets of
 * each size; exact: NULL, or whether these were all. Needs seq to be the order weighed last, and
 * leaves position[] and state[] as they are after the change. */
ebb_status ebb_order_window(ebb_order *o, uint32_t *seq, uint32_t from, uint32_t count,
                            uint64_t floor, uint32_t width, bool *changed, bool *exact);
