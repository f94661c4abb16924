/* batch_step.c: a step becomes one that is computed in parts: all of them here, or one in each process. */
#include "onnx/graph/infer.h"
#include "onnx/graph/place.h"
#include "passes/memory/rounding/batch_split.h"

typedef ebb_batch_form form;
typedef ebb_batch_split splitting;

/* The list of nodes as it was; ends with none. */
static ebb_status list_nodes(const splitting *s, ebb_node **list)
{
    size_t count = 0;
    *list = EBB_SCRATCH(s->e, ebb_node, s->node_count + 1);
    EBB_GOT(*list);
    EBB_EACH_NODE(s->g, n)
        (*list)[count++] = n;
    return NULL;
}

ebb_status ebb_batch_make_room(splitting *s, ebb_node n)
{
    for (uint32_t k = 0; k < ebb_node_of(s->g, n)->out_count; k++) {
        const ebb_value v = ebb_out(s->g, n, k);
        s->part[v.i] = EBB_SCRATCH(s->e, ebb_value, (size_t)s->parts);
        EBB_GOT(s->part[v.i]);
    }
    return NULL;
}

static ebb_status make_room(splitting *s, const ebb_node *list)
{
    for (const ebb_node *n = list; n->i != 0; n++) {
        if (s->later[n->i]) {
            s->end = s->end.i == 0 ? *n : s->end;
            ebb_node_move(s->g, *n, EBB_NO_NODE);
        }
        if (s->clones[n->i])
            EBB_TRY(ebb_batch_make_room(s, *n));
    }
    return NULL;
}

static bool is_output(const splitting *s, ebb_value v)
{
    return (ebb_value_of(s->g, v)->flags & EBB_IS_OUTPUT) != 0;
}

/* Of a process's graph inputs. */
static ebb_status take_own_rows(splitting *s)
{
    ebb_graph *g = s->g;
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_value v = g->inputs[i];
        if (s->form[v.i].where != EBB_BATCH_PARTS)
            continue;
        ebb_type t = *ebb_value_of(g, v)->type;
        t.dims[s->axis] /= s->parts;
        EBB_TRY(ebb_value_set_type(g, v, &t));
        EBB_TRY(ebb_rows_mark(g, v, s->axis));
        s->part[v.i] = EBB_SCRATCH(s->e, ebb_value, 1);
        EBB_GOT(s->part[v.i]);
        s->part[v.i][0] = v;
    }
    return NULL;
}

static ebb_value whole_of(splitting *s, ebb_value v)
{
    static const int64_t flat = -1;
    const ebb_value part = s->part[v.i][0];
    ebb_type t = *ebb_value_of(s->g, part)->type;
    if (s->whole[v.i].i != 0)
        return s->whole[v.i];
    t.dims[0] *= s->parts;
    s->b.name = ebb_value_name(s->g, v);
    const ebb_value row = ebb_emit_reshape(&s->b, part, &flat, 1);
    ebb_with_int(&s->b, "ranks", s->parts);
    ebb_with_ints(&s->b, "shape", t.dims, (uint32_t)t.rank);
    return s->whole[v.i] = ebb_emit(&s->b, EBB_OP_UNSHARD, row);
}

/* Node n, which stays whole, reads what all processes have instead of its parts. */
static ebb_status join(splitting *s, ebb_node n)
{
    s->b.phase = (ebb_phase)ebb_node_of(s->g, n)->phase;
    for (uint32_t k = 0; k < ebb_node_of(s->g, n)->in_count; k++) {
        const ebb_value v = ebb_in(s->g, n, k);
        if (s->form[v.i].where != EBB_BATCH_PARTS)
            continue;
        const ebb_value whole = whole_of(s, v);
        EBB_TRY(s->b.status);
        EBB_TRY(ebb_node_set_input(s->g, n, k, whole));
    }
    return NULL;
}

static ebb_status rewrite(splitting *s)
{
    ebb_graph *g = s->g;
    ebb_node *list;
    EBB_TRY(list_nodes(s, &list));
    EBB_TRY(make_room(s, list));
    s->b = ebb_build_at(g, s->end, EBB_FORWARD, s->e->pass->name);
    const int64_t parts = s->spread ? 1 : s->parts;
    if (s->spread)
        EBB_TRY(take_own_rows(s));
    for (int64_t i = 0; i < parts; i++) {
        for (const ebb_node *n = list; n->i != 0; n++) {
            if (s->clones[n->i])
                EBB_TRY(ebb_batch_compute(s, *n, i));
            else if (i == 0 && s->joins[n->i])
                EBB_TRY(join(s, *n));
            if (i == 0 && !s->clones[n->i] && !s->later[n->i])
                ebb_node_move(g, *n, s->end);
        }
    }
    for (const ebb_node *n = list; n->i != 0; n++) {
        uint32_t outs = s->clones[n->i] ? ebb_node_of(g, *n)->out_count : 0;
        for (uint32_t k = 0; k < outs; k++) {
            ebb_value v = ebb_out(g, *n, k);
            if (v.i != 0 && s->needed[v.i] &&
                (s->form[v.i].where != EBB_BATCH_PARTS || is_output(s, v)))
                EBB_TRY(ebb_batch_put_together(s, v));
        }
    }
    size_t count = 0;
    while (list[count].i != 0)
        count++;
    while (count-- > 0)
        if (s->clones[list[count].i])
            ebb_edit_remove(s->e, list[count]);
    ebb_applied(s->e);
    return NULL;
}

bool ebb_batch_is_split(const ebb_edit *e)
{
    EBB_EACH_NODE(e->g, n) {
        const ebb_props *props = &ebb_node_of(e->g, n)->props;
        const char *pass = ebb_props_get(e->g, props, "ebb.pass");
        if (pass != NULL && strcmp(pass, e->pass->name) == 0 &&
            ebb_props_get(e->g, props, "ebb.part_of") != NULL)
            return true;
    }
    return false;
}

static ebb_status refuse(const splitting *s, ebb_node at, const char *why)
{
    const char *kind = s->spread ? "processes" : "parts", *pass = s->e->pass->name;
    if (at.i == 0) {
        const ebb_status status =
            ebb_error(EBB_UNSUPPORTED, "%s: the step cannot be split into %lld %s: %s", pass,
                      (long long)s->parts, kind, why);
        const long long more = (s->rows / s->parts + 1) * s->parts;
        return s->rows < 1 || s->rows % s->parts == 0
                   ? status
                   : ebb_hint(status, "it has %lld rows: %lld can be split so", (long long)s->rows,
                              more);
    }
    return ebb_error(EBB_UNSUPPORTED, "%s: the step cannot be split into %lld %s: %s: %s", pass,
                     (long long)s->parts, kind, ebb_node_label(s->g, at), why);
}

ebb_status ebb_batch_step(splitting *s)
{
    const char *why = NULL;
    ebb_node at;
    s->axis = (int)ebb_option_int(s->e, "axis");
    if (ebb_batch_is_split(s->e))
        return ebb_declined(s->e, EBB_NO_NODE, "the batch is split already");
    EBB_TRY(ebb_require_static(s->g));
    EBB_TRY(ebb_batch_analyse(s, &why, &at));
    if (why != NULL && ebb_option_int(s->e, "require") != 0)
        return refuse(s, at, why);
    if (why != NULL)
        return ebb_declined(s->e, at, why);
    ebb_found(s->e);
    return rewrite(s);
}
