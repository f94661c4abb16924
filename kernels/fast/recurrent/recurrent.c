/* recurrent.c: RNN, GRU and LSTM, the LSTM's training form and their gradients by the tiles of tile.h, where they
 * are as usual (ebb_usual_cell_misfit) and without peepholes; a GRU with linear_before_reset. In float32, and where
 * the processor multiplies pairs of them in bfloat16, with sums and states that are carried on in float32. See
 * kernels/plain/layers/recurrent.c for what they mean.
 *
 *   forward   sums = X W' + b      for some steps at once
 *             sums + h R'          a step at a time
 *   backward  sums again           for some steps at once, where the cell needs them (cells.h)
 *             da, dh = da R        a step at a time
 *             dX = da W    dW = da' X    dR = da' h before    dB = sums of da      for all steps
 *
 * A step is dealt out by columns of h: who has a column multiplies what its gates need, from a panel of R that
 * holds these gates one behind the other, and computes them. So threads meet once a step. The order of sums hangs on
 * no number of threads.
 */
#include "kernels/fast/recurrent/walk.h"

enum {
    PANEL = EBB_TILE_COLUMNS,
    ROWS = 4 * EBB_TILE_ROWS, /* of one panel at once */
};

/* ---- both ways ---- */

/* The first or last states of all sequences of a direction; none: zeros. */
static void put_states(const ebb_walk *w, float *to, const void *states)
{
    const int64_t count = w->s.batch * w->s.hidden;
    if (states == NULL)
        memset(to, 0, (size_t)count * sizeof *to);
    else if (w->half)
        ebb_widen_here(to, ebb_walk_from(w, states, w->d * count), EBB_BF16, count);
    else
        memcpy(to, ebb_walk_from(w, states, w->d * count), (size_t)count * sizeof *to);
}

static void get_states(const ebb_walk *w, void *states, const float *state)
{
    const int64_t count = w->s.batch * w->s.hidden;
    void *to = ebb_walk_from(w, states, w->d * count);
    if (to == NULL)
        return;
    if (w->half)
        ebb_narrow_here(to, state, EBB_BF16, count);
    else
        memcpy(to, state, (size_t)count * sizeof *state);
}

/* Lines along k of a panel for `count` gates. */
static int64_t lines(const ebb_walk *w, int64_t count)
{
    return count * w->s.hidden / ebb_walk_unit(w);
}

/* Panel of columns p of R' (forward: its gates beside each other) or R (backward: below each other). */
static float *panel_of(const ebb_walk *w, int64_t p)
{
    return ebb_walk_floats(w, w->weights) + p * PANEL * lines(w, w->s.gates);
}

/* R[H, columns of the panel] of a gate, or turned. */
static void pack(const ebb_walk *w, int64_t p, int64_t gate)
{
    const int64_t H = w->s.hidden, n = H - p * PANEL < PANEL ? H - p * PANEL : PANEL;
    const int64_t row = w->s.backward ? H : 1, column = w->s.backward ? 1 : H;
    const void *r = ebb_walk_from(w, ebb_walk_weights(w, 2, H), gate * H * H + p * PANEL * column);
    float *to = panel_of(w, p) + PANEL * lines(w, gate);
    if (w->half)
        ebb_tile_pack_pairs((uint32_t *)(void *)to, r, row, column, H, n);
    else
        ebb_tile_pack(to, r, row, column, H, n);
}

static void pack_all(const ebb_walk *w)
{
    const int64_t G = w->s.gates;
    EBB_PARALLEL_FOR(w->panels * PANEL * G * w->s.hidden)
    for (int64_t i = 0; i < w->panels * G; i++)
        pack(w, i / G, i % G);
}

/* y[rows, n] (+)= x[rows, k] by panels, k counted in lines. */
static void multiply(const ebb_walk *w, float *y, int64_t n, const void *x, int64_t x_row,
                     const float *panels, int64_t rows, int64_t k, bool adds)
{
    if (w->half)
        ebb_tile_multiply_pairs(y, n, x, x_row / 2, 1, panels, rows, n, k, k, adds);
    else
        ebb_tile_multiply(y, n, x, x_row, 1, panels, rows, n, k, k, adds);
}

static int64_t time_before(const ebb_walk *w, int64_t t)
{
    return ebb_recurrent_backwards(&w->s, w->d) ? t + 1 : t - 1;
}

