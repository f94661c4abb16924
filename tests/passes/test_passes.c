/* test_passes.c: what golden texts cannot show: errors, reports, options, marks. */
#include <stdio.h>
#include <string.h>

#include "onnx/graph/infer.h"
#include "passes/common.h"
#include "passes/fingerprint.h"
#include "passes/primal/lost.h"
#include "passes/pipeline.h"
#include "passes/parameters/noted.h"
#include "passes/parameters/trainable.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

#define HEADER "<ir_version: 10, opset_import: [\"\" : 20]> "
#define NUMBERS " = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}"
#define WEIGHT "float[4,4] w" NUMBERS
#define VECTOR " = {0,0,0,0}"

static ebb_arena keep;
static ebb_report *reports;
static size_t report_count;

static ebb_status run(ebb_model *model, const char *pipeline, bool strict)
{
    const ebb_rewrite_options options = {.verify_each = true, .strict = strict};
    return ebb_pipeline_run(model, pipeline, &options, &keep, &reports, &report_count);
}

static ebb_model *step(const char *text, const char *pipeline)
{
    ebb_model *model = parsed(text);
    good(run(model, pipeline, false));
    return model;
}

static const char linear[] =
    HEADER "g (float[4,4] x) => (float[4,4] y) <" WEIGHT "> { [fc] y = MatMul (x, w) }";

static size_t count_ops(const ebb_graph *g, ebb_op op)
{
    size_t count = 0;
    EBB_EACH_NODE(g, n)
        count += ebb_node_of(g, n)->op == op;
    return count;
}

/* ---- pipeline ---- */

static void says(const char *pipeline, ebb_code code, const char *what)
{
    OWNED_MODEL *model = parsed(linear);
    ebb_status status = run(model, pipeline, false);
    assert_non_null(status);
    refused(status, code, what);
}

TEST(a_mistyped_pipeline_says_what_is_meant)
{
    says("sign-mosk", EBB_USAGE, "did you mean 'sign-mask'");
    says("loss:cross-entropi", EBB_USAGE, "kind=cross-entropi");
    says("loss:mse,reductin=sum", EBB_USAGE, "did you mean 'reduction'");
    says("optimizer:sgd,lr=fast", EBB_USAGE, "option lr takes a number from 0 to 1e30, not 'fast'");
    says("train-mode:seed=1.5", EBB_USAGE,
         "option seed takes a whole number of at least 0, not '1.5'");
    says("axis=1,loss:mse", EBB_USAGE, "before any pass");
    says("norm-from-output:amplify=0.5", EBB_USAGE, "at least 1");
    says("inplace-abn:amplify=0", EBB_USAGE, "at least 1");
    says("drop-saves:now", EBB_USAGE, "has no options");
    says("alias:now", EBB_USAGE, "all|views");
}

TEST(a_number_out_of_its_options_range_is_refused)
{
    says("optimizer:adamw,lr=-1", EBB_USAGE, "option lr takes a number from 0 to 1e30, not '-1'");
    says("optimizer:adamw,lr=nan", EBB_USAGE, "not 'nan'");
    says("optimizer:sgd,lr=inf", EBB_USAGE, "not 'inf'");
    says("optimizer:adamw,beta1=2", EBB_USAGE, "beta1 takes a number of at least 0 and below 1");
    says("optimizer:adamw,beta2=1", EBB_USAGE, "beta2 takes a number of at least 0 and below 1");
    says("optimizer:adamw,epsilon=-1e-8", EBB_USAGE, "epsilon takes a number from 0 to 1");
    says("optimizer:sgd,weight-decay=-0.1", EBB_USAGE, "weight-decay takes a number from 0 to");
    says("optimizer:momentum,momentum=1.5", EBB_USAGE, "momentum takes a number from 0 to 1");
    says("optimizer:adamw,correct-bias=2", EBB_USAGE,
         "correct-bias takes a whole number from 0 to 1");
    says("train-mode:seed=99999999999999999999", EBB_USAGE, "seed takes a whole number");
    says("train-mode:ratio=1", EBB_USAGE, "ratio takes a number of at least 0 and below 1");
}

