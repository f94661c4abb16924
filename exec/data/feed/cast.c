/* cast.c: numbers of one type as numbers of another, if they stay the same numbers.
 *
 * Integers go by int64 and floats by double, in pieces that stay in the cache: thirteen ways in and
 * thirteen out instead of all pairs.
 */
#include "exec/data/feed/feed.h"

#include <math.h>

enum { PIECE = 256 };

static bool is_whole(ebb_dtype dtype)
{
    return dtype == EBB_BOOL || (ebb_dtype_is_integer(dtype) && ebb_dtype_bits(dtype) >= 8);
}

bool ebb_cast_is(ebb_dtype to, ebb_dtype from)
{
    return (ebb_dtype_is_float(to) || is_whole(to)) && (ebb_dtype_is_float(from) || is_whole(from));
}

/* ---- in ---- */

#define LOAD(type)                     \
    for (size_t i = 0; i < count; i++) \
    v[i] = ((const type *)in)[i]
#define LOAD_AS(call)                  \
    for (size_t i = 0; i < count; i++) \
    v[i] = call(((const uint16_t *)in)[i])

/* The first that int64 has no room for. */
static size_t load_whole(int64_t *v, ebb_dtype from, const void *in, size_t count)
{
    switch (from) {
    case EBB_BOOL:
        for (size_t i = 0; i < count; i++)
            v[i] = ((const uint8_t *)in)[i] != 0;
        break;
    case EBB_U8:
        LOAD(uint8_t);
        break;
    case EBB_I8:
        LOAD(int8_t);
        break;
    case EBB_U16:
        LOAD(uint16_t);
        break;
    case EBB_I16:
        LOAD(int16_t);
        break;
    case EBB_I32:
        LOAD(int32_t);
        break;
    case EBB_U32:
        LOAD(uint32_t);
        break;
    case EBB_I64:
        LOAD(int64_t);
        break;
    default:
        for (size_t i = 0; i < count; i++) {
            const uint64_t x = ((const uint64_t *)in)[i];
            if (x > INT64_MAX)
                return i;
            v[i] = (int64_t)x;
        }
    }
    return count;
}

static void load_real(double *v, ebb_dtype from, const void *in, size_t count)
{
    switch (from) {
    case EBB_F32:
        LOAD(float);
        break;
    case EBB_F64:
        LOAD(double);
        break;
    case EBB_F16:
        LOAD_AS(ebb_half_to_float);
        break;
    default:
        LOAD_AS(ebb_bf16_to_float);
        break;
    }
}

/* ---- out: the first element that does not fit ---- */

#define STORE(type)                      \
    for (size_t i = 0; i < count; i++) { \
        const type x = (type)v[i];       \
        if ((int64_t)x != v[i])          \
            return i;                    \
        ((type *)out)[i] = x;            \
    }                                    \
    break

static size_t store_whole(ebb_dtype to, void *out, const int64_t *v, size_t count)
{
    switch (to) {
    case EBB_BOOL:
        for (size_t i = 0; i < count; i++) {
            if (v[i] != 0 && v[i] != 1)
                return i;
            ((uint8_t *)out)[i] = (uint8_t)v[i];
        }
        break;
    case EBB_U8:
        STORE(uint8_t);
    case EBB_I8:
        STORE(int8_t);
    case EBB_U16:
        STORE(uint16_t);
    case EBB_I16:
        STORE(int16_t);
    case EBB_I32:
        STORE(int32_t);
    case EBB_U32:
        STORE(uint32_t);
    case EBB_I64:
        STORE(int64_t);
    default:
        for (size_t i = 0; i < count; i++) {
            if (v[i] < 0)
                return i;
            ((uint64_t *)out)[i] = (uint64_t)v[i];
        }
    }
    return count;
}

#define STORE_AS(type, made, back)                            \
    for (size_t i = 0; i < count; i++) {                      \
        const type x = made;                                  \
        if (!round && (double)(back) != v[i] && !isnan(v[i])) \
            return i;                                         \
        ((type *)out)[i] = x;                                 \
    }                                                         \
    break

