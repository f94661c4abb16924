/* arg.cu: arg-max and arg-min, running sums and products: along one axis of [outer, n, inner].
 *
 * Where inner is 1, arg-max has lanes.h's lanes along a line, else across lines; long lines are
 * split and a second launch chooses among the parts. A running sum of neighbouring elements is made
 * by a block, tile after tile; elsewhere by a thread a line.
 */
#include "kernels/cuda/lanes.h"

enum { NUMBERS = 6 }; // f32 f64 f16 bf16, i32, i64: rows of a table of kernels

typedef struct best { /* at < 0: none yet */
    int64_t rank;     // larger where the element is to be chosen; see rank_of_real
    int64_t at;
} best;

typedef struct arg_args {
    ebb_lanes lanes, rest;
    int64_t inner;
    const void *x;
    int64_t *y;
    best *parts; /* [splits, outputs]; NULL: not split */
    uint32_t least, last;
} arg_args;

typedef struct running_args {
    int64_t outer, n, inner;
    const void *x;
    void *y;
    uint32_t exclusive, reverse, product;
} running_args;

typedef struct mark_args {
    const int64_t *at; /* of each line */
    void *y;
    int64_t count, n, inner;
} mark_args;

/* Integers in the order of floats: those of int64 have more digits than a double has, so they must
 * not become one. NaN is chosen where it is element 0 alone, as the comparisons of the plain kernel
 * have it: ahead of all there, passed over elsewhere. */
EBB_GPU_INLINE int64_t rank_of_real(double v, uint32_t least)
{
    const double turned = least ? -v : v;
    int64_t bits;
    if (v != v)
        return INT64_MAX;
    memcpy(&bits, &turned, sizeof bits);
    return bits < 0 ? -(bits & INT64_MAX) : bits; // both zeros are 0
}

EBB_GPU_INLINE int64_t rank_of_whole(int64_t v, uint32_t least)
{
    return least ? ~v : v;
}

/* Of equals the first, or the last. */
EBB_GPU_INLINE best better(best a, best b, uint32_t last)
{
    if (a.at < 0 || b.at < 0)
        return a.at < 0 ? b : a;
    if (a.rank == b.rank)
        return (a.at < b.at) == (last == 0) ? a : b;
    return a.rank > b.rank ? a : b;
}

EBB_GPU_INLINE int64_t number_from(int64_t v, uint32_t apart)
{
    const uint32_t low = ebb_lane_xor_u32((uint32_t)(uint64_t)v, apart);
    const uint32_t high = ebb_lane_xor_u32((uint32_t)((uint64_t)v >> 32), apart);
    return (int64_t)((uint64_t)high << 32 | low);
}

EBB_GPU_INLINE best best_from(best b, uint32_t apart)
{
    const best other = {number_from(b.rank, apart), number_from(b.at, apart)};
    return other;
}

/* As ebb_lanes_sum. */
EBB_GPU_INLINE best best_of_lanes(const ebb_lanes *l, best *shared, best b, uint32_t last)
{
    const uint32_t warp = EBB_THREAD / EBB_WARP, lane = EBB_THREAD % EBB_WARP;
    const bool in_warps = !l->across && l->width > 1;
    if (l->width == EBB_THREADS)
        return b;
    for (uint32_t apart = 16; apart >= (in_warps ? 1 : l->width) && apart > 0; apart /= 2)
        b = better(b, best_from(b, apart), last);
    if (in_warps)
        return b;
    if (lane < l->width)
        shared[warp * l->width + lane] = b;
    ebb_barrier();
    if (EBB_THREAD < l->width)
        for (uint32_t w = 1; w < EBB_THREADS / EBB_WARP; w++)
            b = better(b, shared[w * l->width + lane], last);
    ebb_barrier();
    return b;
}

