/* test_lt_products.c: the callers of cuBLASLt, with a stand-in for the library that multiplies as
 * the library would, column by column: what it is asked for, which of its algorithms is taken, and
 * that the choice is found again.
 */
#include "tests/cuda/library/lt_stand_in.h"
#include "tests/cuda/recurrent.h"
#include "tests/kernels/linear_loss_layers.h"

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

/* Four steps: of each one product, but two of a GRU whose r comes before R; and those of all. */
static void the_products_of_recurrent_layers_are_the_librarys(void **state)
{
    (void)state;
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
    testing t;
    seen.algorithms = 1;
    for (size_t i = 0; i < sizeof layers_of / sizeof layers_of[0]; i++)
        for (int wide = 0; wide < 2; wide++) {
            const ebb_dtype dtype = wide ? EBB_F64 : EBB_F32;
            const int before = total();
            if (layers_of[i].back)
                put_backward(&t, &both, layers_of[i].cell, dtype, layers_of[i].says);
            else
                put_forward(&t, &both, layers_of[i].cell, dtype, layers_of[i].says);
            (void)snprintf(kernel, sizeof kernel, "cuda.%s", layers_of[i].name);
            (void)snprintf(plain, sizeof plain, "plain.%s", layers_of[i].name);
            check_agree(&t, kernel, plain, wide ? 1e-13 : 1e-5);
            assert_int_equal(total() - before, 2 * layers_of[i].products);
            end(&t);
        }
    int before = total();
    put_usual_forward(&t, &back, EBB_F32, 15, 31);
    check_agree(&t, "cuda.lstm_training", "plain.lstm_training", 2e-6);
    assert_int_equal(total() - before, 1 + 4);
    end(&t);
    before = total();
    put_usual_backward(&t, &back, EBB_F32, 31, 63);
    check_agree(&t, "cuda.lstm_grad", "plain.lstm_grad", 3e-6);
    assert_int_equal(total() - before, 4 + 3);
    end(&t);
}

/* ---- what follows ---- */

enum { ROWS = 6, DEPTH = 5, WIDE = 256 };

typedef struct following { /* a product, two calls behind it, and a view or none between */
    ebb_call calls[4];
    ebb_operand in[4][3], out[4];
    ebb_attr turn[1];
    uint32_t count;
    float a[ROWS * DEPTH], b[DEPTH * WIDE], bias[WIDE], y[ROWS * WIDE], z[ROWS * WIDE];
    _Alignas(256) uint8_t bits[ROWS * WIDE / 8];
    _Alignas(256) unsigned char workspace[1 << 16];
} following;

static ebb_operand of(void *data, ebb_dtype dtype, int64_t rows, int64_t columns)
{
    const int64_t dims[2] = {rows, columns};
    const ebb_operand o = {.type = ebb_type_tensor(dtype, 2, dims),
                           .bytes = (size_t)(rows * columns) * (dtype == EBB_U8 ? 1 : 4),
                           .data = data};
    return o;
}

static ebb_operand list_of(void *data, ebb_dtype dtype, int64_t n)
{
    ebb_operand o = of(data, dtype, 1, n);
    o.type = ebb_type_tensor(dtype, 1, &n);
    return o;
}

static ebb_call *next_call(following *f, ebb_op op, uint32_t inputs, ebb_operand out,
                           uint32_t last_read)
{
    const uint32_t k = f->count++;
    ebb_call *c = &f->calls[k];
    memset(c, 0, sizeof *c);
    f->out[k] = out;
    f->out[k].last_read = last_read;
    c->op = op;
    c->version = 20;
    c->node = "a call of the test";
    c->in = f->in[k];
    c->out = &f->out[k];
    c->input_count = inputs;
    c->output_count = 1;
    c->queue = more_queue;
    c->position = k;
    return c;
}

static void settle(following *f)
{
    static const ebb_backend *const backends[] = {&with_library, &ebb_backend_cuda, NULL};
    for (uint32_t k = 0; k < f->count; k++)
        check_status(ebb_pick(&f->calls[k], backends), "pick");
    ebb_call *c = &f->calls[0];
    check_status(c->kernel->workspace(c, &c->workspace_bytes), "workspace");
    assert_true(c->workspace_bytes <= sizeof f->workspace);
    c->workspace = f->workspace;
}

