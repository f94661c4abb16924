/* fit_away.c: values that wait in another place, beside values that are made again.
 *
 * Of each variant some points are taken, spread over its frontier; each as it is, with the optimizer's states in
 * the other place from step to step, and with these and the weights there (states.c), updates that take more than half
 * of the least then once more in parts. Of each there are
 * plans of what else is moved (planners/away.h), from a little to all that can be. Points and plans do not depend on the budget: so with
 * more bytes, in memory or in the other place, no step is slower. In the order of their times they are packed,
 * and what packs is tried on a copy; the fastest of those that keep to the budget is taken, if it is faster than
 * what does without. */
#include <stdlib.h>

#include "passes/budget/fit.h"
#include "passes/budget/moved.h"
#include "passes/budget/states.h"
#include "passes/common.h"

static const double SAME = 1e-9; // sums of the same times in another order
enum { LEVELS = 48, DEEP = 24, WAYS = 4, PACKED = 32, LARGER = 4, LEAST_BYTES = 1 << 16 };
/* Points: all of a small graph; of more nodes fewer, STRIDE times some, and one: so the few are among the many. */
enum { STRIDE = 5, FEW_POINTS = STRIDE + 1, MOST_POINTS = 39 * STRIDE + 1, POINT_NODES = 12000 };

/* Where lies what lasts from step to step. */
typedef enum lasting { HERE, STATES_AWAY, WEIGHTS_AWAY, LASTINGS } lasting;

typedef struct base { /* a point's step */
    const choice *c;
    ebb_moved_places places; /* the last is that of what lies there from step to step */
    lasting lasts;
    uint64_t cut;    /* bytes: updates that take more are cut; 0: none */
    uint64_t lowest; /* peak of its plans */
    ebb_away_states states;
    ebb_estimate whole; /* with nothing moved */
    double excess;      /* a plan's bytes, packed, by those alive; of the last that was too large */
    size_t copies;
} base;

/* The one step that is there to be looked at: all of them at once would be the largest thing in memory. */
typedef struct opened {
    base *base; /* NULL: none */
    ebb_model *model;
    ebb_arena arena;
    ebb_edit edit;
    ebb_report report;
    ebb_moved moved; /* what may go of it */
} opened;

typedef struct plan {
    base *base;
    ebb_moved_plan plan;
    double ns;
} plan;

typedef struct plans {
    joint *j;
    const choice *chosen;
    base *bases;
    size_t base_count;
    opened open;
    plan *list;
    size_t count, capacity;
    uint64_t budget;
    uint64_t room[EBB_PLACE_COUNT]; /* bytes; 0: not named */
} plans;

/* ---- points ---- */

static int by_cost(const void *a, const void *b)
{
    const choice *const *x = a, *const *y = b;
    const ebb_remat_point *p = (*x)->point, *q = (*y)->point;
    if (p->cost_ns != q->cost_ns)
        return p->cost_ns < q->cost_ns ? -1 : 1;
    return (p->peak_bytes > q->peak_bytes) - (p->peak_bytes < q->peak_bytes);
}

static bool is_cheaper(const plans *all, const choice *c)
{
    return all->chosen == NULL || c->point->cost_ns < all->chosen->point->cost_ns;
}

/* The variant as it is, and some of its other points. */
static size_t pick_points(const plans *all, const variant *v, const choice **list,
                          const choice **picked)
{
    size_t count = 0, found = 0;
    for (size_t i = 0; i < all->j->choice_count; i++) {
        const choice *c = &all->j->choices[i];
        if (c->v == v && c->point == &v->whole && is_cheaper(all, c))
            picked[found++] = c;
        else if (c->v == v)
            list[count++] = c;
    }
    if (count > 1)
        qsort(list, count, sizeof *list, by_cost);
    const size_t nodes = v->model->graph->node_count + (size_t)1;
    const size_t many = (size_t)POINT_NODES * POINT_NODES / (nodes * nodes);
    const size_t most = many < FEW_POINTS    ? FEW_POINTS
                        : many < MOST_POINTS ? (many - 1) / STRIDE * STRIDE + 1
                                             : MOST_POINTS;
    const size_t tried = count < most ? count : most;
    for (size_t k = 0; k < tried; k++) {
        const choice *c = list[tried > 1 ? k * (count - 1) / (tried - 1) : 0];
        if (is_cheaper(all, c))
            picked[found++] = c;
    }
    return found;
}

