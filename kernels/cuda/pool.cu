/* pool.cu: MaxPool with Indices, AveragePool, LpPool, the global pools, and the gradients.
 *
 * As kernels/plain/layers/pool.c has them. The gradients gather: an element of dx asks the windows that it
 * lies in, in their order, so that nothing is added twice at once and sums come out the same.
 *
 *     x  . . # # # . .      dx[#] = sum over windows |  of their share for #
 *        |--o--|                    max: dy[o] where # is the first maximum of the window
 *            |--o--|                average: dy[o] / taps
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/window.h"
#include "kernels/math/power.h"
#include "kernels/call/misfit.h"

typedef enum pool_way { POOL_MAX, POOL_PACKED, POOL_AVERAGE } pool_way;

typedef struct pool_args {
    void *out;
    const void *first, *second; /* x; or dy and x */
    int64_t *indices;
    uint8_t *codes;      /* taps, written */
    const uint8_t *taps; /* ... and read */
    ebb_cuda_window w;
    int64_t images, volume; /* channels of all images; elements of each, for the global pools */
    int32_t bits;
    int64_t order; /* p of LpPool */
    bool count_pad, columns, average;
} pool_args;

/* The taps of one window that lie inside: first, first + dilation, ... below end. */
typedef struct pool_taps {
    int32_t first[EBB_AXES], end[EBB_AXES];
    int32_t count, padded_count;
} pool_taps;

EBB_GPU_INLINE int32_t pool_taps_below(int32_t first, int32_t end, int32_t step)
{
    return end <= first ? 0 : (end - first + step - 1) / step;
}

EBB_GPU_INLINE void pool_taps_of(pool_taps *r, const ebb_cuda_window *w, int32_t o)
{
    int32_t at[EBB_AXES];
    ebb_cuda_axes_of(at, w->narrow, o);
    r->count = r->padded_count = 1;
    for (int axis = 0; axis < EBB_AXES; axis++) {
        int32_t step = w->dilation[axis];
        int32_t start = at[axis] * w->stride[axis] - w->before[axis];
        int32_t end = start + (w->kernel[axis] - 1) * step + 1;
        int32_t padded_end = w->wide[axis] + w->after[axis];
        r->first[axis] = start >= 0 ? start : start + (-start + step - 1) / step * step;
        r->end[axis] = end < w->wide[axis] ? end : w->wide[axis];
        r->count *= pool_taps_below(r->first[axis], r->end[axis], step);
        r->padded_count *= pool_taps_below(start, end < padded_end ? end : padded_end, step);
    }
}

/* The place of the same element if the last axis varied slowest (storage_order 1). */
EBB_GPU_INLINE int64_t pool_by_columns(const ebb_cuda_window *w, int32_t place)
{
    int32_t at[EBB_AXES];
    ebb_cuda_axes_of(at, w->wide, place);
    return at[0] + (int64_t)w->wide[0] * (at[1] + (int64_t)w->wide[1] * at[2]);
}

/* Which tap of window o lies on a place of the channel, counted in row-major order. */
EBB_GPU_INLINE uint32_t pool_tap_at(const ebb_cuda_window *w, int32_t o, int32_t place)
{
    int32_t at[EBB_AXES], window[EBB_AXES], tap = 0;
    ebb_cuda_axes_of(at, w->wide, place);
    ebb_cuda_axes_of(window, w->narrow, o);
    for (int axis = 0; axis < EBB_AXES; axis++) {
        int32_t start = window[axis] * w->stride[axis] - w->before[axis];
        tap = tap * w->kernel[axis] + (at[axis] - start) / w->dilation[axis];
    }
    return (uint32_t)tap;
}

/* Windows that reach over a place: first .. last along each axis, of which those have a tap on it
 * whose distance is a multiple of the dilation. */
typedef struct pool_windows {
    int32_t first[EBB_AXES], last[EBB_AXES], at[EBB_AXES];
} pool_windows;

EBB_GPU_INLINE void pool_windows_of(pool_windows *v, const ebb_cuda_window *w, int32_t place)
{
    ebb_cuda_axes_of(v->at, w->wide, place);
    for (int axis = 0; axis < EBB_AXES; axis++) {
        int32_t stride = w->stride[axis], at = v->at[axis] + w->before[axis];
        int32_t low = at - (w->kernel[axis] - 1) * w->dilation[axis];
        v->at[axis] = at;
        v->first[axis] = low <= 0 ? 0 : (low + stride - 1) / stride;
        v->last[axis] = at / stride < w->narrow[axis] ? at / stride : w->narrow[axis] - 1;
    }
}

