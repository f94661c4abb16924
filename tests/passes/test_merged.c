/* test_merged.c: initializers that an exporter made one, because their values were equal, are apart
 * again where the file tells their uses apart; and what was parted is saved.
 */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/run/program.h"
#include "passes/mended/merged.h"
#include "passes/parameters/trainable.h"
#include "passes/parameters/weights.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]>\n"
#define ONE "= {1,1}"
#define ZERO "= {0,0}"

static void part(ebb_model *m)
{
    OWNED_ARENA scratch = {0};
    good(ebb_merged_part(m->graph, &scratch));
    good(ebb_verify(m->graph));
}

/* What the node of this name reads in a slot. */
static const char *read_by(const ebb_model *m, const char *node, uint32_t slot)
{
    EBB_EACH_NODE(m->graph, n)
        if (strcmp(ebb_text(m->graph, ebb_node_of(m->graph, n)->name), node) == 0)
            return ebb_value_name(m->graph, ebb_in(m->graph, n, slot));
    fail_msg("there is no node %s", node);
    return NULL;
}

/* What the dynamo exporter notes at a node. */
static void note(ebb_model *m, const char *node, const char *call, const char *scopes)
{
    EBB_EACH_NODE(m->graph, n) {
        ebb_node_info *info = ebb_node_of(m->graph, n);
        if (strcmp(ebb_text(m->graph, info->name), node) != 0)
            continue;
        good(ebb_props_set(m->graph, &info->props, "pkg.torch.onnx.fx_node", call));
        good(ebb_props_set(m->graph, &info->props, "pkg.torch.onnx.name_scopes", scopes));
        return;
    }
    fail_msg("there is no node %s", node);
}

static void mark(ebb_model *m, const char *value, const char *kind, const char *source)
{
    ebb_props *props = &ebb_value_of(m->graph, ebb_value_find(m->graph, value))->props;
    good(ebb_props_set(m->graph, props, "pkg.torch.export.graph_signature.InputSpec.kind", kind));
    good(ebb_props_set(m->graph, props, "pkg.torch.onnx.original_node_name", source));
}

static const char *kind_of(const ebb_model *m, const char *value)
{
    return ebb_props_get(m->graph, &ebb_value_of(m->graph, ebb_value_find(m->graph, value))->props,
                         "pkg.torch.export.graph_signature.InputSpec.kind");
}

/* ---- names that the TorchScript exporter leaves ---- */

static const char named[] =
    HEAD "g (float[2,2] x) => (float[2,2] z) <float[2] \"n1.weight\" " ONE
         ", float[2] \"n1.bias\" " ZERO ", float[2,2] \"f.weight\" = {1,2,3,4}>"
         "{ \"n2.weight\" = Identity (\"n1.weight\") \"n2-0.bias\" = Identity (\"n1.bias\") "
         "\"g.weight\" = Identity (\"f.weight\") \"/Identity_output_0\" = Identity (\"n1.bias\")"
         "[one] a = LayerNormalization (x, \"n1.weight\", \"n1.bias\") "
         "[f] b = MatMul (a, \"f.weight\") [g] c = MatMul (b, \"g.weight\")"
         "[two] d = LayerNormalization (c, \"n2.weight\", \"n2-0.bias\") "
         "[sum] z = Add (d, \"/Identity_output_0\") }";

TEST(an_identity_with_the_name_of_a_parameter_is_one)
{
    OWNED_MODEL *m = model_of(named);
    m->torchscript = true;
    part(m);
    assert_string_equal(read_by(m, "two", 1), "n2.weight");
    assert_string_equal(read_by(m, "two", 2), "n2-0.bias");
    ebb_value bias = ebb_value_find(m->graph, "n2-0.bias");
    assert_true(ebb_value_of(m->graph, bias)->flags & EBB_IS_INITIALIZER);
    ebb_value v = ebb_value_find(m->graph, "n2.weight");
    assert_true(ebb_value_of(m->graph, v)->flags & EBB_IS_INITIALIZER);
    assert_int_equal(ebb_value_of(m->graph, v)->producer.i, 0);
    assert_string_equal(ebb_props_get(m->graph, &ebb_value_of(m->graph, v)->props, EBB_MERGED_WITH),
                        "n1.weight");
    assert_string_equal(read_by(m, "g", 1),
                        "g.weight"); // of a copied layer; what is tied has one name
    // What has no name is no parameter.
    assert_int_equal(ebb_producer_op(m->graph, ebb_value_find(m->graph, "/Identity_output_0")),
                     EBB_OP_IDENTITY);
}

