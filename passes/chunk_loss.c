/* chunk-loss: the last linear layer, its loss and their gradients by blocks of rows, so that the
 * scores of all rows never exist.
 *
 *   before   scores = MatMul(x, w)                      [rows, classes], the largest tensor of a
 *            loss, p = SoftmaxCrossEntropyLoss(scores, t)                       language model
 *            ds = SoftmaxCrossEntropyLossGrad(1, p, t)  [rows, classes]
 *            dx = MatMul(ds, w'),  dw = MatMul(x', ds)
 *   after    loss, dx, dw = ai.ebb.LinearCrossEntropy(x, w, bias?, t, weights?) {rows}
 *
 * One sweep makes the scores of a block, turns them into their gradient, and adds that to dx and
 * dw: as many products as before. Gradients are made where the loss is, for a loss gradient of 1;
 * where another one arrives, they are multiplied by it at their old places.
 *
 * Between the layer and the loss may stand a bias, and whatever leaves rows as they are: Reshape
 * and kin, Transpose of the classes' axis, and Slice, which then takes rows of x instead (a
 * language model that predicts its own input drops the last position).
 *
 * Rounding: sums over rows are made block by block.
 *
 * Declines where scores, log-probabilities or gradients are read by something else too, and where
 * one block would hold all rows.
 *
 * Paper: Hsu et al., "Liger kernel: efficient Triton kernels for LLM training", arXiv 2410.10989;
 * Wijmans et al., "Cut your losses in large-vocabulary language models", arXiv 2411.09009.
 */
#include "exec/estimate.h"
#include "passes/common.h"
#include "passes/passes.h"

enum { MOST_CUTS = 4 };

/* A Slice on the way from the layer to the loss, as it is done to x: [rows..., inner]. */
typedef struct cut {
    ebb_node node;
    int64_t starts[EBB_MAX_RANK], ends[EBB_MAX_RANK], axes[EBB_MAX_RANK], steps[EBB_MAX_RANK];
    int count;
    ebb_type from, to; /* the sliced value and the slice, as x has them */
    int axis;          /* the classes' in the sliced value */
} cut;

typedef struct site {
    ebb_edit *e;
    ebb_graph *g;
    ebb_node loss, grad; /* the cross-entropy and its gradient */
    int64_t classes;
    /* upwards */
    ebb_node layer;
    ebb_value x, w, bias; /* bias: as it was given, of any rank; none: there is none */
    bool turned;          /* w is [classes, inner] */
    double alpha;
    cut cuts[MOST_CUTS]; /* from the loss to the layer */
    int cut_count;
    /* downwards */
    ebb_value dx, dw, dbias; /* none: nobody asks */
    int64_t block;
} site;

static const char read_elsewhere[] = "its scores are read by something else";
static const char grad_elsewhere[] = "the gradient of its scores is read by something else";
static const char unknown_shape[] = "the shape of its scores is not known";
static const char no_layer[] = "its scores are not made by a linear layer";

/* ---- axes ---- */

/* Where the classes' axis `axis` of one type is in another with the same rows in the same order:
 * as many elements before and behind it. -1: nowhere. */
