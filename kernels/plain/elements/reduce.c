/* reduce.c: reductions over axes.
 *
 * Axes that are neighbours are one axis; what is left between them is brought together by a strided
 * copy into the workspace, so that each reduction is of [outer, n, inner]. One thread makes one
 * output (or one block of neighbours), so the order of additions is fixed.
 */
#include "kernels/plain/halves.h"
#include "kernels/plain/plain.h"

#include <math.h>

typedef struct reduction {
    ebb_op op;
    int64_t outer, n, inner;
} reduction;

typedef struct sandwich { /* reduced, kept, reduced */
    int64_t before, kept, behind;
} sandwich;

/* ---- floats: sums in double ---- */

static double start_real(ebb_op op)
{
    return op == EBB_OP_REDUCE_PROD ? 1.0 : op == EBB_OP_REDUCE_LOG_SUM_EXP ? -INFINITY : 0.0;
}

/* log(exp(a) + exp(b)) without overflow. */
static double log_add(double a, double b)
{
    double most = a > b ? a : b, least = a > b ? b : a;
    return isinf(most) ? most : most + log1p(exp(least - most));
}

static double step_real(ebb_op op, double sum, double x)
{
    switch (op) {
    case EBB_OP_REDUCE_PROD:
        return sum * x;
    case EBB_OP_REDUCE_L2:
    case EBB_OP_REDUCE_SUM_SQUARE:
        return sum + x * x;
    case EBB_OP_REDUCE_LOG_SUM_EXP:
        return log_add(sum, x);
    case EBB_OP_REDUCE_L1:
        return sum + fabs(x);
    default:
        return sum + x;
    }
}

static double finish_real(const reduction *r, double sum)
{
    if (r->op == EBB_OP_REDUCE_MEAN)
        return sum / (double)r->n;
    if (r->op == EBB_OP_REDUCE_LOG_SUM)
        return log(sum);
    return r->op == EBB_OP_REDUCE_L2 ? sqrt(sum) : sum;
}

#define REAL_SUMS(suffix)                                        \
    static double start_##suffix(ebb_op op)                      \
    {                                                            \
        return start_real(op);                                   \
    }                                                            \
    static double step_##suffix(ebb_op op, double sum, double x) \
    {                                                            \
        return step_real(op, sum, x);                            \
    }

#define FLOAT_PARTS(T, suffix)                               \
    REAL_SUMS(suffix)                                        \
    static T better_##suffix(ebb_op op, T a, T b)            \
    {                                                        \
        if (a != a || b != b)                                \
            return a != a ? a : b;                           \
        return (op == EBB_OP_REDUCE_MAX) == (a > b) ? a : b; \
    }                                                        \
    static T finish_##suffix(const reduction *r, double sum) \
    {                                                        \
        return (T)finish_real(r, sum);                       \
    }

/* ---- integers: sums in wrapping 64 bits ---- */

/* The magnitude of a signed number in 64 bits; unsigned ones of 8 bits pass as they are. */
static uint64_t size_of(uint64_t x)
{
    return (int64_t)x < 0 ? 0 - x : x;
}

#define INTEGER_PARTS(T, suffix)                                       \
    static T better_##suffix(ebb_op op, T a, T b)                      \
    {                                                                  \
        return (op == EBB_OP_REDUCE_MAX) == (a > b) ? a : b;           \
    }                                                                  \
    static uint64_t start_##suffix(ebb_op op)                          \
    {                                                                  \
        return op == EBB_OP_REDUCE_PROD ? 1 : 0;                       \
    }                                                                  \
    static uint64_t step_##suffix(ebb_op op, uint64_t sum, uint64_t x) \
    {                                                                  \
        return op == EBB_OP_REDUCE_PROD         ? sum * x              \
               : op == EBB_OP_REDUCE_SUM_SQUARE ? sum + x * x          \
               : op == EBB_OP_REDUCE_L1         ? sum + size_of(x)     \
                                                : sum + x;                     \
    }                                                                  \
    static T finish_##suffix(const reduction *r, uint64_t sum)         \
    {                                                                  \
        if (r->op == EBB_OP_REDUCE_MEAN)                               \
            sum = r->n > 0 ? (uint64_t)((int64_t)sum / r->n) : 0;      \
        return (T)sum;                                                 \
    }

