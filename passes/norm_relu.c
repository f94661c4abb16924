/* norm-relu: batch norm, the sum behind it and the ReLU become one node, and so does their way
 * back.
 *
 *   before   y = BatchNormTraining(x, ..)     s = Add(y, a)       z = Relu(s)
 *            ds = ReluGrad(dz, z)             dx, .. = BatchNormalizationGrad(ds, x, ..)
 *   after    z, .., m = ai.ebb.BatchNormAddRelu(x, .., a)
 *            dx, .., ds = ai.ebb.BatchNormReluGrad(dz, x, .., m)
 *
 * A library that has a kernel for the whole reads and writes an image once where the nodes go to
 * memory for each: that is what the pass is for, and so it declines where none has, with channels
 * first or no multiple of 8. The bits m of z > 0 are what the kernel of the way back takes: they
 * are kept beside z, an eighth of a byte an element, where another reads z. Where sign-mask has
 * made them before, they are the same bits, and z was let go already.
 *
 * Nodes of the graph, not calls that a back end joins: a node has the same bits whatever stands
 * around it, so what is exact stays so behind this pass.
 *
 * Rounding: y is not rounded before a is added. Where no back end has a kernel for the whole the
 * parts' own compute it, and every bit is as before: so on the CPU.
 *
 * Not made again from x on the way back, which would need neither z nor bits: the scale in float32
 * of what was saved is not the one that the forward has used, so an element near zero could be let
 * through that the forward has not.
 *
 * Declines, besides, where others read what lies in between.
 */
#include <math.h>

#include "passes/common.h"
#include "passes/passes.h"

enum { CHAIN = 8, ASKERS = 8, VIEWS = 4 };

typedef struct way_back { /* of one gradient of the ReLU */
    ebb_node mask, norm;  /* ReluGrad or MaskGrad, and the batch norm's gradient behind it */
    bool read_elsewhere;  /* what the mask lets through */
} way_back;

typedef struct site {
    ebb_node relu, norm, chain[2 * CHAIN]; /* chain: all between them, and both */
    uint32_t chain_count;
    ebb_value added; /* none: nothing is */
    bool shared;     /* something in between is read by others */
    way_back back[ASKERS];
    uint32_t back_count;
    ebb_node packs[ASKERS]; /* PackSign of z */
    uint32_t pack_count;
} site;

typedef struct state {
    ebb_edit *e;
    uint32_t *at; /* positions of the nodes that were there at first */
    uint32_t node_count;
} state;

/* ---- the forward ---- */

static bool is_view(const ebb_graph *g, ebb_node n)
{
    return n.i != 0 && ebb_op_has(ebb_node_of(g, n)->op, EBB_VIEW) && ebb_in(g, n, 0).i != 0;
}

static void add_to_chain(site *s, ebb_node n)
{
    s->chain[s->chain_count++] = n;
}

/* The maker of input `slot` of n, views seen through, which join the chain; none: it has too many
 * of them, or is not the maker's first output. */
static ebb_node behind(site *s, const ebb_graph *g, ebb_node n, uint32_t slot)
{
    ebb_value v = ebb_in(g, n, slot);
    for (int views = 0; v.i != 0 && views < VIEWS; views++) {
        ebb_node maker = ebb_value_of(g, v)->producer;
        s->shared = s->shared || !ebb_same_node(ebb_only_user(g, v), n);
        if (!is_view(g, maker))
            return maker.i != 0 && ebb_same_value(ebb_out(g, maker, 0), v) ? maker : EBB_NO_NODE;
        add_to_chain(s, maker);
        n = maker;
        v = ebb_in(g, n, 0);
    }
    return EBB_NO_NODE;
}

static bool is_norm(const ebb_graph *g, ebb_node n)
{
    return n.i != 0 && ebb_node_of(g, n)->op == EBB_OP_BATCH_NORM_TRAINING;
}

static bool same_type(const ebb_graph *g, ebb_value a, ebb_value b)
{
    const ebb_type *s = &ebb_value_of(g, a)->type, *t = &ebb_value_of(g, b)->type;
    return s->dtype == t->dtype && ebb_type_same_shape(s, t);
}

