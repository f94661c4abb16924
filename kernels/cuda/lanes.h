/* lanes.h: many sums at once: which thread adds up what, and how threads bring it together.
 *
 *     across (elements lie apart)         along (they are neighbours)
 *     t0 t1 t2 | t0 t1 t2     outputs     warp 0: t0 t1 t2 t3 ...       8 outputs a block, or
 *     t3 t4 t5 | t3 t4 t5     side by     warp 1: t0 t1 t2 t3 ...       the whole block for one
 *      + + +      + + +       side
 *
 * Where there are few outputs, each is split among several blocks: their parts go to the workspace
 * and a second launch, across, adds them up. Grids depend on shapes alone, so sums always run in
 * the same order.
 */
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"

enum {
    EBB_LANES_BLOCKS = 1024,          /* are wanted: some for each processor */
    EBB_LANES_LEAST = 8,              /* elements a thread that a split must leave */
    EBB_LANES_SHARED = 8 * 32 * 2 * 8 /* bytes: for each warp 32 outputs of two doubles */
};

typedef struct ebb_lanes {
    int64_t outputs, n;   /* each of n elements */
    int64_t splits, each; /* split s adds up elements [s * each, s * each + each) */
    uint32_t width;       /* outputs of a block */
    uint32_t across;      /* 1: neighbouring threads have neighbouring outputs, not elements */
} ebb_lanes;

typedef struct ebb_lane { /* what a thread does in one round */
    int64_t out, split;
    int64_t first, step, end; /* elements: none where the output is beyond the last */
    bool leads;               /* it has the result */
} ebb_lane;

/* across: elements of one output lie apart, those of neighbouring outputs together. */
static inline ebb_lanes ebb_lanes_of(int64_t outputs, int64_t n, bool across)
{
    ebb_lanes l = {outputs, n, 1, n, 1, across ? 1u : 0u};
    if (n <= 16 && outputs > 32) // one thread does it all
        l.width = EBB_CUDA_BLOCK;
    else if (across)
        while (l.width < 32 && l.width < outputs)
            l.width *= 2;
    else if (n <= 1024 && outputs > 1)
        l.width = (uint32_t)EBB_CUDA_BLOCK / (uint32_t)EBB_WARP;
    int64_t blocks = (outputs + l.width - 1) / l.width, lanes = EBB_CUDA_BLOCK / l.width;
    if (blocks > 0 && blocks < EBB_LANES_BLOCKS) {
        int64_t most = n / (lanes * EBB_LANES_LEAST);
        l.splits = EBB_LANES_BLOCKS / blocks;
        l.splits = l.splits < most ? l.splits : most > 1 ? most : 1;
        l.each = (n + l.splits - 1) / l.splits;
        l.splits = l.each > 0 ? (n + l.each - 1) / l.each : 1;
    }
    return l;
}

/* Not split: the sums come out whole. */
static inline ebb_lanes ebb_lanes_whole(int64_t outputs, int64_t n, bool across)
{
    ebb_lanes l = ebb_lanes_of(outputs, n, across);
    l.splits = 1;
    l.each = n;
    return l;
}

/* Adds up the parts of l, [splits, outputs]. */
static inline ebb_lanes ebb_lanes_rest(const ebb_lanes *l)
{
    return ebb_lanes_whole(l->outputs, l->splits, true);
}

/* Bytes for the parts of l, [splits, outputs]; 0 where it is not split. */
static inline ebb_status ebb_lanes_workspace(const ebb_call *c, const ebb_lanes *l,
                                             size_t part_bytes, size_t *bytes)
{
    *bytes = 0;
    if (l->splits > 1 && (!ebb_size_mul(bytes, (size_t)l->outputs, part_bytes) ||
                          !ebb_size_mul(bytes, *bytes, (size_t)l->splits)))
        return ebb_call_error(c, "it has too many outputs");
    return NULL;
}

EBB_GPU_INLINE int64_t ebb_lanes_rounds(const ebb_lanes *l)
{
    return (l->outputs + l->width - 1) / l->width * l->splits;
}

static inline ebb_gpu_grid ebb_lanes_grid(const ebb_lanes *l)
{
    return ebb_cuda_blocks((l->outputs + l->width - 1) / l->width * l->splits);
}

