/* column.c: sorted runs of at most RUN pieces; a full one is split, an empty one is used again. */
#include "exec/weigh/pack/column.h"

enum { RUN = 128 };

typedef struct run {
    uint32_t count;
    uint64_t widest; /* gap between two neighbours within */
    uint64_t from[RUN], to[RUN];
} run;

struct ebb_column {
    ebb_arena *arena;
    run **runs; /* in use: the first `count`, by offset, none empty; behind them: empty ones */
    size_t count, made, capacity;
};

ebb_column *ebb_column_new(ebb_arena *scratch)
{
    ebb_column *c = EBB_NEW(scratch, ebb_column, 1);
    if (c != NULL)
        c->arena = scratch;
    return c;
}

/* The last run that begins at or below the offset, or the first one. */
static size_t run_of(const ebb_column *c, uint64_t offset)
{
    size_t low = 0, high = c->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (c->runs[middle]->from[0] <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The first piece that ends above the offset. */
static uint32_t first_above(const run *r, uint64_t offset)
{
    uint32_t low = 0, high = r->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (r->to[middle] > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void find_widest(run *r)
{
    r->widest = 0;
    for (uint32_t i = 1; i < r->count; i++) {
        uint64_t gap = r->from[i] - r->to[i - 1];
        r->widest = gap > r->widest ? gap : r->widest;
    }
}

/* An empty run at this place. NULL: out of memory. */
static run *insert_run(ebb_column *c, size_t at)
{
    if (c->count == c->made) {
        if (!ebb_arena_grow(c->arena, &c->runs, c->made, &c->capacity, sizeof *c->runs))
            return NULL;
        c->runs[c->made] = ebb_arena_alloc(c->arena, sizeof **c->runs);
        if (c->runs[c->made] == NULL)
            return NULL;
        c->made++;
    }
    run *spare = c->runs[c->count];
    memmove(&c->runs[at + 1], &c->runs[at], (c->count - at) * sizeof *c->runs);
    c->runs[at] = spare;
    c->count++;
    spare->count = 0;
    return spare;
}

static bool split_run(ebb_column *c, size_t at)
{
    run *right = insert_run(c, at + 1), *left = c->runs[at];
    if (right == NULL)
        return false;
    left->count = right->count = RUN / 2;
    memcpy(right->from, left->from + RUN / 2, sizeof right->from / 2);
    memcpy(right->to, left->to + RUN / 2, sizeof right->to / 2);
    find_widest(left);
    find_widest(right);
    return true;
}

bool ebb_column_add(ebb_column *c, uint64_t offset, uint64_t size)
{
    size_t at = run_of(c, offset);
    if (c->count == 0 ? insert_run(c, 0) == NULL : c->runs[at]->count == RUN && !split_run(c, at))
        return false;
    run *r = c->runs[run_of(c, offset)];
    uint32_t i = first_above(r, offset), behind = r->count++ - i;
    memmove(&r->from[i + 1], &r->from[i], behind * sizeof *r->from);
    memmove(&r->to[i + 1], &r->to[i], behind * sizeof *r->to);
    r->from[i] = offset;
    r->to[i] = offset + size;
    find_widest(r);
    return true;
}

void ebb_column_remove(ebb_column *c, uint64_t offset)
{
    size_t at = run_of(c, offset);
    run *r = c->runs[at];
    uint32_t i = first_above(r, offset), behind = --r->count - i;
    memmove(&r->from[i], &r->from[i + 1], behind * sizeof *r->from);
    memmove(&r->to[i], &r->to[i + 1], behind * sizeof *r->to);
    find_widest(r);
    if (r->count > 0)
        return;
    c->count--;
    memmove(&c->runs[at], &c->runs[at + 1], (c->count - at) * sizeof *c->runs);
    c->runs[c->count] = r;
}

uint64_t ebb_column_first(const ebb_column *c, uint64_t offset, uint64_t size)
{
    for (size_t at = run_of(c, offset); at < c->count; at++) {
        const run *r = c->runs[at];
        uint64_t end = r->to[r->count - 1];
        if (r->from[0] >= offset && r->from[0] - offset >= size)
            return offset;
        if (r->widest < size) {
            offset = end > offset ? end : offset;
            continue;
        }
        for (uint32_t i = first_above(r, offset); i < r->count; i++) {
            if (r->from[i] >= offset && r->from[i] - offset >= size)
                return offset;
            offset = r->to[i];
        }
    }
    return offset;
}
