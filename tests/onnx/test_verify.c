/* test_verify.c: each rule of a legal graph, broken once. */

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/test.h"
#include "tests/text.h"

/* x -> Relu -> h -> Add(h, w) -> y, with w a state that the step replaces by y. */
static const char text[] = "<ir_version: 10, opset_import: [\"\" : 20]>\n"
                           "g (float[2,3] x) => (float[2,3] y) <float[2,3] w>\n"
                           "{ [one] h = Relu(x) [two] y = Add(h, w) }";

static int set_up(void **state)
{
    ebb_model *m = NULL;
    if (ebb_text_parse_model(&m, text) != NULL)
        return 1;
    ebb_graph *g = m->graph;
    *state = m;
    return ebb_infer_graph(g) != NULL ||
           ebb_graph_bind(g, ebb_value_find(g, "w"), ebb_value_find(g, "y")) != NULL;
}

static int tear_down(void **state)
{
    ebb_model_free(*state);
    return 0;
}

static ebb_graph *graph_of(void **state)
{
    return ((ebb_model *)*state)->graph;
}

static ebb_value_info *value(ebb_graph *g, const char *name)
{
    return ebb_value_of(g, ebb_value_find(g, name));
}

static ebb_node_info *node(ebb_graph *g, const char *name)
{
    return ebb_node_of(g, ebb_node_find(g, name));
}

static void is_refused(const ebb_graph *g, const char *why)
{
    ebb_status status = ebb_verify(g);
    assert_non_null(status);
    refused(status, EBB_VERIFY, why);
}

TEST(a_legal_graph_passes)
{
    assert_null(ebb_verify(graph_of(state)));
}

TEST(a_use_before_the_producer_is_refused)
{
    ebb_graph *g = graph_of(state);
    ebb_node_move(g, ebb_node_find(g, "one"), EBB_NO_NODE);
    is_refused(g, "Add 'two' reads 'h' before it is made");
}

TEST(an_input_that_nothing_makes_is_refused)
{
    ebb_graph *g = graph_of(state);
    ebb_value loose;
    assert_null(ebb_value_add(g, &loose, "loose", NULL));
    assert_null(ebb_node_set_input(g, ebb_node_find(g, "two"), 0, loose));
    is_refused(g, "Add 'two': nothing makes its input 'loose'");
}

TEST(two_producers_are_refused)
{
    ebb_graph *g = graph_of(state);
    node(g, "one")->out[0] = ebb_value_find(g, "y");
    is_refused(g, "Relu 'one': output 'y' has another producer");
}

TEST(an_output_that_is_an_initializer_is_refused)
{
    ebb_graph *g = graph_of(state);
    value(g, "h")->flags |= EBB_IS_INITIALIZER;
    is_refused(g, "output 'h' is also an input or initializer");
}

TEST(a_producer_that_does_not_make_it_is_refused)
{
    ebb_graph *g = graph_of(state);
    value(g, "x")->producer = ebb_node_find(g, "one");
    is_refused(g, "'x'");
}

TEST(a_use_that_is_not_listed_is_refused)
{
    ebb_graph *g = graph_of(state);
    value(g, "h")->use_count = 0;
    is_refused(g, "2 uses are listed, nodes read 3");
    value(g, "h")->use_count = 1;
    assert_null(ebb_verify(g));
}

TEST(a_use_that_is_none_is_refused)
{
    ebb_graph *g = graph_of(state);
    value(g, "h")->uses[0].slot = 1;
    is_refused(g, "'h' lists a use that is none");
}

TEST(a_name_used_twice_is_refused)
{
    ebb_graph *g = graph_of(state);
    value(g, "h")->name = value(g, "y")->name;
    is_refused(g, "the name 'y' is used twice");
}

TEST(a_removed_node_in_the_list_is_refused)
{
    ebb_graph *g = graph_of(state);
    node(g, "one")->dead = true;
    is_refused(g, "was removed and stands in the list");
}

TEST(a_broken_list_is_refused)
{
    ebb_graph *g = graph_of(state);
    node(g, "two")->prev = EBB_NO_NODE;
    is_refused(g, "the list does not lead back");
}

