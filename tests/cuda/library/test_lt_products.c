/* test_lt_products.c: the callers of cuBLASLt, with a stand-in for the library that multiplies as
 * the library would, column by column, and counts what it is asked for.
 */
#define EBB_CUBLASLT
#include "kernels/cuda/library/cublas.cu"

#include "tests/cuda/cuda.h"
#include "tests/cuda/halves.h"
#include "tests/cuda/recurrent.h"
#include "tests/kernels/linear_loss_layers.h"

/* ---- the stand-in ---- */

struct ebb_lt_plan {
    ebb_lt_problem problem;
};

static struct {
    int finds, runs, biases;
    bool has_none; /* no algorithm, for anything */
    uint32_t least_align;
} seen;

ebb_status ebb_lt_open(void)
{
    return NULL;
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
    (void)plan;
    assert_ptr_equal(handle, &seen);
    seen.finds++;
    return seen.has_none ? ebb_error(EBB_UNSUPPORTED, "none") : NULL;
}

static double element(const void *data, uint32_t dtype, int64_t at)
{
    return dtype == EBB_F64   ? ((const double *)data)[at]
           : dtype == EBB_F32 ? (double)((const float *)data)[at]
                              : of_half((ebb_dtype)dtype, ((const uint16_t *)data)[at]);
}

/* v in the dtype of the product. */
static void put_element(void *data, uint32_t dtype, int64_t at, double v)
{
    if (dtype == EBB_F64)
        ((double *)data)[at] = v;
    else if (dtype == EBB_F32)
        ((float *)data)[at] = (float)v;
    else
        ((uint16_t *)data)[at] = half_of((ebb_dtype)dtype, (float)v);
    const int64_t size = ebb_dtype_bits((ebb_dtype)dtype) / 8;
    if (ebb_host_player_named() != NULL)
        ebb_host_player_named()->written((const char *)data + at * size, (size_t)size);
}

ebb_status ebb_lt_plan_run(ebb_lt_plan *plan, void *handle, const ebb_lt_operands *o, void *stream)
{
    const ebb_lt_problem *p = &plan->problem;
    const ebb_lt_matrix *left = &p->map.left, *right = &p->map.right, *result = &p->map.result;
    (void)stream;
    assert_ptr_equal(handle, &seen);
    seen.runs++;
    seen.biases += p->bias != 0;
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
                if (p->bias != 0)
                    sum += element(o->bias, p->dtype, row);
                put_element(o->y, p->dtype, at, sum);
            }
    return NULL;
}

/* ---- the back end of the tests ---- */

static const ebb_family families[] = {{ebb_cuda_cublas, &ebb_cuda_cublas_count},
                                      {ebb_cuda_linear_loss, &ebb_cuda_linear_loss_count},
                                      {ebb_cuda_recurrent, &ebb_cuda_recurrent_count},
                                      {ebb_cuda_recurrent_any, &ebb_cuda_recurrent_any_count},
                                      {NULL, NULL}};
static ebb_backend with_library;

/* As a new process has it. */
static void open_again(void)
{
    ebb_cuda_queue *q = more_queue;
    ebb_cuda_cublas_close(q->cublas);
    q->cublas = NULL;
    memset(&seen, 0, sizeof seen);
    seen.least_align = 256;
}