/* What both biases add to the parts: that of R where its product goes. */
static void sum_biases(const ebb_walk *w)
{
    const int64_t H = w->s.hidden, G = w->s.gates;
    const void *bias = ebb_walk_from(w, ebb_walk_input(w, w->s.at.bias), w->d * 2 * G * H);
    float *sum = ebb_walk_floats(w, w->bias);
    memset(sum, 0, (size_t)w->wide * sizeof *sum);
    for (int64_t q = 0; bias != NULL && q < 2 * G * H; q++) {
        const int64_t gate = q / H % G, part = q < G * H ? gate : w->cell->fed[gate];
        const float x =
            w->half ? ebb_wide_bf16(((const uint16_t *)bias)[q]) : ((const float *)bias)[q];
        sum[part * H + q % H] += x;
    }
}

/* X W' + b of n steps from t on. */
static void multiply_x(const ebb_walk *w, int64_t t, int64_t n)
{
    const ebb_product p = ebb_walk_product_of_x(w, n);
    ebb_product_tiles_run(&p, ebb_walk_from(w, ebb_walk_input(w, 0), t * w->s.batch * w->s.inputs),
                          ebb_walk_weights(w, 1, w->s.inputs), ebb_walk_scratch(w, w->bias),
                          ebb_walk_scratch(w, w->sums), ebb_walk_scratch(w, w->products));
}

/* The columns of h that one thread has at once, of so many sequences. */
typedef struct block {
    int64_t t, panel, columns, first, rows;
    const float *sums; /* of the step */
} block;

static block block_of(const ebb_walk *w, int64_t t, const float *sums, int64_t panel)
{
    const int64_t left = w->s.hidden - panel * PANEL;
    return (block){.t = t, .panel = panel, .columns = left < PANEL ? left : PANEL, .sums = sums};
}

/* The next sequences of it. */
static bool next_rows(const ebb_walk *w, block *p)
{
    p->first += p->rows;
    p->rows = w->s.batch - p->first < ROWS ? w->s.batch - p->first : ROWS;
    return p->rows > 0;
}

/* ---- forward ---- */

static void copy(const ebb_walk *w, void *to, const void *what, int64_t n)
{
    if (to != NULL)
        memcpy(to, what, (size_t)n * ebb_walk_size(w));
}

static void compute_rows(const ebb_walk *w, const block *p, const float *fed, void *h)
{
    const int64_t H = w->s.hidden, at = p->panel * PANEL;
    float unwanted[EBB_MOST_PARTS * PANEL];
    for (int64_t i = 0; i < p->rows; i++) {
        const int64_t b = p->first + i, y = ebb_recurrent_y(&w->s, p->t, w->d, b);
        void *c = ebb_walk_from(w, ebb_walk_output(w, 3), y * H + at),
             *gates = ebb_walk_from(w, ebb_walk_output(w, 4), y * w->wide + at);
        const ebb_cell_forward row = {.apart = H,
                                      .x = p->sums + b * w->wide + at,
                                      .bias = ebb_walk_floats(w, w->bias) + w->s.gates * H + at,
                                      .fed = fed + i * w->s.gates * PANEL,
                                      .state = ebb_walk_floats(w, w->state) + b * H + at,
                                      .h = ebb_walk_from(w, h, b * H + at),
                                      .c = c != NULL ? c : unwanted,
                                      .gates = gates != NULL ? gates : unwanted,
                                      .kept = gates != NULL ? H : PANEL};
        w->cell->forward[w->half](&row, p->columns);
        copy(w, ebb_walk_from(w, ebb_walk_output(w, 0), y * H + at), row.h, p->columns);
    }
}

/* before, h: all of the step before, and of this one. */
static void step_forward(const ebb_walk *w, int64_t t, const float *sums, const void *before,
                         void *h)
{
    const int64_t H = w->s.hidden, n = w->s.gates * PANEL;
    EBB_PARALLEL_FOR(w->s.batch * w->wide * H)
    for (int64_t panel = 0; panel < w->panels; panel++) {
        float fed[ROWS * EBB_MOST_PARTS * PANEL];
        block p = block_of(w, t, sums, panel);
        while (next_rows(w, &p)) {
            multiply(w, fed, n, ebb_walk_from(w, before, p.first * H), H, panel_of(w, panel),
                     p.rows, lines(w, 1), false);
            compute_rows(w, &p, fed, h);
        }
    }
}

