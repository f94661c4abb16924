/* unary.c: operators of one input, element by element; activations; Clip and PRelu. */
#include "kernels/plain/plain.h"
#include "kernels/plain/vmath.h"

/* A row function whose expression reads x and the parameters p[0], p[1], which arg points to. */
#define ROW(name, T, R, EXPR)                                                          \
    static void name(void *out, const void *const *in, const int64_t *step, int64_t n, \
                     const void *arg)                                                  \
    {                                                                                  \
        static const double none[2];                                                   \
        (void)step;                                                                    \
        const double *given = arg != NULL ? arg : none;                                \
        const T p[2] = {(T)given[0], (T)given[1]};                                     \
        (void)p;                                                                       \
        R *y = out;                                                                    \
        const T *from = in[0];                                                         \
        EBB_SIMD                                                                       \
        for (int64_t i = 0; i < n; i++) {                                              \
            T x = from[i];                                                             \
            y[i] = (R)(EXPR);                                                          \
        }                                                                              \
    }

/* The same expression in both float types, with m(...) the single or double function. */
#define FLOATS(name, EXPR32, EXPR64)      \
    ROW(name##_f32, float, float, EXPR32) \
    ROW(name##_f64, double, double, EXPR64)

static ebb_status run(const ebb_call *c, ebb_row_fn single, ebb_row_fn twice, const double *p)
{
    const ebb_operand *in[1] = {&c->in[0]};
    ebb_plain_rows(&c->out[0], in, 1, c->in[0].type.dtype == EBB_F32 ? single : twice, p);
    return NULL;
}

#define SIMPLE(name, EXPR32, EXPR64)                 \
    FLOATS(name, EXPR32, EXPR64)                     \
    static ebb_status run_##name(const ebb_call *c)  \
    {                                                \
        return run(c, name##_f32, name##_f64, NULL); \
    }

SIMPLE(exp, ebb_exp(x), exp(x))
SIMPLE(log, logf(x), log(x))
SIMPLE(sqrt, sqrtf(x), sqrt(x))
SIMPLE(reciprocal, 1.0f / x, 1.0 / x)
SIMPLE(erf, ebb_erf(x), erf(x))
SIMPLE(sin, sinf(x), sin(x))
SIMPLE(cos, cosf(x), cos(x))
SIMPLE(tan, tanf(x), tan(x))
SIMPLE(atan, atanf(x), atan(x))
SIMPLE(asin, asinf(x), asin(x))
SIMPLE(acos, acosf(x), acos(x))
SIMPLE(sinh, sinhf(x), sinh(x))
SIMPLE(cosh, coshf(x), cosh(x))
SIMPLE(asinh, asinhf(x), asinh(x))
SIMPLE(acosh, acoshf(x), acosh(x))
SIMPLE(atanh, atanhf(x), atanh(x))
SIMPLE(floor, floorf(x), floor(x))
SIMPLE(ceil, ceilf(x), ceil(x))
SIMPLE(round, nearbyintf(x), nearbyint(x)) /* half to even: the rounding mode is never changed */
SIMPLE(sigmoid, ebb_sigmoid(x), 1.0 / (1.0 + exp(-x)))
SIMPLE(tanh, ebb_tanh(x), tanh(x))
SIMPLE(softsign, x / (1.0f + fabsf(x)), x / (1.0 + fabs(x)))
/* log(1 + e^x) without overflow. */
SIMPLE(softplus, (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))), (x > 0 ? x : 0) + log1p(exp(-fabs(x))))
SIMPLE(hard_swish, x *fminf(fmaxf(x / 6.0f + 0.5f, 0.0f), 1.0f),
       x *fmin(fmax(x / 6.0 + 0.5, 0.0), 1.0))

/* x tanh(ln(1 + e^x)): with e = e^x and n = e (e + 2) the tanh is n / (n + 2). From x = 20 on it is
 * 1 in both types, before e^2 overflows. */
static inline float mish(float x)
{
    float e = ebb_exp(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);
    return x * (n / (n + 2.0f));
}

static inline double mish64(double x)
{
    double e = exp(x > 20.0 ? 20.0 : x), n = e * (e + 2.0);
    return x * (n / (n + 2.0));
}

SIMPLE(mish, mish(x), mish64(x))

/* ---- with attributes ---- */

FLOATS(thresholded_relu, x > p[0] ? x : 0, x > p[0] ? x : 0)
FLOATS(leaky_relu, x < 0 ? p[0] * x : x, x < 0 ? p[0] * x : x)
FLOATS(elu, x < 0 ? p[0] * expm1f(x) : x, x < 0 ? p[0] * expm1(x) : x)
FLOATS(hard_sigmoid, fminf(fmaxf(p[0] * x + p[1], 0.0f), 1.0f),
       fmin(fmax(p[0] * x + p[1], 0.0), 1.0))
FLOATS(gelu, x *ebb_normal_cdf(x), x *ebb_normal_cdf64(x))
/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x sigmoid(2 sqrt(2/pi) (...)) */
FLOATS(fast_gelu, x *ebb_sigmoid(1.59576912f * (x + 0.044715f * x * x * x)),
       x / (1.0 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))))
