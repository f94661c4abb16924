/* lift.h: what a body has of its own goes to the graph around it, where it is one thing, however often the body is
 * copied or run. */
#pragma once

#include "passes/flatten/control.h"

/* An edit of a body, with a report of its own. */
ebb_edit ebb_lift_edit(const ebb_unroll *u, ebb_graph *body, ebb_report *report);
/* Initializers that may be weights, and large ones, become those of u->g, which the body reads by name. */
ebb_status ebb_lift_weights(ebb_unroll *u, ebb_edit *inner);
/* Nodes of the loop's body that compute the same in each step become nodes of u->g before it. */
ebb_status ebb_lift_same(ebb_unroll *u, ebb_edit *inner, ebb_node loop);
/* Weights of bodies within bodies of u->g become those of the body around: copies of that share them, as copies of a
 * body share its own. */
ebb_status ebb_lift_within(ebb_unroll *u);
