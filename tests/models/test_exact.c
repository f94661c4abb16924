/* test_exact.c: exact memory passes on whole models: every output and state bit-equal, bytes as
 * planned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "onnx/file/file.h"
#include "tests/models/models.h"

enum { EXPORTERS = 2 };

/* Alone with the gradients as outputs; together with an optimizer, whose states pile up
 * differences. */
static const char *const alone[] = {
    "sign-mask",    "pool-index",        "pack-bools",      "dropout-mask",
    "dropout-seed", "dropout-recompute", "release,reorder", "offload:least=1,values=*"};
static const char *const together[] = {
    "sign-mask,dropout-seed,dropout-recompute",
    "pool-index,sign-mask,pack-bools,dropout-recompute,dropout-mask",
    "sign-mask,pool-index,dropout-seed,sign-mask,release,reorder"};

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

/* Each of these against the step with those passes alone that `before` names. */
static void compare(recorded *r, const char *optimizer, const char *before,
                    const char *const *passes, size_t count)
{
    ebb_model *models[2] = {NULL, NULL};
    ebb_program *programs[2] = {NULL, NULL};
    MUST(run(r, optimizer, before, &models[0], &programs[0]));
    for (size_t p = 0; p < count; p++) {
        MUST(run(r, optimizer, passes[p], &models[1], &programs[1]));
        ebb_program_facts f = ebb_program_measure(programs[1]);
        if (f.planned_arena_bytes != f.measured_arena_bytes) {
            print_error("%s/%s: with %s, planned and measured arena differ\n", r->model, r->file,
                        passes[p]);
            r->failures++;
        }
        const char *name = difference(programs[0], programs[1], r->reference);
        if (name != NULL) {
            print_error("%s/%s: with %s, %s has other bits\n", r->model, r->file, passes[p], name);
            r->failures++;
        }
        ebb_program_free(programs[1]);
        ebb_close(models[1]);
        programs[1] = NULL;
        models[1] = NULL;
    }
done:
    for (int k = 0; k < 2; k++) {
        ebb_program_free(programs[k]);
        ebb_close(models[k]);
    }
}

static void exact_passes_change_no_bit_of_any_small_model(void **state)
{
    (void)state;
    int failures = 0;
    const char *backend = getenv("EBB_TEST_BACKEND");
    const bool moves = backend == NULL || strncmp(backend, "cuda", 4) != 0; // the last of `alone`
    for (size_t m = 0; m < sizeof small_models / sizeof small_models[0]; m++)
        for (size_t e = 0; e < EXPORTERS; e++) {
            recorded r;
            if (!is_asked(small_models[m]))
                continue;
            recorded_need(&r, small_models[m], exporters[e]);
            compare(&r, "none", "", alone, sizeof alone / sizeof alone[0] - (moves ? 0 : 1));
            compare(&r, "momentum", "", together, sizeof together / sizeof together[0]);
            failures += r.failures;
            recorded_close(&r);
        }
    assert_int_equal(failures, 0);
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_passes_change_no_bit_of_any_small_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
