/* shapes_conv.c: the graphs of convolutions and pools. */
#include "kernels/cuda/library/cudnn/shapes.h"

enum { RANK = 5 }; /* at most: N, C and three spatial axes */

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
    int64_t dims[RANK] = {n, c};
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
    int64_t out[EBB_CUDNN_AXES];
    EBB_TRY(ebb_cudnn_conv_out(sizes, out));
    t->s = at_least_two_axes(sizes);
    EBB_TRY(ebb_cudnn_conv_out(&t->s, out));
    const ebb_cudnn_conv_sizes *s = &t->s;
    int axes = s->window.spatial;
    t->x = tensor(s->dtype, s->channels_last, s->batch, s->channels, axes, s->in);
    t->w = tensor(s->dtype, s->channels_last, s->filters, s->channels / s->groups, axes, s->kernel);
    t->y = tensor(s->dtype, s->channels_last, s->batch, s->filters, axes, out);
    return NULL;
}

static ebb_cudnn_tensor as(const ebb_cudnn_tensor *tensor, ebb_dtype dtype)
{
    ebb_cudnn_tensor t = *tensor;
    t.dtype = dtype;
    return t;
}

/* Ends a graph into *out, or frees it. */
static ebb_status end(ebb_cudnn_graph **out, ebb_cudnn_graph *graph)
{
    ebb_status status = ebb_cudnn_graph_end(graph);
    *out = status == NULL ? graph : NULL;
    if (status != NULL)
        ebb_cudnn_graph_free(graph);
    return status;
}

/* ---- convolutions ---- */

ebb_status ebb_cudnn_conv_forward(ebb_cudnn_graph **graph, const ebb_cudnn_conv_sizes *sizes,
                                  unsigned with)
{
    static const int64_t none[EBB_CUDNN_AXES] = {1, 1, 1};
    conv_tensors t;
    *graph = NULL;
    EBB_TRY(describe(&t, sizes));
    ebb_cudnn_graph *g = ebb_cudnn_graph_new("convolution forward");
    const ebb_cudnn_tensor inner = as(&t.y, EBB_F32), bits = as(&t.y, EBB_BOOL);
    bool alone = (with & (EBB_CUDNN_WITH_BIAS | EBB_CUDNN_WITH_ADD | EBB_CUDNN_WITH_RELU)) == 0;
    int x = ebb_cudnn_real(g, EBB_CUDNN_X, &t.x), w = ebb_cudnn_real(g, EBB_CUDNN_W, &t.w);
    int y = ebb_cudnn_real(g, EBB_CUDNN_Y, &t.y);
    int value = alone ? y : ebb_cudnn_virtual(g, &inner);
    ebb_cudnn_convolution(g, EBB_CUDNN_FORWARD, &t.s.window, x, w, value);
    if (with & EBB_CUDNN_WITH_BIAS) {
        ebb_cudnn_tensor b =
            tensor(t.s.dtype, t.s.channels_last, 1, t.s.filters, t.s.window.spatial, none);
        bool last = (with & (EBB_CUDNN_WITH_ADD | EBB_CUDNN_WITH_RELU)) == 0;
        int sum = last ? y : ebb_cudnn_virtual(g, &inner);
        ebb_cudnn_binary(g, EBB_CUDNN_ADD, value, ebb_cudnn_real(g, EBB_CUDNN_BIAS, &b), sum);
        value = sum;
    }
    if (with & EBB_CUDNN_WITH_ADD) {
        int sum = (with & EBB_CUDNN_WITH_RELU) == 0 ? y : ebb_cudnn_virtual(g, &inner);
        ebb_cudnn_binary(g, EBB_CUDNN_ADD, value, ebb_cudnn_real(g, EBB_CUDNN_ADDED, &t.y), sum);
        value = sum;
    }
    if (with & EBB_CUDNN_WITH_RELU)
        ebb_cudnn_unary(g, EBB_CUDNN_RELU, value, y);
    if (with & EBB_CUDNN_WITH_MASK)
        ebb_cudnn_binary(g, EBB_CUDNN_GREATER, y, ebb_cudnn_number(g, t.s.window.spatial + 2, 0),
                         ebb_cudnn_real(g, EBB_CUDNN_MASK, &bits));
    return end(graph, g);
}

