/* conv_pooled.c: ConvWeightGradPooled as matrix products.
 *
 *   dW[o, c, t] = sum over n, cell of S[n, o, t, cell] M[n, c, cell]
 *   S[n, o, t, cell] = sum of dY[n, o, i] over the i whose tap t lies in the cell: a box of dY
 *
 * X is one number within a cell, so dY is added up over it first, and what is left is one product
 * of [taps * O, cells] by [cells, C] for an image: p^2 times fewer multiplications than without the
 * cells, at stride 1. Sums over a box go axis by axis, the last one first, shared by the taps that
 * agree in it:
 *
 *     dY [rows, columns] -> by v: [rows, cells] -> by (u, v): [cells, cells]
 *
 * Taps that meet the same windows in every cell have one S: with stride 2 and cells of 2, a kernel
 * of 7 x 7 has 4 x 4 kinds of taps, and the products are a third.
 *
 * S is made for a block of output channels at a time, and of images where an image has few cells:
 * never more than a few MiB. Filters of few channels are dot products of rows of S and M. What
 * sgemm packs its operands into is its own, not the workspace's.
 */
#include "kernels/fast/onednn/onednn.h"

enum {
    MOST_ELEMENTS = 1 << 20, /* of S at once; a channel's is made whole, whatever it takes */
    ENOUGH_CELLS = 512,      /* of a product: with fewer, reading dW again costs more than it */
    FEW_CHANNELS = 4,        /* of a group: dot products instead */
    MOST_CELLS = 1 << 28,    /* keeps the sizes below from overflowing */
};

typedef struct range { /* windows [lo, hi) of an axis have the tap inside the cell */
    int64_t lo, hi;
} range;

typedef struct even { /* cells [first, last) of a tap have `each` windows, one after the other */
    int64_t first, last, each;
} even;

typedef struct pooled { /* one call */
    ebb_geometry w;
    int64_t side[EBB_AXES], cells[EBB_AXES];
    int64_t kinds[EBB_AXES];          /* of taps along each axis: alike ones share S */
    int64_t taps, volume, out_volume; /* kinds in all; cells; elements of dY */
    int64_t channels, each;           /* of a group: of X and of dY */
    int64_t images, filters;          /* of a block of S */
    int64_t row;                      /* images * volume: length of a row of S */
    bool dots;
    int64_t ranges, evens, kind_of_tap, packed, sums, result, slot,
        slot_size; /* offsets, in elements */
    const float *dy, *m;
    float *dw, *memory;
    const range *range[EBB_AXES];  /* by kind and cell */
    const even *even;              /* by kind of the last axis */
    const int64_t *kind[EBB_AXES]; /* by tap */
} pooled;

static int64_t ceiling(int64_t a, int64_t b) /* b > 0 */
{
    return a >= 0 ? (a + b - 1) / b : -(-a / b);
}

/* ---- which windows meet which cell ---- */

static range meets(const pooled *p, int axis, int64_t tap, int64_t cell)
{
    const ebb_geometry *w = &p->w;
    int64_t shift = w->pad_begin[axis] - tap * w->dilation[axis];
    int64_t end = ebb_least((cell + 1) * p->side[axis], w->wide[axis]);
    range r = {ceiling(cell * p->side[axis] + shift, w->stride[axis]),
               ceiling(end + shift, w->stride[axis])};
    r.lo = r.lo < 0 ? 0 : ebb_least(r.lo, w->narrow[axis]);
    r.hi = r.hi < r.lo ? r.lo : ebb_least(r.hi, w->narrow[axis]);
    return r;
}

/* Whether tap + 1 meets in every cell what tap does: with a stride of p every other one. */
static bool same_as_next(const pooled *p, int axis, int64_t tap)
{
    for (int64_t cell = 0; cell < p->cells[axis]; cell++) {
        range a = meets(p, axis, tap, cell), b = meets(p, axis, tap + 1, cell);
        if (a.lo != b.lo || a.hi != b.hi)
            return false;
    }
    return true;
}

