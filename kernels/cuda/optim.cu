/* optim.cu: the optimizers' steps, each one pass over weight, gradient and states; a launch takes
 * as many tensors as its parameters hold (many.h), of one call or of calls that follow each other.
 *
 *     Momentum(w0 ..)  Momentum(w1 ..)  Momentum(w2 ..)       one launch: the same rate, count and
 *     |- blocks 0..2 -||- block 3 ----||- blocks 4..8 -|      attributes, and nobody's results over
 *                                                             what another reads
 *
 * Rates and counts of steps change from step to step, so kernels read them from device memory and
 * work out the corrections themselves: in double, as the plain kernels do.
 */
#include "kernels/call/misfit.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/fuse/group.h"
#include "kernels/cuda/many.h"

enum { TENSORS = 56, STATES = 2 };

typedef struct optim_tensor {
    void *out, *state_out[STATES];
    const void *w, *g, *state[STATES];
    int64_t n;
} optim_tensor;

typedef struct optim_head { /* compared as bytes: clear it first */
    ebb_cuda_number rate, count;
    double alpha, beta, epsilon, decay, other;
    int32_t nesterov;
    uint32_t dtype, op;
} optim_head;

typedef struct optim_args {
    optim_head by;
    uint32_t count;
    int64_t chunk; /* elements of a block */
    uint32_t end[TENSORS];
    optim_tensor tensor[TENSORS];
} optim_args;

static_assert(sizeof(optim_args) <= EBB_MANY_PARAMETERS, "more than a kernel's parameters");

typedef struct optim_share { /* of a thread: every EBB_THREADS-th from first on */
    const optim_tensor *t;
    int64_t first, end;
} optim_share;

EBB_GPU_INLINE optim_share share_of(const optim_args *a, uint32_t block, uint32_t thread)
{
    const ebb_many_share m = ebb_many_find(a->end, a->count, block);
    const int64_t begin = m.block * a->chunk, end = begin + a->chunk;
    optim_share s = {&a->tensor[m.tensor], begin + thread, end};
    if (s.end > s.t->n)
        s.end = s.t->n;
    return s;
}

#define KERNELS "kernels/cuda/optim_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel sgd[] = EBB_CUDA_FLOATS(sgd);
static const ebb_gpu_kernel momentum[] = EBB_CUDA_FLOATS(momentum);
static const ebb_gpu_kernel adam[] = EBB_CUDA_FLOATS(adam);
static const ebb_gpu_kernel adagrad[] = EBB_CUDA_FLOATS(adagrad);
static const ebb_gpu_kernel adamw[] = EBB_CUDA_FLOATS(adamw);

/* ---- the operators ---- */

typedef struct factor { /* an attribute; name NULL: there is none */
    const char *name;
    double otherwise;
} factor;

typedef struct form {
    ebb_op op;
    const ebb_gpu_kernel *kernels;
    uint32_t scalars, states; /* (lr) or (lr, count); then X..., G..., states... */
    factor alpha, beta, epsilon, decay, other;
} form;

// clang-format off
static const form forms[] = {
    /* W' = W - lr (G + decay W) */
    {EBB_OP_SGD,      sgd,      1, 0, {NULL, 0}, {NULL, 0}, {NULL, 0}, {"weight_decay", 0}, {NULL, 0}},
    /* T > 0: beta counts, from the second step on */
    {EBB_OP_MOMENTUM, momentum, 2, 1, {"alpha", 0}, {"beta", 1}, {NULL, 0}, {"norm_coefficient", 0}, {NULL, 0}},
    /* T: which step this is; at 0 nothing is corrected */
    {EBB_OP_ADAM,     adam,     2, 2, {"alpha", (double)0.9f}, {"beta", (double)0.999f}, {"epsilon", (double)1e-6f}, {"norm_coefficient", 0}, {"norm_coefficient_post", 0}},
    {EBB_OP_ADAGRAD,  adagrad,  2, 1, {NULL, 0}, {NULL, 0}, {"epsilon", (double)1e-6f}, {"norm_coefficient", 0}, {"decay_factor", 0}},
    /* T steps have been done, this one is step T + 1 */
    {EBB_OP_ADAMW,    adamw,    2, 2, {"alpha", (double)0.9f}, {"beta", (double)0.999f}, {"epsilon", (double)1e-8f}, {"weight_decay", (double)0.01f}, {NULL, 0}},
};
// clang-format on

static const form *form_of(ebb_op op)
{
    const form *f = forms;
    while (f->op != op) // the table of kernels has no others
        f++;
    return f;
}

static double factor_of(const ebb_call *c, factor f)
{
    return f.name != NULL ? ebb_attr_float(&c->attrs, f.name, f.otherwise) : 0;
}

static ebb_status read_head(optim_head *h, const ebb_call *c, const form *f)
{
    const char *mode =
        c->op == EBB_OP_MOMENTUM ? ebb_attr_string(&c->attrs, "mode", "standard") : "standard";
    memset(h, 0, sizeof *h);
    h->nesterov = strcmp(mode, "nesterov") == 0;
    if (!h->nesterov && strcmp(mode, "standard") != 0)
        return ebb_call_error(c, "mode '%s' is neither standard nor nesterov", mode);
    h->rate = ebb_cuda_number_of(&c->in[0]);
    if (f->scalars > 1)
        h->count = ebb_cuda_number_of(&c->in[1]);
    h->alpha = factor_of(c, f->alpha);
    h->beta = factor_of(c, f->beta);
    h->epsilon = factor_of(c, f->epsilon);
    h->decay = factor_of(c, f->decay);
    h->other = factor_of(c, f->other);
    h->dtype = c->in[f->scalars].type.dtype;
    h->op = (uint32_t)c->op;
    return NULL;
}

