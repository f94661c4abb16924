/* cudnn_conv.c: convolutions and their gradients by cuDNN; before the own ones of conv.cu, which
 * take what is declined here.
 *
 *     declines ── the call's sizes ── is there a plan? ──> workspace ──> prepare ──> run
 *
 * float32 is float32 unless TF32 is allowed; sums are always in one order.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cudnn_plans.h"
#include "kernels/geometry.h"

extern const ebb_kernel ebb_cuda_cudnn_conv[];
extern const size_t ebb_cuda_cudnn_conv_count;

/* ---- what is asked ---- */

static const char *read_sizes(ebb_cuda_cudnn_ask *ask, const ebb_geometry *g, ebb_dtype dtype,
                              bool last)
{
    ebb_cudnn_conv_sizes *s = &ask->sizes;
    int64_t out[EBB_CUDNN_AXES];
    const int first = EBB_AXES - g->spatial;
    s->dtype = dtype;
    s->channels_last = last;
    s->batch = g->batch;
    s->channels = g->wide_channels;
    s->filters = g->narrow_channels;
    s->groups = g->groups;
    s->window.spatial = g->spatial;
    for (int i = 0; i < g->spatial; i++) {
        s->in[i] = g->wide[first + i];
        s->kernel[i] = g->kernel[first + i];
        s->window.stride[i] = g->stride[first + i];
        s->window.dilation[i] = g->dilation[first + i];
        s->window.before[i] = g->pad_begin[first + i];
        s->window.after[i] = g->pad_end[first + i];
    }
    if (ebb_cudnn_conv_out(s, out) != NULL)
        return "a size is 0, or the kernel is larger than what it slides over";
    for (int i = 0; i < g->spatial; i++)
        if (out[i] != g->narrow[first + i])
            return "the windows do not fill the padded image as cuDNN counts them";
    return NULL;
}

const char *ebb_cuda_cudnn_ask_of(ebb_cuda_cudnn_ask *ask, const ebb_call *c)
{
    const ebb_op first = ebb_channels_first_op(c->op);
    const ebb_dtype dtype = c->input_count > 0 ? (ebb_dtype)c->in[0].type.dtype : EBB_NONE;
    ebb_geometry g;
    memset(ask, 0, sizeof *ask);
    if (dtype != EBB_F32 && dtype != EBB_F16 && dtype != EBB_BF16)
        return "cuDNN convolves float32, float16 and bfloat16 only";
    const char *why = ebb_geometry_of_conv(&g, c);
    if (why != NULL)
        return why;
    switch (first != EBB_OP_UNKNOWN ? first : c->op) {
    case EBB_OP_CONV:
        ask->way = EBB_CUDNN_FORWARD;
        break;
    case EBB_OP_CONV_TRANSPOSE:
        ask->way = EBB_CUDNN_BACKWARD_DATA;
        break;
    default:
        ask->way = EBB_CUDNN_BACKWARD_FILTER;
    }
    if (ask->way != EBB_CUDNN_BACKWARD_FILTER && ebb_cuda_has(c, 2)) {
        if (ask->way == EBB_CUDNN_BACKWARD_DATA)
            return "cuDNN's transposed convolution takes no bias";
        if (c->in[2].type.rank != 1 || c->in[2].type.dims[0] != g.narrow_channels)
            return "the bias has the wrong shape";
        ask->with = EBB_CUDNN_WITH_BIAS;
    }
    return read_sizes(ask, &g, dtype, first != EBB_OP_UNKNOWN);
}

/* ---- the kernels ---- */

/* What a call's workspace is aligned to (kernels.h), and what cuDNN wants: the difference is asked
 * for, and the first bytes that do are handed on. */
enum { CALL_ALIGN = 64, WORKSPACE_ALIGN = 256 };

/* Tiles of a batch begin where an image does (kernels/stream.c), and cuDNN's tensors at multiples
 * of 16 bytes. */
static bool images_are_aligned(const ebb_call *c, ebb_cudnn_direction way)
{
    const ebb_operand *images[3] = {&c->in[0], &c->in[1], &c->out[0]};
    for (int i = 0; i < 3; i++) {
        const int64_t n = images[i]->type.dims[0];
        int64_t bytes =
            ebb_cuda_elements(&images[i]->type) * (int64_t)ebb_cuda_size(&images[i]->type);
        bool is_weight = i == (way == EBB_CUDNN_BACKWARD_FILTER ? 2 : 1);
        if (!is_weight && n > 1 && bytes / n % 16 != 0)
            return false;
    }
    return true;
}

static const ebb_cudnn_plan *plan_of(const char **why, const ebb_call *c)
{
    ebb_cuda_cudnn_ask ask;
    *why = ebb_cuda_floats(c);
    if (*why == NULL)
        *why = ebb_cuda_cudnn_ask_of(&ask, c);
    if (*why == NULL && !images_are_aligned(c, ask.way))
        *why = "an image is not a multiple of 16 bytes";
    return *why == NULL ? ebb_cuda_cudnn_plan(why, &ask) : NULL;
}

