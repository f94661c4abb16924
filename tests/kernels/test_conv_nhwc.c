/* test_conv_nhwc.c: oneDNN's convolutions with channels last against the plain ones, which
 * test_bodies.c holds to their bodies.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/call.h"
#include "tests/owned.h"

#define TOLERANCE 2e-5

typedef struct shape {
    int64_t batch, height, width, channels, filters, groups;
    int64_t kernel[2], stride[2], dilation[2], pads[4];
} shape;

static const shape shapes[] = {
    {2, 9, 8, 8, 16, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {3, 15, 13, 8, 64, 1, {7, 7}, {2, 2}, {1, 1}, {3, 3, 3, 3}},
    {2, 8, 8, 64, 32, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {2, 8, 7, 32, 64, 1, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}},
    {2, 11, 10, 12, 20, 1, {3, 2}, {2, 1}, {1, 2}, {2, 0, 1, 1}},
    {2, 10, 9, 3, 5, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {2, 10, 9, 16, 24, 4, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {2, 10, 9, 32, 32, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {2, 11, 11, 24, 24, 24, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
    {1, 5, 5, 7, 14, 7, {5, 5}, {1, 1}, {1, 1}, {2, 2, 2, 2}},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* For pairs of bfloat16 (conv_pairs.h): odd numbers of what is computed, parts of a panel's depth and of
 * its taps, strides that some taps skip. */
