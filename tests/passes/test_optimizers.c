/* test_optimizers.c: steps of each optimizer of optimizers.def beside the formulas of its paper or of
 * PyTorch's documentation, in double; schedules beside closed formulas; clipping, groups, averages.
 *
 *   y = X M H + b,  loss = sum y^2:   M is a matrix within the network, H is next to the loss
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <cmocka.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"

enum { M, H, B, PARAMETERS, MOST = 12, STEPS = 6 };

static const char text[] =
    "<ir_version: 10, opset_import: [\"\" : 20]>\n"
    "g () => (float loss) <float[2,3] x = {1.0,-0.5,0.25, 0.75,2.0,-1.0}, "
    "float[3,4] \"first.weight\" = {0.5,-0.25,0.125,1.0, -0.75,0.5,0.25,-1.0, "
    "0.375,-0.5,0.75,0.25}, "
    "float[4,2] \"last.weight\" = {0.5,-1.0, 0.25,0.75, -0.5,0.125, 1.0,-0.375}, "
    "float[2] \"last.bias\" = {0.25,-0.5}> {\n"
    "   h = MatMul (x, \"first.weight\")\n   p = MatMul (h, \"last.weight\")\n   y = Add (p, "
    "\"last.bias\")\n"
    "   square = Mul (y, y)\n   loss = ReduceSum <keepdims = 0> (square)\n}";

static const char *const names[PARAMETERS] = {"first.weight", "last.weight", "last.bias"};
static const int rows[PARAMETERS] = {3, 4, 1}, columns[PARAMETERS] = {4, 2, 2};
static const double x[6] = {1.0, -0.5, 0.25, 0.75, 2.0, -1.0};
static const double start[PARAMETERS][MOST] = {
    {0.5, -0.25, 0.125, 1.0, -0.75, 0.5, 0.25, -1.0, 0.375, -0.5, 0.75, 0.25},
    {0.5, -1.0, 0.25, 0.75, -0.5, 0.125, 1.0, -0.375},
    {0.25, -0.5}};

static int size_of(int p)
{
    return rows[p] * columns[p];
}

static void good(ebb_status status)
{
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
}

/* c = a' b': a' is n x k, b' k x m; a or b lies turned where asked. */
static void product(double *c, const double *a, bool turn_a, const double *b, bool turn_b, int n,
                    int k, int m)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum +=
                    (turn_a ? a[l * n + i] : a[i * k + l]) * (turn_b ? b[j * k + l] : b[l * m + j]);
            c[i * m + j] = sum;
        }
}

static void gradients(double g[PARAMETERS][MOST], const double w[PARAMETERS][MOST])
{
    double h[8], y[4], back[8];
    product(h, x, false, w[M], false, 2, 3, 4);
    product(y, h, false, w[H], false, 2, 4, 2);
    for (int i = 0; i < 4; i++)
        y[i] = 2 * (y[i] + w[B][i % 2]);
    product(g[H], h, true, y, false, 4, 2, 2);
    product(back, y, false, w[H], true, 2, 2, 4);
    product(g[M], x, true, back, false, 3, 2, 4);
    for (int j = 0; j < 2; j++)
        g[B][j] = y[j] + y[2 + j];
}

/* ---- the formulas ---- */

typedef struct rule { /* how one parameter is updated */
    const char *kind;
    double lr, decay, momentum, beta1, beta2, epsilon, alpha, lr_decay;
    bool centered, plain; /* plain: muon without nesterov */
    bool like_adamw;      /* muon's adjust */
} rule;

typedef struct memory {
    double a[MOST], b[MOST], c[MOST], average[MOST];
} memory;

static bool is(const rule *r, const char *kind)
{
    return strcmp(r->kind, kind) == 0;
}

static void adam_step(double *w, const double *g, memory *m, int n, int t, const rule *r)
{
    for (int i = 0; i < n; i++) {
        m->a[i] = r->beta1 * m->a[i] + (1 - r->beta1) * g[i];
        m->b[i] = r->beta2 * m->b[i] + (1 - r->beta2) * g[i] * g[i];
        w[i] -= r->lr * (m->a[i] / (1 - pow(r->beta1, t))) /
                (sqrt(m->b[i] / (1 - pow(r->beta2, t))) + r->epsilon);
    }
}

