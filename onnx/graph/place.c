/* place.c: places of values, and what may be done with what lies elsewhere. */
#include "onnx/graph/place.h"

#include <stdio.h>
#include <stdlib.h>

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

static bool is_op(const ebb_graph *g, ebb_node n, ebb_op op)
{
    return n.i != 0 && ebb_node_of(g, n)->op == op;
}

ebb_place ebb_value_place(const ebb_graph *g, ebb_value v)
{
    ebb_node n = maker(g, v);
    if (is_op(g, n, EBB_OP_SPLIT)) { // of a state
        v = ebb_in(g, n, 0);
        n = maker(g, v);
        if (n.i != 0)
            return EBB_PLACE_DEVICE;
    }
    if (n.i == 0 && v.i != 0 && (ebb_value_of(g, v)->flags & EBB_IS_STATE) != 0)
        n = maker(g, ebb_graph_bound(g, v));
    if (is_op(g, n, EBB_OP_CONCAT))
        n = maker(g, ebb_in(g, n, 0));
    if (is_op(g, n, EBB_OP_WAIT))
        n = maker(g, ebb_in(g, n, 0));
    return is_op(g, n, EBB_OP_STORE) ? stored_to(g, n) : EBB_PLACE_DEVICE;
}

bool ebb_node_rests(const ebb_graph *g, ebb_node n)
{
    return (is_op(g, n, EBB_OP_SPLIT) || is_op(g, n, EBB_OP_CONCAT)) &&
           ebb_value_place(g, ebb_out(g, n, 0)) != EBB_PLACE_DEVICE;
}

ebb_node ebb_state_split(const ebb_graph *g, ebb_value state)
{
    const ebb_value_info *info = ebb_value_of(g, state);
    const ebb_node n = info->use_count == 1 ? info->uses[0].node : EBB_NO_NODE;
    return is_op(g, n, EBB_OP_SPLIT) && ebb_node_rests(g, n) ? n : EBB_NO_NODE;
}

bool ebb_value_is_moved(const ebb_graph *g, ebb_value v)
{
    const ebb_node by = maker(g, v);
    const ebb_value_info *info = ebb_value_of(g, v);
    for (size_t i = 0; i < info->use_count; i++)
        if (ebb_op_moves(ebb_node_of(g, info->uses[i].node)->op))
            return true;
    return ebb_value_place(g, v) != EBB_PLACE_DEVICE ||
           (by.i != 0 && ebb_op_has(ebb_node_of(g, by)->op, EBB_STARTS));
}

static bool is_wanted(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return (info->flags & (EBB_IS_OUTPUT | EBB_IS_CAPTURED)) != 0 || info->bound != 0;
}

static bool is_shown(const ebb_graph *g, ebb_value v)
{
    return (ebb_value_of(g, v)->flags & (EBB_IS_OUTPUT | EBB_IS_CAPTURED | EBB_IS_INPUT)) != 0;
}

/* A state is written where it lies, by n and those behind it: nothing may read it there any more. */
static bool is_read_from(const ebb_graph *g, ebb_value state, ebb_node n)
{
    for (; n.i != 0; n = ebb_next(g, n)) {
        ebb_node reader = n;
        if (ebb_node_of(g, n)->op == EBB_OP_WAIT)
            reader = maker(g, ebb_in(g, n, 0));
        if (reader.i != 0 && ebb_node_of(g, reader)->op == EBB_OP_FETCH &&
            ebb_same_value(ebb_in(g, reader, 0), state))
            return true;
    }
    return false;
}

/* v lies in another place, and states are replaced by it. */
static const char *refuses_next(const ebb_graph *g, ebb_value v)
{
    const ebb_node store = maker(g, ebb_in(g, maker(g, v), 0));
    if (ebb_value_of(g, v)->bound > 1)
        return "what it makes lies in another place, where two states cannot lie at once";
    for (size_t i = 0; i < g->binding_count; i++) {
        const ebb_value state = g->bindings[i].state;
        if (!ebb_same_value(g->bindings[i].next, v))
            continue;
        if (is_shown(g, state) || ebb_value_of(g, state)->bound != 0)
            return "it replaces a state that lies in another place and is read by its name";
        if (is_read_from(g, state, store))
            return "it replaces a state that lies in another place and is still read there";
    }
    return NULL;
}

