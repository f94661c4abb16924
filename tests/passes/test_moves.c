/* test_moves.c: the referee of schedules knows moves to a slower place: their bytes, their time, and
 * which of them are mistakes. */

#include "tests/owned.h"
#include "tests/passes/chain_steps.h"
#include "tests/share.h"

/* 0: x -> a (100 bytes)   1: a -> b (10)   2: b -> c (10)   3: c, a -> d (10), which stays
 * Each operator takes 50, a move 1 a byte. */
enum { A, B, C, D, X };
static const uint32_t in0[] = {X}, in1[] = {A}, in2[] = {B}, in3[] = {C, A}, out[] = {A, B, C, D};
static const uint32_t of_a[] = {1, 3}, of_b[] = {2}, of_c[] = {3}, of_x[] = {0};
static const ebb_remat_op ops[] = {
    {.in = in0, .in_count = 1, .out = &out[0], .out_count = 1, .cost_ns = 50, .before = UINT32_MAX},
    {.in = in1, .in_count = 1, .out = &out[1], .out_count = 1, .cost_ns = 50, .before = UINT32_MAX},
    {.in = in2, .in_count = 1, .out = &out[2], .out_count = 1, .cost_ns = 50, .before = UINT32_MAX},
    {.in = in3, .in_count = 2, .out = &out[3], .out_count = 1, .cost_ns = 50, .before = UINT32_MAX},
};
static const ebb_remat_value values[] = {
    {.bytes = 100, .op = 0, .readers = of_a, .reader_count = 2},
    {.bytes = 10, .op = 1, .readers = of_b, .reader_count = 1},
    {.bytes = 10, .op = 2, .readers = of_c, .reader_count = 1},
    {.bytes = 10, .op = 3, .stays = true},
    {.bytes = 1, .op = EBB_REMAT_NONE, .readers = of_x, .reader_count = 1},
};
static const ebb_remat_problem problem = {ops, 4, values, 5, 1000, 1, false, 0};

#define MOVE(how, what) ebb_remat_move(&problem, EBB_REMAT_##how, what)

TEST(a_value_on_disk_takes_no_memory_and_moves_beside_the_step)
{
    OWNED_ARENA arena = {0};
    ebb_remat_weight w;
    uint64_t live[16];
    const uint32_t list[] = {
        0, MOVE(STORE, A), 1, MOVE(AWAY, A), 2, MOVE(FETCH, A), MOVE(BACK, A), 3,
    };
    const ebb_remat_schedule s = {list, sizeof list / sizeof *list};
    OK(ebb_remat_weigh(&w, live, &problem, &s, &arena));
    /* x a | a | a b | a b | b c | c a | c a | c a d */
    static const uint64_t bytes[] = {101, 100, 110, 110, 20, 110, 110, 120};
    for (size_t i = 0; i < s.count; i++)
        assert_int_equal(live[i], 1000 + bytes[i]);
    assert_int_equal(w.peak_bytes, 1120);
    /* 0: 50; stored from 50 to 150; 1: to 100; waits to 150; 2: to 200; read to 300; 3: to 350 */
    assert_true(w.cost_ns == 350);
    assert_int_equal(w.moved_bytes, 200);
    assert_int_equal(w.repeats, 0);
}

TEST(a_value_may_be_fetched_more_than_once)
{
    OWNED_ARENA arena = {0};
    ebb_remat_weight w;
    uint64_t live[16];
    const uint32_t list[] = {
        0,
        MOVE(STORE, A),
        MOVE(AWAY, A),
        MOVE(FETCH, A),
        MOVE(BACK, A),
        1,
        2,
        MOVE(FETCH, A),
        MOVE(BACK, A),
        3,
    };
    const ebb_remat_schedule s = {list, sizeof list / sizeof *list};
    OK(ebb_remat_weigh(&w, live, &problem, &s, &arena));
    /* x a | a | a | a | a | a b | b c | c a | c a | c a d */
    static const uint64_t bytes[] = {101, 100, 100, 100, 100, 110, 20, 110, 110, 120};
    for (size_t i = 0; i < s.count; i++)
        assert_int_equal(live[i], 1000 + bytes[i]);
    assert_int_equal(w.moved_bytes, 300);
}

