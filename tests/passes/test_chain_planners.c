/* test_chain_planners.c: the planners that see a chain: their exact numbers, and their schedules.
 *
 * Counts are compared with the published values and with brute force; schedules with the referee
 * and with schedules that this file makes in the plainest way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "passes/planners/chain.h"
#include "passes/planners/kept.h"
#include "passes/planners/links.h"
#include "passes/planners/revolve.h"

static const uint64_t work = 10u * 1000 * 1000;
static const char *const planners[] = {"sqrt", "chain-dp", "chain-linear", "revolve", "rotor"};
enum { PLANNERS = sizeof planners / sizeof *planners };

static uint64_t seed;

static uint32_t draw(uint32_t below) /* 0 .. below - 1 */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

#define OK(call) assert_null(call)

/* ---- problems ---- */

enum { MOST_OPERANDS = 8 };

typedef struct step {
    ebb_arena arena;
    ebb_remat_problem problem;
    ebb_remat_op *ops;
    ebb_remat_value *values;
    uint32_t room;
} step;

static void step_init(step *s, uint32_t room)
{
    *s = (step){.room = room};
    s->ops = EBB_NEW(&s->arena, ebb_remat_op, room);
    s->values = EBB_NEW(&s->arena, ebb_remat_value, room * (size_t)3);
    assert_non_null(s->ops);
    assert_non_null(s->values);
}

static uint32_t add_op(step *s, double ns, bool backward)
{
    assert_true(s->problem.op_count < s->room);
    ebb_remat_op *op = &s->ops[s->problem.op_count];
    *op = (ebb_remat_op){.cost_ns = ns, .backward = backward, .before = EBB_REMAT_NONE};
    op->in = EBB_NEW(&s->arena, uint32_t, MOST_OPERANDS);
    op->out = EBB_NEW(&s->arena, uint32_t, MOST_OPERANDS);
    return s->problem.op_count++;
}

static void reads(step *s, uint32_t u, uint32_t v)
{
    ebb_remat_op *op = &s->ops[u];
    uint32_t *in = (uint32_t *)(uintptr_t)op->in;
    for (uint32_t k = 0; k < op->in_count; k++)
        if (in[k] == v)
            return;
    assert_true(op->in_count < MOST_OPERANDS);
    in[op->in_count++] = v;
    s->values[v].reader_count++;
}

static uint32_t makes(step *s, uint32_t u, uint64_t bytes) /* u NONE: an input */
{
    uint32_t v = s->problem.value_count++;
    assert_true(v < s->room * 3);
    s->values[v] = (ebb_remat_value){.bytes = bytes, .op = u};
    if (u != EBB_REMAT_NONE)
        ((uint32_t *)(uintptr_t)s->ops[u].out)[s->ops[u].out_count++] = v;
    return v;
}

static void step_finish(step *s)
{
    uint32_t **next = EBB_NEW(&s->arena, uint32_t *, s->problem.value_count + (size_t)1);
    for (uint32_t v = 0; v < s->problem.value_count; v++)
        s->values[v].readers = next[v] =
            EBB_NEW(&s->arena, uint32_t, s->values[v].reader_count + (size_t)1);
    for (uint32_t u = 0; u < s->problem.op_count; u++)
        for (uint32_t k = 0; k < s->ops[u].in_count; k++)
            *next[s->ops[u].in[k]]++ = u;
    s->problem.ops = s->ops;
    s->problem.values = s->values;
}

/* How a random step differs from n equal layers. Chances are in percent. */
typedef struct shape {
    uint32_t layers;
    bool equal;    /* all values 64 bytes, all costs 10 */
    uint32_t skip; /* a layer reads an earlier one, too */
    uint32_t side; /* a layer has a second output, for its backward */
    uint32_t once; /* a layer must not be repeated */
    bool weights;  /* gradients of weights, and updates after which the readers must not run */
} shape;

