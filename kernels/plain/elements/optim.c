/* optim.c: the optimizers' steps, each one pass over weight, gradient and states.
 *
 * Scalars (rates, corrections) are worked out in double; elements in the weight's own type.
 */
#include "kernels/call/misfit.h"
#include "kernels/plain/optim.h"
#include "kernels/plain/plain.h"

#include <math.h>
#include <string.h>

enum { PIECE = 8192 }; /* elements a job */

#define FOR_PIECES(n)   \
    EBB_PARALLEL_FOR(n) \
    for (int64_t first = 0; first < (n); first += PIECE)

typedef struct adam {
    double alpha, beta, epsilon, decay;
    double step; /* the learning rate, corrected */
    double keep; /* 1 - norm_coefficient_post */
} adam;

typedef struct adagrad {
    double rate, epsilon, decay;
} adagrad;

#define DEFINE_OPTIM(T, F, ROOT)                                                                \
    static void sgd_##F(T *out, const T *w, const T *g, int64_t n, double r, double d)          \
    {                                                                                           \
        const T rate = (T)r, decay = (T)d;                                                      \
        FOR_PIECES(n)                                                                           \
        {                                                                                       \
            int64_t end = ebb_least(n, first + PIECE);                                          \
            EBB_SIMD                                                                            \
            for (int64_t i = first; i < end; i++)                                               \
                out[i] = w[i] - rate * (g[i] + decay * w[i]);                                   \
        }                                                                                       \
    }                                                                                           \
                                                                                                \
    static void momentum_##F(T *w_out, T *v_out, const T *w, const T *g, const T *v, int64_t n, \
                             const ebb_momentum *m, bool nesterov)                              \
    {                                                                                           \
        T rate = (T)m->rate, alpha = (T)m->alpha, beta = (T)m->beta, decay = (T)m->decay;       \
        /* What moves the weight: velocity, and for Nesterov a look ahead along it. */          \
        T ahead = nesterov ? alpha : 1, direct = nesterov ? 1 : 0;                              \
        FOR_PIECES(n)                                                                           \
        {                                                                                       \
            int64_t end = ebb_least(n, first + PIECE);                                          \
            EBB_SIMD                                                                            \
            for (int64_t i = first; i < end; i++) {                                             \
                T d = g[i] + decay * w[i];                                                      \
                T now = alpha * v[i] + beta * d;                                                \
                w_out[i] = w[i] - rate * (direct * d + ahead * now);                            \
                v_out[i] = now;                                                                 \
            }                                                                                   \
        }                                                                                       \
    }                                                                                           \
                                                                                                \
    static void adamw_##F(T *w_out, T *m_out, T *v_out, const T *w, const T *g, const T *m,     \
                          const T *v, int64_t n, const ebb_adamw *a)                            \
    {                                                                                           \
        T keep = (T)a->keep, beta = (T)a->beta, epsilon = (T)a->epsilon, step = (T)a->step;     \
        T scale = (T)a->scale, new_m = (T)(1.0 - a->alpha), new_v = (T)(1.0 - a->beta);         \
        FOR_PIECES(n)                                                                           \
        {                                                                                       \
            int64_t end = ebb_least(n, first + PIECE);                                          \
            EBB_SIMD                                                                            \
            for (int64_t i = first; i < end; i++) {                                             \
                T now_m = m[i] + new_m * (g[i] - m[i]);                                         \
                T now_v = beta * v[i] + new_v * (g[i] * g[i]);                                  \
                w_out[i] = keep * w[i] - step * (now_m / (ROOT(now_v) * scale + epsilon));      \
                m_out[i] = now_m;                                                               \
                v_out[i] = now_v;                                                               \
            }                                                                                   \
        }                                                                                       \
    }

#define DEFINE_ADAPTIVE(T, F, ROOT)                                                            \
    static void adam_##F(T *w_out, T *v_out, T *h_out, const T *w, const T *g, const T *v,     \
                         const T *h, int64_t n, const adam *a)                                 \
    {                                                                                          \
        T alpha = (T)a->alpha, beta = (T)a->beta, epsilon = (T)a->epsilon, step = (T)a->step;  \
        T decay = (T)a->decay, keep = (T)a->keep;                                              \
        T new_v = (T)(1.0 - a->alpha), new_h = (T)(1.0 - a->beta);                             \
        FOR_PIECES(n)                                                                          \
        {                                                                                      \
            int64_t end = ebb_least(n, first + PIECE);                                         \
            EBB_SIMD                                                                           \
            for (int64_t i = first; i < end; i++) {                                            \
                T d = decay * w[i] + g[i];                                                     \
                T now_v = alpha * v[i] + new_v * d, now_h = beta * h[i] + new_h * d * d;       \
                w_out[i] = keep * (w[i] - step * now_v / (ROOT(now_h) + epsilon));             \
                v_out[i] = now_v;                                                              \
                h_out[i] = now_h;                                                              \
            }                                                                                  \
        }                                                                                      \
    }                                                                                          \
                                                                                               \
    static void adagrad_##F(T *w_out, T *h_out, const T *w, const T *g, const T *h, int64_t n, \
                            const adagrad *a)                                                  \
    {                                                                                          \
        T rate = (T)a->rate, epsilon = (T)a->epsilon, decay = (T)a->decay;                     \
        FOR_PIECES(n)                                                                          \
        {                                                                                      \
            int64_t end = ebb_least(n, first + PIECE);                                         \
            EBB_SIMD                                                                           \
            for (int64_t i = first; i < end; i++) {                                            \
                T d = decay * w[i] + g[i], now = h[i] + d * d;                                 \
                w_out[i] = w[i] - rate * d / (ROOT(now) + epsilon);                            \
                h_out[i] = now;                                                                \
            }                                                                                  \
        }                                                                                      \
    }

