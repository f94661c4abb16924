/* links.c: the two objectives of a chain; see links.h. */
#include "passes/budget/planners/chain/links.h"

#include <stdlib.h>

static uint64_t plus(uint64_t a, uint64_t b) /* NEVER stays NEVER */
{
    return a > EBB_LINKS_NEVER - b ? EBB_LINKS_NEVER : a + b;
}

/* Row r holds the maxima of 2^r neighbours, so any range is two look-ups. */
static uint64_t *range_maxima(uint32_t n, const uint64_t *work, ebb_arena *arena)
{
    size_t width = (size_t)n + 2, rows = 1;
    while ((size_t)1 << rows <= width)
        rows++;
    uint64_t *table = EBB_NEW(arena, uint64_t, rows * width);
    if (table == NULL)
        return NULL;
    for (size_t k = 1; k < width && work != NULL; k++)
        table[k] = work[k];
    for (size_t r = 1; r < rows; r++) {
        for (size_t k = 0; k + ((size_t)1 << r) <= width; k++) {
            uint64_t a = table[(r - 1) * width + k];
            uint64_t b = table[(r - 1) * width + k + ((size_t)1 << (r - 1))];
            table[r * width + k] = a > b ? a : b;
        }
    }
    return table;
}

ebb_status ebb_links_make(ebb_links *links, uint32_t n, const uint64_t *keep, const uint64_t *inner,
                          const uint64_t *work, ebb_arena *arena)
{
    size_t width = (size_t)n + 2;
    uint64_t *own = EBB_NEW(arena, uint64_t, width), *before = EBB_NEW(arena, uint64_t, width);
    *links = (ebb_links){.n = n, .keep = own, .before = before};
    links->work = range_maxima(n, work, arena);
    links->cost = EBB_NEW(arena, uint64_t, width);
    links->from = EBB_NEW(arena, uint32_t, width);
    links->queue = EBB_NEW(arena, uint32_t, width);
    EBB_GOT(own && before && links->work && links->cost && links->from && links->queue);
    for (uint32_t k = 1; k <= n + 1; k++) {
        own[k] = keep[k];
        before[k] = before[k - 1] + inner[k];
    }
    return NULL;
}

uint64_t ebb_links_segment(const ebb_links *links, uint32_t i, uint32_t j)
{
    size_t width = (size_t)links->n + 2, row = 0;
    while ((size_t)2 << row <= j - i)
        row++;
    uint64_t a = links->work[row * width + i + 1];
    uint64_t b = links->work[row * width + j + 1 - ((size_t)1 << row)];
    uint64_t made = links->before[j] - links->before[i];
    return (made > links->keep[j] ? made - links->keep[j] : 0) + (a > b ? a : b);
}

/* The feasible i for j are a window that moves right: a queue of rising costs has the least first.
 */
void ebb_links_resident(ebb_links *links, uint64_t bound)
{
    uint32_t head = 0, tail = 0, *queue = links->queue;
    links->cost[0] = 0;
    for (uint32_t j = 1; j <= links->n + 1; j++) {
        while (tail > head && links->cost[queue[tail - 1]] >= links->cost[j - 1])
            tail--;
        queue[tail++] = j - 1;
        while (head < tail && ebb_links_segment(links, queue[head], j) > bound)
            head++;
        links->from[j] = head < tail ? queue[head] : 0;
        links->cost[j] =
            head < tail ? plus(links->cost[queue[head]], links->keep[j]) : EBB_LINKS_NEVER;
    }
}

/* A heap by cost. What exceeds the bound for j exceeds it for all later ones and is thrown out. */
static void push(const ebb_links *links, uint32_t *heap, uint32_t count, uint32_t node)
{
    uint32_t at = count;
    for (; at > 0 && links->cost[heap[(at - 1) / 2]] > links->cost[node]; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = node;
}

static void pop(const ebb_links *links, uint32_t *heap, uint32_t count) /* count: after it */
{
    uint32_t node = heap[count], at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < count && links->cost[heap[child + 1]] < links->cost[heap[child]])
            child++;
        if (child >= count || links->cost[heap[child]] >= links->cost[node])
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = node;
}

void ebb_links_running(ebb_links *links, uint64_t bound)
{
    uint32_t *heap = links->queue, count = 0;
    links->cost[0] = 0;
    for (uint32_t j = 1; j <= links->n + 1; j++) {
        push(links, heap, count++, j - 1);
        while (count > 0 &&
               plus(links->cost[heap[0]], ebb_links_segment(links, heap[0], j)) > bound)
            pop(links, heap, --count);
        links->from[j] = count > 0 ? heap[0] : 0;
        links->cost[j] = count > 0 ? plus(links->cost[heap[0]], links->keep[j]) : EBB_LINKS_NEVER;
    }
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

ebb_status ebb_links_least_resident(ebb_links *links, const uint64_t *rest, uint64_t *need,
                                    uint64_t *bound, ebb_arena *scratch)
{
    uint32_t n = links->n;
    size_t count = 0;
    uint64_t *values = EBB_NEW(scratch, uint64_t, ((size_t)n + 2) * (n + 1) / 2 + 1);
    EBB_GOT(values);
    for (uint32_t j = 1; j <= n + 1; j++) {
        need[j] = EBB_LINKS_NEVER;
        for (uint32_t i = 0; i < j; i++)
            values[count++] = ebb_links_segment(links, i, j);
    }
    need[0] = rest != NULL ? rest[0] : 0;
    bound[0] = 0;
    qsort(values, count, sizeof *values, ascending);
    for (size_t c = 0; c < count; c++) {
        if (c > 0 && values[c] == values[c - 1])
            continue;
        ebb_links_resident(links, values[c]);
        for (uint32_t j = 1; j <= n + 1; j++) {
            uint64_t most = rest != NULL && rest[j] > values[c] ? rest[j] : values[c];
            uint64_t sum = plus(links->cost[j], most);
            if (sum < need[j]) {
                need[j] = sum;
                bound[j] = values[c];
            }
        }
    }
    return NULL;
}

uint64_t ebb_links_least_running(ebb_links *links)
{
    uint64_t low = 0, high = ebb_links_segment(links, 0, links->n + 1); // keeps nothing: feasible
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        ebb_links_running(links, middle);
        if (links->cost[links->n + 1] == EBB_LINKS_NEVER)
            low = middle + 1;
        else
            high = middle;
    }
    ebb_links_running(links, low);
    return low;
}

void ebb_links_trace(const ebb_links *links, uint32_t node, bool *kept)
{
    while (node > 0) {
        node = links->from[node];
        if (node > 0)
            kept[node] = true;
    }
}
