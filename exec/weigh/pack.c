/* pack.c: the packer's means, in turn: orders, local search, exact search, bisection with it.
 *
 * Intervals that are alive throughout go to the bottom, where they are in nobody's way; the others
 * are packed above them. Orders alone do for most training steps. Where something is left to gain,
 * local search and, up to about a thousand intervals, exact search get shares of a budget: counted
 * steps, so that the same input gives the same offsets everywhere, or the caller's seconds.
 */
#include "exec/weigh/pack.h"

#include "exec/weigh/pack/exact.h"
#include "exec/weigh/pack/greedy.h"
#include "exec/weigh/pack/known.h"
#include "onnx/words/clock.h"

#include <stdio.h>
#include <stdlib.h>

static const uint64_t order_steps = 250u * 1000 * 1000;  /* for all orders: about half a second */
static const uint64_t search_steps = 200u * 1000 * 1000; /* for local and exact search together */
static const uint64_t first_steps = 20u * 1000 * 1000;   /* for local search before exact search */

/* ---- reading the intervals ---- */

typedef struct packer {
    ebb_interval *intervals;
    size_t count;
    ebb_pack_options options;
    ebb_arena *scratch;
    uint32_t first, last; /* positions */
    bool any_fixed;
    ebb_piece *pieces; /* what is not at the bottom */
    uint32_t piece_count;
    uint64_t base;  /* the bottom's height */
    uint64_t bound; /* most bytes alive, above the base */
    uint64_t step;  /* heights above the base are multiples of this */
    ebb_budget budget;
    ebb_greedy *greedy;
    uint64_t least; /* above the base */
    uint64_t height;
    uint64_t *offsets; /* by piece */
    const char *method;
} packer;

static bool is_fixed(const packer *p, size_t i)
{
    return p->options.fixed != NULL && p->options.fixed[i];
}

/* What to call it in an error. */
static const char *name_of(const packer *p, size_t i, char text[48])
{
    bool line = p->options.lines != NULL;
    (void)snprintf(text, 48, line ? "line %zu" : "interval %zu", line ? p->options.lines[i] : i);
    return text;
}

static bool is_empty(const ebb_interval *v)
{
    return v->lower == v->upper || v->size == 0;
}

/* No sum of sizes, rounded up, may overflow. */
static ebb_status check(packer *p)
{
    uint64_t total = 0, alignment = p->options.alignment;
    char name[48];
    p->first = UINT32_MAX;
    if (p->count >= UINT32_MAX)
        return ebb_error(EBB_REJECTED, "%zu intervals are too many to pack", p->count);
    for (size_t i = 0; i < p->count; i++) {
        const ebb_interval *v = &p->intervals[i];
        if (v->lower > v->upper)
            return ebb_error(EBB_REJECTED, "%s is reversed: it ends at %u and begins at %u",
                             name_of(p, i, name), v->upper, v->lower);
        uint64_t size;
        if (__builtin_add_overflow(v->size, alignment - 1, &size) ||
            __builtin_add_overflow(total, size, &total) || total > UINT64_MAX / 8)
            return ebb_error(EBB_REJECTED, "%s: the sizes together overflow", name_of(p, i, name));
        if (is_fixed(p, i)) {
            if (v->offset % alignment != 0)
                return ebb_error(EBB_REJECTED,
                                 "%s: its fixed offset %llu is no multiple of the alignment %llu",
                                 name_of(p, i, name), (unsigned long long)v->offset,
                                 (unsigned long long)alignment);
            if (v->offset > UINT64_MAX / 8)
                return ebb_error(EBB_REJECTED, "%s: its fixed offset is too large",
                                 name_of(p, i, name));
            p->any_fixed = true;
        }
        if (is_empty(v))
            continue;
        p->first = v->lower < p->first ? v->lower : p->first;
        p->last = v->upper > p->last ? v->upper : p->last;
    }
    return NULL;
}

/* Fills pieces; what lives throughout goes to the bottom, unless a fixed one may be there. */
static ebb_status sort_out(packer *p)
{
    uint64_t alignment = p->options.alignment;
    p->pieces = EBB_NEW(p->scratch, ebb_piece, p->count + 1);
    EBB_GOT(p->pieces);
    for (size_t i = 0; i < p->count; i++) {
        ebb_interval *v = &p->intervals[i];
        uint64_t size = (v->size + alignment - 1) / alignment * alignment;
        bool fixed = is_fixed(p, i);
        if (!fixed)
            v->offset = 0;
        if (is_empty(v))
            continue;
        if (v->lower == p->first && v->upper == p->last && !p->any_fixed && size == v->size) {
            v->offset = p->base;
            p->base += size;
            continue;
        }
        p->pieces[p->piece_count++] = (ebb_piece){.lower = v->lower,
                                                  .upper = v->upper,
                                                  .size = size,
                                                  .bytes = v->size,
                                                  .at = v->offset,
                                                  .index = (uint32_t)i,
                                                  .fixed = fixed};
        p->step = ebb_divisor(p->step, size != v->size ? 1 : size);
        if (fixed)
            p->step = ebb_divisor(p->step, v->offset);
    }
    return NULL;
}