static int64_t kinds_of(const pooled *p, int axis)
{
    int64_t kinds = 1;
    for (int64_t tap = 0; tap + 1 < p->w.kernel[axis]; tap++)
        kinds += !same_as_next(p, axis, tap);
    return kinds;
}

/* ---- sizes ---- */

static bool grow(int64_t *at, int64_t count, int64_t each)
{
    int64_t size;
    const int64_t lanes = 16;
    return !__builtin_mul_overflow(count, each, &size) && size < INT64_MAX / 64 &&
           !__builtin_add_overflow(*at, (size + lanes - 1) / lanes * lanes, at);
}

/* A thread's: sums along the last axis; with three axes along the last two. */
static bool slot_size(int64_t *size, const pooled *p)
{
    const int64_t *k = p->kinds, *narrow = p->w.narrow;
    *size = 0;
    if (!grow(size, k[2] * p->cells[2], narrow[0] * narrow[1]))
        return false;
    return p->w.spatial < 3 || grow(size, k[1] * p->cells[1] * k[2], p->cells[2] * narrow[0]);
}

static bool in_place(const pooled *p) /* the product is dW itself */
{
    return ebb_geometry_volume(p->w.kernel) == 1;
}

/* Offsets into the workspace, and its size without the slots of the threads. */
static const char *lay_out(pooled *p, int64_t *size)
{
    static const char too_large[] = "too large";
    *size = 0;
    p->ranges = 0;
    const int64_t words = sizeof(range) / sizeof(float);
    for (int axis = 0; axis < EBB_AXES; axis++)
        if (!grow(size, p->kinds[axis] * words, p->cells[axis]))
            return too_large;
    p->evens = *size;
    if (!grow(size, p->kinds[2], sizeof(even) / sizeof(float)))
        return too_large;
    p->kind_of_tap = *size;
    if (!grow(size, p->w.kernel[0] + p->w.kernel[1] + p->w.kernel[2],
              sizeof(int64_t) / sizeof(float)))
        return too_large;
    p->packed = *size;
    if (p->images > 1 && !grow(size, p->w.wide_channels, p->row))
        return too_large;
    p->sums = *size;
    if (!grow(size, p->filters * p->taps, p->row))
        return too_large;
    p->result = *size;
    if (!in_place(p) && !grow(size, p->w.narrow_channels * p->taps, p->channels))
        return too_large;
    p->slot = *size;
    return slot_size(&p->slot_size, p) ? NULL : too_large;
}

static const char *read(pooled *p, const ebb_call *call, int64_t *size)
{
    *p = (pooled){.dots = false};
    EBB_ASK(ebb_dnnl_plain_floats(call));
    EBB_ASK(ebb_pooled_read(&p->w, p->side, p->cells, call));
    double cells = 1, taps = 1;
    for (int axis = 0; axis < EBB_AXES; axis++) {
        cells *= (double)p->cells[axis];
        taps *= (double)p->w.kernel[axis];
    }
    if (cells < 1 || cells > MOST_CELLS || taps > MOST_CELLS || p->w.narrow_channels > MOST_CELLS)
        return "no cells, or very many";
    p->volume = ebb_geometry_volume(p->cells);
    p->out_volume = ebb_geometry_volume(p->w.narrow);
    for (int axis = 0; axis < EBB_AXES; axis++)
        p->kinds[axis] = kinds_of(p, axis);
    p->taps = ebb_geometry_volume(p->kinds);
    p->channels = p->w.wide_channels / p->w.groups;
    p->each = p->w.narrow_channels / p->w.groups;
    p->dots = p->channels < FEW_CHANNELS;
    p->images = ebb_least(p->w.batch, (ENOUGH_CELLS + p->volume - 1) / p->volume);
    p->row = p->images * p->volume;
    double most = (double)MOST_ELEMENTS / ((double)p->taps * (double)p->row);
    p->filters = ebb_least(p->dots ? p->w.narrow_channels : p->each, most < 1 ? 1 : (int64_t)most);
    return lay_out(p, size);
}

/* ---- tables ---- */

