/* test_diff.c: who saved what, held against running the passes by hand; how far gradients are
 * apart; the curve of live bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/text.h"

#define MODEL EBB_SOURCE_DIR "/samples/digits/cnn.onnx"
#define STEP                                                               \
    "inline,fold,train-mode:seed=0,batch-norm=train,dropout=on,fold,fuse," \
    "loss:cross-entropy,gradient,optimizer:adamw,"

static ebb_model *make(const char *passes)
{
    ebb_model *m;
    good(ebb_open(&m, MODEL));
    good(ebb_set_dim(m, "batch", 64));
    good(ebb_rewrite(m, formatted(STEP "%sdrop-saves,alias", passes), NULL, NULL));
    return m;
}

static json_t *plan_of(ebb_model *m)
{
    char *text;
    good(ebb_plan_json(m, NULL, &text));
    json_t *o = json_loads(text, 0, NULL);
    ebb_release(text);
    assert_non_null(o);
    return o;
}

static json_int_t integer(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    if (!json_is_integer(value))
        fail_msg("'%s' is no integer", key);
    return json_integer_value(value);
}

static json_int_t peak_after(ebb_model *before, const char *passes)
{
    OWNED_MODEL *copy = NULL;
    good(ebb_model_copy(&copy, before));
    if (passes[0] != '\0')
        good(ebb_rewrite(copy, passes, NULL, NULL));
    json_t *o = plan_of(copy);
    json_int_t peak = integer(o, "peak_bytes");
    json_decref(o);
    return peak;
}

static json_t *diff(ebb_model *before, ebb_model *after)
{
    char *text;
    good(ebb_diff_json(before, after, NULL, &text));
    json_t *o = json_loads(text, 0, NULL);
    ebb_release(text);
    assert_non_null(o);
    return o;
}

/* ---- who saved what ---- */

static void check_by_pass(ebb_model *before, ebb_model *after)
{
    json_t *o = diff(before, after), *list = json_object_get(o, "by_pass");
    assert_int_equal(json_array_size(list), 2);
    const json_t *sign = json_array_get(list, 0), *seed = json_array_get(list, 1);
    assert_string_equal(json_string_value(json_object_get(sign, "name")), "sign-mask");
    assert_string_equal(json_string_value(json_object_get(seed, "name")), "dropout-seed");
    json_int_t none = peak_after(before, ""), with_sign = peak_after(before, "sign-mask"),
               with_seed = peak_after(before, "dropout-seed"),
               with_both = peak_after(before, "sign-mask,dropout-seed"),
               other_way = peak_after(before, "dropout-seed,sign-mask");
    assert_true(none > with_sign && none > with_seed);
    assert_int_equal(integer(sign, "alone_bytes"), none - with_sign);
    assert_int_equal(integer(seed, "alone_bytes"), none - with_seed);
    assert_int_equal(integer(sign, "in_order_bytes"), none - with_sign);
    assert_int_equal(integer(seed, "in_order_bytes"), with_sign - with_both);
    assert_int_equal(integer(sign, "last_in_bytes"), with_seed - other_way);
    assert_int_equal(integer(seed, "last_in_bytes"), with_sign - with_both);
    json_decref(o);
}

TEST(savings_are_those_of_running_the_passes_by_hand)
{
    OWNED_MODEL *before = make(""), *after = NULL;
    good(ebb_model_copy(&after, before));
    good(ebb_rewrite(after, "sign-mask,dropout-seed", NULL, NULL));
    check_by_pass(before, after);
    json_t *o = diff(before, after);
    json_int_t sum = 0;
    for (size_t i = 0; i < 2; i++)
        sum += integer(json_array_get(json_object_get(o, "by_pass"), i), "in_order_bytes");
    assert_int_equal(sum, integer(o, "peak_saved_bytes"));
    json_decref(o);
}

TEST(steps_made_with_and_without_passes_are_told_apart)
{
    OWNED_MODEL *before = make(""), *after = make("sign-mask,dropout-seed,");
    check_by_pass(before, after);
}

