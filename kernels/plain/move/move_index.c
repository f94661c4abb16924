/* move_index.c: Gather and kin, OneHot, NonZero, TopK.
 *
 * Indices are checked before anything is written; negative ones count from the end of their axis.
 */
#include "kernels/call/move/move_index.h"
#include "kernels/plain/indices.h"

#include <string.h>

/* ---- rows by index ---- */

#define TAKE(T)                             \
    {                                       \
        const T *x = from;                  \
        T *y = to;                          \
        for (int64_t i = 0; i < count; i++) \
            y[i] = x[at[i]];                \
        break;                              \
    }

/* to[i] = from[at[i]], elements of `size` bytes. */
static void take(void *to, const void *from, const int64_t *at, int64_t count, size_t size)
{
    switch (size) {
    case 1:
        TAKE(uint8_t)
    case 2:
        TAKE(uint16_t)
    case 4:
        TAKE(uint32_t)
    case 8:
        TAKE(uint64_t)
    default:
        for (int64_t i = 0; i < count; i++)
            memcpy((char *)to + (size_t)i * size, (const char *)from + (size_t)at[i] * size, size);
    }
}

enum { LIST = 256 };

/* (data, indices) {axis} -> Y: data [outer, n, inner], Y [outer, count, inner]. */
static ebb_status run_gather(const ebb_call *c)
{
    const ebb_operand *data = &c->in[0], *index = &c->in[1];
    int axis;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), data->type.rank, &axis));
    EBB_TRY(ebb_indices_check_axis(c, index, data->type.dims[axis]));
    ebb_span s = ebb_span_of(&data->type, axis);
    int64_t count = ebb_elements(&index->type);
    size_t size = ebb_element_bytes(&data->type), bytes = (size_t)s.inner * size;
    const char *x = data->data;
    char *y = c->out[0].data;
    if (bytes == 0 || count == 0)
        return NULL;
    if (s.inner > 1) {
        EBB_PARALLEL_FOR(s.outer * count * s.inner)
        for (int64_t job = 0; job < s.outer * count; job++) {
            int64_t row = job / count * s.n + ebb_index_at(index, job % count, s.n);
            memcpy(y + (size_t)job * bytes, x + (size_t)row * bytes, bytes);
        }
        return NULL;
    }
    int64_t lists = (count + LIST - 1) / LIST;
    EBB_PARALLEL_FOR(s.outer * count)
    for (int64_t job = 0; job < s.outer * lists; job++) {
        int64_t at[LIST], outer = job / lists, first = job % lists * LIST;
        int64_t used = count - first < LIST ? count - first : LIST;
        for (int64_t i = 0; i < used; i++)
            at[i] = ebb_index_at(index, first + i, s.n);
        take(y + (size_t)(outer * count + first) * size, x + (size_t)(outer * s.n) * size, at, used,
             size);
    }
    return NULL;
}

/* ---- elements by index ---- */

/* (data, indices) {axis} -> Y: Y[.., i, ..] = data[.., indices[.., i, ..], ..]. */
static ebb_status run_gather_elements(const ebb_call *c)
{
    const ebb_operand *data = &c->in[0], *index = &c->in[1];
    const ebb_type *t = &index->type;
    int axis;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", 0), data->type.rank, &axis));
    int64_t n = data->type.dims[axis], stride[EBB_MAX_RANK] = {0};
    EBB_TRY(ebb_indices_check_axis(c, index, n));
    ebb_strides(stride, data->type.rank, data->type.dims);
    size_t size = ebb_element_bytes(&data->type);
    int64_t total = ebb_elements(t);
    char *y = c->out[0].data;
    EBB_PARALLEL_FOR(total * 4)
    for (int64_t first = 0; first < total; first += LIST) {
        int64_t at[LIST], place[EBB_MAX_RANK], rest = first;
        int64_t used = total - first < LIST ? total - first : LIST;
        for (int d = t->rank - 1; d >= 0; d--) {
            place[d] = rest % t->dims[d];
            rest /= t->dims[d];
        }
        for (int64_t i = 0; i < used; i++) {
            at[i] = ebb_index_at(index, first + i, n) * stride[axis];
            for (int d = 0; d < t->rank; d++)
                at[i] += d == axis ? 0 : place[d] * stride[d];
            for (int d = t->rank - 1; d >= 0 && ++place[d] == t->dims[d]; d--)
                place[d] = 0;
        }
        take(y + (size_t)first * size, data->data, at, used, size);
    }
    return NULL;
}

