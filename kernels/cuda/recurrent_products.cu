/* recurrent_products.cu: see recurrent.h. A call's work is one text for three errands: products are
 * measured, or get their algorithm, or are made, and launches are made in a run alone.
 *
 * Workspace, of one direction:
 *     | h | c | sums | h before | c of all steps | fed | copies of X, W, R | dX, dW, dR | parts |
 */
#include "kernels/cuda/recurrent.h"

#include "kernels/cuda/floats.h"
#include "kernels/math/recurrent_cell.h"
#include "onnx/words/arena.h"

enum { ROWS = 1024 }; // of a block of steps, about

#define KERNELS "kernels/cuda/recurrent_products_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel begins[4] = EBB_CUDA_FLOATS(recurrent_begin);
static const ebb_gpu_kernel ends[4] = EBB_CUDA_FLOATS(recurrent_end);
static const ebb_gpu_kernel widens[4] = EBB_CUDA_FLOATS(recurrent_widen);
static const ebb_gpu_kernel rounds[4] = EBB_CUDA_FLOATS(recurrent_round);
static const ebb_gpu_kernel inputs[4] = EBB_CUDA_FLOATS(recurrent_inputs);
static const ebb_gpu_kernel outputs[4] = EBB_CUDA_FLOATS(recurrent_outputs);
static const ebb_gpu_kernel states[4] = EBB_CUDA_FLOATS(recurrent_states);
static const ebb_gpu_kernel biases[4] = EBB_CUDA_FLOATS(recurrent_biases);
static const ebb_gpu_kernel feds[4] = EBB_CUDA_FLOATS(recurrent_fed);
static const ebb_gpu_kernel columns[4] = EBB_CUDA_FLOATS(recurrent_columns);

typedef ebb_recurrent_run run_of;

/* ---- what has to be copied ---- */

/* X and dX, with the batch outside of the steps. */
static bool copies_inputs(const run_of *r)
{
    return r->a.s.batch_first;
}

static bool has_lengths(const run_of *r)
{
    const int i = r->a.s.at.lengths;
    return i >= 0 && ebb_call_has(r->call, (uint32_t)i);
}

/* X for dW, which sums over steps. */
static bool copies_inputs_back(const run_of *r)
{
    return r->narrow || r->a.s.batch_first || has_lengths(r);
}

static bool copies_dx(const run_of *r)
{
    return r->narrow || r->a.s.batch_first;
}

static bool copies_w(const run_of *r)
{
    return r->narrow && (r->a.s.backward || copies_inputs(r));
}

/* ---- workspace ---- */

static bool put(size_t *total, size_t *at, int64_t rows, int64_t columns_of, size_t size,
                bool there)
{
    size_t bytes = 0;
    *at = *total;
    if (!there)
        return true;
    return ebb_size_mul(&bytes, (size_t)rows, (size_t)columns_of) &&
           ebb_size_mul(&bytes, bytes, size) && ebb_size_align(&bytes, bytes, 256) &&
           ebb_size_add(total, *total, bytes);
}

static char *place(const run_of *r, size_t at)
{
    return r->errand == EBB_RECURRENT_MEASURES ? NULL : (char *)r->call->workspace + at;
}

