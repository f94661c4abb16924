/* reduce.cu: reductions over axes, and GlobalLpPool, which is one.
 *
 * An output's elements are those of a walk over the reduced axes, from where the walk over the kept
 * ones leads (axes.h). Where the innermost axis is
 * reduced the threads of a warp have neighbouring elements, else neighbouring outputs (lanes.h).
 * Floats are added up in double, integers in wrapping 64 bits.
 */
#include "kernels/cuda/axes.h"
#include "kernels/cuda/lanes.h"
#include "kernels/math/power.h"

typedef enum way { SUM, SIZES, SQUARES, POWERS, PRODUCT, LOG_SUM, MOST, LEAST } way;
typedef enum ending { AS_IT_IS, MEAN, ROOT, LOGARITHM } ending; // what becomes of the sum

typedef struct reduce_args {
    ebb_lanes lanes, rest;
    ebb_cuda_axes kept, reduced;
    const void *x;
    void *y, *parts; /* [splits, outputs]; NULL: not split */
    uint64_t start;  /* neutral: bits of a double, or an integer */
    uint32_t how, ends;
    int64_t order; /* of the root, of POWERS */
} reduce_args;

/* ---- floats ---- */

/* log(exp(a) + exp(b)) without overflow. */
EBB_GPU_INLINE double log_add(double a, double b)
{
    const double most = a > b ? a : b, least = a > b ? b : a;
    if (a != a || b != b)
        return a + b;
    return isinf(most) ? most : most + log1p(exp(least - most));
}

EBB_GPU_INLINE double better_real(bool most, double a, double b)
{
    if (a != a || b != b)
        return a != a ? a : b;
    return most == (a > b) ? a : b;
}

/* Of two parts. */
EBB_GPU_INLINE double join_real(uint32_t how, double a, double b)
{
    switch (how) {
    case PRODUCT:
        return a * b;
    case LOG_SUM:
        return log_add(a, b);
    case MOST:
    case LEAST:
        return better_real(how == MOST, a, b);
    default:
        return a + b;
    }
}

EBB_GPU_INLINE double size_real(double v)
{
    return fabs(v);
}

EBB_GPU_INLINE double power_real(double v, int64_t order)
{
    return ebb_power(v, order);
}

EBB_GPU_INLINE double lane_xor_real(double v, uint32_t apart)
{
    return ebb_lane_xor_f64(v, apart);
}

EBB_GPU_INLINE double start_real(const reduce_args *a)
{
    double v;
    memcpy(&v, &a->start, sizeof v);
    return v;
}

EBB_GPU_INLINE double finish_real(const reduce_args *a, double sum, int64_t n)
{
    switch (a->ends) {
    case MEAN:
        return sum / (double)n;
    case ROOT:
        return ebb_root(sum, a->order);
    case LOGARITHM:
        return log(sum);
    default:
        return sum;
    }
}

/* ---- integers: signed ones as their bits ---- */

EBB_GPU_INLINE uint64_t join_whole(uint32_t how, uint64_t a, uint64_t b)
{
    switch (how) {
    case PRODUCT:
        return a * b;
    case MOST:
        return (int64_t)a > (int64_t)b ? a : b;
    case LEAST:
        return (int64_t)a < (int64_t)b ? a : b;
    default:
        return a + b;
    }
}

EBB_GPU_INLINE uint64_t log_add_whole(uint64_t a, uint64_t b)
{
    return a + b; // declined for integers
}

EBB_GPU_INLINE uint64_t size_whole(uint64_t v)
{
    return (int64_t)v < 0 ? 0 - v : v;
}

EBB_GPU_INLINE uint64_t power_whole(uint64_t v, int64_t order)
{
    return order == 2 ? v * v : v; // declined for integers
}

EBB_GPU_INLINE uint64_t lane_xor_whole(uint64_t v, uint32_t apart)
{
    const uint32_t low = ebb_lane_xor_u32((uint32_t)v, apart);
    const uint32_t high = ebb_lane_xor_u32((uint32_t)(v >> 32), apart);
    return (uint64_t)high << 32 | low;
}

EBB_GPU_INLINE uint64_t start_whole(const reduce_args *a)
{
    return a->start;
}

EBB_GPU_INLINE uint64_t finish_whole(const reduce_args *a, uint64_t sum, int64_t n)
{
    if (a->ends == MEAN)
        return n > 0 ? (uint64_t)((int64_t)sum / n) : 0;
    return sum;
}

/* ---- kernels ---- */

#define ACC double
#define ACC_NAMED(x) x##_real
#define VALUE(v) ((double)(v))
#define PUT(p, i, v) STORE(p, i, (REAL)(v))
#define JOIN_LOGS log_add
#define KERNELS "kernels/cuda/reduce_kernels.inc"
#include "kernels/cuda/all_floats.inc"
#undef ACC
#undef ACC_NAMED
#undef VALUE
#undef PUT
#undef JOIN_LOGS

