/* span.c: follows an input to the loss or the table that its integers are for. */
#include "exec/data/feed/span.h"

#include "onnx/words/attr.h"

/* One row an operator that takes integers for places: which operand they are, and which dim of which
 * other operand they count. */
static const struct {
    ebb_op op;
    uint32_t place, of;
    int dim; /* -1: the attribute axis */
    bool labels;
} rows[] = {
    {EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS, 1, 0, 1, true},
    {EBB_OP_NEGATIVE_LOG_LIKELIHOOD_LOSS, 1, 0, 1, true},
    {EBB_OP_GATHER, 1, 0, -1, false},
};

static bool passes_on(ebb_op op)
{
    return op == EBB_OP_CAST || op == EBB_OP_IDENTITY || op == EBB_OP_RESHAPE ||
           op == EBB_OP_SQUEEZE || op == EBB_OP_UNSQUEEZE || op == EBB_OP_FLATTEN;
}

static bool read_row(ebb_span *span, const ebb_graph *g, const ebb_use *use)
{
    const ebb_node_info *n = ebb_node_of(g, use->node);
    const ebb_attrs attrs = ebb_node_attrs(g, use->node);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].op != n->op || rows[i].place != use->slot || rows[i].of >= n->in_count)
            continue;
        const ebb_type *type = ebb_value_of(g, n->in[rows[i].of])->type;
        const ebb_attr *axis = ebb_attr_find(&attrs, "axis");
        const ebb_attr *ignored = ebb_attr_find(&attrs, "ignore_index");
        int64_t dim = rows[i].dim >= 0 ? rows[i].dim : axis != NULL ? axis->i : 0;
        dim += dim < 0 ? type->rank : 0;
        if (dim < 0 || dim >= type->rank || type->dims[dim] < 0)
            return false;
        const int64_t count = type->dims[dim];
        *span = (ebb_span){.known = true,
                           .low = rows[i].labels ? 0 : -count,
                           .high = count - 1,
                           .ignores = rows[i].labels && ignored != NULL,
                           .ignored = ignored != NULL ? ignored->i : 0,
                           .what = rows[i].labels ? "label" : "index"};
        return true;
    }
    return false;
}

void ebb_find_span(ebb_span *span, const ebb_graph *g, ebb_value v)
{
    enum { DEEPEST = 8 }; // Cast, Reshape and their like between
    *span = (ebb_span){0};
    for (int depth = 0; depth < DEEPEST; depth++) {
        const ebb_value_info *info = ebb_value_of(g, v);
        ebb_value next = EBB_NO_VALUE;
        for (uint32_t i = 0; i < info->use_count; i++) {
            const ebb_node_info *n = ebb_node_of(g, info->uses[i].node);
            if (read_row(span, g, &info->uses[i]))
                return;
            if (passes_on(n->op) && info->uses[i].slot == 0)
                next = n->out[0];
        }
        if (next.i == 0)
            return;
        v = next;
    }
}