static following *begin_following(void)
{
    following *f = aligned_alloc(256, (sizeof *f + 255) / 256 * 256);
    assert_non_null(f);
    memset(f, 0, sizeof *f);
    for (int i = 0; i < ROWS * DEPTH; i++)
        f->a[i] = (float)(i * 37 % 23 - 11) / 8;
    for (int i = 0; i < DEPTH * WIDE; i++)
        f->b[i] = (float)(i * 53 % 31 - 15) / 16;
    for (int i = 0; i < WIDE; i++)
        f->bias[i] = (float)(i * 29 % 17 - 8) / 4;
    f->a[3] = NAN;
    f->b[7] = INFINITY;
    for (size_t i = 0; i < sizeof f->bits; i++)
        f->bits[i] = (uint8_t)(i * 151 + 17);
    memset(f->y, 0x55, sizeof f->y);
    return f;
}

/* Gemm, Relu over or beside it, PackSign; n columns. */
static following *forward(bool bias, bool over, int64_t n)
{
    following *f = begin_following();
    const ebb_operand y = of(f->y, EBB_F32, ROWS, n), z = of(over ? f->y : f->z, EBB_F32, ROWS, n);
    f->in[0][0] = of(f->a, EBB_F32, ROWS, DEPTH);
    f->in[0][1] = of(f->b, EBB_F32, DEPTH, n);
    f->in[0][2] = list_of(f->bias, EBB_F32, n);
    f->in[1][0] = y;
    f->in[2][0] = z;
    next_call(f, EBB_OP_GEMM, bias ? 3 : 2, y, 1);
    next_call(f, EBB_OP_RELU, 1, z, 7);
    next_call(f, EBB_OP_PACK_SIGN, 1, list_of(f->bits, EBB_U8, (ROWS * n + 7) / 8), 9);
    settle(f);
    return f;
}

/* FusedMatMul, MaskGrad. */
static following *backward(bool over)
{
    following *f = begin_following();
    const ebb_operand g = of(f->y, EBB_F32, ROWS, WIDE);
    f->in[0][0] = of(f->a, EBB_F32, ROWS, DEPTH);
    f->in[0][1] = of(f->b, EBB_F32, WIDE, DEPTH);
    f->in[1][0] = g;
    f->in[1][1] = list_of(f->bits, EBB_U8, sizeof f->bits);
    ebb_call *c = next_call(f, EBB_OP_FUSED_MATMUL, 2, g, 1);
    f->turn[0] = (ebb_attr){.name = "transB", .type = EBB_ATTR_INT, .i = 1};
    c->attrs.list = f->turn;
    c->attrs.count = 1;
    next_call(f, EBB_OP_MASK_GRAD, 2, of(over ? f->y : f->z, EBB_F32, ROWS, WIDE), 9);
    settle(f);
    return f;
}

/* Groups, prepares and runs; what seen.after counts is the run alone. */
static void run_following(following *f, bool grouped)
{
    if (grouped)
        check_status(with_library.group(f->calls, f->count), "group");
    for (uint32_t k = 0; k < f->count; k++)
        if (f->calls[k].kernel->prepare != NULL)
            check_status(f->calls[k].kernel->prepare(&f->calls[k]), "prepare");
    memset(seen.after, 0, sizeof seen.after);
    memset(f->y, 0x55, sizeof f->y);
    memset(f->z, 0x33, sizeof f->z);
    for (uint32_t k = 0; k < f->count; k++)
        check_status(f->calls[k].kernel->run(&f->calls[k]), "run");
}

static bool was_joined(const following *f)
{
    return strcmp(f->calls[0].kernel->name, "cuda.lt_joined") == 0;
}

static void end_following(following *f)
{
    for (uint32_t k = 0; k < f->count; k++)
        if (f->calls[k].kernel->release != NULL && f->calls[k].state != NULL)
            f->calls[k].kernel->release(&f->calls[k]);
    free(f);
}

/* What later calls read: all but y, which is free again. */
static void check_same(const following *one, const following *all, bool over)
{
    assert_memory_equal(over ? one->y : one->z, over ? all->y : all->z, sizeof one->z);
    assert_memory_equal(one->bits, all->bits, sizeof one->bits);
}

static void what_follows_a_product_is_done_on_its_way_out(void **state)
{
    (void)state;
    seen.slow_alone = true;
    seen.algorithms = 1;
    for (int form = 0; form < 4; form++) {
        const bool bias = form % 2, over = form / 2;
        following *one = forward(bias, over, WIDE), *all = forward(bias, over, WIDE);
        run_following(one, false);
        assert_int_equal(seen.after[bias ? EBB_LT_BIAS : EBB_LT_NOTHING], 1);
        run_following(all, true);
        assert_true(was_joined(all));
        assert_int_equal(seen.after[bias ? EBB_LT_RELU_AUX_BIAS : EBB_LT_RELU_AUX], 1);
        assert_int_equal(seen.after[EBB_LT_NOTHING] + seen.after[EBB_LT_BIAS], 0);
        check_same(one, all, over);
        end_following(one);
        end_following(all);
    }
    for (int over = 0; over < 2; over++) {
        following *one = backward(over), *all = backward(over);
        run_following(one, false);
        run_following(all, true);
        assert_true(was_joined(all));
        assert_int_equal(seen.after[EBB_LT_DRELU], 1);
        assert_int_equal(seen.after[EBB_LT_NOTHING], 0);
        check_same(one, all, over);
        end_following(one);
        end_following(all);
    }
}

