/* lower-set: cut the forward into blocks, keep what crosses from one to the next, and make the rest
 * of a block again when the backward comes to it.
 *
 *   forward     a -> b -> c | d -> e -> f | g -> h       kept: what crosses |, and the last block
 *   backward    h' g' | again d e: f' e' d' | again a b: c' b' a'
 *
 * A lower set holds all that its members are made from. A chain of lower sets {} < L1 < L2 < ... is
 * a schedule: the block L' \ L keeps the values that operators outside L' read. The cheapest chain
 * under a budget is found by dynamic programming over pairs (bytes kept, cost of making again),
 * dominated pairs dropped. The budget that it is given is an estimate's: a ladder of them is tried,
 * and the referee says which schedule fits.
 *
 * Sets: the ancestors of each operator, as published, and also the prefixes of the list, which cut
 * across parallel branches. Of thousands, those of least crossing bytes are taken, at most a few
 * hundred, spread over the list. From the pairs of a budget both ends are tried: least cost
 * (time-centric) and least kept (memory-centric). What a block needs again is made at its first
 * need, all at once or each value as late as can be. Memory that is left is spent on keeping what
 * is dearest for its bytes.
 *
 * Exact: each operator is repeated as it is, at most once. Operators that must not repeat, or whose
 * state is overwritten when they would have to, keep their outputs.
 *
 * Paper: Kusumoto et al., "A graph theoretic framework of recomputation algorithms for
 * memory-efficient backpropagation", NeurIPS 2019.
 */
#include <math.h>
#include <stdlib.h>

#include "passes/budget/planners/kept.h"
#include "passes/budget/planners/lower_set/lower_set.h"

enum {
    PAIRS = 64,      // kept of each set's (bytes, cost): more than that are thinned out
    RANGES = 128,    // of bytes: one pair of each goes into the thinning
    FEW_SETS = 64,   // so few that all pairs are compared
    RUNGS = 14,      // budgets tried between the least and the most that the chain may need
    REFINEMENTS = 6, // between the last rung that fits and the next
    BISECTIONS = 10, // for the least budget that has a chain
    ENDS = 3,        // pairs tried of each budget, from least cost to least bytes
    MISSES = 24,     // values that do not fit before no more are tried
    SMALL = 3000,    // operators: fewer, and more pairs are tried
};

typedef struct pair { /* one way to come to a set */
    double bytes, cost;
    uint32_t from, from_pair; /* the set before, and its pair */
} pair;

typedef struct chain_search {
    const ebb_lower_sets *sets;
    int estimate;
    pair *pairs; /* set -> PAIRS of them, bytes ascending, cost descending */
    uint32_t *counts;
    pair *merged; /* candidates of one set */
    size_t merged_count, merged_capacity;
    ebb_arena *arena;
} chain_search;

typedef struct dear { /* something that could be kept too */
    double worth;     /* ns a byte */
    uint32_t v;
} dear;

typedef struct best {
    ebb_remat_record found;
    const ebb_remat_problem *p;
    uint64_t budget, steps;
    uint32_t forward;
    bool *kept;      /* by value: kept after the forward */
    uint32_t *block; /* by forward operator: its set */
    dear *dear;
    struct rung { /* the cheapest that fits of those tried under one estimated budget */
        bool *kept;
        uint32_t *block;
        bool late;
        double cost;
    } rung;
    ebb_lower_builder *builder;
} best;

/* ---- the cheapest chains within a budget ---- */

static int by_bytes(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->from != y->from ? (x->from < y->from ? -1 : 1) : 0;
}

/* Undominated pairs, thinned to PAIRS: first and last stay. */
static uint32_t undominated(pair *to, pair *from, size_t count)
{
    qsort(from, count, sizeof *from, by_bytes);
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (left == 0 ? from[i].cost < (double)INFINITY : from[i].cost < from[left - 1].cost)
            from[left++] = from[i];
    if (left <= PAIRS) {
        memcpy(to, from, left * sizeof *to);
        return (uint32_t)left;
    }
    for (size_t i = 0; i < PAIRS; i++)
        to[i] = from[i * (left - 1) / (PAIRS - 1)];
    return PAIRS;
}

/* Candidates of a set: all of them while they are few; then the cheapest of each range of bytes. */
static bool gather(chain_search *c, pair candidate, double budget)
{
    if (c->sets->count <= FEW_SETS) {
        if (!ebb_arena_grow(c->arena, &c->merged, c->merged_count, &c->merged_capacity,
                            sizeof *c->merged))
            return false;
        c->merged[c->merged_count++] = candidate;
        return true;
    }
    size_t range = (size_t)(candidate.bytes / budget * RANGES);
    pair *cheapest = &c->merged[range < RANGES ? range : RANGES - 1];
    if (candidate.cost < cheapest->cost ||
        (candidate.cost <= cheapest->cost && candidate.bytes < cheapest->bytes))
        *cheapest = candidate;
    return true;
}

