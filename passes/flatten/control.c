/* control.c: If and Loop become copies of their bodies; control_scan.c has Scan. */
#include "passes/flatten/control.h"

#include "onnx/graph/infer.h"
#include "onnx/graph/schema.h"
#include "passes/flatten/simplify.h"

/* ---- questions ---- */

ebb_op ebb_unroll_control(const ebb_graph *g, ebb_node n)
{
    ebb_op op = ebb_node_of(g, n)->op;
    return ebb_op_has(op, EBB_BODIES) ? op : EBB_OP_UNKNOWN;
}

bool ebb_unroll_number(const ebb_graph *g, ebb_value v, int64_t *x)
{
    const ebb_tensor *t = v.i != 0 ? ebb_value_constant(g, v) : NULL;
    int64_t count;
    if (t == NULL || t->data == NULL || !ebb_type_elements(&t->type, &count) || count != 1)
        return false;
    *x = ebb_tensor_int(t, 0);
    return true;
}

static bool same_known(const ebb_graph *g, ebb_value a, ebb_value b)
{
    const ebb_type *x = ebb_value_of(g, a)->type, *y = ebb_value_of(g, b)->type;
    return ebb_type_is_static(x) && ebb_type_same_shape(x, y) && x->dtype == y->dtype &&
           x->kind == EBB_KIND_TENSOR && y->kind == EBB_KIND_TENSOR;
}

const char *ebb_unroll_place(const ebb_unroll *u, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(u->g, n);
    if (info->name.i != 0)
        return ebb_text(u->g, info->name);
    for (uint32_t k = 0; k < info->out_count; k++)
        if (info->out[k].i != 0)
            return ebb_value_name(u->g, info->out[k]);
    return ebb_text(u->g, info->op_name);
}

ebb_build ebb_unroll_build(const ebb_unroll *u, ebb_node n, const char *place)
{
    ebb_build b = ebb_edit_build(u->e, n, EBB_PHASE_NONE);
    b.name = place;
    return b;
}

/* All that was put for n goes. */
static void undo(ebb_unroll *u, ebb_node n, size_t nodes)
{
    u->nodes = nodes;
    while (!ebb_same_node(ebb_prev(u->g, n), u->before))
        ebb_edit_remove(u->e, ebb_prev(u->g, n));
}

ebb_value ebb_unroll_one_axis(ebb_build *b, ebb_op op, ebb_value x, int64_t axis)
{
    if (ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) >= 13)
        return ebb_emit(b, op, x, ebb_const_ints(b, &axis, 1));
    ebb_with_ints(b, "axes", &axis, 1);
    return ebb_emit(b, op, x);
}

ebb_value ebb_unroll_stack(ebb_build *b, ebb_arena *scratch, const ebb_value *list, size_t count,
                           int64_t axis)
{
    ebb_value *parts = EBB_NEW(scratch, ebb_value, count + 1);
    if (!ebb_build_got(b, parts))
        return EBB_NO_VALUE;
    for (size_t i = 0; i < count; i++)
        parts[i] = ebb_unroll_one_axis(b, EBB_OP_UNSQUEEZE, list[i], axis);
    if (count == 1)
        return parts[0];
    ebb_with_int(b, "axis", axis);
    return ebb_emit_list(b, EBB_OP_CONCAT, parts, (uint32_t)count);
}

/* Loops and branches among the nodes between the two, as far as they can be. */
static ebb_status unroll_between(ebb_unroll *u, ebb_node last, ebb_node end)
{
    const ebb_unroll outside = *u;
    for (ebb_node n = ebb_next(u->g, last), next; !ebb_same_node(n, end); n = next) {
        const char *why;
        next = ebb_next(u->g, n);
        if (ebb_unroll_control(u->g, n) != EBB_OP_UNKNOWN)
            EBB_TRY(ebb_unroll_node(u, n, &why));
        else if (ebb_node_of(u->g, n)->op != EBB_OP_UNKNOWN)
            EBB_TRY(ebb_infer_node(u->g, n)); // an operand's type may be known only now
    }
    u->start = outside.start;
    u->before = outside.before;
    return NULL;
}

