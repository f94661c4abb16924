/* test_search.c: what `fit` is made of, on numbers: slots against the referee, the frontier, the
 * exact solver against trying everything, relist and permute, and the published optima.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "passes/budget/planners/problem.h"
#include "passes/budget/planners/search.h"
#include "passes/budget/planners/slots.h"
#include "tests/owned.h"
#include "tests/share.h"
#include "tests/status.h"
#include "tests/test.h"

enum { MOST_IN = 3, MOST_OUT = 2, MOST_UPDATES = 3 };

/* ---- problems ---- */

static uint32_t seed;

static uint32_t below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

typedef struct traits { /* what a random problem may have */
    uint32_t ops, inputs;
    bool plain;   /* no over, once, before */
    bool one_out; /* of each operator */
    bool lean;    /* all that is made is read or stays */
} traits;

typedef struct drawing { /* a random problem while it is drawn */
    traits shape;
    ebb_arena *arena;
    ebb_remat_op *ops;
    ebb_remat_value *values;
    uint32_t *in, *out;
    uint32_t value_count;
} drawing;

static uint32_t draw_value(drawing *d, uint32_t op)
{
    static const uint64_t bytes[] = {8, 8, 16, 16, 16, 32, 40, 64};
    d->values[d->value_count] = (ebb_remat_value){.bytes = bytes[below(8)], .op = op};
    return d->value_count++;
}

static void draw_reads(drawing *d, uint32_t u)
{
    ebb_remat_op *op = &d->ops[u];
    uint32_t wanted = 1 + below(MOST_IN), there = d->value_count;
    op->in = &d->in[u * MOST_IN];
    for (uint32_t k = 0; k < wanted && there > 0; k++) {
        uint32_t near = there < 5 ? there : 5;
        uint32_t v = below(3) == 0 ? below(there) : there - 1 - below(near);
        bool twice = false;
        for (uint32_t j = 0; j < op->in_count; j++)
            twice = twice || op->in[j] == v;
        if (!twice)
            d->in[u * MOST_IN + op->in_count++] = v;
    }
}

/* In place wherever sizes agree: outputs and inputs that want each other twice, too. */
static void draw_overs(drawing *d, uint32_t u)
{
    ebb_remat_op *op = &d->ops[u];
    ebb_remat_over *over = EBB_NEW(d->arena, ebb_remat_over, MOST_IN * MOST_OUT);
    op->over = over;
    for (uint32_t k = 0; k < op->out_count; k++)
        for (uint32_t i = 0; i < op->in_count; i++)
            if (d->values[op->out[k]].bytes == d->values[op->in[i]].bytes && below(4) != 0)
                over[op->over_count++] = (ebb_remat_over){op->out[k], op->in[i]};
}

static void draw_op(drawing *d, uint32_t u)
{
    ebb_remat_op *op = &d->ops[u];
    *op = (ebb_remat_op){
        .cost_ns = 1 + below(30), .before = EBB_REMAT_NONE, .backward = u >= d->shape.ops / 2};
    draw_reads(d, u);
    op->out = &d->out[u * MOST_OUT];
    op->out_count = d->shape.one_out ? 1 : 1 + (below(4) == 0);
    for (uint32_t k = 0; k < op->out_count; k++)
        d->out[u * MOST_OUT + k] = draw_value(d, u);
    op->workspace = below(4) == 0 ? 8 * below(6) : 0;
    if (d->shape.plain)
        return;
    op->once = below(7) == 0;
    draw_overs(d, u);
}

/* Some late operators write over states that earlier ones read. */
static void draw_befores(drawing *d)
{
    uint32_t *pool = EBB_NEW(d->arena, uint32_t, (size_t)d->shape.ops * MOST_UPDATES + 1);
    for (int k = 0; k < MOST_UPDATES; k++) {
        uint32_t update = d->shape.ops / 2 + below(d->shape.ops - d->shape.ops / 2);
        d->ops[update].once = true;
        for (uint32_t u = 0; u < update; u++) {
            ebb_remat_op *op = &d->ops[u];
            uint32_t *list = &pool[u * MOST_UPDATES];
            bool known = op->before_count > 0 && list[op->before_count - 1] == update;
            if (below(4) != 0 || known)
                continue;
            list[op->before_count++] = update;
            op->befores = list;
            op->before = update < op->before ? update : op->before;
        }
    }
}

