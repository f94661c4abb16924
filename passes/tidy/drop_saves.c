/* drop-saves: keep nothing for the backward that it does not need.
 *
 *   before   y, mask = Dropout(x)        mask has no reader
 *   after    y = Dropout(x)
 *
 *   before   dx = ReluGrad(dy, x)        x is kept for this alone; y is kept for a convolution
 *   after    dx = ReluGrad(dy, y)
 *
 *   before   t = Expand(m)  p = Mul(dy, t)     t is kept, as large as dy
 *   after    p = Mul(dy, m)
 *
 *   before   h = Cast(w)  y = MatMul(x, h)  dx = MatMul(dy, h)     h is kept beside the parameter w
 *   after    h = Cast(w)  y = MatMul(x, h)  h' = Cast(w)  dx = MatMul(dy, h')
 *
 * Exact: x > 0 is y > 0 for y = Relu(x); min < x < max is min < y < max for y = Clip(x), whose
 * gradient is zero at the bounds; LeakyRelu with a positive slope keeps the sign; Mul broadcasts m
 * as Expand did; a Cast of the same number is the same.
 *
 * Declines where neither of the two equal values is kept anyway. A Cast is made again for one reader:
 * several, as the parts of a batch are, would each pay for a pass over the parameter.
 */
#include "passes/common.h"

static ebb_status drop_outputs(ebb_edit *e, ebb_node n)
{
    const ebb_op op = ebb_node_of(e->g, n)->op;
    for (uint32_t k = ebb_node_of(e->g, n)->out_count; k-- > 0;) {
        ebb_value v = ebb_out(e->g, n, k);
        if (ebb_op_output_mark(op, k) != 'o' || v.i == 0 || ebb_value_is_read(e->g, v))
            continue;
        ebb_found(e);
        EBB_TRY(ebb_node_set_output(e->g, n, k, EBB_NO_VALUE));
        ebb_applied(e);
    }
    return NULL;
}

static ebb_status read_what_is_kept(ebb_edit *e, ebb_saves *s, ebb_node n)
{
    ebb_value v = ebb_in(e->g, n, 1), other = ebb_sign_twin(e->g, n);
    if (other.i == 0)
        return NULL;
    ebb_value mine = ebb_saves_root(s, v), theirs = ebb_saves_root(s, other);
    if (s->kept[mine.i] || s->reads[mine.i] > 1)
        return NULL; // what it reads is kept anyway
    if (!s->kept[theirs.i] && s->reads[theirs.i] == 0)
        return NULL; // one of the two must be kept, and either will do
    ebb_found(e);
    EBB_TRY(ebb_node_set_input(e->g, n, 1, other));
    s->reads[mine.i]--;
    s->reads[theirs.i]++;
    ebb_applied(e);
    return NULL;
}

static bool broadcasts(ebb_op op)
{
    return op == EBB_OP_ADD || op == EBB_OP_SUB || op == EBB_OP_MUL || op == EBB_OP_DIV ||
           op == EBB_OP_WHERE;
}

/* Reads the small value instead of its Expand where another operand already has the full shape. */
static ebb_status read_before_expand(ebb_edit *e, ebb_node n)
{
    const ebb_graph *g = e->g;
    if (!broadcasts(ebb_node_of(g, n)->op))
        return NULL;
    const ebb_type *full = ebb_value_of(g, ebb_out(g, n, 0))->type;
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        ebb_value v = ebb_in(g, n, i);
        if (v.i == 0 || ebb_producer_op(g, v) != EBB_OP_EXPAND)
            continue;
        bool another = false;
        for (uint32_t j = 0; j < ebb_node_of(g, n)->in_count; j++)
            another =
                another || (j != i && ebb_in(g, n, j).i != v.i &&
                            ebb_type_same_shape(ebb_value_of(g, ebb_in(g, n, j))->type, full));
        if (!another)
            continue;
        ebb_found(e);
        EBB_TRY(ebb_node_set_input(e->g, n, i, ebb_in(g, ebb_value_of(g, v)->producer, 0)));
        ebb_applied(e);
    }
    return NULL;
}

/* The one operand of the backward that reads v's bytes, of a node that computes by them; none: of no
 * node, or of several. */
static ebb_use only_reader_of_the_backward(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    ebb_use only = {EBB_NO_NODE, 0};
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        if (!ebb_is_backward(g, n))
            continue;
        if (only.node.i != 0 || ebb_op_has(ebb_node_of(g, n)->op, EBB_VIEW) ||
            ebb_op_has(ebb_node_of(g, n)->op, EBB_SHAPE_OF_0))
            return (ebb_use){EBB_NO_NODE, 0};
        only = info->uses[i];
    }
    return only;
}

/* n is a Cast of what stays anyway to less bytes. */
static ebb_status cast_again(ebb_edit *e, const ebb_saves *s, ebb_node n)
{
    ebb_graph *g = e->g;
    if (ebb_node_of(g, n)->op != EBB_OP_CAST || ebb_is_backward(g, n))
        return NULL;
    ebb_value from = ebb_in(g, n, 0), v = ebb_out(g, n, 0);
    const ebb_use reader = only_reader_of_the_backward(g, v);
    if (reader.node.i == 0 || (ebb_value_of(g, v)->flags & EBB_IS_CAPTURED) != 0 ||
        s->kept[ebb_saves_root(s, v).i] || !s->kept[ebb_saves_root(s, from).i] ||
        s->reads[ebb_saves_root(s, v).i] != 1)
        return NULL;
    ebb_found(e);
    ebb_build b = ebb_edit_build(e, reader.node, EBB_BACKWARD);
    b.name = ebb_value_name(g, v);
    ebb_value again = ebb_emit_cast(&b, from, (ebb_dtype)ebb_value_of(g, v)->type->dtype);
    EBB_TRY(b.status);
    EBB_TRY(ebb_node_set_input(g, reader.node, reader.slot, again));
    ebb_applied(e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_saves saves;
    EBB_EACH_NODE(e->g, n) {
        EBB_TRY(drop_outputs(e, n));
        if (ebb_is_backward(e->g, n))
            EBB_TRY(read_before_expand(e, n));
    }
    EBB_TRY(ebb_saves_find(&saves, e->g, e->scratch));
    EBB_EACH_NODE(e->g, n)
        if (ebb_is_backward(e->g, n))
            EBB_TRY(read_what_is_kept(e, &saves, n));
    EBB_EACH_NODE(e->g, n)
        EBB_TRY(cast_again(e, &saves, n));
    return NULL;
}

const ebb_pass ebb_pass_drop_saves = {
    .name = "drop-saves",
    .doc = "drop outputs nobody reads, and let the backward read what is kept anyway",
    .exactness = EBB_EXACT,
    .run = run,
};
