/* heads.c: see heads.h. */
#include "kernels/call/heads.h"

#include <math.h>

/* ---- Attention, FlexAttention ---- */

static ebb_tokens tokens_of(const ebb_call *c, uint32_t i, uint32_t past, int64_t heads)
{
    const ebb_type *t = &c->in[i].type;
    ebb_tokens s = {.now = c->in[i].data, .packed = t->rank == 3};
    s.heads = s.packed ? heads : t->dims[1];
    s.length = t->dims[t->rank - 2];
    s.size = s.packed ? (heads > 0 ? t->dims[2] / heads : 0) : t->dims[3];
    if (past > 0 && ebb_call_has(c, past)) {
        s.past = c->in[past].data;
        s.before = c->in[past].type.dims[2];
    }
    return s;
}

ebb_heads ebb_heads_read(const ebb_call *c)
{
    int64_t kv = ebb_attr_int(&c->attrs, "kv_num_heads", 0);
    ebb_heads a = {.q = tokens_of(c, 0, 0, ebb_attr_int(&c->attrs, "q_num_heads", 0)),
                   .k = tokens_of(c, 1, 4, kv),
                   .v = tokens_of(c, 2, 5, kv)};
    a.batch = c->in[0].type.dims[0];
    a.total = a.k.before + a.k.length;
    double scale = ebb_attr_float(&c->attrs, "scale", 0.0);
    a.scale = scale != 0.0 ? scale : 1.0 / sqrt((double)a.q.size);
    a.cap = ebb_attr_float(&c->attrs, "softcap", 0.0);
    a.causal = ebb_attr_int(&c->attrs, "is_causal", 0) != 0;
    a.mode = ebb_attr_int(&c->attrs, "qk_matmul_output_mode", 0);
    if (ebb_call_has(c, 3)) {
        const ebb_type *m = &c->in[3].type;
        int64_t stride = 1;
        for (int d = m->rank - 1; d >= 0; d--) {
            a.mask_stride[4 - m->rank + d] = m->dims[d] == 1 && d < m->rank - 1 ? 0 : stride;
            stride *= m->dims[d];
        }
        a.mask_length = m->dims[m->rank - 1];
        a.mask = c->in[3].data;
        a.mask_is_bool = m->dtype == EBB_BOOL;
    }
    if (ebb_call_has(c, 6))
        a.lengths = (const int64_t *)c->in[6].data;
    return a;
}

static const char *declines_mask(const ebb_call *c, const ebb_heads *a)
{
    const ebb_type *m = &c->in[3].type;
    const int64_t want[3] = {a->batch, a->q.heads, a->q.length};
    if (m->rank < 1 || m->rank > 4 || m->dims[m->rank - 1] > a->total)
        return "the mask does not fit the scores";
    for (int d = m->rank - 2; d >= 0; d--)
        if (m->dims[d] != 1 && m->dims[d] != want[4 - m->rank + d])
            return "the mask does not fit the scores";
    return m->dtype == EBB_BOOL || m->dtype == c->in[0].type.dtype
               ? NULL
               : "the mask is neither bool nor of the dtype of Q";
}

static const char *declines_past(const ebb_call *c, const ebb_heads *a, uint32_t i)
{
    if (!ebb_call_has(c, i))
        return NULL;
    const ebb_type *p = &c->in[i].type;
    const ebb_tokens *s = i == 4 ? &a->k : &a->v;
    bool fits = p->rank == 4 && p->dims[0] == a->batch && p->dims[1] == s->heads &&
                p->dims[3] == s->size && ebb_call_has(c, 4) && ebb_call_has(c, 5);
    return fits ? NULL : "past keys and values do not fit the new ones";
}

