/* test_lt_sums.c: LinearGrad by cuBLASLt, with a stand-in for the library: the product and the sums
 * of either side against the definition, and when one call after the other is preferred.
 */
#include "tests/cuda/library/lt_stand_in.h"

static const ebb_family families[] = {{ebb_cuda_cublas_sums, &ebb_cuda_cublas_sums_count},
                                      {NULL, NULL}};
static ebb_backend with_library;

/* As a new process has it. */
static void open_again(void)
{
    ebb_cuda_queue *q = more_queue;
    ebb_cuda_cublas_close(q->cublas);
    q->cublas = NULL;
    memset(&seen, 0, sizeof seen);
    seen.algorithms = 1;
    seen.least_align = 256;
}

static int forget(void **state)
{
    (void)state;
    open_again();
    return system("rm -rf " EBB_BINARY_DIR "/lt_cache_of_sums");
}

enum { SUM_OF_A = 1, SUM_OF_B, SUM_OF_BOTH, SUM_OF_NONE = 0 };

static void put_linear_grad(testing *t, ebb_dtype dtype, const int64_t size[3], int sums)
{
    begin(t, EBB_OP_LINEAR_GRAD);
    put_in(t, dtype, 2, (int64_t[]){size[0], size[1]});
    put_in(t, dtype, 2, (int64_t[]){size[0], size[2]});
    put_out(t, dtype, 2, (int64_t[]){size[1], size[2]});
    for (int side = 1; side <= 2; side++)
        put_out(t, (sums & side) != 0 ? dtype : EBB_NONE, 1, (int64_t[]){size[side]});
}

/* By the definition, in double. */
static void check_linear_grad(const testing *t)
{
    const int64_t T = t->in[0].type.dims[0], M = t->in[0].type.dims[1], N = t->in[1].type.dims[1];
    const float *a = t->in[0].data, *b = t->in[1].data;
    double *product = calloc((size_t)(M * N), sizeof *product);
    double *sums[2] = {calloc((size_t)M, sizeof(double)), calloc((size_t)N, sizeof(double))};
    assert_true(product != NULL && sums[0] != NULL && sums[1] != NULL);
    for (int64_t r = 0; r < T; r++) {
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++)
                product[i * N + j] += (double)a[r * M + i] * (double)b[r * N + j];
        for (int64_t i = 0; i < M; i++)
            sums[0][i] += (double)a[r * M + i];
        for (int64_t j = 0; j < N; j++)
            sums[1][j] += (double)b[r * N + j];
    }
    check_close(&t->out[0], product, 1e-6, "the product");
    for (int side = 0; side < 2; side++) {
        if (t->out[1 + side].type.dtype != EBB_NONE)
            check_close(&t->out[1 + side], sums[side], 1e-6, "the sums");
        free(sums[side]);
    }
    free(product);
}

static void sums_of_a_side_come_with_its_product(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{5, 7, 6}, {1, 1, 1}, {13, 1, 5}, {9, 4, 1}, {67, 33, 18}};
    seen.slow_alone = true;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int side = SUM_OF_A; side <= SUM_OF_B; side++) {
            int *runs = &seen.after[side == SUM_OF_A ? EBB_LT_SUM_A : EBB_LT_SUM_B];
            const int before = *runs;
            testing t;
            put_linear_grad(&t, EBB_F32, sizes[i], side);
            run_with(&t, "cuda.lt_linear_grad");
            check_linear_grad(&t);
            assert_int_equal(*runs - before, EBB_CHOOSE_ROUNDS + 2); // and the call itself
            run_with(&t, "cuda.lt_linear_grad");
            assert_int_equal(*runs - before, EBB_CHOOSE_ROUNDS + 3); // asked once a problem
            end(&t);
        }
}

static void sums_that_take_longer_are_our_own_and_this_is_remembered(void **state)
{
    (void)state;
    static const int64_t size[3] = {17, 5, 9};
    testing t;
    seen.slow_sums = true;
    put_linear_grad(&t, EBB_F32, size, SUM_OF_B);
    run_with(&t, "cuda.lt_linear_grad");
    check_linear_grad(&t);
    assert_int_equal(seen.after[EBB_LT_SUM_B], EBB_CHOOSE_ROUNDS + 1);
    open_again();
    run_with(&t, "cuda.lt_linear_grad");
    check_linear_grad(&t);
    assert_int_equal(seen.after[EBB_LT_SUM_B], 0);
    assert_int_equal(setenv("EBB_CACHE", "/dev/null/nowhere", 1), 0);
    open_again(); // what cannot be kept is the library's
    seen.slow_sums = true;
    run_with(&t, "cuda.lt_linear_grad");
    assert_int_equal(setenv("EBB_CACHE", EBB_BINARY_DIR "/lt_cache_of_sums", 1), 0);
    check_linear_grad(&t);
    assert_int_equal(seen.after[EBB_LT_SUM_B], EBB_CHOOSE_ROUNDS + 2);
    end(&t);
}

static void without_an_algorithm_for_sums_they_are_our_own(void **state)
{
    (void)state;
    static const int64_t size[3] = {19, 3, 21};
    testing t;
    seen.refuses_sums = true;
    put_linear_grad(&t, EBB_F32, size, SUM_OF_A);
    run_with(&t, "cuda.lt_linear_grad");
    check_linear_grad(&t);
    assert_int_equal(seen.after[EBB_LT_SUM_A], 0);
    assert_true(seen.after[EBB_LT_NOTHING] > 0);
    open_again();
    seen.algorithms = 0; // not even for the product
    run_with(&t, "cuda.lt_linear_grad");
    check_linear_grad(&t);
    end(&t);
}

static void sums_that_the_library_does_not_make_are_declined(void **state)
{
    (void)state;
    static const int64_t size[3] = {4, 3, 2}, none[3] = {0, 3, 2};
    static const struct {
        ebb_dtype dtype;
        const int64_t *size;
        int sums;
        const char *why;
    } cases[] = {{EBB_F32, size, SUM_OF_BOTH, "none or both"},
                 {EBB_F32, size, SUM_OF_NONE, "none or both"},
                 {EBB_F64, size, SUM_OF_A, "float64"},
                 {EBB_F32, none, SUM_OF_A, "nothing to multiply"},
                 {EBB_BF16, size, SUM_OF_B, NULL},
                 {EBB_F16, size, SUM_OF_A, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        testing t;
        put_linear_grad(&t, cases[i].dtype, cases[i].size, cases[i].sums);
        const char *why = declined_by(&t, "cuda.lt_linear_grad");
        assert_true((why == NULL) == (cases[i].why == NULL));
        assert_true(why == NULL || strstr(why, cases[i].why) != NULL);
        end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sums_of_a_side_come_with_its_product, forget),
        cmocka_unit_test_setup(sums_that_take_longer_are_our_own_and_this_is_remembered, forget),
        cmocka_unit_test_setup(without_an_algorithm_for_sums_they_are_our_own, forget),
        cmocka_unit_test_setup(sums_that_the_library_does_not_make_are_declined, forget),
    };
    if (setenv("EBB_CACHE", EBB_BINARY_DIR "/lt_cache_of_sums", 1) != 0)
        return 1;
    with_cuda();
    with_library = ebb_backend_cuda;
    with_library.families = families;
    more_backend = &with_library;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
