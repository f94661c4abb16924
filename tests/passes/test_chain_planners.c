/* test_chain_planners.c: the planners that see a chain, and what their schedules are made of.
 *
 * Schedules are weighed by the referee and compared with those that this file makes in the plainest
 * way. The exact numbers behind the planners: test_chain_counts.c.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "passes/budget/planners/chain/chain.h"
#include "passes/budget/planners/chain/revolve.h"
#include "passes/passes.h"
#include "tests/owned.h"
#include "tests/passes/chain_steps.h"
#include "tests/share.h"

static const char *const planners[] = {"sqrt",         "uniform", "chain-dp",
                                       "chain-linear", "revolve", "rotor"};
enum { PLANNERS = sizeof planners / sizeof *planners };

/* ---- from kept values to a schedule ---- */

static void assert_schedule(const ebb_remat_schedule *s, const char *expected)
{
    char text[256] = "";
    for (size_t i = 0; i < s->count && i < 80; i++) {
        char one[2] = {(char)((s->ops[i] < 10 ? '0' : 'a' - 10) + (int)s->ops[i]), 0};
        strcat(text, one);
    }
    assert_string_equal(text, expected);
}

TEST(what_is_not_kept_is_made_again_when_it_is_read)
{
    step s;
    ebb_remat_schedule schedule;
    /* 0 1 2 3: x -> a -> b -> c -> d; 4: the turn; 5 reads c, 6 b, 7 a, 8 x */
    make_step(&s, &(shape){.layers = 4, .equal = true});
    bool kept[32] = {false};
    kept[4] = true; /* d */
    OK(ebb_remat_from_kept(&schedule, &s.problem, kept, EBB_REMAT_HOLD, &s.arena));
    assert_schedule(&schedule, "01234012"
                               "5678");
    OK(ebb_remat_from_kept(&schedule, &s.problem, kept, EBB_REMAT_RELEASE, &s.arena));
    assert_schedule(&schedule, "01234"
                               "0125"
                               "016"
                               "07"
                               "8");
    kept[2] = true; /* b */
    OK(ebb_remat_from_kept(&schedule, &s.problem, kept, EBB_REMAT_HOLD, &s.arena));
    assert_schedule(&schedule, "01234"
                               "25"
                               "6"
                               "07"
                               "8");
    s.ops[2].once = true; /* c must be kept */
    OK(ebb_remat_from_kept(&schedule, &s.problem, kept, EBB_REMAT_HOLD, &s.arena));
    assert_schedule(&schedule, "01234"
                               "5"
                               "6"
                               "07"
                               "8");
    s.ops[0].before = 6; /* a cannot be made again for 7 */
    OK(ebb_remat_from_kept(&schedule, &s.problem, kept, EBB_REMAT_HOLD, &s.arena));
    assert_schedule(&schedule, "012345678");
    s.ops[0].before = 7; /* just before 7 it can */
    OK(ebb_remat_from_kept(&schedule, &s.problem, kept, EBB_REMAT_HOLD, &s.arena));
    assert_schedule(&schedule, "01234"
                               "5"
                               "6"
                               "07"
                               "8");
    ebb_arena_fini(&s.arena);
}

TEST(a_repeat_moves_to_its_first_reader)
{
    step s;
    make_step(&s, &(shape){.layers = 4, .equal = true});
    const uint32_t ops[] = {0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7, 8};
    ebb_remat_schedule from = {ops, 12}, late;
    OK(ebb_remat_late(&late, &s.problem, &from, &s.arena));
    assert_schedule(&late, "012340125678");
    const uint32_t early[] = {0, 1, 2, 3, 4, 0, 5, 6, 7, 8}; /* a again, for 7 alone */
    from = (ebb_remat_schedule){early, 10};
    OK(ebb_remat_late(&late, &s.problem, &from, &s.arena));
    assert_schedule(&late, "0123456078");
    ebb_arena_fini(&s.arena);
}