static bool is_before(const ebb_graph *g, ebb_node n, ebb_node later)
{
    while (n.i != 0 && !ebb_same_node(n, later))
        n = ebb_next(g, n);
    return n.i != 0;
}

static bool is_alone(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 && !is_shown(g, v) && ebb_value_of(g, v)->bound == 0;
}

/* Part i of a state that lies in another place, and what it is replaced by. */
static const char *refuses_part(const ebb_graph *g, ebb_node split, ebb_node concat, uint32_t i)
{
    const ebb_value part = ebb_out(g, split, i), next = ebb_in(g, concat, i);
    const ebb_node wait = maker(g, next);
    const ebb_node store = is_op(g, wait, EBB_OP_WAIT) ? maker(g, ebb_in(g, wait, 0)) : EBB_NO_NODE;
    size_t bytes = 0;
    if (!is_op(g, store, EBB_OP_STORE) ||
        stored_to(g, store) != ebb_value_place(g, ebb_in(g, concat, 0)))
        return "one of its parts was not stored, or not in the place of the first";
    if (!is_alone(g, part) || !is_alone(g, next) || ebb_value_of(g, next)->use_count != 1)
        return "one of its parts is read by something else, too";
    const ebb_type *type = ebb_value_of(g, part)->type;
    if (!ebb_type_same_shape(type, ebb_value_of(g, next)->type) || !ebb_type_bytes(type, &bytes) ||
        (bytes % EBB_DISK_ALIGN != 0 && i + 1 < ebb_node_of(g, split)->out_count))
        return "its parts do not fit the place of those that they replace, or fill no pages";
    if (!is_before(g, split, store) || is_read_from(g, part, store))
        return "one of its parts is still read where it is written";
    return NULL;
}

/* n puts together, or takes apart, what lies in another place. */
static const char *refuses_parts(const ebb_graph *g, ebb_node n)
{
    static const char *const whole =
        "what lies in another place in parts is a state, and what replaces it";
    ebb_value state = ebb_in(g, n, 0);
    if (is_op(g, n, EBB_OP_CONCAT)) {
        state = EBB_NO_VALUE;
        for (size_t i = 0; i < g->binding_count && state.i == 0; i++)
            if (ebb_same_value(g->bindings[i].next, ebb_out(g, n, 0)))
                state = g->bindings[i].state;
    }
    const ebb_value next = state.i != 0 ? ebb_graph_bound(g, state) : EBB_NO_VALUE;
    const ebb_node split = state.i != 0 ? ebb_state_split(g, state) : EBB_NO_NODE;
    const ebb_node concat = maker(g, next);
    if (split.i == 0 || !is_op(g, concat, EBB_OP_CONCAT) || !is_alone(g, state) ||
        is_shown(g, next) || ebb_value_of(g, next)->bound != 1 ||
        ebb_value_of(g, next)->use_count != 0)
        return whole;
    const ebb_attrs apart = ebb_node_attrs(g, split), together = ebb_node_attrs(g, concat);
    if (ebb_attr_int(&apart, "axis", 0) != 0 || ebb_attr_int(&together, "axis", 0) != 0 ||
        ebb_node_of(g, split)->out_count != ebb_node_of(g, concat)->in_count)
        return whole;
    const char *why = NULL;
    for (uint32_t i = 0; i < ebb_node_of(g, split)->out_count && why == NULL; i++)
        why = refuses_part(g, split, concat, i);
    return why;
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
    if (ebb_node_of(g, n)->op != EBB_OP_STORE)
        return away ? "it reads what lies in another place: a Fetch and a Wait bring it back"
                    : NULL;
    const ebb_place place = stored_to(g, n);
    if (place != EBB_PLACE_DISK && place != EBB_PLACE_HOST)
        return "its place must be \"disk\" or \"host\"";
    return away ? "what it stores is stored already" : NULL;
}