static const char *declines(const ebb_call *c)
{
    const char *why;
    (void)plan_of(&why, c);
    return why;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    const char *why;
    const ebb_cudnn_plan *plan = plan_of(&why, c);
    *bytes = 0;
    if (plan == NULL)
        return ebb_call_error(c, "%s", why);
    *bytes = (size_t)ebb_cudnn_plan_choice(plan)->workspace_bytes;
    if (*bytes > 0 && !ebb_size_add(bytes, *bytes, WORKSPACE_ALIGN - CALL_ALIGN))
        return ebb_call_error(c, "the scratch memory is too large to address");
    return NULL;
}

/* What run() needs, so that a step looks nothing up. */
typedef struct prepared {
    const ebb_cudnn_plan *plan;
    bool described; /* the device is: nothing can run */
    int count;
    int64_t roles[4];
} prepared;

static ebb_status prepare(ebb_call *c)
{
    static const int64_t roles[3][4] = {
        {EBB_CUDNN_Y, EBB_CUDNN_X, EBB_CUDNN_W, EBB_CUDNN_BIAS},
        {EBB_CUDNN_DX, EBB_CUDNN_DY, EBB_CUDNN_W, 0},
        {EBB_CUDNN_DW, EBB_CUDNN_DY, EBB_CUDNN_X, 0},
    };
    ebb_cuda_cudnn_ask ask;
    const char *why = ebb_cuda_cudnn_ask_of(&ask, c);
    const ebb_cudnn_plan *plan = why == NULL ? ebb_cuda_cudnn_plan(&why, &ask) : NULL;
    if (plan == NULL)
        return ebb_call_error(c, "%s", why);
    size_t bytes = 0;
    EBB_TRY(workspace(c, &bytes));
    if (bytes > c->workspace_bytes)
        return ebb_call_error(c, "it was planned for another device than the one that is here");
    prepared *p = (prepared *)ebb_alloc(sizeof *p);
    if (p == NULL)
        return ebb_error_memory();
    p->plan = plan;
    p->described = ebb_cuda_cudnn_described();
    p->count = (ask.with & EBB_CUDNN_WITH_BIAS) != 0 ? 4 : 3;
    memcpy(p->roles, roles[ask.way], sizeof p->roles);
    c->state = p;
    return NULL;
}

static void release(ebb_call *c)
{
    ebb_free(c->state);
    c->state = NULL;
}

/* The queue's handle, made when its first call runs, before anything is recorded. */
static ebb_status handle_of(ebb_cuda_queue *q)
{
    if (q->cudnn != NULL)
        return NULL;
    EBB_TRY(ebb_cudnn_handle_new(&q->cudnn));
    q->free_cudnn = ebb_cudnn_handle_free;
    return ebb_cudnn_handle_stream(q->cudnn, q->stream);
}

static ebb_status run(const ebb_call *c)
{
    const prepared *p = (const prepared *)c->state;
    ebb_cuda_queue *q = ebb_cuda_queue_of(c);
    void *pointers[4] = {c->out[0].data, c->in[0].data, c->in[1].data,
                         p->count > 3 ? c->in[2].data : NULL};
    if (p->described || !ebb_cudnn_plan_choice(p->plan)->runs)
        return ebb_call_error(c, "it was planned for a described device, which cannot run it");
    for (int i = 0; i < p->count; i++)
        if ((uintptr_t)pointers[i] % 16 != 0)
            return ebb_call_error(c, "operand %d does not begin at a multiple of 16 bytes", i);
    EBB_TRY(handle_of(q));
    uintptr_t past = (uintptr_t)c->workspace % WORKSPACE_ALIGN;
    char *room = (char *)c->workspace + (past > 0 ? WORKSPACE_ALIGN - past : 0);
    return ebb_cudnn_plan_run(p->plan, q->cudnn, p->count, p->roles, pointers,
                              c->workspace_bytes > 0 ? room : NULL);
}

#define ROW(name, op)                                        \
    {                                                        \
        name, op, declines, workspace, prepare, run, release \
    }

const ebb_kernel ebb_cuda_cudnn_conv[] = {
    ROW("cuda.cudnn_conv", EBB_OP_CONV),
    ROW("cuda.cudnn_conv_transpose", EBB_OP_CONV_TRANSPOSE),
    ROW("cuda.cudnn_conv_weight_grad", EBB_OP_CONV_WEIGHT_GRAD),
    ROW("cuda.cudnn_conv_nhwc", EBB_OP_CONV_NHWC),
    ROW("cuda.cudnn_conv_transpose_nhwc", EBB_OP_CONV_TRANSPOSE_NHWC),
    ROW("cuda.cudnn_conv_weight_grad_nhwc", EBB_OP_CONV_WEIGHT_GRAD_NHWC),
};
EBB_CUDA_COUNT(cudnn_conv)
