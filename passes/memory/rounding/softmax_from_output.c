/* softmax-from-output: the backward of a softmax needs what it made and nothing else.
 *
 *   before   e = Exp(x - Max(x))  t = Sum(e)  p = e / t
 *            de = dp / t ...  dt = -Sum(dp / t p) ...  dz = (de + dt) e ...
 *            dx = dz - (x == Max) ...                       x, e and p wait for the backward
 *   after    dx = SoftmaxGrad(dp, p)                        p waits
 *
 * The same for l = z - Log(Sum(Exp(z))) and x - ReduceLogSumExp(x), with z = x or x - Max(x)
 * (LogSoftmaxGrad from l), for Exp(x - ReduceLogSumExp(x)) and for Exp(LogSoftmax(x)).
 *
 * Rounding: the same mathematics in other operations. What arrives at the maximum and leaves it
 * again is left out.
 *
 * Softmax and LogSoftmax as one node are differentiated from their output by the rules themselves,
 * as are Sigmoid and Tanh: there is nothing to do, and the report says so.
 */
#include "exec/weigh/estimate.h"
#include "passes/memory/rounding/piece.h"

enum { MOST_NODES = 8 };

typedef struct chain {
    ebb_node nodes[MOST_NODES];
    size_t count;
    ebb_value x, y;
    int64_t axis;
    ebb_op grad; /* SoftmaxGrad or LogSoftmaxGrad */
} chain;

/* ---- the forward, from its last node ---- */

static ebb_node made_by(const ebb_graph *g, ebb_value v, ebb_op op)
{
    ebb_node n = ebb_value_of(g, v)->producer;
    return n.i != 0 && ebb_node_of(g, n)->op == op && !ebb_is_backward(g, n) ? n : EBB_NO_NODE;
}

static void put(chain *c, ebb_node n)
{
    if (c->count < MOST_NODES)
        c->nodes[c->count++] = n;
}

/* The forward's reduction of one axis that made v. */
static ebb_node reduced(const ebb_graph *g, ebb_value v, ebb_op op, int64_t *axis,
                        ebb_arena *scratch)
{
    const ebb_node n = ebb_reduced_by(g, v, op, axis, scratch);
    return n.i != 0 && !ebb_is_backward(g, n) ? n : EBB_NO_NODE;
}

/* Goes from z on to x where z = x - Max(x) over the chain's axis. */
static void shifted(chain *c, const ebb_graph *g, ebb_value z, ebb_arena *scratch)
{
    int64_t axis = -1;
    ebb_node sub = made_by(g, z, EBB_OP_SUB);
    c->x = z;
    if (sub.i == 0)
        return;
    ebb_node top = reduced(g, ebb_in(g, sub, 1), EBB_OP_REDUCE_MAX, &axis, scratch);
    if (top.i == 0 || axis != c->axis || !ebb_same_value(ebb_in(g, top, 0), ebb_in(g, sub, 0)))
        return;
    put(c, sub);
    put(c, top);
    c->x = ebb_in(g, sub, 0);
}

/* e = Exp(z) and t = Sum(e) over one axis. */
static bool exp_and_sum(chain *c, const ebb_graph *g, ebb_value e, ebb_value t, ebb_arena *scratch)
{
    ebb_node exp = made_by(g, e, EBB_OP_EXP);
    ebb_node sum = reduced(g, t, EBB_OP_REDUCE_SUM, &c->axis, scratch);
    if (exp.i == 0 || sum.i == 0 || !ebb_same_value(ebb_in(g, sum, 0), e))
        return false;
    put(c, sum);
    put(c, exp);
    return true;
}

/* p = e / t, or e (1 / t). */
static bool is_quotient(chain *c, const ebb_graph *g, ebb_node n, ebb_arena *scratch)
{
    bool product = ebb_node_of(g, n)->op == EBB_OP_MUL;
    for (uint32_t i = 0; i < (product ? 2u : 1u); i++) {
        ebb_value e = ebb_in(g, n, i), t = ebb_in(g, n, 1 - i);
        c->count = 0;
        put(c, n);
        if (product) {
            ebb_node inverse = made_by(g, t, EBB_OP_RECIPROCAL);
            if (inverse.i == 0)
                continue;
            put(c, inverse);
            t = ebb_in(g, inverse, 0);
        }
        if (!exp_and_sum(c, g, e, t, scratch))
            continue;
        c->grad = EBB_OP_SOFTMAX_GRAD;
        shifted(c, g, ebb_in(g, made_by(g, e, EBB_OP_EXP), 0), scratch);
        return true;
    }
    return false;
}