static const char *reason_of(ebb_model *before, ebb_model *after, size_t i)
{
    static char reason[512];
    json_t *o = diff(before, after);
    const json_t *entry = json_array_get(json_object_get(o, "by_pass"), i);
    const char *text = json_string_value(json_object_get(entry, "reason"));
    assert_true(json_is_null(json_object_get(entry, "alone_bytes")));
    assert_true(json_is_null(json_object_get(entry, "last_in_bytes")));
    (void)snprintf(reason, sizeof reason, "%s", text != NULL ? text : "");
    json_decref(o);
    return reason;
}

static void says(ebb_model *before, const char *passes, const char *words)
{
    OWNED_MODEL *after = NULL;
    good(ebb_model_copy(&after, before));
    good(ebb_props_set(after->graph, &after->props, "ebb.passes", passes));
    const char *reason = reason_of(before, after, 0);
    if (strstr(reason, words) == NULL)
        fail_msg("%s: '%s' does not say '%s'", passes, reason, words);
}

TEST(what_cannot_be_run_again_says_why)
{
    ebb_model *before = make("");
    good(ebb_props_set(before->graph, &before->props, "ebb.passes", "[]"));
    says(before, "[{\"name\":\"no-such-pass\",\"options\":\"\"}]", "no pass of this name");
    says(before, "[{\"name\":7,\"options\":\"\"}]", "no pass of this name");
    says(before, "[{\"name\":\"fold\"}]", "does not say with which options");
    /* A hostile file must not choose what else is run, or read. */
    says(before, "[{\"name\":\"fold\",\"options\":\"x,cost:file=/etc/hostname\"}]",
         "are not options");
    says(before, "[{\"name\":\"fold\",\"options\":\"cost:file=/etc/hostname\"}]",
         "are not options");
    says(before, "[{\"name\":\"cost\",\"options\":\"file=/etc/hostname\"}]", "read a file");
    char many[4096] = "[";
    for (int i = 0; i < 40; i++)
        (void)strcat(strcat(many, i > 0 ? "," : ""), "{\"name\":\"fold\",\"options\":\"\"}");
    says(before, strcat(many, "]"), "too many");
    ebb_model *other = make("sign-mask,");
    good(ebb_props_set(before->graph, &before->props, "ebb.passes",
                       "[{\"name\":\"dropout-seed\",\"options\":\"\"}]"));
    assert_non_null(strstr(reason_of(before, other, 0), "has seen passes"));
    ebb_close(other);
    ebb_close(before);
    good(ebb_open(&before, MODEL)); // no step yet
    good(ebb_set_dim(before, "batch", 64));
    says(before, "[{\"name\":\"loss\",\"options\":\"kind=mse,output=nothing\"}]",
         "alone: loss: the graph has no output 'nothing'");
    ebb_close(before);
}

/* ---- gradients ---- */

static ebb_model *make_with(const char *loss, const char *optimizer, const char *dropout)
{
    ebb_model *m;
    char pipeline[512];
    good(ebb_open(&m, MODEL));
    good(ebb_set_dim(m, "batch", 8));
    (void)snprintf(pipeline, sizeof pipeline,
                   "inline,fold,train-mode:seed=3,dropout=%s,fold,fuse,loss:%s,gradient,"
                   "optimizer:%s,drop-saves,alias",
                   dropout, loss, optimizer);
    good(ebb_rewrite(m, pipeline, NULL, NULL));
    return m;
}

static json_t *run_diff(ebb_model *before, ebb_model *after, const ebb_batch *batch)
{
    char *text;
    const ebb_plan_options options = {.run = true, .batch = batch, .steps = 3, .brief = true};
    good(ebb_diff_json(before, after, &options, &text));
    json_t *o = json_loads(text, 0, NULL);
    ebb_release(text);
    assert_non_null(o);
    assert_null(json_object_get(o, "by_pass"));
    assert_int_equal(integer(o, "timed_steps"), 3);
    assert_true(json_real_value(json_object_get(o, "time_ratio")) > 0);
    return o;
}

static double real(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    if (!json_is_number(value))
        fail_msg("'%s' is no number", key);
    return json_number_value(value);
}

