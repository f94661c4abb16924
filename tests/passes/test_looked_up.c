/* test_looked_up.c: what constant folding looked up in a table of places is that table again. */

#include <math.h>
#include <stdlib.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "passes/mended/looked_up.h"
#include "passes/mended/merged.h"
#include "passes/parameters/trainable.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/status.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]>\n"
#define NAME "onnx::Add_7"

enum { HEADS = 3, SIDE = 4, PLACES = SIDE * SIDE, ROWS = 2 * SIDE - 1 };

/* ---- numbers at a head and two places ---- */

static double drawn(int64_t i)
{
    uint64_t x = (uint64_t)(i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    return ((double)(x >> 40) / (double)(1 << 24) - 0.5) * 0.2;
}

static double of_table(int h, int from, int to)
{
    return drawn(h * ROWS + (to - from + SIDE - 1));
}

static double padded(int h, int from, int to) // a place before all others, at no distance
{
    return from * to != 0 ? of_table(h, from, to) : 0;
}

static double of_slopes(int h, int from, int to) // distances, and a slope for each head
{
    return -0.3 * pow(2, -h) * (abs(to - from) + 0.1 * (to > from)) + 0.17 * pow(2, -h);
}

static double above_zero(int h, int from, int to)
{
    return exp(of_table(h, from, to));
}

static double of_each(int h, int from, int to) // no two are alike
{
    return drawn((h * SIDE + from) * SIDE + to);
}

typedef double (*numbers)(int, int, int);

static const char straight[] = HEAD "g (float[2,3,4,4] x) => (float[2,3,4,4] y) <float[1,3,4,4] t>"
                                    "{ y = Add (x, t) }";
static const char around[] =
    HEAD "g (float[2,3,4,4] x) => (float[2,3,4,4] y) "
         "<float[16,3] t, int64[3] s = {4,4,3}, int64[1] zero = {0}>"
         "{ a = Reshape (t, s) b = Transpose <perm = [2,0,1]> (a) c = Unsqueeze (b, zero) "
         "  y = Add (x, c) }";
static const char multiplied[] =
    HEAD "g (float[2,3,4,4] x) => (float[2,3,4,4] y) <float[1,3,4,4] t> { y = MatMul (x, t) }";

static float bytes[HEADS * PLACES];

static ebb_model *model_of(const char *text, numbers of, const char *name)
{
    ebb_model *m = NULL;
    bool rows = text == around;
    good(ebb_text_parse_model(&m, text));
    for (int i = 0; i < HEADS * PLACES; i++) {
        int h = rows ? i % HEADS : i / PLACES, p = rows ? i / HEADS : i % PLACES;
        bytes[i] = (float)of(h, p / SIDE, p % SIDE);
    }
    ebb_value t = ebb_value_find(m->graph, "t");
    good(ebb_value_point(m->graph, t, bytes));
    good(ebb_value_rename(m->graph, t, name));
    m->torchscript = true;
    good(ebb_infer_graph(m->graph));
    return m;
}

static ebb_status part(ebb_model *m)
{
    OWNED_ARENA scratch = {0};
    ebb_status status = ebb_merged_part(m->graph, &scratch);
    return status;
}

static ebb_node gather_of(const ebb_model *m)
{
    EBB_EACH_NODE(m->graph, n)
        if (ebb_node_of(m->graph, n)->op == EBB_OP_GATHER)
            return n;
    return EBB_NO_NODE;
}

static void check_table(const ebb_model *m, int axis, const int64_t *dims, int rank)
{
    const ebb_graph *g = m->graph;
    ebb_node n = gather_of(m);
    assert_int_not_equal(n.i, 0);
    ebb_attrs attrs = ebb_node_attrs(g, n);
    assert_int_equal(ebb_attr_int(&attrs, "axis", 0), axis);
    ebb_value v = ebb_in(g, n, 0);
    assert_string_equal(ebb_value_name(g, v), NAME);
    assert_non_null(ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_LOOKED_UP));
    const ebb_tensor *t = ebb_value_of(g, v)->tensor;
    const ebb_tensor *index = ebb_value_of(g, ebb_in(g, n, 1))->tensor;
    assert_int_equal(t->type.rank, rank);
    for (int k = 0; k < rank; k++)
        assert_int_equal(t->type.dims[k], dims[k]);
    bool by_rows = axis == 0;
    for (int i = 0; i < HEADS * PLACES; i++) {
        int h = by_rows ? i % HEADS : i / PLACES, p = by_rows ? i / HEADS : i % PLACES;
        int64_t row = (int64_t)ebb_tensor_double(index, p);
        int64_t at = by_rows ? row * HEADS + h : h * ROWS + row;
        assert_true(ebb_tensor_double(t, at) == (double)bytes[i]);
    }
    ebb_trainable_source source;
    bool trains[64] = {false};
    good(ebb_trainable_find(trains, &source, g));
    assert_true(trains[v.i]);
}

/* ---- tests ---- */

TEST(what_was_looked_up_for_two_places_is_a_table_of_distances_again)
{
    OWNED_MODEL *m = model_of(straight, of_table, NAME);
    good(part(m));
    good(ebb_verify(m->graph));
    check_table(m, 2, (const int64_t[]){1, HEADS, ROWS}, 3);
    good(part(m)); // a second time finds nothing
    check_table(m, 2, (const int64_t[]){1, HEADS, ROWS}, 3);
}

TEST(rows_that_come_again_and_are_moved_before_they_are_added_are_a_table)
{
    OWNED_MODEL *m = model_of(around, of_table, NAME);
    good(part(m));
    good(ebb_verify(m->graph));
    check_table(m, 0, (const int64_t[]){ROWS, HEADS}, 2);
}

TEST(places_that_were_padded_with_zeros_stay_zero)
{
    const char *const texts[] = {straight, around};
    for (size_t i = 0; i < 2; i++) {
        OWNED_MODEL *m = model_of(texts[i], padded, NAME);
        const ebb_rewrite_options options = {.verify_each = true};
        OWNED_ARENA keep = {0};
        ebb_report *reports;
        size_t count;
        good(
            ebb_pipeline_run(m, "train-mode,loss:mse,gradient", &options, &keep, &reports, &count));
        assert_int_not_equal(gather_of(m).i, 0);
        ebb_value grad = ebb_value_find(m->graph, NAME "_grad");
        assert_int_equal(ebb_producer_op(m->graph, grad), EBB_OP_MUL);
    }
}

TEST(what_is_no_table_is_left_alone)
{
    const struct {
        const char *text;
        numbers of;
        const char *name;
    } cases[] = {
        {straight, of_slopes, NAME},  {straight, above_zero, NAME}, {straight, of_each, NAME},
        {straight, of_table, "bias"}, {multiplied, of_table, NAME},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED_MODEL *m = model_of(cases[i].text, cases[i].of, cases[i].name);
        good(part(m));
        if (gather_of(m).i != 0)
            fail_msg("case %zu was made a table", i);
    }
    ebb_model *m = model_of(straight, of_table, NAME); // of another exporter
    m->torchscript = false;
    good(part(m));
    assert_int_equal(gather_of(m).i, 0);
    ebb_model_free(m);
}

TEST(running_out_of_memory_anywhere_is_an_error_and_no_crash)
{
    bool done = false;
    for (long n = 1; !done && n < 400; n++) {
        OWNED_MODEL *m = model_of(straight, of_table, NAME);
        ebb_alloc_fail_after(n);
        ebb_status status = part(m);
        ebb_alloc_fail_after(0);
        done = status == NULL;
    }
    assert_true(done);
}