static const char *heads_misfit(const ebb_call *c)
{
    for (int i = 0; i < 3; i++)
        if (c->in[i].type.rank != 3 && c->in[i].type.rank != 4)
            return "Q, K and V have not rank 3 or 4";
    ebb_heads a = ebb_heads_read(c);
    if (a.q.heads < 1 || a.k.heads < 1 || a.q.heads % a.k.heads != 0 || a.v.heads != a.k.heads ||
        a.k.size != a.q.size || a.v.length != a.k.length || a.k.before != a.v.before ||
        c->in[1].type.dims[0] != a.batch || c->in[2].type.dims[0] != a.batch)
        return "Q, K and V do not fit each other";
    if (ebb_call_has(c, 3))
        EBB_ASK(declines_mask(c, &a));
    for (uint32_t i = 4; i < 6; i++)
        EBB_ASK(declines_past(c, &a, i));
    if (ebb_call_has(c, 6) &&
        (c->in[6].type.dtype != EBB_I64 || ebb_elements(&c->in[6].type) != a.batch))
        return "there is not one length for each of the batch";
    return NULL;
}

/* FlexAttention, where nothing is done to scores and probabilities. */
static const char *flex_misfit(const ebb_call *c)
{
    if (ebb_attr_find(&c->attrs, "score_mod") != NULL ||
        ebb_attr_find(&c->attrs, "prob_mod") != NULL)
        return "score_mod and prob_mod are graphs: expand its function body first";
    for (int i = 0; i < 3; i++)
        if (c->in[i].type.rank != 4)
            return "Q, K and V have not rank 4";
    return heads_misfit(c);
}

/* ---- LinearAttention ---- */

ebb_linear_attention ebb_linear_read(const ebb_call *c)
{
    const ebb_type *q = &c->in[0].type;
    ebb_linear_attention r = {.batch = q->dims[0], .length = q->dims[1]};
    r.q_heads = ebb_attr_int(&c->attrs, "q_num_heads", 1);
    r.heads = ebb_attr_int(&c->attrs, "kv_num_heads", 1);
    r.key = q->dims[2] / r.q_heads;
    r.value = c->in[2].type.dims[2] / r.heads;
    double scale = ebb_attr_float(&c->attrs, "scale", 0.0);
    r.scale = scale != 0.0 ? scale : 1.0 / sqrt((double)r.key);
    const char *rule = ebb_attr_string(&c->attrs, "update_rule", "gated_delta");
    r.decays = strncmp(rule, "gated", 5) == 0;
    r.delta = strstr(rule, "delta") != NULL;
    r.decay_by_key = ebb_call_has(c, 4) && c->in[4].type.dims[2] != r.heads;
    r.one_beta = ebb_call_has(c, 5) && c->in[5].type.dims[2] == 1;
    for (uint32_t i = 0; i < 6; i++)
        r.in[i] = ebb_call_has(c, i) ? c->in[i].data : NULL;
    r.y = ebb_call_wants(c, 0) ? c->out[0].data : NULL;
    return r;
}

static bool is_shaped(const ebb_call *c, uint32_t i, int64_t a, int64_t b, int64_t d)
{
    const ebb_type *t = &c->in[i].type;
    return t->rank == 3 && t->dims[0] == a && t->dims[1] == b && t->dims[2] == d;
}

static const char *linear_misfit(const ebb_call *c)
{
    if (c->in[0].type.rank != 3 || c->in[2].type.rank != 3)
        return "query, key and value have not rank 3";
    ebb_linear_attention r = ebb_linear_read(c);
    if (!is_shaped(c, 1, r.batch, r.length, r.heads * r.key) ||
        !is_shaped(c, 2, r.batch, r.length, r.heads * r.value))
        return "query, key and value do not fit each other";
    if (r.decays && (!ebb_call_has(c, 4) ||
                     !is_shaped(c, 4, r.batch, r.length, r.heads * (r.decay_by_key ? r.key : 1))))
        return "the decay is absent, or does not fit";
    if (r.delta &&
        (!ebb_call_has(c, 5) || !is_shaped(c, 5, r.batch, r.length, r.one_beta ? 1 : r.heads)))
        return "beta is absent, or does not fit";
    const ebb_type *s = &c->in[3].type;
    if (ebb_call_has(c, 3) && (s->rank != 4 || s->dims[0] != r.batch || s->dims[1] != r.heads ||
                               s->dims[2] != r.key || s->dims[3] != r.value))
        return "the past state does not fit";
    return NULL;
}

