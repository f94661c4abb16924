/* away.c: moments of a placement, what they cost, and the search for a placement. */
#include "passes/budget/planners/away.h"

#include <math.h>
#include <stdlib.h>

enum { STAGES = 4, MOST_LEAVES = 100000 };

typedef enum stage { STORE, LEAVE, FETCH, RETURN } stage;

typedef struct event {
    uint32_t position; /* before this operator */
    uint32_t stage, site;
} event;

typedef struct search {
    const ebb_away_problem *p;
    uint64_t most;
    uint64_t *live, *rest; /* by position: with what is placed; with all that is not decided away */
    uint64_t *gone;        /* by position, one more: scratch of live_now */
    uint64_t room[EBB_AWAY_PLACES];
    event *events;
    uint32_t *first; /* by position, one more: its events; scratch of list_events */
    double *over;    /* by site and way: when its move is over */
    uint32_t *best;  /* by site: its place */
    double best_ns;
    uint64_t best_peak;
    size_t leaves;
    bool gave_up;
} search;

/* ---- a placement ---- */

uint32_t ebb_away_elsewhere(const ebb_away_site *sites, uint32_t site)
{
    for (uint32_t k = sites[site].ring; k != site; k = sites[k].ring)
        if (sites[k].place != 0)
            return sites[k].place;
    return 0;
}

bool ebb_away_writes(const ebb_away_site *sites, uint32_t site)
{
    for (uint32_t k = sites[site].ring; k != site; k = sites[k].ring)
        if (k < site && sites[k].place != 0)
            return false;
    return sites[site].place != 0 && sites[site].lasts != EBB_AWAY_RETURNS;
}

uint64_t ebb_away_bytes(const ebb_away_place *place, const ebb_away_site *site)
{
    return (site->bytes + place->align - 1) / place->align * place->align;
}

static uint64_t highest(const uint64_t *live, uint32_t count, uint32_t *at)
{
    uint32_t best = 0;
    for (uint32_t p = 1; p < count; p++)
        if (live[p] > live[best])
            best = p;
    *at = best;
    return count > 0 ? live[best] : 0;
}

static void free_bytes(uint64_t *live, const ebb_away_site *s)
{
    for (uint32_t q = s->last + 1; q < s->next; q++)
        live[q] -= s->bytes < live[q] ? s->bytes : live[q];
}

static void hold_bytes(uint64_t *live, const ebb_away_site *s)
{
    for (uint32_t q = s->last + 1; q < s->next; q++)
        live[q] += s->bytes;
}

/* With what is placed away. */
static void live_now(search *w)
{
    const ebb_away_problem *p = w->p;
    uint64_t away = 0;
    memset(w->gone, 0, (p->count + (size_t)1) * sizeof *w->gone);
    for (const ebb_away_site *s = p->sites; s != p->sites + p->site_count; s++)
        if (s->place != 0 && s->lasts == EBB_AWAY_STEP) {
            w->gone[s->last + 1] += s->bytes;
            w->gone[s->next] -= s->bytes; // below zero, until what begins before is added
        }
    for (uint32_t q = 0; q < p->count; q++) {
        away += w->gone[q];
        w->live[q] = p->live[q] - (away < p->live[q] ? away : p->live[q]);
    }
}

static const ebb_move_time *way_of(const ebb_away_problem *p, const ebb_away_site *s, bool back)
{
    return &p->places[s->place - 1].way[back];
}

/* Waits as late as a write takes, behind those before it. */
static void place_waits(search *w, uint64_t most)
{
    const ebb_away_problem *p = w->p;
    double idle = 0;
    for (size_t i = 0; i < p->site_count; i++) {
        ebb_away_site *s = &p->sites[p->by_made[i]];
        if (!ebb_away_writes(p->sites, p->by_made[i]))
            continue;
        const double begins = p->starts[s->made + 1];
        idle = (idle > begins ? idle : begins) + way_of(p, s, false)->beside * (double)s->bytes;
        for (; s->gone + 1 < s->back && p->starts[s->gone] < idle &&
               w->live[s->gone] + s->bytes <= most;
             s->gone++)
            w->live[s->gone] += s->bytes;
    }
}

/* Fetches as early as a read takes, so that those after it are not late. */
static void place_fetches(search *w, uint64_t most)
{
    const ebb_away_problem *p = w->p;
    double busy = p->starts[p->count];
    for (size_t i = p->site_count; i-- > 0;) {
        ebb_away_site *s = &p->sites[i];
        if (!ebb_away_reads(s))
            continue;
        const double needed = p->starts[s->next];
        busy = (busy < needed ? busy : needed) - way_of(p, s, true)->beside * (double)s->bytes;
        for (; s->back > s->gone + 1 && p->starts[s->back] > busy &&
               w->live[s->back - 1] + s->bytes <= most;
             s->back--)
            w->live[s->back - 1] += s->bytes;
    }
}

