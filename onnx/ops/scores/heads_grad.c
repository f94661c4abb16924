/* heads_grad: gradients of ONNX's attention and of what turns its heads.
 *
 *   x = scale Q K^T    c = cap tanh(x / cap)    s = c + mask    P = softmax s    Y = P V
 *
 * Where nothing asks for more than Q, K and V, ai.ebb.AttentionGrad computes their gradients from
 * statistics of the rows, which are computed again; with softcap, a trained mask, scores that are
 * read, or a float64 scale that an attribute would round, the scores are made again by nodes. Heads
 * of K and V that several of Q share are repeated, and their gradients added up.
 */
#include "onnx/ops/common.h"

#include <math.h>

enum { Q, K, V, MASK, PAST_K, PAST_V, LENGTHS };

typedef struct heads {
    ebb_build *b;
    ebb_grad *c;
    int64_t batch, q_heads, heads, queries, before, total, size, value;
    double scale, cap;
    bool packed[3];           /* [batch, length, heads size] */
    ebb_value q, k, v;        /* [batch, q_heads, queries or total, size or value] */
    ebb_value dy, dq, dk, dv; /* alike */
    ebb_value keep, bias;     /* none: all, nothing */
} heads;

static ebb_value four(ebb_build *b, ebb_value x, int64_t a, int64_t h, int64_t l, int64_t s)
{
    return ebb_emit_reshape(b, x, (const int64_t[4]){a, h, l, s}, 4);
}

/* [a, b, c, d] as [a, c, b, d]. */
static ebb_value turned(ebb_build *b, ebb_value x)
{
    return ebb_emit_transpose(b, x, (const int64_t[4]){0, 2, 1, 3}, 4);
}

/* [a, b, c, d] as [a, b, d, c]. */
static ebb_value flipped(ebb_build *b, ebb_value x)
{
    return ebb_emit_transpose(b, x, (const int64_t[4]){0, 1, 3, 2}, 4);
}

/* ---- shapes ---- */

static bool read_heads(heads *h, ebb_build *b, ebb_grad *c)
{
    *h = (heads){.b = b, .c = c};
    ebb_type type;
    for (uint32_t i = 0; i < 7; i++)
        if (ebb_grad_has(c, i) && !ebb_grad_shape(b, c, c->x[i], &type))
            return false;
    if (ebb_attr_find(&c->attrs, "score_mod") != NULL ||
        ebb_attr_find(&c->attrs, "prob_mod") != NULL) {
        ebb_grad_fail(b, c, "score_mod and prob_mod are graphs");
        return false;
    }
    const ebb_type *q = ebb_build_type(b, c->x[Q]), *k = ebb_build_type(b, c->x[K]);
    const ebb_type *v = ebb_build_type(b, c->x[V]);
    h->packed[Q] = q->rank == 3;
    h->packed[K] = k->rank == 3;
    h->packed[V] = v->rank == 3;
    h->batch = q->dims[0];
    h->q_heads = h->packed[Q] ? ebb_attr_int(&c->attrs, "q_num_heads", 1) : q->dims[1];
    h->heads = h->packed[K] ? ebb_attr_int(&c->attrs, "kv_num_heads", 1) : k->dims[1];
    h->queries = q->dims[q->rank - 2];
    h->size = q->dims[q->rank - 1] / (h->packed[Q] ? h->q_heads : 1);
    h->value = v->dims[v->rank - 1] / (h->packed[V] ? h->heads : 1);
    h->before = ebb_grad_has(c, PAST_K) ? ebb_build_type(b, c->x[PAST_K])->dims[2] : 0;
    h->total = h->before + k->dims[k->rank - 2];
    bool masked = ebb_grad_has(c, MASK);
    if (h->heads < 1 || h->q_heads < 1 || h->q_heads % h->heads != 0 ||
        (masked && ebb_build_type(b, c->x[MASK])->rank < 1)) {
        ebb_grad_fail(b, c, "its heads or its mask do not fit each other");
        return false;
    }
    double scale = ebb_attr_float(&c->attrs, "scale", 0.0);
    h->scale = scale != 0.0 ? scale : 1.0 / sqrt((double)h->size);
    h->cap = ebb_attr_float(&c->attrs, "softcap", 0.0);
    return true;
}

