/* interface.c: what a graph has to do with others: inputs, outputs, initializers, bindings, the loss. */
#include "onnx/graph/change.h"

#include <assert.h>

/* ---- lists ---- */

static bool put_on_list(ebb_graph *g, ebb_value **list, size_t *count, size_t *capacity,
                        ebb_value v)
{
    const ebb_value *old = *list;
    if (!ebb_arena_grow(&g->model->arena, list, *count, capacity, sizeof **list))
        return false;
    if (old != *list)
        ebb_arena_drop(&g->model->arena, old);
    (*list)[(*count)++] = v;
    return true;
}

static void take_off_list(ebb_value *list, size_t *count, ebb_value v)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (!ebb_same_value(list[i], v))
            list[kept++] = list[i];
    *count = kept;
}

/* ---- inputs and outputs ---- */

ebb_status ebb_graph_add_input(ebb_graph *g, ebb_value v)
{
    EBB_GOT(put_on_list(g, &g->inputs, &g->input_count, &g->input_capacity, v));
    ebb_value_of(g, v)->flags |= EBB_IS_INPUT;
    return NULL;
}

ebb_status ebb_graph_add_output(ebb_graph *g, ebb_value v)
{
    EBB_GOT(put_on_list(g, &g->outputs, &g->output_count, &g->output_capacity, v));
    ebb_value_of(g, v)->flags |= EBB_IS_OUTPUT;
    return NULL;
}

void ebb_graph_remove_output(ebb_graph *g, ebb_value v)
{
    take_off_list(g->outputs, &g->output_count, v);
    ebb_value_of(g, v)->flags &= (uint8_t)~EBB_IS_OUTPUT;
}

void ebb_graph_remove_outputs(ebb_graph *g, const bool *gone)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->output_count; i++) {
        ebb_value v = g->outputs[i];
        if (gone[v.i])
            ebb_value_of(g, v)->flags &= (uint8_t)~EBB_IS_OUTPUT;
        else
            g->outputs[kept++] = v;
    }
    g->output_count = kept;
}

/* ---- initializers ---- */

/* The equal tensor that other values have, or a copy. States of the optimizer that start with the same
 * zeros are what a large step has most of. */
static const ebb_tensor *share_tensor(ebb_model *m, const ebb_tensor *t)
{
    for (uint32_t k = 0; k < EBB_SHARED && m->tensors[k] != NULL; k++)
        if (m->tensors[k]->data == t->data && memcmp(m->tensors[k], t, sizeof *t) == 0)
            return m->tensors[k];
    ebb_tensor *copy = EBB_NEW(&m->arena, ebb_tensor, 1);
    if (copy == NULL)
        return NULL;
    m->tensors[m->tensors_next++ % EBB_SHARED] = memcpy(copy, t, sizeof *t);
    return copy;
}

ebb_status ebb_value_set_tensor(ebb_graph *g, ebb_value v, const ebb_tensor *tensor)
{
    const ebb_tensor *shared = share_tensor(g->model, tensor);
    EBB_GOT(shared);
    ebb_value_of(g, v)->tensor = shared;
    return ebb_value_set_type(g, v, &tensor->type);
}

ebb_status ebb_value_point(ebb_graph *g, ebb_value v, const void *data)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    ebb_tensor t = {.type = ebb_type_unknown};
    if (info->tensor != NULL)
        t = *info->tensor;
    t.given |= data != NULL && data != t.data;
    t.type = *info->type;
    t.data = data;
    if (!ebb_type_bytes(&t.type, &t.bytes))
        return ebb_error(EBB_REJECTED, "initializer '%s' has no size", ebb_value_name(g, v));
    return ebb_value_set_tensor(g, v, &t);
}

/* v, which nothing makes, becomes an initializer whose bytes are missing. */
static ebb_status initialize(ebb_graph *g, ebb_value v, ebb_role role)
{
    EBB_TRY(ebb_value_point(g, v, NULL));
    EBB_GOT(put_on_list(g, &g->initializers, &g->initializer_count, &g->initializer_capacity, v));
    ebb_value_info *info = ebb_value_of(g, v);
    info->role = (uint8_t)role;
    info->flags |= EBB_IS_INITIALIZER;
    return NULL;
}

ebb_status ebb_graph_add_initializer(ebb_graph *g, ebb_value *value, const char *name,
                                     const ebb_type *type, const void *data, ebb_role role)
{
    size_t bytes;
    if (!ebb_type_bytes(type, &bytes))
        return ebb_error(EBB_REJECTED, "initializer '%s' has no size", name != NULL ? name : "");
    EBB_TRY(ebb_value_add(g, value, name, type));
    EBB_TRY(initialize(g, *value, role));
    if (data == NULL)
        return NULL;
    void *copy = ebb_arena_alloc(&g->model->arena, bytes);
    EBB_GOT(copy);
    if (bytes > 0)
        memcpy(copy, data, bytes);
    return ebb_value_point(g, *value, copy);
}

