/* linear_codes.c: the operands of quantisation with a scale, checked for all back ends. */
#include "kernels/call/linear_codes.h"

#include <string.h>

#include "kernels/operand.h"

/* ---- which scale ---- */

static const char *read_blocks(ebb_scales *s, const ebb_call *c, int axis)
{
    const ebb_type *x = &c->in[0].type, *scale = &c->in[1].type;
    if (scale->rank != x->rank)
        return "the scale has neither the length of the axis nor the rank of the input";
    for (int d = 0; d < x->rank; d++)
        if (d != axis && scale->dims[d] != x->dims[d])
            return "the scale differs from the input outside of the axis";
    s->kind = EBB_SCALE_BLOCKS;
    s->places = scale->dims[axis];
    if (s->places <= 0)
        return "the scale is empty";
    s->block = ebb_attr_int(&c->attrs, "block_size", 0);
    if (s->block <= 0)
        s->block = (s->n + s->places - 1) / s->places;
    if (s->n > 0 && (s->block == 0 || (s->n - 1) / s->block >= s->places))
        return "the blocks do not cover the axis";
    return NULL;
}

const char *ebb_scales_read(ebb_scales *s, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *scale = &c->in[1].type;
    *s = (ebb_scales){.kind = EBB_SCALE_ONE};
    if (ebb_call_has(c, 2) && ebb_elements(&c->in[2].type) != ebb_elements(scale))
        return "the zero point differs in size from the scale";
    if (ebb_elements(scale) == 1)
        return NULL;
    int64_t given = ebb_attr_int(&c->attrs, "axis", 1), axis = given < 0 ? given + x->rank : given;
    if (axis < 0 || axis >= x->rank)
        return "the axis lies outside of the input";
    *s = (ebb_scales){x->dims[axis], 1, x->dims[axis], 1, EBB_SCALE_AXIS};
    for (int d = (int)axis + 1; d < x->rank; d++)
        s->inner *= x->dims[d];
    if (scale->rank == 1 && scale->dims[0] == s->n &&
        (x->rank > 1 || ebb_attr_int(&c->attrs, "block_size", 0) <= 1))
        return NULL;
    return read_blocks(s, c, (int)axis);
}

/* ---- products ---- */

ebb_coded_product ebb_coded_product_of(const ebb_call *c)
{
    if (c->op == EBB_OP_MATMUL_INTEGER || c->op == EBB_OP_CONV_INTEGER)
        return (ebb_coded_product){0, -1, 2, 1, -1, 3, -1, -1, -1};
    return (ebb_coded_product){0, 1, 2, 3, 4, 5, 6, 7, c->op == EBB_OP_QLINEAR_CONV ? 8 : -1};
}

/* An entry for all or one for each of `count`. */
static bool fits(const ebb_call *c, int input, int64_t count)
{
    if (!ebb_call_has(c, input))
        return true;
    int64_t n = ebb_elements(&c->in[input].type);
    return n == 1 || n == count;
}

static const char *unfit(const ebb_call *c, const ebb_coded_product *p, int64_t rows,
                         int64_t columns)
{
    uint8_t a = c->in[p->a].type.dtype, b = c->in[p->b].type.dtype;
    if ((a != EBB_U8 && a != EBB_I8) || (b != EBB_U8 && b != EBB_I8))
        return "multiplies uint8 and int8 only";
    if (!fits(c, p->a_zero, rows) || !fits(c, p->a_scale, rows) || !fits(c, p->b_zero, columns) ||
        !fits(c, p->b_scale, columns) || !fits(c, p->y_scale, 1) || !fits(c, p->y_zero, 1))
        return "a scale or zero point is neither one number nor one for each row or column";
    if (p->y_scale < 0)
        return c->out[0].type.dtype == EBB_I32 ? NULL : "the output is not int32";
    return ebb_call_has(c, p->a_scale) && ebb_call_has(c, p->b_scale) && ebb_call_has(c, p->y_scale)
               ? NULL
               : "a scale is missing";
}

