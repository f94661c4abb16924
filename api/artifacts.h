/* artifacts.h: ONNX Runtime's training artifacts, opened as one training step. */
#pragma once

#include "api/api.h"

/* The model's file: PATH, or in a folder its training_model.onnx. Memory of the arena; NULL: none
 * left. */
const char *ebb_artifacts_file(ebb_arena *arena, const char *path);

/* Where the graph is such a training graph (it ends in gradient accumulators): its weights,
 * gradients, running statistics and loss become those of a step. Before inference. */
ebb_status ebb_artifacts_join(ebb_model *model, bool *joined);

/* Takes in what lies beside the file: `checkpoint` and optimizer_model.onnx, with the same letters
 * before their names as training_model.onnx has. What is not there is left out. After inference. */
ebb_status ebb_artifacts_finish(ebb_model *model, const char *file);
