/* test_weights_said.c: what pass gradient says of what it trains and leaves out, and what it refuses.
 */
#include "passes/mended/gone.h"
#include "passes/primal/lost.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/passes/weights_given.h"
#include "tests/text.h"

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
    ebb_model *m = parsed(folded);
    ebb_graph *g = m->graph;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 16; k++)
            numbers[i][k] = (float)of[i](k);
        good(ebb_value_point(g, ebb_value_find(g, names[i]), numbers[i]));
    }
    ebb_value bias = ebb_value_find(g, "fc.bias");
    good(ebb_props_set(g, &ebb_value_of(g, bias)->props,
                       "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"));
    return m;
}

static json_t *training_of(ebb_model *m, const char *pipeline)
{
    RELEASED char *text = NULL;
    good(ebb_infer_graph(m->graph));
    good(ebb_rewrite(m, pipeline, NULL, &text));
    json_t *o = json_loads(text, 0, NULL), *training = json_incref(json_object_get(o, "training"));
    json_decref(o);
    return training;
}

static bool has_gradient(const ebb_model *m, const char *name)
{
    return ebb_value_find(m->graph, formatted("%s_grad", name)).i != 0;
}

TEST(what_is_trained_and_what_not_is_said)
{
    OWNED_MODEL *m = folded_model();
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
}

TEST(what_stands_in_for_a_weight_is_said_to)
{
    OWNED_MODEL *m = NULL;
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
}

