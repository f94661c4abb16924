/* move_shape.cu: what changes a shape but no element (copies, or nothing where the output lies over
 * the input), what repeats elements, and what is made from shapes. */
#include "kernels/cuda/floats.h"
#include "kernels/cuda/move.h"

typedef struct trilu_args {
    void *y;
    const void *x, *diagonal; /* NULL: 0 */
    int64_t n, rows, columns;
    int32_t wide, upper;
} trilu_args;

typedef struct eye_args {
    void *y;
    int64_t n, columns, k;
    uint64_t one;
} eye_args;

#define KERNELS "kernels/cuda/move_shape_kernels.inc"
#include "kernels/cuda/all_sizes.inc"

/* ---- the same bytes under another shape ---- */

static ebb_status run_view(const ebb_call *c)
{
    return ebb_cuda_copy(c, c->out[0].data, c->in[0].data, c->out[0].bytes);
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
    for (int k = 0; k < 2; k++) {
        const ebb_type *t = k == 0 ? &c->in[0].type : &c->out[0].type;
        if (t->kind != EBB_KIND_TENSOR || ebb_dtype_bits((ebb_dtype)t->dtype) == 0)
            return "works on tensors of numbers only";
        if (t->layout.kind != EBB_LAYOUT_PLAIN)
            return "works on row-major tensors only";
    }
    return c->in[0].bytes != c->out[0].bytes ? "the output differs in size" : NULL;
}

/* The bits of 1; 0 where the dtype is none of these. */
static uint64_t one_of(uint8_t dtype)
{
    switch (dtype) {
    case EBB_F32:
        return 0x3F800000;
    case EBB_F64:
        return UINT64_C(0x3FF0000000000000);
    case EBB_F16:
        return 0x3C00;
    case EBB_BF16:
        return 0x3F80;
    default:
        return dtype == EBB_BOOL || ebb_dtype_is_integer((ebb_dtype)dtype) ? 1 : 0;
    }
}

/* Dropout before opset 12 has no training mode here: its Y is X, and its mask all ones. */
static ebb_status run_old_dropout(const ebb_call *c)
{
    EBB_TRY(run_view(c));
    if (!ebb_call_wants(c, 1))
        return NULL;
    const ebb_type *mask = &c->out[1].type;
    const uint64_t one = one_of(mask->dtype);
    return ebb_cuda_fill(c, c->out[1].data, &one, ebb_elements(mask), ebb_cuda_size(mask));
}

static const char *declines_old_dropout(const ebb_call *c)
{
    if (ebb_cuda_any(c) != NULL)
        return ebb_cuda_any(c);
    if (ebb_call_wants(c, 1) && c->out[1].type.dtype != EBB_BOOL &&
        !ebb_dtype_is_float((ebb_dtype)c->out[1].type.dtype))
        return "the mask is neither bool nor a float";
    return declines_view(c);
}

/* ---- repeated ---- */

/* (X, shape) -> Y: X broadcast. */
static ebb_status run_expand(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t dense[EBB_MAX_RANK] = {0}, to[EBB_MAX_RANK] = {0}, from[EBB_MAX_RANK] = {0};
    ebb_strides(dense, x->rank, x->dims);
    ebb_strides(to, y->rank, y->dims);
    for (int d = 0; d < x->rank; d++)
        from[y->rank - x->rank + d] = x->dims[d] == 1 ? 0 : dense[d];
    return ebb_cuda_strided(c, c->out[0].data, to, c->in[0].data, from, y->rank, y->dims,
                            ebb_cuda_size(x));
}

static const char *declines_expand(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
    if (why != NULL)
        return why;
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    if (x->dtype != y->dtype)
        return "operands differ in dtype";
    if (x->rank > y->rank)
        return "the output does not fit the input";
    for (int d = 0; d < x->rank; d++)
        if (x->dims[d] != 1 && x->dims[d] != y->dims[y->rank - x->rank + d])
            return "the output does not fit the input";
    return NULL;
}

