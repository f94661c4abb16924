/* window.c: windows of convolutions and pools from attributes and sizes. */
#include "onnx/ops/window.h"

static const char *take_list(int64_t *to, const ebb_attrs *attrs, const char *name, int rank,
                             int64_t otherwise)
{
    uint32_t count;
    const int64_t *list = ebb_attr_ints(attrs, name, &count);
    if (count != 0 && count != (uint32_t)rank)
        return "an attribute does not have one entry for each spatial axis";
    for (int i = 0; i < rank; i++) {
        to[i] = count != 0 ? list[i] : otherwise;
        if (to[i] < otherwise || to[i] > EBB_WINDOW_LIMIT)
            return "kernel_shape, strides, dilations or output_padding is out of range";
    }
    return NULL;
}

/* The attributes that all windows have; pads from the attribute, 0 where auto_pad decides. */
static const char *take_attributes(ebb_window *w, const ebb_attrs *attrs, int rank,
                                   const int64_t *kernel)
{
    *w = (ebb_window){.rank = rank};
    uint32_t count;
    const int64_t *shape = ebb_attr_ints(attrs, "kernel_shape", &count);
    if (count != 0 && count != (uint32_t)rank)
        return "kernel_shape does not have one entry for each spatial axis";
    if (count == 0 && kernel == NULL)
        return "kernel_shape is missing";
    for (int i = 0; i < rank; i++) {
        w->kernel[i] = count != 0 ? shape[i] : kernel[i];
        if (count != 0 && kernel != NULL && kernel[i] >= 0 && kernel[i] != shape[i])
            return "kernel_shape and the weight disagree";
        if (w->kernel[i] > EBB_WINDOW_LIMIT || w->kernel[i] == 0 || w->kernel[i] < -1 ||
            (count != 0 && w->kernel[i] < 0))
            return "kernel_shape is out of range";
    }
    const char *wrong = take_list(w->stride, attrs, "strides", rank, 1);
    if (wrong == NULL)
        wrong = take_list(w->dilation, attrs, "dilations", rank, 1);
    if (wrong == NULL)
        wrong = take_list(w->output_padding, attrs, "output_padding", rank, 0);
    if (wrong != NULL)
        return wrong;
    for (int i = 0; i < rank; i++)
        if (w->kernel[i] > 0 && w->kernel[i] > EBB_WINDOW_LIMIT / w->dilation[i])
            return "the dilated kernel is out of range";
    const int64_t *pads = ebb_attr_ints(attrs, "pads", &count);
    const char *automatic = ebb_attr_string(attrs, "auto_pad", "NOTSET");
    if (count == 0 || strcmp(automatic, "NOTSET") != 0)
        return NULL;
    if (count != 2 * (uint32_t)rank)
        return "pads does not have two entries for each spatial axis";
    for (int i = 0; i < rank; i++) {
        w->begin[i] = pads[i];
        w->end[i] = pads[i + rank];
        if (pads[i] < -EBB_WINDOW_LIMIT || pads[i] > EBB_WINDOW_LIMIT ||
            pads[i + rank] < -EBB_WINDOW_LIMIT || pads[i + rank] > EBB_WINDOW_LIMIT)
            return "pads are out of range";
    }
    return NULL;
}

static bool same_upper(const ebb_attrs *attrs)
{
    return strcmp(ebb_attr_string(attrs, "auto_pad", "NOTSET"), "SAME_UPPER") == 0;
}

static bool same_lower(const ebb_attrs *attrs)
{
    return strcmp(ebb_attr_string(attrs, "auto_pad", "NOTSET"), "SAME_LOWER") == 0;
}

const char *ebb_window_resolve(ebb_window *w, const ebb_attrs *attrs, int rank, const int64_t *dims,
                               const int64_t *kernel, bool ceil_mode)
{
    const char *wrong = take_attributes(w, attrs, rank, kernel);
    if (wrong != NULL)
        return wrong;
    bool upper = same_upper(attrs), same = upper || same_lower(attrs);
    for (int i = 0; i < rank; i++) {
        int64_t stride = w->stride[i];
        w->out[i] = -1;
        if (dims[i] < 0 || w->kernel[i] < 0)
            continue;
        if (dims[i] > EBB_WINDOW_LIMIT)
            return "the input is too large";
        int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        if (same) {
            w->out[i] = (dims[i] + stride - 1) / stride;
            int64_t total = (w->out[i] - 1) * stride + reach - dims[i];
            total = total > 0 ? total : 0;
            w->begin[i] = upper ? total / 2 : total - total / 2;
            w->end[i] = total - w->begin[i];
            continue;
        }
        int64_t room = dims[i] + w->begin[i] + w->end[i] - reach;
        if (room < 0 && (!ceil_mode || room <= -stride))
            return "the kernel is larger than the padded input";
        w->out[i] = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
        if (ceil_mode && (w->out[i] - 1) * stride >= dims[i] + w->begin[i])
            w->out[i]--; // a window that would start in the end padding does not count
    }
    return NULL;
}

const char *ebb_window_resolve_transposed(ebb_window *w, const ebb_attrs *attrs, int rank,
                                          const int64_t *dims, const int64_t *kernel)
{
    const char *wrong = take_attributes(w, attrs, rank, kernel);
    if (wrong != NULL)
        return wrong;
    bool upper = same_upper(attrs), same = upper || same_lower(attrs);
    uint32_t count;
    const int64_t *asked = ebb_attr_ints(attrs, "output_shape", &count);
    // Some exporters write the batch and channel dims too.
    if (count == (uint32_t)rank + 2)
        asked += 2;
    else if (count != 0 && count != (uint32_t)rank)
        return "output_shape does not have one entry for each spatial axis";
    for (int i = 0; i < rank; i++) {
        w->out[i] = -1;
        if (dims[i] < 0 || w->kernel[i] < 0)
            continue;
        if (dims[i] > EBB_WINDOW_LIMIT / w->stride[i])
            return "the output is too large";
        int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        int64_t full = w->stride[i] * (dims[i] - 1) + w->output_padding[i] + reach;
        if (count != 0 || same) {
            if (count != 0 && (asked[i] < 0 || asked[i] > EBB_WINDOW_LIMIT))
                return "output_shape is out of range";
            w->out[i] = count != 0 ? asked[i] : dims[i] * w->stride[i];
            int64_t total = full - w->out[i];
            if (total < 0) {
                w->output_padding[i] -= total; // more than the windows cover: zeros behind
                total = 0;
            }
            w->begin[i] = upper ? total / 2 : total - total / 2;
            w->end[i] = total - w->begin[i];
        } else {
            w->out[i] = full - w->begin[i] - w->end[i];
        }
        if (w->out[i] < 0)
            return "the pads are larger than the output";
    }
    return NULL;
}
