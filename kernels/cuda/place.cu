/* place.cu: Col2Im, MaxUnpool: what lies where is in kernels/call/move/place.h.
 *
 * A place of Col2Im's image asks the taps that may lie on it. MaxUnpool's elements may meet: first
 * every place of the output learns which element comes last, in any order, and then takes it.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/move.h"
#include "kernels/call/move/place.h"

typedef struct blocks_args {
    ebb_blocks b;
    void *y;
    const void *x;
} blocks_args;

typedef struct unpool_args {
    ebb_unpool u;
    void *y;
    const void *x;
    const int64_t *index;
    uint64_t *last; /* of each place of the output: n - 1 - the element; all ones: none */
    int64_t places;
    ebb_cuda_step *step;
    uint32_t position;
} unpool_args;

EBB_GLOBAL(unpool_clear, unpool_args)
{
    EBB_GRID_LOOP(i, a.places)
    a.last[i] = ~(uint64_t)0;
}

EBB_GLOBAL(unpool_claim, unpool_args)
{
    EBB_GRID_LOOP(i, a.u.n)
    if (ebb_cuda_inside(a.step, a.position, a.index[i], 0, a.u.count))
        (void)ebb_atomic_min_u64(&a.last[ebb_unpool_at(&a.u, a.index[i])],
                                 (uint64_t)(a.u.n - 1 - i));
}

#define KERNELS "kernels/cuda/place_sizes.inc"
#include "kernels/cuda/all_sizes.inc"
#define KERNELS "kernels/cuda/place_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel lays[4] = EBB_CUDA_FLOATS(col2im);

static const char *misfit_col2im(const ebb_call *c)
{
    EBB_ASK(ebb_blocks_misfit(c));
    return ebb_cuda_constant(c, 2);
}

static ebb_status run_col2im(const ebb_call *c)
{
    blocks_args a;
    int64_t block[EBB_MAX_RANK];
    uint32_t count;
    memset(&a, 0, sizeof a);
    EBB_TRY(ebb_call_ints(c, NULL, 2, block, EBB_MAX_RANK, &count));
    EBB_TRY(ebb_blocks_read(&a.b, c, block, count));
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    return EBB_LAUNCH(c, lays[ebb_cuda_float_row(c->in[0].type.dtype)],
                      ebb_cuda_grid(a.b.images * a.b.area), EBB_CUDA_BLOCK, 0, a);
}

static ebb_status unpool_workspace(const ebb_call *c, size_t *bytes)
{
    return ebb_size_mul(bytes, (size_t)ebb_elements(&c->out[0].type), sizeof(uint64_t))
               ? NULL
               : ebb_call_error(c, "its places pass what memory can be");
}

static ebb_status run_unpool(const ebb_call *c)
{
    unpool_args a;
    memset(&a, 0, sizeof a);
    EBB_TRY(ebb_unpool_read(&a.u, c));
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.index = (const int64_t *)c->in[1].data;
    a.last = (uint64_t *)c->workspace;
    a.places = ebb_elements(&c->out[0].type);
    a.step = ebb_cuda_queue_of(c)->step;
    a.position = c->position;
    static const ebb_gpu_kernel unpools[] = EBB_CUDA_SIZES(unpool);
    EBB_TRY(EBB_LAUNCH(c, unpool_clear, ebb_cuda_grid(a.places), EBB_CUDA_BLOCK, 0, a));
    EBB_TRY(EBB_LAUNCH(c, unpool_claim, ebb_cuda_grid(a.u.n), EBB_CUDA_BLOCK, 0, a));
    return EBB_LAUNCH(c, unpools[ebb_cuda_size_row(ebb_element_bytes(&c->in[0].type))],
                      ebb_cuda_grid(a.places), EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_place[] = {
    {.name = "cuda.col2im",     .op = EBB_OP_COL2IM,     .dtypes = ebb_cuda_floats, .fits = misfit_col2im,     .run = run_col2im},
    {.name = "cuda.max_unpool", .op = EBB_OP_MAX_UNPOOL, .dtypes = ebb_call_any,    .fits = ebb_unpool_misfit, .workspace = unpool_workspace, .run = run_unpool},
};
// clang-format on
EBB_CUDA_COUNT(place)