static size_t store_real(ebb_dtype to, void *out, const double *v, size_t count, bool round)
{
    switch (to) {
    case EBB_F32:
        STORE_AS(float, (float)v[i], x);
    case EBB_F64:
        STORE_AS(double, v[i], x);
    case EBB_F16:
        STORE_AS(uint16_t, ebb_float_to_half((float)v[i]), ebb_half_to_float(x));
    default:
        STORE_AS(uint16_t, ebb_float_to_bf16((float)v[i]), ebb_bf16_to_float(x));
    }
    return count;
}

/* ---- across ---- */

static size_t to_real(double *r, const int64_t *v, size_t count, bool round)
{
    for (size_t i = 0; i < count; i++) {
        r[i] = (double)v[i];
        // 2^63, to which the largest int64 is rounded, does not go back
        if (!round && (r[i] >= 9223372036854775808.0 || (int64_t)r[i] != v[i]))
            return i;
    }
    return count;
}

static size_t to_whole(int64_t *v, const double *r, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!(r[i] >= -9223372036854775808.0 && r[i] < 9223372036854775808.0) ||
            r[i] != floor(r[i]))
            return i;
        v[i] = (int64_t)r[i];
    }
    return count;
}

static size_t piece(ebb_dtype to, void *out, ebb_dtype from, const void *in, size_t count,
                    bool round)
{
    int64_t v[PIECE];
    double r[PIECE];
    size_t good = count;
    if (ebb_dtype_is_float(from)) {
        load_real(r, from, in, count);
        good = ebb_dtype_is_float(to) ? count : to_whole(v, r, count);
    } else {
        good = load_whole(v, from, in, count);
        if (ebb_dtype_is_float(to))
            good = to_real(r, v, good, round);
    }
    const size_t stored = ebb_dtype_is_float(to) ? store_real(to, out, r, good, round)
                                                 : store_whole(to, out, v, good);
    return stored < good ? stored : good;
}

size_t ebb_cast(ebb_dtype to, void *out, ebb_dtype from, const void *in, size_t count, bool round)
{
    const size_t a = ebb_dtype_bits(from) / 8, b = ebb_dtype_bits(to) / 8;
    if (to == from) {
        memcpy(out, in, count * a);
        return count;
    }
    for (size_t at = 0; at < count;) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        const size_t good =
            piece(to, (char *)out + at * b, from, (const char *)in + at * a, n, round);
        at += good;
        if (good < n)
            return at;
    }
    return count;
}

/* ---- what must not be ---- */

static bool has_nan_f32(const float *x, size_t count)
{
    unsigned any = 0; // without a branch, so that it goes by vectors
    for (size_t i = 0; i < count; i++)
        any |= x[i] != x[i];
    return any != 0;
}

size_t ebb_find_nan(ebb_dtype dtype, const void *data, size_t count)
{
    double r[PIECE];
    if (!ebb_dtype_is_float(dtype) || (dtype == EBB_F32 && !has_nan_f32(data, count)))
        return count;
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        load_real(r, dtype, (const char *)data + at * (ebb_dtype_bits(dtype) / 8), n);
        for (size_t i = 0; i < n; i++)
            if (isnan(r[i]))
                return at + i;
    }
    return count;
}

size_t ebb_find_outside(ebb_dtype dtype, const void *data, size_t count, const ebb_span *span)
{
    int64_t v[PIECE];
    for (size_t at = 0; is_whole(dtype) && span->known && at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        const size_t good =
            load_whole(v, dtype, (const char *)data + at * (ebb_dtype_bits(dtype) / 8), n);
        for (size_t i = 0; i < good; i++)
            if ((v[i] < span->low || v[i] > span->high) &&
                !(span->ignores && v[i] == span->ignored))
                return at + i;
        if (good < n)
            return at + good;
    }
    return count;
}
