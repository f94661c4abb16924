/* test_calls.c: models of thousands of functions: what is looked at grows as the functions do, in
 * whatever order they stand and call each other, and all of them go in. And chains of which each link
 * folds when another one has: they need no walk for each link.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "passes/flatten/calls.h"
#include "tests/owned.h"
#include "tests/status.h"
#include "tests/test.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 21, \"local\" : 1]>\n"
#define FUNCTION "<domain: \"local\", opset_import: [\"\" : 21, \"local\" : 1]>\n"

/* How functions call each other: function i, of `count`. */
typedef void (*shape)(FILE *out, int i, int count);

/* Each calls the one that stands after it: the last is known first. */
static void calls_the_next(FILE *out, int i, int count)
{
    if (i + 1 < count)
        (void)fprintf(out, "{ c = Neg (a) b = local.F%d (c) }\n", i + 1);
    else
        (void)fprintf(out, "{ b = Neg (a) }\n");
}

static void calls_the_one_before(FILE *out, int i, int count)
{
    (void)count;
    if (i > 0)
        (void)fprintf(out, "{ c = Neg (a) b = local.F%d (c) }\n", i - 1);
    else
        (void)fprintf(out, "{ b = Neg (a) }\n");
}

/* The first calls all others. */
static void is_called_by_the_first(FILE *out, int i, int count)
{
    if (i > 0) {
        (void)fprintf(out, "{ b = Neg (a) }\n");
        return;
    }
    (void)fprintf(out, "{ c0 = Neg (a)\n");
    for (int k = 1; k < count; k++)
        (void)fprintf(out, "c%d = local.F%d (c%d)\n", k, k, k - 1);
    (void)fprintf(out, "b = Identity (c%d) }\n", count - 1);
}

static ebb_model *model_of(shape body, int count, int called)
{
    char *text = NULL;
    size_t size;
    ebb_model *model = NULL;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    (void)fprintf(out, HEAD "g (float[2] x) => (float[2] y) { y = local.F%d (x) }\n", called);
    for (int i = 0; i < count; i++) {
        (void)fprintf(out, FUNCTION "F%d (a) => (b)\n", i);
        body(out, i, count);
    }
    assert_int_equal(fclose(out), 0);
    good(ebb_text_parse_model(&model, text));
    free(text);
    assert_int_equal(model->function_count, count);
    return model;
}

static size_t work_of(shape body, int count, int called)
{
    OWNED_MODEL *model = model_of(body, count, called);
    OWNED_ARENA arena = {0};
    ebb_calls calls;
    assert_null(ebb_calls_index(&calls, model, &arena));
    assert_null(ebb_calls_bound(&calls, 1 << 20, &arena));
    return calls.looked_at;
}

