/* test_weights.c: which initializers of a file are trained where folding took their marks and names:
 * weights are, constants are not, and what was made of weights is named.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "ebb.h"
#include "passes/trainable.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]>\n"

/* ---- numbers ---- */

static double drawn(int64_t i) // no two are alike
{
    uint64_t x = (uint64_t)(i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    return ((double)(x >> 40) / (double)(1 << 24) - 0.5) * 0.2;
}

static double zero(int64_t i)
{
    (void)i;
    return 0;
}

static double one(int64_t i)
{
    (void)i;
    return 1;
}

static double quarter(int64_t i)
{
    (void)i;
    return 0.25;
}

static double mask(int64_t i) // of 8 columns: what comes later is hidden
{
    return i % 8 > i / 8 ? -100 : 0;
}

static double infinite_mask(int64_t i)
{
    return i % 8 > i / 8 ? -(double)INFINITY : 0;
}

static double region(int64_t i)
{
    return (double)(i * 7 % 9);
}

static double position(int64_t i) // sines and cosines of 8 columns
{
    double angle = (double)(i / 8) / pow(100, (double)(i % 8 / 2) / 4);
    return i % 2 == 0 ? sin(angle) : cos(angle);
}

static double halves(int64_t i) // sines in four columns, cosines in the others
{
    double angle = (double)(i / 8) / pow(10000, (double)(i % 4) / 4);
    return i % 8 < 4 ? sin(angle) : cos(angle);
}

static double moved(int64_t i) // by a thousandth, as training begins to
{
    return position(i) + 0.01 * drawn(i);
}

static double slope(int64_t i) // of 8 heads, and of 4 more between them
{
    return i < 8 ? pow(2, -(double)(i + 1)) : pow(2, -0.5 - (double)(i - 8));
}

static double identity(int64_t i) // of 8 columns
{
    return i % 9 == 0;
}

static double power(int64_t i)
{
    return pow(10, -(double)i / 8);
}

static double window(int64_t i)
{
    return 0.5 - 0.5 * cos(2 * 3.14159265358979 * (double)i / 64);
}

static double looked_up(int64_t i) // 9 numbers of a table
{
    return drawn(i * 5 % 9);
}

static double repeated(int64_t i) // 8 columns, each row the same
{
    return drawn(i % 8);
}

static double exponential(int64_t i)
{
    return -exp(drawn(i));
}

static double of_two_weights(int64_t i) // zeros stand between two of them
{
    return i >= 8 && i < 16 ? 0 : drawn(i);
}

static ebb_value add(ebb_model *m, const char *name, const char *text, double (*of)(int64_t))
{
    int64_t dims[4], count = 1;
    int rank = 0;
    for (const char *at = text; *at != '\0'; at += strcspn(at, "x"), at += *at == 'x')
        count *= dims[rank++] = strtoll(at, NULL, 10);
    float *data = calloc((size_t)count, sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)of(i);
    ebb_type type = ebb_type_tensor(EBB_F32, rank, dims);
    ebb_value v;
    good(ebb_graph_add_initializer(m->graph, &v, name, &type, data, EBB_ROLE_NONE));
    free(data);
    return v;
}

/* g (x) => (y) whose one node reads a tensor of these numbers in this slot. */
typedef struct given {
    const char *node, *shape; /* "MatMul", "8x8" */
    uint32_t slot;
    double (*of)(int64_t);
    const char *name; /* of the tensor; NULL: val_7 */
    const char *call; /* the exporter's note at the node, or NULL */
} given;

/* marked: another weight has a mark of the dynamo exporter. */
static ebb_model *model_with(const given *c, bool marked)
{
    char text[256], others[32] = "";
    for (uint32_t i = 0; i < (c->slot > 0 ? c->slot : 1); i++)
        (void)strcat(others, ", b");
    (void)snprintf(text, sizeof text,
                   HEAD "g (float[2,8,8] x, float[2,8,8] other) => (float[2,8,8] y) "
                        "{ a = Exp (x) b = Exp (other) y = %s (a%s) }",
                   c->node, others);
    ebb_model *m = NULL;
    good(ebb_text_parse_model(&m, text));
    ebb_graph *g = m->graph;
    ebb_value v = add(m, c->name != NULL ? c->name : "val_7", c->shape, c->of);
    ebb_node n = ebb_value_of(g, ebb_value_find(g, "y"))->producer;
    good(ebb_node_set_input(g, n, c->slot, v));
    if (c->call != NULL)
        good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.fx_node", c->call));
    if (marked)
        good(ebb_props_set(g, &ebb_value_of(g, add(m, "w", "4", drawn))->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"));
    return m;
}

static ebb_weight judged(const given *c, bool marked)
{
    ebb_model *m = model_with(c, marked);
    ebb_arena scratch = {0};
    ebb_trainable_source source;
    ebb_weight *list = EBB_NEW(&scratch, ebb_weight, m->graph->value_count);
    assert_non_null(list);
    good(ebb_weights_judge(list, &source, m->graph, &scratch));
    assert_int_equal(source, marked ? EBB_TRAINABLE_METADATA : EBB_TRAINABLE_SLOTS);
    ebb_weight weight = list[ebb_value_find(m->graph, c->name != NULL ? c->name : "val_7").i];
    ebb_arena_fini(&scratch);
    ebb_model_free(m);
    return weight;
}

static void are(ebb_weight_kind kind, const given *list, size_t count, bool marked)
{
    for (size_t i = 0; i < count; i++) {
        ebb_weight w = judged(&list[i], marked);
        if (w.kind != kind)
            fail_msg("tensor %zu, %s of %s, is %d (%s), not %d", i, list[i].shape, list[i].node,
                     w.kind, w.why != NULL ? w.why : "", kind);
    }
}
#define ARE(kind, marked, ...)                                 \
    do {                                                       \
        const given list[] = {__VA_ARGS__};                    \
        are(kind, list, sizeof list / sizeof list[0], marked); \
    } while (0)

/* ---- slots ---- */

static void a_weight_without_name_and_mark_is_a_weight(void **state)
{
    (void)state;
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_SURE_WEIGHT, marked != 0, {"MatMul", "8x8", 1, drawn, NULL, NULL},
            {"MatMul", "2x8x8", 0, drawn, NULL, NULL}, {"Gemm", "8", 2, drawn, NULL, NULL},
            {"Gather", "99x8", 0, drawn, NULL, NULL}, {"Conv", "8x8x3", 1, drawn, NULL, NULL},
            {"LSTM", "1x32x8", 1, drawn, NULL, NULL}, {"LSTM", "1x64", 3, zero, NULL, NULL},
            {"GRU", "1x24x8", 2, drawn, NULL, NULL}, {"PRelu", "8x1", 1, quarter, NULL, NULL},
            {"LayerNormalization", "8", 1, drawn, NULL, NULL});
}

static void a_fresh_scale_of_one_number_for_each_channel_is_a_weight(void **state)
{
    (void)state;
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_SURE_WEIGHT, marked != 0, {"Mul", "8", 1, quarter, NULL, NULL},
            {"Mul", "8x1", 0, quarter, "view_3", "args = (%conv2d_2, %view_3)"});
    ARE(EBB_NO_WEIGHT, true, {"Mul", "1", 1, quarter, NULL, NULL},
        {"Mul", "8x8", 1, quarter, NULL, NULL}, {"Add", "8", 1, quarter, NULL, NULL});
}

static void a_bias_and_a_scale_in_arithmetic_are_weights(void **state)
{
    (void)state;
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_SURE_WEIGHT, marked != 0, {"Add", "8", 1, drawn, NULL, NULL},
            {"Mul", "1x8x1", 0, drawn, NULL, NULL},
            {"Add", "1x8x8", 1, drawn, NULL, NULL}); // the last one: trained positions
    ARE(EBB_SURE_WEIGHT, true, {"Add", "1x8x8", 1, drawn, "embedding_2", NULL},
        {"Mul", "8x1", 1, drawn, "view_3", NULL},
        {"Mul", "8", 1, one, "view", "args = (%x, %p_gamma)"});
}

