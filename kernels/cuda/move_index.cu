/* move_index.cu: Gather and kin, OneHot, NonZero, Compress, ReverseSequence, TensorScatter.
 *
 * Indices are checked by the thread that would read there; negative ones count from the end of
 * their axis.
 */
#include "kernels/cuda/floats.h"
#include "kernels/cuda/move.h"
#include "kernels/cuda/order.h"
#include "kernels/call/misfit.h"
#include "kernels/call/move/move_index.h"

typedef struct rows_args {
    void *y;
    const void *x;
    ebb_cuda_indices index;
    int64_t rows, count, table, inner; /* rows of y in all; a table of x; rows of x in a table */
    int32_t lanes, depth, shared;      /* shared: all tables have the same indices */
    int64_t dims[EBB_MAX_RANK];        /* of the coordinates */
} rows_args;

typedef struct elements_args {
    void *y;
    const void *x;
    ebb_cuda_indices index;
    int64_t count, n, stride; /* of the axis */
    ebb_cuda_path path;       /* from: into x, but for the axis */
} elements_args;

typedef struct one_hot_args {
    void *y;
    const void *index, *values;
    int64_t count, n, inner;
    int32_t dtype;
} one_hot_args;

typedef struct reverse_args {
    void *y;
    const void *x;
    ebb_cuda_indices length;
    int64_t first, second, inner; /* dims; the rest of a row */
    int32_t lanes, batch_first;
} reverse_args;

typedef struct write_args {
    void *y;
    const void *update;
    ebb_cuda_indices first;      /* data NULL: 0 */
    int64_t rows, more, n, each; /* rows written; in a block of so many; of n; blocks a batch */
    int64_t inner;
    int32_t lanes, circular;
} write_args;

/* Class i of a tensor of numbers, counted from the front of n; -1 where it is outside. */
EBB_GPU_INLINE int64_t class_at(const void *p, int32_t dtype, int64_t i, int64_t n)
{
    double v;
    int64_t at;
    switch (dtype) {
    case EBB_I64:
        at = ((const int64_t *)p)[i];
        return at < -n || at >= n ? -1 : at < 0 ? at + n : at;
    case EBB_I32:
        v = (double)((const int32_t *)p)[i];
        break;
    case EBB_I16:
        v = (double)((const int16_t *)p)[i];
        break;
    case EBB_I8:
        v = (double)((const int8_t *)p)[i];
        break;
    case EBB_U64:
        v = (double)((const uint64_t *)p)[i];
        break;
    case EBB_U32:
        v = (double)((const uint32_t *)p)[i];
        break;
    case EBB_U16:
        v = (double)((const uint16_t *)p)[i];
        break;
    case EBB_U8:
        v = (double)((const uint8_t *)p)[i];
        break;
    case EBB_F64:
        v = ((const double *)p)[i];
        break;
    case EBB_F16:
        v = (double)ebb_from_f16(((const ebb_f16 *)p)[i]);
        break;
    case EBB_BF16:
        v = (double)ebb_from_bf16(((const ebb_bf16 *)p)[i]);
        break;
    default:
        v = (double)((const float *)p)[i];
        break;
    }
    if (!(v >= (double)-n && v < (double)n))
        return -1;
    at = (int64_t)v;
    return at < 0 ? at + n : at;
}

#define KERNELS "kernels/cuda/move_index_kernels.inc"
#include "kernels/cuda/all_sizes.inc"

/* ---- Gather ---- */

/* Rows of a.inner elements of `size` bytes, as wide as they can be moved. */
static ebb_status launch_rows(const ebb_call *c, rows_args *a, size_t size)
{
    static const ebb_gpu_kernel kernels[] = EBB_CUDA_SIZES(take_rows);
    int64_t bytes = a->inner * (int64_t)size;
    if (a->rows == 0 || bytes == 0)
        return NULL;
    size_t wide = ebb_cuda_widest(a->y, a->x, size, bytes);
    a->inner = bytes / (int64_t)wide;
    a->lanes = ebb_cuda_lanes(a->rows, a->inner);
    return EBB_LAUNCH(c, kernels[ebb_cuda_size_row(wide)], ebb_cuda_grid(a->rows << a->lanes),
                      EBB_CUDA_BLOCK, 0, *a);
}

