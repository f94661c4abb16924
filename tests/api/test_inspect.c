/* test_inspect.c: what ebb_inspect_json says of weights is what a training does with them. */
#include <string.h>

#include <jansson.h>

#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/text.h"

static json_t *inspected(const ebb_model *m)
{
    char *text;
    good(ebb_inspect_json(m, &text));
    json_t *o = json_loads(text, 0, NULL);
    ebb_release(text);
    assert_non_null(o);
    return o;
}

static const json_t *weight(const json_t *o, const char *name)
{
    size_t i;
    json_t *w;
    json_array_foreach(json_object_get(o, "weights"), i, w)
        if (strcmp(json_string_value(json_object_get(w, "name")), name) == 0)
            return w;
    fail_msg("there is no weight '%s'", name);
    return NULL;
}

static const char *word(const json_t *w, const char *key)
{
    return json_string_value(json_object_get(w, key));
}

static bool is_parameter(const ebb_graph *g, const char *name)
{
    const ebb_value v = ebb_value_find(g, name);
    return v.i != 0 && ebb_value_of(g, v)->role == EBB_ROLE_PARAMETER;
}

static void check_sample(const char *sample)
{
    char *pipeline;
    size_t i, trained = 0;
    json_t *w;
    OWNED_MODEL *m = NULL, *step = NULL;
    good(ebb_open(&m, formatted("%s/samples/%s", EBB_SOURCE_DIR, sample)));
    json_t *before = inspected(m);
    good(ebb_step_pipeline(&pipeline, &(ebb_step_options){.loss = "cross-entropy:axis=-1"}));
    good(ebb_model_copy(&step, m));
    good(ebb_set_dim(step, "batch", 4));
    good(ebb_rewrite(step, pipeline, NULL, NULL));
    ebb_release(pipeline);
    json_t *after = inspected(step);
    assert_int_equal(json_array_size(json_object_get(before, "weights")),
                     m->graph->initializer_count);
    json_array_foreach(json_object_get(before, "weights"), i, w) {
        const bool trains = json_is_true(json_object_get(w, "trained"));
        if (trains != is_parameter(step->graph, word(w, "name")))
            fail_msg("%s: '%s' is %strained, and inspect says '%s': %s", sample, word(w, "name"),
                     trains ? "not " : "", word(w, "role"), word(w, "why"));
        if (trains)
            assert_true(json_is_true(json_object_get(weight(after, word(w, "name")), "trained")));
        assert_true(strlen(word(w, "why")) > 0);
        trained += trains;
    }
    json_array_foreach(json_object_get(after, "weights"), i, w)
        trained -= json_is_true(json_object_get(w, "trained"));
    assert_int_equal(trained, 0);
    json_decref(before);
    json_decref(after);
}

TEST(what_it_calls_trained_is_trained)
{
    static const char *const samples[] = {"digits/cnn.onnx", "digits/mlp.onnx",
                                          "digits/transformer.onnx", "text/char.onnx"};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        check_sample(samples[i]);
}

TEST(each_role_says_why)
{
    OWNED_MODEL *m = model_of(
        "<ir_version: 10, opset_import: [\"\" : 17]>\n"
        "g (float[2,3] x, float[2,4] t) => (float loss)\n"
        "<float[3,4] w, float two = {2}, int64[1] shape = {8}, float[4] running_mean,\n"
        " float[4] running_var, float[4] gain, float[4] bias>\n"
        "{ a = MatMul (x, w)  b = Mul (a, two)\n"
        "  c = BatchNormalization (b, gain, bias, running_mean, running_var)  d = Sub (c, t)\n"
        "  e = Mul (d, d)  f = Reshape (e, shape)  loss = ReduceMean <keepdims = 0> (f) }");
    json_t *o = inspected(m);
    static const char *const expected[][3] = {
        {"w", "parameter", "where operators expect weights"},
        {"gain", "parameter", "where operators expect weights"},
        {"two", "constant", ""},
        {"shape", "constant", "no floating-point numbers"},
        {"running_mean", "statistic", "running mean"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const json_t *w = weight(o, expected[i][0]);
        if (strcmp(word(w, "role"), expected[i][1]) != 0 ||
            strstr(word(w, "why"), expected[i][2]) == NULL)
            fail_msg("'%s' is '%s': %s", expected[i][0], word(w, "role"), word(w, "why"));
    }
    json_decref(o);
}
