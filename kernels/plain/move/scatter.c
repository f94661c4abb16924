/* scatter.c: ScatterElements, ScatterND, and the gradients of Gather and GatherElements.
 *
 * Where several updates meet in one element, they are combined in the order of their positions, by
 * one thread: jobs share out the elements written, never the updates of one element.
 */
#include "kernels/plain/indices.h"
#include "kernels/call/move/scatter.h"

#include <string.h>

/* ---- combining ---- */

/* out[to[i]] meets update[from[i]], one after the other; rows: out[i] meets update[i]. */
typedef struct meeting {
    void (*listed)(void *out, const int64_t *to, const void *update, const int64_t *from,
                   int64_t n);
    void (*row)(void *out, const void *update, int64_t n);
    size_t size;
} meeting;

#define DEFINE_MEETING(NAME, T, VALUE)                                          \
    static void NAME##_listed(void *out, const int64_t *to, const void *update, \
                              const int64_t *from, int64_t n)                   \
    {                                                                           \
        T *y = out;                                                             \
        const T *x = update;                                                    \
        for (int64_t i = 0; i < n; i++) {                                       \
            T a = y[to[i]], b = x[from[i]];                                     \
            (void)a;                                                            \
            y[to[i]] = (VALUE);                                                 \
        }                                                                       \
    }                                                                           \
    static void NAME##_row(void *out, const void *update, int64_t n)            \
    {                                                                           \
        T *y = out;                                                             \
        const T *x = update;                                                    \
        EBB_SIMD                                                                \
        for (int64_t i = 0; i < n; i++) {                                       \
            T a = y[i], b = x[i];                                               \
            (void)a;                                                            \
            y[i] = (VALUE);                                                     \
        }                                                                       \
    }

typedef struct wide_element {
    uint64_t half[2];
} wide_element;

DEFINE_MEETING(set_1, uint8_t, b)
DEFINE_MEETING(set_2, uint16_t, b)
DEFINE_MEETING(set_4, uint32_t, b)
DEFINE_MEETING(set_8, uint64_t, b)
DEFINE_MEETING(set_16, wide_element, b)

