/* test_norm_output.c: steps whose norms read their output in the backward, or that of the
 * activation behind them, against the same step without: gradients of all weights.
 *
 * In float64 they agree with each other and with central differences of the loss; in float32 they
 * are as near to the float64 gradient as rounding, amplified as the guard says, lets them be.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/run/program.h"
#include "onnx/file/file.h"
#include "passes/pipeline.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/status.h"

enum { N = 4, C = 6, H = 5, W = 7, COUNT = N * C * H * W, MOST_WEIGHTS = 128, TEXT = 32 * 1024 };

/* h = Conv(x, v), the body from h to z, y = Conv(z, w). Weights: v, w, s and b. */
typedef struct norm_case {
    const char *what, *body, *passes;
    const char *weights; /* declarations of s and b: "6" or "7" elements, or "5,7" */
    int sites;
    double amplified; /* how much rounding may grow, for float32 */
    bool small;       /* a scale of 0.01 beside a bias of 1 */
} norm_case;

#define BATCH "n = BatchNormalization (h, s, b, m, r) "
#define GROUP "n = GroupNormalization <num_groups = 3> (h, s, b) "
#define INSTANCE "n = InstanceNormalization (h, s, b) "

// clang-format off
static const norm_case cases[] = {
    {"layer norm",                 "z = LayerNormalization <stash_type = 11> (h, s, b)",           "norm-from-output", "7",   1, 4, false},
    {"layer norm, no bias",        "z = LayerNormalization <stash_type = 11> (h, s)",              "norm-from-output", "7",   1, 4, false},
    {"layer norm, two axes",       "z = LayerNormalization <stash_type = 11, axis = 2> (h, s, b)", "norm-from-output", "5,7", 1, 4, false},
    {"layer norm, a small scale",  "z = LayerNormalization <stash_type = 11> (h, s, b)",           "norm-from-output", "7",   1, 400, true},
    {"layer norms of one input",   "k = LayerNormalization <stash_type = 11> (h, s, b) l = LayerNormalization <stash_type = 11> (h, b, s) z = Mul (k, l)", "norm-from-output", "7", 2, 40, false},
    {"RMS norm",                   "z = RMSNormalization <stash_type = 11> (h, s)",                "norm-from-output", "7",   1, 4, false},
    {"batch norm",                 BATCH "z = Tanh (n) k = Mul (n, n)",                            "norm-from-output", "6",   0, 4, false},
    {"batch norm, a product",      BATCH "z = Mul (n, n)",                                         "norm-from-output", "6",   1, 4, false},
    {"batch norm, nothing",        "z = BatchNormalization (h, s, b, m, r)",                       "inplace-abn",      "6",   1, 4, false},
    {"batch norm, leaky",          BATCH "z = LeakyRelu <alpha = 0.1> (n)",                        "inplace-abn",      "6",   1, 4, false},
    {"batch norm, ELU",            BATCH "z = Elu <alpha = 1.5> (n)",                              "inplace-abn",      "6",   1, 60, false},
    {"batch norm, leaky, small",   BATCH "z = LeakyRelu <alpha = 0.1> (n)",                        "inplace-abn",      "6",   1, 400, true},
    {"batch norm and ReLU",        BATCH "z = Relu (n)",                                           "inplace-abn",      "6",   0, 4, false},
    {"group norm",                 GROUP "z = Mul (n, n)",                                         "norm-from-output", "6",   1, 4, false},
    {"group norm, leaky",          GROUP "z = LeakyRelu <alpha = 0.1> (n)",                        "inplace-abn",      "6",   1, 4, false},
    {"group norm, ELU",            GROUP "z = Elu <alpha = 0.5> (n)",                              "inplace-abn",      "6",   1, 60, false},
    {"instance norm",              INSTANCE "z = Mul (n, n)",                                      "norm-from-output", "6",   1, 4, false},
    {"instance norm, leaky",       INSTANCE "z = LeakyRelu <alpha = 0.1> (n)",                     "inplace-abn",      "6",   1, 4, false},
    {"batch norm, leaky by default", BATCH "z = LeakyRelu (n)",                                    "inplace-abn",      "6",   1, 4, false},
    {"leaky, then read again",     BATCH "k = LeakyRelu <alpha = 0.1> (n) z = Mul (k, k)",         "inplace-abn",      "6",   1, 4, false},
    {"after bits of the sign",     BATCH "z = LeakyRelu <alpha = 0.1> (n)",                        "sign-mask,inplace-abn", "6", 1, 4, false},
};
// clang-format on

