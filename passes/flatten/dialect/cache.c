/* cache: keys and values that go on from a past, and rows that are packed without their padding.
 *
 *   past   k k k . .   k k . . .      [B, N, P, h], filled as far as each row's past is long
 *   new    n n         n n            [B, N, S, h]
 *   all    k k k n n   k k n n .      what attention reads: rows taken from both, end to end
 *
 * Nothing is written in place: what a call returns as the present is a tensor of its own, be it in
 * one buffer with the past elsewhere, and gradients flow into the past as into anything else.
 */
#include "passes/common.h"
#include "passes/flatten/dialect/heads.h"

static int64_t dim_of(const ebb_build *b, ebb_value v, int axis)
{
    const ebb_type *t = b->status == NULL && v.i != 0 ? ebb_build_type(b, v) : NULL;
    return t != NULL && t->rank > axis ? t->dims[axis] : -1;
}

/* ---- one past for all rows ---- */

/* new behind the first `from` positions of past (-1: behind all of it). *present: that, or where
 * past is a buffer with room for more, the whole buffer with the new positions in it. */
static ebb_value behind(ebb_build *b, ebb_value past, ebb_value new, int64_t from,
                        ebb_value *present)
{
    int64_t room = dim_of(b, past, 2), length = dim_of(b, new, 2);
    if (from < 0)
        return *present = ebb_emit_joined(b, past, new, 2);
    ebb_value all = ebb_emit_joined(b, ebb_emit_between(b, past, 2, 0, from), new, 2);
    *present = from + length == room
                   ? all
                   : ebb_emit_joined(b, all, ebb_emit_between(b, past, 2, from + length, room), 2);
    return all;
}

/* How much of a past is filled, where `filled` says so. False: declined. */
static bool read_filled(ebb_build *b, ebb_foreign *f, const ebb_heads *h, ebb_value past,
                        ebb_value filled, int64_t *from)
{
    double known;
    int64_t room = dim_of(b, past, 2), length = dim_of(b, h->k, 2);
    *from = -1;
    if (filled.i == 0)
        return b->status == NULL;
    if (!ebb_scalar_of(b->g, filled, &known) || room < 0 || length < 0 || known < 0 ||
        known + (double)length > (double)room)
        f->declines = "how much of the buffer of its past is filled is not known";
    else
        *from = (int64_t)known;
    return f->declines == NULL && b->status == NULL;
}

void ebb_heads_append(ebb_build *b, ebb_foreign *f, ebb_heads *h, ebb_value past_k,
                      ebb_value past_v, ebb_value filled)
{
    int64_t from;
    if (b->status != NULL || f->declines != NULL)
        return;
    f->y[1] = h->k;
    f->y[2] = h->v;
    if (past_k.i == 0 && past_v.i == 0)
        return;
    bool both = past_k.i != 0 && past_v.i != 0;
    if (!both || ebb_build_type(b, past_k)->rank != 4 || ebb_build_type(b, past_v)->rank != 4 ||
        (f->x[1].i != 0 && ebb_build_type(b, f->x[1])->rank == 4)) {
        f->declines = "its past is of a form that is not known here";
        return;
    }
    if (!read_filled(b, f, h, past_k, filled, &from))
        return;
    h->k = behind(b, past_k, h->k, from, &f->y[1]);
    h->v = behind(b, past_v, h->v, from, &f->y[2]);
}

void ebb_heads_pair(ebb_build *b, ebb_foreign *f, ebb_heads *h, ebb_value past, ebb_value filled)
{
    static const int64_t first = 0;
    if (b->status != NULL || f->declines != NULL)
        return;
    ebb_value axis = ebb_const_ints(b, &first, 1), part[2] = {{0}};
    if (ebb_foreign_declines(f, past.i != 0 && ebb_build_type(b, past)->rank != 5,
                             "its past is of a form that is not known here"))
        return;
    for (int64_t i = 0; past.i != 0 && i < 2; i++)
        part[i] = ebb_emit(b, EBB_OP_SQUEEZE, ebb_emit_between(b, past, 0, i, i + 1), axis);
    ebb_heads_append(b, f, h, part[0], part[1], filled);
    ebb_value k = f->y[1], v = f->y[2];
    f->y[1] = f->y[2] = EBB_NO_VALUE;
    if (f->wants[1]) {
        ebb_value values = ebb_emit(b, EBB_OP_UNSQUEEZE, v, axis);
        f->y[1] = ebb_emit_joined(b, ebb_emit(b, EBB_OP_UNSQUEEZE, k, axis), values, 0);
    }
}

