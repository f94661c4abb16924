/* pack.c: the packer. First-fit and best-fit over several orders, then local search on the winner.
 *
 * Intervals that are alive throughout go to the bottom, where they are in nobody's way. The others
 * are placed one after another in the order given: those placed are kept sorted by offset, so one
 * walk over them sees the gaps between the neighbours in time from the bottom up.
 *
 *   offset                      placing z: neighbours in time are a and c
 *     ^      +--- c ---+        the gap between them is tried before the top of c
 *     |   . . z . .
 *     |   +-- a --+  +- b -+
 *     +---------------------> position
 *
 * Local search: take one of the intervals that touch the top, give it an earlier turn, place again;
 * keep what is not higher. Work is bounded by counted steps and never by a clock, so that the same
 * input gives the same offsets everywhere.
 */
#include "exec/pack.h"

#include <assert.h>
#include <stdlib.h>

static const uint64_t order_steps = 250u * 1000 * 1000;  /* for all orders: about half a second */
static const uint64_t search_steps = 240u * 1000 * 1000; /* for local search */

typedef struct piece {
    uint32_t lower, upper;
    uint64_t size;
    uint32_t index; /* into the caller's intervals */
} piece;

typedef struct slab { /* a piece that has its place */
    uint64_t offset, end;
    uint32_t lower, upper;
} slab;

typedef struct packer {
    piece *pieces;
    uint32_t count;
    slab *slabs;       /* placed so far, by offset */
    uint64_t *offsets; /* of this trial, by piece */
    uint64_t steps;
} packer;

/* Places all pieces in the given turn order; the height, or `limit` as soon as it is reached. */
static uint64_t place(packer *p, const uint32_t *order, bool best_fit, uint64_t limit)
{
    uint64_t height = 0;
    for (uint32_t k = 0; k < p->count; k++) {
        const piece *z = &p->pieces[order[k]];
        uint64_t top = 0, found = UINT64_MAX, smallest = UINT64_MAX;
        uint32_t i = 0;
        for (; i < k; i++) {
            const slab *s = &p->slabs[i];
            if (s->lower >= z->upper || s->upper <= z->lower)
                continue;
            if (s->offset >= top + z->size) {
                uint64_t gap = s->offset - top;
                if (gap < smallest) {
                    smallest = gap;
                    found = top;
                }
                if (!best_fit || gap == z->size)
                    break;
            }
            if (s->end > top)
                top = s->end;
        }
        p->steps += i + 1;
        uint64_t offset = found != UINT64_MAX ? found : top;
        uint64_t end = offset + z->size;
        if (end > height) {
            height = end;
            if (height >= limit)
                return limit;
        }
        p->offsets[order[k]] = offset;
        uint32_t low = 0, high = k; /* first slab above offset */
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (p->slabs[middle].offset <= offset)
                low = middle + 1;
            else
                high = middle;
        }
        memmove(&p->slabs[low + 1], &p->slabs[low], (k - low) * sizeof *p->slabs);
        p->slabs[low] = (slab){offset, end, z->lower, z->upper};
    }
    return height;
}

/* ---- orders ---- */

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* size x lifetime, capped: the order needs no more. */
static uint64_t area(const piece *a)
{
    uint64_t product;
    return __builtin_mul_overflow(a->size, (uint64_t)(a->upper - a->lower), &product) ? UINT64_MAX
                                                                                      : product;
}

static int by_index(const piece *a, const piece *b)
{
    return compare_u64(a->index, b->index);
}

static int by_size(const piece *a, const piece *b)
{
    int c = compare_u64(b->size, a->size);
    return c ? c : compare_u64(b->upper - b->lower, a->upper - a->lower);
}

static int by_life(const piece *a, const piece *b)
{
    int c = compare_u64(b->upper - b->lower, a->upper - a->lower);
    return c ? c : compare_u64(b->size, a->size);
}

static int by_area(const piece *a, const piece *b)
{
    int c = compare_u64(area(b), area(a));
    return c ? c : compare_u64(b->size, a->size);
}

static int by_birth(const piece *a, const piece *b)
{
    int c = compare_u64(a->lower, b->lower);
    return c ? c : compare_u64(b->upper, a->upper);
}

static int by_death(const piece *a, const piece *b)
{
    int c = compare_u64(b->upper, a->upper);
    return c ? c : compare_u64(a->lower, b->lower);
}

/* Powers of four of size first, long lives first within: the middle way between size and life. */
static int by_class(const piece *a, const piece *b)
{
    int x = (64 - __builtin_clzll(a->size | 1)) / 2, y = (64 - __builtin_clzll(b->size | 1)) / 2;
    int c = y - x;
    return c ? c : by_life(a, b);
}

