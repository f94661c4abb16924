/* geometry.c: strides, pads and their friends, checked against the shapes. */
#include "kernels/call/geometry.h"

int64_t ebb_geometry_volume(const int64_t size[EBB_AXES])
{
    return size[0] * size[1] * size[2];
}

/* Fills the last `spatial` of three entries from a list attribute. */
static bool read_axes(int64_t into[EBB_AXES], const ebb_attrs *attrs, const char *name, int spatial,
                      int64_t otherwise)
{
    uint32_t count = 0;
    const int64_t *list = ebb_attr_ints(attrs, name, &count);
    for (int axis = 0; axis < EBB_AXES; axis++)
        into[axis] = otherwise;
    if (list == NULL)
        return true;
    if (count != (uint32_t)spatial)
        return false;
    for (int axis = 0; axis < spatial; axis++)
        into[EBB_AXES - spatial + axis] = list[axis];
    return true;
}

static const char *read_pads(ebb_geometry *w, const ebb_attrs *attrs, bool transposed)
{
    const char *mode = ebb_attr_string(attrs, "auto_pad", "NOTSET");
    uint32_t count = 0, shape_count = 0;
    const int64_t *pads = ebb_attr_ints(attrs, "pads", &count);
    ebb_attr_ints(attrs, "output_shape", &shape_count);
    bool same = strcmp(mode, "SAME_UPPER") == 0 || strcmp(mode, "SAME_LOWER") == 0;
    for (int axis = 0; axis < EBB_AXES; axis++)
        w->pad_begin[axis] = w->pad_end[axis] = 0;
    if (!same && !(transposed && shape_count != 0)) {
        if (strcmp(mode, "VALID") == 0 || pads == NULL)
            return NULL;
        if (count != 2u * (uint32_t)w->spatial)
            return "pads does not hold two numbers an axis";
        for (int axis = 0; axis < w->spatial; axis++) {
            w->pad_begin[EBB_AXES - w->spatial + axis] = pads[axis];
            w->pad_end[EBB_AXES - w->spatial + axis] = pads[w->spatial + axis];
        }
        return NULL;
    }
    int64_t extra[EBB_AXES];
    if (!read_axes(extra, attrs, "output_padding", w->spatial, 0))
        return "output_padding does not hold one number an axis";
    for (int axis = EBB_AXES - w->spatial; axis < EBB_AXES; axis++) {
        int64_t reach =
            (w->narrow[axis] - 1) * w->stride[axis] + (w->kernel[axis] - 1) * w->dilation[axis] + 1;
        int64_t total = reach + (transposed ? extra[axis] : 0) - w->wide[axis];
        if (total < 0)
            total = 0;
        // Without auto_pad, output_shape puts the odd element first, as the standard has it.
        bool upper = strcmp(mode, "SAME_UPPER") == 0;
        w->pad_begin[axis] = upper ? total / 2 : total - total / 2;
        w->pad_end[axis] = total - w->pad_begin[axis];
    }
    return NULL;
}

/* Whether the operations of all windows can be counted, with room for a small factor more. Every
 * product of sizes that a loop or an index makes is at most that number, so no other place checks.
 * A size of 0 counts as 1: it hides the others from the whole product, not from a part of it. */
static bool is_countable(const ebb_geometry *w, bool weighted)
{
    int64_t taps = w->groups > 0 ? w->wide_channels / w->groups : 0; // that a window reads
    double wide = 1, narrow = 1, work = (double)(w->batch > 1 ? w->batch : 1);
    work *= (double)(w->narrow_channels > 1 ? w->narrow_channels : 1);
    work *= (double)(weighted && taps > 1 ? taps : 1);
    for (int axis = 0; axis < EBB_AXES; axis++) {
        wide *= (double)(w->wide[axis] > 1 ? w->wide[axis] : 1);
        narrow *= (double)(w->narrow[axis] > 1 ? w->narrow[axis] : 1);
        work *= (double)w->kernel[axis];
    }
    return work * (wide > narrow ? wide : narrow) < 0x1p60;
}

