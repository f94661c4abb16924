/* pointwise.c: the operators of kernels/math/pointwise.def: a row function for each operator and
 * dtype, made of its formula. ebb_plain_rows walks the broadcast.
 */
#include "kernels/call/pointwise.h"
#include "kernels/math/whole.h"
#include "kernels/plain/number.h"
#include "kernels/plain/vmath.h"

#include <math.h>

typedef struct arguments {
    double p, q;
    const void *scalar[2]; /* behind the tensors; NULL: absent */
} arguments;

/* ---- loops ---- */

#define MAYBE __attribute__((unused)) /* not every formula has it */
#define IS_REAL ((T)0.5 != 0)
#define SAME(v) (v)
#define TRUTH(v) ((v) != 0)
#define RESULT_NUMBER(TYPE) TYPE
#define RESULT_FLAG(TYPE) uint8_t
#define PLACED(R, v) ((R)(v))
#define TO_BF16(R, v) ebb_round_bf16(v)
#define TO_HALF(R, v) ebb_round_half(v)
#define PUT_NUMBER(PUT) PUT
#define PUT_FLAG(PUT) PLACED

#define TAKEN (void *out, const void *const *in, const int64_t *step, int64_t n, const void *arg)

/* A row computes in TYPE; in memory its elements are of type E, READ makes TYPE of them, PUT makes R, the
 * type of the result, of what was computed.
 *
 * The words that are the same for all elements, and the scalars behind the tensors. */
#define BEGIN(TYPE, WIDE, SIGN, R)                                     \
    typedef TYPE T;                                                    \
    typedef WIDE U MAYBE;                                              \
    enum { SIGNED = SIGN, BITS = 8 * sizeof(T) };                      \
    const arguments *given = arg;                                      \
    const T p MAYBE = (T)(IS_REAL ? (T)given->p : (T)(given->p != 0)); \
    const T q MAYBE = (T)(IS_REAL ? (T)given->q : (T)(given->q != 0)); \
    R *to = out;                                                       \
    (void)step;
#define SCALARS(E, READ, low, high)                       \
    const U half MAYBE = SIGNED ? (U)1 << (BITS - 1) : 0; \
    T low MAYBE = (T)(IS_REAL ? (T)given->p : (T)half);   \
    T high MAYBE = (T)(IS_REAL ? (T)given->q : (T)~half); \
    if (given->scalar[0] != NULL)                         \
        low = READ(*(const E *)given->scalar[0]);         \
    if (given->scalar[1] != NULL)                         \
        high = READ(*(const E *)given->scalar[1]);

#define EACH(DECLARED, value)         \
    EBB_SIMD                          \
    for (int64_t i = 0; i < n; i++) { \
        DECLARED;                     \
        to[i] = value;                \
    }

#define ROW_ONE(fn, TYPE, E, WIDE, SIGN, READ, R, PUT, value) \
    static void fn TAKEN                                      \
    {                                                         \
        BEGIN(TYPE, WIDE, SIGN, R)                            \
        SCALARS(E, READ, y, z)                                \
        const E *a = in[0];                                   \
        EACH(const T x = READ(a[i]), PUT(R, value))           \
    }

#define ROW_PAIR(fn, TYPE, E, WIDE, SIGN, READ, R, PUT, value)              \
    static void fn TAKEN                                                    \
    {                                                                       \
        BEGIN(TYPE, WIDE, SIGN, R)                                          \
        SCALARS(E, READ, z, w)                                              \
        const E *a = in[0], *b = in[1];                                     \
        EACH(const T x = READ(a[i]); const T y = READ(b[i]), PUT(R, value)) \
    }