static void forward(const ebb_walk *w)
{
    const int64_t B = w->s.batch, H = w->s.hidden, T = w->s.times;
    const bool back = ebb_recurrent_backwards(&w->s, w->d), lstm = w->s.cell == EBB_CELL_LSTM;
    const void *h0 = ebb_walk_from(w, ebb_walk_input(w, w->s.at.h0), w->d * B * H);
    void *h[] = {ebb_walk_scratch(w, w->h), ebb_walk_from(w, ebb_walk_scratch(w, w->h), B * H)};
    sum_biases(w);
    if (h0 != NULL)
        copy(w, h[0], h0, B * H);
    else
        memset(h[0], 0, (size_t)(B * H) * ebb_walk_size(w));
    put_states(w, ebb_walk_floats(w, w->state), ebb_walk_input(w, lstm ? w->s.at.c0 : w->s.at.h0));
    pack_all(w);
    for (int64_t done = 0, n; done < T; done += n) {
        n = T - done < w->steps ? T - done : w->steps;
        const int64_t first = back ? T - done - n : done;
        multiply_x(w, first, n);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = back ? n - 1 - i : i, now = (done + i) % 2;
            step_forward(w, first + at, ebb_walk_floats(w, w->sums) + at * B * w->wide, h[now],
                         h[1 - now]);
        }
    }
    copy(w, ebb_walk_from(w, ebb_walk_output(w, 1), w->d * B * H), h[T % 2], B * H);
    get_states(w, ebb_walk_output(w, 2), ebb_walk_floats(w, w->state));
}

/* ---- backward ---- */

/* Row of a state before step t of sequence b: of all, or of the first ones; NULL: zeros. */
static const void *before(const ebb_walk *w, int all, int first, int64_t t, int64_t b)
{
    const int64_t at = time_before(w, t), H = w->s.hidden;
    if (at >= 0 && at < w->s.times)
        return ebb_walk_from(w, ebb_walk_input(w, all), ebb_recurrent_y(&w->s, at, w->d, b) * H);
    return ebb_walk_from(w, ebb_walk_input(w, first), (w->d * w->s.batch + b) * H);
}

/* h before all steps, where products can have them. */
static void gather_before(const ebb_walk *w)
{
    const int64_t B = w->s.batch, H = w->s.hidden, all = w->s.times * B;
    EBB_PARALLEL_FOR(all * H)
    for (int64_t e = 0; e < all; e++) {
        const void *h = before(w, w->s.at.h_all, w->s.at.h0, e / B, e % B);
        void *to = ebb_walk_from(w, ebb_walk_scratch(w, w->before), e * H);
        if (h != NULL)
            memcpy(to, h, (size_t)H * ebb_walk_size(w));
        else
            memset(to, 0, (size_t)H * ebb_walk_size(w));
    }
}

/* The sums of n steps from t on, as the forward had them. */
static void sum_again(const ebb_walk *w, int64_t t, int64_t n)
{
    const int64_t H = w->s.hidden;
    multiply_x(w, t, n);
    for (ebb_walk_run r = {0}; ebb_walk_next_run(w, &r);) {
        const ebb_product p = ebb_walk_product_of_h(w, &r, n);
        float *to = ebb_walk_floats(w, w->sums) + r.part * H;
        ebb_product_tiles_run(&p,
                              ebb_walk_from(w, ebb_walk_scratch(w, w->before), t * w->s.batch * H),
                              ebb_walk_from(w, ebb_walk_weights(w, 2, H), r.gate * H * H),
                              r.part >= w->s.gates ? ebb_walk_floats(w, w->bias) + r.part * H : to,
                              to, ebb_walk_scratch(w, w->products));
    }
}

static void compute_rows_back(const ebb_walk *w, const block *p, const float *fed)
{
    static const float zeros[PANEL];
    const int64_t B = w->s.batch, H = w->s.hidden, at = p->panel * PANEL;
    const bool lstm = w->s.cell == EBB_CELL_LSTM;
    const int states = lstm ? w->s.at.c_all : w->s.at.h_all;
    for (int64_t i = 0; i < p->rows; i++) {
        const int64_t b = p->first + i, y = ebb_recurrent_y(&w->s, p->t, w->d, b);
        const void *dy = ebb_walk_from(w, ebb_walk_input(w, w->s.at.dh_all), y * H + at);
        const void *old =
            ebb_walk_from(w, before(w, states, lstm ? w->s.at.c0 : w->s.at.h0, p->t, b), at);
        const ebb_cell_backward row = {
            .apart = H,
            .sums = p->sums == NULL ? NULL : p->sums + b * w->wide + at,
            .gates = ebb_walk_from(w, ebb_walk_input(w, w->s.at.gates), y * w->wide + at),
            .fed = fed + i * PANEL,
            .dh = ebb_walk_floats(w, w->dh) + b * H + at,
            .dc = ebb_walk_floats(w, w->state) + b * H + at,
            .dy = dy != NULL ? dy : zeros,
            .now = ebb_walk_from(w, ebb_walk_input(w, states), y * H + at),
            .before = old != NULL ? old : zeros,
            .da = ebb_walk_from(w, ebb_walk_scratch(w, w->da), (p->t * B + b) * w->wide + at)};
        w->cell->backward[w->half](&row, p->columns);
    }
}

