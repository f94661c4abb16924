/* attention: the fused forms of it, as products, softmax and what masks there are. The pass
 * attention then makes one node of them where memory is wanted back.
 *
 *   Q [batch, heads, length, size],  K, V [batch, heads of K, length of K, size]
 *   Y = softmax(scale Q K^T + bias, -lowest where hidden) V,  [batch, length, heads size]
 *
 * A past of keys and values, and packed rows, are put in their places in cache.c. Searches by beams
 * and paged caches stay as they are.
 */
#include "passes/flatten/dialect/heads.h"

#include <math.h>

#include "passes/common.h"

enum { LENGTH_MOST = 1 << 14 }; // of a causal mask, which is written out

/* ---- forms ---- */

/* [B, S, N h] -> [B, N, S, h] */
ebb_value ebb_heads_apart(ebb_build *b, ebb_value x, int64_t count)
{
    static const int64_t perm[4] = {0, 2, 1, 3};
    const int64_t dims[4] = {0, 0, count, -1};
    return ebb_emit_transpose(b, ebb_emit_shaped(b, x, dims, 4), perm, 4);
}

/* [B, N, S, h] -> [B, S, N h] */
ebb_value ebb_heads_together(ebb_build *b, ebb_value x)
{
    static const int64_t perm[4] = {0, 2, 1, 3}, dims[3] = {0, 0, -1};
    return ebb_emit_shaped(b, ebb_emit_transpose(b, x, perm, 4), dims, 3);
}

/* One of the parts of a packed [B, S, N, parts, h], as [B, N, S, h]. */
static ebb_value unpacked(ebb_build *b, ebb_value x, int64_t count, int64_t part)
{
    static const int64_t perm[4] = {0, 2, 1, 3};
    const int64_t dims[4] = {0, 0, count, -1};
    ebb_value one = ebb_emit_between(b, x, 3, part, part + 1);
    return ebb_emit_transpose(b, ebb_emit_shaped(b, one, dims, 4), perm, 4);
}

ebb_value ebb_heads_shared(ebb_build *b, const ebb_heads *h, ebb_value x)
{
    if (h->of_keys == h->count)
        return x;
    int64_t size = b->status == NULL ? ebb_build_type(b, x)->dims[3] : 0;
    const int64_t apart5[5] = {0, h->of_keys, 1, -1, size}, all4[4] = {0, h->count, -1, size};
    const int64_t times[5] = {1, 1, h->count / h->of_keys, 1, 1};
    ebb_value five = ebb_emit_shaped(b, x, apart5, 5);
    return ebb_emit_shaped(b, ebb_emit(b, EBB_OP_EXPAND, five, ebb_const_ints(b, times, 5)), all4,
                           4);
}

/* ---- masks ---- */

double ebb_heads_lowest(const ebb_build *b, ebb_value like)
{
    bool half = b->status == NULL && ebb_build_type(b, like)->dtype == EBB_F16;
    return half ? -65504.0 : -3.402823466e38;
}

/* bool [1, 1, S, T]: key t is seen from s: t <= s + T - S, and not too far before. */
static ebb_value seen(ebb_build *b, ebb_foreign *f, const ebb_heads *h, int64_t s, int64_t t)
{
    bool *list = EBB_NEW(f->scratch, bool, (size_t)(s * t) + 1);
    const int64_t dims[4] = {1, 1, s, t};
    ebb_type type = ebb_type_tensor(EBB_BOOL, 4, dims);
    if (list == NULL) {
        ebb_build_fail(b, ebb_error_memory());
        return EBB_NO_VALUE;
    }
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < t; j++) {
            int64_t last = i + t - s;
            list[i * t + j] = j <= last && (h->window == 0 || j > last - h->window);
        }
    return ebb_const_tensor(b, &type, list);
}

/* Zero where the mask is one, `hidden` where it is zero; the mask, [B, T] or [B, S, T], gets
 * rank 4. */
