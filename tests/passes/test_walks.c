/* test_walks.c: schedules over several memories: published counts and times, long chains.
 *
 * Every walk is judged by the simulator, which knows nothing of how walks are made. Whether a faster
 * one exists: test_walks_search.c.
 */
#include "tests/owned.h"
#include "tests/walks.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/resource.h>

#include "passes/budget/planners/chain/revolve.h"
#include "tests/share.h"

/* ---- published numbers ---- */

TEST(revolve_runs_as_many_steps_as_algorithm_799)
{
    static const uint32_t known[][3] = {{10, 3, 15},     {50, 5, 122},   {100, 5, 316},
                                        {100, 10, 222},  {200, 12, 495}, {1000, 10, 3636},
                                        {1000, 30, 2472}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ebb_course c = course_of(known[i][0] - 1, known[i][1], 0, 0, 0);
        walk_count count = walked(ebb_walk_revolve, &c);
        assert_int_equal(count.forwards, known[i][2]);
        assert_in_range(count.most[0], 1, known[i][1]);
    }
    for (uint32_t slots = 1; slots <= 8; slots++) {
        for (uint32_t steps = 1; steps < 120; steps++) {
            ebb_course c = course_of(steps - 1, slots, 0, 0, 0);
            walk_count count = walked(ebb_walk_revolve, &c);
            assert_int_equal(count.forwards, ebb_revolve_forwards(steps, slots));
        }
    }
}

TEST(two_memories_take_the_published_time)
{
    static const struct {
        uint32_t steps, fast, slow;
        double move, cost;
    } known[] = {{50, 3, 0, 0, 236},   {50, 3, 2, 2, 192},   {50, 3, 5, 2, 184},
                 {100, 5, 10, 5, 385}, {100, 5, 10, 1, 326}, {200, 5, 20, 5, 797}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ebb_course c =
            course_of(known[i].steps, known[i].fast, known[i].slow, known[i].move, known[i].move);
        walk_count count = walked(ebb_walk_hrevolve, &c);
        assert_true(count.time == known[i].cost);
    }
}

/* The table of level 0, by moves that take next to nothing, is the closed form. */
TEST(the_recurrence_in_memory_is_the_closed_form)
{
    for (uint32_t slots = 1; slots <= 7; slots++) {
        for (uint32_t steps = 1; steps < 90; steps += 13) {
            ebb_course c = course_of(steps, slots, 0, 0, 0);
            c.level[0].read = 1e-9;
            walk_count count = walked(ebb_walk_hrevolve, &c);
            assert_int_equal(count.forwards, ebb_revolve_forwards(steps + 1, slots));
        }
    }
}

/* ---- the recurrences of disk-revolve, as they are published: n^2 ---- */

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double published_disk_revolve(const ebb_course *c, double *period)
{
    uint32_t n = c->steps;
    double uf = c->forward, write = c->level[1].write, read = c->level[1].read;
    FREED double *memory = calloc(n + 1, sizeof *memory), *again = calloc(n + 1, sizeof *again);
    FREED double *all = calloc(n + 1, sizeof *all);
    *period = HUGE_VAL;
    for (uint32_t i = 1; i <= n; i++) {
        memory[i] = (double)ebb_revolve_forwards(i, c->level[0].slots) * uf + i * c->backward;
        again[i] = memory[i];
        for (uint32_t j = 1; j < i; j++)
            again[i] = least(again[i], j * uf + memory[i - j] + read + again[j]);
    }
    for (uint32_t i = 1; i <= n; i++) {
        all[i] = memory[i];
        for (uint32_t j = 1; j < i; j++)
            all[i] = least(all[i], write + j * uf + all[i - j] + read + again[j]);
        *period = least(*period, (write + read + i * uf + again[i]) / i);
    }
    double cost = all[n];
    return cost;
}

TEST(disk_revolve_takes_what_its_recurrence_says)
{
    static const double moves[] = {0, 1, 2, 5, 20, 100, 0.3};
    enum { MOVES = sizeof moves / sizeof *moves };
    for (uint32_t slots = 1; slots <= 9; slots += 2) {
        for (uint32_t i = 0; i < MOVES * MOVES; i++) {
            ebb_course c = course_of(i % 2 ? 340 : 53, slots, EBB_WALK_NO_LIMIT, moves[i % MOVES],
                                     moves[i / MOVES]);
            double period, cost = published_disk_revolve(&c, &period);
            walk_count count = walked(ebb_walk_disk_revolve, &c);
            assert_true(fabs(count.time - cost) < 1e-9 * cost);
            count = walked(ebb_walk_periodic_disk_revolve, &c);
            assert_true(count.time >= cost * (1 - 1e-9));
            assert_true(count.time <= c.steps * period + 400 + 10 * (moves[i % MOVES] + period));
        }
    }
}

