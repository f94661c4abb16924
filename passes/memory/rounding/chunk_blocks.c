/* chunk_blocks.c: the layer, its loss and their gradients as nodes, a block of rows behind the other, for a matrix in
 * few bits and for an adapter beside one.
 *
 *     x0 = Slice (x), 0 where the label is ignored
 *                      scores = MatMulCodes (x0, codes ...) + low0 up'
 *                      l0, p = SoftmaxCrossEntropyLoss {sum}   ds = ...Grad (1 / labels that count, p)
 *                      dx0 = MatMulCodes (ds, codes ...)   dlow0 = ds up   dup = ds' low0
 *     x1 = Slice (x)   ...                                                 dup = dup + ds' low1
 *     loss = (l0 + l1 ...) / labels that count   dx = Concat (dx0, dx1 ...)
 *
 * Rows of zeros cost no product with the layer's matrix (kernels/fast/frozen.c), so that rows without a label cost none.
 * Scores, log-probabilities and their gradient lie one over the other, of one block at a time.
 */
#include "passes/memory/rounding/chunk_sites.h"

/* ---- rows ---- */

/* A slice's frame around rows of x, or of what lies beside it, of so many columns. */
static ebb_type with_columns(ebb_type t, int64_t columns)
{
    t.dims[t.rank - 1] = columns;
    return t;
}

/* x, or what lies beside it, with the rows that the loss counts. */
ebb_value ebb_chunk_cut_rows(const ebb_chunk_site *s, ebb_build *b, ebb_value x)
{
    const ebb_type *t = ebb_build_type(b, x);
    const int64_t columns = t->dims[t->rank - 1];
    for (int i = s->cut_count; i-- > 0;) {
        const ebb_chunk_cut *c = &s->cuts[i];
        const ebb_type from = with_columns(c->from, columns);
        uint32_t n = (uint32_t)c->count;
        x = ebb_emit_reshape(b, x, from.dims, from.rank);
        x = ebb_emit(b, EBB_OP_SLICE, x, ebb_const_ints(b, c->starts, n),
                     ebb_const_ints(b, c->ends, n), ebb_const_ints(b, c->axes, n),
                     ebb_const_ints(b, c->steps, n));
    }
    return x;
}

/* The gradient of those rows as that of all: 0 elsewhere. */
ebb_value ebb_chunk_uncut_rows(const ebb_chunk_site *s, ebb_build *b, ebb_value dx, int64_t columns)
{
    for (int i = 0; i < s->cut_count; i++) {
        const ebb_chunk_cut *c = &s->cuts[i];
        const ebb_type from = with_columns(c->from, columns), to = with_columns(c->to, columns);
        uint32_t n = (uint32_t)c->count;
        dx = ebb_emit_reshape(b, dx, to.dims, to.rank);
        dx = ebb_emit(b, EBB_OP_SLICE_GRAD, dx, ebb_const_ints(b, from.dims, (uint32_t)from.rank),
                      ebb_const_ints(b, c->starts, n), ebb_const_ints(b, c->ends, n),
                      ebb_const_ints(b, c->axes, n), ebb_const_ints(b, c->steps, n));
    }
    return dx;
}

/* ---- blocks ---- */

typedef struct blocks {
    const ebb_chunk_site *s;
    ebb_build *b;
    ebb_value x, low, labels, weights, bias; /* as matrices */
    ebb_value ignored, per; /* bool [rows, 1], none where all count; one over the labels that do */
    ebb_value *dx, *dlow;
    uint32_t count;
} blocks;

static ebb_value as_matrix(const ebb_chunk_site *s, ebb_build *b, ebb_value v)
{
    v = ebb_chunk_cut_rows(s, b, v);
    const ebb_type *t = ebb_build_type(b, v);
    int64_t dims[2] = {1, t->dims[t->rank - 1]};
    for (int d = 0; d + 1 < t->rank; d++)
        dims[0] *= t->dims[d];
    v = ebb_emit_reshape(b, v, dims, 2);
    return s->widened ? ebb_emit_cast(b, v, EBB_F32) : v;
}

