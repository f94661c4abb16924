/* shapes_norm.c: the graphs of batch norm, layer norm and RMS norm. */
#include "kernels/cuda/library/cudnn/shapes.h"

enum { RANK = 5 };

static ebb_status end(ebb_cudnn_graph **out, ebb_cudnn_graph *graph)
{
    ebb_status status = ebb_cudnn_graph_end(graph);
    *out = status == NULL ? graph : NULL;
    if (status != NULL)
        ebb_cudnn_graph_free(graph);
    return status;
}

/* ---- batch norm ---- */

typedef struct bn_tensors {
    ebb_cudnn_tensor x, bits, inner, channel; /* inner: float32 like x; channel: [1, C, 1, 1] */
    int rank;
} bn_tensors;

static ebb_status describe(bn_tensors *t, const ebb_cudnn_batch_norm_sizes *s)
{
    int64_t dims[RANK] = {s->batch, s->channels}, ones[RANK] = {1, s->channels, 1, 1, 1};
    if (s->spatial < 0 || s->spatial > EBB_CUDNN_AXES)
        return ebb_error(EBB_REJECTED, "batch norm: %d spatial axes; cuDNN takes up to 3",
                         s->spatial);
    int axes = s->spatial < 2 ? 2 : s->spatial, missing = axes - s->spatial;
    for (int i = 0; i < axes; i++)
        dims[2 + i] = i < missing ? 1 : s->in[i - missing];
    t->rank = axes + 2;
    t->x = s->channels_last ? ebb_cudnn_channels_last(s->dtype, t->rank, dims)
                            : ebb_cudnn_rows(s->dtype, t->rank, dims);
    t->channel = ebb_cudnn_channels_last(EBB_F32, t->rank, ones);
    t->inner = t->bits = t->x;
    t->inner.dtype = EBB_F32;
    t->bits.dtype = EBB_BOOL;
    return NULL;
}

/* y, or a virtual tensor where more follows. */
static int result(ebb_cudnn_graph *g, const bn_tensors *t, int y, bool more)
{
    return more ? ebb_cudnn_virtual(g, &t->inner) : y;
}

ebb_status ebb_cudnn_batch_norm_forward(ebb_cudnn_graph **graph,
                                        const ebb_cudnn_batch_norm_sizes *sizes, unsigned with)
{
    bn_tensors t;
    *graph = NULL;
    EBB_TRY(describe(&t, sizes));
    ebb_cudnn_graph *g = ebb_cudnn_graph_new("batch norm forward");
    bool add = (with & EBB_CUDNN_WITH_ADD) != 0, relu = (with & EBB_CUDNN_WITH_RELU) != 0;
    int y = ebb_cudnn_real(g, EBB_CUDNN_Y, &t.x);
    ebb_cudnn_norm norm = {.kind = EBB_CUDNN_BATCH_NORM, .training = true};
    norm.x = ebb_cudnn_real(g, EBB_CUDNN_X, &t.x);
    norm.scale = ebb_cudnn_real(g, EBB_CUDNN_SCALE, &t.channel);
    norm.bias = ebb_cudnn_real(g, EBB_CUDNN_BIAS, &t.channel);
    norm.mean = ebb_cudnn_real(g, EBB_CUDNN_MEAN, &t.channel);
    norm.invstd = ebb_cudnn_real(g, EBB_CUDNN_INVSTD, &t.channel);
    norm.epsilon = ebb_cudnn_number(g, t.rank, sizes->epsilon);
    if (with & EBB_CUDNN_WITH_RUNNING) {
        norm.momentum = ebb_cudnn_number(g, t.rank, sizes->momentum);
        norm.running_mean = ebb_cudnn_real(g, EBB_CUDNN_RUNNING_MEAN, &t.channel);
        norm.running_var = ebb_cudnn_real(g, EBB_CUDNN_RUNNING_VAR, &t.channel);
        norm.next_mean = ebb_cudnn_real(g, EBB_CUDNN_NEXT_MEAN, &t.channel);
        norm.next_var = ebb_cudnn_real(g, EBB_CUDNN_NEXT_VAR, &t.channel);
    }
    norm.y = result(g, &t, y, add || relu);
    ebb_cudnn_norm_forward(g, &norm);
    int value = norm.y;
    if (add) {
        int sum = result(g, &t, y, relu);
        ebb_cudnn_binary(g, EBB_CUDNN_ADD, value, ebb_cudnn_real(g, EBB_CUDNN_ADDED, &t.x), sum);
        value = sum;
    }
    if (relu)
        ebb_cudnn_unary(g, EBB_CUDNN_RELU, value, y);
    if (with & EBB_CUDNN_WITH_MASK) /* of what is stored: asking the value before it is refused */
        ebb_cudnn_binary(g, EBB_CUDNN_GREATER, y, ebb_cudnn_number(g, t.rank, 0),
                         ebb_cudnn_real(g, EBB_CUDNN_MASK, &t.bits));
    return end(graph, g);
}

