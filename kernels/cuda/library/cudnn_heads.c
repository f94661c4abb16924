/* cudnn_heads.c: ONNX's Attention in float16 and bfloat16 by cuDNN: heads that share keys and
 * values, in an axis of their own or packed, capped scores, causality, masks and lengths as a bias
 * (attention_mask.h). What it does not say is heads.cu's: the scores themselves as an output,
 * float32.
 *
 *     past, new tokens -> behind each other, in the output that keeps them or in scratch
 *     Q, K, V (bias)   -> Y;  rows that see no key become no number
 */
#include "kernels/cuda/library/attention_mask.h"
#include "kernels/cuda/library/cudnn_call.h"
#include "kernels/cuda/heads.h"

extern const ebb_kernel ebb_cuda_cudnn_heads[];
extern const size_t ebb_cuda_cudnn_heads_count;

enum { Q, K, V, MASK };
enum { Y, PRESENT_K, PRESENT_V, SEEN };

typedef struct reading {
    ebb_heads h;
    ebb_cuda_masking mask;
    bool is_masked;
    uint32_t bias, alive; /* scratch */
    uint32_t kept[2];     /* scratch of K and V, where no output keeps them */
} reading;

static ebb_cudnn_heads lies(const ebb_tokens *s, int64_t length, bool packed)
{
    return packed ? ebb_cudnn_heads_inside(s->heads, length, s->size)
                  : ebb_cudnn_heads_first(s->heads, length, s->size);
}

static const char *read_sizes(reading *r, ebb_cudnn_attention_sizes *s, const ebb_call *c)
{
    EBB_ASK(ebb_cuda_floats(c));
    EBB_ASK(ebb_any_heads_misfit(c));
    const ebb_heads *h = &r->h;
    r->h = ebb_heads_read(c);
    s->dtype = (ebb_dtype)c->in[Q].type.dtype;
    if (s->dtype != EBB_F16 && s->dtype != EBB_BF16)
        return "cuDNN's attention is of float16 and bfloat16 alone";
    if (ebb_call_wants(c, SEEN) || !ebb_call_wants(c, Y))
        return "cuDNN does not write the scores";
    if (h->q.size % 8 != 0 || h->v.size % 8 != 0)
        return "cuDNN wants features in multiples of 8";
    if (h->batch < 1 || h->q.length < 1 || h->total < 1 || h->q.size < 1 || h->v.size < 1)
        return "there are no queries or no keys";
    const bool joined = h->k.before > 0;
    s->batch = h->batch;
    s->heads = h->q.heads;
    s->kv_heads = h->k.heads;
    s->queries = h->q.length;
    s->keys = h->total;
    s->width = h->q.size;
    s->value_width = h->v.size;
    s->scale = (float)h->scale;
    s->cap = h->cap > 0 ? (float)h->cap : 0;
    s->q = lies(&h->q, h->q.length, h->q.packed);
    s->k = lies(&h->k, h->total, h->k.packed && !joined);
    s->v = lies(&h->v, h->total, h->v.packed && !joined);
    s->o = h->q.packed ? ebb_cudnn_heads_inside(s->heads, s->queries, s->value_width)
                       : ebb_cudnn_heads_first(s->heads, s->queries, s->value_width);
    const char *why = ebb_cuda_masking_of_heads(&r->mask, &r->is_masked, h, c, (uint8_t)s->dtype);
    ebb_work_mask(s, &r->mask, r->is_masked, h->causal);
    return why;
}

static size_t bytes_of(const ebb_heads *h, const ebb_tokens *s)
{
    return (size_t)(h->batch * s->heads * h->total * s->size) * 2;
}

static void put_tokens(ebb_work *work, reading *r, const ebb_call *c, uint32_t i)
{
    const ebb_cudnn_role role = i == K ? EBB_CUDNN_K : EBB_CUDNN_V;
    const ebb_tokens *s = i == K ? &r->h.k : &r->h.v;
    const uint32_t o = i == K ? PRESENT_K : PRESENT_V;
    if (s->before == 0) {
        ebb_work_in(&work->part[0], role, i);
        return;
    }
    ebb_work_out(work, &work->part[0], role, c, o, bytes_of(&r->h, s));
    r->kept[i - K] = (uint32_t)work->scratches - 1; // where it is one
}

