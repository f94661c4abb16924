/* codes: a tensor as small numbers: Quantize makes codes of 1, 2, 4 or 8 bits and a range for each
 * group of them, Dequantize the tensor again.
 *
 * A tensor is R rows, the product of its dims before `axis`; codes of a row are together and end
 * with a byte, so that rows may be read one by one.
 */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

static ebb_status read_bits(const ebb_infer *c, int64_t *bits)
{
    *bits = ebb_attr_int(&c->attrs, "bits", 8);
    if (*bits != 1 && *bits != 2 && *bits != 4 && *bits != 8)
        return ebb_infer_error(c, "bits is %lld; 1, 2, 4 or 8 is expected", (long long)*bits);
    return NULL;
}

/* A group of codes fills whole bytes. */
static ebb_status read_group(const ebb_infer *c, int64_t bits, int64_t *group)
{
    *group = ebb_attr_int(&c->attrs, "group", 256);
    if (*group < 1 || *group > INT32_MAX || *group * bits % 8 != 0)
        return ebb_infer_error(c, "group is %lld; of %lld bits each, it does not fill whole bytes",
                               (long long)*group, (long long)bits);
    return NULL;
}

static int64_t bytes_of(int64_t codes, int64_t bits)
{
    return ebb_up(codes, 8 / bits);
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

/* (X, key int64[2]) {bits, group, axis, stream} -> codes uint8[R, ceil(inner bits / 8)],
 * range bfloat16[R, ceil(inner / group), 2]. */
ebb_status ebb_infer_quantize(ebb_infer *c)
{
    int64_t bits, group, rows, inner;
    EBB_TRY(ebb_infer_need(c, 2));
    EBB_TRY(read_bits(c, &bits));
    EBB_TRY(read_group(c, bits, &group));
    EBB_TRY(check_key(c, 1));
    EBB_TRY(split(c, ebb_attr_int(&c->attrs, "axis", 1), &rows, &inner));
    c->out[0] = ebb_type_ranked(EBB_U8, 2);
    ebb_type_set_dim(&c->out[0], 0, rows);
    ebb_type_set_dim(&c->out[0], 1, inner < 0 ? -1 : bytes_of(inner, bits));
    if (c->output_count > 1) {
        const int64_t dims[3] = {rows, inner < 0 ? -1 : ebb_up(inner, group), 2};
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

/* (codes, range) {bits, group, shape, to} -> Y of that shape. */
ebb_status ebb_infer_dequantize(ebb_infer *c)
{
    int64_t bits, group, elements;
    EBB_TRY(read_bits(c, &bits));
    EBB_TRY(read_group(c, bits, &group));
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
                        range->dims[1] != ebb_up(elements / rows, group))
        return ebb_infer_error(c, "codes and range do not hold the %lld elements of shape",
                               (long long)elements);
    return NULL;
}

/* (X, key, state float32[classes, 2]) {bits, group, axis, decay, stream} -> codes, range, next.
 * Groups divide a row, and classes the groups of it. */
ebb_status ebb_infer_quantize_running(ebb_infer *c)
{
    int64_t bits, group, rows, inner;
    double decay = ebb_attr_float(&c->attrs, "decay", 0.9);
    EBB_TRY(ebb_infer_need(c, 3));
    EBB_TRY(ebb_infer_quantize(c));
    EBB_TRY(read_bits(c, &bits));
    EBB_TRY(read_group(c, bits, &group));
    EBB_TRY(split(c, ebb_attr_int(&c->attrs, "axis", 1), &rows, &inner));
    EBB_TRY(check_input(c, 2, EBB_F32, 2));
    if (!(decay >= 0 && decay < 1))
        return ebb_infer_error(c, "decay is %g, outside of [0, 1)", decay);
    const ebb_type *state = ebb_infer_type(c, 2);
    int64_t classes = state != NULL && state->rank == 2 ? state->dims[0] : -1;
    if (state != NULL && state->rank == 2 && state->dims[1] >= 0 && state->dims[1] != 2)
        return ebb_infer_error(c, "the state is no low and width for each class");
    if (inner >= 0 && inner % group != 0)
        return ebb_infer_error(c, "groups of %lld do not divide a row of %lld", (long long)group,
                               (long long)inner);
    if (classes == 0 || (classes > 0 && inner >= 0 && inner / group % classes != 0))
        return ebb_infer_error(c, "%lld classes do not divide the groups of a row",
                               (long long)classes);
    if (c->output_count > 2)
        c->out[2] = *c->in[2];
    return NULL;
}

/* ---- split-frequency ---- */

static ebb_status read_block(const ebb_infer *c, int64_t *block)
{
    *block = ebb_attr_int(&c->attrs, "block", 8);
    if (*block < 1 || *block > 1024)
        return ebb_infer_error(c, "block is %lld; 1 to 1024 is expected", (long long)*block);
    return NULL;
}

/* Of X[N, C, H, W]: low bfloat16[N, C, ceil(H / block), ceil(W / block)], codes uint8[N, C,
 * ceil(H W bits / 8)], range bfloat16[N, C, 2]. */
static void split_types(ebb_type t[3], const ebb_type *x, int64_t block, int64_t bits)
{
    int64_t plane = 0;
    int64_t n = x->dims[0], k = x->dims[1], h = x->dims[2], w = x->dims[3];
    const int64_t hw[2] = {h, w},
                  low[4] = {n, k, h < 0 ? -1 : ebb_up(h, block), w < 0 ? -1 : ebb_up(w, block)};
    ebb_type flat = ebb_type_tensor(EBB_U8, 2, hw);
    if (!ebb_type_elements(&flat, &plane))
        plane = -1;
    const int64_t codes[3] = {n, k, plane < 0 ? -1 : bytes_of(plane, bits)}, range[3] = {n, k, 2};
    t[0] = ebb_type_tensor(EBB_BF16, 4, low);
    t[1] = ebb_type_tensor(EBB_U8, 3, codes);
    t[2] = ebb_type_tensor(EBB_BF16, 3, range);
}

/* (X, key) {block, bits, stream} -> low, codes, range. */
ebb_status ebb_infer_split_frequency(ebb_infer *c)
{
    int64_t bits, block;
    ebb_type t[3];
    EBB_TRY(ebb_infer_need(c, 2));
    EBB_TRY(read_bits(c, &bits));
    EBB_TRY(read_block(c, &block));
    EBB_TRY(check_key(c, 1));
    const ebb_type *x = ebb_infer_type(c, 0);
    if (x != NULL && x->rank >= 0 && x->rank != 4)
        return ebb_infer_error(c, "input 0 has rank %d, not 4", (int)x->rank);
    ebb_type unknown = ebb_type_ranked(EBB_F32, 4);
    split_types(t, x != NULL && x->rank == 4 ? x : &unknown, block, bits);
    for (uint32_t o = 0; o < 3 && o < c->output_count; o++)
        c->out[o] = t[o];
    return NULL;
}

/* (low, codes, range) {block, bits, shape, to} -> Y of that shape. */
ebb_status ebb_infer_split_frequency_decode(ebb_infer *c)
{
    static const ebb_dtype dtypes[3] = {EBB_BF16, EBB_U8, EBB_BF16};
    static const int ranks[3] = {4, 3, 3};
    int64_t bits, block, elements;
    ebb_type t[3];
    EBB_TRY(read_bits(c, &bits));
    EBB_TRY(read_block(c, &block));
    EBB_TRY(decoded(c, &elements));
    if (c->out[0].rank != 4)
        return ebb_infer_error(c, "shape has rank %d, not 4", (int)c->out[0].rank);
    split_types(t, &c->out[0], block, bits);
    for (uint32_t i = 0; i < 3; i++) {
        const ebb_type *in = ebb_infer_type(c, i);
        EBB_TRY(check_input(c, i, dtypes[i], ranks[i]));
        if (in != NULL && ebb_type_is_static(in) && !ebb_type_same_shape(in, &t[i]))
            return ebb_infer_error(c, "input %u is not of the size that shape asks for",
                                   (unsigned)i);
    }
    return NULL;
}
