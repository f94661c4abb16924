/* parts.c: pieces into units, sections, parts and ranks. */
#include "exec/weigh/pack/parts.h"

#include <stdlib.h>

const char ebb_ranks[RANKS][4] = {"WAT", "TAW", "TWA"};

unit ebb_unit_choose(const ebb_piece *pieces, uint32_t count, uint64_t alignment, uint64_t capacity)
{
    unit u = {0, 0, true};
    for (uint32_t i = 0; i < count; i++)
        u.bytes =
            ebb_divisor(ebb_divisor(u.bytes, pieces[i].size), pieces[i].fixed ? pieces[i].at : 0);
    uint64_t units = capacity / u.bytes + (capacity % u.bytes + alignment - 1 >= u.bytes);
    for (; units >= (UINT64_C(1) << 29); u.exact = false) {
        u.bytes *= 2;
        units = capacity / u.bytes;
    }
    u.capacity = (int32_t)units;
    return u;
}

bool ebb_part_measure(part *p, uint32_t at, const ebb_piece *z, uint32_t index, const unit *u,
                      uint64_t capacity)
{
    if (z->bytes > capacity || (z->fixed && z->at > capacity - z->bytes))
        return false;
    uint64_t low = z->fixed ? z->at / u->bytes : 0;
    uint64_t end = (z->fixed ? z->at : 0) + z->size;
    uint64_t size = end / u->bytes + (end % u->bytes != 0) - low;
    if (low + size > (uint64_t)u->capacity)
        return false;
    p->piece[at] = index;
    p->fixed[at] = z->fixed;
    p->size[at] = (int32_t)size;
    p->least[at] = (int32_t)low;
    p->most[at] = z->fixed ? (int32_t)low : (int32_t)((capacity - z->bytes) / u->bytes);
    if (p->most[at] > u->capacity - p->size[at])
        p->most[at] = u->capacity - p->size[at];
    p->width[at] = z->upper - z->lower;
    if (__builtin_mul_overflow(p->width[at], z->size, &p->area[at]))
        p->area[at] = UINT64_MAX;
    return true;
}

int ebb_event_compare(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    if (x->birth != y->birth)
        return x->birth ? 1 : -1; /* deaths first */
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

bool ebb_part_cut(part *p, const event *events, const uint32_t *place_of, int32_t capacity)
{
    bool born = false;
    p->sections = 0;
    for (size_t e = 0; e < 2 * (size_t)p->count; e++) {
        uint32_t i = place_of[events[e].piece];
        if (events[e].birth) {
            p->first[i] = (int32_t)p->sections;
        } else {
            p->sections += born;
            p->last[i] = (int32_t)p->sections;
        }
        born = events[e].birth;
    }
    for (uint32_t i = 0; i < p->count; i++)
        for (int32_t t = p->first[i]; t < p->last[i]; t++) {
            if (p->size[i] > capacity - p->total[t])
                return false;
            p->total[t] += p->size[i];
        }
    return true;
}

typedef struct ranked {
    uint64_t key[3];
    uint32_t index;
    bool fixed;
} ranked;

static int compare_ranked(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->fixed != y->fixed)
        return x->fixed ? -1 : 1;
    for (int k = 0; k < 3; k++)
        if (x->key[k] != y->key[k])
            return x->key[k] > y->key[k] ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

bool ebb_part_new(part *p, ebb_arena *arena, uint32_t count)
{
    int32_t *words = EBB_NEW(arena, int32_t, 6 * (size_t)count);
    p->count = count;
    p->fixed = EBB_NEW(arena, bool, count);
    p->piece = EBB_NEW(arena, uint32_t, count);
    p->width = EBB_NEW(arena, uint64_t, 2 * (size_t)count);
    if (words == NULL || p->fixed == NULL || p->piece == NULL || p->width == NULL)
        return false;
    p->area = p->width + count;
    p->first = words;
    p->last = words + count;
    p->size = words + 2 * (size_t)count;
    p->least = words + 3 * (size_t)count;
    p->most = words + 4 * (size_t)count;
    p->total = words + 5 * (size_t)count; /* there are no more sections than pieces */
    return true;
}

ebb_status ebb_part_rank(part *q, const part *p, const char *by, ebb_arena *arena)
{
    ranked *rows = EBB_NEW(arena, ranked, p->count);
    EBB_GOT(rows && ebb_part_new(q, arena, p->count));
    for (uint32_t i = 0; i < p->count; i++) {
        int32_t tightest = 0;
        for (int32_t t = p->first[i]; t < p->last[i]; t++)
            tightest = tightest > p->total[t] ? tightest : p->total[t];
        rows[i] = (ranked){.index = i, .fixed = p->fixed[i]};
        for (int k = 0; k < 3; k++)
            rows[i].key[k] = by[k] == 'W'   ? p->width[i]
                             : by[k] == 'A' ? p->area[i]
                                            : (uint64_t)tightest;
    }
    qsort(rows, p->count, sizeof *rows, compare_ranked);
    q->sections = p->sections;
    q->total = p->total;
    for (uint32_t k = 0; k < p->count; k++) {
        uint32_t i = rows[k].index;
        q->first[k] = p->first[i];
        q->last[k] = p->last[i];
        q->size[k] = p->size[i];
        q->least[k] = p->least[i];
        q->most[k] = p->most[i];
        q->fixed[k] = p->fixed[i];
        q->piece[k] = p->piece[i];
    }
    return NULL;
}
