/* cast.c: Cast and CastLike among floats (64, 32, 16 bits, bfloat16), integers and bool.
 *
 * A piece is read into int64 or double and written from there, so that there are 2 x 13 loops and
 * not 13 x 13. Float to integer truncates; what does not fit takes the nearest end, NaN becomes 0.
 * Integer to integer keeps the low bits. To bool: everything but zero is true.
 */
#include "kernels/plain/plain.h"

enum { PIECE = 512 };

typedef struct casting {
    ebb_dtype from, to;
} casting;

typedef union piece {
    int64_t i[PIECE];
    double d[PIECE];
} piece;

#define READ(d_, T, member)                \
    case d_: {                             \
        const T *x = from;                 \
        for (int64_t i = 0; i < n; i++)    \
            p->member[i] = (T)x[i * step]; \
        break;                             \
    }

/* The whole types of C, as they are. A uint64 goes through with its bits. */
static void read_piece(piece *p, const void *from, int64_t step, int64_t n, ebb_dtype dtype)
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
            p->i[i] = (int64_t)x[i * step];
        break;
    }
    case EBB_F16: {
        const uint16_t *x = from;
        for (int64_t i = 0; i < n; i++)
            p->d[i] = (double)ebb_half_to_float(x[i * step]);
        break;
    }
    case EBB_BF16: {
        const uint16_t *x = from;
        for (int64_t i = 0; i < n; i++)
            p->d[i] = (double)ebb_bf16_to_float(x[i * step]);
        break;
    }
    default:
        break;
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

static void write_floats(void *to, const piece *p, int64_t n, ebb_dtype dtype)
{
    switch (dtype) {
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
            y[i] = ebb_float_to_half((float)p->d[i]);
        break;
    }
    case EBB_BF16: {
        uint16_t *y = to;
        for (int64_t i = 0; i < n; i++)
            y[i] = ebb_float_to_bf16((float)p->d[i]);
        break;
    }
    case EBB_BOOL: {
        uint8_t *y = to;
        for (int64_t i = 0; i < n; i++)
            y[i] = p->d[i] != 0.0;
        break;
    }
    default:
        break;
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
        WRITE(EBB_F16, uint16_t, ebb_float_to_half(big ? (float)(uint64_t)v : (float)v))
        WRITE(EBB_BF16, uint16_t, ebb_float_to_bf16(big ? (float)(uint64_t)v : (float)v))
    default:
        break;
    }
}

static void cast_row(void *out, const void *const *in, const int64_t *step, int64_t n,
                     const void *arg)
{
    const casting *c = arg;
    size_t from_size = ebb_dtype_bits(c->from) / 8, to_size = ebb_dtype_bits(c->to) / 8;
    for (int64_t i = 0; i < n; i += PIECE) {
        piece p;
        int64_t m = n - i < PIECE ? n - i : PIECE;
        char *to = (char *)out + (size_t)i * to_size;
        read_piece(&p, (const char *)in[0] + (size_t)(i * step[0]) * from_size, step[0], m,
                   c->from);
        if (ebb_dtype_is_float(c->from))
            write_floats(to, &p, m, c->to);
        else
            write_ints(to, &p, m, c);
    }
}

static ebb_status run_cast(const ebb_call *c)
{
    casting k = {(ebb_dtype)c->in[0].type.dtype, (ebb_dtype)c->out[0].type.dtype};
    if (k.from == k.to) {
        ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->out[0].bytes);
        return NULL;
    }
    const ebb_operand *in[1] = {&c->in[0]};
    ebb_plain_rows(&c->out[0], in, 1, cast_row, &k);
    return NULL;
}

static bool can(ebb_dtype dtype)
{
    return dtype == EBB_BOOL || ebb_dtype_is_float(dtype) ||
           (ebb_dtype_is_integer(dtype) && ebb_dtype_bits(dtype) >= 8);
}

static const char *declines(const ebb_call *c)
{
    if (!can((ebb_dtype)c->in[0].type.dtype) || !can((ebb_dtype)c->out[0].type.dtype))
        return "casts among 8 to 64 bit integers, bool, and 16 to 64 bit floats only";
    return ebb_plain_any(c);
}

static const char *declines_like(const ebb_call *c) /* the second input lends its dtype only */
{
    ebb_call one = *c;
    one.input_count = 1;
    return declines(&one);
}

const ebb_kernel ebb_plain_cast[] = {
    {"plain.cast", EBB_OP_CAST, declines, NULL, NULL, run_cast, NULL},
    {"plain.cast_like", EBB_OP_CAST_LIKE, declines_like, NULL, NULL, run_cast, NULL},
};
EBB_PLAIN_COUNT(cast)
