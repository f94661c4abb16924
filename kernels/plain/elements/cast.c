/* cast.c: Cast and CastLike among floats (64 to 4 bits), integers (64 to 2 bits) and bool.
 *
 * A piece is read into int64 or double and written from there, so that there are 2 x 22 loops and
 * not 22 x 22; but float32 and 16 bits go straight into each other. Float to integer truncates; what
 * does not fit takes the nearest end, NaN becomes 0; but integers of 4 and 2 bits keep the low bits
 * of what float was truncated to, as ONNX has it. Every number is rounded once. Integer to integer
 * keeps the low bits. To bool: everything but zero is true. Pieces begin at whole bytes in every
 * dtype.
 */
#include "kernels/plain/halves.h"
#include "kernels/math/round_once.h"
#include "kernels/plain/plain.h"

enum { PIECE = 512 };

typedef struct casting {
    ebb_dtype from, to;
    bool saturate;
    ebb_rounding rounding;
} casting;

typedef union piece {
    int64_t i[PIECE];
    double d[PIECE];
} piece;

#define READ(d_, T, member)             \
    case d_: {                          \
        const T *x = from;              \
        for (int64_t i = 0; i < n; i++) \
            p->member[i] = (T)x[i];     \
        break;                          \
    }

static bool reads_real(ebb_dtype dtype)
{
    return ebb_dtype_is_float(dtype) || ebb_dtype_is_small_float(dtype);
}

/* Floats of 8 and 4 bits, integers of 4 and 2. */
static void read_small(piece *p, const void *from, int64_t n, ebb_dtype dtype)
{
    unsigned bits = ebb_dtype_bits(dtype);
    for (int64_t i = 0; i < n; i++) {
        unsigned x = ebb_bits_get(from, i, bits);
        if (reads_real(dtype))
            p->d[i] = ebb_small_to_double(dtype, x);
        else
            p->i[i] = dtype == EBB_I4 || dtype == EBB_I2 ? ebb_bits_signed(x, bits) : (int64_t)x;
    }
}

/* The whole types of C, as they are. A uint64 goes through with its bits. */
static void read_piece(piece *p, const void *from, int64_t n, ebb_dtype dtype)
{
    switch (dtype) {
        READ(EBB_F32, float, d)
        READ(EBB_F64, double, d)
        READ(EBB_I8, int8_t, i)
        READ(EBB_I16, int16_t, i)
        READ(EBB_I32, int32_t, i)
        READ(EBB_I64, int64_t, i)
        READ(EBB_U8, uint8_t, i)
        READ(EBB_BOOL, uint8_t, i)
        READ(EBB_U16, uint16_t, i)
        READ(EBB_U32, uint32_t, i)
    case EBB_U64: {
        const uint64_t *x = from;
        for (int64_t i = 0; i < n; i++)
            p->i[i] = (int64_t)x[i];
        break;
    }
    case EBB_F16: {
        const uint16_t *x = from;
        for (int64_t i = 0; i < n; i++)
            p->d[i] = (double)ebb_half_to_float(x[i]);
        break;
    }
    case EBB_BF16: {
        const uint16_t *x = from;
        for (int64_t i = 0; i < n; i++)
            p->d[i] = (double)ebb_bf16_to_float(x[i]);
        break;
    }
    default:
        read_small(p, from, n, dtype);
    }
}

/* low and high as doubles: high is the first that does not fit. */
#define WRITE_INT_OF_FLOAT(d_, T, low, high, most)                                   \
    case d_: {                                                                       \
        T *y = to;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                            \
            double v = p->d[i];                                                      \
            y[i] = v != v ? 0 : v <= (low) ? (T)(low) : v >= (high) ? (most) : (T)v; \
        }                                                                            \
        break;                                                                       \
    }

static int64_t truncated(double x)
{
    return x > -0x1p63 && x < 0x1p63 ? (int64_t)x : 0;
}

static void write_small(void *to, const piece *p, int64_t n, const casting *c)
{
    unsigned bits = ebb_dtype_bits(c->to);
    bool real = reads_real(c->from), big = c->from == EBB_U64;
    memset(to, 0, (size_t)((n * bits + 7) / 8));
    for (int64_t i = 0; i < n; i++) {
        unsigned y;
        if (ebb_dtype_is_small_float(c->to)) {
            double x = real ? p->d[i] : ebb_odd_double(p->i[i], big);
            y = ebb_small_of_double(c->to, x, c->saturate, c->rounding);
        } else {
            y = (unsigned)(real ? truncated(p->d[i]) : p->i[i]) & ((1u << bits) - 1);
        }
        ebb_bits_put(to, i, bits, y);
    }
}

