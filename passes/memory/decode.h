/* decode.h: a saved value is kept as codes: an encoder after its maker, a decoder before each
 * reader.
 *
 *   before   h = Gelu(x) ... y = MatMul(h, W)       dW = FusedMatMul(Reshape(h), dy)
 *   after    h = Gelu(x)  c = Encode(h) ...         dW = FusedMatMul(Decode(c), dy)
 *
 * Views are seen through on both sides: the decoder gives the shape that the reader wants, and the
 * view that made it goes. What is decoded lives for that reader alone.
 */
#pragma once

#include "passes/common.h"

typedef struct ebb_reads { /* ebb_saves, and by whom */
    ebb_saves saves;
    ebb_use *list;   /* operands of backward and update nodes, those of a root together, in order */
    uint32_t *first; /* by root: where its begin; one more than values: the end */
    bool *captured;  /* by root: a subgraph reads it */
} ebb_reads;

ebb_status ebb_reads_find(ebb_reads *reads, const ebb_graph *g, ebb_arena *scratch);

/* The reads of a root: *count of them. */
static inline const ebb_use *ebb_reads_of(const ebb_reads *reads, ebb_value root, uint32_t *count)
{
    *count = reads->first[root.i + 1] - reads->first[root.i];
    return reads->list + reads->first[root.i];
}

/* A saved tensor whose bytes could be let go after the forward: why not, as a clause, or NULL. */
const char *ebb_must_stay(const ebb_reads *reads, ebb_value root);

/* A builder that puts nodes where `root` has just been made, and names them after it. */
ebb_build ebb_encode_after(ebb_edit *e, ebb_value root);

/* Makes, with b, root's value again in this shape. */
typedef ebb_value (*ebb_decode_fn)(void *context, ebb_build *b, const ebb_type *shape);

/* Operand `use` reads what `decode` makes right before its node; two operands of one node that want
 * the same shape share it. */
ebb_status ebb_decode_before(ebb_edit *e, ebb_use use, ebb_decode_fn decode, void *context);
