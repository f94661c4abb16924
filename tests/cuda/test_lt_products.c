/* test_lt_products.c: the callers of cuBLASLt, with a stand-in for the library that multiplies as
 * the library would, column by column: what it is asked for, which of its algorithms is taken, and
 * that the choice is found again.
 */
#define EBB_CUBLASLT
#include "kernels/cuda/cublas.cu"

#include "tests/cuda/cuda.h"
#include "tests/kernels/linear_loss_layers.h"

#include <time.h>

/* ---- the stand-in ---- */

enum { ALGORITHMS = 3, FAST = 1 };

struct ebb_lt_plan {
    ebb_lt_problem problem;
    uint32_t count, first; /* algorithms; the number of the first */
};

static struct {
    int finds, restores, runs[ALGORITHMS], biases;
    bool refuses; /* to restore */
    uint32_t least_align;
    uint8_t algorithms; /* that it finds */
} seen;

ebb_status ebb_lt_open(void)
{
    return NULL;
}

int64_t ebb_lt_version(void)
{
    return 139900; // no library's: its files are the test's
}

ebb_status ebb_lt_handle_new(void **handle)
{
    *handle = &seen;
    return NULL;
}

void ebb_lt_handle_free(void *handle)
{
    (void)handle;
}

ebb_status ebb_lt_plan_new(ebb_lt_plan **plan, const ebb_lt_problem *problem)
{
    *plan = ebb_alloc(sizeof **plan);
    assert_non_null(*plan);
    **plan = (ebb_lt_plan){.problem = *problem};
    if (problem->align < seen.least_align)
        seen.least_align = problem->align;
    return NULL;
}

void ebb_lt_plan_free(ebb_lt_plan *plan)
{
    ebb_free(plan);
}

ebb_status ebb_lt_plan_find(ebb_lt_plan *plan, void *handle)
{
    assert_ptr_equal(handle, &seen);
    seen.finds++;
    plan->count = seen.algorithms;
    return plan->count > 0 ? NULL : ebb_error(EBB_UNSUPPORTED, "none");
}

uint32_t ebb_lt_plan_count(const ebb_lt_plan *plan)
{
    return plan->count;
}

void ebb_lt_plan_save(const ebb_lt_plan *plan, uint32_t i, uint8_t bytes[EBB_LT_ALGORITHM])
{
    memset(bytes, 0x5A, EBB_LT_ALGORITHM);
    bytes[0] = (uint8_t)(plan->first + i);
}

ebb_status ebb_lt_plan_restore(ebb_lt_plan *plan, void *handle,
                               const uint8_t bytes[EBB_LT_ALGORITHM])
{
    assert_ptr_equal(handle, &seen);
    assert_int_equal(bytes[EBB_LT_ALGORITHM - 1], 0x5A);
    seen.restores++;
    if (seen.refuses)
        return ebb_error(EBB_UNSUPPORTED, "it is another device");
    plan->first = bytes[0];
    plan->count = 1;
    return NULL;
}

static double element(const void *data, uint32_t dtype, int64_t at)
{
    return dtype == EBB_F64 ? ((const double *)data)[at] : (double)((const float *)data)[at];
}

/* All but one take two milliseconds. */
ebb_status ebb_lt_plan_run(ebb_lt_plan *plan, void *handle, uint32_t i, const ebb_lt_operands *o,
                           void *stream)
{
    const ebb_lt_problem *p = &plan->problem;
    const ebb_lt_matrix *left = &p->map.left, *right = &p->map.right, *result = &p->map.result;
    const struct timespec slow = {.tv_nsec = 2000000};
    (void)handle;
    (void)stream;
    assert_true(i < plan->count);
    seen.runs[plan->first + i]++;
    seen.biases += p->after == EBB_LT_BIAS;
    if (plan->first + i != FAST)
        (void)nanosleep(&slow, NULL);
    const int64_t k = left->turned ? left->rows : left->columns;
    for (int64_t b = 0; b < p->map.batches; b++)
        for (int64_t column = 0; column < result->columns; column++)
            for (int64_t row = 0; row < result->rows; row++) {
                double sum = 0;
                for (int64_t d = 0; d < k; d++)
                    sum += element(o->b, p->dtype,
                                   b * left->next + (left->turned ? d + row * left->lead
                                                                  : row + d * left->lead)) *
                           element(o->a, p->dtype,
                                   b * right->next + (right->turned ? column + d * right->lead
                                                                    : d + column * right->lead));
                const int64_t at = b * result->next + row + column * result->lead;
                sum *= o->alpha;
                if (o->beta != 0)
                    sum += o->beta * element(o->c, p->dtype, at);
                if (p->after == EBB_LT_BIAS)
                    sum += element(o->bias, p->dtype, row);
                if (p->dtype == EBB_F64)
                    ((double *)o->y)[at] = sum;
                else
                    ((float *)o->y)[at] = (float)sum;
            }
    return NULL;
}

/* ---- the back end of the tests ---- */

