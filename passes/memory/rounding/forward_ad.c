/* forward-ad: the derivative of a chain of pointwise operators is one tensor; carry it beside the
 * value in the forward, and keep it alone.
 *
 *   before   u = 2 x   s = Sigmoid(u)   y = x s
 *            du = SigmoidGrad(dy x, s)   dx = dy s + 2 du             x and s wait for the backward
 *   after    d = 1;  d = 2 d;  d = SigmoidGrad(d, s);  d = s + x d    beside u, s and y
 *            dx = dy d                                                d waits
 *
 * Of n operators a chain keeps up to n tensors for their local derivatives, of which the last is a
 * product. The chain may fork and join, as long as one value alone goes into it that gets a
 * gradient; whatever else its operators read is constant to it. Each operator's own gradient rule,
 * asked with d in dy's place, carries d over it: the derivative of what is pointwise is a diagonal,
 * and that is its own transpose.
 *
 * Rounding: the same factors in another order, so a few units in the last place of each.
 *
 * Declines where this would keep no less: the values that the backward reads stay for other
 * readers, or there is but one. d is kept as any saved tensor is, and may be stored in fewer bits.
 *
 * Paper: arXiv 2209.10778, on nested forward-mode differentiation.
 */
#include "exec/weigh/estimate.h"
#include "passes/memory/rounding/piece.h"

enum { MOST_NODES = 64 }; /* of a chain; no exporter comes near it */

typedef struct chain {
    ebb_node nodes[MOST_NODES]; /* from the last back, as they were taken in */
    size_t count;
    ebb_value open[MOST_NODES]; /* what gets a gradient and goes in from outside, so far */
    size_t open_count;
    ebb_value x, y;
} chain;

typedef struct state {
    ebb_edit *e;
    size_t value_count, node_count; /* before any change */
    bool *wants;                    /* by value id: depends on a parameter */
    bool *taken;                    /* by node id: of a chain that was decided on */
    uint32_t *at;                   /* by node id: its place in the list */
    ebb_saves saves;                /* of the graph as it is now */
    uint32_t *met;                  /* by root: the last chain whose values were counted */
    uint32_t serial;
} state;

typedef struct choice {
    chain c;
    ebb_piece_grad grad;
    int64_t saved;
    ebb_value largest;  /* of what the backward reads no more */
    const char *reason; /* why nothing is gained; NULL where something is */
    bool site;
} choice;

/* ---- what gets a gradient ---- */

static ebb_status find_wants(state *s)
{
    const ebb_graph *g = s->e->g;
    s->value_count = g->value_count;
    s->node_count = g->node_count;
    s->wants = EBB_SCRATCH(s->e, bool, g->value_count);
    s->taken = EBB_SCRATCH(s->e, bool, g->node_count);
    s->at = ebb_graph_positions(g, s->e->scratch);
    s->met = EBB_SCRATCH(s->e, uint32_t, g->value_count);
    EBB_GOT(s->wants && s->taken && s->at && s->met);
    EBB_TRY(ebb_saves_find(&s->saves, g, s->e->scratch));
    for (size_t i = 0; i < g->initializer_count; i++)
        s->wants[g->initializers[i].i] =
            ebb_value_of(g, g->initializers[i])->role == EBB_ROLE_PARAMETER;
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        bool any = false;
        for (uint32_t i = 0; i < info->in_count; i++)
            any = any || s->wants[info->in[i].i];
        if (!any || ebb_is_backward(g, n) || ebb_stops_gradient(g, n))
            continue;
        for (uint32_t o = 0; o < info->out_count; o++)
            s->wants[info->out[o].i] =
                info->out[o].i != 0 &&
                ebb_dtype_is_float((ebb_dtype)ebb_value_of(g, info->out[o])->type->dtype);
    }
    return NULL;
}

/* ---- chains ---- */

/* One output, element by element, with a rule. */
static bool is_link(const state *s, ebb_node n)
{
    const ebb_graph *g = s->e->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    if (n.i == 0 || n.i >= s->node_count || s->taken[n.i] || ebb_is_backward(g, n) ||
        !ebb_op_has(info->op, EBB_POINTWISE) || ebb_stops_gradient(g, n) || info->out_count != 1)
        return false;
    const ebb_type *type = ebb_value_of(g, info->out[0])->type;
    return s->wants[info->out[0].i] && ebb_type_is_static(type) &&
           ebb_dtype_is_float((ebb_dtype)type->dtype);
}

