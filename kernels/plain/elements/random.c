/* random.c: dropout and the operators that draw, from Philox words (kernels/math/philox.h).
 *
 * What is drawn for element i depends on seed, step, stream and i alone: the same mask comes back
 * in recompute, and however elements are dealt out to threads.
 */
#include "kernels/draws.h"
#include "kernels/call/misfit.h"
#include "kernels/plain/halves.h"
#include "kernels/math/philox.h"
#include "kernels/plain/plain.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1024 }; /* elements a job; a multiple of 4 */

/* ---- dropout ---- */

/* n flags of 0 or 1 as bits, the lowest first. */
static void pack(uint8_t *bits, const uint32_t *words, uint32_t threshold, int64_t n)
{
    for (int64_t first = 0; first < n; first += 8) {
        uint32_t byte = 0;
        for (int64_t i = first; i < n && i < first + 8; i++)
            byte |= (uint32_t)(words[i] >= threshold) << (i - first);
        bits[first / 8] = (uint8_t)byte;
    }
}

typedef struct dropping {
    const ebb_operand *x, *y; /* which may be the same memory */
    uint8_t *mask, *bits;     /* a byte or a bit an element, or NULL */
    uint32_t threshold;
    float scale;
} dropping;

#define DEFINE_DROPOUT(T, suffix)                                                             \
    static void dropout_##suffix(const dropping *d, const ebb_draws *s)                       \
    {                                                                                         \
        const ebb_dtype from = (ebb_dtype)d->x->type.dtype, to = (ebb_dtype)d->y->type.dtype; \
        const int64_t n = ebb_elements(&d->x->type);                                          \
        const uint32_t threshold = d->threshold;                                              \
        const T scale = (T)d->scale;                                                          \
        EBB_PARALLEL_FOR(n)                                                                   \
        for (int64_t first = 0; first < n; first += PIECE) {                                  \
            uint32_t words[PIECE];                                                            \
            T buffer[PIECE];                                                                  \
            int64_t count = ebb_least(n - first, PIECE);                                      \
            const T *x = ebb_look_##suffix(d->x->data, from, first, count, buffer);           \
            T *y = ebb_place_##suffix(d->y->data, to, first, buffer);                         \
            ebb_draw(words, s, first, count);                                                 \
            EBB_SIMD                                                                          \
            for (int64_t i = 0; i < count; i++)                                               \
                y[i] = words[i] >= threshold ? x[i] * scale : 0;                              \
            ebb_put_##suffix(d->y->data, to, first, count, y);                                \
            if (d->bits != NULL)                                                              \
                pack(d->bits + first / 8, words, threshold, count);                           \
            if (d->mask == NULL)                                                              \
                continue;                                                                     \
            uint8_t *mask = d->mask + first;                                                  \
            EBB_SIMD                                                                          \
            for (int64_t i = 0; i < count; i++)                                               \
                mask[i] = words[i] >= threshold;                                              \
        }                                                                                     \
    }                                                                                         \
                                                                                              \
    static void dropout_grad_##suffix(const ebb_operand *dx, const ebb_operand *dy,           \
                                      const uint8_t *mask, T scale)                           \
    {                                                                                         \
        const ebb_dtype from = (ebb_dtype)dy->type.dtype, to = (ebb_dtype)dx->type.dtype;     \
        const int64_t n = ebb_elements(&dy->type);                                            \
        EBB_PARALLEL_FOR(n)                                                                   \
        for (int64_t first = 0; first < n; first += PIECE) {                                  \
            T buffer[PIECE];                                                                  \
            const int64_t count = ebb_least(n - first, PIECE);                                \
            const T *g = ebb_look_##suffix(dy->data, from, first, count, buffer);             \
            T *out = ebb_place_##suffix(dx->data, to, first, buffer);                         \
            EBB_SIMD                                                                          \
            for (int64_t i = 0; i < count; i++)                                               \
                out[i] = mask[first + i] != 0 ? g[i] * scale : 0;                             \
            ebb_put_##suffix(dx->data, to, first, count, out);                                \
        }                                                                                     \
    }

DEFINE_DROPOUT(float, f32)
DEFINE_DROPOUT(double, f64)