typedef struct event {
    uint32_t position, piece;
    bool birth;
} event;

static int compare_events(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return (int)x->birth - (int)y->birth; /* deaths first */
}

/* The most bytes alive at one position. The topmost there needs no padding, whichever it is: with
 * padding the bound is lower by the largest that any piece has. */
static ebb_status find_bound(packer *p)
{
    event *events = EBB_NEW(p->scratch, event, 2 * (size_t)p->piece_count + 1);
    uint64_t live = 0, most = 0, padding = 0, end = 0;
    EBB_GOT(events);
    for (uint32_t i = 0; i < p->piece_count; i++) {
        const ebb_piece *z = &p->pieces[i];
        events[2 * (size_t)i] = (event){z->lower, i, true};
        events[2 * (size_t)i + 1] = (event){z->upper, i, false};
        padding = z->size - z->bytes > padding ? z->size - z->bytes : padding;
        if (z->fixed && z->at + z->bytes > end)
            end = z->at + z->bytes;
        end = z->bytes > end ? z->bytes : end;
    }
    qsort(events, 2 * (size_t)p->piece_count, sizeof *events, compare_events);
    for (size_t e = 0; e < 2 * (size_t)p->piece_count; e++) {
        uint64_t size = p->pieces[events[e].piece].size;
        live = events[e].birth ? live + size : live - size;
        most = live > most ? live : most;
    }
    ebb_arena_drop(p->scratch, events);
    most = most > padding ? most - padding : 0;
    p->bound = p->least = most > end ? most : end;
    return NULL;
}

static int compare_places(const void *a, const void *b)
{
    const ebb_piece *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : x->index < y->index ? -1 : 1;
}

/* Two fixed ones that overlap are a contradiction in the input. */
static ebb_status check_fixed(const packer *p)
{
    ebb_piece *list = EBB_NEW(p->scratch, ebb_piece, p->piece_count + 1);
    size_t count = 0;
    EBB_GOT(list);
    for (uint32_t i = 0; i < p->piece_count; i++)
        if (p->pieces[i].fixed)
            list[count++] = p->pieces[i];
    qsort(list, count, sizeof *list, compare_places);
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count && list[k].at < list[i].at + list[i].bytes; k++)
            if (list[k].lower < list[i].upper && list[i].lower < list[k].upper) {
                uint32_t one = list[i].index, other = list[k].index;
                char a[48], b[48];
                return ebb_error(EBB_REJECTED,
                                 "%s: its fixed offset overlaps that of %s, and both are alive "
                                 "together",
                                 name_of(p, one > other ? one : other, a),
                                 name_of(p, one > other ? other : one, b));
            }
    return NULL;
}

/* ---- exact search ---- */

/* Is there a packing within `capacity`? Takes it, or raises what is known to be least. */
static ebb_status ask(packer *p, uint64_t capacity, double share, ebb_verdict *verdict)
{
    ebb_budget part = ebb_budget_part(&p->budget, share);
    uint64_t *offsets = EBB_NEW(p->scratch, uint64_t, p->piece_count);
    EBB_GOT(offsets);
    EBB_TRY(ebb_pack_exact(verdict, offsets, p->pieces, p->piece_count, p->options.alignment,
                           capacity, &part));
    p->budget.steps = part.steps;
    if (*verdict == EBB_IMPOSSIBLE) {
        uint64_t above = capacity / p->step * p->step + p->step;
        p->least = above > p->least ? above : p->least;
    }
    if (*verdict != EBB_FOUND)
        return NULL;
    p->height = 0;
    for (uint32_t i = 0; i < p->piece_count; i++) {
        uint64_t end = offsets[i] + p->pieces[i].bytes;
        p->height = end > p->height ? end : p->height;
    }
    p->offsets = offsets;
    p->method = "exact search";
    return NULL;
}

/* First the bound itself, which is often met; then bisection between what is not known to be
 * reachable and what has been reached; again with what is left of the budget. */
static ebb_status bisect(packer *p, uint64_t enough)
{
    ebb_verdict verdict;
    while (p->height > enough && p->height > p->least && !ebb_budget_spent(&p->budget)) {
        uint64_t low = p->least;
        EBB_TRY(ask(p, low, 0.5, &verdict));
        while (p->height > enough && p->height > low && !ebb_budget_spent(&p->budget)) {
            uint64_t middle = low + (p->height - low) / 2;
            EBB_TRY(ask(p, middle, 0.25, &verdict));
            if (verdict == EBB_GAVE_UP)
                low = middle + 1; /* perhaps; nothing is proven */
            else if (verdict == EBB_IMPOSSIBLE)
                low = p->least;
        }
    }
    return NULL;
}

/* ---- the whole ---- */

