/* test_reduce.c: models with a planted failure become the few nodes that it takes. */
#include <string.h>

#include <jansson.h>

#include "onnx/graph/build.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/folder.h"
#include "tests/owned.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20, \"my.ops\" : 1]>\n"

/* What is left, as text; from malloc. */
static char *left_of(ebb_model *model, const ebb_reduce_options *options)
{
    OWNED_MODEL *read = NULL;
    char *text, *json;
    good(ebb_reduce(model, path_of("small.onnx"), options, &json));
    json_t *report = json_loads(json, 0, NULL);
    assert_true(json_is_true(json_object_get(report, "verified")));
    json_decref(report);
    ebb_release(json);
    good(ebb_open_as_is(&read, path_of("small.onnx")));
    (void)ebb_infer_graph(read->graph);
    good(ebb_text_print(&text, read->graph));
    return text;
}

static void becomes(const char *model_text, const ebb_reduce_options *options, const char *expected)
{
    OWNED_MODEL *model = parsed(model_text);
    RELEASED char *text = left_of(model, options);
    if (strcmp(text, expected) != 0)
        fail_msg("left:\n%s\nexpected:\n%s", text, expected);
}

/* ---- nodes ---- */

TEST(the_operator_that_cannot_run_stays_alone)
{
    becomes(HEAD "g (float[16,32] x) => (float[16,32] y, complex64[16] q)\n"
                 "<float[32,32] w, float[32,32] v, complex64[16] i>\n"
                 "{\n"
                 "   a = MatMul (x, w)\n"
                 "   b = Tanh (a)\n"
                 "   j = Identity (i)\n"
                 "   [planted] q = Mul (i, j)\n"
                 "   d = MatMul (a, v)\n"
                 "   y = Add (b, d)\n"
                 "}\n",
            &(ebb_reduce_options){.fails = "plan", .match = "planted"},
            "g (complex64[1] i) => (complex64[1] q) {\n"
            "   [planted] q = Mul (i, i)\n"
            "}\n");
}

TEST(what_contradicts_itself_keeps_the_two_sizes_that_do)
{
    becomes(HEAD "g (float[16,32] x) => (float[16,32] y)\n"
                 "<float[32,32] w, float[48,32] v>\n"
                 "{\n"
                 "   a = MatMul (x, w)\n"
                 "   b = Tanh (a)\n"
                 "   [planted] c = MatMul (b, v)\n"
                 "   y = Relu (c)\n"
                 "}\n",
            &(ebb_reduce_options){.fails = "types"},
            "g (float[1,2] b, float[1,2] v) => (c) {\n"
            "   [planted] c = MatMul (b, v)\n"
            "}\n");
}

/* A weight, and the way from it to the loss: the type of what a Loop makes is known only by what
 * reads it. */
TEST(a_missing_gradient_keeps_a_weight_before_it)
{
    becomes(HEAD "g (float[16,32] x, int64 trips) => (float[16,32] y)\n"
                 "<float[32,32] w, float[32,32] v, bool go = {1}>\n"
                 "{\n"
                 "   a = MatMul (x, w)\n"
                 "   b = Tanh (a)\n"
                 "   [planted] c = Loop <body = l (int64 i, bool on, float[16,32] s) => "
                 "(bool m, float[16,32] t) {\n"
                 "      m = Identity (on)\n"
                 "      t = Tanh (s)\n"
                 "   }> (trips, go, b)\n"
                 "   d = MatMul (c, v)\n"
                 "   y = Relu (d)\n"
                 "}\n",
            &(ebb_reduce_options){.fails = "check", .match = "gradient"},
            "g (int64 trips, float[1,1] v, bool go) => (float[?,?] y)\n"
            "<\n"
            "   float[2,1] b_1 = {1,1}\n"
            ">\n"
            "{\n"
            "   [planted] c = Loop <body = l (int64 i, bool on, float[16,32] s) => (bool m, "
            "float[16,32] t) {\n"
            "      m = Identity (on)\n"
            "      t = Tanh (s)\n"
            "   }> (trips, go, b_1)\n"
            "   d = MatMul (c, v)\n"
            "   y = Relu (d)\n"
            "}\n");
}

TEST(an_output_that_is_not_finite_keeps_what_makes_it_so)
{
    becomes(HEAD "g (float[16,32] x, float[32,32] w) => (float[16,32] y)\n"
                 "<float zero = {0}>\n"
                 "{\n"
                 "   a = MatMul (x, w)\n"
                 "   b = Tanh (a)\n"
                 "   [planted] c = Div (b, zero)\n"
                 "   d = Relu (c)\n"
                 "   y = Add (d, b)\n"
                 "}\n",
            &(ebb_reduce_options){.fails = "nan"},
            "g (float[1,1] b) => (float[1,1] c)\n"
            "<\n"
            "   float zero = {0}\n"
            ">\n"
            "{\n"
            "   [planted] c = Div (b, zero)\n"
            "}\n");
}

/* ---- another's test ---- */

typedef struct wish {
    const char *op;
    size_t asked, least_dim;
} wish;

/* Of interest: a node of this operator whose first operand has a first dim of at least so much. */
static ebb_status has_one(void *context, ebb_model *model, bool *still)
{
    wish *w = context;
    const ebb_graph *g = model->graph;
    w->asked++;
    *still = false;
    EBB_EACH_NODE(g, n)
        if (strcmp(ebb_text(g, ebb_node_of(g, n)->op_name), w->op) == 0)
            *still =
                *still || ebb_value_of(g, ebb_in(g, n, 0))->type->dims[0] >= (int64_t)w->least_dim;
    return NULL;
}