static double root_mean_square(const double *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += v[i] * v[i];
    return sqrt(sum / n);
}

/* a: rows' means, b: columns', c: a vector's. */
static void adafactor_step(double *w, const double *g, memory *m, int p, int t, const rule *r)
{
    const int n = size_of(p), height = rows[p], width = columns[p];
    double share = pow(t, -0.8), q[MOST], mean = 0;
    const double eps1 = (double)1.1920929e-7f;
    double alpha = fmax(1e-3, root_mean_square(w, n)) * fmin(r->lr, 1 / sqrt(t));
    for (int i = 0; i < height && height > 1; i++) {
        double sum = 0;
        for (int j = 0; j < width; j++)
            sum += g[i * width + j] * g[i * width + j] / width;
        m->a[i] += share * (sum - m->a[i]);
        mean += m->a[i] / height;
    }
    for (int j = 0; j < width && height > 1; j++) {
        double sum = 0;
        for (int i = 0; i < height; i++)
            sum += g[i * width + j] * g[i * width + j] / height;
        m->b[j] += share * (sum - m->b[j]);
    }
    for (int i = 0; i < n; i++) {
        m->c[i] += share * (g[i] * g[i] - m->c[i]);
        double v = height > 1 ? m->a[i / width] * m->b[i % width] / fmax(mean, eps1) : m->c[i];
        q[i] = g[i] / sqrt(fmax(v, eps1 * eps1));
    }
    double excess = fmax(1, root_mean_square(q, n));
    for (int i = 0; i < n; i++)
        w[i] = w[i] * (1 - r->lr * r->decay) - alpha / excess * q[i];
}

/* As Muon's authors have it: x x^T of the matrix that lies broad. */
static void orthogonal(double *d, int height, int width)
{
    double v[MOST], gram[16], twice[16], next[MOST];
    const bool tall = height > width;
    const int n = tall ? width : height, k = tall ? height : width;
    double norm = root_mean_square(d, n * k) * sqrt(n * k);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < k; j++)
            v[i * k + j] = (tall ? d[j * n + i] : d[i * k + j]) / fmax(norm, 1e-7);
    for (int step = 0; step < 5; step++) {
        product(gram, v, false, v, true, n, k, n);
        product(twice, gram, false, gram, false, n, n, n);
        for (int i = 0; i < n * n; i++)
            gram[i] = -4.7750 * gram[i] + 2.0315 * twice[i];
        product(next, gram, false, v, false, n, n, k);
        for (int i = 0; i < n * k; i++)
            v[i] = 3.4445 * v[i] + next[i];
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < k; j++)
            d[tall ? j * n + i : i * k + j] = v[i * k + j];
}

static void muon_step(double *w, const double *g, memory *m, int p, const rule *r)
{
    const int n = size_of(p);
    double d[MOST], factor = r->like_adamw ? 0.2 * sqrt(fmax(rows[p], columns[p]))
                                           : sqrt(fmax(1, (double)rows[p] / columns[p]));
    for (int i = 0; i < n; i++) {
        m->a[i] = r->momentum * m->a[i] + (1 - r->momentum) * g[i];
        d[i] = r->plain ? m->a[i] : r->momentum * m->a[i] + (1 - r->momentum) * g[i];
    }
    orthogonal(d, rows[p], columns[p]);
    for (int i = 0; i < n; i++)
        w[i] = w[i] * (1 - r->lr * r->decay) - r->lr * factor * d[i];
}

