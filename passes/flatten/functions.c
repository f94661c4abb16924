/* functions.c: bodies of functions in the place of calls of them; what other runtimes' operators
 * stand for in theirs. */
#include "passes/flatten/functions.h"

#include "onnx/graph/infer.h"
#include "onnx/graph/schema.h"
#include "passes/common.h"
#include "passes/flatten/body.h"
#include "passes/flatten/calls.h"
#include "passes/flatten/dialect/dialect.h"

enum {
    NODES_LIMIT = 1 << 20
}; // of all bodies together: a few small functions can nest to any size

/* ---- which function ---- */

/* Operators whose bodies the writer adds stay. */
static bool is_operator(const ebb_graph *g, const ebb_function *f)
{
    ebb_op op = ebb_op_find(ebb_text(g, f->domain), ebb_text(g, f->name), 1);
    return ebb_op_body(op) != NULL;
}

/* ---- whether its body fits here ---- */

static int64_t imported(const ebb_graph *g, const ebb_function *f, const char *domain)
{
    for (size_t i = 0; i < f->import_count; i++)
        if (ebb_calls_same_domain(ebb_text(g, f->imports[i].domain), domain))
            return f->imports[i].version;
    return 0;
}

/* A node in the bodies of n, of any depth, for which `is` holds. */
static bool within(const ebb_graph *g, ebb_node n, bool (*is)(const ebb_graph *g, ebb_node n))
{
    EBB_EACH_BODY(ebb_node_of(g, n), body)
        EBB_EACH_NODE(*body, inner)
            if (is(*body, inner) || within(*body, inner, is))
                return true;
    return false;
}

static bool asks_for_attributes(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t i = 0; i < info->attr_count; i++)
        if (info->attr[i].ref != NULL)
            return true;
    return false;
}

static const char *declines(const ebb_graph *g, const ebb_function *f)
{
    EBB_EACH_NODE(f->body, n) {
        const ebb_node_info *info = ebb_node_of(f->body, n);
        if (within(f->body, n, asks_for_attributes))
            return "a body of control flow in it asks for its attributes";
        const char *domain = ebb_text(g, info->domain), *name = ebb_text(g, info->op_name);
        int64_t theirs = imported(g, f, domain), ours = ebb_model_opset(g->model, domain);
        if (theirs > 0 && ours > 0 && theirs != ours &&
            ebb_op_find(domain, name, theirs) != ebb_op_find(domain, name, ours))
            return "its body is written for another opset";
    }
    return NULL;
}

/* ---- putting it in ---- */

/* What a reference to the function's attribute stands for in this call; NULL: nothing. */
static const ebb_attr *referred(const ebb_attrs *call, const ebb_function *f, const char *name)
{
    const ebb_attr *given = ebb_attr_find(call, name);
    for (size_t i = 0; given == NULL && i < f->default_count; i++)
        if (strcmp(f->defaults[i].name, name) == 0)
            given = &f->defaults[i];
    return given;
}

static ebb_status copy_attributes(ebb_edit *e, ebb_node to, const ebb_node_info *from,
                                  const ebb_attrs *call, const ebb_function *f,
                                  const ebb_value *map)
{
    for (uint32_t i = 0; i < from->attr_count; i++) {
        ebb_attr attr = from->attr[i];
        if (attr.ref != NULL) {
            const ebb_attr *given = referred(call, f, attr.ref);
            if (given == NULL)
                continue;
            const char *name = attr.name;
            attr = *given;
            attr.name = name;
            attr.origin = NULL; // the writer would write it under the old name
        }
        EBB_TRY(ebb_body_copy_graphs(e, &attr, map, f->body));
        EBB_TRY(ebb_node_set_attr(e->g, to, &attr));
    }
    return NULL;
}