/* Pairs of every set; false where no chain reaches the last. */
static bool find_chains(chain_search *c, double budget)
{
    const ebb_lower_sets *s = c->sets;
    c->counts[0] = 1;
    c->pairs[0] = (pair){0, 0, UINT32_MAX, 0};
    for (uint32_t to = 1; to < s->count; to++) {
        c->merged_count = c->sets->count <= FEW_SETS ? 0 : RANGES;
        for (size_t i = 0; i < c->merged_count; i++)
            c->merged[i] = (pair){.cost = (double)INFINITY};
        for (uint32_t from = 0; from < to; from++) {
            const ebb_lower_step *step = &s->steps[(size_t)to * (to - 1) / 2 + from];
            if (!step->legal)
                continue;
            for (uint32_t k = 0; k < c->counts[from]; k++) {
                const pair *q = &c->pairs[(size_t)from * PAIRS + k];
                if (q->bytes + step->peak[c->estimate] > budget)
                    break;
                pair next = {q->bytes + step->kept, q->cost + step->cost, from, k};
                if (!gather(c, next, budget))
                    return false;
            }
        }
        c->counts[to] = undominated(&c->pairs[(size_t)to * PAIRS], c->merged, c->merged_count);
    }
    return c->counts[s->count - 1] > 0;
}

/* Walks back from a pair of the last set: what each block keeps is marked. */
static void mark_kept(const chain_search *c, uint32_t end, bool *kept, uint32_t *block)
{
    uint32_t set = c->sets->count - 1, k = end;
    while (set != 0) {
        const pair *q = &c->pairs[(size_t)set * PAIRS + k];
        ebb_lower_mark_block(c->sets, q->from, set, kept, block);
        set = q->from;
        k = q->from_pair;
    }
}

/* ---- judging ---- */

/* Weighs the schedule that keeps b->kept, and remembers it if it is the best, of all or of its
 * rung. */
static ebb_status weigh_kept(best *b, bool late, ebb_remat_weight *weight)
{
    ebb_remat_schedule built = {0};
    ebb_lower_build(b->builder, &built, b->kept, b->block, late);
    ebb_status status = ebb_remat_record_offer(&b->found, &built, weight);
    if (status == NULL && weight->peak_bytes <= b->budget && weight->cost_ns < b->rung.cost) {
        memcpy(b->rung.kept, b->kept, b->p->value_count * sizeof *b->kept);
        memcpy(b->rung.block, b->block, b->forward * sizeof *b->block);
        b->rung.late = late;
        b->rung.cost = weight->cost_ns;
    }
    uint64_t work = b->p->op_count / 4 + 1;
    b->steps -= work < b->steps ? work : b->steps;
    return status;
}

/* ---- memory that is left ---- */

static int by_worth(const void *a, const void *b)
{
    const dear *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth > y->worth ? -1 : 1;
    return x->v < y->v ? -1 : x->v > y->v;
}

static ebb_status try_more(best *b, const dear *list, size_t from, size_t to, bool *fits)
{
    ebb_remat_weight weight;
    memcpy(b->kept, b->rung.kept, b->p->value_count * sizeof *b->kept);
    memcpy(b->block, b->rung.block, b->forward * sizeof *b->block);
    for (size_t i = from; i < to; i++)
        b->kept[list[i].v] = true;
    EBB_TRY(weigh_kept(b, b->rung.late, &weight));
    *fits = weight.peak_bytes <= b->budget;
    return NULL;
}

/* Keeps what else there is room for, dearest first: runs of the list, halved where they do not
 * fit. */
static ebb_status spend_the_rest(best *b)
{
    const ebb_remat_problem *p = b->p;
    dear *list = b->dear;
    size_t count = 0;
    for (uint32_t v = 0; v < p->value_count; v++) {
        const ebb_remat_value *value = &p->values[v];
        if (value->op >= b->forward || b->rung.kept[v] || value->reader_count == 0)
            continue;
        list[count++] = (dear){p->ops[value->op].cost_ns / ((double)value->bytes + 1), v};
    }
    qsort(list, count, sizeof *list, by_worth);
    size_t at = 0, run = count, misses = 0;
    while (at < count && run > 0 && b->steps > 0) {
        bool fits;
        size_t to = run < count - at ? at + run : count;
        EBB_TRY(try_more(b, list, at, to, &fits));
        if (fits) {
            at = to;
            run = run * 2;
        } else if (run > 1) {
            run = (to - at) / 2;
        } else if (++misses == MISSES) {
            break;
        } else {
            at++;
        }
    }
    return NULL;
}

/* ---- the planner ---- */

