/* test_budget.c: what `fit` promises of a budget, on steps of the samples: the arena keeps to it, a
 * smaller one never takes more memory, a larger one never more time, and a budget of just what a
 * step was made to take gives that step again. Budgets above what the step takes are budgets too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/weigh/estimate.h"
#include "kernels/device.h"
#include "onnx/file/file.h"
#include "passes/pipeline.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/share.h"
#include "tests/status.h"
#include "tests/test.h"

typedef struct plan {
    bool fits;
    uint64_t bytes;
    double ns;
    char why[4096]; /* it does not */
} plan;

static ebb_model *step_of(const char *sample)
{
    ebb_model *model;
    good(ebb_open(&model, formatted("%s/samples/digits/%s.onnx", EBB_SOURCE_DIR, sample)));
    good(ebb_set_dim(model, "batch", 16));
    good(ebb_rewrite(model,
                     "flatten,train-mode,fold,fuse,loss:cross-entropy,gradient,optimizer:adamw,"
                     "drop-saves",
                     NULL, NULL));
    return model;
}

static void weigh(plan *p, ebb_model *model)
{
    OWNED_ARENA arena = {0};
    ebb_estimate estimate;
    good(ebb_rewrite(model, "stream,alias", NULL, NULL));
    good(ebb_estimate_make(&estimate, &arena, model->graph, "cpu"));
    p->bytes = estimate.arena_bytes;
    p->ns = estimate.ns;
}

/* The step as `fit` makes it for a budget, with these options more. */
static plan fitted(const ebb_model *step, uint64_t budget, const char *more)
{
    OWNED_MODEL *copy = NULL;
    plan p = {.fits = true};
    const ebb_rewrite_options options = {.verify_each = true};
    good(ebb_model_copy(&copy, step));
    ebb_status status = ebb_rewrite(
        copy, formatted("fit:budget=%llu,time=0.03%s", (unsigned long long)budget, more), &options,
        NULL);
    if (ebb_status_code(status) == EBB_NO_PLAN) {
        p.fits = false;
        (void)snprintf(p.why, sizeof p.why, "%s", ebb_status_text(status));
    } else {
        good(status);
        weigh(&p, copy);
    }
    return p;
}

/* From more than the step takes down to what cannot be met, and plans' own bytes as budgets. */
static void walk_down(const char *sample, const char *more, uint64_t strides)
{
    ebb_model *step = step_of(sample), *copy;
    plan whole = {0}, last = {0};
    int plans = 0;
    good(ebb_model_copy(&copy, step));
    weigh(&whole, copy);
    ebb_model_free(copy);
    const uint64_t stride = whole.bytes / strides;
    for (uint64_t budget = whole.bytes + whole.bytes / 5;; plans++) {
        plan p = fitted(step, budget, more);
        if (!p.fits)
            break;
        plan again = plans % 2 == 0 ? fitted(step, p.bytes, more) : p;
        if (p.bytes > budget)
            fail_msg("%s%s: %llu bytes, with a budget of %llu", sample, more,
                     (unsigned long long)p.bytes, (unsigned long long)budget);
        if (plans > 0 && (p.bytes > last.bytes || p.ns < last.ns * (1 - 1e-8)))
            fail_msg("%s%s: %llu bytes in %.0f ns, with more: %llu bytes in %.0f ns", sample, more,
                     (unsigned long long)p.bytes, p.ns, (unsigned long long)last.bytes, last.ns);
        if (p.ns > whole.ns * (1 + 1e-8) && budget >= whole.bytes)
            fail_msg("%s%s: slower than the step that was within its budget", sample, more);
        if (!again.fits || again.bytes != p.bytes || again.ns != p.ns)
            fail_msg("%s%s: %llu bytes in %.0f ns; with a budget of so many: %llu bytes in %.0f ns",
                     sample, more, (unsigned long long)p.bytes, p.ns,
                     (unsigned long long)again.bytes, again.ns);
        last = p;
        budget = budget > whole.bytes    ? whole.bytes // then just below it, then plan by plan
                 : budget == whole.bytes ? whole.bytes - 1
                                         : p.bytes - (plans % 3 == 0 ? 1 : stride);
    }
    print_message("%s%s: %d plans, down to %llu of %llu bytes\n", sample, more, plans,
                  (unsigned long long)last.bytes, (unsigned long long)whole.bytes);
    assert_true(plans > 2);
    ebb_model_free(step);
}

TEST(a_larger_budget_is_never_slower_and_a_smaller_one_never_larger)
{
    static const char *const more[] = {"", ",allow=rounding", ",allow=lossy"};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i += FEWER) {
        walk_down("cnn", more[i], 30 / share(3));
        walk_down("transformer", more[i], 8 / share(2));
        walk_down("mlp", more[i], 50 / share(5));
    }
}

/* ---- a budget that cannot be met ---- */

/* "1.25 MiB" */
static uint64_t bytes_of(const char *text)
{
    char unit;
    double number;
    assert_int_equal(sscanf(text, "%lf %c", &number, &unit), 2);
    for (const char *units = "BKMGT"; *units != unit; units++)
        number *= 1024;
    return (uint64_t)number;
}

