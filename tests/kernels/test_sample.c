/* test_sample.c: SampleRows and RandomSketch: over thousands of keys the mean of the estimate of
 * H' G is H' G, also where nearly all of the mass is sure, where norms are zero or wrong, and in
 * the first step; and oneDNN's sketch is the plain one's.
 */
#include "tests/kernels/call.h"

enum { DRAWS = 2000 };

/* The mean of an unbiased estimate is so many of its own standard deviations away with a chance of
 * 6e-8 an element; the keys are fixed. */
static const double SIGMAS = 5.5;

typedef struct tally { /* of one element of the estimate */
    double sum, squares;
} tally;

static void add(tally *t, double x)
{
    t->sum += x;
    t->squares += x * x;
}

static void check_mean(const tally *t, double exact, double size, const char *what, int64_t at)
{
    double mean = t->sum / DRAWS, variance = t->squares / DRAWS - mean * mean;
    double limit = SIGMAS * sqrt(fmax(variance, 0) / DRAWS) + 1e-9 * size;
    if (!(fabs(mean - exact) <= limit))
        fail_msg("%s: element %lld has mean %.9g over %d draws, where %.9g +- %.3g is right", what,
                 (long long)at, mean, DRAWS, exact, limit);
}

static void set_key(ebb_operand *key, int64_t seed, int64_t step)
{
    ((int64_t *)key->data)[0] = seed;
    ((int64_t *)key->data)[1] = step;
}

/* ---- SampleRows ---- */

typedef struct rows_case {
    const char *what;
    int64_t n, k;
    double tail; /* row i of H is multiplied by exp(-tail i) */
    int norms;   /* 0: ones; 1: right; 2: of other rows; 3: half of them zero; 4: all zero */
} rows_case;

// clang-format off
static const rows_case row_cases[] = {
    {"the first step",             40, 12, 0.0, 0},
    {"heavy rows",                 40, 12, 0.3, 0},
    {"with norms",                 40,  4, 0.1, 1},
    {"with the norms of others",   40, 12, 0.1, 2},
    {"norms of zero",              40, 12, 0.1, 3},
    {"no norms at all",            40, 12, 0.1, 4},
    {"nearly all mass is sure",    40, 12, 2.0, 1},
    {"one row",                    17,  1, 0.0, 1},
    {"all rows",                    9,  9, 0.0, 1},
};
// clang-format on

static void fill_rows(testing *t, const rows_case *c, double g[][3])
{
    for (int64_t i = 0; i < c->n; i++) {
        double length = 0;
        for (int64_t j = 0; j < 4; j++)
            set_value(&t->in[0], (size_t)(i * 4 + j), draw(t) * exp(-c->tail * (double)i));
        for (int64_t j = 0; j < 3; j++) {
            g[i][j] = draw(t) * (i % 5 == 0 ? 10 : 1);
            length += g[i][j] * g[i][j];
        }
        double norm = c->norms == 0 ? 1 : sqrt(length);
        if (c->norms == 2)
            norm = (double)(1 + i * i % 23);
        if (c->norms == 4 || (c->norms == 3 && i % 2 == 0))
            norm = 0;
        set_value(&t->in[1], (size_t)i, norm);
    }
}

static void sampled_rows_are_unbiased(const rows_case *c, ebb_dtype dtype)
{
    TESTING(t);
    double g[64][3], exact[12] = {0}, size = 0;
    tally tallies[12] = {{0}};
    begin(&t, EBB_OP_SAMPLE_ROWS);
    t.call.node = c->what;
    put_int(&t, "k", c->k);
    put_int(&t, "stream", 77);
    put_in(&t, dtype, 2, (const int64_t[]){c->n, 4});
    put_in(&t, dtype, 1, &c->n);
    ebb_operand *key = put_in(&t, EBB_I64, 1, (const int64_t[]){2});
    put_out(&t, EBB_I64, 1, &c->k);
    put_out(&t, dtype, 2, (const int64_t[]){c->k, 1});
    fill_rows(&t, c, g);
    for (int64_t i = 0; i < c->n; i++)
        for (int e = 0; e < 12; e++)
            exact[e] += value_of(&t.in[0], (size_t)(i * 4 + e / 3)) * g[i][e % 3];
    for (int e = 0; e < 12; e++)
        size = fmax(size, fabs(exact[e]));
    for (int64_t step = 0; step < DRAWS; step++) {
        double estimate[12] = {0};
        set_key(key, 5, step);
        run_with(&t, "plain.sample_rows");
        for (int64_t j = 0; j < c->k; j++) {
            int64_t row = ((const int64_t *)t.out[0].data)[j];
            double weight = value_of(&t.out[1], (size_t)j);
            assert_in_range(row, 0, c->n - 1);
            for (int e = 0; e < 12; e++)
                estimate[e] +=
                    weight * value_of(&t.in[0], (size_t)(row * 4 + e / 3)) * g[row][e % 3];
        }
        for (int e = 0; e < 12; e++)
            add(&tallies[e], estimate[e]);
    }
    for (int e = 0; e < 12; e++)
        check_mean(&tallies[e], exact[e], size * (dtype == EBB_F32 ? 1000 : 1), c->what, e);
}

TEST(the_mean_over_sampled_rows_is_the_product)
{
    for (size_t i = 0; i < sizeof row_cases / sizeof row_cases[0]; i++) {
        sampled_rows_are_unbiased(&row_cases[i], EBB_F64);
        sampled_rows_are_unbiased(&row_cases[i], EBB_F32);
    }
}

/* Where the sure rows have nearly all mass they are the largest, with weight 1, and the rest is
 * still drawn, with the weight that it needs. */
