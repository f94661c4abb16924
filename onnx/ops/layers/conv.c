/* conv: Conv, ConvTranspose and the gradient of their weight.
 *
 *   X: [N, C, d...]   W: [M, C/group, k...]   Y: [N, M, o...]
 *   o = (d + pads - (k-1)*dilation - 1)/stride + 1
 *
 * The three are one bilinear form: ConvTranspose(dY, W) is Conv's gradient by X, ConvWeightGrad(dY,
 * X) the one by W; and ConvTranspose's own gradients are the same with the roles of X and dY
 * exchanged.
 *
 * Those with channels last (Nhwc) have all their tensors, the weight included, with dim 1 last.
 */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"
#include "onnx/ops/window.h"

/* ---- types ---- */

/* Ranks of X and W, and W's kernel dims. *known is false where a rank is not. */
static ebb_status look(const ebb_infer *c, const ebb_type *x, const ebb_type *weight, bool *known)
{
    *known = x->rank >= 0 && weight->rank >= 0;
    if (!*known)
        return NULL;
    if (x->rank < 3)
        return ebb_infer_error(c, "the input has rank %d; at least 3 is needed", (int)x->rank);
    if (x->rank != weight->rank)
        return ebb_infer_error(c, "the input has rank %d and the weight %d", (int)x->rank,
                               (int)weight->rank);
    if (ebb_attr_int(&c->attrs, "group", 1) < 1)
        return ebb_infer_error(c, "group is %lld", (long long)ebb_attr_int(&c->attrs, "group", 1));
    return NULL;
}

/* One element for each output channel; -1: their number is not known. */
static ebb_status check_bias(const ebb_infer *c, int64_t channels)
{
    bool biased = c->op == EBB_OP_CONV || c->op == EBB_OP_CONV_TRANSPOSE ||
                  c->op == EBB_OP_CONV_NHWC || c->op == EBB_OP_CONV_TRANSPOSE_NHWC;
    const ebb_type *bias = ebb_infer_type(c, 2);
    if (!biased || bias == NULL || bias->rank < 0) // others that use this rule have it elsewhere
        return NULL;
    if (bias->rank != 1)
        return ebb_infer_error(c, "the bias has rank %d, and must be a vector", (int)bias->rank);
    if (channels >= 0 && bias->dims[0] >= 0 && bias->dims[0] != channels)
        return ebb_infer_error(c, "the bias has %lld elements, the output %lld channels",
                               (long long)bias->dims[0], (long long)channels);
    return NULL;
}

ebb_status ebb_infer_conv(ebb_infer *c)
{
    const ebb_type *x = c->in[0], *weight = c->in[1];
    int64_t group = ebb_attr_int(&c->attrs, "group", 1);
    bool known;
    EBB_TRY(look(c, x, weight, &known));
    c->out[0] = x->rank >= 0 ? ebb_type_ranked((ebb_dtype)x->dtype, x->rank)
                             : ebb_type_unranked((ebb_dtype)x->dtype);
    if (!known)
        return NULL;
    int64_t channels;
    if (weight->dims[1] >= 0 && x->dims[1] >= 0 &&
        (__builtin_mul_overflow(weight->dims[1], group, &channels) || channels != x->dims[1]))
        return ebb_infer_error(
            c, "weight expects %lld input channels in %lld groups, the input has %lld",
            (long long)weight->dims[1], (long long)group, (long long)x->dims[1]);
    EBB_TRY(check_bias(c, weight->dims[0]));
    if (weight->dims[0] >= 0 && weight->dims[0] % group != 0)
        return ebb_infer_error(c, "%lld output channels do not divide into %lld groups",
                               (long long)weight->dims[0], (long long)group);
    ebb_window w;
    const char *wrong =
        ebb_window_resolve(&w, &c->attrs, x->rank - 2, x->dims + 2, weight->dims + 2, false);
    if (wrong != NULL)
        return ebb_infer_error(c, "%s", wrong);
    ebb_type_put_dim(&c->out[0], 0, x, 0);
    ebb_type_set_dim(&c->out[0], 1, weight->dims[0]);
    for (int i = 0; i < w.rank; i++)
        ebb_type_set_dim(&c->out[0], i + 2, w.out[i]);
    return NULL;
}

