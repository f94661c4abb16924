/* image: operators that sample an image between its elements: their types. */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

#include <math.h>

/* The numbers of a float input, in scratch memory; false where they are not known. */
static bool constant_floats(const ebb_infer *c, uint32_t input, const double **list, int64_t *count)
{
    const ebb_tensor *t = input < c->input_count ? c->constant[input] : NULL;
    int64_t n;
    if (t == NULL || t->data == NULL || !ebb_dtype_is_float((ebb_dtype)t->type.dtype) ||
        !ebb_type_elements(&t->type, &n) || n > EBB_MAX_RANK)
        return false;
    double *copy = EBB_NEW(c->scratch, double, (size_t)n + 1);
    if (copy == NULL)
        return false;
    for (int64_t i = 0; i < n; i++)
        copy[i] = ebb_tensor_double(t, i);
    *list = copy;
    *count = n;
    return true;
}

/* Which axis entry i of sizes and scales is of. */
static ebb_status axis_of(const ebb_infer *c, uint32_t i, int *axis)
{
    uint32_t count;
    const int64_t *axes = ebb_attr_ints(&c->attrs, "axes", &count);
    *axis = (int)i;
    return axes != NULL ? ebb_infer_axis(c, axes[i], c->in[0]->rank, axis) : NULL;
}

/* With sizes: as they are, or all axes by one scale so that none is larger, or none smaller. */
static ebb_status by_sizes(ebb_infer *c, const int64_t *sizes, uint32_t count)
{
    const char *policy = ebb_attr_string(&c->attrs, "keep_aspect_ratio_policy", "stretch");
    bool stretch = strcmp(policy, "stretch") == 0, least = strcmp(policy, "not_larger") == 0;
    const ebb_type *x = c->in[0];
    double scale = least ? INFINITY : 0;
    for (uint32_t i = 0; i < count; i++) {
        int axis;
        EBB_TRY(axis_of(c, i, &axis));
        if (sizes[i] < 0)
            return ebb_infer_error(c, "size %u is %lld", i, (long long)sizes[i]);
        double ratio = x->dims[axis] > 0 ? (double)sizes[i] / (double)x->dims[axis] : NAN;
        scale = least ? fmin(scale, ratio) : fmax(scale, ratio);
        if (x->dims[axis] < 0)
            scale = NAN;
        ebb_type_set_dim(&c->out[0], axis, sizes[i]);
    }
    for (uint32_t i = 0; i < count && !stretch; i++) {
        int axis;
        EBB_TRY(axis_of(c, i, &axis));
        double size = floor(scale * (double)x->dims[axis] + 0.5);
        ebb_type_set_dim(&c->out[0], axis, size >= 0 && size < 9e15 ? (int64_t)size : -1);
    }
    return NULL;
}

static ebb_status by_scales(ebb_infer *c, const double *scales, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int axis;
        EBB_TRY(axis_of(c, i, &axis));
        int64_t n = c->in[0]->dims[axis];
        double size = floor(scales[i] * (double)n);
        if (!(scales[i] > 0) || size > 9e15)
            return ebb_infer_error(c, "scale %u is %g", i, scales[i]);
        if (n < 0 && scales[i] == 1.0)
            continue; // unknown, and stays what it was called
        ebb_type_set_dim(&c->out[0], axis, n < 0 ? -1 : (int64_t)size);
    }
    return NULL;
}

/* Resize (X, scales) of opset 10, (X, roi, scales, sizes) later; Upsample (X) {scales}, (X,
 * scales).
 */
ebb_status ebb_infer_resize(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    uint32_t at = c->op == EBB_OP_UPSAMPLE || c->version < 11 ? 1 : 2, count;
    bool some = ebb_attr_find(&c->attrs, "axes") != NULL;
    (void)ebb_attr_ints(&c->attrs, "axes", &count);
    c->out[0] = *x;
    if (x->rank < 0)
        return NULL;
    count = some ? count : (uint32_t)x->rank;
    const int64_t *sizes;
    const double *scales;
    int64_t given;
    if (at == 2 && ebb_infer_constant_ints(c, 3, &sizes, &given) && given > 0)
        return given != (int64_t)count
                   ? ebb_infer_error(c, "%lld sizes are given for %u axes", (long long)given, count)
                   : by_sizes(c, sizes, count);
    const ebb_attr *old = ebb_attr_find(&c->attrs, "scales");
    if (old != NULL && old->floats != NULL && old->count == count && count <= EBB_MAX_RANK) {
        double copy[EBB_MAX_RANK];
        for (uint32_t i = 0; i < count; i++)
            copy[i] = (double)old->floats[i];
        return by_scales(c, copy, count);
    }
    if (constant_floats(c, at, &scales, &given) && given > 0)
        return given != (int64_t)count ? ebb_infer_error(c, "%lld scales are given for %u axes",
                                                         (long long)given, count)
                                       : by_scales(c, scales, count);
    for (uint32_t i = 0; i < count; i++) {
        int axis;
        EBB_TRY(axis_of(c, i, &axis));
        ebb_type_set_dim(&c->out[0], axis, -1);
    }
    return NULL;
}

/* (X [N, C, d...], grid [N, o..., axes]) -> [N, C, o...]. */
ebb_status ebb_infer_grid_sample(ebb_infer *c)
{
    const ebb_type *x = c->in[0], *grid = c->in[1];
    c->out[0] = ebb_type_unranked((ebb_dtype)x->dtype);
    if (x->rank < 0 || grid->rank < 0)
        return NULL;
    if (x->rank < 3 || grid->rank != x->rank ||
        (grid->dims[x->rank - 1] >= 0 && grid->dims[x->rank - 1] != x->rank - 2))
        return ebb_infer_error(c, "the grid does not have a coordinate for each axis of the image");
    c->out[0] = *x;
    for (int d = 2; d < x->rank; d++)
        ebb_type_put_dim(&c->out[0], d, grid, d - 1);
    return NULL;
}