static void draw_readers(drawing *d)
{
    for (uint32_t v = 0; v < d->value_count; v++) {
        uint32_t *readers = EBB_NEW(d->arena, uint32_t, (size_t)d->shape.ops + 1), count = 0;
        for (uint32_t u = 0; u < d->shape.ops; u++)
            for (uint32_t k = 0; k < d->ops[u].in_count; k++)
                if (d->ops[u].in[k] == v)
                    readers[count++] = u;
        d->values[v].readers = readers;
        d->values[v].reader_count = count;
        if (d->shape.lean && count == 0)
            d->values[v].stays = true;
    }
}

static ebb_remat_problem random_problem(ebb_arena *arena, traits shape)
{
    size_t n = shape.ops;
    drawing d = {.shape = shape,
                 .arena = arena,
                 .ops = EBB_NEW(arena, ebb_remat_op, n + 1),
                 .values = EBB_NEW(arena, ebb_remat_value, shape.inputs + n * MOST_OUT + 1),
                 .in = EBB_NEW(arena, uint32_t, n * MOST_IN + 1),
                 .out = EBB_NEW(arena, uint32_t, n * MOST_OUT + 1)};
    for (uint32_t i = 0; i < shape.inputs; i++)
        d.values[draw_value(&d, EBB_REMAT_NONE)].stays = !shape.plain && below(4) == 0;
    for (uint32_t u = 0; u < n; u++)
        draw_op(&d, u);
    for (uint32_t v = shape.inputs; v < d.value_count; v++)
        d.values[v].stays = below(12) == 0;
    d.values[d.value_count - 1].stays = true;
    if (!shape.plain && n > 3)
        draw_befores(&d);
    draw_readers(&d);
    return (ebb_remat_problem){.ops = d.ops,
                               .op_count = shape.ops,
                               .values = d.values,
                               .value_count = d.value_count,
                               .base_bytes = below(50)};
}

static ebb_remat_weight weighed(const ebb_remat_problem *p, const ebb_remat_schedule *s,
                                uint64_t *live, ebb_arena *arena)
{
    ebb_remat_weight weight;
    good(ebb_remat_weigh(&weight, live, p, s, arena));
    return weight;
}

static uint64_t peak_as_listed(const ebb_remat_problem *p, ebb_arena *arena)
{
    ebb_remat_schedule all;
    assert_null(ebb_remat_keep_all(&all, p, arena));
    return weighed(p, &all, NULL, arena).peak_bytes;
}

/* ---- slots ---- */

static void agree(const ebb_slots *s, uint32_t problem)
{
    OWNED_ARENA arena = {0};
    ebb_remat_schedule schedule;
    assert_false(s->failed);
    assert_null(ebb_slots_schedule(s, &schedule, &arena));
    uint64_t *live = EBB_NEW(&arena, uint64_t, schedule.count + 1);
    int64_t *peaks = EBB_NEW(&arena, int64_t, s->slot_count);
    ebb_remat_weight w = weighed(s->p, &schedule, live, &arena);
    if ((int64_t)w.peak_bytes != ebb_slots_peak(s))
        fail_msg("problem %u: the slots say %lld bytes, the referee %llu", problem,
                 (long long)ebb_slots_peak(s), (unsigned long long)w.peak_bytes);
    assert_true(fabs(w.cost_ns - s->cost_ns) < 1e-6);
    assert_int_equal(w.repeats, s->repeats);
    ebb_slots_profile(s, peaks);
    assert_int_equal(peaks[ebb_slots_peak_slot(s)], ebb_slots_peak(s));
    uint32_t slot = 0; /* each slot's fullest moment is that of its executions */
    int64_t most = 0;
    for (size_t i = 0; i < schedule.count; i++) {
        most = (int64_t)live[i] > most ? (int64_t)live[i] : most;
        if (schedule.ops[i] != slot)
            continue;
        assert_int_equal(peaks[slot], most);
        assert_int_equal(ebb_slots_most(s, slot, slot), most);
        most = 0;
        slot++;
    }
}

