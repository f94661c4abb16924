/* attention_tiles.h: how attention is cut into tiles: of the scores [queries, keys] SIDE x SIDE
 * exist at a time, in shared memory.
 *
 *     a thread:   PER x PER scores of the tile;  PER rows, MANY columns of an output
 *     shared:     | two operands' pieces [DEEP, SIDE], or one [DEEP, CHUNK] | a tile |
 */
#pragma once

enum {
    SIDE = 64,
    DEEP = 16,
    PITCH = SIDE + 1,
    PER = 4,
    WIDE = SIDE / PER,
    THREADS = WIDE * WIDE,
    CHUNK = 128, /* columns of an output that a block makes */
    MANY = CHUNK / WIDE,
    PIECES = 2 * DEEP * PITCH, /* elements: two operands' pieces; or one of CHUNK columns */
    SHARED = PIECES + SIDE * PITCH
};
