/* test_cost.c: nodes bear the times of a calibration file, and nothing else changes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include "exec/weigh/costs.h"
#include "exec/weigh/traffic.h"
#include "exec/weigh/estimate.h"
#include "kernels/device.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

static char path[] = "/tmp/ebb-cost-XXXXXX", pipeline[64];

static const char text[] =
    "<ir_version: 10, opset_import: [\"\" : 20]> g (float[64] x) => (float[64] y, float[32] z) { "
    "a = Relu (x) b, c = Split <axis = 0, num_outputs = 2> (a) z = Relu (b) y = Sigmoid (a) }";

static ebb_arena keep;
static ebb_report *reports;
static size_t count;

static ebb_model *parse(void)
{
    ebb_model *m = model_of(text);
    return m;
}

static ebb_status run(ebb_model *m, const char *passes, bool strict)
{
    const ebb_rewrite_options options = {.verify_each = true, .strict = strict};
    return ebb_pipeline_run(m, passes, &options, &keep, &reports, &count);
}

/* The first Relu was measured, its family then has a rate; Sigmoid and Split are not known. */
static int write_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0 || close(fd) != 0)
        return 1;
    (void)snprintf(pipeline, sizeof pipeline, "cost:file=%s", path);
    OWNED_MODEL *m = parse();
    ebb_costs *costs;
    good(ebb_costs_new(&costs, "cpu", 2));
    good(ebb_costs_add(costs, m->graph, ebb_first(m->graph), 5120));
    good(ebb_costs_fit(costs));
    good(ebb_costs_write(costs, path));
    ebb_costs_free(costs);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    ebb_arena_fini(&keep);
    return unlink(path);
}

static ebb_node node_of(const ebb_graph *g, const char *output)
{
    return ebb_value_of(g, ebb_value_find(g, output))->producer;
}

TEST(nodes_take_the_measured_time_else_the_rate_else_the_estimate)
{
    OWNED_MODEL *m = parse();
    const ebb_graph *g = m->graph;
    double estimated = ebb_node_ns(g, node_of(g, "y"));
    good(run(m, pipeline, false));
    assert_true(ebb_node_ns(g, node_of(g, "a")) == 5120.0);
    assert_true(ebb_node_ns(g, node_of(g, "z")) == 2560.0); // half the bytes
    assert_true(ebb_node_ns(g, node_of(g, "y")) == estimated);
    assert_string_equal(ebb_props_get(g, &ebb_node_of(g, node_of(g, "a"))->props, "ebb.cost_ns"),
                        "5120");
    assert_int_equal(reports[0].applied, 2);
    assert_int_equal(reports[0].skip_count, 1);
    assert_int_equal(reports[0].skips[0].count, 2);
    assert_non_null(strstr(reports[0].notes[0], "1 as measured, 1 by the rates"));
}

TEST(a_second_run_changes_nothing_and_a_wrong_time_is_overwritten)
{
    OWNED_MODEL *m = parse();
    const ebb_graph *g = m->graph;
    good(run(m, pipeline, false));
    good(run(m, pipeline, true)); // also where asked for strictly
    assert_int_equal(reports[0].applied, 0);
    good(ebb_props_set(m->graph, &ebb_node_of(g, node_of(g, "a"))->props, "ebb.cost_ns", "1"));
    good(ebb_props_set(m->graph, &ebb_node_of(g, node_of(g, "y"))->props, "ebb.cost_ns", "77"));
    good(run(m, pipeline, false));
    assert_int_equal(reports[0].applied, 1);
    assert_true(ebb_node_ns(g, node_of(g, "a")) == 5120.0);
    assert_true(ebb_node_ns(g, node_of(g, "y")) == 77.0); // the file knows nothing better
}

TEST(marks_of_shared_memory_stay)
{
    OWNED_MODEL *m = parse();
    RELEASED char *before = NULL, *after = NULL;
    good(run(m, "alias", false));
    good(ebb_text_print(&before, m->graph));
    good(run(m, pipeline, false));
    good(ebb_text_print(&after, m->graph));
    assert_string_equal(before, after);
}

/* ---- estimates ---- */

/* The time of the first node, by the rates of the host. */
static double estimate_of(const char *dtype, const char *node)
{
    char line[256];
    (void)snprintf(
        line, sizeof line,
        "<ir_version: 10, opset_import: [\"\" : 20]> g (%s[1024,1024] x, %s[1024,1024] w) => "
        "(%s[1024,1024] y) { y = %s (x, w) }",
        dtype, dtype, dtype, node);
    OWNED_MODEL *m = model_of(line);
    const double ns = ebb_node_ns(m->graph, ebb_first(m->graph));
    return ns;
}

