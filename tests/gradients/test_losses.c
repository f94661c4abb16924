/* test_losses.c: values and gradients of the losses as PyTorch has them, in float64, of the whole batch
 * and in parts of it; and beside finite differences.
 *
 * recorded_losses.txt is made by record_losses.py: the loss, predictions, target, and value with
 * gradient. The model is y = x + b with b = 0, so that b's gradient is that of the predictions.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/text/text.h"
#include "tests/owned.h"
#include "tests/test.h"
#include "tests/text.h"

enum { LINE = 1 << 15, MOST = 512, CASES_AT_LEAST = 66 };

typedef struct tensor {
    int dtype, rank;
    int64_t dims[4], count;
    double numbers[MOST];
    int64_t labels[MOST];
} tensor;

typedef struct problem {
    char loss[256];
    tensor x, target;
    double value, gradient[MOST];
} problem;

static bool read_line(FILE *file, char *line)
{
    if (fgets(line, LINE, file) == NULL)
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static void read_numbers(const char *line, double *list, int64_t count)
{
    char *end;
    for (int64_t i = 0; i < count; i++, line = end) {
        list[i] = strtod(line, &end);
        assert_true(end != line);
    }
    assert_int_equal(strspn(line, " "), strlen(line));
}

static void read_tensor(const char *line, tensor *t)
{
    char kind[16];
    int at = 0, more = 0;
    assert_int_equal(sscanf(line, "%15s %d%n", kind, &t->rank, &at), 2);
    t->dtype = strcmp(kind, "double") == 0 ? 11 : 7;
    t->count = 1;
    for (int d = 0; d < t->rank; d++, at += more) {
        long long size;
        assert_int_equal(sscanf(line + at, "%lld%n", &size, &more), 1);
        t->dims[d] = size;
        t->count *= size;
    }
    assert_true(t->count <= MOST);
    read_numbers(line + at, t->numbers, t->count);
    for (int64_t i = 0; i < t->count; i++)
        t->labels[i] = (int64_t)t->numbers[i];
}

static ebb_named named(const char *name, const tensor *t)
{
    return (ebb_named){name, t->dtype, t->rank, t->dims,
                       t->dtype == 7 ? (const void *)t->labels : (const void *)t->numbers};
}

static ebb_model *write_model(const tensor *x)
{
    static char text[LINE];
    char dims[64] = "";
    for (int d = 0; d < x->rank; d++)
        (void)snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%s%lld", d > 0 ? "," : "",
                       (long long)x->dims[d]);
    (void)snprintf(text, sizeof text,
                   "<ir_version: 10, opset_import: [\"\" : 20]> g (double[%s] x) => (double[%s] y) "
                   "<double[%s] b = {0",
                   dims, dims, dims);
    for (int64_t i = 1; i < x->count; i++)
        (void)strcat(text, ",0");
    (void)strcat(text, "}> { y = Add (x, b) }");
    ebb_model *model = model_of(text);
    return model;
}

/* The step that gives loss and b_grad; NULL: its making failed, by *why. */
static ebb_program *make(ebb_model *model, const char *loss, const char *passes, ebb_status *why)
{
    char *pipeline;
    ebb_program *program = NULL;
    const ebb_step_options step = {.loss = loss,
                                   .optimizer = "none",
                                   .train = (const char *const[]){"b", NULL},
                                   .passes = (const char *const[]){passes, NULL}};
    const ebb_rewrite_options strict = {.strict = passes[0] != '\0', .verify_each = true};
    *why = ebb_step_pipeline(&pipeline, &step);
    if (*why == NULL)
        *why = ebb_rewrite(model, pipeline, &strict, NULL);
    ebb_release(pipeline);
    if (*why == NULL)
        *why = ebb_program_compile(&program, model, NULL);
    return program;
}