/* K or V of all tokens, past and new, a copy for each head of Q. */
static ebb_value all_tokens(const heads *h, uint32_t i)
{
    ebb_build *b = h->b;
    ebb_value x = h->c->x[i];
    int64_t size = i == K ? h->size : h->value, share = h->q_heads / h->heads;
    if (h->packed[i])
        x = turned(b, four(b, x, h->batch, h->total - h->before, h->heads, size));
    if (ebb_grad_has(h->c, PAST_K + i - K)) {
        ebb_with_int(b, "axis", 2);
        x = ebb_emit(b, EBB_OP_CONCAT, h->c->x[PAST_K + i - K], x);
    }
    if (share == 1)
        return x;
    const int64_t apart[5] = {h->batch, h->heads, 1, h->total, size};
    const int64_t wide[5] = {h->batch, h->heads, share, h->total, size};
    x = ebb_emit_reshape(b, x, apart, 5);
    x = ebb_emit(b, EBB_OP_EXPAND, x, ebb_const_ints(b, wide, 5));
    return four(b, x, h->batch, h->q_heads, h->total, size);
}

static ebb_value queries_first(const heads *h, ebb_value x, int64_t size)
{
    if (!h->packed[Q])
        return x;
    return turned(h->b, four(h->b, x, h->batch, h->queries, h->q_heads, size));
}

/* The gradient of all tokens back to the inputs that they came from. */
static void give_tokens(heads *h, uint32_t i, ebb_value dx)
{
    ebb_build *b = h->b;
    ebb_grad *c = h->c;
    int64_t size = i == K ? h->size : h->value, share = h->q_heads / h->heads, group = 2;
    ebb_value present = ebb_grad_of(c, i), past = EBB_NO_VALUE;
    if (dx.i != 0 && share > 1) {
        const int64_t apart[5] = {h->batch, h->heads, share, h->total, size};
        dx = ebb_emit_reshape(b, dx, apart, 5);
        dx = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, dx, &group, 1, false);
    }
    if (present.i != 0)
        dx = dx.i != 0 ? ebb_emit(b, EBB_OP_ADD, dx, present) : present;
    if (dx.i == 0)
        return;
    if (ebb_grad_has(c, PAST_K + i - K)) {
        past = ebb_emit_part(b, dx, 2, 0, h->before);
        dx = ebb_emit_part(b, dx, 2, h->before, h->total - h->before);
        if (ebb_grad_wants(c, PAST_K + i - K))
            c->dx[PAST_K + i - K] = past;
    }
    if (ebb_grad_wants(c, i)) {
        if (h->packed[i])
            dx = turned(b, dx);
        c->dx[i] = ebb_emit_reshape_like(b, dx, c->x[i]);
    }
}

/* ---- masks ---- */

static ebb_value counted(const heads *h, int64_t from, int64_t n, const int64_t *dims, int rank)
{
    int64_t *list = EBB_NEW(&h->b->g->model->arena, int64_t, (size_t)n + 1);
    ebb_type type = ebb_type_tensor(EBB_I64, rank, dims);
    if (!ebb_build_got(h->b, list))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < n; i++)
        list[i] = from + i;
    return ebb_const_tensor(h->b, &type, list);
}

static void also_keep(heads *h, ebb_value on)
{
    h->keep = h->keep.i != 0 ? ebb_emit(h->b, EBB_OP_AND, h->keep, on) : on;
}

/* What the mask, the diagonal and the lengths leave. A mask may end before the keys do. */
static void read_masks(heads *h, bool own_diagonal)
{
    ebb_build *b = h->b;
    ebb_grad *c = h->c;
    const int64_t across[1] = {h->total}, down[2] = {h->queries, 1};
    ebb_value places = counted(h, 0, h->total, across, 1);
    if (ebb_grad_has(c, MASK)) {
        ebb_value mask = c->x[MASK];
        const ebb_type *m = ebb_build_type(b, mask);
        int64_t pads[2 * EBB_MAX_RANK] = {0}, have = m->dims[m->rank - 1];
        bool whether = m->dtype == EBB_BOOL;
        pads[2 * m->rank - 1] = h->total - have;
        if (have < h->total) {
            ebb_value end = ebb_const_scalar(b, EBB_I64, (double)have);
            also_keep(h, ebb_emit(b, EBB_OP_LESS, places, end));
            mask = ebb_emit(b, EBB_OP_PAD, mask, ebb_const_ints(b, pads, 2 * (uint32_t)m->rank));
        }
        if (whether)
            also_keep(h, mask);
        else
            h->bias = mask;
    }
    if (ebb_grad_has(c, LENGTHS)) {
        ebb_value lengths = four(b, c->x[LENGTHS], h->batch, 1, 1, 1);
        also_keep(h, ebb_emit(b, EBB_OP_LESS, places, lengths));
    }
    if (own_diagonal && ebb_attr_int(&c->attrs, "is_causal", 0) != 0) {
        ebb_value last = counted(h, h->before, h->queries, down, 2);
        also_keep(h, ebb_emit(b, EBB_OP_LESS_OR_EQUAL, places, last));
    }
}

