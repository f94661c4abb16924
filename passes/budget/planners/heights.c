/* heights.c: see heights.h. */
#include "passes/budget/planners/heights.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void add_to(ebb_heights *h, uint32_t node, int64_t bytes)
{
    h->most[node] += bytes;
    h->more[node] += bytes;
}

static void find_most(ebb_heights *h, uint32_t node)
{
    h->most[node] = larger(h->most[2 * node], h->most[2 * node + 1]) + h->more[node];
}

ebb_status ebb_heights_make(ebb_heights *h, const uint64_t *heights, uint32_t count,
                            ebb_arena *arena)
{
    *h = (ebb_heights){.leaves = 1};
    while (h->leaves < count)
        h->leaves *= 2;
    h->most = EBB_NEW(arena, int64_t, 2 * (size_t)h->leaves);
    h->more = EBB_NEW(arena, int64_t, 2 * (size_t)h->leaves);
    EBB_GOT(h->most && h->more);
    if (heights == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        h->most[h->leaves + i] = (int64_t)heights[i];
    for (uint32_t node = h->leaves; node-- > 1;)
        find_most(h, node);
    return NULL;
}

/* From both ends of the range up to where they meet: whatever lies between takes the bytes whole. */
void ebb_heights_add(ebb_heights *h, uint32_t first, uint32_t last, int64_t bytes)
{
    uint32_t left = first + h->leaves, right = last + h->leaves;
    add_to(h, left, bytes);
    if (left != right)
        add_to(h, right, bytes);
    for (; left / 2 != right / 2; left /= 2, right /= 2) {
        if (left % 2 == 0)
            add_to(h, left + 1, bytes);
        if (right % 2 == 1)
            add_to(h, right - 1, bytes);
        find_most(h, left / 2);
        find_most(h, right / 2);
    }
    for (left /= 2; left > 0; left /= 2)
        find_most(h, left);
}

int64_t ebb_heights_most(const ebb_heights *h, uint32_t first, uint32_t last)
{
    uint32_t left = first + h->leaves, right = last + h->leaves;
    int64_t most = h->most[left], other = h->most[right];
    for (; left / 2 != right / 2; left /= 2, right /= 2) {
        if (left % 2 == 0)
            most = larger(most, h->most[left + 1]);
        if (right % 2 == 1)
            other = larger(other, h->most[right - 1]);
        most += h->more[left / 2];
        other += h->more[right / 2];
    }
    most = larger(most, other);
    for (left /= 2; left > 0; left /= 2)
        most += h->more[left];
    return most;
}

uint32_t ebb_heights_highest(const ebb_heights *h)
{
    uint32_t node = 1;
    while (node < h->leaves)
        node = h->most[2 * node] >= h->most[2 * node + 1] ? 2 * node : 2 * node + 1;
    return node - h->leaves;
}

/* From one position to the next the nodes above it are others from some level on. */
void ebb_heights_read(const ebb_heights *h, int64_t *out, uint32_t count, int64_t base)
{
    int64_t above[33] = {base}; /* by level: what was added to all nodes above */
    uint32_t depth = 0;
    while (UINT32_C(1) << depth < h->leaves)
        depth++;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t level = depth;
        while (level > 0 && (i >> (depth - level) & 1) == 0)
            level--;
        for (; level < depth; level++)
            above[level + 1] = above[level] + h->more[(i + h->leaves) >> (depth - level)];
        out[i] = above[depth] + h->most[i + h->leaves];
    }
}
