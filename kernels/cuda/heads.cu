/* heads.cu: Attention, FlexAttention without graphs, LinearAttention, CausalConvWithState and
 * RotaryEmbedding of ONNX; what they mean is in kernels/math/heads.inc.
 *
 * Attention: a block has a tile of 64 queries of a head and walks along the keys, 64 at a time
 * (attention_tiles.h); the largest score and the sum of a row go along, so that no row of scores is
 * stored, and what the sums had before is made smaller by as much. Heads that are packed, and past
 * tokens before new ones, are read where they lie. A few queries, as of a text that grows by a
 * token, would leave a tile empty: there a warp has a query, its lanes have 32 keys at a time:
 *
 *     keys     |  32  |  32  |  32  | ...
 *     lanes    one score each   ->   p = e^(score - most)
 *              then columns of V each, every key's p handed round
 *
 * The warps of a block have neighbouring queries and read the same keys at about the same time.
 * LinearAttention: a block has a head, a thread always the same columns of its state, so that
 * tokens follow each other without a barrier; its gradient, too, but for what goes from column to
 * column. FlexAttention with graphs is expanded into its
 * function body, on every back end.
 */
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/heads.h"

enum { LANE_MANY = 8, WARP_CHUNK = LANE_MANY * EBB_WARP }; // columns of V: a lane's, a warp's
enum { FEW = 16 };                                         // queries that are no tile
enum { LINEAR_THREADS = 128 };

typedef struct heads_args {
    ebb_heads p;
    void *y, *seen; /* NULL: not wanted */
    void *kept;     /* present keys or values, of */
    ebb_tokens from;
    int64_t jobs, tiles, chunks; /* tiles of queries, chunks of columns of V; of a head */
} heads_args;

typedef struct linear_args {
    ebb_linear_attention p;
    void *next;    /* the state, or NULL */
    void *scratch; /* [heads, key + 1, value] in the registers' dtype */
} linear_args;

typedef struct linear_back_args {
    ebb_linear_back p;
    void *scratch;
    int64_t each; /* numbers of it that a block has */
} linear_back_args;

typedef struct rotary_args {
    ebb_rotation p;
    void *y;
    const void *x;
    int64_t rows, cached; /* rows of the caches */
    ebb_cuda_step *step;
    uint32_t position;
} rotary_args;

#define KERNELS "kernels/cuda/heads_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel attends[4] = EBB_CUDA_FLOATS(heads_attend);
static const ebb_gpu_kernel tiles[4] = EBB_CUDA_FLOATS(heads_tiles);
static const ebb_gpu_kernel keeps[4] = EBB_CUDA_FLOATS(heads_keep);
static const ebb_gpu_kernel linears[4] = EBB_CUDA_FLOATS(linear_attention);
static const ebb_gpu_kernel linear_backs[4] = EBB_CUDA_FLOATS(linear_attention_grad);
static const ebb_gpu_kernel causals[4] = EBB_CUDA_FLOATS(causal_conv);
static const ebb_gpu_kernel rotaries[4] = EBB_CUDA_FLOATS(rotary);

static int row_of(const ebb_call *c)
{
    return ebb_cuda_float_row(c->in[0].type.dtype);
}

ebb_status ebb_cuda_heads_keep(const ebb_call *c, const ebb_heads *p, const ebb_tokens *from,
                               void *to)
{
    heads_args a;
    memset(&a, 0, sizeof a);
    a.p = *p;
    a.kept = to;
    a.from = *from;
    return EBB_LAUNCH(c, keeps[row_of(c)],
                      ebb_cuda_grid(p->batch * from->heads * p->total * from->size), EBB_CUDA_BLOCK,
                      0, a);
}

static ebb_status launch_tiles(const ebb_call *c, heads_args *a)
{
    const size_t size = c->in[0].type.dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    a->tiles = (a->p.q.length + SIDE - 1) / SIDE;
    a->chunks = a->p.v.size > CHUNK && a->y != NULL ? (a->p.v.size + CHUNK - 1) / CHUNK : 1;
    a->jobs = a->p.batch * a->p.q.heads * a->tiles * a->chunks;
    return EBB_LAUNCH(c, tiles[row_of(c)], ebb_cuda_blocks(a->jobs), THREADS,
                      (uint32_t)(SHARED * size), *a);
}

static ebb_status run_attention(const ebb_call *c)
{
    heads_args a;
    memset(&a, 0, sizeof a);
    a.p = ebb_heads_read(c);
    a.y = ebb_call_wants(c, 0) ? c->out[0].data : NULL;
    a.seen = ebb_call_wants(c, 3) ? c->out[3].data : NULL;
    for (uint32_t o = 1; o < 3; o++) // what was, then what is new
        if (ebb_call_wants(c, o))
            EBB_TRY(ebb_cuda_heads_keep(c, &a.p, o == 1 ? &a.p.k : &a.p.v, c->out[o].data));
    if (a.y == NULL && a.seen == NULL)
        return NULL;
    if (a.p.q.length >= FEW && a.p.batch > 0)
        return launch_tiles(c, &a);
    return EBB_LAUNCH(c, attends[row_of(c)],
                      ebb_cuda_grid(a.p.batch * a.p.q.heads * a.p.q.length * EBB_WARP),
                      EBB_CUDA_BLOCK, 0, a);
}