TEST(lost_stands_for_the_lost_weights_and_only_these)
{
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

TEST(less_than_half_is_refused_unless_it_is_asked_for)
{
    const char *const refused = "loss:mse,gradient", *const asked[] = {
                                                         "loss:mse,gradient:partial=allow",
                                                         "loss:mse,gradient:train=fc*",
                                                         "loss:mse,gradient:freeze=nothing"};
    for (int torchscript = 0; torchscript < 3; torchscript++) {
        OWNED_MODEL *m = folded_model();
        ebb_value w = ebb_value_find(m->graph, "val_3"), bias = ebb_value_find(m->graph, "fc.bias");
        good(ebb_props_set(m->graph, &ebb_value_of(m->graph, w)->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", "BUFFER"));
        if (torchscript > 0) { // no marks, and nothing but the table beside the bias
            ebb_value_of(m->graph, bias)->props.all = NULL;
            ebb_value_of(m->graph, w)->props.all = NULL;
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
    }
    for (size_t i = 0; i < 3; i++) {
        OWNED_MODEL *m = folded_model();
        good(ebb_props_set(m->graph,
                           &ebb_value_of(m->graph, ebb_value_find(m->graph, "val_3"))->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", "BUFFER"));
        good(ebb_infer_graph(m->graph));
        ebb_status status = ebb_rewrite(m, asked[i], NULL, NULL);
        if (i == 2) // that it fits nothing is another matter
            assert_int_equal(ebb_status_code(status), EBB_USAGE);
        else
            good(status);
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

TEST(what_the_module_has_lost_is_refused)
{
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

/* A weight of a filter's cut-offs, or of the embeddings of nodes, is not the parameter; one that was
 * normalised nearly is. */
TEST(what_was_computed_of_other_parameters_stands_in_for_none)
{
    static const char lost[] = "# inputs\np_w: PARAMETER target='w'\n"
                               "p_m_low: PARAMETER target='m.low'\n";
    static const char normed[] = "# inputs\np_w: PARAMETER target='w'\n"
                                 "p_m_gain: PARAMETER target='m.gain'\n"
                                 "p_m_weight: PARAMETER target='m.weight'\n";
    const struct {
        const char *op, *name, *list;
        bool made;
    } cases[] = {
        {"MatMul", "softmax", lost, true},    {"MatMul", "softmax", normed, false},
        {"MatMul", "permute", lost, false},   {"Conv", "unsqueeze", lost, true},
        {"Conv", "unsqueeze", normed, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const given c = {cases[i].op, "8x8", 1, drawn, cases[i].name, "args = (%a, %b)"};
        OWNED_MODEL *m = model_with(&c, true);
        ebb_graph *g = m->graph;
        ebb_node n = ebb_value_of(g, ebb_value_find(g, "y"))->producer;
        good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.name_scopes",
                           "['', 'm', 'y']"));
        good(ebb_props_set(g, &g->props, "pkg.torch.export.ExportedProgram.graph_signature",
                           cases[i].list));
        if (judged_in(m, c.name).made != cases[i].made)
            fail_msg("case %zu", i);
    }
}

/* Joined with the product before it, it would be gone when weights are looked for. */
TEST(the_exponential_of_a_temperature_is_missed)
{
    static const char *const signatures[] = {
        "# inputs\np_w: PARAMETER target='w'\np_m_scale: PARAMETER target='m.scale'\n",
        "# inputs\np_w: PARAMETER target='w'\n"};
    static const char *const names[] = {"exp", "exp", "clamp"};
    for (int i = 0; i < 3; i++) {
        OWNED_MODEL *m =
            model_of(formatted(HEAD "g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1,2,3,5},"
                                    " float %s = {14.3}> { a = MatMul (x, w) y = Mul (a, %s) }",
                               names[i], names[i]));
        ebb_graph *g = m->graph;
        if (i == 2)
            good(ebb_props_set(g, &ebb_value_of(g, ebb_value_find(g, "clamp"))->props,
                               "pkg.onnxscript.optimizer.folded_from", "['exp', 'm.scale']"));
        ebb_node n = ebb_value_of(g, ebb_value_find(g, "y"))->producer;
        good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.fx_node",
                           "args = (%matmul, %exp)"));
        good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.name_scopes",
                           "['', 'm', 'mul']"));
        good(ebb_props_set(g, &ebb_value_of(g, ebb_value_find(g, "w"))->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"));
        good(ebb_props_set(g, &g->props, "pkg.torch.export.ExportedProgram.graph_signature",
                           signatures[i % 2]));
        ebb_status status = ebb_rewrite(m, "fuse,loss:mse,gradient", NULL, NULL);
        assert_int_equal(ebb_status_code(status), i != 1 ? EBB_REJECTED : EBB_OK);
        if (i != 1)
            assert_non_null(strstr(ebb_status_text(status), "(it was computed from weights"));
    }
}

/* A list of parameters alone says nothing: which of them calls read is not told. */
TEST(what_a_file_without_notes_has_lost_is_not_known)
{
    OWNED_MODEL *m = listed("permute_1", "1x8x8", drawn,
                            "# inputs\np_m_fc_weight: PARAMETER target='m.fc.weight'\n"
                            "p_m_fc_bias: PARAMETER target='m.fc.bias'\n");
    ebb_node n = ebb_value_of(m->graph, ebb_value_find(m->graph, "y"))->producer;
    ebb_node_of(m->graph, n)->props.all = NULL;
    good(ebb_props_set(m->graph, &ebb_node_of(m->graph, n)->props, "pkg.torch.onnx.name_scopes",
                       "['', 'm', 'add']"));
    good(ebb_rewrite(m, "loss:mse,gradient", NULL, NULL));
}

/* x + (q - x) of a TorchScript file had a detach() around the difference: nothing behind q learns, and what
 * is behind x does. */
TEST(what_is_looked_up_straight_through_gets_no_gradient)
{
    static const char *const sums[] = {"Add (z, d)", "Add (d, z)"};
    for (int i = 0; i < 4; i++) {
        OWNED_MODEL *m =
            model_of(formatted(HEAD "g (float[2,2] x) => (float[2,2] y) <float[2,2] \"a.weight\" = "
                                    "{1,2,3,5}, float[2,2] \"b.weight\" = {2,7,1,8}>"
                                    "{ z = MatMul (x, \"a.weight\") q = MatMul (x, \"b.weight\") "
                                    "d = Sub (q, z) y = %s }",
                               sums[i % 2]));
        m->torchscript = i < 2;
        json_decref(training_of(m, "loss:mse,gradient:partial=allow"));
        assert_true(has_gradient(m, "a.weight"));
        assert_true(has_gradient(m, "b.weight") == !m->torchscript);
    }
}

/* TorchScript folds constants of their own into nodes, so an initializer of its making was a parameter's. */
TEST(what_does_nothing_was_folded_of_a_fresh_weight)
{
    const struct {
        given given;
        bool torchscript, refused;
    } cases[] = {
        {{"Mul", "1x8x1", 1, one, "onnx::Mul_458", NULL}, true, true},
        {{"Add", "2x8x8", 1, zero, "onnx::Add_263", NULL}, true, true},
        {{"Mul", "1x8x1", 1, one, "onnx::Mul_458", NULL}, false, false},
        {{"Mul", "1x8x1", 1, one, "/m/Constant_output_0", NULL}, true, false},
        {{"Mul", "1x8x1", 1, zero, "onnx::Mul_184", NULL}, true, true}, // of a response norm
        {{"Mul", "2x8x8", 1, zero, "onnx::Mul_3", NULL}, true, false},  // a mask
        {{"Add", "1x8", 1, zero, "onnx::Add_3", NULL}, true, false},    // a bias that is a buffer
        {{"Add", "8", 1, zero, "onnx::Add_3", NULL}, true, true},       // a part of a fresh one
        {{"Mul", "1", 1, drawn, "onnx::Mul_44", NULL}, true, true},     // of a softmax
        {{"Mul", "1", 1, drawn, "onnx::Mul_44", NULL}, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED_MODEL *m = model_with(&cases[i].given, false);
        m->torchscript = cases[i].torchscript;
        ebb_weight weight = judged_in(m, cases[i].given.name);
        if (weight.made != cases[i].refused)
            fail_msg("case %zu: %s", i, weight.why != NULL ? weight.why : "no weight");
    }
}

/* A layer's bias keeps its name; what has none was cut out of a longer one, or put together. */
TEST(a_bias_with_something_beside_it_is_refused)
{
    static const struct {
        const char *bias, *shape;
        double (*of)(int64_t);
        bool torchscript, refused;
    } cases[] = {
        {"onnx::Add_9", "24", of_two_weights, true,
         true},                                    // a query's and a value's, none of the key
        {"onnx::Add_9", "24", zero, true, true},   // of these, while they are fresh
        {"onnx::Add_9", "24", drawn, true, false}, // a part of several
        {"fc.bias", "24", zero, true, false},
        {"onnx::Add_9", "24", of_two_weights, false, false},
    };
    static const char *const pipelines[] = {"loss:mse,gradient", "fuse,loss:mse,gradient"};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const char *bias = cases[i / 2].bias;
        OWNED_MODEL *m = parsed(HEAD "g (float[2,8] x) => (float[2,24] y) "
                                     "{ a = MatMul (x, x) y = Add (a, a) }");
        ebb_graph *g = m->graph;
        m->torchscript = cases[i / 2].torchscript;
        const ebb_node sum = ebb_value_of(g, ebb_value_find(g, "y"))->producer;
        good(ebb_node_set_input(g, ebb_first(g), 1, add(m, "onnx::MatMul_8", "8x24", drawn)));
        good(ebb_node_set_input(g, sum, 0, add(m, bias, cases[i / 2].shape, cases[i / 2].of)));
        good(ebb_infer_graph(g));
        ebb_status status = ebb_rewrite(m, pipelines[i % 2], NULL, NULL);
        if ((ebb_status_code(status) == EBB_REJECTED) != cases[i / 2].refused)
            fail_msg("case %zu: %s", i, status != NULL ? ebb_status_text(status) : "trained");
        if (cases[i / 2].refused)
            assert_non_null(strstr(ebb_status_text(status), "do_constant_folding=False"));
    }
}

/* A gain that is 0 yet, times what a weight is scaled by: the norm of the weight takes it as its scale. */
TEST(a_fresh_scale_of_zeros_is_trained_where_folding_made_it)
{
    const given c = {"BatchNormalization", "8", 1, zero, "onnx::BatchNormalization_9", NULL};
    for (int torchscript = 0; torchscript < 2; torchscript++) {
        OWNED_MODEL *m = model_with(&c, false);
        m->torchscript = torchscript != 0;
        assert_int_equal(judged_in(m, c.name).kind, torchscript ? EBB_SURE_WEIGHT : EBB_NO_WEIGHT);
    }
}

/* A factor of exp(-log_sigma), which was 1, went with its product; the exporter lists log_sigma. */
TEST(what_went_with_its_node_is_refused)
{
    static const char lists[] = "# inputs\np_w: PARAMETER target='w'\n"
                                "p_%s: PARAMETER target='%s'\n\n# outputs\n%s: USER_OUTPUT\n";
    static const struct {
        const char *other, *output, *reads;
        bool refused;
    } cases[] = {
        {"log_sigma", "mul_2", "x", true},    {"log_sigma", "add", "mul_1", true},
        {"log_sigma", "add", "x", false}, // the model does not use it
        {"log_sigma", "dropout", "x", false}, {"tied.weight", "mul_2", "x", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        OWNED_ARENA scratch = {0};
        OWNED_MODEL *m =
            model_of(HEAD "g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1,2,3,4}>"
                          "{ a = MatMul (x, w) y = Add (a, x) }");
        ebb_graph *g = m->graph;
        const ebb_node first = ebb_first(g), sum = ebb_next(g, first);
        good(ebb_props_set(g, &ebb_value_of(g, ebb_value_find(g, "w"))->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"));
        good(ebb_props_set(g, &ebb_node_of(g, first)->props, "pkg.torch.onnx.fx_node",
                           "%a : call_function(args = (%x, %p_w), kwargs = {})"));
        (void)snprintf(text, sizeof text, "%%add : call_function(args = (%%a, %%%s), kwargs = {})",
                       cases[i].reads);
        good(ebb_props_set(g, &ebb_node_of(g, sum)->props, "pkg.torch.onnx.fx_node", text));
        good(ebb_props_set(g, &ebb_node_of(g, sum)->props, "pkg.torch.onnx.name_scopes",
                           i == 4 ? "['', 'tied', 'add']" : "['', 'add']"));
        (void)snprintf(text, sizeof text, lists, cases[i].other, cases[i].other, cases[i].output);
        good(ebb_props_set(g, &g->props, "pkg.torch.export.ExportedProgram.graph_signature", text));
        good(ebb_gone_mark(g, &scratch));
        good(ebb_infer_graph(g));
        ebb_status status = ebb_rewrite(m, "loss:mse,gradient", NULL, NULL);
        if ((ebb_status_code(status) == EBB_REJECTED) != cases[i].refused)
            fail_msg("case %zu: %s", i, status != NULL ? ebb_status_text(status) : "trained");
        if (cases[i].refused)
            assert_non_null(strstr(ebb_status_text(status), "'log_sigma' (the file does not"));
    }
}

static double above_zero(int64_t i)
{
    return drawn(i) + 0.2;
}

/* One that was drawn above 0 is a bias where it is added, and what came of an exponential where it scales:
 * that is no parameter, and the rest is not trained without it. */
/* A tied head and its embedding: torch.export lists both, and notes the one where either is read. */
TEST(a_tied_parameter_is_not_missed)
{
    static const char lists[] = "# inputs\np_emb_weight: PARAMETER target='emb.weight'\n"
                                "p_out_weight: PARAMETER target='out.weight'\n\n# outputs\n";
    for (int tied = 0; tied < 2; tied++) {
        ebb_lost *lost;
        size_t count;
        OWNED_ARENA scratch = {0};
        OWNED_MODEL *m =
            model_of(HEAD "g (int64[3] x) => (float[3,4] y) <float[4,4] \"out.weight\" " SIXTEEN ">"
                          "{ a = Gather (\"out.weight\", x) y = MatMul (a, \"out.weight\") }");
        ebb_graph *g = m->graph;
        const ebb_node first = ebb_first(g);
        good(ebb_props_set(g, &ebb_value_of(g, ebb_value_find(g, "out.weight"))->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"));
        good(ebb_props_set(g, &ebb_node_of(g, first)->props, "pkg.torch.onnx.fx_node",
                           "%a : call_function(args = (%p_out_weight, %x), kwargs = {})"));
        good(ebb_props_set(g, &ebb_node_of(g, first)->props, "pkg.torch.onnx.name_scopes",
                           tied ? "['', 'emb', 'a']" : "['', 'out', 'a']"));
        good(ebb_props_set(g, &ebb_node_of(g, ebb_next(g, first))->props,
                           "pkg.torch.onnx.name_scopes", "['', 'emb', 'y']"));
        good(
            ebb_props_set(g, &g->props, "pkg.torch.export.ExportedProgram.graph_signature", lists));
        good(ebb_infer_graph(g));
        good(ebb_lost_list(&lost, &count, g, &scratch));
        assert_int_equal(count, tied ? 0 : 1);
    }
}

TEST(what_was_folded_above_zero_is_trained_or_refused)
{
    const struct {
        given given;
        ebb_weight_kind torchscript, others;
    } cases[] = {
        {{"Add", "4x8", 1, above_zero, "onnx::Add_1043", NULL},
         EBB_SURE_WEIGHT,
         EBB_DOUBTFUL_WEIGHT},
        {{"Mul", "4x8", 1, above_zero, "onnx::Mul_1043", NULL},
         EBB_DOUBTFUL_WEIGHT,
         EBB_DOUBTFUL_WEIGHT},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        OWNED_MODEL *m = model_with(&cases[i / 2].given, false);
        m->torchscript = i % 2 == 0;
        ebb_weight weight = judged_in(m, cases[i / 2].given.name);
        assert_int_equal(weight.kind,
                         m->torchscript ? cases[i / 2].torchscript : cases[i / 2].others);
        assert_int_equal(weight.made, m->torchscript && weight.kind == EBB_DOUBTFUL_WEIGHT);
    }
}

/* A matrix of a TorchScript file that neither name nor place tells from a buffer is refused until somebody says what
 * it is, whatever its values. */
TEST(what_may_be_a_buffer_is_said_or_refused)
{
    static const char text[] =
        HEAD "g (float[2,2] x) => (float[2,2] y) <float[2,2] B = {%s}, float[2,2] "
             "\"fc.weight\" = {2,7,1,8}> { z = MatMul (x, B) y = MatMul (z, \"fc.weight\") }";
    static const char drawn[] = "1,2,3,5", rule[] = "3,3,3,3";
    const struct {
        const char *values, *pipeline;
        bool torchscript, trains, others;
    } cases[] = {
        {drawn, "loss:mse,gradient", false, true, true},
        {drawn, "loss:mse,gradient:train=\"weights;B\"", true, true, true},
        {drawn, "loss:mse,gradient:freeze=B", true, false, true},
        {rule, "loss:mse,gradient:freeze=B", true, false, true},
        {rule, "loss:mse,gradient:partial=allow", true, false, true},
        {rule, "loss:mse,gradient:train=weights", true, false, true},
        {rule, "loss:mse,gradient:train=\"weights;B\"", true, true, true},
        {rule, "loss:mse,gradient:train=B", true, true, false},
    };
    char filled[512];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)snprintf(filled, sizeof filled, text, cases[i].values);
        OWNED_MODEL *m = model_of(filled);
        m->torchscript = cases[i].torchscript;
        json_decref(training_of(m, cases[i].pipeline));
        assert_true(has_gradient(m, "B") == cases[i].trains);
        assert_true(has_gradient(m, "fc.weight") == cases[i].others);
    }
    for (int i = 0; i < 2; i++) {
        (void)snprintf(filled, sizeof filled, text, i == 0 ? rule : drawn);
        OWNED_MODEL *m = model_of(filled);
        m->torchscript = true;
        ebb_arena scratch = {0};
        ebb_lost *lost;
        size_t count;
        good(ebb_lost_list(&lost, &count, m->graph, &scratch));
        assert_int_equal(count, 1);
        assert_int_equal(lost[0].kind, EBB_LOST_MARK);
        assert_non_null(strstr(lost[0].sentence, "has to be told: B"));
        ebb_arena_fini(&scratch);
        ebb_status status = ebb_rewrite(m, "loss:mse,gradient", NULL, NULL);
        const char *said = ebb_status_text(status);
        assert_int_equal(ebb_status_code(status), EBB_REJECTED);
        assert_non_null(strstr(said, i == 0 ? "not: 'B' (its values follow a rule"
                                            : "not: 'B' (neither its name nor its place tells"));
        assert_non_null(strstr(said, "dynamo=True, optimize=False"));
        assert_non_null(strstr(said, "--train weights --train 'NAME'"));
    }
}

/* Weights that no loss reads are counted and named: of two heads one is trained. */
TEST(what_no_loss_depends_on_is_named)
{
    static const char text[] =
        HEAD "g (float[4,2] x) => (float[4,2] one, float[4,%d] two) <float[2,2] body = {1,2,3,5}, "
             "float[2,2] first = {2,7,1,8}, float[2,%d] second = {%s}> { h = MatMul (x, body) "
             "one = MatMul (h, first) two = MatMul (h, second) }";
    static const char few[] = "3,1,4,1", many[] = "3,1,4,1,5,9,2,6,5,3,5,8,9,7,9,3,2,3,8,4";
    const struct {
        int wide;
        const char *pipeline, *said, *left;
    } cases[] = {
        {2, "loss:mse,gradient", "training 2 of 3 weights, 66.7 %", "'second' (the loss does not"},
        {2, "loss:mse,output=two,gradient", "training 2 of 3 weights",
         "'first' (the loss does not"},
        {2, "loss:mse,keep-output=1,gradient", "training 2 of 3 weights", "'second' (the loss"},
        {2, "loss:mse,nth=1,keep-output=1,loss:mse,nth=2,output=two,target=t,gradient",
         "training 3 of 3 weights, 100 %", ""},
        {10, "loss:mse,gradient", "training 2 of 3 weights, 28.6 %", "'second'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int wide = cases[i].wide;
        OWNED_MODEL *m = model_of(formatted(text, wide, wide, wide == 2 ? few : many));
        json_t *training = training_of(m, cases[i].pipeline);
        const char *said = json_string_value(json_object_get(training, "said"));
        if (strstr(said, cases[i].said) == NULL || strstr(said, cases[i].left) == NULL)
            fail_msg("case %zu: %s", i, said);
        assert_null(ebb_props_get(m->graph, &m->graph->props, EBB_UNREACHED));
        json_decref(training);
    }
}

TEST(a_convolution_that_was_scaled_by_zero_is_refused)
{
    static const char text[] =
        HEAD "g (float[1,2,4,4] x) => (float[1,2,4,4] y) "
             "<float[2,2,1,1] \"onnx::Conv_1\" = {0,0,0,0}, float[2] \"onnx::Conv_2\" = {0.5,0.25},"
             " float[2,2,1,1] \"c.weight\" = {0,0,0,0}, float[2] \"c.bias\" = {0.5,0.25}>"
             "{ a = Conv (x, \"c.weight\", \"c.bias\") b = Relu (a) "
             "  y = Conv (b, %s, %s) }";
    for (int i = 0; i < 2; i++) {
        OWNED_MODEL *m = model_of(formatted(text, i == 0 ? "\"onnx::Conv_1\"" : "\"c.weight\"",
                                            i == 0 ? "\"onnx::Conv_2\"" : "\"c.bias\""));
        m->torchscript = true;
        ebb_status status = ebb_rewrite(m, "loss:mse,gradient", NULL, NULL);
        assert_int_equal(ebb_status_code(status), i == 0 ? EBB_REJECTED : EBB_OK);
        if (i == 0) {
            assert_non_null(strstr(ebb_status_text(status), "scaled by 0"));
            assert_non_null(strstr(ebb_status_text(status), "do_constant_folding=False"));
        }
    }
}

TEST(running_out_of_memory_anywhere_is_an_error_and_no_crash)
{
    bool done = false;
    for (long n = 1; !done && n < 4000; n++) {
        OWNED_MODEL *m = folded_model();
        good(ebb_infer_graph(m->graph));
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_rewrite(m, "loss:mse,gradient", NULL, NULL);
        ebb_alloc_fail_after(0);
        done = status == NULL;
    }
    assert_true(done);
}
