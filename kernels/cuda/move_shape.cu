/* move_shape.cu: what changes a shape but no element (copies, or nothing where the output lies over
 * the input), triangles, and what is made from shapes. */
#include "kernels/cuda/floats.h"
#include "kernels/cuda/move.h"
#include "kernels/call/move/move_shape.h"

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
    return ebb_cuda_fill(c, c->out[1].data, &one, ebb_elements(mask), ebb_element_bytes(mask));
}

static const char *declines_old_dropout(const ebb_call *c)
{
    if (ebb_call_any(c) != NULL)
        return ebb_call_any(c);
    if (ebb_call_wants(c, 1) && c->out[1].type.dtype != EBB_BOOL &&
        !ebb_dtype_is_float((ebb_dtype)c->out[1].type.dtype))
        return "the mask is neither bool nor a float";
    return ebb_view_misfit(c);
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
    return EBB_LAUNCH(c, trilus[ebb_cuda_size_row(ebb_element_bytes(t))], ebb_cuda_grid(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

/* ---- EyeLike ---- */

/* (X) {k} -> Y: 1 on diagonal k, else 0; X lends its shape. */
static ebb_status run_eye_like(const ebb_call *c)
{
    static const ebb_gpu_kernel eyes[] = EBB_CUDA_SIZES(eye);
    const ebb_type *y = &c->out[0].type;
    eye_args a = {c->out[0].data, ebb_elements(y), y->dims[1], ebb_attr_int(&c->attrs, "k", 0),
                  one_of(y->dtype)};
    return EBB_LAUNCH(c, eyes[ebb_cuda_size_row(ebb_element_bytes(y))], ebb_cuda_grid(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

static const char *misfit_eye_like(const ebb_call *c)
{
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
    return carry_all(c, c->out[0].data, ebb_shape_dims(c), c->out[0].bytes);
}

static ebb_status run_size(const ebb_call *c)
{
    int64_t n = ebb_elements(&c->in[0].type);
    return carry_all(c, c->out[0].data, &n, sizeof n);
}

static ebb_status run_constant(const ebb_call *c)
{
    float number;
    size_t bytes = 0;
    const void *from = ebb_constant_bytes(c, &number, &bytes);
    return from != NULL ? carry_all(c, c->out[0].data, from, bytes) : NULL;
}

/* (shape) {value = 0.0f} -> Y. */
static ebb_status run_constant_of_shape(const ebb_call *c)
{
    const ebb_type *t = &c->out[0].type;
    return ebb_cuda_fill(c, c->out[0].data, ebb_constant_of_shape_value(c), ebb_elements(t),
                         ebb_element_bytes(t));
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
    return range_of(c->out[0].type.dtype) == NULL ? "only floats, int16, int32 and int64"
                                                  : ebb_range_misfit(c);
}

// clang-format off
const ebb_kernel ebb_cuda_move_shape[] = {
    {.name = "cuda.identity",          .op = EBB_OP_IDENTITY,          .fits = ebb_view_misfit, .run = run_view},
    {.name = "cuda.reshape",           .op = EBB_OP_RESHAPE,           .fits = ebb_view_misfit, .run = run_view},
    {.name = "cuda.flatten",           .op = EBB_OP_FLATTEN,           .fits = ebb_view_misfit, .run = run_view},
    {.name = "cuda.squeeze",           .op = EBB_OP_SQUEEZE,           .fits = ebb_view_misfit, .run = run_view},
    {.name = "cuda.unsqueeze",         .op = EBB_OP_UNSQUEEZE,         .fits = ebb_view_misfit, .run = run_view},
    {.name = "cuda.bit_cast",          .op = EBB_OP_BIT_CAST,          .fits = declines_bit_cast, .run = run_view},
    {.name = "cuda.old_dropout",       .op = EBB_OP_DROPOUT_BEFORE_12, .fits = declines_old_dropout, .run = run_old_dropout},
    {.name = "cuda.eye_like",          .op = EBB_OP_EYE_LIKE,          .dtypes = ebb_call_any, .fits = misfit_eye_like, .run = run_eye_like},
    {.name = "cuda.trilu",             .op = EBB_OP_TRILU,             .fits = ebb_trilu_misfit, .run = run_trilu},
    {.name = "cuda.shape",             .op = EBB_OP_SHAPE,             .fits = ebb_shape_misfit, .run = run_shape},
    {.name = "cuda.size",              .op = EBB_OP_SIZE,              .fits = ebb_shape_misfit, .run = run_size},
    {.name = "cuda.constant",          .op = EBB_OP_CONSTANT,          .fits = ebb_constant_misfit, .run = run_constant},
    {.name = "cuda.constant_of_shape", .op = EBB_OP_CONSTANT_OF_SHAPE, .fits = ebb_constant_of_shape_misfit, .run = run_constant_of_shape},
    {.name = "cuda.range",             .op = EBB_OP_RANGE,             .fits = declines_range, .run = run_range},
};
// clang-format on
EBB_CUDA_COUNT(move_shape)
