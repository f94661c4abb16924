/* eval.c: one node, by its plain kernel, on constants. */
#include "exec/run/eval.h"

#include "exec/weigh/call.h"
#include "exec/weigh/allowance.h"

/* Mapped bytes may lie anywhere; kernels want elements aligned. */
static ebb_status give_input(ebb_operand *operand, ebb_call *call, uint32_t i, ebb_arena *scratch)
{
    if (operand->type.dtype == EBB_NONE)
        return NULL;
    if (operand->constant == NULL || (operand->constant->data == NULL && operand->bytes != 0))
        return ebb_call_error(call, "input %u is not a constant", i);
    if (operand->constant->bytes != operand->bytes)
        return ebb_call_error(call, "input %u has %zu bytes, its type needs %zu", i,
                              operand->constant->bytes, operand->bytes);
    void *copy = ebb_arena_alloc(scratch, operand->bytes + 1);
    EBB_GOT(copy);
    if (operand->bytes != 0)
        memcpy(copy, operand->constant->data, operand->bytes);
    operand->data = copy;
    return NULL;
}

static ebb_status compute(ebb_call *call)
{
    if (call->kernel->prepare != NULL)
        EBB_TRY(call->kernel->prepare(call));
    return call->kernel->run(call);
}

static ebb_status evaluate(const ebb_graph *g, ebb_node n, ebb_tensor *out, uint32_t out_count,
                           size_t limit_bytes, ebb_arena *arena, ebb_arena *scratch)
{
    const ebb_backend *const *plain;
    ebb_call call;
    EBB_TRY(ebb_backends("plain", &plain));
    EBB_TRY(ebb_call_make(&call, scratch, g, n, 0));
    if (ebb_op_has(call.op, EBB_RANDOM))
        return ebb_call_error(&call, "draws random numbers, so it is no constant");
    size_t total = 0;
    for (uint32_t i = 0; i < call.output_count; i++)
        if (!ebb_size_add(&total, total, call.out[i].bytes) || total > limit_bytes)
            return ebb_call_error(&call, "its result is above the limit of %zu bytes", limit_bytes);
    if (!ebb_allowance_evaluates(g, n, total))
        return ebb_error(EBB_REJECTED, "%s: takes too long, or too much memory, before the run",
                         call.node);
    for (uint32_t i = 0; i < call.input_count; i++) {
        /* ebb_call_make hides the constants of optimizers; ask again. */
        call.in[i].constant = ebb_value_constant(g, ebb_in(g, n, i));
        EBB_TRY(give_input(&call.in[i], &call, i, scratch));
    }
    EBB_TRY(ebb_pick(&call, plain));
    if (call.kernel->workspace != NULL)
        EBB_TRY(call.kernel->workspace(&call, &call.workspace_bytes));
    for (uint32_t i = 0; i < call.output_count; i++) {
        if (call.out[i].type.dtype == EBB_NONE)
            continue;
        call.out[i].data = ebb_arena_zeroed(arena, call.out[i].bytes + 1, 1);
        EBB_GOT(call.out[i].data);
    }
    void *workspace = ebb_alloc_aligned(64, call.workspace_bytes);
    EBB_GOT(workspace);
    call.workspace = workspace;
    ebb_status status = compute(&call);
    if (call.kernel->release != NULL && call.state != NULL)
        call.kernel->release(&call);
    ebb_free_aligned(workspace);
    for (uint32_t i = 0; status == NULL && i < out_count; i++) {
        out[i] = (ebb_tensor){0};
        if (i < call.output_count && call.out[i].type.dtype != EBB_NONE)
            out[i] = (ebb_tensor){
                .type = call.out[i].type, .data = call.out[i].data, .bytes = call.out[i].bytes};
    }
    return status;
}

ebb_status ebb_eval_node(const ebb_graph *g, ebb_node n, ebb_tensor *out, uint32_t out_count,
                         size_t limit_bytes, ebb_arena *arena)
{
    EBB_LOCAL_ARENA(scratch);
    return evaluate(g, n, out, out_count, limit_bytes, arena, scratch);
}
