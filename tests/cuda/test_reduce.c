/* test_reduce.c: reductions, arg-max, running sums and products on the GPU against the plain
 * kernels. Integers are equal in every bit; floats are added up in double on both sides, in other
 * orders. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"

typedef struct shape {
    int rank;
    int64_t dims[6];
    int64_t count, axes[4]; /* count 0: all */
} shape;

static const shape shapes[] = {
    {2, {7, 33}, 1, {1}},
    {2, {7, 33}, 1, {0}},
    {2, {6000, 3}, 1, {0}},
    {2, {3, 6000}, 1, {-1}},
    {1, {9000}, 0, {0}},
    {4, {3, 5, 6, 7}, 3, {0, 2, 3}},
    {4, {3, 5, 6, 7}, 2, {1, 3}},
    {4, {3, 5, 6, 7}, 2, {0, 2}},
    {3, {40, 3, 70}, 2, {0, 2}},
    {2, {1100, 33}, 1, {0}},
    {2, {300, 5}, 1, {1}},
    {3, {2, 700, 40}, 1, {1}},
    {2, {1, 1}, 1, {0}},
    {2, {0, 4}, 1, {0}},
    {2, {4, 0}, 1, {0}},
    {3, {5, 1, 3}, 1, {1}},
    {0, {0}, 0, {0}},
    {5, {3, 2, 4, 2, 3}, 2, {1, 3}},
    {6, {2, 3, 2, 3, 2, 3}, 3, {0, 2, 4}},
};
static const size_t shape_count = sizeof shapes / sizeof shapes[0];

static const struct {
    ebb_op op;
    const char *cuda, *plain;
    bool whole; /* for integers too */
} reductions[] = {
    {EBB_OP_REDUCE_SUM, "cuda.reduce_sum", "plain.reduce_sum", true},
    {EBB_OP_REDUCE_MEAN, "cuda.reduce_mean", "plain.reduce_mean", true},
    {EBB_OP_REDUCE_MAX, "cuda.reduce_max", "plain.reduce_max", true},
    {EBB_OP_REDUCE_MIN, "cuda.reduce_min", "plain.reduce_min", true},
    {EBB_OP_REDUCE_PROD, "cuda.reduce_prod", "plain.reduce_prod", true},
    {EBB_OP_REDUCE_L1, "cuda.reduce_l1", "plain.reduce_l1", true},
    {EBB_OP_REDUCE_L2, "cuda.reduce_l2", "plain.reduce_l2", false},
    {EBB_OP_REDUCE_SUM_SQUARE, "cuda.reduce_sum_square", "plain.reduce_sum_square", true},
    {EBB_OP_REDUCE_LOG_SUM_EXP, "cuda.reduce_log_sum_exp", "plain.reduce_log_sum_exp", false},
};
enum { REDUCTIONS = sizeof reductions / sizeof reductions[0] };

static void put_reduction(testing *t, const shape *s, ebb_op op, ebb_dtype dtype, bool whole)
{
    int64_t dims[6] = {1, 1, 1, 1, 1, 1};
    bool reduced[6] = {false};
    int rank = 0;
    begin(t, op);
    put_int(t, "keepdims", 0);
    if (whole)
        put_raw(t, dtype, s->rank, s->dims);
    else
        put_in(t, dtype, s->rank, s->dims);
    for (size_t i = 0; dtype == EBB_BOOL && i < count_of(&t->in[0]); i++)
        ((uint8_t *)t->in[0].data)[i] &= 1;
    if (s->count > 0)
        put_list(t, s->count, s->axes);
    for (int64_t i = 0; i < s->count; i++)
        reduced[s->axes[i] < 0 ? s->axes[i] + s->rank : s->axes[i]] = true;
    for (int d = 0; d < s->rank; d++)
        if (s->count > 0 && !reduced[d])
            dims[rank++] = s->dims[d];
    put_out(t, dtype, rank, dims);
}

TEST(floats_are_as_plain)
{
    for (size_t i = 0; i < shape_count; i++)
        for (size_t r = 0; r < REDUCTIONS; r++) {
            TESTING(t);
            put_reduction(&t, &shapes[i], reductions[r].op, EBB_F32, false);
            agrees(&t, reductions[r].cuda, reductions[r].plain);
        }
}

TEST(integers_are_as_plain_in_every_bit)
{
    static const ebb_dtype dtypes[] = {EBB_I32, EBB_I64, EBB_U8, EBB_I8, EBB_BOOL};
    for (size_t i = 0; i < shape_count; i++)
        for (size_t r = 0; r < REDUCTIONS; r++)
            for (size_t d = 0; d < 5; d++) {
                TESTING(t);
                put_reduction(&t, &shapes[i], reductions[r].op, dtypes[d], true);
                if (reductions[r].whole)
                    same_bits(&t, reductions[r].cuda, reductions[r].plain);
                else
                    assert_non_null(declined_by(&t, reductions[r].cuda));
            }
}

