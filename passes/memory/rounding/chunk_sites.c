/* chunk_sites.c: from a cross-entropy up to the linear layer that makes its scores.
 *
 *     x, w -> MatMul -> (Add) -> (Cast) -> (Reshape, Transpose, Slice) -> SoftmaxCrossEntropyLoss
 *                         |
 *     low, up -> FusedMatMul                an adapter: of fewer columns than x has
 */
#include "passes/memory/rounding/chunk_sites.h"

static const char read_elsewhere[] = "its scores are read by something else";
const char ebb_chunk_unknown_shape[] = "the shape of its scores is not known";
static const char no_layer[] = "its scores are not made by a linear layer";

/* ---- axes ---- */

/* Where the classes' axis `axis` of one type is in another with the same rows in the same order:
 * as many elements before and behind it. -1: nowhere. */
int ebb_chunk_axis_in(const ebb_type *to, const ebb_type *from, int axis)
{
    int64_t before = 1, behind = 1, so_far = 1;
    for (int d = 0; d < from->rank; d++) {
        before *= d < axis ? from->dims[d] : 1;
        behind *= d > axis ? from->dims[d] : 1;
    }
    for (int d = 0; d < to->rank; so_far *= to->dims[d++]) {
        int64_t rest = 1;
        for (int k = d + 1; k < to->rank; k++)
            rest *= to->dims[k];
        if (so_far == before && rest == behind && to->dims[d] == from->dims[axis])
            return d;
    }
    return -1;
}

/* The same through a Transpose, whose output's axis i is its input's perm[i]: all other axes must
 * stay in order. */
int ebb_chunk_axis_transposed(const ebb_graph *g, ebb_node n, int axis, bool upwards)
{
    const ebb_type *t = ebb_value_of(g, ebb_in(g, n, 0))->type;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    uint32_t count;
    const int64_t *perm = ebb_attr_ints(&attrs, "perm", &count);
    if (perm == NULL || count != (uint32_t)t->rank)
        return -1;
    int from = upwards ? (int)perm[axis] : axis, to = -1;
    int64_t last = -1;
    for (int i = 0; i < t->rank; i++) {
        if (perm[i] == from) {
            to = i;
            continue;
        }
        if (t->dims[perm[i]] == 1)
            continue;
        if (perm[i] < last)
            return -1;
        last = perm[i];
    }
    return upwards ? from : to;
}

/* Static, and so large that no product of its dims overflows. */
static bool is_known(const ebb_type *t)
{
    int64_t elements;
    return ebb_type_is_static(t) && ebb_type_elements(t, &elements) && elements > 0;
}

static bool is_view(ebb_op op)
{
    return ebb_op_has(op, EBB_VIEW);
}

static const ebb_type *type_of(const ebb_chunk_site *s, ebb_value v)
{
    return ebb_value_of(s->g, v)->type;
}

/* ---- from the loss up to the layer ---- */

/* Drops the classes' axis and puts x's last dim, which is not known yet, at the end. */
static ebb_type rows_type(const ebb_type *t, int axis)
{
    ebb_type out = *t;
    out.rank = 0;
    for (int d = 0; d < t->rank; d++)
        if (d != axis)
            out.dims[out.rank++] = t->dims[d];
    out.rank++;
    return out;
}

static const char *read_cut(ebb_chunk_site *s, ebb_node n, int axis)
{
    if (s->cut_count == EBB_CHUNK_CUTS)
        return no_layer;
    ebb_chunk_cut *c = &s->cuts[s->cut_count];
    const ebb_type *from = type_of(s, ebb_in(s->g, n, 0)), *to = type_of(s, ebb_out(s->g, n, 0));
    const int64_t *list[4];
    uint32_t count = 0;
    *c = (ebb_chunk_cut){
        .node = n, .from = rows_type(from, axis), .to = rows_type(to, axis), .axis = axis};
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t length;
        list[i] = NULL;
        if (ebb_in(s->g, n, i + 1).i == 0)
            continue;
        if (!ebb_ints_of(s->g, ebb_in(s->g, n, i + 1), s->e->scratch, &list[i], &length))
            return "rows of its scores are chosen by values that are not constant";
        if ((i > 0 && length != count) || length > EBB_MAX_RANK)
            return no_layer;
        count = length;
    }
    if (list[0] == NULL || list[1] == NULL)
        return no_layer;
    for (uint32_t i = 0; i < count; i++) {
        int64_t at = list[2] != NULL ? list[2][i] : (int64_t)i;
        at = at < 0 ? at + from->rank : at;
        if (at == axis)
            return "some of its classes are sliced away";
        c->starts[i] = list[0][i];
        c->ends[i] = list[1][i];
        c->axes[i] = at < axis ? at : at - 1;
        c->steps[i] = list[3] != NULL ? list[3][i] : 1;
    }
    c->count = (int)count;
    s->cut_count++;
    return NULL;
}