TEST(a_refusal_names_the_largest_tensors_first)
{
    static const char *const samples[] = {"cnn", "transformer", "mlp", "cnn"};
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        OWNED_MODEL *step = step_of(samples[i]);
        plan p = fitted(step, 1024, i == 3 ? ",disk=1GiB" : "");
        uint64_t least = UINT64_MAX, last = UINT64_MAX;
        int names = 0;
        assert_false(p.fits);
        assert_int_equal(strstr(p.why, " and ") != NULL && strstr(p.why, " without;") != NULL,
                         i == 3);
        const char *at = strstr(p.why, "it is fullest at ");
        assert_non_null(at);
        for (at = strstr(at, ", with"); at != NULL && (at = strstr(at, "' (")) != NULL; names++) {
            uint64_t bytes = bytes_of(at + 3);
            if (bytes > last)
                fail_msg("%s: a smaller tensor is named first: %s", samples[i], p.why);
            last = bytes;
            least = bytes < least ? bytes : least;
            at += 3;
        }
        if (names < 2 || least < 1024) // a scalar pins nothing
            fail_msg("%s: %s", samples[i], p.why);
    }
}

TEST(the_least_that_a_refusal_names_is_met_and_nothing_below_it)
{
    static const char words[] = "give a budget of at least ";
    static const char *const more[] = {"", ",allow=lossy"};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        OWNED_MODEL *step = step_of("cnn");
        plan p = fitted(step, 1024, more[i]);
        const char *said = strstr(p.why, words);
        assert_non_null(said);
        uint64_t least = strtoull(said + strlen(words), NULL, 10);
        plan met = fitted(step, least, more[i]);
        assert_true(met.fits);
        assert_int_equal(met.bytes, least);
        assert_false(fitted(step, least - 1, more[i]).fits);
    }
}

/* ---- what is cheap on a device ---- */

TEST(a_copy_costs_what_the_rates_of_the_device_say)
{
    static const ebb_rates fast = {.bytes = 4000};
    OWNED_MODEL *step = step_of("mlp");
    step->rates = NULL; // the host's
    assert_true(ebb_copy_ns(step->graph) == 2 / ebb_device_host.rates()->bytes);
    step->rates = &fast;
    assert_true(ebb_copy_ns(step->graph) == 2.0 / 4000);
}

/* Where a node's own time is much and a copy's is little, other offers are cheap than on the host:
 * some, but not all, are worth their time. */
TEST(what_an_offer_may_cost_is_by_the_device)
{
    static const char words[] = "nodes run again, ";
    (void)setenv("EBB_CUDA_PLUGIN", EBB_BINARY_DIR "/kernels/cuda/libebb_cuda_host_plugin.so", 0);
    OWNED_MODEL *step = step_of("transformer");
    RELEASED char *report = NULL;
    int taken = 0, heard = 0;
    good(ebb_rewrite(step, "fit:budget=95%,time=0.03,backend=cuda", NULL, &report));
    const char *note = strstr(report, words);
    assert_non_null(note);
    assert_int_equal(sscanf(note + strlen(words), "%d of %d offers", &taken, &heard), 2);
    if (taken == 0 || taken == heard)
        fail_msg("%s", report);
}

/* ---- what was tried is what the step becomes ---- */

static struct {
    const ebb_graph *step;
    int adopted, on_step,
        after; /* runs of passes: on the step's own graph, and once it had changed */
    int runs;
} seen;

ebb_status __real_ebb_pipeline_one(ebb_graph *g, const ebb_pass *pass,
                                   const struct ebb_option_value *options, ebb_decides decides,
                                   void *context, ebb_arena *keep, ebb_report *report);
ebb_status __wrap_ebb_pipeline_one(ebb_graph *g, const ebb_pass *pass,
                                   const struct ebb_option_value *options, ebb_decides decides,
                                   void *context, ebb_arena *keep, ebb_report *report);
ebb_status __wrap_ebb_pipeline_one(ebb_graph *g, const ebb_pass *pass,
                                   const struct ebb_option_value *options, ebb_decides decides,
                                   void *context, ebb_arena *keep, ebb_report *report)
{
    seen.runs++;
    seen.on_step += g == seen.step;
    seen.after += seen.adopted > 0;
    return __real_ebb_pipeline_one(g, pass, options, decides, context, keep, report);
}

void __real_ebb_model_adopt(ebb_model *model, ebb_model *copy);
void __wrap_ebb_model_adopt(ebb_model *model, ebb_model *copy);
void __wrap_ebb_model_adopt(ebb_model *model, ebb_model *copy)
{
    seen.adopted += model->graph == seen.step;
    __real_ebb_model_adopt(model, copy);
}

/* Passes run on copies, one a variant, and none when the choice is made: with values made again, in parts of the batch,
 * and with some of them on disk. */
TEST(the_chosen_copy_becomes_the_step_and_nothing_runs_again)
{
    static const char *const passes[] = {"fit:budget=80%,time=0.03",
                                         "fit:budget=35%,time=0.03,allow=rounding",
                                         "fit:budget=60%,time=0.03,disk=1GiB"};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        OWNED_MODEL *step = step_of("transformer");
        memset(&seen, 0, sizeof seen);
        seen.step = step->graph;
        good(ebb_rewrite(step, passes[i], NULL, NULL));
        if (seen.adopted != 1 || seen.on_step != 0 || seen.after != 0 || seen.runs == 0)
            fail_msg("%s: %d copies taken over; of %d runs of passes %d on the step itself, %d "
                     "after the choice",
                     passes[i], seen.adopted, seen.runs, seen.on_step, seen.after);
    }
}