TEST(an_identity_of_another_exporter_says_nothing)
{
    OWNED_MODEL *m = model_of(named);
    part(m);
    assert_int_equal(ebb_producer_op(m->graph, ebb_value_find(m->graph, "n2.weight")),
                     EBB_OP_IDENTITY);
}

/* Folding made a tensor for each of two layers, equal ones, with these biases. */
static ebb_model *folded(const char *biases, const char *identity, const char *second,
                         const char *bias)
{
    ebb_model *m = model_of(
        formatted(HEAD "g (float[2,2,2] x) => (float[2,2,2] z) <float[2,2] \"onnx::MatMul_9\" = "
                       "{1,2,3,4}, %s> { \"onnx::MatMul_10\" = Identity (\"onnx::MatMul_9\") %s "
                       "[\"/l.0/MatMul\"] a = MatMul (x, \"onnx::MatMul_9\") "
                       "[\"/l.0/Add\"] b = Add (a, \"l.0.bias\") "
                       "[\"%s/MatMul\"] c = MatMul (b, \"onnx::MatMul_10\") "
                       "[\"%s/Add\"] z = Add (c, \"%s\") }",
                  biases, identity, second, second, bias));
    m->torchscript = true;
    part(m);
    return m;
}

static bool is_marked(const ebb_model *m, const char *value, const char *key)
{
    ebb_value v = ebb_value_find(m->graph, value);
    return ebb_props_get(m->graph, &ebb_value_of(m->graph, v)->props, key) != NULL;
}

TEST(what_was_folded_is_parted_where_all_else_of_the_layers_is_equal)
{
    static const char one[] = "float[2] \"l.0.bias\" = {5,6}",
                      two[] = "float[2] \"l.0.bias\" = {5,6}, float[2] \"l.1.bias\" = {7,8}",
                      zeros[] = "float[2] \"l.0.bias\" = {0,0}, float[2] \"l.1.bias\" = {0,0}";
    static const struct {
        const char *biases, *identity, *second, *bias;
        bool apart, maybe;
    } rows[] = {
        {one, "\"l.1.bias\" = Identity (\"l.0.bias\")", "/l.1", "l.1.bias", true, false},
        {two, "", "/l.1", "l.1.bias", false, false},   // another bias: the weight is tied
        {one, "", "/l.1", "l.0.bias", false, false},   // the same bias: all of the layer is
        {one, "", "/l.0_1", "l.0.bias", false, false}, // one layer that is called again
        {zeros, "", "/l.1", "l.1.bias", false, true},  // nothing tells
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OWNED_MODEL *m = folded(rows[i].biases, rows[i].identity, rows[i].second, rows[i].bias);
        ebb_value v = ebb_value_find(m->graph, "onnx::MatMul_10");
        assert_int_equal((ebb_value_of(m->graph, v)->flags & EBB_IS_INITIALIZER) != 0,
                         rows[i].apart);
        assert_int_equal(is_marked(m, "onnx::MatMul_9", EBB_MAYBE_TIED), rows[i].maybe);
    }
}

/* ---- calls that the dynamo exporter notes ---- */