/* A byte less than keeping all: one value is made again, the cheapest, and just for its reader. */
TEST(what_is_left_of_the_budget_is_used)
{
    step s;
    make_step(&s, &(shape){.layers = 4, .equal = true});
    s.ops[1].cost_ns = 15;
    s.ops[2].cost_ns = 14;
    ebb_remat_weight all = weigh_kept_all(&s);
    const uint32_t ops[] = {0, 1, 2, 3, 4, 0, 1, 2, 5, 0, 1, 6, 0, 7, 8};
    ebb_remat_schedule from = {ops, 15};
    ebb_remat_weight w = weigh(&s, &from);
    assert_true(w.peak_bytes < all.peak_bytes);
    OK(ebb_remat_refill(&from, &w, &s.problem, all.peak_bytes - 1, INFINITY, &s.arena));
    assert_schedule(&from, "0123456078");
    assert_true(w.cost_ns == all.cost_ns + 10);
    from = (ebb_remat_schedule){ops, 15};
    w = weigh(&s, &from);
    OK(ebb_remat_refill(&from, &w, &s.problem, all.peak_bytes, INFINITY, &s.arena));
    assert_schedule(&from, "012345678");
    ebb_arena_fini(&s.arena);
}

/* Any choice of kept values gives a schedule that runs, however the step looks. */
TEST(any_choice_of_kept_values_runs)
{
    seed = 5;
    for (int round = 0; round < 400 / FEWER; round++) {
        step s;
        make_step(&s, &(shape){.layers = 1 + draw(20),
                               .skip = draw(60),
                               .side = draw(60),
                               .once = draw(20),
                               .weights = round % 2 == 0});
        bool *kept = EBB_NEW(&s.arena, bool, s.problem.value_count + (size_t)1);
        uint32_t chance = draw(101);
        for (uint32_t v = 0; v < s.problem.value_count; v++)
            kept[v] = draw(100) < chance;
        if (round % 3 == 0) /* updates long before the end */
            for (uint32_t u = 0; u < s.problem.op_count / 2; u++)
                s.ops[u].before =
                    draw(4) == 0 ? u + 1 + draw(s.problem.op_count - u - 1) : s.ops[u].before;
        for (int hold = EBB_REMAT_HOLD; hold <= EBB_REMAT_RELEASE; hold++) {
            ebb_remat_schedule schedule, late;
            OK(ebb_remat_from_kept(&schedule, &s.problem, kept, (ebb_remat_hold)hold, &s.arena));
            ebb_remat_weight w = weigh(&s, &schedule);
            assert_true(w.cost_ns >= weigh_kept_all(&s).cost_ns);
            OK(ebb_remat_late(&late, &s.problem, &schedule, &s.arena));
            assert_true(weigh(&s, &late).cost_ns == w.cost_ns);
            uint64_t budget = w.peak_bytes + draw(300);
            ebb_remat_weight filled = w;
            OK(ebb_remat_refill(&schedule, &filled, &s.problem, budget, INFINITY, &s.arena));
            assert_true(weigh(&s, &schedule).peak_bytes <= budget);
            assert_true(filled.cost_ns <= w.cost_ns && filled.repeats <= w.repeats);
        }
        for (int i = 0; i < PLANNERS; i++)
            (void)weigh_plan(&s, planners[i], 1000 + draw(2000));
        ebb_arena_fini(&s.arena);
    }
}

/* ---- planners ---- */

/* Equal segments of so many layers, kept ends, by hand: what every planner must match. */
static ebb_remat_weight weigh_segments(step *s, uint32_t layers, uint32_t length)
{
    uint32_t last = (layers - 1) / length * length;
    uint32_t *ops = EBB_NEW(&s->arena, uint32_t, s->problem.op_count * (size_t)2);
    size_t count = 0;
    for (uint32_t u = 0; u <= layers; u++)
        ops[count++] = u;
    for (uint32_t i = layers; i-- > 0;) {
        if (i < last && i % length == length - 1) /* the input of layer i + 1 is kept */
            for (uint32_t u = i + 1 - length; u < i; u++)
                ops[count++] = u;
        ops[count++] = layers + (layers - i);
    }
    ebb_remat_schedule schedule = {ops, count};
    return weigh(s, &schedule);
}