/* Layer i: value[i] -> value[i + 1]; its backward reads what it read, and the gradient. */
static void make_step(step *s, const shape *how)
{
    uint32_t n = how->layers;
    step_init(s, 4 * n + 8);
    uint32_t *value = EBB_NEW(&s->arena, uint32_t, n + (size_t)2);
    uint32_t *side = EBB_NEW(&s->arena, uint32_t, n + (size_t)2);
    uint32_t *skip = EBB_NEW(&s->arena, uint32_t, n + (size_t)2);
    uint32_t *skipped = EBB_NEW(&s->arena, uint32_t, n + (size_t)2); /* its gradient + 1 */
    uint32_t *weight = EBB_NEW(&s->arena, uint32_t, n + (size_t)2);
    s->problem.base_bytes = 1000;
    value[0] = makes(s, EBB_REMAT_NONE, 32);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = add_op(s, how->equal ? 10 : 1 + draw(100), false);
        s->ops[u].once = draw(100) < how->once;
        s->ops[u].workspace = how->equal ? 0 : draw(30);
        reads(s, u, value[i]);
        skip[i] = i > 1 && draw(100) < how->skip ? 1 + draw(i - 1) : 0;
        if (skip[i] > 0)
            reads(s, u, value[skip[i]]);
        value[i + 1] = makes(s, u, how->equal ? 64 : draw(200));
        side[i] = draw(100) < how->side ? makes(s, u, 1 + draw(40)) : 0;
    }
    uint32_t turn = add_op(s, 1, true), grad;
    reads(s, turn, value[n]);
    s->values[makes(s, turn, 4)].stays = true;
    grad = makes(s, turn, s->values[value[n]].bytes);
    for (uint32_t i = n; i-- > 0;) {
        uint32_t u = add_op(s, how->equal ? 20 : 1 + draw(200), true);
        reads(s, u, grad);
        reads(s, u, value[i]);
        if (side[i] > 0)
            reads(s, u, side[i]);
        if (skipped[i + 1] > 0)
            reads(s, u, skipped[i + 1] - 1);
        grad = makes(s, u, s->values[value[i]].bytes);
        if (skip[i] > 0 && skipped[skip[i]] == 0)
            skipped[skip[i]] = makes(s, u, s->values[value[skip[i]]].bytes) + 1;
        if (how->weights)
            weight[i] = makes(s, u, 1 + draw(20));
    }
    s->values[grad].stays = true; /* without a weight's gradient this is why the backward runs */
    for (uint32_t i = n; how->weights && i-- > 0;) {
        uint32_t u = add_op(s, 1, true);
        s->ops[u].once = true;
        reads(s, u, weight[i]);
        s->values[makes(s, u, 0)].stays = true;
        s->ops[i].before = u;
    }
    step_finish(s);
}

static ebb_remat_weight weigh(step *s, const ebb_remat_schedule *schedule)
{
    ebb_remat_weight w;
    OK(ebb_remat_weigh(&w, NULL, &s->problem, schedule, &s->arena));
    return w;
}

static ebb_remat_weight weigh_kept_all(step *s)
{
    ebb_remat_schedule all;
    OK(ebb_remat_keep_all(&all, &s->problem, &s->arena));
    return weigh(s, &all);
}

static ebb_remat_weight weigh_plan(step *s, const char *name, uint64_t budget)
{
    ebb_remat_schedule schedule;
    const ebb_planner *planner = ebb_planner_find(name);
    assert_non_null(planner);
    OK(planner->plan(&schedule, &s->problem, budget, work, &s->arena));
    return weigh(s, &schedule);
}

/* ---- binomial counts ---- */

static void forward_steps_are_those_of_algorithm_799(void **state)
{
    (void)state;
    static const uint64_t known[][3] = {{10, 3, 15},     {50, 5, 122},   {100, 5, 316},
                                        {100, 10, 222},  {200, 12, 495}, {1000, 10, 3636},
                                        {1000, 30, 2472}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(ebb_revolve_forwards(known[i][0], known[i][1]), known[i][2]);
    assert_int_equal(ebb_revolve_beta(3, 4), 35);
    assert_int_equal(ebb_revolve_beta(0, 9), 1);
    assert_int_equal(ebb_revolve_beta(-1, 2), 0);
    assert_int_equal(ebb_revolve_beta(3, -1), 0);
    assert_int_equal(ebb_revolve_beta(33, 33), 7219428434016265740u);
    assert_true(ebb_revolve_beta(1000, 1000) == UINT64_MAX);
}

static uint64_t by_rule(uint64_t steps, uint64_t slots)
{
    uint64_t sum = 0;
    while (steps > 1) {
        uint64_t advance = ebb_revolve_advance(steps, slots);
        assert_in_range(advance, 1, steps - 1);
        sum += advance + (slots > 1 ? by_rule(steps - advance, slots - 1) : 0);
        steps = advance;
    }
    return sum;
}

static void always_advancing_by_the_rule_takes_that_many_steps(void **state)
{
    (void)state;
    for (uint64_t slots = 1; slots <= 8; slots++)
        for (uint64_t steps = 1; steps < 120; steps++)
            assert_int_equal(by_rule(steps, slots), ebb_revolve_forwards(steps, slots));
}

static void the_recurrence_takes_that_many_steps(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= 7; slots++) {
        for (uint32_t steps = 1; steps < 90; steps += 13) {
            double cost;
            ebb_revolve_level memory = {.slots = slots};
            OK(ebb_revolve_cost(&cost, steps, &memory, 1, 1, 0));
            assert_int_equal((uint64_t)cost, ebb_revolve_forwards(steps + 1, slots));
        }
    }
}