#define ACC uint64_t
#define ACC_NAMED(x) x##_whole
#define VALUE(v) ((uint64_t)(int64_t)(v))
#define PUT(p, i, v) ((p)[i] = (STORED)(v))
#define JOIN_LOGS log_add_whole
#define LOAD(p, i) ((p)[i])
#define KERNELS "kernels/cuda/reduce_kernels.inc"
#define STORED int32_t
#define SUFFIX i32
#include "kernels/cuda/one_type.inc"
#define STORED int64_t
#define SUFFIX i64
#include "kernels/cuda/one_type.inc"
#define STORED uint8_t
#define SUFFIX u8
#include "kernels/cuda/one_type.inc"
#define STORED int8_t
#define SUFFIX i8
#include "kernels/cuda/one_type.inc"
#undef KERNELS
#undef LOAD

#define EVERY(name)                                                                              \
    {                                                                                            \
        (ebb_gpu_kernel) name##_f32, (ebb_gpu_kernel)name##_f64, (ebb_gpu_kernel)name##_f16,     \
            (ebb_gpu_kernel)name##_bf16, (ebb_gpu_kernel)name##_i32, (ebb_gpu_kernel)name##_i64, \
            (ebb_gpu_kernel)name##_u8, (ebb_gpu_kernel)name##_i8                                 \
    }

static const ebb_gpu_kernel reduces[] = EVERY(reduce);
static const ebb_gpu_kernel finishes[] = EVERY(finish);

static int row_of(ebb_dtype dtype)
{
    switch (dtype) {
    case EBB_I32:
        return 4;
    case EBB_I64:
        return 5;
    case EBB_U8:
    case EBB_BOOL:
        return 6;
    case EBB_I8:
        return 7;
    default:
        return ebb_cuda_float_row((uint8_t)dtype);
    }
}

/* ---- which axes ---- */

static ebb_status read_axes(reduce_args *a, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    int64_t list[EBB_MAX_RANK];
    bool reduced[EBB_MAX_RANK];
    uint32_t count = 0;
    memset(a, 0, sizeof *a);
    const bool pools = c->op == EBB_OP_GLOBAL_LP_POOL; // all but images and channels
    if (!pools)
        EBB_TRY(ebb_call_ints(c, "axes", 1, list, EBB_MAX_RANK, &count));
    const bool none = count == 0 && ebb_attr_int(&c->attrs, "noop_with_empty_axes", 0) != 0;
    for (int d = 0; d < x->rank; d++)
        reduced[d] = pools ? d >= 2 : count == 0 && !none;
    for (uint32_t i = 0; i < count; i++) {
        int axis = 0;
        EBB_TRY(ebb_call_axis(c, list[i], x->rank, &axis));
        reduced[axis] = true;
    }
    const bool along = ebb_cuda_axes_split(x, reduced, &a->kept, &a->reduced);
    const int64_t outputs = ebb_cuda_axes_size(&a->kept), n = ebb_cuda_axes_size(&a->reduced);
    a->lanes = ebb_lanes_of(outputs, n, !along);
    a->rest = ebb_lanes_rest(&a->lanes);
    return NULL;
}

/* ---- reductions ---- */

static int64_t order_of(const ebb_call *c)
{
    return c->op == EBB_OP_GLOBAL_LP_POOL ? ebb_attr_int(&c->attrs, "p", 2) : 2;
}

static way way_of(const ebb_call *c)
{
    switch (c->op) {
    case EBB_OP_GLOBAL_LP_POOL:
        return order_of(c) == 1 ? SIZES : order_of(c) == 2 ? SQUARES : POWERS;
    case EBB_OP_REDUCE_PROD:
        return PRODUCT;
    case EBB_OP_REDUCE_L1:
        return SIZES;
    case EBB_OP_REDUCE_L2:
    case EBB_OP_REDUCE_SUM_SQUARE:
        return SQUARES;
    case EBB_OP_REDUCE_LOG_SUM_EXP:
        return LOG_SUM;
    case EBB_OP_REDUCE_MAX:
        return MOST;
    case EBB_OP_REDUCE_MIN:
        return LEAST;
    default:
        return SUM;
    }
}

static ending ending_of(ebb_op op)
{
    switch (op) {
    case EBB_OP_REDUCE_L2:
    case EBB_OP_GLOBAL_LP_POOL:
        return ROOT;
    case EBB_OP_REDUCE_MEAN:
        return MEAN;
    case EBB_OP_REDUCE_LOG_SUM:
        return LOGARITHM;
    default:
        return AS_IT_IS;
    }
}

