/* test_lora_shared.c: a module that a model calls three times has one adapter, however its weight is stored. */
#include "tests/api/lora_net.h"
#include "tests/owned.h"
#include "tests/text.h"

enum { WIDE = 32, BLOCK = 32 };

/* y = f(f(f(x))): a weight that all calls read. */
#define ONCE                                                                    \
    "<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]>"        \
    "g (float[6,32] x) => (float[6,32] y) <float[32,32] \"onnx::MatMul_1\"> { " \
    "[\"/l/up/MatMul\"] a = MatMul (x, \"onnx::MatMul_1\") b = Tanh (a) "       \
    "[\"/l/up_1/MatMul\"] c = MatMul (b, \"onnx::MatMul_1\") d = Tanh (c) "     \
    "[\"/l/up_2/MatMul\"] y = MatMul (d, \"onnx::MatMul_1\") }"
/* Codes that are stored for each of two calls, and the weight that they are of, which the third reads. */
#define ROUNDED                                                                                    \
    "<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]>"                           \
    "g (float[6,32] x) => (float[6,32] y) <float[32,32] \"onnx::MatMul_1\", "                      \
    "uint8[32,1,16] \"onnx::MatMul_1_Q4\", uint8[32,1,16] \"onnx::MatMul_9_Q4\", "                 \
    "float[32,1] s, float[32,1] \"s again\"> { "                                                   \
    "[\"/l/up/MatMul_Q4\"] a = com.microsoft.MatMulNBits <K = 32, N = 32, bits = 4, block_size = " \
    "32> (x, \"onnx::MatMul_1_Q4\", s) b = Tanh (a) "                                              \
    "[\"/l/up_1/MatMul_Q4\"] c = com.microsoft.MatMulNBits <K = 32, N = 32, bits = 4, block_size " \
    "= 32> (b, \"onnx::MatMul_9_Q4\", \"s again\") d = Tanh (c) "                                  \
    "[\"/l/up_2/MatMul\"] y = MatMul (d, \"onnx::MatMul_1\") }"

static float x[ROWS * WIDE], target[ROWS * WIDE], w[WIDE * WIDE], scales[WIDE];
static unsigned char codes[WIDE * BLOCK / 2], others[WIDE * BLOCK / 2];

static void point(ebb_model *m, const char *name, const void *data)
{
    const ebb_value v = ebb_value_find(m->graph, name);
    if (v.i != 0)
        good(ebb_value_point(m->graph, v, data));
}

/* again: what the second call reads. */
static ebb_model *network(const char *text, const void *again)
{
    ebb_model *m = parsed(text);
    point(m, "onnx::MatMul_1", w);
    point(m, "onnx::MatMul_1_Q4", codes);
    point(m, "onnx::MatMul_9_Q4", again);
    point(m, "s", scales);
    point(m, "s again", scales);
    return m;
}

static ebb_program *program_of(ebb_model *m, const char *lora)
{
    char pipeline[512];
    ebb_program *p;
    (void)snprintf(pipeline, sizeof pipeline, "inline,fold,fuse,%slora:%s,%s", BEFORE, lora,
                   "gradient,optimizer:sgd,lr=0.5,drop-saves,alias");
    good(ebb_rewrite(m, pipeline, &(ebb_rewrite_options){.verify_each = true}, NULL));
    good(ebb_program_compile(&p, m, &(ebb_compile_options){.backend = "plain"}));
    return p;
}

static double loss_after_a_step(ebb_program *p)
{
    static const int64_t dims[2] = {ROWS, WIDE};
    const ebb_named tensors[2] = {{"x", 1, 2, dims, x}, {"target", 1, 2, dims, target}};
    good(ebb_program_step(p, &(ebb_batch){tensors, 2}));
    return (double)loss_of(p);
}

static bool has(ebb_program *p, const char *name)
{
    ebb_named t;
    return ebb_program_get(p, name, &t) == NULL;
}

static void one_adapter_is_saved_and_all_calls_find_it(const char *text)
{
    char path[] = "/tmp/ebb_shared_XXXXXX.safetensors", lora[128];
    const int fd = mkstemps(path, 12);
    assert_true(fd >= 0);
    ebb_model *m = network(text, codes), *other = network(text, codes);
    ebb_program *p = program_of(m, "rank=2");
    assert_true(has(p, "l.up.lora_A.weight"));
    assert_false(has(p, "l.up_1.lora_A.weight") || has(p, "l.up_2.lora_A.weight"));
    const double first = loss_after_a_step(p);
    for (int i = 0; i < 5; i++)
        (void)loss_after_a_step(p);
    good(ebb_adapters_save(p, path));
    const double last = loss_after_a_step(p);
    assert_true(last < 0.95 * first);
    (void)snprintf(lora, sizeof lora, "file=%s", path);
    ebb_program *again = program_of(other, lora);
    close_to(loss_after_a_step(again), last, 1e-6, "the loss with the saved adapter");
    ebb_program_free(again);
    ebb_program_free(p);
    ebb_close(other);
    ebb_close(m);
    (void)close(fd);
    (void)remove(path);
}

TEST(a_weight_that_three_calls_read_has_one_adapter)
{
    one_adapter_is_saved_and_all_calls_find_it(ONCE);
}

TEST(so_has_one_that_was_rounded_for_some_of_its_readers)
{
    one_adapter_is_saved_and_all_calls_find_it(ROUNDED);
}

TEST(other_codes_are_another_module)
{
    OWNED_MODEL *m = network(ROUNDED, others);
    OWNED_PROGRAM *p = program_of(m, "rank=2");
    assert_true(has(p, "l.up.lora_A.weight") && has(p, "l.up_1.lora_A.weight"));
    assert_false(has(p, "l.up_2.lora_A.weight"));
}

TEST(equal_codes_of_other_layers_are_other_modules)
{
    char text[sizeof ROUNDED] = ROUNDED;
    memcpy(strstr(text, "/l/up_1/"), "/m/up_1/", 8);
    OWNED_MODEL *m = network(text, codes);
    OWNED_PROGRAM *p = program_of(m, "rank=2");
    assert_true(has(p, "l.up.lora_A.weight") && has(p, "m.up_1.lora_A.weight"));
}

int main(void)
{
    draw(x, ROWS * WIDE, 1);
    draw(target, ROWS * WIDE, 2);
    draw(w, WIDE * WIDE, 3);
    draw(scales, WIDE, 4);
    for (size_t i = 0; i < sizeof codes; i++) {
        codes[i] = (unsigned char)(i * 37 + i / 7);
        others[i] = (unsigned char)(i * 53 + i / 5);
    }
    for (size_t i = 0; i < WIDE; i++)
        scales[i] *= 0.05f;
    for (size_t i = 0; i < WIDE * WIDE; i++)
        w[i] *= 0.3f;
    return run_listed();
}
