/* sample.h: a random batch, and weights, for runs whose numbers do not matter but must be
 * repeatable. */
#pragma once

#include "onnx/graph/graph.h"

/* An array for each input that is no initializer, in arena memory: floats from a normal
 * distribution, integers and booleans 0 or 1 (valid as class, token and index nearly everywhere).
 * The numbers depend on seed, the input's name and the place of the element alone. */
ebb_status ebb_sample_batch(ebb_batch *batch, const ebb_graph *g, uint64_t seed, ebb_arena *arena);

/* Draws the weights by the model's own initialization graph where some have no bytes and there is
 * one. */
ebb_status ebb_sample_weights(ebb_model *model, uint64_t seed);