/* (X, repeats) -> Y: each dim is one of repeats and one of elements. */
static ebb_status run_tile(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t dense[EBB_MAX_RANK] = {0}, out[EBB_MAX_RANK] = {0};
    int64_t dims[EBB_CUDA_PATH_RANK], to[EBB_CUDA_PATH_RANK], from[EBB_CUDA_PATH_RANK];
    if (ebb_elements(y) == 0)
        return NULL;
    ebb_strides(dense, x->rank, x->dims);
    ebb_strides(out, y->rank, y->dims);
    for (int d = 0; d < x->rank; d++) {
        dims[2 * d] = y->dims[d] / x->dims[d];
        to[2 * d] = out[d] * x->dims[d];
        from[2 * d] = 0;
        dims[2 * d + 1] = x->dims[d];
        to[2 * d + 1] = out[d];
        from[2 * d + 1] = dense[d];
    }
    return ebb_cuda_strided(c, c->out[0].data, to, c->in[0].data, from, 2 * x->rank, dims,
                            ebb_cuda_size(x));
}

static const char *declines_tile(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
    if (why != NULL)
        return why;
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    if (x->dtype != y->dtype)
        return "operands differ in dtype";
    if (x->rank != y->rank)
        return "the output does not fit the input";
    for (int d = 0; d < x->rank; d++)
        if (x->dims[d] == 0 ? y->dims[d] != 0 : y->dims[d] % x->dims[d] != 0)
            return "the output does not fit the input";
    return NULL;
}

/* ---- Trilu ---- */