#define JOIN(product, a, b) ((product) ? (a) * (b) : (a) + (b))
#define IS_NUMBER(v) ((v) == (v))
#define RANK(v, least) rank_of_real((double)(v), least)
#define ADDEND(v) ((double)(v))
#define SUMS double
#define PUT(p, i, v) STORE(p, i, (REAL)(v))
#define KERNELS "kernels/cuda/arg_kernels.inc"
#include "kernels/cuda/all_floats.inc"
#undef IS_NUMBER
#undef RANK
#undef ADDEND
#undef SUMS
#undef PUT
#define IS_NUMBER(v) true
#define RANK(v, least) rank_of_whole(v, least)
#define ADDEND(v) ((uint64_t)(int64_t)(v))
#define SUMS uint64_t
#define PUT(p, i, v) ((p)[i] = (STORED)(v))
#define LOAD(p, i) ((p)[i])
#define KERNELS "kernels/cuda/arg_kernels.inc"
#define STORED int32_t
#define SUFFIX i32
#include "kernels/cuda/one_type.inc"
#define STORED int64_t
#define SUFFIX i64
#include "kernels/cuda/one_type.inc"
#undef KERNELS

#undef LOAD

#define KERNELS "kernels/cuda/mark_kernels.inc"
#include "kernels/cuda/all_floats.inc"

EBB_GLOBAL(finish_arg, arg_args)
{
    EBB_SHARED(best, shared);
    EBB_LANES_LOOP(round, &a.rest)
    {
        const ebb_lane p = ebb_lane_of(&a.rest, round);
        best b = {0, -1};
        for (int64_t i = p.first; i < p.end; i += p.step)
            b = better(b, a.parts[i * a.rest.outputs + p.out], a.last);
        b = best_of_lanes(&a.rest, shared, b, a.last);
        if (p.leads)
            a.y[p.out] = b.at;
    }
}

#define EVERY(name)                                                                             \
    {                                                                                           \
        (ebb_gpu_kernel) name##_f32, (ebb_gpu_kernel)name##_f64, (ebb_gpu_kernel)name##_f16,    \
            (ebb_gpu_kernel)name##_bf16, (ebb_gpu_kernel)name##_i32, (ebb_gpu_kernel)name##_i64 \
    }

static const ebb_gpu_kernel args_of[NUMBERS] = EVERY(arg);
static const ebb_gpu_kernel marks[] = EBB_CUDA_FLOATS(mark);
static const ebb_gpu_kernel lines[NUMBERS] = EVERY(running_lines);
static const ebb_gpu_kernel tiles[NUMBERS] = EVERY(running_tiles);

static int row_of(uint8_t dtype)
{
    return dtype == EBB_I32 ? 4 : dtype == EBB_I64 ? 5 : ebb_cuda_float_row(dtype);
}

static const char *dtypes_of_arg(const ebb_call *c)
{
    const uint8_t t = c->in[0].type.dtype;
    if (!ebb_dtype_is_float((ebb_dtype)t) && t != EBB_I32 && t != EBB_I64)
        return "the dtype is not one of the floats, int32, int64";
    return ebb_call_any(c);
}

static const char *hardmax_misfit(const ebb_call *c)
{
    return c->in[0].type.rank == 0 ? "a scalar has no axis" : NULL;
}

static const char *running_misfit(const ebb_call *c)
{
    return ebb_cuda_constant(c, 1);
}

