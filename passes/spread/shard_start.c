/* shard_start.c: see shard_parts.h. */
#include "onnx/graph/place.h"
#include "passes/common.h"
#include "passes/spread/shard_parts.h"

static struct ebb_init_binding *drawn_by(const ebb_model *m, ebb_str state)
{
    for (size_t i = 0; i < m->init_binding_count; i++)
        if (ebb_same_str(m->init_bindings[i].state, state))
            return &m->init_bindings[i];
    return NULL;
}

/* ---- zeros ---- */

/* The ConstantOfShape that draws the zeros of a state without bytes; none: they are not so drawn. */
static ebb_node zeros_of(const ebb_model *m, ebb_str state)
{
    const struct ebb_init_binding *b = drawn_by(m, state);
    const bool is =
        b != NULL && ebb_producer_op(m->initialization, b->value) == EBB_OP_CONSTANT_OF_SHAPE;
    const ebb_node n = is ? ebb_value_of(m->initialization, b->value)->producer : EBB_NO_NODE;
    return is && ebb_node_of(m->initialization, n)->attr_count == 0 ? n : EBB_NO_NODE;
}

bool ebb_starts_as_zeros(const ebb_graph *g, ebb_value v)
{
    const ebb_tensor *t = ebb_value_of(g, v)->tensor;
    const ebb_str state = ebb_value_of(g, v)->name;
    const char *bytes = t->data;
    if (bytes == NULL)
        return drawn_by(g->model, state) == NULL || zeros_of(g->model, state).i != 0;
    return t->bytes > 0 && bytes[0] == 0 && memcmp(bytes, bytes + 1, t->bytes - 1) == 0;
}

/* A skeleton's zeros are drawn, or there are none. */
static ebb_status draw_zeros(ebb_model *m, ebb_str state, const ebb_type *type)
{
    const ebb_node n = zeros_of(m, state);
    if (n.i == 0)
        return NULL;
    ebb_build b = ebb_build_at(m->initialization, n, EBB_PHASE_NONE, NULL);
    const ebb_value shape = ebb_const_ints(&b, type->dims, (uint32_t)type->rank);
    EBB_TRY(b.status);
    EBB_TRY(ebb_node_set_input(m->initialization, n, 0, shape));
    return ebb_value_set_type(m->initialization, ebb_out(m->initialization, n, 0), type);
}

/* ---- anything else ---- */

/* The bytes of v, as an initializer of the initialization graph. */
static ebb_status move_bytes(ebb_graph *g, ebb_value v, ebb_value *moved)
{
    ebb_model *m = g->model;
    const ebb_value_info *info = ebb_value_of(g, v);
    if (m->initialization == NULL)
        EBB_TRY(ebb_graph_new(&m->initialization, m, NULL));
    EBB_TRY(ebb_graph_add_initializer(m->initialization, moved, ebb_value_name(g, v), info->type,
                                      NULL, EBB_ROLE_NONE));
    return ebb_value_set_tensor(m->initialization, *moved, info->tensor);
}

static ebb_status cut(ebb_graph *g, ebb_value v, int64_t ranks)
{
    ebb_model *m = g->model;
    const ebb_str state = ebb_value_of(g, v)->name;
    struct ebb_init_binding *drawn = drawn_by(m, state);
    ebb_value whole = drawn != NULL ? drawn->value : EBB_NO_VALUE;
    if (ebb_value_of(g, v)->tensor->data != NULL)
        EBB_TRY(move_bytes(g, v, &whole));
    ebb_build b = ebb_build_at(m->initialization, EBB_NO_NODE, EBB_PHASE_NONE, NULL);
    b.name = ebb_value_name(g, v);
    ebb_with_int(&b, "ranks", ranks);
    const ebb_value part = ebb_emit(&b, EBB_OP_SHARD, whole);
    EBB_TRY(b.status);
    EBB_TRY(ebb_graph_add_output(m->initialization, part));
    if (drawn == NULL)
        return ebb_draw_also(m, state, part);
    ebb_graph_remove_output(m->initialization, drawn->value);
    drawn->value = part;
    (void)ebb_graph_sweep(m->initialization);
    return NULL;
}

ebb_status ebb_shard_start(ebb_graph *g, ebb_value v, const ebb_type *part, int64_t ranks)
{
    ebb_tensor t = {.type = *part, .data = ebb_value_of(g, v)->tensor->data}; // rank 0's
    EBB_GOT(ebb_type_bytes(part, &t.bytes));
    if (!ebb_starts_as_zeros(g, v))
        EBB_TRY(cut(g, v, ranks));
    else if (t.data == NULL)
        EBB_TRY(draw_zeros(g->model, ebb_value_of(g, v)->name, part));
    ebb_value_of(g, v)->origin = NULL;
    return ebb_value_set_tensor(g, v, &t);
}

/* ---- and back ---- */

static void undraw(ebb_model *m, struct ebb_init_binding *drawn)
{
    ebb_graph_remove_output(m->initialization, drawn->value);
    *drawn = m->init_bindings[--m->init_binding_count];
}

/* Gives what was cut: bytes to v, or another value to draw. */
static ebb_status uncut(ebb_model *m, struct ebb_init_binding *drawn, ebb_tensor *t)
{
    ebb_graph *draws = m->initialization;
    const ebb_value part = drawn->value;
    const ebb_value whole = ebb_in(draws, ebb_value_of(draws, part)->producer, 0);
    const ebb_tensor *moved = ebb_value_of(draws, whole)->tensor;
    t->data = moved != NULL ? moved->data : NULL;
    if (t->data != NULL) {
        undraw(m, drawn);
    } else {
        ebb_graph_remove_output(draws, part);
        EBB_TRY(ebb_graph_add_output(draws, whole));
        drawn->value = whole;
    }
    (void)ebb_graph_sweep(draws);
    return NULL;
}

ebb_status ebb_whole_start(ebb_graph *g, ebb_value v, const ebb_type *whole)
{
    ebb_model *m = g->model;
    const ebb_str state = ebb_value_of(g, v)->name;
    struct ebb_init_binding *drawn = drawn_by(m, state);
    ebb_tensor t = {.type = *whole};
    EBB_GOT(ebb_type_bytes(whole, &t.bytes));
    if (drawn != NULL && ebb_producer_op(m->initialization, drawn->value) == EBB_OP_SHARD)
        EBB_TRY(uncut(m, drawn, &t));
    else if (ebb_value_of(g, v)->tensor->data == NULL)
        EBB_TRY(draw_zeros(m, state, whole));
    else if ((t.data = ebb_arena_zeroed(&m->arena, t.bytes + 1, 1)) == NULL)
        return ebb_error_memory();
    EBB_TRY(ebb_part_mark(g, v, NULL));
    ebb_value_of(g, v)->origin = NULL;
    return ebb_value_set_tensor(g, v, &t);
}