/* What step `behind` gives to h before it, of some sequences; none: nothing. */
static void multiply_back(const ebb_walk *w, const block *p, float *fed, int64_t behind)
{
    if (behind < 0 || behind >= w->s.times) {
        memset(fed, 0, (size_t)(p->rows * PANEL) * sizeof *fed);
        return;
    }
    const int64_t row = behind * w->s.batch + p->first;
    for (ebb_walk_run r = {0}; ebb_walk_next_run(w, &r);)
        multiply(w, fed, PANEL,
                 ebb_walk_from(w, ebb_walk_scratch(w, w->da), row * w->wide + r.part * w->s.hidden),
                 w->wide, panel_of(w, p->panel) + PANEL * lines(w, r.gate), p->rows,
                 lines(w, r.count), r.gate > 0);
}

/* sums: of this step, or NULL. */
static void step_back(const ebb_walk *w, int64_t t, const float *sums)
{
    const int64_t behind = 2 * t - time_before(w, t);
    EBB_PARALLEL_FOR(w->s.batch * w->wide * w->s.hidden)
    for (int64_t panel = 0; panel < w->panels; panel++) {
        float fed[ROWS * PANEL];
        block p = block_of(w, t, sums, panel);
        while (next_rows(w, &p)) {
            multiply_back(w, &p, fed, behind);
            compute_rows_back(w, &p, fed);
        }
    }
}

/* What arrives at the states before the first step, t. */
static void finish_back(const ebb_walk *w, int64_t t)
{
    const int64_t H = w->s.hidden;
    EBB_PARALLEL_FOR(w->s.batch * w->wide * H)
    for (int64_t panel = 0; panel < w->panels; panel++) {
        float fed[ROWS * PANEL];
        block p = block_of(w, t, NULL, panel);
        while (next_rows(w, &p)) {
            multiply_back(w, &p, fed, t);
            for (int64_t i = 0; i < p.rows; i++)
                for (int64_t k = 0; k < p.columns; k++)
                    ebb_walk_floats(w, w->dh)[(p.first + i) * H + panel * PANEL + k] +=
                        fed[i * PANEL + k];
        }
    }
    get_states(w, ebb_walk_output(w, 4), ebb_walk_floats(w, w->dh));
    get_states(w, ebb_walk_output(w, 5), ebb_walk_floats(w, w->state));
}

static void all_steps_back(const ebb_walk *w)
{
    const int64_t T = w->s.times;
    const bool back = ebb_recurrent_backwards(&w->s, w->d);
    for (int64_t left = T, n; left > 0; left -= n) {
        n = left < w->steps ? left : w->steps;
        const int64_t first = back ? T - left : left - n;
        if (w->cell->again)
            sum_again(w, first, n);
        for (int64_t i = n - 1; i >= 0; i--) {
            const int64_t at = back ? n - 1 - i : i;
            step_back(w, first + at,
                      w->cell->again ? ebb_walk_floats(w, w->sums) + at * w->s.batch * w->wide
                                     : NULL);
        }
    }
    finish_back(w, back ? T - 1 : 0);
}

/* Of one part over all steps: into db. */
static void sum_over_steps(const ebb_walk *w, void *db, int64_t at, int64_t n)
{
    const int64_t all = w->s.times * w->s.batch;
    double sum[PANEL] = {0};
    float line[PANEL];
    for (int64_t e = 0; e < all; e++) {
        const char *from = ebb_walk_from(w, ebb_walk_scratch(w, w->da), e * w->wide + at);
        ebb_tile_ask(from + EBB_TILE_AHEAD * w->wide * (int64_t)ebb_walk_size(w),
                     n * (int64_t)ebb_walk_size(w));
        const float *x = ebb_look_f32(from, ebb_walk_dtype(w), 0, n, line);
        for (int64_t k = 0; k < n; k++)
            sum[k] += (double)x[k];
    }
    for (int64_t k = 0; k < n; k++)
        line[k] = (float)sum[k];
    if (w->half)
        ebb_narrow_here(db, line, EBB_BF16, n);
    else
        memcpy(db, line, (size_t)n * sizeof *line);
}

