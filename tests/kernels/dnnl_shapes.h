/* dnnl_shapes.h: convolutions and pools that are not round, for test_dnnl.c and test_dnnl_half.c. */
#ifndef EBB_TESTS_KERNELS_DNNL_SHAPES_H
#define EBB_TESTS_KERNELS_DNNL_SHAPES_H

#include "tests/kernels/call.h"

typedef struct shape { /* a convolution or pool; dims of X, W and the attributes */
    const char *what;
    int spatial;
    int64_t n, c, m, groups;
    int64_t size[3], kernel[3], stride[3], dilation[3], pads[6];
} shape;

// clang-format off
static const shape shapes[] = {
    {"one pixel",               2, 1,  3,  5, 1, {1, 1},    {1, 1},    {1, 1},    {1, 1},    {0}},
    {"one row",                 2, 2, 16, 16, 1, {1, 9},    {1, 3},    {1, 1},    {1, 1},    {0, 1, 0, 1}},
    {"3x3, not 16 channels",    2, 2,  7, 19, 1, {9, 11},   {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"3x3, 16 channels",        2, 2, 16, 32, 1, {8, 8},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"3x3, stride 2",           2, 2, 16, 32, 1, {9, 10},   {3, 3},    {2, 2},    {1, 1},    {1, 1, 1, 1}},
    {"stride leaves a rest",    2, 1,  4,  6, 1, {10, 12},  {3, 3},    {3, 3},    {1, 1},    {0, 0, 0, 0}},
    {"asymmetric pads",         2, 2,  5,  8, 1, {7, 9},    {3, 4},    {1, 2},    {1, 1},    {0, 1, 2, 2}},
    {"dilated",                 2, 2,  6, 10, 1, {13, 12},  {3, 3},    {1, 1},    {2, 3},    {2, 3, 2, 3}},
    {"the stem",                2, 2,  3, 64, 1, {32, 32},  {7, 7},    {2, 2},    {1, 1},    {3, 3, 3, 3}},
    {"1x1",                     2, 3, 24, 40, 1, {7, 5},    {1, 1},    {1, 1},    {1, 1},    {0}},
    {"1x1, stride 2",           2, 2, 32, 16, 1, {8, 7},    {1, 1},    {2, 2},    {1, 1},    {0}},
    {"1x1, batch 1",            2, 1, 64, 48, 1, {14, 14},  {1, 1},    {1, 1},    {1, 1},    {0}},
    {"groups",                  2, 2, 12, 18, 3, {8, 9},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"depthwise",               2, 2, 32, 32, 32, {9, 9},   {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"depthwise, stride 2",     2, 2, 19, 19, 19, {11, 8},  {3, 3},    {2, 2},    {1, 1},    {1, 1, 1, 1}},
    {"depthwise, large",        2, 1, 10, 10, 10, {37, 75}, {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"depthwise, 5x5",          2, 2,  6,  6,  6, {12, 40}, {5, 5},    {2, 2},    {1, 1},    {2, 2, 2, 2}},
    {"depthwise, dilated",      2, 2,  6,  6,  6, {12, 15}, {3, 3},    {1, 1},    {2, 2},    {2, 2, 2, 2}},
    {"depthwise, multiplier 2", 2, 2,  8, 16,  8, {9, 9},   {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}},
    {"padding beyond the row",  2, 2,  4,  4,  4, {2, 2},   {5, 5},    {1, 1},    {1, 1},    {2, 2, 2, 2}},
    {"one axis",                1, 3,  5,  9, 1, {21},      {4},       {2},       {1},       {1, 2}},
    {"three axes",              3, 2,  3,  6, 1, {5, 6, 7}, {2, 3, 3}, {1, 2, 1}, {1, 1, 1}, {0, 1, 1, 1, 1, 1}},
    {"patches",                 2, 2,  3, 32, 1, {16, 16},  {4, 4},    {4, 4},    {1, 1},    {0}},
    {"kernel as large as X",    2, 3,  5,  7, 1, {6, 6},    {6, 6},    {1, 1},    {1, 1},    {0}},
};
// clang-format on
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct dims {
    int rank;
    int64_t x[5], w[5], y[5];
} dims;

static inline dims dims_of(const shape *s)
{
    dims d = {.rank = s->spatial + 2};
    d.x[0] = d.y[0] = s->n;
    d.x[1] = s->c;
    d.y[1] = d.w[0] = s->m;
    d.w[1] = s->c / s->groups;
    for (int i = 0; i < s->spatial; i++) {
        int64_t reach = (s->kernel[i] - 1) * s->dilation[i] + 1;
        d.x[2 + i] = s->size[i];
        d.w[2 + i] = s->kernel[i];
        d.y[2 + i] = (s->size[i] + s->pads[i] + s->pads[s->spatial + i] - reach) / s->stride[i] + 1;
    }
    return d;
}

static inline void put_window(testing *t, const shape *s)
{
    put_ints(t, "strides", (uint32_t)s->spatial, s->stride);
    put_ints(t, "dilations", (uint32_t)s->spatial, s->dilation);
    put_ints(t, "pads", 2 * (uint32_t)s->spatial, s->pads);
    put_ints(t, "kernel_shape", (uint32_t)s->spatial, s->kernel);
}

#endif