/* ---- a past for each row ---- */

ebb_value ebb_heads_places(ebb_build *b, ebb_foreign *f, ebb_heads *h, int64_t length)
{
    static const int64_t column[2] = {-1, 1}, four[4] = {-1, 1, 1, 1};
    double total;
    if (b->status != NULL || f->declines != NULL || dim_of(b, f->x[3], 2) == 0 ||
        (f->x[3].i == 0 && f->x[4].i == 0))
        return EBB_NO_VALUE;
    if (dim_of(b, f->x[3], 2) < 0 || dim_of(b, f->x[4], 2) != dim_of(b, f->x[3], 2) ||
        f->x[5].i == 0 || !ebb_scalar_of(b->g, f->x[6], &total)) {
        f->declines = "it goes on from a past, and its sizes are not known";
        return EBB_NO_VALUE;
    }
    if (total == (double)length) // the first call: what the buffer holds is not read
        return EBB_NO_VALUE;
    ebb_value ends = ebb_emit_shaped(b, ebb_emit_cast(b, f->x[5], EBB_I64), column, 2);
    ebb_value past =
        ebb_emit(b, EBB_OP_SUB, ends, ebb_const_scalar(b, EBB_I64, (double)length - 1));
    h->past = ebb_emit_shaped(b, past, four, 4);
    return ebb_emit(b, EBB_OP_ADD, past, ebb_emit_counting(b, f, length));
}

/* Rows of past and present, [B, K, L, h], at the places that each row of the batch has them. */
static ebb_value inserted(ebb_build *b, ebb_value past, ebb_value new, ebb_value at)
{
    const int64_t dims[4] = {1, dim_of(b, new, 1), 1, dim_of(b, new, 3)};
    ebb_value index = ebb_emit(b, EBB_OP_EXPAND, at, ebb_const_ints(b, dims, 4));
    ebb_value all = ebb_emit_joined(b, past, new, 2);
    ebb_with_int(b, "axis", 2);
    return ebb_emit(b, EBB_OP_GATHER_ELEMENTS, all, index);
}

void ebb_heads_insert(ebb_build *b, ebb_foreign *f, ebb_heads *h, int64_t length)
{
    static const int64_t along[4] = {1, 1, -1, 1};
    double total;
    if (b->status != NULL || f->declines != NULL || h->past.i == 0 ||
        !ebb_scalar_of(b->g, f->x[6], &total))
        return;
    int64_t room = dim_of(b, f->x[3], 2), all = total > (double)room ? (int64_t)total : room;
    if (all > EBB_DIALECT_COUNTED || dim_of(b, h->k, 1) < 0 || dim_of(b, h->k, 3) < 0) {
        f->declines = "it goes on from a past, and its sizes are not known or too large";
        return;
    }
    ebb_value j = ebb_emit_shaped(b, ebb_emit_counting(b, f, all), along, 4);
    ebb_value from_new = ebb_emit(b, EBB_OP_SUB, j, h->past);
    ebb_value last = ebb_const_scalar(b, EBB_I64, (double)length - 1);
    ebb_value within = ebb_emit(b, EBB_OP_MIN, from_new, last); // what lies behind is hidden
    ebb_value behind = ebb_emit(b, EBB_OP_ADD, within, ebb_const_scalar(b, EBB_I64, (double)room));
    ebb_value at = ebb_emit(b, EBB_OP_WHERE, ebb_emit(b, EBB_OP_LESS, j, h->past), j, behind);
    h->k = inserted(b, f->x[3], h->k, at);
    h->v = inserted(b, f->x[4], h->v, at);
}