static const char *refuses_wait(const ebb_graph *g, ebb_node n)
{
    const ebb_node start = maker(g, ebb_in(g, n, 0));
    if (start.i == 0 || !ebb_op_has(ebb_node_of(g, start)->op, EBB_STARTS))
        return "its first input must be what a Store, a Fetch or a started exchange makes";
    if (!ebb_same_value(ebb_in(g, n, 1), ebb_in(g, start, 0)))
        return "its second input must be what is read by the work that it waits for";
    const ebb_value made = ebb_out(g, n, 0);
    if (made.i == 0 || ebb_value_place(g, made) == EBB_PLACE_DEVICE)
        return NULL;
    if (is_shown(g, made))
        return "what it makes lies in another place and cannot outlive the step: fetch it";
    return refuses_next(g, made);
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
    if (ebb_node_rests(g, n))
        return refuses_parts(g, n);
    for (uint32_t i = 0; i < info->in_count; i++)
        if (ebb_value_place(g, info->in[i]) != EBB_PLACE_DEVICE)
            return "it reads what lies in another place: a Fetch and a Wait bring it back";
    return NULL;
}

/* ---- parts ---- */

static const char part_key[] = "ebb.shard", rows_key[] = "ebb.rows";

ebb_status ebb_part_mark(ebb_graph *g, ebb_value v, const ebb_type *whole)
{
    ebb_props *props = &ebb_value_of(g, v)->props;
    char dims[EBB_MAX_RANK * 21 + 1] = "";
    for (int d = 0, at = 0; whole != NULL && d < whole->rank; d++)
        at += snprintf(dims + at, sizeof dims - (size_t)at, "%s%lld", d > 0 ? "x" : "",
                       (long long)whole->dims[d]);
    if (whole != NULL)
        return ebb_props_set(g, props, part_key, dims);
    ebb_props_drop(g, props, part_key);
    return NULL;
}

bool ebb_is_part(const ebb_graph *g, ebb_value v)
{
    return ebb_props_get(g, &ebb_value_of(g, v)->props, part_key) != NULL;
}

static bool read_dims(ebb_type *type, const char *text)
{
    for (type->rank = 0; type->rank < EBB_MAX_RANK; text++) {
        char *end;
        type->dims[type->rank++] = strtoll(text, &end, 10);
        if (end == text || *text == '-' || (*end != 'x' && *end != '\0'))
            return false;
        text = end;
        if (*end == '\0')
            return true;
    }
    return false;
}

bool ebb_part_whole(ebb_type *whole, const ebb_graph *g, ebb_value v, int64_t ranks)
{
    const ebb_type *part = ebb_value_of(g, v)->type;
    const char *text = ebb_props_get(g, &ebb_value_of(g, v)->props, part_key);
    int64_t n;
    *whole = *part;
    return text != NULL && read_dims(whole, text) && ebb_type_elements(whole, &n) &&
           part->rank == 1 && part->dims[0] == n / ranks + (n % ranks != 0);
}

ebb_status ebb_rows_mark(ebb_graph *g, ebb_value v, int axis)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", axis);
    if (axis >= 0)
        return ebb_props_set(g, &ebb_value_of(g, v)->props, rows_key, text);
    ebb_props_drop(g, &ebb_value_of(g, v)->props, rows_key);
    return NULL;
}

int ebb_rows_axis(const ebb_graph *g, ebb_value v)
{
    const char *text = ebb_props_get(g, &ebb_value_of(g, v)->props, rows_key);
    const long axis = text != NULL ? strtol(text, NULL, 10) : -1;
    return axis >= 0 && axis < ebb_value_of(g, v)->type->rank ? (int)axis : -1;
}
