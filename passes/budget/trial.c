/* trial.c: marks put on, weighed, marks taken off; and the same on a copy with a schedule applied.
 */
#include "passes/budget/trial.h"

ebb_status ebb_trial_measure(ebb_estimate *estimate, ebb_arena *arena, ebb_graph *g,
                             const char *backend, uint64_t enough)
{
    EBB_TRY(ebb_estimate_for(g->model, backend));
    ebb_status status = ebb_pipeline_mark(g);
    if (status == NULL)
        status = ebb_estimate_within(estimate, arena, g, backend, enough);
    ebb_pipeline_unmark(g);
    return status;
}

ebb_status ebb_trial_weigh(ebb_trial *trial, ebb_arena *arena, ebb_graph *g, const char *backend)
{
    *trial = (ebb_trial){.bytes = 0};
    EBB_TRY(ebb_trial_measure(&trial->estimate, arena, g, backend, 0));
    EBB_TRY(ebb_remat_source_make(&trial->source, arena, g, &trial->estimate));
    trial->bytes = trial->estimate.arena_bytes;
    if (trial->estimate.runs)
        return NULL;
    /* No arena: the bytes of the list as it stands. */
    ebb_remat_schedule all;
    ebb_remat_weight weight;
    EBB_TRY(ebb_remat_keep_all(&all, &trial->source.problem, arena));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, &trial->source.problem, &all, arena));
    trial->bytes = weight.peak_bytes;
    return NULL;
}

ebb_status ebb_trial_memory(ebb_memory *memory, ebb_arena *arena, ebb_graph *g,
                            const ebb_estimate *estimate)
{
    const ebb_memory_terms terms = {.workspace_bytes = estimate->workspace_bytes,
                                    .align = estimate->align,
                                    .maps = estimate->maps};
    ebb_status status = ebb_pipeline_mark(g);
    if (status == NULL)
        status = ebb_memory_weigh(memory, arena, g, &terms);
    ebb_pipeline_unmark(g);
    return status;
}

static ebb_status apply_and_weigh(uint64_t *bytes, double *ns, const ebb_trial *trial, ebb_model *m,
                                  const ebb_remat_schedule *schedule, const char *backend,
                                  ebb_arena *arena)
{
    static const ebb_pass nobody = {.name = "trial"};
    ebb_report report = {.pass = nobody.name};
    ebb_edit e = {
        .g = m->graph, .pass = &nobody, .scratch = arena, .keep = arena, .report = &report};
    ebb_remat_source source;
    ebb_estimate estimate;
    size_t copies;
    EBB_TRY(ebb_remat_source_make(&source, arena, m->graph, &trial->estimate));
    EBB_TRY(ebb_remat_apply(&e, &source, schedule, &copies));
    (void)ebb_graph_sweep(m->graph);
    EBB_TRY(ebb_pipeline_mark(m->graph));
    EBB_TRY(ebb_estimate_make(&estimate, arena, m->graph, backend));
    *bytes = estimate.arena_bytes;
    *ns = estimate.ns;
    return NULL;
}

ebb_status ebb_trial_schedule(uint64_t *bytes, double *ns, const ebb_trial *trial, ebb_graph *g,
                              const ebb_remat_schedule *schedule, const char *backend)
{
    EBB_LOCAL_ARENA(arena);
    ebb_model *copy = NULL;
    ebb_status status;
    if (!trial->estimate.runs) { // no arena to try
        ebb_remat_weight weight;
        status = ebb_remat_weigh(&weight, NULL, &trial->source.problem, schedule, arena);
        *bytes = weight.peak_bytes;
        *ns = weight.cost_ns;
    } else {
        status = ebb_model_copy(&copy, g->model);
        if (status == NULL)
            status = apply_and_weigh(bytes, ns, trial, copy, schedule, backend, arena);
    }
    ebb_model_free(copy);
    return status;
}