/* A token before the sequence is repeated for each row of the batch, and joined to it. */
static void a_token_that_is_repeated_and_joined_is_a_weight(void **state)
{
    (void)state;
    ebb_model *m = NULL;
    good(ebb_text_parse_model(&m,
                              HEAD "g (float[2,3,4] x) => (float[2,4,4] y) <int64[3] dims = "
                                   "{2,1,4}, float[1,1,4] val_1 = {0.5,0.25,3,4}>"
                                   "{ t = Expand (val_1, dims) y = Concat <axis = 1> (t, x) }"));
    ebb_trainable_source source;
    bool trains[64] = {false};
    good(ebb_trainable_find(trains, &source, m->graph));
    assert_true(trains[ebb_value_find(m->graph, "val_1").i]);
    ebb_model_free(m);
}

static void states_of_a_cell_are_no_weights(void **state)
{
    (void)state;
    ARE(EBB_NO_WEIGHT, true, {"LSTM", "1x2x8", 5, zero, NULL, NULL},
        {"GRU", "1x2x8", 5, drawn, NULL, NULL});
}

/* ---- constants ---- */

static void constants_are_told_by_their_values(void **state)
{
    (void)state;
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_NO_WEIGHT, marked != 0, {"Add", "8x8", 1, mask, NULL, NULL},
            {"Add", "1x8x8", 1, infinite_mask, NULL, NULL}, {"Add", "8x8", 1, region, NULL, NULL},
            {"Add", "32x8", 1, position, NULL, NULL}, {"Mul", "32x8", 1, position, NULL, NULL},
            {"Mul", "16", 1, power, NULL, NULL}, {"Mul", "64", 1, window, NULL, NULL},
            {"Add", "2x8x8", 1, zero, NULL, NULL}, {"Mul", "8", 0, one, NULL, NULL},
            {"Mul", "1", 0, quarter, NULL, NULL}, {"Gather", "32x8", 0, position, NULL, NULL},
            {"MatMul", "8x8", 1, mask, NULL, NULL}, {"MatMul", "64x64", 1, window, NULL, NULL});
}

