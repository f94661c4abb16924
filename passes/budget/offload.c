/* offload: what waits long for its next reader waits in another place; what=state, weights: states.c.
 *
 *   before   a = F(x)  b = G(a)  ...                     ...  db = G'(a)       a waits in the arena
 *   after    a = F(x)  s = Store(a)  b = G(a)  k = Wait(s, a)  ...
 *                                    ...  f = Fetch(k)  ...  a' = Wait(f, k)  db = G'(a')
 *
 * Which, and when: planners/away.h, in numbers; without a budget, every tensor whose moves fit between its
 * readers. The bytes alive are those of the ruler, with memory shared as the alias pass shares it. What is
 * above the budget when those intervals are packed is asked for in addition, until it is not; then the plan is
 * tried on a copy, and taken only if the arena keeps to the budget.
 *
 * Exact: bytes are moved, and read again as they were.
 *
 * Declines for what lives to the end of the step, what a subgraph reads, and what is smaller than `least`.
 *
 * Paper: Rhu et al., "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network
 * design", MICRO 2016; the rule of the farthest reader is Belady's, 1966.
 */

#include "passes/budget/moved.h"
#include "passes/budget/states.h"
#include "onnx/words/amount.h"

enum { TRIES = 6, HALVES = 2 };

/* A way to a plan of the pass. */
typedef struct way {
    ebb_moved_plan plan;
    bool packs, lowest; /* into the budget; no aim gives a lower one */
} way;

static ebb_status look(const ebb_moved *o, uint64_t budget, way *w, uint64_t *height)
{
    EBB_TRY(ebb_moved_look(o, &w->plan));
    EBB_TRY(ebb_moved_pack(o, budget, height));
    w->packs = *height <= budget;
    w->lowest = w->plan.peak_bytes > w->plan.aim || (!w->packs && *height - budget >= w->plan.aim);
    return NULL;
}

/* Lowers the aim until what is found packs into the budget, then raises it again by halves. */
static ebb_status find(const ebb_moved *o, uint64_t budget, way *w)
{
    uint64_t height, too_high = w->plan.aim;
    for (int i = 0; i < TRIES; i++) {
        EBB_TRY(look(o, budget, w, &height));
        if (w->packs || w->lowest)
            break;
        too_high = w->plan.aim;
        w->plan.aim -= height - budget; // of packing
    }
    for (int i = 0; i < HALVES && w->packs && w->plan.aim < too_high; i++) {
        way higher = *w;
        higher.plan.aim += (too_high - w->plan.aim) / 2;
        EBB_TRY(look(o, budget, &higher, &height));
        if (higher.packs && higher.plan.added_ns < w->plan.added_ns)
            *w = higher;
        else
            too_high = higher.plan.aim;
    }
    return NULL;
}

/* Without a budget: all of the names, or all whose moves fit between their readers. To the last place. */
static ebb_status take_all(ebb_moved *o, bool named)
{
    const ebb_away_problem *p = &o->problem;
    const ebb_away_place *place = &p->places[p->place_count - 1];
    uint64_t room = place->room;
    ebb_away_weight weight;
    for (uint32_t i = 0; i < p->site_count; i++) {
        ebb_away_site *s = &p->sites[i];
        const bool there = ebb_away_elsewhere(p->sites, i) != 0;
        const double beside = place->way[1].beside + (there ? 0 : place->way[0].beside);
        const uint64_t bytes = there ? 0 : ebb_away_bytes(place, s);
        if (bytes > room ||
            (!named && o->starts[s->next] - o->starts[s->last + 1] <= beside * (double)s->bytes))
            continue;
        s->place = (uint32_t)p->place_count;
        room -= bytes;
    }
    return ebb_away_weigh(&weight, p, 0, o->e->scratch);
}

static ebb_status does_not_fit(uint64_t budget, uint64_t reached)
{
    return ebb_hint(
        ebb_error(EBB_NO_PLAN,
                  "no tensors can be moved so that the step takes %s: the least reached is %s",
                  ebb_bytes(budget).text, ebb_bytes(reached).text),
        "give a budget of at least %llu (%s), a smaller `least`, or let `fit` drop tensors first",
        (unsigned long long)reached, ebb_bytes(reached).text);
}

