/* test_set_planners.c: dtr, lower-set and ilp on numbers: random steps of all shapes, linear nets,
 * chains against all their cuts, and the published optima of small graphs. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "passes/budget/planners/problem.h"
#include "tests/owned.h"
#include "tests/share.h"
#include "tests/status.h"
#include "tests/test.h"

enum { MOST_OPS = 2400, MOST_EDGES = 4, STEPS = 10 * 1000 * 1000 };

/* ---- problems ---- */

static uint32_t seed;

static uint32_t below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* A problem under construction: fixed arrays, so that a test states it operator by operator. */
typedef struct step {
    ebb_remat_op op[MOST_OPS];
    ebb_remat_value value[2 * MOST_OPS];
    uint32_t in[MOST_OPS][MOST_EDGES], out[MOST_OPS][2], *readers[2 * MOST_OPS];
    ebb_remat_over over[MOST_OPS];
    uint32_t op_count, value_count;
    uint64_t base;
} step;

static step *the_step; /* large: one for all tests */

static uint32_t new_value(uint64_t bytes)
{
    the_step->value[the_step->value_count] =
        (ebb_remat_value){.bytes = bytes, .op = EBB_REMAT_NONE};
    return the_step->value_count++;
}

static uint32_t new_op(double cost, bool backward)
{
    uint32_t u = the_step->op_count++;
    the_step->op[u] = (ebb_remat_op){.cost_ns = cost,
                                     .backward = backward,
                                     .before = EBB_REMAT_NONE,
                                     .in = the_step->in[u],
                                     .out = the_step->out[u]};
    return u;
}

static void reads(uint32_t u, uint32_t v)
{
    ebb_remat_op *op = &the_step->op[u];
    for (uint32_t k = 0; k < op->in_count; k++)
        if (op->in[k] == v)
            return;
    assert_true(op->in_count < MOST_EDGES);
    the_step->in[u][op->in_count++] = v;
}

static uint32_t makes(uint32_t u, uint64_t bytes)
{
    uint32_t v = new_value(bytes);
    the_step->value[v].op = u;
    the_step->out[u][the_step->op[u].out_count++] = v;
    return v;
}

static ebb_remat_problem finished(ebb_arena *arena)
{
    step *s = the_step;
    for (uint32_t u = 0; u < s->op_count; u++)
        for (uint32_t k = 0; k < s->op[u].in_count; k++)
            s->value[s->in[u][k]].reader_count++;
    for (uint32_t v = 0; v < s->value_count; v++) {
        s->readers[v] = EBB_NEW(arena, uint32_t, s->value[v].reader_count + 1);
        s->value[v].readers = s->readers[v];
        s->value[v].reader_count = 0;
    }
    for (uint32_t u = 0; u < s->op_count; u++)
        for (uint32_t k = 0; k < s->op[u].in_count; k++) {
            uint32_t v = s->in[u][k];
            s->readers[v][s->value[v].reader_count++] = u;
        }
    return (ebb_remat_problem){.ops = s->op,
                               .op_count = s->op_count,
                               .values = s->value,
                               .value_count = s->value_count,
                               .base_bytes = s->base};
}

/* Forward operators with branches, a backward that reads them in reverse, updates of states that
 * the forward reads, some of it drawn without a key, in place, with workspace. */
