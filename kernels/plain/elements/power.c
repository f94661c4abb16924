/* power.c: p-norms of windows and of lines; LRN, MeanVarianceNormalization, Hardmax. */
#include "kernels/call/geometry.h"
#include "kernels/call/misfit.h"
#include "kernels/math/power.h"
#include "kernels/plain/number.h"

#include <math.h>

static int64_t order_of(const ebb_call *c)
{
    return ebb_attr_int(&c->attrs, "p", 2);
}

static const char *misfit(const ebb_call *c)
{
    return order_of(c) < 1 ? "p is less than 1" : NULL;
}

/* ---- LpPool, GlobalLpPool ---- */

static double window_norm(const ebb_call *c, const ebb_geometry *w, int64_t plane, int64_t o,
                          int64_t p)
{
    double sum = 0;
    int64_t at[EBB_AXES];
    ebb_window_start(at, w, o);
    for (int64_t k = 0, taps = ebb_geometry_volume(w->kernel); k < taps; k++) {
        int64_t place = ebb_place_of_tap(w, at, k);
        if (place >= 0)
            sum += ebb_power(ebb_plain_real(&c->in[0], plane + place), p);
    }
    return ebb_root(sum, p);
}

static const char *window_of(ebb_geometry *w, const ebb_call *c)
{
    return ebb_geometry_read(w, &c->attrs, &c->in[0].type, &c->out[0].type, NULL, false);
}

static ebb_status run_pool(const ebb_call *c)
{
    ebb_geometry w;
    EBB_MUST_FIT(c, window_of(&w, c));
    int64_t n = ebb_elements(&c->out[0].type), p = order_of(c);
    int64_t volume = ebb_geometry_volume(w.narrow), wide = ebb_geometry_volume(w.wide);
    EBB_PARALLEL_FOR(n * ebb_geometry_volume(w.kernel))
    for (int64_t i = 0; i < n; i++)
        ebb_plain_put(&c->out[0], i, window_norm(c, &w, i / volume * wide, i % volume, p));
    return NULL;
}

static const char *misfit_pool(const ebb_call *c)
{
    ebb_geometry w;
    EBB_ASK(misfit(c));
    return window_of(&w, c);
}

static ebb_status run_global(const ebb_call *c)
{
    int64_t planes = c->in[0].type.dims[0] * c->in[0].type.dims[1], p = order_of(c);
    int64_t n = planes > 0 ? ebb_elements(&c->in[0].type) / planes : 0;
    EBB_PARALLEL_FOR(planes * n)
    for (int64_t i = 0; i < planes; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += ebb_power(ebb_plain_real(&c->in[0], i * n + k), p);
        ebb_plain_put(&c->out[0], i, ebb_root(sum, p));
    }
    return NULL;
}

static const char *misfit_global(const ebb_call *c)
{
    EBB_ASK(misfit(c));
    return c->in[0].type.rank < 3 ? "the input has no axis of space" : NULL;
}

/* ---- along an axis: LpNormalization, Hardmax ---- */

static ebb_status run_lines(const ebb_call *c)
{
    int axis = 0;
    EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", -1), c->in[0].type.rank, &axis));
    ebb_span s = ebb_span_of(&c->in[0].type, axis);
    int64_t p = order_of(c);
    bool hard = c->op == EBB_OP_HARDMAX;
    EBB_PARALLEL_FOR(s.outer * s.n * s.inner)
    for (int64_t line = 0; line < s.outer * s.inner; line++) {
        int64_t start = line / s.inner * s.n * s.inner + line % s.inner, best = 0;
        double sum = 0;
        for (int64_t k = 0; k < s.n; k++) {
            double x = ebb_plain_real(&c->in[0], start + k * s.inner);
            best = x > ebb_plain_real(&c->in[0], start + best * s.inner) ? k : best;
            sum += ebb_power(x, p);
        }
        double norm = ebb_root(sum, p);
        for (int64_t k = 0; k < s.n; k++) {
            double x = ebb_plain_real(&c->in[0], start + k * s.inner);
            double y = norm > 0 ? x / norm : x != x ? x : 0;
            ebb_plain_put(&c->out[0], start + k * s.inner, hard ? (k == best ? 1 : 0) : y);
        }
    }
    return NULL;
}

/* ---- LRN: over channels that are neighbours ---- */

