/* space.c: a segment tree over the positions at which pieces begin or end, BASE nodes below each.
 *
 * A piece covers some nodes of the tree whole, O(log n) of them, and lies in part in those above.
 * A node keeps two sets of offsets: `cover`, of the pieces that it is covered by, and `part`, of those
 * that begin or end in its range. A new piece meets both sets of the
 * nodes that it covers, and `cover` of those above them. What lies on each other is one stretch of
 * offsets, so sets stay short.
 *
 * Where many small pieces lie on each other, the sets of one new piece fill each other's gaps, and to
 * look at them in turn takes a step for each gap. What is alive at the new piece's ends has few such
 * gaps: so a few columns follow the positions at which pieces are asked for, and are looked at first.
 * Pieces are asked for in orders in which neighbours are alike, so a column moves little each time;
 * it may cost no more than the steps that were taken without.
 */
#include "exec/weigh/pack/space.h"

#include <stdlib.h>

#include "exec/weigh/pack/column.h"

enum { BASE = 4, LEVELS = 17 }; /* BASE to the power of LEVELS exceeds 2^33 */
enum {
    COLUMNS = 8,   /* two ends, of as many kinds of pieces as take turns */
    NEAR = 256,    /* pieces that come or go: a column is moved so far rather than another */
    MOVE_COST = 16 /* steps that it takes to put a piece into a column or to take it out */
};

typedef struct stretch {
    uint64_t from, to;
} stretch;

typedef struct stretches { /* apart from each other, upwards */
    stretch *list;
    uint32_t count, capacity;
} stretches;

typedef struct ends {        /* pieces by the leaf at which they begin, or end */
    uint32_t *pieces, *from; /* those of leaf k: from[k] to from[k + 1] */
} ends;

typedef struct column {
    ebb_column *alive; /* NULL: memory ran out */
    uint32_t leaf;
    uint64_t used; /* when */
} column;

struct ebb_space {
    ebb_arena *arena;
    stretch
        *left[32]; /* lists of 2^k stretches that sets have outgrown; each begins with the next */
    const ebb_piece *pieces;
    uint64_t *offsets; /* by piece; UINT64_MAX: not there yet */
    ends births, deaths;
    column columns[COLUMNS];
    uint64_t clock;
    uint64_t credit;     /* steps taken without columns, less what these have cost */
    uint32_t *positions; /* where pieces begin and end, upwards, each once */
    uint32_t position_count;
    uint32_t levels;                         /* 0: a leaf for each position */
    stretches *cover[LEVELS], *part[LEVELS]; /* none is part of a leaf: who lives there covers it */
};