static const shape of_pairs[] = {
    {2, 9, 7, 34, 45, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {3, 20, 18, 64, 40, 1, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
    {1, 5, 6, 600, 22, 1, {3, 1}, {1, 1}, {1, 1}, {1, 0, 1, 0}},
    {2, 8, 7, 32, 64, 1, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}},
    {2, 11, 10, 16, 20, 1, {3, 2}, {2, 1}, {1, 2}, {2, 0, 1, 1}},
    {1, 17, 19, 18, 300, 1, {7, 7}, {3, 2}, {1, 1}, {3, 3, 3, 3}},
};

enum { OF_PAIRS = sizeof of_pairs / sizeof of_pairs[0] };

static int64_t out_size(const shape *s, int axis)
{
    int64_t size = axis == 0 ? s->height : s->width;
    return (size + s->pads[axis] + s->pads[axis + 2] - (s->kernel[axis] - 1) * s->dilation[axis] -
            1) /
               s->stride[axis] +
           1;
}

static void make_conv(testing *t, const shape *s, ebb_op op, bool biased, ebb_dtype dtype)
{
    const int64_t x[] = {s->batch, s->height, s->width, s->channels};
    const int64_t y[] = {s->batch, out_size(s, 0), out_size(s, 1), s->filters};
    const int64_t w[] = {s->filters, s->kernel[0], s->kernel[1], s->channels / s->groups};
    int64_t rest[2];
    for (int a = 0; a < 2; a++)
        rest[a] = x[a + 1] + s->pads[a] + s->pads[a + 2] - (s->kernel[a] - 1) * s->dilation[a] - 1 -
                  (y[a + 1] - 1) * s->stride[a];
    begin(t, op);
    put_ints(t, "kernel_shape", 2, s->kernel);
    put_ints(t, "strides", 2, s->stride);
    put_ints(t, "dilations", 2, s->dilation);
    put_ints(t, "pads", 4, s->pads);
    put_int(t, "group", s->groups);
    if (op == EBB_OP_CONV_TRANSPOSE_NHWC)
        put_ints(t, "output_padding", 2, rest);
    put_in(t, dtype, 4, op == EBB_OP_CONV_NHWC ? x : y);
    put_in(t, dtype, 4, op == EBB_OP_CONV_WEIGHT_GRAD_NHWC ? x : w);
    if (biased)
        put_in(t, dtype, 1, &y[3]);
    put_out(t, dtype, 4, op == EBB_OP_CONV_NHWC ? y : op == EBB_OP_CONV_TRANSPOSE_NHWC ? x : w);
}

static void conv_agrees(ebb_op op, bool biased, const char *kernel, const char *oracle)
{
    for (size_t i = 0; i < SHAPES; i++) {
        TESTING(t);
        make_conv(&t, &shapes[i], op, biased, EBB_F32);
        check_agree(&t, kernel, oracle, TOLERANCE);
    }
}

/* Both sum in float32, in another order, and round once. */
static void check_rounded(const ebb_operand *y, const double *expected, const char *kernel)
{
    double largest = 0;
    for (size_t k = 0; k < count_of(y); k++)
        largest = fmax(largest, fabs(expected[k]));
    for (size_t k = 0; k < count_of(y); k++) {
        const double bound = TOLERANCE * (1 + largest) + 0x1p-7 * fabs(expected[k]);
        if (!(fabs(value_of(y, k) - expected[k]) <= bound))
            fail_msg("%s: element %zu is %.9g, expected %.9g", kernel, k, value_of(y, k),
                     expected[k]);
    }
}

/* By any number of threads the same bits. */
static void pairs_agree(const shape *s, const char *kernel)
{
    TESTING(t);
    make_conv(&t, s, EBB_OP_CONV_WEIGHT_GRAD_NHWC, false, EBB_BF16);
    const char *why = declined_by(&t, kernel);
    if (why != NULL) {
        print_message("%s: %s\n", kernel, why);
        assert_non_null(strstr(why, "the processor"));
        return;
    }
    const ebb_backend *const *plain;
    check_status(ebb_backends("plain", &plain), "plain");
    check_status(ebb_pick(&t.call, plain), "plain");
    compute_picked(&t, "plain");
    FREED double *expected = values_of(&t.out[0]);
    FREED void *first = malloc(t.out[0].bytes);
    assert_non_null(first);
    for (int threads = 1; threads <= 5; threads += 2) {
        const ebb_threads_before before = ebb_threads_enter(threads);
        run_with(&t, kernel);
        ebb_threads_leave(before);
        check_rounded(&t.out[0], expected, kernel);
        if (threads == 1)
            memcpy(first, t.out[0].data, t.out[0].bytes);
        assert_memory_equal(first, t.out[0].data, t.out[0].bytes);
    }
}

TEST(pairs_agree_with_the_plain_ones)
{
    for (size_t i = 0; i < OF_PAIRS; i++)
        pairs_agree(&of_pairs[i], "tiles.conv_weight_grad_nhwc");
}

TEST(the_forward_agrees_with_the_plain_one)
{
    conv_agrees(EBB_OP_CONV_NHWC, false, "dnnl.conv_nhwc", "plain.conv_nhwc");
    conv_agrees(EBB_OP_CONV_NHWC, true, "dnnl.conv_nhwc", "plain.conv_nhwc");
}

TEST(the_gradient_of_the_image_agrees_with_the_plain_one)
{
    conv_agrees(EBB_OP_CONV_TRANSPOSE_NHWC, false, "dnnl.conv_transpose_nhwc",
                "plain.conv_transpose_nhwc");
}

TEST(the_gradient_of_the_weight_agrees_with_the_plain_one)
{
    conv_agrees(EBB_OP_CONV_WEIGHT_GRAD_NHWC, false, "dnnl.conv_weight_grad_nhwc",
                "plain.conv_weight_grad_nhwc");
}

TEST(what_has_no_two_axes_is_declined)
{
    static const int64_t x[] = {2, 9, 4}, w[] = {6, 3, 4}, y[] = {2, 7, 6};
    TESTING(t);
    begin(&t, EBB_OP_CONV_NHWC);
    put_in(&t, EBB_F32, 3, x);
    put_in(&t, EBB_F32, 3, w);
    put_out(&t, EBB_F32, 3, y);
    assert_non_null(declined_by(&t, "plain.conv_nhwc"));
    assert_non_null(declined_by(&t, "dnnl.conv_nhwc"));
}
