/* test_newcomer.c: small models as people export them who never trained from ONNX: what is trained of
 * each file, and its gradients beside PyTorch's.
 *
 * newcomer_sample.py made the files and says what recorded.txt holds; newcomer.py does the same with
 * whole architectures, by hand (docs/newcomer.md). Gradients are held to 1e-5 of their length.
 */
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/zoo/recorded.h"

#include <jansson.h>

#define FOLDER EBB_SOURCE_DIR "/tests/zoo/newcomer"

/* Whether the file has this loss in PyTorch, too: batch norm inside a convolution has no statistics
 * of the batch. */
static bool has_loss(const sample *s)
{
    return s->loss > 0;
}

/* Gradients are outputs of the step: those of what is trained are compared. */
static void keep_trained(sample *s, ebb_program *program)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->gradient_count; i++) {
        ebb_named got;
        if (ebb_program_get(program, formatted("%s_grad", s->gradients[i].name), &got) == NULL)
            s->gradients[kept++] = s->gradients[i];
    }
    s->gradient_count = kept;
}

static bool is_as_recorded(sample *s)
{
    return !has_loss(s) || agrees(FOLDER, s, false, 1e-5, 1e-5, keep_trained);
}

TEST(gradients_agree_with_pytorch_and_detach_stops_them)
{
    assert_true(visit_samples(FOLDER, is_as_recorded) > 10);
}

/* ---- what is trained ---- */

static bool trains_what_it_should(sample *s)
{
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    int failures = 0;
    ebb_status status = program_of(FOLDER, s, false, &model, &program);
    if (status != NULL)
        print_error("%s: %s\n", s->name, ebb_status_text(status));
    assert_null(status);
    for (size_t i = 0; i < s->tensor_count; i++) {
        ebb_named got;
        if ((ebb_program_get(program, formatted("%s_grad", s->tensors[i].name), &got) == NULL) ==
            s->tensors[i].trained)
            continue;
        failures++;
        print_error("%s: '%s' is %strained\n", s->name, s->tensors[i].name,
                    s->tensors[i].trained ? "not " : "");
    }
    return failures == 0;
}

TEST(weights_are_trained_whatever_folding_did_to_them_and_nothing_else)
{
    assert_true(visit_samples(FOLDER, trains_what_it_should) > 10);
}

/* How many elements the gradient of an initializer has; 0: it is not trained. */
static int64_t trained_elements(const char *file, const char *initializer)
{
    sample s = {.loss_kind = "mse"};
    char output[192];
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    ebb_named got;
    (void)snprintf(s.name, sizeof s.name, "%s", file);
    (void)snprintf(output, sizeof output, "%s_grad", initializer);
    ebb_status status = program_of(FOLDER, &s, false, &model, &program);
    if (status != NULL)
        print_error("%s: %s\n", file, ebb_status_text(status));
    assert_null(status);
    int64_t count = ebb_program_get(program, output, &got) == NULL;
    for (int k = 0; count > 0 && k < got.rank; k++)
        count *= got.dims[k];
    return count;
}

static bool is_trained(const char *file, const char *initializer)
{
    return trained_elements(file, initializer) > 0;
}

TEST(a_bias_that_was_dropped_for_being_zero_is_trained)
{
    assert_true(is_trained("convolutions-fresh-default", "model.layers.0.bias"));
    assert_true(is_trained("convolutions-fresh-default", "model.layers.3.bias"));
}

TEST(what_was_expanded_for_the_batch_has_its_own_name)
{
    assert_true(is_trained("token-trained-default", "model.token"));
}

TEST(the_bias_of_a_layer_that_runs_twice_is_one)
{
    assert_true(is_trained("twice-fresh-default", "model.b"));
    assert_true(is_trained("twice-fresh-default", "model.c"));
    assert_false(is_trained("twice-fresh-default", "model.b_1"));
}

TEST(a_few_numbers_that_were_repeated_are_few)
{
    assert_true(is_trained("spread-trained-default", "model.deviation"));
    assert_true(is_trained("latents-trained-default", "model.latents"));
    assert_int_equal(trained_elements("globals-trained-default", "embedding"), 24);
}

/* ---- what the doctor says ---- */