static ebb_model *noted(void)
{
    ebb_model *m =
        model_of(HEAD "g (float[2,2,4,4] x) => (float[2,2,4,4] z) <float[2] \"n1.weight\" " ONE
                      ", float[2] \"n1.bias\" " ZERO ", float[2,1,1] val_3 = {0.25, 0.25}>"
                      "{ [p1] a = PRelu (x, val_3) [n1] b = BatchNormalization (a, \"n1.weight\", "
                      "\"n1.bias\", \"n1.bias\", \"n1.weight\")"
                      "[p2] c = PRelu (b, val_3) [n2] z = BatchNormalization (c, \"n1.weight\", "
                      "\"n1.bias\", \"n1.bias\", \"n1.weight\") }");
    mark(m, "n1.weight", "PARAMETER", "p_n1_weight");
    mark(m, "n1.bias", "PARAMETER", "p_n1_bias");
    note(m, "p1", "%prelu : call_function[target=prelu](args = (%x, %p_p1_weight), kwargs = {})",
         "['', 'p1', 'prelu']");
    note(m, "p2", "%prelu_1 : call_function[target=prelu](args = (%a, %p_p2_weight), kwargs = {})",
         "['', 'p2', 'prelu_1']");
    note(m, "n1",
         "%bn : call_function[target=bn](args = (%prelu, %p_n1_weight, %p_n1_bias, "
         "%b_n1_running_mean, %b_n1_running_var, 0.1), kwargs = {})",
         "['', 'n1', 'bn']");
    note(m, "n2",
         "%bn_1 : call_function[target=bn](args = (%prelu_1, %p_deep_n2_weight, %p_deep_n2_bias, "
         "%b_deep_n2_running_mean, %b_deep_n2_running_var, 0.1), kwargs = {})",
         "['', 'Deep', 'Deep.n2', 'bn_1']");
    return m;
}

TEST(parameters_that_were_merged_get_their_names_back)
{
    OWNED_MODEL *m = noted();
    part(m);
    static const char *const n1[] = {"n1.weight", "n1.bias", "n1.running_mean", "n1.running_var"};
    static const char *const n2[] = {"Deep.n2.weight", "Deep.n2.bias", "Deep.n2.running_mean",
                                     "Deep.n2.running_var"};
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(read_by(m, "n1", i + 1), n1[i]);
        assert_string_equal(read_by(m, "n2", i + 1), n2[i]);
        assert_string_equal(kind_of(m, n1[i]), i < 2 ? "PARAMETER" : "BUFFER");
        assert_string_equal(kind_of(m, n2[i]), i < 2 ? "PARAMETER" : "BUFFER");
    }
    assert_string_equal(read_by(m, "p1", 1), "val_3");
    assert_string_equal(read_by(m, "p2", 1), "p2.weight");
    size_t count = m->graph->initializer_count;
    part(m); // there is nothing left
    assert_int_equal(m->graph->initializer_count, count);
}

TEST(one_parameter_of_two_calls_stays_one)
{
    OWNED_MODEL *m = noted();
    note(m, "p2", "%prelu_1 : call_function[target=prelu](args = (%a, %p_p1_weight), kwargs = {})",
         "['', 'p1', 'prelu_1']");
    part(m);
    assert_string_equal(read_by(m, "p2", 1), "val_3");
}

/* Two layers with equal numbers of their own, folded or not; `second`: what the second one's call reads. */
static ebb_model *copied(const char *weight, const char *second)
{
    char call[200];
    ebb_model *m = model_of(
        formatted(HEAD "g (float[2,2] x) => (float[2,2] z) <float[2,2] \"%s\" = {1,2,3,4}, "
                       "float[2] \"l.0.bias\" = {5,6}> {"
                       "[l0] a = MatMul (x, \"%s\") [b0] b = Add (a, \"l.0.bias\")"
                       "[l1] c = MatMul (b, \"%s\") [b1] z = Add (c, \"l.0.bias\") }",
                  weight, weight, weight));
    good(ebb_props_set(m->graph, &m->graph->props,
                       "pkg.torch.export.ExportedProgram.graph_signature",
                       "# inputs\np_l_0_weight: PARAMETER target='l.0.weight'\n"
                       "p_l_0_bias: PARAMETER target='l.0.bias'\n"
                       "p_l_1_weight: PARAMETER target='l.1.weight'\n"
                       "p_l_1_bias: PARAMETER target='l.1.bias'\n"));
    if (strcmp(weight, "l.0.weight") == 0)
        mark(m, weight, "PARAMETER", "p_l_0_weight");
    else
        good(ebb_props_set(m->graph,
                           &ebb_value_of(m->graph, ebb_value_find(m->graph, weight))->props,
                           "pkg.onnxscript.optimizer.folded_from", "['l.0.weight']"));
    mark(m, "l.0.bias", "PARAMETER", "p_l_0_bias");
    (void)snprintf(call, sizeof call,
                   "%%b : call_function[target=aten.linear.default](args = (%%a, %s), kwargs = {})",
                   second);
    for (int bias = 0; bias < 2; bias++) {
        note(m, bias ? "b0" : "l0",
             "%a : call_function[target=aten.linear.default](args = (%x, %p_l_0_weight, "
             "%p_l_0_bias), kwargs = {})",
             "['', 'l.0', 'linear']");
        note(m, bias ? "b1" : "l1", call, "['', 'l.1', 'linear_1']");
    }
    part(m);
    return m;
}

