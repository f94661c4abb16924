/* pack-bools: what the backward asks as a yes or no is kept as one bit, or not at all.
 *
 *   before   c = Equal(a, b)                         dx = Where(c, dy, 0)         c: 8 bits each
 *   after    c = Equal(a, b), bits = PackBits(c)     dx = MaskGrad(dy, bits)      1 bit
 *
 *   before   c = IsNaN(p)                            dx = Where(c, 0, dy)         p is kept anyway
 *   after    c = IsNaN(p)                            c' = IsNaN(p)  dx = Where(c', 0, dy)
 *
 *   before   y = Max(x, 0)                           e = Equal(x, y) ...          x and y: 64 bits
 *   after    y = Max(x, 0), e = Equal(x, y),
 *            bits = PackBits(e)                      e' = UnpackBits(bits) ...    1 bit
 *
 * The first two are about bools that the forward makes, the third about comparisons that the
 * backward makes of values of the forward, as gradients of Max and Min do. Comparisons with a
 * constant are better left to sign-mask, which packs without the bools in between.
 *
 * Exact: the same comparison of the same numbers, earlier or later; a bool is a bit.
 *
 * Declines where the backward reads a view of the bools; where the values compared are kept for
 * another reason; dropout masks: dropout-mask and dropout-seed know them better.
 */
#include <math.h>

#include "exec/weigh/estimate.h"
#include "passes/common.h"

typedef struct state {
    ebb_edit *e;
    ebb_saves saves;
    uint32_t *at;    /* node id -> position */
    uint32_t *last;  /* by root: position of the last read in the backward */
    ebb_node *list;  /* comparisons of the backward that could move */
    uint32_t *group; /* by index into list: another of its group, union-find */
    size_t count;
    uint32_t *asked; /* by root: reads by those comparisons */
} state;

static double bytes_of(const ebb_graph *g, ebb_value v)
{
    return (double)ebb_stored_bytes(g, v);
}

static int64_t bits_of(const ebb_graph *g, ebb_value v)
{
    int64_t n = 0;
    return ebb_type_elements(ebb_value_of(g, v)->type, &n) ? ebb_stored_bits(n, 1) : 0;
}

static bool is_bool(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 && ebb_value_of(g, v)->type->dtype == EBB_BOOL;
}

static bool is_fixed(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return ebb_value_constant(g, v) != NULL ||
           ((info->flags & EBB_IS_INITIALIZER) != 0 && (info->flags & EBB_IS_STATE) == 0);
}

/* One more node like n, before `before`. */
static ebb_status again(ebb_edit *e, ebb_node n, ebb_node before, ebb_phase phase, ebb_value *made)
{
    ebb_graph *g = e->g;
    ebb_value in[4] = {{0}};
    uint32_t count = ebb_node_of(g, n)->in_count;
    for (uint32_t i = 0; i < count && i < 4; i++)
        in[i] = ebb_in(g, n, i);
    ebb_build b = ebb_edit_build(e, before, phase);
    b.name = ebb_value_name(g, ebb_out(g, n, 0));
    ebb_with_attrs_of(&b, n);
    *made = ebb_emit_list(&b, ebb_node_of(g, n)->op, in, count);
    return b.status;
}

static ebb_status pack(ebb_edit *e, ebb_value flags, ebb_node before, ebb_value *bits)
{
    ebb_build b = ebb_edit_build(e, before, EBB_FORWARD);
    b.name = ebb_value_name(e->g, flags);
    *bits = ebb_emit(&b, EBB_OP_PACK_BITS, flags);
    return b.status;
}

static ebb_status unpack(ebb_edit *e, ebb_value bits, ebb_value like, ebb_node before,
                         ebb_value *flags)
{
    ebb_type type = *ebb_value_of(e->g, like)->type;
    ebb_build b = ebb_edit_build(e, before, EBB_PHASE_NONE);
    b.name = ebb_value_name(e->g, like);
    ebb_with_ints(&b, "shape", type.dims, (uint32_t)type.rank);
    *flags = ebb_emit(&b, EBB_OP_UNPACK_BITS, bits);
    return b.status;
}

/* ---- bools of the forward ---- */

/* Nothing of the backward would read it if all comparisons moved. */
static bool goes(const state *s, ebb_value root)
{
    return !s->saves.kept[root.i] && s->asked[root.i] > 0 &&
           s->saves.reads[root.i] == s->asked[root.i];
}

static bool looks_at_shape_only(const ebb_graph *g, ebb_use use)
{
    ebb_op op = ebb_node_of(g, use.node)->op;
    return use.slot == 0 && (ebb_op_has(op, EBB_VIEW) || ebb_op_has(op, EBB_SHAPE_OF_0));
}

