/* recurrent.h: what the kernels of recurrent layers share: the products, which are a library's
 * where there is one (product.h), and all that steps of any cell have in common.
 *
 *     sums [steps, B, width]     RNN  s     LSTM  i o f n     GRU  z r s n
 *
 *     forward   of a block of steps   sums = x W' + b                 one product
 *               of each step          sums += h R', then the cell     one product, one launch
 *     backward  of all steps          sums as they were, unless gates were kept
 *               of each step          sums become da, dc; dh += da R  one launch, one product
 *               of all steps          dX = da W, dW = da' X, dR = da' h before, db
 *
 * n of a GRU is fed by s: with linear_before_reset s = h Rn' + b is what r is times of, so that z,
 * r and s are one product; else s = r h, whose product n gets. Columns of sums are matrices of
 * their own for a product, which knows how far rows lie apart.
 *
 * A block of steps has some thousand rows, enough for a product; so the workspace does not grow
 * with the length. What products read is copied to their liking where it lies otherwise: 16 bits
 * beside float32 states, a batch outside of the steps, steps beyond a sequence's length as zeros.
 */
#pragma once

#include "kernels/cuda/product.h"
#include "kernels/call/recurrent.h"

EBB_C_BEGIN

typedef struct ebb_recurrent_args { /* of a launch, in one direction of one call */
    ebb_recurrent s;
    int64_t d, width;
    const void *bias, *h0, *c0, *peepholes, *h_all, *c_all, *g_all, *dh_all; /* NULL: not there */
    const void *lengths;
    bool lengths_wide;                         /* int64 */
    void *y, *c_wanted, *g_wanted;             /* of all steps */
    void *last_h, *last_c;                     /* backward: gradients of the first states */
    void *h, *c, *sums, *before, *cells, *fed; /* workspace: backward dh, dc; cells [T, B, H] */
    int64_t t, steps; /* of this launch: from t on; rows of sums and before begin there */
    bool drops;       /* what is behind a sequence of no steps is zero */
    const void *from; /* of copies */
    void *to;
    int64_t n;
    bool adds;
    ebb_cuda_step *step;
    uint32_t position;
} ebb_recurrent_args;

/* Products that a call may have, each in both directions of time. */
typedef enum ebb_recurrent_product {
    EBB_OF_INPUTS,
    EBB_OF_INPUTS_NEW, /* n of a GRU apart from z and r */
    EBB_OF_STATE,      /* of a step; */
    EBB_OF_STATE_FED,
    EBB_OF_STATES, /* of all steps */
    EBB_OF_STATES_FED,
    EBB_TO_STATE,
    EBB_TO_FED,
    EBB_TO_INPUTS,
    EBB_TO_INPUTS_NEW,
    EBB_TO_W,
    EBB_TO_W_NEW,
    EBB_TO_R,
    EBB_TO_R_FED,
    EBB_RECURRENT_PRODUCTS
} ebb_recurrent_product;

typedef struct ebb_recurrent_chosen {                    /* NULL: the product is our own */
    const void *algorithm[2][EBB_RECURRENT_PRODUCTS][2]; /* by direction; of whole blocks, others */
} ebb_recurrent_chosen;

/* A call's work is gone through to measure its workspace, to choose algorithms, and to run. */
typedef enum ebb_recurrent_errand {
    EBB_RECURRENT_MEASURES,
    EBB_RECURRENT_CHOOSES,
    EBB_RECURRENT_RUNS
} ebb_recurrent_errand;

typedef struct ebb_recurrent_run {
    const ebb_call *call;
    ebb_recurrent_errand errand;
    ebb_recurrent_args a;
    int row;                   /* of tables of kernels */
    uint8_t dtype, states;     /* of tensors, of states */
    size_t stored, real;       /* bytes of an element in a tensor, of a state */
    bool narrow;               /* those differ */
    int64_t H, B, I, T, GH, n; /* n = B * H */
    int64_t block;             /* steps */
    const void *x, *w, *r;     /* of this direction; r as products read it */
    char *sums, *before, *x_copy, *w_copy, *r_copy, *dx, *dw, *dr, *parts; /* workspace */
    size_t parts_bytes;
    ebb_recurrent_chosen *chosen;
} ebb_recurrent_run;

/* One direction of a call, r->a.d. */
typedef ebb_status (*ebb_recurrent_work)(ebb_recurrent_run *r);

/* The phases of a kernel whose call fits. */
ebb_status ebb_cuda_recurrent_workspace(const ebb_call *c, size_t *bytes, ebb_recurrent_work work);
ebb_status ebb_cuda_recurrent_prepare(ebb_call *c, ebb_recurrent_work work);
ebb_status ebb_cuda_recurrent_run(const ebb_call *c, ebb_recurrent_work work);

