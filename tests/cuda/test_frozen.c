/* test_frozen.c: products with a matrix in few bits on the GPU's kernels, in all forms; with a matrix for
 * each expert, and its gradient; rows of a table in few bits: beside the plain kernels. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"
#include "tests/kernels/frozen.h"

#include "onnx/words/frozen.h"

enum { EXPERTS = 4, FORMS = sizeof forms / sizeof *forms, LEVELS_STAY = 1u << EBB_FROZEN_LEVELS };

TEST(products_in_all_forms_are_those_of_plain)
{
    for (size_t i = 0; i < FORMS; i++) {
        TESTING(t);
        if (forms[i].rows > 200) // a block of the CPU's; a tile has 64
            continue;
        put_forms(&t, &forms[i], EBB_OP_MATMUL_CODES, EBB_F32, 1);
        agrees(&t, "cuda.matmul_codes", "plain.matmul_codes");
        agrees_mixed(&t, "cuda.matmul_codes", LEVELS_STAY);
    }
}

TEST(tensors_are_too)
{
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        TESTING(t);
        put_tensor(&t, &tensors[i]);
        agrees(&t, "cuda.matmul_dequantized", "plain.matmul_dequantized");
        agrees_mixed(&t, "cuda.matmul_dequantized", 0);
    }
}

/* Few tiles and a long side: parts of it are added up. */
TEST(long_sums_are_cut_into_parts)
{
    const form f = {3, 20, 1100, 4, 32, PACKED, LINEAR, false, false, true, EBB_F32};
    for (int turned = 0; turned < 2; turned++) {
        form g = f;
        g.turned = turned != 0;
        g.n = turned != 0 ? f.n : f.k;
        g.k = turned != 0 ? f.k : f.n;
        TESTING(t);
        put_forms(&t, &g, EBB_OP_MATMUL_CODES, EBB_F32, 1);
        agrees(&t, "cuda.matmul_codes", "plain.matmul_codes");
        assert_true(t.call.workspace_bytes == 4 * 3 * 20 * sizeof(float));
    }
}

/* Of the last tile rows are fewer, and an expert's rows cross tiles. */
static void put_floats(testing *t, const form *f)
{
    begin(t, EBB_OP_EXPERTS_MATMUL);
    put_int(t, "transB", f->turned);
    put_in(t, EBB_F32, 2, D(f->rows, f->turned ? f->k : f->n));
    put_in(t, EBB_F32, 3, D(EXPERTS, f->n, f->k));
    put_experts(t, f->rows);
    put_out(t, EBB_F32, 2, D(f->rows, f->turned ? f->n : f->k));
}

static void put_gradient(testing *t, const form *f)
{
    begin(t, EBB_OP_EXPERTS_MATMUL_GRAD);
    put_int(t, "experts", EXPERTS);
    put_in(t, EBB_F32, 2, D(f->rows, f->k));
    put_in(t, EBB_F32, 2, D(f->rows, f->n));
    put_experts(t, f->rows);
    put_out(t, EBB_F32, 3, D(EXPERTS, f->n, f->k));
}

TEST(products_by_experts_are_those_of_plain)
{
    static const form of_experts[] = {
        {7, 33, 72, 4, 16, REAL, LINEAR, false, false, true, EBB_F32},
        {7, 33, 72, 4, 16, PACKED, LINEAR, false, false, false, EBB_F32},
        {65, 24, 70, 4, 32, ONE_BYTE, LINEAR, false, false, false, EBB_F32},
        {9, 20, 75, 8, 32, ONE_BYTE, LINEAR, false, false, true, EBB_F32},
        {9, 20, 75, 2, 16, PACKED, LINEAR, false, false, true, EBB_F32},
        {9, 20, 75, 4, 64, REAL, LINEAR, false, false, true, EBB_BF16},
        {4, 20, 64, 8, 16, ONE_BYTE, TABLE, false, false, true, EBB_F32},
    };
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++) {
        const form *f = &of_experts[i];
        TESTING(t);
        put_forms(&t, f, EBB_OP_EXPERTS_MATMUL_CODES, EBB_F32, EXPERTS);
        put_experts(&t, f->rows);
        agrees(&t, "cuda.experts_matmul_codes", "plain.experts_matmul_codes");
        agrees_mixed(&t, "cuda.experts_matmul_codes", LEVELS_STAY);
        end(&t);
        put_floats(&t, f);
        agrees(&t, "cuda.experts_matmul", "plain.experts_matmul");
        agrees_in_halves(&t, "cuda.experts_matmul");
        end(&t);
        put_gradient(&t, f);
        agrees(&t, "cuda.experts_matmul_grad", "plain.experts_matmul_grad");
        agrees_in_halves(&t, "cuda.experts_matmul_grad");
    }
}

/* ---- rows of a table ---- */

typedef struct table {
    ebb_dtype dtype;
    int64_t bits, gather, quantised, block;
    int64_t dims[3]; /* of the elements */
    bool zeros;
} table;

