/* frozen.c: reads and checks the description of a matrix in few bits. */
#include "onnx/words/frozen.h"

static const ebb_type *given(const ebb_type *const *in, uint32_t count, uint32_t i)
{
    return i < count && in[i] != NULL && in[i]->kind == EBB_KIND_TENSOR ? in[i] : NULL;
}

/* Elements, or -1 where they are not known. */
static int64_t count_of(const ebb_type *t)
{
    int64_t count;
    return t != NULL && t->rank >= 0 && ebb_type_elements(t, &count) ? count : -1;
}

static bool is_other(const ebb_type *t, int64_t count)
{
    int64_t there = count_of(t);
    return there >= 0 && there != count;
}

static bool holds_floats(const ebb_type *t)
{
    return t == NULL || t->dtype == EBB_NONE || ebb_dtype_is_float((ebb_dtype)t->dtype);
}

static bool is_of(const ebb_type *t, ebb_dtype dtype)
{
    return t == NULL || t->dtype == EBB_NONE || t->dtype == dtype;
}

/* ---- MatMulCodes ---- */

enum { LARGEST = INT32_MAX }; /* side of a matrix: so that products of two, and of bits, fit */

static const char *read_sizes(ebb_frozen *f, const ebb_attrs *attrs)
{
    f->n = ebb_attr_int(attrs, "N", 0);
    f->k = ebb_attr_int(attrs, "K", 0);
    f->block_k = ebb_attr_int(attrs, "block_size", 0);
    const int64_t bits = ebb_attr_int(attrs, "bits", 4);
    if (f->n < 1 || f->k < 1 || f->n > LARGEST || f->k > LARGEST)
        return "N and K, the rows and columns of the weight, are not numbers from 1 to 2^31 - 1";
    if (bits != 2 && bits != 4 && bits != 8)
        return "bits is none of 2, 4 and 8";
    if (f->block_k < 1 || f->block_k > LARGEST)
        return "block_size is not a number from 1 to 2^31 - 1";
    f->matrices = ebb_attr_int(attrs, "experts", 1);
    if (f->matrices < 1 || f->matrices > LARGEST / f->n)
        return "experts, the number of matrices, is not a number from 1 to 2^31 - 1, or too large";
    f->bits = (unsigned)bits;
    f->high_first = ebb_attr_int(attrs, "high_first", 0) != 0;
    return NULL;
}

static const char *read_zeros(ebb_frozen *f, const ebb_type *zeros, bool packed, int64_t rows,
                              int64_t blocks)
{
    f->zero = EBB_ZERO_NONE;
    if (zeros == NULL)
        return "input 3, the zero points, is missing";
    if (zeros->rank >= 0 && zeros->rank != 2)
        return "input 3, the zero points, is no matrix";
    f->zero = packed ? EBB_ZERO_PACKED : EBB_ZERO_REAL;
    if (!packed) {
        if (!holds_floats(zeros))
            return "input 3, the zero points, holds no floats";
        return is_other(zeros, rows * blocks) ? "input 3 has not one zero point for each block"
                                              : NULL;
    }
    if (!is_of(zeros, EBB_U8))
        return "input 3, the packed zero points, is not uint8";
    const int64_t bytes = ebb_up(blocks, 8 / f->bits);
    f->zero_row = bytes * (8 / (int64_t)f->bits);
    if (count_of(zeros) == 1)
        f->zero = EBB_ZERO_BYTE;
    else if (is_other(zeros, rows * bytes))
        return "input 3 has not one packed zero point for each block, in rows of whole bytes";
    return NULL;
}

static const char *read_bytes(ebb_frozen *f, const ebb_attrs *attrs, const ebb_type *const *in,
                              uint32_t count)
{
    const char *why = read_sizes(f, attrs);
    if (why != NULL)
        return why;
    const ebb_type *codes = given(in, count, EBB_FROZEN_CODES),
                   *scales = given(in, count, EBB_FROZEN_SCALES),
                   *levels = given(in, count, EBB_FROZEN_LEVELS);
    const bool flat = ebb_attr_int(attrs, "flat", 0) != 0;
    const int64_t per = 8 / (int64_t)f->bits, rows = flat ? 1 : f->n * f->matrices;
    const int64_t columns = flat ? f->n * f->k : f->k, blocks = ebb_up(columns, f->block_k);
    if (flat && f->matrices > 1)
        return "codes that are one row have one matrix";
    if (!is_of(codes, EBB_U8))
        return "input 1, the codes, is not uint8";
    const int64_t bytes = count_of(codes), shortest = ebb_up(columns, per);
    int64_t row = bytes < 0 ? shortest : bytes / rows;
    if (bytes >= 0 &&
        (bytes % rows != 0 || (row != shortest && row != ebb_up(blocks * f->block_k, per))))
        return "input 1 does not hold the codes of N rows of K elements, in whole blocks";
    f->row = flat ? f->k : row * per;
    f->block_n = 1;
    f->scale_n = flat ? f->k / f->block_k : blocks;
    f->scale_k = 1;
    f->runs_on = flat && f->k % f->block_k != 0;
    if (!holds_floats(scales))
        return "input 2, the scales, holds no floats";
    if (is_other(scales, rows * blocks))
        return "input 2 has not one scale for each block";
    if (levels == NULL)
        return "input 4, what the codes stand for, is missing";
    if (!is_of(levels, EBB_F32) && !is_of(levels, EBB_F64))
        return "input 4, what the codes stand for, is neither float32 nor float64";
    if (is_other(levels, (int64_t)1 << f->bits))
        return "input 4 has not one number for each code";
    why = read_zeros(f, given(in, count, EBB_FROZEN_ZEROS),
                     ebb_attr_int(attrs, "packed_zeros", 1) != 0, rows, blocks);
    f->zero_row = flat ? f->scale_n : f->zero_row;
    return why;
}

