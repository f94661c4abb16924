/* lstm.c: LSTM, LSTMTraining and LSTMGrad in float32 by the tiles of tile.h, where they are as usual
 * (ebb_usual_lstm_misfit) and without peepholes. See kernels/plain/layers/recurrent.c for what they mean.
 *
 *   forward   gates = X W' + b    for some steps at once
 *             gates += h R'       a step at a time, R' in panels: each thread has some of them
 *   backward  da from the gates and what arrives, dh = da R       a step at a time, R in panels
 *             dX = da W    dW = da' X    dR = da' h before    dB = sums of da      for all steps
 *
 * The order of sums hangs on no number of threads.
 */
#include "kernels/call/recurrent.h"
#include "kernels/fast/fast.h"
#include "kernels/fast/product.h"
#include "kernels/fast/tile.h"
#include "kernels/plain/vmath.h"

enum { PANEL = EBB_TILE_COLUMNS, TOGETHER = 256 /* rows of X at once */ };

typedef struct lstm { /* one direction of a call */
    const ebb_call *call;
    ebb_recurrent s;
    int64_t d, gates; /* 4 H */
    int64_t steps;    /* of X at once */
    ebb_product of_x, dx, dw, dr;
    int64_t wide, high;                                 /* 4 H and H in whole panels */
    int64_t sums, bias, h, c, before, panels, products; /* in the workspace, in floats */
    size_t bytes;
} lstm;

static const float *input(const lstm *l, int slot)
{
    return slot >= 0 && ebb_dnnl_has(l->call, (uint32_t)slot) ? l->call->in[slot].data : NULL;
}

static float *output(const lstm *l, uint32_t o)
{
    return ebb_dnnl_wants(l->call, o) ? l->call->out[o].data : NULL;
}

/* ---- sizes ---- */

static ebb_matrix matrix(int64_t rows, int64_t columns, int64_t row, int64_t column)
{
    return (ebb_matrix){EBB_F32, {rows, columns}, {row, column}};
}

static ebb_product product(ebb_matrix a, ebb_matrix b, int64_t row)
{
    return (ebb_product){.a = a,
                         .b = b,
                         .out = matrix(a.dims[0], b.dims[1], row, 1),
                         .rank = 2,
                         .alpha = 1,
                         .beta = 1};
}

/* The products for all steps, or of the forward for some. */
static void make_products(lstm *l)
{
    const int64_t G = l->gates, H = l->s.hidden, I = l->s.inputs, all = l->s.times * l->s.batch;
    const ebb_matrix da = matrix(all, G, l->wide, 1), turned = matrix(G, all, 1, l->wide);
    l->of_x = product(matrix(l->steps * l->s.batch, I, I, 1), matrix(I, G, 1, I), l->wide);
    l->of_x.biased = true;
    l->of_x.c = matrix(1, G, 0, 1);
    l->dx = product(da, matrix(G, I, I, 1), I);
    l->dx.biased = l->d > 0;
    l->dx.c = matrix(all, I, I, 1);
    l->dw = product(turned, matrix(all, I, I, 1), I);
    l->dr = product(turned, matrix(all, H, H, 1), H);
}

static bool take(lstm *l, int64_t *at, int64_t rows, int64_t columns)
{
    size_t bytes;
    *at = (int64_t)(l->bytes / sizeof(float));
    return ebb_size_mul(&bytes, (size_t)rows, (size_t)columns) &&
           ebb_size_mul(&bytes, bytes, sizeof(float)) && ebb_size_add(&l->bytes, l->bytes, bytes) &&
           ebb_size_align(&l->bytes, l->bytes, 64);
}

static bool take_products(lstm *l)
{
    const ebb_product *all[] = {&l->of_x, &l->dx, &l->dw, &l->dr};
    size_t most = 0, bytes;
    l->products = (int64_t)(l->bytes / sizeof(float));
    for (int i = l->s.backward ? 1 : 0; i < (l->s.backward ? 4 : 1); i++) {
        if (!ebb_product_tiles_bytes(all[i], &bytes))
            return false;
        most = bytes > most ? bytes : most;
    }
    return ebb_size_add(&l->bytes, l->bytes, most);
}

