/* alike.c: see alike.h. Of bodies that are copies of each other even the numbers of their values are the same. */
#include "exec/weigh/alike.h"

#include "onnx/words/mix.h"

static const ebb_type *type_of(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 ? ebb_value_of(g, v)->type : NULL;
}

static bool are_alike(const ebb_graph *x, const ebb_graph *y);

static bool attr_is_alike(const ebb_attr *a, const ebb_attr *b)
{
    if (a->name != b->name || a->type != EBB_ATTR_GRAPH || b->type != EBB_ATTR_GRAPH)
        return a->name == b->name && ebb_attr_is_equal(a, b);
    return are_alike(a->graphs[0], b->graphs[0]);
}

/* But for what they read and make. */
static bool does_the_same(const ebb_node_info *x, const ebb_node_info *y)
{
    bool same = x->op == y->op && x->attr_count == y->attr_count && x->in_count == y->in_count &&
                x->out_count == y->out_count;
    for (uint32_t i = 0; same && x->attr != y->attr && i < x->attr_count; i++)
        same = attr_is_alike(&x->attr[i], &y->attr[i]);
    return same;
}

static bool list_is_same(const ebb_value *x, const ebb_value *y, size_t count)
{
    return count == 0 || memcmp(x, y, count * sizeof *x) == 0;
}

static bool node_is_same(const ebb_node_info *x, const ebb_node_info *y)
{
    return does_the_same(x, y) && ebb_same_str(x->op_name, y->op_name) &&
           ebb_same_str(x->domain, y->domain) && x->tile_rows == y->tile_rows &&
           list_is_same(x->in, y->in, x->in_count) && list_is_same(x->out, y->out, x->out_count);
}

/* Of one type. What is large is worth no look. */
static bool constant_is_same(const ebb_tensor *x, const ebb_tensor *y)
{
    enum { LOOKED_AT = 4096 };
    return x == y || (x != NULL && y != NULL && x->bytes == y->bytes && x->bytes <= LOOKED_AT &&
                      memcmp(x->data, y->data, x->bytes) == 0);
}

static bool value_is_same(const ebb_graph *gx, const ebb_graph *gy, ebb_value v)
{
    const ebb_value_info *x = ebb_value_of(gx, v), *y = ebb_value_of(gy, v);
    if (x->dead || y->dead)
        return x->dead == y->dead;
    if (x->type != y->type || x->flags != y->flags || x->role != y->role || x->over != y->over)
        return false;
    const bool made = x->producer.i != 0 && ebb_producer_op(gx, v) != EBB_OP_CONSTANT;
    return made || constant_is_same(ebb_value_constant(gx, v), ebb_value_constant(gy, v));
}

static bool are_alike(const ebb_graph *x, const ebb_graph *y)
{
    if (x == y)
        return true;
    bool same = x->node_count == y->node_count && x->value_count == y->value_count &&
                x->input_count == y->input_count && x->output_count == y->output_count &&
                list_is_same(x->inputs, y->inputs, x->input_count) &&
                list_is_same(x->outputs, y->outputs, x->output_count);
    ebb_node b = ebb_first(y);
    for (ebb_node a = ebb_first(x); same && a.i != 0; a = ebb_next(x, a), b = ebb_next(y, b))
        same = b.i != 0 && node_is_same(ebb_node_of(x, a), ebb_node_of(y, b));
    for (ebb_value v = {1}; same && v.i < x->value_count; v.i++)
        same = value_is_same(x, y, v);
    return same && b.i == 0;
}

static bool is_alike(const ebb_graph *g, ebb_node a, ebb_node b)
{
    const ebb_node_info *x = ebb_node_of(g, a), *y = ebb_node_of(g, b);
    if (x->in_count != y->in_count || x->out_count != y->out_count)
        return false;
    for (uint32_t i = 0; i < x->in_count; i++)
        if (type_of(g, x->in[i]) != type_of(g, y->in[i]))
            return false;
    for (uint32_t i = 0; i < x->out_count; i++)
        if (type_of(g, x->out[i]) != type_of(g, y->out[i]) ||
            ebb_node_over(g, a, i) != ebb_node_over(g, b, i))
            return false;
    return does_the_same(x, y);
}

static uint64_t hash_of(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    uint64_t hash = info->op;
    for (uint32_t i = 0; i < info->attr_count; i++)
        hash = ebb_hash_mix(hash, (uint64_t)info->attr[i].i);
    for (uint32_t i = 0; i < info->in_count; i++)
        hash = ebb_hash_mix(hash, (uintptr_t)type_of(g, info->in[i]));
    for (uint32_t i = 0; i < info->out_count; i++)
        hash = ebb_hash_mix(hash, (uintptr_t)type_of(g, info->out[i]));
    return hash;
}

ebb_status ebb_alikes_make(ebb_alikes *a, const ebb_graph *g, ebb_arena *arena)
{
    *a = (ebb_alikes){.g = g, .mask = 63};
    while (a->mask < 2 * (size_t)g->node_count)
        a->mask = 2 * a->mask + 1;
    a->slots = EBB_NEW(arena, ebb_node, a->mask + 1);
    EBB_GOT(a->slots);
    return NULL;
}

ebb_node ebb_alikes_first(ebb_alikes *a, ebb_node n)
{
    enum { TRIES = 16 }; // bodies with the same types may all be different
    size_t i = (size_t)hash_of(a->g, n) & a->mask;
    for (int tries = 0; a->slots[i].i != 0; i = (i + 1) & a->mask)
        if (is_alike(a->g, a->slots[i], n))
            return a->slots[i];
        else if (++tries == TRIES)
            return (ebb_node){0};
    a->slots[i] = n;
    return (ebb_node){0};
}
