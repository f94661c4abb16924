/* codes: a tensor as small numbers: Quantize makes codes of 1, 2, 4 or 8 bits and a range for each
 * group of them, Dequantize the tensor again.
 *
 * A tensor is R rows, the product of its dims before `axis`; codes of a row are together and end
 * with a byte, so that rows may be read one by one.
 */
#include "onnx/ops/common.h"
#include "onnx/ops/ops.h"
#include "onnx/ops/shape.h"

static ebb_status read_bits(const ebb_infer *c, int64_t *bits)
{
    *bits = ebb_attr_int(&c->attrs, "bits", 8);
    if (*bits != 1 && *bits != 2 && *bits != 4 && *bits != 8)
        return ebb_infer_error(c, "bits is %lld; 1, 2, 4 or 8 is expected", (long long)*bits);
    return NULL;
}

static ebb_status read_group(const ebb_infer *c, int64_t *group)
{
    *group = ebb_attr_int(&c->attrs, "group", 256);
    if (*group < 8 || *group % 8 != 0 || *group > INT32_MAX)
        return ebb_infer_error(c, "group is %lld; a multiple of 8 is expected", (long long)*group);
    return NULL;
}

static int64_t up(int64_t n, int64_t by)
{
    return n / by + (n % by != 0);
}

static int64_t bytes_of(int64_t codes, int64_t bits)
{
    return up(codes, 8 / bits);
}

/* Rows and elements of a row of input 0; -1 where unknown. */
static ebb_status split(const ebb_infer *c, int64_t axis, int64_t *rows, int64_t *inner)
{
    const ebb_type *x = c->in[0];
    *rows = *inner = -1;
    if (x->rank < 0)
        return NULL;
    if (axis < 0 || axis > x->rank)
        return ebb_infer_error(c, "axis %lld is outside 0..%d", (long long)axis, (int)x->rank);
    ebb_type left = ebb_type_tensor(EBB_U8, (int)axis, x->dims);
    ebb_type right = ebb_type_tensor(EBB_U8, x->rank - (int)axis, x->dims + axis);
    if (!ebb_type_elements(&left, rows))
        *rows = -1;
    if (!ebb_type_elements(&right, inner))
        *inner = -1;
    return NULL;
}

static ebb_status check_key(const ebb_infer *c, uint32_t input)
{
    const ebb_type *key = ebb_infer_type(c, input);
    if (key != NULL &&
        ((key->dtype != EBB_NONE && key->dtype != EBB_I64) ||
         (key->rank >= 0 && (key->rank != 1 || (key->dims[0] >= 0 && key->dims[0] != 2)))))
        return ebb_infer_error(c, "the key is not int64[2]");
    return NULL;
}

/* (X, key int64[2]) {bits, group, axis, stream} -> codes uint8[R, ceil(inner bits / 8)],
 * range bfloat16[R, ceil(inner / group), 2]. */
ebb_status ebb_infer_quantize(ebb_infer *c)
{
    int64_t bits, group, rows, inner;
    EBB_TRY(ebb_infer_need(c, 2));
    EBB_TRY(read_bits(c, &bits));
    EBB_TRY(read_group(c, &group));
    EBB_TRY(check_key(c, 1));
    EBB_TRY(split(c, ebb_attr_int(&c->attrs, "axis", 1), &rows, &inner));
    c->out[0] = ebb_type_ranked(EBB_U8, 2);
    ebb_type_set_dim(&c->out[0], 0, rows);
    ebb_type_set_dim(&c->out[0], 1, inner < 0 ? -1 : bytes_of(inner, bits));
    if (c->output_count > 1) {
        const int64_t dims[3] = {rows, inner < 0 ? -1 : up(inner, group), 2};
        c->out[1] = ebb_type_tensor(EBB_BF16, 3, dims);
    }
    return NULL;
}

/* {shape, to} -> out[0]. */
static ebb_status decoded(ebb_infer *c, int64_t *elements)
{
    uint32_t rank;
    int64_t to = ebb_attr_int(&c->attrs, "to", EBB_F32);
    const int64_t *dims = ebb_attr_ints(&c->attrs, "shape", &rank);
    if (to <= EBB_NONE || to >= EBB_DTYPE_COUNT || !ebb_dtype_is_float((ebb_dtype)to))
        return ebb_infer_error(c, "to is %lld, no float type", (long long)to);
    if (ebb_attr_find(&c->attrs, "shape") == NULL || rank > EBB_MAX_RANK)
        return ebb_infer_error(c, "shape is missing, or has a rank above %d", EBB_MAX_RANK);
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] < 0)
            return ebb_infer_error(c, "shape has a negative dim");
    c->out[0] = ebb_type_tensor((ebb_dtype)to, (int)rank, dims);
    if (!ebb_type_elements(&c->out[0], elements))
        return ebb_infer_error(c, "shape has too many elements");
    return NULL;
}

/* Input i is of this dtype and rank, as far as is known. */
static ebb_status check_input(const ebb_infer *c, uint32_t i, ebb_dtype dtype, int rank)
{
    const ebb_type *t = ebb_infer_type(c, i);
    if (t == NULL)
        return NULL;
    if (t->dtype != EBB_NONE && t->dtype != dtype)
        return ebb_infer_error(c, "input %u is %s, not %s", (unsigned)i,
                               ebb_dtype_name((ebb_dtype)t->dtype), ebb_dtype_name(dtype));
    if (t->rank >= 0 && t->rank != rank)
        return ebb_infer_error(c, "input %u has rank %d, not %d", (unsigned)i, (int)t->rank, rank);
    return NULL;
}

/* (codes, range) {bits, group, shape, to} -> Y of that shape. */
ebb_status ebb_infer_dequantize(ebb_infer *c)
{
    int64_t bits, group, elements;
    EBB_TRY(ebb_infer_need(c, 2));
    EBB_TRY(read_bits(c, &bits));
    EBB_TRY(read_group(c, &group));
    EBB_TRY(check_input(c, 0, EBB_U8, 2));
    EBB_TRY(check_input(c, 1, EBB_BF16, 3));
    EBB_TRY(decoded(c, &elements));
    const ebb_type *codes = ebb_infer_type(c, 0), *range = ebb_infer_type(c, 1);
    if (codes == NULL || range == NULL || !ebb_type_is_static(codes) || !ebb_type_is_static(range))
        return NULL;
    int64_t rows = codes->dims[0];
    if (range->dims[0] != rows || range->dims[2] != 2)
        return ebb_infer_error(c, "codes have %lld rows, and the range is no low and step for each",
                               (long long)rows);
    if (rows == 0 ? elements != 0
                  : elements % rows != 0 || codes->dims[1] != bytes_of(elements / rows, bits) ||
                        range->dims[1] != up(elements / rows, group))
        return ebb_infer_error(c, "codes and range do not hold the %lld elements of shape",
                               (long long)elements);
    return NULL;
}
