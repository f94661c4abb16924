/* move.c: see move.h. */
#include "kernels/call/move/move.h"

/* ---- Concat and Split ---- */

/* Copies `rows` pieces of `width` elements between places `to_step` and `from_step` apart. */
static ebb_status copy_pieces(const ebb_call *c, const ebb_mover *by, void *to, int64_t to_step,
                              const void *from, int64_t from_step, int64_t rows, int64_t width,
                              size_t size)
{
    const int64_t dims[2] = {rows, width}, ts[2] = {to_step, 1}, fs[2] = {from_step, 1};
    return width > 0 ? by->copy(c, to, ts, from, fs, 2, dims, size) : NULL;
}

/* (X...) {axis} -> Y. */
ebb_status ebb_move_concat(const ebb_call *c, const ebb_mover *by)
{
    int axis;
    const ebb_operand *y = &c->out[0];
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 1), y->type.rank, &axis));
    const ebb_span whole = ebb_span_of(&y->type, axis);
    const size_t size = ebb_element_bytes(&y->type);
    int64_t at = 0, row = whole.n * whole.inner;
    for (uint32_t i = 0; i < c->input_count; i++) {
        int64_t width = c->in[i].type.dims[axis] * whole.inner;
        EBB_TRY(copy_pieces(c, by, (char *)y->data + (size_t)at * size, row, c->in[i].data, width,
                            whole.outer, width, size));
        at += width;
    }
    return NULL;
}

const char *ebb_concat_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    const ebb_type *y = &c->out[0].type;
    const int64_t axis = ebb_axis_of(c, "axis", 1, y->rank);
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

/* The elements of part i along the axis: as input 1 or attribute split say, else equal parts. */
static ebb_status part_of(const ebb_call *c, uint32_t i, int64_t whole, int64_t left, int64_t *n)
{
    uint32_t count = 0;
    const int64_t *sizes = ebb_attr_ints(&c->attrs, "split", &count);
    const int64_t each = (whole + c->output_count - 1) / (int64_t)c->output_count;
    *n = left < each ? left : each;
    if (ebb_call_has(c, 1))
        EBB_TRY(ebb_call_int(c, 1, i, n));
    else if (i < count)
        *n = sizes[i];
    if (*n < 0 || *n > left)
        return ebb_call_error(c, "part %u has %lld of the %lld elements left", i, (long long)*n,
                              (long long)left);
    return NULL;
}

/* (X, split?) {axis, split?} -> Y.... What nobody wants is stepped over. */
ebb_status ebb_move_split(const ebb_call *c, const ebb_mover *by)
{
    int axis;
    const ebb_operand *x = &c->in[0];
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->type.rank, &axis));
    const ebb_span whole = ebb_span_of(&x->type, axis);
    const size_t size = ebb_element_bytes(&x->type);
    if (ebb_call_has(c, 1) && ebb_elements(&c->in[1].type) != (int64_t)c->output_count)
        return ebb_call_error(c, "%lld sizes are given for %u outputs",
                              (long long)ebb_elements(&c->in[1].type), c->output_count);
    int64_t at = 0, n;
    for (uint32_t i = 0; i < c->output_count; i++, at += n) {
        EBB_TRY(part_of(c, i, whole.n, whole.n - at, &n));
        if (!ebb_call_wants(c, i))
            continue;
        if (c->out[i].type.dims[axis] != n)
            return ebb_call_error(c, "part %u has %lld elements, %lld were planned", i,
                                  (long long)n, (long long)c->out[i].type.dims[axis]);
        EBB_TRY(copy_pieces(c, by, c->out[i].data, n * whole.inner,
                            (const char *)x->data + (size_t)(at * whole.inner) * size,
                            whole.n * whole.inner, whole.outer, n * whole.inner, size));
    }
    return NULL;
}

