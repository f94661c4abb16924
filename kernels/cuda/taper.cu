/* taper.cu: HannWindow, HammingWindow, BlackmanWindow: what a signal is multiplied with before its
 * transform. The length was planned; the one that is given is compared with it. */
#include "kernels/cuda/elements.h"
#include "kernels/cuda/move.h"

typedef struct taper_args {
    void *y;
    ebb_cuda_indices length;
    int64_t n;
    double turns;           /* elements of a whole turn */
    double level, one, two; /* level - one cos(angle) + two cos(2 angle) */
    uint8_t dtype;
} taper_args;

EBB_GLOBAL(taper, taper_args)
{
    const double tau = 6.283185307179586476925287;
    if (EBB_BLOCK == 0 && EBB_THREAD == 0)
        (void)ebb_cuda_inside(a.length.step, a.length.position, ebb_cuda_index_at(&a.length, 0),
                              a.n, a.n + 1);
    EBB_GRID_LOOP(i, a.n)
    {
        const double angle = a.turns > 0 ? tau * (double)i / a.turns : 0;
        ebb_store_real(a.y, i, a.dtype, a.level - a.one * cos(angle) + a.two * cos(2 * angle));
    }
}

/* (length) {periodic} -> Y. */
static ebb_status run_taper(const ebb_call *c)
{
    taper_args a;
    memset(&a, 0, sizeof a);
    a.y = c->out[0].data;
    a.length = ebb_cuda_indices_of(c, 0);
    a.n = c->out[0].type.dims[0];
    a.turns = (double)(ebb_attr_int(&c->attrs, "periodic", 1) != 0 ? a.n : a.n - 1);
    a.dtype = c->out[0].type.dtype;
    a.level = c->op == EBB_OP_HANN_WINDOW ? 0.5 : c->op == EBB_OP_HAMMING_WINDOW ? 25.0 / 46 : 0.42;
    a.one = c->op == EBB_OP_HAMMING_WINDOW ? 21.0 / 46 : 0.5;
    a.two = c->op == EBB_OP_BLACKMAN_WINDOW ? 0.08 : 0;
    return EBB_LAUNCH(c, taper, ebb_cuda_grid(a.n > 0 ? a.n : 1), EBB_CUDA_BLOCK, 0, a);
}

static const char *misfit(const ebb_call *c)
{
    if (c->out[0].type.rank != 1 || ebb_elements(&c->in[0].type) != 1 ||
        !ebb_indices_are(&c->in[0]))
        return "the length is not one number in int32 or int64";
    return ebb_dtype_is_float((ebb_dtype)c->out[0].type.dtype) ? NULL : "makes floats only";
}

// clang-format off
const ebb_kernel ebb_cuda_taper[] = {
    {.name = "cuda.hann_window",     .op = EBB_OP_HANN_WINDOW,     .dtypes = ebb_call_any, .fits = misfit, .run = run_taper},
    {.name = "cuda.hamming_window",  .op = EBB_OP_HAMMING_WINDOW,  .dtypes = ebb_call_any, .fits = misfit, .run = run_taper},
    {.name = "cuda.blackman_window", .op = EBB_OP_BLACKMAN_WINDOW, .dtypes = ebb_call_any, .fits = misfit, .run = run_taper},
};
// clang-format on
EBB_CUDA_COUNT(taper)