/* ---- MatMulDequantized ---- */

/* A scale for each `block` places of the axis. */
static const char *read_scales(ebb_frozen *f, const ebb_attrs *attrs, const ebb_type *scale)
{
    int64_t axis = ebb_attr_int(attrs, "axis", 1), block = ebb_attr_int(attrs, "block_size", 0);
    f->block_n = f->block_k = 1;
    if (scale->rank < 0 || count_of(scale) == 1)
        return NULL;
    axis += axis < 0 ? 2 : 0;
    if (axis != 0 && axis != 1)
        return "axis is none of the matrix's";
    const int64_t along = axis == 0 ? f->n : f->k, across = axis == 0 ? f->k : f->n;
    if (scale->rank == 1 && block == 0) {
        f->scale_n = axis == 0;
        f->scale_k = axis == 1;
        return is_other(scale, along) ? "input 2 has not one scale for each place of the axis"
                                      : NULL;
    }
    if (scale->rank != 2 || block < 0 || block > LARGEST)
        return "input 2, the scale, is neither a number, a list nor a matrix of blocks";
    const int64_t places = scale->dims[axis], beside = scale->dims[1 - axis];
    if (block == 0 && places > 0)
        block = ebb_up(along, places);
    if ((beside >= 0 && beside != across) ||
        (places >= 0 && (block < 1 || places != ebb_up(along, block))))
        return "input 2 has not one scale for each block";
    f->block_n = axis == 0 ? block : 1;
    f->block_k = axis == 0 ? 1 : block;
    f->scale_n = axis == 0 ? f->k : places;
    f->scale_k = 1;
    return NULL;
}

static const char *read_tensor(ebb_frozen *f, const ebb_attrs *attrs, const ebb_type *const *in,
                               uint32_t count)
{
    const ebb_type *x = given(in, count, EBB_FROZEN_CODES),
                   *scale = given(in, count, EBB_FROZEN_SCALES),
                   *zero = given(in, count, EBB_FROZEN_ZEROS);
    f->block_n = f->block_k = 1;
    if (x == NULL || scale == NULL)
        return NULL;
    if (x->rank >= 0 && x->rank != 2)
        return "input 1, the codes, is no matrix";
    f->dtype = (ebb_dtype)x->dtype;
    f->bits = ebb_dtype_bits(f->dtype);
    if (f->dtype != EBB_NONE &&
        (f->bits < 2 || f->bits > 8 ||
         !(ebb_dtype_is_integer(f->dtype) || ebb_dtype_is_small_float(f->dtype))))
        return "input 1, the codes, has neither integers nor floats of 2, 4 or 8 bits";
    if (!holds_floats(scale))
        return "input 2, the scale, holds no floats";
    f->n = x->rank == 2 ? x->dims[0] : -1;
    f->k = x->rank == 2 ? x->dims[1] : -1;
    f->row = f->k;
    if (f->n < 0 || f->k < 0)
        return NULL;
    if (f->n < 1 || f->k < 1 || f->n > LARGEST || f->k > LARGEST)
        return "input 1, the codes, has a side that is not from 1 to 2^31 - 1";
    const char *why = read_scales(f, attrs, scale);
    if (why != NULL || zero == NULL)
        return why;
    f->zero = EBB_ZERO_CODE;
    if (!is_of(zero, f->dtype))
        return "input 3, the zero point, is of another dtype than the codes";
    return count_of(scale) >= 0 && is_other(zero, count_of(scale))
               ? "input 3, the zero point, differs in size from the scale"
               : NULL;
}

