/* attention.cu: attention and its gradients, tile by tile: of the scores [s, t] only 64 x 64 exist
 * at a time, in shared memory.
 *
 *                keys ->                    a block has one tile of outer rows and walks along the
 *             +----+----+----+              inner ones:
 *     queries | -> | -> | -> |  Y, dQ           T = a function of 64 x 64 scores
 *             +----+----+----+                  sum[64, columns] += T M[64, columns]
 *             |    |    |    |
 *             +----+----+----+              Y: T = P, M = V      dQ: T = dS,  M = K
 *                                           dV: T = P', M = dY   dK: T = dS', M = Q
 *
 * dV and dK walk along the queries: their tiles are turned, and no two blocks add to one row. The
 * forward keeps max and sum of a row as it goes; gradients are told them. What dS subtracts from a
 * row of dP, the sum of P dP, is that of dY Y where the gradient is given Y, else takes a walk.
 */
#include "kernels/call/attention.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/math/philox.h"

typedef struct attention_args {
    ebb_attention p;
    const void *q, *k, *v, *bias, *dy, *y, *max, *sum; /* y: NULL where it is not given */
    const uint8_t *keep;
    const int64_t *key;
    void *out, *max_out, *sum_out; /* max_out, sum_out: NULL where nobody wants them */
    void *along;                   /* one a query, in the registers' dtype */
    bool finds_along, turned;      /* turned: a tile's rows are keys */
    int64_t columns, out_row, out_column, jobs;
} attention_args;

typedef struct place { /* a tile: of a head, its rows, its columns; and the output's columns */
    int64_t head, outer, inner, column;
    int64_t keep, bias; /* where the head's masks begin */
    bool turned;
} place;

EBB_GPU_INLINE int64_t query_at(const place *at, uint32_t r, uint32_t c)
{
    return at->turned ? at->inner + EBB_THREAD % WIDE * PER + c
                      : at->outer + EBB_THREAD / WIDE * PER + r;
}

EBB_GPU_INLINE int64_t key_at(const place *at, uint32_t r, uint32_t c)
{
    return at->turned ? at->outer + EBB_THREAD / WIDE * PER + r
                      : at->inner + EBB_THREAD % WIDE * PER + c;
}

EBB_GPU_INLINE int64_t head_in(const ebb_attention *a, const ebb_attention_mask *m, int64_t head)
{
    int64_t at = 0;
    for (int axis = a->rank - 3; axis >= 0; axis--) {
        at += head % a->dims[axis] * m->stride[axis];
        head /= a->dims[axis];
    }
    return at;
}

EBB_GPU_INLINE place place_of_job(const attention_args *a, int64_t job)
{
    const int64_t chunks = a->columns > CHUNK ? (a->columns + CHUNK - 1) / CHUNK : 1;
    const int64_t tiles = ((a->turned ? a->p.t : a->p.s) + SIDE - 1) / SIDE;
    place at = {0, 0, 0, 0, 0, 0, a->turned};
    at.head = job / chunks / tiles;
    at.outer = job / chunks % tiles * SIDE;
    at.column = job % chunks * CHUNK;
    at.keep = head_in(&a->p, &a->p.keep, at.head);
    at.bias = head_in(&a->p, &a->p.bias, at.head);
    return at;
}

EBB_GPU_INLINE bool is_on(const attention_args *a, const place *at, int64_t i, int64_t j)
{
    const int64_t *stride = a->p.keep.stride + a->p.rank - 2;
    return a->keep[at->keep + i * stride[0] + j * stride[1]] != 0 && (!a->p.causal || j <= i);
}

/* Bit 4 r + c: is that element of the tile kept? Four keys in a row mostly share a block of Philox.
 */
