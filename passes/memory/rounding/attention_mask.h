/* attention_mask.h: what stands between the scores of attention and their softmax. Only attention.c
 * uses it. */
#pragma once

#include "passes/common.h"

typedef struct ebb_masking { /* as the operator's inputs and attributes say it */
    bool causal;
    bool fills; /* fill and replace mean something */
    double fill;
    bool replace;
    ebb_value condition; /* bool that decides what is kept; none: everything is */
    bool inverted;       /* it says what is not kept */
    bool split;          /* it is an And of `rest` and of what `causal` says or is true anyway */
    ebb_value rest[4];
    uint32_t rest_count;
    ebb_value bias; /* none: none is added */
} ebb_masking;

/* Takes in scores + m; NULL, or why the operator cannot say it. */
const char *ebb_masking_add(ebb_masking *mask, const ebb_graph *g, ebb_value m);

/* Takes in Where(condition, scores, fill), or with the branches exchanged. */
const char *ebb_masking_where(ebb_masking *mask, const ebb_graph *g, ebb_value condition,
                              bool scores_first, ebb_value fill);

/* The bool input that says what is kept, made where it is not there. made: by value id, what was
 * made for that condition before, so that layers share it. */
ebb_status ebb_masking_keep(ebb_value *keep, const ebb_masking *mask, ebb_edit *e, ebb_node before,
                            ebb_value *made);