/* The sum of the losses of 8 rows has 8 times the gradient of their mean: 7 lengths away. */
TEST(gradients_are_compared_whatever_the_optimizer)
{
    static const struct {
        const char *optimizer, *of;
    } cases[] = {{"none", "gradients"},
                 {"adamw", "first moments"},
                 {"momentum", "momenta"},
                 {"sgd", "updates"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED_MODEL *mean = make_with("cross-entropy", cases[i].optimizer, "off");
        OWNED_MODEL *sum = make_with("cross-entropy,reduction=sum", cases[i].optimizer, "off");
        json_t *o = run_diff(mean, sum, NULL);
        const json_t *g = json_object_get(o, "gradients");
        assert_string_equal(json_string_value(json_object_get(g, "of")), cases[i].of);
        assert_int_equal(integer(g, "count"), 11);
        assert_true(fabs(real(g, "relative_l2") - 7) < 1e-3);
        assert_true(fabs(real(g, "largest_relative_l2") - 7) < 1e-2);
        assert_true(fabs(real(g, "cosine") - 1) < 1e-6);
        json_decref(o);
        o = run_diff(mean, mean, NULL);
        g = json_object_get(o, "gradients");
        assert_true(real(g, "relative_l2") == 0 && real(g, "largest_relative_l2") == 0);
        json_decref(o);
    }
}

static ebb_model *two_outputs(const char *large, const char *small)
{
    char text[400];
    (void)snprintf(
        text, sizeof text,
        "<ir_version: 10, opset_import: [\"\" : 20]> g (float[64] x) => (float[64] y, "
        "float[64] z) <float a = {%s}, float b = {%s}> { y = Mul (x, a) z = Mul (x, b) }",
        large, small);
    return model_of(text);
}

/* Half of an output is twice as large in the other: told, unless the output is noise beside the rest. */
TEST(a_relative_error_is_not_that_of_what_is_next_to_zero)
{
    static const struct {
        const char *large, *small, *large_after, *small_after;
        double relative;
    } cases[] = {{"3", "0.5", "3", "1", 1},
                 {"3", "1e-6", "3", "2e-6", 0},
                 {"3", "1e-6", "4.5", "2e-6", 0.5},
                 {"1e-12", "2e-12", "1e-12", "4e-12", 1}}; // all are small
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED_MODEL *before = two_outputs(cases[i].large, cases[i].small);
        OWNED_MODEL *after = two_outputs(cases[i].large_after, cases[i].small_after);
        json_t *o = run_diff(before, after, NULL);
        assert_true(fabs(real(o, "max_rel_error") - cases[i].relative) < 1e-5);
        json_decref(o);
    }
}

static ebb_program *stepped(ebb_model *model, const ebb_batch *batch)
{
    ebb_program *p;
    good(ebb_program_compile(&p, model, NULL));
    good(ebb_program_step(p, batch));
    return p;
}

/* With and without dropout, on a batch of ours, against sums made here. */
TEST(the_distance_of_a_gradient_is_what_one_computes_by_hand)
{
    float image[8 * 64];
    int64_t target[8], image_dims[4] = {8, 1, 8, 8}, target_dims[1] = {8};
    for (int i = 0; i < 8 * 64; i++)
        image[i] = (float)(i * 37 % 64) / 64;
    for (int i = 0; i < 8; i++)
        target[i] = i;
    const ebb_named inputs[] = {{"image", 1, 4, image_dims, image},
                                {"target", 7, 1, target_dims, target}};
    const ebb_batch batch = {inputs, 2};
    OWNED_MODEL *off = make_with("cross-entropy", "none", "off"),
                *on = make_with("cross-entropy", "none", "on");
    OWNED_PROGRAM *p = stepped(off, &batch), *q = stepped(on, &batch);
    json_t *o = run_diff(off, on, &batch), *entry;
    size_t i, seen = 0;
    json_array_foreach(json_object_get(json_object_get(o, "gradients"), "worst"), i, entry) {
        char name[256];
        ebb_named a, b;
        double aa = 0, bb = 0, ab = 0, apart = 0;
        (void)snprintf(name, sizeof name, "%s_grad",
                       json_string_value(json_object_get(entry, "name")));
        good(ebb_program_get(p, name, &a));
        good(ebb_program_get(q, name, &b));
        size_t n = 1;
        for (int d = 0; d < a.rank; d++)
            n *= (size_t)a.dims[d];
        for (size_t k = 0; k < n; k++) {
            double x = (double)((const float *)a.data)[k], y = (double)((const float *)b.data)[k];
            aa += x * x;
            bb += y * y;
            ab += x * y;
            apart += (x - y) * (x - y);
        }
        assert_true(fabs(real(entry, "cosine") - ab / sqrt(aa * bb)) < 1e-6);
        assert_true(fabs(real(entry, "relative_l2") - sqrt(apart / aa)) < 1e-5);
        assert_true(real(entry, "relative_l2") > 1e-3);
        seen++;
    }
    assert_true(seen > 5);
    json_decref(o);
}