TEST(a_size_shrinks_as_far_as_the_test_lets_it)
{
    wish w = {.op = "Softmax", .least_dim = 5};
    becomes(HEAD "g (float[48,32] x) => (float[48,32] y)\n"
                 "<float[32,32] w>\n"
                 "{\n"
                 "   a = MatMul (x, w)\n"
                 "   b = Softmax <axis = 1> (a)\n"
                 "   y = Relu (b)\n"
                 "}\n",
            &(ebb_reduce_options){.test = has_one, .context = &w},
            "g (float[8,1] a) => (float[8,1] b) {\n"
            "   b = Softmax (a)\n"
            "}\n");
    assert_true(w.asked > 10);
}

TEST(a_function_is_inlined_and_its_call_reduced)
{
    becomes("<ir_version: 10, opset_import: [\"\" : 20, \"local\" : 1]>\n"
            "g (complex64[4] x) => (complex64[4] y) { a = local.f (x) y = local.f (a) }\n"
            "<domain: \"local\", opset_import: [\"\" : 20]>\n"
            "f (v) => (w) { s = Identity (v) t = Mul (s, v) w = Transpose (t) }\n",
            &(ebb_reduce_options){.fails = "run", .match = "Mul"},
            "g (complex64[1] x) => (complex64[1] \"f/t\") {\n"
            "   \"f/t\" = Mul (x, x)\n"
            "}\n");
}

static ebb_status always(void *context, ebb_model *model, bool *still)
{
    (void)context;
    (void)model;
    *still = true;
    return NULL;
}

TEST(a_model_that_always_fails_becomes_one_node)
{
    OWNED_MODEL *model = NULL;
    good(ebb_open(&model, EBB_SOURCE_DIR "/samples/digits/transformer.onnx"));
    RELEASED char *text = left_of(model, &(ebb_reduce_options){.test = always});
    size_t equals = 0;
    for (const char *c = strchr(text, '{'); *c != '\0'; c++)
        equals += *c == '=';
    if (equals != 1)
        fail_msg("left:\n%s", text);
}

/* A step that training takes: a real model, with an operator put into its middle. */
static ebb_model *with_an_operator_within(void)
{
    ebb_model *model = NULL;
    ebb_node middle = EBB_NO_NODE, made;
    ebb_value y, q;
    good(ebb_open(&model, EBB_SOURCE_DIR "/samples/digits/transformer.onnx"));
    good(ebb_set_dim(model, "batch", 4));
    ebb_graph *g = model->graph;
    size_t softmax = 0;
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->op == EBB_OP_SOFTMAX && softmax++ == 1)
            middle = n;
    assert_int_not_equal(middle.i, 0);
    y = ebb_out(g, middle, 0);
    ebb_type type = *ebb_value_of(g, y)->type;
    good(ebb_value_add(g, &q, "planted", &type));
    good(ebb_value_replace(g, y, q));
    good(ebb_model_import(model, "my.ops", 1));
    good(ebb_node_add(g, &made, ebb_next(g, middle), "my.ops", "Wobble", &y, 1, &q, 1));
    return model;
}

TEST(an_operator_in_a_transformer_is_found_by_the_failing_step)
{
    OWNED_MODEL *model = with_an_operator_within();
    ebb_reduce_options options = {.fails = "rewrite",
                                  .pipeline =
                                      "inline,fold,unroll,train-mode,fold,fuse,loss:mse,gradient"};
    RELEASED char *text = left_of(model, &options), *again = left_of(model, &options);
    assert_string_equal(text, again);
    size_t lines = 0;
    for (const char *c = strstr(text, "{\n"); *c != '\0'; c++)
        lines += *c == '\n';
    if (strstr(text, "my.ops.Wobble") == NULL || lines > 4)
        fail_msg("left:\n%s", text);
}

/* ---- refusals ---- */

static void is_refused(ebb_model *model, const ebb_reduce_options *options, ebb_code code,
                       const char *words)
{
    refused(ebb_reduce(model, NULL, options, NULL), code, words);
}

static ebb_status only_once(void *context, ebb_model *model, bool *still)
{
    (void)model;
    *still = (*(int *)context)++ == 0;
    return NULL;
}

TEST(what_does_not_fail_is_refused)
{
    OWNED_MODEL *model = parsed(HEAD "g (float[4] x) => (float[4] y) { y = Relu (x) }");
    int times = 0;
    is_refused(model, &(ebb_reduce_options){.fails = "run"}, EBB_USAGE, "does not fail at run");
    is_refused(model, &(ebb_reduce_options){.fails = "walk"}, EBB_USAGE, "there is no criterion");
    is_refused(model, &(ebb_reduce_options){0}, EBB_USAGE, "neither a criterion nor a test");
    is_refused(model, &(ebb_reduce_options){.fails = "rewrite", .pipeline = "gradient"}, EBB_USAGE,
               "before it is reduced");
    ebb_status status =
        ebb_reduce(model, path_of("small.onnx"),
                   &(ebb_reduce_options){.test = only_once, .context = &times}, NULL);
    assert_int_equal(ebb_status_code(status), EBB_VERIFY);
}

TEST(the_number_of_tests_is_kept_to)
{
    wish w = {.op = "Relu", .least_dim = 1};
    OWNED_MODEL *model =
        parsed(HEAD "g (float[4] x) => (float[4] y) { a = Tanh (x) b = Relu (a) y = Neg (b) }");
    good(ebb_reduce(model, path_of("small.onnx"),
                    &(ebb_reduce_options){.test = has_one, .context = &w, .most_tests = 3}, NULL));
    assert_int_equal(w.asked, 4); // and the one that verifies
}

/* Nothing else is left there. */
static int remove_small(void **state)
{
    (void)state;
    (void)unlink(path_of("small.onnx"));
    return rmdir(folder);
}

const fixture around_all = {make_folder, remove_small};
