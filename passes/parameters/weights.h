/* weights.h: whether one initializer is a weight, where its file does not say. */
#pragma once

#include "passes/parameters/noted.h"
#include "passes/parameters/trainable.h"
#include "passes/parameters/unmarked.h"

/* Metadata of an initializer: the file held what was looked up in it (mended/looked_up.h). */
#define EBB_LOOKED_UP "ebb.looked_up"

/* Metadata of an initializer: it stands for the weights of two layers, and nothing tells whether they are tied. */
#define EBB_MAYBE_TIED "ebb.maybe_tied"

/* Metadata of an initializer: it stands for the result of this call, which was computed before the run. */
#define EBB_COMPUTED "ebb.computed"

typedef struct ebb_judge {
    const ebb_graph *g;
    ebb_arena *scratch;
    /* the exporter marked what it could: names are of calls, and say nothing for one */
    bool marked;
    ebb_noted_losses losses;
    ebb_unmarked_file unmarked; /* of a TorchScript file; else without graph */
} ebb_judge;

ebb_status ebb_weight_judge(ebb_judge *j, ebb_value v, ebb_weight *weight);

/* Of a TorchScript file, once all are judged: what was computed of another weight, as 1 - w, would part from it. */
ebb_status ebb_weights_judge_beside(const ebb_judge *j, ebb_weight *list);

/* Whether a node computes a function of it alone, or normalises it. */
bool ebb_use_is_alone(const ebb_graph *g, ebb_use use);