ebb_status ebb_cuda_take(const ebb_call *c, void *y, const void *x, const ebb_span *s,
                         const ebb_cuda_indices *index, int64_t count, size_t size)
{
    rows_args a;
    memset(&a, 0, sizeof a);
    a.y = y;
    a.x = x;
    a.index = *index;
    a.count = count;
    a.rows = s->outer * count;
    a.table = a.dims[0] = s->n;
    a.inner = s->inner;
    a.depth = a.shared = 1;
    return launch_rows(c, &a, size);
}

/* (data, indices) {axis} -> Y: data [outer, n, inner], Y [outer, count, inner]. */
static ebb_status run_gather(const ebb_call *c)
{
    const ebb_operand *data = &c->in[0];
    int axis;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), data->type.rank, &axis));
    const ebb_span s = ebb_span_of(&data->type, axis);
    const ebb_cuda_indices index = ebb_cuda_indices_of(c, 1);
    return ebb_cuda_take(c, c->out[0].data, data->data, &s, &index, ebb_elements(&c->in[1].type),
                         ebb_element_bytes(&data->type));
}

/* (data, indices) {axis} -> Y: Y[.., i, ..] = data[.., indices[.., i, ..], ..]. */
static ebb_status run_gather_elements(const ebb_call *c)
{
    static const ebb_gpu_kernel kernels[] = EBB_CUDA_SIZES(take_elements);
    const ebb_type *data = &c->in[0].type, *t = &c->in[1].type;
    int64_t to[EBB_MAX_RANK] = {0}, from[EBB_MAX_RANK] = {0};
    int axis;
    elements_args a;
    memset(&a, 0, sizeof a);
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), data->rank, &axis));
    a.count = ebb_elements(t);
    if (a.count == 0)
        return NULL;
    ebb_strides(to, t->rank, t->dims);
    ebb_strides(from, data->rank, data->dims);
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.index = ebb_cuda_indices_of(c, 1);
    a.n = data->dims[axis];
    a.stride = from[axis];
    from[axis] = 0;
    ebb_cuda_path_make(&a.path, t->rank, t->dims, to, from);
    return EBB_LAUNCH(c, kernels[ebb_cuda_size_row(ebb_element_bytes(data))],
                      ebb_cuda_grid(a.count), EBB_CUDA_BLOCK, 0, a);
}

/* (data, indices) {batch_dims} -> Y: data [batch, n..., inner], indices [batch, count, depth]. */
static ebb_status run_gather_nd(const ebb_call *c)
{
    const ebb_type *data = &c->in[0].type, *t = &c->in[1].type;
    int batched = (int)ebb_attr_int(&c->attrs, "batch_dims", 0);
    rows_args a;
    memset(&a, 0, sizeof a);
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.index = ebb_cuda_indices_of(c, 1);
    a.depth = (int32_t)t->dims[t->rank - 1];
    a.rows = a.count = a.table = a.inner = 1;
    for (int d = 0; d < t->rank - 1; d++) {
        a.rows *= t->dims[d];
        a.count *= d < batched ? 1 : t->dims[d];
    }
    for (int d = batched; d < data->rank; d++) {
        if (d < batched + a.depth)
            a.dims[d - batched] = data->dims[d];
        *(d < batched + a.depth ? &a.table : &a.inner) *= data->dims[d];
    }
    return launch_rows(c, &a, ebb_element_bytes(data));
}

/* ---- OneHot ---- */

/* (indices, depth, values [off, on]) {axis = -1} -> Y. What is outside of the depth is all off. */
static ebb_status run_one_hot(const ebb_call *c)
{
    static const ebb_gpu_kernel kernels[] = EBB_CUDA_SIZES(one_hot);
    const ebb_type *out = &c->out[0].type;
    int axis;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", -1), out->rank, &axis));
    ebb_span s = ebb_span_of(out, axis);
    one_hot_args a = {c->out[0].data,          c->in[0].data, c->in[2].data,
                      s.outer * s.n * s.inner, s.n,           s.inner,
                      c->in[0].type.dtype};
    return EBB_LAUNCH(c, kernels[ebb_cuda_size_row(ebb_element_bytes(out))], ebb_cuda_grid(a.count),
                      EBB_CUDA_BLOCK, 0, a);
}