static void step(double *w, const double *grad, memory *m, int p, int t, const rule *r)
{
    const int n = size_of(p);
    const bool apart = is(r, "adamw") || is(r, "lion") || is(r, "adafactor") || is(r, "muon");
    double g[MOST];
    for (int i = 0; i < n; i++)
        g[i] = grad[i] + (apart ? 0 : r->decay * w[i]);
    if (is(r, "adafactor")) {
        adafactor_step(w, g, m, p, t, r);
        return;
    }
    if (is(r, "muon") && p == M) {
        muon_step(w, g, m, p, r);
        return;
    }
    for (int i = 0; i < n && apart && !is(r, "lion"); i++)
        w[i] *= 1 - r->lr * r->decay;
    if (is(r, "adam") || (apart && !is(r, "lion"))) {
        adam_step(w, g, m, n, t, r);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (is(r, "sgd")) {
            w[i] -= r->lr * g[i];
        } else if (is(r, "momentum") || is(r, "nesterov")) {
            m->a[i] = r->momentum * m->a[i] + g[i];
            w[i] -= r->lr * (is(r, "nesterov") ? g[i] + r->momentum * m->a[i] : m->a[i]);
        } else if (is(r, "rmsprop")) {
            m->a[i] = r->alpha * m->a[i] + (1 - r->alpha) * g[i] * g[i];
            m->b[i] = r->alpha * m->b[i] + (1 - r->alpha) * g[i];
            double v = r->centered ? m->a[i] - m->b[i] * m->b[i] : m->a[i];
            m->c[i] = r->momentum * m->c[i] + g[i] / (sqrt(v) + r->epsilon);
            w[i] -= r->lr * m->c[i];
        } else if (is(r, "adagrad")) {
            m->a[i] += g[i] * g[i];
            w[i] -= r->lr / (1 + (t - 1) * r->lr_decay) * g[i] / (sqrt(m->a[i]) + r->epsilon);
        } else { // lion
            double c = r->beta1 * m->a[i] + (1 - r->beta1) * g[i];
            m->a[i] = r->beta2 * m->a[i] + (1 - r->beta2) * g[i];
            w[i] = w[i] * (1 - r->lr * r->decay) - r->lr * ((c > 0) - (c < 0));
        }
    }
}

/* ---- the step ---- */

typedef struct trial {
    ebb_model *model;
    ebb_program *program;
} trial;

static ebb_model *parse(void)
{
    ebb_model *m = NULL;
    good(ebb_text_parse_model(&m, text));
    good(ebb_infer_graph(m->graph));
    return m;
}

static ebb_status rewrite(trial *t, const char *optimizer)
{
    char pipeline[1024];
    (void)snprintf(pipeline, sizeof pipeline,
                   "loss:name=loss,gradient:train=\"first*;last*\",optimizer:%s,fold,drop-saves,"
                   "stream,alias",
                   optimizer);
    t->model = parse();
    return ebb_rewrite(t->model, pipeline, NULL, NULL);
}

static trial make(const char *optimizer)
{
    trial t = {NULL, NULL};
    good(rewrite(&t, optimizer));
    good(ebb_program_compile(&t.program, t.model, NULL));
    return t;
}

static void drop(trial *t)
{
    ebb_program_free(t->program);
    ebb_close(t->model);
}

static double value_of(ebb_program *p, const char *name, size_t index)
{
    ebb_named named;
    good(ebb_program_get(p, name, &named));
    return ebb_element(&named, index);
}

static void expect(ebb_program *p, const char *suffix, double want[PARAMETERS][MOST],
                   const char *what, int t)
{
    for (int k = 0; k < PARAMETERS; k++)
        for (int i = 0; i < size_of(k); i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s%s", names[k], suffix);
            double got = value_of(p, name, (size_t)i);
            if (!(fabs(got - want[k][i]) <= 2e-5 * fmax(1e-2, fabs(want[k][i]))))
                fail_msg("%s, step %d: %s[%d] is %.9g, by the formula %.9g", what, t, name, i, got,
                         want[k][i]);
        }
}

/* rules: of each parameter. */
static void follows(const char *optimizer, const rule rules[PARAMETERS])
{
    trial t = make(optimizer);
    double w[PARAMETERS][MOST], g[PARAMETERS][MOST];
    memory m[PARAMETERS] = {{{0}, {0}, {0}, {0}}};
    memcpy(w, start, sizeof w);
    for (int i = 1; i <= STEPS; i++) {
        gradients(g, (const double(*)[MOST])w);
        for (int p = 0; p < PARAMETERS; p++)
            step(w[p], g[p], &m[p], p, i, &rules[p]);
        good(ebb_program_step(t.program, NULL));
        expect(t.program, "", w, optimizer, i);
    }
    drop(&t);
}

static void follow_one(const char *optimizer, rule r)
{
    const rule rules[PARAMETERS] = {r, r, r};
    follows(optimizer, rules);
}