TEST(equal_layers_fit_where_equal_segments_do)
{
    for (uint32_t length = 2; length <= 12; length += 2) {
        step s;
        make_step(&s, &(shape){.layers = 96, .equal = true});
        ebb_remat_weight reference = weigh_segments(&s, 96, length);
        for (int i = 0; i < PLANNERS; i++) {
            ebb_remat_weight w = weigh_plan(&s, planners[i], reference.peak_bytes);
            uint64_t more = strcmp(planners[i], "chain-dp") == 0 ? 64 : 0; /* another objective */
            if (w.peak_bytes > reference.peak_bytes + more)
                fail_msg("%s needs %llu bytes where segments of %u need %llu", planners[i],
                         (unsigned long long)w.peak_bytes, length,
                         (unsigned long long)reference.peak_bytes);
            double most = strcmp(planners[i], "revolve") == 0 ? 1.5 : 1.0;
            if (w.cost_ns > most * 1.01 * reference.cost_ns)
                fail_msg("%s takes %g where segments of %u take %g", planners[i], w.cost_ns, length,
                         reference.cost_ns);
        }
        ebb_arena_fini(&s.arena);
    }
}

/* Groups of so many layers need what they need by hand, for no more repeats; below the least of these
 * the plan is that of the least, above the budget. */
TEST(uniform_groups_repeat_all_but_their_ends)
{
    step s;
    make_step(&s, &(shape){.layers = 36, .equal = true});
    uint64_t least = UINT64_MAX;
    for (uint32_t length = 2; length <= 18; length++) {
        if (36 % length != 0)
            continue;
        ebb_remat_weight groups = weigh_segments(&s, 36, length);
        ebb_remat_weight w = weigh_plan(&s, "uniform", groups.peak_bytes);
        assert_int_equal(groups.repeats, (36 / length - 1) * (length - 1));
        assert_true(w.peak_bytes <= groups.peak_bytes && w.repeats <= groups.repeats);
        least = groups.peak_bytes < least ? groups.peak_bytes : least;
    }
    ebb_remat_weight lowest = weigh_plan(&s, "uniform", 0);
    assert_true(lowest.peak_bytes > 0 && lowest.peak_bytes <= least);
    assert_int_equal(weigh_plan(&s, "uniform", weigh_kept_all(&s).peak_bytes).repeats, 0);
    ebb_arena_fini(&s.arena);
}

/* A forward from the start for each layer: nothing needs less. Those that can repeat a stage more
 * than twice come near it; and for equal layers take no more steps than binomial checkpointing. */
TEST(the_least_memory_is_reached)
{
    step s;
    make_step(&s, &(shape){.layers = 40, .equal = true});
    bool *kept = EBB_NEW(&s.arena, bool, s.problem.value_count + (size_t)1);
    ebb_remat_schedule schedule;
    OK(ebb_remat_from_kept(&schedule, &s.problem, kept, EBB_REMAT_RELEASE, &s.arena));
    ebb_remat_weight least = weigh(&s, &schedule), all = weigh_kept_all(&s);
    ebb_remat_weight revolve = weigh_plan(&s, "revolve", least.peak_bytes);
    ebb_remat_weight rotor = weigh_plan(&s, "rotor", least.peak_bytes);
    assert_true(revolve.peak_bytes <= least.peak_bytes);
    assert_true(rotor.peak_bytes <= least.peak_bytes);
    assert_true(rotor.cost_ns <= least.cost_ns);
    for (uint64_t slots = 2; slots <= 8; slots++) {
        uint64_t budget = least.peak_bytes + (slots - 1) * 64;
        double most = all.cost_ns + 10 * (double)ebb_revolve_forwards(40, slots);
        revolve = weigh_plan(&s, "revolve", budget);
        rotor = weigh_plan(&s, "rotor", budget);
        assert_true(revolve.peak_bytes <= budget && revolve.cost_ns <= most);
        assert_true(rotor.peak_bytes <= budget && rotor.cost_ns <= revolve.cost_ns);
    }
    ebb_arena_fini(&s.arena);
}