/* A range that cannot be read, or none, would let everything through. */
TEST(every_number_among_the_options_has_a_range_that_its_default_is_in)
{
    size_t count;
    const ebb_pass *const *passes = ebb_passes(&count);
    for (size_t i = 0; i < count; i++)
        for (const ebb_option *o = passes[i]->options; o != NULL && o->name != NULL; o++) {
            int64_t n;
            double x;
            if (o->kind != EBB_OPTION_INT && o->kind != EBB_OPTION_FLOAT)
                continue;
            if (o->choices == NULL && strcmp(o->name, "ignore_index") != 0)
                fail_msg("%s: %s has no range", passes[i]->name, o->name);
            ebb_status status = o->otherwise == NULL ? NULL
                                : o->kind == EBB_OPTION_INT
                                    ? ebb_whole_parse(&n, o->otherwise, o->choices, o->name)
                                    : ebb_real_parse(&x, o->otherwise, o->choices, o->name);
            if (status != NULL)
                fail_msg("%s: %s", passes[i]->name, ebb_status_text(status));
        }
}

TEST(a_value_in_quotes_holds_commas_and_equals_signs)
{
    says("loss:mse,gradient:train=\"nothing,freeze=x\"", EBB_USAGE, "train=nothing,freeze=x");
    says("loss:mse,gradient:\"a,b:c\"", EBB_USAGE, "a,b:c");
    says("loss:mse,gradient:train=\"a\\\"b\\\\\"", EBB_USAGE, "train=a\"b\\");
    says("gradient:train=\"w", EBB_USAGE, "do not enclose");
    says("gradient:train=\"w\"x", EBB_USAGE, "do not enclose");
    OWNED_MODEL *model = step(linear, "loss:mse,gradient:train=\"w,no*\",optimizer:sgd");
    const char *passes = ebb_props_get(model->graph, &model->props, "ebb.passes");
    assert_non_null(strstr(passes, "train=\\\"w,no*\\\"")); // in JSON: what runs it again
}

TEST(a_wrong_pass_late_in_the_list_runs_nothing)
{
    OWNED_MODEL *model = parsed(linear);
    assert_non_null(run(model, "loss:mse,no-such-pass", false));
    assert_int_equal(model->graph->loss.i, 0);
}

TEST(presets_stand_for_lists)
{
    OWNED_MODEL *model = step(linear, "normalise,default");
    assert_int_equal(report_count, 10);
    assert_string_equal(reports[0].pass, "differentiate");
    assert_string_equal(reports[1].pass, "decoder");
    assert_string_equal(reports[2].pass, "opset");
    assert_string_equal(reports[5].pass, "unroll");
    assert_string_equal(reports[8].pass, "stream");
    assert_string_equal(reports[9].pass, "alias");
}

TEST(a_model_remembers_its_passes)
{
    OWNED_MODEL *model = step(linear, "loss:mse");
    assert_null(run(model, "gradient", false));
    const char *text = ebb_props_get(model->graph, &model->props, "ebb.passes");
    assert_non_null(text);
    assert_ptr_equal(
        strstr(text, "[{\"name\":\"loss\",\"options\":\"kind=mse\",\"found\":1,\"applied\":1"),
        text);
    assert_non_null(strstr(text, "},{\"name\":\"gradient\""));
    assert_int_equal(text[strlen(text) - 1], ']');
}

TEST(what_a_file_remembers_wrongly_is_begun_anew)
{
    OWNED_MODEL *model = step(linear, "loss:mse");
    assert_null(ebb_props_set(model->graph, &model->props, "ebb.passes", "[{\"name\": nonsense]"));
    assert_null(run(model, "train-mode:batch-norm=frozen,seed=7", false));
    const char *text = ebb_props_get(model->graph, &model->props, "ebb.passes");
    assert_ptr_equal(strstr(text, "[{\"name\":\"train-mode\",\"options\":"
                                  "\"batch-norm=frozen,seed=7\""),
                     text);
}

TEST(strict_refuses_a_technique_that_applies_nowhere)
{
    OWNED_MODEL *model = parsed(linear);
    assert_null(run(model, "inline,fold,fuse,loss:mse,gradient,drop-saves", true));
    refused(run(model, "sign-mask", true), EBB_UNSUPPORTED, "found nothing");
}

