/* pieces.h: tensors that are walked through step by step, in pieces of whole steps, one a part.
 *
 * Parts are counted as they are gone through: of what is walked through backwards, part 0 has the end. What is
 * walked through is sliced where its part begins, unless a gradient is to come back to it: then it is split
 * once, so that the gradients of its pieces are put together once. What is itself put together of such
 * pieces, and perhaps squeezed, gives those, and a table that the model has becomes tables.
 */
#pragma once

#include "rewrite/rewrite.h"

typedef struct ebb_pieces {
    ebb_edit *e;
    ebb_graph *g;
    ebb_node before; /* where nodes go, and of which phase they are */
    ebb_node n;      /* what is cut */
    const char *name;
    int64_t steps;
    uint32_t parts;     /* of one length, but for a step */
    const bool *learns; /* by value id: a gradient may come back to it */
    size_t value_count; /* those there were; so it may to all later ones */
} ebb_pieces;

typedef struct ebb_whole { /* walked through, or put together */
    ebb_value v;
    int axis;
    bool backwards;
    ebb_value *piece; /* by part; NULL: sliced when wanted */
    ebb_node squeeze; /* what is still to be done with each; none: nothing */
    bool joined;      /* it is put together of them */
} ebb_whole;

/* Of what is walked through. */
ebb_status ebb_whole_open(const ebb_pieces *s, ebb_whole *w);
ebb_status ebb_whole_take(const ebb_pieces *s, const ebb_whole *w, uint32_t part, ebb_value *piece);
/* Its pieces stand for v. */
ebb_status ebb_whole_put_together(const ebb_pieces *s, const ebb_whole *w);

/* A node before s->n with any number of outputs, whose types are still to be inferred. */
ebb_status ebb_pieces_add_node(const ebb_pieces *s, ebb_node *made, const char *op,
                               const char *name, const ebb_value *in, uint32_t in_count,
                               const ebb_value *out, uint32_t out_count);
ebb_status ebb_pieces_add_value(const ebb_pieces *s, ebb_value *v, const char *name);