/* Sets where things lie; *bytes: all but the parts of products. False: too large to address. */
static bool lay_out(run_of *r, size_t *bytes)
{
    const ebb_recurrent *s = &r->a.s;
    const bool back = s->backward, gru = s->cell == EBB_CELL_GRU;
    const int64_t block = r->block * r->B, all = back ? r->T : r->block;
    size_t h, c, sums, before, cells, fed, x, w, state, dx, dw, dr, rows;
    *bytes = 0;
    if (!ebb_size_mul(&rows, (size_t)all, (size_t)r->B) || rows > INT64_MAX / 16)
        return false;
    bool fits =
        put(bytes, &h, r->B, r->H, r->real, true) && put(bytes, &c, r->B, r->H, r->real, true) &&
        put(bytes, &sums, (int64_t)rows, r->a.width, r->real, true) &&
        put(bytes, &before, s->kept ? block : (int64_t)rows, r->H, r->real, back) &&
        put(bytes, &cells, (int64_t)rows, r->H, r->real,
            back && !s->kept && s->cell == EBB_CELL_LSTM) &&
        put(bytes, &fed, r->B, r->H, r->real, back && gru && !s->linear_before_reset) &&
        put(bytes, &x, block, r->I, r->real, copies_inputs(r) || (back && copies_inputs_back(r))) &&
        put(bytes, &w, r->GH, r->I, r->real, copies_w(r)) &&
        put(bytes, &state, r->GH, r->H, r->real, r->narrow) &&
        put(bytes, &dx, block, r->I, r->real, back && copies_dx(r)) &&
        put(bytes, &dw, r->GH, r->I, r->real, back && r->narrow) &&
        put(bytes, &dr, r->GH, r->H, r->real, back && r->narrow);
    if (!fits)
        return false;
    r->a.h = place(r, h);
    r->a.c = place(r, c);
    r->sums = place(r, sums);
    r->before = place(r, before);
    r->a.cells = place(r, cells);
    r->a.fed = place(r, fed);
    r->x_copy = place(r, x);
    r->w_copy = place(r, w);
    r->r_copy = place(r, state);
    r->dx = place(r, dx);
    r->dw = place(r, dw);
    r->dr = place(r, dr);
    r->parts = place(r, *bytes);
    return true;
}

/* ---- operands ---- */

static const char *moved(const void *p, int64_t elements, size_t size)
{
    return p == NULL ? NULL : (const char *)p + (size_t)elements * size;
}

static char *moved_out(void *p, int64_t elements, size_t size)
{
    return p == NULL ? NULL : (char *)p + (size_t)elements * size;
}

const void *ebb_cuda_recurrent_in(const run_of *r, int i, int64_t from)
{
    return i >= 0 && ebb_call_has(r->call, (uint32_t)i)
               ? moved(r->call->in[i].data, from, r->stored)
               : NULL;
}

void *ebb_cuda_recurrent_out(const run_of *r, uint32_t o, int64_t from)
{
    return ebb_call_wants(r->call, o) ? moved_out(r->call->out[o].data, from, r->stored) : NULL;
}

static void read_call(run_of *r, const ebb_call *c, ebb_recurrent_errand errand)
{
    ebb_recurrent *s = &r->a.s;
    memset(r, 0, sizeof *r);
    (void)ebb_recurrent_read(s, c); // misfit() has seen it
    r->call = c;
    r->errand = errand;
    r->dtype = c->in[0].type.dtype;
    r->row = ebb_cuda_float_row(r->dtype);
    r->states = r->row == 1 ? (uint8_t)EBB_F64 : (uint8_t)EBB_F32;
    r->stored = ebb_element_bytes(&c->in[0].type);
    r->real = r->row == 1 ? sizeof(double) : sizeof(float);
    r->narrow = r->real != r->stored;
    r->H = s->hidden;
    r->B = s->batch;
    r->I = s->inputs;
    r->T = s->times;
    r->GH = s->gates * s->hidden;
    r->n = r->B * r->H;
    r->block = r->B > 0 && r->B < ROWS ? ROWS / r->B : 1;
    r->block = r->block < r->T ? r->block : r->T;
    r->block = r->block > 1 ? r->block : 1;
    r->a.width = s->cell == EBB_CELL_GRU ? 4 * r->H : r->GH;
    r->a.lengths = ebb_cuda_recurrent_in(r, s->at.lengths, 0);
    r->a.lengths_wide = has_lengths(r) && c->in[s->at.lengths].type.dtype == EBB_I64;
    r->a.position = c->position;
}

static void read_direction(run_of *r, int64_t d)
{
    ebb_recurrent_args *a = &r->a;
    const ebb_recurrent_slots *at = &a->s.at;
    a->d = d;
    r->x = ebb_cuda_recurrent_in(r, 0, 0);
    r->w = ebb_cuda_recurrent_in(r, 1, d * r->GH * r->I);
    r->r = ebb_cuda_recurrent_in(r, 2, d * r->GH * r->H);
    a->bias = ebb_cuda_recurrent_in(r, at->bias, d * 2 * r->GH);
    a->peepholes = ebb_cuda_recurrent_in(r, at->peepholes, d * 3 * r->H);
    a->h0 = ebb_cuda_recurrent_in(r, at->h0, 0);
    a->c0 = ebb_cuda_recurrent_in(r, at->c0, 0);
    a->h_all = ebb_cuda_recurrent_in(r, at->h_all, 0);
    a->c_all = ebb_cuda_recurrent_in(r, at->c_all, 0);
    a->g_all = ebb_cuda_recurrent_in(r, at->gates, 0);
    a->dh_all = ebb_cuda_recurrent_in(r, at->dh_all, 0);
    a->t = 0;
    a->steps = 1;
    a->drops = false;
}