static int forget(void **state)
{
    (void)state;
    open_again();
    return 0;
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

TEST(every_third_operand_gets_in)
{
    for (int turns = 0; turns < 4; turns++)
        for (int c = NOTHING; c <= SCALAR; c++)
            for (int k = 0; k < 4; k++) {
                const double beta = k < 2 ? 1 : -0.75;
                const int before = seen.biases;
                TESTING(t);
                put_gemm(&t, k % 2 ? EBB_F64 : EBB_F32, turns, (added)c, beta);
                check_agree(&t, "cuda.lt_gemm", "plain.gemm", k % 2 ? 1e-14 : 1e-6);
                assert_int_equal(seen.biases - before, c == BIAS_ROW && k == 0);
            }
}

TEST(batches_are_one_call)
{
    static const int64_t shapes[][3][4] = {{{2, 3, 4, 5}, {2, 3, 5, 6}, {2, 3, 4, 6}},
                                           {{2, 3, 4, 5}, {1, 1, 5, 6}, {2, 3, 4, 6}},
                                           {{1, 1, 4, 5}, {2, 3, 5, 6}, {2, 3, 4, 6}}};
    for (int i = 0; i < 3; i++) {
        const int before = seen.runs;
        TESTING(t);
        begin(&t, EBB_OP_MATMUL);
        put_in(&t, EBB_F32, 4, shapes[i][0]);
        put_in(&t, EBB_F32, 4, shapes[i][1]);
        put_out(&t, EBB_F32, 4, shapes[i][2]);
        check_agree(&t, "cuda.lt_matmul", "plain.matmul", 1e-6);
        assert_int_equal(seen.runs - before, 1);
    }
}

TEST(without_an_algorithm_the_product_is_our_own)
{
    TESTING(t);
    seen.has_none = true;
    put_gemm(&t, EBB_F32, 0, BIAS_ROW, 1);
    check_agree(&t, "cuda.lt_gemm", "plain.gemm", 1e-6);
    assert_int_equal(seen.runs, 0);
}

/* ---- the choice ---- */

TEST(a_problem_is_asked_for_once)
{
    TESTING(t);
    put_gemm(&t, EBB_F32, 2, FULL, 1);
    for (int i = 1; i <= 2; i++) {
        check_agree(&t, "cuda.lt_gemm", "plain.gemm", 1e-6);
        assert_int_equal(seen.finds, 1);
        assert_int_equal(seen.runs, i);
    }
    end(&t);
    put_gemm(&t, EBB_F32, 3, FULL, 1);
    check_agree(&t, "cuda.lt_gemm", "plain.gemm", 1e-6);
    assert_int_equal(seen.finds, 2);
}

/* Its operands are not there yet, and its rows begin where they may. */
TEST(a_tile_takes_what_it_finds)
{
    TESTING(t);
    put_gemm(&t, EBB_F32, 0, NOTHING, 1);
    const ebb_kernel *k = kernel_named("cuda.lt_gemm");
    void *keep[3] = {t.in[0].data, t.in[1].data, t.out[0].data};
    t.call.queue = more_queue;
    t.in[0].data = t.in[1].data = t.out[0].data = NULL;
    check_status(k->prepare(&t.call), "prepare");
    assert_int_equal(seen.finds, 1);
    assert_int_equal(seen.runs, 0);
    assert_int_equal(seen.least_align, 4); // a row of 7 float32
    t.in[0].data = keep[0];
    t.in[1].data = keep[1];
    t.out[0].data = keep[2];
}

/* ---- inside others ---- */

TEST(the_products_of_a_chunked_loss_are_the_librarys)
{
    for (size_t k = 0; k < LAYERS; k++)
        for (int wide = 0; wide < 2; wide++) {
            const int before = seen.runs;
            TESTING(t);
            make(&t, &layers[k], wide ? EBB_F64 : EBB_F32);
            check_agree(&t, "cuda.linear_cross_entropy", "plain.linear_cross_entropy",
                        wide ? 1e-13 : 2e-6);
            const int64_t block = layers[k].block > 0 ? layers[k].block : layers[k].rows;
            const int64_t blocks = (layers[k].rows + block - 1) / (block > 0 ? block : 1);
            assert_int_equal(seen.runs - before, 3 * blocks);
        }
}

/* Four steps: of each one product, but two of a GRU whose r comes before R; and those of all. */
TEST(the_products_of_recurrent_layers_are_the_librarys)
{
    static const struct {
        const char *name;
        cell cell;
        bool back;
        unsigned says;
        int products; /* of a direction */
    } layers_of[] = {
        {"rnn", RNN, false, BIAS, 1 + 4},
        {"rnn_grad", RNN, true, BIAS | STATES, 2 + 4 + 3},
        {"gru", GRU, false, ODD | BIAS | BATCH_FIRST, 2 + 4},
        {"gru_grad", GRU, true, ODD | BIAS, 3 + 4 + 5},
        {"gru", GRU, false, LENGTHS | STATES, 2 + 8},
        {"gru_grad", GRU, true, LENGTHS | STATES | BATCH_FIRST, 4 + 8 + 6},
        {"ebb_lstm_grad", LSTM, true, ALL, 2 + 4 + 3},
    };
    static const shape both = {"bidirectional", 4, 3, 5, 6}, back = {"reverse", 4, 3, 5, 6};
    char kernel[32], plain[32];
    TESTING(t);
    for (size_t i = 0; i < sizeof layers_of / sizeof layers_of[0]; i++)
        for (int wide = 0; wide < 2; wide++) {
            const ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
            const int before = seen.runs;
            if (layers_of[i].back)
                put_backward(&t, &both, layers_of[i].cell, dtype, layers_of[i].says);
            else
                put_forward(&t, &both, layers_of[i].cell, dtype, layers_of[i].says);
            (void)snprintf(kernel, sizeof kernel, "cuda.%s", layers_of[i].name);
            (void)snprintf(plain, sizeof plain, "plain.%s", layers_of[i].name);
            check_agree(&t, kernel, plain, wide ? 1e-13 : 1e-5);
            assert_int_equal(seen.runs - before, 2 * layers_of[i].products);
            end(&t);
        }
    int before = seen.runs;
    put_usual_forward(&t, &back, EBB_F32, 15, 31);
    check_agree(&t, "cuda.lstm_training", "plain.lstm_training", 2e-6);
    assert_int_equal(seen.runs - before, 1 + 4);
    end(&t);
    before = seen.runs;
    put_usual_backward(&t, &back, EBB_F32, 31, 63);
    check_agree(&t, "cuda.lstm_grad", "plain.lstm_grad", 3e-6);
    assert_int_equal(seen.runs - before, 4 + 3);
}

const fixture around_each = {forget, NULL};

int main(void)
{
    if (with_cuda(NULL) != 0)
        return 1;
    with_library = ebb_backend_cuda;
    with_library.families = families;
    more_backend = &with_library;
    return run_listed();
}
