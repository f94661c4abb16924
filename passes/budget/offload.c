/* offload: what waits long for its next reader waits in another place; what=state: offload_state.c.
 *
 *   before   a = F(x)  b = G(a)  ...                     ...  db = G'(a)       a waits in the arena
 *   after    a = F(x)  s = Store(a)  b = G(a)  k = Wait(s, a)  ...
 *                                    ...  f = Fetch(k)  ...  a' = Wait(f, k)  db = G'(a')
 *
 * Which: where the arena is fullest, that tensor whose next reader is farthest in time, until the peak keeps
 * to the budget; without one, every tensor whose moves fit between its readers. When: a move is waited for as
 * late, and fetched as early, as it takes by the rates of the device (kernels/device.h), each behind those
 * that use the same way; but never so that the peak rises for it.
 *
 * The peaks are those of the ruler, with memory shared as the alias pass shares it. A plan is taken only if
 * the arena, packed, keeps to the budget.
 *
 * Exact: bytes are moved, and read again as they were.
 *
 * Declines for what lives to the end of the step, what a subgraph reads, and what is smaller than `least`.
 *
 * Paper: Rhu et al., "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network
 * design", MICRO 2016; the rule of the farthest reader is Belady's, 1966.
 */
#include <stdlib.h>

#include "onnx/graph/stream.h"
#include "passes/budget/offload.h"
#include "passes/budget/trial.h"
#include "passes/common.h"
#include "passes/passes.h"

enum { TRIES = 12 };

typedef struct site { /* a tensor that may go: positions in the list of nodes */
    ebb_value root;
    uint64_t bytes;
    double move_ns;
    uint32_t made;       /* by this node */
    uint32_t last, next; /* the two readers between which it is not needed for longest */
    uint32_t gone,
        back; /* it is away from behind `gone` until before `back`: where it is waited for, and
                               where it is fetched */
    bool taken;
} site;

typedef struct offload {
    ebb_edit *e;
    ebb_graph *g;
    ebb_place place;
    uint64_t room; /* left there, bytes */
    ebb_saves saves;
    ebb_node *node; /* by position */
    double *starts; /* by position: when the node would start; one more for the end */
    uint32_t *at;   /* by node id: position */
    uint32_t count;
    uint64_t *live; /* by position, of the arena */
    site *sites;
    size_t site_count;
    ebb_value *shown; /* by value id: what shows it after it came back */
} offload;

/* ---- who may go ---- */

static bool is_move(const ebb_graph *g, ebb_node n)
{
    return ebb_op_moves(ebb_node_of(g, n)->op);
}

static ebb_status read_list(offload *o)
{
    o->at = ebb_graph_positions(o->g, o->e->scratch);
    o->node = EBB_SCRATCH(o->e, ebb_node, o->g->node_count + (size_t)1);
    o->starts = EBB_SCRATCH(o->e, double, o->g->node_count + (size_t)1);
    if (o->at == NULL || o->node == NULL || o->starts == NULL)
        return ebb_error_memory();
    EBB_EACH_NODE(o->g, n) {
        const double ns =
            is_move(o->g, n) ? 0 : ebb_node_ns(o->g, n); // so that a second run sees the same
        o->starts[o->count + 1] = o->starts[o->count] + ns;
        o->node[o->count++] = n;
    }
    return ebb_saves_find(&o->saves, o->g, o->e->scratch);
}

/* Two readers follow each other: is the time between them the longest so far? */
static void meet_reader(const offload *o, site *s, uint32_t reader)
{
    const uint32_t before = s->gone; // the reader before this one, while sites are listed
    if (reader > before + 1 &&
        o->starts[reader] - o->starts[before + 1] > o->starts[s->next] - o->starts[s->last + 1]) {
        s->last = before;
        s->next = reader;
    }
    s->gone = reader;
}

static bool reads_bytes(const offload *o, ebb_node n, uint32_t slot)
{
    const ebb_op op = ebb_node_of(o->g, n)->op;
    return slot > 0 || !(ebb_op_has(op, EBB_VIEW) || ebb_op_has(op, EBB_SHAPE_OF_0));
}

static bool may_go(const offload *o, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(o->g, v);
    for (size_t i = 0; i < info->use_count; i++)
        if (is_move(o->g, info->uses[i].node))
            return false;
    return info->producer.i != 0 && !o->saves.kept[v.i] &&
           ebb_same_value(ebb_saves_root(&o->saves, v), v) && ebb_stream_source(o->g, v).i == 0 &&
           !is_move(o->g, info->producer);
}

