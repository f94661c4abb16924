/* decode.c: encoders after makers, decoders before readers. */
#include "passes/memory/decode.h"

static bool reads_bytes(const ebb_graph *g, ebb_node n, uint32_t slot)
{
    ebb_op op = ebb_node_of(g, n)->op;
    return ebb_in(g, n, slot).i != 0 &&
           !(slot == 0 && (ebb_op_has(op, EBB_VIEW) || ebb_op_has(op, EBB_SHAPE_OF_0)));
}

ebb_status ebb_reads_find(ebb_reads *r, const ebb_graph *g, ebb_arena *scratch)
{
    EBB_TRY(ebb_saves_find(&r->saves, g, scratch));
    uint32_t total = 0;
    r->first = EBB_NEW(scratch, uint32_t, g->value_count + 1);
    r->captured = EBB_NEW(scratch, bool, g->value_count);
    EBB_GOT(r->first && r->captured);
    EBB_EACH_VALUE(g, v)
        if ((ebb_value_of(g, v)->flags & EBB_IS_CAPTURED) != 0)
            r->captured[r->saves.root[v.i].i] = true;
    for (size_t i = 0; i < g->value_count; i++) {
        r->first[i] = total;
        total += r->saves.reads[i];
    }
    r->first[g->value_count] = total;
    uint32_t *filled = EBB_NEW(scratch, uint32_t, g->value_count);
    r->list = EBB_NEW(scratch, ebb_use, total + 1u);
    EBB_GOT(filled && r->list);
    EBB_EACH_NODE(g, n) {
        if (!ebb_is_backward(g, n))
            continue;
        for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
            if (!reads_bytes(g, n, i))
                continue;
            uint32_t root = ebb_saves_root(&r->saves, ebb_in(g, n, i)).i;
            r->list[r->first[root] + filled[root]++] = (ebb_use){n, i};
        }
    }
    return NULL;
}

const char *ebb_must_stay(const ebb_reads *r, ebb_value root)
{
    if (r->saves.kept[root.i])
        return "it stays to the end of the step anyway";
    return r->captured[root.i] ? "a subgraph reads it" : NULL;
}

ebb_build ebb_encode_after(ebb_edit *e, ebb_value root)
{
    ebb_node maker = ebb_value_of(e->g, root)->producer;
    ebb_build b =
        ebb_edit_build(e, maker.i != 0 ? ebb_next(e->g, maker) : ebb_first(e->g), EBB_FORWARD);
    b.name = ebb_value_name(e->g, root);
    return b;
}

ebb_status ebb_decode_before(ebb_edit *e, ebb_use use, ebb_decode_fn decode, void *context)
{
    ebb_graph *g = e->g;
    ebb_value old = ebb_in(g, use.node, use.slot);
    ebb_type shape = *ebb_value_of(g, old)->type;
    ebb_build b = ebb_edit_build(e, use.node, EBB_PHASE_NONE);
    b.name = ebb_value_name(g, old);
    ebb_value made = decode(context, &b, &shape);
    EBB_TRY(b.status);
    for (uint32_t i = 0; i < ebb_node_of(g, use.node)->in_count; i++)
        if (ebb_same_value(ebb_in(g, use.node, i), old) && reads_bytes(g, use.node, i))
            EBB_TRY(ebb_node_set_input(g, use.node, i, made));
    return NULL;
}
