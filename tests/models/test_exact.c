/* test_exact.c: exact memory passes on whole models, values elsewhere and schedules among them: every output and
 * state bit-equal, bytes as planned in each place. */
#include <stdlib.h>

#include "onnx/file/file.h"
#include "tests/formatted.h"
#include "tests/models/models.h"
#include "tests/owned.h"
#include "tests/status.h"

enum { EXPORTERS = 2 };

/* Alone with the gradients as outputs; together with an optimizer, whose states pile up
 * differences. */
static const char *const alone[] = {
    "sign-mask",    "pool-index",        "pack-bools",      "dropout-mask",
    "dropout-seed", "dropout-recompute", "release,reorder", "offload:least=1,values=*",
    "rows-in-place"};
static const char *const together[] = {
    "sign-mask,dropout-seed,dropout-recompute",
    "pool-index,sign-mask,pack-bools,dropout-recompute,dropout-mask",
    "sign-mask,pool-index,dropout-seed,sign-mask,release,reorder"};

/* The same in 16 bits, by one exporter in bfloat16 and by the other in float16. */
static const char *const halves[] = {"precision:bf16", "precision:fp16"};
static const char *const in_halves[] = {
    "loss-in-place", "sign-mask,dropout-seed,dropout-recompute,release,reorder",
    "pool-index,sign-mask,pack-bools,dropout-recompute,dropout-mask,expand-again,loss-in-place"};

/* What differs between two programs of one model, by name; NULL: nothing. */
static const char *difference(ebb_program *a, ebb_program *b, ebb_data *reference)
{
    for (size_t i = 0; i < ebb_program_output_count(a); i++) {
        const char *name = ebb_program_output_name(a, i);
        ebb_named x, y;
        if (ebb_program_get(a, name, &x) != NULL || ebb_program_get(b, name, &y) != NULL)
            return name;
        size_t size = x.dtype == 7 || x.dtype == 11 ? 8 : x.dtype == 9 || x.dtype == 2 ? 1 : 4;
        if (elements(&x) != elements(&y) || memcmp(x.data, y.data, elements(&x) * size) != 0)
            return name;
    }
    for (size_t i = 0; i < ebb_data_count(reference); i++) {
        const ebb_named *t = ebb_data_at(reference, i);
        ebb_named x, y;
        if (strncmp(t->name, "grad/", 5) != 0 || ebb_program_get(a, t->name + 5, &x) != NULL)
            continue;
        if (ebb_program_get(b, t->name + 5, &y) != NULL ||
            memcmp(x.data, y.data, elements(&x) * sizeof(float)) != 0)
            return t->name;
    }
    return NULL;
}

/* Two steps; the program after them. */
static ebb_status run(recorded *r, const char *optimizer, const char *memory, ebb_model **model,
                      ebb_program **program)
{
    ebb_named inputs[MOST_INPUTS];
    size_t count;
    ebb_status status =
        recorded_program(r, "on", optimizer, memory, model, program, inputs, &count);
    const ebb_batch batch = {inputs, count};
    for (int step = 0; status == NULL && step < 2; step++)
        status = ebb_program_step(*program, &batch);
    return status;
}

/* Bytes are as planned, and bits those of `kept`. */
static void check(recorded *r, const char *optimizer, ebb_program *kept, const char *pass)
{
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    MUST(run(r, optimizer, pass, &model, &program));
    const ebb_program_facts f = ebb_program_measure(program);
    if (f.planned_arena_bytes != f.measured_arena_bytes || f.planned_disk_bytes != f.disk_bytes ||
        f.planned_host_bytes != f.host_bytes) {
        print_error("%s/%s: with %s, planned and measured bytes differ\n", r->model, r->file, pass);
        r->failures++;
    }
    const char *name = difference(kept, program, r->reference);
    if (name != NULL) {
        print_error("%s/%s: with %s, %s has other bits\n", r->model, r->file, pass, name);
        r->failures++;
    }
done:
    return;
}

/* Each of these against the step with those passes alone that `before` names. */
static void compare(recorded *r, const char *optimizer, const char *before,
                    const char *const *passes, size_t count)
{
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    MUST(run(r, optimizer, before, &model, &program));
    for (size_t p = 0; p < count; p++)
        check(r, optimizer, program, passes[p]);
done:
    return;
}

static void compare_halves(recorded *r, const char *half)
{
    enum { COUNT = sizeof in_halves / sizeof *in_halves };
    char text[COUNT][160];
    const char *passes[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(text[i], sizeof text[i], "%s,%s", half, in_halves[i]);
        passes[i] = text[i];
    }
    compare(r, "momentum", half, passes, COUNT);
}

static bool moves_here(void)
{
    const char *backend = getenv("EBB_TEST_BACKEND");
    return backend == NULL || strncmp(backend, "cuda", 4) != 0;
}