EBB_GPU_INLINE bool pool_window_has(const ebb_cuda_window *w, const pool_windows *v, int32_t i,
                                    int32_t j, int32_t k)
{
    return (v->at[0] - i * w->stride[0]) % w->dilation[0] == 0 &&
           (v->at[1] - j * w->stride[1]) % w->dilation[1] == 0 &&
           (v->at[2] - k * w->stride[2]) % w->dilation[2] == 0;
}

/* As kernels/math/codes.h stores them. */
EBB_GPU_INLINE uint32_t ebb_cuda_code(const uint8_t *codes, int32_t bits, int64_t i)
{
    if (bits == 16)
        return codes[2 * i] | (uint32_t)codes[2 * i + 1] << 8;
    int64_t first = i * bits;
    return (uint32_t)codes[first / 8] >> (uint32_t)(first % 8) & ((1u << (uint32_t)bits) - 1u);
}

#define KERNELS "kernels/cuda/pool_kernels.inc"
#include "kernels/cuda/all_floats.inc"

/* Every number of 8 bits is a float32. Nothing but padding gives the least of them. */
#define REAL float
#define LOAD(p, i) ((REAL)(p)[i])
#define STORED int8_t
#define NAMED(x) x##_i8
#define STORE(p, i, v) ((p)[i] = (STORED)((v) < INT8_MIN ? INT8_MIN : (v)))
#include "kernels/cuda/pool_max_kernels.inc"
#undef STORED
#undef NAMED
#undef STORE
#define STORED uint8_t
#define NAMED(x) x##_u8
#define STORE(p, i, v) ((p)[i] = (STORED)((v) < 0 ? 0 : (v)))
#include "kernels/cuda/pool_max_kernels.inc"
#undef STORED
#undef NAMED
#undef STORE
#undef LOAD
#undef REAL

static const ebb_gpu_kernel max_pools[4] = EBB_CUDA_FLOATS(max_pool);
static const ebb_gpu_kernel max_pools_packed[4] = EBB_CUDA_FLOATS(max_pool_packed);
static const ebb_gpu_kernel average_pools[4] = EBB_CUDA_FLOATS(average_pool);
static const ebb_gpu_kernel lp_pools[4] = EBB_CUDA_FLOATS(lp_pool);
static const ebb_gpu_kernel max_pool_grads[4] = EBB_CUDA_FLOATS(max_pool_grad);
static const ebb_gpu_kernel max_pool_packed_grads[4] = EBB_CUDA_FLOATS(max_pool_packed_grad);
static const ebb_gpu_kernel average_pool_grads[4] = EBB_CUDA_FLOATS(average_pool_grad);
static const ebb_gpu_kernel global_pools[4] = EBB_CUDA_FLOATS(global_pool);

/* ---- calls ---- */

static const char *read_window(ebb_cuda_window *w, ebb_geometry *g, const ebb_call *c)
{
    EBB_ASK(ebb_pool_read(g, c));
    return ebb_cuda_window_make(w, g);
}

static const char *misfit(const ebb_call *c)
{
    ebb_geometry g;
    ebb_cuda_window w;
    if (ebb_call_wants(c, 1) && c->out[1].type.dtype != EBB_I64)
        return "Indices are not int64";
    return read_window(&w, &g, c);
}

/* MaxPool also has integers of 8 bits. */
static const char *dtypes_of_max(const ebb_call *c)
{
    const uint8_t x = c->in[0].type.dtype;
    if (x != EBB_I8 && x != EBB_U8)
        return ebb_cuda_floats(c);
    EBB_ASK(ebb_call_any(c));
    if (c->out[0].type.dtype != x)
        return "the output differs in dtype from the input";
    return NULL;
}

static const char *misfit_lp(const ebb_call *c)
{
    EBB_ASK(misfit(c));
    return ebb_attr_int(&c->attrs, "p", 2) < 1 ? "p is less than 1" : NULL;
}

static const char *misfit_packed(const ebb_call *c)
{
    ebb_geometry g;
    ebb_cuda_window w;
    bool backward = c->op == EBB_OP_MAX_POOL_PACKED_GRAD;
    if (backward ? !ebb_call_has(c, 1) : !ebb_call_wants(c, 1))
        return "no taps";
    EBB_ASK(read_window(&w, &g, c));
    return ebb_taps_misfit(&g, c);
}

static ebb_gpu_kernel max_pool_of(uint8_t dtype)
{
    return dtype == EBB_I8   ? (ebb_gpu_kernel)max_pool_i8
           : dtype == EBB_U8 ? (ebb_gpu_kernel)max_pool_u8
                             : max_pools[ebb_cuda_float_row(dtype)];
}