/* Sooner tried: what packs, and of that what is faster. */
static bool is_better(const way *a, const way *b)
{
    return a->packs != b->packs ? a->packs : a->plan.added_ns < b->plan.added_ns;
}

/* A plan that keeps to the budget. */
static ebb_status find_plan(const ebb_moved *o, const char *backend, uint64_t before,
                            uint64_t budget)
{
    uint64_t least = before, height, bytes = 0;
    double ns;
    way ways[] = {{.plan = {.all = true, .aim = budget}}, {.plan = {.aim = budget}}};
    EBB_TRY(find(o, budget, &ways[0]));
    EBB_TRY(find(o, budget, &ways[1]));
    const int first = is_better(&ways[0], &ways[1]) ? 0 : 1;
    for (int k = 0; k < 2; k++) {
        way *w = &ways[k == 0 ? first : 1 - first];
        for (int i = 0; i < TRIES; i++) {
            EBB_TRY(look(o, budget, w, &height));
            EBB_TRY(ebb_moved_try(o, backend, &bytes, &ns));
            least = bytes < least ? bytes : least;
            if (bytes <= budget)
                return NULL;
            if (w->lowest || bytes - budget >= w->plan.aim)
                break;
            w->plan.aim -= bytes - budget;
        }
    }
    return does_not_fit(budget, least);
}

static ebb_status read_places(ebb_edit *e, ebb_moved_places *places)
{
    const ebb_place place = ebb_place_find(ebb_option_string(e, "place"));
    *places = (ebb_moved_places){.count = 0};
    if (place == EBB_PLACE_DISK && ebb_option_given(e, "host")) {
        places->place[places->count] = EBB_PLACE_HOST;
        EBB_TRY(ebb_option_bytes(e, "host", 0, &places->room[places->count++]));
    }
    places->place[places->count] = place;
    places->room[places->count] = UINT64_MAX;
    uint64_t *room = &places->room[places->count++];
    return ebb_option_given(e, "room") ? ebb_option_bytes(e, "room", 0, room) : NULL;
}

static ebb_status run(ebb_edit *e)
{
    const char *backend = ebb_option_string(e, "backend");
    ebb_trial before;
    uint64_t budget, least;
    ebb_moved o;
    ebb_moved_places places;
    if (strcmp(ebb_option_string(e, "what"), "tensors") != 0)
        return ebb_offload_states(e);
    EBB_TRY(ebb_trial_weigh(&before, e->scratch, e->g, backend));
    EBB_TRY(ebb_option_bytes(e, "budget", before.bytes, &budget));
    if (budget > 0) {
        e->report->holds = true; // or the run fails
        EBB_TRY(ebb_remember_budget(e, budget, before.estimate.threads));
        if (budget >= before.bytes)
            return ebb_note(e, "nothing to do: the step takes %s, within the budget of %s",
                            ebb_bytes(before.bytes).text, ebb_bytes(budget).text);
    }
    EBB_TRY(ebb_option_bytes(e, "least", 0, &least));
    EBB_TRY(read_places(e, &places));
    EBB_TRY(ebb_moved_begin(&o, e, &places, least, ebb_option_string(e, "values"), &before.estimate,
                            NULL));
    EBB_TRY(budget > 0 ? find_plan(&o, backend, before.bytes, budget)
                       : take_all(&o, ebb_option_given(e, "values")));
    EBB_TRY(ebb_moved_apply(&o));
    const char *text = ebb_moved_text(&o);
    return text != NULL ? ebb_note(e, "%s", text) : ebb_error_memory();
}

static const ebb_option options[] = {
    {"place", EBB_OPTION_CHOICE, "disk", "disk|host", "where to; `host` is for steps on a GPU"},
    {"what", EBB_OPTION_CHOICE, "tensors", "tensors|state|weights",
     "tensors of a step; or states of the optimizer, from step to step, whatever it costs; or "
     "these and "
     "trained weights"},
    {"budget", EBB_OPTION_BYTES, NULL, NULL,
     "bytes that the step may take: 6GiB, 512MB, 80%; not given: all goes whose moves cost no "
     "time"},
    {"room", EBB_OPTION_BYTES, NULL, NULL,
     "bytes that there are in that place; not given: any number"},
    {"host", EBB_OPTION_BYTES, NULL, NULL,
     "with place=disk: bytes that there are in the host's memory, which is used first"},
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
