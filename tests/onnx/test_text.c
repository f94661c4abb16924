/* ONNX text: what is printed reads back as it was, and what is not ONNX text is refused by its
 * place. */

#include <stdio.h>
#include <stdlib.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"
#include "tests/test.h"

#define HEAD "<\n   ir_version: 10,\n   opset_import: [\"\" : 20, \"ai.ebb\" : 1]\n>\n"

static ebb_model *parsed(const char *text)
{
    ebb_model *model = NULL;
    ebb_status status = ebb_text_parse_model(&model, text);
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
    return model;
}

/* The text is in the form that the printer writes, so that it must come back to the letter. */
static void stays(const char *text)
{
    RELEASED char *back = NULL;
    OWNED_MODEL *model = parsed(text);
    assert_null(ebb_verify(model->graph));
    assert_null(ebb_text_print_model(&back, model));
    assert_string_equal(back, text);
}

static void refused(const char *text, const char *because)
{
    ebb_model *model = NULL;
    ebb_status status = ebb_text_parse_model(&model, text);
    if (status == NULL)
        fail_msg("accepted: %s", text);
    assert_int_equal(ebb_status_code(status), EBB_REJECTED);
    if (strstr(ebb_status_text(status), because) == NULL)
        fail_msg("'%s' does not say '%s'", ebb_status_text(status), because);
}

TEST(a_small_model_stays_as_it_is)
{
    stays(HEAD "g (float[N,3] x) => (float[N,3] y)\n"
               "<\n   float[3] w = {1,2,3}\n>\n"
               "{\n"
               "   [first] h = Add (x, w)\n"
               "   y = Relu (h)\n"
               "}\n");
}

TEST(every_kind_of_attribute_stays)
{
    stays(HEAD "g (float x) => (y) {\n"
               "   y = F <i = -9223372036854775808, f = 0.1, whole = 2.0, tiny = 1e-05, n = nan, "
               "p = inf, m = -inf, s = \"a\\\"b\\\\c\", is = [1, -2], fs = [1.0, 2.5], "
               "ss = [\"x\", \"\"], none: ints = [], nothing: strings = [], "
               "t = float[2,1] {1,0.5}, one = int64 {5}, empty = float[0] {}> (x)\n"
               "}\n");
}

TEST(every_dtype_of_a_tensor_stays)
{
    stays(HEAD "g (float x) => (y)\n<\n"
               "   uint8[2] a = {0,255},\n   int8[2] b = {-128,127},\n"
               "   uint16 c = {65535},\n   int16 d = {-32768},\n   int32 e = {-2147483648},\n"
               "   int64[2] f = {-9223372036854775808,9223372036854775807},\n"
               "   uint64 i = {18446744073709551615},\n   uint32 j = {4294967295},\n"
               "   bool[3] k = {1,0,1},\n   float16 l = {15360},\n   bfloat16 m = {16256},\n"
               "   double n = {0.1},\n   int4[3] o = {-8,7,1},\n   uint4[3] p = {15,0,3}\n"
               ">\n{\n   y = Relu (x)\n}\n");
}

TEST(a_half_may_be_given_by_its_value)
{
    OWNED_MODEL *model = parsed("<ir_version: 10, opset_import: [\"\" : 20]> g (float16 x) => (y) "
                                "<float16[2] w = {1.5, -2.0}> { y = Mul(x, w) }");
    const ebb_tensor *t = ebb_value_constant(model->graph, ebb_value_find(model->graph, "w"));
    assert_non_null(t);
    assert_float_equal(ebb_tensor_double(t, 0), 1.5, 0);
    assert_float_equal(ebb_tensor_double(t, 1), -2.0, 0);
}

TEST(types_of_every_kind_stay)
{
    stays(HEAD "g (float scalar, float[] any, float[?,N,\"s0 + 1\"] dims, seq(float[2]) list, "
               "optional(int64[]) maybe, untyped) => (y) {\n   y = Relu (any)\n}\n");
}

TEST(any_name_survives)
{
    stays(HEAD "\"main graph\" (float \"/conv1/Conv_output_0\") => (\"a\\\"b\\\\\") {\n"
               "   [\"layer.1:0\"] \"float\", \"inf\", \"7up\" = \"my-dom.x\".\"strange op\" "
               "(\"/conv1/Conv_output_0\")\n"
               "   \"a\\\"b\\\\\" = ai.ebb.PackSign:two (\"7up\")\n"
               "}\n");
}

TEST(absent_inputs_and_outputs_stay)
{
    stays(HEAD "g (float x, float m) => (float y) {\n"
               "   h = Clip (x, \"\", m)\n"
               "   \"\", y = TwoOf (h)\n"
               "}\n");
}

TEST(a_comma_alone_is_an_absent_input)
{
    OWNED_MODEL *model = parsed(HEAD "g (float x, float m) => (y) { y = Clip(x,,m) }");
    ebb_node n = ebb_first(model->graph);
    assert_int_equal(ebb_node_of(model->graph, n)->in_count, 3);
    assert_int_equal(ebb_in(model->graph, n, 1).i, 0);
    assert_int_equal(ebb_node_of(model->graph, n)->op, EBB_OP_CLIP);
}