#define HALF_PARTS(suffix, TO_FLOAT, TO_HALF)                          \
    REAL_SUMS(suffix)                                                  \
    static uint16_t better_##suffix(ebb_op op, uint16_t a, uint16_t b) \
    {                                                                  \
        return TO_HALF(better_f32(op, TO_FLOAT(a), TO_FLOAT(b)));      \
    }                                                                  \
    static uint16_t finish_##suffix(const reduction *r, double sum)    \
    {                                                                  \
        return TO_HALF((float)finish_real(r, sum));                    \
    }

FLOAT_PARTS(float, f32)
HALF_PARTS(bf16, ebb_bf16_to_float, ebb_float_to_bf16)
HALF_PARTS(f16, ebb_half_to_float, ebb_float_to_half)
FLOAT_PARTS(double, f64)
INTEGER_PARTS(int32_t, i32)
INTEGER_PARTS(int64_t, i64)
INTEGER_PARTS(uint8_t, u8)
INTEGER_PARTS(int8_t, i8)

#define REAL double
#define T uint16_t
#define NAMED(x) x##_bf16
#define READ(x) ((double)ebb_wide_bf16(x))
#include "kernels/plain/elements/reduce_loops.inc"
#undef NAMED
#undef READ
#define NAMED(x) x##_f16
#define READ(x) ((double)ebb_wide_half(x))
#include "kernels/plain/elements/reduce_loops.inc"
#undef T
#undef NAMED
#undef READ
#define READ(x) ((REAL)(x))
#define T float
#define NAMED(x) x##_f32
#include "kernels/plain/elements/reduce_loops.inc"
#undef T
#undef NAMED
#define T double
#define NAMED(x) x##_f64
#include "kernels/plain/elements/reduce_loops.inc"
#undef T
#undef NAMED
#undef REAL
#define REAL uint64_t
#define T int32_t
#define NAMED(x) x##_i32
#include "kernels/plain/elements/reduce_loops.inc"
#undef T
#undef NAMED
#define T int64_t
#define NAMED(x) x##_i64
#include "kernels/plain/elements/reduce_loops.inc"
#undef T
#undef NAMED
#define T uint8_t
#define NAMED(x) x##_u8
#include "kernels/plain/elements/reduce_loops.inc"
#undef T
#undef NAMED
#define T int8_t
#define NAMED(x) x##_i8
#include "kernels/plain/elements/reduce_loops.inc"
#undef T
#undef NAMED
#undef REAL
#undef READ

/* ---- which axes ---- */

typedef struct axes {
    bool reduced[EBB_MAX_RANK];
    bool none;       /* noop_with_empty_axes: y is x (squared and so on, element by element) */
    bool together;   /* the reduced axes are neighbours (axes of size 1 aside) */
    bool sandwiched; /* they lie on both sides of what is kept */
    int64_t outer, n, inner;
    sandwich layers;
} axes;

static ebb_status read_axes(axes *a, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t list[EBB_MAX_RANK];
    uint32_t count;
    *a = (axes){.outer = 1, .n = 1, .inner = 1, .layers.behind = 1};
    EBB_TRY(ebb_call_ints(c, "axes", 1, list, EBB_MAX_RANK, &count));
    a->none = count == 0 && ebb_attr_int(&c->attrs, "noop_with_empty_axes", 0) != 0;
    for (int d = 0; d < x->rank; d++)
        a->reduced[d] = count == 0 && !a->none;
    for (uint32_t i = 0; i < count; i++) {
        int axis = 0;
        EBB_TRY(ebb_call_axis(c, list[i], x->rank, &axis));
        a->reduced[axis] = true;
    }
    /* 0: kept in front, 1: reduced, 2: kept behind, 3: reduced again, 4: and kept again */
    int stage = 0;
    for (int d = 0; d < x->rank; d++) {
        if (x->dims[d] == 1)
            continue;
        if (a->reduced[d] != (stage % 2 == 1))
            stage++;
        if (a->reduced[d])
            a->n *= x->dims[d];
        else
            *(stage == 0 ? &a->outer : &a->inner) *= x->dims[d];
        if (stage == 3)
            a->layers.behind *= x->dims[d];
    }
    a->together = stage < 3;
    a->sandwiched =
        stage == 3 && a->outer == 1 && c->op != EBB_OP_REDUCE_MAX && c->op != EBB_OP_REDUCE_MIN;
    a->layers.kept = a->inner;
    a->layers.before = a->layers.behind > 0 ? a->n / a->layers.behind : 0;
    return NULL;
}

