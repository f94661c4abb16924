/* test_join.c: chains that meet, planned by `join`: no costlier than what exhaustive searches allow, or than what sees one
 * chain alone.
 *
 * The walks in numbers are held to a search over all walks by test_walks_search.c. Here they are played on steps, in the
 * plainest way, and the planner must do as well in the same bytes; and on small steps it stands beside the cheapest of all
 * schedules (exact.c).
 */

#include "passes/budget/planners/search.h"
#include "tests/owned.h"
#include "tests/walk_simulate.h"
#include "tests/passes/chain_steps.h"
#include "tests/share.h"

enum { MOST_CHAINS = 4, MOST_LAYERS = 64 };

typedef struct join {
    uint32_t chains, layers[MOST_CHAINS];
    bool equal; /* all values 64 bytes, all costs 10 */
    bool bare;  /* without inputs, as exact.c wants it */
    bool mixed; /* the list takes a layer of each chain by turns */
    bool
        shared; /* layers of all chains have one weight: their gradients are added, then it is updated */
    bool
        early; /* the first layer of the first chain reads two states, and what overwrites the second in
                   list order may run at the turn */
    uint32_t once, side, head; /* percent, percent, layers behind the meeting */
} join;

typedef struct joined {
    step s;
    uint32_t op[MOST_CHAINS][MOST_LAYERS], back[MOST_CHAINS][MOST_LAYERS];
    uint32_t value[MOST_CHAINS][MOST_LAYERS + 1], side[MOST_CHAINS][MOST_LAYERS];
    uint32_t turn, behind; /* first operators of the turn, and of what is behind it */
} joined;

static void add_layer(joined *t, const join *how, uint32_t b, uint32_t i)
{
    step *s = &t->s;
    uint32_t u = t->op[b][i] = add_op(s, how->equal ? 10 : 1 + draw(100), false);
    s->ops[u].once = draw(100) < how->once;
    s->ops[u].workspace = how->equal ? 0 : draw(30);
    if (i > 0 || !how->bare)
        reads(s, u, t->value[b][i]);
    t->value[b][i + 1] = makes(s, u, how->equal ? 64 : 1 + draw(200));
    t->side[b][i] = draw(100) < how->side ? makes(s, u, 1 + draw(40)) + 1 : 0;
}

static void add_forward(joined *t, const join *how)
{
    for (uint32_t b = 0; b < how->chains && !how->bare; b++)
        t->value[b][0] = makes(&t->s, EBB_REMAT_NONE, 32);
    for (uint32_t b = 0; b < how->chains && !how->mixed; b++)
        for (uint32_t i = 0; i < how->layers[b]; i++)
            add_layer(t, how, b, i);
    for (uint32_t i = 0; i < MOST_LAYERS && how->mixed; i++)
        for (uint32_t b = 0; b < how->chains; b++)
            if (i < how->layers[b])
                add_layer(t, how, b, i);
}

/* What is added to the other chains' gradient of the same weight, and updates it. */
static void add_updates(joined *t, const join *how, uint32_t grad[MOST_CHAINS][MOST_LAYERS])
{
    step *s = &t->s;
    for (uint32_t i = 0; i < MOST_LAYERS; i++) {
        uint32_t sum = EBB_REMAT_NONE;
        for (uint32_t b = 0; b < how->chains; b++) {
            if (i >= how->layers[b])
                continue;
            uint32_t more = grad[b][i];
            if (sum != EBB_REMAT_NONE) {
                const uint32_t u = add_op(s, 1, true);
                reads(s, u, sum);
                reads(s, u, more);
                more = makes(s, u, 16);
            }
            sum = more;
        }
        if (sum == EBB_REMAT_NONE)
            break;
        const uint32_t u = add_op(s, 1, true);
        s->ops[u].once = true;
        reads(s, u, sum);
        s->values[makes(s, u, 0)].stays = true;
        for (uint32_t b = 0; b < how->chains; b++)
            if (i < how->layers[b])
                s->ops[t->op[b][i]].before = s->ops[t->back[b][i]].before = u;
    }
}

