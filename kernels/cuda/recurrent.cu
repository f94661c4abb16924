/* recurrent.cu: LSTM, LSTMTraining and LSTMGrad; what their operands are is in
 * kernels/plain/layers/recurrent.c, how their steps go in recurrent.h. The gates that the forward kept
 * need no second product, and no double precision inside: their slopes are products of themselves.
 */
#include "kernels/cuda/recurrent.h"

#include "kernels/cuda/floats.h"

#define KERNELS "kernels/cuda/recurrent_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel cells[4] = EBB_CUDA_FLOATS(lstm_cell);
static const ebb_gpu_kernel cells_back[4] = EBB_CUDA_FLOATS(lstm_cell_back);

static const char *misfit(const ebb_call *c)
{
    ebb_recurrent s;
    EBB_ASK(ebb_recurrent_read(&s, c));
    return ebb_usual_lstm_misfit(&s, c);
}

static ebb_status forward(ebb_recurrent_run *r)
{
    r->a.y = ebb_cuda_recurrent_out(r, 0, 0);
    r->a.last_h = ebb_cuda_recurrent_out(r, 1, 0);
    r->a.last_c = ebb_cuda_recurrent_out(r, 2, 0);
    r->a.c_wanted = ebb_cuda_recurrent_out(r, 3, 0);
    r->a.g_wanted = ebb_cuda_recurrent_out(r, 4, 0);
    return ebb_cuda_recurrent_forward(r, cells);
}

static ebb_status backward(ebb_recurrent_run *r)
{
    EBB_TRY(ebb_cuda_recurrent_begin_back(r));
    const int64_t steps = ebb_cuda_recurrent_steps(r, r->T);
    for (int64_t step = steps - 1; step >= 0; step--) {
        ebb_cuda_recurrent_at(r, ebb_cuda_recurrent_time(r, step), 0);
        EBB_TRY(ebb_cuda_recurrent_launch(r, cells_back, r->n));
        EBB_TRY(ebb_cuda_recurrent_to_state(r));
    }
    EBB_TRY(ebb_cuda_recurrent_end_back(r));
    return ebb_cuda_recurrent_gradients(r);
}

static ebb_recurrent_work work_of(const ebb_call *c)
{
    return c->op == EBB_OP_LSTM_GRAD ? backward : forward;
}

EBB_RECURRENT_PHASES(work_of)

const ebb_kernel ebb_cuda_recurrent[] = {
    EBB_RECURRENT_ROW("cuda.lstm", EBB_OP_LSTM),
    EBB_RECURRENT_ROW("cuda.lstm_training", EBB_OP_LSTM_TRAINING),
    EBB_RECURRENT_ROW("cuda.lstm_grad", EBB_OP_LSTM_GRAD),
};
EBB_CUDA_COUNT(recurrent)