static bool lay_out(lstm *l)
{
    const int64_t B = l->s.batch, H = l->s.hidden, all = l->s.times * B;
    return take(l, &l->sums, l->s.backward ? all : l->steps * B, l->wide) &&
           take(l, &l->bias, 1, l->gates) && take(l, &l->h, B, l->high) && take(l, &l->c, B, H) &&
           take(l, &l->before, l->s.backward ? all : 0, H) &&
           take(l, &l->panels, l->s.backward ? l->gates : H, l->s.backward ? l->high : l->wide) &&
           take_products(l);
}

static const char *read_lstm(lstm *l, const ebb_call *call)
{
    *l = (lstm){.call = call};
    const char *why = ebb_dnnl_plain_floats(call);
    if (why == NULL)
        why = ebb_recurrent_read(&l->s, call);
    if (why == NULL)
        why = ebb_usual_lstm_misfit(&l->s, call);
    if (why != NULL)
        return why;
    if (l->s.at.peepholes >= 0 && ebb_dnnl_has(call, (uint32_t)l->s.at.peepholes))
        return "no peepholes";
    if (l->s.backward && !l->s.kept)
        return "wants the forward's gates";
    const int64_t together = (TOGETHER + l->s.batch - 1) / l->s.batch;
    l->steps = together < l->s.times ? together : l->s.times;
    l->gates = 4 * l->s.hidden;
    l->wide = ebb_tile_width(l->gates);
    l->high = ebb_tile_width(l->s.hidden);
    make_products(l);
    return lay_out(l) ? NULL : "the scratch memory is too large to address";
}

/* ---- both ways ---- */

static float *memory(const lstm *l, int64_t at)
{
    return (float *)l->call->workspace + at;
}

/* The first state of all sequences of a direction, or zeros. */
static void put_states(const lstm *l, float *to, int64_t row, const float *from)
{
    const int64_t B = l->s.batch, H = l->s.hidden;
    for (int64_t b = 0; b < B; b++) {
        if (from != NULL)
            memcpy(to + b * row, from + (l->d * B + b) * H, (size_t)H * sizeof *to);
        else
            memset(to + b * row, 0, (size_t)H * sizeof *to);
    }
}

static void get_states(const lstm *l, float *to, const float *from, int64_t row)
{
    const int64_t B = l->s.batch, H = l->s.hidden;
    for (int64_t b = 0; to != NULL && b < B; b++)
        memcpy(to + (l->d * B + b) * H, from + b * row, (size_t)H * sizeof *to);
}

/* y[B, n] (+)= x[B, k] by the panels. */
static void multiply(const lstm *l, float *y, int64_t y_row, const float *x, int64_t x_row,
                     int64_t n, int64_t k, bool adds)
{
    const int64_t B = l->s.batch;
    const float *panels = memory(l, l->panels);
    EBB_PARALLEL_FOR(B * n * k)
    for (int64_t panel = 0; panel < n; panel += PANEL)
        ebb_tile_multiply(y + panel, y_row, x, x_row, 1, panels + panel * k, B, PANEL, k, k, adds);
}

static int64_t time_before(const lstm *l, int64_t t)
{
    return ebb_recurrent_backwards(&l->s, l->d) ? t + 1 : t - 1;
}

/* ---- forward ---- */

static float sigmoid(float x)
{
    return 1.0f / (1.0f + ebb_exp(-x));
}

/* The states of one sequence, [H] each; its gates become what came out of their activations. */
static void cells(float *restrict g, float *restrict h, float *restrict c, int64_t H)
{
    EBB_SIMD
    for (int64_t k = 0; k < H; k++) {
        const float in = sigmoid(g[k]), out = sigmoid(g[H + k]), forget = sigmoid(g[2 * H + k]);
        const float fresh = ebb_tanh(g[3 * H + k]), now = forget * c[k] + in * fresh;
        g[k] = in;
        g[H + k] = out;
        g[2 * H + k] = forget;
        g[3 * H + k] = fresh;
        c[k] = now;
        h[k] = out * ebb_tanh(now);
    }
}