/* Whether `ebb check` has a warning or problem of this kind; its exit code. */
static bool finds(const char *name, const char *kind, ebb_code *code)
{
    static const char *const among[] = {"warnings", "problems"};
    RELEASED char *text = NULL;
    size_t i;
    bool found = false;
    json_t *finding;
    OWNED_MODEL *model = NULL;
    assert_null(ebb_open(&model, formatted(FOLDER "/%s.onnx", name)));
    assert_null(ebb_check(model, code, &text));
    json_t *report = json_loads(text, 0, NULL);
    for (int k = 0; k < 2; k++)
        json_array_foreach(json_object_get(report, among[k]), i, finding)
            found |= strcmp(json_string_value(json_object_get(finding, "kind")), kind) == 0;
    json_decref(report);
    return found;
}

static bool warns(const char *name, const char *kind)
{
    ebb_code code;
    return finds(name, kind, &code);
}

TEST(a_small_number_that_kept_a_root_from_zero_is_told)
{
    assert_true(warns("roots-trained-default", "lost-sum"));
    assert_false(warns("roots-trained-dynamo-plain", "lost-sum"));
}

TEST(what_no_run_trains_is_a_problem)
{
    ebb_code code;
    assert_true(finds("cell-trained-default", "lost-weight", &code));
    assert_int_equal(code, EBB_REJECTED);
    assert_true(finds("convolutions-trained-default", "folded-batch-norm", &code));
    assert_int_equal(code, EBB_OK);
}

TEST(a_folded_batch_norm_is_found_by_what_the_exporter_left)
{
    const char *folded[] = {"convolutions-fresh-default", "convolutions-trained-default",
                            "convolutions-fresh-ts", "convolutions-trained-ts"};
    const char *kept[] = {"convolutions-fresh-ts-unfolded",
                          "convolutions-trained-ts-advised",
                          "convolutions-trained-dynamo-advised",
                          "perceptron-trained-default",
                          "attention-trained-ts",
                          "recurrent-trained-ts"};
    for (size_t i = 0; i < sizeof folded / sizeof *folded; i++)
        assert_true(warns(folded[i], "folded-batch-norm"));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_false(warns(kept[i], "folded-batch-norm"));
}

TEST(a_gradient_that_was_folded_in_part_is_refused)
{
    assert_true(warns("cell-trained-default", "lost-weight"));
    assert_false(warns("tables-trained-default", "lost-weight"));
}

/* Whether `ebb grad` refuses it, with the export call that keeps all. */
static bool is_refused(const char *file)
{
    sample s = {.loss_kind = "mse"};
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    (void)snprintf(s.name, sizeof s.name, "%s", file);
    ebb_status status = program_of(FOLDER, &s, false, &model, &program);
    bool refused = ebb_status_code(status) == EBB_REJECTED &&
                   (strstr(ebb_status_text(status), "not all would be trained") != NULL ||
                    strstr(ebb_status_text(status), "the file does not tell what") != NULL) &&
                   strstr(ebb_status_text(status), "torch.onnx.export(") != NULL;
    return refused;
}

TEST(a_lone_number_that_was_made_of_a_parameter_is_refused)
{
    assert_true(is_refused("scalars-trained-ts"));
    assert_true(is_refused("scalars-trained-default"));
}

TEST(a_bias_with_zeros_of_no_parameter_beside_it_is_refused)
{
    assert_true(is_refused("keys-trained-ts"));
    assert_true(is_refused("keys-fresh-ts"));
}

TEST(norms_of_two_modules_that_became_one_node_are_refused)
{
    assert_true(is_refused("branches-fresh-default"));
}

TEST(keys_and_values_of_two_layers_that_became_one_are_refused)
{
    assert_true(is_refused("memory-fresh-default"));
}

TEST(a_parameter_that_did_nothing_and_was_dropped_is_told)
{
    assert_true(is_refused("scalars-fresh-default"));
    assert_true(warns("scalars-fresh-default", "lost-weight"));
    assert_false(warns("tables-trained-default", "lost-weight"));
}

TEST(layers_that_were_computed_before_the_run_are_refused)
{
    assert_true(is_refused("queries-trained-default"));
}

TEST(a_table_that_was_interpolated_before_the_run_is_refused)
{
    assert_true(is_refused("places-trained-default"));
    assert_true(is_refused("places-fresh-ts"));
}

TEST(a_weight_that_the_rest_to_one_was_made_of_is_refused)
{
    assert_true(is_refused("shares-trained-default"));
    assert_true(is_refused("shares-trained-ts"));
}

