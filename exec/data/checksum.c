/* checksum.c: eight bytes at a time, by a table for each. */
#include "exec/data/checksum.h"

static const uint64_t polynomial = 0xC96C5795D7870F42; /* ECMA-182's, lowest bit first */

void ebb_checksum_begin(ebb_checksum *c)
{
    for (uint64_t b = 0; b < 256; b++) {
        uint64_t rest = b;
        for (int bit = 0; bit < 8; bit++)
            rest = (rest & 1) != 0 ? rest >> 1 ^ polynomial : rest >> 1;
        c->table[0][b] = rest;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++) {
            uint64_t before = c->table[k - 1][b];
            c->table[k][b] = before >> 8 ^ c->table[0][before & 255];
        }
    c->sum = UINT64_MAX;
}

void ebb_checksum_add(ebb_checksum *c, const void *bytes, size_t count)
{
    const uint8_t *p = bytes;
    uint64_t sum = c->sum;
    for (; count >= 8; count -= 8, p += 8) {
        uint64_t word = 0;
        for (int k = 7; k >= 0; k--) // as it lies, whatever the machine's order of bytes
            word = word << 8 | p[k];
        word ^= sum;
        sum = 0;
        for (int k = 0; k < 8; k++)
            sum ^= c->table[7 - k][word >> (8 * k) & 255];
    }
    for (; count > 0; count--, p++)
        sum = sum >> 8 ^ c->table[0][(sum ^ *p) & 255];
    c->sum = sum;
}

uint64_t ebb_checksum_end(const ebb_checksum *c)
{
    return ~c->sum;
}