/* The backward node that reads v at the least position above `after`; none: no more. */
static ebb_use next_reader(const state *s, ebb_value v, uint32_t after)
{
    const ebb_value_info *info = ebb_value_of(s->e->g, v);
    ebb_use best = {0};
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_use use = info->uses[i];
        if (ebb_is_backward(s->e->g, use.node) && s->at[use.node.i] > after &&
            s->at[use.node.i] < least) {
            least = s->at[use.node.i];
            best = use;
        }
    }
    return best;
}

/* Whether all that the maker of v reads is there anyway until v is read for the last time. */
static bool can_be_made_again(const state *s, ebb_value v)
{
    const ebb_graph *g = s->e->g;
    ebb_node maker = ebb_value_of(g, v)->producer;
    const ebb_node_info *info = ebb_node_of(g, maker);
    if (!ebb_op_has(info->op, EBB_POINTWISE) || ebb_op_has(info->op, EBB_RANDOM) ||
        info->out_count != 1 || info->in_count > 4)
        return false;
    for (uint32_t i = 0; i < info->in_count; i++) {
        ebb_value in = info->in[i];
        if (in.i == 0 || is_fixed(g, in))
            continue;
        ebb_value root = ebb_saves_root(&s->saves, in);
        bool changes = (ebb_value_of(g, root)->flags & EBB_IS_STATE) != 0;
        bool stays = s->saves.kept[root.i] || s->last[root.i] >= s->last[v.i];
        if (changes || !stays || goes(s, root) || is_bool(g, in))
            return false;
    }
    return true;
}

/* Where(v, dy, 0) or Where(v, 0, dy) over one shape: what MaskGrad does with the bits of v. */
static bool is_mask(const ebb_graph *g, ebb_node n, ebb_value v, uint32_t *dy_slot)
{
    if (ebb_node_of(g, n)->op != EBB_OP_WHERE || !ebb_same_value(ebb_in(g, n, 0), v))
        return false;
    const ebb_type *type = ebb_value_of(g, ebb_out(g, n, 0))->type;
    for (uint32_t i = 1; i <= 2; i++) {
        double zero;
        const ebb_value_info *dy = ebb_value_of(g, ebb_in(g, n, i));
        if (!ebb_scalar_of(g, ebb_in(g, n, 3 - i), &zero) || zero != 0 || signbit(zero) ||
            !ebb_dtype_is_float((ebb_dtype)dy->type->dtype))
            continue;
        *dy_slot = i;
        return ebb_type_same_shape(dy->type, type) &&
               ebb_type_same_shape(ebb_value_of(g, v)->type, type);
    }
    return false;
}

static ebb_status read_bits(ebb_edit *e, ebb_use use, ebb_value v, ebb_value bits)
{
    ebb_graph *g = e->g;
    uint32_t slot;
    ebb_value made;
    if (!is_mask(g, use.node, v, &slot)) {
        EBB_TRY(unpack(e, bits, v, use.node, &made));
        for (uint32_t i = 0; i < ebb_node_of(g, use.node)->in_count; i++)
            if (ebb_same_value(ebb_in(g, use.node, i), v))
                EBB_TRY(ebb_node_set_input(g, use.node, i, made));
        return NULL;
    }
    ebb_build b = ebb_edit_build_for(e, use.node);
    if (slot == 2) { // dy where it is not so
        ebb_with_float(&b, "scale", 0);
        ebb_with_float(&b, "alpha", 1);
    }
    made = ebb_emit(&b, EBB_OP_MASK_GRAD, ebb_in(g, use.node, slot), bits);
    EBB_TRY(b.status);
    return ebb_edit_swap(e, use.node, made);
}

static const char *refuses(const state *s, ebb_value v)
{
    const ebb_graph *g = s->e->g;
    const ebb_value_info *info = ebb_value_of(g, v);
    ebb_op maker = ebb_producer_op(g, v);
    uint32_t direct = 0;
    for (size_t i = 0; i < info->use_count; i++) {
        if (!ebb_is_backward(g, info->uses[i].node))
            continue;
        if (looks_at_shape_only(g, info->uses[i]))
            return "the backward reads a view of it";
        direct++;
    }
    if (maker == EBB_OP_DROPOUT || maker == EBB_OP_EBB_DROPOUT)
        return "it is a dropout's mask: dropout-mask and dropout-seed are for those";
    if (direct != s->saves.reads[v.i])
        return "the backward reads a view of it";
    if (ebb_stored_bytes(g, v) <= bits_of(g, v))
        return "it is so small that bits would not be smaller";
    return NULL;
}

