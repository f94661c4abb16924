/* memory.h: the one ruler. Births, deaths, aliases, categories, peak.
 *
 * From node order alone: position p is the p-th node. A tensor lives from the position that makes
 * it (birth) to the last that touches it (death), both included; initializers and what replaces
 * them live through the whole step; inputs from 0; outputs to the end. Values that share memory
 * (by their marks `over`) are one tensor. The plan, the diff, the planners' objective and the arena all
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
 * weighed apart. Where the device is the host, that is also so of weights that no step changes: they are
 * read where the model's file is mapped.
 */
#pragma once

#include "onnx/graph/place.h"

enum { EBB_ALIGN = 64 };          /* the host's; another device's: ebb_device.align */
enum { EBB_MAPPED_LEAST = 4096 }; /* bytes: of a smaller weight more than itself would be read */

typedef enum ebb_category {                /* PyTorch's names where they exist */
                            EBB_PARAMETER, /* weights, buffers and constants */
                            EBB_GRADIENT,  /* of parameters */
                            EBB_OPTIMIZER_STATE,
                            EBB_INPUT,
                            EBB_ACTIVATION, /* made forward, read backward */
                            EBB_TEMPORARY,  /* all else */
                            EBB_WORKSPACE,  /* scratch of one node */
                            EBB_COMM, /* what processes exchange: scratch, and weights that they put together */
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
    uint32_t within; /* 1 + the index of the tensor of which it is a part, from `at` on; 0: none */
    uint64_t at;
    bool in_parts; /* it is moved part by part */
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
    ebb_value *mapped; /* initializers that are read in the model's file */
    size_t mapped_count;
    struct {
        uint64_t peak_bytes;
        uint32_t peak_position;
        uint64_t *live;        /* by position; NULL: nothing lies there */
    } places[EBB_PLACE_COUNT]; /* those away */
} ebb_memory;

typedef struct ebb_memory_terms {
    const size_t *workspace_bytes; /* by node id; NULL: none */
    uint32_t align;                /* a power of two */
    bool maps;                     /* the device reads the model's file where it is mapped */
    /* By value id: others weigh it. It takes nothing, nor does what shares its memory. NULL: none. */
    const bool *elsewhere;
} ebb_memory_terms;

/* Weighs g into arena memory. EBB_REJECTED naming the value where a size is unknown or overflows. */
ebb_status ebb_memory_weigh(ebb_memory *memory, ebb_arena *arena, const ebb_graph *g,
                            const ebb_memory_terms *terms);

/* Its peak_bytes, saved_bytes and total_bytes alone, without workspaces: no list is made, which takes
 * half the memory. */
ebb_status ebb_memory_total(ebb_memory *memory, const ebb_graph *g, uint32_t align);

/* ---- away.c ---- */

/* The peaks of other places, from the list of what lies there. EBB_REJECTED where bytes overflow. */
ebb_status ebb_memory_weigh_away(ebb_memory *memory, ebb_arena *arena);

/* ---- mapped.c ---- */

/* Whether v is a weight that can be read where the model's file is mapped: no step and no caller changes
 * it, it is worth it, and its elements are aligned there. In an external file the offset says so, whether
 * or not the file is there; a .onnx file aligns nothing, so of what it holds itself only elements of a
 * byte are. */
bool ebb_memory_maps(const ebb_graph *g, ebb_value v);
