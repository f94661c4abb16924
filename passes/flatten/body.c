/* body.c: copies of bodies.
 *
 *   y = If (c) <then_branch = b () => (p) { t = Neg (h)  p = Exp (t) }, ...>
 *   if/then/t = Neg (h)   if/then/p = Exp (if/then/t)          h: a value outside, by its name
 *
 * The values of a body get the names that they have there behind the name of the place, so that a
 * reader of the file finds where they come from.
 */
#include "passes/flatten/body.h"

#include "onnx/graph/infer.h"

ebb_status ebb_body_open(ebb_edit *e, ebb_body *body, const ebb_graph *graph)
{
    *body = (ebb_body){.graph = graph};
    body->map = EBB_SCRATCH(e, ebb_value, graph->value_count + 1);
    body->weights = EBB_SCRATCH(e, ebb_value, graph->value_count + 1);
    return body->map == NULL || body->weights == NULL ? ebb_error_memory() : NULL;
}

/* ---- bodies within ---- */

static ebb_status rename_outer(ebb_edit *e, ebb_graph *body, const ebb_value *map,
                               const ebb_graph *from)
{
    size_t count = body->value_count;
    ebb_value *with = EBB_SCRATCH(e, ebb_value, count);
    EBB_GOT(with);
    for (ebb_value v = {1}; v.i < count; v.i++) {
        const ebb_value_info *info = ebb_value_of(body, v);
        if (info->dead || (info->flags & EBB_IS_OUTER) == 0)
            continue;
        ebb_value outside = ebb_value_find(from, ebb_text(body, info->name));
        with[v.i] = outside.i != 0 ? map[outside.i] : EBB_NO_VALUE;
        if (with[v.i].i == 0)
            return ebb_error(EBB_REJECTED, "a body reads '%s', which is not there",
                             ebb_text(body, info->name));
        EBB_TRY(ebb_value_step_aside(body, v, "outer value")); // so that two can exchange theirs
    }
    for (ebb_value v = {1}; v.i < count; v.i++) {
        if (with[v.i].i == 0)
            continue;
        ebb_value_of(e->g, with[v.i])->flags |= EBB_IS_CAPTURED;
        EBB_TRY(ebb_captures_move(body, ebb_value_name(body, v), ebb_value_name(e->g, with[v.i])));
    }
    return NULL;
}

ebb_status ebb_body_copy_graphs(ebb_edit *e, ebb_attr *attr, const ebb_value *map,
                                const ebb_graph *from)
{
    if ((attr->type != EBB_ATTR_GRAPH && attr->type != EBB_ATTR_GRAPHS) || attr->graphs == NULL)
        return NULL;
    ebb_graph **list = EBB_NEW(&e->g->model->arena, ebb_graph *, attr->count);
    EBB_GOT(list);
    for (uint32_t k = 0; k < attr->count; k++) {
        EBB_TRY(ebb_graph_copy(&list[k], e->g, attr->graphs[k]));
        EBB_TRY(rename_outer(e, list[k], map, from));
    }
    attr->graphs = list;
    return NULL;
}

/* ---- one copy ---- */

static ebb_status put_weights(ebb_edit *e, ebb_body *body)
{
    const ebb_graph *from = body->graph;
    for (size_t i = 0; i < from->initializer_count; i++) {
        ebb_value v = from->initializers[i];
        const ebb_value_info *info = ebb_value_of(from, v);
        if (body->weights[v.i].i == 0 && info->tensor != NULL) {
            EBB_TRY(ebb_graph_add_initializer(e->g, &body->weights[v.i], ebb_value_name(from, v),
                                              &info->tensor->type, info->tensor->data,
                                              (ebb_role)info->role));
            EBB_TRY(ebb_props_set_all(e->g, &ebb_value_of(e->g, body->weights[v.i])->props, from,
                                      &info->props));
        }
        body->map[v.i] = body->weights[v.i];
    }
    return NULL;
}

