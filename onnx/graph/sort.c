/* sort.c: the nodes of a graph in an order in which each stands behind what it reads.
 *
 *   before   c = f(b),  a = g(x),  b = h(a)
 *   after    a = g(x),  b = h(a),  c = f(b)         the present order stays where it is legal
 */
#include "onnx/graph/graph.h"

/* Depth first from each node in the present order; an explicit stack, since files are hostile. */
ebb_status ebb_graph_sort(ebb_graph *g)
{
    enum { UNSEEN, OPEN, DONE };
    EBB_LOCAL_ARENA(scratch);
    uint8_t *mark = EBB_NEW(scratch, uint8_t, g->node_count);
    uint32_t *slot = EBB_NEW(scratch, uint32_t, g->node_count);
    ebb_node *stack = EBB_NEW(scratch, ebb_node, g->node_count + 1);
    ebb_node *order = EBB_NEW(scratch, ebb_node, g->node_count + 1);
    size_t depth = 0, count = 0;
    EBB_GOT(mark && slot && stack && order);
    EBB_EACH_NODE(g, root) {
        if (mark[root.i] != UNSEEN)
            continue;
        mark[root.i] = OPEN;
        stack[depth++] = root;
        while (depth > 0) {
            ebb_node n = stack[depth - 1];
            const ebb_node_info *info = ebb_node_of(g, n);
            if (slot[n.i] == info->in_count) {
                mark[n.i] = DONE;
                order[count++] = n;
                depth--;
                continue;
            }
            ebb_node maker = ebb_value_of(g, info->in[slot[n.i]++])->producer;
            if (maker.i == 0 || mark[maker.i] == DONE)
                continue;
            if (mark[maker.i] == OPEN)
                return ebb_error(EBB_REJECTED, "%s lies on a cycle: it needs its own output",
                                 ebb_node_label(g, maker));
            mark[maker.i] = OPEN;
            stack[depth++] = maker;
        }
    }
    for (size_t i = 0; i < count; i++)
        ebb_node_move(g, order[i], EBB_NO_NODE);
    return NULL;
}
