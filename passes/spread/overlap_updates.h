/* overlap_updates.h: pass overlap puts what is computed of sums behind what can be computed beside their exchange. */
#pragma once

#include "rewrite/rewrite.h"

/* Exchanges in their order, begun or not, and of each the number of the one before which it is over; `count`: none. */
ebb_status ebb_overlap_updates(ebb_edit *e, const ebb_node *exchanges, const size_t *until,
                               size_t count);