FLOATS(quick_gelu, x *ebb_sigmoid(p[0] * x), x / (1.0 + exp(-p[0] * x)))

FLOATS(selu, x > 0 ? p[1] * x : p[1] * p[0] * expm1f(x), x > 0 ? p[1] * x : p[1] * p[0] * expm1(x))
FLOATS(celu, x < 0 ? p[0] * expm1f(x / p[0]) : x, x < 0 ? p[0] * expm1(x / p[0]) : x)
FLOATS(shrink, x<-p[0] ? x + p[1] : x> p[0] ? x - p[1] : 0,
       x<-p[0] ? x + p[1] : x> p[0] ? x - p[1] : 0)

/* (X) {alpha, gamma} -> gamma alpha (e^x - 1) below zero, gamma x above. */
static ebb_status run_selu(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "alpha", 1.67326319217681884765625),
                         ebb_attr_float(&c->attrs, "gamma", 1.05070102214813232421875)};
    return run(c, selu_f32, selu_f64, p);
}

static ebb_status run_celu(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "alpha", 1.0), 0.0};
    return run(c, celu_f32, celu_f64, p);
}

/* (X) {lambd, bias}: zero within [-lambd, lambd], moved by bias towards zero outside. */
static ebb_status run_shrink(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "lambd", 0.5),
                         ebb_attr_float(&c->attrs, "bias", 0.0)};
    return run(c, shrink_f32, shrink_f64, p);
}

static ebb_status run_swish(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "alpha", 1.0), 0.0};
    return run(c, quick_gelu_f32, quick_gelu_f64, p);
}

static ebb_status run_thresholded_relu(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "alpha", 1.0), 0.0};
    return run(c, thresholded_relu_f32, thresholded_relu_f64, p);
}

static ebb_status run_leaky_relu(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "alpha", (double)0.01f), 0.0};
    return run(c, leaky_relu_f32, leaky_relu_f64, p);
}

static ebb_status run_elu(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "alpha", 1.0), 0.0};
    return run(c, elu_f32, elu_f64, p);
}

static ebb_status run_hard_sigmoid(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "alpha", 0.2),
                         ebb_attr_float(&c->attrs, "beta", 0.5)};
    return run(c, hard_sigmoid_f32, hard_sigmoid_f64, p);
}

static ebb_status run_gelu(const ebb_call *c)
{
    if (strcmp(ebb_attr_string(&c->attrs, "approximate", "none"), "tanh") == 0)
        return run(c, fast_gelu_f32, fast_gelu_f64, NULL);
    return run(c, gelu_f32, gelu_f64, NULL);
}

static ebb_status run_fast_gelu(const ebb_call *c)
{
    return run(c, fast_gelu_f32, fast_gelu_f64, NULL);
}

static const char *declines_fast_gelu(const ebb_call *c)
{
    return ebb_call_has(c, 1) ? "takes no bias" : ebb_plain_floats(c);
}

static ebb_status run_quick_gelu(const ebb_call *c)
{
    const double p[2] = {ebb_attr_float(&c->attrs, "alpha", 1.702), 0.0};
    return run(c, quick_gelu_f32, quick_gelu_f64, p);
}

/* ---- floats and integers ---- */

#define UNSIGNED(X, ...)                             \
    X(EBB_U8, uint8_t, uint32_t, u8, __VA_ARGS__)    \
    X(EBB_U16, uint16_t, uint32_t, u16, __VA_ARGS__) \
    X(EBB_U32, uint32_t, uint32_t, u32, __VA_ARGS__) \
    X(EBB_U64, uint64_t, uint64_t, u64, __VA_ARGS__)
