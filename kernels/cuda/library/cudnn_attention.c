/* cudnn_attention.c: attention in float16 and bfloat16 by cuDNN, which composes it of products, so
 * that no scores are in memory. What it cannot say is attention.cu's: a fill that leaves masked keys
 * a probability.
 *
 *     forward    Q, K, V (bias) -> O, max, sum
 *     backward   max, sum -> stats           in scratch; with Y as O, dO -> dQ, dK, dV
 *                Q, K, V (bias) -> O, stats  in scratch, where Y is not given
 *
 * The gradient's kernel reads the output of the forward. Mostly the operator is given it, heads
 * first or inside, by a graph in which no decision about memory has a say (onnx/ops/scores/attention.c): so
 * a step has one of the two ways whatever its budget, and the bits of that way. Where it is not
 * given it is computed again, a third more work, and the log of the sum of exponents with it. Sums
 * are in one order.
 *
 * K that lies as [d, t] is turned first, and its gradient after. A mask becomes a bias
 * (attention_mask.h). The draws of a dropout are ours, so cuDNN is handed them, a number a score: for
 * a slice of the batch at a time, as many as CROWD bytes hold. Rows that see no key are made what the operator says: without their dO they
 * give no gradient. A Y that is given has 0 in them, or no number as dO has then.
 */
#include "kernels/cuda/library/attention_mask.h"
#include "kernels/cuda/library/cudnn_call.h"
#include "kernels/cuda/move.h"

extern const ebb_kernel ebb_cuda_cudnn_attention[];
extern const size_t ebb_cuda_cudnn_attention_count;

enum { Q, K, V, KEEP, BIAS };
enum { CROWD = 64 << 20 }; // of draws: a few waves of blocks even of long sequences

typedef struct reading {
    ebb_attention a;
    ebb_cuda_masking mask;
    bool is_masked, is_turned;
    uint32_t k, dk, bias, kept, alive, dout, stats; /* scratch */
} reading;

/* ---- sizes ---- */

/* Where the output lies; all that has more than four axes is one batch. */
static ebb_cudnn_heads rows_of_output(const ebb_attention *a)
{
    const int64_t *stride = a->result.stride;
    const int rank = a->rank;
    const int64_t all = a->heads * a->s * a->e;
    return (ebb_cudnn_heads){.batch = rank > 3 ? stride[rank - 4] : all,
                             .head = rank > 2 ? stride[rank - 3] : all,
                             .row = stride[rank - 2]};
}

/* Batches of several axes have one stride. */
static bool is_one_batch(const ebb_attention *a)
{
    const int64_t *stride = a->result.stride;
    for (int axis = 0; a->y != 0 && axis < a->rank - 4; axis++)
        if (a->dims[axis] > 1 && stride[axis] != a->dims[axis + 1] * stride[axis + 1])
            return false;
    return true;
}

static const char *read_sizes(reading *r, ebb_cudnn_attention_sizes *s, const ebb_call *c)
{
    const ebb_operand *in = c->in + ebb_attention_first(c->op);
    ebb_attention *a = &r->a;
    EBB_ASK(ebb_attention_read(a, c));
    s->dtype = (ebb_dtype)in[Q].type.dtype;
    if (s->dtype != EBB_F16 && s->dtype != EBB_BF16)
        return "cuDNN's attention is of float16 and bfloat16 alone";
    s->dropout = a->drops ? a->ratio : 0;
    if (a->d % 8 != 0 || a->e % 8 != 0)
        return "cuDNN wants features in multiples of 8";
    if (a->heads < 1 || a->s < 1)
        return "there are no queries";
    if (!is_one_batch(a))
        return "the axes before the heads lie in another order in Y";
    r->is_turned = a->feature_stride != 1;
    s->heads = s->kv_heads = a->rank > 2 ? a->dims[a->rank - 3] : 1;
    s->batch = a->heads / s->heads;
    s->queries = a->s;
    s->keys = a->t;
    s->width = a->d;
    s->value_width = a->e;
    s->scale = (float)a->scale;
    s->q = ebb_cudnn_heads_first(s->heads, a->s, a->d);
    s->k = ebb_cudnn_heads_first(s->heads, a->t, a->d);
    s->v = ebb_cudnn_heads_first(s->heads, a->t, a->e);
    s->o = ebb_cudnn_heads_first(s->heads, a->s, a->e);
    const char *why = ebb_cuda_masking_read(&r->mask, &r->is_masked, a, in);
    ebb_work_mask(s, &r->mask, r->is_masked, a->causal);
    return why;
}