const char *ebb_geometry_read(ebb_geometry *w, const ebb_attrs *attrs, const ebb_type *wide,
                              const ebb_type *narrow, const ebb_type *weight, bool transposed)
{
    enum { LIMIT = 1 << 24 }; // of a number along one axis: far beyond any model
    int spatial = wide->rank - 2;
    if (spatial < 1 || spatial > EBB_AXES || narrow->rank != wide->rank)
        return "only one to three spatial axes";
    *w = (ebb_geometry){.spatial = spatial, .batch = wide->dims[0]};
    w->wide_channels = wide->dims[1];
    w->narrow_channels = narrow->dims[1];
    w->groups = weight == NULL ? 1 : ebb_attr_int(attrs, "group", 1);
    if (narrow->dims[0] != w->batch)
        return "batch sizes differ";
    if (!read_axes(w->kernel, attrs, "kernel_shape", spatial, 1) ||
        !read_axes(w->stride, attrs, "strides", spatial, 1) ||
        !read_axes(w->dilation, attrs, "dilations", spatial, 1))
        return "kernel_shape, strides or dilations do not hold one number an axis";
    if (weight == NULL && ebb_attr_find(attrs, "kernel_shape") == NULL)
        return "no kernel_shape";
    for (int axis = 0; axis < EBB_AXES; axis++) {
        int from = axis - (EBB_AXES - spatial);
        w->wide[axis] = from < 0 ? 1 : wide->dims[2 + from];
        w->narrow[axis] = from < 0 ? 1 : narrow->dims[2 + from];
    }
    if (weight != NULL) {
        if (weight->rank != wide->rank)
            return "the weight's rank differs from the input's";
        for (int axis = 0; axis < spatial; axis++)
            w->kernel[EBB_AXES - spatial + axis] = weight->dims[2 + axis];
        if (w->groups < 1 || w->wide_channels % w->groups != 0 ||
            w->narrow_channels % w->groups != 0 || weight->dims[0] != w->narrow_channels ||
            weight->dims[1] != w->wide_channels / w->groups)
            return "channels of input, weight and output disagree";
    } else if (w->wide_channels != w->narrow_channels) {
        return "channels of input and output disagree";
    }
    for (int axis = 0; axis < EBB_AXES; axis++)
        if (w->kernel[axis] < 1 || w->stride[axis] < 1 || w->dilation[axis] < 1 ||
            w->wide[axis] < 0 || w->narrow[axis] < 0 || w->kernel[axis] > LIMIT ||
            w->stride[axis] > LIMIT || w->dilation[axis] > LIMIT || w->wide[axis] > INT32_MAX ||
            w->narrow[axis] > INT32_MAX)
            return "a size, stride or dilation is out of range";
    EBB_ASK(read_pads(w, attrs, transposed));
    for (int axis = 0; axis < EBB_AXES; axis++)
        if (w->pad_begin[axis] < 0 || w->pad_end[axis] < 0 || w->pad_begin[axis] > LIMIT ||
            w->pad_end[axis] > LIMIT)
            return "negative or huge pads";
    if (!is_countable(w, weight != NULL))
        return "its windows have more elements than can be counted";
    return NULL;
}

ebb_op ebb_channels_first_op(ebb_op op)
{
    switch (op) {
    case EBB_OP_CONV_NHWC:
        return EBB_OP_CONV;
    case EBB_OP_CONV_TRANSPOSE_NHWC:
        return EBB_OP_CONV_TRANSPOSE;
    case EBB_OP_CONV_WEIGHT_GRAD_NHWC:
        return EBB_OP_CONV_WEIGHT_GRAD;
    default:
        return EBB_OP_UNKNOWN;
    }
}

static bool turn(ebb_operand *o)
{
    ebb_type *t = &o->type;
    if (t->dtype == EBB_NONE || t->rank != 4 || t->layout.kind != EBB_LAYOUT_PLAIN)
        return false;
    int64_t channels = t->dims[3];
    memmove(t->dims + 2, t->dims + 1, 2 * sizeof *t->dims);
    t->dims[1] = channels;
    t->layout.kind = EBB_LAYOUT_CHANNELS_LAST;
    return true;
}

const char *ebb_channels_first_read(ebb_channels_view *view, const ebb_call *call)
{
    view->call = *call;
    view->call.op = ebb_channels_first_op(call->op);
    view->call.in = view->in;
    view->call.out = view->out;
    if (view->call.op == EBB_OP_UNKNOWN || call->input_count < 2 || call->input_count > 3 ||
        call->output_count != 1)
        return "it does not have the operands of a convolution";
    memcpy(view->in, call->in, call->input_count * sizeof *call->in);
    view->out[0] = call->out[0];
    if (!turn(&view->in[0]) || !turn(&view->in[1]) || !turn(&view->out[0]))
        return "only row-major tensors with two spatial axes";
    return NULL;
}

