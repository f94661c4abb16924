/* grid_sample.cu: GridSample, AffineGrid, DeformConv; what they mean is in kernels/math/sampling.inc.
 *
 *     GridSample    a thread finds the neighbours of a place, and takes them in some channels
 *     DeformConv    image by image: what each tap of each window sees, in the workspace, and then a
 *                   product with the weights, group by group
 *
 *         X, offsets -> [channels taps, places]      W [out, channels taps] x that + bias -> Y
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/product.h"
#include "kernels/call/move/sampling.h"

enum { CHANNELS = 8 }; // that a thread takes

typedef struct sampling_args {
    ebb_sampling s;
    void *y;
    const void *x, *grid;
} sampling_args;

typedef struct affine_args {
    ebb_affine a;
    void *y;
    const void *theta;
} affine_args;

typedef struct deform_args {
    ebb_deform f;
    void *columns;
    const void *x, *offsets, *mask;
    int64_t image;
} deform_args;

#define KERNELS "kernels/cuda/grid_sample_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel samples[4] = EBB_CUDA_FLOATS(grid_sample);
static const ebb_gpu_kernel affines[4] = EBB_CUDA_FLOATS(affine_grid);
static const ebb_gpu_kernel columns[4] = EBB_CUDA_FLOATS(deform_columns);

static ebb_status run_grid_sample(const ebb_call *c)
{
    sampling_args a;
    memset(&a, 0, sizeof a);
    ebb_sampling_read(&a.s, c);
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.grid = c->in[1].data;
    const int64_t jobs = a.s.batch * a.s.area * ((a.s.channels + CHANNELS - 1) / CHANNELS);
    return EBB_LAUNCH(c, samples[ebb_cuda_float_row(c->in[0].type.dtype)], ebb_cuda_grid(jobs),
                      EBB_CUDA_BLOCK, 0, a);
}

static ebb_status run_affine_grid(const ebb_call *c)
{
    affine_args a;
    memset(&a, 0, sizeof a);
    ebb_affine_read(&a.a, c);
    a.y = c->out[0].data;
    a.theta = c->in[0].data;
    return EBB_LAUNCH(c, affines[ebb_cuda_float_row(c->in[0].type.dtype)],
                      ebb_cuda_grid(a.a.batch * a.a.area * a.a.rank), EBB_CUDA_BLOCK, 0, a);
}

/* ---- DeformConv ---- */

static const char *misfit_deform_conv(const ebb_call *c)
{
    ebb_deform f;
    if (c->in[0].type.dtype == EBB_F16 || c->in[0].type.dtype == EBB_BF16)
        return "what taps see is stored on the way: it is widened to float32";
    return ebb_deform_read(&f, c);
}

/* The product of one group. */
static ebb_cuda_product product_of(const ebb_deform *f)
{
    ebb_cuda_product p;
    const int64_t k = f->w.wide_channels / f->w.groups * f->taps;
    ebb_cuda_product_plain(&p, f->w.narrow_channels / f->w.groups, f->volume, k);
    p.a_row = k;
    p.a_column = 1;
    p.b_row = f->volume;
    p.b_column = 1;
    p.c_row = 1;
    ebb_cuda_product_split(&p);
    return p;
}

/* | columns of one image | parts of a product | */
static ebb_status deform_workspace(const ebb_call *c, size_t *bytes)
{
    ebb_deform f;
    EBB_MUST_FIT(c, ebb_deform_read(&f, c));
    const ebb_cuda_product p = product_of(&f);
    bool fits = ebb_size_mul(bytes, (size_t)f.w.wide_channels, (size_t)f.taps) &&
                ebb_size_mul(bytes, *bytes, (size_t)f.volume) &&
                ebb_size_mul(bytes, *bytes, ebb_element_bytes(&c->in[0].type)) &&
                ebb_size_align(bytes, *bytes, 256) &&
                ebb_size_add(bytes, *bytes, ebb_cuda_product_bytes(&p, c->in[0].type.dtype));
    return fits ? NULL : ebb_call_error(c, "what its taps see passes what memory can be");
}

static ebb_status run_product(const ebb_call *c, const deform_args *a)
{
    const size_t size = ebb_element_bytes(&c->in[0].type);
    ebb_cuda_product p = product_of(&a->f);
    const size_t all = (size_t)(p.k * a->f.w.groups * p.n) * size;
    p.parts = (char *)a->columns + (all + 255) / 256 * 256;
    for (int64_t g = 0; g < a->f.w.groups; g++) {
        p.a = (const char *)c->in[1].data + (size_t)(g * p.m * p.k) * size;
        p.b = (const char *)a->columns + (size_t)(g * p.k * p.n) * size;
        p.c = ebb_call_has(c, 3) ? (const char *)c->in[3].data + (size_t)(g * p.m) * size : NULL;
        p.y = (char *)c->out[0].data + (size_t)((a->image * a->f.w.groups + g) * p.m * p.n) * size;
        EBB_TRY(ebb_cuda_product_run(c, &p, c->in[0].type.dtype));
    }
    return NULL;
}

static ebb_status run_deform_conv(const ebb_call *c)
{
    deform_args a;
    memset(&a, 0, sizeof a);
    EBB_MUST_FIT(c, ebb_deform_read(&a.f, c));
    a.columns = c->workspace;
    a.x = c->in[0].data;
    a.offsets = c->in[2].data;
    a.mask = ebb_call_has(c, 4) ? c->in[4].data : NULL;
    for (a.image = 0; a.image < a.f.w.batch && c->out[0].bytes > 0; a.image++) {
        EBB_TRY(EBB_LAUNCH(c, columns[ebb_cuda_float_row(c->in[0].type.dtype)],
                           ebb_cuda_grid(a.f.w.wide_channels * a.f.taps * a.f.volume),
                           EBB_CUDA_BLOCK, 0, a));
        EBB_TRY(run_product(c, &a));
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_cuda_grid_sample[] = {
    {.name = "cuda.grid_sample", .op = EBB_OP_GRID_SAMPLE, .dtypes = ebb_cuda_floats, .fits = ebb_sampling_misfit, .run = run_grid_sample},
    {.name = "cuda.affine_grid", .op = EBB_OP_AFFINE_GRID, .dtypes = ebb_cuda_floats, .fits = ebb_affine_misfit, .run = run_affine_grid},
    {.name = "cuda.deform_conv", .op = EBB_OP_DEFORM_CONV, .dtypes = ebb_cuda_floats, .fits = misfit_deform_conv, .workspace = deform_workspace, .run = run_deform_conv},
};
// clang-format on
EBB_CUDA_COUNT(grid_sample)