TEST(exact_passes_change_no_bit_of_any_small_model)
{
    int failures = 0;
    const bool moves = moves_here(); // the last of `alone`
    for (size_t m = 0; m < sizeof small_models / sizeof small_models[0]; m++)
        for (size_t e = 0; e < EXPORTERS; e++) {
            recorded r;
            if (!is_asked(small_models[m]))
                continue;
            recorded_need(&r, small_models[m], exporters[e]);
            compare(&r, "none", "", alone, sizeof alone / sizeof alone[0] - (moves ? 0 : 1));
            compare(&r, "momentum", "", together, sizeof together / sizeof together[0]);
            compare_halves(&r, halves[e]);
            failures += r.failures;
            recorded_close(&r);
        }
    assert_int_equal(failures, 0);
}

/* ---- values elsewhere ---- */

enum { DRAWS = 13, ENDS = 12, END = 3 }; // 13 of each file are 208

/* The pass for those values whose names end as some that are drawn do. */
static void draw_pass(char *text, size_t size, const ebb_graph *g, uint64_t seed)
{
    uint64_t state = seed;
    size_t at = (size_t)snprintf(text, size, "offload:place=%s,least=1,values=none",
                                 seed % 3 == 0 ? "host" : "disk");
    for (int i = 0; i < ENDS; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const ebb_value v = {1 + (uint32_t)((state >> 33) % (g->value_count - 1))};
        const char *name = ebb_value_of(g, v)->dead ? "" : ebb_value_name(g, v);
        const size_t length = strlen(name);
        if (length > END)
            at += (size_t)snprintf(text + at, size - at, ";*%s", name + length - END);
    }
}

/* Of each small model of each exporter whose turn it is: the step as it is, and passes on it. Failures. */
static int on_each_model(void (*ask)(recorded *r, ebb_program *program, const ebb_model *model,
                                     size_t m, size_t e))
{
    int failures = 0;
    for (size_t m = 0; m < sizeof small_models / sizeof small_models[0]; m++)
        for (size_t e = 0; e < EXPORTERS; e++) {
            recorded r;
            ebb_model *model = NULL;
            ebb_program *program = NULL;
            if (!is_asked(small_models[m]) || !has_turn(m, e))
                continue;
            recorded_need(&r, small_models[m], exporters[e]);
            good(run(&r, "momentum", "", &model, &program));
            ask(&r, program, model, m, e);
            ebb_program_free(program);
            ebb_close(model);
            failures += r.failures;
            recorded_close(&r);
        }
    return failures;
}

static void move_any(recorded *r, ebb_program *program, const ebb_model *model, size_t m, size_t e)
{
    char pass[256];
    for (uint64_t i = 0; i < DRAWS; i += share(DRAWS)) {
        draw_pass(pass, sizeof pass, model->graph, (m * EXPORTERS + e) * DRAWS + i);
        check(r, "momentum", program, pass);
    }
}

TEST(any_values_may_wait_elsewhere)
{
    if (!moves_here())
        skip();
    assert_int_equal(on_each_model(move_any), 0);
}

static const char *const planners[] = {"revolve",  "disk-revolve", "periodic-disk-revolve",
                                       "hrevolve", "multistage",   "double-checkpoint",
                                       "rotor",    "pofo",         "join"};
enum { PLANNERS = sizeof planners / sizeof *planners };
static int plans[PLANNERS];

/* The least that a planner reaches, as it says itself. */
static uint64_t least_of(recorded *r, const char *planner)
{
    OWNED_MODEL *model = NULL;
    ebb_program *program = NULL;
    unsigned long long least = 0;
    ebb_status status =
        run(r, "momentum", formatted("recompute:planner=%s,budget=1", planner), &model, &program);
    refused(status, EBB_NO_PLAN, "a budget of at least ");
    const char *said = strstr(ebb_status_text(status), "at least ");
    assert_int_equal(sscanf(said, "at least %llu", &least), 1);
    return least;
}

/* At its least, and half way to what the step takes. An LSTM that is one operator has no chain: all planners
 * keep it whole. */
static void schedule(recorded *r, ebb_program *program, const ebb_model *model, size_t m, size_t e)
{
    const uint64_t arena = ebb_program_measure(program).planned_arena_bytes;
    (void)model;
    (void)e;
    for (size_t k = 0; k < PLANNERS; k++) {
        if ((m + k) % share(2) != 0)
            continue;
        const uint64_t least = least_of(r, planners[k]);
        for (uint64_t part = 0; part < 2 && least < arena; part++) {
            check(r, "momentum", program,
                  formatted("recompute:planner=%s,budget=%llu", planners[k],
                            (unsigned long long)(least + (arena - least) / 2 * part)));
            plans[k]++;
        }
    }
}

TEST(schedules_change_no_bit_of_any_small_model)
{
    if (!moves_here())
        skip();
    const int failures = on_each_model(schedule);
    for (size_t k = 0; k < PLANNERS; k++) {
        print_message("%s: %d plans\n", planners[k], plans[k]);
        assert_true(plans[k] > 0 || getenv("EBB_TEST_MODELS") != NULL);
    }
    assert_int_equal(failures, 0);
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    return run_listed();
}
