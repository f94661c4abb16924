/* move.c: Transpose, Concat, Split, Slice, Pad, and blocks of channels: each a strided copy. */
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
    size_t size = ebb_plain_size(x);
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

static const char *declines_transpose(const ebb_call *c)
{
    const char *why = ebb_plain_any_bits(c);
    if (why != NULL)
        return why;
    uint32_t count = 0;
    const ebb_type *x = &c->in[0].type;
    const int64_t *perm = ebb_attr_ints(&c->attrs, "perm", &count);
    if (perm == NULL)
        return NULL;
    unsigned seen = 0;
    for (uint32_t i = 0; i < count; i++)
        if (perm[i] >= 0 && perm[i] < x->rank)
            seen |= 1u << perm[i];
    if (count != (uint32_t)x->rank || seen != (1u << x->rank) - 1u)
        return "perm is no permutation of the axes";
    return NULL;
}

/* ---- Concat and Split ---- */

/* Copies `rows` pieces of `width` elements between places `to_step` and `from_step` apart. */
static void copy_pieces(char *to, int64_t to_step, const char *from, int64_t from_step,
                        int64_t rows, int64_t width, size_t size)
{
    const int64_t dims[2] = {rows, width}, ts[2] = {to_step, 1}, fs[2] = {from_step, 1};
    ebb_plain_copy(to, ts, from, fs, 2, dims, size);
}

/* (X...) {axis} -> Y. */
static ebb_status run_concat(const ebb_call *c)
{
    int axis;
    const ebb_operand *y = &c->out[0];
    EBB_TRY(ebb_plain_axis(c, ebb_attr_int(&c->attrs, "axis", 1), y->type.rank, &axis));
    ebb_span whole = ebb_plain_span(&y->type, axis);
    size_t size = ebb_plain_size(&y->type);
    int64_t at = 0, row = whole.n * whole.inner;
    for (uint32_t i = 0; i < c->input_count; i++) {
        int64_t width = c->in[i].type.dims[axis] * whole.inner;
        if (width > 0)
            copy_pieces((char *)y->data + (size_t)at * size, row, c->in[i].data, width, whole.outer,
                        width, size);
        at += width;
    }
    return NULL;
}

static const char *declines_concat(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    const ebb_type *y = &c->out[0].type;
    int axis = (int)ebb_attr_int(&c->attrs, "axis", 1);
    axis += axis < 0 ? y->rank : 0;
    int64_t sum = 0;
    for (uint32_t i = 0; i < c->input_count; i++) {
        const ebb_type *x = &c->in[i].type;
        if (x->dtype != y->dtype || x->rank != y->rank)
            return "inputs do not fit the output";
        for (int d = 0; d < x->rank; d++)
            if (d != axis && x->dims[d] != y->dims[d])
                return "inputs do not fit the output";
        sum += axis >= 0 && axis < x->rank ? x->dims[axis] : 0;
    }
    if (axis >= 0 && axis < y->rank && sum != y->dims[axis])
        return "inputs do not fit the output";
    return NULL;
}

/* (X, split?) {axis, split?} -> Y.... What nobody wants is stepped over. */
static ebb_status run_split(const ebb_call *c)
{
    int axis;
    const ebb_operand *x = &c->in[0];
    EBB_TRY(ebb_plain_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->type.rank, &axis));
    ebb_span whole = ebb_plain_span(&x->type, axis);
    size_t size = ebb_plain_size(&x->type);
    const ebb_operand *list = ebb_call_has(c, 1) ? &c->in[1] : NULL;
    uint32_t count = 0;
    const int64_t *sizes = ebb_attr_ints(&c->attrs, "split", &count);
    if (list != NULL && ebb_elements(&list->type) != (int64_t)c->output_count)
        return ebb_call_error(c, "%lld sizes are given for %u outputs",
                              (long long)ebb_elements(&list->type), c->output_count);
    int64_t each = (whole.n + c->output_count - 1) / (int64_t)c->output_count, at = 0;
    for (uint32_t i = 0; i < c->output_count; i++) {
        int64_t n = list != NULL          ? ebb_plain_int(list, i)
                    : i < count           ? sizes[i]
                    : whole.n - at < each ? whole.n - at
                                          : each;
        if (n < 0 || n > whole.n - at)
            return ebb_call_error(c, "part %u has %lld of the %lld elements left", i, (long long)n,
                                  (long long)(whole.n - at));
        if (ebb_call_wants(c, i) && c->out[i].type.dims[axis] != n)
            return ebb_call_error(c, "part %u has %lld elements, %lld were planned", i,
                                  (long long)n, (long long)c->out[i].type.dims[axis]);
        if (ebb_call_wants(c, i) && n > 0)
            copy_pieces(c->out[i].data, n * whole.inner,
                        (const char *)x->data + (size_t)(at * whole.inner) * size,
                        whole.n * whole.inner, whole.outer, n * whole.inner, size);
        at += n;
    }
    return NULL;
}