ebb_status ebb_infer_conv_transpose(ebb_infer *c)
{
    const ebb_type *x = c->in[0], *weight = c->in[1];
    int64_t group = ebb_attr_int(&c->attrs, "group", 1), channels = -1;
    bool known;
    EBB_TRY(look(c, x, weight, &known));
    c->out[0] = x->rank >= 0 ? ebb_type_ranked((ebb_dtype)x->dtype, x->rank)
                             : ebb_type_unranked((ebb_dtype)x->dtype);
    if (!known)
        return NULL;
    if (weight->dims[0] >= 0 && x->dims[1] >= 0 && weight->dims[0] != x->dims[1])
        return ebb_infer_error(c, "weight expects %lld input channels, the input has %lld",
                               (long long)weight->dims[0], (long long)x->dims[1]);
    if (weight->dims[0] >= 0 && weight->dims[0] % group != 0)
        return ebb_infer_error(c, "%lld input channels do not divide into %lld groups",
                               (long long)weight->dims[0], (long long)group);
    if (weight->dims[1] >= 0 && __builtin_mul_overflow(weight->dims[1], group, &channels))
        return ebb_infer_error(c, "the output has too many channels");
    EBB_TRY(check_bias(c, channels));
    ebb_window w;
    const char *wrong =
        ebb_window_resolve_transposed(&w, &c->attrs, x->rank - 2, x->dims + 2, weight->dims + 2);
    if (wrong != NULL)
        return ebb_infer_error(c, "%s", wrong);
    ebb_type_put_dim(&c->out[0], 0, x, 0);
    ebb_type_set_dim(&c->out[0], 1, channels);
    for (int i = 0; i < w.rank; i++)
        ebb_type_set_dim(&c->out[0], i + 2, w.out[i]);
    return NULL;
}

/* ConvWeightGrad(dY [N, M, o...], X [N, C, d...]) -> dW [M, C/group, k...]. */
ebb_status ebb_infer_conv_weight_grad(ebb_infer *c)
{
    const ebb_type *dy = c->in[0], *x = c->in[1];
    uint32_t count;
    const int64_t *kernel = ebb_attr_ints(&c->attrs, "kernel_shape", &count);
    int64_t group = ebb_attr_int(&c->attrs, "group", 1);
    if (count == 0 || count > EBB_MAX_RANK - 2)
        return ebb_infer_error(c, "kernel_shape is missing");
    if (group < 1)
        return ebb_infer_error(c, "group is %lld", (long long)group);
    ebb_type out = ebb_type_ranked((ebb_dtype)dy->dtype, (int)count + 2);
    if ((dy->rank >= 0 && dy->rank != out.rank) || (x->rank >= 0 && x->rank != out.rank))
        return ebb_infer_error(c, "inputs of rank %d and %d do not fit %u kernel dims",
                               (int)dy->rank, (int)x->rank, (unsigned)count);
    if (dy->rank >= 0)
        ebb_type_set_dim(&out, 0, dy->dims[1]);
    if (x->rank >= 0 && x->dims[1] >= 0)
        ebb_type_set_dim(&out, 1, x->dims[1] / group);
    for (uint32_t i = 0; i < count; i++) {
        if (kernel[i] < 1)
            return ebb_infer_error(c, "kernel_shape is out of range");
        ebb_type_set_dim(&out, (int)i + 2, kernel[i]);
    }
    c->out[0] = out;
    return NULL;
}

/* ConvWeightGradPooled(dY, M) {p, input_shape}: M has a cell for each p elements of an axis of X.
 */
ebb_status ebb_infer_conv_weight_grad_pooled(ebb_infer *c)
{
    EBB_TRY(ebb_infer_conv_weight_grad(c));
    const ebb_type *m = c->in[1];
    uint32_t rank;
    const int64_t *dims = ebb_attr_ints(&c->attrs, "input_shape", &rank);
    int64_t p = ebb_attr_int(&c->attrs, "p", 2);
    if (rank != (uint32_t)c->out[0].rank)
        return ebb_infer_error(c, "input_shape does not have one entry for each axis of M");
    if (p < 1 || p > EBB_WINDOW_LIMIT)
        return ebb_infer_error(c, "p is %lld", (long long)p);
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] < 0 || dims[i] > EBB_WINDOW_LIMIT)
            return ebb_infer_error(c, "dim %u of input_shape is %lld", (unsigned)i,
                                   (long long)dims[i]);
        int64_t cells = i < 2 ? dims[i] : (dims[i] + p - 1) / p;
        if (m->rank >= 0 && m->dims[i] >= 0 && m->dims[i] != cells)
            return ebb_infer_error(c, "dim %u of M is %lld, where input_shape and p make it %lld",
                                   (unsigned)i, (long long)m->dims[i], (long long)cells);
    }
    return NULL;
}

