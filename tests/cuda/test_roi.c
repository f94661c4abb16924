/* test_roi.c: RoiAlign and its gradients against the plain kernels: averages and maxima, regions
 * that overlap, reach outside, are empty or turned round, more channels than a thread takes. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"

typedef struct shape {
    int64_t n, c, h, w, regions, rows, columns, ratio;
} shape;

static const shape shapes[] = {
    {2, 3, 7, 9, 5, 3, 2, 0}, {1, 11, 5, 4, 4, 2, 5, 2}, {3, 2, 6, 6, 7, 1, 1, 3},
    {1, 1, 1, 1, 2, 2, 2, 0}, {2, 2, 4, 4, 0, 2, 2, 0},  {1, 2, 12, 3, 3, 4, 3, 1},
};

static void put_regions(testing *t, const shape *s, ebb_dtype dtype)
{
    static const double boxes[][4] = {{0, 0, 3, 3},      {-2, -1.5, 5, 9}, {1.25, 0.5, 2.75, 4},
                                      {2, 2, 2, 2},      {6, 5, 1, 2},     {-9, -9, -5, -5},
                                      {0.5, 3, 3.25, 40}};
    ebb_operand *rois = put_in(t, dtype, 2, D(s->regions, 4));
    for (size_t i = 0; i < count_of(rois); i++)
        set_value(rois, i, boxes[i / 4][i % 4]);
    ebb_operand *images = put_in(t, EBB_I64, 1, D(s->regions));
    for (size_t i = 0; i < count_of(images); i++)
        set_value(images, i, (double)((int64_t)(i * 5 + 1) % s->n));
}

static void put_forward(testing *t, const shape *s, ebb_dtype dtype, bool half, bool most)
{
    begin(t, EBB_OP_ROI_ALIGN);
    put_string(t, "coordinate_transformation_mode", half ? "half_pixel" : "output_half_pixel");
    put_string(t, "mode", most ? "max" : "avg");
    put_int(t, "sampling_ratio", s->ratio);
    put_float(t, "spatial_scale", 0.75);
    put_in(t, dtype, 4, D(s->n, s->c, s->h, s->w));
    put_regions(t, s, dtype);
    put_out(t, dtype, 4, D(s->regions, s->c, s->rows, s->columns));
}

static void put_backward(testing *t, const shape *s, ebb_dtype dtype, bool half, bool most)
{
    begin(t, most ? EBB_OP_ROI_ALIGN_MAX_GRAD : EBB_OP_ROI_ALIGN_GRAD);
    put_int(t, "half", half);
    put_int(t, "sampling_ratio", s->ratio);
    put_float(t, "spatial_scale", 0.75);
    put_in(t, dtype, 4, D(s->regions, s->c, s->rows, s->columns));
    if (most)
        put_in(t, dtype, 4, D(s->n, s->c, s->h, s->w));
    put_regions(t, s, dtype);
    put_out(t, dtype, 4, D(s->n, s->c, s->h, s->w));
}

TEST(regions_are_those_of_the_plain_kernel)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int way = 0; way < 8; way++) {
            const ebb_dtype dtype = way & 1 ? EBB_F64 : EBB_F32;
            TESTING(t);
            put_forward(&t, &shapes[i], dtype, way & 2, way & 4);
            agrees(&t, "cuda.roi_align", "plain.roi_align");
            if (way % 2 == 0)
                agrees_in_halves(&t, "cuda.roi_align");
        }
}

/* Of maxima in float64: products are as exact as the plain kernel's, so the same element wins. */
TEST(gradients_are_gathered_as_the_plain_kernel_spreads_them)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int way = 0; way < 8; way++) {
            const ebb_dtype dtype = way & 1 ? EBB_F64 : EBB_F32;
            const char *kernel = way & 4 ? "cuda.roi_align_max_grad" : "cuda.roi_align_grad";
            TESTING(t);
            put_backward(&t, &shapes[i], dtype, way & 2, way & 4);
            agrees(&t, kernel, way & 4 ? "plain.roi_align_max_grad" : "plain.roi_align_grad");
            if (way == 0 || way == 4)
                agrees_in_halves(&t, kernel);
        }
}

/* How many samples a bin has comes with the data: a region of 300,000 x 300,000 in an image of 4 x 4
 * has 9e10, none of which but a few sees the image. */
TEST(regions_far_larger_than_the_image_are_refused)
{
    TESTING(t);
    begin(&t, EBB_OP_ROI_ALIGN);
    put_in(&t, EBB_F32, 4, D(1, 1, 4, 4));
    ebb_operand *rois = put_in(&t, EBB_F32, 2, D(1, 4));
    for (size_t i = 0; i < 4; i++)
        set_value(rois, i, i < 2 ? 0 : 3e5);
    set_value(put_in(&t, EBB_I64, 1, D(1)), 0, 0);
    put_out(&t, EBB_F32, 4, D(1, 1, 1, 1));
    ebb_status status = kernel_named("plain.roi_align")->run(&t.call);
    assert_non_null(status);
    assert_non_null(strstr(ebb_status_text(status), "region 0 is too large"));
    assert_true(fault_of(&t, "cuda.roi_align", 3).there);
}

const fixture around_all = {with_cuda, NULL};
