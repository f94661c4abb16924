/* test_fit.c: steps made to fit, on whole models: either nothing is changed and the error says so,
 * or the arena keeps to the budget, is as planned when run, and every bit of loss, gradients and
 * states is that of the step as it was. Less memory is never asked for in vain: budgets are
 * monotone.
 */
#include <stdlib.h>

#include "exec/weigh/estimate.h"
#include "onnx/graph/graph.h"
#include "tests/formatted.h"
#include "tests/models/models.h"
#include "tests/owned.h"

enum { BUDGETS = 16, HIGHEST = 95, LOWEST = 20, STEP = 5 }; /* in percent of the step's arena */

/* A step before any memory pass, and what it computes. */
typedef struct whole {
    const char *optimizer, *precision; /* the latter: a pass before the gradient, or "" */
    ebb_named inputs[MOST_INPUTS];
    size_t count;
    ebb_model *model;
    ebb_program *program;
    uint64_t bytes;
} whole;

/* What a plan takes, as estimated. */
typedef struct taken {
    uint64_t bytes;
    double ns;
    bool fits;
} taken;

static ebb_status step(ebb_program *program, const whole *w)
{
    const ebb_batch batch = {w->inputs, w->count};
    ebb_status status = NULL;
    for (int i = 0; status == NULL && i < 2; i++)
        status = ebb_program_step(program, &batch);
    return status;
}

static ebb_status whole_open_in(whole *w, recorded *r, const char *optimizer, const char *precision)
{
    *w = (whole){.optimizer = optimizer, .precision = precision};
    ebb_status status = recorded_program(r, "on", optimizer, precision, &w->model, &w->program,
                                         w->inputs, &w->count);
    if (status == NULL)
        status = step(w->program, w);
    if (status == NULL)
        w->bytes = ebb_program_measure(w->program).planned_arena_bytes;
    return status;
}

static ebb_status whole_open(whole *w, recorded *r, const char *optimizer)
{
    return whole_open_in(w, r, optimizer, "");
}

static void whole_close(whole *w)
{
    ebb_program_free(w->program);
    ebb_close(w->model);
}

/* The step again, for a pass to work on. */
static ebb_status model_again(recorded *r, const whole *w, ebb_model **model)
{
    ebb_status status = ebb_open(model, formatted("%s%s/%s", SHARED, r->model, r->file));
    for (size_t i = 0; status == NULL && i < w->count; i++)
        if (strcmp(w->inputs[i].name, "target") != 0)
            status = ebb_set_shape(*model, w->inputs[i].name, w->inputs[i].dims, w->inputs[i].rank);
    if (status == NULL)
        status = recorded_rewrite(r, *model, "on", w->optimizer, w->precision);
    /* Any pass takes the marks of `alias` off. */
    return status != NULL ? status : ebb_rewrite(*model, "drop-saves", NULL, NULL);
}

/* ---- the same bits ---- */

static bool same_bits(ebb_program *a, ebb_program *b, const char *name)
{
    ebb_named x, y;
    if (ebb_program_get(a, name, &x) != NULL || ebb_program_get(b, name, &y) != NULL)
        return false;
    size_t size = x.dtype == 7 || x.dtype == 11 ? 8 : x.dtype == 9 || x.dtype == 2 ? 1 : 4;
    return elements(&x) == elements(&y) && memcmp(x.data, y.data, elements(&x) * size) == 0;
}

/* What differs between two programs of one model, by name; NULL: nothing. */
static const char *difference(ebb_program *a, ebb_program *b, ebb_data *reference)
{
    ebb_named x;
    if (ebb_program_output_count(a) != ebb_program_output_count(b))
        return "(the number of outputs)";
    for (size_t i = 0; i < ebb_program_output_count(a); i++)
        if (!same_bits(a, b, ebb_program_output_name(a, i)))
            return ebb_program_output_name(a, i);
    for (size_t i = 0; i < ebb_data_count(reference); i++) {
        const ebb_named *t = ebb_data_at(reference, i);
        if (strncmp(t->name, "grad/", 5) == 0 && ebb_program_get(a, t->name + 5, &x) == NULL &&
            !same_bits(a, b, t->name + 5))
            return t->name + 5;
    }
    return NULL;
}

