/* copied.h: parameters that an exporter stored twice, made one again. */
#pragma once

#include "onnx/graph/graph.h"

/* Metadata of an initializer: the name of its copy, which nothing reads now. */
#define EBB_COPIED_AS "ebb.copied_as"

/* The bytes of an initializer say something: they are not one element over and over, nor few. */
bool ebb_has_content(const ebb_graph *g, ebb_value v);

/* Whether both hold the same numbers. False where these are all equal, as in fresh layers: that says
 * nothing. *turned: one is the transpose of the other. */
bool ebb_is_copy(const ebb_graph *g, ebb_value a, ebb_value b, bool *turned);

/* Readers of a copy read the parameter, in files from PyTorch; see copied.c. */
ebb_status ebb_copied_join(ebb_graph *g, ebb_arena *scratch);
/* The other way: who reads such a parameter transposed reads its copy again, which is trained by itself. */
ebb_status ebb_copied_part(ebb_graph *g);