static ebb_status drop(const ebb_call *c, const ebb_draws *s, double ratio, bool wants_mask)
{
    const bool packed = c->op == EBB_OP_EBB_DROPOUT_PACKED;
    const dropping d = {.x = &c->in[0],
                        .y = &c->out[0],
                        .mask = wants_mask && !packed ? c->out[1].data : NULL,
                        .bits = wants_mask && packed ? c->out[1].data : NULL,
                        .threshold = ebb_dropout_threshold(ratio),
                        .scale = (float)(1.0 / (1.0 - ratio))};
    EBB_BY_FLOAT(*d.x, dropout, &d, s);
    return NULL;
}

/* The call's own source: a seed attribute, where there is one, takes the seed's place. */
static ebb_draws source_of(const ebb_call *c)
{
    ebb_draws s = {
        .seed = c->seed, .step = c->step, .stream = (uint32_t)(c->stream ^ (c->stream >> 32))};
    const ebb_attr *seed = ebb_attr_find(&c->attrs, "seed");
    if (seed != NULL && seed->type == EBB_ATTR_INT)
        s.seed = (uint64_t)seed->i;
    else if (seed != NULL && seed->type == EBB_ATTR_FLOAT)
        memcpy(&s.seed, &seed->f, sizeof s.seed);
    return s;
}

/* (X, ratio?, training_mode?) {seed?} -> Y, mask?. Y may be X. */
static ebb_status run_dropout(const ebb_call *c)
{
    double ratio = ebb_call_has(c, 1) ? ebb_plain_scalar(&c->in[1]) : 0.5;
    bool training = ebb_call_has(c, 2) && ebb_plain_scalar(&c->in[2]) != 0.0;
    bool mask = ebb_call_wants(c, 1);
    if (!training || ratio == 0.0) {
        ebb_plain_memcpy(c->out[0].data, c->in[0].data, c->in[0].bytes);
        if (mask)
            ebb_plain_fill(c->out[1].data, &(uint8_t){1}, ebb_elements(&c->in[0].type), 1);
        return NULL;
    }
    if (ratio == 1.0) { /* allowed by PyTorch: nothing is kept */
        ebb_plain_fill(c->out[0].data, &(uint8_t){0}, (int64_t)c->out[0].bytes, 1);
        if (mask)
            ebb_plain_fill(c->out[1].data, &(uint8_t){0}, ebb_elements(&c->in[0].type), 1);
        return NULL;
    }
    EBB_TRY(ebb_dropout_check(c, ratio));
    const ebb_draws s = source_of(c);
    return drop(c, &s, ratio, mask);
}

/* (dY, mask, ratio?, training_mode?) -> dX. dX may be dY. */
static ebb_status run_dropout_grad(const ebb_call *c)
{
    const ebb_operand *dy = &c->in[0];
    double ratio = ebb_call_has(c, 2) ? ebb_plain_scalar(&c->in[2]) : 0.5;
    if (ebb_call_has(c, 3) && ebb_plain_scalar(&c->in[3]) == 0.0) {
        ebb_plain_memcpy(c->out[0].data, dy->data, dy->bytes);
        return NULL;
    }
    if (ratio != 1.0)
        EBB_TRY(ebb_dropout_check(c, ratio));
    float scale = ratio == 1.0 ? 0.0f : (float)(1.0 / (1.0 - ratio));
    EBB_BY_FLOAT(*dy, dropout_grad, &c->out[0], dy, c->in[1].data, scale);
    return NULL;
}

/* (X, key) {ratio, stream} -> Y, mask?; and (dY, key) {ratio, stream} -> dX, the same draw. */
static ebb_status run_keyed(const ebb_call *c)
{
    double ratio = ebb_attr_float(&c->attrs, "ratio", 0.0);
    EBB_TRY(ebb_dropout_check(c, ratio));
    const ebb_draws s = ebb_draws_of(c, &c->in[1], ebb_elements(&c->in[0].type));
    return drop(c, &s, ratio, c->op != EBB_OP_EBB_DROPOUT_SEED_GRAD && ebb_call_wants(c, 1));
}

static const char *misfit_dropout(const ebb_call *c)
{
    if (!ebb_dtype_is_float((ebb_dtype)c->in[0].type.dtype))
        return "computes in floats only";
    return ebb_dropout_misfit(c);
}

/* ---- normal and uniform ---- */