static const char *declines_split(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    if (ebb_call_has(c, 1) && c->in[1].type.dtype != EBB_I64 && c->in[1].type.dtype != EBB_I32)
        return "sizes are neither int32 nor int64";
    for (uint32_t i = 0; i < c->output_count; i++)
        if (ebb_call_wants(c, i) && (c->out[i].type.dtype != c->in[0].type.dtype ||
                                     c->out[i].type.rank != c->in[0].type.rank))
            return "outputs do not fit the input";
    return NULL;
}

/* ---- Slice ---- */

/* A part of a tensor: where it begins and how it goes on, in elements. */
typedef struct part {
    int64_t first, stride[EBB_MAX_RANK];
} part;

/* Where along an axis of n elements a slice starts, and how many it takes. */
static int64_t bounds(int64_t n, int64_t start, int64_t end, int64_t step, int64_t *count)
{
    start = start < -n ? -1 : start < 0 ? start + n : start;
    end = end < -n ? -1 : end < 0 ? end + n : end;
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    start = start < 0 ? 0 : start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    int64_t span = step > 0 ? end - start : start - end, by = step > 0 ? step : -step;
    *count = n > 0 && span > 0 ? (span - 1) / by + 1 : 0;
    return start;
}

/* starts, ends, axes and steps are inputs at, at + 1 ...; whole and piece the types cut and cut
 * out. */
static ebb_status read_slice(const ebb_call *c, uint32_t at, const ebb_type *whole,
                             const ebb_type *piece, part *p)
{
    int64_t starts[EBB_MAX_RANK], ends[EBB_MAX_RANK], axes[EBB_MAX_RANK], steps[EBB_MAX_RANK];
    int64_t dense[EBB_MAX_RANK] = {0}, dims[EBB_MAX_RANK] = {0};
    uint32_t count, end_count, axis_count, step_count;
    EBB_TRY(ebb_plain_ints(c, NULL, at, starts, EBB_MAX_RANK, &count));
    EBB_TRY(ebb_plain_ints(c, NULL, at + 1, ends, EBB_MAX_RANK, &end_count));
    EBB_TRY(ebb_plain_ints(c, NULL, at + 2, axes, EBB_MAX_RANK, &axis_count));
    EBB_TRY(ebb_plain_ints(c, NULL, at + 3, steps, EBB_MAX_RANK, &step_count));
    if (end_count != count || (ebb_call_has(c, at + 2) && axis_count != count) ||
        (ebb_call_has(c, at + 3) && step_count != count))
        return ebb_call_error(c, "starts, ends, axes and steps differ in length");
    ebb_strides(dense, whole->rank, whole->dims);
    p->first = 0;
    for (int d = 0; d < whole->rank; d++) {
        dims[d] = whole->dims[d];
        p->stride[d] = dense[d];
    }
    for (uint32_t i = 0; i < count; i++) {
        int axis;
        int64_t step = step_count > 0 ? steps[i] : 1;
        EBB_TRY(ebb_plain_axis(c, axis_count > 0 ? axes[i] : (int64_t)i, whole->rank, &axis));
        if (step == 0 || step == INT64_MIN)
            return ebb_call_error(c, "the step along axis %d is %lld", axis, (long long)step);
        int64_t start = bounds(whole->dims[axis], starts[i], ends[i], step, &dims[axis]);
        if (dims[axis] > 0)
            p->first += start * dense[axis];
        p->stride[axis] = dims[axis] > 1 ? dense[axis] * step : 0;
    }
    for (int d = 0; d < whole->rank; d++)
        if (piece->rank != whole->rank || dims[d] != piece->dims[d])
            return ebb_call_error(c, "axis %d gives %lld elements, %lld were planned", d,
                                  (long long)dims[d],
                                  piece->rank == whole->rank ? (long long)piece->dims[d] : -1LL);
    return NULL;
}