static ebb_status run(const ebb_call *c)
{
    ebb_geometry g;
    pool_args a;
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    memset(&a, 0, sizeof a);
    EBB_MUST_FIT(c, read_window(&a.w, &g, c));
    a.out = c->out[0].data;
    a.first = c->in[0].data;
    a.images = g.batch * g.wide_channels;
    a.bits = (int32_t)ebb_attr_int(&c->attrs, "bits", 8);
    a.count_pad = ebb_attr_int(&c->attrs, "count_include_pad", 0) != 0;
    a.columns = ebb_attr_int(&c->attrs, "storage_order", 0) != 0;
    const ebb_gpu_grid forward = ebb_cuda_grid(a.images * a.w.narrow_volume);
    const ebb_gpu_grid backward = ebb_cuda_grid(a.images * a.w.wide_volume);
    switch (c->op) {
    case EBB_OP_MAX_POOL:
        a.indices = ebb_call_wants(c, 1) ? (int64_t *)c->out[1].data : NULL;
        return EBB_LAUNCH(c, max_pool_of(c->in[0].type.dtype), forward, EBB_CUDA_BLOCK, 0, a);
    case EBB_OP_AVERAGE_POOL:
        return EBB_LAUNCH(c, average_pools[row], forward, EBB_CUDA_BLOCK, 0, a);
    case EBB_OP_LP_POOL:
        a.order = ebb_attr_int(&c->attrs, "p", 2);
        return EBB_LAUNCH(c, lp_pools[row], forward, EBB_CUDA_BLOCK, 0, a);
    case EBB_OP_MAX_POOL_PACKED:
        a.codes = (uint8_t *)c->out[1].data;
        return EBB_LAUNCH(c, max_pools_packed[row], forward, EBB_CUDA_BLOCK, 0, a);
    case EBB_OP_MAX_POOL_PACKED_GRAD:
        a.taps = (const uint8_t *)c->in[1].data;
        return EBB_LAUNCH(c, max_pool_packed_grads[row], backward, EBB_CUDA_BLOCK, 0, a);
    case EBB_OP_MAX_POOL_GRAD:
        a.second = c->in[1].data;
        return EBB_LAUNCH(c, max_pool_grads[row], backward, EBB_CUDA_BLOCK, 0, a);
    default:
        return EBB_LAUNCH(c, average_pool_grads[row], backward, EBB_CUDA_BLOCK, 0, a);
    }
}

static ebb_status run_global(const ebb_call *c)
{
    const ebb_type *type = &c->in[0].type;
    pool_args a;
    memset(&a, 0, sizeof a);
    a.out = c->out[0].data;
    a.first = c->in[0].data;
    a.images = type->dims[0] * type->dims[1];
    a.volume = a.images == 0 ? 0 : ebb_elements(type) / a.images;
    a.average = c->op == EBB_OP_GLOBAL_AVERAGE_POOL;
    return EBB_LAUNCH(c, global_pools[ebb_cuda_float_row(type->dtype)],
                      ebb_cuda_grid(a.images * EBB_WARP), EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_pool[] = {
    {.name = "cuda.max_pool",             .op = EBB_OP_MAX_POOL,             .dtypes = dtypes_of_max, .fits = misfit, .run = run},
    {.name = "cuda.average_pool",         .op = EBB_OP_AVERAGE_POOL,         .dtypes = ebb_cuda_floats, .fits = misfit, .run = run},
    {.name = "cuda.lp_pool",              .op = EBB_OP_LP_POOL,              .dtypes = ebb_cuda_floats, .fits = misfit_lp, .run = run},
    {.name = "cuda.max_pool_grad",        .op = EBB_OP_MAX_POOL_GRAD,        .dtypes = ebb_cuda_floats, .fits = misfit, .run = run},
    {.name = "cuda.max_pool_packed",      .op = EBB_OP_MAX_POOL_PACKED,      .dtypes = ebb_cuda_floats, .fits = misfit_packed, .run = run},
    {.name = "cuda.max_pool_packed_grad", .op = EBB_OP_MAX_POOL_PACKED_GRAD, .dtypes = ebb_cuda_floats, .fits = misfit_packed, .run = run},
    {.name = "cuda.average_pool_grad",    .op = EBB_OP_AVERAGE_POOL_GRAD,    .dtypes = ebb_cuda_floats, .fits = misfit, .run = run},
    {.name = "cuda.global_average_pool",  .op = EBB_OP_GLOBAL_AVERAGE_POOL,  .dtypes = ebb_cuda_floats, .fits = ebb_global_pool_misfit, .run = run_global},
    {.name = "cuda.global_max_pool",      .op = EBB_OP_GLOBAL_MAX_POOL,      .dtypes = ebb_cuda_floats, .fits = ebb_global_pool_misfit, .run = run_global},
};
// clang-format on
EBB_CUDA_COUNT(pool)
