/* test_weights.c: which initializers of a file are trained where folding took their marks and names:
 * weights are, constants are not, and what was made of weights is named.
 */
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/passes/weights_given.h"
#include "tests/text.h"

/* ---- slots ---- */

TEST(a_weight_without_name_and_mark_is_a_weight)
{
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_SURE_WEIGHT, marked != 0, {"MatMul", "8x8", 1, drawn, NULL, NULL},
            {"MatMul", "2x8x8", 0, drawn, NULL, NULL}, {"Gemm", "8", 2, drawn, NULL, NULL},
            {"Gather", "99x8", 0, drawn, NULL, NULL}, {"Conv", "8x8x3", 1, drawn, NULL, NULL},
            {"LSTM", "1x32x8", 1, drawn, NULL, NULL}, {"LSTM", "1x64", 3, zero, NULL, NULL},
            {"GRU", "1x24x8", 2, drawn, NULL, NULL}, {"PRelu", "8x1", 1, quarter, NULL, NULL},
            {"LayerNormalization", "8", 1, drawn, NULL, NULL});
}

TEST(a_fresh_scale_of_one_number_for_each_channel_is_a_weight)
{
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_SURE_WEIGHT, marked != 0, {"Mul", "8", 1, quarter, NULL, NULL},
            {"Mul", "8x1", 0, quarter, "view_3", "args = (%conv2d_2, %view_3)"});
    ARE(EBB_NO_WEIGHT, true, {"Mul", "1", 1, quarter, NULL, NULL},
        {"Mul", "8x8", 1, quarter, NULL, NULL}, {"Add", "8", 1, quarter, NULL, NULL});
}

TEST(a_bias_and_a_scale_in_arithmetic_are_weights)
{
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_SURE_WEIGHT, marked != 0, {"Add", "8", 1, drawn, NULL, NULL},
            {"Mul", "1x8x1", 0, drawn, NULL, NULL},
            {"Add", "1x8x8", 1, drawn, NULL, NULL}); // the last one: trained positions
    ARE(EBB_SURE_WEIGHT, true, {"Add", "1x8x8", 1, drawn, "embedding_2", NULL},
        {"Mul", "8x1", 1, drawn, "view_3", NULL},
        {"Mul", "8", 1, one, "view", "args = (%x, %p_gamma)"});
}

/* A token before the sequence is repeated for each row of the batch, and joined to it. */
TEST(a_token_that_is_repeated_and_joined_is_a_weight)
{
    OWNED_MODEL *m = parsed(HEAD "g (float[2,3,4] x) => (float[2,4,4] y) <int64[3] dims = "
                                 "{2,1,4}, float[1,1,4] val_1 = {0.5,0.25,3,4}>"
                                 "{ t = Expand (val_1, dims) y = Concat <axis = 1> (t, x) }");
    ebb_trainable_source source;
    bool trains[64] = {false};
    good(ebb_trainable_find(trains, &source, m->graph));
    assert_true(trains[ebb_value_find(m->graph, "val_1").i]);
}

/* A layer without bias, written with one, for a size that is known in the run. */
TEST(a_number_that_fills_a_bias_is_no_weight)
{
    OWNED_MODEL *m = parsed(
        HEAD "g (float[1,2,4] x) => (float[1,3,4] y) <int64[1] dims = {3}, float val_1 = {0},"
             "float[3,2,1] w = {1,2,3,4,5,6}>"
             "{ b = Expand (val_1, dims) y = Conv (x, w, b) }");
    ebb_trainable_source source;
    bool trains[64] = {false};
    good(ebb_trainable_find(trains, &source, m->graph));
    assert_true(trains[ebb_value_find(m->graph, "w").i]);
    assert_false(trains[ebb_value_find(m->graph, "val_1").i]);
}

