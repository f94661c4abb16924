/* write_seeds.c: what a fuzzer begins with: the files of the hostile corpus, and its models and
 * some sound ones as text. write_seeds FOLDER TEXT_FOLDER
 */
#include "tests/fuzz/fuzz_checkpoint.c"
#include "tests/hostile/corpus.h"
#include "tests/owned.h"

static const char *const sound[] = {
    "<ir_version: 10, opset_import: [\"\" : 21]>\ng (float[N,3] x, int64[N] t) => (float l)\n"
    "<float[3,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[4] b = {1, 2, 3, 4}>\n"
    "{ h = MatMul(x, w) z = Add(h, b) a = Relu(z) l = SoftmaxCrossEntropyLoss(a, t) }\n",
    "<ir_version: 10, opset_import: [\"\" : 21, \"local\" : 1]>\n"
    "g (float[1,2,8,8] x) => (float[1,3,4,4] y)\n<float[3,2,3,3] w>\n"
    "{ c = Conv <pads = [1, 1, 1, 1], group = 1> (x, w) p = MaxPool <kernel_shape = [2, 2], "
    "strides = [2, 2]> (c) y = local.Twice <k = 2> (p) }\n"
    "<domain: \"local\", opset_import: [\"\" : 21]>\nTwice <k> (a) => (b) { b = Add(a, a) }\n",
    "<ir_version: 10, opset_import: [\"\" : 21]>\n"
    "g (float[2,3] x, bool c) => (float[2,3] y) { y = If (c) <then_branch = t () => (float[2,3] u) "
    "{ u = Relu(x) }, else_branch = e () => (float[2,3] v) { v = Neg(x) }> }\n",
};

/* Sound files of the kinds that fuzz_files.c reads. */
static bool write_files(const char *folder)
{
    static const char csv[] = "id,lower,upper,size,offset\na,0,2,64,\nb,1,3,32,0\n";
    static const char measured[] =
        "{\"schema\": \"ebb.sensitivity/1\", \"gradients\": 1, \"tensors\": [{\"name\": \"y\", "
        "\"bytes\": 32, \"range2\": 1.5, \"grad2\": 0.25, \"sensitivity\": 0.5}], \"skipped\": []}";
    char path[512];
    ebb_model *model = NULL;
    ebb_program *program = NULL;
    (void)snprintf(path, sizeof path, "%s/sound_costs.json", folder);
    fuzz_must(ebb_text_parse_model(&model, step_text), "parsing");
    fuzz_must(ebb_infer_graph(model->graph), "inferring");
    const ebb_calibrate_options once = {.backend = "plain", .steps = 1, .threads = 1};
    fuzz_must(ebb_calibrate(&model, 1, &once, path, NULL), "measuring");
    fuzz_must(ebb_rewrite(model, "lora:rank=2,loss:mse,gradient,optimizer:sgd", NULL, NULL),
              "a step with adapters");
    fuzz_must(ebb_program_compile(&program, model, NULL), "compiling");
    (void)snprintf(path, sizeof path, "%s/sound_adapters.safetensors", folder);
    fuzz_must(ebb_adapters_save(program, path), "saving adapters");
    (void)snprintf(path, sizeof path, "%s/sound.onnx_adapter", folder);
    fuzz_must(ebb_adapters_save(program, path), "saving adapters for ONNX Runtime");
    ebb_program_free(program);
    ebb_model_free(model);
    return corpus_write(folder, "sound.csv", csv, sizeof csv - 1) &&
           corpus_write(folder, "sound_measured.json", measured, sizeof measured - 1);
}

int main(int argc, char **argv)
{
    char path[512];
    if (argc != 3)
        return 2;
    (void)snprintf(path, sizeof path, "%s/sound.safetensors", argv[1]);
    fuzz_must(ebb_checkpoint_save(a_program(), path, "{}"), "saving a checkpoint");
    if (!write_files(argv[1]))
        return 1;
    for (size_t p = 0; p < CORPUS_PARTS; p++)
        for (size_t i = 0; i < corpus_parts[p].count; i++) {
            const hostile_file *f = &corpus_parts[p].files[i];
            void *data;
            size_t size;
            if (!corpus_content(f, &data, &size))
                continue; // a link, say
            bool written =
                corpus_write(argv[1], f->name, data, size) &&
                (f->text == NULL || corpus_write(argv[2], f->name, f->text, strlen(f->text)));
            free(data);
            if (!written)
                return 1;
        }
    for (size_t i = 0; i < sizeof sound / sizeof sound[0]; i++) {
        char name[32];
        OWNED_MODEL *model = NULL;
        void *data = NULL;
        size_t size = 0;
        (void)snprintf(name, sizeof name, "sound_%zu", i);
        if (!corpus_write(argv[2], name, sound[i], strlen(sound[i])))
            return 1;
        if (ebb_text_parse_model(&model, sound[i]) != NULL ||
            ebb_model_write_memory(model, &data, &size) != NULL ||
            !corpus_write(argv[1], name, data, size))
            return 1;
        ebb_free(data);
    }
    return 0;
}