static ebb_status keep_less(state *s, ebb_value v)
{
    ebb_graph *g = s->e->g;
    ebb_node maker = ebb_value_of(g, v)->producer;
    const char *reason = refuses(s, v);
    ebb_found(s->e);
    if (reason != NULL)
        return ebb_skipped(s->e, maker, reason);
    bool anew = can_be_made_again(s, v);
    double flags = bytes_of(g, v), readers = s->saves.reads[v.i];
    double packed = ebb_roofline_ns(g, 0, flags * 9 / 8);
    ebb_offer offer = {.value = v,
                       .saved_bytes = ebb_stored_bytes(g, v) - (anew ? 0 : bits_of(g, v)),
                       .transient_bytes = ebb_stored_bytes(g, v),
                       .added_ns =
                           anew ? readers * ebb_node_ns(g, maker) : packed + readers * packed};
    if (!ebb_offered(s->e, maker, &offer))
        return NULL;
    ebb_value bits = EBB_NO_VALUE;
    if (!anew)
        EBB_TRY(pack(s->e, v, ebb_next(g, maker), &bits));
    uint32_t position = 0;
    for (ebb_use use; (use = next_reader(s, v, position)).node.i != 0;) {
        position = s->at[use.node.i];
        ebb_value made = EBB_NO_VALUE;
        if (!anew) {
            EBB_TRY(read_bits(s->e, use, v, bits));
            continue;
        }
        EBB_TRY(again(s->e, maker, use.node, EBB_PHASE_NONE, &made));
        for (uint32_t i = 0; i < ebb_node_of(g, use.node)->in_count; i++)
            if (ebb_same_value(ebb_in(g, use.node, i), v))
                EBB_TRY(ebb_node_set_input(g, use.node, i, made));
    }
    ebb_applied(s->e);
    return NULL;
}

/* ---- comparisons of the backward ---- */

static bool compares(ebb_op op)
{
    return op == EBB_OP_EQUAL || op == EBB_OP_GREATER || op == EBB_OP_GREATER_OR_EQUAL ||
           op == EBB_OP_LESS || op == EBB_OP_LESS_OR_EQUAL || op == EBB_OP_IS_NAN ||
           op == EBB_OP_IS_INF;
}

/* It compares nothing but constants and values that the forward left. */
static bool could_move(const state *s, ebb_node n)
{
    const ebb_graph *g = s->e->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    bool any = false;
    if (!ebb_is_backward(g, n) || !compares(info->op))
        return false;
    for (uint32_t i = 0; i < info->in_count; i++) {
        ebb_value v = info->in[i];
        if (v.i == 0 || is_fixed(g, v))
            continue;
        ebb_node maker = ebb_value_of(g, v)->producer;
        bool changes = (ebb_value_of(g, v)->flags & EBB_IS_STATE) != 0;
        if (changes || v.i >= s->saves.value_count || (maker.i != 0 && ebb_is_backward(g, maker)))
            return false;
        any = true;
    }
    return any && ebb_stored_bytes(g, ebb_out(g, n, 0)) > 0;
}

static uint32_t group_of(const state *s, uint32_t i)
{
    while (s->group[i] != i)
        i = s->group[i] = s->group[s->group[i]];
    return i;
}

static ebb_status find_comparisons(state *s)
{
    const ebb_graph *g = s->e->g;
    uint32_t *first = EBB_SCRATCH(s->e, uint32_t, s->saves.value_count);
    s->list = EBB_SCRATCH(s->e, ebb_node, g->node_count);
    s->group = EBB_SCRATCH(s->e, uint32_t, g->node_count);
    s->asked = EBB_SCRATCH(s->e, uint32_t, s->saves.value_count);
    EBB_GOT(first && s->list && s->group && s->asked);
    EBB_EACH_NODE(g, n) {
        if (!could_move(s, n))
            continue;
        s->group[s->count] = (uint32_t)s->count;
        s->list[s->count++] = n;
        for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++)
            if (ebb_in(g, n, i).i != 0)
                s->asked[ebb_saves_root(&s->saves, ebb_in(g, n, i)).i]++;
    }
    for (uint32_t k = 0; k < s->count; k++) // those that let go of one value decide together
        for (uint32_t i = 0; i < ebb_node_of(g, s->list[k])->in_count; i++) {
            ebb_value root = ebb_saves_root(&s->saves, ebb_in(g, s->list[k], i));
            if (root.i == 0 || !goes(s, root))
                continue;
            if (first[root.i] == 0)
                first[root.i] = k + 1;
            else
                s->group[group_of(s, k)] = group_of(s, first[root.i] - 1);
        }
    return NULL;
}

