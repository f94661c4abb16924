/* chunk_gradients.c: from the gradient of the scores down to the products that read it.
 *
 *     dx <- MatMul  <-  (Cast) <- (Reshape, Transpose, Pad) <- SoftmaxCrossEntropyLossGrad
 *     dw <- MatMul  <-|
 *  dbias <- ReduceSum <
 *   dlow <- MatMul  <-|       an adapter's
 *    dup <- MatMul  <-|
 */
#include "passes/memory/rounding/chunk_sites.h"

static const char grad_elsewhere[] = "the gradient of its scores is read by something else";

static bool is_view(ebb_op op)
{
    return ebb_op_has(op, EBB_VIEW);
}

static const ebb_type *type_of(const ebb_chunk_site *s, ebb_value v)
{
    return ebb_value_of(s->g, v)->type;
}

typedef struct spot { /* a value that is the gradient of the scores */
    ebb_value v;
    int axis; /* the classes' */
    int cut;  /* how many of the cuts are undone */
} spot;

/* Whether n undoes cut c: SliceGrad with its bounds, or a Pad of zeros with its frame. */
static bool undoes(const ebb_chunk_site *s, ebb_node n, const ebb_chunk_cut *c, const spot *at)
{
    const ebb_graph *g = s->g;
    ebb_value sliced = ebb_in(g, c->node, 0), part = ebb_out(g, c->node, 0);
    if (at->axis != c->axis || !ebb_type_same_shape(type_of(s, at->v), type_of(s, part)) ||
        !ebb_type_same_shape(type_of(s, ebb_out(g, n, 0)), type_of(s, sliced)))
        return false;
    if (ebb_node_of(g, n)->op == EBB_OP_SLICE_GRAD) {
        for (uint32_t i = 1; i < 5; i++)
            if (!ebb_same_value(ebb_in(g, n, i + 1), ebb_in(g, c->node, i)))
                return false;
        return true;
    }
    const int64_t *pads;
    uint32_t count;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    int rank = type_of(s, sliced)->rank;
    if (ebb_in(g, n, 2).i != 0 || ebb_in(g, n, 3).i != 0 ||
        strcmp(ebb_attr_string(&attrs, "mode", "constant"), "constant") != 0 ||
        !ebb_ints_of(g, ebb_in(g, n, 1), s->e->scratch, &pads, &count) ||
        count != 2u * (uint32_t)rank)
        return false;
    for (int d = 0; d < rank; d++) {
        int64_t first = 0, have = d < c->axis ? d : d - 1;
        for (int i = 0; d != c->axis && i < c->count; i++) {
            if (c->axes[i] != have)
                continue;
            int64_t size = type_of(s, sliced)->dims[d], start = c->starts[i];
            if (c->steps[i] != 1)
                return false;
            start = start < 0 ? start + size : start;
            first = start < 0 ? 0 : start > size ? size : start;
        }
        if (pads[d] != first)
            return false;
    }
    return true;
}

/* `rows`, which is x or low, or that as a matrix. */
static bool is_rows_of(const ebb_chunk_site *s, ebb_value v, ebb_value rows)
{
    const ebb_graph *g = s->g;
    const ebb_type *x = type_of(s, rows), *t = type_of(s, v);
    if (t->rank != 2 || t->dims[1] != x->dims[x->rank - 1])
        return false;
    while (!ebb_same_value(v, rows)) {
        ebb_node n = ebb_value_of(g, v)->producer;
        if (n.i == 0 || !is_view(ebb_node_of(g, n)->op))
            return false;
        v = ebb_in(g, n, 0);
    }
    return true;
}

static bool take(const ebb_chunk_site *s, ebb_value *place, ebb_value v)
{
    if (place->i != 0 || (ebb_value_of(s->g, v)->flags & EBB_IS_CAPTURED) != 0)
        return false;
    *place = v;
    return true;
}

/* n is a product with the gradient: dx = alpha g w', or dw = alpha x' g, or its transpose; the same of an
 * adapter, whose matrix is turned. */
static bool take_product(ebb_chunk_site *s, ebb_node n, const spot *at)
{
    ebb_product p;
    const int rank = type_of(s, at->v)->rank;
    if (at->cut != s->cut_count || at->axis != rank - 1 || !ebb_read_product(&p, s->g, n))
        return false;
    const bool of_layer = p.alpha == s->alpha && !s->frozen;
    const bool of_adapter = s->low.i != 0 && p.alpha == s->low_alpha;
    if (ebb_same_value(p.a, at->v) && !p.turn_a) {
        if (of_layer && ebb_same_value(p.b, s->w) && p.turn_b == !s->turned)
            return take(s, &s->dx, p.out);
        return of_adapter && ebb_same_value(p.b, s->up) && !p.turn_b && take(s, &s->dlow, p.out);
    }
    if (rank != 2 || p.turn_b || !p.turn_a)
        return false;
    if (of_adapter && ebb_same_value(p.a, at->v) && is_rows_of(s, p.b, s->low))
        return take(s, &s->dup, p.out);
    if (of_layer && s->low.i == 0 &&
        (s->turned ? ebb_same_value(p.a, at->v) && is_rows_of(s, p.b, s->x)
                   : ebb_same_value(p.b, at->v) && is_rows_of(s, p.a, s->x)))
        return take(s, &s->dw, p.out);
    return false;
}