/* ---- where things lie ---- */

static ebb_status draw(const ebb_call *c, int64_t slices, int64_t slice);

static void put_prepared(ebb_work *work, reading *r, const ebb_call *c)
{
    const ebb_cuda_masking *m = &r->mask;
    if (r->is_turned)
        r->k = ebb_work_scratch(work, c->in[ebb_attention_first(c->op) + K].bytes);
    if (r->a.drops) {
        const size_t one = (size_t)(r->a.s * r->a.t) * sizeof(uint16_t);
        const int64_t cut = work->slices > 1 ? work->slices : 1;
        const size_t bytes = (size_t)(r->a.heads / cut) * one;
        r->kept = ebb_work_scratch(work, bytes);
        work->crowded = bytes > CROWD;
        work->before = draw;
    }
    if (!r->is_masked)
        return;
    const int64_t rows = m->bias_dims[0] * m->bias_dims[1];
    r->bias = ebb_work_scratch(work, ebb_cuda_masking_bytes(m));
    r->alive = ebb_work_scratch(work, m->dies ? (size_t)(rows * m->rows) : 0);
}

static void put_operands(ebb_work_part *part, const reading *r, uint32_t first)
{
    ebb_work_in(part, EBB_CUDNN_Q, first + Q);
    if (r->is_turned)
        ebb_work_own(part, EBB_CUDNN_K, r->k);
    else
        ebb_work_in(part, EBB_CUDNN_K, first + K);
    ebb_work_in(part, EBB_CUDNN_V, first + V);
    if (r->is_masked)
        ebb_work_own(part, EBB_CUDNN_BIAS, r->bias);
    if (r->a.drops)
        ebb_work_own(part, EBB_CUDNN_KEPT, r->kept);
}

static void put_forward(ebb_work *work, const reading *r, const ebb_call *c, size_t row_bytes)
{
    ebb_work_part *part = &work->part[0];
    put_operands(part, r, 0);
    ebb_work_out(work, part, EBB_CUDNN_O, c, 0, c->out[0].bytes);
    if (!ebb_call_wants(c, 1) && !ebb_call_wants(c, 2)) { // without any it has no kernel
        part->ask.with = EBB_CUDNN_WITH_STATS;
        ebb_work_own(part, EBB_CUDNN_STATS, ebb_work_scratch(work, row_bytes));
        return;
    }
    part->ask.with = EBB_CUDNN_WITH_PARTS;
    ebb_work_out(work, part, EBB_CUDNN_MAX, c, 1, row_bytes);
    ebb_work_out(work, part, EBB_CUDNN_SUM, c, 2, row_bytes);
}

/* The forward's plan for the gradient's sake: O and stats into scratch. Returns the part behind it. */
static ebb_work_part *put_forward_again(ebb_work *work, const reading *r, uint32_t o)
{
    ebb_work_part *again = &work->part[0], *next = &work->part[work->parts++];
    again->ask.with = EBB_CUDNN_WITH_STATS;
    put_operands(again, r, 1);
    ebb_work_own(again, EBB_CUDNN_O, o);
    ebb_work_own(again, EBB_CUDNN_STATS, r->stats);
    next->ask.of = again->ask.of;
    ebb_work_own(next, EBB_CUDNN_O, o);
    return next;
}

/* The part that has the gradient's plan, with the output as it is given or made again. */
static ebb_work_part *put_output(ebb_work *work, const reading *r, const ebb_call *c)
{
    ebb_work_part *back = &work->part[0];
    if (r->a.y == 0)
        back = put_forward_again(work, r, ebb_work_scratch(work, c->in[0].bytes)); /* like dO */
    else
        ebb_work_in(back, EBB_CUDNN_O, r->a.y);
    back->ask.kind = EBB_ASK_ATTENTION_BACKWARD;
    ebb_cudnn_attention_sizes *s = &back->ask.of.attention;
    s->dout = s->o;
    if (r->a.y != 0)
        s->o = rows_of_output(&r->a);
    return back;
}

