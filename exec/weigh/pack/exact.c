/* exact.c: is there a packing within a capacity? Depth-first search over skylines.
 *
 * Time is cut into sections: the largest sets of pieces alive together. Each section has a floor,
 * below which all is decided, and the total of the pieces that it has still to hold. A node of the
 * search picks a section whose floor is a valley floor and decides what lies on it there: one of
 * the pieces that fit the valley and have something to rest on, or nothing up to the next level at
 * which something could rest.
 *
 *   offset ^      +-----+          sections 1-2 are a valley: next there is x, y, or
 *          | +--+ |     |            nothing below the first end of a piece to come
 *          | |  |_|     |          floor + total > capacity in any section: turn back
 *          +-0--1-2-----3---> section
 *
 * Why this is exhaustive: among the packings that fit there is one in which no piece could be moved
 * down. In it each piece lies on the ground or on another; what lies lowest over a valley section
 * is in the valley whole, and what it lies on has been placed. "Nothing" is refused where a piece
 * left out could then still have been put there: such a packing is not among the lowest.
 *
 * The order of decisions is free, and the search lives by it: first what has no alternative, then
 * either the section with the fewest alternatives, or the lowest valley with the piece of the
 * highest static rank; in both ways sections where the search has failed before come first (weights
 * as in constraint solvers: Boussemart, Hemery, Lecoutre, Sais 2004). Where the pieces to come fall
 * apart in time, each part is searched alone. Ways and ranks take turns with node limits that
 * double. Sections, bound, ranks and turns follow MiniMalloc (Moffitt, ASPLOS 2023).
 *
 * All is in units of the common divisor of sizes, in 32 bits. Where that does not do, sizes are
 * rounded up to a coarser unit: what is found is then still right, but nothing is proven.
 */
#include "exec/weigh/pack/exact.h"

#include "exec/weigh/pack/parts.h"

#include <stdlib.h>

enum { DEEPEST = 3000, NEVER = INT32_MAX };

typedef struct frame {      /* of one depth: arrays of the part's sizes */
    int32_t *floor, *total; /* by section */
    int32_t *low;           /* by piece: it lies there or higher */
    int32_t *rest;          /* by piece: the top of those placed below it */
    int32_t *support; /* by piece: the first end it could rest on, were it not to lie on a floor */
    bool *ready;      /* by piece: it may lie on the floor */
    int32_t *list, *all; /* pieces to come, by component; the same while they are sorted */
} frame;

typedef enum way { LOWEST, FEWEST, WAYS } way;

typedef struct search {
    const part *p;
    int32_t capacity;
    way way;
    frame *frames[DEEPEST + 2];
    ebb_arena *arena;
    int32_t *offset;             /* by piece */
    uint64_t *weight;            /* by section: failures */
    int32_t *reach, *next, *top; /* scratch by section */
    int32_t *choices;
    bool *blocked;
    ebb_budget *budget;
    uint64_t nodes, node_limit;
    bool stopped, no_memory;
} search;

/* ---- nodes ---- */

static frame *frame_at(search *s, uint32_t depth)
{
    if (depth > DEEPEST) {
        s->stopped = true;
        return NULL;
    }
    if (s->frames[depth] != NULL)
        return s->frames[depth];
    size_t n = s->p->count, sections = s->p->sections;
    frame *f = EBB_NEW(s->arena, frame, 1);
    int32_t *words = EBB_NEW(s->arena, int32_t, 2 * sections + 5 * n);
    bool *ready = EBB_NEW(s->arena, bool, n);
    if (f == NULL || words == NULL || ready == NULL) {
        s->stopped = s->no_memory = true;
        return NULL;
    }
    *f = (frame){.floor = words,
                 .total = words + sections,
                 .low = words + 2 * sections,
                 .rest = words + 2 * sections + n,
                 .support = words + 2 * sections + 2 * n,
                 .list = words + 2 * sections + 3 * n,
                 .all = words + 2 * sections + 4 * n,
                 .ready = ready};
    s->frames[depth] = f;
    return f;
}