static ebb_offer offer_of(const state *s, uint32_t group, bool *counted)
{
    const ebb_graph *g = s->e->g;
    ebb_offer offer = {.value = EBB_NO_VALUE};
    for (uint32_t k = 0; k < s->count; k++) {
        if (group_of(s, k) != group)
            continue;
        ebb_node n = s->list[k];
        ebb_value out = ebb_out(g, n, 0);
        offer.saved_bytes -= bits_of(g, out);
        offer.added_ns += 2 * ebb_roofline_ns(g, 0, bytes_of(g, out) * 9 / 8);
        for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
            ebb_value root = ebb_saves_root(&s->saves, ebb_in(g, n, i));
            if (root.i == 0 || !goes(s, root) || counted[root.i])
                continue;
            counted[root.i] = true;
            offer.saved_bytes += ebb_stored_bytes(g, root);
            if (offer.value.i == 0)
                offer.value = root;
        }
    }
    return offer;
}

/* The comparison runs when the last of its operands is made. */
static ebb_status move(ebb_edit *e, const uint32_t *at, ebb_node n)
{
    ebb_graph *g = e->g;
    ebb_node latest = EBB_NO_NODE;
    ebb_value out = ebb_out(g, n, 0), early, bits, late;
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        ebb_node maker =
            ebb_in(g, n, i).i != 0 ? ebb_value_of(g, ebb_in(g, n, i))->producer : EBB_NO_NODE;
        if (maker.i != 0 && (latest.i == 0 || at[maker.i] > at[latest.i]))
            latest = maker;
    }
    ebb_node before = latest.i != 0 ? ebb_next(g, latest) : ebb_first(g);
    EBB_TRY(again(e, n, before, EBB_FORWARD, &early));
    EBB_TRY(pack(e, early, before, &bits));
    EBB_TRY(unpack(e, bits, out, n, &late));
    ebb_applied(e);
    return ebb_edit_swap(e, n, late);
}

static ebb_status move_comparisons(state *s)
{
    enum { UNKNOWN, YES, NO };
    uint8_t *taken = EBB_SCRATCH(s->e, uint8_t, s->count + 1);
    bool *counted = EBB_SCRATCH(s->e, bool, s->saves.value_count);
    EBB_GOT(taken && counted);
    for (uint32_t k = 0; k < s->count; k++) {
        uint32_t group = group_of(s, k);
        bool asks = taken[group] == UNKNOWN;
        const char *reason = "the plan does without it";
        ebb_found(s->e);
        if (asks) {
            ebb_offer offer = offer_of(s, group, counted);
            taken[group] = NO;
            if (offer.saved_bytes <= 0)
                reason = "what it compares is kept for another reason";
            else if (ebb_offered(s->e, s->list[k], &offer))
                taken[group] = YES;
            else
                continue; // counted already
        }
        if (taken[group] == YES)
            EBB_TRY(move(s->e, s->at, s->list[k]));
        else
            EBB_TRY(ebb_skipped(s->e, s->list[k], reason));
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    state s = {.e = e};
    EBB_TRY(ebb_saves_find(&s.saves, e->g, e->scratch));
    s.at = ebb_graph_positions(e->g, e->scratch);
    s.last = EBB_SCRATCH(e, uint32_t, s.saves.value_count);
    EBB_GOT(s.at && s.last);
    EBB_EACH_NODE(e->g, n)
        for (uint32_t i = 0; i < ebb_node_of(e->g, n)->in_count && ebb_is_backward(e->g, n); i++)
            s.last[ebb_saves_root(&s.saves, ebb_in(e->g, n, i)).i] = s.at[n.i];
    EBB_TRY(find_comparisons(&s));
    for (ebb_value v = {1}; v.i < s.saves.value_count; v.i++) {
        ebb_node maker = ebb_value_of(e->g, v)->producer;
        if (!ebb_value_of(e->g, v)->dead && is_bool(e->g, v) && maker.i != 0 &&
            !ebb_is_backward(e->g, maker) && !s.saves.kept[v.i] && s.saves.reads[v.i] > 0 &&
            ebb_producer_op(e->g, v) != EBB_OP_CONSTANT)
            EBB_TRY(keep_less(&s, v));
    }
    return move_comparisons(&s);
}

const ebb_pass ebb_pass_pack_bools = {
    .name = "pack-bools",
    .doc = "keep conditions for the backward as one bit an element, or make them again",
    .exactness = EBB_EXACT,
    .run = run,
};
