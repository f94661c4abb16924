/* moves.c: Store, Fetch, Wait: what the mover of a program does. Outside of a program they copy. */
#include "kernels/away/mover.h"
#include "kernels/plain/plain.h"

static ebb_status copy(const ebb_call *c)
{
    if (c->out[0].data != c->in[0].data)
        memcpy(c->out[0].data, c->in[0].data, c->in[0].bytes);
    return NULL;
}

static ebb_status run_store(const ebb_call *c)
{
    if (c->mover == NULL)
        return copy(c);
    return ebb_mover_store(c->mover, c->out[0].spot - 1, c->in[0].data, c->in[0].bytes, c->node);
}

static ebb_status run_fetch(const ebb_call *c)
{
    if (c->mover == NULL)
        return copy(c);
    return ebb_mover_fetch(c->mover, c->in[0].spot - 1, c->out[0].data, c->out[0].bytes, c->node);
}

/* It waits for a move of what lies on this device. */
static ebb_status run_wait(const ebb_call *c)
{
    if (c->mover == NULL)
        return copy(c);
    return ebb_mover_wait(c->mover, c->in[c->in[0].spot != 0].data);
}

// clang-format off
const ebb_kernel ebb_plain_moves[] = {
    {.name = "plain.store", .op = EBB_OP_STORE, .dtypes = ebb_call_any_bits, .run = run_store},
    {.name = "plain.fetch", .op = EBB_OP_FETCH, .dtypes = ebb_call_any_bits, .run = run_fetch},
    {.name = "plain.wait",  .op = EBB_OP_WAIT,  .dtypes = ebb_call_any_bits, .run = run_wait},
};
// clang-format on
EBB_PLAIN_COUNT(moves)