/* Whether each row is ignored; none: none is. */
static ebb_value ignored_of(const ebb_chunk_site *s, ebb_build *b, ebb_value labels)
{
    ebb_attrs attrs = ebb_node_attrs(s->g, s->loss);
    const ebb_type *t = ebb_build_type(b, labels);
    const int64_t dims[2] = {t->dims[0], 1};
    if (ebb_attr_find(&attrs, "ignore_index") == NULL)
        return EBB_NO_VALUE;
    const double ignored = (double)ebb_attr_int(&attrs, "ignore_index", 0);
    ebb_value number = ebb_emit_cast(b, ebb_const_scalar(b, EBB_F64, ignored), (ebb_dtype)t->dtype);
    return ebb_emit_reshape(b, ebb_emit(b, EBB_OP_EQUAL, labels, number), dims, 2);
}

/* One over the labels that count in the mean; 1 for a sum. */
static ebb_value share_of(const blocks *k, int64_t rows, ebb_dtype dtype)
{
    const int64_t axes[] = {0, 1};
    ebb_build *b = k->b;
    ebb_attrs attrs = ebb_node_attrs(k->s->g, k->s->loss);
    if (strcmp(ebb_attr_string(&attrs, "reduction", "mean"), "mean") != 0)
        return ebb_const_scalar(b, dtype, 1);
    if (k->ignored.i == 0)
        return ebb_const_scalar(b, dtype, 1.0 / (double)rows);
    ebb_value counted = ebb_emit_cast(b, ebb_emit(b, EBB_OP_NOT, k->ignored), dtype);
    return ebb_emit(b, EBB_OP_RECIPROCAL,
                    ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, counted, axes, 2, false));
}

static ebb_value rows_of(const blocks *k, ebb_value v, int64_t from, int64_t to)
{
    const int64_t axis[] = {0};
    return ebb_emit(k->b, EBB_OP_SLICE, v, ebb_const_ints(k->b, &from, 1),
                    ebb_const_ints(k->b, &to, 1), ebb_const_ints(k->b, axis, 1));
}

/* Rows of x, those that are ignored as zeros: the layer's matrix is not multiplied with these. Its
 * gradients of such rows are zeros by themselves. */
static ebb_value rows_that_count(const blocks *k, int64_t from, int64_t to)
{
    const ebb_value rows = rows_of(k, k->x, from, to);
    if (k->ignored.i == 0)
        return rows;
    return ebb_emit(k->b, EBB_OP_WHERE, rows_of(k, k->ignored, from, to),
                    ebb_const_scalar(k->b, (ebb_dtype)ebb_build_type(k->b, rows)->dtype, 0), rows);
}

/* The layer's product with rows of x, or the other way round (`back`) with the gradient of its scores. */
static ebb_value through_layer(const blocks *k, ebb_value rows, bool back)
{
    const ebb_chunk_site *s = k->s;
    const ebb_node_info *layer = ebb_node_of(s->g, s->layer);
    ebb_value in[5] = {rows};
    if (!s->frozen) {
        if (s->turned != back)
            ebb_with_int(k->b, "transB", 1);
        ebb_with_float(k->b, "alpha", s->alpha);
        return ebb_emit(k->b, EBB_OP_FUSED_MATMUL, rows, s->w);
    }
    for (uint32_t i = 1; i < layer->in_count && i < 5; i++)
        in[i] = layer->in[i];
    ebb_with_attrs_of(k->b, s->layer);
    ebb_with_int(k->b, "transB", s->turned != back);
    return ebb_emit_list(k->b, layer->op, in, layer->in_count < 5 ? layer->in_count : 5);
}

static ebb_value beside(const blocks *k, ebb_value a, ebb_value b, bool turn_a, bool turn_b)
{
    if (turn_a)
        ebb_with_int(k->b, "transA", 1);
    if (turn_b)
        ebb_with_int(k->b, "transB", 1);
    ebb_with_float(k->b, "alpha", k->s->low_alpha);
    return ebb_emit(k->b, EBB_OP_FUSED_MATMUL, a, b);
}