static uint32_t position_of(const ebb_away_site *s, uint32_t k)
{
    const uint32_t at[STAGES] = {s->made + 1, s->gone, s->back, s->next};
    return at[k];
}

static bool has_stage(const search *w, uint32_t site, uint32_t k)
{
    const ebb_away_site *sites = w->p->sites;
    return k >= FETCH ? ebb_away_reads(&sites[site]) : ebb_away_writes(sites, site);
}

/* In the order of positions; at one of them by stage, then by site. */
static size_t list_events(search *w)
{
    const ebb_away_problem *p = w->p;
    size_t count = 0;
    memset(w->first, 0, (p->count + (size_t)2) * sizeof *w->first);
    for (uint32_t k = STORE; k < STAGES; k++)
        for (uint32_t i = 0; i < p->site_count; i++)
            if (has_stage(w, i, k))
                w->first[position_of(&p->sites[i], k) + 1]++;
    for (uint32_t q = 0; q <= p->count; q++)
        w->first[q + 1] += w->first[q];
    for (uint32_t k = STORE; k < STAGES; k++)
        for (uint32_t i = 0; i < p->site_count; i++)
            if (has_stage(w, i, k)) {
                const uint32_t at = position_of(&p->sites[i], k);
                w->events[w->first[at]++] = (event){at, k, i};
                count++;
            }
    return count;
}

static double clock_moves(search *w)
{
    const ebb_away_problem *p = w->p;
    ebb_move_clock clock = {0};
    double computed = 0, added = 0;
    const size_t count = list_events(w);
    for (size_t i = 0; i < count; i++) {
        const event *e = &w->events[i];
        const ebb_away_site *s = &p->sites[e->site];
        const bool back = e->stage == FETCH || e->stage == RETURN;
        const ebb_move_time *way = way_of(p, s, back);
        const double bytes = (double)s->bytes;
        const ebb_move_time t = {bytes * way->alone, bytes * way->beside, bytes * way->taken};
        double *over = &w->over[2 * e->site + back];
        clock.now += p->starts[e->position] - computed + p->node_ns;
        computed = p->starts[e->position];
        added += p->node_ns;
        if (e->stage == STORE || e->stage == FETCH) {
            *over = ebb_move_clock_start(&clock, &t, back);
            added += t.taken;
        } else {
            ebb_move_clock_wait(&clock, *over, &t, back);
        }
    }
    return added + clock.stood;
}

static void weigh(search *w, ebb_away_weight *weight)
{
    const ebb_away_problem *p = w->p;
    uint32_t at;
    for (ebb_away_site *s = p->sites; s != p->sites + p->site_count; s++) {
        s->gone = s->last + 1;
        s->back = s->next;
    }
    live_now(w);
    weight->peak_bytes = highest(w->live, p->count, &at);
    const uint64_t peak = weight->peak_bytes > w->most ? weight->peak_bytes : w->most;
    place_waits(w, p->fill != 0 ? p->fill : peak);
    place_fetches(w, p->fill != 0 ? p->fill : peak);
    weight->added_ns = clock_moves(w);
}

/* ---- the search ---- */

/* The best so far: what keeps to the bytes before what does not. */
static void consider(search *w)
{
    ebb_away_weight now;
    weigh(w, &now);
    const bool fits = now.peak_bytes <= w->most, did = w->best_peak <= w->most;
    if (fits != did ? !fits : fits ? now.added_ns >= w->best_ns : now.peak_bytes >= w->best_peak)
        return;
    w->best_ns = now.added_ns;
    w->best_peak = now.peak_bytes;
    for (size_t i = 0; i < w->p->site_count; i++)
        w->best[i] = w->p->sites[i].place;
}

static uint32_t other_place(const search *w, const ebb_away_site *s)
{
    return ebb_away_elsewhere(w->p->sites, (uint32_t)(s - w->p->sites));
}

static uint32_t nearest(const search *w, const ebb_away_site *s)
{
    const uint32_t other = other_place(w, s);
    if (other != 0)
        return other;
    for (uint32_t k = 0; k < w->p->place_count; k++)
        if (ebb_away_bytes(&w->p->places[k], s) <= w->room[k])
            return k + 1;
    return 0;
}

static void put(search *w, ebb_away_site *s, uint32_t place)
{
    s->place = place;
    if (other_place(w, s) == 0)
        w->room[place - 1] -= ebb_away_bytes(&w->p->places[place - 1], s);
}