/* ---- by the operator of ai.ebb ---- */

static void put_attributes(const heads *h, bool causal)
{
    ebb_with_ints(h->b, "k_perm", (const int64_t[4]){0, 1, 3, 2}, 4);
    ebb_with_float(h->b, "scale", h->scale);
    ebb_with_int(h->b, "causal", causal);
}

static void by_statistics(heads *h)
{
    ebb_build *b = h->b;
    bool causal = ebb_attr_int(&h->c->attrs, "is_causal", 0) != 0 && h->before == 0;
    uint32_t wanted = 0;
    ebb_value out[3], d[3];
    read_masks(h, !causal);
    ebb_value keep = h->keep.i != 0 ? h->keep : ebb_const_scalar(b, EBB_BOOL, 1.0);
    ebb_value bias = h->bias.i != 0 ? h->bias : ebb_const_like(b, h->q, 0.0);
    const uint32_t past[3] = {Q, PAST_K, PAST_V};
    for (uint32_t i = 0; i < 3; i++)
        if (ebb_grad_wants(h->c, i) || ebb_grad_wants(h->c, past[i]))
            wanted |= UINT32_C(1) << i;
    if (wanted == 0)
        return;
    put_attributes(h, causal);
    ebb_emit_node(b, EBB_OP_EBB_ATTENTION, (const ebb_value[]){h->q, h->k, h->v, keep, bias}, 5,
                  out, 3, 7);
    if (b->status != NULL)
        return;
    ebb_emit_attention_grad(b, b->last, h->dy, out[0], wanted, d);
    h->dq = d[Q];
    h->dk = d[K];
    h->dv = d[V];
}

/* ---- by nodes ---- */

static ebb_value plus(ebb_build *b, ebb_value x, ebb_value y)
{
    return x.i == 0 ? y : y.i == 0 ? x : ebb_emit(b, EBB_OP_ADD, x, y);
}

/* dmask, of the shape of the mask: summed, and cut where the mask ends before the keys. */
static void give_mask(heads *h, ebb_value ds)
{
    ebb_build *b = h->b;
    const ebb_type *m = ebb_build_type(b, h->c->x[MASK]);
    int64_t have = m->dims[m->rank - 1];
    if (have < h->total)
        ds = ebb_emit_part(b, ds, 3, 0, have);
    ebb_grad_give(b, h->c, MASK, ds);
}

