/* checksum.h: CRC-64/XZ, by which damage to a file is seen: any burst of up to 64 bits, and all
 * else but one case in 2^64. No protection against who means harm. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct ebb_checksum {
    uint64_t sum;
    uint64_t table[8][256]; /* [k][b]: byte b with k bytes behind it */
} ebb_checksum;

void ebb_checksum_begin(ebb_checksum *c);
void ebb_checksum_add(ebb_checksum *c, const void *bytes, size_t count);
uint64_t ebb_checksum_end(const ebb_checksum *c);