static void an_identity_that_is_multiplied_by_is_a_fresh_weight(void **state)
{
    (void)state;
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_SURE_WEIGHT, marked != 0, {"MatMul", "8x8", 1, identity, NULL, NULL});
    ARE(EBB_NO_WEIGHT, true, {"Add", "8x8", 1, identity, NULL, NULL});
}

/* Of a constant it would have been done before. */
static void what_a_function_is_computed_of_in_the_run_is_a_weight(void **state)
{
    (void)state;
    ARE(EBB_SURE_WEIGHT, false, {"Exp", "8x8", 0, drawn, "onnx::Exp_4", NULL},
        {"Exp", "8x8", 0, repeated, "onnx::Exp_4", NULL},
        {"Sigmoid", "1x8x1x1", 0, one, "onnx::Sigmoid_4", NULL},
        {"BatchNormalization", "1x8x8", 0, drawn, "onnx::BatchNormalization_4", NULL});
    ARE(EBB_NO_WEIGHT, false, {"Exp", "8x8", 0, mask, "onnx::Exp_4", NULL},
        {"Exp", "1", 0, drawn, "onnx::Exp_4", NULL}, {"Cos", "8", 0, drawn, "onnx::Cos_4", NULL});
}

static void fresh_scales_and_biases_behind_a_norm_are_weights(void **state)
{
    (void)state;
    ebb_model *m = model_of(
        HEAD
        "g (float[2,4,3,3] x) => (float[2,4,3,3] y) <float[2] unit = {1,1}, float[2] nil = {0,0},"
        " int64[3] s = {2,2,18}, int64[4] back = {2,4,3,3}, float[4,1,1] val_1 = {1,1,1,1},"
        " float[4,1,1] val_2 = {0,0,0,0}, float[4,1,1] val_3 = {0,0,0,0}>"
        "{ a = Reshape (x, s) b = InstanceNormalization (a, unit, nil) c = Reshape (b, back) "
        "  d = Mul (c, val_1) e = Add (d, val_2) f = Relu (e) y = Add (f, val_3) }");
    ebb_trainable_source source;
    bool trains[64] = {false};
    good(ebb_trainable_find(trains, &source, m->graph));
    assert_true(trains[ebb_value_find(m->graph, "val_1").i]);
    assert_true(trains[ebb_value_find(m->graph, "val_2").i]);
    assert_false(trains[ebb_value_find(m->graph, "val_3").i]);
    ebb_model_free(m);
}

static void slopes_of_heads_are_no_weights(void **state)
{
    (void)state;
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_NO_WEIGHT, marked != 0, {"Mul", "4x1", 0, slope, NULL, NULL},
            {"Mul", "8", 0, slope, NULL, NULL}, {"Mul", "12x1x1", 1, slope, NULL, NULL});
    ARE(EBB_SURE_WEIGHT, true, {"Mul", "4x1", 0, drawn, "unsqueeze_1", NULL},
        {"Mul", "8", 0, drawn, NULL, NULL});
}

