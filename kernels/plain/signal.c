/* signal.c: DFT, STFT, windows, MelWeightMatrix. A transform is the sum that defines it, with a
 * table of the n roots of one: exact to rounding for every length, n^2 multiplications. */
#include "kernels/plain/number.h"

#include <math.h>

static const double tau = 6.283185307179586476925286766559;

static double number_of(const ebb_call *c, uint32_t i)
{
    return ebb_plain_real(&c->in[i], 0);
}

/* cos and sin of k/n of a turn. */
static void fill_roots(double *roots, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        roots[2 * k] = cos(tau * (double)k / (double)n);
        roots[2 * k + 1] = sin(tau * (double)k / (double)n);
    }
}

/* ---- one transform ---- */

typedef struct transform {
    const ebb_operand *x, *window;
    int64_t start, step, have; /* elements of x from one to the next, and how many there are */
    int parts;                 /* 1: real, 2: and imaginary */
    int64_t n;
    const double *roots;
    bool inverse,
        mirrored; /* mirrored: x is the first half of a spectrum whose rest is conjugate */
} transform;

/* Element j of the signal; zero beyond its end. */
static void element(const transform *t, int64_t j, double *real, double *imaginary)
{
    bool turned = t->mirrored && j > t->n / 2;
    int64_t from = turned ? t->n - j : j;
    *real = *imaginary = 0;
    if (from >= t->have)
        return;
    int64_t at = t->start + from * t->step;
    *real = ebb_plain_real(t->x, at);
    if (t->parts == 2)
        *imaginary = ebb_plain_real(t->x, at + 1) * (turned ? -1 : 1);
    if (t->mirrored && (from == 0 || 2 * from == t->n))
        *imaginary = 0;
    if (t->window != NULL) {
        double w = j < ebb_plain_elements(&t->window->type) ? ebb_plain_real(t->window, j) : 0;
        *real *= w;
        *imaginary *= w;
    }
}

static void coefficient(const transform *t, int64_t k, double out[2])
{
    double a, b;
    out[0] = out[1] = 0;
    for (int64_t j = 0; j < t->n; j++) {
        const double *root =
            t->roots +
            2 * (int64_t)((unsigned long long)j * (unsigned long long)k % (unsigned long long)t->n);
        double sine = t->inverse ? root[1] : -root[1];
        element(t, j, &a, &b);
        out[0] += a * root[0] - b * sine;
        out[1] += a * sine + b * root[0];
    }
    if (t->inverse) {
        out[0] /= (double)t->n;
        out[1] /= (double)t->n;
    }
}

/* ---- DFT(X, length?, axis?) ---- */

static ebb_status axis_of(const ebb_call *c, int *axis)
{
    int64_t given = c->version < 20 ? ebb_attr_int(&c->attrs, "axis", 1) : -2;
    if (c->version >= 20 && ebb_plain_has(c, 2))
        given = ebb_plain_whole(&c->in[2], 0);
    return ebb_plain_axis(c, given, c->in[0].type.rank, axis);
}

static int64_t length_of(const ebb_call *c, int axis)
{
    bool half = ebb_attr_int(&c->attrs, "onesided", 0) != 0;
    bool inverse = ebb_attr_int(&c->attrs, "inverse", 0) != 0;
    if (ebb_plain_has(c, 1))
        return ebb_plain_whole(&c->in[1], 0);
    int64_t n = c->in[0].type.dims[axis];
    return half && inverse ? 2 * (n - 1) : n;
}

static ebb_status run_dft(const ebb_call *c)
{
    int axis = 0;
    EBB_TRY(axis_of(c, &axis));
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    ebb_span in = ebb_plain_span(x, axis), out = ebb_plain_span(y, axis);
    int64_t n = length_of(c, axis), parts = x->dims[x->rank - 1], made = y->dims[y->rank - 1];
    bool inverse = ebb_attr_int(&c->attrs, "inverse", 0) != 0;
    bool half = ebb_attr_int(&c->attrs, "onesided", 0) != 0;
    if (out.n != (half && !inverse ? n / 2 + 1 : n) || n < 1)
        return ebb_call_error(c, "a length of %lld does not give the planned %lld", (long long)n,
                              (long long)out.n);
    double *roots = c->workspace;
    fill_roots(roots, n);
    int64_t lines = in.outer * (in.inner / parts);
    EBB_PARALLEL_FOR(lines * n * n)
    for (int64_t i = 0; i < lines * out.n; i++) {
        int64_t line = i / out.n, k = i % out.n, each = in.inner / parts;
        double value[2];
        transform t = {.x = &c->in[0], .step = in.inner, .have = in.n, .parts = (int)parts};
        t.n = n;
        t.roots = roots;
        t.inverse = inverse;
        t.mirrored = inverse && half;
        t.start = line / each * in.n * in.inner + line % each * parts;
        coefficient(&t, k, value);
        int64_t to = (line / each * out.n + k) * out.inner + line % each * made;
        for (int64_t p = 0; p < made; p++)
            ebb_plain_put(&c->out[0], to + p, value[p]);
    }
    return NULL;
}

/* The length is at most twice the output's longest axis. */
static ebb_status dft_workspace(const ebb_call *c, size_t *bytes)
{
    int64_t most = 1;
    for (int d = 0; d < c->out[0].type.rank; d++)
        most = c->out[0].type.dims[d] > most ? c->out[0].type.dims[d] : most;
    return ebb_size_mul(bytes, (size_t)most, 4 * sizeof(double))
               ? NULL
               : ebb_call_error(c, "its table passes what memory can be");
}