static void add_overwriters(joined *t, uint32_t late, uint32_t early)
{
    step *s = &t->s;
    uint32_t *befores = EBB_NEW(&s->arena, uint32_t, 2);
    assert_non_null(befores);
    for (int i = 0; i < 2; i++) {
        const uint32_t u = befores[i] = add_op(s, 1, true);
        s->ops[u].once = true;
        reads(s, u, i == 0 ? late : early);
        s->values[makes(s, u, 0)].stays = true;
    }
    ebb_remat_op *first = &s->ops[t->op[0][0]];
    first->before = befores[0];
    first->befores = befores;
    first->before_count = 2;
}

static void make_joined(joined *t, const join *how)
{
    uint32_t grad[MOST_CHAINS], weight[MOST_CHAINS][MOST_LAYERS], total = 0;
    *t = (joined){.turn = 0};
    for (uint32_t b = 0; b < how->chains; b++)
        total += how->layers[b];
    step_init(&t->s, 4 * total + 4 * how->head + 16);
    t->s.problem.base_bytes = 1000;
    add_forward(t, how);
    uint32_t u = t->turn = add_op(&t->s, 1, false), at;
    for (uint32_t b = 0; b < how->chains; b++)
        reads(&t->s, u, t->value[b][how->layers[b]]);
    at = makes(&t->s, u, 16);
    for (uint32_t i = 0; i < how->head; i++) {
        u = add_op(&t->s, 10, false);
        reads(&t->s, u, at);
        at = makes(&t->s, u, 16);
    }
    u = add_op(&t->s, 1, true);
    reads(&t->s, u, at);
    t->s.values[makes(&t->s, u, 4)].stays = true;
    at = makes(&t->s, u, 16);
    u = add_op(&t->s, 1, true);
    reads(&t->s, u, at);
    for (uint32_t b = 0; b < how->chains; b++) {
        const uint32_t out = t->value[b][how->layers[b]];
        reads(&t->s, u, out);
        grad[b] = makes(&t->s, u, t->s.values[out].bytes);
    }
    const uint32_t early = grad[0];
    t->behind = t->s.problem.op_count;
    for (uint32_t b = how->chains; b-- > 0;) {
        for (uint32_t i = how->layers[b]; i-- > 0;) {
            u = t->back[b][i] = add_op(&t->s, how->equal ? 20 : 1 + draw(200), true);
            reads(&t->s, u, grad[b]);
            if (i > 0 || !how->bare)
                reads(&t->s, u, t->value[b][i]);
            if (t->side[b][i] > 0)
                reads(&t->s, u, t->side[b][i] - 1);
            grad[b] = makes(&t->s, u, i > 0 || !how->bare ? t->s.values[t->value[b][i]].bytes : 32);
            weight[b][i] = how->shared ? makes(&t->s, u, 16) : 0;
        }
        t->s.values[grad[b]].stays = true;
    }
    if (how->shared)
        add_updates(t, how, weight);
    else if (how->early)
        add_overwriters(t, grad[1], early);
    step_finish(&t->s);
}

/* ---- beside searches ---- */

/* A walk, played: a layer a step, and a state lies there as long as somebody reads it. */
static ebb_remat_schedule played(joined *t, const join *how, uint32_t slots, uint32_t *forwards)
{
    ebb_course c = {.forward = 1, .level = {{slots, 0, 0}}, .level_count = 1};
    ebb_walk walk = {.arena = &t->s.arena};
    walk_count count;
    uint32_t first[MOST_CHAINS + 1] = {0}, n = 0;
    double cost;
    c.branch_count = how->chains;
    for (uint32_t b = 0; b < how->chains; b++) {
        c.branch[b] = how->layers[b];
        first[b + 1] = first[b] + how->layers[b] + 1;
    }
    c.steps = first[how->chains];
    OK(ebb_walk_join(&walk, &c, &cost));
    OK(simulated(&count, &c, &walk));
    *forwards = (uint32_t)count.forwards;
    uint32_t *ops = EBB_NEW(&t->s.arena, uint32_t, count.forwards + 3 * t->s.problem.op_count);
    for (size_t k = 0; k < walk.count; k++) {
        const ebb_act *a = &walk.acts[k];
        uint32_t b = 0;
        while (b + 1 < how->chains && a->at >= first[b + 1])
            b++;
        const uint32_t at = a->at - first[b];
        for (uint32_t i = a->at; a->kind == EBB_ACT_FORWARD && i < a->to; i++)
            ops[n++] = t->op[b][i - first[b]];
        for (uint32_t u = t->turn; a->kind == EBB_ACT_TURN && u < t->behind; u++)
            ops[n++] = u;
        if (a->kind == EBB_ACT_REVERSE) {
            ops[n++] = t->op[b][at];
            ops[n++] = t->back[b][at];
        }
    }
    return (ebb_remat_schedule){ops, n};
}