ebb_linear_back ebb_linear_back_read(const ebb_call *c)
{
    const ebb_type *q = &c->in[EBB_LINEAR_QUERY].type;
    ebb_linear_back r = {.batch = q->dims[0], .length = q->dims[1]};
    r.q_heads = ebb_attr_int(&c->attrs, "q_num_heads", 1);
    r.heads = ebb_attr_int(&c->attrs, "kv_num_heads", 1);
    r.key = q->dims[2] / r.q_heads;
    r.value = c->in[EBB_LINEAR_VALUE].type.dims[2] / r.heads;
    r.delta = ebb_attr_int(&c->attrs, "delta", 0) != 0;
    r.span = 1 + (int64_t)sqrt((double)r.length);
    r.spans = (r.length + r.span - 1) / r.span;
    r.operands = c->in;
    r.results = c->out;
    for (uint32_t i = 0; i < EBB_LINEAR_INPUTS; i++)
        r.in[i] = ebb_call_has(c, i) ? c->in[i].data : NULL;
    for (uint32_t o = 0; o < EBB_LINEAR_OUTPUTS; o++)
        r.out[o] = ebb_call_wants(c, o) ? c->out[o].data : NULL;
    return r;
}

static bool is_back_shaped(const ebb_call *c, uint32_t i, int64_t rows, int64_t columns)
{
    const ebb_type *t = &c->in[i].type, *q = &c->in[EBB_LINEAR_QUERY].type;
    int64_t n = rows * columns;
    return t->rank == 3 && t->dims[0] == q->dims[0] && t->dims[1] == q->dims[1] && t->dims[2] == n;
}

const char *ebb_linear_back_misfit(const ebb_call *c)
{
    for (uint32_t i = 0; i < EBB_LINEAR_INPUTS; i++)
        if (!ebb_call_has(c, i))
            return "an input is absent";
    if (c->in[EBB_LINEAR_QUERY].type.rank != 3 || c->in[EBB_LINEAR_VALUE].type.rank != 3 ||
        ebb_attr_int(&c->attrs, "q_num_heads", 0) < 1 ||
        ebb_attr_int(&c->attrs, "kv_num_heads", 0) < 1)
        return "query and value have not rank 3, or no heads";
    ebb_linear_back r = ebb_linear_back_read(c);
    if (r.q_heads % r.heads != 0 || !is_back_shaped(c, EBB_LINEAR_QUERY, r.q_heads, r.key) ||
        !is_back_shaped(c, EBB_LINEAR_KEY, r.heads, r.key) ||
        !is_back_shaped(c, EBB_LINEAR_VALUE, r.heads, r.value) ||
        !is_back_shaped(c, EBB_LINEAR_DY, r.q_heads, r.value) ||
        !is_back_shaped(c, EBB_LINEAR_DECAY, r.heads, r.key) ||
        !is_back_shaped(c, EBB_LINEAR_BETA, r.heads, 1))
        return "its inputs do not fit each other";
    for (uint32_t i = EBB_LINEAR_DSTATE; i <= EBB_LINEAR_STATE;
         i += EBB_LINEAR_STATE - EBB_LINEAR_DSTATE) {
        const ebb_type *s = &c->in[i].type;
        if (s->rank != 4 || s->dims[0] != r.batch || s->dims[1] != r.heads || s->dims[2] != r.key ||
            s->dims[3] != r.value)
            return "a state does not fit";
    }
    return NULL;
}

size_t ebb_linear_back_size(const ebb_linear_back *r)
{
    size_t states, size;
    return ebb_size_mul(&states, (size_t)r->key, (size_t)r->value) &&
                   ebb_size_mul(&states, states, (size_t)(r->spans + r->span + 3)) &&
                   ebb_size_mul(&size, (size_t)r->value, 3) && ebb_size_add(&size, size, states)
               ? size
               : 0;
}

/* ---- CausalConvWithState ---- */

