/* frozen.h: calls of products with a matrix in few bits, in all forms: for the CPU's kernels and the GPU's. */
#pragma once

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

static inline void put_bytes(testing *t, ebb_operand *o)
{
    for (size_t i = 0; i < o->bytes; i++)
        ((uint8_t *)o->data)[i] = (uint8_t)(127.9 * draw(t) + 128.0);
}

static inline ebb_operand *put_codes(testing *t, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_operand *o = &t->in[t->call.input_count++];
    make_operand(o, dtype, rank, dims);
    put_bytes(t, o);
    return o;
}

/* The operands of so many matrices, A of dtype `real`. */
static inline void put_forms(testing *t, const form *f, ebb_op op, ebb_dtype real, int64_t matrices)
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
    put_in(t, real, 2, D(f->rows, f->turned ? f->k : f->n));
    put_codes(t, EBB_U8, 2,
              D(rows, f->flat ? (columns + per - 1) / per : (blocks * f->block + per - 1) / per));
    put_in(t, f->scales, 2, D(rows, blocks));
    if (f->zeros == REAL)
        put_in(t, f->scales, 2, D(rows, blocks));
    else
        put_codes(t, EBB_U8, 2, f->zeros == ONE_BYTE ? D(1, 1) : D(rows, (blocks + per - 1) / per));
    ebb_operand *levels = put_in(t, EBB_F32, 1, D((int64_t)1 << f->bits));
    for (int i = 0; i < 1 << f->bits; i++)
        if (f->levels == LINEAR)
            set_value(levels, (size_t)i, i);
    put_out(t, real, 2, D(f->rows, f->turned ? f->n : f->k));
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

static inline void put_tensor(testing *t, const tensor *f)
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
    ebb_operand *codes = put_codes(t, f->dtype, 2, D(f->n, f->k));
    for (size_t i = 0; f->dtype == EBB_F8E4M3FN && i < codes->bytes; i++)
        ((uint8_t *)codes->data)[i] &= 0x7B; // numbers alone
    put_in(t, EBB_F32, rank, rank == 2 ? dims : &blocks);
    if (f->zeros)
        put_codes(t, f->dtype, rank, rank == 2 ? dims : &blocks);
    put_out(t, EBB_F32, 3, D(2, 9, f->turned ? f->n : f->k));
}

/* ---- a matrix for each expert ---- */

/* Experts of many rows, of one and of none; neighbours, and not. */
static inline void put_experts(testing *t, int64_t rows)
{
    ebb_operand *of = put_in(t, EBB_I64, 1, D(rows));
    for (int64_t r = 0; r < rows; r++)
        ((int64_t *)of->data)[r] = r < rows / 2 ? 3 : r == rows / 2 ? 0 : 1 + r % 5 / 4;
}
