/* overlap_updates.h: pass overlap puts what is computed of sums behind what can be computed beside their exchange. */
#pragma once

#include "rewrite/rewrite.h"

/* Exchanges in their order, begun or not, so many of which are under way at once. */
ebb_status ebb_overlap_updates(ebb_edit *e, const ebb_node *exchanges, size_t count, size_t depth);