static void with_loss(const blocks *k)
{
    ebb_attrs attrs = ebb_node_attrs(k->s->g, k->s->loss);
    ebb_with_string(k->b, "reduction", "sum");
    if (ebb_attr_find(&attrs, "ignore_index") != NULL)
        ebb_with_int(k->b, "ignore_index", ebb_attr_int(&attrs, "ignore_index", 0));
}

static ebb_value added(ebb_build *b, ebb_value sum, ebb_value more)
{
    return sum.i == 0 ? more : ebb_emit(b, EBB_OP_ADD, sum, more);
}

static void put_block(blocks *k, int64_t from, int64_t to, ebb_chunk_made *made)
{
    const ebb_chunk_site *s = k->s;
    ebb_build *b = k->b;
    ebb_value labels = rows_of(k, k->labels, from, to), low = EBB_NO_VALUE, out[2] = {{0}};
    ebb_value scores = through_layer(k, rows_that_count(k, from, to), false);
    if (k->low.i != 0) {
        low = rows_of(k, k->low, from, to);
        scores = ebb_emit(b, EBB_OP_ADD, scores, beside(k, low, s->up, false, true));
    }
    if (k->bias.i != 0)
        scores = ebb_emit(b, EBB_OP_ADD, scores, k->bias);
    with_loss(k);
    ebb_emit_node(b, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS,
                  (const ebb_value[]){scores, labels, k->weights}, k->weights.i != 0 ? 3 : 2, out,
                  2, 3);
    made->loss = added(b, made->loss, out[0]);
    with_loss(k);
    const ebb_value ds = ebb_emit_list(b, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD,
                                       (const ebb_value[]){k->per, out[1], labels, k->weights},
                                       k->weights.i != 0 ? 4 : 3);
    if (s->dbias.i != 0) {
        const int64_t axis[] = {0};
        made->dbias =
            added(b, made->dbias, ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, ds, axis, 1, false));
    }
    if (s->dup.i != 0)
        made->dup = added(b, made->dup, beside(k, ds, low, true, false));
    if (s->dlow.i != 0)
        k->dlow[k->count] = beside(k, ds, s->up, false, false);
    if (s->dx.i != 0)
        k->dx[k->count] = through_layer(k, ds, true);
    k->count++;
}

static ebb_value joined(const blocks *k, const ebb_value *parts)
{
    if (parts[0].i == 0)
        return EBB_NO_VALUE;
    ebb_with_int(k->b, "axis", 0);
    return ebb_emit_list(k->b, EBB_OP_CONCAT, parts, k->count);
}

ebb_status ebb_chunk_put_blocks(const ebb_chunk_site *s, ebb_build *b, ebb_chunk_made *made)
{
    blocks k = {.s = s, .b = b, .x = as_matrix(s, b, s->x), .weights = ebb_in(s->g, s->loss, 2)};
    const int64_t rows = ebb_build_type(b, k.x)->dims[0];
    const ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, k.x)->dtype;
    const size_t count = (size_t)((rows + s->block - 1) / s->block);
    k.dx = EBB_SCRATCH(s->e, ebb_value, count);
    k.dlow = EBB_SCRATCH(s->e, ebb_value, count);
    EBB_GOT(k.dx && k.dlow);
    k.labels = ebb_emit_reshape(b, ebb_in(s->g, s->loss, 1), &rows, 1);
    if (s->low.i != 0)
        k.low = as_matrix(s, b, s->low);
    if (s->bias.i != 0)
        k.bias = ebb_emit_cast(b, ebb_emit_reshape(b, s->bias, &s->classes, 1), dtype);
    k.ignored = ignored_of(s, b, k.labels);
    k.per = share_of(&k, rows, dtype);
    for (int64_t from = 0; from < rows && b->status == NULL; from += s->block)
        put_block(&k, from, from + s->block < rows ? from + s->block : rows, made);
    made->dx = joined(&k, k.dx);
    made->dlow = joined(&k, k.dlow);
    made->loss = ebb_emit(b, EBB_OP_MUL, made->loss, k.per);
    return b->status;
}
