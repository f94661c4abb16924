/* resize.c: see resize.h. */
#include "onnx/words/resize.h"

#include <math.h>

int64_t ebb_resize_entries(const ebb_attrs *attrs, int rank)
{
    uint32_t count;
    return ebb_attr_ints(attrs, "axes", &count) != NULL ? (int64_t)count : rank;
}

/* Room for the taps of an axis: the scale is not below out / (in + 1), rounding included. */
static int64_t room_of(const ebb_resize *r, const ebb_resize_axis *l)
{
    int64_t reach = r->mode == EBB_RESIZE_CUBIC ? 2 : 1;
    if (!r->antialias || l->out >= l->in || l->out == 0)
        return 2 * reach;
    return 2 * (reach * (l->in + 1) / l->out + 2) + 2;
}

static ebb_resize_transform transform_of(const char *name)
{
    static const char *const names[] = {
        [EBB_RESIZE_HALF_PIXEL] = "half_pixel",
        [EBB_RESIZE_ALIGN_CORNERS] = "align_corners",
        [EBB_RESIZE_ASYMMETRIC] = "asymmetric",
        [EBB_RESIZE_CROP] = "tf_crop_and_resize",
        [EBB_RESIZE_PYTORCH] = "pytorch_half_pixel",
        [EBB_RESIZE_SYMMETRIC] = "half_pixel_symmetric",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return (ebb_resize_transform)i;
    return EBB_RESIZE_HALF_PIXEL;
}

static ebb_resize_rounding rounding_of(const char *name)
{
    return strcmp(name, "ceil") == 0                 ? EBB_RESIZE_CEIL
           : strcmp(name, "round_prefer_floor") == 0 ? EBB_RESIZE_PREFER_FLOOR
           : strcmp(name, "round_prefer_ceil") == 0  ? EBB_RESIZE_PREFER_CEIL
                                                     : EBB_RESIZE_FLOOR;
}

void ebb_resize_read(ebb_resize *r, const ebb_attrs *attrs, bool old, const ebb_type *x,
                     const ebb_type *y)
{
    const char *mode = ebb_attr_string(attrs, "mode", "nearest");
    *r = (ebb_resize){.rank = x->rank};
    r->mode = strcmp(mode, "cubic") == 0       ? EBB_RESIZE_CUBIC
              : strstr(mode, "linear") != NULL ? EBB_RESIZE_LINEAR
                                               : EBB_RESIZE_NEAREST;
    r->transform = transform_of(ebb_attr_string(attrs, "coordinate_transformation_mode",
                                                old ? "asymmetric" : "half_pixel"));
    r->nearest =
        rounding_of(ebb_attr_string(attrs, "nearest_mode", old ? "floor" : "round_prefer_floor"));
    r->antialias = r->mode != EBB_RESIZE_NEAREST && ebb_attr_int(attrs, "antialias", 0) != 0;
    r->exclude_outside = ebb_attr_int(attrs, "exclude_outside", 0) != 0;
    r->a = ebb_attr_float(attrs, "cubic_coeff_a", -0.75);
    r->extrapolation = ebb_attr_float(attrs, "extrapolation_value", 0.0);
    for (int d = 0; d < r->rank; d++) {
        ebb_resize_axis *l = &r->axis[d];
        *l = (ebb_resize_axis){.in = x->dims[d], .out = y->dims[d], .scale = 1, .to = 1};
        l->taps = room_of(r, l);
    }
}

ebb_resize_order ebb_resize_order_of(const ebb_attrs *attrs, int rank)
{
    uint32_t count;
    const int64_t *axes = ebb_attr_ints(attrs, "axes", &count);
    const char *policy = ebb_attr_string(attrs, "keep_aspect_ratio_policy", "stretch");
    ebb_resize_order o = {.entries = ebb_resize_entries(attrs, rank)};
    o.policy = strcmp(policy, "not_larger") == 0    ? EBB_RESIZE_NOT_LARGER
               : strcmp(policy, "not_smaller") == 0 ? EBB_RESIZE_NOT_SMALLER
                                                    : EBB_RESIZE_STRETCH;
    for (int d = 0; d < rank; d++) {
        o.entry[d] = (int8_t)(axes == NULL ? d : -1);
        for (uint32_t i = 0; axes != NULL && i < count && o.entry[d] < 0; i++)
            if (axes[i] == d || axes[i] + rank == d)
                o.entry[d] = (int8_t)i;
    }
    return o;
}

const char *ebb_resize_scale(ebb_resize *r, const ebb_attrs *attrs, const ebb_resize_values *values)
{
    const ebb_resize_order order = ebb_resize_order_of(attrs, r->rank);
    if (r->transform == EBB_RESIZE_CROP && values->roi != NULL &&
        values->roi_count != 2 * order.entries)
        return "roi has not two numbers for each axis";
    return ebb_resize_apply(r, &order, values) ? NULL : "a scale is not above 0";
}
