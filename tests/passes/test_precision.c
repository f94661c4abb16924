/* test_precision.c: what golden texts cannot show of precision: steps in float16 that overflow or
 * do not, the scale of the loss, and sentences for wrong uses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "ebb.h"
#include "onnx/file.h"
#include "passes/pipeline.h"

static const char layer[] =
    "<ir_version: 10, opset_import: [\"\" : 20]> g (float[2,2] x) => (float[2,1] y) "
    "<float[1,2] w = {0.25, -0.5}> { y = Gemm <transB = 1> (x, w) }";

static ebb_arena keep;

static void must(ebb_status status)
{
    if (status != NULL)
        fail_msg("%s", ebb_status_text(status));
}

static ebb_status rewrite(ebb_model **model, const char *passes)
{
    const ebb_rewrite_options options = {.verify_each = true};
    ebb_report *reports;
    size_t count;
    must(ebb_text_parse_model(model, layer));
    return ebb_pipeline_run(*model, passes, &options, &keep, &reports, &count);
}

typedef struct run {
    ebb_model *model;
    ebb_program *program;
} run;

static void begin(run *r, const char *passes)
{
    must(rewrite(&r->model, passes));
    must(ebb_program_compile(&r->program, r->model, NULL));
}

static void end(run *r)
{
    ebb_program_free(r->program);
    ebb_model_free(r->model);
}

static void step(run *r, float target)
{
    static const int64_t x_dims[] = {2, 2}, target_dims[] = {2, 1};
    const float x[] = {1, 2, 3, 4}, targets[] = {target, target};
    const ebb_named named[] = {{"x", 1, 2, x_dims, x}, {"target", 1, 2, target_dims, targets}};
    const ebb_batch batch = {named, 2};
    must(ebb_program_step(r->program, &batch));
}

static double number(run *r, const char *name, int i)
{
    ebb_named t;
    must(ebb_program_get(r->program, name, &t));
    return t.dtype == 7 ? (double)((const int64_t *)t.data)[i] : (double)((const float *)t.data)[i];
}

#define STEP(precision) "loss:mse," precision "gradient,optimizer:adamw,lr=0.1"

/* Targets of a million: the scaled gradient of the output is infinite in float16. */
static void a_step_that_overflows_leaves_parameters_and_states_and_halves_the_scale(void **state)
{
    (void)state;
    run r;
    begin(&r, STEP("precision:fp16,"));
    step(&r, -1);
    double w[2], m[2], v[2];
    for (int i = 0; i < 2; i++) {
        w[i] = number(&r, "w", i);
        m[i] = number(&r, "w.exp_avg", i);
        v[i] = number(&r, "w.exp_avg_sq", i);
    }
    assert_true(m[0] != 0 && number(&r, "ebb.step", 0) == 1);
    for (int more = 1; more <= 3; more++) {
        step(&r, 1e6f);
        for (int i = 0; i < 2; i++) {
            assert_true(number(&r, "w", i) == w[i]);
            assert_true(number(&r, "w.exp_avg", i) == m[i]);
            assert_true(number(&r, "w.exp_avg_sq", i) == v[i]);
        }
        assert_true(number(&r, "ebb.step", 0) == 1);
        assert_true(number(&r, "ebb.good_steps", 0) == 0);
        assert_true(number(&r, "ebb.loss_scale", 0) == ldexp(65536, -more));
    }
    step(&r, -1);
    assert_true(number(&r, "w", 0) != w[0]);
    assert_true(number(&r, "ebb.step", 0) == 2);
    assert_true(number(&r, "ebb.good_steps", 0) == 1);
    end(&r);
}

static void a_step_in_16_bits_is_that_of_float32_but_for_rounding(void **state)
{
    (void)state;
    static const char *const passes[] = {STEP("precision:fp16,"), STEP("precision:bf16,")};
    static const double most[] = {2e-3, 2e-2};
    for (int k = 0; k < 2; k++) {
        run exact, other;
        begin(&exact, STEP(""));
        begin(&other, passes[k]);
        step(&exact, -1);
        step(&other, -1);
        for (int i = 0; i < 2; i++) {
            double a = number(&exact, "w.exp_avg", i), b = number(&other, "w.exp_avg", i);
            if (!(fabs(a - b) <= most[k] * fabs(a)))
                fail_msg("%s: the gradient's mean is %g, in float32 %g", passes[k], b, a);
            assert_true(fabs(number(&exact, "w", i) - number(&other, "w", i)) < 1e-3);
        }
        end(&other);
        end(&exact);
    }
}

static void the_scale_doubles_after_2000_good_steps(void **state)
{
    (void)state;
    run r;
    const int64_t almost = 1998;
    const ebb_named set = {"ebb.good_steps", 7, 0, NULL, &almost};
    begin(&r, STEP("precision:dtype=fp16,scale=1024,"));
    must(ebb_program_set(r.program, &set));
    step(&r, -1);
    assert_true(number(&r, "ebb.good_steps", 0) == 1999);
    assert_true(number(&r, "ebb.loss_scale", 0) == 1024);
    step(&r, -1);
    assert_true(number(&r, "ebb.good_steps", 0) == 0);
    assert_true(number(&r, "ebb.loss_scale", 0) == 2048);
    end(&r);
}

/* A backward that is there already cannot be given another dtype. */
static void a_step_is_refused(void **state)
{
    (void)state;
    ebb_model *model;
    ebb_report *reports;
    size_t count;
    const ebb_rewrite_options options = {.verify_each = true};
    must(rewrite(&model, "loss:mse,gradient"));
    ebb_status status =
        ebb_pipeline_run(model, "precision:bf16", &options, &keep, &reports, &count);
    assert_int_equal(ebb_status_code(status), EBB_USAGE);
    assert_non_null(strstr(ebb_status_text(status), "the graph has a backward already"));
    ebb_model_free(model);
}

static void says(const char *passes, ebb_code code, const char *what)
{
    ebb_model *model;
    ebb_status status = rewrite(&model, passes);
    assert_int_equal(ebb_status_code(status), code);
    if (strstr(ebb_status_text(status), what) == NULL)
        fail_msg("'%s' does not say '%s'", ebb_status_text(status), what);
    ebb_model_free(model);
}

static void wrong_uses_get_a_sentence(void **state)
{
    (void)state;
    says("precision:fp8", EBB_USAGE, "bf16|fp16");
    says("precision:dtype=fp16,scale=0.5", EBB_USAGE,
         "a loss scale of 0.5 is not in 1 .. 16777216");
    says("precision:dtype=fp16,scale=nan", EBB_USAGE, "is not in 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_overflows_leaves_parameters_and_states_and_halves_the_scale),
        cmocka_unit_test(a_step_in_16_bits_is_that_of_float32_but_for_rounding),
        cmocka_unit_test(the_scale_doubles_after_2000_good_steps),
        cmocka_unit_test(a_step_is_refused),
        cmocka_unit_test(wrong_uses_get_a_sentence),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ebb_arena_fini(&keep);
    return failed;
}
