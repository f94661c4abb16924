/* group_optim.cu: optimizers' steps that follow each other become few launches (many.h).
 *
 * Which tensors share a launch is decided where they are laid out, with the pointers in sight
 * (optim.cu, low_bit.cu); the kernels are those of a single call, so that bits are the same. Calls
 * stay in their order: what stands between two of them was put there for its memory (`release`).
 */
#include "kernels/cuda/fuse/group.h"

typedef struct stepper {
    const ebb_kernel *kernels;
    const size_t *count;
    ebb_status (*run)(const ebb_call *calls, uint32_t count);
} stepper;

static const stepper steppers[] = {
    {ebb_cuda_optim, &ebb_cuda_optim_count, ebb_cuda_optim_run},
    {ebb_cuda_low_bit, &ebb_cuda_low_bit_count, ebb_cuda_low_bit_run},
};

typedef struct grouped { /* the state of the first call */
    const stepper *by;
    uint32_t count; /* of calls, which follow it */
} grouped;

static const stepper *stepper_of(const ebb_call *c)
{
    for (size_t i = 0; i < sizeof steppers / sizeof steppers[0]; i++)
        for (size_t k = 0; k < *steppers[i].count; k++)
            if (c->kernel == &steppers[i].kernels[k])
                return &steppers[i];
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    const grouped *g = (const grouped *)c->state;
    return g->by->run(c, g->count);
}

static const ebb_kernel optimizers = {
    .name = "cuda.optimizers", .op = EBB_OP_UNKNOWN, .run = run, .release = ebb_call_forget};

ebb_status ebb_cuda_group_optim(ebb_call *calls, uint32_t count, int version, uint32_t *taken)
{
    const stepper *by = stepper_of(&calls[0]);
    uint32_t n = 1;
    (void)version;
    *taken = 0;
    while (by != NULL && n < count && stepper_of(&calls[n]) == by)
        n++;
    if (n < 2)
        return NULL;
    grouped *g = (grouped *)ebb_alloc(sizeof *g);
    EBB_GOT(g);
    g->by = by;
    g->count = n;
    for (uint32_t k = 0; k < n; k++)
        calls[k].kernel = k == 0 ? &optimizers : &ebb_cuda_joined;
    calls[0].state = g;
    *taken = n;
    return NULL;
}
