/* backend.c: the families of plain kernels, and what they share (plain.h). */
#include "kernels/plain/plain.h"

#include <assert.h>

#define FAMILY(name) {ebb_plain_##name, &ebb_plain_##name##_count},

static const ebb_family families[] = {EBB_PLAIN_FAMILIES(FAMILY){NULL, NULL}};

static ebb_status add_tile(const ebb_call *c, ebb_dtype dtype, int64_t n, void *to,
                           const void *from)
{
    (void)c;
    if (dtype == EBB_F32) {
        float *sum = to;
        const float *more = from;
        EBB_PARALLEL_FOR(n)
        for (int64_t i = 0; i < n; i++)
            sum[i] += more[i];
    } else {
        double *sum = to;
        const double *more = from;
        EBB_PARALLEL_FOR(n)
        for (int64_t i = 0; i < n; i++)
            sum[i] += more[i];
    }
    return NULL;
}

static const ebb_tile_parts parts = {add_tile, ebb_plain_batch_norm_rows};

const ebb_backend ebb_backend_plain = {
    .name = "plain", .families = families, .device = &ebb_device_host, .parts = &parts};

/* ---- operands ---- */

double ebb_plain_scalar(const ebb_operand *o)
{
    ebb_tensor t = {.type = o->type, .data = o->data, .bytes = o->bytes};
    return ebb_tensor_double(&t, 0);
}

/* ---- what rows ask ---- */

const char *ebb_plain_floats(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    if (c->input_count == 0 || (c->in[0].type.dtype != EBB_F32 && c->in[0].type.dtype != EBB_F64))
        return "computes in float32 and float64 only";
    return ebb_call_one_float(c, c->in[0].type.dtype);
}

const char *ebb_plain_numbers(const ebb_call *c)
{
    if (c->input_count > 0 && ebb_dtype_is_integer((ebb_dtype)c->in[0].type.dtype))
        return ebb_call_any(c);
    return ebb_plain_floats(c);
}

/* ---- rows ---- */

/* Dims that can be walked as one are merged: neighbours in which every operand either advances
 * densely or stands still. Dims of 1 vanish. */
typedef struct walk {
    int rank;
    int64_t dims[EBB_MAX_RANK];
    int64_t step[EBB_ROW_INPUTS][EBB_MAX_RANK]; /* elements; 0: stands still */
} walk;

static void make_walk(walk *w, const ebb_operand *out, const ebb_operand *const *in, int count)
{
    int64_t dense[EBB_ROW_INPUTS];
    w->rank = 0;
    for (int k = 0; k < count; k++)
        dense[k] = 1;
    /* From the innermost dim outwards; reversed at the end. */
    for (int d = out->type.rank - 1; d >= 0; d--) {
        int64_t n = out->type.dims[d], step[EBB_ROW_INPUTS];
        for (int k = 0; k < count; k++) {
            int e = d - (out->type.rank - in[k]->type.rank);
            int64_t m = e >= 0 ? in[k]->type.dims[e] : 1;
            step[k] = m == 1 && n != 1 ? 0 : dense[k];
            dense[k] *= m;
        }
        if (n == 1)
            continue;
        bool merges = w->rank > 0;
        for (int k = 0; merges && k < count; k++) {
            int64_t last = w->step[k][w->rank - 1];
            merges = last == 0 ? step[k] == 0 : step[k] == last * w->dims[w->rank - 1];
        }
        if (merges) {
            w->dims[w->rank - 1] *= n;
            continue;
        }
        w->dims[w->rank] = n;
        for (int k = 0; k < count; k++)
            w->step[k][w->rank] = step[k];
        w->rank++;
    }
}

/* Offset in input k of row `row`, whose index counts dims rank-1 .. 1. */
static int64_t row_offset(const walk *w, int k, int64_t row)
{
    int64_t offset = 0;
    for (int d = 1; d < w->rank; d++) {
        offset += row % w->dims[d] * w->step[k][d];
        row /= w->dims[d];
    }
    return offset;
}

enum { PIECE = 4096 }; /* elements handed to a row function at once: stays in the first cache */

