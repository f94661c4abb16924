/* moved.c: what may go, what is alive with it away, the Stores, Fetches and Waits. */
#include "passes/budget/moved.h"

#include <stdlib.h>

#include "exec/weigh/pack.h"
#include "onnx/graph/stream.h"
#include "passes/pipeline.h"
#include "onnx/words/amount.h"

/* ---- who may go ---- */

static bool is_move(const ebb_graph *g, ebb_node n)
{
    return ebb_op_moves(ebb_node_of(g, n)->op);
}

static ebb_status read_list(ebb_moved *o)
{
    o->at = ebb_graph_positions(o->g, o->e->scratch);
    o->node = EBB_SCRATCH(o->e, ebb_node, o->g->node_count + (size_t)1);
    o->starts = EBB_SCRATCH(o->e, double, o->g->node_count + (size_t)1);
    EBB_GOT(o->at && o->node && o->starts);
    EBB_EACH_NODE(o->g, n) {
        const double ns =
            is_move(o->g, n) ? 0 : ebb_node_ns(o->g, n); // so that a second run sees the same
        o->starts[o->problem.count + 1] = o->starts[o->problem.count] + ns;
        o->node[o->problem.count++] = n;
    }
    o->problem.starts = o->starts;
    return ebb_saves_find(&o->saves, o->g, o->e->scratch);
}

/* Two readers follow each other: is the time between them the longest so far? */
static void meet_reader(const ebb_moved *o, ebb_away_site *s, uint32_t reader)
{
    const uint32_t before = s->gone; // the reader before this one, while sites are listed
    if (reader > before + 1 &&
        o->starts[reader] - o->starts[before + 1] > o->starts[s->next] - o->starts[s->last + 1]) {
        s->last = before;
        s->next = reader;
    }
    s->gone = reader;
}

static bool reads_bytes(const ebb_moved *o, ebb_node n, uint32_t slot)
{
    const ebb_op op = ebb_node_of(o->g, n)->op;
    return slot > 0 || !(ebb_op_has(op, EBB_VIEW) || ebb_op_has(op, EBB_SHAPE_OF_0));
}

static bool may_go(const ebb_moved *o, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(o->g, v);
    return info->producer.i != 0 && !o->saves.kept[v.i] &&
           ebb_same_value(ebb_saves_root(&o->saves, v), v) && ebb_stream_source(o->g, v).i == 0 &&
           !is_move(o->g, info->producer) && !ebb_value_is_moved(o->g, v);
}

