/* group.cu: the walk over a step's calls that asks the groupers (group.h).
 *
 *     k       add        chains?       takes 3       -> chain, nothing, nothing
 *     k + 1   relu
 *     k + 2   mul
 *     k + 3   reduce     nobody
 *     k + 4   adamw      optimizers?   takes 2       -> one launch, nothing
 *     k + 5   adamw
 */
#include "kernels/cuda/fuse/group.h"

static ebb_status run_nothing(const ebb_call *c)
{
    (void)c;
    return NULL;
}

const ebb_kernel ebb_cuda_joined = {
    .name = "cuda.joined", .op = EBB_OP_UNKNOWN, .run = run_nothing};

bool ebb_cuda_overlap(const ebb_operand *a, const ebb_operand *b)
{
    const uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    return x < y + b->bytes && y < x + a->bytes;
}

bool ebb_cuda_exactly_over(const ebb_operand *a, const ebb_operand *b)
{
    return a->data == b->data && a->bytes == b->bytes && ebb_type_same_shape(&a->type, &b->type);
}

ebb_status ebb_cuda_group(ebb_call *calls, uint32_t count)
{
    const ebb_cuda_grouper groupers[] = {ebb_cuda_group_chain, ebb_cuda_group_optim};
    ebb_device_facts facts;
    memset(&facts, 0, sizeof facts);
    if (ebb_gpu_facts(&facts) != NULL)
        return NULL;
    for (uint32_t k = 0; k < count;) {
        uint32_t taken = 0;
        for (size_t i = 0; i < sizeof groupers / sizeof groupers[0] && taken == 0; i++)
            EBB_TRY(groupers[i](&calls[k], count - k, facts.version, &taken));
        k += taken == 0 ? 1 : taken;
    }
    return NULL;
}