/* The next frame as a copy of this one between two sections, for the pieces of the list. */
static frame *push(search *s, uint32_t depth, const int32_t *list, uint32_t count, int32_t from,
                   int32_t to)
{
    const frame *f = s->frames[depth];
    frame *g = frame_at(s, depth + 1);
    if (g == NULL)
        return NULL;
    memcpy(g->floor + from, f->floor + from, (size_t)(to - from) * sizeof *g->floor);
    memcpy(g->total + from, f->total + from, (size_t)(to - from) * sizeof *g->total);
    for (uint32_t k = 0; k < count; k++) {
        g->low[list[k]] = f->low[list[k]];
        g->rest[list[k]] = f->rest[list[k]];
    }
    return g;
}

static bool fail(search *s, int32_t section)
{
    s->weight[section]++;
    return false;
}

static bool meet(const part *p, int32_t i, int32_t j)
{
    return p->first[i] < p->last[j] && p->first[j] < p->last[i];
}

/* The lowest place from `low` on that no fixed piece to come is in the way of. */
static int32_t clear_of_fixed(const part *p, const int32_t *list, uint32_t count, int32_t i,
                              int32_t low)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t k = 0; k < count; k++) {
            int32_t j = list[k];
            if (!p->fixed[j])
                break; /* they come first */
            if (j != i && meet(p, i, j) && low < p->least[j] + p->size[j] &&
                low + p->size[i] > p->least[j]) {
                low = p->least[j] + p->size[j];
                moved = true;
            }
        }
    }
    return low;
}

/* From the lows of pieces to the floors of sections; false where something no longer fits. */
static bool settle(search *s, frame *f, const int32_t *list, uint32_t count, int32_t from,
                   int32_t to)
{
    const part *p = s->p;
    for (int32_t t = from; t < to; t++)
        s->reach[t] = NEVER;
    bool any_fixed = count > 0 && p->fixed[list[0]];
    for (uint32_t k = 0; k < count; k++) {
        int32_t i = list[k], low = f->low[i];
        if (any_fixed && !p->fixed[i])
            f->low[i] = low = clear_of_fixed(p, list, count, i, low);
        if (low > p->most[i])
            return fail(s, p->first[i]);
        for (int32_t t = p->first[i]; t < p->last[i]; t++)
            s->reach[t] = s->reach[t] < low ? s->reach[t] : low;
        s->budget->steps += 4 + (uint32_t)(p->last[i] - p->first[i]);
    }
    for (int32_t t = from; t < to; t++) {
        if (f->total[t] == 0)
            continue;
        if (s->reach[t] + f->total[t] > s->capacity)
            return fail(s, t);
        f->floor[t] = s->reach[t];
    }
    return true;
}

/* Puts i at its low; list: those to come without it. */
static bool place(search *s, frame *f, int32_t i, const int32_t *list, uint32_t count, int32_t from,
                  int32_t to)
{
    const part *p = s->p;
    int32_t end = f->low[i] + p->size[i];
    s->offset[i] = f->low[i];
    for (int32_t t = p->first[i]; t < p->last[i]; t++) {
        f->floor[t] = end;
        f->total[t] -= p->size[i];
        if (f->total[t] != 0 && end + f->total[t] > s->capacity)
            return fail(s, t);
    }
    for (uint32_t k = 0; k < count; k++) {
        int32_t j = list[k];
        if (!meet(p, i, j))
            continue;
        f->low[j] = f->low[j] > end ? f->low[j] : end;
        f->rest[j] = f->rest[j] > end ? f->rest[j] : end;
    }
    return settle(s, f, list, count, from, to);
}

/* The first end of a piece to come on which i could lie. */
static int32_t find_support(search *s, const frame *f, const int32_t *list, uint32_t count,
                            int32_t i)
{
    const part *p = s->p;
    int32_t least = NEVER;
    for (uint32_t k = 0; k < count; k++) {
        int32_t j = list[k], end = f->low[j] + p->size[j];
        if (j != i && end < least && meet(p, i, j))
            least = end;
    }
    s->budget->steps += count;
    return least;
}

