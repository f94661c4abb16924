/* unroll_parts.h: what the files of pass unroll have of each other. */
#ifndef EBB_PASSES_FLATTEN_UNROLL_PARTS_H
#define EBB_PASSES_FLATTEN_UNROLL_PARTS_H

#include "passes/flatten/body.h"
#include "passes/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_unroll {
    ebb_edit *e;
    ebb_graph *g;
    size_t nodes;    /* put so far */
    int64_t most;    /* copies of one body */
    size_t start;    /* values of the graph before this node was looked at */
    ebb_node before; /* the last node before those that were put for this one */
} ebb_unroll;

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

/* unroll_scan.c. *why: NULL where it has become nodes. */
ebb_status ebb_unroll_scan(ebb_unroll *u, ebb_node n, const char **why);

#ifdef __cplusplus
}
#endif
#endif
