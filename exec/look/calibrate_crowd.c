/* calibrate_crowd.c: how computing slows where all processes of a group compute at once.
 *
 *     rank 0   |= steps =|  |= steps =| ...   |= steps =|   |= steps  =| ...
 *     rank 1        .            .            |= steps  =|  |=  steps =| ...
 *
 * First rank 0 makes some steps while the others sleep, then all do, each turn ended by an exchange: who shares
 * processors, caches and memory with others is as late as the latest of them, as in a step of theirs. It is the time
 * from one exchange to the next less what the exchange takes.
 */
#include "exec/look/calibrate_link.h"

#include "exec/data/sample.h"
#include "exec/run/program.h"
#include "onnx/words/clock.h"

enum { TURNS = 21 };

typedef struct step {
    ebb_program *program;
    ebb_batch batch;
} step;

static ebb_status meet(ebb_group *group)
{
    int64_t none = 0;
    return ebb_group_least(group, "calibration", &none);
}

static ebb_status turn(const step *steps, size_t count)
{
    for (size_t i = 0; i < count; i++)
        EBB_TRY(ebb_program_step(steps[i].program, &steps[i].batch));
    return NULL;
}

/* From one exchange to the next, less what that takes; group NULL: of one process by itself. Who else is on the machine
 * makes times longer, never shorter, so the lower quartile is taken, as it is of operators. */
static ebb_status time_turns(double *ns, ebb_group *group, double exchange, const step *steps,
                             size_t count)
{
    double times[TURNS];
    if (group != NULL)
        EBB_TRY(meet(group));
    for (int i = 0; i < TURNS; i++) {
        const int64_t began = ebb_now_ns();
        EBB_TRY(turn(steps, count));
        if (group != NULL)
            EBB_TRY(meet(group));
        times[i] = (double)(ebb_now_ns() - began) - exchange;
    }
    *ns = ebb_quantile(times, TURNS, 4);
    return NULL;
}

static ebb_status make(step *s, ebb_model *model, ebb_arena *scratch)
{
    const ebb_compile_options options = {0};
    EBB_TRY(ebb_program_compile(&s->program, model, &options));
    EBB_TRY(ebb_costs_fill(s->program));
    return ebb_sample_batch(&s->batch, s->program->plan.g, 0, scratch);
}

ebb_status ebb_crowd_time(ebb_crowd *crowd, ebb_group *group, const ebb_link *link,
                          ebb_model *const *models, size_t count, ebb_arena *scratch)
{
    step *steps = ebb_arena_zeroed(scratch, count, sizeof *steps);
    ebb_status status = steps != NULL ? NULL : ebb_error_memory();
    for (size_t i = 0; i < count && status == NULL; i++)
        status = make(&steps[i], models[i], scratch);
    if (status == NULL)
        status = turn(steps, count); // kernels are prepared
    if (status == NULL)
        status = meet(group);
    if (status == NULL && ebb_group_rank(group) == 0)
        status = time_turns(&crowd->alone_ns, NULL, 0, steps, count);
    if (status == NULL)
        status = time_turns(&crowd->together_ns, group,
                            (ebb_group_ranks(group) - 1) * link->message_ns, steps, count);
    if (status == NULL)
        crowd->threads = steps[0].program->plan.setting.threads;
    for (size_t i = 0; steps != NULL && i < count; i++)
        ebb_program_free(steps[i].program);
    return status;
}
