/* greedy.c: first fit and best fit over several orders, then local search on the winner.
 *
 * Pieces are placed one after another in the order given. Those placed are kept sorted by offset,
 * so one walk over them (shelves.h) sees the gaps between the neighbours in time from the bottom up.
 *
 *   offset                      placing z: neighbours in time are a and c
 *     ^      +--- c ---+        the gap between them is tried before the top of c
 *     |   . . z . .
 *     |   +-- a --+  +- b -+
 *     +---------------------> position
 *
 * Where an order spends the steps that all were given, nothing depends on their number any more: what
 * first fit has still to place goes by the tree of space.h, to the same offsets and without a walk.
 *
 * Local search: take one of the pieces that touch the top, give it an earlier turn, place again;
 * keep what is not higher. The turns before that one are as they were: of the order that is varied
 * the shelves are kept at some marks, and who places again begins at the last mark that is so. It
 * counts the steps that it would have taken, so nothing depends on the marks.
 */
#include "exec/weigh/pack/greedy.h"

#include "exec/weigh/pack/shelves.h"
#include "exec/weigh/pack/space.h"
#include "onnx/words/mix.h"

enum { MARKS = 16, MARKED_MOST = 1 << 15 };

typedef struct mark { /* where an order has placed so many */
    ebb_shelves shelves;
    uint32_t placed;
    uint64_t height, steps;
} mark;

struct ebb_greedy {
    ebb_arena *scratch;
    const ebb_piece *pieces;
    uint32_t count, fixed; /* the fixed ones come first, in every order */
    ebb_shelves shelves;
    mark marks[MARKS];
    uint32_t mark_count, marked;       /* those with memory; those that are made, in their order */
    uint64_t *trial, *offsets, *other; /* by piece */
    uint32_t *order, *turn, *spare, *start;
    uint64_t random;
    uint64_t height;
    const char *method;
    bool best_fit;
    bool first_pass; /* the orders: how far they pass what they were given does not matter */
};

ebb_greedy *ebb_greedy_new(const ebb_piece *pieces, uint32_t count, ebb_arena *scratch)
{
    ebb_greedy *g = EBB_NEW(scratch, ebb_greedy, 1);
    uint64_t *numbers = EBB_NEW(scratch, uint64_t, 3 * (size_t)count);
    uint32_t *orders = EBB_NEW(scratch, uint32_t, 4 * (size_t)count);
    ebb_shelves shelves;
    if (g == NULL || numbers == NULL || orders == NULL ||
        !ebb_shelves_make(&shelves, count, scratch))
        return NULL;
    *g = (ebb_greedy){.scratch = scratch,
                      .pieces = pieces,
                      .count = count,
                      .shelves = shelves,
                      .trial = numbers,
                      .offsets = numbers + count,
                      .other = numbers + 2 * (size_t)count,
                      .order = orders,
                      .turn = orders + count,
                      .spare = orders + 2 * (size_t)count,
                      .start = orders + 3 * (size_t)count,
                      .random = 0x656262, /* fixed: the same offsets every time */
                      .height = UINT64_MAX,
                      .method = "none"};
    for (uint32_t i = 0; i < count; i++)
        g->fixed += pieces[i].fixed;
    return g;
}

uint64_t ebb_greedy_height(const ebb_greedy *g)
{
    return g->height;
}

const uint64_t *ebb_greedy_offsets(const ebb_greedy *g)
{
    return g->offsets;
}

const char *ebb_greedy_method(const ebb_greedy *g)
{
    return g->method;
}

/* What the first `placed` in this order take. NULL: out of memory, and the walk goes on. */
static ebb_space *space_of(const ebb_greedy *g, const uint32_t *order, uint32_t placed)
{
    ebb_space *space = ebb_space_new(g->pieces, g->count, g->scratch);
    for (uint32_t k = 0; k < placed && space != NULL; k++)
        if (!ebb_space_take(space, &g->pieces[order[k]], g->trial[order[k]]))
            space = NULL;
    return space;
}

/* ---- marks ---- */

/* Of large inputs none: they would take too much memory. */
static void make_marks(ebb_greedy *g)
{
    g->marked = 0;
    while (g->count <= MARKED_MOST && g->mark_count < MARKS) {
        const uint32_t placed = (uint32_t)((uint64_t)g->count * (g->mark_count + 1) / (MARKS + 1));
        mark *m = &g->marks[g->mark_count];
        *m = (mark){.placed = placed};
        if (!ebb_shelves_make(&m->shelves, placed, g->scratch))
            return;
        g->mark_count++;
    }
}

static void set_mark(ebb_greedy *g, uint64_t height, uint64_t steps)
{
    mark *m = &g->marks[g->marked++];
    m->height = height;
    m->steps = steps;
    ebb_shelves_copy(&m->shelves, &g->shelves);
}