TEST(no_more_than_the_walks_on_the_same_bytes)
{
    static const join joins[] = {
        {.chains = 2, .layers = {3, 2}},    {.chains = 2, .layers = {4, 4}},
        {.chains = 2, .layers = {8, 1}},    {.chains = 2, .layers = {6, 3}, .mixed = true},
        {.chains = 3, .layers = {2, 2, 2}}, {.chains = 3, .layers = {4, 2, 1}, .mixed = true},
        {.chains = 2, .layers = {24, 24}},  {.chains = 3, .layers = {12, 20, 7}, .mixed = true}};
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++) {
        join how = joins[i];
        joined t;
        how.equal = true;
        make_joined(&t, &how);
        const ebb_remat_weight all = weigh_kept_all(&t.s);
        for (uint32_t slots = 2 * how.chains; slots < 16; slots++) {
            uint32_t forwards, steps = 0;
            const ebb_remat_schedule walk = played(&t, &how, slots, &forwards);
            const ebb_remat_weight by_walk = weigh(&t.s, &walk);
            for (uint32_t b = 0; b < how.chains; b++)
                steps += how.layers[b];
            assert_true(by_walk.cost_ns == all.cost_ns + 10 * forwards);
            const ebb_remat_weight w = weigh_plan(&t.s, "join", by_walk.peak_bytes);
            if (w.peak_bytes > by_walk.peak_bytes || w.cost_ns > by_walk.cost_ns)
                fail_msg("join %zu, %u slots: %llu bytes and %g, the walk %llu and %g", i, slots,
                         (unsigned long long)w.peak_bytes, w.cost_ns,
                         (unsigned long long)by_walk.peak_bytes, by_walk.cost_ns);
        }
        ebb_arena_fini(&t.s.arena);
    }
}

TEST(small_joins_are_nearly_the_cheapest_of_all)
{
    uint32_t cases = 0, equal = 0;
    double worst = 1;
    static const join joins[] = {{.chains = 2, .layers = {3, 3}},
                                 {.chains = 2, .layers = {5, 2}},
                                 {.chains = 2, .layers = {4, 4}, .mixed = true},
                                 {.chains = 3, .layers = {2, 3, 2}}};
    seed = 11;
    for (size_t i = 0; i < 3 * sizeof joins / sizeof *joins; i++) {
        join how = joins[i / 3];
        joined t;
        how.bare = true;
        how.equal = i % 3 == 0;
        make_joined(&t, &how);
        const ebb_remat_weight all = weigh_kept_all(&t.s);
        for (uint64_t part = 95; part >= 40; part -= 5) {
            const uint64_t budget = 1000 + (all.peak_bytes - 1000) * part / 100;
            ebb_remat_schedule best;
            bool proven;
            OK(ebb_remat_exact(&best, &proven, &t.s.problem, budget, 400000, &t.s.arena));
            if (!proven || best.ops == NULL)
                continue;
            const ebb_remat_weight least = weigh(&t.s, &best);
            const ebb_remat_weight w = weigh_plan(&t.s, "join", budget);
            if (w.peak_bytes > budget)
                continue;
            cases++;
            assert_true(w.cost_ns >= least.cost_ns);
            equal += w.cost_ns == least.cost_ns;
            worst = w.cost_ns > worst * least.cost_ns ? w.cost_ns / least.cost_ns : worst;
        }
        ebb_arena_fini(&t.s.arena);
    }
    print_message("%u budgets, %u as cheap as can be, the worst %.3f of it\n", cases, equal, worst);
    assert_true(cases > 80);
    assert_true(4 * equal > 3 * cases && worst < 1.25);
}