/* What the biases get: W's, then R's, which is the same where a gate's products go to one part. */
static void sum_biases_back(const ebb_walk *w)
{
    const int64_t H = w->s.hidden, G = w->s.gates;
    void *db = ebb_walk_from(w, ebb_walk_output(w, 3), w->d * 2 * G * H);
    if (db == NULL)
        return;
    EBB_PARALLEL_FOR(w->s.times * w->s.batch * w->wide)
    for (int64_t i = 0; i < G * w->panels; i++) {
        const int64_t gate = i / w->panels, k = i % w->panels * PANEL, fed = w->cell->fed[gate];
        const int64_t n = H - k < PANEL ? H - k : PANEL;
        void *of_w = ebb_walk_from(w, db, gate * H + k),
             *of_r = ebb_walk_from(w, db, (G + gate) * H + k);
        sum_over_steps(w, of_w, gate * H + k, n);
        if (fed == gate)
            copy(w, of_r, of_w, n);
        else
            sum_over_steps(w, of_r, fed * H + k, n);
    }
}

static void backward(const ebb_walk *w)
{
    const int64_t H = w->s.hidden, I = w->s.inputs;
    void *da = ebb_walk_scratch(w, w->da), *products = ebb_walk_scratch(w, w->products),
         *dx = ebb_walk_output(w, 0);
    put_states(w, ebb_walk_floats(w, w->dh), ebb_walk_input(w, w->s.at.dh_last));
    put_states(w, ebb_walk_floats(w, w->state), ebb_walk_input(w, w->s.at.dc_last));
    sum_biases(w);
    gather_before(w);
    pack_all(w);
    all_steps_back(w);
    if (dx != NULL)
        ebb_product_tiles_run(&w->dx, da, ebb_walk_weights(w, 1, I), dx, dx, products);
    if (ebb_walk_output(w, 1) != NULL)
        ebb_product_tiles_run(&w->dw, da, ebb_walk_input(w, 0), NULL,
                              ebb_walk_from(w, ebb_walk_output(w, 1), w->d * w->s.gates * H * I),
                              products);
    for (ebb_walk_run r = {0}; ebb_walk_output(w, 2) != NULL && ebb_walk_next_run(w, &r);) {
        const ebb_product dr = ebb_walk_product_of_dr(w, &r);
        ebb_product_tiles_run(
            &dr, ebb_walk_from(w, da, r.part * H), ebb_walk_scratch(w, w->before), NULL,
            ebb_walk_from(w, ebb_walk_output(w, 2), (w->d * w->s.gates + r.gate) * H * H),
            products);
    }
    sum_biases_back(w);
}

/* ---- the kernels ---- */

static const char *fits(const ebb_call *call)
{
    ebb_walk w;
    return ebb_walk_read(&w, call);
}

static ebb_status workspace(const ebb_call *call, size_t *bytes)
{
    ebb_walk w;
    EBB_MUST_FIT(call, ebb_walk_read(&w, call));
    *bytes = w.bytes;
    return NULL;
}

static ebb_status run_walk(const ebb_call *call)
{
    ebb_walk w;
    EBB_MUST_FIT(call, ebb_walk_read(&w, call));
    for (; w.d < w.s.directions; w.d++) {
        w.dx.biased = w.d > 0;
        w.s.backward ? backward(&w) : forward(&w);
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_dnnl_recurrent[] = {
    {.name = "tiles.rnn",           .op = EBB_OP_RNN,           .fits = fits, .workspace = workspace, .run = run_walk},
    {.name = "tiles.gru",           .op = EBB_OP_GRU,           .fits = fits, .workspace = workspace, .run = run_walk},
    {.name = "tiles.lstm",          .op = EBB_OP_LSTM,          .fits = fits, .workspace = workspace, .run = run_walk},
    {.name = "tiles.lstm_training", .op = EBB_OP_LSTM_TRAINING, .fits = fits, .workspace = workspace, .run = run_walk},
    {.name = "tiles.rnn_grad",      .op = EBB_OP_RNN_GRAD,      .fits = fits, .workspace = workspace, .run = run_walk},
    {.name = "tiles.gru_grad",      .op = EBB_OP_GRU_GRAD,      .fits = fits, .workspace = workspace, .run = run_walk},
    {.name = "tiles.lstm_grad",     .op = EBB_OP_LSTM_GRAD,     .fits = fits, .workspace = workspace, .run = run_walk},
};
// clang-format on
EBB_DNNL_COUNT(recurrent)
