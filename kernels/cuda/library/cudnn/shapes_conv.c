/* shapes_conv.c: the graphs of convolutions and pools. */
#include "kernels/cuda/library/cudnn/internal.h"
#include "kernels/cuda/library/cudnn/shapes.h"

/* ---- sizes ---- */

static ebb_status positive(const char *what, const int64_t *values, int count)
{
    for (int i = 0; i < count; i++)
        if (values[i] <= 0 || values[i] > INT32_MAX)
            return ebb_error(EBB_REJECTED, "%s: %lld is no size that cuDNN can take", what,
                             (long long)values[i]);
    return NULL;
}

/* One spatial axis becomes two, of which the first has size 1. */
static ebb_cudnn_conv_sizes at_least_two_axes(const ebb_cudnn_conv_sizes *given)
{
    ebb_cudnn_conv_sizes s = *given;
    if (s.window.spatial != 1)
        return s;
    s.window.spatial = 2;
    s.in[1] = s.in[0];
    s.kernel[1] = s.kernel[0];
    s.window.stride[1] = s.window.stride[0];
    s.window.dilation[1] = s.window.dilation[0];
    s.window.before[1] = s.window.before[0];
    s.window.after[1] = s.window.after[0];
    s.in[0] = s.kernel[0] = s.window.stride[0] = s.window.dilation[0] = 1;
    s.window.before[0] = s.window.after[0] = 0;
    return s;
}

ebb_status ebb_cudnn_conv_out(const ebb_cudnn_conv_sizes *sizes, int64_t out[EBB_CUDNN_AXES])
{
    const ebb_cudnn_window *w = &sizes->window;
    const int64_t counts[4] = {sizes->batch, sizes->channels, sizes->filters, sizes->groups};
    EBB_TRY(positive("convolution", counts, 4));
    if (w->spatial < 1 || w->spatial > EBB_CUDNN_AXES || sizes->channels % sizes->groups != 0 ||
        sizes->filters % sizes->groups != 0)
        return ebb_error(EBB_REJECTED,
                         "convolution: %d axes, %lld channels and %lld filters in %lld groups do "
                         "not fit together",
                         w->spatial, (long long)sizes->channels, (long long)sizes->filters,
                         (long long)sizes->groups);
    for (int i = 0; i < w->spatial; i++) {
        const int64_t axis[4] = {sizes->in[i], sizes->kernel[i], w->stride[i], w->dilation[i]};
        EBB_TRY(positive("convolution", axis, 4));
        if (w->before[i] < 0 || w->after[i] < 0 || w->before[i] > INT32_MAX ||
            w->after[i] > INT32_MAX)
            return ebb_error(EBB_REJECTED, "convolution: padding %lld, %lld", //
                             (long long)w->before[i], (long long)w->after[i]);
        /* Each factor is below 2^31: nothing here overflows 63 bits. */
        int64_t room = axis[0] + w->before[i] + w->after[i] - (axis[1] - 1) * axis[3] - 1;
        if (room < 0)
            return ebb_error(EBB_REJECTED, "convolution: a kernel of %lld does not fit into %lld",
                             (long long)axis[1], (long long)axis[0]);
        out[i] = room / axis[2] + 1;
    }
    return NULL;
}

static ebb_cudnn_tensor tensor(ebb_dtype dtype, bool channels_last, int64_t n, int64_t c, int axes,
                               const int64_t *spatial)
{
    int64_t dims[EBB_CUDNN_RANK] = {n, c};
    for (int i = 0; i < axes; i++)
        dims[2 + i] = spatial[i];
    return channels_last ? ebb_cudnn_channels_last(dtype, axes + 2, dims)
                         : ebb_cudnn_rows(dtype, axes + 2, dims);
}

typedef struct conv_tensors {
    ebb_cudnn_conv_sizes s;
    ebb_cudnn_tensor x, w, y;
} conv_tensors;

static ebb_status describe(conv_tensors *t, const ebb_cudnn_conv_sizes *sizes)
{
    const ebb_cudnn_conv_sizes *s = &t->s;
    int64_t out[EBB_CUDNN_AXES];
    t->s = at_least_two_axes(sizes);
    EBB_TRY(ebb_cudnn_conv_out(s, out));
    const int axes = s->window.spatial;
    t->x = tensor(s->dtype, s->channels_last, s->batch, s->channels, axes, s->in);
    t->w = tensor(s->dtype, s->channels_last, s->filters, s->channels / s->groups, axes, s->kernel);
    t->y = tensor(s->dtype, s->channels_last, s->batch, s->filters, axes, out);
    return NULL;
}

