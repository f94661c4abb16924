/* dropout-recompute: what a dropout made is its input and a mask, and both are kept anyway.
 *
 *   before   p = Softmax(s)   d = Dropout(p)   o = MatMul(d, v)
 *            dv = MatMul(d', do)  dd = ...  dp = DropoutGrad(dd, mask)  ds = SoftmaxGrad(dp, p)
 *                                              p, d and the mask wait for the backward
 *   after    again = DropoutGrad(p, mask)      right before its reader: p and the mask wait
 *            dv = MatMul(again', do)  ...
 *
 * A dropout multiplies by a diagonal, which is its own transpose: its gradient with x in dy's place
 * is y. So the second y is made by whatever the backward makes dx by: from a mask in bytes
 * (DropoutGrad), from bits (MaskGrad), or from the key alone (DropoutSeedGrad); dropout-mask and
 * dropout-seed may come before this pass or after it. A dropout whose input gets no gradient is
 * drawn again from its key. Each reader has a y of its own right before it.
 *
 * Exact: x is multiplied by the same float, or replaced by the same zero.
 *
 * Declines where x does not stay for the backward, since keeping it in y's stead saves nothing;
 * where y stays anyway; and where the mask is neither kept nor drawn from a key.
 *
 * Paper: Andoorveedu et al., "Tempo: accelerating transformer-based model training through memory
 * footprint reduction", NeurIPS 2022, which keeps a byte an element as the mask.
 */
#include "exec/estimate.h"
#include "passes/common.h"
#include "passes/passes.h"

typedef struct state {
    ebb_edit *e;
    ebb_saves saves;
    ebb_use *readers; /* of the dropout at hand, in the backward, views seen through */
    size_t reader_count;
    ebb_value *shown; /* y and its views */
} state;

/* ---- who makes dx ---- */

static bool is_gradient(ebb_op op)
{
    return op == EBB_OP_DROPOUT_GRAD || op == EBB_OP_MASK_GRAD;
}

/* What is not kept, of each element of a dropout or its gradient that is known to be active. */
static bool ratio_of(const ebb_graph *g, ebb_node n, double *ratio)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    ebb_op op = ebb_node_of(g, n)->op;
    uint32_t slot = op == EBB_OP_DROPOUT ? 1 : 2;
    double active = 1;
    *ratio = 0.5;
    if (op != EBB_OP_DROPOUT && op != EBB_OP_DROPOUT_GRAD) {
        *ratio = ebb_attr_float(&attrs, "ratio", 0.5);
        return true;
    }
    return (ebb_in(g, n, slot).i == 0 || ebb_scalar_of(g, ebb_in(g, n, slot), ratio)) &&
           (ebb_in(g, n, slot + 1).i == 0 || ebb_scalar_of(g, ebb_in(g, n, slot + 1), &active)) &&
           active != 0;
}

/* Whether `by` multiplies by what n multiplies by, given the same mask. */
static bool same_factor(const ebb_graph *g, ebb_node n, ebb_node by)
{
    double of_n, of_by;
    bool known = ratio_of(g, n, &of_n);
    ebb_attrs attrs = ebb_node_attrs(g, by);
    if (ebb_node_of(g, by)->op == EBB_OP_MASK_GRAD)
        return known && ebb_attr_float(&attrs, "alpha", 0) == 0 &&
               (float)ebb_attr_float(&attrs, "scale", 1) == (float)(of_n == 1 ? 0 : 1 / (1 - of_n));
    if (known)
        return ratio_of(g, by, &of_by) && of_n == of_by;
    return ebb_node_of(g, n)->op == EBB_OP_DROPOUT && ebb_in(g, n, 1).i != 0 &&
           ebb_same_value(ebb_in(g, n, 1), ebb_in(g, by, 2)) &&
           ebb_same_value(ebb_in(g, n, 2), ebb_in(g, by, 3));
}

