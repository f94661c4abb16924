/* test_coded_saves.c: passes that keep saved values in fewer bits, on small steps over difficult
 * numbers (ties, both zeros, NaN): loss, gradients, weights and momenta bit for bit as without
 * them, over several steps, on both back ends; and each pass has something to do in its case.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/run/program.h"
#include "onnx/file/file.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/status.h"

enum { N = 2, C = 9, H = 13, W = 11, COUNT = N * C * H * W, STEPS = 3 };

typedef struct coded {
    const char *what,
        *body;          /* of h, a trained weight times x, to y; both [2,9,13,11] unless y_dims */
    const char *y_dims; /* NULL: those of h */
    const char *make;   /* options of train-mode and gradient: "keep,freeze=a" */
    const char *passes; /* the last must apply somewhere */
} coded;

#define POOL "strides = [2, 2], pads = [1, 1, 1, 1]"

// clang-format off
static const coded cases[] = {
    {"relu",            "y = Relu (h)", NULL, "", "sign-mask"},
    {"relu after tanh", "t = Tanh (h) r = Relu (t) y = Mul (r, two)", NULL, "", "sign-mask"},
    {"relu6",           "y = Clip (h, zero, one)", NULL, "", "sign-mask"},
    {"clip from below", "y = Clip (h, half)", NULL, "", "sign-mask"},
    {"clip from above", "y = Clip (h, \"\", half)", NULL, "", "sign-mask"},
    {"leaky",           "y = LeakyRelu <alpha = 0.3> (h)", NULL, "", "sign-mask"},
    {"leaky, negative", "y = LeakyRelu <alpha = -0.3> (h)", NULL, "", "sign-mask"},
    {"threshold",       "y = ThresholdedRelu <alpha = 0.5> (h)", NULL, "", "sign-mask"},
    {"threshold below", "y = ThresholdedRelu <alpha = -0.5> (h)", NULL, "", "sign-mask"},
    {"prelu",           "y = PRelu (h, a)", NULL, ",freeze=a", "sign-mask"},
    {"hard sigmoid",    "y = HardSigmoid <alpha = 0.7, beta = 0.3> (h)", NULL, "", "sign-mask"},
    {"pool of halves",  "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (h)", "2,9,6,5", "", "pool-index"},
    {"pool overlaps",   "y = MaxPool <kernel_shape = [3, 3], " POOL "> (h)", "2,9,7,6", "", "pool-index"},
    {"relu, pool",      "r = Relu (h) y = MaxPool <kernel_shape = [3, 3], " POOL "> (r)", "2,9,7,6", "", "pool-index"},
    {"relu6, pool",     "r = Clip (h, zero, one) y = MaxPool <kernel_shape = [2, 3], dilations = [2, 1], " POOL ", ceil_mode = 1> (r)", "2,9,7,6", "", "pool-index"},
    {"pool, relu",      "p = MaxPool <kernel_shape = [3, 3], " POOL "> (h) y = Relu (p)", "2,9,7,6", "", "sign-mask,pool-index"},
    {"pool, then mask", "r = Relu (h) y = MaxPool <kernel_shape = [3, 3], " POOL "> (r)", "2,9,7,6", "", "pool-index,sign-mask"},
    {"pools side by side", "r = Relu (h) p = MaxPool <kernel_shape = [3, 3], " POOL "> (h) q = MaxPool <kernel_shape = [5, 3], strides = [2, 2], pads = [2, 1, 2, 1]> (h) y = Add (p, q)", "2,9,7,6", "", "pool-index"},
    {"condition",       "c = IsNaN (h) y = Where (c, zero, h)", NULL, "", "pack-bools"},
    {"condition, else", "c = Less (h, x) y = Where (c, h, one)", NULL, "", "pack-bools"},
    {"condition again", "t = Tanh (h) c = IsNaN (t) y = Where (c, zero, t)", NULL, "", "pack-bools"},
    {"two sides",       "c = Less (h, x) u = Abs (h) v = Sqrt (u) y = Where (c, v, u)", NULL, "", "pack-bools"},
    {"max",             "y = Max (h, half)", NULL, "", "pack-bools"},
    {"clamp",           "l = Max (h, zero) y = Min (l, one)", NULL, "", "pack-bools"},
    {"max of two",      "s = Neg (h) y = Max (h, s, x)", NULL, "", "pack-bools"},
    {"clamp, kept",     "l = Max (h, zero) m = Min (l, one) y = Mul (m, m)", NULL, "", "sign-mask,pack-bools"},
    {"threshold, where", "c = LessOrEqual (h, half) t = Where (c, zero, h) y = Mul (t, t)", NULL, "", "sign-mask,pack-bools"},
    {"dropout in bits", "y = Dropout (h, rate, on)", NULL, "", "dropout-mask"},
    {"dropout again",   "y = Dropout (h, rate, on)", NULL, "", "dropout-seed"},
    {"dropout, no key", "y = Dropout (h, rate, on)", NULL, "keep", "dropout-mask"},
    {"dropped again, bytes", "t = Tanh (h) d = Dropout (t, rate, on) y = Mul (d, d)", NULL, "", "dropout-recompute"},
    {"dropped again, bits",  "t = Tanh (h) d = Dropout (t, rate, on) y = Mul (d, d)", NULL, "", "dropout-mask,dropout-recompute"},
    {"dropped again, seed",  "t = Tanh (h) d = Dropout (t, rate, on) y = Mul (d, d)", NULL, "", "dropout-seed,dropout-recompute"},
    {"then to bits",         "t = Tanh (h) d = Dropout (t, rate, on) y = Mul (d, d)", NULL, "", "dropout-recompute,dropout-mask"},
    {"then to the seed",     "t = Tanh (h) d = Dropout (t, rate, on) y = Mul (d, d)", NULL, "", "dropout-recompute,dropout-seed"},
    {"dropped again, no key", "t = Tanh (h) d = Dropout (t, rate, on) y = Mul (d, d)", NULL, "keep", "dropout-recompute"},
    {"no key, bits",         "t = Tanh (h) d = Dropout (t, rate, on) y = Mul (d, d)", NULL, "keep", "dropout-mask,dropout-recompute"},
    {"dropped twice",        "t = Tanh (h) c = Dropout (t, rate, on) d = Dropout (c, rate, on) e = Mul (c, d) y = Mul (d, e)", NULL, "", "dropout-recompute"},
    {"expanded again",       "m = GlobalMaxPool (h) s = Constant <value_ints = [2, 9, 13, 11]> () k = Expand (m, s) y = Mul (k, h)", NULL, "", "fold,expand-again"},
    {"tiled and turned",     "m = GlobalMaxPool (h) s = Constant <value_ints = [1, 1, 11, 13]> () k = Tile (m, s) t = Transpose <perm = [0, 1, 3, 2]> (k) y = Mul (t, h)", NULL, "", "fold,expand-again"},
};
// clang-format on