/* n is the layer's operator the other way round, with the gradient: dx. */
static bool take_frozen(ebb_chunk_site *s, ebb_node n, const spot *at)
{
    const ebb_graph *g = s->g;
    const ebb_node_info *layer = ebb_node_of(g, s->layer), *info = ebb_node_of(g, n);
    ebb_attrs attrs = ebb_node_attrs(g, n);
    if (!s->frozen || info->op != layer->op || info->in_count != layer->in_count ||
        at->cut != s->cut_count || at->axis != type_of(s, at->v)->rank - 1 ||
        !ebb_same_value(info->in[0], at->v) ||
        (ebb_attr_int(&attrs, "transB", info->op == EBB_OP_MATMUL_CODES) != 0) == s->turned)
        return false;
    for (uint32_t i = 1; i < info->in_count; i++)
        if (!ebb_same_value(info->in[i], layer->in[i]))
            return false;
    return take(s, &s->dx, info->out[0]);
}

/* n sums the gradient over all rows, and over nothing else. */
static bool take_sum(ebb_chunk_site *s, ebb_node n, const spot *at)
{
    const ebb_type *t = type_of(s, at->v);
    uint32_t count;
    const int64_t *axes;
    bool reduced[EBB_MAX_RANK] = {false};
    if (s->bias.i == 0 || !ebb_axes_of(s->g, n, s->e->scratch, &axes, &count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + t->rank : axes[i];
        if (axis < 0 || axis >= t->rank)
            return false;
        reduced[axis] = true;
    }
    for (int d = 0; d < t->rank; d++)
        if (reduced[d] == (d == at->axis) && (d == at->axis || t->dims[d] != 1))
            return false;
    return take(s, &s->dbias, ebb_out(s->g, n, 0));
}

/* Where one reader of the gradient leads: a further spot (*next), or an end. */
static bool follow(ebb_chunk_site *s, ebb_node n, const spot *at, spot *next)
{
    const ebb_graph *g = s->g;
    ebb_op op = ebb_node_of(g, n)->op;
    ebb_value out = ebb_out(g, n, 0);
    *next = (spot){out, at->axis, at->cut};
    if (is_view(op)) {
        next->axis = ebb_chunk_axis_in(type_of(s, out), type_of(s, at->v), at->axis);
        return next->axis >= 0;
    }
    switch (op) {
    case EBB_OP_CAST:
        return s->widened && type_of(s, out)->dtype == type_of(s, s->x)->dtype;
    case EBB_OP_TRANSPOSE:
        next->axis = ebb_chunk_axis_transposed(g, n, at->axis, false);
        return next->axis >= 0;
    case EBB_OP_PAD:
    case EBB_OP_SLICE_GRAD:
        next->cut++;
        return at->cut < s->cut_count && ebb_same_value(ebb_in(g, n, 0), at->v) &&
               undoes(s, n, &s->cuts[at->cut], at);
    case EBB_OP_MATMUL:
    case EBB_OP_FUSED_MATMUL:
    case EBB_OP_GEMM:
        next->v = EBB_NO_VALUE;
        return take_product(s, n, at);
    case EBB_OP_MATMUL_CODES:
    case EBB_OP_MATMUL_DEQUANTIZED:
        next->v = EBB_NO_VALUE;
        return take_frozen(s, n, at);
    case EBB_OP_REDUCE_SUM:
        next->v = EBB_NO_VALUE;
        return take_sum(s, n, at);
    default:
        return false;
    }
}

const char *ebb_chunk_find_gradients(ebb_chunk_site *s)
{
    enum { MOST = 32 };
    spot spots[MOST] = {{ebb_out(s->g, s->grad, 0), 1, 0}};
    for (int i = 0, count = 1; i < count; i++) {
        const ebb_value_info *info = ebb_value_of(s->g, spots[i].v);
        if (ebb_value_is_held(s->g, spots[i].v))
            return grad_elsewhere;
        for (size_t u = 0; u < info->use_count; u++) {
            spot next;
            if (count == MOST || !follow(s, info->uses[u].node, &spots[i], &next))
                return grad_elsewhere;
            if (next.v.i != 0)
                spots[count++] = next;
        }
    }
    return NULL;
}