/* l = z - Log(Sum(Exp(z))), or z - ReduceLogSumExp(z). */
static bool is_difference(chain *c, const ebb_graph *g, ebb_node n, ebb_arena *scratch)
{
    ebb_value z = ebb_in(g, n, 0), t = ebb_in(g, n, 1);
    put(c, n);
    c->grad = EBB_OP_LOG_SOFTMAX_GRAD;
    ebb_node log = made_by(g, t, EBB_OP_LOG);
    if (log.i != 0) {
        ebb_value sum = ebb_in(g, log, 0);
        ebb_node adds = made_by(g, sum, EBB_OP_REDUCE_SUM);
        put(c, log);
        if (adds.i == 0 || !exp_and_sum(c, g, ebb_in(g, adds, 0), sum, scratch) ||
            !ebb_same_value(ebb_in(g, made_by(g, ebb_in(g, adds, 0), EBB_OP_EXP), 0), z))
            return false;
    } else {
        ebb_node all = reduced(g, t, EBB_OP_REDUCE_LOG_SUM_EXP, &c->axis, scratch);
        if (all.i == 0 || !ebb_same_value(ebb_in(g, all, 0), z))
            return false;
        put(c, all);
    }
    shifted(c, g, z, scratch);
    return true;
}

static bool is_softmax(chain *c, const ebb_graph *g, ebb_value p, ebb_op op)
{
    ebb_node n = made_by(g, p, op);
    if (n.i == 0)
        return false;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    int rank = ebb_value_of(g, p)->type->rank;
    c->axis = ebb_attr_int(&attrs, "axis", -1);
    c->axis += c->axis < 0 ? rank : 0;
    c->x = ebb_in(g, n, 0);
    put(c, n);
    return rank > 0;
}

/* Exp of the logarithm of a softmax, in one node or several. */
static bool is_exponential(chain *c, const ebb_graph *g, ebb_node n, ebb_arena *scratch)
{
    ebb_value l = ebb_in(g, n, 0);
    put(c, n);
    ebb_node sub = made_by(g, l, EBB_OP_SUB);
    bool is =
        sub.i != 0 ? is_difference(c, g, sub, scratch) : is_softmax(c, g, l, EBB_OP_LOG_SOFTMAX);
    c->grad = EBB_OP_SOFTMAX_GRAD;
    return is;
}

static bool find_chain(chain *c, const ebb_graph *g, ebb_node n, ebb_arena *scratch)
{
    bool found = false;
    *c = (chain){.y = ebb_out(g, n, 0)};
    switch (ebb_node_of(g, n)->op) {
    case EBB_OP_DIV:
    case EBB_OP_MUL:
        found = is_quotient(c, g, n, scratch);
        break;
    case EBB_OP_SUB:
        found = is_difference(c, g, n, scratch);
        break;
    case EBB_OP_EXP:
        found = is_exponential(c, g, n, scratch);
        break;
    default:
        break;
    }
    if (!found || c->count >= MOST_NODES)
        return false;
    const ebb_type *x = ebb_value_of(g, c->x)->type, *y = ebb_value_of(g, c->y)->type;
    return ebb_type_is_static(y) && x->dtype == y->dtype && ebb_type_same_shape(x, y) &&
           c->axis >= 0 && c->axis < y->rank;
}

/* ---- the backward ---- */

static bool is_softmax_grad(ebb_op op)
{
    return op == EBB_OP_SOFTMAX_GRAD || op == EBB_OP_LOG_SOFTMAX_GRAD;
}

/* A gradient of the backward reads y as a softmax's output. */
static bool reads_output(const ebb_graph *g, ebb_value y)
{
    const ebb_value_info *info = ebb_value_of(g, y);
    for (size_t i = 0; i < info->use_count; i++)
        if (is_softmax_grad(ebb_node_of(g, info->uses[i].node)->op) && info->uses[i].slot == 1)
            return true;
    return false;
}