/* (X, starts, ends, axes?, steps?) -> Y. */
static ebb_status run_slice(const ebb_call *c)
{
    part p;
    const ebb_operand *x = &c->in[0], *y = &c->out[0];
    EBB_TRY(read_slice(c, 1, &x->type, &y->type, &p));
    if (ebb_elements(&y->type) == 0)
        return NULL;
    int64_t to[EBB_MAX_RANK] = {0};
    size_t size = ebb_plain_size(&x->type);
    ebb_strides(to, y->type.rank, y->type.dims);
    ebb_plain_copy(y->data, to, (const char *)x->data + (size_t)p.first * size, p.stride,
                   y->type.rank, y->type.dims, size);
    return NULL;
}

/* (dY, shape, starts, ends, axes?, steps?) -> dX: dY at its place, 0 elsewhere. */
static ebb_status run_slice_grad(const ebb_call *c)
{
    part p;
    const ebb_operand *dy = &c->in[0], *dx = &c->out[0];
    EBB_TRY(read_slice(c, 2, &dx->type, &dy->type, &p));
    ebb_plain_fill(dx->data, &(uint8_t){0}, (int64_t)dx->bytes, 1);
    if (ebb_elements(&dy->type) == 0)
        return NULL;
    int64_t from[EBB_MAX_RANK] = {0};
    size_t size = ebb_plain_size(&dy->type);
    ebb_strides(from, dy->type.rank, dy->type.dims);
    ebb_plain_copy((char *)dx->data + (size_t)p.first * size, p.stride, dy->data, from,
                   dy->type.rank, dy->type.dims, size);
    return NULL;
}

/* Output 0 has input 0's dtype. */
static const char *declines_same(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    return c->in[0].type.dtype != c->out[0].type.dtype ? "operands differ in dtype" : NULL;
}

/* ---- Pad ---- */

typedef enum pad_mode { CONSTANT, REFLECT, EDGE, WRAP, UNKNOWN } pad_mode;

static pad_mode mode_of(const ebb_call *c)
{
    static const char *const names[] = {"constant", "reflect", "edge", "wrap"};
    const char *mode = ebb_attr_string(&c->attrs, "mode", "constant");
    for (int i = 0; i < UNKNOWN; i++)
        if (strcmp(mode, names[i]) == 0)
            return (pad_mode)i;
    return UNKNOWN;
}

/* Where coordinate i, which may lie outside of 0..n-1, takes its element from. */
static int64_t source_of(pad_mode mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    if (mode == EDGE || n == 1)
        return i < 0 ? 0 : n - 1;
    int64_t period = mode == WRAP ? n : 2 * (n - 1);
    i %= period;
    i += i < 0 ? period : 0;
    return i < n ? i : period - i;
}

