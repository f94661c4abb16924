/* verify.c: every rule of a legal graph, one function each. The first that is broken is an error
 * that names the place. Passes are checked with this, so it trusts nothing but the sizes of the
 * arrays.
 */
#include "onnx/graph/infer.h"
#include "onnx/graph/place.h"
#include "onnx/graph/schema.h"
#include "onnx/graph/stream.h"

typedef struct check {
    const ebb_graph *g;
    uint32_t *position; /* by node id, from 1; 0: not in the list */
    ebb_arena *scratch;
} check;

static bool value_exists(const ebb_graph *g, ebb_value v)
{
    return v.i != 0 && v.i < g->value_count && !ebb_value_of(g, v)->dead;
}

static const char *name_of(const ebb_graph *g, ebb_value v)
{
    return v.i < g->value_count ? ebb_value_name(g, v) : "?";
}

/* The list of nodes is closed, its links agree, and it holds exactly the living. */
static ebb_status list_is_whole(check *c)
{
    const ebb_graph *g = c->g;
    uint32_t at = 0;
    ebb_node before = EBB_NO_NODE;
    for (ebb_node n = ebb_first(g); n.i != 0; n = ebb_next(g, n)) {
        if (n.i >= g->node_count)
            return ebb_error(EBB_VERIFY, "the list of nodes leads to node %u of %zu", n.i,
                             g->node_count);
        if (c->position[n.i] != 0)
            return ebb_error(EBB_VERIFY, "%s stands in the list twice", ebb_node_label(g, n));
        if (ebb_node_of(g, n)->dead)
            return ebb_error(EBB_VERIFY, "%s was removed and stands in the list",
                             ebb_node_label(g, n));
        if (!ebb_same_node(ebb_prev(g, n), before))
            return ebb_error(EBB_VERIFY, "%s: the list does not lead back from here",
                             ebb_node_label(g, n));
        c->position[n.i] = ++at;
        before = n;
    }
    if (!ebb_same_node(ebb_last(g), before))
        return ebb_error(EBB_VERIFY, "the list of nodes ends elsewhere than it says");
    for (uint32_t i = 1; i < g->node_count; i++)
        if (!ebb_node_of(g, (ebb_node){i})->dead && c->position[i] == 0)
            return ebb_error(EBB_VERIFY, "%s is not in the list of nodes",
                             ebb_node_label(g, (ebb_node){i}));
    return NULL;
}

/* Inputs exist and are made before they are read. */
static ebb_status inputs_come_first(const check *c, ebb_node n)
{
    const ebb_graph *g = c->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t i = 0; i < info->in_count; i++) {
        ebb_value v = info->in[i];
        if (v.i == 0)
            continue;
        if (!value_exists(g, v))
            return ebb_error(EBB_VERIFY, "%s: input %u ('%s') does not exist", ebb_node_label(g, n),
                             (unsigned)i, name_of(g, v));
        const ebb_value_info *value = ebb_value_of(g, v);
        if (value->producer.i == 0) {
            if ((value->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER | EBB_IS_OUTER)) == 0)
                return ebb_error(EBB_VERIFY, "%s: nothing makes its input '%s'",
                                 ebb_node_label(g, n), name_of(g, v));
            continue;
        }
        if (value->producer.i >= g->node_count ||
            c->position[value->producer.i] >= c->position[n.i])
            return ebb_error(EBB_VERIFY, "%s reads '%s' before it is made", ebb_node_label(g, n),
                             name_of(g, v));
    }
    return NULL;
}

/* Each output knows its one producer, and is nothing else besides. */
static ebb_status outputs_are_its_own(const check *c, ebb_node n)
{
    const ebb_graph *g = c->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t k = 0; k < info->out_count; k++) {
        ebb_value v = info->out[k];
        if (v.i == 0)
            continue;
        if (!value_exists(g, v))
            return ebb_error(EBB_VERIFY, "%s: output %u does not exist", ebb_node_label(g, n),
                             (unsigned)k);
        const ebb_value_info *value = ebb_value_of(g, v);
        if (!ebb_same_node(value->producer, n) || value->producer_slot != k)
            return ebb_error(EBB_VERIFY, "%s: output '%s' has another producer",
                             ebb_node_label(g, n), name_of(g, v));
        if ((value->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER | EBB_IS_OUTER)) != 0)
            return ebb_error(EBB_VERIFY, "%s: output '%s' is also an input or initializer",
                             ebb_node_label(g, n), name_of(g, v));
    }
    return NULL;
}