/* ---- steps of points ---- */

/* States alone go for their time: not those that take the link no longer than their nodes take the step. */
static uint64_t least_state(const ebb_graph *g, const base *b)
{
    const ebb_place place = b->places.place[b->places.count - 1];
    const double nodes_ns = 4 * ebb_roofline_ns(g, 0, 0);
    const double bytes = fmin(nodes_ns / ebb_move_time_of(g, 1, place, true).beside, 1e18);
    return b->lasts == STATES_AWAY && bytes > LEAST_BYTES ? (uint64_t)bytes : LEAST_BYTES;
}

/* The point's step on o's model, and what may go of it. Its times are b's, where they are known. */
static ebb_status make_base(const joint *j, base *b, opened *o)
{
    static const ebb_pass nobody = {.name = "fit"};
    ebb_remat_source source;
    ebb_graph *g = o->model->graph;
    o->report = (ebb_report){.pass = nobody.name};
    o->edit = (ebb_edit){
        .g = g, .pass = &nobody, .scratch = &o->arena, .keep = &o->arena, .report = &o->report};
    EBB_TRY(ebb_remat_source_make(&source, &o->arena, g, &b->c->v->trial.estimate));
    EBB_TRY(ebb_remat_apply(&o->edit, &source, &b->c->point->schedule, &b->copies));
    (void)ebb_graph_sweep(g);
    if (b->lasts != HERE) {
        b->states = (ebb_away_states){.place = b->places.place[b->places.count - 1],
                                      .weights = b->lasts == WEIGHTS_AWAY,
                                      .least = least_state(g, b),
                                      .room = UINT64_MAX,
                                      .most = b->cut,
                                      .backend = j->backend};
        EBB_TRY(ebb_states_move(&o->edit, &b->states));
    }
    if (b->whole.workspace_bytes == NULL) {
        const size_t bytes = (g->node_count + (size_t)1) * sizeof *b->whole.workspace_bytes;
        EBB_TRY(ebb_trial_measure(&b->whole, &o->arena, g, j->backend, UINT64_MAX));
        size_t *kept = ebb_arena_alloc(j->e->scratch, bytes);
        EBB_GOT(kept);
        b->whole.workspace_bytes = memcpy(kept, b->whole.workspace_bytes, bytes);
    }
    return ebb_moved_begin(&o->moved, &o->edit, &b->places, LEAST_BYTES, NULL, &b->whole,
                           &b->states);
}

static void close_base(opened *o)
{
    ebb_model_free(o->model);
    ebb_arena_fini(&o->arena);
    *o = (opened){.base = NULL};
}

static ebb_status open_base(plans *all, base *b)
{
    opened *o = &all->open;
    if (o->base == b)
        return NULL;
    close_base(o);
    EBB_TRY(ebb_model_copy(&o->model, b->c->v->model));
    EBB_TRY(make_base(all->j, b, o));
    o->base = b;
    return NULL;
}

static ebb_status look(plans *all, base *b, ebb_moved_plan *p)
{
    EBB_TRY(open_base(all, b));
    return ebb_moved_look(&all->open.moved, p);
}

static ebb_status add_plan(plans *all, base *b, ebb_moved_plan p, bool *lowest)
{
    EBB_TRY(look(all, b, &p));
    *lowest = p.peak_bytes > p.aim;
    b->lowest = p.peak_bytes < b->lowest ? p.peak_bytes : b->lowest;
    EBB_GOT(ebb_arena_grow(all->j->e->scratch, &all->list, all->count, &all->capacity,
                           sizeof *all->list));
    all->list[all->count++] = (plan){b, p, b->whole.ns + p.added_ns};
    return NULL;
}

static ebb_status add_base(plans *all, const choice *c, const ebb_moved_places *places,
                           lasting lasts, uint64_t cut)
{
    base *b = &all->bases[all->base_count++];
    *b = (base){
        .c = c, .places = *places, .lasts = lasts, .cut = cut, .lowest = UINT64_MAX, .excess = 1};
    EBB_TRY(open_base(all, b));
    const uint64_t peak = all->open.moved.memory.peak_bytes;
    bool lowest;
    for (uint64_t k = 0; b->states.stay_count > 0 && k < LARGER; k++) // their moves have time
        EBB_TRY(add_plan(all, b, (ebb_moved_plan){.aim = peak + peak / LARGER * k}, &lowest));
    const int ways = all->open.moved.once.site != NULL ? WAYS : WAYS / 2;
    for (int way = 0; way < ways; way++) {
        uint64_t aim = peak;
        lowest = false;
        for (int i = 1; i < LEVELS + DEEP && !lowest; i++) {
            aim -= i < LEVELS ? peak / LEVELS : aim / 4; // long sequences go down to a hundredth
            EBB_TRY(add_plan(all, b,
                             (ebb_moved_plan){.aim = aim, .all = way % 2 == 1, .once = way >= 2},
                             &lowest));
        }
    }
    return NULL;
}

