/* dora.c: rows of a layer's weight that have a length of their own (DoRA), as PEFT computes it.
 *
 *   y = (x W + s (x A') B') m / n + bias       n = |rows of W + s B A|,  through which no gradient goes
 *
 * m [out] is trained, and begins with the rows' lengths, so that y is what it was. No matrix of W's size is made:
 *
 *   n^2 = |w|^2 + sum over r of B (2 s (W A') + s^2 B (A A'))
 *
 * |w|^2 is computed once, when the adapter is made, and W A' is the layer's own product with the rows of A, so W may
 * be in few bits.
 *
 * Liu et al., "DoRA: weight-decomposed low-rank adaptation", 2024, section 4.3 of which takes n as a constant.
 */
#include "passes/primal/lora/adapters.h"

#include "onnx/words/frozen.h"

/* ---- what rows are long ---- */

/* The initializer behind the operand, through nodes that change no number but by rounding; *turned: it lies the other
 * way round than the operand. NULL: it is made otherwise, or has no bytes. */
static const ebb_tensor *floats_of(const ebb_graph *g, ebb_value v, bool *turned)
{
    enum { FAR = 4 };
    *turned = false;
    for (int step = 0; step < FAR; step++) {
        const ebb_value_info *info = ebb_value_of(g, v);
        if ((info->flags & EBB_IS_INITIALIZER) != 0)
            return info->tensor != NULL && info->tensor->data != NULL &&
                           ebb_dtype_is_float((ebb_dtype)info->type->dtype) && info->type->rank == 2
                       ? info->tensor
                       : NULL;
        const ebb_op op = ebb_producer_op(g, v);
        if (op != EBB_OP_CAST && op != EBB_OP_TRANSPOSE && op != EBB_OP_IDENTITY)
            return NULL;
        *turned = *turned != (op == EBB_OP_TRANSPOSE); // of a matrix: the other way round
        v = ebb_in(g, info->producer, 0);
    }
    return NULL;
}

/* The operands of a product in few bits; false: not all have bytes. */
static bool frozen_of(const ebb_graph *g, ebb_node n, ebb_frozen_matrix *m)
{
    enum { INPUTS = EBB_FROZEN_LEVELS + 1 };
    ebb_tensor in[INPUTS] = {0};
    const ebb_type *types[INPUTS] = {NULL};
    const ebb_node_info *info = ebb_node_of(g, n);
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    ebb_frozen f;
    for (uint32_t i = 1; i < info->in_count && i < INPUTS; i++) {
        const ebb_tensor *t = info->in[i].i != 0 ? ebb_value_of(g, info->in[i])->tensor : NULL;
        if (info->in[i].i != 0 && (t == NULL || t->data == NULL))
            return false;
        if (t != NULL)
            in[i] = *t;
        types[i] = t != NULL ? &in[i].type : NULL;
    }
    if (ebb_frozen_read(&f, info->op == EBB_OP_MATMUL_CODES, &attrs, types, INPUTS) != NULL)
        return false;
    ebb_frozen_fill(m, &f, in);
    return true;
}

const char *ebb_lora_check_rows(const ebb_graph *g, const ebb_lora_layer *layer)
{
    bool turned;
    ebb_frozen_matrix m;
    const ebb_attrs attrs = ebb_node_attrs(g, layer->node);
    if (layer->frozen)
        return frozen_of(g, layer->node, &m)
                   ? NULL
                   : "form=dora: its weight has no bytes to take lengths of";
    if (ebb_attr_float(&attrs, "alpha", 1) != 1 || ebb_attr_float(&attrs, "beta", 1) != 1)
        return "form=dora: its product is multiplied by a number";
    return floats_of(g, layer->weight, &turned) != NULL
               ? NULL
               : "form=dora: its weight is no matrix of floats whose bytes are there";
}

static void add_frozen(const ebb_frozen_matrix *m, double *squares)
{
    int64_t last = -1;
    double scale = 0, zero = 0;
    for (int64_t n = 0; n < m->of.n; n++)
        for (int64_t k = 0; k < m->of.k; k++) {
            const int64_t block = ebb_frozen_block(&m->of, n, k);
            if (block != last) {
                scale = ebb_frozen_scale(m, n, k);
                zero = ebb_frozen_zero(m, n, k);
                last = block;
            }
            const double w = (m->level[ebb_frozen_code(m, n, k)] - zero) * scale;
            squares[m->of.turned ? n : k] += w * w;
        }
}

ebb_status ebb_lora_find_squares(const ebb_graph *g, ebb_lora_layer *layer, ebb_arena *scratch)
{
    bool turned;
    ebb_frozen_matrix m;
    layer->squares = ebb_arena_zeroed(scratch, (size_t)layer->out, sizeof *layer->squares);
    EBB_GOT(layer->squares);
    if (layer->frozen) {
        if (frozen_of(g, layer->node, &m))
            add_frozen(&m, layer->squares);
        return NULL;
    }
    const ebb_tensor *w = floats_of(g, layer->weight, &turned);
    const bool rows = turned != layer->turned; // they lie [out, in]
    for (int64_t i = 0; i < layer->in * layer->out; i++) {
        const double x = ebb_tensor_double(w, i);
        layer->squares[rows ? i / layer->in : i % layer->out] += x * x;
    }
    return NULL;
}

