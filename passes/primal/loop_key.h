/* loop_key.h: the random key in the body of a loop, another one in each of its steps. */
#pragma once

#include "rewrite/rewrite.h"

/* Which loop a graph is the body of, and where that stands. */
typedef struct ebb_loop_place {
    const struct ebb_loop_place *outer; /* of `around`; NULL: it is no body */
    ebb_graph *around;
    ebb_node loop;
} ebb_loop_place;

/* The key that nodes of e->g draw with: "ebb.key", or in the body of a loop one that is made of that of the
 * graph around and the step's number. at: NULL where it is no body. */
ebb_status ebb_loop_key(ebb_edit *e, const ebb_loop_place *at, ebb_value *key);