/* Which addend is a batch norm's, the first that no one else reads; the other is what is added. */
static void find_addend(site *s, const ebb_graph *g, ebb_node add)
{
    const site before = *s;
    site shared = *s;
    for (uint32_t i = 0; i < 2; i++) {
        *s = before;
        s->norm = behind(s, g, add, i);
        s->added = ebb_in(g, add, 1 - i);
        if (!is_norm(g, s->norm) || !same_type(g, s->added, ebb_out(g, add, 0)) ||
            !same_type(g, ebb_in(g, add, i), s->added))
            s->norm = EBB_NO_NODE;
        else if (!s->shared)
            return;
        else if (shared.norm.i == 0)
            shared = *s;
    }
    *s = shared;
}

static bool find_norm(site *s, const ebb_graph *g, ebb_node relu)
{
    *s = (site){.relu = relu};
    add_to_chain(s, relu);
    ebb_node n = behind(s, g, relu, 0);
    if (n.i != 0 && ebb_node_of(g, n)->op == EBB_OP_ADD) {
        add_to_chain(s, n);
        find_addend(s, g, n);
    } else {
        s->norm = is_norm(g, n) ? n : EBB_NO_NODE;
    }
    if (s->norm.i != 0)
        add_to_chain(s, s->norm);
    return s->norm.i != 0;
}

/* [rows, channels], whatever images they are, with whole bytes of bits to a row. */
static bool has_channels_last(const ebb_type *x)
{
    int64_t after = 1, elements;
    for (int d = 2; d < x->rank; d++)
        after *= x->dims[d];
    return x->rank >= 2 && after == 1 && x->dims[1] % 8 == 0 && ebb_type_elements(x, &elements) &&
           elements > 0;
}

static bool stands_before(const state *s, ebb_node a, ebb_node b)
{
    const ebb_graph *g = s->e->g;
    if (a.i >= s->node_count || b.i >= s->node_count)
        return !ebb_is_backward(g, a) && ebb_is_backward(g, b);
    return s->at[a.i] < s->at[b.i];
}

/* The new node stands where the ReLU does. */
static bool statistics_can_wait(const state *s, const site *t)
{
    const ebb_graph *g = s->e->g;
    for (uint32_t k = 1; k < ebb_node_of(g, t->norm)->out_count; k++) {
        ebb_value v = ebb_out(g, t->norm, k);
        for (size_t i = 0; v.i != 0 && i < ebb_value_of(g, v)->use_count; i++)
            if (!stands_before(s, t->relu, ebb_value_of(g, v)->uses[i].node))
                return false;
    }
    return true;
}

static const char *decline(const state *s, const site *t)
{
    const ebb_graph *g = s->e->g;
    int64_t elements;
    if (t->shared)
        return "what lies between its batch norm and it is read by others";
    if (!ebb_type_elements(&ebb_value_of(g, ebb_out(g, t->relu, 0))->type, &elements))
        return "its size is not known";
    if (!has_channels_last(&ebb_value_of(g, ebb_in(g, t->norm, 0))->type))
        return "its batch norm has channels first, or no multiple of 8, and no library has one "
               "kernel for both";
    return statistics_can_wait(s, t) ? NULL : "the statistics of its batch norm are read before it";
}

/* ---- the way back ---- */

/* The first gradient of a batch norm that reads v, views seen through. */
static ebb_node first_norm(const state *s, ebb_value v, int views)
{
    const ebb_graph *g = s->e->g;
    ebb_node first = EBB_NO_NODE;
    for (size_t i = 0; i < ebb_value_of(g, v)->use_count; i++) {
        ebb_use use = ebb_value_of(g, v)->uses[i];
        ebb_node n = EBB_NO_NODE;
        if (use.slot == 0 && ebb_node_of(g, use.node)->op == EBB_OP_BATCH_NORM_GRAD)
            n = use.node;
        else if (use.slot == 0 && views > 0 && is_view(g, use.node))
            n = first_norm(s, ebb_out(g, use.node, 0), views - 1);
        if (n.i != 0 && (first.i == 0 || stands_before(s, n, first)))
            first = n;
    }
    return first;
}

/* Is all that n reads, but its gradient, there already where `where` stands? */
static bool can_move_up(const state *s, ebb_node n, ebb_node where)
{
    const ebb_graph *g = s->e->g;
    for (uint32_t i = 1; i < ebb_node_of(g, n)->in_count; i++) {
        ebb_node maker = ebb_value_of(g, ebb_in(g, n, i))->producer;
        if (maker.i != 0 && !stands_before(s, maker, where))
            return false;
    }
    return true;
}

