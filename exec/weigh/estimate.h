/* estimate.h: what passes may know of execution: the time of a node (node_time.h) and of exchanges (traffic.h,
 * link.h), and what a step takes in the arena.
 */
#pragma once

#include "exec/weigh/link.h"
#include "exec/weigh/memory.h"
#include "exec/weigh/node_time.h"
#include "exec/weigh/traffic.h"

typedef struct ebb_estimate {
    size_t *workspace_bytes; /* by node id: scratch of the kernel that would run it */
    uint32_t align;          /* of a tensor in the arena, bytes */
    bool maps;               /* weights are read in the model's file: ebb_memory_maps */
    bool runs;            /* every node has a kernel; moves, for which no GPU has one yet, aside */
    int threads;          /* of the host, for which this holds */
    uint64_t arena_bytes; /* as it stands, packed */
    uint64_t peak_bytes;
    double ns;
} ebb_estimate;

/* Arena memory. backend: as in ebb_plan_options; NULL: the default. */
ebb_status ebb_estimate_make(ebb_estimate *estimate, ebb_arena *arena, const ebb_graph *g,
                             const char *backend);
/* The same, sooner: the arena is not packed lower than `enough` bytes. UINT64_MAX: who does not ask for it. */
ebb_status ebb_estimate_within(ebb_estimate *estimate, ebb_arena *arena, const ebb_graph *g,
                               const char *backend, uint64_t enough);
/* Whether the back end has a kernel of its own for an operator, and not only the plain one it falls back on. */
ebb_status ebb_estimate_knows(bool *knows, const char *backend, ebb_op op);