TEST(a_sum_that_is_equal_to_the_parameter_in_it_is_refused)
{
    assert_true(is_refused("snake-fresh-default"));
}

TEST(what_was_moved_of_a_weight_that_is_trained_as_well_is_refused)
{
    assert_true(is_refused("flipped-trained-default"));
}

TEST(what_any_call_computed_of_a_scale_is_refused)
{
    assert_true(is_refused("positive-trained-default"));
}

TEST(what_a_layer_made_of_a_table_is_refused_and_so_is_the_table_unless_it_is_marked)
{
    assert_true(is_refused("distances-trained-default"));
    assert_true(is_refused("distances-trained-ts-unfolded"));
}

TEST(zeros_and_ones_that_may_be_a_mask_are_refused)
{
    assert_true(is_refused("halves-trained-ts"));
}

TEST(ones_that_were_computed_and_multiply_the_input_are_refused)
{
    assert_true(is_refused("passed-fresh-ts"));
}

TEST(fresh_numbers_that_were_expanded_are_refused)
{
    assert_true(is_refused("sinks-fresh-default"));
}

TEST(a_matrix_that_was_computed_and_then_transposed_is_refused)
{
    assert_true(is_refused("prototypes-trained-default"));
}

TEST(vectors_of_a_spectral_norm_are_no_parameters)
{
    assert_true(is_trained("spectral-trained-ts", "model.first.weight_orig"));
    assert_true(is_trained("spectral-trained-ts", "model.last.weight_orig"));
    assert_false(is_trained("spectral-trained-ts", "model.first.weight_u"));
    assert_false(is_trained("spectral-trained-ts", "model.last.weight_v"));
}

TEST(what_may_be_a_parameter_where_none_is_expected_is_refused)
{
    assert_true(is_refused("centers-trained-ts"));
    assert_true(is_refused("triangle-trained-ts"));
}

TEST(a_slope_of_two_calls_is_one_and_that_of_another_module_is_not)
{
    assert_true(is_trained("bends-fresh-ts", "onnx::PRelu_27"));
    assert_false(is_trained("bends-fresh-ts", "onnx::PRelu_28"));
    assert_true(is_trained("bends-fresh-ts", "onnx::PRelu_29"));
}

TEST(norms_of_one_input_that_became_one_node_are_parted)
{
    const char *parameters[] = {"model.norm1.weight", "model.norm1.bias", "model.norm2.weight",
                                "model.norm2.bias"};
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        assert_true(is_trained("parallel-fresh-default", parameters[i]));
    assert_false(warns("parallel-fresh-default", "lost-weight"));
}

TEST(norms_of_two_heads_that_became_one_node_are_parted)
{
    const char *parameters[] = {"model.norm.weight", "model.head.norm.weight",
                                "model.head.norm.bias", "model.other.norm.weight",
                                "model.other.norm.bias"};
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        assert_true(is_trained("heads-fresh-default", parameters[i]));
}

TEST(the_norm_of_a_table_has_a_scale_of_its_own)
{
    assert_true(is_trained("normed-fresh-default", "model.first.weight"));
    assert_true(is_trained("normed-fresh-default", "model.second.weight"));
    assert_true(is_trained("normed-fresh-default", "model.second.bias"));
}

TEST(equal_sums_that_became_one_are_parted)
{
    assert_true(is_trained("offset-fresh-default", "add_1"));
    assert_true(is_trained("offset-fresh-default", "node_mul_3.1"));
    assert_false(warns("offset-fresh-default", "lost-weight"));
}

TEST(a_detach_that_the_exporter_dropped_is_put_back_or_told)
{
    assert_false(warns("stopped-trained-default", "lost-detach"));
    assert_false(warns("detached-trained-dynamo-plain", "lost-detach"));
    assert_true(warns("codebook-trained-default", "lost-detach"));
    assert_true(warns("codebook-trained-ts", "lost-detach"));
    assert_true(warns("choices-trained-ts", "lost-detach"));
    assert_false(warns("codebook-trained-dynamo-plain", "lost-detach"));
    assert_false(warns("attention-trained-default", "lost-detach"));
}

static bool is_not_merged(sample *s)
{
    bool merged = warns(s->name, "merged-parameters");
    if (merged)
        print_error("%s: merged-parameters\n", s->name);
    return !merged;
}

TEST(what_training_takes_apart_is_no_warning)
{
    assert_true(visit_samples(FOLDER, is_not_merged) > 10);
}