/* Could a piece that is now to lie higher have been put where it was? Then so it should. */
static bool wasteful(const search *s, const frame *f, const int32_t *list, uint32_t count)
{
    const part *p = s->p;
    for (uint32_t k = 0; k < count; k++) {
        int32_t i = list[k], end = f->rest[i] + p->size[i];
        if (f->rest[i] >= f->low[i] || p->fixed[i])
            continue;
        bool room = true;
        for (uint32_t q = 0; q < count && room; q++)
            room = list[q] == i || f->low[list[q]] >= end || !meet(p, i, list[q]);
        s->budget->steps += count / 4;
        if (room)
            return true;
    }
    return false;
}

/* ---- what to decide next ---- */

/* Fills ready and support by piece, next (the level after "nothing"), top (the highest rank that is
 * ready), choices and blocked by section. A piece without neighbours to come is given back: it can
 * be placed at once, for it is in nobody's way. */
static int32_t look(search *s, frame *f, const int32_t *list, uint32_t count, int32_t from,
                    int32_t to)
{
    const part *p = s->p;
    for (int32_t t = from; t < to; t++) {
        s->next[t] = s->top[t] = NEVER;
        s->choices[t] = 0;
        s->blocked[t] = false;
    }
    for (uint32_t k = 0; k < count; k++) {
        int32_t i = list[k], low = f->low[i], level = low;
        bool flat = true;
        for (int32_t t = p->first[i]; t < p->last[i] && flat; t++)
            flat = f->floor[t] == low;
        f->ready[i] = flat && (f->rest[i] == low || p->fixed[i]);
        if (flat) {
            level = find_support(s, f, list, count, i);
            if (level == NEVER && f->ready[i])
                return i;
            if (p->fixed[i])
                level = NEVER;
            f->support[i] = level;
        }
        for (int32_t t = p->first[i]; t < p->last[i]; t++) {
            s->next[t] = s->next[t] < level ? s->next[t] : level;
            s->blocked[t] |= !flat && f->floor[t] == low;
        }
        if (f->ready[i])
            for (int32_t t = p->first[i]; t < p->last[i]; t++) {
                s->choices[t]++;
                s->top[t] = s->top[t] < (int32_t)k ? s->top[t] : (int32_t)k;
            }
        s->budget->steps += 6 + 2 * (uint32_t)(p->last[i] - p->first[i]);
    }
    return -1;
}

/* "Nothing lies on this floor here" is possible. */
static bool may_skip(const search *s, const frame *f, int32_t t)
{
    return s->next[t] != NEVER && s->next[t] <= s->capacity - f->total[t];
}

/* The section to decide at, or -1: there is one where nothing can lie and something must. */
static int32_t choose(search *s, const frame *f, int32_t from, int32_t to)
{
    int32_t best = -1;
    uint64_t best_level = 0, best_number = 0, best_weight = 1;
    for (int32_t t = from; t < to; t++) {
        if (f->total[t] == 0 || s->blocked[t])
            continue;
        uint64_t choices = (uint64_t)s->choices[t] + may_skip(s, f, t);
        if (choices == 0) {
            (void)fail(s, t);
            return -1;
        }
        uint64_t weight = 1 + s->weight[t], level = 0, number = choices;
        if (s->way == LOWEST) {
            level = choices == 1 ? 0 : 1 + (uint64_t)f->floor[t];
            number = s->top[t] == NEVER ? s->p->count + 1 : 1 + (uint64_t)s->top[t];
        }
        if (best < 0 || level < best_level ||
            (level == best_level && number * best_weight < best_number * weight)) {
            best = t;
            best_level = level;
            best_number = number;
            best_weight = weight;
        }
    }
    s->budget->steps += 2 * (uint32_t)(to - from);
    return best;
}

/* ---- the search ---- */

