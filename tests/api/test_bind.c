/* test_bind.c: what decides sizes may be an input: a run finds them from its values. */

#include "ebb.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/text.h"

#define TEXT                                                                                   \
    "<ir_version: 10, opset_import: [\"\" : 20]> "                                             \
    "g (float[2,3] x, int64 n, bool k, int64[2] shape) => (float[a,b] y, float[c,d] z, "       \
    "float[e,f] w) <float two = {2}, int64 one = {1}> {"                                       \
    "m = Add (n, one) "                                                                        \
    "y, all = Loop (m, \"\", x) <body = b (int64 i, bool c, float[2,3] v) => (bool c2, "       \
    "float[2,3] v2, float[2,3] s) { c2 = Identity (c) v2 = Mul (v, two) s = Identity (v2) }> " \
    "z = If (k) <then_branch = t () => (float[c,d] p) { p = Neg (y) }, else_branch = f () => " \
    "(float[c,d] q) { q = Transpose (y) }> "                                                   \
    "w = Reshape (all, shape) }"

static const float inputs[6] = {0, 1, 2, 3, 4, 5};

/* The model run with these values, as `ebb run` does it. */
static ebb_program *run(ebb_model **model, int64_t n, bool k, const int64_t shape[2], size_t *bound)
{
    static const int64_t of_x[2] = {2, 3}, two = 2;
    const ebb_named list[4] = {{"x", 1, 2, of_x, inputs},
                               {"n", 7, 0, NULL, &n},
                               {"k", 9, 0, NULL, &k},
                               {"shape", 7, 1, &two, shape}};
    const ebb_batch batch = {list, 4};
    ebb_program *p;
    const ebb_compile_options options = {.backend = "plain"};
    good(ebb_text_parse_model(model, TEXT));
    good(ebb_infer_graph((*model)->graph));
    good(ebb_rewrite(*model, "inline,fold,unroll", NULL, NULL));
    good(ebb_bind_values(*model, &batch, bound));
    good(ebb_rewrite(*model, "fold,unroll", NULL, NULL));
    good(ebb_program_compile(&p, *model, &options));
    good(ebb_program_step(p, &batch));
    return p;
}

static void check(ebb_program *p, const char *name, int64_t rows, int64_t columns,
                  const float *expected)
{
    ebb_named t;
    good(ebb_program_get(p, name, &t));
    assert_int_equal(t.rank, 2);
    assert_int_equal(t.dims[0], rows);
    assert_int_equal(t.dims[1], columns);
    assert_memory_equal(t.data, expected, (size_t)(rows * columns) * sizeof *expected);
}

TEST(trip_counts_conditions_and_shapes_may_be_inputs)
{
    ebb_model *model;
    size_t bound;
    ebb_program *p = run(&model, 1, false, (int64_t[]){-1, 4}, &bound);
    assert_int_equal(bound, 3);
    check(p, "y", 2, 3, (float[]){0, 4, 8, 12, 16, 20});
    check(p, "z", 3, 2, (float[]){0, 12, 4, 16, 8, 20});
    check(p, "w", 3, 4, (float[]){0, 2, 4, 6, 8, 10, 0, 4, 8, 12, 16, 20});
    ebb_program_free(p);
    ebb_close(model);
    p = run(&model, 0, true, (int64_t[]){3, 2}, &bound);
    check(p, "y", 2, 3, (float[]){0, 2, 4, 6, 8, 10});
    check(p, "z", 2, 3, (float[]){-0.0f, -2, -4, -6, -8, -10});
    check(p, "w", 3, 2, (float[]){0, 2, 4, 6, 8, 10});
    ebb_program_free(p);
    ebb_close(model);
}

/* A trip count that only a batch tells, of more steps than become copies; and then a loop whose inputs
 * decide nothing. */
