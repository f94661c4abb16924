/* zeros.c: a bias of zeros, where the module has none.
 *
 *   before   s = Concat(Shape(w), 1)   b = Expand(0, s)   y = Conv(x, w, b)
 *   after                                                 y = Conv(x, w)
 *
 * PyTorch's dynamo exporter writes this of Conv3d(bias=False), and no runtime takes it, since a bias of
 * [C, 1] is none. A sum with zeros does nothing, whatever their shape.
 */
#include "passes/mended/zeros.h"

/* A constant of zeros that is cast and repeated; a parameter that is zero yet is an initializer. */
static bool is_made_of_zeros(const ebb_graph *g, ebb_value v)
{
    enum { FAR = 4 };
    bool repeated = false;
    for (int steps = 0; steps < FAR && v.i != 0; steps++) {
        const ebb_node n = ebb_value_of(g, v)->producer;
        const ebb_op op = n.i != 0 ? ebb_node_of(g, n)->op : EBB_OP_UNKNOWN;
        if (op == EBB_OP_CONSTANT) {
            const ebb_tensor *t = ebb_value_constant(g, v);
            return repeated && t != NULL && t->data != NULL && ebb_tensor_is_uniform(t) &&
                   ebb_tensor_double(t, 0) == 0;
        }
        if (op != EBB_OP_EXPAND && op != EBB_OP_CAST_LIKE && op != EBB_OP_CAST)
            return false;
        repeated |= op == EBB_OP_EXPAND;
        v = ebb_in(g, n, 0);
    }
    return false;
}

ebb_status ebb_zeros_drop(ebb_graph *g)
{
    EBB_EACH_NODE(g, n) {
        const ebb_op op = ebb_node_of(g, n)->op;
        if ((op == EBB_OP_CONV || op == EBB_OP_CONV_TRANSPOSE) &&
            is_made_of_zeros(g, ebb_in(g, n, 2)))
            EBB_TRY(ebb_node_set_input(g, n, 2, EBB_NO_VALUE));
    }
    return NULL;
}