/* Of nothing: the largest is the least value of the type, the smallest the greatest. */
static uint64_t start_of(way how, ebb_dtype dtype)
{
    const double real = how == PRODUCT                  ? 1.0
                        : how == LOG_SUM || how == MOST ? -(double)INFINITY
                        : how == LEAST                  ? (double)INFINITY
                                                        : 0.0;
    uint64_t bits;
    if (ebb_dtype_is_float(dtype)) {
        memcpy(&bits, &real, sizeof bits);
        return bits;
    }
    if (how != MOST && how != LEAST)
        return how == PRODUCT ? 1 : 0;
    switch (dtype) {
    case EBB_I64:
        return (uint64_t)(how == MOST ? INT64_MIN : INT64_MAX);
    case EBB_I32:
        return (uint64_t)(int64_t)(how == MOST ? INT32_MIN : INT32_MAX);
    case EBB_I8:
        return (uint64_t)(int64_t)(how == MOST ? INT8_MIN : INT8_MAX);
    case EBB_BOOL:
        return how == MOST ? 0 : 1;
    default:
        return how == MOST ? 0 : UINT8_MAX;
    }
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    reduce_args a;
    EBB_TRY(read_axes(&a, c));
    return ebb_lanes_workspace(c, &a.lanes, sizeof(double), bytes);
}

static ebb_status run_reduce(const ebb_call *c)
{
    reduce_args a;
    EBB_TRY(read_axes(&a, c));
    const int row = row_of((ebb_dtype)c->in[0].type.dtype);
    const way how = way_of(c);
    a.x = c->in[0].data;
    a.y = c->out[0].data;
    a.parts = a.lanes.splits > 1 ? c->workspace : NULL;
    a.how = (uint32_t)how;
    a.start = start_of(how, (ebb_dtype)c->in[0].type.dtype);
    a.ends = (uint32_t)ending_of(c->op);
    a.order = order_of(c);
    EBB_TRY(
        EBB_LAUNCH(c, reduces[row], ebb_lanes_grid(&a.lanes), EBB_CUDA_BLOCK, EBB_LANES_SHARED, a));
    return a.parts == NULL ? NULL
                           : EBB_LAUNCH(c, finishes[row], ebb_lanes_grid(&a.rest), EBB_CUDA_BLOCK,
                                        EBB_LANES_SHARED, a);
}

static const char *reduce_declines(const ebb_call *c)
{
    const char *why = ebb_cuda_numbers(c);
    if (why == NULL)
        why = ebb_cuda_constant(c, 1);
    if (why != NULL)
        return why;
    switch (c->in[0].type.dtype) {
    case EBB_F32:
    case EBB_F64:
    case EBB_F16:
    case EBB_BF16:
        return NULL;
    case EBB_I32:
    case EBB_I64:
    case EBB_U8:
    case EBB_I8:
    case EBB_BOOL:
        return c->op == EBB_OP_REDUCE_L2 || c->op == EBB_OP_REDUCE_LOG_SUM_EXP ||
                       c->op == EBB_OP_REDUCE_LOG_SUM
                   ? "integers have no root or logarithm here"
                   : NULL;
    default:
        return "the dtype is not one of the floats, int32, int64, uint8, int8, bool";
    }
}

static const char *pool_misfit(const ebb_call *c)
{
    if (c->in[0].type.rank < 3)
        return "the input has no axis of space";
    return order_of(c) < 1 ? "p is less than 1" : NULL;
}

// clang-format off
#define REDUCE(reduce, id) {.name = "cuda." reduce, .op = id, .fits = reduce_declines, .workspace = workspace, .run = run_reduce}
const ebb_kernel ebb_cuda_reduce[] = {
    REDUCE("reduce_sum",         EBB_OP_REDUCE_SUM),
    REDUCE("reduce_mean",        EBB_OP_REDUCE_MEAN),
    REDUCE("reduce_max",         EBB_OP_REDUCE_MAX),
    REDUCE("reduce_min",         EBB_OP_REDUCE_MIN),
    REDUCE("reduce_prod",        EBB_OP_REDUCE_PROD),
    REDUCE("reduce_l1",          EBB_OP_REDUCE_L1),
    REDUCE("reduce_l2",          EBB_OP_REDUCE_L2),
    REDUCE("reduce_log_sum",     EBB_OP_REDUCE_LOG_SUM),
    REDUCE("reduce_sum_square",  EBB_OP_REDUCE_SUM_SQUARE),
    REDUCE("reduce_log_sum_exp", EBB_OP_REDUCE_LOG_SUM_EXP),
    {.name = "cuda.global_lp_pool", .op = EBB_OP_GLOBAL_LP_POOL, .dtypes = ebb_cuda_floats, .fits = pool_misfit, .workspace = workspace, .run = run_reduce},
};
// clang-format on
EBB_CUDA_COUNT(reduce)
