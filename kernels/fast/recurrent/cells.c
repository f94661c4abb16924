/* cells.c: see cells.h; what the letters mean is in kernels/plain/layers/recurrent.c. */
#include "kernels/fast/recurrent/cells.h"

#include "kernels/fast/tile.h"
#include "kernels/parallel.h"
#include "kernels/plain/vmath.h"

enum { PANEL = EBB_TILE_COLUMNS };

EBB_TILE_INLINE float get(const void *from, int64_t k, const bool half)
{
    return half ? ebb_wide_bf16(((const uint16_t *)from)[k]) : ((const float *)from)[k];
}

EBB_TILE_INLINE void put(void *to, int64_t k, float x, const bool half)
{
    if (half)
        ((uint16_t *)to)[k] = ebb_round_bf16(x);
    else
        ((float *)to)[k] = x;
}

EBB_TILE_INLINE float sigmoid(float x)
{
    return 1.0f / (1.0f + ebb_exp(-x));
}

/* ---- RNN ---- */

EBB_TILE_INLINE void rnn(const ebb_cell_forward *r, int64_t n, const bool half)
{
    const float *x = r->x, *fed = r->fed;
    void *h = r->h;
    EBB_SIMD
    for (int64_t k = 0; k < n; k++)
        put(h, k, ebb_tanh(x[k] + fed[k]), half);
}

EBB_TILE_INLINE void rnn_back(const ebb_cell_backward *r, int64_t n, const bool half)
{
    const float *x = r->sums, *fed = r->fed;
    const void *dy = r->dy;
    float *dh = r->dh;
    void *da = r->da;
    EBB_SIMD
    for (int64_t k = 0; k < n; k++) {
        const float h = ebb_tanh(x[k]);
        put(da, k, (dh[k] + fed[k] + get(dy, k, half)) * (1.0f - h * h), half);
        dh[k] = 0;
    }
}

/* ---- GRU, with linear_before_reset: parts z r n s ---- */

EBB_TILE_INLINE void gru(const ebb_cell_forward *r, int64_t n, const bool half)
{
    const int64_t H = r->apart;
    const float *x = r->x, *fed = r->fed, *bias = r->bias;
    float *state = r->state;
    void *h = r->h;
    EBB_SIMD
    for (int64_t k = 0; k < n; k++) {
        const float z = sigmoid(x[k] + fed[k]), reset = sigmoid(x[H + k] + fed[PANEL + k]);
        const float s = fed[2 * PANEL + k] + bias[k];
        const float fresh = ebb_tanh(x[2 * H + k] + reset * s);
        state[k] = (1.0f - z) * fresh + z * state[k];
        put(h, k, state[k], half);
    }
}

EBB_TILE_INLINE void gru_back(const ebb_cell_backward *r, int64_t n, const bool half)
{
    const int64_t H = r->apart;
    const float *x = r->sums, *fed = r->fed;
    const void *dy = r->dy, *before = r->before;
    float *dh = r->dh;
    void *da = r->da;
    EBB_SIMD
    for (int64_t k = 0; k < n; k++) {
        const float z = sigmoid(x[k]), reset = sigmoid(x[H + k]), s = x[3 * H + k];
        const float fresh = ebb_tanh(x[2 * H + k] + reset * s);
        const float gh = dh[k] + fed[k] + get(dy, k, half);
        const float dn = gh * (1.0f - z) * (1.0f - fresh * fresh);
        put(da, k, gh * (get(before, k, half) - fresh) * z * (1.0f - z), half);
        put(da, H + k, dn * s * reset * (1.0f - reset), half);
        put(da, 2 * H + k, dn, half);
        put(da, 3 * H + k, dn * reset, half);
        dh[k] = gh * z;
    }
}

/* ---- LSTM: parts i o f n ---- */

EBB_TILE_INLINE void lstm(const ebb_cell_forward *r, int64_t n, const bool half)
{
    const int64_t H = r->apart, kept = r->kept;
    const float *x = r->x, *fed = r->fed;
    float *c = r->state;
    void *h = r->h, *c_all = r->c, *gates = r->gates;
    EBB_SIMD
    for (int64_t k = 0; k < n; k++) {
        const float in = sigmoid(x[k] + fed[k]), out = sigmoid(x[H + k] + fed[PANEL + k]);
        const float forget = sigmoid(x[2 * H + k] + fed[2 * PANEL + k]);
        const float fresh = ebb_tanh(x[3 * H + k] + fed[3 * PANEL + k]);
        const float now = forget * c[k] + in * fresh;
        put(gates, k, in, half);
        put(gates, kept + k, out, half);
        put(gates, 2 * kept + k, forget, half);
        put(gates, 3 * kept + k, fresh, half);
        c[k] = now;
        put(c_all, k, now, half);
        put(h, k, out * ebb_tanh(now), half);
    }
}

EBB_TILE_INLINE void lstm_back(const ebb_cell_backward *r, int64_t n, const bool half)
{
    const int64_t H = r->apart;
    const float *fed = r->fed;
    const void *g = r->gates, *dy = r->dy, *now = r->now, *before = r->before;
    float *dh = r->dh, *dc = r->dc;
    void *da = r->da;
    EBB_SIMD
    for (int64_t k = 0; k < n; k++) {
        const float in = get(g, k, half), out = get(g, H + k, half);
        const float forget = get(g, 2 * H + k, half), fresh = get(g, 3 * H + k, half);
        const float gh = dh[k] + fed[k] + get(dy, k, half);
        const float squashed = ebb_tanh(get(now, k, half));
        const float gc = dc[k] + gh * out * (1.0f - squashed * squashed);
        put(da, k, gc * fresh * in * (1.0f - in), half);
        put(da, H + k, gh * squashed * out * (1.0f - out), half);
        put(da, 2 * H + k, gc * get(before, k, half) * forget * (1.0f - forget), half);
        put(da, 3 * H + k, gc * in * (1.0f - fresh * fresh), half);
        dc[k] = gc * forget;
        dh[k] = 0;
    }
}

/* ---- the table ---- */

#define BOTH_TYPES(name)                                                \
    static void name##_f32(const ebb_cell_forward *r, int64_t n)        \
    {                                                                   \
        name(r, n, false);                                              \
    }                                                                   \
    static void name##_bf16(const ebb_cell_forward *r, int64_t n)       \
    {                                                                   \
        name(r, n, true);                                               \
    }                                                                   \
    static void name##_back_f32(const ebb_cell_backward *r, int64_t n)  \
    {                                                                   \
        name##_back(r, n, false);                                       \
    }                                                                   \
    static void name##_back_bf16(const ebb_cell_backward *r, int64_t n) \
    {                                                                   \
        name##_back(r, n, true);                                        \
    }
BOTH_TYPES(rnn)
BOTH_TYPES(gru)
BOTH_TYPES(lstm)
#define OF(name)                          \
    {name##_f32, name##_bf16},            \
    {                                     \
        name##_back_f32, name##_back_bf16 \
    }

// clang-format off
const ebb_cell_formulas ebb_cell_formulas_of[] = {
    [EBB_CELL_RNN]  = {1, 1, {0},          true,  OF(rnn)},
    [EBB_CELL_GRU]  = {4, 3, {0, 1, 3},    true,  OF(gru)},
    [EBB_CELL_LSTM] = {4, 4, {0, 1, 2, 3}, false, OF(lstm)},
};
// clang-format on
