/* keep.c: see keep.h. */
#include "passes/flatten/keep.h"

#include "onnx/graph/infer.h"
#include "onnx/graph/scan.h"
#include "onnx/graph/schema.h"
#include "passes/flatten/counted.h"
#include "passes/flatten/lift.h"
#include "passes/flatten/simplify.h"

enum { MOST_STEPS = 1 << 24 }; /* of a Loop, whose iterations become a constant */

/* ---- questions ---- */

/* What was kept stays so unless somebody asks for copies. */
bool ebb_keep_wants(const ebb_unroll *u, ebb_node n)
{
    ebb_scan s;
    int64_t trips;
    if (ebb_node_of(u->g, n)->op == EBB_OP_LOOP)
        return ebb_unroll_number(u->g, ebb_in(u->g, n, 0), &trips) && trips > u->most;
    if (ebb_node_of(u->g, n)->op != EBB_OP_SCAN || ebb_scan_read(&s, u->g, n) != NULL)
        return false;
    return s.trips > u->most || (ebb_scan_is_kept(u->g, n) && !ebb_option_given(u->e, "most"));
}

/* Each step reuses the memory of the one before it: so values have one size in all, known before. */
static ebb_status refuse_unknown_sizes(const ebb_unroll *u, const ebb_graph *body, const char **why)
{
    EBB_EACH_NODE(body, n) {
        const ebb_node_info *info = ebb_node_of(body, n);
        for (uint32_t k = 0; k < info->out_count; k++) {
            const ebb_value v = info->out[k];
            if (v.i == 0 || ebb_type_is_static(ebb_value_of(body, v)->type))
                continue;
            *why = ebb_arena_printf(
                u->e->keep,
                "%s in its body makes '%s', whose size is not known before the run: open dims are "
                "given with --dim, and a slice as long as the step's number can be a mask over the "
                "whole",
                ebb_node_label(body, n), ebb_value_name(body, v));
            return *why != NULL ? NULL : ebb_error_memory();
        }
    }
    return NULL;
}

/* ---- Loop to Scan ---- */

/* v is an input of the body no more; what read it reads `with`. */
static ebb_status give(ebb_graph *body, ebb_value v, ebb_value with)
{
    EBB_TRY(ebb_value_replace(body, v, with));
    ebb_graph_remove_input(body, v);
    return NULL;
}

static void set_output(ebb_graph *body, size_t k, ebb_value v)
{
    ebb_value old = body->outputs[k];
    body->outputs[k] = v;
    ebb_value_of(body, v)->flags |= EBB_IS_OUTPUT;
    for (size_t i = 0; i < body->output_count; i++)
        if (ebb_same_value(body->outputs[i], old))
            return;
    ebb_value_of(body, old)->flags &= (uint8_t)~EBB_IS_OUTPUT;
}

/* Results count while the condition held: of each state the one that does, and whether it still does. */
static ebb_status count_while(ebb_edit *inner, ebb_value alive, size_t carried)
{
    ebb_graph *body = inner->g;
    ebb_build b = ebb_edit_build(inner, EBB_NO_NODE, EBB_PHASE_NONE);
    b.name = "loop";
    ebb_value held = alive;
    if (ebb_value_of(body, alive)->type->rank != 0)
        held = ebb_emit_reshape(&b, alive, NULL, 0);
    for (size_t i = 0; i < carried && b.status == NULL; i++)
        set_output(body, 1 + i,
                   ebb_emit(&b, EBB_OP_WHERE, held, body->outputs[1 + i], body->inputs[2 + i]));
    EBB_TRY(b.status);
    ebb_value goes_on = body->outputs[0];
    if (!ebb_type_same_shape(ebb_value_of(body, goes_on)->type, ebb_value_of(body, alive)->type))
        goes_on = ebb_emit_reshape_like(&b, goes_on, alive);
    ebb_value next = ebb_emit(&b, EBB_OP_AND, alive, goes_on);
    EBB_TRY(b.status);
    set_output(body, 0, next);
    return NULL;
}

