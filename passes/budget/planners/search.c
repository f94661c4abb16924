/* search: local search over the true peak, level by level.
 *
 * The budget is lowered a hundredth at a time, each level starting from the one above by the moves
 * of moves.h. Now and then what other planners find is tried as a start, and where a level cannot
 * be reached the executions are put into a better order (relist.c). At the end the levels are
 * walked upwards, since a schedule for less is one for more that may have slack.
 */
#include "passes/budget/planners/search.h"

#include <math.h>
#include <stdlib.h>

#include "passes/budget/planners/moves.h"

/* MORE operators: MORE_STEPS are enough, since what does not count as steps takes long enough. */
enum {
    SEED_EVERY = 10,
    LEVELS = 100,
    MANY = 2500,
    MORE = 5000,
    MORE_STEPS = 4000000,
    LONG = 20000
};

typedef struct searcher {
    const ebb_remat_problem *whole;   /* as it was given */
    ebb_remat_problem permuted;       /* the same, numbered in the order of first executions */
    uint32_t *original;               /* its operators in the numbers of `whole` */
    uint32_t *place;                  /* and back */
    ebb_arena *arena, numbers, state; /* numbers: the permuted problem's; state: the slots' */
    uint64_t polish_work;             /* for each polish */
    ebb_moves m;
} searcher;

/* ---- levels ---- */

typedef struct level {
    int64_t budget;
    ebb_remat_point point; /* schedule.ops NULL: none found */
} level;

static ebb_status start(searcher *f)
{
    uint64_t work = f->m.s.work;
    ebb_arena_fini(&f->state);
    EBB_TRY(ebb_slots_make(&f->m.s, f->m.p, &f->state));
    f->m.s.work += work;
    return NULL;
}

/* First executions stand in this order from now on; keeps everything. */
static ebb_status set_order(searcher *f, const uint32_t *order)
{
    ebb_remat_schedule as_list = {order, f->whole->op_count};
    for (uint32_t i = 0; i < f->whole->op_count; i++) {
        f->original[i] = order[i];
        f->place[order[i]] = i;
    }
    ebb_arena_fini(&f->numbers);
    EBB_TRY(ebb_remat_permute(&f->permuted, f->whole, &as_list, &f->numbers));
    return start(f);
}

static ebb_status make_searcher(searcher *f, const ebb_remat_problem *whole,
                                const ebb_remat_schedule *order, ebb_arena *arena)
{
    size_t ops = (size_t)whole->op_count + 1;
    *f = (searcher){.whole = whole, .arena = arena};
    EBB_TRY(ebb_moves_make(&f->m, whole->op_count, arena));
    f->m.p = &f->permuted;
    f->original = EBB_NEW(arena, uint32_t, ops);
    f->place = EBB_NEW(arena, uint32_t, ops);
    EBB_GOT(f->original && f->place);
    return set_order(f, order->ops);
}

/* The state as a schedule of the whole problem. */
static ebb_status write_down(searcher *f, ebb_remat_schedule *schedule)
{
    EBB_LOCAL_ARENA(scratch);
    EBB_TRY(ebb_slots_schedule(&f->m.s, schedule, scratch));
    uint32_t *ops = EBB_NEW(f->arena, uint32_t, schedule->count + 1);
    EBB_GOT(ops);
    for (size_t i = 0; i < schedule->count; i++)
        ops[i] = f->original[schedule->ops[i]];
    schedule->ops = ops;
    return NULL;
}

/* The state becomes this schedule of the whole problem, in its order of first executions. */
static ebb_status load(searcher *f, const ebb_remat_schedule *schedule)
{
    EBB_LOCAL_ARENA(scratch);
    uint32_t *order = EBB_NEW(scratch, uint32_t, (size_t)f->whole->op_count + 1);
    bool *seen = EBB_NEW(scratch, bool, (size_t)f->whole->op_count + 1);
    uint32_t *ops = EBB_NEW(scratch, uint32_t, schedule->count + 1);
    uint32_t count = 0;
    EBB_GOT(order && seen && ops);
    for (size_t i = 0; i < schedule->count; i++) {
        uint32_t u = schedule->ops[i];
        if (!seen[u])
            order[count++] = u;
        seen[u] = true;
    }
    if (count < f->whole->op_count) // it does without some operators; here they stay
        return start(f);
    bool same = memcmp(order, f->original, count * sizeof *order) == 0;
    EBB_TRY(same ? start(f) : set_order(f, order));
    for (size_t i = 0; i < schedule->count; i++)
        ops[i] = f->place[schedule->ops[i]];
    (void)ebb_slots_load(&f->m.s, &(ebb_remat_schedule){ops, schedule->count});
    f->m.s.log_count = 0;
    return f->m.s.failed ? ebb_error_memory() : NULL;
}

