/* many.h: one launch over many tensors, whose table is among the kernel's parameters: a block finds
 * the tensor that it works on, and which of the tensor's blocks it is.
 *
 *     end    [ 3 | 4 | 9 ]       block   0 1 2  3  4 5 6 7 8
 *                                tensor  0 0 0  1  2 2 2 2 2
 *
 * In the parameters, since these are recorded with the launch: nothing is copied, nothing is kept
 * on the device. Every device that kernels are compiled for takes 4 KB of them.
 */
#pragma once

#include <assert.h>

#include "kernels/cuda/cuda.h"

enum { EBB_MANY_PARAMETERS = 4096 };

typedef struct ebb_many_share {
    uint32_t tensor;
    uint32_t block, blocks; /* which of the tensor's blocks, of how many */
} ebb_many_share;

/* end: behind the last block of each of `count` tensors; block < end[count - 1]. */
EBB_GPU_INLINE ebb_many_share ebb_many_find(const uint32_t *end, uint32_t count, uint32_t block)
{
    uint32_t low = 0, high = count - 1;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (block < end[middle])
            high = middle;
        else
            low = middle + 1;
    }
    const uint32_t begin = low > 0 ? end[low - 1] : 0;
    ebb_many_share share = {low, block - begin, end[low] - begin};
    return share;
}

static inline bool ebb_many_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}
