/* together.cu: what processes compute together, piece by piece (kernels/away/pieces.h), by NCCL.
 *
 *     the step's stream   ==|== compute ==|== compute ==|== compute ==
 *                         start           |             wait
 *     the stream beside     |== exchange, add, ... =====|
 *
 * All of it goes on one stream beside that of the step, so it has the order of nodes in all processes: what is
 * started there is waited for where its Wait stands, and what is not started, at once. NCCL's calls are recorded
 * with the step, like all others.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"

#include "kernels/away/pieces.h"
#include "kernels/cuda/library/nccl.h"
#include "onnx/words/arena.h"

/* ---- sums ---- */

typedef struct sum_args {
    void *blocks; /* one a rank, of n elements */
    int64_t n;
    int32_t ranks;
} sum_args;

EBB_GLOBAL(sum_u32, sum_args)
{
    EBB_GRID_LOOP(i, a.n)
    for (int r = 1; r < a.ranks; r++)
        ((uint32_t *)a.blocks)[i] += ((const uint32_t *)a.blocks)[r * a.n + i];
}

EBB_GLOBAL(sum_u64, sum_args)
{
    EBB_GRID_LOOP(i, a.n)
    for (int r = 1; r < a.ranks; r++)
        ((uint64_t *)a.blocks)[i] += ((const uint64_t *)a.blocks)[r * a.n + i];
}

#define KERNELS "kernels/cuda/together_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static ebb_gpu_kernel sum_of(uint8_t dtype)
{
    static const ebb_gpu_kernel floats[4] = EBB_CUDA_FLOATS(sum);
    if (dtype == EBB_I32)
        return (ebb_gpu_kernel)sum_u32;
    return dtype == EBB_I64 ? (ebb_gpu_kernel)sum_u64 : floats[ebb_cuda_float_row(dtype)];
}

/* ---- hands ---- */

static ebb_status bring(const ebb_hands *h, const ebb_call *c, ebb_group_verb verb,
                        const void *from, void *to, size_t block)
{
    return ebb_nccl_exchange(ebb_cuda_queue_of(c)->nccl, h->way, verb, from, to, block);
}

static ebb_status add(const ebb_hands *h, const ebb_call *c, void *blocks, int64_t block)
{
    const sum_args a = {blocks, block, (int32_t)ebb_pieces_ranks(c)};
    return ebb_gpu_launch(h->way, sum_of(c->in[0].type.dtype), ebb_cuda_grid(block), EBB_CUDA_BLOCK,
                          0, &a, sizeof a);
}

static ebb_status sum(const ebb_hands *h, const ebb_call *c, const void *from, void *to, int64_t n,
                      bool *done)
{
    *done = true;
    return ebb_nccl_sum(ebb_cuda_queue_of(c)->nccl, h->way, from, to, (size_t)n,
                        c->in[0].type.dtype);
}

static ebb_status copy(const ebb_hands *h, void *to, const void *from, size_t bytes)
{
    return to == from ? NULL : ebb_gpu_copy(h->way, to, from, bytes, EBB_ON_DEVICE);
}

static ebb_status clear(const ebb_hands *h, void *to, size_t bytes)
{
    return ebb_gpu_clear(h->way, to, bytes);
}

static ebb_status run_on(const ebb_call *c, void *stream)
{
    const ebb_hands hands = {bring, add, sum, copy, clear, stream};
    return ebb_pieces_run(c, &hands);
}

/* ---- beside the step ---- */

/* All processes are here at the same node. */
static ebb_status prepare(ebb_call *c)
{
    ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    if (q->nccl != NULL || c->group == NULL || c->group->ranks == 1)
        return NULL;
    if (q->beside == NULL)
        EBB_TRY(ebb_gpu_open_another(&q->beside));
    return ebb_nccl_open(&q->nccl, c->group, c->node);
}

/* Behind all that the step has done so far. *mark: where it is over. */
static ebb_status run_beside(const ebb_call *c, void **mark)
{
    ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    EBB_TRY(ebb_gpu_mark(q->stream, &q->from));
    EBB_TRY(ebb_gpu_follow(q->beside, q->from));
    EBB_TRY(run_on(c, q->beside));
    return ebb_gpu_mark(q->beside, mark);
}

static ebb_status now(const ebb_call *c)
{
    ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    if (q->beside == NULL)
        return run_on(c, q->stream);
    EBB_TRY(run_beside(c, &q->to));
    return ebb_gpu_follow(q->stream, q->to);
}

static ebb_status start(const ebb_call *c)
{
    ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    ebb_cuda_started *s;
    if (q->beside == NULL)
        return run_on(c, q->stream);
    EBB_TRY(ebb_cuda_find_started(q, NULL, &s));
    EBB_TRY(run_beside(c, &s->mark));
    s->memory = c->out[0].data;
    return NULL;
}

/* ---- who this process is ---- */

static ebb_status run_shard(const ebb_call *c)
{
    return run_on(c, ebb_cuda_queue_of(c)->stream);
}

typedef struct rank_args {
    int64_t *y;
    int64_t rank;
} rank_args;

EBB_GLOBAL(write_rank, rank_args)
{
    if (EBB_THREAD == 0)
        *a.y = a.rank;
}

static ebb_status run_rank(const ebb_call *c)
{
    const rank_args a = {(int64_t *)c->out[0].data, ebb_group_rank_of(c)};
    return EBB_LAUNCH(c, write_rank, ebb_cuda_grid(1), EBB_WARP, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_together[] = {
    {.name = "cuda.all_reduce",           .op = EBB_OP_ALL_REDUCE,           .dtypes = ebb_pieces_misfit_sum, .workspace = ebb_pieces_workspace, .prepare = prepare, .run = now},
    {.name = "cuda.reduce_scatter",       .op = EBB_OP_REDUCE_SCATTER,       .dtypes = ebb_pieces_misfit_sum, .workspace = ebb_pieces_workspace, .prepare = prepare, .run = now},
    {.name = "cuda.start_all_reduce",     .op = EBB_OP_START_ALL_REDUCE,     .dtypes = ebb_pieces_misfit_sum, .workspace = ebb_pieces_workspace, .prepare = prepare, .run = start},
    {.name = "cuda.start_reduce_scatter", .op = EBB_OP_START_REDUCE_SCATTER, .dtypes = ebb_pieces_misfit_sum, .workspace = ebb_pieces_workspace, .prepare = prepare, .run = start},
    {.name = "cuda.all_gather",           .op = EBB_OP_ALL_GATHER,           .dtypes = ebb_call_any, .fits = ebb_pieces_misfit, .workspace = ebb_pieces_workspace, .prepare = prepare, .run = now},
    {.name = "cuda.start_unshard",        .op = EBB_OP_START_UNSHARD,        .dtypes = ebb_call_any, .fits = ebb_pieces_misfit, .workspace = ebb_pieces_workspace, .prepare = prepare, .run = start},
    {.name = "cuda.unshard",              .op = EBB_OP_UNSHARD,              .dtypes = ebb_call_any, .fits = ebb_pieces_misfit, .workspace = ebb_pieces_workspace, .prepare = prepare, .run = now},
    {.name = "cuda.shard",                .op = EBB_OP_SHARD,                .dtypes = ebb_call_any, .fits = ebb_pieces_misfit, .run = run_shard},
    {.name = "cuda.rank",                 .op = EBB_OP_RANK,                 .dtypes = ebb_call_any, .fits = ebb_pieces_misfit, .run = run_rank},
};
// clang-format on
EBB_CUDA_COUNT(together)