static bool runs_in(const ebb_slots *s, uint32_t op, uint32_t slot)
{
    return s->runs[op].slot[ebb_slots_run_at(s, op, slot)] == slot;
}

/* One random change; false: none was made. */
static bool change(ebb_slots *s)
{
    uint32_t op = below(s->p->op_count), slot = op + 1 + below(s->p->op_count - op);
    if (below(3) == 0 && s->runs[op].count > 1) {
        ebb_slots_drop(s, op, s->runs[op].slot[1 + below(s->runs[op].count - 1)]);
        return true;
    }
    if (slot >= s->p->op_count || !ebb_slots_may(s, op, slot) || runs_in(s, op, slot))
        return false;
    ebb_slots_add(s, op, slot);
    return true;
}

/* Random changes, some undone; what is undone is as it was. */
static void shuffle_slots(ebb_slots *s, uint32_t problem, uint32_t changes)
{
    for (uint32_t i = 0; i < changes; i++) {
        OWNED_ARENA arena = {0};
        ebb_remat_schedule before, after;
        size_t mark = s->log_count;
        int64_t peak = ebb_slots_peak(s);
        bool hold = below(2) == 0;
        assert_null(ebb_slots_schedule(s, &before, &arena));
        if (hold)
            ebb_slots_hold(s);
        for (uint32_t k = 1 + below(4); k > 0; k--)
            (void)change(s);
        if (hold)
            ebb_slots_settle(s);
        agree(s, problem);
        if (below(3) == 0) {
            ebb_slots_undo(s, mark);
            assert_null(ebb_slots_schedule(s, &after, &arena));
            assert_int_equal(after.count, before.count);
            assert_memory_equal(after.ops, before.ops, after.count * sizeof *after.ops);
            assert_int_equal(ebb_slots_peak(s), peak);
            agree(s, problem);
        }
    }
}

TEST(slots_weigh_as_the_referee_does)
{
    uint32_t missed = 0;
    for (uint32_t i = 0; i < 400 / FEWER; i++) {
        OWNED_ARENA arena = {0};
        ebb_slots s;
        seed = i;
        ebb_remat_problem p = random_problem(&arena, (traits){.ops = 2 + i % 37,
                                                              .inputs = i % 4,
                                                              .plain = i % 5 == 0,
                                                              .one_out = i % 7 == 0});
        assert_null(ebb_slots_make(&s, &p, &arena));
        agree(&s, i);
        shuffle_slots(&s, i, 30);
        for (uint32_t op = 0; op < p.op_count; op++) { // what is missed is needed
            const uint32_t slot = s.runs[op].slot[s.runs[op].count - 1];
            const int64_t budget = ebb_slots_peak(&s);
            const bool said = slot > op && ebb_slots_misses(&s, op, slot, budget);
            if (slot > op)
                ebb_slots_drop(&s, op, slot);
            assert_true(!said || ebb_slots_peak(&s) > budget);
            missed += said;
        }
    }
    assert_true(missed > 20 / FEWER);
}

TEST(slots_take_over_a_schedule)
{
    for (uint32_t i = 0; i < 100; i++) {
        OWNED_ARENA arena = {0};
        ebb_slots s, again;
        ebb_remat_schedule a, b, lean;
        seed = 7000 + i;
        ebb_remat_problem p = random_problem(&arena, (traits){.ops = 2 + i % 30, .inputs = i % 4});
        assert_null(ebb_slots_make(&s, &p, &arena));
        shuffle_slots(&s, i, 10);
        assert_null(ebb_slots_schedule(&s, &a, &arena));
        assert_null(ebb_slots_make(&again, &p, &arena));
        assert_true(ebb_slots_load(&again, &a));
        assert_null(ebb_slots_schedule(&again, &b, &arena));
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.ops, b.ops, a.count * sizeof *a.ops);
        agree(&again, i);
        size_t gone = ebb_slots_prune(&again); /* as the referee's own pruning, of repeats */
        assert_null(ebb_slots_schedule(&again, &b, &arena));
        assert_int_equal(b.count + gone, a.count);
        agree(&again, i);
        assert_null(ebb_remat_prune(&lean, &p, &b, &arena));
        assert_true(weighed(&p, &b, NULL, &arena).peak_bytes <=
                    weighed(&p, &a, NULL, &arena).peak_bytes);
        assert_int_equal(ebb_slots_prune(&again), 0);
    }
}

