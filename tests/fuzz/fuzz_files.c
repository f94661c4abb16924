/* fuzz_files.c: the files beside a model that name its parts: adapters for pass lora, measured
 * costs, sensitivities, checkpoints and adapters of ONNX Runtime, intervals to pack.
 *
 * Each reader gets the bytes under a path, that of one nameless file, written again each time. What
 * the passes are run on is a copy of one small model, and of one small step.
 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include <unistd.h>

#include "exec/data/data.h"
#include "exec/data/ort_checkpoint.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"

static const char files_text[] = "<ir_version: 10, opset_import: [\"\" : 18]>\n"
                                 "g (float[2,3] x) => (float[2,4] y)\n"
                                 "<float[3,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>\n"
                                 "{ h = MatMul(x, w)\n  y = Sigmoid(h) }\n";

/* The bytes as a file; NULL: there is none to be had. */
static const char *path_of_bytes(const uint8_t *bytes, size_t size)
{
    static FILE *file;
    static char path[64];
    if (file == NULL)
        file = tmpfile();
    if (file == NULL || ftruncate(fileno(file), 0) != 0 ||
        pwrite(fileno(file), bytes, size, 0) != (ssize_t)size)
        return NULL;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    return path;
}

/* The pass reads the file, on the model or on its step. */
static void read_by(const char *pass, const char *path, bool step)
{
    static ebb_model *models[2];
    OWNED_MODEL *copy = NULL;
    char text[256];
    if (models[step] == NULL) {
        fuzz_must(ebb_text_parse_model(&models[step], files_text), "parsing");
        fuzz_must(ebb_infer_graph(models[step]->graph), "inferring");
        if (step)
            fuzz_must(ebb_rewrite(models[step], "loss:mse,gradient,optimizer:sgd", NULL, NULL),
                      "a step");
    }
    fuzz_must(ebb_model_copy(&copy, models[step]), "copying");
    (void)snprintf(text, sizeof text, "%s=%s", pass, path);
    const ebb_rewrite_options options = {.verify_each = true};
    ebb_status status = ebb_rewrite(copy, text, &options, NULL);
    if (ebb_status_code(status) == EBB_VERIFY)
        fuzz_must(status, "a pass made an illegal graph");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = path_of_bytes(data, size);
    ebb_data arrays;
    if (path == NULL)
        return 0;
    if (ebb_data_init(&arrays, "bytes") == NULL)
        (void)ebb_ort_checkpoint_parse(&arrays, data, size, "/nonexistent", "checkpoint", NULL);
    ebb_data_fini(&arrays);
    if (ebb_data_init(&arrays, "bytes") == NULL)
        (void)ebb_ort_adapter_parse(&arrays, data, size);
    ebb_data_fini(&arrays);
    read_by("lora:file", path, false);
    read_by("cost:file", path, true);
    read_by("quantise:bits=mixed,measured", path, true);
    (void)ebb_pack_csv(path, NULL, NULL, NULL);
    return 0;
}
