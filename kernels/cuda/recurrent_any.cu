/* recurrent_any.cu: RNN, GRU and whatever LSTM is not the usual one, and their gradients: any
 * activations, clip, lengths, layout; what their operands are is in kernels/plain/recurrent.c, what
 * an element computes in kernels/recurrent_cell.h.
 *
 *     forward   of each step:   sums = x W' + h R' + b        a thread a gate of a sequence
 *                               (GRU: the part that r is times of)
 *                               h, c                          a thread an element
 *     backward  of all steps:   h before, the sums again, c of an LSTM
 *               of each step:   da, dc from dh; dh = da R
 *               of all steps:   dX = da W, dW = da' X, dR = da' h before, db, dP
 *
 * Every sum is made by one thread, in one order. A step beyond its sequence's length leaves states
 * as they are. States and sums are float32 in the workspace where the tensors are halves. The usual
 * LSTM whose forward kept its gates has products in tiles: recurrent.cu.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/recurrent_cell.h"

typedef struct any_args { /* one direction of one call */
    ebb_recurrent s;
    int64_t d, width; /* of a row of sums: those of the cell; GRU: [z r n s] */
    const void *x, *w, *r, *bias, *h0, *c0, *peepholes, *h_all, *dh_all; /* NULL: not there */
    const void *lengths;
    bool lengths_wide;         /* int64 */
    void *y, *last_h, *last_c; /* backward: last are the gradients of the first states */
    void *dx, *dw, *dr, *db, *dp;
    void *h, *c, *sums, *before, *cells; /* workspace: backward dh, dc; [T, B, ..] */
    int64_t t, steps;     /* of this launch: from t on; the rows of sums and before begin there */
    bool backward, drops; /* drops: what is behind a sequence of no steps is zero */
    ebb_cuda_step *step;
    uint32_t position;
} any_args;

EBB_GPU_INLINE int64_t any_length(const any_args *a, int64_t b)
{
    if (a->lengths == NULL)
        return a->s.times;
    const int64_t n = a->lengths_wide ? ((const int64_t *)a->lengths)[b]
                                      : (int64_t)((const int32_t *)a->lengths)[b];
    return n < 0 ? 0 : n < a->s.times ? n : a->s.times;
}

/* Whether a state can arrive at the end: not behind a sequence that is said to have no steps. */
EBB_GPU_INLINE bool any_has_end(const any_args *a, int64_t b)
{
    return a->lengths == NULL || any_length(a, b) > 0;
}

EBB_GPU_INLINE int64_t any_x_row(const any_args *a, int64_t t, int64_t b)
{
    return (a->s.batch_first ? b * a->s.times + t : t * a->s.batch + b) * a->s.inputs;
}

/* The step before t of sequence b; -1: it begins with t. */
EBB_GPU_INLINE int64_t any_time_before(const any_args *a, int64_t t, int64_t b)
{
    const int64_t before = ebb_recurrent_backwards(&a->s, a->d) ? t + 1 : t - 1;
    return before < 0 || before >= any_length(a, b) ? -1 : before;
}

#define KERNELS "kernels/cuda/recurrent_any_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel begins[4] = EBB_CUDA_FLOATS(any_begin);
static const ebb_gpu_kernel befores[4] = EBB_CUDA_FLOATS(any_before);
static const ebb_gpu_kernel sums[4] = EBB_CUDA_FLOATS(any_sums);
static const ebb_gpu_kernel feds[4] = EBB_CUDA_FLOATS(any_fed);
static const ebb_gpu_kernel fed_sums[4] = EBB_CUDA_FLOATS(any_fed_sums);
static const ebb_gpu_kernel cells[4] = EBB_CUDA_FLOATS(any_cell);
static const ebb_gpu_kernel lstm_cells[4] = EBB_CUDA_FLOATS(any_lstm_cell);
static const ebb_gpu_kernel ends[4] = EBB_CUDA_FLOATS(any_end);
static const ebb_gpu_kernel backs[4] = EBB_CUDA_FLOATS(any_back);
static const ebb_gpu_kernel fed_backs[4] = EBB_CUDA_FLOATS(any_fed_back);
static const ebb_gpu_kernel state_backs[4] = EBB_CUDA_FLOATS(any_state_back);
static const ebb_gpu_kernel inputs[4] = EBB_CUDA_FLOATS(any_inputs);
static const ebb_gpu_kernel weights[4] = EBB_CUDA_FLOATS(any_weights);
static const ebb_gpu_kernel biases[4] = EBB_CUDA_FLOATS(any_biases);
static const ebb_gpu_kernel peepholes[4] = EBB_CUDA_FLOATS(any_peepholes);