/* ---- NonZero ---- */

enum { CHUNK = 8 * EBB_CUDA_BLOCK };

typedef struct non_zero_args {
    int64_t *y;
    const uint8_t *x;
    uint32_t *counts; /* of each chunk; then of those before it; the last: of all */
    ebb_cuda_step *step;
    int64_t n, chunks, columns;
    uint32_t position;
    int32_t size, is_float, rank;
    int64_t dims[EBB_MAX_RANK];
} non_zero_args;

EBB_GPU_INLINE bool is_set(const uint8_t *element, int32_t size, bool is_float)
{
    uint32_t bits = 0;
    for (int32_t b = 0; b < size; b++) // -0 is zero: the sign bit is in the last byte
        bits |= is_float && b == size - 1 ? element[b] & 0x7Fu : element[b];
    return bits != 0;
}

EBB_GLOBAL(count_set, non_zero_args)
{
    EBB_SHARED(uint32_t, shared);
    for (int64_t chunk = EBB_BLOCK; chunk < a.chunks; chunk += EBB_BLOCKS) {
        int64_t end = (chunk + 1) * CHUNK < a.n ? (chunk + 1) * CHUNK : a.n;
        uint32_t mine = 0, all;
        for (int64_t i = chunk * CHUNK + EBB_THREAD; i < end; i += EBB_THREADS)
            mine += is_set(a.x + i * a.size, a.size, a.is_float != 0);
        (void)ebb_block_before(mine, shared, &all);
        if (EBB_THREAD == 0)
            a.counts[chunk] = all;
    }
}

EBB_GLOBAL(list_set, non_zero_args)
{
    EBB_SHARED(uint32_t, shared);
    if (EBB_BLOCK == 0 && EBB_THREAD == 0)
        (void)ebb_cuda_inside(a.step, a.position, a.counts[a.chunks], a.columns, a.columns + 1);
    for (int64_t chunk = EBB_BLOCK; chunk < a.chunks; chunk += EBB_BLOCKS) {
        int64_t found = a.counts[chunk];
        for (int64_t first = chunk * CHUNK; first < (chunk + 1) * CHUNK; first += EBB_THREADS) {
            int64_t i = first + EBB_THREAD, rest = i;
            uint32_t all, set = i < a.n && is_set(a.x + i * a.size, a.size, a.is_float != 0);
            int64_t at = found + ebb_block_before(set, shared, &all);
            found += all;
            if (!set || at >= a.columns)
                continue;
            for (int d = a.rank - 1; d >= 0; d--) {
                int64_t next = ebb_cuda_quotient(rest, a.dims[d]);
                a.y[d * a.columns + at] = rest - next * a.dims[d];
                rest = next;
            }
        }
    }
}

static int64_t chunks_of(int64_t n)
{
    return (n + CHUNK - 1) / CHUNK;
}

/* The places of a.n elements, as columns of a.y. A count that was not planned is told as a fault.
 */
static ebb_status list_places(const ebb_call *c, non_zero_args *a, uint32_t *counts)
{
    const uint32_t shared = EBB_WARP * sizeof(uint32_t);
    a->counts = counts;
    a->step = ebb_cuda_queue_of(c)->step;
    a->position = c->position;
    a->chunks = chunks_of(a->n);
    EBB_TRY(EBB_LAUNCH(c, count_set, ebb_cuda_blocks(a->chunks), EBB_CUDA_BLOCK, shared, *a));
    EBB_TRY(ebb_cuda_sum_before(c, a->counts, a->chunks));
    return EBB_LAUNCH(c, list_set, ebb_cuda_blocks(a->chunks > 0 ? a->chunks : 1), EBB_CUDA_BLOCK,
                      shared, *a);
}

static ebb_status non_zero_workspace(const ebb_call *c, size_t *bytes)
{
    *bytes = ((size_t)chunks_of(ebb_elements(&c->in[0].type)) + 1) * sizeof(uint32_t);
    return NULL;
}