/* Sums and products of integers wrap around: U is the unsigned type. max and min pass NaN on. */
#define DEFINE_MEETINGS(T, U)                           \
    DEFINE_MEETING(add_##T, T, (T)((U)a + (U)b))        \
    DEFINE_MEETING(mul_##T, T, (T)((U)a * (U)b))        \
    DEFINE_MEETING(max_##T, T, a > b || a != a ? a : b) \
    DEFINE_MEETING(min_##T, T, a < b || a != a ? a : b)

DEFINE_MEETINGS(float, float)
DEFINE_MEETINGS(double, double)
DEFINE_MEETINGS(int32_t, uint32_t)
DEFINE_MEETINGS(int64_t, uint64_t)

#define MEETING(NAME, T)                     \
    {                                        \
        NAME##_listed, NAME##_row, sizeof(T) \
    }
#define MEETINGS(T)                                                                     \
    {                                                                                   \
        {NULL, NULL, 0}, MEETING(add_##T, T), MEETING(mul_##T, T), MEETING(max_##T, T), \
            MEETING(min_##T, T)                                                         \
    }

/* By dtype and combine; listed is NULL where there is none. */
static meeting meeting_of(const ebb_type *t, ebb_combine how)
{
    static const meeting set[] = {MEETING(set_1, uint8_t), MEETING(set_2, uint16_t),
                                  MEETING(set_4, uint32_t), MEETING(set_8, uint64_t),
                                  MEETING(set_16, wide_element)};
    static const meeting f32[] = MEETINGS(float), f64[] = MEETINGS(double);
    static const meeting i32[] = MEETINGS(int32_t), i64[] = MEETINGS(int64_t);
    const meeting none = {NULL, NULL, 0};
    if (how == EBB_COMBINE_UNKNOWN)
        return none;
    if (how == EBB_COMBINE_SET) {
        for (int i = 0; i < 5; i++)
            if (set[i].size == ebb_element_bytes(t))
                return set[i];
        return none;
    }
    switch (t->dtype) {
    case EBB_F32:
        return f32[how];
    case EBB_F64:
        return f64[how];
    case EBB_I32:
        return i32[how];
    case EBB_I64:
        return i64[how];
    default:
        return none;
    }
}

/* ---- one element an index ---- */

enum { LIST = 256, LANES = 64 };

/* Dims first .. last - 1 of an index tensor laid over those of a bigger tensor. */
typedef struct overlay {
    int rank;
    int64_t dims[EBB_MAX_RANK], stride[EBB_MAX_RANK];
    bool same; /* position i is offset i * unit */
    int64_t unit;
} overlay;

static overlay overlay_of(const ebb_type *small, const ebb_type *big, const int64_t *stride,
                          int first, int last)
{
    overlay o = {.rank = last - first, .same = true, .unit = 1};
    for (int d = first; d < last; d++) {
        o.dims[d - first] = small->dims[d];
        o.stride[d - first] = stride[d];
        o.same = o.same && (d == first || small->dims[d] == big->dims[d]);
    }
    if (o.rank > 0)
        o.unit = o.stride[o.rank - 1];
    return o;
}

static int64_t offset_in(const overlay *o, int64_t position)
{
    if (o->same)
        return position * o->unit;
    int64_t offset = 0;
    for (int d = o->rank - 1; d >= 0; d--) {
        offset += position % o->dims[d] * o->stride[d];
        position /= o->dims[d];
    }
    return offset;
}

/* out[.., index[.., k, ..], ..] meets update[.., k, ..], along one axis. */
static void scatter_elements(const ebb_operand *out, const ebb_operand *index, const void *update,
                             int axis, const meeting *m)
{
    int64_t stride[EBB_MAX_RANK] = {0};
    const ebb_type *big = &out->type, *small = &index->type;
    ebb_strides(stride, big->rank, big->dims);
    ebb_span s = ebb_span_of(small, axis);
    overlay before = overlay_of(small, big, stride, 0, axis);
    overlay after = overlay_of(small, big, stride, axis + 1, big->rank);
    int64_t lanes = s.inner < LANES ? s.inner : LANES;
    int64_t chunks = lanes == 0 ? 0 : (s.inner + lanes - 1) / lanes;
    EBB_PARALLEL_FOR(s.outer * s.n * s.inner)
    for (int64_t job = 0; job < s.outer * chunks; job++) {
        int64_t to[LIST], from[LIST], lane[LANES], used = 0;
        int64_t o = job / chunks, first = job % chunks * lanes;
        int64_t width = s.inner - first < lanes ? s.inner - first : lanes;
        int64_t base = offset_in(&before, o);
        for (int64_t j = 0; j < width; j++)
            lane[j] = base + offset_in(&after, first + j);
        for (int64_t k = 0; k < s.n; k++) {
            int64_t row = (o * s.n + k) * s.inner + first;
            for (int64_t j = 0; j < width; j++) {
                int64_t at = ebb_index_at(index, row + j, big->dims[axis]);
                to[used + j] = lane[j] + at * stride[axis];
                from[used + j] = row + j;
            }
            used += width;
            if (used > LIST - LANES || k == s.n - 1) {
                m->listed(out->data, to, update, from, used);
                used = 0;
            }
        }
    }
}

/* (data, indices, updates) {axis, reduction} -> Y. Y may be data. */
static ebb_status run_scatter_elements(const ebb_call *c)
{
    const ebb_operand *index = &c->in[1];
    int axis;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), c->in[0].type.rank, &axis));
    EBB_TRY(ebb_indices_check_axis(c, index, c->in[0].type.dims[axis]));
    ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->in[0].bytes);
    meeting m = meeting_of(&c->in[0].type, ebb_combine_of(c));
    scatter_elements(&c->out[0], index, c->in[2].data, axis, &m);
    return NULL;
}

/* (dY, shape, indices) {axis} -> dX. */
static ebb_status run_gather_elements_grad(const ebb_call *c)
{
    const ebb_operand *index = &c->in[2];
    int axis;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), c->out[0].type.rank, &axis));
    EBB_TRY(ebb_indices_check_axis(c, index, c->out[0].type.dims[axis]));
    ebb_plain_fill(c->out[0].data, &(uint8_t){0}, (int64_t)c->out[0].bytes, 1);
    meeting m = meeting_of(&c->out[0].type, EBB_COMBINE_ADD);
    scatter_elements(&c->out[0], index, c->in[0].data, axis, &m);
    return NULL;
}

static const char *declines_elements(const ebb_call *c)
{
    return ebb_scatter_elements_misfit(c, meeting_of(&c->out[0].type, ebb_combine_of(c)).listed !=
                                              NULL);
}

/* ---- one row an index ---- */

enum { WIDTH = 1024, HANDS = 16 };

/* Rows of `inner` elements: row(i) of out meets row i of update, i = 0 .. count - 1. Out is outer
 * tables of n rows and update outer tables of count rows. Jobs share out columns and, where that
 * gives too few of them, rows by row % hands. */
typedef struct rows {
    int64_t outer, n, count, inner;
    const ebb_operand *index;
    int depth;           /* coordinates an index; 1: along one axis */
    const int64_t *dims; /* of the coordinates */
} rows;

static int64_t row_of(const rows *r, int64_t i)
{
    int64_t row = 0;
    for (int k = 0; k < r->depth; k++)
        row = row * r->dims[k] + ebb_index_at(r->index, i * r->depth + k, r->dims[k]);
    return row;
}

