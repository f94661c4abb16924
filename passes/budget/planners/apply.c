/* apply.c: puts a graph's nodes into a schedule's order, with copies for repeats and nodes for moves.
 *
 * Each execution is the node itself or a copy of it. The node stands where its values stay (the
 * last execution, if the step ends with them), else at the first. Reads take the latest copy; a
 * view of a copy is made where it is first read. All go to the end of the list one after another,
 * so that what remains in front is what the schedule does without.
 */
#include <stdio.h>

#include "onnx/graph/scan.h"
#include "passes/budget/planners/problem.h"

typedef struct applier {
    ebb_edit *e;
    ebb_graph *g;
    const ebb_remat_source *s;
    const char **name;   /* operator -> its node's name */
    size_t *own;         /* operator -> the execution that is the node itself */
    ebb_value *copy;     /* graph value id of a root -> its latest copy; none: itself */
    ebb_value *view_of;  /* graph value id of a view -> the copy of its root that `view` shows */
    ebb_value *view;     /* graph value id of a view -> its latest copy */
    bool *placed;        /* node id -> already at its place */
    size_t node_count;   /* before any copy */
    bool backward;       /* has begun */
    size_t made, serial; /* copies; numbers in names */
    ebb_value *moved;    /* graph value id of a root -> what its last move made */
    ebb_value *held;     /* and what that one reads */
    ebb_value *away;     /* and what lies in the other place */
} applier;

static ebb_status prepare(applier *a, const ebb_remat_schedule *schedule)
{
    const ebb_remat_problem *p = &a->s->problem;
    ebb_arena *scratch = a->e->scratch;
    a->name = EBB_NEW(scratch, const char *, (size_t)p->op_count + 1);
    a->own = EBB_NEW(scratch, size_t, (size_t)p->op_count + 1);
    a->copy = EBB_NEW(scratch, ebb_value, a->s->value_count + 1);
    a->view = EBB_NEW(scratch, ebb_value, a->s->value_count + 1);
    a->view_of = EBB_NEW(scratch, ebb_value, a->s->value_count + 1);
    a->placed = EBB_NEW(scratch, bool, a->g->node_count + 1);
    a->moved = EBB_NEW(scratch, ebb_value, a->s->value_count + 1);
    a->held = EBB_NEW(scratch, ebb_value, a->s->value_count + 1);
    a->away = EBB_NEW(scratch, ebb_value, a->s->value_count + 1);
    EBB_GOT(a->moved && a->held && a->away && a->name && a->own && a->copy && a->view &&
            a->view_of && a->placed);
    for (uint32_t u = 0; u < p->op_count; u++)
        a->own[u] = SIZE_MAX;
    for (size_t i = 0; i < schedule->count; i++) {
        uint32_t u = schedule->ops[i];
        bool stays = false;
        if (ebb_remat_is_move(p, u))
            continue;
        for (uint32_t k = 0; k < p->ops[u].out_count; k++)
            stays = stays || p->values[p->ops[u].out[k]].stays;
        if (a->own[u] == SIZE_MAX || stays)
            a->own[u] = i;
    }
    for (uint32_t v = 0; v < a->s->value_count; v++)
        a->copy[v] = (ebb_value){v};
    return NULL;
}

/* The name by which copies refer to the node; it is given one where it has none. */
static ebb_status name_of(applier *a, uint32_t u)
{
    ebb_node n = a->s->node[u];
    const char *name = ebb_text(a->g, ebb_node_of(a->g, n)->name);
    if (a->name[u] != NULL)
        return NULL;
    if (name[0] == '\0') {
        char text[512];
        (void)snprintf(text, sizeof text, "%.480s/node", ebb_value_name(a->g, ebb_out(a->g, n, 0)));
        ebb_str made = ebb_graph_intern(a->g, text);
        EBB_GOT(made.i != 0);
        ebb_node_of(a->g, n)->name = made;
        name = ebb_text(a->g, made);
    }
    a->name[u] = ebb_arena_strdup(a->e->scratch, name);
    return a->name[u] != NULL ? NULL : ebb_error_memory();
}

