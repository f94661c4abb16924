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

/* A tensor, and the longest times between two of its readers, in their order. */
typedef struct waits {
    ebb_value tensor;
    uint64_t bytes;
    uint32_t made, read; /* and the last that reads it, so far */
    uint32_t last[EBB_AWAY_GAPS], next[EBB_AWAY_GAPS];
    uint32_t count;
} waits;

static double time_of(const ebb_moved *o, const waits *w, uint32_t gap)
{
    return o->starts[w->next[gap]] - o->starts[w->last[gap] + 1];
}

/* Two readers follow each other: where the time between them is longer than the shortest so far, that one goes. */
static void meet_reader(const ebb_moved *o, waits *w, uint32_t reader)
{
    const uint32_t before = w->read;
    w->read = reader;
    if (reader <= before + 2)
        return;
    if (w->count == EBB_AWAY_GAPS) {
        uint32_t shortest = 0;
        for (uint32_t k = 1; k < EBB_AWAY_GAPS; k++)
            if (time_of(o, w, k) < time_of(o, w, shortest))
                shortest = k;
        if (o->starts[reader] - o->starts[before + 1] <= time_of(o, w, shortest))
            return;
        w->count--;
        for (uint32_t k = shortest; k < w->count; k++) {
            w->last[k] = w->last[k + 1];
            w->next[k] = w->next[k + 1];
        }
    }
    w->last[w->count] = before;
    w->next[w->count++] = reader;
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

/* Sites of one tensor lead to each other. */
static ebb_status link_sites(ebb_moved *o)
{
    ebb_away_site *sites = o->problem.sites;
    uint32_t *first = EBB_SCRATCH(o->e, uint32_t, o->g->value_count); // by tensor: index + 1
    uint32_t *behind = EBB_SCRATCH(o->e, uint32_t, o->g->value_count);
    EBB_GOT(first && behind);
    for (uint32_t i = 0; i < o->problem.site_count; i++) {
        const uint32_t tensor = sites[i].tensor;
        if (first[tensor] == 0)
            first[tensor] = i + 1;
        else
            sites[behind[tensor]].ring = i;
        behind[tensor] = i;
        sites[i].ring = first[tensor] - 1;
    }
    return NULL;
}

static ebb_status list_sites(ebb_moved *o, uint64_t least, const char *names)
{
    const ebb_graph *g = o->g;
    size_t count = 0, sites = 0;
    uint32_t *number = EBB_SCRATCH(o->e, uint32_t, g->value_count); // by value id: index + 1
    waits *list = EBB_SCRATCH(o->e, waits, g->value_count);
    EBB_GOT(number && list);
    EBB_EACH_VALUE(g, v) {
        if (ebb_value_of(g, v)->dead || !may_go(o, v))
            continue;
        const uint32_t made = o->at[ebb_value_of(g, v)->producer.i];
        const uint64_t bytes = (uint64_t)ebb_stored_bytes(g, v);
        if (bytes < least || bytes == 0 ||
            (names != NULL && !ebb_glob(names, ebb_value_name(g, v))))
            continue;
        list[count] = (waits){.tensor = v, .bytes = bytes, .made = made, .read = made};
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
                meet_reader(o, &list[k - 1], p);
        }
    }
    o->problem.sites = EBB_SCRATCH(o->e, ebb_away_site, EBB_AWAY_GAPS * count + 1);
    EBB_GOT(o->problem.sites);
    for (const waits *w = list; w != list + count; w++)
        for (uint32_t k = 0; k < w->count && number[w->tensor.i] != 0; k++)
            o->problem.sites[sites++] = (ebb_away_site){.tensor = w->tensor.i,
                                                        .bytes = w->bytes,
                                                        .made = w->made,
                                                        .last = w->last[k],
                                                        .next = w->next[k]};
    if (sites > 1)
        qsort(o->problem.sites, sites, sizeof *o->problem.sites, in_order);
    o->problem.site_count = sites;
    return link_sites(o);
}

/* ---- which of them, and when ---- */

