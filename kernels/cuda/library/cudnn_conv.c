/* cudnn_conv.c: convolutions and their gradients by cuDNN; before the own ones of conv.cu, which
 * take what is declined here. float32 is float32 unless TF32 is allowed.
 *
 *     X, W, bias?, A? -> [cuDNN] -> Z, bits?        bias, sum and ReLU (ConvAddReluNhwc) in one plan
 *
 * BOOLEAN tensors are packed as the operator's bits are, where channels are last and a multiple of
 * 8. What cuDNN has no plan for is computed by the parts (compose.c): by what it has for those.
 */
#include "kernels/cuda/library/cudnn_call.h"
#include "kernels/call/geometry.h"

extern const ebb_kernel ebb_cuda_cudnn_conv[];
extern const size_t ebb_cuda_cudnn_conv_count;

/* ---- what is asked ---- */

static const char *read_sizes(ebb_cudnn_conv_sizes *s, const ebb_geometry *g, ebb_dtype dtype,
                              bool last)
{
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

/* Tiles of a batch begin where an image does; a weight is never in tiles. */
static bool images_are_aligned(const ebb_call *c, ebb_cuda_cudnn_kind kind)
{
    const ebb_operand *weight = kind == EBB_ASK_CONV_FILTER ? &c->out[0] : &c->in[1];
    const ebb_operand *images[3] = {&c->in[0], &c->in[1], &c->out[0]};
    for (int i = 0; i < 3; i++)
        if (images[i] != weight && !ebb_work_rows_aligned(images[i]))
            return false;
    return true;
}

static const char *read_call(ebb_work_part *part, const ebb_call *c)
{
    const ebb_op first = ebb_channels_first_op(c->op), op = first != EBB_OP_UNKNOWN ? first : c->op;
    const ebb_dtype dtype = c->input_count > 0 ? (ebb_dtype)c->in[0].type.dtype : EBB_NONE;
    ebb_cuda_cudnn_ask *ask = &part->ask;
    ebb_geometry g;
    if (dtype != EBB_F32 && dtype != EBB_F16 && dtype != EBB_BF16)
        return "cuDNN convolves float32, float16 and bfloat16 only";
    EBB_ASK(ebb_conv_read(&g, c));
    ask->kind = op == EBB_OP_CONV             ? EBB_ASK_CONV
                : op == EBB_OP_CONV_TRANSPOSE ? EBB_ASK_CONV_DATA
                                              : EBB_ASK_CONV_FILTER;
    if (ask->kind == EBB_ASK_CONV_DATA && ebb_call_has(c, 2))
        return "cuDNN's transposed convolution takes no bias";
    if (ask->kind == EBB_ASK_CONV && ebb_call_has(c, 2))
        ask->with = EBB_CUDNN_WITH_BIAS;
    EBB_ASK(ebb_conv_bias_misfit(&g, c));
    EBB_ASK(read_sizes(&ask->of.conv, &g, dtype, first != EBB_OP_UNKNOWN));
    if (!images_are_aligned(c, ask->kind))
        return "an image is not a multiple of 16 bytes";
    return NULL;
}

/* The call of the convolution alone, where a ReLU stands behind it; else the call. */
static ebb_call without_relu(const ebb_call *c)
{
    ebb_call conv = *c;
    if (ebb_op_convolution(c->op) == EBB_OP_UNKNOWN)
        return conv;
    conv.op = ebb_op_convolution(c->op);
    conv.input_count = c->input_count < 3 ? c->input_count : 3;
    conv.output_count = 1;
    return conv;
}

/* What the operators with a ReLU have beside the convolution's own: A and bits. */
static const char *read_relu(ebb_work *work, ebb_work_part *part, const ebb_call *c)
{
    const ebb_cudnn_conv_sizes *s = &part->ask.of.conv;
    part->ask.with |= EBB_CUDNN_WITH_RELU;
    if (c->op == EBB_OP_CONV_ADD_RELU_NHWC) {
        if (!ebb_call_has(c, 3))
            return "what is added is missing";
        part->ask.with |= EBB_CUDNN_WITH_ADD;
        ebb_work_in(part, EBB_CUDNN_ADDED, 3);
    }
    if (!ebb_call_wants(c, 1))
        return NULL;
    if (c->out[1].type.dtype != EBB_U8)
        return "the bits of its ReLU are not packed";
    if (!s->channels_last || s->filters % 8 != 0)
        return "channels are first, or no multiple of 8, as cuDNN packs bits";
    part->ask.with |= EBB_CUDNN_WITH_MASK;
    ebb_work_out(work, part, EBB_CUDNN_MASK, c, 1, c->out[1].bytes);
    return NULL;
}

const char *ebb_cuda_read_cudnn_conv(ebb_work *work, const ebb_call *c)
{
    static const ebb_cudnn_role roles[3][3] = {{EBB_CUDNN_Y, EBB_CUDNN_X, EBB_CUDNN_W},
                                               {EBB_CUDNN_DX, EBB_CUDNN_DY, EBB_CUDNN_W},
                                               {EBB_CUDNN_DW, EBB_CUDNN_DY, EBB_CUDNN_X}};
    ebb_work_part *part = &work->part[0];
    const ebb_call conv = without_relu(c);
    EBB_ASK(ebb_cuda_floats(c));
    EBB_ASK(read_call(part, &conv));
    const ebb_cudnn_role *role = roles[part->ask.kind];
    ebb_work_out(work, part, role[0], c, 0, c->out[0].bytes);
    ebb_work_in(part, role[1], 0);
    ebb_work_in(part, role[2], 1);
    if ((part->ask.with & EBB_CUDNN_WITH_BIAS) != 0)
        ebb_work_in(part, EBB_CUDNN_BIAS, 2);
    work->parts = 1;
    return conv.op != c->op ? read_relu(work, part, c) : NULL;
}

/* ---- the kernels ---- */

EBB_WORK_PHASES(cudnn_conv)

const ebb_kernel ebb_cuda_cudnn_conv[] = {
    EBB_WORK_ROW("cuda.cudnn_conv", EBB_OP_CONV, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_conv_transpose", EBB_OP_CONV_TRANSPOSE, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_conv_weight_grad", EBB_OP_CONV_WEIGHT_GRAD, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_conv_nhwc", EBB_OP_CONV_NHWC, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_conv_transpose_nhwc", EBB_OP_CONV_TRANSPOSE_NHWC, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_conv_weight_grad_nhwc", EBB_OP_CONV_WEIGHT_GRAD_NHWC, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_conv_relu", EBB_OP_CONV_RELU, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_conv_relu_nhwc", EBB_OP_CONV_RELU_NHWC, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_conv_add_relu_nhwc", EBB_OP_CONV_ADD_RELU_NHWC, ebb_work_run),
};
EBB_CUDA_COUNT(cudnn_conv)