TEST(moves_that_nobody_needs_are_pruned)
{
    OWNED_ARENA arena = {0};
    ebb_remat_schedule pruned;
    const uint32_t list[] = {
        0,
        MOVE(STORE, A),
        MOVE(AWAY, A),
        MOVE(FETCH, A),
        MOVE(BACK, A),
        0,
        1,
        MOVE(STORE, B),
        MOVE(AWAY, B),
        2,
        MOVE(FETCH, A),
        MOVE(BACK, A),
        3,
    };
    const uint32_t left[] = {
        0, MOVE(STORE, A), MOVE(AWAY, A), 0, 1, 2, MOVE(FETCH, A), MOVE(BACK, A), 3,
    };
    const ebb_remat_schedule s = {list, sizeof list / sizeof *list};
    OK(ebb_remat_prune(&pruned, &problem, &s, &arena));
    assert_int_equal(pruned.count, sizeof left / sizeof *left);
    assert_memory_equal(pruned.ops, left, sizeof left);
}

TEST(moves_of_what_is_not_there_are_mistakes)
{
    const uint32_t wrong[][6] = {
        {MOVE(STORE, A), 0, 1, 2, 3, 3},
        {0, MOVE(AWAY, A), 1, 2, 3, 3},
        {0, MOVE(STORE, A), MOVE(FETCH, A), 1, 2, 3},
        {0, MOVE(BACK, A), 1, 2, 3, 3},
        {0, MOVE(STORE, A), MOVE(STORE, A), 1, 2, 3},
        {0, 1, 2, 3, 3, MOVE(STORE, X + 1)},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OWNED_ARENA arena = {0};
        ebb_remat_weight w;
        const ebb_remat_schedule s = {wrong[i], 6};
        const ebb_status status = ebb_remat_weigh(&w, NULL, &problem, &s, &arena);
        assert_non_null(status);
        assert_int_equal(ebb_status_code(status), EBB_VERIFY);
    }
}

/* ---- planners ---- */

/* Skips, second outputs, what must not be repeated, updates: the referee finds no mistake, and what
 * is on disk makes room. A method that may do without the disk is never slower with it. */
TEST(schedules_on_disk_run_however_the_step_looks)
{
    static const char *const on_disk[] = {"disk-revolve", "periodic-disk-revolve", "hrevolve",
                                          "multistage",   "double-checkpoint",     "pofo"};
    static const char *const without[] = {"revolve", NULL, "revolve", NULL, NULL, "rotor"};
    seed = 23;
    for (int round = 0; round < 160 / FEWER; round++) {
        step s;
        make_step(&s, &(shape){.layers = 2 + draw(30),
                               .skip = draw(60),
                               .side = draw(60),
                               .once = draw(20),
                               .weights = round % 2 == 0});
        s.problem.move_ns = round % 4 == 0 ? 0 : 0.01 * draw(100);
        uint64_t all = weigh_kept_all(&s).peak_bytes;
        for (size_t i = 0; i < sizeof on_disk / sizeof *on_disk; i++) {
            uint64_t budget = all - 1 - draw((uint32_t)all / 4);
            ebb_remat_weight w = weigh_plan(&s, on_disk[i], budget);
            assert_true(w.peak_bytes <= all);
            if (without[i] == NULL)
                continue;
            ebb_remat_weight memory = weigh_plan(&s, without[i], budget); // has no more than this
            assert_true(memory.peak_bytes > budget || w.cost_ns <= memory.cost_ns);
            assert_true(w.peak_bytes <= budget || w.peak_bytes <= memory.peak_bytes);
        }
        ebb_arena_fini(&s.arena);
    }
}

/* Equal layers whose moves take no time: nothing is run again but what leads from a state to the next
 * one, and the memory of few states is enough. */
TEST(a_disk_without_cost_takes_most_of_what_is_kept)
{
    step s;
    make_step(&s, &(shape){.layers = 64, .equal = true});
    s.problem.move_ns = 0;
    ebb_remat_weight all = weigh_kept_all(&s), revolve = weigh_plan(&s, "revolve", 1600);
    ebb_remat_weight disk = weigh_plan(&s, "disk-revolve", 1600);
    print_message("64 layers in 1600 of %u bytes: revolve %.2f times, disk-revolve %.2f\n",
                  (unsigned)all.peak_bytes, revolve.cost_ns / all.cost_ns,
                  disk.cost_ns / all.cost_ns);
    assert_true(revolve.peak_bytes <= 1600 && disk.peak_bytes <= 1600);
    assert_true(disk.moved_bytes > 0);
    assert_true(disk.cost_ns < revolve.cost_ns);
    ebb_arena_fini(&s.arena);
}