static bool solve(search *s, uint32_t depth, const int32_t *list, uint32_t count, int32_t from,
                  int32_t to);

typedef struct component {
    int32_t from, to, slack;
} component;

/* The parts that no piece to come holds together, the tightest first. */
static uint32_t find_components(search *s, const frame *f, const int32_t *list, uint32_t count,
                                int32_t from, int32_t to, component *parts, uint32_t most)
{
    const part *p = s->p;
    uint32_t parts_count = 0;
    int32_t *end = s->reach; /* by section: the furthest that a piece beginning here goes */
    for (int32_t t = from; t < to; t++)
        end[t] = t + 1;
    for (uint32_t k = 0; k < count; k++) {
        int32_t i = list[k];
        end[p->first[i]] = end[p->first[i]] > p->last[i] ? end[p->first[i]] : p->last[i];
    }
    for (int32_t t = from; t < to;) {
        bool last = parts_count == most - 1; /* the rest is searched as one */
        component c = {t, last ? to : t + 1, NEVER};
        for (; t < c.to; t++) {
            c.to = c.to > end[t] ? c.to : end[t];
            int32_t slack = s->capacity - f->floor[t] - f->total[t];
            if (f->total[t] != 0 && slack < c.slack)
                c.slack = slack;
        }
        if (c.slack == NEVER)
            continue;
        uint32_t at = parts_count++;
        for (; at > 0 && parts[at - 1].slack > c.slack; at--)
            parts[at] = parts[at - 1];
        parts[at] = c;
    }
    return parts_count;
}

enum { COMPONENTS = 8 };

/* Searches each component alone; all must succeed. `list` is kept. */
static bool divide(search *s, uint32_t depth, const int32_t *list, uint32_t count, int32_t from,
                   int32_t to)
{
    frame *f = s->frames[depth];
    component parts[COMPONENTS];
    if (count == 0)
        return true;
    uint32_t parts_count = find_components(s, f, list, count, from, to, parts, COMPONENTS);
    uint32_t begin = 0;
    for (uint32_t c = 0; c < parts_count; c++) {
        uint32_t size = 0;
        for (uint32_t k = 0; k < count; k++)
            if (s->p->first[list[k]] >= parts[c].from && s->p->first[list[k]] < parts[c].to)
                f->list[begin + size++] = list[k];
        if (!solve(s, depth, f->list + begin, size, parts[c].from, parts[c].to))
            return false;
        begin += size;
    }
    return true;
}

/* Without list[skip]; into the next frame's room. */
static uint32_t without(frame *g, const int32_t *list, uint32_t count, uint32_t skip)
{
    memcpy(g->all, list, skip * sizeof *list);
    memcpy(g->all + skip, list + skip + 1, (count - skip - 1) * sizeof *list);
    return count - 1;
}

static bool try_piece(search *s, uint32_t depth, const int32_t *list, uint32_t count, uint32_t k,
                      int32_t from, int32_t to)
{
    frame *g = push(s, depth, list, count, from, to);
    if (g == NULL)
        return false;
    uint32_t left = without(g, list, count, k);
    return place(s, g, list[k], g->all, left, from, to) &&
           divide(s, depth + 1, g->all, left, from, to);
}

static bool try_nothing(search *s, uint32_t depth, const int32_t *list, uint32_t count,
                        int32_t section, int32_t level, int32_t from, int32_t to)
{
    const part *p = s->p;
    const frame *f = s->frames[depth];
    frame *g = push(s, depth, list, count, from, to);
    if (g == NULL)
        return false;
    for (uint32_t k = 0; k < count; k++) {
        int32_t i = list[k];
        if (p->first[i] > section || p->last[i] <= section)
            continue;
        int32_t low = f->ready[i] && f->support[i] > level ? f->support[i] : level;
        g->low[i] = g->low[i] > low ? g->low[i] : low;
    }
    memcpy(g->all, list, count * sizeof *list);
    return settle(s, g, g->all, count, from, to) && !wasteful(s, g, g->all, count) &&
           divide(s, depth + 1, g->all, count, from, to);
}