static void by_scores(heads *h)
{
    ebb_build *b = h->b;
    ebb_grad *c = h->c;
    int64_t mode = ebb_attr_int(&c->attrs, "qk_matmul_output_mode", 0);
    ebb_value seen[4] = {EBB_NO_VALUE, EBB_NO_VALUE, EBB_NO_VALUE, EBB_NO_VALUE}, dp, ds;
    ebb_value bend = EBB_NO_VALUE, zero = ebb_const_like(b, h->q, 0.0);
    seen[mode & 3] = ebb_grad_of(c, 3);
    read_masks(h, true);
    ebb_value x = ebb_emit(b, EBB_OP_MATMUL, h->q, flipped(b, h->k));
    x = ebb_emit_scaled(b, x, h->scale);
    if (h->cap > 0.0) {
        bend = ebb_emit(b, EBB_OP_TANH, ebb_emit_scaled(b, x, 1.0 / h->cap));
        x = ebb_emit_scaled(b, bend, h->cap);
    }
    if (h->keep.i != 0)
        x = ebb_emit(b, EBB_OP_WHERE, h->keep, x, ebb_const_like(b, x, -INFINITY));
    x = plus(b, x, h->bias);
    ebb_with_int(b, "axis", -1);
    ebb_value p = ebb_emit(b, EBB_OP_SOFTMAX, x);
    dp = seen[3];
    if (h->dy.i != 0) {
        dp = plus(b, ebb_emit(b, EBB_OP_MATMUL, h->dy, flipped(b, h->v)), dp);
        h->dv = ebb_emit(b, EBB_OP_MATMUL, flipped(b, p), h->dy);
    }
    ds = seen[2];
    if (dp.i != 0) {
        ebb_with_int(b, "axis", -1);
        ds = plus(b, ebb_emit(b, EBB_OP_SOFTMAX_GRAD, dp, p), ds);
    }
    if (ds.i != 0) {
        if (ebb_grad_wants(c, MASK))
            give_mask(h, ds);
        if (h->keep.i != 0)
            ds = ebb_emit(b, EBB_OP_WHERE, h->keep, ds, zero);
    }
    ds = plus(b, ds, seen[1]);
    if (bend.i != 0 && ds.i != 0)
        ds = ebb_emit(b, EBB_OP_TANH_GRAD, ds, bend);
    ds = plus(b, ds, seen[0]);
    if (ds.i == 0)
        return;
    ds = ebb_emit_scaled(b, ds, h->scale);
    h->dq = ebb_emit(b, EBB_OP_MATMUL, ds, h->k);
    h->dk = ebb_emit(b, EBB_OP_MATMUL, flipped(b, ds), h->q);
}

/* (Q, K, V, mask?, past K?, past V?, lengths?) -> Y, present K?, present V?, scores?. */
void ebb_grad_onnx_attention(ebb_build *b, ebb_grad *c)
{
    heads h;
    if (!read_heads(&h, b, c))
        return;
    ebb_value scores = ebb_grad_of(c, 3);
    h.q = queries_first(&h, c->x[Q], h.size);
    h.k = all_tokens(&h, K);
    h.v = all_tokens(&h, V);
    if (c->dy[0].i != 0)
        h.dy = queries_first(&h, c->dy[0], h.value);
    bool rounds = ebb_build_type(b, c->x[Q])->dtype == EBB_F64 && h.scale != (double)(float)h.scale;
    if (h.dy.i != 0 && scores.i == 0 && h.cap <= 0.0 && !ebb_grad_wants(c, MASK) && !rounds)
        by_statistics(&h);
    else if (h.dy.i != 0 || scores.i != 0)
        by_scores(&h);
    if (h.dq.i != 0 && ebb_grad_wants(c, Q)) {
        if (h.packed[Q])
            h.dq = turned(b, h.dq);
        c->dx[Q] = ebb_emit_reshape_like(b, h.dq, c->x[Q]);
    }
    give_tokens(&h, K, h.dk);
    give_tokens(&h, V, h.dv);
}

/* ---- RotaryEmbedding ---- */

/* x [..., size] as pairs of what turns: `which` of each, [..., turned / 2]. */
static ebb_value half_of(ebb_build *b, const ebb_grad *c, ebb_value x, int which, int64_t half)
{
    if (b->status != NULL)
        return EBB_NO_VALUE;
    bool interleaved = ebb_attr_int(&c->attrs, "interleaved", 0) != 0;
    int64_t from = interleaved ? which : which * half, to = interleaved ? 2 * half : from + half;
    int64_t axis = 3, step = interleaved ? 2 : 1;
    return ebb_emit(b, EBB_OP_SLICE, x, ebb_const_ints(b, &from, 1), ebb_const_ints(b, &to, 1),
                    ebb_const_ints(b, &axis, 1), ebb_const_ints(b, &step, 1));
}

/* The pairs (p, q) become (p cos - q sin, p sin + q cos): what is turned is turned back, and
 * dcos = dy_p p + dy_q q, dsin = dy_q p - dy_p q, summed over the heads and over tokens at the
 * same position. */