TEST(a_loop_of_many_steps_is_kept_when_its_trip_count_is_given)
{
    static const char text[] =
        "<ir_version: 10, opset_import: [\"\" : 20]> "
        "g (float[3] x, int64 n, float[2000] t) => (float[3] y, float[] z) <float one = {1}> {"
        "y = Loop (n, \"\", x) <body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] v2) {"
        " c2 = Identity (c) v2 = Add (v, one) }> "
        "zero = Constant <value = float {0}> () "
        "z = Scan <num_scan_inputs = 1, body = s (float h, float u) => (float h2) {"
        " h2 = Add (h, u) }> (zero, t) }";
    static const int64_t three = 3, many = 2000;
    static float t[2000];
    const int64_t n = 5000;
    const ebb_named list[] = {
        {"x", 1, 1, &three, inputs}, {"n", 7, 0, NULL, &n}, {"t", 1, 1, &many, t}};
    const ebb_batch batch = {list, 3};
    const ebb_compile_options options = {.backend = "plain"};
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *p = NULL;
    ebb_named y;
    size_t bound;
    for (int i = 0; i < 2000; i++)
        t[i] = 1;
    good(ebb_text_parse_model(&model, text));
    good(ebb_infer_graph(model->graph));
    good(ebb_rewrite(model, "inline,fold,unroll", NULL, NULL));
    good(ebb_bind_values(model, &batch, &bound));
    assert_int_equal(bound, 2); // n, and x, which goes into the loop that waited for it
    good(ebb_rewrite(model, "fold,unroll", NULL, NULL));
    good(ebb_bind_values(model, &batch, &bound));
    assert_int_equal(bound, 0);
    good(ebb_program_compile(&p, model, &options));
    good(ebb_program_step(p, &batch));
    good(ebb_program_get(p, "y", &y));
    for (int i = 0; i < 3; i++)
        assert_float_equal(((const float *)y.data)[i], inputs[i] + 5000, 0);
    good(ebb_program_get(p, "z", &y));
    assert_float_equal(*(const float *)y.data, 2000, 0);
}

TEST(inputs_that_decide_nothing_stay)
{
    size_t bound;
    const int64_t of_x[1] = {2}, index[2] = {1, 0};
    const ebb_named list[1] = {{"i", 7, 1, of_x, index}};
    OWNED_MODEL *model = model_of("<ir_version: 10, opset_import: [\"\" : 20]> g (int64[2] i) "
                                  "=> (float[2,1] y) <float[2,1] w = {3, 4}> "
                                  "{ y = Gather (w, i) }");
    good(ebb_bind_values(model, &(ebb_batch){list, 1}, &bound));
    assert_int_equal(bound, 0);
}

/* What a file has a value for is that value, unless the run gives another. */
TEST(inputs_with_a_value_in_the_file_may_be_given)
{
    static const int64_t of_x[2] = {2, 3}, two = 2, shape[2] = {6, 1};
    for (int given = 0; given < 2; given++) {
        OWNED_MODEL *model = NULL;
        OWNED_PROGRAM *p = NULL;
        size_t bound;
        const ebb_named list[2] = {{"x", 1, 2, of_x, inputs}, {"shape", 7, 1, &two, shape}};
        good(ebb_text_parse_model(&model, "<ir_version: 10, opset_import: [\"\" : 20]> "
                                          "g (float[2,3] x, int64[2] shape) => (float[a,b] y) "
                                          "<int64[2] shape = {3, 2}> { y = Reshape (x, shape) }"));
        good(ebb_infer_graph(model->graph));
        good(ebb_bind_defaults(model, &(ebb_batch){list, given ? 2 : 1}, &bound));
        assert_int_equal(bound, given);
        good(ebb_rewrite(model, "fold", NULL, NULL));
        good(ebb_program_compile(&p, model, NULL));
        good(ebb_program_step(p, &(ebb_batch){list, 1}));
        check(p, "y", given ? 6 : 3, given ? 1 : 2, inputs);
    }
}