/* ---- any joins ---- */

static join draw_join(uint32_t most)
{
    join how = {.chains = 2 + draw(MOST_CHAINS - 1),
                .mixed = draw(2),
                .shared = draw(2),
                .early = draw(3) == 0,
                .once = draw(3) == 0 ? draw(20) : 0,
                .side = draw(50),
                .head = draw(4)};
    for (uint32_t b = 0; b < how.chains; b++)
        how.layers[b] = 1 + draw(most);
    return how;
}

TEST(any_join_runs_and_is_no_dearer_than_one_chain)
{
    uint32_t cheaper = 0, lower = 0, plans = 0;
    seed = 17;
    for (int round = 0; round < 60 / FEWER; round += (int)share(3)) {
        joined t;
        const join how = draw_join(40);
        make_joined(&t, &how);
        const ebb_remat_weight all = weigh_kept_all(&t.s);
        for (uint64_t part = 90; part >= 30; part -= 20) {
            const uint64_t budget = 1000 + (all.peak_bytes - 1000) * part / 100;
            const ebb_remat_weight one = weigh_plan(&t.s, "revolve", budget);
            const ebb_remat_weight w = weigh_plan(&t.s, "join", budget);
            assert_true(w.peak_bytes <= budget || w.peak_bytes <= one.peak_bytes);
            assert_true(one.peak_bytes > budget || w.cost_ns <= one.cost_ns);
            plans++;
            cheaper += one.peak_bytes <= budget && w.cost_ns < one.cost_ns;
            lower += one.peak_bytes > budget && w.peak_bytes < one.peak_bytes;
        }
        ebb_arena_fini(&t.s.arena);
    }
    print_message("%u plans: %u cheaper than revolve, %u lower where it does not fit\n", plans,
                  cheaper, lower);
    assert_true(8 * (cheaper + lower) > plans);
}

/* So `fit` has them, too. */
TEST(the_frontier_is_nowhere_above_what_join_finds)
{
    seed = 29;
    for (int round = 0; round < 3 / FEWER; round += (int)share(3)) {
        joined t;
        ebb_remat_frontier f;
        const join how = draw_join(12);
        make_joined(&t, &how);
        ebb_remat_schedule schedule;
        ebb_remat_weight w;
        const uint64_t budget = weigh_kept_all(&t.s).peak_bytes / 2;
        const ebb_planner *planner = ebb_planner_find("join");
        OK(ebb_remat_frontier_find(&f, &t.s.problem, work, &t.s.arena));
        OK(ebb_planner_plan(planner, &schedule, &t.s.problem, budget, work / 64, &t.s.arena));
        OK(ebb_remat_weigh(&w, NULL, &t.s.problem, &schedule, &t.s.arena));
        bool found = w.peak_bytes > budget;
        for (size_t i = 0; i < f.count; i++)
            found = found ||
                    (f.points[i].peak_bytes <= budget && f.points[i].cost_ns <= w.cost_ns + 1e-9);
        assert_true(found);
        ebb_arena_fini(&t.s.arena);
    }
}

TEST(out_of_memory_is_an_error_and_no_crash)
{
    joined t;
    seed = 3;
    const join how = {.chains = 3, .layers = {5, 4, 3}, .shared = true, .side = 20};
    make_joined(&t, &how);
    long count = ebb_alloc_count();
    (void)weigh_plan(&t.s, "join", 1200);
    count = ebb_alloc_count() - count;
    for (long n = 1; n <= count; n += 1 + FEWER * count / 100) {
        OWNED_ARENA arena = {0};
        ebb_remat_schedule schedule;
        ebb_alloc_fail_after(n);
        ebb_status status =
            ebb_planner_plan(ebb_planner_find("join"), &schedule, &t.s.problem, 1200, work, &arena);
        ebb_alloc_fail_after(0);
        assert_non_null(status);
    }
    ebb_arena_fini(&t.s.arena);
}
