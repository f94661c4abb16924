/* allowance.h: how much a node may do, by what its file holds.
 *
 * A few bytes can ask for years: an Einsum of many vectors, a DFT, a ConstantOfShape. So a node may
 * do some work whatever its file is, and more in proportion to the bytes that come with the file
 * (its weights) and that must be given to it (its inputs). What the file computes from itself does
 * not count: two nodes could otherwise allow a third whatever it wants.
 *
 *     operations       OPERATIONS + OPERATIONS_A_BYTE * (weights + inputs)
 *     bytes touched    BYTES + BYTES_A_BYTE * (weights + inputs)        workspace included
 *
 * A model that is trusted (ebb_trust, --trust) may do what it likes.
 */
#pragma once

#include "onnx/graph/graph.h"

typedef struct ebb_allowance {
    double given;             /* bytes of weights and inputs */
    double operations, bytes; /* of one node; infinite where the model is trusted */
} ebb_allowance;

/* Of the nodes of a graph of this model, bodies included. */
ebb_allowance ebb_allowance_of(const ebb_model *model);

/* EBB_REJECTED, by the node's name and with what it asks for, where it is beyond its allowance. */
ebb_status ebb_allowance_check(const ebb_allowance *allowance, const ebb_graph *g, ebb_node n,
                               size_t workspace_bytes);

/* Whether a node may be computed while its graph is changed (exec/run/eval.h), by a command that
 * was asked for no run: little work, and not so many large results that the graph becomes huge. */
bool ebb_allowance_evaluates(const ebb_graph *g, ebb_node n, size_t result_bytes);