static int axis_in(const ebb_type *to, const ebb_type *from, int axis)
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
static int axis_transposed(const ebb_graph *g, ebb_node n, int axis, bool upwards)
{
    const ebb_type *t = &ebb_value_of(g, ebb_in(g, n, 0))->type;
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

static const ebb_type *type_of(const site *s, ebb_value v)
{
    return &ebb_value_of(s->g, v)->type;
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

static const char *read_cut(site *s, ebb_node n, int axis)
{
    if (s->cut_count == MOST_CUTS)
        return no_layer;
    cut *c = &s->cuts[s->cut_count];
    const ebb_type *from = type_of(s, ebb_in(s->g, n, 0)), *to = type_of(s, ebb_out(s->g, n, 0));
    const int64_t *list[4];
    uint32_t count = 0;
    *c = (cut){.node = n, .from = rows_type(from, axis), .to = rows_type(to, axis), .axis = axis};
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
static bool is_bias(const site *s, ebb_value v, int rank, int axis)
{
    const ebb_type *t = type_of(s, v);
    int at = t->rank - (rank - axis);
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] != (d == at ? s->classes : 1))
            return false;
    return at >= 0;
}

static const char *take_bias(site *s, ebb_value bias, int rank, int axis)
{
    if (s->bias.i != 0)
        return "two things are added to its scores";
    if (!is_bias(s, bias, rank, axis))
        return "what is added to its scores is not one number a class";
    s->bias = bias;
    return NULL;
}

/* y = Add(scores, bias), either way round: *v becomes the scores. */
static const char *read_add(site *s, ebb_node n, int axis, ebb_value *v)
{
    const ebb_type *y = type_of(s, ebb_out(s->g, n, 0));
    for (uint32_t i = 0; i < 2; i++) {
        ebb_value scores = ebb_in(s->g, n, i), bias = ebb_in(s->g, n, 1 - i);
        if (!ebb_type_same_shape(type_of(s, scores), y) || !is_bias(s, bias, y->rank, axis))
            continue;
        *v = scores;
        return take_bias(s, bias, y->rank, axis);
    }
    return "what is added to its scores is not one number a class";
}

static const char *read_layer(site *s, ebb_node n, int axis)
{
    const ebb_graph *g = s->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    ebb_op op = ebb_node_of(g, n)->op;
    const ebb_type *y = type_of(s, ebb_out(g, n, 0));
    s->layer = n;
    s->x = ebb_in(g, n, 0);
    s->w = ebb_in(g, n, 1);
    s->alpha = op == EBB_OP_MATMUL ? 1 : ebb_attr_float(&attrs, "alpha", 1);
    s->turned = op != EBB_OP_MATMUL && ebb_attr_int(&attrs, "transB", 0) != 0;
    const ebb_type *x = type_of(s, s->x), *w = type_of(s, s->w);
    if (x->rank < 2 || w->rank != 2 || axis != y->rank - 1 || y->rank != x->rank)
        return "its scores are not made by one matrix";
    if (op != EBB_OP_MATMUL && ebb_attr_int(&attrs, "transA", 0) != 0)
        return "the input of its layer is transposed";
    if (x->dtype != EBB_F32 && x->dtype != EBB_F64)
        return "its scores are neither float32 nor float64";
    ebb_value bias = op == EBB_OP_GEMM ? ebb_in(g, n, 2) : EBB_NO_VALUE;
    if (bias.i == 0)
        return NULL;
    return ebb_attr_float(&attrs, "beta", 1) == 1 ? take_bias(s, bias, 2, 1)
                                                  : "the bias of its layer is scaled";
}

/* One step up from *v, whose classes are on *axis; *v becomes none at the layer. */
static const char *step_up(site *s, ebb_value *v, int *axis)
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
            return unknown_shape;
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_TRANSPOSE:
        *axis = axis_transposed(g, n, *axis, true);
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
        in = EBB_NO_VALUE;
        why = read_layer(s, n, *axis);
        break;
    default:
        if (!is_view(ebb_node_of(g, n)->op))
            return no_layer;
        *axis = axis_in(type_of(s, in), type_of(s, *v), *axis);
    }
    *v = in;
    return why == NULL && *axis < 0 ? "the rows of its scores are rearranged" : why;
}

static const char *find_layer(site *s)
{
    ebb_value v = ebb_in(s->g, s->loss, 0);
    const ebb_type *scores = type_of(s, v);
    int axis = 1;
    if (scores->rank < 2 || !is_known(scores))
        return unknown_shape;
    s->classes = scores->dims[1];
    while (v.i != 0) {
        const char *why = step_up(s, &v, &axis);
        if (why != NULL)
            return why;
    }
    int64_t inner = type_of(s, s->x)->dims[type_of(s, s->x)->rank - 1];
    for (int i = 0; i < s->cut_count; i++) {
        s->cuts[i].from.dims[s->cuts[i].from.rank - 1] = inner;
        s->cuts[i].to.dims[s->cuts[i].to.rank - 1] = inner;
    }
    return NULL;
}