static void add_way_back(const state *s, site *t, ebb_node mask)
{
    const ebb_graph *g = s->e->g;
    ebb_value through = ebb_out(g, mask, 0);
    way_back w = {.mask = mask, .norm = first_norm(s, through, VIEWS)};
    if (w.norm.i == 0 || t->back_count == ASKERS)
        return;
    ebb_value v = ebb_in(g, w.norm, 0), x = ebb_in(g, w.norm, 1);
    for (ebb_node reader = w.norm; !w.read_elsewhere && reader.i != 0;
         reader = ebb_value_of(g, v)->producer, v = ebb_in(g, reader, 0)) {
        w.read_elsewhere = !ebb_same_node(ebb_only_user(g, v), reader);
        if (ebb_same_value(v, through))
            break;
    }
    const ebb_type *type = &ebb_value_of(g, x)->type;
    if (has_channels_last(type) && type->dtype == ebb_value_of(g, through)->type.dtype &&
        (!w.read_elsewhere || can_move_up(s, w.norm, mask)))
        t->back[t->back_count++] = w;
}

static bool packs_positive(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    return ebb_node_of(g, n)->op == EBB_OP_PACK_SIGN && ebb_attr_float(&attrs, "low", 0) == 0 &&
           isinf(ebb_attr_float(&attrs, "high", (double)INFINITY));
}

static bool masks_alone(const ebb_graph *g, ebb_use use)
{
    ebb_attrs attrs = ebb_node_attrs(g, use.node);
    return ebb_node_of(g, use.node)->op == EBB_OP_MASK_GRAD && use.slot == 1 &&
           ebb_attr_float(&attrs, "scale", 1) == 1 && ebb_attr_float(&attrs, "alpha", 0) == 0;
}

/* Who asks whether z > 0: by z, or by its bits. */
static void find_back(const state *s, site *t, ebb_value z, int views)
{
    const ebb_graph *g = s->e->g;
    for (size_t i = 0; i < ebb_value_of(g, z)->use_count; i++) {
        ebb_use use = ebb_value_of(g, z)->uses[i];
        if (use.slot == 0 && views > 0 && is_view(g, use.node))
            find_back(s, t, ebb_out(g, use.node, 0), views - 1);
        else if (use.slot == 1 && ebb_node_of(g, use.node)->op == EBB_OP_RELU_GRAD)
            add_way_back(s, t, use.node);
        if (t->pack_count == ASKERS || !packs_positive(g, use.node))
            continue;
        t->packs[t->pack_count++] = use.node;
        const ebb_value_info *bits = ebb_value_of(g, ebb_out(g, use.node, 0));
        for (size_t k = 0; k < bits->use_count; k++)
            if (masks_alone(g, bits->uses[k]))
                add_way_back(s, t, bits->uses[k].node);
    }
}

/* ---- the new nodes ---- */

/* Which outputs of n there are, a bit each. */
static uint32_t outputs_of(const ebb_graph *g, ebb_node n)
{
    uint32_t there = 0;
    for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++)
        there |= ebb_out(g, n, k).i != 0 ? 1u << k : 0u;
    return there;
}

/* Outputs first .. last of n become those of the new node. */
static ebb_status replace_outputs(ebb_edit *e, ebb_node n, const ebb_value *made, uint32_t first,
                                  uint32_t last)
{
    for (uint32_t k = first; k <= last; k++)
        if (ebb_out(e->g, n, k).i != 0)
            EBB_TRY(ebb_edit_replace(e, ebb_out(e->g, n, k), made[k]));
    return NULL;
}