static void put_back(search *w, ebb_away_site *s)
{
    if (other_place(w, s) == 0)
        w->room[s->place - 1] += ebb_away_bytes(&w->p->places[s->place - 1], s);
    s->place = 0;
}

static bool is_longest(const ebb_away_problem *p, uint32_t site)
{
    const ebb_away_site *s = &p->sites[site], *other;
    for (uint32_t k = s->ring; k != site; k = other->ring) {
        other = &p->sites[k];
        const double longer = p->starts[other->next] - p->starts[other->last + 1] -
                              (p->starts[s->next] - p->starts[s->last + 1]);
        if (longer > 0 || (longer == 0 && k < site))
            return false;
    }
    return true;
}

/* Of those that could be away at `at` and are not, the one that is needed again last. */
static ebb_away_site *farthest(const search *w, uint32_t at, bool once)
{
    const ebb_away_problem *p = w->p;
    ebb_away_site *best = NULL;
    for (ebb_away_site *s = p->sites; s != p->sites + p->site_count; s++)
        if (s->place == 0 && (!once || is_longest(p, (uint32_t)(s - p->sites))) && s->last < at &&
            at < s->next && nearest(w, s) != 0 &&
            (best == NULL || s->next > best->next ||
             (s->next == best->next && s->bytes > best->bytes)))
            best = s;
    return best;
}

static void follow_rule(search *w)
{
    const ebb_away_rule *rule = &w->p->rule;
    for (size_t k = 0; k < rule->count && rule->peak[k] > w->most; k++) {
        ebb_away_site *s = &w->p->sites[rule->site[k]];
        put(w, s, nearest(w, s));
    }
    live_now(w);
}

/* From the largest on, what stays low enough with it staying. */
static void leave_needless(search *w)
{
    for (size_t i = 0; i < w->p->site_count; i++) {
        ebb_away_site *s = &w->p->sites[w->p->by_bytes[i]];
        bool stays = s->place != 0 && s->lasts == EBB_AWAY_STEP;
        for (uint32_t q = s->last + 1; q < s->next && stays; q++)
            stays = w->live[q] + s->bytes <= w->most;
        if (stays) {
            put_back(w, s);
            hold_bytes(w->live, s);
        }
    }
}

static bool reaches(const search *w, const ebb_away_site *s)
{
    for (uint32_t q = s->last + 1; q < s->next; q++)
        if (w->rest[q] + s->bytes > w->most)
            return false;
    return true;
}

/* Places of the sites from `depth` on, those before it decided at a cost of `ns`. */
static void branch(search *w, size_t depth, double ns)
{
    const ebb_away_problem *p = w->p;
    if (w->leaves >= MOST_LEAVES) {
        w->gave_up = true;
        return;
    }
    if (w->best_peak <= w->most && ns >= w->best_ns)
        return;
    if (depth == p->site_count) {
        w->leaves++;
        consider(w);
        return;
    }
    ebb_away_site *s = &p->sites[p->by_bytes[depth]];
    if (s->lasts != EBB_AWAY_STEP) {
        branch(w, depth + 1, ns);
        return;
    }
    if (reaches(w, s)) {
        hold_bytes(w->rest, s);
        branch(w, depth + 1, ns);
        free_bytes(w->rest, s);
    }
    const uint32_t other = other_place(w, s);
    for (uint32_t k = 1; k <= p->place_count; k++) {
        const ebb_away_place *place = &p->places[k - 1];
        if (other != 0 ? other != k : ebb_away_bytes(place, s) > w->room[k - 1])
            continue;
        put(w, s, k);
        const double there =
            other != 0 ? 0 : 2 * p->node_ns + (double)s->bytes * place->way[0].taken;
        branch(w, depth + 1, ns + there + 2 * p->node_ns + (double)s->bytes * place->way[1].taken);
        put_back(w, s);
    }
}

static void look_at_all(search *w)
{
    const ebb_away_problem *p = w->p;
    memcpy(w->rest, p->live, p->count * sizeof *w->rest);
    for (size_t i = 0; i < p->site_count; i++) {
        if (p->sites[i].lasts != EBB_AWAY_STEP)
            continue;
        if (p->sites[i].place != 0)
            put_back(w, &p->sites[i]);
        free_bytes(w->rest, &p->sites[i]);
    }
    uint32_t at;
    if (highest(w->rest, p->count, &at) <= w->most)
        branch(w, 0, 0);
}

/* ---- */

typedef struct key {
    uint64_t first, second;
    uint32_t site;
} key;

static int ascending(const void *a, const void *b)
{
    const key *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->second != y->second)
        return x->second < y->second ? -1 : 1;
    return (x->site > y->site) - (x->site < y->site);
}