const char *ebb_coded_matmul_misfit(const ebb_call *c)
{
    ebb_coded_product p = ebb_coded_product_of(c);
    const ebb_type *a = &c->in[p.a].type, *b = &c->in[p.b].type;
    return unfit(c, &p, a->rank > 1 ? a->dims[a->rank - 2] : 1,
                 b->rank > 1 ? b->dims[b->rank - 1] : 1);
}

const char *ebb_coded_conv_read(ebb_geometry *w, const ebb_call *c)
{
    ebb_coded_product p = ebb_coded_product_of(c);
    const char *why =
        ebb_geometry_read(w, &c->attrs, &c->in[p.a].type, &c->out[0].type, &c->in[p.b].type, false);
    if (why == NULL)
        why = unfit(c, &p, 1, w->narrow_channels);
    if (why == NULL && ebb_call_has(c, p.bias) &&
        ebb_elements(&c->in[p.bias].type) != w->narrow_channels)
        why = "the bias has the wrong shape";
    return why;
}

/* ---- a matrix in few bits ---- */

enum { FROZEN_INPUTS = EBB_FROZEN_LEVELS + 1 };

static const char *read_frozen(ebb_frozen *f, const ebb_call *c)
{
    const ebb_type *in[FROZEN_INPUTS] = {NULL};
    for (uint32_t i = 0; i < c->input_count && i < FROZEN_INPUTS; i++)
        in[i] = ebb_call_has(c, i) ? &c->in[i].type : NULL;
    return ebb_frozen_read(f, c->op == EBB_OP_MATMUL_CODES, &c->attrs, in, FROZEN_INPUTS);
}

const char *ebb_frozen_misfit(const ebb_call *c)
{
    ebb_frozen f;
    const char *why = ebb_call_any_bits(c);
    if (why == NULL)
        why = read_frozen(&f, c);
    if (why != NULL)
        return why;
    const ebb_type *a = &c->in[0].type, *y = &c->out[0].type;
    if (a->rank < 1 || y->rank != a->rank || y->dims[y->rank - 1] != ebb_frozen_columns(&f))
        return "the output has another shape";
    for (int d = 0; d + 1 < a->rank; d++)
        if (a->dims[d] != y->dims[d])
            return "the output has another shape";
    return NULL;
}

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

static double level_of(const ebb_frozen_matrix *m, const ebb_call *c, unsigned code)
{
    const ebb_dtype dtype = m->of.dtype;
    if (dtype == EBB_NONE)
        return real(c->in[EBB_FROZEN_LEVELS].data, (ebb_dtype)c->in[EBB_FROZEN_LEVELS].type.dtype,
                    code);
    if (ebb_dtype_is_small_float(dtype))
        return ebb_small_to_double(dtype, code);
    const bool has_sign = dtype == EBB_I8 || dtype == EBB_I4 || dtype == EBB_I2;
    return has_sign ? (double)ebb_bits_signed(code, m->of.bits) : (double)code;
}

void ebb_frozen_open(ebb_frozen_matrix *m, const ebb_call *c)
{
    *m = (ebb_frozen_matrix){0};
    (void)read_frozen(&m->of, c);
    m->codes = c->in[EBB_FROZEN_CODES].data;
    m->scales = c->in[EBB_FROZEN_SCALES].data;
    m->scale_dtype = (ebb_dtype)c->in[EBB_FROZEN_SCALES].type.dtype;
    if (m->of.zero != EBB_ZERO_NONE) {
        m->zeros = c->in[EBB_FROZEN_ZEROS].data;
        m->zero_dtype = (ebb_dtype)c->in[EBB_FROZEN_ZEROS].type.dtype;
    }
    const unsigned count = 1u << m->of.bits;
    for (unsigned i = 0; i < count; i++)
        m->level[i] = level_of(m, c, i);
    m->flip = m->level[0] > m->level[count / 2] ? count / 2 : 0; // of signed numbers
    m->least = m->level[m->flip];
    m->linear = true;
    for (unsigned i = 0; i < count; i++)
        m->linear = m->linear && m->level[i ^ m->flip] == m->least + (double)i;
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
    reals(scales, step, m->scales, m->scale_dtype, first, count, f->scale_k);
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
