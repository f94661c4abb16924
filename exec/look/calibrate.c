/* calibrate.c: times every node of a model over several of its steps, as they run.
 *
 * A node is not timed by itself in a loop, where its operands would lie in the cache, but within
 * whole steps, in the place and memory that the file gives it: with the same neighbours, threads
 * and in-place marks. The first step is not counted: it prepares kernels and touches the arena.
 */
#include "exec/weigh/costs.h"

#include "exec/run/program.h"
#include "exec/data/sample.h"
#include "kernels/math/philox.h"

#include <stdlib.h>

enum { STEPS = 7, LEAST_STEPS = 3 };
static const double most_ns = 20e9; // steps beyond the least are not begun after this

ebb_status ebb_costs_fill(ebb_program *p)
{
    const ebb_graph *g = p->plan.g;
    EBB_LOCAL_ARENA(scratch);
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        int64_t count = 0;
        if (info->dead || info->type->dtype != EBB_F32 || !ebb_type_elements(info->type, &count) ||
            (info->tensor != NULL && info->tensor->data != NULL))
            continue;
        float *data = ebb_arena_alloc(scratch, (size_t)count * sizeof *data + 1);
        EBB_GOT(data);
        for (int64_t k = 0; k < count; k++)
            data[k] = 0.1f *
                      (ebb_philox_uniform(ebb_philox_block(7, 0, v.i, (uint64_t)k).word[0]) - 0.5f);
        const ebb_named named = {ebb_value_name(g, v), EBB_F32, info->type->rank, info->type->dims,
                                 data};
        EBB_TRY(ebb_program_set(p, &named));
    }
    return NULL;
}

typedef struct times {
    double *node;  /* [node][step] */
    int64_t *seen; /* by node: sum when last looked */
    double *step;
    size_t most, count;
} times;

static void take_times(times *t, const ebb_program *p, bool counts)
{
    for (uint32_t k = 0; k < p->plan.count; k++) {
        if (counts)
            t->node[k * t->most + t->count] = (double)(p->node_ns[k] - t->seen[k]);
        t->seen[k] = p->node_ns[k];
    }
    if (counts)
        t->step[t->count++] = (double)p->step_ns;
}

static ebb_status run_steps(times *t, ebb_program *p, const ebb_batch *batch)
{
    double spent = 0;
    EBB_TRY(ebb_program_step(p, batch));
    take_times(t, p, false);
    while (t->count < t->most && (t->count < LEAST_STEPS || spent < most_ns)) {
        EBB_TRY(ebb_program_step(p, batch));
        take_times(t, p, true);
        spent += (double)p->step_ns;
    }
    return NULL;
}

static ebb_status add_nodes(ebb_costs *costs, ebb_timed *timed, times *t, const ebb_program *p,
                            bool sweep)
{
    timed->nodes = p->plan.count;
    timed->steps = t->count;
    // Other programs make times longer, never shorter: the lower quartile is disturbed less than the median.
    timed->step_ns = ebb_quantile(t->step, t->count, 4);
    for (uint32_t k = 0; k < p->plan.count; k++)
        timed->nodes_ns += ebb_quantile(&t->node[k * t->most], t->count, 4);
    double scale = !sweep && timed->nodes_ns > 0 ? timed->step_ns / timed->nodes_ns : 1;
    for (uint32_t k = 0; k < p->plan.count; k++)
        if (!ebb_op_moves(ebb_node_of(p->plan.g, p->plan.order[k])->op))
            EBB_TRY(ebb_costs_add(costs, p->plan.g, p->plan.order[k],
                                  t->node[k * t->most + t->count / 4] * scale));
    return NULL;
}

static ebb_status time_program(ebb_costs *costs, ebb_timed *timed, ebb_program *p,
                               const ebb_timing *o, ebb_arena *scratch)
{
    times t = {.most = o->steps > 0 ? (size_t)o->steps : STEPS};
    ebb_batch batch;
    if (o->sweep)
        EBB_TRY(ebb_costs_fill(p));
    EBB_TRY(ebb_sample_batch(&batch, p->plan.g, o->seed, scratch));
    t.node = ebb_arena_zeroed(scratch, (p->plan.count + (size_t)1) * t.most, sizeof *t.node);
    t.seen = EBB_NEW(scratch, int64_t, p->plan.count + (size_t)1);
    t.step = EBB_NEW(scratch, double, t.most);
    EBB_GOT(t.node && t.seen && t.step);
    EBB_TRY(run_steps(&t, p, &batch));
    return add_nodes(costs, timed, &t, p, o->sweep);
}

ebb_status ebb_costs_time(ebb_costs *costs, ebb_timed *timed, ebb_model *model,
                          const ebb_timing *options)
{
    *timed = (ebb_timed){0};
    const ebb_compile_options compile = {.backend = options->backend,
                                         .seed = options->seed,
                                         .threads = options->threads,
                                         .profile = true};
    if (!options->sweep)
        EBB_TRY(ebb_sample_weights(model, options->seed));
    ebb_program *p = NULL;
    EBB_LOCAL_ARENA(scratch);
    ebb_status status = ebb_program_compile(&p, model, &compile);
    if (status == NULL)
        status = time_program(costs, timed, p, options, scratch);
    ebb_program_free(p);
    return status;
}
