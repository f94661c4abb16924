/* test_derivatives.c: passes that take a gradient from other values than the rules do
 * (softmax-from-output, forward-ad), in float64: beside the rules' own gradient, and beside finite
 * differences of the loss; and each has something to do in its case, or says why not.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/run/program.h"
#include "onnx/file/file.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/status.h"

enum { ROWS = 4, COLUMNS = 12, COUNT = ROWS * COLUMNS };

typedef struct derived {
    const char *what,
        *body;          /* of h [4,12], a trained weight times x, and b, which is x, to y [4,12] */
    const char *passes; /* the last is tried */
    int applied;
    const char *reason; /* of what was skipped, or NULL */
} derived;

#define GELU_ERF "d = Div (h, root) f = Erf (d) o = Add (f, one) g = Mul (h, o) y = Mul (g, half)"
#define MAXED "m = ReduceMax (h, last) z = Sub (h, m) e = Exp (z) t = ReduceSum (e, last) "
#define STAYS "what its backward reads stays for another reason"
#define NO_LESS \
    "what its backward reads stays for other readers, or is no more than the derivative would be"
#define OTHER "its backward is not the one that the rules make, or has none"

// clang-format off
static const derived cases[] = {
    {"softmax in steps", MAXED "y = Div (e, t)", "softmax-from-output", 1, NULL},
    {"softmax by a reciprocal", MAXED "r = Reciprocal (t) y = Mul (r, e)", "softmax-from-output", 1, NULL},
    {"softmax over rows", "e = Exp (h) t = ReduceSum (e, first) y = Div (e, t)", "softmax-from-output", 1, NULL},
    {"log softmax in steps", MAXED "l = Log (t) y = Sub (z, l)", "softmax-from-output", 1, NULL},
    {"log softmax in two", "l = ReduceLogSumExp (h, last) y = Sub (h, l)", "softmax-from-output", 1, NULL},
    {"softmax by its logarithm", "l = LogSoftmax <axis = 1> (h) y = Exp (l)", "softmax-from-output", 1, NULL},
    {"softmax that is guarded", "p = Softmax <axis = 0> (h) c = IsNaN (p) q = Where (c, zero, p) y = Mul (q, q)", "softmax-from-output", 0, "it reads the softmax's output already"},
    {"softmax beside a residual", MAXED "p = Div (e, t) q = Mul (p, h) y = Add (q, h)", "softmax-from-output", 1, NULL},
    {"softmax of what is read before", "r = Sin (h) " MAXED "p = Div (e, t) y = Mul (p, r)", "softmax-from-output", 1, NULL},
    {"softmax in one node", "y = Softmax (h)", "softmax-from-output", 0, "it reads the softmax's output already"},
    {"softmax whose exponentials are read", "e = Exp (h) t = ReduceSum (e, last) p = Div (e, t) y = Mul (p, e)", "softmax-from-output", 0, OTHER},
    {"sum over other axes", MAXED "u = ReduceSum (e, first) y = Div (e, u)", "softmax-from-output", 1, NULL},

    {"x sigmoid 2x", "u = Mul (h, two) s = Sigmoid (u) y = Mul (h, s)", "forward-ad", 1, NULL},
    {"x sigmoid 2x and a residual", "u = Mul (h, two) s = Sigmoid (u) g = Mul (h, s) y = Add (h, g)", "forward-ad", 1, NULL},
    {"gelu by erf", GELU_ERF, "forward-ad", 1, NULL},
    {"mish", "e = Exp (h) p = Add (e, one) l = Log (p) t = Tanh (l) y = Mul (h, t)", "forward-ad", 1, NULL},
    {"hard swish in steps", "a = Add (h, one) c = Clip (a, zero, two) m = Mul (h, c) y = Div (m, two)", "forward-ad", 1, NULL},
    {"tanh of a cube, squared", "c = Pow (h, three) t = Tanh (c) y = Mul (t, t)", "forward-ad", 1, NULL},
    {"with a condition", "p = Greater (h, zero) e = Exp (h) s = Sin (e) f = Mul (s, h) y = Where (p, f, h)", "forward-ad", 1, NULL},
    {"divided by itself", "e = Exp (h) p = Add (e, one) y = Div (e, p)", "forward-ad", 1, NULL},
    {"with a mask that is not trained", "m = Mul (h, b) t = Tanh (m) s = Sigmoid (t) y = Mul (s, b)", "forward-ad", 1, NULL},
    {"twice", "u = Sin (h) s = Mul (u, h) t = Transpose (s) v = Sin (t) p = Mul (v, t) y = Transpose (p)", "forward-ad", 2, NULL},
    {"one value alone", "t = Tanh (h) y = Add (t, one)", "forward-ad", 0, NULL},
    {"of what stays", "s = Sigmoid (h) u = Mul (h, s) n = ReduceSumSquare (h, last) y = Add (u, n)", "forward-ad", 0, NO_LESS},
    {"after bits", "r = Relu (h) e = Exp (r) y = Mul (e, r)", "sign-mask,forward-ad", 1, NULL},
};
// clang-format on