/* Rows of 200 bits would begin in the midst of a line: the ReLU is joined, its bits are not. */
static void bits_of_rows_that_end_within_a_line_are_our_own(void **state)
{
    (void)state;
    seen.slow_alone = true;
    seen.algorithms = 1;
    following *one = forward(true, false, 200), *all = forward(true, false, 200);
    run_following(one, false);
    run_following(all, true);
    assert_int_equal(seen.after[EBB_LT_RELU_BIAS], 1);
    assert_string_equal(all->calls[2].kernel->name, "cuda.pack_sign");
    check_same(one, all, false);
    end_following(one);
    end_following(all);
}

/* A Reshape that moves nothing stands between; where its result is read again nothing is joined. */
static void a_view_between_does_not_part_them(void **state)
{
    (void)state;
    seen.slow_alone = true;
    seen.algorithms = 1;
    for (int read_again = 0; read_again < 2; read_again++) {
        following *one = forward(true, false, WIDE), *all = begin_following();
        const ebb_operand y = of(all->y, EBB_F32, ROWS, WIDE), z = of(all->z, EBB_F32, ROWS, WIDE);
        all->in[0][0] = of(all->a, EBB_F32, ROWS, DEPTH);
        all->in[0][1] = of(all->b, EBB_F32, DEPTH, WIDE);
        all->in[0][2] = list_of(all->bias, EBB_F32, WIDE);
        all->in[1][0] = y;
        all->in[1][1] = list_of(all->workspace, EBB_I64, 0);
        all->in[2][0] = list_of(all->y, EBB_F32, (int64_t)ROWS * WIDE);
        all->in[3][0] = z;
        next_call(all, EBB_OP_GEMM, 3, y, 1);
        next_call(all, EBB_OP_RESHAPE, 2, all->in[2][0], read_again ? 8 : 2);
        next_call(all, EBB_OP_RELU, 1, list_of(all->z, EBB_F32, (int64_t)ROWS * WIDE), 7);
        next_call(all, EBB_OP_PACK_SIGN, 1, list_of(all->bits, EBB_U8, sizeof all->bits), 9);
        settle(all);
        run_following(one, false);
        run_following(all, true);
        assert_int_equal(was_joined(all), !read_again);
        assert_int_equal(seen.after[EBB_LT_RELU_AUX_BIAS], !read_again);
        assert_string_equal(all->calls[1].kernel->name, "cuda.reshape");
        check_same(one, all, false);
        end_following(one);
        end_following(all);
    }
}

/* A library that computes otherwise is found out, and not asked. */
static void a_library_of_other_manners_joins_nothing_that_it_would_change(void **state)
{
    (void)state;
    for (int m = AS_OURS + 1; m <= MANNERS; m++) {
        const bool relu = m == BITS_HIGH_FIRST || m == GRADIENT_IS_A_PRODUCT;
        open_again();
        seen.slow_alone = true;
        seen.algorithms = 1;
        seen.manner = m == MANNERS ? AS_OURS : (manner)m;
        seen.refuses_after = m == MANNERS;
        following *one = forward(true, false, WIDE), *all = forward(true, false, WIDE);
        run_following(one, false);
        run_following(all, true);
        assert_int_equal(seen.after[EBB_LT_RELU_AUX_BIAS], m == GRADIENT_IS_A_PRODUCT);
        assert_int_equal(seen.after[EBB_LT_BIAS], !relu);
        check_same(one, all, false);
        end_following(one);
        end_following(all);
        one = backward(false);
        all = backward(false);
        run_following(one, false);
        run_following(all, true);
        assert_int_equal(seen.after[EBB_LT_DRELU], m == NAN_IS_ZERO || m == ZERO_HAS_NO_SIGN);
        check_same(one, all, false);
        end_following(one);
        end_following(all);
    }
}

typedef struct told {
    int count;
    char text[20][320];
} told;

static void note_probe(void *to, const char *what, const char *why)
{
    told *t = to;
    assert_true(t->count < 20);
    (void)snprintf(t->text[t->count++], sizeof t->text[0], "%s: %s", what,
                   why == NULL ? "yes" : why);
}