/* ---- calls ---- */

static const char *declines(const ebb_call *c)
{
    ebb_recurrent s;
    const char *why = ebb_cuda_floats(c);
    return why != NULL ? why : ebb_recurrent_read(&s, c);
}

static int64_t width_of(const ebb_recurrent *s)
{
    return (s->cell == EBB_CELL_RNN ? 1 : 4) * s->hidden;
}

/* In states [B, H]: forward h, c, and the sums of one step. Backward dh, dc; the sums and the h
 * before of all steps, and c of an LSTM's. */
static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_recurrent s;
    const char *why = ebb_recurrent_read(&s, c);
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    size_t each = s.cell == EBB_CELL_RNN ? 1 : 4, state, rows = s.backward ? (size_t)s.times : 1;
    if (s.backward)
        each += s.cell == EBB_CELL_LSTM ? 2 : 1;
    const size_t real = c->in[0].type.dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    bool fits = ebb_size_mul(&state, (size_t)s.batch, (size_t)s.hidden) &&
                ebb_size_mul(&state, state, real) && ebb_size_mul(&rows, rows, each) &&
                ebb_size_add(&rows, rows, 2) && ebb_size_mul(bytes, state, rows);
    return fits ? NULL : ebb_call_error(c, "the scratch memory is too large to address");
}

/* One call, as its launches are made. */
typedef struct any_run {
    const ebb_call *call;
    any_args a;
    int row;
    size_t stored, real;
    int64_t H, B, I, T, GH, n; /* n = B * H */
} any_run;

static const void *input(const any_run *r, int i, int64_t from)
{
    return i >= 0 && ebb_call_has(r->call, (uint32_t)i)
               ? (const char *)r->call->in[i].data + (size_t)from * r->stored
               : NULL;
}

static void *output(const any_run *r, uint32_t o, int64_t from)
{
    return ebb_call_wants(r->call, o) ? (char *)r->call->out[o].data + (size_t)from * r->stored
                                      : NULL;
}

static ebb_status launch(const any_run *r, const ebb_gpu_kernel *kernels, int64_t n)
{
    if (n == 0)
        return NULL;
    return EBB_LAUNCH(r->call, kernels[r->row], ebb_cuda_grid(n), EBB_CUDA_BLOCK, 0, r->a);
}

/* The sums of a.steps steps from a.t on. */
static ebb_status launch_sums(const any_run *r)
{
    const int64_t rows = r->a.steps * r->B;
    EBB_TRY(launch(r, sums, rows * r->GH));
    if (r->a.s.cell != EBB_CELL_GRU)
        return NULL;
    EBB_TRY(launch(r, feds, rows * r->H));
    return r->a.s.linear_before_reset ? NULL : launch(r, fed_sums, rows * r->H);
}

static int64_t time_of(const any_run *r, int64_t step)
{
    return ebb_recurrent_backwards(&r->a.s, r->a.d) ? r->T - 1 - step : step;
}

static void begin_direction(any_run *r, int64_t d)
{
    any_args *a = &r->a;
    const ebb_recurrent_slots *at = &a->s.at;
    char *ws = (char *)r->call->workspace;
    const size_t state = (size_t)r->n * r->real;
    a->d = d;
    a->x = input(r, 0, 0);
    a->w = input(r, 1, d * r->GH * r->I);
    a->r = input(r, 2, d * r->GH * r->H);
    a->bias = input(r, at->bias, d * 2 * r->GH);
    a->peepholes = input(r, at->peepholes, d * 3 * r->H);
    a->h0 = input(r, at->h0, 0);
    a->c0 = input(r, at->c0, 0);
    a->h_all = input(r, at->h_all, 0);
    a->dh_all = input(r, at->dh_all, 0);
    a->h = ws;
    a->c = ws + state;
    a->sums = ws + 2 * state;
    a->before = a->h;
    a->t = 0;
    a->steps = 1;
}

static ebb_status run_forward(any_run *r)
{
    any_args *a = &r->a;
    a->y = output(r, 0, 0);
    a->last_h = output(r, 1, 0);
    a->last_c = output(r, 2, 0);
    EBB_TRY(launch(r, begins, r->n));
    for (int64_t step = 0; step < r->T; step++) {
        a->t = time_of(r, step);
        EBB_TRY(launch_sums(r));
        EBB_TRY(launch(r, cells, r->n));
    }
    a->drops = true;
    return launch(r, ends, r->n);
}