/* ---- from the gradient of the scores down to dx, dw and dbias ---- */

typedef struct spot { /* a value that is the gradient of the scores */
    ebb_value v;
    int axis; /* the classes' */
    int cut;  /* how many of the cuts are undone */
} spot;

/* Whether n undoes cut c: SliceGrad with its bounds, or a Pad of zeros with its frame. */
static bool undoes(const site *s, ebb_node n, const cut *c, const spot *at)
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

/* x, or x as a matrix. */
static bool is_rows_of_x(const site *s, ebb_value v)
{
    const ebb_graph *g = s->g;
    const ebb_type *x = type_of(s, s->x), *t = type_of(s, v);
    if (t->rank != 2 || t->dims[1] != x->dims[x->rank - 1])
        return false;
    while (!ebb_same_value(v, s->x)) {
        ebb_node n = ebb_value_of(g, v)->producer;
        if (n.i == 0 || !is_view(ebb_node_of(g, n)->op))
            return false;
        v = ebb_in(g, n, 0);
    }
    return true;
}

static bool take(const site *s, ebb_value *place, ebb_value v)
{
    if (place->i != 0 || (ebb_value_of(s->g, v)->flags & EBB_IS_CAPTURED) != 0)
        return false;
    *place = v;
    return true;
}

/* n is a product with the gradient: dx = alpha g w', or dw = alpha x' g, or its transpose. */
static bool take_product(site *s, ebb_node n, const spot *at)
{
    const ebb_graph *g = s->g;
    ebb_op op = ebb_node_of(g, n)->op;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    bool plain = op == EBB_OP_MATMUL;
    bool turn_a = !plain && ebb_attr_int(&attrs, "transA", 0) != 0;
    bool turn_b = !plain && ebb_attr_int(&attrs, "transB", 0) != 0;
    double alpha = plain ? 1 : ebb_attr_float(&attrs, "alpha", 1);
    ebb_value a = ebb_in(g, n, 0), b = ebb_in(g, n, 1), out = ebb_out(g, n, 0);
    int rank = type_of(s, at->v)->rank;
    if (at->cut != s->cut_count || at->axis != rank - 1 || alpha != s->alpha ||
        (op == EBB_OP_GEMM && ebb_in(g, n, 2).i != 0))
        return false;
    if (ebb_same_value(a, at->v) && !turn_a && ebb_same_value(b, s->w) && turn_b == !s->turned)
        return take(s, &s->dx, out);
    if (rank != 2 || turn_b || !turn_a)
        return false;
    if (s->turned ? ebb_same_value(a, at->v) && is_rows_of_x(s, b)
                  : ebb_same_value(b, at->v) && is_rows_of_x(s, a))
        return take(s, &s->dw, out);
    return false;
}

