/* pointwise.c: operators of two and more inputs, broadcast: arithmetic, comparison, logic, bits,
 * Where.
 *
 * One row function per operator and dtype, made by macro; ebb_plain_rows walks the broadcast.
 * Integers wrap around: they are computed unsigned, where C defines it.
 */
#include "kernels/plain/plain.h"

#include <limits.h>
#include <math.h>

/* X(dtype, type, unsigned type at least as wide as unsigned, suffix) */
#define FLOATS(X, ...) \
    X(EBB_F32, float, float, f32, __VA_ARGS__) X(EBB_F64, double, double, f64, __VA_ARGS__)
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
#define INTS(X, ...) UNSIGNED(X, __VA_ARGS__) SIGNED(X, __VA_ARGS__)
#define BOOLS(X, ...) X(EBB_BOOL, uint8_t, uint32_t, flag, __VA_ARGS__)

#define LOOP(T, R, EXPR)                      \
    {                                         \
        (void)arg;                            \
        R *y = out;                           \
        const T *p = in[0], *q = in[1];       \
        if (step[0] != 0 && step[1] != 0) {   \
            EBB_SIMD                          \
            for (int64_t i = 0; i < n; i++) { \
                T a = p[i], b = q[i];         \
                y[i] = (R)(EXPR);             \
            }                                 \
        } else if (step[0] != 0) {            \
            T b = q[0];                       \
            EBB_SIMD                          \
            for (int64_t i = 0; i < n; i++) { \
                T a = p[i];                   \
                y[i] = (R)(EXPR);             \
            }                                 \
        } else if (step[1] != 0) {            \
            T a = p[0];                       \
            EBB_SIMD                          \
            for (int64_t i = 0; i < n; i++) { \
                T b = q[i];                   \
                y[i] = (R)(EXPR);             \
            }                                 \
        } else {                              \
            T a = p[0], b = q[0];             \
            R v = (R)(EXPR);                  \
            for (int64_t i = 0; i < n; i++)   \
                y[i] = v;                     \
        }                                     \
    }

#define ROW(dtype, T, U, suffix, name, R, EXPR)                                                   \
    static void name##_##suffix(void *out, const void *const *in, const int64_t *step, int64_t n, \
                                const void *arg) LOOP(T, R, EXPR)
#define ENTRY(dtype, T, U, suffix, name) [dtype] = name##_##suffix,

/* The result has the operands' type / is a bool. */
#define ROW_SAME(dtype, T, U, suffix, name, EXPR) ROW(dtype, T, U, suffix, name, T, EXPR)
#define ROW_UNSIGNED(dtype, T, U, suffix, name, OP) \
    ROW(dtype, T, U, suffix, name, T, (U)((U)a OP(U) b))
#define ROW_BOOL(dtype, T, U, suffix, name, EXPR) ROW(dtype, T, U, suffix, name, uint8_t, EXPR)

