/* loop_key.h: the random key in the body of a loop, another one in each of its steps. */
#pragma once

#include "rewrite/rewrite.h"

/* The key that nodes of e->g draw with: "ebb.key", or in the body of loop n of `around` one that is made of
 * it and the step's number. */
ebb_status ebb_loop_key(ebb_edit *e, ebb_graph *around, ebb_node n, ebb_value *key);