/* What lies there from step to step, about; and what moving it takes from the step, at least. */
static uint64_t bytes_away(const ebb_graph *g, ebb_place place, lasting lasts, double *ns)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < g->binding_count && lasts != HERE; i++) {
        const ebb_value state = g->bindings[i].state;
        const ebb_role role = ebb_value_of(g, state)->role;
        const uint64_t own = (uint64_t)ebb_stored_bytes(g, state);
        if (own >= LEAST_BYTES &&
            (role == EBB_ROLE_OPTIMIZER || (role == EBB_ROLE_PARAMETER && lasts == WEIGHTS_AWAY)))
            bytes += own;
    }
    *ns = ebb_move_time_of(g, (double)bytes, place, false).taken +
          ebb_move_time_of(g, (double)bytes, place, true).taken;
    return bytes;
}

/* What a plan of the point takes at least: what is alive above the budget, beside what lies there from step to
 * step, goes and comes back, by links that need their time. */
static double least_ns(const plans *all, const choice *c, const ebb_moved_places *places,
                       uint64_t stays, double ns)
{
    const ebb_graph *g = c->v->model->graph;
    const uint64_t spare = c->v->trial.source.spare_bytes, most = all->budget + spare + stays;
    const uint64_t peak = c->point->peak_bytes, bytes = peak > most ? peak - most : 0;
    double least = c->point->cost_ns + ns;
    for (int back = 0; back < 2 && places->count == 1; back++) {
        const ebb_move_time t = ebb_move_time_of(g, (double)bytes, places->place[0], back != 0);
        least = fmax(least, fmin(t.alone, t.beside));
    }
    return least;
}

/* Each way that is another than the one before it, and not dearer from the start than what was chosen. */
static ebb_status add_lasting(plans *all, const choice *c, const ebb_moved_places *places)
{
    const ebb_graph *g = c->v->model->graph;
    const size_t first = all->base_count;
    uint64_t before = UINT64_MAX;
    for (int k = HERE; k < LASTINGS; k++) {
        double ns;
        const uint64_t bytes = bytes_away(g, places->place[places->count - 1], (lasting)k, &ns);
        if (bytes == before)
            continue;
        before = bytes;
        if (all->chosen == NULL ||
            least_ns(all, c, places, bytes, ns) < all->chosen->point->cost_ns)
            EBB_TRY(add_base(all, c, places, (lasting)k, 0));
    }
    if (all->base_count == first)
        return NULL;
    const base *last = &all->bases[all->base_count - 1];
    return last->lasts == WEIGHTS_AWAY && last->states.largest > last->lowest / 2
               ? add_base(all, c, places, WEIGHTS_AWAY, last->lowest / 2)
               : NULL;
}

/* With one place no plan depends on its room; with both, where the nearer one is full the other is used. */
static ebb_status add_bases(plans *all, const choice *c)
{
    static const ebb_place by_distance[] = {EBB_PLACE_HOST, EBB_PLACE_DISK};
    ebb_moved_places both = {.count = 0};
    for (int k = 0; k < EBB_AWAY_PLACES; k++) {
        const ebb_place place = by_distance[k];
        if (all->room[place] == 0)
            continue;
        both.place[both.count] = place;
        both.room[both.count++] = all->room[place];
        EBB_TRY(add_lasting(
            all, c, &(ebb_moved_places){.count = 1, .place = {place}, .room = {UINT64_MAX}}));
    }
    return both.count > 1 ? add_lasting(all, c, &both) : NULL;
}

/* ---- the choice ---- */

static int fastest_first(const void *a, const void *b)
{
    const plan *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    if (x->plan.peak_bytes != y->plan.peak_bytes)
        return x->plan.peak_bytes < y->plan.peak_bytes ? -1 : 1;
    return (x > y) - (x < y);
}

