/* test_frozen.c: products with a matrix in few bits: the tiles' kernel beside the plain one, in all forms,
 * and with any number of threads. What the plain one means is held by function bodies (test_bodies.c) and
 * by ONNX Runtime's kernels (tests/dialect).
 */
#include "tests/kernels/call.h"

typedef struct form {
    int64_t rows, n, k;
    int64_t bits, block;
    enum { ONE_BYTE, PACKED, REAL } zeros;
    enum { LINEAR, TABLE } levels;
    bool flat, high_first, turned;
    ebb_dtype scales;
} form;

/* Odd sides, blocks that end within a tile and within a row, rows below and above a block of them. */
static const form forms[] = {
    {1, 3, 20, 4, 16, ONE_BYTE, LINEAR, false, false, true, EBB_F32},
    {7, 33, 72, 4, 16, PACKED, LINEAR, false, false, true, EBB_F32},
    {7, 33, 72, 4, 16, PACKED, LINEAR, false, false, false, EBB_F32},
    {65, 40, 300, 4, 32, ONE_BYTE, LINEAR, false, false, true, EBB_F32},
    {65, 300, 40, 4, 32, ONE_BYTE, LINEAR, false, false, false, EBB_F32},
    {300, 130, 544, 4, 128, REAL, LINEAR, false, false, true, EBB_F32},
    {300, 544, 130, 4, 64, REAL, LINEAR, false, false, false, EBB_F32},
    {9, 50, 530, 8, 32, ONE_BYTE, LINEAR, false, false, true, EBB_F32},
    {9, 530, 50, 8, 32, PACKED, LINEAR, false, false, false, EBB_F32},
    {9, 50, 530, 2, 16, PACKED, LINEAR, false, false, true, EBB_F32},
    {9, 530, 50, 2, 16, PACKED, LINEAR, false, false, false, EBB_F32},
    {9, 50, 530, 2, 64, ONE_BYTE, LINEAR, false, false, true, EBB_F16},
    {9, 50, 530, 4, 64, REAL, LINEAR, false, false, true, EBB_BF16},
    {5, 24, 96, 4, 64, ONE_BYTE, TABLE, true, true, true, EBB_F32},
    {5, 24, 96, 4, 64, ONE_BYTE, TABLE, true, true, false, EBB_F32},
    {5, 40, 128, 4, 64, ONE_BYTE, TABLE, true, true, true, EBB_F32},
    {5, 40, 128, 4, 64, ONE_BYTE, TABLE, true, true, false, EBB_F32},
    {5, 7, 5, 4, 16, ONE_BYTE, TABLE, true, true, true, EBB_F32},
    {4, 20, 64, 8, 16, ONE_BYTE, TABLE, false, false, true, EBB_F32},
    {4, 20, 64, 2, 16, PACKED, TABLE, false, true, false, EBB_F32},
    {4, 21, 63, 4, 3, PACKED, LINEAR, false, false, true, EBB_F32},
    {4, 21, 63, 4, 1, ONE_BYTE, LINEAR, false, false, false, EBB_F32},
};

static void put_bytes(testing *t, ebb_operand *o)
{
    for (size_t i = 0; i < o->bytes; i++)
        ((uint8_t *)o->data)[i] = (uint8_t)(127.9 * draw(t) + 128.0);
}

static ebb_operand *put_raw(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, dtype, rank, dims);
    put_bytes(t, o);
    return o;
}

/* The operands of so many matrices. */
static void put_forms(testing *t, const form *f, ebb_op op, int64_t matrices)
{
    begin(t, op);
    put_int(t, "experts", matrices);
    put_int(t, "N", f->n);
    put_int(t, "K", f->k);
    put_int(t, "bits", f->bits);
    put_int(t, "block_size", f->block);
    put_int(t, "flat", f->flat);
    put_int(t, "high_first", f->high_first);
    put_int(t, "packed_zeros", f->zeros != REAL);
    put_int(t, "transB", f->turned);
    const int64_t rows = f->flat ? 1 : f->n * matrices, columns = f->flat ? f->n * f->k : f->k,
                  blocks = (columns + f->block - 1) / f->block, per = 8 / f->bits;
    put_in(t, EBB_F32, 2, D(f->rows, f->turned ? f->k : f->n));
    put_raw(t, EBB_U8, 2,
            D(rows, f->flat ? (columns + per - 1) / per : (blocks * f->block + per - 1) / per));
    put_in(t, f->scales, 2, D(rows, blocks));
    if (f->zeros == REAL)
        put_in(t, f->scales, 2, D(rows, blocks));
    else
        put_raw(t, EBB_U8, 2, f->zeros == ONE_BYTE ? D(1, 1) : D(rows, (blocks + per - 1) / per));
    ebb_operand *levels = put_in(t, EBB_F32, 1, D((int64_t)1 << f->bits));
    for (int i = 0; i < 1 << f->bits; i++)
        if (f->levels == LINEAR)
            set_value(levels, (size_t)i, i);
    put_out(t, EBB_F32, 2, D(f->rows, f->turned ? f->n : f->k));
}