/* ---- launches ---- */

ebb_status ebb_cuda_recurrent_launch(const run_of *r, const ebb_gpu_kernel *kernels, int64_t n)
{
    if (n == 0 || r->errand != EBB_RECURRENT_RUNS)
        return NULL;
    return EBB_LAUNCH(r->call, kernels[r->row], ebb_cuda_grid(n), EBB_CUDA_BLOCK, 0, r->a);
}

int64_t ebb_cuda_recurrent_time(const run_of *r, int64_t step)
{
    return ebb_recurrent_backwards(&r->a.s, r->a.d) ? r->T - 1 - step : step;
}

int64_t ebb_cuda_recurrent_steps(const run_of *r, int64_t steps)
{
    return r->errand == EBB_RECURRENT_RUNS || steps < 1 ? steps : 1;
}

void ebb_cuda_recurrent_at(run_of *r, int64_t t, int64_t first)
{
    r->a.t = t;
    r->a.steps = 1;
    r->a.sums = moved_out(r->sums, (t - first) * r->B * r->a.width, r->real);
}

/* n elements of a copy. */
static ebb_status copy(run_of *r, const ebb_gpu_kernel *kernels, void *to, const void *from,
                       int64_t n, int64_t t, int64_t steps, bool adds)
{
    r->a.to = to;
    r->a.from = from;
    r->a.n = n;
    r->a.t = t;
    r->a.steps = steps;
    r->a.adds = adds;
    return ebb_cuda_recurrent_launch(r, kernels, n);
}

/* ---- products ---- */

typedef struct side { /* a matrix, by its strides; timed: it begins at any step's first row */
    const void *p;
    int64_t row, column;
    bool timed;
} side;

typedef struct product { /* y [m, n] (+)= a [m, k] b [k, n] */
    ebb_recurrent_product which;
    bool other; /* than of a whole block */
    void *y;
    int64_t y_row, m, n, k;
    side a, b;
    bool timed_y, accumulates, first; /* first: there is nothing in y yet */
    uint8_t dtype, y_dtype;
} product;

static uint32_t align_of_side(const run_of *r, const void *p, bool timed, int64_t row,
                              uint8_t dtype)
{
    uint32_t align = ebb_cuda_align_of((uintptr_t)p);
    if (timed) {
        const uint64_t bytes = ebb_dtype_bits((ebb_dtype)dtype) / 8;
        const uint32_t step = ebb_cuda_align_of((uint64_t)(r->B * row) * bytes);
        align = step < align ? step : align;
    }
    return align;
}

static product make_product(const run_of *r, ebb_recurrent_product which, int64_t m, int64_t n,
                            int64_t k)
{
    product p;
    memset(&p, 0, sizeof p);
    p.which = which;
    p.m = m;
    p.n = p.y_row = n;
    p.k = k;
    p.timed_y = p.accumulates = true;
    p.dtype = p.y_dtype = r->states;
    return p;
}

static ebb_cuda_product read_product(const run_of *r, const product *of)
{
    ebb_cuda_product p;
    ebb_cuda_product_plain(&p, of->m, of->n, of->k);
    p.y = of->y;
    p.y_row = of->y_row;
    p.a = of->a.p;
    p.a_row = of->a.row;
    p.a_column = of->a.column;
    p.b = of->b.p;
    p.b_row = of->b.row;
    p.b_column = of->b.column;
    p.has_c = of->accumulates;
    p.c = of->accumulates && !of->first ? of->y : NULL;
    p.c_row = of->y_row;
    p.c_column = 1;
    p.wide_y = p.wide_c = of->dtype != of->y_dtype;
    p.parts = r->parts;
    const uint32_t aligns[3] = {
        align_of_side(r, of->y, of->timed_y, of->y_row, of->y_dtype),
        align_of_side(r, of->a.p, of->a.timed, of->a.row + of->a.column - 1, of->dtype),
        align_of_side(r, of->b.p, of->b.timed, of->b.row + of->b.column - 1, of->dtype),
    };
    for (int i = 0; i < 3; i++)
        p.align = aligns[i] < p.align ? aligns[i] : p.align;
    ebb_cuda_product_split(&p);
    return p;
}

