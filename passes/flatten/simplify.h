/* simplify.h: what is constant is computed, and what does nothing goes. */
#pragma once

#include "rewrite/rewrite.h"

/* Computes what is constant in the graph and drops what does nothing; dead nodes are swept. */
ebb_status ebb_fold_all(ebb_edit *e);

/* Computes what is constant among the nodes behind `after` (none: from the first on) and before
 * `end`. Results keep their names; ids of values do not last. */
ebb_status ebb_fold_between(ebb_edit *e, ebb_node after, ebb_node end);

/* The same where shapes count, too: types are inferred, and Shape of a known shape is constant. */
ebb_status ebb_fold_shapes_between(ebb_edit *e, ebb_node after, ebb_node end);