ebb_value ebb_heads_seen_from(ebb_build *b, ebb_foreign *f, const ebb_heads *h, int64_t s,
                              int64_t t)
{
    static const int64_t rows[4] = {1, 1, -1, 1};
    ebb_value i = ebb_emit_shaped(b, ebb_emit_counting(b, f, s), rows, 4),
              j = ebb_emit_counting(b, f, t);
    ebb_value last = ebb_emit(b, EBB_OP_ADD, i, h->past);
    ebb_value on = ebb_emit(b, EBB_OP_LESS_OR_EQUAL, j, last);
    if (h->window == 0)
        return on;
    ebb_value first =
        ebb_emit(b, EBB_OP_SUB, last, ebb_const_scalar(b, EBB_I64, (double)h->window));
    return ebb_emit(b, EBB_OP_AND, on, ebb_emit(b, EBB_OP_GREATER, j, first));
}

/* ---- packed rows ---- */

typedef struct packing {
    int64_t batch, length, tokens;
    ebb_value at;      /* int64 [tokens]: where in [batch length] each token stands */
    ebb_value lengths; /* [batch] */
} packing;

/* From token_offset [batch, length], tokens first and then what is padding, and from where the
 * rows begin among the tokens, [batch + 1]. */
static bool read_packing(ebb_build *b, ebb_foreign *f, uint32_t offsets, packing *p)
{
    static const int64_t flat = -1;
    ebb_type x, at;
    if (!ebb_foreign_ranked(b, f, 0, &x) || !ebb_foreign_ranked(b, f, offsets, &at) ||
        !ebb_foreign_ranked(b, f, offsets + 1, &(ebb_type){0}))
        return false;
    if (at.rank != 2 || !ebb_type_is_static(&at) || x.rank < 2 || x.dims[0] < 0 ||
        at.dims[0] > EBB_DIALECT_COUNTED || at.dims[1] > EBB_DIALECT_COUNTED ||
        x.dims[0] > EBB_DIALECT_COUNTED) {
        f->declines = "it is packed, and its sizes are not known or too large";
        return false;
    }
    *p = (packing){.batch = at.dims[0], .length = at.dims[1], .tokens = x.dims[0]};
    ebb_value all = ebb_emit_shaped(b, ebb_emit_cast(b, f->x[offsets], EBB_I64), &flat, 1);
    ebb_value begins = f->x[offsets + 1];
    p->at = ebb_emit_between(b, all, 0, 0, p->tokens);
    p->lengths = ebb_emit(b, EBB_OP_SUB, ebb_emit_between(b, begins, 0, 1, p->batch + 1),
                          ebb_emit_between(b, begins, 0, 0, p->batch));
    return b->status == NULL;
}

/* [tokens, width] -> [batch, length, width], zeros where no token stands. */
static ebb_value padded(ebb_build *b, const packing *p, ebb_value x)
{
    static const int64_t column[2] = {-1, 1};
    const int64_t width = dim_of(b, x, 1), flat[2] = {p->batch * p->length, width};
    const int64_t rows[3] = {p->batch, p->length, width};
    if (b->status != NULL)
        return EBB_NO_VALUE;
    ebb_value empty =
        ebb_emit(b, EBB_OP_EXPAND, ebb_const_like(b, x, 0), ebb_const_ints(b, flat, 2));
    ebb_value at = ebb_emit_shaped(b, p->at, column, 2);
    return ebb_emit_shaped(b, ebb_emit(b, EBB_OP_SCATTER_ND, empty, at, x), rows, 3);
}

