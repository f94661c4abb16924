/* moved.c: what may go, and what is alive with it away. */
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

/* Moves of states may go from where they are: what would be put before them is put before what is behind them. */
static ebb_status list_before(ebb_moved *o)
{
    bool *goes = EBB_SCRATCH(o->e, bool, o->g->node_count + (size_t)1);
    o->before = EBB_SCRATCH(o->e, ebb_node, o->g->node_count + (size_t)1);
    EBB_GOT(goes && o->before);
    for (size_t k = 0; o->states != NULL && k < o->states->stay_count; k++) {
        goes[o->states->stays[k].fetch.i] = true;
        goes[o->states->stays[k].written.i] = true;
    }
    goes[0] = false;
    for (uint32_t p = o->problem.count; p-- > 0;)
        o->before[p] = goes[o->node[p].i] ? o->before[p + 1] : o->node[p];
    return NULL;
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
    EBB_TRY(list_before(o));
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

/* The sites of what lies elsewhere from step to step. */
static void add_states(ebb_moved *o)
{
    const uint32_t place = (uint32_t)o->places->count;
    for (size_t k = 0; o->states != NULL && k < o->states->stay_count; k++) {
        const ebb_away_stay *s = &o->states->stays[k];
        const ebb_node split = ebb_value_of(o->g, ebb_in(o->g, s->fetch, 0))->producer;
        o->problem.sites[o->problem.site_count++] =
            (ebb_away_site){.tensor = ebb_out(o->g, s->fetch, 0).i,
                            .bytes = s->bytes,
                            .last = split.i != 0 ? o->at[split.i] : UINT32_MAX,
                            .next = o->at[s->fetch.i],
                            .lasts = EBB_AWAY_RETURNS,
                            .place = place};
        if (s->store.i == 0)
            continue;
        const ebb_value_info *written = ebb_value_of(o->g, ebb_out(o->g, s->written, 0));
        o->problem.sites[o->problem.site_count++] = (ebb_away_site){
            .tensor = ebb_in(o->g, s->store, 0).i,
            .bytes = s->bytes,
            .made = o->at[s->store.i] - 1,
            .last = o->at[s->written.i],
            .next = written->use_count > 0 ? o->at[written->uses[0].node.i] : o->problem.count,
            .lasts = EBB_AWAY_LEAVES,
            .place = place};
    }
}

static ebb_status list_sites(ebb_moved *o, uint64_t least, const char *names)
{
    const ebb_graph *g = o->g;
    size_t count = 0;
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
    const size_t stays = o->states != NULL ? o->states->stay_count : 0;
    o->problem.sites = EBB_SCRATCH(o->e, ebb_away_site, EBB_AWAY_GAPS * count + 2 * stays + 1);
    EBB_GOT(o->problem.sites);
    for (const waits *w = list; w != list + count; w++)
        for (uint32_t k = 0; k < w->count && number[w->tensor.i] != 0; k++)
            o->problem.sites[o->problem.site_count++] = (ebb_away_site){.tensor = w->tensor.i,
                                                                        .bytes = w->bytes,
                                                                        .made = w->made,
                                                                        .last = w->last[k],
                                                                        .next = w->next[k]};
    add_states(o);
    if (o->problem.site_count > 1)
        qsort(o->problem.sites, o->problem.site_count, sizeof *o->problem.sites, in_order);
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
        if (s->lasts == EBB_AWAY_RETURNS && TICKS * s->back + TICKS - 2 < first->lower)
            first->lower = TICKS * s->back + TICKS - 2;
        if (s->lasts == EBB_AWAY_LEAVES && TICKS * s->gone + TICKS - 2 > first->upper)
            first->upper = TICKS * s->gone + TICKS - 2;
        if (s->lasts != EBB_AWAY_STEP)
            continue;
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
    if (plan->tight)
        ruled.fill = 1;
    ebb_status status = ebb_away_find(&weight, &ruled, plan->aim, plan->all, scratch);
    plan->peak_bytes = weight.peak_bytes;
    plan->added_ns = weight.added_ns - o->states_ns;
    memset(plan->away_bytes, 0, sizeof plan->away_bytes);
    for (uint32_t i = 0; i < p->site_count; i++) {
        const ebb_away_site *s = &p->sites[i];
        if (s->lasts == EBB_AWAY_STEP && ebb_away_writes(p->sites, i))
            plan->away_bytes[s->place - 1] += ebb_away_bytes(&p->places[s->place - 1], s);
    }
    return status;
}

/* ---- a plan ---- */

ebb_status ebb_moved_begin(ebb_moved *o, ebb_edit *e, const ebb_moved_places *places,
                           uint64_t least, const char *names, const ebb_estimate *estimate,
                           const ebb_away_states *states)
{
    ebb_away_weight weight;
    *o = (ebb_moved){.e = e,
                     .g = e->g,
                     .places = places,
                     .states = states,
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
    if (states != NULL && states->stay_count > 0) {
        o->problem.fill = 1;
        EBB_TRY(ebb_away_weigh(&weight, &o->problem, 0, e->scratch));
        o->problem.fill = 0;
        o->states_ns = weight.added_ns;
    }
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
            if (o->problem.sites[i].place == k && o->problem.sites[i].lasts == EBB_AWAY_STEP &&
                ebb_away_writes(o->problem.sites, i)) {
                bytes += o->problem.sites[i].bytes;
                tensors++;
            }
        text = ebb_arena_printf(o->e->scratch, "%s%s%zu tensors, %s a step, wait on the %s", text,
                                k > 1 ? "; " : "", tensors, ebb_bytes(bytes).text,
                                ebb_place_name(o->places->place[k - 1]));
    }
    return text;
}