/* (X, k = 0) {upper = 1} -> Y: 0 below (above) diagonal k of each matrix. Y may be X. */
static ebb_status run_trilu(const ebb_call *c)
{
    static const ebb_gpu_kernel trilus[] = EBB_CUDA_SIZES(trilu);
    const ebb_type *t = &c->in[0].type;
    bool given = ebb_call_has(c, 1);
    trilu_args a = {c->out[0].data,
                    c->in[0].data,
                    given ? c->in[1].data : NULL,
                    ebb_elements(t),
                    t->dims[t->rank - 2],
                    t->dims[t->rank - 1],
                    given && c->in[1].type.dtype == EBB_I64,
                    ebb_attr_int(&c->attrs, "upper", 1) != 0};
    return EBB_LAUNCH(c, trilus[ebb_cuda_size_row(ebb_cuda_size(t))], ebb_cuda_grid(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

static const char *declines_trilu(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
    if (why != NULL)
        return why;
    if (c->in[0].type.rank < 2)
        return "the input is no matrix";
    if (ebb_call_has(c, 1) &&
        (ebb_elements(&c->in[1].type) != 1 || !ebb_cuda_indices_are(&c->in[1])))
        return "the diagonal is no integer";
    return NULL;
}

/* ---- EyeLike ---- */

/* (X) {k} -> Y: 1 on diagonal k, else 0; X lends its shape. */
static ebb_status run_eye_like(const ebb_call *c)
{
    static const ebb_gpu_kernel eyes[] = EBB_CUDA_SIZES(eye);
    const ebb_type *y = &c->out[0].type;
    eye_args a = {c->out[0].data, ebb_elements(y), y->dims[1], ebb_attr_int(&c->attrs, "k", 0),
                  one_of(y->dtype)};
    return EBB_LAUNCH(c, eyes[ebb_cuda_size_row(ebb_cuda_size(y))], ebb_cuda_grid(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

static const char *declines_eye_like(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
    if (why != NULL)
        return why;
    if (one_of(c->out[0].type.dtype) == 0)
        return "the output is of a dtype that has no 1 here";
    return c->out[0].type.rank != 2 ? "works on matrices only" : NULL;
}

/* ---- bytes that the launcher knows ---- */

/* All arguments of a kernel have room in 4 KiB. */
enum { CARRIED = 3968 };

typedef struct carry_args {
    uint8_t *to;
    int64_t n;
    uint8_t bytes[CARRIED];
} carry_args;

EBB_GLOBAL(carry, carry_args)
{
    EBB_BLOCK_LOOP(i, a.n)
    a.to[i] = a.bytes[i];
}

/* Bytes from the host as arguments of kernels: unlike a copy they can be recorded. */
static ebb_status carry_all(const ebb_call *c, void *to, const void *from, size_t bytes)
{
    carry_args a;
    memset(&a, 0, sizeof a);
    for (size_t at = 0; at < bytes; at += CARRIED) {
        ebb_gpu_grid one = {1, 1, 1};
        a.to = (uint8_t *)to + at;
        a.n = (int64_t)(bytes - at < sizeof a.bytes ? bytes - at : sizeof a.bytes);
        memcpy(a.bytes, (const uint8_t *)from + at, (size_t)a.n);
        EBB_TRY(EBB_LAUNCH(c, carry, one, EBB_CUDA_BLOCK, 0, a));
    }
    return NULL;
}

typedef struct fill_args {
    void *to;
    int64_t n; /* bytes */
    ebb_cuda_wide value;
    bool aligned; /* to 16 bytes */
} fill_args;

EBB_GLOBAL(fill, fill_args)
{
    ebb_cuda_wide *wide = (ebb_cuda_wide *)a.to;
    uint8_t *bytes = (uint8_t *)a.to;
    EBB_GRID_LOOP(i, (a.n + 15) / 16)
    {
        if (a.aligned && (i + 1) * 16 <= a.n) {
            wide[i] = a.value;
        } else {
            for (int64_t b = i * 16; b < a.n && b < (i + 1) * 16; b++)
                bytes[b] =
                    (uint8_t)(((b & 8) != 0 ? a.value.half[1] : a.value.half[0]) >> (b & 7) * 8);
        }
    }
}

ebb_status ebb_cuda_fill(const ebb_call *c, void *to, const void *value, int64_t n, size_t size)
{
    fill_args a = {to, n * (int64_t)size, {{0, 0}}, (uintptr_t)to % 16 == 0};
    if (n == 0)
        return NULL;
    for (size_t at = 0; at < sizeof a.value; at += size)
        memcpy((char *)&a.value + at, value, size);
    if (a.value.half[0] == 0 && a.value.half[1] == 0)
        return ebb_gpu_clear(ebb_cuda_queue_of(c)->stream, to, (size_t)a.n);
    return EBB_LAUNCH(c, fill, ebb_cuda_grid((a.n + 15) / 16), EBB_CUDA_BLOCK, 0, a);
}

/* ---- made from shapes ---- */

/* (X) {start, end} -> int64[count]. */
static ebb_status run_shape(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t start = ebb_attr_int(&c->attrs, "start", 0), count = c->out[0].type.dims[0];
    start += start < 0 ? x->rank : 0;
    start = start < 0 ? 0 : start;
    return carry_all(c, c->out[0].data, x->dims + start, (size_t)count * sizeof *x->dims);
}

static ebb_status run_size(const ebb_call *c)
{
    int64_t n = ebb_elements(&c->in[0].type);
    return carry_all(c, c->out[0].data, &n, sizeof n);
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
    return from != NULL ? carry_all(c, c->out[0].data, from, bytes) : NULL;
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
    static const char zero[16] = {0};
    const ebb_attr *value = ebb_attr_find(&c->attrs, "value");
    const void *from = value != NULL && value->tensor != NULL ? value->tensor->data : zero;
    const ebb_type *t = &c->out[0].type;
    return ebb_cuda_fill(c, c->out[0].data, from, ebb_elements(t), ebb_cuda_size(t));
}

static const char *declines_constant_of_shape(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
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

/* ---- Range ---- */

typedef struct range_args {
    void *y;
    const void *start, *delta;
    int64_t n;
} range_args;

/* start + i * delta; integers wrap around, as the last step may leave the type. */
#define RANGE(name, T, W)                          \
    EBB_GLOBAL(name, range_args)                   \
    {                                              \
        const W start = (W) * (const T *)a.start;  \
        const W delta = (W) * (const T *)a.delta;  \
        EBB_GRID_LOOP(i, a.n)                      \
        ((T *)a.y)[i] = (T)(start + (W)i * delta); \
    }

RANGE(range_f32, float, double)
RANGE(range_f64, double, double)
RANGE(range_i16, int16_t, uint64_t)
RANGE(range_i32, int32_t, uint64_t)
RANGE(range_i64, int64_t, uint64_t)

#define RANGE_16(name, T, of, to)                               \
    EBB_GLOBAL(name, range_args)                                \
    {                                                           \
        const double start = (double)of(*(const T *)a.start);   \
        const double delta = (double)of(*(const T *)a.delta);   \
        EBB_GRID_LOOP(i, a.n)                                   \
        ((T *)a.y)[i] = to((float)(start + (double)i * delta)); \
    }

RANGE_16(range_f16, ebb_f16, ebb_from_f16, ebb_to_f16)
RANGE_16(range_bf16, ebb_bf16, ebb_from_bf16, ebb_to_bf16)

static ebb_gpu_kernel range_of(uint8_t dtype)
{
    switch (dtype) {
    case EBB_F32:
        return (ebb_gpu_kernel)range_f32;
    case EBB_F64:
        return (ebb_gpu_kernel)range_f64;
    case EBB_F16:
        return (ebb_gpu_kernel)range_f16;
    case EBB_BF16:
        return (ebb_gpu_kernel)range_bf16;
    case EBB_I16:
        return (ebb_gpu_kernel)range_i16;
    case EBB_I32:
        return (ebb_gpu_kernel)range_i32;
    case EBB_I64:
        return (ebb_gpu_kernel)range_i64;
    default:
        return NULL;
    }
}

/* (start, limit, delta) -> Y. */
static ebb_status run_range(const ebb_call *c)
{
    range_args a = {c->out[0].data, c->in[0].data, c->in[2].data, c->out[0].type.dims[0]};
    return EBB_LAUNCH(c, range_of(c->out[0].type.dtype), ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

static const char *declines_range(const ebb_call *c)
{
    const char *why = ebb_cuda_any(c);
    if (why != NULL)
        return why;
    const ebb_type *y = &c->out[0].type;
    if (range_of(y->dtype) == NULL)
        return "only floats, int16, int32 and int64";
    if (y->rank != 1)
        return "the output is no vector";
    for (uint32_t i = 0; i < 3; i++)
        if (c->in[i].type.dtype != y->dtype || ebb_elements(&c->in[i].type) != 1)
            return "start, limit and step are not scalars of the output's dtype";
    return NULL;
}

// clang-format off
const ebb_kernel ebb_cuda_move_shape[] = {
    {"cuda.identity",          EBB_OP_IDENTITY,          declines_view,              NULL, NULL, run_view,              NULL},
    {"cuda.reshape",           EBB_OP_RESHAPE,           declines_view,              NULL, NULL, run_view,              NULL},
    {"cuda.flatten",           EBB_OP_FLATTEN,           declines_view,              NULL, NULL, run_view,              NULL},
    {"cuda.squeeze",           EBB_OP_SQUEEZE,           declines_view,              NULL, NULL, run_view,              NULL},
    {"cuda.unsqueeze",         EBB_OP_UNSQUEEZE,         declines_view,              NULL, NULL, run_view,              NULL},
    {"cuda.bit_cast",          EBB_OP_BIT_CAST,          declines_bit_cast,          NULL, NULL, run_view,              NULL},
    {"cuda.old_dropout",       EBB_OP_DROPOUT_BEFORE_12, declines_old_dropout,       NULL, NULL, run_old_dropout,       NULL},
    {"cuda.eye_like",          EBB_OP_EYE_LIKE,          declines_eye_like,          NULL, NULL, run_eye_like,          NULL},
    {"cuda.expand",            EBB_OP_EXPAND,            declines_expand,            NULL, NULL, run_expand,            NULL},
    {"cuda.tile",              EBB_OP_TILE,              declines_tile,              NULL, NULL, run_tile,              NULL},
    {"cuda.trilu",             EBB_OP_TRILU,             declines_trilu,             NULL, NULL, run_trilu,             NULL},
    {"cuda.shape",             EBB_OP_SHAPE,             declines_shape,             NULL, NULL, run_shape,             NULL},
    {"cuda.size",              EBB_OP_SIZE,              declines_shape,             NULL, NULL, run_size,              NULL},
    {"cuda.constant",          EBB_OP_CONSTANT,          declines_constant,          NULL, NULL, run_constant,          NULL},
    {"cuda.constant_of_shape", EBB_OP_CONSTANT_OF_SHAPE, declines_constant_of_shape, NULL, NULL, run_constant_of_shape, NULL},
    {"cuda.range",             EBB_OP_RANGE,             declines_range,             NULL, NULL, run_range,             NULL},
};
// clang-format on
EBB_CUDA_COUNT(move_shape)
