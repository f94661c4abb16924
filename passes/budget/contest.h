/* contest.h: who gets a tensor that several passes of a pipeline want.
 *
 * Passes that stand side by side in a pipeline and make offers (ebb_offered) are first all heard on
 * a copy of the graph. Where two want the same tensor, the one that saves more bytes for its time
 * gets it, whichever comes first in the list; the other is refused there and reports to whom it
 * lost. So the order of a list loses no savings.
 */
#pragma once

#include "rewrite/rewrite.h"

typedef struct ebb_claim { /* the best offer for a value */
    double worth;
    size_t entrant; /* index + 1 into the list; 0: nobody wants it */
} ebb_claim;

typedef struct ebb_contest {
    const ebb_pass *const *entrants;
    double copy_ns;    /* of a byte */
    size_t count, now; /* who runs now */
    ebb_claim *claims; /* by value id of the graph as it was heard */
    size_t value_count;
    size_t refused;       /* offers that the present entrant was refused */
    ebb_arena *keep;      /* reasons */
    const char **lost_to; /* by entrant: the reason that names it, or NULL */
} ebb_contest;

/* The contest of these passes, with claims empty, in arena memory. */
ebb_status ebb_contest_init(ebb_contest *c, const ebb_graph *g, const ebb_pass *const *entrants,
                            size_t count, ebb_arena *arena);

/* Deciders (ebb_edit): the first takes every offer of entrant `now` down and refuses it, the second
 * refuses what a later entrant does better. */
const char *ebb_contest_hear(void *contest, const ebb_pass *pass, ebb_node site,
                             const ebb_offer *offer);
const char *ebb_contest_judge(void *contest, const ebb_pass *pass, ebb_node site,
                              const ebb_offer *offer);
