/* cudnn_norm.c: batch norm by cuDNN, in training and backward, where channels are last: [N, C], as
 * the layout pass writes it. Where they are first cuDNN would copy x into the other layout and
 * back, so that is left to norm.cu.
 *
 *     X, scale, B -> [cuDNN] -> Y, mean, 1 / deviation -> [norm.cu] -> running and saved statistics
 *
 * With what follows it in one plan (BatchNormRelu): the sum and the ReLU on the way out, and the
 * bits of z > 0; backward, the bits let dz through on the way in. BOOLEAN tensors are packed as the
 * operator's bits are, where channels are a multiple of 8.
 *
 * cuDNN's own running variance divides by n - 1, and it weighs the old one by numbers of its own.
 * It is not asked for: the batch's variance follows from the deviation, divided by n, as ONNX has
 * it, or by n - 1 where the operator says so. What rounding makes of that is said in norm.cu.
 */
#include "kernels/cuda/library/cudnn_call.h"
#include "kernels/cuda/norm.h"

extern const ebb_kernel ebb_cuda_cudnn_norm[];
extern const size_t ebb_cuda_cudnn_norm_count;

enum { MEAN, INV_STD }; /* scratch of the forward */

static const char *read_sizes(ebb_cudnn_batch_norm_sizes *s, const ebb_call *c, uint32_t at)
{
    const ebb_type *x = &c->in[at].type;
    int64_t after = 1;
    if (x->rank < 2)
        return "there are no channels";
    for (int d = 2; d < x->rank; d++)
        after *= x->dims[d];
    if (after != 1)
        return "cuDNN normalises channels that are last";
    if (x->dtype != EBB_F32 && x->dtype != EBB_F16 && x->dtype != EBB_BF16)
        return "cuDNN normalises float32, float16 and bfloat16 only";
    s->dtype = (ebb_dtype)x->dtype;
    s->channels = x->dims[1];
    s->rows = x->dims[0];
    s->epsilon = (float)ebb_attr_float(&c->attrs, "epsilon", (double)1e-5f);
    if (s->rows < 2 || s->channels < 1)
        return "there is too little to take statistics of";
    return ebb_work_rows_aligned(&c->in[at]) ? NULL : "a row is not a multiple of 16 bytes";
}

/* Like the batch norm whose operands come first, without those that a ReLU adds: `inputs` and
 * `outputs` of them. */
static const char *norm_declines(const ebb_call *c, uint32_t inputs, uint32_t outputs, uint32_t x)
{
    ebb_call norm = *c;
    norm.input_count = c->input_count < inputs ? c->input_count : inputs;
    norm.output_count = c->output_count < outputs ? c->output_count : outputs;
    return ebb_cuda_norm_dtypes(&norm, 0, x);
}

static const char *bits_decline(const ebb_operand *bits, const ebb_cudnn_batch_norm_sizes *s)
{
    if (bits->type.dtype != EBB_U8)
        return "the bits of its ReLU are not packed";
    return s->channels % 8 == 0 ? NULL : "channels are no multiple of 8, as cuDNN packs bits";
}

/* What the operators with a ReLU have beside batch norm's own: A and bits. */
static const char *read_relu(ebb_work *work, ebb_work_part *part, const ebb_call *c)
{
    const char *why = NULL;
    part->ask.with |= EBB_CUDNN_WITH_RELU;
    if (c->op == EBB_OP_BATCH_NORM_ADD_RELU) {
        if (!ebb_call_has(c, 5) || c->in[5].type.dtype != c->in[0].type.dtype)
            return "what is added differs in dtype from the input";
        part->ask.with |= EBB_CUDNN_WITH_ADD;
        ebb_work_in(part, EBB_CUDNN_ADDED, 5);
    }
    if (!ebb_call_wants(c, 5))
        return NULL;
    why = bits_decline(&c->out[5], &part->ask.of.norm);
    part->ask.with |= EBB_CUDNN_WITH_MASK;
    ebb_work_out(work, part, EBB_CUDNN_MASK, c, 5, c->out[5].bytes);
    return why;
}