/* A function is looked at where it is called: what is wrong in the bodies of its nodes is the file's fault. */
static ebb_status check_bodies(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t i = 0; i < info->attr_count; i++) {
        const ebb_attr *a = &info->attr[i];
        for (uint32_t k = 0; a->graphs != NULL && k < a->count; k++)
            EBB_EACH_NODE(a->graphs[k], inner) {
                ebb_status status = ebb_schema_check(a->graphs[k], inner);
                if (status == NULL)
                    status = check_bodies(a->graphs[k], inner);
                EBB_TRY(ebb_while(status, "checking attribute '%s' of %s", a->name,
                                  ebb_node_label(g, n)));
            }
    }
    return NULL;
}

/* One node of the body, before the call. map: the body's values here. */
static ebb_status put_node(ebb_edit *e, const ebb_function *f, ebb_node call, ebb_node n,
                           ebb_value *map, ebb_node *put)
{
    ebb_graph *g = e->g;
    const ebb_graph *body = f->body;
    const ebb_node_info from = *ebb_node_of(body, n);
    const char *domain = ebb_text(g, from.domain);
    const char *place = ebb_node_of(g, call)->name.i != 0 ? ebb_text(g, ebb_node_of(g, call)->name)
                                                          : ebb_text(g, f->name);
    int64_t version = imported(g, f, domain);
    EBB_TRY(ebb_model_import(g->model, domain, version > 0 ? version : 1));
    EBB_TRY(ebb_body_put_node(e, put, body, n, call, place, map, true));
    ebb_attrs attrs = ebb_node_attrs(g, call);
    EBB_TRY(copy_attributes(e, *put, &from, &attrs, f, map));
    EBB_TRY(check_bodies(g, *put));
    ebb_node_info *to = ebb_node_of(g, *put), *caller = ebb_node_of(g, call);
    to->doc = caller->doc;
    return ebb_props_set_all(g, &to->props, g, &caller->props);
}

/* *first: the body's first node here, or what followed the call where the body is empty. */
static ebb_status put_body(ebb_edit *e, const ebb_function *f, ebb_node call, ebb_node *first)
{
    ebb_graph *g = e->g;
    const ebb_graph *body = f->body;
    const size_t before = g->value_count;
    ebb_value *map = EBB_SCRATCH(e, ebb_value, body->value_count);
    EBB_GOT(map);
    if (ebb_node_of(g, call)->in_count > body->input_count ||
        ebb_node_of(g, call)->out_count > body->output_count)
        return ebb_error(EBB_REJECTED, "%s has more inputs or outputs than its function",
                         ebb_node_label(g, call));
    for (size_t i = 0; i < body->input_count; i++)
        map[body->inputs[i].i] = ebb_in(g, call, (uint32_t)i);
    *first = EBB_NO_NODE;
    EBB_EACH_NODE(body, n) {
        ebb_node put;
        EBB_TRY(put_node(e, f, call, n, map, &put));
        if (first->i == 0)
            *first = put;
    }
    const uint32_t count = ebb_node_of(g, call)->out_count;
    ebb_value *made = EBB_SCRATCH(e, ebb_value, count + 1u);
    EBB_GOT(made);
    for (uint32_t k = 0; k < count; k++)
        made[k] = map[body->outputs[k].i];
    if (first->i == 0)
        *first = ebb_next(g, call);
    return ebb_body_stand_in(e, call, made, count, before);
}

ebb_status ebb_inline_call(ebb_edit *e, const ebb_function *f, ebb_node call)
{
    ebb_node first;
    const char *why = declines(e->g, f);
    return why != NULL ? ebb_error(EBB_UNSUPPORTED, "%s: %s", ebb_node_label(e->g, call), why)
                       : put_body(e, f, call, &first);
}

/* ---- all calls ---- */

typedef struct calls {
    ebb_calls of;         // which function a node calls
    const char **refused; // by function: why its calls stay
    bool all;             // no call stays
    bool foreign;         // there are operators of other runtimes
    size_t put;           // of those, how many went in this round
    bool last;            // nothing more comes: what stays is reported
} calls;