/* Runs the pipeline; the bytes that its last pass saved. */
static int64_t saved_by_last(ebb_model *m, const char *pipeline, const char *what)
{
    const ebb_rewrite_options options = {.verify_each = true};
    OWNED_ARENA keep = {0};
    ebb_report *reports;
    size_t count;
    good_for(ebb_pipeline_run(m, pipeline, &options, &keep, &reports, &count), what);
    int64_t saved = reports[count - 1].applied > 0 ? reports[count - 1].saved_bytes : 0;
    return saved;
}

/* The step of a case; passes: in its middle, or NULL. */
static ebb_model *step_of(const coded *c, const char *passes)
{
    char weights[16 * 1024], pipeline[512];
    size_t at = 0;
    for (int i = 0; i < COUNT; i++)
        at += (size_t)snprintf(weights + at, sizeof weights - at, "%s%d", i == 0 ? "" : ",",
                               1 + i % 3);
    char *all = malloc(sizeof weights + 4096);
    assert_non_null(all);
    (void)snprintf(all, sizeof weights + 4096,
                   "<ir_version: 10, opset_import: [\"\" : 20]>\n"
                   "g (float[2,9,13,11] x) => (float[%s] y) <float[2,9,13,11] w = {%s}, "
                   "float[9,1,1] a = {0.5, -0.5, 2, 0, 1, 0.1, 0.2, 0.3, -1}, float zero = {0}, "
                   "float one = {1}, float two = {2}, float half = {0.5}, float rate = {0.3}, "
                   "bool on = {1}>\n{ h = Mul (x, w)\n %s }",
                   c->y_dims != NULL ? c->y_dims : "2,9,13,11", weights, c->body);
    ebb_model *m = NULL;
    good_for(ebb_text_parse_model(&m, all), c->what);
    free(all);
    bool keeps = strncmp(c->make, "keep", 4) == 0;
    (void)snprintf(pipeline, sizeof pipeline,
                   "train-mode%s,loss:mse,gradient:train=w%s,optimizer:momentum,lr=0.5%s%s",
                   keeps ? ":dropout=keep" : "", keeps ? c->make + 4 : c->make,
                   passes != NULL ? "," : "", passes != NULL ? passes : "");
    int64_t saved = saved_by_last(m, pipeline, c->what);
    if (passes != NULL && saved <= 0)
        fail_msg("%s: the last of %s saved nothing", c->what, passes);
    (void)saved_by_last(m, "drop-saves,alias", c->what);
    return m;
}