DEFINE_OPTIM(float, f32, sqrtf)
DEFINE_OPTIM(double, f64, sqrt)
DEFINE_ADAPTIVE(float, f32, sqrtf)
DEFINE_ADAPTIVE(double, f64, sqrt)

/* (lr, W, G) {weight_decay = 0} -> W'. W' may be W. */
static ebb_status run_sgd(const ebb_call *c)
{
    double rate = ebb_plain_scalar(&c->in[0]);
    double decay = ebb_attr_float(&c->attrs, "weight_decay", 0.0);
    const ebb_operand *w = &c->in[1], *g = &c->in[2];
    int64_t n = ebb_elements(&w->type);
    EBB_BY_FLOAT(*w, sgd, c->out[0].data, w->data, g->data, n, rate, decay);
    return NULL;
}

ebb_momentum ebb_momentum_read(const ebb_call *c)
{
    const bool later = ebb_plain_scalar(&c->in[1]) > 0.0;
    return (ebb_momentum){.rate = ebb_plain_scalar(&c->in[0]),
                          .alpha = ebb_attr_float(&c->attrs, "alpha", 0.0),
                          .beta = later ? ebb_attr_float(&c->attrs, "beta", 1.0) : 1.0,
                          .decay = ebb_attr_float(&c->attrs, "norm_coefficient", 0.0)};
}

/* (R, T, X..., G..., V...) {alpha, beta, mode, norm_coefficient} -> X'..., V'.... X' may be X, V'
 * V. Groups go one after the other: an output may lie over an input of an earlier group. */
static ebb_status run_momentum(const ebb_call *c)
{
    const ebb_momentum m = ebb_momentum_read(c);
    const char *mode = ebb_attr_string(&c->attrs, "mode", "standard");
    const bool nesterov = strcmp(mode, "nesterov") == 0;
    if (!nesterov && strcmp(mode, "standard") != 0)
        return ebb_call_error(c, "mode '%s' is neither standard nor nesterov", mode);
    uint32_t groups = (c->input_count - 2) / 3;
    for (uint32_t i = 0; i < groups; i++) {
        const ebb_operand *x = &c->in[2 + i], *g = x + groups, *v = g + groups;
        ebb_operand *x_out = &c->out[i], *v_out = x_out + groups;
        int64_t n = ebb_elements(&x->type);
        EBB_BY_FLOAT(*x, momentum, x_out->data, v_out->data, x->data, g->data, v->data, n, &m,
                     nesterov);
    }
    return NULL;
}

/* (R, T, X..., G..., V..., H...) {alpha, beta, epsilon, norm_coefficient, norm_coefficient_post} ->
 * X'..., V'..., H'.... T: which step this is, from 1; at 0 nothing is corrected. */
static ebb_status run_adam(const ebb_call *c)
{
    double t = ebb_plain_scalar(&c->in[1]);
    adam a = {.alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.9f),
              .beta = ebb_attr_float(&c->attrs, "beta", (double)0.999f),
              .epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-6f),
              .decay = ebb_attr_float(&c->attrs, "norm_coefficient", 0.0),
              .step = ebb_plain_scalar(&c->in[0])};
    a.keep = 1.0 - ebb_attr_float(&c->attrs, "norm_coefficient_post", 0.0);
    if (t > 0.0)
        a.step *= sqrt(1.0 - pow(a.beta, t)) / (1.0 - pow(a.alpha, t));
    uint32_t groups = (c->input_count - 2) / 4;
    for (uint32_t i = 0; i < groups; i++) {
        const ebb_operand *x = &c->in[2 + i], *g = x + groups, *v = g + groups, *h = v + groups;
        ebb_operand *x_out = &c->out[i], *v_out = x_out + groups, *h_out = v_out + groups;
        int64_t n = ebb_elements(&x->type);
        EBB_BY_FLOAT(*x, adam, x_out->data, v_out->data, h_out->data, x->data, g->data, v->data,
                     h->data, n, &a);
    }
    return NULL;
}

