/* execute.h: what the files that carry out a warp's instructions share.
 *
 *     execute.c    which lanes go on, and where: branches, waiting, words between lanes
 *     value.c      a value of each lane: ops.def, and whole values of parts
 *     access.c     loads, stores, atomic exchanges
 */
#pragma once

#include "tests/cuda/ptx/ptx.h"

#include <string.h>

static const uint32_t ALL = 0xFFFFFFFF;

typedef struct group { /* the lanes that go on together, and where */
    uint32_t lanes, pc;
    uint32_t meets; /* the place at which others wait */
} group;

#define EACH(l, lanes)                                                                          \
    for (uint32_t l, rest_ = (lanes); rest_ != 0 && (l = (uint32_t)__builtin_ctz(rest_), true); \
         rest_ &= rest_ - 1)

static inline const cell *row(const warp *w, operand x)
{
    return x >= 0 ? w->cells[x] : ~x < SPECIALS ? w->special[~x] : w->f->constants[~x - SPECIALS];
}

static inline void load(cell *to, const uint8_t *from, uint32_t size, bool is_signed)
{
    switch (size) {
    case 1:
        to->u64 = is_signed ? (uint64_t)(int64_t)(int8_t)*from : *from;
        break;
    case 2: {
        uint16_t v;
        memcpy(&v, from, sizeof v);
        to->u64 = is_signed ? (uint64_t)(int64_t)(int16_t)v : v;
        break;
    }
    case 4: {
        uint32_t v;
        memcpy(&v, from, sizeof v);
        to->u64 = is_signed ? (uint64_t)(int64_t)(int32_t)v : v;
        break;
    }
    default:
        memcpy(to, from, sizeof *to);
    }
}

/* value.c */
void ptx_compute(warp *w, const instruction *i, uint32_t lanes);
void ptx_pack(const warp *w, const instruction *i, uint32_t lanes);
void ptx_unpack(const warp *w, const instruction *i, uint32_t lanes);
void ptx_insert(const warp *w, const instruction *i, uint32_t lanes);

/* access.c. False: an error was told, of *lane. */
bool ptx_access(const machine *m, const warp *w, const instruction *i, uint32_t lanes,
                uint32_t *lane);
bool ptx_exchange(const machine *m, const warp *w, const instruction *i, uint32_t lanes,
                  uint32_t *lane);
