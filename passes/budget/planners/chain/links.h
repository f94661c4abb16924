/* links.h: which outputs of a chain to keep so that the peak is least, in numbers alone.
 *
 * Nodes 0 .. n+1: 0 is the input, n+1 the end, both free; a plan keeps a subset of 1 .. n. Link k
 * leads from node k-1 to node k and makes inner[k] bytes, of which keep[k] are node k's output.
 * The segment between kept neighbours i < j is made again at once:
 *
 *   S(i,j) = sum of inner[i+1 .. j] - keep[j] + largest of work[i+1 .. j]
 *
 *   resident   all kept outputs stay to the end: sum of keep + largest S           O(n^3)
 *   running    those to the right of a segment are gone by then: largest of
 *              (kept up to the segment's left end) + S                     O(n log n) a bound
 *
 * Both are exact. S must not shrink as j grows: keep[j+1] <= inner[j+1] + keep[j].
 *
 * Paper: Hong et al., "Optimal gradient checkpointing of a chain for least peak memory",
 * arXiv 2502.12499.
 */
#pragma once

#include "onnx/words/arena.h"

#define EBB_LINKS_NEVER UINT64_MAX

typedef struct ebb_links {
    uint32_t n;
    uint64_t *keep;         /* n + 2; keep[0] = 0 */
    const uint64_t *before; /* n + 2: sum of inner up to and with this link */
    const uint64_t *work;   /* table of range maxima, row by row of n + 2 */
    uint64_t *cost;         /* n + 2: by ebb_links_*, least sum of keep up to a node; or NEVER */
    uint32_t *from;         /* n + 2: the kept node before it */
    uint32_t *queue;        /* n + 2 */
} ebb_links;

/* keep, inner and work have n + 2 elements, of which keep[1 .. n+1] and the others' [1 .. n+1]
 * count; work may be NULL. All memory is the arena's. */
ebb_status ebb_links_make(ebb_links *links, uint32_t n, const uint64_t *keep, const uint64_t *inner,
                          const uint64_t *work, ebb_arena *arena);

uint64_t ebb_links_segment(const ebb_links *links, uint32_t i, uint32_t j); /* S(i,j) */

/* Fill cost and from. resident: no segment above bound. running: no segment with what is kept to
 * its left above bound. */
void ebb_links_resident(ebb_links *links, uint64_t bound);
void ebb_links_running(ebb_links *links, uint64_t bound);

/* For each node j, the least of cost[j] + max(largest S, rest[j]) over all bounds, and the bound
 * that gives it. rest: n + 2, or NULL for zeros. need[n+1] is then the objective. */
ebb_status ebb_links_least_resident(ebb_links *links, const uint64_t *rest, uint64_t *need,
                                    uint64_t *bound, ebb_arena *scratch);
/* The objective: the least bound for which running reaches the end. */
uint64_t ebb_links_least_running(ebb_links *links);

/* kept[1 .. node-1] by from[]; kept[node] and the rest are left alone. */
void ebb_links_trace(const ebb_links *links, uint32_t node, bool *kept);