static ebb_status multiply(run_of *r, const product *of)
{
    const ebb_cuda_products *by = ebb_cuda_products_by;
    if (of->m == 0 || of->n == 0)
        return NULL;
    ebb_cuda_product p = read_product(r, of);
    if (r->errand == EBB_RECURRENT_MEASURES) {
        const size_t bytes =
            by != NULL ? by->bytes(&p, of->dtype) : ebb_cuda_product_bytes(&p, of->dtype);
        r->parts_bytes = bytes > r->parts_bytes ? bytes : r->parts_bytes;
        return NULL;
    }
    const void **algorithm =
        r->chosen == NULL ? NULL : &r->chosen->algorithm[r->a.d][of->which][of->other];
    if (r->errand == EBB_RECURRENT_CHOOSES)
        return *algorithm != NULL ? NULL : by->choose(r->call, &p, of->dtype, algorithm);
    if (algorithm == NULL || *algorithm == NULL)
        return ebb_cuda_product_run(r->call, &p, of->dtype);
    return by->run(r->call, &p, of->dtype, *algorithm);
}

static side rows_of(const void *p, int64_t row)
{
    side s = {p, row, 1, true};
    return s;
}

static side turned(side s)
{
    const int64_t row = s.row;
    s.row = s.column;
    s.column = row;
    return s;
}

static side weights_of(const void *p, int64_t row)
{
    side s = {p, row, 1, false};
    return s;
}

/* Gates whose columns of sums are not beside those of the others: first column, first gate's row,
 * how many rows. Of W: all, of a GRU z r and n. Of R: all, or of a GRU that is not
 * linear_before_reset z r and n. */
typedef struct piece {
    int64_t column, row, rows;
} piece;

static int pieces_of(piece pieces[2], const run_of *r, bool of_r)
{
    const int64_t H = r->H;
    const piece all = {0, 0, r->GH}, two = {0, 0, 2 * H}, fresh = {3 * H, 2 * H, H};
    const bool apart = r->a.s.cell == EBB_CELL_GRU && !(of_r && r->a.s.linear_before_reset);
    pieces[0] = apart ? two : all;
    pieces[1] = fresh;
    return apart ? 2 : 1;
}

/* ---- forward ---- */

/* sums of steps t .. t + count - 1, from r->sums on: biases, and x W'. */
static ebb_status begin_sums(run_of *r, int64_t t, int64_t count)
{
    const int64_t rows = count * r->B;
    piece pieces[2];
    const int n = pieces_of(pieces, r, false);
    const bool copied = copies_inputs(r);
    void *sums = r->a.sums;
    r->a.steps = count;
    EBB_TRY(ebb_cuda_recurrent_launch(r, biases, rows * r->a.width));
    if (copied)
        EBB_TRY(copy(r, inputs, r->x_copy, r->x, rows * r->I, t, count, false));
    const void *x = copied ? (const void *)r->x_copy : moved(r->x, t * r->B * r->I, r->stored);
    const void *w = copied && r->narrow ? (const void *)r->w_copy : r->w;
    const uint8_t dtype = copied ? r->states : r->dtype;
    const size_t size = copied ? r->real : r->stored;
    for (int i = 0; i < n; i++) {
        product p =
            make_product(r, i == 0 ? EBB_OF_INPUTS : EBB_OF_INPUTS_NEW, rows, pieces[i].rows, r->I);
        p.other = count != r->block;
        p.y = moved_out(sums, pieces[i].column, r->real);
        p.y_row = r->a.width;
        p.a = rows_of(x, r->I);
        p.b = turned(weights_of(moved(w, pieces[i].row * r->I, size), r->I));
        p.dtype = dtype;
        EBB_TRY(multiply(r, &p));
    }
    return NULL;
}