static ebb_status find_outer(ebb_edit *e, ebb_body *body)
{
    EBB_EACH_VALUE(body->graph, v) {
        const ebb_value_info *info = ebb_value_of(body->graph, v);
        if (info->dead || (info->flags & EBB_IS_OUTER) == 0)
            continue;
        body->map[v.i] = ebb_value_find(e->g, ebb_text(body->graph, info->name));
        if (body->map[v.i].i == 0)
            return ebb_error(EBB_REJECTED, "a body reads '%s', which is not there",
                             ebb_text(body->graph, info->name));
    }
    return NULL;
}

/* What the file says of a value in a loop need not hold for each of its copies: its dtype does. */
static ebb_type hint_of(const ebb_graph *body, ebb_node n, ebb_value v)
{
    ebb_type type = *ebb_value_of(body, v)->type;
    if (ebb_node_of(body, n)->op == EBB_OP_UNKNOWN || type.kind != EBB_KIND_TENSOR)
        return type;
    for (int i = 0; i < type.rank; i++) {
        type.dims[i] = -1;
        type.symbols[i] = (ebb_str){0};
    }
    return type;
}

static const char *join(ebb_edit *e, const char *place, const char *name)
{
    return ebb_arena_printf(e->scratch, "%s/%s", place, name);
}

/* A Constant comes over once, too: a table in a loop is stored once. Folding may have made it an
 * initializer of that name in the meantime. */
static bool is_there(const ebb_edit *e, ebb_body *body, ebb_node n)
{
    ebb_value y = ebb_out(body->graph, n, 0);
    if (ebb_node_of(body->graph, n)->op != EBB_OP_CONSTANT || body->weights[y.i].i == 0)
        return false;
    const ebb_value_info *first = ebb_value_of(e->g, body->weights[y.i]);
    body->map[y.i] = first->dead || (first->producer.i == 0 && first->tensor == NULL)
                         ? ebb_value_find(e->g, ebb_text(e->g, first->name))
                         : body->weights[y.i];
    return body->map[y.i].i != 0;
}

ebb_status ebb_body_put_node(ebb_edit *e, ebb_node *put, const ebb_graph *from, ebb_node n,
                             ebb_node before, const char *place, ebb_value *map, bool hints)
{
    ebb_graph *g = e->g;
    const ebb_node_info info = *ebb_node_of(from, n);
    ebb_value *in = EBB_SCRATCH(e, ebb_value, info.in_count + 1u);
    ebb_value *out = EBB_SCRATCH(e, ebb_value, info.out_count + 1u);
    EBB_GOT(in && out);
    for (uint32_t i = 0; i < info.in_count; i++)
        in[i] = info.in[i].i != 0 ? map[info.in[i].i] : EBB_NO_VALUE;
    for (uint32_t k = 0; k < info.out_count; k++) {
        if (info.out[k].i == 0)
            continue;
        const char *name = join(e, place, ebb_value_name(from, info.out[k]));
        ebb_type type =
            hints ? *ebb_value_of(from, info.out[k])->type : hint_of(from, n, info.out[k]);
        EBB_GOT(name);
        EBB_TRY(ebb_value_add(g, &out[k], name, &type));
        map[info.out[k].i] = out[k];
    }
    EBB_TRY(ebb_node_add(g, put, before, ebb_text(from, info.domain), ebb_text(from, info.op_name),
                         in, info.in_count, out, info.out_count));
    ebb_node_info *to = ebb_node_of(g, *put);
    to->overload = info.overload;
    to->phase = ebb_node_of(g, before)->phase;
    if (info.name.i != 0) {
        const char *name = join(e, place, ebb_text(from, info.name));
        to->name = name != NULL ? ebb_graph_intern(g, name) : (ebb_str){0};
        EBB_GOT(to->name.i != 0);
    }
    return NULL;
}