/* Some of the ways in which passes change a graph, a call and assignments. */
TEST(a_fingerprint_tells_what_has_changed)
{
    OWNED_MODEL *model = step(linear, "fold");
    ebb_graph *g = model->graph;
    const ebb_node product = ebb_first(g);
    const ebb_value w = ebb_in(g, product, 1), y = ebb_out(g, product, 0);
    const ebb_type half = ebb_type_tensor(EBB_F16, 2, (const int64_t[]){4, 4});
    uint64_t known[6] = {ebb_fingerprint(g)};
    assert_null(ebb_infer_graph(g));
    ebb_node_set_over(g, product, 0, 1); // a mark
    assert_true(ebb_fingerprint(g) == known[0]);
    ebb_value_of(g, w)->role = EBB_ROLE_FROZEN;
    known[1] = ebb_fingerprint(g);
    ebb_node_of(g, product)->phase = EBB_BACKWARD;
    known[2] = ebb_fingerprint(g);
    assert_null(ebb_node_set_int(g, product, "axis", 1));
    known[3] = ebb_fingerprint(g);
    assert_null(ebb_value_set_type(g, y, &half));
    known[4] = ebb_fingerprint(g);
    assert_null(ebb_node_set_input(g, product, 0, w));
    known[5] = ebb_fingerprint(g);
    for (size_t i = 1; i < 6; i++)
        assert_true(known[i] != known[i - 1]);
}

TEST(an_edit_takes_marks_off_and_they_come_back)
{
    OWNED_MODEL *model = step(linear, "loss:mse,gradient,optimizer:sgd,alias");
    uint64_t peak = reports[3].peak_after_bytes;
    assert_null(run(model, "drop-saves", false));
    size_t marks = 0;
    EBB_EACH_VALUE(model->graph, v)
        marks += ebb_value_of(model->graph, v)->over != 0;
    assert_true(marks > 0);
    assert_true(reports[0].peak_after_bytes > 0 && reports[0].peak_after_bytes <= peak);
}

/* ---- loss ---- */

/* The step of a model of an older opset, printed and read again; note: what is said on the way. */
static void step_of_opset(const char *text, int64_t opset, size_t speaker, const char *note)
{
    OWNED_MODEL *again = NULL, *model = step(text, "opset,loss:cross-entropy,gradient");
    RELEASED char *printed = NULL;
    assert_int_equal(ebb_model_opset(model, ""), opset);
    assert_true(reports[speaker].note_count > 0);
    assert_non_null(strstr(reports[speaker].notes[0], note));
    assert_null(ebb_text_print_model(&printed, model));
    assert_null(ebb_text_parse_model(&again, printed));
    assert_int_equal(count_ops(again->graph, EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS), opset >= 12);
}

TEST(a_step_of_an_older_model_is_of_an_opset_that_has_its_loss)
{
#define OF(opset, node)                                                         \
    "<ir_version: 6, opset_import: [\"\" : " opset                              \
    "]> g (float[4,4] x) => (float[4,4] y) <" WEIGHT "> { h = MatMul (x, w) y " \
    "= " node " (h) }"
    step_of_opset(OF("11", "Relu"), 17, 0, "of opset 17 now, not 11");
    step_of_opset(OF("7", "Dropout <ratio = 0.5>"), 17, 0, "of opset 17 now, not 7");
    step_of_opset(OF("6", "Relu"), 6, 1, "of opset 6, which has no");
#undef OF
}

TEST(a_cross_entropy_of_rank_3_asks_for_the_axis)
{
    OWNED_MODEL *model = parsed(HEADER "g (float[2,3,4] x) => (float[2,3,4] y) { y = Neg (x) }");
    refused(run(model, "loss:cross-entropy", false), EBB_USAGE, "axis=-1");
}

TEST(an_unknown_output_is_named)
{
    says("loss:mse,output=nowhere", EBB_USAGE, "'nowhere'");
    says("loss:name=y", EBB_USAGE, "not a single");
    says("gradient", EBB_USAGE, "no loss");
    says("loss:mse,optimizer:sgd", EBB_USAGE, "no parameters");
}