static ebb_status list_sites(offload *o, uint64_t least, const char *names)
{
    const ebb_graph *g = o->g;
    uint32_t *number = EBB_SCRATCH(o->e, uint32_t, g->value_count); // by value id: index + 1
    o->sites = EBB_SCRATCH(o->e, site, g->value_count);
    if (number == NULL || o->sites == NULL)
        return ebb_error_memory();
    EBB_EACH_VALUE(g, v) {
        if (ebb_value_of(g, v)->dead || !may_go(o, v))
            continue;
        const uint32_t made = o->at[ebb_value_of(g, v)->producer.i];
        const uint64_t bytes = (uint64_t)ebb_stored_bytes(g, v);
        if (bytes < least || bytes == 0 ||
            (names != NULL && !ebb_glob(names, ebb_value_name(g, v))))
            continue;
        o->sites[o->site_count] =
            (site){.root = v,
                   .bytes = bytes,
                   .move_ns = ebb_move_time_of(g, (double)bytes, o->place, false).beside,
                   .made = made,
                   .last = made,
                   .next = made + 1,
                   .gone = made};
        number[v.i] = (uint32_t)++o->site_count;
    }
    EBB_EACH_VALUE(g, v) // what a subgraph reads has readers that no list shows
        if ((ebb_value_of(g, v)->flags & EBB_IS_CAPTURED) != 0)
            number[ebb_saves_root(&o->saves, v).i] = 0;
    for (uint32_t p = 0; p < o->count; p++) {
        const ebb_node_info *node = ebb_node_of(g, o->node[p]);
        for (uint32_t i = 0; i < node->in_count; i++) {
            const uint32_t k =
                node->in[i].i == 0 ? 0 : number[ebb_saves_root(&o->saves, node->in[i]).i];
            if (k != 0 && reads_bytes(o, o->node[p], i))
                meet_reader(o, &o->sites[k - 1], p);
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < o->site_count; i++) {
        site *s = &o->sites[i];
        if (number[s->root.i] == 0 || s->next <= s->last + 2)
            continue;
        s->gone = s->last + 1; // the Wait stands before this node ...
        s->back = s->next;     // ... and the Fetch before that
        o->sites[kept++] = *s;
    }
    o->site_count = kept;
    return NULL;
}

/* ---- which of them, and when ---- */

static ebb_status weigh(offload *o, const ebb_estimate *estimate)
{
    ebb_memory memory;
    ebb_status status = ebb_pipeline_mark(o->g);
    if (status == NULL)
        status = ebb_memory_weigh(&memory, o->e->scratch, o->g,
                                  &(ebb_memory_terms){.workspace_bytes = estimate->workspace_bytes,
                                                      .align = estimate->align,
                                                      .maps = estimate->maps});
    ebb_pipeline_unmark(o->g);
    EBB_TRY(status);
    o->live = memory.live;
    return NULL;
}

/* What the tensor takes in its place. */
static uint64_t away_bytes(const offload *o, const site *s)
{
    const uint64_t align = o->place == EBB_PLACE_DISK ? EBB_DISK_ALIGN : EBB_ALIGN;
    return (s->bytes + align - 1) / align * align;
}

/* It is not in the arena while the nodes from `gone` to `back` - 1 run. */
static void take(offload *o, site *s)
{
    s->taken = true;
    o->room -= away_bytes(o, s);
    for (uint32_t p = s->gone; p < s->back; p++)
        o->live[p] -= s->bytes < o->live[p] ? s->bytes : o->live[p];
}

static uint32_t fullest(const offload *o)
{
    uint32_t at = 0;
    for (uint32_t p = 1; p < o->count; p++)
        if (o->live[p] > o->live[at])
            at = p;
    return at;
}

/* The one that is away at p and needed again last; NULL: none is left. */
static site *farthest(offload *o, uint32_t p)
{
    site *best = NULL;
    for (site *s = o->sites; s != o->sites + o->site_count; s++)
        if (!s->taken && away_bytes(o, s) <= o->room && s->gone <= p && p < s->back &&
            (best == NULL || s->next > best->next ||
             (s->next == best->next && s->bytes > best->bytes)))
            best = s;
    return best;
}

static void choose(offload *o, uint64_t budget)
{
    while (o->count > 0) {
        const uint32_t p = fullest(o);
        site *s = o->live[p] > budget ? farthest(o, p) : NULL;
        if (s == NULL)
            return;
        take(o, s);
    }
}

static void choose_all(offload *o)
{
    for (site *s = o->sites; s != o->sites + o->site_count; s++)
        if (away_bytes(o, s) <= o->room &&
            o->starts[s->next] - o->starts[s->last + 1] > 2 * s->move_ns)
            take(o, s);
}

static int by_made(const void *a, const void *b)
{
    const site *x = a, *y = b;
    return (x->made > y->made) - (x->made < y->made);
}

static int by_next(const void *a, const void *b)
{
    const site *x = a, *y = b;
    if (x->next != y->next)
        return x->next < y->next ? -1 : 1;
    return (x->made > y->made) - (x->made < y->made);
}

/* Waits as late as a write takes, behind those before it. */
static void place_waits(offload *o, uint64_t most)
{
    double idle = 0;
    if (o->site_count > 1)
        qsort(o->sites, o->site_count, sizeof *o->sites, by_made);
    for (site *s = o->sites; s != o->sites + o->site_count; s++) {
        if (!s->taken)
            continue;
        const double begins = o->starts[s->made + 1];
        idle = (idle > begins ? idle : begins) + s->move_ns;
        for (; s->gone + 1 < s->back && o->starts[s->gone] < idle &&
               o->live[s->gone] + s->bytes <= most;
             s->gone++)
            o->live[s->gone] += s->bytes;
    }
}

/* Fetches as early as a read takes, so that those after it are not late. */
static void place_fetches(offload *o, uint64_t most)
{
    double busy = o->starts[o->count];
    if (o->site_count > 1)
        qsort(o->sites, o->site_count, sizeof *o->sites, by_next);
    for (site *s = o->sites + o->site_count; s-- != o->sites;) {
        if (!s->taken)
            continue;
        const double needed = o->starts[s->next];
        busy = (busy < needed ? busy : needed) - s->move_ns;
        for (; s->back > s->gone + 1 && o->starts[s->back] > busy &&
               o->live[s->back - 1] + s->bytes <= most;
             s->back--)
            o->live[s->back - 1] += s->bytes;
    }
}

/* ---- the change ---- */

/* What shows v, which is r or a view of it, once r has come back as shown[r]. */
static ebb_status show_again(offload *o, ebb_value v, ebb_node before)
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
static ebb_status redirect(offload *o, const site *s, ebb_value back, ebb_node first)
{
    ebb_graph *g = o->g;
    o->shown[s->root.i] = back;
    for (uint32_t p = s->next; p < o->count; p++)
        for (uint32_t i = 0; i < ebb_node_of(g, o->node[p])->in_count; i++) {
            const ebb_value v = ebb_in(g, o->node[p], i);
            if (v.i == 0 || !ebb_same_value(ebb_saves_root(&o->saves, v), s->root))
                continue;
            EBB_TRY(show_again(o, v, first));
            EBB_TRY(ebb_node_set_input(g, o->node[p], i, o->shown[v.i]));
        }
    return NULL;
}

typedef struct moved {
    ebb_value stored, away, fetched;
} moved;

/* All Stores, then all Waits for them, then what comes back: at one place what frees memory goes first. */
static ebb_status apply(offload *o)
{
    moved *list = EBB_SCRATCH(o->e, moved, o->site_count + 1);
    o->shown = EBB_SCRATCH(o->e, ebb_value, o->g->value_count);
    if (list == NULL || o->shown == NULL)
        return ebb_error_memory();
    for (int stage = 0; stage < 4; stage++)
        for (size_t i = 0; i < o->site_count; i++) {
            const site *s = &o->sites[i];
            moved *m = &list[i];
            if (!s->taken)
                continue;
            const uint32_t p[4] = {s->made + 1, s->gone, s->back, s->next};
            const ebb_node before = o->node[p[stage]];
            ebb_build b = ebb_edit_build(o->e, before, EBB_PHASE_NONE);
            b.name = ebb_value_name(o->g, s->root);
            if (stage == 0) {
                ebb_with_string(&b, "place", ebb_place_name(o->place));
                m->stored = ebb_emit(&b, EBB_OP_STORE, s->root);
            } else if (stage == 1) {
                m->away = ebb_emit(&b, EBB_OP_WAIT, m->stored, s->root);
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

/* ---- the pass ---- */

static ebb_status prepare(offload *o, ebb_edit *e, const ebb_estimate *estimate)
{
    uint64_t least;
    *o = (offload){.e = e, .g = e->g, .place = ebb_place_find(ebb_option_string(e, "place"))};
    EBB_TRY(ebb_option_bytes(e, "least", 0, &least));
    EBB_TRY(ebb_option_bytes(e, "room", 0, &o->room));
    o->room = ebb_option_given(e, "room") ? o->room : UINT64_MAX;
    EBB_TRY(read_list(o));
    EBB_TRY(list_sites(o, least, ebb_option_string(e, "values")));
    return weigh(o, estimate);
}

static void decide(offload *o, uint64_t budget)
{
    if (budget > 0)
        choose(o, budget);
    else if (ebb_option_given(o->e, "values"))
        for (site *s = o->sites; s != o->sites + o->site_count; s++) {
            if (away_bytes(o, s) <= o->room)
                take(o, s);
        }
    else
        choose_all(o);
    const uint64_t peak = o->count > 0 ? o->live[fullest(o)] : 0;
    place_waits(o, peak > budget ? peak : budget);
    place_fetches(o, peak > budget ? peak : budget);
}

/* What the arena is with this plan, tried on a copy. */
static ebb_status try_budget(ebb_edit *e, uint64_t aim, ebb_trial *after)
{
    ebb_model *copy = NULL;
    EBB_TRY(ebb_model_copy(&copy, e->g->model));
    ebb_edit trial = *e;
    ebb_report report = {.pass = e->pass->name};
    offload o;
    trial.g = copy->graph;
    trial.report = &report;
    ebb_trial before;
    const char *backend = ebb_option_string(e, "backend");
    ebb_status status = ebb_trial_weigh(&before, e->scratch, copy->graph, backend);
    if (status == NULL)
        status = prepare(&o, &trial, &before.estimate);
    if (status == NULL) {
        decide(&o, aim);
        status = apply(&o);
    }
    if (status == NULL) {
        (void)ebb_graph_sweep(copy->graph);
        status = ebb_trial_weigh(after, e->scratch, copy->graph, backend);
    }
    ebb_model_free(copy);
    return status;
}

static ebb_status does_not_fit(uint64_t budget, uint64_t reached)
{
    return ebb_hint(
        ebb_error(EBB_NO_PLAN,
                  "no tensors can be moved so that the step takes %llu bytes: the least reached "
                  "is %llu bytes",
                  (unsigned long long)budget, (unsigned long long)reached),
        "give a budget of at least %llu bytes, a smaller `least`, or let `fit` drop tensors first",
        (unsigned long long)reached);
}

static ebb_status run(ebb_edit *e)
{
    const char *backend = ebb_option_string(e, "backend");
    ebb_trial before, after;
    uint64_t budget, aim;
    if (strcmp(ebb_option_string(e, "what"), "state") == 0)
        return ebb_offload_states(e);
    EBB_TRY(ebb_trial_weigh(&before, e->scratch, e->g, backend));
    EBB_TRY(ebb_option_bytes(e, "budget", before.bytes, &budget));
    if (budget > 0) {
        e->report->holds = true; // or the run fails
        EBB_TRY(ebb_remember_budget(e, budget, before.estimate.threads));
        if (budget >= before.bytes)
            return ebb_note(e,
                            "nothing to do: the step takes %llu bytes, within the budget of %llu",
                            (unsigned long long)before.bytes, (unsigned long long)budget);
    }
    aim = budget;
    uint64_t least = before.bytes;
    for (int i = 0; budget > 0; i++) {
        EBB_TRY(try_budget(e, aim, &after));
        least = after.bytes < least ? after.bytes : least;
        if (after.bytes <= budget)
            break;
        const uint64_t more = after.bytes - budget; // of packing
        if (i == TRIES || more >= aim)
            return does_not_fit(budget, least);
        aim -= more;
    }
    offload o;
    EBB_TRY(prepare(&o, e, &before.estimate));
    decide(&o, aim);
    EBB_TRY(apply(&o));
    uint64_t bytes = 0;
    size_t tensors = 0;
    for (size_t i = 0; i < o.site_count; i++)
        if (o.sites[i].taken) {
            bytes += o.sites[i].bytes;
            tensors++;
        }
    return ebb_note(e, "%zu tensors, %llu bytes a step, wait on the %s", tensors,
                    (unsigned long long)bytes, ebb_place_name(o.place));
}

static const ebb_option options[] = {
    {"place", EBB_OPTION_CHOICE, "disk", "disk|host", "where to; `host` is for steps on a GPU"},
    {"what", EBB_OPTION_CHOICE, "tensors", "tensors|state",
     "tensors of a step; or states of the optimizer, from step to step, whatever it costs"},
    {"budget", EBB_OPTION_BYTES, NULL, NULL,
     "bytes that the step may take: 6GiB, 512MB, 80%; not given: all goes whose moves cost no "
     "time"},
    {"room", EBB_OPTION_BYTES, NULL, NULL,
     "bytes that there are in that place; not given: any number"},
    {"least", EBB_OPTION_BYTES, "64KiB", NULL, "smaller tensors stay"},
    {"values", EBB_OPTION_STRING, NULL, NULL,
     "only tensors of these names (globs), whatever it costs"},
    {"backend", EBB_OPTION_STRING, "cpu", NULL,
     "whose kernels' scratch and speed count: cpu, plain, cuda, cuda:h100"},
    {NULL, EBB_OPTION_INT, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_offload = {
    .name = "offload",
    .doc = "keep tensors on disk, or in the host's memory, between readers that are far apart",
    .paper = "Rhu et al., \"vDNN: virtualized deep neural networks for scalable, memory-efficient "
             "neural "
             "network design\", MICRO 2016",
    .exactness = EBB_EXACT,
    .options = options,
    .run = run,
};