/* ---- the frontier ---- */

static void check_frontier(const ebb_remat_problem *p, const ebb_remat_frontier *f, uint32_t i,
                           bool lean, ebb_arena *arena)
{
    assert_true(f->count > 0);
    assert_true(f->points[0].peak_bytes <= peak_as_listed(p, arena));
    for (size_t k = 0; k < f->count; k++) {
        const ebb_remat_point *point = &f->points[k];
        ebb_remat_weight w = weighed(p, &point->schedule, NULL, arena);
        if (w.peak_bytes != point->peak_bytes || fabs(w.cost_ns - point->cost_ns) > 1e-6)
            fail_msg("problem %u, point %zu: %llu bytes, %.3f ns; the referee: %llu, %.3f", i, k,
                     (unsigned long long)point->peak_bytes, point->cost_ns,
                     (unsigned long long)w.peak_bytes, w.cost_ns);
        if (lean) // else some schedules do without what nobody reads
            assert_true(w.peak_bytes >= ebb_remat_floor(p));
        if (k > 0 && (point->peak_bytes >= f->points[k - 1].peak_bytes ||
                      point->cost_ns <= f->points[k - 1].cost_ns))
            fail_msg("problem %u: point %zu is not lower and dearer than the one before", i, k);
    }
}

TEST(points_of_a_frontier_are_legal_and_as_stated)
{
    size_t points = 0;
    for (uint32_t i = 0; i < 60; i++) {
        OWNED_ARENA arena = {0};
        ebb_remat_frontier f, again;
        seed = 300 + i;
        ebb_remat_problem p = random_problem(
            &arena,
            (traits){.ops = 1 + i % 41, .inputs = i % 3, .plain = i % 3 == 0, .lean = i % 2 == 0});
        assert_null(ebb_remat_frontier_find(&f, &p, 20000, &arena));
        check_frontier(&p, &f, i, i % 2 == 0, &arena);
        points += f.count;
        p.threads = 1 + (int)(i % 5); // by whoever is asked
        assert_null(ebb_remat_frontier_find(&again, &p, 20000, &arena));
        assert_int_equal(f.count, again.count);
        for (size_t k = 0; k < f.count; k++) {
            const ebb_remat_schedule *a = &f.points[k].schedule, *b = &again.points[k].schedule;
            assert_int_equal(a->count, b->count);
            assert_memory_equal(a->ops, b->ops, a->count * sizeof *a->ops);
        }
    }
    assert_true(points > 100);
}

TEST(a_problem_without_operators_has_a_frontier_without_mistakes)
{
    OWNED_ARENA arena = {0};
    ebb_remat_frontier f;
    ebb_remat_problem p = {.base_bytes = 10};
    assert_null(ebb_remat_frontier_find(&f, &p, 1000, &arena));
    for (size_t k = 0; k < f.count; k++)
        assert_int_equal(weighed(&p, &f.points[k].schedule, NULL, &arena).peak_bytes, 10);
}

/* ---- the exact solver ---- */

/* The cheapest way to each set of values, relaxed until nothing changes: no order of search, no
 * bound, nothing skipped. INFINITY: no schedule fits. */