TEST(classes_in_the_middle_are_moved_last)
{
    OWNED_MODEL *model = step(HEADER "g (float[2,3,4,5] x) => (float[2,3,4,5] y) { y = Neg (x) }",
                              "loss:cross-entropy,axis=2");
    ebb_graph *g = model->graph;
    ebb_value target = ebb_value_find(g, "target");
    const ebb_type *type = ebb_value_of(g, target)->type;
    assert_int_equal(type->rank, 3);
    assert_int_equal(type->dims[2], 5);
    assert_int_equal(type->dtype, EBB_I64);
    assert_int_equal(count_ops(g, EBB_OP_TRANSPOSE), 1);
}

/* ---- gradient ---- */

TEST(all_nodes_without_a_rule_are_named_at_once)
{
    OWNED_MODEL *model =
        parsed(HEADER "g (float[4,4] x) => (float[4,4] y) <" WEIGHT ">"
                      "{ h = MatMul (x, w) [one] r = my.Strange (h) [two] q = my.Odd (h) "
                      "s = Add (r, q) y = Add (s, h) }");
    ebb_status status = run(model, "loss:mse", false);
    if (status == NULL) {
        const ebb_type *type = ebb_value_of(model->graph, ebb_value_find(model->graph, "h"))->type;
        ebb_value_of(model->graph, ebb_value_find(model->graph, "r"))->type = type;
        ebb_value_of(model->graph, ebb_value_find(model->graph, "q"))->type = type;
        status = run(model, "gradient", false);
    }
    refused(status, EBB_UNSUPPORTED, "Strange 'one'");
    assert_non_null(strstr(ebb_status_text(status), "Odd 'two'"));
}

TEST(patterns_choose_what_is_trained)
{
    const char *text = HEADER "g (float[4,4] x) => (float[4,4] y) <" WEIGHT ", float[4] b" VECTOR
                              "> { [fc] y = Gemm (x, w, b) }";
    ebb_model *model = step(text, "loss:mse,gradient:train=b*");
    ebb_graph *g = model->graph;
    assert_int_equal(ebb_value_find(g, "w_grad").i, 0);
    assert_int_not_equal(ebb_value_find(g, "b_grad").i, 0);
    assert_int_equal(ebb_value_of(g, ebb_value_find(g, "w"))->role, EBB_ROLE_FROZEN);
    ebb_model_free(model);
    model = parsed(text);
    ebb_status status = run(model, "loss:mse,gradient:freeze=c*", false);
    assert_non_null(strstr(ebb_status_text(status), "freeze=c*"));
    ebb_model_free(model);
}

TEST(a_gradient_passed_on_unchanged_still_has_the_weights_name)
{
    OWNED_MODEL *model =
        step(HEADER "g (float[4,4] x) => (float[4,4] y) <" WEIGHT ", float[4,4] v = "
                    "{0,0,0,0, 0,0,0,0, 0,0,0,0, 0,0,0,0}> { y = Add (w, v) }",
             "loss:mse,gradient");
    assert_int_not_equal(ebb_value_find(model->graph, "w_grad").i, 0);
    assert_int_not_equal(ebb_value_find(model->graph, "v_grad").i, 0);
}

TEST(an_embeddings_row_of_zeros_is_a_padding_row)
{
    static const char text[] =
        HEADER "g (int64[4] x) => (float[4,2] y) <float[3,2] e = {0,0, 1,2, 3,4}>"
               "{ y = Gather (e, x) }";
    ebb_model *model = step(text, "loss:mse,gradient");
    ebb_value grad = ebb_value_find(model->graph, "e_grad");
    assert_int_equal(ebb_producer_op(model->graph, grad), EBB_OP_MUL);
    ebb_model_free(model);
    model = step(text, "loss:mse,gradient:padding=train");
    grad = ebb_value_find(model->graph, "e_grad");
    assert_int_equal(ebb_producer_op(model->graph, grad), EBB_OP_GATHER_GRAD);
    ebb_model_free(model);
    ebb_model_free(step(HEADER
                        "g (int64[4] x) => (float16[4,2] y) <float16[3,2] e = {0,0, 1,2, 3,4}>"
                        "{ y = Gather (e, x) }",
                        "loss:mse,gradient")); // the row is zeroed in 16 bits, too
}