/* The types of x with an input of axes known only at run time are given room for the worst. */
static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    axes a;
    bool late = ebb_call_has(c, 1) && c->in[1].constant == NULL;
    *bytes = 0;
    if (late) {
        *bytes = c->in[0].bytes;
        return NULL;
    }
    ebb_operand in[2] = {c->in[0], {.type = ebb_type_none()}};
    if (ebb_call_has(c, 1)) {
        union {
            const void *from;
            void *to;
        } constant = {.from = c->in[1].constant->data}; // read only
        in[1] = c->in[1];
        in[1].data = constant.to;
    }
    ebb_call peek = *c;
    peek.in = in;
    EBB_TRY(read_axes(&a, &peek));
    *bytes = a.together || a.sandwiched ? 0 : c->in[0].bytes;
    return NULL;
}

/* x with the reduced axes moved to the end, in the workspace. */
static const void *gathered(const ebb_call *c, const axes *a)
{
    const ebb_type *x = &c->in[0].type;
    int64_t from[EBB_MAX_RANK], dims[EBB_MAX_RANK], from_stride[EBB_MAX_RANK], to[EBB_MAX_RANK];
    int rank = 0;
    ebb_strides(from, x->rank, x->dims);
    for (int pass = 0; pass < 2; pass++)
        for (int d = 0; d < x->rank; d++)
            if (a->reduced[d] == (pass == 1)) {
                dims[rank] = x->dims[d];
                from_stride[rank++] = from[d];
            }
    ebb_strides(to, rank, dims);
    ebb_plain_copy(c->workspace, to, c->in[0].data, from_stride, rank, dims, ebb_element_bytes(x));
    return c->workspace;
}

/* The largest of nothing is the least value of the type, the smallest the greatest: what numpy's
 * `initial` would be, and ONNX since opset 20. */
static void fill_of_nothing(const ebb_operand *y, bool largest)
{
    union {
        float f;
        double d;
        int64_t i64;
        int32_t i32;
        uint16_t u16;
        int8_t i8;
        uint8_t u8;
    } v;
    switch (y->type.dtype) {
    case EBB_F32:
        v.f = largest ? -INFINITY : INFINITY;
        break;
    case EBB_F64:
        v.d = largest ? -(double)INFINITY : (double)INFINITY;
        break;
    case EBB_BF16:
        v.u16 = largest ? 0xFF80u : 0x7F80u;
        break;
    case EBB_F16:
        v.u16 = largest ? 0xFC00u : 0x7C00u;
        break;
    case EBB_I64:
        v.i64 = largest ? INT64_MIN : INT64_MAX;
        break;
    case EBB_I32:
        v.i32 = largest ? INT32_MIN : INT32_MAX;
        break;
    case EBB_I8:
        v.i8 = largest ? INT8_MIN : INT8_MAX;
        break;
    default:
        v.u8 = largest ? 0 : y->type.dtype == EBB_BOOL ? 1 : UINT8_MAX;
        break;
    }
    ebb_plain_fill(y->data, &v, ebb_elements(&y->type), ebb_element_bytes(&y->type));
}

