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
 * Exact: x > 0 is y > 0 for y = Relu(x); min < x < max is min < y < max for y = Clip(x), whose
 * gradient is zero at the bounds; LeakyRelu with a positive slope keeps the sign; Mul broadcasts m
 * as Expand did.
 *
 * Declines where neither of the two equal values is kept anyway.
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
    return NULL;
}

const ebb_pass ebb_pass_drop_saves = {
    .name = "drop-saves",
    .doc = "drop outputs nobody reads, and let the backward read what is kept anyway",
    .exactness = EBB_EXACT,
    .run = run,
};