/* ---- channels last ---- */

/* The same tensor with its last dim second, or the other way round. */
static ebb_type turned(const ebb_type *type, bool last_second)
{
    ebb_type t = *type;
    for (int i = 1; i < t.rank; i++) {
        int from = last_second ? (i == 1 ? t.rank - 1 : i - 1) : (i == t.rank - 1 ? 1 : i + 1);
        t.dims[i] = type->dims[from];
        t.symbols[i] = type->symbols[from];
    }
    return t;
}

/* By the rule of the operator with channels first. */
static ebb_status infer_nhwc(ebb_infer *c, ebb_infer_fn rule)
{
    ebb_type types[2], out = c->out[0];
    const ebb_type *in[3] = {NULL};
    ebb_infer first = *c;
    for (uint32_t i = 0; i < c->input_count && i < 3; i++) {
        in[i] = c->in[i];
        if (i > 1 || in[i] == NULL || in[i]->rank < 0)
            continue;
        if (in[i]->rank != 4)
            return ebb_infer_error(c, "input %u has rank %d, and needs two spatial axes", i,
                                   (int)in[i]->rank);
        types[i] = turned(in[i], true);
        in[i] = &types[i];
    }
    first.in = in;
    first.out = &out;
    first.input_count = c->input_count < 3 ? c->input_count : 3;
    EBB_TRY(rule(&first));
    c->out[0] = turned(&out, false);
    return NULL;
}

ebb_status ebb_infer_conv_nhwc(ebb_infer *c)
{
    return infer_nhwc(c, ebb_infer_conv);
}

ebb_status ebb_infer_conv_transpose_nhwc(ebb_infer *c)
{
    return infer_nhwc(c, ebb_infer_conv_transpose);
}

ebb_status ebb_infer_conv_weight_grad_nhwc(ebb_infer *c)
{
    return infer_nhwc(c, ebb_infer_conv_weight_grad);
}

/* ---- cost ---- */

static double elements(const ebb_type *type)
{
    int64_t n;
    return type != NULL && ebb_type_elements(type, &n) ? (double)n : 0;
}

/* A multiply and an add for each (output element, input channel of its group, tap). */
double ebb_cost_conv(const ebb_infer *c)
{
    if (c->input_count < 2 || c->in[0] == NULL || c->in[1] == NULL)
        return 0;
    // The side on which each element meets every tap, and the weight.
    bool pooled = c->op == EBB_OP_CONV_WEIGHT_GRAD_POOLED;
    bool backward =
        pooled || c->op == EBB_OP_CONV_WEIGHT_GRAD || c->op == EBB_OP_CONV_WEIGHT_GRAD_NHWC;
    bool forward = c->op == EBB_OP_CONV || c->op == EBB_OP_CONV_NHWC;
    const ebb_type *weight = backward ? &c->out[0] : c->in[1];
    const ebb_type *side = forward ? &c->out[0] : c->in[0];
    if (weight->rank < 3 || weight->dims[0] <= 0)
        return 0;
    if (pooled && c->in[1]->rank >= 3 && c->in[1]->dims[1] > 0) // a cell, not an element, meets it
        return 2 * elements(c->in[1]) * (elements(weight) / (double)c->in[1]->dims[1]);
    return 2 * elements(side) * (elements(weight) / (double)weight->dims[0]);
}

/* ---- gradients ---- */

