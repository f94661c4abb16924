/* test_conv.c: the CUDA kernels of convolution against the plain ones: one to three axes, strides,
 * dilations, uneven padding, groups of many and of few channels, more than one tile each way. */
#include "tests/cuda/halves.h"

typedef struct shape {
    const char *what;
    int axes;
    int64_t batch, channels, filters, groups;
    int64_t size[3], kernel[3], stride[3], dilation[3], pads[6], extra[3];
} shape;

// clang-format off
static const shape shapes[] = {
    {"one place",        2, 1,  1,  1, 1, {1, 1},    {1, 1},    {1, 1},    {1, 1},    {0},          {0}},
    {"plain 3 x 3",      2, 2, 17, 70, 1, {9, 7},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}, {0}},
    {"many channels",    2, 1, 67, 66, 1, {5, 5},    {1, 1},    {1, 1},    {1, 1},    {0},          {0}},
    {"strided, uneven",  2, 3,  5, 11, 1, {15, 12},  {3, 2},    {2, 3},    {1, 2},    {2, 0, 1, 3}, {0, 1}},
    {"7 x 7 stem",       2, 2,  3, 13, 1, {21, 19},  {7, 7},    {2, 2},    {1, 1},    {3, 3, 3, 3}, {0, 0}},
    {"wide groups",      2, 2, 34, 40, 2, {6, 7},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}, {0}},
    {"narrow groups",    2, 2, 12,  8, 4, {7, 5},    {3, 3},    {2, 1},    {1, 1},    {1, 0, 1, 2}, {0}},
    {"few to many",      2, 2,  4, 36, 2, {7, 5},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}, {0}},
    {"depthwise",        2, 3, 37, 37, 37, {9, 11},  {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}, {0}},
    {"depthwise, s2",    2, 2,  5, 10, 5, {11, 8},   {5, 3},    {2, 2},    {1, 1},    {2, 1, 2, 1}, {0, 1}},
    {"one axis",         1, 3,  6,  9, 3, {41},      {5},       {2},       {3},       {4, 5},       {1}},
    {"three axes",       3, 2,  4,  5, 1, {5, 6, 7}, {3, 2, 3}, {1, 2, 2}, {1, 1, 1}, {1, 0, 1, 0, 1, 2}, {0}},
    {"deep",             2, 5,  3,  4, 1, {13, 13},  {2, 2},    {1, 1},    {1, 1},    {0},          {0}},
    {"no images",        2, 0,  3,  5, 1, {6, 6},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}, {0}},
    {"no images, dw",    2, 0,  3,  3, 3, {6, 6},    {3, 3},    {1, 1},    {1, 1},    {1, 1, 1, 1}, {0}},
};
// clang-format on

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct dims {
    int64_t x[5], w[5], y[5];
} dims;

/* In the order of channels first or last. */
static void arrange(int64_t to[5], int axes, int64_t n, int64_t c, const int64_t *size, bool last)
{
    to[0] = n;
    to[last ? axes + 1 : 1] = c;
    for (int i = 0; i < axes; i++)
        to[(last ? 1 : 2) + i] = size[i];
}

static dims begin_shape(testing *t, ebb_op op, const shape *s, bool last)
{
    dims d;
    int64_t out[3];
    const uint32_t axes = (uint32_t)s->axes;
    begin(t, op);
    t->call.node = s->what;
    put_ints(t, "strides", axes, s->stride);
    put_ints(t, "dilations", axes, s->dilation);
    put_ints(t, "pads", 2 * axes, s->pads);
    put_ints(t, "output_padding", axes, s->extra);
    put_int(t, "group", s->groups);
    for (int i = 0; i < s->axes; i++)
        out[i] = (s->size[i] + s->pads[i] + s->pads[s->axes + i] -
                  (s->kernel[i] - 1) * s->dilation[i] - 1) /
                     s->stride[i] +
                 1;
    arrange(d.x, s->axes, s->batch, s->channels, s->size, last);
    arrange(d.w, s->axes, s->filters, s->channels / s->groups, s->kernel, last);
    arrange(d.y, s->axes, s->batch, s->filters, out, last);
    return d;
}

typedef enum way { FORWARD, BACKWARD, WEIGHT } way;

static void put_way(testing *t, const shape *s, way w, ebb_dtype dtype, bool last, bool bias)
{
    static const ebb_op ops[2][3] = {
        {EBB_OP_CONV, EBB_OP_CONV_TRANSPOSE, EBB_OP_CONV_WEIGHT_GRAD},
        {EBB_OP_CONV_NHWC, EBB_OP_CONV_TRANSPOSE_NHWC, EBB_OP_CONV_WEIGHT_GRAD_NHWC}};
    const dims d = begin_shape(t, ops[last][w], s, last);
    const int rank = s->axes + 2;
    put_in(t, dtype, rank, w == FORWARD ? d.x : d.y);
    put_in(t, dtype, rank, w == WEIGHT ? d.x : d.w);
    if (bias)
        put_in(t, dtype, 1, w == FORWARD ? &s->filters : &s->channels);
    put_out(t, dtype, rank, w == FORWARD ? d.y : w == BACKWARD ? d.x : d.w);
}

