/* signal: Fourier transforms, windows, mel weights: their types. */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

/* The one number of a constant input; false where it is absent or not known. */
static bool constant_number(const ebb_infer *c, uint32_t input, int64_t *value)
{
    const int64_t *list;
    int64_t count;
    if (input >= c->input_count || !ebb_infer_constant_ints(c, input, &list, &count) || count != 1)
        return false;
    *value = list[0];
    return true;
}

static bool is_given(const ebb_infer *c, uint32_t input)
{
    return input < c->input_count && c->in[input] != NULL;
}

/* (X [..., 1 or 2], length?, axis?) {inverse, onesided}; before opset 20 the axis is an attribute.
 */
ebb_status ebb_infer_dft(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    bool inverse = ebb_attr_int(&c->attrs, "inverse", 0) != 0, old = c->version < 20;
    bool onesided = ebb_attr_int(&c->attrs, "onesided", 0) != 0;
    c->out[0] = *x;
    if (x->rank < 0)
        return NULL;
    if (x->rank < 2 || x->dims[x->rank - 1] > 2)
        return ebb_infer_error(c, "the last axis does not hold real and imaginary parts");
    int64_t given = old ? ebb_attr_int(&c->attrs, "axis", 1) : -2, n = -1;
    int axis;
    bool known = old || !is_given(c, 2) || constant_number(c, 2, &given);
    ebb_type_set_dim(&c->out[0], x->rank - 1, inverse && onesided ? 1 : 2);
    if (!known) {
        for (int d = 0; d < x->rank - 1; d++)
            ebb_type_set_dim(&c->out[0], d, -1);
        return NULL;
    }
    EBB_TRY(ebb_infer_axis(c, given, x->rank, &axis));
    if (axis == x->rank - 1)
        return ebb_infer_error(c, "the axis is that of real and imaginary parts");
    if (x->dims[axis] > INT64_MAX / 4)
        return ebb_infer_error(c, "the axis is too long");
    if (!is_given(c, 1))
        n = x->dims[axis] < 0 ? -1 : inverse && onesided ? 2 * (x->dims[axis] - 1) : x->dims[axis];
    else if (constant_number(c, 1, &n) && n < 1)
        return ebb_infer_error(c, "the length is %lld", (long long)n);
    if (n < 0 && !is_given(c, 1) && !onesided)
        return NULL; // as long as X, whatever it is called
    ebb_type_set_dim(&c->out[0], axis, n < 0 ? -1 : onesided && !inverse ? n / 2 + 1 : n);
    return NULL;
}

/* (signal [batch, length, 1 or 2], step, window?, frame length?) -> [batch, frames, bins, 2]. */
ebb_status ebb_infer_stft(ebb_infer *c)
{
    const ebb_type *x = c->in[0];
    int64_t step = 0, frame = -1;
    if (x->rank >= 0 && x->rank != 3 &&
        x->rank != 2) // 2: as PyTorch's TorchScript exporter writes it
        return ebb_infer_error(c, "the signal has rank %d, not 3", (int)x->rank);
    if (is_given(c, 3)) {
        if (!constant_number(c, 3, &frame))
            frame = -1;
        else if (frame < 1)
            return ebb_infer_error(c, "the frame length is %lld", (long long)frame);
    } else if (is_given(c, 2) && c->in[2]->rank == 1) {
        frame = c->in[2]->dims[0];
    } else if (x->rank >= 2 && !is_given(c, 2)) {
        frame = x->dims[1];
    }
    bool known = constant_number(c, 1, &step);
    if (known && step < 1)
        return ebb_infer_error(c, "the step is %lld", (long long)step);
    ebb_type out = ebb_type_ranked((ebb_dtype)x->dtype, 4);
    ebb_type_set_dim(&out, 3, 2);
    bool onesided = ebb_attr_int(&c->attrs, "onesided", 1) != 0;
    ebb_type_set_dim(&out, 2, frame < 0 ? -1 : onesided ? frame / 2 + 1 : frame);
    if (x->rank >= 2) {
        ebb_type_put_dim(&out, 0, x, 0);
        if (known && frame > 0 && x->dims[1] >= 0) {
            if (frame > x->dims[1])
                return ebb_infer_error(c, "a frame of %lld is longer than the signal",
                                       (long long)frame);
            ebb_type_set_dim(&out, 1, 1 + (x->dims[1] - frame) / step);
        }
    }
    c->out[0] = out;
    return NULL;
}

/* The sum that defines each coefficient: four operations for each element of its line. */
double ebb_cost_transform(const ebb_infer *c)
{
    const ebb_type *y = &c->out[0];
    int64_t axis = c->op == EBB_OP_STFT ? 2
                   : c->version < 20    ? ebb_attr_int(&c->attrs, "axis", 1)
                                        : -2;
    double longest = 0;
    if (c->op == EBB_OP_DFT && c->version >= 20 && is_given(c, 2) && !constant_number(c, 2, &axis))
        axis = INT64_MAX; // any may be it
    axis += axis < 0 ? y->rank : 0;
    for (int d = 0; d < y->rank - 1; d++)
        if ((axis >= y->rank || d == axis) && (double)y->dims[d] > longest)
            longest = (double)y->dims[d];
    bool half = ebb_attr_int(&c->attrs, "onesided", c->op == EBB_OP_STFT) != 0;
    return 4 * ebb_type_count(y) * (half ? 2 : 1) * longest;
}

/* (size) {output_datatype, periodic} -> a window of that many numbers. */
ebb_status ebb_infer_window(ebb_infer *c)
{
    int64_t n = -1, dtype = ebb_attr_int(&c->attrs, "output_datatype", EBB_F32);
    if (dtype <= EBB_NONE || dtype >= EBB_DTYPE_COUNT)
        return ebb_infer_error(c, "output_datatype is %lld", (long long)dtype);
    if (constant_number(c, 0, &n) && n < 0)
        return ebb_infer_error(c, "the size is %lld", (long long)n);
    c->out[0] = ebb_type_tensor((ebb_dtype)dtype, 1, &n);
    return NULL;
}

/* (bins, DFT length, rate, lowest, highest) -> [length / 2 + 1, bins]. */
ebb_status ebb_infer_mel(ebb_infer *c)
{
    int64_t dims[2] = {-1, -1}, dtype = ebb_attr_int(&c->attrs, "output_datatype", EBB_F32);
    if (dtype <= EBB_NONE || dtype >= EBB_DTYPE_COUNT)
        return ebb_infer_error(c, "output_datatype is %lld", (long long)dtype);
    if (constant_number(c, 1, &dims[0])) {
        if (dims[0] < 1)
            return ebb_infer_error(c, "the length is %lld", (long long)dims[0]);
        dims[0] = dims[0] / 2 + 1;
    }
    if (constant_number(c, 0, &dims[1]) && dims[1] < 1)
        return ebb_infer_error(c, "%lld bins are asked for", (long long)dims[1]);
    c->out[0] = ebb_type_tensor((ebb_dtype)dtype, 2, dims);
    return NULL;
}
