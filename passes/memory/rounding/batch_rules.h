/* batch_rules.h: how operators treat parts of a batch. For micro-batch.
 *
 * A value of a step that is computed in parts is there in one of these forms:
 *
 *   WHOLE  as before: of the whole batch, or without one. Any of its axes may be sliced.
 *   PARTS  part i has slice i of its axis `axis`; with `outer` > 1 that axis counts other things
 *          before the batch, [outer, batch], and part i has slice i of the inner one
 *   SUM    the value is the sum of what the parts have: weight gradients, losses
 *   OWN    each part has its own, of use to its own nodes alone: a batch norm's statistics
 *   CHAIN  each part goes on from the one before, the last has the value: running statistics
 *   LATER  of the whole batch, but only when all parts are done
 *
 *   MatMul(x PARTS 0, w WHOLE) -> PARTS 0        MatMul(x' PARTS 1, dy PARTS 0) -> SUM
 *
 * A rule says what of this an operator makes of it, or that it does not know.
 */
#pragma once

#include "passes/common.h"

typedef enum ebb_batch_where {
    EBB_BATCH_WHOLE = 0,
    EBB_BATCH_PARTS,
    EBB_BATCH_SUM,
    EBB_BATCH_OWN,
    EBB_BATCH_CHAIN,
    EBB_BATCH_LATER,
} ebb_batch_where;

typedef struct ebb_batch_form {
    ebb_batch_where where;
    int axis;      /* PARTS: which. WHOLE: the batch's, where it is known, else -1 */
    int64_t outer; /* where there is an axis: what it counts before the batch, often 1 */
} ebb_batch_form;

enum { EBB_BATCH_OPERANDS = 64 };

/* One node: `in` comes as the inputs are; a rule may ask for parts of a WHOLE one. */
typedef struct ebb_batch_node {
    const ebb_graph *g;
    ebb_node n;
    ebb_arena *scratch;
    int64_t parts;
    bool spread;        /* each part by a process of its own */
    bool norm_per_part; /* batch norm may take each part for itself */
    ebb_batch_form in[EBB_BATCH_OPERANDS], out[EBB_BATCH_OPERANDS];
    int64_t outer;   /* of all that is in parts */
    int shape_input; /* this input holds the output's shape; -1: none does */
    bool mean;       /* output 0 is a mean over the batch: each part's counts 1 / parts */
    bool weighs;     /* a loss that divides by what counts: over the whole batch, not a part */
} ebb_batch_node;

/* Fills `out` (and asks of `in`), where at least one input is in PARTS, SUM or OWN. NULL, or why
 * the node cannot be computed in parts: a literal. */
const char *ebb_batch_rule(ebb_batch_node *b);
