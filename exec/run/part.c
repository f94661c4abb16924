/* part.c: see part.h. */
#include "exec/run/part.h"

/* What is cut; NULL: nothing is, or it is drawn first. */
static const ebb_tensor *whole_of(const ebb_model *m, ebb_str state)
{
    const ebb_graph *g = m->initialization;
    for (size_t i = 0; i < m->init_binding_count; i++) {
        const ebb_value drawn = m->init_bindings[i].value;
        if (!ebb_same_str(m->init_bindings[i].state, state) ||
            ebb_producer_op(g, drawn) != EBB_OP_SHARD)
            continue;
        const ebb_tensor *t =
            ebb_value_of(g, ebb_in(g, ebb_value_of(g, drawn)->producer, 0))->tensor;
        return t != NULL && t->data != NULL ? t : NULL;
    }
    return NULL;
}

ebb_status ebb_part_at_start(const void **part, const ebb_program *p, ebb_value v,
                             ebb_arena *scratch)
{
    const ebb_graph *g = p->plan.g;
    const ebb_value_info *info = ebb_value_of(g, v);
    const ebb_tensor *whole = NULL;
    size_t bytes;
    *part = NULL;
    if (g == p->model->graph && ebb_props_get(g, &info->props, "ebb.shard") != NULL)
        whole = whole_of(p->model, info->name);
    if (whole == NULL || !ebb_type_bytes(ebb_value_of(g, v)->type, &bytes))
        return NULL;
    const size_t from = bytes * (size_t)ebb_group_rank(p->group);
    if (from < whole->bytes && whole->bytes - from >= bytes)
        return *part = (const char *)whole->data + from, NULL;
    char *own = ebb_arena_zeroed(scratch, bytes, 1); // the last, filled up
    EBB_GOT(own);
    if (from < whole->bytes)
        memcpy(own, (const char *)whole->data + from, whole->bytes - from);
    *part = own;
    return NULL;
}