static ebb_status weigh(ebb_moved *o, const ebb_estimate *estimate)
{
    EBB_TRY(ebb_trial_memory(&o->memory, o->e->scratch, o->g, estimate));
    o->problem.live = o->memory.live;
    o->align = estimate->align;
    return NULL;
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
    ebb_away_problem ruled = *p;
    if (plan->once && o->once.site != NULL)
        ruled.rule = o->once;
    ebb_status status = ebb_away_find(&weight, &ruled, plan->aim, plan->all, scratch);
    plan->peak_bytes = weight.peak_bytes;
    plan->added_ns = weight.added_ns;
    memset(plan->away_bytes, 0, sizeof plan->away_bytes);
    for (uint32_t i = 0; i < p->site_count; i++) {
        const ebb_away_site *s = &p->sites[i];
        if (ebb_away_writes(p->sites, i))
            plan->away_bytes[s->place - 1] += ebb_away_bytes(&p->places[s->place - 1], s);
    }
    return status;
}

/* ---- the change ---- */

/* Who reads the bytes of what waits elsewhere, tensor by tensor in their order, as the graph was before. */
typedef struct reading {
    ebb_value v;
    uint32_t at, slot;
    uint32_t behind; /* index + 1 of the tensor's next reading */
} reading;

typedef struct changes {
    ebb_moved *o;
    reading *readings;
    uint32_t *first;  /* by value id of a tensor: index + 1 of its next reading */
    ebb_value *of;    /* by value id of a view: what it was a view of */
    ebb_value *shown; /* by value id: what shows it after it came back, */
    uint32_t *site;   /* and for which site: index + 1 */
} changes;

static ebb_status list_readings(changes *c)
{
    const ebb_graph *g = c->o->g;
    const ebb_away_problem *q = &c->o->problem;
    ebb_arena *scratch = c->o->e->scratch;
    size_t count = 0, inputs = 0;
    c->first = EBB_NEW(scratch, uint32_t, g->value_count);
    c->site = EBB_NEW(scratch, uint32_t, g->value_count);
    c->of = EBB_NEW(scratch, ebb_value, g->value_count);
    c->shown = EBB_NEW(scratch, ebb_value, g->value_count);
    bool *goes = EBB_NEW(scratch, bool, g->value_count);
    EBB_GOT(c->first && c->site && c->of && c->shown && goes);
    for (size_t i = 0; i < q->site_count; i++)
        goes[q->sites[i].tensor] = goes[q->sites[i].tensor] || q->sites[i].place != 0;
    for (uint32_t p = 0; p < q->count; p++)
        inputs += ebb_node_of(g, c->o->node[p])->in_count;
    c->readings = EBB_NEW(scratch, reading, inputs + 1);
    EBB_GOT(c->readings);
    for (uint32_t p = q->count; p-- > 0;) {
        const ebb_node_info *node = ebb_node_of(g, c->o->node[p]);
        if (ebb_op_has(node->op, EBB_VIEW) && node->out_count > 0 && node->out[0].i != 0)
            c->of[node->out[0].i] = ebb_in(g, c->o->node[p], 0);
        for (uint32_t i = node->in_count; i-- > 0;) {
            const ebb_value root =
                node->in[i].i != 0 ? ebb_saves_root(&c->o->saves, node->in[i]) : EBB_NO_VALUE;
            if (root.i == 0 || !goes[root.i])
                continue;
            c->readings[count] = (reading){node->in[i], p, i, c->first[root.i]};
            c->first[root.i] = (uint32_t)++count;
        }
    }
    return NULL;
}

static void show(changes *c, uint32_t site, ebb_value v, ebb_value by)
{
    c->shown[v.i] = by;
    c->site[v.i] = site + 1;
}

/* What shows v, which is a view of what has come back for this site. */
static ebb_status show_again(changes *c, uint32_t site, ebb_value v, ebb_node before)
{
    ebb_graph *g = c->o->g;
    if (c->site[v.i] == site + 1)
        return NULL;
    const ebb_node view = ebb_value_of(g, v)->producer;
    EBB_TRY(show_again(c, site, c->of[v.i], before));
    ebb_value in[EBB_MAX_RANK] = {c->shown[c->of[v.i].i]};
    const uint32_t ins = ebb_node_of(g, view)->in_count;
    for (uint32_t i = 1; i < ins && i < EBB_MAX_RANK; i++)
        in[i] = ebb_in(g, view, i);
    ebb_build b = ebb_edit_build(c->o->e, before, EBB_PHASE_NONE);
    ebb_with_attrs_of(&b, view);
    show(c, site, v, ebb_emit_list(&b, ebb_node_of(g, view)->op, in, ins));
    return b.status;
}

/* The tensor's site behind this one that is away; the sites' count: none. */
static uint32_t site_behind(const ebb_away_problem *q, uint32_t site)
{
    uint32_t k = q->sites[site].ring;
    while (k > site && q->sites[k].place == 0)
        k = q->sites[k].ring;
    return k > site ? k : (uint32_t)q->site_count;
}