static const char *const names[2][3] = {
    {"conv", "conv_transpose", "conv_weight_grad"},
    {"conv_nhwc", "conv_transpose_nhwc", "conv_weight_grad_nhwc"}};

static void compare(way w, bool last)
{
    for (int i = 0; i < SHAPES; i++)
        for (int bias = 0; bias < (w == WEIGHT ? 1 : 2); bias++) {
            char kernel[48], oracle[48];
            TESTING(t);
            if (last && shapes[i].axes != 2)
                continue;
            (void)snprintf(kernel, sizeof kernel, "cuda.%s", names[last][w]);
            (void)snprintf(oracle, sizeof oracle, "plain.%s", names[last][w]);
            put_way(&t, &shapes[i], w, EBB_F32, last, bias);
            agrees(&t, kernel, oracle);
        }
}

TEST(outputs_are_those_of_the_plain_kernel)
{
    compare(FORWARD, false);
    compare(FORWARD, true);
}

TEST(input_gradients_are_those_of_the_plain_kernel)
{
    compare(BACKWARD, false);
    compare(BACKWARD, true);
}

TEST(weight_gradients_are_those_of_the_plain_kernel)
{
    compare(WEIGHT, false);
    compare(WEIGHT, true);
}

/* The arithmetic is float32's in the same order, so that one rounding is all that differs. */
TEST(halves_are_float32_rounded_once)
{
    for (int i = 0; i < SHAPES; i++)
        for (int w = 0; w < 3; w++)
            for (int last = 0; last < 2; last++) {
                char kernel[48];
                TESTING(t);
                if (last && shapes[i].axes != 2)
                    continue;
                (void)snprintf(kernel, sizeof kernel, "cuda.%s", names[last][w]);
                put_way(&t, &shapes[i], (way)w, EBB_F32, last, w != WEIGHT && (i + last) % 2 != 0);
                agrees_in_halves(&t, kernel);
            }
}

/* Where the depth is split, the sums of the parts are in the workspace; it must be asked for. */
TEST(deep_sums_are_split_among_blocks)
{
    size_t bytes = 0;
    TESTING(t);
    put_way(&t, &shapes[12], WEIGHT, EBB_F32, false, false);
    check_status(kernel_named("cuda.conv_weight_grad")->workspace(&t.call, &bytes), "workspace");
    assert_true(bytes >= 2 * t.out[0].bytes);
}

TEST(weight_gradients_from_averages_of_cells)
{
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        const int64_t p = 2 + i % 3;
        TESTING(t);
        dims d = begin_shape(&t, EBB_OP_CONV_WEIGHT_GRAD_POOLED, s, false);
        put_ints(&t, "input_shape", (uint32_t)s->axes + 2, d.x);
        put_int(&t, "p", p);
        put_in(&t, EBB_F32, s->axes + 2, d.y);
        for (int axis = 0; axis < s->axes; axis++)
            d.x[2 + axis] = (d.x[2 + axis] + p - 1) / p;
        put_in(&t, EBB_F32, s->axes + 2, d.x);
        put_out(&t, EBB_F32, s->axes + 2, d.w);
        agrees(&t, "cuda.conv_weight_grad_pooled", "plain.conv_weight_grad_pooled");
        agrees_in_halves(&t, "cuda.conv_weight_grad_pooled");
    }
}

TEST(what_the_plain_kernel_declines_is_declined)
{
    TESTING(t);
    put_way(&t, &shapes[1], FORWARD, EBB_F32, false, true);
    assert_null(declined_by(&t, "cuda.conv"));
    t.in[2].type.dims[0] = 69; // a bias too few
    assert_non_null(declined_by(&t, "cuda.conv"));
    t.call.input_count = 2;
    t.in[1].type.dims[1] = 16; // 17 channels, weights for 16
    assert_non_null(declined_by(&t, "cuda.conv"));
    t.in[1].type.dims[1] = 17;
    t.in[1].type.dtype = EBB_F64;
    assert_non_null(declined_by(&t, "cuda.conv"));
    t.in[1].type.dtype = EBB_F32;
    assert_null(declined_by(&t, "cuda.conv"));
    t.call.input_count = 3; // all that there is to free
}

/* Kernels count places in 32 bits: what does not fit must not get there. */
TEST(channels_too_large_for_32_bits_are_declined)
{
    TESTING(t);
    put_way(&t, &shapes[0], FORWARD, EBB_F32, false, false);
    t.in[0].type.dims[2] = t.out[0].type.dims[2] = 1 << 16;
    t.in[0].type.dims[3] = t.out[0].type.dims[3] = 1 << 13;
    assert_null(declined_by(&t, "cuda.conv"));
    t.in[0].type.dims[3] = t.out[0].type.dims[3] = (1 << 14) + 1;
    assert_non_null(declined_by(&t, "cuda.conv"));
}

const fixture around_all = {with_cuda, NULL};
