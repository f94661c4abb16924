/* traffic.h: what a step gives to the other processes of its group. */
#pragma once

#include "onnx/graph/graph.h"

/* Of one process, as kernels/plain/group.c exchanges it. */
typedef struct ebb_traffic {
    int64_t ranks; /* 1: the step is for one */
    uint64_t nodes, exchanges, sent_bytes;
} ebb_traffic;

/* Shapes are known. */
ebb_traffic ebb_traffic_of(const ebb_graph *g);

/* What a node's exchanges take by the link that the model is planned for (link.h); 0: none is known. */
double ebb_exchange_ns(const ebb_graph *g, ebb_node n);