TEST(the_largest_rows_are_sure_and_the_rest_is_drawn)
{
    const int64_t n = 30, k = 6;
    TESTING(t);
    begin(&t, EBB_OP_SAMPLE_ROWS);
    put_int(&t, "k", k);
    ebb_operand *h = put_in(&t, EBB_F64, 2, (const int64_t[]){n, 1});
    ebb_operand *norms = put_in(&t, EBB_F64, 1, &n);
    ebb_operand *key = put_in(&t, EBB_I64, 1, (const int64_t[]){2});
    put_out(&t, EBB_I64, 1, &k);
    put_out(&t, EBB_F64, 2, (const int64_t[]){k, 1});
    for (int64_t i = 0; i < n; i++) { // rows 7, 11 and 22 have all but 27e-6 of 300
        set_value(h, (size_t)i, i == 7 || i == 11 || i == 22 ? 100 + (double)i : 1e-6);
        set_value(norms, (size_t)i, 1);
    }
    set_key(key, 1, 2);
    run_with(&t, "plain.sample_rows");
    const int64_t *rows = t.out[0].data;
    const double *weights = t.out[1].data;
    assert_int_equal(rows[0], 22);
    assert_int_equal(rows[1], 11);
    assert_int_equal(rows[2], 7);
    for (int64_t j = 0; j < k; j++)
        assert_true(fabs(weights[j] - (j < 3 ? 1 : 9)) < 1e-9); // 27 rows, 3 draws
}

TEST(rows_without_content_or_of_nan_do_no_harm)
{
    const int64_t n = 10, k = 4;
    const double content[] = {0, (double)NAN, (double)INFINITY, 1};
    for (int mode = 0; mode < 16; mode++) {
        TESTING(t);
        begin(&t, EBB_OP_SAMPLE_ROWS);
        put_int(&t, "k", k);
        ebb_operand *h = put_in(&t, EBB_F32, 2, (const int64_t[]){n, 2});
        ebb_operand *norms = put_in(&t, EBB_F32, 1, &n);
        put_in(&t, EBB_I64, 1, (const int64_t[]){2});
        put_out(&t, EBB_I64, 1, &k);
        put_out(&t, EBB_F32, 2, (const int64_t[]){k, 1});
        for (int64_t i = 0; i < n; i++) {
            set_value(h, (size_t)(2 * i), content[mode % 4]);
            set_value(norms, (size_t)i, content[i % 2 == 0 ? mode / 4 : 3]);
        }
        run_with(&t, "plain.sample_rows");
        for (int64_t j = 0; j < k; j++)
            assert_in_range(((const int64_t *)t.out[0].data)[j], 0, n - 1);
    }
}

/* ---- RandomSketch ---- */

static void put_sketch(testing *t, ebb_dtype dtype, int64_t n, int64_t d, int64_t rows)
{
    begin(t, EBB_OP_RANDOM_SKETCH);
    put_int(t, "rows", rows);
    put_int(t, "stream", 3);
    put_in(t, dtype, 2, (const int64_t[]){n, d});
    put_in(t, EBB_I64, 1, (const int64_t[]){2});
    put_out(t, dtype, 2, (const int64_t[]){rows, d});
    set_key(&t->in[1], 11, 4);
}

TEST(the_mean_over_sketches_is_the_product)
{
    enum { N = 45, D = 3, K = 9 };
    TESTING(t);
    tally tallies[D * D] = {{0}};
    double exact[D * D] = {0};
    put_sketch(&t, EBB_F64, N, D, K);
    for (int i = 0; i < N; i++)
        for (int e = 0; e < D * D; e++)
            exact[e] += value_of(&t.in[0], (size_t)(i * D + e / D)) *
                        value_of(&t.in[0], (size_t)(i * D + e % D));
    for (int64_t step = 0; step < DRAWS; step++) {
        set_key(&t.in[1], 11, step);
        run_with(&t, "plain.random_sketch");
        for (int e = 0; e < D * D; e++) {
            double sum = 0;
            for (int r = 0; r < K; r++)
                sum += value_of(&t.out[0], (size_t)(r * D + e / D)) *
                       value_of(&t.out[0], (size_t)(r * D + e % D));
            add(&tallies[e], sum);
        }
    }
    for (int e = 0; e < D * D; e++)
        check_mean(&tallies[e], exact[e], 1, "sketch", e);
}

TEST(products_agree_with_the_plain_sums)
{
    static const int64_t sizes[][3] = {
        {1, 1, 1}, {33, 5, 7}, {512, 20, 256}, {700, 30, 65}, {1100, 3, 300}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        TESTING(t);
        put_sketch(&t, EBB_F32, sizes[i][0], sizes[i][1], sizes[i][2]);
        check_agree(&t, "dnnl.random_sketch", "plain.random_sketch", 2e-5);
    }
}

TEST(contradictions_are_declined)
{
    static const char *const names[] = {"dnnl.random_sketch", "plain.random_sketch"};
    for (int k = 0; k < 2; k++) {
        TESTING(t);
        put_sketch(&t, EBB_F32, 8, 4, 3);
        t.out[0].type.dims[0] = 2;
        assert_non_null(declined_by(&t, names[k]));
        t.out[0].type.dims[0] = 3;
        t.in[1].type.dims[0] = 1;
        assert_non_null(declined_by(&t, names[k]));
        t.in[1].type.dims[0] = 2;
    }
    TESTING(t);
    begin(&t, EBB_OP_SAMPLE_ROWS);
    put_int(&t, "k", 9);
    put_in(&t, EBB_F32, 2, (const int64_t[]){8, 2});
    put_in(&t, EBB_F32, 1, (const int64_t[]){8});
    put_in(&t, EBB_I64, 1, (const int64_t[]){2});
    put_out(&t, EBB_I64, 1, (const int64_t[]){9});
    assert_non_null(declined_by(&t, "plain.sample_rows"));
}
