/* loop_parts.c: see loop_parts.h. */
#include "passes/gradient/loop_parts.h"

#include "onnx/graph/infer.h"

/* ---- the forward ---- */

static ebb_status set_body(ebb_graph *g, ebb_node n, ebb_graph *body)
{
    ebb_graph **list = EBB_NEW(&g->model->arena, ebb_graph *, 1);
    EBB_GOT(list);
    list[0] = body;
    const ebb_attr attr = {.name = "body", .type = EBB_ATTR_GRAPH, .count = 1, .graphs = list};
    return ebb_node_set_attr(g, n, &attr);
}

/* One number for each of `count`, where it is not 0 for all. */
static ebb_status set_list(ebb_graph *g, ebb_node n, const char *name, const int64_t *list,
                           uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i] != 0)
            return ebb_node_set_ints(g, n, name, list, count);
    return NULL;
}

static ebb_type stacked_type(const ebb_loop_back *l, ebb_value v)
{
    ebb_type type = *ebb_value_of(l->joint, v)->type;
    for (int i = type.rank; i > 0; i--)
        type.dims[i] = type.dims[i - 1];
    type.rank++;
    type.dims[0] = l->s.trips;
    return type;
}

/* stacked[i]: where the graph around has what list[i] stands for. */
static ebb_status extend_forward(ebb_loop_back *l, ebb_graph *forward, ebb_value *stacked)
{
    ebb_graph *g = l->r->g;
    ebb_edit inner = l->inner;
    inner.g = forward;
    uint32_t more = 0;
    ebb_build b = ebb_edit_build(&inner, EBB_NO_NODE, EBB_PHASE_NONE);
    b.name = l->name;
    for (size_t i = 0; i < l->count; i++) {
        ebb_loop_saved *s = &l->list[i];
        if (s->from == EBB_LOOP_SCANNED)
            stacked[i] = ebb_in(g, l->n, l->s.states + s->k);
        if (s->from == EBB_LOOP_KEPT)
            stacked[i] = ebb_out(g, l->n, l->s.states + s->k);
        if (s->from != EBB_LOOP_STACKED)
            continue;
        ebb_type type = stacked_type(l, s->v);
        if (type.rank > EBB_MAX_RANK)
            return ebb_error(EBB_UNSUPPORTED, "%s: what its gradient reads has too many axes",
                             ebb_node_label(g, l->n));
        ebb_value v = s->v;
        const ebb_value_info *info = ebb_value_of(forward, v);
        if (info->producer.i == 0 || (info->flags & EBB_IS_OUTPUT) != 0)
            v = ebb_emit(&b, EBB_OP_IDENTITY, v);
        EBB_TRY(b.status);
        EBB_TRY(ebb_graph_add_output(forward, v));
        const char *name =
            ebb_arena_printf(l->r->e->scratch, "%s/%s", l->name, ebb_value_name(l->joint, s->v));
        EBB_GOT(name);
        EBB_TRY(ebb_value_add(g, &stacked[i], name, &type));
        EBB_TRY(ebb_node_set_output(g, l->n, l->s.states + l->s.outputs + more, stacked[i]));
        more++;
    }
    (void)ebb_graph_sweep(forward); // the backward's nodes, then what they were given
    EBB_TRY(
        ebb_scans_trim(forward)); // what loops within keep for a backward that has it made again
    for (size_t i = forward->input_count; i-- > l->s.states + l->s.inputs;)
        ebb_graph_remove_input(forward, forward->inputs[i]);
    EBB_TRY(ebb_scan_lengthen(g, l->n, "scan_output_axes", l->s.outputs, more, 0));
    EBB_TRY(ebb_scan_lengthen(g, l->n, "scan_output_directions", l->s.outputs, more, 0));
    return set_body(g, l->n, forward);
}

/* ---- names ---- */

/* Names within a body are none of those around it. */
static ebb_status name_apart(ebb_loop_back *l)
{
    ebb_graph *body = l->joint;
    const size_t count = body->value_count;
    for (ebb_value v = {1}; v.i < count; v.i++) {
        const ebb_value_info *info = ebb_value_of(body, v);
        if (info->dead || (info->flags & EBB_IS_OUTER) != 0)
            continue;
        const char *name =
            ebb_arena_printf(l->r->e->scratch, "%s_Grad/%s", l->name, ebb_text(body, info->name));
        EBB_TRY(ebb_value_step_aside(body, v, name));
    }
    return NULL;
}

/* ---- the backward ---- */

static void scan_in(ebb_loop_operands *o, ebb_value in, ebb_value outside, int64_t axis,
                    bool backwards)
{
    o->axes[o->count - o->states] = axis;
    o->directions[o->count - o->states] = backwards;
    o->in[o->count] = in;
    o->outside[o->count++] = outside;
}

static ebb_status scan_like(ebb_loop_back *l, ebb_value in, ebb_value outside, bool output,
                            uint32_t k)
{
    ebb_slices slices;
    const char *why = ebb_scan_slices(&slices, l->r->g, l->n, output, k);
    if (why != NULL)
        return ebb_error(EBB_UNSUPPORTED, "%s: %s", ebb_node_label(l->r->g, l->n), why);
    scan_in(&l->o, in, outside, slices.axis, !slices.backwards);
    return NULL;
}