/* sums += h R', and what r of a GRU does: of r->a.steps steps from r->a.sums, .before on. */
static ebb_status add_states(run_of *r, bool all)
{
    const int64_t rows = r->a.steps * r->B, width = r->a.width, H = r->H;
    piece pieces[2];
    const int n = pieces_of(pieces, r, true);
    for (int i = 0; i < n; i++) {
        const ebb_recurrent_product which = i == 0 ? (all ? EBB_OF_STATES : EBB_OF_STATE)
                                                   : (all ? EBB_OF_STATES_FED : EBB_OF_STATE_FED);
        const side from =
            i == 0 ? rows_of(r->a.before, H) : rows_of(moved_out(r->a.sums, 2 * H, r->real), width);
        product p = make_product(r, which, rows, pieces[i].rows, H);
        p.y = moved_out(r->a.sums, pieces[i].column, r->real);
        p.y_row = width;
        p.a = from;
        p.b = turned(weights_of(moved(r->r, pieces[i].row * H, r->real), H));
        EBB_TRY(multiply(r, &p));
        if (i == 0 && r->a.s.cell == EBB_CELL_GRU)
            EBB_TRY(ebb_cuda_recurrent_launch(r, feds, rows * H));
    }
    return NULL;
}

/* Weights as products read them. */
static ebb_status copy_weights(run_of *r)
{
    if (copies_w(r))
        EBB_TRY(copy(r, widens, r->w_copy, r->w, r->GH * r->I, 0, 1, false));
    if (!r->narrow)
        return NULL;
    EBB_TRY(copy(r, widens, r->r_copy, r->r, r->GH * r->H, 0, 1, false));
    r->r = r->r_copy;
    return NULL;
}

ebb_status ebb_cuda_recurrent_forward(run_of *r, const ebb_gpu_kernel *cells)
{
    const bool back = ebb_recurrent_backwards(&r->a.s, r->a.d);
    EBB_TRY(copy_weights(r));
    EBB_TRY(ebb_cuda_recurrent_launch(r, begins, r->n));
    for (int64_t first = 0; first < r->T; first += r->block) {
        const int64_t count = r->block < r->T - first ? r->block : r->T - first;
        const int64_t lowest = back ? r->T - first - count : first;
        ebb_cuda_recurrent_at(r, lowest, lowest);
        EBB_TRY(begin_sums(r, lowest, count));
        for (int64_t step = 0; step < ebb_cuda_recurrent_steps(r, count); step++) {
            ebb_cuda_recurrent_at(r, ebb_cuda_recurrent_time(r, first + step), lowest);
            r->a.before = r->a.h;
            EBB_TRY(add_states(r, false));
            EBB_TRY(ebb_cuda_recurrent_launch(r, cells, r->n));
        }
    }
    r->a.drops = true;
    return ebb_cuda_recurrent_launch(r, ends, r->n);
}

/* ---- backward ---- */

ebb_status ebb_cuda_recurrent_again(run_of *r)
{
    const int64_t count = copies_inputs(r) ? r->block : r->T;
    r->a.t = 0;
    r->a.steps = r->T;
    r->a.before = r->before;
    EBB_TRY(ebb_cuda_recurrent_launch(r, states, r->T * r->n));
    for (int64_t t = 0; t < r->T; t += count) {
        ebb_cuda_recurrent_at(r, t, 0);
        EBB_TRY(begin_sums(r, t, count < r->T - t ? count : r->T - t));
    }
    ebb_cuda_recurrent_at(r, 0, 0);
    r->a.steps = r->T;
    r->a.before = r->before;
    return add_states(r, true);
}

ebb_status ebb_cuda_recurrent_begin_back(run_of *r)
{
    const ebb_recurrent_slots *at = &r->a.s.at;
    const void *h0 = r->a.h0, *c0 = r->a.c0;
    EBB_TRY(copy_weights(r));
    r->a.h0 = ebb_cuda_recurrent_in(r, at->dh_last, 0);
    r->a.c0 = ebb_cuda_recurrent_in(r, at->dc_last, 0);
    r->a.drops = true;
    EBB_TRY(ebb_cuda_recurrent_launch(r, begins, r->n));
    r->a.h0 = h0;
    r->a.c0 = c0;
    r->a.drops = false;
    return NULL;
}

ebb_status ebb_cuda_recurrent_end_back(run_of *r)
{
    r->a.last_h = ebb_cuda_recurrent_out(r, 4, 0);
    r->a.last_c = ebb_cuda_recurrent_out(r, 5, 0);
    return ebb_cuda_recurrent_launch(r, ends, r->n);
}

