/* recurrent.cu: LSTM, LSTMTraining and LSTMGrad; what their operands are is in
 * kernels/plain/recurrent.c.
 *
 *     forward   of each step:   gates = x W' + h R' + b      one product in tiles
 *                               c, h, and what is kept       one thread an element
 *     backward  of each step:   da, dc from dh               one thread an element
 *                               dh = da R                    one product
 *               of all steps:   dx = da W, dW = da' x, dR = da' h before, db = sums of da
 *
 * Steps follow each other, so a step is as short as it can be: two launches. States and gates are
 * float32 in the workspace where the tensors are halves.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"
#include "kernels/recurrent.h"

enum { LSTM_TILE = 32, LSTM_PITCH = 33, LSTM_EACH = 4 };

/* Element (line, k) lies at line * .line + k / batch * .t + k % batch * .b. */
typedef struct lstm_matrix {
    const void *p;
    bool real; /* in the workspace */
    int64_t line, t, b;
} lstm_matrix;

typedef struct lstm_term {
    lstm_matrix left, right; /* lines are rows of the product; columns */
    int64_t depth, batch;
} lstm_term;

typedef struct lstm_products_args { /* out[row, column] = sum of the terms + both biases (+ out) */
    void *out;
    bool real, add;
    const void *bias; /* two rows, or NULL */
    int64_t rows, columns, tiles;
    lstm_term term[2]; /* depth 0: not there */
} lstm_products_args;

typedef struct lstm_states_args {
    void *state[2];
    const void *given[2];
    void *wanted[2];
    int64_t n;
} lstm_states_args;

typedef struct lstm_cell_args {
    void *gates, *h, *c;            /* workspace: of this step (backward: da, dh, dc) */
    void *h_all, *c_all, *g_all;    /* NULL where not wanted; of this direction's first step */
    const void *peepholes, *before; /* before: c of the step before */
    int64_t place;                  /* rows of h before this step's */
    int64_t hidden, n;
} lstm_cell_args;

typedef struct lstm_bias_args {
    void *out;
    const void *gates;
    int64_t rows, columns;
} lstm_bias_args;

#define KERNELS "kernels/cuda/recurrent_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel products[4] = EBB_CUDA_FLOATS(lstm_products);
static const ebb_gpu_kernel begins[4] = EBB_CUDA_FLOATS(lstm_begin);
static const ebb_gpu_kernel ends[4] = EBB_CUDA_FLOATS(lstm_end);
static const ebb_gpu_kernel cells[4] = EBB_CUDA_FLOATS(lstm_cell);
static const ebb_gpu_kernel cells_back[4] = EBB_CUDA_FLOATS(lstm_cell_back);
static const ebb_gpu_kernel bias_grads[4] = EBB_CUDA_FLOATS(lstm_bias_grad);

/* ---- calls ---- */

static const char *read_call(ebb_recurrent *s, const ebb_call *c)
{
    const int64_t most = INT32_MAX / 8;
    const char *why = ebb_recurrent_read(s, c);
    if (why == NULL)
        why = ebb_recurrent_is_usual_lstm(s, c);
    if (why != NULL)
        return why;
    if (s->hidden > most || s->inputs > most || s->batch > most ||
        (s->batch > 0 && s->times > most / s->batch))
        return "more than 2^28 steps or features";
    return NULL;
}

static const char *declines(const ebb_call *c)
{
    ebb_recurrent s;
    const char *why = ebb_cuda_floats(c);
    return why != NULL ? why : read_call(&s, c);
}

/* As kernels/plain/recurrent.c: two states, and the gates of one step or, backward, of all. */
static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    ebb_recurrent s;
    const char *why = read_call(&s, c);
    *bytes = 0;
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    size_t steps = c->op == EBB_OP_LSTM_GRAD ? (size_t)s.times : 1;
    size_t state, real = c->in[0].type.dtype == EBB_F64 ? sizeof(double) : sizeof(float);
    if (!ebb_size_mul(&state, (size_t)s.batch, (size_t)s.hidden) ||
        !ebb_size_mul(&state, state, real) || !ebb_size_mul(bytes, state, 4 * steps + 2))
        return ebb_call_error(c, "the scratch memory is too large to address");
    return NULL;
}

/* One direction of one call, and where its operands begin. */
typedef struct lstm_direction {
    const ebb_call *call;
    ebb_recurrent s;
    int row;                     /* of the tables of kernels */
    size_t stored, real;         /* bytes of an element in memory; in the workspace */
    int64_t d, H, B, I, T, D, n; /* n = B * H */
    char *h, *c, *gates;         /* workspace */
} lstm_direction;

/* Input i from element `from` on; NULL where it is absent. */
static const void *input(const lstm_direction *l, uint32_t i, int64_t from)
{
    return ebb_call_has(l->call, i) ? (const char *)l->call->in[i].data + (size_t)from * l->stored
                                    : NULL;
}