#define ROW_TWO(fn, TYPE, E, WIDE, SIGN, READ, R, PUT, value)                   \
    static void fn TAKEN                                                        \
    {                                                                           \
        BEGIN(TYPE, WIDE, SIGN, R)                                              \
        const E *a = in[0], *b = in[1];                                         \
        const T z MAYBE = (T)-0.0, w MAYBE = (T)-0.0; /* of MANY */             \
        if (step[0] != 0 && step[1] != 0) {                                     \
            EACH(const T x = READ(a[i]); const T y = READ(b[i]), PUT(R, value)) \
        } else if (step[0] != 0) {                                              \
            const T y = READ(b[0]);                                             \
            EACH(const T x = READ(a[i]), PUT(R, value))                         \
        } else if (step[1] != 0) {                                              \
            const T x = READ(a[0]);                                             \
            EACH(const T y = READ(b[i]), PUT(R, value))                         \
        } else {                                                                \
            const T x = READ(a[0]), y = READ(b[0]);                             \
            const R same = PUT(R, value);                                       \
            EACH(, same)                                                        \
        }                                                                       \
    }
#define ROW_MANY ROW_TWO

/* X(dtype, its suffix, type, U, SIGNED, READ, ...) for each dtype that an operator has. */
// clang-format off
#define ON_WHOLES(X, ...)                                 \
    X(U8, u8, uint8_t, uint32_t, 0, SAME, __VA_ARGS__)    \
    X(U16, u16, uint16_t, uint32_t, 0, SAME, __VA_ARGS__) \
    X(U32, u32, uint32_t, uint32_t, 0, SAME, __VA_ARGS__) \
    X(U64, u64, uint64_t, uint64_t, 0, SAME, __VA_ARGS__) \
    X(I8, i8, int8_t, uint32_t, 1, SAME, __VA_ARGS__)     \
    X(I16, i16, int16_t, uint32_t, 1, SAME, __VA_ARGS__)  \
    X(I32, i32, int32_t, uint32_t, 1, SAME, __VA_ARGS__)  \
    X(I64, i64, int64_t, uint64_t, 1, SAME, __VA_ARGS__)
#define ON_FLAGS(X, ...) X(BOOL, flag, uint8_t, uint32_t, 0, TRUTH, __VA_ARGS__)
#define ON_REALS(X, ...)                              \
    X(F32, f32, float, uint64_t, 1, SAME, __VA_ARGS__) \
    X(F64, f64, double, uint64_t, 1, SAME, __VA_ARGS__)
// clang-format on

static ebb_operand exponents(const void *data, const void *dtype)
{
    ebb_operand o = {.type.dtype = *(const uint8_t *)dtype};
    memcpy(&o.data, &data, sizeof data); // only read
    return o;
}

/* Floats: included once for each type, since functions and words have names of their own. */
#define ROW_POWER(...)
#define LOOPS "kernels/plain/elements/pointwise_loops.inc"
#include "kernels/plain/both_floats.inc"

/* Integers and flags, which are seldom many: one loop for every broadcast, a quarter of the code. */
#define WHOLE_ONE ROW_ONE
#define WHOLE_PAIR ROW_PAIR
#define WHOLE_TWO(fn, TYPE, E, WIDE, SIGN, READ, R, PUT, value)         \
    static void fn TAKEN                                                \
    {                                                                   \
        BEGIN(TYPE, WIDE, SIGN, R)                                      \
        const E *a = in[0], *b = in[1];                                 \
        const T z MAYBE = (T)-0.0, w MAYBE = (T)-0.0; /* of MANY */     \
        for (int64_t i = 0; i < n; i++) {                               \
            const T x = READ(a[i * step[0]]), y = READ(b[i * step[1]]); \
            to[i] = PUT(R, value);                                      \
        }                                                               \
    }
#define WHOLE_MANY WHOLE_TWO