static ebb_status read_arg(arg_args *a, const ebb_call *c, int64_t otherwise)
{
    int axis = 0;
    memset(a, 0, sizeof *a);
    EBB_TRY(
        ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", otherwise), c->in[0].type.rank, &axis));
    const ebb_span s = ebb_span_of(&c->in[0].type, axis);
    a->inner = s.inner;
    a->lanes = ebb_lanes_of(s.outer * s.inner, s.n, s.inner > 1);
    a->rest = ebb_lanes_rest(&a->lanes);
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    arg_args a;
    EBB_TRY(read_arg(&a, c, 0));
    return ebb_lanes_workspace(c, &a.lanes, sizeof(best), bytes);
}

/* And then the indices. */
static ebb_status hardmax_workspace(const ebb_call *c, size_t *bytes)
{
    arg_args a;
    size_t indices = 0;
    EBB_TRY(read_arg(&a, c, -1));
    EBB_TRY(ebb_lanes_workspace(c, &a.lanes, sizeof(best), bytes));
    return ebb_size_mul(&indices, (size_t)a.lanes.outputs, sizeof(int64_t)) &&
                   ebb_size_add(bytes, *bytes, indices)
               ? NULL
               : ebb_call_error(c, "it has too many lines");
}

/* Indices to y, parts to the workspace. */
static ebb_status choose(const ebb_call *c, arg_args a, int64_t *y)
{
    a.x = c->in[0].data;
    a.y = y;
    a.parts = a.lanes.splits > 1 ? (best *)c->workspace : NULL;
    EBB_TRY(EBB_LAUNCH(c, args_of[row_of(c->in[0].type.dtype)], ebb_lanes_grid(&a.lanes),
                       EBB_CUDA_BLOCK, EBB_LANES_SHARED, a));
    return a.parts == NULL ? NULL
                           : EBB_LAUNCH(c, finish_arg, ebb_lanes_grid(&a.rest), EBB_CUDA_BLOCK,
                                        EBB_LANES_SHARED, a);
}

static ebb_status run_arg(const ebb_call *c)
{
    arg_args a;
    EBB_TRY(read_arg(&a, c, 0));
    if (a.lanes.n == 0 && a.lanes.outputs > 0)
        return ebb_call_error(c, "an empty axis has no largest or smallest element");
    a.least = c->op == EBB_OP_ARG_MIN;
    a.last = ebb_attr_int(&c->attrs, "select_last_index", 0) != 0;
    return choose(c, a, (int64_t *)c->out[0].data);
}

/* (X) {axis = -1} -> Y: 1 where the axis has its first largest element, else 0. */
static ebb_status run_hardmax(const ebb_call *c)
{
    arg_args a;
    size_t parts = 0;
    EBB_TRY(read_arg(&a, c, -1));
    EBB_TRY(ebb_lanes_workspace(c, &a.lanes, sizeof(best), &parts));
    if (a.lanes.n == 0)
        return NULL;
    int64_t *at = (int64_t *)(void *)((char *)c->workspace + parts);
    EBB_TRY(choose(c, a, at));
    mark_args m = {at, c->out[0].data, a.lanes.outputs * a.lanes.n, a.lanes.n, a.inner};
    return EBB_LAUNCH(c, marks[ebb_cuda_float_row(c->in[0].type.dtype)], ebb_cuda_grid(m.count),
                      EBB_CUDA_BLOCK, 0, m);
}

static ebb_status run_running(const ebb_call *c)
{
    int axis = 0;
    EBB_TRY(ebb_call_axis(c, (int64_t)ebb_cuda_scalar(c, 1, 0), c->in[0].type.rank, &axis));
    const ebb_span s = ebb_span_of(&c->in[0].type, axis);
    const int row = row_of(c->in[0].type.dtype);
    running_args a = {s.outer, s.n, s.inner, c->in[0].data, c->out[0].data, 0, 0, 0};
    a.exclusive = ebb_attr_int(&c->attrs, "exclusive", 0) != 0;
    a.reverse = ebb_attr_int(&c->attrs, "reverse", 0) != 0;
    a.product = c->op == EBB_OP_CUM_PROD;
    if (s.inner == 1 && s.n > EBB_WARP)
        return EBB_LAUNCH(c, tiles[row], ebb_cuda_blocks(s.outer), EBB_CUDA_BLOCK,
                          EBB_CUDA_BLOCK * 8, a);
    return EBB_LAUNCH(c, lines[row], ebb_cuda_grid(s.outer * s.inner), EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_arg[] = {
    {.name = "cuda.arg_max",  .op = EBB_OP_ARG_MAX,  .dtypes = dtypes_of_arg, .workspace = workspace, .run = run_arg},
    {.name = "cuda.arg_min",  .op = EBB_OP_ARG_MIN,  .dtypes = dtypes_of_arg, .workspace = workspace, .run = run_arg},
    {.name = "cuda.hardmax",  .op = EBB_OP_HARDMAX,  .dtypes = ebb_cuda_floats, .fits = hardmax_misfit, .workspace = hardmax_workspace, .run = run_hardmax},
    {.name = "cuda.cum_sum",  .op = EBB_OP_CUM_SUM,  .dtypes = dtypes_of_arg, .fits = running_misfit, .run = run_running},
    {.name = "cuda.cum_prod", .op = EBB_OP_CUM_PROD, .dtypes = dtypes_of_arg, .fits = running_misfit, .run = run_running},
};
// clang-format on
EBB_CUDA_COUNT(arg)