/* Some of the chains of one budget. *fits: one of them does. */
static ebb_status try_budget(best *b, chain_search *c, double budget, bool *fits)
{
    *fits = false;
    b->rung.cost = (double)INFINITY;
    uint64_t work = (uint64_t)c->sets->count * c->sets->count / 4 + 1;
    b->steps -= work < b->steps ? work : b->steps;
    if (!find_chains(c, budget))
        return NULL;
    uint32_t count = c->counts[c->sets->count - 1];
    uint32_t tried = ENDS + SMALL / (b->p->op_count + 1);
    tried = tried < count ? tried : count;
    for (uint32_t i = 0; i < tried; i++) { // from least cost to least bytes
        uint32_t end = tried == 1 ? 0 : (count - 1) - (count - 1) * i / (tried - 1);
        memset(b->kept, 0, b->p->value_count * sizeof *b->kept);
        mark_kept(c, end, b->kept, b->block);
        for (int late = 0; late < 2; late++) {
            ebb_remat_weight weight;
            EBB_TRY(weigh_kept(b, late != 0, &weight));
            *fits = *fits || weight.peak_bytes <= b->budget;
        }
    }
    return *fits ? spend_the_rest(b) : NULL;
}

static ebb_status search(best *b, const ebb_lower_sets *sets, int estimate)
{
    chain_search c = {.sets = sets, .estimate = estimate, .arena = b->found.arena};
    c.pairs = EBB_NEW(b->found.arena, pair, (size_t)sets->count * PAIRS);
    c.counts = EBB_NEW(b->found.arena, uint32_t, sets->count);
    c.merged = EBB_NEW(b->found.arena, pair, RANGES);
    c.merged_capacity = RANGES;
    EBB_GOT(c.merged && c.pairs && c.counts);
    double low = sets->least, high = sets->most, fitting = 0, above = high;
    double below = low;
    for (int i = 0; i < BISECTIONS; i++) { // the least that has a chain at all
        double middle = below + (high - below) / 2;
        *(find_chains(&c, middle) ? &high : &below) = middle;
    }
    low = high;
    high = above;
    for (int i = 0; i < RUNGS && b->steps > 0; i++) { // denser where memory is short
        double part = (double)i / (RUNGS - 1), budget = low + (high - low) * part * part;
        bool fits;
        EBB_TRY(try_budget(b, &c, budget, &fits));
        if (fits) {
            fitting = budget;
            above = high;
        } else if (fitting > 0 && above == high) {
            above = budget;
        }
    }
    for (int i = 0; i < REFINEMENTS && fitting > 0 && b->steps > 0; i++) {
        double middle = fitting + (above - fitting) / 2;
        bool fits;
        EBB_TRY(try_budget(b, &c, middle, &fits));
        *(fits ? &fitting : &above) = middle;
    }
    return NULL;
}

static ebb_status plan(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                       uint64_t budget, uint64_t steps, ebb_arena *arena)
{
    best b = {.found = {.problem = problem, .budget = budget, .arena = arena},
              .p = problem,
              .budget = budget,
              .steps = steps};
    EBB_TRY(ebb_remat_keep_all(schedule, problem, arena));
    EBB_TRY(ebb_remat_weigh(&b.found.weight, NULL, problem, schedule, arena));
    if (b.found.weight.peak_bytes <= budget)
        return NULL;
    ebb_lower_sets *sets = NULL;
    EBB_TRY(ebb_lower_sets_make(&sets, problem, arena));
    if (sets->count < 2)
        return NULL;
    EBB_TRY(ebb_lower_builder_new(&b.builder, problem, sets->forward, arena));
    b.forward = sets->forward;
    size_t values = (size_t)problem->value_count + 1, ops = (size_t)sets->forward + 1;
    b.kept = EBB_NEW(arena, bool, values);
    b.rung.kept = EBB_NEW(arena, bool, values);
    b.dear = EBB_NEW(arena, dear, values);
    b.block = EBB_NEW(arena, uint32_t, ops);
    b.rung.block = EBB_NEW(arena, uint32_t, ops);
    EBB_GOT(b.kept && b.rung.kept && b.dear && b.block && b.rung.block);
    b.steps -= sets->work < steps ? sets->work : steps;
    EBB_TRY(search(&b, sets, EBB_LOWER_HIGH));
    EBB_TRY(search(&b, sets, EBB_LOWER_LOW));
    if (b.found.count > 0)
        *schedule = (ebb_remat_schedule){b.found.ops, b.found.count};
    return NULL;
}

const ebb_planner ebb_planner_lower_set = {
    .name = "lower-set",
    .doc = "blocks of the forward: keep what crosses them, make the rest again for the backward",
    .paper = "Kusumoto et al., \"A graph theoretic framework of recomputation algorithms for "
             "memory-efficient backpropagation\", NeurIPS 2019",
    .plan = plan,
    .seeds = 1500,
};
