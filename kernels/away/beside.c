/* beside.c: what a device moves to other places and back goes its own two ways, beside its work.
 *
 *     work       ... |= Store =|==|==|= Wait =| ...        |= Fetch =|==|==|= Wait =| ...
 *                       │ depart         ^ wait                 │              ^
 *     to host           └─> [ copy ] ────┘                      │              │
 *     from host                                                 └─> [ copy ] ──┘
 *
 * In the host's memory a tensor has its place, pinned. What goes to disk passes through one piece of such
 * memory, which the host writes or reads before the next piece follows. All is recorded with the step.
 */
#include "kernels/away/beside.h"

#include "kernels/away/mover.h"

typedef struct beside { /* of a tensor on disk */
    uint32_t count;
    ebb_mover_piece pieces[];
} beside;

static const ebb_device *device_of(const ebb_call *c)
{
    return (*c->backends)->device;
}

/* The operand that lies on the device: what is stored, or what is fetched. */
static const ebb_operand *memory_of(const ebb_call *c)
{
    return c->op == EBB_OP_STORE ? &c->in[0] : &c->out[0];
}

static uint32_t spot_of(const ebb_call *c)
{
    return (c->op == EBB_OP_STORE ? c->out[0].spot : c->in[0].spot) - 1;
}

static ebb_status prepare(ebb_call *c)
{
    const size_t bytes = memory_of(c)->bytes;
    if (ebb_mover_memory(c->mover, spot_of(c)) != NULL || bytes == 0)
        return NULL;
    const size_t count = (bytes - 1) / EBB_MOVER_PIECE + 1;
    size_t size;
    beside *b = NULL;
    if (count <= UINT32_MAX && ebb_size_mul(&size, count, sizeof b->pieces[0]) &&
        ebb_size_add(&size, size, sizeof *b))
        b = ebb_alloc(size);
    EBB_GOT(b);
    b->count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        const size_t at = i * EBB_MOVER_PIECE, left = bytes - at;
        b->pieces[i] = (ebb_mover_piece){.mover = c->mover,
                                         .spot = spot_of(c),
                                         .stores = c->op == EBB_OP_STORE,
                                         .at = at,
                                         .bytes = left < EBB_MOVER_PIECE ? left : EBB_MOVER_PIECE,
                                         .whole = bytes,
                                         .node = c->node};
    }
    c->state = b;
    return NULL;
}

static ebb_status go(const ebb_call *c, char *memory, size_t bytes)
{
    const ebb_device *d = device_of(c);
    beside *b = c->state;
    char *there = ebb_mover_memory(c->mover, spot_of(c));
    if (b == NULL)
        return c->op == EBB_OP_STORE ? d->fetch(c->queue, there, memory, bytes)
                                     : d->put(c->queue, memory, there, bytes);
    for (uint32_t i = 0; i < b->count; i++) {
        ebb_mover_piece *p = &b->pieces[i];
        char *room = ebb_mover_room(c->mover, p->stores);
        if (p->stores)
            EBB_TRY(d->fetch(c->queue, room, memory + p->at, p->bytes));
        EBB_TRY(d->visit(c->queue, ebb_mover_carry, p));
        if (!p->stores)
            EBB_TRY(d->put(c->queue, memory + p->at, room, p->bytes));
    }
    return NULL;
}

static ebb_status run_start(const ebb_call *c)
{
    const ebb_operand *m = memory_of(c);
    const ebb_device *d = device_of(c);
    if (m->bytes == 0)
        return NULL;
    EBB_TRY(d->depart(c->queue, c->op == EBB_OP_STORE, m->data));
    EBB_TRY(go(c, m->data, m->bytes));
    return d->land(c->queue);
}

static const ebb_kernel kernel = {.name = "beside",
                                  .op = EBB_OP_UNKNOWN,
                                  .prepare = prepare,
                                  .run = run_start,
                                  .release = ebb_call_forget};

ebb_status ebb_pick_beside(ebb_call *c)
{
    if (device_of(c)->depart == NULL)
        return ebb_error(EBB_UNSUPPORTED, "%s: this device moves nothing to other places", c->node);
    c->kernel = &kernel;
    return NULL;
}