static const table tables[] = {
    {EBB_U8, 4, 0, 2, 16, {5, 3, 40}, true},      {EBB_U8, 4, 0, 2, 16, {5, 3, 40}, false},
    {EBB_U8, 2, 1, 2, 16, {2, 6, 48}, true},      {EBB_U8, 8, 0, 1, 16, {3, 33, 7}, true},
    {EBB_U8, 8, 2, 2, 16, {3, 4, 21}, false},     {EBB_I4, 4, 0, 2, 32, {4, 3, 50}, true},
    {EBB_U4, 4, 1, 0, 16, {20, 5, 6}, true},      {EBB_F8E4M3FN, 8, 0, 2, 16, {3, 2, 17}, false},
    {EBB_F4E2M1, 4, 0, 2, 32, {3, 2, 64}, false},
};

static void put_table(testing *t, const table *f, ebb_dtype real, ebb_dtype index)
{
    begin(t, EBB_OP_GATHER_BLOCK_QUANTIZED);
    put_int(t, "bits", f->bits);
    put_int(t, "gather_axis", f->gather);
    put_int(t, "quantize_axis", f->quantised);
    put_int(t, "block_size", f->block);
    const int64_t per = f->dtype == EBB_U8 ? 8 / f->bits : 1;
    const int64_t blocks = (f->dims[f->quantised] + f->block - 1) / f->block;
    int64_t scales[3], y[4];
    for (int d = 0, to = 0; d < 3; d++) {
        scales[d] = d == f->quantised ? blocks : f->dims[d];
        if (d == f->gather)
            y[to++] = 2;
        y[to++] = d == f->gather ? 3 : f->dims[d];
    }
    ebb_operand *codes = put_codes(t, f->dtype, 3, D(f->dims[0], f->dims[1], f->dims[2] / per));
    for (size_t i = 0; f->dtype == EBB_F8E4M3FN && i < codes->bytes; i++)
        ((uint8_t *)codes->data)[i] &= 0x7B; // numbers alone
    ebb_operand *indices = put_in(t, EBB_I64, 2, D(2, 3));
    for (int i = 0; i < 6; i++)
        ((int64_t *)indices->data)[i] = i * 5 % 7 % 3 - (i == 4 ? 3 : 0);
    for (int i = 0; index == EBB_I32 && i < 6; i++)
        ((int32_t *)indices->data)[i] = (int32_t)((int64_t *)indices->data)[i];
    indices->type.dtype = (uint8_t)index;
    put_in(t, real, 3, scales);
    const bool packed = f->dtype == EBB_U8 && f->bits < 8;
    if (f->zeros)
        put_codes(t, f->dtype, 3,
                  D(scales[0], scales[1], packed ? (scales[2] + per - 1) / per : scales[2]));
    put_out(t, real, 4, y);
}

TEST(rows_of_tables_are_those_of_plain)
{
    static const ebb_dtype reals[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (size_t d = 0; d < 4; d++) {
            TESTING(t);
            put_table(&t, &tables[i], reals[d], d % 2 == 0 ? EBB_I64 : EBB_I32);
            agrees(&t, "cuda.gather_block_quantized", "plain.gather_block_quantized");
        }
}

/* ---- what is told ---- */

static void check_told(testing *t, const char *kernel, int64_t value)
{
    const ebb_fault fault = fault_of(t, kernel, 9);
    assert_true(fault.there);
    assert_int_equal(fault.kind, EBB_FAULT_RANGE);
    assert_int_equal(fault.value, value);
    assert_int_equal(fault.low, 0);
    assert_int_equal(fault.high, EXPERTS);
}

/* Nothing is read beyond the weights, which guards end. */
TEST(experts_and_rows_that_are_none_are_told)
{
    for (int k = 0; k < 3; k++)
        for (int64_t wrong = -1; wrong <= EXPERTS; wrong += EXPERTS + 1) {
            static const char *const kernels[] = {
                "cuda.experts_matmul_codes", "cuda.experts_matmul", "cuda.experts_matmul_grad"};
            const form *f = &forms[1];
            TESTING(t);
            if (k == 0) {
                put_forms(&t, f, EBB_OP_EXPERTS_MATMUL_CODES, EBB_F32, EXPERTS);
                put_experts(&t, f->rows);
            } else if (k == 1) {
                put_floats(&t, f);
            } else {
                put_gradient(&t, f);
            }
            ((int64_t *)t.in[t.call.input_count - 1].data)[2] = wrong;
            check_told(&t, kernels[k], wrong);
        }
    TESTING(t);
    put_table(&t, &tables[0], EBB_F32, EBB_I64);
    ((int64_t *)t.in[1].data)[3] = 5;
    check_fault(&t, "cuda.gather_block_quantized", 5, 5);
}

TEST(other_dtypes_are_declined)
{
    TESTING(t);
    put_forms(&t, &forms[0], EBB_OP_MATMUL_CODES, EBB_F32, 1);
    assert_null(declined_by(&t, "cuda.matmul_codes"));
    t.out[0].type.dtype = EBB_F16;
    assert_non_null(declined_by(&t, "cuda.matmul_codes"));
    t.out[0].type.dtype = EBB_F32;
    t.in[EBB_FROZEN_CODES].type.dtype = EBB_I8;
    assert_string_equal(declined_by(&t, "cuda.matmul_codes"), "input 1, the codes, is not uint8");
    t.in[EBB_FROZEN_CODES].type.dtype = EBB_U8;
}

const fixture around_all = {with_cuda, NULL};