static void step_forward(const lstm *l, int64_t t, float *gates)
{
    const int64_t B = l->s.batch, H = l->s.hidden;
    float *h = memory(l, l->h), *c = memory(l, l->c);
    float *const out[] = {output(l, 0), output(l, 3), output(l, 4)};
    multiply(l, gates, l->wide, h, l->high, l->wide, H, true);
    EBB_PARALLEL_FOR(B * H * 16)
    for (int64_t b = 0; b < B; b++) {
        float *const from[] = {h + b * l->high, c + b * H, gates + b * l->wide};
        cells(from[2], from[0], from[1], H);
        for (int i = 0; i < 3; i++) {
            const int64_t n = i < 2 ? H : l->gates;
            if (out[i] != NULL)
                memcpy(out[i] + ebb_recurrent_y(&l->s, t, l->d, b) * n, from[i],
                       (size_t)n * sizeof(float));
        }
    }
}

static void sum_biases(const lstm *l)
{
    const float *bias = input(l, l->s.at.bias);
    float *sum = memory(l, l->bias);
    for (int64_t q = 0; q < l->gates; q++)
        sum[q] = bias == NULL ? 0.0f
                              : bias[l->d * 2 * l->gates + q] + bias[(l->d * 2 + 1) * l->gates + q];
}

static void forward(const lstm *l)
{
    const int64_t B = l->s.batch, H = l->s.hidden, I = l->s.inputs, T = l->s.times;
    const float *x = l->call->in[0].data, *w = input(l, 1) + l->d * l->gates * I;
    const float *r = input(l, 2) + l->d * l->gates * H;
    float *gates = memory(l, l->sums);
    sum_biases(l);
    put_states(l, memory(l, l->h), l->high, input(l, l->s.at.h0));
    put_states(l, memory(l, l->c), H, input(l, l->s.at.c0));
    ebb_tile_pack(memory(l, l->panels), r, 1, H, H, l->gates);
    for (int64_t done = 0, n; done < T; done += n) {
        const bool back = ebb_recurrent_backwards(&l->s, l->d);
        n = T - done < l->steps ? T - done : l->steps;
        const int64_t first = back ? T - done - n : done;
        ebb_product p = l->of_x;
        p.a.dims[0] = p.out.dims[0] = n * B;
        ebb_product_tiles_run(&p, x + first * B * I, w, memory(l, l->bias), gates,
                              memory(l, l->products));
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = back ? n - 1 - i : i;
            step_forward(l, first + at, gates + at * B * l->wide);
        }
    }
    get_states(l, output(l, 1), memory(l, l->h), l->high);
    get_states(l, output(l, 2), memory(l, l->c), H);
}

/* ---- backward ---- */

/* Of one sequence: da from its gates, what arrives at h (dh + dy) and at c; now, old: c behind and before
 * the step; old may be NULL: zeros. */
static void cells_back(float *restrict da, const float *g, const float *dh, const float *dy,
                       float *restrict dc, const float *now, const float *old, int64_t H)
{
    EBB_SIMD
    for (int64_t k = 0; k < H; k++) {
        const float in = g[k], out = g[H + k], forget = g[2 * H + k], fresh = g[3 * H + k];
        const float gh = dh[k] + (dy == NULL ? 0.0f : dy[k]), was = old == NULL ? 0.0f : old[k];
        const float squashed = ebb_tanh(now[k]);
        const float gc = dc[k] + gh * out * (1.0f - squashed * squashed);
        da[k] = gc * fresh * in * (1.0f - in);
        da[H + k] = gh * squashed * out * (1.0f - out);
        da[2 * H + k] = gc * was * forget * (1.0f - forget);
        da[3 * H + k] = gc * in * (1.0f - fresh * fresh);
        dc[k] = gc * forget;
    }
}

/* Row of a state before step t of sequence b: of all, or of the first ones; NULL: zeros. */
static const float *before(const lstm *l, const float *all, int slot, int64_t t, int64_t b)
{
    const int64_t at = time_before(l, t), H = l->s.hidden;
    if (at >= 0 && at < l->s.times)
        return all + ebb_recurrent_y(&l->s, at, l->d, b) * H;
    const float *first = input(l, slot);
    return first == NULL ? NULL : first + (l->d * l->s.batch + b) * H;
}

