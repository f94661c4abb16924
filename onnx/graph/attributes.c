/* attributes.c: what nodes bear beside their operands, and metadata. */
#include "onnx/graph/change.h"

/* ---- attributes ---- */

static ebb_status set_attr(ebb_graph *g, ebb_node n, ebb_attr attr)
{
    ebb_str name = ebb_graph_intern(g, attr.name);
    EBB_GOT(name.i != 0);
    attr.name = ebb_text(g, name);
    return ebb_node_set_attr(g, n, &attr);
}

/* A list of the node's attributes to change, with room for `more`: nodes may share theirs. */
static ebb_attr *copy_attrs(ebb_graph *g, const ebb_node_info *info, uint32_t more)
{
    ebb_attr *list = EBB_NEW(&g->model->arena, ebb_attr, (size_t)info->attr_count + more);
    if (list != NULL && info->attr_count > 0)
        memcpy(list, info->attr, info->attr_count * sizeof *list);
    return list;
}

ebb_status ebb_node_set_attr(ebb_graph *g, ebb_node n, const ebb_attr *attr)
{
    ebb_node_info *info = ebb_node_of(g, n);
    uint32_t at = 0;
    while (at < info->attr_count && strcmp(info->attr[at].name, attr->name) != 0)
        at++;
    const bool is_new = at == info->attr_count;
    ebb_attr *list = copy_attrs(g, info, is_new);
    EBB_GOT(list);
    list[at] = *attr;
    info->attr = list;
    info->attr_count += is_new;
    return NULL;
}

ebb_status ebb_node_set_int(ebb_graph *g, ebb_node n, const char *name, int64_t i)
{
    return set_attr(g, n, (ebb_attr){.name = name, .type = EBB_ATTR_INT, .i = i});
}

ebb_status ebb_node_set_float(ebb_graph *g, ebb_node n, const char *name, double f)
{
    return set_attr(g, n, (ebb_attr){.name = name, .type = EBB_ATTR_FLOAT, .f = (double)(float)f});
}

ebb_status ebb_node_set_string(ebb_graph *g, ebb_node n, const char *name, const char *s)
{
    char *copy = ebb_arena_strdup(&g->model->arena, s);
    EBB_GOT(copy);
    return set_attr(
        g, n, (ebb_attr){.name = name, .type = EBB_ATTR_STRING, .s = copy, .s_bytes = strlen(s)});
}

ebb_status ebb_node_set_ints(ebb_graph *g, ebb_node n, const char *name, const int64_t *list,
                             uint32_t count)
{
    int64_t *copy = EBB_NEW(&g->model->arena, int64_t, count);
    EBB_GOT(copy);
    if (count > 0)
        memcpy(copy, list, count * sizeof *list);
    return set_attr(g, n,
                    (ebb_attr){.name = name, .type = EBB_ATTR_INTS, .ints = copy, .count = count});
}

ebb_status ebb_node_drop_attr(ebb_graph *g, ebb_node n, const char *name)
{
    ebb_node_info *info = ebb_node_of(g, n);
    ebb_attr *list = copy_attrs(g, info, 0);
    uint32_t kept = 0;
    EBB_GOT(list);
    for (uint32_t i = 0; i < info->attr_count; i++)
        if (strcmp(info->attr[i].name, name) != 0)
            list[kept++] = info->attr[i];
    info->attr = list;
    info->attr_count = kept;
    return NULL;
}

static bool equal_attr(const ebb_attr *a, const ebb_attr *b)
{
    return a->name == b->name && a->origin == b->origin && ebb_attr_is_equal(a, b);
}

static bool equal_attrs(const ebb_attrs *shared, const ebb_attr *list, uint32_t count)
{
    if (shared->count != count)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!equal_attr(&shared->list[i], &list[i]))
            return false;
    return true;
}

/* Of the last ones; NULL: none is equal. */
static const ebb_attr *shared_attrs(const ebb_model *m, const ebb_attr *list, uint32_t count)
{
    for (uint32_t k = 0; k < EBB_SHARED; k++)
        if (equal_attrs(&m->attrs[k], list, count))
            return m->attrs[k].list;
    return NULL;
}

ebb_status ebb_node_set_attrs(ebb_graph *g, ebb_node n, const ebb_attr *list, uint32_t count)
{
    ebb_node_info *info = ebb_node_of(g, n);
    const ebb_attr *copy = shared_attrs(g->model, list, count);
    if (copy == NULL && count > 0) {
        const ebb_node_info given = {.attr = list, .attr_count = count};
        copy = copy_attrs(g, &given, 0);
        EBB_GOT(copy);
        g->model->attrs[g->model->attrs_next++ % EBB_SHARED] = (ebb_attrs){copy, count};
    }
    info->attr = copy;
    info->attr_count = count;
    return NULL;
}

/* ---- metadata ---- */

const char *ebb_props_get(const ebb_graph *g, const ebb_props *props, const char *key)
{
    EBB_EACH_PROP(props, p)
        if (strcmp(ebb_text(g, p->key), key) == 0)
            return ebb_text(g, p->value);
    return NULL;
}

ebb_status ebb_props_add(ebb_graph *g, ebb_props *props, ebb_prop prop)
{
    struct ebb_prop_list *list = props->all;
    const uint32_t count = ebb_props_count(props);
    if (list == NULL || count == list->capacity) {
        const size_t room = count * (size_t)2 + 1, bytes = sizeof *list + room * sizeof *list->at;
        EBB_GOT(room <= UINT32_MAX);
        list = ebb_arena_alloc(&g->model->arena, bytes);
        EBB_GOT(list);
        list->count = count;
        list->capacity = (uint32_t)room;
        if (count > 0)
            memcpy(list->at, props->all->at, count * sizeof *list->at);
        props->all = list;
    }
    list->at[list->count++] = prop;
    return NULL;
}

ebb_status ebb_props_set(ebb_graph *g, ebb_props *props, const char *key, const char *value)
{
    ebb_prop p = {ebb_graph_intern(g, key), ebb_graph_intern(g, value)};
    EBB_GOT(p.key.i != 0 && p.value.i != 0);
    for (uint32_t i = 0; i < ebb_props_count(props); i++) {
        if (props->all->at[i].key.i != p.key.i)
            continue;
        props->all->at[i] = p;
        return NULL;
    }
    return ebb_props_add(g, props, p);
}

ebb_status ebb_props_set_all(ebb_graph *g, ebb_props *props, const ebb_graph *of,
                             const ebb_props *from)
{
    EBB_EACH_PROP(from, p)
        EBB_TRY(ebb_props_set(g, props, ebb_text(of, p->key), ebb_text(of, p->value)));
    return NULL;
}

void ebb_props_drop(const ebb_graph *g, ebb_props *props, const char *key)
{
    uint32_t kept = 0;
    EBB_EACH_PROP(props, p)
        if (strcmp(ebb_text(g, p->key), key) != 0)
            props->all->at[kept++] = *p;
    if (props->all != NULL)
        props->all->count = kept;
}
