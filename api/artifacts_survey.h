/* artifacts_survey.h: what a step trains, and by which optimizer, as ONNX Runtime's artifacts say it. */
#pragma once

#include "onnx/graph/graph.h"

typedef enum ebb_survey_optimizer {
    EBB_SURVEY_NONE,
    EBB_SURVEY_ADAMW,
    EBB_SURVEY_SGD,
} ebb_survey_optimizer;

typedef struct ebb_survey_recipe { /* the same for all parameters */
    ebb_survey_optimizer kind;
    double alpha, beta, epsilon, decay;
    int mode, correct; /* adam_mode, correct_bias */
    ebb_value lr, step;
} ebb_survey_recipe;

typedef struct ebb_survey_trained {
    ebb_value w, grad, m, v;
} ebb_survey_trained;

typedef struct ebb_survey {
    ebb_arena arena;
    ebb_survey_recipe recipe;
    ebb_survey_trained *list;
    size_t count;
    ebb_value *frozen; /* what the training graph reads beside them */
    size_t frozen_count, narrowed;
} ebb_survey;

/* Of a zeroed survey, in its arena; frozen is left to others. Refused: updates that no optimizer of ONNX
 * Runtime makes. */
ebb_status ebb_survey_step(ebb_survey *s, const ebb_graph *g);

/* That w is updated otherwise. */
ebb_status ebb_survey_other_optimizer(const ebb_graph *g, ebb_value w);