/* On random chains of unequal layers, by budget: all fit down to half way between the plainest
 * reference and all kept; rotor down to the least of all. */
TEST(unequal_layers_fit)
{
    seed = 23;
    for (int round = 0; round < 24 / FEWER; round += (int)share(3)) {
        step s;
        make_step(&s, &(shape){.layers = 8 + draw(60), .side = draw(50), .weights = round % 2});
        bool *kept = EBB_NEW(&s.arena, bool, s.problem.value_count + (size_t)1);
        ebb_remat_schedule schedule;
        OK(ebb_remat_from_kept(&schedule, &s.problem, kept, EBB_REMAT_RELEASE, &s.arena));
        ebb_remat_weight least = weigh(&s, &schedule), all = weigh_kept_all(&s);
        for (uint64_t tenth = 0; tenth <= 10; tenth++) {
            uint64_t budget = least.peak_bytes + (all.peak_bytes - least.peak_bytes) * tenth / 10;
            for (int i = 0; i < PLANNERS; i++) {
                ebb_remat_weight w = weigh_plan(&s, planners[i], budget);
                bool must = tenth >= 6 || (tenth >= 1 && strcmp(planners[i], "rotor") == 0);
                if (must && w.peak_bytes > budget)
                    fail_msg("%s needs %llu bytes, of %llu to %llu the budget is %llu", planners[i],
                             (unsigned long long)w.peak_bytes, (unsigned long long)least.peak_bytes,
                             (unsigned long long)all.peak_bytes, (unsigned long long)budget);
                if (tenth == 10)
                    assert_true(w.cost_ns == all.cost_ns);
                if (w.peak_bytes > all.peak_bytes || w.cost_ns > 40 * all.cost_ns)
                    fail_msg("%s returns nonsense", planners[i]);
            }
        }
        ebb_arena_fini(&s.arena);
    }
}

/* Long skips are what a chain cannot say: nearly all fit a tenth below, and none does harm. */
TEST(branches_and_long_skips_nearly_always_fit)
{
    seed = 29;
    uint32_t fits = 0;
    const uint32_t rounds = 32 / FEWER / share(2);
    for (uint32_t round = 0; round < rounds; round++) {
        step s;
        make_step(&s, &(shape){.layers = 10 + draw(50),
                               .skip = 40,
                               .side = 30,
                               .once = draw(10),
                               .weights = true});
        ebb_remat_weight all = weigh_kept_all(&s);
        for (uint64_t percent = 100; percent >= 20; percent -= 10) {
            uint64_t budget = 1000 + (all.peak_bytes - 1000) * percent / 100;
            for (int i = 0; i < PLANNERS; i++) {
                ebb_remat_weight w = weigh_plan(&s, planners[i], budget);
                assert_true(w.peak_bytes <= all.peak_bytes);
                fits += percent == 90 && w.peak_bytes <= budget;
            }
        }
        ebb_arena_fini(&s.arena);
    }
    print_message("%u of %u fit\n", fits, rounds * PLANNERS);
    assert_true(8 * fits >= 7 * rounds * PLANNERS);
}

/* ---- edges ---- */

