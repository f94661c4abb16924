/* signal.cu: DFT, STFT; what they mean is in kernels/signal.inc. A thread a coefficient, with the
 * table of roots in the workspace. And Det, DetGrad: a thread a matrix (kernels/det.h), as many at
 * a time as the workspace has room for.
 *
 * Lengths, steps and axes that are first known in the run stay with the host.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/det.h"
#include "kernels/signal.h"

enum { MATRICES = 4096 }; // at a time

typedef struct signal_args {
    ebb_transforms t;
    void *y, *roots;
    const void *x, *window;
} signal_args;

typedef struct det_args {
    void *out;
    const void *x, *dy; /* dy: of DetGrad */
    double *scratch;    /* of each thread: n * n; or 2 n (n + 1) */
    int64_t n, count, threads;
} det_args;

#define KERNELS "kernels/cuda/signal_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel root_tables[4] = EBB_CUDA_FLOATS(signal_roots);
static const ebb_gpu_kernel transforms[4] = EBB_CUDA_FLOATS(signal_transform);
static const ebb_gpu_kernel dets[4] = EBB_CUDA_FLOATS(det);
static const ebb_gpu_kernel det_grads[4] = EBB_CUDA_FLOATS(det_grad);

/* ---- DFT, STFT ---- */

static int64_t constant_number(const ebb_operand *o, int64_t i)
{
    return ebb_tensor_int(o->constant, i);
}

static const char *declines_signal(const ebb_call *c)
{
    const char *why = ebb_cuda_floats(c);
    if (why == NULL)
        why = c->op == EBB_OP_DFT ? ebb_dft_misfit(c) : ebb_stft_misfit(c);
    for (uint32_t i = 1; why == NULL && i < c->input_count; i++)
        if (c->op == EBB_OP_DFT || i != 2) // STFT's is the window
            why = ebb_cuda_constant(c, i);
    return why;
}

static ebb_status signal_workspace(const ebb_call *c, size_t *bytes)
{
    EBB_TRY(ebb_signal_roots(c, bytes));
    const size_t real = c->in[0].type.dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    return ebb_size_mul(bytes, *bytes, real)
               ? NULL
               : ebb_call_error(c, "its table passes what memory can be");
}

static ebb_status run_signal(const ebb_call *c)
{
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    signal_args a;
    memset(&a, 0, sizeof a);
    EBB_TRY(c->op == EBB_OP_DFT ? ebb_dft_read(&a.t, c, constant_number)
                                : ebb_stft_read(&a.t, c, constant_number));
    a.y = c->out[0].data;
    a.x = c->in[0].data;
    a.window = a.t.window > 0 ? c->in[2].data : NULL;
    a.roots = c->workspace;
    EBB_TRY(EBB_LAUNCH(c, root_tables[row], ebb_cuda_grid(a.t.n), EBB_CUDA_BLOCK, 0, a));
    return EBB_LAUNCH(c, transforms[row], ebb_cuda_grid(a.t.lines * a.t.bins), EBB_CUDA_BLOCK, 0,
                      a);
}

/* ---- Det, DetGrad ---- */

static const char *declines_det(const ebb_call *c)
{
    int64_t n, count;
    const char *why = ebb_cuda_floats(c);
    return why != NULL ? why : ebb_det_read(&n, &count, c);
}

static ebb_status det_workspace(const ebb_call *c, size_t *bytes)
{
    int64_t n, count;
    (void)ebb_det_read(&n, &count, c); // declines() has seen it
    const int64_t rows = c->op == EBB_OP_DET ? n : 2 * (n + 1);
    bool fits = ebb_size_mul(bytes, (size_t)n, (size_t)rows) &&
                ebb_size_mul(bytes, *bytes, sizeof(double)) &&
                ebb_size_mul(bytes, *bytes, (size_t)(count < MATRICES ? count : (int64_t)MATRICES));
    return fits ? NULL : ebb_call_error(c, "the matrices are too large");
}

static ebb_status run_det(const ebb_call *c)
{
    const bool backward = c->op == EBB_OP_DET_GRAD;
    const int row = ebb_cuda_float_row(c->in[0].type.dtype);
    det_args a;
    memset(&a, 0, sizeof a);
    (void)ebb_det_read(&a.n, &a.count, c);
    a.out = c->out[0].data;
    a.x = c->in[backward ? 1 : 0].data;
    a.dy = c->in[0].data;
    a.scratch = (double *)c->workspace;
    a.threads = a.count < MATRICES ? a.count : (int64_t)MATRICES;
    if (a.count == 0)
        return NULL;
    return EBB_LAUNCH(c, backward ? det_grads[row] : dets[row], ebb_cuda_grid(a.threads),
                      EBB_CUDA_BLOCK, 0, a);
}

// clang-format off
const ebb_kernel ebb_cuda_signal[] = {
    {"cuda.dft",      EBB_OP_DFT,      declines_signal, signal_workspace, NULL, run_signal, NULL},
    {"cuda.stft",     EBB_OP_STFT,     declines_signal, signal_workspace, NULL, run_signal, NULL},
    {"cuda.det",      EBB_OP_DET,      declines_det,    det_workspace,    NULL, run_det,    NULL},
    {"cuda.det_grad", EBB_OP_DET_GRAD, declines_det,    det_workspace,    NULL, run_det,    NULL},
};
// clang-format on
EBB_CUDA_COUNT(signal)