/* ---- GatherND ---- */

/* (data, indices) {batch_dims} -> Y: data [batch, n..., inner], indices [batch, count, depth]. */
static ebb_status run_gather_nd(const ebb_call *c)
{
    const ebb_operand *index = &c->in[1];
    const ebb_type *data = &c->in[0].type, *t = &index->type;
    int shared = (int)ebb_attr_int(&c->attrs, "batch_dims", 0);
    int depth = (int)t->dims[t->rank - 1];
    int64_t batch = 1, count = 1, table = 1, inner = 1;
    for (int d = 0; d < t->rank - 1; d++)
        *(d < shared ? &batch : &count) *= t->dims[d];
    for (int d = shared; d < data->rank; d++)
        *(d < shared + depth ? &table : &inner) *= data->dims[d];
    const int64_t *dims = data->dims + shared;
    for (int64_t i = 0; i < batch * count; i++)
        for (int k = 0; k < depth; k++) {
            int64_t x = ebb_plain_int(index, i * depth + k);
            if (x < -dims[k] || x >= dims[k])
                return ebb_call_error(
                    c, "coordinate %d of index %lld is %lld, outside of an axis of length %lld", k,
                    (long long)i, (long long)x, (long long)dims[k]);
        }
    size_t bytes = (size_t)inner * ebb_element_bytes(data);
    const char *x = c->in[0].data;
    char *y = c->out[0].data;
    if (bytes == 0)
        return NULL;
    EBB_PARALLEL_FOR(batch * count * inner)
    for (int64_t i = 0; i < batch * count; i++) {
        int64_t row = 0;
        for (int k = 0; k < depth; k++)
            row = row * dims[k] + ebb_index_at(index, i * depth + k, dims[k]);
        memcpy(y + (size_t)i * bytes, x + (size_t)(i / count * table + row) * bytes, bytes);
    }
    return NULL;
}

/* ---- OneHot ---- */

/* (indices, depth, values [off, on]) {axis = -1} -> Y. What is outside of the depth is all off. */
static ebb_status run_one_hot(const ebb_call *c)
{
    const ebb_type *out = &c->out[0].type;
    int axis;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", -1), out->rank, &axis));
    ebb_span s = ebb_span_of(out, axis);
    size_t size = ebb_element_bytes(out);
    const char *values = c->in[2].data;
    ebb_tensor index = {.type = c->in[0].type, .data = c->in[0].data, .bytes = c->in[0].bytes};
    bool whole = ebb_indices_are(&c->in[0]);
    char *y = c->out[0].data;
    ebb_plain_fill(y, values, s.outer * s.n * s.inner, size);
    EBB_PARALLEL_FOR(s.outer * s.inner * 4)
    for (int64_t i = 0; i < s.outer * s.inner; i++) {
        int64_t at;
        if (whole) {
            at = ebb_plain_int(&c->in[0], i);
        } else {
            double value = ebb_tensor_double(&index, i);
            bool near = value >= (double)-s.n && value < (double)s.n;
            at = near ? (int64_t)value : s.n;
        }
        if (at < -s.n || at >= s.n)
            continue;
        at += at < 0 ? s.n : 0;
        int64_t place = (i / s.inner * s.n + at) * s.inner + i % s.inner;
        memcpy(y + (size_t)place * size, values + size, size);
    }
    return NULL;
}

/* ---- NonZero ---- */

static bool is_zero(const char *element, size_t size, bool is_float)
{
    for (size_t i = 0; i < size; i++) { /* -0 is zero: the sign bit is in the last byte */
        unsigned byte = (unsigned char)element[i];
        if (is_float && i == size - 1)
            byte &= 0x7Fu;
        if (byte != 0)
            return false;
    }
    return true;
}

