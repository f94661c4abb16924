/* lost.h: what the exporter took out of a model for good. `ebb check` and train-mode say it. */
#pragma once

#include "onnx/graph/graph.h"

typedef enum ebb_lost_kind {
    EBB_LOST_BATCH_NORM, /* folded into the convolution before it, in inference mode */
    EBB_LOST_SHARING,    /* equal parameters merged into one: training ties them */
    EBB_LOST_NAME,       /* a weight without the name that its module gave it; it is trained */
    EBB_LOST_TIE,        /* one parameter that is stored twice: training would part the two */
    EBB_LOST_DETACH,     /* detach(): gradients would pass where none did */
    EBB_LOST_WEIGHT,     /* weights that only something computed of them is left of */
    EBB_LOST_MARK,       /* parameters or buffers: the file does not tell */
    EBB_LOST_UPDATE,     /* what each forward puts into a buffer, and a no_grad() around it */
    EBB_LOST_SUM,        /* of a small number that keeps a root from 0 */
    EBB_LOST_KIND_COUNT
} ebb_lost_kind;

const char *ebb_lost_help(ebb_lost_kind kind); /* what a user can do; a clause */

typedef struct ebb_lost {
    ebb_lost_kind kind;
    ebb_node node;   /* where, or none */
    ebb_value value; /* which initializer, or none */
    char *sentence;
    bool refused; /* no run trains the model without being told */
} ebb_lost;

/* Findings in arena memory; *count 0 where nothing seems lost. These are judgements from what is
 * left: a convolution with bias and ReLU may have been written so. After ebb_merged_part. */
ebb_status ebb_lost_list(ebb_lost **list, size_t *count, const ebb_graph *g, ebb_arena *arena);

/* Whether v is the scale or bias of several operators, and for nothing else: merged, or shared on purpose. */
bool ebb_is_shared(const ebb_graph *g, ebb_value v);
