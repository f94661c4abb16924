/* piece.h: which nodes of a step's backward are the gradient of a piece of its forward.
 *
 *   forward    x -> [ a = F(x)  b = G(x, a)  y = H(b) ] -> y
 *   backward   dy -> [ H' G' F' and the sums between them ] -> what x gets, in parts
 *
 * The rules of the operator table are asked once more what the gradient of the piece is, and what
 * they emit is looked for in the backward, node by node: operator, attributes, operands. Only what
 * is found so is taken for it; names tell nothing. A backward that other passes have rewritten is
 * not found, and the piece is left alone.
 */
#pragma once

#include "passes/common.h"

typedef struct ebb_piece {
    const ebb_node *nodes; /* of the forward, in order */
    size_t count;
    ebb_value
        x; /* the one value from outside that gets a gradient; more than one node may read it */
    ebb_value y; /* what the last node makes */
} ebb_piece;

typedef struct ebb_piece_grad {
    bool found;
    ebb_value dy;   /* what arrives at y */
    ebb_value part; /* what dx takes the place of: one part of what x gets ... */
    ebb_use *sums;  /* ... and the additions of the others, which give way to this operand */
    size_t sum_count;
    ebb_node *dead; /* what the backward can do without when dx is there, the additions included */
    size_t dead_count;
} ebb_piece_grad;

/* Scratch memory of the edit. The graph is as before, whatever is found. */
ebb_status ebb_piece_grad_find(ebb_piece_grad *grad, ebb_edit *e, const ebb_piece *piece);

/* What the backward need not keep any more once the dead nodes are gone: bytes, and how many values
 * of y's shape those nodes read. But for `y`, which is read again (none: nothing is). */
typedef struct ebb_piece_saves {
    int64_t bytes;
    ebb_value largest; /* of what goes */
    size_t full;       /* forward values of y's shape and dtype that the dead nodes read */
} ebb_piece_saves;
ebb_status ebb_piece_grad_saves(ebb_piece_saves *result, const ebb_piece_grad *grad, ebb_edit *e,
                                const ebb_saves *saves, ebb_value like, ebb_value read_again);

/* A builder for dx, in the backward, behind dy. */
ebb_build ebb_piece_grad_build(ebb_edit *e, const ebb_piece_grad *grad);
/* dx in place of all parts; the dead nodes go. */
ebb_status ebb_piece_grad_replace(ebb_edit *e, const ebb_piece_grad *grad, ebb_value dx);