TEST(nothing_and_next_to_nothing_are_planned)
{
    for (int i = 0; i < PLANNERS; i++) {
        step s; /* no operator */
        step_init(&s, 4);
        step_finish(&s);
        assert_int_equal(weigh_plan(&s, planners[i], 0).peak_bytes, 0);
        ebb_arena_fini(&s.arena);
        step_init(&s, 4); /* one */
        uint32_t x = makes(&s, EBB_REMAT_NONE, 5), u = add_op(&s, 1, i % 2);
        reads(&s, u, x);
        (void)makes(&s, u, 7);
        step_finish(&s);
        assert_int_equal(weigh_plan(&s, planners[i], 0).peak_bytes, 12);
        ebb_arena_fini(&s.arena);
        make_step(&s, &(shape){.layers = 6, .equal = true}); /* no forward, no backward */
        for (uint32_t o = 0; o < s.problem.op_count; o++)
            s.ops[o].backward = true;
        assert_true(weigh_plan(&s, planners[i], 0).repeats == 0);
        for (uint32_t o = 0; o < s.problem.op_count; o++)
            s.ops[o].backward = false;
        (void)weigh_plan(&s, planners[i], 0);
        for (uint32_t v = 0; v < s.problem.value_count; v++) /* no bytes, no time */
            s.values[v].bytes = 0;
        for (uint32_t o = 0; o < s.problem.op_count; o++) {
            s.ops[o].backward = o > 6;
            s.ops[o].cost_ns = 0;
        }
        assert_int_equal(weigh_plan(&s, planners[i], 0).peak_bytes, 1000);
        ebb_arena_fini(&s.arena);
    }
}

TEST(out_of_memory_is_an_error_and_no_crash)
{
    step s;
    seed = 3;
    make_step(&s, &(shape){.layers = 12, .skip = 20, .side = 20});
    for (int i = 0; i < PLANNERS; i++) {
        long count = ebb_alloc_count();
        (void)weigh_plan(&s, planners[i], 1100);
        count = ebb_alloc_count() - count;
        for (long n = 1; n <= count; n += 1 + FEWER * count / 40) {
            OWNED_ARENA arena = {0};
            ebb_remat_schedule schedule;
            ebb_alloc_fail_after(n);
            ebb_status status = ebb_planner_plan(ebb_planner_find(planners[i]), &schedule,
                                                 &s.problem, 1100, work, &arena);
            ebb_alloc_fail_after(0);
            assert_non_null(status);
        }
    }
    ebb_arena_fini(&s.arena);
}

TEST(fifty_thousand_operators_are_planned_in_seconds)
{
    for (int i = 0; i < PLANNERS; i++) {
        step s;
        seed = 41;
        make_step(&s, &(shape){.layers = 25000 / FEWER, .skip = 1, .side = 10});
        ebb_remat_weight all = weigh_kept_all(&s);
        clock_t begin = clock();
        ebb_remat_weight w = weigh_plan(&s, planners[i], all.peak_bytes / 4);
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        print_message("%s: %.2f of the bytes, %.3f of the time, in %.1f s\n", planners[i],
                      (double)w.peak_bytes / (double)all.peak_bytes, w.cost_ns / all.cost_ns,
                      seconds);
        assert_true(seconds < 60);
        ebb_arena_fini(&s.arena);
    }
}

/* ---- help ---- */

TEST(help_names_every_planner)
{
    size_t count;
    const ebb_planner *const *roll = ebb_planners(&count);
    const ebb_option *option = ebb_pass_recompute.options;
    while (strcmp(option->name, "planner") != 0)
        option++;
    for (size_t i = 0; i < count; i++) {
        char name[64];
        const char *at = option->doc;
        (void)snprintf(name, sizeof name, " %s", roll[i]->name);
        while ((at = strstr(at, name)) != NULL && at[strlen(name)] != ',' &&
               at[strlen(name)] != ';' && at[strlen(name)] != '\0')
            at++;
        if (at == NULL)
            fail_msg("help does not name planner %s", roll[i]->name);
    }
}