static ebb_value bias_of_mask(ebb_build *b, ebb_value mask, int rank, ebb_dtype dtype,
                              double hidden)
{
    int64_t dims[4] = {0, 1, rank == 3 ? -1 : 1, -1};
    if (b->status != NULL)
        return EBB_NO_VALUE;
    if (rank == 3)
        dims[3] = ebb_build_type(b, mask)->dims[2];
    ebb_value x = ebb_emit_cast(b, ebb_emit_shaped(b, mask, dims, 4), dtype);
    ebb_value gone = ebb_emit(b, EBB_OP_SUB, ebb_const_like(b, x, 1), x);
    return ebb_emit(b, EBB_OP_MUL, gone, ebb_const_like(b, x, hidden));
}

/* The same for lengths [B]: keys from there on are hidden. */
ebb_value ebb_heads_bias_of_lengths(ebb_build *b, ebb_foreign *f, ebb_value lengths, int64_t t,
                                    ebb_dtype dtype, double hidden)
{
    static const int64_t column[2] = {-1, 1};
    int64_t *list = EBB_NEW(f->scratch, int64_t, (size_t)t + 1);
    if (list == NULL) {
        ebb_build_fail(b, ebb_error_memory());
        return EBB_NO_VALUE;
    }
    for (int64_t i = 0; i < t; i++)
        list[i] = i;
    ebb_value ends = ebb_emit_shaped(b, ebb_emit_cast(b, lengths, EBB_I64), column, 2);
    ebb_value there = ebb_emit(b, EBB_OP_LESS, ebb_const_ints(b, list, (uint32_t)t), ends);
    return bias_of_mask(b, there, 2, dtype, hidden);
}

/* What a mask of keys adds to scores against t keys; none where it declines. */
static ebb_value bias_of_keys(ebb_build *b, ebb_foreign *f, ebb_value mask, int64_t t,
                              ebb_dtype dtype)
{
    double hidden = ebb_attr_float(&f->attrs, "mask_filter_value", -10000.0);
    if (mask.i == 0 || b->status != NULL)
        return EBB_NO_VALUE;
    ebb_type type = *ebb_build_type(b, mask);
    if (type.rank == 2 || type.rank == 3)
        return bias_of_mask(b, mask, type.rank, dtype, hidden);
    ebb_type q = *ebb_build_type(b, f->x[0]);
    bool rows = type.rank == 1 && type.dims[0] >= 0 && type.dims[0] == q.dims[0];
    if (rows && t >= 0 && t <= UINT32_MAX / 16)
        return ebb_heads_bias_of_lengths(b, f, mask, t, dtype, hidden);
    f->declines = "its mask is of a form that is not known here, or its sizes are not";
    return EBB_NO_VALUE;
}

/* ---- the product ---- */

static ebb_value scores_of(ebb_build *b, const ebb_heads *h, ebb_value k)
{
    static const int64_t perm[4] = {0, 1, 3, 2};
    ebb_value s = ebb_emit(b, EBB_OP_MATMUL, h->q, ebb_emit_transpose(b, k, perm, 4));
    s = ebb_emit(b, EBB_OP_MUL, s, ebb_const_like(b, s, h->scale));
    if (h->cap > 0) {
        ebb_value cap = ebb_const_like(b, s, h->cap);
        s = ebb_emit(b, EBB_OP_MUL, ebb_emit(b, EBB_OP_TANH, ebb_emit(b, EBB_OP_DIV, s, cap)), cap);
    }
    return ebb_emit_plus(b, s, h->bias);
}

