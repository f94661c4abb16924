/* test_layout.c: the step with channels last against the step as it was, on every small model with
 * convolutions: loss, outputs, gradients and states within what another order of sums does. */

#include <math.h>

#include "exec/weigh/estimate.h"
#include "onnx/file/file.h"
#include "tests/formatted.h"
#include "tests/models/models.h"

static const char *const models[] = {"cnn_digits", "resnet20_cifar", "mobilenet_tiny"};

/* How far a value may be off, of the largest magnitude in its tensor: some ten times what PyTorch's
 * own float32 differs from float64 by (float32_noise in the manifests). */
static double bound_of(const char *model)
{
    return strcmp(model, "mobilenet_tiny") == 0 ? 5e-4 : 3e-5;
}

typedef struct step {
    ebb_model *model;
    ebb_program *program;
} step;

static void step_free(step *s)
{
    ebb_program_free(s->program);
    ebb_close(s->model);
    *s = (step){NULL, NULL};
}

/* One step, of which `layout` (with its comma, or "") stands before `gradient` and `memory` behind
 * it. report: NULL, or what the passes said. */
static ebb_status run_step(step *s, const recorded *r, const char *backend, const char *layout,
                           const char *memory, char **report)
{
    char pipeline[1024];
    ebb_named inputs[MOST_INPUTS];
    size_t count;
    const json_t *loss = json_object_get(r->manifest, "loss");
    (void)snprintf(pipeline, sizeof pipeline,
                   "inline,fold,train-mode:dropout=off,fold,fuse,loss:cross-entropy,axis=%d,%s"
                   "gradient,optimizer:none,%sdrop-saves,stream:tile=8KiB,alias",
                   (int)json_integer_value(json_object_get(loss, "class_axis")), layout, memory);
    ebb_status status = recorded_model(r, &s->model, inputs, &count);
    const ebb_rewrite_options options = {.verify_each = true};
    if (status == NULL)
        status = ebb_rewrite(s->model, pipeline, &options, report);
    const ebb_compile_options how = {.backend = backend};
    if (status == NULL)
        status = ebb_program_compile(&s->program, s->model, &how);
    const ebb_batch batch = {inputs, count};
    return status != NULL ? status : ebb_program_step(s->program, &batch);
}

/* Where element i of [a, b, c, d] is in [a, c, d, b]. */
static size_t turned_place(const ebb_named *first, size_t i)
{
    size_t b = (size_t)first->dims[1], plane = (size_t)(first->dims[2] * first->dims[3]);
    return (i / (b * plane) * plane + i % plane) * b + i / plane % b;
}

static bool has_other_dims(const ebb_named *x, const ebb_named *y)
{
    bool other = x->rank != y->rank;
    for (int i = 0; !other && i < x->rank; i++)
        other = x->dims[i] != y->dims[i];
    return other;
}

/* The largest difference of two float tensors, of the largest magnitude; NaN counts. y may be a
 * weight with channels last. */
static double distance(const ebb_named *x, const ebb_named *y)
{
    const float *a = x->data, *b = y->data;
    double most = 0, size = 1e-3;
    bool turned = has_other_dims(x, y);
    if (elements(x) != elements(y) || (turned && (x->rank != 4 || x->dims[1] != y->dims[3])))
        return INFINITY;
    for (size_t i = 0; i < elements(x); i++) {
        double d = fabs((double)a[i] - (double)b[turned ? turned_place(x, i) : i]);
        most = !(d <= most) ? d : most;
        size = fmax(size, fabs((double)a[i]));
    }
    return most / size;
}

/* A gradient that is zero in mathematics: in 16 bits nothing but noise. */
static bool is_noise(const recorded *r, const char *name)
{
    size_t n = strlen(name);
    if (n < 5 || strcmp(name + n - 5, "_grad") != 0)
        return false;
    return is_near_zero(r, formatted("%.*s", (int)(n - 5), name));
}

