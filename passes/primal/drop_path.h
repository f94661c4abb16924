/* drop_path.h: dropout that an exporter wrote as arithmetic on random numbers. */
#pragma once

#include "onnx/graph/graph.h"

typedef struct ebb_drop_path {
    ebb_value x;     /* what is dropped */
    ebb_value drawn; /* the uniform numbers: one decides for all elements that it is broadcast to */
    double keep;     /* the probability to keep, in (0, 1] */
    bool elements;   /* each element is dropped for itself: it is plain dropout */
} ebb_drop_path;

/* Whether n, a product, drops: *found then says what. Nothing between the numbers and n is read
 * elsewhere. */
bool ebb_drop_path_at(const ebb_graph *g, ebb_node n, ebb_drop_path *found);
