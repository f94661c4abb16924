/* move_shape.c: what changes a shape but no element (copies, or nothing where the output lies over
 * the input), triangles, and what is made from shapes.
 */
#include "kernels/call/move/move_shape.h"
#include "kernels/plain/plain.h"

#include <string.h>

/* ---- the same bytes under another shape ---- */

static ebb_status run_view(const ebb_call *c)
{
    ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->out[0].bytes);
    return NULL;
}

/* BitCast: the dtype alone differs. */
static const char *misfit_bit_cast(const ebb_call *c)
{
    return c->in[0].bytes != c->out[0].bytes ? "the output differs in size" : NULL;
}

/* Dropout before opset 12 has no training mode here: its Y is X, and its mask all ones. */
static const char *declines_old_dropout(const ebb_call *c)
{
    if (ebb_call_wants(c, 1) && c->out[1].type.dtype != EBB_BOOL &&
        c->out[1].type.dtype != EBB_F32 && c->out[1].type.dtype != EBB_F64)
        return "the mask is none of bool, float32 and float64";
    return ebb_view_misfit(c);
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
                   ebb_elements(mask), ebb_element_bytes(mask));
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
    size_t size = ebb_element_bytes(t);
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

/* ---- made from shapes ---- */

/* (X) {start, end} -> int64[count]. */
static ebb_status run_shape(const ebb_call *c)
{
    memcpy(c->out[0].data, ebb_shape_dims(c), c->out[0].bytes);
    return NULL;
}

static ebb_status run_size(const ebb_call *c)
{
    *(int64_t *)c->out[0].data = ebb_elements(&c->in[0].type);
    return NULL;
}

static ebb_status run_constant(const ebb_call *c)
{
    float number;
    size_t bytes = 0;
    const void *from = ebb_constant_bytes(c, &number, &bytes);
    if (bytes > 0 && from != NULL)
        ebb_plain_memcpy(c->out[0].data, from, bytes);
    return NULL;
}

/* (shape) {value = 0.0f} -> Y. */
static ebb_status run_constant_of_shape(const ebb_call *c)
{
    const ebb_type *t = &c->out[0].type;
    ebb_plain_fill(c->out[0].data, ebb_constant_of_shape_value(c), ebb_elements(t),
                   ebb_element_bytes(t));
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
    const uint8_t dtype = c->out[0].type.dtype;
    if (dtype != EBB_F32 && dtype != EBB_F64 && dtype != EBB_I16 && dtype != EBB_I32 &&
        dtype != EBB_I64)
        return "only float32, float64, int16, int32 and int64";
    return ebb_range_misfit(c);
}

// clang-format off
const ebb_kernel ebb_plain_move_shape[] = {
    {.name = "plain.identity",          .op = EBB_OP_IDENTITY,          .fits = ebb_view_misfit, .run = run_view},
    {.name = "plain.reshape",           .op = EBB_OP_RESHAPE,           .fits = ebb_view_misfit, .run = run_view},
    {.name = "plain.flatten",           .op = EBB_OP_FLATTEN,           .fits = ebb_view_misfit, .run = run_view},
    {.name = "plain.squeeze",           .op = EBB_OP_SQUEEZE,           .fits = ebb_view_misfit, .run = run_view},
    {.name = "plain.unsqueeze",         .op = EBB_OP_UNSQUEEZE,         .fits = ebb_view_misfit, .run = run_view},
    {.name = "plain.bit_cast",          .op = EBB_OP_BIT_CAST,          .dtypes = ebb_call_any_bits, .fits = misfit_bit_cast, .run = run_view},
    {.name = "plain.old_dropout",       .op = EBB_OP_DROPOUT_BEFORE_12, .fits = declines_old_dropout, .run = run_old_dropout},
    {.name = "plain.trilu",             .op = EBB_OP_TRILU,             .fits = ebb_trilu_misfit, .run = run_trilu},
    {.name = "plain.shape",             .op = EBB_OP_SHAPE,             .fits = ebb_shape_misfit, .run = run_shape},
    {.name = "plain.size",              .op = EBB_OP_SIZE,              .fits = ebb_shape_misfit, .run = run_size},
    {.name = "plain.constant",          .op = EBB_OP_CONSTANT,          .fits = ebb_constant_misfit, .run = run_constant},
    {.name = "plain.constant_of_shape", .op = EBB_OP_CONSTANT_OF_SHAPE, .fits = ebb_constant_of_shape_misfit, .run = run_constant_of_shape},
    {.name = "plain.range",             .op = EBB_OP_RANGE,             .fits = declines_range, .run = run_range},
};
// clang-format on
EBB_PLAIN_COUNT(move_shape)