static void each_optimizer_takes_the_steps_of_its_formula(void **state)
{
    (void)state;
    follow_one("sgd,lr=0.01,weight-decay=0.1", (rule){.kind = "sgd", .lr = 0.01, .decay = 0.1});
    follow_one("momentum,lr=0.01,weight-decay=0.1",
               (rule){.kind = "momentum", .lr = 0.01, .decay = 0.1, .momentum = 0.9});
    follow_one("nesterov,lr=0.01,momentum=0.8,weight-decay=0.1",
               (rule){.kind = "nesterov", .lr = 0.01, .decay = 0.1, .momentum = 0.8});
    follow_one("nesterov,lr=0.01", (rule){.kind = "nesterov", .lr = 0.01, .momentum = 0.9});
    const rule adam = {.kind = "adam", .lr = 0.02, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    rule r = adam;
    follow_one("adam,lr=0.02", r);
    r.decay = 0.1;
    follow_one("adam,lr=0.02,weight-decay=0.1", r);
    r.kind = "adamw";
    follow_one("adamw,lr=0.02,weight-decay=0.1", r);
    r = (rule){.kind = "rmsprop", .lr = 0.01, .alpha = 0.99, .epsilon = 1e-8};
    follow_one("rmsprop", r);
    r.decay = 0.1, r.alpha = 0.75, r.momentum = 0.9;
    follow_one("rmsprop,alpha=0.75,momentum=0.9,weight-decay=0.1", r);
    r.centered = true, r.epsilon = 0.01;
    follow_one("rmsprop,alpha=0.75,momentum=0.9,weight-decay=0.1,centered=1,epsilon=0.01", r);
    r = (rule){.kind = "adagrad", .lr = 0.01, .epsilon = 1e-10};
    follow_one("adagrad", r);
    r.lr = 0.1, r.decay = 0.1, r.lr_decay = 0.5;
    follow_one("adagrad,lr=0.1,lr-decay=0.5,weight-decay=0.1", r);
    r = (rule){.kind = "lion", .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99};
    follow_one("lion", r);
    r.lr = 0.01, r.decay = 0.1, r.beta1 = 0.5;
    follow_one("lion,lr=0.01,weight-decay=0.1,beta1=0.5", r);
    r = (rule){.kind = "adafactor", .lr = 0.01};
    follow_one("adafactor", r);
    r.lr = 1, r.decay = 0.1; // 1 / sqrt(t) is less
    follow_one("adafactor,lr=1,weight-decay=0.1", r);
}

/* The matrix within the network goes by Newton and Schulz, the others by AdamW. */
static void muon_is_for_matrices_within_the_network(void **state)
{
    (void)state;
    rule r = {.kind = "muon",
              .lr = 1e-3,
              .decay = 0.1,
              .momentum = 0.95,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .epsilon = 1e-8};
    follow_one("muon", r);
    r.lr = 0.02, r.momentum = 0.8, r.plain = true, r.like_adamw = true;
    follow_one("muon,lr=0.02,momentum=0.8,nesterov=0,adjust=match-rms-adamw", r);
}

static void groups_have_options_of_their_own(void **state)
{
    (void)state;
    const rule main = {
        .kind = "adamw", .lr = 0.02, .decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8};
    rule rules[PARAMETERS] = {main, main, main};
    rules[H].lr = 0.005;
    rules[B].decay = 0;
    follows("adamw,lr=0.02,weight-decay=0.1,beta2=0.99,groups="
            "\"bias:weight-decay=0|*norm*,last*:lr=0.005\"",
            rules);
    rules[H] = main; // the first that matches
    rules[B].lr = 0.005;
    follows("adamw,lr=0.02,weight-decay=0.1,beta2=0.99,groups="
            "\"last.weight:beta1=0.9|last*:lr=0.005,weight-decay=0\"",
            rules);
    rules[B] = (rule){.kind = "momentum", .lr = 0.1, .momentum = 0.9}; // with its own defaults
    follows("adamw,lr=0.02,weight-decay=0.1,beta2=0.99,groups=\"bias:kind=momentum\"", rules);
    rules[M] = rules[H] = (rule){.kind = "sgd", .lr = 0.01};
    rules[B] = (rule){.kind = "adam", .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    follows("sgd,lr=0.01,groups=\"bias:kind=adam\"", rules);
}

/* ---- schedules ---- */

typedef double formula(int t);

static const double pi = 3.14159265358979323846;

static double ramp(int t, int warmup)
{
    return t < warmup ? (t + 1.0) / (warmup + 1.0) : 1;
}

static double constant_4(int t)
{
    return ramp(t, 4);
}

static double linear_10(int t)
{
    return t < 10 ? 1 - t / 10.0 : 0;
}

static double linear_3_12(int t)
{
    double p = t <= 3 ? 0 : t >= 12 ? 1 : (t - 3) / 9.0;
    return ramp(t, 3) * (0.25 + 0.75 * (1 - p));
}

static double cosine_5_15(int t)
{
    double p = t <= 5 ? 0 : t >= 15 ? 1 : (t - 5) / 10.0;
    return ramp(t, 5) * (0.1 + 0.9 * (1 + cos(pi * p)) / 2);
}

static double step_2_4(int t)
{
    return ramp(t, 2) * pow(0.5, t < 2 ? 0 : (t - 2) / 4);
}

/* PyTorch's, with pct_start 0.3, div_factor 25, final_div_factor 1e4 */
static double one_cycle_20(int t)
{
    const double top = 0.3 * 20 - 1, first = 1.0 / 25, last = first / 1e4;
    if (t >= 19)
        return last;
    if (t <= top)
        return 1 + (first - 1) / 2 * (1 + cos(pi * t / top));
    return last + (1 - last) / 2 * (1 + cos(pi * (t - top) / (19 - top)));
}

static void each_schedule_gives_the_rates_of_its_formula(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        formula *rate;
    } list[] = {
        {"schedule=constant,warmup=4", constant_4},
        {"schedule=linear,steps=10", linear_10},
        {"schedule=linear,warmup=3,steps=12,floor=0.25", linear_3_12},
        {"schedule=cosine,warmup=5,steps=15,floor=0.1", cosine_5_15},
        {"schedule=step,warmup=2,every=4,gamma=0.5", step_2_4},
        {"schedule=one-cycle,steps=20", one_cycle_20},
    };
    for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
        char optimizer[256];
        (void)snprintf(optimizer, sizeof optimizer, "sgd,lr=0.01,%s,groups=\"bias:lr=0.02\"",
                       list[k].spec);
        trial t = make(optimizer);
        double w[PARAMETERS][MOST], g[PARAMETERS][MOST];
        memory none = {{0}, {0}, {0}, {0}};
        memcpy(w, start, sizeof w);
        for (int i = 0; i < 25; i++) {
            const double want = 0.01 * list[k].rate(i);
            gradients(g, (const double(*)[MOST])w);
            for (int p = 0; p < PARAMETERS; p++)
                step(w[p], g[p], &none, p, i + 1,
                     &(rule){.kind = "sgd", .lr = p == B ? 2 * want : want});
            good(ebb_program_step(t.program, NULL));
            const double got = value_of(t.program, "ebb.rate", 0);
            if (fabs(got - want) > 1e-9)
                fail_msg("%s: step %d has the rate %.9g, not %.9g", list[k].spec, i, got, want);
            expect(t.program, "", w, list[k].spec, i);
        }
        drop(&t);
    }
}

