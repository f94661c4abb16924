/* control.h: If, Loop and Scan become copies of their bodies. */
#pragma once

#include "passes/flatten/body.h"
#include "passes/common.h"

typedef struct ebb_unroll {
    ebb_edit *e;
    ebb_graph *g;
    size_t nodes;    /* put so far */
    int64_t most;    /* copies of one body */
    size_t start;    /* values of the graph before this node was looked at */
    ebb_node before; /* the last node before those that were put for this one */
} ebb_unroll;

/* The node's operator where it is If, Loop or Scan, else EBB_OP_UNKNOWN. */
ebb_op ebb_unroll_control(const ebb_graph *g, ebb_node n);
/* The one element of a constant; false where it is not known. */
bool ebb_unroll_number(const ebb_graph *g, ebb_value v, int64_t *x);
/* One of them. *why: NULL where it has become nodes. */
ebb_status ebb_unroll_node(ebb_unroll *u, ebb_node n, const char **why);

/* Makes nodes of the bodies of If, Loop and Scan behind `after` (none: from the first on) and
 * before `end`, where that can be, with at most `most` copies of a body, and folds there what is
 * constant. Results keep their names; ids of values do not last. */
ebb_status ebb_unroll_between(ebb_edit *e, ebb_node after, ebb_node end, int64_t most);

/* ---- control.c for control_scan.c, and back ---- */

/* What the names of its copies begin with: its own, else that of what it makes. */
const char *ebb_unroll_place(const ebb_unroll *u, ebb_node n);
/* Emits before n, with names below place. */
ebb_build ebb_unroll_build(const ebb_unroll *u, ebb_node n, const char *place);
/* Squeeze or Unsqueeze of one axis, at any opset. */
ebb_value ebb_unroll_one_axis(ebb_build *b, ebb_op op, ebb_value x, int64_t axis);
/* list[0..count) along a new axis. */
ebb_value ebb_unroll_stack(ebb_build *b, ebb_arena *scratch, const ebb_value *list, size_t count,
                           int64_t axis);
/* One copy of a body before n. in: what its first `given` inputs are. out: what it made, when what is constant is
 * folded. */
ebb_status ebb_unroll_copy(ebb_unroll *u, ebb_body *body, ebb_node n, const char *place,
                           const ebb_value *in, size_t given, ebb_value *out);

ebb_status ebb_unroll_scan(ebb_unroll *u, ebb_node n, const char **why);
