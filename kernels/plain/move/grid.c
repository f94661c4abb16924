/* grid.c: images sampled at places that are numbers: GridSample, AffineGrid, DeformConv; what they
 * mean is in kernels/math/sampling.inc.
 */
#include "kernels/plain/number.h"
#include "kernels/call/move/sampling.h"

#include <math.h>

#define OPERAND const ebb_operand *
#define NUMBER(x, i) ebb_plain_real(x, i)
#define SUM double
#define NAMED(x) x
#define FORMULA static
#include "kernels/math/sampling.inc"

static ebb_status run_grid_sample(const ebb_call *c)
{
    ebb_sampling s;
    ebb_sampling_read(&s, c);
    EBB_PARALLEL_FOR(s.batch * s.area * s.channels)
    for (int64_t i = 0; i < s.batch * s.area; i++) {
        ebb_sampling_taps t;
        bool there = sampling_taps(&t, &s, &c->in[1], i);
        for (int64_t k = 0; k < s.channels; k++) {
            int64_t plane = i / s.area * s.channels + k;
            ebb_plain_put(&c->out[0], plane * s.area + i % s.area,
                          there ? sampled(&t, &s, &c->in[0], plane * s.image) : 0);
        }
    }
    return NULL;
}

static ebb_status run_affine_grid(const ebb_call *c)
{
    ebb_affine a;
    ebb_affine_read(&a, c);
    for (int64_t i = 0; i < a.batch * a.area; i++)
        for (int r = 0; r < a.rank; r++)
            ebb_plain_put(&c->out[0], i * a.rank + r, affine(&a, &c->in[0], i, r));
    return NULL;
}

static double deform_sum(const ebb_call *c, const ebb_deform *f, int64_t n, int64_t m, int64_t o)
{
    const ebb_geometry *w = &f->w;
    int64_t channels = w->wide_channels / w->groups, each = w->narrow_channels / w->groups;
    const ebb_operand *mask = ebb_call_has(c, 4) ? &c->in[4] : NULL;
    double sum = ebb_call_has(c, 3) ? ebb_plain_real(&c->in[3], m) : 0;
    for (int64_t j = 0; j < channels; j++)
        for (int64_t k = 0; k < f->taps; k++)
            sum += deformed(f, &c->in[0], &c->in[2], mask, n, m / each * channels + j, k, o) *
                   ebb_plain_real(&c->in[1], (m * channels + j) * f->taps + k);
    return sum;
}

static ebb_status run_deform_conv(const ebb_call *c)
{
    ebb_deform f;
    EBB_MUST_FIT(c, ebb_deform_read(&f, c));
    int64_t channels = f.w.narrow_channels, n = f.w.batch * channels * f.volume;
    EBB_PARALLEL_FOR(n * f.taps)
    for (int64_t i = 0; i < n; i++)
        ebb_plain_put(
            &c->out[0], i,
            deform_sum(c, &f, i / f.volume / channels, i / f.volume % channels, i % f.volume));
    return NULL;
}

static const char *misfit_deform_conv(const ebb_call *c)
{
    ebb_deform f;
    return ebb_deform_read(&f, c);
}

// clang-format off
const ebb_kernel ebb_plain_grid[] = {
    {.name = "plain.grid_sample", .op = EBB_OP_GRID_SAMPLE, .dtypes = ebb_call_any,     .fits = ebb_sampling_misfit, .run = run_grid_sample},
    {.name = "plain.affine_grid", .op = EBB_OP_AFFINE_GRID, .dtypes = ebb_call_any,     .fits = ebb_affine_misfit,   .run = run_affine_grid},
    {.name = "plain.deform_conv", .op = EBB_OP_DEFORM_CONV, .dtypes = ebb_plain_floats, .fits = misfit_deform_conv,  .run = run_deform_conv},
};
// clang-format on
EBB_PLAIN_COUNT(grid)
