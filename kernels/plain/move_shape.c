/* move_shape.c: what changes a shape but no element (copies, or nothing where the output lies over
 * the input), what repeats elements, and what is made from shapes.
 */
#include "kernels/plain/plain.h"

#include <string.h>

/* ---- the same bytes under another shape ---- */

static ebb_status run_view(const ebb_call *c)
{
    ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->out[0].bytes);
    return NULL;
}

/* Whole bytes or not: what is copied is all of them. */
static const char *declines_view(const ebb_call *c)
{
    const ebb_operand *x = &c->in[0], *y = &c->out[0];
    if (x->type.kind != EBB_KIND_TENSOR || ebb_dtype_bits((ebb_dtype)x->type.dtype) == 0)
        return "works on tensors of numbers only";
    if (x->type.dtype != y->type.dtype || x->bytes != y->bytes)
        return "the output differs in dtype or size";
    bool kept = c->op == EBB_OP_IDENTITY && x->type.layout.kind == y->type.layout.kind &&
                x->type.layout.block == y->type.layout.block;
    if (!kept &&
        (x->type.layout.kind != EBB_LAYOUT_PLAIN || y->type.layout.kind != EBB_LAYOUT_PLAIN))
        return "works on row-major tensors only";
    return NULL;
}

/* BitCast: the dtype alone differs. */
static const char *declines_bit_cast(const ebb_call *c)
{
    const char *why = ebb_plain_any_bits(c);
    if (why != NULL)
        return why;
    return c->in[0].bytes != c->out[0].bytes ? "the output differs in size" : NULL;
}

/* Dropout before opset 12 has no training mode here: its Y is X, and its mask all ones. */
static const char *declines_old_dropout(const ebb_call *c)
{
    if (ebb_call_wants(c, 1) && c->out[1].type.dtype != EBB_BOOL &&
        c->out[1].type.dtype != EBB_F32 && c->out[1].type.dtype != EBB_F64)
        return "the mask is none of bool, float32 and float64";
    return declines_view(c);
}

static ebb_status run_old_dropout(const ebb_call *c)
{
    const float one = 1;
    const double wide = 1;
    const uint8_t on = 1;
    EBB_TRY(run_view(c));
    if (!ebb_call_wants(c, 1))
        return NULL;
    const ebb_type *mask = &c->out[1].type;
    ebb_plain_fill(c->out[1].data,
                   mask->dtype == EBB_F32   ? (const void *)&one
                   : mask->dtype == EBB_F64 ? (const void *)&wide
                                            : (const void *)&on,
                   ebb_elements(mask), ebb_plain_size(mask));
    return NULL;
}

/* ---- repeated ---- */

/* (X, shape) -> Y: X broadcast. */
static ebb_status run_expand(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    size_t size = ebb_plain_size(x);
    if (ebb_elements(x) == 1) {
        ebb_plain_fill(c->out[0].data, c->in[0].data, ebb_elements(y), size);
        return NULL;
    }
    int64_t dense[EBB_MAX_RANK] = {0}, to[EBB_MAX_RANK] = {0}, from[EBB_MAX_RANK] = {0};
    ebb_strides(dense, x->rank, x->dims);
    ebb_strides(to, y->rank, y->dims);
    for (int d = 0; d < x->rank; d++)
        from[y->rank - x->rank + d] = x->dims[d] == 1 ? 0 : dense[d];
    ebb_plain_copy(c->out[0].data, to, c->in[0].data, from, y->rank, y->dims, size);
    return NULL;
}