/* ---- clipping and averages ---- */

static void gradients_are_clipped_by_the_norm_of_all(void **state)
{
    (void)state;
    trial t = make("momentum,lr=0.01,clip-norm=4");
    double w[PARAMETERS][MOST], g[PARAMETERS][MOST];
    memory m[PARAMETERS] = {{{0}, {0}, {0}, {0}}};
    bool clipped = false, whole = false;
    memcpy(w, start, sizeof w);
    for (int i = 1; i <= 12; i++) {
        double sum = 0;
        gradients(g, (const double(*)[MOST])w);
        for (int p = 0; p < PARAMETERS; p++)
            for (int k = 0; k < size_of(p); k++)
                sum += g[p][k] * g[p][k];
        const double norm = sqrt(sum), factor = fmin(1, 4 / (norm + 1e-6));
        *(factor < 1 ? &clipped : &whole) = true;
        for (int p = 0; p < PARAMETERS; p++) {
            for (int k = 0; k < size_of(p); k++)
                g[p][k] *= factor;
            step(w[p], g[p], &m[p], p, i, &(rule){.kind = "momentum", .lr = 0.01, .momentum = 0.9});
        }
        good(ebb_program_step(t.program, NULL));
        assert_true(fabs(value_of(t.program, "ebb.grad_norm", 0) - norm) < 1e-4 * norm);
        expect(t.program, "", w, "clip-norm=4", i);
    }
    assert_true(clipped && whole); // both happened
    drop(&t);
}

