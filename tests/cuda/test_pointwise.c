/* test_pointwise.c: the pointwise CUDA kernels on shapes that broadcast in every way. */
#include "tests/cuda/cuda.h"

typedef struct shapes {
    int rank_a, rank_b, rank;
    int64_t a[4], b[4], out[4];
} shapes;

static const shapes broadcasts[] = {
    {1, 1, 1, {5}, {5}, {5}},
    {0, 3, 3, {0}, {2, 3, 700}, {2, 3, 700}},
    {3, 3, 3, {7, 1, 5}, {1, 4, 5}, {7, 4, 5}},
    {4, 1, 4, {2, 3, 4, 33}, {33}, {2, 3, 4, 33}},
    {4, 3, 4, {2, 3, 4, 5}, {3, 1, 1}, {2, 3, 4, 5}},
    {2, 2, 2, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 2, {0, 3}, {1, 3}, {0, 3}},
};

static void sums_broadcast_as_the_plain_ones_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof broadcasts / sizeof broadcasts[0]; i++)
        for (int wide = 0; wide < 2; wide++) {
            const shapes *s = &broadcasts[i];
            ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
            testing t;
            begin(&t, EBB_OP_ADD);
            put_in(&t, dtype, s->rank_a, s->a);
            put_in(&t, dtype, s->rank_b, s->b);
            put_out(&t, dtype, s->rank, s->out);
            agrees(&t, "cuda.add", "plain.add", 0);
            end(&t);
        }
}

int main(void)
{
    with_cuda();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_broadcast_as_the_plain_ones_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
