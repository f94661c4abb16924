/* plan.h: everything about a step that needs no weights.
 *
 * plan.c picks a kernel for each node, asks for its workspace, weighs (memory.h) and packs
 * (pack.h): all that `ebb plan` prints. It does so with as many threads as the setting says,
 * whichever thread calls it.
 */
#pragma once

#include "exec/weigh/memory.h"
#include "exec/weigh/pack.h"
#include "kernels/kernels.h"

/* How a step is computed. What it takes, and with it a plan, follows from this and the graph. */
typedef struct ebb_setting {
    const ebb_backend *const *backends;
    uint64_t seed;
    int threads; /* of the host */
    bool deterministic;
    uint64_t enough; /* bytes of an arena that need not be packed lower; 0: as low as can be */
} ebb_setting;

/* Of a model's steps, by a back end's name; threads 0: as many as the model says. */
ebb_status ebb_setting_read(ebb_setting *setting, const ebb_model *model, const char *backend,
                            uint64_t seed, int threads);

typedef struct ebb_plan {
    const ebb_graph *g;
    const bool *elsewhere; /* of a body, by value id: others weigh it (memory.h); NULL: none */
    ebb_setting setting;
    ebb_node *order; /* nodes by position */
    ebb_call *calls; /* by position; data pointers not yet set; NULL in an estimate */
    const ebb_kernel *
        *kernels;            /* by position; NULL: none has it. Of an estimate, in place of calls */
    size_t *workspace_bytes; /* by node id */
    uint32_t count;
    ebb_memory memory;
    ebb_interval *intervals; /* by tensor of `memory` */
    ebb_packing packing;     /* height = planned arena bytes */
    ebb_interval *away;      /* by tensor away: where in its place */
    ebb_packing
        places[EBB_PLACE_COUNT]; /* those away: height = bytes of the place's arena, or file */
    uint32_t align;              /* of the device, bytes */
    double flops, recompute_flops;
    double
        planned_ns; /* roofline estimate: flops and bytes against the rates of the device; and waits */
} ebb_plan;

/* Which kernel computes the call at a position; NULL: none does. */
static inline const ebb_kernel *ebb_plan_kernel(const ebb_plan *plan, uint32_t position)
{
    return plan->calls != NULL ? plan->calls[position].kernel : plan->kernels[position];
}

/* Arena memory. EBB_UNSUPPORTED lists every node without a kernel, not only the first. */
ebb_status ebb_plan_make(ebb_plan *plan, ebb_arena *arena, const ebb_graph *g,
                         const ebb_setting *setting);
/* Where kernels may be missing, and nothing is run: what cannot run is still weighed (without
 * workspace), and *missing tells what is missing, as text; NULL: nothing. Calls, which together are
 * larger than the graph, go when it is known what they take. */
ebb_status ebb_plan_estimate(ebb_plan *plan, ebb_arena *arena, const ebb_graph *g,
                             const ebb_setting *setting, const char **missing);
/* Of the body of a loop (loop.h), some of whose values lie elsewhere; all calls have their operands. */
ebb_status ebb_plan_body(ebb_plan *plan, ebb_arena *arena, const ebb_graph *body,
                         const bool *elsewhere, const ebb_setting *setting, const char **missing);
void ebb_plan_release(ebb_plan *plan); /* the kernels' states */

/* What the file was made to fit (metadata "ebb.budget_bytes"); 0: nothing. And for how many threads
 * ("ebb.budget_threads"); 0: it does not say. */
uint64_t ebb_budget_of(const ebb_model *model, int *threads);
