/* test_optimizers.c: steps of each optimizer of optimizers.def beside the formulas of its paper or of
 * PyTorch's documentation, in double; schedules beside closed formulas; clipping, groups, averages.
 */
#include "tests/formatted.h"
#include "tests/passes/optimizers.h"

enum { MOST = 12 };

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
    double share = pow(t, -0.8), q[MOST] = {0}, mean = 0;
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

TEST(each_optimizer_takes_the_steps_of_its_formula)
{
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
TEST(muon_is_for_matrices_within_the_network)
{
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

TEST(groups_have_options_of_their_own)
{
    const rule main = {
        .kind = "adamw", .lr = 0.02, .decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8};
    rule rules[PARAMETERS] = {main, main, main};
    rules[H].lr = 0.005;
    rules[B].decay = 0;
    follows("adamw,lr=0.02,weight-decay=0.1,beta2=0.99,groups="
            "\"Bias:weight-decay=0|*norm*,LAST*:lr=0.005\"",
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

TEST(each_schedule_gives_the_rates_of_its_formula)
{
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
        trial t = make(formatted("sgd,lr=0.01,%s,groups=\"bias:lr=0.02\"", list[k].spec));
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

TEST(gradients_are_clipped_by_the_norm_of_all)
{
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

TEST(an_average_follows_each_weight)
{
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
