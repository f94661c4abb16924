/* attention.c: attention by tiles of rows: the scores of some queries with all keys at a time.
 *
 *   forward, for each head and each tile of rows
 *       X = (scale Q) K^T;  E = e^(X - max), dropped;  Y = E V / sum
 *   backward, the same order
 *       X = Q K^T;  P from max and sum;  dV += drop(P)^T dY;  G = drop(dY V^T)
 *       dS = P (G - sum of G P along the row);  dQ = dS K;  dK += dS^T Q
 *
 * A tile has whole rows, so that the gradient needs nothing of the forward but max and sum: the sum
 * of G P, for which others keep Y, is made on the spot. Keys that no query of the tile may see are
 * left out where masking them gives probability 0: half of the work of a causal mask, and padding.
 * What is dropped is told by the sign of P from its drawing to the end of the tile.
 *
 * Operands of 16 bits are read as float32, a head's keys or a tile's rows at a time, and each result
 * is rounded once where it is written: the bits are those of float32, rounded.
 *
 * Heads are dealt out to slots, each with memory of its own in the workspace. A head is computed by
 * one thread, tile after tile, so results depend on no thread count.
 */
#include "kernels/call/attention.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/tile.h"
#include "kernels/halves.h"
#include "kernels/operand.h"
#include "kernels/plain/vmath.h"

enum { TILE = 8 * EBB_TILE_ROWS, GAP = EBB_TILE_LANES };

typedef struct layout { /* of a slot: offsets in floats */
    int64_t rows;       /* of a tile */
    int64_t step;       /* between rows of x and g */
    int64_t dp, ep;     /* d and e in whole panels */
    int64_t x, g, scaled, kt, k, vt, v, q, dy, out, dk, dv, part, kept;
    int64_t wide, bias; /* of 16 bits as float32: keys, or rows of Q and dY behind them; a row */
    int64_t size;
} layout;

