/* test_sample.c: the rows that the device draws are those that the CPU draws, with the same
 * weights; its sketches have the same signs.
 */
#include "tests/cuda/halves.h"
#include "tests/owned.h"

static void set_key(ebb_operand *key, int64_t seed, int64_t step)
{
    ((int64_t *)key->data)[0] = seed;
    ((int64_t *)key->data)[1] = step;
}

typedef enum content { FLAT, STEEP, EQUAL, ZERO, BROKEN } content;

static void put_rows(testing *t, ebb_dtype dtype, int64_t n, int64_t d, int64_t k, content what)
{
    begin(t, EBB_OP_SAMPLE_ROWS);
    put_int(t, "k", k);
    put_int(t, "stream", 77);
    ebb_operand *h = put_in(t, dtype, 2, (const int64_t[]){n, d});
    ebb_operand *norms = put_in(t, dtype, 1, &n);
    set_key(put_in(t, EBB_I64, 1, (const int64_t[]){2}), 987654321, 3);
    put_out(t, EBB_I64, 1, &k);
    put_out(t, dtype, 2, (const int64_t[]){k, 1});
    for (int64_t i = 0; i < n; i++)
        set_value(norms, (size_t)i, what == ZERO ? 0 : 1 + (double)(i * i % 23));
    for (int64_t i = 0; i < n * d; i++) {
        double x = value_of(h, (size_t)i);
        if (what == STEEP)
            x *= exp(-0.3 * (double)(i / d * 7 % n));
        if (what == EQUAL)
            x = i / d % 3 == 0 ? 1 : 2;
        if (what == BROKEN && i / d % 5 == 0)
            x = i / d % 2 == 0 ? (double)NAN : 0;
        set_value(h, (size_t)i, what == ZERO && dtype == EBB_F64 ? 0 : x);
    }
}

TEST(the_same_rows_are_drawn_as_on_the_cpu)
{
    static const int64_t sizes[][3] = {{1, 1, 1},     {9, 4, 9},     {40, 3, 12},   {300, 5, 30},
                                       {257, 33, 40}, {1100, 2, 64}, {3000, 1, 700}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (content what = FLAT; what <= BROKEN; what++)
            for (int wide = 0; wide < 2; wide++) {
                TESTING(t);
                put_rows(&t, wide ? EBB_F64 : EBB_F32, sizes[i][0], sizes[i][1], sizes[i][2], what);
                run_with(&t, "plain.sample_rows");
                FREED double *rows = values_of(&t.out[0]);
                agrees(&t, "cuda.sample_rows", "plain.sample_rows");
                for (size_t j = 0; j < count_of(&t.out[0]); j++)
                    assert_true(value_of(&t.out[0], j) == rows[j]);
            }
}

TEST(weights_need_not_be_wanted)
{
    TESTING(t);
    put_rows(&t, EBB_F32, 50, 3, 7, FLAT);
    unguard(t.out[1].data);
    t.out[1] = (ebb_operand){.type = ebb_type_none()};
    agrees_within(&t, "cuda.sample_rows", "plain.sample_rows", 0);
    t.in[1].type.dims[0] = 49;
    assert_non_null(declined_by(&t, "cuda.sample_rows"));
    t.in[1].type.dims[0] = 50;
}

/* Shares that halves hold exactly: the rows cannot depend on the dtype. */
TEST(halves_draw_the_rows_that_float32_draws)
{
    TESTING(t);
    put_rows(&t, EBB_F32, 300, 4, 50, EQUAL);
    agrees_in_halves(&t, "cuda.sample_rows");
    FREED double *rows = values_of(&t.out[0]);
    run_with(&t, "plain.sample_rows");
    for (size_t j = 0; j < count_of(&t.out[0]); j++)
        assert_true(value_of(&t.out[0], j) == rows[j]);
}

TEST(sketches_agree_with_the_plain_sums)
{
    static const int64_t sizes[][3] = {{1, 1, 1},     {33, 5, 7},    {0, 3, 4},
                                       {130, 65, 66}, {300, 3, 130}, {70, 200, 3}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int wide = 0; wide < 2; wide++) {
            const int64_t *s = sizes[i];
            ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
            TESTING(t);
            begin(&t, EBB_OP_RANDOM_SKETCH);
            put_int(&t, "rows", s[2]);
            put_int(&t, "stream", 3);
            put_in(&t, dtype, 2, (const int64_t[]){s[0], s[1]});
            set_key(put_in(&t, EBB_I64, 1, (const int64_t[]){2}), 11, 4);
            put_out(&t, dtype, 2, (const int64_t[]){s[2], s[1]});
            agrees(&t, "cuda.random_sketch", "plain.random_sketch");
            if (!wide)
                agrees_in_halves(&t, "cuda.random_sketch");
        }
}

const fixture around_all = {with_cuda, NULL};