static double cheapest_of_all(const ebb_remat_problem *p, uint64_t budget)
{
    static double best[1 << 12];
    uint32_t sets = 1u << p->value_count, goal = 0;
    uint64_t bytes[12];
    assert_true(p->value_count <= 12);
    for (uint32_t v = 0; v < p->value_count; v++) {
        bytes[v] = p->values[v].bytes;
        goal |= p->values[v].stays ? 1u << v : 0;
    }
    for (uint32_t s = 0; s < sets; s++)
        best[s] = (double)INFINITY;
    best[0] = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t s = 0; s < sets; s++) {
            if (best[s] == (double)INFINITY)
                continue;
            for (uint32_t v = 0; v < p->value_count; v++) // a value goes
                if ((s >> v & 1) != 0 && best[s] < best[s & ~(1u << v)]) {
                    best[s & ~(1u << v)] = best[s];
                    changed = true;
                }
            for (uint32_t u = 0; u < p->op_count; u++) { // an operator runs
                uint32_t in = 0, next = s;
                uint64_t sum = p->base_bytes + p->ops[u].workspace;
                for (uint32_t k = 0; k < p->ops[u].in_count; k++)
                    in |= 1u << p->ops[u].in[k];
                for (uint32_t k = 0; k < p->ops[u].out_count; k++)
                    next |= 1u << p->ops[u].out[k];
                for (uint32_t v = 0; v < p->value_count; v++)
                    sum += (next >> v & 1) != 0 ? bytes[v] : 0;
                if ((in & ~s) != 0 || sum > budget || best[s] + p->ops[u].cost_ns >= best[next])
                    continue;
                best[next] = best[s] + p->ops[u].cost_ns;
                changed = true;
            }
        }
    }
    double cheapest = (double)INFINITY;
    for (uint32_t s = 0; s < sets; s++)
        if ((s & goal) == goal && best[s] < cheapest)
            cheapest = best[s];
    return cheapest;
}

/* The cheapest of all lists of at most `longest` executions that the referee lets pass. */
typedef struct trier {
    const ebb_remat_problem *p;
    uint64_t budget;
    uint32_t ops[8], longest;
    double cheapest;
} trier;

static void try_all(trier *t, uint32_t count)
{
    ebb_arena arena = {0};
    ebb_remat_weight w;
    ebb_remat_schedule s = {t->ops, count};
    if (count > 0 && ebb_remat_weigh(&w, NULL, t->p, &s, &arena) == NULL &&
        w.peak_bytes <= t->budget && w.cost_ns < t->cheapest)
        t->cheapest = w.cost_ns;
    ebb_arena_fini(&arena);
    for (uint32_t u = 0; count < t->longest && u < t->p->op_count; u++) {
        t->ops[count] = u;
        try_all(t, count + 1);
    }
}

TEST(the_exact_solver_finds_the_cheapest_of_all)
{
    int fits = 0, fits_not = 0, repeats = 0;
    for (uint32_t i = 0; i < 600 / FEWER; i++) {
        OWNED_ARENA arena = {0};
        seed = 40000 + i;
        ebb_remat_problem p = random_problem(&arena, (traits){.ops = 2 + i % 5,
                                                              .inputs = 0,
                                                              .plain = true,
                                                              .lean = i % 2 == 0,
                                                              .one_out = i % 3 > 0});
        uint64_t peak = peak_as_listed(&p, &arena), floor = ebb_remat_floor(&p);
        for (uint64_t budget = peak; budget + 4 >= floor && budget > 4; budget -= 4) {
            ebb_remat_schedule s;
            bool proven;
            double best = cheapest_of_all(&p, budget);
            assert_null(ebb_remat_exact(&s, &proven, &p, budget, 1000000, &arena));
            assert_true(proven);
            fits += s.ops != NULL;
            fits_not += s.ops == NULL;
            if ((s.ops == NULL) != (best == (double)INFINITY))
                fail_msg("problem %u at %llu bytes: %s", i, (unsigned long long)budget,
                         s.ops == NULL ? "fits" : "cannot fit");
            if (s.ops == NULL)
                continue;
            ebb_remat_weight w = weighed(&p, &s, NULL, &arena);
            assert_true(w.peak_bytes <= budget);
            if (fabs(w.cost_ns - best) > 1e-9)
                fail_msg("problem %u at %llu bytes: %.0f ns, the cheapest is %.0f", i,
                         (unsigned long long)budget, w.cost_ns, best);
            repeats += s.count > p.op_count;
        }
    }
    assert_true(fits > 500 / FEWER && fits_not > 100 / FEWER && repeats > 50 / FEWER);
}

