/* heads.c: Attention, LinearAttention, CausalConvWithState and RotaryEmbedding of ONNX.
 *
 * Sums are in double. An attention whose every key is masked gives NaN, as softmax of nothing does.
 */
#include "kernels/plain/plain.h"
#include "kernels/plain/vmath.h"

/* ---- Attention ---- */

typedef struct tokens { /* where the rows of a head lie: past ones, then new ones */
    const void *past, *now;
    int64_t heads, size, before, length;
    bool packed; /* [batch, length, heads size] */
} tokens;

typedef struct attention {
    tokens q, k, v;
    int64_t batch, total;
    double scale, cap;
    bool causal;
    int64_t mode;
    int64_t mask[4], mask_length; /* strides, and how many keys it covers */
} attention;

static tokens tokens_of(const ebb_call *c, uint32_t i, uint32_t past, int64_t heads)
{
    const ebb_type *t = &c->in[i].type;
    tokens s = {.now = c->in[i].data, .packed = t->rank == 3};
    s.heads = s.packed ? heads : t->dims[1];
    s.length = t->dims[t->rank - 2];
    s.size = s.packed ? (heads > 0 ? t->dims[2] / heads : 0) : t->dims[3];
    if (past > 0 && ebb_plain_has(c, past)) {
        s.past = c->in[past].data;
        s.before = c->in[past].type.dims[2];
    }
    return s;
}

/* Elements from the start of `now` or `past` to the row of token j of head h. */
static int64_t row_of(const tokens *s, int64_t b, int64_t h, int64_t j)
{
    if (j < s->before)
        return ((b * s->heads + h) * s->before + j) * s->size;
    int64_t i = j - s->before;
    return s->packed ? ((b * s->length + i) * s->heads + h) * s->size
                     : ((b * s->heads + h) * s->length + i) * s->size;
}

static attention read_attention(const ebb_call *c)
{
    int64_t kv = ebb_attr_int(&c->attrs, "kv_num_heads", 0);
    attention a = {.q = tokens_of(c, 0, 0, ebb_attr_int(&c->attrs, "q_num_heads", 0)),
                   .k = tokens_of(c, 1, 4, kv),
                   .v = tokens_of(c, 2, 5, kv)};
    a.batch = c->in[0].type.dims[0];
    a.total = a.k.before + a.k.length;
    double scale = ebb_attr_float(&c->attrs, "scale", 0.0);
    a.scale = scale != 0.0 ? scale : 1.0 / sqrt((double)a.q.size);
    a.cap = ebb_attr_float(&c->attrs, "softcap", 0.0);
    a.causal = ebb_attr_int(&c->attrs, "is_causal", 0) != 0;
    a.mode = ebb_attr_int(&c->attrs, "qk_matmul_output_mode", 0);
    if (ebb_plain_has(c, 3)) {
        const ebb_type *m = &c->in[3].type;
        int64_t stride = 1;
        for (int d = m->rank - 1; d >= 0; d--) {
            a.mask[4 - m->rank + d] = m->dims[d] == 1 && d < m->rank - 1 ? 0 : stride;
            stride *= m->dims[d];
        }
        a.mask_length = m->dims[m->rank - 1];
    }
    return a;
}

static const char *declines_mask(const ebb_call *c, const attention *a)
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

static const char *declines_past(const ebb_call *c, const attention *a, uint32_t i)
{
    if (!ebb_plain_has(c, i))
        return NULL;
    const ebb_type *p = &c->in[i].type;
    const tokens *s = i == 4 ? &a->k : &a->v;
    bool fits = p->rank == 4 && p->dims[0] == a->batch && p->dims[1] == s->heads &&
                p->dims[3] == s->size && ebb_plain_has(c, 4) && ebb_plain_has(c, 5);
    return fits ? NULL : "past keys and values do not fit the new ones";
}

static const char *declines_attention(const ebb_call *c)
{
    const char *why = ebb_plain_floats(c);
    for (int i = 0; why == NULL && i < 3; i++)
        if (c->in[i].type.rank != 3 && c->in[i].type.rank != 4)
            why = "Q, K and V have not rank 3 or 4";
    if (why != NULL)
        return why;
    attention a = read_attention(c);
    if (a.q.heads < 1 || a.k.heads < 1 || a.q.heads % a.k.heads != 0 || a.v.heads != a.k.heads ||
        a.k.size != a.q.size || a.v.length != a.k.length || a.k.before != a.v.before ||
        c->in[1].type.dims[0] != a.batch || c->in[2].type.dims[0] != a.batch)
        return "Q, K and V do not fit each other";
    if (ebb_plain_has(c, 3))
        why = declines_mask(c, &a);
    for (uint32_t i = 4; why == NULL && i < 6; i++)
        why = declines_past(c, &a, i);
    if (why == NULL && ebb_plain_has(c, 6) &&
        (c->in[6].type.dtype != EBB_I64 || ebb_plain_elements(&c->in[6].type) != a.batch))
        why = "there is not one length for each of the batch";
    return why;
}

