/* test_ignored_rows.c: what rows without a label cost in the last layer, counted: operations of a step as its profile
 * has them, with a label at each row and without at some. Those that are left out are all of the layer's products of
 * these rows, forward and back, and no other.
 */
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

enum { ROWS = 40, IN = 16, INNER = 32, CLASSES = 64 };

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20, \"com.microsoft\" : 1]>\n"
#define FLOATS                                                                            \
    HEAD "g (float[40,16] x) => (float[40,64] logits) <float[16,32] v, float[32,64] w> {" \
         " [below] h = MatMul (x, v) [head] logits = MatMul (h, w) }"
#define CODES                                                                    \
    HEAD "g (float[40,16] x) => (float[40,64] logits) <float[16,32] v,"          \
         " uint8[64,1,16] codes, float[64] scales> {"                            \
         " [below] h = MatMul (x, v) [head] logits = com.microsoft.MatMulNBits " \
         "<K = 32, N = 64, bits = 4, block_size = 32> (h, codes, scales) }"

static const struct head {
    const char *what, *graph, *adapters;
    int products; /* of the layer: the scores, dx, dw */
} heads[] = {
    {"all is trained", FLOATS, NULL, 3},
    {"adapters below a layer of floats", FLOATS, "lora:rank=2,target=v", 2},
    {"adapters below a layer of codes", CODES, "lora:rank=2,target=v", 2},
    {"adapters beside a layer of codes, too", CODES, "lora:rank=2", 2},
    {"adapters beside a layer of floats, too", FLOATS, "lora:rank=2", 2},
};

static ebb_model *open_head(const struct head *h)
{
    RELEASED char *pipeline = NULL;
    unsigned seed = 1;
    ebb_model *m = parsed(h->graph);
    const ebb_graph *g = m->graph;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_tensor *t = ebb_value_of(g, g->initializers[i])->tensor;
        size_t bytes;
        assert_true(ebb_type_bytes(&t->type, &bytes));
        uint8_t *data = ebb_arena_zeroed(&m->arena, bytes, 1);
        assert_non_null(data);
        for (size_t k = 0; k < bytes; k++) {
            seed = seed * 1664525u + 1013904223u;
            data[k] = (uint8_t)(seed >> 24);
        }
        for (size_t k = 0; t->type.dtype == EBB_F32 && k < bytes / sizeof(float); k++) {
            const float number = (float)(data[k * sizeof(float)]) / 256.0f - 0.4f;
            memcpy(data + k * sizeof(float), &number, sizeof number);
        }
        good(ebb_value_point(m->graph, g->initializers[i], data));
    }
    const char *const passes[] = {"chunk-loss:rows=8", h->adapters, NULL};
    good(ebb_step_pipeline(&pipeline,
                           &(ebb_step_options){.loss = "cross-entropy:output=logits,axis=-1",
                                               .optimizer = "none",
                                               .passes = passes}));
    good(ebb_rewrite(m, pipeline, &(ebb_rewrite_options){.verify_each = true}, NULL));
    return m;
}

/* Operations of what stands for the loss and its layer, in two steps, behind a first one. */
static double operations(const struct head *h, const int64_t *labels)
{
    static float x[ROWS * IN];
    static const int64_t of_x[] = {ROWS, IN}, of_labels[] = {ROWS};
    RELEASED char *json = NULL;
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = (float)cos(i);
    const ebb_named inputs[] = {{"x", EBB_F32, 2, of_x, x},
                                {"target", EBB_I64, 1, of_labels, labels}};
    OWNED_MODEL *m = open_head(h);
    OWNED_PROGRAM *p = NULL;
    good(ebb_program_compile(&p, m, &(ebb_compile_options){.profile = true}));
    for (int step = 0; step < 3; step++)
        good(ebb_program_step(p, &(ebb_batch){inputs, 2}));
    good(ebb_program_profile_json(p, &json));
    json_t *root = json_loads(json, 0, NULL), *node;
    double sum = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "nodes"), i, node)
        if (strstr(json_string_value(json_object_get(node, "node")), "'loss/") != NULL)
            sum += json_number_value(json_object_get(node, "flops"));
    json_decref(root);
    return sum;
}

/* A prompt, lone rows, and what fills up. */
static bool is_ignored(int row)
{
    return row < 13 || row % 3 == 0 || row > 35;
}

TEST(rows_without_a_label_cost_no_product_of_the_last_layer)
{
    int64_t all[ROWS], some[ROWS];
    int ignored = 0;
    for (int r = 0; r < ROWS; r++) {
        all[r] = r % CLASSES;
        some[r] = is_ignored(r) ? -100 : all[r];
        ignored += is_ignored(r);
    }
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const struct head *h = &heads[i];
        const double product = 2.0 * INNER * CLASSES * h->products, whole = operations(h, all),
                     part = operations(h, some);
        print_message("%s: %.0f operations, %.0f without %d of %d rows\n", h->what, whole, part,
                      ignored, ROWS);
        assert_true(whole >= 2 * ROWS * product);
        assert_true(whole - part == 2 * ignored * product);
    }
}