static void put_backward(ebb_work *work, reading *r, const ebb_call *c, size_t row_bytes)
{
    static const ebb_cudnn_role roles[] = {EBB_CUDNN_DQ, EBB_CUDNN_DK, EBB_CUDNN_DV};
    r->stats = ebb_work_scratch(work, row_bytes);
    ebb_work_part *back = put_output(work, r, c);
    put_operands(back, r, 1);
    ebb_work_own(back, EBB_CUDNN_STATS, r->stats);
    ebb_work_own(back, EBB_CUDNN_ROW_SUMS, ebb_work_scratch(work, row_bytes));
    if (r->is_masked && r->mask.dies) {
        r->dout = ebb_work_scratch(work, c->in[0].bytes);
        ebb_work_own(back, EBB_CUDNN_DO, r->dout);
    } else {
        ebb_work_in(back, EBB_CUDNN_DO, 0);
    }
    for (uint32_t i = 0; i < 3; i++) { /* dQ, dK, dV are like Q, K, V */
        if (i == K && r->is_turned) {
            r->dk = ebb_work_scratch(work, c->in[1 + K].bytes);
            ebb_work_own(back, roles[i], r->dk);
        } else {
            ebb_work_out(work, back, roles[i], c, i, c->in[1 + i].bytes);
        }
    }
}

/* Bytes of one sequence in a tensor of a part. */
static size_t bytes_of_one(const ebb_cudnn_attention_sizes *s, int64_t role)
{
    const int64_t half = 2, wide = sizeof(float);
    switch ((int)role) {
    case EBB_CUDNN_Q:
    case EBB_CUDNN_DQ:
        return (size_t)(s->q.batch * half);
    case EBB_CUDNN_K:
    case EBB_CUDNN_DK:
        return (size_t)(s->k.batch * half);
    case EBB_CUDNN_V:
    case EBB_CUDNN_DV:
        return (size_t)(s->v.batch * half);
    case EBB_CUDNN_O:
        return (size_t)(s->o.batch * half);
    case EBB_CUDNN_DO:
        return (size_t)(s->dout.batch * half);
    case EBB_CUDNN_KEPT: // drawn anew for each
        return 0;
    case EBB_CUDNN_BIAS:
        return s->bias_batch == 1 ? 0
                                  : (size_t)(s->bias_heads * s->bias_rows * s->keys *
                                             (s->bias_dtype == EBB_F32 ? wide : half));
    default: // a number a row
        return (size_t)(s->heads * s->queries * wide);
    }
}

/* The plans are for a slice of the batch each. Or why not. */
static const char *cut_batch(ebb_work *work)
{
    for (int k = 0; k < work->parts; k++) {
        ebb_work_part *part = &work->part[k];
        ebb_cudnn_attention_sizes *s = &part->ask.of.attention;
        const int64_t count = s->batch / work->slices;
        for (int i = 0; i < part->count; i++)
            part->step[i] = (size_t)count * bytes_of_one(s, part->roles[i]);
        for (int i = 0; i < part->count; i++)
            if (part->step[i] % 16 != 0)
                return "parts of its batch would not begin at multiples of 16 bytes";
        s->batch = count;
        s->bias_batch = s->bias_batch > 1 ? count : s->bias_batch;
    }
    return NULL;
}

static const char *read_all(ebb_work *work, reading *r, const ebb_call *c)
{
    ebb_work_part *part = &work->part[0];
    const ebb_cudnn_attention_sizes *s = &part->ask.of.attention;
    memset(r, 0, sizeof *r);
    EBB_ASK(read_sizes(r, &part->ask.of.attention, c));
    const size_t row_bytes = (size_t)(s->batch * s->heads * s->queries) * sizeof(float);
    part->ask.kind = EBB_ASK_ATTENTION;
    work->parts = 1;
    work->batch = s->batch;
    put_prepared(work, r, c);
    if (ebb_attention_is_grad(c->op))
        put_backward(work, r, c, row_bytes);
    else
        put_forward(work, r, c, row_bytes);
    return work->slices > 1 ? cut_batch(work) : NULL;
}

const char *ebb_cuda_read_cudnn_attention(ebb_work *work, const ebb_call *c)
{
    reading r;
    return read_all(work, &r, c);
}