/* 0, 1, 2 ..., as a Loop counts them. */
static ebb_status count_up(ebb_unroll *u, ebb_node n, int64_t trips, bool vectors, ebb_value *v)
{
    int64_t *list = EBB_SCRATCH(u->e, int64_t, (size_t)trips);
    const int64_t dims[2] = {trips, 1};
    const ebb_type type = ebb_type_tensor(EBB_I64, vectors ? 2 : 1, dims);
    const char *name = ebb_arena_printf(u->e->scratch, "%s/steps", ebb_unroll_place(u, n));
    EBB_GOT(list && name);
    for (int64_t i = 0; i < trips; i++)
        list[i] = i;
    return ebb_graph_add_initializer(u->g, v, name, &type, list, EBB_ROLE_CONSTANT);
}

/* The body of a Loop (iteration, condition, states) as one of a Scan (states, iteration). */
static ebb_status turn_body(ebb_unroll *u, ebb_node n, ebb_graph *body, bool *counts_while,
                            const char **why)
{
    ebb_report unread;
    ebb_edit inner = ebb_lift_edit(u, body, &unread);
    const size_t carried = ebb_node_of(u->g, n)->in_count - 2u;
    const ebb_value iteration = body->inputs[0], condition = body->inputs[1];
    int64_t go = 1;
    const bool known =
        ebb_in(u->g, n, 1).i == 0 || ebb_unroll_number(u->g, ebb_in(u->g, n, 1), &go);
    if (known && go == 0) {
        *why = "its condition never holds, and it has more steps than are unrolled";
        return NULL;
    }
    ebb_value last = body->outputs[0];
    while (ebb_producer_op(body, last) == EBB_OP_IDENTITY)
        last = ebb_in(body, ebb_value_of(body, last)->producer, 0);
    *counts_while = !known || (!ebb_same_value(last, condition) &&
                               (!ebb_unroll_number(body, last, &go) || !go));
    if (*counts_while && body->output_count > 1 + carried) {
        *why = "how often it runs is known in the run alone, and with it the length of its outputs";
        return NULL;
    }
    if (*counts_while) {
        for (size_t i = 0; i < carried; i++)
            if (!ebb_type_same_shape(ebb_value_of(u->g, ebb_in(u->g, n, (uint32_t)(2 + i)))->type,
                                     ebb_value_of(body, body->outputs[1 + i])->type))
                *why =
                    "how often it runs is known in the run alone, and what it carries changes its "
                    "shape, or has one that is not known";
        if (*why != NULL)
            return NULL;
        EBB_TRY(count_while(&inner, condition, carried));
    } else {
        ebb_build b = ebb_edit_build(&inner, EBB_NO_NODE, EBB_PHASE_NONE);
        ebb_value yes = ebb_value_of(body, condition)->type->rank == 1
                            ? ebb_const_tensor(&b,
                                               &(ebb_type){.kind = EBB_KIND_TENSOR,
                                                           .dtype = EBB_BOOL,
                                                           .rank = 1,
                                                           .dims = {1}},
                                               &(uint8_t){1})
                            : ebb_const_scalar(&b, EBB_BOOL, 1);
        EBB_TRY(b.status);
        EBB_TRY(give(body, condition, yes));
        ebb_graph_remove_output(body, body->outputs[0]);
    }
    // the iteration goes to the end of the inputs
    for (size_t i = 0; i + 1 < body->input_count; i++)
        body->inputs[i] = body->inputs[i + 1];
    body->inputs[body->input_count - 1] = iteration;
    return NULL;
}

/* States have the types that they begin with; a Loop's body may say less, or other sizes. */
static ebb_status type_states(ebb_unroll *u, ebb_node n, ebb_graph *body)
{
    for (uint32_t i = 2; i < ebb_node_of(u->g, n)->in_count; i++)
        EBB_TRY(ebb_value_set_type(body, body->inputs[i],
                                   ebb_value_of(u->g, ebb_in(u->g, n, i))->type));
    ebb_type scalar = ebb_type_tensor(EBB_I64, 0, NULL);
    if (ebb_value_of(body, body->inputs[0])->type->rank < 0)
        EBB_TRY(ebb_value_set_type(body, body->inputs[0], &scalar));
    scalar.dtype = EBB_BOOL;
    if (ebb_value_of(body, body->inputs[1])->type->rank < 0)
        EBB_TRY(ebb_value_set_type(body, body->inputs[1], &scalar));
    EBB_EACH_VALUE(body, v) {
        const ebb_graph *at = body;
        ebb_value meant = ebb_value_of(body, v)->dead ? v : ebb_value_meant(&at, v);
        if (at != body)
            EBB_TRY(ebb_value_set_type(body, v, ebb_value_of(at, meant)->type));
    }
    return ebb_infer_graph(body);
}

