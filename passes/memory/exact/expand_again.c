/* expand-again: what repeats a smaller value is made again from it, not kept.
 *
 *   before   k = Expand(h)   s = MatMul(q, k)    dq = MatMul(ds, k)           k waits
 *   after    k = Expand(h)   s = MatMul(q, k)    k' = Expand(h)               h waits
 *                                                dq = MatMul(ds, k')
 *
 * So with Tile, and with what Reshape and Transpose make of the repeated value, as where heads of
 * queries share a head of keys: Unsqueeze, Expand, Reshape, Transpose, MatMul. Each reader of the
 * backward has a copy of its own right before it.
 *
 * Exact: elements are moved, none is computed.
 *
 * Declines where the repeated value stays to the end of the step anyway, where it is no larger than
 * what it repeats, and where the update or a subgraph reads it.
 */
#include "passes/common.h"

enum { DEEP = 16 }; /* moves from the smaller value to what is read */

static bool repeats(ebb_op op)
{
    return op == EBB_OP_EXPAND || op == EBB_OP_TILE;
}

/* Whether n moves its first input's elements, how being known before the run. */
static bool moves(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    bool fixed = info->in_count == 1 || info->in[1].i == 0 ||
                 (info->in_count == 2 && ebb_value_constant(g, info->in[1]) != NULL);
    return fixed && !ebb_is_backward(g, n) &&
           (repeats(info->op) || info->op == EBB_OP_TRANSPOSE || ebb_op_has(info->op, EBB_VIEW));
}

/* What v repeats, before all repetitions on the way to it; none: it repeats nothing. */
static ebb_value source_of(const ebb_graph *g, ebb_value v)
{
    ebb_value source = EBB_NO_VALUE;
    for (int i = 0; i < DEEP; i++) {
        ebb_node n = ebb_value_of(g, v)->producer;
        if (n.i == 0 || !moves(g, n))
            break;
        v = ebb_in(g, n, 0);
        if (repeats(ebb_node_of(g, n)->op))
            source = v;
    }
    return source;
}

static bool reads(const ebb_graph *g, ebb_use use)
{
    bool shape = use.slot == 0 && ebb_op_has(ebb_node_of(g, use.node)->op, EBB_SHAPE_OF_0);
    return ebb_is_backward(g, use.node) && !shape;
}

static const char *declines(const ebb_graph *g, const ebb_saves *saves, ebb_value v,
                            ebb_value source)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if (saves->kept[ebb_saves_root(saves, v).i])
        return "it stays to the end of the step anyway";
    if (ebb_stored_bytes(g, v) <= ebb_stored_bytes(g, source))
        return "it is no larger than what it repeats, or its size is not known";
    if ((info->flags & EBB_IS_CAPTURED) != 0)
        return "a subgraph reads it";
    for (size_t i = 0; i < info->use_count; i++)
        if (reads(g, info->uses[i]) && ebb_node_of(g, info->uses[i].node)->phase == EBB_UPDATE)
            return "the update reads it";
    return NULL;
}

static ebb_value again(ebb_build *b, ebb_value v, ebb_value source)
{
    if (ebb_same_value(v, source))
        return v;
    ebb_node n = ebb_value_of(b->g, v)->producer;
    ebb_value in[2] = {again(b, ebb_in(b->g, n, 0), source), ebb_in(b->g, n, 1)};
    ebb_with_attrs_of(b, n);
    return ebb_emit_list(b, ebb_node_of(b->g, n)->op, in, ebb_node_of(b->g, n)->in_count);
}

static ebb_status rewrite(ebb_edit *e, ebb_value v, ebb_value source)
{
    ebb_graph *g = e->g;
    for (size_t i = ebb_value_of(g, v)->use_count; i-- > 0;) {
        ebb_use use = ebb_value_of(g, v)->uses[i];
        if (!reads(g, use))
            continue;
        ebb_build b = ebb_edit_build(e, use.node, EBB_PHASE_NONE);
        b.name = ebb_value_name(g, v);
        ebb_value made = again(&b, v, source);
        EBB_TRY(b.status);
        EBB_TRY(ebb_node_set_input(g, use.node, use.slot, made));
    }
    ebb_applied(e);
    return NULL;
}

static ebb_status visit(ebb_edit *e, const ebb_saves *saves, ebb_node n)
{
    const ebb_graph *g = e->g;
    ebb_value v = ebb_out(g, n, 0), source = source_of(g, v);
    size_t readers = 0;
    for (size_t i = 0; i < ebb_value_of(g, v)->use_count; i++)
        readers += reads(g, ebb_value_of(g, v)->uses[i]);
    if (readers == 0 || source.i == 0)
        return NULL;
    ebb_found(e);
    const char *reason = declines(g, saves, v, source);
    return reason != NULL ? ebb_skipped(e, n, reason) : rewrite(e, v, source);
}

static ebb_status run(ebb_edit *e)
{
    ebb_saves saves;
    EBB_TRY(ebb_saves_find(&saves, e->g, e->scratch));
    EBB_EACH_NODE(e->g, n)
        if (moves(e->g, n) && ebb_out(e->g, n, 0).i != 0)
            EBB_TRY(visit(e, &saves, n));
    return NULL;
}

const ebb_pass ebb_pass_expand_again = {
    .name = "expand-again",
    .doc = "make what repeats a smaller value again from it for the backward, as shared heads of "
           "keys are repeated",
    .exactness = EBB_EXACT,
    .run = run,
};
