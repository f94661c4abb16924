/* test_recorded.c: whole training steps against numbers recorded from PyTorch (float64).
 *
 * For each small model and exporter: loss, every gradient, running statistics, and parameters after
 * three steps of SGD with momentum and three of AdamW, in one table. The models and their numbers
 * are not part of the repository: without ../shared/models this test skips. samples/digits has its
 * own.
 *
 * Bounds. Gradients: 2e-5 max|ref| + 1e-7, or 4x PyTorch's own float32 noise where that is larger.
 * Parameters after three steps: 10x that noise. A noise is relative to the largest magnitude in the
 * tensor, or to a thousandth of the largest in its group where that is larger. AdamW divides noise
 * by noise where a gradient element is near zero, so there the noise counts in absolute terms too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include "tests/models/models.h"

static double number(const json_t *o, const char *a, const char *b)
{
    return json_number_value(json_object_get(json_object_get(o, a), b));
}

/* ---- comparing ---- */

static double largest(const ebb_named *t)
{
    const float *f = t->data;
    double most = 0;
    for (size_t i = 0, n = elements(t); i < n; i++)
        most = fmax(most, fabs((double)f[i]));
    return most;
}

static double group_largest(const recorded *r, const char *group)
{
    double most = 0;
    for (size_t i = 0; i < ebb_data_count(r->reference); i++) {
        const ebb_named *t = ebb_data_at(r->reference, i);
        if (strncmp(t->name, group, strlen(group)) == 0)
            most = fmax(most, largest(t));
    }
    return most;
}

static double difference(const ebb_named *got, const ebb_named *want)
{
    const float *a = got->data, *b = want->data;
    double most = 0;
    if (got->rank != want->rank || elements(got) != elements(want))
        return INFINITY;
    for (size_t i = 0, n = elements(got); i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        most = d > most || isnan(d) ? d : most;
        if (isnan(d))
            return INFINITY;
    }
    return most;
}

typedef struct verdict {
    double worst; /* largest difference over its bound */
    char name[128];
    int count;
} verdict;

/* Compares every "GROUP/NAME" of the reference with the program's value of NAME + suffix. */
static verdict compare(recorded *r, ebb_program *program, const char *group, const char *suffix,
                       double noise, double times, double relative, double absolute, bool skip_zero)
{
    verdict v = {0};
    double scale = group_largest(r, group) / 1000.0;
    for (size_t i = 0; i < ebb_data_count(r->reference); i++) {
        const ebb_named *want = ebb_data_at(r->reference, i);
        char name[512];
        ebb_named got;
        if (strncmp(want->name, group, strlen(group)) != 0 || want->dtype != 1)
            continue;
        const char *parameter = want->name + strlen(group);
        if (skip_zero && is_near_zero(r, parameter))
            continue;
        (void)snprintf(name, sizeof name, "%s%s", name_in_file(r, parameter), suffix);
        double bound =
            fmax(relative * largest(want) + absolute, times * noise * fmax(largest(want), scale));
        double ratio = INFINITY;
        if (ebb_program_get(program, name, &got) == NULL)
            ratio = difference(&got, want) / bound;
        v.count++;
        if (ratio > v.worst) {
            v.worst = ratio;
            (void)snprintf(v.name, sizeof v.name, "%.120s", name);
        }
    }
    if (v.worst > 1.0) {
        print_error("%s/%s: %s is %.3g times its bound away\n", r->model, r->file, v.name, v.worst);
        r->failures++;
    }
    return v;
}

/* ---- one step file ---- */

static void check_arena(recorded *r, ebb_program *program)
{
    ebb_program_facts f = ebb_program_measure(program);
    if (f.planned_arena_bytes == f.measured_arena_bytes && f.planned_arena_bytes >= f.peak_bytes)
        return;
    print_error("%s/%s: planned %llu bytes, measured %llu\n", r->model, r->file,
                (unsigned long long)f.planned_arena_bytes,
                (unsigned long long)f.measured_arena_bytes);
    r->failures++;
}

