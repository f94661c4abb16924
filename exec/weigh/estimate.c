/* estimate.c: what a step takes when planned as it stands. */
#include "exec/weigh/estimate.h"

#include "exec/weigh/plan.h"
#include "onnx/graph/place.h"

ebb_status ebb_estimate_make(ebb_estimate *estimate, ebb_arena *arena, const ebb_graph *g,
                             const char *backend)
{
    return ebb_estimate_within(estimate, arena, g, backend, 0);
}

ebb_status ebb_estimate_within(ebb_estimate *estimate, ebb_arena *arena, const ebb_graph *g,
                               const char *backend, uint64_t enough)
{
    const char *missing = NULL;
    ebb_setting setting;
    *estimate = (ebb_estimate){0};
    EBB_TRY(ebb_setting_read(&setting, g->model, backend, 0, 0));
    setting.enough = enough;
    ebb_plan plan;
    EBB_TRY(ebb_plan_estimate(&plan, arena, g, &setting, &missing));
    estimate->workspace_bytes = EBB_NEW(arena, size_t, g->node_count + 1);
    if (estimate->workspace_bytes != NULL) {
        estimate->runs = true;
        for (uint32_t p = 0; p < plan.count; p++) {
            const ebb_call *call = &plan.calls[p];
            estimate->workspace_bytes[plan.order[p].i] = call->workspace_bytes;
            estimate->runs = estimate->runs && (call->kernel != NULL || ebb_op_moves(call->op));
        }
        estimate->threads = setting.threads;
        estimate->align = plan.align;
        estimate->maps = setting.backends[0]->device->is_host;
        estimate->arena_bytes = plan.packing.height;
        estimate->peak_bytes = plan.memory.peak_bytes;
        estimate->ns = plan.planned_ns;
    }
    ebb_plan_release(&plan);
    return estimate->workspace_bytes != NULL ? NULL : ebb_error_memory();
}
