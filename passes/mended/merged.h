/* merged.h: initializers that an exporter made one because their values were equal, parted again. */
#pragma once

#include "onnx/graph/graph.h"

/* Metadata of an initializer that was parted: the name of the one that stood for it. */
#define EBB_MERGED_WITH "ebb.merged_with"

/* Gives its own initializer to each use that the file tells apart; see merged.c. And undoes the rest of
 * what folding did to parameters: absorbed.h, copied.h, unfolded.h, looked_up.h, dropped.h. Values of the
 * graph stay what they are. Once is enough: a second call finds nothing. */
ebb_status ebb_merged_part(ebb_graph *g, ebb_arena *scratch);

/* An initializer like `from`, under a name made from `name`: bytes, role, metadata, and drawn as it
 * is in a skeleton. */
ebb_status ebb_initializer_copy(ebb_graph *g, ebb_value from, const char *name, ebb_value *copy);

/* A float initializer that is a parameter, or a statistic, or may be one. */
bool ebb_may_be_merged(const ebb_graph *g, ebb_value v);

/* Whether a parameter is used here as the scale or bias of one operator. */
bool ebb_is_own_slot(const ebb_graph *g, ebb_use use);