/* Readers behind this time and before the next read what came back. */
static ebb_status redirect(changes *c, uint32_t site, ebb_value back, ebb_node before)
{
    ebb_graph *g = c->o->g;
    const ebb_away_problem *q = &c->o->problem;
    const uint32_t tensor = q->sites[site].tensor, next = site_behind(q, site);
    const uint32_t end = next < q->site_count ? q->sites[next].next : q->count;
    uint32_t *first = &c->first[tensor];
    show(c, site, (ebb_value){tensor}, back);
    while (*first != 0 && c->readings[*first - 1].at < q->sites[site].next)
        *first = c->readings[*first - 1].behind;
    for (; *first != 0 && c->readings[*first - 1].at < end;
         *first = c->readings[*first - 1].behind) {
        const reading *r = &c->readings[*first - 1];
        const ebb_node n = c->o->node[r->at];
        EBB_TRY(show_again(c, site, r->v, before));
        EBB_TRY(ebb_node_set_input(g, n, r->slot, c->shown[r->v.i]));
        if (r->slot == 0 && ebb_op_has(ebb_node_of(g, n)->op, EBB_VIEW))
            show(c, site, ebb_out(g, n, 0), ebb_out(g, n, 0)); // it shows what came back
    }
    return NULL;
}

typedef struct moved { /* by site; those of a tensor have one `away` */
    ebb_value stored, away, fetched;
} moved;

static ebb_status move(changes *c, moved *list, uint32_t site, int stage)
{
    ebb_moved *o = c->o;
    const ebb_away_site *s = &o->problem.sites[site];
    const ebb_value root = {s->tensor};
    moved *m = &list[site];
    const uint32_t p[4] = {s->made + 1, s->gone, s->back, s->next};
    const ebb_node before = o->node[p[stage]];
    ebb_build b = ebb_edit_build(o->e, before, EBB_PHASE_NONE);
    b.name = ebb_value_name(o->g, root);
    if (stage == 0) {
        ebb_with_string(&b, "place", ebb_place_name(o->places->place[s->place - 1]));
        m->stored = ebb_emit(&b, EBB_OP_STORE, root);
    } else if (stage == 1) {
        m->away = ebb_emit(&b, EBB_OP_WAIT, m->stored, root);
        for (uint32_t k = s->ring; k != site; k = o->problem.sites[k].ring)
            list[k].away = m->away;
    } else if (stage == 2) {
        m->fetched = ebb_emit(&b, EBB_OP_FETCH, m->away);
    } else {
        const ebb_value back = ebb_emit(&b, EBB_OP_WAIT, m->fetched, m->away);
        EBB_TRY(b.status);
        EBB_TRY(redirect(c, site, back, before));
        ebb_found(o->e);
        ebb_applied(o->e);
    }
    return b.status;
}

/* All Stores, then all Waits for them, then what comes back: at one place what frees memory goes first. */
ebb_status ebb_moved_apply(ebb_moved *o)
{
    const ebb_away_problem *q = &o->problem;
    changes c = {.o = o};
    moved *list = EBB_SCRATCH(o->e, moved, q->site_count + 1);
    EBB_GOT(list);
    EBB_TRY(list_readings(&c));
    for (int stage = 0; stage < 4; stage++)
        for (uint32_t i = 0; i < q->site_count; i++)
            if (stage < 2 ? ebb_away_writes(q->sites, i) : q->sites[i].place != 0)
                EBB_TRY(move(&c, list, i, stage));
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
    EBB_TRY(ebb_away_sort(&o->problem, e->scratch));
    EBB_TRY(ebb_away_rule_make(&o->problem.rule, &o->problem, false, e->scratch));
    for (uint32_t i = 0; i < o->problem.site_count; i++)
        if (o->problem.sites[i].ring != i)
            return ebb_away_rule_make(&o->once, &o->problem, true, e->scratch);
    return NULL;
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
        for (uint32_t i = 0; i < o->problem.site_count; i++)
            if (o->problem.sites[i].place == k && ebb_away_writes(o->problem.sites, i)) {
                bytes += o->problem.sites[i].bytes;
                tensors++;
            }
        text = ebb_arena_printf(o->e->scratch, "%s%s%zu tensors, %s a step, wait on the %s", text,
                                k > 1 ? "; " : "", tensors, ebb_bytes(bytes).text,
                                ebb_place_name(o->places->place[k - 1]));
    }
    return text;
}
