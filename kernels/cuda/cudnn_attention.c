/* cudnn_attention.c: attention in float16 and bfloat16 by cuDNN, which composes it of products, so
 * that no scores are in memory. What it cannot say is attention.cu's: a dropout, whose draws are
 * ours; a mask of keys that is more than causality; a fill that leaves masked keys a probability.
 *
 *     forward    Q, K, V (bias) -> O, max, sum
 *     backward   Q, K, V (bias) -> O, stats  in scratch; then with dO -> dQ, dK, dV
 *
 * The gradient's kernel reads the output of the forward, which the operator is not given: it is
 * computed again, and the log of the sum of exponents with it. Sums are in one order.
 *
 * A row whose keys all have a bias of -infinity has no probabilities, here as in the operator.
 */
#include "kernels/cuda/cudnn_call.h"
#include "kernels/attention.h"

#include <math.h>

extern const ebb_kernel ebb_cuda_cudnn_attention[];
extern const size_t ebb_cuda_cudnn_attention_count;

enum { Q, K, V, KEEP, BIAS };

/* Is it a constant of one element, and which? */
static bool is_single(const ebb_operand *o, const ebb_attention_mask *m, double *value)
{
    if (!m->single || o->constant == NULL || o->constant->data == NULL)
        return false;
    *value = ebb_tensor_double(o->constant, 0);
    return true;
}

static const char *read_masks(ebb_cudnn_attention_sizes *s, const ebb_attention *a,
                              const ebb_operand *in)
{
    double keep = 0, bias = 1;
    if (!is_single(&in[KEEP], &a->keep, &keep) || keep == 0)
        return "cuDNN knows no mask of single keys";
    const bool free = is_single(&in[BIAS], &a->bias, &bias) && bias == 0;
    s->causal = a->causal;
    s->bias = !free;
    if (a->causal && a->fill != -(double)INFINITY && !(a->fill < -1e30 && free))
        return "keys of the future would have a probability";
    if (free)
        return NULL;
    if (a->guard)
        return "rows without any key would be NaN";
    if (a->rank != 4 && a->rank != 3)
        return "a bias of so many axes is not cuDNN's";
    if (a->bias.stride[a->rank - 1] == 0 && a->t != 1)
        return "the bias is one number for many keys";
    const int head = a->rank - 3;
    s->bias_batch = a->rank == 4 && a->bias.stride[0] != 0 ? a->dims[0] : 1;
    s->bias_heads = a->bias.stride[head] != 0 ? a->dims[head] : 1;
    s->bias_rows = a->bias.stride[a->rank - 2] != 0 ? a->s : 1;
    return NULL;
}

static const char *read_sizes(ebb_cudnn_attention_sizes *s, const ebb_call *c)
{
    const ebb_operand *in = c->in + ebb_attention_first(c->op);
    ebb_attention a;
    const char *why = ebb_attention_read(&a, c);
    if (why != NULL)
        return why;
    s->dtype = (ebb_dtype)in[Q].type.dtype;
    if (s->dtype != EBB_F16 && s->dtype != EBB_BF16)
        return "cuDNN's attention is of float16 and bfloat16 alone";
    if (a.drops)
        return "cuDNN would draw another dropout";
    if (a.feature_stride != 1)
        return "cuDNN wants the features of a key side by side";
    if (a.d % 8 != 0 || a.e % 8 != 0)
        return "cuDNN wants features in multiples of 8";
    s->heads = s->kv_heads = a.rank > 2 ? a.dims[a.rank - 3] : 1;
    s->batch = s->heads > 0 ? a.heads / s->heads : 0;
    s->queries = a.s;
    s->keys = a.t;
    s->width = a.d;
    s->value_width = a.e;
    s->scale = (float)a.scale;
    s->deterministic = true;
    s->q = ebb_cudnn_heads_first(s->heads, a.s, a.d);
    s->k = ebb_cudnn_heads_first(s->heads, a.t, a.d);
    s->v = ebb_cudnn_heads_first(s->heads, a.t, a.e);
    s->o = ebb_cudnn_heads_first(s->heads, a.s, a.e);
    return read_masks(s, &a, in);
}

