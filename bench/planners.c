/* planners.c: every planner at every budget on the same step graphs.
 *
 *   bench_planners [-p planner,...] [-b 90,80,...] [-w steps] step.onnx ...
 *
 * One line for each graph, planner and budget (percent of what the graph needs when everything is
 * kept): whether the plan fits, its cost over the cost without repeats, and the seconds it took.
 * Every schedule is weighed by the referee (passes/budget/planners/weigh.c). "fit" stands for the frontier
 * that the joint planner chooses from.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "onnx/graph/infer.h"
#include "onnx/words/clock.h"
#include "passes/budget/planners/search.h"
#include "passes/budget/trial.h"

static double now(void)
{
    return 1e-9 * (double)ebb_now_ns();
}

static bool is_in(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return list[0] == '\0';
}

static int fail(ebb_status status)
{
    (void)fprintf(stderr, "%s\n", ebb_status_text(status));
    return 1;
}

static void show(const char *path, const char *planner, int percent, uint64_t budget,
                 const ebb_remat_weight *w, double base, double seconds)
{
    const char *name = strrchr(path, '/');
    printf("%-24s %-13s %3d %%  %-4s %8.4f  %7.2f s  peak %5.1f %%\n",
           name != NULL ? name + 1 : path, planner, percent,
           w->peak_bytes <= budget ? "fits" : "no", w->cost_ns / base, seconds,
           100.0 * (double)w->peak_bytes * (double)percent / 100 / (double)budget);
    (void)fflush(stdout);
}

static ebb_status run(const char *path, const char *planners, const char *budgets, uint64_t steps)
{
    ebb_model *model;
    ebb_arena arena = {0};
    ebb_trial trial;
    ebb_remat_weight w;
    ebb_remat_schedule all;
    EBB_TRY(ebb_open(&model, path));
    EBB_TRY(ebb_infer_graph(model->graph));
    ebb_pipeline_unmark(model->graph);
    EBB_TRY(ebb_trial_weigh(&trial, &arena, model->graph, NULL));
    const ebb_remat_problem *p = &trial.source.problem;
    EBB_TRY(ebb_remat_keep_all(&all, p, &arena));
    EBB_TRY(ebb_remat_weigh(&w, NULL, p, &all, &arena));
    double base = w.cost_ns;
    uint64_t peak = w.peak_bytes;
    size_t count;
    const ebb_planner *const *roll = ebb_planners(&count);
    if (is_in(planners, "fit")) {
        ebb_remat_frontier frontier;
        double start = now();
        EBB_TRY(ebb_remat_frontier_find(&frontier, p, steps, &arena));
        double took = now() - start;
        for (const char *b = budgets; b != NULL; b = strchr(b, ',') ? strchr(b, ',') + 1 : NULL) {
            uint64_t budget = peak / 100 * (uint64_t)atoi(b) + peak % 100 * (uint64_t)atoi(b) / 100;
            size_t at = 0;
            while (at + 1 < frontier.count && frontier.points[at].peak_bytes > budget)
                at++;
            EBB_TRY(ebb_remat_weigh(&w, NULL, p, &frontier.points[at].schedule, &arena));
            show(path, "fit", atoi(b), budget, &w, base, took);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_in(planners, roll[i]->name) || strcmp(roll[i]->name, "search") == 0)
            continue;
        for (const char *b = budgets; b != NULL; b = strchr(b, ',') ? strchr(b, ',') + 1 : NULL) {
            uint64_t budget = peak / 100 * (uint64_t)atoi(b) + peak % 100 * (uint64_t)atoi(b) / 100;
            ebb_arena scratch = {0};
            ebb_remat_schedule schedule;
            double start = now();
            ebb_status status = ebb_planner_plan(roll[i], &schedule, p, budget, steps, &scratch);
            double took = now() - start;
            if (status == NULL)
                status = ebb_remat_weigh(&w, NULL, p, &schedule, &scratch);
            if (status == NULL)
                show(path, roll[i]->name, atoi(b), budget, &w, base, took);
            else
                printf("%-24s %-13s %3d %%  %s\n", path, roll[i]->name, atoi(b),
                       ebb_status_text(status));
            ebb_arena_fini(&scratch);
        }
    }
    ebb_arena_fini(&arena);
    ebb_close(model);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *planners = "", *budgets = "90,80,70,60,50,40,30,20,10";
    uint64_t steps = 10u * 1000 * 1000;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-p") == 0 && i + 1 < argc)
            planners = argv[++i];
        else if (strcmp(argv[i], "-b") == 0 && i + 1 < argc)
            budgets = argv[++i];
        else if (strcmp(argv[i], "-w") == 0 && i + 1 < argc)
            steps = strtoull(argv[++i], NULL, 10);
        else {
            ebb_status status = run(argv[i], planners, budgets, steps);
            if (status != NULL)
                return fail(status);
        }
    }
    return 0;
}
