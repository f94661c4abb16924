/* heads: attention as ONNX has it, and what surrounds it in a language model: their types.
 *
 *   Q [batch, heads, length, size] or packed [batch, length, heads size]; K and V alike.
 */
#include "onnx/ops/ops.h"
#include "onnx/graph/shape.h"

#include <math.h>

/* One dim of a tensor of heads, whichever way it lies; -1 where it is not known. */
typedef struct heads {
    int64_t batch, heads, length, size;
} heads;

static heads heads_of(const ebb_type *t, int64_t count)
{
    heads h = {-1, -1, -1, -1};
    if (t == NULL || (t->rank != 3 && t->rank != 4))
        return h;
    h.batch = t->dims[0];
    h.heads = t->rank == 4 ? t->dims[1] : count > 0 ? count : -1;
    h.length = t->dims[t->rank - 2];
    h.size = t->dims[t->rank - 1];
    if (t->rank == 3)
        h.size = h.size >= 0 && count > 0 ? h.size / count : -1;
    return h;
}

static int64_t sum_known(int64_t a, int64_t b)
{
    int64_t sum;
    return a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum) ? -1 : sum;
}

static ebb_type of_four(uint8_t dtype, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t dims[4] = {a, b, c, d};
    return ebb_type_tensor((ebb_dtype)dtype, 4, dims);
}

static const ebb_type *given(const ebb_infer *c, uint32_t i)
{
    return i < c->input_count ? c->in[i] : NULL;
}

/* Y, packed as Q is: [batch, heads, length, size] with the size of V's heads. */
static ebb_status put_y(ebb_infer *c, const heads *q, int64_t size)
{
    const ebb_type *x = c->in[0];
    c->out[0] = *x;
    if (x->rank < 0)
        return NULL;
    int64_t last = size;
    if (x->rank == 3 && (size < 0 || q->heads < 0 || __builtin_mul_overflow(size, q->heads, &last)))
        last = -1;
    ebb_type_set_dim(&c->out[0], x->rank - 1, last);
    return NULL;
}

/* (Q, K, V, mask?, past K?, past V?, lengths?) -> Y, present K?, present V?, scores?. */
ebb_status ebb_infer_onnx_attention(ebb_infer *c)
{
    int64_t q_heads = ebb_attr_int(&c->attrs, "q_num_heads", 0);
    int64_t kv_heads = ebb_attr_int(&c->attrs, "kv_num_heads", 0);
    for (uint32_t i = 0; i < 3; i++) {
        const ebb_type *t = c->in[i];
        int64_t count = i == 0 ? q_heads : kv_heads;
        if (t->rank >= 0 && t->rank != 3 && t->rank != 4)
            return ebb_infer_error(c, "input %u has rank %d, not 3 or 4", i, (int)t->rank);
        if (t->rank == 3 && (count < 1 || (t->dims[2] >= 0 && t->dims[2] % count != 0)))
            return ebb_infer_error(c, "input %u is packed, and %s does not divide it", i,
                                   i == 0 ? "q_num_heads" : "kv_num_heads");
    }
    heads q = heads_of(c->in[0], q_heads), k = heads_of(c->in[1], kv_heads);
    heads v = heads_of(c->in[2], kv_heads);
    if (q.heads > 0 && k.heads > 0 && q.heads % k.heads != 0)
        return ebb_infer_error(c, "%lld heads of Q do not share %lld heads of K",
                               (long long)q.heads, (long long)k.heads);
    const ebb_type *past = given(c, 4);
    int64_t before = past == NULL ? 0 : past->rank == 4 ? past->dims[2] : -1;
    int64_t total = sum_known(before, k.length);
    EBB_TRY(put_y(c, &q, v.size));
    if (c->output_count > 1)
        c->out[1] = of_four(c->in[1]->dtype, k.batch, k.heads, total, k.size);
    if (c->output_count > 2)
        c->out[2] = of_four(c->in[2]->dtype, v.batch, v.heads, total, v.size);
    if (c->output_count > 3)
        c->out[3] = of_four(c->in[0]->dtype, q.batch, q.heads, q.length, total);
    return NULL;
}

/* Two products of [length, total] by the size of a head, for each head. */
double ebb_cost_onnx_attention(const ebb_infer *c)
{
    heads q = heads_of(c->in[0], ebb_attr_int(&c->attrs, "q_num_heads", 0));
    heads k = heads_of(c->in[1], ebb_attr_int(&c->attrs, "kv_num_heads", 0));
    if (q.batch < 0 || q.heads < 0 || q.length < 0 || q.size < 0 || k.length < 0)
        return 0;
    return 4.0 * (double)q.batch * (double)q.heads * (double)q.length * (double)k.length *
           (double)q.size;
}

/* (query, key, value, state?, decay?, beta?) -> output, state [batch, heads, key, value]. */
ebb_status ebb_infer_linear_attention(ebb_infer *c)
{
    int64_t q_heads = ebb_attr_int(&c->attrs, "q_num_heads", 0);
    int64_t kv_heads = ebb_attr_int(&c->attrs, "kv_num_heads", 0);
    if (q_heads < 1 || kv_heads < 1 || q_heads % kv_heads != 0)
        return ebb_infer_error(c, "q_num_heads is not a multiple of kv_num_heads");
    for (uint32_t i = 0; i < 3; i++) {
        const ebb_type *t = c->in[i];
        int64_t count = i == 0 ? q_heads : kv_heads;
        if (t->rank >= 0 && (t->rank != 3 || (t->dims[2] >= 0 && t->dims[2] % count != 0)))
            return ebb_infer_error(c, "input %u is not [batch, length, heads size]", i);
    }
    heads q = heads_of(c->in[0], q_heads), v = heads_of(c->in[2], kv_heads);
    EBB_TRY(put_y(c, &q, v.size));
    const ebb_type *past = given(c, 3);
    if (c->output_count > 1)
        c->out[1] = of_four(past != NULL ? past->dtype : c->in[0]->dtype, q.batch, kv_heads, q.size,
                            v.size);
    return NULL;
}

/* (dY, dState, query, key, value, state, decay, beta) -> their gradients, from the query's on. */
ebb_status ebb_infer_linear_attention_grad(ebb_infer *c)
{
    EBB_TRY(ebb_infer_need(c, 8));
    for (uint32_t o = 0; o < c->output_count && o < 6; o++)
        c->out[o] = *c->in[2 + o];
    return NULL;
}

/* (X [batch, channels, length], weight [channels, 1, k], bias?, state?) -> Y, state. */
ebb_status ebb_infer_causal_conv(ebb_infer *c)
{
    const ebb_type *x = c->in[0], *w = c->in[1];
    if ((x->rank >= 0 && x->rank != 3) || (w->rank >= 0 && w->rank != 3))
        return ebb_infer_error(c, "input and weight have not rank 3");
    if (w->rank == 3 && (w->dims[2] == 0 || w->dims[1] > 1))
        return ebb_infer_error(c, "the weight is not [channels, 1, k]");
    c->out[0] = *x;
    if (c->output_count > 1) {
        c->out[1] = ebb_type_ranked((ebb_dtype)x->dtype, 3);
        for (int d = 0; d < 2 && x->rank == 3; d++)
            ebb_type_put_dim(&c->out[1], d, x, d);
        if (w->rank == 3 && w->dims[2] > 0)
            ebb_type_set_dim(&c->out[1], 2, w->dims[2] - 1);
    }
    return NULL;
}
