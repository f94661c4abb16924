/* test_resize.c: Resize and Upsample against the plain kernel: every mode, transform and rounding,
 * larger and smaller, axes that stay, integers, halves, what is not known before the run. */
#include "tests/cuda/bits.h"
#include "tests/cuda/halves.h"
#include "tests/owned.h"

typedef struct sizes {
    int rank;
    int64_t in[4], out[4];
} sizes;

static const sizes shapes[] = {
    {4, {2, 3, 4, 5}, {2, 3, 8, 10}}, {4, {1, 2, 7, 9}, {1, 2, 3, 4}},
    {3, {2, 5, 6}, {2, 7, 3}},        {1, {9}, {1}},
    {4, {3, 4, 1, 5}, {6, 4, 3, 5}},  {2, {1, 1}, {3, 5}},
    {4, {0, 2, 3, 3}, {0, 2, 5, 5}},  {4, {1, 1, 23, 9}, {1, 1, 4, 5}},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static const char *const modes[] = {"nearest", "linear", "cubic"};
static const char *const transforms[] = {"half_pixel",         "align_corners",
                                         "asymmetric",         "tf_crop_and_resize",
                                         "pytorch_half_pixel", "half_pixel_symmetric"};
static const char *const roundings[] = {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"};

typedef struct constants {
    ebb_tensor roi, sizes;
} constants;

static void keep_constant(ebb_tensor *to, ebb_operand *o)
{
    *to = (ebb_tensor){.type = o->type, .data = o->data, .bytes = o->bytes};
    o->constant = to;
}

static void put_resize(testing *t, constants *k, const sizes *s, ebb_dtype dtype, const char *mode,
                       const char *transform, const char *rounding)
{
    begin(t, EBB_OP_RESIZE);
    t->call.node = transform;
    put_string(t, "mode", mode);
    put_string(t, "coordinate_transformation_mode", transform);
    put_string(t, "nearest_mode", rounding);
    put_float(t, "extrapolation_value", 10.0);
    put_in(t, dtype, s->rank, s->in);
    ebb_operand *roi = put_in(t, EBB_F32, 1, &(int64_t){2 * s->rank});
    for (int d = 0; d < s->rank; d++) {
        set_value(roi, (size_t)d, s->in[d] == s->out[d] ? 0 : 0.2);
        set_value(roi, (size_t)(s->rank + d), s->in[d] == s->out[d] ? 1 : 1.1);
    }
    keep_constant(&k->roi, roi);
    put_absent(t);
    ebb_operand *to = put_in(t, EBB_I64, 1, &(int64_t){s->rank});
    for (int d = 0; d < s->rank; d++)
        set_value(to, (size_t)d, (double)s->out[d]);
    keep_constant(&k->sizes, to);
    put_out(t, dtype, s->rank, s->out);
}

TEST(every_way_gives_what_the_plain_kernel_gives)
{
    for (int i = 0; i < SHAPES; i++)
        for (int m = 0; m < 3; m++)
            for (int way = 0; way < 6; way++)
                for (int flag = 0; flag < 4; flag++) {
                    TESTING(t);
                    constants k;
                    put_resize(&t, &k, &shapes[i], flag % 2 ? EBB_F64 : EBB_F32, modes[m],
                               transforms[way], roundings[flag]);
                    put_int(&t, "antialias", flag / 2);
                    put_int(&t, "exclude_outside", flag == 1 || flag == 2);
                    if (m == 0) // the nearest, as it is
                        agrees_within(&t, "cuda.resize", "plain.resize", 0);
                    else
                        agrees(&t, "cuda.resize", "plain.resize");
                }
}

TEST(halves_are_float32_rounded)
{
    for (int i = 0; i < SHAPES; i++)
        for (int m = 0; m < 3; m++) {
            TESTING(t);
            constants k;
            put_resize(&t, &k, &shapes[i], EBB_F32, modes[m], "half_pixel", "floor");
            t.in[1].type = ebb_type_none(); // a roi would be rounded too
            agrees_in_halves(&t, "cuda.resize");
        }
}

TEST(integers_are_rounded_to_the_nearest)
{
    static const ebb_dtype dtypes[] = {EBB_U8, EBB_I64};
    for (int i = 0; i < SHAPES; i++)
        for (int m = 0; m < 3; m++)
            for (int d = 0; d < 2; d++) {
                TESTING(t);
                constants k;
                put_resize(&t, &k, &shapes[i], dtypes[d], modes[m], transforms[2 * d + 1], "ceil");
                for (size_t e = 0; d == 1 && e < count_of(&t.in[0]); e++)
                    set_value(&t.in[0], e, 1e6 * draw(&t));
                run_with(&t, "plain.resize");
                FREED void *expected = malloc(t.out[0].bytes + 1);
                assert_non_null(expected);
                memcpy(expected, t.out[0].data, t.out[0].bytes);
                run_with(&t, "cuda.resize");
                assert_memory_equal(t.out[0].data, expected, t.out[0].bytes);
            }
}

TEST(the_oldest_takes_its_scales_from_an_attribute)
{
    float scales[4] = {1, 1, 2, 1.5F};
    TESTING(t);
    begin(&t, EBB_OP_UPSAMPLE);
    t.call.version = 7;
    put_string(&t, "mode", "linear");
    ebb_attr *a = next_attr(&t, "scales", EBB_ATTR_FLOATS);
    a->floats = scales;
    a->count = 4;
    put_in(&t, EBB_F32, 4, shapes[0].in);
    put_out(&t, EBB_F32, 4, (const int64_t[]){2, 3, 8, 7});
    agrees(&t, "cuda.upsample", "plain.upsample");
}

/* Sizes and roi of the run give the very bits of those known before. */
TEST(what_the_run_brings_is_read_on_the_device)
{
    for (int i = 0; i < SHAPES; i++)
        for (int way = 0; way < 6; way++) {
            TESTING(t);
            constants k;
            put_resize(&t, &k, &shapes[i], EBB_F32, modes[way % 3], transforms[way], roundings[2]);
            put_int(&t, "antialias", way / 3);
            run_with(&t, "cuda.resize");
            FREED void *expected = malloc(t.out[0].bytes + 1);
            assert_non_null(expected);
            memcpy(expected, t.out[0].data, t.out[0].bytes);
            t.in[3].constant = NULL;
            t.in[1].constant = way % 2 ? NULL : t.in[1].constant;
            agrees(&t, "cuda.resize", "plain.resize");
            assert_memory_equal(t.out[0].data, expected, t.out[0].bytes);
        }
}

static const char *const policies[] = {"not_larger", "not_smaller"};

/* Of five axes the last says how large the picture may be. */
TEST(every_axis_has_its_say_in_the_run)
{
    for (int way = 0; way < 2; way++) {
        TESTING(t);
        begin(&t, EBB_OP_RESIZE);
        put_string(&t, "mode", "nearest");
        put_string(&t, "keep_aspect_ratio_policy", policies[way]);
        put_in(&t, EBB_F32, 5, D(2, 2, 2, 2, 4));
        put_absent(&t);
        put_absent(&t);
        ebb_operand *s = put_in(&t, EBB_I64, 1, D(5));
        for (size_t d = 0; d < 5; d++)
            set_value(s, d, d < 4 ? 4 : way ? 12 : 4);
        put_out(&t, EBB_F32, 5, way ? D(6, 6, 6, 6, 12) : D(2, 2, 2, 2, 4));
        agrees(&t, "cuda.resize", "plain.resize");
    }
}

/* One axis by its scale of the run; sizes that keep the picture's proportions. */
TEST(axes_and_policies_hold_in_the_run)
{
    for (int way = 0; way < 3; way++) {
        const int64_t axes[2] = {-1, 2};
        TESTING(t);
        begin(&t, EBB_OP_RESIZE);
        put_string(&t, "mode", "linear");
        put_ints(&t, "axes", 2, axes);
        put_in(&t, EBB_F32, 4, D(1, 2, 4, 6));
        put_absent(&t);
        if (way == 2) {
            ebb_operand *s = put_in(&t, EBB_F32, 1, D(2));
            set_value(s, 0, 1.5);
            set_value(s, 1, 0.75);
        } else {
            put_string(&t, "keep_aspect_ratio_policy", policies[way]);
            put_absent(&t);
            ebb_operand *s = put_in(&t, EBB_I64, 1, D(2));
            set_value(s, 0, 9);
            set_value(s, 1, 8);
        }
        put_out(&t, EBB_F32, 4,
                way == 0   ? D(1, 2, 6, 9)
                : way == 1 ? D(1, 2, 8, 12)
                           : D(1, 2, 3, 9));
        agrees(&t, "cuda.resize", "plain.resize");
    }
}

TEST(a_scale_of_the_run_that_fits_no_shape_is_a_fault)
{
    for (int k = 0; k < 2; k++) {
        TESTING(t);
        begin(&t, EBB_OP_RESIZE);
        put_string(&t, "mode", "linear");
        put_in(&t, EBB_F32, 1, D(6));
        put_absent(&t);
        set_value(put_in(&t, EBB_F32, 1, D(1)), 0, k ? -1 : 1e-30);
        put_out(&t, EBB_F32, 1, D(6));
        ebb_fault fault = fault_of(&t, "cuda.resize", 9);
        assert_true(fault.there);
        assert_int_equal(fault.value, 0);
        assert_int_equal(fault.low, 6);
    }
}

TEST(a_scale_that_fits_no_shape_is_an_error)
{
    TESTING(t);
    constants k;
    put_resize(&t, &k, &shapes[0], EBB_F32, "linear", "half_pixel", "floor");
    unguard(t.in[3].data);
    t.call.input_count = 2;
    float scales[4] = {1, 1, 1e-30F, 2};
    ebb_operand *s = put_in(&t, EBB_F32, 1, &(int64_t){4});
    t.in[3].type = ebb_type_none();
    memcpy(s->data, scales, sizeof scales);
    keep_constant(&k.sizes, s);
    for (int cuda = 0; cuda < 2; cuda++) {
        const ebb_kernel *kernel = kernel_named(cuda ? "cuda.resize" : "plain.resize");
        t.call.kernel = kernel;
        t.call.queue = more_queue;
        assert_null(ebb_kernel_declines(kernel, &t.call));
        assert_null(kernel->workspace(&t.call, &t.call.workspace_bytes));
        t.call.workspace = guarded(t.call.workspace_bytes);
        ebb_status status = kernel->run(&t.call);
        assert_non_null(status);
        assert_non_null(strstr(ebb_status_text(status), "the scale of axis 2"));
        unguard(t.call.workspace);
    }
}

const fixture around_all = {with_cuda, NULL};
