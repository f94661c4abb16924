/* groups: rotary positions, and attention whose keys several heads share, as decoders have it.
 *
 *   Q, K, V ── norm of each head ── turned by their places ── a sink as one more key ── attention
 *
 * Which of the places count, and what comes after what, is as ONNX Runtime computes it.
 */
#include "passes/flatten/dialect/heads.h"

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
    int64_t size = ebb_heads_last_dim(b, x), pairs[5] = {0, 0, -1, half, 2},
            one[4] = {0, 0, -1, half};
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
        turned = ebb_emit_shaped(b, ebb_emit_joined(b, left, right, 4), flat, 4);
    } else {
        turned = ebb_emit_joined(b, left, right, 3);
    }
    if (2 * half == size)
        return turned;
    ebb_value rest = ebb_emit_between(b, x, 3, 2 * half, size);
    return ebb_emit_joined(b, turned, rest, 3);
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
    if (half <= 0 || length < 0 || (x.rank == 3 && count <= 0) ||
        ebb_attr_int(&f->attrs, "is_packed_batching", 0) != 0 ||
        ebb_attr_float(&f->attrs, "scale", 1) != 1) {
        f->declines = "it is of a form that is not known here, or its shapes are not";
        return;
    }
    static const int64_t row[2] = {1, -1};
    ebb_value places = f->x[1], in = x.rank == 3 ? ebb_heads_apart(b, f->x[0], count) : f->x[0];
    if (at.rank < 2) // the first of them
        places = ebb_emit(b, EBB_OP_ADD, ebb_emit_shaped(b, places, row, 2),
                          ebb_emit_counting(b, f, length));
    ebb_value cos_rows = rows_of(b, f->x[2], places, length);
    ebb_value sin_rows = rows_of(b, f->x[3], places, length);
    ebb_value y = rotated(b, in, cos_rows, sin_rows, half, interleaved);
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
    ebb_heads_take(b, h, part);
}

/* RMS norm of each head, [B, N, S, h]. */
static ebb_value normed(ebb_build *b, const ebb_foreign *f, ebb_value x, ebb_value weight)
{
    ebb_value y[2];
    if (weight.i == 0)
        return x;
    ebb_with_int(b, "axis", -1);
    ebb_with_float(b, "epsilon", ebb_attr_float(&f->attrs, "qk_norm_epsilon", (double)1e-6f));
    ebb_emit_node(b, EBB_OP_RMS_NORM, (ebb_value[]){x, weight}, 2, y, 1, UINT32_MAX);
    return y[0];
}

/* x with `before` and `after` zeros around it along an axis of 4. */
static ebb_value padded(ebb_build *b, ebb_value x, int axis, int64_t before, int64_t after)
{
    int64_t pads[8] = {0};
    pads[axis] = before;
    pads[4 + axis] = after;
    return ebb_emit(b, EBB_OP_PAD, x, ebb_const_ints(b, pads, 8));
}

/* exp(sink) more below the fraction of softmax: one more key, of zeros, whose score is a bias, and whose
 * value is zero. No sinks: exp(0). */
static void add_sink(ebb_build *b, ebb_heads *h, ebb_value sinks)
{
    static const int64_t each[4] = {1, -1, 1, 1};
    if (b->status != NULL)
        return;
    const int64_t keys = ebb_build_type(b, h->k)->dims[2];
    h->k = padded(b, h->k, 2, 0, 1);
    h->v = padded(b, h->v, 2, 0, 1);
    if (h->bias.i != 0)
        h->bias = padded(b, h->bias, 3, 0, 1);
    if (sinks.i != 0) {
        ebb_value own = padded(b, ebb_emit_shaped(b, sinks, each, 4), 3, keys, 0);
        h->bias = h->bias.i != 0 ? ebb_emit(b, EBB_OP_ADD, h->bias, own) : own;
    }
    h->sinks = 1;
}

/* Positions of the queries, [B, length] or none for 0 .. length - 1: without a past each row counts on
 * from its first, whatever the others are. */
static ebb_value places_of(ebb_build *b, ebb_foreign *f, ebb_heads *h, int64_t length)
{
    ebb_value at = ebb_heads_places(b, f, h, length), given = f->x[9];
    if (given.i == 0)
        return at;
    if (at.i != 0)
        return given;
    ebb_value first = ebb_emit_between(b, given, 1, 0, 1);
    return ebb_emit(b, EBB_OP_ADD, first, ebb_emit_counting(b, f, length));
}