/* A base to an integer power, or to one of a float type: arg is the exponent's dtype. */
#define WHOLE_POWER(fn, TYPE, E, WIDE, SIGN, READ, R, PUT, value)                    \
    static void fn TAKEN                                                             \
    {                                                                                \
        const TYPE *a = in[0];                                                       \
        TYPE *to = out;                                                              \
        const ebb_operand by = exponents(in[1], arg);                                \
        const bool whole = ebb_dtype_is_integer((ebb_dtype)by.type.dtype);           \
        int64_t y = 0;                                                               \
        double real = 0;                                                             \
        for (int64_t i = 0; i < n; i++) {                                            \
            const TYPE x = a[i * step[0]];                                           \
            if (whole && (i == 0 || step[1] != 0))                                   \
                y = (int64_t)ebb_plain_word(&by, i * step[1]);                       \
            else if (i == 0 || step[1] != 0)                                         \
                real = ebb_plain_real(&by, i * step[1]);                             \
            to[i] = (TYPE)(whole ? (value) : ebb_whole_real_power((double)x, real)); \
        }                                                                            \
    }

#define WHOLE(dtype, suffix, TYPE, WIDE, SIGN, READ, ROW, op, result, value) \
    ROW(op##_##suffix, TYPE, TYPE, WIDE, SIGN, READ, RESULT_##result(TYPE), PLACED, value)
#define POINTWISE(op, name, kind, inputs, dtypes, result, p, q, real, whole)  \
    EBB_WHOLES_OF_##dtypes(ON_WHOLES, WHOLE, WHOLE_##kind, op, result, whole) \
        EBB_FLAGS_OF_##dtypes(ON_FLAGS, WHOLE, WHOLE_##kind, op, result, whole)
#include "kernels/math/pointwise.def"

/* Floats of 16 bits: by the formulas of float32, rounded once. */
#define REAL_BITS 32
#include "kernels/math/words.h"
#define HALF_ONE ROW_ONE
#define HALF_PAIR ROW_PAIR
#define HALF_TWO ROW_TWO
#define HALF_MANY ROW_TWO
#define HALF_POWER(...)
#define POINTWISE(op, name, kind, inputs, dtypes, result, p, q, real, whole)                      \
    EBB_REALS_OF_##dtypes(HALF_##kind, op##_bf16, float, uint16_t, uint64_t, 1, ebb_wide_bf16,    \
                          RESULT_##result(uint16_t), PUT_##result(TO_BF16), real)                 \
        EBB_REALS_OF_##dtypes(HALF_##kind, op##_f16, float, uint16_t, uint64_t, 1, ebb_wide_half, \
                              RESULT_##result(uint16_t), PUT_##result(TO_HALF), real)
#include "kernels/math/pointwise.def"
#define REAL_BITS 0
#include "kernels/math/words.h"

#define ENTRY(dtype, suffix, TYPE, WIDE, SIGN, READ, op) [EBB_##dtype] = op##_##suffix,
#define HALVES_ONE(op) [EBB_BF16] = op##_bf16, [EBB_F16] = op##_f16,
#define HALVES_PAIR HALVES_ONE
#define HALVES_TWO HALVES_ONE
#define HALVES_MANY HALVES_ONE
#define HALVES_POWER(op)
static const ebb_row_fn rows[EBB_FORMULA_COUNT][EBB_DTYPE_COUNT] = {
#define POINTWISE(op, name, kind, inputs, dtypes, ...)                         \
    [EBB_FORMULA_##op] = {[EBB_NONE] = NULL,                                   \
                          EBB_REALS_OF_##dtypes(ON_REALS, ENTRY, op)           \
                              EBB_REALS_OF_##dtypes(HALVES_##kind, op)         \
                                  EBB_WHOLES_OF_##dtypes(ON_WHOLES, ENTRY, op) \
                                      EBB_FLAGS_OF_##dtypes(ON_FLAGS, ENTRY, op)},
#include "kernels/math/pointwise.def"
};

/* ---- Where ---- */

#define WHERE(T, size)                                                          \
    static void where_##size TAKEN                                              \
    {                                                                           \
        (void)arg;                                                              \
        T *to = out;                                                            \
        const uint8_t *on = in[0];                                              \
        const T *a = in[1], *b = in[2];                                         \
        if (step[0] != 0 && step[1] != 0 && step[2] != 0) {                     \
            EACH(T u = a[i]; T v = b[i], on[i] != 0 ? u : v)                    \
        } else if (step[0] != 0 && step[1] != 0) {                              \
            T v = b[0];                                                         \
            EACH(T u = a[i], on[i] != 0 ? u : v)                                \
        } else if (step[0] != 0 && step[2] != 0) {                              \
            T u = a[0];                                                         \
            EACH(T v = b[i], on[i] != 0 ? u : v)                                \
        } else {                                                                \
            for (int64_t i = 0; i < n; i++)                                     \
                to[i] = on[i * step[0]] != 0 ? a[i * step[1]] : b[i * step[2]]; \
        }                                                                       \
    }
WHERE(uint8_t, 1)
WHERE(uint16_t, 2)
WHERE(uint32_t, 4)
WHERE(uint64_t, 8)

static ebb_status run_where(const ebb_call *c)
{
    const ebb_operand *in[3] = {&c->in[0], &c->in[1], &c->in[2]};
    const size_t size = ebb_element_bytes(&c->out[0].type);
    ebb_plain_rows(&c->out[0], in, 3,
                   size == 1   ? where_1
                   : size == 2 ? where_2
                   : size == 4 ? where_4
                               : where_8,
                   NULL);
    return NULL;
}

/* ---- the others ---- */

/* A zero among integer divisors, as an error; floats divide by zero as IEEE says. */
static ebb_status check_divisor(const ebb_call *c)
{
    const ebb_operand *b = &c->in[1];
    if ((c->op != EBB_OP_DIV && c->op != EBB_OP_MOD) ||
        !ebb_dtype_is_integer((ebb_dtype)b->type.dtype) || ebb_elements(&c->out[0].type) == 0)
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

/* out = in[0] op in[1], then out = out op in[k]: so out may share memory with inputs 0 and 1. */
static ebb_status run_many(const ebb_call *c, ebb_row_fn last, const arguments *a)
{
    const ebb_operand *out = &c->out[0], *in[2] = {&c->in[0], NULL};
    const ebb_row_fn fn =
        c->op == EBB_OP_MEAN ? rows[EBB_FORMULA_SUM][out->type.dtype] : last; // divided once
    if (c->input_count == 1)
        ebb_plain_memcpy(out->data, c->in[0].data, out->bytes);
    for (uint32_t k = 1; k < c->input_count; k++, in[0] = out) {
        in[1] = &c->in[k];
        ebb_plain_rows(out, in, 2, k + 1 < c->input_count ? fn : last, a);
    }
    return NULL;
}

ebb_status ebb_plain_formula(const ebb_call *c)
{
    ebb_formula_use use;
    (void)ebb_formula_of(c, &use);
    const ebb_formula_kind kind = ebb_formula_rows[use.formula].kind;
    const ebb_row_fn fn = rows[use.formula][c->in[0].type.dtype];
    const ebb_operand *in[2] = {c->in, c->in + 1};
    const uint32_t tensors = kind == EBB_FORMULA_ONE ? 1 : 2;
    arguments a = {use.p, use.q, {NULL, NULL}};
    if (kind == EBB_FORMULA_CHOICE)
        return run_where(c);
    if (kind == EBB_FORMULA_MANY)
        return run_many(c, fn, &a);
    EBB_TRY(check_divisor(c));
    EBB_TRY(ebb_formula_check(c, use.formula));
    for (uint32_t k = 0; k < 2; k++)
        a.scalar[k] = ebb_call_has(c, tensors + k) ? c->in[tensors + k].data : NULL;
    ebb_plain_rows(&c->out[0], in, (int)tensors, fn,
                   kind == EBB_FORMULA_POWER ? (const void *)&in[1]->type.dtype : &a);
    return NULL;
}

static const char *declines(const ebb_call *c)
{
    return ebb_formula_misfit(c, false);
}

// clang-format off
const ebb_kernel ebb_plain_pointwise[] = {
#define POINTWISE(id, word, ...) {.name = "plain." #word, .op = EBB_OP_##id, .fits = declines, .run = ebb_plain_formula},
#include "kernels/math/pointwise.def"
};
// clang-format on
EBB_PLAIN_COUNT(pointwise)
