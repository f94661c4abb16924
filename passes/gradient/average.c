/* average.c: a running average of a parameter, beside it.
 *
 *   w.ema' = w.ema + (1 - decay) (w_next - w.ema)
 */
#include "passes/common.h"
#include "passes/gradient/update.h"

/* w.ema, which starts as w: its bytes, or in a skeleton what is drawn for w. */
static ebb_status add_average(ebb_edit *e, ebb_value w, ebb_value *average)
{
    ebb_graph *g = e->g;
    ebb_model *m = g->model;
    ebb_type type = *ebb_value_of(g, w)->type;
    char *name = ebb_arena_printf(e->scratch, "%s.ema", ebb_value_name(g, w));
    EBB_GOT(name);
    if (type.dtype != EBB_F32 && type.dtype != EBB_F64)
        return ebb_error(EBB_UNSUPPORTED,
                         "optimizer: '%s' has 16 bits, too few for an average that moves a little "
                         "in each step",
                         ebb_value_name(g, w));
    type.layout = (ebb_layout){0};
    EBB_TRY(ebb_graph_add_initializer(g, average, name, &type, NULL, EBB_ROLE_OPTIMIZER));
    EBB_TRY(ebb_value_point(g, *average, ebb_value_of(g, w)->tensor->data));
    for (size_t i = 0; i < m->init_binding_count; i++)
        if (m->init_bindings[i].state.i == ebb_value_of(g, w)->name.i)
            return ebb_draw_also(m, ebb_value_of(g, *average)->name, m->init_bindings[i].value);
    return NULL;
}

ebb_status ebb_average_follow(ebb_edit *e, ebb_build *b, ebb_value w)
{
    ebb_graph *g = e->g;
    ebb_value average;
    EBB_TRY(add_average(e, w, &average));
    b->name = ebb_value_name(g, average);
    ebb_value change = ebb_emit(b, EBB_OP_SUB, ebb_graph_bound(g, w), average);
    change =
        ebb_emit(b, EBB_OP_MUL, change, ebb_const_like(b, average, 1 - ebb_option_float(e, "ema")));
    ebb_value next = ebb_emit(b, EBB_OP_ADD, average, change);
    EBB_TRY(b->status);
    return ebb_bind_next(g, average, next);
}