/* The phases by work_of(call), an ebb_recurrent_work; and a row of such kernels. */
#define EBB_RECURRENT_PHASES(work_of)                              \
    static ebb_status workspace(const ebb_call *c, size_t *bytes)  \
    {                                                              \
        return ebb_cuda_recurrent_workspace(c, bytes, work_of(c)); \
    }                                                              \
    static ebb_status prepare(ebb_call *c)                         \
    {                                                              \
        return ebb_cuda_recurrent_prepare(c, work_of(c));          \
    }                                                              \
    static ebb_status run(const ebb_call *c)                       \
    {                                                              \
        return ebb_cuda_recurrent_run(c, work_of(c));              \
    }
#define EBB_RECURRENT_ROW(name, op)                                                 \
    {                                                                               \
        name, op, ebb_cuda_floats, misfit, workspace, prepare, run, ebb_call_forget \
    }

/* Input i, output o from element `from` on; NULL where it is not there. */
const void *ebb_cuda_recurrent_in(const ebb_recurrent_run *r, int i, int64_t from);
void *ebb_cuda_recurrent_out(const ebb_recurrent_run *r, uint32_t o, int64_t from);

/* n threads of one of the kernels, by r->row, with r->a. */
ebb_status ebb_cuda_recurrent_launch(const ebb_recurrent_run *r, const ebb_gpu_kernel *kernels,
                                     int64_t n);
/* The `step`th in the order of this direction. */
int64_t ebb_cuda_recurrent_time(const ebb_recurrent_run *r, int64_t step);
/* Steps that the errand goes through, of so many: all do the same. */
int64_t ebb_cuda_recurrent_steps(const ebb_recurrent_run *r, int64_t steps);
/* Sets r->a.t, .sums to those of step t, where the rows of sums begin with step `first`. */
void ebb_cuda_recurrent_at(ebb_recurrent_run *r, int64_t t, int64_t first);

/* The whole forward, of which the cell is the kernels'. */
ebb_status ebb_cuda_recurrent_forward(ebb_recurrent_run *r, const ebb_gpu_kernel *cells);
/* Of the backward: sums and h before of all steps. */
ebb_status ebb_cuda_recurrent_again(ebb_recurrent_run *r);
/* dh and dc of the last step; those of the first are written. */
ebb_status ebb_cuda_recurrent_begin_back(ebb_recurrent_run *r);
ebb_status ebb_cuda_recurrent_end_back(ebb_recurrent_run *r);
/* Of the step that r->a is at: fed = dn Rn of a GRU; dh += da R. */
ebb_status ebb_cuda_recurrent_to_fed(ebb_recurrent_run *r);
ebb_status ebb_cuda_recurrent_to_state(ebb_recurrent_run *r);
/* dX, dW, dR, db from the da of all steps. */
ebb_status ebb_cuda_recurrent_gradients(ebb_recurrent_run *r);

/* ---- for kernels ---- */

EBB_GPU_INLINE int64_t ebb_recurrent_length(const ebb_recurrent_args *a, int64_t b)
{
    if (a->lengths == NULL)
        return a->s.times;
    const int64_t n = a->lengths_wide ? ((const int64_t *)a->lengths)[b]
                                      : (int64_t)((const int32_t *)a->lengths)[b];
    return n < 0 ? 0 : n < a->s.times ? n : a->s.times;
}

/* Whether a state can arrive at the end: not behind a sequence that is said to have no steps. */
EBB_GPU_INLINE bool ebb_recurrent_has_end(const ebb_recurrent_args *a, int64_t b)
{
    return a->lengths == NULL || ebb_recurrent_length(a, b) > 0;
}

EBB_GPU_INLINE int64_t ebb_recurrent_x_row(const ebb_recurrent_args *a, int64_t t, int64_t b)
{
    return (a->s.batch_first ? b * a->s.times + t : t * a->s.batch + b) * a->s.inputs;
}

/* The step before t of sequence b; -1: it begins with t. */
EBB_GPU_INLINE int64_t ebb_recurrent_before(const ebb_recurrent_args *a, int64_t t, int64_t b)
{
    const int64_t before = ebb_recurrent_backwards(&a->s, a->d) ? t + 1 : t - 1;
    return before < 0 || before >= ebb_recurrent_length(a, b) ? -1 : before;
}

/* Columns of sums: of n, and of s of a GRU. */
EBB_GPU_INLINE int64_t ebb_recurrent_new_column(const ebb_recurrent *s)
{
    return 3 * s->hidden;
}

EBB_GPU_INLINE int64_t ebb_recurrent_fed_column(const ebb_recurrent *s)
{
    return 2 * s->hidden;
}

EBB_C_END