/* "aten.embedding.default](args = (%p_e, %x, 1)": a row of any numbers. */
TEST(an_embeddings_padding_row_is_the_one_that_the_exporter_notes)
{
    static const char *const args[] = {"(%p_e, %x, 1)", "(%p_e, %x)", "(%p_e, %x, 9)"};
    for (int i = 0; i < 3; i++) {
        char call[96];
        OWNED_MODEL *model = parsed(HEADER "g (int64[4] x) => (float[4,2] y) <float[3,2] e = {5,6, "
                                           "1,2, 3,4}>{ y = Gather (e, x) }");
        (void)snprintf(call, sizeof call,
                       "target=torch.ops.aten.embedding.default](args = %s, kwargs = {})", args[i]);
        good(ebb_props_set(model->graph, &ebb_node_of(model->graph, ebb_first(model->graph))->props,
                           "pkg.torch.onnx.fx_node", call));
        good(run(model, "loss:mse,gradient", false));
        assert_int_equal(ebb_producer_op(model->graph, ebb_value_find(model->graph, "e_grad")),
                         i == 0 ? EBB_OP_MUL : EBB_OP_GATHER_GRAD);
    }
}

TEST(an_unbound_batch_is_named)
{
    OWNED_MODEL *model = parsed(HEADER "g (float[batch,4] x) => (float[batch,4] y) <" WEIGHT
                                       "> { y = MatMul (x, w) }");
    ebb_status status = run(model, "loss:mse,gradient", false);
    assert_non_null(status);
    assert_non_null(strstr(ebb_status_text(status), "batch"));
}

TEST(statistics_and_lone_numbers_are_not_parameters)
{
    OWNED_MODEL *model = parsed(
        HEADER "g (float[2,4,2,2] x) => (float[2,4,2,2] y) <float[4] s" VECTOR ", float[4] b" VECTOR
               ", float[4] m" VECTOR ", float[4] v = {1,1,1,1}, float half = {0.5}>"
               "{ n = BatchNormalization (x, s, b, m, v) y = Mul (n, half) }");
    ebb_graph *g = model->graph;
    bool trains[64] = {false};
    ebb_trainable_source source;
    assert_true(g->value_count < 64);
    assert_null(ebb_trainable_find(trains, &source, g));
    assert_int_equal(source, EBB_TRAINABLE_SLOTS);
    assert_true(trains[ebb_value_find(g, "s").i] && trains[ebb_value_find(g, "b").i]);
    assert_false(trains[ebb_value_find(g, "m").i] || trains[ebb_value_find(g, "v").i]);
    assert_false(trains[ebb_value_find(g, "half").i]);
}

TEST(a_lone_number_from_pytorch_is_a_parameter)
{
    OWNED_MODEL *model =
        parsed(HEADER "g (float[2,4] x) => (float[2,4] y) <float[4,4] \"fc.weight\"" NUMBERS
                      ", float logit_scale = {0.5}, float \"onnx::Mul_7\" = {2}>"
                      "{ p = MatMul (x, \"fc.weight\") e = Exp (logit_scale) q = Mul (p, e) "
                      "y = Mul (q, \"onnx::Mul_7\") }");
    const ebb_graph *g = model->graph;
    for (int exported = 0; exported < 2; exported++) {
        bool trains[64] = {false};
        ebb_trainable_source source;
        model->torchscript = exported;
        assert_null(ebb_trainable_find(trains, &source, g));
        assert_true(trains[ebb_value_find(g, "fc.weight").i]);
        assert_int_equal(trains[ebb_value_find(g, "logit_scale").i], exported);
        assert_false(trains[ebb_value_find(g, "onnx::Mul_7").i]);
    }
}

TEST(made_up_names_are_known)
{
    assert_true(ebb_name_is_anonymous("val_12"));
    assert_true(ebb_name_is_anonymous("onnx::MatMul_123"));
    assert_true(ebb_name_is_anonymous("/fc/Constant_output_0"));
    assert_false(ebb_name_is_anonymous("value.weight"));
    assert_false(ebb_name_is_anonymous("val_net.weight"));
}

/* ---- alias ---- */

static uint8_t mark_of(const ebb_graph *g, const char *value)
{
    return ebb_value_of(g, ebb_value_find(g, value))->over;
}