/* The last mark within the first `same`, or the beginning. */
static mark begin_at(ebb_greedy *g, uint32_t same)
{
    uint32_t i = g->marked;
    while (i > 0 && g->marks[i - 1].placed > same)
        i--;
    if (i == 0) {
        ebb_shelves_clear(&g->shelves);
        return (mark){0};
    }
    ebb_shelves_copy(&g->shelves, &g->marks[i - 1].shelves);
    return g->marks[i - 1];
}

/* ---- placing ---- */

/* Places all pieces in the given turn order; the height in bytes asked for, or `limit` as soon as
 * it is reached. The first `same` are those of the order that has the marks, and lie where it has
 * placed them. */
static uint64_t place(ebb_greedy *g, const uint32_t *order, bool best_fit, uint64_t limit,
                      ebb_budget *budget, uint32_t same, const uint64_t *offsets)
{
    ebb_space *space = NULL;
    bool may_change = g->first_pass && !best_fit;
    const mark from = begin_at(g, same);
    const uint64_t steps = budget->steps;
    uint64_t height = from.height;
    budget->steps += from.steps;
    for (uint32_t k = 0; k < from.placed; k++)
        g->trial[order[k]] = offsets[order[k]];
    for (uint32_t k = from.placed; k < g->count; k++) {
        if (k <= same && g->marked < g->mark_count && k == g->marks[g->marked].placed)
            set_mark(g, height, budget->steps - steps);
        const ebb_piece *z = &g->pieces[order[k]];
        uint64_t offset = z->at;
        if (may_change && budget->steps >= budget->most) {
            space = space_of(g, order, k);
            may_change = false;
        }
        if (!z->fixed)
            offset = space != NULL ? ebb_space_first(space, z)
                                   : ebb_shelves_find(&g->shelves, z, best_fit, &budget->steps);
        uint64_t end = offset + z->bytes;
        height = height > end ? height : end;
        if (height >= limit)
            return limit;
        g->trial[order[k]] = offset;
        if (space == NULL)
            ebb_shelves_put(&g->shelves, z, offset);
        else if (!ebb_space_take(space, z, offset))
            return limit; // out of memory: as if it were no better
        budget->steps += 16;
    }
    return height;
}

/* ---- orders ---- */

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* size x lifetime, capped: the order needs no more. */
static uint64_t area(const ebb_piece *a)
{
    uint64_t product;
    return __builtin_mul_overflow(a->size, (uint64_t)(a->upper - a->lower), &product) ? UINT64_MAX
                                                                                      : product;
}

static int by_size(const ebb_piece *a, const ebb_piece *b)
{
    int c = compare_u64(b->size, a->size);
    return c ? c : compare_u64(b->upper - b->lower, a->upper - a->lower);
}

static int by_life(const ebb_piece *a, const ebb_piece *b)
{
    int c = compare_u64(b->upper - b->lower, a->upper - a->lower);
    return c ? c : compare_u64(b->size, a->size);
}

static int by_area(const ebb_piece *a, const ebb_piece *b)
{
    int c = compare_u64(area(b), area(a));
    return c ? c : compare_u64(b->size, a->size);
}

static int by_birth(const ebb_piece *a, const ebb_piece *b)
{
    int c = compare_u64(a->lower, b->lower);
    return c ? c : compare_u64(b->upper, a->upper);
}

static int by_death(const ebb_piece *a, const ebb_piece *b)
{
    int c = compare_u64(b->upper, a->upper);
    return c ? c : compare_u64(a->lower, b->lower);
}

/* Powers of four of size first, long lives first within: the middle way between size and life. */
static int by_class(const ebb_piece *a, const ebb_piece *b)
{
    int x = (64 - __builtin_clzll(a->size | 1)) / 2, y = (64 - __builtin_clzll(b->size | 1)) / 2;
    int c = y - x;
    return c ? c : by_life(a, b);
}

typedef int (*piece_order)(const ebb_piece *, const ebb_piece *);

static const struct {
    const char *name;
    piece_order compare;
    bool best_fit;
} orders[] = {
    {"life", by_life, false},          {"size", by_size, false},
    {"area", by_area, false},          {"class", by_class, false},
    {"birth", by_birth, false},        {"death", by_death, false},
    {"life, best fit", by_life, true}, {"size, best fit", by_size, true},
    {"area, best fit", by_area, true}, {"birth, best fit", by_birth, true},
};

enum { ORDERS = sizeof orders / sizeof orders[0] };

/* Merge sort of order[] by compare, then by index: qsort has no context and is not stable. */
static void sort_order(const ebb_piece *pieces, uint32_t *order, uint32_t *spare, uint32_t count,
                       piece_order compare)
{
    if (count < 2)
        return;
    uint32_t half = count / 2, a = 0, b = half, out = 0;
    sort_order(pieces, order, spare, half, compare);
    sort_order(pieces, order + half, spare, count - half, compare);
    while (a < half && b < count) {
        const ebb_piece *x = &pieces[order[a]], *y = &pieces[order[b]];
        int c = (int)y->fixed - (int)x->fixed;
        if (c == 0)
            c = compare(x, y);
        if (c == 0)
            c = compare_u64(x->index, y->index);
        spare[out++] = c <= 0 ? order[a++] : order[b++];
    }
    while (a < half)
        spare[out++] = order[a++];
    while (b < count)
        spare[out++] = order[b++];
    memcpy(order, spare, count * sizeof *order);
}

