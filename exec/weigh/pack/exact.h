/* exact.h: is there a packing within a capacity? */
#pragma once

#include "exec/weigh/pack/piece.h"

typedef enum ebb_verdict { EBB_GAVE_UP, EBB_FOUND, EBB_IMPOSSIBLE } ebb_verdict;

enum { EBB_EXACT_MOST = 1024 }; /* pieces; memory grows with their square */

/* Searches until the budget is spent. EBB_FOUND: offsets[] by piece are filled in, multiples of
 * the alignment, all ends (offset + bytes) within the capacity. At most EBB_EXACT_MOST pieces. */
ebb_status ebb_pack_exact(ebb_verdict *verdict, uint64_t *offsets, const ebb_piece *pieces,
                          uint32_t count, uint64_t alignment, uint64_t capacity,
                          ebb_budget *budget);