ebb_value ebb_heads_attend(ebb_build *b, ebb_foreign *f, ebb_heads *h)
{
    if (b->status != NULL || f->declines != NULL)
        return EBB_NO_VALUE;
    ebb_type q = *ebb_build_type(b, h->q), k = *ebb_build_type(b, h->k);
    if (q.rank != 4 || k.rank != 4 || q.dims[3] <= 0) {
        f->declines = "the size of its heads is not known";
        return EBB_NO_VALUE;
    }
    if (h->scale == 0)
        h->scale = 1 / sqrt((double)q.dims[3]);
    ebb_value s = scores_of(b, h, ebb_heads_shared(b, h, h->k));
    if (h->causal) {
        if (q.dims[2] < 0 || k.dims[2] < 0 || q.dims[2] > LENGTH_MOST || k.dims[2] > LENGTH_MOST) {
            f->declines = "the length of its sequences is not known, or too large for a mask";
            return EBB_NO_VALUE;
        }
        ebb_value on = h->past.i != 0 ? ebb_heads_seen_from(b, f, h, q.dims[2], k.dims[2])
                                      : seen(b, f, h, q.dims[2], k.dims[2]);
        ebb_value off = ebb_const_like(b, s, ebb_heads_lowest(b, s));
        s = ebb_emit(b, EBB_OP_WHERE, on, s, off);
    }
    ebb_with_int(b, "axis", -1);
    ebb_value p = ebb_emit(b, EBB_OP_SOFTMAX, s);
    return ebb_heads_together(b, ebb_emit(b, EBB_OP_MATMUL, p, ebb_heads_shared(b, h, h->v)));
}

/* Inputs `from` .. of the call that only generation has. */
static bool generates(ebb_foreign *f, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i <= to; i++)
        if (i < EBB_DIALECT_INPUTS && f->x[i].i != 0)
            f->declines = "it reads where in a cache it is, as in generating";
    return f->declines != NULL;
}

/* ---- the operators ---- */

/* Attention(X, weights, bias?, mask?, past?, attention bias?, past length?) -> Y, present? */
void ebb_dialect_attention(ebb_build *b, ebb_foreign *f)
{
    ebb_type x, w;
    uint32_t count;
    const int64_t *sizes = ebb_attr_ints(&f->attrs, "qkv_hidden_sizes", &count);
    ebb_heads h = {.count = ebb_attr_int(&f->attrs, "num_heads", 0),
                   .scale = ebb_attr_float(&f->attrs, "scale", 0),
                   .causal = ebb_attr_int(&f->attrs, "unidirectional", 0) != 0};
    if (!ebb_foreign_ranked(b, f, 0, &x) || !ebb_foreign_ranked(b, f, 1, &w) ||
        generates(f, 7, EBB_DIALECT_INPUTS - 1))
        return;
    if (w.rank != 2 || w.dims[1] < 0 || x.rank != 3 || h.count <= 0 ||
        ebb_attr_int(&f->attrs, "do_rotary", 0) != 0) {
        f->declines = "it is of a form that is not known here: rotary";
        return;
    }
    int64_t third = w.dims[1] / 3, q = count == 3 ? sizes[0] : third,
            k = count == 3 ? sizes[1] : third;
    if (q < 0 || k < 0 || q > w.dims[1] || k > w.dims[1] - q) {
        f->declines = "its sizes contradict its weights";
        return;
    }
    ebb_value all = ebb_emit_plus(b, ebb_emit(b, EBB_OP_MATMUL, f->x[0], f->x[1]), f->x[2]);
    h.of_keys = h.count;
    h.q = ebb_heads_apart(b, ebb_emit_between(b, all, 2, 0, q), h.count);
    h.k = ebb_heads_apart(b, ebb_emit_between(b, all, 2, q, q + k), h.count);
    h.v = ebb_heads_apart(b, ebb_emit_between(b, all, 2, q + k, w.dims[1]), h.count);
    bool shared = ebb_attr_int(&f->attrs, "past_present_share_buffer", 0) != 0;
    ebb_heads_pair(b, f, &h, f->x[4], shared ? f->x[6] : EBB_NO_VALUE);
    if (f->declines != NULL || b->status != NULL)
        return;
    h.bias = bias_of_keys(b, f, f->x[3], ebb_build_type(b, h.k)->dims[2], (ebb_dtype)x.dtype);
    if (f->x[5].i != 0)
        h.bias = ebb_emit_plus(b, f->x[5], h.bias);
    f->y[0] = ebb_heads_attend(b, f, &h);
}