#define SIGNED(X, ...)                              \
    X(EBB_I8, int8_t, uint32_t, i8, __VA_ARGS__)    \
    X(EBB_I16, int16_t, uint32_t, i16, __VA_ARGS__) \
    X(EBB_I32, int32_t, uint32_t, i32, __VA_ARGS__) \
    X(EBB_I64, int64_t, uint64_t, i64, __VA_ARGS__)
#define REALS(X, ...) \
    X(EBB_F32, float, float, f32, __VA_ARGS__) X(EBB_F64, double, double, f64, __VA_ARGS__)

#define ROW_OF(dtype, T, U, suffix, name, EXPR) ROW(name##_##suffix, T, T, EXPR)
#define ROW_BOOL(dtype, T, U, suffix, name, EXPR) ROW(name##_##suffix, T, uint8_t, EXPR)
#define ROW_NEG(dtype, T, U, suffix, name) ROW(name##_##suffix, T, T, (U)0 - (U)x)
#define ROW_ABS(dtype, T, U, suffix, name) ROW(name##_##suffix, T, T, x < 0 ? (U)0 - (U)x : (U)x)
#define ENTRY(dtype, T, U, suffix, name) [dtype] = name##_##suffix,
#define TABLE(name)                                          \
    static const ebb_row_fn name##_rows[EBB_DTYPE_COUNT] = { \
        REALS(ENTRY, name) UNSIGNED(ENTRY, name) SIGNED(ENTRY, name)};

REALS(ROW_OF, neg, -x)
UNSIGNED(ROW_NEG, neg)
SIGNED(ROW_NEG, neg)
ROW(abs_f32, float, float, fabsf(x))
ROW(abs_f64, double, double, fabs(x))
UNSIGNED(ROW_OF, abs, x)
SIGNED(ROW_ABS, abs)
REALS(ROW_OF, sign, x > 0 ? 1 : x < 0 ? -1 : x)
UNSIGNED(ROW_OF, sign, x > 0)
SIGNED(ROW_OF, sign, (x > 0) - (x < 0))
/* x < 0 is false for NaN, which so stays NaN. */
REALS(ROW_OF, relu, x < 0 ? 0 : x)
UNSIGNED(ROW_OF, relu, x)
SIGNED(ROW_OF, relu, x < 0 ? 0 : x)
UNSIGNED(ROW_OF, bit_not, ~x)
SIGNED(ROW_OF, bit_not, ~x)
ROW(not_bool, uint8_t, uint8_t, x == 0)
ROW(is_nan_f32, float, uint8_t, x != x)
ROW(is_nan_f64, double, uint8_t, x != x)
ROW(is_inf_f32, float, uint8_t, (x == INFINITY && p[0] != 0) || (x == -INFINITY && p[1] != 0))
ROW(is_inf_f64, double, uint8_t, (x == INFINITY && p[0] != 0) || (x == -INFINITY && p[1] != 0))

TABLE(neg)
TABLE(abs)
TABLE(sign)
TABLE(relu)
static const ebb_row_fn bit_not_rows[EBB_DTYPE_COUNT] = {UNSIGNED(ENTRY, bit_not)
                                                             SIGNED(ENTRY, bit_not)};

static ebb_status run_table(const ebb_call *c, const ebb_row_fn *rows)
{
    const ebb_operand *in[1] = {&c->in[0]};
    ebb_plain_rows(&c->out[0], in, 1, rows[c->in[0].type.dtype], NULL);
    return NULL;
}

#define RUN_TABLE(name)                             \
    static ebb_status run_##name(const ebb_call *c) \
    {                                               \
        return run_table(c, name##_rows);           \
    }
RUN_TABLE(neg)
RUN_TABLE(abs)
RUN_TABLE(sign)
RUN_TABLE(relu)
RUN_TABLE(bit_not)

static ebb_status run_not(const ebb_call *c)
{
    return run(c, not_bool, not_bool, NULL);
}

static ebb_status run_is_nan(const ebb_call *c)
{
    return run(c, is_nan_f32, is_nan_f64, NULL);
}

static ebb_status run_is_inf(const ebb_call *c)
{
    const double p[2] = {(double)ebb_attr_int(&c->attrs, "detect_positive", 1),
                         (double)ebb_attr_int(&c->attrs, "detect_negative", 1)};
    return run(c, is_inf_f32, is_inf_f64, p);
}

/* ---- Clip: bounds by input (opset 11) or attribute; either may be absent ---- */

/* arg points to two elements of the data's type. min above max gives max, as numpy does. */
#define ROW_CLIP(dtype, T, U, suffix, name)                                                     \
    static void clip_##suffix(void *out, const void *const *in, const int64_t *step, int64_t n, \
                              const void *arg)                                                  \
    {                                                                                           \
        (void)step;                                                                             \
        const T low = ((const T *)arg)[0], high = ((const T *)arg)[1];                          \
        T *y = out;                                                                             \
        const T *x = in[0];                                                                     \
        EBB_SIMD                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                       \
            T v = x[i] < low ? low : x[i];                                                      \
            y[i] = v > high ? high : v;                                                         \
        }                                                                                       \
    }
