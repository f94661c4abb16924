/* place.c: places of values, and what may be done with what lies elsewhere. */
#include "onnx/graph/place.h"

static const char *const names[EBB_PLACE_COUNT] = {"device", "host", "disk", "mapped"};

const char *ebb_place_name(ebb_place place)
{
    return names[place];
}

ebb_place ebb_place_find(const char *name)
{
    int place = 0;
    while (place < EBB_PLACE_COUNT && strcmp(names[place], name) != 0)
        place++;
    return (ebb_place)place;
}

bool ebb_op_moves(ebb_op op)
{
    return ebb_op_has(op, EBB_STARTS) || op == EBB_OP_WAIT;
}

static ebb_place stored_to(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    return ebb_place_find(ebb_attr_string(&attrs, "place", names[EBB_PLACE_DISK]));
}

static ebb_node maker(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
}

ebb_place ebb_value_place(const ebb_graph *g, ebb_value v)
{
    ebb_node n = maker(g, v);
    if (n.i != 0 && ebb_node_of(g, n)->op == EBB_OP_WAIT)
        n = maker(g, ebb_in(g, n, 0));
    return n.i != 0 && ebb_node_of(g, n)->op == EBB_OP_STORE ? stored_to(g, n) : EBB_PLACE_DEVICE;
}

static bool is_wanted(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return (info->flags & (EBB_IS_OUTPUT | EBB_IS_CAPTURED)) != 0 || info->bound != 0;
}

static const char *refuses_start(const ebb_graph *g, ebb_node n)
{
    const ebb_value made = ebb_out(g, n, 0);
    if (made.i == 0 || is_wanted(g, made) || ebb_value_of(g, made)->use_count != 1 ||
        ebb_node_of(g, ebb_value_of(g, made)->uses[0].node)->op != EBB_OP_WAIT ||
        ebb_value_of(g, made)->uses[0].slot != 0)
        return "what it starts must be read by one Wait alone, as its first input";
    const bool away = ebb_value_place(g, ebb_in(g, n, 0)) != EBB_PLACE_DEVICE;
    if (ebb_node_of(g, n)->op == EBB_OP_FETCH)
        return away ? NULL : "what it fetches was not stored";
    const ebb_place place = stored_to(g, n);
    if (place != EBB_PLACE_DISK && place != EBB_PLACE_HOST)
        return "its place must be \"disk\" or \"host\"";
    return away ? "what it stores is stored already" : NULL;
}

static const char *refuses_wait(const ebb_graph *g, ebb_node n)
{
    const ebb_node start = maker(g, ebb_in(g, n, 0));
    if (start.i == 0 || !ebb_op_has(ebb_node_of(g, start)->op, EBB_STARTS))
        return "its first input must be what a Store or Fetch makes";
    if (!ebb_same_value(ebb_in(g, n, 1), ebb_in(g, start, 0)))
        return "its second input must be what the move that it waits for reads";
    const ebb_value made = ebb_out(g, n, 0);
    if (made.i != 0 && is_wanted(g, made) && ebb_value_place(g, made) != EBB_PLACE_DEVICE)
        return "what it makes lies in another place and cannot outlive the step: fetch it";
    return NULL;
}

const char *ebb_place_refuses(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    if (g->outer != NULL && ebb_op_moves(info->op))
        return "moves between places cannot stand in a body";
    if (ebb_op_has(info->op, EBB_STARTS))
        return refuses_start(g, n);
    if (info->op == EBB_OP_WAIT)
        return refuses_wait(g, n);
    for (uint32_t i = 0; i < info->in_count; i++)
        if (ebb_value_place(g, info->in[i]) != EBB_PLACE_DEVICE)
            return "it reads what lies in another place: a Fetch and a Wait bring it back";
    return NULL;
}