static ebb_status loop_to_scan(ebb_unroll *u, ebb_node *n, const char **why)
{
    ebb_graph *g = u->g, *body;
    const ebb_graph *from = ebb_node_body(g, *n, "body");
    const ebb_node_info *info = ebb_node_of(g, *n);
    const uint32_t carried = info->in_count > 2 ? info->in_count - 2u : 0, outs = info->out_count;
    const size_t start = g->value_count;
    int64_t trips = 0;
    bool counts_while = false;
    if (!ebb_unroll_number(g, ebb_in(g, *n, 0), &trips) || trips > MOST_STEPS || from == NULL ||
        from->input_count != 2 + (size_t)carried) {
        *why = trips > MOST_STEPS ? "it has more than 16 million steps"
                                  : "its body has values of its own for what it is given";
        return NULL;
    }
    EBB_TRY(ebb_graph_copy(&body, g, from));
    EBB_TRY(ebb_while(type_states(u, *n, body), "in the body of %s", ebb_node_label(g, *n)));
    const bool vectors = ebb_value_of(body, body->inputs[0])->type->rank == 1;
    EBB_TRY(turn_body(u, *n, body, &counts_while, why));
    if (*why != NULL)
        return NULL;
    const uint32_t states = carried + counts_while;
    ebb_value *in = EBB_SCRATCH(u->e, ebb_value, states + 2u);
    ebb_value *out = EBB_SCRATCH(u->e, ebb_value, body->output_count + 1);
    EBB_GOT(in && out);
    ebb_build b = ebb_unroll_build(u, *n, ebb_unroll_place(u, *n));
    if (counts_while)
        in[0] = ebb_in(g, *n, 1).i != 0 ? ebb_in(g, *n, 1) : ebb_const_scalar(&b, EBB_BOOL, 1);
    for (uint32_t i = 0; i < carried; i++)
        in[counts_while + i] = ebb_in(g, *n, 2 + i);
    EBB_TRY(b.status);
    EBB_TRY(count_up(u, *n, trips, vectors, &in[states]));
    for (size_t k = counts_while; k < body->output_count; k++) {
        ebb_type open = ebb_type_none();
        EBB_TRY(ebb_value_add(g, &out[k], NULL, &open));
    }
    ebb_node scan;
    const ebb_attr attr = {.name = "body", .type = EBB_ATTR_GRAPH, .count = 1};
    ebb_attr own = attr;
    ebb_graph **list = EBB_NEW(&g->model->arena, ebb_graph *, 1);
    EBB_GOT(list);
    list[0] = body;
    own.graphs = list;
    EBB_TRY(ebb_node_add(g, &scan, *n, EBB_DOMAIN_ONNX, "Scan", in, states + 1, out,
                         (uint32_t)body->output_count));
    EBB_TRY(ebb_node_set_attr(g, scan, &own));
    EBB_TRY(ebb_node_set_int(g, scan, "num_scan_inputs", 1));
    ebb_node_of(g, scan)->name = ebb_node_of(g, *n)->name;
    ebb_node_of(g, scan)->phase = ebb_node_of(g, *n)->phase;
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, scan)->props, "ebb.pass", u->e->pass->name));
    ebb_captures_mark(g);
    EBB_TRY(ebb_infer_node(g, scan));
    EBB_TRY(ebb_body_stand_in(u->e, *n, out + counts_while, outs, start));
    *n = scan;
    return NULL;
}

/* ---- the body ---- */

