/* relu-epilogue: a batch norm or a convolution, the sum and the ReLU behind it become one node.
 *
 *   before   y = BatchNormTraining(x, ..)     s = Add(y, a)       z = Relu(s)
 *   after    z, .., m = ai.ebb.BatchNormAddRelu(x, .., a)          and its way back: epilogue_norm.c
 *
 *   before   y = ai.ebb.ConvNhwc(x, w, b)     s = Add(y, a)       z = Relu(s)
 *   after    z = ai.ebb.ConvAddReluNhwc(x, w, b, a)                            epilogue_conv.c
 *
 * A library that has a kernel for the whole reads and writes an image once where the nodes go to
 * memory for each: that is what the pass is for, and so it declines where none has.
 *
 * Nodes of the graph, not calls that a back end joins: a node has the same bits whatever stands
 * around it, so what is exact stays so behind this pass.
 *
 * Rounding: y is not rounded before a is added. Where no back end has a kernel for the whole the
 * parts' own compute it, and every bit is as before: so on the CPU.
 *
 * Declines, besides, where others read what lies in between.
 */
#include <math.h>

#include "passes/speed/epilogue.h"

/* ---- what stands before a ReLU ---- */

bool ebb_epilogue_is_view(const ebb_graph *g, ebb_node n)
{
    return n.i != 0 && ebb_op_has(ebb_node_of(g, n)->op, EBB_VIEW) && ebb_in(g, n, 0).i != 0;
}

static void add_to_chain(ebb_epilogue *t, ebb_node n)
{
    t->chain[t->chain_count++] = n;
}

/* The maker of input `slot` of n, views seen through, which join the chain; none: it has too many
 * of them, or is not the maker's first output. */
static ebb_node behind(ebb_epilogue *t, const ebb_graph *g, ebb_node n, uint32_t slot)
{
    ebb_value v = ebb_in(g, n, slot);
    for (int views = 0; v.i != 0 && views < EBB_EPILOGUE_VIEWS; views++) {
        ebb_node maker = ebb_value_of(g, v)->producer;
        t->shared = t->shared || !ebb_same_node(ebb_only_user(g, v), n);
        if (!ebb_epilogue_is_view(g, maker))
            return maker.i != 0 && ebb_same_value(ebb_out(g, maker, 0), v) ? maker : EBB_NO_NODE;
        add_to_chain(t, maker);
        n = maker;
        v = ebb_in(g, n, 0);
    }
    return EBB_NO_NODE;
}

static bool same_type(const ebb_graph *g, ebb_value a, ebb_value b)
{
    const ebb_type *s = ebb_value_of(g, a)->type, *t = ebb_value_of(g, b)->type;
    return s->dtype == t->dtype && ebb_type_same_shape(s, t);
}

static bool makes(const ebb_epilogue_kind *kind, const ebb_graph *g, ebb_node n)
{
    return n.i != 0 && kind->makes(g, n);
}

/* Which addend a maker's is, the first that no one else reads; the other is what is added. */
static void find_addend(ebb_epilogue *t, const ebb_epilogue_kind *kind, const ebb_graph *g,
                        ebb_node add)
{
    const ebb_epilogue before = *t;
    ebb_epilogue shared = *t;
    for (uint32_t i = 0; i < 2; i++) {
        *t = before;
        t->maker = behind(t, g, add, i);
        t->added = ebb_in(g, add, 1 - i);
        if (!makes(kind, g, t->maker) || !same_type(g, t->added, ebb_out(g, add, 0)) ||
            !same_type(g, ebb_in(g, add, i), t->added))
            t->maker = EBB_NO_NODE;
        else if (!t->shared)
            return;
        else if (shared.maker.i == 0)
            shared = *t;
    }
    *t = shared;
}

