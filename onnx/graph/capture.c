/* capture.c: values that the bodies of If, Loop and Scan read from outside.
 *
 *   h = Relu (x)                      h is marked captured: it has uses that no list shows
 *   y = If (c) <then_branch = { p = Neg (h) }, ...>
 *                                     within: a stand-in of the same name, marked outer
 *
 * A stand-in knows its value by name alone. So where the value is renamed, or another takes its
 * place, the stand-ins follow, down to the innermost body.
 */
#include "onnx/graph/scan.h"

static bool is_body(const ebb_attr *a)
{
    return (a->type == EBB_ATTR_GRAPH || a->type == EBB_ATTR_GRAPHS) && a->graphs != NULL;
}

ebb_status ebb_captures_move(ebb_graph *body, const char *from, const char *to)
{
    ebb_value old = ebb_value_find(body, from), taken = ebb_value_find(body, to);
    if (old.i == 0 || (ebb_value_of(body, old)->flags & EBB_IS_OUTER) == 0)
        return NULL; // a value of its own hides the one outside
    if (taken.i == 0)
        return ebb_value_rename(body, old, to);
    if ((ebb_value_of(body, taken)->flags & EBB_IS_OUTER) == 0) {
        EBB_TRY(ebb_value_step_aside(body, taken, to));
        return ebb_value_rename(body, old, to);
    }
    EBB_TRY(ebb_value_replace(body, old, taken));
    ebb_value_bury(body, old);
    return NULL;
}

static ebb_status move_all(ebb_graph *g, const char *from, const char *to)
{
    EBB_EACH_NODE(g, n)
        EBB_EACH_BODY(ebb_node_of(g, n), body)
            EBB_TRY(ebb_captures_move(*body, from, to));
    return NULL;
}

ebb_status ebb_captures_rename(ebb_graph *g, ebb_value v, const char *from)
{
    if ((ebb_value_of(g, v)->flags & EBB_IS_CAPTURED) == 0)
        return NULL;
    return move_all(g, from, ebb_value_name(g, v));
}

ebb_status ebb_captures_replace(ebb_graph *g, ebb_value old, ebb_value with)
{
    if ((ebb_value_of(g, old)->flags & EBB_IS_CAPTURED) == 0)
        return NULL;
    ebb_value_of(g, old)->flags &= (uint8_t)~EBB_IS_CAPTURED;
    ebb_value_of(g, with)->flags |= EBB_IS_CAPTURED;
    return move_all(g, ebb_value_name(g, old), ebb_value_name(g, with));
}

ebb_value ebb_body_outside(const ebb_graph *g, const ebb_graph *body, ebb_value v)
{
    const ebb_value_info *inner = ebb_value_of(body, v);
    return inner->dead || (inner->flags & EBB_IS_OUTER) == 0
               ? EBB_NO_VALUE
               : ebb_value_find(g, ebb_text(body, inner->name));
}

void ebb_captures_mark_of(ebb_graph *g, ebb_node n)
{
    EBB_EACH_BODY(ebb_node_of(g, n), body)
        EBB_EACH_VALUE(*body, v) {
            const ebb_value outside = ebb_body_outside(g, *body, v);
            ebb_value_of(g, outside)->flags |= outside.i != 0 ? EBB_IS_CAPTURED : 0;
        }
}

void ebb_captures_mark(ebb_graph *g)
{
    EBB_EACH_VALUE(g, v)
        ebb_value_of(g, v)->flags &= (uint8_t)~EBB_IS_CAPTURED;
    EBB_EACH_NODE(g, n)
        ebb_captures_mark_of(g, n);
}

ebb_value *ebb_captures_of(const ebb_graph *g, ebb_node n, ebb_arena *arena, uint32_t *count)
{
    size_t most = 1;
    *count = 0;
    EBB_EACH_BODY(ebb_node_of(g, n), body)
        most += (*body)->value_count;
    ebb_value *list = EBB_NEW(arena, ebb_value, most);
    if (list == NULL)
        return NULL;
    EBB_EACH_BODY(ebb_node_of(g, n), body)
        EBB_EACH_VALUE(*body, v) {
            list[*count] = ebb_body_outside(g, *body, v);
            *count += list[*count].i != 0;
        }
    return list;
}

ebb_status ebb_bodies_own(ebb_graph *g, ebb_node n)
{
    for (uint32_t i = 0; i < ebb_node_of(g, n)->attr_count; i++) {
        ebb_attr attr = ebb_node_of(g, n)->attr[i];
        if (!is_body(&attr))
            continue;
        ebb_graph **list = EBB_NEW(&g->model->arena, ebb_graph *, attr.count);
        EBB_GOT(list);
        for (uint32_t k = 0; k < attr.count; k++)
            EBB_TRY(ebb_graph_copy(&list[k], g, attr.graphs[k]));
        attr.graphs = list;
        EBB_TRY(ebb_node_set_attr(g, n, &attr));
    }
    return NULL;
}
