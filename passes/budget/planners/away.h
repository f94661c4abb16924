/* away.h: which tensors wait in another place, in which, and from when until when.
 *
 * Numbers in, a plan out. A site is a tensor and a time between two of its readers; while it is away, from before
 * operator `gone` until before operator `back`, it takes no memory. It is written from when it was made and read
 * back before `next`, each way one move after the other (exec/weigh/move_time.h):
 *
 *     position     made     last      gone              back       next
 *     operators     a        r         .    .    .   .   .    .     r'
 *     moves            [store.......]                    [fetch...]
 *     memory       |==================|                  |==========...
 *
 * A tensor has a site for each of its longest times, EBB_AWAY_GAPS at most. It is written once, for the first of those
 * sites that are away; there it stays, so all of them are away in one place, and for the others it is only read back.
 *
 * A placement is the place of every site. Moments follow from it: a write is waited for as late, and a read
 * begins as early, as it takes beside the step, unless the peak would rise for it. Of all placements that keep
 * to so many bytes alive, one is looked for that makes the step longer by least: where there are few sites the
 * best, by branch and bound; else what Belady's rule takes (needed again last), less what it need not take.
 */
#pragma once

#include "exec/weigh/estimate.h"

enum {
    EBB_AWAY_PLACES = 2,
    EBB_AWAY_GAPS = 3, /* sites of a tensor */
    EBB_AWAY_FEW = 12, /* the best is looked for among so many sites */
};

/* What lies there from step to step has two sites, and both are away whatever is wanted: it comes back for its
 * readers, and what replaces it goes. They choose moments alone, from the latest and the soonest on. */
typedef enum ebb_away_lasts {
    EBB_AWAY_STEP, /* a tensor of the step */
    EBB_AWAY_RETURNS, /* last: what its fetch is behind, or UINT32_MAX; next: where it is fetched at the latest */
    EBB_AWAY_LEAVES, /* last: where it has gone at the soonest; next: before what it has gone, or the end */
} ebb_away_lasts;

typedef struct
    ebb_away_site {  /* by `next`, then by `made`: so moves at one position follow each other */
    uint32_t tensor; /* the caller's */
    uint64_t bytes;
    uint32_t made, last, next;
    uint32_t ring; /* the tensor's site behind this one; of the last its first */
    ebb_away_lasts lasts;
    uint32_t place; /* found. 0: it stays; else index + 1 */
    uint32_t gone, back;
} ebb_away_site;

typedef struct ebb_away_place {
    uint64_t room, align; /* bytes for all that goes there in a step, each rounded up */
    ebb_move_time way[2]; /* of a byte: there, and back */
} ebb_away_place;

/* Belady's rule: where most is alive, the site that is needed again last. Who goes next does not depend on the
 * bytes that are wanted, so one list serves all aims. */
typedef struct ebb_away_rule {
    uint32_t *site; /* in the order in which they go */
    uint64_t *peak; /* bytes alive at most when so many have gone: count + 1 */
    size_t count;
} ebb_away_rule;

typedef struct ebb_away_problem {
    const double
        *starts; /* by position: when the operator starts if nothing is moved; one more: the end */
    const uint64_t *live; /* by position: bytes alive if nothing is moved */
    uint32_t count;
    double node_ns; /* of an operator that starts or waits */
    uint64_t fill; /* bytes that may be alive for moves to have time beside the step; 0: the peak */
    ebb_away_site *sites;
    size_t site_count;
    ebb_away_place places[EBB_AWAY_PLACES]; /* the nearest first */
    size_t place_count;
    ebb_away_rule rule; /* peak NULL: whoever needs it makes it */
    uint32_t *by_made;  /* sites; NULL: whoever needs it makes it, and the next */
    uint32_t *by_bytes; /* the largest first */
} ebb_away_problem;

typedef struct ebb_away_weight {
    uint64_t peak_bytes;
    double added_ns; /* by which the step is longer */
    bool proven;     /* ebb_away_find: no placement adds less, or no placement keeps to the bytes */
} ebb_away_weight;

/* Where another site of the tensor is: 0, if all of them stay. */
uint32_t ebb_away_elsewhere(const ebb_away_site *sites, uint32_t site);
/* Whether the site is away, and the first of its tensor that is: for it the tensor is written. */
bool ebb_away_writes(const ebb_away_site *sites, uint32_t site);
static inline bool ebb_away_reads(const ebb_away_site *site)
{
    return site->place != 0 && site->lasts != EBB_AWAY_LEAVES;
}
/* What the tensor takes there. */
uint64_t ebb_away_bytes(const ebb_away_place *place, const ebb_away_site *site);
/* For who looks for many placements of p: its sites in order, */
ebb_status ebb_away_sort(ebb_away_problem *p, ebb_arena *arena);
/* and a rule. All sites must stay. `once`: of each tensor the longest time alone goes. */
ebb_status ebb_away_rule_make(ebb_away_rule *rule, const ebb_away_problem *p, bool once,
                              ebb_arena *arena);
/* The moments of the sites by their places, and what they cost. The peak may rise to `most`, where it is below
 * that. */
ebb_status ebb_away_weigh(ebb_away_weight *weight, const ebb_away_problem *p, uint64_t most,
                          ebb_arena *scratch);
/* Places, too. A peak above `most`: none that keeps to it was found, and these are the lowest. `all` that the
 * rule takes is more than need be, which packs better. */
ebb_status ebb_away_find(ebb_away_weight *weight, const ebb_away_problem *p, uint64_t most,
                         bool all, ebb_arena *scratch);
