/* test_unbiased.c: passes that draw what they keep, on whole models: over a thousand steps (a
 * hundred of the larger model) with the same weights and batch and a new key each, the mean
 * gradient of each parameter is the exact one.
 *
 * For a mean over N draws, N |mean - exact|^2 is on average the draws' variance, summed over the
 * elements; their ratio would grow with N if there were a bias. In the first step the norms that
 * sample-matmul caches are ones, in the others they are those of the step before.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/models/models.h"
#include "tests/owned.h"

/* Of elements that depend on each other: the mean of the ratio is 1, 4 is two sigmas of one alone
 * and far beyond those of many. The keys are fixed. */
static const double MOST = 4;

#define OK(call)                                  \
    do {                                          \
        ebb_status ok_ = (call);                  \
        if (ok_ != NULL)                          \
            fail_msg("%s", ebb_status_text(ok_)); \
    } while (0)

typedef struct sums { /* of one parameter's gradient, element by element */
    const char *name;
    size_t n;
    double *sum, *squares;
} sums;

typedef struct step {
    ebb_model *model;
    ebb_program *program;
    ebb_named inputs[MOST_INPUTS];
    size_t count;
} step;

static void step_open(recorded *r, const char *passes, step *s)
{
    RELEASED char *report = NULL;
    *s = (step){0};
    OK(recorded_program_report(r, "off", "none", passes, &s->model, &s->program, s->inputs,
                               &s->count, &report));
}

static void step_close(step *s)
{
    ebb_program_free(s->program);
    ebb_close(s->model);
}

static void step_run(step *s)
{
    const ebb_batch batch = {s->inputs, s->count};
    OK(ebb_program_step(s->program, &batch));
}

static void add(sums *t, ebb_program *program)
{
    ebb_named g;
    OK(ebb_program_get(program, t->name, &g));
    const float *f = g.data;
    for (size_t i = 0; i < t->n; i++) {
        t->sum[i] += (double)f[i];
        t->squares[i] += (double)f[i] * (double)f[i];
    }
}

/* How often the variance of the mean its distance is; 0 where nothing is drawn. */
static double distance(const sums *t, const float *exact, const char *model, int draws)
{
    double apart = 0, variance = 0, size = 0;
    for (size_t i = 0; i < t->n; i++) {
        double mean = t->sum[i] / draws, g = (double)exact[i];
        apart += (mean - g) * (mean - g);
        variance += fmax(t->squares[i] / draws - mean * mean, 0);
        size += g * g;
    }
    if (variance > 1e-9 * size)
        return draws * apart / variance;
    if (!(apart <= 1e-9 * size))
        fail_msg("%s: %s does not vary and is not exact", model, t->name);
    return 0;
}

static bool is_gradient(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, "_grad") == 0;
}

static void check(const char *model, const char *passes, int draws)
{
    recorded r;
    step exact, drawn;
    size_t count = 0, vary = 0;
    double worst = 0;
    recorded_need(&r, model, "ts.onnx");
    step_open(&r, "", &exact);
    step_open(&r, passes, &drawn);
    step_run(&exact);
    sums *list = calloc(ebb_program_output_count(exact.program), sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < ebb_program_output_count(exact.program); i++) {
        ebb_named g;
        const char *name = ebb_program_output_name(exact.program, i);
        if (!is_gradient(name))
            continue;
        OK(ebb_program_get(exact.program, name, &g));
        sums *t = &list[count++];
        *t = (sums){name, elements(&g), calloc(elements(&g), sizeof(double)),
                    calloc(elements(&g), sizeof(double))};
        assert_true(t->sum != NULL && t->squares != NULL);
    }
    for (int k = 0; k < draws; k++) {
        step_run(&drawn);
        for (size_t i = 0; i < count; i++)
            add(&list[i], drawn.program);
    }
    for (size_t i = 0; i < count; i++) {
        ebb_named g;
        OK(ebb_program_get(exact.program, list[i].name, &g));
        double d = distance(&list[i], g.data, model, draws);
        if (!(d <= MOST))
            fail_msg("%s with %s: the mean of %s is %.3g variances away", model, passes,
                     list[i].name, d);
        vary += d > 0;
        worst = fmax(worst, d);
        free(list[i].sum);
        free(list[i].squares);
    }
    print_message("%s, %s: %zu of %zu gradients vary, the mean is at most %.2f variances away\n",
                  model, passes, vary, count, worst);
    assert_true(vary > 0);
    free(list);
    step_close(&exact);
    step_close(&drawn);
    recorded_close(&r);
}

TEST(sampled_rows_leave_the_mean_gradient_exact)
{
    check("mlp_digits", "sample-matmul:ratio=0.3", 1000);
    check("gpt2_tiny", "sample-matmul:ratio=0.3", 100);
}

TEST(sketches_leave_the_mean_gradient_exact)
{
    check("mlp_digits", "sparsify:ratio=0.2", 1000);
    check("gpt2_tiny", "sparsify:ratio=0.2", 100);
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    return run_listed();
}
