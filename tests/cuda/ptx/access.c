/* access.c: loads, stores and atomic exchanges: what an address of a lane is. */
#include "tests/cuda/ptx/execute.h"

static void *reach(const machine *m, warp *w, const group *g, const instruction *i, uint32_t l,
                   uint32_t where, uint64_t at, bool writes, bool atomic)
{
    const uint32_t bytes = (uint32_t)i->size * i->count; // a power of two
    if ((at & (bytes - 1)) != 0) {
        (void)ptx_fail("accesses what is not aligned to %u bytes, at %#llx", bytes,
                       (unsigned long long)at);
        return NULL;
    }
    if (where == GENERIC) {
        static const uint8_t windows[] = {GLOBAL, SHARED, LOCAL, PARAM};
        if (at >> 56 > 3) {
            (void)ptx_fail("accesses what is no address, %#llx", (unsigned long long)at);
            return NULL;
        }
        where = windows[at >> 56];
        at &= SHARED_BASE - 1;
    }
    if (where == PARAM && (at & FRAME_PARAM) != 0) {
        where = LOCAL;
        at &= ~FRAME_PARAM;
    }
    const seeing who = {w->number * LANES + l, w->round, writes, atomic};
    switch (where) {
    case GLOBAL:
        return ptx_global(&m->block, at, bytes, who);
    case SHARED:
        return ptx_shared(&m->block, at, bytes, who);
    case LOCAL:
        if (at + bytes <= g->bytes + g->f->frame_bytes)
            return w->local + (size_t)l * LOCAL_BYTES + at;
        (void)ptx_fail("goes beyond its local memory, at %#llx", (unsigned long long)at);
        return NULL;
    default:
        if (!writes && at + bytes <= m->block.args_bytes)
            return (uint8_t *)(uintptr_t)m->block.args + at;
        (void)ptx_fail("%s its arguments, at %llu", writes ? "writes" : "goes beyond",
                       (unsigned long long)at);
        return NULL;
    }
}

bool ptx_access(const machine *m, warp *w, const group *g, const instruction *i, uint32_t lanes,
                uint32_t *lane)
{
    cell(*const frame)[LANES] = frame_of(w, g);
    const cell *a = row(w, g, i->a);
    const uint64_t from = (uint64_t)i->offset + (i->in_frame ? g->bytes : 0);
    const bool writes = i->op == OP_ST;
    EACH(l, lanes)
    {
        uint8_t *p = reach(m, w, g, i, l, i->space, a[l].u64 + from, writes, false);
        if (p == NULL) {
            *lane = l;
            return false;
        }
        for (uint32_t k = 0; k < i->count; k++, p += i->size)
            if (writes)
                memcpy(p, &row(w, g, i->more[k])[l], i->size); // little-endian
            else
                load(&frame[i->more[k]][l], p, i->size, i->kind);
    }
    return true;
}

bool ptx_exchange(const machine *m, warp *w, const group *g, const instruction *i, uint32_t lanes,
                  uint32_t *lane)
{
    const cell *a = row(w, g, i->a), *b = row(w, g, i->b);
    EACH(l, lanes)
    {
        uint8_t *p = reach(m, w, g, i, l, i->space, a[l].u64 + (uint64_t)i->offset, true, true);
        cell old = {0}, new;
        if (p == NULL) {
            *lane = l;
            return false;
        }
        load(&old, p, i->size, false);
        new.u64 = i->kind == '+'       ? old.u64 + b[l].u64
                  : i->kind == '|'     ? old.u64 | b[l].u64
                  : old.u64 < b[l].u64 ? old.u64
                                       : b[l].u64;
        memcpy(p, &new, i->size);
        frame_of(w, g)[i->d][l] = old;
    }
    return true;
}
