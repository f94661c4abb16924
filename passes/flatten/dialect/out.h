/* out.h: a step's operators as ONNX Runtime's training build has them.
 *
 *     dX = ConvTranspose(dY, W),  dW = ai.ebb.ConvWeightGrad(dY, X),  dB = ReduceSum(dY)
 *     ──> dX, dW, dB = com.microsoft.ConvGrad(dY, X, W)
 *
 * What is not named here stays: standard operators, gradients that bear its names already, and
 * ours, whose bodies the file carries. The new ones have bodies, too (out.def), as functions of the
 * model: who has no such operator runs those.
 */
#pragma once

#include "onnx/graph/build.h"

/* Of a training graph without marks of shared memory. Afterwards ebb runs it no more: it reads it,
 * as it reads what ONNX Runtime writes. *narrowed: batch norms whose running variance was divided
 * by N - 1, and is by N from now on. */
ebb_status ebb_out_training(ebb_graph *g, size_t *narrowed);

/* What trains is put to rest: batch norm by running statistics, dropout passes on what it gets. Of
 * a graph that is a forward alone. EBB_UNSUPPORTED: a node draws random numbers otherwise. */
ebb_status ebb_out_eval(ebb_graph *g);

/* The body of a com.microsoft operator of out.def as a function of the model; where it has one
 * already, nothing. */
ebb_status ebb_out_body(ebb_model *model, const char *name);
