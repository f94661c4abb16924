/* shapes_norm.c: the graphs of batch norm: [rows, channels] as one image of rows x 1. */
#include "kernels/cuda/library/cudnn/internal.h"
#include "kernels/cuda/library/cudnn/shapes.h"

enum { RANK = 4 };

/* A new graph with what both directions have; x: of x, y and their gradients. */
static ebb_status begin(ebb_cudnn_graph **graph, ebb_cudnn_tensor *x, ebb_cudnn_tensor *channel,
                        const ebb_cudnn_batch_norm_sizes *s, const char *label)
{
    const int64_t dims[RANK] = {1, s->channels, s->rows, 1}, one[RANK] = {1, s->channels, 1, 1};
    *x = ebb_cudnn_channels_last(s->dtype, RANK, dims);
    *channel = ebb_cudnn_channels_last(EBB_F32, RANK, one);
    EBB_TRY(ebb_cudnn_graph_new(graph, label));
    (void)ebb_cudnn_real(*graph, EBB_CUDNN_X, x);
    (void)ebb_cudnn_real(*graph, EBB_CUDNN_SCALE, channel);
    (void)ebb_cudnn_real(*graph, EBB_CUDNN_MEAN, channel);
    (void)ebb_cudnn_real(*graph, EBB_CUDNN_INVSTD, channel);
    return NULL;
}

ebb_status ebb_cudnn_batch_norm_forward(ebb_cudnn_graph **graph,
                                        const ebb_cudnn_batch_norm_sizes *sizes, unsigned with)
{
    ebb_cudnn_tensor x, channel;
    ebb_cudnn_graph *g;
    *graph = NULL;
    EBB_TRY(begin(&g, &x, &channel, sizes, "batch norm forward"));
    (void)ebb_cudnn_real(g, EBB_CUDNN_BIAS, &channel);
    (void)ebb_cudnn_real(g, EBB_CUDNN_Y, &x);
    const int value = ebb_cudnn_before(g, with, &x);
    ebb_cudnn_norm_forward(g, ebb_cudnn_number(g, RANK, sizes->epsilon), value);
    ebb_cudnn_epilogue(g, with, value, &x, NULL);
    return ebb_cudnn_graph_end(graph, g);
}

/* dy as the norm's gradient takes it: where the ReLU let through. The virtual tensor has the dtype of
 * x here: with float32 cuDNN knows no kernel. */
static int masked(ebb_cudnn_graph *g, const ebb_cudnn_tensor *x, int dy, unsigned with)
{
    const ebb_cudnn_tensor bits = ebb_cudnn_as(x, EBB_BOOL);
    if ((with & EBB_CUDNN_WITH_MASK) == 0)
        return dy;
    const int through = with & EBB_CUDNN_WITH_ADDED ? ebb_cudnn_real(g, EBB_CUDNN_DADDED, x)
                                                    : ebb_cudnn_virtual(g, x);
    ebb_cudnn_point(g, CUDNN_POINTWISE_MUL, dy, ebb_cudnn_real(g, EBB_CUDNN_MASK, &bits), through);
    return through;
}

ebb_status ebb_cudnn_batch_norm_backward(ebb_cudnn_graph **graph,
                                         const ebb_cudnn_batch_norm_sizes *sizes, unsigned with)
{
    ebb_cudnn_tensor x, channel;
    ebb_cudnn_graph *g;
    *graph = NULL;
    EBB_TRY(begin(&g, &x, &channel, sizes, "batch norm backward"));
    const int dy = ebb_cudnn_real(g, EBB_CUDNN_DY, &x);
    (void)ebb_cudnn_real(g, EBB_CUDNN_DX, &x);
    (void)ebb_cudnn_real(g, EBB_CUDNN_DSCALE, &channel);
    (void)ebb_cudnn_real(g, EBB_CUDNN_DBIAS, &channel);
    ebb_cudnn_norm_backward(g, masked(g, &x, dy, with));
    return ebb_cudnn_graph_end(graph, g);
}