TEST(no_list_that_the_referee_lets_pass_is_cheaper_than_the_exact_one)
{
    for (uint32_t i = 0; i < 24 / FEWER; i++) {
        OWNED_ARENA arena = {0};
        seed = 90000 + i;
        ebb_remat_problem p = random_problem(
            &arena, (traits){.ops = 3 + i % 2, .inputs = 0, .plain = true, .lean = true});
        uint64_t peak = peak_as_listed(&p, &arena);
        for (uint64_t less = 0; less <= 24 && less < peak; less += 8) {
            trier t = {.p = &p, .budget = peak - less, .longest = 6, .cheapest = (double)INFINITY};
            ebb_remat_schedule s;
            bool proven;
            try_all(&t, 0);
            assert_null(ebb_remat_exact(&s, &proven, &p, t.budget, 1000000, &arena));
            assert_true(proven);
            double found = s.ops == NULL ? (double)INFINITY : weighed(&p, &s, NULL, &arena).cost_ns;
            assert_true(found <= t.cheapest);
            if (s.ops == NULL || s.count <= t.longest)
                assert_true(found == t.cheapest);
        }
    }
}

TEST(the_exact_frontier_is_what_each_budget_costs_at_least)
{
    size_t points = 0;
    for (uint32_t i = 0; i < 120 / FEWER; i++) {
        OWNED_ARENA arena = {0};
        ebb_remat_frontier f;
        bool proven, decided;
        seed = 60000 + i;
        ebb_remat_problem p = random_problem(
            &arena,
            (traits){.ops = 3 + i % 7, .inputs = 0, .plain = true, .lean = true, .one_out = true});
        assert_null(ebb_remat_exact_frontier(&f, &proven, &p, 1000000, &arena));
        assert_true(proven);
        check_frontier(&p, &f, i, true, &arena);
        points += f.count;
        size_t k = 0; /* the cheapest point within the budget */
        for (uint64_t budget = f.points[0].peak_bytes + 8; budget > 8; budget -= 4) {
            ebb_remat_schedule s;
            assert_null(ebb_remat_exact(&s, &decided, &p, budget, 1000000, &arena));
            assert_true(decided);
            while (k < f.count && f.points[k].peak_bytes > budget)
                k++;
            assert_true((s.ops == NULL) == (k == f.count));
            if (s.ops == NULL)
                break;
            ebb_remat_weight w = weighed(&p, &s, NULL, &arena);
            assert_int_equal(w.peak_bytes, f.points[k].peak_bytes);
            assert_true(fabs(w.cost_ns - f.points[k].cost_ns) < 1e-9);
        }
    }
    print_message("%zu points of exact frontiers\n", points);
    assert_true(points > 150 / FEWER);
}

/* ---- order ---- */

/* An order that runs and keeps readers of states before their updates, drawn at random. */
static ebb_remat_schedule random_order(const ebb_remat_problem *p, ebb_arena *arena)
{
    uint32_t n = p->op_count, *ops = EBB_NEW(arena, uint32_t, (size_t)n + 1), count = 0;
    bool *done = EBB_NEW(arena, bool, (size_t)n + 1);
    while (count < n) {
        uint32_t u = below(n);
        bool ready = !done[u];
        for (uint32_t k = 0; k < p->ops[u].in_count; k++) {
            uint32_t op = p->values[p->ops[u].in[k]].op;
            ready = ready && (op == EBB_REMAT_NONE || done[op]);
        }
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t k = 0; k < p->ops[r].before_count; k++)
                ready = ready && (p->ops[r].befores[k] != u || done[r]);
        if (!ready)
            continue;
        done[u] = true;
        ops[count++] = u;
    }
    return (ebb_remat_schedule){ops, count};
}