/* F.batch_norm of a weight, as networks without norms have it: it is the batch, and turned for its mean. */
TEST(a_weight_that_is_standardised_as_a_batch_is_one)
{
    OWNED_MODEL *m = model_of(
        HEAD "g (float[2,6,4,4] x) => (float[2,3,4,4] y) "
             "<float[1,3,6] \"onnx::Sub_8\" = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18}, "
             "float[1,6,3] \"onnx::Mean_9\" = {1,7,13,2,8,14,3,9,15,4,10,16,5,11,17,6,12,18}, "
             "int64[2] axes = {0,1}, int64[3] column = {1,3,1}, int64[4] shape = {3,6,1,1}> "
             "{ [mean] m = ReduceMean <keepdims = 0> (\"onnx::Mean_9\", axes) "
             "c = Reshape (m, column) s = Sub (\"onnx::Sub_8\", c) w = Reshape (s, shape) "
             "y = Conv (x, w) }");
    m->torchscript = true;
    part(m);
    const ebb_value turned = ebb_value_find(m->graph, read_by(m, "mean", 0));
    assert_int_equal(ebb_producer_op(m->graph, turned), EBB_OP_TRANSPOSE);
    const ebb_node n = ebb_value_of(m->graph, turned)->producer;
    assert_string_equal(ebb_value_name(m->graph, ebb_in(m->graph, n, 0)), "onnx::Sub_8");
    const ebb_type *type = ebb_value_of(m->graph, turned)->type;
    assert_int_equal(type->rank, 3);
    assert_int_equal(type->dims[1], 6);
}

TEST(layers_that_were_copied_are_apart_and_tied_ones_are_not)
{
    static const char *const weights[] = {"l.0.weight", "val_0"};
    static const struct {
        const char *second, *weight, *bias;
    } rows[] = {
        {"%p_l_1_weight, %p_l_1_bias", "l.1.weight", "l.1.bias"},
        {"%p_l_0_weight, %p_l_1_bias", NULL, "l.1.bias"},
        {"%p_l_0_weight, %p_l_0_bias", NULL, "l.0.bias"},
    };
    for (size_t w = 0; w < 2; w++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            OWNED_MODEL *m = copied(weights[w], rows[i].second);
            assert_string_equal(read_by(m, "l0", 1), weights[w]);
            assert_string_equal(read_by(m, "b0", 1), "l.0.bias");
            assert_string_equal(read_by(m, "l1", 1),
                                rows[i].weight != NULL ? rows[i].weight : weights[w]);
            assert_string_equal(read_by(m, "b1", 1), rows[i].bias);
            size_t count = m->graph->initializer_count;
            part(m); // there is nothing left
            assert_int_equal(m->graph->initializer_count, count);
        }
}

/* A fresh scale and a fresh shift of zeros that one call takes, once they have the same shape. */
TEST(what_is_added_and_a_factor_of_one_call_are_apart)
{
    OWNED_MODEL *m = model_of(HEAD "g (float[2,2] x) => (float[2,2] y) <float[1,2] view = {0,0}>"
                                   "{ [m] t = Mul (view, x) [s] y = Add (view, t) }");
    good(ebb_props_set(m->graph, &ebb_value_of(m->graph, ebb_value_find(m->graph, "view"))->props,
                       "pkg.onnxscript.optimizer.folded_from", "['norm.bias']"));
    for (int i = 0; i < 2; i++)
        note(m, i ? "s" : "m",
             "%y : call_function[target=torch.ops.aten.addcmul.default](args = (%view, %view_1, "
             "%x), kwargs = {})",
             "['', 'norm', 'addcmul']");
    part(m);
    assert_string_not_equal(read_by(m, "m", 0), read_by(m, "s", 0));
    assert_string_equal(read_by(m, "m", 1), "x");
    size_t count = m->graph->initializer_count;
    part(m); // there is nothing left
    assert_int_equal(m->graph->initializer_count, count);
}