typedef int (*piece_order)(const piece *, const piece *);

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
static void sort_order(const packer *p, uint32_t *order, uint32_t *spare, uint32_t count,
                       piece_order compare)
{
    if (count < 2)
        return;
    uint32_t half = count / 2, a = 0, b = half, out = 0;
    sort_order(p, order, spare, half, compare);
    sort_order(p, order + half, spare, count - half, compare);
    while (a < half && b < count) {
        const piece *x = &p->pieces[order[a]], *y = &p->pieces[order[b]];
        int c = compare(x, y);
        if (c == 0)
            c = by_index(x, y);
        spare[out++] = c <= 0 ? order[a++] : order[b++];
    }
    while (a < half)
        spare[out++] = order[a++];
    while (b < count)
        spare[out++] = order[b++];
    memcpy(order, spare, count * sizeof *order);
}

/* ---- local search ---- */

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Takes the entry at `from` to the earlier place `to`. */
static void promote(uint32_t *order, uint32_t from, uint32_t to)
{
    uint32_t moved = order[from];
    memmove(&order[to + 1], &order[to], (from - to) * sizeof *order);
    order[to] = moved;
}

/* Improves order (in place) and best offsets until the bound or the steps are reached. The bound
 * may be one that is merely low enough. */
static uint64_t search(packer *p, uint32_t *order, uint32_t *trial, uint64_t *best_offsets,
                       uint64_t height, uint64_t bound, bool best_fit, uint64_t steps)
{
    uint64_t random = 0x656262; /* fixed: the same offsets every time */
    uint64_t until = p->steps + steps;
    while (height > bound && p->steps < until) {
        /* One of those at the top, by reservoir sampling, and now and then one at random. */
        uint32_t from = 0, seen = 0;
        uint64_t slack = (height - bound) / 2;
        for (uint32_t k = 0; k < p->count; k++) {
            uint64_t end = best_offsets[order[k]] + p->pieces[order[k]].size;
            if (end + slack >= height && next_random(&random) % ++seen == 0)
                from = k;
        }
        p->steps += p->count;
        if (next_random(&random) % 8 == 0)
            from = (uint32_t)(next_random(&random) % p->count);
        memcpy(trial, order, p->count * sizeof *trial);
        uint32_t to = from == 0 ? 0 : (uint32_t)(next_random(&random) % from);
        if (next_random(&random) % 3 == 0) {
            uint32_t other = (uint32_t)(next_random(&random) % p->count);
            uint32_t keep = trial[from];
            trial[from] = trial[other];
            trial[other] = keep;
        } else if (from != to) {
            promote(trial, from, to);
        }
        uint64_t reached = place(p, trial, best_fit, height + 1);
        if (reached <= height) {
            memcpy(order, trial, p->count * sizeof *trial);
            memcpy(best_offsets, p->offsets, p->count * sizeof *best_offsets);
            height = reached;
        }
    }
    return height;
}

/* ---- the whole ---- */

typedef struct event {
    uint32_t position;
    bool birth;
    uint64_t size;
} event;

static int compare_events(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return (int)x->birth - (int)y->birth; /* deaths first */
}

/* The most bytes alive at one position. */
static uint64_t most_alive(const packer *p, event *events)
{
    for (uint32_t i = 0; i < p->count; i++) {
        events[2 * (size_t)i] = (event){p->pieces[i].lower, true, p->pieces[i].size};
        events[2 * (size_t)i + 1] = (event){p->pieces[i].upper, false, p->pieces[i].size};
    }
    qsort(events, 2 * (size_t)p->count, sizeof *events, compare_events);
    uint64_t live = 0, most = 0;
    for (size_t i = 0; i < 2 * (size_t)p->count; i++) {
        live = events[i].birth ? live + events[i].size : live - events[i].size;
        if (live > most)
            most = live;
    }
    return most;
}

/* Sizes rounded up; no sum of them may overflow. */
static ebb_status check(const ebb_interval *intervals, size_t count, uint64_t alignment,
                        uint32_t *first, uint32_t *last)
{
    uint64_t total = 0;
    if (count >= UINT32_MAX)
        return ebb_error(EBB_REJECTED, "%zu intervals are too many to pack", count);
    for (size_t i = 0; i < count; i++) {
        const ebb_interval *v = &intervals[i];
        if (v->lower > v->upper)
            return ebb_error(EBB_REJECTED,
                             "interval %zu is reversed: it ends at %u and begins at %u", i,
                             v->upper, v->lower);
        uint64_t size;
        if (__builtin_add_overflow(v->size, alignment - 1, &size) ||
            __builtin_add_overflow(total, size, &total) || total > UINT64_MAX / 4)
            return ebb_error(EBB_REJECTED, "interval %zu: the sizes together overflow", i);
        if (v->lower == v->upper || v->size == 0)
            continue;
        *first = v->lower < *first ? v->lower : *first;
        *last = v->upper > *last ? v->upper : *last;
    }
    return NULL;
}

