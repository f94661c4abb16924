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
        ebb_str fresh = ebb_graph_fresh(body, to);
        EBB_GOT(fresh.i != 0);
        EBB_TRY(ebb_value_rename(body, taken, ebb_text(body, fresh)));
        return ebb_value_rename(body, old, to);
    }
    EBB_TRY(ebb_value_replace(body, old, taken));
    ebb_value_bury(body, old);
    return NULL;
}

static ebb_status move_all(ebb_graph *g, const char *from, const char *to)
{
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        for (uint32_t i = 0; i < info->attr_count; i++)
            for (uint32_t k = 0; is_body(&info->attr[i]) && k < info->attr[i].count; k++)
                EBB_TRY(ebb_captures_move(info->attr[i].graphs[k], from, to));
    }
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

void ebb_captures_mark_of(ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t i = 0; i < info->attr_count; i++)
        for (uint32_t k = 0; is_body(&info->attr[i]) && k < info->attr[i].count; k++) {
            const ebb_graph *body = info->attr[i].graphs[k];
            EBB_EACH_VALUE(body, v) {
                const ebb_value_info *inner = ebb_value_of(body, v);
                if (inner->dead || (inner->flags & EBB_IS_OUTER) == 0)
                    continue;
                ebb_value outside = ebb_value_find(g, ebb_text(body, inner->name));
                ebb_value_of(g, outside)->flags |= EBB_IS_CAPTURED; // of none: harmless
            }
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
    const ebb_node_info *info = ebb_node_of(g, n);
    size_t most = 1;
    *count = 0;
    for (uint32_t i = 0; i < info->attr_count; i++)
        for (uint32_t k = 0; is_body(&info->attr[i]) && k < info->attr[i].count; k++)
            most += info->attr[i].graphs[k]->value_count;
    ebb_value *list = EBB_NEW(arena, ebb_value, most);
    for (uint32_t i = 0; list != NULL && i < info->attr_count; i++)
        for (uint32_t k = 0; is_body(&info->attr[i]) && k < info->attr[i].count; k++) {
            const ebb_graph *body = info->attr[i].graphs[k];
            EBB_EACH_VALUE(body, v) {
                const ebb_value_info *inner = ebb_value_of(body, v);
                ebb_value outside = inner->dead || (inner->flags & EBB_IS_OUTER) == 0
                                        ? EBB_NO_VALUE
                                        : ebb_value_find(g, ebb_text(body, inner->name));
                if (outside.i != 0)
                    list[(*count)++] = outside;
            }
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
