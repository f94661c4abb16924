/* space.c: a segment tree over the positions at which pieces begin or end, BASE nodes below each.
 *
 * A piece covers some nodes of the tree whole, O(log n) of them, and lies in part in those above.
 * A node keeps two sets of offsets: `cover`, of the pieces that it is covered by, and `any`, of all
 * that live somewhere in its range. A new piece meets `any` of the nodes that it covers, and `cover`
 * of those above them. What lies on each other is one stretch of offsets, so sets stay short.
 */
#include "exec/weigh/pack/space.h"

#include <stdlib.h>

enum { BASE = 8, LEVELS = 12 }; /* BASE to the power of LEVELS exceeds 2^33 */

typedef struct stretch {
    uint64_t from, to;
} stretch;

typedef struct stretches { /* apart from each other, upwards */
    stretch *list;
    uint32_t count, capacity;
} stretches;

struct ebb_space {
    ebb_arena *arena;
    uint32_t *positions; /* where pieces begin and end, upwards, each once */
    uint32_t position_count;
    uint32_t levels; /* 0: a leaf for each position */
    stretches *cover[LEVELS], *any[LEVELS];
};

static int upwards(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

ebb_space *ebb_space_new(const ebb_piece *pieces, uint32_t count, ebb_arena *scratch)
{
    ebb_space *s = EBB_NEW(scratch, ebb_space, 1);
    uint32_t *positions = EBB_NEW(scratch, uint32_t, 2 * (size_t)count + 1), kept = 0;
    if (s == NULL || positions == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        positions[2 * (size_t)i] = pieces[i].lower;
        positions[2 * (size_t)i + 1] = pieces[i].upper;
    }
    qsort(positions, 2 * (size_t)count, sizeof *positions, upwards);
    for (size_t i = 0; i < 2 * (size_t)count; i++)
        if (kept == 0 || positions[kept - 1] != positions[i])
            positions[kept++] = positions[i];
    *s = (ebb_space){.arena = scratch, .positions = positions, .position_count = kept};
    for (size_t nodes = kept; s->levels == 0 || nodes > 1; nodes = nodes / BASE + 1) {
        s->any[s->levels] = EBB_NEW(scratch, stretches, nodes);
        s->cover[s->levels] = // who lives in a leaf covers it
            s->levels == 0 ? s->any[0] : EBB_NEW(scratch, stretches, nodes);
        if (s->cover[s->levels] == NULL || s->any[s->levels] == NULL)
            return NULL;
        s->levels++;
    }
    return s;
}

/* ---- sets of offsets ---- */

/* The first of the stretches from `at` on that ends above the offset. */
static const stretch *first_above(const stretch *at, const stretch *end, uint64_t offset)
{
    while (at < end) {
        const stretch *middle = at + (end - at) / 2;
        if (middle->to > offset)
            end = middle;
        else
            at = middle + 1;
    }
    return at;
}

static bool make_room(stretches *set, ebb_arena *arena)
{
    if (set->count < set->capacity)
        return true;
    uint32_t capacity = set->capacity == 0 ? 1 : set->capacity * 2;
    stretch *list = ebb_arena_alloc(arena, capacity * sizeof *list);
    if (list == NULL)
        return false;
    if (set->count > 0)
        memcpy(list, set->list, set->count * sizeof *list);
    set->list = list;
    set->capacity = capacity;
    return true;
}

/* What the new stretch touches becomes one with it. */
static bool add(stretches *set, stretch z, ebb_arena *arena)
{
    const stretch *from = set->list, *to = from + set->count;
    uint32_t at = z.from > 0 ? (uint32_t)(first_above(from, to, z.from - 1) - from) : 0, end = at;
    for (; end < set->count && set->list[end].from <= z.to; end++) {
        z.from = set->list[end].from < z.from ? set->list[end].from : z.from;
        z.to = set->list[end].to > z.to ? set->list[end].to : z.to;
    }
    if (end == at) {
        if (!make_room(set, arena))
            return false;
        memmove(&set->list[at + 1], &set->list[at], (set->count - at) * sizeof z);
        set->count++;
    } else {
        memmove(&set->list[at + 1], &set->list[end], (set->count - end) * sizeof z);
        set->count -= end - at - 1;
    }
    set->list[at] = z;
    return true;
}

/* ---- the tree ---- */

static uint32_t leaf_of(const ebb_space *s, uint32_t position)
{
    uint32_t low = 0, high = s->position_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (s->positions[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bool cover(ebb_space *s, uint32_t level, uint32_t node, stretch taken)
{
    return add(&s->any[level][node], taken, s->arena) &&
           (level == 0 || add(&s->cover[level][node], taken, s->arena));
}

bool ebb_space_take(ebb_space *s, const ebb_piece *z, uint64_t offset)
{
    stretch taken = {offset, offset + z->size};
    uint32_t left = leaf_of(s, z->lower), right = leaf_of(s, z->upper) - 1;
    uint32_t from = left, to = right + 1;
    bool good = true;
    for (uint32_t h = 0; h < s->levels && good; h++) {
        bool top = h + 1 == s->levels;
        good = add(&s->any[h][left], taken, s->arena) &&
               (left == right || add(&s->any[h][right], taken, s->arena));
        while (good && from < to && (from % BASE != 0 || top))
            good = cover(s, h, from++, taken);
        while (good && from < to && to % BASE != 0)
            good = cover(s, h, --to, taken);
        left /= BASE, right /= BASE, from /= BASE, to /= BASE;
    }
    return good;
}

/* What a new piece meets, from the bottom up. */
typedef struct climb {
    uint64_t offset; /* all below is taken, or too narrow */
    uint64_t size;
    uint32_t count;
    struct {
        const stretch *at, *end;
    } met[LEVELS * 2 * (BASE + 1)];
} climb;

static void meet(climb *c, const stretches *set)
{
    if (set->count == 0 || set->list[set->count - 1].to <= c->offset)
        return;
    c->met[c->count].at = set->list;
    c->met[c->count++].end = set->list + set->count;
}

/* True where the set lets z lie at the offset; else the offset is raised. */
static bool lets_pass(climb *c, uint32_t k)
{
    const stretch *at = c->met[k].at, *end = c->met[k].end;
    uint64_t before = c->offset;
    if (at < end && at->to <= c->offset)
        at = first_above(at, end, c->offset);
    for (; at < end && at->from < c->offset + c->size; at++)
        c->offset = at->to;
    c->met[k].at = at;
    return c->offset == before;
}

uint64_t ebb_space_first(const ebb_space *s, const ebb_piece *z)
{
    climb c;
    c.offset = c.count = 0;
    c.size = z->size;
    uint32_t left = leaf_of(s, z->lower), right = leaf_of(s, z->upper) - 1;
    uint32_t from = left, to = right + 1;
    for (uint32_t h = 0; h < s->levels; h++) {
        bool top = h + 1 == s->levels;
        meet(&c, &s->cover[h][left]);
        if (left != right)
            meet(&c, &s->cover[h][right]);
        while (from < to && (from % BASE != 0 || top))
            meet(&c, &s->any[h][from++]);
        while (from < to && to % BASE != 0)
            meet(&c, &s->any[h][--to]);
        left /= BASE, right /= BASE, from /= BASE, to /= BASE;
    }
    for (uint32_t k = 0, passed = 0; passed < c.count; k = (k + 1) % c.count)
        passed = lets_pass(&c, k) ? passed + 1 : 0;
    return c.offset;
}
