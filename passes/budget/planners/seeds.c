/* seeds.c: see seeds.h. */
#include "passes/budget/planners/seeds.h"

enum { LAST = EBB_LEVELS - EBB_SEED_EVERY };

static ebb_status ask(ebb_ask *a, const ebb_planner *planner, uint64_t budget,
                      const ebb_remat_problem *problem, uint64_t steps, ebb_arena *arena)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_remat_schedule schedule;
    ebb_remat_weight weight;
    EBB_TRY(ebb_planner_plan(planner, &schedule, problem, budget, steps, arena));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, problem, &schedule, scratch));
    if (weight.peak_bytes > budget)
        return NULL;
    EBB_GOT(ebb_arena_grow(arena, &a->points, a->count, &a->capacity, sizeof *a->points));
    a->points[a->count++] = (ebb_remat_point){weight.peak_bytes, weight.cost_ns, schedule};
    return NULL;
}

/* Below the last levels, where few methods still find something: those of chains, which are made for it. A
 * long sequence in parts goes down to a hundredth and less. */
static ebb_status ask_deep(ebb_seeds *s, ebb_ask *a, ebb_arena *arena)
{
    static const char *const chains[] = {"revolve", "rotor"};
    bool any = false;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->asks[i].level == LAST) {
            EBB_TRY(ebb_jobs_need(*s->jobs, i));
            any |= s->asks[i].count > 0;
        }
    uint64_t peak = s->budgets[LAST];
    for (size_t before = SIZE_MAX; any && before != a->count; peak -= peak / 4) {
        before = a->count;
        for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
            EBB_TRY(ask(a, ebb_planner_find(chains[i]), peak, s->problem, s->steps / 128, arena));
    }
    return NULL;
}

/* Planners that are asked for points, at halves of the peak until nothing is found. */
static ebb_status ask_apart(ebb_seeds *s, ebb_ask *a, ebb_arena *arena)
{
    size_t count;
    const ebb_planner *const *roll = ebb_planners(&count);
    for (size_t i = 0; i < count; i++) {
        size_t before = SIZE_MAX;
        const bool asked = s->problem->op_count > 0 && s->problem->op_count <= roll[i]->points;
        for (uint64_t k = 2; asked && a->count != before; k *= 2) {
            before = a->count;
            EBB_TRY(ask(a, roll[i], s->budgets[0] / k, s->problem, s->steps / 64, arena));
        }
    }
    return NULL;
}

ebb_status ebb_seeds_ask(ebb_seeds *s, uint32_t number, ebb_arena *arena)
{
    size_t planners;
    ebb_ask *a = &s->asks[number];
    if (number == s->count)
        return ask_apart(s, a, arena);
    if (a->planner == NULL)
        return ask_deep(s, a, arena);
    (void)ebb_planners(&planners);
    const uint64_t share = s->steps / 4 / (EBB_LEVELS / EBB_SEED_EVERY) / (planners + 1);
    return ask(a, a->planner, s->budgets[a->level], s->problem, share, arena);
}

ebb_status ebb_seeds_list(ebb_seeds *s, const ebb_remat_problem *problem, uint64_t peak,
                          uint64_t steps, ebb_jobs **jobs, ebb_arena *arena)
{
    size_t planners;
    const ebb_planner *const *roll = ebb_planners(&planners);
    *s = (ebb_seeds){.problem = problem, .steps = steps, .jobs = jobs};
    for (uint32_t k = 0; k < EBB_LEVELS; k++)
        s->budgets[k] = peak - peak / EBB_LEVELS * k - peak % EBB_LEVELS * k / EBB_LEVELS;
    s->asks = EBB_NEW(arena, ebb_ask, planners * (EBB_LEVELS / EBB_SEED_EVERY) + 2);
    EBB_GOT(s->asks);
    for (uint32_t k = EBB_SEED_EVERY; k < EBB_LEVELS; k += EBB_SEED_EVERY)
        for (size_t i = 0; i < planners; i++)
            if (roll[i]->seeds != 0 && roll[i]->seeds >= problem->op_count)
                s->asks[s->count++] = (ebb_ask){.planner = roll[i], .level = k};
    s->asks[s->count++].level = EBB_LEVELS;
    return NULL;
}