TEST(subgraphs_stay_and_see_the_values_outside)
{
    const char *text = HEAD "g (float[N] x, bool c) => (y) {\n"
                            "   h = Relu (x)\n"
                            "   y = If <then_branch = a () => (float[N] p) {\n"
                            "      p = Neg (h)\n"
                            "   }, else_branch = b () => (q)\n"
                            "   <\n"
                            "      float w = {2}\n"
                            "   >\n"
                            "   {\n"
                            "      q = Mul (h, w)\n"
                            "   }> (c)\n"
                            "}\n";
    stays(text);
    OWNED_MODEL *model = parsed(text);
    uint16_t flags = ebb_value_of(model->graph, ebb_value_find(model->graph, "h"))->flags;
    assert_true((flags & EBB_IS_CAPTURED) != 0);
}

TEST(functions_stay_with_references_and_defaults)
{
    stays(HEAD "g (float x) => (y) {\n   y = ai.ebb.Leak (x)\n}\n"
               "<\n   domain: \"ai.ebb\",\n   opset_import: [\"\" : 18]\n>\n"
               "Leak <alpha, beta: float = 0.5, axes: ints = [1, 2]> (x) => (y)\n"
               "{\n   y = LeakyRelu <alpha: float = @alpha> (x)\n}\n");
}

TEST(a_function_looks_its_operators_up_by_its_own_imports)
{
    OWNED_MODEL *model = parsed(HEAD "g (float x) => (y) { y = f.F(x) } "
                                     "<domain: \"f\", opset_import: [\"\" : 11]> F (x) => (y) "
                                     "{ y = Gelu(x) }");
    const ebb_graph *body = model->functions[0].body;
    assert_int_equal(ebb_node_of(body, ebb_first(body))->op, EBB_OP_UNKNOWN); // Gelu is of 20
}

TEST(metadata_of_the_model_stays)
{
    stays("<\n   ir_version: 10,\n   opset_import: [\"\" : 20],\n"
          "   metadata_props: [\"a key\": \"a \\\"value\\\"\", \"b\": \"\"]\n>\n"
          "g (float x) => (y) {\n   y = Relu (x)\n}\n");
}

TEST(large_weights_are_left_out_and_read_back_as_missing)
{
    RELEASED char *text = NULL, *again = NULL;
    OWNED_MODEL *model = parsed(HEAD "g (float[128] x) => (y) <float[128] w> { y = Add(x, w) }");
    assert_null(ebb_text_print_model(&text, model));
    assert_non_null(strstr(text, "float[128] w  # 512 bytes, missing\n"));
    OWNED_MODEL *copy = parsed(text);
    ebb_value w = ebb_value_find(copy->graph, "w");
    assert_true((ebb_value_of(copy->graph, w)->flags & EBB_IS_INITIALIZER) != 0);
    assert_null(ebb_value_of(copy->graph, w)->tensor->data);
    assert_null(ebb_text_print_model(&again, copy));
    assert_string_equal(text, again);
}

TEST(initializers_keep_their_order_with_and_without_bytes)
{
    stays(HEAD "g (float[80] x) => (y)\n"
               "<\n   float[80] a,  # 320 bytes, missing\n   float b = {1},\n"
               "   float[80] c  # 320 bytes, missing\n>\n"
               "{\n   h = Add (x, a)\n   i = Mul (h, b)\n   y = Add (i, c)\n}\n");
}

TEST(provenance_is_a_comment)
{
    RELEASED char *text = NULL;
    OWNED_MODEL *model = parsed(HEAD "g (float[2] x) => (y) { # of no consequence\n"
                                     " h = Relu(x)\n y = Neg(h) }");
    ebb_graph *g = model->graph;
    ebb_node n = ebb_first(g);
    ebb_node_of(g, n)->phase = EBB_BACKWARD;
    assert_null(ebb_props_set(g, &ebb_node_of(g, n)->props, "ebb.pass", "sign-mask"));
    assert_null(ebb_infer_graph(g));
    assert_null(ebb_text_print(&text, g));
    assert_non_null(strstr(text, "h = Relu (x)  # float[2]; backward; sign-mask\n"));
}

TEST(the_body_of_each_operator_of_ours_reads_and_prints)
{
    size_t bodies = 0;
    for (int op = 1; op < EBB_OP_COUNT; op++) {
        const ebb_op_row *row = ebb_op_row_of((ebb_op)op);
        const char *body = ebb_op_body((ebb_op)op);
        if (strcmp(row->domain, EBB_DOMAIN_EBB) == 0 && body == NULL)
            fail_msg("%s has no body", row->name);
        if (body == NULL)
            continue;
        OWNED_MODEL *model = NULL;
        ebb_function f;
        assert_null(ebb_model_new(&model, 20));
        ebb_status status = ebb_text_parse_body(model, &f, (ebb_op)op, 20, false);
        if (status != NULL)
            fail_msg("%s: %s", row->name, ebb_status_text(status));
        assert_string_equal(ebb_text(f.body, f.name), row->name);
        assert_null(ebb_verify(f.body));
        EBB_EACH_NODE(f.body, n)
            if (ebb_node_of(f.body, n)->op == EBB_OP_UNKNOWN &&
                strcmp(ebb_text(f.body, ebb_node_of(f.body, n)->op_name), "Scan") != 0)
                fail_msg("%s: %s is not in the table", row->name, ebb_node_label(f.body, n));
        bodies++;
    }
    assert_true(bodies >= 13);
}

