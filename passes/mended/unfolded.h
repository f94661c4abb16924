/* unfolded.h: parameters that constant folding repeated, taken back to what they were. */
#pragma once

#include "onnx/graph/graph.h"

/* Metadata of an initializer: it stood in the file several times over. */
#define EBB_REPEATED "ebb.repeated"

/* In files from PyTorch; see unfolded.c. Values of the graph stay what they are. */
ebb_status ebb_repeated_shrink(ebb_graph *g);

/* Whether v may be trained, has all its bytes, and neither a mark nor a name of a module's state. */
bool ebb_initializer_is_folded(const ebb_graph *g, ebb_value v);

/* An initializer with v's metadata and this one more, for what v was made of. */
ebb_status ebb_initializer_restate(ebb_graph *g, ebb_value *made, ebb_value v, const ebb_type *type,
                                   const void *bytes, const char *mark);

/* What read v reads y, which is made of `made`; that takes v's name. */
ebb_status ebb_initializer_give_way(ebb_graph *g, ebb_value v, ebb_value made, ebb_value y,
                                    ebb_arena *scratch);