static void two_memories_take_the_published_time(void **state)
{
    (void)state;
    static const struct {
        uint32_t steps, levels, fast, slow;
        double move, cost;
    } known[] = {{50, 1, 3, 0, 0, 236},   {50, 2, 3, 2, 2, 192},   {50, 2, 3, 5, 2, 184},
                 {100, 2, 5, 10, 5, 385}, {100, 2, 5, 10, 1, 326}, {200, 2, 5, 20, 5, 797}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        double cost;
        ebb_revolve_level memories[2] = {{known[i].fast, 0, 0},
                                         {known[i].slow, known[i].move, known[i].move}};
        OK(ebb_revolve_cost(&cost, known[i].steps, memories, known[i].levels, 1, 1));
        assert_true(cost == known[i].cost);
    }
}

/* ---- objectives of a chain ---- */

typedef struct links_case {
    uint32_t n;
    uint64_t keep[12], inner[12], work[12];
} links_case;

static uint64_t segment(const links_case *c, uint32_t i, uint32_t j)
{
    uint64_t sum = 0, most = 0;
    for (uint32_t k = i + 1; k <= j; k++) {
        sum += c->inner[k];
        most = c->work[k] > most ? c->work[k] : most;
    }
    return (sum > c->keep[j] ? sum - c->keep[j] : 0) + most;
}

/* Both objectives of one subset, bit k for node k. */
static void objectives(const links_case *c, uint32_t subset, uint64_t *resident, uint64_t *running)
{
    uint64_t kept = 0, largest = 0, sum = 0;
    uint32_t left = 0;
    *running = 0;
    for (uint32_t j = 1; j <= c->n + 1; j++) {
        if (j <= c->n && (subset >> j & 1) == 0)
            continue;
        uint64_t s = segment(c, left, j);
        largest = s > largest ? s : largest;
        *running = sum + s > *running ? sum + s : *running;
        kept += j <= c->n ? c->keep[j] : 0;
        sum = kept;
        left = j;
    }
    *resident = kept + largest;
}

/* plain: outputs alone, as in the paper. Else stages that make more than leaves them. */
static void draw_links(links_case *c, bool plain)
{
    *c = (links_case){.n = 1 + draw(9)};
    for (uint32_t k = 1; k <= c->n + 1; k++) {
        uint64_t bytes = 1 + draw(30);
        c->keep[k] = k <= c->n ? bytes : 0;
        c->inner[k] = plain ? c->keep[k] : bytes + draw(20);
        c->work[k] = plain ? 0 : draw(15);
    }
}

static void chain_objectives_equal_brute_force(void **state)
{
    (void)state;
    seed = 11;
    for (int round = 0; round < 800; round++) {
        links_case c;
        ebb_arena arena = {0};
        ebb_links links;
        uint64_t resident = UINT64_MAX, running = UINT64_MAX, need[12], bound[12], a, b;
        draw_links(&c, round < 400);
        for (uint32_t subset = 0; subset < 2u << c.n; subset += 2) {
            objectives(&c, subset, &a, &b);
            resident = a < resident ? a : resident;
            running = b < running ? b : running;
        }
        OK(ebb_links_make(&links, c.n, c.keep, c.inner, c.work, &arena));
        OK(ebb_links_least_resident(&links, NULL, need, bound, &arena));
        assert_int_equal(need[c.n + 1], resident);
        bool kept[12] = {false};
        uint32_t subset = 0;
        ebb_links_resident(&links, bound[c.n + 1]);
        ebb_links_trace(&links, c.n + 1, kept);
        for (uint32_t k = 1; k <= c.n; k++)
            subset |= (uint32_t)kept[k] << k;
        objectives(&c, subset, &a, &b);
        assert_int_equal(a, resident);
        assert_int_equal(ebb_links_least_running(&links), running);
        ebb_arena_fini(&arena);
    }
}