TEST(a_view_keeps_its_source_from_being_overwritten)
{
    OWNED_MODEL *model =
        step(HEADER "g (float[4,4] x) => (float[4,4] z) <int64[1] all = {-1}>"
                    "{ a = Neg (x) flat = Reshape (a, all) b = Relu (a) e = Exp (flat) "
                    "s = Shape (b) back = Reshape (e, s) z = Add (b, back) }",
             "alias");
    const ebb_graph *g = model->graph;
    assert_int_not_equal(mark_of(g, "flat"), 0);
    assert_int_equal(mark_of(g, "b"), 0);     // flat is read later
    assert_int_not_equal(mark_of(g, "e"), 0); // a and flat have been read
}

TEST(constants_and_weights_are_never_overwritten)
{
    OWNED_MODEL *model =
        step(HEADER "g () => (float[4,4] y) <" WEIGHT "> { y = Relu (w) }", "alias");
    assert_int_equal(mark_of(model->graph, "y"), 0);
}

TEST(a_weight_is_overwritten_by_its_own_update_alone)
{
    OWNED_MODEL *model = step(linear, "loss:mse,gradient,optimizer:momentum,alias");
    const ebb_graph *g = model->graph;
    assert_int_equal(mark_of(g, "w_next"), 3);          // its input 2 is w
    assert_int_equal(mark_of(g, "w.momentum_next"), 5); // its input 4 is w.momentum
}

TEST(an_operand_read_twice_is_not_overwritten)
{
    OWNED_MODEL *model =
        step(HEADER "g (float[4,4] x) => (float[4,4] y) { a = Neg (x) y = Mul (a, a) }", "alias");
    assert_int_equal(mark_of(model->graph, "y"), 0);
}

/* ---- what exporters lose ---- */

TEST(folded_merged_and_nameless_parameters_are_noticed)
{
    OWNED_MODEL *model = parsed(
        HEADER
        "g (float[1,4,2,2] x) => (float[1,4] y) <float[4,4,1,1] k = {1,0,0,0, 0,1,0,0, 0,0,1,0, "
        "0,0,0,1}, float[4] b" VECTOR ", float[4,4,1,1] k2 = {2,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}, "
        "float[4,4] val_3 = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}>"
        "{ c = Conv (x, k, b) r = Relu (c) c2 = Conv (r, k2, b) p = GlobalAveragePool (c2) "
        "f = Flatten (p) y = MatMul (f, val_3) }");
    OWNED_ARENA scratch = {0};
    ebb_lost *list;
    size_t count;
    bool seen[EBB_LOST_KIND_COUNT] = {false};
    assert_null(ebb_infer_graph(model->graph));
    assert_null(ebb_lost_list(&list, &count, model->graph, &scratch));
    for (size_t i = 0; i < count; i++)
        seen[list[i].kind] = true;
    assert_true(seen[EBB_LOST_BATCH_NORM] && seen[EBB_LOST_SHARING] && seen[EBB_LOST_NAME]);
}

/* Module: with torch.no_grad(): self.mean.add_(a), and a - self.mean behind it, or before. */
TEST(a_buffer_that_each_forward_updates_is_told)
{
    static const char *const told[] = {
        "'mean' stays as exported; gradients pass what is put there, 'add', where no_grad() may",
        "1 buffer, which the file does not: 'mean' stays as exported"};
    for (int i = 0; i < 2; i++) {
        OWNED_MODEL *model =
            parsed(HEADER "g (float[4,4] x) => (float[4,4] y, float[4,4] z) <" WEIGHT
                          ", float[4] mean" VECTOR "> { a = MatMul (x, w) "
                          "add = Add (a, mean) y = Sub (a, mean) z = Neg (a) }");
        ebb_graph *g = model->graph;
        const ebb_value mean = ebb_value_find(g, "mean");
        assert_null(ebb_props_set(g, &ebb_value_of(g, mean)->props, EBB_NOTED_KIND, "BUFFER"));
        assert_null(ebb_props_set(g, &g->props, EBB_NOTED_LIST,
                                  "\n# outputs\nadd: BUFFER_MUTATION target='mean'\n"));
        if (i == 0)
            assert_null(ebb_node_set_input(g, ebb_value_of(g, ebb_value_find(g, "z"))->producer, 0,
                                           ebb_value_find(g, "add")));
        OWNED_ARENA scratch = {0};
        ebb_lost *list;
        size_t count;
        assert_null(ebb_lost_list(&list, &count, g, &scratch));
        assert_int_equal(count, 1);
        assert_int_equal(list[0].kind, EBB_LOST_UPDATE);
        assert_non_null(strstr(list[0].sentence, told[i]));
        assert_true((strstr(list[0].sentence, "gradients") != NULL) == (i == 0));
    }
}