static ebb_remat_problem random_step(ebb_arena *arena, uint32_t n, bool plain)
{
    uint32_t y[64], grad = UINT32_MAX, state_reader[64], states = 0;
    memset(the_step, 0, sizeof *the_step);
    the_step->base = below(50);
    uint32_t x = new_value(1 + below(40));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = new_op(1 + below(30), false);
        reads(u, i == 0 ? x : y[i - 1 - below(i < 3 ? i : 3)]);
        if (i > 0 && below(3) == 0)
            reads(u, y[below(i)]);
        y[i] = makes(u, 1 + below(100));
        if (below(5) == 0)
            (void)makes(u, below(30));
        the_step->op[u].once = !plain && below(6) == 0;
        the_step->op[u].workspace = plain || below(4) != 0 ? 0 : below(60);
        if (!plain && below(4) == 0)
            state_reader[states++] = u;
    }
    for (uint32_t i = n; i-- > 0;) {
        uint32_t u = new_op(1 + below(30), true);
        uint32_t made = the_step->op[i].out[the_step->op[i].out_count - 1];
        reads(u, below(4) == 0 ? made : y[i]);
        if (i > 0 && below(2) == 0)
            reads(u, y[i - 1]);
        if (grad != UINT32_MAX)
            reads(u, grad);
        uint32_t next = makes(u, 1 + below(100));
        if (!plain && grad != UINT32_MAX &&
            the_step->value[grad].bytes == the_step->value[next].bytes) {
            the_step->over[u] = (ebb_remat_over){next, grad};
            the_step->op[u].over = &the_step->over[u];
            the_step->op[u].over_count = 1;
        }
        if (below(3) == 0)
            the_step->value[makes(u, 1 + below(20))].stays = true;
        grad = next;
        for (uint32_t s = 0; s < states; s++) {
            if (state_reader[s] != i || below(2) == 0)
                continue;
            uint32_t update = new_op(1, true);
            reads(update, grad);
            the_step->value[makes(update, 1)].stays = true;
            the_step->op[update].once = true;
            the_step->op[i].before = update;
        }
    }
    the_step->value[grad].stays = true;
    return finished(arena);
}

/* n unit operators and their gradients, each of which reads what its operator read. */
static ebb_remat_problem linear_net(ebb_arena *arena, uint32_t n)
{
    memset(the_step, 0, sizeof *the_step);
    uint32_t x = new_value(0), *y = EBB_NEW(arena, uint32_t, (size_t)n + 1);
    y[0] = x;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = new_op(1, false);
        reads(u, y[i]);
        y[i + 1] = makes(u, 1);
    }
    uint32_t grad = y[n];
    for (uint32_t i = n; i-- > 0;) {
        uint32_t u = new_op(1, true);
        reads(u, grad);
        reads(u, y[i]);
        grad = makes(u, 1);
    }
    the_step->value[grad].stays = true;
    return finished(arena);
}

static const ebb_planner *planner_named(const char *name)
{
    const ebb_planner *planner = ebb_planner_find(name);
    assert_non_null(planner);
    return planner;
}

static ebb_remat_weight weighed(const ebb_remat_problem *p, const ebb_remat_schedule *s,
                                ebb_arena *arena)
{
    ebb_remat_weight weight;
    good(ebb_remat_weigh(&weight, NULL, p, s, arena));
    return weight;
}

static ebb_remat_weight planned(const char *name, const ebb_remat_problem *p, uint64_t budget,
                                ebb_arena *arena)
{
    ebb_remat_schedule schedule;
    good(ebb_planner_plan(planner_named(name), &schedule, p, budget, STEPS, arena));
    return weighed(p, &schedule, arena);
}

static ebb_remat_weight unplanned(const ebb_remat_problem *p, ebb_arena *arena)
{
    ebb_remat_schedule all;
    assert_null(ebb_remat_keep_all(&all, p, arena));
    return weighed(p, &all, arena);
}

/* ---- any step ---- */

TEST(every_schedule_of_a_random_step_is_legal)
{
    static const char *const names[] = {"dtr", "lower-set"};
    int fitted[2] = {0, 0};
    for (uint32_t i = 0; i < 240 / FEWER; i++) {
        OWNED_ARENA arena = {0};
        seed = i;
        ebb_remat_problem p = random_step(&arena, 3 + i % 40, i % 3 == 0);
        ebb_remat_weight all = unplanned(&p, &arena);
        for (uint64_t percent = 100; percent >= 20; percent -= 20) {
            uint64_t budget = all.peak_bytes * percent / 100;
            for (int k = 0; k < 2; k++) {
                ebb_remat_weight w = planned(names[k], &p, budget, &arena);
                assert_true(w.peak_bytes <= all.peak_bytes);
                assert_true(w.peak_bytes >= ebb_remat_floor(&p));
                fitted[k] += percent == 80 && w.peak_bytes <= budget;
            }
        }
    }
    assert_true(fitted[0] > 120 / FEWER && fitted[1] > 60 / FEWER);
}