static int64_t take(layout *l, int64_t floats)
{
    int64_t at = l->size;
    l->size += (floats + 15) / 16 * 16;
    return at;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static layout layout_of(const ebb_attention *a, const ebb_call *c)
{
    layout l = {.rows = a->t > 4096   ? TILE / 4
                        : a->t > 1024 ? TILE / 2
                                      : TILE,
                .dp = ebb_tile_width(a->d),
                .ep = ebb_tile_width(a->e)};
    int64_t tp = ebb_tile_width(a->t);
    l.rows = l.rows < a->s ? l.rows : a->s;
    l.step = tp + GAP; // not a power of two: rows would share cache sets
    l.x = take(&l, l.rows * l.step);
    l.kt = take(&l, tp * a->d);
    l.out = take(&l, l.rows * larger(l.dp, l.ep));
    l.scaled = take(&l, l.rows * a->d);
    l.part = take(&l, l.rows);
    l.kept = take(&l, (a->t + 3) / 4);
    if (ebb_is_half((ebb_dtype)c->in[0].type.dtype)) {
        l.wide = take(&l, larger(a->t * larger(a->d, a->e), l.rows * (a->d + a->e)));
        l.bias = take(&l, a->t);
    }
    if (!ebb_attention_is_grad(c->op)) {
        l.v = take(&l, l.ep * a->t);
        return l;
    }
    l.g = take(&l, l.rows * l.step);
    l.vt = take(&l, tp * a->e);
    l.k = take(&l, l.dp * a->t);
    l.q = take(&l, l.dp * l.rows);
    l.dy = take(&l, l.ep * l.rows);
    l.dk = take(&l, l.dp * a->t);
    l.dv = take(&l, l.ep * a->t);
    return l;
}

typedef struct head { /* one head's problem; inputs and outputs begin at its first row */
    const ebb_attention *a;
    const ebb_call *call;
    const layout *l;
    float *memory; /* the slot */
    int64_t index;
    ebb_dtype dtype; /* of what is a void pointer */
    const void *q, *k, *v, *dy, *bias;
    void *y, *dq, *dk, *dv;
    const float *max, *sum;
    float *max_out, *sum_out;
    const uint8_t *keep;
    const int64_t *key;
    bool biased, all_kept; /* there is a bias other than 0; keep is true everywhere */
    bool may_skip;         /* masked keys have probability 0 beside any other */
} head;

static const void *rows_in(const ebb_call *c, uint32_t i, int64_t first)
{
    return (const char *)c->in[i].data + (size_t)first * ebb_element_bytes(&c->in[i].type);
}

static void *rows_out(const ebb_call *c, uint32_t o, int64_t first)
{
    return ebb_dnnl_wants(c, o)
               ? (char *)c->out[o].data + (size_t)first * ebb_element_bytes(&c->out[o].type)
               : NULL;
}

/* Elements at .. at + n of an operand; of 16 bits in the buffer. */
static const float *look(const head *h, const void *operand, int64_t at, int64_t n, int64_t buffer)
{
    return ebb_look_f32(operand, h->dtype, at, n, h->memory + buffer);
}

static void store(const head *h, void *operand, int64_t at, int64_t n, const float *from)
{
    if (ebb_is_half(h->dtype))
        ebb_put_f32(operand, h->dtype, at, n, from);
    else
        memcpy((float *)operand + at, from, (size_t)n * sizeof *from);
}

static head head_of(const ebb_attention *a, const ebb_call *c, const layout *l, float *memory,
                    int64_t index)
{
    uint32_t first = ebb_attention_first(c->op);
    int64_t rows = index * a->s, keys = index * a->t;
    head h = {.a = a, .call = c, .l = l, .memory = memory, .index = index};
    h.dtype = (ebb_dtype)c->in[0].type.dtype;
    h.q = rows_in(c, first, rows * a->d);
    h.k = rows_in(c, first + 1, keys * a->d);
    h.v = rows_in(c, first + 2, keys * a->e);
    h.keep = c->in[first + 3].data;
    h.bias = c->in[first + 4].data;
    h.key = a->drops ? c->in[a->key].data : NULL;
    if (first == 1) {
        h.dy = rows_in(c, 0, rows * a->e);
        h.max = rows_in(c, 6, rows);
        h.sum = rows_in(c, 7, rows);
        h.dq = rows_out(c, 0, rows * a->d);
        h.dk = rows_out(c, 1, keys * a->d);
        h.dv = rows_out(c, 2, keys * a->e);
    } else {
        h.y = rows_out(c, 0, rows * a->e);
        h.max_out = rows_out(c, 1, rows);
        h.sum_out = rows_out(c, 2, rows);
    }
    h.biased = !a->bias.single || look(&h, h.bias, 0, 1, l->bias)[0] != 0.0f;
    h.all_kept = a->keep.single && h.keep[0] != 0;
    h.may_skip = !h.biased && a->fill < -1e30;
    return h;
}

/* ---- masks ---- */

/* How many keys are to be computed for rows first .. end - 1: those up to the last that one of them
 * may see; all where a row may see none, since then masked keys share its probability. */
static int64_t keys_of(const head *h, int64_t first, int64_t end)
{
    const ebb_attention *a = h->a;
    int64_t most = 0, step = a->keep.stride[a->rank - 1];
    if (!h->may_skip || (h->all_kept && !a->causal))
        return a->t;
    for (int64_t i = first; i < end; i++) {
        const uint8_t *keep = h->keep + ebb_attention_row(a, &a->keep, h->index, i);
        int64_t n = a->causal && i + 1 < a->t ? i + 1 : a->t;
        while (n > 0 && keep[(n - 1) * step] == 0)
            n--;
        if (n == 0)
            return a->t;
        most = n > most ? n : most;
    }
    return most;
}

/* How many keys of the first n row i may see without being asked one by one: those not after it. */
static int64_t seen_by(const head *h, int64_t i, int64_t n)
{
    return h->a->causal && i + 1 < n ? i + 1 : n;
}

/* Products into scores: mask and bias. */
static void mask_row(const head *h, float *x, int64_t i, int64_t n)
{
    const ebb_attention *a = h->a;
    const float fill = (float)a->fill;
    const bool replace = a->replace;
    const uint8_t *keep = h->keep + ebb_attention_row(a, &a->keep, h->index, i);
    const int64_t step = a->keep.stride[a->rank - 1], seen = seen_by(h, i, n);
    if (step == 1) {
        EBB_SIMD
        for (int64_t j = 0; j < seen; j++)
            x[j] = keep[j] != 0 ? x[j] : replace ? fill : x[j] + fill;
    } else if (keep[0] == 0) {
        for (int64_t j = 0; j < seen; j++)
            x[j] = replace ? fill : x[j] + fill;
    }
    for (int64_t j = seen; j < n; j++)
        x[j] = replace ? fill : x[j] + fill;
    if (!h->biased)
        return;
    const int64_t bias_step = a->bias.stride[a->rank - 1]; // 0 or 1
    const float *bias = look(h, h->bias, ebb_attention_row(a, &a->bias, h->index, i),
                             bias_step == 0 ? 1 : n, h->l->bias);
    for (int64_t j = 0; j < n; j++)
        x[j] += bias[j * bias_step];
}

/* Where fill took a score's place, no gradient goes on to it. */
static void cut_row(const head *h, float *ds, int64_t i, int64_t n)
{
    const ebb_attention *a = h->a;
    const uint8_t *keep = h->keep + ebb_attention_row(a, &a->keep, h->index, i);
    const int64_t step = a->keep.stride[a->rank - 1], seen = seen_by(h, i, n);
    for (int64_t j = 0; j < n; j++)
        ds[j] = j < seen && keep[j * step] != 0 ? ds[j] : 0.0f;
}

static const uint8_t *draw_row(const head *h, int64_t i, int64_t n)
{
    uint8_t *kept = (uint8_t *)(h->memory + h->l->kept);
    ebb_attention_kept(kept, h->a, h->key, (h->index * h->a->s + i) * h->a->t, n);
    return kept;
}

static float dropout_factor(const ebb_attention *a)
{
    return (float)(1.0 / (1.0 - a->ratio));
}

/* ---- forward ---- */

/* Scores into e^(x - max), 0 where dropped. Returns what is to be multiplied to the row's result.
 */
static float softmax_row(const head *h, float *x, int64_t i, int64_t n)
{
    const ebb_attention *a = h->a;
    float max = x[0], sum = 0;
    EBB_PRAGMA(omp simd reduction(max : max))
    for (int64_t j = 0; j < n; j++)
        max = x[j] > max ? x[j] : max;
    if (a->drops) {
        const uint8_t *kept = draw_row(h, i, n);
        EBB_SIMD_SUM(sum)
        for (int64_t j = 0; j < n; j++) {
            float power = ebb_exp(x[j] - max);
            sum += power;
            x[j] = kept[j] != 0 ? power : 0.0f;
        }
    } else {
        EBB_SIMD_SUM(sum)
        for (int64_t j = 0; j < n; j++) {
            x[j] = ebb_exp(x[j] - max);
            sum += x[j];
        }
    }
    if (h->max_out != NULL)
        h->max_out[i] = max;
    if (h->sum_out != NULL)
        h->sum_out[i] = sum;
    if (a->guard && isnan(sum)) {
        memset(x, 0, (size_t)n * sizeof *x);
        return 0.0f;
    }
    return a->drops ? dropout_factor(a) / sum : 1.0f / sum;
}

/* Rows first .. first + m - 1 of scale Q, times K^T, into x: columns 0 .. n - 1. */
static void products(const head *h, float *x, int64_t first, int64_t m, int64_t n)
{
    const ebb_attention *a = h->a;
    const float *q = look(h, h->q, first * a->d, m * a->d, h->l->wide), scale = (float)a->scale;
    float *scaled = h->memory + h->l->scaled;
    EBB_SIMD
    for (int64_t i = 0; i < m * a->d; i++)
        scaled[i] = q[i] * scale;
    ebb_tile_multiply(x, h->l->step, scaled, a->d, 1, h->memory + h->l->kt, m, n, a->d, a->d,
                      false);
}

static void forward(const head *h)
{
    const ebb_attention *a = h->a;
    const layout *l = h->l;
    float *x = h->memory + l->x, *out = h->memory + l->out, *part = h->memory + l->part;
    ebb_tile_pack(h->memory + l->kt, look(h, h->k, 0, a->t * a->d, l->wide), a->feature_stride,
                  a->key_stride, a->d, a->t);
    ebb_tile_pack(h->memory + l->v, look(h, h->v, 0, a->t * a->e, l->wide), a->e, 1, a->t, a->e);
    for (int64_t first = 0; first < a->s; first += l->rows) {
        int64_t end = first + l->rows < a->s ? first + l->rows : a->s, m = end - first;
        int64_t n = keys_of(h, first, end);
        products(h, x, first, m, n);
        for (int64_t r = 0; r < m; r++) {
            mask_row(h, x + r * l->step, first + r, n);
            part[r] = softmax_row(h, x + r * l->step, first + r, n);
        }
        ebb_tile_multiply(out, l->ep, x, l->step, 1, h->memory + l->v, m, a->e, n, a->t, false);
        for (int64_t r = 0; r < m; r++) {
            const int64_t at = (first + r) * a->e;
            float *y = ebb_place_f32(h->y, h->dtype, at, out + r * l->ep);
            for (int64_t f = 0; f < a->e; f++)
                y[f] = out[r * l->ep + f] * part[r];
            ebb_put_f32(h->y, h->dtype, at, a->e, y);
        }
    }
}

/* ---- backward ---- */

static bool is_empty(const head *h, int64_t i)
{
    return h->a->guard && isnan(h->sum[i]);
}

/* Scores into P in x, negative where dropped; and the dropped P into g. */
static void shares_row(const head *h, float *x, float *g, int64_t i, int64_t n)
{
    const float max = h->max[i], part = 1.0f / h->sum[i];
    if (is_empty(h, i)) {
        memset(x, 0, (size_t)n * sizeof *x);
        memset(g, 0, (size_t)n * sizeof *g);
        return;
    }
    EBB_SIMD
    for (int64_t j = 0; j < n; j++)
        x[j] = ebb_exp(x[j] - max) * part;
    if (!h->a->drops)
        return;
    const uint8_t *kept = draw_row(h, i, n);
    const float factor = dropout_factor(h->a);
    EBB_SIMD
    for (int64_t j = 0; j < n; j++) {
        g[j] = kept[j] != 0 ? x[j] * factor : 0.0f;
        x[j] = kept[j] != 0 ? x[j] : -x[j];
    }
}

/* P in x and the gradient of the dropped P in g into the gradient of the products in x. */
static void softmax_grad_row(const head *h, float *x, const float *g, int64_t i, int64_t n)
{
    const float scale = (float)h->a->scale, factor = dropout_factor(h->a);
    float along = 0;
    if (is_empty(h, i))
        return; // P = 0
    if (h->a->drops) {
        EBB_SIMD_SUM(along)
        for (int64_t j = 0; j < n; j++)
            along += signbit(x[j]) ? 0.0f : g[j] * x[j];
        along *= factor;
        EBB_SIMD
        for (int64_t j = 0; j < n; j++)
            x[j] = fabsf(x[j]) * ((signbit(x[j]) ? 0.0f : g[j] * factor) - along) * scale;
    } else {
        EBB_SIMD_SUM(along)
        for (int64_t j = 0; j < n; j++)
            along += g[j] * x[j];
        EBB_SIMD
        for (int64_t j = 0; j < n; j++)
            x[j] *= (g[j] - along) * scale;
    }
    if (h->a->replace)
        cut_row(h, x, i, n);
}

static void backward_tile(const head *h, int64_t first, int64_t m)
{
    const ebb_attention *a = h->a;
    const layout *l = h->l;
    float *x = h->memory + l->x, *g = h->memory + l->g, *out = h->memory + l->out;
    const float *q = look(h, h->q, first * a->d, m * a->d, l->wide);
    const float *dy = look(h, h->dy, first * a->e, m * a->e, l->wide + l->rows * a->d);
    int64_t n = keys_of(h, first, first + m);
    ebb_tile_pack(h->memory + l->q, q, a->d, 1, m, a->d);
    ebb_tile_pack(h->memory + l->dy, dy, a->e, 1, m, a->e);
    products(h, x, first, m, n);
    for (int64_t r = 0; r < m; r++) {
        mask_row(h, x + r * l->step, first + r, n);
        shares_row(h, x + r * l->step, g + r * l->step, first + r, n);
    }
    if (h->dv != NULL)
        ebb_tile_multiply(h->memory + l->dv, l->ep, a->drops ? g : x, 1, l->step, h->memory + l->dy,
                          n, a->e, m, m, true);
    if (h->dq == NULL && h->dk == NULL)
        return;
    ebb_tile_multiply(g, l->step, dy, a->e, 1, h->memory + l->vt, m, n, a->e, a->e, false);
    for (int64_t r = 0; r < m; r++)
        softmax_grad_row(h, x + r * l->step, g + r * l->step, first + r, n);
    if (h->dk != NULL)
        ebb_tile_multiply(h->memory + l->dk, l->dp, x, 1, l->step, h->memory + l->q, n, a->d, m, m,
                          true);
    if (h->dq == NULL)
        return;
    ebb_tile_multiply(out, l->dp, x, l->step, 1, h->memory + l->k, m, a->d, n, a->t, false);
    for (int64_t r = 0; r < m; r++)
        store(h, h->dq, (first + r) * a->d, a->d, out + r * l->dp);
}

/* The gradient of K, which lies as K does. */
static void store_keys(const head *h, const float *dk)
{
    const ebb_attention *a = h->a;
    float *to = ebb_place_f32(h->dk, h->dtype, 0, h->memory + h->l->wide);
    for (int64_t j = 0; j < a->t; j++)
        for (int64_t f = 0; f < a->d; f++)
            to[j * a->key_stride + f * a->feature_stride] = dk[j * h->l->dp + f];
    ebb_put_f32(h->dk, h->dtype, 0, a->t * a->d, to);
}

static void backward(const head *h)
{
    const ebb_attention *a = h->a;
    const layout *l = h->l;
    float *dk = h->memory + l->dk, *dv = h->memory + l->dv;
    const float *k = look(h, h->k, 0, a->t * a->d, l->wide);
    ebb_tile_pack(h->memory + l->kt, k, a->feature_stride, a->key_stride, a->d, a->t);
    ebb_tile_pack(h->memory + l->k, k, a->key_stride, a->feature_stride, a->t, a->d);
    ebb_tile_pack(h->memory + l->vt, look(h, h->v, 0, a->t * a->e, l->wide), 1, a->e, a->e, a->t);
    memset(dk, 0, (size_t)(l->dp * a->t) * sizeof *dk);
    memset(dv, 0, (size_t)(l->ep * a->t) * sizeof *dv);
    for (int64_t first = 0; first < a->s; first += l->rows)
        backward_tile(h, first, first + l->rows < a->s ? l->rows : a->s - first);
    if (h->dk != NULL)
        store_keys(h, dk);
    for (int64_t j = 0; h->dv != NULL && j < a->t; j++)
        store(h, h->dv, j * a->e, a->e, dv + j * l->ep);
}

/* ---- the kernel ---- */

static const char *declines(const ebb_call *c)
{
    const double most = 1e9; // far from overflow in the sums and products of layout_of
    ebb_attention a;
    const char *why = ebb_attention_read(&a, c);
    if (why != NULL)
        return why;
    if (c->in[0].type.dtype == EBB_F64)
        return "computes in float32 and on 16 bits only";
    if (a.s < 1 || a.heads < 1 || a.e < 1 || (double)a.t * (double)(a.d + a.e + 64) > most * most)
        return "there is nothing to compute, or too much";
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_attention a;
    const char *why = ebb_attention_read(&a, c);
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    layout l = layout_of(&a, c);
    int64_t slots = a.heads < ebb_threads() ? a.heads : ebb_threads();
    if (!ebb_size_mul(bytes, (size_t)l.size * sizeof(float), (size_t)slots))
        return ebb_call_error(c, "the rows are too long");
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_attention a;
    const char *why = ebb_attention_read(&a, c);
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    bool grad = ebb_attention_is_grad(c->op);
    layout l = layout_of(&a, c);
    int64_t slots = (int64_t)(c->workspace_bytes / ((size_t)l.size * sizeof(float)));
    EBB_PARALLEL_FOR(a.heads * a.s * a.t)
    for (int64_t slot = 0; slot < slots; slot++)
        for (int64_t index = slot; index < a.heads; index += slots) {
            head h = head_of(&a, c, &l, (float *)c->workspace + slot * l.size, index);
            if (grad)
                backward(&h);
            else
                forward(&h);
        }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_attention[] = {
    {.name = "dnnl.attention",              .op = EBB_OP_EBB_ATTENTION,              .fits = declines, .workspace = workspace, .run = run},
    {.name = "dnnl.attention_grad",         .op = EBB_OP_EBB_ATTENTION_GRAD,         .fits = declines, .workspace = workspace, .run = run},
    {.name = "dnnl.attention_dropout",      .op = EBB_OP_EBB_ATTENTION_DROPOUT,      .fits = declines, .workspace = workspace, .run = run},
    {.name = "dnnl.attention_dropout_grad", .op = EBB_OP_EBB_ATTENTION_DROPOUT_GRAD, .fits = declines, .workspace = workspace, .run = run},
};
// clang-format on
EBB_DNNL_COUNT(attention)
