/* pool_rows.c: maxima and all gradients of pools over row-major tensors, a row of windows at a time;
 * averages where oneDNN (pool.c) does not take them.
 *
 * For each tap of the window, one pass over the row of windows: the inner loop has no conditions
 * and fills the vector lanes. Maxima of row-major tensors stay here, where a NaN comes through: first
 * down each column of the windows, then along the rows, so that most of the work is on neighbours.
 *
 * Maxima and their gradients have 16 bits as well: these are widened as columns meet, and a gradient is summed
 * in float32, a channel at a time.
 */
#include "kernels/fast/fast.h"
#include "kernels/fast/tile.h"
#include "kernels/plain/halves.h"
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
    ebb_dtype dtype;
    const void *first, *x; /* X or dY; X of MaxPoolGrad */
    void *out;
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

/* What one thread works with: of a row of windows, for each column of X the greatest number of the window's
 * rows, a NaN greater than everything, and which row has it, the first of several; and for 16 bits what is summed of
 * dX, a channel. */
typedef struct columns {
    float *greatest, *greatest_dealt; /* dealt: columns that a stride apart are beside each other */
    int32_t *row, *row_dealt;
    float *sums;
} columns;

/* Columns between those that are beside each other before and behind a step of 1, when dealt. */
static int64_t dealt(const ebb_geometry *w)
{
    return (w->wide[2] + w->stride[2] - 1) / w->stride[2];
}

/* Dealt they are at most twice as many. */
static int64_t floats_of_columns(const ebb_geometry *w)
{
    return w->wide[2] * (w->stride[2] == 1 ? 2 : 6);
}

static bool needs_maxima(ebb_op op)
{
    return op == EBB_OP_MAX_POOL || op == EBB_OP_MAX_POOL_PACKED || op == EBB_OP_MAX_POOL_GRAD;
}

static bool takes_halves(ebb_op op)
{
    return needs_maxima(op) || op == EBB_OP_MAX_POOL_PACKED_GRAD;
}

/* In float32 dX is summed where it lies. */
static bool sums_apart(const ebb_call *call)
{
    return ebb_is_half((ebb_dtype)call->out[0].type.dtype) &&
           (call->op == EBB_OP_MAX_POOL_GRAD || call->op == EBB_OP_MAX_POOL_PACKED_GRAD);
}

static columns columns_of(const ebb_call *call, const ebb_geometry *w, int64_t thread)
{
    const int64_t n = w->wide[2], own = floats_of_columns(w);
    const int64_t each = own + (sums_apart(call) ? ebb_geometry_volume(w->wide) : 0);
    float *at = (float *)call->workspace + thread * each;
    columns c = {.greatest = at, .row = (int32_t *)(void *)(at + n), .sums = at + own};
    c.greatest_dealt = w->stride[2] == 1 ? at : at + 2 * n;
    c.row_dealt = w->stride[2] == 1 ? c.row : (int32_t *)(void *)(at + 4 * n);
    return c;
}

/* Column f + o * step to place o of those of f. */
EBB_TILE_INLINE void deal(const columns *c, const ebb_geometry *w, const int64_t step)
{
    for (int64_t f = 0; f < step && f < w->wide[2]; f++) {
        const int64_t n = (w->wide[2] - f + step - 1) / step;
        const float *greatest = c->greatest + f;
        const int32_t *row = c->row + f;
        float *to = c->greatest_dealt + f * dealt(w);
        int32_t *row_to = c->row_dealt + f * dealt(w);
        EBB_SIMD
        for (int64_t o = 0; o < n; o++) {
            to[o] = greatest[o * step];
            row_to[o] = row[o * step];
        }
    }
}

EBB_TILE_INLINE void meet(const columns *c, const void *x, int64_t n, int32_t row,
                          const ebb_dtype dtype)
{
    float *greatest = c->greatest;
    int32_t *rows = c->row;
    EBB_SIMD
    for (int64_t i = 0; i < n; i++) {
        const float v = dtype == EBB_F32    ? ((const float *)x)[i]
                        : dtype == EBB_BF16 ? ebb_wide_bf16(((const uint16_t *)x)[i])
                                            : ebb_wide_half(((const uint16_t *)x)[i]);
        const float now = greatest[i];
        const int32_t was = rows[i], more = v > now ? 1 : 0, none_yet = now != now ? 0 : 1;
        const int32_t better = more | (was < 0 ? 1 : 0) | ((v != v ? 1 : 0) & none_yet);
        greatest[i] = better != 0 ? v : now;
        rows[i] = better != 0 ? row : was;
    }
}