/* FlexAttention, where nothing is done to scores and probabilities. */
static const char *declines_flex(const ebb_call *c)
{
    if (ebb_attr_find(&c->attrs, "score_mod") != NULL ||
        ebb_attr_find(&c->attrs, "prob_mod") != NULL)
        return "score_mod and prob_mod are graphs: expand its function body first";
    for (int i = 0; i < 3; i++)
        if (c->in[i].type.rank != 4)
            return "Q, K and V have not rank 4";
    return declines_attention(c);
}

/* A row of scores for each head of each of the batch. */
static ebb_status attention_workspace(const ebb_call *c, size_t *bytes)
{
    attention a = read_attention(c);
    size_t rows = (size_t)a.batch * (size_t)a.q.heads;
    return ebb_size_mul(bytes, rows, (size_t)a.total) && ebb_size_mul(bytes, *bytes, sizeof(double))
               ? NULL
               : ebb_call_error(c, "its scores pass what memory can be");
}

/* ---- LinearAttention ---- */

typedef struct recurrence {
    int64_t batch, length, q_heads, heads, key, value;
    double scale;
    bool decays, delta, decay_by_key, one_beta;
} recurrence;

static recurrence read_recurrence(const ebb_call *c)
{
    const ebb_type *q = &c->in[0].type;
    recurrence r = {.batch = q->dims[0], .length = q->dims[1]};
    r.q_heads = ebb_attr_int(&c->attrs, "q_num_heads", 1);
    r.heads = ebb_attr_int(&c->attrs, "kv_num_heads", 1);
    r.key = q->dims[2] / r.q_heads;
    r.value = c->in[2].type.dims[2] / r.heads;
    double scale = ebb_attr_float(&c->attrs, "scale", 0.0);
    r.scale = scale != 0.0 ? scale : 1.0 / sqrt((double)r.key);
    const char *rule = ebb_attr_string(&c->attrs, "update_rule", "gated_delta");
    r.decays = strncmp(rule, "gated", 5) == 0;
    r.delta = strstr(rule, "delta") != NULL;
    r.decay_by_key = ebb_plain_has(c, 4) && c->in[4].type.dims[2] != r.heads;
    r.one_beta = ebb_plain_has(c, 5) && c->in[5].type.dims[2] == 1;
    return r;
}

static bool is_shaped(const ebb_call *c, uint32_t i, int64_t a, int64_t b, int64_t d)
{
    const ebb_type *t = &c->in[i].type;
    return t->rank == 3 && t->dims[0] == a && t->dims[1] == b && t->dims[2] == d;
}

static const char *declines_linear(const ebb_call *c)
{
    const char *why = ebb_plain_floats(c);
    if (why != NULL)
        return why;
    if (c->in[0].type.rank != 3 || c->in[2].type.rank != 3)
        return "query, key and value have not rank 3";
    recurrence r = read_recurrence(c);
    if (!is_shaped(c, 1, r.batch, r.length, r.heads * r.key) ||
        !is_shaped(c, 2, r.batch, r.length, r.heads * r.value))
        return "query, key and value do not fit each other";
    if (r.decays && (!ebb_plain_has(c, 4) ||
                     !is_shaped(c, 4, r.batch, r.length, r.heads * (r.decay_by_key ? r.key : 1))))
        return "the decay is absent, or does not fit";
    if (r.delta &&
        (!ebb_plain_has(c, 5) || !is_shaped(c, 5, r.batch, r.length, r.one_beta ? 1 : r.heads)))
        return "beta is absent, or does not fit";
    const ebb_type *s = &c->in[3].type;
    if (ebb_plain_has(c, 3) && (s->rank != 4 || s->dims[0] != r.batch || s->dims[1] != r.heads ||
                                s->dims[2] != r.key || s->dims[3] != r.value))
        return "the past state does not fit";
    return NULL;
}

/* The state where it is no output. */
static ebb_status linear_workspace(const ebb_call *c, size_t *bytes)
{
    recurrence r = read_recurrence(c);
    int64_t n;
    const int64_t dims[4] = {r.batch, r.heads, r.key, r.value};
    ebb_type state = ebb_type_tensor((ebb_dtype)c->in[0].type.dtype, 4, dims);
    (void)n;
    return ebb_type_bytes(&state, bytes) ? NULL : ebb_call_error(c, "its state is too large");
}

/* ---- CausalConvWithState ---- */

static const char *declines_causal(const ebb_call *c)
{
    const char *why = ebb_plain_floats(c);
    if (why != NULL)
        return why;
    const ebb_type *x = &c->in[0].type, *w = &c->in[1].type;
    if (x->rank != 3 || w->rank != 3 || w->dims[0] != x->dims[1] || w->dims[1] != 1 ||
        w->dims[2] < 1)
        return "input and weight do not fit each other";
    if (ebb_plain_has(c, 2) && ebb_plain_elements(&c->in[2].type) != x->dims[1])
        return "the bias has the wrong shape";
    if (ebb_plain_has(c, 3) && !is_shaped(c, 3, x->dims[0], x->dims[1], w->dims[2] - 1))
        return "the past state has the wrong shape";
    const char *act = ebb_attr_string(&c->attrs, "activation", "none");
    bool known = strcmp(act, "none") == 0 || strcmp(act, "silu") == 0 || strcmp(act, "swish") == 0;
    return known ? NULL : "no such activation";
}