/* Every output, gradients among them; and every running statistic. */
static void compare(recorded *r, const step *a, const step *b, double bound)
{
    size_t compared = 0;
    for (size_t i = 0; i < ebb_program_output_count(a->program); i++) {
        const char *name = ebb_program_output_name(a->program, i);
        ebb_named x, y;
        MUST(ebb_program_get(a->program, name, &x));
        MUST(ebb_program_get(b->program, name, &y));
        if (x.dtype != 1 || (bound > 0.01 && is_noise(r, name)))
            continue;
        compared++;
        double d = distance(&x, &y);
        if (d <= bound)
            continue;
        print_error("%s/%s: '%s' differs by %.2g of its magnitude, more than %.2g\n", r->model,
                    r->file, name, d, bound);
        r->failures++;
    }
    if (compared < 5) {
        print_error("%s/%s: %zu outputs were compared\n", r->model, r->file, compared);
        r->failures++;
    }
done:
    return;
}

/* A step and what it is held against: what stands before `gradient` and behind the optimizer. */
typedef struct pair {
    const char *backend, *layout, *memory;
    const char *other_layout, *other_memory;
    bool exact;
} pair;

/* An activation within rounding of a bend is on one of its sides by these kernels, on the other by
 * those, and the gradient jumps: the two may be as far apart as the plain kernels are from one. */
static void compare_beside_plain(recorded *r, const pair *p, const step *one, const step *other,
                                 double bound)
{
    step plain = {NULL, NULL};
    r->failures = 0;
    MUST(run_step(&plain, r, "plain", p->layout, p->memory, NULL));
    for (size_t i = 0; i < ebb_program_output_count(one->program); i++) {
        const char *name = ebb_program_output_name(one->program, i);
        ebb_named x, y;
        MUST(ebb_program_get(one->program, name, &x));
        MUST(ebb_program_get(plain.program, name, &y));
        if (x.dtype == 1)
            bound = fmax(bound, 2 * distance(&x, &y));
    }
    print_message("%s/%s: again, bound %.2g\n", r->model, r->file, bound);
    compare(r, one, other, bound);
done:
    step_free(&plain);
}

enum { MODELS = sizeof models / sizeof models[0] };

/* On so many models of so many exporters; bound: 0: each model's own. */
static int failures_within(const pair *p, size_t exported, size_t most, double bound)
{
    int failures = 0;
    for (size_t m = 0; m < MODELS && m < most; m++)
        for (size_t e = 0; e < exported; e++) {
            recorded opened, *r = &opened;
            step one = {NULL, NULL}, other = {NULL, NULL};
            if (exported > 1 && !has_turn(m, e))
                continue;
            if (!recorded_open(r, models[m], exporters[e]))
                skip();
            MUST(run_step(&one, r, p->backend, p->layout, p->memory, NULL));
            MUST(run_step(&other, r, p->backend, p->other_layout, p->other_memory, NULL));
            const double close = p->exact ? 0 : bound > 0 ? bound : bound_of(r->model);
            compare(r, &one, &other, close);
            if (r->failures > 0 && !p->exact)
                compare_beside_plain(r, p, &one, &other, close);
        done:
            step_free(&one);
            step_free(&other);
            failures += r->failures;
            recorded_close(r);
        }
    return failures;
}

static int failures_of(const pair *p, size_t exported)
{
    return failures_within(p, exported, MODELS, 0);
}

TEST(channels_last_change_no_gradient_but_for_rounding)
{
    const pair eight = {"cpu", "", "", "layout:nhwc,", "", false};
    const pair as_is = {"cpu", "", "", "layout:nhwc,pad=1,", "", false};
    const pair stored = {"cpu", "", "", "layout:nhwc,weights=stored,", "", false};
    assert_int_equal(failures_of(&eight, 2), 0);
    assert_int_equal(failures_of(&stored, 1), 0);
    assert_int_equal(failures_of(&as_is, 1), 0);
}