/* A part of the bias of Q, K and V, onto [B, S, size]. */
static ebb_value with_bias(ebb_build *b, ebb_value x, ebb_value bias, int64_t from, int64_t size)
{
    return bias.i == 0 ? x : ebb_emit_plus(b, x, ebb_emit_between(b, bias, 0, from, from + size));
}

static int64_t last_dim(const ebb_build *b, ebb_value x)
{
    const ebb_type *t = b->status == NULL ? ebb_build_type(b, x) : NULL;
    return t != NULL && t->rank > 0 ? t->dims[t->rank - 1] : -1;
}

/* Q, K and V of MultiHeadAttention, each of its own, or packed in one or two. */
static void find_heads(ebb_build *b, ebb_foreign *f, ebb_heads *h)
{
    ebb_value query = f->x[0], key = f->x[1], value = f->x[2], bias = f->x[3];
    if (key.i == 0) {
        h->q = unpacked(b, query, h->count, 0);
        h->k = unpacked(b, query, h->count, 1);
        h->v = unpacked(b, query, h->count, 2);
        if (bias.i != 0)
            f->declines = "it is packed and has a bias";
        return;
    }
    int64_t size = last_dim(b, query);
    int rank = b->status == NULL ? ebb_build_type(b, key)->rank : 0;
    if (size < 0) {
        f->declines = "the size of its queries is not known";
        return;
    }
    h->q = ebb_heads_apart(b, with_bias(b, query, bias, 0, size), h->count);
    if (rank == 5) {
        h->k = unpacked(b, key, h->count, 0);
        h->v = unpacked(b, key, h->count, 1);
    } else if (rank == 4) {
        h->k = key;
        h->v = value;
    } else {
        int64_t of_v = last_dim(b, value), of_k = last_dim(b, key);
        h->k = ebb_heads_apart(b, with_bias(b, key, bias, size, of_k), h->count);
        h->v = ebb_heads_apart(b, with_bias(b, value, bias, size + of_k, of_v), h->count);
    }
    if (rank > 3 && bias.i != 0)
        f->declines = "its keys are packed or split into heads, and have a bias";
}

/* MultiHeadAttention(Q, K?, V?, bias?, key mask?, attention bias?, past K?, past V?, ...) -> Y, K?,
 * V? */
void ebb_dialect_multi_head_attention(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    ebb_heads h = {.count = ebb_attr_int(&f->attrs, "num_heads", 0),
                   .scale = ebb_attr_float(&f->attrs, "scale", 0),
                   .causal = ebb_attr_int(&f->attrs, "unidirectional", 0) != 0};
    if (!ebb_foreign_ranked(b, f, 0, &x) || generates(f, 9, EBB_DIALECT_INPUTS - 1))
        return;
    if (h.count <= 0 || f->wants[3] || (f->x[1].i == 0 && x.rank != 5)) {
        f->declines = "it is of a form that is not known here";
        return;
    }
    h.of_keys = h.count;
    find_heads(b, f, &h);
    ebb_heads_append(b, f, &h, f->x[6], f->x[7], f->x[8]);
    if (f->declines != NULL || b->status != NULL)
        return;
    h.bias = bias_of_keys(b, f, f->x[4], ebb_build_type(b, h.k)->dims[2], (ebb_dtype)x.dtype);
    if (f->x[5].i != 0)
        h.bias = ebb_emit_plus(b, f->x[5], h.bias);
    f->y[0] = ebb_heads_attend(b, f, &h);
}

/* ---- rotary positions ---- */

/* Rows of a table [positions, size / 2] for `at`, [B, 1, S, size / 2]; at none: 0 .. S - 1. */
static ebb_value rows_of(ebb_build *b, ebb_value table, ebb_value at, int64_t length)
{
    if (b->status != NULL)
        return EBB_NO_VALUE;
    int64_t half = ebb_build_type(b, table)->dims[1];
    const int64_t one[4] = {1, 1, -1, half}, each[4] = {0, 1, -1, half};
    if (at.i == 0)
        return ebb_emit_shaped(b, ebb_emit_between(b, table, 0, 0, length), one, 4);
    return ebb_emit_shaped(b, ebb_emit(b, EBB_OP_GATHER, table, at), each, 4);
}