static ebb_offer offer_of(const ebb_graph *g, const chain *c, const ebb_piece_grad *grad,
                          const ebb_piece_saves *gain)
{
    double bytes = (double)ebb_stored_bytes(g, c->y), before = 0;
    for (size_t k = 0; k < grad->dead_count; k++)
        before += ebb_node_ns(g, grad->dead[k]);
    return (ebb_offer){.value = gain->largest,
                       .saved_bytes = gain->bytes,
                       .added_ns = ebb_roofline_ns(g, bytes, 3 * bytes) - before};
}

static ebb_status rewrite(ebb_edit *e, const chain *c, const ebb_piece_grad *grad)
{
    ebb_build b = ebb_piece_grad_build(e, grad);
    ebb_with_int(&b, "axis", c->axis);
    ebb_value dx = ebb_emit(&b, c->grad, grad->dy, c->y);
    EBB_TRY(b.status);
    EBB_TRY(ebb_piece_grad_replace(e, grad, dx));
    ebb_applied(e);
    return NULL;
}

/* A chain that n ends. */
static ebb_status visit(ebb_edit *e, ebb_saves *saves, ebb_node n, const chain *c)
{
    ebb_graph *g = e->g;
    ebb_piece_grad grad;
    ebb_piece_saves gain;
    ebb_node order[MOST_NODES];
    ebb_found(e);
    if (reads_output(g, c->y))
        return ebb_skipped(e, n, "its backward reads its output already");
    for (size_t k = 0; k < c->count; k++) // they were put down last first
        order[k] = c->nodes[c->count - 1 - k];
    const ebb_piece piece = {order, c->count, c->x, c->y};
    EBB_TRY(ebb_piece_grad_find(&grad, e, &piece));
    if (!grad.found)
        return ebb_skipped(e, n, "its backward is not the one that the rules make, or has none");
    EBB_TRY(ebb_piece_grad_saves(&gain, &grad, e, saves, c->y, c->y));
    if (gain.bytes <= 0)
        return ebb_skipped(e, n, "what its backward reads stays for another reason");
    ebb_offer offer = offer_of(g, c, &grad, &gain);
    if (!ebb_offered(e, n, &offer))
        return NULL;
    EBB_TRY(rewrite(e, c, &grad));
    return ebb_saves_find(saves, g, e->scratch);
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    const ebb_node_info *info;
    bool *seen = EBB_SCRATCH(e, bool, g->value_count);
    size_t values = g->value_count;
    ebb_saves saves;
    EBB_GOT(seen);
    EBB_TRY(ebb_saves_find(&saves, g, e->scratch));
    for (ebb_node n = ebb_last(g); n.i != 0; n = ebb_prev(g, n)) { // the longer chain first
        chain c;
        ebb_value y = ebb_out(g, n, 0);
        if (ebb_is_backward(g, n) || y.i == 0 || y.i >= values || seen[y.i] ||
            !find_chain(&c, g, n, e->scratch))
            continue;
        EBB_TRY(visit(e, &saves, n, &c));
        for (size_t k = 0; k < c.count; k++) {
            info = ebb_node_of(g, c.nodes[k]);
            for (uint32_t o = 0; o < info->out_count; o++)
                seen[info->out[o].i < values ? info->out[o].i : 0] = true;
        }
    }
    EBB_EACH_NODE(g, n) {
        info = ebb_node_of(g, n);
        ebb_value y = is_softmax_grad(info->op) ? ebb_in(g, n, 1) : EBB_NO_VALUE;
        if (y.i != 0 && y.i < values && !seen[y.i] && !ebb_node_of(g, n)->dead)
            EBB_TRY(ebb_declined(e, n, "it reads the softmax's output already"));
    }
    return NULL;
}

const ebb_pass ebb_pass_softmax_from_output = {
    .name = "softmax-from-output",
    .doc = "make the gradient of a softmax in several nodes from its output alone",
    .exactness = EBB_ROUNDING,
    .run = run,
};
