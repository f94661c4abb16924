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
    *estimate = (ebb_estimate){.workspace_bytes = plan.workspace_bytes,
                               .runs = true,
                               .threads = setting.threads,
                               .align = plan.align,
                               .maps = setting.backends[0]->device->is_host,
                               .arena_bytes = plan.packing.height,
                               .peak_bytes = plan.memory.peak_bytes,
                               .ns = plan.planned_ns};
    for (uint32_t p = 0; p < plan.count; p++)
        estimate->runs = estimate->runs && (ebb_plan_kernel(&plan, p) != NULL ||
                                            ebb_op_moves(ebb_node_of(g, plan.order[p])->op));
    ebb_plan_release(&plan);
    return NULL;
}

ebb_status ebb_estimate_knows(bool *knows, const char *backend, ebb_op op)
{
    const ebb_backend *const *list;
    EBB_TRY(ebb_backends(backend, &list));
    *knows = ebb_backend_find(*list, op) != NULL;
    return NULL;
}