static void complain(recorded *r, const whole *w, const char *pass, const char *what)
{
    print_error("%s/%s, optimizer %s, %s of %llu bytes: %s\n", r->model, r->file, w->optimizer,
                pass, (unsigned long long)w->bytes, what);
    r->failures++;
}

static void check_run(recorded *r, const whole *w, const char *pass, uint64_t budget, bool exact,
                      ebb_model *model)
{
    OWNED_PROGRAM *program = NULL;
    char text[256];
    const ebb_compile_options options = {.backend = getenv("EBB_TEST_BACKEND")};
    MUST(ebb_program_compile(&program, model, &options));
    MUST(step(program, w));
    ebb_program_facts f = ebb_program_measure(program);
    (void)snprintf(text, sizeof text, "planned %llu, measured %llu",
                   (unsigned long long)f.planned_arena_bytes,
                   (unsigned long long)f.measured_arena_bytes);
    if (f.planned_arena_bytes > budget || f.measured_arena_bytes != f.planned_arena_bytes)
        complain(r, w, pass, text);
    const char *name = exact ? difference(w->program, program, r->reference) : NULL;
    (void)snprintf(text, sizeof text, "%.200s has other bits", name == NULL ? "" : name);
    if (name != NULL)
        complain(r, w, pass, text);
done:
    return;
}

/* The step under this budget, by a planner or by fit (planner NULL), which may be allowed more than
 * exact offers; run: also runs it. */
static taken fit(recorded *r, const whole *w, const char *planner, const char *allow, int percent,
                 bool run)
{
    char pass[128], text[256], *before = NULL, *after = NULL;
    OWNED_MODEL *model = NULL;
    OWNED_ARENA arena = {0};
    ebb_estimate estimate;
    taken t = {0};
    uint64_t budget = w->bytes * (uint64_t)percent / 100;
    MUST(model_again(r, w, &model));
    MUST(ebb_inspect_text(model, &before));
    if (planner != NULL)
        (void)snprintf(pass, sizeof pass, "recompute:planner=%s,budget=%llu", planner,
                       (unsigned long long)budget);
    else
        (void)snprintf(pass, sizeof pass, "fit:budget=%llu,time=0.05%s", (unsigned long long)budget,
                       allow != NULL ? allow : "");
    const ebb_rewrite_options options = {.verify_each = true};
    ebb_status status = ebb_rewrite(model, pass, &options, NULL);
    if (status != NULL && ebb_status_code(status) == EBB_NO_PLAN) {
        MUST(ebb_inspect_text(model, &after));
        if (strcmp(before, after) != 0)
            complain(r, w, pass, "refused, but changed the graph");
        goto done;
    }
    MUST(status);
    MUST(ebb_rewrite(model, "stream,alias", &options, NULL));
    MUST(ebb_estimate_make(&estimate, &arena, model->graph, "cpu"));
    t = (taken){estimate.arena_bytes, estimate.ns, true};
    (void)snprintf(text, sizeof text, "the plan is above the budget: %llu bytes",
                   (unsigned long long)t.bytes);
    if (t.bytes > budget)
        complain(r, w, pass, text);
    if (run)
        check_run(r, w, pass, budget, allow == NULL, model);
done:
    ebb_release(before);
    ebb_release(after);
    return t;
}

/* ---- fit ---- */

