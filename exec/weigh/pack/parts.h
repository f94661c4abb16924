/* parts.h: the instance of a packing as exact search has it: in 32 bits, in parts that no cut in
 * time separates, each piece by its rank.
 */
#pragma once

#include "exec/weigh/pack/piece.h"

typedef struct part { /* pieces that no cut in time separates; arrays by rank */
    uint32_t count, sections;
    int32_t *first, *last; /* sections first .. last - 1 */
    int32_t *size;
    int32_t *least, *most; /* offsets allowed */
    bool *fixed;
    int32_t *total; /* by section, of all */
    uint32_t *piece;
    uint64_t *width, *area; /* by rank: lifetime; lifetime x size */
} part;

typedef struct unit { /* the instance's numbers as 32 bits */
    uint64_t bytes;
    int32_t capacity;
    bool exact;
} unit;

typedef struct event {
    uint32_t position, piece;
    bool birth;
} event;

/* All but the greatest common divisor of sizes is lost in coarser units: what is found then is
 * still right, but nothing is proven. */
unit ebb_unit_choose(const ebb_piece *pieces, uint32_t count, uint64_t alignment,
                     uint64_t capacity);

/* Arrays for `count` pieces; false: no memory. */
bool ebb_part_new(part *p, ebb_arena *arena, uint32_t count);
/* In units: size, offsets allowed. False where it does not fit at all. */
bool ebb_part_measure(part *p, uint32_t at, const ebb_piece *z, uint32_t index, const unit *u,
                      uint64_t capacity);

/* For qsort: by position, deaths first. */
int ebb_event_compare(const void *a, const void *b);
/* Sections: one ends at each death that comes after a birth. Totals; false: one is too high. */
bool ebb_part_cut(part *p, const event *events, const uint32_t *place_of, int32_t capacity);

/* The same part, sorted by one of the ranks. */
/* Each row: which is compared first, second, third. W: lifetime, A: area, T: most in a section. */
extern const char ebb_ranks[][4];
enum { RANKS = 3 };

ebb_status ebb_part_rank(part *q, const part *p, const char *by, ebb_arena *arena);