/* dy as the norm's gradient takes it: where the ReLU let through, by its mask or found again. The
 * virtual tensors have the dtype of x here: with float32 cuDNN knows no kernel. */
static int masked(ebb_cudnn_graph *g, const bn_tensors *t, const ebb_cudnn_norm_back *back,
                  unsigned with)
{
    int dy = back->dy;
    if (with & EBB_CUDNN_WITH_MASK) {
        int through = with & EBB_CUDNN_WITH_ADDED ? ebb_cudnn_real(g, EBB_CUDNN_DADDED, &t->x)
                                                  : ebb_cudnn_virtual(g, &t->x);
        ebb_cudnn_binary(g, EBB_CUDNN_MUL, dy, ebb_cudnn_real(g, EBB_CUDNN_MASK, &t->bits),
                         through);
        return through;
    }
    if (with & EBB_CUDNN_WITH_RELU) {
        int y = ebb_cudnn_virtual(g, &t->x), through = ebb_cudnn_virtual(g, &t->x);
        ebb_cudnn_norm again = {.kind = EBB_CUDNN_BATCH_NORM,
                                .x = back->x,
                                .scale = back->scale,
                                .bias = ebb_cudnn_real(g, EBB_CUDNN_BIAS, &t->channel),
                                .mean = back->mean,
                                .invstd = back->invstd,
                                .y = y};
        ebb_cudnn_norm_forward(g, &again);
        ebb_cudnn_derivative(g, EBB_CUDNN_RELU_BACKWARD, dy, y, through);
        return through;
    }
    return dy;
}

ebb_status ebb_cudnn_batch_norm_backward(ebb_cudnn_graph **graph,
                                         const ebb_cudnn_batch_norm_sizes *sizes, unsigned with)
{
    bn_tensors t;
    *graph = NULL;
    EBB_TRY(describe(&t, sizes));
    ebb_cudnn_graph *g = ebb_cudnn_graph_new("batch norm backward");
    ebb_cudnn_norm_back back = {.kind = EBB_CUDNN_BATCH_NORM};
    back.x = ebb_cudnn_real(g, EBB_CUDNN_X, &t.x);
    back.dy = ebb_cudnn_real(g, EBB_CUDNN_DY, &t.x);
    back.scale = ebb_cudnn_real(g, EBB_CUDNN_SCALE, &t.channel);
    back.mean = ebb_cudnn_real(g, EBB_CUDNN_MEAN, &t.channel);
    back.invstd = ebb_cudnn_real(g, EBB_CUDNN_INVSTD, &t.channel);
    back.dx = ebb_cudnn_real(g, EBB_CUDNN_DX, &t.x);
    back.dscale = ebb_cudnn_real(g, EBB_CUDNN_DSCALE, &t.channel);
    back.dbias = ebb_cudnn_real(g, EBB_CUDNN_DBIAS, &t.channel);
    back.dy = masked(g, &t, &back, with);
    ebb_cudnn_norm_backward(g, &back);
    return end(graph, g);
}

/* ---- norms of rows ---- */

