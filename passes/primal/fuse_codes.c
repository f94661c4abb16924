/* fuse_codes.c: products with a quantised weight become one node that decodes what it reads.
 *
 *   before   w = DequantizeLinear(codes, scale, zero)   y = MatMul(x, w)
 *   after    y = MatMulDequantized(x, codes, scale, zero)       no float copy of the weight
 *
 *   before   q, s, z = DynamicQuantizeLinear(x)  i = MatMulInteger(q, codes, z, zero)
 *            f = Cast(i)  t = Mul(s, scale)  y = Mul(f, t)
 *   after    a = DequantizeLinear(q, s, z)  y = MatMulDequantized(a, codes, scale, zero)
 *
 * The second has a gradient as well: that of a; x gets it straight through its quantisation where the
 * option says so. Sums of integers become sums of float32.
 */
#include "passes/primal/fuse_codes.h"

#include "onnx/words/frozen.h"
#include "passes/common.h"
#include "passes/parameters/noted.h"

/* ---- what may be decoded by its reader ---- */

static bool is_stored(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return (info->flags & EBB_IS_INITIALIZER) != 0 && info->role != EBB_ROLE_PARAMETER;
}

/* Are these the operands of a MatMulDequantized? x: the type of what is multiplied; in: codes, scale and
 * zero, or none, from 1 on. */
static bool fits(const ebb_graph *g, const ebb_type *x, const ebb_value in[4], const ebb_attr *list,
                 uint32_t count)
{
    const ebb_attrs attrs = {list, count};
    const ebb_type *types[4] = {x};
    ebb_frozen f;
    for (int i = 1; i < 4; i++)
        types[i] = in[i].i != 0 ? ebb_value_of(g, in[i])->type : NULL;
    for (int i = 1; i < 4; i++)
        if (in[i].i != 0 && (!is_stored(g, in[i]) || !ebb_type_is_static(types[i])))
            return false;
    return types[1]->rank == 2 && x->kind == EBB_KIND_TENSOR && x->rank >= 1 &&
           ebb_frozen_read(&f, false, &attrs, types, 4) == NULL && f.dtype != EBB_NONE;
}

static ebb_attr integer(const char *name, int64_t i)
{
    return (ebb_attr){.name = name, .type = EBB_ATTR_INT, .i = i};
}

static ebb_value emit(ebb_build *b, const ebb_value in[4], const ebb_attr *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ebb_with_int(b, list[i].name, list[i].i);
    return ebb_emit_list(b, EBB_OP_MATMUL_DEQUANTIZED, in, in[3].i != 0 ? 4 : 3);
}

/* y = x w, where w is made of codes. */
static ebb_status stand_in(ebb_edit *e, ebb_node n, ebb_value y)
{
    ebb_applied(e);
    return ebb_edit_swap(e, n, y);
}

/* ---- DequantizeLinear ---- */

/* The node that decodes v, through a Transpose of the matrix: *turned is then the other one. */
static ebb_node decoder_of(const ebb_graph *g, ebb_value v, bool *turned)
{
    ebb_op op = ebb_producer_op(g, v);
    ebb_node n = ebb_value_of(g, v)->producer;
    if (op == EBB_OP_TRANSPOSE && ebb_value_of(g, v)->type->rank == 2) {
        ebb_attrs attrs = ebb_node_attrs(g, n);
        uint32_t count;
        const int64_t *perm = ebb_attr_ints(&attrs, "perm", &count);
        if (perm != NULL && perm[0] == 0)
            return EBB_NO_NODE;
        *turned = !*turned;
        n = ebb_value_of(g, ebb_in(g, n, 0))->producer;
        op = n.i != 0 ? ebb_node_of(g, n)->op : EBB_OP_UNKNOWN;
    }
    return op == EBB_OP_DEQUANTIZE_LINEAR ? n : EBB_NO_NODE;
}

/* Of Gemm and FusedMatMul, what no MatMul has. */
static bool is_plain_product(const ebb_graph *g, ebb_node n, const ebb_attrs *attrs)
{
    if (ebb_attr_int(attrs, "transA", 0) != 0 || ebb_attr_int(attrs, "transBatchA", 0) != 0 ||
        ebb_attr_int(attrs, "transBatchB", 0) != 0 || ebb_attr_float(attrs, "alpha", 1) != 1)
        return false;
    return ebb_in(g, n, 2).i == 0 || ebb_attr_float(attrs, "beta", 1) == 1;
}

