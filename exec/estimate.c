/* estimate.c: roofline or measured time of a node; what a step takes when planned as it stands. */
#include "exec/estimate.h"

#include "exec/program.h"
#include "onnx/infer.h"

#include <stdlib.h>

/* One core of a present-day server processor. A node takes the longer of its arithmetic and its
 * traffic, and a fixed cost. An estimate to compare plans by, not a promise. */
static const double flops_per_ns = 50.0;
static const double bytes_per_ns = 10.0;
static const double ns_per_node = 1000.0;

double ebb_roofline_ns(double flops, double bytes)
{
    double arithmetic = flops / flops_per_ns, traffic = bytes / bytes_per_ns;
    return (arithmetic > traffic ? arithmetic : traffic) + ns_per_node;
}

static double bytes_of(const ebb_graph *g, ebb_value v)
{
    size_t bytes = 0;
    if (v.i == 0 || !ebb_type_bytes(&ebb_value_of(g, v)->type, &bytes))
        return 0;
    return (double)bytes;
}

double ebb_node_bytes(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *node = ebb_node_of(g, n);
    double bytes = 0;
    for (uint32_t i = 0; i < node->in_count; i++)
        bytes += bytes_of(g, node->in[i]);
    for (uint32_t k = 0; k < node->out_count; k++)
        bytes += bytes_of(g, node->out[k]);
    return bytes;
}

double ebb_node_ns(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *node = ebb_node_of(g, n);
    const char *measured = ebb_props_get(g, &node->props, "ebb.cost_ns");
    if (measured != NULL) {
        double ns = strtod(measured, NULL);
        return ns >= 0 && ns < 1e18 ? ns : 0; // a file may say anything
    }
    if (ebb_op_has(node->op, EBB_VIEW))
        return 0;
    return ebb_roofline_ns(ebb_node_flops(g, n), ebb_node_bytes(g, n));
}

ebb_status ebb_estimate_make(ebb_estimate *estimate, ebb_arena *arena, const ebb_graph *g,
                             const char *backend)
{
    const char *missing = NULL;
    const ebb_backend *const *backends;
    *estimate = (ebb_estimate){0};
    EBB_TRY(ebb_backends(backend, &backends));
    ebb_plan plan;
    EBB_TRY(ebb_plan_estimate(&plan, arena, g, backends, 0, &missing));
    estimate->workspace_bytes = EBB_NEW(arena, size_t, g->node_count + 1);
    if (estimate->workspace_bytes != NULL) {
        for (uint32_t p = 0; p < plan.count; p++)
            estimate->workspace_bytes[plan.order[p].i] = plan.calls[p].workspace_bytes;
        estimate->runs = missing == NULL;
        estimate->align = plan.align;
        estimate->arena_bytes = plan.packing.height;
        estimate->peak_bytes = plan.memory.peak_bytes;
        estimate->ns = plan.planned_ns;
    }
    ebb_plan_release(&plan);
    return estimate->workspace_bytes != NULL ? NULL : ebb_error_memory();
}
