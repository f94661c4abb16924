/* calibrate_crowd.c: how computing slows where all processes of a group compute at once.
 *
 *     rank 0   |= steps =|   |= steps  =|   |= steps =|   |= steps  =| ...
 *     rank 1        .        |=  steps =|        .        |=  steps =| ...
 *
 * By turns rank 0 makes some steps while the others sleep, and all do: so what else the machine does, and its clock,
 * are in both. A turn has many steps, since those that share a processor have it by slices, some milliseconds each; it
 * ends where the last of them is there, as a step of theirs does.
 */
#include "exec/look/calibrate_link.h"

#include "exec/data/sample.h"
#include "exec/run/program.h"
#include "onnx/words/clock.h"

enum { TURNS = 7, TIMES = 8 };

typedef struct step {
    ebb_program *program;
    ebb_batch batch;
} step;

static ebb_status meet(ebb_group *group)
{
    int64_t none = 0;
    return ebb_group_least(group, "calibration", &none);
}

/* group: that they meet behind each step, as they do within one of theirs; or NULL. */
static ebb_status run(const step *steps, size_t count, int times, ebb_group *group)
{
    for (int k = 0; k < times; k++)
        for (size_t i = 0; i < count; i++) {
            EBB_TRY(ebb_program_step(steps[i].program, &steps[i].batch));
            if (group != NULL)
                EBB_TRY(meet(group));
        }
    return NULL;
}

/* ns of one time of `steps`, until the last is there. */
static ebb_status time_turn(double *ns, ebb_group *group, bool alone, const step *steps,
                            size_t count)
{
    EBB_TRY(meet(group));
    const int64_t began = ebb_now_ns();
    if (!alone || ebb_group_rank(group) == 0)
        EBB_TRY(run(steps, count, TIMES, alone ? NULL : group));
    EBB_TRY(meet(group));
    *ns = (double)(ebb_now_ns() - began) / TIMES;
    return NULL;
}

/* Who else is on the machine makes times longer, never shorter, so the lower quartile is taken, as it is of operators. */
static ebb_status time_turns(ebb_crowd *crowd, ebb_group *group, const step *steps, size_t count)
{
    double alone[TURNS], together[TURNS];
    for (int i = 0; i < TURNS; i++) {
        EBB_TRY(time_turn(&alone[i], group, true, steps, count));
        EBB_TRY(time_turn(&together[i], group, false, steps, count));
    }
    crowd->alone_ns = ebb_quantile(alone, TURNS, 4);
    crowd->together_ns = ebb_quantile(together, TURNS, 4);
    return NULL;
}

static ebb_status make(step *s, ebb_model *model, ebb_arena *scratch)
{
    const ebb_compile_options options = {0};
    EBB_TRY(ebb_program_compile(&s->program, model, &options));
    EBB_TRY(ebb_costs_fill(s->program));
    return ebb_sample_batch(&s->batch, s->program->plan.g, 0, scratch);
}

ebb_status ebb_crowd_time(ebb_crowd *crowd, ebb_group *group, ebb_model *const *models,
                          size_t count, ebb_arena *scratch)
{
    step *steps = ebb_arena_zeroed(scratch, count, sizeof *steps);
    ebb_status status = steps != NULL ? NULL : ebb_error_memory();
    for (size_t i = 0; i < count && status == NULL; i++)
        status = make(&steps[i], models[i], scratch);
    if (status == NULL)
        status = run(steps, count, 1, NULL); // kernels are prepared
    if (status == NULL)
        status = time_turns(crowd, group, steps, count);
    if (status == NULL)
        crowd->threads = steps[0].program->plan.setting.threads;
    for (size_t i = 0; steps != NULL && i < count; i++)
        ebb_program_free(steps[i].program);
    return status;
}
