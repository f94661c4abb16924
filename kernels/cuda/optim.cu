/* optim.cu: the optimizers' steps, each one pass over weight, gradient and states.
 *
 * Rates and counts of steps change from step to step, so kernels read them from device memory and
 * work out the corrections themselves: in double, as the plain kernels do.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/floats.h"

typedef struct sgd_args {
    void *out;
    const void *w, *g;
    int64_t n;
    ebb_cuda_number rate;
    double decay;
} sgd_args;

typedef struct momentum_args {
    void *w_out, *v_out;
    const void *w, *g, *v;
    int64_t n;
    ebb_cuda_number rate, count; /* beta counts from the second step on */
    double alpha, beta, decay;
    int32_t nesterov;
} momentum_args;

typedef struct adamw_args {
    void *w_out, *m_out, *v_out;
    const void *w, *g, *m, *v;
    int64_t n;
    ebb_cuda_number rate, count;
    double alpha, beta, epsilon, decay;
} adamw_args;

typedef struct adam_args {
    void *w_out, *v_out, *h_out;
    const void *w, *g, *v, *h;
    int64_t n;
    ebb_cuda_number rate, count; /* which step this is; at 0 nothing is corrected */
    double alpha, beta, epsilon, decay, keep;
} adam_args;

typedef struct adagrad_args {
    void *w_out, *h_out;
    const void *w, *g, *h;
    int64_t n;
    ebb_cuda_number rate, count;
    double falls, epsilon, decay;
} adagrad_args;

#define KERNELS "kernels/cuda/optim_kernels.inc"
#include "kernels/cuda/all_floats.inc"

static const ebb_gpu_kernel sgd[] = EBB_CUDA_FLOATS(sgd);
static const ebb_gpu_kernel momentum[] = EBB_CUDA_FLOATS(momentum);
static const ebb_gpu_kernel adam[] = EBB_CUDA_FLOATS(adam);
static const ebb_gpu_kernel adagrad[] = EBB_CUDA_FLOATS(adagrad);
static const ebb_gpu_kernel adamw[] = EBB_CUDA_FLOATS(adamw);

/* (lr, W, G) {weight_decay = 0} -> W'. W' may be W. */
static ebb_status run_sgd(const ebb_call *c)
{
    sgd_args a;
    memset(&a, 0, sizeof a);
    a.out = c->out[0].data;
    a.w = c->in[1].data;
    a.g = c->in[2].data;
    a.n = ebb_elements(&c->in[1].type);
    a.rate = ebb_cuda_number_of(&c->in[0]);
    a.decay = ebb_attr_float(&c->attrs, "weight_decay", 0.0);
    return EBB_LAUNCH(c, sgd[ebb_cuda_float_row(c->in[1].type.dtype)], ebb_cuda_grid(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

/* (R, T, X..., G..., V...) {alpha, beta, mode, norm_coefficient} -> X'..., V'.... Groups go one
 * after the other: an output may lie over an input of an earlier group. */
static ebb_status run_momentum(const ebb_call *c)
{
    const char *mode = ebb_attr_string(&c->attrs, "mode", "standard");
    momentum_args a;
    memset(&a, 0, sizeof a);
    a.nesterov = strcmp(mode, "nesterov") == 0;
    if (!a.nesterov && strcmp(mode, "standard") != 0)
        return ebb_call_error(c, "mode '%s' is neither standard nor nesterov", mode);
    a.rate = ebb_cuda_number_of(&c->in[0]);
    a.count = ebb_cuda_number_of(&c->in[1]);
    a.alpha = ebb_attr_float(&c->attrs, "alpha", 0.0);
    a.beta = ebb_attr_float(&c->attrs, "beta", 1.0);
    a.decay = ebb_attr_float(&c->attrs, "norm_coefficient", 0.0);
    uint32_t groups = (c->input_count - 2) / 3;
    for (uint32_t i = 0; i < groups; i++) {
        const ebb_operand *x = &c->in[2 + i];
        a.w = x->data;
        a.g = x[groups].data;
        a.v = x[2 * groups].data;
        a.w_out = c->out[i].data;
        a.v_out = c->out[i + groups].data;
        a.n = ebb_elements(&x->type);
        EBB_TRY(EBB_LAUNCH(c, momentum[ebb_cuda_float_row(x->type.dtype)], ebb_cuda_grid(a.n),
                           EBB_CUDA_BLOCK, 0, a));
    }
    return NULL;
}

/* (R, T, X..., G..., V..., H...) {alpha, beta, epsilon, norm_coefficient, norm_coefficient_post} ->
 * X'..., V'..., H'.... */
static ebb_status run_adam(const ebb_call *c)
{
    adam_args a;
    memset(&a, 0, sizeof a);
    a.rate = ebb_cuda_number_of(&c->in[0]);
    a.count = ebb_cuda_number_of(&c->in[1]);
    a.alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.9f);
    a.beta = ebb_attr_float(&c->attrs, "beta", (double)0.999f);
    a.epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-6f);
    a.decay = ebb_attr_float(&c->attrs, "norm_coefficient", 0.0);
    a.keep = 1.0 - ebb_attr_float(&c->attrs, "norm_coefficient_post", 0.0);
    uint32_t groups = (c->input_count - 2) / 4;
    for (uint32_t i = 0; i < groups; i++) {
        const ebb_operand *x = &c->in[2 + i];
        a.w = x->data;
        a.g = x[groups].data;
        a.v = x[2 * groups].data;
        a.h = x[3 * groups].data;
        a.w_out = c->out[i].data;
        a.v_out = c->out[i + groups].data;
        a.h_out = c->out[i + 2 * groups].data;
        a.n = ebb_elements(&x->type);
        EBB_TRY(EBB_LAUNCH(c, adam[ebb_cuda_float_row(x->type.dtype)], ebb_cuda_grid(a.n),
                           EBB_CUDA_BLOCK, 0, a));
    }
    return NULL;
}

/* (R, T, X..., G..., H...) {decay_factor, epsilon, norm_coefficient} -> X'..., H'.... */
static ebb_status run_adagrad(const ebb_call *c)
{
    adagrad_args a;
    memset(&a, 0, sizeof a);
    a.rate = ebb_cuda_number_of(&c->in[0]);
    a.count = ebb_cuda_number_of(&c->in[1]);
    a.falls = ebb_attr_float(&c->attrs, "decay_factor", 0.0);
    a.epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-6f);
    a.decay = ebb_attr_float(&c->attrs, "norm_coefficient", 0.0);
    uint32_t groups = (c->input_count - 2) / 3;
    for (uint32_t i = 0; i < groups; i++) {
        const ebb_operand *x = &c->in[2 + i];
        a.w = x->data;
        a.g = x[groups].data;
        a.h = x[2 * groups].data;
        a.w_out = c->out[i].data;
        a.h_out = c->out[i + groups].data;
        a.n = ebb_elements(&x->type);
        EBB_TRY(EBB_LAUNCH(c, adagrad[ebb_cuda_float_row(x->type.dtype)], ebb_cuda_grid(a.n),
                           EBB_CUDA_BLOCK, 0, a));
    }
    return NULL;
}