static void scatter_rows(void *out, const void *update, const rows *r, const meeting *m)
{
    int64_t chunks = (r->inner + WIDTH - 1) / WIDTH;
    int64_t hands = r->outer * chunks >= HANDS ? 1 : HANDS;
    if (hands > r->n || r->count < 4 * HANDS)
        hands = 1;
    EBB_PARALLEL_FOR(r->outer * r->count * r->inner)
    for (int64_t job = 0; job < r->outer * chunks * hands; job++) {
        int64_t hand = job % hands, first = job / hands % chunks * WIDTH;
        int64_t table = job / hands / chunks;
        int64_t width = r->inner - first < WIDTH ? r->inner - first : WIDTH;
        for (int64_t i = 0; i < r->count; i++) {
            int64_t row = row_of(r, i);
            if (hands > 1 && row % hands != hand)
                continue;
            int64_t to = (table * r->n + row) * r->inner + first;
            int64_t from = (table * r->count + i) * r->inner + first;
            m->row((char *)out + to * (int64_t)m->size,
                   (const char *)update + from * (int64_t)m->size, width);
        }
    }
}

/* (shape, indices, dY) {axis} -> dX. */
static ebb_status run_gather_grad(const ebb_call *c)
{
    const ebb_type *out = &c->out[0].type;
    int axis;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), out->rank, &axis));
    EBB_TRY(ebb_indices_check_axis(c, &c->in[1], out->dims[axis]));
    ebb_plain_fill(c->out[0].data, &(uint8_t){0}, (int64_t)c->out[0].bytes, 1);
    ebb_span s = ebb_span_of(out, axis);
    rows r = {s.outer, s.n, ebb_elements(&c->in[1].type), s.inner, &c->in[1], 1, &s.n};
    meeting m = meeting_of(out, EBB_COMBINE_ADD);
    scatter_rows(c->out[0].data, c->in[2].data, &r, &m);
    return NULL;
}

static const char *declines_gather_grad(const ebb_call *c)
{
    return ebb_gather_grad_misfit(c, meeting_of(&c->out[0].type, EBB_COMBINE_ADD).listed != NULL);
}

/* Coordinate k of each index is within dim k. */
static ebb_status check_coordinates(const ebb_call *c, const rows *r)
{
    for (int64_t i = 0; i < r->count; i++)
        for (int k = 0; k < r->depth; k++) {
            int64_t x = ebb_plain_int(r->index, i * r->depth + k), n = r->dims[k];
            if (x < -n || x >= n)
                return ebb_call_error(
                    c, "coordinate %d of index %lld is %lld, outside of an axis of length %lld", k,
                    (long long)i, (long long)x, (long long)n);
        }
    return NULL;
}

/* (data, indices, updates) {reduction} -> Y. Y may be data. */
static ebb_status run_scatter_nd(const ebb_call *c)
{
    const ebb_type *data = &c->in[0].type, *index = &c->in[1].type;
    rows r = {.outer = 1, .n = 1, .count = 1, .inner = 1, .index = &c->in[1], .dims = data->dims};
    r.depth = (int)index->dims[index->rank - 1];
    for (int d = 0; d < index->rank - 1; d++)
        r.count *= index->dims[d];
    for (int d = 0; d < data->rank; d++)
        *(d < r.depth ? &r.n : &r.inner) *= data->dims[d];
    EBB_TRY(check_coordinates(c, &r));
    ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->in[0].bytes);
    meeting m = meeting_of(data, ebb_combine_of(c));
    scatter_rows(c->out[0].data, c->in[2].data, &r, &m);
    return NULL;
}

static const char *declines_scatter_nd(const ebb_call *c)
{
    return ebb_scatter_nd_misfit(c, meeting_of(&c->in[0].type, ebb_combine_of(c)).listed != NULL);
}

// clang-format off
const ebb_kernel ebb_plain_scatter[] = {
    {.name = "plain.scatter_elements",     .op = EBB_OP_SCATTER_ELEMENTS,     .fits = declines_elements, .run = run_scatter_elements},
    {.name = "plain.scatter",              .op = EBB_OP_SCATTER,              .fits = declines_elements, .run = run_scatter_elements},
    {.name = "plain.scatter_nd",           .op = EBB_OP_SCATTER_ND,           .fits = declines_scatter_nd, .run = run_scatter_nd},
    {.name = "plain.gather_grad",          .op = EBB_OP_GATHER_GRAD,          .fits = declines_gather_grad, .run = run_gather_grad},
    {.name = "plain.gather_elements_grad", .op = EBB_OP_GATHER_ELEMENTS_GRAD, .fits = declines_elements, .run = run_gather_elements_grad},
};
// clang-format on
EBB_PLAIN_COUNT(scatter)
