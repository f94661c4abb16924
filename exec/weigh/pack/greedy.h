/* greedy.h: first fit and best fit by several orders; local search over orders. */
#pragma once

#include "exec/weigh/pack/piece.h"

typedef struct ebb_greedy ebb_greedy;

/* In scratch memory; NULL: out of memory. The pieces must stay. */
ebb_greedy *ebb_greedy_new(const ebb_piece *pieces, uint32_t count, ebb_arena *scratch);

uint64_t ebb_greedy_height(const ebb_greedy *g);
const uint64_t *ebb_greedy_offsets(const ebb_greedy *g); /* by piece */
const char *ebb_greedy_method(const ebb_greedy *g);

/* Tries the orders, the first one whatever the budget, until `enough` is reached. */
void ebb_greedy_orders(ebb_greedy *g, uint64_t enough, ebb_budget *budget);

/* Improves the best one, then starts from the other orders in turn. */
void ebb_greedy_search(ebb_greedy *g, uint64_t enough, ebb_budget *budget);
