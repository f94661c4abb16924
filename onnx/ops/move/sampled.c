/* sampled.c: see sampled.h.
 *
 * Taps are an axis of places and weights. The elements are gathered as rows of all channels, from x
 * with its channels last, some taps at a time:
 *
 *     x [N, C, S] -> [N S, C] -- Gather by at -> [N, taps, Q, C] -- times w, summed -> value
 *     dx: dy w added up by at (GatherGrad);  dw: the sum over C of dy and what was gathered
 *
 * ScatterND could add to the dx of the taps before, but not every runtime adds in one order.
 */
#include "onnx/ops/move/sampled.h"

#include "onnx/ops/common.h"

typedef struct line {        /* of one axis; [N, taps, Q] or what broadcasts to it */
    ebb_value at;            /* elements, int64 */
    ebb_value weight, slope; /* slope: dweight / dplace; none: 1, 0 */
} line;

static int taps_of(const ebb_sampling *s)
{
    return s->mode == EBB_SAMPLE_NEAREST ? 1 : s->mode == EBB_SAMPLE_LINEAR ? 2 : 4;
}

/* A number for each tap, [taps, 1], of the dtype of `like`. */
static ebb_value per_tap(ebb_build *b, const ebb_sampling *s, ebb_value like, const double *list)
{
    if (b->status != NULL)
        return EBB_NO_VALUE;
    const int64_t dims[2] = {taps_of(s), 1};
    return ebb_const_floats(b, (ebb_dtype)ebb_build_type(b, like)->dtype, 2, dims, list);
}

/* x where `on` is true, else the number. */
static ebb_value where_or(ebb_build *b, ebb_value on, ebb_value x, double otherwise)
{
    return ebb_emit(b, EBB_OP_WHERE, on, x, ebb_const_like(b, x, otherwise));
}

/* Within 0..n-1; NaN becomes 0. */
static ebb_value clamped(ebb_build *b, ebb_value x, int64_t n)
{
    double top = (double)(n - 1);
    x = where_or(b, ebb_emit(b, EBB_OP_GREATER, x, ebb_const_like(b, x, 0)), x, 0);
    return where_or(b, ebb_emit(b, EBB_OP_LESS, x, ebb_const_like(b, x, top)), x, top);
}

/* Back and forth between low and high; *falls: where the way leads down (bool). */
static ebb_value reflected(ebb_build *b, const ebb_sampling *s, int d, ebb_value x,
                           ebb_value *falls)
{
    double n = (double)s->size[d], low = s->align ? 0 : -0.5, span = s->align ? n - 1 : n;
    ebb_value off = ebb_emit(b, EBB_OP_ABS, ebb_emit_shifted(b, x, -low));
    ebb_value turns =
        ebb_emit(b, EBB_OP_FLOOR, ebb_emit(b, EBB_OP_DIV, off, ebb_const_like(b, x, span)));
    ebb_value rest = ebb_emit(b, EBB_OP_SUB, off, ebb_emit_scaled(b, turns, span));
    ebb_value pairs = ebb_emit(b, EBB_OP_FLOOR, ebb_emit_scaled(b, turns, 0.5));
    ebb_value parity = ebb_emit(b, EBB_OP_SUB, turns, ebb_emit_scaled(b, pairs, 2));
    ebb_value odd = ebb_emit(b, EBB_OP_GREATER, parity, ebb_const_like(b, x, 0.5));
    ebb_value back = ebb_emit(b, EBB_OP_SUB, ebb_const_like(b, x, span), rest);
    if (falls != NULL) {
        ebb_value below = ebb_emit(b, EBB_OP_LESS, x, ebb_const_like(b, x, low));
        *falls = ebb_emit(b, EBB_OP_XOR, below, odd);
    }
    return ebb_emit_shifted(b, ebb_emit(b, EBB_OP_WHERE, odd, back, rest), low);
}

ebb_value ebb_emit_folded(ebb_build *b, const ebb_sampling *s, int d, ebb_value at,
                          ebb_value *slope)
{
    double n = (double)s->size[d], low = s->align ? 0 : -0.5, high = s->align ? n - 1 : n - 0.5;
    *slope = EBB_NO_VALUE;
    if (s->padding == EBB_SAMPLE_ZEROS || !(high > low))
        return at;
    ebb_value one = ebb_const_like(b, at, 1);
    if (s->padding == EBB_SAMPLE_REFLECTION) {
        ebb_value falls, place = reflected(b, s, d, at, &falls);
        *slope = ebb_emit(b, EBB_OP_WHERE, falls, ebb_const_like(b, at, -1), one);
        return place;
    }
    ebb_value below = ebb_emit(b, EBB_OP_LESS, at, ebb_const_like(b, at, low));
    ebb_value above = ebb_emit(b, EBB_OP_GREATER, at, ebb_const_like(b, at, high));
    ebb_value out = ebb_emit(b, EBB_OP_OR, below, above);
    *slope = ebb_emit(b, EBB_OP_WHERE, out, ebb_const_like(b, at, 0), one);
    return ebb_emit(b, EBB_OP_WHERE, out, clamped(b, at, s->size[d]), at);
}