static bool is_in(const chain *c, ebb_node n)
{
    for (size_t k = 0; k < c->count; k++)
        if (ebb_same_node(c->nodes[k], n))
            return true;
    return false;
}

/* v is made by a link and gets its gradient from the chain alone. */
static bool may_enter(const state *s, const chain *c, ebb_value v)
{
    const ebb_graph *g = s->e->g;
    const ebb_value_info *info = ebb_value_of(g, v);
    const ebb_type *type = ebb_value_of(g, c->y)->type;
    if (!is_link(s, info->producer) || info->type->dtype != type->dtype ||
        !ebb_type_same_shape(info->type, type) || (info->flags & EBB_IS_CAPTURED) != 0)
        return false;
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        bool carries = !ebb_is_backward(g, n) && !ebb_stops_gradient(g, n);
        if (carries && !is_in(c, n))
            return false;
    }
    return !ebb_same_value(v, g->loss);
}

static bool open_up(const state *s, chain *c, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(s->e->g, n);
    if (c->count == MOST_NODES)
        return false;
    c->nodes[c->count++] = n;
    for (uint32_t i = 0; i < info->in_count; i++) {
        ebb_value v = info->in[i];
        bool known = v.i == 0 || !s->wants[v.i];
        for (size_t k = 0; k < c->open_count; k++)
            known = known || ebb_same_value(c->open[k], v);
        if (known)
            continue;
        if (c->open_count == MOST_NODES)
            return false;
        c->open[c->open_count++] = v;
    }
    return true;
}

/* The open value that is made last; its maker can only be entered when all its readers are in. */
static size_t latest(const state *s, const chain *c)
{
    size_t best = 0;
    uint32_t at = 0;
    for (size_t k = 0; k < c->open_count; k++) {
        ebb_node n = ebb_value_of(s->e->g, c->open[k])->producer;
        uint32_t place = n.i != 0 && n.i < s->node_count ? s->at[n.i] + 1 : 0;
        if (place > at) {
            at = place;
            best = k;
        }
    }
    return best;
}

/* How many values of y's shape the backward reads that link n makes or reads and no link met before
 * did: what its derivatives may need. */
static size_t count_read(state *s, const chain *c, ebb_node n)
{
    const ebb_graph *g = s->e->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    const ebb_type *type = ebb_value_of(g, c->y)->type;
    size_t count = 0;
    for (uint32_t i = 0; i < info->in_count + info->out_count; i++) {
        ebb_value v = i < info->in_count ? info->in[i] : info->out[i - info->in_count];
        ebb_value root = ebb_saves_root(&s->saves, v);
        if (root.i == 0 || root.i >= s->value_count || s->met[root.i] == s->serial)
            continue;
        s->met[root.i] = s->serial;
        const ebb_value_info *of = ebb_value_of(g, root);
        count += s->saves.reads[root.i] > 0 && of->producer.i != 0 &&
                 of->type->dtype == type->dtype && ebb_type_same_shape(of->type, type);
    }
    return count;
}

/* ---- one chain ---- */

/* Puts the chain's nodes into the order of the list. */
static void sort(const state *s, chain *c)
{
    for (size_t i = 1; i < c->count; i++)
        for (size_t k = i; k > 0 && s->at[c->nodes[k].i] < s->at[c->nodes[k - 1].i]; k--) {
            ebb_node swap = c->nodes[k];
            c->nodes[k] = c->nodes[k - 1];
            c->nodes[k - 1] = swap;
        }
}

