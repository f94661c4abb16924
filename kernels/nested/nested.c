/* nested.c: see nested.h. */
#include "kernels/nested/nested.h"

ebb_call ebb_nested_make(const ebb_call *from)
{
    ebb_call call = *from;
    call.kernel = NULL;
    call.streamed = false;
    call.state = call.workspace = NULL;
    call.workspace_bytes = 0;
    return call;
}

ebb_status ebb_nested_copy(ebb_call *call, const ebb_call *from, ebb_arena *arena)
{
    *call = ebb_nested_make(from);
    call->in = EBB_NEW(arena, ebb_operand, from->input_count + (size_t)1);
    call->out = EBB_NEW(arena, ebb_operand, from->output_count + (size_t)1);
    EBB_GOT(call->in && call->out);
    memcpy(call->in, from->in, from->input_count * sizeof *call->in);
    memcpy(call->out, from->out, from->output_count * sizeof *call->out);
    return NULL;
}

ebb_status ebb_nested_room(ebb_call *call, const ebb_backend *const *backends, size_t *room)
{
    EBB_TRY(ebb_pick(call, backends));
    if (call->kernel->workspace != NULL)
        EBB_TRY(call->kernel->workspace(call, &call->workspace_bytes));
    *room = *room > call->workspace_bytes ? *room : call->workspace_bytes;
    return NULL;
}

ebb_status ebb_nested_fits(const ebb_call *outer, size_t bytes)
{
    if (bytes <= outer->workspace_bytes)
        return NULL;
    return ebb_call_error(outer,
                          "needs %zu bytes of workspace and was planned with %zu: plan it for the "
                          "number of threads that run it",
                          bytes, outer->workspace_bytes);
}

void ebb_nested_point(ebb_call *call, const ebb_call *outer, size_t at)
{
    call->workspace = (char *)outer->workspace + at;
    call->queue = outer->queue;
    call->position = outer->position;
    call->seed = outer->seed;
    call->step = outer->step;
}

ebb_status ebb_nested_prepare(ebb_call *call)
{
    return call->kernel != NULL && call->kernel->prepare != NULL ? call->kernel->prepare(call)
                                                                 : NULL;
}

void ebb_nested_release(ebb_call *call)
{
    if (call->kernel != NULL && call->kernel->release != NULL && call->state != NULL)
        call->kernel->release(call);
    call->state = NULL;
}