/* ---- RotaryEmbedding ---- */

typedef struct rotation {
    int64_t batch, heads, length, size, turned; /* the first `turned` of a head's elements turn */
    bool packed, interleaved;
} rotation;

static rotation read_rotation(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    rotation r = {.packed = x->rank == 3};
    r.batch = x->dims[0];
    r.heads = r.packed ? ebb_attr_int(&c->attrs, "num_heads", 0) : x->dims[1];
    r.length = x->dims[x->rank - 2];
    r.size = r.packed ? (r.heads > 0 ? x->dims[2] / r.heads : 0) : x->dims[3];
    r.turned = ebb_attr_int(&c->attrs, "rotary_embedding_dim", 0);
    r.turned = r.turned > 0 ? r.turned : r.size;
    r.interleaved = ebb_attr_int(&c->attrs, "interleaved", 0) != 0;
    return r;
}

static const char *declines_rotary(const ebb_call *c)
{
    const char *why = ebb_plain_floats(c);
    if (why != NULL)
        return why;
    if (c->in[0].type.rank != 3 && c->in[0].type.rank != 4)
        return "the input has not rank 3 or 4";
    rotation r = read_rotation(c);
    if (r.heads < 1 || r.turned % 2 != 0 || r.turned > r.size ||
        (r.packed && c->in[0].type.dims[2] % r.heads != 0))
        return "heads and the part that turns do not divide the input";
    for (uint32_t i = 1; i < 3; i++) {
        const ebb_type *t = &c->in[i].type;
        bool fits = ebb_plain_has(c, 3) ? t->rank == 2 && t->dims[1] == r.turned / 2
                                        : is_shaped(c, i, r.batch, r.length, r.turned / 2);
        if (!fits || t->dims[0] != c->in[1].type.dims[0])
            return "the caches do not fit the input";
    }
    if (ebb_plain_has(c, 3) && (c->in[3].type.dtype != EBB_I64 ||
                                ebb_plain_elements(&c->in[3].type) != r.batch * r.length))
        return "there is not one position for each token";
    return NULL;
}

/* The row of the caches for each token; checked, since positions are values. */
static ebb_status check_positions(const ebb_call *c)
{
    if (!ebb_plain_has(c, 3))
        return NULL;
    int64_t rows = c->in[1].type.dims[0];
    for (int64_t i = 0, n = ebb_plain_elements(&c->in[3].type); i < n; i++) {
        int64_t at = ebb_plain_int(&c->in[3], i);
        if (at < 0 || at >= rows)
            return ebb_call_error(c, "position %lld is outside 0..%lld", (long long)at,
                                  (long long)rows - 1);
    }
    return NULL;
}

#define LOOPS "kernels/plain/heads_loops.inc"
#include "kernels/plain/both_floats.inc"

static bool is_wide(const ebb_call *c)
{
    return c->in[0].type.dtype == EBB_F64;
}

static ebb_status run_attention(const ebb_call *c)
{
    attention a = read_attention(c);
    if (ebb_plain_has(c, 5))
        a.v.before = a.k.before;
    is_wide(c) ? attend_f64(c, &a) : attend_f32(c, &a);
    return NULL;
}

static ebb_status run_linear(const ebb_call *c)
{
    recurrence r = read_recurrence(c);
    is_wide(c) ? linear_f64(c, &r) : linear_f32(c, &r);
    return NULL;
}

static ebb_status run_causal(const ebb_call *c)
{
    is_wide(c) ? causal_f64(c) : causal_f32(c);
    return NULL;
}

static ebb_status run_rotary(const ebb_call *c)
{
    rotation r = read_rotation(c);
    EBB_TRY(check_positions(c));
    is_wide(c) ? rotate_f64(c, &r) : rotate_f32(c, &r);
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_heads[] = {
    {.name = "plain.onnx_attention",   .op = EBB_OP_ATTENTION,              .declines = declines_attention, .workspace = attention_workspace, .run = run_attention},
    {.name = "plain.flex_attention",   .op = EBB_OP_FLEX_ATTENTION,         .declines = declines_flex,      .workspace = attention_workspace, .run = run_attention},
    {.name = "plain.linear_attention", .op = EBB_OP_LINEAR_ATTENTION,       .declines = declines_linear,    .workspace = linear_workspace,    .run = run_linear},
    {.name = "plain.causal_conv",      .op = EBB_OP_CAUSAL_CONV_WITH_STATE, .declines = declines_causal,    .run = run_causal},
    {.name = "plain.rotary_embedding", .op = EBB_OP_ROTARY_EMBEDDING,       .declines = declines_rotary,    .run = run_rotary},
};
// clang-format on
EBB_PLAIN_COUNT(heads)