REALS(ROW_CLIP, clip)
UNSIGNED(ROW_CLIP, clip)
SIGNED(ROW_CLIP, clip)
TABLE(clip)

#define OPEN_REAL(d, T, U, suffix, name)         \
    case d: {                                    \
        T open[2] = {-(T)INFINITY, (T)INFINITY}; \
        memcpy(bounds, open, sizeof open);       \
        break;                                   \
    }
#define OPEN_UNSIGNED(d, T, U, suffix, name) \
    case d: {                                \
        T open[2] = {0, (T)-1};              \
        memcpy(bounds, open, sizeof open);   \
        break;                               \
    }
#define OPEN_SIGNED(d, T, U, suffix, name)                                                 \
    case d: {                                                                              \
        T high = (T)(((U)1 << (sizeof(T) * 8 - 1)) - 1), open[2] = {(T)(-high - 1), high}; \
        memcpy(bounds, open, sizeof open);                                                 \
        break;                                                                             \
    }

static ebb_status run_clip(const ebb_call *c)
{
    ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    size_t size = ebb_element_bytes(&c->in[0].type);
    uint64_t bounds[2];
    switch (dtype) {
        REALS(OPEN_REAL, )
        UNSIGNED(OPEN_UNSIGNED, )
        SIGNED(OPEN_SIGNED, )
    default:
        break;
    }
    static const char *const names[2] = {"min", "max"};
    for (uint32_t k = 0; k < 2; k++) {
        char *to = (char *)bounds + k * size;
        const ebb_attr *attr = ebb_attr_find(&c->attrs, names[k]);
        if (ebb_call_has(c, 1 + k)) {
            if (ebb_elements(&c->in[1 + k].type) != 1)
                return ebb_call_error(c, "%s is not a scalar", names[k]);
            memcpy(to, c->in[1 + k].data, size);
        } else if (attr != NULL && dtype == EBB_F32) {
            float f = (float)attr->f;
            memcpy(to, &f, size);
        } else if (attr != NULL && dtype == EBB_F64) {
            memcpy(to, &attr->f, size);
        }
    }
    const ebb_operand *in[1] = {&c->in[0]};
    ebb_plain_rows(&c->out[0], in, 1, clip_rows[dtype], bounds);
    return NULL;
}

/* ---- PRelu: slope broadcast to x ---- */

#define ROW_PRELU(dtype, T, U, suffix, name)                                                     \
    static void prelu_##suffix(void *out, const void *const *in, const int64_t *step, int64_t n, \
                               const void *arg)                                                  \
    {                                                                                            \
        (void)arg;                                                                               \
        T *y = out;                                                                              \
        const T *x = in[0], *slope = in[1];                                                      \
        if (step[0] != 0 && step[1] == 0) {                                                      \
            T s = slope[0];                                                                      \
            EBB_SIMD                                                                             \
            for (int64_t i = 0; i < n; i++)                                                      \
                y[i] = (T)(x[i] < 0 ? (T)((U)s * (U)x[i]) : x[i]);                               \
        } else {                                                                                 \
            EBB_SIMD                                                                             \
            for (int64_t i = 0; i < n; i++)                                                      \
                y[i] = (T)(x[i * step[0]] < 0 ? (T)((U)slope[i * step[1]] * (U)x[i * step[0]])   \
                                              : x[i * step[0]]);                                 \
        }                                                                                        \
    }
REALS(ROW_PRELU, prelu)
SIGNED(ROW_PRELU, prelu)
static const ebb_row_fn prelu_rows[EBB_DTYPE_COUNT] = {REALS(ENTRY, prelu) SIGNED(ENTRY, prelu)};

static ebb_status run_prelu(const ebb_call *c)
{
    ebb_dtype dtype = (ebb_dtype)c->in[0].type.dtype;
    const ebb_operand *in[2] = {&c->in[0], &c->in[1]};
    if (dtype == EBB_U32 || dtype == EBB_U64 || dtype == EBB_U8 || dtype == EBB_U16) {
        ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->out[0].bytes); /* nothing is negative */
        return NULL;
    }
    ebb_plain_rows(&c->out[0], in, 2, prelu_rows[dtype], NULL);
    return NULL;
}

