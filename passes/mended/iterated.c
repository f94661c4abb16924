/* iterated.c: the power iteration of spectral norm, which a file that was exported in training mode holds.
 *
 *   before   t = MatMul(W', weight_u)   v = t / |t|                     "weight_u" beside "weight_orig"
 *            s = MatMul(W, v)           u = s / |s|
 *            sigma = u . MatMul(W, v)   y = W / sigma
 *
 *   after    the same, and no gradient passes u and v
 *
 * PyTorch iterates under no_grad(), of which exporters leave nothing.
 */
#include "passes/mended/iterated.h"

#include "onnx/graph/build.h"

#include "passes/common.h"
#include "passes/parameters/trainable.h"

/* Of t the quotient t / |t|; none: t is not normalised. */
static ebb_node normalised(const ebb_graph *g, ebb_value t)
{
    ebb_node quotient = EBB_NO_NODE;
    bool measured = false;
    for (size_t i = 0; i < ebb_value_of(g, t)->use_count; i++) {
        const ebb_use use = ebb_value_of(g, t)->uses[i];
        const ebb_op op = ebb_node_of(g, use.node)->op;
        measured |= op == EBB_OP_REDUCE_L2;
        if (op == EBB_OP_DIV && use.slot == 0)
            quotient = use.node;
    }
    return measured ? quotient : EBB_NO_NODE;
}

static bool is_held(const ebb_graph *g, ebb_value y)
{
    for (size_t i = 0; i < ebb_value_of(g, y)->use_count; i++)
        if (ebb_is_detach(g, ebb_value_of(g, y)->uses[i].node))
            return true;
    return false;
}

/* What reads v as a product of a matrix and it, each normalised in its turn. */
static ebb_status detach_behind(ebb_graph *g, ebb_value v, int depth)
{
    enum { DEEP = 64 }; // products: twice the iterations
    for (size_t i = ebb_value_of(g, v)->use_count; i-- > 0 && depth < DEEP;) {
        const ebb_use use = ebb_value_of(g, v)->uses[i];
        const ebb_node n = use.node;
        if (ebb_node_of(g, n)->op == EBB_OP_IDENTITY && !ebb_is_detach(g, n))
            EBB_TRY(detach_behind(g, ebb_out(g, n, 0), depth + 1));
        if (ebb_node_of(g, n)->op != EBB_OP_MATMUL)
            continue;
        const ebb_node quotient = normalised(g, ebb_out(g, n, 0));
        if (quotient.i == 0)
            continue;
        const ebb_value y = ebb_out(g, quotient, 0);
        if (is_held(g, y))
            continue;
        ebb_build b = ebb_build_at(g, ebb_next(g, quotient), EBB_PHASE_NONE, NULL);
        const ebb_value held = ebb_emit_detached(&b, y);
        EBB_TRY(b.status);
        for (size_t k = ebb_value_of(g, y)->use_count; k-- > 0;) {
            const ebb_use other = ebb_value_of(g, y)->uses[k];
            if (other.node.i != b.last.i)
                EBB_TRY(ebb_node_set_input(g, other.node, other.slot, held));
        }
        EBB_TRY(detach_behind(g, held, depth + 1));
    }
    return NULL;
}

ebb_status ebb_iterated_detach(ebb_graph *g)
{
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_is_of_spectral_norm(g, ebb_value_name(g, g->initializers[i])))
            EBB_TRY(detach_behind(g, g->initializers[i], 0));
    return NULL;
}
