/* lots.h: a lot is eight elements in a row, the work of one lane: their codes fill whole bytes, and
 * their values are read and written at once where they lie on multiples of 16 bytes (`dense`).
 *
 * The loads and stores for each float type are in lot_kernels.inc.
 */
#pragma once

#include "kernels/cuda/gpu.h"

enum { EBB_LOT = 8 };

/* Lanes that share a group of so many elements: 1, 2, 4 .. 32. */
static inline uint32_t ebb_lot_team(int64_t group)
{
    uint32_t team = 1;
    while (team < EBB_WARP && (int64_t)team * EBB_LOT < group)
        team *= 2;
    return team;
}

/* The bytes of `count` codes, of the first eight if there are more, which begin with a byte; the
 * first is the lowest. */
EBB_GPU_INLINE void ebb_lot_put(uint8_t *to, uint64_t lot, uint32_t bits, int64_t count, bool dense)
{
    if (dense && count >= EBB_LOT && bits > 1) {
        if (bits == 8)
            *(uint64_t *)(void *)to = lot;
        else if (bits == 4)
            *(uint32_t *)(void *)to = (uint32_t)lot;
        else
            *(uint16_t *)(void *)to = (uint16_t)lot;
        return;
    }
    count = count < EBB_LOT ? count : EBB_LOT;
    for (int64_t bytes = (count * (int64_t)bits + 7) / 8, b = 0; b < bytes; b++)
        to[b] = (uint8_t)(lot >> 8 * b);
}

/* And back; of 4 or 8 bits. */
EBB_GPU_INLINE uint64_t ebb_lot_get(const uint8_t *from, uint32_t bits, int64_t count, bool dense)
{
    uint64_t lot = 0;
    if (dense && count >= EBB_LOT)
        return bits == 8 ? *(const uint64_t *)(const void *)from
                         : *(const uint32_t *)(const void *)from;
    count = count < EBB_LOT ? count : EBB_LOT;
    for (int64_t bytes = (count * (int64_t)bits + 7) / 8, b = 0; b < bytes; b++)
        lot |= (uint64_t)from[b] << 8 * b;
    return lot;
}
