/* edit.c: the only way a pass changes a graph; stamps provenance. */
#include "rewrite/rewrite.h"

#include <stdio.h>

ebb_build ebb_edit_build(ebb_edit *e, ebb_node before, ebb_phase phase)
{
    if (phase == EBB_PHASE_NONE && before.i != 0)
        phase = (ebb_phase)ebb_node_of(e->g, before)->phase;
    return ebb_build_at(e->g, before, phase, e->pass->name);
}

ebb_build ebb_edit_build_for(ebb_edit *e, ebb_node n)
{
    ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    b.name = ebb_text(e->g, ebb_node_of(e->g, n)->name);
    return b;
}

ebb_status ebb_edit_replace(ebb_edit *e, ebb_value old, ebb_value with)
{
    ebb_graph *g = e->g;
    bool output = (ebb_value_of(g, old)->flags & EBB_IS_OUTPUT) != 0;
    const uint16_t fixed = EBB_IS_INPUT | EBB_IS_INITIALIZER | EBB_IS_OUTPUT;
    if (!output)
        return ebb_value_replace(g, old, with);
    if ((ebb_value_of(g, with)->flags & fixed) !=
        0) { // its own name must stay: keep the output apart
        ebb_node maker = ebb_value_of(g, old)->producer;
        if (maker.i == 0)
            return NULL;
        ebb_build b = ebb_edit_build(e, maker, EBB_PHASE_NONE);
        with = ebb_emit(&b, EBB_OP_IDENTITY, with);
        EBB_TRY(b.status);
    }
    if (ebb_value_of(g, with)->type->kind == EBB_KIND_UNKNOWN) // what the file declares still holds
        ebb_value_of(g, with)->type = ebb_value_of(g, old)->type;
    EBB_TRY(ebb_value_take_name(g, with, old));
    return ebb_value_replace(g, old, with);
}

void ebb_edit_remove(ebb_edit *e, ebb_node n)
{
    ebb_node_remove(e->g, n);
}

ebb_status ebb_edit_swap(ebb_edit *e, ebb_node n, ebb_value with)
{
    EBB_TRY(ebb_edit_replace(e, ebb_out(e->g, n, 0), with));
    ebb_edit_remove(e, n);
    return NULL;
}