/* (lr, T, W, G, M, V) -> W', M', V': T steps have been done, this one is step T + 1. */
static ebb_status run_adamw(const ebb_call *c)
{
    adamw_args a;
    memset(&a, 0, sizeof a);
    a.rate = ebb_cuda_number_of(&c->in[0]);
    a.count = ebb_cuda_number_of(&c->in[1]);
    a.alpha = ebb_attr_float(&c->attrs, "alpha", (double)0.9f);
    a.beta = ebb_attr_float(&c->attrs, "beta", (double)0.999f);
    a.epsilon = ebb_attr_float(&c->attrs, "epsilon", (double)1e-8f);
    a.decay = ebb_attr_float(&c->attrs, "weight_decay", (double)0.01f);
    a.w = c->in[2].data;
    a.g = c->in[3].data;
    a.m = c->in[4].data;
    a.v = c->in[5].data;
    a.w_out = c->out[0].data;
    a.m_out = c->out[1].data;
    a.v_out = c->out[2].data;
    a.n = ebb_elements(&c->in[2].type);
    return EBB_LAUNCH(c, adamw[ebb_cuda_float_row(c->in[2].type.dtype)], ebb_cuda_grid(a.n),
                      EBB_CUDA_BLOCK, 0, a);
}

/* Inputs from `first` on and all outputs are there, floats of one dtype, and the state's shapes. */
static const char *declines_state(const ebb_call *c, uint32_t first, uint32_t groups)
{
    const char *why = ebb_cuda_any(c);
    if (why != NULL)
        return why;
    uint8_t dtype = c->in[first].type.dtype;
    if (!ebb_dtype_is_float((ebb_dtype)dtype))
        return "computes in float16, bfloat16, float32 and float64 only";
    for (uint32_t i = 0; i < first; i++)
        if (ebb_elements(&c->in[i].type) != 1)
            return "the rate or the step count is not a scalar";
    for (uint32_t i = first; i < c->input_count; i++) {
        const ebb_type *like = &c->in[first + (i - first) % groups].type;
        if (c->in[i].type.dtype != dtype || !ebb_type_same_shape(&c->in[i].type, like))
            return "weight, gradient and states differ in type";
    }
    for (uint32_t o = 0; o < c->output_count; o++) {
        const ebb_type *like = &c->in[first + o % groups].type;
        if (c->out[o].type.dtype != dtype || !ebb_type_same_shape(&c->out[o].type, like))
            return "an output is missing or differs in type";
    }
    return NULL;
}

static const char *declines_sgd(const ebb_call *c)
{
    if (c->input_count != 3 || c->output_count != 1)
        return "wrong number of operands";
    return declines_state(c, 1, 1);
}

static const char *declines_momentum(const ebb_call *c)
{
    uint32_t groups = c->input_count < 5 ? 0 : (c->input_count - 2) / 3;
    if (groups == 0 || c->input_count != 2 + 3 * groups || c->output_count != 2 * groups)
        return "wrong number of operands";
    return declines_state(c, 2, groups);
}

static const char *declines_adam(const ebb_call *c)
{
    uint32_t groups = c->input_count < 6 ? 0 : (c->input_count - 2) / 4;
    if (groups == 0 || c->input_count != 2 + 4 * groups || c->output_count != 3 * groups)
        return "wrong number of operands";
    return declines_state(c, 2, groups);
}

static const char *declines_adamw(const ebb_call *c)
{
    if (c->input_count != 6 || c->output_count != 3)
        return "wrong number of operands";
    return declines_state(c, 2, 1);
}

const ebb_kernel ebb_cuda_optim[] = {
    {"cuda.sgd", EBB_OP_SGD, declines_sgd, NULL, NULL, run_sgd, NULL},
    {"cuda.momentum", EBB_OP_MOMENTUM, declines_momentum, NULL, NULL, run_momentum, NULL},
    {"cuda.adam", EBB_OP_ADAM, declines_adam, NULL, NULL, run_adam, NULL},
    {"cuda.adagrad", EBB_OP_ADAGRAD, declines_momentum, NULL, NULL, run_adagrad, NULL},
    {"cuda.adamw", EBB_OP_ADAMW, declines_adamw, NULL, NULL, run_adamw, NULL},
};
EBB_CUDA_COUNT(optim)
