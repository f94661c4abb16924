/* Rules, edits, options and globs on graphs of a few nodes. */

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "rewrite/rewrite.h"
#include "tests/formatted.h"
#include "tests/text.h"

static ebb_status do_nothing(ebb_edit *e)
{
    (void)e;
    return NULL;
}

static const ebb_option options[] = {
    {"kind", EBB_OPTION_STRING, "sum", NULL, "what to do"},
    {"count", EBB_OPTION_INT, "3", NULL, "how many"},
    {"rate", EBB_OPTION_FLOAT, "0.5", NULL, "how fast"},
    {"target", EBB_OPTION_STRING, NULL, NULL, "where to"},
    {.name = NULL},
};
static const ebb_pass pass = {.name = "test", .options = options, .run = do_nothing};

typedef struct bench {
    ebb_model *model;
    ebb_arena scratch, keep;
    ebb_report report;
    ebb_edit e;
} bench;

/* A graph "(inputs) => (outputs) <...> { ... }" at opset 20, types inferred. */
static void set_up(bench *b, const char *graph)
{
    memset(b, 0, sizeof *b);
    b->model = model_of(formatted("<ir_version: 10, opset_import: [\"\" : 20]> g %s", graph));
    b->e = (ebb_edit){.g = b->model->graph,
                      .pass = &pass,
                      .scratch = &b->scratch,
                      .keep = &b->keep,
                      .report = &b->report};
}

static void tear_down(bench *b)
{
    ebb_arena_fini(&b->scratch);
    ebb_arena_fini(&b->keep);
    ebb_model_free(b->model);
}

#define BENCH __attribute__((cleanup(tear_down))) bench

static void apply(bench *b, const ebb_rule *rules, size_t count)
{
    ebb_status status = ebb_rules_apply(&b->e, rules, count);
    if (status == NULL)
        status = ebb_verify(b->e.g);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
}

static size_t node_count(const ebb_graph *g)
{
    size_t count = 0;
    EBB_EACH_NODE(g, n)
        count++;
    return count;
}

static const ebb_rule silu[] = {
    {"silu", "s = Sigmoid(x)  y = Mul(x, s)", "y = HardSwish(x)", NULL, NULL}};
static const ebb_rule half[] = {{"half", "y = Mul(x, 0.5)", "y = Relu(x)", NULL, NULL}};

TEST(a_rule_replaces_what_it_matches)
{
    BENCH b;
    set_up(&b, "(float[4] x) => (y) { s = Sigmoid(x) z = Mul(x, s) y = Neg(z) }");
    apply(&b, silu, 1);
    ebb_graph *g = b.e.g;
    assert_int_equal(node_count(g), 2);
    ebb_node n = ebb_first(g);
    assert_int_equal(ebb_node_of(g, n)->op, EBB_OP_HARD_SWISH);
    assert_string_equal(ebb_props_get(g, &ebb_node_of(g, n)->props, "ebb.pass"), "test");
    assert_string_equal(ebb_value_name(g, ebb_out(g, n, 0)), "z");
    assert_int_equal(b.report.found, 1);
    assert_int_equal(b.report.applied, 1);
}

TEST(inputs_of_an_operator_that_commutes_match_either_way)
{
    BENCH b;
    set_up(&b, "(float[4] x) => (y) { s = Sigmoid(x) y = Mul(s, x) }");
    apply(&b, silu, 1);
    assert_int_equal(node_count(b.e.g), 1);
}

TEST(inputs_of_one_that_does_not_commute_match_one_way)
{
    static const ebb_rule rule[] = {
        {"r", "s = Sigmoid(x)  y = Sub(x, s)", "y = Relu(x)", NULL, NULL}};
    BENCH b;
    set_up(&b, "(float[4] x) => (y) { s = Sigmoid(x) y = Sub(s, x) }");
    apply(&b, rule, 1);
    assert_int_equal(node_count(b.e.g), 2);
    assert_int_equal(b.report.found, 0);
}

TEST(a_failed_order_is_taken_back)
{
    static const ebb_rule rule[] = {
        {"r", "a = Neg(x)  b = Exp(a)  c = Add(b, x)  y = Mul(c, x)", "y = Relu(x)", NULL, NULL}};
    BENCH b;
    set_up(&b, "(float[4] x) => (y) { a = Neg(x) b = Exp(a) c = Add(x, b) y = Mul(x, c) }");
    apply(&b, rule, 1);
    assert_int_equal(node_count(b.e.g), 1);
}

TEST(the_name_of_an_output_of_the_graph_never_changes)
{
    BENCH b;
    set_up(&b, "(float[4] x) => (float[4] y) { s = Sigmoid(x) y = Mul(x, s) }");
    apply(&b, silu, 1);
    ebb_graph *g = b.e.g;
    assert_int_equal(g->output_count, 1);
    assert_string_equal(ebb_value_name(g, g->outputs[0]), "y");
    assert_int_equal(ebb_producer_op(g, g->outputs[0]), EBB_OP_HARD_SWISH);
}

