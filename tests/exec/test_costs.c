/* test_costs.c: measured costs: fits, signatures, files (also broken ones), and a timed model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <math.h>
#include <unistd.h>

#include "exec/weigh/costs.h"
#include "tests/folder.h"
#include "tests/owned.h"
#include "tests/text.h"

static void write_text(const char *name, const char *text)
{
    put_file(path_of(name), text, strlen(text));
}

/* ---- fits ---- */

static void within(double a, double b, double part)
{
    if (fabs(a - b) > part * fabs(b) + 1e-12)
        fail_msg("%g should be %g", a, b);
}

static void near(double a, double b)
{
    within(a, b, 1e-6);
}

TEST(a_fit_finds_the_three_rates_in_spite_of_outliers)
{
    ebb_cost_sample samples[40];
    ebb_cost_rate rate;
    for (int i = 0; i < 40; i++) {
        double flops = 1e3 * pow(1.6, i % 20), bytes = 4e2 * pow(1.5, (i * 7) % 20);
        samples[i] = (ebb_cost_sample){700 + 0.02 * flops + 0.3 * bytes, flops, bytes};
        if (i % 8 == 0)
            samples[i].ns *= 5; // another program had the processor
    }
    assert_true(ebb_rate_fit(&rate, samples, 40));
    within(rate.fixed_ns, 700, 0.005);
    within(rate.ns_per_flop, 0.02, 0.005);
    within(rate.ns_per_byte, 0.3, 0.005);
    within(ebb_rate_ns(&rate, 1e6, 1e4), 700 + 2e4 + 3e3, 0.005);
    assert_int_equal(rate.entries, 40);
    assert_true(rate.error < 1e-3);
}

TEST(no_rate_is_ever_negative)
{
    static const ebb_cost_sample falling[] = {{900, 10, 100}, {500, 20, 200}, {100, 30, 300}};
    ebb_cost_rate rate;
    assert_true(ebb_rate_fit(&rate, falling, 3));
    assert_true(rate.fixed_ns >= 0 && rate.ns_per_flop >= 0 && rate.ns_per_byte >= 0);
    assert_true(ebb_rate_ns(&rate, 20, 200) > 0);
    assert_false(ebb_rate_fit(&rate, falling, 0));
}

TEST(one_sample_is_charged_to_what_it_is_busy_with)
{
    ebb_cost_rate rate;
    assert_true(ebb_rate_fit(&rate, &(ebb_cost_sample){1000, 50000, 300}, 1));
    near(rate.ns_per_flop, 0.02);
    near(rate.ns_per_byte + rate.fixed_ns, 0);
    assert_true(ebb_rate_fit(&rate, &(ebb_cost_sample){1000, 100, 4000}, 1));
    near(rate.ns_per_byte, 0.25);
    assert_true(ebb_rate_fit(&rate, &(ebb_cost_sample){1000, 0, 0}, 1));
    near(rate.fixed_ns, 1000);
}

/* ---- signatures ---- */

#define HEADER "<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]> "

static const char *signature(const char *text)
{
    static char ring[4][EBB_SIGNATURE_BYTES];
    static unsigned next;
    OWNED_MODEL *m = model_of(text);
    char *at = ring[next++ % 4];
    (void)ebb_cost_signature(at, m->graph, ebb_last(m->graph));
    return at;
}

TEST(a_signature_holds_what_decides_the_time)
{
    assert_string_equal(signature(HEADER
                                  "g (float[1,2,8,8] x, float[3,2,3,3] w) => (float[1,3,8,8] y) "
                                  "{ y = Conv <pads = [1,1,1,1], kernel_shape = [3,3]> (x, w) }"),
                        "Conv(float32[1,2,8,8],float32[3,2,3,3])->(float32[1,3,8,8])"
                        "{kernel_shape=3,3,pads=1,1,1,1}");
    /* The order of attributes, names, and what chooses random numbers, do not. */
    assert_string_equal(signature(HEADER "g (float[4] a, int64[2] k) => (float[4] b) "
                                         "{ b = ai.ebb.Dropout <stream = 5, ratio = 0.5> (a, k) }"),
                        signature(HEADER
                                  "g (float[4] x, int64[2] k) => (float[4] y) "
                                  "{ y = ai.ebb.Dropout <ratio = 0.5, stream = 9> (x, k) }"));
    /* Axes do, where the shapes would be the same. */
    const char *first = signature(HEADER "g (float[4,4] x) => (float[4] y) <int64[1] a = {0}> "
                                         "{ y = ReduceSum <keepdims = 0> (x, a) }");
    const char *second = signature(HEADER "g (float[4,4] x) => (float[4] y) <int64[1] a = {1}> "
                                          "{ y = ReduceSum <keepdims = 0> (x, a) }");
    assert_non_null(strstr(first, "int64[1]=0)"));
    assert_non_null(strstr(second, "int64[1]=1)"));
}