ebb_status ebb_unroll_copy(ebb_unroll *u, ebb_body *body, ebb_node n, const char *place,
                           const ebb_value *in, size_t given, ebb_value *out)
{
    const ebb_graph *from = body->graph;
    ebb_node last = ebb_prev(u->g, n);
    EBB_TRY(ebb_body_put(u->e, body, n, place, in, given, &u->nodes));
    const char **names = EBB_SCRATCH(u->e, const char *, from->output_count + 1);
    EBB_GOT(names);
    for (size_t k = 0; k < from->output_count; k++) {
        ebb_value v = ebb_body_output(body, k);
        if (v.i == 0)
            return ebb_error(EBB_REJECTED, "%s: its body does not make '%s'",
                             ebb_node_label(u->g, n), ebb_value_name(from, from->outputs[k]));
        names[k] = ebb_value_name(u->g, v);
        ebb_value_of(u->g, v)->flags |= EBB_IS_CAPTURED; // wanted, though nothing reads it yet
    }
    EBB_TRY(ebb_fold_between(u->e, last, n));
    EBB_TRY(unroll_between(u, last, n));
    for (size_t k = 0; k < from->output_count; k++)
        out[k] = ebb_value_find(u->g, names[k]);
    return NULL;
}

/* ---- If ---- */

static ebb_status branch(ebb_unroll *u, ebb_node n, bool which, ebb_value *out)
{
    const ebb_graph *graph = ebb_node_body(u->g, n, which ? "then_branch" : "else_branch");
    ebb_body body;
    EBB_TRY(ebb_body_open(u->e, &body, graph));
    const char *place =
        ebb_arena_printf(u->e->scratch, "%s/%s", ebb_unroll_place(u, n), which ? "then" : "else");
    EBB_GOT(place);
    return ebb_unroll_copy(u, &body, n, place, NULL, 0, out);
}

/* Both branches, and of each output the one that the condition says. */
static ebb_status both(ebb_unroll *u, ebb_node n, uint32_t count, ebb_value *out, const char **why)
{
    ebb_value *other = EBB_SCRATCH(u->e, ebb_value, count + 1u);
    EBB_GOT(other);
    EBB_TRY(branch(u, n, true, out));
    EBB_TRY(branch(u, n, false, other));
    for (uint32_t k = 0; k < count; k++)
        if (!same_known(u->g, out[k], other[k]))
            *why =
                "its condition is known in the run alone, and its branches make tensors of other "
                "shapes, or of shapes that are not known";
    if (*why != NULL)
        return NULL;
    ebb_build b = ebb_unroll_build(u, n, ebb_unroll_place(u, n));
    ebb_value condition = ebb_in(u->g, n, 0);
    if (ebb_value_of(u->g, condition)->type->rank != 0)
        condition = ebb_emit_reshape(&b, condition, NULL, 0);
    for (uint32_t k = 0; k < count; k++)
        out[k] = ebb_emit(&b, EBB_OP_WHERE, condition, out[k], other[k]);
    return b.status;
}

static ebb_status unroll_if(ebb_unroll *u, ebb_node n, const char **why)
{
    const ebb_graph *yes = ebb_node_body(u->g, n, "then_branch"),
                    *no = ebb_node_body(u->g, n, "else_branch");
    uint32_t count = ebb_node_of(u->g, n)->out_count;
    size_t room = yes->output_count > no->output_count ? yes->output_count : no->output_count;
    ebb_value *out = EBB_SCRATCH(u->e, ebb_value, room + 1);
    int64_t which;
    EBB_GOT(out);
    if (ebb_unroll_number(u->g, ebb_in(u->g, n, 0), &which))
        EBB_TRY(branch(u, n, which != 0, out));
    else if (yes->output_count != count || no->output_count != count)
        *why = "its branches make other values than it has outputs";
    else
        EBB_TRY(both(u, n, count, out, why));
    return *why != NULL ? NULL : ebb_body_stand_in(u->e, n, out, count, u->start);
}

/* ---- Loop ---- */

typedef struct loop {
    ebb_body body;
    const char *place;
    size_t carried, scanned;
    ebb_value *in;     /* of the body: iteration, condition, carried */
    ebb_value *out;    /* of the body: condition, carried, scanned */
    ebb_value **lists; /* by scanned output: one value a copy */
    size_t capacity;
    int64_t trips, copies;
    ebb_value alive; /* whether this copy counts, where that is known in the run alone; or none */
} loop;