static void gradients_agree(recorded *r, const char *memory, verdict *loss, verdict *grad,
                            verdict *buffer)
{
    ebb_model *model = NULL;
    ebb_program *program = NULL;
    ebb_named inputs[MOST_INPUTS];
    size_t count;
    const json_t *noise = json_object_get(r->manifest, "float32_noise");
    MUST(recorded_program(r, "off", "none", memory, &model, &program, inputs, &count));
    const ebb_batch batch = {inputs, count};
    MUST(ebb_program_step(program, &batch));
    *loss =
        compare(r, program, "loss", "loss", number(noise, "loss", "max_rel"), 4, 2e-5, 1e-7, false);
    *grad = compare(r, program, "grad/", "_grad", number(noise, "grad", "max_rel"), 4, 2e-5, 1e-7,
                    false);
    *buffer = compare(r, program, "buffer_after/", "", number(noise, "grad", "max_rel"), 4, 2e-5,
                      1e-7, false);
    check_arena(r, program);
done:
    ebb_program_free(program);
    ebb_close(model);
}

static verdict three_steps_agree(recorded *r, const char *memory, const char *optimizer,
                                 const char *group, const char *noise_name)
{
    verdict v = {0};
    ebb_model *model = NULL;
    ebb_program *program = NULL;
    ebb_named inputs[MOST_INPUTS];
    size_t count;
    const json_t *noises = json_object_get(r->manifest, "float32_noise");
    double noise = number(noises, noise_name, "max_rel");
    double absolute =
        strcmp(noise_name, "adamw3") == 0 ? 10 * number(noises, noise_name, "max_abs") : 0;
    MUST(recorded_program(r, "off", optimizer, memory, &model, &program, inputs, &count));
    const ebb_batch batch = {inputs, count};
    for (int i = 0; i < 3; i++)
        MUST(ebb_program_step(program, &batch));
    v = compare(r, program, group, "", noise, 10, 0, absolute, true);
    check_arena(r, program);
done:
    ebb_program_free(program);
    ebb_close(model);
    return v;
}

static int check_file(recorded *r, const char *memory)
{
    verdict loss = {0}, grad = {0}, buffer = {0};
    gradients_agree(r, memory, &loss, &grad, &buffer);
    verdict sgd = three_steps_agree(r, memory, "momentum,lr=0.1,momentum=0.9", "sgd3/", "sgd3");
    verdict adamw = three_steps_agree(r, memory, "adamw,lr=0.001", "adamw3/", "adamw3");
    print_message("%-19s %-12s %8.3f %8.3f (%3d) %8.3f (%2d) %8.3f %8.3f   %s\n", r->model, r->file,
                  loss.worst, grad.worst, grad.count, buffer.worst, buffer.count, sgd.worst,
                  adamw.worst, r->failures == 0 ? "ok" : "FAILED");
    return r->failures;
}

/* Other kernels than those of the CPU are asked about kernels, not about graphs. */
static bool is_skipped(size_t model, size_t exporter)
{
    return getenv("EBB_TEST_BACKEND") != NULL && !has_turn(model, exporter);
}

static void every_small_model_agrees_with_pytorch(void **state)
{
    (void)state;
    int failures = 0;
    print_message("largest difference over its bound (at most 1)\n%-19s %-12s %8s %14s %13s %8s "
                  "%8s\n",
                  "model", "file", "loss", "gradients", "statistics", "sgd3", "adamw3");
    for (size_t m = 0; m < sizeof small_models / sizeof small_models[0]; m++)
        for (size_t e = 0; e < 2; e++) {
            recorded r;
            if (is_skipped(m, e))
                continue;
            if (!recorded_open(&r, small_models[m], exporters[e])) {
                print_message("SKIP: no recorded models beside the repository\n");
                skip();
            }
            failures += check_file(&r, "");
            recorded_close(&r);
        }
    assert_int_equal(failures, 0);
}

/* Rounding passes compute the same step by other sums: the same bounds hold. */
static void models_agree_with_attention_in_one_node(void **state)
{
    (void)state;
    static const char *const models[] = {"bert_tiny", "gpt2_tiny"};
    int failures = 0;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
        for (size_t e = 0; e < 2; e++) {
            recorded r;
            if (is_skipped(m, e))
                continue;
            if (!recorded_open(&r, models[m], exporters[e])) {
                print_message("SKIP: no recorded models beside the repository\n");
                skip();
            }
            failures += check_file(&r, "attention");
            recorded_close(&r);
        }
    assert_int_equal(failures, 0);
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_model_agrees_with_pytorch),
        cmocka_unit_test(models_agree_with_attention_in_one_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
