/* frozen_matrix.c: the numbers of a matrix in few bits, one by one or by blocks. */
#include "onnx/words/frozen.h"

#include <string.h>

/* Bytes lie wherever a file has them, so they are copied out. */
static double real(const void *data, ebb_dtype dtype, int64_t i)
{
    float f;
    double d;
    uint16_t h;
    switch (dtype) {
    case EBB_F64:
        memcpy(&d, (const char *)data + (size_t)i * sizeof d, sizeof d);
        return d;
    case EBB_F16:
    case EBB_BF16:
        memcpy(&h, (const char *)data + (size_t)i * sizeof h, sizeof h);
        return (double)(dtype == EBB_F16 ? ebb_half_to_float(h) : ebb_bf16_to_float(h));
    default:
        memcpy(&f, (const char *)data + (size_t)i * sizeof f, sizeof f);
        return (double)f;
    }
}

static double level_of(const ebb_frozen *f, const ebb_tensor *levels, unsigned code)
{
    if (f->dtype == EBB_NONE)
        return real(levels->data, (ebb_dtype)levels->type.dtype, code);
    if (ebb_dtype_is_small_float(f->dtype))
        return ebb_small_to_double(f->dtype, code);
    const bool has_sign = f->dtype == EBB_I8 || f->dtype == EBB_I4 || f->dtype == EBB_I2;
    return has_sign ? (double)ebb_bits_signed(code, f->bits) : (double)code;
}

void ebb_frozen_fill(ebb_frozen_matrix *m, const ebb_frozen *f, const ebb_tensor *in)
{
    *m = (ebb_frozen_matrix){.of = *f};
    m->codes = in[EBB_FROZEN_CODES].data;
    m->scales = in[EBB_FROZEN_SCALES].data;
    m->scale_dtype = (ebb_dtype)in[EBB_FROZEN_SCALES].type.dtype;
    if (f->zero != EBB_ZERO_NONE) {
        m->zeros = in[EBB_FROZEN_ZEROS].data;
        m->zero_dtype = (ebb_dtype)in[EBB_FROZEN_ZEROS].type.dtype;
    }
    const unsigned count = 1u << f->bits;
    for (unsigned i = 0; i < count; i++)
        m->level[i] = level_of(f, &in[EBB_FROZEN_LEVELS], i);
    m->flip = m->level[0] > m->level[count / 2] ? count / 2 : 0; // of signed numbers
    m->least = m->level[m->flip];
    m->linear = true;
    for (unsigned i = 0; i < count; i++)
        m->linear = m->linear && m->level[i ^ m->flip] == m->least + (double)i;
}

ebb_frozen_matrix ebb_frozen_one(const ebb_frozen_matrix *m, int64_t matrix)
{
    ebb_frozen_matrix one = *m;
    const ebb_frozen *f = &m->of;
    const int64_t first = matrix * f->n, scales = first * f->scale_n;
    one.codes += first * f->row * (int64_t)f->bits / 8;
    one.scales = (const char *)m->scales + (size_t)scales * ebb_dtype_bits(m->scale_dtype) / 8;
    if (f->zero == EBB_ZERO_PACKED)
        one.zeros = (const char *)m->zeros + first * f->zero_row * (int64_t)f->bits / 8;
    if (f->zero == EBB_ZERO_REAL)
        one.zeros = (const char *)m->zeros + (size_t)scales * ebb_dtype_bits(m->zero_dtype) / 8;
    return one;
}

static unsigned code_at(const uint8_t *data, int64_t i, unsigned bits, bool high_first)
{
    return ebb_bits_get(data, high_first ? i ^ (8 / (int64_t)bits - 1) : i, bits);
}

unsigned ebb_frozen_code(const ebb_frozen_matrix *m, int64_t n, int64_t k)
{
    return code_at(m->codes, n * m->of.row + k, m->of.bits, m->of.high_first);
}

