/* test_grid_sample.c: GridSample, AffineGrid and DeformConv against the plain kernels: every mode
 * and padding, one to three axes, places far outside and nowhere, more channels than a thread
 * takes. */
#include "tests/cuda/halves.h"

typedef struct shape {
    int rank;
    int64_t x[7], y[7];
} shape;

static const shape shapes[] = {
    {4, {2, 3, 5, 4}, {2, 3, 6, 7}},
    {3, {1, 11, 6}, {1, 11, 4}},
    {5, {2, 1, 3, 2, 4}, {2, 1, 2, 3, 2}},
    {4, {1, 2, 1, 1}, {1, 2, 3, 2}},
    {4, {1, 2, 0, 3}, {1, 2, 2, 2}},
    {4, {0, 2, 3, 3}, {0, 2, 2, 2}},
    {7, {1, 2, 2, 1, 2, 1, 2}, {1, 2, 1, 1, 2, 1, 2}},
};

static void put_sample(testing *t, const shape *s, ebb_dtype dtype, int mode, int padding,
                       bool align)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    int64_t grid[7];
    begin(t, EBB_OP_GRID_SAMPLE);
    t->call.node = paddings[padding];
    put_string(t, "mode", modes[mode]);
    put_string(t, "padding_mode", paddings[padding]);
    put_int(t, "align_corners", align);
    put_in(t, dtype, s->rank, s->x);
    grid[0] = s->y[0];
    for (int d = 1; d < s->rank - 1; d++)
        grid[d] = s->y[d + 1];
    grid[s->rank - 1] = s->rank - 2;
    ebb_operand *places = put_in(t, dtype, s->rank, grid);
    for (size_t i = 0; i < count_of(places); i++)
        set_value(places, i,
                  i % 11 == 5   ? 1.0
                  : i % 13 == 6 ? 1e5 * value_of(places, i)
                                : 2.5 * value_of(places, i));
    if (count_of(places) > 9) {
        set_value(places, 3, (double)NAN);
        set_value(places, 8, 1e30);
        for (size_t i = 14; i + 1 < count_of(places); i += 7) // turned back odd times, and often
            set_value(places, i, (double)(3001 << i / 7 % 12 | 1));
    }
    put_out(t, dtype, s->rank, s->y);
}

TEST(samples_are_those_of_the_plain_kernel)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int mode = 0; mode < 3; mode++)
            for (int padding = 0; padding < 3; padding++)
                for (int way = 0; way < 4; way++) {
                    TESTING(t);
                    put_sample(&t, &shapes[i], way & 1 ? EBB_F64 : EBB_F32, mode, padding,
                               (way & 2) != 0);
                    agrees(&t, "cuda.grid_sample", "plain.grid_sample");
                    end(&t);
                    if (way != padding)
                        continue;
                    put_sample(&t, &shapes[i], EBB_F32, mode, padding, (way & 2) != 0);
                    agrees_in_halves(&t, "cuda.grid_sample");
                }
}

TEST(grids_are_those_of_the_plain_kernel)
{
    static const int64_t outs[][5] = {{3, 4, 5, 2, 0}, {2, 1, 1, 2, 0}, {2, 3, 1, 4, 3}};
    for (int i = 0; i < 3; i++)
        for (int way = 0; way < 4; way++) {
            const int rank = outs[i][4] > 0 ? 5 : 4;
            const ebb_dtype dtype = way & 1 ? EBB_F64 : EBB_F32;
            TESTING(t);
            begin(&t, EBB_OP_AFFINE_GRID);
            put_int(&t, "align_corners", way / 2);
            put_in(&t, dtype, 3, D(outs[i][0], rank - 2, rank - 1));
            put_in(&t, EBB_I64, 1, D(rank));
            put_out(&t, dtype, rank, outs[i]);
            agrees(&t, "cuda.affine_grid", "plain.affine_grid");
            if (way % 2 == 0)
                agrees_in_halves(&t, "cuda.affine_grid");
        }
}

typedef struct deform {
    int64_t n, c, m, groups, shares, in[2], kernel[2], out[2], stride, pad, dilation;
} deform;

TEST(deformed_windows_are_those_of_the_plain_kernel)
{
    static const deform all[] = {
        {1, 1, 1, 1, 1, {3, 3}, {2, 2}, {2, 2}, 1, 0, 1},
        {1, 1, 1, 1, 1, {1, 1}, {1, 1}, {1, 1}, 1, 0, 1}, // no neighbour of no weight is there
        {2, 4, 6, 2, 2, {7, 5}, {3, 2}, {5, 5}, 1, 1, 2},
        {1, 6, 3, 3, 1, {9, 8}, {3, 3}, {5, 4}, 2, 1, 1},
        {0, 2, 2, 1, 1, {3, 3}, {2, 2}, {2, 2}, 1, 0, 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int way = 0; way < 4; way++) {
            const deform *s = &all[i];
            const int64_t taps = s->kernel[0] * s->kernel[1];
            const ebb_dtype dtype = way & 1 ? EBB_F64 : EBB_F32;
            TESTING(t);
            begin(&t, EBB_OP_DEFORM_CONV);
            put_int(&t, "group", s->groups);
            put_int(&t, "offset_group", s->shares);
            put_ints(&t, "strides", 2, D(s->stride, s->stride));
            put_ints(&t, "dilations", 2, D(s->dilation, s->dilation));
            put_ints(&t, "pads", 4, D(s->pad, s->pad, s->pad, s->pad));
            put_in(&t, dtype, 4, D(s->n, s->c, s->in[0], s->in[1]));
            put_in(&t, dtype, 4, D(s->m, s->c / s->groups, s->kernel[0], s->kernel[1]));
            ebb_operand *offsets =
                put_in(&t, dtype, 4, D(s->n, s->shares * taps * 2, s->out[0], s->out[1]));
            for (size_t e = 0; e < count_of(offsets); e++)
                set_value(offsets, e, 2 * value_of(offsets, e));
            if (way / 2) {
                put_in(&t, dtype, 1, D(s->m));
                put_in(&t, dtype, 4, D(s->n, s->shares * taps, s->out[0], s->out[1]));
            }
            put_out(&t, dtype, 4, D(s->n, s->m, s->out[0], s->out[1]));
            agrees(&t, "cuda.deform_conv", "plain.deform_conv");
            t.in[2].type.dims[1]++;
            if (s->n > 0)
                assert_string_equal(declined_by(&t, "cuda.deform_conv"),
                                    declined_by(&t, "plain.deform_conv"));
            t.in[2].type.dims[1]--;
        }
}

const fixture around_all = {with_cuda, NULL};
