/* test_trained.c: `ebb grad` and `ebb train` say which weights they train, refuse to train few of them
 * unless asked, and repeat what the doctor warns of. The models are exports of PyTorch's two exporters.
 */
#include "tests/cli/cli.h"

#include <jansson.h>

#include "onnx/file/file.h"
#include "tests/formatted.h"
#include "tests/owned.h"

#define EXPORTS EBB_SOURCE_DIR "/tests/zoo/newcomer/"
#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]>\n"
#define MARK "pkg.torch.export.graph_signature.InputSpec.kind"

static void grad_says(const char *model, const char *options, int code, const char *words)
{
    says(formatted("grad %s%s --loss mse --dry-run %s", model[0] == '/' ? "" : EXPORTS, model,
                   options),
         code, words);
}

TEST(folded_exports_are_trained_and_it_is_said)
{
    static const char *const all[][2] = {
        {"perceptron-trained-default.onnx", "training 8 of 8 weights, 100 % of the elements"},
        {"perceptron-trained-ts.onnx", "training 8 of 8 weights, 100 % of the elements"},
        {"recurrent-trained-default.onnx", "training 6 of 6 weights, 100 % of the elements"},
        {"recurrent-trained-ts.onnx", "training 6 of 6 weights, 100 % of the elements"},
        {"attention-trained-default.onnx", "training 9 of 9 weights, 100 % of the elements"},
        {"convolutions-trained-default.onnx", "training 6 of 6 weights, 100 % of the elements"},
        {"convolutions-fresh-ts-unfolded.onnx", "training 8 of 8 weights, 100 % of the elements"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        grad_says(all[i][0], "", 0, all[i][1]);
}

TEST(a_table_of_which_the_file_has_some_rows_is_named)
{
    grad_says("positions-trained-default.onnx", "", 0,
              "'embedding_1': the rows of a table that were looked up");
    grad_says("perceptron-trained-default.onnx", "", 0, "training 8 of 8 weights");
    assert_null(strstr(output, "looked up"));
}

TEST(what_the_doctor_warns_of_is_said_again)
{
    grad_says("convolutions-trained-default.onnx", "", 0,
              "warning: 2 convolutions have taken in the batch norm");
    grad_says("convolutions-trained-dynamo-advised.onnx", "", 0, "training 8 of 8 weights");
    assert_null(strstr(output, "warning"));
}

TEST(lost_trains_the_lost_weights)
{
    grad_says("perceptron-trained-default.onnx", "--train lost", 0, "training 3 of 8 weights");
    grad_says("perceptron-trained-default.onnx", "--train lost --train '*.bias'", 0,
              "training 7 of 8 weights");
    grad_says("convolutions-trained-dynamo-advised.onnx", "--train lost", 2,
              "no weight's name matches train=lost");
    says("help grad", 0, "`lost`: those that an export took the names of");
    assert_null(strstr(output, "val_*"));
}

/* A bias with a mark beside a product of weights that were joined before the run. */
static void write_partial(void)
{
    OWNED_MODEL *model = NULL;
    assert_null(ebb_text_parse_model(
        &model, HEAD "g (float[4,2] x) => (float[4,2] y) <float[2] bias = {0.5, 0.25}, float[4,2] "
                     "mul_3 = {1,2,3,4,5,6,7,9}> { a = Add (x, bias) y = Mul (a, mul_3) }"));
    ebb_value bias = ebb_value_find(model->graph, "bias");
    assert_null(
        ebb_props_set(model->graph, &ebb_value_of(model->graph, bias)->props, MARK, "PARAMETER"));
    assert_null(ebb_save(model, path_of("partial.onnx")));
}

TEST(a_small_part_is_refused_with_the_call_that_keeps_all)
{
    write_partial();
    says("grad partial.onnx --loss mse --dry-run", 6,
         "less than half would be trained: training 1 of 2 weights, 20.0 % of the elements; not: "
         "'mul_3' (it was computed from weights before the run)");
    assert_non_null(strstr(output, "torch.onnx.export(..., dynamo=True, optimize=False)"));
    assert_non_null(strstr(output, "--allow-partial"));
    says("grad partial.onnx --loss mse --dry-run --allow-partial", 0, "training 1 of 2 weights");
    says("grad partial.onnx --loss mse --dry-run --train 'b*'", 0, "training 1 of 2 weights");
    says("grad partial.onnx --loss mse --dry-run --freeze 'm*'", 0, "training 1 of 2 weights");
    says("grad partial.onnx --loss mse --dry-run --train '*'", 0, "training 2 of 2 weights");
    // A failure is looked for in parts of a model, too.
    says("reduce partial.onnx -o less.onnx --fails grad --loss mse", 2, "");
    assert_null(strstr(output, "less than half"));
}

TEST(a_bag_that_leaves_a_row_out_is_refused_with_what_to_export)
{
    static const char *const calls[] = {
        "%bag : call_function[target=torch.ops.aten.embedding_bag.padding_idx](args = (%p_w))",
        "%bag : call_function[target=torch.ops.aten.wobble.default](args = (%p_w))"};
    for (int i = 0; i < 2; i++) {
        ebb_model *model = NULL;
        assert_null(ebb_text_parse_model(
            &model, "<ir_version: 10, opset_import: [\"\" : 20, \"mine\" : 1]>\n"
                    "g (float[4,2] x) => (float[4,2] y) <float[2,2] w = {1,2,3,4}>"
                    "{ a = MatMul (x, w) y = mine.Wobble (a) }"));
        EBB_EACH_NODE(model->graph, n)
            assert_null(ebb_props_set(model->graph, &ebb_node_of(model->graph, n)->props,
                                      "pkg.torch.onnx.fx_node", calls[i]));
        assert_null(ebb_save(model, path_of("bag.onnx")));
        ebb_close(model);
        assert_int_not_equal(ebb("grad bag.onnx --loss mse --dry-run"), 0);
        assert_int_equal(strstr(output, "nn.EmbeddingBag with padding_idx") != NULL, i == 0);
    }
}

static json_t *object_of(const char *arguments)
{
    assert_int_equal(stdout_of(arguments), 0);
    json_t *o = json_loads(output, 0, NULL);
    assert_non_null(o);
    return o;
}

TEST(json_has_it_too)
{
    write_partial();
    json_t *o = object_of("grad partial.onnx --loss mse --dry-run --allow-partial --json");
    const json_t *training = json_object_get(o, "training");
    assert_int_equal(json_integer_value(json_object_get(training, "trained")), 1);
    assert_int_equal(json_integer_value(json_object_get(training, "weights")), 2);
    const json_t *first = json_array_get(json_object_get(training, "not"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "name")), "mul_3");
    assert_true(json_is_array(json_object_get(o, "warnings")));
    json_decref(o);

    static const float x[16] = {1, 2, 3}, target[16];
    const int64_t dims[] = {8, 2};
    const ebb_named arrays[] = {{"x", EBB_F32, 2, dims, x}, {"target", EBB_F32, 2, dims, target}};
    assert_null(ebb_tensors_save(path_of("d.safetensors"), arrays, 2, NULL));
    o = object_of(
        "train partial.onnx --data d.safetensors --batch 4 --loss mse --allow-partial --json");
    training = json_object_get(o, "training");
    assert_int_equal(json_integer_value(json_object_get(training, "trained_elements")), 2);
    assert_true(json_is_array(json_object_get(o, "warnings")));
    json_decref(o);
    says("train partial.onnx --data d.safetensors --batch 4 --loss mse", 6, "less than half");
    says("train partial.onnx --data d.safetensors --batch 4 --loss mse --allow-partial", 0,
         "training 1 of 2 weights, 20.0 % of the elements");
}

TEST(layers_that_are_not_trained_keep_their_statistics)
{
    static const char last[] = "training 2 of 8 weights";
    grad_says("convolutions-trained-ts-advised.onnx", "--train 'model.layers.9*'", 0, last);
    assert_null(strstr(output, "normalises by the batch"));
    assert_non_null(strstr(output, "is frozen: it uses its running statistics"));
    grad_says("convolutions-trained-ts-advised.onnx",
              "--train 'model.layers.9*' --batch-norm train", 0, last);
    assert_non_null(strstr(output, "normalises by the batch"));
    grad_says("convolutions-trained-ts-advised.onnx", "--freeze 'model.layers.9*'", 0,
              "normalises by the batch");
    assert_null(strstr(output, "is frozen"));
}

const fixture around_all = {make_folder, remove_folder};