void ebb_grad_rotary_embedding(ebb_build *b, ebb_grad *c)
{
    enum { X, COS, SIN, POSITIONS };
    ebb_value positions = ebb_grad_has(c, POSITIONS) ? c->x[POSITIONS] : EBB_NO_VALUE;
    if (ebb_grad_wants(c, X)) {
        ebb_value back = ebb_emit(b, EBB_OP_NEG, c->x[SIN]);
        ebb_with_attrs_of(b, c->node);
        c->dx[X] = ebb_emit(b, EBB_OP_ROTARY_EMBEDDING, c->dy[0], c->x[COS], back, positions);
    }
    if (b->status != NULL || (!ebb_grad_wants(c, COS) && !ebb_grad_wants(c, SIN)))
        return;
    ebb_type t, cache;
    if (!ebb_grad_shape(b, c, c->x[X], &t) || !ebb_grad_shape(b, c, c->x[COS], &cache))
        return;
    int64_t count = ebb_attr_int(&c->attrs, "num_heads", 1);
    // a cache is [batch, length, half], or with positions [any, half]
    bool fits = cache.rank == (positions.i != 0 ? 2 : 3) && cache.dtype == t.dtype &&
                ebb_type_same_shape(&cache, ebb_build_type(b, c->x[SIN])) &&
                ebb_build_type(b, c->x[SIN])->dtype == t.dtype;
    if (fits && positions.i == 0)
        fits = cache.dims[0] == t.dims[0] && cache.dims[1] == t.dims[t.rank == 3 ? 1 : 2];
    if (!fits || (t.rank != 3 && t.rank != 4) || (t.rank == 3 && count < 1)) {
        ebb_grad_fail(b, c, "its inputs do not fit each other");
        return;
    }
    ebb_value x = c->x[X], dy = c->dy[0];
    int64_t half = cache.dims[cache.rank - 1], over = t.rank == 3 ? 2 : 1;
    if (t.rank == 3) { // [batch, length, heads, size]
        x = four(b, x, t.dims[0], t.dims[1], count, t.dims[2] / count);
        dy = four(b, dy, t.dims[0], t.dims[1], count, t.dims[2] / count);
    }
    ebb_value p = half_of(b, c, x, 0, half), q = half_of(b, c, x, 1, half);
    ebb_value dp = half_of(b, c, dy, 0, half), dq = half_of(b, c, dy, 1, half);
    for (uint32_t i = COS; i <= SIN; i++) {
        if (!ebb_grad_wants(c, i))
            continue;
        ebb_value one = ebb_emit(b, EBB_OP_MUL, i == COS ? dp : dq, p);
        ebb_value two = ebb_emit(b, EBB_OP_MUL, i == COS ? dq : dp, q);
        ebb_value d = ebb_emit(b, i == COS ? EBB_OP_ADD : EBB_OP_SUB, one, two);
        d = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, d, &over, 1, false);
        if (positions.i != 0)
            d = ebb_emit(b, EBB_OP_GATHER_GRAD, ebb_const_shape(b, c->x[i]), positions, d);
        c->dx[i] = d;
    }
}

/* ---- LinearAttention ---- */

/* ai.ebb.LinearAttentionGrad takes all inputs, in one form: a decay for each element of a key,
 * which is 0 where the rule has none; a beta for each head, which is 1; states of zeros. */
typedef struct linear {
    ebb_value decay, beta, state, dstate, dy;
} linear;

static ebb_value filled(ebb_build *b, ebb_value like, double x, const int64_t *dims, int rank)
{
    ebb_value shape = ebb_const_ints(b, dims, (uint32_t)rank);
    return ebb_emit(b, EBB_OP_EXPAND, ebb_const_like(b, like, x), shape);
}