/* Operator 0 makes a, which is read late, and statistics r, which stay; 1 makes b from a; both read
 * a state that 4 overwrites. Under 30 bytes all three are evicted, and made again before 4: r comes
 * with a, and must not go when room is made for b. */
TEST(what_came_with_another_output_stays_over_the_overwriting)
{
    OWNED_ARENA arena = {0};
    memset(the_step, 0, sizeof *the_step);
    uint32_t x = new_value(0), u = new_op(1, false);
    reads(u, x);
    uint32_t a = makes(u, 10), r = makes(u, 4);
    the_step->value[r].stays = true;
    reads(u = new_op(1, false), a);
    uint32_t b = makes(u, 10);
    the_step->op[u].workspace = 6;
    the_step->op[0].before = the_step->op[1].before = 4;
    reads(u = new_op(1, false), b);
    uint32_t c = makes(u, 20);
    reads(u = new_op(1, false), c);
    uint32_t d = makes(u, 1);
    reads(u = new_op(1, true), d);
    the_step->value[makes(u, 0)].stays = true;
    the_step->op[u].once = true;
    reads(u = new_op(1, true), a);
    reads(u, b);
    reads(u, d);
    the_step->value[makes(u, 1)].stays = true;
    ebb_remat_problem p = finished(&arena);
    for (uint64_t budget = 26; budget <= 45; budget++)
        (void)planned("dtr", &p, budget, &arena);
}

TEST(what_fits_is_not_touched)
{
    static const char *const names[] = {"dtr", "lower-set"};
    OWNED_ARENA arena = {0};
    seed = 5;
    ebb_remat_problem p = random_step(&arena, 30, false);
    ebb_remat_weight all = unplanned(&p, &arena);
    for (int k = 0; k < 2; k++) {
        ebb_remat_weight w = planned(names[k], &p, all.peak_bytes, &arena);
        assert_int_equal(w.repeats, 0);
    }
}

TEST(a_step_without_operators_has_an_empty_schedule)
{
    static const char *const names[] = {"dtr", "lower-set"};
    ebb_remat_problem p = {.base_bytes = 10};
    for (int k = 0; k < 2; k++) {
        OWNED_ARENA arena = {0};
        assert_int_equal(planned(names[k], &p, 5, &arena).cost_ns, 0);
    }
}

TEST(the_same_problem_gives_the_same_schedule)
{
    static const char *const names[] = {"dtr", "lower-set"};
    OWNED_ARENA arena = {0};
    seed = 11;
    ebb_remat_problem p = random_step(&arena, 50, true);
    uint64_t budget = unplanned(&p, &arena).peak_bytes * 7 / 10;
    for (int k = 0; k < 2; k++) {
        ebb_remat_schedule a, b;
        assert_null(ebb_planner_plan(planner_named(names[k]), &a, &p, budget, STEPS, &arena));
        assert_null(ebb_planner_plan(planner_named(names[k]), &b, &p, budget, STEPS, &arena));
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.ops, b.ops, a.count * sizeof *a.ops);
    }
}

/* ---- dtr ---- */

/* The paper's theorem: of order sqrt(n) memory, of order n operators. */
TEST(a_linear_net_runs_in_the_root_of_its_memory)
{
    for (uint32_t n = 64; n <= 1024; n *= 2) {
        OWNED_ARENA arena = {0};
        ebb_remat_problem p = linear_net(&arena, n);
        uint64_t budget = 4 + (uint64_t)(2 * sqrt((double)n));
        ebb_remat_weight w = planned("dtr", &p, budget, &arena);
        assert_true(w.peak_bytes <= budget);
        assert_true(w.cost_ns <= 4.0 * n); // 2n without recomputation
    }
}