ebb_status ebb_cuda_recurrent_to_fed(run_of *r)
{
    const int64_t H = r->H;
    product p = make_product(r, EBB_TO_FED, r->B, H, H);
    p.y = r->a.fed;
    p.a = rows_of(moved_out(r->a.sums, 3 * H, r->real), r->a.width);
    p.b = weights_of(moved(r->r, 2 * H * H, r->real), H);
    p.timed_y = false;
    p.accumulates = false;
    return multiply(r, &p);
}

/* Rows of R that the columns of da from 0 on belong to. */
ebb_status ebb_cuda_recurrent_to_state(run_of *r)
{
    piece pieces[2];
    (void)pieces_of(pieces, r, true);
    product p = make_product(r, EBB_TO_STATE, r->B, r->H, pieces[0].rows);
    p.y = r->a.h;
    p.a = rows_of(r->a.sums, r->a.width);
    p.b = weights_of(r->r, r->H);
    p.timed_y = false;
    return multiply(r, &p);
}

/* ---- gradients of the operands ---- */

/* da of step t. */
static side da_of(const run_of *r, int64_t t, int64_t column)
{
    return rows_of(moved(r->sums, t * r->B * r->a.width + column, r->real), r->a.width);
}

static ebb_status to_inputs(run_of *r, int64_t t, int64_t count)
{
    const bool copied = copies_dx(r);
    void *out = ebb_cuda_recurrent_out(r, 0, copied ? 0 : t * r->B * r->I);
    const void *w = copies_w(r) ? (const void *)r->w_copy : r->w;
    piece pieces[2];
    const int n = pieces_of(pieces, r, false);
    for (int i = 0; i < n; i++) {
        product p = make_product(r, i == 0 ? EBB_TO_INPUTS : EBB_TO_INPUTS_NEW, count * r->B, r->I,
                                 pieces[i].rows);
        p.other = count != r->block;
        p.y = copied ? (void *)r->dx : out;
        p.a = da_of(r, t, pieces[i].column);
        p.b = weights_of(moved(w, pieces[i].row * r->I, r->real), r->I);
        p.first = i == 0 && (copied || r->a.d == 0);
        EBB_TRY(multiply(r, &p));
    }
    return copied ? copy(r, outputs, out, r->dx, count * r->B * r->I, t, count, r->a.d > 0) : NULL;
}

static ebb_status to_w(run_of *r, int64_t t, int64_t count)
{
    const bool copied = copies_inputs_back(r);
    char *to = r->narrow ? r->dw : (char *)ebb_cuda_recurrent_out(r, 1, r->a.d * r->GH * r->I);
    if (copied)
        EBB_TRY(copy(r, inputs, r->x_copy, r->x, count * r->B * r->I, t, count, false));
    const void *x = copied ? (const void *)r->x_copy : moved(r->x, t * r->B * r->I, r->stored);
    piece pieces[2];
    const int n = pieces_of(pieces, r, false);
    for (int i = 0; i < n; i++) {
        product p =
            make_product(r, i == 0 ? EBB_TO_W : EBB_TO_W_NEW, pieces[i].rows, r->I, count * r->B);
        p.other = count != r->block;
        p.y = moved_out(to, pieces[i].row * r->I, r->real);
        p.a = turned(da_of(r, t, pieces[i].column));
        p.b = rows_of(x, r->I);
        p.timed_y = false;
        p.first = t == 0;
        EBB_TRY(multiply(r, &p));
    }
    return NULL;
}

/* before: the rows of step t. */
static ebb_status to_r(run_of *r, int64_t t, int64_t count, const void *before)
{
    char *to = r->narrow ? r->dr : (char *)ebb_cuda_recurrent_out(r, 2, r->a.d * r->GH * r->H);
    piece pieces[2];
    const int n = pieces_of(pieces, r, true);
    for (int i = 0; i < n; i++) {
        product p =
            make_product(r, i == 0 ? EBB_TO_R : EBB_TO_R_FED, pieces[i].rows, r->H, count * r->B);
        p.other = count != r->block;
        p.y = moved_out(to, pieces[i].row * r->H, r->real);
        p.a = turned(da_of(r, t, pieces[i].column));
        p.b = i == 0 ? rows_of(before, r->H) : da_of(r, t, 2 * r->H);
        p.timed_y = false;
        p.first = t == 0;
        EBB_TRY(multiply(r, &p));
    }
    return NULL;
}

