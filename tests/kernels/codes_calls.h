/* codes_calls.h: calls of Quantize, SplitFrequency and their inverses, for the tests of every back
 * end.
 *
 *     put_quantize(&t, &tensors[n], EBB_F32);
 *     run_with(&t, "plain.quantize");
 *     put_dequantize(&d, &t, &tensors[n], 0, tensors[n].rows);
 */
#pragma once

#include "tests/kernels/call.h"

typedef struct tensor { /* rows of inner elements, as Quantize sees them */
    int64_t rows, inner, group;
    int bits;
} tensor;

static inline int64_t groups_of(const tensor *k)
{
    return (k->inner + k->group - 1) / k->group;
}

static const int64_t stream = 77;

/* Operands of a Quantize; its input in x's place is set by the caller. */
static inline void put_quantize(testing *t, const tensor *k, ebb_dtype dtype)
{
    begin(t, EBB_OP_QUANTIZE);
    put_int(t, "bits", k->bits);
    put_int(t, "group", k->group);
    put_int(t, "stream", stream);
    put_in(t, dtype, 2, (int64_t[]){k->rows, k->inner});
    ebb_operand *key = put_in(t, EBB_I64, 1, (int64_t[]){2});
    ((int64_t *)key->data)[0] = 81985529216486895;
    ((int64_t *)key->data)[1] = 0;
    put_out(t, EBB_U8, 2, (int64_t[]){k->rows, (k->inner * k->bits + 7) / 8});
    put_out(t, EBB_BF16, 3, (int64_t[]){k->rows, groups_of(k), 2});
}

/* A Dequantize of rows [from, to) of what q made. */
static inline void put_dequantize(testing *t, const testing *q, const tensor *k, int64_t from,
                                  int64_t to)
{
    const ebb_operand *made = q->out;
    begin(t, EBB_OP_DEQUANTIZE);
    put_int(t, "bits", k->bits);
    put_int(t, "group", k->group);
    for (int i = 0; i < 2; i++) {
        ebb_type type = made[i].type;
        size_t row = made[i].bytes / (size_t)k->rows;
        type.dims[0] = to - from;
        make_operand(&t->in[t->call.input_count++], (ebb_dtype)type.dtype, type.rank, type.dims);
        memcpy(t->in[i].data, (const char *)made[i].data + row * (size_t)from, t->in[i].bytes);
    }
    put_out(t, (ebb_dtype)q->in[0].type.dtype, 2, (int64_t[]){to - from, k->inner});
}

/* which: 0 the low, 1 the step of the group of an element. */
static inline double range_at(const testing *q, const tensor *k, int64_t row, int64_t i, int which)
{
    const uint16_t *range = q->out[1].data;
    return (double)ebb_bf16_to_float(range[2 * (row * groups_of(k) + i / k->group) + which]);
}

static const tensor tensors[] = {
    {3, 1000, 256, 8}, {3, 1000, 256, 4}, {3, 1000, 256, 2}, {3, 1000, 256, 1},  {5, 13, 8, 1},
    {5, 13, 8, 2},     {7, 29, 16, 4},    {2, 600, 1024, 2}, {40, 3, 256, 1},    {1, 1, 8, 8},
    {2, 1543, 768, 4}, {9, 515, 64, 2},   {64, 512, 256, 1}, {1, 40000, 256, 4},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };

/* rows of 4 groups of 16 in 2 classes, codes of 8 bits; x is set by the caller. */
static inline void put_running(testing *t, const tensor *k, const float state[4])
{
    put_quantize(t, k, EBB_F32);
    t->call.op = EBB_OP_QUANTIZE_RUNNING;
    make_operand(&t->in[t->call.input_count++], EBB_F32, 2, (int64_t[]){2, 2});
    memcpy(t->in[2].data, state, 4 * sizeof *state);
    put_out(t, EBB_F32, 2, (int64_t[]){2, 2});
}

static inline void put_split(testing *t, const int64_t dims[4], int64_t block, int64_t bits)
{
    begin(t, EBB_OP_SPLIT_FREQUENCY);
    put_int(t, "block", block);
    put_int(t, "bits", bits);
    put_int(t, "stream", stream);
    put_in(t, EBB_F32, 4, dims);
    ebb_operand *key = put_in(t, EBB_I64, 1, (int64_t[]){2});
    ((int64_t *)key->data)[0] = 5;
    put_out(t, EBB_BF16, 4,
            (int64_t[]){dims[0], dims[1], (dims[2] + block - 1) / block,
                        (dims[3] + block - 1) / block});
    put_out(t, EBB_U8, 3, (int64_t[]){dims[0], dims[1], (dims[2] * dims[3] * bits + 7) / 8});
    put_out(t, EBB_BF16, 3, (int64_t[]){dims[0], dims[1], 2});
}

static inline void put_split_decode(testing *d, const testing *t, const int64_t dims[4])
{
    begin(d, EBB_OP_SPLIT_FREQUENCY_DECODE);
    d->attr[0] = t->attr[0];
    d->attr[1] = t->attr[1];
    d->call.attrs.count = 2;
    for (int i = 0; i < 3; i++) {
        const ebb_type *type = &t->out[i].type;
        make_operand(&d->in[d->call.input_count++], (ebb_dtype)type->dtype, type->rank, type->dims);
        memcpy(d->in[i].data, t->out[i].data, t->out[i].bytes);
    }
    put_out(d, EBB_F32, 4, dims);
}
