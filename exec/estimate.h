/* estimate.h: what passes may know of execution: a node's time, and what a step takes in the arena.
 *
 * A node's time is its metadata "ebb.cost_ns" where it has one (the `cost` pass writes it from
 * measurements); else a roofline estimate from its operations and bytes.
 */
#ifndef EBB_EXEC_ESTIMATE_H
#define EBB_EXEC_ESTIMATE_H

#include "exec/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

double ebb_node_ns(const ebb_graph *g, ebb_node n);
double ebb_node_bytes(const ebb_graph *g, ebb_node n); /* of its operands; unknown ones count 0 */

/* What a machine of the roofline's kind needs to do and to move so much. */
double ebb_roofline_ns(double flops, double bytes);

typedef struct ebb_estimate {
    size_t *workspace_bytes; /* by node id: scratch of the kernel that would run it */
    uint32_t align;          /* of a tensor in the arena, bytes */
    bool runs;               /* every node has a kernel */
    uint64_t arena_bytes;    /* as it stands, packed */
    uint64_t peak_bytes;
    double ns;
} ebb_estimate;

/* Arena memory. backend: as in ebb_plan_options; NULL: the default. */
ebb_status ebb_estimate_make(ebb_estimate *estimate, ebb_arena *arena, const ebb_graph *g,
                             const char *backend);

#ifdef __cplusplus
}
#endif
#endif