/* x [B, N, S, h], its first 2 half of h turned by cos and sin. */
static ebb_value rotated(ebb_build *b, ebb_value x, ebb_value cos, ebb_value sin, int64_t half,
                         bool interleaved)
{
    int64_t size = last_dim(b, x), pairs[5] = {0, 0, -1, half, 2}, one[4] = {0, 0, -1, half};
    ebb_value turned = ebb_emit_between(b, x, 3, 0, 2 * half), part[2];
    if (interleaved) {
        ebb_value five = ebb_emit_shaped(b, turned, pairs, 5);
        for (int64_t i = 0; i < 2; i++)
            part[i] = ebb_emit_shaped(b, ebb_emit_between(b, five, 4, i, i + 1), one, 4);
    } else {
        for (int64_t i = 0; i < 2; i++)
            part[i] = ebb_emit_between(b, turned, 3, i * half, (i + 1) * half);
    }
    ebb_value left = ebb_emit(b, EBB_OP_SUB, ebb_emit(b, EBB_OP_MUL, part[0], cos),
                              ebb_emit(b, EBB_OP_MUL, part[1], sin));
    ebb_value right = ebb_emit(b, EBB_OP_ADD, ebb_emit(b, EBB_OP_MUL, part[1], cos),
                               ebb_emit(b, EBB_OP_MUL, part[0], sin));
    if (interleaved) {
        const int64_t narrow[5] = {0, 0, -1, half, 1}, flat[4] = {0, 0, -1, 2 * half};
        left = ebb_emit_shaped(b, left, narrow, 5);
        right = ebb_emit_shaped(b, right, narrow, 5);
        ebb_with_int(b, "axis", 4);
        turned = ebb_emit_shaped(b, ebb_emit(b, EBB_OP_CONCAT, left, right), flat, 4);
    } else {
        ebb_with_int(b, "axis", 3);
        turned = ebb_emit(b, EBB_OP_CONCAT, left, right);
    }
    if (2 * half == size)
        return turned;
    ebb_value rest = ebb_emit_between(b, x, 3, 2 * half, size);
    ebb_with_int(b, "axis", 3);
    return ebb_emit(b, EBB_OP_CONCAT, turned, rest);
}

/* RotaryEmbedding(X, positions, cos, sin) -> Y, of X's form. */
void ebb_dialect_rotary_embedding(ebb_build *b, ebb_foreign *f)
{
    ebb_type x, at, cos;
    int64_t count = ebb_attr_int(&f->attrs, "num_heads", 0);
    bool interleaved = ebb_attr_int(&f->attrs, "interleaved", 0) != 0;
    if (!ebb_foreign_ranked(b, f, 0, &x) || !ebb_foreign_ranked(b, f, 1, &at) ||
        !ebb_foreign_ranked(b, f, 2, &cos))
        return;
    int64_t half = cos.rank == 2 ? cos.dims[1] : -1, last = x.rank > 0 ? x.dims[x.rank - 1] : -1;
    if (x.rank == 3 && count == 0 && half > 0 && last > 0)
        count = last / (2 * half);
    int64_t length = x.rank == 4 ? x.dims[2] : x.rank == 3 ? x.dims[1] : -1;
    double first = 0;
    if (at.rank < 2 && !ebb_foreign_scalar(b, f, 1, 0, &first))
        return;
    if (half <= 0 || length < 0 || (x.rank == 3 && count <= 0) || first != floor(first) ||
        first < 0 || first > 1e9 || ebb_attr_int(&f->attrs, "is_packed_batching", 0) != 0 ||
        ebb_attr_float(&f->attrs, "scale", 1) != 1) {
        f->declines = "it is of a form that is not known here, or its shapes are not";
        return;
    }
    ebb_value table[2], in = x.rank == 3 ? ebb_heads_apart(b, f->x[0], count) : f->x[0];
    for (uint32_t k = 0; k < 2; k++) {
        ebb_value all = f->x[2 + k];
        if (first > 0)
            all = ebb_emit_between(b, all, 0, (int64_t)first, (int64_t)first + length);
        table[k] = rows_of(b, all, at.rank < 2 ? EBB_NO_VALUE : f->x[1], length);
    }
    ebb_value y = rotated(b, in, table[0], table[1], half, interleaved);
    f->y[0] = x.rank == 3 ? ebb_heads_together(b, y) : y;
}

