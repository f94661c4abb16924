/* signal.cu: DFT, STFT; what they mean is in kernels/math/signal.inc. A thread a coefficient, with the
 * table of roots in the workspace. And Det, DetGrad, Inverse: a thread a matrix (kernels/math/det.h), as many at
 * a time as the workspace has room for. And MelWeightMatrix: a thread an element.
 *
 * Lengths, steps and axes of DFT and STFT that are first known in the run stay with the host.
 */
#include "kernels/cuda/small.h"
#include "kernels/math/det.h"
#include "kernels/call/algebra.h"
#include "kernels/call/signal.h"

enum { MATRICES = 4096 }; // at a time

typedef struct signal_args {
    ebb_transforms t;
    void *y, *roots;
    const void *x, *window;
} signal_args;

typedef struct det_args {
    void *out;
    const void *x, *dy; /* dy: of DetGrad */
    double *scratch;    /* of each thread: n * n; of Inverse twice that; of DetGrad 2 n (n + 1) */
    int64_t n, count, threads;
} det_args;

#define KERNELS "kernels/cuda/signal_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel root_tables[4] = EBB_CUDA_FLOATS(signal_roots);
static const ebb_gpu_kernel transforms[4] = EBB_CUDA_FLOATS(signal_transform);
static const ebb_gpu_kernel dets[4] = EBB_CUDA_FLOATS(det);
static const ebb_gpu_kernel det_grads[4] = EBB_CUDA_FLOATS(det_grad);
static const ebb_gpu_kernel inverses[4] = EBB_CUDA_FLOATS(inverse);

/* ---- DFT, STFT ---- */

static int64_t constant_number(const ebb_operand *o, int64_t i)
{
    return ebb_tensor_int(o->constant, i);
}

