/* unmarked.h: parameter or buffer, in a file of PyTorch's TorchScript exporter, which marks neither. */
#pragma once

#include "onnx/graph/graph.h"

typedef enum ebb_unmarked {
    EBB_UNMARKED_UNKNOWN = 0,
    EBB_UNMARKED_PARAMETER, /* it has the name of a layer's, or stands before such a one of its module */
    EBB_UNMARKED_BUFFER, /* it stands behind a buffer of its module */
    EBB_UNMARKED_FROZEN, /* it stands beside running statistics that no batch norm reads */
} ebb_unmarked;

/* What is found once for a file. */
typedef struct ebb_unmarked_file {
    const ebb_graph *g;
    uint32_t *place; /* of an initializer in the file's order, by value id */
    struct ebb_unmarked_node {
        const char *name;
        ebb_node n;
    } * nodes; /* in the order of their names, which are paths of modules */
    size_t node_count;
} ebb_unmarked_file;

ebb_status ebb_unmarked_find(ebb_unmarked_file *file, const ebb_graph *g, ebb_arena *scratch);

/* Of a tensor that kept its name. What decides beside the name is the order of the file: of each module its
 * parameters, its buffers, and then the modules within it. */
ebb_unmarked ebb_unmarked_of(const ebb_unmarked_file *file, ebb_value v);

/* Whether the weight of a node, which lost its name, was surely a parameter: the node is all that its module
 * computes, but for sums and moves, as in a linear layer or a convolution; or what is added to it is named as
 * a bias; or it is recurrent; or the file does not tell modules. */
bool ebb_unmarked_is_layer(const ebb_unmarked_file *file, ebb_node n);

/* Whether a module computes x * a + b alone, of what has no names, and the node is one of the two: a frozen batch
 * norm that folding went through, or a scale and a shift of its own. */
bool ebb_unmarked_is_scale(const ebb_unmarked_file *file, ebb_node n);

/* Whether a tensor of v's shape kept its name and is read in the module of v's reader, too: then v, which lost
 * its name, may have been computed of it. alike: it is read by the same operator. */
bool ebb_unmarked_keeps_twin(const ebb_unmarked_file *file, ebb_value v, bool alike);
