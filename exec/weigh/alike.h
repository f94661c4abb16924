/* alike.h: layers and parts of a sequence repeat each other. Which kernel takes a node, and with how much workspace, depends
 * on its types, attributes and bodies: so the first of those that are alike is asked. */
#pragma once

#include "onnx/graph/graph.h"

typedef struct ebb_alikes {
    const ebb_graph *g;
    ebb_node *slots; /* by hash; none: free */
    size_t mask;
} ebb_alikes;

ebb_status ebb_alikes_make(ebb_alikes *a, const ebb_graph *g, ebb_arena *arena);
/* The first that was asked for and is like n; none: n, from now on. Types and attributes may no longer change. */
ebb_node ebb_alikes_first(ebb_alikes *a, ebb_node n);