ebb_causal ebb_causal_read(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    const char *activation = ebb_attr_string(&c->attrs, "activation", "none");
    return (ebb_causal){
        .channels = x->dims[1],
        .length = x->dims[2],
        .taps = c->in[1].type.dims[2],
        .rows = x->dims[0] * x->dims[1],
        .silu = strcmp(activation, "none") != 0,
        .x = c->in[0].data,
        .w = c->in[1].data,
        .bias = ebb_call_has(c, 2) ? c->in[2].data : NULL,
        .past = ebb_call_has(c, 3) ? c->in[3].data : NULL,
        .y = ebb_call_wants(c, 0) ? c->out[0].data : NULL,
        .next = ebb_call_wants(c, 1) ? c->out[1].data : NULL,
    };
}

static const char *causal_misfit(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *w = &c->in[1].type;
    if (x->rank != 3 || w->rank != 3 || w->dims[0] != x->dims[1] || w->dims[1] != 1 ||
        w->dims[2] < 1)
        return "input and weight do not fit each other";
    if (ebb_call_has(c, 2) && ebb_elements(&c->in[2].type) != x->dims[1])
        return "the bias has the wrong shape";
    if (ebb_call_has(c, 3) && !is_shaped(c, 3, x->dims[0], x->dims[1], w->dims[2] - 1))
        return "the past state has the wrong shape";
    const char *act = ebb_attr_string(&c->attrs, "activation", "none");
    bool known = strcmp(act, "none") == 0 || strcmp(act, "silu") == 0 || strcmp(act, "swish") == 0;
    return known ? NULL : "no such activation";
}

/* ---- RotaryEmbedding ---- */

ebb_rotation ebb_rotation_read(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    ebb_rotation r = {.packed = x->rank == 3};
    r.batch = x->dims[0];
    r.heads = r.packed ? ebb_attr_int(&c->attrs, "num_heads", 0) : x->dims[1];
    r.length = x->dims[x->rank - 2];
    r.size = r.packed ? (r.heads > 0 ? x->dims[2] / r.heads : 0) : x->dims[3];
    r.turned = ebb_attr_int(&c->attrs, "rotary_embedding_dim", 0);
    r.turned = r.turned > 0 ? r.turned : r.size;
    r.interleaved = ebb_attr_int(&c->attrs, "interleaved", 0) != 0;
    r.cosine = c->in[1].data;
    r.sine = c->in[2].data;
    r.positions = ebb_call_has(c, 3) ? (const int64_t *)c->in[3].data : NULL;
    return r;
}

static const char *rotation_misfit(const ebb_call *c)
{
    if (c->in[0].type.rank != 3 && c->in[0].type.rank != 4)
        return "the input has not rank 3 or 4";
    ebb_rotation r = ebb_rotation_read(c);
    if (r.heads < 1 || r.turned % 2 != 0 || r.turned > r.size ||
        (r.packed && c->in[0].type.dims[2] % r.heads != 0))
        return "heads and the part that turns do not divide the input";
    for (uint32_t i = 1; i < 3; i++) {
        const ebb_type *t = &c->in[i].type;
        bool fits = ebb_call_has(c, 3) ? t->rank == 2 && t->dims[1] == r.turned / 2
                                       : is_shaped(c, i, r.batch, r.length, r.turned / 2);
        if (!fits || t->dims[0] != c->in[1].type.dims[0])
            return "the caches do not fit the input";
    }
    if (ebb_call_has(c, 3) &&
        (c->in[3].type.dtype != EBB_I64 || ebb_elements(&c->in[3].type) != r.batch * r.length))
        return "there is not one position for each token";
    return NULL;
}

/* ---- any of them ---- */

const char *ebb_any_heads_misfit(const ebb_call *c)
{
    switch (c->op) {
    case EBB_OP_ATTENTION:
        return heads_misfit(c);
    case EBB_OP_FLEX_ATTENTION:
        return flex_misfit(c);
    case EBB_OP_LINEAR_ATTENTION:
        return linear_misfit(c);
    case EBB_OP_LINEAR_ATTENTION_GRAD:
        return ebb_linear_back_misfit(c);
    case EBB_OP_CAUSAL_CONV_WITH_STATE:
        return causal_misfit(c);
    default:
        return rotation_misfit(c);
    }
}