/* The node of the backward that reads n's mask, in bytes or bits, as its second input: mask is that
 * mask, or made of it in no more than two steps. */
static ebb_node mask_reader(const ebb_graph *g, ebb_node n, ebb_value mask, int steps)
{
    const ebb_value_info *info = ebb_value_of(g, mask);
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_use use = info->uses[i];
        if (is_gradient(ebb_node_of(g, use.node)->op) && use.slot == 1 &&
            ebb_is_backward(g, use.node) && same_factor(g, n, use.node))
            return use.node;
    }
    for (size_t i = 0; i < info->use_count && steps < 2; i++) {
        ebb_node m = info->uses[i].node;
        ebb_op op = ebb_node_of(g, m)->op;
        if (op != EBB_OP_PACK_BITS && op != EBB_OP_UNPACK_BITS)
            continue;
        ebb_node reader = mask_reader(g, n, ebb_out(g, m, 0), steps + 1);
        if (reader.i != 0)
            return reader;
    }
    return EBB_NO_NODE;
}

static bool same_draw(const ebb_graph *g, ebb_node a, ebb_node b)
{
    ebb_attrs x = ebb_node_attrs(g, a), y = ebb_node_attrs(g, b);
    return ebb_same_value(ebb_in(g, a, 1), ebb_in(g, b, 1)) &&
           ebb_attr_int(&x, "stream", 0) == ebb_attr_int(&y, "stream", 0) &&
           ebb_attr_float(&x, "ratio", 0.5) == ebb_attr_float(&y, "ratio", 0.5);
}

/* The node of the backward that draws the mask of dropout n again. */
static ebb_node seed_reader(const ebb_graph *g, ebb_node n)
{
    const ebb_value_info *key = ebb_value_of(g, ebb_in(g, n, 1));
    for (size_t i = 0; i < key->use_count; i++) {
        ebb_node m = key->uses[i].node;
        if (ebb_node_of(g, m)->op == EBB_OP_EBB_DROPOUT_SEED_GRAD && ebb_is_backward(g, m) &&
            same_draw(g, m, n))
            return m;
    }
    return EBB_NO_NODE;
}

/* The node to repeat with x as its first input: the gradient's, else the dropout itself; or none.
 */
static ebb_node model_of(const ebb_graph *g, ebb_node n)
{
    bool keyed = ebb_node_of(g, n)->op != EBB_OP_DROPOUT;
    ebb_node by = EBB_NO_NODE;
    if (ebb_out(g, n, 1).i != 0)
        by = mask_reader(g, n, ebb_out(g, n, 1), 0);
    if (by.i == 0 && keyed)
        by = seed_reader(g, n);
    return by.i == 0 && keyed ? n : by;
}

/* ---- who reads y ---- */

/* Views are seen through; what asks for a shape alone reads nothing. False where it cannot be told,
 * because a subgraph reads it. */
static bool find_readers(state *s, ebb_value y)
{
    const ebb_graph *g = s->e->g;
    size_t count = 1;
    s->shown[0] = y;
    s->reader_count = 0;
    for (size_t k = 0; k < count; k++) {
        const ebb_value_info *info = ebb_value_of(g, s->shown[k]);
        if ((info->flags & EBB_IS_CAPTURED) != 0)
            return false;
        for (size_t i = 0; i < info->use_count; i++) {
            ebb_use use = info->uses[i];
            ebb_op op = ebb_node_of(g, use.node)->op;
            bool first = use.slot == 0;
            if (first && ebb_op_has(op, EBB_VIEW) && ebb_out(g, use.node, 0).i != 0)
                s->shown[count++] = ebb_out(g, use.node, 0);
            else if (ebb_is_backward(g, use.node) && !(first && ebb_op_has(op, EBB_SHAPE_OF_0)))
                s->readers[s->reader_count++] = use;
        }
    }
    return true;
}