typedef struct row_tensors {
    ebb_cudnn_tensor x, inner, column,
        row; /* [rows, columns, 1, 1], [1, columns, ..], [rows, 1, ..] */
} row_tensors;

static row_tensors describe_rows(const ebb_cudnn_rows_norm_sizes *s)
{
    const int64_t all[4] = {s->rows, s->columns, 1, 1}, column[4] = {1, s->columns, 1, 1},
                  row[4] = {s->rows, 1, 1, 1};
    return (row_tensors){.x = ebb_cudnn_rows(s->dtype, 4, all),
                         .inner = ebb_cudnn_rows(EBB_F32, 4, all),
                         .column = ebb_cudnn_rows(s->parameters, 4, column),
                         .row = ebb_cudnn_rows(EBB_F32, 4, row)};
}

ebb_status ebb_cudnn_rows_norm_forward(ebb_cudnn_graph **graph,
                                       const ebb_cudnn_rows_norm_sizes *sizes, unsigned with)
{
    row_tensors t = describe_rows(sizes);
    ebb_cudnn_graph *g =
        ebb_cudnn_graph_new(sizes->rms ? "RMS norm forward" : "layer norm forward");
    ebb_cudnn_norm norm = {.kind = sizes->rms ? EBB_CUDNN_RMS_NORM : EBB_CUDNN_LAYER_NORM,
                           .training = true};
    *graph = NULL;
    norm.x = ebb_cudnn_real(g, EBB_CUDNN_X, &t.x);
    if (with & EBB_CUDNN_WITH_ADD) {
        int sum = ebb_cudnn_virtual(g, &t.inner);
        ebb_cudnn_binary(g, EBB_CUDNN_ADD, norm.x, ebb_cudnn_real(g, EBB_CUDNN_ADDED, &t.x), sum);
        norm.x = sum;
    }
    norm.scale = ebb_cudnn_real(g, EBB_CUDNN_SCALE, &t.column);
    norm.bias = sizes->rms ? 0 : ebb_cudnn_real(g, EBB_CUDNN_BIAS, &t.column);
    norm.mean = sizes->rms ? 0 : ebb_cudnn_real(g, EBB_CUDNN_MEAN, &t.row);
    norm.invstd = ebb_cudnn_real(g, EBB_CUDNN_INVSTD, &t.row);
    norm.epsilon = ebb_cudnn_number(g, 4, sizes->epsilon);
    norm.y = ebb_cudnn_real(g, EBB_CUDNN_Y, &t.x);
    ebb_cudnn_norm_forward(g, &norm);
    return end(graph, g);
}

ebb_status ebb_cudnn_rows_norm_backward(ebb_cudnn_graph **graph,
                                        const ebb_cudnn_rows_norm_sizes *sizes)
{
    row_tensors t = describe_rows(sizes);
    ebb_cudnn_graph *g =
        ebb_cudnn_graph_new(sizes->rms ? "RMS norm backward" : "layer norm backward");
    ebb_cudnn_norm_back back = {.kind = sizes->rms ? EBB_CUDNN_RMS_NORM : EBB_CUDNN_LAYER_NORM};
    *graph = NULL;
    back.x = ebb_cudnn_real(g, EBB_CUDNN_X, &t.x);
    back.dy = ebb_cudnn_real(g, EBB_CUDNN_DY, &t.x);
    back.scale = ebb_cudnn_real(g, EBB_CUDNN_SCALE, &t.column);
    back.mean = sizes->rms ? 0 : ebb_cudnn_real(g, EBB_CUDNN_MEAN, &t.row);
    back.invstd = ebb_cudnn_real(g, EBB_CUDNN_INVSTD, &t.row);
    back.dx = ebb_cudnn_real(g, EBB_CUDNN_DX, &t.x);
    back.dscale = ebb_cudnn_real(g, EBB_CUDNN_DSCALE, &t.column);
    back.dbias = sizes->rms ? 0 : ebb_cudnn_real(g, EBB_CUDNN_DBIAS, &t.column);
    ebb_cudnn_norm_backward(g, &back);
    return end(graph, g);
}