TEST(a_value_that_is_read_outside_holds_the_pattern)
{
    BENCH b;
    set_up(&b, "(float[4] x) => (y, z) { s = Sigmoid(x) y = Mul(x, s) z = Neg(s) }");
    apply(&b, silu, 1);
    assert_int_equal(node_count(b.e.g), 3);
    assert_int_equal(b.report.found, 1);
    assert_int_equal(b.report.applied, 0);
    assert_int_equal(b.report.skip_count, 1);
    assert_string_equal(b.report.skips[0].reason,
                        "a value inside the pattern is read outside of it");
}

TEST(a_value_that_is_an_output_holds_the_pattern)
{
    BENCH b;
    set_up(&b, "(float[4] x) => (y, s) { s = Sigmoid(x) y = Mul(x, s) }");
    apply(&b, silu, 1);
    assert_int_equal(node_count(b.e.g), 2);
    assert_string_equal(b.report.skips[0].reason,
                        "a value inside the pattern is an output of the graph");
}

TEST(a_number_fits_a_constant_of_that_value)
{
    BENCH b;
    set_up(&b, "(float[4] x) => (y, z, u) <float a = {0.50000001}, float[1] c = {0.5}, "
               "float d = {0.51}> { y = Mul(x, a) z = Mul(c, x) u = Mul(x, d) }");
    apply(&b, half, 1);
    assert_int_equal(b.report.applied, 2);
    assert_int_equal(ebb_producer_op(b.e.g, ebb_value_find(b.e.g, "u")), EBB_OP_MUL);
}

TEST(a_constant_that_would_broadcast_is_no_number)
{
    BENCH b;
    set_up(&b, "(float[4] x) => (y, z) <float[1,1] a = {0.5}, float[2,4] c = "
               "{0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5}> { y = Mul(x, a) z = Mul(x, c) }");
    apply(&b, half, 1);
    assert_int_equal(b.report.applied, 0);
}

TEST(attributes_that_a_rule_gives_must_be_equal)
{
    static const ebb_rule rule[] = {
        {"r", "y = LeakyRelu<alpha = 0.5>(x)", "y = Elu<alpha = 2.0>(x)", NULL, NULL}};
    BENCH b;
    set_up(&b, "(float[4] x) => (y, z, w) { y = LeakyRelu<alpha = 0.5>(x) "
               "z = LeakyRelu<alpha = 0.4>(x) w = LeakyRelu(x) }");
    apply(&b, rule, 1);
    assert_int_equal(b.report.applied, 1);
    ebb_node n = ebb_value_of(b.e.g, ebb_value_find(b.e.g, "y"))->producer;
    ebb_attrs attrs = ebb_node_attrs(b.e.g, n);
    assert_int_equal(ebb_node_of(b.e.g, n)->op, EBB_OP_ELU);
    assert_float_equal(ebb_attr_float(&attrs, "alpha", 0), 2.0, 0);
}

TEST(more_inputs_than_the_pattern_has_do_not_fit_a_sum)
{
    static const ebb_rule rule[] = {{"r", "y = Sum(a, b)", "y = Add(a, b)", NULL, NULL}};
    BENCH b;
    set_up(&b, "(float[4] p, float[4] q, float[4] r) => (y, z) { y = Sum(p, q, r) z = Sum(p, q) }");
    apply(&b, rule, 1);
    assert_int_equal(b.report.applied, 1);
    assert_int_equal(ebb_producer_op(b.e.g, ebb_value_find(b.e.g, "y")), EBB_OP_SUM);
}

static const char *never(const ebb_match *m)
{
    (void)m;
    return "the day is wrong";
}

TEST(a_rule_may_decline_and_says_so_once)
{
    static const ebb_rule rules[] = {
        {"no", "y = Neg(x)", "y = Relu(x)", never, NULL},
        {"yes", "y = Exp(x)", "y = Relu(x)", NULL, NULL},
    };
    BENCH b;
    set_up(&b, "(float[4] x) => (y) { h = Neg(x) y = Exp(h) }");
    apply(&b, rules, 2);
    assert_int_equal(b.report.found, 2);
    assert_int_equal(b.report.applied, 1);
    assert_int_equal(b.report.skip_count, 1);
    assert_int_equal(b.report.skips[0].count, 1);
    assert_string_equal(b.report.skips[0].reason, "the day is wrong");
}

static void twice(ebb_build *b, const ebb_match *m, ebb_value *root)
{
    ebb_value x = ebb_match_value(m, "x");
    *root = ebb_emit(b, EBB_OP_ADD, x, ebb_emit(b, EBB_OP_RELU, x));
}

TEST(a_rule_may_build_several_nodes)
{
    static const ebb_rule rule[] = {{"r", "y = Exp(x)", NULL, NULL, twice}};
    BENCH b;
    set_up(&b, "(float[4] x) => (y) { h = Exp(x) y = Neg(h) }");
    apply(&b, rule, 1);
    assert_int_equal(node_count(b.e.g), 3);
    assert_int_equal(ebb_producer_op(b.e.g, ebb_value_find(b.e.g, "h")), EBB_OP_ADD);
}

