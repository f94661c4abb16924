/* on_host.c: what a device has no kernel for is computed by the host, in the midst of its work.
 *
 *     device   ... |==| in ─┐                      ┌─> out |==| ...
 *                           │ fetch                │ put
 *     staged             [ in ] ── host's kernel ─> [ out ]
 *
 * The three are work of the queue like any other, done in order and recorded with the rest of the
 * step: nobody waits on the host's side. It is slow, by two copies over the bus at least, and
 * better than no answer; `ebb plan` says which nodes it is. The staged bytes and the workspace are
 * memory of the host, beside the arena.
 */
#include "kernels/nested/on_host.h"

#include "kernels/nested/nested.h"
#include "kernels/parallel.h"

typedef struct on_host {
    ebb_arena arena;
    ebb_call call; /* on staged operands */
    void *queue;
    const ebb_device *device;
    unsigned char *staged;
    size_t bytes, *in_at, *out_at, workspace_at;
    int threads; /* of the host, that it was prepared for */
} on_host;

/* The same call on the host; where its operands will lie. */
static ebb_status build(on_host *h, const ebb_call *c)
{
    const ebb_backend *const *host;
    bool fits = true;
    EBB_TRY(ebb_backends("cpu", &host));
    size_t room = 0;
    EBB_TRY(ebb_nested_copy(&h->call, c, &h->arena));
    h->call.queue = NULL;
    h->in_at = EBB_NEW(&h->arena, size_t, c->input_count + (size_t)1);
    h->out_at = EBB_NEW(&h->arena, size_t, c->output_count + (size_t)1);
    EBB_GOT(h->in_at && h->out_at);
    EBB_TRY(ebb_nested_room(&h->call, host, &room));
    for (uint32_t i = 0; i < c->input_count; i++)
        fits =
            fits && ebb_size_room(&h->in_at[i], &h->bytes, c->in[i].bytes, ebb_device_host.align);
    for (uint32_t o = 0; o < c->output_count; o++)
        fits =
            fits && ebb_size_room(&h->out_at[o], &h->bytes, c->out[o].bytes, ebb_device_host.align);
    fits = fits && ebb_size_room(&h->workspace_at, &h->bytes, room, ebb_device_host.align);
    return fits ? NULL : ebb_call_error(c, "its operands pass what memory can be");
}

static void release(ebb_call *c)
{
    on_host *h = c->state;
    ebb_nested_release(&h->call);
    if (h->staged != NULL)
        h->device->unstage(h->queue, h->staged);
    ebb_arena_fini(&h->arena);
    ebb_free(h);
    c->state = NULL;
}

static void point(on_host *h)
{
    for (uint32_t i = 0; i < h->call.input_count; i++)
        if (h->call.in[i].type.dtype != EBB_NONE)
            h->call.in[i].data = h->staged + h->in_at[i];
    for (uint32_t o = 0; o < h->call.output_count; o++)
        if (h->call.out[o].type.dtype != EBB_NONE)
            h->call.out[o].data = h->staged + h->out_at[o];
    h->call.workspace = h->staged + h->workspace_at;
}

static ebb_status prepare(ebb_call *c)
{
    on_host *h = ebb_alloc(sizeof *h);
    EBB_GOT(h);
    *h = (on_host){.queue = c->queue, .device = (*c->backends)->device};
    c->state = h;
    EBB_TRY(build(h, c));
    void *staged = NULL;
    EBB_TRY(h->device->stage(c->queue, h->bytes + 1, &staged));
    h->staged = staged;
    point(h);
    h->threads = ebb_threads();
    return ebb_nested_prepare(&h->call);
}

static ebb_status compute(void *context, uint64_t step)
{
    on_host *h = context;
    h->call.step = step;
    const ebb_threads_before before = ebb_threads_enter(h->threads); // of a thread of the device
    ebb_status status = h->call.kernel->run(&h->call);
    ebb_threads_leave(before);
    return status;
}

static ebb_status run(const ebb_call *c)
{
    on_host *h = c->state;
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->in[i].bytes > 0)
            EBB_TRY(
                h->device->fetch(c->queue, h->staged + h->in_at[i], c->in[i].data, c->in[i].bytes));
    EBB_TRY(h->device->visit(c->queue, compute, h));
    for (uint32_t o = 0; o < c->output_count; o++)
        if (c->out[o].bytes > 0)
            EBB_TRY(h->device->put(c->queue, c->out[o].data, h->staged + h->out_at[o],
                                   c->out[o].bytes));
    return NULL;
}

static const ebb_kernel kernel = {
    .name = "on_host", .op = EBB_OP_UNKNOWN, .prepare = prepare, .run = run, .release = release};

ebb_status ebb_pick_on_host(ebb_call *c)
{
    on_host h = {0};
    if (ebb_op_has(c->op, EBB_TOGETHER))
        return ebb_error(EBB_UNSUPPORTED, "%s: several processes compute on the host alone",
                         c->node);
    ebb_status status = build(&h, c);
    ebb_arena_fini(&h.arena);
    if (status == NULL)
        c->kernel = &kernel;
    return status;
}

bool ebb_is_on_host(const ebb_kernel *chosen)
{
    return chosen == &kernel;
}