static void *output(const lstm_direction *l, uint32_t o, int64_t from)
{
    return ebb_call_wants(l->call, o) ? (char *)l->call->out[o].data + (size_t)from * l->stored
                                      : NULL;
}

static lstm_matrix matrix(const void *p, bool real, int64_t line, int64_t t, int64_t b)
{
    lstm_matrix m = {p, real, line, t, b};
    return m;
}

static ebb_status multiply(const lstm_direction *l, lstm_products_args *a)
{
    a->tiles = (a->rows + LSTM_TILE - 1) / LSTM_TILE * ((a->columns + LSTM_TILE - 1) / LSTM_TILE);
    return EBB_LAUNCH(l->call, products[l->row], ebb_cuda_blocks(a->tiles), EBB_CUDA_BLOCK,
                      (uint32_t)(2 * LSTM_TILE * LSTM_PITCH * l->real), *a);
}

static ebb_status begin(const lstm_direction *l, const void *h, const void *c)
{
    lstm_states_args a = {{l->h, l->c}, {h, c}, {NULL, NULL}, l->n};
    return EBB_LAUNCH(l->call, begins[l->row], ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

static ebb_status end(const lstm_direction *l, void *h, void *c)
{
    lstm_states_args a = {{l->h, l->c}, {NULL, NULL}, {h, c}, l->n};
    return EBB_LAUNCH(l->call, ends[l->row], ebb_cuda_grid(a.n), EBB_CUDA_BLOCK, 0, a);
}

static int64_t time_of(const lstm_direction *l, int64_t step)
{
    return ebb_recurrent_backwards(&l->s, l->d) ? l->T - 1 - step : step;
}

/* ---- forward ---- */

static ebb_status run_step(const lstm_direction *l, int64_t t)
{
    const int64_t H = l->H, I = l->I;
    lstm_products_args a;
    memset(&a, 0, sizeof a);
    a.out = l->gates;
    a.real = true;
    a.bias = input(l, 3, l->d * 8 * H);
    a.rows = l->B;
    a.columns = 4 * H;
    a.term[0].left = matrix(input(l, 0, t * l->B * I), false, I, 0, 1);
    a.term[0].right = matrix(input(l, 1, l->d * 4 * H * I), false, I, 0, 1);
    a.term[0].depth = a.term[0].batch = I;
    a.term[1].left = matrix(l->h, true, H, 0, 1);
    a.term[1].right = matrix(input(l, 2, l->d * 4 * H * H), false, H, 0, 1);
    a.term[1].depth = a.term[1].batch = H;
    EBB_TRY(multiply(l, &a));
    lstm_cell_args cell;
    memset(&cell, 0, sizeof cell);
    cell.gates = l->gates;
    cell.h = l->h;
    cell.c = l->c;
    cell.h_all = output(l, 0, 0);
    cell.c_all = output(l, 3, 0);
    cell.g_all = output(l, 4, 0);
    cell.peepholes = input(l, 7, l->d * 3 * H);
    cell.place = (t * l->D + l->d) * l->B;
    cell.hidden = H;
    cell.n = l->n;
    return EBB_LAUNCH(l->call, cells[l->row], ebb_cuda_grid(cell.n), EBB_CUDA_BLOCK, 0, cell);
}

static ebb_status run_forward(const lstm_direction *l)
{
    EBB_TRY(begin(l, input(l, 5, l->d * l->n), input(l, 6, l->d * l->n)));
    for (int64_t step = 0; step < l->T; step++)
        EBB_TRY(run_step(l, time_of(l, step)));
    return end(l, output(l, 1, l->d * l->n), output(l, 2, l->d * l->n));
}

/* ---- backward ---- */

static ebb_status run_step_back(const lstm_direction *l, int64_t step)
{
    const int64_t H = l->H, t = time_of(l, step);
    char *da = l->gates + (size_t)(t * l->B * 4 * H) * l->real;
    lstm_cell_args cell;
    memset(&cell, 0, sizeof cell);
    cell.gates = da;
    cell.h = l->h;
    cell.c = l->c;
    cell.place = (t * l->D + l->d) * l->B;
    /* Only read here: one struct serves both directions of time. */
    cell.h_all = ebb_call_has(l->call, 9) ? l->call->in[9].data : NULL;
    cell.c_all = l->call->in[7].data;
    cell.g_all = l->call->in[8].data;
    cell.before = step > 0 ? input(l, 7, (time_of(l, step - 1) * l->D + l->d) * l->n)
                           : input(l, 5, l->d * l->n);
    cell.hidden = H;
    cell.n = l->n;
    EBB_TRY(
        EBB_LAUNCH(l->call, cells_back[l->row], ebb_cuda_grid(cell.n), EBB_CUDA_BLOCK, 0, cell));
    lstm_products_args a;
    memset(&a, 0, sizeof a);
    a.out = l->h;
    a.real = true;
    a.rows = l->B;
    a.columns = H;
    a.term[0].left = matrix(da, true, 4 * H, 0, 1);
    a.term[0].right = matrix(input(l, 2, l->d * 4 * H * H), false, 1, 0, H);
    a.term[0].depth = a.term[0].batch = 4 * H;
    return multiply(l, &a);
}

static ebb_status run_weights(const lstm_direction *l)
{
    const int64_t H = l->H, I = l->I, B = l->B, T = l->T, stride = l->D * B * H;
    const bool back = ebb_recurrent_backwards(&l->s, l->d);
    const size_t row = (size_t)(B * 4 * H) * l->real; /* bytes of da of one step */
    lstm_products_args a;
    memset(&a, 0, sizeof a);
    a.rows = 4 * H;
    a.columns = I;
    a.out = output(l, 1, l->d * 4 * H * I);
    a.term[0].left = matrix(l->gates, true, 1, B * 4 * H, 4 * H);
    a.term[0].right = matrix(input(l, 0, 0), false, 1, B * I, I);
    a.term[0].depth = T * B;
    a.term[0].batch = B;
    if (a.out != NULL)
        EBB_TRY(multiply(l, &a));
    /* Step t multiplied R with the h of the step before: pair them with one step's shift. */
    a.columns = H;
    a.out = output(l, 2, l->d * 4 * H * H);
    a.term[0].left = matrix(l->gates + (back || T == 0 ? 0 : row), true, 1, B * 4 * H, 4 * H);
    a.term[0].right = matrix(input(l, 6, l->d * l->n + (back ? stride : 0)), false, 1, stride, H);
    a.term[0].depth = T > 0 ? (T - 1) * B : 0;
    if (ebb_call_has(l->call, 4) && T > 0) {
        a.term[1].left = matrix(l->gates + (size_t)time_of(l, 0) * row, true, 1, B * 4 * H, 4 * H);
        a.term[1].right = matrix(input(l, 4, l->d * l->n), false, 1, 0, H);
        a.term[1].depth = a.term[1].batch = B;
    }
    return a.out != NULL ? multiply(l, &a) : NULL;
}

static ebb_status run_backward(const lstm_direction *l)
{
    const int64_t H = l->H, I = l->I;
    EBB_TRY(begin(l, input(l, 10, l->d * l->n), input(l, 11, l->d * l->n)));
    for (int64_t step = l->T - 1; step >= 0; step--)
        EBB_TRY(run_step_back(l, step));
    EBB_TRY(end(l, output(l, 4, l->d * l->n), output(l, 5, l->d * l->n)));
    lstm_products_args a;
    memset(&a, 0, sizeof a);
    a.out = output(l, 0, 0);
    a.add = l->d > 0;
    a.rows = l->T * l->B;
    a.columns = I;
    a.term[0].left = matrix(l->gates, true, 4 * H, 0, 1);
    a.term[0].right = matrix(input(l, 1, l->d * 4 * H * I), false, 1, 0, I);
    a.term[0].depth = a.term[0].batch = 4 * H;
    if (a.out != NULL)
        EBB_TRY(multiply(l, &a));
    EBB_TRY(run_weights(l));
    lstm_bias_args b = {output(l, 3, l->d * 8 * H), l->gates, l->T * l->B, 4 * H};
    if (b.out == NULL)
        return NULL;
    return EBB_LAUNCH(l->call, bias_grads[l->row],
                      ebb_cuda_blocks((b.columns + EBB_WARP - 1) / EBB_WARP), EBB_CUDA_BLOCK,
                      (uint32_t)(EBB_CUDA_BLOCK * l->real), b);
}

static ebb_status run(const ebb_call *c)
{
    lstm_direction l;
    memset(&l, 0, sizeof l);
    const char *why = read_call(&l.s, c);
    if (why != NULL)
        return ebb_call_error(c, "%s", why);
    l.call = c;
    l.row = ebb_cuda_float_row(c->in[0].type.dtype);
    l.stored = ebb_cuda_size(&c->in[0].type);
    l.real = l.row == 1 ? sizeof(double) : sizeof(float);
    l.H = l.s.hidden;
    l.B = l.s.batch;
    l.I = l.s.inputs;
    l.T = l.s.times;
    l.D = l.s.directions;
    l.n = l.B * l.H;
    l.h = (char *)c->workspace;
    l.c = l.h + (size_t)l.n * l.real;
    l.gates = l.c + (size_t)l.n * l.real;
    for (l.d = 0; l.d < l.D; l.d++)
        EBB_TRY(c->op == EBB_OP_LSTM_GRAD ? run_backward(&l) : run_forward(&l));
    return NULL;
}

// clang-format off
const ebb_kernel ebb_cuda_recurrent[] = {
    {"cuda.lstm",          EBB_OP_LSTM,          declines, workspace, NULL, run, NULL},
    {"cuda.lstm_training", EBB_OP_LSTM_TRAINING, declines, workspace, NULL, run, NULL},
    {"cuda.lstm_grad",     EBB_OP_LSTM_GRAD,     declines, workspace, NULL, run, NULL},
};
// clang-format on
EBB_CUDA_COUNT(recurrent)