static void polish(searcher *f)
{
    ebb_moves_polish(&f->m, f->polish_work);
}

/* Writes the state down as the level's point, if it fits and is cheaper than what is there. */
static ebb_status keep_point(searcher *f, level *l)
{
    int64_t peak = ebb_slots_peak(&f->m.s);
    EBB_GOT(!f->m.s.failed);
    if (peak > l->budget || (l->point.schedule.ops != NULL && l->point.cost_ns <= f->m.s.cost_ns))
        return NULL;
    l->point.peak_bytes = (uint64_t)peak;
    l->point.cost_ns = f->m.s.cost_ns;
    return write_down(f, &l->point.schedule);
}

/* ---- seeds: what other planners find ---- */

typedef struct seed {
    uint32_t level; /* whose budget it was made for */
    ebb_remat_point point;
} seed;

typedef struct seeds {
    seed *list;
    size_t count, capacity;
} seeds;

static ebb_status ask(seeds *all, const ebb_planner *planner, uint32_t at, uint64_t budget,
                      const ebb_remat_problem *problem, uint64_t steps, ebb_arena *arena)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_remat_schedule schedule;
    ebb_remat_weight weight;
    EBB_TRY(ebb_planner_plan(planner, &schedule, problem, budget, steps, arena));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, problem, &schedule, scratch));
    if (weight.peak_bytes > budget)
        return NULL;
    EBB_GOT(ebb_arena_grow(arena, &all->list, all->count, &all->capacity, sizeof *all->list));
    all->list[all->count++] = (seed){at, {weight.peak_bytes, weight.cost_ns, schedule}};
    return NULL;
}

/* Below the last levels, where few methods still find something: those of chains, which are made for it. A
 * long sequence in parts goes down to a hundredth and less. The numbers go on behind those of levels. */
static ebb_status sow_deep(seeds *all, uint64_t peak, const ebb_remat_problem *problem,
                           uint64_t steps, ebb_arena *arena)
{
    static const char *const chains[] = {"revolve", "rotor"};
    uint32_t at = LEVELS;
    for (size_t before = 0; before < all->count; at++, peak -= peak / 4) {
        before = all->count;
        for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
            EBB_TRY(ask(all, ebb_planner_find(chains[i]), at, peak, problem, steps / 32, arena));
    }
    return NULL;
}

/* Schedules of other planners at every tenth level; steps: for all of them. */
static ebb_status sow(seeds *all, const level *levels, const ebb_remat_problem *problem,
                      uint64_t steps, ebb_arena *arena)
{
    size_t count;
    const ebb_planner *const *roll = ebb_planners(&count);
    const uint32_t last = LEVELS - SEED_EVERY;
    uint64_t share = steps / (LEVELS / SEED_EVERY) / (count + 1);
    for (uint32_t k = SEED_EVERY; k < LEVELS; k += SEED_EVERY)
        for (size_t i = 0; i < count; i++)
            if (roll[i]->seeds != 0 && roll[i]->seeds >= problem->op_count)
                EBB_TRY(ask(all, roll[i], k, (uint64_t)levels[k].budget, problem, share, arena));
    if (all->count == 0 || all->list[all->count - 1].level < last)
        return NULL;
    return sow_deep(all, (uint64_t)levels[last].budget, problem, steps, arena);
}

/* Points that no walk begins from: so with them the frontier is nowhere worse. */
static ebb_status ask_apart(seeds *apart, uint64_t peak, const ebb_remat_problem *problem,
                            uint64_t steps, ebb_arena *arena)
{
    size_t count;
    const ebb_planner *const *roll = ebb_planners(&count);
    for (size_t i = 0; i < count; i++) {
        size_t before = SIZE_MAX; // until nothing is found
        const bool asked = problem->op_count > 0 && problem->op_count <= roll[i]->points;
        for (uint64_t k = 2; asked && apart->count != before; k *= 2) {
            before = apart->count;
            EBB_TRY(ask(apart, roll[i], 0, peak / k, problem, steps, arena));
        }
    }
    return NULL;
}

/* Takes up a seed if, made to fit, it is cheaper than `best`. */
static ebb_status try_seed(searcher *f, const seed *s, double *best, ebb_remat_schedule *kept)
{
    if (s->point.cost_ns > *best * 1.15)
        return NULL;
    EBB_TRY(load(f, &s->point.schedule));
    if (!ebb_moves_repair(&f->m, 0, *best * 1.15, 200000, 8))
        return NULL;
    polish(f);
    if (f->m.s.cost_ns >= *best)
        return NULL;
    *best = f->m.s.cost_ns;
    return write_down(f, kept);
}

/* The state becomes the cheapest of what it is (if it fits) and the seeds of this level; where
 * nothing fits, of all lower ones. *fits: something does. */