static const char *declines(state *s, ebb_node n, ebb_node by)
{
    const ebb_graph *g = s->e->g;
    ebb_value x = ebb_in(g, n, 0), y = ebb_out(g, n, 0), root = ebb_saves_root(&s->saves, x);
    if (s->saves.kept[ebb_saves_root(&s->saves, y).i])
        return "its output stays to the end of the step anyway";
    if (s->saves.reads[root.i] == 0 && !s->saves.kept[root.i])
        return "its input does not wait for the backward, and in its output's stead it would save "
               "nothing";
    if (by.i == 0)
        return "its mask is not kept, and was drawn without a key";
    if (!find_readers(s, y))
        return "a subgraph reads its output";
    return ebb_stored_bytes(g, y) == 0 ? "the size of its output is not known" : NULL;
}

static ebb_offer offer_of(const state *s, ebb_node n, ebb_node by)
{
    const ebb_graph *g = s->e->g;
    ebb_value y = ebb_out(g, n, 0);
    double bytes = (double)ebb_stored_bytes(g, y), flops = 0;
    int64_t elements;
    ebb_op op = ebb_node_of(g, by)->op;
    if (!is_gradient(op) && ebb_type_elements(&ebb_value_of(g, y)->type, &elements))
        flops = EBB_FLOPS_PER_DRAW * (double)elements;
    double mask = is_gradient(op) ? (double)ebb_stored_bytes(g, ebb_in(g, by, 1)) : 0;
    return (ebb_offer){.value = y,
                       .saved_bytes = ebb_stored_bytes(g, y),
                       .transient_bytes = ebb_stored_bytes(g, y),
                       .added_ns =
                           (double)s->reader_count * ebb_roofline_ns(flops, 2 * bytes + mask)};
}

/* ---- making it again ---- */

/* A node like `like` with this first input; its first output alone. */
static ebb_value repeat(ebb_build *b, ebb_node like, ebb_value first)
{
    ebb_graph *g = b->g;
    ebb_value in[EBB_BUILD_OUTPUTS];
    uint32_t count = ebb_node_of(g, like)->in_count;
    if (count > EBB_BUILD_OUTPUTS) {
        ebb_build_fail(
            b, ebb_error(EBB_VERIFY, "%s has %u inputs", ebb_node_label(g, like), (unsigned)count));
        return EBB_NO_VALUE;
    }
    for (uint32_t i = 0; i < count; i++)
        in[i] = i == 0 ? first : ebb_in(g, like, i);
    ebb_op op = ebb_node_of(g, like)->op;
    ebb_value mask = count > 1 ? in[1] : EBB_NO_VALUE;
    if (op == EBB_OP_DROPOUT_GRAD && ebb_producer_op(g, mask) == EBB_OP_UNPACK_BITS &&
        ebb_is_backward(g, ebb_value_of(g, mask)->producer)) { // it may stand further down
        ebb_node unpack = ebb_value_of(g, mask)->producer;
        ebb_with_attrs_of(b, unpack);
        in[1] = ebb_emit(b, EBB_OP_UNPACK_BITS, ebb_in(g, unpack, 0));
    }
    ebb_with_attrs_of(b, like);
    return ebb_emit_list(b, op == EBB_OP_EBB_DROPOUT_PACKED ? EBB_OP_EBB_DROPOUT : op, in, count);
}