/* ---- convolutions ---- */

ebb_status ebb_cudnn_conv_forward(ebb_cudnn_graph **graph, const ebb_cudnn_conv_sizes *sizes,
                                  unsigned with)
{
    static const int64_t none[EBB_CUDNN_AXES] = {1, 1, 1};
    conv_tensors t;
    ebb_cudnn_graph *g;
    *graph = NULL;
    EBB_TRY(describe(&t, sizes));
    EBB_TRY(ebb_cudnn_graph_new(&g, "convolution forward"));
    const ebb_cudnn_tensor bias =
        tensor(t.s.dtype, t.s.channels_last, 1, t.s.filters, t.s.window.spatial, none);
    const int x = ebb_cudnn_real(g, EBB_CUDNN_X, &t.x), w = ebb_cudnn_real(g, EBB_CUDNN_W, &t.w);
    (void)ebb_cudnn_real(g, EBB_CUDNN_Y, &t.y);
    const int value = ebb_cudnn_before(g, with, &t.y);
    ebb_cudnn_convolution(g, EBB_CUDNN_FORWARD, &t.s.window, x, w, value);
    ebb_cudnn_epilogue(g, with, value, &t.y, &bias);
    return ebb_cudnn_graph_end(graph, g);
}

static ebb_status gradient(ebb_cudnn_graph **graph, const ebb_cudnn_conv_sizes *sizes,
                           ebb_cudnn_direction direction, const char *label)
{
    const bool data = direction == EBB_CUDNN_BACKWARD_DATA;
    conv_tensors t;
    ebb_cudnn_graph *g;
    *graph = NULL;
    EBB_TRY(describe(&t, sizes));
    EBB_TRY(ebb_cudnn_graph_new(&g, label));
    const int x = ebb_cudnn_real(g, data ? EBB_CUDNN_DX : EBB_CUDNN_X, &t.x);
    const int w = ebb_cudnn_real(g, data ? EBB_CUDNN_W : EBB_CUDNN_DW, &t.w);
    const int dy = ebb_cudnn_real(g, EBB_CUDNN_DY, &t.y);
    ebb_cudnn_convolution(g, direction, &t.s.window, x, w, dy);
    return ebb_cudnn_graph_end(graph, g);
}

ebb_status ebb_cudnn_conv_backward_data(ebb_cudnn_graph **graph, const ebb_cudnn_conv_sizes *sizes)
{
    return gradient(graph, sizes, EBB_CUDNN_BACKWARD_DATA, "convolution backward data");
}

ebb_status ebb_cudnn_conv_backward_filter(ebb_cudnn_graph **graph,
                                          const ebb_cudnn_conv_sizes *sizes)
{
    return gradient(graph, sizes, EBB_CUDNN_BACKWARD_FILTER, "convolution backward filter");
}

/* ---- pools ---- */

ebb_status ebb_cudnn_pooling(ebb_cudnn_graph **graph, const ebb_cudnn_pool_sizes *s, bool backward)
{
    const int64_t counts[2] = {s->batch, s->channels};
    const int axes = s->window.spatial;
    ebb_cudnn_graph *g;
    *graph = NULL;
    EBB_TRY(positive("pool", counts, 2));
    EBB_TRY(positive("pool", s->window.size, axes));
    EBB_TRY(positive("pool", s->window.stride, axes));
    EBB_TRY(ebb_cudnn_graph_new(&g, backward ? "pool backward" : "pool forward"));
    const ebb_cudnn_tensor wide =
        tensor(s->dtype, s->channels_last, s->batch, s->channels, axes, s->in);
    const ebb_cudnn_tensor narrow =
        tensor(s->dtype, s->channels_last, s->batch, s->channels, axes, s->out);
    const int x = ebb_cudnn_real(g, backward ? EBB_CUDNN_DX : EBB_CUDNN_X, &wide);
    const int y = ebb_cudnn_real(g, backward ? EBB_CUDNN_DY : EBB_CUDNN_Y, &narrow);
    ebb_cudnn_pool(g, s->kind, &s->window, backward, x, y);
    return ebb_cudnn_graph_end(graph, g);
}
