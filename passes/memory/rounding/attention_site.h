/* attention_site.h: the nodes of an attention: the forward chain from its scores to its product with v,
 * and the backward chain that the gradient makes of it. attention.c shows both.
 */
#pragma once

#include "passes/memory/rounding/attention_mask.h"

enum { EBB_ATTENTION_NODES = 32, EBB_ATTENTION_STEPS = 6 };

typedef struct ebb_attention_site {
    ebb_node nodes[EBB_ATTENTION_NODES]; /* all that go */
    uint32_t count;
    ebb_node softmax, last;                   /* last: the product with v */
    ebb_value q, k, v, y, scores, p, weights; /* weights: what v is multiplied with */
    bool k_turned;                            /* k is [..., t, d] */
    double scale;
    ebb_masking mask;
    ebb_node steps
        [EBB_ATTENTION_STEPS]; /* from the scores' product to the softmax, the product excluded */
    uint32_t step_count;
    ebb_node not_a_number, guard, dropout;
    ebb_value dy, dq, dk, dv;
} ebb_attention_site;

/* The site of this softmax. False: none; else *why is NULL or the reason to leave it. trains: the graph
 * has a backward. */
bool ebb_attention_find(ebb_attention_site *s, const ebb_graph *g, ebb_node softmax, bool trains,
                        const char **why);

bool ebb_attention_has(const ebb_attention_site *s, ebb_node n); /* n goes with the site */
/* What the nodes outside read of it: y, and the gradients of q, k and v. */
bool ebb_attention_gives(const ebb_attention_site *s, ebb_value v);