/* Why output k may not be written over x; NULL: it may, as far as this node and x itself tell. */
static const char *refuses_write(const check *c, ebb_node n, uint32_t k, ebb_value x)
{
    const ebb_graph *g = c->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    const ebb_value_info *v = ebb_value_of(g, x);
    const uint32_t over = ebb_node_over(g, n, k);
    for (uint32_t i = 0; i < info->out_count; i++)
        if (i != k && ebb_node_over(g, n, i) == over)
            return "over which another output is written";
    if (k == 0 && over == 1 && ebb_op_has(info->op, EBB_VIEW))
        return NULL; // it writes nothing
    if (!ebb_op_may_alias(info->op, k, over - 1))
        return "which the operator may not write over";
    if ((v->flags & EBB_IS_INITIALIZER) != 0 && (v->flags & EBB_IS_STATE) == 0)
        return "which is a constant";
    if ((v->flags & EBB_IS_OUTPUT) != 0)
        return "which is an output of the graph";
    for (size_t i = 0; i < v->use_count; i++)
        if (v->uses[i].node.i < g->node_count && c->position[v->uses[i].node.i] > c->position[n.i])
            return "which is read later";
    return NULL;
}

/* In-place marks name inputs that are there, of the same bytes, and that nobody misses. */
static ebb_status overwrites_fit(const check *c, ebb_node n)
{
    const ebb_graph *g = c->g;
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t k = 0; k < info->out_count; k++) {
        const uint32_t over = ebb_node_over(g, n, k);
        if (over == 0)
            continue;
        ebb_value x = ebb_in(g, n, over - 1), y = info->out[k];
        size_t x_bytes, y_bytes;
        if (x.i == 0)
            return ebb_error(EBB_VERIFY, "%s: output %u is written over input %u, which is absent",
                             ebb_node_label(g, n), (unsigned)k, (unsigned)over - 1);
        if (ebb_type_bytes(ebb_value_of(g, x)->type, &x_bytes) &&
            ebb_type_bytes(ebb_value_of(g, y)->type, &y_bytes) && x_bytes != y_bytes)
            return ebb_error(EBB_VERIFY, "%s: '%s' is written over '%s', which has other bytes",
                             ebb_node_label(g, n), name_of(g, y), name_of(g, x));
        const char *why = refuses_write(c, n, k, x);
        if (why != NULL)
            return ebb_error(EBB_VERIFY, "%s: '%s' is written over '%s', %s", ebb_node_label(g, n),
                             name_of(g, y), name_of(g, x), why);
    }
    return NULL;
}

/* What is never whole is decoded for one reader that can take tiles. */
static ebb_status streams_fit(const check *c, ebb_node n)
{
    ebb_use reader;
    if (ebb_node_of(c->g, n)->tile_rows == 0)
        return NULL;
    const char *refused = ebb_stream_refuses(c->g, n, &reader);
    return refused == NULL ? NULL
                           : ebb_error(EBB_VERIFY, "%s: it cannot be read in tiles: %s",
                                       ebb_node_label(c->g, n), refused);
}

/* What is moved between places is waited for, and read only where it is. */
static ebb_status places_fit(const check *c, ebb_node n)
{
    const char *refused = ebb_place_refuses(c->g, n);
    return refused == NULL ? NULL
                           : ebb_error(EBB_VERIFY, "%s: %s", ebb_node_label(c->g, n), refused);
}

/* A producer that values name has them as outputs. */
static ebb_status producer_agrees(const check *c, ebb_value v)
{
    const ebb_graph *g = c->g;
    const ebb_value_info *info = ebb_value_of(g, v);
    if (info->producer.i == 0)
        return NULL;
    if (info->producer.i >= g->node_count || c->position[info->producer.i] == 0 ||
        !ebb_same_value(ebb_out(g, info->producer, info->producer_slot), v))
        return ebb_error(EBB_VERIFY, "'%s' names a producer that does not make it", name_of(g, v));
    return NULL;
}

/* Names are there, and lead back. */
static ebb_status name_is_its_own(const check *c, ebb_value v)
{
    const ebb_graph *g = c->g;
    ebb_str name = ebb_value_of(g, v)->name;
    if (name.i == 0)
        return ebb_error(EBB_VERIFY, "value %u has no name", v.i);
    if (!ebb_same_value(ebb_value_named(g, name), v))
        return ebb_error(EBB_VERIFY, "the name '%s' is used twice", name_of(g, v));
    return NULL;
}

