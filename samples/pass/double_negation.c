/* double-negation: -(-x) is x. A pass to copy: docs/write_a_pass.md goes through it.
 *
 *   before   a = Neg(x)   y = Neg(a)   z = Relu(y)
 *   after    z = Relu(x)
 *
 * Exact: Neg changes the sign alone, so two of them give every bit back, of a NaN as well.
 *
 * Declines where the first result is read elsewhere too: that node stays, and hardly anything is saved.
 */
#include "passes/common.h"
#include "passes/passes.h"

/* n is the second of two. */
static ebb_status visit(ebb_edit *e, ebb_node n)
{
    const ebb_graph *g = e->g;
    if (ebb_node_of(g, n)->op != EBB_OP_NEG)
        return NULL;
    const ebb_value once = ebb_in(g, n, 0);
    if (ebb_producer_op(g, once) != EBB_OP_NEG)
        return NULL;
    ebb_found(e);
    if (ebb_only_user(g, once).i != n.i)
        return ebb_skipped(e, n, "the first negation is read elsewhere too");
    const ebb_node first = ebb_value_of(g, once)->producer;
    EBB_TRY(ebb_edit_replace(e, ebb_out(g, n, 0), ebb_in(g, first, 0)));
    ebb_edit_remove(e, n);
    ebb_edit_remove(e, first);
    ebb_applied(e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    EBB_EACH_NODE(e->g, n)
        EBB_TRY(visit(e, n));
    return NULL;
}

extern const ebb_pass ebb_pass_double_negation; // a pass of the list has this in passes/passes.h
const ebb_pass ebb_pass_double_negation = {
    .name = "double-negation",
    .doc = "two negations behind each other are none",
    .exactness = EBB_EXACT,
    .run = run,
};