TEST(the_periodic_form_is_as_good_on_long_chains)
{
    double worst = 0;
    for (uint32_t slots = 2; slots <= 10; slots += 4) {
        for (uint32_t move = 1; move <= 25; move *= 5) {
            ebb_course c = course_of(5000, slots, EBB_WALK_NO_LIMIT, move, move);
            double exact = walked(ebb_walk_disk_revolve, &c).time;
            double ratio = walked(ebb_walk_periodic_disk_revolve, &c).time / exact;
            worst = ratio > worst ? ratio : worst;
        }
    }
    print_message("periodic over exact, 5000 steps: at most %.5f\n", worst);
    assert_true(worst < 1.01);
}

/* ---- transfers beside the steps ---- */

TEST(multistage_takes_the_same_time_per_step_at_any_length)
{
    for (uint32_t transfer = 1; transfer <= 40; transfer += 13) {
        double first = 0;
        for (uint32_t n = 1000; n <= 100000; n *= 10) {
            ebb_course c = course_of(n - 1, 4, EBB_WALK_NO_LIMIT, transfer, transfer);
            c.backward = 3;
            walk_count count = walked(ebb_walk_multistage, &c);
            uint32_t interval = transfer, intervals = n / interval;
            assert_true(count.stalls == 0);
            assert_int_equal(count.writes[1], intervals - 1);
            assert_int_equal(count.reads[1], intervals - 1);
            assert_in_range(count.most[0], 0, 4);
            assert_in_range(count.buffers, 1, 2);
            uint32_t before = (intervals - 1) * interval;
            assert_int_equal(count.forwards,
                             before + (intervals - 1) * ebb_revolve_forwards(interval, 4) +
                                 ebb_revolve_forwards(n - before, 4));
            first = n == 1000 ? count.time / n : first;
            assert_true(count.time / n <= 1.01 * first && count.time / n >= 0.99 * first);
        }
    }
}

TEST(an_interval_is_as_long_as_a_transfer)
{
    ebb_course c = course_of(99, 5, EBB_WALK_NO_LIMIT, 7, 9.5);
    c.forward = 3; // ceil(9.5 / 3) = 4
    c.backward = 8;
    assert_int_equal(walked(ebb_walk_multistage, &c).writes[1], 24);
    assert_true(walked(ebb_walk_multistage, &c).stalls == 0);
    c.level[1].read = 1000; // a chain shorter than a transfer is reversed in memory
    assert_int_equal(walked(ebb_walk_multistage, &c).writes[1], 0);
}

TEST(double_checkpointing_runs_each_step_at_most_twice_more)
{
    for (uint32_t interval = 1; interval <= 200; interval += 1 + interval / 3) {
        uint32_t root = (uint32_t)ceil(sqrt(interval));
        for (uint32_t n = 1; n < 2000; n = n * 3 + 1) {
            ebb_course c = course_of(n - 1, 2 * root, EBB_WALK_NO_LIMIT, interval, interval);
            c.backward = 3;
            walk_count count = walked(ebb_walk_double_checkpoint, &c);
            assert_in_range(count.forwards, n, 3 * (uint64_t)n);
            assert_in_range(count.most[0], 1, 2 * root);
            assert_true(count.stalls <= interval); // before the first interval back, if it is short
            uint32_t length = interval < n ? interval : n;
            assert_int_equal(count.writes[1], (n - 1) / length);
        }
    }
}

TEST(a_started_transfer_that_is_waited_for_at_once_takes_its_time)
{
    OWNED_ARENA arena = {0};
    ebb_walk w = {.arena = &arena};
    ebb_course c = course_of(1, 1, 2, 7, 5);
    walk_count count;
    OK(ebb_walk_add(&w, EBB_ACT_START_WRITE, 1, 0, 0));
    OK(ebb_walk_add(&w, EBB_ACT_WAIT, 1, 0, 0));
    OK(ebb_walk_add(&w, EBB_ACT_FORWARD, 0, 0, 1));
    OK(ebb_walk_add(&w, EBB_ACT_START_READ, 1, 0, 0));
    OK(ebb_walk_add(&w, EBB_ACT_REVERSE, 0, 1, 0));
    OK(ebb_walk_add(&w, EBB_ACT_WAIT, 1, 0, 0));
    OK(ebb_walk_add(&w, EBB_ACT_REVERSE, 0, 0, 0));
    OK(simulated(&count, &c, &w));
    assert_true(count.time == 7 + 1 + 5 + 1 && count.stalls == 7 + 4);
}

/* ---- the referee ---- */