/* Uses: each is a slot that reads this value, none is there twice, and all slots are listed (as
 * many are listed as there are). */
static ebb_status uses_are_true(const check *c)
{
    const ebb_graph *g = c->g;
    size_t listed = 0, slots = 0;
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        for (uint32_t i = 0; i < info->in_count; i++)
            slots += info->in[i].i != 0;
    }
    // seen[first slot of the node + slot]
    uint32_t *first = EBB_NEW(c->scratch, uint32_t, g->node_count);
    uint8_t *seen;
    uint32_t at = 0;
    EBB_GOT(first);
    EBB_EACH_NODE(g, n) {
        first[n.i] = at;
        at += ebb_node_of(g, n)->in_count;
    }
    seen = EBB_NEW(c->scratch, uint8_t, (size_t)at + 1);
    EBB_GOT(seen);
    EBB_EACH_VALUE(g, v) {
        const ebb_value_info *info = ebb_value_of(g, v);
        if (info->dead)
            continue;
        for (size_t i = 0; i < info->use_count; i++) {
            ebb_use use = info->uses[i];
            bool true_use = use.node.i < g->node_count && c->position[use.node.i] != 0 &&
                            ebb_same_value(ebb_in(g, use.node, use.slot), v);
            if (!true_use)
                return ebb_error(EBB_VERIFY, "'%s' lists a use that is none", name_of(g, v));
            if (seen[first[use.node.i] + use.slot]++ != 0)
                return ebb_error(EBB_VERIFY, "'%s' lists a use twice", name_of(g, v));
            listed++;
        }
    }
    if (listed != slots)
        return ebb_error(EBB_VERIFY, "%zu uses are listed, nodes read %zu", listed, slots);
    return NULL;
}

/* Inputs, outputs and initializers are what their flags say. */
static ebb_status lists_agree_with_flags(const check *c)
{
    const ebb_graph *g = c->g;
    const struct {
        const ebb_value *list;
        size_t count;
        uint16_t flag;
        const char *what;
    } kinds[3] = {{g->inputs, g->input_count, EBB_IS_INPUT, "input"},
                  {g->outputs, g->output_count, EBB_IS_OUTPUT, "output"},
                  {g->initializers, g->initializer_count, EBB_IS_INITIALIZER, "initializer"}};
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < kinds[k].count; i++) {
            ebb_value v = kinds[k].list[i];
            if (!value_exists(g, v))
                return ebb_error(EBB_VERIFY, "graph %s %zu ('%s') does not exist", kinds[k].what, i,
                                 name_of(g, v));
            if ((ebb_value_of(g, v)->flags & kinds[k].flag) == 0)
                return ebb_error(EBB_VERIFY, "'%s' is listed as %s and not marked so",
                                 name_of(g, v), kinds[k].what);
        }
    for (size_t i = 0; i < g->output_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->outputs[i]);
        if (info->producer.i == 0 &&
            (info->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER | EBB_IS_OUTER)) == 0)
            return ebb_error(EBB_VERIFY, "nothing makes graph output '%s'",
                             name_of(g, g->outputs[i]));
    }
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        if (info->tensor == NULL)
            return ebb_error(EBB_VERIFY, "initializer '%s' has no tensor",
                             name_of(g, g->initializers[i]));
    }
    return NULL;
}

/* A binding replaces an initializer by something of its own type; each only once. */
static ebb_status bindings_fit(const check *c)
{
    const ebb_graph *g = c->g;
    uint8_t *bound = EBB_NEW(c->scratch, uint8_t, g->value_count);
    EBB_GOT(bound);
    for (size_t i = 0; i < g->binding_count; i++) {
        ebb_value state = g->bindings[i].state, next = g->bindings[i].next;
        if (!value_exists(g, state) || !value_exists(g, next))
            return ebb_error(EBB_VERIFY, "a binding of '%s' leads nowhere", name_of(g, state));
        const ebb_value_info *from = ebb_value_of(g, state), *to = ebb_value_of(g, next);
        if ((from->flags & EBB_IS_INITIALIZER) == 0 || (from->flags & EBB_IS_STATE) == 0)
            return ebb_error(EBB_VERIFY, "'%s' is bound and is no state", name_of(g, state));
        if (to->producer.i == 0 && (to->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER)) == 0)
            return ebb_error(EBB_VERIFY, "nothing makes '%s', which replaces '%s'",
                             name_of(g, next), name_of(g, state));
        if (from->binding != i + 1 || to->bound == 0)
            return ebb_error(EBB_VERIFY, "'%s' or '%s' does not know that they are bound",
                             name_of(g, state), name_of(g, next));
        if (bound[state.i]++ != 0)
            return ebb_error(EBB_VERIFY, "'%s' is bound twice", name_of(g, state));
        if (from->type->dtype != to->type->dtype ||
            (ebb_type_is_static(from->type) && ebb_type_is_static(to->type) &&
             !ebb_type_same_shape(from->type, to->type))) {
            char a[128], b[128];
            return ebb_error(EBB_VERIFY, "'%s' is %s and cannot be replaced by '%s', which is %s",
                             name_of(g, state), ebb_type_print(a, sizeof a, from->type, NULL),
                             name_of(g, next), ebb_type_print(b, sizeof b, to->type, NULL));
        }
    }
    if (g->loss.i != 0 && !value_exists(g, g->loss))
        return ebb_error(EBB_VERIFY, "the loss does not exist");
    return NULL;
}