const char *ebb_split_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    if (ebb_call_has(c, 1) && !ebb_indices_are(&c->in[1]))
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
    int64_t list[4][EBB_MAX_RANK], dense[EBB_MAX_RANK] = {0}, dims[EBB_MAX_RANK] = {0};
    uint32_t count[4];
    for (uint32_t k = 0; k < 4; k++)
        EBB_TRY(ebb_call_ints(c, NULL, at + k, list[k], EBB_MAX_RANK, &count[k]));
    if (count[1] != count[0] || (ebb_call_has(c, at + 2) && count[2] != count[0]) ||
        (ebb_call_has(c, at + 3) && count[3] != count[0]))
        return ebb_call_error(c, "starts, ends, axes and steps differ in length");
    ebb_strides(dense, whole->rank, whole->dims);
    p->first = 0;
    for (int d = 0; d < whole->rank; d++) {
        dims[d] = whole->dims[d];
        p->stride[d] = dense[d];
    }
    for (uint32_t i = 0; i < count[0]; i++) {
        int axis;
        int64_t step = count[3] > 0 ? list[3][i] : 1;
        EBB_TRY(ebb_call_axis(c, count[2] > 0 ? list[2][i] : (int64_t)i, whole->rank, &axis));
        if (step == 0 || step == INT64_MIN)
            return ebb_call_error(c, "the step along axis %d is %lld", axis, (long long)step);
        int64_t start = bounds(whole->dims[axis], list[0][i], list[1][i], step, &dims[axis]);
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
ebb_status ebb_move_slice(const ebb_call *c, const ebb_mover *by)
{
    part p;
    const ebb_operand *x = &c->in[0], *y = &c->out[0];
    EBB_TRY(read_slice(c, 1, &x->type, &y->type, &p));
    if (ebb_elements(&y->type) == 0)
        return NULL;
    int64_t to[EBB_MAX_RANK] = {0};
    const size_t size = ebb_element_bytes(&x->type);
    ebb_strides(to, y->type.rank, y->type.dims);
    return by->copy(c, y->data, to, (const char *)x->data + (size_t)p.first * size, p.stride,
                    y->type.rank, y->type.dims, size);
}

/* (dY, shape, starts, ends, axes?, steps?) -> dX: dY at its place, 0 elsewhere. */
ebb_status ebb_move_slice_grad(const ebb_call *c, const ebb_mover *by)
{
    part p;
    const ebb_operand *dy = &c->in[0], *dx = &c->out[0];
    EBB_TRY(read_slice(c, 2, &dx->type, &dy->type, &p));
    if (dx->bytes > 0 && !ebb_type_same_shape(&dx->type, &dy->type))
        EBB_TRY(by->clear(c, dx->data, dx->bytes));
    if (ebb_elements(&dy->type) == 0)
        return NULL;
    int64_t from[EBB_MAX_RANK] = {0};
    const size_t size = ebb_element_bytes(&dy->type);
    ebb_strides(from, dy->type.rank, dy->type.dims);
    return by->copy(c, (char *)dx->data + (size_t)p.first * size, p.stride, dy->data, from,
                    dy->type.rank, dy->type.dims, size);
}

const char *ebb_same_dtype_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any(c));
    return c->in[0].type.dtype != c->out[0].type.dtype ? "operands differ in dtype" : NULL;
}

/* ---- Transpose ---- */

const char *ebb_transpose_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_call_any_bits(c));
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

/* ---- blocks of channels ---- */

enum { BLOCKED = 6 };

/* The dims and the strides of [N, a, b, c, d, e] as it lies in memory, in the order of perm. */
static ebb_status copy_blocks(const ebb_call *c, const ebb_mover *by, const int64_t *dims,
                              const int *perm)
{
    int64_t dense[BLOCKED], out[BLOCKED], to[BLOCKED], from[BLOCKED];
    ebb_strides(dense, BLOCKED, dims);
    for (int d = 0; d < BLOCKED; d++) {
        out[d] = dims[perm[d]];
        from[d] = dense[perm[d]];
    }
    ebb_strides(to, BLOCKED, out);
    return by->copy(c, c->out[0].data, to, c->in[0].data, from, BLOCKED, out,
                    ebb_element_bytes(&c->in[0].type));
}

/* (X) {blocksize, mode = DCR} -> Y: [N, C b b, H, W] -> [N, C, H b, W b]. */
ebb_status ebb_move_depth_to_space(const ebb_call *c, const ebb_mover *by)
{
    const int64_t *n = c->in[0].type.dims, b = ebb_attr_int(&c->attrs, "blocksize", 1);
    const char *mode = ebb_attr_string(&c->attrs, "mode", "DCR");
    const int64_t crd[BLOCKED] = {n[0], n[1] / (b * b), b, b, n[2], n[3]};
    const int64_t dcr[BLOCKED] = {n[0], b, b, n[1] / (b * b), n[2], n[3]};
    const int crd_perm[BLOCKED] = {0, 1, 4, 2, 5, 3}, dcr_perm[BLOCKED] = {0, 3, 4, 1, 5, 2};
    if (strcmp(mode, "CRD") == 0)
        return copy_blocks(c, by, crd, crd_perm);
    if (strcmp(mode, "DCR") == 0)
        return copy_blocks(c, by, dcr, dcr_perm);
    return ebb_call_error(c, "mode '%s' is neither DCR nor CRD", mode);
}

/* (X) {blocksize} -> Y: [N, C, H b, W b] -> [N, b b C, H, W]. */
ebb_status ebb_move_space_to_depth(const ebb_call *c, const ebb_mover *by)
{
    const int64_t *n = c->in[0].type.dims, b = ebb_attr_int(&c->attrs, "blocksize", 1);
    const int64_t dims[BLOCKED] = {n[0], n[1], n[2] / b, b, n[3] / b, b};
    const int perm[BLOCKED] = {0, 3, 5, 1, 2, 4};
    return copy_blocks(c, by, dims, perm);
}

const char *ebb_depth_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_same_dtype_misfit(c));
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

/* ---- repeated ---- */