/* Weights of the taps, `part` beyond the element at the base, and their slopes. Each tap has a
 * distance that is part + off or off - part, and its weight is a cubic of that (Keys, -0.75). */
static void weigh(ebb_build *b, const ebb_sampling *s, ebb_value part, line *l)
{
    static const double sign[2][4] = {{1, -1}, {1, 1, -1, -1}}, off[2][4] = {{0, 1}, {1, 0, 1, 2}};
    static const double slope[4] = {-1, 1};
    static const double c[4][4] = {
        {3, 1, 1, 3}, {-6, 0, 0, -6}, {3.75, -2.25, -2.25, 3.75}, {-0.75, 1.25, 1.25, -0.75}};
    static const double thrice[4] = {-2.25, 3.75, 3.75, -2.25}, twice[4] = {7.5, -4.5, -4.5, 7.5};
    bool cubic = s->mode == EBB_SAMPLE_CUBIC;
    if (s->mode == EBB_SAMPLE_NEAREST)
        return;
    ebb_value signs = per_tap(b, s, part, sign[cubic]);
    ebb_value x = ebb_emit(b, EBB_OP_ADD, ebb_emit(b, EBB_OP_MUL, part, signs),
                           per_tap(b, s, part, off[cubic]));
    if (!cubic) {
        l->weight = ebb_emit(b, EBB_OP_SUB, ebb_const_like(b, part, 1), x);
        l->slope = per_tap(b, s, part, slope);
        return;
    }
    ebb_value w = ebb_emit(b, EBB_OP_MUL, x, per_tap(b, s, x, c[3]));
    for (int k = 2; k >= 0; k--) {
        w = ebb_emit(b, EBB_OP_ADD, w, per_tap(b, s, x, c[k]));
        w = k > 0 ? ebb_emit(b, EBB_OP_MUL, w, x) : w;
    }
    ebb_value v = ebb_emit(b, EBB_OP_MUL, x, per_tap(b, s, x, thrice));
    v = ebb_emit(b, EBB_OP_MUL, ebb_emit(b, EBB_OP_ADD, v, per_tap(b, s, x, twice)), x);
    v = ebb_emit(b, EBB_OP_ADD, v, per_tap(b, s, x, c[1]));
    l->weight = w;
    l->slope = ebb_emit(b, EBB_OP_MUL, v, signs);
}

/* The taps of axis d. */
static line read_axis(ebb_build *b, const ebb_sampling *s, int d, ebb_value place)
{
    static const double step[4] = {-1, 0, 1, 2};
    line l = {.at = EBB_NO_VALUE, .weight = EBB_NO_VALUE, .slope = EBB_NO_VALUE};
    if (b->status != NULL)
        return l;
    ebb_type type = *ebb_build_type(b, place);
    const int64_t dims[3] = {type.dims[0], 1, type.dims[1]};
    bool near = s->mode == EBB_SAMPLE_NEAREST, cubic = s->mode == EBB_SAMPLE_CUBIC;
    place = ebb_emit_reshape(b, place, dims, 3);
    ebb_value base = ebb_emit(b, near ? EBB_OP_ROUND : EBB_OP_FLOOR, place);
    if (!near)
        weigh(b, s, ebb_emit(b, EBB_OP_SUB, place, base), &l);
    ebb_value i =
        near ? base : ebb_emit(b, EBB_OP_ADD, base, per_tap(b, s, base, cubic ? step : step + 1));
    if (s->padding == EBB_SAMPLE_ZEROS) {
        ebb_value in = ebb_emit(
            b, EBB_OP_AND, ebb_emit(b, EBB_OP_GREATER_OR_EQUAL, i, ebb_const_like(b, i, 0)),
            ebb_emit(b, EBB_OP_LESS, i, ebb_const_like(b, i, (double)s->size[d])));
        i = where_or(b, in, i, 0);
        if (near)
            l.weight = ebb_emit_cast(b, in, (ebb_dtype)type.dtype);
        else
            l.weight = where_or(b, in, l.weight, 0);
        if (!near)
            l.slope = where_or(b, in, l.slope, 0);
    } else {
        if (s->padding == EBB_SAMPLE_REFLECTION && cubic && s->size[d] > s->align)
            i = reflected(b, s, d, i, NULL);
        i = clamped(b, i, s->size[d]);
    }
    l.at = ebb_emit_cast(b, i, EBB_I64);
    return l;
}