/* The run of cells that a vector loop can take, where the stride divides the cell. */
static even even_cells(const range *r, int64_t cells, int64_t side, int64_t stride)
{
    even e = {0, 0, side / stride};
    if (side % stride != 0)
        return e;
    while (e.first < cells && r[e.first].hi - r[e.first].lo != e.each)
        e.first++;
    for (e.last = e.first; e.last < cells; e.last++)
        if (r[e.last].lo != r[e.first].lo + (e.last - e.first) * e.each ||
            r[e.last].hi - r[e.last].lo != e.each)
            break;
    return e;
}

static void make_tables(pooled *p)
{
    range *ranges = (range *)(void *)(p->memory + p->ranges);
    even *evens = (even *)(void *)(p->memory + p->evens);
    int64_t *kinds = (int64_t *)(void *)(p->memory + p->kind_of_tap), at = 0;
    for (int axis = 0; axis < EBB_AXES; axis++) {
        int64_t cells = p->cells[axis], kind = 0;
        range *r = ranges + at / (int64_t)(sizeof(range) / sizeof(float));
        for (int64_t tap = 0; tap < p->w.kernel[axis]; tap++) {
            kind += tap > 0 && !same_as_next(p, axis, tap - 1);
            kinds[tap] = kind;
            for (int64_t cell = 0; cell < cells; cell++)
                r[kind * cells + cell] = meets(p, axis, tap, cell);
        }
        for (int64_t k = 0; axis == EBB_AXES - 1 && k <= kind; k++)
            evens[k] = even_cells(r + k * cells, cells, p->side[axis], p->w.stride[axis]);
        p->range[axis] = r;
        p->kind[axis] = kinds;
        kinds += p->w.kernel[axis];
        (void)grow(&at, p->kinds[axis] * (int64_t)(sizeof(range) / sizeof(float)), cells);
    }
    p->even = evens;
}

/* ---- S ---- */

static void sum_cells(float *restrict to, const float *restrict from, const range *r, int64_t first,
                      int64_t last)
{
    for (int64_t c = first; c < last; c++) {
        float sum = 0;
        for (int64_t i = r[c].lo; i < r[c].hi; i++)
            sum += from[i];
        to[c] = sum;
    }
}

/* to[cell] = sum of a row's windows in the cell, for one kind of tap of the last axis. */
static void sum_row(float *restrict to, const float *restrict from, const pooled *p, int64_t tap)
{
    const range *r = p->range[2] + tap * p->cells[2];
    const even e = p->even[tap];
    const int64_t n = e.last - e.first;
    if (n <= 0) {
        sum_cells(to, from, r, 0, p->cells[2]);
        return;
    }
    float *restrict out = to + e.first;
    const float *restrict in = from + r[e.first].lo;
    if (e.each == 1) {
        memcpy(out, in, (size_t)n * sizeof *out);
    } else if (e.each == 2) {
        EBB_SIMD
        for (int64_t c = 0; c < n; c++)
            out[c] = in[2 * c] + in[2 * c + 1];
    } else if (e.each == 4) {
        EBB_SIMD
        for (int64_t c = 0; c < n; c++)
            out[c] = (in[4 * c] + in[4 * c + 1]) + (in[4 * c + 2] + in[4 * c + 3]);
    } else {
        sum_cells(to, from, r, e.first, e.last);
    }
    sum_cells(to, from, r, 0, e.first);
    sum_cells(to, from, r, e.last, p->cells[2]);
}

/* to[n] = sum of rows r.lo .. r.hi - 1 of n each. */
static void sum_rows(float *restrict to, const float *restrict from, range r, int64_t n)
{
    if (r.hi <= r.lo) {
        memset(to, 0, (size_t)n * sizeof *to);
        return;
    }
    memcpy(to, from + r.lo * n, (size_t)n * sizeof *to);
    for (int64_t i = r.lo + 1; i < r.hi; i++) {
        const float *restrict row = from + i * n;
        EBB_SIMD
        for (int64_t j = 0; j < n; j++)
            to[j] += row[j];
    }
}