TEST(a_long_or_odd_signature_is_cut_and_stays_apart)
{
    char texts[2][4096], kept[2][EBB_SIGNATURE_BYTES];
    for (int k = 0; k < 2; k++) {
        int n = snprintf(texts[k], sizeof texts[k],
                         HEADER "g (float[4] x) => (float[4] y) { y = Concat <axis = 0> (x");
        for (int i = 0; i < 200; i++)
            n += snprintf(texts[k] + n, sizeof texts[k] - (size_t)n, ", x");
        (void)snprintf(texts[k] + n, sizeof texts[k] - (size_t)n, "%s) }", k == 1 ? ", x" : "");
        OWNED_MODEL *m = parsed(texts[k]);
        (void)ebb_cost_signature(kept[k], m->graph, ebb_last(m->graph));
        assert_int_equal(strlen(kept[k]), EBB_SIGNATURE_BYTES - 1);
    }
    assert_string_not_equal(kept[0], kept[1]);
    const char *odd = signature(HEADER "g (float[4] x) => (float[4] y) "
                                       "{ y = Relu <note = \"caf\xc3\xa9\n\"> (x) }");
    assert_non_null(strstr(odd, "note=caf???"));
}

/* ---- look-up and file ---- */

static const char two_relus[] =
    HEADER "g (float[64] x, float[128] z) => (float[64] y, float[128] w, "
           "float[64] s) { y = Relu (x) w = Relu (z) s = Softmax (x) }";

TEST(a_file_gives_back_what_was_measured)
{
    OWNED_MODEL *m = model_of(two_relus);
    ebb_graph *g = m->graph;
    ebb_node relu = ebb_first(g), wide = ebb_next(g, relu), softmax = ebb_last(g);
    ebb_costs *costs, *read;
    double ns = 0;
    good(ebb_costs_new(&costs, "cpu", 2));
    good(ebb_costs_add(costs, g, relu, 500));
    good(ebb_costs_add(costs, g, relu, 700)); // the mean of both
    costs->moves = true;
    costs->ways[0] = (ebb_move_time){0.5, 1, 0.25};
    costs->ways[1] = (ebb_move_time){0.25, 0.75, 0.125};
    costs->processor_ns[1] = 0.375;
    good(ebb_costs_fit(costs));
    good(ebb_costs_write(costs, path_of("costs.json")));
    good(ebb_costs_read(&read, path_of("costs.json")));
    assert_string_equal(read->processor, costs->processor);
    assert_int_equal(read->threads, 2);
    assert_int_equal(read->entry_count, 1);
    assert_int_equal(read->entries[0].nodes, 2);
    assert_int_equal(ebb_costs_of(read, g, relu, &ns), EBB_COST_MEASURED);
    near(ns, 600);
    assert_true(read->moves);
    assert_memory_equal(read->ways, costs->ways, sizeof costs->ways);
    near(read->processor_ns[1], 0.375);
    assert_int_equal(ebb_costs_of(read, g, wide, &ns), EBB_COST_RATE);
    near(ns, 1200); // one measurement: all of it goes to the bytes
    assert_int_equal(ebb_costs_of(read, g, softmax, &ns), EBB_COST_UNKNOWN);
    ebb_costs_free(read);
    ebb_costs_free(costs);
}

#define ENTRY                                                                                      \
    "{\"signature\": \"s\", \"family\": \"f\", \"ns\": 1, \"flops\": 1, \"bytes\": 1, \"nodes\": " \
    "1}"
#define RATE                                                                                     \
    "{\"family\": \"f\", \"fixed_ns\": 1, \"ns_per_flop\": 0, \"ns_per_byte\": 0, \"entries\": " \
    "1, \"error\": 0}"
#define WAY(last) "{\"alone_ns\": 1, \"beside_ns\": 1, \"taken_ns\": 0, \"processor_ns\": " last "}"
#define DISK(store, fetch) "], \"disk\": {\"store\": " store ", \"fetch\": " fetch "}, \"more\": ["
#define FILE_OF(entries, rates)                                                               \
    "{\"schema\": \"ebb.costs/1\", \"processor\": \"p\", \"processors\": 2, \"threads\": 2, " \
    "\"backend\": \"cpu\", \"entries\": [" entries "], \"rates\": [" rates "]}"

