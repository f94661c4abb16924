/* test_skeletons.c: full-size models without their weights: a step is made and planned; the
 * categories add up to the peak, and the packed arena lies within 3 % of the most bytes ever alive.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/models/models.h"

static double real(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void check_plan(recorded *r, const char *text)
{
    json_t *o = json_loads(text, 0, NULL), *bytes;
    const char *name;
    double sum = 0;
    json_object_foreach(json_object_get(o, "categories"), name, bytes) sum +=
        json_number_value(bytes);
    double peak = real(o, "peak_bytes"), bound = real(o, "lower_bound_bytes");
    double ratio = real(o, "arena_bytes") / bound;
    bool right = sum == peak && peak == bound && ratio < 1.03;
    print_message("%-13s %-12s peak %8.1f MiB  arena %8.1f MiB  %.4f  %s\n", r->model, r->file,
                  peak / 1048576, real(o, "arena_bytes") / 1048576, ratio, right ? "ok" : "FAILED");
    r->failures += !right;
    json_decref(o);
}

static void plan(recorded *r)
{
    char path[1024];
    char *text = NULL;
    ebb_model *model = NULL;
    (void)snprintf(path, sizeof path, "%s%s/%s", SHARED, r->model, r->file);
    bool cnn = strstr(r->model, "bert") == NULL && strstr(r->model, "gpt") == NULL;
    MUST(ebb_open(&model, path));
    MUST(ebb_set_dim(model, "batch", cnn ? 8 : 1));
    MUST(recorded_rewrite(r, model, "on", cnn ? "momentum" : "adamw", ""));
    MUST(ebb_plan_json(model, NULL, &text));
    check_plan(r, text);
done:
    ebb_release(text);
    ebb_close(model);
}

static void every_skeleton_can_be_planned(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t m = 0; m < sizeof full_models / sizeof full_models[0]; m++)
        for (size_t e = 0; e < 2; e++) {
            recorded r;
            if (!recorded_open(&r, full_models[m], exporters[e])) {
                print_message("SKIP: no recorded models beside the repository\n");
                skip();
            }
            plan(&r);
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
        cmocka_unit_test(every_skeleton_can_be_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