static void attend_packed(ebb_build *b, ebb_foreign *f, const packing *p, ebb_value qkv[3],
                          uint32_t bias)
{
    ebb_heads h = {.count = ebb_attr_int(&f->attrs, "num_heads", 0),
                   .scale = ebb_attr_float(&f->attrs, "scale", 0)};
    int64_t flat[2] = {-1, dim_of(b, qkv[2], 1)};
    if (b->status != NULL || f->declines != NULL)
        return;
    if (ebb_foreign_declines(f, h.count <= 0 || flat[1] < 0,
                             "it is of a form that is not known here"))
        return;
    h.of_keys = h.count;
    for (int i = 0; i < 3; i++)
        qkv[i] = padded(b, p, qkv[i]);
    ebb_heads_take(b, &h, qkv);
    if (b->status != NULL)
        return;
    ebb_dtype dtype = (ebb_dtype)ebb_build_type(b, h.q)->dtype;
    h.bias =
        ebb_heads_bias_of_lengths(b, f, p->lengths, p->length, dtype, ebb_heads_lowest(b, h.q));
    h.bias = f->x[bias].i != 0 ? ebb_emit_plus(b, f->x[bias], h.bias) : h.bias;
    ebb_value y = ebb_emit_shaped(b, ebb_heads_attend(b, f, &h), flat, 2);
    ebb_with_int(b, "axis", 0);
    f->y[0] = ebb_emit(b, EBB_OP_GATHER, y, p->at);
}

/* PackedAttention(X, weights, bias, offsets, begins, attention bias?) -> Y; X: [tokens, in]. */
void ebb_dialect_packed_attention(ebb_build *b, ebb_foreign *f)
{
    packing p;
    ebb_value qkv[3];
    if (read_packing(b, f, 3, &p) && ebb_heads_project(b, f, 1, qkv))
        attend_packed(b, f, &p, qkv, 5);
}

/* PackedMultiHeadAttention(Q, K?, V?, bias?, offsets, begins, attention bias?) -> Y; Q: [tokens, N
 * h], or all three as [tokens, N, 3, h]. */
void ebb_dialect_packed_multi_head_attention(ebb_build *b, ebb_foreign *f)
{
    packing p;
    ebb_type x;
    ebb_value qkv[3] = {f->x[0], f->x[1], f->x[2]};
    int64_t from = 0;
    if (!read_packing(b, f, 4, &p) || !ebb_foreign_ranked(b, f, 0, &x) ||
        ebb_foreign_declines(f,
                             (f->x[1].i == 0) != (x.rank == 4) ||
                                 (f->x[1].i == 0) != (f->x[2].i == 0) || !ebb_type_is_static(&x),
                             "it is of a form that is not known here"))
        return;
    for (int64_t i = 0; i < 3 && x.rank == 4; i++) {
        const int64_t flat[2] = {0, x.dims[1] * x.dims[3]};
        qkv[i] = ebb_emit_shaped(b, ebb_emit_between(b, f->x[0], 2, i, i + 1), flat, 2);
    }
    for (int i = 0; i < 3 && f->x[3].i != 0; i++) {
        int64_t width = dim_of(b, qkv[i], 1);
        qkv[i] = ebb_emit_plus(b, qkv[i], ebb_emit_between(b, f->x[3], 0, from, from + width));
        from += width;
    }
    attend_packed(b, f, &p, qkv, 6);
}

/* ---- one more token ---- */

/* DecoderMaskedMultiHeadAttention(Q, K?, V?, mask?, attention bias?, past K?, past V?, past
 * length?, beam width?, indirection?, bias?) -> Y, K?, V?: MultiHeadAttention of one query. */
void ebb_dialect_decoder_multi_head_attention(ebb_build *b, ebb_foreign *f)
{
    static const uint8_t from[9] = {0, 1, 2, 10, 3, 4, 5, 6, 7};
    ebb_foreign call = *f;
    double width;
    if (!ebb_foreign_scalar(b, f, 8, 1, &width))
        return;
    if (ebb_foreign_declines(f, f->x[9].i != 0 || width != 1,
                             "it searches by beams, as in generating"))
        return;
    for (uint32_t i = 0; i < EBB_DIALECT_INPUTS; i++)
        call.x[i] = i < 9 ? f->x[from[i]] : EBB_NO_VALUE;
    call.input_count = 9;
    ebb_dialect_multi_head_attention(b, &call);
    *f = call;
}