static const char *declines_dft(const ebb_call *c)
{
    const char *why = ebb_plain_floats(c);
    if (why != NULL)
        return why;
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    if (x->rank < 2 || x->dims[x->rank - 1] < 1 || x->dims[x->rank - 1] > 2 || y->rank != x->rank ||
        y->dims[y->rank - 1] < 1 || y->dims[y->rank - 1] > 2)
        return "the last axis does not hold real and imaginary parts";
    return NULL;
}

/* ---- STFT(signal, step, window?, frame length?) ---- */

static ebb_status run_stft(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t step = ebb_plain_whole(&c->in[1], 0), n = x->dims[1], parts = x->dims[2];
    bool half = ebb_attr_int(&c->attrs, "onesided", 1) != 0;
    if (ebb_plain_has(c, 3))
        n = ebb_plain_whole(&c->in[3], 0);
    else if (ebb_plain_has(c, 2))
        n = ebb_plain_elements(&c->in[2].type);
    int64_t frames = y->dims[1], bins = y->dims[2];
    if (n < 1 || step < 1 || n > x->dims[1] || frames != 1 + (x->dims[1] - n) / step ||
        bins != (half ? n / 2 + 1 : n))
        return ebb_call_error(c, "frames of %lld by steps of %lld are not the planned ones",
                              (long long)n, (long long)step);
    fill_roots(c->workspace, n);
    int64_t count = y->dims[0] * frames * bins;
    EBB_PARALLEL_FOR(count * n)
    for (int64_t i = 0; i < count; i++) {
        double value[2];
        transform t = {.x = &c->in[0], .step = parts, .have = n, .parts = (int)parts, .n = n};
        t.window = ebb_plain_has(c, 2) ? &c->in[2] : NULL;
        t.roots = c->workspace;
        t.start = (i / bins / frames * x->dims[1] + i / bins % frames * step) * parts;
        coefficient(&t, i % bins, value);
        ebb_plain_put(&c->out[0], 2 * i, value[0]);
        ebb_plain_put(&c->out[0], 2 * i + 1, value[1]);
    }
    return NULL;
}

static const char *declines_stft(const ebb_call *c)
{
    const char *why = ebb_plain_floats(c);
    if (why != NULL)
        return why;
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    bool fits = x->rank == 3 && x->dims[2] >= 1 && x->dims[2] <= 2 && y->rank == 4 &&
                y->dims[0] == x->dims[0] && y->dims[3] == 2;
    return fits ? NULL : "the signal is not [batch, length, 1 or 2]";
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

static const char *declines_window(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    if (why == NULL && (c->out[0].type.rank != 1 || ebb_plain_elements(&c->in[0].type) != 1))
        return "the size is not one number";
    return why;
}

/* ---- MelWeightMatrix(bins, DFT length, rate, lowest, highest): triangles over frequencies ---- */

static double mel_of(double hertz)
{
    return 2595 * log10(1 + hertz / 700);
}

/* The DFT's bin at which edge `i` of the triangles lies. */
static int64_t edge(const ebb_call *c, int64_t i)
{
    double low = mel_of(number_of(c, 3)), high = mel_of(number_of(c, 4));
    double step = (high - low) / (number_of(c, 0) + 2);
    double hertz = 700 * (pow(10, ((double)i * step + low) / 2595) - 1);
    return (int64_t)floor((number_of(c, 1) + 1) * hertz / number_of(c, 2));
}

static ebb_status run_mel(const ebb_call *c)
{
    int64_t rows = c->out[0].type.dims[0], bins = c->out[0].type.dims[1];
    if (ebb_plain_whole(&c->in[0], 0) != bins || ebb_plain_whole(&c->in[1], 0) / 2 + 1 != rows)
        return ebb_call_error(c, "its sizes are not the planned ones");
    if (!(number_of(c, 2) > 0) || !(number_of(c, 3) >= 0) || !(number_of(c, 4) < 1e12))
        return ebb_call_error(c, "rate or edges are out of range");
    for (int64_t i = 0; i < bins; i++) {
        int64_t left = edge(c, i), middle = edge(c, i + 1), right = edge(c, i + 2);
        for (int64_t j = 0; j < rows; j++) {
            double w = 0;
            if (left == middle && j == middle)
                w = 1;
            else if (j >= left && j <= middle && middle > left)
                w = (double)(j - left) / (double)(middle - left);
            if (right > middle && j >= middle && j < right)
                w = (double)(right - j) / (double)(right - middle);
            ebb_plain_put(&c->out[0], j * bins + i, w);
        }
    }
    return NULL;
}

static const char *declines_mel(const ebb_call *c)
{
    const char *why = ebb_plain_any(c);
    for (int i = 0; why == NULL && i < 5; i++)
        if (ebb_plain_elements(&c->in[i].type) != 1)
            why = "an input is not one number";
    return why != NULL ? why : c->out[0].type.rank != 2 ? "the output is no matrix" : NULL;
}

// clang-format off
const ebb_kernel ebb_plain_signal[] = {
    {.name = "plain.dft",             .op = EBB_OP_DFT,               .declines = declines_dft,    .workspace = dft_workspace, .run = run_dft},
    {.name = "plain.stft",            .op = EBB_OP_STFT,              .declines = declines_stft,   .workspace = dft_workspace, .run = run_stft},
    {.name = "plain.hann_window",     .op = EBB_OP_HANN_WINDOW,       .declines = declines_window, .run = run_window},
    {.name = "plain.hamming_window",  .op = EBB_OP_HAMMING_WINDOW,    .declines = declines_window, .run = run_window},
    {.name = "plain.blackman_window", .op = EBB_OP_BLACKMAN_WINDOW,   .declines = declines_window, .run = run_window},
    {.name = "plain.mel_weights",     .op = EBB_OP_MEL_WEIGHT_MATRIX, .declines = declines_mel,    .run = run_mel},
};
// clang-format on
EBB_PLAIN_COUNT(signal)