/* ---- nodes ---- */

/* x W, without the bias; `bare`: nor what the layer multiplies it by. */
static ebb_value product(ebb_build *b, const ebb_lora_layer *layer, ebb_value x, bool bare)
{
    const ebb_node_info *info = ebb_node_of(b->g, layer->node);
    ebb_value in[EBB_FROZEN_LEVELS + 1] = {x};
    const uint32_t count = layer->frozen ? info->in_count : 2;
    for (uint32_t i = 1; i < count; i++)
        in[i] = info->in[i];
    const ebb_attrs attrs = ebb_node_attrs(b->g, layer->node);
    ebb_with_attrs_of(b, layer->node);
    if (bare && ebb_attr_find(&attrs, "alpha") != NULL)
        ebb_with_float(b, "alpha", 1);
    return ebb_emit_list(b, info->op, in, count);
}

/* Rows of A go through the layer as its input would: [r, out of the part]. */
static ebb_value product_with_a(ebb_build *b, const ebb_lora_layer *layer,
                                const ebb_lora_made *made)
{
    const ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, ebb_in(b->g, layer->node, 0))->dtype;
    ebb_value y =
        ebb_emit_cast(b, product(b, layer, ebb_emit_cast(b, made->a, dtype), true), layer->dtype);
    const int64_t from = ebb_lora_first(layer, made->part),
                  to = from + ebb_lora_rows(layer, made->part);
    if (made->part < 0)
        return y;
    return ebb_emit(b, EBB_OP_SLICE, y, ebb_const_ints(b, &from, 1), ebb_const_ints(b, &to, 1),
                    ebb_const_ints(b, &(int64_t){1}, 1));
}

/* n of the rows of a part. */
static ebb_value lengths(ebb_build *b, const ebb_lora_layer *layer, const ebb_lora_made *made)
{
    const double s = made->scale;
    ebb_value across =
        ebb_emit(b, EBB_OP_MUL, product_with_a(b, layer, made), ebb_const_like(b, made->a, 2 * s));
    ebb_with_int(b, "transB", 1);
    ebb_value inner = ebb_emit(b, EBB_OP_FUSED_MATMUL, made->a, made->a);
    ebb_with_int(b, "transB", 1);
    ebb_with_float(b, "alpha", s * s);
    ebb_value own = ebb_emit(b, EBB_OP_FUSED_MATMUL, inner, made->b);
    ebb_value sum = ebb_emit(b, EBB_OP_ADD, across, own);
    sum = ebb_emit(b, EBB_OP_MUL, sum, ebb_emit_transpose(b, made->b, (int64_t[]){1, 0}, 2));
    sum = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, sum, &(int64_t){0}, 1, false);
    return ebb_emit(b, EBB_OP_SQRT, ebb_emit(b, EBB_OP_ADD, made->squares, sum));
}

/* m / n of all rows; 1 where there is no adapter. */
static ebb_value factors(ebb_build *b, const ebb_lora_layer *layer, const ebb_lora_made *made)
{
    ebb_value part[EBB_LORA_PARTS];
    const int count = layer->part_count > 0 ? layer->part_count : 1;
    for (int k = 0; k < count; k++) {
        if (made[k].length.i == 0) {
            part[k] = ebb_emit(b, EBB_OP_EXPAND, ebb_const_scalar(b, layer->dtype, 1),
                               ebb_const_ints(b, &layer->part[k].rows, 1));
            continue;
        }
        const ebb_value n = ebb_emit_detached(b, lengths(b, layer, &made[k]));
        part[k] = ebb_emit(b, EBB_OP_DIV, made[k].length, n);
    }
    if (count == 1)
        return part[0];
    ebb_with_int(b, "axis", 0);
    return ebb_emit_list(b, EBB_OP_CONCAT, part, (uint32_t)count);
}

ebb_value ebb_lora_stretch(ebb_build *b, const ebb_lora_layer *layer, const ebb_lora_made *made,
                           ebb_value wide)
{
    const ebb_value x = ebb_in(b->g, layer->node, 0);
    const ebb_value bias = layer->frozen ? EBB_NO_VALUE : ebb_in(b->g, layer->node, 2);
    const ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, x)->dtype;
    ebb_value y = product(b, layer, x, false);
    if (b->status == NULL)
        ebb_keep_name(b->g, b->last, layer->node);
    y = ebb_emit(b, EBB_OP_ADD, ebb_emit_cast(b, y, layer->dtype), wide);
    y = ebb_emit_cast(b, ebb_emit(b, EBB_OP_MUL, y, factors(b, layer, made)), dtype);
    return bias.i != 0 ? ebb_emit(b, EBB_OP_ADD, y, bias) : y;
}