TEST(nan_and_infinity_come_through)
{
    const double odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t r = 0; r < REDUCTIONS; r++)
        for (size_t way = 0; way < 12; way++) { // one such number, or a row of nothing else
            TESTING(t);
            const size_t k = way % 3;
            const ebb_dtype dtype = way / 3 % 2 ? EBB_F64 : EBB_F32;
            // a product of many numbers vanishes, before or after it has met the infinite one
            const bool product = reductions[r].op == EBB_OP_REDUCE_PROD;
            put_reduction(&t, &shapes[product ? 0 : 3], reductions[r].op, dtype, false);
            set_value(&t.in[0], product ? 21 : 4321, odd[k]);
            for (size_t i = 0; way / 6 && i < (product ? 33 : 6000); i++)
                set_value(&t.in[0], i, odd[k]);
            run_with(&t, reductions[r].plain);
            const double expected = value_of(&t.out[0], 0);
            run_with(&t, reductions[r].cuda);
            const double got = value_of(&t.out[0], 0);
            if (!(got == expected || (isnan(got) && isnan(expected)) ||
                  fabs(got - expected) <= 1e-6 * fabs(expected)))
                fail_msg("%s of %g is %g, expected %g", reductions[r].cuda, odd[k], got, expected);
        }
}

/* Of positive numbers: the sum has a logarithm. */
TEST(logarithms_of_sums_are_as_plain)
{
    for (size_t i = 0; i < shape_count; i++) {
        TESTING(t);
        put_reduction(&t, &shapes[i], EBB_OP_REDUCE_LOG_SUM, EBB_F32, false);
        for (size_t k = 0; k < count_of(&t.in[0]); k++)
            set_value(&t.in[0], k, 1.5 + value_of(&t.in[0], k));
        agrees(&t, "cuda.reduce_log_sum", "plain.reduce_log_sum");
        agrees_mixed(&t, "cuda.reduce_log_sum", 0);
    }
}

TEST(norms_of_channels_are_as_plain)
{
    static const int64_t dims[][4] = {{2, 3, 7, 5}, {1, 1, 100, 93}, {3, 70, 1, 2}, {0, 3, 4, 4}};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (int p = 1; p < 5; p++) {
            const int64_t y[4] = {dims[i][0], dims[i][1], 1, 1};
            TESTING(t);
            begin(&t, EBB_OP_GLOBAL_LP_POOL);
            put_int(&t, "p", p);
            put_in(&t, EBB_F32, 4, dims[i]);
            put_out(&t, EBB_F32, 4, y);
            agrees(&t, "cuda.global_lp_pool", "plain.global_lp_pool");
            agrees_mixed(&t, "cuda.global_lp_pool", 0);
        }
    TESTING(t);
    begin(&t, EBB_OP_GLOBAL_LP_POOL);
    put_int(&t, "p", 0);
    put_in(&t, EBB_F32, 4, dims[0]);
    put_out(&t, EBB_F32, 4, (int64_t[]){2, 3, 1, 1});
    assert_non_null(declined_by(&t, "cuda.global_lp_pool"));
}

TEST(no_axes_may_mean_nothing_is_reduced)
{
    TESTING(t);
    const int64_t dims[2] = {5, 70};
    begin(&t, EBB_OP_REDUCE_SUM_SQUARE);
    put_int(&t, "noop_with_empty_axes", 1);
    put_in(&t, EBB_F32, 2, dims);
    put_out(&t, EBB_F32, 2, dims);
    agrees(&t, "cuda.reduce_sum_square", "plain.reduce_sum_square");
}

TEST(axes_unknown_before_the_run_are_declined)
{
    TESTING(t);
    put_reduction(&t, &shapes[0], EBB_OP_REDUCE_SUM, EBB_F32, false);
    t.in[1].constant = NULL;
    assert_non_null(declined_by(&t, "cuda.reduce_sum"));
}

TEST(halves_round_once)
{
    for (size_t i = 0; i < 8; i++)
        for (size_t r = 0; r < REDUCTIONS; r++) {
            TESTING(t);
            put_reduction(&t, &shapes[i], reductions[r].op, EBB_F32, false);
            agrees_mixed(&t, reductions[r].cuda, 0);
        }
}

/* ---- arg-max, running sums ---- */

static const ebb_dtype numbers[] = {EBB_F32, EBB_F64, EBB_I32, EBB_I64};

static const shape lines[] = {
    {2, {7, 33}, 1, {1}},      {2, {7, 33}, 1, {0}},     {2, {2, 9000}, 1, {-1}},
    {3, {2, 5000, 3}, 1, {1}}, {3, {3, 11, 50}, 1, {1}}, {2, {1100, 33}, 1, {0}},
    {2, {0, 4}, 1, {1}},       {2, {300, 5}, 1, {1}},    {2, {1, 1}, 1, {0}},
};

/* Few different values, so that there are equals; in floats NaN here and there. */
static void put_line(testing *t, const shape *s, ebb_dtype dtype)
{
    ebb_operand *x = put_raw(t, dtype, s->rank, s->dims);
    for (size_t i = 0; i < count_of(x); i++) {
        const int v = (int)(draw(t) * 6);
        if (dtype == EBB_I32)
            ((int32_t *)x->data)[i] = v;
        else
            set_value(x, i, v == 5 && ebb_dtype_is_float(dtype) ? (double)NAN : v);
    }
}

