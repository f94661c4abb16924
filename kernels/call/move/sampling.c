/* sampling.c: see sampling.h. */
#include "kernels/call/move/sampling.h"

/* ---- GridSample ---- */

void ebb_sampling_read(ebb_sampling *s, const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    const char *mode = ebb_attr_string(&c->attrs, "mode", "linear");
    const char *padding = ebb_attr_string(&c->attrs, "padding_mode", "zeros");
    int64_t strides[EBB_MAX_RANK];
    *s = (ebb_sampling){.rank = x->rank - 2, .batch = y->dims[0], .channels = y->dims[1]};
    s->mode = strstr(mode, "linear") != NULL  ? EBB_SAMPLE_LINEAR
              : strstr(mode, "cubic") != NULL ? EBB_SAMPLE_CUBIC
                                              : EBB_SAMPLE_NEAREST;
    s->padding = strcmp(padding, "border") == 0       ? EBB_SAMPLE_BORDER
                 : strcmp(padding, "reflection") == 0 ? EBB_SAMPLE_REFLECTION
                                                      : EBB_SAMPLE_ZEROS;
    s->align = ebb_attr_int(&c->attrs, "align_corners", 0) != 0;
    s->image = s->area = 1;
    ebb_strides(strides, x->rank, x->dims);
    for (int d = 0; d < s->rank; d++) {
        s->size[d] = x->dims[d + 2];
        s->stride[d] = strides[d + 2];
        s->image *= x->dims[d + 2];
        s->area *= y->dims[d + 2];
    }
}

const char *ebb_sampling_misfit(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *grid = &c->in[1].type, *y = &c->out[0].type;
    if (!ebb_dtype_is_float((ebb_dtype)x->dtype) || !ebb_dtype_is_float((ebb_dtype)grid->dtype))
        return "works on floats only";
    bool fits = x->rank >= 3 && grid->rank == x->rank && grid->dims[x->rank - 1] == x->rank - 2 &&
                grid->dims[0] == x->dims[0] && y->rank == x->rank && y->dims[1] == x->dims[1];
    return fits ? NULL : "image and grid do not fit each other";
}

/* ---- AffineGrid ---- */

void ebb_affine_read(ebb_affine *a, const ebb_call *c)
{
    const ebb_type *y = &c->out[0].type;
    *a = (ebb_affine){.align = ebb_attr_int(&c->attrs, "align_corners", 0) != 0,
                      .rank = y->rank - 2,
                      .batch = y->dims[0],
                      .area = 1};
    for (int d = 0; d < a->rank; d++) {
        a->size[d] = y->dims[d + 1];
        a->area *= a->size[d];
    }
}

const char *ebb_affine_misfit(const ebb_call *c)
{
    const ebb_type *theta = &c->in[0].type, *y = &c->out[0].type;
    bool fits = theta->rank == 3 && y->rank >= 3 && theta->dims[0] == y->dims[0] &&
                theta->dims[1] == y->rank - 2 && theta->dims[2] == y->rank - 1 &&
                y->dims[y->rank - 1] == y->rank - 2;
    return fits ? NULL : "theta and size do not fit each other";
}

/* ---- DeformConv ---- */

const char *ebb_deform_read(ebb_deform *d, const ebb_call *c)
{
    EBB_ASK(ebb_geometry_read(&d->w, &c->attrs, &c->in[0].type, &c->out[0].type, &c->in[1].type,
                              false));
    d->taps = ebb_geometry_volume(d->w.kernel);
    d->volume = ebb_geometry_volume(d->w.narrow);
    d->wide = ebb_geometry_volume(d->w.wide);
    d->shares = ebb_attr_int(&c->attrs, "offset_group", 1);
    if (d->shares < 1 || d->w.wide_channels % d->shares != 0)
        return "offset_group does not divide the channels";
    int64_t entries = d->w.batch * d->shares * d->taps * d->volume;
    if (ebb_elements(&c->in[2].type) != entries * d->w.spatial ||
        (ebb_call_has(c, 3) && ebb_elements(&c->in[3].type) != d->w.narrow_channels) ||
        (ebb_call_has(c, 4) && ebb_elements(&c->in[4].type) != entries))
        return "offsets, bias or mask have the wrong shape";
    return NULL;
}

/* ---- RoiAlign ---- */

static const char *roi_misfit(const ebb_call *c, const ebb_type *x, const ebb_type *y,
                              uint32_t rois)
{
    const ebb_type *r = &c->in[rois].type, *images = &c->in[rois + 1].type;
    int64_t count = 1;
    for (int d = 0; d < images->rank; d++)
        count *= images->dims[d];
    bool fits = x->rank == 4 && y->rank == 4 && r->rank == 2 && r->dims[1] == 4 && x->dims[2] > 0 &&
                x->dims[3] > 0 && y->dims[2] > 0 && y->dims[3] > 0 && y->dims[1] == x->dims[1] &&
                y->dims[0] == r->dims[0] && count == r->dims[0] &&
                ebb_dtype_is_integer((ebb_dtype)images->dtype) &&
                ebb_dtype_is_float((ebb_dtype)x->dtype) && ebb_dtype_is_float((ebb_dtype)r->dtype);
    return fits ? NULL : "image, regions and their images do not fit each other";
}

const char *ebb_roi_read(ebb_roi *a, const ebb_call *c)
{
    const bool forward = c->op == EBB_OP_ROI_ALIGN, most = c->op == EBB_OP_ROI_ALIGN_MAX_GRAD;
    const ebb_type *x = forward ? &c->in[0].type : &c->out[0].type;
    const ebb_type *y = forward ? &c->out[0].type : &c->in[0].type;
    const uint32_t rois = most ? 2 : 1;
    EBB_ASK(roi_misfit(c, x, y, rois));
    if (most && !ebb_type_same_shape(&c->in[1].type, x))
        return "input and gradient differ in shape";
    const char *mode = ebb_attr_string(&c->attrs, "coordinate_transformation_mode",
                                       c->version < 16 ? "output_half_pixel" : "half_pixel");
    *a = (ebb_roi){.rois = rois,
                   .images = rois + 1,
                   .regions = y->dims[0],
                   .batch = x->dims[0],
                   .channels = x->dims[1],
                   .height = x->dims[2],
                   .width = x->dims[3],
                   .rows = y->dims[2],
                   .columns = y->dims[3]};
    a->scale = ebb_attr_float(&c->attrs, "spatial_scale", 1.0);
    a->ratio = ebb_attr_int(&c->attrs, "sampling_ratio", 0);
    a->half = forward ? strcmp(mode, "half_pixel") == 0 : ebb_attr_int(&c->attrs, "half", 1) != 0;
    a->largest = forward ? strcmp(ebb_attr_string(&c->attrs, "mode", "avg"), "max") == 0 : most;
    return NULL;
}

const char *ebb_roi_misfit(const ebb_call *c)
{
    ebb_roi read;
    return ebb_roi_read(&read, c);
}