/* Of the windows in row o1 of o0, whose X is a channel. */
static void meet_rows(const columns *c, const pool *p, const void *x, int64_t o0, int64_t o1)
{
    const ebb_geometry *w = &p->w;
    const int64_t n = w->wide[2];
    for (int64_t i = 0; i < n; i++)
        c->row[i] = -1;
    for (int64_t t = 0; t < p->count; t += w->kernel[2]) {
        const int64_t i = o0 * w->stride[0] + p->taps[t].i, j = o1 * w->stride[1] + p->taps[t].j;
        const int64_t at = (i * w->wide[1] + j) * n;
        if (i < 0 || i >= w->wide[0] || j < 0 || j >= w->wide[1])
            continue;
        if (p->dtype == EBB_F32)
            meet(c, (const float *)x + at, n, (int32_t)t, EBB_F32);
        else if (p->dtype == EBB_BF16)
            meet(c, (const uint16_t *)x + at, n, (int32_t)t, EBB_BF16);
        else
            meet(c, (const uint16_t *)x + at, n, (int32_t)t, EBB_F16);
    }
    if (w->stride[2] == 2)
        deal(c, w, 2);
    else if (w->stride[2] > 1)
        deal(c, w, w->stride[2]);
}

/* y[o]: the greatest of what windows o had and of the next column of each, and in at[] its tap: the first one in
 * row-major order. */
static void meet_columns(float *restrict y, int32_t *restrict at, const float *restrict greatest,
                         const int32_t *restrict rows, int64_t n, int32_t k)
{
    EBB_SIMD
    for (int64_t o = 0; o < n; o++) {
        const float v = greatest[o], now = y[o];
        const int32_t row = rows[o], was = at[o], here = row < 0 ? INT32_MAX : row + k;
        const int32_t more = v > now ? 1 : 0, less = v < now ? 1 : 0;
        const int32_t no_number = v != v ? 1 : 0, number = now != now ? 0 : 1;
        // a tie, or two that are no numbers: the first
        const int32_t same = (1 - more) & (1 - less) & (no_number ^ number);
        const int32_t better =
            (row < 0 ? 0 : 1) & (more | (no_number & number) | (same & (here < was ? 1 : 0)));
        y[o] = better != 0 ? v : now;
        at[o] = better != 0 ? here : was;
    }
}

/* y[o - from]: the maximum of window o, and in at[] its tap; INT32_MAX: nowhere. */
static void first_max_of_row(float *restrict y, int32_t *restrict at, const columns *c,
                             const pool *p, int64_t from, int64_t end)
{
    const int64_t step = p->w.stride[2];
    for (int64_t o = from; o < end; o++) {
        y[o - from] = -INFINITY;
        at[o - from] = INT32_MAX;
    }
    for (int64_t k = 0; k < p->w.kernel[2]; k++) {
        const tap *t = &p->taps[k];
        const int64_t low = from > t->first ? from : t->first, high = end < t->last ? end : t->last;
        if (low >= high)
            continue;
        const int64_t x = t->shift + low * step, place = x % step * dealt(&p->w) + x / step;
        meet_columns(y + (low - from), at + (low - from), c->greatest_dealt + place,
                     c->row_dealt + place, high - low, (int32_t)k);
    }
}