static ebb_status run_reduce(const ebb_call *c)
{
    axes a;
    EBB_TRY(read_axes(&a, c));
    const void *x = c->in[0].data;
    void *y = c->out[0].data;
    reduction r = {c->op, a.outer, a.n, a.inner};
    // axes that come with the data may not be those that the file had in mind for its output
    int64_t kept = a.none ? ebb_elements(&c->in[0].type) : a.outer * a.inner;
    if (kept != ebb_elements(&c->out[0].type))
        return ebb_call_error(c, "its axes leave %lld elements, its output has %lld",
                              (long long)kept, (long long)ebb_elements(&c->out[0].type));
    if (ebb_elements(&c->out[0].type) == 0)
        return NULL;
    if (a.n == 0 && (c->op == EBB_OP_REDUCE_MAX || c->op == EBB_OP_REDUCE_MIN)) {
        fill_of_nothing(&c->out[0], c->op == EBB_OP_REDUCE_MAX);
        return NULL;
    }
    if (!a.together && !a.sandwiched) {
        x = gathered(c, &a);
        r = (reduction){c->op, a.outer * a.inner, a.n, 1};
    }
#define RUN(T, suffix)                                          \
    if (a.sandwiched)                                           \
        sandwich_##suffix(&r, &a.layers, (T *)y, (const T *)x); \
    else if (r.inner == 1)                                      \
        rows_##suffix(&r, (T *)y, (const T *)x);                \
    else                                                        \
        columns_##suffix(&r, (T *)y, (const T *)x);             \
    break
    switch (c->in[0].type.dtype) {
    case EBB_F32:
        RUN(float, f32);
    case EBB_F64:
        RUN(double, f64);
    case EBB_BF16:
        RUN(uint16_t, bf16);
    case EBB_F16:
        RUN(uint16_t, f16);
    case EBB_I32:
        RUN(int32_t, i32);
    case EBB_I64:
        RUN(int64_t, i64);
    case EBB_U8:
    case EBB_BOOL:
        RUN(uint8_t, u8);
    default:
        RUN(int8_t, i8);
    }
#undef RUN
    return NULL;
}

static const char *dtypes_of_reduce(const ebb_call *c)
{
    switch (c->in[0].type.dtype) {
    case EBB_F32:
    case EBB_F64:
        return ebb_call_any(c);
    case EBB_F16:
    case EBB_BF16:
        return c->out[0].type.dtype == c->in[0].type.dtype ? ebb_call_any(c)
                                                           : "the result has another dtype";
    case EBB_I32:
    case EBB_I64:
    case EBB_U8:
    case EBB_I8:
    case EBB_BOOL:
        return c->op == EBB_OP_REDUCE_L2 || c->op == EBB_OP_REDUCE_LOG_SUM_EXP ||
                       c->op == EBB_OP_REDUCE_LOG_SUM
                   ? "integers have no root or logarithm here"
                   : ebb_call_any(c);
    default:
        return "the dtype is not a float or one of int32, int64, uint8, int8, bool";
    }
}

// clang-format off
#define REDUCE(reduce, id) {.name = "plain." reduce, .op = id, .dtypes = dtypes_of_reduce, .workspace = workspace, .run = run_reduce}
const ebb_kernel ebb_plain_reduce[] = {
    REDUCE("reduce_sum",         EBB_OP_REDUCE_SUM),
    REDUCE("reduce_mean",        EBB_OP_REDUCE_MEAN),
    REDUCE("reduce_max",         EBB_OP_REDUCE_MAX),
    REDUCE("reduce_min",         EBB_OP_REDUCE_MIN),
    REDUCE("reduce_prod",        EBB_OP_REDUCE_PROD),
    REDUCE("reduce_l1",          EBB_OP_REDUCE_L1),
    REDUCE("reduce_log_sum",     EBB_OP_REDUCE_LOG_SUM),
    REDUCE("reduce_l2",          EBB_OP_REDUCE_L2),
    REDUCE("reduce_sum_square",  EBB_OP_REDUCE_SUM_SQUARE),
    REDUCE("reduce_log_sum_exp", EBB_OP_REDUCE_LOG_SUM_EXP),
};
// clang-format on
EBB_PLAIN_COUNT(reduce)