static void put_window(ebb_build *b, const ebb_window *w, int64_t group, bool output_padding)
{
    int64_t pads[2 * EBB_MAX_RANK];
    uint32_t rank = (uint32_t)w->rank;
    for (uint32_t i = 0; i < rank; i++) {
        pads[i] = w->begin[i];
        pads[i + rank] = w->end[i];
    }
    ebb_with_ints(b, "dilations", w->dilation, rank);
    ebb_with_int(b, "group", group);
    ebb_with_ints(b, "kernel_shape", w->kernel, rank);
    if (output_padding)
        ebb_with_ints(b, "output_padding", w->output_padding, rank);
    ebb_with_ints(b, "pads", pads, 2 * rank);
    ebb_with_ints(b, "strides", w->stride, rank);
}

/* The operators of one layout: where the channels are, and which read and make them. */
typedef struct layout {
    bool last;
    ebb_op conv, transpose, weight_grad;
} layout;

static const layout channels_first = {false, EBB_OP_CONV, EBB_OP_CONV_TRANSPOSE,
                                      EBB_OP_CONV_WEIGHT_GRAD};
static const layout channels_last = {true, EBB_OP_CONV_NHWC, EBB_OP_CONV_TRANSPOSE_NHWC,
                                     EBB_OP_CONV_WEIGHT_GRAD_NHWC};

/* By the operator, or the one that it begins with. */
static const layout *layout_of(const ebb_build *b, const ebb_grad *c)
{
    const ebb_op own = ebb_node_of(b->g, c->node)->op, inner = ebb_op_convolution(own);
    const ebb_op op = inner != EBB_OP_UNKNOWN ? inner : own;
    const layout *last = &channels_last;
    return op == last->conv || op == last->transpose || op == last->weight_grad ? last
                                                                                : &channels_first;
}

/* A value's type with channels first, whatever its layout. */
static ebb_type type_of(const ebb_build *b, ebb_value v, const layout *as)
{
    const ebb_type *type = ebb_build_type(b, v);
    return as->last ? turned(type, true) : *type;
}

/* db = sum of dy over all axes but the channels'. */
static ebb_value bias_grad(ebb_build *b, ebb_value dy, const layout *as)
{
    int64_t axes[EBB_MAX_RANK];
    uint32_t count = 0;
    int rank = ebb_build_type(b, dy)->rank;
    for (int i = 0; i < rank; i++)
        if (i != (as->last ? rank - 1 : 1))
            axes[count++] = i;
    return ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, dy, axes, count, false);
}

static bool sound(ebb_build *b, const ebb_grad *c, const char *wrong)
{
    if (wrong != NULL)
        ebb_build_fail(b, ebb_error(EBB_REJECTED, "%s: %s", ebb_node_label(b->g, c->node), wrong));
    return wrong == NULL;
}

/* All dims behind [N, C]: those that decide where windows lie. */
static bool spatial_is_static(const ebb_type *x)
{
    bool all = x->rank > 2;
    for (int i = 2; i < x->rank; i++)
        all = all && x->dims[i] >= 0;
    return all;
}

/* The window of a Conv, with the output_padding of the ConvTranspose that leads back: what the
 * stride left over. kernel: NULL: the attribute's. */
static bool read_window(ebb_build *b, const ebb_grad *c, const ebb_type *x, const int64_t *kernel,
                        ebb_window *w)
{
    if (!spatial_is_static(x))
        return sound(b, c, "its shapes are not known");
    if (!sound(b, c, ebb_window_resolve(w, &c->attrs, x->rank - 2, x->dims + 2, kernel, false)))
        return false;
    for (int i = 0; i < w->rank; i++) {
        int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        // floor() in the forward leaves less than a stride, so it is a legal output_padding
        w->output_padding[i] = (x->dims[i + 2] + w->begin[i] + w->end[i] - reach) % w->stride[i];
    }
    return true;
}

/* y = Conv(x, w, bias).  dx = ConvTranspose(dy, w), output_padding = what the stride left over;
 * dw = ConvWeightGrad(dy, x).  Needs w for dx, x for dw. */
