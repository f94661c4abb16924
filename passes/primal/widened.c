/* widened.c: a graph in float16 or bfloat16 computes in float32, on the numbers that it holds.
 *
 *   before   y = MatMul(x, w)                              all of it float16
 *   after    w.float32 = Cast(w), y = MatMul(x, w.float32)
 *
 * What is stored in 16 bits stays so: weights are cast where they are read, once for all readers; of a table
 * rows are taken first; scales of codes are read as they are. The graph's outputs keep their dtype, but the loss.
 */
#include "passes/primal/widened.h"

#include "onnx/graph/infer.h"
#include "passes/common.h"

typedef struct widening {
    ebb_edit *e;
    ebb_graph *g;
    size_t value_count; /* before any cast */
    ebb_value *wide;    /* by value: its cast; none: not yet */
    bool *was_narrow;   /* by value: float32 now */
} widening;

static bool is_narrow(const ebb_graph *g, ebb_value v)
{
    const ebb_type *t = v.i != 0 ? ebb_value_of(g, v)->type : NULL;
    return t != NULL && t->kind == EBB_KIND_TENSOR && (t->dtype == EBB_F16 || t->dtype == EBB_BF16);
}

/* An input that is read as it is stored. */
static bool stays(const ebb_graph *g, ebb_op op, uint32_t slot, ebb_value v)
{
    const bool is_stored = (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0;
    return op == EBB_OP_CAST || ebb_op_slot(op, slot) == 'Q' ||
           (op == EBB_OP_GATHER && slot == 0 && is_stored);
}

static ebb_status widen_inputs(widening *w, ebb_node n)
{
    ebb_graph *g = w->g;
    const ebb_op op = ebb_node_of(g, n)->op;
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        const ebb_value v = ebb_in(g, n, i);
        if (!is_narrow(g, v) || stays(g, op, i, v))
            continue;
        if (w->wide[v.i].i == 0) {
            ebb_build b = ebb_edit_build(w->e, n, EBB_PHASE_NONE);
            char *name = ebb_arena_printf(w->e->scratch, "%s.float32", ebb_value_name(g, v));
            EBB_GOT(name);
            b.name = ebb_value_name(g, v);
            ebb_with_name(&b, name);
            w->wide[v.i] = ebb_emit_cast(&b, v, EBB_F32);
            EBB_TRY(b.status);
        }
        EBB_TRY(ebb_node_set_input(g, n, i, w->wide[v.i]));
    }
    return NULL;
}

/* An output of the graph that is made of float32 alone, as those that are left behind here. */
static bool is_last_cast(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->op == EBB_OP_CAST && !is_narrow(g, ebb_in(g, n, 0)) &&
           (ebb_value_of(g, ebb_out(g, n, 0))->flags & EBB_IS_OUTPUT) != 0;
}

/* As its inputs say now: float32, or 16 bits where rows or codes of those are read. */
static ebb_status widen_outputs(widening *w, ebb_node n)
{
    ebb_graph *g = w->g;
    bool any = false;
    for (uint32_t o = 0; o < ebb_node_of(g, n)->out_count; o++) {
        const ebb_value v = ebb_out(g, n, o);
        if (!is_narrow(g, v))
            continue;
        ebb_type open = *ebb_value_of(g, v)->type;
        open.dtype = EBB_NONE;
        EBB_TRY(ebb_value_set_type(g, v, &open));
        ebb_value_of(g, v)->origin = NULL; // the file says otherwise
        w->was_narrow[v.i] = any = true;
    }
    if (!any)
        return NULL;
    ebb_found(w->e);
    if (ebb_node_of(g, n)->op == EBB_OP_CAST)
        EBB_TRY(ebb_node_set_int(g, n, "to", EBB_F32));
    EBB_TRY(ebb_infer_node(g, n));
    for (uint32_t o = 0; o < ebb_node_of(g, n)->out_count; o++)
        w->was_narrow[ebb_out(g, n, o).i] &= !is_narrow(g, ebb_out(g, n, o));
    ebb_applied(w->e);
    return NULL;
}

/* A Cast from float32 to float32 now: its readers read what it read. */
static ebb_status leave_out(widening *w, ebb_node n)
{
    ebb_graph *g = w->g;
    const ebb_value x = ebb_in(g, n, 0), y = ebb_out(g, n, 0);
    if (ebb_node_of(g, n)->op != EBB_OP_CAST || (ebb_value_of(g, y)->flags & EBB_IS_OUTPUT) != 0 ||
        (!w->was_narrow[y.i] && (x.i >= w->value_count || !w->was_narrow[x.i])) ||
        ebb_value_of(g, x)->type->dtype != ebb_value_of(g, y)->type->dtype)
        return NULL;
    EBB_TRY(ebb_value_replace(g, y, x));
    ebb_node_remove(g, n);
    return NULL;
}

/* Output i under its name in the dtype that it had. */
static ebb_status narrow_output(widening *w, size_t i, ebb_dtype dtype)
{
    ebb_graph *g = w->g;
    const ebb_value v = g->outputs[i];
    ebb_build b = ebb_edit_build(w->e, ebb_next(g, ebb_value_of(g, v)->producer), EBB_PHASE_NONE);
    const ebb_value made = ebb_emit_cast(&b, v, dtype);
    EBB_TRY(b.status);
    return ebb_output_becomes(g, i, made, "float32");
}

ebb_status ebb_widened(ebb_edit *e)
{
    ebb_graph *g = e->g;
    widening w = {.e = e, .g = g, .value_count = g->value_count};
    w.wide = EBB_SCRATCH(e, ebb_value, w.value_count);
    w.was_narrow = EBB_SCRATCH(e, bool, w.value_count);
    uint8_t *outputs = EBB_SCRATCH(e, uint8_t, g->output_count + 1);
    EBB_GOT(w.wide && w.was_narrow && outputs);
    for (size_t i = 0; i < g->output_count; i++)
        outputs[i] = ebb_value_of(g, g->outputs[i])->type->dtype;
    EBB_EACH_NODE(g, n)
        if (ebb_op_has(ebb_node_of(g, n)->op, EBB_BODIES))
            return ebb_declined(e, n, "it has a body, which would have to be widened with it");
    for (ebb_node n = ebb_first(g), next; n.i != 0; n = next) {
        next = ebb_next(g, n);
        if (is_last_cast(g, n))
            continue;
        EBB_TRY(widen_inputs(&w, n));
        EBB_TRY(widen_outputs(&w, n));
        EBB_TRY(leave_out(&w, n));
    }
    for (size_t i = 0; i < g->output_count; i++)
        if (w.was_narrow[g->outputs[i].i] && g->outputs[i].i != g->loss.i)
            EBB_TRY(narrow_output(&w, i, (ebb_dtype)outputs[i]));
    return NULL;
}
