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
 * is rounded once where it is written: the bits are those of float32, rounded. But where the processor
 * multiplies pairs of bfloat16, products are of these: P and dS are rounded to them, and nothing else.
 *
 * Heads are dealt out to slots, each with memory of its own in the workspace. A head is computed by
 * one thread, tile after tile, so results depend on no thread count.
 */
#include "kernels/fast/attention/head.h"
#include "kernels/fast/tile.h"
#include "kernels/operand.h"
#include "kernels/plain/vmath.h"

enum { TILE = 8 * EBB_TILE_ROWS, GAP = EBB_TILE_LANES };

typedef ebb_attention_layout layout;
typedef ebb_attention_head head;

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

static bool multiplies_pairs(const ebb_call *c)
{
    return EBB_TILE_PAIRS && c->in[0].type.dtype == EBB_BF16;
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
    l.narrow = take(&l, multiplies_pairs(c) ? (l.rows + 1) / 2 * l.step : 0);
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

static const void *rows_in(const ebb_call *c, uint32_t i, int64_t first)
{
    return (const char *)c->in[i].data + (size_t)first * ebb_element_bytes(&c->in[i].type);
}

static void *rows_out(const ebb_call *c, uint32_t o, int64_t first)
{
    return ebb_call_wants(c, o)
               ? (char *)c->out[o].data + (size_t)first * ebb_element_bytes(&c->out[o].type)
               : NULL;
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
    h.pairs = multiplies_pairs(c);
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
    h.biased = !a->bias.single || ebb_attention_look(&h, h.bias, 0, 1, l->bias)[0] != 0.0f;
    h.all_kept = a->keep.single && h.keep[0] != 0;
    h.may_skip = !h.biased && a->fill < -1e30;
    return h;
}

static float dropout_factor(const ebb_attention *a)
{
    return (float)(1.0 / (1.0 - a->ratio));
}

/* ---- products ---- */

typedef struct left { /* A of a product, of floats or pairs */
    const float *data;
    int64_t row, column;
} left;

/* C[m, n] (+)= A[m, k] times the first k of `rows` rows of panels. */
static void multiply(const head *h, float *c, int64_t c_row, left a, int64_t panels, int64_t m,
                     int64_t n, int64_t k, int64_t rows, bool adds)
{
    const float *b = h->memory + panels;
    if (h->pairs)
        ebb_tile_multiply_pairs(c, c_row, a.data, a.row, a.column, b, m, n, (k + 1) / 2,
                                (rows + 1) / 2, adds);
    else
        ebb_tile_multiply(c, c_row, a.data, a.row, a.column, b, m, n, k, rows, adds);
}

/* Elements from `at` on of an operand as B[k, n]. */
static void pack(const head *h, int64_t panels, const void *operand, int64_t at, int64_t row,
                 int64_t column, int64_t k, int64_t n)
{
    float *to = h->memory + panels;
    if (h->pairs)
        ebb_tile_pack_pairs((uint32_t *)(void *)to, (const uint16_t *)operand + at, row, column, k,
                            n);
    else
        ebb_tile_pack(to, ebb_attention_look(h, operand, at, k * n, h->l->wide), row, column, k, n);
}

/* Rows of an operand as A: where an odd number of them follow each other, with a 0 in the buffer. */
static left rows_as_pairs(const void *operand, int64_t first, int64_t m, int64_t width,
                          float *buffer)
{
    const uint16_t *from = (const uint16_t *)operand + first * width;
    const int64_t step = (width + 1) / 2;
    if (width % 2 == 0)
        return (left){(const float *)(const void *)from, step, 1};
    for (int64_t r = 0; r < m; r++) {
        ((uint32_t *)(void *)buffer)[r * step + step - 1] = 0;
        memcpy(buffer + r * step, from + r * width, (size_t)width * sizeof *from);
    }
    return (left){buffer, step, 1};
}

/* x[m, n] as A. */
static left along(const head *h, const float *x, int64_t m, int64_t n)
{
    const int64_t step = h->l->step;
    float *to = h->memory + h->l->narrow;
    if (!h->pairs)
        return (left){x, step, 1};
    for (int64_t r = 0; r < m; r++) {
        uint16_t *line = (uint16_t *)(void *)to + r * step;
        ebb_narrow_here(line, x + r * step, EBB_BF16, n);
        line[n] = 0;
    }
    return (left){to, step / 2, 1};
}

/* x[m, n]^T as A. */
static left across(const head *h, const float *x, int64_t m, int64_t n)
{
    const int64_t step = h->l->step;
    float *to = h->memory + h->l->narrow;
    if (!h->pairs)
        return (left){x, 1, step};
    for (int64_t r = 0; r < m; r += 2) {
        const float *low = x + r * step, *high = low + (r + 1 < m ? step : 0);
        uint32_t *line = (uint32_t *)(void *)(to + r / 2 * step);
        EBB_SIMD
        for (int64_t j = 0; j < n; j++)
            line[j] = ebb_round_bf16(low[j]) | (uint32_t)ebb_round_bf16(high[j]) << 16;
        for (int64_t j = 0; r + 1 == m && j < n; j++)
            line[j] &= 0xFFFFu;
    }
    return (left){to, 1, step};
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
        const uint8_t *kept = ebb_attention_draw_row(h, i, n);
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
    const float scale = (float)a->scale;
    float *scaled = h->memory + h->l->scaled;
    if (h->pairs) {
        multiply(h, x, h->l->step, rows_as_pairs(h->q, first, m, a->d, scaled), h->l->kt, m, n,
                 a->d, a->d, false);
        for (int64_t r = 0; r < m; r++) {
            EBB_SIMD
            for (int64_t j = 0; j < n; j++)
                x[r * h->l->step + j] *= scale;
        }
        return;
    }
    const float *q = ebb_attention_look(h, h->q, first * a->d, m * a->d, h->l->wide);
    EBB_SIMD
    for (int64_t i = 0; i < m * a->d; i++)
        scaled[i] = q[i] * scale;
    multiply(h, x, h->l->step, (left){scaled, a->d, 1}, h->l->kt, m, n, a->d, a->d, false);
}

static void forward(const head *h)
{
    const ebb_attention *a = h->a;
    const layout *l = h->l;
    float *x = h->memory + l->x, *out = h->memory + l->out, *part = h->memory + l->part;
    pack(h, l->kt, h->k, 0, a->feature_stride, a->key_stride, a->d, a->t);
    pack(h, l->v, h->v, 0, a->e, 1, a->t, a->e);
    for (int64_t first = 0; first < a->s; first += l->rows) {
        int64_t end = first + l->rows < a->s ? first + l->rows : a->s, m = end - first;
        int64_t n = ebb_attention_keys(h, first, end);
        products(h, x, first, m, n);
        for (int64_t r = 0; r < m; r++) {
            ebb_attention_mask_row(h, x + r * l->step, first + r, n);
            part[r] = softmax_row(h, x + r * l->step, first + r, n);
        }
        multiply(h, out, l->ep, along(h, x, m, n), l->v, m, a->e, n, a->t, false);
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
    const uint8_t *kept = ebb_attention_draw_row(h, i, n);
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
        ebb_attention_cut_row(h, x, i, n);
}

static left rows_of_dy(const head *h, int64_t first, int64_t m)
{
    const int64_t e = h->a->e, buffer = h->l->wide;
    if (h->pairs)
        return rows_as_pairs(h->dy, first, m, e, h->memory + buffer);
    return (left){ebb_attention_look(h, h->dy, first * e, m * e, buffer), e, 1};
}

static void backward_tile(const head *h, int64_t first, int64_t m)
{
    const ebb_attention *a = h->a;
    const layout *l = h->l;
    float *x = h->memory + l->x, *g = h->memory + l->g, *out = h->memory + l->out;
    const int64_t n = ebb_attention_keys(h, first, first + m);
    pack(h, l->q, h->q, first * a->d, a->d, 1, m, a->d);
    pack(h, l->dy, h->dy, first * a->e, a->e, 1, m, a->e);
    products(h, x, first, m, n);
    for (int64_t r = 0; r < m; r++) {
        ebb_attention_mask_row(h, x + r * l->step, first + r, n);
        shares_row(h, x + r * l->step, g + r * l->step, first + r, n);
    }
    if (h->dv != NULL)
        multiply(h, h->memory + l->dv, l->ep, across(h, a->drops ? g : x, m, n), l->dy, n, a->e, m,
                 m, true);
    if (h->dq == NULL && h->dk == NULL)
        return;
    multiply(h, g, l->step, rows_of_dy(h, first, m), l->vt, m, n, a->e, a->e, false);
    for (int64_t r = 0; r < m; r++)
        softmax_grad_row(h, x + r * l->step, g + r * l->step, first + r, n);
    if (h->dk != NULL)
        multiply(h, h->memory + l->dk, l->dp, across(h, x, m, n), l->q, n, a->d, m, m, true);
    if (h->dq == NULL)
        return;
    multiply(h, out, l->dp, along(h, x, m, n), l->k, m, a->d, n, a->t, false);
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
    pack(h, l->kt, h->k, 0, a->feature_stride, a->key_stride, a->d, a->t);
    pack(h, l->k, h->k, 0, a->key_stride, a->feature_stride, a->t, a->d);
    pack(h, l->vt, h->v, 0, 1, a->e, a->e, a->t);
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
    EBB_ASK(ebb_attention_read(&a, c));
    if (c->in[0].type.dtype == EBB_F64)
        return "computes in float32 and on 16 bits only";
    if (a.s < 1 || a.heads < 1 || a.e < 1 || (double)a.t * (double)(a.d + a.e + 64) > most * most)
        return "there is nothing to compute, or too much";
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_attention a;
    EBB_MUST_FIT(c, ebb_attention_read(&a, c));
    layout l = layout_of(&a, c);
    int64_t slots = a.heads < ebb_threads() ? a.heads : ebb_threads();
    if (!ebb_size_mul(bytes, (size_t)l.size * sizeof(float), (size_t)slots))
        return ebb_call_error(c, "the rows are too long");
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    ebb_attention a;
    EBB_MUST_FIT(c, ebb_attention_read(&a, c));
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