/* One of the same lifetime and size stands earlier in the list: that one goes first. */
static bool has_twin(const part *p, const int32_t *list, uint32_t k)
{
    int32_t i = list[k];
    for (uint32_t q = 0; q < k; q++) {
        int32_t j = list[q];
        if (p->first[i] == p->first[j] && p->last[i] == p->last[j] && p->size[i] == p->size[j] &&
            p->most[i] == p->most[j] && !p->fixed[i] && !p->fixed[j])
            return true;
    }
    return false;
}

static bool stop(search *s)
{
    s->nodes++;
    if (s->nodes > s->node_limit || (s->nodes % 64 == 0 && ebb_budget_spent(s->budget)))
        s->stopped = true;
    return s->stopped;
}

static bool solve(search *s, uint32_t depth, const int32_t *list, uint32_t count, int32_t from,
                  int32_t to)
{
    const part *p = s->p;
    frame *f = s->frames[depth];
    if (count == 0)
        return true;
    if (stop(s))
        return false;
    int32_t alone = look(s, f, list, count, from, to);
    if (alone >= 0) {
        uint32_t k = 0;
        while (list[k] != alone)
            k++;
        return try_piece(s, depth, list, count, k, from, to);
    }
    int32_t section = choose(s, f, from, to);
    if (section < 0)
        return false;
    bool skip = may_skip(s, f, section);
    int32_t level = s->next[section];
    for (uint32_t k = 0; k < count; k++) {
        int32_t i = list[k];
        if (!f->ready[i] || p->first[i] > section || p->last[i] <= section || has_twin(p, list, k))
            continue;
        if (try_piece(s, depth, list, count, k, from, to))
            return true;
        if (s->stopped)
            return false;
    }
    return skip && try_nothing(s, depth, list, count, section, level, from, to);
}

/* ---- a part ---- */

/* One descent from the top under s->node_limit. */
static ebb_verdict descend(search *s)
{
    const part *p = s->p;
    frame *f = frame_at(s, 0);
    if (f == NULL)
        return EBB_GAVE_UP;
    s->nodes = 0;
    s->stopped = false;
    for (uint32_t i = 0; i < p->count; i++) {
        f->low[i] = p->least[i];
        f->rest[i] = 0;
        f->all[i] = (int32_t)i;
    }
    memcpy(f->total, p->total, p->sections * sizeof *f->total);
    memset(f->floor, 0, p->sections * sizeof *f->floor);
    int32_t to = (int32_t)p->sections;
    if (settle(s, f, f->all, p->count, 0, to) && divide(s, 0, f->all, p->count, 0, to))
        return EBB_FOUND;
    return s->stopped ? EBB_GAVE_UP : EBB_IMPOSSIBLE;
}

static bool new_search(search *s, const part *p)
{
    int32_t *words = EBB_NEW(s->arena, int32_t, 4 * (size_t)p->sections);
    s->offset = EBB_NEW(s->arena, int32_t, p->count);
    s->blocked = EBB_NEW(s->arena, bool, p->sections);
    if (words == NULL || s->offset == NULL || s->blocked == NULL)
        return false;
    s->reach = words;
    s->next = words + p->sections;
    s->top = words + 2 * (size_t)p->sections;
    s->choices = words + 3 * (size_t)p->sections;
    s->p = p;
    return true;
}

/* Ranks and ways take turns. Failures are remembered from turn to turn in one way, and forgotten in
 * the other: what one of them is led astray by, the other has not seen. */
