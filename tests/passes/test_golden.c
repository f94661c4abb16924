/* test_golden.c: every tests/passes/NAME.txt: a model, a pipeline, and the model that must come
 * out (tests/golden.h).
 *
 *     # what is shown
 *     passes: loss:mse,gradient,sign-mask
 *     exporter: torchscript          (where a pass asks for it)
 *     ---
 *     <ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) { y = Relu(x) }
 *     ---
 *     the graph as text after the last pass
 *
 * The last pass is then run again and must change nothing.
 */
#include "tests/golden.h"

#include "onnx/file/file.h"
#include "passes/pipeline.h"
#include "tests/owned.h"

static ebb_status run(ebb_model *model, const char *passes, char **text)
{
    const ebb_rewrite_options options = {.verify_each = true};
    OWNED_ARENA keep = {0};
    ebb_report *reports;
    size_t count;
    ebb_status status = ebb_pipeline_run(model, passes, &options, &keep, &reports, &count);
    return status != NULL ? status : ebb_text_print(text, model->graph);
}

/* The last pass of the line, with its options. */
static const char *last_pass(const char *passes)
{
    const char *last = passes;
    for (const char *c = passes; *c != '\0'; c++) {
        size_t word = strcspn(c + 1, ",");
        const char *equals = memchr(c + 1, '=', word), *colon = memchr(c + 1, ':', word);
        if (*c == ',' && (equals == NULL || (colon != NULL && colon < equals)))
            last = c + 1;
    }
    return last;
}

static void comes_out_as_written(void **state)
{
    golden *g = *state;
    OWNED_MODEL *model = NULL;
    RELEASED char *text = NULL, *again = NULL;
    char passes[512], exporter[512];
    golden_load(g);
    if (!golden_word(g, "passes", passes))
        fail_msg("%s: a line 'passes: ...' is needed", g->path);
    ebb_status status = ebb_text_parse_model(&model, g->in);
    if (status == NULL) {
        model->torchscript =
            golden_word(g, "exporter", exporter) && strcmp(exporter, "torchscript") == 0;
        status = run(model, passes, &text);
    }
    if (status != NULL)
        fail_msg("%s: %s", g->path, ebb_status_text(status));
    golden_compare(g, text);
    status = run(model, last_pass(passes), &again);
    if (status != NULL)
        fail_msg("%s: again: %s", g->path, ebb_status_text(status));
    assert_string_equal(again, text);
    golden_free(g);
}

int main(void)
{
    golden_list(EBB_SOURCE_DIR "/tests/passes", comes_out_as_written);
    return run_listed();
}