static ebb_status try_seeds(searcher *f, const seeds *all, uint32_t at, bool *fits)
{
    ebb_remat_schedule kept;
    double best = *fits ? f->m.s.cost_ns : INFINITY;
    bool any = *fits;
    EBB_TRY(write_down(f, &kept));
    for (size_t i = 0; i < all->count; i++)
        if (all->list[i].level == at || (!any && all->list[i].level > at))
            EBB_TRY(try_seed(f, &all->list[i], &best, &kept));
    *fits = best < (double)INFINITY;
    return load(f, &kept);
}

/* ---- down, and up again ---- */

static bool reach_level(searcher *f, uint64_t share)
{
    bool fits = false;
    f->m.s.log_count = 0;
    for (int attempt = 0; attempt < 3 && !fits; attempt++) {
        f->m.tabu_count = 0;
        fits = ebb_moves_repair(&f->m, attempt * 0.7, INFINITY,
                                8 * share + 100000 + 1500 * (uint64_t)f->m.p->op_count, 24);
        if (!fits)
            ebb_slots_undo(&f->m.s, 0);
    }
    f->m.tabu_count = 0;
    f->m.s.log_count = 0;
    if (fits)
        polish(f);
    return fits;
}

/* Puts the executions into an order of less memory, where there is one. */
static ebb_status relist(searcher *f, uint64_t steps)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_remat_schedule now, better;
    EBB_TRY(write_down(f, &now));
    EBB_TRY(ebb_remat_relist(&better, f->whole, &now, steps, scratch));
    if (better.ops == now.ops)
        return NULL;
    int64_t peak = ebb_slots_peak(&f->m.s);
    EBB_TRY(load(f, &better));
    return ebb_slots_peak(&f->m.s) >= peak ? load(f, &now) : NULL;
}

static ebb_status go_down(searcher *f, level *levels, uint32_t count, const seeds *all,
                          uint64_t work, uint32_t *reached)
{
    uint32_t stride = f->whole->op_count > LONG ? 5 : 1; // levels that are reached one by one
    uint64_t share = work / count * stride;
    *reached = 0;
    for (uint32_t k = 0; k < count; k += stride) {
        f->m.budget = levels[k].budget;
        bool fits = reach_level(f, share);
        if (!fits) {
            EBB_TRY(relist(f, work / ebb_moves_units / 50));
            fits = reach_level(f, share);
        }
        if (!fits || k % SEED_EVERY == 0)
            EBB_TRY(try_seeds(f, all, k, &fits));
        if (!fits)
            break;
        ebb_moves_improve(&f->m, share);
        polish(f);
        f->m.s.log_count = 0;
        EBB_TRY(keep_point(f, &levels[k]));
        *reached = k;
    }
    return NULL;
}

static ebb_status go_up(searcher *f, level *levels, uint32_t from, uint64_t steps)
{
    uint64_t share = steps / (from + 1);
    EBB_TRY(load(f, &levels[from].point.schedule));
    for (uint32_t k = from; k-- > 1;) {
        if (levels[k].point.schedule.ops == NULL) // a level between those that were reached
            continue;
        f->m.budget = levels[k].budget;
        polish(f);
        if (f->m.s.cost_ns > levels[k].point.cost_ns)
            EBB_TRY(load(f, &levels[k].point.schedule));
        ebb_moves_improve(&f->m, share);
        f->m.s.log_count = 0;
        EBB_TRY(keep_point(f, &levels[k]));
    }
    return NULL;
}

static int lowest_first(const void *a, const void *b)
{
    const ebb_remat_point *x = a, *y = b;
    if (x->peak_bytes != y->peak_bytes)
        return x->peak_bytes < y->peak_bytes ? -1 : 1;
    return (x->cost_ns > y->cost_ns) - (x->cost_ns < y->cost_ns);
}

/* What nobody reads is left out, and the point is as weighed. */
static ebb_status settle_point(ebb_remat_point *point, const ebb_remat_problem *problem,
                               ebb_arena *arena)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_remat_weight weight;
    EBB_TRY(ebb_remat_prune(&point->schedule, problem, &point->schedule, arena));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, problem, &point->schedule, scratch));
    point->peak_bytes = weight.peak_bytes;
    point->cost_ns = weight.cost_ns;
    return NULL;
}