static const struct {
    const char *name;
    shape body;
    bool last; /* the graph calls the last one, else the first */
} shapes[] = {
    {"a chain whose end stands last", calls_the_next, false},
    {"a chain whose end stands first", calls_the_one_before, true},
    {"one that calls all others", is_called_by_the_first, false},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

TEST(what_is_looked_at_grows_as_the_functions_do)
{
    for (size_t i = 0; i < SHAPES; i++) {
        const int few = 2000, many = 4000;
        size_t less = work_of(shapes[i].body, few, shapes[i].last ? few - 1 : 0);
        size_t more = work_of(shapes[i].body, many, shapes[i].last ? many - 1 : 0);
        print_message("%s: %zu of %d, %zu of %d\n", shapes[i].name, less, few, more, many);
        assert_true(more < 3 * less);
        assert_true(more < (size_t)many * 16);
    }
}

TEST(thousands_of_functions_go_in)
{
    for (size_t i = 0; i < SHAPES; i++) {
        const int count = 3000;
        OWNED_MODEL *model = model_of(shapes[i].body, count, shapes[i].last ? count - 1 : 0);
        ebb_status status = ebb_rewrite(model, "inline", NULL, NULL);
        if (status != NULL)
            fail_msg("%s: %s", shapes[i].name, ebb_status_text(status));
        size_t negations = 0;
        EBB_EACH_NODE(model->graph, n)
            negations += ebb_node_of(model->graph, n)->op == EBB_OP_NEG;
        assert_int_equal(negations, count);
        assert_int_equal(model->function_count, 0);
    }
}

TEST(a_circle_of_functions_is_refused)
{
    static const char *const circles[] = {
        HEAD "g (float[2] x) => (float[2] y) { y = local.A (x) }\n" FUNCTION
             "A (a) => (b) { b = local.A (a) }\n",
        HEAD "g (float[2] x) => (float[2] y) { y = local.A (x) }\n" FUNCTION
             "C (a) => (b) { b = local.A (a) }\n" FUNCTION
             "A (a) => (b) { c = local.B (a) b = local.B (c) }\n" FUNCTION
             "B (a) => (b) { b = local.C (a) }\n",
        HEAD "g (float[2] x) => (float[2] y) { y = Neg (x) }\n" FUNCTION
             "A (a) => (b) { c = Constant <value = bool {1}> () b = If (c) <then_branch = t () => "
             "(u) { u = local.A (a) }, else_branch = e () => (v) { v = Neg (a) }> }\n",
    };
    for (size_t i = 0; i < sizeof circles / sizeof circles[0]; i++) {
        OWNED_MODEL *model = NULL;
        assert_null(ebb_text_parse_model(&model, circles[i]));
        refused(ebb_rewrite(model, "inline", NULL, NULL), EBB_REJECTED, "calls itself");
    }
}

/* ---- chains that fold ---- */

enum { LINKS = 100, WALKS = 64 };

static ebb_model *chain_of(const char *first, void (*link)(FILE *out, int i), const char *last)
{
    FREED char *text = NULL;
    size_t bytes;
    ebb_model *model = NULL;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    (void)fputs(first, out);
    for (int i = 0; i < LINKS; i++)
        link(out, i);
    (void)fputs(last, out);
    assert_int_equal(fclose(out), 0);
    assert_null(ebb_text_parse_model(&model, text));
    return model;
}

/* unfinished: it is said that another fold may find more. */
static size_t left_by_fold(ebb_model *model, ebb_op op, bool unfinished)
{
    size_t left = 0;
    char *report;
    assert_null(ebb_rewrite(model, "fold", NULL, &report));
    assert_int_equal(strstr(report, "another fold may find more") != NULL, unfinished);
    ebb_release(report);
    EBB_EACH_NODE(model->graph, n)
        left += ebb_node_of(model->graph, n)->op == op;
    return left;
}

static void erase_the_last(FILE *out, int i)
{
    (void)fprintf(out,
                  "l%d = SequenceLength (s%d) p%d = Sub (l%d, one)\n"
                  "s%d = SequenceErase (s%d, p%d)\n",
                  i, i, i, i, i + 1, i, i);
}

/* Each place is computed from the sequence before it. */
TEST(places_that_follow_from_one_another_fold_in_few_walks)
{
    OWNED_MODEL *model = chain_of(HEAD "g (float[103,2] x) => (float[3,2] y) <int64 one = {1}> {"
                                       "s0 = SplitToSequence <axis = 0> (x, one)\n",
                                  erase_the_last, "y = ConcatFromSequence <axis = 0> (s100) }");
    assert_int_equal(left_by_fold(model, EBB_OP_SEQUENCE_ERASE, false), 0);
}

static void drop_as_the_last_mask_says(FILE *out, int i)
{
    (void)fprintf(out, "x%d, m%d = Dropout (x%d, zero, m%d)\n", i + 1, i + 1, i, i);
}

/* A Dropout goes when the one behind it has gone, which reads its mask: one a walk. */
TEST(walks_end_though_a_graph_asks_for_more)
{
    OWNED_MODEL *model = chain_of(HEAD "g (float x0, bool m0) => (float y) <float zero = {0}> {\n",
                                  drop_as_the_last_mask_says, "y = Neg (x100) }");
    assert_int_equal(left_by_fold(model, EBB_OP_DROPOUT, true), LINKS - WALKS);
    assert_int_equal(left_by_fold(model, EBB_OP_DROPOUT, false), 0);
}