static ebb_status read_pads(const ebb_call *c, int64_t begin[EBB_MAX_RANK])
{
    int64_t pads[2 * EBB_MAX_RANK], axes[EBB_MAX_RANK];
    uint32_t count, axis_count;
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    EBB_TRY(ebb_plain_ints(c, "pads", 1, pads, 2 * EBB_MAX_RANK, &count));
    EBB_TRY(ebb_plain_ints(c, NULL, 3, axes, EBB_MAX_RANK, &axis_count));
    uint32_t padded = ebb_call_has(c, 3) ? axis_count : (uint32_t)x->rank;
    if (count != 2 * padded)
        return ebb_call_error(c, "%u pads are given for %u axes", count, padded);
    memset(begin, 0, EBB_MAX_RANK * sizeof *begin);
    int64_t sum[EBB_MAX_RANK] = {0};
    for (uint32_t i = 0; i < padded; i++) {
        int axis;
        EBB_TRY(ebb_plain_axis(c, ebb_call_has(c, 3) ? axes[i] : (int64_t)i, x->rank, &axis));
        begin[axis] = pads[i];
        if (__builtin_add_overflow(pads[i], pads[padded + i], &sum[axis]))
            return ebb_call_error(c, "pads along axis %d are too large", axis);
    }
    for (int d = 0; d < x->rank; d++) {
        int64_t limit = INT64_MAX / 4;
        if (begin[d] < -limit || begin[d] > limit || sum[d] != y->dims[d] - x->dims[d])
            return ebb_call_error(c, "pads along axis %d make %lld elements of %lld, not %lld", d,
                                  (long long)sum[d], (long long)x->dims[d], (long long)y->dims[d]);
    }
    return NULL;
}

static void pad_constant(const ebb_call *c, const int64_t *begin)
{
    static const char zero[16];
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    size_t size = ebb_plain_size(x);
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

/* Row by row: its source row, then what lies inside in one copy and the two ends one by one. */
static void pad_around(const ebb_call *c, pad_mode mode, const int64_t *begin)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int last = x->rank - 1;
    int64_t n = x->dims[last], m = y->dims[last], total = ebb_elements(y);
    size_t size = ebb_plain_size(x);
    int64_t first = begin[last] < 0 ? 0 : begin[last] > m ? m : begin[last];
    int64_t end = begin[last] + n < m ? begin[last] + n : m;
    end = end < first ? first : end;
    EBB_PARALLEL_FOR(total)
    for (int64_t row = 0; row < total / m; row++) {
        int64_t index = row, source = 0, step = 1;
        for (int d = last - 1; d >= 0; d--) {
            source += source_of(mode, index % y->dims[d] - begin[d], x->dims[d]) * step;
            step *= x->dims[d];
            index /= y->dims[d];
        }
        char *to = (char *)c->out[0].data + (size_t)(row * m) * size;
        const char *from = (const char *)c->in[0].data + (size_t)(source * n) * size;
        if (end > first)
            memcpy(to + (size_t)first * size, from + (size_t)(first - begin[last]) * size,
                   (size_t)(end - first) * size);
        for (int64_t j = 0; j < m; j++) {
            if (j == first && end > first)
                j = end;
            if (j >= m)
                break;
            memcpy(to + (size_t)j * size, from + (size_t)source_of(mode, j - begin[last], n) * size,
                   size);
        }
    }
}

/* (X, pads, value?, axes?) {mode} -> Y. */
static ebb_status run_pad(const ebb_call *c)
{
    int64_t begin[EBB_MAX_RANK];
    EBB_TRY(read_pads(c, begin));
    if (ebb_elements(&c->out[0].type) == 0)
        return NULL;
    pad_mode mode = mode_of(c);
    if (mode == CONSTANT || c->in[0].type.rank == 0) {
        pad_constant(c, begin);
        return NULL;
    }
    if (ebb_elements(&c->in[0].type) == 0)
        return ebb_call_error(c, "there is nothing to pad with: the input is empty");
    pad_around(c, mode, begin);
    return NULL;
}

static const char *declines_pad(const ebb_call *c)
{
    const char *why = declines_same(c);
    if (why != NULL)
        return why;
    if (c->in[0].type.rank != c->out[0].type.rank)
        return "the output does not fit the input";
    if (mode_of(c) == UNKNOWN)
        return "the mode is none of constant, reflect, edge and wrap";
    if (ebb_call_has(c, 2) &&
        (c->in[2].type.dtype != c->in[0].type.dtype || ebb_elements(&c->in[2].type) != 1))
        return "the value is not one of the input's dtype";
    return NULL;
}