/* ---- declines ---- */

static const char *declines_bits(const ebb_call *c)
{
    return ebb_dtype_is_integer((ebb_dtype)c->in[0].type.dtype) ? ebb_call_any(c)
                                                                : "works on integers only";
}

static const char *declines_not(const ebb_call *c)
{
    return c->in[0].type.dtype == EBB_BOOL ? ebb_call_any(c) : "works on bool only";
}

#define KERNEL(op, name, declines)                                          \
    {                                                                       \
        "plain." #name, EBB_OP_##op, declines, NULL, NULL, run_##name, NULL \
    }

// clang-format off
const ebb_kernel ebb_plain_unary[] = {
    KERNEL(NOT,           not,          declines_not),
    KERNEL(BITWISE_NOT,   bit_not,      declines_bits),
    KERNEL(NEG,           neg,          ebb_plain_numbers),
    KERNEL(ABS,           abs,          ebb_plain_numbers),
    KERNEL(SIGN,          sign,         ebb_plain_numbers),
    KERNEL(RELU,          relu,         ebb_plain_numbers),
    KERNEL(CLIP,          clip,         ebb_plain_numbers),
    KERNEL(PRELU,         prelu,        ebb_plain_numbers),
    KERNEL(EXP,           exp,          ebb_plain_floats),
    KERNEL(LOG,           log,          ebb_plain_floats),
    KERNEL(SQRT,          sqrt,         ebb_plain_floats),
    KERNEL(RECIPROCAL,    reciprocal,   ebb_plain_floats),
    KERNEL(ERF,           erf,          ebb_plain_floats),
    KERNEL(SIN,           sin,          ebb_plain_floats),
    KERNEL(COS,           cos,          ebb_plain_floats),
    KERNEL(TAN,           tan,          ebb_plain_floats),
    KERNEL(ATAN,          atan,         ebb_plain_floats),
    KERNEL(ASIN,          asin,         ebb_plain_floats),
    KERNEL(ACOS,          acos,         ebb_plain_floats),
    KERNEL(SINH,          sinh,         ebb_plain_floats),
    KERNEL(COSH,          cosh,         ebb_plain_floats),
    KERNEL(ASINH,         asinh,        ebb_plain_floats),
    KERNEL(ACOSH,         acosh,        ebb_plain_floats),
    KERNEL(ATANH,         atanh,        ebb_plain_floats),
    KERNEL(SELU,          selu,         ebb_plain_floats),
    KERNEL(CELU,          celu,         ebb_plain_floats),
    KERNEL(SHRINK,        shrink,       ebb_plain_floats),
    KERNEL(SWISH,         swish,        ebb_plain_floats),
    KERNEL(FLOOR,         floor,        ebb_plain_floats),
    KERNEL(CEIL,          ceil,         ebb_plain_floats),
    KERNEL(ROUND,         round,        ebb_plain_floats),
    KERNEL(LEAKY_RELU,    leaky_relu,   ebb_plain_floats),
    KERNEL(THRESHOLDED_RELU, thresholded_relu, ebb_plain_floats),
    KERNEL(ELU,           elu,          ebb_plain_floats),
    KERNEL(SIGMOID,       sigmoid,      ebb_plain_floats),
    KERNEL(TANH,          tanh,         ebb_plain_floats),
    KERNEL(HARD_SIGMOID,  hard_sigmoid, ebb_plain_floats),
    KERNEL(HARD_SWISH,    hard_swish,   ebb_plain_floats),
    KERNEL(SOFTPLUS,      softplus,     ebb_plain_floats),
    KERNEL(SOFTSIGN,      softsign,     ebb_plain_floats),
    KERNEL(GELU,          gelu,         ebb_plain_floats),
    KERNEL(MISH,          mish,         ebb_plain_floats),
    KERNEL(IS_NAN,        is_nan,       ebb_plain_floats),
    KERNEL(IS_INF,        is_inf,       ebb_plain_floats),
    KERNEL(MS_GELU,       gelu,         ebb_plain_floats),
    KERNEL(MS_FAST_GELU,  fast_gelu,    declines_fast_gelu),
    KERNEL(MS_QUICK_GELU, quick_gelu,   ebb_plain_floats),
};
// clang-format on
EBB_PLAIN_COUNT(unary)