/* v of axis d with an axis of taps for each axis of space: [N, 1, .., taps, .., 1, Q]. */
static ebb_value in_space(ebb_build *b, const ebb_sampling *s, int d, ebb_value v)
{
    if (b->status != NULL)
        return v;
    const ebb_type *t = ebb_build_type(b, v);
    int lead = 3 - t->rank;
    int64_t dims[EBB_MAX_RANK + 2];
    for (int k = 0; k < s->rank; k++)
        dims[k + 1] = 1;
    dims[0] = lead > 0 ? 1 : t->dims[0];
    dims[d + 1] = t->dims[1 - lead];
    dims[s->rank + 1] = t->dims[2 - lead];
    return ebb_emit_reshape(b, v, dims, s->rank + 2);
}

/* The product of the axes' weights, with the slope in place of axis `sloped`'s (-1: none);
 * [N, T, Q], none: 1. */
static ebb_value product(ebb_build *b, const ebb_sampling *s, const line *lines, int sloped,
                         const int64_t *dims)
{
    ebb_value all = EBB_NO_VALUE;
    for (int d = 0; d < s->rank; d++) {
        ebb_value v = d == sloped ? lines[d].slope : lines[d].weight;
        if (v.i == 0)
            continue;
        v = in_space(b, s, d, v);
        all = all.i == 0 ? v : ebb_emit(b, EBB_OP_MUL, all, v);
    }
    if (all.i == 0 || b->status != NULL)
        return EBB_NO_VALUE;
    int64_t elements = 0, wanted = dims[0] * dims[1] * dims[2];
    if (s->rank == 1 && sloped == 0 && ebb_type_elements(ebb_build_type(b, all), &elements) &&
        elements != wanted) // linear, not ZEROS: the slope is one number a tap
        return ebb_emit(b, EBB_OP_EXPAND, all, ebb_const_ints(b, dims, 3));
    return ebb_emit_reshape(b, all, dims, 3);
}

/* Rows of x's table: [N, T, Q]. */
static ebb_value rows_of(ebb_build *b, const ebb_sampling *s, const line *lines,
                         const int64_t *dims)
{
    int64_t stride = 1, first[EBB_MAX_RANK + 2];
    ebb_value sum = EBB_NO_VALUE;
    for (int d = s->rank - 1; d >= 0; d--) {
        ebb_value at = in_space(b, s, d, lines[d].at);
        if (stride != 1)
            at = ebb_emit(b, EBB_OP_MUL, at, ebb_const_scalar(b, EBB_I64, (double)stride));
        sum = sum.i == 0 ? at : ebb_emit(b, EBB_OP_ADD, sum, at);
        stride *= s->size[d];
    }
    if (dims[0] > 1 && b->status == NULL) {
        int64_t *starts = EBB_NEW(&b->g->model->arena, int64_t, (size_t)dims[0]);
        if (!ebb_build_got(b, starts))
            return EBB_NO_VALUE;
        for (int64_t n = 0; n < dims[0]; n++)
            starts[n] = n * stride;
        for (int d = 0; d < s->rank + 2; d++)
            first[d] = d == 0 ? dims[0] : 1;
        ebb_value start = ebb_const_ints(b, starts, (uint32_t)dims[0]);
        sum = ebb_emit(b, EBB_OP_ADD, sum, ebb_emit_reshape(b, start, first, s->rank + 2));
    }
    return ebb_emit_reshape(b, sum, dims, 3);
}

/* ---- sums over taps ---- */

enum { GROUPS = 16 };

typedef struct taps {
    int64_t n, c, size, q, count; /* x: [n, c, size]; count: taps of a place */
    int64_t each;                 /* so many are gathered at once */
    ebb_value at, weight;         /* [n, count, q]; no weight: 1 */
    ebb_value rows, dy;           /* x as [n size, c]; dy as [n, 1, q, c] */
} taps;

/* So many taps at once that what is gathered is about as large as x, or as y if that is larger: all
 * at once it would be several times that. At most GROUPS groups. */
static int64_t group_of(const taps *t)
{
    int64_t each = t->q > 0 ? t->size / t->q : t->count, least = (t->count + GROUPS - 1) / GROUPS;
    each = each < least ? least : each;
    return each > t->count ? t->count : each;
}

/* Taps first, first + 1, ... of v [n, count, ...]. */
static ebb_value group(ebb_build *b, const taps *t, ebb_value v, int64_t first, int64_t many)
{
    return v.i == 0 || many == t->count ? v : ebb_emit_part(b, v, 1, first, many);
}

static ebb_value plus(ebb_build *b, ebb_value sum, ebb_value more)
{
    return sum.i == 0 ? more : ebb_emit(b, EBB_OP_ADD, sum, more);
}

/* What the group of taps from `first` on adds to value [n, q, c] and dx [n size, c], and its part
 * of dw [n, taps, q]. */