/* Runs the pipeline and compares what its last pass says with the case; c NULL: it does not. */
static void rewrite(ebb_model *m, const char *pipeline, const char *what, const derived *c)
{
    const ebb_rewrite_options options = {.verify_each = true};
    OWNED_ARENA keep = {0};
    ebb_report *reports;
    size_t count;
    good_for(ebb_pipeline_run(m, pipeline, &options, &keep, &reports, &count), what);
    const ebb_report *last = &reports[count - 1];
    if (c != NULL && last->applied != (size_t)c->applied)
        fail_msg("%s: %s applied to %zu of %zu sites: %s", what, last->pass, last->applied,
                 last->found, last->skip_count > 0 ? last->skips[0].reason : "");
    if (c != NULL && c->applied > 0)
        assert_true(last->saved_bytes > 0);
    if (c != NULL && (c->reason == NULL
                          ? last->skip_count != 0
                          : last->skip_count != 1 || strcmp(last->skips[0].reason, c->reason) != 0))
        fail_msg("%s: skipped because %s", what,
                 last->skip_count > 0 ? last->skips[0].reason : "of nothing");
}

static double weight(int i)
{
    return 0.4 + 0.05 * (i * 7 % 13);
}

static ebb_model *step_of(const derived *c, bool passes)
{
    char weights[COUNT * 8], all[4096], pipeline[256];
    size_t at = 0;
    for (int i = 0; i < COUNT; i++)
        at += (size_t)snprintf(weights + at, sizeof weights - at, "%s%.2f", i == 0 ? "" : ",",
                               weight(i));
    (void)snprintf(all, sizeof all,
                   "<ir_version: 10, opset_import: [\"\" : 20]>\n"
                   "g (double[12,4] x) => (double[12,4] out) <double[12,4] w = {%s}, "
                   "double zero = {0}, double one = {1}, double two = {2}, double three = {3}, "
                   "double half = {0.5}, double root = {1.4142135623730951}, "
                   "int64[1] last = {-1}, int64[1] first = {0}>\n{ k = Mul (x, w) h = Transpose "
                   "(k) b = Transpose (x)\n %s out = Transpose (y) }",
                   weights, c->body);
    ebb_model *m = NULL;
    good_for(ebb_text_parse_model(&m, all), c->what);
    (void)snprintf(pipeline, sizeof pipeline, "loss:mse,gradient,optimizer:none%s%s",
                   passes ? "," : "", passes ? c->passes : "");
    rewrite(m, pipeline, c->what, passes ? c : NULL);
    rewrite(m, "drop-saves,alias", c->what, NULL);
    return m;
}

static double run(ebb_program *p, const derived *c, double *x, double *grad)
{
    static double target[COUNT];
    const int64_t dims[2] = {COLUMNS, ROWS};
    const ebb_named inputs[] = {{"x", EBB_F64, 2, dims, x}, {"target", EBB_F64, 2, dims, target}};
    const ebb_batch batch = {inputs, 2};
    ebb_named loss, w;
    for (int i = 0; i < COUNT; i++)
        target[i] = 0.3 * sin(3.0 * i);
    good_for(ebb_program_step(p, &batch), c->what);
    good_for(ebb_program_get(p, "loss", &loss), c->what);
    good_for(ebb_program_get(p, "w_grad", &w), c->what);
    assert_int_equal(w.dtype, EBB_F64);
    if (grad != NULL)
        memcpy(grad, w.data, COUNT * sizeof *grad);
    return *(const double *)loss.data;
}

/* The loss knows x w alone unless x is read again: so dL/dw = dL/dx x / w. */
static double by_difference(ebb_program *p, const derived *c, double *x, int i)
{
    const double before = x[i], step = 1e-5 * fabs(before);
    x[i] = before + step;
    double up = run(p, c, x, NULL);
    x[i] = before - step;
    double down = run(p, c, x, NULL);
    x[i] = before;
    return (up - down) / (2 * step) * before / weight(i);
}

static void compare(const derived *c)
{
    const ebb_compile_options options = {.backend = "plain"};
    ebb_model *models[2] = {step_of(c, false), step_of(c, true)};
    ebb_program *programs[2] = {NULL, NULL};
    double x[COUNT], grad[2][COUNT], loss[2], largest = 0;
    for (int i = 0; i < COUNT; i++)
        x[i] = 1.7 * cos(1.3 * i + 0.2);
    for (int k = 0; k < 2; k++) {
        good_for(ebb_program_compile(&programs[k], models[k], &options), c->what);
        loss[k] = run(programs[k], c, x, grad[k]);
        ebb_program_facts f = ebb_program_measure(programs[k]);
        assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
    }
    assert_true(loss[0] == loss[1]);
    for (int i = 0; i < COUNT; i++)
        largest = fmax(largest, fabs(grad[0][i]));
    assert_true(largest > 0);
    bool read_again = strstr(c->body, "b)") != NULL;
    for (int i = 0; i < COUNT; i++) {
        if (!(fabs(grad[0][i] - grad[1][i]) <= 1e-14 * largest))
            fail_msg("%s: gradient %d is %.17g, by the rules %.17g", c->what, i, grad[1][i],
                     grad[0][i]);
        double d = read_again ? grad[1][i] : by_difference(programs[1], c, x, i);
        if (!(fabs(grad[1][i] - d) <= 1e-7 * largest))
            fail_msg("%s: gradient %d is %.12g, by differences %.12g", c->what, i, grad[1][i], d);
    }
    for (int k = 0; k < 2; k++) {
        ebb_program_free(programs[k]);
        ebb_close(models[k]);
    }
}

TEST(gradients_from_other_values_are_the_same)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        compare(&cases[i]);
}