TEST(the_first_or_last_of_equals_is_chosen)
{
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        for (size_t d = 0; d < 4; d++)
            for (int last = 0; last < 2; last++)
                for (int least = 0; least < 2; least++) {
                    TESTING(t);
                    int64_t dims[4];
                    memcpy(dims, lines[i].dims, sizeof dims);
                    dims[lines[i].axes[0] < 0 ? lines[i].rank - 1 : lines[i].axes[0]] = 1;
                    begin(&t, least ? EBB_OP_ARG_MIN : EBB_OP_ARG_MAX);
                    put_int(&t, "axis", lines[i].axes[0]);
                    put_int(&t, "select_last_index", last);
                    put_line(&t, &lines[i], numbers[d]);
                    put_out(&t, EBB_I64, lines[i].rank, dims);
                    same_bits(&t, least ? "cuda.arg_min" : "cuda.arg_max",
                              least ? "plain.arg_min" : "plain.arg_max");
                }
}

/* Numbers that differ by less than a double tells; some are the ends of int64. */
TEST(the_largest_int64_is_found_exactly)
{
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        for (int last = 0; last < 2; last++)
            for (int least = 0; least < 2; least++) {
                TESTING(t);
                int64_t dims[4];
                memcpy(dims, lines[i].dims, sizeof dims);
                dims[lines[i].axes[0] < 0 ? lines[i].rank - 1 : lines[i].axes[0]] = 1;
                begin(&t, least ? EBB_OP_ARG_MIN : EBB_OP_ARG_MAX);
                put_int(&t, "axis", lines[i].axes[0]);
                put_int(&t, "select_last_index", last);
                ebb_operand *x = put_raw(&t, EBB_I64, lines[i].rank, lines[i].dims);
                for (size_t e = 0; e < count_of(x); e++) {
                    const int64_t near = (int64_t)(4 * draw(&t) + 4);
                    ((int64_t *)x->data)[e] = e % 2 == 0   ? (INT64_C(1) << 60) + near
                                              : e % 3 == 0 ? INT64_MAX - near
                                                           : INT64_MIN + near;
                }
                put_out(&t, EBB_I64, lines[i].rank, dims);
                same_bits(&t, least ? "cuda.arg_min" : "cuda.arg_max",
                          least ? "plain.arg_min" : "plain.arg_max");
            }
}

TEST(the_largest_of_a_line_alone_is_one)
{
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        for (size_t d = 0; d < 2; d++) {
            TESTING(t);
            begin(&t, EBB_OP_HARDMAX);
            put_int(&t, "axis", lines[i].axes[0]);
            put_line(&t, &lines[i], numbers[d]);
            put_out(&t, numbers[d], lines[i].rank, lines[i].dims);
            same_bits(&t, "cuda.hardmax", "plain.hardmax");
            if (d == 0)
                agrees_mixed(&t, "cuda.hardmax", 0);
        }
}

TEST(sums_run_along_the_axis)
{
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        for (size_t d = 0; d < 4; d++)
            for (int way = 0; way < 4; way++) {
                TESTING(t);
                begin(&t, EBB_OP_CUM_SUM);
                put_int(&t, "exclusive", way % 2);
                put_int(&t, "reverse", way / 2);
                if (d < 2)
                    put_in(&t, numbers[d], lines[i].rank, lines[i].dims);
                else
                    put_raw(&t, numbers[d], lines[i].rank, lines[i].dims);
                put_list(&t, 1, lines[i].axes);
                put_out(&t, numbers[d], lines[i].rank, lines[i].dims);
                if (d < 2)
                    agrees(&t, "cuda.cum_sum", "plain.cum_sum");
                else
                    same_bits(&t, "cuda.cum_sum", "plain.cum_sum");
                if (d == 0)
                    agrees_mixed(&t, "cuda.cum_sum", 0);
            }
}

/* Of numbers near 1, so that a long product neither vanishes nor passes all bounds. */
TEST(products_run_along_the_axis)
{
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        for (size_t d = 0; d < 4; d++)
            for (int way = 0; way < 4; way++) {
                TESTING(t);
                begin(&t, EBB_OP_CUM_PROD);
                put_int(&t, "exclusive", way % 2);
                put_int(&t, "reverse", way / 2);
                ebb_operand *x = put_raw(&t, numbers[d], lines[i].rank, lines[i].dims);
                for (size_t k = 0; d < 2 && k < count_of(x); k++)
                    set_value(x, k, (draw(&t) < 0 ? -1 : 1) * (1 + 0.01 * draw(&t)));
                put_list(&t, 1, lines[i].axes);
                put_out(&t, numbers[d], lines[i].rank, lines[i].dims);
                if (d < 2)
                    agrees(&t, "cuda.cum_prod", "plain.cum_prod");
                else
                    same_bits(&t, "cuda.cum_prod", "plain.cum_prod");
                if (d == 0)
                    agrees_mixed(&t, "cuda.cum_prod", 0);
            }
}

const fixture around_all = {with_cuda, NULL};