TEST(states_of_a_cell_are_no_weights)
{
    ARE(EBB_NO_WEIGHT, true, {"LSTM", "1x2x8", 5, zero, NULL, NULL},
        {"GRU", "1x2x8", 5, drawn, NULL, NULL});
    // by any other exporter's name
    ARE(EBB_NO_WEIGHT, false, {"LSTM", "1x2x8", 5, zero, "model/lstm/zeros:0", NULL},
        {"LSTM", "1x2x8", 6, zero, "const_fold_opt__562", NULL});
    ARE(EBB_SURE_WEIGHT, false, {"LSTM", "1x2x8", 5, drawn, "model.h0", NULL});
}

/* Of a cell whose steps are nodes. */
TEST(zeros_that_a_weight_multiplies_are_what_a_cell_begins_with)
{
    OWNED_MODEL *m = NULL;
    good(ebb_text_parse_model(
        &m,
        HEAD "g (float[2,4] x) => (float[2,4] y) <float[2,4] h = {0,0,0,0,0,0,0,0}, float[4,4] w = "
             "{1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,8}, float[4,4] u = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}>"
             "{ a = MatMul (h, w) b = MatMul (x, u) c = Add (a, b) y = Sub (c, h) }"));
    ebb_trainable_source source;
    bool trains[64] = {false};
    good(ebb_trainable_find(trains, &source, m->graph));
    assert_false(trains[ebb_value_find(m->graph, "h").i]);
    assert_true(trains[ebb_value_find(m->graph, "w").i]);
    assert_true(trains[ebb_value_find(m->graph, "u").i]); // a layer that begins with zeros
}

/* ---- constants ---- */

TEST(constants_are_told_by_their_values)
{
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_NO_WEIGHT, marked != 0, {"Add", "8x8", 1, mask, NULL, NULL},
            {"Add", "1x8x8", 1, infinite_mask, NULL, NULL}, {"Add", "8x8", 1, region, NULL, NULL},
            {"Add", "32x8", 1, position, NULL, NULL}, {"Mul", "32x8", 1, position, NULL, NULL},
            {"Mul", "16", 1, power, NULL, NULL}, {"Mul", "64", 1, window, NULL, NULL},
            {"Add", "2x8x8", 1, zero, NULL, NULL}, {"Mul", "8", 0, one, NULL, NULL},
            {"Mul", "1", 0, quarter, NULL, NULL}, {"Gather", "32x8", 0, position, NULL, NULL},
            {"MatMul", "8x8", 1, mask, NULL, NULL}, {"MatMul", "64x64", 1, window, NULL, NULL});
}

/* Whatever they are called, and a trained vector that is nearly as symmetric is none. */
TEST(windows_are_no_weights)
{
    ARE(EBB_NO_WEIGHT, false, {"Mul", "32", 1, blackman, "model.w", NULL},
        {"Mul", "1x1x32", 1, blackman, NULL, NULL}, {"Mul", "16", 1, triangle, NULL, NULL});
    ARE(EBB_SURE_WEIGHT, false, {"Mul", "8x31", 1, blackman, "model.w", NULL},
        {"Mul", "31", 1, blackman, "model.w", NULL}, {"Mul", "32", 1, drawn, "model.w", NULL});
}

/* TorchScript files name buffers as they name parameters. */
TEST(what_may_be_a_buffer_by_its_values_is_not_trained_unasked)
{
    const struct {
        given given;
        bool doubtful;
    } cases[] = {
        {{"MatMul", "8x8", 1, mask, "model.adjacency", NULL}, true},
        {{"MatMul", "32x8", 1, position, "model.dct", NULL}, true},
        {{"Conv", "8x8x3", 1, repeated, "model.blur", NULL}, true},
        {{"Conv", "8x8x3", 1, quarter, "model.box", NULL}, true},
        {{"Add", "1x8x8", 1, looked_up, "model.points", NULL}, true},
        {{"Add", "1x8x8", 1, looked_up, "model.bias_table", NULL}, false},
        {{"Exp", "8x8", 0, repeated, "model.A_log", NULL}, false},
        {{"Conv", "8x8x3", 1, zero, "model.zero", NULL}, false},
        {{"MatMul", "8x8", 1, mask, "model.fc.weight", NULL}, false},
        {{"MatMul", "8x8", 1, drawn, "model.B", NULL}, true},
        {{"Conv", "8x8x3", 1, drawn, "model.kernels", NULL}, true},
        {{"Add", "1x8x8", 1, drawn, "model.pos_embed", NULL}, false},
        {{"Mul", "8x1", 1, drawn, "m.parametrizations.weight.original0", NULL}, false},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        const given *c = &cases[i / 2].given;
        OWNED_MODEL *m = model_with(c, false);
        m->torchscript = i % 2 == 1;
        ebb_weight weight = judged_in(m, c->name);
        if (weight.untold != (cases[i / 2].doubtful && m->torchscript) ||
            (weight.kind == EBB_SURE_WEIGHT) == weight.untold)
            fail_msg("case %zu: %d %s", i, weight.kind, weight.why != NULL ? weight.why : "");
    }
}

