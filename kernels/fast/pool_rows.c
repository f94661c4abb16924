/* pool_rows.c: maxima and all gradients of pools over row-major tensors, a row of windows at a time;
 * averages where oneDNN (pool.c) does not take them.
 *
 * For each tap of the window, one pass over the row of windows: the inner loop has no conditions
 * and fills the vector lanes. Maxima of row-major tensors stay here, where a NaN comes through.
 */
#include "kernels/fast/fast.h"
#include "kernels/math/codes.h"

#include <math.h>

enum { ROW = 256, MOST_TAPS = 256 }; /* windows at once and taps of each: 12 KiB of stack */

/* ---- row-major ---- */

/* What a tap of the window means for any row; found once a call, because it takes divisions. */
typedef struct tap {
    int64_t i, j;        /* rows of X it lies below the window's first */
    int64_t shift;       /* its column in window 0; negative in the padding */
    int64_t first, last; /* windows [first, last) of a row have it inside */
} tap;

typedef struct pool { /* one call, whatever its operator */
    ebb_geometry w;
    ebb_op op;
    bool padded;
    const float *first, *x; /* X or dY; X of MaxPoolGrad */
    float *out;
    int64_t *indices;
    uint8_t *taps_out;      /* MaxPoolPacked's codes */
    const uint8_t *taps_in; /* MaxPoolPackedGrad's */
    unsigned bits;          /* of a code */
    int64_t count;
    tap taps[MOST_TAPS];
} pool;

static void find_taps(pool *p)
{
    const ebb_geometry *w = &p->w;
    int64_t step = w->stride[2];
    p->count = ebb_geometry_volume(w->kernel);
    for (int64_t t = 0; t < p->count; t++) {
        int64_t k = t % w->kernel[2], j = t / w->kernel[2] % w->kernel[1];
        tap *at = &p->taps[t];
        at->i = t / w->kernel[2] / w->kernel[1] * w->dilation[0] - w->pad_begin[0];
        at->j = j * w->dilation[1] - w->pad_begin[1];
        at->shift = k * w->dilation[2] - w->pad_begin[2];
        at->first = at->shift >= 0 ? 0 : (-at->shift + step - 1) / step;
        int64_t room = w->wide[2] - at->shift; // columns at and after the tap of window 0
        at->last = room <= 0 ? 0 : (room + step - 1) / step;
    }
}

/* Windows [lo, hi) of a row have a certain tap inside, window o's at base + o * stride. */
typedef struct reach {
    int64_t lo, hi, base;
} reach;

/* False where that tap lies in the padding for the whole row. */
static bool reaches(reach *r, const pool *p, int64_t t, int64_t o0, int64_t o1, int64_t from,
                    int64_t end)
{
    const ebb_geometry *w = &p->w;
    const tap *at = &p->taps[t];
    int64_t i = o0 * w->stride[0] + at->i, j = o1 * w->stride[1] + at->j;
    r->lo = from > at->first ? from : at->first;
    r->hi = end < at->last ? end : at->last;
    r->base = (i * w->wide[1] + j) * w->wide[2] + at->shift;
    return i >= 0 && i < w->wide[0] && j >= 0 && j < w->wide[1];
}

/* y[o - from]: the maximum of window o. A NaN is greater than everything. */
static void max_of_row(float *restrict y, const float *restrict x, const pool *p, int64_t o0,
                       int64_t o1, int64_t from, int64_t end)
{
    int64_t step = p->w.stride[2];
    reach r;
    for (int64_t o = from; o < end; o++)
        y[o - from] = -INFINITY;
    for (int64_t t = 0; t < p->count; t++) {
        if (!reaches(&r, p, t, o0, o1, from, end))
            continue;
        EBB_SIMD
        for (int64_t o = r.lo; o < r.hi; o++) {
            float v = x[r.base + o * step], now = y[o - from];
            y[o - from] = (v > now) | ((v != v) & (now == now)) ? v : now;
        }
    }
}

/* The same, and in at[] where it is: the first one in row-major order; -1: nowhere. An offset in
 * the channel, or for MaxPoolPacked the tap of the window. */
static void first_max_of_row(float *restrict y, int32_t *restrict at, const float *restrict x,
                             const pool *p, int64_t o0, int64_t o1, int64_t from, int64_t end)
{
    int64_t step = p->w.stride[2];
    bool packed = p->op == EBB_OP_MAX_POOL_PACKED;
    reach r;
    for (int64_t o = from; o < end; o++) {
        y[o - from] = -INFINITY;
        at[o - from] = -1;
    }
    for (int64_t t = 0; t < p->count; t++) {
        if (!reaches(&r, p, t, o0, o1, from, end))
            continue;
        const int64_t place = packed ? t : r.base, next = packed ? 0 : step;
        EBB_SIMD
        for (int64_t o = r.lo; o < r.hi; o++) {
            float v = x[r.base + o * step], now = y[o - from];
            int32_t was = at[o - from];
            int better = (v > now) | (was < 0) | ((v != v) & (now == now));
            y[o - from] = better ? v : now;
            at[o - from] = better ? (int32_t)(place + o * next) : was;
        }
    }
}

