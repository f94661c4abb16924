/* unroll.h: what other passes ask of pass unroll. */
#ifndef EBB_PASSES_FLATTEN_UNROLL_H
#define EBB_PASSES_FLATTEN_UNROLL_H

#include "rewrite/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes nodes of the bodies of If, Loop and Scan behind `after` (none: from the first on) and
 * before `end`, where that can be, with at most `most` copies of a body, and folds there what is
 * constant. Results keep their names; ids of values do not last. */
ebb_status ebb_unroll_between(ebb_edit *e, ebb_node after, ebb_node end, int64_t most);

#ifdef __cplusplus
}
#endif
#endif