/* A product over all steps, or over block after block of what is copied; over none where there are
 * no steps: the gradient is zero then. */
static ebb_status over_steps(run_of *r, uint32_t o)
{
    const bool whole = o == 0 ? !copies_dx(r) : o == 1 ? !copies_inputs_back(r) : !r->a.s.kept;
    const int64_t each = whole && r->T > 0 ? r->T : r->block;
    for (int64_t t = 0; t == 0 || t < r->T; t += each) {
        const int64_t count = each < r->T - t ? each : r->T - t;
        if (o == 0)
            EBB_TRY(to_inputs(r, t, count));
        else if (o == 1)
            EBB_TRY(to_w(r, t, count));
        else if (whole)
            EBB_TRY(to_r(r, t, count, r->before));
        else {
            r->a.before = r->before;
            EBB_TRY(copy(r, states, NULL, NULL, count * r->n, t, count, false));
            EBB_TRY(to_r(r, t, count, r->before));
        }
    }
    return NULL;
}

static ebb_status to_biases(run_of *r)
{
    r->a.to = ebb_cuda_recurrent_out(r, 3, r->a.d * 2 * r->GH);
    r->a.sums = r->sums;
    r->a.n = r->T * r->B;
    if (r->errand != EBB_RECURRENT_RUNS)
        return NULL;
    return EBB_LAUNCH(r->call, columns[r->row],
                      ebb_cuda_blocks((r->a.width + EBB_WARP - 1) / EBB_WARP), EBB_CUDA_BLOCK,
                      (uint32_t)(EBB_CUDA_BLOCK * r->real), r->a);
}

ebb_status ebb_cuda_recurrent_gradients(run_of *r)
{
    const int64_t sizes[3] = {0, r->GH * r->I, r->GH * r->H};
    for (uint32_t o = 0; o < 3; o++) {
        if (!ebb_call_wants(r->call, o))
            continue;
        EBB_TRY(over_steps(r, o));
        if (o > 0 && r->narrow)
            EBB_TRY(copy(r, rounds, ebb_cuda_recurrent_out(r, o, r->a.d * sizes[o]),
                         o == 1 ? r->dw : r->dr, sizes[o], 0, 1, false));
    }
    return ebb_call_wants(r->call, 3) ? to_biases(r) : NULL;
}

/* ---- phases ---- */

static ebb_status go_through(run_of *r, ebb_recurrent_work work)
{
    for (int64_t d = 0; d < r->a.s.directions; d++) {
        read_direction(r, d);
        EBB_TRY(work(r));
    }
    return NULL;
}

ebb_status ebb_cuda_recurrent_workspace(const ebb_call *c, size_t *bytes, ebb_recurrent_work work)
{
    run_of r;
    *bytes = 0;
    read_call(&r, c, EBB_RECURRENT_MEASURES);
    if (!lay_out(&r, bytes))
        return ebb_call_error(c, "the scratch memory is too large to address");
    EBB_TRY(go_through(&r, work));
    return ebb_size_add(bytes, *bytes, r.parts_bytes)
               ? NULL
               : ebb_call_error(c, "the scratch memory is too large to address");
}

ebb_status ebb_cuda_recurrent_prepare(ebb_call *c, ebb_recurrent_work work)
{
    run_of r;
    size_t bytes;
    if (ebb_cuda_products_by == NULL || c->in[0].data == NULL)
        return NULL;
    ebb_recurrent_chosen *chosen = (ebb_recurrent_chosen *)ebb_alloc(sizeof *chosen);
    EBB_GOT(chosen);
    memset(chosen, 0, sizeof *chosen);
    c->state = chosen;
    read_call(&r, c, EBB_RECURRENT_CHOOSES);
    (void)lay_out(&r, &bytes); // workspace() has seen it
    r.chosen = chosen;
    return go_through(&r, work);
}

ebb_status ebb_cuda_recurrent_run(const ebb_call *c, ebb_recurrent_work work)
{
    run_of r;
    size_t bytes;
    read_call(&r, c, EBB_RECURRENT_RUNS);
    if (!lay_out(&r, &bytes))
        return ebb_call_error(c, "the scratch memory is too large to address");
    r.chosen = (ebb_recurrent_chosen *)c->state;
    r.a.step = ebb_cuda_queue_of(c)->step;
    return go_through(&r, work);
}