/* ---- tables ---- */

/* The places of a tensor: what it writes, then what it reads; NULL where it has no such state. */
enum { PLACES = 3 + 2 * STATES, WRITTEN = 1 + STATES };

static void places_of(const optim_tensor *t, const void *places[PLACES])
{
    const void *all[PLACES] = {t->out, t->state_out[0], t->state_out[1], t->w,
                               t->g,   t->state[0],     t->state[1]};
    memcpy(places, all, sizeof all);
}

/* Of two tensors: does one write where the other reads or writes? */
static bool clash(const optim_tensor *a, const optim_tensor *b, size_t element)
{
    const void *of_a[PLACES], *of_b[PLACES];
    places_of(a, of_a);
    places_of(b, of_b);
    for (int i = 0; i < PLACES; i++)
        for (int k = 0; k < PLACES; k++)
            if ((i < WRITTEN || k < WRITTEN) && of_a[i] != NULL && of_b[k] != NULL &&
                ebb_many_overlap(of_a[i], (size_t)a->n * element, of_b[k], (size_t)b->n * element))
                return true;
    return false;
}

static ebb_status launch(const ebb_call *c, optim_args *a)
{
    enum { BLOCKS = 2048 };
    int64_t total = 0;
    uint32_t blocks = 0;
    if (a->count == 0)
        return NULL;
    for (uint32_t k = 0; k < a->count; k++)
        total += a->tensor[k].n;
    a->chunk = (total / BLOCKS + EBB_CUDA_BLOCK) / EBB_CUDA_BLOCK * EBB_CUDA_BLOCK;
    for (uint32_t k = 0; k < a->count; k++)
        a->end[k] = blocks += (uint32_t)((a->tensor[k].n + a->chunk - 1) / a->chunk);
    const form *f = form_of((ebb_op)a->by.op);
    ebb_status status = EBB_LAUNCH(c, f->kernels[ebb_cuda_float_row((uint8_t)a->by.dtype)],
                                   ebb_cuda_blocks(blocks), EBB_CUDA_BLOCK, 0, *a);
    a->count = 0;
    return status;
}

/* Tensors go one after the other where it matters: an output may lie over what an earlier one has
 * read. */
static ebb_status add(const ebb_call *c, optim_args *a, const optim_tensor *t)
{
    const size_t element = ebb_dtype_bits((ebb_dtype)a->by.dtype) / 8;
    bool fits = a->count < TENSORS;
    if (t->n == 0)
        return NULL;
    for (uint32_t k = 0; fits && k < a->count; k++)
        fits = !clash(&a->tensor[k], t, element);
    if (!fits)
        EBB_TRY(launch(c, a));
    a->tensor[a->count++] = *t;
    return NULL;
}

/* (lr, T, X..., G..., states...) -> X'..., states'...; an output may lie over its own input. */
static ebb_status add_call(const ebb_call *c, optim_args *a)
{
    const form *f = form_of(c->op);
    const uint32_t groups = (c->input_count - f->scalars) / (2 + f->states);
    optim_head head;
    EBB_TRY(read_head(&head, c, f));
    if (memcmp(&head, &a->by, sizeof head) != 0) {
        EBB_TRY(launch(c, a));
        a->by = head;
    }
    for (uint32_t i = 0; i < groups; i++) {
        const ebb_operand *x = &c->in[f->scalars + i];
        optim_tensor t;
        memset(&t, 0, sizeof t);
        t.w = x->data;
        t.g = x[groups].data;
        t.out = c->out[i].data;
        t.n = ebb_elements(&x->type);
        for (uint32_t s = 0; s < f->states; s++) {
            t.state[s] = x[(2 + s) * groups].data;
            t.state_out[s] = c->out[(1 + s) * groups + i].data;
        }
        EBB_TRY(add(c, a, &t));
    }
    return NULL;
}

ebb_status ebb_cuda_optim_run(const ebb_call *calls, uint32_t count)
{
    optim_args a;
    memset(&a, 0, sizeof a);
    for (uint32_t k = 0; k < count; k++)
        EBB_TRY(add_call(&calls[k], &a));
    return launch(calls, &a);
}

static ebb_status run(const ebb_call *c)
{
    return ebb_cuda_optim_run(c, 1);
}

/* ---- what rows ask ---- */

static const char *declines(const ebb_call *c)
{
    const form *f = form_of(c->op);
    const uint32_t each = 2 + f->states, first = f->scalars;
    const uint32_t groups = c->input_count < first + each ? 0 : (c->input_count - first) / each;
    if (groups == 0 || c->input_count != first + groups * each ||
        c->output_count != groups * (1 + f->states))
        return "wrong number of operands";
    const char *why = ebb_update_misfit(c, first, groups);
    return why != NULL || ebb_dtype_is_float((ebb_dtype)c->in[first].type.dtype)
               ? why
               : "computes in float16, bfloat16, float32 and float64 only";
}

const ebb_kernel ebb_cuda_optim[] = {
    {.name = "cuda.sgd", .op = EBB_OP_SGD, .fits = declines, .run = run},
    {.name = "cuda.momentum", .op = EBB_OP_MOMENTUM, .fits = declines, .run = run},
    {.name = "cuda.adam", .op = EBB_OP_ADAM, .fits = declines, .run = run},
    {.name = "cuda.adagrad", .op = EBB_OP_ADAGRAD, .fits = declines, .run = run},
    {.name = "cuda.adamw", .op = EBB_OP_ADAMW, .fits = declines, .run = run},
};
EBB_CUDA_COUNT(optim)