/* Where tap t of window o lies in its channel. */
static int64_t place_of(const pool *p, int64_t t, int64_t o0, int64_t o1, int64_t o)
{
    const ebb_geometry *w = &p->w;
    const tap *at = &p->taps[t];
    const int64_t i = o0 * w->stride[0] + at->i, j = o1 * w->stride[1] + at->j;
    return (i * w->wide[1] + j) * w->wide[2] + o * w->stride[2] + at->shift;
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

/* dx: of the image in float32, where it is a gradient. */
static void pool_row(const pool *p, const columns *c, float *dx, int64_t image, int64_t o0,
                     int64_t o1, int64_t from, int64_t end)
{
    const ebb_geometry *w = &p->w;
    int64_t wide = image * ebb_geometry_volume(w->wide);
    int64_t row =
        image * ebb_geometry_volume(w->narrow) + (o0 * w->narrow[1] + o1) * w->narrow[2] + from;
    float value[ROW], line[ROW];
    int32_t at[ROW];
    const int64_t n = end - from;
    switch (p->op) {
    case EBB_OP_MAX_POOL:
    case EBB_OP_MAX_POOL_PACKED: {
        float *y = ebb_place_f32(p->out, p->dtype, row, value);
        first_max_of_row(y, at, c, p, from, end);
        ebb_put_f32(p->out, p->dtype, row, n, y);
        for (int64_t o = 0; p->indices != NULL && o < n; o++)
            p->indices[row + o] =
                at[o] == INT32_MAX ? -1 : wide + place_of(p, at[o], o0, o1, from + o);
        for (int64_t o = 0; p->taps_out != NULL && o < n; o++)
            ebb_code_put(p->taps_out, p->bits, row + o, at[o] == INT32_MAX ? 0 : (uint32_t)at[o]);
        break;
    }
    case EBB_OP_MAX_POOL_PACKED_GRAD:
        scatter_row(dx, ebb_look_f32(p->first, p->dtype, row, n, line), p, row, o0, o1, from, end);
        break;
    case EBB_OP_MAX_POOL_GRAD: {
        const float *dy = ebb_look_f32(p->first, p->dtype, row, n, line);
        first_max_of_row(value, at, c, p, from, end);
        for (int64_t o = 0; o < n; o++)
            if (at[o] != INT32_MAX)
                dx[place_of(p, at[o], o0, o1, from + o)] += dy[o];
        break;
    }
    case EBB_OP_AVERAGE_POOL:
        sum_of_row(value, (const float *)p->first + wide, p, o0, o1, from, end);
        average_row((float *)p->out + row, value, w, o0, o1, from, end, p->padded);
        break;
    default:
        average_row(value, (const float *)p->first + row, w, o0, o1, from, end, p->padded);
        spread_row(dx, value, p, o0, o1, from, end);
        break;
    }
}

static void pool_image(const pool *p, const columns *c, const ebb_call *call, int64_t image)
{
    const ebb_geometry *w = &p->w;
    const int64_t volume = ebb_geometry_volume(w->wide);
    const bool backward = p->op == EBB_OP_MAX_POOL_PACKED_GRAD || p->op == EBB_OP_MAX_POOL_GRAD ||
                          p->op == EBB_OP_AVERAGE_POOL_GRAD;
    const void *x = p->op == EBB_OP_MAX_POOL || p->op == EBB_OP_MAX_POOL_PACKED ? p->first : p->x;
    float *dx = !backward ? NULL : sums_apart(call) ? c->sums : (float *)p->out + image * volume;
    if (backward)
        memset(dx, 0, (size_t)volume * sizeof(float));
    for (int64_t o0 = 0; o0 < w->narrow[0]; o0++)
        for (int64_t o1 = 0; o1 < w->narrow[1]; o1++) {
            if (needs_maxima(p->op))
                meet_rows(c, p,
                          (const char *)x + (size_t)(image * volume) * ebb_dtype_bits(p->dtype) / 8,
                          o0, o1);
            for (int64_t from = 0; from < w->narrow[2]; from += ROW)
                pool_row(p, c, dx, image, o0, o1, from,
                         from + ROW < w->narrow[2] ? from + ROW : w->narrow[2]);
        }
    if (sums_apart(call))
        ebb_narrow_here((uint16_t *)p->out + image * volume, dx, p->dtype, volume);
}

static ebb_status run_rows(const ebb_call *call)
{
    pool p = {.op = call->op,
              .dtype = (ebb_dtype)call->in[0].type.dtype,
              .first = call->in[0].data,
              .out = call->out[0].data};
    EBB_MUST_FIT(call, ebb_pool_read(&p.w, call));
    const ebb_geometry *w = &p.w;
    bool packed = call->op == EBB_OP_MAX_POOL_PACKED;
    bool unpacked = call->op == EBB_OP_MAX_POOL_PACKED_GRAD;
    p.padded = ebb_attr_int(&call->attrs, "count_include_pad", 0) != 0;
    find_taps(&p);
    p.x = call->op == EBB_OP_MAX_POOL_GRAD ? call->in[1].data : NULL;
    p.indices = !packed && ebb_call_wants(call, 1) ? call->out[1].data : NULL;
    p.taps_out = packed ? call->out[1].data : NULL;
    p.taps_in = unpacked ? call->in[1].data : NULL;
    p.bits = (unsigned)ebb_attr_int(&call->attrs, "bits", 8);
    int64_t volume = ebb_geometry_volume(w->wide), images = w->batch * w->wide_channels;
    const int64_t together = packed ? EBB_CODES_WHOLE : 1; // channels of one thread
    const int64_t jobs = (images + together - 1) / together, threads = ebb_threads();
    EBB_PARALLEL_FOR(images * volume)
    for (int64_t thread = 0; thread < threads; thread++) {
        const columns c = columns_of(call, w, thread);
        const int64_t end = jobs * (thread + 1) / threads * together;
        for (int64_t i = jobs * thread / threads * together; i < end && i < images; i++)
            pool_image(&p, &c, call, i);
    }
    return NULL;
}

/* Columns, and for 16 bits a channel's sums, for each thread. */
static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    ebb_geometry w;
    EBB_MUST_FIT(call, ebb_pool_read(&w, call));
    size_t each = (size_t)floats_of_columns(&w);
    if (sums_apart(call))
        each += (size_t)ebb_geometry_volume(w.wide);
    if (!ebb_size_mul(bytes, each, sizeof(float)) ||
        !ebb_size_mul(bytes, *bytes, (size_t)ebb_threads()))
        return ebb_call_error(call, "the scratch memory is too large to address");
    return NULL;
}