static void add_group(ebb_build *b, const taps *t, int64_t first, ebb_sampled *out, ebb_value *dw)
{
    static const int64_t taps_axis = 1, channels_axis = 3;
    int64_t many = first + t->each > t->count ? t->count - first : t->each;
    const int64_t flat = -1, all[4] = {t->n, many, t->q, t->c}, rows[2] = {-1, t->c};
    const int64_t scale[4] = {t->n, many, t->q, 1}, table[2] = {t->n * t->size, t->c};
    ebb_value at = ebb_emit_reshape(b, group(b, t, t->at, first, many), &flat, 1);
    ebb_value w = group(b, t, t->weight, first, many), taken = EBB_NO_VALUE;
    if (w.i != 0)
        w = ebb_emit_reshape(b, w, scale, 4);
    if (out->wants_value || dw != NULL) {
        ebb_with_int(b, "axis", 0);
        taken = ebb_emit_reshape(b, ebb_emit(b, EBB_OP_GATHER, t->rows, at), all, 4);
    }
    if (dw != NULL)
        *dw = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, ebb_emit(b, EBB_OP_MUL, taken, t->dy),
                              &channels_axis, 1, false);
    if (out->wants_value) {
        ebb_value sum = w.i != 0 ? ebb_emit(b, EBB_OP_MUL, taken, w) : taken;
        sum = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM, sum, &taps_axis, 1, false);
        out->value = plus(b, out->value, sum);
    }
    if (out->wants_dx) {
        ebb_value each = w.i != 0 ? ebb_emit(b, EBB_OP_MUL, t->dy, w) : t->dy;
        each = ebb_emit_reshape(b, each, rows, 2);
        ebb_with_int(b, "axis", 0);
        out->dx = plus(b, out->dx,
                       ebb_emit(b, EBB_OP_GATHER_GRAD, ebb_const_ints(b, table, 2), at, each));
    }
}

void ebb_emit_sampled(ebb_build *b, const ebb_sampling *s, ebb_value x, const ebb_value *places,
                      ebb_value dy, ebb_sampled *out)
{
    static const int64_t swap[3] = {0, 2, 1}, taps_axis = 1;
    line lines[EBB_MAX_RANK];
    ebb_value parts[GROUPS];
    uint32_t groups = 0;
    out->value = out->dx = EBB_NO_VALUE;
    for (int d = 0; d < s->rank; d++) {
        out->dplace[d] = EBB_NO_VALUE;
        lines[d] = read_axis(b, s, d, places[d]);
    }
    if (b->status != NULL)
        return;
    ebb_type type = *ebb_build_type(b, x), place = *ebb_build_type(b, places[0]);
    taps t = {
        .n = type.dims[0], .c = type.dims[1], .size = type.dims[2], .q = place.dims[1], .count = 1};
    for (int d = 0; d < s->rank; d++)
        t.count *= taps_of(s);
    t.each = group_of(&t);
    bool by_weight = out->wants_places && s->mode != EBB_SAMPLE_NEAREST;
    const int64_t dims[3] = {t.n, t.count, t.q}, table[2] = {t.n * t.size, t.c};
    const int64_t one[4] = {t.n, 1, t.q, t.c}, back[3] = {t.n, t.size, t.c};
    t.at = rows_of(b, s, lines, dims);
    t.weight = product(b, s, lines, -1, dims);
    if (t.weight.i != 0)
        t.weight = ebb_emit_cast(b, t.weight, (ebb_dtype)type.dtype);
    if (out->wants_value || by_weight)
        t.rows = ebb_emit_reshape(b, ebb_emit_transpose(b, x, swap, 3), table, 2);
    if (out->wants_dx || by_weight)
        t.dy = ebb_emit_reshape(b, ebb_emit_transpose(b, dy, swap, 3), one, 4);
    for (int64_t first = 0; first < t.count; first += t.each, groups++)
        add_group(b, &t, first, out, by_weight ? &parts[groups] : NULL);
    if (out->wants_value)
        out->value = ebb_emit_transpose(b, out->value, swap, 3);
    if (out->wants_dx)
        out->dx = ebb_emit_transpose(b, ebb_emit_reshape(b, out->dx, back, 3), swap, 3);
    if (!by_weight || b->status != NULL)
        return;
    ebb_value dw = parts[0];
    if (groups > 1) {
        ebb_with_int(b, "axis", 1);
        dw = ebb_emit_list(b, EBB_OP_CONCAT, parts, groups);
    }
    dw = ebb_emit_cast(b, dw, (ebb_dtype)place.dtype);
    for (int d = 0; d < s->rank; d++)
        out->dplace[d] = ebb_emit_reduce(b, EBB_OP_REDUCE_SUM,
                                         ebb_emit(b, EBB_OP_MUL, dw, product(b, s, lines, d, dims)),
                                         &taps_axis, 1, false);
}