/* For each round of a block: all its threads come along. */
#define EBB_LANES_LOOP(round, l)                                                      \
    for (int64_t round = EBB_BLOCK, ebb_end_ = ebb_lanes_rounds(l); round < ebb_end_; \
         round += EBB_BLOCKS)

EBB_GPU_INLINE ebb_lane ebb_lane_of(const ebb_lanes *l, int64_t round)
{
    const uint32_t lanes = EBB_THREADS / l->width;
    const uint32_t which = l->across ? EBB_THREAD % l->width : EBB_THREAD / lanes;
    const uint32_t lane = l->across ? EBB_THREAD / l->width : EBB_THREAD % lanes;
    const int64_t blocks = (l->outputs + l->width - 1) / l->width, split = round / blocks;
    ebb_lane p;
    p.split = split;
    p.out = (round - split * blocks) * l->width + which;
    p.first = split * l->each + lane;
    p.step = lanes;
    p.end = split * l->each + l->each < l->n ? split * l->each + l->each : l->n;
    p.leads = lane == 0 && p.out < l->outputs;
    if (p.out >= l->outputs) {
        p.out = 0;
        p.end = 0;
    }
    return p;
}

/* The sums over an output's lanes, for its leading one. shared: EBB_LANES_SHARED bytes. */
EBB_GPU_INLINE void ebb_lanes_sum(const ebb_lanes *l, double *shared, double *a, double *b)
{
    const uint32_t warp = EBB_THREAD / EBB_WARP, lane = EBB_THREAD % EBB_WARP;
    const bool in_warps = !l->across && l->width > 1;
    if (l->width == EBB_THREADS)
        return;
    for (uint32_t apart = 16; apart >= (in_warps ? 1 : l->width) && apart > 0; apart /= 2) {
        *a += ebb_lane_xor_f64(*a, apart);
        *b += ebb_lane_xor_f64(*b, apart);
    }
    if (in_warps)
        return;
    if (lane < l->width) {
        shared[2 * (warp * l->width + lane)] = *a;
        shared[2 * (warp * l->width + lane) + 1] = *b;
    }
    ebb_barrier();
    if (EBB_THREAD < l->width)
        for (uint32_t w = 1; w < EBB_THREADS / EBB_WARP; w++) {
            *a += shared[2 * (w * l->width + lane)];
            *b += shared[2 * (w * l->width + lane) + 1];
        }
    ebb_barrier();
}

/* Element i of [runs, s] pieces that lie `apart` elements from each other. */
typedef struct ebb_pieces {
    int64_t s, apart;
    uint32_t narrow; /* indices fit in 32 bits: divisions are cheap */
} ebb_pieces;

static inline ebb_pieces ebb_pieces_of(int64_t s, int64_t apart, int64_t n)
{
    ebb_pieces p = {s, apart, n <= 0x7FFFFFFF ? 1u : 0u};
    return p;
}

EBB_GPU_INLINE int64_t ebb_piece_at(const ebb_pieces *p, int64_t i)
{
    if (p->s == p->apart)
        return i;
    if (p->s == 1)
        return i * p->apart;
    int64_t run = p->narrow ? (int64_t)((uint32_t)i / (uint32_t)p->s) : i / p->s;
    return i + run * (p->apart - p->s);
}

/* ---- one row for a warp or for a block, every thread of which gets the sums ---- */

enum { EBB_TEAM_SHARED = 2 * 32 * 8 };

typedef struct ebb_team {
    uint32_t lane, lanes;
    int64_t row, step;
} ebb_team;

/* Threads for a row of n; at most EBB_TEAM_THREADS, which EBB_GLOBAL_OF must name. */
enum { EBB_TEAM_THREADS = 512 };
static inline uint32_t ebb_team_lanes(int64_t n)
{
    return n <= 1024 ? EBB_WARP : n <= 8192 ? 256 : EBB_TEAM_THREADS;
}

static inline uint32_t ebb_team_threads(uint32_t lanes)
{
    return lanes == EBB_WARP ? (uint32_t)EBB_CUDA_BLOCK : lanes;
}