static ebb_status put_node(ebb_edit *e, ebb_body *body, ebb_node before, const char *place,
                           ebb_node n)
{
    ebb_graph *g = e->g;
    const ebb_graph *from = body->graph;
    const ebb_node_info info = *ebb_node_of(from, n);
    ebb_node put;
    EBB_TRY(ebb_body_put_node(e, &put, from, n, before, place, body->map, false));
    for (uint32_t k = 0; k < info.out_count && info.op == EBB_OP_CONSTANT; k++)
        body->weights[info.out[k].i] = body->map[info.out[k].i];
    for (uint32_t i = 0; i < info.attr_count; i++) {
        ebb_attr attr = info.attr[i];
        EBB_TRY(ebb_body_copy_graphs(e, &attr, body->map, from));
        EBB_TRY(ebb_node_set_attr(g, put, &attr));
    }
    ebb_node_of(g, put)->doc = info.doc;
    EBB_TRY(ebb_props_set_all(g, &ebb_node_of(g, put)->props, from, &info.props));
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, put)->props, "ebb.pass", e->pass->name));
    return ebb_infer_node(g, put);
}

ebb_status ebb_body_put(ebb_edit *e, ebb_body *body, ebb_node before, const char *place,
                        const ebb_value *in, size_t given, size_t *nodes)
{
    EBB_TRY(put_weights(e, body));
    for (size_t i = 0; i < given; i++) // also where the body has an initializer for it
        body->map[body->graph->inputs[i].i] = in[i];
    EBB_TRY(find_outer(e, body));
    EBB_EACH_NODE(body->graph, n) {
        if (++*nodes > EBB_BODY_NODES)
            return ebb_error(EBB_REJECTED, "its bodies unfold to more than %d nodes",
                             (int)EBB_BODY_NODES);
        if (!is_there(e, body, n))
            EBB_TRY(put_node(e, body, before, place, n));
    }
    return NULL;
}

ebb_value ebb_body_output(const ebb_body *body, size_t k)
{
    return k < body->graph->output_count ? body->map[body->graph->outputs[k].i] : EBB_NO_VALUE;
}

/* ---- its results ---- */

/* What is merely handed through needs a node to be a value of its own. */
static ebb_status own(ebb_edit *e, ebb_node n, ebb_value *v)
{
    ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    *v = ebb_emit(&b, EBB_OP_IDENTITY, *v);
    return b.status;
}

ebb_status ebb_body_stand_in(ebb_edit *e, ebb_node n, const ebb_value *made, uint32_t count,
                             size_t before)
{
    ebb_graph *g = e->g;
    const char **names = EBB_SCRATCH(e, const char *, count + 1);
    ebb_value *given = EBB_SCRATCH(e, ebb_value, count + 1);
    EBB_GOT(names && given);
    for (uint32_t k = 0; k < count; k++) {
        ebb_value y = ebb_out(g, n, k), v = made[k];
        if (y.i == 0)
            continue;
        if (v.i == 0)
            return ebb_error(EBB_REJECTED, "%s: its body does not make output %u",
                             ebb_node_label(g, n), (unsigned)k);
        const ebb_value_info *from = ebb_value_of(g, v), *to = ebb_value_of(g, y);
        bool output = (to->flags & EBB_IS_OUTPUT) != 0, old = v.i < before;
        for (uint32_t j = 0; j < k; j++)
            old = old || ebb_same_value(made[j], v);
        bool by_name = (to->flags & EBB_IS_CAPTURED) != 0 && (old || from->producer.i == 0);
        if (by_name || (output && (from->producer.i == 0 || (from->flags & EBB_IS_OUTPUT) != 0)))
            EBB_TRY(own(e, n, &v));
        names[k] = ebb_value_name(g, y);
        if (!output && (!old || by_name) && ebb_value_of(g, v)->producer.i != 0)
            given[k] = v; // an output's name goes with it
        EBB_TRY(ebb_edit_replace(e, y, v));
    }
    ebb_edit_remove(e, n);
    for (uint32_t k = 0; k < count; k++)
        if (given[k].i != 0 && ebb_value_find(g, names[k]).i == 0)
            EBB_TRY(ebb_value_rename(g, given[k], names[k]));
    return NULL;
}