static void a_thousand_equal_outputs_need_63_and_44(void **state)
{
    (void)state;
    enum { N = 1024 };
    uint64_t *one = ebb_alloc((N + 2) * sizeof *one), *need = ebb_alloc((N + 2) * sizeof *need);
    uint64_t *bound = ebb_alloc((N + 2) * sizeof *bound);
    for (int k = 0; k < N + 2; k++)
        one[k] = k >= 1 && k <= N;
    ebb_arena arena = {0};
    ebb_links links;
    OK(ebb_links_make(&links, N, one, one, NULL, &arena));
    OK(ebb_links_least_resident(&links, NULL, need, bound, &arena));
    assert_int_equal(need[N + 1], 63);
    assert_int_equal(ebb_links_least_running(&links), 44);
    ebb_arena_fini(&arena);
    ebb_free(one);
    ebb_free(need);
    ebb_free(bound);
}

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

static void what_is_not_kept_is_made_again_when_it_is_read(void **state)
{
    (void)state;
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

static void a_repeat_moves_to_its_first_reader(void **state)
{
    (void)state;
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

/* Any choice of kept values gives a schedule that runs, however the step looks. */
static void any_choice_of_kept_values_runs(void **state)
{
    (void)state;
    seed = 5;
    for (int round = 0; round < 400; round++) {
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

static void equal_layers_fit_where_equal_segments_do(void **state)
{
    (void)state;
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

/* A forward from the start for each layer: nothing needs less. Those that can repeat a stage more
 * than twice come near it; and for equal layers take no more steps than binomial checkpointing. */
static void the_least_memory_is_reached(void **state)
{
    (void)state;
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
static void unequal_layers_fit(void **state)
{
    (void)state;
    seed = 23;
    for (int round = 0; round < 40; round++) {
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
static void branches_and_long_skips_nearly_always_fit(void **state)
{
    (void)state;
    seed = 29;
    uint32_t fits = 0;
    for (int round = 0; round < 30; round++) {
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
    print_message("%u of %u fit\n", fits, 30u * PLANNERS);
    assert_true(fits >= 27u * PLANNERS);
}

/* ---- edges ---- */

static void nothing_and_next_to_nothing_are_planned(void **state)
{
    (void)state;
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

static void out_of_memory_is_an_error_and_no_crash(void **state)
{
    (void)state;
    step s;
    seed = 3;
    make_step(&s, &(shape){.layers = 12, .skip = 20, .side = 20});
    for (int i = 0; i < PLANNERS; i++) {
        long count = ebb_alloc_count();
        (void)weigh_plan(&s, planners[i], 1100);
        count = ebb_alloc_count() - count;
        for (long n = 1; n <= count; n += 1 + count / 40) {
            ebb_arena arena = {0};
            ebb_remat_schedule schedule;
            ebb_alloc_fail_after(n);
            ebb_status status =
                ebb_planner_find(planners[i])->plan(&schedule, &s.problem, 1100, work, &arena);
            ebb_alloc_fail_after(0);
            assert_non_null(status);
            ebb_arena_fini(&arena);
        }
    }
    ebb_arena_fini(&s.arena);
}

static void fifty_thousand_operators_are_planned_in_seconds(void **state)
{
    (void)state;
    for (int i = 0; i < PLANNERS; i++) {
        step s;
        seed = 41;
        make_step(&s, &(shape){.layers = 25000, .skip = 1, .side = 10});
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_steps_are_those_of_algorithm_799),
        cmocka_unit_test(always_advancing_by_the_rule_takes_that_many_steps),
        cmocka_unit_test(the_recurrence_takes_that_many_steps),
        cmocka_unit_test(two_memories_take_the_published_time),
        cmocka_unit_test(chain_objectives_equal_brute_force),
        cmocka_unit_test(a_thousand_equal_outputs_need_63_and_44),
        cmocka_unit_test(what_is_not_kept_is_made_again_when_it_is_read),
        cmocka_unit_test(a_repeat_moves_to_its_first_reader),
        cmocka_unit_test(any_choice_of_kept_values_runs),
        cmocka_unit_test(equal_layers_fit_where_equal_segments_do),
        cmocka_unit_test(the_least_memory_is_reached),
        cmocka_unit_test(unequal_layers_fit),
        cmocka_unit_test(branches_and_long_skips_nearly_always_fit),
        cmocka_unit_test(nothing_and_next_to_nothing_are_planned),
        cmocka_unit_test(out_of_memory_is_an_error_and_no_crash),
        cmocka_unit_test(fifty_thousand_operators_are_planned_in_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