static ebb_status pack(ebb_packing *packing, ebb_interval *intervals, size_t count,
                       uint64_t alignment, ebb_arena *scratch)
{
    uint32_t first = UINT32_MAX, last = 0;
    EBB_TRY(check(intervals, count, alignment, &first, &last));
    packer p = {.pieces = EBB_NEW(scratch, piece, count + 1)};
    if (p.pieces == NULL)
        return ebb_error_memory();
    uint64_t base = 0;
    for (size_t i = 0; i < count; i++) {
        ebb_interval *v = &intervals[i];
        uint64_t size = (v->size + alignment - 1) / alignment * alignment;
        v->offset = 0;
        if (v->lower == v->upper || size == 0)
            continue;
        if (v->lower == first && v->upper == last) {
            v->offset = base;
            base += size;
        } else {
            p.pieces[p.count++] = (piece){v->lower, v->upper, size, (uint32_t)i};
        }
    }
    packing->order = "bottom";
    packing->height = packing->lower_bound = base;
    if (p.count == 0)
        return NULL;

    p.slabs = EBB_NEW(scratch, slab, (size_t)p.count + 1);
    p.offsets = EBB_NEW(scratch, uint64_t, p.count);
    uint64_t *best_offsets = EBB_NEW(scratch, uint64_t, p.count);
    uint64_t *offsets = EBB_NEW(scratch, uint64_t, p.count);
    uint32_t *order = EBB_NEW(scratch, uint32_t, p.count);
    uint32_t *spare = EBB_NEW(scratch, uint32_t, p.count);
    uint32_t *best_order = EBB_NEW(scratch, uint32_t, p.count);
    event *events = EBB_NEW(scratch, event, 2 * (size_t)p.count);
    if (p.slabs == NULL || p.offsets == NULL || best_offsets == NULL || offsets == NULL ||
        order == NULL || spare == NULL || best_order == NULL || events == NULL)
        return ebb_error_memory();
    uint64_t bound = most_alive(&p, events), best = UINT64_MAX;
    bool best_fit = false;
    for (size_t k = 0; k < ORDERS && best > bound; k++) {
        if (k > 0 && p.steps > order_steps)
            break;
        for (uint32_t i = 0; i < p.count; i++)
            order[i] = i;
        sort_order(&p, order, spare, p.count, orders[k].compare);
        uint64_t height = place(&p, order, orders[k].best_fit, best);
        if (height < best) {
            best = height;
            best_fit = orders[k].best_fit;
            packing->order = orders[k].name;
            memcpy(best_offsets, p.offsets, p.count * sizeof *best_offsets);
            memcpy(best_order, order, p.count * sizeof *best_order);
        }
    }
    /* Half a thousandth above the bound is not worth a user's second. */
    uint64_t enough = bound + (base + bound) / 2000;
    best = search(&p, best_order, order, best_offsets, best, enough, best_fit, search_steps / 2);
    /* The winner's neighbourhood may be a poor one: a shorter search from each of the others. */
    for (size_t k = 0; k < ORDERS && best > enough; k++) {
        for (uint32_t i = 0; i < p.count; i++)
            best_order[i] = i;
        sort_order(&p, best_order, spare, p.count, orders[k].compare);
        uint64_t height = place(&p, best_order, orders[k].best_fit, UINT64_MAX);
        memcpy(offsets, p.offsets, p.count * sizeof *offsets);
        height = search(&p, best_order, order, offsets, height, enough, orders[k].best_fit,
                        search_steps / 2 / ORDERS);
        if (height >= best)
            continue;
        best = height;
        packing->order = orders[k].name;
        memcpy(best_offsets, offsets, p.count * sizeof *offsets);
    }
    for (uint32_t i = 0; i < p.count; i++)
        intervals[p.pieces[i].index].offset = base + best_offsets[i];
    packing->height = base + best;
    packing->lower_bound = base + bound;
    return NULL;
}

ebb_status ebb_pack(ebb_packing *packing, ebb_interval *intervals, size_t count, uint64_t alignment,
                    ebb_arena *scratch)
{
    assert(alignment > 0);
    *packing = (ebb_packing){.order = "bottom"};
    return pack(packing, intervals, count, alignment, scratch);
}
