/* test_schedules.c: walks over memory and disk as steps: the graph has the runs, writes and reads of
 * the schedule, and trains with the same bits as the step without.
 *
 * Moves are taken to cost nothing, or much, so that little and much lies on disk.
 */
#include <stdio.h>

#include "onnx/graph/infer.h"
#include "passes/budget/trial.h"
#include "tests/models/alike.h"
#include "tests/owned.h"
#include "tests/text.h"

static const char *const planners[] = {"disk-revolve", "periodic-disk-revolve", "hrevolve",
                                       "multistage",   "double-checkpoint",     "pofo"};
enum { PLANNERS = sizeof planners / sizeof *planners };
static const uint64_t work = 1000 * 1000;

typedef struct counts {
    size_t moves[4], repeats;
} counts;

static counts counts_of_schedule(const ebb_remat_problem *p, const ebb_remat_schedule *s)
{
    counts c = {.repeats = s->count - p->op_count};
    for (size_t i = 0; i < s->count; i++) {
        if (!ebb_remat_is_move(p, s->ops[i]))
            continue;
        c.moves[ebb_remat_moves_how(p, s->ops[i])]++;
        c.repeats--;
    }
    return c;
}

/* A Wait is of a Store or of a Fetch; a copy bears the name of what it repeats. Views are no runs. */
static counts counts_of_graph(const ebb_graph *g)
{
    counts c = {.repeats = 0};
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *node = ebb_node_of(g, n);
        c.repeats += ebb_props_get(g, &node->props, "ebb.copied_from") != NULL &&
                     !ebb_op_has(node->op, EBB_VIEW);
        c.moves[EBB_REMAT_STORE] += node->op == EBB_OP_STORE;
        c.moves[EBB_REMAT_FETCH] += node->op == EBB_OP_FETCH;
        if (node->op != EBB_OP_WAIT)
            continue;
        const bool away = ebb_value_place(g, ebb_out(g, n, 0)) != EBB_PLACE_DEVICE;
        c.moves[away ? EBB_REMAT_AWAY : EBB_REMAT_BACK]++;
    }
    return c;
}

typedef struct checked {
    size_t fetched;
    ebb_remat_weight weight;
} checked;

/* One plan, applied as pass recompute does it. */
static checked check_plan(const run *kept, const char *path, const char *name, uint64_t budget,
                          double move_ns)
{
    static const ebb_pass nobody = {.name = "test"};
    ebb_report report = {.pass = nobody.name};
    OWNED_ARENA arena = {0};
    run walked = {NULL, NULL};
    ebb_trial trial;
    ebb_remat_schedule schedule;
    ebb_remat_weight weight;
    size_t copies;
    good(ebb_open(&walked.model, path));
    ebb_graph *g = walked.model->graph;
    good(ebb_trial_weigh(&trial, &arena, g, "cpu"));
    trial.source.problem.move_ns = move_ns;
    good(ebb_planner_plan(ebb_planner_find(name), &schedule, &trial.source.problem, budget, work,
                          &arena));
    good(ebb_remat_weigh(&weight, NULL, &trial.source.problem, &schedule, &arena));
    ebb_edit e = {.g = g, .pass = &nobody, .scratch = &arena, .keep = &arena, .report = &report};
    good(ebb_remat_apply(&e, &trial.source, &schedule, &copies));
    const counts planned = counts_of_schedule(&trial.source.problem, &schedule);
    const counts written = counts_of_graph(g);
    assert_memory_equal(&planned, &written, sizeof planned);
    assert_int_equal(planned.repeats, weight.repeats);
    assert_int_equal(copies, weight.repeats);
    assert_int_equal(planned.moves[EBB_REMAT_STORE], planned.moves[EBB_REMAT_AWAY]);
    assert_int_equal(planned.moves[EBB_REMAT_FETCH], planned.moves[EBB_REMAT_BACK]);
    good(ebb_pipeline_mark(g));
    good(ebb_verify(g));
    run_start(&walked);
    compare(kept, &walked, name);
    const ebb_program_facts f = ebb_program_measure(walked.program);
    assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
    assert_int_equal(f.planned_disk_bytes, f.disk_bytes);
    assert_true(f.planned_arena_bytes + trial.source.spare_bytes >= weight.peak_bytes);
    assert_true((f.disk_bytes > 0) == (planned.moves[EBB_REMAT_STORE] > 0));
    run_close(&walked);
    return (checked){planned.moves[EBB_REMAT_FETCH], weight};
}

TEST(schedules_on_disk_train_with_the_same_bits)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        char step[256];
        run kept = {NULL, NULL};
        write_step(step, sizeof step, "schedules", i);
        run_open(&kept, step, "alias:what=views");
        const uint64_t arena = ebb_program_measure(kept.program).planned_arena_bytes;
        for (size_t k = 0; k < PLANNERS; k++) {
            size_t fetched = 0;
            if ((i + k) % share(2) != 0)
                continue;
            fetched += check_plan(&kept, step, planners[k], arena / 4 * 3, 0).fetched;
            fetched += check_plan(&kept, step, planners[k], arena / 2, 0).fetched;
            fetched += check_plan(&kept, step, planners[k], arena / 2, 1).fetched;
            print_message("%s, %s: %zu tensors fetched\n", samples[i].model, planners[k], fetched);
            assert_true(fetched > 0 || i == 0); // the first has three layers
        }
        run_close(&kept);
        (void)remove(step);
    }
}

