/* invert.cu: gradients of GELU, SiLU and Mish from their output and one bit an element.
 *
 *     GeluGrad(dY, X)   ->   GeluGradFromOutput(dY, Y, bits)       bit: x lies right of the minimum
 *
 * The numbers and the method are those of kernels/plain/elements/invert.c: one polynomial out of three, of
 * the square root of the distance from the minimum. dx may be dy or y; NaN stays NaN.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/math/invert_fit.h"
#include "kernels/call/misfit.h"

typedef struct invert_args {
    void *dx;
    const void *dy, *y;
    const uint8_t *bits;
    int64_t n, packed; /* the first so many elements in packs of 16 bytes */
    double alpha, per_y0, per_root;
    ebb_invert_fit fit;
} invert_args;

#define KERNELS "kernels/cuda/invert_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel kernels[4] = EBB_CUDA_FLOATS(from_output);

/* (dY, Y, bits) {alpha} -> dX */
static ebb_status run(const ebb_call *c)
{
    double alpha;
    const ebb_invert_fit *k = ebb_invert_fit_of(c, &alpha);
    invert_args a;
    memset(&a, 0, sizeof a);
    a.dx = c->out[0].data;
    a.dy = c->in[0].data;
    a.y = c->in[1].data;
    a.bits = (const uint8_t *)c->in[2].data;
    a.n = ebb_elements(&c->out[0].type);
    a.alpha = alpha;
    a.fit = *k;
    a.per_y0 = 1.0 / k->y0;
    a.per_root = 1.0 / sqrt(-k->y0);
    int64_t lanes = (int64_t)(16 / ebb_element_bytes(&c->in[0].type));
    if ((uintptr_t)a.dx % 16 == 0 && (uintptr_t)a.dy % 16 == 0 && (uintptr_t)a.y % 16 == 0)
        a.packed = a.n / lanes * lanes;
    int64_t pieces = a.packed / lanes > a.n - a.packed ? a.packed / lanes : a.n - a.packed;
    return EBB_LAUNCH(c, kernels[ebb_cuda_float_row(c->in[0].type.dtype)], ebb_cuda_grid(pieces),
                      EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
#define KERNEL(id, made) {.name = "cuda." #made "_grad_from_output", .op = EBB_OP_##id##_GRAD_FROM_OUTPUT, .dtypes = ebb_cuda_floats, .fits = ebb_invert_misfit, .run = run}
const ebb_kernel ebb_cuda_invert[] = {
    KERNEL(GELU,       gelu),
    KERNEL(FAST_GELU,  fast_gelu),
    KERNEL(QUICK_GELU, quick_gelu),
    KERNEL(MISH,       mish),
};
// clang-format on
EBB_CUDA_COUNT(invert)
