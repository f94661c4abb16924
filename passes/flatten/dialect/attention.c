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

void ebb_heads_take(ebb_build *b, ebb_heads *h, const ebb_value part[3])
{
    h->q = ebb_heads_apart(b, part[0], h->count);
    h->k = ebb_heads_apart(b, part[1], h->of_keys);
    h->v = ebb_heads_apart(b, part[2], h->of_keys);
}

bool ebb_heads_project(ebb_build *b, ebb_foreign *f, int axis, ebb_value part[3])
{
    ebb_type w;
    uint32_t count;
    const int64_t *sizes = ebb_attr_ints(&f->attrs, "qkv_hidden_sizes", &count);
    if (!ebb_foreign_ranked(b, f, 1, &w))
        return false;
    int64_t width = w.rank == 2 ? w.dims[1] : -1, q = count == 3 ? sizes[0] : width / 3,
            k = count == 3 ? sizes[1] : width / 3;
    if (ebb_foreign_declines(f, width < 0 || q < 0 || k < 0 || q > width || k > width - q,
                             "its sizes contradict its weights"))
        return false;
    ebb_value all = ebb_emit_plus(b, ebb_emit(b, EBB_OP_MATMUL, f->x[0], f->x[1]), f->x[2]);
    part[0] = ebb_emit_between(b, all, axis, 0, q);
    part[1] = ebb_emit_between(b, all, axis, q, q + k);
    part[2] = ebb_emit_between(b, all, axis, q + k, width);
    return true;
}

/* One of the parts of a packed [B, S, N, parts, h], as [B, N, S, h]. */
static ebb_value unpacked(ebb_build *b, ebb_value x, int64_t count, int64_t part)
{
    return ebb_heads_apart(b, ebb_emit_between(b, x, 3, part, part + 1), count);
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

/* bool [1, 1, S, T]: key t is seen from s: t <= s + T - S, and not too far before; a sink always. */
static ebb_value seen(ebb_build *b, ebb_foreign *f, const ebb_heads *h, int64_t s, int64_t t)
{
    bool *list = EBB_NEW(f->scratch, bool, (size_t)(s * t) + 1);
    const int64_t dims[4] = {1, 1, s, t};
    ebb_type type = ebb_type_tensor(EBB_BOOL, 4, dims);
    if (!ebb_build_got(b, list))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < t; j++) {
            const int64_t keys = t - h->sinks, last = i + keys - s;
            list[i * t + j] = j >= keys || (j <= last && (h->window == 0 || j > last - h->window));
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
    ebb_value ends = ebb_emit_shaped(b, ebb_emit_cast(b, lengths, EBB_I64), column, 2);
    ebb_value there = ebb_emit(b, EBB_OP_LESS, ebb_emit_counting(b, f, t), ends);
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
    if (rows && t >= 0 && t <= EBB_DIALECT_COUNTED)
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
    if (ebb_foreign_declines(f, q.rank != 4 || k.rank != 4 || q.dims[3] <= 0,
                             "the size of its heads is not known"))
        return EBB_NO_VALUE;
    if (h->scale == 0)
        h->scale = 1 / sqrt((double)q.dims[3]);
    if (ebb_foreign_declines(f, h->sinks > 0 && h->past.i != 0,
                             "it has sinks and goes on from a past"))
        return EBB_NO_VALUE;
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

bool ebb_heads_generates(ebb_foreign *f, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i <= to; i++)
        if (i < EBB_DIALECT_INPUTS && f->x[i].i != 0)
            f->declines = "it reads where in a cache it is, as in generating";
    return f->declines != NULL;
}

/* The same into y[0], with a mask of keys, and a bias in input 5. */
static void attend_masked(ebb_build *b, ebb_foreign *f, ebb_heads *h, ebb_value mask,
                          ebb_dtype dtype)
{
    if (f->declines != NULL || b->status != NULL)
        return;
    h->bias = bias_of_keys(b, f, mask, ebb_build_type(b, h->k)->dims[2], dtype);
    if (f->x[5].i != 0)
        h->bias = ebb_emit_plus(b, f->x[5], h->bias);
    f->y[0] = ebb_heads_attend(b, f, h);
}

/* ---- the operators ---- */

/* Attention(X, weights, bias?, mask?, past?, attention bias?, past length?) -> Y, present? */
void ebb_dialect_attention(ebb_build *b, ebb_foreign *f)
{
    ebb_type x, w;
    ebb_value part[3];
    ebb_heads h = {.count = ebb_attr_int(&f->attrs, "num_heads", 0),
                   .scale = ebb_attr_float(&f->attrs, "scale", 0),
                   .causal = ebb_attr_int(&f->attrs, "unidirectional", 0) != 0};
    if (!ebb_foreign_ranked(b, f, 0, &x) || !ebb_foreign_ranked(b, f, 1, &w) ||
        ebb_heads_generates(f, 7, EBB_DIALECT_INPUTS - 1))
        return;
    if (w.rank != 2 || w.dims[1] < 0 || x.rank != 3 || h.count <= 0 ||
        ebb_attr_int(&f->attrs, "do_rotary", 0) != 0) {
        f->declines = "it is of a form that is not known here: rotary";
        return;
    }
    if (!ebb_heads_project(b, f, 2, part))
        return;
    h.of_keys = h.count;
    ebb_heads_take(b, &h, part);
    bool shared = ebb_attr_int(&f->attrs, "past_present_share_buffer", 0) != 0;
    ebb_heads_pair(b, f, &h, f->x[4], shared ? f->x[6] : EBB_NO_VALUE);
    attend_masked(b, f, &h, f->x[3], (ebb_dtype)x.dtype);
}

/* A part of the bias of Q, K and V, onto [B, S, size]. */
static ebb_value with_bias(ebb_build *b, ebb_value x, ebb_value bias, int64_t from, int64_t size)
{
    return bias.i == 0 ? x : ebb_emit_plus(b, x, ebb_emit_between(b, bias, 0, from, from + size));
}

int64_t ebb_heads_last_dim(const ebb_build *b, ebb_value x)
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
    int64_t size = ebb_heads_last_dim(b, query);
    int rank = b->status == NULL ? ebb_build_type(b, key)->rank : 0;
    if (ebb_foreign_declines(f, size < 0, "the size of its queries is not known"))
        return;
    h->q = ebb_heads_apart(b, with_bias(b, query, bias, 0, size), h->count);
    if (rank == 5) {
        h->k = unpacked(b, key, h->count, 0);
        h->v = unpacked(b, key, h->count, 1);
    } else if (rank == 4) {
        h->k = key;
        h->v = value;
    } else {
        int64_t of_v = ebb_heads_last_dim(b, value), of_k = ebb_heads_last_dim(b, key);
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
    if (!ebb_foreign_ranked(b, f, 0, &x) || ebb_heads_generates(f, 9, EBB_DIALECT_INPUTS - 1) ||
        ebb_foreign_declines(f, h.count <= 0 || f->wants[3] || (f->x[1].i == 0 && x.rank != 5),
                             "it is of a form that is not known here"))
        return;
    h.of_keys = h.count;
    find_heads(b, f, &h);
    ebb_heads_append(b, f, &h, f->x[6], f->x[7], f->x[8]);
    attend_masked(b, f, &h, f->x[4], (ebb_dtype)x.dtype);
}
