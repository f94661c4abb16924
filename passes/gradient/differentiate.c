/* differentiate: ONNX's Gradient operators become the nodes that compute them.
 *
 *   before   c = Add (a, b)   da, db = Gradient <xs = ["a", "b"], y = "c"> (a, b)
 *   after    c = Add (a, b)   da, db: what reverse mode makes of c's way back to a and b
 *
 * Gradient names its tensors in attributes, so this comes before what renames or folds: functions,
 * loops and branches are made nodes first. A tensor in xs or zs counts as given, whatever makes it.
 * Where the node's inputs are other tensors than those it names, what lies between is copied and
 * differentiated there. y is seeded with ones. A Gradient of what another made is of second order:
 * what the first one emitted has rules, or becomes its body (second_order.c), or is named.
 */
#include "onnx/graph/infer.h"
#include "passes/flatten/body.h"
#include "passes/flatten/functions.h"
#include "passes/passes.h"
#include "passes/gradient/reverse.h"

typedef struct request {
    ebb_node node;
    const ebb_attr *xs, *zs; /* zs may be NULL */
    uint32_t count;          /* of xs and zs */
    ebb_value *named, *at;   /* by position in xs, zs: as named; where it is taken */
    ebb_value y;
} request;

static ebb_status named(const ebb_graph *g, ebb_node n, const char *name, ebb_value *v)
{
    *v = ebb_value_find(g, name);
    if (v->i != 0)
        return NULL;
    return ebb_hint(
        ebb_error(EBB_REJECTED, "%s: there is no tensor '%.100s'", ebb_node_label(g, n), name),
        "passes that fold or fuse belong behind differentiate");
}

static ebb_status read_request(ebb_edit *e, ebb_node n, request *r)
{
    const ebb_graph *g = e->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    const char *y = ebb_attr_string(&attrs, "y", NULL);
    *r = (request){.node = n};
    r->xs = ebb_attr_find(&attrs, "xs");
    r->zs = ebb_attr_find(&attrs, "zs");
    if (y == NULL || r->xs == NULL || r->xs->type != EBB_ATTR_STRINGS ||
        (r->zs != NULL && r->zs->type != EBB_ATTR_STRINGS))
        return ebb_error(EBB_REJECTED, "%s: attributes xs and y should name tensors",
                         ebb_node_label(g, n));
    r->count = r->xs->count + (r->zs != NULL ? r->zs->count : 0);
    if (ebb_node_of(g, n)->in_count != r->count || ebb_node_of(g, n)->out_count > r->xs->count)
        return ebb_error(EBB_REJECTED, "%s: it names %u tensors and has %u inputs",
                         ebb_node_label(g, n), (unsigned)r->count,
                         (unsigned)ebb_node_of(g, n)->in_count);
    r->named = EBB_SCRATCH(e, ebb_value, r->count + 1u);
    r->at = EBB_SCRATCH(e, ebb_value, r->count + 1u);
    EBB_GOT(r->named && r->at);
    for (uint32_t i = 0; i < r->count; i++) {
        const char *name = i < r->xs->count ? r->xs->strings[i] : r->zs->strings[i - r->xs->count];
        EBB_TRY(named(g, n, name, &r->named[i]));
        r->at[i] = ebb_in(g, n, i);
        if (r->at[i].i == 0)
            return ebb_error(EBB_REJECTED, "%s: input %u is missing", ebb_node_label(g, n),
                             (unsigned)i);
    }
    return named(g, n, y, &r->y);
}

/* ---- at other values than those named ---- */

static ebb_status copy_node(ebb_edit *e, ebb_node n, ebb_node before, ebb_value *map)
{
    ebb_graph *g = e->g;
    const ebb_node_info info = *ebb_node_of(g, n);
    ebb_value *in = EBB_SCRATCH(e, ebb_value, info.in_count + 1u);
    ebb_value *out = EBB_SCRATCH(e, ebb_value, info.out_count + 1u);
    const char *place = ebb_text(g, ebb_node_of(g, before)->name);
    ebb_node put;
    EBB_GOT(in && out);
    for (uint32_t i = 0; i < info.in_count; i++)
        in[i] = map[info.in[i].i].i != 0 ? map[info.in[i].i] : info.in[i];
    for (uint32_t k = 0; k < info.out_count; k++) {
        if (info.out[k].i == 0)
            continue;
        const char *name =
            ebb_arena_printf(e->scratch, "%s/%s", place[0] != '\0' ? place : "Gradient",
                             ebb_value_name(g, info.out[k]));
        EBB_GOT(name);
        EBB_TRY(ebb_value_add(g, &out[k], name, ebb_value_of(g, info.out[k])->type));
        if (map[info.out[k].i].i == 0) // what is given stays given
            map[info.out[k].i] = out[k];
    }
    EBB_TRY(ebb_node_add(g, &put, before, ebb_text(g, info.domain), ebb_text(g, info.op_name), in,
                         info.in_count, out, info.out_count));
    for (uint32_t i = 0; i < info.attr_count; i++)
        EBB_TRY(ebb_node_set_attr(g, put, &info.attr[i]));
    ebb_node_of(g, put)->overload = info.overload;
    ebb_node_of(g, put)->phase = ebb_node_of(g, before)->phase;
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, put)->props, "ebb.pass", e->pass->name));
    return ebb_infer_node(g, put);
}

