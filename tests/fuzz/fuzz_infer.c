/* fuzz_infer.c: types over a graph, as the file has it and again with every open dim given a size.
 * What was read is legal before and after.
 */
#include "tests/fuzz/fuzz.h"

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"

/* Every open dim with a name becomes `size`. */
static void bind_all(ebb_graph *g, int64_t size)
{
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_type *type = ebb_value_of(g, g->inputs[i])->type;
        for (int d = 0; d < type->rank; d++) {
            size_t bound;
            const char *symbol = ebb_text(g, type->symbols[d]);
            if (type->dims[d] < 0 && symbol[0] != '\0')
                (void)ebb_bind_dim(g, symbol, size, &bound);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    OWNED_MODEL *model = NULL;
    if (ebb_model_read_memory(&model, data, size, NULL) != NULL)
        return 0;
    if (ebb_infer_graph(model->graph) == NULL) {
        bind_all(model->graph, 3);
        if (ebb_infer_graph(model->graph) == NULL && ebb_verify(model->graph) == NULL)
            EBB_EACH_NODE(model->graph, n)
                (void)ebb_node_flops(model->graph, n);
    }
    return 0;
}