static void put_form(testing *t, const form *f)
{
    put_forms(t, f, EBB_OP_MATMUL_CODES, 1);
}

static void both_agree(testing *t, const char *plain, const char *tiles, const char *what)
{
    run_with(t, plain);
    double *expected = values_of(&t->out[0]);
    for (int threads = 1; threads <= 3; threads++) {
        const ebb_threads_before before = ebb_threads_enter(threads);
        run_with(t, tiles);
        check_close(&t->out[0], expected, 3e-6, what);
        ebb_threads_leave(before);
    }
    free(expected);
}

static void tiles_are_what_the_plain_kernel_computes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        testing t;
        char what[64];
        (void)snprintf(what, sizeof what, "form %zu", i);
        put_form(&t, &forms[i]);
        both_agree(&t, "plain.matmul_codes", "tiles.matmul_codes", what);
        end(&t);
    }
}

/* ---- tensors as DequantizeLinear takes them ---- */

typedef struct tensor {
    ebb_dtype dtype;
    int64_t n, k, axis, block; /* block: 0 a list along the axis, -1 one scale */
    bool zeros, turned;
} tensor;

static const tensor tensors[] = {
    {EBB_I8, 70, 45, 1, -1, false, false},    {EBB_U8, 70, 45, 1, 0, true, true},
    {EBB_U8, 300, 45, 0, 0, true, false},     {EBB_I8, 300, 45, 1, 0, true, false},
    {EBB_I4, 290, 40, 0, 32, false, false},   {EBB_I4, 290, 40, 0, 32, false, true},
    {EBB_U4, 40, 290, 1, 32, true, true},     {EBB_U4, 40, 290, 1, 32, true, false},
    {EBB_U4, 40, 291, 1, 32, true, true},     {EBB_I2, 64, 68, 1, 16, false, true},
    {EBB_F4E2M1, 64, 64, 1, 32, false, true}, {EBB_F8E4M3FN, 64, 64, 1, 32, false, false},
    {EBB_I8, 33, 47, 1, 5, true, true},
};

static void put_tensor(testing *t, const tensor *f)
{
    begin(t, EBB_OP_MATMUL_DEQUANTIZED);
    put_int(t, "axis", f->axis);
    put_int(t, "transB", f->turned);
    if (f->block > 0)
        put_int(t, "block_size", f->block);
    const int64_t along = f->axis == 0 ? f->n : f->k,
                  blocks = f->block > 0 ? (along + f->block - 1) / f->block : along;
    const int64_t dims[2] = {f->axis == 0 ? blocks : f->n, f->axis == 0 ? f->k : blocks};
    const int rank = f->block > 0 ? 2 : f->block == 0 ? 1 : 0;
    put_in(t, EBB_F32, 3, D(2, 9, f->turned ? f->k : f->n));
    ebb_operand *codes = put_raw(t, f->dtype, 2, D(f->n, f->k));
    for (size_t i = 0; f->dtype == EBB_F8E4M3FN && i < codes->bytes; i++)
        ((uint8_t *)codes->data)[i] &= 0x7B; // numbers alone
    put_in(t, EBB_F32, rank, rank == 2 ? dims : &blocks);
    if (f->zeros)
        put_raw(t, f->dtype, rank, rank == 2 ? dims : &blocks);
    put_out(t, EBB_F32, 3, D(2, 9, f->turned ? f->n : f->k));
}

static void tiles_of_tensors_are_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        testing t;
        char what[64];
        (void)snprintf(what, sizeof what, "tensor %zu", i);
        put_tensor(&t, &tensors[i]);
        both_agree(&t, "plain.matmul_dequantized", "tiles.matmul_dequantized", what);
        end(&t);
    }
}

/* ---- a matrix for each expert ---- */