static int in_order(const void *a, const void *b)
{
    const ebb_away_site *x = a, *y = b;
    if (x->next != y->next)
        return x->next < y->next ? -1 : 1;
    if (x->made != y->made)
        return x->made < y->made ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static ebb_status list_sites(ebb_moved *o, uint64_t least, const char *names)
{
    const ebb_graph *g = o->g;
    size_t count = 0, kept = 0;
    uint32_t *number = EBB_SCRATCH(o->e, uint32_t, g->value_count); // by value id: index + 1
    ebb_away_site *sites = EBB_SCRATCH(o->e, ebb_away_site, g->value_count);
    EBB_GOT(number && sites);
    EBB_EACH_VALUE(g, v) {
        if (ebb_value_of(g, v)->dead || !may_go(o, v))
            continue;
        const uint32_t made = o->at[ebb_value_of(g, v)->producer.i];
        const uint64_t bytes = (uint64_t)ebb_stored_bytes(g, v);
        if (bytes < least || bytes == 0 ||
            (names != NULL && !ebb_glob(names, ebb_value_name(g, v))))
            continue;
        sites[count] = (ebb_away_site){.tensor = v.i,
                                       .bytes = bytes,
                                       .made = made,
                                       .last = made,
                                       .next = made + 1,
                                       .gone = made};
        number[v.i] = (uint32_t)++count;
    }
    EBB_EACH_VALUE(g, v) // what a subgraph reads has readers that no list shows
        if ((ebb_value_of(g, v)->flags & EBB_IS_CAPTURED) != 0)
            number[ebb_saves_root(&o->saves, v).i] = 0;
    for (uint32_t p = 0; p < o->problem.count; p++) {
        const ebb_node_info *node = ebb_node_of(g, o->node[p]);
        for (uint32_t i = 0; i < node->in_count; i++) {
            const uint32_t k =
                node->in[i].i == 0 ? 0 : number[ebb_saves_root(&o->saves, node->in[i]).i];
            if (k != 0 && reads_bytes(o, o->node[p], i))
                meet_reader(o, &sites[k - 1], p);
        }
    }
    for (size_t i = 0; i < count; i++)
        if (number[sites[i].tensor] != 0 && sites[i].next > sites[i].last + 2)
            sites[kept++] = sites[i];
    if (kept > 1)
        qsort(sites, kept, sizeof *sites, in_order);
    o->problem.sites = sites;
    o->problem.site_count = kept;
    return NULL;
}

/* ---- which of them, and when ---- */

static ebb_status weigh(ebb_moved *o, const ebb_estimate *estimate)
{
    ebb_status status = ebb_pipeline_mark(o->g);
    if (status == NULL)
        status = ebb_memory_weigh(&o->memory, o->e->scratch, o->g,
                                  &(ebb_memory_terms){.workspace_bytes = estimate->workspace_bytes,
                                                      .align = estimate->align,
                                                      .maps = estimate->maps});
    ebb_pipeline_unmark(o->g);
    o->problem.live = o->memory.live;
    o->align = estimate->align;
    return status;
}

/* Where a site's tensor is parted in two; at one boundary between nodes what goes is gone before what comes
 * back is there. */
enum { TICKS = 4 };

ebb_status ebb_moved_pack(const ebb_moved *o, uint64_t enough, uint64_t *height)
{
    EBB_LOCAL_ARENA(scratch);
    const ebb_memory *m = &o->memory;
    const ebb_away_problem *p = &o->problem;
    size_t count = m->tensor_count;
    ebb_packing packing;
    ebb_interval *list = EBB_NEW(scratch, ebb_interval, count + p->site_count + 1);
    size_t *last = EBB_NEW(scratch, size_t, count + 1); // by tensor: its last piece
    EBB_GOT(list && last);
    for (size_t i = 0; i < count; i++) {
        const ebb_memory_tensor *t = &m->tensors[i];
        last[i] = i;
        list[i] =
            (ebb_interval){TICKS * t->birth + TICKS, TICKS * t->death + TICKS + 1, t->bytes, 0};
    }
    for (size_t i = 0; i < p->site_count; i++) {
        const ebb_away_site *s = &p->sites[i];
        const uint32_t tensor = m->tensor_of[s->tensor];
        if (s->place == 0 || tensor == 0)
            continue;
        ebb_interval *first = &list[last[tensor - 1]], *second = &list[count];
        last[tensor - 1] = count++;
        *second = *first;
        first->upper = TICKS * s->gone + TICKS - 2;
        second->lower = TICKS * s->back + TICKS - 2;
    }
    const ebb_pack_options options = {.alignment = o->align, .capacity = enough};
    EBB_TRY(ebb_pack(&packing, list, count, &options, scratch));
    *height = packing.height;
    return NULL;
}

ebb_status ebb_moved_look(const ebb_moved *o, ebb_moved_plan *plan)
{
    const ebb_away_problem *p = &o->problem;
    EBB_LOCAL_ARENA(scratch);
    ebb_away_weight weight = {0};
    ebb_status status = ebb_away_find(&weight, p, plan->aim, plan->all, scratch);
    plan->peak_bytes = weight.peak_bytes;
    plan->added_ns = weight.added_ns;
    memset(plan->away_bytes, 0, sizeof plan->away_bytes);
    for (const ebb_away_site *s = p->sites; s != p->sites + p->site_count; s++)
        if (s->place != 0)
            plan->away_bytes[s->place - 1] += ebb_away_bytes(&p->places[s->place - 1], s);
    return status;
}

/* ---- the change ---- */

/* What shows v, which is r or a view of it, once r has come back as shown[r]. */
static ebb_status show_again(ebb_moved *o, ebb_value v, ebb_node before)
{
    ebb_graph *g = o->g;
    if (o->shown[v.i].i != 0)
        return NULL;
    const ebb_node view = ebb_value_of(g, v)->producer;
    EBB_TRY(show_again(o, ebb_in(g, view, 0), before));
    ebb_value in[EBB_MAX_RANK] = {o->shown[ebb_in(g, view, 0).i]};
    const uint32_t ins = ebb_node_of(g, view)->in_count;
    for (uint32_t i = 1; i < ins && i < EBB_MAX_RANK; i++)
        in[i] = ebb_in(g, view, i);
    ebb_build b = ebb_edit_build(o->e, before, EBB_PHASE_NONE);
    ebb_with_attrs_of(&b, view);
    o->shown[v.i] = ebb_emit_list(&b, ebb_node_of(g, view)->op, in, ins);
    return b.status;
}

/* Readers behind the gap read what came back. */
static ebb_status redirect(ebb_moved *o, const ebb_away_site *s, ebb_value back, ebb_node first)
{
    ebb_graph *g = o->g;
    const ebb_value root = {s->tensor};
    o->shown[root.i] = back;
    for (uint32_t p = s->next; p < o->problem.count; p++) {
        const ebb_node n = o->node[p];
        for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
            const ebb_value v = ebb_in(g, n, i);
            if (v.i == 0 || !ebb_same_value(ebb_saves_root(&o->saves, v), root))
                continue;
            EBB_TRY(show_again(o, v, first));
            EBB_TRY(ebb_node_set_input(g, n, i, o->shown[v.i]));
            if (i == 0 && ebb_op_has(ebb_node_of(g, n)->op, EBB_VIEW))
                o->shown[ebb_out(g, n, 0).i] = ebb_out(g, n, 0); // it shows what came back
        }
    }
    return NULL;
}

