/* order.h: counting and ordering on the device, the same whatever the order of threads.
 *
 *     keys      5 0 5 2 0 5          the row that each update goes to
 *     key       0 0 2 5 5 5          ordered,
 *     position  1 4 3 0 2 5          and where each was: ascending within a row
 *
 * A radix sort from the lowest eight bits up: each pass counts the digits of each tile, sums the
 * counts before, and moves every key behind the equal digits of its tile, found by votes of a warp.
 */
#pragma once

#include "kernels/cuda/cuda.h"

EBB_C_BEGIN

typedef struct ebb_cuda_order {
    const uint32_t *key, *position;
} ebb_cuda_order;

/* Bytes of scratch to order n keys, n < 2^31. */
size_t ebb_cuda_order_bytes(int64_t n);
/* scratch begins with the n keys, none above `greatest`; it holds the result too. */
ebb_status ebb_cuda_order_make(const ebb_call *c, void *scratch, int64_t n, uint32_t greatest,
                               ebb_cuda_order *order);

/* counts[i] becomes the sum of those before it, counts[n] the sum of all. */
ebb_status ebb_cuda_sum_before(const ebb_call *c, uint32_t *counts, int64_t n);

/* The sum of v over the block's threads before this one, and over all of them. All threads come
 * here; shared: 32 words that nothing else uses. */
EBB_GPU_INLINE uint32_t ebb_block_before(uint32_t v, uint32_t *shared, uint32_t *all)
{
    uint32_t lane = EBB_THREAD % EBB_WARP, warp = EBB_THREAD / EBB_WARP, sum = v;
    for (uint32_t d = 1; d < EBB_WARP; d *= 2) {
        uint32_t other = ebb_lane_from_u32(sum, (lane - d) % EBB_WARP);
        sum += lane >= d ? other : 0;
    }
    ebb_barrier(); // of a call before, all have read
    if (lane == EBB_WARP - 1)
        shared[warp] = sum;
    ebb_barrier();
    uint32_t before = sum - v, total = 0;
    for (uint32_t w = 0; w < EBB_THREADS / EBB_WARP; w++) {
        before += w < warp ? shared[w] : 0;
        total += shared[w];
    }
    *all = total;
    return before;
}

EBB_C_END