/* ---- groups of heads ---- */

/* Q, K and V from three inputs, or from one [B, S, (N + 2 K) h]. */
static void split_groups(ebb_build *b, ebb_foreign *f, ebb_heads *h, int64_t width)
{
    ebb_value part[3] = {f->x[0], f->x[1], f->x[2]};
    if (f->x[1].i == 0) {
        int64_t size = width / (h->count + 2 * h->of_keys), at = h->count * size;
        part[0] = ebb_emit_between(b, f->x[0], 2, 0, at);
        part[1] = ebb_emit_between(b, f->x[0], 2, at, at + h->of_keys * size);
        part[2] = ebb_emit_between(b, f->x[0], 2, at + h->of_keys * size, width);
    }
    h->q = ebb_heads_apart(b, part[0], h->count);
    h->k = ebb_heads_apart(b, part[1], h->of_keys);
    h->v = ebb_heads_apart(b, part[2], h->of_keys);
}

/* GroupQueryAttention(Q, K?, V?, past K?, past V?, lengths - 1, total length, cos?, sin?,
 * positions?, attention bias?) -> Y, K, V. Causal, so that without a past the lengths, of rows
 * filled up at their end, change nothing in the part that counts. */
void ebb_dialect_group_query_attention(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    int64_t window = ebb_attr_int(&f->attrs, "local_window_size", -1);
    ebb_heads h = {.count = ebb_attr_int(&f->attrs, "num_heads", 0),
                   .of_keys = ebb_attr_int(&f->attrs, "kv_num_heads", 0),
                   .scale = ebb_attr_float(&f->attrs, "scale", 0),
                   .cap = ebb_attr_float(&f->attrs, "softcap", 0),
                   .window = window > 0 ? window : 0,
                   .causal = true};
    if (!ebb_foreign_ranked(b, f, 0, &x))
        return;
    bool rotary = ebb_attr_int(&f->attrs, "do_rotary", 0) != 0;
    if (x.rank != 3 || x.dims[1] < 0 || x.dims[2] < 0 || h.count <= 0 || h.of_keys <= 0 ||
        h.count % h.of_keys != 0 || ebb_attr_int(&f->attrs, "smooth_softmax", 0) > 0 ||
        generates(f, 11, EBB_DIALECT_INPUTS - 1) ||
        (rotary && (f->x[7].i == 0 || f->x[8].i == 0))) {
        f->declines = "it is of a form that is not known here";
        return;
    }
    split_groups(b, f, &h, x.dims[2]);
    ebb_value at = ebb_heads_places(b, f, &h, x.dims[1]);
    if (rotary) {
        int64_t half = last_dim(b, f->x[7]);
        bool interleaved = ebb_attr_int(&f->attrs, "rotary_interleaved", 0) != 0;
        at = f->x[9].i != 0 ? f->x[9] : at;
        ebb_value cos = rows_of(b, f->x[7], at, x.dims[1]);
        ebb_value sin = rows_of(b, f->x[8], at, x.dims[1]);
        h.q = rotated(b, h.q, cos, sin, half, interleaved);
        h.k = rotated(b, h.k, cos, sin, half, interleaved);
    }
    h.bias = f->x[10];
    ebb_heads_insert(b, f, &h, x.dims[1]);
    f->y[1] = h.k;
    f->y[2] = h.v;
    f->y[0] = ebb_heads_attend(b, f, &h);
}