/* What a body reads from outside is there under its name when the node runs, and bears the mark that
 * keeps it. What stands for something further out is asked for where that is. */
static ebb_status captures_are_made(const check *c, ebb_node n, const ebb_graph *body)
{
    const ebb_graph *g = c->g;
    EBB_EACH_VALUE(body, inner) {
        const ebb_value_info *stand_in = ebb_value_of(body, inner);
        if (stand_in->dead || (stand_in->flags & EBB_IS_OUTER) == 0)
            continue;
        const char *name = ebb_value_name(body, inner);
        ebb_value v = ebb_value_find(g, name);
        const ebb_value_info *value = ebb_value_of(g, v);
        if (v.i == 0 || (value->producer.i == 0 &&
                         (value->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER | EBB_IS_OUTER)) == 0))
            return ebb_error(EBB_VERIFY, "%s: its body reads '%s', which nothing outside makes",
                             ebb_node_label(g, n), name);
        if (value->producer.i != 0 && (value->producer.i >= g->node_count ||
                                       c->position[value->producer.i] >= c->position[n.i]))
            return ebb_error(EBB_VERIFY, "%s: its body reads '%s' before it is made",
                             ebb_node_label(g, n), name);
        if ((value->flags & EBB_IS_CAPTURED) == 0)
            return ebb_error(EBB_VERIFY, "%s: its body reads '%s', which is not marked so",
                             ebb_node_label(g, n), name);
    }
    return NULL;
}

/* Bodies of If and Loop are graphs too. The reader bounds how deep they nest. */
static ebb_status bodies_are_legal(const check *c, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(c->g, n);
    for (uint32_t i = 0; i < info->attr_count; i++) {
        const ebb_attr *a = &info->attr[i];
        if (a->type != EBB_ATTR_GRAPH && a->type != EBB_ATTR_GRAPHS)
            continue;
        for (uint32_t k = 0; a->graphs != NULL && k < a->count; k++) {
            EBB_TRY(captures_are_made(c, n, a->graphs[k]));
            EBB_TRY(ebb_while(ebb_verify(a->graphs[k]), "checking attribute '%s' of %s", a->name,
                              ebb_node_label(c->g, n)));
        }
    }
    return NULL;
}

static ebb_status check_all(check *c)
{
    const ebb_graph *g = c->g;
    c->position = EBB_NEW(c->scratch, uint32_t, g->node_count);
    EBB_GOT(c->position);
    EBB_TRY(list_is_whole(c));
    EBB_EACH_NODE(g, n) {
        EBB_TRY(outputs_are_its_own(c, n));
        EBB_TRY(inputs_come_first(c, n));
        EBB_TRY(ebb_schema_check(g, n));
        EBB_TRY(overwrites_fit(c, n));
        EBB_TRY(streams_fit(c, n));
        EBB_TRY(places_fit(c, n));
        EBB_TRY(bodies_are_legal(c, n));
    }
    EBB_EACH_VALUE(g, v) {
        if (ebb_value_of(g, v)->dead)
            continue;
        EBB_TRY(producer_agrees(c, v));
        EBB_TRY(name_is_its_own(c, v));
    }
    EBB_TRY(uses_are_true(c));
    EBB_TRY(lists_agree_with_flags(c));
    return bindings_fit(c);
}

ebb_status ebb_verify(const ebb_graph *g)
{
    EBB_LOCAL_ARENA(scratch);
    check c = {.g = g, .scratch = scratch};
    return check_all(&c);
}