/* *known: the chain's gradient is found, so that a shorter chain cannot do better. */
static ebb_status judge(state *s, const chain *c, choice *best, bool *known)
{
    ebb_edit *e = s->e;
    ebb_piece_saves gain;
    const ebb_type *x = ebb_value_of(e->g, c->x)->type, *y = ebb_value_of(e->g, c->y)->type;
    *known = false;
    if (x->dtype != y->dtype || !ebb_type_same_shape(x, y))
        return NULL;
    *best = (choice){.c = *c};
    sort(s, &best->c);
    const ebb_piece piece = {best->c.nodes, best->c.count, c->x, c->y};
    EBB_TRY(ebb_piece_grad_find(&best->grad, e, &piece));
    *known = best->grad.found;
    if (!*known)
        return NULL;
    EBB_TRY(ebb_piece_grad_saves(&gain, &best->grad, e, &s->saves, c->y, EBB_NO_VALUE));
    best->saved = gain.bytes - ebb_stored_bytes(e->g, c->y);
    best->largest = gain.largest;
    best->site = gain.full >= 2;
    if (best->saved <= 0)
        best->reason = "what its backward reads stays for other readers, or is no more than the "
                       "derivative would be";
    return NULL;
}

/* The chain that ends in n: as long as can be. Whenever a single value is open it is an x. */
static ebb_status judge_longest(state *s, ebb_node n, choice *best)
{
    enum { MOST_TRIES = 8 };
    chain c = {.y = ebb_out(s->e->g, n, 0)};
    struct {
        size_t count;
        ebb_value x;
    } cut[MOST_NODES];
    size_t read = 0, cuts = 0;
    bool known = false;
    *best = (choice){.saved = 0};
    s->serial++;
    if (!open_up(s, &c, n))
        return NULL;
    while (c.open_count > 0) {
        read += count_read(s, &c, c.nodes[c.count - 1]);
        if (c.open_count == 1 && c.count >= 2) {
            cut[cuts].count = c.count;
            cut[cuts++].x = c.open[0];
        }
        size_t k = latest(s, &c);
        ebb_value v = c.open[k];
        if (!may_enter(s, &c, v))
            break;
        c.open[k] = c.open[--c.open_count];
        if (!open_up(s, &c, ebb_value_of(s->e->g, v)->producer))
            break;
    }
    for (size_t tries = 0; read >= 2 && cuts > 0 && !known && tries < MOST_TRIES; tries++) {
        c.count = cut[--cuts].count;
        c.x = cut[cuts].x;
        EBB_TRY(judge(s, &c, best, &known));
    }
    return NULL;
}

/* ---- d ---- */

/* What the rule of n makes of d for input i alone; none where nothing flows. */
static ebb_status carry(ebb_edit *e, ebb_build *b, ebb_node n, uint32_t i, ebb_value d,
                        ebb_value *out)
{
    ebb_graph *g = e->g;
    const uint32_t ins = ebb_node_of(g, n)->in_count;
    ebb_value *x = EBB_SCRATCH(e, ebb_value, ins + 1u), *dx = EBB_SCRATCH(e, ebb_value, ins + 1u);
    bool *wants = EBB_SCRATCH(e, bool, ins + 1u);
    EBB_GOT(x && dx && wants);
    memcpy(x, ebb_node_of(g, n)->in, ins * sizeof *x);
    wants[i] = true;
    ebb_value y = ebb_out(g, n, 0);
    ebb_grad c = {n, ins, 1, x, &y, &d, wants, dx, ebb_node_attrs(g, n)};
    ebb_grad_rule(b, ebb_node_of(g, n)->op, &c);
    *out = dx[i];
    return b->status;
}

/* Ones times a whole tensor is that tensor: the rules do not know that their dy is one. */
static ebb_status drop_ones(ebb_edit *e, ebb_value ones, ebb_value *last)
{
    ebb_graph *g = e->g;
    for (size_t i = ebb_value_of(g, ones)->use_count; i-- > 0;) {
        ebb_node n = ebb_value_of(g, ones)->uses[i].node;
        ebb_value a = ebb_in(g, n, 0), other = ebb_same_value(a, ones) ? ebb_in(g, n, 1) : a;
        if (ebb_node_of(g, n)->op != EBB_OP_MUL || ebb_same_value(other, ones) ||
            !ebb_type_same_shape(ebb_value_of(g, other)->type, ebb_value_of(g, ones)->type))
            continue;
        ebb_value out = ebb_out(g, n, 0);
        if (ebb_same_value(*last, out))
            *last = other;
        EBB_TRY(ebb_edit_swap(e, n, other));
    }
    ebb_node maker = ebb_value_of(g, ones)->producer;
    if (ebb_value_of(g, ones)->use_count == 0 && !ebb_same_value(*last, ones))
        ebb_edit_remove(e, maker);
    return NULL;
}