/* Maxima and their gradients have 16 bits too. */
static const char *floats_of(const ebb_call *call)
{
    const ebb_dtype dtype = (ebb_dtype)call->in[0].type.dtype;
    return ebb_dnnl_plain_of(call, ebb_is_half(dtype) && takes_halves(call->op) ? dtype : EBB_F32);
}

/* Indices are int64, everything else floats. */
static const char *dtypes_of_rows(const ebb_call *call)
{
    ebb_call floats = *call;
    if (ebb_call_wants(call, 1) && call->out[1].type.dtype != EBB_I64)
        return "Indices are not int64";
    floats.output_count = 1;
    return floats_of(&floats);
}

static const char *misfit_rows(const ebb_call *call)
{
    ebb_geometry w;
    EBB_ASK(ebb_pool_read(&w, call));
    if (ebb_geometry_volume(w.kernel) > MOST_TAPS)
        return "a very large window";
    if (ebb_geometry_volume(w.wide) > INT32_MAX)
        return "a channel of more than 2^31 elements";
    if (ebb_call_wants(call, 1) && ebb_attr_int(&call->attrs, "storage_order", 0) != 0)
        return "only row-major Indices";
    return NULL;
}

/* Taps are codes in bytes, everything else floats. */
static const char *declines_packed(const ebb_call *call)
{
    ebb_geometry w;
    bool backward = call->op == EBB_OP_MAX_POOL_PACKED_GRAD;
    ebb_call floats = *call;
    floats.input_count = floats.output_count = 1;
    EBB_ASK(floats_of(&floats));
    if (backward ? call->input_count < 2 : !ebb_call_wants(call, 1))
        return "no taps";
    EBB_ASK(ebb_pool_read(&w, call));
    EBB_ASK(ebb_taps_misfit(&w, call));
    if (ebb_geometry_volume(w.kernel) > MOST_TAPS)
        return "a very large window";
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_pool_rows[] = {
    {.name = "rows.max_pool",             .op = EBB_OP_MAX_POOL,             .dtypes = dtypes_of_rows, .fits = misfit_rows, .workspace = workspace, .run = run_rows},
    {.name = "rows.average_pool",         .op = EBB_OP_AVERAGE_POOL,         .dtypes = dtypes_of_rows, .fits = misfit_rows, .workspace = workspace, .run = run_rows},
    {.name = "rows.max_pool_grad",        .op = EBB_OP_MAX_POOL_GRAD,        .dtypes = dtypes_of_rows, .fits = misfit_rows, .workspace = workspace, .run = run_rows},
    {.name = "rows.max_pool_packed",      .op = EBB_OP_MAX_POOL_PACKED,      .fits = declines_packed, .workspace = workspace, .run = run_rows},
    {.name = "rows.max_pool_packed_grad", .op = EBB_OP_MAX_POOL_PACKED_GRAD, .fits = declines_packed, .workspace = workspace, .run = run_rows},
    {.name = "rows.average_pool_grad",    .op = EBB_OP_AVERAGE_POOL_GRAD,    .dtypes = dtypes_of_rows, .fits = misfit_rows, .workspace = workspace, .run = run_rows},
};
// clang-format on
EBB_DNNL_COUNT(pool_rows)
