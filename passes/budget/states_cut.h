/* states_cut.h: updates of large weights in parts of their rows, for states that lie in another place. */
#pragma once

#include "passes/budget/states.h"

typedef struct ebb_cuts {  /* in scratch memory of the edit */
    const ebb_node *split; /* by value id of a state: what takes it apart */
    uint32_t count;        /* ids */
} ebb_cuts;

/* Cuts the updates of one node whose states may go, and whose operands take more than wish->most; says how many
 * were cut, and what the largest takes. */
ebb_status ebb_states_cut(ebb_cuts *cuts, ebb_edit *e, ebb_away_states *wish);

static inline ebb_node ebb_cut_state(const ebb_cuts *cuts, ebb_value state)
{
    return state.i < cuts->count ? cuts->split[state.i] : EBB_NO_NODE;
}

/* states.c: what the step replaces by `next` is one of those that are moved. */
bool ebb_state_may_go(const ebb_graph *g, const ebb_away_states *wish, ebb_value state,
                      ebb_value next);