/* (X) -> int64[rank, count]: the places of what is not 0, one column each, in row-major order. */
static ebb_status run_non_zero(const ebb_call *c)
{
    const ebb_type *t = &c->in[0].type;
    size_t size = ebb_element_bytes(t);
    bool is_float = ebb_dtype_is_float((ebb_dtype)t->dtype);
    int64_t columns = c->out[0].type.dims[1], n = ebb_elements(t), found = 0;
    int64_t *y = c->out[0].data;
    for (int64_t i = 0; i < n; i++) {
        if (is_zero((const char *)c->in[0].data + (size_t)i * size, size, is_float))
            continue;
        int64_t rest = i;
        for (int d = t->rank - 1; d >= 0 && found < columns; d--) {
            y[d * columns + found] = rest % t->dims[d];
            rest /= t->dims[d];
        }
        found++;
    }
    if (found != columns)
        return ebb_call_error(c, "%lld elements are not zero, the shape was planned for %lld",
                              (long long)found, (long long)columns);
    return NULL;
}

/* ---- TopK ---- */

enum { HEAPS = 32 }; /* at most so many lines are worked on at once */

/* The k first of a line of n elements, `stride` apart, in the order of BEFORE; a heap of their
 * places, the last of them on top. Equal elements: the lower place is first. NaN is the biggest. */