static int upwards(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

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

/* The last leaf of z; the first is leaf_of(z->lower). */
static uint32_t last_leaf_of(const ebb_space *s, const ebb_piece *z)
{
    return leaf_of(s, z->upper) - 1;
}

/* By the leaf of the position that lies so many bytes into a piece. */
static bool list_ends(ebb_space *s, ends *list, uint32_t count, size_t position)
{
    list->pieces = EBB_NEW(s->arena, uint32_t, count);
    list->from = EBB_NEW(s->arena, uint32_t, (size_t)s->position_count + 2);
    uint32_t *leaves = EBB_NEW(s->arena, uint32_t, count);
    if (list->pieces == NULL || list->from == NULL || leaves == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at;
        memcpy(&at, (const char *)&s->pieces[i] + position, sizeof at);
        leaves[i] = leaf_of(s, at);
        list->from[leaves[i] + 2]++;
    }
    for (uint32_t k = 1; k < s->position_count; k++)
        list->from[k + 1] += list->from[k];
    for (uint32_t i = 0; i < count; i++)
        list->pieces[list->from[leaves[i] + 1]++] = i;
    ebb_arena_drop(s->arena, leaves);
    return true;
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
    *s = (ebb_space){.arena = scratch,
                     .pieces = pieces,
                     .offsets = EBB_NEW(scratch, uint64_t, count),
                     .positions = positions,
                     .position_count = kept};
    if (s->offsets == NULL || !list_ends(s, &s->births, count, offsetof(ebb_piece, lower)) ||
        !list_ends(s, &s->deaths, count, offsetof(ebb_piece, upper)))
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        s->offsets[i] = UINT64_MAX;
    for (uint32_t k = 0; k < COLUMNS; k++)
        s->columns[k] = (column){ebb_column_new(scratch), kept / COLUMNS * k, 0};
    for (size_t nodes = kept; s->levels == 0 || nodes > 1; nodes = (nodes + BASE - 1) / BASE) {
        s->cover[s->levels] = EBB_NEW(scratch, stretches, nodes);
        s->part[s->levels] = s->levels > 0 ? EBB_NEW(scratch, stretches, nodes) : s->cover[0];
        if (s->cover[s->levels] == NULL || s->part[s->levels] == NULL)
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

/* A set that grows leaves its list to others: sets are many, and most stay small. */
static bool make_room(ebb_space *s, stretches *set)
{
    if (set->count < set->capacity)
        return true;
    const uint32_t capacity = set->capacity == 0 ? 1 : set->capacity * 2;
    const int class = __builtin_ctz(capacity);
    stretch *list = s->left[class];
    if (list != NULL)
        memcpy(&s->left[class], list, sizeof list);
    else
        list = ebb_arena_alloc(s->arena, capacity * sizeof *list);
    if (list == NULL)
        return false;
    if (set->count > 0) {
        memcpy(list, set->list, set->count * sizeof *list);
        memcpy(set->list, &s->left[class - 1], sizeof list);
        s->left[class - 1] = set->list;
    }
    set->list = list;
    set->capacity = capacity;
    return true;
}

/* What the new stretch touches becomes one with it. */
static bool add(ebb_space *s, stretches *set, stretch z)
{
    const stretch *from = set->list, *to = from + set->count;
    uint32_t at = z.from > 0 ? (uint32_t)(first_above(from, to, z.from - 1) - from) : 0, end = at;
    for (; end < set->count && set->list[end].from <= z.to; end++) {
        z.from = set->list[end].from < z.from ? set->list[end].from : z.from;
        z.to = set->list[end].to > z.to ? set->list[end].to : z.to;
    }
    if (end == at) {
        if (!make_room(s, set))
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

/* ---- columns ---- */

static void put(column *c, uint64_t offset, uint64_t size)
{
    if (c->alive != NULL && !ebb_column_add(c->alive, offset, size))
        c->alive = NULL;
}

/* Pieces that come or go between two leaves. */
static uint64_t distance(const ebb_space *s, uint32_t from, uint32_t to)
{
    uint32_t low = from < to ? from : to, high = from < to ? to : from;
    return (uint64_t)(s->births.from[high + 1] - s->births.from[low + 1]) +
           (s->deaths.from[high + 1] - s->deaths.from[low + 1]);
}

static void put_ends(const ebb_space *s, column *c, const ends *list, uint32_t leaf)
{
    for (uint32_t k = list->from[leaf]; k < list->from[leaf + 1]; k++)
        if (s->offsets[list->pieces[k]] != UINT64_MAX)
            put(c, s->offsets[list->pieces[k]], s->pieces[list->pieces[k]].size);
}

static void remove_ends(const ebb_space *s, column *c, const ends *list, uint32_t leaf)
{
    for (uint32_t k = list->from[leaf]; k < list->from[leaf + 1] && c->alive != NULL; k++)
        if (s->offsets[list->pieces[k]] != UINT64_MAX)
            ebb_column_remove(c->alive, s->offsets[list->pieces[k]]);
}

static void move_column(const ebb_space *s, column *c, uint32_t leaf)
{
    while (c->leaf < leaf) {
        c->leaf++;
        remove_ends(s, c, &s->deaths, c->leaf);
        put_ends(s, c, &s->births, c->leaf);
    }
    while (c->leaf > leaf) {
        remove_ends(s, c, &s->births, c->leaf);
        put_ends(s, c, &s->deaths, c->leaf);
        c->leaf--;
    }
}

/* A column, none of those used at this time, at this leaf. NULL: it would cost too much. */
static const ebb_column *column_at(ebb_space *s, uint32_t leaf)
{
    column *near = NULL, *unused = NULL;
    for (column *c = s->columns; c < s->columns + COLUMNS; c++) {
        if (c->used == s->clock)
            continue;
        if (near == NULL || distance(s, c->leaf, leaf) < distance(s, near->leaf, leaf))
            near = c;
        unused = unused == NULL || c->used < unused->used ? c : unused;
    }
    column *c = distance(s, near->leaf, leaf) <= NEAR ? near : unused;
    uint64_t cost = distance(s, c->leaf, leaf) * MOVE_COST;
    if (cost > s->credit)
        return NULL;
    s->credit -= cost;
    c->used = s->clock;
    move_column(s, c, leaf);
    return c->alive;
}

/* ---- taking ---- */

bool ebb_space_take(ebb_space *s, const ebb_piece *z, uint64_t offset)
{
    stretch taken = {offset, offset + z->size};
    uint32_t left = leaf_of(s, z->lower), right = last_leaf_of(s, z);
    uint32_t from = left, to = right + 1;
    bool good = true;
    s->offsets[z - s->pieces] = offset;
    for (column *c = s->columns; c < s->columns + COLUMNS; c++)
        if (left <= c->leaf && c->leaf <= right)
            put(c, offset, z->size);
    for (uint32_t h = 0; h < s->levels && good; h++) {
        bool top = h + 1 == s->levels;
        good = add(s, &s->part[h][left], taken) &&
               (left == right || add(s, &s->part[h][right], taken));
        while (good && from < to && (from % BASE != 0 || top))
            good = add(s, &s->cover[h][from++], taken);
        while (good && from < to && to % BASE != 0)
            good = add(s, &s->cover[h][--to], taken);
        left /= BASE, right /= BASE, from /= BASE, to /= BASE;
    }
    return good;
}

/* ---- looking ---- */

/* What a new piece meets, from the bottom up. */
typedef struct climb {
    uint64_t offset; /* all below is taken, or too narrow */
    uint64_t size;
    uint64_t steps;
    uint32_t count;
    const ebb_column *ends[2];
    struct {
        const stretch *at, *end;
    } met[LEVELS * 2 * (2 * BASE + 1)];
} climb;

static void meet(climb *c, const stretches *set)
{
    if (set->count == 0 || set->list[set->count - 1].to <= c->offset)
        return;
    c->met[c->count].at = set->list;
    c->met[c->count++].end = set->list + set->count;
}

static void meet_all(climb *c, const ebb_space *s, uint32_t level, uint32_t node)
{
    meet(c, &s->cover[level][node]);
    if (level > 0)
        meet(c, &s->part[level][node]);
}

/* Raises the offset to where the set lets z lie. */
static void pass_set(climb *c, uint32_t k)
{
    const stretch *at = c->met[k].at, *end = c->met[k].end;
    if (at < end && at->to <= c->offset)
        at = first_above(at, end, c->offset);
    c->steps++;
    for (; at < end && at->from < c->offset + c->size; at++, c->steps++)
        c->offset = at->to;
    c->met[k].at = at;
}

uint64_t ebb_space_first(ebb_space *s, const ebb_piece *z)
{
    climb c;
    uint32_t left = leaf_of(s, z->lower), right = last_leaf_of(s, z);
    uint32_t from = left, to = right + 1;
    c.offset = c.steps = c.count = 0;
    c.size = z->size;
    s->clock++;
    c.ends[0] = column_at(s, left);
    c.ends[1] = left != right ? column_at(s, right) : NULL;
    if (left == right && c.ends[0] != NULL)
        return ebb_column_first(c.ends[0], 0, z->size);
    for (uint32_t h = 0; h < s->levels; h++) {
        bool top = h + 1 == s->levels;
        meet(&c, &s->cover[h][left]);
        if (left != right)
            meet(&c, &s->cover[h][right]);
        while (from < to && (from % BASE != 0 || top))
            meet_all(&c, s, h, from++);
        while (from < to && to % BASE != 0)
            meet_all(&c, s, h, --to);
        left /= BASE, right /= BASE, from /= BASE, to /= BASE;
    }
    for (uint64_t before = UINT64_MAX; c.offset != before;) {
        before = c.offset;
        for (int k = 0; k < 2; k++)
            if (c.ends[k] != NULL)
                c.offset = ebb_column_first(c.ends[k], c.offset, c.size);
        for (uint32_t k = 0; k < c.count; k++)
            pass_set(&c, k);
    }
    s->credit += c.steps;
    return c.offset;
}
