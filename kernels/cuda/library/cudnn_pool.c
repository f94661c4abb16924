/* cudnn_pool.c: MaxPool, AveragePool and the latter's gradient by cuDNN.
 *
 * Not the gradient of MaxPool, nor its taps: cuDNN's INT8 index is a byte a window, where
 * MaxPoolPacked keeps 4 bits for up to 16 taps and 2 for 2 x 2, so that own kernels move fewer bytes
 * both ways. Nor is it documented which of equal elements it names, and behind a ReLU equal elements
 * (zeros) are everywhere. So those are pool.cu's, and so are Indices.
 *
 *     channels last   [N, 1, H, W, C] by windows of h x w x 1 are images of C channels
 *
 * A window that reaches past the padding (ceil_mode) gets as much padding as it needs: of what is
 * -infinity, or does not count. Where padding counts, that would change what is divided by.
 */
#include "kernels/cuda/library/cudnn_call.h"
#include "kernels/call/geometry.h"

extern const ebb_kernel ebb_cuda_cudnn_pool[];
extern const size_t ebb_cuda_cudnn_pool_count;

static bool channels_are_last(const ebb_geometry *g)
{
    return g->spatial > 1 && g->wide_channels == 1 && g->kernel[2] == 1 && g->stride[2] == 1 &&
           g->pad_begin[2] == 0 && g->pad_end[2] == 0;
}

/* Axis `from` of the geometry as axis `to` of the pool. */
static const char *read_axis(ebb_cudnn_pool_sizes *s, const ebb_geometry *g, int from, int to)
{
    const int64_t reach = (g->narrow[from] - 1) * g->stride[from];
    const int64_t end = g->wide[from] + g->pad_begin[from];
    const int64_t needed = reach + g->kernel[from] - end;
    if (g->dilation[from] != 1)
        return "cuDNN's pools have no dilation";
    if (g->narrow[from] < 1 || g->wide[from] < 1 || reach >= end)
        return "a window has nothing to look at";
    if (needed > g->pad_end[from] && s->kind == EBB_CUDNN_AVERAGE_POOL)
        return "a window that reaches past the padding divides by what lies inside";
    s->in[to] = g->wide[from];
    s->out[to] = g->narrow[from];
    s->window.size[to] = g->kernel[from];
    s->window.stride[to] = g->stride[from];
    s->window.before[to] = g->pad_begin[from];
    s->window.after[to] = needed > 0 ? needed : 0;
    return NULL;
}

static const char *read_sizes(ebb_cudnn_pool_sizes *s, const ebb_call *c)
{
    ebb_geometry g;
    const char *why = ebb_pool_read(&g, c);
    if (why != NULL)
        return why;
    const bool last = channels_are_last(&g);
    const int first = last ? 0 : g.spatial > 2 ? 0 : 1, axes = last ? 2 : EBB_AXES - first;
    s->channels_last = last;
    s->batch = g.batch;
    s->channels = last ? g.wide[2] : g.wide_channels;
    s->window.spatial = axes;
    int64_t elements = 1;
    for (int i = 0; why == NULL && i < axes; i++) {
        why = read_axis(s, &g, first + i, i);
        elements *= g.kernel[first + i];
    }
    if (why == NULL && elements == 1)
        why = "a window of one element needs no pool";
    return why;
}

const char *ebb_cuda_read_cudnn_pool(ebb_work *work, const ebb_call *c)
{
    const bool backward = c->op == EBB_OP_AVERAGE_POOL_GRAD;
    ebb_work_part *part = &work->part[0];
    ebb_cudnn_pool_sizes *s = &part->ask.of.pool;
    EBB_ASK(ebb_cuda_floats(c));
    if (ebb_call_wants(c, 1))
        return "cuDNN's index is not the place that Indices name";
    s->dtype = (ebb_dtype)c->in[0].type.dtype;
    if (s->dtype == EBB_F64)
        return "cuDNN pools float32, float16 and bfloat16 only";
    s->kind = c->op == EBB_OP_MAX_POOL ? EBB_CUDNN_MAX_POOL
              : ebb_attr_int(&c->attrs, "count_include_pad", 0) != 0
                  ? EBB_CUDNN_AVERAGE_POOL
                  : EBB_CUDNN_AVERAGE_POOL_INSIDE;
    EBB_ASK(read_sizes(s, c));
    if (!(ebb_work_rows_aligned(&c->in[0]) && ebb_work_rows_aligned(&c->out[0])))
        return "an image is not a multiple of 16 bytes";
    part->ask.kind = backward ? EBB_ASK_POOL_GRADIENT : EBB_ASK_POOL;
    ebb_work_in(part, backward ? EBB_CUDNN_DY : EBB_CUDNN_X, 0);
    ebb_work_out(work, part, backward ? EBB_CUDNN_DX : EBB_CUDNN_Y, c, 0, c->out[0].bytes);
    work->parts = 1;
    return NULL;
}

EBB_WORK_PHASES(cudnn_pool)

const ebb_kernel ebb_cuda_cudnn_pool[] = {
    EBB_WORK_ROW("cuda.cudnn_max_pool", EBB_OP_MAX_POOL, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_average_pool", EBB_OP_AVERAGE_POOL, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_average_pool_grad", EBB_OP_AVERAGE_POOL_GRAD, ebb_work_run),
};
EBB_CUDA_COUNT(cudnn_pool)