/* Loops and branches within become nodes; long loops are kept there, too. */
static ebb_status unroll_within(ebb_unroll *u, ebb_edit *inner, const char **why)
{
    ebb_unroll v = {.e = inner, .g = inner->g, .most = u->most, .nodes = u->nodes};
    for (bool again = true; again && *why == NULL;) {
        again = false;
        for (ebb_node n = ebb_first(v.g), next; n.i != 0 && *why == NULL; n = next) {
            bool changed = true;
            next = ebb_next(v.g, n);
            if (ebb_unroll_control(v.g, n) == EBB_OP_UNKNOWN)
                continue;
            if (ebb_keep_wants(&v, n))
                EBB_TRY(ebb_keep_node(&v, n, why, &changed));
            else
                EBB_TRY(ebb_unroll_node(&v, n, why));
            again = again || changed;
        }
        ebb_captures_mark(v.g);
        if (again && *why == NULL)
            EBB_TRY(ebb_fold_all(inner));
    }
    u->nodes = v.nodes;
    if (*why != NULL)
        *why = "its body has a loop or a branch that can neither be unrolled nor kept";
    return NULL;
}

/* What the body hands on is made by a node, and by no other output's. */
static ebb_status part_outputs(ebb_edit *inner)
{
    ebb_graph *body = inner->g;
    ebb_build b = ebb_edit_build(inner, EBB_NO_NODE, EBB_PHASE_NONE);
    for (size_t k = 0; k < body->output_count; k++) {
        ebb_value v = body->outputs[k];
        bool apart = ebb_value_of(body, v)->producer.i != 0;
        for (size_t i = 0; i < k; i++)
            apart = apart && !ebb_same_value(body->outputs[i], v);
        if (apart)
            continue;
        ebb_value own = ebb_emit(&b, EBB_OP_IDENTITY, v);
        EBB_TRY(b.status);
        set_output(body, k, own);
        ebb_applied(inner);
    }
    return NULL;
}

static ebb_status bring_into_form(ebb_unroll *u, ebb_node n, const char **why, bool *changed)
{
    ebb_scan s;
    ebb_report own;
    *why = ebb_scan_read(&s, u->g, n);
    if (*why != NULL)
        return NULL;
    for (size_t i = 0; i < s.states + s.inputs; i++)
        if ((ebb_value_of(s.body, s.body->inputs[i])->flags & EBB_IS_INITIALIZER) != 0)
            *why = "its body has values of its own for what it is given";
    if (*why != NULL)
        return NULL;
    ebb_edit inner = ebb_lift_edit(u, s.body, &own);
    EBB_TRY(ebb_infer_node(u->g, n));
    EBB_TRY(ebb_fold_all(&inner));
    EBB_TRY(unroll_within(u, &inner, why));
    if (*why == NULL)
        EBB_TRY(ebb_counted_walk(u, &inner, n));
    if (*why == NULL)
        EBB_TRY(refuse_unknown_sizes(u, s.body, why));
    if (*why != NULL)
        return NULL;
    EBB_TRY(part_outputs(&inner));
    EBB_TRY(ebb_lift_weights(u, &inner));
    EBB_TRY(ebb_lift_same(u, &inner, n));
    (void)ebb_graph_sweep(s.body);
    ebb_captures_mark(u->g);
    *changed = own.applied > 0;
    if (!ebb_scan_is_kept(u->g, n))
        EBB_TRY(ebb_props_set(u->g, &ebb_node_of(u->g, n)->props, EBB_KEPT_LOOP, "kept"));
    return ebb_infer_node(u->g, n);
}

ebb_status ebb_keep_node(ebb_unroll *u, ebb_node n, const char **why, bool *changed)
{
    *why = NULL;
    *changed = false;
    EBB_TRY(ebb_schema_check(u->g, n));
    if (ebb_node_of(u->g, n)->op == EBB_OP_LOOP) {
        EBB_TRY(loop_to_scan(u, &n, why));
        if (*why != NULL)
            return NULL;
        bool again;
        EBB_TRY(bring_into_form(u, n, why, &again));
        *changed = true;
        return NULL;
    }
    return bring_into_form(u, n, why, changed);
}
