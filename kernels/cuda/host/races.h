/* races.h: who wrote and who read a place last, and whether that races with who comes now. For
 * check.c, which watches what gcc compiled, and for tests/cuda/ptx, which watches what nvcc did.
 *
 * Two accesses, of which one writes, race where they are of two blocks of a launch, or of two
 * threads of a block between the same two barriers; exchanges of a warp order its lanes. Atomic
 * ones do not race with each other.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ebb_race_access {
    uint32_t launch, block;
    uint16_t epoch, round; /* barriers of the block, exchanges of the warp: the low bits */
    uint16_t thread;
    uint8_t threads;    /* of reads since the last barrier: several, of 1: one warp, 2: more */
    uint8_t blocks : 1; /* of reads: several */
    uint8_t atomic : 1;
} ebb_race_access;

typedef struct ebb_race_cell {
    ebb_race_access write, read;
} ebb_race_cell;

/* Nothing says which of the two is first. */
static inline bool ebb_race_between(const ebb_race_access *a, const ebb_race_access *b)
{
    if (a->launch != b->launch || (a->atomic && b->atomic))
        return false;
    if (a->block != b->block)
        return true;
    return a->epoch == b->epoch && a->thread != b->thread &&
           !(a->thread / 32 == b->thread / 32 && a->round != b->round);
}

static inline void ebb_race_note_read(ebb_race_cell *c, const ebb_race_access *me)
{
    ebb_race_access *r = &c->read;
    const bool now = r->launch == me->launch, here = now && r->block == me->block;
    const bool blocks = now && (r->blocks || !here);
    uint8_t threads = 0;
    if (here && r->epoch == me->epoch) {
        const bool lanes = r->thread / 32 == me->thread / 32;
        threads = r->threads == 2 || !lanes                          ? 2
                  : r->round == me->round && r->thread != me->thread ? 1
                  : r->round == me->round                            ? r->threads
                                                                     : 0;
    }
    *r = *me;
    r->blocks = blocks;
    r->threads = threads;
}

/* NULL, or what is wrong, with *other the access that it is wrong with. */
static inline const char *ebb_race_meet(ebb_race_cell *c, const ebb_race_access *me, bool writes,
                                        ebb_race_access *other)
{
    const ebb_race_access *r = &c->read;
    const char *wrong = NULL;
    if (!writes && r->launch == me->launch && r->block == me->block && r->epoch == me->epoch &&
        (r->threads == 2 || (r->thread == me->thread && r->round == me->round)) &&
        (c->write.launch != me->launch ||
         (c->write.block == me->block && c->write.epoch != me->epoch)))
        return NULL; // nothing new: most of all reads
    if (writes && r->launch == me->launch && !(r->atomic && me->atomic) &&
        (r->blocks || ebb_race_between(r, me) ||
         (r->epoch == me->epoch &&
          (r->threads == 2 || (r->threads == 1 && r->round == me->round))))) {
        wrong = "writes what another thread may be reading,";
        *other = *r;
    }
    if (ebb_race_between(&c->write, me)) {
        wrong =
            writes ? "writes, as another thread may," : "reads what another thread may be writing,";
        *other = c->write;
    }
    if (writes)
        c->write = *me;
    else
        ebb_race_note_read(c, me);
    return wrong;
}