/* z and its bits. */
static ebb_status join_forward(ebb_edit *e, const site *t, ebb_value *bits)
{
    ebb_graph *g = e->g;
    ebb_value made[6] = {{0}}, in[6], z = ebb_out(g, t->relu, 0);
    ebb_build b = ebb_edit_build(e, t->relu, EBB_PHASE_NONE);
    const bool adds = t->added.i != 0, asked = t->back_count + t->pack_count > 0;
    b.name = ebb_value_name(g, z);
    for (uint32_t i = 0; i < 5; i++)
        in[i] = ebb_in(g, t->norm, i);
    if (adds)
        in[5] = ebb_emit_reshape_like(&b, t->added, in[0]);
    ebb_with_attrs_of(&b, t->norm);
    ebb_emit_node(&b, adds ? EBB_OP_BATCH_NORM_ADD_RELU : EBB_OP_BATCH_NORM_RELU, in, adds ? 6 : 5,
                  made, asked ? 6 : 5, outputs_of(g, t->norm) | 1u | 1u << 5);
    ebb_node joined = b.last;
    ebb_value out = ebb_emit_reshape_like(&b, made[0], z);
    EBB_TRY(b.status);
    EBB_TRY(ebb_edit_replace(e, z, out));
    EBB_TRY(replace_outputs(e, t->norm, made, 1, 4));
    ebb_keep_name(g, joined, t->norm);
    for (uint32_t i = 0; i < t->chain_count; i++)
        ebb_edit_remove(e, t->chain[i]);
    *bits = made[5];
    for (uint32_t i = 0; i < t->pack_count; i++) {
        EBB_TRY(ebb_edit_replace(e, ebb_out(g, t->packs[i], 0), made[5]));
        ebb_edit_remove(e, t->packs[i]);
    }
    return NULL;
}

static ebb_status join_back(ebb_edit *e, const way_back *w, ebb_value bits)
{
    ebb_graph *g = e->g;
    ebb_value made[4] = {{0}}, in[6], through = ebb_out(g, w->mask, 0);
    ebb_build b = ebb_edit_build(e, w->read_elsewhere ? w->mask : w->norm, EBB_PHASE_NONE);
    b.name = ebb_text(g, ebb_node_of(g, w->norm)->name);
    for (uint32_t i = 1; i < 5; i++)
        in[i] = ebb_in(g, w->norm, i);
    in[0] = ebb_emit_reshape_like(&b, ebb_in(g, w->mask, 0), in[1]);
    in[5] = bits;
    ebb_emit_node(&b, EBB_OP_BATCH_NORM_RELU_GRAD, in, 6, made, w->read_elsewhere ? 4 : 3,
                  outputs_of(g, w->norm) | 1u << 3);
    ebb_value out = w->read_elsewhere ? ebb_emit_reshape_like(&b, made[3], through) : through;
    EBB_TRY(b.status);
    EBB_TRY(replace_outputs(e, w->norm, made, 0, 2));
    ebb_edit_remove(e, w->norm);
    if (!w->read_elsewhere)
        return NULL; // the mask and its views are swept
    EBB_TRY(ebb_edit_replace(e, through, out));
    ebb_edit_remove(e, w->mask);
    return NULL;
}

static ebb_status visit(const state *s, ebb_node relu)
{
    site t;
    if (!find_norm(&t, s->e->g, relu))
        return NULL;
    const char *why = decline(s, &t);
    if (why != NULL)
        return ebb_declined(s->e, relu, why);
    ebb_value bits;
    find_back(s, &t, ebb_out(s->e->g, relu, 0), VIEWS);
    EBB_TRY(join_forward(s->e, &t, &bits));
    for (uint32_t i = 0; i < t.back_count; i++)
        EBB_TRY(join_back(s->e, &t.back[i], bits));
    ebb_found(s->e);
    ebb_applied(s->e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    state s = {e, ebb_graph_positions(g, e->scratch), (uint32_t)g->node_count};
    ebb_node *relus = EBB_SCRATCH(e, ebb_node, g->node_count + (size_t)1);
    size_t count = 0;
    if (s.at == NULL || relus == NULL)
        return ebb_error_memory();
    EBB_EACH_NODE(g, n)
    if (ebb_node_of(g, n)->op == EBB_OP_RELU)
        relus[count++] = n;
    for (size_t i = 0; i < count; i++)
        EBB_TRY(visit(&s, relus[i]));
    return NULL;
}

// clang-format off
const ebb_pass ebb_pass_norm_relu = {
    .name = "norm-relu",
    .doc = "batch norm, the sum and the ReLU behind it as one node, and so their gradients: one kernel of cuDNN each",
    .exactness = EBB_ROUNDING,
    .run = run,
};
// clang-format on