static const char *const names[] = {"v", "w", "s", "b"};
enum { KINDS = 4 };

typedef struct weights {
    double of[KINDS][MOST_WEIGHTS];
    int count[KINDS];
} weights;

static double drawn(uint64_t *seed) /* in [-1, 1) */
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*seed >> 11) / (double)(INT64_C(1) << 52) - 1;
}

static weights draw_weights(const norm_case *c)
{
    weights k = {.count = {C * C, C * C, 0, 0}};
    uint64_t seed = 5;
    k.count[2] = k.count[3] = c->weights[0] == '6' ? C : c->weights[0] == '7' ? W : H * W;
    for (int w = 0; w < KINDS; w++)
        for (int i = 0; i < k.count[w]; i++)
            k.of[w][i] = drawn(&seed);
    for (int i = 0; i < k.count[2]; i++) { // scales of both signs, biases no larger
        double size = 0.5 + fabs(k.of[2][i]);
        k.of[2][i] = k.of[2][i] < 0 ? -size : size;
        k.of[3][i] = (0.75 + 0.25 * k.of[3][i]) * (i % 2 == 0 ? 1 : -1) * 0.5;
    }
    if (c->small) {
        k.of[2][1] = -0.01;
        k.of[3][1] = 1;
    }
    return k;
}

static size_t declare(char *at, size_t room, const char *dtype, const char *name, const char *dims,
                      const double *list, int count)
{
    size_t used = (size_t)snprintf(at, room, "%s[%s] %s = {", dtype, dims, name);
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(at + used, room - used, "%s%.17g", i == 0 ? "" : ", ", list[i]);
    used += (size_t)snprintf(at + used, room - used, "}, ");
    return used;
}

/* The step of a case; `sites` that the last of its passes rewrote. */
static ebb_model *step_of(const norm_case *c, const char *dtype, const weights *k,
                          const char *passes, int *sites)
{
    static char text[TEXT];
    const ebb_rewrite_options options = {.verify_each = true};
    const char *dims[KINDS] = {"6,6,1,1", "6,6,1,1", c->weights, c->weights};
    char pipeline[256];
    ebb_arena keep = {0};
    ebb_report *reports;
    size_t count;
    ebb_model *m = NULL;
    size_t at = (size_t)snprintf(text, TEXT,
                                 "<ir_version: 10, opset_import: [\"\" : 23]>\n"
                                 "g (%s[4,6,5,7] x) => (%s[4,6,5,7] y) <",
                                 dtype, dtype);
    for (int w = 0; w < KINDS; w++)
        at += declare(text + at, TEXT - at, dtype, names[w], dims[w], k->of[w], k->count[w]);
    (void)snprintf(text + at, TEXT - at,
                   "%s[6] m = {0, 0, 0, 0, 0, 0}, %s[6] r = {1, 1, 1, 1, 1, 1}>\n"
                   "{ h = Conv (x, v) %s y = Conv (z, w) }",
                   dtype, dtype, c->body);
    good_for(ebb_text_parse_model(&m, text), c->what);
    (void)snprintf(pipeline, sizeof pipeline, "train-mode,loss:mse,gradient%s%s",
                   passes != NULL ? "," : "", passes != NULL ? passes : "");
    good_for(ebb_pipeline_run(m, pipeline, &options, &keep, &reports, &count), c->what);
    if (sites != NULL)
        *sites = (int)reports[count - 1].applied;
    if (passes != NULL && reports[count - 1].applied > 0)
        assert_true(reports[count - 1].saved_bytes > 0);
    ebb_arena_fini(&keep);
    keep = (ebb_arena){0};
    good_for(ebb_pipeline_run(m, "drop-saves,alias", &options, &keep, &reports, &count), c->what);
    ebb_arena_fini(&keep);
    return m;
}