typedef struct moved {
    ebb_value stored, away, fetched;
} moved;

/* All Stores, then all Waits for them, then what comes back: at one place what frees memory goes first. */
ebb_status ebb_moved_apply(ebb_moved *o)
{
    const ebb_away_problem *q = &o->problem;
    moved *list = EBB_SCRATCH(o->e, moved, q->site_count + 1);
    o->shown = EBB_SCRATCH(o->e, ebb_value, o->g->value_count);
    EBB_GOT(list && o->shown);
    for (int stage = 0; stage < 4; stage++)
        for (size_t i = 0; i < q->site_count; i++) {
            const ebb_away_site *s = &q->sites[i];
            const ebb_value root = {s->tensor};
            moved *m = &list[i];
            if (s->place == 0)
                continue;
            const uint32_t p[4] = {s->made + 1, s->gone, s->back, s->next};
            const ebb_node before = o->node[p[stage]];
            ebb_build b = ebb_edit_build(o->e, before, EBB_PHASE_NONE);
            b.name = ebb_value_name(o->g, root);
            if (stage == 0) {
                ebb_with_string(&b, "place", ebb_place_name(o->places->place[s->place - 1]));
                m->stored = ebb_emit(&b, EBB_OP_STORE, root);
            } else if (stage == 1) {
                m->away = ebb_emit(&b, EBB_OP_WAIT, m->stored, root);
            } else if (stage == 2) {
                m->fetched = ebb_emit(&b, EBB_OP_FETCH, m->away);
            } else {
                const ebb_value back = ebb_emit(&b, EBB_OP_WAIT, m->fetched, m->away);
                EBB_TRY(b.status);
                EBB_TRY(redirect(o, s, back, before));
                ebb_found(o->e);
                ebb_applied(o->e);
            }
            EBB_TRY(b.status);
        }
    return NULL;
}

/* ---- a plan ---- */

ebb_status ebb_moved_begin(ebb_moved *o, ebb_edit *e, const ebb_moved_places *places,
                           uint64_t least, const char *names, const ebb_estimate *estimate)
{
    *o = (ebb_moved){.e = e,
                     .g = e->g,
                     .places = places,
                     .problem.node_ns = ebb_roofline_ns(e->g, 0, 0),
                     .problem.place_count = places->count};
    for (size_t k = 0; k < places->count; k++) {
        ebb_away_place *to = &o->problem.places[k];
        to->room = places->room[k];
        to->align = places->place[k] == EBB_PLACE_DISK ? EBB_DISK_ALIGN : EBB_ALIGN;
        for (int back = 0; back < 2; back++)
            to->way[back] = ebb_move_time_of(e->g, 1, places->place[k], back != 0);
    }
    EBB_TRY(read_list(o));
    EBB_TRY(list_sites(o, least, names));
    EBB_TRY(weigh(o, estimate));
    return ebb_away_rule_make(&o->problem.rule, &o->problem, e->scratch);
}

static ebb_status try(const ebb_moved *o, const char *backend, ebb_graph *g, ebb_arena *arena,
                      uint64_t *bytes, double *ns)
{
    ebb_report report = {.pass = o->e->pass->name};
    ebb_edit edit = *o->e;
    ebb_moved trial = *o;
    ebb_estimate after;
    edit.g = trial.g = g;
    edit.report = &report;
    edit.scratch = edit.keep = arena;
    trial.e = &edit;
    EBB_TRY(ebb_moved_apply(&trial));
    (void)ebb_graph_sweep(g);
    EBB_TRY(ebb_trial_measure(&after, arena, g, backend, 0));
    *bytes = after.arena_bytes; // whether or not the device has kernels for moves
    *ns = after.ns;
    return NULL;
}

ebb_status ebb_moved_try(const ebb_moved *o, const char *backend, uint64_t *bytes, double *ns)
{
    ebb_model *copy = NULL;
    EBB_LOCAL_ARENA(arena);
    EBB_TRY(ebb_model_copy(&copy, o->g->model));
    ebb_status status = try(o, backend, copy->graph, arena, bytes, ns);
    ebb_model_free(copy);
    return status;
}

const char *ebb_moved_text(const ebb_moved *o)
{
    const char *text = "";
    for (uint32_t k = 1; k <= o->problem.place_count && text != NULL; k++) {
        uint64_t bytes = 0;
        size_t tensors = 0;
        for (size_t i = 0; i < o->problem.site_count; i++)
            if (o->problem.sites[i].place == k) {
                bytes += o->problem.sites[i].bytes;
                tensors++;
            }
        text = ebb_arena_printf(o->e->scratch, "%s%s%zu tensors, %s a step, wait on the %s", text,
                                k > 1 ? "; " : "", tensors, ebb_bytes(bytes).text,
                                ebb_place_name(o->places->place[k - 1]));
    }
    return text;
}