/* Times are sums of the same terms in another order. */
static void check_monotone(recorded *r, const whole *w, const taken *t, int percent)
{
    char text[256];
    const taken *more = t - 1; /* what a larger budget got */
    (void)snprintf(text, sizeof text,
                   "at %d %%: %llu bytes, %.0f ns; with more: %llu bytes, %.0f ns", percent,
                   (unsigned long long)t->bytes, t->ns, (unsigned long long)more->bytes, more->ns);
    if (!more->fits)
        complain(r, w, "fit", "fits, though a larger budget did not");
    else if (t->bytes > more->bytes || t->ns < more->ns * (1 - 1e-9))
        complain(r, w, "fit", text);
}

/* Where packing takes long, and for the second exporter, a few budgets must do. */
static int stride_of(const recorded *r)
{
    bool large = strstr(r->model, "net") != NULL || strstr(r->model, "lstm") != NULL;
    bool first = strcmp(r->file, exporters[0]) == 0;
    return large ? (first ? 8 : 16) : first ? (int)share(3) : 5;
}

static void check_fit(recorded *r)
{
    whole w;
    taken t[BUDGETS] = {{0}};
    int fitted = 0, tried = 0, stride = stride_of(r);
    MUST(whole_open(&w, r, "none"));
    for (int percent = HIGHEST; percent >= LOWEST; percent -= STEP * stride) {
        t[tried] = fit(r, &w, NULL, NULL, percent, percent % 10 == 0 || stride > 1);
        fitted += t[tried].fits;
        if (tried > 0 && t[tried].fits)
            check_monotone(r, &w, &t[tried], percent);
        tried++;
    }
    whole_close(&w);
    MUST(whole_open(&w, r, "adamw"));
    (void)fit(r, &w, NULL, NULL, 70, true);
    print_message("%-19s %-12s %2d of %2d budgets met, %llu bytes\n", r->model, r->file, fitted,
                  tried, (unsigned long long)w.bytes);
done:
    whole_close(&w);
}

static void check_planners(recorded *r)
{
    static const char *const planners[] = {"sqrt",    "uniform", "chain-dp",  "chain-linear",
                                           "revolve", "rotor",   "lower-set", "dtr"};
    whole w = {0};
    if (stride_of(r) > 4)
        return;
    MUST(whole_open(&w, r, "none"));
    const size_t one_in = share(2); // another half of them for each model
    for (size_t i = strlen(r->model) % one_in; i < sizeof planners / sizeof *planners;
         i += one_in) {
        bool high = fit(r, &w, planners[i], NULL, 70, true).fits;
        bool low = fit(r, &w, planners[i], NULL, 40, true).fits;
        print_message("%-19s %-12s %-12s %s\n", r->model, r->file, planners[i],
                      low    ? "40 %"
                      : high ? "70 %"
                             : "neither");
    }
done:
    whole_close(&w);
}

/* Where codes are allowed, more budgets can be met, and none is broken. */
static void check_lossy(recorded *r)
{
    whole w = {0};
    if (stride_of(r) > 8)
        return;
    MUST(whole_open(&w, r, "none"));
    for (int percent = 75; percent >= 45; percent -= 15) {
        bool exact = fit(r, &w, NULL, NULL, percent, false).fits;
        bool lossy = fit(r, &w, NULL, ",allow=lossy,error=1", percent, true).fits;
        print_message("%-19s %-12s %2d %%: exact %s, lossy %s\n", r->model, r->file, percent,
                      exact ? "fits" : "does not", lossy ? "fits" : "does not");
        if (exact && !lossy)
            complain(r, &w, "fit", "no longer fits where codes are allowed");
    }
done:
    whole_close(&w);
}

/* Below so many bytes no plan can be, as a refusal says; 0: it does not say so. */
static uint64_t bound_of(recorded *r, const whole *w)
{
    static const char words[] = "no plan at all can be below ";
    OWNED_MODEL *model = NULL;
    uint64_t bound = 0;
    MUST(model_again(r, w, &model));
    ebb_status status = ebb_rewrite(model, "fit:budget=1,time=0.01", NULL, NULL);
    const char *said = status != NULL ? strstr(ebb_status_text(status), words) : NULL;
    char unit;
    double amount;
    if (said != NULL && sscanf(said + strlen(words), "%lf %c", &amount, &unit) == 2)
        bound = (uint64_t)(amount * (unit == 'M' ? 1 << 20 : unit == 'K' ? 1 << 10 : 1));
done:
    return bound;
}