/* Divisors are not zero: the caller has looked. The one quotient that does not fit wraps. */
static int64_t quotient(int64_t a, int64_t b)
{
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t rest(int64_t a, int64_t b)
{
    return b == -1 ? 0 : a % b;
}

static int64_t floor_rest(int64_t a, int64_t b)
{
    int64_t r = rest(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static double floor_fmod(double a, double b)
{
    double r = fmod(a, b);
    return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}

FLOATS(ROW_SAME, add, a + b)
INTS(ROW_UNSIGNED, add, +)
FLOATS(ROW_SAME, sub, a - b)
INTS(ROW_UNSIGNED, sub, -)
FLOATS(ROW_SAME, mul, a *b)
INTS(ROW_UNSIGNED, mul, *)
FLOATS(ROW_SAME, div, a / b)
UNSIGNED(ROW_SAME, div, a / b)
SIGNED(ROW_SAME, div, quotient(a, b))
/* A NaN on either side is the result, as in numpy and PyTorch. */
FLOATS(ROW_SAME, max, a > b || a != a ? a : b)
INTS(ROW_SAME, max, a > b ? a : b)
FLOATS(ROW_SAME, min, a < b || a != a ? a : b)
INTS(ROW_SAME, min, a < b ? a : b)

FLOATS(ROW_BOOL, equal, a == b)
INTS(ROW_BOOL, equal, a == b)
BOOLS(ROW_BOOL, equal, (a != 0) == (b != 0))
FLOATS(ROW_BOOL, greater, a > b)
INTS(ROW_BOOL, greater, a > b)
FLOATS(ROW_BOOL, greater_equal, a >= b)
INTS(ROW_BOOL, greater_equal, a >= b)
FLOATS(ROW_BOOL, less, a < b)
INTS(ROW_BOOL, less, a < b)
FLOATS(ROW_BOOL, less_equal, a <= b)
INTS(ROW_BOOL, less_equal, a <= b)

BOOLS(ROW_BOOL, and, (a != 0) & (b != 0))
BOOLS(ROW_BOOL, or, (a != 0) | (b != 0))
BOOLS(ROW_BOOL, xor, (a != 0) ^ (b != 0))
INTS(ROW_UNSIGNED, bit_and, &)
INTS(ROW_UNSIGNED, bit_or, |)
INTS(ROW_UNSIGNED, bit_xor, ^)
INTS(ROW_SAME, shift_left, (uint64_t)b < sizeof a * CHAR_BIT ? (uint64_t)a << b : 0)
INTS(ROW_SAME, shift_right, (uint64_t)b < sizeof a * CHAR_BIT ? (uint64_t)a >> b : 0)

/* Mod: the sign of the divisor (Python's), or with fmod = 1 of the dividend (C's). */
FLOATS(ROW_SAME, fmod, fmod((double)a, (double)b))
UNSIGNED(ROW_SAME, fmod, a % b)
SIGNED(ROW_SAME, fmod, rest(a, b))
FLOATS(ROW_SAME, mod, floor_fmod((double)a, (double)b))
UNSIGNED(ROW_SAME, mod, a % b)
SIGNED(ROW_SAME, mod, floor_rest(a, b))

#define NUMBER_TABLE(name) \
    static const ebb_row_fn name##_rows[EBB_DTYPE_COUNT] = {FLOATS(ENTRY, name) INTS(ENTRY, name)};
#define INT_TABLE(name) static const ebb_row_fn name##_rows[EBB_DTYPE_COUNT] = {INTS(ENTRY, name)};
#define BOOL_TABLE(name) \
    static const ebb_row_fn name##_rows[EBB_DTYPE_COUNT] = {BOOLS(ENTRY, name)};

NUMBER_TABLE(add)
NUMBER_TABLE(sub)
NUMBER_TABLE(mul)
NUMBER_TABLE(div)
NUMBER_TABLE(max)
NUMBER_TABLE(min)
NUMBER_TABLE(mod)
NUMBER_TABLE(fmod)
NUMBER_TABLE(greater)
NUMBER_TABLE(greater_equal)
NUMBER_TABLE(less)
NUMBER_TABLE(less_equal)
static const ebb_row_fn equal_rows[EBB_DTYPE_COUNT] = {FLOATS(ENTRY, equal) INTS(ENTRY, equal)
                                                           BOOLS(ENTRY, equal)};
INT_TABLE(bit_and)
INT_TABLE(bit_or)
INT_TABLE(bit_xor)
INT_TABLE(shift_left)
INT_TABLE(shift_right)
BOOL_TABLE(and)
BOOL_TABLE(or)
BOOL_TABLE(xor)

/* ---- two inputs ---- */

static ebb_status run_rows(const ebb_call *c, const ebb_row_fn *rows)
{
    const ebb_operand *in[2] = {&c->in[0], &c->in[1]};
    ebb_plain_rows(&c->out[0], in, 2, rows[c->in[0].type.dtype], NULL);
    return NULL;
}

#define RUN_TWO(name)                               \
    static ebb_status run_##name(const ebb_call *c) \
    {                                               \
        return run_rows(c, name##_rows);            \
    }
RUN_TWO(add)
RUN_TWO(sub)
RUN_TWO(mul)
RUN_TWO(equal)
RUN_TWO(greater)
RUN_TWO(greater_equal)
RUN_TWO(less)
RUN_TWO(less_equal)
RUN_TWO(and)
RUN_TWO(or)
RUN_TWO(xor)
RUN_TWO(bit_and)
RUN_TWO(bit_or)
RUN_TWO(bit_xor)

/* A zero among integer divisors, as an error; floats divide by zero as IEEE says. */
static ebb_status check_divisor(const ebb_call *c)
{
    const ebb_operand *b = &c->in[1];
    if (!ebb_dtype_is_integer((ebb_dtype)b->type.dtype) || ebb_elements(&c->out[0].type) == 0)
        return NULL;
    static const uint64_t zero;
    size_t size = ebb_element_bytes(&b->type);
    int64_t n = ebb_elements(&b->type);
    for (int64_t i = 0; i < n; i++)
        if (memcmp((const char *)b->data + (size_t)i * size, &zero, size) == 0)
            return ebb_call_error(c, "integer division by zero: divisor at position %lld",
                                  (long long)i);
    return NULL;
}

static ebb_status run_div(const ebb_call *c)
{
    EBB_TRY(check_divisor(c));
    return run_rows(c, div_rows);
}

static ebb_status run_mod(const ebb_call *c)
{
    EBB_TRY(check_divisor(c));
    return run_rows(c, ebb_attr_int(&c->attrs, "fmod", 0) != 0 ? fmod_rows : mod_rows);
}

static ebb_status run_bit_shift(const ebb_call *c)
{
    bool left = strcmp(ebb_attr_string(&c->attrs, "direction", ""), "LEFT") == 0;
    return run_rows(c, left ? shift_left_rows : shift_right_rows);
}

/* ---- Pow ---- */

/* Base and exponent may differ in dtype; the result has the base's. arg: the exponent's dtype. */
static double exponent_at(const void *p, int64_t i, ebb_dtype dtype)
{
#define LOAD(d, T, U, suffix, ...) \
    case d:                        \
        return (double)((const T *)p)[i];
    switch (dtype) {
        FLOATS(LOAD, )
        INTS(LOAD, )
    default:
        return 0.0;
    }
}

static int64_t integer_power(int64_t base, int64_t exponent)
{
    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
    uint64_t result = 1, square = (uint64_t)base;
    for (; exponent > 0; exponent >>= 1, square *= square)
        if ((exponent & 1) != 0)
            result *= square;
    return (int64_t)result;
}

#define EACH(EXPR)                      \
    {                                   \
        EBB_SIMD                        \
        for (int64_t i = 0; i < n; i++) \
            y[i] = EXPR;                \
        return;                         \
    }

#define POW_FLOAT(T, suffix, power, root)                                                      \
    static void pow_##suffix(void *out, const void *const *in, const int64_t *step, int64_t n, \
                             const void *arg)                                                  \
    {                                                                                          \
        T *y = out;                                                                            \
        const T *x = in[0];                                                                    \
        ebb_dtype dtype = *(const ebb_dtype *)arg;                                             \
        if (step[1] == 0 && step[0] != 0) {                                                    \
            double e = exponent_at(in[1], 0, dtype);                                           \
            if (e == 2.0)                                                                      \
                EACH(x[i] * x[i])                                                              \
            if (e == 3.0)                                                                      \
                EACH(x[i] * x[i] * x[i])                                                       \
            if (e == 1.0)                                                                      \
                EACH(x[i])                                                                     \
            if (e == -1.0)                                                                     \
                EACH((T)1 / x[i])                                                              \
            if (e == 0.5)                                                                      \
                EACH(root(x[i]))                                                               \
        }                                                                                      \
        for (int64_t i = 0; i < n; i++)                                                        \
            y[i] = power(x[i * step[0]], (T)exponent_at(in[1], i * step[1], dtype));           \
    }
POW_FLOAT(float, f32, powf, sqrtf)
POW_FLOAT(double, f64, pow, sqrt)

static int64_t integer_at(const void *p, int64_t i, ebb_dtype dtype)
{
#define LOAD_INT(d, T, U, suffix, ...) \
    case d:                            \
        return (int64_t)((const T *)p)[i];
    switch (dtype) {
        INTS(LOAD_INT, )
    default:
        return 0;
    }
}

/* Integer to a float power: truncated, and held inside the type. */
static int64_t rounded_power(double base, double exponent)
{
    double v = trunc(pow(base, exponent));
    return v != v ? 0 : v >= 9.2e18 ? INT64_MAX : v <= -9.2e18 ? INT64_MIN : (int64_t)v;
}

#define POW_INT(d, T, U, suffix, ...)                                                          \
    static void pow_##suffix(void *out, const void *const *in, const int64_t *step, int64_t n, \
                             const void *arg)                                                  \
    {                                                                                          \
        T *y = out;                                                                            \
        const T *x = in[0];                                                                    \
        ebb_dtype dtype = *(const ebb_dtype *)arg;                                             \
        bool whole = ebb_dtype_is_integer(dtype);                                              \
        for (int64_t i = 0; i < n; i++) {                                                      \
            int64_t at = i * step[1];                                                          \
            T base = x[i * step[0]];                                                           \
            y[i] = (T)(whole ? integer_power((int64_t)base, integer_at(in[1], at, dtype))      \
                             : rounded_power((double)base, exponent_at(in[1], at, dtype)));    \
        }                                                                                      \
    }
INTS(POW_INT, )

static const ebb_row_fn pow_rows[EBB_DTYPE_COUNT] = {FLOATS(ENTRY, pow) INTS(ENTRY, pow)};

static ebb_status run_pow(const ebb_call *c)
{
    const ebb_operand *in[2] = {&c->in[0], &c->in[1]};
    ebb_dtype dtype = (ebb_dtype)c->in[1].type.dtype;
    ebb_plain_rows(&c->out[0], in, 2, pow_rows[c->in[0].type.dtype], &dtype);
    return NULL;
}

static const char *declines_pow(const ebb_call *c)
{
    const char *why = ebb_call_any(c);
    if (why != NULL)
        return why;
    for (uint32_t i = 0; i < 2; i++)
        if (pow_rows[c->in[i].type.dtype] == NULL)
            return "computes with float32, float64 and integers only";
    return NULL;
}

/* ---- any number of inputs ---- */

/* out = in[0] op in[1], then out = out op in[k]: so out may share memory with inputs 0 and 1. */
static ebb_status run_many(const ebb_call *c, const ebb_row_fn *rows)
{
    ebb_row_fn fn = rows[c->in[0].type.dtype];
    const ebb_operand *out = &c->out[0];
    if (c->input_count == 1) {
        ebb_plain_memcpy(out->data, c->in[0].data, out->bytes);
        return NULL;
    }
    const ebb_operand *in[2] = {&c->in[0], &c->in[1]};
    ebb_plain_rows(out, in, 2, fn, NULL);
    for (uint32_t k = 2; k < c->input_count; k++) {
        in[0] = out;
        in[1] = &c->in[k];
        ebb_plain_rows(out, in, 2, fn, NULL);
    }
    return NULL;
}

static ebb_status run_max(const ebb_call *c)
{
    return run_many(c, max_rows);
}

static ebb_status run_min(const ebb_call *c)
{
    return run_many(c, min_rows);
}

static ebb_status run_sum(const ebb_call *c)
{
    return run_many(c, add_rows);
}

static ebb_status run_mean(const ebb_call *c)
{
    EBB_TRY(run_many(c, add_rows));
    float count32 = (float)c->input_count;
    double count64 = (double)c->input_count;
    bool single = c->out[0].type.dtype == EBB_F32;
    ebb_operand count = {.type = ebb_type_tensor(single ? EBB_F32 : EBB_F64, 0, NULL),
                         .data = single ? (void *)&count32 : (void *)&count64};
    const ebb_operand *in[2] = {&c->out[0], &count};
    ebb_plain_rows(&c->out[0], in, 2, div_rows[c->out[0].type.dtype], NULL);
    return NULL;
}

/* ---- Where ---- */

#define WHERE(T, suffix)                                                                         \
    static void where_##suffix(void *out, const void *const *in, const int64_t *step, int64_t n, \
                               const void *arg)                                                  \
    {                                                                                            \
        (void)arg;                                                                               \
        T *y = out;                                                                              \
        const uint8_t *p = in[0];                                                                \
        const T *a = in[1], *b = in[2];                                                          \
        if (step[0] != 0 && step[1] != 0 && step[2] != 0) {                                      \
            EBB_SIMD                                                                             \
            for (int64_t i = 0; i < n; i++) {                                                    \
                T u = a[i], v = b[i];                                                            \
                y[i] = p[i] != 0 ? u : v;                                                        \
            }                                                                                    \
        } else if (step[0] != 0 && step[1] != 0) {                                               \
            T v = b[0];                                                                          \
            EBB_SIMD                                                                             \
            for (int64_t i = 0; i < n; i++) {                                                    \
                T u = a[i];                                                                      \
                y[i] = p[i] != 0 ? u : v;                                                        \
            }                                                                                    \
        } else if (step[0] != 0 && step[2] != 0) {                                               \
            T u = a[0];                                                                          \
            EBB_SIMD                                                                             \
            for (int64_t i = 0; i < n; i++) {                                                    \
                T v = b[i];                                                                      \
                y[i] = p[i] != 0 ? u : v;                                                        \
            }                                                                                    \
        } else {                                                                                 \
            for (int64_t i = 0; i < n; i++)                                                      \
                y[i] = p[i * step[0]] != 0 ? a[i * step[1]] : b[i * step[2]];                    \
        }                                                                                        \
    }
WHERE(uint8_t, 1)
WHERE(uint16_t, 2)
WHERE(uint32_t, 4)
WHERE(uint64_t, 8)

static ebb_status run_where(const ebb_call *c)
{
    const ebb_operand *in[3] = {&c->in[0], &c->in[1], &c->in[2]};
    size_t size = ebb_element_bytes(&c->out[0].type);
    ebb_plain_rows(&c->out[0], in, 3,
                   size == 1   ? where_1
                   : size == 2 ? where_2
                   : size == 4 ? where_4
                               : where_8,
                   NULL);
    return NULL;
}

static const char *declines_where(const ebb_call *c)
{
    const char *why = ebb_call_any(c);
    return why != NULL                              ? why
           : ebb_element_bytes(&c->out[0].type) > 8 ? "elements are wider than 8 bytes"
                                                    : NULL;
}

/* ---- declines ---- */

/* All inputs of one dtype, one of the operator's table. */
static const char *declines_but(const ebb_call *c, const ebb_row_fn *rows)
{
    const char *why = ebb_call_any(c);
    if (why != NULL)
        return why;
    for (uint32_t i = 0; i < c->input_count; i++) {
        if (c->in[i].type.dtype != c->in[0].type.dtype)
            return "inputs differ in dtype";
        if (rows[c->in[i].type.dtype] == NULL)
            return "does not compute in this dtype";
    }
    return NULL;
}

#define DECLINES(what, table)                             \
    static const char *declines_##what(const ebb_call *c) \
    {                                                     \
        return declines_but(c, table##_rows);             \
    }
DECLINES(arithmetic, add)
DECLINES(equal, equal)
DECLINES(logic, and)
DECLINES(bits, bit_and)

static const char *declines_mean(const ebb_call *c)
{
    const char *why = declines_arithmetic(c);
    return why != NULL ? why : ebb_plain_floats(c);
}

#define KERNEL(op, name, declines)                                          \
    {                                                                       \
        "plain." #name, EBB_OP_##op, declines, NULL, NULL, run_##name, NULL \
    }

// clang-format off
const ebb_kernel ebb_plain_pointwise[] = {
    KERNEL(ADD,              add,           declines_arithmetic),
    KERNEL(SUB,              sub,           declines_arithmetic),
    KERNEL(MUL,              mul,           declines_arithmetic),
    KERNEL(DIV,              div,           declines_arithmetic),
    KERNEL(POW,              pow,           declines_pow),
    KERNEL(MOD,              mod,           declines_arithmetic),
    KERNEL(MAX,              max,           declines_arithmetic),
    KERNEL(MIN,              min,           declines_arithmetic),
    KERNEL(SUM,              sum,           declines_arithmetic),
    KERNEL(MEAN,             mean,          declines_mean),
    KERNEL(AND,              and,           declines_logic),
    KERNEL(OR,               or,            declines_logic),
    KERNEL(XOR,              xor,           declines_logic),
    KERNEL(EQUAL,            equal,         declines_equal),
    KERNEL(GREATER,          greater,       declines_arithmetic),
    KERNEL(GREATER_OR_EQUAL, greater_equal, declines_arithmetic),
    KERNEL(LESS,             less,          declines_arithmetic),
    KERNEL(LESS_OR_EQUAL,    less_equal,    declines_arithmetic),
    KERNEL(BITWISE_AND,      bit_and,       declines_bits),
    KERNEL(BITWISE_OR,       bit_or,        declines_bits),
    KERNEL(BITWISE_XOR,      bit_xor,       declines_bits),
    KERNEL(BIT_SHIFT,        bit_shift,     declines_bits),
    KERNEL(WHERE,            where,         declines_where),
};
// clang-format on
EBB_PLAIN_COUNT(pointwise)