static bool says_sines(const given *c, bool marked, const char *kind)
{
    ebb_model *m = model_with(c, marked);
    ebb_arena scratch = {0};
    ebb_trainable_source source;
    ebb_value v = ebb_value_find(m->graph, c->name);
    if (kind != NULL)
        good(ebb_props_set(m->graph, &ebb_value_of(m->graph, v)->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", kind));
    ebb_weight *list = EBB_NEW(&scratch, ebb_weight, m->graph->value_count);
    assert_non_null(list);
    good(ebb_weights_judge(list, &source, m->graph, &scratch));
    bool doubtful = list[v.i].kind == EBB_DOUBTFUL_WEIGHT;
    assert_true(doubtful || list[v.i].kind == EBB_SURE_WEIGHT);
    if (doubtful)
        assert_non_null(strstr(list[v.i].why, "sines of the place"));
    ebb_arena_fini(&scratch);
    ebb_model_free(m);
    return doubtful;
}

/* Modules keep such tables as parameters that need no gradient, and files do not tell of that. */
static void a_table_of_sines_is_held_fixed_and_named_though_it_is_marked(void **state)
{
    (void)state;
    const given looked_up_in = {"Gather", "32x8", 0, position, "embed_positions.weight", NULL};
    const given in_halves = {"Gather", "32x8", 0, halves, "embed_positions.weight", NULL};
    const given added = {"Add", "1x32x8", 1, position, "positions", NULL};
    const given trained = {"Gather", "32x8", 0, moved, "embed_positions.weight", NULL};
    const given multiplied = {"MatMul", "32x8", 1, position, "fc.weight", NULL};
    for (int marked = 0; marked < 2; marked++) {
        const char *kind = marked != 0 ? "InputKind.PARAMETER" : NULL;
        assert_true(says_sines(&looked_up_in, marked != 0, kind));
        assert_true(says_sines(&in_halves, marked != 0, kind));
        assert_false(says_sines(&trained, marked != 0, kind));
        assert_false(says_sines(&multiplied, marked != 0, kind));
    }
    assert_true(says_sines(&added, true, "InputKind.PARAMETER"));
}

static void a_norm_without_scale_and_bias_has_none(void **state)
{
    (void)state;
    ARE(EBB_NO_WEIGHT, true, {"InstanceNormalization", "8", 1, one, NULL, NULL},
        {"InstanceNormalization", "8", 2, zero, NULL, NULL},
        {"LayerNormalization", "8", 1, one, NULL, NULL});
}

static void a_buffer_is_no_parameter_whatever_reads_it(void **state)
{
    (void)state;
    static const char *const kinds[] = {"BUFFER", "InputKind.CONSTANT_TENSOR"};
    const given c = {"MatMul", "8x8", 1, drawn, NULL, NULL};
    for (size_t i = 0; i < 2; i++) {
        ebb_model *m = model_with(&c, true);
        ebb_trainable_source source;
        bool trains[64] = {false};
        ebb_value v = ebb_value_find(m->graph, "val_7");
        good(ebb_props_set(m->graph, &ebb_value_of(m->graph, v)->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", kinds[i]));
        good(ebb_trainable_find(trains, &source, m->graph));
        assert_false(trains[v.i]);
        ebb_model_free(m);
    }
    ARE(EBB_NO_WEIGHT, true, {"Add", "8", 1, drawn, NULL, "args = (%x, %b_offsets)"});
}

static void names_are_evidence_and_values_are_more(void **state)
{
    (void)state;
    ARE(EBB_SURE_WEIGHT, false, {"Add", "8", 1, drawn, "fc.bias", NULL},
        {"Add", "8x8", 1, drawn, "grid", NULL}, {"MatMul", "8x8", 1, mask, "fc.weight", NULL},
        {"MatMul", "32x8", 1, position, "fc.weight", NULL});
    ARE(EBB_NO_WEIGHT, false, {"Add", "8x8", 1, mask, "attn.attn_mask", NULL},
        {"Add", "8x8", 1, mask, "attn.hidden", NULL}, {"Add", "32x8", 1, position, "pos", NULL},
        {"MatMul", "1x16", 0, power, "rotary.inv_freq", NULL},
        {"Add", "8x8", 1, region, "regions", NULL},
        {"Add", "1x8", 1, zero, "model.final_logits_bias", NULL});
}

static void what_makes_the_mean_of_an_image_zero_is_no_weight(void **state)
{
    (void)state;
    ebb_model *m = model_of(HEAD "g (float[2,3,4,4] x) => (float[2,3,4,4] y) "
                                 "<float[3,1,1] mean = {0.485, 0.456, 0.406}, float[3,1,1] \"s\" = "
                                 "{0.229, 0.224, 0.225}, float[3,1,1] b = {0.1, 0.7, 0.3}>"
                                 "{ a = Sub (x, mean) c = Exp (a) d = Div (c, s) y = Sub (d, b) }");
    ebb_trainable_source source;
    bool trains[64] = {false};
    good(ebb_trainable_find(trains, &source, m->graph));
    assert_false(trains[ebb_value_find(m->graph, "mean").i]);
    assert_true(trains[ebb_value_find(m->graph, "b").i]); // later it may be a bias
    ebb_model_free(m);
}

/* ---- what was made of weights ---- */

static void what_was_made_of_weights_is_doubtful_and_says_why(void **state)
{
    (void)state;
    const struct {
        given given;
        bool marked;
        const char *why;
    } cases[] = {
        {{"Add", "1x32x8", 1, looked_up, "unsqueeze", NULL}, true, "looked up in a smaller table"},
        {{"Add", "1x32x8", 1, looked_up, NULL, NULL}, false, "looked up in a smaller table"},
        {{"Add", "32x8", 1, repeated, "expand", NULL}, true, "the same along an axis"},
        {{"Add", "24", 1, of_two_weights, "cat_1", NULL}, true, "a part of it is zero"},
        {{"Mul", "1x8x8", 0, exponential, "unsqueeze_3", NULL}, true, "its values have one sign"},
        {{"Mul", "1", 1, drawn, "exp", NULL}, true, "computed from weights"},
        {{"Mul", "8x1", 1, drawn, "exp_1", NULL}, true, "computed from weights"},
        {{"Mul", "8x1", 1, drawn, "sub_1", NULL}, true, "computed from weights"},
        {{"Mul", "8x1x1", 1, quarter, "sub_1", NULL}, true, "computed from weights"},
        {{"Add", "1x8x8", 1, drawn, NULL, "args = (%x, %p_mlp_bias)"},
         true,
         "computed from weights"},
        {{"MatMul", "1x2x8x8", 1, drawn, "transpose_1", "args = (%a, %transpose_1)"},
         true,
         "computed from weights"},
        {{"Div", "8", 1, drawn, NULL, NULL}, false, "means and deviations"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ebb_weight w = judged(&cases[i].given, cases[i].marked);
        if (w.kind != EBB_DOUBTFUL_WEIGHT || w.why == NULL || strstr(w.why, cases[i].why) == NULL)
            fail_msg("case %zu is %d: %s", i, w.kind, w.why != NULL ? w.why : "");
    }
}

static void a_result_in_the_place_of_a_weight_is_trained_and_said_to_be_one(void **state)
{
    (void)state;
    const given c = {"Conv", "8x8x3", 1, drawn, "mul", "args = (%x, %mul, %p_0_bias)"};
    ebb_weight w = judged(&c, true);
    assert_int_equal(w.kind, EBB_SURE_WEIGHT);
    assert_true(w.lost);
    assert_non_null(w.why);
    assert_non_null(strstr(w.why, "weight norm"));
    const given plain = {"Conv", "8x8x3", 1, drawn, NULL, "args = (%x, %p_0_weight, %p_0_bias)"};
    assert_null(judged(&plain, true).why);
}

/* ---- pass gradient ---- */

#define SIXTEEN "= {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}"

static const char folded[] =
    HEAD "g (float[4,4] x) => (float[4,4] y) <float[4] \"fc.bias\" = {0.1,0.2,0.3,0.5}, float[4,4] "
         "val_3 " SIXTEEN ", float[4,4] unsqueeze " SIXTEEN ", float[4,4] val_5 " SIXTEEN ">"
         "{ a = MatMul (x, val_3) b = Add (a, \"fc.bias\") c = Add (b, unsqueeze) y = Add (c, "
         "val_5) }";

/* A linear layer whose weight was folded, a table that was looked up in, and a mask. */
static ebb_model *folded_model(void)
{
    static float numbers[3][16];
    static double (*const of[3])(int64_t) = {drawn, looked_up, mask};
    static const char *const names[3] = {"val_3", "unsqueeze", "val_5"};
    ebb_model *m = NULL;
    good(ebb_text_parse_model(&m, folded));
    ebb_graph *g = m->graph;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 16; k++)
            numbers[i][k] = (float)of[i](k);
        ebb_value_of(g, ebb_value_find(g, names[i]))->tensor->data = numbers[i];
    }
    ebb_value bias = ebb_value_find(g, "fc.bias");
    good(ebb_props_set(g, &ebb_value_of(g, bias)->props,
                       "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"));
    return m;
}

static json_t *training_of(ebb_model *m, const char *pipeline)
{
    char *text = NULL;
    good(ebb_infer_graph(m->graph));
    good(ebb_rewrite(m, pipeline, NULL, &text));
    json_t *o = json_loads(text, 0, NULL), *training = json_incref(json_object_get(o, "training"));
    json_decref(o);
    ebb_release(text);
    return training;
}

static bool has_gradient(const ebb_model *m, const char *name)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%s_grad", name);
    return ebb_value_find(m->graph, text).i != 0;
}

static void what_is_trained_and_what_not_is_said(void **state)
{
    (void)state;
    ebb_model *m = folded_model();
    json_t *t = training_of(m, "loss:mse,gradient");
    assert_true(has_gradient(m, "val_3") && has_gradient(m, "fc.bias"));
    assert_false(has_gradient(m, "unsqueeze") || has_gradient(m, "val_5"));
    assert_int_equal(json_integer_value(json_object_get(t, "trained")), 2);
    assert_int_equal(json_integer_value(json_object_get(t, "weights")), 3);
    assert_int_equal(json_integer_value(json_object_get(t, "lost")), 1);
    assert_int_equal(json_integer_value(json_object_get(t, "trained_elements")), 20);
    assert_int_equal(json_integer_value(json_object_get(t, "elements")), 29); // 9 in the table
    const char *said = json_string_value(json_object_get(t, "said"));
    assert_non_null(strstr(said, "training 2 of 3 weights, 69.0 % of the elements; not: "
                                 "'unsqueeze' (its values come again"));
    json_decref(t);
    ebb_model_free(m);
}

static void what_stands_in_for_a_weight_is_said_to(void **state)
{
    (void)state;
    ebb_model *m = NULL;
    good(ebb_text_parse_model(
        &m,
        HEAD "g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] mul = {0.1,0.7,0.2,-3}, "
             "float[2] b = {0.5,0.25}> { y = Conv (x, mul, b) }"));
    ebb_graph *g = m->graph;
    good(ebb_props_set(g, &ebb_value_of(g, ebb_value_find(g, "b"))->props,
                       "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"));
    good(ebb_props_set(g, &ebb_node_of(g, ebb_first(g))->props, "pkg.torch.onnx.fx_node",
                       "%conv : call_function(args = (%x, %mul, %p_0_bias), kwargs = {})"));
    json_t *t = training_of(m, "loss:mse,gradient");
    assert_non_null(strstr(json_string_value(json_object_get(t, "said")),
                           "training 2 of 2 weights, 100 % of the elements; 'mul': it was computed "
                           "from weights, as weight norm"));
    json_decref(t);
    ebb_model_free(m);
}

static void lost_stands_for_the_lost_weights_and_only_these(void **state)
{
    (void)state;
    ebb_model *m = folded_model();
    json_decref(training_of(m, "loss:mse,gradient:train=lost"));
    assert_true(has_gradient(m, "val_3"));
    assert_false(has_gradient(m, "fc.bias") || has_gradient(m, "unsqueeze") ||
                 has_gradient(m, "val_5"));
    ebb_model_free(m);
    m = folded_model();
    json_decref(training_of(m, "loss:mse,gradient:train=\"*bias;lost\""));
    assert_true(has_gradient(m, "val_3") && has_gradient(m, "fc.bias"));
    ebb_model_free(m);
    m = folded_model();
    json_decref(training_of(m, "loss:mse,gradient:freeze=lost"));
    assert_true(!has_gradient(m, "val_3") && has_gradient(m, "fc.bias"));
    ebb_model_free(m);
    m = folded_model();
    json_decref(training_of(m, "loss:mse,gradient:train=unsq*")); // asked for by its name
    assert_true(has_gradient(m, "unsqueeze") && !has_gradient(m, "val_3"));
    ebb_model_free(m);
}

static void less_than_half_is_refused_unless_it_is_asked_for(void **state)
{
    (void)state;
    const char *const refused = "loss:mse,gradient", *const asked[] = {
                                                         "loss:mse,gradient:partial=allow",
                                                         "loss:mse,gradient:train=fc*",
                                                         "loss:mse,gradient:freeze=nothing"};
    for (int torchscript = 0; torchscript < 3; torchscript++) {
        ebb_model *m = folded_model();
        ebb_value w = ebb_value_find(m->graph, "val_3"), bias = ebb_value_find(m->graph, "fc.bias");
        good(ebb_props_set(m->graph, &ebb_value_of(m->graph, w)->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", "BUFFER"));
        if (torchscript > 0) { // no marks, and nothing but the table beside the bias
            ebb_value_of(m->graph, bias)->props.count = 0;
            ebb_value_of(m->graph, w)->props.count = 0;
            ebb_value_of(m->graph, w)->role = EBB_ROLE_CONSTANT;
            good(ebb_value_rename(m->graph, ebb_value_find(m->graph, "unsqueeze"), "onnx::Add_7"));
            m->torchscript = torchscript == 1;
        }
        good(ebb_infer_graph(m->graph));
        ebb_status status = ebb_rewrite(m, refused, NULL, NULL);
        assert_int_equal(ebb_status_code(status), EBB_REJECTED);
        const char *text = ebb_status_text(status);
        assert_non_null(strstr(text, "training 1 of 2 weights, 30.8 % of the elements; not: "));
        assert_non_null(strstr(text, torchscript == 0   ? "dynamo=True, optimize=False"
                                     : torchscript == 1 ? "training=TrainingMode.TRAINING, "
                                                          "do_constant_folding=False"
                                                        : "without constant folding"));
        ebb_model_free(m);
    }
    for (size_t i = 0; i < 3; i++) {
        ebb_model *m = folded_model();
        good(ebb_props_set(m->graph,
                           &ebb_value_of(m->graph, ebb_value_find(m->graph, "val_3"))->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", "BUFFER"));
        good(ebb_infer_graph(m->graph));
        ebb_status status = ebb_rewrite(m, asked[i], NULL, NULL);
        if (i == 2) // that it fits nothing is another matter
            assert_int_equal(ebb_status_code(status), EBB_USAGE);
        else
            good(status);
        ebb_model_free(m);
    }
}

/* y = x w + a tensor, in the module "m", whose parameters the file lists. */
static ebb_model *listed(const char *name, const char *shape, double (*of)(int64_t),
                         const char *signature)
{
    ebb_model *m = model_of(HEAD "g (float[2,8,8] x) => (float[2,8,8] y) "
                                 "<float[8,8] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,"
                                 "8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,"
                                 "7,8,1,2,3,4,5,6,7,8}>{ a = MatMul (x, w) y = Add (a, x) }");
    ebb_graph *g = m->graph;
    ebb_node n = ebb_value_of(g, ebb_value_find(g, "y"))->producer;
    good(ebb_node_set_input(g, n, 1, add(m, name, shape, of)));
    good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.fx_node", "args = (%a, %b)"));
    good(ebb_props_set(g, &ebb_value_of(g, ebb_value_find(g, "w"))->props,
                       "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"));
    good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.name_scopes",
                       "['', 'm', 'add']"));
    good(ebb_props_set(g, &ebb_node_of(g, ebb_first(g))->props, "pkg.torch.onnx.name_scopes",
                       "['', 'm', 'm.mm', 'matmul']"));
    good(
        ebb_props_set(g, &g->props, "pkg.torch.export.ExportedProgram.graph_signature", signature));
    good(ebb_infer_graph(g));
    return m;
}

static void what_the_module_has_lost_is_refused(void **state)
{
    (void)state;
    static const char lost[] = "# inputs\np_w: PARAMETER target='w'\n"
                               "p_m_table: PARAMETER target='m.table'\nb_m_x: BUFFER target='m.x'";
    static const char kept[] = "# inputs\np_w: PARAMETER target='w'\n";
    static const char layer[] = "# inputs\np_m_fc_weight: PARAMETER target='m.fc.weight'\n"
                                "p_m_fc_bias: PARAMETER target='m.fc.bias'\n";
    static const char run[] = "# inputs\np_m_mm_weight: PARAMETER target='m.mm.weight'\n"
                              "p_m_mm_bias: PARAMETER target='m.mm.bias'\n"; // that has a node
    const struct {
        const char *name, *shape, *list;
        double (*of)(int64_t);
        bool refused;
    } cases[] = {
        {"unsqueeze", "1x8x8", lost, zero, true},  {"unsqueeze", "1x8x8", kept, zero, false},
        {"mul_3", "1x8x8", lost, drawn, true},     {"mul_3", "1x8x8", kept, drawn, false},
        {"zeros", "1x8x8", lost, zero, false},     {"permute_1", "1x8x8", layer, drawn, true},
        {"permute_1", "1x8x8", run, drawn, false}, {"permute_1", "1x8x8", kept, drawn, false},
        {"view_1", "8", lost, zero, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ebb_model *m = listed(cases[i].name, cases[i].shape, cases[i].of, cases[i].list);
        ebb_status status = ebb_rewrite(m, "loss:mse,gradient:partial=allow", NULL, NULL);
        good(status);
        ebb_model_free(m);
        m = listed(cases[i].name, cases[i].shape, cases[i].of, cases[i].list);
        status = ebb_rewrite(m, "loss:mse,gradient", NULL, NULL);
        bool refused = ebb_status_code(status) == EBB_REJECTED;
        const char *text = refused ? ebb_status_text(status) : "";
        if (cases[i].refused != (refused && strstr(text, "optimize=False") != NULL))
            fail_msg("case %zu: %s", i, status != NULL ? ebb_status_text(status) : "not refused");
        ebb_model_free(m);
    }
}

/* Joined with the product before it, it would be gone when weights are looked for. */
static void the_exponential_of_a_temperature_is_missed(void **state)
{
    (void)state;
    static const char *const signatures[] = {
        "# inputs\np_w: PARAMETER target='w'\np_m_scale: PARAMETER target='m.scale'\n",
        "# inputs\np_w: PARAMETER target='w'\n"};
    for (int i = 0; i < 2; i++) {
        ebb_model *m = model_of(HEAD "g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1,2,3,5},"
                                     " float exp = {14.3}> { a = MatMul (x, w) y = Mul (a, exp) }");
        ebb_graph *g = m->graph;
        ebb_node n = ebb_value_of(g, ebb_value_find(g, "y"))->producer;
        good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.fx_node",
                           "args = (%matmul, %exp)"));
        good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.name_scopes",
                           "['', 'm', 'mul']"));
        good(ebb_props_set(g, &ebb_value_of(g, ebb_value_find(g, "w"))->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"));
        good(ebb_props_set(g, &g->props, "pkg.torch.export.ExportedProgram.graph_signature",
                           signatures[i]));
        ebb_status status = ebb_rewrite(m, "fuse,loss:mse,gradient", NULL, NULL);
        assert_int_equal(ebb_status_code(status), i == 0 ? EBB_REJECTED : EBB_OK);
        if (i == 0)
            assert_non_null(strstr(ebb_status_text(status), "not: 'exp' (it was computed"));
        ebb_model_free(m);
    }
}

/* A list of parameters alone says nothing: which of them calls read is not told. */
static void what_a_file_without_notes_has_lost_is_not_known(void **state)
{
    (void)state;
    ebb_model *m = listed("permute_1", "1x8x8", drawn,
                          "# inputs\np_m_fc_weight: PARAMETER target='m.fc.weight'\n"
                          "p_m_fc_bias: PARAMETER target='m.fc.bias'\n");
    ebb_node n = ebb_value_of(m->graph, ebb_value_find(m->graph, "y"))->producer;
    ebb_node_of(m->graph, n)->props.count = 0;
    good(ebb_props_set(m->graph, &ebb_node_of(m->graph, n)->props, "pkg.torch.onnx.name_scopes",
                       "['', 'm', 'add']"));
    good(ebb_rewrite(m, "loss:mse,gradient", NULL, NULL));
    ebb_model_free(m);
}

static void a_convolution_that_was_scaled_by_zero_is_refused(void **state)
{
    (void)state;
    static const char text[] =
        HEAD "g (float[1,2,4,4] x) => (float[1,2,4,4] y) "
             "<float[2,2,1,1] \"onnx::Conv_1\" = {0,0,0,0}, float[2] \"onnx::Conv_2\" = {0.5,0.25},"
             " float[2,2,1,1] \"c.weight\" = {0,0,0,0}, float[2] \"c.bias\" = {0.5,0.25}>"
             "{ a = Conv (x, \"c.weight\", \"c.bias\") b = Relu (a) "
             "  y = Conv (b, %s, %s) }";
    for (int i = 0; i < 2; i++) {
        char whole[1024];
        (void)snprintf(whole, sizeof whole, text, i == 0 ? "\"onnx::Conv_1\"" : "\"c.weight\"",
                       i == 0 ? "\"onnx::Conv_2\"" : "\"c.bias\"");
        ebb_model *m = model_of(whole);
        m->torchscript = true;
        ebb_status status = ebb_rewrite(m, "loss:mse,gradient", NULL, NULL);
        assert_int_equal(ebb_status_code(status), i == 0 ? EBB_REJECTED : EBB_OK);
        if (i == 0) {
            assert_non_null(strstr(ebb_status_text(status), "scaled by 0"));
            assert_non_null(strstr(ebb_status_text(status), "do_constant_folding=False"));
        }
        ebb_model_free(m);
    }
}

static void running_out_of_memory_anywhere_is_an_error_and_no_crash(void **state)
{
    (void)state;
    bool done = false;
    for (long n = 1; !done && n < 4000; n++) {
        ebb_model *m = folded_model();
        good(ebb_infer_graph(m->graph));
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_rewrite(m, "loss:mse,gradient", NULL, NULL);
        ebb_alloc_fail_after(0);
        done = status == NULL;
        ebb_model_free(m);
    }
    assert_true(done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_without_name_and_mark_is_a_weight),
        cmocka_unit_test(a_bias_and_a_scale_in_arithmetic_are_weights),
        cmocka_unit_test(a_token_that_is_repeated_and_joined_is_a_weight),
        cmocka_unit_test(states_of_a_cell_are_no_weights),
        cmocka_unit_test(constants_are_told_by_their_values),
        cmocka_unit_test(a_fresh_scale_of_one_number_for_each_channel_is_a_weight),
        cmocka_unit_test(an_identity_that_is_multiplied_by_is_a_fresh_weight),
        cmocka_unit_test(what_a_function_is_computed_of_in_the_run_is_a_weight),
        cmocka_unit_test(fresh_scales_and_biases_behind_a_norm_are_weights),
        cmocka_unit_test(what_the_module_has_lost_is_refused),
        cmocka_unit_test(the_exponential_of_a_temperature_is_missed),
        cmocka_unit_test(what_a_file_without_notes_has_lost_is_not_known),
        cmocka_unit_test(a_convolution_that_was_scaled_by_zero_is_refused),
        cmocka_unit_test(slopes_of_heads_are_no_weights),
        cmocka_unit_test(a_table_of_sines_is_held_fixed_and_named_though_it_is_marked),
        cmocka_unit_test(a_norm_without_scale_and_bias_has_none),
        cmocka_unit_test(a_buffer_is_no_parameter_whatever_reads_it),
        cmocka_unit_test(names_are_evidence_and_values_are_more),
        cmocka_unit_test(what_makes_the_mean_of_an_image_zero_is_no_weight),
        cmocka_unit_test(what_was_made_of_weights_is_doubtful_and_says_why),
        cmocka_unit_test(a_result_in_the_place_of_a_weight_is_trained_and_said_to_be_one),
        cmocka_unit_test(what_is_trained_and_what_not_is_said),
        cmocka_unit_test(what_stands_in_for_a_weight_is_said_to),
        cmocka_unit_test(lost_stands_for_the_lost_weights_and_only_these),
        cmocka_unit_test(less_than_half_is_refused_unless_it_is_asked_for),
        cmocka_unit_test(running_out_of_memory_anywhere_is_an_error_and_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