const char *ebb_frozen_read(ebb_frozen *f, bool bytes, const ebb_attrs *attrs,
                            const ebb_type *const *in, uint32_t count)
{
    *f = (ebb_frozen){.matrices = 1, .turned = ebb_attr_int(attrs, "transB", bytes ? 1 : 0) != 0};
    const char *why = bytes ? read_bytes(f, attrs, in, count) : read_tensor(f, attrs, in, count);
    if (why != NULL)
        return why;
    const ebb_type *a = given(in, count, 0);
    if (a == NULL || a->rank < 0)
        return NULL;
    const int64_t inner = ebb_frozen_inner(f);
    if (a->rank == 0)
        return "input 0 is a scalar";
    if (!holds_floats(a))
        return "input 0 holds no floats";
    if (inner >= 0 && a->dims[a->rank - 1] >= 0 && a->dims[a->rank - 1] != inner)
        return "the last dim of input 0 is not the side of the weight that it is multiplied with";
    return NULL;
}

/* ---- GatherBlockQuantized ---- */

static bool known_axis(int *axis, int64_t given_axis, int rank)
{
    *axis = (int)(given_axis < 0 && given_axis >= -rank ? given_axis + rank : given_axis);
    return given_axis >= -rank && given_axis < rank;
}

/* Shapes that are known differ in no dim but `axis`, which is `places` long. */
static bool is_beside(const ebb_type *t, const ebb_type *whole, int axis, int64_t places)
{
    if (t->rank < 0)
        return true;
    if (t->rank != whole->rank)
        return false;
    for (int d = 0; d < t->rank; d++) {
        const int64_t want = d == axis ? places : whole->dims[d];
        if (t->dims[d] >= 0 && want >= 0 && t->dims[d] != want)
            return false;
    }
    return true;
}

const char *ebb_frozen_table_read(ebb_frozen_table *t, const ebb_attrs *attrs,
                                  const ebb_type *const *in, uint32_t count)
{
    *t = (ebb_frozen_table){0};
    const ebb_type *data = given(in, count, 0), *indices = given(in, count, 1),
                   *scales = given(in, count, 2), *zeros = given(in, count, 3);
    if (data == NULL || indices == NULL || scales == NULL || data->rank < 0 || scales->rank < 0)
        return NULL;
    t->whole = *data;
    t->dtype = (ebb_dtype)data->dtype;
    t->bits = ebb_dtype_bits(t->dtype);
    const int64_t bits = ebb_attr_int(attrs, "bits", 4);
    if (t->dtype == EBB_U8) {
        if (bits != 2 && bits != 4 && bits != 8)
            return "bits is none of 2, 4 and 8";
        t->bits = (unsigned)bits;
    } else if (!ebb_dtype_is_small_float(t->dtype) && t->dtype != EBB_I4 && t->dtype != EBB_U4 &&
               t->dtype != EBB_NONE) {
        return "input 0, the table, has neither bytes nor integers of 4 bits nor small floats";
    }
    if (!is_of(indices, EBB_I32) && !is_of(indices, EBB_I64))
        return "input 1, the indices, is neither int32 nor int64";
    if (!holds_floats(scales))
        return "input 2, the scales, holds no floats";
    int axis;
    t->block = ebb_attr_int(attrs, "block_size", 128);
    if (t->block < 1 || t->block > LARGEST)
        return "block_size is not a number from 1 to 2^31 - 1";
    if (!known_axis(&t->gather, ebb_attr_int(attrs, "gather_axis", 0), data->rank) ||
        !known_axis(&axis, ebb_attr_int(attrs, "quantize_axis", 1), data->rank))
        return "gather_axis or quantize_axis is none of the table's";
    const int last = data->rank - 1;
    if (t->dtype == EBB_U8 && t->bits < 8) {
        if (t->gather == last)
            return "gather_axis is the one along which codes share bytes";
        if (data->dims[last] > LARGEST)
            return "input 0, the table, has a row that is too long";
        t->whole.dims[last] = data->dims[last] < 0 ? -1 : data->dims[last] * (8 / (int64_t)t->bits);
    }
    t->along = t->whole.dims[axis];
    t->behind = 1;
    for (int d = axis + 1; d < data->rank; d++)
        t->behind *= t->whole.dims[d] < 0 ? 1 : t->whole.dims[d];
    t->blocks = t->along < 0 ? -1 : ebb_up(t->along, t->block);
    if (!is_beside(scales, &t->whole, axis, t->blocks))
        return "input 2 has not one scale for each block";
    if (zeros == NULL)
        return NULL;
    if (!is_of(zeros, t->dtype))
        return "input 3, the zero points, is of another dtype than the table";
    t->packed = t->dtype == EBB_U8 && t->bits < 8;
    if (t->packed && axis != last)
        return "input 3: packed zero points are for blocks of the last axis";
    const int64_t per = 8 / (int64_t)t->bits, bytes = t->blocks < 0 ? -1 : ebb_up(t->blocks, per);
    t->zero_row = bytes * per;
    return is_beside(zeros, &t->whole, axis, t->packed ? bytes : t->blocks)
               ? NULL
               : "input 3 has not one zero point for each block";
}