/* Only points that are cheaper than all lower ones are worth having; the highest comes first. */
static ebb_status collect(ebb_remat_frontier *frontier, const ebb_remat_problem *problem,
                          const level *levels, uint32_t count, ebb_arena *arena)
{
    ebb_remat_point *points = EBB_NEW(arena, ebb_remat_point, (size_t)count + 1);
    size_t found = 0, kept = 0;
    EBB_GOT(points);
    for (uint32_t k = 0; k < count; k++)
        if (levels[k].point.schedule.ops != NULL)
            points[found++] = levels[k].point;
    for (size_t i = 0; i < found; i++)
        EBB_TRY(settle_point(&points[i], problem, arena));
    qsort(points, found, sizeof *points, lowest_first);
    for (size_t i = 0; i < found; i++)
        if (kept == 0 || points[i].cost_ns < points[kept - 1].cost_ns)
            points[kept++] = points[i];
    for (size_t i = 0; i < kept / 2; i++) {
        ebb_remat_point swap = points[i];
        points[i] = points[kept - 1 - i];
        points[kept - 1 - i] = swap;
    }
    *frontier = (ebb_remat_frontier){points, kept};
    return NULL;
}

static void set_budgets(level *levels, int64_t peak)
{
    for (int k = 0; k < LEVELS; k++)
        levels[k] = (level){.budget = peak - peak / LEVELS * k - peak % LEVELS * k / LEVELS};
}

/* Points of one order of the operators, at `levels` of its own. */
static ebb_status find_levels(level *levels, int64_t peak, const ebb_remat_problem *problem,
                              const ebb_remat_schedule *order, const seeds *all, uint64_t work,
                              ebb_arena *arena)
{
    searcher f;
    uint32_t reached;
    set_budgets(levels, peak);
    ebb_status status = make_searcher(&f, problem, order, arena);
    f.polish_work = work / LEVELS * 2 + 200000 + 50 * (uint64_t)problem->op_count;
    if (status == NULL)
        status = go_down(&f, levels, LEVELS, all, work / 2, &reached);
    if (status == NULL && levels[0].point.schedule.ops != NULL)
        status = go_up(&f, levels, reached, work / 2);
    ebb_arena_fini(&f.numbers);
    ebb_arena_fini(&f.state);
    return status;
}

ebb_status ebb_remat_frontier_find(ebb_remat_frontier *frontier, const ebb_remat_problem *problem,
                                   uint64_t steps, ebb_arena *arena)
{
    ebb_remat_schedule as_listed, order;
    ebb_remat_weight weight;
    seeds all = {0}, apart = {0};
    *frontier = (ebb_remat_frontier){NULL, 0};
    if (problem->op_count > MORE && steps > MORE_STEPS)
        steps = MORE_STEPS;
    EBB_TRY(ebb_remat_keep_all(&as_listed, problem, arena));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, problem, &as_listed, arena));
    EBB_TRY(ebb_remat_order(&order, problem, steps / 8, arena));
    int64_t peak = (int64_t)weight.peak_bytes;
    level budgets[LEVELS];
    set_budgets(budgets, peak);
    EBB_TRY(sow(&all, budgets, problem, steps / 4, arena));
    EBB_TRY(ask_apart(&apart, weight.peak_bytes, problem, steps / 64, arena));
    const size_t count = 2 * LEVELS + all.count + apart.count;
    level *levels = EBB_NEW(arena, level, count);
    EBB_GOT(levels);
    for (size_t i = 0; i < all.count; i++)
        levels[2 * LEVELS + i].point = all.list[i].point;
    for (size_t i = 0; i < apart.count; i++)
        levels[2 * LEVELS + all.count + i].point = apart.list[i].point;
    /* Where there are many operators the walk down takes most of the time, and from either order it
     * comes as far. */
    bool one = problem->op_count > MANY ||
               memcmp(order.ops, as_listed.ops, order.count * sizeof *order.ops) == 0;
    uint64_t work = (one ? steps / 2 : steps / 4) * ebb_moves_units;
    EBB_TRY(find_levels(levels, peak, problem, &order, &all, work, arena));
    if (!one)
        EBB_TRY(find_levels(levels + LEVELS, peak, problem, &as_listed, &all, work, arena));
    return collect(frontier, problem, levels, (uint32_t)count, arena);
}

/* ---- the planner ---- */

static ebb_status plan(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                       uint64_t budget, uint64_t steps, ebb_arena *arena)
{
    ebb_remat_frontier frontier;
    bool proven;
    EBB_TRY(ebb_remat_exact(schedule, &proven, problem, budget, steps, arena));
    if (schedule->ops != NULL)
        return NULL;
    EBB_TRY(ebb_remat_frontier_find(&frontier, problem, steps, arena));
    if (frontier.count == 0)
        return ebb_remat_keep_all(schedule, problem, arena);
    const ebb_remat_point *best = &frontier.points[frontier.count - 1];
    for (size_t i = frontier.count; i-- > 0;)
        if (frontier.points[i].peak_bytes <= budget)
            best = &frontier.points[i];
    return ebb_remat_prune(schedule, problem, &best->schedule, arena);
}

const ebb_planner ebb_planner_search = {
    .name = "search",
    .doc = "local search over the true peak: several copies of a value, made as late as possible",
    .plan = plan,
};