static void take_greedy(packer *p)
{
    if (p->offsets != NULL && p->height <= ebb_greedy_height(p->greedy))
        return;
    p->height = ebb_greedy_height(p->greedy);
    p->method = ebb_greedy_method(p->greedy);
    uint64_t *offsets = EBB_NEW(p->scratch, uint64_t, p->piece_count);
    if (offsets != NULL)
        memcpy(offsets, ebb_greedy_offsets(p->greedy), p->piece_count * sizeof *offsets);
    p->offsets = offsets;
}

/* Within so many steps, whatever is left. */
static void search_locally(packer *p, uint64_t enough, uint64_t most_steps)
{
    ebb_budget part = p->budget;
    if (part.most - part.steps > most_steps)
        part.most = part.steps + most_steps;
    ebb_greedy_search(p->greedy, enough, &part);
    p->budget.steps = part.steps;
    take_greedy(p);
}

/* Height that we are content with, above the base: the capacity, or near the bound. */
static uint64_t find_enough(const packer *p)
{
    if (p->options.capacity != 0)
        return p->options.capacity > p->base ? p->options.capacity - p->base : 0;
    if (p->options.time_ns != 0)
        return p->bound;
    return p->bound + (p->base + p->bound) / 2000; /* half a thousandth is not worth a second */
}

static ebb_status search_exactly(packer *p, uint64_t enough)
{
    if (p->options.capacity != 0 && enough >= p->least) {
        ebb_verdict verdict;
        EBB_TRY(ask(p, enough, 0.8, &verdict));
        if (verdict != EBB_IMPOSSIBLE)
            return NULL;
        enough = p->least; /* then let us say how low it can be */
    }
    ebb_budget all = p->budget;
    p->budget = ebb_budget_part(&all, 0.85);
    ebb_status status = bisect(p, enough);
    all.steps = p->budget.steps;
    p->budget = all;
    return status;
}

static ebb_status improve(packer *p, uint64_t enough)
{
    bool exact = p->piece_count <= EBB_EXACT_MOST;
    if (p->height <= enough)
        return NULL;
    if (enough < p->bound)
        enough = p->bound; /* no search gets lower, and the lowest is worth knowing */
    if (p->options.time_ns == 0) {
        if (ebb_budget_spent(&p->budget))
            return NULL; /* where the orders alone take so long, no search gets anywhere */
        p->budget.steps = 0;
        p->budget.most = search_steps;
    }
    search_locally(p, enough, exact ? first_steps : UINT64_MAX);
    if (exact && p->height > enough)
        EBB_TRY(search_exactly(p, p->options.capacity != 0 ? find_enough(p) : enough));
    if (exact && p->height > enough && p->height > p->least)
        search_locally(p, enough, UINT64_MAX);
    return p->offsets != NULL ? NULL : ebb_error_memory();
}

static ebb_status pack(ebb_packing *packing, packer *p)
{
    EBB_TRY(check(p));
    EBB_TRY(sort_out(p));
    EBB_TRY(find_bound(p));
    if (p->any_fixed)
        EBB_TRY(check_fixed(p));
    p->method = "bottom";
    if (p->piece_count > 0) {
        uint64_t enough = find_enough(p);
        p->greedy = ebb_greedy_new(p->pieces, p->piece_count, p->scratch);
        EBB_GOT(p->greedy);
        p->budget = (ebb_budget){.most = order_steps};
        if (p->options.time_ns != 0)
            p->budget = (ebb_budget){UINT64_C(0), UINT64_MAX, ebb_now_ns() + p->options.time_ns};
        uint64_t stop = p->options.capacity != 0 && enough > p->bound ? enough : p->bound;
        ebb_greedy_orders(p->greedy, stop, &p->budget);
        take_greedy(p);
        EBB_GOT(p->offsets);
        EBB_TRY(improve(p, enough));
    }
    for (uint32_t i = 0; i < p->piece_count; i++)
        p->intervals[p->pieces[i].index].offset = p->base + p->offsets[i];
    packing->height = p->base + p->height;
    packing->lower_bound = p->base + p->bound;
    packing->least = p->base + p->least;
    packing->method = p->method;
    packing->proven = packing->height <= packing->least;
    packing->fits = p->options.capacity == 0 || packing->height <= p->options.capacity;
    return NULL;
}

ebb_status ebb_pack(ebb_packing *packing, ebb_interval *intervals, size_t count,
                    const ebb_pack_options *options, ebb_arena *scratch)
{
    packer p = {.intervals = intervals, .count = count, .scratch = scratch};
    if (options != NULL)
        p.options = *options;
    if (p.options.alignment == 0)
        p.options.alignment = 1;
    *packing = (ebb_packing){.method = "bottom"};
    if (ebb_known_find(packing, intervals, count, &p.options))
        return NULL;
    EBB_TRY(pack(packing, &p));
    ebb_known_keep(packing, intervals, count, &p.options);
    return NULL;
}
