/* linear-grad: the gradients of a linear layer's weight and of its bias become one node.
 *
 *   before   dW = Gemm(dY, X) {transA = 1}     db = ReduceSum(dY, rows)
 *   after    dW, db = ai.ebb.LinearGrad(dY, X)
 *
 *   before   dW = Gemm(X, dY) {transA = 1}     db = ReduceSum(dY, rows)
 *   after    dW, , db = ai.ebb.LinearGrad(X, dY)
 *
 * Both read all of dY: a library that sums its rows while it multiplies reads it once, which is what
 * the pass is for. The sum may see dY through a view, with its rows as several axes.
 *
 * A node of the graph, not calls that a back end joins: the library adds in an order of its own, and
 * a node has the same bits whatever stands around it, so what is exact stays so behind this pass.
 *
 * A pass of its own, and no rule of fuse: fuse makes the forward, and these nodes come with the
 * gradient. sample-matmul, sparsify and chunk-loss look for the product and for the sum, so what
 * joins them is named behind those.
 *
 * The node stands where the product stood, so dW is made when it was, and db no later than with it:
 * only db, one row, may live longer or shorter than before.
 *
 * Rounding: a library's sum. Where no back end has a kernel for both, each is computed by what makes
 * it as a node, and every bit is as before: so on the CPU.
 */
#include "passes/common.h"
#include "passes/passes.h"

enum { VIEWS = 4 };

typedef struct site {
    ebb_node sum, product;
    uint32_t slot;         /* in which the product reads dY */
    int64_t rows, columns; /* of dY */
} site;

typedef struct state {
    ebb_edit *e;
    uint32_t *at; /* positions of the nodes that were there at first */
    uint32_t node_count;
} state;

/* ---- the sum ---- */

static bool list_of_axes(const state *s, ebb_node n, const int64_t **axes, uint32_t *count)
{
    const ebb_graph *g = s->e->g;
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    *axes = ebb_attr_ints(&attrs, "axes", count);
    if (ebb_in(g, n, 1).i != 0)
        return ebb_ints_of(g, ebb_in(g, n, 1), s->e->scratch, axes, count);
    return *axes != NULL;
}

/* Sums over the axes in front, all those behind them kept: x is [rows, columns] whatever its rank. */
static bool reads_rows(site *t, const state *s, ebb_node n)
{
    const ebb_type *x = ebb_value_of(s->e->g, ebb_in(s->e->g, n, 0))->type;
    const int64_t *axes;
    uint32_t count;
    bool summed[EBB_MAX_RANK] = {false};
    int64_t elements;
    if (!ebb_type_elements(x, &elements) || elements < 1 || !list_of_axes(s, n, &axes, &count) ||
        count < 1 || (int)count >= x->rank)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + x->rank : axes[i];
        if (axis < 0 || axis >= (int64_t)count || summed[axis])
            return false;
        summed[axis] = true;
    }
    *t = (site){.sum = n, .rows = 1};
    for (uint32_t d = 0; d < count; d++)
        t->rows *= x->dims[d];
    t->columns = elements / t->rows;
    return true;
}

/* ---- the product ---- */

static bool is_matrix(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 && ebb_value_of(g, v)->type->rank == 2;
}

/* Of two matrices, over the rows of both, read as dY's are. */
static bool is_product(const site *t, const ebb_graph *g, ebb_use use)
{
    const ebb_op op = ebb_node_of(g, use.node)->op;
    const ebb_attrs attrs = ebb_node_attrs(g, use.node);
    if ((op != EBB_OP_GEMM && op != EBB_OP_FUSED_MATMUL) || use.slot > 1 ||
        !ebb_is_backward(g, use.node) || ebb_in(g, use.node, 2).i != 0 ||
        ebb_attr_int(&attrs, "transA", 0) == 0 || ebb_attr_int(&attrs, "transB", 0) != 0 ||
        !is_matrix(g, ebb_in(g, use.node, 0)) || !is_matrix(g, ebb_in(g, use.node, 1)))
        return false;
    const ebb_type *dy = ebb_value_of(g, ebb_in(g, use.node, use.slot))->type;
    return dy->dims[0] == t->rows && dy->dims[1] == t->columns;
}

static bool is_view(const ebb_graph *g, ebb_node n)
{
    return n.i != 0 && ebb_op_has(ebb_node_of(g, n)->op, EBB_VIEW) && ebb_in(g, n, 0).i != 0;
}