void ebb_plain_rows(const ebb_operand *out, const ebb_operand *const *in, int count, ebb_row_fn fn,
                    const void *arg)
{
    assert(count <= EBB_ROW_INPUTS);
    int64_t total = ebb_elements(&out->type);
    if (total == 0)
        return;
    walk w;
    make_walk(&w, out, in, count);
    int64_t n = w.rank > 0 ? w.dims[0] : 1, rows = total / n;
    int64_t pieces = (n + PIECE - 1) / PIECE, size = (int64_t)ebb_element_bytes(&out->type);
    int64_t width[EBB_ROW_INPUTS], step[EBB_ROW_INPUTS];
    for (int k = 0; k < count; k++) {
        width[k] = (int64_t)ebb_element_bytes(&in[k]->type);
        step[k] = w.rank > 0 ? w.step[k][0] : 1;
    }
    EBB_PARALLEL_FOR(total)
    for (int64_t job = 0; job < rows * pieces; job++) {
        int64_t row = job / pieces, first = job % pieces * PIECE;
        const void *from[EBB_ROW_INPUTS];
        for (int k = 0; k < count; k++)
            from[k] =
                (const char *)in[k]->data + (row_offset(&w, k, row) + first * step[k]) * width[k];
        fn((char *)out->data + (row * n + first) * size, from, step,
           n - first < PIECE ? n - first : PIECE, arg);
    }
}

/* ---- copies ---- */

void ebb_plain_memcpy(void *to, const void *from, size_t bytes)
{
    if (to == from || bytes == 0)
        return;
    const int64_t piece = 1 << 18;
    int64_t n = (int64_t)bytes;
    EBB_PARALLEL_FOR(n / 4)
    for (int64_t i = 0; i < n; i += piece)
        memcpy((char *)to + i, (const char *)from + i, (size_t)(n - i < piece ? n - i : piece));
}

#define FILL(T)                             \
    {                                       \
        T v;                                \
        memcpy(&v, value, sizeof v);        \
        T *y = to;                          \
        EBB_PARALLEL_FOR(count)             \
        for (int64_t i = 0; i < count; i++) \
            y[i] = v;                       \
        return;                             \
    }

void ebb_plain_fill(void *to, const void *value, int64_t count, size_t size)
{
    switch (size) {
    case 1:
        FILL(uint8_t)
    case 2:
        FILL(uint16_t)
    case 4:
        FILL(uint32_t)
    case 8:
        FILL(uint64_t)
    default:
        for (int64_t i = 0; i < count; i++)
            memcpy((char *)to + (size_t)i * size, value, size);
    }
}

/* One line: n elements with strides in elements. No processor gathers bytes or halves, so that these need no lanes. */
#define LINE(T, LANES)                  \
    {                                   \
        T *y = to;                      \
        const T *x = from;              \
        LANES                           \
        for (int64_t i = 0; i < n; i++) \
            y[i * ty] = x[i * fx];      \
        return;                         \
    }

static void copy_line(void *to, int64_t ty, const void *from, int64_t fx, int64_t n, size_t size)
{
    if (ty == 1 && fx == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1:
        LINE(uint8_t, )
    case 2:
        LINE(uint16_t, )
    case 4:
        LINE(uint32_t, EBB_SIMD)
    case 8:
        LINE(uint64_t, EBB_SIMD)
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)to + i * ty * (int64_t)size, (const char *)from + i * fx * (int64_t)size,
                   size);
    }
}

enum { TILE = 16 }; /* a tile of 16 x 16 floats: 16 cache lines on each side */

/* n x m elements where `to` is dense along m and `from` along n. */
#define TILES(T)                                                                                \
    {                                                                                           \
        T *y = to;                                                                              \
        const T *x = from;                                                                      \
        for (int64_t i0 = 0; i0 < n; i0 += TILE)                                                \
            for (int64_t j0 = 0; j0 < m; j0 += TILE) {                                          \
                int64_t i1 = i0 + TILE < n ? i0 + TILE : n, j1 = j0 + TILE < m ? j0 + TILE : m; \
                for (int64_t i = i0; i < i1; i++)                                               \
                    for (int64_t j = j0; j < j1; j++)                                           \
                        y[i * ty + j] = x[j * fx + i];                                          \
            }                                                                                   \
        return;                                                                                 \
    }