/* What v, which is y or a view of it, shows, from x. */
static ebb_value again(ebb_build *b, ebb_node n, ebb_node by, ebb_value v, ebb_value x)
{
    ebb_graph *g = b->g;
    enum { DEEP = 64 };
    ebb_node views[DEEP];
    size_t depth = 0;
    for (ebb_value at = v; !ebb_same_value(at, ebb_out(g, n, 0));) {
        ebb_node view = ebb_value_of(g, at)->producer;
        if (depth == DEEP) {
            ebb_build_fail(b,
                           ebb_error(EBB_UNSUPPORTED, "value '%s' is a view of more than %d views",
                                     ebb_value_name(g, v), DEEP));
            return EBB_NO_VALUE;
        }
        views[depth++] = view;
        at = ebb_in(g, view, 0);
    }
    ebb_value made = repeat(b, by, x);
    if (b->status == NULL) { // the plan counts it as work done twice
        const char *of = ebb_text(g, ebb_node_of(g, n)->name);
        ebb_build_fail(b, ebb_props_set(g, &ebb_node_of(g, b->last)->props, "ebb.copied_from",
                                        of[0] != '\0' ? of : ebb_value_name(g, ebb_out(g, n, 0))));
    }
    while (depth > 0 && b->status == NULL)
        made = repeat(b, views[--depth], made);
    return made;
}

static ebb_status rewrite(state *s, ebb_node n, ebb_node by)
{
    ebb_edit *e = s->e;
    ebb_graph *g = e->g;
    ebb_value x = ebb_in(g, n, 0), y = ebb_out(g, n, 0);
    char *name = ebb_arena_printf(e->scratch, "%s/again", ebb_value_name(g, y));
    if (name == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < s->reader_count; i++) {
        ebb_use use = s->readers[i];
        ebb_build b = ebb_edit_build(e, use.node, EBB_PHASE_NONE);
        b.name = name;
        ebb_value made = again(&b, n, by, ebb_in(g, use.node, use.slot), x);
        EBB_TRY(b.status);
        EBB_TRY(ebb_node_set_input(g, use.node, use.slot, made));
    }
    s->saves.reads[ebb_saves_root(&s->saves, y).i] = 0;
    s->saves.reads[ebb_saves_root(&s->saves, x).i] += (uint32_t)s->reader_count;
    ebb_applied(e);
    return NULL;
}

/* ---- the pass ---- */

static bool is_site(const state *s, ebb_node n)
{
    const ebb_graph *g = s->e->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    bool drops = info->op == EBB_OP_DROPOUT || info->op == EBB_OP_EBB_DROPOUT ||
                 info->op == EBB_OP_EBB_DROPOUT_PACKED;
    ebb_value y = ebb_out(g, n, 0);
    return drops && !ebb_is_backward(g, n) && y.i != 0 && y.i < s->saves.value_count &&
           s->saves.reads[ebb_saves_root(&s->saves, y).i] > 0;
}

static ebb_status run(ebb_edit *e)
{
    state s = {.e = e};
    EBB_TRY(ebb_saves_find(&s.saves, e->g, e->scratch));
    size_t uses = 1, values = e->g->value_count;
    EBB_EACH_NODE(e->g, n)
    uses += ebb_node_of(e->g, n)->in_count;
    s.readers = EBB_SCRATCH(e, ebb_use, uses * 2);
    s.shown = EBB_SCRATCH(e, ebb_value, values * 2);
    if (s.readers == NULL || s.shown == NULL)
        return ebb_error_memory();
    for (ebb_node n = ebb_last(e->g); n.i != 0; n = ebb_prev(e->g, n)) { // the readers first
        if (!is_site(&s, n))
            continue;
        ebb_found(e);
        ebb_node by = model_of(e->g, n);
        const char *reason = declines(&s, n, by);
        if (reason != NULL) {
            EBB_TRY(ebb_skipped(e, n, reason));
            continue;
        }
        ebb_offer offer = offer_of(&s, n, by);
        if (ebb_offered(e, n, &offer))
            EBB_TRY(rewrite(&s, n, by));
    }
    return NULL;
}

const ebb_pass ebb_pass_dropout_recompute = {
    .name = "dropout-recompute",
    .doc = "make a dropout's output again from its input and mask, where those are kept anyway",
    .paper = "Andoorveedu et al., Tempo, NeurIPS 2022",
    .exactness = EBB_EXACT,
    .run = run,
    .offers = true,
};