/* All kinds of taps of one plane of dY: rows `step` apart from `to` on. by_column: scratch. */
static void sum_plane(float *to, int64_t step, const float *dy, float *by_column, const pooled *p)
{
    const ebb_geometry *w = &p->w;
    int64_t columns = p->cells[2], plane = w->narrow[1] * columns;
    for (int64_t v = 0; v < p->kinds[2]; v++)
        for (int64_t i = 0; i < w->narrow[1]; i++)
            sum_row(by_column + v * plane + i * columns, dy + i * w->narrow[2], p, v);
    for (int64_t u = 0; u < p->kinds[1]; u++)
        for (int64_t v = 0; v < p->kinds[2]; v++)
            for (int64_t c = 0; c < p->cells[1]; c++)
                sum_rows(to + (u * p->kinds[2] + v) * step + c * columns, by_column + v * plane,
                         p->range[1][u * p->cells[1] + c], columns);
}

/* One channel of one image: its `taps` rows of S, p->row apart. */
static void sum_channel(float *to, const float *dy, float *scratch, const pooled *p)
{
    const ebb_geometry *w = &p->w;
    if (w->spatial < 3) {
        sum_plane(to, p->row, dy, scratch, p);
        return;
    }
    int64_t flat = p->kinds[1] * p->kinds[2], cells = p->cells[1] * p->cells[2];
    int64_t plane = w->narrow[1] * w->narrow[2];
    float *by_plane = scratch + p->slot_size - w->narrow[0] * flat * cells;
    for (int64_t i = 0; i < w->narrow[0]; i++)
        sum_plane(by_plane + i * cells, w->narrow[0] * cells, dy + i * plane, scratch, p);
    for (int64_t u = 0; u < p->kinds[0]; u++)
        for (int64_t t = 0; t < flat; t++)
            for (int64_t c = 0; c < p->cells[0]; c++)
                sum_rows(to + (u * flat + t) * p->row + c * cells,
                         by_plane + t * w->narrow[0] * cells, p->range[0][u * p->cells[0] + c],
                         cells);
}

/* S of `images` images from `image` on and `filters` channels from `filter` on. */
static void make_sums(const pooled *p, int64_t image, int64_t images, int64_t filter,
                      int64_t filters, int64_t slots)
{
    float *sums = p->memory + p->sums;
    EBB_PARALLEL_FOR(images * filters * p->out_volume * p->taps)
    for (int64_t slot = 0; slot < slots; slot++)
        for (int64_t job = slot; job < images * filters; job += slots) {
            int64_t n = job % images, o = job / images;
            int64_t channel = (image + n) * p->w.narrow_channels + filter + o;
            sum_channel(sums + o * p->taps * p->row + n * p->volume,
                        p->dy + channel * p->out_volume, p->memory + p->slot + slot * p->slot_size,
                        p);
        }
}

/* ---- products ---- */

/* The block's cells as [C, images * cells]. */
static const float *pack(const pooled *p, int64_t image, int64_t images)
{
    if (p->images == 1)
        return p->m + image * p->w.wide_channels * p->volume;
    float *to = p->memory + p->packed;
    const size_t bytes = (size_t)p->volume * sizeof *to;
    EBB_PARALLEL_FOR(images * p->w.wide_channels * p->volume)
    for (int64_t c = 0; c < p->w.wide_channels; c++)
        for (int64_t n = 0; n < images; n++)
            memcpy(to + c * p->row + n * p->volume,
                   p->m + ((image + n) * p->w.wide_channels + c) * p->volume, bytes);
    return to;
}

static float dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float sum = 0;
    EBB_SIMD_SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* result [filters * taps, channels] (+)= S M', filter by filter. */
static void multiply_by_dots(const pooled *p, float *result, const float *m, int64_t filter,
                             int64_t filters, int64_t length, bool adds)
{
    const float *sums = p->memory + p->sums;
    EBB_PARALLEL_FOR(filters * p->taps * p->channels * length)
    for (int64_t o = 0; o < filters; o++) {
        const float *by = m + (filter + o) / p->each * p->channels * p->row;
        for (int64_t t = 0; t < p->taps; t++)
            for (int64_t c = 0; c < p->channels; c++) {
                float *to = result + ((filter + o) * p->taps + t) * p->channels + c;
                float sum = dot(sums + (o * p->taps + t) * p->row, by + c * p->row, length);
                *to = adds ? *to + sum : sum;
            }
    }
}