TEST(the_referee_sees_what_is_not_legal)
{
    static const struct {
        ebb_act act[4];
        const char *why;
    } wrong[] = {
        {{{EBB_ACT_REVERSE, 0, 2, 0}}, "not at hand"},
        {{{EBB_ACT_READ, 0, 0, 0}}, "not there"},
        {{{EBB_ACT_FORWARD, 0, 0, 4}}, "no step to run"},
        {{{EBB_ACT_REVERSE, 0, 0, 0}}, "not the last step"},
        {{{EBB_ACT_WRITE, 0, 0, 0}, {EBB_ACT_FORWARD, 0, 0, 1}, {EBB_ACT_WRITE, 0, 1, 0}},
         "slots are taken"},
        {{{EBB_ACT_WRITE, 0, 0, 0}, {EBB_ACT_WRITE, 0, 0, 0}}, "there already"},
        {{{EBB_ACT_START_WRITE, 1, 0, 0}, {EBB_ACT_START_READ, 1, 0, 0}}, "on its way"},
        {{{EBB_ACT_START_WRITE, 1, 0, 0}, {EBB_ACT_DROP, 1, 0, 0}}, "on its way"},
        {{{EBB_ACT_WAIT, 1, 0, 0}}, "nothing was started"},
        {{{EBB_ACT_FORWARD, 0, 0, 2}, {EBB_ACT_BACK, 0, 2, 0}}, "not saved"},
        {{{EBB_ACT_WRITE, 3, 0, 0}}, "no such state"},
        {{{EBB_ACT_FORWARD, 0, 0, 2}, {EBB_ACT_REVERSE, 0, 2, 0}}, "leaves 2 steps"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OWNED_ARENA arena = {0};
        ebb_walk w = {.arena = &arena};
        ebb_course c = course_of(2, 1, 1, 1, 1);
        walk_count count;
        for (int k = 0; k < 4; k++) {
            const ebb_act *a = &wrong[i].act[k];
            if (a->kind != EBB_ACT_FORWARD || a->to > 0)
                OK(ebb_walk_add(&w, (ebb_act_kind)a->kind, a->level, a->at, a->to));
        }
        ebb_status status = simulated(&count, &c, &w);
        assert_non_null(status);
        if (strstr(ebb_status_text(status), wrong[i].why) == NULL)
            fail_msg("case %zu: %s", i, ebb_status_text(status));
    }
}

/* ---- long chains ---- */

TEST(three_levels_are_no_slower_than_two)
{
    for (uint32_t n = 20; n <= 320; n *= 2) {
        ebb_course c = course_of(n, 3, 4, 3, 3);
        double two = walked(ebb_walk_hrevolve, &c).time;
        c.level[2] = (ebb_walk_level){10, 12, 12};
        c.level_count = 3;
        walk_count three = walked(ebb_walk_hrevolve, &c);
        assert_true(three.time <= two);
        for (int k = 0; k < 3; k++)
            assert_in_range(three.most[k], 0, c.level[k].slots);
    }
}

TEST(a_hundred_thousand_steps_are_planned_in_seconds)
{
    static const struct {
        const char *name;
        method plan;
    } methods[] = {{"revolve", ebb_walk_revolve},
                   {"disk-revolve", ebb_walk_disk_revolve},
                   {"periodic-disk-revolve", ebb_walk_periodic_disk_revolve},
                   {"hrevolve", ebb_walk_hrevolve},
                   {"multistage", ebb_walk_multistage},
                   {"double-checkpoint", ebb_walk_double_checkpoint}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        for (uint32_t slots = 1; slots <= (SANITIZED ? 1 : 100); slots *= 10) {
            for (double move = 1; move <= (SANITIZED ? 1 : 1e6); move *= 1000) {
                ebb_course c = course_of(99999, slots, EBB_WALK_NO_LIMIT, move, move);
                if (methods[i].plan == ebb_walk_hrevolve)
                    c.level[1].slots = 30;
                clock_t begin = clock();
                OWNED_ARENA arena = {0};
                ebb_walk w = {.arena = &arena};
                double cost;
                walk_count count;
                OK(methods[i].plan(&w, &c, &cost));
                double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
                OK(simulated(&count, &c, &w));
                print_message("%-22s slots %3u move %7.0f: %6.2f s, %9zu acts, %.3f a step\n",
                              methods[i].name, slots, move, seconds, w.count, count.time / 1e5);
                assert_true(count.time <= cost * (1 + 1e-9));
                if (!SANITIZED && getenv("EBB_EMULATED") == NULL)
                    assert_true(seconds < 10);
            }
        }
    }
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use);
    print_message("%ld MiB\n", use.ru_maxrss / 1024);
    if (!SANITIZED)
        assert_true(use.ru_maxrss / 1024 < 300);
}