static void write_floats(void *to, const piece *p, int64_t n, const casting *c)
{
    switch (c->to) {
        WRITE_INT_OF_FLOAT(EBB_I8, int8_t, -0x1p7, 0x1p7, INT8_MAX)
        WRITE_INT_OF_FLOAT(EBB_I16, int16_t, -0x1p15, 0x1p15, INT16_MAX)
        WRITE_INT_OF_FLOAT(EBB_I32, int32_t, -0x1p31, 0x1p31, INT32_MAX)
        WRITE_INT_OF_FLOAT(EBB_I64, int64_t, -0x1p63, 0x1p63, INT64_MAX)
        WRITE_INT_OF_FLOAT(EBB_U8, uint8_t, 0.0, 0x1p8, UINT8_MAX)
        WRITE_INT_OF_FLOAT(EBB_U16, uint16_t, 0.0, 0x1p16, UINT16_MAX)
        WRITE_INT_OF_FLOAT(EBB_U32, uint32_t, 0.0, 0x1p32, UINT32_MAX)
        WRITE_INT_OF_FLOAT(EBB_U64, uint64_t, 0.0, 0x1p64, UINT64_MAX)
    case EBB_F32: {
        float *y = to;
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)p->d[i];
        break;
    }
    case EBB_F64:
        memcpy(to, p->d, (size_t)n * sizeof(double));
        break;
    case EBB_F16: {
        uint16_t *y = to;
        for (int64_t i = 0; i < n; i++)
            y[i] = ebb_float_to_half(ebb_odd_float(p->d[i]));
        break;
    }
    case EBB_BF16: {
        uint16_t *y = to;
        for (int64_t i = 0; i < n; i++)
            y[i] = ebb_float_to_bf16(ebb_odd_float(p->d[i]));
        break;
    }
    case EBB_BOOL: {
        uint8_t *y = to;
        for (int64_t i = 0; i < n; i++)
            y[i] = p->d[i] != 0.0;
        break;
    }
    default:
        write_small(to, p, n, c);
    }
}

#define WRITE(d_, T, EXPR)                \
    case d_: {                            \
        T *y = to;                        \
        for (int64_t i = 0; i < n; i++) { \
            int64_t v = p->i[i];          \
            y[i] = (T)(EXPR);             \
        }                                 \
        break;                            \
    }

static void write_ints(void *to, const piece *p, int64_t n, const casting *c)
{
    bool big = c->from == EBB_U64; /* the bits of an unsigned number */
    switch (c->to) {
        WRITE(EBB_I8, int8_t, v)
        WRITE(EBB_I16, int16_t, v)
        WRITE(EBB_I32, int32_t, v)
        WRITE(EBB_I64, int64_t, v)
        WRITE(EBB_U8, uint8_t, v)
        WRITE(EBB_U16, uint16_t, v)
        WRITE(EBB_U32, uint32_t, v)
        WRITE(EBB_U64, uint64_t, v)
        WRITE(EBB_BOOL, uint8_t, v != 0)
        WRITE(EBB_F32, float, big ? (float)(uint64_t)v : (float)v)
        WRITE(EBB_F64, double, big ? (double)(uint64_t)v : (double)v)
        WRITE(EBB_F16, uint16_t, ebb_float_to_half(ebb_odd_float(ebb_odd_double(v, big))))
        WRITE(EBB_BF16, uint16_t, ebb_float_to_bf16(ebb_odd_float(ebb_odd_double(v, big))))
    default:
        write_small(to, p, n, c);
    }
}

static bool has_half(ebb_dtype dtype)
{
    return dtype == EBB_F16 || dtype == EBB_BF16;
}

static void cast_piece(const ebb_call *c, const casting *k, int64_t first, int64_t n)
{
    piece p;
    const void *from = (const char *)c->in[0].data + (size_t)first * ebb_dtype_bits(k->from) / 8;
    void *to = (char *)c->out[0].data + (size_t)first * ebb_dtype_bits(k->to) / 8;
    if (k->from == EBB_F32 && has_half(k->to)) {
        ebb_narrow_here(to, from, k->to, n);
        return;
    }
    if (k->to == EBB_F32 && has_half(k->from)) {
        ebb_widen_here(to, from, k->from, n);
        return;
    }
    read_piece(&p, from, n, k->from);
    if (reads_real(k->from))
        write_floats(to, &p, n, k);
    else
        write_ints(to, &p, n, k);
}

static ebb_rounding rounding_of(const ebb_call *c)
{
    const char *mode = ebb_attr_string(&c->attrs, "round_mode", "up");
    return strcmp(mode, "down") == 0      ? EBB_ROUND_DOWN
           : strcmp(mode, "nearest") == 0 ? EBB_ROUND_NEAREST
                                          : EBB_ROUND_UP;
}

/* (X) {to, saturate = 1, round_mode = "up"} -> Y. */
static ebb_status run_cast(const ebb_call *c)
{
    const casting k = {(ebb_dtype)c->in[0].type.dtype, (ebb_dtype)c->out[0].type.dtype,
                       ebb_attr_int(&c->attrs, "saturate", 1) != 0, rounding_of(c)};
    if (k.from == k.to) {
        ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->out[0].bytes);
        return NULL;
    }
    int64_t n = ebb_elements(&c->out[0].type);
    EBB_PARALLEL_FOR(n)
    for (int64_t i = 0; i < n; i += PIECE)
        cast_piece(c, &k, i, n - i < PIECE ? n - i : PIECE);
    return NULL;
}

static bool can(ebb_dtype dtype)
{
    return dtype == EBB_BOOL || reads_real(dtype) || ebb_dtype_is_integer(dtype);
}

static const char *dtypes_of_cast(const ebb_call *c)
{
    if (!can((ebb_dtype)c->in[0].type.dtype) || !can((ebb_dtype)c->out[0].type.dtype))
        return "casts among numbers and bool only";
    return ebb_call_any_bits(c);
}

static const char *
dtypes_of_cast_like(const ebb_call *c) /* the second input lends its dtype only */
{
    ebb_call one = *c;
    one.input_count = 1;
    return dtypes_of_cast(&one);
}

const ebb_kernel ebb_plain_cast[] = {
    {.name = "plain.cast", .op = EBB_OP_CAST, .dtypes = dtypes_of_cast, .run = run_cast},
    {.name = "plain.cast_like",
     .op = EBB_OP_CAST_LIKE,
     .dtypes = dtypes_of_cast_like,
     .run = run_cast},
};
EBB_PLAIN_COUNT(cast)