/* Two words make a pair of normals (Box and Muller); element i takes number i % 4 of its block. */
static void normals(double z[PIECE], const uint32_t words[PIECE], int64_t count)
{
    const double unit = 1.0 / 4294967296.0, turn = 6.283185307179586476925287;
    for (int64_t i = 0; i < count; i += 2) {
        double r = sqrt(-2.0 * log(((double)words[i] + 1.0) * unit));
        double t = turn * ((double)words[i + 1] * unit);
        z[i] = r * cos(t);
        z[i + 1] = r * sin(t);
    }
}

/* Through float32, as numbers of 16 bits are made everywhere. */
static void put(const ebb_operand *y, int64_t first, const double *z, int64_t count)
{
    float *y32 = y->data;
    uint16_t *y16 = y->data;
    if (y->type.dtype == EBB_F64)
        memcpy((double *)y->data + first, z, (size_t)count * sizeof *z);
    else if (y->type.dtype == EBB_F32)
        for (int64_t i = 0; i < count; i++)
            y32[first + i] = (float)z[i];
    else if (y->type.dtype == EBB_F16)
        for (int64_t i = 0; i < count; i++)
            y16[first + i] = ebb_float_to_half((float)z[i]);
    else
        for (int64_t i = 0; i < count; i++)
            y16[first + i] = ebb_float_to_bf16((float)z[i]);
}

/* {mean, scale} or {low, high} -> Y. */
static ebb_status run_random(const ebb_call *c)
{
    const ebb_drawing d = ebb_drawing_read(c);
    const ebb_draws s = source_of(c);
    int64_t n = ebb_elements(&c->out[0].type);
    EBB_PARALLEL_FOR(n)
    for (int64_t first = 0; first < n; first += PIECE) {
        uint32_t words[PIECE];
        double z[PIECE];
        int64_t count = ebb_least(n - first, PIECE);
        ebb_draw(words, &s, first, (count + 3) / 4 * 4); // normals come in pairs
        if (d.is_normal)
            normals(z, words, count);
        else
            for (int64_t i = 0; i < count; i++)
                z[i] = (double)ebb_philox_uniform(words[i]);
        for (int64_t i = 0; i < count; i++) {
            z[i] = d.base + d.width * z[i];
            z[i] = z[i] > d.most ? d.most : z[i];
        }
        put(&c->out[0], first, z, count);
    }
    return NULL;
}

static const char *misfit_random(const ebb_call *c)
{
    return ebb_dtype_is_float((ebb_dtype)c->out[0].type.dtype) ? NULL : "draws floats only";
}

// clang-format off
const ebb_kernel ebb_plain_random[] = {
    {.name = "plain.dropout",             .op = EBB_OP_DROPOUT,               .dtypes = ebb_call_any, .fits = misfit_dropout, .run = run_dropout},
    {.name = "plain.dropout_grad",        .op = EBB_OP_DROPOUT_GRAD,          .dtypes = ebb_call_any, .fits = misfit_dropout, .run = run_dropout_grad},
    {.name = "plain.keyed_dropout",       .op = EBB_OP_EBB_DROPOUT,           .dtypes = ebb_call_any, .fits = misfit_dropout, .run = run_keyed},
    {.name = "plain.dropout_packed",      .op = EBB_OP_EBB_DROPOUT_PACKED,    .dtypes = ebb_call_any, .fits = misfit_dropout, .run = run_keyed},
    {.name = "plain.dropout_seed_grad",   .op = EBB_OP_EBB_DROPOUT_SEED_GRAD, .dtypes = ebb_call_any, .fits = misfit_dropout, .run = run_keyed},
    {.name = "plain.random_normal",       .op = EBB_OP_RANDOM_NORMAL,         .dtypes = ebb_call_any, .fits = misfit_random,  .run = run_random},
    {.name = "plain.random_uniform",      .op = EBB_OP_RANDOM_UNIFORM,        .dtypes = ebb_call_any, .fits = misfit_random,  .run = run_random},
    {.name = "plain.random_normal_like",  .op = EBB_OP_RANDOM_NORMAL_LIKE,    .dtypes = ebb_call_any, .fits = misfit_random,  .run = run_random},
    {.name = "plain.random_uniform_like", .op = EBB_OP_RANDOM_UNIFORM_LIKE,   .dtypes = ebb_call_any, .fits = misfit_random,  .run = run_random},
};
// clang-format on
EBB_PLAIN_COUNT(random)