/* What depends on a named tensor whose value is another here, and leads to y, once more. */
static ebb_status move_request(ebb_edit *e, request *r)
{
    ebb_graph *g = e->g;
    size_t values = g->value_count;
    bool moved = false, *leads = EBB_SCRATCH(e, bool, values);
    ebb_value *map = EBB_SCRATCH(e, ebb_value, values);
    EBB_GOT(leads && map);
    for (uint32_t i = 0; i < r->count; i++) {
        map[r->named[i].i] = r->at[i];
        moved = moved || !ebb_same_value(r->named[i], r->at[i]);
    }
    if (!moved)
        return NULL;
    leads[r->y.i] = true;
    for (ebb_node n = ebb_prev(g, r->node); n.i != 0; n = ebb_prev(g, n)) {
        const ebb_node_info *info = ebb_node_of(g, n);
        bool does = false;
        for (uint32_t k = 0; k < info->out_count; k++)
            does = does ||
                   (info->out[k].i != 0 && leads[info->out[k].i] && map[info->out[k].i].i == 0);
        for (uint32_t i = 0; does && i < info->in_count; i++)
            leads[info->in[i].i] = true;
    }
    for (ebb_node n = ebb_first(g); !ebb_same_node(n, r->node); n = ebb_next(g, n)) {
        const ebb_node_info *info = ebb_node_of(g, n);
        bool changes = false, wanted = false;
        for (uint32_t i = 0; i < info->in_count; i++)
            changes = changes ||
                      (info->in[i].i != 0 && info->in[i].i < values && map[info->in[i].i].i != 0);
        for (uint32_t k = 0; k < info->out_count; k++)
            wanted = wanted || (info->out[k].i != 0 && info->out[k].i < values &&
                                leads[info->out[k].i] && map[info->out[k].i].i == 0);
        if (changes && wanted)
            EBB_TRY(copy_node(e, n, r->node, map));
    }
    if (map[r->y.i].i != 0)
        r->y = map[r->y.i];
    return NULL;
}

/* ---- one node ---- */

static ebb_status seed(ebb_reverse *v)
{
    const ebb_type *type = ebb_value_of(v->g, v->y)->type;
    if (!ebb_type_is_static(type))
        return ebb_hint(ebb_error(EBB_USAGE, "differentiate: the shape of '%s' is not known",
                                  ebb_value_name(v->g, v->y)),
                        "give sizes to the inputs with --dim or --shape");
    ebb_value one = ebb_const_like(&v->b, v->y, 1.0);
    if (type->rank > 0)
        one = ebb_emit(&v->b, EBB_OP_EXPAND, one, ebb_const_shape(&v->b, v->y));
    v->grad[v->y.i] = one;
    return v->b.status;
}

/* Opens v, until nothing on the way has to give way to its body. */
static ebb_status open(ebb_edit *e, request *r, ebb_reverse *v)
{
    ebb_graph *g = e->g;
    const char *y = ebb_value_name(g, r->y);
    for (bool again = true; again;) {
        *v = (ebb_reverse){.e = e, .g = g, .y = r->y, .nameless = true};
        EBB_TRY(ebb_reverse_open(v, r->node));
        v->leaf = EBB_SCRATCH(e, bool, v->value_count);
        EBB_GOT(v->leaf);
        for (uint32_t i = 0; i < r->count; i++) {
            v->leaf[r->at[i].i] = true;
            v->trains[r->at[i].i] = i < r->xs->count;
        }
        ebb_reverse_mark(v);
        EBB_TRY(ebb_reverse_expand(v, &again));
        for (uint32_t i = 0; again && i < r->count; i++)
            r->at[i] = ebb_in(g, r->node, i);
        if (again)
            r->y = ebb_value_find(g, y);
    }
    EBB_TRY(ebb_reverse_find_unsupported(v));
    return ebb_reverse_say_unsupported(v);
}

static ebb_status expand(ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    request r;
    ebb_reverse v;
    size_t start = g->value_count;
    EBB_TRY(read_request(e, n, &r));
    EBB_TRY(move_request(e, &r));
    EBB_TRY(open(e, &r, &v));
    ebb_value *made = EBB_SCRATCH(e, ebb_value, r.count + 1u);
    EBB_GOT(made);
    v.b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    EBB_TRY(seed(&v));
    EBB_TRY(ebb_reverse_run(&v));
    v.b.name = ebb_text(g, ebb_node_of(g, n)->name);
    for (uint32_t i = 0; i < ebb_node_of(g, n)->out_count; i++) {
        made[i] = v.grad[r.at[i].i];
        if (ebb_out(g, n, i).i != 0 && made[i].i == 0)
            made[i] = ebb_emit_zeros_like(&v.b, r.at[i]);
    }
    EBB_TRY(v.b.status);
    return ebb_body_stand_in(e, n, made, ebb_node_of(g, n)->out_count, start);
}

/* ---- the pass ---- */

static bool is_gradient(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->op == EBB_OP_GRADIENT;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    size_t found = 0;
    EBB_EACH_NODE(g, n)
        found += is_gradient(g, n);
    if (found == 0)
        return NULL;
    EBB_TRY(ebb_inline_all(e));
    EBB_TRY(ebb_infer_graph(g));
    for (ebb_node n = ebb_first(g), next; n.i != 0; n = next) {
        next = ebb_next(g, n);
        if (is_gradient(g, n))
            EBB_TRY(ebb_while(expand(e, n), "differentiating for %s", ebb_node_label(g, n)));
    }
    e->report->found = e->report->applied = found;
    return NULL;
}

const ebb_pass ebb_pass_differentiate = {
    .name = "differentiate",
    .doc = "make nodes of ONNX's Gradient operators",
    .exactness = EBB_EXACT,
    .run = run,
};