/* The derivative of y by x, carried along the chain. */
static ebb_status derive(ebb_edit *e, const chain *c, ebb_value *d)
{
    ebb_graph *g = e->g;
    ebb_value *carried = EBB_SCRATCH(e, ebb_value, g->value_count);
    EBB_GOT(carried);
    size_t count = g->value_count;
    ebb_build b = ebb_edit_build(e, c->nodes[0], EBB_PHASE_NONE);
    b.name = ebb_arena_printf(e->scratch, "%s/slope", ebb_value_name(g, c->y));
    ebb_value ones =
        ebb_emit(&b, EBB_OP_EXPAND, ebb_const_like(&b, c->x, 1.0), ebb_const_shape(&b, c->x));
    EBB_TRY(b.status);
    carried[c->x.i] = ones;
    for (size_t k = 0; k < c->count; k++) {
        ebb_node n = c->nodes[k];
        ebb_value sum = EBB_NO_VALUE, one;
        b.before = ebb_next(g, n);
        for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
            ebb_value v = ebb_in(g, n, i);
            if (v.i == 0 || v.i >= count || carried[v.i].i == 0)
                continue;
            EBB_TRY(carry(e, &b, n, i, carried[v.i], &one));
            if (one.i != 0)
                sum = sum.i == 0 ? one : ebb_emit(&b, EBB_OP_ADD, sum, one);
        }
        EBB_TRY(b.status);
        carried[ebb_out(g, n, 0).i] = sum;
    }
    *d = carried[c->y.i];
    return d->i != 0 ? drop_ones(e, ones, d)
                     : ebb_error(EBB_UNSUPPORTED, "'%s' does not depend on '%s'",
                                 ebb_value_name(g, c->y), ebb_value_name(g, c->x));
}

static ebb_status rewrite(state *s, const choice *best)
{
    ebb_edit *e = s->e;
    ebb_value d;
    EBB_TRY(derive(e, &best->c, &d));
    ebb_build b = ebb_piece_grad_build(e, &best->grad);
    ebb_value dx = ebb_emit(&b, EBB_OP_MUL, best->grad.dy, d);
    EBB_TRY(b.status);
    EBB_TRY(ebb_piece_grad_replace(e, &best->grad, dx));
    ebb_applied(e);
    return ebb_saves_find(&s->saves, e->g, e->scratch);
}

/* ---- the pass ---- */

/* The forward does what the backward did, one product is more, and so is the writing of ones. */
static ebb_offer offer_of(const ebb_graph *g, const choice *best)
{
    double bytes = (double)ebb_stored_bytes(g, best->c.y);
    return (ebb_offer){.value = best->largest,
                       .saved_bytes = best->saved,
                       .transient_bytes = ebb_stored_bytes(g, best->c.y),
                       .added_ns = ebb_roofline_ns(g, bytes, 4 * bytes)};
}

static ebb_status visit(state *s, ebb_node n)
{
    ebb_edit *e = s->e;
    choice best;
    EBB_TRY(judge_longest(s, n, &best));
    if (!best.site)
        return NULL;
    ebb_found(e);
    for (size_t k = 0; k < best.c.count; k++)
        s->taken[best.c.nodes[k].i] = true;
    if (best.reason != NULL)
        return ebb_skipped(e, n, best.reason);
    ebb_offer offer = offer_of(e->g, &best);
    return ebb_offered(e, n, &offer) ? rewrite(s, &best) : NULL;
}

static ebb_status run(ebb_edit *e)
{
    state s = {.e = e};
    EBB_TRY(find_wants(&s));
    for (ebb_node n = ebb_last(e->g); n.i != 0; n = ebb_prev(e->g, n))
        if (is_link(&s, n))
            EBB_TRY(visit(&s, n));
    return NULL;
}

// clang-format off
const ebb_pass ebb_pass_forward_ad = {
    .name = "forward-ad",
    .doc = "carry the derivative of a chain of pointwise operators along in the forward and keep it alone",
    .paper = "nested forward-mode differentiation, arXiv 2209.10778",
    .exactness = EBB_ROUNDING,
    .run = run,
};
// clang-format on