static const char *read_forward(ebb_work *work, const ebb_call *c)
{
    ebb_work_part *part = &work->part[0];
    const bool relu = c->op == EBB_OP_BATCH_NORM_RELU || c->op == EBB_OP_BATCH_NORM_ADD_RELU;
    EBB_ASK(norm_declines(c, 5, 5, 0));
    if (!ebb_cuda_batch_norm_trains(c))
        return "it normalises by running statistics";
    if (!ebb_call_wants(c, 0))
        return "only its statistics are wanted";
    for (uint32_t i = 1; i < 3; i++)
        EBB_ASK(ebb_work_float32(&c->in[i]));
    EBB_ASK(read_sizes(&part->ask.of.norm, c, 0));
    const size_t bytes = (size_t)part->ask.of.norm.channels * sizeof(float);
    part->ask.kind = EBB_ASK_BATCH_NORM;
    ebb_work_own(part, EBB_CUDNN_MEAN, ebb_work_scratch(work, bytes));   /* MEAN */
    ebb_work_own(part, EBB_CUDNN_INVSTD, ebb_work_scratch(work, bytes)); /* INV_STD */
    ebb_work_in(part, EBB_CUDNN_X, 0);
    ebb_work_in(part, EBB_CUDNN_SCALE, 1);
    ebb_work_in(part, EBB_CUDNN_BIAS, 2);
    ebb_work_out(work, part, EBB_CUDNN_Y, c, 0, c->out[0].bytes);
    return relu ? read_relu(work, part, c) : NULL;
}

/* (dY, X, scale, mean, inv_std, bits?) -> dX, dscale, dB, dA? */
static const char *read_backward(ebb_work *work, const ebb_call *c)
{
    ebb_work_part *part = &work->part[0];
    EBB_ASK(norm_declines(c, 5, 3, 1));
    if (!ebb_call_wants(c, 0))
        return "only its sums are wanted";
    for (uint32_t i = 2; i < 5; i++)
        EBB_ASK(ebb_work_float32(&c->in[i]));
    for (uint32_t o = 1; o < 3; o++)
        if (ebb_call_wants(c, o))
            EBB_ASK(ebb_work_float32(&c->out[o]));
    EBB_ASK(read_sizes(&part->ask.of.norm, c, 1));
    const size_t bytes = (size_t)part->ask.of.norm.channels * sizeof(float);
    static const ebb_cudnn_role in[] = {EBB_CUDNN_DY, EBB_CUDNN_X, EBB_CUDNN_SCALE, EBB_CUDNN_MEAN,
                                        EBB_CUDNN_INVSTD};
    part->ask.kind = EBB_ASK_BATCH_NORM_BACKWARD;
    for (uint32_t i = 0; i < 5; i++)
        ebb_work_in(part, in[i], i);
    ebb_work_out(work, part, EBB_CUDNN_DX, c, 0, c->out[0].bytes);
    ebb_work_out(work, part, EBB_CUDNN_DSCALE, c, 1, bytes);
    ebb_work_out(work, part, EBB_CUDNN_DBIAS, c, 2, bytes);
    if (c->op != EBB_OP_BATCH_NORM_RELU_GRAD)
        return NULL;
    part->ask.with |= EBB_CUDNN_WITH_MASK;
    ebb_work_in(part, EBB_CUDNN_MASK, 5);
    if (ebb_call_wants(c, 3)) {
        part->ask.with |= EBB_CUDNN_WITH_ADDED;
        ebb_work_out(work, part, EBB_CUDNN_DADDED, c, 3, c->out[3].bytes);
    }
    return bits_decline(&c->in[5], &part->ask.of.norm);
}

const char *ebb_cuda_read_cudnn_norm(ebb_work *work, const ebb_call *c)
{
    const bool back = c->op == EBB_OP_BATCH_NORM_GRAD || c->op == EBB_OP_BATCH_NORM_RELU_GRAD;
    work->parts = 1;
    return back ? read_backward(work, c) : read_forward(work, c);
}

EBB_WORK_PHASES(cudnn_norm)

static ebb_status run_forward(const ebb_call *c)
{
    EBB_TRY(ebb_work_run(c));
    return ebb_cuda_batch_norm_finish(c, ebb_work_scratch_at(c, MEAN),
                                      ebb_work_scratch_at(c, INV_STD));
}

const ebb_kernel ebb_cuda_cudnn_norm[] = {
    EBB_WORK_ROW("cuda.cudnn_batch_norm", EBB_OP_BATCH_NORMALIZATION, run_forward),
    EBB_WORK_ROW("cuda.cudnn_batch_norm_training", EBB_OP_BATCH_NORM_TRAINING, run_forward),
    EBB_WORK_ROW("cuda.cudnn_batch_norm_grad", EBB_OP_BATCH_NORM_GRAD, ebb_work_run),
    EBB_WORK_ROW("cuda.cudnn_batch_norm_relu", EBB_OP_BATCH_NORM_RELU, run_forward),
    EBB_WORK_ROW("cuda.cudnn_batch_norm_add_relu", EBB_OP_BATCH_NORM_ADD_RELU, run_forward),
    EBB_WORK_ROW("cuda.cudnn_batch_norm_relu_grad", EBB_OP_BATCH_NORM_RELU_GRAD, ebb_work_run),
};
EBB_CUDA_COUNT(cudnn_norm)