ebb_status ebb_cudnn_conv_backward_data(ebb_cudnn_graph **graph, const ebb_cudnn_conv_sizes *sizes,
                                        unsigned with)
{
    conv_tensors t;
    *graph = NULL;
    EBB_TRY(describe(&t, sizes));
    ebb_cudnn_graph *g = ebb_cudnn_graph_new("convolution backward data");
    const ebb_cudnn_tensor inner = as(&t.x, EBB_F32), bits = as(&t.x, EBB_BOOL);
    bool masked = (with & EBB_CUDNN_WITH_MASK) != 0;
    int dy = ebb_cudnn_real(g, EBB_CUDNN_DY, &t.y), w = ebb_cudnn_real(g, EBB_CUDNN_W, &t.w);
    int dx = ebb_cudnn_real(g, EBB_CUDNN_DX, &t.x);
    int value = masked ? ebb_cudnn_virtual(g, &inner) : dx;
    ebb_cudnn_convolution(g, EBB_CUDNN_BACKWARD_DATA, &t.s.window, value, w, dy);
    if (masked)
        ebb_cudnn_binary(g, EBB_CUDNN_MUL, value, ebb_cudnn_real(g, EBB_CUDNN_MASK, &bits), dx);
    return end(graph, g);
}

ebb_status ebb_cudnn_conv_backward_filter(ebb_cudnn_graph **graph,
                                          const ebb_cudnn_conv_sizes *sizes, unsigned with)
{
    conv_tensors t;
    *graph = NULL;
    EBB_TRY(describe(&t, sizes));
    ebb_cudnn_graph *g = ebb_cudnn_graph_new("convolution backward filter");
    const ebb_cudnn_tensor precise = as(&t.w, EBB_F32);
    /* A float32 result of narrower operands is refused, but not when it first is a virtual tensor
     * and then is copied. */
    bool wide = (with & EBB_CUDNN_WITH_FLOAT) != 0 && t.s.dtype != EBB_F32;
    int x = ebb_cudnn_real(g, EBB_CUDNN_X, &t.x), dy = ebb_cudnn_real(g, EBB_CUDNN_DY, &t.y);
    int dw = ebb_cudnn_real(g, EBB_CUDNN_DW, wide ? &precise : &t.w);
    int value = wide ? ebb_cudnn_virtual(g, &precise) : dw;
    ebb_cudnn_convolution(g, EBB_CUDNN_BACKWARD_FILTER, &t.s.window, x, value, dy);
    if (wide)
        ebb_cudnn_unary(g, EBB_CUDNN_IDENTITY, value, dw);
    return end(graph, g);
}

/* ---- pools ---- */

static ebb_status pool_tensors(ebb_cudnn_tensor *x, ebb_cudnn_tensor *y,
                               const ebb_cudnn_pool_sizes *s)
{
    const int64_t counts[2] = {s->batch, s->channels};
    int axes = s->window.spatial;
    EBB_TRY(positive("pool", counts, 2));
    if (axes < 2 || axes > EBB_CUDNN_AXES)
        return ebb_error(EBB_REJECTED, "pool: %d spatial axes; cuDNN takes 2 or 3", axes);
    EBB_TRY(positive("pool", s->in, axes));
    EBB_TRY(positive("pool", s->out, axes));
    EBB_TRY(positive("pool", s->window.size, axes));
    EBB_TRY(positive("pool", s->window.stride, axes));
    *x = tensor(s->dtype, s->channels_last, s->batch, s->channels, axes, s->in);
    *y = tensor(s->dtype, s->channels_last, s->batch, s->channels, axes, s->out);
    return NULL;
}

ebb_status ebb_cudnn_pool_forward(ebb_cudnn_graph **graph, const ebb_cudnn_pool_sizes *sizes,
                                  bool index)
{
    ebb_cudnn_tensor x, y;
    *graph = NULL;
    EBB_TRY(pool_tensors(&x, &y, sizes));
    ebb_cudnn_graph *g = ebb_cudnn_graph_new("pool forward");
    const ebb_cudnn_tensor places = as(&y, EBB_I8);
    ebb_cudnn_pool(g, sizes->kind, &sizes->window, ebb_cudnn_real(g, EBB_CUDNN_X, &x),
                   ebb_cudnn_real(g, EBB_CUDNN_Y, &y),
                   index ? ebb_cudnn_real(g, EBB_CUDNN_INDEX, &places) : 0);
    return end(graph, g);
}

ebb_status ebb_cudnn_pool_gradient(ebb_cudnn_graph **graph, const ebb_cudnn_pool_sizes *sizes)
{
    ebb_cudnn_tensor x, y;
    *graph = NULL;
    EBB_TRY(pool_tensors(&x, &y, sizes));
    ebb_cudnn_graph *g = ebb_cudnn_graph_new("pool backward");
    const ebb_cudnn_tensor places = as(&y, EBB_I8);
    ebb_cudnn_pool_backward(
        g, sizes->kind, &sizes->window, ebb_cudnn_real(g, EBB_CUDNN_DY, &y),
        ebb_cudnn_real(g, EBB_CUDNN_DX, &x),
        sizes->kind == EBB_CUDNN_MAX_POOL ? ebb_cudnn_real(g, EBB_CUDNN_INDEX, &places) : 0);
    return end(graph, g);
}
