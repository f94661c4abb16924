/* loss.cu: Softmax and LogSoftmax along any axis, and their gradients from the output.
 *
 * A dense row is a warp's or a block's; where the axis is not the last one, a thread has a line and
 * its neighbours have the neighbouring ones.
 */
#include "kernels/cuda/lanes.h"
#include "kernels/call/misfit.h"

typedef struct softmax_args {
    int64_t outer, n, inner;
    const void *x, *dy; /* x: the output, backward */
    void *y;            /* dx, backward */
    uint32_t lanes;     /* of a row */
    uint32_t logarithm;
} softmax_args;

#define KERNELS "kernels/cuda/loss_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel rows[] = EBB_CUDA_FLOATS(softmax_rows);
static const ebb_gpu_kernel lines[] = EBB_CUDA_FLOATS(softmax_lines);
static const ebb_gpu_kernel grad_rows[] = EBB_CUDA_FLOATS(grad_rows);
static const ebb_gpu_kernel grad_lines[] = EBB_CUDA_FLOATS(grad_lines);

static ebb_status launch(const ebb_call *c, softmax_args *args, const ebb_gpu_kernel *by_rows,
                         const ebb_gpu_kernel *by_lines)
{
    const ebb_type *t = &c->in[0].type;
    const int row = ebb_cuda_float_row(t->dtype);
    const bool flat = c->op == EBB_OP_SOFTMAX_FLAT || c->op == EBB_OP_LOG_SOFTMAX_FLAT;
    ebb_span s = {1, 1, 1};
    int axis = 0;
    if (t->rank > 0) {
        EBB_TRY(ebb_call_axis(c, ebb_attr_int(&c->attrs, "axis", flat ? 1 : -1), t->rank, &axis));
        s = ebb_span_of(t, axis);
    }
    if (flat) { // all axes from there on are one
        s.n *= s.inner;
        s.inner = 1;
    }
    softmax_args a = *args;
    a.outer = s.outer;
    a.n = s.n;
    a.inner = s.inner;
    a.lanes = ebb_team_lanes(s.n);
    a.y = c->out[0].data;
    if (s.outer * s.n * s.inner == 0)
        return NULL;
    if (s.inner > 1)
        return EBB_LAUNCH(c, by_lines[row], ebb_cuda_grid(s.outer * s.inner), EBB_CUDA_BLOCK, 0, a);
    return EBB_LAUNCH(c, by_rows[row], ebb_team_grid(s.outer, a.lanes), ebb_team_threads(a.lanes),
                      EBB_TEAM_SHARED, a);
}

/* (X) {axis = -1; before opset 13: 1} -> Y. Y may be X. */
static ebb_status run_softmax(const ebb_call *c)
{
    softmax_args a;
    memset(&a, 0, sizeof a);
    a.x = c->in[0].data;
    a.logarithm = c->op == EBB_OP_LOG_SOFTMAX || c->op == EBB_OP_LOG_SOFTMAX_FLAT;
    return launch(c, &a, rows, lines);
}

/* (dY, Y) {axis = -1} -> dX. dX may be dY or Y. */
static ebb_status run_softmax_grad(const ebb_call *c)
{
    softmax_args a;
    memset(&a, 0, sizeof a);
    a.dy = c->in[0].data;
    a.x = c->in[1].data;
    a.logarithm = c->op == EBB_OP_LOG_SOFTMAX_GRAD;
    return launch(c, &a, grad_rows, grad_lines);
}

// clang-format off
const ebb_kernel ebb_cuda_loss[] = {
    {.name = "cuda.softmax",          .op = EBB_OP_SOFTMAX,          .dtypes = ebb_cuda_floats, .fits = ebb_loss_misfit, .run = run_softmax},
    {.name = "cuda.log_softmax",      .op = EBB_OP_LOG_SOFTMAX,      .dtypes = ebb_cuda_floats, .fits = ebb_loss_misfit, .run = run_softmax},
    {.name = "cuda.softmax_flat",     .op = EBB_OP_SOFTMAX_FLAT,     .dtypes = ebb_cuda_floats, .fits = ebb_loss_misfit, .run = run_softmax},
    {.name = "cuda.log_softmax_flat", .op = EBB_OP_LOG_SOFTMAX_FLAT, .dtypes = ebb_cuda_floats, .fits = ebb_loss_misfit, .run = run_softmax},
    {.name = "cuda.softmax_grad",     .op = EBB_OP_SOFTMAX_GRAD,     .dtypes = ebb_cuda_floats, .fits = ebb_loss_misfit, .run = run_softmax_grad},
    {.name = "cuda.log_softmax_grad", .op = EBB_OP_LOG_SOFTMAX_GRAD, .dtypes = ebb_cuda_floats, .fits = ebb_loss_misfit, .run = run_softmax_grad},
};
// clang-format on
EBB_CUDA_COUNT(loss)
