/* test_parts.c: passes that compute in parts, on whole models: loss and every gradient are those of
 * the step as it was, within float32 rounding, and the arena is as planned.
 *
 * Sums are made in another order: 3e-6 of the largest magnitude in the tensor + 1e-7, or 4x
 * PyTorch's own float32 noise where that is larger (relative to that magnitude, or to a thousandth
 * of the largest in all gradients).
 */
#include <math.h>

#include "tests/models/models.h"

static const double RELATIVE = 3e-6, ABSOLUTE = 1e-7;

static double largest(const ebb_named *t)
{
    const float *f = t->data;
    double most = 0;
    for (size_t i = 0, n = elements(t); i < n; i++)
        most = fmax(most, fabs((double)f[i]));
    return most;
}

static bool is_gradient(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, "_grad") == 0;
}

/* The largest difference of an output over its bound. */
static double compare(recorded *r, ebb_program *whole, ebb_program *parts, char worst[128])
{
    double scale = 0, most = 0,
           noise = json_number_value(json_object_get(
               json_object_get(json_object_get(r->manifest, "float32_noise"), "grad"), "max_rel"));
    ebb_named x, y;
    for (size_t i = 0; i < ebb_program_output_count(whole); i++) {
        const char *name = ebb_program_output_name(whole, i);
        MUST(ebb_program_get(whole, name, &x));
        scale = is_gradient(name) ? fmax(scale, largest(&x) / 1000) : scale;
    }
    for (size_t i = 0; i < ebb_program_output_count(whole); i++) {
        const char *name = ebb_program_output_name(whole, i);
        MUST(ebb_program_get(whole, name, &x));
        MUST(ebb_program_get(parts, name, &y));
        double bound = RELATIVE * largest(&x) + ABSOLUTE, ratio = 0;
        if (is_gradient(name))
            bound = fmax(bound, 4 * noise * fmax(largest(&x), scale));
        const float *a = x.data, *b = y.data;
        for (size_t k = 0, n = elements(&x); k < n; k++) {
            double d = fabs((double)a[k] - (double)b[k]) / bound;
            ratio = d > ratio || isnan(d) ? d : ratio;
        }
        if (ratio > most || isnan(ratio)) {
            most = isnan(ratio) ? INFINITY : ratio;
            (void)snprintf(worst, 128, "%.120s", name);
        }
    }
done:
    return most;
}

static void check(recorded *r, const char *dropout, const char *pass)
{
    ebb_model *models[2] = {NULL, NULL};
    ebb_program *programs[2] = {NULL, NULL};
    char worst[128] = "";
    for (int k = 0; k < 2; k++) {
        ebb_named inputs[MOST_INPUTS];
        size_t count;
        MUST(recorded_program(r, dropout, "none", k == 0 ? "" : pass, &models[k], &programs[k],
                              inputs, &count));
        const ebb_batch batch = {inputs, count};
        MUST(ebb_program_step(programs[k], &batch));
    }
    ebb_program_facts f = ebb_program_measure(programs[1]);
    double ratio = compare(r, programs[0], programs[1], worst);
    bool right = ratio <= 1 && f.planned_arena_bytes == f.measured_arena_bytes;
    print_message("%-19s %-12s %-8s %-20s %8.3f  %s\n", r->model, r->file, dropout, pass, ratio,
                  right ? "ok" : worst);
    r->failures += !right;
done:
    for (int k = 0; k < 2; k++) {
        ebb_program_free(programs[k]);
        ebb_close(models[k]);
    }
}

static void on_every_small_model(const char *dropout, const char *pass)
{
    int failures = 0;
    for (size_t m = 0; m < sizeof small_models / sizeof small_models[0]; m++)
        for (size_t e = 0; e < 2; e++) {
            recorded r;
            recorded_need(&r, small_models[m], exporters[e]);
            check(&r, dropout, pass);
            failures += r.failures;
            recorded_close(&r);
        }
    assert_int_equal(failures, 0);
}

TEST(losses_by_blocks_are_those_of_the_whole)
{
    on_every_small_model("off", "chunk-loss:rows=3");
}

TEST(gradients_of_parts_of_the_batch_add_up_to_those_of_the_whole)
{
    on_every_small_model("off", "micro-batch:2");
    on_every_small_model("off", "micro-batch:4");
}

/* They draw what the whole draws, in whichever axis the batch is. */
TEST(dropout_of_parts_is_that_of_the_whole)
{
    on_every_small_model("on", "micro-batch:2");
    on_every_small_model("on", "dropout-seed,micro-batch:4");
}

TEST(gradients_of_parts_of_the_sequence_add_up_to_those_of_the_whole)
{
    on_every_small_model("off", "stream-bp:parts=2");
    on_every_small_model("off", "stream-bp:parts=2,saved=kept");
    on_every_small_model("on", "attention,stream-bp:parts=4");
}

/* What recompute runs again is run again by parts. */
TEST(copies_of_parts_of_the_sequence_are_those_of_the_whole)
{
    static const char *const models[] = {"bert_tiny", "gpt2_tiny"};
    for (size_t m = 0; m < 2; m++)
        for (size_t e = 0; e < 2; e++) {
            recorded r;
            recorded_need(&r, models[m], exporters[e]);
            check(&r, "on", "recompute:planner=chain-dp,budget=90%,stream-bp:parts=2");
            assert_int_equal(r.failures, 0);
            recorded_close(&r);
        }
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    return run_listed();
}