static void make_order(ebb_greedy *g, uint32_t *order, size_t k)
{
    for (uint32_t i = 0; i < g->count; i++)
        order[i] = i;
    sort_order(g->pieces, order, g->spare, g->count, orders[k].compare);
}

static void keep(ebb_greedy *g, size_t k, uint64_t height, const uint64_t *offsets,
                 const uint32_t *order)
{
    g->height = height;
    g->method = orders[k].name;
    g->best_fit = orders[k].best_fit;
    memcpy(g->offsets, offsets, g->count * sizeof *offsets);
    memcpy(g->order, order, g->count * sizeof *order);
}

void ebb_greedy_orders(ebb_greedy *g, uint64_t enough, ebb_budget *budget)
{
    g->first_pass = true;
    for (size_t k = 0; k < ORDERS && g->height > enough; k++) {
        if (k > 0 && ebb_budget_spent(budget))
            break;
        make_order(g, g->turn, k);
        uint64_t height = place(g, g->turn, orders[k].best_fit, g->height, budget, 0, NULL);
        if (height >= g->height)
            continue;
        keep(g, k, height, g->trial, g->turn);
    }
    g->first_pass = false;
}

/* ---- local search ---- */

/* Takes the entry at `from` to the earlier place `to`. */
static void promote(uint32_t *order, uint32_t from, uint32_t to)
{
    uint32_t moved = order[from];
    memmove(&order[to + 1], &order[to], (from - to) * sizeof *order);
    order[to] = moved;
}

/* A neighbour of order[] into g->turn; how many turns at its beginning are the same. */
static uint32_t vary(ebb_greedy *g, const uint32_t *order, const uint64_t *offsets, uint64_t height,
                     uint64_t enough, uint64_t *random)
{
    uint32_t first = g->fixed, free = g->count - g->fixed;
    /* One of those at the top, by reservoir sampling, and now and then one at random. */
    uint32_t from = first, seen = 0;
    uint64_t slack = (height - enough) / 2;
    for (uint32_t k = first; k < g->count; k++) {
        uint64_t end = offsets[order[k]] + g->pieces[order[k]].size;
        if (end + slack >= height && ebb_draw(random) % ++seen == 0)
            from = k;
    }
    if (ebb_draw(random) % 8 == 0)
        from = first + (uint32_t)(ebb_draw(random) % free);
    memcpy(g->turn, order, g->count * sizeof *order);
    uint32_t to = from == first ? first : first + (uint32_t)(ebb_draw(random) % (from - first));
    if (ebb_draw(random) % 3 == 0) {
        uint32_t other = first + (uint32_t)(ebb_draw(random) % free);
        uint32_t kept = g->turn[from];
        g->turn[from] = g->turn[other];
        g->turn[other] = kept;
        return from < other ? from : other;
    }
    promote(g->turn, from, to);
    return to;
}

/* Improves order and offsets (both in place) until `enough` or the budget is reached. */
static uint64_t improve(ebb_greedy *g, uint32_t *order, uint64_t *offsets, uint64_t height,
                        uint64_t enough, bool best_fit, ebb_budget *budget)
{
    make_marks(g);
    while (height > enough && !ebb_budget_spent(budget)) {
        const uint32_t same = vary(g, order, offsets, height, enough, &g->random);
        budget->steps += g->count;
        uint64_t reached = place(g, g->turn, best_fit, height + 1, budget, same, offsets);
        if (reached <= height) {
            while (g->marked > 0 && g->marks[g->marked - 1].placed > same)
                g->marked--;
            memcpy(order, g->turn, g->count * sizeof *order);
            memcpy(offsets, g->trial, g->count * sizeof *offsets);
            height = reached;
        }
    }
    return height;
}

void ebb_greedy_search(ebb_greedy *g, uint64_t enough, ebb_budget *budget)
{
    if (g->fixed == g->count || g->height <= enough)
        return;
    ebb_budget half = ebb_budget_part(budget, 0.5);
    g->height = improve(g, g->order, g->offsets, g->height, enough, g->best_fit, &half);
    budget->steps = half.steps;
    /* The winner's neighbourhood may be a poor one: a shorter search from each of the others. */
    for (size_t k = 0; k < ORDERS && g->height > enough && !ebb_budget_spent(budget); k++) {
        ebb_budget share = ebb_budget_part(budget, 1.0 / (double)(ORDERS - k));
        make_order(g, g->start, k);
        uint64_t height = place(g, g->start, orders[k].best_fit, UINT64_MAX, &share, 0, NULL);
        memcpy(g->other, g->trial, g->count * sizeof *g->other);
        height = improve(g, g->start, g->other, height, enough, orders[k].best_fit, &share);
        budget->steps = share.steps;
        if (height < g->height)
            keep(g, k, height, g->other, g->start);
    }
}