static const char *declines_expand(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
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

static tiling tiling_of(const ebb_type *x, const ebb_type *y)
{
    tiling t = {.rank = 0};
    int64_t to[EBB_MAX_RANK] = {0}, from[EBB_MAX_RANK] = {0};
    ebb_strides(to, y->rank, y->dims);
    ebb_strides(from, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) {
        if (x->dims[d] != 0)
            add_dim(&t, y->dims[d] / x->dims[d], to[d] * x->dims[d], 0);
        add_dim(&t, x->dims[d], to[d], from[d]);
    }
    return t;
}

/* (X, repeats) -> Y. */
static ebb_status run_tile(const ebb_call *c)
{
    tiling t = tiling_of(&c->in[0].type, &c->out[0].type);
    ebb_plain_copy(c->out[0].data, t.to, c->in[0].data, t.from, t.rank, t.dims,
                   ebb_plain_size(&c->in[0].type));
    return NULL;
}

static const char *declines_tile(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    if (x->rank != y->rank)
        return "the output does not fit the input";
    for (int d = 0; d < x->rank; d++)
        if (x->dims[d] == 0 ? y->dims[d] != 0 : y->dims[d] % x->dims[d] != 0)
            return "the output does not fit the input";
    if (tiling_of(x, y).rank > EBB_MAX_RANK)
        return "too many dims are repeated";
    return NULL;
}

/* ---- Trilu ---- */

/* (X, k = 0) {upper = 1} -> Y: 0 below (above) diagonal k of each matrix. Y may be X. */
static ebb_status run_trilu(const ebb_call *c)
{
    const ebb_type *t = &c->in[0].type;
    int64_t rows = t->dims[t->rank - 2], n = t->dims[t->rank - 1], total = ebb_elements(t);
    int64_t k = ebb_call_has(c, 1) && c->in[1].bytes > 0 ? ebb_plain_int(&c->in[1], 0) : 0;
    bool upper = ebb_attr_int(&c->attrs, "upper", 1) != 0;
    size_t size = ebb_plain_size(t);
    const char *x = c->in[0].data;
    char *y = c->out[0].data;
    if (total == 0)
        return NULL;
    k = k < -rows ? -rows : k > n ? n : k;
    EBB_PARALLEL_FOR(total)
    for (int64_t i = 0; i < total / n; i++) {
        /* Columns first .. last - 1 stay: from the diagonal on, or up to it. */
        int64_t diagonal = i % rows + k + (upper ? 0 : 1);
        diagonal = diagonal < 0 ? 0 : diagonal > n ? n : diagonal;
        int64_t first = upper ? diagonal : 0, last = upper ? n : diagonal;
        char *row = y + (size_t)(i * n) * size;
        if (x != y && last > first)
            memcpy(row + (size_t)first * size, x + (size_t)(i * n + first) * size,
                   (size_t)(last - first) * size);
        memset(row, 0, (size_t)first * size);
        memset(row + (size_t)last * size, 0, (size_t)(n - last) * size);
    }
    return NULL;
}

static const char *declines_trilu(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    if (c->in[0].type.rank < 2)
        return "the input is no matrix";
    if (ebb_call_has(c, 1) && (ebb_elements(&c->in[1].type) != 1 ||
                               (c->in[1].type.dtype != EBB_I64 && c->in[1].type.dtype != EBB_I32)))
        return "the diagonal is no integer";
    return NULL;
}

/* ---- made from shapes ---- */

/* (X) {start, end} -> int64[count]. */
static ebb_status run_shape(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t start = ebb_attr_int(&c->attrs, "start", 0), *y = c->out[0].data;
    start += start < 0 ? x->rank : 0;
    start = start < 0 ? 0 : start;
    for (int64_t i = 0; i < c->out[0].type.dims[0]; i++)
        y[i] = x->dims[start + i];
    return NULL;
}

static ebb_status run_size(const ebb_call *c)
{
    *(int64_t *)c->out[0].data = ebb_elements(&c->in[0].type);
    return NULL;
}

static const char *declines_shape(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    if (!ebb_type_is_static(x))
        return "a dim is not known";
    if (y->dtype != EBB_I64 || y->layout.kind != EBB_LAYOUT_PLAIN)
        return "the output is not row-major int64";
    if (c->op == EBB_OP_SIZE)
        return ebb_elements(y) != 1 ? "the output is no scalar" : NULL;
    int64_t start = ebb_attr_int(&c->attrs, "start", 0);
    start += start < 0 ? x->rank : 0;
    start = start < 0 ? 0 : start;
    if (y->rank != 1 || (y->dims[0] > 0 && (start > x->rank || y->dims[0] > x->rank - start)))
        return "the output does not fit the input's rank";
    return NULL;
}

/* The bytes of a Constant node's value; NULL where it is of a kind that has none. */
static const void *constant_bytes(const ebb_call *c, float *number, size_t *bytes)
{
    for (uint32_t i = 0; i < c->attrs.count; i++) {
        const ebb_attr *a = &c->attrs.list[i];
        if (strcmp(a->name, "value") == 0 && a->tensor != NULL) {
            *bytes = a->tensor->bytes;
            return a->tensor->data;
        }
        if (strcmp(a->name, "value_int") == 0) {
            *bytes = sizeof a->i;
            return &a->i;
        }
        if (strcmp(a->name, "value_float") == 0) {
            *number = (float)a->f;
            *bytes = sizeof *number;
            return number;
        }
        if (strcmp(a->name, "value_ints") == 0) {
            *bytes = a->count * sizeof *a->ints;
            return a->ints;
        }
        if (strcmp(a->name, "value_floats") == 0) {
            *bytes = a->count * sizeof *a->floats;
            return a->floats;
        }
    }
    return NULL;
}

static ebb_status run_constant(const ebb_call *c)
{
    float number;
    size_t bytes = 0;
    const void *from = constant_bytes(c, &number, &bytes);
    if (bytes > 0 && from != NULL)
        ebb_plain_memcpy(c->out[0].data, from, bytes);
    return NULL;
}

static const char *declines_constant(const ebb_call *c)
{
    float number;
    size_t bytes = 0;
    const void *from = constant_bytes(c, &number, &bytes);
    if (c->out[0].type.layout.kind != EBB_LAYOUT_PLAIN)
        return "works on row-major tensors only";
    if (bytes != c->out[0].bytes || (from == NULL && bytes > 0))
        return "its value is not there, or not of numbers";
    return NULL;
}

/* (shape) {value = 0.0f} -> Y. */
static ebb_status run_constant_of_shape(const ebb_call *c)
{
    static const char zero[16];
    const ebb_attr *value = ebb_attr_find(&c->attrs, "value");
    const void *from = value != NULL && value->tensor != NULL ? value->tensor->data : zero;
    const ebb_type *t = &c->out[0].type;
    ebb_plain_fill(c->out[0].data, from, ebb_elements(t), ebb_plain_size(t));
    return NULL;
}

static const char *declines_constant_of_shape(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    const ebb_attr *value = ebb_attr_find(&c->attrs, "value");
    if (value == NULL || value->tensor == NULL)
        return c->out[0].type.dtype != EBB_F32 ? "the output is not float32" : NULL;
    if (value->tensor->data == NULL || ebb_elements(&value->tensor->type) != 1 ||
        value->tensor->type.dtype != c->out[0].type.dtype)
        return "the value is not one of the output's dtype";
    return NULL;
}

/* start + i * delta; integers wrap around, as the last step may leave the type. */
#define RANGE(T, W)                                                                             \
    {                                                                                           \
        const W start = (W) * (const T *)c->in[0].data, delta = (W) * (const T *)c->in[2].data; \
        T *y = c->out[0].data;                                                                  \
        for (int64_t i = 0; i < n; i++)                                                         \
            y[i] = (T)(start + (W)i * delta);                                                   \
        return NULL;                                                                            \
    }

/* (start, limit, delta) -> Y. */
static ebb_status run_range(const ebb_call *c)
{
    int64_t n = c->out[0].type.dims[0];
    switch (c->out[0].type.dtype) {
    case EBB_F32:
        RANGE(float, double)
    case EBB_F64:
        RANGE(double, double)
    case EBB_I16:
        RANGE(int16_t, uint64_t)
    case EBB_I32:
        RANGE(int32_t, uint64_t)
    default:
        RANGE(int64_t, uint64_t)
    }
}

static const char *declines_range(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why != NULL)
        return why;
    const ebb_type *y = &c->out[0].type;
    if (y->dtype != EBB_F32 && y->dtype != EBB_F64 && y->dtype != EBB_I16 && y->dtype != EBB_I32 &&
        y->dtype != EBB_I64)
        return "only float32, float64, int16, int32 and int64";
    if (y->rank != 1)
        return "the output is no vector";
    for (uint32_t i = 0; i < 3; i++)
        if (c->in[i].type.dtype != y->dtype || ebb_elements(&c->in[i].type) != 1)
            return "start, limit and step are not scalars of the output's dtype";
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_move_shape[] = {
    {.name = "plain.identity",          .op = EBB_OP_IDENTITY,          .declines = declines_view,              .run = run_view},
    {.name = "plain.reshape",           .op = EBB_OP_RESHAPE,           .declines = declines_view,              .run = run_view},
    {.name = "plain.flatten",           .op = EBB_OP_FLATTEN,           .declines = declines_view,              .run = run_view},
    {.name = "plain.squeeze",           .op = EBB_OP_SQUEEZE,           .declines = declines_view,              .run = run_view},
    {.name = "plain.unsqueeze",         .op = EBB_OP_UNSQUEEZE,         .declines = declines_view,              .run = run_view},
    {.name = "plain.bit_cast",          .op = EBB_OP_BIT_CAST,          .declines = declines_bit_cast,          .run = run_view},
    {.name = "plain.old_dropout",       .op = EBB_OP_DROPOUT_BEFORE_12, .declines = declines_old_dropout,       .run = run_old_dropout},
    {.name = "plain.expand",            .op = EBB_OP_EXPAND,            .declines = declines_expand,            .run = run_expand},
    {.name = "plain.tile",              .op = EBB_OP_TILE,              .declines = declines_tile,              .run = run_tile},
    {.name = "plain.trilu",             .op = EBB_OP_TRILU,             .declines = declines_trilu,             .run = run_trilu},
    {.name = "plain.shape",             .op = EBB_OP_SHAPE,             .declines = declines_shape,             .run = run_shape},
    {.name = "plain.size",              .op = EBB_OP_SIZE,              .declines = declines_shape,             .run = run_size},
    {.name = "plain.constant",          .op = EBB_OP_CONSTANT,          .declines = declines_constant,          .run = run_constant},
    {.name = "plain.constant_of_shape", .op = EBB_OP_CONSTANT_OF_SHAPE, .declines = declines_constant_of_shape, .run = run_constant_of_shape},
    {.name = "plain.range",             .op = EBB_OP_RANGE,             .declines = declines_range,             .run = run_range},
};
// clang-format on
EBB_PLAIN_COUNT(move_shape)