/* (X) -> int64[rank, count]: the places of what is not 0, one column each, in row-major order. */
static ebb_status run_non_zero(const ebb_call *c)
{
    const ebb_type *t = &c->in[0].type;
    non_zero_args a;
    memset(&a, 0, sizeof a);
    a.y = (int64_t *)c->out[0].data;
    a.x = (const uint8_t *)c->in[0].data;
    a.n = ebb_elements(t);
    a.columns = c->out[0].type.dims[1];
    a.size = (int32_t)ebb_element_bytes(t);
    a.is_float = ebb_dtype_is_float((ebb_dtype)t->dtype);
    a.rank = t->rank;
    for (int d = 0; d < t->rank; d++)
        a.dims[d] = t->dims[d];
    return list_places(c, &a, (uint32_t *)c->workspace);
}

/* ---- Compress ---- */

typedef struct compress {
    ebb_span s;         /* of X: n slices; the whole of it flat where there is no axis */
    int64_t n, columns; /* flags that count; slices of Y */
    size_t list_bytes;
} compress;

static ebb_status read_compress(const ebb_call *c, compress *v)
{
    const ebb_type *x = &c->in[0].type;
    const int64_t given = ebb_elements(&c->in[1].type);
    int axis = 0;
    memset(v, 0, sizeof *v);
    v->s.outer = v->s.inner = 1;
    v->s.n = ebb_elements(x);
    if (ebb_attr_find(&c->attrs, "axis") != NULL) {
        EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), x->rank, &axis));
        v->s = ebb_span_of(x, axis);
    }
    const int64_t slice = v->s.outer * v->s.inner;
    v->n = given < v->s.n ? given : v->s.n;
    v->columns = slice > 0 ? ebb_elements(&c->out[0].type) / slice : 0;
    return ebb_size_mul(&v->list_bytes, (size_t)v->columns, sizeof(int64_t))
               ? NULL
               : ebb_call_error(c, "it is too large");
}

static ebb_status compress_workspace(const ebb_call *c, size_t *bytes)
{
    compress v;
    EBB_TRY(read_compress(c, &v));
    return ebb_size_add(bytes, v.list_bytes, ((size_t)chunks_of(v.n) + 1) * sizeof(uint32_t))
               ? NULL
               : ebb_call_error(c, "it is too large");
}

/* (X, condition) {axis?} -> Y: the slices whose flag is set, listed and then gathered. */
static ebb_status run_compress(const ebb_call *c)
{
    compress v;
    non_zero_args a;
    memset(&a, 0, sizeof a);
    EBB_TRY(read_compress(c, &v));
    if (v.s.outer * v.s.inner == 0)
        return NULL;
    a.y = (int64_t *)c->workspace;
    a.x = (const uint8_t *)c->in[1].data;
    a.n = a.dims[0] = v.n;
    a.columns = v.columns;
    a.size = a.rank = 1;
    if (v.columns > 0) // a list that is too short must not lead anywhere
        EBB_TRY(ebb_gpu_clear(ebb_cuda_queue_of(c)->stream, a.y, v.list_bytes));
    EBB_TRY(list_places(c, &a, (uint32_t *)(void *)((char *)c->workspace + v.list_bytes)));
    const ebb_cuda_indices list = {c->workspace, 1, c->position, ebb_cuda_queue_of(c)->step};
    return ebb_cuda_take(c, c->out[0].data, c->in[0].data, &v.s, &list, v.columns,
                         ebb_element_bytes(&c->in[0].type));
}

static const char *declines_non_zero(const ebb_call *c)
{
    EBB_ASK(ebb_non_zero_misfit(c));
    return ebb_elements(&c->in[0].type) > 0x7FFFFFFF ? "more than 2^31 elements" : NULL;
}

static const char *misfit_compress(const ebb_call *c)
{
    if (c->in[1].type.dtype != EBB_BOOL)
        return "the condition is not bool";
    return ebb_elements(&c->in[1].type) > 0x7FFFFFFF ? "more than 2^31 flags" : NULL;
}

/* ---- ReverseSequence ---- */

