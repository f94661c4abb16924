/* recurrent_loops.h: LSTM for one element type. Included by recurrent.c once for each, with REAL
 * the type and NAMED(x) the name; so no include guard. */

static double NAMED(dot)(const REAL *a, const REAL *b, int64_t n)
{
    double sum = 0.0;
    EBB_SIMD_SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Rows of a matrix whose index is (t, b): row (t, b) is at t * step_t + b * step_b. */
typedef struct NAMED(rows) {
    const REAL *at;
    int64_t step_t, step_b;
} NAMED(rows);

/* y[0..n) (+)= sum over t, b of factor(t,b)[0] * row(t,b)[0..n) */
static void NAMED(weighted_sum)(REAL *y, int64_t n, bool add, int64_t times, int64_t batch,
                                NAMED(rows) factor, NAMED(rows) row)
{
    for (int64_t from = 0; from < n; from += COLUMNS) {
        double sum[COLUMNS];
        int64_t width = n - from < COLUMNS ? n - from : COLUMNS;
        for (int64_t j = 0; j < width; j++)
            sum[j] = add ? (double)y[from + j] : 0.0;
        for (int64_t t = 0; t < times; t++)
            for (int64_t b = 0; b < batch; b++) {
                double by = (double)factor.at[t * factor.step_t + b * factor.step_b];
                const REAL *x = row.at + t * row.step_t + b * row.step_b + from;
                EBB_SIMD
                for (int64_t j = 0; j < width; j++)
                    sum[j] += by * (double)x[j];
            }
        for (int64_t j = 0; j < width; j++)
            y[from + j] = (REAL)sum[j];
    }
}

/* One direction. gates: [B, 4H] scratch, h and c: [B, H] scratch that ends as the final state. */
static void NAMED(lstm_direction)(const ebb_call *call, const lstm *s, int64_t d, REAL *gates,
                                  REAL *h, REAL *c)
{
    int64_t H = s->hidden, B = s->batch, I = s->inputs;
    const REAL *w = (const REAL *)call->in[1].data + d * 4 * H * I;
    const REAL *r = (const REAL *)call->in[2].data + d * 4 * H * H;
    const REAL *bias = operand_data(call, 3), *h0 = operand_data(call, 5);
    const REAL *c0 = operand_data(call, 6), *peep = operand_data(call, 7);
    REAL *h_all = output_data(call, 0), *h_last = output_data(call, 1);
    REAL *c_last = output_data(call, 2), *c_all = output_data(call, 3),
         *g_all = output_data(call, 4);
    bias = bias == NULL ? NULL : bias + d * 8 * H;
    peep = peep == NULL ? NULL : peep + d * 3 * H;
    for (int64_t i = 0; i < B * H; i++) {
        h[i] = h0 == NULL ? 0 : h0[d * B * H + i];
        c[i] = c0 == NULL ? 0 : c0[d * B * H + i];
    }
    for (int64_t step = 0; step < s->times; step++) {
        int64_t t = backwards(s, d) ? s->times - 1 - step : step,
                place = (t * s->directions + d) * B;
        const REAL *x = (const REAL *)call->in[0].data + t * B * I;
        EBB_PARALLEL_FOR(B * 4 * H * (I + H))
        for (int64_t e = 0; e < B * 4 * H; e++) {
            int64_t b = e / (4 * H), q = e % (4 * H);
            double sum = NAMED(dot)(x + b * I, w + q * I, I) + NAMED(dot)(h + b * H, r + q * H, H);
            gates[e] = (REAL)(bias == NULL ? sum : sum + (double)bias[q] + (double)bias[4 * H + q]);
        }
        EBB_PARALLEL_FOR(B * H * 16)
        for (int64_t e = 0; e < B * H; e++) {
            int64_t j = e % H;
            REAL *g = gates + e / H * 4 * H + j;
            double old = (double)c[e], pi = 0.0, po = 0.0, pf = 0.0;
            if (peep != NULL) {
                pi = (double)peep[j];
                po = (double)peep[H + j];
                pf = (double)peep[2 * H + j];
            }
            double in = sigmoid((double)g[0] + pi * old);
            double forget = sigmoid((double)g[2 * H] + pf * old);
            double fresh = tanh((double)g[3 * H]), now = forget * old + in * fresh;
            double out = sigmoid((double)g[H] + po * now);
            g[0] = (REAL)in;
            g[H] = (REAL)out;
            g[2 * H] = (REAL)forget;
            g[3 * H] = (REAL)fresh;
            c[e] = (REAL)now;
            h[e] = (REAL)(out * tanh(now));
        }
        size_t state = (size_t)(B * H) * sizeof(REAL);
        if (h_all != NULL)
            memcpy(h_all + place * H, h, state);
        if (c_all != NULL)
            memcpy(c_all + place * H, c, state);
        if (g_all != NULL)
            memcpy(g_all + place * 4 * H, gates, 4 * state);
    }
    if (h_last != NULL)
        memcpy(h_last + d * B * H, h, (size_t)(B * H) * sizeof(REAL));
    if (c_last != NULL)
        memcpy(c_last + d * B * H, c, (size_t)(B * H) * sizeof(REAL));
}

/* da[t,b,:] (gradients before the activations, [T, B, 4H]) for one direction; dh and dc: [B, H]
 * scratch that ends as the gradient of the initial state. */
static void NAMED(lstm_back_in_time)(const ebb_call *call, const lstm *s, int64_t d, REAL *da,
                                     REAL *dh, REAL *dc)
{
    int64_t H = s->hidden, B = s->batch, stride = s->directions * B * H;
    const REAL *r = (const REAL *)call->in[2].data + d * 4 * H * H;
    const REAL *c0 = operand_data(call, 5);
    const REAL *c_all = (const REAL *)call->in[7].data + d * B * H;
    const REAL *g_all = (const REAL *)call->in[8].data + d * B * 4 * H;
    const REAL *dh_all = operand_data(call, 9), *dh_last = operand_data(call, 10);
    const REAL *dc_last = operand_data(call, 11);
    for (int64_t e = 0; e < B * H; e++) {
        dh[e] = dh_last == NULL ? 0 : dh_last[d * B * H + e];
        dc[e] = dc_last == NULL ? 0 : dc_last[d * B * H + e];
    }
    for (int64_t step = s->times - 1; step >= 0; step--) {
        int64_t t = backwards(s, d) ? s->times - 1 - step : step;
        int64_t before = backwards(s, d) ? t + 1 : t - 1;
        EBB_PARALLEL_FOR(B * H * 16)
        for (int64_t e = 0; e < B * H; e++) {
            int64_t j = e % H, b = e / H;
            const REAL *g = g_all + t * 4 * stride + b * 4 * H + j;
            REAL *a = da + (t * B + b) * 4 * H + j;
            double in = (double)g[0], out = (double)g[H], forget = (double)g[2 * H];
            double fresh = (double)g[3 * H], squashed = tanh((double)c_all[t * stride + e]);
            double old = step > 0     ? (double)c_all[before * stride + e]
                         : c0 != NULL ? (double)c0[d * B * H + e]
                                      : 0.0;
            double gh = (double)dh[e];
            if (dh_all != NULL)
                gh += (double)dh_all[t * stride + d * B * H + e];
            double gc = (double)dc[e] + gh * out * (1.0 - squashed * squashed);
            a[0] = (REAL)(gc * fresh * in * (1.0 - in));
            a[H] = (REAL)(gh * squashed * out * (1.0 - out));
            a[2 * H] = (REAL)(gc * old * forget * (1.0 - forget));
            a[3 * H] = (REAL)(gc * in * (1.0 - fresh * fresh));
            dc[e] = (REAL)(gc * forget);
        }
        EBB_PARALLEL_FOR(B * 4 * H * H)
        for (int64_t b = 0; b < B; b++)
            NAMED(weighted_sum)
            (dh + b * H, H, false, 1, 4 * H, (NAMED(rows)){da + (t * B + b) * 4 * H, 0, 1},
             (NAMED(rows)){r, 0, H});
    }
}

static void NAMED(lstm_grad_direction)(const ebb_call *call, const lstm *s, int64_t d, REAL *da,
                                       REAL *dh, REAL *dc)
{
    int64_t H = s->hidden, B = s->batch, I = s->inputs, T = s->times;
    int64_t stride = s->directions * B * H;
    const REAL *x = call->in[0].data, *w = (const REAL *)call->in[1].data + d * 4 * H * I;
    const REAL *h0 = operand_data(call, 4), *h_all = (const REAL *)call->in[6].data + d * B * H;
    REAL *dx = output_data(call, 0), *dw = output_data(call, 1), *dr = output_data(call, 2);
    REAL *db = output_data(call, 3), *dh0 = output_data(call, 4), *dc0 = output_data(call, 5);
    NAMED(lstm_back_in_time)(call, s, d, da, dh, dc);
    if (dh0 != NULL)
        memcpy(dh0 + d * B * H, dh, (size_t)(B * H) * sizeof(REAL));
    if (dc0 != NULL)
        memcpy(dc0 + d * B * H, dc, (size_t)(B * H) * sizeof(REAL));
    if (dx != NULL) {
        EBB_PARALLEL_FOR(T * B * 4 * H * I)
        for (int64_t e = 0; e < T * B; e++)
            NAMED(weighted_sum)
            (dx + e * I, I, d > 0, 1, 4 * H, (NAMED(rows)){da + e * 4 * H, 0, 1},
             (NAMED(rows)){w, 0, I});
    }
    int64_t first = backwards(s, d) ? T - 1 : 0; // the step that started from the initial state
    EBB_PARALLEL_FOR(T * B * 4 * H * I)
    for (int64_t q = 0; q < 4 * H; q++) {
        NAMED(rows) all = {da + q, B * 4 * H, 4 * H};
        if (dw != NULL)
            NAMED(weighted_sum)
            (dw + (d * 4 * H + q) * I, I, false, T, B, all, (NAMED(rows)){x, B * I, I});
        if (dr != NULL) {
            // Step t multiplied R with the h of the step before: pair them with one step's shift.
            NAMED(rows) later = {da + q + (backwards(s, d) ? 0 : B * 4 * H), B * 4 * H, 4 * H};
            NAMED(rows) earlier = {h_all + (backwards(s, d) ? stride : 0), stride, H};
            REAL *row = dr + (d * 4 * H + q) * H;
            NAMED(weighted_sum)(row, H, false, T - 1, B, later, earlier);
            if (h0 != NULL)
                NAMED(weighted_sum)
                (row, H, true, 1, B, (NAMED(rows)){da + q + first * B * 4 * H, 0, 4 * H},
                 (NAMED(rows)){h0 + d * B * H, 0, H});
        }
        if (db != NULL) {
            double sum = 0.0;
            for (int64_t e = 0; e < T * B; e++)
                sum += (double)da[e * 4 * H + q];
            db[d * 8 * H + q] = db[d * 8 * H + 4 * H + q] = (REAL)sum;
        }
    }
}
