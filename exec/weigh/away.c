/* away.c: what lies in other places, weighed. */
#include "exec/weigh/memory.h"

/* live[] of each place, by differences modulo 2^64. */
ebb_status ebb_memory_weigh_away(ebb_memory *m, ebb_arena *arena)
{
    const uint32_t last = m->positions > 0 ? m->positions - 1 : 0;
    const size_t span = (size_t)last + 2;
    uint64_t all = 0;
    for (size_t i = 0; i < m->away_count; i++) {
        const ebb_memory_away *t = &m->away[i];
        uint64_t **live = &m->places[t->place].live;
        if (t->within != 0) // counted with the whole
            continue;
        if (__builtin_add_overflow(all, t->bytes, &all))
            return ebb_error(EBB_REJECTED, "what lies in other places passes 2^64 bytes");
        if (*live == NULL && (*live = EBB_NEW(arena, uint64_t, span)) == NULL)
            return ebb_error_memory();
        (*live)[t->birth] += t->bytes;
        (*live)[t->death + 1] -= t->bytes;
    }
    for (int place = 0; place < EBB_PLACE_COUNT; place++) {
        uint64_t *live = m->places[place].live;
        for (uint32_t p = 0; live != NULL && p <= last; p++) {
            live[p] += p > 0 ? live[p - 1] : 0;
            if (live[p] > m->places[place].peak_bytes) {
                m->places[place].peak_bytes = live[p];
                m->places[place].peak_position = p;
            }
        }
    }
    return NULL;
}