/* ---- lower-set ---- */

/* The cheapest schedule of a chain's prefixes by trying all of them; INFINITY: none fits. */
static double cheapest_of_all_cuts(const ebb_remat_problem *p, uint32_t n, uint64_t budget,
                                   ebb_arena *arena)
{
    double cheapest = (double)INFINITY;
    uint32_t *ops = EBB_NEW(arena, uint32_t, 4 * (size_t)n + 4);
    for (uint32_t cuts = 0; cuts < 1u << (n - 1); cuts++) { // bit i: a block ends after operator i
        size_t count = 0;
        for (uint32_t u = 0; u < n; u++)
            ops[count++] = u;
        uint32_t end = n;
        while (end > 0) { // the block [begin, end)
            uint32_t begin = end - 1;
            while (begin > 0 && (cuts >> (begin - 1) & 1) == 0)
                begin--;
            for (uint32_t u = begin; u + 1 < end && end < n; u++)
                ops[count++] = u; // its last output was kept
            for (uint32_t u = end; u-- > begin;)
                ops[count++] = 2 * n - 1 - u;
            end = begin;
        }
        ebb_remat_schedule s = {ops, count}, pruned;
        assert_null(ebb_remat_prune(&pruned, p, &s, arena));
        ebb_remat_weight w = weighed(p, &pruned, arena);
        if (w.peak_bytes <= budget && w.cost_ns < cheapest)
            cheapest = w.cost_ns;
    }
    return cheapest;
}

static ebb_remat_problem random_chain(ebb_arena *arena, uint32_t n)
{
    memset(the_step, 0, sizeof *the_step);
    uint32_t y[16] = {new_value(1 + below(20))};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = new_op(1 + below(50), false);
        reads(u, y[i]);
        y[i + 1] = makes(u, 1 + below(100));
    }
    uint32_t grad = y[n];
    for (uint32_t i = n; i-- > 0;) { // operator 2n - 1 - i is the backward of i
        uint32_t u = new_op(1 + below(50), true);
        reads(u, grad);
        reads(u, y[i + 1]);
        grad = makes(u, 1 + below(100));
    }
    the_step->value[grad].stays = true;
    return finished(arena);
}

TEST(a_chain_is_cut_no_worse_than_by_trying_all_cuts)
{
    int feasible = 0;
    for (uint32_t i = 0; i < 120 / FEWER; i++) {
        OWNED_ARENA arena = {0};
        uint32_t n = 2 + i % 7;
        seed = 1000 + i;
        ebb_remat_problem p = random_chain(&arena, n);
        uint64_t peak = unplanned(&p, &arena).peak_bytes;
        for (uint64_t percent = 95; percent >= 50; percent -= 15) {
            uint64_t budget = peak * percent / 100;
            double best = cheapest_of_all_cuts(&p, n, budget, &arena);
            ebb_remat_weight w = planned("lower-set", &p, budget, &arena);
            if (best == (double)INFINITY)
                continue;
            feasible++;
            if (w.peak_bytes > budget || w.cost_ns > best)
                fail_msg("chain %u of %u at %d %%: %.0f ns in %llu of %llu bytes; cuts reach %.0f",
                         i, n, (int)percent, w.cost_ns, (unsigned long long)w.peak_bytes,
                         (unsigned long long)budget, best);
        }
    }
    assert_true(feasible > 100 / FEWER);
}

/* ---- ilp ---- */

static bool without_solver(ebb_status status)
{
    return ebb_status_code(status) == EBB_UNSUPPORTED &&
           strstr(ebb_status_text(status), "solver") != NULL;
}