TEST(a_circle_in_the_list_is_refused)
{
    ebb_graph *g = graph_of(state);
    node(g, "two")->next = ebb_node_find(g, "one");
    is_refused(g, "stands in the list twice");
}

static void set_first_dim(ebb_graph *g, const char *name, int64_t dim)
{
    ebb_value v = ebb_value_find(g, name);
    ebb_type type = *ebb_value_of(g, v)->type;
    type.dims[0] = dim;
    assert_null(ebb_value_set_type(g, v, &type));
}

TEST(a_binding_of_another_type_is_refused)
{
    ebb_graph *g = graph_of(state);
    set_first_dim(g, "w", 4);
    is_refused(g, "cannot be replaced by 'y'");
}

TEST(a_binding_of_what_is_no_state_is_refused)
{
    ebb_graph *g = graph_of(state);
    value(g, "w")->flags &= (uint8_t)~EBB_IS_STATE;
    is_refused(g, "'w' is bound and is no state");
}

TEST(an_output_written_over_nothing_is_refused)
{
    ebb_graph *g = graph_of(state);
    ebb_node_set_over(g, ebb_node_find(g, "one"), 0, 0);
    assert_null(ebb_verify(g));
    set_first_dim(g, "h", 5);
    is_refused(g, "'h' is written over 'x', which has other bytes");
}

TEST(an_unmarked_graph_output_is_refused)
{
    ebb_graph *g = graph_of(state);
    value(g, "y")->flags &= (uint8_t)~EBB_IS_OUTPUT;
    is_refused(g, "'y' is listed as output and not marked so");
}

/* y = Relu(x); z = If (c) { p = Neg (h) } else { q = h }, with h read by the bodies alone. */
static ebb_model *with_bodies(void)
{
    const char *of_bodies = "<ir_version: 10, opset_import: [\"\" : 20]>\n"
                            "g (bool c, float[4] x) => (float[4] z) {\n"
                            "   [one] h = Relu (x)\n"
                            "   [two] z = If <then_branch = yes () => (p) { p = Neg (h) },"
                            " else_branch = no () => (q) { q = Exp (h) }> (c)\n}";
    ebb_model *m = model_of(of_bodies);
    assert_null(ebb_verify(m->graph));
    return m;
}

TEST(a_body_that_reads_what_nothing_makes_is_refused)
{
    OWNED_MODEL *m = with_bodies();
    ebb_node_remove(m->graph, ebb_node_find(m->graph, "one"));
    is_refused(m->graph, "If 'two': its body reads 'h', which nothing outside makes");
}

TEST(a_body_that_reads_before_it_is_made_is_refused)
{
    OWNED_MODEL *m = with_bodies();
    ebb_node_move(m->graph, ebb_node_find(m->graph, "one"), EBB_NO_NODE);
    is_refused(m->graph, "If 'two': its body reads 'h' before it is made");
}

TEST(a_body_whose_reading_is_not_marked_is_refused)
{
    OWNED_MODEL *m = with_bodies();
    value(m->graph, "h")->flags &= (uint8_t)~EBB_IS_CAPTURED;
    is_refused(m->graph, "If 'two': its body reads 'h', which is not marked so");
}

TEST(a_binding_to_what_nothing_makes_is_refused)
{
    ebb_graph *g = graph_of(state);
    ebb_value loose;
    assert_null(ebb_value_add(g, &loose, "loose", value(g, "w")->type));
    assert_null(ebb_graph_bind(g, ebb_value_find(g, "w"), loose));
    is_refused(g, "nothing makes 'loose', which replaces 'w'");
}

TEST(running_out_of_memory_is_said)
{
    for (long n = 1; n < 100; n++) {
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_verify(graph_of(state));
        ebb_alloc_fail_after(0);
        if (status == NULL)
            return;
        assert_int_equal(ebb_status_code(status), ebb_status_code(ebb_error_memory()));
    }
    fail();
}

const fixture around_each = {set_up, tear_down};