static void put_operands(ebb_work_part *part, uint32_t first)
{
    ebb_work_in(part, EBB_CUDNN_Q, first + Q);
    ebb_work_in(part, EBB_CUDNN_K, first + K);
    ebb_work_in(part, EBB_CUDNN_V, first + V);
    if (part->ask.of.attention.bias)
        ebb_work_in(part, EBB_CUDNN_BIAS, first + BIAS);
}

static void put_forward(ebb_work *work, const ebb_call *c, size_t row_bytes)
{
    ebb_work_part *part = &work->part[0];
    put_operands(part, 0);
    ebb_work_out(work, part, EBB_CUDNN_O, c, 0, c->out[0].bytes);
    if (!ebb_cuda_wants(c, 1) && !ebb_cuda_wants(c, 2))
        return;
    part->ask.with = EBB_CUDNN_WITH_PARTS;
    ebb_work_out(work, part, EBB_CUDNN_MAX, c, 1, row_bytes);
    ebb_work_out(work, part, EBB_CUDNN_SUM, c, 2, row_bytes);
}

static void put_backward(ebb_work *work, const ebb_call *c, size_t row_bytes)
{
    ebb_work_part *again = &work->part[0], *back = &work->part[1];
    const uint32_t o = ebb_work_scratch(work, c->in[0].bytes); /* like dO */
    const uint32_t stats = ebb_work_scratch(work, row_bytes);
    again->ask.with = EBB_CUDNN_WITH_STATS;
    put_operands(again, 1);
    ebb_work_own(again, EBB_CUDNN_O, o);
    ebb_work_own(again, EBB_CUDNN_STATS, stats);
    back->ask.kind = EBB_ASK_ATTENTION_BACKWARD;
    back->ask.of = again->ask.of;
    put_operands(back, 1);
    ebb_work_own(back, EBB_CUDNN_O, o);
    ebb_work_own(back, EBB_CUDNN_STATS, stats);
    ebb_work_own(back, EBB_CUDNN_ROW_SUMS, ebb_work_scratch(work, row_bytes));
    ebb_work_in(back, EBB_CUDNN_DO, 0);
    for (uint32_t i = 0; i < 3; i++) { /* dQ, dK, dV are like Q, K, V */
        static const ebb_cudnn_role roles[] = {EBB_CUDNN_DQ, EBB_CUDNN_DK, EBB_CUDNN_DV};
        ebb_work_out(work, back, roles[i], c, i, c->in[1 + i].bytes);
    }
    work->parts = 2;
}

const char *ebb_cuda_read_cudnn_attention(ebb_work *work, const ebb_call *c)
{
    ebb_work_part *part = &work->part[0];
    const ebb_cudnn_attention_sizes *s = &part->ask.of.attention;
    const char *why = read_sizes(&part->ask.of.attention, c);
    if (why != NULL)
        return why;
    const size_t row_bytes = (size_t)(s->batch * s->heads * s->queries) * sizeof(float);
    part->ask.kind = EBB_ASK_ATTENTION;
    work->parts = 1;
    if (ebb_attention_is_grad(c->op))
        put_backward(work, c, row_bytes);
    else
        put_forward(work, c, row_bytes);
    return NULL;
}

static const char *declines(const ebb_call *c)
{
    return ebb_work_declines(c, ebb_cuda_read_cudnn_attention);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    return ebb_work_workspace(c, bytes, ebb_cuda_read_cudnn_attention);
}

static ebb_status prepare(ebb_call *c)
{
    return ebb_work_prepare(c, ebb_cuda_read_cudnn_attention);
}

#define ROW(name, op)                                                          \
    {                                                                          \
        name, op, declines, workspace, prepare, ebb_work_run, ebb_work_release \
    }

const ebb_kernel ebb_cuda_cudnn_attention[] = {
    ROW("cuda.cudnn_attention", EBB_OP_EBB_ATTENTION),
    ROW("cuda.cudnn_attention_grad", EBB_OP_EBB_ATTENTION_GRAD),
};
EBB_CUDA_COUNT(cudnn_attention)
