/* move.cu: Transpose, Concat, Split, Slice, Pad, and blocks of channels: each a strided copy. */
#include "kernels/cuda/move.h"
#include "kernels/cuda/small.h"
#include "kernels/place.h"

typedef struct walk_args {
    void *y;
    const void *x;
    int64_t n;
    ebb_cuda_path path;
} walk_args;

/* The path is of the dims around the two that turn. */
typedef struct turn_args {
    void *y;
    const void *x;
    int64_t tiles, tiles_across, tiles_along;
    int64_t across, along, to_across, from_along;
    ebb_cuda_path path;
} turn_args;

typedef enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP, PAD_UNKNOWN } pad_mode;

typedef struct pad_args {
    void *y;
    const void *x, *value; /* value NULL: zero */
    int64_t n;
    int32_t rank, mode;
    int64_t dims[EBB_MAX_RANK], from_dims[EBB_MAX_RANK], stride[EBB_MAX_RANK], begin[EBB_MAX_RANK];
} pad_args;

/* Where coordinate i, outside of 0..n-1, takes its element from. */
EBB_GPU_INLINE int64_t source_of(pad_mode mode, int64_t i, int64_t n)
{
    if (mode == PAD_EDGE || n == 1)
        return i < 0 ? 0 : n - 1;
    int64_t period = mode == PAD_WRAP ? n : 2 * (n - 1);
    i %= period;
    i += i < 0 ? period : 0;
    return i < n ? i : period - i;
}

#define KERNELS "kernels/cuda/move_kernels.inc"
#include "kernels/cuda/all_sizes.inc"

/* ---- copies ---- */

void ebb_cuda_path_make(ebb_cuda_path *p, int rank, const int64_t *dims, const int64_t *to,
                        const int64_t *from)
{
    ebb_cuda_path made;
    memset(&made, 0, sizeof made);
    for (int d = 0; d < rank; d++) {
        int64_t n = dims[d];
        int last = made.rank - 1;
        if (n == 1)
            continue;
        if (last >= 0 && made.to[last] == to[d] * n && made.from[last] == from[d] * n) {
            made.dims[last] *= n;
            made.to[last] = to[d];
            made.from[last] = from[d];
            continue;
        }
        made.dims[made.rank] = n;
        made.to[made.rank] = to[d];
        made.from[made.rank++] = from[d];
    }
    *p = made;
}

static bool lies_at(const void *p, size_t size)
{
    return (uintptr_t)p % size == 0;
}

size_t ebb_cuda_widest(const void *a, const void *b, size_t size, int64_t bytes)
{
    while (size < sizeof(ebb_cuda_wide) && bytes % (int64_t)(2 * size) == 0 &&
           lies_at(a, 2 * size) && lies_at(b, 2 * size))
        size *= 2;
    return size;
}

int ebb_cuda_lanes(int64_t rows, int64_t inner)
{
    int lanes = 0, most = rows < 4096 ? 8 : 5;
    while (lanes < most && (int64_t)1 << lanes < inner)
        lanes++;
    return lanes;
}

/* Pairs of neighbours that go together everywhere become one element; again and again. */
static size_t widen(ebb_cuda_path *p, const void *to, const void *from, size_t size)
{
    int last = p->rank - 1;
    if (last < 0 || p->to[last] != 1 || p->from[last] != 1)
        return size;
    while (size < sizeof(ebb_cuda_wide) && p->dims[last] % 2 == 0 && lies_at(to, 2 * size) &&
           lies_at(from, 2 * size)) {
        for (int d = 0; d < last; d++)
            if (p->to[d] % 2 != 0 || p->from[d] % 2 != 0)
                return size;
        for (int d = 0; d < last; d++) {
            p->to[d] /= 2;
            p->from[d] /= 2;
        }
        p->dims[last] /= 2;
        size *= 2;
    }
    return size;
}

enum { TURNS = 16 }; /* shorter dims than these leave most of a tile empty */

/* The dim along which the input is dense, where the output is so along another; else -1. */
static int turning(const ebb_cuda_path *p)
{
    int last = p->rank - 1;
    if (last < 1 || p->to[last] != 1 || p->from[last] == 1 || p->dims[last] < TURNS)
        return -1;
    for (int d = 0; d < last; d++)
        if (p->from[d] == 1 && p->dims[d] >= TURNS)
            return d;
    return -1;
}