static const char *read_all(ebb_work *work, reading *r, const ebb_call *c)
{
    const ebb_cuda_masking *m = &r->mask;
    ebb_work_part *part = &work->part[0];
    memset(r, 0, sizeof *r);
    EBB_ASK(read_sizes(r, &part->ask.of.attention, c));
    const ebb_cudnn_attention_sizes *s = &part->ask.of.attention;
    const size_t rows_bytes = (size_t)(s->batch * s->heads * s->queries) * sizeof(float);
    part->ask.kind = EBB_ASK_ATTENTION;
    part->ask.with = EBB_CUDNN_WITH_STATS; // without any it has no kernel
    work->parts = 1;
    ebb_work_in(part, EBB_CUDNN_Q, Q);
    put_tokens(work, r, c, K);
    put_tokens(work, r, c, V);
    if (r->is_masked) {
        const int64_t rows = m->bias_dims[0] * m->bias_dims[1];
        r->bias = ebb_work_scratch(work, ebb_cuda_masking_bytes(m));
        r->alive = ebb_work_scratch(work, (size_t)(rows * m->rows));
        ebb_work_own(part, EBB_CUDNN_BIAS, r->bias);
    }
    ebb_work_own(part, EBB_CUDNN_STATS, ebb_work_scratch(work, rows_bytes));
    ebb_work_out(work, part, EBB_CUDNN_O, c, Y, c->out[Y].bytes);
    return NULL;
}

const char *ebb_cuda_read_cudnn_heads(ebb_work *work, const ebb_call *c)
{
    reading r;
    return read_all(work, &r, c);
}

EBB_WORK_PHASES(cudnn_heads)

/* Past and new tokens where they are wanted, or where the library reads them. */
static ebb_status keep(const ebb_call *c, const reading *r, uint32_t i)
{
    const ebb_tokens *s = i == K ? &r->h.k : &r->h.v;
    const uint32_t o = i == K ? PRESENT_K : PRESENT_V;
    const bool wanted = ebb_call_wants(c, o);
    if (s->before == 0 && !wanted)
        return NULL;
    const bool lies_out = wanted && (s->before == 0 || c->out[o].over == 0);
    void *to = lies_out ? c->out[o].data : ebb_work_scratch_at(c, r->kept[i - K]);
    return ebb_cuda_heads_keep(c, &r->h, s, to);
}

static ebb_status run(const ebb_call *c)
{
    ebb_work work;
    reading r;
    memset(&work, 0, sizeof work);
    (void)read_all(&work, &r, c);
    EBB_TRY(keep(c, &r, K));
    EBB_TRY(keep(c, &r, V));
    void *alive = r.is_masked ? ebb_work_scratch_at(c, r.alive) : NULL;
    if (r.is_masked)
        EBB_TRY(ebb_cuda_masking_make(c, &r.mask, r.h.mask_is_bool ? r.h.mask : NULL,
                                      r.h.mask_is_bool ? NULL : r.h.mask, r.h.lengths,
                                      ebb_work_scratch_at(c, r.bias), alive));
    EBB_TRY(ebb_work_run(c));
    return r.is_masked
               ? ebb_cuda_masking_settle(c, &r.mask, alive, c->out[Y].data, r.h.v.size, NULL, NULL)
               : NULL;
}

const ebb_kernel ebb_cuda_cudnn_heads[] = {
    EBB_WORK_ROW("cuda.cudnn_onnx_attention", EBB_OP_ATTENTION, run),
    EBB_WORK_ROW("cuda.cudnn_flex_attention", EBB_OP_FLEX_ATTENTION, run),
};
EBB_CUDA_COUNT(cudnn_heads)