/* n sums the gradient over all rows, and over nothing else. */
static bool take_sum(site *s, ebb_node n, const spot *at)
{
    const ebb_type *t = type_of(s, at->v);
    ebb_attrs attrs = ebb_node_attrs(s->g, n);
    uint32_t count = 0;
    const int64_t *axes = ebb_attr_ints(&attrs, "axes", &count);
    bool reduced[EBB_MAX_RANK] = {false};
    if (s->bias.i == 0 || (ebb_in(s->g, n, 1).i != 0 &&
                           !ebb_ints_of(s->g, ebb_in(s->g, n, 1), s->e->scratch, &axes, &count)))
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
static bool follow(site *s, ebb_node n, const spot *at, spot *next)
{
    const ebb_graph *g = s->g;
    ebb_op op = ebb_node_of(g, n)->op;
    ebb_value out = ebb_out(g, n, 0);
    *next = (spot){out, at->axis, at->cut};
    if (is_view(op)) {
        next->axis = axis_in(type_of(s, out), type_of(s, at->v), at->axis);
        return next->axis >= 0;
    }
    switch (op) {
    case EBB_OP_TRANSPOSE:
        next->axis = axis_transposed(g, n, at->axis, false);
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
    case EBB_OP_REDUCE_SUM:
        next->v = EBB_NO_VALUE;
        return take_sum(s, n, at);
    default:
        return false;
    }
}

static bool is_bound(const ebb_graph *g, ebb_value v)
{
    for (size_t i = 0; i < g->binding_count; i++)
        if (ebb_same_value(g->bindings[i].next, v))
            return true;
    return (ebb_value_of(g, v)->flags & EBB_IS_OUTPUT) != 0;
}

static const char *find_gradients(site *s)
{
    enum { MOST = 32 };
    spot spots[MOST] = {{ebb_out(s->g, s->grad, 0), 1, 0}};
    for (int i = 0, count = 1; i < count; i++) {
        const ebb_value_info *info = ebb_value_of(s->g, spots[i].v);
        if (is_bound(s->g, spots[i].v) || (info->flags & EBB_IS_CAPTURED) != 0)
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

/* ---- blocks ---- */

/* Rows of a block: a sixteenth of all, but not so few that products are slow, nor so many that the
 * block is more than tens of MiB; all blocks about alike. */
static int64_t block_of(const site *s, int64_t rows, size_t size)
{
    enum { PARTS = 16, FEWEST = 64, MOST_BYTES = 64 << 20 };
    int64_t given = ebb_option_int(s->e, "rows");
    if (given > 0)
        return given;
    int64_t block = (rows + PARTS - 1) / PARTS, most = MOST_BYTES / (int64_t)size / s->classes;
    block = block > most ? most : block;
    block = block < FEWEST ? FEWEST : block;
    int64_t blocks = (rows + block - 1) / block;
    return (rows + blocks - 1) / blocks;
}

/* Three products over all rows, in blocks: each block reads w and the sum of its gradient anew. */
static double products_ns(double rows, double block, double inner, double classes, double size)
{
    double blocks = rows / block, w = inner * classes * size, flops = 2 * block * inner * classes;
    double moved = w + block * (inner + classes) * size;
    return blocks * (2 * ebb_roofline_ns(flops, moved) + ebb_roofline_ns(flops, moved + w));
}

static const char *choose_block(site *s, ebb_offer *offer)
{
    const ebb_type *scores = type_of(s, ebb_in(s->g, s->loss, 0)), *x = type_of(s, s->x);
    int64_t elements;
    size_t bytes, size = ebb_dtype_bits((ebb_dtype)scores->dtype) / 8;
    if (!ebb_type_elements(scores, &elements) || !ebb_type_bytes(scores, &bytes))
        return unknown_shape;
    int64_t rows = elements / s->classes, inner = x->dims[x->rank - 1];
    s->block = block_of(s, rows, size);
    if (s->block >= rows)
        return "one block would hold all rows";
    offer->value = ebb_out(s->g, s->loss, 1);
    offer->saved_bytes = (int64_t)bytes;
    offer->transient_bytes = s->block * s->classes * (int64_t)size;
    double n = (double)rows, k = (double)inner, c = (double)s->classes, z = (double)size;
    offer->added_ns = products_ns(n, (double)s->block, k, c, z) - products_ns(n, n, k, c, z);
    return NULL;
}

/* ---- the rewriting ---- */

/* The new value takes the old one's uses and, where it can, its name. */
static ebb_status put(site *s, ebb_value old, ebb_value with)
{
    ebb_graph *g = s->g;
    if (!is_bound(g, old) && (ebb_value_of(g, with)->flags & EBB_IS_OUTPUT) == 0) {
        char *name = ebb_arena_strdup(s->e->scratch, ebb_value_name(g, old));
        char *aside = name != NULL ? ebb_arena_printf(s->e->scratch, "%s_before", name) : NULL;
        if (aside == NULL)
            return ebb_error_memory();
        ebb_str fresh = ebb_graph_fresh(g, aside);
        if (fresh.i == 0)
            return ebb_error_memory();
        EBB_TRY(ebb_value_rename(g, old, ebb_text(g, fresh)));
        EBB_TRY(ebb_value_rename(g, with, name));
    }
    return ebb_edit_replace(s->e, old, with);
}

/* x with the rows that the loss counts. */
static ebb_value cut_rows(const site *s, ebb_build *b)
{
    ebb_value x = s->x;
    for (int i = s->cut_count; i-- > 0;) {
        const cut *c = &s->cuts[i];
        uint32_t n = (uint32_t)c->count;
        x = ebb_emit_reshape(b, x, c->from.dims, c->from.rank);
        x = ebb_emit(b, EBB_OP_SLICE, x, ebb_const_ints(b, c->starts, n),
                     ebb_const_ints(b, c->ends, n), ebb_const_ints(b, c->axes, n),
                     ebb_const_ints(b, c->steps, n));
    }
    return x;
}

/* The gradient of those rows as that of x: 0 elsewhere. */
static ebb_value uncut_rows(const site *s, ebb_build *b, ebb_value dx)
{
    for (int i = 0; i < s->cut_count; i++) {
        const cut *c = &s->cuts[i];
        uint32_t n = (uint32_t)c->count;
        dx = ebb_emit_reshape(b, dx, c->to.dims, c->to.rank);
        dx = ebb_emit(b, EBB_OP_SLICE_GRAD, dx,
                      ebb_const_ints(b, c->from.dims, (uint32_t)c->from.rank),
                      ebb_const_ints(b, c->starts, n), ebb_const_ints(b, c->ends, n),
                      ebb_const_ints(b, c->axes, n), ebb_const_ints(b, c->steps, n));
    }
    return dx;
}

/* One gradient at its old place: scaled, with all rows, in its old shape. */
static ebb_status put_gradient(site *s, ebb_value old, ebb_value made)
{
    if (old.i == 0)
        return NULL;
    double scale;
    ebb_value dy = ebb_in(s->g, s->grad, 0);
    ebb_type type = *type_of(s, old);
    ebb_build b = ebb_edit_build(s->e, ebb_value_of(s->g, old)->producer, EBB_PHASE_NONE);
    b.name = ebb_value_name(s->g, old);
    if (!ebb_scalar_of(s->g, dy, &scale) || scale != 1)
        made = ebb_emit(&b, EBB_OP_MUL, made, dy);
    if (ebb_same_value(old, s->dx))
        made = uncut_rows(s, &b, made);
    made = ebb_emit_reshape(&b, made, type.dims, type.rank);
    EBB_TRY(b.status);
    return put(s, old, made);
}

static ebb_status rewrite(site *s)
{
    ebb_graph *g = s->g;
    ebb_build b = ebb_edit_build(s->e, s->loss, EBB_PHASE_NONE);
    ebb_attrs attrs = ebb_node_attrs(g, s->loss);
    const char *name = ebb_text(g, ebb_node_of(g, s->loss)->name);
    ebb_value in[5] = {EBB_NO_VALUE, s->w, s->bias, ebb_in(g, s->loss, 1), ebb_in(g, s->loss, 2)};
    ebb_value out[4] = {{0}};
    b.name = name[0] != '\0' ? name : ebb_value_name(g, ebb_out(g, s->loss, 0));
    in[0] = cut_rows(s, &b);
    if (s->bias.i != 0)
        in[2] = ebb_emit_reshape(&b, s->bias, &s->classes, 1);
    if (s->turned)
        ebb_with_int(&b, "transB", 1);
    if (s->alpha != 1)
        ebb_with_float(&b, "alpha", s->alpha);
    ebb_with_string(&b, "reduction", ebb_attr_string(&attrs, "reduction", "mean"));
    if (ebb_attr_find(&attrs, "ignore_index") != NULL)
        ebb_with_int(&b, "ignore_index", ebb_attr_int(&attrs, "ignore_index", 0));
    ebb_with_int(&b, "rows", s->block);
    uint32_t wanted =
        1u | (s->dx.i != 0 ? 2u : 0) | (s->dw.i != 0 ? 4u : 0) | (s->dbias.i != 0 ? 8u : 0);
    ebb_emit_node(&b, EBB_OP_LINEAR_CROSS_ENTROPY, in, 5, out, 4, wanted);
    EBB_TRY(b.status);
    ebb_keep_name(g, b.last, s->loss);
    EBB_TRY(put_gradient(s, s->dx, out[1]));
    EBB_TRY(put_gradient(s, s->dw, out[2]));
    EBB_TRY(put_gradient(s, s->dbias, out[3]));
    EBB_TRY(put(s, ebb_out(g, s->loss, 0), out[0]));
    ebb_applied(s->e);
    return NULL;
}

/* The one reader of the log-probabilities: the gradient of the loss. */
static const char *find_grad(site *s)
{
    const ebb_graph *g = s->g;
    ebb_value p = ebb_out(g, s->loss, 1);
    ebb_attrs attrs = ebb_node_attrs(g, s->loss);
    if (strcmp(ebb_attr_string(&attrs, "reduction", "mean"), "none") == 0)
        return "its losses are not added up";
    if (p.i == 0 || ebb_value_of(g, p)->use_count == 0)
        return "nothing is trained through it";
    s->grad = ebb_only_user(g, p);
    if (s->grad.i == 0)
        return "its log-probabilities are read by something else";
    ebb_attrs back = ebb_node_attrs(g, s->grad);
    const ebb_attr *a = ebb_attr_find(&attrs, "ignore_index");
    const ebb_attr *b = ebb_attr_find(&back, "ignore_index");
    if (ebb_node_of(g, s->grad)->op != EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD)
        return "its log-probabilities are read by something else";
    if (!ebb_same_value(ebb_in(g, s->grad, 1), p) ||
        !ebb_same_value(ebb_in(g, s->grad, 2), ebb_in(g, s->loss, 1)) ||
        !ebb_same_value(ebb_in(g, s->grad, 3), ebb_in(g, s->loss, 2)) ||
        (a == NULL) != (b == NULL) || (a != NULL && a->i != b->i) ||
        strcmp(ebb_attr_string(&attrs, "reduction", "mean"),
               ebb_attr_string(&back, "reduction", "mean")) != 0)
        return "its gradient is that of another loss";
    return NULL;
}

static ebb_status visit(ebb_edit *e, ebb_node n)
{
    site s = {.e = e, .g = e->g, .loss = n};
    ebb_offer offer = {.saved_bytes = 0};
    const char *reason = find_grad(&s);
    if (reason == NULL)
        reason = find_layer(&s);
    if (reason == NULL)
        reason = find_gradients(&s);
    if (reason == NULL)
        reason = choose_block(&s, &offer);
    if (reason != NULL)
        return ebb_declined(e, n, reason);
    ebb_found(e);
    return ebb_offered(e, n, &offer) ? rewrite(&s) : NULL;
}

static ebb_status run(ebb_edit *e)
{
    if (ebb_option_int(e, "rows") < 0)
        return ebb_error(EBB_USAGE, "pass chunk-loss: rows=%s is not 0 or more",
                         ebb_option_string(e, "rows"));
    EBB_EACH_NODE(e->g, n)
    if (ebb_node_of(e->g, n)->op == EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS)
        EBB_TRY(visit(e, n));
    return NULL;
}

// clang-format off
static const ebb_option options[] = {
    {"rows", EBB_OPTION_INT, "0", NULL, "rows of a block; 0: a sixteenth, at least 64, at most 64 MiB of scores"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_chunk_loss = {
    .name = "chunk-loss",
    .doc = "last linear layer, cross-entropy and their gradients by blocks of rows",
    .paper = "Hsu et al., Liger kernel, arXiv 2410.10989",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
    .offers = true,
};
