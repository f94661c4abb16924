/* test_precision.c: what golden texts cannot show of precision: steps in float16 that overflow or
 * do not, the scale of the loss, and sentences for wrong uses.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/test.h"

static const char layer[] =
    "<ir_version: 10, opset_import: [\"\" : 20]> g (float[2,2] x) => (float[2,1] y) "
    "<float[1,2] w = {0.25, -0.5}> { y = Gemm <transB = 1> (x, w) }";

/* Two layers, for what is kept of the first one's output: [ROWS, HIDDEN]. */
enum { ROWS = 64, INNER = 8, HIDDEN = 32 };

static void put_numbers(FILE *to, int count, int times, int modulo)
{
    for (int i = 0; i < count; i++)
        (void)fprintf(to, "%s%g", i > 0 ? ", " : "",
                      (double)(i * times % modulo - modulo / 2) / 64);
}

static const char *two_layers(void)
{
    static char text[16384];
    FILE *to = fmemopen(text, sizeof text, "w");
    assert_non_null(to);
    (void)fprintf(
        to, "<ir_version: 10, opset_import: [\"\" : 20]> g (float[%d,%d] x) => (float[%d,1] y) ",
        ROWS, INNER, ROWS);
    (void)fprintf(to, "<float[%d,%d] w = {", HIDDEN, INNER);
    put_numbers(to, HIDDEN * INNER, 37, 17);
    (void)fprintf(to, "}, float[1,%d] v = {", HIDDEN);
    put_numbers(to, HIDDEN, 11, 7);
    (void)fprintf(to, "}> { h = Gemm <transB = 1> (x, w) y = Gemm <transB = 1> (h, v) }");
    assert_int_equal(fclose(to), 0);
    return text;
}

static ebb_arena keep;

static ebb_status rewrite_text(ebb_model **model, const char *text, const char *passes)
{
    const ebb_rewrite_options options = {.verify_each = true};
    ebb_report *reports;
    size_t count;
    good(ebb_text_parse_model(model, text));
    return ebb_pipeline_run(*model, passes, &options, &keep, &reports, &count);
}

static ebb_status rewrite(ebb_model **model, const char *passes)
{
    return rewrite_text(model, layer, passes);
}

typedef struct run {
    ebb_model *model;
    ebb_program *program;
} run;

static void begin_text(run *r, const char *text, const char *passes)
{
    good(rewrite_text(&r->model, text, passes));
    good(ebb_program_compile(&r->program, r->model, NULL));
}

static void begin(run *r, const char *passes)
{
    begin_text(r, layer, passes);
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
    good(ebb_program_step(r->program, &batch));
}

static double number(run *r, const char *name, int i)
{
    ebb_named t;
    good(ebb_program_get(r->program, name, &t));
    return t.dtype == 7 ? (double)((const int64_t *)t.data)[i] : (double)((const float *)t.data)[i];
}

#define STEP(precision) "loss:mse," precision "gradient,optimizer:adamw,lr=0.1"

/* Targets of a million: the scaled gradient of the output is infinite in float16. */
static void overflow_is_passed_over(const char *passes, double scale)
{
    run r;
    begin(&r, passes);
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
        assert_true(number(&r, "ebb.loss_scale", 0) == ldexp(scale, -more));
    }
    step(&r, -1);
    assert_true(number(&r, "w", 0) != w[0]);
    assert_true(number(&r, "ebb.step", 0) == 2);
    assert_true(number(&r, "ebb.good_steps", 0) == 1);
    end(&r);
}

TEST(a_step_that_overflows_leaves_parameters_and_states_and_halves_the_scale)
{
    overflow_is_passed_over(STEP("precision:fp16,"), 65536);
    // the gradient of each of two losses is the scale itself, which keeps its name
    overflow_is_passed_over(
        "loss:mse,nth=1,keep-output=1,target=target,loss:l1,nth=2,target=target," //
        "precision:fp16,scale=1024,gradient,optimizer:adamw,lr=0.1",
        1024);
}