/* In 16 bits: beside the step in 16 bits that nothing was asked of. What can go is little: states,
 * and the copies in float32 that the largest operator computes with, are most of these steps; and
 * in float16 every gradient waits until all are known to be finite, which the bound does not know:
 * there the peak is mostly the optimizer's. So of what is above the bound a third must go, and a
 * twentieth. */
static void check_halves(recorded *r)
{
    static const char *const models[] = {"cnn_digits", "bert_tiny", "gelu_block_dropout"};
    static const char *const precisions[] = {"precision:bf16", "precision:fp16"};
    bool wanted = false;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        wanted |= strcmp(models[i], r->model) == 0;
    for (int k = 0; k < 2 && wanted; k++) {
        whole w = {0};
        MUST(whole_open_in(&w, r, k == 0 ? "none" : "adamw", precisions[k]));
        uint64_t bound = bound_of(r, &w), budget = w.bytes - (w.bytes - bound) / (k == 0 ? 3 : 20);
        int percent = (int)((100 * budget + w.bytes - 1) / w.bytes);
        bool fits = fit(r, &w, NULL, NULL, percent, true).fits;
        print_message("%-19s %-14s %d %% %s, no plan below %d %%\n", r->model, precisions[k],
                      percent, fits ? "met" : "not met", (int)(100 * bound / w.bytes));
        if (!fits || bound == 0 || bound >= w.bytes)
            complain(r, &w, "fit", "does not meet what can be met");
    done:
        whole_close(&w);
    }
}

/* With a disk plans are in the order of what they promise, and what they take is seen when they are tried: the first
 * that keeps to the budget took 1.4260 and 1.3768 times the step's time, the best of them 1.4201 and 1.3724. */
static void check_tried(recorded *r)
{
    static const struct {
        int percent;
        double most;
    } known[] = {{35, 1.423}, {37, 1.3745}};
    whole w;
    MUST(whole_open(&w, r, "adamw"));
    const taken all = fit(r, &w, NULL, "", 100, false);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const taken t = fit(r, &w, NULL, ",disk=1GiB", known[i].percent, false);
        if (!t.fits || t.ns > known[i].most * all.ns)
            complain(r, &w, "fit", formatted("%d %%: %.4f times", known[i].percent, t.ns / all.ns));
    }
done:
    whole_close(&w);
}

static void on_small_models(void (*check)(recorded *), size_t exporter_count)
{
    int failures = 0;
    for (size_t m = 0; m < sizeof small_models / sizeof small_models[0]; m++)
        for (size_t e = 0; e < exporter_count; e++) {
            recorded r;
            if (exporter_count > 1 && !has_turn(m, e))
                continue;
            recorded_need(&r, small_models[m], exporters[e]);
            check(&r);
            failures += r.failures;
            recorded_close(&r);
        }
    assert_int_equal(failures, 0);
}

TEST(a_budget_is_kept_and_no_bit_changes)
{
    on_small_models(check_fit, 2);
}

TEST(a_budget_of_a_step_in_16_bits_is_kept_and_no_bit_changes)
{
    on_small_models(check_halves, 1);
}

TEST(every_planner_keeps_a_budget_and_changes_no_bit)
{
    on_small_models(check_planners, 1);
}

TEST(codes_keep_a_budget_too)
{
    on_small_models(check_lossy, 1);
}

TEST(the_fastest_of_the_plans_that_were_tried_is_taken)
{
    recorded r;
    recorded_need(&r, "gpt2_tiny", exporters[0]);
    check_tried(&r);
    assert_int_equal(r.failures, 0);
    recorded_close(&r);
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    return run_listed();
}
