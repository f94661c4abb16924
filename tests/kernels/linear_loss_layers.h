/* linear_loss_layers.h: calls of LinearCrossEntropy for the tests of every back end. */
#pragma once

#include "tests/kernels/call.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

typedef struct layer { /* x: [rows, inner], w: [inner, classes] or turned */
    int64_t rows, inner, classes, block;
    bool turned, biased, weighted, ignores, sums;
    double alpha; /* 0: not given */
} layer;

/* Every seventh label is the ignored one where there is one. */
static inline int64_t label_of(const layer *y, int64_t i)
{
    return y->ignores && i % 7 == 3 ? -100 : i * 5 % y->classes;
}

static inline void make(testing *t, const layer *y, ebb_dtype dtype)
{
    begin(t, EBB_OP_LINEAR_CROSS_ENTROPY);
    if (y->turned)
        put_int(t, "transB", 1);
    if (y->block > 0)
        put_int(t, "rows", y->block);
    if (y->ignores)
        put_int(t, "ignore_index", -100);
    if (y->sums)
        put_string(t, "reduction", "sum");
    if (y->alpha != 0)
        put_float(t, "alpha", y->alpha);
    const int64_t *w = y->turned ? DIMS(y->classes, y->inner) : DIMS(y->inner, y->classes);
    put_in(t, dtype, 2, DIMS(y->rows, y->inner));
    put_in(t, dtype, 2, w);
    if (y->biased)
        put_in(t, dtype, 1, DIMS(y->classes));
    else
        put_absent(t);
    ebb_operand *labels = put_in(t, EBB_I64, 1, DIMS(y->rows));
    for (int64_t i = 0; i < y->rows; i++)
        ((int64_t *)labels->data)[i] = label_of(y, i);
    if (y->weighted) {
        ebb_operand *weights = put_in(t, dtype, 1, DIMS(y->classes));
        for (size_t i = 0; i < count_of(weights); i++)
            set_value(weights, i, i == 1 ? 0 : 1 + value_of(weights, i) / 2);
    }
    put_out(t, dtype, 0, NULL);
    put_out(t, dtype, 2, DIMS(y->rows, y->inner));
    put_out(t, dtype, 2, w);
    put_out(t, dtype, 1, DIMS(y->classes));
}

// clang-format off
static const layer layers[] = {
    {37,  13,  29, 0,  false, false, false, false, false, 0},
    {37,  13,  29, 8,  true,  true,  false, true,  false, 0},
    {37,  13,  29, 1,  false, true,  true,  true,  false, 0},
    {64,  40, 130, 16, true,  false, true,  false, true,  0.5},
    {65,  33, 700, 32, false, true,  false, true,  true,  -2},
    {130, 96, 257, 64, true,  true,  true,  true,  false, 0.25},
    {1,   1,   2,  5,  true,  true,  false, false, false, 0},
};
// clang-format on
enum { LAYERS = sizeof layers / sizeof layers[0] };
