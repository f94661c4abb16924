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
 * Views and transposes are seen through on both sides, as where a dropout that keeps its order
 * stands among images with channels last:
 *
 *   before   x = Transpose(h)  d = Dropout(x)  t = Transpose(d)      h, t and the mask wait
 *   after    t' = Transpose(DropoutGrad(Transpose(h), mask))         h and the mask wait
 *
 * Exact: x is multiplied by the same float, or replaced by the same zero.
 *
 * Declines where x does not stay for the backward, since keeping it in y's stead saves nothing;
 * where y stays anyway; and where the mask is neither kept nor drawn from a key.
 *
 * Paper: Andoorveedu et al., "Tempo: accelerating transformer-based model training through memory
 * footprint reduction", NeurIPS 2022, which keeps a byte an element as the mask.
 */
#include "exec/weigh/estimate.h"
#include "passes/common.h"

typedef struct state {
    ebb_edit *e;
    ebb_saves saves;
    ebb_use *readers; /* of the dropout at hand, in the backward */
    size_t reader_count, reader_capacity;
    ebb_value *shown; /* y, its views, and what the forward transposes of them */
    size_t shown_count, shown_capacity;
    bool captured; /* a subgraph reads one of them */
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

/* The node of the backward that draws the mask of dropout n again. */
static ebb_node seed_reader(const ebb_graph *g, ebb_node n)
{
    const ebb_value_info *key = ebb_value_of(g, ebb_in(g, n, 1));
    for (size_t i = 0; i < key->use_count; i++) {
        ebb_node m = key->uses[i].node;
        if (ebb_node_of(g, m)->op == EBB_OP_EBB_DROPOUT_SEED_GRAD && ebb_is_backward(g, m) &&
            ebb_same_value(ebb_in(g, m, 1), ebb_in(g, n, 1)) && ebb_same_draw(g, m, n))
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

/* Whether n's output shows its first input's elements: as they lie, or, in the forward, otherwise.
 * Transposes of the backward are made right before their readers anyway. */
static bool shows(const ebb_graph *g, ebb_node n)
{
    ebb_op op = ebb_node_of(g, n)->op;
    return ebb_out(g, n, 0).i != 0 &&
           (ebb_op_has(op, EBB_VIEW) || (op == EBB_OP_TRANSPOSE && !ebb_is_backward(g, n)));
}

static ebb_status list_shown(state *s, ebb_value v)
{
    EBB_GOT(ebb_arena_grow(s->e->scratch, &s->shown, s->shown_count, &s->shown_capacity,
                           sizeof *s->shown));
    s->shown[s->shown_count++] = v;
    return NULL;
}

static ebb_status list_reader(state *s, ebb_use use)
{
    EBB_GOT(ebb_arena_grow(s->e->scratch, &s->readers, s->reader_count, &s->reader_capacity,
                           sizeof *s->readers));
    s->readers[s->reader_count++] = use;
    return NULL;
}

/* What asks for a shape alone reads nothing. */
static ebb_status find_readers(state *s, ebb_value y)
{
    const ebb_graph *g = s->e->g;
    s->shown_count = s->reader_count = 0;
    s->captured = false;
    EBB_TRY(list_shown(s, y));
    for (size_t k = 0; k < s->shown_count; k++) {
        const ebb_value_info *info = ebb_value_of(g, s->shown[k]);
        s->captured = s->captured || (info->flags & EBB_IS_CAPTURED) != 0;
        for (size_t i = 0; i < info->use_count; i++) {
            ebb_use use = info->uses[i];
            bool first = use.slot == 0;
            bool shape = first && ebb_op_has(ebb_node_of(g, use.node)->op, EBB_SHAPE_OF_0);
            if (first && shows(g, use.node))
                EBB_TRY(list_shown(s, ebb_out(g, use.node, 0)));
            else if (ebb_is_backward(g, use.node) && !shape)
                EBB_TRY(list_reader(s, use));
        }
    }
    return NULL;
}

static bool is_stored(const state *s, ebb_value v) /* by itself: no view */
{
    return v.i < s->saves.value_count && ebb_same_value(s->saves.root[v.i], v);
}

static bool stays(const state *s)
{
    for (size_t k = 0; k < s->shown_count; k++)
        if (is_stored(s, s->shown[k]) && s->saves.kept[s->shown[k].i])
            return true;
    return false;
}

/* What waits for the backward and shows x: x, or what it is transposed from; else none. */
static ebb_value waiting(const state *s, ebb_value x)
{
    const ebb_graph *g = s->e->g;
    for (;;) {
        ebb_value root = ebb_saves_root(&s->saves, x);
        ebb_node n = ebb_value_of(g, root)->producer;
        if (s->saves.reads[root.i] > 0 || s->saves.kept[root.i])
            return x;
        if (n.i == 0 || !shows(g, n))
            return EBB_NO_VALUE;
        x = ebb_in(g, n, 0);
    }
}

static const char *declines(const state *s, ebb_node n, ebb_node by)
{
    const ebb_graph *g = s->e->g;
    if (stays(s))
        return "its output stays to the end of the step anyway";
    if (waiting(s, ebb_in(g, n, 0)).i == 0)
        return "its input does not wait for the backward, and in its output's stead it would save "
               "nothing";
    if (by.i == 0)
        return "its mask is not kept, and was drawn without a key";
    if (s->captured)
        return "a subgraph reads its output";
    return ebb_stored_bytes(g, ebb_out(g, n, 0)) == 0 ? "the size of its output is not known"
                                                      : NULL;
}

/* How many transposes stand between `from` and v, which shows it. */
static int transposes(const ebb_graph *g, ebb_value v, ebb_value from)
{
    int count = 0;
    while (!ebb_same_value(v, from)) {
        count += ebb_producer_op(g, v) == EBB_OP_TRANSPOSE;
        v = ebb_in(g, ebb_value_of(g, v)->producer, 0);
    }
    return count;
}

static ebb_offer offer_of(const state *s, ebb_node n, ebb_node by)
{
    const ebb_graph *g = s->e->g;
    ebb_value y = ebb_out(g, n, 0);
    double bytes = (double)ebb_stored_bytes(g, y), flops = 0;
    int64_t elements;
    ebb_op op = ebb_node_of(g, by)->op;
    if (!is_gradient(op) && ebb_type_elements(ebb_value_of(g, y)->type, &elements))
        flops = EBB_FLOPS_PER_DRAW * (double)elements;
    double mask = is_gradient(op) ? (double)ebb_stored_bytes(g, ebb_in(g, by, 1)) : 0;
    double turned = ebb_roofline_ns(g, 0, 2 * bytes);
    ebb_value x = ebb_in(g, n, 0);
    ebb_offer offer = {.transient_bytes = ebb_stored_bytes(g, y)};
    for (size_t k = 0; k < s->shown_count; k++) {
        ebb_value v = s->shown[k];
        if (!is_stored(s, v) || s->saves.reads[v.i] == 0)
            continue;
        offer.value = offer.value.i == 0 ? v : offer.value;
        offer.saved_bytes += ebb_stored_bytes(g, v);
    }
    for (size_t i = 0; i < s->reader_count; i++) {
        ebb_value v = ebb_in(g, s->readers[i].node, s->readers[i].slot);
        int turns = transposes(g, v, y) + transposes(g, x, waiting(s, x));
        offer.added_ns += ebb_roofline_ns(g, flops, 2 * bytes + mask) + turns * turned;
    }
    return offer;
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

/* What v shows of `from`, of `made` instead. */
static ebb_value shown_of(ebb_build *b, ebb_value v, ebb_value from, ebb_value made)
{
    ebb_graph *g = b->g;
    enum { DEEP = 64 };
    ebb_node between[DEEP];
    size_t depth = 0;
    for (ebb_value at = v; !ebb_same_value(at, from);) {
        ebb_node n = ebb_value_of(g, at)->producer;
        if (depth == DEEP) {
            ebb_build_fail(b,
                           ebb_error(EBB_UNSUPPORTED, "value '%s' is a view of more than %d views",
                                     ebb_value_name(g, v), DEEP));
            return EBB_NO_VALUE;
        }
        between[depth++] = n;
        at = ebb_in(g, n, 0);
    }
    while (depth > 0 && b->status == NULL)
        made = repeat(b, between[--depth], made);
    return made;
}

/* What v, which shows y, would be, made of what waits. */
static ebb_value again(ebb_build *b, ebb_node n, ebb_node by, ebb_value v, ebb_value waits)
{
    ebb_graph *g = b->g;
    ebb_value made = repeat(b, by, shown_of(b, ebb_in(g, n, 0), waits, waits));
    if (b->status == NULL) // the plan counts it as work done twice
        ebb_build_fail(b, ebb_props_set(g, &ebb_node_of(g, b->last)->props, "ebb.copied_from",
                                        ebb_node_name(g, n)));
    return shown_of(b, v, ebb_out(g, n, 0), made);
}

static ebb_status rewrite(state *s, ebb_node n, ebb_node by)
{
    ebb_edit *e = s->e;
    ebb_graph *g = e->g;
    ebb_value waits = waiting(s, ebb_in(g, n, 0)), y = ebb_out(g, n, 0);
    char *name = ebb_arena_printf(e->scratch, "%s/again", ebb_value_name(g, y));
    EBB_GOT(name);
    for (size_t i = 0; i < s->reader_count; i++) {
        ebb_use use = s->readers[i];
        ebb_build b = ebb_edit_build(e, use.node, EBB_PHASE_NONE);
        b.name = name;
        ebb_value made = again(&b, n, by, ebb_in(g, use.node, use.slot), waits);
        EBB_TRY(b.status);
        EBB_TRY(ebb_node_set_input(g, use.node, use.slot, made));
    }
    for (size_t k = 0; k < s->shown_count; k++)
        if (is_stored(s, s->shown[k]))
            s->saves.reads[s->shown[k].i] = 0;
    s->saves.reads[ebb_saves_root(&s->saves, waits).i] += (uint32_t)s->reader_count;
    ebb_applied(e);
    return NULL;
}

/* ---- the pass ---- */

static bool drops(const state *s, ebb_node n)
{
    const ebb_graph *g = s->e->g;
    ebb_op op = ebb_node_of(g, n)->op;
    ebb_value y = ebb_out(g, n, 0);
    bool dropout =
        op == EBB_OP_DROPOUT || op == EBB_OP_EBB_DROPOUT || op == EBB_OP_EBB_DROPOUT_PACKED;
    return dropout && !ebb_is_backward(g, n) && y.i != 0 && y.i < s->saves.value_count;
}

static ebb_status visit(state *s, ebb_node n)
{
    ebb_edit *e = s->e;
    EBB_TRY(find_readers(s, ebb_out(e->g, n, 0)));
    if (s->reader_count == 0)
        return NULL;
    ebb_found(e);
    ebb_node by = model_of(e->g, n);
    const char *reason = declines(s, n, by);
    if (reason != NULL)
        return ebb_skipped(e, n, reason);
    ebb_offer offer = offer_of(s, n, by);
    return ebb_offered(e, n, &offer) ? rewrite(s, n, by) : NULL;
}

static ebb_status run(ebb_edit *e)
{
    state s = {.e = e};
    EBB_TRY(ebb_saves_find(&s.saves, e->g, e->scratch));
    for (ebb_node n = ebb_last(e->g); n.i != 0; n = ebb_prev(e->g, n)) // the readers first
        if (drops(&s, n))
            EBB_TRY(visit(&s, n));
    return NULL;
}

const ebb_pass ebb_pass_dropout_recompute = {
    .name = "dropout-recompute",
    .doc = "make a dropout's output again from its input and mask, where those are kept anyway",
    .paper = "Andoorveedu et al., Tempo, NeurIPS 2022",
    .exactness = EBB_EXACT,
    .run = run,
};