TEST(what_is_taken_for_a_parameter_is_said)
{
    const given c = {"Add", "8x8", 1, drawn, "model.B", NULL};
    OWNED_MODEL *m = model_with(&c, false);
    assert_null(judged_in(m, c.name).why);
    m->torchscript = true;
    assert_non_null(strstr(judged_in(m, c.name).why, "taken for parameters"));
}

/* TorchScript's order: of each module the parameters, its buffers, and then the modules within it. */
TEST(a_module_s_parameters_stand_before_its_buffers)
{
    const struct {
        const char *states;
        ebb_weight_kind kind; /* of m.B */
        bool untold;
    } cases[] = {
        {"float[2,2] \"m.B\" = {1,2,3,5}, float[2] \"m.bias\" = {1,2}", EBB_SURE_WEIGHT, false},
        {"float[2,2] \"m.B\" = {1,2,3,5}, float[2] \"m.A\" = {1,2}, float[2] \"m.bias\" = {1,2}",
         EBB_SURE_WEIGHT, false},
        {"float[2] \"m.bias\" = {1,2}, float[2,2] \"m.B\" = {1,2,3,5}", EBB_DOUBTFUL_WEIGHT, true},
        {"float[2,2] \"m.B\" = {1,2,3,5}, float[2] \"m.n.bias\" = {1,2}", EBB_DOUBTFUL_WEIGHT,
         true},
        {"float[2,2] \"m.B\" = {1,2,3,5}, float[2] \"bias\" = {1,2}", EBB_DOUBTFUL_WEIGHT, true},
        {"int64[1] \"m.count\" = {1}, float[2,2] \"m.B\" = {1,2,3,5}", EBB_NO_WEIGHT, false},
        {"float[2] \"m.running_var\" = {1,2}, float[2,2] \"m.B\" = {1,2,3,5}", EBB_NO_WEIGHT,
         false},
        {"int64[1] \"m.n.count\" = {1}, float[2,2] \"m.B\" = {1,2,3,5}", EBB_DOUBTFUL_WEIGHT, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED_MODEL *m = model_of(
            formatted(HEAD "g (float[2,2] x) => (float[2,2] y) <%s> { y = MatMul (x, \"m.B\") }",
                      cases[i].states));
        m->torchscript = true;
        ebb_weight weight = judged_in(m, "m.B");
        if (weight.kind != cases[i].kind || weight.untold != cases[i].untold)
            fail_msg("%s: %d", cases[i].states, weight.kind);
    }
}

/* Simplifiers behind the exporter make initializers of what nodes computed, and call them by the nodes. */
TEST(what_a_tool_named_is_of_no_module)
{
    static const struct {
        given given;
        ebb_weight_kind kind;
    } cases[] = {
        {{"LSTM", "1x2x8", 5, zero, "/m/l/Expand_output_0", NULL}, EBB_NO_WEIGHT},
        {{"PRelu", "8x1", 1, drawn, "_v_73", NULL}, EBB_SURE_WEIGHT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED_MODEL *m = model_with(&cases[i].given, false);
        m->torchscript = true;
        assert_int_equal(judged_in(m, cases[i].given.name).kind, cases[i].kind);
    }
}

/* A product of what layers read is no layer: queries, tokens. */
TEST(a_matrix_that_a_layer_reads_is_taken_for_a_parameter)
{
    OWNED_MODEL *m = model_of(HEAD "g (float[2,2] x) => (float[2,2] y) <float[2,2] \"m.queries\" = "
                                   "{1,2,3,5}, float[2,2] \"fc.weight\" = {2,7,1,8}> "
                                   "{ q = MatMul (\"m.queries\", \"fc.weight\") y = Add (x, q) }");
    m->torchscript = true;
    const ebb_weight weight = judged_in(m, "m.queries");
    assert_int_equal(weight.kind, EBB_SURE_WEIGHT);
    assert_non_null(strstr(weight.why, "taken for parameters"));
}

/* Its scale, bias and statistics are buffers, whose names are those of a batch norm's. */
TEST(a_frozen_batch_norm_has_no_weights)
{
    static const char text[] =
        HEAD "g (float[1,2,2,2] x) => (float[1,2,2,2] y) <float[2,1,1] \"n.weight\" = {1,3}, "
             "float[2,1,1] \"n.bias\" = {5,2}, float[2,1,1] \"n.running_mean\" = {7,4}, "
             "float[2,1,1] \"n.running_var\" = {6,9}> { r = Sqrt (\"n.running_var\") "
             "s = Div (\"n.weight\", r) m = Mul (\"n.running_mean\", s) "
             "b = Sub (\"n.bias\", m) z = Mul (x, s) y = Add (z, b) }";
    static const char norm[] =
        HEAD "g (float[1,2,2,2] x) => (float[1,2,2,2] y) <float[2] \"n.weight\" = {1,3}, "
             "float[2] \"n.bias\" = {5,2}, float[2] \"n.running_mean\" = {7,4}, "
             "float[2] \"n.running_var\" = {6,9}> { y = BatchNormalization (x, \"n.weight\", "
             "\"n.bias\", \"n.running_mean\", \"n.running_var\") }";
    static const char *const names[] = {"n.weight", "n.bias", "n.running_mean", "n.running_var"};
    for (int i = 0; i < 4; i++) {
        OWNED_MODEL *m = model_of(text), *usual = model_of(norm);
        m->torchscript = usual->torchscript = true;
        const ebb_weight weight = judged_in(m, names[i]);
        assert_int_equal(weight.kind, i < 2 ? EBB_DOUBTFUL_WEIGHT : EBB_NO_WEIGHT);
        assert_true(i >= 2 || strstr(weight.why, "running statistics that no batch norm") != NULL);
        assert_int_equal(judged_in(usual, names[i]).kind, i < 2 ? EBB_SURE_WEIGHT : EBB_NO_WEIGHT);
    }
}

/* The first nodes, as modules' paths. */
static void name_nodes(ebb_model *m, const char *const *names, int count)
{
    ebb_node n = ebb_first(m->graph);
    for (int k = 0; k < count; k++, n = ebb_node_of(m->graph, n)->next)
        ebb_node_of(m->graph, n)->name = ebb_graph_intern(m->graph, names[k]);
}

/* Such a one that was folded: a module of a product and a sum, whose operands have lost their names. */
TEST(a_scale_and_a_shift_without_names_are_not_trained_unasked)
{
    const struct {
        const char *product, *sum, *shift, *behind;
        bool untold;
    } cases[] = {
        {"/m/bn/Mul", "/m/bn/Add", "onnx::Add_3", "/m/Relu", true},
        {"/m/bn/Mul", "/m/bn/Add", "onnx::Add_3", "/m/bn/Relu", false},
        {"/m/bn/Mul", "/m/bn/Add", "m.bn.bias", "/m/Relu", false},
        {"/m/bn/Mul", "/m/Add", "onnx::Add_3", "/m/relu/Relu", false},
        {"Mul_4", "Add_5", "onnx::Add_3", "Relu_6", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED_MODEL *m = model_of(
            formatted(HEAD "g (float[1,2,2,2] x) => (float[1,2,2,2] y) <float[1,2,1,1] "
                           "\"onnx::Mul_7\" = {1,3}, float[1,2,1,1] \"%s\" = {5,2}> "
                           "{ a = Mul (x, \"onnx::Mul_7\") b = Add (a, \"%s\") y = Relu (b) }",
                      cases[i].shift, cases[i].shift));
        m->torchscript = true;
        const char *const nodes[] = {cases[i].product, cases[i].sum, cases[i].behind};
        name_nodes(m, nodes, 3);
        if (judged_in(m, "onnx::Mul_7").untold != cases[i].untold ||
            (i == 0) != judged_in(m, cases[i].shift).untold)
            fail_msg("case %zu", i);
    }
}

/* A linear layer of rows and a convolution leave their weight its name, but where a batch norm takes both; what has
 * none beside a bias that has one was computed, as a weight times a number. */
TEST(what_was_scaled_before_the_run_is_said_to_be)
{
    static const char *const nodes[] = {"Gemm <transB = 1> (x, \"onnx::W_7\", \"%s\")",
                                        "Gemm (x, \"onnx::W_7\", \"%s\")"};
    for (int i = 0; i < 4; i++) {
        char node[128];
        const char *bias = i < 2 ? "fc.bias" : "onnx::B_8";
        (void)snprintf(node, sizeof node, nodes[i % 2], bias);
        OWNED_MODEL *m = model_of(
            formatted(HEAD "g (float[2,2] x) => (float[2,2] y) <float[2,2] \"onnx::W_7\" = "
                           "{1,2,3,5}, float[2] \"%s\" = {1,3}> { y = %s }",
                      bias, node));
        m->torchscript = true;
        const ebb_weight weight = judged_in(m, "onnx::W_7");
        assert_int_equal(weight.kind, EBB_SURE_WEIGHT);
        assert_true((weight.why != NULL) == (i == 0));
    }
}

/* Of modules as Snake: x + sin(alpha x)^2 / (alpha + 1e-9), where the sum is folded and alpha is not. */
TEST(what_lost_its_name_may_be_made_of_what_kept_it)
{
    const struct {
        const char *of_lost, *of_kept, *module;
        bool made;
    } cases[] = {
        {"Reciprocal (\"onnx::F_7\")", "Mul", "/s/Mul", true},
        {"Reciprocal (\"onnx::F_7\")", "Add", "/s/Add", true},
        {"Reciprocal (\"onnx::F_7\")", "Mul", "/t/Mul", false},
        {"Reciprocal (\"onnx::F_7\")", "MatMul", "/s/MatMul", false}, // a layer's
        {"Mul (\"onnx::F_7\", x)", "Mul", "/s/Mul", true},
        {"Mul (\"onnx::F_7\", x)", "Add", "/s/Add", false}, // a scale made of another, and a bias
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        (void)snprintf(
            text, sizeof text,
            HEAD "g (float[2,2] x) => (float[2,2] y) <float[2,2] \"onnx::F_7\" = {3,5,-8,13}, "
                 "float[2,2] \"s.alpha\" = {2,7,1,9}> { a = %s b = %s (\"s.alpha\", x) "
                 "y = Sub (a, b) }",
            cases[i].of_lost, cases[i].of_kept);
        OWNED_MODEL *m = model_of(text);
        m->torchscript = true;
        const char *const nodes[] = {"/s/Lost", cases[i].module, "/s/Sub"};
        name_nodes(m, nodes, 3);
        const ebb_weight weight = judged_in(m, "onnx::F_7");
        if (weight.kind != (cases[i].made ? EBB_DOUBTFUL_WEIGHT : EBB_SURE_WEIGHT) ||
            weight.made != cases[i].made)
            fail_msg("case %zu", i);
    }
}

/* Of one table two layers read as many rows as they have places. */
TEST(the_first_rows_of_a_table_are_no_weight_beside_it)
{
    OWNED_MODEL *m =
        model_of(HEAD "g (float[2,3,2] x) => (float[2,2,2] y) <int64[1] at = {0}, "
                      "int64[1] end = {2}, int64[1] axis = {1}, float[1,3,2] "
                      "\"onnx::Add_7\" = {1,2,3,5,8,9}, float[1,2,2] \"onnx::Add_9\" = "
                      "{1,2,3,5}> { a = Add (x, \"onnx::Add_7\") b = Slice (a, at, "
                      "end, axis) c = Exp (b) y = Add (c, \"onnx::Add_9\") }");
    m->torchscript = true;
    assert_int_equal(judged_in(m, "onnx::Add_7").kind, EBB_SURE_WEIGHT);
    assert_int_equal(judged_in(m, "onnx::Add_9").kind, EBB_DOUBTFUL_WEIGHT);
}

/* A codebook is a buffer as often as a parameter. */
TEST(what_the_nearest_is_looked_up_in_is_not_trained_unasked)
{
    static const char *const names[] = {"m.embed", "m.codes.weight"};
    for (int i = 0; i < 4; i++) {
        OWNED_MODEL *m = model_of(
            formatted(HEAD "g (float[2,3] x) => (float[2,2] y) <float[3,2] \"%s\" = {1,2,3,5,8,9}>"
                           "{ k = %s (x) y = Gather (\"%s\", k) }",
                      names[i % 2], "ArgMin <axis = 1, keepdims = 0>", names[i % 2]));
        m->torchscript = i < 2;
        assert_true(judged_in(m, names[i % 2]).untold == (i == 0));
    }
}

/* The names of its nodes are paths of modules: a linear layer is all that its module computes. */
TEST(what_lost_its_name_is_said_where_no_layer_reads_it)
{
    const struct {
        const char *product, *behind, *bias, *after;
        bool said;
    } cases[] = {
        {"/m/fc/MatMul", "/m/fc/Add", "onnx::Add_3", "/m/Sin", false},
        {"/m/MatMul", "/m/Add", "onnx::Add_3", "/m/Sin", true},
        {"/m/MatMul", "/m/Add", "m.in_proj_bias", "/m/Sin", false},
        {"/m/MatMul", "/m/Add", "m.B", "/Sin", false},
        {"/m/MatMul", "/m/Add", "m.B", "/m/sin/Sin", true},
        {"/m/MatMul", "/m/Add", "m.B", "/m2/Sin", false},
        {"/MatMul", "/Add", "onnx::Add_3", "/Sin", true},
        {"MatMul_4", "Add_5", "onnx::Add_3", "Sin_6", false}, // of an old exporter
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED_MODEL *m = model_of(
            formatted(HEAD "g (float[2,2] x) => (float[2,2] y) <float[2,2] \"onnx::MatMul_7\" = "
                           "{1,2,3,5}, float[2] \"%s\" = {1,3}>"
                           "{ a = MatMul (x, \"onnx::MatMul_7\") b = Add (a, \"%s\") y = Sin (b) }",
                      cases[i].bias, cases[i].bias));
        m->torchscript = true;
        const char *const names[] = {cases[i].product, cases[i].behind, cases[i].after};
        ebb_node n = ebb_first(m->graph);
        for (int k = 0; k < 3; k++, n = ebb_node_of(m->graph, n)->next)
            ebb_node_of(m->graph, n)->name = ebb_graph_intern(m->graph, names[k]);
        ebb_weight weight = judged_in(m, "onnx::MatMul_7");
        if (weight.kind != EBB_SURE_WEIGHT || (weight.why != NULL) != cases[i].said)
            fail_msg("%s, %s: %d", cases[i].product, cases[i].after, weight.kind);
    }
}

TEST(an_identity_that_is_multiplied_by_is_a_fresh_weight)
{
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_SURE_WEIGHT, marked != 0, {"MatMul", "8x8", 1, identity, NULL, NULL});
    ARE(EBB_NO_WEIGHT, true, {"Add", "8x8", 1, identity, NULL, NULL});
}

/* Of a constant it would have been done before. */
TEST(what_a_function_is_computed_of_in_the_run_is_a_weight)
{
    ARE(EBB_SURE_WEIGHT, false, {"Exp", "8x8", 0, drawn, "onnx::Exp_4", NULL},
        {"Exp", "8x8", 0, repeated, "onnx::Exp_4", NULL},
        {"Sigmoid", "1x8x1x1", 0, one, "onnx::Sigmoid_4", NULL},
        {"BatchNormalization", "1x8x8", 0, drawn, "onnx::BatchNormalization_4", NULL});
    ARE(EBB_NO_WEIGHT, false, {"Exp", "8x8", 0, mask, "onnx::Exp_4", NULL},
        {"Exp", "1", 0, drawn, "onnx::Exp_4", NULL}, {"Cos", "8", 0, drawn, "onnx::Cos_4", NULL});
}

TEST(fresh_scales_and_biases_behind_a_norm_are_weights)
{
    OWNED_MODEL *m = model_of(
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
}

TEST(slopes_of_heads_are_no_weights)
{
    for (int marked = 0; marked < 2; marked++)
        ARE(EBB_NO_WEIGHT, marked != 0, {"Mul", "4x1", 0, slope, NULL, NULL},
            {"Mul", "8", 0, slope, NULL, NULL}, {"Mul", "12x1x1", 1, slope, NULL, NULL});
    ARE(EBB_SURE_WEIGHT, true, {"Mul", "4x1", 0, drawn, "unsqueeze_1", NULL},
        {"Mul", "8", 0, drawn, NULL, NULL});
}

static bool says_sines(const given *c, bool marked, const char *kind)
{
    OWNED_MODEL *m = model_with(c, marked);
    OWNED_ARENA scratch = {0};
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
    return doubtful;
}

/* addcmul(b, w, x) is b + (1 * w) * x in a file, where folding made one of 1 * w: that is w, and with another
 * factor it is not. */
TEST(a_parameter_times_one_is_the_parameter)
{
    static const char *const kwargs[] = {"{}", "{value: 2}"};
    static const char signature[] = "# inputs\np_w: PARAMETER target='w'\n"
                                    "p_m_weight: PARAMETER target='m.weight'\n";
    for (int i = 0; i < 2; i++) {
        char call[128];
        const given c = {"Mul", "8", 1, drawn, "tmp", call};
        (void)snprintf(call, sizeof call,
                       "%%addcmul : [num_users=1] = call_function[target=torch.ops.aten.addcmul."
                       "default](args = (%%view, %%view_1, %%x), kwargs = %s)",
                       kwargs[i]);
        OWNED_MODEL *m = model_with(&c, true);
        ebb_graph *g = m->graph;
        good(ebb_props_set(g, &ebb_value_of(g, ebb_value_find(g, "tmp"))->props,
                           "pkg.onnxscript.optimizer.folded_from", "['m.weight', 'view_1']"));
        good(ebb_props_set(g, &g->props, "pkg.torch.export.ExportedProgram.graph_signature",
                           signature));
        assert_int_equal(judged_in(m, "tmp").kind, i == 0 ? EBB_SURE_WEIGHT : EBB_DOUBTFUL_WEIGHT);
    }
}

/* Modules keep such tables as parameters that need no gradient, and files do not tell of that. */
TEST(a_table_of_sines_is_held_fixed_and_named_though_it_is_marked)
{
    const given looked_up_in = {"Gather", "32x8", 0, position, "embed_positions.weight", NULL};
    const given in_halves = {"Gather", "32x8", 0, halves, "embed_positions.weight", NULL};
    const given added = {"Add", "1x32x8", 1, position, "positions", NULL};
    const given trained = {"Gather", "32x8", 0, moved, "embed_positions.weight", NULL};
    const given few = {"Gather", "4x8", 0, position, "embed_positions.weight", NULL};
    const given few_in_halves = {"Gather", "3x8", 0, halves, "embed_positions.weight", NULL};
    const given few_trained = {"Gather", "4x8", 0, moved, "embed_positions.weight", NULL};
    const given multiplied = {"MatMul", "32x8", 1, position, "fc.weight", NULL};
    for (int marked = 0; marked < 2; marked++) {
        const char *kind = marked != 0 ? "InputKind.PARAMETER" : NULL;
        assert_true(says_sines(&looked_up_in, marked != 0, kind));
        assert_true(says_sines(&in_halves, marked != 0, kind));
        assert_true(says_sines(&few, marked != 0, kind));
        assert_true(says_sines(&few_in_halves, marked != 0, kind));
        assert_false(says_sines(&few_trained, marked != 0, kind));
        assert_false(says_sines(&trained, marked != 0, kind));
        assert_false(says_sines(&multiplied, marked != 0, kind));
    }
    assert_true(says_sines(&added, true, "InputKind.PARAMETER"));
}

TEST(a_norm_without_scale_and_bias_has_none)
{
    ARE(EBB_NO_WEIGHT, true, {"InstanceNormalization", "8", 1, one, NULL, NULL},
        {"InstanceNormalization", "8", 2, zero, NULL, NULL},
        {"LayerNormalization", "8", 1, one, NULL, NULL});
}

TEST(a_buffer_is_no_parameter_whatever_reads_it)
{
    static const char *const kinds[] = {"BUFFER", "InputKind.CONSTANT_TENSOR"};
    const given c = {"MatMul", "8x8", 1, drawn, NULL, NULL};
    for (size_t i = 0; i < 2; i++) {
        OWNED_MODEL *m = model_with(&c, true);
        ebb_trainable_source source;
        bool trains[64] = {false};
        ebb_value v = ebb_value_find(m->graph, "val_7");
        good(ebb_props_set(m->graph, &ebb_value_of(m->graph, v)->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", kinds[i]));
        good(ebb_trainable_find(trains, &source, m->graph));
        assert_false(trains[v.i]);
    }
    ARE(EBB_NO_WEIGHT, true, {"Add", "8", 1, drawn, NULL, "args = (%x, %b_offsets)"});
}

TEST(names_are_evidence_and_values_are_more)
{
    ARE(EBB_SURE_WEIGHT, false, {"Add", "8", 1, drawn, "fc.bias", NULL},
        {"Add", "8x8", 1, drawn, "grid", NULL}, {"MatMul", "8x8", 1, mask, "fc.weight", NULL},
        {"MatMul", "32x8", 1, position, "fc.weight", NULL});
    ARE(EBB_NO_WEIGHT, false, {"Add", "8x8", 1, mask, "attn.attn_mask", NULL},
        {"Add", "8x8", 1, mask, "attn.hidden", NULL}, {"Add", "32x8", 1, position, "pos", NULL},
        {"MatMul", "1x16", 0, power, "rotary.inv_freq", NULL},
        {"Add", "8x8", 1, region, "regions", NULL},
        {"Add", "1x8", 1, zero, "model.final_logits_bias", NULL});
}

TEST(what_makes_the_mean_of_an_image_zero_is_no_weight)
{
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
    const given c = {"Sub", "8", 1, drawn, "mean", NULL}; // of eight series
    m = model_with(&c, false);
    m->torchscript = true;
    good(ebb_node_set_input(m->graph,
                            ebb_value_of(m->graph, ebb_value_find(m->graph, "y"))->producer, 0,
                            ebb_value_find(m->graph, "x")));
    assert_int_equal(judged_in(m, "mean").kind, EBB_NO_WEIGHT);
    ebb_model_free(m);
}

/* ---- what was made of weights ---- */

TEST(what_was_made_of_weights_is_doubtful_and_says_why)
{
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

TEST(a_result_in_the_place_of_a_weight_is_trained_and_said_to_be_one)
{
    const given c = {"Conv", "8x8x3", 1, drawn, "mul", "args = (%x, %mul, %p_0_bias)"};
    ebb_weight w = judged(&c, true);
    assert_int_equal(w.kind, EBB_SURE_WEIGHT);
    assert_true(w.lost);
    assert_non_null(w.why);
    assert_non_null(strstr(w.why, "weight norm"));
    const given plain = {"Conv", "8x8x3", 1, drawn, NULL, "args = (%x, %p_0_weight, %p_0_bias)"};
    assert_null(judged(&plain, true).why);
}