static ebb_status run_gradients(const any_run *r)
{
    const any_args *a = &r->a;
    if (a->dx != NULL)
        EBB_TRY(launch(r, inputs, r->T * r->B * r->I));
    if (a->dw != NULL || a->dr != NULL)
        EBB_TRY(launch(r, weights, r->GH * (r->I + r->H)));
    if (a->db != NULL)
        EBB_TRY(launch(r, biases, r->GH));
    return a->dp != NULL ? launch(r, peepholes, 3 * r->H) : NULL;
}

static ebb_status run_backward(any_run *r)
{
    any_args *a = &r->a;
    const int64_t d = a->d;
    char *rest = (char *)a->sums + (size_t)(r->T * r->B * a->width) * r->real;
    void *first_h = output(r, 4, 0), *first_c = output(r, 5, 0);
    a->before = rest;
    a->cells = rest + (size_t)(r->T * r->n) * r->real;
    a->dx = output(r, 0, 0);
    a->dw = output(r, 1, d * r->GH * r->I);
    a->dr = output(r, 2, d * r->GH * r->H);
    a->db = output(r, 3, d * 2 * r->GH);
    a->dp = output(r, 6, d * 3 * r->H);
    a->steps = r->T;
    EBB_TRY(launch(r, befores, r->T * r->n));
    EBB_TRY(launch_sums(r));
    for (int64_t step = 0; a->s.cell == EBB_CELL_LSTM && step < r->T; step++) {
        a->t = time_of(r, step);
        EBB_TRY(launch(r, lstm_cells, r->n));
    }
    const void *h0 = a->h0, *c0 = a->c0; // dh and dc begin with what arrives at the last
    a->h0 = input(r, a->s.at.dh_last, 0);
    a->c0 = input(r, a->s.at.dc_last, 0);
    a->drops = true;
    EBB_TRY(launch(r, begins, r->n));
    a->h0 = h0;
    a->c0 = c0;
    for (int64_t step = r->T - 1; step >= 0; step--) {
        a->t = time_of(r, step);
        EBB_TRY(launch(r, backs, r->n));
        if (a->s.cell == EBB_CELL_GRU && !a->s.linear_before_reset)
            EBB_TRY(launch(r, fed_backs, r->n));
        EBB_TRY(launch(r, state_backs, r->n));
    }
    a->last_h = first_h;
    a->last_c = first_c;
    a->drops = false;
    EBB_TRY(launch(r, ends, r->n));
    return run_gradients(r);
}

static ebb_status run(const ebb_call *c)
{
    any_run r;
    memset(&r, 0, sizeof r);
    ebb_recurrent *s = &r.a.s;
    const char *why = ebb_recurrent_read(s, c);
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    r.call = c;
    r.row = ebb_cuda_float_row(c->in[0].type.dtype);
    r.stored = ebb_cuda_size(&c->in[0].type);
    r.real = r.row == 1 ? sizeof(double) : sizeof(float);
    r.H = s->hidden;
    r.B = s->batch;
    r.I = s->inputs;
    r.T = s->times;
    r.GH = s->gates * s->hidden;
    r.n = r.B * r.H;
    r.a.width = width_of(s);
    r.a.backward = s->backward;
    r.a.lengths = input(&r, s->at.lengths, 0);
    r.a.lengths_wide = r.a.lengths != NULL && c->in[s->at.lengths].type.dtype == EBB_I64;
    r.a.step = ebb_cuda_queue_of(c)->step;
    r.a.position = c->position;
    for (int64_t d = 0; d < s->directions; d++) {
        begin_direction(&r, d);
        r.a.drops = false;
        EBB_TRY(s->backward ? run_backward(&r) : run_forward(&r));
    }
    return NULL;
}

// clang-format off
const ebb_kernel ebb_cuda_recurrent_any[] = {
    {"cuda.rnn",           EBB_OP_RNN,           declines, workspace, NULL, run, NULL},
    {"cuda.gru",           EBB_OP_GRU,           declines, workspace, NULL, run, NULL},
    {"cuda.any_lstm",      EBB_OP_LSTM,          declines, workspace, NULL, run, NULL},
    {"cuda.rnn_grad",      EBB_OP_RNN_GRAD,      declines, workspace, NULL, run, NULL},
    {"cuda.gru_grad",      EBB_OP_GRU_GRAD,      declines, workspace, NULL, run, NULL},
    {"cuda.ebb_lstm_grad", EBB_OP_EBB_LSTM_GRAD, declines, workspace, NULL, run, NULL},
};
// clang-format on
EBB_CUDA_COUNT(recurrent_any)