TEST(plain_kernels_agree)
{
    const pair plain = {"plain", "", "", "layout:nhwc,", "", false};
    assert_int_equal(failures_of(&plain, 1), 0);
}

TEST(exact_memory_passes_change_no_bit_behind_it)
{
    const pair bits = {"cpu", "layout:nhwc,", "", "layout:nhwc,", "pool-index,sign-mask,", true};
    const pair fit = {"cpu", "layout:nhwc,", "", "layout:nhwc,", "fit:budget=85%,", true};
    assert_int_equal(failures_of(&bits, 2), 0);
    assert_int_equal(failures_of(&fit, 1), 0);
}

#define HALF "precision:bf16,"

/* Sums in another order are rounded to bfloat16: a 256th of a value, here and there,
 * which batch norm makes some percent of a gradient. */
TEST(channels_last_in_16_bits_are_those_of_16_bits_but_for_rounding)
{
    const pair behind = {"cpu", HALF, "", HALF "layout:nhwc,", "", false};
    const pair before = {"cpu", HALF, "", "layout:nhwc," HALF, "", false};
    const pair stored = {"cpu", HALF, "", HALF "layout:nhwc,weights=stored,", "", false};
    assert_int_equal(failures_within(&behind, 1, 1, 0.12), 0);
    assert_int_equal(failures_within(&before, 1, 1, 0.12), 0);
    assert_int_equal(failures_within(&stored, 1, 1, 0.12), 0);
}

TEST(exact_memory_passes_change_no_bit_of_channels_last_in_16_bits)
{
    const char *both = HALF "layout:nhwc,", *memory = "pool-index,sign-mask,dropout-recompute,";
    const pair bits = {"cpu", both, "", both, memory, true};
    // what is widened to float32 here, where the processor cannot multiply bfloat16, has no lower plan
    const pair fit = {"cpu", both, "", both, "fit:budget=97%,", true};
    assert_int_equal(failures_within(&bits, 1, 2, 0), 0);
    assert_int_equal(failures_within(&fit, 1, 1, 0), 0);
}

/* What is lost of an image does not depend on where its channels are. */
TEST(averages_of_inputs_are_those_that_they_were)
{
    const pair p = {"cpu", "", "sign-mask,pool-input,", "layout:nhwc,", "sign-mask,pool-input,",
                    false};
    assert_int_equal(failures_within(&p, 1, 1, 0), 0);
}

/* How many sites each pass of the report has applied, of those with this name. */
static int64_t applied(const char *report, const char *pass)
{
    json_t *o = json_loads(report, 0, NULL), *p;
    const json_t *list = json_object_get(o, "passes");
    int64_t count = -1;
    size_t i;
    json_array_foreach(list, i, p) {
        if (strcmp(json_string_value(json_object_get(p, "name")), pass) == 0)
            count = json_integer_value(json_object_get(p, "applied"));
    }
    json_decref(o);
    return count;
}

/* The very sites: a tensor that is coded in one order is in the other. */
TEST(memory_passes_find_the_sites_that_they_found_before)
{
    static const char *const passes[] = {"pool-index", "sign-mask", "quantise", "split-frequency",
                                         "norm-from-output"};
    int64_t all = 0;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
        for (size_t k = 0; k < sizeof passes / sizeof passes[0]; k++) {
            recorded opened, *r = &opened;
            char memory[64], *reports[2] = {NULL, NULL};
            if ((m + k) % share(2) != 0)
                continue;
            if (!recorded_open(r, models[m], exporters[1]))
                skip();
            (void)snprintf(memory, sizeof memory, "%s,", passes[k]);
            for (int nhwc = 0; nhwc < 2; nhwc++) {
                step s = {NULL, NULL};
                // Padding makes tensors of its own.
                ebb_status status = run_step(&s, r, "cpu", nhwc ? "layout:nhwc,pad=1," : "", memory,
                                             &reports[nhwc]);
                if (status != NULL)
                    fail_msg("%s: %s", r->model, ebb_status_text(status));
                step_free(&s);
            }
            int64_t before = applied(reports[0], passes[k]), now = applied(reports[1], passes[k]);
            if (before != now || before < 0)
                fail_msg("%s: %s applied %lld times, and %lld with channels last", r->model,
                         passes[k], (long long)before, (long long)now);
            all += now;
            ebb_release(reports[0]);
            ebb_release(reports[1]);
            recorded_close(r);
        }
    assert_true(all > 20 / (int64_t)share(2));
}