TEST(a_permuted_problem_weighs_as_the_order_does)
{
    for (uint32_t i = 0; i < 200 / FEWER; i++) {
        OWNED_ARENA arena = {0};
        ebb_remat_problem q;
        ebb_slots s;
        ebb_remat_schedule there, here;
        seed = 12000 + i;
        ebb_remat_problem p = random_problem(&arena, (traits){.ops = 2 + i % 30, .inputs = i % 4});
        ebb_remat_schedule order = random_order(&p, &arena);
        assert_null(ebb_remat_permute(&q, &p, &order, &arena));
        assert_int_equal(peak_as_listed(&q, &arena), weighed(&p, &order, NULL, &arena).peak_bytes);
        assert_null(ebb_slots_make(&s, &q, &arena)); /* and with repeats */
        shuffle_slots(&s, i, 6);
        assert_null(ebb_slots_schedule(&s, &there, &arena));
        uint32_t *ops = EBB_NEW(&arena, uint32_t, there.count + 1);
        for (size_t k = 0; k < there.count; k++)
            ops[k] = order.ops[there.ops[k]];
        here = (ebb_remat_schedule){ops, there.count};
        ebb_remat_weight a = weighed(&q, &there, NULL, &arena),
                         b = weighed(&p, &here, NULL, &arena);
        assert_int_equal(a.peak_bytes, b.peak_bytes);
        assert_true(a.cost_ns == b.cost_ns);
    }
}

TEST(the_same_executions_in_another_order_are_never_higher)
{
    int lower = 0;
    for (uint32_t i = 0; i < 150; i++) {
        OWNED_ARENA arena = {0};
        ebb_slots s;
        ebb_remat_schedule before, after;
        seed = 50000 + i;
        ebb_remat_problem p = random_problem(&arena, (traits){.ops = 2 + i % 30, .inputs = i % 4});
        assert_null(ebb_slots_make(&s, &p, &arena));
        shuffle_slots(&s, i, 6);
        assert_null(ebb_slots_schedule(&s, &before, &arena));
        assert_null(ebb_remat_relist(&after, &p, &before, 100000, &arena));
        ebb_remat_weight a = weighed(&p, &before, NULL, &arena),
                         b = weighed(&p, &after, NULL, &arena);
        assert_true(b.peak_bytes <= a.peak_bytes);
        assert_int_equal(before.count, after.count);
        int *times = EBB_NEW(&arena, int, (size_t)p.op_count + 1);
        for (size_t k = 0; k < before.count; k++) {
            times[before.ops[k]]++;
            times[after.ops[k]]--;
        }
        for (uint32_t u = 0; u < p.op_count; u++)
            assert_int_equal(times[u], 0);
        lower += b.peak_bytes < a.peak_bytes;
    }
    assert_true(lower > 10);
}

/* ---- the published optima ---- */

static void check_row(const char *graph, uint64_t budget, const char *expected)
{
    char path[512], text[32] = "infeasible";
    (void)snprintf(path, sizeof path, EBB_SOURCE_DIR "/../shared/bench/graphs/small/%s.onnx",
                   graph);
    OWNED_ARENA arena = {0};
    OWNED_MODEL *model = NULL;
    ebb_estimate estimate;
    ebb_remat_source source;
    ebb_remat_schedule s;
    assert_null(ebb_model_read(&model, path));
    (void)ebb_infer_graph(model->graph);
    assert_null(ebb_estimate_make(&estimate, &arena, model->graph, NULL));
    assert_null(ebb_remat_source_make(&source, &arena, model->graph, &estimate));
    const ebb_remat_problem *p = &source.problem;
    const ebb_planner *search = ebb_planner_find("search");
    assert_non_null(search);
    assert_null(ebb_planner_plan(search, &s, p, budget, 1000000, &arena));
    ebb_remat_weight w = weighed(p, &s, NULL, &arena);
    if (w.peak_bytes <= budget)
        (void)snprintf(text, sizeof text, "%.0f", w.cost_ns);
    if (strcmp(text, expected) != 0)
        fail_msg("%s at %llu bytes: %s, published %s", graph, (unsigned long long)budget, text,
                 expected);
}

TEST(optima_of_small_graphs_are_the_published_ones)
{
    FILE *file = fopen(EBB_SOURCE_DIR "/../shared/bench/graphs/small/optimum.csv", "r");
    if (file == NULL) {
        print_message("SKIP: no graphs with known optima beside the repository\n");
        skip();
    }
    char line[256], graph[32], budget[32], expected[32];
    int rows = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%31[^,],%31[0-9],%31[^,]", graph, budget, expected) != 3)
            continue;
        if (rows++ % FEWER == 0)
            check_row(graph, strtoull(budget, NULL, 10), expected);
    }
    (void)fclose(file);
    assert_int_equal(rows, 95);
}