/* A value of one element for each class, along that axis of a value of this rank. */
static bool is_bias(const ebb_chunk_site *s, ebb_value v, int rank, int axis)
{
    const ebb_type *t = type_of(s, v);
    int at = t->rank - (rank - axis);
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] != (d == at ? s->classes : 1))
            return false;
    return at >= 0;
}

static const char *take_bias(ebb_chunk_site *s, ebb_value bias, int rank, int axis)
{
    if (s->bias.i != 0)
        return "two things are added to its scores";
    if (!is_bias(s, bias, rank, axis))
        return "what is added to its scores is not one number a class";
    s->bias = bias;
    return NULL;
}

/* v = alpha low up', for nobody else: what an adapter adds. */
static bool is_adapter(const ebb_chunk_site *s, ebb_value v)
{
    const ebb_graph *g = s->g;
    const ebb_node n = ebb_value_of(g, v)->producer;
    if (n.i == 0 || ebb_node_of(g, n)->op != EBB_OP_FUSED_MATMUL || ebb_only_user(g, v).i == 0)
        return false;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    const ebb_type *low = type_of(s, ebb_in(g, n, 0)), *up = type_of(s, ebb_in(g, n, 1));
    return ebb_attr_int(&attrs, "transB", 0) != 0 && ebb_attr_int(&attrs, "transA", 0) == 0 &&
           ebb_attr_int(&attrs, "transBatchA", 0) == 0 &&
           ebb_attr_int(&attrs, "transBatchB", 0) == 0 && is_known(low) && is_known(up) &&
           low->rank >= 2 && up->rank == 2 && up->dims[0] == s->classes &&
           low->rank == type_of(s, v)->rank;
}

/* Columns of what makes v, a product. */
static int64_t inner_of(const ebb_chunk_site *s, ebb_value v)
{
    const ebb_node n = ebb_value_of(s->g, v)->producer;
    const ebb_type *a = n.i != 0 ? type_of(s, ebb_in(s->g, n, 0)) : NULL;
    return a != NULL && a->rank > 0 ? a->dims[a->rank - 1] : INT64_MAX;
}

static const char *take_adapter(ebb_chunk_site *s, ebb_value v, int axis)
{
    const ebb_node n = ebb_value_of(s->g, v)->producer;
    ebb_attrs attrs = ebb_node_attrs(s->g, n);
    if (s->low.i != 0)
        return "two things are added to its scores";
    if (axis != type_of(s, v)->rank - 1)
        return "the rows of its scores are rearranged";
    s->low = ebb_in(s->g, n, 0);
    s->up = ebb_in(s->g, n, 1);
    s->low_alpha = ebb_attr_float(&attrs, "alpha", 1);
    return NULL;
}

/* y = Add(scores, bias), or what an adapter adds, either way round: *v becomes the scores. */
static const char *read_add(ebb_chunk_site *s, ebb_node n, int axis, ebb_value *v)
{
    const ebb_type *y = type_of(s, ebb_out(s->g, n, 0));
    for (uint32_t i = 0; i < 2; i++) {
        ebb_value scores = ebb_in(s->g, n, i), other = ebb_in(s->g, n, 1 - i);
        if (!ebb_type_same_shape(type_of(s, scores), y))
            continue;
        *v = scores;
        if (is_bias(s, other, y->rank, axis))
            return take_bias(s, other, y->rank, axis);
        if (is_adapter(s, other) && inner_of(s, other) < inner_of(s, scores))
            return take_adapter(s, other, axis);
    }
    return "what is added to its scores is neither one number a class nor an adapter's";
}

/* The layer's matrix: in few bits, or of floats. */
static const char *read_matrix(ebb_chunk_site *s, ebb_op op, const ebb_attrs *attrs)
{
    const ebb_type *w = type_of(s, s->w);
    s->alpha = 1;
    s->frozen = op == EBB_OP_MATMUL_CODES || op == EBB_OP_MATMUL_DEQUANTIZED;
    if (s->frozen) {
        s->turned = ebb_attr_int(attrs, "transB", op == EBB_OP_MATMUL_CODES) != 0;
        return NULL;
    }
    if (op != EBB_OP_MATMUL) {
        s->alpha = ebb_attr_float(attrs, "alpha", 1);
        s->turned = ebb_attr_int(attrs, "transB", 0) != 0;
        if (ebb_attr_int(attrs, "transA", 0) != 0)
            return "the input of its layer is transposed";
    }
    return w->rank != 2 ? "its scores are not made by one matrix" : NULL;
}