ebb_status ebb_fuse_dequantized(ebb_edit *e, ebb_node n, bool *done)
{
    ebb_graph *g = e->g;
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    bool turned = ebb_attr_int(&attrs, "transB", 0) != 0;
    *done = false;
    if (!is_plain_product(g, n, &attrs))
        return NULL;
    const ebb_node decoder = decoder_of(g, ebb_in(g, n, 1), &turned);
    if (decoder.i == 0)
        return NULL;
    const ebb_attrs how = ebb_node_attrs(g, decoder);
    const ebb_attr list[] = {integer("axis", ebb_attr_int(&how, "axis", 1)),
                             integer("transB", turned),
                             integer("block_size", ebb_attr_int(&how, "block_size", 0))};
    const uint32_t count = list[2].i != 0 ? 3 : 2;
    const ebb_value in[4] = {ebb_in(g, n, 0), ebb_in(g, decoder, 0), ebb_in(g, decoder, 1),
                             ebb_in(g, decoder, 2)};
    if (!fits(g, ebb_value_of(g, in[0])->type, in, list, count))
        return NULL;
    ebb_found(e);
    ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    ebb_value y = emit(&b, in, list, count);
    EBB_TRY(b.status);
    ebb_keep_name(g, b.last, n);
    EBB_TRY(ebb_noted_keep(g, b.last, n));
    if (ebb_in(g, n, 2).i != 0)
        y = ebb_emit(&b, EBB_OP_ADD, y, ebb_in(g, n, 2));
    EBB_TRY(b.status);
    *done = true;
    return stand_in(e, n, y);
}

/* ---- MatMulInteger ---- */

/* v = Cast(MatMulInteger(...)): that, or none. */
static ebb_node integer_product(const ebb_graph *g, ebb_value v)
{
    if (ebb_producer_op(g, v) != EBB_OP_CAST)
        return EBB_NO_NODE;
    v = ebb_in(g, ebb_value_of(g, v)->producer, 0);
    return ebb_producer_op(g, v) == EBB_OP_MATMUL_INTEGER ? ebb_value_of(g, v)->producer
                                                          : EBB_NO_NODE;
}

/* v = Mul(s, scale) of a number s and what is stored. */
static bool scales_of(const ebb_graph *g, ebb_value v, ebb_value *s, ebb_value *scale)
{
    if (ebb_producer_op(g, v) != EBB_OP_MUL)
        return false;
    const ebb_node n = ebb_value_of(g, v)->producer;
    for (uint32_t i = 0; i < 2; i++) {
        int64_t count;
        *s = ebb_in(g, n, i);
        *scale = ebb_in(g, n, 1 - i);
        if (is_stored(g, *scale) && !is_stored(g, *s) &&
            ebb_type_elements(ebb_value_of(g, *s)->type, &count) && count == 1 &&
            ebb_value_of(g, *s)->type->rank == 0)
            return true;
    }
    return false;
}

/* DequantizeLinear(q, s, z), for all that read q one. */
static ebb_value dequantized(ebb_build *b, ebb_value q, ebb_value s, ebb_value z)
{
    const ebb_graph *g = b->g;
    const ebb_value_info *info = ebb_value_of(g, q);
    for (size_t i = 0; i < info->use_count; i++) {
        const ebb_node n = info->uses[i].node;
        if (ebb_node_of(g, n)->op == EBB_OP_DEQUANTIZE_LINEAR && info->uses[i].slot == 0 &&
            ebb_in(g, n, 1).i == s.i && ebb_in(g, n, 2).i == z.i)
            return ebb_out(g, n, 0);
    }
    return ebb_emit(b, EBB_OP_DEQUANTIZE_LINEAR, q, s, z);
}

ebb_status ebb_fuse_integer_product(ebb_edit *e, ebb_node n, bool *done)
{
    ebb_graph *g = e->g;
    *done = false;
    for (uint32_t i = 0; i < 2; i++) {
        const ebb_node product = integer_product(g, ebb_in(g, n, i));
        ebb_value s, scale;
        if (product.i == 0 || !scales_of(g, ebb_in(g, n, 1 - i), &s, &scale) ||
            ebb_in(g, product, 2).i == 0)
            continue;
        const ebb_attr list[] = {integer("axis", 1)};
        const ebb_value q = ebb_in(g, product, 0);
        ebb_value in[4] = {q, ebb_in(g, product, 1), scale, ebb_in(g, product, 3)};
        ebb_type x = *ebb_value_of(g, q)->type;
        x.dtype = ebb_value_of(g, s)->type->dtype;
        if (x.dtype != ebb_value_of(g, ebb_out(g, n, 0))->type->dtype || !fits(g, &x, in, list, 1))
            continue;
        ebb_found(e);
        ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
        in[0] = dequantized(&b, q, s, ebb_in(g, product, 2));
        const ebb_value y = emit(&b, in, list, 1);
        EBB_TRY(b.status);
        ebb_keep_name(g, b.last, product);
        EBB_TRY(ebb_noted_keep(g, b.last, product));
        *done = true;
        return stand_in(e, n, y);
    }
    return NULL;
}
