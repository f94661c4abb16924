/* fuzz_checkpoint.c: safetensors headers, checkpoints of a small program, and arrays of .npy.
 *
 * The program lives from input to input: a checkpoint that is refused must leave it able to step.
 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include <unistd.h>

#include "exec/data/formats/formats.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"

static const char step_text[] = "<ir_version: 10, opset_import: [\"\" : 18]>\n"
                                "g (float[2,3] x) => (float[2,4] y)\n"
                                "<float[3,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},\n"
                                " float[4] b = {1, 2, 3, 4}>\n"
                                "{ h = MatMul(x, w)\n  y = Add(h, b) }\n";

static ebb_program *a_program(void)
{
    static ebb_model *model;
    static ebb_program *program;
    if (program == NULL) {
        fuzz_must(ebb_text_parse_model(&model, step_text), "parsing");
        fuzz_must(ebb_infer_graph(model->graph), "inferring");
        fuzz_must(ebb_rewrite(model, "loss:mse,gradient,optimizer:adamw", NULL, NULL), "a step");
        fuzz_must(ebb_program_compile(&program, model, NULL), "compiling");
    }
    return program;
}

/* A checkpoint has a path: that of one nameless file, written again each time. */
static void load_checkpoint(const uint8_t *bytes, size_t size)
{
    static FILE *file;
    char path[64], *extra = NULL;
    if (file == NULL)
        file = tmpfile();
    if (file == NULL)
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    if (ftruncate(fileno(file), 0) == 0 && pwrite(fileno(file), bytes, size, 0) == (ssize_t)size &&
        ebb_checkpoint_load(a_program(), path, &extra) == NULL)
        ebb_release(extra);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ebb_data arrays;
    if (ebb_data_init(&arrays, "bytes") == NULL)
        (void)ebb_safetensors_parse(&arrays, data, size);
    ebb_data_fini(&arrays);
    if (ebb_data_init(&arrays, "bytes") == NULL)
        (void)ebb_npy_parse(&arrays, "a", 1, data, size);
    ebb_data_fini(&arrays);
    load_checkpoint(data, size);
    return 0;
}