static const ebb_family families[] = {{ebb_cuda_cublas, &ebb_cuda_cublas_count},
                                      {ebb_cuda_linear_loss, &ebb_cuda_linear_loss_count},
                                      {NULL, NULL}};
static ebb_backend with_library;

/* As a new process has it. */
static void open_again(void)
{
    ebb_cuda_queue *q = more_queue;
    ebb_cuda_cublas_close(q->cublas);
    q->cublas = NULL;
    memset(&seen, 0, sizeof seen);
    seen.algorithms = ALGORITHMS;
    seen.least_align = 256;
}

static int forget(void **state)
{
    (void)state;
    open_again();
    return system("rm -rf " EBB_BINARY_DIR "/lt_cache_of_tests");
}

static int total(void)
{
    int sum = 0;
    for (int i = 0; i < ALGORITHMS; i++)
        sum += seen.runs[i];
    return sum;
}

/* ---- products ---- */

typedef enum added { NOTHING, BIAS_ROW, FULL, COLUMN, SCALAR } added;

static void put_gemm(testing *t, ebb_dtype dtype, int turns, added c, double beta)
{
    static const int64_t a[2][2] = {{5, 7}, {7, 5}}, b[2][2] = {{7, 6}, {6, 7}};
    static const int64_t thirds[][2] = {{0, 0}, {1, 6}, {5, 6}, {5, 1}, {1, 1}};
    begin(t, EBB_OP_GEMM);
    put_int(t, "transA", turns & 1);
    put_int(t, "transB", turns >> 1);
    put_float(t, "alpha", 0.5);
    put_float(t, "beta", beta);
    put_in(t, dtype, 2, a[turns & 1]);
    put_in(t, dtype, 2, b[turns >> 1]);
    if (c != NOTHING)
        put_in(t, dtype, 2, thirds[c]);
    put_out(t, dtype, 2, (int64_t[]){5, 6});
}

static void every_third_operand_gets_in(void **state)
{
    (void)state;
    seen.algorithms = 1;
    for (int turns = 0; turns < 4; turns++)
        for (int c = NOTHING; c <= SCALAR; c++)
            for (int k = 0; k < 4; k++) {
                const double beta = k < 2 ? 1 : -0.75;
                const int before = seen.biases;
                testing t;
                put_gemm(&t, k % 2 ? EBB_F64 : EBB_F32, turns, (added)c, beta);
                check_agree(&t, "cuda.lt_gemm", "plain.gemm", k % 2 ? 1e-14 : 1e-6);
                assert_int_equal(seen.biases - before, c == BIAS_ROW && k == 0);
                end(&t);
            }
}

static void batches_are_one_call(void **state)
{
    (void)state;
    static const int64_t shapes[][3][4] = {{{2, 3, 4, 5}, {2, 3, 5, 6}, {2, 3, 4, 6}},
                                           {{2, 3, 4, 5}, {1, 1, 5, 6}, {2, 3, 4, 6}},
                                           {{1, 1, 4, 5}, {2, 3, 5, 6}, {2, 3, 4, 6}}};
    seen.algorithms = 1;
    for (int i = 0; i < 3; i++) {
        const int before = total();
        testing t;
        begin(&t, EBB_OP_MATMUL);
        put_in(&t, EBB_F32, 4, shapes[i][0]);
        put_in(&t, EBB_F32, 4, shapes[i][1]);
        put_out(&t, EBB_F32, 4, shapes[i][2]);
        check_agree(&t, "cuda.lt_matmul", "plain.matmul", 1e-6);
        assert_int_equal(total() - before, 1);
        end(&t);
    }
}

static void without_an_algorithm_the_product_is_our_own(void **state)
{
    (void)state;
    testing t;
    seen.algorithms = 0;
    put_gemm(&t, EBB_F32, 0, BIAS_ROW, 1);
    check_agree(&t, "cuda.lt_gemm", "plain.gemm", 1e-6);
    assert_int_equal(total(), 0);
    end(&t);
}

/* ---- the choice ---- */

static void the_fastest_is_taken_and_found_again(void **state)
{
    (void)state;
    testing t;
    put_gemm(&t, EBB_F32, 2, FULL, 1);
    check_agree(&t, "cuda.lt_gemm", "plain.gemm", 1e-6);
    assert_int_equal(seen.finds, 1);
    assert_int_equal(seen.runs[0], EBB_CHOOSE_ROUNDS + 1);
    assert_int_equal(seen.runs[FAST], EBB_CHOOSE_ROUNDS + 2); // and the call itself
    check_agree(&t, "cuda.lt_gemm", "plain.gemm", 1e-6);
    assert_int_equal(total(), 3 * (EBB_CHOOSE_ROUNDS + 1) + 2); // once a problem
    open_again();
    check_agree(&t, "cuda.lt_gemm", "plain.gemm", 1e-6);
    assert_int_equal(seen.restores, 1);
    assert_int_equal(seen.finds, 0);
    assert_int_equal(seen.runs[FAST], 1);
    assert_int_equal(total(), 1);
    open_again();
    seen.refuses = true; // then the race is run again
    check_agree(&t, "cuda.lt_gemm", "plain.gemm", 1e-6);
    assert_int_equal(seen.finds, 1);
    assert_int_equal(seen.runs[FAST], EBB_CHOOSE_ROUNDS + 2);
    end(&t);
}