static uint32_t *sites_of(key *keys, size_t count, ebb_arena *arena)
{
    uint32_t *list = EBB_NEW(arena, uint32_t, count + 1);
    if (count > 1)
        qsort(keys, count, sizeof *keys, ascending);
    for (size_t i = 0; list != NULL && i < count; i++)
        list[i] = keys[i].site;
    return list;
}

ebb_status ebb_away_sort(ebb_away_problem *p, ebb_arena *arena)
{
    const size_t n = p->site_count;
    key *keys = EBB_NEW(arena, key, n + 1);
    EBB_GOT(keys);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = (key){p->sites[i].made, i, i};
    p->by_made = sites_of(keys, n, arena);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = (key){UINT64_MAX - p->sites[i].bytes, p->sites[i].next, i};
    p->by_bytes = sites_of(keys, n, arena);
    EBB_GOT(p->by_made && p->by_bytes);
    return NULL;
}

static ebb_status begin(search *w, const ebb_away_problem *p, uint64_t most, ebb_arena *scratch)
{
    const size_t n = p->site_count, positions = p->count + (size_t)2;
    *w = (search){.p = p, .most = most, .best_ns = INFINITY, .best_peak = UINT64_MAX};
    w->live = EBB_NEW(scratch, uint64_t, positions);
    w->rest = EBB_NEW(scratch, uint64_t, positions);
    w->gone = EBB_NEW(scratch, uint64_t, positions);
    w->first = EBB_NEW(scratch, uint32_t, positions);
    w->best = EBB_NEW(scratch, uint32_t, n + 1);
    w->events = EBB_NEW(scratch, event, STAGES * n + 1);
    w->over = EBB_NEW(scratch, double, 2 * n + 1);
    EBB_GOT(w->live && w->rest && w->gone && w->first && w->best && w->events && w->over);
    for (size_t k = 0; k < p->place_count; k++)
        w->room[k] = p->places[k].room;
    return NULL;
}

static ebb_status list_rule(ebb_away_rule *rule, search *w, bool once, ebb_arena *arena)
{
    const ebb_away_problem *p = w->p;
    uint32_t at;
    *rule = (ebb_away_rule){.site = EBB_NEW(arena, uint32_t, p->site_count + 1),
                            .peak = EBB_NEW(arena, uint64_t, p->site_count + 1)};
    EBB_GOT(rule->site && rule->peak);
    memcpy(w->live, p->live, p->count * sizeof *w->live);
    for (;;) {
        rule->peak[rule->count] = highest(w->live, p->count, &at);
        ebb_away_site *next = farthest(w, at, once);
        if (next == NULL)
            break;
        put(w, next, nearest(w, next));
        free_bytes(w->live, next);
        rule->site[rule->count++] = (uint32_t)(next - p->sites);
    }
    for (size_t k = 0; k < rule->count; k++)
        put_back(w, &p->sites[rule->site[k]]);
    return NULL;
}

ebb_status ebb_away_rule_make(ebb_away_rule *rule, const ebb_away_problem *p, bool once,
                              ebb_arena *arena)
{
    search w;
    EBB_TRY(begin(&w, p, 0, arena));
    return list_rule(rule, &w, once, arena);
}

ebb_status ebb_away_weigh(ebb_away_weight *weight, const ebb_away_problem *p, uint64_t most,
                          ebb_arena *scratch)
{
    search w;
    ebb_away_problem sorted = *p;
    if (sorted.by_made == NULL)
        EBB_TRY(ebb_away_sort(&sorted, scratch));
    EBB_TRY(begin(&w, &sorted, most, scratch));
    *weight = (ebb_away_weight){0};
    weigh(&w, weight);
    return NULL;
}

ebb_status ebb_away_find(ebb_away_weight *weight, const ebb_away_problem *p, uint64_t most,
                         bool all, ebb_arena *scratch)
{
    search w;
    ebb_away_problem ruled = *p;
    if (ruled.by_made == NULL)
        EBB_TRY(ebb_away_sort(&ruled, scratch));
    EBB_TRY(begin(&w, &ruled, most, scratch));
    for (size_t i = 0; i < p->site_count; i++)
        if (p->sites[i].lasts == EBB_AWAY_STEP)
            p->sites[i].place = 0;
    if (ruled.rule.peak == NULL)
        EBB_TRY(list_rule(&ruled.rule, &w, false, scratch));
    follow_rule(&w);
    if (!all)
        leave_needless(&w);
    *weight = (ebb_away_weight){0};
    if (!all && p->site_count <= EBB_AWAY_FEW) {
        consider(&w);
        look_at_all(&w);
        weight->proven = !w.gave_up;
        for (size_t i = 0; i < p->site_count; i++)
            p->sites[i].place = w.best[i];
    }
    weigh(&w, weight);
    return NULL;
}
