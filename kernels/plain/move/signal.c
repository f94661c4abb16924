/* signal.c: DFT, STFT, windows, MelWeightMatrix. What a transform is, is in kernels/math/signal.inc.
 */
#include "kernels/plain/number.h"
#include "kernels/call/signal.h"

#include <math.h>

static const double tau = 6.283185307179586476925286766559;

static double number_of(const ebb_call *c, uint32_t i)
{
    return ebb_plain_real(&c->in[i], 0);
}

#define OPERAND const ebb_operand *
#define NUMBER(x, i) ebb_plain_real(x, i)
#define SUM double
#define NAMED(x) x
#define FORMULA static
#include "kernels/math/signal.inc"

static ebb_status transform(const ebb_call *c, const ebb_transforms *t, const ebb_operand *window)
{
    double *roots = c->workspace;
    for (int64_t k = 0; k < t->n; k++)
        put_root(roots, k, t->n);
    EBB_PARALLEL_FOR(t->lines * t->bins * t->n)
    for (int64_t i = 0; i < t->lines * t->bins; i++) {
        double value[2];
        coefficient(t, &c->in[0], window, roots, i / t->bins, i % t->bins, value);
        for (int32_t p = 0; p < t->made; p++)
            ebb_plain_put(&c->out[0], coefficient_at(t, i / t->bins, i % t->bins) + p, value[p]);
    }
    return NULL;
}

static ebb_status run_dft(const ebb_call *c)
{
    ebb_transforms t;
    EBB_TRY(ebb_dft_read(&t, c, ebb_plain_whole));
    return transform(c, &t, NULL);
}

static ebb_status run_stft(const ebb_call *c)
{
    ebb_transforms t;
    EBB_TRY(ebb_stft_read(&t, c, ebb_plain_whole));
    return transform(c, &t, ebb_call_has(c, 2) ? &c->in[2] : NULL);
}

static ebb_status dft_workspace(const ebb_call *c, size_t *bytes)
{
    EBB_TRY(ebb_signal_roots(c, bytes));
    return ebb_size_mul(bytes, *bytes, sizeof(double))
               ? NULL
               : ebb_call_error(c, "its table passes what memory can be");
}

/* ---- windows ---- */

static ebb_status run_window(const ebb_call *c)
{
    int64_t n = c->out[0].type.dims[0], given = ebb_plain_whole(&c->in[0], 0);
    bool periodic = ebb_attr_int(&c->attrs, "periodic", 1) != 0;
    if (given != n)
        return ebb_call_error(c, "a size of %lld is asked for, the shape was planned for %lld",
                              (long long)given, (long long)n);
    double turns = (double)(periodic ? n : n - 1);
    for (int64_t i = 0; i < n; i++) {
        double angle = turns > 0 ? tau * (double)i / turns : 0, w = 0.5 - 0.5 * cos(angle);
        if (c->op == EBB_OP_HAMMING_WINDOW)
            w = 25.0 / 46.0 - 21.0 / 46.0 * cos(angle);
        else if (c->op == EBB_OP_BLACKMAN_WINDOW)
            w = 0.42 - 0.5 * cos(angle) + 0.08 * cos(2 * angle);
        ebb_plain_put(&c->out[0], i, w);
    }
    return NULL;
}

static const char *misfit_window(const ebb_call *c)
{
    return c->out[0].type.rank != 1 || ebb_elements(&c->in[0].type) != 1
               ? "the size is not one number"
               : NULL;
}

/* ---- MelWeightMatrix(bins, DFT length, rate, lowest, highest): triangles over frequencies ---- */

static ebb_status run_mel(const ebb_call *c)
{
    int64_t rows = c->out[0].type.dims[0], bins = c->out[0].type.dims[1];
    const ebb_mel m = {number_of(c, 0), number_of(c, 1), number_of(c, 2), number_of(c, 3),
                       number_of(c, 4)};
    if (!ebb_mel_in_range(&m))
        return ebb_call_error(c, "rate or edges are out of range: %g samples a second, %g to %g Hz",
                              m.rate, m.lowest, m.highest);
    if (ebb_plain_whole(&c->in[0], 0) != bins || ebb_plain_whole(&c->in[1], 0) / 2 + 1 != rows)
        return ebb_call_error(c, "its sizes are not the planned ones");
    for (int64_t i = 0; i < bins; i++) {
        int64_t left = ebb_mel_edge(&m, i), middle = ebb_mel_edge(&m, i + 1);
        int64_t right = ebb_mel_edge(&m, i + 2);
        for (int64_t j = 0; j < rows; j++) {
            const double w = ebb_mel_weight(j, left, middle, right);
            ebb_plain_put(&c->out[0], j * bins + i, w);
        }
    }
    return NULL;
}

static const char *misfit_mel(const ebb_call *c)
{
    for (int i = 0; i < 5; i++)
        if (ebb_elements(&c->in[i].type) != 1)
            return "an input is not one number";
    return c->out[0].type.rank != 2 ? "the output is no matrix" : NULL;
}

// clang-format off
const ebb_kernel ebb_plain_signal[] = {
    {.name = "plain.dft",             .op = EBB_OP_DFT,               .dtypes = ebb_plain_floats, .fits = ebb_dft_misfit, .workspace = dft_workspace, .run = run_dft},
    {.name = "plain.stft",            .op = EBB_OP_STFT,              .dtypes = ebb_plain_floats, .fits = ebb_stft_misfit, .workspace = dft_workspace, .run = run_stft},
    {.name = "plain.hann_window",     .op = EBB_OP_HANN_WINDOW,       .dtypes = ebb_call_any, .fits = misfit_window, .run = run_window},
    {.name = "plain.hamming_window",  .op = EBB_OP_HAMMING_WINDOW,    .dtypes = ebb_call_any, .fits = misfit_window, .run = run_window},
    {.name = "plain.blackman_window", .op = EBB_OP_BLACKMAN_WINDOW,   .dtypes = ebb_call_any, .fits = misfit_window, .run = run_window},
    {.name = "plain.mel_weights",     .op = EBB_OP_MEL_WEIGHT_MATRIX, .dtypes = ebb_call_any, .fits = misfit_mel, .run = run_mel},
};
// clang-format on
EBB_PLAIN_COUNT(signal)