TEST(hostile_text_is_refused_by_line_and_column)
{
    refused("", "line 1:1: expected the name of the graph, found the end");
    refused(HEAD "g (float x) => (y) {\n   y = Relu (x\n}\n", "line 7:1: expected ')'");
    refused(HEAD "g (float x) => (y) { y = Relu(x)", "expected");
    refused(HEAD "g (float x) => (y) { y = Relu(z) }", "nothing produces 'z'");
    refused(HEAD "g (float x) => (y) { }", "nothing produces 'y'");
    refused(HEAD "g (float x) => (y) { y = Relu(x) y = Neg(x) }", "produced by two nodes");
    refused(HEAD "g (float x) => (y) { y, y = Relu(x) }", "produced by two nodes");
    refused(HEAD "g (float x) => (y) { x = Relu(x) y = Neg(x) }", "is an input");
    refused(HEAD "g (float x, float x) => (y) { y = Relu(x) }", "named twice");
    refused(HEAD "g (float x) => (y) { y = F<a = 1, a = 2>(x) }", "given twice");
    refused(HEAD "g (float x) => (y) { y = F<a = []>(x) }", "needs its type");
    refused(HEAD "g (float x) => (y) { y = F<a: int = 1.5>(x) }", "declared type");
    refused(HEAD "g (float x) => (y) { y = F<a = 9223372036854775808>(x) }", "64 bits");
    refused(HEAD "g (float x) => (y) { y = F<a = \"open>(x) }", "does not end");
    refused(HEAD "g (float x) => (y) { y = F<a = uint8 {256}>(x) }", "no element of uint8");
    refused(HEAD "g (float x) => (y) { y = F<a = float[3] {1,2}>(x) }", "expected ','");
    refused(HEAD "g (float x) => (y) { y = F<a = float[1] {1,2}>(x) }", "expected '}'");
    refused(HEAD "g (float x) => (y) { y = F<a = float[99999999999999] {1}>(x) }", "fewer");
    refused(HEAD "g (float x) => (y) { y = F<a = float[9999999999,9999999999] {1}>(x) }",
            "needs all its dimensions");
    refused(HEAD "g (float[1,1,1,1,1,1,1,1,1,1,1,1,1] x) => (y) { y = Relu(x) }", "dimensions");
    refused(HEAD "g (float[-1] x) => (y) { y = Relu(x) }", "negative");
    refused(HEAD "g (map(int64, float) x) => (y) { y = Relu(x) }", "not supported");
    refused("<ir_version: 10, opset_import: [\"\" : 0]> g () => () { }", "out of range");
}

TEST(graphs_in_graphs_are_bounded)
{
    enum { DEEP = 20000 };
    char *text = malloc(DEEP * 32 + 256), *at = text;
    assert_non_null(text);
    at += sprintf(at, "%sg (float x) => (y) {", HEAD);
    for (int i = 0; i < DEEP; i++)
        at += sprintf(at, "y = If<a = g () => (y) {");
    refused(text, "deeper than");
    free(text);
}

/* Any beginning of a legal text is refused or read, without a fault. */
TEST(a_text_that_is_cut_off_is_refused)
{
    const char *whole = HEAD "g (float[N,\"s 1\"] x) => (y) <float[2] w = {1,2}> {\n"
                             " [a] h = ai.ebb.F<i = 1, t = float[2] {1,2}, g = s () => (z) "
                             "{ z = Relu(h) }>(x, \"\", w) y = Neg(h) } "
                             "<domain: \"d\", opset_import: [\"\" : 18]> F <a, b: int = 2> (x) => "
                             "(y) { y = Relu<c: int = @a>(x) }";
    size_t length = strlen(whole);
    for (size_t cut = 0; cut <= length; cut++) {
        FREED char *part = malloc(cut + 1);
        assert_non_null(part);
        memcpy(part, whole, cut);
        part[cut] = '\0';
        ebb_model *model = NULL;
        if (ebb_text_parse_model(&model, part) == NULL)
            ebb_model_free(model);
    }
}

TEST(out_of_memory_anywhere_is_a_status)
{
    const char *text = HEAD "g (float[N] x) => (y) <float[2] w = {1,2}> "
                            "{ h = Add<a = [1,2], s = \"t\">(x, w) y = Relu(h) }";
    for (long n = 1;; n++) {
        ebb_model *model = NULL;
        char *back = NULL;
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_text_parse_model(&model, text);
        if (status == NULL)
            status = ebb_text_print_model(&back, model);
        ebb_alloc_fail_after(0);
        ebb_free(back);
        ebb_model_free(model);
        if (status == NULL)
            break;
        assert_int_equal(ebb_status_code(status), ebb_status_code(ebb_error_memory()));
    }
}