static void an_average_follows_each_weight(void **state)
{
    (void)state;
    trial t = make("sgd,lr=0.02,ema=0.75");
    double w[PARAMETERS][MOST], average[PARAMETERS][MOST], g[PARAMETERS][MOST];
    memory none = {{0}, {0}, {0}, {0}};
    memcpy(w, start, sizeof w);
    memcpy(average, start, sizeof w);
    for (int i = 1; i <= STEPS; i++) {
        gradients(g, (const double(*)[MOST])w);
        for (int p = 0; p < PARAMETERS; p++) {
            step(w[p], g[p], &none, p, i, &(rule){.kind = "sgd", .lr = 0.02});
            for (int k = 0; k < size_of(p); k++)
                average[p][k] = 0.75 * average[p][k] + 0.25 * w[p][k];
        }
        good(ebb_program_step(t.program, NULL));
        expect(t.program, "", w, "ema", i);
        expect(t.program, ".ema", average, "ema", i);
    }
    drop(&t);
}

/* The user's own file gets the averages; the step itself, which has a place for both, both. */
static void the_average_is_what_others_get(void **state)
{
    (void)state;
    trial t = make("sgd,lr=0.02,ema=0.75");
    ebb_model *own = parse();
    ebb_program *p = NULL;
    for (int i = 1; i <= STEPS; i++)
        good(ebb_program_step(t.program, NULL));
    good(ebb_program_store(t.program, own));
    good(ebb_program_store(t.program, t.model));
    good(ebb_program_compile(&p, own, NULL));
    for (int k = 0; k < PARAMETERS; k++) {
        char average[64];
        (void)snprintf(average, sizeof average, "%s.ema", names[k]);
        const ebb_graph *g = t.model->graph;
        const ebb_tensor *w = ebb_value_of(g, ebb_value_find(g, names[k]))->tensor;
        for (int i = 0; i < size_of(k); i++) {
            const double mean = value_of(t.program, average, (size_t)i);
            const double now = value_of(t.program, names[k], (size_t)i);
            assert_true(mean != now);
            assert_true(value_of(p, names[k], (size_t)i) == mean);
            assert_true((double)((const float *)w->data)[i] == now);
        }
    }
    ebb_program_free(p);
    ebb_close(own);
    drop(&t);
}

/* ---- memory ---- */

static const char *const kinds[] = {"sgd",     "momentum", "adamw", "nesterov",  "adam",
                                    "rmsprop", "adagrad",  "lion",  "adafactor", "muon"};

/* Nothing stays to the end of the step for being carried over, whatever the optimizer. */
static void every_state_is_replaced_in_place(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char optimizer[256];
        (void)snprintf(optimizer, sizeof optimizer,
                       "%s,weight-decay=0.1,schedule=cosine,warmup=3,steps=9,clip-norm=1,ema=0.9",
                       kinds[k]);
        trial t = {NULL, NULL};
        good(rewrite(&t, optimizer));
        const ebb_graph *g = t.model->graph;
        for (size_t i = 0; i < g->binding_count; i++) {
            const ebb_value next = g->bindings[i].next;
            const ebb_node_info *made = ebb_node_of(g, ebb_value_of(g, next)->producer);
            uint32_t out = 0;
            while (!ebb_same_value(made->out[out], next))
                out++;
            if (made->over == NULL || made->over[out] == 0)
                fail_msg("%s: '%s' is computed beside its state", kinds[k],
                         ebb_value_name(g, next));
        }
        drop(&t);
    }
}

/* Updates behind their gradients give the same bits. */
static void updates_of_every_kind_are_released_early(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char optimizer[256];
        (void)snprintf(optimizer, sizeof optimizer, "%s,lr=0.002,weight-decay=0.1,ema=0.9",
                       kinds[k]);
        trial late = make(optimizer);
        (void)snprintf(optimizer, sizeof optimizer, "%s,lr=0.002,weight-decay=0.1,ema=0.9,release",
                       kinds[k]);
        trial early = make(optimizer);
        for (int i = 0; i < STEPS; i++) {
            good(ebb_program_step(late.program, NULL));
            good(ebb_program_step(early.program, NULL));
        }
        assert_true(ebb_program_measure(early.program).peak_bytes <=
                    ebb_program_measure(late.program).peak_bytes);
        for (int p = 0; p < PARAMETERS; p++)
            for (int i = 0; i < size_of(p); i++)
                if (value_of(late.program, names[p], (size_t)i) !=
                    value_of(early.program, names[p], (size_t)i))
                    fail_msg("%s: %s[%d] differs where updates are early", kinds[k], names[p], i);
        drop(&late);
        drop(&early);
    }
}

