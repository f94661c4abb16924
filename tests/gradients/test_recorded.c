/* test_recorded.c: losses and gradients of single operators as PyTorch has them, in float64.
 *
 * recorded.txt is made by record.py, the others by record_spatial.py, record_algebra.py and, with a
 * gradient's own gradient, record_second.py: case, model as text, the loss, and for each trained
 * tensor its gradient. The step that passes loss and gradient make must give the same numbers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "tests/owned.h"
#include "tests/status.h"

#define FOLDER EBB_SOURCE_DIR "/tests/gradients/"
#define HEAD                                                      \
    "<ir_version: 10, opset_import: [\"\" : %d, \"ai.ebb\" : 1, " \
    "\"ai.onnx.preview.training\" : 1]>\n%s"

#define GRADIENT "loss:name=loss,gradient:train=x*"
#define STRAIGHT ",straight-through=on"

enum { LINE = 1 << 15, GRADIENTS = 8, CASES_AT_LEAST = 220, OPERATORS_AT_LEAST = 110 };

typedef struct recorded {
    char name[256], model[LINE], loss[64];
    char gradients[GRADIENTS][LINE];
    size_t count;
} recorded;

/* "name a b c": the numbers behind the name, beside those of the program. */
static void compare(ebb_program *p, const char *what, const char *line)
{
    char name[64];
    ebb_named got;
    int at = 0;
    assert_int_equal(sscanf(line, "%63s%n", name, &at), 1);
    good_for(ebb_program_get(p, name, &got), what);
    assert_int_equal(got.dtype, 11 /* float64 */);
    int64_t n = 1, i = 0;
    for (int d = 0; d < got.rank; d++)
        n *= got.dims[d];
    const char *text = line + at;
    for (char *end; i < n; i++, text = end) {
        double expected = strtod(text, &end), x = ((const double *)got.data)[i];
        assert_true(end != text);
        if (!(fabs(x - expected) <= 1e-11 + 1e-9 * fabs(expected)))
            fail_msg("%s: %s[%lld] is %.15g; PyTorch's is %.15g", what, name, (long long)i, x,
                     expected);
    }
    assert_int_equal(strspn(text, " \n"), strlen(text));
}

static bool all_zero(const recorded *c)
{
    for (size_t k = 0; k < c->count; k++)
        for (char *at = strchr(c->gradients[k], ' '), *end; at != NULL; at = strchr(end, ' '))
            if (strtod(at, &end) != 0.0)
                return false;
    return true;
}

static void check(const recorded *c, int opset, const char *passes)
{
    static char text[LINE + 128];
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    const ebb_compile_options options = {.backend = "plain"};
    (void)snprintf(text, sizeof text, HEAD, opset, c->model);
    good_for(ebb_text_parse_model(&model, text), c->name);
    ebb_status status = ebb_rewrite(model, passes, NULL, NULL);
    bool nothing = status != NULL && strstr(ebb_status_text(status), "depends on no parameter");
    if (!nothing)
        good_for(status, c->name);
    good_for(ebb_program_compile(&program, model, &options), c->name);
    good_for(ebb_program_step(program, NULL), c->name);
    compare(program, c->name, c->loss);
    for (size_t k = 0; k < c->count && !nothing; k++)
        compare(program, c->name, c->gradients[k]);
    if (nothing && !all_zero(c))
        fail_msg("%s: nothing flows, but PyTorch has gradients", c->name);
}

static bool read_line(FILE *file, char *line, size_t size)
{
    if (fgets(line, (int)size, file) == NULL)
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* The word before '(' or '<' in "y = Op <...> (x)". */
static void operator_of(const recorded *c, char *op, size_t size)
{
    const char *at = strstr(c->name, " = ") + 3;
    (void)snprintf(op, size, "%.*s", (int)strcspn(at, " <("), at);
}

typedef struct tally {
    size_t cases, operators;
    char seen[LINE]; /* names of operators */
} tally;

static void check_file(const char *path, int opset, const char *passes, tally *t)
{
    static recorded c;
    static char line[LINE];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    bool more = read_line(file, line, sizeof line);
    while (more) {
        char op[64], word[80];
        assert_int_equal(strncmp(line, "case ", 5), 0);
        (void)snprintf(c.name, sizeof c.name, "%.250s", line + 5);
        assert_true(read_line(file, c.model, sizeof c.model));
        assert_true(read_line(file, c.loss, sizeof c.loss));
        for (c.count = 0; (more = read_line(file, line, sizeof line)) && line[0] == 'x'; c.count++)
            (void)snprintf(c.gradients[c.count], LINE, "%s", line);
        check(&c, opset, passes);
        operator_of(&c, op, sizeof op);
        (void)snprintf(word, sizeof word, " %s ", op);
        t->operators += strstr(t->seen, word) == NULL;
        (void)snprintf(t->seen + strlen(t->seen), sizeof t->seen - strlen(t->seen), "%s", word);
        t->cases++;
    }
    fclose(file);
}

TEST(gradients_are_those_that_pytorch_recorded)
{
    static tally t;
    check_file(FOLDER "recorded.txt", 20, GRADIENT, &t);
    check_file(FOLDER "recorded_spatial.txt", 20, GRADIENT, &t);
    check_file(FOLDER "recorded_algebra.txt", 27, GRADIENT, &t);
    check_file(FOLDER "recorded_straight.txt", 21, GRADIENT STRAIGHT, &t);
    check_file(FOLDER "recorded_second.txt", 20, "differentiate," GRADIENT, &t);
    print_message("%zu cases of %zu operators\n", t.cases, t.operators);
    assert_true(t.cases >= CASES_AT_LEAST && t.operators >= OPERATORS_AT_LEAST);
}

TEST(a_quantised_model_trains_as_in_pytorch)
{
    static char line[LINE], text[LINE + 128];
    const char *passes = GRADIENT STRAIGHT ",optimizer:sgd,lr=1.0";
    const ebb_compile_options options = {.backend = "plain"};
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    FILE *file = fopen(FOLDER "recorded_training.txt", "r");
    assert_non_null(file);
    assert_true(read_line(file, line, sizeof line));
    (void)snprintf(text, sizeof text, HEAD, 21, line);
    assert_true(read_line(file, line, sizeof line));
    fclose(file);
    good_for(ebb_text_parse_model(&model, text), "the model");
    good_for(ebb_rewrite(model, passes, NULL, NULL), passes);
    good_for(ebb_program_compile(&program, model, &options), passes);
    double first = 0.0, last = 0.0;
    int steps = 0;
    const char *at = line + strlen("losses");
    for (char *end; *at != '\0'; at = end, steps++) {
        ebb_named loss;
        last = strtod(at, &end);
        assert_true(end != at);
        good_for(ebb_program_step(program, NULL), passes);
        good_for(ebb_program_get(program, "loss", &loss), passes);
        double x = *(const double *)loss.data;
        if (!(fabs(x - last) <= 1e-9 * fabs(last)))
            fail_msg("step %d: the loss is %.15g; PyTorch's is %.15g", steps, x, last);
        first = steps == 0 ? last : first;
    }
    assert_true(steps >= 10 && last < 0.5 * first);
}
