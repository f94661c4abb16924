/* access.c: loads, stores and atomic exchanges: what an address of a lane is. */
#include "tests/cuda/ptx/execute.h"

static void *reach(const machine *m, const warp *w, const instruction *i, uint32_t l)
{
    const uint32_t bytes = (uint32_t)i->size * i->count; // a power of two
    const uint64_t at = row(w, i->a)[l].u64 + (uint64_t)i->offset;
    const bool writes = i->op != OP_LD;
    const seeing who = {w->number * LANES + l, w->round, writes, i->op == OP_ATOM};
    if ((at & (bytes - 1)) != 0) {
        (void)ptx_fail("accesses what is not aligned to %u bytes, at %#llx", bytes,
                       (unsigned long long)at);
        return NULL;
    }
    switch (i->space) {
    case GLOBAL:
        return ptx_global(&m->block, at, bytes, who);
    case SHARED:
        return ptx_shared(&m->block, at, bytes, who);
    case LOCAL:
        if (at < w->f->frame_bytes && bytes <= w->f->frame_bytes - at)
            return w->local + (size_t)l * LOCAL_BYTES + at;
        (void)ptx_fail("goes beyond its local memory, at %#llx", (unsigned long long)at);
        return NULL;
    default:
        if (!writes && at < m->block.args_bytes && bytes <= m->block.args_bytes - at)
            return (uint8_t *)(uintptr_t)m->block.args + at;
        (void)ptx_fail("%s its arguments, at %llu", writes ? "writes" : "goes beyond",
                       (unsigned long long)at);
        return NULL;
    }
}

bool ptx_access(const machine *m, const warp *w, const instruction *i, uint32_t lanes,
                uint32_t *lane)
{
    EACH(l, lanes)
    {
        uint8_t *p = reach(m, w, i, *lane = l);
        if (p == NULL)
            return false;
        for (uint32_t k = 0; k < i->count; k++, p += i->size)
            if (i->op == OP_ST)
                memcpy(p, &row(w, i->more[k])[l], i->size); // little-endian
            else
                load(&w->cells[i->more[k]][l], p, i->size, i->kind);
    }
    return true;
}

bool ptx_exchange(const machine *m, const warp *w, const instruction *i, uint32_t lanes,
                  uint32_t *lane)
{
    const cell *b = row(w, i->b);
    EACH(l, lanes)
    {
        uint8_t *p = reach(m, w, i, *lane = l);
        cell old = {0}, new;
        if (p == NULL)
            return false;
        load(&old, p, i->size, false);
        new.u64 = i->kind != '<' ? old.u64 + b[l].u64 : old.u64 < b[l].u64 ? old.u64 : b[l].u64;
        memcpy(p, &new, i->size);
        w->cells[i->d][l] = old;
    }
    return true;
}