/* (theta [N, r, r + 1], size [N, C, d...]) -> [N, d..., r]. */
ebb_status ebb_infer_affine_grid(ebb_infer *c)
{
    const int64_t *size;
    int64_t count;
    const ebb_type *theta = c->in[0];
    c->out[0] = ebb_type_unranked((ebb_dtype)theta->dtype);
    if (!ebb_infer_constant_ints(c, 1, &size, &count))
        return NULL;
    if (count < 3 || count > EBB_MAX_RANK)
        return ebb_infer_error(c, "size has %lld entries", (long long)count);
    ebb_type out = ebb_type_ranked((ebb_dtype)theta->dtype, (int)count);
    ebb_type_set_dim(&out, 0, size[0]);
    for (int d = 2; d < (int)count; d++)
        ebb_type_set_dim(&out, d - 1, size[d]);
    for (int d = 0; d < out.rank - 1; d++)
        if (out.dims[d] < 0)
            return ebb_infer_error(c, "size has a negative entry");
    ebb_type_set_dim(&out, out.rank - 1, count - 2);
    c->out[0] = out;
    return NULL;
}

/* (X [N, C, H, W], rois [R, 4], image of each) -> [R, C, output_height, output_width]. */
ebb_status ebb_infer_roi_align(ebb_infer *c)
{
    const ebb_type *x = c->in[0], *rois = c->in[1];
    if ((x->rank >= 0 && x->rank != 4) || (rois->rank >= 0 && rois->rank != 2))
        return ebb_infer_error(c, "the input has not rank 4, or the regions have not rank 2");
    int64_t height = ebb_attr_int(&c->attrs, "output_height", 1);
    int64_t width = ebb_attr_int(&c->attrs, "output_width", 1);
    if (height < 1 || width < 1)
        return ebb_infer_error(c, "the output has no elements");
    c->out[0] = ebb_type_ranked((ebb_dtype)x->dtype, 4);
    if (rois->rank == 2)
        ebb_type_put_dim(&c->out[0], 0, rois, 0);
    if (x->rank == 4)
        ebb_type_put_dim(&c->out[0], 1, x, 1);
    ebb_type_set_dim(&c->out[0], 2, height);
    ebb_type_set_dim(&c->out[0], 3, width);
    return NULL;
}

/* Four elements for each sample of each bin. How many a bin has hangs on the regions where
 * sampling_ratio is 0: those of a region as large as the image. */
double ebb_cost_roi_align(const ebb_infer *c)
{
    bool forward = c->op == EBB_OP_ROI_ALIGN;
    const ebb_type *bins = forward ? &c->out[0] : ebb_infer_type(c, 0);
    const ebb_type *image = forward ? ebb_infer_type(c, 0) : &c->out[0];
    double ratio = (double)ebb_attr_int(&c->attrs, "sampling_ratio", 0), samples = ratio * ratio;
    if (bins == NULL || image == NULL || bins->rank != 4 || image->rank != 4)
        return 0;
    if (!(ratio > 0)) {
        samples = 1;
        for (int d = 2; d < 4; d++)
            if (bins->dims[d] > 0 && image->dims[d] > bins->dims[d])
                samples *= ceil((double)image->dims[d] / (double)bins->dims[d]);
    }
    return 4 * ebb_type_count(bins) * samples;
}

/* (X [N, C, H, W], rois [R, 5]) {pooled_shape} -> [R, C, pooled_shape]. */
ebb_status ebb_infer_max_roi_pool(ebb_infer *c)
{
    const ebb_type *x = c->in[0], *rois = c->in[1];
    uint32_t count;
    const int64_t *bins = ebb_attr_ints(&c->attrs, "pooled_shape", &count);
    if ((x->rank >= 0 && x->rank != 4) || (rois->rank >= 0 && rois->rank != 2))
        return ebb_infer_error(c, "the input has not rank 4, or the regions have not rank 2");
    if (count != 2 || bins[0] < 1 || bins[1] < 1)
        return ebb_infer_error(c, "pooled_shape is not a height and a width");
    c->out[0] = ebb_type_ranked((ebb_dtype)x->dtype, 4);
    if (rois->rank == 2)
        ebb_type_put_dim(&c->out[0], 0, rois, 0);
    if (x->rank == 4)
        ebb_type_put_dim(&c->out[0], 1, x, 1);
    ebb_type_set_dim(&c->out[0], 2, bins[0]);
    ebb_type_set_dim(&c->out[0], 3, bins[1]);
    return NULL;
}

/* Bins of regions as large as the image; neighbours share the elements at their border. */
double ebb_cost_max_roi_pool(const ebb_infer *c)
{
    bool forward = c->op == EBB_OP_MAX_ROI_POOL;
    const ebb_type *bins = forward ? &c->out[0] : ebb_infer_type(c, 0);
    const ebb_type *image = ebb_infer_type(c, forward ? 0 : 1);
    if (bins == NULL || image == NULL || bins->rank != 4 || image->rank != 4)
        return 0;
    double elements = 1;
    for (int d = 0; d < 4; d++)
        elements *= (double)(bins->dims[d] > 0 ? bins->dims[d] : 1) +
                    (double)(d >= 2 && image->dims[d] > 0 ? image->dims[d] : 0);
    return elements;
}