static ebb_status turn(const ebb_call *c, void *to, const void *from, const ebb_cuda_path *p,
                       int across, size_t size)
{
    static const ebb_gpu_kernel turns[] = EBB_CUDA_SIZES(turn);
    int last = p->rank - 1;
    int64_t side = size < 4 ? 64 : 32, outer = 1;
    turn_args a;
    memset(&a, 0, sizeof a);
    a.y = to;
    a.x = from;
    a.across = p->dims[across];
    a.along = p->dims[last];
    a.to_across = p->to[across];
    a.from_along = p->from[last];
    a.tiles_across = (a.across + side - 1) / side;
    a.tiles_along = (a.along + side - 1) / side;
    for (int d = 0; d < last; d++) {
        if (d == across)
            continue;
        outer *= p->dims[d];
        a.path.dims[a.path.rank] = p->dims[d];
        a.path.to[a.path.rank] = p->to[d];
        a.path.from[a.path.rank++] = p->from[d];
    }
    a.tiles = outer * a.tiles_across * a.tiles_along;
    size_t pitch = (size_t)side * size + (size < 4 ? 4 : size);
    return EBB_LAUNCH(c, turns[ebb_cuda_size_row(size)], ebb_cuda_blocks(a.tiles), EBB_CUDA_BLOCK,
                      (uint32_t)((size_t)side * pitch), a);
}

ebb_status ebb_cuda_copy(const ebb_call *c, void *to, const void *from, size_t bytes)
{
    if (to == from || bytes == 0)
        return NULL;
    return ebb_gpu_copy(ebb_cuda_queue_of(c)->stream, to, from, bytes, EBB_ON_DEVICE);
}

