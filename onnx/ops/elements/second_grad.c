/* second, gradients: of gradient operators that are linear in dY, so that there is a second order.
 *
 * Where dX = A' dY is the gradient of Y = A X, what flows into dY is A times what arrives at dX:
 * the forward operator itself. (That of ConvWeightGrad, linear in two inputs, is in conv.c.)
 */
#include "onnx/ops/common.h"

static void with_axis(ebb_build *b, const ebb_grad *c)
{
    ebb_with_int(b, "axis", ebb_attr_int(&c->attrs, "axis", 0));
}

/* dX = GatherGrad(shape, indices, dY). */
void ebb_grad_gather_grad(ebb_build *b, ebb_grad *c)
{
    with_axis(b, c);
    c->dx[2] = ebb_emit(b, EBB_OP_GATHER, c->dy[0], c->x[1]);
}

/* dX = GatherElementsGrad(dY, shape, indices). */
void ebb_grad_gather_elements_grad(ebb_build *b, ebb_grad *c)
{
    with_axis(b, c);
    c->dx[0] = ebb_emit(b, EBB_OP_GATHER_ELEMENTS, c->dy[0], c->x[2]);
}

/* dX = SliceGrad(dY, shape, starts, ends, axes?, steps?). */
void ebb_grad_slice_grad(ebb_build *b, ebb_grad *c)
{
    ebb_value in[5] = {c->dy[0]};
    uint32_t count = 1;
    for (uint32_t i = 2; i < c->input_count && count < 5; i++)
        in[count++] = c->x[i];
    c->dx[0] = ebb_emit_list(b, EBB_OP_SLICE, in, count);
}

/* dX = AveragePoolGrad(dY) {AveragePool's attributes, input_shape}. */
void ebb_grad_average_pool_grad(ebb_build *b, ebb_grad *c)
{
    static const char *const lists[] = {"kernel_shape", "pads", "strides", "dilations"};
    static const char *const numbers[] = {"ceil_mode", "count_include_pad"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        uint32_t count;
        const int64_t *list = ebb_attr_ints(&c->attrs, lists[i], &count);
        if (list != NULL)
            ebb_with_ints(b, lists[i], list, count);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (ebb_attr_find(&c->attrs, numbers[i]) != NULL)
            ebb_with_int(b, numbers[i], ebb_attr_int(&c->attrs, numbers[i], 0));
    if (ebb_attr_find(&c->attrs, "auto_pad") != NULL)
        ebb_with_string(b, "auto_pad", ebb_attr_string(&c->attrs, "auto_pad", "NOTSET"));
    c->dx[0] = ebb_emit(b, EBB_OP_AVERAGE_POOL, c->dy[0]);
}

/* dX = MaxPoolGrad(dY, X): elements of what arrives, where X's maxima are. Nothing flows into X,
 * which only decides where. */
void ebb_grad_max_pool_grad(ebb_build *b, ebb_grad *c)
{
    const int64_t flat = -1;
    ebb_value pooled[2];
    if (!ebb_grad_wants(c, 0))
        return;
    ebb_with_attrs_of(b, c->node);
    ebb_emit_node(b, EBB_OP_MAX_POOL, &c->x[1], 1, pooled, 2, 3);
    if (b->status != NULL)
        return;
    ebb_value all = ebb_emit_reshape(b, c->dy[0], &flat, 1);
    ebb_with_int(b, "axis", 0);
    c->dx[0] = ebb_emit(b, EBB_OP_GATHER, all, pooled[1]);
}

/* dX = RoiAlignGrad(dY, rois, images). */
void ebb_grad_roi_align_grad(ebb_build *b, ebb_grad *c)
{
    ebb_type dy;
    bool half = ebb_attr_int(&c->attrs, "half", 1) != 0;
    if (!ebb_grad_wants(c, 0) || !ebb_grad_shape(b, c, c->x[0], &dy))
        return;
    if (ebb_model_opset(b->g->model, EBB_DOMAIN_ONNX) >= 16)
        ebb_with_string(b, "coordinate_transformation_mode",
                        half ? "half_pixel" : "output_half_pixel");
    else if (half) {
        ebb_grad_fail(b, c, "before opset 16 regions cannot begin half a pixel off");
        return;
    }
    ebb_with_int(b, "output_height", dy.dims[2]);
    ebb_with_int(b, "output_width", dy.dims[3]);
    ebb_with_int(b, "sampling_ratio", ebb_attr_int(&c->attrs, "sampling_ratio", 0));
    ebb_with_float(b, "spatial_scale", ebb_attr_float(&c->attrs, "spatial_scale", 1.0));
    c->dx[0] = ebb_emit(b, EBB_OP_ROI_ALIGN, c->dy[0], c->x[1], c->x[2]);
}