TEST(a_broken_file_is_refused_at_its_place)
{
    static const struct {
        const char *text, *says;
    } broken[] = {
        {"", "it is empty"},
        {"{", "it is not JSON"},
        {"{\"schema\": \"ebb.costs/1\", \"schema\": 1}", "it is not JSON"},
        {"[]", "'schema' should be 'ebb.costs/1'"},
        {"{\"schema\": \"ebb.costs/2\"}", "'schema' should be 'ebb.costs/1'"},
        {"{\"schema\": \"ebb.costs/1\"}", "should be lists"},
        {FILE_OF("", ""), "no measurement"},
        {FILE_OF("7", ""), "entry 0: 'signature'"},
        {FILE_OF(ENTRY "," ENTRY, ""), "entry 1: the signature 's' is there twice"},
        {FILE_OF("{\"signature\": \"\"}", ""), "entry 0: 'signature'"},
        {FILE_OF("{\"signature\": \"s\", \"family\": \"f\", \"ns\": -1}", ""), "entry 0: 'ns'"},
        {FILE_OF("{\"signature\": \"s\", \"family\": \"f\", \"ns\": 1e300}", ""), "entry 0: 'ns'"},
        {FILE_OF("{\"signature\": \"s\", \"family\": \"f\", \"ns\": \"5\"}", ""), "entry 0: 'ns'"},
        {FILE_OF(ENTRY, RATE "," RATE), "rate 1: 'f' is there twice"},
        {FILE_OF("", "{\"family\": \"f\", \"fixed_ns\": -5}"), "rate 0: 'fixed_ns'"},
        {FILE_OF("", RATE DISK(WAY("1"), WAY("-1"))), "disk, fetch: 'alone_ns'"},
        {FILE_OF("", RATE DISK("7", WAY("1"))), "disk, store: 'alone_ns'"},
        {FILE_OF("", RATE "], \"disk\": [7"), "disk, store: 'alone_ns'"},
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        ebb_costs *costs;
        write_text("broken.json", broken[i].text);
        ebb_status status = ebb_costs_read(&costs, path_of("broken.json"));
        assert_non_null(status);
        assert_null(costs);
        assert_int_equal(ebb_status_code(status), EBB_REJECTED);
        if (strstr(ebb_status_text(status), broken[i].says) == NULL ||
            strstr(ebb_status_text(status), "broken.json") == NULL)
            fail_msg("%s: '%s' does not say '%s'", broken[i].text, ebb_status_text(status),
                     broken[i].says);
    }
    ebb_costs *costs;
    assert_int_equal(ebb_status_code(ebb_costs_read(&costs, path_of("nowhere.json"))), EBB_IO);
    write_text("whole.json", FILE_OF(ENTRY, RATE DISK(WAY("1"), WAY("0"))));
    good(ebb_costs_read(&costs, path_of("whole.json")));
    assert_true(costs->moves);
    ebb_costs_free(costs);
    write_text("older.json", FILE_OF(ENTRY, RATE));
    good(ebb_costs_read(&costs, path_of("older.json")));
    assert_false(costs->moves);
    ebb_costs_free(costs);
}

/* Deep nesting and cut files must not do more than fail. */
TEST(a_file_cut_anywhere_is_refused)
{
    static const char whole[] = FILE_OF(ENTRY, RATE);
    char cut[sizeof whole];
    ebb_costs *costs;
    for (size_t n = 0; n + 1 < sizeof whole; n++) {
        memcpy(cut, whole, n);
        cut[n] = '\0';
        write_text("cut.json", cut);
        assert_non_null(ebb_costs_read(&costs, path_of("cut.json")));
    }
    char *deep = malloc(100001);
    assert_non_null(deep);
    memset(deep, '[', 100000);
    deep[100000] = '\0';
    write_text("deep.json", deep);
    free(deep);
    assert_non_null(ebb_costs_read(&costs, path_of("deep.json")));
}

/* ---- measuring ---- */

TEST(what_is_added_adds_up_to_the_step)
{
    OWNED_MODEL *m =
        model_of(HEADER "g (float[64,64] x) => (float[64,64] y) { a = MatMul (x, x) "
                        "b = Relu (a) c = MatMul (b, b) d = Softmax (c) y = Add (d, b) }");
    ebb_costs *costs;
    ebb_timed timed;
    double sum = 0, ns = 0;
    good(ebb_costs_new(&costs, "cpu", 1));
    good(ebb_costs_time(costs, &timed, m, &(ebb_timing){.threads = 1, .steps = 9}));
    assert_int_equal(timed.nodes, 5);
    assert_int_equal(timed.steps, 9);
    assert_int_equal(costs->entry_count, 4); // both products are of one signature
    EBB_EACH_NODE(m->graph, n) {
        assert_int_equal(ebb_costs_of(costs, m->graph, n, &ns), EBB_COST_MEASURED);
        assert_true(ns > 0);
        sum += ns;
    }
    near(sum, timed.step_ns);
    ebb_costs_free(costs);
}

TEST(moves_are_timed_by_themselves_and_beside_steps)
{
    OWNED_MODEL *m =
        model_of(HEADER "g (float[256,256] x) => (float[256,256] y) { y = MatMul (x, x) }");
    ebb_costs *costs;
    good(ebb_costs_new(&costs, "cpu", 1));
    good(ebb_costs_time_moves(costs, m, &(ebb_timing){.threads = 1, .steps = 2}, 10));
    assert_true(costs->moves);
    for (int way = 0; way < 2; way++) {
        assert_true(costs->ways[way].alone > 0);
        assert_true(costs->ways[way].beside > 0);
        assert_true(costs->processor_ns[way] > 0.01); // it is copied and summed
        assert_true(costs->ways[way].taken == 0 ||    // another than that which computes moves
                    costs->ways[way].taken == 10 * costs->processor_ns[way]);
    }
    assert_int_equal(ebb_status_code(ebb_costs_time_moves(
                         costs, m, &(ebb_timing){.spill = "/nowhere at all", .steps = 1}, 1)),
                     EBB_IO);
    ebb_costs_free(costs);
}

const fixture around_all = {make_folder, remove_folder};