double ebb_frozen_scale(const ebb_frozen_matrix *m, int64_t n, int64_t k)
{
    return real(m->scales, m->scale_dtype, ebb_frozen_block(&m->of, n, k));
}

double ebb_frozen_zero(const ebb_frozen_matrix *m, int64_t n, int64_t k)
{
    const ebb_frozen *f = &m->of;
    switch (f->zero) {
    case EBB_ZERO_BYTE:
        return (double)ebb_bits_get(m->zeros, 0, f->bits);
    case EBB_ZERO_PACKED: // blocks that run on have no rows
        return (double)ebb_bits_get(
            m->zeros, f->runs_on ? ebb_frozen_block(f, n, k) : n * f->zero_row + k / f->block_k,
            f->bits);
    case EBB_ZERO_REAL:
        return real(m->zeros, m->zero_dtype, ebb_frozen_block(f, n, k));
    case EBB_ZERO_CODE:
        return m->level[ebb_bits_get(m->zeros, ebb_frozen_block(f, n, k), f->bits)];
    case EBB_ZERO_NONE:
        break;
    }
    return 0.0;
}

static void reals(float *to, int64_t step, const void *data, ebb_dtype dtype, int64_t first,
                  int64_t count, int64_t by)
{
    const char *from = (const char *)data + (size_t)first * sizeof(float);
    if (dtype == EBB_F32 && step == 1 && by == 1)
        memcpy(to, from, (size_t)count * sizeof(float));
    else if (dtype == EBB_F32)
        for (int64_t i = 0; i < count; i++)
            memcpy(&to[i * step], from + (size_t)(i * by) * sizeof(float), sizeof(float));
    else
        for (int64_t i = 0; i < count; i++)
            to[i * step] = (float)real(data, dtype, first + i * by);
}

/* Codes of a row of zero points, from number `first` on, as numbers less `least`. */
static void zeros_of_codes(float *to, int64_t step, const ebb_frozen_matrix *m, int64_t first,
                           int64_t count, int64_t by, float least)
{
    const unsigned bits = m->of.bits, log = bits == 2 ? 2 : bits == 4 ? 1 : 0; // of codes a byte
    const uint8_t *codes = m->zeros;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t at = (uint64_t)(first + i * by);
        const unsigned low = (unsigned)(at & ((1u << log) - 1)) * bits;
        const unsigned code = (unsigned)codes[at >> log] >> low & ((1u << bits) - 1);
        to[i * step] =
            m->of.zero == EBB_ZERO_CODE ? (float)m->level[code] - least : (float)code - least;
    }
}

void ebb_frozen_blocks(const ebb_frozen_matrix *m, int64_t n, int64_t k, int64_t count,
                       float *scales, float *zeros, int64_t step)
{
    const ebb_frozen *f = &m->of;
    const int64_t column = k / f->block_k;
    const int64_t first = n / f->block_n * f->scale_n + column * f->scale_k;
    const float least = m->linear ? (float)m->least : 0.0f;
    if (scales != NULL)
        reals(scales, step, m->scales, m->scale_dtype, first, count, f->scale_k);
    if (zeros == NULL)
        return;
    switch (f->zero) {
    case EBB_ZERO_REAL:
        reals(zeros, step, m->zeros, m->zero_dtype, first, count, f->scale_k);
        for (int64_t i = 0; i < count; i++)
            zeros[i * step] -= least;
        break;
    case EBB_ZERO_PACKED:
        zeros_of_codes(zeros, step, m, n * f->zero_row + column, count, 1, least);
        break;
    case EBB_ZERO_CODE:
        zeros_of_codes(zeros, step, m, first, count, f->scale_k, least);
        break;
    case EBB_ZERO_BYTE:
        zeros_of_codes(zeros, step, m, 0, count, 0, least);
        break;
    case EBB_ZERO_NONE:
        for (int64_t i = 0; i < count; i++)
            zeros[i * step] = -least;
        break;
    }
}