static ebb_status open_loop(ebb_unroll *u, loop *l, ebb_node n)
{
    const ebb_graph *graph = ebb_node_body(u->g, n, "body");
    const ebb_node_info *info = ebb_node_of(u->g, n);
    l->carried = info->in_count > 2 ? info->in_count - 2u : 0;
    l->scanned = graph->output_count - 1 - l->carried;
    l->place = ebb_unroll_place(u, n);
    l->in = EBB_SCRATCH(u->e, ebb_value, 2 + l->carried);
    l->out = EBB_SCRATCH(u->e, ebb_value, graph->output_count);
    l->lists = EBB_SCRATCH(u->e, ebb_value *, l->scanned + 1);
    EBB_GOT(l->in && l->out && l->lists);
    for (size_t i = 0; i < l->carried; i++)
        l->in[2 + i] = ebb_in(u->g, n, (uint32_t)(2 + i));
    return ebb_body_open(u->e, &l->body, graph);
}

/* Whether a next copy is to be put. */
static bool goes_on(ebb_unroll *u, loop *l, ebb_value condition, const char **why)
{
    int64_t go = 1;
    bool known = condition.i == 0 || ebb_unroll_number(u->g, condition, &go);
    if (l->copies >= l->trips || (known && go == 0))
        return false;
    if (!known && l->scanned > 0)
        *why = "how often it runs is known in the run alone, and with it the length of its outputs";
    else if (!known && l->trips > u->most)
        *why = "how often it runs is known in the run alone: a constant trip count of at most "
               "`most` would bound it";
    else if (u->nodes + l->body.graph->node_count > EBB_BODY_NODES)
        *why = "its copies would be too many nodes";
    else if (l->copies >= u->most)
        *why = "it would become more copies of its body than option `most` allows";
    return *why == NULL;
}

/* The condition joins those of the copies before. */
static ebb_value still_alive(ebb_build *b, const loop *l, ebb_value condition)
{
    if (ebb_build_type(b, condition)->rank != 0)
        condition = ebb_emit_reshape(b, condition, NULL, 0);
    return l->alive.i != 0 ? ebb_emit(b, EBB_OP_AND, l->alive, condition) : condition;
}

static ebb_status add_scanned(ebb_unroll *u, loop *l, size_t k, ebb_value v)
{
    size_t capacity = l->capacity;
    EBB_GOT(ebb_arena_grow(u->e->scratch, &l->lists[k], (size_t)l->copies, &capacity,
                           sizeof **l->lists));
    l->lists[k][l->copies] = v;
    if (k + 1 == l->scanned)
        l->capacity = capacity;
    return NULL;
}

static ebb_status one_copy(ebb_unroll *u, loop *l, ebb_node n, ebb_value *condition,
                           const char **why)
{
    const ebb_graph *graph = l->body.graph;
    ebb_build b = ebb_unroll_build(u, n, l->place);
    int64_t go;
    if (condition->i != 0 && !ebb_unroll_number(u->g, *condition, &go))
        l->alive = still_alive(&b, l, *condition);
    bool vector = ebb_value_of(graph, graph->inputs[0])->type->rank == 1;
    l->in[0] = vector ? ebb_const_ints(&b, &l->copies, 1)
                      : ebb_const_scalar(&b, EBB_I64, (double)l->copies);
    l->in[1] = condition->i != 0 ? *condition : ebb_const_scalar(&b, EBB_BOOL, 1);
    EBB_TRY(b.status);
    const char *place = ebb_arena_printf(u->e->scratch, "%s/%lld", l->place, (long long)l->copies);
    EBB_GOT(place);
    EBB_TRY(ebb_unroll_copy(u, &l->body, n, place, l->in, 2 + l->carried, l->out));
    *condition = l->out[0];
    for (size_t i = 0; i < l->carried; i++) {
        ebb_value next = l->out[1 + i], old = l->in[2 + i];
        if (l->alive.i != 0 && !same_known(u->g, next, old)) {
            *why = "how often it runs is known in the run alone, and what it carries changes its "
                   "shape, or has one that is not known";
            return NULL;
        }
        l->in[2 + i] = l->alive.i != 0 ? ebb_emit(&b, EBB_OP_WHERE, l->alive, next, old) : next;
    }
    for (size_t k = 0; k < l->scanned; k++)
        EBB_TRY(add_scanned(u, l, k, l->out[1 + l->carried + k]));
    l->copies++;
    return b.status;
}