static void step_back(const lstm *l, int64_t t)
{
    const int64_t B = l->s.batch, H = l->s.hidden;
    const float *gates = input(l, l->s.at.gates), *c_all = input(l, l->s.at.c_all);
    const float *dy = input(l, l->s.at.dh_all), *h_all = input(l, l->s.at.h_all);
    float *dh = memory(l, l->h), *da = memory(l, l->sums) + t * B * l->wide;
    EBB_PARALLEL_FOR(B * H * 16)
    for (int64_t b = 0; b < B; b++) {
        const int64_t row = ebb_recurrent_y(&l->s, t, l->d, b);
        const float *h = before(l, h_all, l->s.at.h0, t, b);
        float *keep = memory(l, l->before) + (t * B + b) * H;
        cells_back(da + b * l->wide, gates + row * l->gates, dh + b * l->high,
                   dy == NULL ? NULL : dy + row * H, memory(l, l->c) + b * H, c_all + row * H,
                   before(l, c_all, l->s.at.c0, t, b), H);
        if (h != NULL)
            memcpy(keep, h, (size_t)H * sizeof *keep);
        else
            memset(keep, 0, (size_t)H * sizeof *keep);
    }
    multiply(l, dh, l->high, da, l->wide, l->high, l->gates, false);
}

/* What both biases get. */
static void sum_over_steps(const lstm *l, float *db)
{
    const int64_t all = l->s.times * l->s.batch;
    const float *da = memory(l, l->sums);
    EBB_PARALLEL_FOR(all * l->gates)
    for (int64_t q = 0; q < l->gates; q += PANEL) {
        const int64_t n = l->gates - q < PANEL ? l->gates - q : PANEL;
        double sum[PANEL] = {0};
        for (int64_t e = 0; e < all; e++)
            for (int64_t k = 0; k < n; k++)
                sum[k] += (double)da[e * l->wide + q + k];
        for (int64_t k = 0; k < n; k++)
            db[l->d * 2 * l->gates + q + k] = db[(l->d * 2 + 1) * l->gates + q + k] = (float)sum[k];
    }
}

static void backward(const lstm *l)
{
    const int64_t H = l->s.hidden, I = l->s.inputs, T = l->s.times;
    const float *x = l->call->in[0].data, *w = input(l, 1) + l->d * l->gates * I;
    const float *r = input(l, 2) + l->d * l->gates * H;
    float *da = memory(l, l->sums), *products = memory(l, l->products), *dx = output(l, 0);
    float *dw = output(l, 1), *dr = output(l, 2), *db = output(l, 3);
    put_states(l, memory(l, l->h), l->high, input(l, l->s.at.dh_last));
    put_states(l, memory(l, l->c), H, input(l, l->s.at.dc_last));
    ebb_tile_pack(memory(l, l->panels), r, H, 1, l->gates, H);
    for (int64_t i = T - 1; i >= 0; i--)
        step_back(l, ebb_recurrent_backwards(&l->s, l->d) ? T - 1 - i : i);
    get_states(l, output(l, 4), memory(l, l->h), l->high);
    get_states(l, output(l, 5), memory(l, l->c), H);
    if (dx != NULL)
        ebb_product_tiles_run(&l->dx, da, w, dx, dx, products);
    if (dw != NULL)
        ebb_product_tiles_run(&l->dw, da, x, NULL, dw + l->d * l->gates * I, products);
    if (dr != NULL)
        ebb_product_tiles_run(&l->dr, da, memory(l, l->before), NULL, dr + l->d * l->gates * H,
                              products);
    if (db != NULL)
        sum_over_steps(l, db);
}

/* ---- the kernels ---- */

static const char *fits(const ebb_call *call)
{
    lstm l;
    return read_lstm(&l, call);
}

static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    lstm l;
    const char *why = read_lstm(&l, call);
    if (why != NULL)
        return ebb_call_error(call, "%s", why);
    *bytes = l.bytes;
    return NULL;
}

static ebb_status run(const ebb_call *call)
{
    lstm l;
    const char *why = read_lstm(&l, call);
    if (why != NULL)
        return ebb_call_error(call, "%s", why);
    for (; l.d < l.s.directions; l.d++) {
        l.dx.biased = l.d > 0;
        l.s.backward ? backward(&l) : forward(&l);
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_lstm[] = {
    {.name = "tiles.lstm",          .op = EBB_OP_LSTM,          .fits = fits, .workspace = workspace, .run = run},
    {.name = "tiles.lstm_training", .op = EBB_OP_LSTM_TRAINING, .fits = fits, .workspace = workspace, .run = run},
    {.name = "tiles.lstm_grad",     .op = EBB_OP_LSTM_GRAD,     .fits = fits, .workspace = workspace, .run = run},
};
// clang-format on
EBB_DNNL_COUNT(lstm)
