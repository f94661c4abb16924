/* recurrent_any.cu: RNN, GRU and whatever LSTM is not the usual one, and their gradients: any
 * activations, clip, lengths, layout; what their operands are is in kernels/plain/layers/recurrent.c, what
 * an element computes in kernels/math/recurrent_cell.h, how steps go in recurrent.h.
 *
 * A step beyond its sequence's length leaves states as they are. The usual LSTM whose forward kept
 * its gates is recurrent.cu's.
 */
#include "kernels/cuda/recurrent.h"

#include "kernels/cuda/floats.h"
#include "kernels/math/recurrent_cell.h"

#define KERNELS "kernels/cuda/recurrent_any_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel cells[4] = EBB_CUDA_FLOATS(any_cell);
static const ebb_gpu_kernel lstm_cells[4] = EBB_CUDA_FLOATS(any_lstm_cell);
static const ebb_gpu_kernel backs[4] = EBB_CUDA_FLOATS(any_back);
static const ebb_gpu_kernel fed_backs[4] = EBB_CUDA_FLOATS(any_fed_back);
static const ebb_gpu_kernel peepholes[4] = EBB_CUDA_FLOATS(any_peepholes);

static const char *misfit(const ebb_call *c)
{
    ebb_recurrent s;
    return ebb_recurrent_read(&s, c);
}

static ebb_status forward(ebb_recurrent_run *r)
{
    r->a.y = ebb_cuda_recurrent_out(r, 0, 0);
    r->a.last_h = ebb_cuda_recurrent_out(r, 1, 0);
    r->a.last_c = ebb_cuda_recurrent_out(r, 2, 0);
    return ebb_cuda_recurrent_forward(r, cells);
}

/* r->a of the step: where its rows begin. */
static void go_to(ebb_recurrent_run *r, int64_t step)
{
    const int64_t t = ebb_cuda_recurrent_time(r, step);
    ebb_cuda_recurrent_at(r, t, 0);
    r->a.before = r->before == NULL ? NULL : r->before + (size_t)(t * r->n) * r->real;
}

static ebb_status step_back(ebb_recurrent_run *r)
{
    EBB_TRY(ebb_cuda_recurrent_launch(r, backs, r->n));
    if (r->a.s.cell == EBB_CELL_GRU && !r->a.s.linear_before_reset) {
        EBB_TRY(ebb_cuda_recurrent_to_fed(r));
        EBB_TRY(ebb_cuda_recurrent_launch(r, fed_backs, r->n));
    }
    return ebb_cuda_recurrent_to_state(r);
}

static ebb_status backward(ebb_recurrent_run *r)
{
    const int64_t steps = ebb_cuda_recurrent_steps(r, r->T);
    EBB_TRY(ebb_cuda_recurrent_begin_back(r));
    EBB_TRY(ebb_cuda_recurrent_again(r));
    for (int64_t step = 0; r->a.s.cell == EBB_CELL_LSTM && step < steps; step++) {
        go_to(r, step);
        EBB_TRY(ebb_cuda_recurrent_launch(r, lstm_cells, r->n));
    }
    for (int64_t step = steps - 1; step >= 0; step--) {
        go_to(r, step);
        EBB_TRY(step_back(r));
    }
    EBB_TRY(ebb_cuda_recurrent_end_back(r));
    EBB_TRY(ebb_cuda_recurrent_gradients(r));
    r->a.to = ebb_cuda_recurrent_out(r, 6, r->a.d * 3 * r->H);
    r->a.sums = r->sums;
    if (r->a.to == NULL || r->errand != EBB_RECURRENT_RUNS)
        return NULL;
    return EBB_LAUNCH(r->call, peepholes[r->row],
                      ebb_cuda_blocks((3 * r->H + EBB_WARP - 1) / EBB_WARP), EBB_CUDA_BLOCK,
                      EBB_CUDA_BLOCK * sizeof(double), r->a);
}

static ebb_recurrent_work work_of(const ebb_call *c)
{
    return c->op == EBB_OP_RNN || c->op == EBB_OP_GRU || c->op == EBB_OP_LSTM ? forward : backward;
}

EBB_RECURRENT_PHASES(work_of)

const ebb_kernel ebb_cuda_recurrent_any[] = {
    EBB_RECURRENT_ROW("cuda.rnn", EBB_OP_RNN),
    EBB_RECURRENT_ROW("cuda.gru", EBB_OP_GRU),
    EBB_RECURRENT_ROW("cuda.any_lstm", EBB_OP_LSTM),
    EBB_RECURRENT_ROW("cuda.rnn_grad", EBB_OP_RNN_GRAD),
    EBB_RECURRENT_ROW("cuda.gru_grad", EBB_OP_GRU_GRAD),
    EBB_RECURRENT_ROW("cuda.ebb_lstm_grad", EBB_OP_EBB_LSTM_GRAD),
};
EBB_CUDA_COUNT(recurrent_any)