TEST(weights_of_which_nothing_is_left_are_found)
{
    OWNED_MODEL *model = parsed(
        HEADER "g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] \"onnx::Conv_1\" = "
               "{0,0,0,0}, float[2] \"onnx::Conv_2\" = {0.5,0.25}>"
               "{ y = Conv (x, \"onnx::Conv_1\", \"onnx::Conv_2\") }");
    OWNED_ARENA scratch = {0};
    ebb_lost *list;
    size_t count, found = 0;
    model->torchscript = true;
    assert_null(ebb_infer_graph(model->graph));
    assert_null(ebb_lost_list(&list, &count, model->graph, &scratch));
    for (size_t i = 0; i < count; i++) {
        if (list[i].kind != EBB_LOST_WEIGHT)
            continue;
        found++;
        assert_non_null(strstr(list[i].sentence, "onnx::Conv_1"));
        assert_non_null(strstr(ebb_lost_help(list[i].kind), "do_constant_folding=False"));
    }
    assert_int_equal(found, 1);
}

TEST(streams_of_dropout_are_positive_and_differ)
{
    assert_true(ebb_hash31("drop1") > 0 && ebb_hash31("drop1") <= INT32_MAX);
    assert_int_not_equal(ebb_hash31("drop1"), ebb_hash31("drop2"));
    OWNED_MODEL *model = step(HEADER "g (float[4,4] x) => (float[4,4] y) <float p = {0.5}>"
                                     "{ [d] a = Dropout (x, p) [d] y = Dropout (a, p) }",
                              "train-mode");
    int64_t stream[2] = {0};
    size_t count = 0;
    EBB_EACH_NODE(model->graph, n) {
        if (ebb_node_of(model->graph, n)->op != EBB_OP_EBB_DROPOUT)
            continue;
        ebb_attrs attrs = ebb_node_attrs(model->graph, n);
        stream[count++ % 2] = ebb_attr_int(&attrs, "stream", 0);
    }
    assert_int_equal(count, 2);
    assert_true(stream[0] != stream[1]);
}

/* ---- out of memory ---- */

TEST(running_out_of_memory_anywhere_is_an_error_and_no_crash)
{
    bool done = false;
    for (long n = 1; !done && n < 4000; n++) {
        OWNED_MODEL *model = parsed(linear);
        OWNED_ARENA own = {0};
        const ebb_rewrite_options options = {0};
        ebb_alloc_fail_after(n);
        ebb_status status = ebb_pipeline_run(
            model, "fuse,train-mode,loss:mse,gradient,optimizer:adamw,drop-saves,sign-mask,alias",
            &options, &own, &reports, &report_count);
        ebb_alloc_fail_after(0);
        done = status == NULL;
    }
    assert_true(done);
}

static int release(void **state)
{
    (void)state;
    ebb_arena_fini(&keep);
    return 0;
}

/* The column that readers go by says where a pass really is. */
TEST(each_pass_lies_in_the_room_of_its_row)
{
    size_t count;
    const ebb_pass *const *passes = ebb_passes(&count);
    for (size_t i = 0; i < count; i++) {
        char path[1024];
        int n = snprintf(path, sizeof path, "%s/passes/%s/%s.c", EBB_SOURCE_DIR,
                         ebb_pass_room(passes[i]), passes[i]->name);
        assert_true(n > 0 && (size_t)n < sizeof path);
        for (char *c = strrchr(path, '/'); *c != '\0'; c++)
            *c = *c == '-' ? '_' : *c;
        FILE *file = fopen(path, "r");
        if (file == NULL)
            fail_msg("%s: passes.def says so, and it is not there", path);
        fclose(file);
    }
}

const fixture around_all = {NULL, release};