static bool has_room(const plans *all, const plan *p)
{
    const size_t count = p->base->places.count;
    for (size_t k = 0; k < count; k++) {
        const uint64_t stays = k + 1 == count ? p->base->states.pages : 0;
        const uint64_t room = all->room[p->base->places.place[k]];
        if (stays > room || p->plan.away_bytes[k] > room - stays)
            return false;
    }
    return true;
}

/* The plan on a copy. */
static ebb_status try_plan(plans *all, const plan *p, uint64_t budget, ebb_fit_away *best)
{
    ebb_moved_plan again = p->plan;
    uint64_t bytes;
    double ns;
    EBB_TRY(look(all, p->base, &again));
    EBB_TRY(ebb_moved_try(&all->open.moved, all->j->backend, &bytes, &ns));
    if (bytes < best->least)
        best->least = bytes;
    if (bytes > budget || ns >= best->ns)
        return NULL;
    best->chosen = p->base->c;
    best->bytes = bytes;
    best->ns = ns;
    best->copies = p->base->copies;
    return NULL;
}

/* Whether it is worth a copy: it packs, and is not like one that did not. */
static ebb_status packs(plans *all, const plan *p, uint64_t budget, bool *fits)
{
    ebb_moved_plan again = p->plan;
    base *b = p->base;
    uint64_t height;
    const double likely = (double)p->plan.peak_bytes * (1 + (b->excess - 1) / 2);
    *fits = false;
    if (likely > (double)budget)
        return NULL;
    EBB_TRY(look(all, b, &again));
    EBB_TRY(ebb_moved_pack(&all->open.moved, budget, &height));
    *fits = height <= budget;
    if (!*fits)
        b->excess = (double)height / (double)again.peak_bytes;
    return NULL;
}

/* Found by two aims. */
static bool is_again(const plan *a, const plan *b)
{
    return a != NULL && a->base == b->base && a->ns == b->ns &&
           a->plan.peak_bytes == b->plan.peak_bytes &&
           memcmp(a->plan.away_bytes, b->plan.away_bytes, sizeof a->plan.away_bytes) == 0;
}

/* What a plan takes is known when it was tried, and not much before: until no plan promises to be faster than the
 * best of those, or enough were packed. */
static ebb_status take_fastest(plans *all, uint64_t budget, ebb_fit_away *best, const plan **taken)
{
    const plan *last = NULL;
    const size_t most = all->base_count < PACKED ? PACKED : all->base_count;
    size_t packed[2] = {0}; // those with cut updates take no place from the others
    *taken = NULL;
    for (size_t i = 0; i < all->count && packed[0] < most; i++) {
        const plan *p = &all->list[i];
        const bool cut = p->base->cut > 0;
        const double before = best->ns;
        bool fits;
        if (p->ns >= before * (1 - SAME))
            return NULL;
        if (p->plan.peak_bytes > budget || !has_room(all, p) || is_again(last, p) ||
            packed[cut] == most)
            continue;
        EBB_TRY(packs(all, p, budget, &fits));
        last = p;
        packed[cut]++;
        if (fits)
            EBB_TRY(try_plan(all, p, budget, best));
        if (best->ns < before)
            *taken = p;
    }
    return NULL;
}

static bool is_lowest(const plans *all, const plan *p)
{
    return p->plan.peak_bytes > p->plan.aim && p->plan.all && has_room(all, p);
}

/* All that can be moved of each point, where no other plan keeps to the budget or this one promises to be faster: of
 * points whose plans packed badly some were not packed. */
static ebb_status take_lowest(plans *all, uint64_t budget, ebb_fit_away *best, const plan **taken)
{
    const int ways = *taken == NULL ? 2 : 1; // and tight, where nothing else does
    const double before = best->ns;
    for (int tight = 0; tight < ways && best->ns == before; tight++)
        for (size_t i = 0; i < all->count && best->ns == before; i++) {
            plan *p = &all->list[i];
            if (p->ns >= before * (1 - SAME))
                break;
            if (p->plan.peak_bytes > budget || !is_lowest(all, p))
                continue;
            p->plan.tight = tight != 0;
            EBB_TRY(try_plan(all, p, budget, best));
            if (best->ns < before)
                *taken = p;
        }
    return NULL;
}