/* The body's lists become these; what is not on them goes. */
static ebb_status set_lists(ebb_graph *body, const ebb_loop_operands *o)
{
    for (size_t i = 0; i < body->input_count; i++)
        ebb_value_of(body, body->inputs[i])->flags &= (uint8_t)~EBB_IS_INPUT;
    for (size_t i = 0; i < body->output_count; i++)
        ebb_value_of(body, body->outputs[i])->flags &= (uint8_t)~EBB_IS_OUTPUT;
    body->input_count = body->output_count = 0;
    for (uint32_t i = 0; i < o->count; i++)
        EBB_TRY(ebb_graph_add_input(body, o->in[i]));
    for (uint32_t i = 0; i < o->out_count; i++)
        EBB_TRY(ebb_graph_add_output(body, o->out[i]));
    return NULL;
}

static ebb_status emit(ebb_loop_back *l, ebb_value *made)
{
    const ebb_loop_operands *o = &l->o;
    ebb_graph *g = l->r->g;
    ebb_node scan;
    const char *name = ebb_arena_printf(l->r->e->scratch, "%s_Grad/Scan", l->name);
    ebb_str fresh = name != NULL ? ebb_graph_fresh(g, name) : (ebb_str){0};
    EBB_GOT(fresh.i != 0);
    for (uint32_t i = 0; i < o->out_count; i++) {
        ebb_type open = ebb_type_none();
        EBB_TRY(ebb_value_add(g, &made[i], ebb_text(g, fresh), &open));
    }
    EBB_TRY(ebb_node_add(g, &scan, l->r->b.before, EBB_DOMAIN_ONNX, "Scan", o->outside, o->count,
                         made, o->out_count));
    ebb_node_of(g, scan)->name = fresh;
    ebb_node_of(g, scan)->phase = (uint8_t)l->r->b.phase;
    EBB_TRY(set_body(g, scan, l->joint));
    EBB_TRY(ebb_node_set_int(g, scan, "num_scan_inputs", o->count - o->states));
    EBB_TRY(set_list(g, scan, "scan_input_axes", o->axes, o->count - o->states));
    EBB_TRY(set_list(g, scan, "scan_input_directions", o->directions, o->count - o->states));
    EBB_TRY(set_list(g, scan, "scan_output_axes", o->out_axes, o->out_count - o->states));
    EBB_TRY(
        set_list(g, scan, "scan_output_directions", o->out_directions, o->out_count - o->states));
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, scan)->props, "ebb.pass", l->r->e->pass->name));
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, scan)->props, EBB_KEPT_LOOP, "backward"));
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, l->n)->props, EBB_KEPT_LOOP, "forward"));
    ebb_captures_mark_of(g, scan);
    return ebb_infer_node(g, scan);
}

/* What the forward made and the backward walks through: gradients of what was put together, what was
 * saved. Their values in the joint graph become inputs. */
static ebb_status add_scanned(ebb_loop_back *l, const ebb_value *stacked)
{
    for (uint32_t k = 0; k < l->s.outputs; k++)
        if (l->given[l->s.states + k].i != 0)
            EBB_TRY(scan_like(l, l->given[l->s.states + k], l->dy[l->s.states + k], true, k));
    for (size_t i = 0; i < l->count; i++) {
        const ebb_loop_saved *s = &l->list[i];
        ebb_value v;
        EBB_TRY(ebb_value_add(l->joint, &v, ebb_value_name(l->joint, s->v),
                              ebb_value_of(l->joint, s->v)->type));
        EBB_TRY(ebb_value_replace(l->joint, s->v, v));
        if (s->from == EBB_LOOP_STACKED)
            scan_in(&l->o, v, stacked[i], 0, true);
        else
            EBB_TRY(scan_like(l, v, stacked[i], s->from == EBB_LOOP_KEPT, s->k));
    }
    if (l->o.count > l->o.states)
        return NULL;
    ebb_value
        count; // nothing differs from step to step, but how many there are is still to be told
    EBB_TRY(ebb_value_add(l->joint, &count, NULL,
                          ebb_value_of(l->joint, l->inputs[l->s.states])->type));
    return scan_like(l, count, ebb_in(l->r->g, l->n, l->s.states), false, 0);
}

ebb_status ebb_loop_part(ebb_loop_back *l, ebb_value *made)
{
    ebb_graph *forward;
    ebb_value *stacked = EBB_SCRATCH(l->r->e, ebb_value, l->count + 1);
    EBB_GOT(stacked);
    EBB_TRY(ebb_graph_copy(&forward, l->r->g, l->joint));
    EBB_TRY(extend_forward(l, forward, stacked));
    EBB_TRY(add_scanned(l, stacked));
    EBB_TRY(set_lists(l->joint, &l->o));
    (void)ebb_graph_sweep(l->joint);
    for (uint32_t i = 0; i < l->s.states + l->s.inputs; i++)
        ebb_value_bury(l->joint, l->inputs[i]);
    EBB_TRY(name_apart(l));
    EBB_TRY(emit(l, made));
    return ebb_infer_node(l->r->g, l->n);
}