static double value_at(const ebb_named *t, int i)
{
    return t->dtype == EBB_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
}

/* The loss of one step; its gradients too where grads is not NULL. */
static double run(const norm_case *c, ebb_model *m, const char *backend, weights *grads)
{
    static double x[2][COUNT];
    static float narrow[2][COUNT];
    const int64_t dims[4] = {N, C, H, W};
    const ebb_compile_options options = {.backend = backend, .seed = 7};
    OWNED_PROGRAM *p = NULL;
    ebb_named loss, got;
    uint64_t seed = 11;
    for (int i = 0; i < 2 * COUNT; i++) {
        x[i / COUNT][i % COUNT] = (double)(float)drawn(&seed);
        narrow[i / COUNT][i % COUNT] = (float)x[i / COUNT][i % COUNT];
    }
    bool wide = ebb_value_of(m->graph, m->graph->inputs[0])->type->dtype == EBB_F64;
    const void *data[2] = {wide ? (const void *)x[0] : narrow[0],
                           wide ? (const void *)x[1] : narrow[1]};
    int32_t dtype = wide ? EBB_F64 : EBB_F32;
    const ebb_named inputs[] = {{"x", dtype, 4, dims, data[0]},
                                {"target", dtype, 4, dims, data[1]}};
    const ebb_batch batch = {inputs, 2};
    good_for(ebb_program_compile(&p, m, &options), c->what);
    good_for(ebb_program_step(p, &batch), c->what);
    ebb_program_facts f = ebb_program_measure(p);
    assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
    good_for(ebb_program_get(p, ebb_program_loss_name(p), &loss), c->what);
    double result = value_at(&loss, 0);
    for (int w = 0; grads != NULL && w < KINDS; w++) {
        ebb_status status = ebb_program_get(p, formatted("%s_grad", names[w]), &got);
        for (int i = 0; i < grads->count[w]; i++) // a bias that is not there has none
            grads->of[w][i] = status == NULL ? value_at(&got, i) : 0;
    }
    return result;
}

/* Largest distance, by the length of the exact gradient of the same weight. */
static double distance(const weights *a, const weights *exact)
{
    double worst = 0;
    for (int w = 0; w < KINDS; w++) {
        double off = 0, length = 0;
        for (int i = 0; i < exact->count[w]; i++) {
            off += (a->of[w][i] - exact->of[w][i]) * (a->of[w][i] - exact->of[w][i]);
            length += exact->of[w][i] * exact->of[w][i];
        }
        if (length > 0)
            worst = fmax(worst, sqrt(off / length));
    }
    return worst;
}

static double loss_along(const norm_case *c, const weights *k, const weights *direction, double h)
{
    weights moved = *k;
    for (int w = 0; w < KINDS; w++)
        for (int i = 0; i < k->count[w]; i++)
            moved.of[w][i] += h * direction->of[w][i];
    OWNED_MODEL *m = step_of(c, "double", &moved, NULL, NULL);
    double loss = run(c, m, "plain", NULL);
    return loss;
}