/* No back end of the CPU has a kernel for the whole, so the parts' compute it. */
TEST(norms_with_their_relu_in_one_node_change_no_bit_on_the_cpu)
{
    const char *both = HALF "layout:nhwc,", *last = "layout:nhwc,";
    const pair alone = {"cpu", last, "", last, "relu-epilogue,", true};
    const pair with_bits = {"plain", last, "", last, "sign-mask,relu-epilogue,pool-index,", true};
    const pair before = {"cpu", last, "", last, "relu-epilogue,sign-mask,fit:budget=85%,", true};
    const pair half = {"cpu", both, "", both, "relu-epilogue,", true};
    assert_int_equal(failures_within(&alone, 1, 2, 0), 0);
    assert_int_equal(failures_within(&with_bits, 1, 1, 0), 0);
    assert_int_equal(failures_within(&before, 1, 1, 0), 0);
    assert_int_equal(failures_within(&half, 1, 1, 0), 0);
}

/* Every ReLU of these stands behind a batch norm. */
TEST(every_relu_behind_a_norm_is_joined_with_it)
{
    static const int64_t sites[] = {2, 19}; /* cnn_digits, resnet20_cifar */
    for (size_t m = 0; m < 2; m++) {
        recorded opened, *r = &opened;
        step s = {NULL, NULL};
        char *report = NULL;
        if (!recorded_open(r, models[m], exporters[1]))
            skip();
        MUST(run_step(&s, r, "cpu", "layout:nhwc,", "relu-epilogue,", &report));
        assert_int_equal(applied(report, "relu-epilogue"), sites[m]);
        const ebb_graph *g = s.model->graph;
        EBB_EACH_NODE(g, n) {
            const ebb_op op = ebb_node_of(g, n)->op;
            assert_true(op != EBB_OP_RELU && op != EBB_OP_RELU_GRAD);
        }
    done:
        assert_int_equal(r->failures, 0);
        ebb_release(report);
        step_free(&s);
        recorded_close(r);
    }
}

/* By oneDNN's convolutions, which copy images with channels first. */
TEST(channels_last_are_taken_where_they_copy_less)
{
    static const char *const backends[] = {"cpu", "plain"};
    const pair same = {"cpu", "layout:nhwc,pad=1,", "", "layout:auto,", "", true};
    for (size_t b = 0; b < 2; b++) {
        recorded opened, *r = &opened;
        step s = {NULL, NULL};
        char *report = NULL, layout[64];
        bool knows = false;
        if (!recorded_open(r, "resnet20_cifar", exporters[1]))
            skip();
        (void)snprintf(layout, sizeof layout, "layout:auto,backend=%s,", backends[b]);
        MUST(ebb_estimate_knows(&knows, "cpu", EBB_OP_CONV_NHWC));
        MUST(run_step(&s, r, backends[b], layout, "", &report));
        assert_int_equal(applied(report, "layout"), knows && b == 0 ? 21 : 0);
    done:
        assert_int_equal(r->failures, 0);
        ebb_release(report);
        step_free(&s);
        recorded_close(r);
        if (b == 0 && knows)
            assert_int_equal(failures_within(&same, 1, 2, 0), 0);
    }
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    return run_listed();
}
