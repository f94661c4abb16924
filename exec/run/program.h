/* program.h: a graph compiled to a flat program, and its run.
 *
 * compile.c adds one arena and pointers to a plan (plan.h); run.c walks the calls: decides, looks
 * up and allocates nothing. Both do so with as many threads as the plan was made for, whichever
 * thread calls them and whatever it has set.
 */
#pragma once

#include "exec/weigh/plan.h"
#include "kernels/away/group.h"
#include "kernels/away/mover.h"

struct ebb_program {
    ebb_arena arena;
    ebb_model *model;
    ebb_plan plan;
    const ebb_device *device; /* where the block lies */
    void *queue;              /* of the device */
    void *block;              /* the one block: planned arena bytes */
    ebb_mover *mover;         /* NULL: all values lie in the block */
    ebb_group *group;         /* the caller's; NULL: this process alone */
    void **seen;  /* by value id: a copy on the host, where the device is another, and what
                                 is read instead of a mapped weight that a caller set */
    bool *mapped; /* by value id: it is read where the model has it */
    uint64_t touched_bytes; /* highest end handed out: what is measured */
    struct ebb_carry {      /* state <- next where they do not share memory */
        void *to;
        const void *from;
        size_t bytes;
    } * carries;
    size_t carry_count;
    const char *note; /* what its user should know; NULL: nothing */
    uint64_t seed, steps;
    uint64_t replayed; /* steps of this process that were replays of a record */
    int64_t step_ns;
    int64_t *node_ns;    /* by position, summed; NULL: no profile */
    double *node_spared; /* beside it: operations that were not made (kernels/spared.h) */
    uint64_t profiled;   /* steps of this process that they are of */
    int64_t *first_ns;   /* both after the first of them, which touches all memory */
    double *first_spared;
    bool *filled;      /* by value id: the initializer's bytes are in place */
    uint32_t prepared; /* calls whose kernels are prepared */
    const char *
        changed; /* what its step sets otherwise than that of the checkpoint that it loaded; NULL */
    bool unchecked; /* its states come from a checkpoint without a checksum */
    bool ready;     /* initializers in place and all kernels prepared */
};

/* As ebb_program_compile, for a graph that need not be the model's own (its initialization). */
ebb_status ebb_program_compile_graph(ebb_program **program, ebb_model *model, const ebb_graph *g,
                                     const ebb_compile_options *options);
/* Where values on disk go; asked NULL: nobody says where. */
const char *ebb_spill_folder(const char *asked);
/* Initializers' bytes into place. EBB_RUNTIME naming those whose bytes are missing. */
ebb_status ebb_program_fill(ebb_program *program);
/* Mapped weights' places into the calls that read them; again when one has moved. */
void ebb_program_point_mapped(ebb_program *program);
/* Where the value lies on the program's device; NULL where it takes no memory. What is mapped is only
 * read. */
void *ebb_program_pointer(const ebb_program *program, ebb_value v);
/* What a checkpoint holds: bound initializers, and those whose role says that a step changes them.
 */
bool ebb_program_is_state(const ebb_program *program, ebb_value v);
