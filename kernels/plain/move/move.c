/* move.c: Transpose, Pad, and what kernels/call/move/move.h reads: each a strided copy. */
#include "kernels/call/move/move.h"
#include "kernels/plain/plain.h"

#include <string.h>

/* ---- Transpose ---- */

enum { BAND = 64 }; /* rows a job */

/* Source dims in the order of the output; dims of 1 dropped, neighbours that stay so merged. */
typedef struct turn {
    int rank;
    int64_t dims[EBB_MAX_RANK], from[EBB_MAX_RANK];
} turn;

static turn turn_of(const ebb_type *x, const int64_t *perm)
{
    turn t = {.rank = 0};
    int64_t stride[EBB_MAX_RANK] = {0};
    ebb_strides(stride, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) {
        int64_t axis = perm != NULL ? perm[d] : x->rank - 1 - d, n = x->dims[axis];
        if (n == 1)
            continue;
        if (t.rank > 0 && t.from[t.rank - 1] == stride[axis] * n) {
            t.dims[t.rank - 1] *= n;
            t.from[t.rank - 1] = stride[axis];
            continue;
        }
        t.dims[t.rank] = n;
        t.from[t.rank++] = stride[axis];
    }
    return t;
}

/* The innermost dim stays innermost, as when attention splits its heads: whole rows move. */
static void turn_rows(char *y, const char *x, const turn *t, size_t size)
{
    int64_t inner = t->dims[t->rank - 1], count = t->dims[t->rank - 2], outer = 1;
    int64_t step = t->from[t->rank - 2] * (int64_t)size, bands = (count + BAND - 1) / BAND;
    size_t bytes = (size_t)inner * size;
    for (int d = 0; d < t->rank - 2; d++)
        outer *= t->dims[d];
    EBB_PARALLEL_FOR(outer * count * inner)
    for (int64_t job = 0; job < outer * bands; job++) {
        int64_t index = job / bands, first = job % bands * BAND, at = 0;
        int64_t last = count - first < BAND ? count : first + BAND;
        char *to = y + (size_t)(index * count) * bytes;
        for (int d = t->rank - 3; d >= 0; d--) {
            at += index % t->dims[d] * t->from[d];
            index /= t->dims[d];
        }
        const char *from = x + at * (int64_t)size;
        for (int64_t i = first; i < last; i++)
            memcpy(to + (size_t)i * bytes, from + i * step, bytes);
    }
}

/* Elements that share bytes move one by one. */
static void turn_packed(const ebb_call *c, const turn *t)
{
    unsigned bits = ebb_dtype_bits((ebb_dtype)c->in[0].type.dtype);
    memset(c->out[0].data, 0, c->out[0].bytes);
    for (int64_t i = 0, n = ebb_elements(&c->out[0].type); i < n; i++) {
        int64_t from = 0, rest = i;
        for (int d = t->rank - 1; d >= 0; d--) {
            from += rest % t->dims[d] * t->from[d];
            rest /= t->dims[d];
        }
        ebb_bits_put(c->out[0].data, i, bits, ebb_bits_get(c->in[0].data, from, bits));
    }
}

/* (X) {perm} -> Y. */
static ebb_status run_transpose(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    uint32_t count = 0;
    turn t = turn_of(x, ebb_attr_ints(&c->attrs, "perm", &count));
    size_t size = ebb_element_bytes(x);
    if (ebb_elements(x) == 0)
        return NULL;
    if (t.rank < 2) {
        ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->out[0].bytes);
        return NULL;
    }
    if (size == 0) {
        turn_packed(c, &t);
        return NULL;
    }
    if (t.from[t.rank - 1] == 1) {
        turn_rows(c->out[0].data, c->in[0].data, &t, size);
        return NULL;
    }
    int64_t to[EBB_MAX_RANK] = {0};
    ebb_strides(to, t.rank, t.dims);
    ebb_plain_copy(c->out[0].data, to, c->in[0].data, t.from, t.rank, t.dims, size);
    return NULL;
}

/* ---- what move.h reads ---- */

static ebb_status copy(const ebb_call *c, void *to, const int64_t *to_stride, const void *from,
                       const int64_t *from_stride, int rank, const int64_t *dims, size_t size)
{
    (void)c;
    ebb_plain_copy(to, to_stride, from, from_stride, rank, dims, size);
    return NULL;
}

static ebb_status clear(const ebb_call *c, void *to, size_t bytes)
{
    (void)c;
    ebb_plain_fill(to, &(uint8_t){0}, (int64_t)bytes, 1);
    return NULL;
}

static const ebb_mover mover = {copy, clear};

EBB_MOVE(concat)
EBB_MOVE(split)
EBB_MOVE(slice)
EBB_MOVE(slice_grad)
EBB_MOVE(depth_to_space)
EBB_MOVE(space_to_depth)
EBB_MOVE(tile)

static ebb_status run_expand(const ebb_call *c)
{
    const ebb_operand *x = &c->in[0], *y = &c->out[0];
    if (ebb_elements(&x->type) != 1)
        return ebb_move_expand(c, &mover);
    ebb_plain_fill(y->data, x->data, ebb_elements(&y->type), ebb_element_bytes(&x->type));
    return NULL;
}

/* Copies are of so many dims at most. */
static const char *declines_tile(const ebb_call *c)
{
    EBB_ASK(ebb_tile_misfit(c));
    return ebb_tile_rank(c) > EBB_MAX_RANK ? "too many dims are repeated" : NULL;
}

/* ---- Pad ---- */

