/* optim: the optimizers' steps: new weights and states like the old ones. */
#include "onnx/ops/common.h"
#include "onnx/graph/shape.h"

/* Input i is a scalar: rank 0, or one element. */
static ebb_status check_scalar(const ebb_infer *c, uint32_t i, const char *what)
{
    const ebb_type *t = ebb_infer_type(c, i);
    if (t != NULL && t->rank >= 0 && (t->rank > 1 || (t->rank == 1 && t->dims[0] > 1)))
        return ebb_infer_error(c, "the %s is not a scalar", what);
    return NULL;
}

/* Output k takes the type of the state in input i, which a gradient of the same shape changes. */
static ebb_status replaces(ebb_infer *c, uint32_t k, uint32_t i, uint32_t gradient)
{
    EBB_TRY(ebb_infer_same_dims(c, i, gradient));
    EBB_TRY(ebb_infer_same_dtype(c, i, gradient));
    if (k < c->output_count)
        c->out[k] = *c->in[i];
    return NULL;
}

/* (lr, W, G) -> W'. */
ebb_status ebb_infer_sgd(ebb_infer *c)
{
    EBB_TRY(check_scalar(c, 0, "learning rate"));
    return replaces(c, 0, 1, 2);
}

/* (R, T, X..., G..., states...) -> X'..., states'..., in as many groups as there are. */
static ebb_status infer_groups(ebb_infer *c, uint32_t states)
{
    const uint32_t kinds = 2 + states;
    uint32_t groups = c->input_count < 2 + kinds ? 0 : (c->input_count - 2) / kinds;
    if (groups == 0 || c->input_count != 2 + kinds * groups)
        return ebb_infer_error(c, "%u inputs are not R, T and groups of X, G, %s",
                               (unsigned)c->input_count, states == 2 ? "V, H" : "V");
    EBB_TRY(ebb_infer_need(c, c->input_count));
    EBB_TRY(check_scalar(c, 0, "learning rate"));
    EBB_TRY(check_scalar(c, 1, "step count"));
    for (uint32_t i = 0; i < groups; i++) {
        uint32_t x = 2 + i, g = x + groups;
        EBB_TRY(replaces(c, i, x, g));
        for (uint32_t k = 1; k <= states; k++)
            EBB_TRY(replaces(c, i + k * groups, g + k * groups, g));
    }
    return NULL;
}

/* Momentum and Adagrad: one state, V or H. */
ebb_status ebb_infer_optim_momentum(ebb_infer *c)
{
    return infer_groups(c, 1);
}

/* Adam: V and H. */
ebb_status ebb_infer_optim_adam(ebb_infer *c)
{
    return infer_groups(c, 2);
}

/* (lr, T, W, G, M, V) -> W', M', V'. */
ebb_status ebb_infer_adamw(ebb_infer *c)
{
    EBB_TRY(check_scalar(c, 0, "learning rate"));
    EBB_TRY(check_scalar(c, 1, "step count"));
    EBB_TRY(replaces(c, 0, 2, 3));
    EBB_TRY(replaces(c, 1, 4, 3));
    return replaces(c, 2, 5, 3);
}

/* Input i is a vector of so many elements; -1: of any number. */
static ebb_status check_vector(const ebb_infer *c, uint32_t i, int64_t size, const char *what)
{
    const ebb_type *t = ebb_infer_type(c, i);
    if (t == NULL || t->rank < 0 ||
        (t->rank == 1 && (size < 0 || t->dims[0] < 0 || t->dims[0] == size)))
        return NULL;
    if (t->rank != 1)
        return ebb_infer_error(c, "input %u, the %s, is no vector", (unsigned)i, what);
    return ebb_infer_error(c, "input %u, the %s, has %lld elements; %lld are expected", (unsigned)i,
                           what, (long long)t->dims[0], (long long)size);
}

/* Inputs and outputs of a state in codes: uint8 codes and a scale for each block, which new ones of
 * the same type replace. */
static ebb_status replaces_codes(ebb_infer *c, uint32_t out, uint32_t in)
{
    const ebb_type *w = ebb_infer_type(c, 2), *codes = ebb_infer_type(c, in);
    int64_t n, bits = ebb_attr_int(&c->attrs, "bits", 8);
    int64_t block = ebb_attr_int(&c->attrs, "block", 256);
    if (bits != 4 && bits != 8)
        return ebb_infer_error(c, "bits is %lld; 4 or 8 is expected", (long long)bits);
    if (block < 32 || block > 4096 || block % 32 != 0)
        return ebb_infer_error(c, "block is %lld; a multiple of 32 up to 4096 is expected",
                               (long long)block);
    EBB_TRY(ebb_infer_same_dtype(c, in + 1, 2));
    if (codes != NULL && codes->dtype != EBB_NONE && codes->dtype != EBB_U8)
        return ebb_infer_error(c, "input %u are no codes of uint8", (unsigned)in);
    bool known = w != NULL && ebb_type_elements(w, &n);
    EBB_TRY(check_vector(c, in, known ? n / (8 / bits) + (n % (8 / bits) != 0) : -1, "codes"));
    EBB_TRY(check_vector(c, in + 1, known ? n / block + (n % block != 0) : -1, "scales"));
    if (out < c->output_count)
        c->out[out] = *c->in[in];
    if (out + 1 < c->output_count)
        c->out[out + 1] = *c->in[in + 1];
    return NULL;
}

/* lr, T, W, G, as many states in codes, as many maps, and a key where the operator draws. */
static ebb_status infer_low_bit(ebb_infer *c, uint32_t states, bool draws)
{
    const uint32_t first_map = 4 + 2 * states, key = first_map + states;
    EBB_TRY(check_scalar(c, 0, "learning rate"));
    EBB_TRY(check_scalar(c, 1, "step count"));
    EBB_TRY(replaces(c, 0, 2, 3));
    for (uint32_t k = 0; k < states; k++) {
        EBB_TRY(replaces_codes(c, 1 + 2 * k, 4 + 2 * k));
        EBB_TRY(check_vector(c, first_map + k, (int64_t)1 << ebb_attr_int(&c->attrs, "bits", 8),
                             "map"));
        EBB_TRY(ebb_infer_same_dtype(c, first_map + k, 2));
    }
    return draws ? check_vector(c, key, 2, "key") : NULL;
}

/* (lr, T, W, G, M, M_scale, V, V_scale, M_map, V_map, key?) -> W', M', M_scale', V', V_scale'. */
ebb_status ebb_infer_adamw_low_bit(ebb_infer *c)
{
    return infer_low_bit(c, 2, c->op == EBB_OP_ADAMW_LOW_BIT_STOCHASTIC);
}

/* (R, T, W, G, V, V_scale, V_map, key?) -> W', V', V_scale'. */
ebb_status ebb_infer_momentum_low_bit(ebb_infer *c)
{
    return infer_low_bit(c, 1, c->op == EBB_OP_MOMENTUM_LOW_BIT_STOCHASTIC);
}