/* bert_base, resnet18 and resnet50 took 0.60 to 0.63 of float32's time in bfloat16. */
TEST(products_of_16_bits_are_estimated_by_their_own_rate)
{
    const double wide = estimate_of("float", "MatMul");
    static const char *const halves[] = {"bfloat16", "float16"};
    for (size_t i = 0; i < 2; i++) {
        const double product = estimate_of(halves[i], "MatMul") / wide;
        assert_true(product > 0.5 && product < 0.63);
        const double sum = estimate_of(halves[i], "Add") / estimate_of("float", "Add");
        assert_true(sum > 0.49 && sum < 0.51); // by its bytes
    }
    assert_true(estimate_of("double", "MatMul") >= wide);
}

static void says(const char *passes, ebb_code code, const char *words)
{
    OWNED_MODEL *m = parse();
    ebb_status status = run(m, passes, false);
    assert_non_null(status);
    refused(status, code, words);
}

static void near(double ns, double expected)
{
    if (fabs(ns - expected) > 1e-3)
        fail_msg("%f ns, not %f", ns, expected);
}

/* 64 x 64 x 64 are 2 * 262,144 operations; three matrices of 4,096 elements. */
TEST(times_are_those_of_the_machine_that_the_model_is_planned_for)
{
    static const ebb_rates bound = {1000, 100, 10, 1e9, 7, {0, 0, 0}, {0, 0, 0}},
                           moving = {1e9, 1e9, 1e9, 2, 5, {0, 0, 0}, {0, 0, 0}};
    OWNED_MODEL *m = NULL, *copy = NULL;
    good(ebb_text_parse_model(
        &m, "<ir_version: 10, opset_import: [\"\" : 20]> g (float[64,64] x, bfloat16[64,64] n) => "
            "(float[64,64] y, bfloat16[64,64] z, float[64,64] w) { y = MatMul (x, x) "
            "z = MatMul (n, n) w = Relu (y) }"));
    good(ebb_infer_graph(m->graph));
    double host = ebb_node_ns(m->graph, node_of(m->graph, "y"));
    m->rates = &bound;
    good(ebb_model_copy(&copy, m)); // plans are tried on copies
    const ebb_graph *g = copy->graph;
    near(ebb_node_ns(g, node_of(g, "y")), 524288 / 100.0 + 7);
    near(ebb_node_ns(g, node_of(g, "z")), 524288 / 1000.0 + 7);
    near(ebb_node_ns(g, node_of(g, "w")), 4096 / 10.0 + 7);
    near(ebb_product_ns(g, EBB_F16, 5000, 0), 12);
    near(ebb_roofline_ns(g, 5000, 0), 507);
    copy->rates = &moving;
    near(ebb_node_ns(g, node_of(g, "z")), 3 * 4096 * 2 / 2.0 + 5);
    good(ebb_estimate_for(copy, "plain"));
    near(ebb_node_ns(g, node_of(g, "y")), host);
}

TEST(what_moves_take_is_of_the_model)
{
    OWNED_MODEL *m = NULL, *calibrated = parse();
    ebb_costs *costs;
    ebb_waits waits;
    OWNED_ARENA scratch = {0};
    good(ebb_costs_new(&costs, "cpu", 2));
    good(ebb_costs_add(costs, calibrated->graph, ebb_first(calibrated->graph), 5120));
    costs->moves = true;
    costs->ways[0] = (ebb_move_time){0.5, 1, 0.25};
    costs->ways[1] = (ebb_move_time){2, 4, 0};
    good(ebb_costs_fit(costs));
    good(ebb_costs_write(costs, path));
    ebb_costs_free(costs);
    good(ebb_text_parse_model(
        &m, "<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]> g (float[1000] x) => "
            "(float[1000] y) { a = Relu (x) s = ai.ebb.Store (a) k = ai.ebb.Wait (s, a) "
            "f = ai.ebb.Fetch (k) b = Neg (x) w = ai.ebb.Wait (f, k) y = Add (w, b) }"));
    good(ebb_infer_graph(m->graph));
    good(run(m, pipeline, false));
    const ebb_graph *g = m->graph;
    const ebb_rates rates = {1e9, 1e9, 1e9, 1e9, 7, {9, 9, 9}, {9, 9, 9}};
    near(ebb_node_ns_by(&rates, g, node_of(g, "s")), 7 + 4000 * 0.25);
    near(ebb_node_ns_by(&rates, g, node_of(g, "f")), 7);
    near(ebb_node_ns_by(&rates, g, node_of(g, "k")), 7);
    /* All of the store but what went on during it: half as long as beside a step, and nothing taken. Of the
     * fetch, b goes on beside it. */
    good(ebb_waits_of(&waits, &rates, g, &scratch));
    const double store = 4000 - 1000 - 7,
                 fetch = 16000 - ebb_node_ns_by(&rates, g, node_of(g, "b")) - 7;
    near(waits.stood, store / 2 - store * 0.25 + fetch / 2);
}