/* For the error: the lowest there is, as low as it can be packed. */
static ebb_status find_least(plans *all, ebb_fit_away *best)
{
    const plan *lowest = NULL;
    for (const plan *p = all->list; p != all->list + all->count; p++)
        if (is_lowest(all, p) && (lowest == NULL || p->plan.peak_bytes < lowest->plan.peak_bytes))
            lowest = p;
    if (lowest == NULL)
        return NULL;
    ebb_moved_plan again = lowest->plan;
    ebb_estimate after;
    again.tight = true;
    EBB_TRY(look(all, lowest->base, &again));
    ebb_graph *g = all->open.model->graph;
    EBB_TRY(ebb_moved_apply(&all->open.moved));
    (void)ebb_graph_sweep(g);
    EBB_TRY(ebb_trial_measure(&after, all->j->e->scratch, g, all->j->backend, 0));
    if (after.arena_bytes < best->least)
        best->least = after.arena_bytes;
    return ebb_fit_pins(&best->pins, all->j, g, &after);
}

/* The chosen variant's model becomes the step. */
static ebb_status make_step(plans *all, const plan *p, ebb_fit_away *best)
{
    opened *o = &all->open;
    base *b = p->base;
    ebb_arena *keep = all->j->e->scratch;
    ebb_moved_plan again = p->plan;
    close_base(o);
    o->model = b->c->v->model;
    ebb_status status = make_base(all->j, b, o);
    o->model = NULL;
    EBB_TRY(status);
    EBB_TRY(ebb_moved_look(&o->moved, &again));
    EBB_TRY(ebb_moved_apply(&o->moved));
    best->note = ebb_moved_text(&o->moved);
    if (best->note != NULL && b->states.count > 0) {
        const char *states = ebb_states_text(&o->edit, &b->states);
        best->note = states == NULL ? NULL : ebb_arena_printf(keep, "%s; %s", best->note, states);
    } else if (best->note != NULL) {
        best->note = ebb_arena_strdup(keep, best->note);
    }
    return best->note != NULL ? NULL : ebb_error_memory();
}

static ebb_status look_at_all(plans *all, uint64_t budget, ebb_fit_away *best)
{
    joint *j = all->j;
    const plan *taken;
    const size_t most = j->variant_count * (MOST_POINTS + 1),
                 ways = (EBB_AWAY_PLACES + 1) * (LASTINGS + 1);
    const choice **list =
        (const choice **)ebb_arena_zeroed(j->e->scratch, j->choice_count + 1, sizeof *list);
    const choice **picked =
        (const choice **)ebb_arena_zeroed(j->e->scratch, MOST_POINTS + 1, sizeof *picked);
    all->bases = EBB_NEW(j->e->scratch, base, most * ways + 1);
    EBB_GOT(list && picked && all->bases);
    for (size_t i = 0; i < j->variant_count; i++) {
        const size_t count = pick_points(all, &j->variants[i], list, picked);
        for (size_t k = 0; k < count; k++)
            EBB_TRY(add_bases(all, picked[k]));
    }
    if (all->count > 1)
        qsort(all->list, all->count, sizeof *all->list, fastest_first);
    EBB_TRY(take_fastest(all, budget, best, &taken));
    if (all->chosen == NULL)
        EBB_TRY(take_lowest(all, budget, best, &taken));
    if (taken == NULL && all->chosen == NULL)
        return find_least(all, best);
    return taken != NULL ? make_step(all, taken, best) : NULL;
}

ebb_status ebb_fit_move(joint *j, uint64_t budget, const choice *chosen, ebb_fit_away *best)
{
    plans all = {.j = j, .chosen = chosen, .budget = budget};
    *best = (ebb_fit_away){
        .least = UINT64_MAX, .ns = chosen != NULL ? chosen->ns : INFINITY, .pins = ""};
    if (ebb_option_given(j->e, "host"))
        EBB_TRY(ebb_option_bytes(j->e, "host", 0, &all.room[EBB_PLACE_HOST]));
    if (ebb_option_given(j->e, "disk"))
        EBB_TRY(ebb_option_bytes(j->e, "disk", 0, &all.room[EBB_PLACE_DISK]));
    if (all.room[EBB_PLACE_HOST] == 0 && all.room[EBB_PLACE_DISK] == 0)
        return NULL;
    ebb_status status = look_at_all(&all, budget, best);
    close_base(&all.open);
    return status;
}