/* dx at the tap that each window's code names += dy. */
static void scatter_row(float *restrict dx, const float *restrict dy, const pool *p, int64_t row,
                        int64_t o0, int64_t o1, int64_t from, int64_t end)
{
    const ebb_geometry *w = &p->w;
    for (int64_t o = from; o < end; o++) {
        int64_t code = ebb_code_get(p->taps_in, p->bits, row + o - from);
        const tap *at = &p->taps[code % p->count];
        int64_t i = o0 * w->stride[0] + at->i, j = o1 * w->stride[1] + at->j;
        if (i >= 0 && i < w->wide[0] && j >= 0 && j < w->wide[1] && o >= at->first && o < at->last)
            dx[(i * w->wide[1] + j) * w->wide[2] + o * w->stride[2] + at->shift] += dy[o - from];
    }
}

static void sum_of_row(float *restrict y, const float *restrict x, const pool *p, int64_t o0,
                       int64_t o1, int64_t from, int64_t end)
{
    int64_t step = p->w.stride[2];
    reach r;
    for (int64_t o = from; o < end; o++)
        y[o - from] = 0;
    for (int64_t t = 0; t < p->count; t++) {
        if (!reaches(&r, p, t, o0, o1, from, end))
            continue;
        EBB_SIMD
        for (int64_t o = r.lo; o < r.hi; o++)
            y[o - from] += x[r.base + o * step];
    }
}

/* dx at each tap += share of its window. */
static void spread_row(float *restrict dx, const float *restrict share, const pool *p, int64_t o0,
                       int64_t o1, int64_t from, int64_t end)
{
    int64_t step = p->w.stride[2];
    reach r;
    for (int64_t t = 0; t < p->count; t++) {
        if (!reaches(&r, p, t, o0, o1, from, end))
            continue;
        EBB_SIMD
        for (int64_t o = r.lo; o < r.hi; o++)
            dx[r.base + o * step] += share[o - from];
    }
}

/* Taps of window o along an axis that count for an average. */
static int64_t taps(const ebb_geometry *w, int axis, int64_t o, bool padded)
{
    int64_t step = w->dilation[axis], start = o * w->stride[axis] - w->pad_begin[axis];
    int64_t end = start + (w->kernel[axis] - 1) * step + 1;
    int64_t limit = w->wide[axis] + (padded ? w->pad_end[axis] : 0);
    int64_t first = padded || start >= 0 ? start : start + (-start + step - 1) / step * step;
    end = end < limit ? end : limit;
    return end <= first ? 0 : (end - first + step - 1) / step;
}

static void average_row(float *y, const float *x, const ebb_geometry *w, int64_t o0, int64_t o1,
                        int64_t from, int64_t end, bool padded)
{
    int64_t rows = taps(w, 0, o0, padded) * taps(w, 1, o1, padded);
    for (int64_t o = from; o < end; o++) {
        int64_t count = rows * taps(w, 2, o, padded);
        y[o - from] = count == 0 ? 0 : x[o - from] / (float)count;
    }
}

static void pool_row(const pool *p, int64_t image, int64_t o0, int64_t o1, int64_t from,
                     int64_t end)
{
    const ebb_geometry *w = &p->w;
    int64_t wide = image * ebb_geometry_volume(w->wide);
    int64_t row =
        image * ebb_geometry_volume(w->narrow) + (o0 * w->narrow[1] + o1) * w->narrow[2] + from;
    float value[ROW];
    int32_t at[ROW];
    switch (p->op) {
    case EBB_OP_MAX_POOL:
        if (p->indices == NULL) {
            max_of_row(p->out + row, p->first + wide, p, o0, o1, from, end);
            break;
        }
        first_max_of_row(p->out + row, at, p->first + wide, p, o0, o1, from, end);
        for (int64_t o = 0; o < end - from; o++)
            p->indices[row + o] = at[o] < 0 ? -1 : wide + at[o];
        break;
    case EBB_OP_MAX_POOL_PACKED:
        first_max_of_row(p->out + row, at, p->first + wide, p, o0, o1, from, end);
        for (int64_t o = 0; o < end - from; o++)
            ebb_code_put(p->taps_out, p->bits, row + o, at[o] < 0 ? 0 : (uint32_t)at[o]);
        break;
    case EBB_OP_MAX_POOL_PACKED_GRAD:
        scatter_row(p->out + wide, p->first + row, p, row, o0, o1, from, end);
        break;
    case EBB_OP_MAX_POOL_GRAD:
        first_max_of_row(value, at, p->x + wide, p, o0, o1, from, end);
        for (int64_t o = 0; o < end - from; o++)
            if (at[o] >= 0)
                p->out[wide + at[o]] += p->first[row + o];
        break;
    case EBB_OP_AVERAGE_POOL:
        sum_of_row(value, p->first + wide, p, o0, o1, from, end);
        average_row(p->out + row, value, w, o0, o1, from, end, p->padded);
        break;
    default:
        average_row(value, p->first + row, w, o0, o1, from, end, p->padded);
        spread_row(p->out + wide, value, p, o0, o1, from, end);
        break;
    }
}