/* The first product that reads v, views seen through. */
static void find_product(site *t, const ebb_graph *g, ebb_value v, int views)
{
    for (size_t i = 0; t->product.i == 0 && i < ebb_value_of(g, v)->use_count; i++) {
        const ebb_use use = ebb_value_of(g, v)->uses[i];
        if (is_product(t, g, use)) {
            t->product = use.node;
            t->slot = use.slot;
        } else if (use.slot == 0 && views > 0 && is_view(g, use.node)) {
            find_product(t, g, ebb_out(g, use.node, 0), views - 1);
        }
    }
}

/* dY itself: what the sum reads is a view of it. */
static ebb_value seen_through(const ebb_graph *g, ebb_value v)
{
    for (int views = 0; views < VIEWS && is_view(g, ebb_value_of(g, v)->producer); views++)
        v = ebb_in(g, ebb_value_of(g, v)->producer, 0);
    return v;
}

/* ---- both ---- */

static bool stands_before(const state *s, ebb_node a, ebb_node b)
{
    return a.i < s->node_count && b.i < s->node_count && s->at[a.i] < s->at[b.i];
}

/* db is made where the product is. */
static bool sum_can_wait(const state *s, const site *t)
{
    const ebb_graph *g = s->e->g;
    const ebb_value_info *db = ebb_value_of(g, ebb_out(g, t->sum, 0));
    if (stands_before(s, t->product, t->sum))
        return true;
    for (size_t i = 0; i < db->use_count; i++)
        if (!stands_before(s, t->product, db->uses[i].node))
            return false;
    return (db->flags & EBB_IS_CAPTURED) == 0;
}

static const char *decline(const state *s, const site *t)
{
    const ebb_attrs attrs = ebb_node_attrs(s->e->g, t->product);
    if (ebb_attr_float(&attrs, "alpha", 1.0) != 1.0)
        return "the product is scaled, and the sum of its rows is not";
    return sum_can_wait(s, t) ? NULL : "it is read before the product of the same rows is made";
}

static ebb_status join(ebb_edit *e, const site *t)
{
    ebb_graph *g = e->g;
    const ebb_value in[2] = {ebb_in(g, t->product, 0), ebb_in(g, t->product, 1)};
    const ebb_value dw = ebb_out(g, t->product, 0), db = ebb_out(g, t->sum, 0);
    const uint32_t sums = 1 + t->slot;
    ebb_value made[3] = {{0}};
    ebb_build b = ebb_edit_build(e, t->product, EBB_PHASE_NONE);
    b.name = ebb_text(g, ebb_node_of(g, t->product)->name);
    ebb_emit_node(&b, EBB_OP_LINEAR_GRAD, in, 2, made, sums + 1, 1u | 1u << sums);
    const ebb_node joined = b.last;
    const ebb_value row = ebb_emit_reshape_like(&b, made[sums], db);
    EBB_TRY(b.status);
    EBB_TRY(ebb_edit_replace(e, dw, made[0]));
    EBB_TRY(ebb_edit_replace(e, db, row));
    ebb_keep_name(g, joined, t->product);
    ebb_edit_remove(e, t->product);
    ebb_edit_remove(e, t->sum);
    return NULL;
}

static ebb_status visit(const state *s, ebb_node n)
{
    const ebb_graph *g = s->e->g;
    site t;
    if (!reads_rows(&t, s, n))
        return NULL;
    find_product(&t, g, seen_through(g, ebb_in(g, n, 0)), VIEWS);
    if (t.product.i == 0)
        return NULL; // of no linear layer, or its weight stays as it is
    const char *why = decline(s, &t);
    if (why != NULL)
        return ebb_declined(s->e, n, why);
    EBB_TRY(join(s->e, &t));
    ebb_found(s->e);
    ebb_applied(s->e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    const state s = {e, ebb_graph_positions(g, e->scratch), (uint32_t)g->node_count};
    ebb_node *sums = EBB_SCRATCH(e, ebb_node, g->node_count + (size_t)1);
    size_t count = 0;
    if (s.at == NULL || sums == NULL)
        return ebb_error_memory();
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->op == EBB_OP_REDUCE_SUM && ebb_is_backward(g, n))
            sums[count++] = n;
    for (size_t i = 0; i < count; i++)
        EBB_TRY(visit(&s, sums[i]));
    return NULL;
}

// clang-format off
const ebb_pass ebb_pass_linear_grad = {
    .name = "linear-grad",
    .doc = "the gradients of a linear layer's weight and bias as one node: one product of cuBLASLt, which reads dY once",
    .exactness = EBB_ROUNDING,
    .run = run,
};
// clang-format on