/* ---- resuming ---- */

static char path[] = "/tmp/ebb-optimizers-XXXXXX.safetensors";

static void steps(ebb_program *p, int count)
{
    for (int i = 0; i < count; i++)
        good(ebb_program_step(p, NULL));
}

/* 3 + 5 steps give the bits of 8, in the middle of a warm-up. */
static void a_resumed_step_goes_on_bit_for_bit(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char optimizer[256];
        (void)snprintf(optimizer, sizeof optimizer,
                       "%s,schedule=cosine,warmup=6,steps=12,clip-norm=1,ema=0.9,"
                       "groups=\"bias:weight-decay=0.01,lr=0.003\"",
                       kinds[k]);
        trial whole = make(optimizer), first = make(optimizer), second = make(optimizer);
        steps(whole.program, 8);
        steps(first.program, 3);
        good(ebb_checkpoint_save(first.program, path, "{}"));
        good(ebb_checkpoint_load(second.program, path, NULL));
        assert_null(ebb_checkpoint_note(second.program));
        steps(second.program, 5);
        const ebb_graph *g = whole.model->graph;
        for (size_t i = 0; i < g->initializer_count; i++) {
            const char *name = ebb_value_name(g, g->initializers[i]);
            if (!ebb_value_is_state(g, g->initializers[i]))
                continue;
            ebb_named a, b;
            size_t bytes;
            good(ebb_program_get(whole.program, name, &a));
            good(ebb_program_get(second.program, name, &b));
            assert_true(ebb_type_bytes(ebb_value_of(g, g->initializers[i])->type, &bytes));
            if (memcmp(a.data, b.data, bytes) != 0)
                fail_msg("%s: '%s' differs after the checkpoint", kinds[k], name);
        }
        drop(&whole);
        drop(&first);
        drop(&second);
    }
}

/* A rate that the run itself set goes on; one that another step has counts, and so does another
 * schedule: both with a sentence. */
static void a_changed_rate_counts(void **state)
{
    (void)state;
    const float set = 0.125f;
    const ebb_named rate = {"ebb.lr", EBB_F32, 0, NULL, &set};
    trial t = make("momentum,lr=0.5"), same = make("momentum,lr=0.5"),
          other = make("momentum,lr=0.25"),
          scheduled = make("momentum,lr=0.5,schedule=linear,steps=8");
    good(ebb_program_set(t.program, &rate));
    steps(t.program, 2);
    good(ebb_checkpoint_save(t.program, path, "{}"));
    good(ebb_checkpoint_load(same.program, path, NULL));
    assert_null(ebb_checkpoint_note(same.program));
    assert_true(value_of(same.program, "ebb.lr", 0) == 0.125);
    good(ebb_checkpoint_load(other.program, path, NULL));
    assert_non_null(ebb_checkpoint_note(other.program));
    assert_string_equal(ebb_checkpoint_note(other.program),
                        "ebb.lr is 0.25 now; it was 0.5 where the checkpoint was made");
    assert_true(value_of(other.program, "ebb.lr", 0) == 0.25);
    good(ebb_checkpoint_load(scheduled.program, path, NULL));
    assert_string_equal(ebb_checkpoint_note(scheduled.program),
                        "the schedule is linear,steps=8 now; it was none where the checkpoint was "
                        "made");
    steps(scheduled.program, 1);
    assert_true(fabs(value_of(scheduled.program, "ebb.rate", 0) - 0.125 * 0.75) < 1e-8);
    drop(&t);
    drop(&same);
    drop(&other);
    drop(&scheduled);
}