#define DEFINE_TOP_K(T)                                                                            \
    static bool before_##T(const T *x, int64_t stride, bool largest, int64_t i, int64_t j)         \
    {                                                                                              \
        T a = x[i * stride], b = x[j * stride];                                                    \
        bool nan_a = a != a, nan_b = b != b;                                                       \
        if (nan_a != nan_b)                                                                        \
            return nan_a == largest;                                                               \
        if (a != b && !nan_a)                                                                      \
            return largest ? a > b : a < b;                                                        \
        return i < j;                                                                              \
    }                                                                                              \
                                                                                                   \
    static void sink_##T(const T *x, int64_t stride, bool largest, int64_t *heap, int64_t count,   \
                         int64_t at)                                                               \
    {                                                                                              \
        int64_t place = heap[at];                                                                  \
        for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {                      \
            if (child + 1 < count && before_##T(x, stride, largest, heap[child], heap[child + 1])) \
                child++;                                                                           \
            if (!before_##T(x, stride, largest, place, heap[child]))                               \
                break;                                                                             \
            heap[at] = heap[child];                                                                \
            at = child;                                                                            \
        }                                                                                          \
        heap[at] = place;                                                                          \
    }                                                                                              \
                                                                                                   \
    static void top_##T(T *value, int64_t *place, int64_t out_stride, const T *x, int64_t stride,  \
                        int64_t n, int64_t k, bool largest, int64_t *heap)                         \
    {                                                                                              \
        for (int64_t i = 0; i < k; i++)                                                            \
            heap[i] = i;                                                                           \
        for (int64_t i = k / 2 - 1; i >= 0; i--)                                                   \
            sink_##T(x, stride, largest, heap, k, i);                                              \
        for (int64_t i = k; i < n; i++)                                                            \
            if (before_##T(x, stride, largest, i, heap[0])) {                                      \
                heap[0] = i;                                                                       \
                sink_##T(x, stride, largest, heap, k, 0);                                          \
            }                                                                                      \
        for (int64_t i = k - 1; i >= 0; i--) {                                                     \
            int64_t last = heap[0];                                                                \
            heap[0] = heap[i];                                                                     \
            sink_##T(x, stride, largest, heap, i, 0);                                              \
            if (value != NULL)                                                                     \
                value[i * out_stride] = x[last * stride];                                          \
            if (place != NULL)                                                                     \
                place[i * out_stride] = last;                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void top_k_##T(T *value, int64_t *place, const T *x, ebb_span s, int64_t k,             \
                          bool largest, int64_t *heaps)                                            \
    {                                                                                              \
        int64_t lines = s.outer * s.inner, jobs = lines < HEAPS ? lines : HEAPS;                   \
        EBB_PARALLEL_FOR(lines *s.n)                                                               \
        for (int64_t job = 0; job < jobs; job++)                                                   \
            for (int64_t i = job; i < lines; i += jobs) {                                          \
                int64_t in = i / s.inner * s.n * s.inner + i % s.inner;                            \
                int64_t out = i / s.inner * k * s.inner + i % s.inner;                             \
                top_##T(value != NULL ? value + out : NULL, place != NULL ? place + out : NULL,    \
                        s.inner, x + in, s.inner, s.n, k, largest, heaps + job * k);               \
            }                                                                                      \
    }

DEFINE_TOP_K(float)
DEFINE_TOP_K(double)
DEFINE_TOP_K(int8_t)
DEFINE_TOP_K(uint8_t)
DEFINE_TOP_K(int16_t)
DEFINE_TOP_K(uint16_t)
DEFINE_TOP_K(int32_t)
DEFINE_TOP_K(uint32_t)
DEFINE_TOP_K(int64_t)
DEFINE_TOP_K(uint64_t)

static ebb_span top_k_span(const ebb_call *c, int axis, int64_t *k)
{
    *k = (ebb_call_wants(c, 0) ? c->out[0] : c->out[1]).type.dims[axis];
    return ebb_span_of(&c->in[0].type, axis);
}

static ebb_status top_k_workspace(const ebb_call *c, size_t *bytes)
{
    int axis;
    int64_t k;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", -1), c->in[0].type.rank, &axis));
    ebb_span s = top_k_span(c, axis, &k);
    int64_t lines = s.outer * s.inner;
    *bytes = (size_t)k * (size_t)(lines < HEAPS ? lines : HEAPS) * sizeof(int64_t);
    return NULL;
}

/* (X, K) {axis = -1, largest = 1} -> values?, places?; sorted always. */
static ebb_status run_top_k(const ebb_call *c)
{
    int axis;
    int64_t k;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", -1), c->in[0].type.rank, &axis));
    ebb_span s = top_k_span(c, axis, &k);
    if (k > s.n)
        return ebb_call_error(c, "%lld of %lld elements are asked for", (long long)k,
                              (long long)s.n);
    if (k == 0)
        return NULL;
    bool largest = ebb_attr_int(&c->attrs, "largest", 1) != 0;
    void *value = ebb_call_wants(c, 0) ? c->out[0].data : NULL;
    int64_t *place = ebb_call_wants(c, 1) ? c->out[1].data : NULL;
    const void *x = c->in[0].data;
#define TOP(dtype, T)                                            \
    case dtype:                                                  \
        top_k_##T(value, place, x, s, k, largest, c->workspace); \
        break;
    switch (c->in[0].type.dtype) {
        TOP(EBB_F64, double)
        TOP(EBB_I8, int8_t)
        TOP(EBB_U8, uint8_t)
        TOP(EBB_I16, int16_t)
        TOP(EBB_U16, uint16_t)
        TOP(EBB_I32, int32_t)
        TOP(EBB_U32, uint32_t)
        TOP(EBB_I64, int64_t)
        TOP(EBB_U64, uint64_t)
    default:
        top_k_float(value, place, x, s, k, largest, c->workspace);
        break;
    }
#undef TOP
    return NULL;
}

static const char *misfit_top_k(const ebb_call *c)
{
    ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    if (dtype != EBB_F32 && dtype != EBB_F64 && !ebb_dtype_is_integer(dtype))
        return "only float32, float64 and integers";
    if (!ebb_call_wants(c, 0) && !ebb_call_wants(c, 1))
        return "no output is wanted";
    if (ebb_call_wants(c, 1) && c->out[1].type.dtype != EBB_I64)
        return "places are not int64";
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_move_index[] = {
    {.name = "plain.gather",          .op = EBB_OP_GATHER,          .fits = ebb_gather_misfit, .run = run_gather},
    {.name = "plain.gather_elements", .op = EBB_OP_GATHER_ELEMENTS, .fits = ebb_gather_elements_misfit, .run = run_gather_elements},
    {.name = "plain.gather_nd",       .op = EBB_OP_GATHER_ND,       .fits = ebb_gather_nd_misfit, .run = run_gather_nd},
    {.name = "plain.one_hot",         .op = EBB_OP_ONE_HOT,         .fits = ebb_one_hot_misfit, .run = run_one_hot},
    {.name = "plain.non_zero",        .op = EBB_OP_NON_ZERO,        .fits = ebb_non_zero_misfit, .run = run_non_zero},
    {.name = "plain.top_k",           .op = EBB_OP_TOP_K,           .dtypes = ebb_call_any, .fits = misfit_top_k, .workspace = top_k_workspace, .run = run_top_k},
};
// clang-format on
EBB_PLAIN_COUNT(move_index)