static bool find_maker(ebb_epilogue *t, const ebb_epilogue_kind *kind, const ebb_graph *g,
                       ebb_node relu)
{
    *t = (ebb_epilogue){.relu = relu};
    add_to_chain(t, relu);
    ebb_node n = behind(t, g, relu, 0);
    if (n.i != 0 && ebb_node_of(g, n)->op == EBB_OP_ADD) {
        add_to_chain(t, n);
        find_addend(t, kind, g, n);
    } else {
        t->maker = makes(kind, g, n) ? n : EBB_NO_NODE;
    }
    if (t->maker.i != 0)
        add_to_chain(t, t->maker);
    return t->maker.i != 0;
}

/* ---- the bits of z > 0 ---- */

static bool packs_positive(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    return ebb_node_of(g, n)->op == EBB_OP_PACK_SIGN && ebb_attr_float(&attrs, "low", 0) == 0 &&
           isinf(ebb_attr_float(&attrs, "high", (double)INFINITY));
}

static uint32_t add_packs(const ebb_graph *g, ebb_value z, ebb_node *list, uint32_t count,
                          int views)
{
    for (size_t i = 0; i < ebb_value_of(g, z)->use_count; i++) {
        const ebb_use use = ebb_value_of(g, z)->uses[i];
        if (use.slot == 0 && views > 0 && ebb_epilogue_is_view(g, use.node))
            count = add_packs(g, ebb_out(g, use.node, 0), list, count, views - 1);
        else if (count < EBB_EPILOGUE_PACKS && packs_positive(g, use.node))
            list[count++] = use.node;
    }
    return count;
}

uint32_t ebb_epilogue_packs(const ebb_graph *g, ebb_value z, ebb_node list[EBB_EPILOGUE_PACKS])
{
    return add_packs(g, z, list, 0, EBB_EPILOGUE_VIEWS);
}

/* ---- the pass ---- */

ebb_status ebb_epilogue_joined(ebb_edit *e, const ebb_epilogue *t, ebb_value z, ebb_value bits,
                               const ebb_node *packs, uint32_t pack_count)
{
    ebb_graph *g = e->g;
    EBB_TRY(ebb_edit_replace(e, ebb_out(g, t->relu, 0), z));
    for (uint32_t i = 0; i < t->chain_count; i++)
        ebb_edit_remove(e, t->chain[i]);
    for (uint32_t i = 0; i < pack_count; i++) {
        EBB_TRY(ebb_edit_swap(e, packs[i], bits));
    }
    return NULL;
}

static ebb_status visit(const ebb_epilogue_state *s, ebb_node relu)
{
    static const ebb_epilogue_kind *const kinds[] = {&ebb_epilogue_norm, &ebb_epilogue_conv};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        ebb_epilogue t;
        if (!find_maker(&t, kinds[k], s->e->g, relu))
            continue;
        const char *why = t.shared
                              ? "what lies between it and what makes its input is read by others"
                              : kinds[k]->decline(s, &t);
        if (why != NULL)
            return ebb_declined(s->e, relu, why);
        EBB_TRY(kinds[k]->join(s, &t));
        ebb_found(s->e);
        ebb_applied(s->e);
        return NULL;
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    ebb_epilogue_state s = {e, ebb_graph_positions(g, e->scratch), (uint32_t)g->node_count};
    ebb_node *relus = EBB_SCRATCH(e, ebb_node, g->node_count + (size_t)1);
    size_t count = 0;
    EBB_GOT(s.at && relus);
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->op == EBB_OP_RELU)
            relus[count++] = n;
    for (size_t i = 0; i < count; i++)
        EBB_TRY(visit(&s, relus[i]));
    return NULL;
}

// clang-format off
const ebb_pass ebb_pass_relu_epilogue = {
    .name = "relu-epilogue",
    .doc = "a batch norm or a convolution, the sum and the ReLU behind it as one node: one kernel of cuDNN; so the gradients of such norms",
    .exactness = EBB_ROUNDING,
    .run = run,
};
// clang-format on
