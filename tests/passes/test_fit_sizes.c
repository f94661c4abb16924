/* test_fit_sizes.c: a step that computes sizes as it goes, as one does that was not folded: made to
 * fit, it still has what its views are made by, and computes the same bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/data/sample.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"
#include "tests/test.h"

enum { N = 32, WEIGHTS = 4 };

static const char nodes[] =
    "{ h1 = MatMul (x, w1) a1 = Sigmoid (h1) s1 = Shape (a1) r1 = Reshape (a1, s1)\n"
    "  h2 = MatMul (r1, w2) a2 = Sigmoid (h2) s2 = Shape (a2) z = ConstantOfShape (s2)\n"
    "  e2 = Add (a2, z) h3 = MatMul (e2, w3) a3 = Tanh (h3) s3 = Shape (a1)\n"
    "  r3 = Reshape (a3, s3) q3 = Reshape (r3, s2) h4 = MatMul (q3, w4) y = Tanh (h4) }\n";

static ebb_model *parsed(void)
{
    FREED char *text = NULL;
    size_t size;
    ebb_model *model = NULL;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    (void)fprintf(out,
                  "<ir_version: 10, opset_import: [\"\" : 18]>\n"
                  "g (float[%d,%d] x) => (float[%d,%d] y) <",
                  N, N, N, N);
    for (int w = 1; w <= WEIGHTS; w++) {
        (void)fprintf(out, "%sfloat[%d,%d] w%d = {", w > 1 ? ", " : "", N, N, w);
        for (int i = 0; i < N * N; i++)
            (void)fprintf(out, "%s%.4f", i > 0 ? "," : "", ((i * 37 + w * 11) % 101 - 50) / 200.0);
        (void)fprintf(out, "}");
    }
    (void)fprintf(out, ">\n%s", nodes);
    assert_int_equal(fclose(out), 0);
    assert_null(ebb_text_parse_model(&model, text));
    assert_null(ebb_infer_graph(model->graph));
    return model;
}

typedef struct made {
    ebb_model *model;
    ebb_program *program;
} made;

/* The step by this pipeline, after one run; NULL in ->program where no plan was found. */
static made step(const char *passes)
{
    made m = {.model = parsed()};
    char pipeline[256];
    OWNED_ARENA arena = {0};
    ebb_batch batch;
    const ebb_rewrite_options options = {.verify_each = true};
    (void)snprintf(pipeline, sizeof pipeline, "loss:mse,gradient,optimizer:none%s", passes);
    ebb_status status = ebb_rewrite(m.model, pipeline, &options, NULL);
    if (ebb_status_code(status) == EBB_NO_PLAN)
        return m;
    if (status == NULL)
        status = ebb_program_compile(&m.program, m.model, NULL);
    if (status == NULL)
        status = ebb_sample_batch(&batch, m.model->graph, 3, &arena);
    if (status == NULL)
        status = ebb_program_step(m.program, &batch);
    if (status != NULL)
        fail_msg("%s: %s", pipeline, ebb_status_text(status));
    return m;
}

static void drop(made *m)
{
    ebb_program_free(m->program);
    ebb_model_free(m->model);
}

static void compare(const made *a, const made *b, const char *what)
{
    size_t count = ebb_program_output_count(a->program);
    assert_true(count > WEIGHTS);
    for (size_t i = 0; i < count; i++) {
        const char *name = ebb_program_output_name(a->program, i);
        ebb_named x, y;
        assert_null(ebb_program_get(a->program, name, &x));
        assert_null(ebb_program_get(b->program, name, &y));
        size_t bytes = sizeof(float);
        for (int d = 0; d < x.rank; d++)
            bytes *= (size_t)x.dims[d];
        if (x.rank != y.rank || memcmp(x.data, y.data, bytes) != 0)
            fail_msg("%s: '%s' is other than without", what, name);
    }
}

TEST(what_computes_sizes_is_made_to_fit_and_stays_as_it_is)
{
    made whole = step(",drop-saves");
    uint64_t bytes = ebb_program_measure(whole.program).arena_bytes;
    int fitted = 0;
    static const char *const planners[] = {"fit:time=0.05,budget", "recompute:budget",
                                           "recompute:planner=dtr,budget"};
    for (size_t p = 0; p < sizeof planners / sizeof planners[0]; p++)
        for (int percent = 97; percent >= 70; percent -= 3) {
            char passes[128];
            uint64_t budget = bytes * (uint64_t)percent / 100;
            (void)snprintf(passes, sizeof passes, ",%s=%llu,alias", planners[p],
                           (unsigned long long)budget);
            made m = step(passes);
            if (m.program != NULL) {
                compare(&whole, &m, passes);
                fitted++;
            }
            drop(&m);
        }
    print_message("%d steps made to fit\n", fitted);
    assert_true(fitted > 5);
    drop(&whole);
}