static inline ebb_gpu_grid ebb_team_grid(int64_t rows, uint32_t lanes)
{
    int64_t teams = ebb_team_threads(lanes) / lanes;
    return ebb_cuda_blocks((rows + teams - 1) / teams);
}

/* Rows team.row, + step, ... : a warp may leave before the others, a block stays together. */
EBB_GPU_INLINE ebb_team ebb_team_of(uint32_t lanes)
{
    const uint32_t teams = EBB_THREADS / lanes;
    ebb_team t;
    t.lane = EBB_THREAD % lanes;
    t.lanes = lanes;
    t.row = (int64_t)EBB_BLOCK * teams + EBB_THREAD / lanes;
    t.step = (int64_t)EBB_BLOCKS * teams;
    return t;
}

EBB_GPU_INLINE void ebb_team_sum(const ebb_team *t, double *shared, double *a, double *b)
{
    const uint32_t warp = EBB_THREAD / EBB_WARP;
    for (uint32_t apart = 16; apart > 0; apart /= 2) {
        *a += ebb_lane_xor_f64(*a, apart);
        *b += ebb_lane_xor_f64(*b, apart);
    }
    if (t->lanes == EBB_WARP)
        return;
    ebb_barrier(); // the last sums have been read
    if (EBB_THREAD % EBB_WARP == 0) {
        shared[2 * warp] = *a;
        shared[2 * warp + 1] = *b;
    }
    ebb_barrier();
    *a = *b = 0;
    for (uint32_t w = 0; w < EBB_THREADS / EBB_WARP; w++) {
        *a += shared[2 * w];
        *b += shared[2 * w + 1];
    }
}

/* The biggest; NaN are passed over. */
EBB_GPU_INLINE double ebb_team_max(const ebb_team *t, double *shared, double a)
{
    const uint32_t warp = EBB_THREAD / EBB_WARP;
    for (uint32_t apart = 16; apart > 0; apart /= 2) {
        double other = ebb_lane_xor_f64(a, apart);
        a = other > a ? other : a;
    }
    if (t->lanes == EBB_WARP)
        return a;
    ebb_barrier();
    if (EBB_THREAD % EBB_WARP == 0)
        shared[warp] = a;
    ebb_barrier();
    for (uint32_t w = 0; w < EBB_THREADS / EBB_WARP; w++)
        a = shared[w] > a ? shared[w] : a;
    return a;
}

/* ---- small operands whose dtype is their own: scales, statistics ---- */

typedef struct ebb_numbers { /* NULL: not there */
    void *data;
    uint32_t dtype;
} ebb_numbers;

static inline ebb_numbers ebb_numbers_in(const ebb_call *c, uint32_t i)
{
    ebb_numbers n = {NULL, EBB_NONE};
    if (ebb_call_has(c, i)) {
        n.data = c->in[i].data;
        n.dtype = c->in[i].type.dtype;
    }
    return n;
}

static inline ebb_numbers ebb_numbers_out(const ebb_call *c, uint32_t o)
{
    ebb_numbers n = {NULL, EBB_NONE};
    if (ebb_call_wants(c, o)) {
        n.data = c->out[o].data;
        n.dtype = c->out[o].type.dtype;
    }
    return n;
}

EBB_GPU_INLINE double ebb_number(const ebb_numbers *n, int64_t i)
{
    if (n->dtype == EBB_F32)
        return (double)((const float *)n->data)[i];
    if (n->dtype == EBB_F64)
        return ((const double *)n->data)[i];
    return (double)(n->dtype == EBB_F16 ? ebb_from_f16(((const ebb_f16 *)n->data)[i])
                                        : ebb_from_bf16(((const ebb_bf16 *)n->data)[i]));
}

EBB_GPU_INLINE void ebb_number_put(const ebb_numbers *n, int64_t i, double v)
{
    if (n->dtype == EBB_F32)
        ((float *)n->data)[i] = (float)v;
    else if (n->dtype == EBB_F64)
        ((double *)n->data)[i] = v;
    else if (n->dtype == EBB_F16)
        ((ebb_f16 *)n->data)[i] = ebb_to_f16((float)v);
    else
        ((ebb_bf16 *)n->data)[i] = ebb_to_bf16((float)v);
}
