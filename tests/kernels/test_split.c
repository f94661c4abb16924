/* test_split.c: float32 products by bfloat16 (kernels/nested/split.h) against the plain ones in float64.
 *
 * An element may differ by 2^-16 of the sum of its terms' magnitudes, which the same product of
 * magnitudes gives.
 */
#include "call.h"

#include <float.h>

typedef struct product {
    const char *what;
    ebb_op op;
    int64_t a[5], b[5], c[3], y[5]; /* until 0 */
    bool turned_a, turned_b;
    double alpha, beta;
} product;

// clang-format off
static const product products[] = {
    {"matrices", EBB_OP_MATMUL, {7, 65}, {65, 5}, {0}, {7, 5}, false, false, 1, 0},
    {"larger ones", EBB_OP_MATMUL, {131, 1017}, {1017, 67}, {0}, {131, 67}, false, false, 1, 0},
    {"rows by a matrix", EBB_OP_MATMUL, {3, 7, 65}, {65, 5}, {0}, {3, 7, 5}, false, false, 1, 0},
    {"a batch on both sides", EBB_OP_MATMUL, {3, 1, 7, 65}, {2, 65, 5}, {0}, {3, 2, 7, 5}, false, false, 1, 0},
    {"a vector from the left", EBB_OP_MATMUL, {65}, {2, 65, 5}, {0}, {2, 5}, false, false, 1, 0},
    {"a vector from the right", EBB_OP_MATMUL, {2, 7, 65}, {65}, {0}, {2, 7}, false, false, 1, 0},
    {"a single term", EBB_OP_MATMUL, {7, 1}, {1, 5}, {0}, {7, 5}, false, false, 1, 0},
    {"a linear layer", EBB_OP_GEMM, {33, 65}, {5, 65}, {5}, {33, 5}, false, true, 1, 1},
    {"a weight's gradient", EBB_OP_GEMM, {65, 33}, {65, 5}, {0}, {33, 5}, true, false, 1, 0},
    {"Gemm with all it has", EBB_OP_GEMM, {65, 33}, {5, 65}, {33, 5}, {33, 5}, true, true, 0.5, -2},
    {"turned keys", EBB_OP_FUSED_MATMUL, {2, 3, 9, 65}, {2, 3, 11, 65}, {0}, {2, 3, 9, 11}, false, true, 0.125, 0},
    {"both turned", EBB_OP_FUSED_MATMUL, {2, 65, 9}, {2, 11, 65}, {0}, {2, 9, 11}, true, true, 3, 0},
};
// clang-format on

static int rank_of(const int64_t *dims)
{
    int rank = 0;
    while (rank < 5 && dims[rank] != 0)
        rank++;
    return rank;
}

/* The same draws in both dtypes: what float32 holds. */
static void put_factor(testing *t, ebb_dtype dtype, const int64_t *dims, bool magnitudes)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, dtype, rank_of(dims), dims);
    for (size_t i = 0; i < count_of(o); i++) {
        const double x = (double)(float)(draw(t) * ldexp(1, (int)(i % 7)) / 3);
        set_value(o, i, magnitudes ? fabs(x) : x);
    }
}

static void make(testing *t, const product *p, ebb_dtype dtype, bool magnitudes)
{
    begin(t, p->op);
    t->call.node = p->what;
    put_int(t, "transA", p->turned_a);
    put_int(t, "transB", p->turned_b);
    put_float(t, "alpha", magnitudes ? fabs(p->alpha) : p->alpha);
    put_float(t, "beta", magnitudes ? fabs(p->beta) : p->beta);
    put_factor(t, dtype, p->a, magnitudes);
    put_factor(t, dtype, p->b, magnitudes);
    if (p->c[0] != 0)
        put_factor(t, dtype, p->c, magnitudes);
    put_out(t, dtype, rank_of(p->y), p->y);
}

static void compute(testing *t, const char *backend, const char *kernel)
{
    const ebb_backend *const *list;
    check_status(ebb_backends(backend, &list), t->call.node);
    check_status(ebb_pick(&t->call, list), t->call.node);
    if (strncmp(t->call.kernel->name, kernel, strlen(kernel)) != 0)
        fail_msg("%s: %s computes it", t->call.node, t->call.kernel->name);
    compute_picked(t, t->call.node);
}

static void agrees(const product *p)
{
    TESTING(split);
    TESTING(exact);
    TESTING(sums);
    make(&split, p, EBB_F32, false);
    make(&exact, p, EBB_F64, false);
    make(&sums, p, EBB_F64, true);
    compute(&split, "cpu:bf16x3", "bf16x3.");
    compute(&exact, "plain", "plain.");
    compute(&sums, "plain", "plain.");
    for (size_t i = 0; i < count_of(&exact.out[0]); i++) {
        const double got = value_of(&split.out[0], i), expected = value_of(&exact.out[0], i);
        const double bound = 0x1p-16 * value_of(&sums.out[0], i);
        if (!(fabs(got - expected) <= bound))
            fail_msg("%s: element %zu is %.9g, expected %.9g within %.3g", p->what, i, got,
                     expected, bound);
    }
}

TEST(products_are_those_of_float64_within_their_bound)
{
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        agrees(&products[i]);
}

TEST(in_pieces_they_are_as_well)
{
    deterministic = true;
    products_are_those_of_float64_within_their_bound(state);
    deterministic = false;
}

/* What rounds to infinity in bfloat16 is none; what has no second part in it is small. */
TEST(the_ends_of_the_range_are_numbers)
{
    static const float a[] = {FLT_MAX, -FLT_MAX, 0x1.FFp127f, 0x1p-120f, 0, 1};
    TESTING(t);
    begin(&t, EBB_OP_MATMUL);
    ebb_operand *left = put_in(&t, EBB_F32, 2, D(6, 1)), *right = put_in(&t, EBB_F32, 2, D(1, 1));
    put_out(&t, EBB_F32, 2, D(6, 1));
    memcpy(left->data, a, sizeof a);
    set_value(right, 0, 0.75);
    compute(&t, "cpu:bf16x3", "bf16x3.");
    for (size_t i = 0; i < 6; i++) {
        const double expected = 0.75 * (double)a[i], got = value_of(&t.out[0], i);
        if (!(fabs(got - expected) <= 0x1p-16 * fabs(expected) + 0x1p-118))
            fail_msg("%g became %g", (double)a[i], got);
    }
}

TEST(other_dtypes_are_left_to_others)
{
    const ebb_backend *const *list;
    static const ebb_dtype dtypes[] = {EBB_F64, EBB_BF16};
    for (size_t i = 0; i < 2; i++) {
        TESTING(t);
        begin(&t, EBB_OP_MATMUL);
        put_in(&t, dtypes[i], 2, D(3, 5));
        put_in(&t, dtypes[i], 2, D(5, 4));
        put_out(&t, dtypes[i], 2, D(3, 4));
        check_status(ebb_backends("cpu:bf16x3", &list), "cpu:bf16x3");
        check_status(ebb_pick(&t.call, list), "MatMul");
        assert_null(strstr(t.call.kernel->name, "bf16x3"));
    }
}