static void copy_tiles(void *to, int64_t ty, const void *from, int64_t fx, int64_t n, int64_t m,
                       size_t size)
{
    switch (size) {
    case 1:
        TILES(uint8_t)
    case 2:
        TILES(uint16_t)
    case 4:
        TILES(uint32_t)
    case 8:
        TILES(uint64_t)
    default:
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < m; j++)
                memcpy((char *)to + (i * ty + j) * (int64_t)size,
                       (const char *)from + (j * fx + i) * (int64_t)size, size);
    }
}

typedef struct pair_walk { /* merged dims, outermost first */
    int rank;
    int64_t dims[EBB_MAX_RANK], to[EBB_MAX_RANK], from[EBB_MAX_RANK];
} pair_walk;

static void drop_dim(pair_walk *w, int at)
{
    w->rank--;
    for (int d = at; d < w->rank; d++) {
        w->dims[d] = w->dims[d + 1];
        w->to[d] = w->to[d + 1];
        w->from[d] = w->from[d + 1];
    }
}

void ebb_plain_copy(void *to, const int64_t *to_stride, const void *from,
                    const int64_t *from_stride, int rank, const int64_t *dims, size_t size)
{
    pair_walk w = {0};
    int64_t total = 1;
    for (int d = 0; d < rank; d++) {
        total *= dims[d];
        if (dims[d] == 1)
            continue;
        int last = w.rank - 1;
        if (last >= 0 && w.to[last] == to_stride[d] * dims[d] &&
            w.from[last] == from_stride[d] * dims[d]) {
            w.dims[last] *= dims[d];
            w.to[last] = to_stride[d];
            w.from[last] = from_stride[d];
            continue;
        }
        w.dims[w.rank] = dims[d];
        w.to[w.rank] = to_stride[d];
        w.from[w.rank] = from_stride[d];
        w.rank++;
    }
    if (total == 0)
        return;
    if (w.rank == 0) {
        memcpy(to, from, size);
        return;
    }
    /* The line is the innermost dim. Where `from` is dense along another dim, the two make tiles,
     * cut into bands so that one big matrix still gives work to all threads. */
    pair_walk line = w;
    int last = w.rank - 1, dense = -1;
    for (int d = 0; d < last; d++)
        if (w.from[d] == 1 && w.to[last] == 1 && w.from[last] != 1)
            dense = d;
    int64_t n = w.dims[last], band = 1, bands = 1, across = 1, ty = w.to[last], fx = w.from[last];
    drop_dim(&w, last);
    if (dense >= 0) {
        ty = w.to[dense];
        across = w.dims[dense];
        band = 4 * TILE;
        bands = (across + band - 1) / band;
        drop_dim(&w, dense);
    } else if (w.rank == 0 && n > 65536) { /* one long line: pieces */
        band = 16384;
        bands = (n + band - 1) / band;
    }
    int64_t outer = 1;
    for (int d = 0; d < w.rank; d++)
        outer *= w.dims[d];
    EBB_PARALLEL_FOR(total)
    for (int64_t job = 0; job < outer * bands; job++) {
        int64_t index = job / bands, b = job % bands * band, at_to = 0, at_from = 0;
        for (int d = w.rank - 1; d >= 0; d--) {
            at_to += index % w.dims[d] * w.to[d];
            at_from += index % w.dims[d] * w.from[d];
            index /= w.dims[d];
        }
        char *y = (char *)to + at_to * (int64_t)size;
        const char *x = (const char *)from + at_from * (int64_t)size;
        if (dense >= 0)
            copy_tiles(y + b * ty * (int64_t)size, ty, x + b * (int64_t)size, fx,
                       across - b < band ? across - b : band, n, size);
        else if (bands > 1)
            copy_line(y + b * ty * (int64_t)size, ty, x + b * fx * (int64_t)size, fx,
                      n - b < band ? n - b : band, size);
        else
            copy_line(y, line.to[last], x, line.from[last], n, size);
    }
}