EBB_WORK_PHASES(cudnn_attention)

/* ---- a run ---- */

static ebb_status draw(const ebb_call *c, int64_t slices, int64_t slice)
{
    ebb_work work;
    reading r;
    memset(&work, 0, sizeof work);
    work.slices = slices;
    (void)read_all(&work, &r, c);
    const int64_t heads = r.a.heads / slices;
    return ebb_cuda_masking_kept(c, &r.a, c->in[r.a.key].data,
                                 (ebb_dtype)c->in[ebb_attention_first(c->op)].type.dtype,
                                 slice * heads, heads, ebb_work_scratch_at(c, r.kept));
}

/* to [heads, columns, rows] = from [heads, rows, columns], 16 bits each. */
static ebb_status turn(const ebb_call *c, void *to, const void *from, int64_t heads, int64_t rows,
                       int64_t columns)
{
    const int64_t dims[3] = {heads, columns, rows}, dense[3] = {columns * rows, rows, 1};
    const int64_t turned[3] = {columns * rows, 1, columns};
    return ebb_cuda_strided(c, to, dense, from, turned, 3, dims, 2);
}

static ebb_status prepare_operands(const ebb_call *c, const reading *r)
{
    const ebb_operand *in = c->in + ebb_attention_first(c->op);
    if (r->is_turned)
        EBB_TRY(turn(c, ebb_work_scratch_at(c, r->k), in[K].data, r->a.heads, r->a.d, r->a.t));
    return r->is_masked ? ebb_cuda_masking_make(c, &r->mask, in[KEEP].data, in[BIAS].data, NULL,
                                                ebb_work_scratch_at(c, r->bias),
                                                ebb_work_scratch_at(c, r->alive))
                        : NULL;
}

static ebb_status run_forward(const ebb_call *c)
{
    ebb_work work;
    reading r;
    memset(&work, 0, sizeof work);
    (void)read_all(&work, &r, c);
    EBB_TRY(prepare_operands(c, &r));
    EBB_TRY(ebb_work_run(c));
    if (!r.is_masked)
        return NULL;
    return ebb_cuda_masking_settle(c, &r.mask, ebb_work_scratch_at(c, r.alive), c->out[0].data,
                                   r.a.e, ebb_call_wants(c, 1) ? c->out[1].data : NULL,
                                   ebb_call_wants(c, 2) ? c->out[2].data : NULL);
}

static ebb_status run_backward(const ebb_call *c)
{
    ebb_work work;
    reading r;
    memset(&work, 0, sizeof work);
    (void)read_all(&work, &r, c);
    EBB_TRY(prepare_operands(c, &r));
    if (r.is_masked && r.mask.dies) {
        void *dout = ebb_work_scratch_at(c, r.dout);
        EBB_TRY(ebb_cuda_copy(c, dout, c->in[0].data, c->in[0].bytes));
        EBB_TRY(ebb_cuda_masking_settle(c, &r.mask, ebb_work_scratch_at(c, r.alive), dout, r.a.e,
                                        NULL, NULL));
    }
    if (r.a.y != 0)
        EBB_TRY(ebb_cuda_masking_log_sums(c, c->in[6].data, c->in[7].data, r.a.guard,
                                          ebb_work_scratch_at(c, r.stats), r.a.heads * r.a.s));
    EBB_TRY(ebb_work_run(c));
    if (!r.is_turned || !ebb_call_wants(c, 1))
        return NULL;
    return turn(c, c->out[1].data, ebb_work_scratch_at(c, r.dk), r.a.heads, r.a.t, r.a.d);
}

const ebb_kernel ebb_cuda_cudnn_attention[] = {
    EBB_WORK_ROW("cuda.cudnn_attention", EBB_OP_EBB_ATTENTION, run_forward),
    EBB_WORK_ROW("cuda.cudnn_attention_grad", EBB_OP_EBB_ATTENTION_GRAD, run_backward),
    EBB_WORK_ROW("cuda.cudnn_attention_dropout", EBB_OP_EBB_ATTENTION_DROPOUT, run_forward),
    EBB_WORK_ROW("cuda.cudnn_attention_dropout_grad", EBB_OP_EBB_ATTENTION_DROPOUT_GRAD,
                 run_backward),
};
EBB_CUDA_COUNT(cudnn_attention)
