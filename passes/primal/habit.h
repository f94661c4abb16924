/* habit.h: what exporters write that training wants otherwise, and which pass sees to it.
 *
 * A table of patterns, each of one node. The same pattern is counted in the file and again in what
 * the passes made of it: so `ebb check` says "handled" of what is gone, and of nothing else.
 */
#pragma once

#include "onnx/graph/graph.h"

typedef struct ebb_habit {
    const char *kind; /* "frozen-batch-norm" */
    const char *what; /* a clause: what such nodes are */
    const char *pass; /* of `ebb grad`'s own, which leaves none; NULL: there is none */
    const char *help; /* what a user can do, where some stay */
    bool harmless;    /* where some stay, training is as good */
    bool (*fits)(const ebb_graph *g, ebb_node n);
} ebb_habit;

const ebb_habit *ebb_habits(size_t *count);

/* Calls `each` for every node of the model, those of bodies and functions included; stops at the
 * first error. g is the graph that n belongs to. */
typedef ebb_status (*ebb_visits)(void *context, const ebb_graph *g, ebb_node n);
ebb_status ebb_visit_nodes(const ebb_model *model, ebb_visits each, void *context);

/* Whether the node calls one of the model's own functions that is no operator of ours. */
bool ebb_calls_function(const ebb_graph *g, ebb_node n);