/* (X, lengths) {batch_axis = 1, time_axis = 0} -> Y: the first `length` of each sequence turned. */
static ebb_status run_reverse(const ebb_call *c)
{
    static const ebb_gpu_kernel kernels[] = EBB_CUDA_SIZES(reverse_rows);
    const ebb_type *t = &c->in[0].type;
    const size_t size = ebb_element_bytes(t);
    const int64_t rows = t->dims[0] * t->dims[1], all = ebb_elements(t);
    reverse_args a;
    memset(&a, 0, sizeof a);
    if (all == 0)
        return NULL;
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.length = ebb_cuda_indices_of(c, 1);
    a.first = t->dims[0];
    a.second = t->dims[1];
    a.batch_first = ebb_attr_int(&c->attrs, "batch_axis", 1) == 0;
    const int64_t bytes = all / rows * (int64_t)size;
    const size_t wide = ebb_cuda_widest(a.y, a.x, size, bytes);
    a.inner = bytes / (int64_t)wide;
    a.lanes = ebb_cuda_lanes(rows, a.inner);
    return EBB_LAUNCH(c, kernels[ebb_cuda_size_row(wide)], ebb_cuda_grid(rows << a.lanes),
                      EBB_CUDA_BLOCK, 0, a);
}

/* ---- TensorScatter ---- */

/* (cache, update, write indices?) {axis = -2, mode} -> Y: the cache with rows written into each of
 * its batch, from where the index says. Y may be the cache. */
static ebb_status run_tensor_scatter(const ebb_call *c)
{
    static const ebb_gpu_kernel kernels[] = EBB_CUDA_SIZES(write_rows);
    const ebb_type *x = &c->in[0].type;
    const size_t size = ebb_element_bytes(x);
    int axis = 0;
    write_args a;
    memset(&a, 0, sizeof a);
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", -2), x->rank, &axis));
    const ebb_span s = ebb_span_of(x, axis);
    EBB_TRY(ebb_cuda_copy(c, c->out[0].data, c->in[0].data, c->out[0].bytes));
    a.y = c->out[0].data;
    a.update = c->in[1].data;
    a.more = c->in[1].type.dims[axis];
    a.rows = s.outer * a.more;
    const int64_t bytes = s.inner * (int64_t)size;
    if (a.rows == 0 || bytes == 0)
        return NULL;
    if (ebb_call_has(c, 2))
        a.first = ebb_cuda_indices_of(c, 2);
    a.n = s.n;
    a.each = s.outer / x->dims[0];
    a.circular = strcmp(ebb_attr_string(&c->attrs, "mode", "linear"), "circular") == 0;
    const size_t wide = ebb_cuda_widest(a.y, a.update, size, bytes);
    a.inner = bytes / (int64_t)wide;
    a.lanes = ebb_cuda_lanes(a.rows, a.inner);
    return EBB_LAUNCH(c, kernels[ebb_cuda_size_row(wide)], ebb_cuda_grid(a.rows << a.lanes),
                      EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_move_index[] = {
    {.name = "cuda.gather",           .op = EBB_OP_GATHER,           .fits = ebb_gather_misfit, .run = run_gather},
    {.name = "cuda.gather_elements",  .op = EBB_OP_GATHER_ELEMENTS,  .fits = ebb_gather_elements_misfit, .run = run_gather_elements},
    {.name = "cuda.gather_nd",        .op = EBB_OP_GATHER_ND,        .fits = ebb_gather_nd_misfit, .run = run_gather_nd},
    {.name = "cuda.one_hot",          .op = EBB_OP_ONE_HOT,          .fits = ebb_one_hot_misfit, .run = run_one_hot},
    {.name = "cuda.non_zero",         .op = EBB_OP_NON_ZERO,         .fits = declines_non_zero, .workspace = non_zero_workspace, .run = run_non_zero},
    {.name = "cuda.compress",         .op = EBB_OP_COMPRESS,         .dtypes = ebb_call_any, .fits = misfit_compress, .workspace = compress_workspace, .run = run_compress},
    {.name = "cuda.reverse_sequence", .op = EBB_OP_REVERSE_SEQUENCE, .dtypes = ebb_call_any, .fits = ebb_reverse_sequence_misfit, .run = run_reverse},
    {.name = "cuda.tensor_scatter",   .op = EBB_OP_TENSOR_SCATTER,   .fits = ebb_tensor_scatter_misfit, .run = run_tensor_scatter},
};
// clang-format on
EBB_CUDA_COUNT(move_index)