const char *ebb_conv_read(ebb_geometry *w, const ebb_call *call)
{
    const ebb_operand *in = call->in, *out = call->out;
    if (ebb_channels_first_op(call->op) != EBB_OP_UNKNOWN) {
        ebb_channels_view view;
        EBB_ASK(ebb_channels_first_read(&view, call));
        return ebb_conv_read(w, &view.call);
    }
    if (call->op == EBB_OP_CONV_TRANSPOSE)
        return ebb_geometry_read(w, &call->attrs, &out[0].type, &in[0].type, &in[1].type, true);
    if (call->op == EBB_OP_CONV_WEIGHT_GRAD)
        return ebb_geometry_read(w, &call->attrs, &in[1].type, &in[0].type, &out[0].type, false);
    return ebb_geometry_read(w, &call->attrs, &in[0].type, &out[0].type, &in[1].type, false);
}

const char *ebb_pooled_read(ebb_geometry *w, int64_t side[EBB_AXES], int64_t cells[EBB_AXES],
                            const ebb_call *call)
{
    const ebb_type *dy = &call->in[0].type, *m = &call->in[1].type;
    uint32_t rank;
    const int64_t *dims = ebb_attr_ints(&call->attrs, "input_shape", &rank);
    int64_t p = ebb_attr_int(&call->attrs, "p", 2), n;
    if (rank != (uint32_t)m->rank || rank > EBB_MAX_RANK)
        return "input_shape does not have one entry for each axis of M";
    ebb_type wide = ebb_type_tensor((ebb_dtype)m->dtype, m->rank, dims);
    if (p < 1 || p > INT32_MAX || !ebb_type_elements(&wide, &n))
        return "p or input_shape is out of range";
    EBB_ASK(ebb_geometry_read(w, &call->attrs, &wide, dy, &call->out[0].type, false));
    if (m->dims[0] != w->batch || m->dims[1] != w->wide_channels)
        return "M does not have the images and channels of input_shape";
    for (int axis = 0; axis < EBB_AXES; axis++) {
        int from = axis - (EBB_AXES - w->spatial);
        side[axis] = from < 0 ? 1 : p;
        cells[axis] = (w->wide[axis] + side[axis] - 1) / side[axis];
        if (from >= 0 && m->dims[2 + from] != cells[axis])
            return "M does not have the cells that input_shape and p make";
    }
    return NULL;
}

const char *ebb_pool_read(ebb_geometry *w, const ebb_call *call)
{
    const ebb_type *first = &call->in[0].type, *out = &call->out[0].type;
    bool backward = call->op == EBB_OP_MAX_POOL_GRAD || call->op == EBB_OP_AVERAGE_POOL_GRAD ||
                    call->op == EBB_OP_MAX_POOL_PACKED_GRAD;
    EBB_ASK(ebb_geometry_read(w, &call->attrs, backward ? out : first, backward ? first : out, NULL,
                              false));
    if (call->op == EBB_OP_MAX_POOL_GRAD && !ebb_type_same_shape(&call->in[1].type, out))
        return "the shapes of X and of its gradient differ";
    return NULL;
}

const char *ebb_taps_misfit(const ebb_geometry *w, const ebb_call *call)
{
    bool backward = call->op == EBB_OP_MAX_POOL_PACKED_GRAD;
    const ebb_operand *taps = backward ? &call->in[1] : &call->out[1];
    int64_t bits = ebb_attr_int(&call->attrs, "bits", 8);
    int64_t count = w->batch * w->wide_channels * ebb_geometry_volume(w->narrow);
    if (bits != 1 && bits != 2 && bits != 4 && bits != 8 && bits != 16)
        return "bits is not 1, 2, 4, 8 or 16";
    int64_t room = INT64_C(1) << bits;
    for (int axis = 0; axis < EBB_AXES; axis++)
        room /= w->kernel[axis];
    if (room == 0)
        return "the window has more taps than a code can name";
    if (taps->type.dtype != EBB_U8 || taps->bytes != ((size_t)count * (size_t)bits + 7) / 8)
        return "the taps are not a code for each window";
    return NULL;
}

const char *ebb_conv_bias_misfit(const ebb_geometry *geometry, const ebb_call *call)
{
    const ebb_op first = ebb_channels_first_op(call->op);
    const ebb_op op = first != EBB_OP_UNKNOWN ? first : call->op;
    if (op == EBB_OP_CONV_WEIGHT_GRAD || !ebb_call_has(call, 2))
        return NULL;
    const int64_t channels =
        op == EBB_OP_CONV_TRANSPOSE ? geometry->wide_channels : geometry->narrow_channels;
    const ebb_type *bias = &call->in[2].type;
    return bias->rank != 1 || bias->dims[0] != channels ? "the bias has the wrong shape" : NULL;
}