/* A node like n at the end of the list, with these inputs and fresh outputs of the same types. */
static ebb_status copy_node(applier *a, ebb_node n, const char *name, const ebb_value *in,
                            ebb_value *out)
{
    ebb_graph *g = a->g;
    ebb_node made;
    const uint32_t outs = ebb_node_of(g, n)->out_count, ins = ebb_node_of(g, n)->in_count;
    for (uint32_t k = 0; k < outs; k++) {
        ebb_value old = ebb_node_of(g, n)->out[k];
        char text[512];
        out[k] = EBB_NO_VALUE;
        if (old.i == 0)
            continue;
        ebb_type type = *ebb_value_of(g, old)->type;
        (void)snprintf(text, sizeof text, "%.480s/again", ebb_value_name(g, old));
        EBB_TRY(ebb_value_add(g, &out[k], text, &type));
    }
    const char *domain = ebb_text(g, ebb_node_of(g, n)->domain);
    const char *op_name = ebb_text(g, ebb_node_of(g, n)->op_name);
    EBB_TRY(ebb_node_add(g, &made, EBB_NO_NODE, domain, op_name, in, ins, out, outs));
    for (uint32_t i = 0; i < ebb_node_of(g, n)->attr_count; i++) {
        ebb_attr attr = ebb_node_of(g, n)->attr[i];
        EBB_TRY(ebb_node_set_attr(g, made, &attr));
    }
    EBB_TRY(ebb_bodies_own(g, made));
    EBB_TRY(ebb_props_set_all(g, &ebb_node_of(g, made)->props, g, &ebb_node_of(g, n)->props));
    ebb_node_info *info = ebb_node_of(g, made);
    info->overload = ebb_node_of(g, n)->overload;
    info->phase = a->backward ? EBB_BACKWARD : ebb_node_of(g, n)->phase;
    char text[560];
    (void)snprintf(text, sizeof text, "%.500s/again_%zu", name, ++a->serial);
    info->name = ebb_graph_intern(g, text);
    EBB_TRY(ebb_props_set(g, &info->props, "ebb.pass", a->e->pass->name));
    EBB_TRY(ebb_props_set(g, &info->props, "ebb.copied_from", name));
    a->made++;
    return NULL;
}

/* The value that shows what v shows, of the latest copy of v's bytes. Views are chains of single
 * nodes: walks up to what is there, then makes the rest. */
static ebb_status latest(applier *a, ebb_value v, ebb_value *shown)
{
    ebb_graph *g = a->g;
    ebb_value chain[EBB_REMAT_DEEP];
    uint32_t depth = 0;
    if (v.i >= a->s->value_count) { // a copy already
        *shown = v;
        return NULL;
    }
    ebb_value root = a->s->root[v.i], copy = a->copy[root.i], at = v;
    while (!ebb_same_value(at, root) && !ebb_same_value(a->view_of[at.i], copy)) {
        if (depth == EBB_REMAT_DEEP)
            return ebb_error(EBB_UNSUPPORTED, "value '%s' is a view of more than %d views",
                             ebb_value_name(g, v), EBB_REMAT_DEEP);
        chain[depth++] = at;
        at = ebb_in(g, ebb_value_of(g, at)->producer, 0);
    }
    ebb_value from = ebb_same_value(at, root) ? copy : a->view[at.i];
    while (depth > 0) {
        ebb_value view = chain[--depth], out[1];
        ebb_node n = ebb_value_of(g, view)->producer;
        const uint32_t ins = ebb_node_of(g, n)->in_count;
        ebb_value *in = EBB_NEW(a->e->scratch, ebb_value, ins + (size_t)1);
        EBB_GOT(in);
        in[0] = from;
        for (uint32_t i = 1; i < ins; i++) // the sizes that it is made by
            if (ebb_in(g, n, i).i != 0)
                EBB_TRY(latest(a, ebb_in(g, n, i), &in[i]));
        if (ebb_same_value(copy, root) && !a->placed[n.i]) {
            a->placed[n.i] = true;
            ebb_node_move(g, n, EBB_NO_NODE);
            for (uint32_t i = 1; i < ins; i++)
                if (!ebb_same_value(ebb_in(g, n, i), in[i]))
                    EBB_TRY(ebb_node_set_input(g, n, i, in[i]));
            from = view;
        } else {
            char name[512]; /* views count as part of what they show: no provenance of their own */
            (void)snprintf(name, sizeof name, "%.500s", ebb_text(g, ebb_node_of(g, n)->name));
            EBB_TRY(copy_node(a, n, name[0] != '\0' ? name : "view", in, out));
            a->made--;
            from = out[0];
        }
        a->view_of[view.i] = copy;
        a->view[view.i] = from;
    }
    *shown = from;
    return NULL;
}

/* What a node is to read, kept until all are placed: until then its inputs say what it read. */
typedef struct rewiring {
    ebb_node node;
    ebb_value *in;
} rewiring;

/* Views that a body reads by their names stand before its node. */
static ebb_status place_named(applier *a, ebb_node n)
{
    uint32_t count;
    ebb_value shown;
    if (!ebb_op_has(ebb_node_of(a->g, n)->op, EBB_BODIES))
        return NULL;
    const ebb_value *names = ebb_captures_of(a->g, n, a->e->scratch, &count);
    EBB_GOT(names);
    for (uint32_t i = 0; i < count; i++)
        if (names[i].i < a->s->value_count)
            EBB_TRY(latest(a, names[i], &shown));
    return NULL;
}