/* What pass recompute says of a plan is what it writes. */
TEST(the_pass_keeps_its_budget_with_values_on_disk)
{
    char step[256], pass[128];
    run kept = {NULL, NULL};
    write_step(step, sizeof step, "schedules_pass", 2);
    run_open(&kept, step, NULL);
    const uint64_t arena = ebb_program_measure(kept.program).planned_arena_bytes;
    for (size_t k = 0; k < PLANNERS; k++) {
        size_t fits = 0;
        for (uint64_t share = 85; share >= 65; share -= 20) {
            const uint64_t budget = arena / 100 * share;
            ebb_model *m = NULL;
            (void)snprintf(pass, sizeof pass, "recompute:planner=%s,budget=%llu", planners[k],
                           (unsigned long long)budget);
            good(ebb_open(&m, step));
            const ebb_status status = ebb_rewrite(m, pass, NULL, NULL);
            ebb_close(m);
            if (status != NULL) {
                assert_int_equal(ebb_status_code(status), EBB_NO_PLAN);
                continue;
            }
            run walked = {NULL, NULL};
            run_open(&walked, step, pass);
            compare(&kept, &walked, pass);
            assert_true(ebb_program_measure(walked.program).measured_arena_bytes <= budget);
            run_close(&walked);
            fits++;
        }
        print_message("%s: %zu of 2 budgets\n", planners[k], fits);
        assert_true(fits > 0);
    }
    run_close(&kept);
    (void)remove(step);
}

/* ---- chains that meet ---- */

enum { LAYERS = 10, ROWS = 256, WIDE = 16 };

typedef struct writer {
    char text[1 << 17];
    size_t at;
} writer;

static void add(writer *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    w->at += (size_t)vsnprintf(w->text + w->at, sizeof w->text - w->at, format, list);
    va_end(list);
    assert_true(w->at < sizeof w->text);
}

static void add_weights(writer *w, char tower, int layers, uint64_t seed)
{
    for (int i = 0; i < layers; i++) {
        add(w, "%sfloat[%d,%d] w%c%d = {", w->text[w->at - 1] == '<' ? "" : ", ", WIDE, WIDE, tower,
            i);
        for (int k = 0; k < WIDE * WIDE; k++)
            add(w, "%s%.3f", k > 0 ? "," : "", (double)(draw(&seed) % 1000) / 1000 - 0.5);
        add(w, "}");
    }
}

static void add_layers(writer *w, char tower, char weights, int layers)
{
    for (int i = 0; i < layers; i++)
        add(w, "m%c%d = MatMul(h%c%d, w%c%d) h%c%d = %s(m%c%d) ", tower, i, tower, i, weights, i,
            tower, i + 1, i % 3 == 0 ? "Tanh" : "Sigmoid", tower, i);
}

/* A step of two encoders, one of them longer or both with the same weights, whose outputs are multiplied. */
static void write_towers(char *step, size_t size, bool shared)
{
    static writer w;
    const int second = shared ? LAYERS : LAYERS / 2;
    RELEASED char *pipeline = NULL;
    w.at = 0;
    add(&w,
        "<ir_version: 10, opset_import: [\"\" : 20]> g (float[%d,%d] ha0, float[%d,%d] hb0) => "
        "(float[%d,%d] y) <",
        ROWS, WIDE, ROWS, WIDE, ROWS, WIDE);
    add_weights(&w, 'a', LAYERS, 1);
    if (!shared)
        add_weights(&w, 'b', second, 2);
    add(&w, "> { ");
    add_layers(&w, 'a', 'a', LAYERS);
    add_layers(&w, 'b', shared ? 'a' : 'b', second);
    add(&w, "y = Mul(ha%d, hb%d) }", LAYERS, second);
    OWNED_MODEL *m = parsed(w.text);
    good(ebb_step_pipeline(&pipeline, &(ebb_step_options){.loss = "mse", .optimizer = "adamw"}));
    good(ebb_rewrite(m, pipeline, NULL, NULL));
    (void)snprintf(step, size, EBB_BINARY_DIR "/schedules_towers.onnx");
    good(ebb_save(m, step));
}

/* And cheaper than as one chain, or where that does not fit. */
TEST(chains_that_meet_train_with_the_same_bits)
{
    for (int shared = 0; shared < 2; shared++) {
        char step[256];
        run kept = {NULL, NULL};
        int cheaper = 0;
        write_towers(step, sizeof step, shared);
        run_open(&kept, step, "alias:what=views");
        const uint64_t arena = ebb_program_measure(kept.program).planned_arena_bytes;
        for (uint64_t part = 80; part >= 30; part -= 10) {
            const uint64_t budget = arena / 100 * part;
            const ebb_remat_weight one = check_plan(&kept, step, "revolve", budget, 0).weight;
            const ebb_remat_weight several = check_plan(&kept, step, "join", budget, 0).weight;
            const bool fits = several.peak_bytes <= budget;
            assert_true(fits || one.peak_bytes > budget);
            cheaper += fits && (one.peak_bytes > budget || several.cost_ns < one.cost_ns);
            print_message("%s weights, %llu %%: as one chain %s %.0f ns, as two %s %.0f ns\n",
                          shared ? "shared" : "own", (unsigned long long)part,
                          one.peak_bytes > budget ? "too large" : "fits", one.cost_ns,
                          fits ? "fits" : "too large", several.cost_ns);
        }
        assert_true(cheaper > 0);
        run_close(&kept);
        (void)remove(step);
    }
}
