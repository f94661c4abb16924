/* tables.h: what the dynamic programmes of this room share. */
#pragma once

#include "passes/budget/planners/walk/walk.h"

/* least[n], n = 1 .. count: the least time for n * block steps whose first state is at hand, all
 * slots of level 0 free, moves in it for nothing. */
void ebb_walk_in_memory(double *least, uint32_t count, uint32_t block, const ebb_course *course);

/* The least of up[i] + down[-i], i = 0 .. count-1; HUGE_VAL where count is 0. */
double ebb_walk_least_sum(const double *up, const double *down, size_t count);
