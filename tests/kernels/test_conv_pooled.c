/* test_conv_pooled.c: ConvWeightGradPooled is ConvWeightGrad of X made of its cells' averages: with
 * that X in memory in float64; and oneDNN's products against the plain loops in float32.
 */
#include "tests/kernels/conv_shape.h"
#include "tests/owned.h"

static const double TOLERANCE = 2e-5; /* of the largest: sums of up to some thousand terms */

// clang-format off
static const shape shapes[] = {
    {"3x3",                    2, 2,  7, 19, 1, {8, 12},   {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"odd sizes",              2, 3,  5,  4, 1, {9, 11},   {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"smaller than a cell",    2, 2,  3,  4, 1, {2, 3},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"stride 2",               2, 2, 16, 32, 1, {9, 10},   {3, 3},    {2, 2},    {1, 1},    {1, 1, 1, 1}},
    {"stride 3",               2, 1,  4,  6, 1, {10, 13},  {3, 3},    {3, 3},    {1, 1},    {0, 0, 0, 0}},
    {"stride beyond the cell", 2, 2,  4,  6, 1, {17, 19},  {2, 5},    {5, 4},    {1, 1},    {0, 2, 0, 2}},
    {"asymmetric pads",        2, 2,  5,  8, 1, {7, 9},    {3, 4},    {1, 2},    {1, 1},    {0, 1, 2, 2}},
    {"dilated",                2, 2,  6, 10, 1, {13, 12},  {3, 3},    {1, 1},    {2, 3},    {2, 3, 2, 3}},
    {"the stem",               2, 2,  3, 64, 1, {34, 32},  {7, 7},    {2, 2},    {1, 1},    {3, 3, 3, 3}},
    {"1x1",                    2, 3, 24, 40, 1, {7, 5},    {1, 1},    {1, 1},    {1, 1},    {0}},
    {"1x1, stride 2",          2, 2, 32, 16, 1, {8, 7},    {1, 1},    {2, 2},    {1, 1},    {0}},
    {"blocks of images",       2, 50, 3,  5, 1, {7, 6},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"blocks of filters",      2, 9,  6, 300, 1, {16, 16}, {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"groups",                 2, 2, 12, 18, 3, {8, 9},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"wide groups",            2, 2, 12, 18, 2, {8, 9},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"depthwise",              2, 2, 32, 32, 32, {19, 9},  {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"depthwise, stride 2",    2, 12, 9,  9, 9, {11, 8},   {3, 3},    {2, 2},    {1, 1},    {1, 1, 1, 1}},
    {"depthwise, 2 filters",   2, 2,  8, 16, 8, {9, 9},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"padding beyond the row", 2, 2,  4,  4, 4, {2, 2},    {5, 5},    {1, 1},    {1, 1},    {2, 2, 2, 2}},
    {"one axis",               1, 3,  5,  9, 1, {21},      {4},       {2},       {1},       {1, 2}},
    {"three axes",             3, 2,  3,  6, 1, {5, 6, 7}, {2, 3, 3}, {1, 2, 1}, {1, 1, 1}, {0, 1, 1, 1, 1, 1}},
    {"three axes, groups",     3, 2,  8,  8, 2, {4, 9, 5}, {3, 1, 2}, {2, 1, 1}, {1, 1, 2}, {1, 0, 0, 1, 0, 0}},
};
// clang-format on
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* M holds the averages of cells of p by p. */
static void cells_of(int64_t *m, const dims *d, int64_t p)
{
    for (int i = 0; i < d->rank; i++)
        m[i] = i < 2 ? d->x[i] : (d->x[i] + p - 1) / p;
}

/* Everything but M or X, which is `second`. */
static void put(testing *t, ebb_op op, const shape *s, const dims *d, int64_t p, ebb_dtype dtype,
                const int64_t *second)
{
    begin(t, op);
    t->call.node = s->what;
    put_window(t, s);
    put_int(t, "group", s->groups);
    if (op == EBB_OP_CONV_WEIGHT_GRAD_POOLED) {
        put_int(t, "p", p);
        put_ints(t, "input_shape", (uint32_t)d->rank, d->x);
    }
    put_in(t, dtype, d->rank, d->y);
    put_in(t, dtype, d->rank, second);
    put_out(t, dtype, d->rank, d->w);
}

/* The cell in which element i of X lies. */
static size_t cell_of(const dims *d, const int64_t *m, int64_t p, size_t i)
{
    size_t cell = 0, place = 1;
    for (int axis = d->rank - 1; axis >= 0; axis--) {
        size_t size = (size_t)d->x[axis], side = axis < 2 ? 1 : (size_t)p;
        cell += i % size / side * place;
        place *= (size_t)m[axis];
        i /= size;
    }
    return cell;
}

TEST(it_is_the_gradient_by_the_averages_in_float64)
{
    for (size_t i = 0; i < SHAPES; i++)
        for (int64_t p = 2; p <= 4; p++) {
            const dims d = dims_of(&shapes[i]);
            int64_t by[5];
            cells_of(by, &d, p);
            TESTING(whole);
            TESTING(cells);
            put(&cells, EBB_OP_CONV_WEIGHT_GRAD_POOLED, &shapes[i], &d, p, EBB_F64, by);
            put(&whole, EBB_OP_CONV_WEIGHT_GRAD, &shapes[i], &d, p, EBB_F64, d.x);
            FREED double *m = values_of(&cells.in[1]);
            for (size_t e = 0; e < count_of(&whole.in[1]); e++)
                set_value(&whole.in[1], e, m[cell_of(&d, by, p, e)]);
            run_with(&whole, "plain.conv_weight_grad");
            run_with(&cells, "plain.conv_weight_grad_pooled");
            FREED double *expected = values_of(&whole.out[0]);
            check_close(&cells.out[0], expected, 1e-12, shapes[i].what);
        }
}

TEST(products_agree_with_the_plain_loops)
{
    for (size_t i = 0; i < SHAPES; i++)
        for (int64_t p = 1; p <= 4; p++) {
            const dims d = dims_of(&shapes[i]);
            int64_t by[5];
            cells_of(by, &d, p);
            TESTING(t);
            put(&t, EBB_OP_CONV_WEIGHT_GRAD_POOLED, &shapes[i], &d, p, EBB_F32, by);
            check_agree(&t, "dnnl.conv_weight_grad_pooled", "plain.conv_weight_grad_pooled",
                        TOLERANCE);
        }
}

TEST(contradictions_are_declined)
{
    static const char *const names[] = {"dnnl.conv_weight_grad_pooled",
                                        "plain.conv_weight_grad_pooled"};
    for (int wrong = 0; wrong < 5; wrong++)
        for (int k = 0; k < 2; k++) {
            const dims d = dims_of(&shapes[0]);
            int64_t by[5];
            int64_t p = wrong == 0 ? 0 : wrong == 1 ? INT64_MAX : 2;
            cells_of(by, &d, 2);
            by[2] += wrong == 2;
            by[1] -= wrong == 3;
            TESTING(t);
            put(&t, EBB_OP_CONV_WEIGHT_GRAD_POOLED, &shapes[0], &d, p, EBB_F32, by);
            if (wrong == 4)
                t.call.attrs.count--; // input_shape
            assert_non_null(declined_by(&t, names[k]));
        }
}
