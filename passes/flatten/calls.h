/* calls.h: which of the model's functions a node calls, and how many nodes calls unfold to.
 *
 * Functions are found by name: by the number of the interned name first, then by domain and
 * overload among those of one name. Sizes are found along the calls, each function once, so that
 * the work is that of reading all bodies, however many functions there are and however deep they
 * nest.
 */
#pragma once

#include "onnx/graph/graph.h"

typedef struct ebb_calls {
    const ebb_model *model;
    uint32_t *first; /* by id of a name: 1 + the first function of that name; 0: none ... */
    uint32_t *next;  /* ... and by function, the next one of the same name */
    size_t name_count;
    size_t looked_at; /* functions and nodes so far: the work done */
} ebb_calls;

/* In arena memory. Functions must stay where they are meanwhile; names may be added. */
ebb_status ebb_calls_index(ebb_calls *calls, const ebb_model *model, ebb_arena *arena);

/* Index + 1 of the function that a node of g calls; 0: none. */
size_t ebb_calls_find(ebb_calls *calls, const ebb_graph *g, const ebb_node_info *node);

/* "" and "ai.onnx" are one. */
bool ebb_calls_same_domain(const char *a, const char *b);

/* Nodes that the model unfolds to, functions put in. EBB_REJECTED where a function calls itself, by
 * way of others or not, or where they are more than `most`. */
ebb_status ebb_calls_bound(ebb_calls *calls, uint32_t most, ebb_arena *scratch);
