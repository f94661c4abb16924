/* sign.h: what the gradient of a ReLU, LeakyReLU or Clip asks of a value of the forward: where it
 * lies between two bounds; and its answer from one bit an element, made by the forward.
 *
 *   dx = ReluGrad(dy, y)        b = PackSign(y)   dx = MaskGrad(dy, b)
 */
#pragma once

#include "passes/common.h"

typedef struct ebb_sign_question {
    ebb_node node;       /* who asks */
    ebb_value v;         /* about what; none: this node asks nothing of the kind */
    double low, high;    /* is low < v < high? Infinite: no bound */
    double alpha;        /* dx = dy where it is so, else alpha dy */
    bool compares;       /* the answer is wanted as bools */
    const char *refused; /* why bits cannot answer, or NULL */
} ebb_sign_question;

/* What node n of the backward asks. v may be a value of the backward. */
ebb_sign_question ebb_sign_asked(const ebb_graph *g, ebb_node n);

/* Whether the use asks no more than that: ReluGrad, LeakyReluGrad, ClipGrad of constant bounds. */
bool ebb_asks_sign(const ebb_graph *g, ebb_use use, ebb_sign_question *q);

/* Whether one mask answers both. */
bool ebb_sign_same(const ebb_sign_question *a, const ebb_sign_question *b);

/* Puts the answer from a mask in the node's place; the mask is made right after v, where an earlier
 * question has not made it. q is not refused. */
ebb_status ebb_sign_mask(ebb_edit *e, const ebb_sign_question *q);
