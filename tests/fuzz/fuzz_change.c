/* fuzz_change.c: what is done with a stranger's model before anything is trained: the doctor looks
 * at it, inputs are fixed to values, functions, control flow and operators of other runtimes are
 * put in, and the smallest part of it is found that fails the same way.
 */
#include "tests/fuzz/fuzz.h"

#include "exec/data/sample.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"

static ebb_model *read_model(const uint8_t *data, size_t size)
{
    ebb_model *model = NULL;
    return ebb_model_read_memory(&model, data, size, NULL) == NULL ? model : NULL;
}

static void look(ebb_model *model)
{
    char *json = NULL;
    if (ebb_check_json(model, &json) == NULL)
        ebb_release(json);
}

/* Are the inputs small enough to be drawn for every input of the fuzzer? */
static bool is_small(const ebb_graph *g)
{
    size_t bytes, total = 0;
    for (size_t i = 0; i < g->input_count; i++)
        if (!ebb_type_bytes(ebb_value_of(g, g->inputs[i])->type, &bytes) || bytes > 1 << 16 ||
            (total += bytes) > 1 << 16)
            return false;
    return true;
}

/* As `ebb run` does before it runs, but that loops stay short. */
static void settle(ebb_model *model)
{
    OWNED_ARENA arena = {0};
    ebb_batch batch;
    size_t bound;
    const ebb_rewrite_options options = {.verify_each = true};
    if (ebb_infer_graph(model->graph) == NULL && ebb_verify(model->graph) == NULL &&
        is_small(model->graph) && ebb_sample_batch(&batch, model->graph, 1, &arena) == NULL &&
        ebb_bind_values(model, &batch, &bound) == NULL) {
        ebb_status status =
            ebb_rewrite(model, "differentiate,inline,fold,unroll:most=32,fuse", &options, NULL);
        if (ebb_status_code(status) == EBB_VERIFY)
            fuzz_must(status, "a pass made an illegal graph");
    }
}

static void reduce(ebb_model *model)
{
    const ebb_reduce_options options = {.fails = "types", .most_tests = 20, .threads = 1};
    (void)ebb_reduce(model, NULL, &options, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    void (*const uses[])(ebb_model *) = {look, settle, reduce};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        OWNED_MODEL *model = read_model(data, size);
        if (model == NULL)
            return 0;
        uses[i](model);
    }
    return 0;
}