TEST(a_step_in_16_bits_is_that_of_float32_but_for_rounding)
{
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

TEST(the_scale_doubles_after_2000_good_steps)
{
    run r;
    const int64_t almost = 1998;
    const ebb_named set = {"ebb.good_steps", 7, 0, NULL, &almost};
    begin(&r, STEP("precision:dtype=fp16,scale=1024,"));
    good(ebb_program_set(r.program, &set));
    step(&r, -1);
    assert_true(number(&r, "ebb.good_steps", 0) == 1999);
    assert_true(number(&r, "ebb.loss_scale", 0) == 1024);
    step(&r, -1);
    assert_true(number(&r, "ebb.good_steps", 0) == 0);
    assert_true(number(&r, "ebb.loss_scale", 0) == 2048);
    end(&r);
}

/* A backward that is there already cannot be given another dtype. */
TEST(a_step_is_refused)
{
    OWNED_MODEL *model = NULL;
    ebb_report *reports;
    size_t count;
    const ebb_rewrite_options options = {.verify_each = true};
    good(rewrite(&model, "loss:mse,gradient"));
    refused(ebb_pipeline_run(model, "precision:bf16", &options, &keep, &reports, &count), EBB_USAGE,
            "the graph has a backward already");
}

/* ---- what passes keep between steps ---- */

static void step_of_two(run *r, float target)
{
    static const int64_t x_dims[] = {ROWS, INNER}, target_dims[] = {ROWS, 1};
    float x[ROWS * INNER], targets[ROWS];
    for (int i = 0; i < ROWS * INNER; i++)
        x[i] = (float)(i * 29 % 13) / 4;
    for (int i = 0; i < ROWS; i++)
        targets[i] = target;
    const ebb_named named[] = {{"x", 1, 2, x_dims, x}, {"target", 1, 2, target_dims, targets}};
    const ebb_batch batch = {named, 2};
    good(ebb_program_step(r->program, &batch));
}

static void copy_of(run *r, const char *name, size_t bytes, void *copy)
{
    ebb_named t;
    good(ebb_program_get(r->program, name, &t));
    memcpy(copy, t.data, bytes);
}

/* The rows' norms of gradients, by which the next step's rows are drawn. */
TEST(norms_stay_where_a_step_overflows)
{
    float before[ROWS], after[ROWS];
    run r;
    begin_text(&r, two_layers(),
               STEP("precision:dtype=fp16,scale=1024,") ",sample-matmul:ratio=0.5");
    step_of_two(&r, -1);
    copy_of(&r, "ebb.norms.h", sizeof before, before);
    assert_true(before[0] != 1 && isfinite(before[0]));
    step_of_two(&r, 1e6f);
    assert_true(number(&r, "ebb.loss_scale", 0) == 512);
    copy_of(&r, "ebb.norms.h", sizeof after, after);
    assert_memory_equal(before, after, sizeof before);
    step_of_two(&r, -1);
    assert_true(number(&r, "ebb.step", 0) == 2 && isfinite(number(&r, "w", 0)));
    end(&r);
}

TEST(codes_of_states_stay_where_a_step_overflows)
{
    static const char *const states[] = {"w.exp_avg.codes", "w.exp_avg_sq.codes"};
    static const char *const scales[] = {"w.exp_avg.scale", "w.exp_avg_sq.scale"};
    uint8_t codes[2][2][HIDDEN * INNER];
    float scale[2][2];
    run r;
    begin_text(&r, two_layers(),
               STEP("precision:dtype=fp16,scale=1024,") ",low-bit-state:least=64,block=32");
    step_of_two(&r, -1);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2; i++) {
            copy_of(&r, states[i], sizeof codes[k][i], codes[k][i]);
            copy_of(&r, scales[i], sizeof(float), &scale[k][i]);
        }
        if (k == 0)
            step_of_two(&r, 1e6f);
    }
    assert_memory_equal(codes[0], codes[1], sizeof codes[0]);
    assert_memory_equal(scale[0], scale[1], sizeof scale[0]);
    assert_true(scale[0][0] > 0);
    step_of_two(&r, -1);
    copy_of(&r, scales[0], sizeof(float), &scale[1][0]);
    assert_true(scale[1][0] != scale[0][0]);
    end(&r);
}

/* Saved right behind an overflow: scale, counts, parameters and states go on as they would have. */
TEST(a_checkpoint_goes_on_with_its_scale)
{
    static const char path[] = "test_precision_checkpoint.safetensors";
    static const char *const names[] = {"w", "w.exp_avg", "w.exp_avg_sq"};
    run a, b;
    begin(&a, STEP("precision:fp16,"));
    begin(&b, STEP("precision:fp16,"));
    step(&a, -1);
    step(&a, 1e6f);
    good(ebb_checkpoint_save(a.program, path, NULL));
    good(ebb_checkpoint_load(b.program, path, NULL));
    assert_true(number(&b, "ebb.loss_scale", 0) == 32768);
    for (int more = 0; more < 3; more++) {
        step(&a, more == 1 ? 1e6f : -1);
        step(&b, more == 1 ? 1e6f : -1);
    }
    static const char *const counts[] = {"ebb.loss_scale", "ebb.good_steps", "ebb.step"};
    for (size_t k = 0; k < 3; k++)
        assert_true(number(&a, counts[k], 0) == number(&b, counts[k], 0));
    assert_true(number(&b, "ebb.loss_scale", 0) < 32768 && number(&b, "ebb.step", 0) >= 2);
    for (size_t k = 0; k < 3; k++)
        for (int i = 0; i < 2; i++)
            assert_true(number(&a, names[k], i) == number(&b, names[k], i));
    (void)remove(path);
    end(&b);
    end(&a);
}

static void says(const char *passes, ebb_code code, const char *what)
{
    OWNED_MODEL *model = NULL;
    refused(rewrite(&model, passes), code, what);
}

TEST(wrong_uses_get_a_sentence)
{
    says("precision:fp8", EBB_USAGE, "bf16|fp16");
    says("precision:dtype=fp16,scale=0.5", EBB_USAGE,
         "scale takes a number from 1 to 16777216, not '0.5'");
    says("precision:dtype=fp16,scale=nan", EBB_USAGE, "scale takes a number from 1 to 16777216");
}

int main(void)
{
    int failed = run_listed();
    ebb_arena_fini(&keep);
    return failed;
}
