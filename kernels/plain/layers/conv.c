/* conv.c: Conv, ConvTranspose, ConvWeightGrad, with channels first or last, and
 * ConvWeightGradPooled, one multiplication at a time.
 *
 * All three are one bilinear form in (wide, narrow, weight), see geometry.h: Conv computes narrow,
 * ConvTranspose (the input gradient of Conv) wide, ConvWeightGrad weight. Sums are in double: this
 * is what the fast kernels are tested against.
 */
#include "kernels/plain/plain.h"
#include "kernels/call/geometry.h"

/* The window whose tap k lies on element i of the wide tensor; -1 where there is none. */
static int64_t window_of_tap(const ebb_geometry *w, int64_t i, int64_t k)
{
    int64_t o[EBB_AXES];
    for (int axis = EBB_AXES - 1; axis >= 0; axis--) {
        int64_t start =
            i % w->wide[axis] + w->pad_begin[axis] - k % w->kernel[axis] * w->dilation[axis];
        i /= w->wide[axis];
        k /= w->kernel[axis];
        o[axis] = start / w->stride[axis];
        if (start < 0 || start % w->stride[axis] != 0 || o[axis] >= w->narrow[axis])
            return -1;
    }
    return (o[0] * w->narrow[1] + o[1]) * w->narrow[2] + o[2];
}

typedef struct pooled { /* cells of ConvWeightGradPooled */
    int64_t side[EBB_AXES], cells[EBB_AXES];
} pooled;

/* The cell of element i of the wide tensor's channel. */
static int64_t cell_of(const ebb_geometry *w, const pooled *p, int64_t i)
{
    int64_t cell = 0, place = 1;
    for (int axis = EBB_AXES - 1; axis >= 0; axis--) {
        cell += i % w->wide[axis] / p->side[axis] * place;
        place *= p->cells[axis];
        i /= w->wide[axis];
    }
    return cell;
}

/* Elements from one channel to the next, and from one place to the next; of the weight, from one
 * input channel and from one tap to the next. */
typedef struct steps {
    int64_t wide_channel, wide_place, narrow_channel, narrow_place, channel, tap;
} steps;

static steps steps_of(const ebb_geometry *w, bool last)
{
    if (last)
        return (steps){1, w->wide_channels, 1, w->narrow_channels, 1, w->wide_channels / w->groups};
    return (steps){ebb_geometry_volume(w->wide),   1, ebb_geometry_volume(w->narrow), 1,
                   ebb_geometry_volume(w->kernel), 1};
}

#define LOOPS "kernels/plain/layers/conv_loops.inc"
#include "kernels/plain/both_floats.inc"

static const char *misfit(const ebb_call *call)
{
    ebb_channels_view view;
    if (ebb_channels_first_op(call->op) != EBB_OP_UNKNOWN) {
        const char *mixed = ebb_channels_first_read(&view, call);
        if (mixed != NULL)
            return mixed;
        call = &view.call;
    }
    ebb_geometry w;
    pooled p;
    if (call->op == EBB_OP_CONV_WEIGHT_GRAD_POOLED)
        return ebb_pooled_read(&w, p.side, p.cells, call);
    EBB_ASK(ebb_conv_read(&w, call));
    return ebb_conv_bias_misfit(&w, call);
}

static ebb_status run(const ebb_call *call)
{
    ebb_geometry w;
    EBB_MUST_FIT(call, ebb_conv_read(&w, call));
    const void *first = call->in[0].data, *second = call->in[1].data;
    const void *bias = call->input_count > 2 ? call->in[2].data : NULL;
    void *out = call->out[0].data;
    ebb_op op = ebb_channels_first_op(call->op);
    bool last = op != EBB_OP_UNKNOWN;
    switch (last ? op : call->op) {
    case EBB_OP_CONV:
        EBB_BY_FLOAT(call->out[0], convolve, &w, out, first, second, bias, last);
        break;
    case EBB_OP_CONV_TRANSPOSE:
        EBB_BY_FLOAT(call->out[0], deconvolve, &w, out, first, second, bias, last);
        break;
    default:
        EBB_BY_FLOAT(call->out[0], weight_grad, &w, NULL, out, first, second, last);
        break;
    }
    return NULL;
}

static ebb_status run_pooled(const ebb_call *call)
{
    ebb_geometry w;
    pooled p;
    EBB_MUST_FIT(call, ebb_pooled_read(&w, p.side, p.cells, call));
    EBB_BY_FLOAT(call->out[0], weight_grad, &w, &p, call->out[0].data, call->in[0].data,
                 call->in[1].data, false);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_conv[] = {
    {.name = "plain.conv",                    .op = EBB_OP_CONV,                    .dtypes = ebb_plain_floats, .fits = misfit, .run = run},
    {.name = "plain.conv_transpose",          .op = EBB_OP_CONV_TRANSPOSE,          .dtypes = ebb_plain_floats, .fits = misfit, .run = run},
    {.name = "plain.conv_weight_grad",        .op = EBB_OP_CONV_WEIGHT_GRAD,        .dtypes = ebb_plain_floats, .fits = misfit, .run = run},
    {.name = "plain.conv_nhwc",               .op = EBB_OP_CONV_NHWC,               .dtypes = ebb_plain_floats, .fits = misfit, .run = run},
    {.name = "plain.conv_transpose_nhwc",     .op = EBB_OP_CONV_TRANSPOSE_NHWC,     .dtypes = ebb_plain_floats, .fits = misfit, .run = run},
    {.name = "plain.conv_weight_grad_nhwc",   .op = EBB_OP_CONV_WEIGHT_GRAD_NHWC,   .dtypes = ebb_plain_floats, .fits = misfit, .run = run},
    {.name = "plain.conv_weight_grad_pooled", .op = EBB_OP_CONV_WEIGHT_GRAD_POOLED, .dtypes = ebb_plain_floats, .fits = misfit, .run = run_pooled},
};
// clang-format on
EBB_PLAIN_COUNT(conv)