static const double *run(ebb_program *p, const problem *c, const tensor *x, const char *output)
{
    ebb_named got;
    static const int64_t steps[4] = {7, 4, 2, 3}, four[1] = {4};
    const ebb_named in[3] = {
        named("x", x), named("target", &c->target), {"steps", 7, 1, four, steps}};
    const ebb_batch batch = {in, strstr(c->loss, "steps") != NULL ? 3 : 2};
    ebb_status status = ebb_program_step(p, &batch);
    if (status == NULL)
        status = ebb_program_get(p, output, &got);
    if (status != NULL)
        fail_msg("%s: %s", c->loss, ebb_status_text(status));
    assert_int_equal(got.dtype, 11);
    return got.data;
}

static void is_near(const problem *c, const char *what, double x, double expected, double most)
{
    if (!(fabs(x - expected) <= most * (1 + fabs(expected))))
        fail_msg("%s: %s is %.15g, not %.15g", c->loss, what, x, expected);
}

/* Along a direction: (f(x + h d) - f(x - h d)) / 2 h is the gradient times d. */
static void differs_finitely(ebb_program *p, const problem *c)
{
    const double h = 1e-6;
    tensor less = c->x, more = c->x;
    double slope = 0;
    for (int64_t i = 0; i < c->x.count; i++) {
        const double d = sin((double)(i + 1));
        less.numbers[i] -= h * d;
        more.numbers[i] += h * d;
        slope += d * c->gradient[i];
    }
    const double after = *run(p, c, &more, "loss"), before = *run(p, c, &less, "loss");
    is_near(c, "the slope", (after - before) / (2 * h), slope, 1e-5);
}

static void check(const problem *c, const char *passes, bool smooth)
{
    ebb_status why;
    OWNED_MODEL *model = write_model(&c->x);
    OWNED_PROGRAM *p = make(model, c->loss, passes, &why);
    if (why != NULL)
        fail_msg("%s %s: %s", c->loss, passes, ebb_status_text(why));
    is_near(c, passes, *run(p, c, &c->x, "loss"), c->value, 1e-12);
    const double *gradient = run(p, c, &c->x, "b_grad");
    for (int64_t i = 0; i < c->x.count; i++)
        is_near(c, "a gradient", gradient[i], c->gradient[i], 1e-12);
    if (smooth)
        differs_finitely(p, c);
}

static size_t each_case(void (*with)(const problem *))
{
    static problem c;
    static char line[LINE];
    double numbers[MOST + 1];
    size_t count = 0;
    FILE *file = fopen(EBB_SOURCE_DIR "/tests/gradients/recorded_losses.txt", "r");
    assert_non_null(file);
    for (; read_line(file, line); count++) {
        (void)snprintf(c.loss, sizeof c.loss, "%.250s", line);
        assert_true(read_line(file, line));
        read_tensor(line, &c.x);
        assert_true(read_line(file, line));
        read_tensor(line, &c.target);
        assert_true(read_line(file, line));
        assert_true(c.x.count < MOST);
        read_numbers(line, numbers, c.x.count + 1);
        c.value = numbers[0];
        memcpy(c.gradient, numbers + 1, sizeof c.gradient);
        with(&c);
    }
    fclose(file);
    return count;
}

/* Those that have corners, or numbers too large for differences. */
static bool is_smooth(const problem *c)
{
    return strncmp(c->loss, "l1", 2) != 0 && fabs(c->x.numbers[0]) < 100 &&
           strncmp(c->loss, "cosine", 6) != 0;
}

static void whole(const problem *c)
{
    check(c, "", is_smooth(c));
}

TEST(losses_and_gradients_are_those_of_pytorch)
{
    assert_true(each_case(whole) >= CASES_AT_LEAST);
}

static void in_parts(const problem *c)
{
    if (strstr(c->loss, "over=batch") == NULL && strstr(c->loss, "time-axis=0") == NULL)
        check(c, "micro-batch:parts=2", false);
}

TEST(in_parts_of_the_batch_they_are_the_same)
{
    assert_true(each_case(in_parts) >= CASES_AT_LEAST);
}