/* ---- blocks of channels ---- */

/* The dims and the strides of [N, a, b, c, d, e] as it lies in memory, in the order of perm. */
static void copy_blocks(const ebb_call *c, const int64_t dims[6], const int perm[6])
{
    int64_t dense[6], out[6], to[6], from[6];
    ebb_strides(dense, 6, dims);
    for (int d = 0; d < 6; d++) {
        out[d] = dims[perm[d]];
        from[d] = dense[perm[d]];
    }
    ebb_strides(to, 6, out);
    ebb_plain_copy(c->out[0].data, to, c->in[0].data, from, 6, out, ebb_plain_size(&c->in[0].type));
}

/* (X) {blocksize, mode = DCR} -> Y: [N, C b b, H, W] -> [N, C, H b, W b]. */
static ebb_status run_depth_to_space(const ebb_call *c)
{
    const int64_t *n = c->in[0].type.dims, b = ebb_attr_int(&c->attrs, "blocksize", 1);
    const char *mode = ebb_attr_string(&c->attrs, "mode", "DCR");
    if (strcmp(mode, "CRD") == 0)
        copy_blocks(c, (int64_t[]){n[0], n[1] / (b * b), b, b, n[2], n[3]},
                    (int[]){0, 1, 4, 2, 5, 3});
    else if (strcmp(mode, "DCR") == 0)
        copy_blocks(c, (int64_t[]){n[0], b, b, n[1] / (b * b), n[2], n[3]},
                    (int[]){0, 3, 4, 1, 5, 2});
    else
        return ebb_call_error(c, "mode '%s' is neither DCR nor CRD", mode);
    return NULL;
}

/* (X) {blocksize} -> Y: [N, C, H b, W b] -> [N, b b C, H, W]. */
static ebb_status run_space_to_depth(const ebb_call *c)
{
    const int64_t *n = c->in[0].type.dims, b = ebb_attr_int(&c->attrs, "blocksize", 1);
    copy_blocks(c, (int64_t[]){n[0], n[1], n[2] / b, b, n[3] / b, b}, (int[]){0, 3, 5, 1, 2, 4});
    return NULL;
}

static const char *declines_blocks(const ebb_call *c)
{
    const char *why = declines_same(c);
    if (why != NULL)
        return why;
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t b = ebb_attr_int(&c->attrs, "blocksize", 0);
    if (x->rank != 4 || y->rank != 4 || b <= 0 || b > 65536)
        return "no blocks of a tensor of rank 4";
    const ebb_type *deep = c->op == EBB_OP_DEPTH_TO_SPACE ? x : y, *flat = deep == x ? y : x;
    if (deep->dims[0] != flat->dims[0] || deep->dims[1] != flat->dims[1] * b * b ||
        deep->dims[2] * b != flat->dims[2] || deep->dims[3] * b != flat->dims[3])
        return "the output does not fit the input";
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_move[] = {
    {.name = "plain.transpose",      .op = EBB_OP_TRANSPOSE,      .declines = declines_transpose, .run = run_transpose},
    {.name = "plain.concat",         .op = EBB_OP_CONCAT,         .declines = declines_concat,    .run = run_concat},
    {.name = "plain.split",          .op = EBB_OP_SPLIT,          .declines = declines_split,     .run = run_split},
    {.name = "plain.slice",          .op = EBB_OP_SLICE,          .declines = declines_same,      .run = run_slice},
    {.name = "plain.slice_grad",     .op = EBB_OP_SLICE_GRAD,     .declines = declines_same,      .run = run_slice_grad},
    {.name = "plain.pad",            .op = EBB_OP_PAD,            .declines = declines_pad,       .run = run_pad},
    {.name = "plain.depth_to_space", .op = EBB_OP_DEPTH_TO_SPACE, .declines = declines_blocks,    .run = run_depth_to_space},
    {.name = "plain.space_to_depth", .op = EBB_OP_SPACE_TO_DEPTH, .declines = declines_blocks,    .run = run_space_to_depth},
};
// clang-format on
EBB_PLAIN_COUNT(move)