/* Rows of an adapter are those of the layer. */
static bool is_beside(const ebb_chunk_site *s)
{
    const ebb_type *x = type_of(s, s->x), *low = type_of(s, s->low);
    bool same = x->rank == low->rank && !s->widened && x->dtype == low->dtype;
    for (int d = 0; same && d + 1 < x->rank; d++)
        same = x->dims[d] == low->dims[d];
    return same;
}

static const char *read_layer(ebb_chunk_site *s, ebb_node n, int axis)
{
    const ebb_graph *g = s->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    ebb_op op = ebb_node_of(g, n)->op;
    const ebb_type *y = type_of(s, ebb_out(g, n, 0));
    s->layer = n;
    s->x = ebb_in(g, n, 0);
    s->w = ebb_in(g, n, 1);
    const ebb_type *x = type_of(s, s->x);
    const char *why = read_matrix(s, op, &attrs);
    if (why != NULL)
        return why;
    if (x->rank < 2 || axis != y->rank - 1 || y->rank != x->rank)
        return "its scores are not made by one matrix";
    if (!s->widened && x->dtype != EBB_F32 && x->dtype != EBB_F64)
        return "its loss is neither float32 nor float64";
    if (s->low.i != 0 && !is_beside(s))
        return "its adapter has other rows, or another dtype";
    ebb_value bias = op == EBB_OP_GEMM ? ebb_in(g, n, 2) : EBB_NO_VALUE;
    if (bias.i == 0)
        return NULL;
    return ebb_attr_float(&attrs, "beta", 1) == 1 ? take_bias(s, bias, 2, 1)
                                                  : "the bias of its layer is scaled";
}

/* Scores in 16 bits that are cast to float32: they are all that the loss is of. */
static const char *read_cast(ebb_chunk_site *s, ebb_node n)
{
    const ebb_type *from = type_of(s, ebb_in(s->g, n, 0)), *to = type_of(s, ebb_out(s->g, n, 0));
    if (s->widened || to->dtype != EBB_F32 || !ebb_is_narrow(from))
        return no_layer;
    s->widened = true;
    return NULL;
}

/* One step up from *v, whose classes are on *axis; *v becomes none at the layer. */
static const char *step_up(ebb_chunk_site *s, ebb_value *v, int *axis)
{
    const ebb_graph *g = s->g;
    ebb_node n = ebb_value_of(g, *v)->producer;
    const char *why = NULL;
    if (n.i == 0)
        return no_layer;
    if (ebb_only_user(g, *v).i == 0)
        return read_elsewhere;
    ebb_value in = ebb_in(g, n, 0);
    for (uint32_t i = 0; i < 2; i++)
        if (ebb_in(g, n, i).i != 0 && !is_known(type_of(s, ebb_in(g, n, i))))
            return ebb_chunk_unknown_shape;
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_CAST:
        why = read_cast(s, n);
        break;
    case EBB_OP_TRANSPOSE:
        *axis = ebb_chunk_axis_transposed(g, n, *axis, true);
        break;
    case EBB_OP_SLICE:
        why = read_cut(s, n, *axis);
        break;
    case EBB_OP_ADD:
        why = read_add(s, n, *axis, &in);
        break;
    case EBB_OP_MATMUL:
    case EBB_OP_FUSED_MATMUL:
    case EBB_OP_GEMM:
    case EBB_OP_MATMUL_CODES:
    case EBB_OP_MATMUL_DEQUANTIZED:
        in = EBB_NO_VALUE;
        why = read_layer(s, n, *axis);
        break;
    default:
        if (!is_view(ebb_node_of(g, n)->op))
            return no_layer;
        *axis = ebb_chunk_axis_in(type_of(s, in), type_of(s, *v), *axis);
    }
    *v = in;
    return why == NULL && *axis < 0 ? "the rows of its scores are rearranged" : why;
}

static const char *find_layer(ebb_chunk_site *s)
{
    ebb_value v = ebb_in(s->g, s->loss, 0);
    const ebb_type *scores = type_of(s, v);
    int axis = 1;
    if (scores->rank < 2 || !is_known(scores))
        return ebb_chunk_unknown_shape;
    s->classes = scores->dims[1];
    while (v.i != 0) {
        const char *why = step_up(s, &v, &axis);
        if (why != NULL)
            return why;
    }
    return NULL;
}

const char *ebb_chunk_site_find(ebb_chunk_site *s, ebb_edit *e, ebb_node loss)
{
    *s = (ebb_chunk_site){.e = e, .g = e->g, .loss = loss};
    const char *why = ebb_loss_gradient(s->g, loss, &s->grad);
    if (why == NULL)
        why = find_layer(s);
    return why == NULL ? ebb_chunk_find_gradients(s) : why;
}