EBB_GPU_INLINE uint32_t kept_of(const attention_args *a, const place *at)
{
    uint32_t bits = 0;
    for (uint32_t q = 0; a->p.drops && q < PER; q++) {
        const int64_t first = (at->head * a->p.s + query_at(at, q, q)) * a->p.t + key_at(at, 0, 0);
        const int64_t run = a->p.run, part = run == 0 ? 0 : a->key[2],
                      parts = run == 0 ? 1 : a->key[3];
        ebb_philox p = {{0, 0, 0, 0}};
        uint64_t last = 0;
        for (uint32_t u = 0; u < PER; u++) {
            const uint64_t element = ebb_philox_place(first + u, part, parts, run);
            if (u == 0 || element / 4 != last)
                p = ebb_philox_block((uint64_t)a->key[0], (uint64_t)a->key[1], a->p.stream,
                                     element / 4);
            last = element / 4;
            if (p.word[element % 4] >= a->p.threshold)
                bits |= 1u << (at->turned ? u * PER + q : q * PER + u);
        }
    }
    return bits;
}

/* Keys after the query need not be looked at where they have probability 0: a fill of -infinity
 * makes it so; a great one does where every query sees a key and no bias lifts it. */
EBB_GPU_INLINE bool skips(const attention_args *a, bool open)
{
    return a->p.causal && (a->p.fill == -INFINITY || (a->p.fill < -1e30 && open));
}

EBB_GPU_INLINE int64_t keys_end(const attention_args *a, int64_t first_query, bool open)
{
    return skips(a, open) && first_query + SIDE < a->p.t ? first_query + SIDE : a->p.t;
}

EBB_GPU_INLINE int64_t queries_begin(const attention_args *a, int64_t first_key, bool open)
{
    return skips(a, open) ? first_key : 0;
}

/* No mask but causality. */
#define IS_OPEN(a)                                                 \
    ((a).p.keep.single && (a).p.bias.single && (a).keep[0] != 0 && \
     LOAD((const STORED *)(a).bias, 0) == 0)

#define KERNELS "kernels/cuda/attention_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel attends[] = EBB_CUDA_FLOATS(attend);
static const ebb_gpu_kernel alongs[] = EBB_CUDA_FLOATS(find_along);
static const ebb_gpu_kernel rows_along[] = EBB_CUDA_FLOATS(along_rows);
static const ebb_gpu_kernel queries[] = EBB_CUDA_FLOATS(to_queries);
static const ebb_gpu_kernel values[] = EBB_CUDA_FLOATS(to_values);
static const ebb_gpu_kernel keys[] = EBB_CUDA_FLOATS(to_keys);

static const char *declines(const ebb_call *c)
{
    ebb_attention a;
    return ebb_attention_read(&a, c);
}

/* ---- launches ---- */

/* A launch of one output: [heads, rows, columns], dense but for its two strides within a head. */
static ebb_status launch(const ebb_call *c, attention_args *a, const ebb_gpu_kernel *kernel,
                         bool turned, void *out, int64_t columns)
{
    const uint8_t dtype = c->in[ebb_attention_first(c->op)].type.dtype;
    const size_t size = dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    const int64_t chunks = columns > CHUNK ? (columns + CHUNK - 1) / CHUNK : 1;
    a->turned = turned;
    a->out = out;
    a->columns = columns;
    a->out_row = columns;
    a->out_column = 1;
    if (kernel == keys) {
        a->out_row = a->p.key_stride;
        a->out_column = a->p.feature_stride;
    }
    a->jobs = a->p.heads * (((turned ? a->p.t : a->p.s) + SIDE - 1) / SIDE) * chunks;
    return EBB_LAUNCH(c, kernel[ebb_cuda_float_row(dtype)], ebb_cuda_blocks(a->jobs), THREADS,
                      (uint32_t)(SHARED * size), *a);
}

static attention_args read_args(const ebb_call *c)
{
    attention_args a;
    const ebb_operand *in = c->in + ebb_attention_first(c->op);
    memset(&a, 0, sizeof a);
    (void)ebb_attention_read(&a.p, c); // declines() has seen it
    a.q = in[0].data;
    a.k = in[1].data;
    a.v = in[2].data;
    a.keep = (const uint8_t *)in[3].data;
    a.bias = in[4].data;
    a.key = a.p.drops ? (const int64_t *)c->in[a.p.key].data : NULL;
    return a;
}