static ebb_status execute(applier *a, uint32_t u, bool own, rewiring *later)
{
    ebb_graph *g = a->g;
    ebb_node n = a->s->node[u];
    const uint32_t ins = ebb_node_of(g, n)->in_count, outs = ebb_node_of(g, n)->out_count;
    ebb_value *in = EBB_NEW(a->e->scratch, ebb_value, ins + (size_t)1);
    ebb_value *out = EBB_NEW(a->e->scratch, ebb_value, outs + (size_t)1);
    EBB_GOT(in && out);
    for (uint32_t i = 0; i < ins; i++)
        if (ebb_node_of(g, n)->in[i].i != 0)
            EBB_TRY(latest(a, ebb_node_of(g, n)->in[i], &in[i]));
    EBB_TRY(place_named(a, n));
    if (own) {
        a->placed[n.i] = true;
        ebb_node_move(g, n, EBB_NO_NODE);
        *later = (rewiring){n, in};
    } else {
        EBB_TRY(name_of(a, u));
        EBB_TRY(copy_node(a, n, a->name[u], in, out));
    }
    for (uint32_t k = 0; k < outs; k++) {
        ebb_value v = ebb_node_of(g, n)->out[k];
        if (v.i != 0)
            a->copy[v.i] = own ? v : out[k];
    }
    a->backward = a->backward || a->s->problem.ops[u].backward;
    return NULL;
}

/* Store, Wait, Fetch or Wait (onnx/graph/place.h), at the end of the list. */
static ebb_status move(applier *a, uint32_t number)
{
    static const ebb_op ops[] = {EBB_OP_STORE, EBB_OP_WAIT, EBB_OP_FETCH, EBB_OP_WAIT};
    const ebb_remat_problem *p = &a->s->problem;
    const ebb_remat_move_kind kind = ebb_remat_moves_how(p, number);
    const ebb_value v = a->s->value[ebb_remat_moves_what(p, number)];
    ebb_build b = ebb_edit_build(a->e, EBB_NO_NODE, a->backward ? EBB_BACKWARD : EBB_FORWARD);
    if (kind == EBB_REMAT_STORE) {
        ebb_with_string(&b, "place", ebb_place_name(EBB_PLACE_DISK));
        a->held[v.i] = a->copy[v.i];
    } else if (kind == EBB_REMAT_FETCH) {
        a->held[v.i] = a->away[v.i];
    }
    if (ops[kind] == EBB_OP_WAIT)
        a->moved[v.i] = ebb_emit(&b, EBB_OP_WAIT, a->moved[v.i], a->held[v.i]);
    else
        a->moved[v.i] = ebb_emit(&b, ops[kind], a->held[v.i]);
    if (kind == EBB_REMAT_AWAY)
        a->away[v.i] = a->moved[v.i];
    if (kind == EBB_REMAT_BACK)
        a->copy[v.i] = a->moved[v.i];
    return b.status;
}

static ebb_status execute_all(applier *a, const ebb_remat_schedule *schedule)
{
    ebb_graph *g = a->g;
    rewiring *list = EBB_NEW(a->e->scratch, rewiring, schedule->count + 1);
    size_t count = 0;
    EBB_GOT(list);
    for (size_t i = 0; i < schedule->count; i++) {
        uint32_t u = schedule->ops[i];
        if (ebb_remat_is_move(&a->s->problem, u)) {
            EBB_TRY(move(a, u));
            continue;
        }
        bool own = a->own[u] == i;
        EBB_TRY(execute(a, u, own, &list[count]));
        count += own;
    }
    for (size_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < ebb_node_of(g, list[i].node)->in_count; k++)
            if (!ebb_same_value(ebb_node_of(g, list[i].node)->in[k], list[i].in[k]))
                EBB_TRY(ebb_node_set_input(g, list[i].node, k, list[i].in[k]));
    return NULL;
}

/* Views that the step ends with, and those of what has stayed; then what nobody needs goes. */
static ebb_status finish(applier *a)
{
    ebb_graph *g = a->g;
    for (size_t i = 0; i < g->output_count; i++) {
        ebb_value shown, v = g->outputs[i];
        if (v.i < a->s->value_count)
            EBB_TRY(latest(a, v, &shown));
    }
    for (size_t i = 0; i < g->binding_count; i++) {
        ebb_value shown, v = g->bindings[i].next;
        if (v.i < a->s->value_count)
            EBB_TRY(latest(a, v, &shown));
    }
    EBB_EACH_VALUE(g, v) /* captured by subgraphs */
    {
        ebb_value shown;
        if (v.i < a->s->value_count && (ebb_value_of(g, v)->flags & EBB_IS_CAPTURED) != 0 &&
            !ebb_value_of(g, v)->dead)
            EBB_TRY(latest(a, v, &shown));
    }
    /* What was not placed stands in front, readers behind what they read: go from the back. */
    ebb_node last = EBB_NO_NODE;
    EBB_EACH_NODE(g, n) {
        if (n.i >= a->node_count || a->placed[n.i])
            break;
        last = n;
    }
    for (ebb_node n = last; n.i != 0;) {
        ebb_node before = ebb_prev(g, n);
        ebb_edit_remove(a->e, n);
        n = before;
    }
    return NULL;
}

ebb_status ebb_remat_apply(ebb_edit *e, const ebb_remat_source *source,
                           const ebb_remat_schedule *schedule, size_t *copies)
{
    applier a = {.e = e, .g = e->g, .s = source};
    *copies = 0;
    a.node_count = e->g->node_count;
    EBB_TRY(prepare(&a, schedule));
    EBB_TRY(execute_all(&a, schedule));
    EBB_TRY(finish(&a));
    *copies = a.made;
    return NULL;
}
