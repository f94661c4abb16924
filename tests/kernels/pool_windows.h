/* pool_windows.h: windows of pools for tests: over ties, infinities and NaN, overlap, gaps,
 * padding, dilation and ceil mode.
 */
#pragma once

#include "tests/kernels/call.h"

typedef struct window {
    const char *what;
    int spatial;
    int64_t n, c, size[3], kernel[3], stride[3], dilation[3], pads[6];
    int ceiling;
    int64_t bits;
} window;

// clang-format off
static const window pool_windows[] = {
    {"halves",             2, 2, 5, {8, 6},    {2, 2},    {2, 2},    {1, 1},    {0},                0, 2},
    {"overlap",            2, 2, 3, {9, 7},    {3, 3},    {2, 2},    {1, 1},    {1, 1, 1, 1},       0, 4},
    {"every place",        2, 1, 9, {7, 11},   {3, 4},    {1, 1},    {1, 1},    {1, 2, 1, 1},       0, 4},
    {"gaps between",       2, 3, 3, {11, 10},  {2, 2},    {4, 3},    {1, 1},    {0},                0, 2},
    {"ceil mode",          2, 2, 3, {8, 9},    {3, 2},    {2, 2},    {1, 1},    {0, 1, 0, 0},       1, 8},
    {"dilated",            2, 1, 5, {12, 9},   {3, 2},    {2, 1},    {2, 3},    {1, 0, 2, 1},       1, 4},
    {"one axis",           1, 3, 7, {600},     {2},       {2},       {1},       {0},                0, 1},
    {"one axis, long",     1, 2, 3, {400},     {300},     {7},       {1},       {20, 20},           0, 16},
    {"three axes",         3, 1, 3, {5, 6, 7}, {3, 2, 3}, {2, 2, 1}, {1, 1, 2}, {1, 0, 1, 1, 1, 1}, 0, 8},
    {"the first of three", 3, 1, 2, {5, 1, 1}, {3, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0},                0, 2},
    {"no taps inside",     2, 1, 2, {3, 3},    {2, 2},    {2, 2},    {1, 1},    {3, 0, 0, 3},       0, 4},
    {"one tap",            2, 1, 3, {5, 5},    {1, 1},    {2, 2},    {1, 1},    {0},                0, 1},
    {"one window",         2, 3, 3, {4, 4},    {4, 4},    {4, 4},    {1, 1},    {0},                0, 4},
};
// clang-format on

enum { POOL_WINDOWS = sizeof pool_windows / sizeof pool_windows[0] };

static inline void put_window(testing *t, const window *w, int64_t x[5], int64_t y[5])
{
    x[0] = y[0] = w->n;
    x[1] = y[1] = w->c;
    t->call.node = w->what;
    put_ints(t, "kernel_shape", (uint32_t)w->spatial, w->kernel);
    put_ints(t, "strides", (uint32_t)w->spatial, w->stride);
    put_ints(t, "dilations", (uint32_t)w->spatial, w->dilation);
    put_ints(t, "pads", 2 * (uint32_t)w->spatial, w->pads);
    put_int(t, "ceil_mode", w->ceiling);
    put_int(t, "bits", w->bits);
    for (int i = 0; i < w->spatial; i++) {
        int64_t room = w->size[i] + w->pads[i] + w->pads[w->spatial + i] -
                       (w->kernel[i] - 1) * w->dilation[i] - 1;
        x[2 + i] = w->size[i];
        y[2 + i] = (w->ceiling == 1 ? room + w->stride[i] - 1 : room) / w->stride[i] + 1;
    }
}

/* Many ties, both zeros, infinities, and NaN of several payloads. */
static inline void make_difficult(testing *t, ebb_operand *x)
{
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i, floor(3 * draw(t)) * (draw(t) < 0 ? -1 : 1));
    for (size_t i = 0; i < count_of(x); i += 13)
        set_value(x, i, i % 2 == 0 ? -(double)INFINITY : (double)INFINITY);
    for (size_t i = 5; i < count_of(x) && x->type.dtype == EBB_F32; i += 7) {
        uint32_t nan = 0x7fc00000u + (uint32_t)i;
        memcpy((float *)x->data + i, &nan, sizeof nan);
    }
    for (size_t i = 5; i < count_of(x) && x->type.dtype == EBB_F64; i += 7)
        set_value(x, i, (double)NAN);
}
