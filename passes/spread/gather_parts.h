/* gather_parts.h: what the values of a step for several processes are, by value id: for pass gather. */
#pragma once

#include "rewrite/rewrite.h"

typedef enum ebb_held {
    EBB_HELD_SAME = 0, /* all processes have the same */
    EBB_HELD_OWN,      /* each its own: rows, its rank, and what is computed of them */
    EBB_HELD_PART,     /* each its part of something: of a weight, a state, a sum */
    EBB_HELD_SHARE,    /* the sum over its part, a number, which they add up */
} ebb_held;

/* Fills `held`. *why: at *at, why one process cannot have it all, a literal; else NULL. */
void ebb_held_find(ebb_held *held, const ebb_graph *g, int64_t ranks, const char **why,
                   ebb_node *at);

/* It ends a started exchange, and is the value of the exchange. */
bool ebb_ends_exchange(const ebb_graph *g, ebb_node n);

/* What was begun is exchanged at once; parts become what they are parts of, and a share the sum over all, which is
 * rank 0's then, the others having zero. What is left are AllReduces and Unshards of what each process has, and Rank. */
ebb_status ebb_parts_whole(ebb_edit *e, const ebb_held *held, int64_t ranks);