ebb_status ebb_graph_keep_input(ebb_graph *g, ebb_value v, ebb_role role)
{
    size_t bytes;
    if (!ebb_type_bytes(ebb_value_of(g, v)->type, &bytes))
        return ebb_error(EBB_REJECTED, "input '%s' has no fixed size: it cannot be a weight",
                         ebb_value_name(g, v));
    EBB_TRY(initialize(g, v, role));
    take_off_list(g->inputs, &g->input_count, v);
    ebb_value_of(g, v)->flags &= (uint8_t)~EBB_IS_INPUT;
    return NULL;
}

ebb_status ebb_graph_ask_input(ebb_graph *g, ebb_value v)
{
    ebb_value_info *info = ebb_value_of(g, v);
    if ((info->flags & EBB_IS_INPUT) == 0)
        EBB_TRY(ebb_graph_add_input(g, v));
    take_off_list(g->initializers, &g->initializer_count, v);
    info->flags &= (uint8_t)~EBB_IS_INITIALIZER;
    info->tensor = NULL;
    return NULL;
}

void ebb_graph_remove_input(ebb_graph *g, ebb_value v)
{
    ebb_value_info *info = ebb_value_of(g, v);
    assert(info->use_count == 0 || (info->flags & EBB_IS_INITIALIZER) != 0);
    take_off_list(g->inputs, &g->input_count, v);
    info->flags &= (uint8_t)~EBB_IS_INPUT;
    if ((info->flags & (EBB_IS_INITIALIZER | EBB_IS_OUTPUT)) == 0)
        ebb_value_bury(g, v);
}

/* v, which is on the list no more, is no initializer. */
static void uninitialize(ebb_graph *g, ebb_value v)
{
    ebb_value_info *info = ebb_value_of(g, v);
    assert(info->use_count == 0);
    info->flags &= (uint8_t)~EBB_IS_INITIALIZER;
    info->tensor = NULL;
    if ((info->flags & (EBB_IS_INPUT | EBB_IS_OUTPUT)) == 0)
        ebb_value_bury(g, v);
}

void ebb_graph_remove_initializer(ebb_graph *g, ebb_value v)
{
    take_off_list(g->initializers, &g->initializer_count, v);
    uninitialize(g, v);
}

void ebb_interface_sweep(ebb_graph *g)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        bool ours = info->tensor != NULL && info->tensor->origin == NULL;
        if (ours && !ebb_value_is_read(g, v) && (info->flags & (EBB_IS_STATE | EBB_IS_INPUT)) == 0)
            uninitialize(g, v);
        else
            g->initializers[kept++] = v;
    }
    g->initializer_count = kept;
}

/* ---- bindings ---- */

static void set_next(ebb_graph *g, ebb_binding *b, ebb_value next)
{
    if (b->next.i != 0)
        ebb_value_of(g, b->next)->bound--;
    ebb_value_of(g, next)->bound++;
    b->next = next;
}

ebb_status ebb_graph_bind(ebb_graph *g, ebb_value state, ebb_value next)
{
    ebb_value_info *info = ebb_value_of(g, state);
    if (info->binding == 0) {
        const ebb_binding *old = g->bindings;
        EBB_GOT(ebb_arena_grow(&g->model->arena, &g->bindings, g->binding_count,
                               &g->binding_capacity, sizeof *g->bindings));
        if (old != g->bindings)
            ebb_arena_drop(&g->model->arena, old);
        g->bindings[g->binding_count++] = (ebb_binding){.state = state};
        info->binding = (uint32_t)g->binding_count;
        info->flags |= EBB_IS_STATE;
    }
    set_next(g, &g->bindings[info->binding - 1], next);
    return NULL;
}

void ebb_graph_unbind(ebb_graph *g, ebb_value state)
{
    ebb_value_info *info = ebb_value_of(g, state);
    info->flags &= (uint8_t)~EBB_IS_STATE;
    if (info->binding == 0)
        return;
    size_t at = info->binding - 1;
    ebb_value_of(g, g->bindings[at].next)->bound--;
    info->binding = 0;
    g->binding_count--;
    for (; at < g->binding_count; at++) {
        g->bindings[at] = g->bindings[at + 1];
        ebb_value_of(g, g->bindings[at].state)->binding = (uint32_t)at + 1;
    }
}

ebb_value ebb_graph_bound(const ebb_graph *g, ebb_value state)
{
    uint32_t at = ebb_value_of(g, state)->binding;
    return at > 0 ? g->bindings[at - 1].next : EBB_NO_VALUE;
}

void ebb_interface_replace(ebb_graph *g, ebb_value old, ebb_value with)
{
    ebb_value_info *info = ebb_value_of(g, old);
    for (size_t i = 0; i < g->output_count; i++) {
        if (!ebb_same_value(g->outputs[i], old))
            continue;
        g->outputs[i] = with;
        info->flags &= (uint8_t)~EBB_IS_OUTPUT;
        ebb_value_of(g, with)->flags |= EBB_IS_OUTPUT;
    }
    for (size_t i = 0; i < g->binding_count && info->bound > 0; i++)
        if (ebb_same_value(g->bindings[i].next, old))
            set_next(g, &g->bindings[i], with);
    if (ebb_same_value(g->loss, old))
        g->loss = with;
}