/* (R, T, X..., G..., H...) {decay_factor, epsilon, norm_coefficient} -> X'..., H'.... */
static ebb_status run_adagrad(const ebb_call *c)
{
    double falls = ebb_attr_float(&c->attrs, "decay_factor", 0.0);
    adagrad a = {.epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-6f),
                 .decay = ebb_attr_float(&c->attrs, "norm_coefficient", 0.0)};
    a.rate = ebb_plain_scalar(&c->in[0]) / (1.0 + ebb_plain_scalar(&c->in[1]) * falls);
    uint32_t groups = (c->input_count - 2) / 3;
    for (uint32_t i = 0; i < groups; i++) {
        const ebb_operand *x = &c->in[2 + i], *g = x + groups, *h = g + groups;
        ebb_operand *x_out = &c->out[i], *h_out = x_out + groups;
        int64_t n = ebb_elements(&x->type);
        EBB_BY_FLOAT(*x, adagrad, x_out->data, h_out->data, x->data, g->data, h->data, n, &a);
    }
    return NULL;
}

/* T steps have been done, this one is step T + 1. */
ebb_adamw ebb_adamw_read(const ebb_call *c)
{
    double rate = ebb_plain_scalar(&c->in[0]), t = ebb_plain_scalar(&c->in[1]) + 1.0;
    ebb_adamw a = {.alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.9f),
                   .beta = ebb_attr_float(&c->attrs, "beta", (double)0.999f),
                   .epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-8f)};
    a.keep = 1.0 - rate * ebb_attr_float(&c->attrs, "weight_decay", (double)0.01f);
    a.step = rate / (1.0 - pow(a.alpha, t));
    a.scale = 1.0 / sqrt(1.0 - pow(a.beta, t));
    return a;
}

/* (lr, T, W, G, M, V) -> W', M', V'. */
static ebb_status run_adamw(const ebb_call *c)
{
    const ebb_adamw a = ebb_adamw_read(c);
    const ebb_operand *w = &c->in[2], *g = &c->in[3], *m = &c->in[4], *v = &c->in[5];
    ebb_operand *out = c->out;
    int64_t n = ebb_elements(&w->type);
    EBB_BY_FLOAT(*w, adamw, out[0].data, out[1].data, out[2].data, w->data, g->data, m->data,
                 v->data, n, &a);
    return NULL;
}

static const char *declines_state(const ebb_call *c, uint32_t first, uint32_t groups)
{
    const char *why = ebb_update_misfit(c, first, groups);
    const uint8_t dtype = c->in[first].type.dtype;
    return why != NULL || dtype == EBB_F32 || dtype == EBB_F64
               ? why
               : "computes in float32 and float64 only";
}

static const char *declines_sgd(const ebb_call *c)
{
    if (c->input_count != 3 || c->output_count != 1)
        return "wrong number of operands";
    return declines_state(c, 1, 1);
}

static const char *declines_momentum(const ebb_call *c)
{
    uint32_t groups = c->input_count < 5 ? 0 : (c->input_count - 2) / 3;
    if (groups == 0 || c->input_count != 2 + 3 * groups || c->output_count != 2 * groups)
        return "wrong number of operands";
    return declines_state(c, 2, groups);
}

static const char *declines_adam(const ebb_call *c)
{
    uint32_t groups = c->input_count < 6 ? 0 : (c->input_count - 2) / 4;
    if (groups == 0 || c->input_count != 2 + 4 * groups || c->output_count != 3 * groups)
        return "wrong number of operands";
    return declines_state(c, 2, groups);
}

static const char *declines_adamw(const ebb_call *c)
{
    if (c->input_count != 6 || c->output_count != 3)
        return "wrong number of operands";
    return declines_state(c, 2, 1);
}

// clang-format off
const ebb_kernel ebb_plain_optim[] = {
    {.name = "plain.sgd",      .op = EBB_OP_SGD,      .fits = declines_sgd, .run = run_sgd},
    {.name = "plain.momentum", .op = EBB_OP_MOMENTUM, .fits = declines_momentum, .run = run_momentum},
    {.name = "plain.adam",     .op = EBB_OP_ADAM,     .fits = declines_adam, .run = run_adam},
    {.name = "plain.adagrad",  .op = EBB_OP_ADAGRAD,  .fits = declines_momentum, .run = run_adagrad},
    {.name = "plain.adamw",    .op = EBB_OP_ADAMW,    .fits = declines_adamw, .run = run_adamw},
};
// clang-format on
EBB_PLAIN_COUNT(optim)