/* (X, shape) -> Y: X broadcast. */
ebb_status ebb_move_expand(const ebb_call *c, const ebb_mover *by)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t dense[EBB_MAX_RANK] = {0}, to[EBB_MAX_RANK] = {0}, from[EBB_MAX_RANK] = {0};
    ebb_strides(dense, x->rank, x->dims);
    ebb_strides(to, y->rank, y->dims);
    for (int d = 0; d < x->rank; d++)
        from[y->rank - x->rank + d] = x->dims[d] == 1 ? 0 : dense[d];
    return by->copy(c, c->out[0].data, to, c->in[0].data, from, y->rank, y->dims,
                    ebb_element_bytes(x));
}

const char *ebb_expand_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_same_dtype_misfit(c));
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    if (x->rank > y->rank)
        return "the output does not fit the input";
    for (int d = 0; d < x->rank; d++)
        if (x->dims[d] != 1 && x->dims[d] != y->dims[y->rank - x->rank + d])
            return "the output does not fit the input";
    return NULL;
}

/* Dims of (repeat, size) pairs without those of one step. */
typedef struct tiling {
    int rank;
    int64_t dims[2 * EBB_MAX_RANK], to[2 * EBB_MAX_RANK], from[2 * EBB_MAX_RANK];
} tiling;

static void add_dim(tiling *t, int64_t n, int64_t to, int64_t from)
{
    if (n == 1)
        return;
    t->dims[t->rank] = n;
    t->to[t->rank] = to;
    t->from[t->rank] = from;
    t->rank++;
}

static void read_tiling(tiling *t, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t to[EBB_MAX_RANK] = {0}, from[EBB_MAX_RANK] = {0};
    t->rank = 0;
    ebb_strides(to, y->rank, y->dims);
    ebb_strides(from, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) {
        if (x->dims[d] != 0)
            add_dim(t, y->dims[d] / x->dims[d], to[d] * x->dims[d], 0);
        add_dim(t, x->dims[d], to[d], from[d]);
    }
}

/* (X, repeats) -> Y: each dim is one of repeats and one of elements. */
ebb_status ebb_move_tile(const ebb_call *c, const ebb_mover *by)
{
    tiling t;
    if (ebb_elements(&c->out[0].type) == 0)
        return NULL;
    read_tiling(&t, c);
    return by->copy(c, c->out[0].data, t.to, c->in[0].data, t.from, t.rank, t.dims,
                    ebb_element_bytes(&c->in[0].type));
}

const char *ebb_tile_misfit(const ebb_call *c)
{
    EBB_ASK(ebb_same_dtype_misfit(c));
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    if (x->rank != y->rank)
        return "the output does not fit the input";
    for (int d = 0; d < x->rank; d++)
        if (x->dims[d] == 0 ? y->dims[d] != 0 : y->dims[d] % x->dims[d] != 0)
            return "the output does not fit the input";
    return NULL;
}

int ebb_tile_rank(const ebb_call *c)
{
    tiling t;
    read_tiling(&t, c);
    return t.rank;
}

/* ---- Pad ---- */

ebb_pad_mode ebb_pad_mode_of(const ebb_call *c)
{
    static const char names[][9] = {"constant", "reflect", "edge", "wrap"};
    const char *mode = ebb_attr_string(&c->attrs, "mode", "constant");
    for (int i = 0; i < EBB_PAD_UNKNOWN; i++)
        if (strcmp(mode, names[i]) == 0)
            return (ebb_pad_mode)i;
    return EBB_PAD_UNKNOWN;
}

const char *ebb_pad_misfit(const ebb_call *c)
{
    if (c->in[0].type.rank != c->out[0].type.rank)
        return "the output does not fit the input";
    if (ebb_pad_mode_of(c) == EBB_PAD_UNKNOWN)
        return "the mode is none of constant, reflect, edge and wrap";
    return ebb_call_has(c, 2) &&
                   (c->in[2].type.dtype != c->in[0].type.dtype || ebb_elements(&c->in[2].type) != 1)
               ? "the value is not one of the input's dtype"
               : NULL;
}

ebb_status ebb_pads_read(const ebb_call *c, int64_t begin[EBB_MAX_RANK])
{
    int64_t pads[2 * EBB_MAX_RANK], axes[EBB_MAX_RANK];
    uint32_t count, axis_count;
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    EBB_TRY(ebb_call_ints(c, "pads", 1, pads, 2 * EBB_MAX_RANK, &count));
    EBB_TRY(ebb_call_ints(c, NULL, 3, axes, EBB_MAX_RANK, &axis_count));
    uint32_t padded = ebb_call_has(c, 3) ? axis_count : (uint32_t)x->rank;
    if (count != 2 * padded)
        return ebb_call_error(c, "%u pads are given for %u axes", count, padded);
    memset(begin, 0, EBB_MAX_RANK * sizeof *begin);
    int64_t sum[EBB_MAX_RANK] = {0};
    for (uint32_t i = 0; i < padded; i++) {
        int axis;
        EBB_TRY(ebb_call_axis(c, ebb_call_has(c, 3) ? axes[i] : (int64_t)i, x->rank, &axis));
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