static const char *misfit_signal(const ebb_call *c)
{
    const char *why = c->op == EBB_OP_DFT ? ebb_dft_misfit(c) : ebb_stft_misfit(c);
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

/* ---- Det, DetGrad, Inverse ---- */

static const char *read_matrices(int64_t *n, int64_t *count, const ebb_call *c)
{
    return c->op == EBB_OP_INVERSE ? ebb_inverse_read(n, count, c) : ebb_det_read(n, count, c);
}

static const char *misfit_det(const ebb_call *c)
{
    int64_t n, count;
    return read_matrices(&n, &count, c);
}

static ebb_status det_workspace(const ebb_call *c, size_t *bytes)
{
    int64_t n, count;
    (void)read_matrices(&n, &count, c); // misfit_det() has seen it
    const int64_t rows = c->op == EBB_OP_DET ? n : c->op == EBB_OP_INVERSE ? 2 * n : 2 * (n + 1);
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
    (void)read_matrices(&a.n, &a.count, c);
    a.out = c->out[0].data;
    a.x = c->in[backward ? 1 : 0].data;
    a.dy = c->in[0].data;
    a.scratch = (double *)c->workspace;
    a.threads = a.count < MATRICES ? a.count : (int64_t)MATRICES;
    if (a.count == 0)
        return NULL;
    const ebb_gpu_kernel kernel = backward                  ? det_grads[row]
                                  : c->op == EBB_OP_INVERSE ? inverses[row]
                                                            : dets[row];
    return EBB_LAUNCH(c, kernel, ebb_cuda_grid(a.threads), EBB_CUDA_BLOCK, 0, a);
}

/* ---- MelWeightMatrix ---- */

typedef struct mel_number {
    const void *at;
    uint8_t dtype;
} mel_number;

typedef struct mel_args {
    void *y;
    mel_number bins, length, rate, lowest, highest;
    int64_t rows, columns;
    ebb_cuda_step *step;
    uint32_t position;
    uint8_t dtype;
} mel_args;

EBB_GPU_INLINE double number(const mel_number *s)
{
    return ebb_load_number(s->at, 0, s->dtype);
}

/* Are the sizes the planned ones, and rate and edges in range? */
EBB_GPU_INLINE bool mel_fits(const mel_args *a, const ebb_mel *m)
{
    return ebb_cuda_inside(a->step, a->position, ebb_mel_in_range(m) ? 1 : 0, 1, 2) &&
           ebb_cuda_inside(a->step, a->position, (int64_t)m->bins, a->columns, a->columns + 1) &&
           ebb_cuda_inside(a->step, a->position, (int64_t)m->length / 2 + 1, a->rows, a->rows + 1);
}

EBB_GLOBAL(mel_weights, mel_args)
{
    const bool whole = a.dtype != EBB_F32 && a.dtype != EBB_F64 && a.dtype != EBB_F16 &&
                       a.dtype != EBB_BF16 && a.dtype != EBB_BOOL;
    const ebb_mel m = {number(&a.bins), number(&a.length), number(&a.rate), number(&a.lowest),
                       number(&a.highest)};
    if (!mel_fits(&a, &m))
        return;
    EBB_GRID_LOOP(e, a.rows * a.columns)
    {
        const int64_t j = e / a.columns, i = e - j * a.columns;
        const int64_t left = ebb_mel_edge(&m, i), middle = ebb_mel_edge(&m, i + 1);
        const int64_t right = ebb_mel_edge(&m, i + 2);
        const double w = ebb_mel_weight(j, left, middle, right);
        ebb_store_real(a.y, e, a.dtype, whole ? nearbyint(w) : w);
    }
}

static mel_number scalar_at(const ebb_call *c, uint32_t input)
{
    mel_number s = {c->in[input].data, c->in[input].type.dtype};
    return s;
}

/* (bins, DFT length, rate, lowest, highest) -> triangles over frequencies. */
static ebb_status run_mel(const ebb_call *c)
{
    mel_args a;
    memset(&a, 0, sizeof a);
    a.y = c->out[0].data;
    a.bins = scalar_at(c, 0);
    a.length = scalar_at(c, 1);
    a.rate = scalar_at(c, 2);
    a.lowest = scalar_at(c, 3);
    a.highest = scalar_at(c, 4);
    a.rows = c->out[0].type.dims[0];
    a.columns = c->out[0].type.dims[1];
    a.step = ebb_cuda_queue_of(c)->step;
    a.position = c->position;
    a.dtype = c->out[0].type.dtype;
    return EBB_LAUNCH(c, mel_weights, ebb_cuda_grid(a.rows * a.columns), EBB_CUDA_BLOCK, 0, a);
}

static const char *misfit_mel(const ebb_call *c)
{
    for (int i = 0; i < 5; i++)
        if (ebb_elements(&c->in[i].type) != 1)
            return "an input is not one number";
    if (ebb_dtype_is_small_float((ebb_dtype)c->out[0].type.dtype))
        return "the output is of 8 bits";
    return c->out[0].type.rank != 2 ? "the output is no matrix" : NULL;
}

// clang-format off
const ebb_kernel ebb_cuda_signal[] = {
    {.name = "cuda.dft",         .op = EBB_OP_DFT,               .dtypes = ebb_cuda_floats, .fits = misfit_signal, .workspace = signal_workspace, .run = run_signal},
    {.name = "cuda.stft",        .op = EBB_OP_STFT,              .dtypes = ebb_cuda_floats, .fits = misfit_signal, .workspace = signal_workspace, .run = run_signal},
    {.name = "cuda.det",         .op = EBB_OP_DET,               .dtypes = ebb_cuda_floats, .fits = misfit_det, .workspace = det_workspace, .run = run_det},
    {.name = "cuda.det_grad",    .op = EBB_OP_DET_GRAD,          .dtypes = ebb_cuda_floats, .fits = misfit_det, .workspace = det_workspace, .run = run_det},
    {.name = "cuda.inverse",     .op = EBB_OP_INVERSE,           .dtypes = ebb_cuda_floats, .fits = misfit_det, .workspace = det_workspace, .run = run_det},
    {.name = "cuda.mel_weights", .op = EBB_OP_MEL_WEIGHT_MATRIX, .dtypes = ebb_call_any, .fits = misfit_mel, .run = run_mel},
};
// clang-format on
EBB_CUDA_COUNT(signal)