/* Files of before tell nothing: a rate that differs may be either. */
static void an_older_checkpoint_with_another_rate_is_refused(void **state)
{
    (void)state;
    trial t = make("sgd,lr=0.5"), other = make("sgd,lr=0.25");
    const ebb_graph *g = t.model->graph;
    ebb_named list[16];
    size_t count = 0;
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_value_is_state(g, g->initializers[i]))
            good(ebb_program_get(t.program, ebb_value_name(g, g->initializers[i]), &list[count++]));
    good(ebb_tensors_save(
        path, list, count,
        "{\"format\": \"ebb.checkpoint/1\", \"steps\": \"0\", \"extra\": \"{}\"}"));
    good(ebb_checkpoint_load(t.program, path, NULL));
    ebb_status status = ebb_checkpoint_load(other.program, path, NULL);
    assert_int_equal(ebb_status_code(status), EBB_USAGE);
    assert_non_null(strstr(ebb_status_text(status), "ebb.lr is 0.5 in the checkpoint"));
    drop(&t);
    drop(&other);
}

/* ---- what is refused ---- */

static void says(const char *optimizer, const char *words)
{
    trial t = {NULL, NULL};
    ebb_status status = rewrite(&t, optimizer);
    if (status == NULL || strstr(ebb_status_text(status), words) == NULL)
        fail_msg("%s: '%s' instead of '%s'", optimizer,
                 status != NULL ? ebb_status_text(status) : "no error", words);
    assert_int_equal(ebb_status_code(status), EBB_USAGE);
    drop(&t);
}

static void options_without_effect_are_refused(void **state)
{
    (void)state;
    says("sgd,momentum=0.9", "sgd has no option 'momentum'");
    says("momentum,beta1=0.9", "momentum has no option 'beta1'");
    says("lion,epsilon=1e-8", "lion has no option 'epsilon'");
    says("none,lr=1", "none updates nothing: lr has no effect");
    says("adamw,warmup=10", "warmup belongs to a schedule, and none is given");
    says("adamw,schedule=constant,floor=0.1", "schedule constant has no floor");
    says("adamw,schedule=one-cycle,steps=10,warmup=3", "schedule one-cycle has no warmup");
    says("adamw,schedule=cosine", "schedule cosine needs steps=N");
    says("adamw,schedule=step", "schedule step needs every=N");
    says("adamw,schedule=linear,warmup=10,steps=10", "a warm-up of 10 steps leaves none of 10");
    says("adamw,schedule=one-cycle,steps=3", "no step to rise or fall in within 3 steps");
    says("adamw,clip-norm=0", "clip-norm takes a number above 0");
    says("adamw,ema=1", "ema takes a number of at least 0 and below 1");
    says("adafactor,beta2-decay=1", "beta2-decay takes a number from -10 to 0");
    says("adamw,groups=bias", "the group 'bias' is not GLOBS:OPTION=VALUE,...");
    says("adamw,groups=\"bias:lr=x\"", "option lr takes a number");
    says("adamw,groups=\"bias:momentum=0.5\"", "adamw has no option 'momentum'");
    says("adamw,groups=\"bias:ema=0.5\"", "ema is the same for all groups, not of 'bias'");
    says("adamw,groups=\"bias:kind=none\"", "the group 'bias' has kind=none");
    says("adamw,groups=\"*norm*:lr=1\"", "the group '*norm*' has no trained parameter");
}

int main(void)
{
    const int made = mkstemps(path, (int)strlen(".safetensors"));
    if (made < 0 || close(made) != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_optimizer_takes_the_steps_of_its_formula),
        cmocka_unit_test(muon_is_for_matrices_within_the_network),
        cmocka_unit_test(groups_have_options_of_their_own),
        cmocka_unit_test(each_schedule_gives_the_rates_of_its_formula),
        cmocka_unit_test(gradients_are_clipped_by_the_norm_of_all),
        cmocka_unit_test(an_average_follows_each_weight),
        cmocka_unit_test(the_average_is_what_others_get),
        cmocka_unit_test(every_state_is_replaced_in_place),
        cmocka_unit_test(updates_of_every_kind_are_released_early),
        cmocka_unit_test(a_resumed_step_goes_on_bit_for_bit),
        cmocka_unit_test(a_changed_rate_counts),
        cmocka_unit_test(an_older_checkpoint_with_another_rate_is_refused),
        cmocka_unit_test(options_without_effect_are_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return unlink(path) != 0 ? 1 : failed;
}
