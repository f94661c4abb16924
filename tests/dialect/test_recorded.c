/* test_recorded.c: operators of other runtimes, against what ONNX Runtime's kernels or PyTorch
 * gave.
 *
 * recorded.txt is made by record.py: case, model as text, and each output. The pass inline must
 * leave none of the foreign operators, and what it puts in must give the same numbers. Where inputs
 * called x, x1 ... are floating-point, it must have a gradient too: computed in double, that agrees
 * with differences of the same graph.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebb.h"
#include "onnx/graph/build.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"
#include "tests/status.h"

#define RECORD EBB_SOURCE_DIR "/tests/dialect/recorded.txt"

enum { LINE = 1 << 16, OUTPUTS = 6, CASES_AT_LEAST = 120, DIFFERENTIATED_AT_LEAST = 60 };

typedef struct recorded {
    char name[512], model[LINE];
    char outputs[OUTPUTS][LINE];
    size_t count;
} recorded;

/* ---- numbers ---- */

static double element(const ebb_named *t, int64_t i)
{
    switch (t->dtype) {
    case EBB_F32:
        return (double)((const float *)t->data)[i];
    case EBB_F64:
        return ((const double *)t->data)[i];
    case EBB_I32:
        return ((const int32_t *)t->data)[i];
    case EBB_I64:
        return (double)((const int64_t *)t->data)[i];
    case EBB_BOOL:
        return ((const unsigned char *)t->data)[i];
    default:
        return NAN;
    }
}

static int64_t size_of(const ebb_named *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->dims[d];
    return n;
}

static void compare(ebb_program *p, const char *what, const char *line)
{
    char name[64];
    ebb_named got;
    int at = 0;
    assert_int_equal(sscanf(line, "%63s%n", name, &at), 1);
    good_for(ebb_program_get(p, name, &got), what);
    const char *text = line + at;
    char *end;
    for (int64_t i = 0, n = size_of(&got); i < n; i++, text = end) {
        double want = strtod(text, &end), x = element(&got, i);
        assert_true(end != text);
        if (!(fabs(x - want) <= 2e-6 + 1e-5 * fabs(want)))
            fail_msg("%s: %s[%lld] is %.8g; there it is %.8g", what, name, (long long)i, x, want);
    }
    assert_int_equal(strspn(text, " \n"), strlen(text));
}

static ebb_model *model_of(const char *text, const char *what)
{
    ebb_model *m = NULL;
    good_for(ebb_text_parse_model(&m, text), what);
    good_for(ebb_infer_graph(m->graph), what);
    good_for(ebb_rewrite(m, "inline", NULL, NULL), what);
    return m;
}

static void outputs_agree(const recorded *c)
{
    const ebb_compile_options options = {.backend = "plain", .threads = 1};
    OWNED_PROGRAM *p = NULL;
    OWNED_MODEL *m = model_of(c->model, c->name);
    EBB_EACH_NODE(m->graph, n)
        if (ebb_node_of(m->graph, n)->op == EBB_OP_UNKNOWN)
            fail_msg("%s: %s stays", c->name, ebb_node_label(m->graph, n));
    good_for(ebb_program_compile(&p, m, &options), c->name);
    good_for(ebb_program_step(p, NULL), c->name);
    for (size_t k = 0; k < c->count; k++)
        compare(p, c->name, c->outputs[k]);
}

/* ---- gradients ---- */

/* The model with double where it has float. */
static void in_double(char *to, size_t size, const char *from)
{
    size_t used = 0;
    while (*from != '\0' && used + 8 < size) {
        bool word = strncmp(from, "float", 5) == 0 && (from[5] == '[' || from[5] == ' ');
        used += (size_t)snprintf(to + used, size - used, "%s", word ? "double" : "");
        if (word)
            from += 5;
        else
            to[used++] = *from++;
    }
    to[used] = '\0';
}

/* The sum of all elements of y, each with a weight of its own. */
static ebb_status add_loss(ebb_model *m)
{
    ebb_graph *g = m->graph;
    ebb_value y = ebb_value_find(g, "y");
    ebb_build b = ebb_build_at(g, EBB_NO_NODE, EBB_FORWARD, NULL);
    ebb_type type = *ebb_value_of(g, y)->type;
    int64_t n = 0;
    assert_true(ebb_type_elements(&type, &n));
    double *weights = malloc((size_t)(n + 1) * sizeof *weights);
    assert_non_null(weights);
    for (int64_t i = 0; i < n; i++)
        weights[i] = cos(1.0 + 2.0 * (double)i);
    ebb_value weighed = ebb_emit(&b, EBB_OP_MUL, y, ebb_const_tensor(&b, &type, weights));
    free(weights);
    ebb_with_int(&b, "keepdims", 0);
    ebb_with_name(&b, "loss");
    ebb_value loss = ebb_emit(&b, EBB_OP_REDUCE_SUM, weighed);
    if (b.status != NULL)
        return b.status;
    while (g->output_count > 0)
        ebb_graph_remove_output(g, g->outputs[0]);
    return ebb_graph_add_output(g, loss);
}

