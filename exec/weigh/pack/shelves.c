/* shelves.c: see shelves.h. A run of pieces that does not meet the new one in time is passed over without a
 * branch for each.
 */
#include "exec/weigh/pack/shelves.h"

#include <assert.h>

#include "kernels/parallel.h"

enum { SHELF = 512, RUN = 16 };

struct ebb_shelf {
    uint32_t count;
    uint32_t lower[SHELF], upper[SHELF]; /* behind the last: upper is 0, which meets nobody */
    uint64_t offset[SHELF], end[SHELF];
};

typedef struct ebb_shelf shelf;

bool ebb_shelves_make(ebb_shelves *s, uint32_t pieces, ebb_arena *arena)
{
    const uint32_t most = pieces / (SHELF / 2) + 2; /* each but the last is at least half full */
    shelf *room = EBB_NEW(arena, shelf, most);
    *s = (ebb_shelves){.list = EBB_NEW(arena, shelf *, most), .most = most};
    for (uint32_t i = 0; i < most && room != NULL && s->list != NULL; i++)
        s->list[i] = &room[i];
    return room != NULL && s->list != NULL;
}

void ebb_shelves_clear(ebb_shelves *s)
{
    s->count = 1;
    s->list[0]->count = 0;
    memset(s->list[0]->upper, 0, sizeof s->list[0]->upper);
}

static void copy_shelf(shelf *to, const shelf *from)
{
    const size_t count = to->count = from->count;
    memcpy(to->lower, from->lower, count * sizeof *to->lower);
    memcpy(to->upper, from->upper, count * sizeof *to->upper);
    memcpy(to->offset, from->offset, count * sizeof *to->offset);
    memcpy(to->end, from->end, count * sizeof *to->end);
    memset(to->upper + count, 0, (SHELF - count) * sizeof *to->upper);
}

void ebb_shelves_copy(ebb_shelves *to, const ebb_shelves *from)
{
    to->count = from->count;
    for (uint32_t i = 0; i < from->count; i++)
        copy_shelf(to->list[i], from->list[i]);
}

/* ---- finding ---- */

typedef struct gap {
    uint64_t top;             /* of the neighbours seen so far */
    uint64_t found, smallest; /* where z may lie; the gap's size */
} gap;

/* Does any of a run meet z in time? Without branches, for vectors. */
static bool any_met(const uint32_t *lower, const uint32_t *upper, const ebb_piece *z)
{
    const uint32_t from = z->lower, to = z->upper;
    uint32_t met = 0;
    EBB_PRAGMA(omp simd reduction(| : met))
    for (int k = 0; k < RUN; k++)
        met |= (uint32_t)(lower[k] < to) & (uint32_t)(upper[k] > from);
    return met != 0;
}

/* Walks over one shelf; true when the walk is over. */
static bool walk(const shelf *s, const ebb_piece *z, bool best_fit, gap *g, uint64_t *steps)
{
    for (uint32_t i = 0; i < s->count; i += RUN) {
        *steps += RUN / 4;
        if (!any_met(s->lower + i, s->upper + i, z))
            continue;
        uint32_t until = i + RUN < s->count ? i + RUN : s->count;
        *steps += RUN;
        for (uint32_t k = i; k < until; k++) {
            if (s->lower[k] >= z->upper || s->upper[k] <= z->lower)
                continue;
            if (s->offset[k] >= g->top + z->size) {
                uint64_t room = s->offset[k] - g->top;
                if (room < g->smallest) {
                    g->smallest = room;
                    g->found = g->top;
                }
                if (!best_fit || room == z->size)
                    return true;
            }
            g->top = g->top > s->end[k] ? g->top : s->end[k];
        }
    }
    return false;
}

uint64_t ebb_shelves_find(const ebb_shelves *s, const ebb_piece *z, bool best_fit, uint64_t *steps)
{
    gap w = {0, UINT64_MAX, UINT64_MAX};
    for (uint32_t i = 0; i < s->count; i++)
        if (walk(s->list[i], z, best_fit, &w, steps))
            break;
    return w.found != UINT64_MAX ? w.found : w.top;
}

/* ---- putting ---- */

static void split_shelf(ebb_shelves *all, uint32_t at)
{
    assert(all->count < all->most);
    shelf *a = all->list[at], *b = all->list[all->count];
    uint32_t half = SHELF / 2;
    memmove(&all->list[at + 2], &all->list[at + 1], (all->count - at - 1) * sizeof *all->list);
    all->list[at + 1] = b;
    all->count++;
    a->count = b->count = half;
    memcpy(b->lower, a->lower + half, half * sizeof *a->lower);
    memcpy(b->upper, a->upper + half, half * sizeof *a->upper);
    memcpy(b->offset, a->offset + half, half * sizeof *a->offset);
    memcpy(b->end, a->end + half, half * sizeof *a->end);
    memset(b->upper + half, 0, half * sizeof *b->upper);
    memset(a->upper + half, 0, half * sizeof *a->upper);
}

void ebb_shelves_put(ebb_shelves *all, const ebb_piece *z, uint64_t offset)
{
    uint32_t at = all->count - 1;
    while (at > 0 && all->list[at]->offset[0] > offset)
        at--;
    if (all->list[at]->count == SHELF) {
        split_shelf(all, at);
        at += all->list[at + 1]->offset[0] <= offset;
    }
    shelf *s = all->list[at];
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->offset[middle] <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    uint32_t behind = s->count++ - low;
    memmove(&s->lower[low + 1], &s->lower[low], behind * sizeof *s->lower);
    memmove(&s->upper[low + 1], &s->upper[low], behind * sizeof *s->upper);
    memmove(&s->offset[low + 1], &s->offset[low], behind * sizeof *s->offset);
    memmove(&s->end[low + 1], &s->end[low], behind * sizeof *s->end);
    s->lower[low] = z->lower;
    s->upper[low] = z->upper;
    s->offset[low] = offset;
    s->end[low] = offset + z->size;
}
