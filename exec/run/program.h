/* program.h: a graph compiled to a flat program, and its run.
 *
 * plan.c picks a kernel for each node, asks for its workspace, weighs (memory.h) and packs
 * (pack.h): everything that `ebb plan` prints, without weights. compile.c adds one arena and
 * pointers; run.c walks the calls: decides, looks up and allocates nothing. All three do so with
 * as many threads as the plan was made for, whichever thread calls them and whatever it has set.
 */
#ifndef EBB_EXEC_RUN_PROGRAM_H
#define EBB_EXEC_RUN_PROGRAM_H

#include "exec/weigh/memory.h"
#include "exec/weigh/pack.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a step is computed. What it takes, and with it a plan, follows from this and the graph. */
typedef struct ebb_setting {
    const ebb_backend *const *backends;
    uint64_t seed;
    int threads; /* of the host */
    bool deterministic;
} ebb_setting;

/* Of a model's steps, by a back end's name; threads 0: as many as the model says. */
ebb_status ebb_setting_read(ebb_setting *setting, const ebb_model *model, const char *backend,
                            uint64_t seed, int threads);

typedef struct ebb_plan {
    const ebb_graph *g;
    ebb_setting setting;
    ebb_node *order; /* nodes by position */
    ebb_call *calls; /* by position; data pointers not yet set */
    uint32_t count;
    ebb_memory memory;
    ebb_interval *intervals; /* by tensor of `memory` */
    ebb_packing packing;     /* height = planned arena bytes */
    uint32_t align;          /* of the device, bytes */
    double flops, recompute_flops;
    double planned_ns; /* roofline estimate: flops and bytes against the rates of the device */
} ebb_plan;

/* Arena memory. EBB_UNSUPPORTED lists every node without a kernel, not only the first. */
ebb_status ebb_plan_make(ebb_plan *plan, ebb_arena *arena, const ebb_graph *g,
                         const ebb_setting *setting);
/* The same where kernels may be missing: what cannot run is still weighed (without workspace), its
 * call has no kernel, and *missing tells what is missing, as text; NULL: nothing. */
ebb_status ebb_plan_estimate(ebb_plan *plan, ebb_arena *arena, const ebb_graph *g,
                             const ebb_setting *setting, const char **missing);
void ebb_plan_release(ebb_plan *plan); /* the kernels' states */

struct ebb_program {
    ebb_arena arena;
    ebb_model *model;
    ebb_plan plan;
    const ebb_device *device; /* where the block lies */
    void *queue;              /* of the device */
    void *block;              /* the one block: planned arena bytes */
    void **seen;              /* by value id: a copy on the host, where the device is another */
    uint64_t touched_bytes;   /* highest end handed out: what is measured */
    struct ebb_carry {        /* state <- next where they do not share memory */
        void *to;
        const void *from;
        size_t bytes;
    } * carries;
    size_t carry_count;
    const char *note; /* what its user should know; NULL: nothing */
    uint64_t seed, steps;
    uint64_t replayed; /* steps of this process that were replays of a record */
    int64_t step_ns;
    int64_t *node_ns;  /* by position, summed; NULL: no profile */
    bool *filled;      /* by value id: the initializer's bytes are in place */
    uint32_t prepared; /* calls whose kernels are prepared */
    bool unchecked;    /* its states come from a checkpoint without a checksum */
    bool ready;        /* initializers in place and all kernels prepared */
};

/* As ebb_program_compile, for a graph that need not be the model's own (its initialization). */
ebb_status ebb_program_compile_graph(ebb_program **program, ebb_model *model, const ebb_graph *g,
                                     const ebb_compile_options *options);
/* Initializers' bytes into place. EBB_RUNTIME naming those whose bytes are missing. */
ebb_status ebb_program_fill(ebb_program *program);
/* Where the value lies in the block, on the program's device; NULL where it takes no memory. */
void *ebb_program_pointer(const ebb_program *program, ebb_value v);
/* What the file was made to fit (metadata "ebb.budget_bytes"); 0: nothing. And for how many threads
 * ("ebb.budget_threads"); 0: it does not say. */
uint64_t ebb_budget_of(const ebb_model *model, int *threads);
/* What a checkpoint holds: bound initializers, and those whose role says that a step changes them.
 */
bool ebb_program_is_state(const ebb_program *program, ebb_value v);

#ifdef __cplusplus
}
#endif
#endif