static double loss_at(ebb_program *p, const char *what)
{
    ebb_named t;
    good_for(ebb_program_step(p, NULL), what);
    good_for(ebb_program_get(p, "loss", &t), what);
    return element(&t, 0);
}

/* The slope along the gradient of x itself, by the gradient and by differences. */
static void slope_agrees(ebb_program *p, const char *what, const char *x)
{
    char name[64];
    ebb_named values, grad;
    (void)snprintf(name, sizeof name, "%s_grad", x);
    (void)loss_at(p, what);
    if (ebb_program_get(p, name, &grad) != NULL)
        return;
    good_for(ebb_program_get(p, x, &values), what);
    int64_t n = size_of(&grad);
    FREED double *old = malloc((size_t)(n + 1) * sizeof *old),
                 *at = malloc((size_t)(n + 1) * sizeof *at);
    double *way = malloc((size_t)(n + 1) * sizeof *way), slope = 0, ends[2];
    assert_true(old != NULL && at != NULL && way != NULL);
    for (int64_t i = 0; i < n; i++) {
        old[i] = element(&values, i);
        way[i] = sin(3.0 + 5.0 * (double)i);
        slope += way[i] * element(&grad, i);
    }
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++)
            at[i] = old[i] + (side == 0 ? -1e-5 : 1e-5) * way[i];
        const ebb_named moved = {x, EBB_F64, values.rank, values.dims, at};
        good_for(ebb_program_set(p, &moved), what);
        ends[side] = loss_at(p, what);
    }
    const ebb_named back = {x, EBB_F64, values.rank, values.dims, old};
    good_for(ebb_program_set(p, &back), what);
    double difference = (ends[1] - ends[0]) / 2e-5;
    if (!(fabs(slope - difference) <= 1e-6 + 1e-5 * fabs(difference)))
        fail_msg("%s: the slope along %s is %.10g, by differences %.10g", what, x, slope,
                 difference);
    free(way);
}

/* Nothing is trained through gradients, counts, accumulators and tables in few bits; and what ai.onnx.ml makes is
 * float32, too coarse for differences, but of nodes whose gradients other suites hold. */
static bool has_no_slope_here(const recorded *c)
{
    static const char *const words[] = {"Grad",  "Accumulator", "BroadcastGradient",
                                        "Embed", "ai.onnx.ml",  "GatherBlockQuantized"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(c->name, words[i]) != NULL)
            return true;
    return false;
}

static bool gradients_agree(const recorded *c)
{
    static const char *const names[] = {"x", "x1", "x2", "x3"};
    static char text[2 * LINE];
    const ebb_compile_options options = {.backend = "plain", .threads = 1};
    if (has_no_slope_here(c) || strncmp(c->outputs[0], "y ", 2) != 0)
        return false;
    OWNED_PROGRAM *p = NULL;
    in_double(text, sizeof text, c->model);
    OWNED_MODEL *m = model_of(text, c->name);
    good_for(add_loss(m), c->name);
    good_for(ebb_rewrite(m, "loss:name=loss,gradient:train=x*", NULL, NULL), c->name);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) { // a state can be set
        ebb_value x = ebb_value_find(m->graph, names[i]);
        if (x.i != 0)
            good_for(ebb_graph_bind(m->graph, x, x), c->name);
    }
    good_for(ebb_program_compile(&p, m, &options), c->name);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        slope_agrees(p, c->name, names[i]);
    return true;
}

/* ---- the record ---- */

static bool read_line(FILE *file, char *line, size_t size)
{
    if (fgets(line, (int)size, file) == NULL)
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static void each_case(void (*see)(const recorded *c, void *context), void *context)
{
    static recorded c;
    static char line[LINE];
    FILE *file = fopen(RECORD, "r");
    assert_non_null(file);
    bool more = read_line(file, line, sizeof line);
    while (more) {
        assert_int_equal(strncmp(line, "case ", 5), 0);
        (void)snprintf(c.name, sizeof c.name, "%.500s", line + 5);
        assert_true(read_line(file, c.model, sizeof c.model));
        for (c.count = 0; (more = read_line(file, line, sizeof line)) && line[0] == 'y'; c.count++)
            (void)snprintf(c.outputs[c.count], LINE, "%s", line);
        see(&c, context);
    }
    fclose(file);
}

static void see_outputs(const recorded *c, void *context)
{
    outputs_agree(c);
    ++*(size_t *)context;
}

static void see_gradients(const recorded *c, void *context)
{
    *(size_t *)context += gradients_agree(c);
}

TEST(outputs_are_those_that_were_recorded)
{
    size_t cases = 0;
    each_case(see_outputs, &cases);
    print_message("%zu cases\n", cases);
    assert_true(cases >= CASES_AT_LEAST);
}

TEST(what_is_put_in_has_gradients)
{
    size_t cases = 0;
    each_case(see_gradients, &cases);
    print_message("%zu cases differentiated\n", cases);
    assert_true(cases >= DIFFERENTIATED_AT_LEAST);
}