/* ---- the curve ---- */

static void check_curve(const json_t *plan)
{
    const json_t *curve = json_object_get(plan, "curve");
    json_int_t most = 0, nodes = integer(plan, "nodes"), last = -1;
    size_t points = json_array_size(curve);
    assert_int_equal(points, nodes < 512 ? nodes : 512);
    for (size_t i = 0; i < points; i++) {
        const json_t *point = json_array_get(curve, i);
        json_int_t live = integer(point, "live_bytes");
        assert_true(integer(point, "position") > last);
        last = integer(point, "position");
        most = live > most ? live : most;
    }
    assert_true(last < nodes);
    assert_int_equal(most, integer(plan, "peak_bytes"));
}

/* From one position to the next, what dies goes and what is born comes. */
static void check_neighbourhood(const json_t *plan)
{
    const json_t *rows = json_object_get(plan, "neighbourhood");
    json_int_t peak = integer(plan, "peak_position");
    bool met = false;
    assert_true(json_array_size(rows) > 5);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *next = json_array_get(rows, i + 1);
        if (integer(row, "position") == peak) {
            met = true;
            assert_int_equal(integer(row, "live_bytes"), integer(plan, "peak_bytes"));
            assert_string_equal(json_string_value(json_object_get(row, "node")),
                                json_string_value(json_object_get(plan, "peak_node")));
        }
        if (next == NULL)
            continue;
        assert_int_equal(integer(next, "position"), integer(row, "position") + 1);
        assert_int_equal(integer(next, "live_bytes"), integer(row, "live_bytes") -
                                                          integer(row, "dies_bytes") +
                                                          integer(next, "born_bytes"));
    }
    assert_true(met);
}

TEST(curve_and_neighbourhood_agree_with_the_peak)
{
    OWNED_MODEL *m = make("sign-mask,");
    json_t *o = plan_of(m);
    check_curve(o);
    check_neighbourhood(o);
    const json_t *phases = json_object_get(o, "phases");
    static const char *const names[] = {"forward", "loss", "backward", "update"};
    json_int_t nodes = 0;
    assert_int_equal(json_array_size(phases), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *phase = json_array_get(phases, i);
        assert_string_equal(json_string_value(json_object_get(phase, "phase")), names[i]);
        nodes += integer(phase, "nodes");
    }
    assert_int_equal(nodes, integer(o, "nodes"));
    json_decref(o);
}

/* A chain with one wide place; the curve of so many nodes keeps it. */
TEST(a_long_curve_is_thinned_and_keeps_the_peak)
{
    enum { LONG = 1500 };
    FREED char *text = malloc(200 * (size_t)LONG);
    assert_non_null(text);
    int n = sprintf(text, "<ir_version: 10, opset_import: [\"\" : 20]> g (float[64] x) => "
                          "(float[64] y) { v0 = Relu (x)");
    for (int i = 1; i < LONG; i++)
        n += i == 777 ? sprintf(text + n, " wide = Concat <axis = 0> (v776, v776, v776) "
                                          "v777, b, c = Split <axis = 0, num_outputs = 3> (wide)")
                      : sprintf(text + n, " v%d = Relu (v%d)", i, i - 1);
    (void)sprintf(text + n, " y = Relu (v%d) }", LONG - 1);
    OWNED_MODEL *m = model_of(text);
    json_t *o = plan_of(m);
    assert_true(integer(o, "nodes") > LONG);
    check_curve(o);
    check_neighbourhood(o);
    json_decref(o);
}
