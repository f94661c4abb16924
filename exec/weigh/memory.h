/* memory.h: the one ruler. Births, deaths, aliases, categories, peak.
 *
 * From node order alone: position p is the p-th node. A tensor lives from the position that makes
 * it (birth) to the last that touches it (death), both included; initializers and what replaces
 * them live through the whole step; inputs from 0; outputs to the end. Values that share memory
 * (node over[] marks) are one tensor. The plan, the diff, the planners' objective and the arena all
 * read this.
 *
 *   position    0     1     2     3
 *   w        |=======================|   initializer
 *   x        |===========|               input, last read at 1
 *   h              |===========|         born at 1, last read at 2
 *
 * Sizes are rounded up to the alignment of the device that the graph is planned for, so that what
 * is weighed is what is allocated there.
 *
 * What lies in another place (onnx/graph/place.h) takes no memory of the device: it is listed and
 * weighed apart.
 */
#ifndef EBB_EXEC_WEIGH_MEMORY_H
#define EBB_EXEC_WEIGH_MEMORY_H

#include "onnx/graph/place.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_ALIGN = 64 }; /* the host's; another device's: ebb_device.align */

typedef enum ebb_category {                /* PyTorch's names where they exist */
                            EBB_PARAMETER, /* weights, buffers and constants */
                            EBB_GRADIENT,  /* of parameters */
                            EBB_OPTIMIZER_STATE,
                            EBB_INPUT,
                            EBB_ACTIVATION, /* made forward, read backward */
                            EBB_TEMPORARY,  /* all else */
                            EBB_WORKSPACE,  /* scratch of one node */
                            EBB_COMM,
                            EBB_CATEGORY_COUNT
} ebb_category;

const char *ebb_category_name(ebb_category category); /* "PARAMETER" */

typedef struct ebb_memory_tensor {
    uint32_t birth, death; /* positions, both included */
    uint64_t bytes;        /* rounded up to the alignment */
    ebb_category category;
    ebb_value value; /* the first of those that share it; none for a workspace */
    ebb_node node;   /* who made it; workspace: whose it is */
} ebb_memory_tensor;

typedef struct ebb_memory_away { /* a tensor in another place */
    ebb_place place;
    uint32_t birth, death;
    uint64_t bytes; /* rounded up to the alignment of the place */
    ebb_value value;
} ebb_memory_away;

typedef struct ebb_memory {
    ebb_memory_tensor *tensors;
    size_t tensor_count;
    uint32_t *tensor_of;    /* by value id: index + 1 into tensors; 0: takes no memory */
    uint32_t *workspace_of; /* by node id, the same */
    uint64_t *live;         /* by position: bytes alive */
    uint32_t positions;     /* nodes */
    uint64_t peak_bytes;
    uint32_t peak_position;
    uint64_t at_peak[EBB_CATEGORY_COUNT]; /* adds up to peak_bytes */
    uint64_t
        saved_bytes; /* forward values that the backward reads; inputs and initializers excluded */
    uint64_t total_bytes; /* of all tensors, if none shared */
    ebb_memory_away *away;
    size_t away_count;
    uint32_t *away_of; /* by value id: index + 1 into away; NULL: all is where the step runs */
    struct {
        uint64_t peak_bytes;
        uint32_t peak_position;
        uint64_t *live;        /* by position; NULL: nothing lies there */
    } places[EBB_PLACE_COUNT]; /* those away */
} ebb_memory;

/* Weighs g into arena memory. workspace_bytes by node id, or NULL: none. align: a power of two.
 * EBB_REJECTED naming the value where a size is unknown or overflows. */
ebb_status ebb_memory_weigh(ebb_memory *memory, ebb_arena *arena, const ebb_graph *g,
                            const size_t *workspace_bytes, uint32_t align);
/* The same of a body, some of whose values (by id) lie where others weigh them: they take nothing, nor
 * does what shares their memory. NULL: none. */
ebb_status ebb_memory_weigh_body(ebb_memory *memory, ebb_arena *arena, const ebb_graph *g,
                                 const bool *elsewhere, const size_t *workspace_bytes,
                                 uint32_t align);

/* Its peak_bytes, saved_bytes and total_bytes alone, without workspaces: no list is made, which takes
 * half the memory. */
ebb_status ebb_memory_total(ebb_memory *memory, const ebb_graph *g, uint32_t align);

#ifdef __cplusplus
}
#endif
#endif