static void read_linear(linear *l, ebb_build *b, const ebb_grad *c, bool decays, bool delta,
                        const int64_t state[4], double scale)
{
    enum { QUERY, KEY, VALUE, STATE, DECAY, BETA };
    const ebb_type *q = ebb_build_type(b, c->x[QUERY]), *v = ebb_build_type(b, c->x[VALUE]);
    int64_t batch = state[0], length = q->dims[1], count = state[1], key = state[2];
    int64_t y[3] = {batch, length, q->dims[2] / key * (v->dims[2] / count)};
    const int64_t each[3] = {batch, length, count * key}, one[3] = {batch, length, count};
    const int64_t thin[4] = {batch, length, count, 1}, wide[4] = {batch, length, count, key};
    l->decay = decays ? c->x[DECAY] : filled(b, c->x[QUERY], 0.0, each, 3);
    if (decays && ebb_build_type(b, l->decay)->dims[2] == count && key != 1) {
        ebb_value by_head = ebb_emit_reshape(b, l->decay, thin, 4);
        by_head = ebb_emit(b, EBB_OP_EXPAND, by_head, ebb_const_ints(b, wide, 4));
        l->decay = ebb_emit_reshape(b, by_head, each, 3);
    }
    l->beta = delta ? c->x[BETA] : filled(b, c->x[QUERY], 1.0, one, 3);
    if (delta && ebb_build_type(b, l->beta)->dims[2] != count)
        l->beta = ebb_emit(b, EBB_OP_EXPAND, l->beta, ebb_const_ints(b, one, 3));
    l->state = ebb_grad_has(c, STATE) ? c->x[STATE] : filled(b, c->x[QUERY], 0.0, state, 4);
    l->dstate =
        ebb_grad_of(c, 1).i != 0 ? ebb_grad_of(c, 1) : filled(b, c->x[QUERY], 0.0, state, 4);
    l->dy =
        c->dy[0].i != 0 ? ebb_emit_scaled(b, c->dy[0], scale) : filled(b, c->x[QUERY], 0.0, y, 3);
}

/* (query, key, value, state?, decay?, beta?) -> output, state. */
void ebb_grad_linear_attention(ebb_build *b, ebb_grad *c)
{
    enum { QUERY, KEY, VALUE, STATE, DECAY, BETA };
    ebb_type type;
    for (uint32_t i = 0; i < c->input_count; i++)
        if (ebb_grad_has(c, i) && !ebb_grad_shape(b, c, c->x[i], &type))
            return;
    const char *rule = ebb_attr_string(&c->attrs, "update_rule", "gated_delta");
    bool decays = strncmp(rule, "gated", 5) == 0, delta = strstr(rule, "delta") != NULL;
    int64_t q_heads = ebb_attr_int(&c->attrs, "q_num_heads", 1);
    int64_t count = ebb_attr_int(&c->attrs, "kv_num_heads", 1);
    const ebb_type *q = ebb_build_type(b, c->x[QUERY]), *v = ebb_build_type(b, c->x[VALUE]);
    int64_t key = q->dims[2] / q_heads, length = q->dims[1], last = 3;
    const int64_t state[4] = {q->dims[0], count, key, v->dims[2] / count};
    const int64_t wide[4] = {q->dims[0], length, count, key};
    double scale = ebb_attr_float(&c->attrs, "scale", 0.0);
    linear l;
    ebb_value d[6];
    uint32_t wanted = 0;
    if ((decays && !ebb_grad_has(c, DECAY)) || (delta && !ebb_grad_has(c, BETA)) || key < 1) {
        ebb_grad_fail(b, c, "its decay or its beta is absent, or its heads are empty");
        return;
    }
    for (uint32_t i = 0; i < 6; i++)
        if (ebb_grad_wants(c, i) && (i != DECAY || decays) && (i != BETA || delta))
            wanted |= UINT32_C(1) << i;
    scale = scale != 0.0 ? scale : 1.0 / sqrt((double)key);
    read_linear(&l, b, c, decays, delta, state, scale);
    ebb_with_int(b, "q_num_heads", q_heads);
    ebb_with_int(b, "kv_num_heads", count);
    ebb_with_int(b, "delta", delta);
    ebb_emit_node(b, EBB_OP_LINEAR_ATTENTION_GRAD,
                  (const ebb_value[]){l.dy, l.dstate, c->x[QUERY], c->x[KEY], c->x[VALUE], l.state,
                                      l.decay, l.beta},
                  8, d, 6, wanted);
    for (uint32_t i = 0; i < c->input_count && i < 6; i++)
        c->dx[i] = d[i];
    if ((wanted >> DECAY & 1) != 0 && ebb_build_type(b, c->x[DECAY])->dims[2] != count * key) {
        ebb_value by_head = ebb_emit_reshape(b, d[DECAY], wide, 4);
        by_head = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, by_head, &last, 1, false);
        c->dx[DECAY] = by_head;
    }
    if ((wanted >> BETA & 1) != 0)
        c->dx[BETA] = ebb_emit_unbroadcast(b, d[BETA], c->x[BETA]);
}