static bool has_foreign(const ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
        if (ebb_dialect_knows(g, n) || within(g, n, ebb_dialect_knows))
            return true;
    return false;
}

/* An operator of another runtime becomes what it stands for. Where it stays: why, or NULL. */
static ebb_status translate(ebb_edit *e, ebb_node n, calls *c, bool *done, const char **why)
{
    *done = false;
    *why = NULL;
    EBB_TRY(ebb_infer_node(e->g, n));
    if (!ebb_dialect_knows(e->g, n))
        return NULL;
    EBB_TRY(ebb_dialect_apply(e, n, done, why));
    if (*done) {
        ebb_found(e);
        ebb_applied(e);
        c->put++;
    }
    return NULL;
}

static ebb_status run_in(ebb_edit *e, ebb_graph *g, calls *c)
{
    const ebb_model *m = g->model;
    for (ebb_node n = ebb_first(g), next; n.i != 0; n = next) {
        next = ebb_next(g, n);
        EBB_EACH_BODY(ebb_node_of(g, n), body) // a graph that nodes can be put into like any other
            EBB_TRY(run_in(e, *body, c));
        e->g = g;
        size_t f = ebb_calls_find(&c->of, g, ebb_node_of(g, n));
        const bool has_body = f != 0 && !is_operator(g, &m->functions[f - 1]);
        const char *why = NULL;
        bool done = false;
        if (c->foreign) // what is known by its name needs no body that it brings
            EBB_TRY(translate(e, n, c, &done, &why));
        if (why != NULL && c->last && !has_body)
            EBB_TRY(ebb_declined(e, n, why));
        if (done || !has_body)
            continue;
        if (c->refused[f - 1] != NULL) {
            if (c->last)
                EBB_TRY(ebb_skipped(e, n, c->refused[f - 1]));
            c->all = false;
            continue;
        }
        ebb_found(e);
        EBB_TRY(put_body(e, &m->functions[f - 1], n, &next));
        ebb_applied(e);
    }
    return NULL;
}

/* Rounds over all nodes, the last one of which finds nothing that it could put. */
static ebb_status run_rounds(ebb_edit *e, ebb_graph *g, calls *c)
{
    enum { ROUNDS_MOST = 16 };
    bool quiet = !c->foreign;
    for (int round = 1; !c->last; round++) {
        c->last = quiet || round == ROUNDS_MOST;
        c->put = 0;
        EBB_TRY(run_in(e, g, c));
        e->g = g;
        if (c->put > 0)
            EBB_TRY(ebb_infer_graph(g));
        quiet = c->put == 0;
    }
    return NULL;
}

ebb_status ebb_inline_all(ebb_edit *e)
{
    ebb_graph *g = e->g;
    ebb_model *m = g->model;
    calls c = {.all = true, .foreign = has_foreign(g)};
    for (size_t i = 0; i < m->function_count; i++)
        c.foreign = c.foreign || has_foreign(m->functions[i].body);
    if (m->function_count == 0 && !c.foreign)
        return NULL;
    EBB_TRY(ebb_calls_index(&c.of, m, e->scratch));
    EBB_TRY(ebb_calls_bound(&c.of, NODES_LIMIT, e->scratch));
    c.refused = EBB_SCRATCH(e, const char *, m->function_count + 1);
    EBB_GOT(c.refused);
    for (size_t i = 0; i < m->function_count; i++)
        c.refused[i] = declines(g, &m->functions[i]);
    ebb_status status = run_rounds(e, g, &c);
    e->g = g;
    EBB_TRY(status);
    ebb_captures_mark(g);
    size_t kept = 0;
    for (size_t i = 0; c.all && i < m->function_count; i++)
        if (is_operator(g, &m->functions[i]))
            m->functions[kept++] = m->functions[i];
    if (c.all)
        m->function_count = kept;
    return NULL;
}
