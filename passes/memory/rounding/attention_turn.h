/* attention_turn.h: keys that a Transpose brings to [..., d, t], as the scores' product wants them.
 * Only attention.c uses it.
 */
#pragma once

#include "passes/common.h"

typedef struct ebb_key_turn {
    int rank;
    ebb_node forward;  /* the Transpose that makes the keys */
    ebb_node backward; /* the one that undoes it for their gradient; none: none is wanted */
    int64_t perm[EBB_MAX_RANK], back_perm[EBB_MAX_RANK]; /* as they become */
} ebb_key_turn;

/* Whether the keys k, with the gradient dk or none, can be read as [..., t, d]: a Transpose makes
 * them, and another reads dk and is all that does. Who reads k is the caller's to know. */
bool ebb_key_turn_find(ebb_key_turn *turn, const ebb_graph *g, ebb_value k, ebb_value dk);

/* The keys as [..., t, d], made before the node of b. */
ebb_value ebb_key_turn_emit(ebb_build *b, const ebb_graph *g, const ebb_key_turn *turn);

/* What the backward Transpose gives, of a gradient dk [..., t, d]. */
ebb_value ebb_key_turn_back(ebb_build *b, const ebb_key_turn *turn, ebb_value dk);
