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
#include "passes/budget/planners/seeds.h"

/* MANY operators: MANY_STEPS are enough, since what does not count as steps takes long enough. */
enum { MANY = EBB_REMAT_MANY, MANY_STEPS = 4000000, LONG = 20000 };

typedef struct searcher {
    const ebb_seeds *seeds;
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

static ebb_status make_searcher(searcher *f, const ebb_seeds *seeds,
                                const ebb_remat_schedule *order, ebb_arena *arena)
{
    const ebb_remat_problem *whole = seeds->problem;
    size_t ops = (size_t)whole->op_count + 1;
    *f = (searcher){.seeds = seeds, .whole = whole, .arena = arena};
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

/* Takes up a seed if, made to fit, it is cheaper than `best`. */
static ebb_status try_seed(searcher *f, const ebb_remat_point *seed, double *best,
                           ebb_remat_schedule *kept)
{
    if (seed->cost_ns > *best * 1.15)
        return NULL;
    EBB_TRY(load(f, &seed->schedule));
    if (!ebb_moves_repair(&f->m, 0, *best * 1.15, 200000, 8))
        return NULL;
    polish(f);
    if (f->m.s.cost_ns >= *best)
        return NULL;
    *best = f->m.s.cost_ns;
    return write_down(f, kept);
}

/* The state becomes the cheapest of what it is (if it fits) and the seeds of this level; where
 * nothing fits, of all lower ones, or where there are many operators of the next one where something
 * does. *fits: something does. */
static ebb_status try_seeds(searcher *f, uint32_t at, bool *fits)
{
    ebb_remat_schedule kept;
    double best = *fits ? f->m.s.cost_ns : INFINITY;
    const bool any = *fits, many = f->whole->op_count > MANY;
    uint32_t last = at;
    EBB_TRY(write_down(f, &kept));
    for (uint32_t i = 0; i < f->seeds->count; i++) {
        const ebb_ask *a = &f->seeds->asks[i];
        if (a->level < at)
            continue;
        if (a->level != last && (any || (many && best < (double)INFINITY)))
            break;
        last = a->level;
        EBB_TRY(ebb_jobs_need(*f->seeds->jobs, i));
        for (size_t k = 0; k < a->count; k++)
            EBB_TRY(try_seed(f, &a->points[k], &best, &kept));
    }
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

static ebb_status go_down(searcher *f, level *levels, uint64_t work, uint32_t *reached)
{
    uint32_t stride = f->whole->op_count > LONG ? 5 : 1; // levels that are reached one by one
    uint64_t share = work / EBB_LEVELS * stride;
    *reached = 0;
    for (uint32_t k = 0; k < EBB_LEVELS; k += stride) {
        f->m.budget = levels[k].budget;
        bool fits = reach_level(f, share);
        if (!fits) {
            EBB_TRY(relist(f, work / ebb_moves_units / 50));
            fits = reach_level(f, share);
        }
        if (!fits || k % EBB_SEED_EVERY == 0)
            EBB_TRY(try_seeds(f, k, &fits));
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
                          ebb_remat_point *points, size_t found, ebb_arena *arena)
{
    size_t kept = 0;
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

/* What is found of one order of the operators, at each level. */
typedef struct walk {
    const ebb_remat_schedule *order;
    level levels[EBB_LEVELS];
} walk;

static ebb_status walk_levels(walk *w, const ebb_seeds *seeds, uint64_t work, ebb_arena *arena)
{
    searcher f;
    uint32_t reached;
    for (int k = 0; k < EBB_LEVELS; k++)
        w->levels[k].budget = (int64_t)seeds->budgets[k];
    ebb_status status = make_searcher(&f, seeds, w->order, arena);
    f.polish_work = work / EBB_LEVELS * 2 + 200000 + 50 * (uint64_t)seeds->problem->op_count;
    if (status == NULL)
        status = go_down(&f, w->levels, work / 2, &reached);
    if (status == NULL && w->levels[0].point.schedule.ops != NULL)
        status = go_up(&f, w->levels, reached, work / 2);
    ebb_arena_fini(&f.numbers);
    ebb_arena_fini(&f.state);
    return status;
}

typedef struct hunt {
    ebb_seeds seeds;
    ebb_jobs *jobs; /* the asks, and the second walk behind them */
    walk *walks;
    uint32_t walk_count;
    uint64_t work; /* of each */
} hunt;

static ebb_status do_job(void *of, uint32_t number, ebb_arena *arena)
{
    hunt *h = of;
    return number <= h->seeds.count ? ebb_seeds_ask(&h->seeds, number, arena)
                                    : walk_levels(&h->walks[1], &h->seeds, h->work, arena);
}

static void add_points(ebb_remat_point *points, size_t *count, const hunt *h)
{
    for (uint32_t i = 0; i < h->walk_count; i++)
        for (int k = 0; k < EBB_LEVELS; k++)
            if (h->walks[i].levels[k].point.schedule.ops != NULL)
                points[(*count)++] = h->walks[i].levels[k].point;
    for (uint32_t i = 0; i <= h->seeds.count; i++)
        for (size_t k = 0; k < h->seeds.asks[i].count; k++)
            points[(*count)++] = h->seeds.asks[i].points[k];
}

ebb_status ebb_remat_frontier_find(ebb_remat_frontier *frontier, const ebb_remat_problem *problem,
                                   uint64_t steps, ebb_arena *arena)
{
    ebb_remat_schedule as_listed, order;
    ebb_remat_weight weight;
    hunt h = {.walk_count = 2};
    *frontier = (ebb_remat_frontier){NULL, 0};
    if (problem->op_count > MANY && steps > MANY_STEPS)
        steps = MANY_STEPS;
    EBB_TRY(ebb_remat_keep_all(&as_listed, problem, arena));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, problem, &as_listed, arena));
    EBB_TRY(ebb_remat_order(&order, problem, steps / 8, arena));
    /* Where there are many operators the walk down takes most of the time, and from either order it
     * comes as far. */
    if (problem->op_count > MANY ||
        memcmp(order.ops, as_listed.ops, order.count * sizeof *order.ops) == 0)
        h.walk_count = 1;
    h.work = steps / (2 * h.walk_count) * ebb_moves_units;
    h.walks = EBB_NEW(arena, walk, 2);
    EBB_GOT(h.walks);
    h.walks[0].order = &order;
    h.walks[1].order = &as_listed;
    EBB_TRY(ebb_seeds_list(&h.seeds, problem, weight.peak_bytes, steps, &h.jobs, arena));
    EBB_TRY(
        ebb_jobs_start(&h.jobs, do_job, &h, h.seeds.count + h.walk_count, problem->threads, arena));
    ebb_status status = walk_levels(&h.walks[0], &h.seeds, h.work, arena);
    EBB_TRY(ebb_jobs_end(h.jobs, status, arena));
    size_t count = (size_t)h.walk_count * EBB_LEVELS;
    for (uint32_t i = 0; i <= h.seeds.count; i++)
        count += h.seeds.asks[i].count;
    ebb_remat_point *points = EBB_NEW(arena, ebb_remat_point, count + 1);
    EBB_GOT(points);
    count = 0;
    add_points(points, &count, &h);
    return collect(frontier, problem, points, count, arena);
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