/* grads . direction against the loss itself. */
static void check_slope(const norm_case *c, const weights *k, const weights *grads)
{
    const double h = 1e-5;
    weights direction = *k;
    uint64_t seed = 17;
    double slope = 0;
    for (int w = 0; w < KINDS; w++)
        for (int i = 0; i < k->count[w]; i++) {
            direction.of[w][i] = drawn(&seed);
            slope += direction.of[w][i] * grads->of[w][i];
        }
    double near = (loss_along(c, k, &direction, h) - loss_along(c, k, &direction, -h)) / (2 * h);
    if (!(fabs(slope - near) <= 2e-6 * (1 + fabs(near))))
        fail_msg("%s: the slope is %.12g, by differences %.12g", c->what, slope, near);
}

TEST(gradients_are_those_of_the_exact_step)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const norm_case *c = &cases[i];
        weights k = draw_weights(c), exact = k, grads = k;
        int sites = 0;
        ebb_model *m = step_of(c, "double", &k, NULL, NULL);
        (void)run(c, m, "plain", &exact);
        ebb_close(m);
        m = step_of(c, "double", &k, c->passes, &sites);
        if (sites != c->sites)
            fail_msg("%s: %s changed %d sites, not %d", c->what, c->passes, sites, c->sites);
        (void)run(c, m, "plain", &grads);
        ebb_close(m);
        if (!(distance(&grads, &exact) <= 1e-11 * c->amplified))
            fail_msg("%s: in float64, %g from the exact gradient", c->what,
                     distance(&grads, &exact));
        check_slope(c, &k, &grads);
        for (int b = 0; b < 2; b++) {
            m = step_of(c, "float", &k, c->passes, NULL);
            (void)run(c, m, b == 0 ? "plain" : "cpu", &grads);
            ebb_close(m);
            if (!(distance(&grads, &exact) <= 16 * 0x1p-24 * c->amplified))
                fail_msg("%s: in float32, %g from the exact gradient", c->what,
                         distance(&grads, &exact));
        }
    }
}

/* What the report says of a case with an option. */
static void says(const norm_case *c, const char *passes, size_t applied, const char *reason,
                 const char *note)
{
    weights k = draw_weights(c);
    OWNED_MODEL *m = step_of(c, "float", &k, NULL, NULL);
    const ebb_rewrite_options options = {.verify_each = true};
    OWNED_ARENA keep = {0};
    ebb_report *reports;
    size_t count;
    good_for(ebb_pipeline_run(m, passes, &options, &keep, &reports, &count), c->what);
    assert_int_equal(reports[0].applied, applied);
    if (reason != NULL) {
        assert_int_equal(reports[0].skip_count, 1);
        assert_non_null(strstr(reports[0].skips[0].reason, reason));
    }
    assert_true(reports[0].note_count > 0);
    assert_non_null(strstr(reports[0].notes[0], note));
}

static const norm_case *case_of(const char *what)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].what, what) == 0)
            return &cases[i];
    fail_msg("no case '%s'", what);
    return NULL;
}

TEST(a_scale_small_beside_its_bias_is_guarded)
{
    const norm_case *layer = case_of("layer norm, a small scale");
    const norm_case *leaky = case_of("batch norm, leaky, small");
    says(layer, "norm-from-output:amplify=100.5", 0, "more than `amplify`",
         "would amplify rounding 101 times");
    says(layer, "norm-from-output:amplify=101.5", 1, NULL, "at most 101 times");
    says(leaky, "inplace-abn:amplify=100.5", 0, "more than `amplify`",
         "would amplify rounding 101 times");
    says(leaky, "inplace-abn", 1, NULL, "at most 101 times");
}

TEST(a_scale_of_zero_is_left_alone)
{
    norm_case c = *case_of("batch norm, leaky");
    weights k = draw_weights(&c);
    int sites = 0;
    k.of[2][3] = 0;
    ebb_close(step_of(&c, "float", &k, "inplace-abn", &sites));
    assert_int_equal(sites, 0);
    c = *case_of("layer norm, a small scale");
    k = draw_weights(&c);
    k.of[2][3] = k.of[3][3] = 0;
    ebb_close(step_of(&c, "float", &k, "norm-from-output", &sites));
    assert_int_equal(sites, 0);
}