static ebb_status solve_part(ebb_verdict *verdict, uint64_t *offsets, const part *p, const unit *u,
                             const ebb_piece *pieces, ebb_budget *budget, ebb_arena *arena)
{
    part turns[RANKS];
    search *s = EBB_NEW(arena, search, 1);
    uint64_t *weights = EBB_NEW(arena, uint64_t, 2 * (size_t)p->sections);
    EBB_GOT(s && weights);
    *s = (search){.arena = arena, .budget = budget, .capacity = u->capacity};
    EBB_GOT(new_search(s, p));
    for (int r = 0; r < RANKS; r++)
        EBB_TRY(ebb_part_rank(&turns[r], p, ebb_ranks[r], arena));
    *verdict = EBB_GAVE_UP;
    uint64_t limit = 2 * (uint64_t)p->count;
    for (; *verdict == EBB_GAVE_UP && !ebb_budget_spent(budget); limit *= 2) {
        for (int turn = 0; turn < RANKS * WAYS && *verdict == EBB_GAVE_UP; turn++) {
            s->p = &turns[turn / WAYS];
            s->way = (way)(turn % WAYS);
            s->node_limit = limit;
            s->weight = weights + (s->way == LOWEST ? 0 : p->sections);
            if (s->way == FEWEST)
                memset(s->weight, 0, p->sections * sizeof *s->weight);
            *verdict = descend(s);
            EBB_GOT(!s->no_memory);
            if (ebb_budget_spent(budget))
                break;
        }
    }
    for (uint32_t i = 0; i < p->count && *verdict == EBB_FOUND; i++) {
        uint32_t piece = s->p->piece[i];
        offsets[piece] = pieces[piece].fixed ? pieces[piece].at : (uint64_t)s->offset[i] * u->bytes;
    }
    if (*verdict == EBB_IMPOSSIBLE && !u->exact)
        *verdict = EBB_GAVE_UP;
    return NULL;
}

/* ---- the whole ---- */

static ebb_status solve_all(ebb_verdict *verdict, uint64_t *offsets, const ebb_piece *pieces,
                            uint32_t count, const unit *u, uint64_t capacity, ebb_budget *budget,
                            ebb_arena *arena)
{
    event *events = EBB_NEW(arena, event, 2 * (size_t)count);
    uint32_t *place_of = EBB_NEW(arena, uint32_t, count);
    EBB_GOT(events && place_of);
    for (uint32_t i = 0; i < count; i++) {
        events[2 * i] = (event){pieces[i].lower, i, true};
        events[2 * i + 1] = (event){pieces[i].upper, i, false};
    }
    qsort(events, 2 * (size_t)count, sizeof *events, ebb_event_compare);
    *verdict = EBB_FOUND;
    size_t alive = 0, begin = 0;
    for (size_t e = 0; e < 2 * (size_t)count && *verdict == EBB_FOUND; e++) {
        alive = events[e].birth ? alive + 1 : alive - 1;
        if (alive != 0)
            continue;
        part p = {0};
        uint32_t members = 0;
        bool fits = true;
        EBB_GOT(ebb_part_new(&p, arena, (uint32_t)(e + 1 - begin) / 2));
        for (size_t k = begin; k <= e && fits; k++)
            if (events[k].birth) {
                uint32_t i = events[k].piece;
                place_of[i] = members;
                fits = ebb_part_measure(&p, members++, &pieces[i], i, u, capacity);
            }
        if (!fits || !ebb_part_cut(&p, events + begin, place_of, u->capacity))
            *verdict = u->exact ? EBB_IMPOSSIBLE : EBB_GAVE_UP;
        else
            EBB_TRY(solve_part(verdict, offsets, &p, u, pieces, budget, arena));
        begin = e + 1;
    }
    return NULL;
}

ebb_status ebb_pack_exact(ebb_verdict *verdict, uint64_t *offsets, const ebb_piece *pieces,
                          uint32_t count, uint64_t alignment, uint64_t capacity, ebb_budget *budget)
{
    EBB_LOCAL_ARENA(arena);
    *verdict = EBB_FOUND;
    if (count == 0)
        return NULL;
    if (count > EBB_EXACT_MOST) {
        *verdict = EBB_GAVE_UP;
        return NULL;
    }
    unit u = ebb_unit_choose(pieces, count, alignment, capacity);
    return solve_all(verdict, offsets, pieces, count, &u, capacity, budget, arena);
}