static bool is_known_form(const ebb_foreign *f, const ebb_heads *h, const ebb_type *x)
{
    const bool rotary = ebb_attr_int(&f->attrs, "do_rotary", 0) != 0;
    return x->rank == 3 && x->dims[2] >= 0 && h->count > 0 && h->of_keys > 0 &&
           h->count % h->of_keys == 0 && !f->wants[3] && (h->causal || h->window == 0) &&
           (!rotary || (f->x[7].i != 0 && f->x[8].i != 0)) &&
           (f->x[14].i == 0) == (f->x[15].i == 0);
}

/* Positions that are counted here must be in the tables. */
static void check_length(ebb_build *b, const ebb_foreign *f, int64_t length)
{
    if (b->status != NULL || f->x[9].i != 0)
        return;
    const ebb_type *table = ebb_build_type(b, f->x[7]);
    const int64_t most = table->rank == 2 ? table->dims[0] : -1;
    if (most >= 0 && most < length)
        b->status =
            ebb_hint(ebb_error(EBB_REJECTED,
                               "%s: sequences have %lld tokens, and its tables of sines and "
                               "cosines %lld positions",
                               ebb_node_label(b->g, f->node), (long long)length, (long long)most),
                     "the model takes no longer ones: --sequence %lld", (long long)most);
}

/* GroupQueryAttention(Q, K?, V?, past K?, past V?, lengths - 1, total length, cos?, sin?, positions?,
 * attention bias?, sinks?, scales of codes?, norms of Q and K?) -> Y, K, V. Causal, so that without a
 * past the lengths, of rows filled up at their end, change nothing in the part that counts. */
void ebb_dialect_group_query_attention(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    const bool rotary = ebb_attr_int(&f->attrs, "do_rotary", 0) != 0;
    int64_t window = ebb_attr_int(&f->attrs, "local_window_size", -1);
    ebb_heads h = {.count = ebb_attr_int(&f->attrs, "num_heads", 0),
                   .of_keys = ebb_attr_int(&f->attrs, "kv_num_heads", 0),
                   .scale = ebb_attr_float(&f->attrs, "scale", 0),
                   .cap = ebb_attr_float(&f->attrs, "softcap", 0),
                   .window = window > 0 ? window : 0,
                   .causal = ebb_attr_int(&f->attrs, "causal", 1) != 0};
    if (!ebb_foreign_ranked(b, f, 0, &x) || ebb_heads_generates(f, 12, 13) ||
        ebb_foreign_declines(f, x.rank == 3 && x.dims[1] < 0,
                             "the length of its sequences is not known"))
        return;
    if (ebb_foreign_declines(f, !is_known_form(f, &h, &x),
                             "it is of a form that is not known here"))
        return;
    if (rotary && (ebb_heads_last_dim(b, f->x[7]) < 1 || ebb_heads_last_dim(b, f->x[8]) < 1)) {
        f->declines = "the shapes of its tables of sines and cosines are not known";
        return;
    }
    if (rotary)
        check_length(b, f, x.dims[1]);
    split_groups(b, f, &h, x.dims[2]);
    h.q = normed(b, f, h.q, f->x[14]);
    h.k = normed(b, f, h.k, f->x[15]);
    ebb_value at = places_of(b, f, &h, x.dims[1]);
    if (rotary) {
        int64_t half = ebb_heads_last_dim(b, f->x[7]);
        bool interleaved = ebb_attr_int(&f->attrs, "rotary_interleaved", 0) != 0;
        ebb_value cos = rows_of(b, f->x[7], at, x.dims[1]);
        ebb_value sin = rows_of(b, f->x[8], at, x.dims[1]);
        h.q = rotated(b, h.q, cos, sin, half, interleaved);
        h.k = rotated(b, h.k, cos, sin, half, interleaved);
    }
    ebb_heads_insert(b, f, &h, x.dims[1]);
    f->y[1] = h.k;
    f->y[2] = h.v;
    h.bias = f->x[10];
    if (!h.causal && f->x[5].i != 0) {
        ebb_value one = ebb_const_scalar(b, EBB_I32, 1);
        ebb_value keys = ebb_heads_bias_of_lengths(
            b, f, ebb_emit(b, EBB_OP_ADD, ebb_emit_cast(b, f->x[5], EBB_I32), one), x.dims[1],
            (ebb_dtype)x.dtype, ebb_heads_lowest(b, h.q));
        h.bias = h.bias.i != 0 ? ebb_emit(b, EBB_OP_ADD, h.bias, keys) : keys;
    }
    if (f->x[11].i != 0 || ebb_attr_int(&f->attrs, "smooth_softmax", 0) > 0)
        add_sink(b, &h, f->x[11]);
    f->y[0] = ebb_heads_attend(b, f, &h);
}