TEST(small_steps_get_a_schedule_that_fits_or_none)
{
    int fitted = 0;
    for (uint32_t i = 0; i < 24; i++) {
        ebb_arena arena = {0};
        seed = 77 + i;
        ebb_remat_problem p = random_step(&arena, 3 + i % 3, i % 2 == 0);
        uint64_t budget = unplanned(&p, &arena).peak_bytes * (95 - i % 3 * 10) / 100;
        ebb_remat_schedule s;
        ebb_status status = ebb_planner_plan(planner_named("ilp"), &s, &p, budget, STEPS, &arena);
        if (without_solver(status)) {
            ebb_arena_fini(&arena);
            skip();
        }
        if (status == NULL) {
            assert_true(weighed(&p, &s, &arena).peak_bytes <= budget);
            fitted++;
        } else {
            assert_int_equal(ebb_status_code(status), EBB_NO_PLAN);
        }
        ebb_arena_fini(&arena);
    }
    assert_true(fitted > 4);
}

TEST(a_step_too_large_for_the_solver_is_refused)
{
    OWNED_ARENA arena = {0};
    ebb_remat_problem p = linear_net(&arena, 60);
    ebb_remat_schedule s;
    ebb_status status = ebb_planner_plan(planner_named("ilp"), &s, &p, 30, STEPS, &arena);
    assert_int_equal(ebb_status_code(status), EBB_UNSUPPORTED);
    if (!without_solver(status))
        assert_non_null(strstr(ebb_status_text(status), "at most 100 operators"));
}

/* The optimum of Checkmate's form of one row of optimum.csv; 0 where the solver is missing. */
static bool row_agrees(const char *graph, uint64_t budget, const char *expected)
{
    char path[512], text[32] = "infeasible";
    (void)snprintf(path, sizeof path, EBB_SOURCE_DIR "/../shared/bench/graphs/small/%s.onnx",
                   graph);
    OWNED_ARENA arena = {0};
    OWNED_MODEL *model = NULL;
    ebb_estimate estimate;
    ebb_remat_source source;
    assert_null(ebb_model_read(&model, path));
    (void)ebb_infer_graph(model->graph);
    assert_null(ebb_estimate_make(&estimate, &arena, model->graph, NULL));
    assert_null(ebb_remat_source_make(&source, &arena, model->graph, &estimate));
    ebb_remat_schedule s;
    ebb_status status =
        ebb_planner_plan(planner_named("ilp"), &s, &source.problem, budget, UINT64_MAX, &arena);
    bool missing = without_solver(status);
    if (status == NULL) {
        ebb_remat_weight w = weighed(&source.problem, &s, &arena);
        assert_true(w.peak_bytes <= budget);
        (void)snprintf(text, sizeof text, "%.0f", w.cost_ns);
    } else if (!missing && ebb_status_code(status) != EBB_NO_PLAN) {
        fail_msg("%s", ebb_status_text(status));
    }
    if (!missing && strcmp(text, expected) != 0)
        fail_msg("%s at %llu bytes: %s, published %s", graph, (unsigned long long)budget, text,
                 expected);
    return !missing;
}

TEST(optima_of_checkmate_s_form_are_the_published_ones)
{
    FILE *file = fopen(EBB_SOURCE_DIR "/../shared/bench/graphs/small/optimum.csv", "r");
    if (file == NULL) {
        print_message("../shared/bench/graphs/small is not there\n");
        skip();
    }
    char line[256], graph[32], budget[32], expected[32];
    int rows = 0;
    bool solver = true;
    while (solver && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%31[^,],%31[0-9],%*[^,],%*[^,],%*[^,],%31[^,]", graph, budget,
                   expected) != 3)
            continue;
        if (rows++ % (int)share(SANITIZED ? 64 : 6) == 0)
            solver = row_agrees(graph, strtoull(budget, NULL, 10), expected);
    }
    (void)fclose(file);
    if (!solver)
        skip();
    assert_int_equal(rows, 95);
}

static int make_step(void **state)
{
    (void)state;
    the_step = ebb_alloc(sizeof *the_step);
    return the_step == NULL;
}

static int free_step(void **state)
{
    (void)state;
    ebb_free(the_step);
    return 0;
}

const fixture around_all = {make_step, free_step};