/* A fresh scale a of ones, and what was computed of ones before the run: of which two, is not told. */
TEST(what_was_computed_before_the_run_is_apart_from_the_parameter_that_it_equals)
{
    static const struct {
        const char *call, *operands;
        bool computed, constant;
    } rows[] = {
        {"div.Tensor", "%h, %add", true, false},
        {"sub.Tensor", "%h, %pow_1", true, false},
        {"mul.Tensor", "%h, %add", true, false},
        {"pow.Tensor_Tensor", "%h, %mul_1", true, false},
        {"div.Tensor", "%h, %view", false, false}, // of a
        {"div.Tensor", "%h, %ones", false, true},
        {"div.Tensor", "%h, %mul", false, true}, // a call that the file has
        {"div.Tensor", "%h, %p_a", false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int alone = 0; alone < 2; alone++) {
            OWNED_MODEL *m = model_of(HEAD "g (float[2,2] x) => (float[2,2] y) <float[2] a " ONE
                                           ", float[2] c = {3,4}> { [m] h = Mul (x, a) "
                                           "[d] y = Div (h, a) }");
            mark(m, "a", "PARAMETER", "p_a");
            EBB_EACH_NODE(m->graph, n)
                if (alone && ebb_node_of(m->graph, n)->op == EBB_OP_MUL)
                    good(ebb_node_set_input(m->graph, n, 1, ebb_value_find(m->graph, "c")));
            note(m, "m",
                 alone
                     ? "%mul : call_function[target=torch.ops.aten.mul.Tensor](args = (%x, %c))"
                     : "%mul : call_function[target=torch.ops.aten.mul.Tensor](args = (%x, %p_a))",
                 "['', 'mul']");
            note(m, "d",
                 formatted("%%y : call_function[target=torch.ops.aten.%s](args = (%s))",
                           rows[i].call, rows[i].operands),
                 "['', 'y']");
            part(m);
            const char *read = read_by(m, "d", 1);
            assert_int_equal(is_marked(m, read, EBB_COMPUTED), rows[i].computed);
            assert_int_equal(strcmp(read, "a") != 0,
                             !alone && (rows[i].computed || rows[i].constant));
        }
}

/* A shift that kept its name stands for that of another layer, too. */
TEST(shifts_of_two_layers_are_apart)
{
    OWNED_MODEL *m = model_of(
        HEAD "g (float[2,2] x) => (float[2,2] y) <float[1,2] \"a.beta\" = {0,0}, float[1,2] "
             "tmp = {1,1}> { [m1] t = Mul (tmp, x) [s1] u = Add (\"a.beta\", t) "
             "[m2] v = Mul (tmp, u) [s2] y = Add (\"a.beta\", v) }");
    mark(m, "a.beta", "PARAMETER", "p_a_beta");
    note(m, "s1",
         "%y : call_function[target=torch.ops.aten.addcmul.default](args = (%p_a_beta, %p_a_alpha, "
         "%x), kwargs = {})",
         "['', 'a', 'addcmul']");
    note(m, "s2",
         "%z : call_function[target=torch.ops.aten.addcmul.default](args = (%p_b_beta, %p_b_alpha, "
         "%u), kwargs = {})",
         "['', 'b', 'addcmul_1']");
    part(m);
    assert_string_equal(read_by(m, "s1", 0), "a.beta");
    assert_string_equal(read_by(m, "s2", 0), "b.beta");
    assert_string_equal(kind_of(m, "b.beta"), "PARAMETER");
}

/* Two networks of one input, one a copy of the other, whose layers became one: the reader's note tells. */
TEST(a_layer_that_stands_for_a_copy_too_is_doubtful)
{
    static const char *const reads[] = {"%linear_1", "%linear"};
    for (int i = 0; i < 2; i++) {
        OWNED_MODEL *m =
            model_of(HEAD "g (float[2,2] x) => (float[2,2] z) <float[2,2] \"a.weight\" = "
                          "{1,2,3,4}> { [l] y = MatMul (x, \"a.weight\") [s] z = Add "
                          "(y, y) }");
        good(ebb_props_set(m->graph, &m->graph->props,
                           "pkg.torch.export.ExportedProgram.graph_signature",
                           "# inputs\np_a_weight: PARAMETER target='a.weight'\n"
                           "p_b_weight: PARAMETER target='b.weight'\n"));
        mark(m, "a.weight", "PARAMETER", "p_a_weight");
        note(m, "l",
             "%linear : call_function[target=linear](args = (%x, %p_a_weight), kwargs = {})",
             "['', 'a', 'linear']");
        note(m, "s",
             formatted("%%add : call_function[target=add](args = (%%linear, %s), kwargs = {})",
                       reads[i]),
             "['', 'add']");
        part(m);
        assert_int_equal(is_marked(m, "a.weight", EBB_MAYBE_TIED), i == 0);
    }
}

/* The reader of a layer's result names what folding made of a call of the same kind, and not the layer, of which
 * a product with 1 was dropped behind. */
TEST(what_folding_made_is_no_other_call)
{
    for (int folded = 0; folded < 2; folded++) {
        OWNED_MODEL *m = model_of(
            formatted(HEAD "g (int64[2] i) => (float[2,2] z) <float[3,2] \"a.weight\" = "
                           "{1,2,3,4,5,6}, float[2,2] \"%s\" = {7,8,9,1}> { [l] y = Gather "
                           "(\"a.weight\", i) [s] z = Add (y, \"%s\") }",
                      folded ? "embedding_1" : "val_2", folded ? "embedding_1" : "val_2"));
        good(ebb_props_set(m->graph, &m->graph->props,
                           "pkg.torch.export.ExportedProgram.graph_signature",
                           "# inputs\np_a_weight: PARAMETER target='a.weight'\n"
                           "p_b_weight: PARAMETER target='b.weight'\n"));
        mark(m, "a.weight", "PARAMETER", "p_a_weight");
        note(m, "l",
             "%embedding : call_function[target=embedding](args = (%p_a_weight, %i), kwargs = {})",
             "['', 'a', 'embedding']");
        note(m, "s", "%add : call_function[target=add](args = (%mul, %embedding_1), kwargs = {})",
             "['', 'add']");
        part(m);
        assert_int_equal(is_marked(m, "a.weight", EBB_MAYBE_TIED), !folded);
    }
}

/* Two batch norms of one input became one; behind the other a sum with 0 was dropped, whose name its reader says. */
TEST(a_fresh_norm_that_stands_for_one_of_another_module_is_doubtful)
{
    static const struct {
        const char *read, *other;
        bool doubtful;
    } rows[] = {
        {"%add_8", "m.two.norm", true},    // a call that the file does not have
        {"%getitem", "m.two.norm", false}, // the norm's result
        {"%add_7", "m.two.norm", false},   // a call that it has
        {"%add_8", "m.two.other", false},  // no norm of that name is gone
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[400];
        OWNED_MODEL *m =
            model_of(HEAD "g (float[2,2] x) => (float[2,2] z) <float[2] \"m.one.norm.weight\" " ONE
                          ", float[2] \"m.one.norm.bias\" " ZERO ", float[2] mean " ZERO
                          ", float[2] var " ONE
                          "> { [n] getitem = BatchNormalization (x, \"m.one.norm.weight\", "
                          "\"m.one.norm.bias\", mean, var) [a] add_7 = Add (getitem, x) "
                          "[s] z = Sub (add_7, getitem) }");
        (void)snprintf(text, sizeof text,
                       "# inputs\np_m_one_norm_weight: PARAMETER target='m.one.norm.weight'\n"
                       "p_m_one_norm_bias: PARAMETER target='m.one.norm.bias'\n"
                       "p_m_two_weight: PARAMETER target='%s.weight'\n"
                       "p_m_two_bias: PARAMETER target='%s.bias'\n",
                       rows[i].other, rows[i].other);
        good(ebb_props_set(m->graph, &m->graph->props,
                           "pkg.torch.export.ExportedProgram.graph_signature", text));
        mark(m, "m.one.norm.weight", "PARAMETER", "p_m_one_norm_weight");
        mark(m, "m.one.norm.bias", "PARAMETER", "p_m_one_norm_bias");
        note(m, "n",
             "%batch_norm : call_function[target=batch_norm](args = (%x, %p_m_one_norm_weight, "
             "%p_m_one_norm_bias), kwargs = {})",
             "['', 'm.one', 'm.one.norm', 'batch_norm']");
        note(m, "a", "%add_7 : call_function[target=add](args = (%getitem, %x), kwargs = {})",
             "['', 'm', 'add_7']");
        (void)snprintf(text, sizeof text,
                       "%%sub : call_function[target=sub](args = (%%add_7, %s), kwargs = {})",
                       rows[i].read);
        note(m, "s", text, "['', 'm', 'sub']");
        part(m);
        assert_int_equal(is_marked(m, "m.one.norm.weight", EBB_MAYBE_TIED), rows[i].doubtful);
        assert_int_equal(is_marked(m, "m.one.norm.bias", EBB_MAYBE_TIED), rows[i].doubtful);
    }
}

/* What is normalised is a parameter itself: the note names two that are called weights. */
TEST(the_scale_of_a_normed_parameter_is_told_from_it)
{
    OWNED_MODEL *m = model_of(
        HEAD "g (float[2,2] x) => (float[2,2] z) <float[2] \"one.weight\" " ONE
             ", float[2] \"one.bias\" " ZERO ", float[2,2] \"table.weight\" = {1,2,3,4}>"
             "{ [n1] y = LayerNormalization (x, \"one.weight\", \"one.bias\") "
             "[n2] t = LayerNormalization (\"table.weight\", \"one.weight\", \"one.bias\") "
             "z = Add (y, t) }");
    mark(m, "one.weight", "PARAMETER", "p_one_weight");
    mark(m, "one.bias", "PARAMETER", "p_one_bias");
    mark(m, "table.weight", "PARAMETER", "p_table_weight");
    note(m, "n1",
         "%a : call_function[target=layer_norm](args = (%x, [2], %p_one_weight, %p_one_bias), "
         "kwargs = {})",
         "['', 'one', 'layer_norm']");
    note(m, "n2",
         "%b : call_function[target=layer_norm](args = (%p_table_weight, [2], %p_two_weight, "
         "%p_two_bias), kwargs = {})",
         "['', 'two', 'layer_norm_1']");
    part(m);
    assert_string_equal(read_by(m, "n1", 1), "one.weight");
    assert_string_equal(read_by(m, "n2", 0), "table.weight");
    assert_string_equal(read_by(m, "n2", 1), "two.weight");
    assert_string_equal(read_by(m, "n2", 2), "two.bias");
}

TEST(the_unit_scales_of_group_norms_are_no_parameters)
{
    OWNED_MODEL *m =
        model_of(HEAD "g (float[2,2,4] x) => (float[2,2,4] z) <float[2] val_1 " ONE
                      ", float[2] val_2 " ZERO "> { [n1] y = InstanceNormalization (x, "
                      "val_1, val_2) [n2] z = InstanceNormalization (y, val_1, val_2) }");
    note(m, "n1",
         "%a : call_function[target=aten.group_norm](args = (%x, 2, %p_n1_weight, "
         "%p_n1_bias), kwargs = {})",
         "['', 'n1', 'a']");
    note(m, "n2",
         "%b : call_function[target=aten.group_norm](args = (%a, 2, %p_n2_weight, "
         "%p_n2_bias), kwargs = {})",
         "['', 'n2', 'b']");
    part(m);
    assert_string_equal(read_by(m, "n1", 1), "val_1");
    assert_string_equal(read_by(m, "n2", 1), "val_1");
    assert_string_equal(read_by(m, "n2", 2), "val_2");
    ebb_value one = ebb_value_find(m->graph, "val_1");
    assert_int_equal(ebb_value_of(m->graph, one)->role, EBB_ROLE_CONSTANT);
}

/* GroupNorm1NoBias of timm: one parameter stands in the note of both nodes. */
TEST(zeros_where_a_norm_has_no_bias_are_no_copy_of_its_weight)
{
    static const char *const nodes[] = {"m1", "a1", "m2", "a2"};
    OWNED_MODEL *m = model_of(
        HEAD "g (float[2,2] x) => (float[2,2] z) <float[2] w1 = {1,2}, float[2] w2 = {3,4}, "
             "float[2] val_0 " ZERO "> { [m1] a = Mul (x, w1) [a1] b = Add (a, val_0) "
             "[m2] c = Mul (b, w2) [a2] z = Add (c, val_0) }");
    for (int i = 0; i < 4; i++) {
        note(m, nodes[i],
             formatted("%%g%d : call_function[target=torch.ops.aten.group_norm.default](args = "
                       "(%%x, 1, %%p_n%d_weight, None, 1e-06, False), kwargs = {})",
                       i / 2, i / 2),
             "['', 'n', 'g']");
    }
    part(m);
    assert_string_equal(read_by(m, "a1", 1), "val_0");
    assert_string_equal(read_by(m, "a2", 1), "val_0");
}

/* ---- what becomes of them ---- */

static const char unnoted[] =
    HEAD "g (float[2,2,4,4] x) => (float[2,2,4,4] z) <float[2] one " ONE ", float[2] zero " ZERO
         "> { [n1] y = BatchNormalization (x, one, zero, zero, one)"
         "[n2] z = BatchNormalization (y, one, zero, zero, one) }";

/* A model with the bytes of the initializers after a step of its own, opened from a file. */
static ebb_model *trained(const char *path, const char *mode)
{
    ebb_model *m = NULL, *into = NULL;
    OWNED_PROGRAM *p = NULL;
    good(ebb_open(&m, path));
    good(ebb_rewrite(m, mode, NULL, NULL));
    const ebb_compile_options how = {.backend = "cpu"};
    good(ebb_program_compile(&p, m, &how));
    static float x[64], target[64];
    for (int i = 0; i < 64; i++) {
        x[i] = (float)(i % 7) - 2 * (float)(i % 3);
        target[i] = (float)(i % 5);
    }
    const int64_t dims[] = {2, 2, 4, 4};
    const ebb_named inputs[] = {{"x", EBB_F32, 4, dims, x}, {"target", EBB_F32, 4, dims, target}};
    const ebb_batch batch = {inputs, 2};
    good(ebb_program_step(p, &batch));
    good(ebb_open(&into, path));
    good(ebb_program_store(p, into));
    ebb_close(m);
    return into;
}

static float first_of(const ebb_model *m, const char *name)
{
    ebb_value v = ebb_value_find(m->graph, name);
    assert_true(v.i != 0);
    return *(const float *)ebb_value_of(m->graph, v)->tensor->data;
}

TEST(a_weight_is_trained_and_a_statistic_counted_and_both_are_saved)
{
    char path[] = "/tmp/ebb_merged_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    ebb_model *m = model_of(unnoted);
    good(ebb_save(m, path));
    ebb_model_free(m);
    m = trained(path, "flatten,train-mode,loss:mse,gradient,optimizer:sgd,lr=0.1");
    assert_true(first_of(m, "one") != 1 && first_of(m, "zero") != 0);
    assert_true(first_of(m, "n1.running_var") != 1 && first_of(m, "n1.running_mean") != 0);
    assert_true(first_of(m, "n2.running_var") != 1);
    assert_true(first_of(m, "one") != first_of(m, "n1.running_var"));
    ebb_close(m);
    m = trained(path,
                "flatten,train-mode:batch-norm=frozen,loss:mse,gradient,optimizer:sgd,lr=0.1");
    assert_true(first_of(m, "one") != 1 && first_of(m, "zero") != 0);
    assert_true(first_of(m, "n1.running_var") == 1 && first_of(m, "n1.running_mean") == 0);
    ebb_close(m);
    assert_int_equal(unlink(path), 0);
}

TEST(running_out_of_memory_anywhere_is_an_error_and_no_crash)
{
    bool done = false;
    for (long n = 1; !done && n < 4000; n++) {
        OWNED_MODEL *m = noted();
        OWNED_ARENA scratch = {0};
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_merged_part(m->graph, &scratch);
        ebb_alloc_fail_after(0);
        done = status == NULL;
    }
    assert_true(done);
}