/* Of two processes: an exchange that is begun goes on beside the step, but for its sum; one that is made at once is behind
 * it. */
TEST(exchanges_take_the_time_of_their_link)
{
    OWNED_MODEL *m = NULL;
    OWNED_ARENA scratch = {0};
    ebb_waits waits;
    const ebb_rates rates = {1e9, 1e9, 1e9, 1e9, 7, {9, 9, 9}, {9, 9, 9}};
    good(ebb_text_parse_model(
        &m, "<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]> g (float[1000] x) => "
            "(float[1000] y) { s = ai.ebb.StartAllReduce <ranks = 2> (x) b = Neg (x) "
            "a = ai.ebb.AllReduce <ranks = 2> (b) w = ai.ebb.Wait (s, x) y = Add (w, a) }"));
    good(ebb_infer_graph(m->graph));
    const ebb_graph *g = m->graph;
    good(ebb_waits_of(&waits, &rates, g, &scratch));
    near(waits.exchange, 0);
    const double made = ebb_node_ns_by(&rates, g, node_of(g, "a"));
    good(ebb_link_set_text(m->graph, "2,0.5"));
    const double once = 2 * 2000 + 2 * 500 * 4 * 2; // two exchanges of half of the tensor
    near(ebb_exchange_ns(g, node_of(g, "a")), once);
    near(ebb_node_ns_by(&rates, g, node_of(g, "a")), made + once);
    near(ebb_node_ns_by(&rates, g, node_of(g, "s")), made); // the sum
    good(ebb_waits_of(&waits, &rates, g, &scratch));
    const double beside = ebb_node_ns_by(&rates, g, node_of(g, "b"));
    near(waits.exchange, 2 * once);
    near(waits.stood, once - beside);
    near(waits.exposed, 2 * once - beside);
    assert_int_equal(ebb_status_code(ebb_link_set_text(m->graph, "2,0")), EBB_USAGE);
}

/* Where so many of this machine were measured, each computes as long as it does beside the others: of another number, or
 * behind a link that was told, as long as alone. */
TEST(beside_others_of_this_machine_nodes_take_longer)
{
    char pass[64], file[] = "/tmp/ebb-crowd-XXXXXX";
    ebb_costs *costs;
    ebb_link link;
    const int fd = mkstemp(file);
    assert_true(fd >= 0 && close(fd) == 0);
    (void)snprintf(pass, sizeof pass, "cost:file=%s", file);
    good(ebb_costs_read(&costs, path));
    costs->linked = true;
    costs->link = (ebb_link){.message_ns = 2000, .byte_ns = 2};
    costs->crowds[2] = (ebb_crowd){.alone_ns = 1e6, .together_ns = 2.5e6, .threads = 1};
    good(ebb_costs_write(costs, file));
    ebb_costs_free(costs);
    for (int told = 0; told < 2; told++)
        for (int ranks = 2; ranks <= 3; ranks++) {
            char step[256];
            (void)snprintf(
                step, sizeof step,
                "<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]> g (float[64] x) => "
                "(float[64] y) { a = ai.ebb.AllReduce <ranks = %d> (x) b = Sigmoid (a) y = Relu "
                "(b) }",
                ranks);
            OWNED_MODEL *m = model_of(step);
            if (told != 0)
                good(ebb_link_set_text(m->graph, "2,0.5"));
            const double slows = told == 0 && ranks == 2 ? 2.5 : 1;
            const double estimated = ebb_node_ns(m->graph, node_of(m->graph, "b"));
            for (int again = 0; again < 2; again++) {
                good(run(m, pass, false));
                near(ebb_node_ns(m->graph, node_of(m->graph, "y")), 5120 * slows);
                near(ebb_node_ns(m->graph, node_of(m->graph, "b")), estimated * slows);
                assert_true(ebb_link_of(&link, m->graph));
                near(link.message_ns, 2000);
                near(link.byte_ns, 2);
                near(link.crowd, told != 0 ? 0 : slows);
            }
            assert_int_equal(reports[0].applied, 0);
        }
    (void)unlink(file);
}

TEST(without_a_file_it_says_how_one_is_made)
{
    says("cost", EBB_USAGE, "ebb bench --calibrate");
    says("cost:file=/nonexistent/costs.json", EBB_IO, "/nonexistent/costs.json");
}

const fixture around_all = {write_file, remove_file};