static ebb_status run_lrn(const ebb_call *c)
{
    ebb_span s = ebb_span_of(&c->in[0].type, 1);
    int64_t size = ebb_attr_int(&c->attrs, "size", 1), n = s.outer * s.n * s.inner;
    double alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.0001f) / (double)size;
    double beta = ebb_attr_float(&c->attrs, "beta", 0.75);
    double bias = ebb_attr_float(&c->attrs, "bias", 1.0);
    EBB_PARALLEL_FOR(n)
    for (int64_t i = 0; i < n; i++) {
        int64_t channel = i / s.inner % s.n, first = channel - (size - 1) / 2;
        int64_t last = channel + size / 2;
        double sum = 0;
        for (int64_t k = first < 0 ? 0 : first; k <= last && k < s.n; k++)
            sum += ebb_power(ebb_plain_real(&c->in[0], i + (k - channel) * s.inner), 2);
        ebb_plain_put(&c->out[0], i, ebb_plain_real(&c->in[0], i) / pow(bias + alpha * sum, beta));
    }
    return NULL;
}

/* ---- MeanVarianceNormalization(X) {axes = 0, 2, 3} ---- */

/* The axes as a set, and the places of one mean: its number counts the dims that are left. */
static ebb_status read_axes(const ebb_call *c, bool along[EBB_MAX_RANK])
{
    static const int64_t otherwise[3] = {0, 2, 3};
    uint32_t count;
    const int64_t *axes = ebb_attr_ints(&c->attrs, "axes", &count);
    memset(along, 0, EBB_MAX_RANK * sizeof *along);
    for (uint32_t i = 0; i < (axes != NULL ? count : 3); i++) {
        int axis = 0;
        EBB_TRY(ebb_call_axis(c, axes != NULL ? axes[i] : otherwise[i], c->in[0].type.rank, &axis));
        along[axis] = true;
    }
    return NULL;
}

static int64_t offset(const ebb_type *t, const bool along[EBB_MAX_RANK], bool which, int64_t index)
{
    int64_t at = 0, strides[EBB_MAX_RANK];
    ebb_strides(strides, t->rank, t->dims);
    for (int d = t->rank - 1; d >= 0; d--)
        if (along[d] == which) {
            at += index % t->dims[d] * strides[d];
            index /= t->dims[d];
        }
    return at;
}

static ebb_status run_mean_variance(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    bool along[EBB_MAX_RANK];
    int64_t kept = 1, n = 1;
    EBB_TRY(read_axes(c, along));
    for (int d = 0; d < x->rank; d++)
        *(along[d] ? &n : &kept) *= x->dims[d];
    EBB_PARALLEL_FOR(kept * n)
    for (int64_t i = 0; i < kept; i++) {
        int64_t start = offset(x, along, false, i);
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < n; k++)
            sum += ebb_plain_real(&c->in[0], start + offset(x, along, true, k));
        double mean = sum / (double)n;
        for (int64_t k = 0; k < n; k++)
            squares +=
                ebb_power(ebb_plain_real(&c->in[0], start + offset(x, along, true, k)) - mean, 2);
        double deviation = sqrt(squares / (double)n) + 1e-9;
        for (int64_t k = 0; k < n; k++) {
            int64_t at = start + offset(x, along, true, k);
            ebb_plain_put(&c->out[0], at, (ebb_plain_real(&c->in[0], at) - mean) / deviation);
        }
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_plain_power[] = {
    {.name = "plain.lp_pool",          .op = EBB_OP_LP_POOL,                     .dtypes = ebb_plain_floats, .fits = misfit_pool, .run = run_pool},
    {.name = "plain.global_lp_pool",   .op = EBB_OP_GLOBAL_LP_POOL,              .dtypes = ebb_plain_floats, .fits = misfit_global, .run = run_global},
    {.name = "plain.lp_normalization", .op = EBB_OP_LP_NORMALIZATION,            .dtypes = ebb_plain_floats, .fits = misfit, .run = run_lines},
    {.name = "plain.hardmax",          .op = EBB_OP_HARDMAX,                     .dtypes = ebb_plain_floats, .run = run_lines},
    {.name = "plain.lrn",              .op = EBB_OP_LRN,                         .dtypes = ebb_plain_floats, .fits = ebb_lrn_misfit, .run = run_lrn},
    {.name = "plain.mean_variance",    .op = EBB_OP_MEAN_VARIANCE_NORMALIZATION, .dtypes = ebb_plain_floats, .run = run_mean_variance},
};
// clang-format on
EBB_PLAIN_COUNT(power)
