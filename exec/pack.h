/* pack.h: intervals in, offsets out; pure arithmetic.
 *
 * Offline dynamic storage allocation: place each interval so that no two alive together overlap,
 * with the highest end as low as can be. First-fit over several orders; the best is kept.
 */
#ifndef EBB_EXEC_PACK_H
#define EBB_EXEC_PACK_H

#include "onnx/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_interval {
    uint32_t lower, upper; /* alive at positions lower .. upper - 1 */
    uint64_t size;
    uint64_t offset; /* out */
} ebb_interval;

typedef struct ebb_packing {
    uint64_t height;      /* the arena's bytes */
    uint64_t lower_bound; /* most bytes alive at one position: no packing can be lower */
    const char *order;    /* the order that won */
} ebb_packing;

/* Fills offsets, multiples of alignment. EBB_REJECTED for a reversed interval or an overflow. */
ebb_status ebb_pack(ebb_packing *packing, ebb_interval *intervals, size_t count, uint64_t alignment,
                    ebb_arena *scratch);

#ifdef __cplusplus
}
#endif
#endif