static void pad_constant(const ebb_call *c, const int64_t *begin)
{
    static const char zero[16];
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    size_t size = ebb_element_bytes(x);
    const void *value = ebb_call_has(c, 2) ? c->in[2].data : zero;
    ebb_plain_fill(c->out[0].data, value, ebb_elements(y), size);
    int64_t to[EBB_MAX_RANK] = {0}, from[EBB_MAX_RANK] = {0}, dims[EBB_MAX_RANK] = {0};
    int64_t to_first = 0, from_first = 0;
    ebb_strides(to, y->rank, y->dims);
    ebb_strides(from, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) { /* negative pads cut away */
        int64_t a = begin[d] < 0 ? -begin[d] : 0, b = begin[d] > 0 ? begin[d] : 0;
        int64_t left = x->dims[d] - a, room = y->dims[d] - b;
        dims[d] = left < room ? left : room;
        if (dims[d] <= 0)
            return;
        from_first += a * from[d];
        to_first += b * to[d];
    }
    ebb_plain_copy((char *)c->out[0].data + (size_t)to_first * size, to,
                   (const char *)c->in[0].data + (size_t)from_first * size, from, x->rank, dims,
                   size);
}

/* What there is to pad with: the input without what negative pads cut away. */
typedef struct padded {
    const char *from; /* its first element */
    int64_t dims[EBB_MAX_RANK], strides[EBB_MAX_RANK], begin[EBB_MAX_RANK];
} padded;

/* False where nothing is left. */
static bool cut_away(const ebb_call *c, const int64_t *begin, padded *p)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t first = 0;
    ebb_strides(p->strides, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) {
        int64_t low = begin[d] < 0 ? -begin[d] : 0, end = y->dims[d] - begin[d];
        p->dims[d] = (end < x->dims[d] ? end : x->dims[d]) - low;
        p->begin[d] = begin[d] + low;
        first += low * p->strides[d];
        if (p->dims[d] <= 0)
            return false;
    }
    p->from = (const char *)c->in[0].data + (size_t)first * ebb_element_bytes(x);
    return true;
}

/* Row by row: its source row, then what lies inside in one copy and the two ends one by one. */
static void pad_around(const ebb_call *c, ebb_pad_mode mode, const padded *p)
{
    const ebb_type *y = &c->out[0].type;
    const int last = y->rank - 1;
    const int64_t n = p->dims[last], m = y->dims[last], total = ebb_elements(y);
    const int64_t first = p->begin[last], end = first + n;
    const size_t size = ebb_element_bytes(y);
    EBB_PARALLEL_FOR(total)
    for (int64_t row = 0; row < total / m; row++) {
        int64_t index = row, source = 0;
        for (int d = last - 1; d >= 0; d--) {
            int64_t at = index % y->dims[d] - p->begin[d];
            const bool inside = at >= 0 && at < p->dims[d];
            source += (inside ? at : ebb_pad_source(mode, at, p->dims[d])) * p->strides[d];
            index /= y->dims[d];
        }
        char *to = (char *)c->out[0].data + (size_t)(row * m) * size;
        const char *from = p->from + (size_t)source * size;
        memcpy(to + (size_t)first * size, from, (size_t)n * size);
        for (int64_t j = first == 0 ? end : 0; j < m; j = j + 1 == first ? end : j + 1)
            memcpy(to + (size_t)j * size, from + (size_t)ebb_pad_source(mode, j - first, n) * size,
                   size);
    }
}

/* (X, pads, value?, axes?) {mode} -> Y. */
static ebb_status run_pad(const ebb_call *c)
{
    int64_t begin[EBB_MAX_RANK];
    EBB_TRY(ebb_pads_read(c, begin));
    if (ebb_elements(&c->out[0].type) == 0)
        return NULL;
    const ebb_pad_mode mode = ebb_pad_mode_of(c);
    if (mode == EBB_PAD_CONSTANT || c->in[0].type.rank == 0) {
        pad_constant(c, begin);
        return NULL;
    }
    padded p;
    if (!cut_away(c, begin, &p))
        return ebb_call_error(c, "there is nothing to pad with: no element is left");
    pad_around(c, mode, &p);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_move[] = {
    {.name = "plain.transpose",      .op = EBB_OP_TRANSPOSE,      .fits = ebb_transpose_misfit, .run = run_transpose},
    {.name = "plain.concat",         .op = EBB_OP_CONCAT,         .fits = ebb_concat_misfit, .run = run_concat},
    {.name = "plain.split",          .op = EBB_OP_SPLIT,          .fits = ebb_split_misfit, .run = run_split},
    {.name = "plain.slice",          .op = EBB_OP_SLICE,          .dtypes = ebb_same_dtype_misfit, .run = run_slice},
    {.name = "plain.slice_grad",     .op = EBB_OP_SLICE_GRAD,     .dtypes = ebb_same_dtype_misfit, .run = run_slice_grad},
    {.name = "plain.pad",            .op = EBB_OP_PAD,            .dtypes = ebb_same_dtype_misfit, .fits = ebb_pad_misfit, .run = run_pad},
    {.name = "plain.depth_to_space", .op = EBB_OP_DEPTH_TO_SPACE, .fits = ebb_depth_misfit, .run = run_depth_to_space},
    {.name = "plain.space_to_depth", .op = EBB_OP_SPACE_TO_DEPTH, .fits = ebb_depth_misfit, .run = run_space_to_depth},
    {.name = "plain.expand",         .op = EBB_OP_EXPAND,         .fits = ebb_expand_misfit, .run = run_expand},
    {.name = "plain.tile",           .op = EBB_OP_TILE,           .fits = declines_tile, .run = run_tile},
};
// clang-format on
EBB_PLAIN_COUNT(move)
