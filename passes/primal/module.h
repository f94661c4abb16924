/* module.h: which module of the framework a linear layer was.
 *
 *     weight  model.layers.0.mlp.up_proj.weight            ──> model.layers.0.mlp.up_proj
 *     node    /model/layers.0/mlp/up_proj/MatMul_Q4        ──> model.layers.0.mlp.up_proj
 *     node    /model/layers.0/attn/q_proj/MatMul, of ONNX Runtime GenAI
 *                                                          ──> model.layers.0.self_attn.q_proj
 *
 *     note    "%linear : ... (args = (%view, %p_lm_head_weight))" of the dynamo exporter at the node
 *                                                          ──> lm_head
 *
 * A weight that lost its name, or is an embedding's as well, is called by the note at its node, or by the node, whose
 * path is the module's.
 */
#pragma once

#include "rewrite/rewrite.h"

/* The module of node n, whose weight is the initializer `stored` (none: made of several), as a PEFT
 * file names it. NULL: out of memory. */
char *ebb_module_of(const ebb_graph *g, ebb_node n, ebb_value stored, ebb_arena *scratch);

/* The same as the file has it; equal but for files of ONNX Runtime GenAI. */
char *ebb_module_in_file(const ebb_graph *g, ebb_node n, ebb_value stored, ebb_arena *scratch);