/* A loop that never runs makes lists of nothing. */
static ebb_status no_rows(ebb_unroll *u, const loop *l, size_t k, ebb_value *v, const char **why)
{
    const ebb_graph *graph = l->body.graph;
    ebb_type type = *ebb_value_of(graph, graph->outputs[1 + l->carried + k])->type;
    if (!ebb_type_is_static(&type) || type.rank >= EBB_MAX_RANK) {
        *why = "it does not run, and the shape of what it would have made is not known";
        return NULL;
    }
    for (int i = type.rank; i > 0; i--)
        type.dims[i] = type.dims[i - 1];
    type.rank++;
    type.dims[0] = 0;
    return ebb_graph_add_initializer(u->g, v, l->place, &type, "", EBB_ROLE_CONSTANT);
}

static ebb_status unroll_loop(ebb_unroll *u, ebb_node n, const char **why)
{
    loop l = {.trips = INT64_MAX};
    EBB_TRY(open_loop(u, &l, n));
    if (ebb_in(u->g, n, 0).i != 0 && !ebb_unroll_number(u->g, ebb_in(u->g, n, 0), &l.trips)) {
        *why = "its trip count is known in the run alone: a constant one is needed, or sizes that "
               "make it constant (--dim)";
        return NULL;
    }
    ebb_value condition = ebb_in(u->g, n, 1);
    while (*why == NULL && goes_on(u, &l, condition, why))
        EBB_TRY(one_copy(u, &l, n, &condition, why));
    uint32_t count = ebb_node_of(u->g, n)->out_count;
    ebb_value *made = EBB_SCRATCH(u->e, ebb_value, l.carried + l.scanned + 1);
    EBB_GOT(made);
    ebb_build b = ebb_unroll_build(u, n, l.place);
    for (size_t k = 0; k < l.carried; k++)
        made[k] = l.in[2 + k];
    for (size_t k = 0; *why == NULL && l.carried + k < count; k++) {
        ebb_value *v = &made[l.carried + k];
        if (ebb_out(u->g, n, (uint32_t)(l.carried + k)).i == 0)
            continue;
        if (l.copies == 0)
            EBB_TRY(no_rows(u, &l, k, v, why));
        else
            *v = ebb_unroll_stack(&b, u->e->scratch, l.lists[k], (size_t)l.copies, 0);
    }
    EBB_TRY(b.status);
    return *why != NULL ? NULL : ebb_body_stand_in(u->e, n, made, count, u->start);
}

/* ---- any of them ---- */

ebb_status ebb_unroll_node(ebb_unroll *u, ebb_node n, const char **why)
{
    ebb_op op = ebb_unroll_control(u->g, n);
    const size_t nodes = u->nodes;
    *why = NULL;
    EBB_TRY(ebb_schema_check(u->g, n)); // its bodies take and make what is asked of them
    u->start = u->g->value_count;
    u->before = ebb_prev(u->g, n);
    ebb_status status = op == EBB_OP_IF     ? unroll_if(u, n, why)
                        : op == EBB_OP_LOOP ? unroll_loop(u, n, why)
                                            : ebb_unroll_scan(u, n, why);
    if (status == NULL && *why != NULL)
        undo(u, n, nodes);
    return status;
}

ebb_status ebb_unroll_between(ebb_edit *e, ebb_node after, ebb_node end, int64_t most)
{
    ebb_unroll u = {.e = e, .g = e->g, .most = most};
    bool again = true;
    while (again) { // what has become nodes tells the shapes that the next one waits for
        again = false;
        EBB_TRY(ebb_fold_shapes_between(e, after, end));
        ebb_node n = after.i != 0 ? ebb_next(u.g, after) : ebb_first(u.g);
        for (ebb_node next; !ebb_same_node(n, end) && !again; n = next) {
            const char *why;
            next = ebb_next(u.g, n);
            if (ebb_unroll_control(u.g, n) == EBB_OP_UNKNOWN)
                continue;
            EBB_TRY(ebb_unroll_node(&u, n, &why));
            again = why == NULL;
        }
    }
    ebb_captures_mark(u.g);
    return NULL;
}