static ebb_status linear_workspace(const ebb_call *c, size_t *bytes)
{
    const ebb_linear_attention r = ebb_linear_read(c);
    size_t n = c->in[0].type.dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    bool fits = ebb_size_mul(&n, n, (size_t)r.batch) && ebb_size_mul(&n, n, (size_t)r.heads) &&
                ebb_size_mul(&n, n, (size_t)r.key + 1) && ebb_size_mul(bytes, n, (size_t)r.value);
    return fits ? NULL : ebb_call_error(c, "its state is too large");
}

static ebb_status run_linear(const ebb_call *c)
{
    linear_args a;
    memset(&a, 0, sizeof a);
    a.p = ebb_linear_read(c);
    a.next = ebb_call_wants(c, 1) ? c->out[1].data : NULL;
    a.scratch = c->workspace;
    return EBB_LAUNCH(c, linears[row_of(c)], ebb_cuda_blocks(a.p.batch * a.p.heads), LINEAR_THREADS,
                      0, a);
}

/* Blocks that run at a time: each has states of its own, and a long sequence many. */
static int64_t linear_back_blocks(const ebb_linear_back *r)
{
    const int64_t most = 64, heads = r->batch * r->heads;
    return heads < most ? heads : most;
}

static ebb_status linear_back_workspace(const ebb_call *c, size_t *bytes)
{
    const ebb_linear_back r = ebb_linear_back_read(c);
    const size_t n = c->in[0].type.dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    const size_t size = ebb_linear_back_size(&r);
    bool fits = ebb_size_mul(bytes, size, (size_t)linear_back_blocks(&r)) &&
                ebb_size_mul(bytes, *bytes, n) && (size > 0 || r.value == 0);
    return fits ? NULL : ebb_call_error(c, "its states are too large");
}

static ebb_status run_linear_back(const ebb_call *c)
{
    linear_back_args a;
    memset(&a, 0, sizeof a);
    a.p = ebb_linear_back_read(c);
    a.scratch = c->workspace;
    a.each = (int64_t)ebb_linear_back_size(&a.p);
    return EBB_LAUNCH(c, linear_backs[row_of(c)], ebb_cuda_blocks(linear_back_blocks(&a.p)),
                      LINEAR_THREADS, 0, a);
}

static ebb_status run_causal(const ebb_call *c)
{
    const ebb_causal a = ebb_causal_read(c);
    return EBB_LAUNCH(c, causals[row_of(c)], ebb_cuda_grid(a.rows * (a.length + a.taps - 1)),
                      EBB_CUDA_BLOCK, 0, a);
}

static ebb_status run_rotary(const ebb_call *c)
{
    rotary_args a;
    memset(&a, 0, sizeof a);
    a.p = ebb_rotation_read(c);
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.rows = a.p.batch * a.p.heads * a.p.length;
    a.cached = a.p.positions != NULL ? c->in[1].type.dims[0] : a.p.batch * a.p.length;
    a.step = ebb_cuda_queue_of(c)->step;
    a.position = c->position;
    return EBB_LAUNCH(c, rotaries[row_of(c)], ebb_cuda_grid(a.rows * (a.p.size - a.p.turned / 2)),
                      EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_heads[] = {
    {.name = "cuda.onnx_attention",        .op = EBB_OP_ATTENTION,              .dtypes = ebb_cuda_floats, .fits = ebb_any_heads_misfit, .run = run_attention},
    {.name = "cuda.flex_attention",        .op = EBB_OP_FLEX_ATTENTION,         .dtypes = ebb_cuda_floats, .fits = ebb_any_heads_misfit, .run = run_attention},
    {.name = "cuda.linear_attention",      .op = EBB_OP_LINEAR_ATTENTION,       .dtypes = ebb_cuda_floats, .fits = ebb_any_heads_misfit, .workspace = linear_workspace, .run = run_linear},
    {.name = "cuda.linear_attention_grad", .op = EBB_OP_LINEAR_ATTENTION_GRAD,  .dtypes = ebb_cuda_floats, .fits = ebb_any_heads_misfit, .workspace = linear_back_workspace, .run = run_linear_back},
    {.name = "cuda.causal_conv",           .op = EBB_OP_CAUSAL_CONV_WITH_STATE, .dtypes = ebb_cuda_floats, .fits = ebb_any_heads_misfit, .run = run_causal},
    {.name = "cuda.rotary_embedding",      .op = EBB_OP_ROTARY_EMBEDDING,       .dtypes = ebb_cuda_floats, .fits = ebb_any_heads_misfit, .run = run_rotary},
};
// clang-format on
EBB_CUDA_COUNT(heads)
