/* dtr: run the step in list order within the budget; when it does not fit, evict what is cheapest
 * to miss, and make it again when it is read.
 *
 *   list        0: x -> a     1: a -> b     2: b -> c     3: c,b -> d     4: d,a -> e
 *   schedule    0 1 2 3 0 4       at 2 there was no room: a has the lowest h, and is made again
 *
 *   h(v) = (cost of v's operator + cost of what is evicted around v) / (bytes of v * time)
 *
 * The published method decides while the program runs, so its time is how long ago v was used.
 * Here the step is known: the time may be how long until v is read again, what nobody reads again
 * goes at once, and a second round drops a value that the first evicted unread at its last read
 * already, which leaves room until then. Each variant is one walk; the cheapest schedule that fits
 * is taken, the published variant being the first.
 *
 * Exact: each operator is repeated as it is, with the inputs that it had.
 *
 * Where it must not repeat: an operator that draws without a key keeps its outputs; an operator
 * that reads a state is made again before the state is overwritten, for whatever needs it later.
 * Where even all of that leaves no room, wider budgets are tried, and the lowest schedule is
 * returned.
 *
 * Paper: Kirisame et al., "Dynamic tensor rematerialization", ICLR 2021.
 */
#include "passes/budget/planners/dtr/dtr.h"
#include "passes/budget/planners/kept.h"

/* In order of trial; the first is the published one. */
static const ebb_dtr_variant variants[] = {
    {EBB_DTR_SINCE_LAST_USE, EBB_DTR_COMPONENTS}, {EBB_DTR_UNTIL_NEXT_USE, EBB_DTR_ANCESTORS},
    {EBB_DTR_UNTIL_NEXT_USE, EBB_DTR_COMPONENTS}, {EBB_DTR_UNTIL_NEXT_USE, EBB_DTR_EXACTLY},
    {EBB_DTR_SINCE_LAST_USE, EBB_DTR_EXACTLY},    {EBB_DTR_UNTIL_NEXT_USE, EBB_DTR_ITSELF},
};
enum { VARIANTS = sizeof variants / sizeof *variants, ROUNDS = 3 };

typedef struct best {
    ebb_remat_record found;
    uint64_t budget, steps;
} best;

/* Rounds of one variant under `budget`, which need not be the one that must be kept. */
static ebb_status try_variant(best *b, ebb_dtr_walk *walk, ebb_dtr_variant variant, uint64_t budget,
                              ebb_remat_weight *found)
{
    *found = (ebb_remat_weight){.peak_bytes = UINT64_MAX};
    ebb_dtr_forget(walk);
    for (int round = 0; round < ROUNDS && b->steps > 0; round++) {
        ebb_remat_schedule s;
        ebb_remat_weight weight;
        uint64_t work;
        bool whole = ebb_dtr_walk_run(walk, &s, variant, budget, b->steps, &work);
        b->steps -= work < b->steps ? work : b->steps;
        if (!whole)
            return NULL;
        EBB_TRY(ebb_remat_record_offer(&b->found, &s, &weight));
        bool fits = weight.peak_bytes <= b->budget, fitted = found->peak_bytes <= b->budget;
        if (fits && fitted && weight.cost_ns >= found->cost_ns)
            return NULL; // a round that gains nothing is the last
        *found = weight;
    }
    return NULL;
}

/* A walk counts what it will evict later; so a wider budget than the one to be kept may fit, and
 * be cheaper. */
static ebb_status try_wider(best *b, ebb_dtr_walk *walk, ebb_dtr_variant variant)
{
    static const double wider[] = {1.01, 1.02, 1.04, 1.08};
    for (size_t i = 0; i < sizeof wider / sizeof *wider; i++) {
        ebb_remat_weight weight;
        EBB_TRY(try_variant(b, walk, variant, (uint64_t)((double)b->budget * wider[i]), &weight));
    }
    return NULL;
}

/* Nothing fits: a walk that is asked for less may; failing that, the least that one keeps to. */
static ebb_status try_for_the_lowest(best *b, ebb_dtr_walk *walk)
{
    static const double factors[] = {0.95, 0.88, 1.06, 1.15, 1.3, 1.5, 1.8, 2.2, 2.8, 3.6, 5, 7};
    static const ebb_dtr_variant careful[] = {
        {EBB_DTR_SINCE_LAST_USE, EBB_DTR_EXACTLY},
        {EBB_DTR_UNTIL_NEXT_USE, EBB_DTR_EXACTLY},
    };
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        double budget = (double)b->budget * factors[i];
        if (budget >= (double)b->found.weight.peak_bytes)
            break;
        for (size_t k = 0; k < sizeof careful / sizeof *careful; k++) {
            ebb_remat_weight weight;
            EBB_TRY(try_variant(b, walk, careful[k], (uint64_t)budget, &weight));
        }
        if (b->found.weight.peak_bytes <= b->budget)
            break;
    }
    return NULL;
}

static ebb_status plan(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                       uint64_t budget, uint64_t steps, ebb_arena *arena)
{
    best b = {.found = {.problem = problem, .budget = budget, .arena = arena},
              .budget = budget,
              .steps = steps};
    b.found.weight.peak_bytes = UINT64_MAX;
    ebb_remat_schedule all;
    ebb_remat_weight weight;
    EBB_TRY(ebb_remat_keep_all(&all, problem, arena));
    EBB_TRY(ebb_remat_record_offer(&b.found, &all, &weight));
    if (b.found.weight.peak_bytes > budget) {
        ebb_dtr_walk *walk = NULL;
        EBB_TRY(ebb_dtr_walk_new(&walk, problem, arena));
        ebb_dtr_variant chosen = variants[0];
        for (int i = 0; i < VARIANTS; i++) {
            ebb_remat_weight before = b.found.weight;
            EBB_TRY(try_variant(&b, walk, variants[i], budget, &weight));
            if (ebb_remat_beats(&b.found.weight, &before, budget))
                chosen = variants[i];
        }
        if (b.found.weight.peak_bytes <= budget)
            EBB_TRY(try_wider(&b, walk, chosen));
        else
            EBB_TRY(try_for_the_lowest(&b, walk));
    }
    *schedule = (ebb_remat_schedule){b.found.ops, b.found.count};
    return NULL;
}

const ebb_planner ebb_planner_dtr = {
    .name = "dtr",
    .doc = "evict what is cheapest to miss when memory runs out, make it again when it is read",
    .paper = "Kirisame et al., \"Dynamic tensor rematerialization\", ICLR 2021",
    .plan = plan,
    .seeds = 4000,
};
