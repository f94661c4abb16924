/* test_check.c: every tests/api/check/NAME.txt: a model, and all that the doctor says of it
 * (tests/golden.h).
 *
 *     # what is shown
 *     dims: batch=4
 *     ---
 *     <ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) { y = Relu(x) }
 *     ---
 *     problem operator my.ops.Wobble 2: what
 *       at Wobble 'mine', Wobble 'again'
 *       help: what would help
 *       pass: that sees to it
 */
#include "tests/golden.h"

#include <jansson.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void print_list(FILE *out, const json_t *report, const char *list, const char *severity)
{
    size_t i, k;
    json_t *f, *node;
    json_array_foreach(json_object_get(report, list), i, f) {
        const char *domain = text_of(f, "domain"), *op = text_of(f, "op");
        fprintf(out, "%s %s %s%s%s%s%lld: %s\n", severity, text_of(f, "kind"), domain,
                domain[0] != '\0' ? "." : "", op, op[0] != '\0' ? " " : "",
                (long long)json_integer_value(json_object_get(f, "count")), text_of(f, "what"));
        json_array_foreach(json_object_get(f, "nodes"), k, node)
            fprintf(out, "%s%s", k > 0 ? ", " : "  at ", json_string_value(node));
        fprintf(out, "%s", k > 0 ? "\n" : "");
        if (text_of(f, "help")[0] != '\0')
            fprintf(out, "  help: %s\n", text_of(f, "help"));
        if (text_of(f, "pass")[0] != '\0')
            fprintf(out, "  pass: %s\n", text_of(f, "pass"));
    }
}

/* All findings, and how training would end. From malloc. */
static char *examined(ebb_model *model)
{
    char *json, *text = NULL;
    size_t size;
    good(ebb_check_json(model, &json));
    json_t *report = json_loads(json, 0, NULL);
    ebb_release(json);
    assert_non_null(report);
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    print_list(out, report, "problems", "problem");
    print_list(out, report, "warnings", "warning");
    print_list(out, report, "notes", "note");
    fprintf(out, "code %lld\n", (long long)json_integer_value(json_object_get(report, "code")));
    fclose(out);
    json_decref(report);
    return text;
}

static void says_what_is_written(void **state)
{
    golden *g = *state;
    OWNED_MODEL *model = NULL;
    char dims[512], dim[64];
    long long size;
    golden_load(g);
    ebb_status status = ebb_text_parse_model(&model, g->in);
    if (status == NULL && golden_word(g, "dims", dims)) {
        if (sscanf(dims, "%63[^=]=%lld", dim, &size) != 2)
            fail_msg("%s: 'dims: %s' should be NAME=N", g->path, dims);
        ebb_status bound = ebb_set_dim(model, dim, size);
        status = ebb_status_code(bound) == EBB_REJECTED ? NULL : bound;
    }
    if (status != NULL)
        fail_msg("%s: %s", g->path, ebb_status_text(status));
    FREED char *printed = examined(model);
    golden_compare(g, printed);
    golden_free(g);
}

/* ---- what no text can hold ---- */

TEST(weights_in_a_file_above_two_gibibytes_are_no_problem_unless_it_is_missing)
{
    OWNED_MODEL *model = parsed("<ir_version: 10, opset_import: [\"\" : 20]>\n"
                                "g (float[1,40000] x) => (float[1,40000] y)\n"
                                "<float[40000,40000] w> { y = MatMul (x, w) }");
    const ebb_value w = model->graph->initializers[0];
    ebb_tensor t = *ebb_value_of(model->graph, w)->tensor;
    t.external = true;
    t.location = "model.onnx.data";
    assert_null(ebb_value_set_tensor(model->graph, w, &t));
    FREED char *text = examined(model);
    assert_non_null(strstr(text, "note large-file 0: 6.40 GB"));
    assert_non_null(strstr(text, "problem external-data 1: 1 weights (6400 MB) have no values, "
                                 "for their file 'model.onnx.data' is not beside the model"));
    assert_non_null(strstr(text, "code 8\n"));
}

TEST(a_model_that_is_looked_at_stays_as_it_is)
{
    RELEASED char *before = NULL, *after = NULL;
    OWNED_MODEL *model = NULL;
    assert_null(ebb_open(&model, EBB_SOURCE_DIR "/samples/digits/transformer.onnx"));
    assert_null(ebb_text_print(&before, model->graph));
    free(examined(model));
    assert_null(ebb_text_print(&after, model->graph));
    assert_string_equal(before, after);
}

int main(void)
{
    golden_list(EBB_SOURCE_DIR "/tests/api/check", says_what_is_written);
    return run_listed();
}
