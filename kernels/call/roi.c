/* roi.c: see roi.h. */
#include "kernels/call/roi.h"

static const char *misfit(const ebb_call *c, const ebb_type *x, const ebb_type *y, uint32_t rois)
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
    const char *why = misfit(c, x, y, rois);
    if (why == NULL && most && !ebb_type_same_shape(&c->in[1].type, x))
        why = "input and gradient differ in shape";
    if (why != NULL)
        return why;
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
