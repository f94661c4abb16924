/* sweep.h: training steps over operators and sizes, to measure a machine where no model is at hand.
 */
#pragma once

#include "onnx/graph/graph.h"

/* How many there are, each ten to a hundred nodes. */
size_t ebb_sweep_count(void);

/* Step number i, made by the ordinary passes: free with ebb_model_free. Its weights have no bytes.
 */
ebb_status ebb_sweep_make(ebb_model **model, size_t i);
const char *ebb_sweep_name(size_t i); /* "convolutions 2" */

/* A few of them that stand for what steps do, none of which takes long. */
enum { EBB_SWEEP_MIX = 3 };
ebb_status ebb_sweep_make_mix(ebb_model **model, size_t i);