/* Experts of many rows, of one and of none; neighbours, and not. */
static void put_experts(testing *t, int64_t rows)
{
    ebb_operand *of = put_in(t, EBB_I64, 1, D(rows));
    for (int64_t r = 0; r < rows; r++)
        ((int64_t *)of->data)[r] = r < rows / 2 ? 3 : r == rows / 2 ? 0 : 1 + r % 5 / 4;
}

static void tiles_of_experts_are_too(void **state)
{
    (void)state;
    enum { EXPERTS = 4 };
    const size_t some[] = {1, 2, 4, 5, 7, 9, 12, 18};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const form *f = &forms[some[i]];
        char what[64];
        testing t;
        (void)snprintf(what, sizeof what, "experts of form %zu", some[i]);
        put_forms(&t, f, EBB_OP_EXPERTS_MATMUL_CODES, EXPERTS);
        put_experts(&t, f->rows);
        both_agree(&t, "plain.experts_matmul_codes", "tiles.experts_matmul_codes", what);
        end(&t);
        begin(&t, EBB_OP_EXPERTS_MATMUL);
        put_int(&t, "transB", f->turned);
        put_in(&t, EBB_F32, 2, D(f->rows, f->turned ? f->k : f->n));
        put_in(&t, EBB_F32, 3, D(EXPERTS, f->n, f->k));
        put_experts(&t, f->rows);
        put_out(&t, EBB_F32, 2, D(f->rows, f->turned ? f->n : f->k));
        both_agree(&t, "plain.experts_matmul", "tiles.experts_matmul", what);
        end(&t);
    }
}

/* An expert that is none is named, and nothing is read beyond the weights. */
static void an_expert_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const kernels[] = {"plain.experts_matmul", "tiles.experts_matmul"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        for (int64_t wrong = -1; wrong <= 2; wrong += 3) {
            testing t;
            begin(&t, EBB_OP_EXPERTS_MATMUL);
            put_in(&t, EBB_F32, 2, D(3, 4));
            put_in(&t, EBB_F32, 3, D(2, 5, 4));
            ((int64_t *)put_in(&t, EBB_I64, 1, D(3))->data)[1] = wrong;
            put_out(&t, EBB_F32, 2, D(3, 5));
            assert_null(declined_by(&t, kernels[i]));
            t.call.kernel = kernel_named(kernels[i]);
            ebb_status status = t.call.kernel->run(&t.call);
            assert_non_null(status);
            assert_non_null(strstr(ebb_status_text(status), "row 1 is of expert"));
            end(&t);
        }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    testing t;
    put_form(&t, &forms[5]);
    float *one = NULL;
    const size_t bytes = t.out[0].bytes;
    for (int threads = 1; threads <= 7; threads += 2) {
        const ebb_threads_before before = ebb_threads_enter(threads);
        run_with(&t, "tiles.matmul_codes");
        ebb_threads_leave(before);
        if (one == NULL) {
            one = malloc(bytes);
            assert_non_null(one);
            memcpy(one, t.out[0].data, bytes);
        }
        assert_memory_equal(one, t.out[0].data, bytes);
    }
    free(one);
    end(&t);
}

/* Every product with a scale that is no number would be none either: so those that were made are counted.
 * Rows of zeros lie alone, side by side, first and last. */
static void rows_of_zeros_cost_no_product(void **state)
{
    (void)state;
    const size_t some[] = {2, 5, 6}; // forward and back, one job and several
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        const form *f = &forms[some[k]];
        const int64_t inner = f->turned ? f->k : f->n, columns = f->turned ? f->n : f->k;
        testing t;
        put_form(&t, f);
        for (int64_t i = 0; i < f->rows * inner; i++)
            if (i / inner % 5 < 2 || i / inner > 200 || i / inner == 3)
                ((float *)t.in[0].data)[i] = 0;
        both_agree(&t, "plain.matmul_codes", "tiles.matmul_codes", "rows of zeros");
        for (size_t i = 0; i < count_of(&t.in[2]); i++)
            set_value(&t.in[2], i, NAN);
        run_with(&t, "tiles.matmul_codes");
        for (int64_t i = 0; i < f->rows * columns; i++) {
            const int64_t r = i / columns;
            const float y = ((const float *)t.out[0].data)[i];
            assert_true(r % 5 < 2 || r > 200 || r == 3 ? y == 0 : isnan(y));
        }
        end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_what_the_plain_kernel_computes),
        cmocka_unit_test(tiles_of_tensors_are_too),
        cmocka_unit_test(tiles_of_experts_are_too),
        cmocka_unit_test(an_expert_that_is_none_is_refused),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(rows_of_zeros_cost_no_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