TEST(rules_that_undo_each_other_stop)
{
    static const ebb_rule rules[] = {
        {"there", "y = Exp(x)", "y = Neg(x)", NULL, NULL},
        {"back", "y = Neg(x)", "y = Exp(x)", NULL, NULL},
    };
    BENCH b;
    set_up(&b, "(float[4] x) => (y) { y = Exp(x) }");
    apply(&b, rules, 2);
    assert_true(b.report.applied > 0);
    assert_int_equal(node_count(b.e.g), 1);
}

TEST(a_rule_that_makes_no_sense_is_an_error_that_names_it)
{
    static const ebb_rule rules[] = {
        {"empty", "", "y = Neg(x)", NULL, NULL},
        {"apart", "a = Exp(x)  y = Neg(x)", "y = Neg(x)", NULL, NULL},
        {"typo", "y = Exp(x", "y = Neg(x)", NULL, NULL},
        {"two", "y = Exp(x)", "a = Neg(x) y = Neg(a)", NULL, NULL},
        {"unbound", "y = Exp(x)", "y = Neg(z)", NULL, NULL},
        {"unknown", "y = Exp(x)", "y = Nothing(x)", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        BENCH b;
        set_up(&b, "(float[4] x) => (y) { y = Exp(x) }");
        ebb_status status = ebb_rules_apply(&b.e, &rules[i], 1);
        assert_non_null(status);
        assert_non_null(strstr(ebb_status_text(status), rules[i].name));
    }
}

/* ---- edits ---- */

TEST(an_output_that_becomes_an_input_keeps_a_node_between)
{
    BENCH b;
    set_up(&b, "(float[4] x) => (float[4] y) { y = Relu(x) }");
    ebb_graph *g = b.e.g;
    ebb_value y = ebb_value_find(g, "y");
    ebb_node n = ebb_value_of(g, y)->producer;
    assert_null(ebb_edit_replace(&b.e, y, ebb_value_find(g, "x")));
    ebb_edit_remove(&b.e, n);
    assert_null(ebb_verify(g));
    assert_string_equal(ebb_value_name(g, g->outputs[0]), "y");
    assert_string_equal(ebb_value_name(g, g->inputs[0]), "x");
    assert_int_equal(ebb_producer_op(g, g->outputs[0]), EBB_OP_IDENTITY);
}

TEST(a_builder_takes_the_phase_of_where_it_stands)
{
    BENCH b;
    set_up(&b, "(float[4] x) => (y) { y = Relu(x) }");
    ebb_node n = ebb_first(b.e.g);
    ebb_node_of(b.e.g, n)->phase = EBB_BACKWARD;
    assert_int_equal(ebb_edit_build(&b.e, n, EBB_PHASE_NONE).phase, EBB_BACKWARD);
    assert_int_equal(ebb_edit_build(&b.e, n, EBB_UPDATE).phase, EBB_UPDATE);
}

/* ---- options and globs ---- */

TEST(options_are_what_was_given_last_or_the_default)
{
    BENCH b;
    set_up(&b, "(float[4] x) => (y) { y = Relu(x) }");
    assert_string_equal(ebb_option_string(&b.e, "kind"), "sum");
    assert_null(ebb_option_string(&b.e, "target"));
    assert_false(ebb_option_given(&b.e, "count"));
    assert_int_equal(ebb_option_int(&b.e, "count"), 3);
    const struct ebb_option_value given[] = {{"count", "7"}, {"rate", "1e-3"}, {"count", "-9"}};
    b.e.options = given;
    b.e.option_count = 3;
    assert_true(ebb_option_given(&b.e, "count"));
    assert_int_equal(ebb_option_int(&b.e, "count"), -9);
    assert_float_equal(ebb_option_float(&b.e, "rate"), 1e-3, 1e-12);
}

TEST(globs)
{
    assert_true(ebb_glob("*", ""));
    assert_true(ebb_glob("layer?.w*t", "layer3.weight"));
    assert_false(ebb_glob("layer?.w*t", "layer10.weight"));
    assert_true(ebb_glob("a*b*c", "a-b-b-c"));
    assert_false(ebb_glob("a*b*c", "a-b-b-d"));
    assert_true(ebb_glob("**x", "x"));
    assert_false(ebb_glob("", "x"));
    assert_false(ebb_glob("abc", "ab"));
    assert_true(ebb_glob("conv*,fc.*", "fc.bias"));
    assert_true(ebb_glob("conv* fc.*", "conv1"));
    assert_false(ebb_glob("conv*, fc.*", "bn.weight"));
    // Many stars over a long text: quadratic at most.
    assert_false(ebb_glob("*a*a*a*a*a*a*a*a*a*a*a*a*b",
                          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}