/* Ties, both zeros, and a few NaN. */
static void draw(float *x, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int32_t n = (int32_t)(seed >> 61) - 4;
        x[i] = n == -4 ? -0.0f : (float)n * 0.5f;
        if (i % 97 == 5)
            x[i] = strtof("nan", NULL);
    }
}

static int64_t elements(const ebb_named *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

/* Every output and state of both programs. */
static void same_everywhere(ebb_program *a, ebb_program *b, const coded *c)
{
    static const char *const states[] = {"w", "w.momentum", "a"};
    size_t outputs = ebb_program_output_count(a);
    for (size_t i = 0; i < outputs + sizeof states / sizeof states[0]; i++) {
        const char *name = i < outputs ? ebb_program_output_name(a, i) : states[i - outputs];
        ebb_named x, y;
        if (ebb_program_get(a, name, &x) != NULL && i >= outputs)
            continue; // not in this case
        good_for(ebb_program_get(a, name, &x), c->what);
        good_for(ebb_program_get(b, name, &y), c->what);
        assert_int_equal(elements(&x), elements(&y));
        size_t size = x.dtype == EBB_I64 ? 8 : x.dtype == EBB_BOOL ? 1 : 4;
        if (memcmp(x.data, y.data, (size_t)elements(&x) * size) != 0)
            fail_msg("%s: with %s, '%s' has other bits", c->what, c->passes, name);
    }
}

static void compare(const coded *c, const char *backend)
{
    static float x[COUNT], target[COUNT];
    ebb_model *models[2] = {step_of(c, NULL), step_of(c, c->passes)};
    ebb_program *programs[2] = {NULL, NULL};
    int64_t dims[4] = {N, C, H, W}, y_dims[4] = {N, C, H, W};
    if (c->y_dims != NULL)
        assert_int_equal(sscanf(c->y_dims, "%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64,
                                &y_dims[0], &y_dims[1], &y_dims[2], &y_dims[3]),
                         4);
    const ebb_compile_options options = {.backend = backend, .seed = 7};
    draw(target, COUNT, 3);
    for (int step = 0; step < STEPS; step++) {
        draw(x, COUNT, (uint64_t)step + 11);
        for (int k = 0; k < 2; k++) {
            if (step == 0)
                good_for(ebb_program_compile(&programs[k], models[k], &options), c->what);
            const ebb_named inputs[] = {{"x", EBB_F32, 4, dims, x},
                                        {"target", EBB_F32, 4, y_dims, target}};
            const ebb_batch batch = {inputs, 2};
            good_for(ebb_program_step(programs[k], &batch), c->what);
            ebb_program_facts f = ebb_program_measure(programs[k]);
            assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
        }
        same_everywhere(programs[0], programs[1], c);
    }
    for (int k = 0; k < 2; k++) {
        ebb_program_free(programs[k]);
        ebb_close(models[k]);
    }
}

TEST(fewer_bits_give_the_same_step)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        compare(&cases[i], "plain");
        compare(&cases[i], "cpu");
    }
}