static ebb_status run_rows(const ebb_call *call)
{
    pool p = {.op = call->op, .first = call->in[0].data, .out = call->out[0].data};
    const char *why = ebb_pool_read(&p.w, call);
    if (why != NULL)
        return ebb_call_error(call, "%s", why);
    const ebb_geometry *w = &p.w;
    bool packed = call->op == EBB_OP_MAX_POOL_PACKED;
    bool unpacked = call->op == EBB_OP_MAX_POOL_PACKED_GRAD;
    bool backward =
        unpacked || call->op == EBB_OP_MAX_POOL_GRAD || call->op == EBB_OP_AVERAGE_POOL_GRAD;
    p.padded = ebb_attr_int(&call->attrs, "count_include_pad", 0) != 0;
    find_taps(&p);
    p.x = call->op == EBB_OP_MAX_POOL_GRAD ? call->in[1].data : NULL;
    p.indices = !packed && ebb_dnnl_wants(call, 1) ? call->out[1].data : NULL;
    p.taps_out = packed ? call->out[1].data : NULL;
    p.taps_in = unpacked ? call->in[1].data : NULL;
    p.bits = (unsigned)ebb_attr_int(&call->attrs, "bits", 8);
    int64_t volume = ebb_geometry_volume(w->wide), images = w->batch * w->wide_channels;
    int64_t together = packed ? EBB_CODES_WHOLE : 1; // channels of one thread
    EBB_PARALLEL_FOR(images * volume)
    for (int64_t first = 0; first < images; first += together)
        for (int64_t image = first; image < images && image < first + together; image++) {
            if (backward)
                memset(p.out + image * volume, 0, (size_t)volume * sizeof(float));
            for (int64_t o0 = 0; o0 < w->narrow[0]; o0++)
                for (int64_t o1 = 0; o1 < w->narrow[1]; o1++)
                    for (int64_t from = 0; from < w->narrow[2]; from += ROW)
                        pool_row(&p, image, o0, o1, from,
                                 from + ROW < w->narrow[2] ? from + ROW : w->narrow[2]);
        }
    return NULL;
}

/* Indices are int64, everything else float32. */
static const char *dtypes_of_rows(const ebb_call *call)
{
    ebb_call floats = *call;
    if (ebb_dnnl_wants(call, 1) && call->out[1].type.dtype != EBB_I64)
        return "Indices are not int64";
    floats.output_count = 1;
    return ebb_dnnl_plain_floats(&floats);
}

static const char *misfit_rows(const ebb_call *call)
{
    ebb_geometry w;
    const char *why = ebb_pool_read(&w, call);
    if (why != NULL)
        return why;
    if (ebb_geometry_volume(w.kernel) > MOST_TAPS)
        return "a very large window";
    if (ebb_geometry_volume(w.wide) > INT32_MAX)
        return "a channel of more than 2^31 elements";
    if (ebb_dnnl_wants(call, 1) && ebb_attr_int(&call->attrs, "storage_order", 0) != 0)
        return "only row-major Indices";
    return NULL;
}

/* Taps are codes in bytes, everything else float32. */
static const char *declines_packed(const ebb_call *call)
{
    ebb_geometry w;
    bool backward = call->op == EBB_OP_MAX_POOL_PACKED_GRAD;
    ebb_call floats = *call;
    floats.input_count = floats.output_count = 1;
    const char *why = ebb_dnnl_plain_floats(&floats);
    if (why == NULL && (backward ? call->input_count < 2 : !ebb_dnnl_wants(call, 1)))
        why = "no taps";
    if (why == NULL)
        why = ebb_pool_read(&w, call);
    if (why == NULL)
        why = ebb_taps_misfit(&w, call);
    if (why == NULL && ebb_geometry_volume(w.kernel) > MOST_TAPS)
        why = "a very large window";
    return why;
}

// clang-format off
const ebb_kernel ebb_dnnl_pool_rows[] = {
    {.name = "rows.max_pool",             .op = EBB_OP_MAX_POOL,             .dtypes = dtypes_of_rows, .fits = misfit_rows, .run = run_rows},
    {.name = "rows.average_pool",         .op = EBB_OP_AVERAGE_POOL,         .dtypes = dtypes_of_rows, .fits = misfit_rows, .run = run_rows},
    {.name = "rows.max_pool_grad",        .op = EBB_OP_MAX_POOL_GRAD,        .dtypes = dtypes_of_rows, .fits = misfit_rows, .run = run_rows},
    {.name = "rows.max_pool_packed",      .op = EBB_OP_MAX_POOL_PACKED,      .fits = declines_packed, .run = run_rows},
    {.name = "rows.max_pool_packed_grad", .op = EBB_OP_MAX_POOL_PACKED_GRAD, .fits = declines_packed, .run = run_rows},
    {.name = "rows.average_pool_grad",    .op = EBB_OP_AVERAGE_POOL_GRAD,    .dtypes = dtypes_of_rows, .fits = misfit_rows, .run = run_rows},
};
// clang-format on
EBB_DNNL_COUNT(pool_rows)
