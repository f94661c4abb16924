/* hidden.c: which parameters are matrices within the network.
 *
 *     y = product(..., w) ... y' = product(y, w') ... loss        w: hidden; w': next to the loss
 *
 * A table that Gather reads is none, though a product may read it, too.
 */
#include "passes/gradient/update.h"

typedef struct search {
    const ebb_graph *g;
    bool *hidden, *seen; /* by value id */
    ebb_value *list;     /* seen, to look at */
    size_t count;
} search;

static bool is_forward(const ebb_graph *g, ebb_node n)
{
    const uint8_t phase = ebb_node_of(g, n)->phase;
    return phase != EBB_BACKWARD && phase != EBB_UPDATE;
}

/* The parameter that v shows, turned or cast; none where it shows none. */
static ebb_value parameter_of(const ebb_graph *g, ebb_value v)
{
    while (v.i != 0) {
        const ebb_op op = ebb_producer_op(g, v);
        if (ebb_value_of(g, v)->role == EBB_ROLE_PARAMETER)
            return v;
        if (op != EBB_OP_TRANSPOSE && op != EBB_OP_CAST && op != EBB_OP_IDENTITY &&
            op != EBB_OP_RESHAPE)
            return EBB_NO_VALUE;
        v = ebb_in(g, ebb_value_of(g, v)->producer, 0);
    }
    return v;
}

static bool is_product(ebb_op op)
{
    return op == EBB_OP_MATMUL || op == EBB_OP_GEMM || op == EBB_OP_FUSED_MATMUL;
}

static bool is_matrix(const ebb_graph *g, ebb_value w)
{
    return w.i != 0 && ebb_value_of(g, w)->type->rank == 2;
}

static void mark_products(search *s)
{
    EBB_EACH_NODE(s->g, n) {
        const ebb_node_info *info = ebb_node_of(s->g, n);
        for (uint32_t i = 0; i < info->in_count && i < 2; i++) {
            ebb_value w = parameter_of(s->g, info->in[i]);
            if (is_forward(s->g, n) && is_product(info->op) && is_matrix(s->g, w))
                s->hidden[w.i] = true;
        }
    }
    EBB_EACH_NODE(s->g, n)
        if (ebb_node_of(s->g, n)->op == EBB_OP_GATHER)
            s->hidden[parameter_of(s->g, ebb_in(s->g, n, 0)).i] = false;
}

static void see(search *s, ebb_value v)
{
    if (v.i == 0 || s->seen[v.i])
        return;
    s->seen[v.i] = true;
    s->list[s->count++] = v;
}

/* From the loss back to the first node with a weight of its own on each way. */
static void leave_last(search *s)
{
    see(s, s->g->loss);
    while (s->count > 0) {
        ebb_node n = ebb_value_of(s->g, s->list[--s->count])->producer;
        bool last = false;
        if (n.i == 0)
            continue;
        const ebb_node_info *info = ebb_node_of(s->g, n);
        for (uint32_t i = 0; i < info->in_count; i++) {
            ebb_value w = parameter_of(s->g, info->in[i]);
            if (w.i == 0 || ebb_value_of(s->g, w)->type->rank < 2)
                continue;
            s->hidden[w.i] = false;
            last = true;
        }
        for (uint32_t i = 0; i < info->in_count && !last; i++)
            see(s, info->in[i]);
    }
}

ebb_status ebb_hidden_find(bool **is_hidden, const ebb_graph *g, ebb_arena *scratch)
{
    search s = {.g = g,
                .hidden = EBB_NEW(scratch, bool, g->value_count),
                .seen = EBB_NEW(scratch, bool, g->value_count),
                .list = EBB_NEW(scratch, ebb_value, g->value_count)};
    EBB_GOT(s.hidden && s.seen && s.list);
    mark_products(&s);
    leave_last(&s);
    *is_hidden = s.hidden;
    return NULL;
}