static ebb_status multiply(const ebb_call *call, const pooled *p, float *result, const float *m,
                           int64_t filter, int64_t filters, int64_t length, bool adds)
{
    if (p->dots) {
        multiply_by_dots(p, result, m, filter, filters, length, adds);
        return NULL;
    }
    const ebb_dnnl_matrix left = {p->memory + p->sums, p->row, false};
    const ebb_dnnl_matrix right = {m + filter / p->each * p->channels * p->row, p->row, true};
    return ebb_dnnl_product(call, &left, &right, filters * p->taps, p->channels, length, 1.0f,
                            adds ? 1.0f : 0.0f, result + filter * p->taps * p->channels,
                            p->channels);
}

/* [O, kinds, C] as [O, C, taps]. */
static void turn(const pooled *p, const float *result)
{
    const int64_t *kernel = p->w.kernel, *kinds = p->kinds;
    EBB_PARALLEL_FOR(p->w.narrow_channels * p->taps * p->channels)
    for (int64_t o = 0; o < p->w.narrow_channels; o++) {
        float *to = p->dw + o * p->channels * ebb_geometry_volume(kernel);
        for (int64_t c = 0; c < p->channels; c++)
            for (int64_t i = 0; i < kernel[0]; i++)
                for (int64_t j = 0; j < kernel[1]; j++)
                    for (int64_t k = 0; k < kernel[2]; k++) {
                        int64_t row =
                            (p->kind[0][i] * kinds[1] + p->kind[1][j]) * kinds[2] + p->kind[2][k];
                        *to++ = result[(o * p->taps + row) * p->channels + c];
                    }
    }
}

/* ---- the kernel ---- */

static const char *declines(const ebb_call *call)
{
    pooled p;
    int64_t size;
    return read(&p, call, &size);
}

static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    pooled p;
    int64_t size;
    const char *why = read(&p, call, &size);
    if (why == NULL && !grow(&size, p.slot_size, ebb_threads()))
        why = "too large";
    if (why != NULL || !ebb_size_mul(bytes, (size_t)size, sizeof(float)))
        return ebb_call_error(call, "%s", why != NULL ? why : "too large");
    return NULL;
}

static ebb_status run(const ebb_call *call)
{
    pooled p;
    int64_t size;
    EBB_MUST_FIT(call, read(&p, call, &size));
    p.dy = call->in[0].data;
    p.m = call->in[1].data;
    p.dw = call->out[0].data;
    p.memory = call->workspace;
    int64_t slots = ((int64_t)(call->workspace_bytes / sizeof(float)) - size) / p.slot_size;
    float *result = in_place(&p) ? p.dw : p.memory + p.result;
    make_tables(&p);
    for (int64_t image = 0; image < p.w.batch; image += p.images) {
        int64_t images = ebb_least(p.images, p.w.batch - image), step;
        const float *m = pack(&p, image, images);
        for (int64_t filter = 0; filter < p.w.narrow_channels; filter += step) {
            step = ebb_least(p.filters, p.w.narrow_channels - filter);
            if (!p.dots) // no product goes beyond its group
                step = ebb_least(step, p.each - filter % p.each);
            make_sums(&p, image, images, filter, step, slots);
            EBB_TRY(multiply(call, &p, result, m, filter, step, images * p.volume, image > 0));
        }
    }
    if (!in_place(&p))
        turn(&p, result);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_conv_pooled[] = {
    {.name = "dnnl.conv_weight_grad_pooled", .op = EBB_OP_CONV_WEIGHT_GRAD_POOLED, .fits = declines, .workspace = workspace, .run = run},
};
// clang-format on
EBB_DNNL_COUNT(conv_pooled)