static ebb_status run(const ebb_call *c)
{
    attention_args a = read_args(c);
    a.max_out = ebb_call_wants(c, 1) ? c->out[1].data : NULL;
    a.sum_out = ebb_call_wants(c, 2) ? c->out[2].data : NULL;
    return launch(c, &a, attends, false, c->out[0].data, a.p.e);
}

/* | along [heads, s] | dQ where several blocks read the queries that it may be written over | */
static size_t along_bytes(const ebb_attention *a, uint8_t dtype)
{
    const size_t size = dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    return ((size_t)(a->heads * a->s) * size + 255) / 256 * 256;
}

static bool is_staged(const ebb_call *c, const ebb_attention *a)
{
    return ebb_call_wants(c, 0) && a->d > CHUNK;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_attention a;
    EBB_MUST_FIT(c, ebb_attention_read(&a, c));
    *bytes = along_bytes(&a, c->in[1].type.dtype) + (is_staged(c, &a) ? c->out[0].bytes : 0);
    return NULL;
}

static ebb_status find_along(const ebb_call *c, attention_args *a)
{
    if (a->y == NULL) {
        a->finds_along = true;
        EBB_TRY(launch(c, a, alongs, false, NULL, 0));
        a->finds_along = false;
        return NULL;
    }
    a->jobs = (a->p.heads * a->p.s + WIDE - 1) / WIDE;
    return EBB_LAUNCH(c, rows_along[ebb_cuda_float_row(c->in[1].type.dtype)],
                      ebb_cuda_blocks(a->jobs), THREADS, 0, *a);
}

static ebb_status run_grad(const ebb_call *c)
{
    attention_args a = read_args(c);
    a.dy = c->in[0].data;
    a.max = c->in[6].data;
    a.sum = c->in[7].data;
    a.y = a.p.y != 0 ? c->in[a.p.y].data : NULL;
    if (ebb_call_wants(c, 0) || ebb_call_wants(c, 1)) { // dV needs none
        a.along = c->workspace;
        EBB_TRY(find_along(c, &a));
    }
    if (ebb_call_wants(c, 2))
        EBB_TRY(launch(c, &a, values, true, c->out[2].data, a.p.e));
    if (ebb_call_wants(c, 1))
        EBB_TRY(launch(c, &a, keys, true, c->out[1].data, a.p.d));
    if (!ebb_call_wants(c, 0))
        return NULL;
    // last: dQ may lie over dY or Q
    if (!is_staged(c, &a.p))
        return launch(c, &a, queries, false, c->out[0].data, a.p.d);
    void *staged = (unsigned char *)c->workspace + along_bytes(&a.p, c->in[1].type.dtype);
    EBB_TRY(launch(c, &a, queries, false, staged, a.p.d));
    return ebb_gpu_copy(ebb_cuda_queue_of(c)->stream, c->out[0].data, staged, c->out[0].bytes,
                        EBB_ON_DEVICE);
}

// clang-format off
const ebb_kernel ebb_cuda_attention[] = {
    {.name = "cuda.attention",              .op = EBB_OP_EBB_ATTENTION,              .fits = declines, .run = run},
    {.name = "cuda.attention_grad",         .op = EBB_OP_EBB_ATTENTION_GRAD,         .fits = declines, .workspace = workspace, .run = run_grad},
    {.name = "cuda.attention_dropout",      .op = EBB_OP_EBB_ATTENTION_DROPOUT,      .fits = declines, .run = run},
    {.name = "cuda.attention_dropout_grad", .op = EBB_OP_EBB_ATTENTION_DROPOUT_GRAD, .fits = declines, .workspace = workspace, .run = run_grad},
};
// clang-format on
EBB_CUDA_COUNT(attention)