ebb_status ebb_cuda_strided(const ebb_call *c, void *to, const int64_t *to_stride, const void *from,
                            const int64_t *from_stride, int rank, const int64_t *dims, size_t size)
{
    static const ebb_gpu_kernel walks[] = EBB_CUDA_SIZES(walk);
    walk_args a = {to, from, 1, {0}};
    for (int d = 0; d < rank; d++)
        a.n *= dims[d];
    if (a.n == 0)
        return NULL;
    ebb_cuda_path_make(&a.path, rank, dims, to_stride, from_stride);
    if (a.path.rank == 0 || (a.path.rank == 1 && a.path.to[0] == 1 && a.path.from[0] == 1))
        return ebb_cuda_copy(c, to, from, (size_t)a.n * size);
    size_t wide = widen(&a.path, to, from, size);
    a.n /= (int64_t)(wide / size);
    ebb_cuda_path_make(&a.path, a.path.rank, a.path.dims, a.path.to, a.path.from);
    int across = turning(&a.path);
    if (across >= 0)
        return turn(c, to, from, &a.path, across, wide);
    return EBB_LAUNCH(c, walks[ebb_cuda_size_row(wide)], ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

/* ---- Transpose ---- */

typedef struct bits_args {
    uint8_t *y;
    const void *x;
    int64_t n; /* elements of `bits` bits, below 8 */
    uint32_t bits;
    ebb_cuda_path path;
} bits_args;

/* A thread a byte; what is beyond the last element is 0. */
EBB_GLOBAL(turn_bits, bits_args)
{
    const int64_t each = 8 / (int64_t)a.bits;
    EBB_GRID_LOOP(b, (a.n + each - 1) / each)
    {
        uint32_t byte = 0;
        for (int64_t i = b * each; i < (b + 1) * each && i < a.n; i++) {
            int64_t to, from;
            ebb_cuda_step_of(&a.path, i, &to, &from);
            byte |= ebb_bits_at(a.x, from, a.bits) << (uint32_t)(i - b * each) * a.bits;
        }
        a.y[b] = (uint8_t)byte;
    }
}

static ebb_status turn_packed(const ebb_call *c, const int64_t *to, const int64_t *from,
                              const int64_t *dims)
{
    const ebb_type *x = &c->in[0].type;
    bits_args a;
    memset(&a, 0, sizeof a);
    a.y = (uint8_t *)c->out[0].data;
    a.x = c->in[0].data;
    a.n = ebb_elements(x);
    a.bits = ebb_dtype_bits((ebb_dtype)x->dtype);
    if (a.n == 0)
        return NULL;
    ebb_cuda_path_make(&a.path, x->rank, dims, to, from);
    if (a.path.rank == 0 || (a.path.rank == 1 && a.path.from[0] == 1))
        return ebb_cuda_copy(c, a.y, a.x, c->out[0].bytes);
    const int64_t each = 8 / (int64_t)a.bits;
    return EBB_LAUNCH(c, turn_bits, ebb_cuda_grid((a.n + each - 1) / each), EBB_CUDA_BLOCK, 0, a);
}

/* (X) {perm} -> Y. */
static ebb_status run_transpose(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    uint32_t count = 0;
    const int64_t *perm = ebb_attr_ints(&c->attrs, "perm", &count);
    int64_t stride[EBB_MAX_RANK] = {0}, to[EBB_MAX_RANK] = {0};
    int64_t from[EBB_MAX_RANK] = {0}, dims[EBB_MAX_RANK] = {0};
    ebb_strides(stride, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) {
        int64_t axis = perm != NULL ? perm[d] : x->rank - 1 - d;
        dims[d] = x->dims[axis];
        from[d] = stride[axis];
    }
    ebb_strides(to, x->rank, dims);
    if (ebb_cuda_size(x) == 0)
        return turn_packed(c, to, from, dims);
    return ebb_cuda_strided(c, c->out[0].data, to, c->in[0].data, from, x->rank, dims,
                            ebb_cuda_size(x));
}

static const char *declines_transpose(const ebb_call *c)
{
    const char *why = ebb_cuda_any_bits(&c->in[0]);
    if (why == NULL)
        why = ebb_cuda_any_bits(&c->out[0]);
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
static ebb_status copy_pieces(const ebb_call *c, void *to, int64_t to_step, const void *from,
                              int64_t from_step, int64_t rows, int64_t width, size_t size)
{
    const int64_t dims[2] = {rows, width}, ts[2] = {to_step, 1}, fs[2] = {from_step, 1};
    return ebb_cuda_strided(c, to, ts, from, fs, 2, dims, size);
}

/* (X...) {axis} -> Y. */
static ebb_status run_concat(const ebb_call *c)
{
    int axis;
    const ebb_operand *y = &c->out[0];
    EBB_TRY(ebb_cuda_axis(c, ebb_attr_int(&c->attrs, "axis", 1), y->type.rank, &axis));
    ebb_cuda_span whole = ebb_cuda_span_of(&y->type, axis);
    size_t size = ebb_cuda_size(&y->type);
    int64_t at = 0, row = whole.n * whole.inner;
    for (uint32_t i = 0; i < c->input_count; i++) {
        int64_t width = c->in[i].type.dims[axis] * whole.inner;
        EBB_TRY(copy_pieces(c, (char *)y->data + (size_t)at * size, row, c->in[i].data, width,
                            whole.outer, width, size));
        at += width;
    }
    return NULL;
}

static const char *declines_concat(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
    if (why != NULL)
        return why;
    const ebb_type *y = &c->out[0].type;
    int64_t axis = ebb_attr_int(&c->attrs, "axis", 1), sum = 0;
    axis += axis < 0 ? y->rank : 0;
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
    EBB_TRY(ebb_cuda_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->type.rank, &axis));
    ebb_cuda_span whole = ebb_cuda_span_of(&x->type, axis);
    size_t size = ebb_cuda_size(&x->type);
    const ebb_tensor *list = ebb_call_has(c, 1) ? c->in[1].constant : NULL;
    uint32_t count = 0;
    const int64_t *sizes = ebb_attr_ints(&c->attrs, "split", &count);
    if (list != NULL && ebb_elements(&list->type) != (int64_t)c->output_count)
        return ebb_call_error(c, "%lld sizes are given for %u outputs",
                              (long long)ebb_elements(&list->type), c->output_count);
    int64_t each = (whole.n + c->output_count - 1) / (int64_t)c->output_count, at = 0;
    for (uint32_t i = 0; i < c->output_count; i++) {
        int64_t left = whole.n - at, n = left < each ? left : each;
        if (list != NULL)
            n = ebb_tensor_int(list, i);
        else if (i < count)
            n = sizes[i];
        if (n < 0 || n > left)
            return ebb_call_error(c, "part %u has %lld of the %lld elements left", i, (long long)n,
                                  (long long)left);
        if (ebb_call_wants(c, i) && c->out[i].type.dims[axis] != n)
            return ebb_call_error(c, "part %u has %lld elements, %lld were planned", i,
                                  (long long)n, (long long)c->out[i].type.dims[axis]);
        if (ebb_call_wants(c, i))
            EBB_TRY(copy_pieces(c, c->out[i].data, n * whole.inner,
                                (const char *)x->data + (size_t)(at * whole.inner) * size,
                                whole.n * whole.inner, whole.outer, n * whole.inner, size));
        at += n;
    }
    return NULL;
}

static const char *declines_split(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
    if (why != NULL)
        return why;
    if (ebb_call_has(c, 1) && c->in[1].type.dtype != EBB_I64 && c->in[1].type.dtype != EBB_I32)
        return "sizes are neither int32 nor int64";
    for (uint32_t i = 0; i < c->output_count; i++)
        if (ebb_call_wants(c, i) && (c->out[i].type.dtype != c->in[0].type.dtype ||
                                     c->out[i].type.rank != c->in[0].type.rank))
            return "outputs do not fit the input";
    return ebb_cuda_constant(c, 1);
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
        EBB_TRY(ebb_cuda_ints(c, NULL, at + k, list[k], EBB_MAX_RANK, &count[k]));
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
        EBB_TRY(ebb_cuda_axis(c, count[2] > 0 ? list[2][i] : (int64_t)i, whole->rank, &axis));
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
static ebb_status run_slice(const ebb_call *c)
{
    part p;
    const ebb_operand *x = &c->in[0], *y = &c->out[0];
    EBB_TRY(read_slice(c, 1, &x->type, &y->type, &p));
    if (ebb_elements(&y->type) == 0)
        return NULL;
    int64_t to[EBB_MAX_RANK] = {0};
    size_t size = ebb_cuda_size(&x->type);
    ebb_strides(to, y->type.rank, y->type.dims);
    return ebb_cuda_strided(c, y->data, to, (const char *)x->data + (size_t)p.first * size,
                            p.stride, y->type.rank, y->type.dims, size);
}

/* (dY, shape, starts, ends, axes?, steps?) -> dX: dY at its place, 0 elsewhere. */
static ebb_status run_slice_grad(const ebb_call *c)
{
    part p;
    const ebb_operand *dy = &c->in[0], *dx = &c->out[0];
    EBB_TRY(read_slice(c, 2, &dx->type, &dy->type, &p));
    if (dx->bytes > 0 && !ebb_type_same_shape(&dx->type, &dy->type))
        EBB_TRY(ebb_gpu_clear(ebb_cuda_queue_of(c)->stream, dx->data, dx->bytes));
    if (ebb_elements(&dy->type) == 0)
        return NULL;
    int64_t from[EBB_MAX_RANK] = {0};
    size_t size = ebb_cuda_size(&dy->type);
    ebb_strides(from, dy->type.rank, dy->type.dims);
    return ebb_cuda_strided(c, (char *)dx->data + (size_t)p.first * size, p.stride, dy->data, from,
                            dy->type.rank, dy->type.dims, size);
}

/* Output 0 has input 0's dtype. */
static const char *declines_same(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
    if (why != NULL)
        return why;
    return c->in[0].type.dtype != c->out[0].type.dtype ? "operands differ in dtype" : NULL;
}

static const char *declines_slice(const ebb_call *c)
{
    const char *why = declines_same(c);
    uint32_t first = c->op == EBB_OP_SLICE_GRAD ? 2 : 1;
    for (uint32_t i = first; why == NULL && i < first + 4; i++)
        why = ebb_cuda_constant(c, i);
    return why;
}

/* ---- Pad ---- */

static pad_mode mode_of(const ebb_call *c)
{
    static const char *const names[] = {"constant", "reflect", "edge", "wrap"};
    const char *mode = ebb_attr_string(&c->attrs, "mode", "constant");
    for (int i = 0; i < PAD_UNKNOWN; i++)
        if (strcmp(mode, names[i]) == 0)
            return (pad_mode)i;
    return PAD_UNKNOWN;
}

static ebb_status read_pads(const ebb_call *c, int64_t *begin)
{
    int64_t pads[2 * EBB_MAX_RANK], axes[EBB_MAX_RANK], sum[EBB_MAX_RANK] = {0};
    uint32_t count, axis_count;
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    EBB_TRY(ebb_cuda_ints(c, "pads", 1, pads, 2 * EBB_MAX_RANK, &count));
    EBB_TRY(ebb_cuda_ints(c, NULL, 3, axes, EBB_MAX_RANK, &axis_count));
    uint32_t padded = ebb_call_has(c, 3) ? axis_count : (uint32_t)x->rank;
    if (count != 2 * padded)
        return ebb_call_error(c, "%u pads are given for %u axes", count, padded);
    memset(begin, 0, EBB_MAX_RANK * sizeof *begin);
    for (uint32_t i = 0; i < padded; i++) {
        int axis;
        EBB_TRY(ebb_cuda_axis(c, ebb_call_has(c, 3) ? axes[i] : (int64_t)i, x->rank, &axis));
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

/* Dims of the padding, those that are not padded merged with the one around them: as a wider
 * element of it where pads are constant, else where that one is not padded either. */
static void merge_pads(pad_args *a, const ebb_type *x, const ebb_type *y, const int64_t *begin)
{
    int64_t stride[EBB_MAX_RANK] = {0};
    ebb_strides(stride, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) {
        int last = a->rank - 1;
        bool whole = begin[d] == 0 && x->dims[d] == y->dims[d];
        bool fits = last >= 0 && whole &&
                    (a->mode == PAD_CONSTANT ||
                     (a->begin[last] == 0 && a->from_dims[last] == a->dims[last]));
        if (fits && !__builtin_mul_overflow(a->begin[last], x->dims[d], &a->begin[last])) {
            a->from_dims[last] *= x->dims[d];
            a->dims[last] *= x->dims[d];
            a->stride[last] = stride[d];
            continue;
        }
        last = a->rank++;
        a->begin[last] = begin[d];
        a->from_dims[last] = x->dims[d];
        a->dims[last] = y->dims[d];
        a->stride[last] = stride[d];
    }
}

/* (X, pads, value?, axes?) {mode} -> Y. */
static ebb_status run_pad(const ebb_call *c)
{
    static const ebb_gpu_kernel pads[] = EBB_CUDA_SIZES(pad);
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t begin[EBB_MAX_RANK];
    EBB_TRY(read_pads(c, begin));
    pad_args a;
    memset(&a, 0, sizeof a);
    a.n = ebb_elements(y);
    if (a.n == 0)
        return NULL;
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.value = ebb_call_has(c, 2) ? c->in[2].data : NULL;
    a.mode = (int32_t)mode_of(c);
    if (a.mode != PAD_CONSTANT && ebb_elements(x) == 0)
        return ebb_call_error(c, "there is nothing to pad with: the input is empty");
    merge_pads(&a, x, y, begin);
    return EBB_LAUNCH(c, pads[ebb_cuda_size_row(ebb_cuda_size(x))], ebb_cuda_grid(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

static const char *declines_pad(const ebb_call *c)
{
    const char *why = declines_same(c);
    if (why != NULL)
        return why;
    if (c->in[0].type.rank != c->out[0].type.rank)
        return "the output does not fit the input";
    if (mode_of(c) == PAD_UNKNOWN)
        return "the mode is none of constant, reflect, edge and wrap";
    if (ebb_call_has(c, 2) &&
        (c->in[2].type.dtype != c->in[0].type.dtype || ebb_elements(&c->in[2].type) != 1))
        return "the value is not one of the input's dtype";
    why = ebb_cuda_constant(c, 1);
    return why != NULL ? why : ebb_cuda_constant(c, 3);
}

/* ---- blocks of channels ---- */

/* The dims and the strides of [N, a, b, c, d, e] as it lies in memory, in the order of perm. */
static ebb_status copy_blocks(const ebb_call *c, const int64_t *dims, const int *perm)
{
    int64_t dense[6], out[6], to[6], from[6];
    ebb_strides(dense, 6, dims);
    for (int d = 0; d < 6; d++) {
        out[d] = dims[perm[d]];
        from[d] = dense[perm[d]];
    }
    ebb_strides(to, 6, out);
    return ebb_cuda_strided(c, c->out[0].data, to, c->in[0].data, from, 6, out,
                            ebb_cuda_size(&c->in[0].type));
}

/* (X) {blocksize, mode = DCR} -> Y: [N, C b b, H, W] -> [N, C, H b, W b]. */
static ebb_status run_depth_to_space(const ebb_call *c)
{
    const int64_t *n = c->in[0].type.dims, b = ebb_attr_int(&c->attrs, "blocksize", 1);
    const char *mode = ebb_attr_string(&c->attrs, "mode", "DCR");
    const int64_t crd[6] = {n[0], n[1] / (b * b), b, b, n[2], n[3]};
    const int64_t dcr[6] = {n[0], b, b, n[1] / (b * b), n[2], n[3]};
    const int crd_perm[6] = {0, 1, 4, 2, 5, 3}, dcr_perm[6] = {0, 3, 4, 1, 5, 2};
    if (strcmp(mode, "CRD") == 0)
        return copy_blocks(c, crd, crd_perm);
    if (strcmp(mode, "DCR") == 0)
        return copy_blocks(c, dcr, dcr_perm);
    return ebb_call_error(c, "mode '%s' is neither DCR nor CRD", mode);
}

/* (X) {blocksize} -> Y: [N, C, H b, W b] -> [N, b b C, H, W]. */
static ebb_status run_space_to_depth(const ebb_call *c)
{
    const int64_t *n = c->in[0].type.dims, b = ebb_attr_int(&c->attrs, "blocksize", 1);
    const int64_t dims[6] = {n[0], n[1], n[2] / b, b, n[3] / b, b};
    const int perm[6] = {0, 3, 5, 1, 2, 4};
    return copy_blocks(c, dims, perm);
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

/* ---- CenterCropPad ---- */

static ebb_status run_center(const ebb_call *c)
{
    const size_t size = ebb_cuda_size(&c->in[0].type);
    ebb_middle m;
    ebb_middle_read(&m, c);
    if (!m.fills && c->out[0].bytes > 0)
        EBB_TRY(ebb_gpu_clear(ebb_cuda_queue_of(c)->stream, c->out[0].data, c->out[0].bytes));
    return ebb_cuda_strided(c, (char *)c->out[0].data + (size_t)m.skip_to * size, m.to,
                            (const char *)c->in[0].data + (size_t)m.skip_from * size, m.from,
                            m.rank, m.dims, size);
}

static const char *declines_center(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
    return why != NULL ? why : ebb_middle_misfit(c);
}

// clang-format off
const ebb_kernel ebb_cuda_move[] = {
    {"cuda.transpose",      EBB_OP_TRANSPOSE,      declines_transpose, NULL, NULL, run_transpose,      NULL},
    {"cuda.concat",         EBB_OP_CONCAT,         declines_concat,    NULL, NULL, run_concat,         NULL},
    {"cuda.split",          EBB_OP_SPLIT,          declines_split,     NULL, NULL, run_split,          NULL},
    {"cuda.slice",          EBB_OP_SLICE,          declines_slice,     NULL, NULL, run_slice,          NULL},
    {"cuda.slice_grad",     EBB_OP_SLICE_GRAD,     declines_slice,     NULL, NULL, run_slice_grad,     NULL},
    {"cuda.pad",            EBB_OP_PAD,            declines_pad,       NULL, NULL, run_pad,            NULL},
    {"cuda.center_crop_pad", EBB_OP_CENTER_CROP_PAD, declines_center,   NULL, NULL, run_center,         NULL},
    {"cuda.depth_to_space", EBB_OP_DEPTH_TO_SPACE, declines_blocks,    NULL, NULL, run_depth_to_space, NULL},
    {"cuda.space_to_depth", EBB_OP_SPACE_TO_DEPTH, declines_blocks,    NULL, NULL, run_space_to_depth, NULL},
};
// clang-format on
EBB_CUDA_COUNT(move)