void ebb_grad_conv(ebb_build *b, ebb_grad *c)
{
    const layout *as = layout_of(b, c);
    ebb_type x = type_of(b, c->x[0], as), weight = type_of(b, c->x[1], as);
    int64_t group = ebb_attr_int(&c->attrs, "group", 1);
    ebb_window w;
    if (!ebb_type_is_static(&weight)) {
        sound(b, c, "its shapes are not known");
        return;
    }
    if (!read_window(b, c, &x, weight.dims + 2, &w))
        return;
    if (c->wants[0]) {
        put_window(b, &w, group, true);
        c->dx[0] = ebb_emit(b, as->transpose, c->dy[0], c->x[1]);
    }
    if (c->wants[1]) {
        put_window(b, &w, group, false);
        c->dx[1] = ebb_emit(b, as->weight_grad, c->dy[0], c->x[0]);
    }
    if (c->input_count > 2 && c->wants[2])
        c->dx[2] = bias_grad(b, c->dy[0], as);
}

/* dw = ConvWeightGrad(dy, x), linear in both: what arrives at dw plays the part of the weight. Into
 * dy flows Conv(x, dw'), into x ConvTranspose(dy, dw'). */
void ebb_grad_conv_weight_grad(ebb_build *b, ebb_grad *c)
{
    const layout *as = layout_of(b, c);
    ebb_type x = type_of(b, c->x[1], as);
    int64_t group = ebb_attr_int(&c->attrs, "group", 1);
    ebb_window w;
    if (!read_window(b, c, &x, NULL, &w))
        return;
    if (c->wants[0]) {
        put_window(b, &w, group, false);
        c->dx[0] = ebb_emit(b, as->conv, c->x[1], c->dy[0]);
    }
    if (c->wants[1]) {
        put_window(b, &w, group, true);
        c->dx[1] = ebb_emit(b, as->transpose, c->x[0], c->dy[0]);
    }
}

/* An output_padding of a stride or more would give Conv a window too many. Its rows are first those
 * of y that pads cut off, so that Conv pads less; the others no window of x met: dy without them.
 */
static ebb_value rows_met(ebb_build *b, ebb_value dy, ebb_window *w, const layout *as)
{
    int64_t starts[EBB_MAX_RANK], ends[EBB_MAX_RANK], axes[EBB_MAX_RANK];
    ebb_type t = *ebb_build_type(b, dy);
    uint32_t count = 0;
    int first = as->last ? 1 : 2;
    for (int i = 0; i < w->rank; i++) {
        int64_t extra = w->output_padding[i] / w->stride[i] * w->stride[i];
        int64_t met = w->end[i] < extra ? w->end[i] : extra; // what pads cut off, it put back
        if (met > 0) {
            w->end[i] -= met;
            extra -= met;
        }
        if (extra == 0)
            continue;
        starts[count] = 0;
        ends[count] = t.dims[i + first] - extra;
        axes[count++] = i + first;
    }
    if (count == 0)
        return dy;
    ebb_value start = ebb_const_ints(b, starts, count), end = ebb_const_ints(b, ends, count);
    return ebb_emit(b, EBB_OP_SLICE, dy, start, end, ebb_const_ints(b, axes, count));
}

/* y = ConvTranspose(x, w, bias).  dx = Conv(dy, w); dw = ConvWeightGrad(x, dy): x plays the part of
 * the output's gradient, dy that of the input. */
void ebb_grad_conv_transpose(ebb_build *b, ebb_grad *c)
{
    const layout *as = layout_of(b, c);
    ebb_type x = type_of(b, c->x[0], as), weight = type_of(b, c->x[1], as);
    int64_t group = ebb_attr_int(&c->attrs, "group", 1);
    ebb_window w;
    if (!ebb_type_is_static(&x) || !ebb_type_is_static(&weight)) {
        sound(b, c, "its shapes are not known");
        return;
    }
    if (!sound(
            b, c,
            ebb_window_resolve_transposed(&w, &c->attrs, x.rank - 2, x.dims + 2, weight.dims + 2)))
        return;
    ebb_value met = rows_met(b, c->dy[0], &w, as);
    if (c->wants[0]) {
        put_window(b, &w, group, false);
        c->dx[0] = ebb_emit(b, as->conv, met, c->x[1]);
    }
    if (c->wants[1]) {
        put_window(b, &w, group, false);
        c->dx[1] = ebb_emit(b, as->weight_grad, c->x[0], met);
    }
    if (c->input_count > 2 && c->wants[2])
        c->dx[2] = bias_grad(b, c->dy[0], as);
}