static void a_choice_that_cannot_be_kept_is_the_first(void **state)
{
    (void)state;
    testing t;
    put_gemm(&t, EBB_F32, 1, NOTHING, 1);
    assert_int_equal(setenv("EBB_CACHE", "/dev/null/nowhere", 1), 0);
    check_agree(&t, "cuda.lt_gemm", "plain.gemm", 1e-6);
    assert_int_equal(seen.runs[0], EBB_CHOOSE_ROUNDS + 2);
    assert_int_equal(setenv("EBB_CACHE", EBB_BINARY_DIR "/lt_cache_of_tests", 1), 0);
    end(&t);
}

/* Nothing is there to be timed on yet, and its rows begin where they may. */
static void a_tile_takes_what_it_finds(void **state)
{
    (void)state;
    testing t;
    put_gemm(&t, EBB_F32, 0, NOTHING, 1);
    const ebb_kernel *k = kernel_named("cuda.lt_gemm");
    void *keep[3] = {t.in[0].data, t.in[1].data, t.out[0].data};
    t.call.queue = more_queue;
    t.in[0].data = t.in[1].data = t.out[0].data = NULL;
    check_status(k->prepare(&t.call), "prepare");
    assert_int_equal(seen.finds, 1);
    assert_int_equal(total(), 0);
    assert_int_equal(seen.least_align, 4); // a row of 7 float32
    t.in[0].data = keep[0];
    t.in[1].data = keep[1];
    t.out[0].data = keep[2];
    end(&t);
}

static void what_was_kept_is_believed_for_that_problem_alone(void **state)
{
    (void)state;
    ebb_lt_problem p, q;
    uint8_t bytes[EBB_LT_ALGORITHM], found[EBB_LT_ALGORITHM];
    char path[1024];
    memset(&p, 0, sizeof p);
    p.dtype = EBB_F32;
    q = p;
    q.tf32 = 1;
    for (int i = 0; i < EBB_LT_ALGORITHM; i++)
        bytes[i] = (uint8_t)(3 * i);
    assert_false(ebb_lt_recall("A device", &p, found));
    ebb_lt_keep("A device", &p, bytes);
    assert_true(ebb_lt_recall("A device", &p, found));
    assert_memory_equal(found, bytes, sizeof bytes);
    assert_false(ebb_lt_recall("A device", &q, found));
    assert_false(ebb_lt_recall("Another", &p, found));
    check_status(ebb_lt_cache_path(path, sizeof path, "A device", &p), "path");
    assert_non_null(strstr(path, "/cublaslt-139900/A_device/"));
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 40, SEEK_SET), 0);
    assert_int_equal(fputc(0x77, file), 0x77);
    assert_int_equal(fclose(file), 0);
    assert_false(ebb_lt_recall("A device", &p, found));
}

/* ---- inside others ---- */

static void the_products_of_a_chunked_loss_are_the_librarys(void **state)
{
    (void)state;
    seen.algorithms = 1;
    for (size_t k = 0; k < LAYERS; k++)
        for (int wide = 0; wide < 2; wide++) {
            const int before = total();
            testing t;
            make(&t, &layers[k], wide ? EBB_F64 : EBB_F32);
            check_agree(&t, "cuda.linear_cross_entropy", "plain.linear_cross_entropy",
                        wide ? 1e-13 : 2e-6);
            const int64_t block = layers[k].block > 0 ? layers[k].block : layers[k].rows;
            const int64_t blocks = (layers[k].rows + block - 1) / (block > 0 ? block : 1);
            assert_int_equal(total() - before, 3 * blocks);
            end(&t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_third_operand_gets_in, forget),
        cmocka_unit_test_setup(batches_are_one_call, forget),
        cmocka_unit_test_setup(without_an_algorithm_the_product_is_our_own, forget),
        cmocka_unit_test_setup(the_fastest_is_taken_and_found_again, forget),
        cmocka_unit_test_setup(a_choice_that_cannot_be_kept_is_the_first, forget),
        cmocka_unit_test_setup(a_tile_takes_what_it_finds, forget),
        cmocka_unit_test_setup(what_was_kept_is_believed_for_that_problem_alone, forget),
        cmocka_unit_test_setup(the_products_of_a_chunked_loss_are_the_librarys, forget),
    };
    if (setenv("EBB_CACHE", EBB_BINARY_DIR "/lt_cache_of_tests", 1) != 0)
        return 1;
    with_cuda();
    with_library = ebb_backend_cuda;
    with_library.families = families;
    more_backend = &with_library;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