/* As `ebb devices` shows them: three dtypes of five ways out, ReLU's two, ReLU's with bits, and its
 * gradient's. */
static void what_the_device_answers_is_told_a_line_a_question(void **state)
{
    (void)state;
    static const char *const words[MANNERS + 1][3] = {
        [AS_OURS] = {": yes", ": yes", ": yes"},
        [NAN_IS_ZERO] = {"nan (0x", "nan (0x", ": yes"},
        [ZERO_HAS_NO_SIGN] = {"of -0 (0x80", "of -0 (0x80", ": yes"},
        [BITS_HIGH_FIRST] = {": yes", "its bits of numbers ", "it makes 0 (0x0), the own kernel"},
        [GRADIENT_IS_A_PRODUCT] = {": yes", ": yes", "it makes "},
        [MANNERS] = {"has no algorithm", "has no algorithm", "has no algorithm"},
    };
    for (int m = AS_OURS; m <= MANNERS; m++) {
        told t = {0};
        open_again();
        seen.algorithms = 1;
        seen.manner = m == MANNERS ? AS_OURS : (manner)m;
        seen.refuses_after = m == MANNERS;
        ebb_cublas_probes(more_queue, note_probe, &t);
        assert_int_equal(t.count, 15);
        assert_non_null(strstr(t.text[0], "cuBLASLt's ReLU in float32: "));
        assert_non_null(
            strstr(t.text[14], "cuBLASLt's gradient of ReLU from its bits in bfloat16: "));
        for (int k = 0; k < t.count; k++)
            if (strstr(t.text[k], words[m][k / 6]) == NULL)
                fail_msg("manner %d: %s; expected to read %s", m, t.text[k], words[m][k / 6]);
        const int asked = total();
        ebb_cublas_probes(more_queue, note_probe, &(told){0});
        assert_int_equal(total(), asked); // once a queue
    }
}

static void where_it_is_slower_the_calls_stay_apart(void **state)
{
    (void)state;
    following *f = forward(false, false, WIDE);
    seen.slow_after = true;
    run_following(f, true);
    assert_true(was_joined(f));
    assert_int_equal(seen.after[EBB_LT_NOTHING], 1);
    assert_int_equal(seen.after[EBB_LT_RELU_AUX], 0);
    end_following(f);
}

/* The result of the ReLU may lie where the product still reads, and y may be wanted. */
static void what_must_not_be_written_yet_or_is_read_again_is_not_joined(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        following *f = forward(true, false, WIDE);
        if (form == 0)
            f->out[1].data = f->in[2][0].data = f->b;
        else if (form == 1)
            f->out[0].last_read = 2;
        else if (form == 2)
            f->out[1].data = f->in[2][0].data = f->workspace;
        else
            f->in[1][0].data = f->b; // another's ReLU
        check_status(with_library.group(f->calls, f->count), "group");
        assert_false(was_joined(f));
        end_following(f);
    }
    following *f = forward(true, false, WIDE);
    f->out[2].data = f->bias; // the bits alone
    check_status(with_library.group(f->calls, f->count), "group");
    assert_true(was_joined(f));
    assert_string_equal(f->calls[2].kernel->name, "cuda.pack_sign");
    end_following(f);
    f = backward(false);
    f->in[1][1].data = f->workspace; // bits where nobody keeps any
    check_status(with_library.group(f->calls, f->count), "group");
    assert_false(was_joined(f));
    end_following(f);
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
        cmocka_unit_test_setup(what_follows_a_product_is_done_on_its_way_out, forget),
        cmocka_unit_test_setup(a_view_between_does_not_part_them, forget),
        cmocka_unit_test_setup(bits_of_rows_that_end_within_a_line_are_our_own, forget),
        cmocka_unit_test_setup(a_library_of_other_manners_joins_nothing_that_it_would_change,
                               forget),
        cmocka_unit_test_setup(what_the_device_answers_is_told_a_line_a_question, forget),
        cmocka_unit_test_setup(where_it_is_slower_the_calls_stay_apart, forget),
        cmocka_unit_test_setup(what_must_not_be_written_yet_or_is_read_again_is_not_joined, forget),
        cmocka_unit_test_setup(the_products_of_recurrent_layers_are_the_librarys, forget),
    };
    if (setenv("EBB_CACHE", EBB_BINARY_DIR "/lt_cache_of_tests", 1) != 0)
        return 1;
    with_cuda();
    with_library = ebb_backend_cuda;
    with_library.families = families;
    more_backend = &with_library;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
